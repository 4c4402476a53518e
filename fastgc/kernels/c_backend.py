"""The compiled extension (csrc/), reached through cffi."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ._cffi import ffi, lib
from .completion import Completion, CompletionPlan
from .cyclic import CyclicPlan, CyclicStream, CyclicTables, Decode, Status, StreamCalls, Where
from .fourier import Polar
from .rows import CombinePart, Rows, kind_of

NO_MEMORY = Status.NO_MEMORY

__all__ = [
    "amsgrad",
    "bind_combine",
    "bind_decoding_vector",
    "bind_polar",
    "bind_stream",
    "bind_survivor_mask",
    "combine",
    "completion",
    "decoding_vectors",
    "lagrange_basis",
    "lagrange_products",
    "leja_order",
    "nesterov",
    "replace",
    "select_simd",
    "sgd",
    "simd",
    "solve_vandermonde",
    "square_distance",
    "square_sum",
]

_combine = {
    "float": ("float[]", lib.fgc_combine_float, lib.fgc_combine_chosen_float),
    "double": ("double[]", lib.fgc_combine_double, lib.fgc_combine_chosen_double),
    "half": ("float[]", lib.fgc_combine_half, lib.fgc_combine_chosen_half),
    "bfloat": ("float[]", lib.fgc_combine_bfloat, lib.fgc_combine_chosen_bfloat),
}
_square_sum = {
    "float": ("float[]", lib.fgc_square_sum_float),
    "double": ("double[]", lib.fgc_square_sum_double),
    "half": ("uint16_t[]", lib.fgc_square_sum_half),
    "bfloat": ("uint16_t[]", lib.fgc_square_sum_bfloat),
}
# by a dtype's character, with the type of its vectors
_sgd = {"f": ("float[]", lib.fgc_sgd_float), "d": ("double[]", lib.fgc_sgd_double)}
_nesterov = {"f": ("float[]", lib.fgc_nesterov_float), "d": ("double[]", lib.fgc_nesterov_double)}
_amsgrad = {"f": ("float[]", lib.fgc_amsgrad_float), "d": ("double[]", lib.fgc_amsgrad_double)}
_replace = {"f": ("float[]", lib.fgc_replace_float), "d": ("double[]", lib.fgc_replace_double)}
_square_distance = {
    "f": ("float[]", lib.fgc_square_distance_float),
    "d": ("double[]", lib.fgc_square_distance_double),
}


def simd() -> str:
    """Level of SIMD instructions in use: "baseline", "avx2" or "avx512"."""
    return str(ffi.string(lib.fgc_simd()), "ascii")


def select_simd(level: str) -> bool:
    """Use another level; False, and no change, where build or processor lack it."""
    return bool(lib.fgc_simd_select(level.encode()))


_C_TYPES = {"d": "double[]", "?": "unsigned char[]"}  # by a dtype's character

_pointed_to: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # a struct does not keep that


def _struct(name: str, arrays: CyclicTables | CyclicStream, **sizes: int) -> Any:
    buffers = {
        field: ffi.from_buffer(_C_TYPES.get(array.dtype.char, "int64_t[]"), array)
        for field, array in arrays._asdict().items()
    }
    struct = ffi.new(f"{name} *", sizes | buffers)
    _pointed_to[struct] = buffers
    return struct


def _plan(plan: CyclicPlan) -> Any:
    if plan.c is None:
        blocks = len(plan.tables.q)
        plan.c = _struct("fgc_cyclic", plan.tables, workers=plan.workers, blocks=blocks)
    return plan.c


def bind_decoding_vector(
    plan: CyclicPlan, survivors: NDArray[np.int64], out: NDArray[np.complex128]
) -> tuple[Decode, Where]:
    """See `fastgc.kernels.bind_decoding_vector`."""
    struct = _plan(plan)
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    where = ffi.new("int64_t *")
    # a partial adds no Python frame to the call
    decode = partial(lib.fgc_decoding_vector, struct, survivors_, out_, where, _work(plan))
    return decode, where


def _work(plan: CyclicPlan) -> Any:
    return ffi.from_buffer(np.empty(plan.workers * lib.FGC_WORK, dtype=np.uint8))


def bind_polar(
    plan: CyclicPlan,
    survivors: NDArray[np.int64],
    present: NDArray[np.bool_],
    size: NDArray[np.float64],
    out: NDArray[np.complex128],
) -> Polar:
    """See `fastgc.kernels.fourier.Polar`."""
    struct, where = _plan(plan), ffi.new("int64_t *")
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    present_ = ffi.from_buffer("unsigned char[]", present, require_writable=True)
    size_ = ffi.from_buffer("double[]", size)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    return Polar(
        partial(lib.fgc_mark, struct, survivors_, present_, where),
        partial(
            lib.fgc_polar_vector, struct, survivors_, present_, size_, out_, where, _work(plan)
        ),
        where,
    )


def bind_stream(plan: CyclicPlan, stream: CyclicStream) -> StreamCalls:
    """See `fastgc.kernels.bind_stream`."""
    structs = _plan(plan), _struct("fgc_stream", stream)
    where, work = ffi.new("int64_t *"), _work(plan)

    def vector(survivors: NDArray[np.int64], out: NDArray[np.complex128]) -> int:
        survivors_ = ffi.from_buffer("int64_t[]", survivors)
        out_ = ffi.from_buffer("double[]", out, require_writable=True)
        return lib.fgc_stream_vector(  # type: ignore[no-any-return]
            *structs, survivors_, out_, where, work, survivors.size
        )

    return StreamCalls(
        partial(lib.fgc_stream_rebuild, *structs, work),
        partial(lib.fgc_stream_leave, *structs),
        partial(lib.fgc_stream_join, *structs),
        vector,
        where,
    )


def decoding_vectors(
    plan: CyclicPlan,
    masks: NDArray[np.bool_],
    method: int,
    out: NDArray[np.complex128],
    where: NDArray[np.int64],
) -> None:
    """See `fastgc.kernels.decoding_vectors`."""
    status = lib.fgc_decoding_vectors(
        _plan(plan),
        ffi.from_buffer("unsigned char[]", masks, require_writable=True),
        ffi.from_buffer("double[]", out, require_writable=True),
        ffi.from_buffer("int64_t[]", where, require_writable=True),
        method,
        len(masks),
    )
    if status:
        raise MemoryError


def bind_survivor_mask(
    n: int, survivors: NDArray[np.int64], bits: NDArray[np.uint8]
) -> Callable[[int], int]:
    """See `fastgc.kernels.bind_survivor_mask`."""
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    bits_ = ffi.from_buffer("uint8_t[]", bits, require_writable=True)
    return partial(lib.fgc_survivor_mask, n, survivors_, bits_)


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
    kind, function, _ = _combine[rows.kind]
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


def bind_combine(
    mode: int,
    rows: Rows,
    numbers: NDArray[np.int64],
    coef: NDArray[Any],
    out: NDArray[Any],
    accumulate: bool,
    check: bool,
) -> CombinePart:
    """See `fastgc.kernels.bind_combine`; ``part(count, lo, hi)`` as in `combine`, a `Status`."""
    kind, _, function = _combine[rows.kind]
    return partial(
        function,
        mode,
        rows.c or _addresses(rows),
        ffi.from_buffer("int64_t[]", numbers),
        ffi.from_buffer("double[]", coef),
        rows.length,
        out.size,
        accumulate + 2 * check,  # FGC_ACCUMULATE, FGC_CHECK
        ffi.from_buffer(kind, out, require_writable=True),
    )


def _addresses(rows: Rows) -> Any:
    rows.c = ffi.from_buffer("uintptr_t[]", rows.addresses)
    return rows.c


def square_sum(x: NDArray[Any]) -> float:
    """See `fastgc.kernels.square_sum`."""
    kind, function = _square_sum[kind_of(x.dtype)]
    return function(ffi.from_buffer(kind, x), x.size)  # type: ignore[no-any-return]


def sgd(
    theta: NDArray[Any],
    velocity: NDArray[Any] | None,
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """See `fastgc.kernels.sgd`."""
    vector, function = _sgd[theta.dtype.char]
    return function(  # type: ignore[no-any-return]
        ffi.from_buffer(vector, theta),
        ffi.NULL if velocity is None else ffi.from_buffer(vector, velocity),
        ffi.from_buffer(vector, gradient),
        lr,
        momentum,
        theta.size,
    )


def nesterov(
    theta: NDArray[Any],
    point: NDArray[Any],
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """See `fastgc.kernels.nesterov`."""
    vector, function = _nesterov[theta.dtype.char]
    return function(  # type: ignore[no-any-return]
        ffi.from_buffer(vector, theta),
        ffi.from_buffer(vector, point),
        ffi.from_buffer(vector, gradient),
        lr,
        momentum,
        theta.size,
    )


def amsgrad(
    theta: NDArray[Any],
    h: NDArray[Any],
    v: NDArray[Any],
    gradient: NDArray[Any],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> float:
    """See `fastgc.kernels.amsgrad`."""
    vector, function = _amsgrad[theta.dtype.char]
    return function(  # type: ignore[no-any-return]
        ffi.from_buffer(vector, theta),
        ffi.from_buffer(vector, h),
        ffi.from_buffer(vector, v),
        ffi.from_buffer(vector, gradient),
        lr,
        beta1,
        beta2,
        epsilon,
        theta.size,
    )


def replace(old: NDArray[Any], new: NDArray[Any], total: NDArray[Any] | None) -> float:
    """See `fastgc.kernels.replace`."""
    vector, function = _replace[old.dtype.char]
    return function(  # type: ignore[no-any-return]
        ffi.from_buffer(vector, old),
        ffi.from_buffer(vector, new),
        ffi.NULL if total is None else ffi.from_buffer(vector, total),
        old.size,
    )


def square_distance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """See `fastgc.kernels.square_distance`."""
    vector, function = _square_distance[x.dtype.char]
    return function(  # type: ignore[no-any-return]
        ffi.from_buffer(vector, x), ffi.from_buffer(vector, y), x.size
    )


def leja_order(nodes: NDArray[Any], order: NDArray[np.int64]) -> None:
    """See `fastgc.kernels.leja_order`."""
    status = lib.fgc_leja_order(
        ffi.from_buffer("double[]", nodes),
        nodes.size,
        nodes.dtype.char == "D",
        ffi.from_buffer("int64_t[]", order),
    )
    if status:
        raise MemoryError


_double_pointer = ffi.typeof("double[]")  # parsed once


def solve_vandermonde(
    nodes: NDArray[Any],
    b: NDArray[Any],
    order: NDArray[np.int64] | None,
    transpose: bool,
    out: NDArray[Any],
    forced: bool,
) -> bool:
    """See `fastgc.kernels.solve_vandermonde`."""
    m = nodes.size
    status = lib.fgc_solve_vandermonde(
        ffi.from_buffer(_double_pointer, nodes),
        ffi.from_buffer(_double_pointer, b),
        ffi.NULL if order is None else ffi.from_buffer("int64_t[]", order),
        ffi.from_buffer(_double_pointer, out),
        m,
        b.size // m,
        # FGC_COMPLEX, FGC_TRANSPOSE, FGC_FORCED
        (nodes.dtype.char == "D") + 2 * bool(transpose) + 4 * forced,
    )
    if status == NO_MEMORY:
        raise MemoryError
    return not status


def lagrange_products(
    nodes: NDArray[Any],
    points: NDArray[Any],
    mantissa: NDArray[Any],
    exponent: NDArray[np.int64],
    hit: NDArray[np.int64],
) -> None:
    """See `fastgc.kernels.lagrange_products`."""
    lib.fgc_lagrange_products(
        ffi.from_buffer("double[]", nodes),
        nodes.size,
        ffi.from_buffer("double[]", points),
        points.size,
        nodes.dtype.char == "D",
        ffi.from_buffer("double[]", mantissa),
        ffi.from_buffer("int64_t[]", exponent),
        ffi.from_buffer("int64_t[]", hit),
    )


def lagrange_basis(
    nodes: NDArray[Any],
    weights: NDArray[Any],
    weight_exponent: NDArray[np.int64],
    points: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """See `fastgc.kernels.lagrange_basis`."""
    status = lib.fgc_lagrange_basis(
        ffi.from_buffer("double[]", nodes),
        ffi.from_buffer("double[]", weights),
        ffi.from_buffer("int64_t[]", weight_exponent),
        nodes.size,
        ffi.from_buffer("double[]", points),
        points.size,
        nodes.dtype.char == "D",
        out.ndim == 1,
        ffi.from_buffer("double[]", out),
    )
    if status:
        raise MemoryError


def completion(
    plan: CompletionPlan,
    delay: NDArray[np.float64],
    work: NDArray[np.float64],
    late: NDArray[np.float64],
    receive: float,
    overhead: float,
    interrupted: bool,
    out: Completion,
) -> None:
    """See `fastgc.kernels.completion`."""
    buffers = {
        name: ffi.from_buffer("double[]" if array.dtype == np.float64 else "int64_t[]", array)
        for name, array in plan._asdict().items()
        if name not in ("kind", "total")
    }
    struct = {
        "kind": plan.kind,
        "workers": plan.loads.size,
        "groups": plan.need.size,
        "total": plan.total,
        **buffers,
    }
    status = lib.fgc_completion(
        ffi.new("fgc_completion_plan *", struct),
        ffi.from_buffer("double[]", delay),
        ffi.from_buffer("double[]", work),
        ffi.from_buffer("double[]", late),
        len(work),
        receive,
        overhead,
        interrupted,
        ffi.from_buffer("double[]", out.time),
        ffi.from_buffer("int64_t[]", out.messages),
        ffi.from_buffer("int64_t[]", out.workers),
        ffi.from_buffer("int64_t[]", out.computations),
    )
    if status:
        raise MemoryError
