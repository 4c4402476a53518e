"""Linear combinations of long vectors, and their norms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..rows import CombineRows, EncodeRows, Rows, kind_of

__all__ = ["bind_combine", "bind_encode", "bind_square_sum", "combine", "square_sum"]

_combine = {
    "float": ("float[]", lib.fgc_combine_float, lib.fgc_combine_chosen_float),
    "double": ("double[]", lib.fgc_combine_double, lib.fgc_combine_chosen_double),
    "half": ("float[]", lib.fgc_combine_half, lib.fgc_combine_chosen_half),
    "bfloat": ("float[]", lib.fgc_combine_bfloat, lib.fgc_combine_chosen_bfloat),
}
_encode = {
    "float": ("float[]", lib.fgc_encode_float),
    "double": ("double[]", lib.fgc_encode_double),
    "half": ("float[]", lib.fgc_encode_half),
    "bfloat": ("float[]", lib.fgc_encode_bfloat),
}
_square_sum = {
    "float": ("float[]", lib.fgc_square_sum_float),
    "double": ("double[]", lib.fgc_square_sum_double),
    "half": ("uint16_t[]", lib.fgc_square_sum_half),
    "bfloat": ("uint16_t[]", lib.fgc_square_sum_bfloat),
}


def combine(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    out: NDArray[Any],
    extent: int,
    accumulate: bool,
    check: bool,
) -> bool:
    """See `fastgc.kernels.combine`."""
    kind, function, _ = _combine[rows.kind]
    return not function(
        mode,
        rows.c or _addresses(rows),
        ffi.from_buffer("double[]", coef),
        len(rows.arrays),
        extent,
        rows.length,
        out.size,
        accumulate + 2 * check,  # FGC_ACCUMULATE, FGC_CHECK
        ffi.from_buffer(kind, out),
    )


def bind_combine(
    mode: int,
    rows: Rows,
    numbers: NDArray[np.int64],
    coef: NDArray[Any],
    out: NDArray[Any],
    extent: int,
    accumulate: bool,
    check: bool,
) -> CombineRows:
    """See `fastgc.kernels.bind_combine`."""
    kind, _, function = _combine[rows.kind]
    call = partial(
        function,
        mode,
        rows.c or _addresses(rows),
        ffi.from_buffer("int64_t[]", numbers),
        ffi.from_buffer("double[]", coef),
        extent,
        rows.length,
        out.size,
        accumulate + 2 * check,  # FGC_ACCUMULATE, FGC_CHECK
        ffi.from_buffer(kind, out, require_writable=True),
    )
    vars(call)["rows"] = rows  # the addresses' arrays, which pointers do not keep alive
    return call


def bind_encode(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    weights: NDArray[np.float64],
    out: NDArray[Any],
    extent: int,
    accumulate: bool,
) -> EncodeRows:
    """See `fastgc.kernels.bind_encode`."""
    kind, function = _encode[rows.kind]
    call = partial(
        function,
        mode,
        rows.c or _addresses(rows),
        ffi.from_buffer("double[]", coef),
        ffi.from_buffer("double[]", weights),
        coef.size,
        extent,
        rows.length,
        out.size,
        int(accumulate),  # FGC_ACCUMULATE
        ffi.from_buffer(kind, out, require_writable=True),
    )
    vars(call)["rows"] = rows
    return call


def _addresses(rows: Rows) -> Any:
    rows.c = ffi.from_buffer("uintptr_t[]", rows.addresses)
    return rows.c


def square_sum(x: NDArray[Any]) -> float:
    """See `fastgc.kernels.square_sum`."""
    kind, function = _square_sum[kind_of(x.dtype)]
    return function(ffi.from_buffer(kind, x), x.size)  # type: ignore[no-any-return]


def bind_square_sum(x: NDArray[Any]) -> Callable[[], float]:
    """See `fastgc.kernels.bind_square_sum`."""
    kind, function = _square_sum[kind_of(x.dtype)]
    return partial(function, ffi.from_buffer(kind, x), x.size)
