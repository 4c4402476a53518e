"""Lagrange bases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib

__all__ = ["lagrange_basis", "lagrange_products"]


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
