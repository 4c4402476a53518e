"""The number of workers to wait for (Halbawi, Azizan-Ruhi, Salehi, Hassibi 2017, section 5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from .._base.arrays import Floats, check_integer, check_real, check_word
from .._base.extras import scipy
from ..coding.arguments import check_between, check_sizes
from ..delays import Delays, Pareto
from ..delays.distributions import check_delays
from ..delays.interface import tail_bounds

__all__ = [
    "DecodeCost",
    "Optimum",
    "limit_time",
    "optimal_fraction",
    "optimal_threshold",
    "round_time",
]

_GRID = 1001  # fractions on the grid from which the search for the best one begins

# For each order: products for f of n messages, and their leading term for large n.
_PRODUCTS: dict[str, tuple[Callable[[float, float], float], Callable[[float, float], float]]] = {
    "f2": (lambda f, n: f * (f - 1), lambda f, n: f * f),
    "f3": (lambda f, n: f**3, lambda f, n: f**3),
    "fs": (lambda f, n: f * (n - f), lambda f, n: f * (n - f)),
}


@dataclass(frozen=True)
class DecodeCost:
    """The time in which the master computes a decoding vector for f of n messages.

    Parameters
    ----------
    seconds : float
        Seconds per product, c_m, not negative.
    order : "f2", "f3" or "fs"
        The number of products. "f2": f (f - 1), Algorithm 3 of Halbawi et al. "f3": f^3, a solve.
        "fs": f (n - f), the locator form.

    Raises
    ------
    ValueError, TypeError
        If the time is negative or not finite, the order unknown, or a type wrong.

    Examples
    --------
    >>> from fastgc.planning import DecodeCost
    >>> DecodeCost(1e-9, "f2")(11, 20)
    1.1e-07
    """

    seconds: float
    order: Literal["f2", "f3", "fs"] = "f2"

    def __post_init__(self) -> None:
        check_real("seconds", self.seconds)
        check_word("order", self.order, *_PRODUCTS)

    def __call__(self, f: int, n: int) -> float:
        """Return the seconds for f of n messages."""
        return self.seconds * _PRODUCTS[self.order][0](f, n)

    def limit(self, alpha: float, n: int) -> float:
        """Return the leading term for large n of f = (1 - alpha) n messages, as in eq. (20)."""
        alpha, n = check_real("alpha", alpha), check_integer("n", n)
        return self.seconds * _PRODUCTS[self.order][1]((1 - alpha) * n, n)


def round_time(
    f: int,
    n: int,
    delays: Delays,
    cost: float,
    k: int | None = None,
    decode: Callable[[int, int], float] | None = None,
) -> float:
    """Mean seconds of a round that waits for f of n workers (Halbawi et al., equation 17).

    It is E[T_delay^(f)] + cost w + decode(f, n), with the load w = ceil(k (n - f + 1) / n) that a
    code with this recovery threshold needs. If delays are per computation, the first term is
    w E[T_delay^(f)].

    Parameters
    ----------
    f, n : int
        1 <= f <= n.
    delays : Delays
    cost : float
        Seconds per partition, c_g N / k.
    k : int, optional
        Partitions, n by default.
    decode : callable, optional
        ``decode(f, n)`` returns the seconds of decoding; for example, a `DecodeCost`. Default: 0,
        because decoding vectors are computed offline.

    Raises
    ------
    ValueError, TypeError
        If a parameter is out of range or has a wrong type, or if the mean does not exist.
    """
    n, k = check_sizes(n, k)
    f = check_between("f", f, 1, n, "n")
    check_delays(delays)
    cost = check_real("cost", cost)
    load = _load(f, n, k)
    late = delays.order_statistic_mean(f, n)
    if delays.per == "computation":
        late *= load
    decoding = 0.0 if decode is None else check_real(f"decode({f}, {n})", decode(f, n))
    return late + cost * load + decoding


class Optimum(NamedTuple):
    """The best number of workers to wait for.

    Attributes
    ----------
    f : int
        Recovery threshold.
    load : int
        Partitions per worker, w.
    stragglers : int
        n - f.
    time : float
        Mean seconds of a round.
    times : (n,) float64 array
        The times of all thresholds 1 .. n: Inf if the mean does not exist, NaN if the load exceeds
        the limit or it is unknown whether the mean exists.
    """

    f: int
    load: int
    stragglers: int
    time: float
    times: Floats


def optimal_threshold(
    n: int,
    delays: Delays,
    cost: float,
    k: int | None = None,
    decode: Callable[[int, int], float] | None = None,
    max_load: int | None = None,
) -> Optimum:
    """Return the recovery threshold with the least mean time of a round.

    Halbawi et al., section 5. Raises as `round_time`, and ValueError if no threshold respects
    `max_load`, or no mean exists.

    Parameters
    ----------
    n : int
        Workers.
    delays, cost, k, decode
        As in `round_time`.
    max_load : int, optional
        The most partitions that a worker can hold.

    Returns
    -------
    Optimum
        Of several best thresholds, the largest, which has the least load.
    """
    n, k = check_sizes(n, k)
    check_delays(delays)
    cost = check_real("cost", cost)
    loads = np.array([_load(f, n, k) for f in range(1, n + 1)])
    if max_load is not None and check_integer("max_load", max_load) < loads[-1]:
        raise ValueError(
            f"max_load must be at least {loads[-1]}, what a worker computes if all are waited for, "
            f"not {max_load}"
        )
    # The f-th delay has a mean if the n - f + 1 smallest tail exponents add up to more than 1.
    least, tails = (np.cumsum(each)[::-1] for each in tail_bounds(delays.tail_indices(n)))
    exists = least > 1
    unknown = ~exists & (tails > 1)
    if unknown.any() and not exists.any():
        raise ValueError(
            f"whether a mean exists is unknown under {delays!r}: tail_indices does not say how "
            "heavy its tails are"
        )
    if not exists.any():
        raise ValueError(
            f"no mean exists: even the tail of the first of {n} delays is as heavy as "
            f"t^-{tails[0]:g}, and the exponent must be above 1"
        )
    fits = np.ones(n, dtype=bool) if max_load is None else loads <= max_load
    times = np.where(fits & ~unknown, np.inf, np.nan)
    for f in (1 + np.flatnonzero(fits & exists)).tolist():
        times[f - 1] = round_time(f, n, delays, cost, k, decode)
    if not np.isfinite(times).any():
        raise ValueError(
            f"no mean exists with max_load={max_load}: it takes a load of {loads[exists].min()}, "
            f"with which f = {1 + np.flatnonzero(exists)[-1]} workers suffice"
        )
    f = n - int(np.nanargmin(times[::-1]))
    return Optimum(f, int(loads[f - 1]), n - f, float(times[f - 1]), times)


def limit_time(
    alpha: float, delays: Pareto, work: float, decode: DecodeCost | None = None, n: int = 0
) -> float:
    """Mean seconds of a round for n >> 1, if each worker computes a fraction `alpha` of the data.

    Halbawi et al., eq. (21), t_0 alpha^(-1/xi) + c_g N alpha; with `decode`, eq. (20). Raises as
    `round_time`, and ValueError if the time is beyond the range of floats.

    Parameters
    ----------
    alpha : float
        Fraction w / k, in (0, 1].
    delays : Pareto
        Delays per round.
    work : float
        Seconds that one worker needs for all data, c_g N.
    decode : DecodeCost, optional
        Default: decoding vectors are computed offline.
    n : int
        Workers, for `decode`.
    """
    _check_limit(delays, work, decode, n)
    _check_fraction(alpha)
    time = _limit_time(alpha, delays, work, decode, n)
    if not time < math.inf:
        raise ValueError(
            f"the time is beyond the range of floats, about {delays.scale:g} * {alpha:g}^(-1 / "
            f"{delays.shape:g}) seconds: alpha or shape must be larger"
        )
    return time


def optimal_fraction(
    delays: Pareto,
    work: float,
    decode: DecodeCost | None = None,
    n: int = 0,
    *,
    max_load: int | None = None,
    k: int | None = None,
) -> float:
    """Return the fraction of the data per worker with the least `limit_time`.

    Halbawi et al., eq. (22), (t_0 / (c_g N xi))^(xi / (1 + xi)); with `decode`, the minimum of
    eq. (20), found numerically. `max_load` bounds it by a worker's memory (section 5). Raises as
    `round_time`, and ValueError if it is best that every worker computes everything, and memory
    allows it. Delays are then long compared to the work (offline: t_0 >= c_g N xi).

    Parameters
    ----------
    delays, work, decode, n
        As in `limit_time`.
    max_load : int, optional
        The most partitions that a worker can hold, as in `optimal_threshold`.
    k : int, optional
        Number of partitions, for `max_load`; n by default.

    Returns
    -------
    float
        In (0, 1), and at most ``max_load / k``. The code has a load of ``int(alpha * k)``.

    Examples
    --------
    >>> from fastgc.delays import Pareto
    >>> from fastgc.planning import optimal_fraction
    >>> delays = Pareto(0.001, 1.1)
    >>> round(optimal_fraction(delays, 0.035), 4)
    0.1477
    >>> optimal_fraction(delays, 0.035, max_load=4, k=80)
    0.05
    """
    _check_limit(delays, work, decode, n)
    room = _room(max_load, n, k)
    # As alpha grows, decoding time grows at a rate of at most c_m n^2. So the optimum is not below
    # the optimum of a work that is larger by that rate: up to there, the time falls.
    most = 0.0 if decode is None else decode.seconds * n**2
    ratio = delays.scale / (delays.shape * (work + most)) if work + most else math.inf
    alpha = min(float(ratio ** (delays.shape / (1 + delays.shape))), room)
    if most and alpha < room:
        # Search a grid first: there may be two minima if decoding is cheap at both ends, as "fs".
        grid = np.linspace(alpha, room, _GRID).tolist()
        times = [_limit_time(a, delays, work, decode, n) for a in grid]
        at = int(np.argmin(times))
        found = scipy("optimize").minimize_scalar(
            lambda a: _limit_time(a, delays, work, decode, n),
            bounds=(grid[max(at - 1, 0)], grid[min(at + 1, _GRID - 1)]),
            method="bounded",
            options={"xatol": 1e-12},
        )
        alpha = float(found.x) if found.fun < times[-1] else room
    if not alpha < 1:
        raise ValueError(
            "no fraction below 1 is the best: every worker should compute everything; offline "
            f"decoding needs scale < work * shape = {work * delays.shape:g} (eq. 22), and scale is "
            f"{delays.scale:g}"
        )
    return alpha


def _limit_time(
    alpha: float, delays: Pareto, work: float, decode: DecodeCost | None, n: int
) -> float:
    with np.errstate(over="ignore"):
        late = delays.scale * float(np.float64(alpha) ** (-1 / np.float64(delays.shape)))
    time = late + float(work) * alpha
    return time if decode is None else time + decode.limit(alpha, n)


def _check_limit(delays: Pareto, work: float, decode: DecodeCost | None, n: int) -> None:
    check_delays(delays)
    if not isinstance(delays, Pareto) or delays.per != "round":
        raise ValueError(f"eqs. (19) to (22) hold for Pareto delays per round, not {delays!r}")
    check_real("work", work)
    if decode is not None and check_integer("n", n) < 1:
        raise ValueError(f"decoding takes n >= 1 workers, not {n}")


def _room(max_load: int | None, n: int, k: int | None) -> float:
    """Return the largest fraction of the data that a worker can hold."""
    if max_load is None:
        if k is not None:
            raise ValueError(f"k={k} is for max_load, which is not given")
        return 1.0
    max_load, n = check_integer("max_load", max_load), check_integer("n", n)
    k = n if k is None else check_integer("k", k)
    if k < 1:
        raise ValueError(f"max_load counts partitions: give k, how many there are, not {k}")
    least = _load(n, n, k) if n > 0 else 1
    if max_load < least:
        raise ValueError(f"max_load must be at least {least}, not {max_load}")
    return min(max_load / k, 1.0)


def _check_fraction(alpha: float) -> float:
    checked = check_real("alpha", alpha)
    if not 0 < checked <= 1:
        raise ValueError(f"alpha must be in (0, 1], not {alpha}")
    return checked


def _load(f: int, n: int, k: int) -> int:
    return -(-k * (n - f + 1) // n)
