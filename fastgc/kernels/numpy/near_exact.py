"""Polynomials that nearly vanish at given roots of unity, also in twice float64's precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .pairs import Pair, add, divide, multiply, negate, square_root, total

__all__ = ["cauchy_ridge", "locator_values", "ridge", "ridge_pairs"]

BLOCK = 64  # unknowns of a triangular system that are solved for at a time


def ridge(
    circle: NDArray[np.complex128],
    turns: NDArray[np.int64],
    c: int,
    unit: float,
    out: NDArray[np.complex128],
) -> None:
    """Write the coefficients of the polynomial of `fastgc.kernels.near_exact` to `out`.

    By a QR factorisation of the whole problem, O(s c^2).

    Parameters
    ----------
    circle : (2 n,) complex128 array
        ``exp(pi i u / n)``.
    turns : (s,) int64 array
    c : int
    unit : float
        As in `near_exact`; s and c are not 0.
    out : (c,) complex128 array
        The coefficients of z^1 .. z^c; contiguous.

    Notes
    -----
    Without the common phase ``z^((c+1)/2)``, the powers z^1 .. z^c become cosines and sines, and
    the matrix is real.
    """
    s, n = turns.size, circle.size // 2
    twice = np.arange(c - 1, 0, -2)  # twice the positive ones of the exponents -(c-1)/2 .. (c-1)/2
    half = twice.size
    waves = math.sqrt(2) * circle[np.multiply.outer(turns, twice) % (2 * n)]
    system = np.zeros((s + c, c + 2))
    system[:s, :half], system[:s, half : 2 * half] = waves.real, waves.imag
    system[:s, 2 * half : c] = 1
    system[s + np.arange(c), np.arange(c)] = 2 * unit * math.sqrt(n)
    target = circle[-turns * (c + 1) % (2 * n)] / -n
    system[:s, c], system[:s, c + 1] = target.real, target.imag
    r: Any = np.linalg.qr(system, mode="r")
    y: NDArray[Any] = r[:c, c] + 1j * r[:c, c + 1]
    y = _back(r[:c, :c], y)
    cosine, sine = y[:half] / math.sqrt(2), y[half : 2 * half] / math.sqrt(2)
    out[:half], out[half : c - half] = cosine + 1j * sine, y[2 * half :]
    out[c - half :] = (cosine - 1j * sine)[::-1]


def _back(triangle: NDArray[np.float64], y: NDArray[Any]) -> NDArray[Any]:
    """Solve a system with an upper triangular matrix."""
    y = y.copy()
    for end in range(len(y), 0, -BLOCK):
        start = max(end - BLOCK, 0)
        y[start:end] = np.linalg.solve(triangle[start:end, start:end], y[start:end])
        y[:start] -= triangle[:start, start:end] @ y[start:end]
    return y


# MARGIN: assumed size of the solution, relative to that of the parts found so far. LARGER: steps
# end once the rounding is so many times the least error so far. NOTHING: a pivot so small, relative
# to the first, is mere rounding.
MARGIN, LARGER, NOTHING = 64.0, 4.0, 1e-18


def cauchy_ridge(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    g: NDArray[np.float64],
    h: NDArray[np.float64],
    b: NDArray[np.complex128],
    unit: float,
    size: float,
    out: NDArray[np.complex128],
) -> None:
    """Write to `out` a short z that nearly solves ``C z = b``, C[i, k] = g_i h_k / (x_i - y_k).

    Elimination takes as many steps as pay: until what is left of b is as small as the rounding, by
    `unit`, that the size of z brings. r steps take O((s + c) r); shortening z takes a few times
    r (c - r).

    Parameters
    ----------
    x, y : (2, s) and (2, c) float64 arrays
        Nodes, all different, each the sum of two numbers.
    g, h : (s,) and (c,) float64 arrays
        Without zeros; s and c are not 0, either.
    b : (s,) complex128 array
    unit : float
        Unit roundoff of messages.
    size : float
        Squared norm of the vector that z is added to.
    out : (c,) complex128 array
        Contiguous.

    Notes
    -----
    Eliminating row p and column q leaves another such matrix, with::

        g_i *= (x_i - x_p) / (x_i - y_q)
        h_k *= (y_k - y_q) / (y_k - x_p)

    (Gohberg, Kailath and Olshevsky 1995). So a step takes O(s + c), only multiplies, and keeps the
    high relative accuracy of every entry, however small (Demmel 1999). A pivot is the largest entry
    of its row and column. Of all solutions to the equations of these steps, the shortest is taken.
    """
    c = h.size
    left, g, h = b.copy(), g.copy(), h.copy()
    rows: list[int] = []
    columns: list[int] = []
    upper: list[NDArray[np.float64]] = []
    parts: list[complex] = []
    rank, least, first = 0, math.inf, 0.0
    while True:
        bias, rounding = float(np.linalg.norm(left)), MARGIN * unit * math.sqrt(size)
        if math.hypot(bias, rounding) < least:
            rank, least = len(rows), math.hypot(bias, rounding)
        if len(rows) == min(g.size, c) or rounding > LARGER * least:
            break
        p, q, row, under, column, over = _pivot(x, g, y, h)
        pivot = column[p]
        first = first or abs(pivot)
        if not abs(pivot) > NOTHING * first:
            break
        part = left[p] / pivot
        left = left - column * part
        size += abs(part) ** 2
        rows.append(p)
        columns.append(q)
        upper.append(row / pivot)
        parts.append(part)
        g = g * _apart(x, x[:, p]) * over
        h = h * _apart(y, y[:, q]) * under
        left[p] = g[p] = h[q] = 0
    out[:] = 0
    if not rank:
        return
    pivots = np.array(columns[:rank])
    others = np.setdiff1d(np.arange(c), pivots)
    equations = np.array(upper[:rank])
    basic = _back(equations[:, pivots], np.array(parts[:rank]))
    w = _back(equations[:, pivots], equations[:, others])
    if 2 * rank < c:
        out[pivots] = np.linalg.solve(np.eye(rank) + w @ w.T, basic)
        out[others] = w.T @ out[pivots]
    else:
        out[others] = np.linalg.solve(np.eye(c - rank) + w.T @ w, w.T @ basic)
        out[pivots] = basic - w @ out[others]


def _pivot(
    x: NDArray[np.float64],
    g: NDArray[Any],
    y: NDArray[np.float64],
    h: NDArray[Any],
) -> tuple[int, int, NDArray[Any], NDArray[np.float64], NDArray[Any], NDArray[np.float64]]:
    """Find an entry that is the largest of its row and column.

    Returns
    -------
    p, q : int
    row, under, column, over : arrays
        Row p, column q, and after each the reciprocals of its differences of nodes.
    """
    p = int(np.argmax(np.abs(g)))
    while True:  # each entry is larger than the one before
        under = 1 / _apart(y, x[:, p])
        row = -g[p] * h * under
        q = int(np.argmax(np.abs(row)))
        over = 1 / _apart(x, y[:, q])
        column = g * h[q] * over
        better = int(np.argmax(np.abs(column)))
        if not abs(column[better]) > abs(column[p]):
            return p, q, row, under, column, over
        p = better


def _apart(nodes: NDArray[np.float64], node: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = (nodes[0] - node[0]) + (nodes[1] - node[1])
    return found


_UNIT = 2.0**-106
_HALF_ROOT = (math.sqrt(0.5), -4.833646656726457e-17)
_CHUNK = 1 << 16  # terms of sums that are computed at a time
_RUN = 32  # factors that are multiplied between two normalisations


def ridge_pairs(
    circle: NDArray[np.float64],
    turns: NDArray[np.int64],
    c: int,
    out: NDArray[np.complex128],
) -> None:
    """Write the values of `fastgc.kernels.near_exact_pairs` to `out`; s and c are not 0.

    Parameters
    ----------
    circle : (2 n, 2, 2) float64 array
    turns : (s,) int64 array
    c : int
    out : (n, 2) complex128 array
        Contiguous.

    Notes
    -----
    The basis is cosines, sines and 1/sqrt(2), without their common factor sqrt(2). Householder
    reflectors factorise it; reflector j changes rows j .. j + s only.
    """
    s, n = turns.size, len(circle) // 2
    a = np.zeros((2, s + c, c + 2))  # high parts, low parts
    a[:, :s, :c] = _waves(circle, turns, c)
    a[0, s + np.arange(c), np.arange(c)] = _UNIT * math.sqrt(2 * n)
    # -z^(-(c+1)/2): the factor 1/n comes in the end
    a[:, :s, c:] = -circle[-turns * (c + 1) % (2 * n)].transpose(2, 0, 1)
    for j in range(c):
        _reflect(a[:, j : j + s + 1, j:])
    y = _solved(a[:, :c])
    phase = circle[np.arange(n) * (c + 1) % (2 * n)]
    cosine, sine = (phase[:, 0, 0], phase[:, 0, 1]), (phase[:, 1, 0], phase[:, 1, 1])
    re, im = _products(circle, c, y)
    whole = float(n), 0.0
    one = 1.0, 0.0
    parts = (
        divide(add(one, add(multiply(cosine, re), negate(multiply(sine, im)))), whole),
        divide(add(multiply(cosine, im), multiply(sine, re)), whole),
    )
    for at, (high, low) in enumerate(parts):
        out.view(np.float64)[:, at], out.view(np.float64)[:, 2 + at] = high, low


def _waves(circle: NDArray[np.float64], turns: NDArray[np.int64], c: int) -> NDArray[np.float64]:
    """Cosines and sines, alternating, and last a constant if c is odd: (2, len(turns), c)."""
    waves = np.empty((2, turns.size, c))
    twice = np.arange(c - 1, 0, -2)  # twice the exponents
    at = circle[np.multiply.outer(turns, twice) % len(circle)]  # (roots, exponents, part, high/low)
    waves[:, :, : c - c % 2] = at.reshape(turns.size, c - c % 2, 2).transpose(2, 0, 1)
    if c % 2:
        waves[:, :, -1] = np.array(_HALF_ROOT)[:, None]
    return waves


def _reflect(a: NDArray[np.float64]) -> None:
    """Reflect the first column of a matrix of pairs to the first axis, and the others with it."""
    x = a[0, :, 0].copy(), a[1, :, 0].copy()
    norm = square_root(total(multiply(x, x)))
    if x[0][0] > 0:
        norm = negate(norm)  # the new diagonal element, with the opposite sign
    x[0][0], x[1][0] = add((x[0][0], x[1][0]), negate(norm))
    v = x[0][:, None], x[1][:, None]
    tau = divide((2.0, 0.0), total(multiply(x, x)))
    rest = a[0, :, 1:], a[1, :, 1:]
    factor = multiply(tau, total(multiply(v, rest)))
    a[0, :, 1:], a[1, :, 1:] = add(rest, negate(multiply(v, factor)))
    a[:, :, 0] = 0
    a[0, 0, 0], a[1, 0, 0] = norm


def _solved(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve a triangular system of pairs for two right-hand sides: (2, c, 2)."""
    c = a.shape[1]
    y = a[:, :, c:].copy()
    for i in range(c - 1, -1, -1):
        known = total(
            multiply((a[0, i, i + 1 : c, None], a[1, i, i + 1 : c, None]), tuple(y[:, i + 1 :]))
        )
        left = add(tuple(y[:, i]), negate(known))
        y[0, i], y[1, i] = divide(left, (a[0, i, i], a[1, i, i]))
    return y


