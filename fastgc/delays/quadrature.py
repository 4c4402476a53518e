"""Means as integrals of P(T > t), for models without a closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["mean_of_late"]

Array = NDArray[np.float64]

_X, _W = np.polynomial.legendre.leggauss(16)
_TOLERANCE = 1e-12  # of the integral, for each panel
_HALVINGS = 60
_PANELS = 1 << 14  # evaluated at once
_FARTHEST = np.exp(300.0)  # times where the tail begins


def mean_of_late(late: Callable[[Array], Array], knots: Array, tail: float) -> float:
    """Integral of P(T > t) over t >= 0.

    Parameters
    ----------
    late : callable
        P(T > t) of a vector of times, smooth between the knots.
    knots : ndarray
        Ascending times, not negative; P(T > t) = 1 below the first, and the last is of the order
        of a typical T or above.
    tail : float
        P(T > t) ~ t^-tail far out, tail > 1; Inf if it falls faster.
    """
    start = knots[-1]
    # With t = start v^(-1/g) and g = tail - 1, what is left of a pure power law is a constant.
    g = min(tail - 1, 1.0)

    def rest(v: Array) -> Array:
        with np.errstate(over="ignore"):
            ratio = np.minimum(v ** (-1 / g), _FARTHEST)
        left: Array = late(start * ratio) * ratio ** (1 + g) * (start / g)
        return left

    return float(knots[0]) + _integral(late, knots) + _integral(rest, np.linspace(0, 1, 5))


def _integral(function: Callable[[Array], Array], edges: Array) -> float:
    """Adaptive: panels are halved until their halves together say the same."""
    left, right = edges[:-1], edges[1:]
    whole = _gauss(function, left, right)
    scale = float(np.abs(whole).sum())
    total = 0.0
    for _ in range(_HALVINGS):
        if not left.size:
            break
        middle = (left + right) / 2
        lower, upper = _gauss(function, left, middle), _gauss(function, middle, right)
        halves = lower + upper
        good = np.abs(halves - whole) <= _TOLERANCE * scale
        total += float(halves[good].sum())
        bad = ~good
        left, right = (
            np.concatenate([left[bad], middle[bad]]),
            np.concatenate([middle[bad], right[bad]]),
        )
        whole = np.concatenate([lower[bad], upper[bad]])
    return total + float(whole.sum())


def _gauss(function: Callable[[Array], Array], left: Array, right: Array) -> Array:
    sums = np.empty(left.size)
    for first in range(0, left.size, _PANELS):
        part = slice(first, first + _PANELS)
        half = (right[part] - left[part]) / 2
        points = left[part, np.newaxis] + half[:, np.newaxis] * (1 + _X)
        sums[part] = (function(points.ravel()).reshape(points.shape) @ _W) * half
    return sums
