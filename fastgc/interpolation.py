"""Lagrange interpolation by barycentric formulas, for coded computing.

Lagrange coded computing (Yu et al. 2019) encodes data blocks as values of the polynomial that
passes through them: `basis` is its encoding matrix. What the master wants of the workers' answers
is a sum of values of their polynomial, and `functional` gives the weights of that sum, so no
polynomial is ever formed.

Of the two barycentric formulas (Berrut & Trefethen, "Barycentric Lagrange interpolation", 2004)
this is the first, l_j(z) = w_j / (z - x_j) prod_i (z - x_i): every factor is accurate, and so is
every value, relative to itself (Higham 2004). The second divides by a sum that cancels where the
Lebesgue constant of the nodes is large, as it is for the nodes of survivors. Products are kept as
mantissa and exponent, so that thousands of factors neither over- nor underflow.

Nodes decide everything else: take `chebyshev` for real data and `roots_of_unity` for complex;
equispaced real nodes are useless beyond some twenty.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import kernels
from ._arrays import (
    Output,
    check_finite,
    check_integer,
    check_line,
    check_numbers,
    check_output,
    check_workers,
)

__all__ = [
    "Functionals",
    "basis",
    "chebyshev",
    "evaluate",
    "functional",
    "roots_of_unity",
    "weights",
]

_FLOAT, _COMPLEX = np.dtype(np.float64), np.dtype(np.complex128)
_FARTHEST = 2.0**240  # of points from nodes: four such factors stay within a double
_PI = np.longdouble("3.14159265358979323846264338327950288")


class _Nodes(NamedTuple):
    """Nodes and points over a power of two, and the weights: bases do not see the scale."""

    nodes: NDArray[Any]
    weights: NDArray[Any]
    exponent: NDArray[np.int64]
    points: NDArray[Any]


def _scaled(nodes: NDArray[Any], points: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], float]:
    """Check, and multiply by a power of two, which comes last."""
    largest = farthest = np.abs(nodes.view(_FLOAT)).max()
    if points is not nodes:
        if nodes.dtype is not points.dtype:
            nodes, points = nodes.astype(_COMPLEX), points.astype(_COMPLEX)
        farthest = np.abs(points.view(_FLOAT)).max()
    if not (largest < np.inf and farthest < np.inf):
        check_finite("nodes", nodes)
        check_finite("points", points)
    if largest and farthest / _FARTHEST > largest:
        raise ValueError(
            f"points reach {farthest}, more than 2^240 times as far as the nodes, {largest}"
        )
    # ldexp would overflow for the scale of subnormal numbers
    scale = math.ldexp(1.0, min(-math.frexp(largest or farthest)[1], 1023))
    return nodes * scale, points * scale, scale


def _prepare(nodes: NDArray[Any], points: NDArray[Any]) -> _Nodes:
    """Check, scale, and multiply the differences of the nodes."""
    nodes, points, scale = _scaled(nodes, points)
    product = np.empty_like(nodes)
    exponent, hit = np.empty((2, nodes.size), dtype=np.int64)
    kernels.lagrange_products(nodes, nodes, product, exponent, hit)
    if (coincident := hit != np.arange(nodes.size)).any():
        i = int(np.argmax(coincident))
        raise ValueError(
            f"nodes {i} and {hit[i]} are both {nodes[i] / scale}: nodes must be distinct"
        )
    return _Nodes(nodes, 1.0 / product, -exponent, points)


def weights(nodes: ArrayLike) -> NDArray[Any]:
    """Barycentric weights ``w_j = c / prod_(i != j) (x_j - x_i)``.

    One power of two c for all, chosen so that the largest modulus lies in [1, 2): barycentric
    formulas do not see it. Nothing over- or underflows on the way, whatever the number of nodes and
    the length of their interval; a weight below 1e-308 of the largest may become zero, as most of
    2000 equispaced nodes do.

    Parameters
    ----------
    nodes : (m,) array_like
        Distinct real or complex numbers.

    Returns
    -------
    (m,) float64 or complex128 array

    Raises
    ------
    TypeError
        If the nodes are no numbers.
    ValueError
        If two nodes coincide (are nearer than 2^-250 times the largest), or one is not finite, or
        there is none.
    """
    nodes = check_line("nodes", nodes)
    _, inverse, exponent, _ = _prepare(nodes, nodes)
    _, shift = np.frexp(np.abs(inverse))
    # ldexp takes C ints; weights so small are zero either way
    scale = np.maximum(exponent - (exponent + shift).max() + 1, -4000).astype(np.intc)
    parts = inverse.view(_FLOAT).reshape(nodes.size, -1)
    return np.asarray(np.ldexp(parts, scale[:, None]).view(nodes.dtype)[:, 0])


def basis(nodes: ArrayLike, points: ArrayLike, out: Output | None = None) -> NDArray[Any]:
    """Matrix of the Lagrange basis: entry (i, j) is ``l_j(points[i])``.

    ``l_j`` is the polynomial of degree below m that is 1 at node j and 0 at the others, so
    ``basis(nodes, points) @ values`` are the interpolant's values. Where a point is a node, the row
    is exactly a unit vector.

    Parameters
    ----------
    nodes : (m,) array_like
        Distinct real or complex numbers.
    points : (p,) array_like
    out : (p, m) array, optional
        Where to write: contiguous, float64, or complex128 if nodes or points are complex.

    Returns
    -------
    (p, m) float64 or complex128 array

    Raises
    ------
    TypeError
        If nodes or points are no numbers, or `out` has another dtype.
    ValueError
        If two nodes coincide, a number is not finite, points lie more than 2^240 times as far out
        as the nodes, or a shape does not fit.
    """
    prepared = _prepare(check_line("nodes", nodes), check_line("points", points))
    shape, dtype = (prepared.points.size, prepared.nodes.size), prepared.nodes.dtype
    values = np.empty(shape, dtype) if out is None else check_output("out", out, dtype, shape)
    kernels.lagrange_basis(*prepared, values)
    return values if out is None else out


def functional(nodes: ArrayLike, points: ArrayLike) -> NDArray[Any]:
    """Coefficients c of ``sum_j h(points[j]) = sum_k c_k h(nodes[k])``, deg h < m.

    The column sums of `basis`, without the matrix: with workers' answers at `nodes`, the decoding
    vector of Lagrange coded computing.

    Parameters
    ----------
    nodes : (m,) array_like
        Distinct real or complex numbers.
    points : (p,) array_like

    Returns
    -------
    (m,) float64 or complex128 array

    Raises
    ------
    TypeError, ValueError
        As `basis`.
    """
    prepared = _prepare(check_line("nodes", nodes), check_line("points", points))
    out = np.empty_like(prepared.nodes)
    kernels.lagrange_basis(*prepared, out)
    return out


class Functionals:
    """`functional` of any of some nodes, for hot loops: nodes and points are prepared once.

    Parameters
    ----------
    nodes : (m,) array_like
        Distinct real or complex numbers.
    points : (p,) array_like

    Raises
    ------
    TypeError, ValueError
        As `functional`.

    Examples
    --------
    >>> from fastgc import interpolation
    >>> nodes, points = interpolation.chebyshev(5), interpolation.chebyshev(2)
    >>> of = interpolation.Functionals(nodes, points)
    >>> bool((of([4, 0, 2]) == interpolation.functional(nodes[[4, 0, 2]], points)).all())
    True
    """

    __slots__ = ("_given", "_nodes", "_own", "_plain", "_points")

    def __init__(self, nodes: ArrayLike, points: ArrayLike) -> None:
        self._given = check_line("nodes", nodes).copy(), check_line("points", points).copy()
        prepared = _prepare(*self._given)  # refuses nodes that coincide
        self._nodes, self._points = prepared.nodes, prepared.points
        self._own = np.arange(self._nodes.size)
        # From the least nodes alone points may lie too far away: that `functional` will see.
        size = np.abs(self._nodes[self._nodes != 0])
        self._plain = bool((size >= np.abs(self._points).max() / _FARTHEST).all())

    def __call__(self, chosen: ArrayLike) -> NDArray[Any]:
        """Coefficients for the chosen nodes.

        Parameters
        ----------
        chosen : (f,) integer array, or (nodes,) bool array
            Numbers of nodes, each once, one at least; or whether each is chosen.

        Returns
        -------
        (f,) float64 or complex128 array

        Raises
        ------
        TypeError
            If they are neither integers nor booleans.
        ValueError
            If one is chosen twice or does not exist, or none is.
        """
        numbers = check_workers("chosen", chosen, self._own.size)
        if not numbers.size or numbers.view(np.uint64).max() >= self._own.size:
            raise ValueError(
                f"chosen must be numbers of nodes, 0 to {self._own.size - 1}, not {chosen!r}"
            )
        if not self._plain:
            nodes, points = self._given
            return functional(nodes[numbers], points)
        nodes = self._nodes.take(numbers)
        product = np.empty_like(nodes)
        exponent, hit = np.empty((2, nodes.size), dtype=np.int64)
        kernels.lagrange_products(nodes, nodes, product, exponent, hit)
        if hit.tobytes() != self._own[: nodes.size].tobytes():
            raise ValueError(f"chosen must name each node once, not {chosen!r}")
        out = np.empty_like(nodes)
        kernels.lagrange_basis(nodes, 1.0 / product, -exponent, self._points, out)
        return out


def evaluate(nodes: ArrayLike, values: ArrayLike, points: ArrayLike) -> NDArray[Any]:
    """Values at `points` of the polynomial that takes `values` at `nodes`.

    Parameters
    ----------
    nodes : (m,) array_like
        Distinct real or complex numbers.
    values : (m,) or (m, r) array_like
        Of one polynomial, or of one in each column.
    points : (p,) array_like

    Returns
    -------
    (p,) or (p, r) float64 or complex128 array

    Raises
    ------
    TypeError, ValueError
        As `basis`; also if `values` has another shape.
    """
    nodes, values = check_line("nodes", nodes), check_numbers("values", values)
    if values.ndim not in (1, 2) or len(values) != nodes.size:
        m = nodes.size
        raise ValueError(f"values must have shape ({m},) or ({m}, r), not {values.shape}")
    with np.errstate(over="ignore", invalid="ignore"):  # of values that are not finite, or large
        return np.asarray(basis(nodes, points) @ values)


def _count(m: int) -> int:
    m = check_integer("the number of points", m)
    if m < 1:
        raise ValueError(f"the number of points must be at least 1, not {m}")
    return m


def chebyshev(m: int) -> NDArray[np.float64]:
    """Chebyshev points of the first kind, ascending in (-1, 1); exactly symmetric about 0.

    Parameters
    ----------
    m : int

    Returns
    -------
    (m,) float64 array
    """
    m = _count(m)
    # as sines: odd, accurate near 0, and exactly 0 in the middle
    return np.sin(_PI * np.arange(1 - m, m, 2) / (2 * m)).astype(np.float64)


def roots_of_unity(m: int, offset: float = 0.0) -> NDArray[np.complex128]:
    """``exp(2 pi i (j + offset) / m)``, j = 0 .. m-1, each within about a unit roundoff.

    Parameters
    ----------
    m : int
    offset : float
        0.5 puts the points halfway between those of offset 0.

    Returns
    -------
    (m,) complex128 array

    Raises
    ------
    ValueError
        If m is below 1 or `offset` is not finite.
    """
    m = _count(m)
    if not np.isfinite(offset):
        raise ValueError(f"offset must be finite, not {offset}")
    # Within an eighth of a turn of the nearest quarter, so that right angles are exact.
    turns = 4 * (np.arange(m) + np.fmod(np.longdouble(offset), m)) / m
    quarter = np.rint(turns)
    angle = (turns - quarter) * (_PI / 2)
    near = (np.cos(angle) + 1j * np.sin(angle)).astype(np.complex128)
    return np.asarray(near * np.array([1, 1j, -1, -1j])[quarter.astype(np.int64) % 4])
