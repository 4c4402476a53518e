"""Rows: long vectors in separate buffers, the ways to combine them, and how combinations round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._base.arrays import Array, Floats, Ints
from ._cffi import ffi

# How rows and output of a combination relate; the numbers are csrc/fastgc.h's fgc_mode.
REAL = 0  # real coefficients, real rows, real output
PACKED = 1  # complex coefficients; rows and output are reals that stand for complex pairs
REAL_PART = 2  # complex coefficients, complex rows, output is the real part
EXPAND = 3  # complex coefficients, real rows, complex output

# Every backend adds up rows in groups of LEAST_GROUP to LARGEST_GROUP, and adds the sums of groups
# to the rest. (Rows of float32 are added up at least as precisely, and groups in float64.) Bounds
# of rounding errors rely on it.
LEAST_GROUP, LARGEST_GROUP = 4, 8

# Combines the first `count` rows: ``combine(count) -> status``.
CombineRows: TypeAlias = Callable[[int], int]

# Combines rows that are given with each call: see `bind_apart`.
CombineApart: TypeAlias = Callable[[Any, Array, int], int]

# The names in C of the reals of a dtype; "E" is ml_dtypes' bfloat16.
_KINDS = {"f": "float", "F": "float", "d": "double", "D": "double", "e": "half", "E": "bfloat"}


_FEW = 16  # rows
_UINTPTR = ffi.typeof("uintptr_t")
_USABLE = 0x101  # bits of an array's flags: contiguous, aligned


def kind_of(dtype: np.dtype[Any]) -> str:
    """Kind of the reals of a dtype: "float", "double", "half" or "bfloat"."""
    kind = _KINDS.get(dtype.char)
    if kind is None or not dtype.isnative:
        raise TypeError(f"rows must be of floats or complex numbers, not {dtype}")
    return kind


class Rows:
    """Up to `capacity` contiguous vectors of one length and dtype, with their addresses.

    It keeps a reference to each row, so that its address stays valid while the row is listed.

    Attributes
    ----------
    arrays : list of (length,) arrays, or (count, length) array
    addresses : (capacity,) uintp array
        Where each row begins; only the first ``count`` entries are meaningful.
    dtype : numpy dtype
    length, nbytes : int
        Elements and bytes of a row.
    kind : str
        Kind of a row's reals: see `kind_of`.
    c : Any
        The C backend's pointer to `addresses`, made when first used.
    """

    __slots__ = ("addresses", "arrays", "c", "dtype", "kind", "length", "nbytes")

    def __init__(self, capacity: int, length: int, dtype: np.dtype[Any]) -> None:
        self.addresses = np.empty(capacity, dtype=np.uintp)
        self.arrays: Any = []
        self.c: Any = None
        self.dtype, self.kind = dtype, kind_of(dtype)
        self.length = length
        self.nbytes = length * dtype.itemsize

    @classmethod
    def of(cls, arrays: Iterable[Array], length: int, dtype: np.dtype[Any]) -> Rows:
        """Rows of a 2-D array with contiguous rows, or separate vectors."""
        rows = cls.__new__(cls)  # without room for more rows: half the time
        if isinstance(arrays, np.ndarray):
            rows.addresses = stacked(address(arrays[0]), arrays.strides[0], len(arrays))
            rows.arrays = arrays
        else:
            rows.arrays = listed = list(arrays)
            rows.addresses = _addresses(listed)
        rows.c, rows.dtype, rows.kind = None, dtype, kind_of(dtype)
        rows.length, rows.nbytes = length, length * dtype.itemsize
        return rows

    @property
    def count(self) -> int:
        """Number of rows listed."""
        return len(self.arrays)

    def append(self, array: Array) -> None:
        """List one more row."""
        self.addresses[len(self.arrays)] = address(array)
        self.arrays.append(array)

    def point(self, at: int, array: Array) -> None:
        """Record the address of the row at position `at`, which is listed next."""
        self.addresses[at] = address(array)

    def select(self, which: Ints) -> Rows:
        """Return these rows only, in this order."""
        rows = Rows.__new__(Rows)  # `copy.copy` takes four times as long
        rows.addresses = self.addresses[which]
        rows.arrays = _Chosen(self.arrays, which)
        rows.c, rows.dtype, rows.kind = None, self.dtype, self.kind
        rows.length, rows.nbytes = self.length, self.nbytes
        return rows

    def overlap(self, array: Array) -> bool:
        """Whether a contiguous array shares memory with a row."""
        stacked = isinstance(self.arrays, np.ndarray)
        if stacked and not np.may_share_memory(self.arrays, array):  # not even the gaps of rows
            return False
        if len(self.arrays) <= _FEW:  # one by one takes half the time
            start = address(array)
            before, end = start - self.nbytes, start + array.nbytes
            return any(before < at < end for at in self.addresses[: len(self.arrays)].tolist())
        # A row overlaps if its address is in first .. first + extent - 1. As unsigned numbers,
        # differences of addresses below `first` wrap to large ones.
        first = (address(array) - self.nbytes + 1) % 2**64
        extent = array.nbytes + self.nbytes - 1
        return bool((self.addresses[: len(self.arrays)] - np.uint64(first) < extent).any())

    def check(self, name: str) -> None:
        """Raise TypeError or ValueError, which call the rows `name`, unless all are as listed."""
        arrays = self.arrays
        if isinstance(arrays, np.ndarray) and arrays.ndim != 2:
            raise ValueError(f"{name} must be rows of a matrix, not of an array of {arrays.shape}")
        if len(arrays) and not self._in_place():
            raise self._fault(name)

    def _in_place(self) -> bool:
        """Whether all rows are vectors of this dtype that still lie at their addresses."""
        arrays, count, dtype, listed = self.arrays, len(self.arrays), self.dtype, self.addresses
        if isinstance(arrays, np.ndarray):
            first, (step, size) = address(arrays[0]), arrays.strides
            return (
                arrays.dtype == dtype
                and arrays.shape[1] == self.length
                and (size == dtype.itemsize or self.length <= 1)
                and arrays.flags.aligned
                and count <= listed.size
                and listed.item(0) == first
                and listed.item(count - 1) == (first + step * (count - 1)) % 2**64
            )
        rows, shape = list(arrays), (self.length,)
        # Row by row: for few rows, in a third of the time that one property of all at a time takes.
        fits = [
            type(row) is np.ndarray
            and row.dtype == dtype
            and row.shape == shape
            and row.flags.num & _USABLE == _USABLE
            for row in rows
        ]
        if not all(fits):
            return False
        return _addresses(rows).tobytes() == self.addresses[:count].tobytes()

    def _fault(self, name: str) -> Exception:
        """Return the error that says what is wrong with the first faulty row."""
        for at, row in enumerate(self.arrays):
            if type(row) is not np.ndarray:
                return TypeError(f"{name} must be NumPy arrays: {at} is {type(row).__name__}")
            if row.dtype != self.dtype:
                return TypeError(
                    f"{name} were said to be of {self.dtype}, but {at} is of {row.dtype}"
                )
            if row.shape != (self.length,):
                return ValueError(f"{name} must have shape ({self.length},): {at} has {row.shape}")
            if row.flags.num & _USABLE != _USABLE:
                return ValueError(f"{name} must be contiguous and aligned: {at} is not")
        return ValueError(f"{name} do not lie where they did when they were listed")

    def clear(self) -> None:
        """Forget all rows."""
        self.arrays.clear()


class _Chosen:
    """Chosen rows, looked up only when iterated: compiled kernels need just their number."""

    __slots__ = ("arrays", "which")

    def __init__(self, arrays: Sequence[Array], which: Ints) -> None:
        self.arrays, self.which = arrays, which

    def __len__(self) -> int:
        return self.which.size

    def __getitem__(self, at: int) -> Array:
        found: Array = self.arrays[self.which[at]]
        return found

    def __iter__(self) -> Iterator[Array]:
        return map(self.arrays.__getitem__, self.which.tolist())


@lru_cache(maxsize=4)
def _steps(count: int, stride: int) -> NDArray[np.uintp]:
    """Offsets of rows from the first; negative ones wrap, as do their sums with an address."""
    steps = (np.arange(count, dtype=np.int64) * stride).view(np.uintp)
    steps.flags.writeable = False
    return steps


def stacked(first: int, stride: int, count: int) -> NDArray[np.uintp]:
    """Addresses of `count` rows that lie `stride` bytes apart."""
    addresses: NDArray[np.uintp] = first + _steps(count, stride)
    return addresses


def _addresses(arrays: list[Array]) -> NDArray[np.uintp]:
    if not arrays:
        return np.empty(0, np.uintp)
    pointers = ffi.new("char *[]", list(map(ffi.from_buffer, arrays)))  # in half the time
    return np.frombuffer(ffi.buffer(pointers), np.uintp)


def address(array: Array) -> int:
    """Address of an array's first element."""
    # 0.2 microseconds; array.ctypes.data and __array_interface__ take 0.75.
    return int(ffi.cast(_UINTPTR, ffi.from_buffer(array)))


