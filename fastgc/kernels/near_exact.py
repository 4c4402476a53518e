"""Polynomials that nearly vanish at given roots of unity, and are small at all others.

Of the polynomials ``p(z) = 1/n + x_1 z + ... + x_c z^c`` the one is wanted that makes

    sum over the given roots of |p|^2 + (2 u)^2 sum over all n-th roots of unity of |p|^2

least. With ``a_i = p(alpha^i)`` as decoding vector of a Reed-Solomon code whose columns have weight
c + 1, and the stragglers' roots given, the first sum is what is left out of the gradient, the
second what rounding messages by a unit u adds to it: both pass through rows of B, which are of one
norm. So the parameter of this ridge regression is known, ``2 u sqrt(n)`` for x.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import choice
from .cyclic import circle

__all__ = ["near_exact"]


def near_exact(turns: NDArray[np.int64], n: int, c: int, unit: float) -> NDArray[np.complex128]:
    """Values at all n-th roots of unity of the polynomial that nearly vanishes at some.

    Parameters
    ----------
    turns : (s,) int64 array
        The roots ``exp(2 pi i turns / n)``, distinct, turns in 0 .. n-1.
    n : int
    c : int
        Degree; 0 < c < n.
    unit : float
        Unit roundoff of messages.

    Returns
    -------
    (n,) complex128 array
        ``p(exp(2 pi i t / n))``, t = 0 .. n-1.
    """
    x = np.zeros(n, dtype=np.complex128)
    x[0] = 1 / n
    if turns.size and c:
        (choice.active or choice.load()).ridge(circle(n), turns, c, unit, x[1 : c + 1])
    return np.fft.ifft(x, norm="forward")
