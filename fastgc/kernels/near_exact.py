"""Polynomials that nearly vanish at given roots of unity, and are small at all others.

Of the polynomials ``p(z) = 1/n + x_1 z + ... + x_c z^c`` the one is wanted that makes

    sum over the given roots of |p|^2 + (2 u)^2 sum over all n-th roots of unity of |p|^2

least. With ``a_i = p(alpha^i)`` as decoding vector of a Reed-Solomon code whose columns have weight
c + 1, and the stragglers' roots given, the first sum is what is left out of the gradient, the
second what rounding messages by a unit u adds to it: both pass through rows of B, which are of one
norm. So the parameter of this ridge regression is known, ``2 u sqrt(n)`` for x.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from . import numpy as plain
from .choice import kernel
from .cyclic import circle
from .elimination import Elimination
from .numpy.pairs import divide

__all__ = ["locator_pairs", "near_exact", "near_exact_pairs"]

# From so many products s c^2 on, a QR factorisation takes half a second and more: elimination is
# tried first, which takes O(s) for a degree of freedom and is up to 8 times less precise. It will
# do if a decoded gradient has a relative error of so many u. Beyond the last bound, half a minute
# and gigabytes, there is nothing else.
_MANY = 2.0**33
_ENOUGH = 1e7
_TOO_MANY = 2.0**40

_ridge, _ridge_pairs = kernel(plain.ridge), kernel(plain.ridge_pairs)
_locator_values = kernel(plain.locator_values)


def near_exact(turns: NDArray[np.int64], n: int, c: int, unit: float) -> NDArray[np.complex128]:
    """Values at all n-th roots of unity of the polynomial that nearly vanishes at some.

    Takes O(s c^2) where that is below a second, in strips of columns that stay in a cache; for
    larger problems O((s + c) r) and r^2 c, with r degrees of freedom that matter.

    Parameters
    ----------
    turns : (s,) int64 array
        The roots ``exp(2 pi i turns / n)``, distinct, turns in 0 .. n-1.
    n : int
    c : int
        Degree; 0 <= c < n.
    unit : float
        Unit roundoff of messages.

    Returns
    -------
    (n,) complex128 array
        ``p(exp(2 pi i t / n))``, t = 0 .. n-1.
    """
    if turns.size * float(c) ** 2 > _MANY:
        values, error = _eliminated(turns, n, c, unit)
        if error <= _ENOUGH * unit or turns.size * float(c) ** 2 > _TOO_MANY:
            return values
    x = np.zeros(n, dtype=np.complex128)
    x[0] = 1 / n
    if turns.size and c:
        _ridge(circle(n), turns, c, unit, x[1 : c + 1])
    return np.fft.ifft(x, norm="forward")


def near_exact_pairs(
    turns: NDArray[np.int64], n: int, c: int, circle: NDArray[np.float64]
) -> NDArray[np.complex128]:
    """The same values for messages of pairs, of which u = 2^-106, in pairs themselves.

    Takes O(s c^2 + n c), whatever the size: 1 ms for n = 256 and s = c = 128, 50 ms for 1024 and
    512.

    Parameters
    ----------
    turns : (s,) int64 array
        As of `near_exact`.
    n : int
    c : int
        Degree; 0 <= c < n.
    circle : (2 n, 2, 2) float64 array
        ``circle[u]`` is ((high, low) of cos(pi u / n), (high, low) of sin(pi u / n)).

    Returns
    -------
    (n, 2) complex128 array
        ``p(exp(2 pi i t / n))``, t = 0 .. n-1: high parts of real and imaginary part, low ones.
        Errors are about 2^-104 of the sum of the coefficients' moduli.
    """
    out = np.zeros((n, 2), dtype=np.complex128)
    if turns.size and c:
        _ridge_pairs(circle, turns, c, out)
    else:
        high, low = divide((1.0, 0.0), (float(n), 0.0))
        out[:, 0], out[:, 1] = high, low
    return out


def locator_pairs(
    turns: NDArray[np.int64], n: int, circle: NDArray[np.float64]
) -> NDArray[np.complex128]:
    """The exact vector ``(1/n) prod_j (1 - exp(2 pi i (t - turns[j]) / n))`` in pairs, O(n s).

    Parameters
    ----------
    turns : (s,) int64 array
        As of `near_exact`.
    n : int
    circle : (2 n, 2, 2) float64 array
        As of `near_exact_pairs`.

    Returns
    -------
    (n, 2) complex128 array
        For t = 0 .. n-1, in the form of `near_exact_pairs`; 0 at the turns, and relative errors of
        ``8 (s + 4) 2^-106`` at most elsewhere. What is beyond float64 is Inf or NaN, what is below
        it 0.
    """
    out = np.empty((n, 2), dtype=np.complex128)
    _locator_values(circle, turns, out)
    return out


def _eliminated(
    turns: NDArray[np.int64], n: int, c: int, unit: float
) -> tuple[NDArray[np.complex128], float]:
    """The better of two polynomials, and the relative error of a gradient decoded by it."""
    elimination = Elimination(turns, n, c, unit)
    found = []
    for rank in elimination.ranks:
        values = elimination.solve(rank)
        left, size = np.linalg.norm(values[turns]), np.linalg.norm(values)
        # rows of B have the norm n / sqrt(c + 1) at least, and partials are of one size
        error = math.hypot(left, 2 * unit * size) * math.sqrt(n / (c + 1))
        found.append((values, error))
    return min(found, key=lambda each: each[1])
