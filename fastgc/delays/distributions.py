"""Distributions of workers' delays, per round or per computation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Array, Floats, check_integer, check_real, check_reals
from .._base.extras import scipy
from .interface import Per, check_per, tail_bounds

__all__ = ["Delays", "Distribution", "Exponential", "Pareto", "ShiftedExponential"]


class Delays(ABC):
    """Times of workers, independent from round to round.

    Attributes
    ----------
    per : "round" or "computation"
        "round": a time is the delay of a worker in a round, whatever its load. "computation": a
        time is the duration of one computation. It is the same for all computations of a worker in
        a round, so r of them take r times as long (Ozfatura et al., eq. 12; Li et al., eq. 15).
    """

    per: Per = "round"

    def sample(self, round: int, workers: int, seed: int) -> Floats:
        """Return the times of all workers in one round.

        They depend only on ``seed``, ``round`` and the worker, not on earlier samples. So several
        codes can run on the same delays, and the first m of n workers have the times of only m
        workers.

        Parameters
        ----------
        round : int
            Round, from 0.
        workers : int
            Number of workers n, not negative.
        seed : int
            Seed of the experiment, not negative.

        Returns
        -------
        array of float64, shape (workers,)
            Seconds.

        Raises
        ------
        ValueError, TypeError
            If an argument is negative, or not an integer.
        """
        check_counts(round=round, workers=workers, seed=seed)
        # With a spawn key, even round 0 differs from a generator of the seed alone; entropy (seed,
        # 0) would not.
        stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(round,)))
        times: Floats = self._draw(stream, 1, workers)[0]
        return times

    def draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Floats:
        """Return the times of all workers in many rounds at once, for simulations.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of randomness; the same state gives the same times.
        rounds, workers : int
            Not negative.

        Returns
        -------
        array of float64, shape (rounds, workers)
            Seconds.

        Raises
        ------
        ValueError, TypeError
            If a number is negative, or not an integer.
        """
        check_counts(rounds=rounds, workers=workers)
        return self._draw(rng, rounds, workers)

    def order_statistic_mean(self, f: int, n: int) -> float:
        """Return the mean of the f-th smallest of n times, the wait for the first f of n workers.

        Parameters
        ----------
        f, n : int
            1 <= f <= n.

        Returns
        -------
        float
            Seconds.

        Raises
        ------
        ValueError, TypeError
            If f is not in 1 .. n, or f or n not an integer; if the mean does not exist because the
            tail is too heavy, or if it is unknown whether the mean exists.
        """
        f, n = check_integer("f", f), check_integer("n", n)
        if not 1 <= f <= n:
            raise ValueError(f"f must lie in 1 .. n = {n}, got {f}")
        # The f-th smallest is late if any n - f + 1 times are, most likely those of heaviest tails.
        least, most, fewest = self._tails_of_late(n - f + 1, n)
        if most > 1 and not least > 1:
            raise ValueError(
                f"whether the mean of the {f}-th smallest of {n} times exists is unknown under "
                f"{self!r}: its tail_indices does not say how heavy its tails are"
            )
        if not most > 1:
            remedy = f"it does for f up to {n - fewest + 1}" if fewest <= n else "none does"
            raise ValueError(
                f"the mean of the {f}-th smallest of {n} times does not exist under {self!r}, "
                f"whose tail is too heavy: {remedy}"
            )
        return self._order_statistic_mean(f, n)

    def _tails_of_late(self, late: int, n: int) -> tuple[float, float, int]:
        """Return bounds on the exponent of the tail that `late` of n times are late together.

        Also return the least number of times that must be late together for a mean to exist.
        """
        least, most = (np.cumsum(each) for each in tail_bounds(self.tail_indices(n)))
        fewest = int(np.searchsorted(most, 1, side="right")) + 1
        return float(least[late - 1]), float(most[late - 1]), fewest

    @abstractmethod
    def tail_indices(self, workers: int) -> Floats:
        """Return each worker's tail exponent x, P(T > t) ~ t^-x: float64, shape (workers,).

        It is Inf for lighter tails, and NaN if unknown. Means of powers below x exist. Raises
        ValueError if the model has the times of another number of workers.
        """

    @abstractmethod
    def _draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Floats:
        """Draw as `draw` does, with arguments that are checked.

        Numbers are taken from `rng` round after round, and worker after worker within a round.
        """

    def _order_statistic_mean(self, f: int, n: int) -> float:
        """Return `order_statistic_mean`, which exists."""
        tail, _, _ = self._tails_of_late(n - f + 1, n)
        return mean_of_late(lambda t: self._late(t, f, n), self.knots(), tail)

    @abstractmethod
    def _late(self, t: Floats, f: int, n: int) -> Floats:
        """Probability that the f-th smallest of n times is more than t, elementwise."""

    @abstractmethod
    def knots(self) -> Floats:
        """Return ascending times between which the distribution is smooth, from the least time on.

        The last knot must not be far below a typical time. Integrals are split at the knots
        (`fastgc.delays.distributions.mean_of_late`).
        """


class Distribution(Delays):
    """One distribution, from which each worker's time in each round is drawn independently.

    A subclass defines `cdf`, `survival` and `quantile`, which raise TypeError for what is not real;
    the rest follows, with means by quadrature. It should define `tail_indices`, because otherwise
    it is unknown whether means exist. It defines `per` unless that is ``"round"``.
    """

    @abstractmethod
    def cdf(self, t: ArrayLike) -> Floats:
        """Return the probability of at most t seconds, F(t), elementwise; NaN where t is NaN."""

    @abstractmethod
    def survival(self, t: ArrayLike) -> Floats:
        """Return P(T > t) = 1 - F(t), elementwise, without cancellation."""

    @abstractmethod
    def quantile(self, q: ArrayLike) -> Floats:
        """Return the least time in seconds with F(t) >= q, elementwise; for q = 0 the least time.

        Raises ValueError if a q is not in [0, 1].
        """

    def mean(self) -> float:
        """Return the mean time in seconds; raise ValueError if it does not exist, or may not."""
        return self.order_statistic_mean(1, 1)

    def tail_indices(self, workers: int) -> Floats:  # noqa: D102
        return np.full(workers, math.nan)

    def _tails_of_late(self, late: int, n: int) -> tuple[float, float, int]:
        # All workers have the same exponent.
        least, most = (float(each[0]) for each in tail_bounds(self.tail_indices(1)))
        fewest = n + 1 if most == 0 else int(min(math.floor(1 / most) + 1, n + 1))
        return late * least, late * most, fewest

    def _draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Floats:
        return self.quantile(rng.random((rounds, workers)))

    def _late(self, t: Floats, f: int, n: int) -> Floats:
        late: Floats = scipy("special").betainc(n - f + 1, f, self.survival(t))
        return late

    def knots(self) -> Floats:  # noqa: D102
        return self.quantile([0, 0.5])


class _Continuous(Distribution):
    """A distribution given by its cumulative hazard H(t) = -log(1 - F(t)) and the inverse."""

    @abstractmethod
    def _hazard(self, t: Floats) -> Floats: ...

    @abstractmethod
    def _time(self, hazard: Floats) -> Floats: ...

    def cdf(self, t: ArrayLike) -> Floats:
        with np.errstate(over="ignore", under="ignore"):  # a hazard of Inf or 0 gives the right one
            probability: Floats = -np.expm1(-self._hazard(check_reals("t", t)))
        return probability

    def survival(self, t: ArrayLike) -> Floats:
        with np.errstate(over="ignore", under="ignore"):
            probability: Floats = np.exp(-self._hazard(check_reals("t", t)))
        return probability

    def quantile(self, q: ArrayLike) -> Floats:
        q = check_probabilities(q)
        with np.errstate(divide="ignore"):
            return self._time(-np.log1p(-q))

    def tail_indices(self, workers: int) -> Floats:
        return np.full(workers, math.inf)  # Pareto overrides this

    def _draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Floats:
        return self._time(rng.standard_exponential((rounds, workers)))


@dataclass(frozen=True)
class Pareto(_Continuous):
    """Pareto times, F(t) = 1 - (t_0 / t)^ξ for t >= t_0 (Halbawi et al., equation 16).

    Parameters
    ----------
    scale : float
        The least time t_0, in seconds, positive.
    shape : float
        Tail exponent ξ, positive. A smaller ξ means a heavier tail; the mean exists only for ξ > 1.
    per : "round" or "computation"
        See `Delays`.

    Raises
    ------
    ValueError, TypeError
        If a parameter is out of range, not finite, or not a real number.
    """

    scale: float
    shape: float
    per: Per = "round"

    def __post_init__(self) -> None:
        check_real("scale", self.scale, positive=True)
        check_real("shape", self.shape, positive=True)
        check_per(self.per)

    def _hazard(self, t: Floats) -> Floats:
        hazard: Floats = self.shape * np.log(np.maximum(t, self.scale) / self.scale)
        return hazard

    def _time(self, hazard: Floats) -> Floats:
        time = np.asarray(hazard / self.shape)
        with np.errstate(over="ignore"):
            np.exp(time, out=time)
            time *= self.scale
        return time

    def mean(self) -> float:
        """Return the mean time in seconds, t_0 ξ / (ξ - 1); raise ValueError unless ξ > 1."""
        if not self.shape > 1:
            raise ValueError(
                f"the mean of {self!r} does not exist: shape must be greater than 1 for one"
            )
        return self.scale * self.shape / (self.shape - 1)

    def tail_indices(self, workers: int) -> Floats:  # noqa: D102
        return np.full(workers, float(self.shape))

    def _order_statistic_mean(self, f: int, n: int) -> float:
        # t_0 Γ(n - f + 1 - 1/ξ) Γ(n + 1) / (Γ(n - f + 1) Γ(n + 1 - 1/ξ)), Halbawi et al., proof of
        # Proposition 1: the product of i / (i - 1/ξ) over i = n - f + 1 .. n.
        late = np.arange(n - f + 1, n + 1)
        return self.scale * math.exp(-math.fsum(np.log1p(-1 / (self.shape * late))))


@dataclass(frozen=True)
class ShiftedExponential(_Continuous):
    """Shifted exponential times, F(t) = 1 - exp(-μ (t - α)) for t >= α.

    The time of one computation in Ozfatura et al., eq. 12, and Li et al., eq. 15 (where α is a).

    Parameters
    ----------
    shift : float
        The least time α, in seconds, not negative.
    rate : float
        Rate μ of the tail, per second, positive.
    per : "round" or "computation"
        See `Delays`.

    Raises
    ------
    ValueError, TypeError
        If the shift is negative, the rate is not positive, or one of them is not finite, or not a
        real number.
    """

    shift: float
    rate: float
    per: Per = "computation"

    def __post_init__(self) -> None:
        check_real("shift", self.shift)
        check_real("rate", self.rate, positive=True)
        check_per(self.per)

    def _hazard(self, t: Floats) -> Floats:
        hazard: Floats = self.rate * np.maximum(t - self.shift, 0)
        return hazard

    def _time(self, hazard: Floats) -> Floats:
        return self.shift + hazard / self.rate

    def mean(self) -> float:
        """Return the mean time in seconds, α + 1/μ."""
        return self.shift + 1 / self.rate

    def _order_statistic_mean(self, f: int, n: int) -> float:
        return self.shift + _harmonic_difference(f, n) / self.rate


@dataclass(frozen=True, init=False, repr=False)
class Exponential(_Continuous):
    """Exponential times, F(t) = 1 - exp(-t / η) (Zhu et al., section II-B).

    Parameters
    ----------
    mean : float
        The mean η, in seconds, positive.
    per : "round" or "computation"
        See `Delays`.

    Attributes
    ----------
    scale : float
        The mean.

    Raises
    ------
    ValueError, TypeError
        If the mean is not positive and finite, or not a real number.
    """

    scale: float
    per: Per

    def __init__(self, mean: float, per: Per = "round") -> None:
        check_real("mean", mean, positive=True)
        check_per(per)
        object.__setattr__(self, "scale", mean)  # `mean` is the method
        object.__setattr__(self, "per", per)

    def __repr__(self) -> str:
        return f"Exponential(mean={self.scale!r}, per={self.per!r})"

    def _hazard(self, t: Floats) -> Floats:
        hazard: Floats = np.maximum(t, 0) / self.scale
        return hazard

    def _time(self, hazard: Floats) -> Floats:
        return self.scale * hazard

    def mean(self) -> float:
        """Return the mean time in seconds, η."""
        return self.scale

    def _order_statistic_mean(self, f: int, n: int) -> float:
        return self.scale * _harmonic_difference(f, n)  # Zhu et al., eq. 10


def _harmonic_difference(f: int, n: int) -> float:
    """``H_n - H_(n-f)``, the mean of the f-th smallest of n exponentials of mean 1."""
    return math.fsum(1 / np.arange(n - f + 1, n + 1))


def check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if check_integer(name, value) < 0:
            raise ValueError(f"{name} must not be negative, got {value}")


def check_delays(delays: Delays) -> None:
    """Raise TypeError unless `delays` is a `Delays`, whose law closed forms can use."""
    if not isinstance(delays, Delays):
        raise TypeError(
            f"delays must be a model of fastgc.delays, such as Pareto, not {delays!r}"
            + (", which can only be simulated" if hasattr(delays, "sample") else "")
        )


def check_probabilities(q: ArrayLike) -> Floats:
    q = check_reals("q", q)
    if not np.all((q >= 0) & (q <= 1)):
        raise ValueError("q must be in [0, 1]")
    return q


# ------------------------------------------------------------------- means as integrals of P(T > t)

_X, _W = np.polynomial.legendre.leggauss(16)
# Weights that extrapolate the polynomial through values at _X to 1 and to -1: sums of Legendre
# polynomials.
_TO_RIGHT = _W * (np.polynomial.legendre.legvander(_X, 15) @ (np.arange(16) + 0.5))
_TO_LEFT = _TO_RIGHT[::-1]
_TOLERANCE = 1e-12  # error allowed in a panel, relative to the integral
_HALVINGS = 60
_RATIO = 16.0  # the largest ratio of the ends of an initial panel
_PANELS = 1 << 14  # panels evaluated at once
_FARTHEST = np.exp(300.0)  # the largest time, in units of the time where the tail begins
_NEAR = 4  # units in the last place by which knots may be off


def mean_of_late(late: Callable[[Floats], Floats], knots: Floats, tail: float) -> float:
    """Integrate P(T > t) over t >= 0, no matter how far apart the scales of T lie.

    ``late(t)`` is P(T > t) for a vector of times. It is smooth between knots, ascending times that
    are not negative, and may jump at them. P(T > t) = 1 below the first knot; the last is of the
    order of a typical T or above. `tail` is the exponent of the tail, P(T > t) ~ t^-tail, above 1;
    Inf if it falls faster.
    """
    start = knots[-1]
    # Substitute t = start v^(-1/g) with g = tail - 1: a pure power law becomes a constant.
    g = min(tail - 1, 1.0)

    def rest(v: Floats) -> Floats:
        with np.errstate(over="ignore"):
            ratio = np.minimum(v ** (-1 / g), _FARTHEST)
            left: Floats = late(start * ratio) * ratio ** (1 + g) * (start / g)
        return left

    mean = float(knots[0])
    mean += by_halves(partial(_gauss, late), _edges(knots), lambda more: _TOLERANCE * (mean + more))
    edges = np.linspace(0, 1, 5)
    return mean + by_halves(partial(_gauss, rest), edges, lambda more: _TOLERANCE * (mean + more))


def _edges(knots: Floats) -> Floats:
    """Return the knots, and times in geometric progression between knots that lie far apart.

    Halving panels alone would not get near the lower of two such knots.
    """
    near = knots[:-1]
    with np.errstate(divide="ignore", over="ignore"):
        decades = np.log(knots[1:] / near) / np.log(_RATIO)
    parts = np.where((near > 0) & (decades > 1), np.ceil(np.minimum(decades, 2000)), 1).astype(int)
    between = [
        np.geomspace(low, high, count, endpoint=False) if count > 1 else [low]
        for low, high, count in zip(near.tolist(), knots[1:].tolist(), parts.tolist(), strict=True)
    ]
    edges: Floats = np.concatenate([*between, knots[-1:]])
    return edges


def by_halves(
    panels: Callable[[Floats, Floats], tuple[Floats, Array | float]],
    edges: Floats,
    allowed: Callable[[float], float],
) -> float:
    """Integrate a function that is not negative, by adaptive quadrature.

    ``panels(left, right)`` returns integrals over panels, and bounds on what these miss. The first
    panels lie between `edges`. They are halved until a panel agrees with the sum of its halves, and
    these miss nothing, but for the error that is `allowed` for an estimate of the whole integral.
    """
    left, right = edges[:-1], edges[1:]
    whole, _ = panels(left, right)
    total = 0.0
    for _ in range(_HALVINGS):
        if not left.size:
            break
        middle = (left + right) / 2
        lower, below = panels(left, middle)
        upper, above = panels(middle, right)
        halves = lower + upper
        bad = np.abs(halves - whole) + below + above > allowed(total + float(halves.sum()))
        bad &= right - left > _NEAR * np.spacing(right)  # no floats are left between the edges
        total += float(halves[~bad].sum())
        left, middle, right = left[bad], middle[bad], right[bad]
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        whole = np.concatenate([lower[bad], upper[bad]])
    return total + float(whole.sum())


@np.errstate(under="ignore")
def _gauss(
    function: Callable[[Floats], Floats], left: Floats, right: Floats
) -> tuple[Floats, Floats]:
    """Return integrals over panels, and bounds on what may hide between edges and nodes.

    If scales lie far apart, a fast change may be over before the first node, both on a panel and on
    its half. The function at the edge then differs from the polynomial through the nodes.
    """
    sums, hidden = np.empty((2, left.size))
    for first in range(0, left.size, _PANELS):
        part = slice(first, first + _PANELS)
        low, high = left[part, np.newaxis], right[part, np.newaxis]
        half = (high - low) / 2
        # Evaluate just inside the edges, because the function may jump at a knot.
        inset = np.minimum(_NEAR * np.spacing(high), half)
        points = np.hstack([low + inset, low + half * (1 + _X), high - inset])
        values = function(points.ravel()).reshape(points.shape)
        inside = values[:, 1:-1]
        before = np.abs(values[:, 0] - inside @ _TO_LEFT)
        after = np.abs(values[:, -1] - inside @ _TO_RIGHT)
        sums[part] = (inside @ _W) * half[:, 0]
        hidden[part] = (before + after) * (1 + _X[0]) * half[:, 0]
    return sums, hidden
