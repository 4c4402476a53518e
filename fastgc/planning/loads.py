"""Loads for workers that differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Bools, Floats, Ints, at_least, check_reals
from .._base.extras import scipy
from ..coding.arguments import check_between, check_stragglers
from ..delays import Delays, Heterogeneous, ShiftedExponential
from ..delays.distributions import check_delays
from .simulation import received_mean

__all__ = [
    "Allocation",
    "CoverageBounds",
    "coverage_bounds",
    "equal_time_loads",
    "generalised_bcc",
    "optimal_loads",
]

# `_least_mean`: loads up to `_EACH` are tried one by one, larger ones in about `_LOADS` intervals;
# Chernoff's bound takes the best of `_EXPONENTS` exponents; time is cut into `_STEPS` steps. Ten
# times as many raise the bound by 0.03 % (exponents) and 0.2 % (steps) at most, in two examples.
_EACH, _LOADS, _EXPONENTS, _STEPS = 64, 200, 24, 256

_MOST = 2**48  # partitions shared out, at most; floats still resolve fractions of a partition


def equal_time_loads(times: ArrayLike, k: int, stragglers: int) -> Ints:
    """Loads with which all workers are expected to end at the same time.

    These are the loads of Charalambides et al., section VI, for any number of kinds of workers:
    ``t_i |J_i|`` is the same for all, and the loads add up to (s + 1) k. No worker gets more than
    k; the others get the excess in proportion. Without stragglers this is the load balancing of Li
    et al., section IV-C, r_i = mu_i / sum(mu) m, with times 1 / mu_i and k = m.

    `BinaryCode` with ``speeds=1 / times, assignment="classes"`` has about these loads: its classes
    end at the same time, as far as whole workers and partitions allow. There may be no code with
    exactly these loads. For example, let n = 12, k = 9, s = 3, and six workers be three times as
    fast as the others. The loads are then 5 and 1, but these workers do not split into four classes
    of 9 partitions each.

    Parameters
    ----------
    times : (n,) array
        Mean time of each worker for one partition, t_i, positive, in any unit.
    k : int
        Partitions.
    stragglers : int
        Stragglers to tolerate, s, below n.

    Returns
    -------
    (n,) int64 array
        Whole numbers by largest remainders. A very slow worker may get 0.

    Raises
    ------
    ValueError, TypeError
        If a parameter is out of range, or of a wrong type.
    """
    t = _positive("times", times)
    k = at_least("k", k, 1)
    s = check_stragglers(stragglers, t.size)
    with np.errstate(under="ignore"):
        return _apportion((s + 1) * k, t.size, lambda some: t[some].min() / t[some], k)


class Allocation(NamedTuple):
    """Loads for workers that differ.

    Attributes
    ----------
    loads : (n,) int64 array
        Partitions of each worker, at least 1.
    real_loads : (n,) float64 array
        Loads before rounding.
    time : float
        t*, the seconds after which the mean number of partial gradients returned is the number
        needed; Inf if all assigned partial gradients are needed.
    returned : float
        Fraction of the assigned partial gradients that is needed.
    """

    loads: Ints
    real_loads: Floats
    time: float
    returned: float


def optimal_loads(
    needed: int, shifts: ArrayLike, rates: ArrayLike, limit: int | None = None
) -> Allocation:
    """Loads that bring `needed` partial gradients, repetitions counted, the soonest.

    P2 of Li et al., eq. (19), in the limit of many workers, which they take from Reisizadeh,
    Prakash, Pedarsani and Avestimehr (2017). Worker i gets r_i = t* / lambda_i partitions. Of all
    loads, this one returns the most partial gradients by time t* on average, mu_i / (1 + mu_i
    lambda_i) per second. By t*, all workers together have returned `needed` on average.

    Parameters
    ----------
    needed : int
        Partial gradients, s in the paper.
    shifts, rates : (n,) arrays
        a_i and mu_i of the shifted exponential times of a computation, eq. (15); positive.
    limit : int, optional
        The most partitions that a worker may hold. Workers that would get more get `limit`, and t*
        is later.

    Raises
    ------
    ValueError, TypeError
        If a parameter is out of range or has a wrong type, `needed` is more than n `limit`, or a
        load exceeds 2^48.

    Notes
    -----
    lambda_i is the positive root of e^(mu lambda) = e^(a mu) (mu lambda + 1). So y = mu lambda
    solves y = c + log(1 + y) with c = a mu. Newton's method begins at c + sqrt(2 c), which is above
    the root of the convex function y - c - log(1 + y). The form by Lambert's function, ``-1 -
    W_-1(-e^(-c - 1))``, underflows from c = 744 on.
    """
    needed = at_least("needed", needed, 1)
    a, mu = check_reals("shifts", shifts), _positive("rates", rates)
    if a.shape != mu.shape:
        raise ValueError(f"one shift and one rate a worker, not shapes {a.shape} and {mu.shape}")
    if not np.all((a > 0) & (a < math.inf)):
        raise ValueError(
            f"shifts must be positive and finite, not {shifts!r}: without a shift there is no "
            "optimum, since larger loads always bring more, sooner"
        )
    _check_countable(needed)
    if limit is not None:
        limit = min(at_least("limit", limit, 1), _MOST)
    n = a.size
    with np.errstate(all="ignore"):  # Inf and NaN are refused below
        c = a * mu
        y = _root(c)
        slope = mu / y  # load per second
        rate = mu / (1 + y)  # returned per second
        time = float(needed / rate.sum())
        most = (time * slope).max()
    if not most < math.inf:
        raise ValueError(
            f"shifts * rates, from {c.min():g} to {c.max():g}, and rates, from "
            f"{mu.min():g} to {mu.max():g}, are too small or too large for floats"
        )
    if limit is not None and most > limit:
        _check_held(needed, n, limit)
        time = _limited_time(needed, a, mu, slope, limit, time)
    real = np.minimum(time * slope, math.inf if limit is None else limit)
    _check_countable(float(real.max()))  # the sum is then finite
    loads = np.maximum(_apportion(math.ceil(real.sum()), n, real.__getitem__, limit), 1)
    return Allocation(loads, real, time, needed / float(real.sum()))


def generalised_bcc(
    k: int, delays: Heterogeneous, needed: int | None = None, limit: int | None = None
) -> Allocation:
    """Loads for the generalised coupon collector, `CouponCollector` with ``loads=``.

    Li et al., section IV-C: the loads that bring k log k partial gradients the soonest. About that
    many random ones cover all k partitions. Raises as `optimal_loads`.

    Parameters
    ----------
    k : int
        Partitions, m in the paper.
    delays : Heterogeneous
        One `ShiftedExponential` model for each worker, with times per computation.
    needed : int, optional
        Partial gradients to wait for. Default: floor(k log k), or k if that is more.
    limit : int, optional
        The most partitions that a worker may hold, up to k. Default: k.
    """
    k = at_least("k", k, 1)
    _check_countable(k)
    shifts, rates = _parameters(delays)
    limit = k if limit is None else check_between("limit", limit, 1, k, "k")
    if needed is None:
        needed = max(k, math.floor(k * math.log(k)))
    return optimal_loads(needed, shifts, rates, limit)


class CoverageBounds(NamedTuple):
    """Bounds on the least mean time until all partitions are covered, in seconds."""

    lower: float
    upper: float


def coverage_bounds(k: int, delays: Heterogeneous) -> CoverageBounds:
    """Bounds on the mean time to have all partial gradients, for the best placement of the data.

    Upper bound: Li et al., Theorem 2, eq. (22). It is the mean time until floor(c k log k) partial
    gradients have come, plus 1 in the unit of the times, with c = 2 + log(a + H_n / mu) / log k,
    a = max a_i and mu = min mu_i.

    Lower bound: no loads return k partial gradients sooner. For each moment t and any s, Chernoff's
    bound is ``P(k by t) <= e^(-s k) prod_i max_l (1 + P(l done by t) (e^(s l) - 1))``. The paper's
    eq. (21), ``received_mean(optimal_loads(k, ...).loads, delays, k)``, is a lower bound only in
    the limit of many workers (Remark 5).

    Raises as `optimal_loads`, and ValueError if the upper bound takes more partitions than workers
    hold.

    Parameters
    ----------
    k : int
        Partitions, m in the paper; at least 2.
    delays
        As in `generalised_bcc`.
    """
    k = at_least("k", k, 2)
    _check_countable(k)
    shifts, rates = _parameters(delays)
    harmonic = math.fsum(1 / i for i in range(1, shifts.size + 1))
    c = 2 + math.log(shifts.max() + harmonic / rates.min()) / math.log(k)
    needed = max(k, math.floor(c * k * math.log(k)))
    upper = received_mean(optimal_loads(needed, shifts, rates, k).loads, delays, needed)
    return CoverageBounds(_least_mean(k, shifts, rates), upper + 1)


def _least_mean(k: int, shifts: Floats, rates: Floats) -> float:
    """Return a lower bound on the mean time until k partial gradients have come, for any loads."""
    kinds, counts = np.unique(np.stack([shifts, rates]), axis=1, return_counts=True)
    # Intervals of loads from `low` to `high`: `low` is done soonest, `high` returns the most, so
    # together they bound every load between.
    low = np.unique(np.floor(np.geomspace(1, k, _LOADS)).astype(np.int64))
    low = np.union1d(low, np.arange(1, min(k, _EACH) + 1))
    high = np.append(low[1:] - 1, k)
    s = np.geomspace(0.5, 100, _EXPONENTS) / k
    grown = np.expm1(s[:, None] * high)

    def enough(t: float) -> float:
        """Upper bound on the probability that k have come by time t."""
        logs = -s * k
        mean = 0.0
        for (shift, rate), count in zip(kinds.T.tolist(), counts.tolist(), strict=True):
            done = -np.expm1(-rate * np.maximum(t / low - shift, 0))
            logs = logs + count * np.log1p((done * grown).max(axis=1))
            mean += count * float((high * done).max())
        return min(1.0, mean / k, math.exp(min(0.0, float(logs.min()))))

    end = float(shifts.min() + 1 / rates.max()) / shifts.size
    while enough(end) < 1:
        end *= 2
    before = 0.0
    for _ in range(20):  # bisect for the time from which the bound on the probability is 1
        middle = (before + end) / 2
        before, end = (before, middle) if enough(middle) == 1 else (middle, end)
    # P(fewer than k by t) falls with t, so in each step it is at least its value at the end.
    times = np.linspace(0, end, _STEPS + 1)[1:]
    return float(sum(1 - enough(t) for t in times.tolist())) * end / _STEPS


def _parameters(delays: Delays) -> tuple[Floats, Floats]:
    """Return the shifts and rates of all workers."""
    check_delays(delays)
    models = delays.models if isinstance(delays, Heterogeneous) else ()
    fit = [m for m in models if isinstance(m, ShiftedExponential) and m.per == "computation"]
    if not fit or len(fit) < len(models):
        raise ValueError(
            "loads are optimised for Heterogeneous delays of ShiftedExponential models per "
            f"computation, not {delays!r}"
        )
    return np.array([m.shift for m in fit]), np.array([m.rate for m in fit])


def _root(c: Floats) -> Floats:
    """Return the positive root y of y = c + log(1 + y)."""
    y = c + np.sqrt(2 * c)
    for _ in range(100):  # monotone and quadratic: about 6 steps
        lower = y - (y - c - np.log1p(y)) * (1 + y) / y
        if not np.any(lower < y):
            break
        y = np.minimum(lower, y)
    return y


def _limited_time(
    needed: int, shifts: Floats, rates: Floats, slope: Floats, limit: int, least: float
) -> float:
    """Return t* for loads of at most `limit`; it is at least `least`, the t* without a limit."""
    if needed == shifts.size * limit:
        return math.inf

    def surplus(t: float) -> float:
        loads = np.minimum(t * slope, limit)
        done = -np.expm1(-rates * np.maximum(t / loads - shifts, 0))
        return float(loads @ done) - needed

    end = 2 * least
    while surplus(end) < 0:
        end *= 2
    return float(scipy("optimize").brentq(surplus, least, end, xtol=1e-300, rtol=1e-14))


def _apportion(
    total: int, n: int, weights: Callable[[Bools], Floats], limit: int | None = None
) -> Ints:
    """Share out `total` in whole numbers by n weights, up to `limit` each, by largest remainders.

    ``weights(some)`` returns the weights of some workers. It may scale them anew, because relative
    to the largest weight of all workers they may be too small for floats.
    """
    _check_countable(total)
    capped = np.zeros(n, dtype=bool)
    rest = weights(~capped)
    ideal = total * rest / rest.sum()
    while limit is not None and (ideal > limit).any():
        capped |= ideal > limit
        rest = weights(~capped)
        ideal[capped] = limit
        ideal[~capped] = (total - limit * capped.sum()) * rest / rest.sum()
    loads: Ints = np.floor(ideal).astype(np.int64)
    loads[np.argsort(loads - ideal, kind="stable")[: total - loads.sum()]] += 1
    return loads


def _check_held(needed: int, n: int, limit: int) -> None:
    if needed > n * limit:
        raise ValueError(
            f"{n} workers of at most {limit} partitions hold {n * limit}, but needed={needed}"
        )


def _check_countable(total: float) -> None:
    if total > _MOST:
        raise ValueError(
            f"at most 2^48 = {_MOST} partitions can be shared out, not 10^{math.log10(total):.2f}"
        )


def _positive(what: str, numbers: ArrayLike) -> Floats:
    array = check_reals(what, numbers)
    if array.ndim != 1 or not array.size or not np.all((array > 0) & (array < math.inf)):
        raise ValueError(f"{what} must be positive and finite, one a worker, not {numbers!r}")
    return array
