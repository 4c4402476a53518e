"""Decoding vectors of any rows, by linear algebra: exact where they are short, else nearly so.

What a vector decodes to is wrong in two ways. What ``a_F B_F`` lacks of 1 is a bias,
``||a_F B_F - 1|| / sqrt(k)`` of the gradient's norm for partial gradients of one size; and the
roundings of messages, two of unit u each, are multiplied by coefficients:
``2 u sqrt(sum |a_i|^2 ||B_i||^2 / k)``. The sum of their squares is a ridge regression in
``a_i ||B_i||`` with the parameter 2 u, known beforehand: there is no cut-off to search for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.rows import DOUBLE

__all__ = [
    "SOLVED",
    "Equations",
    "least_squares",
    "near_exact_of",
    "near_exact_solution",
    "near_exact_vector",
    "row_sizes",
    "sparse_solution",
]

# Relative residual up to which a_F B_F = 1 counts as solved. Where rounding alone exceeds it, the
# gradient would be worthless.
SOLVED = 1e-6

# Bias over rounding from which on it is not rounding that left it: of a thousand workers it is 0.3.
_BIASED = 8

# Sparse rows: so many entries at least, and so few of them not zero. Conjugate gradients end with
# a gradient so much smaller than the first, or after so many steps; a bias of less may be rounding.
_LARGE, _DENSE = 1 << 14, 1 / 8
_FLAT, _STEPS, _BIAS = 1e-14, 3000, 1e-6


class Equations(NamedTuple):
    """What a decoding vector must satisfy: ``vector @ rows = target``.

    Attributes
    ----------
    rows : (f, unknowns) array
    target : (unknowns,) or (unknowns, m) array
        A column for each piece of the gradient, where it is cut into m.
    real_part : bool
        Whether the real part of the combination is what counts.
    """

    rows: NDArray[np.number]
    target: NDArray[np.float64]
    real_part: bool = False

    def reals(self) -> NDArray[np.number]:
        """Rows that are combined with numbers of one kind: real ones for a real part."""
        if not self.real_part:
            return self.rows
        return np.concatenate([self.rows.real, -self.rows.imag])


def least_squares(given: Equations) -> tuple[NDArray[np.number], float]:
    """The shortest vector that minimises ``||vector @ rows - target||``, and what is left.

    Returns
    -------
    (f,) or (f, m) array
    float
        Relative to the target's norm.
    """
    rows = given.reals()
    vector = np.linalg.lstsq(rows.T, given.target)[0]
    left = np.linalg.norm(rows.T @ vector - given.target) / np.linalg.norm(given.target)
    if given.real_part:
        f = len(given.rows)
        vector = vector[:f] + 1j * vector[f:]
    return vector, float(left)


def row_sizes(rows: NDArray[np.number]) -> NDArray[np.float64]:
    """2-norm of each row, whatever its scale; 1 of rows that are zero."""
    largest = np.abs(rows).max(axis=1)
    largest[largest == 0] = 1
    with np.errstate(over="ignore"):
        norms = largest * np.linalg.norm(rows / largest[:, None], axis=1)
    sizes: NDArray[np.float64] = np.clip(norms, largest, np.finfo(np.float64).max)
    return sizes


def near_exact_vector(
    solve: Callable[[NDArray[np.number]], NDArray[np.number]],
    rows: NDArray[np.number],
    sizes: NDArray[np.float64],
    target: NDArray[np.number],
    unit: float = DOUBLE,
) -> tuple[NDArray[np.number], float]:
    """A vector with ``vector @ rows = target``, up to what rounding costs more than it is worth.

    That of `solve`, with what it lacks solved for once more. If the error that it leads to is
    beyond ``unit**(5/8)`` (1e-10 of float64), or most of it is bias all the same, that of the
    ridge regression, where it is better.

    Parameters
    ----------
    solve : function
        The vector for a target, the shortest if each entry is taken times the size of its row; or
        what floating point makes of it.
    rows : (f, unknowns) array
    sizes : (f,) array
        Their 2-norms, or other numbers by which roundings of messages grow.
    target : (unknowns,) or (unknowns, m) array
        A column for each piece of the gradient, where it is cut into m.
    unit : float, optional
        Unit roundoff of the messages.

    Returns
    -------
    (f,) or (f, m) array
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


