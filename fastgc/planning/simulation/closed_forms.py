"""Completion times and recovery thresholds without sampling: closed forms and exact convolutions.

The first L computations of a worker take D + cost L seconds if the model's delay D is per round,
and (D + cost) L seconds if it is per computation. Workers are independent of each other.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..._base.arrays import Array, Floats, Ints, at_least, check_integer, check_real, check_reals
from ..._base.extras import scipy
from ...coding.arguments import check_between
from ...delays import (
    Delays,
    Distribution,
    Empirical,
    Exponential,
    Heterogeneous,
    ShiftedExponential,
)
from ...delays.distributions import by_halves, check_delays, mean_of_late

__all__ = [
    "AdaptiveLoads",
    "adaptive_loads",
    "completions_pmf",
    "coupon_threshold",
    "coverage_probability",
    "covered_cdf",
    "covered_mean",
    "covered_messages",
    "fastest_of_groups_mean",
    "least_threshold",
    "mds_threshold",
    "random_threshold",
    "received_cdf",
    "received_mean",
    "selected_mean",
    "threshold_cdf",
    "threshold_mean",
    "total_cdf",
    "total_mean",
]


_ENTRIES = 1 << 24  # the largest number of entries in a table of probabilities
_HELD = 1 << 18  # probabilities convolved at a time
_NOISE = 1e-14  # rounding errors of probabilities
_NEVER = 1e-30  # where the probability of being late is below this, kinks do not matter


def check_batch(load: int, batch: int) -> tuple[int, int]:
    """Check and return the computations of a worker, and those between its messages."""
    load = at_least("load", load, 1)
    return load, check_between("batch", batch, 1, load, "load")


class Work(NamedTuple):
    """The computations of one worker: their number, the model of their delays, and their cost."""

    delays: Distribution
    load: int
    cost: float

    def cdf(self, t: Floats) -> Floats:
        """Probability that all `load` computations are done by time t."""
        return self.delays.cdf(self._delay(t, self.load))

    def survival(self, t: Floats, done: int | Ints | None = None) -> Floats:
        """Probability that fewer than `done` computations, by default all, are done by time t."""
        return self.delays.survival(self._delay(t, self.load if done is None else done))

    def _delay(self, t: Floats, done: int | Ints) -> Floats:
        """Return the longest delay with which `done` computations are done by time t."""
        if self.delays.per == "round":
            return t - self.cost * done
        return t / done - self.cost

    def knots(self, done: float) -> Floats:
        """Return the times that `done` computations take at the knots of the delays' law."""
        return seconds_of(self.delays, self.delays.knots(), done, self.cost)


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


def messages_pmf(t: Floats, work: Work, batch: int) -> Floats:
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
    """

    late: Callable[[Floats], Floats]  # P(T > t) for a vector of times
    works: Sequence[Work]  # the different works of the workers, each once
    sent: Floats  # fractions of a worker's work after which it sends a message
    delays: Delays
    counts: Sequence[int]  # the most units that each worker brings
    needed: int

    @np.errstate(under="ignore")
    def cdf(self, t: ArrayLike) -> Floats:
        """P(T <= t), elementwise; NaN where t is."""
        times = check_reals("t", t)
        done = 1 - self.late(times.ravel()).reshape(times.shape)
        return np.where(np.isnan(times), np.nan, done)

    @np.errstate(under="ignore")
    def mean(self) -> float:
        """Return the mean of T, the integral of P(T > t) over t.

        P(T > t) has its kinks and jumps at the times that belong to those of the models' laws.
        """
        tail = self._tail_index()
        knots = [work.knots(work.load * part) for work in self.works for part in self.sent.tolist()]
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
        """Return the least exponent that T's tail may have; raise ValueError unless it is > 1."""
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


