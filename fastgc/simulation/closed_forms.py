"""Completion times and recovery thresholds without sampling: closed forms and exact convolutions.

The first L computations of a worker take D + cost L seconds where the model's delay D is that of a
round, and (D + cost) L where it is that of each computation. Workers are independent of each other.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import at_least, check_integer, check_real, check_reals
from .._extras import scipy
from ..delays import (
    Delays,
    Distribution,
    Empirical,
    Exponential,
    Heterogeneous,
    ShiftedExponential,
)
from ..delays.distributions import check_delays
from ..delays.quadrature import mean_of_late

__all__ = [
    "AdaptiveLoads",
    "adaptive_loads",
    "completions_pmf",
    "coupon_mean",
    "coupon_tail_bound",
    "coupon_threshold",
    "coverage_probability",
    "fastest_of_groups_mean",
    "least_threshold",
    "mds_threshold",
    "random_communication_load",
    "random_threshold",
    "received_cdf",
    "received_mean",
    "selected_mean",
    "threshold_cdf",
    "threshold_mean",
    "total_cdf",
    "total_mean",
]

_NOISE = 1e-14  # rounding errors of probabilities
_ENTRIES = 1 << 24  # of a table of probabilities
_NEVER = 1e-30  # probability to be late from which down kinks do not matter

# ---------------------------------------------------------------------- any K of n workers


def threshold_cdf(
    t: ArrayLike, n: int, threshold: int, delays: Delays, load: int, *, cost: float = 0.0
) -> NDArray[np.float64]:
    """Probability that `threshold` of n workers have done all their work by time t.

    Ozfatura et al., eq. (18), for any model; a regularised incomplete beta function, whose digits
    do not cancel as those of the sum would.

    Parameters
    ----------
    t : array_like
        Seconds.
    n : int
        Workers.
    threshold : int
        Workers needed, 1 .. n.
    delays : Delays
    load : int
        Computations of each worker.
    cost : float
        Seconds per computation besides the delay.

    Returns
    -------
    float64 array of the shape of t

    Raises
    ------
    ValueError
        If a parameter is out of range, or workers' delays are not independent.
    TypeError
        If a parameter is of a wrong type.
    """
    n, threshold, load = _check_threshold(n, threshold, load)
    if isinstance(delays, Heterogeneous):
        return received_cdf(t, [load] * n, delays, threshold * load, cost=cost)
    [work] = _works(delays, [load], cost)
    done: NDArray[np.float64] = scipy("special").betainc(
        threshold, n - threshold + 1, work.cdf(check_reals("t", t))
    )
    return done


def threshold_mean(
    n: int, threshold: int, delays: Delays, load: int, *, cost: float = 0.0
) -> float:
    """Mean time at which `threshold` of n workers have done all their work, exact.

    The mean of eq. (18) of Ozfatura et al.: that of an order statistic of the delays.

    Parameters
    ----------
    n, threshold, delays, load, cost
        As in `threshold_cdf`.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    ValueError
        As `threshold_cdf`, and where the mean does not exist.
    TypeError
        If a parameter is of a wrong type.
    """
    n, threshold, load = _check_threshold(n, threshold, load)
    check_delays(delays)
    cost = check_real("cost", cost)
    return _seconds(delays, delays.order_statistic_mean(threshold, n), load, cost)


def _check_threshold(n: int, threshold: int, load: int) -> tuple[int, int, int]:
    n = at_least("n", n, 1)
    if not 1 <= (threshold := check_integer("threshold", threshold)) <= n:
        raise ValueError(f"threshold must be in 1 .. n = {n}, not {threshold}")
    return n, threshold, at_least("load", load, 1)


# ----------------------------------------------------- any number of messages, whoever sends them


def completions_pmf(
    t: ArrayLike, load: int, delays: Delays, *, batch: int = 1, cost: float = 0.0
) -> NDArray[np.float64]:
    r"""Probability that a worker has sent exactly s messages by time t, P_s(t).

    Ozfatura et al., eq. (13), for any model.

    Parameters
    ----------
    t : array_like
        Seconds.
    load : int
        Computations of the worker, r.
    delays : Delays
    batch : int
        Computations between messages; those after the last full batch are not sent.
    cost : float
        Seconds per computation besides the delay.

    Returns
    -------
    float64 array, shape (\*t.shape, r // batch + 1)
        P_s(t) for s = 0 .. r // batch.

    Raises
    ------
    ValueError
        If a parameter is out of range, or `delays` is of several workers.
    TypeError
        If a parameter is of a wrong type.
    """
    load, batch = _check_batch(load, batch)
    if isinstance(delays, Heterogeneous):
        raise ValueError("what one worker completes needs the model of one, not Heterogeneous")
    [work] = _works(delays, [load], cost)
    return _pmf(check_reals("t", t), work, batch)


def total_cdf(
    t: ArrayLike,
    n: int,
    load: int,
    threshold: int,
    delays: Delays,
    *,
    batch: int = 1,
    cost: float = 0.0,
) -> NDArray[np.float64]:
    """Probability that n workers together have sent `threshold` messages by time t.

    Ozfatura et al., eqs. (14) and (15), M(t) >= M_th, where workers send a message after every
    `batch` computations. In place of the sum over all N(t), which are of the order of n^r, the n-th
    power of `completions_pmf` under convolution, cut off at the threshold.

    Parameters
    ----------
    t : array_like
        Seconds.
    n : int
        Workers.
    load : int
        Computations of each worker, r.
    threshold : int
        Messages needed, M_th, 1 .. n (r // batch).
    delays : Delays
    batch : int
        Computations between messages (2 for LCC-MMC-2).
    cost : float
        Seconds per computation besides the delay.

    Returns
    -------
    float64 array of the shape of t

    Raises
    ------
    ValueError
        If a parameter is out of range, or workers' delays are not independent.
    TypeError
        If a parameter is of a wrong type.

    Notes
    -----
    O(threshold^2 log n) for each t.
    """
    n, load, threshold, batch = _check_total(n, load, threshold, batch)
    groups = Counter(_works(delays, [load] * n, cost))
    return _each(lambda t: 1 - _total_late(t, groups, batch, threshold), t)


def total_mean(
    n: int,
    load: int,
    threshold: int,
    delays: Delays,
    *,
    batch: int = 1,
    cost: float = 0.0,
) -> float:
    """Mean time at which n workers together have sent `threshold` messages.

    Ozfatura et al., eqs. (16) and (17), by adaptive quadrature; for `Empirical` delays exact.

    Parameters
    ----------
    n, load, threshold, delays, batch, cost
        As in `total_cdf`.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    ValueError
        As `total_cdf`, and where the mean does not exist.
    TypeError
        If a parameter is of a wrong type.
    """
    n, load, threshold, batch = _check_total(n, load, threshold, batch)
    groups = Counter(_works(delays, [load] * n, cost))
    tail = _tail_index(delays, [load // batch] * n, threshold)
    fractions = np.arange(batch, load + 1, batch) / load
    return _mean(lambda t: _total_late(t, groups, batch, threshold), groups, fractions, tail)


def _check_batch(load: int, batch: int) -> tuple[int, int]:
    load = at_least("load", load, 1)
    batch = check_integer("batch", batch)
    if not 1 <= batch <= load:
        raise ValueError(f"batch must be in 1 .. load = {load}, not {batch}")
    return load, batch


def _check_total(n: int, load: int, threshold: int, batch: int) -> tuple[int, int, int, int]:
    n = at_least("n", n, 1)
    load, batch = _check_batch(load, batch)
    most = n * (load // batch)
    if not 1 <= (threshold := check_integer("threshold", threshold)) <= most:
        raise ValueError(
            f"threshold must be in 1 .. {most}, the messages of {n} workers, not {threshold}"
        )
    return n, load, threshold, batch


def _pmf(t: NDArray[np.float64], work: _Work, batch: int) -> NDArray[np.float64]:
    done = np.arange(batch, work.load + 1, batch)
    fewer = np.zeros((*t.shape, done.size + 2))  # probability to have sent fewer than s
    fewer[..., 1:-1] = work.survival(t[..., np.newaxis], done)
    fewer[..., -1] = 1
    return np.diff(fewer)


def _total_late(t: float, groups: Counter[_Work], batch: int, threshold: int) -> float:
    """Probability that fewer messages have been sent."""
    late = np.ones(1)
    for work, count in groups.items():
        square = _pmf(np.asarray(t), work, batch)[:threshold]
        while count:
            if count & 1:
                late = np.convolve(late, square)[:threshold]
            if count := count >> 1:
                square = np.convolve(square, square)[:threshold]
    return min(float(late.sum()), 1.0)


# --------------------------------------------------------------- workers of different loads


def received_cdf(
    t: ArrayLike,
    loads: ArrayLike,
    delays: Delays,
    needed: int,
    *,
    cost: float = 0.0,
) -> NDArray[np.float64]:
    """Probability that the workers done by time t hold `needed` partial gradients together.

    The law of the time T of eq. (18) of Li et al., exact by a convolution over the workers.

    Parameters
    ----------
    t : array_like
        Seconds.
    loads : (n,) array of int
        Partial gradients that each worker computes, r_i; a worker of load 0 does not take part.
    delays : Delays
        Of every worker, or `Heterogeneous`.
    needed : int
        Partial gradients, repetitions counted, s; 1 .. sum of the loads.
    cost : float
        Seconds per computation besides the delay.

    Returns
    -------
    float64 array of the shape of t

    Raises
    ------
    ValueError
        If a parameter is out of range, or workers' delays are not independent.
    TypeError
        If a parameter is of a wrong type.

    Notes
    -----
    O(n needed) for each t.
    """
    each, needed = _check_received(loads, needed)
    groups = Counter(work for work in _works(delays, each, cost) if work.load)
    return _each(lambda t: 1 - _received_late(t, groups, needed), t)


def received_mean(loads: ArrayLike, delays: Delays, needed: int, *, cost: float = 0.0) -> float:
    """Mean time until the workers that are done hold `needed` partial gradients together.

    The mean of T in eq. (18) of Li et al., whose minimum over the loads is their P2, by adaptive
    quadrature; for `Empirical` delays exact.

    Parameters
    ----------
    loads, delays, needed, cost
        As in `received_cdf`.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    ValueError
        As `received_cdf`, and where the mean does not exist.
    TypeError
        If a parameter is of a wrong type.
    """
    each, needed = _check_received(loads, needed)
    groups = Counter(work for work in _works(delays, each, cost) if work.load)
    tail = _tail_index(delays, each, needed)
    return _mean(lambda t: _received_late(t, groups, needed), groups, np.ones(1), tail)


def _check_received(loads: ArrayLike, needed: int) -> tuple[list[int], int]:
    each = np.asarray(loads)
    if each.ndim != 1 or not each.size or each.dtype.kind not in "iu" or each.min() < 0:
        raise ValueError(f"loads must be integers from 0, one for each worker, not {loads!r}")
    if not 1 <= (needed := check_integer("needed", needed)) <= each.sum():
        raise ValueError(f"needed must be in 1 .. sum of the loads = {each.sum()}, not {needed}")
    return each.tolist(), needed


def _received_late(t: float, groups: Counter[_Work], needed: int) -> float:
    """Probability that fewer partial gradients have come."""
    held = np.zeros(needed)
    held[0] = 1
    for work, count in groups.items():
        late = float(work.survival(np.asarray(t)))
        for _ in range(count if late < 1 else 0):
            more = (1 - late) * held[: max(needed - work.load, 0)]
            held *= late
            held[work.load :] += more
    return min(float(held.sum()), 1.0)


# ------------------------------------------------------------------------ recovery thresholds


def least_threshold(k: int, load: int) -> float:
    """Workers that any scheme must hear from, k / r (Li et al., Theorem 1).

    Parameters
    ----------
    k : int
        Partitions, m in the paper.
    load : int
        Partitions per worker, r, 1 .. k.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If a parameter is out of range.
    TypeError
        If a parameter is of a wrong type.
    """
    k, load = _check_load(k, load)
    return k / load


def mds_threshold(k: int, load: int) -> int:
    """Workers that cyclic repetition and Reed-Solomon codes wait for where n = k: k - r + 1.

    Li et al., eq. (7); by eq. (8) this is the communication load, too. Parameters and errors as in
    `least_threshold`.
    """
    k, load = _check_load(k, load)
    return k - load + 1


def random_threshold(k: int, load: int) -> float:
    """Workers that the simple randomised scheme waits for, about (k / r) log k.

    Li et al., eq. (5). Parameters and errors as in `least_threshold`.
    """
    k, load = _check_load(k, load)
    return k / load * math.log(k)


def random_communication_load(k: int) -> float:
    """Partial gradients that the simple randomised scheme sends, about k log k.

    Li et al., eq. (6). Parameters and errors as in `least_threshold`.
    """
    k = at_least("k", k, 1)
    return k * math.log(k)


def coupon_threshold(k: int, load: int) -> float:
    """Mean number of workers that BCC hears of, b H_b with b = ceil(k / r) batches.

    Li et al., eqs. (2) and (13), for as many workers as it takes; `coupon_mean` is exact for n of
    them. By eq. (14) this is the communication load, too. Parameters and errors as in
    `least_threshold`.
    """
    k, load = _check_load(k, load)
    b = -(-k // load)
    return math.fsum(b / i for i in range(1, b + 1))


def coupon_mean(k: int, load: int, n: int) -> float:
    """Mean number of workers that BCC hears of, given that n workers picked all batches.

    What `CouponCollector` waits for, averaged over its seeds, which all let n workers pick all of
    the ceil(k / r) batches: less than `coupon_threshold`, which it approaches for large n.

    Parameters
    ----------
    k : int
        Partitions.
    load : int
        Partitions per worker, r, 1 .. k.
    n : int
        Workers, ceil(k / r) at least.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If a parameter is out of range.
    TypeError
        If a parameter is of a wrong type.

    Notes
    -----
    A recursion over the number of distinct batches heard of, O(n b), without a subtraction, in
    logarithms: for n = b all batches are picked with a probability of b! / b^b only.
    """
    k, load = _check_load(k, load)
    b = -(-k // load)
    if (n := check_integer("n", n)) < b:
        raise ValueError(f"{b} batches need {b} workers at least, not {n}")
    with np.errstate(divide="ignore"):
        again = np.log(np.arange(b) / b)  # heard of d batches, the next worker has one of them
        new = np.log(np.arange(b, 0, -1) / b)
    heard = np.full(b, -np.inf)
    heard[0] = 0
    complete = np.empty(n)  # log of the probability that worker t is the first to complete
    for t in range(n):
        complete[t] = heard[-1] + new[-1]
        heard[1:] = np.logaddexp(heard[1:] + again[1:], heard[:-1] + new[:-1])
        heard[0] = -np.inf
    chance = np.exp(complete - complete.max())
    return float(chance @ np.arange(1, n + 1) / chance.sum())


def coupon_tail_bound(k: int, excess: float) -> float:
    """Bound on the probability that k coupons take (1 + excess) k log k draws, or more.

    Li et al., Lemma 2: ``k**-excess``. For k = 2 the lemma as printed fails, for two draws are
    always needed; there it is the union bound that it is made of.

    Parameters
    ----------
    k : int
        Coupons, or batches, or partitions drawn one by one; m in the paper.
    excess : float
        Not negative, epsilon in the paper; c - 1 in eq. (22).

    Returns
    -------
    float
        At most 1.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    TypeError
        If a parameter is of a wrong type.

    Notes
    -----
    One of k coupons is missing after t - 1 draws with a probability of at most
    ``k (1 - 1/k)**(t - 1)``, which is ``k exp(-t / k)`` or less for t >= k log k from k = 8 on;
    from 3 to 7 that is so of the probability itself.
    """
    k, excess = at_least("k", k, 1), check_real("excess", excess)
    if k == 2:
        draws = math.ceil((1 + min(excess, 1e4)) * 2 * math.log(2))
        return min(1.0, 2.0 ** (2 - draws))
    return math.exp(-excess * math.log(k))


def coverage_probability(loads: ArrayLike, k: int) -> float:
    """Probability that random choices of workers cover all of k partitions.

    With which the assignments of `CouponCollector` and `RandomAssignment` exist, over their seeds:
    worker i picks ``loads[i]`` of k partitions, all sets of them equally likely. For batches,
    ``coverage_probability([1] * n, b)`` with b = ceil(k / r).

    Parameters
    ----------
    loads : (n,) array of int
        Partitions of each worker, 0 .. k.
    k : int
        Partitions.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If a parameter is out of range.
    TypeError
        If a parameter is of a wrong type.

    Notes
    -----
    A recursion over the workers for the number of partitions that are still missing, without a
    subtraction, O(k load) each.
    """
    each = np.asarray(loads)
    k = at_least("k", k, 1)
    if each.ndim != 1 or not each.size or each.dtype.kind not in "iu":
        raise ValueError(f"loads must be integers, one for each worker, not {loads!r}")
    if each.min() < 0 or each.max() > k:
        raise ValueError(f"loads must be in 0 .. k = {k}, not {each.min()} .. {each.max()}")
    if k * (int(each.max()) + 1) > _ENTRIES:
        raise ValueError(f"k = {k} is too large for loads up to {each.max()}: simulate")
    lacking = np.zeros(k + 1)  # by how many are missing
    lacking[k] = 1
    for load, count in zip(*np.unique(each, return_counts=True), strict=True):
        found = np.arange(load + 1)  # of those that were missing
        before = np.arange(k + 1)[:, np.newaxis] + found
        chance = _found_probability(before, found, k, int(load))
        for _ in range(count):
            lacking = (np.append(lacking, np.zeros(load))[before] * chance).sum(axis=1)
    return min(float(lacking[0]), 1.0)


def _found_probability(
    missing: NDArray[np.int64], found: NDArray[np.int64], k: int, load: int
) -> NDArray[np.float64]:
    """Probability that of `load` of k partitions so many are among those missing."""
    log_factorial = scipy("special").gammaln(np.arange(1.0, k + 2))

    def log_binomial(n: NDArray[np.int64], r: NDArray[np.int64]) -> NDArray[np.float64]:
        possible = (n <= k) & (r >= 0) & (r <= n)
        n, r = np.where(possible, n, 0), np.where(possible, r, 0)
        logs = log_factorial[n] - log_factorial[r] - log_factorial[n - r]
        return np.where(possible, logs, -np.inf)

    logs = log_binomial(missing, found) + log_binomial(k - missing, load - found)
    logs -= log_binomial(np.array([k]), np.array([load]))
    chance = np.exp(logs)
    # Rounded logarithms of large factorials: what all share of their errors is taken away again.
    whole = np.bincount(missing.ravel(), chance.ravel())
    divided: NDArray[np.float64] = chance / np.where(whole > 0, whole, 1.0)[missing]
    return divided


def _check_load(k: int, load: int) -> tuple[int, int]:
    k = at_least("k", k, 1)
    load = check_integer("load", load)
    if not 1 <= load <= k:
        raise ValueError(f"load must be in 1 .. k = {k}, not {load}")
    return k, load


# ----------------------------------------------------------------------------- CADA and G-CADA


def fastest_of_groups_mean(groups: float, size: int, delays: Delays) -> float:
    """Mean time until the fastest worker of every group is done.

    Zhu et al., eq. (14), the mean of the largest of `groups` minima; with groups of one the mean
    of the largest delay, eqs. (11) and (13). For exponential delays of mean eta it is
    eta H_groups / size, otherwise computed by adaptive quadrature.

    Parameters
    ----------
    groups : float
        Selected groups, positive; eqs. (13) and (16) put in a mean, which need not be whole.
    size : int
        Workers in a group, M_G.
    delays : Delays
        Time of each worker for its one computation.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    ValueError
        If a parameter is out of range, workers' delays are not independent or not alike, or the
        mean does not exist.
    TypeError
        If a parameter is of a wrong type.
    """
    groups = check_real("groups", groups, positive=True)
    size = at_least("size", size, 1)
    if isinstance(delays, Heterogeneous):
        raise ValueError("workers must be alike, not Heterogeneous")
    [work] = _works(delays, [1], 0.0)
    if isinstance(delays, Exponential | ShiftedExponential):
        shift = float(delays.quantile(0))
        harmonic = float(scipy("special").digamma(groups + 1)) + np.euler_gamma
        return shift + (delays.mean() - shift) / size * harmonic

    def late(t: float) -> float:
        waiting = float(work.survival(np.asarray(t))) ** size
        return -math.expm1(groups * math.log1p(-waiting)) if waiting < 1 else 1.0

    return _mean(late, [work], np.ones(1), _tail_index(delays, [1] * size, 1))


def selected_mean(
    smoothness: ArrayLike,
    c: float,
    max_age: int,
    scale: float | None = None,
    *,
    oldest: int | None = None,
) -> float:
    """Bound on the mean number of workers, or groups, that CADA selects in a round.

    Zhu et al., eq. (12) for workers and (15) for groups, with c_d = c for all d. One of smoothness
    L_m with L_m^2 <= c / (d scale^2), d <= D, is selected in every (d + 1)-th round at most, unless
    its gradient is too old before.

    Parameters
    ----------
    smoothness : (M,) array
        Smoothness constants L_m of the workers' or groups' functions, positive.
    c : float
        Constant of the rule of selection, eqs. (7) and (9), positive.
    max_age : int
        D, 1 at least.
    scale : float, optional
        By default M or G, the length of `smoothness`, as the paper has it. The rule as it stands in
        eq. (7) warrants 1, which gives the smaller bound.
    oldest : int, optional
        Age at which one is selected in any case, D or D + 1. By default D, as in Algorithm 1 and
        `fastgc.optimizers.CADA`. The paper's equations are those for D + 1, and smaller: Algorithm
        1 may exceed them by a factor of (D + 1) / D.

    Returns
    -------
    float
        At most M. Bounds the mean over many rounds; in K rounds, M more may be selected in all.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    TypeError
        If a parameter is of a wrong type.

    Notes
    -----
    The paper sets the largest threshold, that for d = 0, to 0; it must be infinite, or those that
    are the least smooth and selected in every round would not be counted at all.
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
    """What a round of distributed Adam, CADA or G-CADA costs.

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
    """Loads per round where all of each selected group compute and the fastest one sends.

    Zhu et al., eqs. (17) to (22): distributed Adam selects all M workers in groups of one, CADA
    as many as `selected_mean` says in groups of one, G-CADA groups.

    Parameters
    ----------
    selected : float
        Groups selected in a round, on average; not negative.
    size : int
        Workers in a group, M_G.
    batch : int
        Samples in a mini-batch.

    Returns
    -------
    AdaptiveLoads

    Raises
    ------
    ValueError
        If a parameter is out of range.
    TypeError
        If a parameter is of a wrong type.
    """
    selected = check_real("selected", selected)
    size, batch = at_least("size", size, 1), at_least("batch", batch, 1)
    return AdaptiveLoads(selected * (size + 1), batch * selected * size)


# ---------------------------------------------------------------------------- what all stand on


class _Work(NamedTuple):
    """What a worker does in its time: `load` computations, or as many as are said."""

    delays: Distribution
    load: int
    cost: float

    def cdf(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.delays.cdf(self._delay(t, self.load))

    def survival(
        self, t: NDArray[np.float64], done: int | NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        return self.delays.survival(self._delay(t, self.load if done is None else done))

    def _delay(self, t: NDArray[np.float64], done: int | NDArray[np.int64]) -> NDArray[np.float64]:
        """The longest delay with which as many are done by time t."""
        if self.delays.per == "round":
            return t - self.cost * done
        return t / done - self.cost

    def seconds(self, delays: ArrayLike, done: float) -> NDArray[np.float64]:
        """How long so many computations take with these delays."""
        return _seconds(self.delays, np.asarray(delays), done, self.cost)


_Seconds = TypeVar("_Seconds", float, NDArray[np.float64])


def _seconds(model: Delays, delay: _Seconds, done: float, cost: float) -> _Seconds:
    return delay + cost * done if model.per == "round" else (delay + cost) * done


def _works(delays: Delays, loads: Sequence[int], cost: float) -> list[_Work]:
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
        works.append(_Work(model, load, cost))
    return works


def _each(probability: Callable[[float], float], t: ArrayLike) -> NDArray[np.float64]:
    times = check_reals("t", t)
    values = [math.nan if math.isnan(x) else probability(x) for x in times.ravel().tolist()]
    return np.array(values).reshape(times.shape)


def _tail_index(delays: Delays, counts: Sequence[int], needed: int) -> float:
    """Exponent of the tail of the time until `needed` of `counts` have come; at most 1 is refused.

    Where tails of workers are unknown, the least that it can be.
    """
    told = delays.tail_indices(len(counts))
    unknown = np.isnan(told)
    least, most = (_least_sum(np.where(unknown, x, told), counts, needed) for x in (0.0, math.inf))
    if most <= 1:
        raise ValueError(
            f"the mean does not exist: the time until {needed} of {sum(counts)} have come has a "
            f"tail t^-{most:g}, and the exponent must be above 1; need fewer, so that more "
            "workers may be late"
        )
    if least <= 1:
        raise ValueError(
            f"whether the mean exists is unknown under {delays!r}: tail_indices does not say how "
            "heavy its tails are"
        )
    return least


def _least_sum(exponents: NDArray[np.float64], counts: Sequence[int], needed: int) -> float:
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


def _mean(
    late: Callable[[float], float],
    works: Iterable[_Work],
    fractions: NDArray[np.float64],
    tail: float,
) -> float:
    """Integral over t of the probability to be late, where messages come at `fractions` of works.

    It has kinks, or jumps, where those of the models' laws come to lie.
    """
    return _mean_of_many(lambda t: _each(late, t), works, fractions, tail)


def _mean_of_many(
    late: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    works: Iterable[_Work],
    fractions: NDArray[np.float64],
    tail: float,
) -> float:
    """`_mean` of a probability that is given for many times at once."""
    works = list(works)
    knots = [
        work.seconds(work.delays.knots(), work.load * fraction)
        for work in works
        for fraction in fractions.tolist()
    ]
    kinks = np.unique(np.concatenate(knots))
    if all(isinstance(work.delays, Empirical) for work in works):
        # between jumps nothing happens, at them rounding would decide
        return float(kinks[0] + np.diff(kinks) @ late((kinks[:-1] + kinks[1:]) / 2))
    # from the last kink before which nothing can have happened to the first after all has
    at = kinks.tolist()
    certain = bisect_left(at, True, key=lambda t: float(late(np.array([t]))[0]) < 1 - _NOISE)
    over = bisect_left(at, True, key=lambda t: float(late(np.array([t]))[0]) < _NEVER)
    return mean_of_late(late, kinks[max(certain - 1, 0) : over + 1], tail)
