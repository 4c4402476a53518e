"""Lagrange interpolation by barycentric formulas, for coded computing.

Lagrange coded computing (Yu et al. 2019) encodes data blocks as values of the polynomial that
passes through them: `basis` is its encoding matrix. From the workers' answers, the master needs a
sum of values of their polynomial. `functional` gives the weights of that sum, so no polynomial is
ever computed. `Interpolator` prepares fixed nodes, for values and points that change.

Of the two barycentric formulas (Berrut & Trefethen, "Barycentric Lagrange interpolation", 2004)
this module uses the first, l_j(z) = w_j / (z - x_j) prod_i (z - x_i). Every factor is accurate, and
so is every value, relative to itself (Higham 2004). The second formula divides by a sum that
cancels if the Lebesgue constant of the nodes is large, as it is for the nodes of survivors.
Products are kept as mantissa and exponent, so that thousands of factors neither over- nor
underflow.

The nodes decide everything else. Use `chebyshev` for real data and `roots_of_unity` for complex
data; more than about twenty equispaced real nodes are useless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from .. import kernels
from .._base.arrays import (
    Array,
    Complexes,
    Floats,
    Ints,
    Output,
    at_least,
    check_finite,
    check_line,
    check_numbers,
    check_output,
    check_workers,
    output_of,
)
from .._base.text import listing
from ..kernels import Status

__all__ = [
    "Functionals",
    "Interpolator",
    "basis",
    "chebyshev",
    "evaluate",
    "functional",
    "roots_of_unity",
    "weights",
]
__dir__ = listing(__all__)

_FLOAT, _COMPLEX = np.dtype(np.float64), np.dtype(np.complex128)
_FARTHEST = 2.0**240  # most distance of points from nodes: four such factors stay within a double
_TOGETHER = 1 << 20  # entries of a basis that are made at a time: 8 MB
_PI = np.longdouble("3.14159265358979323846264338327950288")


class _Nodes(NamedTuple):
    """Nodes divided by a power of two, and their weights. Bases do not depend on the scale."""

    nodes: Array
    weights: Array
    exponent: Ints


def _weighted(nodes: Array) -> tuple[_Nodes, float]:
    """Check and scale nodes, and compute their weights. Also returns the scale."""
    scaled, inverse = np.empty((2, nodes.size), dtype=nodes.dtype)
    exponent = np.empty(nodes.size, dtype=np.int64)
    shift = kernels.unchecked.lagrange_weights(nodes, scaled, inverse, exponent)
    if shift is None:
        _refuse(nodes)
    return _Nodes(scaled, inverse, exponent), math.ldexp(1.0, shift)


@np.errstate(under="ignore")
def _refuse(nodes: Array) -> NoReturn:
    """Raise a ValueError that names nodes that (nearly) coincide, or one that is not finite."""
    check_finite("nodes", nodes)
    # at most 2^1023, which the scale of subnormal numbers would exceed
    scale = math.ldexp(1.0, min(-math.frexp(np.abs(nodes.view(_FLOAT)).max())[1], 1023))
    product = np.empty_like(nodes)
    exponent, hit = np.empty((2, nodes.size), dtype=np.int64)
    kernels.unchecked.lagrange_products(nodes * scale, nodes * scale, product, exponent, hit)
    i = int(np.argmax(hit != np.arange(nodes.size)))
    j = int(hit[i])
    if nodes[i] == nodes[j]:
        raise ValueError(f"nodes {i} and {j} are both {nodes[i]}: nodes must be distinct")
    raise ValueError(
        f"nodes {i} and {j}, {nodes[i]} and {nodes[j]}, are too close: divided by the largest part "
        "of a node, they are the same double"
    )


def _near(nodes: Array, points: Array) -> float:
    """How far out points are. Raises ValueError if they are too far beyond the nodes."""
    largest, farthest = (float(np.abs(x.view(_FLOAT)).max()) for x in (nodes, points))
    if not farthest < np.inf:
        check_finite("points", points)
    if largest and farthest / _FARTHEST > largest:
        raise ValueError(
            f"points reach {farthest}, more than 2^240 times as far as the nodes, {largest}"
        )
    return farthest


def _prepare(nodes: Array, points: Array) -> tuple[_Nodes, Array]:
    """Check and scale nodes and points, and compute the weights of the nodes."""
    if nodes.dtype is not points.dtype:
        nodes, points = nodes.astype(_COMPLEX), points.astype(_COMPLEX)
    prepared, scale = _weighted(nodes)
    farthest = _near(nodes, points)
    if not prepared.nodes.any():  # the only node is 0
        scale = math.ldexp(1.0, min(-math.frexp(farthest)[1], 1023))
    return prepared, points * scale


def weights(nodes: ArrayLike, out: Output | None = None) -> Array:
    """Barycentric weights ``w_j = c / prod_(i != j) (x_j - x_i)``.

    c is one power of two for all weights, chosen so that the largest modulus lies in [1, 2), up to
    a rounding. It cancels in barycentric formulas. Nothing over- or underflows on the way, whatever
    the number of nodes and the length of their interval. A weight below 1e-308 of the largest may
    become zero, as most weights of 2000 equispaced nodes do.

    Parameters
    ----------
    nodes : (m,) array_like
        Distinct real or complex numbers.
    out : (m,) array, optional
        Where to write: contiguous, of the dtype that is returned without it.

    Returns
    -------
    (m,) float64 or complex128 array

    Raises
    ------
    TypeError, ValueError
        If nodes are not numbers or not finite, two coincide (or would after division by the largest
        part of a node), there is none, or `out` has another dtype or shape. Nothing has been
        written in that case.
    """
    nodes = check_line("nodes", nodes)
    target = None if out is None else check_output("out", out, nodes.dtype, nodes.shape)
    scaled, found = np.empty((2, nodes.size), dtype=nodes.dtype)
    if kernels.unchecked.lagrange_weights(nodes, scaled, found, None) is None:
        _refuse(nodes)
    if target is None:
        return found
    target[:] = found  # only now, as `out` may be the nodes' memory
    return out  # type: ignore[return-value]


def basis(nodes: ArrayLike, points: ArrayLike, out: Output | None = None) -> Array:
    """Matrix of the Lagrange basis: entry (i, j) is ``l_j(points[i])``.

    ``l_j`` is the polynomial of degree below m that is 1 at node j and 0 at the others, so
    ``basis(nodes, points) @ values`` are the interpolant's values. If a point is a node, its row is
    exactly a unit vector.

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
    TypeError, ValueError
        If nodes or points are not numbers or not finite, two nodes coincide, points lie more than
        2^240 times as far out as the nodes, or a shape, or the dtype of `out`, does not fit.
    """
    prepared, at = _prepare(check_line("nodes", nodes), check_line("points", points))
    shape, dtype = (at.size, prepared.nodes.size), prepared.nodes.dtype
    values = output_of(out, dtype, shape)
    kernels.unchecked.lagrange_basis(*prepared, at, values)
    return values if out is None else out


def parts_of_basis(nodes: Array, points: Array) -> Iterator[Array]:
    """Rows of `basis`, some at a time, for sums over a matrix that is never held as a whole.

    Each part overwrites the one before it.
    """
    prepared, at = _prepare(check_line("nodes", nodes), check_line("points", points))
    m = prepared.nodes.size
    step = max(1, _TOGETHER // m)
    room = np.empty((min(step, at.size), m), prepared.nodes.dtype)
    for first in range(0, at.size, step):
        some = at[first : first + step]
        rows = room[: some.size]
        kernels.unchecked.lagrange_basis(*prepared, some, rows)
        yield rows


def functional(nodes: ArrayLike, points: ArrayLike, out: Output | None = None) -> Array:
    """Coefficients c of ``sum_j h(points[j]) = sum_k c_k h(nodes[k])``, deg h < m.

    These are the column sums of `basis`, without the matrix. If the workers' answers are values at
    `nodes`, they are the decoding vector of Lagrange coded computing. Parameters and errors are
    those of `basis`; `out` has shape (m,).

    Returns
    -------
    (m,) float64 or complex128 array
    """
    prepared, at = _prepare(check_line("nodes", nodes), check_line("points", points))
    shape, dtype = prepared.nodes.shape, prepared.nodes.dtype
    sums = output_of(out, dtype, shape)
    kernels.unchecked.lagrange_basis(*prepared, at, sums)
    return sums if out is None else out


class Functionals:
    """`functional` for any subset of some nodes, in hot loops: nodes and points are prepared once.

    Parameters and errors are those of `basis`, but points may lie at most 2^240 times as far out as
    the smallest node that is not 0.

    Examples
    --------
    >>> from fastgc import interpolation
    >>> nodes, points = interpolation.chebyshev(5), interpolation.chebyshev(2)
    >>> of = interpolation.Functionals(nodes, points)
    >>> bool((of([4, 0, 2]) == interpolation.functional(nodes[[4, 0, 2]], points)).all())
    True
    """

    __slots__ = ("_nodes", "_points")

    def __init__(self, nodes: ArrayLike, points: ArrayLike) -> None:
        # `_prepare` refuses nodes that coincide.
        prepared, self._points = _prepare(check_line("nodes", nodes), check_line("points", points))
        self._nodes = prepared.nodes
        size = np.abs(self._nodes[self._nodes != 0])
        if (size < np.abs(self._points).max() / _FARTHEST).any():
            raise ValueError("points reach more than 2^240 times as far as the smallest node")

    def __call__(self, chosen: ArrayLike) -> Array:
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
        TypeError, ValueError
            If they are neither integers nor booleans; one is chosen twice or does not exist; or
            none is.
        """
        numbers = check_workers("chosen", chosen, self._nodes.size)
        out = np.empty(numbers.size, dtype=self._nodes.dtype)
        run = self._bound(np.ascontiguousarray(numbers), out)
        if not numbers.size or run(numbers.size) not in (Status.OK, Status.OVERFLOW):
            self._raise(numbers, chosen)
        return out

    def bind(self, chosen: Ints, out: Array) -> Callable[[int], int]:
        """Prepare calls with two fixed buffers; pointers are taken once.

        Parameters
        ----------
        chosen : (n,) int64 array
            Contiguous.
        out : (n,) array
            Contiguous; complex128 if nodes or points are complex, else float64.

        Returns
        -------
        callable
            ``functional(f)`` reads ``chosen[:f]``, f at least 1, writes ``out[:f]`` and returns a
            `fastgc.kernels.Status`: 0; ``OVERFLOW`` if a coefficient is beyond float64; or another
            one if they are not distinct numbers of nodes, in which case `out` is meaningless.

        Raises
        ------
        TypeError, ValueError
            If a buffer has another dtype or shape, or is not contiguous.
        """
        chosen = check_output("chosen", chosen, np.dtype(np.int64), np.shape(chosen)[:1])
        out = check_output("out", out, self._nodes.dtype, chosen.shape)
        run, size = self._bound(chosen, out), chosen.size

        def functional(f: int) -> int:
            if not 1 <= f <= size:
                raise ValueError(f"f must be in 1 .. {size}, not {f}")
            return run(f)

        return functional

    def _bound(self, chosen: Ints, out: Array) -> Callable[[int], int]:
        """`bind` for checked buffers."""
        return kernels.unchecked.bind_functional(self._nodes, self._points, chosen, out)

    def _raise(self, numbers: Ints, chosen: ArrayLike) -> NoReturn:
        if not numbers.size or numbers.view(np.uint64).max() >= self._nodes.size:
            raise ValueError(
                f"chosen must be numbers of nodes, 0 to {self._nodes.size - 1}, not {chosen!r}"
            )
        raise ValueError(f"chosen must name each node once, not {chosen!r}")


