"""Lagrange bases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["lagrange_basis", "lagrange_products"]


def lagrange_products(
    nodes: NDArray[Any],
    points: NDArray[Any],
    mantissa: NDArray[Any],
    exponent: NDArray[np.int64],
    hit: NDArray[np.int64],
) -> None:
    """See `fastgc.kernels.lagrange_products`."""
    mantissa[:] = 1.0
    exponent[:] = 0
    hit[:] = -1
    for at in range(0, nodes.size, 4):
        factors = points[:, None] - nodes[at : at + 4]
        row, column = np.nonzero(_larger_part(factors) < 2.0**-250)
        hit[row] = at + column
        factors[row, column] = 1.0
        mantissa *= factors.prod(axis=1)
        shift = np.frexp(_larger_part(mantissa))[1] - 1
        mantissa[:] = _ldexp(mantissa, -shift)
        exponent += shift


def _larger_part(x: NDArray[Any]) -> NDArray[Any]:
    size: NDArray[Any] = np.maximum(np.abs(x.real), np.abs(x.imag))
    return size


def _ldexp(x: NDArray[Any], exponent: NDArray[Any]) -> NDArray[Any]:
    exponent = np.clip(exponent, -4000, 4000).astype(np.intc)  # which ldexp takes
    scaled: NDArray[Any] = np.empty_like(x)
    with np.errstate(over="ignore", under="ignore"):
        scaled.real = np.ldexp(x.real, exponent)
        if np.iscomplexobj(x):
            scaled.imag = np.ldexp(x.imag, exponent)
    return scaled


def lagrange_basis(
    nodes: NDArray[Any],
    weights: NDArray[Any],
    weight_exponent: NDArray[np.int64],
    points: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """See `fastgc.kernels.lagrange_basis`."""
    mantissa, exponent = np.empty_like(points), np.empty(points.size, dtype=np.int64)
    hit = np.empty(points.size, dtype=np.int64)
    lagrange_products(nodes, points, mantissa, exponent, hit)
    difference = points[:, None] - nodes
    difference[hit >= 0] = 1.0
    quotient = mantissa[:, None] / difference * weights
    values = _ldexp(quotient, exponent[:, None] + weight_exponent)
    values[hit >= 0] = 0.0
    values[hit >= 0, hit[hit >= 0]] = 1.0
    out[...] = values if out.ndim == 2 else values.sum(axis=0)
