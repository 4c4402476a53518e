"""Lagrange bases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..cyclic import Status

__all__ = [
    "bind_functional",
    "lagrange_basis",
    "lagrange_evaluate",
    "lagrange_products",
    "lagrange_weights",
]

_NO_MEMORY = Status.NO_MEMORY
_double_pointer = ffi.typeof("double[]")  # parsed once
_index_pointer = ffi.typeof("int64_t[]")
_index = ffi.typeof("int64_t *")


def lagrange_products(
    nodes: NDArray[Any],
    points: NDArray[Any],
    mantissa: NDArray[Any],
    exponent: NDArray[np.int64],
    hit: NDArray[np.int64],
) -> None:
    """See `fastgc.kernels.lagrange_products`."""
    lib.fgc_lagrange_products(
        ffi.from_buffer(_double_pointer, nodes),
        nodes.size,
        ffi.from_buffer(_double_pointer, points),
        points.size,
        nodes.dtype.char == "D",
        ffi.from_buffer(_double_pointer, mantissa),
        ffi.from_buffer(_index_pointer, exponent),
        ffi.from_buffer(_index_pointer, hit),
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
        ffi.from_buffer(_double_pointer, nodes),
        ffi.from_buffer(_double_pointer, weights),
        ffi.from_buffer(_index_pointer, weight_exponent),
        nodes.size,
        ffi.from_buffer(_double_pointer, points),
        points.size,
        nodes.dtype.char == "D",
        out.ndim == 1,
        ffi.from_buffer(_double_pointer, out),
    )
    if status:
        raise MemoryError


def lagrange_weights(
    nodes: NDArray[Any],
    scaled: NDArray[Any],
    weights: NDArray[Any],
    exponent: NDArray[np.int64] | None,
) -> int | None:
    """See `fastgc.kernels.lagrange_weights`."""
    shift = ffi.new(_index)
    status = lib.fgc_lagrange_weights(
        ffi.from_buffer(_double_pointer, nodes),
        nodes.size,
        nodes.dtype.char == "D",
        ffi.from_buffer(_double_pointer, scaled),
        ffi.from_buffer(_double_pointer, weights),
        ffi.NULL if exponent is None else ffi.from_buffer(_index_pointer, exponent),
        shift,
    )
    if status == _NO_MEMORY:
        raise MemoryError
    return None if status else shift[0]


def lagrange_evaluate(
    nodes: NDArray[Any],
    weights: NDArray[Any],
    weight_exponent: NDArray[np.int64],
    values: NDArray[Any],
    points: NDArray[Any],
    scale: float,
    out: NDArray[Any],
) -> bool:
    """See `fastgc.kernels.lagrange_evaluate`."""
    status = lib.fgc_lagrange_evaluate(
        ffi.from_buffer(_double_pointer, nodes),
        ffi.from_buffer(_double_pointer, weights),
        ffi.from_buffer(_index_pointer, weight_exponent),
        nodes.size,
        ffi.from_buffer(_double_pointer, values),
        ffi.from_buffer(_double_pointer, points),
        points.size,
        scale,
        nodes.dtype.char == "D",
        ffi.from_buffer(_double_pointer, out),
    )
    if status == _NO_MEMORY:
        raise MemoryError
    return not status


def bind_functional(
    nodes: NDArray[Any], points: NDArray[Any], chosen: NDArray[np.int64], out: NDArray[Any]
) -> Callable[[int], int]:
    """See `fastgc.kernels.bind_functional`."""
    return partial(
        lib.fgc_lagrange_functional,
        ffi.from_buffer(_double_pointer, nodes),
        nodes.size,
        ffi.from_buffer(_double_pointer, points),
        points.size,
        nodes.dtype.char == "D",
        ffi.from_buffer(_index_pointer, chosen),
        ffi.from_buffer(_double_pointer, out, require_writable=True),
    )
