"""Polynomials that nearly vanish at given roots of unity."""

from __future__ import annotations

import math

import numpy as np

from .. import numpy as plain
from .njit import njit, njit_sums

__all__ = ["near_exact_ridge", "ridge"]

# Products s c up to which the loops here, which go through memory once for each unknown, are faster
# than NumPy's QR factorisation, of twice the arithmetic and in blocks.
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
    """Columns of the equations, csrc/near_exact.c's: row 0 .. s-1 the roots', then mu I."""
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
    """QR factorisation; reflector j has the rows j .. j + s only."""
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
    """Write the coefficients of z^1 .. z^c to `out`, see `fastgc.kernels.near_exact`.

    `circle` : ``exp(pi i u / n)``, u = 0 .. 2n-1.
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
