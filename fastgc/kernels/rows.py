"""Long vectors in separate buffers, and the ways they are combined."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from ._cffi import ffi
except ImportError:  # a build without the extension
    ffi = None

# How rows and output of a combination relate; the numbers are csrc/fastgc.h's fgc_mode.
REAL = 0  # real coefficients, real rows, real output
PACKED = 1  # complex coefficients; rows and output are reals that stand for complex pairs
REAL_PART = 2  # complex coefficients, complex rows, output is the real part
EXPAND = 3  # complex coefficients, real rows, complex output

# Rows are added up in groups, and these to the rest: of at least so many, and at most, by any
# backend (where sums are no more precise than the result). Bounds of rounding errors count on it.
LEAST_GROUP, LARGEST_GROUP = 4, 8

# What the reals of a dtype are called in C; "E" is ml_dtypes' bfloat16.
_KINDS = {"f": "float", "F": "float", "d": "double", "D": "double", "e": "half", "E": "bfloat"}


def kind_of(dtype: np.dtype[Any]) -> str:
    """Kind of the reals an array of this dtype consists of: "float", "double", "half", "bfloat"."""
    return _KINDS[dtype.char]


class Rows:
    """Up to `capacity` contiguous vectors of one length and dtype, addressed where they lie.

    Keeps a reference to each, so that an address stays valid as long as the row is listed.

    Attributes
    ----------
    arrays : list of (length,) arrays, or (count, length) array
    addresses : (capacity,) uintp array
        Where each begins; the first ``count`` entries are meaningful.
    length, nbytes : int
        Elements and bytes of a row.
    kind : str
        Of its reals: see `kind_of`.
    c : Any
        The C backend's pointer to `addresses`, made when first asked for.
    """

    __slots__ = ("addresses", "arrays", "c", "kind", "length", "nbytes")

    def __init__(self, capacity: int, length: int, dtype: np.dtype[Any]) -> None:
        self.addresses = np.empty(capacity, dtype=np.uintp)
        self.arrays: Any = []
        self.c: Any = None
        self.kind = kind_of(dtype)
        self.length = length
        self.nbytes = length * dtype.itemsize

    @classmethod
    def of(cls, arrays: Iterable[NDArray[Any]], length: int, dtype: np.dtype[Any]) -> Rows:
        """Rows of a 2-D array with contiguous rows, or of separate vectors."""
        if isinstance(arrays, np.ndarray):
            steps = np.arange(len(arrays), dtype=np.int64) * arrays.strides[0]
            addresses = (address(arrays[0]) + steps).astype(np.uintp)
        else:
            arrays = list(arrays)
            addresses = np.fromiter(map(address, arrays), np.uintp, len(arrays))
        rows = cls(0, length, dtype)
        rows.addresses, rows.arrays = addresses, arrays
        return rows

    @property
    def count(self) -> int:
        """Number of rows listed."""
        return len(self.arrays)

    def append(self, array: NDArray[Any]) -> None:
        """List one more row."""
        self.addresses[len(self.arrays)] = address(array)
        self.arrays.append(array)

    def select(self, which: NDArray[np.int64]) -> Rows:
        """These rows only, in this order."""
        rows = copy.copy(self)
        rows.addresses = self.addresses[which]
        rows.arrays = [self.arrays[r] for r in which]
        rows.c = None
        return rows

    def take(self, rows: Rows, which: NDArray[np.int64]) -> None:
        """List these of other rows instead, in this order."""
        self.addresses[: which.size] = rows.addresses[which]
        self.arrays = _Chosen(rows.arrays, which)

    def clear(self) -> None:
        """Forget all rows."""
        self.arrays.clear()


class _Chosen:
    """Arrays of a list, looked up when asked for: compiled kernels only want their number."""

    __slots__ = ("arrays", "which")

    def __init__(self, arrays: list[NDArray[Any]], which: NDArray[np.int64]) -> None:
        self.arrays, self.which = arrays, which

    def __len__(self) -> int:
        return self.which.size

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return map(self.arrays.__getitem__, self.which.tolist())


def address(array: NDArray[Any]) -> int:
    """Address of an array's first element."""
    # 0.25 microseconds; array.ctypes.data and __array_interface__ take 0.75.
    if ffi is None:
        return array.ctypes.data
    return int(ffi.cast("uintptr_t", ffi.from_buffer(array)))
