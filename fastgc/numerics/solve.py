"""Decoding vectors of any rows, by linear algebra: exact if these are short, else nearly so.

The gradient that a vector decodes is wrong in two ways. What ``a_F B_F`` lacks of 1 is a bias:
``||a_F B_F - 1|| / sqrt(k)`` of the gradient's norm, if partial gradients have equal norms. And
coefficients multiply the roundings of messages, two of unit u each:
``2 u sqrt(sum |a_i|^2 ||B_i||^2 / k)``. The least sum of squares of both is a ridge regression in
``a_i ||B_i||``. Its parameter, 2 u, is known, so no cut-off needs to be searched for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._base.arrays import Floats, Ints
from ..kernels.rows import DOUBLE

# Relative residual up to which a_F B_F = 1 counts as solved. If rounding alone exceeds it, the
# gradient is worthless.
SOLVED = 1e-6

# A bias of this many times the rounding is not due to rounding. A thousand workers have 0.3.
_BIASED = 8

# Rows are sparse if they have at least _LARGE entries, at most _DENSE of them not 0. Conjugate
# gradients end once the slope is _FLAT of the first one, or after _STEPS. A bias below _BIAS may be
# rounding.
_LARGE, _DENSE = 1 << 14, 1 / 8
_FLAT, _STEPS, _BIAS = 1e-14, 3000, 1e-6


# What normal equations may leave of a target, for a second step to find it all.
_HALF = 1e-8


class Equations(NamedTuple):
    """What a decoding vector must satisfy: ``vector @ rows = target``.

    Attributes
    ----------
    rows : (f, unknowns) array
    target : (unknowns,) array
    real_part : bool
        Whether only the real part of the combination counts.
    """

    rows: NDArray[np.number]
    target: Floats
    real_part: bool = False

    def split(self) -> Equations:
        """The same where all counts: if it is the real part, of twice as many real numbers."""
        if not self.real_part:
            return self
        return Equations(np.concatenate([self.rows.real, -self.rows.imag]), self.target)

    def joined(self, vector: NDArray[np.number]) -> NDArray[np.number]:
        """The vector of these equations that stands for one of those that are `split`."""
        if not self.real_part:
            return vector
        real, imaginary = np.split(vector, 2)
        joined: NDArray[np.number] = real + 1j * imaginary
        return joined


def least_squares(given: Equations) -> tuple[NDArray[np.number], float]:
    """Return the shortest vector that minimises ``||vector @ rows - target||``, and the residual.

    The residual is relative to the target's norm.
    """
    rows, target, _ = given.split()
    vector = np.linalg.lstsq(rows.T, target)[0]
    left = np.linalg.norm(rows.T @ vector - target) / np.linalg.norm(target)
    return given.joined(vector), float(left)


def row_sizes(rows: NDArray[np.number]) -> Floats:
    """Return the 2-norm of each row, whatever its scale; 1 for rows that are zero."""
    largest = np.abs(rows).max(axis=1)
    largest[largest == 0] = 1
    with np.errstate(over="ignore", under="ignore"):
        norms = largest * np.linalg.norm(rows / largest[:, None], axis=1)
    sizes: Floats = np.clip(norms, largest, np.finfo(np.float64).max)
    return sizes


def near_exact_vector(
    solve: Callable[[NDArray[np.number]], NDArray[np.number]],
    rows: NDArray[np.number],
    sizes: Floats,
    target: NDArray[np.number],
    unit: float = DOUBLE,
) -> tuple[NDArray[np.number], float]:
    """Return a vector with ``vector @ rows = target``, as exact as rounding makes it worth.

    It comes from `solve`, which is applied once more to what is left of the target. If its expected
    error exceeds ``unit**(5/8)`` (1e-10 for float64), or most of it is still bias, the vector of
    the ridge regression replaces it if that is better.

    Parameters
    ----------
    solve : function
        Returns the vector for a target, up to rounding: the shortest, if each entry is multiplied
        by the size of its row.
    rows, target
        Those of `Equations`.
    sizes : (f,) array
        The rows' 2-norms, or other numbers to which roundings of messages are proportional.
    unit : float, optional
        Unit roundoff of the messages.

    Returns
    -------
    (f,) array
    float
        What is left of the target, relative to its norm.
    """
    return near_exact_of(
        solve,
        lambda vector: rows.T @ vector,
        lambda: _ridge(rows, sizes, target, unit),
        sizes,
        target,
        unit,
    )


@np.errstate(under="ignore")
def near_exact_of(
    solve: Callable[[NDArray[np.number]], NDArray[np.number]],
    combine: Callable[[NDArray[np.number]], NDArray[np.number]],
    regress: Callable[[], NDArray[np.number]],
    sizes: Floats,
    target: NDArray[np.number],
    unit: float = DOUBLE,
) -> tuple[NDArray[np.number], float]:
    """As `near_exact_vector`, for rows that are not held as a matrix.

    `combine` returns ``vector @ rows``, and `regress` the vector of the ridge regression, or one
    close to it.
    """
    whole = float(np.linalg.norm(target))

    def assess(vector: NDArray[np.number]) -> tuple[NDArray[np.number], float, float]:
        left = target - combine(vector)
        rounding = 2 * unit * float(np.linalg.norm(sizes * vector))
        return left, float(np.linalg.norm(left)) / whole, rounding / whole

    vector = solve(target)
    left, bias, rounding = assess(vector)
    if bias > DOUBLE / unit * rounding:  # more than rounding of the vector itself leaves
        again = vector + solve(left)
        _, remains, grown = assess(again)
        if remains < bias:
            vector, bias, rounding = again, remains, grown
    if bias > _BIASED * rounding or not math.hypot(bias, rounding) <= unit ** (5 / 8):
        other = regress()
        _, remains, grown = assess(other)
        # What remains is known up to the size of the roundings. If rows are dependent, the
        # regression's vector may be arbitrarily long, with a little less remaining by chance.
        if remains + grown < math.hypot(bias, rounding):
            vector, bias = other, remains
    return vector, bias


@np.errstate(under="ignore")
def near_exact_solution(
    rows: NDArray[np.number],
    target: Floats,
    unit: float = DOUBLE,
    real_part: bool = False,
) -> tuple[NDArray[np.number], float]:
    """As `near_exact_vector`, for `Equations`: least squares finds the shortest vector."""
    if real_part:  # messages are rounded by their size, whatever their part
        given = Equations(rows, target, real_part)
        vector, bias = _shortest(given.split().rows, np.tile(row_sizes(rows), 2), target, unit)
        return given.joined(vector), bias
    if rows.size >= _LARGE and rows.dtype.kind == "f":
        line, column = np.nonzero(rows)
        found = _sparse_solution(rows.shape, line, column, rows[line, column], target, unit)
        if found is not None:
            return found
    return _shortest(rows, row_sizes(rows), target, unit)


def _shortest(
    rows: NDArray[np.number], sizes: Floats, target: NDArray[np.number], unit: float
) -> tuple[NDArray[np.number], float]:
    """`near_exact_vector` by least squares.

    If there are more rows than unknowns, the normal equations take a tenth of the time. They lose
    twice the digits. If more than half of these are lost, a decomposition of the rows does better.
    """
    scaled = (rows / sizes[:, None]).T
    if len(rows) > target.size:
        with suppress(np.linalg.LinAlgError):
            inverse = np.linalg.inv(scaled @ scaled.conj().T)

            def by_normal(wanted: NDArray[np.number]) -> NDArray[np.number]:
                found: NDArray[np.number] = scaled.conj().T @ (inverse @ wanted)
                return found / sizes

            left = target - rows.T @ by_normal(target)
            if np.linalg.norm(left) <= _HALF * np.linalg.norm(target):
                return near_exact_vector(by_normal, rows, sizes, target, unit)

    def solve(wanted: NDArray[np.number]) -> NDArray[np.number]:
        shortest: NDArray[np.number] = np.linalg.lstsq(scaled, wanted)[0]
        return shortest / sizes

    return near_exact_vector(solve, rows, sizes, target, unit)


def _sparse_solution(
    shape: tuple[int, ...],
    line: Ints,
    column: Ints,
    entries: NDArray[np.number],
    target: NDArray[np.number],
    unit: float = DOUBLE,
) -> tuple[NDArray[np.number], float] | None:
    """Return the shortest vector by conjugate gradients, if rows are sparse and these converge.

    Return None if a decomposition would be better: if rows are few or not sparse, if it takes too
    many steps, or if the bias exceeds rounding, but is so small that it may be rounding. Rows are
    real and of this shape, (f, unknowns); `entries` are those that are not zero, each at a `line`
    and a `column`. Other arguments are those of `near_exact_vector`.
    """
    f, unknowns = shape
    if f * unknowns < _LARGE or line.size > f * unknowns * _DENSE:
        return None
    value: Floats = entries.astype(np.float64)
    squares = np.bincount(line, value**2, minlength=f)
    if not ((squares > 0) & (squares < np.inf)).all():
        return None
    sizes = np.sqrt(squares)
    value /= sizes[line]
    wanted = np.asarray(target, dtype=np.float64)

    def combined(vector: Floats) -> Floats:
        return np.asarray(np.bincount(column, value * vector[line], unknowns), np.float64)

    def products(left: Floats) -> Floats:
        return np.asarray(np.bincount(line, value * left[column], f), np.float64)

    def descend(left: Floats) -> Floats:
        vector = np.zeros(f)
        step = slope = products(left)
        square = first = float(slope @ slope)
        for _ in range(_STEPS):
            if square <= _FLAT**2 * first:
                break
            change = combined(step)
            by = square / float(change @ change)
            vector, left = vector + by * step, left - by * change
            slope = products(left)
            before, square = square, float(slope @ slope)
            step = slope + square / before * step
        return vector

    whole = float(np.linalg.norm(wanted))
    vector = descend(wanted)
    left = wanted - combined(vector)
    if np.linalg.norm(left) < _BIAS * whole:
        vector += descend(left)
        left = wanted - combined(vector)
    bias = float(np.linalg.norm(left)) / whole
    rounding = 2 * unit * float(np.linalg.norm(vector)) / whole
    slope = np.linalg.norm(products(left))
    flat = slope <= 100 * _FLAT * np.linalg.norm(products(wanted))
    if not flat or rounding > unit ** (5 / 8) or _BIASED * rounding < bias < _BIAS:
        return None
    return vector / sizes, bias


def _ridge(
    rows: NDArray[np.number], sizes: Floats, target: NDArray[np.number], unit: float
) -> NDArray[np.number]:
    """Return the vector of least ``||rows.T @ vector - target||^2 + ||2 unit sizes * vector||^2``.

    Householder's reflections lose nothing of small rows below large ones. They do not touch an
    entry of the diagonal before its column's turn, so none is zero.
    """
    f, unknowns = rows.shape
    kind = np.result_type(rows, target, np.float64)
    system = np.zeros((unknowns + f, f + 1), dtype=kind)
    system[:unknowns, :f] = (rows / sizes[:, None]).T
    system[:unknowns, f] = target
    np.fill_diagonal(system[unknowns:], 2 * unit)
    triangle: NDArray[np.number] = np.asarray(np.linalg.qr(system, mode="r"))[:f]
    vector: NDArray[np.number] = np.linalg.solve(triangle[:, :f], triangle[:, f])
    return vector / sizes
