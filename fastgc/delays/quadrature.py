"""Means as integrals of P(T > t), for models without a closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["mean_of_late"]

Array = NDArray[np.float64]

_X, _W = np.polynomial.legendre.leggauss(16)
# The polynomial through values at _X, taken at -1 and 1: a sum of Legendre polynomials.
_TO_RIGHT = _W * (np.polynomial.legendre.legvander(_X, 15) @ (np.arange(16) + 0.5))
_TO_LEFT = _TO_RIGHT[::-1]
_TOLERANCE = 1e-12  # of the integral, for each panel
_HALVINGS = 60
_RATIO = 16.0  # of the ends of a panel, to begin with
_PANELS = 1 << 14  # evaluated at once
_FARTHEST = np.exp(300.0)  # times where the tail begins
_NEAR = 4  # units in the last place by which knots may be off


def mean_of_late(late: Callable[[Array], Array], knots: Array, tail: float) -> float:
    """Integral of P(T > t) over t >= 0, however far apart the scales of T lie.

    Parameters
    ----------
    late : callable
        P(T > t) of a vector of times, smooth between the knots, where it may jump.
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

    mean = float(knots[0])
    mean += _integral(late, _edges(knots), mean)
    return mean + _integral(rest, np.linspace(0, 1, 5), mean)


def _edges(knots: Array) -> Array:
    """The knots, and times between those far apart: halvings alone would not reach the first."""
    near = knots[:-1]
    with np.errstate(divide="ignore", over="ignore"):
        decades = np.log(knots[1:] / near) / np.log(_RATIO)
    parts = np.where((near > 0) & (decades > 1), np.ceil(np.minimum(decades, 2000)), 1).astype(int)
    between = [
        np.geomspace(low, high, count, endpoint=False) if count > 1 else [low]
        for low, high, count in zip(near.tolist(), knots[1:].tolist(), parts.tolist(), strict=True)
    ]
    edges: Array = np.concatenate([*between, knots[-1:]])
    return edges


def _integral(function: Callable[[Array], Array], edges: Array, besides: float) -> float:
    """Adaptive: panels are halved until their halves together say the same and hide nothing.

    The function is not negative; tolerances are relative to the integral and what is `besides`.
    """
    left, right = edges[:-1], edges[1:]
    whole, _ = _gauss(function, left, right)
    total = 0.0
    for _ in range(_HALVINGS):
        if not left.size:
            break
        middle = (left + right) / 2
        lower, in_lower = _gauss(function, left, middle)
        upper, in_upper = _gauss(function, middle, right)
        halves = lower + upper
        scale = besides + total + float(halves.sum())
        bad = np.abs(halves - whole) + in_lower + in_upper > _TOLERANCE * scale
        bad &= right - left > _NEAR * np.spacing(right)  # else there is nothing between the edges
        total += float(halves[~bad].sum())
        left, right = (
            np.concatenate([left[bad], middle[bad]]),
            np.concatenate([middle[bad], right[bad]]),
        )
        whole = np.concatenate([lower[bad], upper[bad]])
    return total + float(whole.sum())


def _gauss(function: Callable[[Array], Array], left: Array, right: Array) -> tuple[Array, Array]:
    """Integrals over panels, and how much may hide between their edges and the points of the rule.

    Where scales lie far apart, all that is fast may be over before the first point, on a panel and
    on its half alike. Then the function is at the edge not what those points make one expect.
    """
    sums, hidden = np.empty((2, left.size))
    for first in range(0, left.size, _PANELS):
        part = slice(first, first + _PANELS)
        low, high = left[part, np.newaxis], right[part, np.newaxis]
        half = (high - low) / 2
        # inside, as the function may jump at a knot
        inset = np.minimum(_NEAR * np.spacing(high), half)
        points = np.hstack([low + inset, low + half * (1 + _X), high - inset])
        values = function(points.ravel()).reshape(points.shape)
        inside = values[:, 1:-1]
        before = np.abs(values[:, 0] - inside @ _TO_LEFT)
        after = np.abs(values[:, -1] - inside @ _TO_RIGHT)
        sums[part] = (inside @ _W) * half[:, 0]
        hidden[part] = (before + after) * (1 + _X[0]) * half[:, 0]
    return sums, hidden
