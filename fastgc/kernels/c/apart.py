"""Combinations of rows as they come."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..cyclic import Status
from ..rows import AddRow, Combinations, Rows, alike, kind_of
from .decoding import pointed_to

__all__ = ["bind_add", "bind_apart"]

_functions = {
    "float": ("float[]", lib.fgc_combine_apart_float, lib.fgc_add_apart_float),
    "double": ("double[]", lib.fgc_combine_apart_double, lib.fgc_add_apart_double),
    "half": ("float[]", lib.fgc_combine_apart_half, lib.fgc_add_apart_half),
    "bfloat": ("float[]", lib.fgc_combine_apart_bfloat, lib.fgc_add_apart_bfloat),
}


def _known_layout() -> bool:
    """Whether arrays are laid out as csrc/fastgc.h has them: as in all NumPy of CPython so far."""
    probe = np.empty((3, 4))[:, 1:]
    if sys.implementation.name != "cpython":
        return False
    seen = ffi.cast("fgc_array *", id(probe))
    numbers = (seen.type, seen.data, seen.dtype, seen.base)
    same = (id(type(probe)), probe.ctypes.data, id(probe.dtype), id(probe.base))
    return (
        tuple(int(ffi.cast("uintptr_t", number)) for number in numbers) == same
        and seen.dimensions == probe.ndim
        and (*seen.shape[0:2], *seen.strides[0:2]) == (*probe.shape, *probe.strides)
        and seen.flags == probe.flags.num
    )


_KNOWN_LAYOUT = _known_layout()


def bind_apart(
    mode: int,
    coef: NDArray[Any],
    length: int,
    dtype: np.dtype[Any],
    extent: int,
    size: int,
    check: bool,
) -> Combinations:
    """See `fastgc.kernels.bind_apart`."""
    fields = {
        "mode": mode,
        "flags": 2 * check,  # FGC_CHECK
        "coef": ffi.from_buffer("double[]", coef),
        "extent": extent,
        "in_len": length,
        "out_len": size,
    }
    stack = ffi.new("fgc_apart *", fields | {"stride": length * dtype.itemsize})
    anywhere = ffi.new("fgc_apart *", fields)
    given = ffi.new("fgc_apart *", fields | {"objects": True})
    pointed_to[stack] = pointed_to[anywhere] = pointed_to[given] = fields
    kind, function, _ = _functions[kind_of(dtype)]
    real, pointers, ids = ffi.typeof(kind), ffi.typeof("char *[]"), ffi.typeof("uintptr_t[]")
    buffer, new, misplaced = ffi.from_buffer, ffi.new, int(Status.MISPLACED)

    def stacked(rows: Any, out: NDArray[Any], count: int) -> int:
        return function(stack, buffer(rows), buffer(real, out), count)  # type: ignore[no-any-return]

    def separate(rows: Sequence[NDArray[Any]], out: NDArray[Any], count: int) -> int:
        try:
            addresses = new(pointers, list(map(buffer, rows)))
        except ValueError:  # one is not contiguous
            return misplaced
        return function(anywhere, addresses, buffer(real, out), count)  # type: ignore[no-any-return]

    def listed(rows: Rows, out: NDArray[Any], count: int) -> int:
        addresses = rows.c
        if addresses is None:
            addresses = rows.c = buffer(ids, rows.addresses)
        return function(anywhere, addresses, buffer(real, out), count)  # type: ignore[no-any-return]

    def objects(arrays: list[Any], out: NDArray[Any], count: int) -> int:
        if not _KNOWN_LAYOUT:
            return separate(arrays, out, count) if alike(arrays) else misplaced
        # An array of objects holds their addresses; what each of them tells takes Python as long
        # as it takes C to combine them.
        table = np.fromiter(arrays, object, count)
        return function(given, buffer(ids, table), buffer(real, out), count)  # type: ignore[no-any-return]

    return Combinations(stacked, separate, listed, objects)


def bind_add(
    mode: int,
    coef: NDArray[Any],
    weights: NDArray[np.float64],
    length: int,
    dtype: np.dtype[Any],
    extent: int,
    out: NDArray[Any],
    energy: NDArray[np.float64],
) -> AddRow:
    """See `fastgc.kernels.bind_add`."""
    given = {
        "mode": mode,
        "coef": ffi.from_buffer("double[]", coef),
        "extent": extent,
        "in_len": length,
        "out_len": out.size,
    }
    struct = ffi.new("fgc_apart *", given)
    pointed_to[struct] = given
    kind, _, function = _functions[kind_of(dtype)]
    weights_, energy_ = ffi.from_buffer("double[]", weights), ffi.from_buffer("double[]", energy)
    out_, buffer = ffi.from_buffer(kind, out, require_writable=True), ffi.from_buffer

    def add(row: NDArray[Any], at: int, accumulate: bool) -> int:
        return function(struct, weights_, energy_, out_, buffer(row), at, accumulate)  # type: ignore[no-any-return]

    return add
