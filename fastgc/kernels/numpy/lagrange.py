"""Lagrange bases."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cyclic import Status

__all__ = [
    "bind_functional",
    "lagrange_basis",
    "lagrange_evaluate",
    "lagrange_products",
    "lagrange_weights",
]


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


def lagrange_weights(
    nodes: NDArray[Any],
    scaled: NDArray[Any],
    weights: NDArray[Any],
    exponent: NDArray[np.int64] | None,
) -> int | None:
    """See `fastgc.kernels.lagrange_weights`."""
    largest = float(_larger_part(nodes).max())
    if not np.isfinite(nodes).all():
        return None
    shift = min(-math.frexp(largest)[1], 1023)
    scaled[:] = _ldexp(nodes, np.array(shift))
    powers, hit = np.empty((2, nodes.size), dtype=np.int64)
    lagrange_products(scaled, scaled, weights, powers, hit)
    if (hit != np.arange(nodes.size)).any():
        return None
    weights[:] = 1.0 / weights
    powers = -powers
    if exponent is None:
        powers -= (powers + np.frexp(np.abs(weights))[1]).max() - 1
        weights[:] = _ldexp(weights, powers)
    else:
        exponent[:] = powers
    return shift


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
    with np.errstate(over="ignore", invalid="ignore"):
        points = points * scale
        if not ((_larger_part(points) <= 2.0**239).all() and np.isfinite(values).all()):
            return False
        basis = np.empty((points.size, nodes.size), nodes.dtype)
        lagrange_basis(nodes, weights, weight_exponent, points, basis)
        out[:] = basis @ values
    row, column = np.nonzero(_larger_part(points[:, None] - nodes) < 2.0**-250)
    out[row] = values[column]
    return True


def bind_functional(
    nodes: NDArray[Any], points: NDArray[Any], chosen: NDArray[np.int64], out: NDArray[Any]
) -> Callable[[int], int]:
    """See `fastgc.kernels.bind_functional`."""

    def functional(f: int) -> int:
        numbers = chosen[:f]
        if ((numbers < 0) | (numbers >= nodes.size)).any():
            return Status.OUT_OF_RANGE
        x = nodes[numbers]
        product, (exponent, hit) = np.empty_like(x), np.empty((2, f), dtype=np.int64)
        lagrange_products(x, x, product, exponent, hit)
        if (hit != np.arange(f)).any():
            return Status.DUPLICATE
        with np.errstate(over="ignore", invalid="ignore"):
            lagrange_basis(x, 1.0 / product, -exponent, points, out[:f])
        return Status.OK if np.isfinite(out[:f]).all() else Status.OVERFLOW

    return functional
