"""Lagrange bases."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..._base.arrays import Array, Ints
from ..contract import NODES, check_power_of_two, reads, takes, writes
from ..cyclic import Status

__all__ = [
    "bind_functional",
    "lagrange_basis",
    "lagrange_evaluate",
    "lagrange_products",
    "lagrange_weights",
]


@takes(
    nodes=reads(NODES, "m"),
    points=reads("nodes", "p"),
    mantissa=writes("nodes", "p"),
    exponent=writes("int64", "p"),
    hit=writes("int64", "p"),
)
def lagrange_products(
    nodes: Array, points: Array, mantissa: Array, exponent: Ints, hit: Ints
) -> None:
    """Compute ``mantissa[i] 2^exponent[i] = prod_j (points[i] - nodes[j])``.

    Nodes that equal the point are left out of the product; ``hit[i]`` is the last of them. If there
    is none, it is -1, or -2 if a node is nearer than 2^-250.

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
        Nodes and points have moduli of about 1 at most.
    points, mantissa : (p,) array
        Of the nodes' dtype. Mantissas, or the larger of their parts, lie in [1, 2).
    exponent, hit : (p,) int64 array
    """
    mantissa[:] = 1.0
    exponent[:] = 0
    hit[:] = -1
    for at in range(0, nodes.size, 4):
        factors = points[:, None] - nodes[at : at + 4]
        row, column = np.nonzero(_larger_part(factors) == 0)
        hit[row] = at + column
        factors[row, column] = 1.0
        # Four factors that are smaller leave the range of a double.
        near = _larger_part(factors) < 2.0**-250
        hit[near.any(axis=1) & (hit == -1)] = -2
        shift = np.where(near, _exponent(factors), 0)
        exponent += shift.sum(axis=1)
        mantissa *= _ldexp(factors, -shift).prod(axis=1)
        shift = _exponent(mantissa)
        mantissa[:] = _ldexp(mantissa, -shift)
        exponent += shift


def _exponent(x: Array) -> Ints:
    exponent: Ints = np.frexp(_larger_part(x))[1].astype(np.int64) - 1
    return exponent


def _larger_part(x: Array) -> Array:
    size: Array = np.maximum(np.abs(x.real), np.abs(x.imag))
    return size


def _ldexp(x: Array, exponent: Array) -> Array:
    exponent = np.clip(exponent, -9000, 9000).astype(np.intc)  # the type that ldexp takes
    scaled: Array = np.empty_like(x)
    with np.errstate(over="ignore", under="ignore"):
        scaled.real = np.ldexp(x.real, exponent)
        if np.iscomplexobj(x):
            scaled.imag = np.ldexp(x.imag, exponent)
    return scaled


def _check_exponents(weight_exponent: Ints) -> None:
    most = 2**40  # sums of such exponents stay far within 64 bits
    if not -most <= weight_exponent.min() <= weight_exponent.max() <= most:
        raise ValueError("exponents in weight_exponent must be between -2^40 and 2^40")


def _check_basis(nodes: Array, weight_exponent: Ints, points: Array, out: Array) -> None:
    _check_exponents(weight_exponent)
    m, p = nodes.size, points.size
    if out.shape not in ((p, m), (m,)):
        raise ValueError(f"out must have shape ({p}, {m}) or ({m},), not {out.shape}")


@takes(
    _check_basis,
    nodes=reads(NODES, "m", least=1),
    weights=reads("nodes", "m"),
    weight_exponent=reads("int64", "m"),
    points=reads("nodes", "p"),
    out=writes("nodes", "..."),
)
def lagrange_basis(
    nodes: Array, weights: Array, weight_exponent: Ints, points: Array, out: Array
) -> None:
    """Compute ``out[i, j] = l_j(points[i])``, the Lagrange basis on distinct nodes, or column sums.

    Parameters
    ----------
    nodes, weights : (m,) float64 or complex128 array
    weight_exponent : (m,) int64 array
        ``weights[j] 2^weight_exponent[j]`` is 1 over the product of node j's differences from the
        others. Exponents are between -2^40 and 2^40.
    points : (p,) array
    out : (p, m) or (m,) array
        Contiguous; all arrays of numbers have one dtype. A vector gets the sum over all points.
    """
    mantissa, exponent = np.empty_like(points), np.empty(points.size, dtype=np.int64)
    hit = np.empty(points.size, dtype=np.int64)
    lagrange_products(nodes, points, mantissa, exponent, hit)
    difference = points[:, None] - nodes
    difference[hit >= 0] = 1.0
    shift = _exponent(difference)
    quotient = mantissa[:, None] / _ldexp(difference, -shift) * weights
    values = _ldexp(quotient, exponent[:, None] + weight_exponent - shift)
    values[hit >= 0] = 0.0
    values[hit >= 0, hit[hit >= 0]] = 1.0
    out[...] = values if out.ndim == 2 else values.sum(axis=0)


@takes(
    nodes=reads(NODES, "m", least=1),
    scaled=writes("nodes", "m"),
    weights=writes("nodes", "m"),
    exponent=writes("int64", "m", optional=True),
)
def lagrange_weights(
    nodes: Array, scaled: Array, weights: Array, exponent: Ints | None
) -> int | None:
    """Compute barycentric weights ``1 / prod_(i != j) (x_j - x_i)`` of scaled nodes x.

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
    scaled : (m,) array
        The scaled nodes, x: ``nodes * 2.0**shift``, whose largest part lies in [1/2, 1).
    weights : (m,) array
        Of the nodes' dtype, like `scaled`.
    exponent : (m,) int64 array or None
        Weight j is ``weights[j] * 2.0**exponent[j]``. None: all weights are instead multiplied by
        one power of two, so that the largest modulus lies in [1, 2).

    Returns
    -------
    int or None
        The shift; None if a node is not finite or two coincide: `weights` then means nothing.
    """
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


def _check_evaluate(weight_exponent: Ints, scale: float) -> None:
    _check_exponents(weight_exponent)
    check_power_of_two("scale", scale, 1023)


@takes(
    _check_evaluate,
    nodes=reads(NODES, "m", least=1),
    weights=reads("nodes", "m"),
    weight_exponent=reads("int64", "m"),
    values=reads("nodes", "m"),
    points=reads("nodes", "p"),
    out=writes("nodes", "p"),
)
def lagrange_evaluate(
    nodes: Array,
    weights: Array,
    weight_exponent: Ints,
    values: Array,
    points: Array,
    scale: float,
    out: Array,
) -> bool:
    """Compute ``out[i] = sum_j values[j] l_j(scale * points[i])``, exactly if a point is a node.

    Parameters
    ----------
    nodes, weights, weight_exponent
        As in `lagrange_basis`.
    values : (m,) array
    points, out : (p,) array
        All arrays of numbers have one dtype.
    scale : float
        A power of two.

    Returns
    -------
    bool
        False, with nothing written, if a point or a value is not finite, or a scaled point is
        beyond 2^239.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        points = points * scale
        if not ((_larger_part(points) <= 2.0**239).all() and np.isfinite(values).all()):
            return False
        basis = np.empty((points.size, nodes.size), nodes.dtype)
        lagrange_basis(nodes, weights, weight_exponent, points, basis)
        out[:] = basis @ values
    row, column = np.nonzero(_larger_part(points[:, None] - nodes) == 0)
    out[row] = values[column]
    return True


def bind_functional(nodes: Array, points: Array, chosen: Ints, out: Array) -> Callable[[int], int]:
    """Prepare the column sums of Lagrange bases of some of the nodes, on two fixed buffers.

    Returns a function ``functional(f) -> status``, f >= 1, that reads ``chosen[:f]``, numbers of
    nodes, and writes ``out[:f]``: ``sum_i l_j(points[i])`` for each of these. Its status is
    `Status.OUT_OF_RANGE` if a number is not that of a node, `Status.DUPLICATE` if two nodes
    coincide, and `Status.OVERFLOW` if a sum does not fit a double.

    Parameters
    ----------
    nodes : (n,) float64 or complex128 array
        Moduli are about 1 at most.
    points : (p,) array
    chosen : int64 array
    out : array
        Has the dtype of `nodes`, as `points` has.
    """

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