class Interpolator:
    """Interpolation between nodes that are prepared once, for many values and points.

    Nodes and errors are those of `weights`.

    Notes
    -----
    This uses the first barycentric formula: O(m) for each point, after O(m^2) for the weights. For
    fixed points and many polynomials, one after another, `basis` is worth its memory.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgc import interpolation
    >>> nodes = interpolation.chebyshev(20)
    >>> interpolate = interpolation.Interpolator(nodes)
    >>> points = np.array([-0.5, 0.1, nodes[3]])
    >>> bool(np.allclose(interpolate(np.exp(nodes), points), np.exp(points), atol=1e-14))
    True
    """

    __slots__ = ("_given", "_prepared", "_scale", "_slopes")

    def __init__(self, nodes: ArrayLike) -> None:
        self._given = check_line("nodes", nodes).copy()
        self._prepared, self._scale = _weighted(self._given)
        self._slopes: Array | None = None

    def __call__(self, values: ArrayLike, points: ArrayLike, out: Output | None = None) -> Array:
        """Values at `points` of the polynomial that takes `values` at the nodes.

        Parameters
        ----------
        values : (m,) or (m, r) array_like
            Of one polynomial, or of one in each column.
        points : (p,) array_like, or a number
        out : array, optional
            Where to write: contiguous, of the shape and dtype that are returned without it. It
            shares no memory with values or points.

        Returns
        -------
        (p,) or (p, r) float64 or complex128 array
            If a point is a node, exactly its value. For a single point a number, or shape (r,).

        Raises
        ------
        TypeError, ValueError
            As `basis`, and if `out` shares memory. Nothing has been written in that case.
        """
        values, points = _values(values, self._given.size), check_numbers("points", points)
        single = points.ndim == 0
        points = points.reshape(1) if single else check_line("points", points)
        target = None
        if out is not None:
            kind = np.result_type(self._given, values, points)
            target = check_output("out", out, kind, (*points.shape[single:], *values.shape[1:]))
            if np.may_share_memory(target, values) or np.may_share_memory(target, points):
                raise ValueError("out shares memory with values, or with points")
            target = target.reshape(points.size, *values.shape[1:])
        done = False
        if values.ndim == 1 and values.dtype is self._given.dtype is points.dtype:
            found = np.empty(points.size, dtype=points.dtype) if target is None else target
            done = kernels.unchecked.lagrange_evaluate(
                *self._prepared, values, points, self._scale, found
            )
        if not done:  # also for points too far out, and for non-finite values
            matrix = self._basis(points)
            with np.errstate(over="ignore", invalid="ignore"):
                found = np.dot(matrix, values)
            if not np.vdot(found, found).real < np.inf:
                # At a node, write its value: a sum with another that is NaN or Inf is NaN.
                rows = np.flatnonzero(np.count_nonzero(matrix, axis=1) == 1)
                at = matrix[rows].argmax(axis=1)
                there = matrix[rows, at] == 1
                found[rows[there]] = values[at[there]]
            if target is not None:
                target[...] = found
        result: Any = found[0] if single else found
        return result if out is None else out  # type: ignore[no-any-return]

    def derivative(
        self, values: ArrayLike, points: ArrayLike, der: int = 1, out: Output | None = None
    ) -> Array:
        """Derivatives at `points` of the polynomial that takes `values` at the nodes.

        Derivatives are computed at the nodes first, by the differentiation matrix whose rows sum to
        0 (Berrut & Trefethen 2004, section 9.3), and interpolated from there. With nodes that fill
        an interval, as `chebyshev`'s do, each derivative loses about m^2 units of rounding.

        The matrix, of m^2 numbers, is kept for further calls. Other parameters, what is returned
        and errors are as in a call.

        Parameters
        ----------
        der : int
            Order of the derivative, 0 or more; SciPy's interpolators have the same name for it.

        Examples
        --------
        >>> import numpy as np
        >>> from fastgc import interpolation
        >>> nodes = interpolation.chebyshev(20)
        >>> interpolate = interpolation.Interpolator(nodes)
        >>> bool(np.isclose(interpolate.derivative(np.sin(nodes), 0.3), np.cos(0.3), atol=1e-13))
        True
        """
        der = at_least("der", der, 0)
        values = _values(values, self._given.size)
        if der >= self._given.size:  # the polynomial has a lower degree
            values, der = np.zeros_like(values), 0
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(der):
                values = np.dot(self._differentiation(), values) * self._scale
        return self(values, points, out)

    def _differentiation(self) -> Array:
        """The matrix that takes values to derivatives at the scaled nodes."""
        if self._slopes is None:
            nodes, weight, exponent = self._prepared
            apart = nodes[:, None] - nodes
            np.fill_diagonal(apart, 1.0)
            shift = np.clip(exponent - exponent[:, None], -4000, 4000)
            half = shift >> 1  # a single factor may be out of range
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                slopes = weight / weight[:, None] / apart
                slopes = slopes * np.ldexp(1.0, half) * np.ldexp(1.0, shift - half)
                np.fill_diagonal(slopes, 0.0)
                np.fill_diagonal(slopes, -slopes.sum(axis=1))
            self._slopes = slopes
        return self._slopes

    def _basis(self, points: Array) -> Array:
        """The `basis` at these points."""
        if not self._prepared.nodes.any():  # the only node is 0
            return basis(self._given, points)
        _near(self._given, points)
        nodes, weight, exponent = self._prepared
        kind = np.result_type(nodes, points)
        matrix = np.empty((points.size, nodes.size), dtype=kind)
        at = (points * self._scale).astype(kind, copy=False)
        nodes, weight = (x.astype(kind, copy=False) for x in (nodes, weight))
        kernels.unchecked.lagrange_basis(nodes, weight, exponent, at, matrix)
        return matrix


