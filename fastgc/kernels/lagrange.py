"""Lagrange bases."""

from __future__ import annotations

import math

from .._base.arrays import Array, Ints
from . import unchecked
from .contract import NODES, reads, takes, writes

__all__ = ["lagrange_basis", "lagrange_evaluate", "lagrange_products", "lagrange_weights"]


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
    unchecked.lagrange_products(nodes, points, mantissa, exponent, hit)


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
    unchecked.lagrange_basis(nodes, weights, weight_exponent, points, out)


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
        one power of two, so that the largest modulus lies in [1, 2), up to a rounding.

    Returns
    -------
    int or None
        The shift; None if a node is not finite or two coincide: `weights` then means nothing.
    """
    return unchecked.lagrange_weights(nodes, scaled, weights, exponent)


def _check_evaluate(weight_exponent: Ints, scale: float) -> None:
    _check_exponents(weight_exponent)
    if not (2.0**-1023 <= scale <= 2.0**1023 and math.frexp(scale)[0] == 0.5):
        raise ValueError(f"scale must be a power of two, 2^-1023 to 2^1023, not {scale}")


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
    given = nodes, weights, weight_exponent, values, points, scale, out
    return bool(unchecked.lagrange_evaluate(*given))
