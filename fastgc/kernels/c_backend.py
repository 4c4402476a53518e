"""The compiled extension (csrc/), reached through cffi."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._cffi import ffi, lib
from .cyclic import CyclicPlan, Decode, Where
from .rows import Rows

__all__ = ["bind_decoding_vector", "combine", "select_simd", "simd", "square_sum"]

_combine = {
    "f": ("float[]", lib.fgc_combine_float),
    "d": ("double[]", lib.fgc_combine_double),
    "F": ("float[]", lib.fgc_combine_float),
    "D": ("double[]", lib.fgc_combine_double),
}
_square_sum = {
    "f": ("float[]", lib.fgc_square_sum_float),
    "d": ("double[]", lib.fgc_square_sum_double),
}


def simd() -> str:
    """Level of SIMD instructions in use: "baseline", "avx2" or "avx512"."""
    return str(ffi.string(lib.fgc_simd()), "ascii")


def select_simd(level: str) -> bool:
    """Use another level; False, and no change, where build or processor lack it."""
    return bool(lib.fgc_simd_select(level.encode()))


def _plan(plan: CyclicPlan) -> Any:
    if plan.c is None:
        tables = plan.tables
        buffers = {
            name: ffi.from_buffer("double[]" if array.dtype == np.float64 else "int64_t[]", array)
            for name, array in tables._asdict().items()
        }
        struct = ffi.new(
            "fgc_cyclic *", {"workers": plan.workers, "blocks": len(tables.q), **buffers}
        )
        plan.c = struct, buffers  # a struct does not keep what it points to
    return plan.c[0]


def bind_decoding_vector(
    plan: CyclicPlan, survivors: NDArray[np.int64], out: NDArray[np.complex128]
) -> tuple[Decode, Where]:
    """See `fastgc.kernels.bind_decoding_vector`."""
    struct = _plan(plan)
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    where = ffi.new("int64_t *")
    # a partial adds no Python frame to the call
    return partial(lib.fgc_decoding_vector, struct, survivors_, out_, where), where


def combine(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    out: NDArray[Any],
    lo: int,
    hi: int,
    accumulate: bool,
    check: bool,
) -> bool:
    """See `fastgc.kernels.combine`; only elements lo .. hi-1 of the rows."""
    kind, function = _combine[out.dtype.char]
    return not function(
        mode,
        rows.c or _addresses(rows),
        ffi.from_buffer("double[]", coef),
        len(rows.arrays),
        lo,
        hi,
        rows.length,
        out.size,
        accumulate + 2 * check,  # FGC_ACCUMULATE, FGC_CHECK
        ffi.from_buffer(kind, out),
    )


def _addresses(rows: Rows) -> Any:
    rows.c = ffi.from_buffer("uintptr_t[]", rows.addresses)
    return rows.c


def square_sum(x: NDArray[Any]) -> float:
    """See `fastgc.kernels.square_sum`."""
    kind, function = _square_sum[x.dtype.char]
    return function(ffi.from_buffer(kind, x), x.size)  # type: ignore[no-any-return]


from .numpy_backend import (  # noqa  TEMPORARY
    lagrange_basis,
    lagrange_functional,
    lagrange_weights,
    leja_order,
    solve_vandermonde,
)