def near_exact_of(
    solve: Callable[[NDArray[np.number]], NDArray[np.number]],
    combine: Callable[[NDArray[np.number]], NDArray[np.number]],
    regress: Callable[[], NDArray[np.number]],
    sizes: NDArray[np.float64],
    target: NDArray[np.number],
    unit: float = DOUBLE,
) -> tuple[NDArray[np.number], float]:
    """`near_exact_vector` of rows that are not held as a matrix.

    Parameters
    ----------
    solve, sizes, target, unit
        As there.
    combine : function
        ``vector @ rows``.
    regress : function
        The vector of the ridge regression, or one that comes near it.
    """
    whole = float(np.linalg.norm(target))

    def assess(vector: NDArray[np.number]) -> tuple[NDArray[np.number], float, float]:
        left = target - combine(vector)
        rounding = 2 * unit * float(np.linalg.norm(sizes * vector.T))
        return left, float(np.linalg.norm(left)) / whole, rounding / whole

    vector = solve(target)
    left, bias, rounding = assess(vector)
    if bias > DOUBLE / unit * rounding:  # more than the vector's own rounding need leave
        again = vector + solve(left)
        _, remains, grown = assess(again)
        if remains < bias:
            vector, bias, rounding = again, remains, grown
    if bias > _BIASED * rounding or not math.hypot(bias, rounding) <= unit ** (5 / 8):
        other = regress()
        _, remains, grown = assess(other)
        # What remains is known up to about what roundings grow to. Of dependent rows the regression
        # may find a vector as long as it likes, with a little less remaining by chance.
        if remains + grown < math.hypot(bias, rounding):
            vector, bias = other, remains
    return vector, bias


def near_exact_solution(
    rows: NDArray[np.number], target: NDArray[np.number], unit: float = DOUBLE
) -> tuple[NDArray[np.number], float]:
    """The same of rows alone, whose shortest vector is found by least squares."""
    if rows.size >= _LARGE and rows.dtype.kind == "f" and target.ndim == 1:
        line, column = np.nonzero(rows)
        found = sparse_solution(rows.shape, line, column, rows[line, column], target, unit)
        if found is not None:
            return found
    sizes = row_sizes(rows)
    scaled = (rows / sizes[:, None]).T

    def solve(wanted: NDArray[np.number]) -> NDArray[np.number]:
        shortest: NDArray[np.number] = np.linalg.lstsq(scaled, wanted)[0]
        return (shortest.T / sizes).T

    return near_exact_vector(solve, rows, sizes, target, unit)


def sparse_solution(
    shape: tuple[int, ...],
    line: NDArray[np.int64],
    column: NDArray[np.int64],
    entries: NDArray[np.number],
    target: NDArray[np.number],
    unit: float = DOUBLE,
) -> tuple[NDArray[np.number], float] | None:
    """The shortest vector by conjugate gradients, where rows are sparse and that converges.

    None where it is not as good as that of a decomposition: where rows are few or not sparse, where
    it took too long, or lacks more of the target than rounding, but so little that it may be
    rounding all the same.

    Parameters
    ----------
    shape : (f, unknowns)
    line, column, entries : (m,) array
        The entries other than 0 of real rows.
    target : (unknowns,) array
    unit : float, optional
        Unit roundoff of the messages.
    """
    f, unknowns = shape
    if f * unknowns < _LARGE or line.size > f * unknowns * _DENSE:
        return None
    value: NDArray[np.float64] = entries.astype(np.float64)
    squares = np.bincount(line, value**2, minlength=f)
    if not ((squares > 0) & (squares < np.inf)).all():
        return None
    sizes = np.sqrt(squares)
    value /= sizes[line]
    wanted = np.asarray(target, dtype=np.float64)

    def combined(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(column, value * vector[line], unknowns), np.float64)

    def products(left: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(line, value * left[column], f), np.float64)

    def descend(left: NDArray[np.float64]) -> NDArray[np.float64]:
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
    rows: NDArray[np.number],
    sizes: NDArray[np.float64],
    target: NDArray[np.number],
    unit: float,
) -> NDArray[np.number]:
    """The vector of least ``||rows.T @ vector - target||^2 + ||2 unit sizes * vector||^2``."""
    # Householder's reflections lose nothing of small rows below large ones, and never touch an
    # entry of the diagonal before its column's turn, which is therefore never zero.
    f, unknowns = rows.shape
    columns = target.reshape(unknowns, -1)
    kind = np.result_type(rows, target, np.float64)
    system = np.zeros((unknowns + f, f + columns.shape[1]), dtype=kind)
    system[:unknowns, :f] = (rows / sizes[:, None]).T
    system[:unknowns, f:] = columns
    np.fill_diagonal(system[unknowns:], 2 * unit)
    triangle: NDArray[np.number] = np.asarray(np.linalg.qr(system, mode="r"))[:f]
    vector = np.linalg.solve(triangle[:, :f], triangle[:, f:])
    return (vector / sizes[:, None]).reshape(f, *target.shape[1:])
