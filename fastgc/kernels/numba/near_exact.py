"""Polynomials that nearly vanish at given roots of unity, also in twice float64's precision."""

from __future__ import annotations

import math

import numpy as np
from numba.extending import overload

from .. import numpy as plain
from ..numpy.near_exact import LARGER, MARGIN, NOTHING
from .njit import njit, njit_sums

__all__ = ["cauchy_ridge", "near_exact_ridge", "ridge"]

# Up to this product s c, the loops here are faster than NumPy's QR factorisation. They go through
# memory once for each unknown; NumPy's takes twice the arithmetic, but works in blocks.
_MOST = 1 << 15

_HALF_ROOT = math.sqrt(0.5)


@njit_sums
def _dot(x, y):
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@njit
def _fill(circle, turns, c, mu, columns):
    """Fill in the equations of csrc/near_exact.c by columns: rows 0 .. s-1 of roots, then mu I."""
    s, twice_n = turns.size, circle.size
    columns[:, s:] = 0
    for j in range(c):
        columns[j, s + j] = mu
    for i in range(s):
        for h in range(c // 2):
            root = circle[turns[i] * (c - 1 - 2 * h) % twice_n]
            columns[2 * h, i], columns[2 * h + 1, i] = root.real, root.imag
        if c % 2:
            columns[c - 1, i] = _HALF_ROOT
        root = circle[-turns[i] * (c + 1) % twice_n]
        columns[c, i], columns[c + 1, i] = -root.real, -root.imag


@njit
def _reflect(columns, s, c):
    """QR factorisation; reflector j changes rows j .. j + s only."""
    for j in range(c):
        v = columns[j, j : j + s + 1]
        norm = math.sqrt(_dot(v, v))
        diagonal = -norm if v[0] > 0 else norm
        v[0] -= diagonal
        tau = 1 / (norm * abs(v[0]))
        for k in range(j + 1, c + 2):
            column = columns[k, j : j + s + 1]
            factor = tau * _dot(v, column)
            for i in range(s + 1):
                column[i] -= factor * v[i]
        v[0] = diagonal


@njit
def near_exact_ridge(circle, turns, c, unit, out):
    """Write the coefficients of z^1 .. z^c to `out`: see `fastgc.kernels.near_exact`.

    `circle` is ``exp(pi i u / n)``, u = 0 .. 2n-1.
    """
    s, n = turns.size, circle.size // 2
    if out.size != c:
        raise ValueError("out must have room for c coefficients")
    columns = np.empty((c + 2, s + c))
    _fill(circle, turns, c, unit * math.sqrt(2.0 * n), columns)
    _reflect(columns, s, c)
    re, im = columns[c], columns[c + 1]
    for j in range(c - 1, -1, -1):
        column = columns[j]
        re[j] /= column[j]
        im[j] /= column[j]
        for i in range(j):
            re[i] -= column[i] * re[j]
            im[i] -= column[i] * im[j]
    for h in range(c // 2):
        cosine, sine = complex(re[2 * h], im[2 * h]), complex(-im[2 * h + 1], re[2 * h + 1])
        out[h] = (cosine + sine) * (0.5 / n)
        out[c - 1 - h] = (cosine - sine) * (0.5 / n)
    if c % 2:
        out[c // 2] = complex(re[c - 1], im[c - 1]) * (_HALF_ROOT / n)


def ridge(circle, turns, c, unit, out):
    if turns.size * c > _MOST:
        plain.ridge(circle, turns, c, unit, out)
    else:
        near_exact_ridge(circle, turns, c, unit, out)


@overload(ridge)
def _ridge(circle, turns, c, unit, out):
    return lambda circle, turns, c, unit, out: near_exact_ridge(circle, turns, c, unit, out)


# Conjugate gradients end at this relative residual, or after so many steps.
_SHORT, _LAST = 1e-2, 64


@njit
def _apart(one, i, other, k):
    return (one[0, i] - other[0, k]) + (one[1, i] - other[1, k])


@njit
def _largest(v, begin, end):
    at = begin
    for i in range(begin, end):
        if abs(v[i]) > abs(v[at]):
            at = i
    return at


@njit
def _exchange(v, i, k):
    v[i], v[k] = v[k], v[i]


@njit
def _exchange_nodes(nodes, i, k):
    _exchange(nodes[0], i, k)
    _exchange(nodes[1], i, k)


@njit
def _eliminate(x, y, g, h, left, unit, size, from_, moved, upper):
    """Eliminate as csrc/near_exact.c does. Returns how many steps were made, and how many pay."""
    s, c = g.size, h.size
    row, under, column, over = np.zeros(c), np.zeros(c), np.zeros(s), np.zeros(s)
    bias = 0.0
    for i in range(s):
        bias += left[i].real ** 2 + left[i].imag ** 2
    rank, least, first = 0, np.inf, 0.0
    t = 0
    while True:
        rounding = (MARGIN * unit) ** 2 * size
        if bias + rounding < least:
            rank, least = t, bias + rounding
        if t == min(s, c) or rounding > LARGER**2 * least:
            break
        p, q = _largest(g, t, s), -1
        while True:  # each pivot is larger than the one before
            for k in range(t, c):
                under[k] = 1 / _apart(y, k, x, p)
                row[k] = -g[p] * h[k] * under[k]
            better = _largest(row, t, c)
            if better == q:
                break
            q = better
            for i in range(t, s):
                over[i] = 1 / _apart(x, i, y, q)
                column[i] = g[i] * h[q] * over[i]
            better = _largest(column, t, s)
            if not abs(column[better]) > abs(column[p]):
                break
            p = better
        pivot = column[p]
        if first == 0:
            first = abs(pivot)
        if not abs(pivot) > NOTHING * first:
            break
        _exchange_nodes(x, t, p)
        for of_row in (g, column, over):
            _exchange(of_row, t, p)
        _exchange(left, t, p)
        _exchange_nodes(y, t, q)
        for of_column in (h, row, under):
            _exchange(of_column, t, q)
        _exchange(from_, t, q)
        moved[t] = q
        left[t] /= pivot
        part = left[t]
        size += part.real**2 + part.imag**2
        bias = 0.0
        for i in range(t + 1, s):
            left[i] -= column[i] * part
            bias += left[i].real ** 2 + left[i].imag ** 2
            g[i] *= _apart(x, i, x, t) * over[i]
        for k in range(t + 1, c):
            upper[t, k] = row[k] / pivot
            h[k] *= _apart(y, k, y, t) * under[k]
        t += 1
    return t, rank


@njit
def _normal(columns, v, w):
    """Write (1 + W W^T) v to w; `columns` are those of W."""
    w[:] = v
    for at in range(columns.shape[0]):
        by = 0j
        for k in range(v.size):
            by += columns[at, k] * v[k]
        for k in range(v.size):
            w[k] += by * columns[at, k]


@njit
def _square(v):
    total = 0.0
    for each in v:
        total += each.real**2 + each.imag**2
    return total


@njit
def _shorten(columns, z, other):
    """Find the shortest solution (z - W o, o), by conjugate gradients: see csrc/near_exact.c."""
    v, residual, direction = np.zeros_like(z), z.copy(), z.copy()
    image = np.empty_like(z)
    first = _square(z)
    size = first
    for _ in range(_LAST):
        if not size > _SHORT**2 * first:
            break
        _normal(columns, direction, image)
        product = 0.0
        for k in range(z.size):
            product += (direction[k].conjugate() * image[k]).real
        by, before = size / product, size
        for k in range(z.size):
            v[k] += by * direction[k]
            residual[k] -= by * image[k]
        size = _square(residual)
        for k in range(z.size):
            direction[k] = residual[k] + size / before * direction[k]
    for at in range(other.size):
        other[at] = 0
        for k in range(z.size):
            other[at] += columns[at, k] * v[k]
        for k in range(z.size):
            z[k] -= other[at] * columns[at, k]


@njit
def _solve(x, y, h, left, from_, moved, upper, t, rank, out):
    c = h.size
    for j in range(t - 1, rank - 1, -1):  # undo changes to the columns' weights after step `rank`
        for k in range(j + 1, c):
            h[k] *= _apart(y, k, x, j) / _apart(y, k, y, j)
    out[:] = 0
    for j in range(rank - 1, -1, -1):
        total = left[j]
        for k in range(j + 1, c):
            total -= upper[j, k] * out[k]
        out[j] = total
        _exchange(out, j, moved[j])
    if rank == 0 or rank == c:
        return
    columns = np.empty((c - rank, rank))
    for k in range(rank):
        factor = _apart(y, k, x, k) / h[k]
        for j in range(k + 1, rank):
            factor *= _apart(y, k, x, j) / _apart(y, k, y, j)
        for at in range(rank, c):
            columns[at - rank, k] = h[at] * factor / _apart(y, at, y, k)
    z, other = out[from_[:rank]], np.empty(c - rank, np.complex128)
    _shorten(columns, z, other)
    out[from_[:rank]] = z
    out[from_[rank:]] = other


@njit
def cauchy_ridge(x, y, g, h, b, unit, size, out):
    if x.shape != (2, g.size) or y.shape != (2, h.size) or b.size != g.size or out.size != h.size:
        raise ValueError("nodes must be pairs of numbers, and vectors as long as there are nodes")
    x, y, g, h, left = x.copy(), y.copy(), g.copy(), h.copy(), b.copy()
    steps = min(g.size, h.size)
    from_, moved = np.arange(h.size), np.empty(steps, np.int64)
    upper = np.empty((steps, h.size))
    t, rank = _eliminate(x, y, g, h, left, unit, size, from_, moved, upper)
    _solve(x, y, h, left, from_, moved, upper, t, rank, out)


_RUN = 32  # factors between two normalisations
