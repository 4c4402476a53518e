"""When enough has come of independent workers: its law, its mean, the parameters they share."""

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
_NEVER = 1e-30  # probability to be late from which down kinks do not matter

Array = NDArray[np.float64]


def in_range(name: str, value: int, most: int, told: str) -> int:
    """An integer in 1 .. most, or an error that says what the most is."""
    if not 1 <= (value := check_integer(name, value)) <= most:
        raise ValueError(f"{name} must be in 1 .. {told} not {value}")
    return value


def check_batch(load: int, batch: int) -> tuple[int, int]:
    """Computations of a worker, and those between its messages."""
    load = at_least("load", load, 1)
    return load, in_range("batch", batch, load, f"load = {load},")


class Work(NamedTuple):
    """What a worker does in its time: `load` computations, or as many as are said."""

    delays: Distribution
    load: int
    cost: float

    def cdf(self, t: Array) -> Array:
        """Probability that all of it is done by time t."""
        return self.delays.cdf(self._delay(t, self.load))

    def survival(self, t: Array, done: int | NDArray[np.int64] | None = None) -> Array:
        """Probability that less than `done` computations are, or less than all."""
        return self.delays.survival(self._delay(t, self.load if done is None else done))

    def _delay(self, t: Array, done: int | NDArray[np.int64]) -> Array:
        """The longest delay with which as many are done by time t."""
        if self.delays.per == "round":
            return t - self.cost * done
        return t / done - self.cost

    def seconds(self, delays: ArrayLike, done: float) -> Array:
        """`seconds_of` these delays."""
        return seconds_of(self.delays, np.asarray(delays), done, self.cost)


_Seconds = TypeVar("_Seconds", float, Array)


def seconds_of(model: Delays, delay: _Seconds, done: float, cost: float) -> _Seconds:
    """How long so many computations take with this delay."""
    return delay + cost * done if model.per == "round" else (delay + cost) * done


def works_of(delays: Delays, loads: Sequence[int], cost: float) -> list[Work]:
    """The work of each worker; ValueError where workers are not independent."""
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
    """Probability of each number of messages that a worker has sent by time t, from 0."""
    done = np.arange(batch, work.load + 1, batch)
    fewer = np.zeros((*t.shape, done.size + 2))  # probability to have sent fewer than s
    fewer[..., 1:-1] = work.survival(t[..., np.newaxis], done)
    fewer[..., -1] = 1
    return np.diff(fewer)


@dataclass(frozen=True)
class CompletionTime:
    """The time T until `needed` of what all workers bring together has come.

    Attributes
    ----------
    late : callable
        P(T > t) for a vector of times.
    works : sequence of Work
        What workers do; of those that are alike, one.
    sent : array
        The parts of a worker's work after which it sends what it has.
    delays : Delays
    counts : sequence of int
        What each worker brings at most.
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
        """Integral over t of the probability to be late.

        It has kinks, or jumps, where those of the models' laws come to lie.
        """
        tail = self._tail_index()
        knots = [
            work.seconds(work.delays.knots(), work.load * part)
            for work in self.works
            for part in self.sent.tolist()
        ]
        kinks = np.unique(np.concatenate(knots))
        if all(isinstance(work.delays, Empirical) for work in self.works):
            # between jumps nothing happens, at them rounding would decide
            late = self.late((kinks[:-1] + kinks[1:]) / 2)
            return float(kinks[0] + np.diff(kinks) @ late)
        # from the last kink before which nothing can have happened to the first after all has
        certain, over = (
            bisect_left(kinks, True, key=lambda t: float(self.late(np.array([t]))[0]) < chance)
            for chance in (1 - _NOISE, _NEVER)
        )
        return mean_of_late(self.late, kinks[max(certain - 1, 0) : over + 1], tail)

    def _tail_index(self) -> float:
        """Exponent of the tail of T; at most 1 is refused.

        Where tails of workers are unknown, the least that it can be.
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

    Tails multiply over the workers that must be late together, so the least sum of exponents over
    the sets of workers without which `needed` cannot be had; a knapsack problem.
    """
    lost = sum(counts) - needed + 1
    least = np.full(lost + 1, np.inf)  # by what the late workers hold, `lost` and more in the last
    least[0] = 0
    for index, count in zip(exponents, counts, strict=True):
        step = min(count, lost)
        late = least + index
        least[step:] = np.minimum(least[step:], late[: lost + 1 - step])
        least[-1] = min(least[-1], late[lost - step :].min())
    return float(least[-1])


def one_by_one(probability: Callable[[float], float]) -> Callable[[Array], Array]:
    """The same function of many times; NaN where a time is."""

    def each(t: Array) -> Array:
        return np.array([math.nan if math.isnan(x) else probability(x) for x in t.tolist()])

    return each
