"""Vandermonde systems: Björck and Pereyra's algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..cyclic import Status

__all__ = ["leja_order", "solve_vandermonde"]

_NO_MEMORY = Status.NO_MEMORY
_NONE = ffi.NULL
_double_pointer = ffi.typeof("double[]")  # parsed once


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


def solve_vandermonde(
    nodes: NDArray[Any],
    b: NDArray[Any],
    order: NDArray[np.int64] | None,
    transpose: bool,
    out: NDArray[Any],
    forced: bool,
    bound: NDArray[np.float64] | None,
    choose: bool,
) -> bool:
    """See `fastgc.kernels.solve_vandermonde`."""
    m = nodes.size
    status = lib.fgc_solve_vandermonde(
        ffi.from_buffer(_double_pointer, nodes),
        ffi.from_buffer(_double_pointer, b),
        _NONE if order is None else ffi.from_buffer("int64_t[]", order),
        ffi.from_buffer(_double_pointer, out),
        _NONE if bound is None else ffi.from_buffer(_double_pointer, bound),
        m,
        b.size // m,
        # FGC_COMPLEX, FGC_TRANSPOSE, FGC_FORCED, FGC_CHOOSE
        (nodes.dtype.char == "D") + 2 * bool(transpose) + 4 * forced + 8 * choose,
    )
    if status == _NO_MEMORY:
        raise MemoryError
    return not status