def _products(circle: NDArray[np.float64], c: int, y: NDArray[np.float64]) -> tuple[Pair, Pair]:
    """Multiply the basis at all n-th roots by y: the real and the imaginary parts."""
    n = len(circle) // 2
    found = np.empty((2, n, 2))
    step = max(1, _CHUNK // (2 * c))
    for start in range(0, n, step):
        waves = _waves(circle, np.arange(start, min(start + step, n)), c).transpose(0, 2, 1)
        some = total(
            multiply((waves[0, ..., None], waves[1, ..., None]), (y[0, :, None], y[1, :, None]))
        )
        found[0, start : start + step], found[1, start : start + step] = some
    return (found[0, :, 0], found[1, :, 0]), (found[0, :, 1], found[1, :, 1])


def locator_values(
    circle: NDArray[np.float64],
    turns: NDArray[np.int64],
    out: NDArray[np.complex128],
) -> None:
    """Write the values of `fastgc.kernels.locator_pairs` to `out`; s may be 0.

    They are products of 2 sin(pi t / n), with phases in integers. Arguments as in `ridge_pairs`.
    """
    s, n = turns.size, len(circle) // 2
    high, low, exponent = np.ones(n), np.zeros(n), np.zeros(n, dtype=np.int64)
    turned = np.zeros(n, dtype=np.int64)
    for start in range(0, s, _RUN):
        steps = (np.arange(n) - turns[start : start + _RUN, None]) % n
        turned += steps.sum(axis=0)
        for factor in 2 * circle[steps, 1]:
            high, low = multiply((high, low), (factor[:, 0], factor[:, 1]))
        high, e = np.frexp(high)
        low, exponent = np.ldexp(low, -e), exponent + e
    size = divide((high, low), (float(n), 0.0))
    phase = circle[turned % (2 * n)]
    parts = [multiply(size, (phase[:, k, 0], phase[:, k, 1])) for k in (0, 1)]
    with np.errstate(over="ignore"):
        for k, (x, y) in enumerate(zip(*parts, strict=True)):
            for _ in range(s % 4):  # a quarter turn each
                x, y = y, -x
            out[:, k].real, out[:, k].imag = np.ldexp(x, exponent), np.ldexp(y, exponent)
