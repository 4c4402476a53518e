"""Values at roots of unity that vanish at some, with a spectrum as near as can be to a constant's.

By LAPACK, through NumPy, for every backend: it is asked for only where the polynomials of
`near_exact` are not good enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import numpy as plain
from .choice import own
from .cyclic import circle

__all__ = ["whitened"]


def whitened(turns: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Values ``a(z) = sum over m of h_m z^m`` at all n-th roots of unity, 0 at some of them.

    Of those the one that makes ``sum over m of weights_m^2 |h_m - [m = 0] / n|^2`` least, in
    O(n s^2).

    Parameters
    ----------
    turns : (s,) int64 array
        The roots ``exp(2 pi i turns / n)`` where it vanishes, distinct, turns in 0 .. n-1; s > 0.
    weights : (n,) float64 array
        Positive.

    Returns
    -------
    (n,) complex128 array
        ``a(exp(2 pi i t / n))``, t = 0 .. n-1.

    Notes
    -----
    With ``y_m = weights_m (h_m - [m = 0] / n)`` it is the shortest solution of s equations. Weights
    range over fifteen decades. Householder's reflections do not lose the small rows if rows come
    in the order of their sizes and columns are pivoted; columns in Leja's order do as well.
    """
    n = weights.size
    roots = np.ascontiguousarray(circle(n)[::2])
    order = np.empty(turns.size, dtype=np.int64)
    own(plain.leja_order)(roots[turns], order)
    rising = np.argsort(weights, kind="stable")
    rows = roots.conj()[np.multiply.outer(rising, turns[order]) % n] / weights[rising, None]
    q, r = np.linalg.qr(rows)
    target = np.full(turns.size, -1 / n, dtype=np.complex128)
    y: NDArray[Any] = q @ np.linalg.solve(r.conj().T, target)
    h = np.empty(n, dtype=np.complex128)
    h[rising] = y / weights[rising]
    h[0] += 1 / n
    return np.fft.ifft(h, norm="forward")
