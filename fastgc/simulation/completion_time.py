"""The time until enough messages of independent workers have come: its law and its mean."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import at_least, check_integer, check_real, check_reals
from ..delays import Delays, Distribution, Empirical, Heterogeneous
from ..delays.distributions import check_delays, mean_of_late

__all__ = [
    "CompletionTime",
    "Work",
    "check_batch",
    "in_range",
    "messages_pmf",
    "one_by_one",
    "seconds_of",
    "works_of",
]

_NOISE = 1e-14  # rounding errors of probabilities
_NEVER = 1e-30  # where the probability of being late is below this, kinks do not matter

Array = NDArray[np.float64]


def in_range(name: str, value: int, most: int, told: str) -> int:
    """Return `value` if it is an integer in 1 .. most; `told` ends the message of the error."""
    if not 1 <= (value := check_integer(name, value)) <= most:
        raise ValueError(f"{name} must be in 1 .. {told} not {value}")
    return value


def check_batch(load: int, batch: int) -> tuple[int, int]:
    """Check and return the computations of a worker, and those between its messages."""
    load = at_least("load", load, 1)
    return load, in_range("batch", batch, load, f"load = {load},")


class Work(NamedTuple):
    """The computations of one worker: their number, the model of their delays, and their cost."""

    delays: Distribution
    load: int
    cost: float

    def cdf(self, t: Array) -> Array:
        """Probability that all `load` computations are done by time t."""
        return self.delays.cdf(self._delay(t, self.load))

    def survival(self, t: Array, done: int | NDArray[np.int64] | None = None) -> Array:
        """Probability that fewer than `done` computations, by default all, are done by time t."""
        return self.delays.survival(self._delay(t, self.load if done is None else done))

    def _delay(self, t: Array, done: int | NDArray[np.int64]) -> Array:
        """Return the longest delay with which `done` computations are done by time t."""
        if self.delays.per == "round":
            return t - self.cost * done
        return t / done - self.cost

    def seconds(self, delays: ArrayLike, done: float) -> Array:
        """Seconds that `done` computations take, for each of `delays`."""
        return seconds_of(self.delays, np.asarray(delays), done, self.cost)


_Seconds = TypeVar("_Seconds", float, Array)


def seconds_of(model: Delays, delay: _Seconds, done: float, cost: float) -> _Seconds:
    """Seconds that `done` computations take with this delay."""
    return delay + cost * done if model.per == "round" else (delay + cost) * done


def works_of(delays: Delays, loads: Sequence[int], cost: float) -> list[Work]:
    """Return the work of each worker; raise ValueError if workers are not independent."""
    check_delays(delays)
    cost = check_real("cost", cost)
    models = delays.models if isinstance(delays, Heterogeneous) else [delays] * len(loads)
    if len(models) != len(loads):
        raise ValueError(f"the delays are those of {len(models)} workers, not of {len(loads)}")
    works = []
    for model, load in zip(models, loads, strict=True):
        if not isinstance(model, Distribution) or (isinstance(model, Empirical) and model.joint):
            raise ValueError(
                "closed forms need workers that are independent of each other, which under "
                f"{model!r} they are not: simulate, or pool the samples"
            )
        if not math.isfinite(cost * load):
            raise ValueError(f"cost is too large for a load of {load}: {cost}")
        works.append(Work(model, load, cost))
    return works


def messages_pmf(t: Array, work: Work, batch: int) -> Array:
    """Probability that a worker has sent s messages by time t, for s = 0, 1, ... (last axis)."""
    done = np.arange(batch, work.load + 1, batch)
    fewer = np.zeros((*t.shape, done.size + 2))  # probability of fewer than s messages
    fewer[..., 1:-1] = work.survival(t[..., np.newaxis], done)
    fewer[..., -1] = 1
    return np.diff(fewer)


@dataclass(frozen=True)
class CompletionTime:
    """The time T until the workers together have brought `needed` units.

    A unit is a message, a partial gradient, or a worker, as the closed form counts.

    Attributes
    ----------
    late : callable
        P(T > t) for a vector of times.
    works : sequence of Work
        The different works of the workers, each once.
    sent : array
        Fractions of a worker's work after which it sends a message.
    delays : Delays
    counts : sequence of int
        The most units that each worker brings.
    needed : int
    """

    late: Callable[[Array], Array]
    works: Sequence[Work]
    sent: Array
    delays: Delays
    counts: Sequence[int]
    needed: int

    def cdf(self, t: ArrayLike) -> Array:
        """P(T <= t), elementwise; NaN where t is."""
        times = check_reals("t", t)
        done = 1 - self.late(times.ravel()).reshape(times.shape)
        return np.where(np.isnan(times), np.nan, done)

    def mean(self) -> float:
        """Return the mean of T, the integral of P(T > t) over t.

        P(T > t) has its kinks and jumps at the times that belong to those of the models' laws.
        """
        tail = self._tail_index()
        knots = [
            work.seconds(work.delays.knots(), work.load * part)
            for work in self.works
            for part in self.sent.tolist()
        ]
        kinks = np.unique(np.concatenate(knots))
        if all(isinstance(work.delays, Empirical) for work in self.works):
            # P(T > t) is constant between jumps. At a jump, rounding would decide: take middles.
            late = self.late((kinks[:-1] + kinks[1:]) / 2)
            return float(kinks[0] + np.diff(kinks) @ late)
        # Integrate from the last kink with P(T > t) = 1 to the first with P(T > t) below `_NEVER`.
        certain, over = (
            bisect_left(kinks, True, key=lambda t: float(self.late(np.array([t]))[0]) < chance)
            for chance in (1 - _NOISE, _NEVER)
        )
        return mean_of_late(self.late, kinks[max(certain - 1, 0) : over + 1], tail)

    def _tail_index(self) -> float:
        """Return the exponent of the tail of T; raise ValueError unless it is above 1.

        If tails of workers are unknown, this is the least exponent that T may have.
        """
        counts, needed = self.counts, self.needed
        told = self.delays.tail_indices(len(counts))
        unknown = np.isnan(told)
        least, most = (
            _least_sum(np.where(unknown, x, told), counts, needed) for x in (0.0, math.inf)
        )
        if most <= 1:
            raise ValueError(
                f"the mean does not exist: the time until {needed} of {sum(counts)} have come has "
                f"a tail t^-{most:g}, and the exponent must be above 1; need fewer, so that more "
                "workers may be late"
            )
        if least <= 1:
            raise ValueError(
                f"whether the mean exists is unknown under {self.delays!r}: tail_indices does not "
                "say how heavy its tails are"
            )
        return least


def _least_sum(exponents: Array, counts: Sequence[int], needed: int) -> float:
    """Exponent of the tail of the time until `needed` of `counts` have come.

    T is late if all workers of a set are late without which fewer than `needed` come. The tails of
    such a set multiply, so T's exponent is the least sum of exponents over these sets: a knapsack
    problem.
    """
    lost = sum(counts) - needed + 1
    # Least sum of exponents by the units that the late workers hold; last entry: `lost` or more.
    least = np.full(lost + 1, np.inf)
    least[0] = 0
    for index, count in zip(exponents, counts, strict=True):
        step = min(count, lost)
        late = least + index
        least[step:] = np.minimum(least[step:], late[: lost + 1 - step])
        least[-1] = min(least[-1], late[lost - step :].min())
    return float(least[-1])


def one_by_one(probability: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return `probability` as a function of a vector of times, with NaN for a time of NaN."""

    def each(t: Array) -> Array:
        return np.array([math.nan if math.isnan(x) else probability(x) for x in t.tolist()])

    return each