def _least_sum(exponents: Floats, counts: Sequence[int], needed: int) -> float:
    """Exponent of the tail of the time until `needed` of `counts` have come: a knapsack problem.

    T is late if all workers of a set are late without which fewer than `needed` come. Tails of a
    set multiply, so T's exponent is the least sum of exponents over these sets.
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


# ---------------------------------------------------------------------- any K of n workers


def threshold_cdf(
    t: ArrayLike, n: int, threshold: int, delays: Delays, load: int, *, cost: float = 0.0
) -> Floats:
    """Probability that `threshold` of n workers have done all their work by time t.

    Ozfatura et al., eq. (18), for any model. It is computed as a regularised incomplete beta
    function, because the sum would lose digits to cancellation.

    Parameters
    ----------
    t : array_like
        Seconds.
    n : int
        Workers.
    threshold : int
        Workers needed, 1 .. n.
    delays : Delays
        The model of every worker, or a `Heterogeneous` one.
    load : int
        Computations of each worker.
    cost : float
        Seconds per computation besides the delay.

    Returns
    -------
    float64 array of the shape of t

    Raises
    ------
    ValueError, TypeError
        If a parameter is out of range or has a wrong type, or workers' delays are not independent.
    """
    n, threshold, load = _check_threshold(n, threshold, load)
    if isinstance(delays, Heterogeneous):
        return received_cdf(t, [load] * n, delays, threshold * load, cost=cost)
    [work] = works_of(delays, [load], cost)
    done: Floats = scipy("special").betainc(
        threshold, n - threshold + 1, work.cdf(check_reals("t", t))
    )
    return done


def threshold_mean(
    n: int, threshold: int, delays: Delays, load: int, *, cost: float = 0.0
) -> float:
    """Mean seconds until `threshold` of n workers have done all their work, exact.

    The mean of eq. (18) of Ozfatura et al., which is the mean of an order statistic of the delays.
    Parameters and errors as in `threshold_cdf`, and ValueError if the mean does not exist.
    """
    n, threshold, load = _check_threshold(n, threshold, load)
    check_delays(delays)
    cost = check_real("cost", cost)
    return seconds_of(delays, delays.order_statistic_mean(threshold, n), load, cost)


def _check_threshold(n: int, threshold: int, load: int) -> tuple[int, int, int]:
    n = at_least("n", n, 1)
    return n, check_between("threshold", threshold, 1, n, "n"), at_least("load", load, 1)


# ----------------------------------------------- enough messages, no matter which workers send them


def completions_pmf(
    t: ArrayLike, load: int, delays: Delays, *, batch: int = 1, cost: float = 0.0
) -> Floats:
    r"""Probability P_s(t) that a worker has sent exactly s messages by time t.

    Ozfatura et al., eq. (13), for any model. Parameters and errors as in `total_cdf`, except that
    `delays` is the model of one worker.

    Returns
    -------
    float64 array, shape (\*t.shape, load // batch + 1)
        P_s(t) for s = 0 .. load // batch.
    """
    load, batch = check_batch(load, batch)
    if isinstance(delays, Heterogeneous):
        raise ValueError("what one worker completes needs the model of one, not Heterogeneous")
    [work] = works_of(delays, [load], cost)
    return messages_pmf(check_reals("t", t), work, batch)


def total_cdf(
    t: ArrayLike,
    n: int,
    load: int,
    threshold: int,
    delays: Delays,
    *,
    batch: int = 1,
    cost: float = 0.0,
) -> Floats:
    """Probability that n workers together have sent `threshold` messages by time t.

    Ozfatura et al., eqs. (14) and (15), M(t) >= M_th. Instead of the sum over all N(t), about n^r
    terms, this computes the n-th power of `completions_pmf` under convolution, cut off at the
    threshold: O(threshold^2 log n) for each t. Returns and raises as `threshold_cdf`.

    Parameters
    ----------
    t, n, delays, cost
        As in `threshold_cdf`.
    load : int
        Computations of each worker, r.
    threshold : int
        Messages needed, M_th, 1 .. n (r // batch).
    batch : int
        Computations between messages (2 for LCC-MMC-2). An incomplete last batch is not sent.
    """
    return _total(n, load, threshold, delays, batch, cost).cdf(t)


def total_mean(
    n: int, load: int, threshold: int, delays: Delays, *, batch: int = 1, cost: float = 0.0
) -> float:
    """Mean seconds until n workers together have sent `threshold` messages.

    Ozfatura et al., eqs. (16) and (17), by adaptive quadrature; exact for `Empirical` delays.
    Parameters and errors as in `total_cdf`, and ValueError if the mean does not exist.
    """
    return _total(n, load, threshold, delays, batch, cost).mean()


def _total(
    n: int, load: int, threshold: int, delays: Delays, batch: int, cost: float
) -> CompletionTime:
    n = at_least("n", n, 1)
    load, batch = check_batch(load, batch)
    most = n * (load // batch)
    threshold = check_between("threshold", threshold, 1, most, "all messages")
    groups = Counter(works_of(delays, [load] * n, cost))

    def late(t: Floats) -> Floats:
        late = np.zeros((t.size, threshold))
        late[:, 0] = 1
        for work, count in groups.items():
            square = np.zeros_like(late)
            pmf = messages_pmf(t, work, batch)[:, :threshold]
            square[:, : pmf.shape[1]] = pmf
            while count:
                if count & 1:
                    late = _of_sums(late, square)
                if count := count >> 1:
                    square = _of_sums(square, square)
        found: Floats = np.minimum(late.sum(axis=1), 1.0)
        return found

    sent = np.arange(batch, load + 1, batch) / load
    return CompletionTime(late, list(groups), sent, delays, [load // batch] * n, threshold)


def _of_sums(first: Floats, second: Floats) -> Floats:
    """Convolve each row of `first` with the same row of `second`, cut off at their length."""
    size = second.shape[1]
    before = np.zeros((len(second), 2 * size - 1), second.dtype)  # zeros in front align windows
    before[:, size - 1 :] = second
    windows = np.lib.stride_tricks.sliding_window_view(before, size, axis=1)
    sums: Floats = np.einsum("tj,tkj->tk", first[:, ::-1], windows)
    return sums


# --------------------------------------------------------------- workers of different loads


def received_cdf(
    t: ArrayLike, loads: ArrayLike, delays: Delays, needed: int, *, cost: float = 0.0
) -> Floats:
    """Probability that the workers done by time t hold `needed` partial gradients together.

    This is the distribution of the time T in eq. (18) of Li et al., computed exactly by a
    convolution over the workers, O(n needed) for each t. Returns and raises as `threshold_cdf`.

    Parameters
    ----------
    t, delays, cost
        As in `threshold_cdf`.
    loads : (n,) array of int
        Partial gradients that each worker computes, r_i; a worker of load 0 does not take part.
    needed : int
        Partial gradients, repetitions counted, s; 1 .. sum of the loads.
    """
    return _received(loads, delays, needed, cost).cdf(t)


def received_mean(loads: ArrayLike, delays: Delays, needed: int, *, cost: float = 0.0) -> float:
    """Mean seconds until the workers done hold `needed` partial gradients together.

    The mean of T in eq. (18) of Li et al., by adaptive quadrature; exact for `Empirical` delays.
    Its minimum over the loads is their P2. Parameters and errors as in `received_cdf`, and
    ValueError if the mean does not exist.
    """
    return _received(loads, delays, needed, cost).mean()


def _received(loads: ArrayLike, delays: Delays, needed: int, cost: float) -> CompletionTime:
    each = np.asarray(loads)
    if each.ndim != 1 or not each.size or each.dtype.kind not in "iu" or each.min() < 0:
        raise ValueError(f"loads must be integers from 0, one for each worker, not {loads!r}")
    needed = check_between("needed", needed, 1, each.sum(), "sum of the loads")
    counts = each.tolist()
    groups = Counter(work for work in works_of(delays, counts, cost) if work.load)

    def late(t: Floats) -> Floats:
        held = np.zeros((t.size, needed))
        held[:, 0] = 1
        for work, count in groups.items():
            late = work.survival(t)[:, np.newaxis]
            for _ in range(count):
                more = (1 - late) * held[:, : max(needed - work.load, 0)]
                held *= late
                held[:, work.load :] += more
        less: Floats = held.sum(axis=1).clip(max=1.0)
        return less

    step = max(1, _HELD // needed)
    some = partial(_in_parts, late, step=step)
    return CompletionTime(some, list(groups), np.ones(1), delays, counts, needed)


def _in_parts(late: Callable[[Floats], Floats], t: Floats, step: int) -> Floats:
    """Return `late` of a vector of times, computed for `step` times at once."""
    return np.concatenate([late(t[at : at + step]) for at in range(0, max(t.size, 1), step)])


# ---------------------------------------------------- different partitions, in circular-shift order

_AT_A_TIME = 1 << 16  # numbers in an array; more would not fit the nearest caches

_TOLERANCE = 1e-11  # error of the messages counted in a panel, in messages per worker
_TOGETHER = 1e-6  # a moment with more probability than this may have two messages
_GROWTH = 8  # ratio of the lengths of successive intervals without a kink
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_APART = _NODES[:, np.newaxis] - _NODES + np.eye(16)
# l_j'(x_i): derivatives at the nodes of the polynomials of Lagrange through the nodes.
_SLOPES = _APART.prod(axis=1)[:, np.newaxis] / (_APART * _APART.prod(axis=1))
np.fill_diagonal(_SLOPES, (1 / _APART).sum(axis=1) - 1)


def covered_cdf(
    t: ArrayLike,
    n: int,
    load: int,
    delays: Delays,
    *,
    k: int | None = None,
    needed: int | None = None,
    batch: int = 1,
    cost: float = 0.0,
) -> Floats:
    """Probability that n workers together have sent `needed` different partitions by time t.

    Pr(T <= t) of UC-MMC and UC-MMC-PG of Ozfatura et al. (section III and eq. (11)), for any model
    with equal workers; the paper only simulates it. Worker i computes partitions i k / n, i k / n +
    1, ..., modulo k, in this order. Raises as `threshold_cdf`, and ValueError if workers differ.

    Parameters
    ----------
    t, n, delays, cost
        As in `threshold_cdf`.
    load : int
        Computations of each worker, r; k / n .. k.
    k : int, optional
        Partitions, a multiple of n; n by default.
    needed : int, optional
        Number of different partitions that end a round, as ``tolerance=1 - needed / k`` of
        `Uncoded` does. Default: all partitions that are sent.
    batch : int
        Computations between messages, as in `total_cdf`; 1 for `Uncoded`.

    Returns
    -------
    float64 array of the shape of t
        The absolute error is of the order of n roundings.

    Notes
    -----
    For k = n, the cost is O(n r + g n^2) for each t, with g = k - needed + 1.

    Examples
    --------
    >>> from fastgc.delays import ShiftedExponential
    >>> delays = ShiftedExponential(shift=0.01, rate=10)  # of each computation, in seconds
    >>> covered_cdf([0.1, 0.3, 0.6], 40, 4, delays).round(4)
    array([0.0036, 0.8974, 0.9998])
    """
    return _Circle(n, load, delays, k, needed, batch, cost).time().cdf(t)


def covered_mean(
    n: int,
    load: int,
    delays: Delays,
    *,
    k: int | None = None,
    needed: int | None = None,
    batch: int = 1,
    cost: float = 0.0,
) -> float:
    """Mean seconds until n workers together have sent `needed` different partitions.

    E[T] of UC-MMC and UC-MMC-PG of Ozfatura et al., by adaptive quadrature; exact for `Empirical`
    delays. Parameters and errors as in `covered_cdf`, and ValueError if the mean does not exist.
    """
    return _Circle(n, load, delays, k, needed, batch, cost).time().mean()


@np.errstate(under="ignore")
def covered_messages(
    n: int,
    load: int,
    delays: Delays,
    *,
    k: int | None = None,
    needed: int | None = None,
    batch: int = 1,
    cost: float = 0.0,
) -> float:
    """Mean number of messages until n workers have sent `needed` different partitions.

    The communication load of UC-MMC and UC-MMC-PG of Ozfatura et al. (figure 2(b)), by adaptive
    quadrature. A message counts if the round has not ended before it comes. Parameters and errors
    as in `covered_cdf`, and ValueError if messages may come at the same moment, as with `Empirical`
    delays; use a simulation for these.

    Returns
    -------
    float
        The mean, including the message that ends the round. It has 9 digits or more, unless delays
        vary by less than a millionth of themselves.
    """
    circle = _Circle(n, load, delays, k, needed, batch, cost)
    knots = circle.work.delays.knots()
    before = circle.work.delays.cdf(np.nextafter(knots, -np.inf))
    jump = float((circle.work.delays.cdf(knots) - before).max())
    if jump > _TOGETHER:
        raise ValueError(
            f"under {delays!r} messages come at the same moment, so that their number depends on "
            "which of them come first: simulate"
        )
    return circle.messages(max(_TOLERANCE, 1000 * jump))


class _Circle:
    """Workers that compute in circular-shift order, until they have covered the partitions.

    UC-MMC and UC-MMC-PG of Ozfatura et al. (`fastgc.Uncoded` with ``load=``): the partitions lie on
    a circle, in n blocks of k / n. Worker i begins with block i, goes round the circle, and sends a
    message after every `batch` partitions. A worker's reach at time t is the number of partitions
    that it has sent. Reaches of different workers are independent.

    Cut the circle after every block with a missing partition. A worker that begins in an arc
    between two cuts never reaches beyond the arc's end, because it would have sent the missing
    partition. So arcs are independent of each other. Let k = n, U(z) be the generating function of
    the arcs' lengths, and W(z) = 1 / (1 - U(z)). The probability that g or more partitions are
    missing is the coefficient of z^n in z U'(z) U(z)^(g-1) W(z): the arc across block 0 in all its
    positions, g - 1 further arcs, and any number of others. All terms are positive, so no digits
    cancel.

    The reach at a block is the largest number of partitions, counted from the block's beginning,
    that any worker has sent.
    """

    def __init__(
        self,
        n: int,
        load: int,
        delays: Delays,
        k: int | None,
        needed: int | None,
        batch: int,
        cost: float,
    ) -> None:
        self.n = n = at_least("n", n, 1)
        k = n if k is None else at_least("k", k, 1)
        if k % n:
            raise ValueError(f"k must be a multiple of n = {n}, not {k}")
        load, batch = check_batch(load, batch)
        self.batch, self.block = batch, k // n
        if not self.block <= load <= k:
            raise ValueError(f"load must be in k / n = {self.block} .. k = {k}, not {load}")
        self.farthest = load // batch * batch
        most = k if self.farthest >= self.block else n * self.farthest
        needed = most if needed is None else check_integer("needed", needed)
        if not 1 <= needed <= most:
            raise ValueError(
                f"needed must be in 1 .. {most}, the partitions that are sent at all, not {needed}"
            )
        self.lost = k - needed + 1  # a round goes on while this many partitions are missing
        if isinstance(delays, Heterogeneous):
            raise ValueError("workers must be alike, not Heterogeneous: simulate")
        [self.work] = works_of(delays, [load], cost)
        self.done = np.arange(batch, load + 1, batch)  # computations before each message

    def time(self) -> CompletionTime:
        """Return the time until fewer than `lost` partitions are missing."""
        # The smallest set of workers without which `lost` partitions are missing: neighbours.
        silent = min(self.n, (self.lost + self.farthest - 1) // self.block)
        sent, each, needed = self.done / self.work.load, [1] * self.n, self.n + 1 - silent
        return CompletionTime(self.late, [self.work], sent, self.work.delays, each, needed)

    def late(self, t: Floats) -> Floats:
        """Probability that `lost` or more partitions are missing at each of the times."""
        step = max(1, _AT_A_TIME // max(self.farthest + 1, self.n + 1, self.block))
        return np.minimum(_in_parts(lambda t: self._late(self._reach(t)), t, step), 1.0)

    def _late(self, reach: Array) -> Array:
        arcs = self._arcs(reach)
        rest = self._rest(reach, arcs)
        size = np.arange(self.n + 1)  # an arc of this length covers block 0 in as many positions
        some: Array = (size * arcs[1:] * rest[1:, :, ::-1]).sum(axis=(0, 2))
        return some

    def _reach(self, t: Floats) -> Floats:
        """Probability of each reach of a worker, padded with zeros to a block at least."""
        reach = np.zeros((t.size, max(self.farthest + 1, self.block)))
        reach[:, : self.farthest + 1 : self.batch] = messages_pmf(t, self.work, self.batch)
        return reach

    def _rest(self, reach: Floats, arcs: Floats) -> Floats:
        """Probability that the arcs after the first one fill the circle and keep the round going.

        Entry [m, :, b] of (block + 1, times, n + 1) is for a first arc that misses m >= 1
        partitions and leaves b blocks: the other arcs then miss ``lost - m`` or more.
        """
        more = np.cumsum(arcs[::-1], axis=0)[::-1]  # arcs that miss so many partitions or more
        # lose[m]: probability, by length, of a chain of arcs that misses m partitions or more
        lose = [self._any_arcs(reach)]
        for lost in range(1, self.lost):
            some = _of_sums(more[lost], lose[0]) if lost <= self.block else 0 * lose[0]
            for first in range(1, min(self.block + 1, lost)):
                some += _of_sums(arcs[first], lose[lost - first])
            lose.append(some)
        firsts = range(1, self.block + 1)
        return np.stack([lose[0], *(lose[max(self.lost - first, 0)] for first in firsts)])

    def _arcs(self, reach: Floats) -> Floats:
        """Probability of an arc: (partitions missing in its last block, times, length), from 0."""
        block = self.block
        arcs = np.zeros((block + 1, len(reach), self.n + 1), reach.dtype)
        less = np.zeros_like(reach)  # probability that a worker's reach is shorter
        np.cumsum(reach[:, :-1], axis=1, out=less[:, 1:])
        arcs[1:, :, 1] = reach[:, block - 1 :: -1].T
        here = reach
        for length in range(2, self.n + 1):
            before = _beyond(here, block)
            here = reach * np.cumsum(before, axis=1) + before * less
            arcs[1:, :, length] = here[:, block - 1 :: -1].T
        return arcs

    def _any_arcs(self, reach: Floats) -> Floats:
        """Probability of a cut so many blocks after a cut, whatever lies between: (t, n + 1)."""
        # No worker between the cuts reaches the end of the last block.
        within = np.cumsum(reach, axis=1)
        ends = np.arange(1, self.n + 1) * self.block - 1
        some = np.ones((len(reach), self.n + 1), reach.dtype)
        np.cumprod(within[:, np.minimum(ends, within.shape[1] - 1)], axis=1, out=some[:, 1:])
        return some

    def messages(self, tolerance: float) -> float:
        """Return the mean number of messages of a round, with an error of about `tolerance` n."""
        return by_halves(self._messages, self._edges(), lambda total: tolerance * self.n)

    def _edges(self) -> Floats:
        """Return the edges of the panels of quadrature, up to a time after which hardly any counts.

        They are the kinks of the law of the messages' times. Between these, panels grow by a
        constant ratio: one long panel could miss what happens soon after a kink.
        """
        kinks = np.unique(np.concatenate([self.work.knots(float(m)) for m in self.done]))
        times: list[float] = kinks[:2].tolist()
        for kink in [*kinks[2:].tolist(), math.inf]:
            while (far := times[-1] + _GROWTH * (times[-1] - times[-2])) < kink:
                if kink == math.inf and self._to_come(times[-1]) < _TOLERANCE:
                    return np.array(times)
                times.append(far)
            times.append(kink)
        raise ValueError(
            f"{self.work.delays!r} is too heavy-tailed: workers are late beyond all floats"
        )

    def _to_come(self, t: float) -> float:
        """Bound on the mean number of messages after time `t` and before the end of the round."""
        at = np.array([t])
        due = self._reach(at)
        due[:, self.done[-1] :] = 0  # a worker that has sent everything sends no more
        return self.done.size * float(self._if_one(at, due)[0])

    def _messages(self, left: Floats, right: Floats) -> tuple[Floats, float]:
        """Return the mean number of messages in each panel that come before a round is over, and 0.

        A worker's message s (from 0) counts if the round goes on given its s messages before. Its
        rate is the derivative of its distribution function, by interpolation.
        """
        half = (right - left)[:, np.newaxis] / 2
        t = left[:, np.newaxis] + half * (1 + _NODES)
        came = -self.work.survival(t[..., np.newaxis], self.done)
        rate = np.einsum("ij,tjs->tis", _SLOPES, came)  # per half a panel
        before = np.zeros((t.size, max(self.farthest + 1, self.block)))
        before[:, : self.farthest : self.batch] = rate.reshape(t.size, -1)
        return self._if_one(t.ravel(), before).reshape(t.shape) @ _WEIGHTS, 0.0

    def _if_one(self, t: Floats, weights: Floats) -> Floats:
        """Return the sum over workers and reaches of ``weights`` times P(late given this reach).

        P(late) is linear in the probabilities of each worker's reaches. So this sum is its
        derivative along `weights`: an imaginary step gives it without a difference that cancels.
        """
        step = max(1, _AT_A_TIME // max(self.farthest + 1, self.n + 1, self.block))
        parts = [slice(at, at + step) for at in range(0, t.size, step)]
        tiny = 1e-100
        found = [
            self._late(self._reach(t[each]) + 1j * tiny * weights[each]).imag for each in parts
        ]
        return np.concatenate(found) / tiny


def _beyond(reach: Floats, block: int) -> Floats:
    """Return the probability of each reach left at the next block; drop reaches that end before."""
    beyond = np.zeros_like(reach)
    beyond[:, : reach.shape[1] - block] = reach[:, block:]
    return beyond


# ------------------------------------------------------------------------ recovery thresholds


def least_threshold(k: int, load: int) -> float:
    """Number of workers that any scheme must wait for, k / r (Li et al., Theorem 1).

    Parameters
    ----------
    k : int
        Partitions, m in the paper.
    load : int
        Partitions per worker, r, 1 .. k.

    Raises
    ------
    ValueError, TypeError
        If a parameter is out of range, or of a wrong type.
    """
    k, load = _check_load(k, load)
    return k / load


def mds_threshold(k: int, load: int) -> int:
    """Number of workers that cyclic repetition and Reed-Solomon codes wait for if n = k: k - r + 1.

    Li et al., eq. (7); by eq. (8) this is also the communication load. Parameters and errors as in
    `least_threshold`.
    """
    k, load = _check_load(k, load)
    return k - load + 1


def random_threshold(k: int, load: int) -> float:
    """Mean number of workers that the simple randomised scheme waits for, if there are enough.

    Each worker computes `load` partitions, drawn without replacement, and the master waits until
    every partition has been drawn. For a fixed load the result grows like (k / r) log k, eq. (5) of
    Li et al. It is the sum over t of the probability that some partition is in none of t draws, by
    inclusion and exclusion; milliseconds for k = 1000, O(k^2). Parameters and errors as in
    `least_threshold`.
    """
    k, load = _check_load(k, load)
    # Integers with 80 binary digits after the point: terms reach 2^k, and alternate in sign.
    total, draws, digits = 0, math.comb(k, load), 80
    for j in range(1, k + 1):
        without = math.comb(k - j, load)  # draws that contain none of j given partitions
        term = (math.comb(k, j) * draws << digits) // (draws - without)
        total += term if j % 2 else -term
    return total / (1 << digits)


def coupon_threshold(k: int, load: int) -> float:
    """Mean number of workers that BCC waits for, b H_b with b = ceil(k / r) batches.

    Li et al., eqs. (2) and (13), with an unlimited number of workers. By eq. (14) this is also the
    communication load. Parameters and errors as in `least_threshold`.
    """
    k, load = _check_load(k, load)
    b = -(-k // load)
    return b * _harmonic(b)


def _harmonic(b: float) -> float:
    """H_b, the sum of 1/i for i up to b, also for numbers between."""
    return float(scipy("special").digamma(b + 1.0)) + np.euler_gamma


@np.errstate(under="ignore")
def coverage_probability(loads: ArrayLike, k: int) -> float:
    """Probability that workers' random choices cover all of k partitions.

    Worker i picks ``loads[i]`` of k partitions, with all sets equally likely. The result is the
    probability that a seed gives `RandomAssignment` a valid assignment. For `CouponCollector` use
    ``coverage_probability([1] * n, b)`` with b = ceil(k / r) batches. Errors as in
    `least_threshold`.

    Parameters
    ----------
    loads : (n,) array of int
        Partitions of each worker, 0 .. k.
    k : int
        Partitions.

    Notes
    -----
    A recursion over workers for the number of missing partitions, O(k load) each, all terms
    positive.
    """
    each = np.asarray(loads)
    k = at_least("k", k, 1)
    if each.ndim != 1 or not each.size or each.dtype.kind not in "iu":
        raise ValueError(f"loads must be integers, one for each worker, not {loads!r}")
    if each.min() < 0 or each.max() > k:
        raise ValueError(f"loads must be in 0 .. k = {k}, not {each.min()} .. {each.max()}")
    if k * (int(each.max()) + 1) > _ENTRIES:
        raise ValueError(f"k = {k} is too large for loads up to {each.max()}: simulate")
    lacking = np.zeros(k + 1)  # probability of each number of missing partitions
    lacking[k] = 1
    for load, count in zip(*np.unique(each, return_counts=True), strict=True):
        found = np.arange(load + 1)  # number of missing partitions that a worker picks
        before = np.arange(k + 1)[:, np.newaxis] + found
        chance = _found_probability(before, found, k, int(load))
        for _ in range(count):
            lacking = (np.append(lacking, np.zeros(load))[before] * chance).sum(axis=1)
    return min(float(lacking[0]), 1.0)


def _found_probability(missing: Ints, found: Ints, k: int, load: int) -> Floats:
    """Probability that `load` random ones of k partitions include `found` of the `missing` ones."""
    log_factorial = scipy("special").gammaln(np.arange(1.0, k + 2))

    def log_binomial(n: Ints, r: Ints) -> Floats:
        possible = (n <= k) & (r >= 0) & (r <= n)
        n, r = np.where(possible, n, 0), np.where(possible, r, 0)
        logs = log_factorial[n] - log_factorial[r] - log_factorial[n - r]
        return np.where(possible, logs, -np.inf)

    logs = log_binomial(missing, found) + log_binomial(k - missing, load - found)
    logs -= log_binomial(np.array([k]), np.array([load]))
    chance = np.exp(logs)
    # Logarithms of large factorials have rounding errors. Dividing by the sum removes the part of
    # the error that all probabilities of the same `missing` share.
    whole = np.bincount(missing.ravel(), chance.ravel())
    divided: Floats = chance / np.where(whole > 0, whole, 1.0)[missing]
    return divided


def _check_load(k: int, load: int) -> tuple[int, int]:
    k = at_least("k", k, 1)
    return k, check_between("load", load, 1, k, "k")


# ----------------------------------------------------------------------------- CADA and G-CADA


def fastest_of_groups_mean(groups: float, size: int, delays: Delays) -> float:
    """Mean seconds until the fastest worker of every group is done.

    Zhu et al., eq. (14): the mean of the largest of `groups` minima. For groups of one worker it is
    the mean of the largest delay, eqs. (11) and (13). For exponential delays of mean eta it is eta
    H_groups / size; for other delays it is computed by adaptive quadrature. Raises as
    `threshold_mean`, and ValueError if workers differ.

    Parameters
    ----------
    groups : float
        Number of selected groups, positive. In eqs. (13) and (16) it is a mean, and no integer.
    size : int
        Workers in a group, M_G.
    delays : Delays
        Time of each worker for its one computation.
    """
    groups = check_real("groups", groups, positive=True)
    size = at_least("size", size, 1)
    if isinstance(delays, Heterogeneous):
        raise ValueError("workers must be alike, not Heterogeneous")
    [work] = works_of(delays, [1], 0.0)
    if isinstance(delays, Exponential | ShiftedExponential):
        shift = float(delays.quantile(0))
        return shift + (delays.mean() - shift) / size * _harmonic(groups)

    def late(t: Floats) -> Floats:
        with np.errstate(divide="ignore"):  # where all workers are late for certain
            none = np.log1p(-(work.survival(t) ** size))
        return -np.expm1(groups * none)

    return CompletionTime(late, [work], np.ones(1), delays, [1] * size, 1).mean()


@np.errstate(under="ignore")
def selected_mean(
    smoothness: ArrayLike,
    c: float,
    max_age: int,
    scale: float | None = None,
    *,
    oldest: int | None = None,
) -> float:
    """Bound on the mean number of workers, or groups, that CADA selects in a round.

    Zhu et al., eq. (12) for workers and (15) for groups, with c_d = c for all d. A worker whose
    smoothness L_m satisfies L_m^2 <= c / (d scale^2) for a d <= D is selected at most once in d + 1
    rounds, unless its gradient becomes too old before. Raises as `least_threshold`.

    Parameters
    ----------
    smoothness : (M,) array
        Smoothness constants L_m of the workers' or groups' functions, positive.
    c : float
        Constant of the rule of selection, eqs. (7) and (9), positive.
    max_age : int
        D, at least 1.
    scale : float, optional
        By default M or G, the length of `smoothness`, as in the paper. The rule in eq. (7)
        justifies 1, which gives a smaller bound.
    oldest : int, optional
        Age at which a worker is always selected, D or D + 1. Default: D, as in Algorithm 1 and
        `fastgc.optimizers.CADA`. The paper's equations hold for D + 1 and give less: Algorithm 1
        may exceed them by a factor of (D + 1) / D.

    Returns
    -------
    float
        At most M. It bounds the mean over many rounds; K rounds may select M more in total.

    Notes
    -----
    The paper sets the threshold for d = 0 to 0. Here it is infinite: otherwise the workers with the
    largest L_m, which are selected in every round, would not be counted.
    """
    L = check_reals("smoothness", smoothness)
    if L.ndim != 1 or not L.size or not np.all((L > 0) & np.isfinite(L)):
        raise ValueError(f"smoothness must be positive numbers, one a worker, not {smoothness!r}")
    max_age = at_least("max_age", max_age, 1)
    oldest = max_age if oldest is None else check_integer("oldest", oldest)
    if oldest not in (max_age, max_age + 1):
        raise ValueError(f"oldest must be max_age = {max_age}, or one more, not {oldest}")
    c = check_real("c", c, positive=True)
    scale = check_real("scale", L.size if scale is None else scale, positive=True)
    with np.errstate(over="ignore", divide="ignore"):
        thresholds = c / (np.arange(1, max_age + 1) * np.square(scale))
        d = np.count_nonzero(L[:, np.newaxis] ** 2 <= thresholds, axis=1)
    return float(np.sum(1 / np.minimum(d + 1, oldest)))


class AdaptiveLoads(NamedTuple):
    """The cost of a round of distributed Adam, CADA or G-CADA.

    Attributes
    ----------
    communication : float
        Models sent and gradients received.
    computation : float
        Gradients of single samples.
    """

    communication: float
    computation: float


def adaptive_loads(selected: float, size: int = 1, batch: int = 1) -> AdaptiveLoads:
    """Loads per round if all members of selected groups compute and the fastest of each sends.

    Zhu et al., eqs. (17) to (22). Distributed Adam selects all M workers in groups of one. CADA
    selects `selected_mean` workers in groups of one, G-CADA groups. Errors as in `selected_mean`.

    Parameters
    ----------
    selected : float
        Mean number of groups selected in a round; not negative.
    size : int
        Workers in a group, M_G.
    batch : int
        Samples in a mini-batch.
    """
    selected = check_real("selected", selected)
    size, batch = at_least("size", size, 1), at_least("batch", batch, 1)
    return AdaptiveLoads(selected * (size + 1), batch * selected * size)