# Unit roundoff of float64.
DOUBLE = 2.0**-53

# Mean square of rounding errors, relative to that of the numbers, in squared units of roundoff.
# Numbers between 1 and 2 have a mean square error of 1/3, and a mean square of 3 / (2 ln 2) if
# their logarithms are spread evenly.
ROUNDING = 2 * math.log(2) / 9


def sums_of(terms: float) -> float:
    """Number of additions that round a term: in its group, and of the groups after it."""
    return min(terms, terms / LARGEST_GROUP + LARGEST_GROUP / 2)


class Projecting(NamedTuple):
    """Random numbers, of which projections are made: see csrc/kernels.def.

    A message is cut into blocks of two rows of `ROW` reals, which take turns by eights: a matrix M.
    Its projections are U M W.

    Attributes
    ----------
    left : (rows, SIDE) float64 array
        U, transposed.
    right : (eights, SIDE, 8) float64 array
        W, in parts of eight rows, which are transposed.
    paired : bool
        Whether two reals are a complex number. Then both have the same numbers in `right`.
    unit : float
        Factor of norms, and of the numbers in `right`: a power of two that prevents overflow.
    """

    left: Floats
    right: Floats
    paired: bool
    unit: float


class ArrivalArrays(NamedTuple):
    """The state of messages as they come: fgc_arrivals of csrc/fastgc.h, with the same names."""

    first: Ints
    next: Ints
    heard: NDArray[np.uint8]
    numbers: Ints
    squares: Floats
    energies: Floats
    values: Array | None
    norms: Floats | None