def evaluate(nodes: ArrayLike, values: ArrayLike, points: ArrayLike) -> Array:
    """Values at `points` of the polynomial that takes `values` at the nodes.

    It is ``Interpolator(nodes)(values, points)``: for several polynomials, or again and again,
    prepare an `Interpolator`. Shapes and errors are its own.

    Examples
    --------
    >>> from fastgc import interpolation
    >>> interpolation.evaluate([0, 1, 2], [1, 2, 5], [0.5, 3])  # x**2 + 1
    array([ 1.25, 10.  ])
    """
    return Interpolator(nodes)(values, points)


def _values(values: ArrayLike, m: int) -> Array:
    checked = check_numbers("values", values)
    if checked.ndim not in (1, 2) or len(checked) != m:
        raise ValueError(f"values must have shape ({m},) or ({m}, r), not {checked.shape}")
    return checked


def chebyshev(m: int) -> Floats:
    """Return m Chebyshev points of the first kind, ascending in (-1, 1), in a float64 array.

    They are exactly symmetric about 0.
    """
    m = at_least("the number of points", m, 1)
    # sines are odd, accurate near 0, and exactly 0 in the middle
    return np.sin(_PI * np.arange(1 - m, m, 2) / (2 * m)).astype(np.float64)


def roots_of_unity(m: int, offset: float = 0.0) -> Complexes:
    """``exp(2 pi i (j + offset) / m)``, j = 0 .. m-1, each within about a unit roundoff.

    The result is a complex128 array. An `offset` of 0.5 puts the points halfway between those of
    offset 0. Raises ValueError if m is below 1 or `offset` is not finite.
    """
    m = at_least("the number of points", m, 1)
    if not np.isfinite(offset):
        raise ValueError(f"offset must be finite, not {offset}")
    # Angles from the nearest quarter turn, at most an eighth of a turn: right angles are exact.
    turns = 4 * (np.arange(m) + np.fmod(np.longdouble(offset), m)) / m
    quarter = np.rint(turns)
    angle = (turns - quarter) * (_PI / 2)
    near = (np.cos(angle) + 1j * np.sin(angle)).astype(np.complex128)
    return np.asarray(near * np.array([1, 1j, -1, -1j])[quarter.astype(np.int64) % 4])
