"""Ye and Abbe 2018: time of a round against the load and the length of messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .._base.arrays import Floats
from .._base.extras import scipy
from ..codes import YeAbbe
from ..delays import ShiftedExponential
from ..planning.simulation import simulate
from ..plotting.panels import Panel
from .figure import ROUNDS, Part, Row, Track, compared, figure

N = 8

# Shifts in seconds, and rates, of computing one partial gradient and sending a full message.
COMPUTE, COMPUTE_RATE = 1.6, 0.8
SEND, SEND_RATE = 6.0, 0.1

# Seconds of a full message on the master's single link. N messages take as long as one message on a
# worker's own link takes on average. Chosen here: the paper has no such link.
LINK = (SEND + 1 / SEND_RATE) / N

# Mean times in the paper's text, by (d, m): uncoded, best of full messages, best of all.
PRINTED = {(1, 1): 36.1138, (8, 1): 24.1063, (4, 3): 21.3697}

ENOUGH = 100_000  # rounds of a point
REGRET = 0.01  # relative excess allowed of the best shape's time over the least simulated mean

Times = dict[tuple[int, int], float]  # by load d and pieces m


@dataclass(frozen=True)
class _ComputeThenSend:
    """A worker's time: `load` times that of a partition, plus an m-th of that of a full message."""

    load: int
    m: int

    def draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Floats:
        compute = COMPUTE + rng.exponential(1 / COMPUTE_RATE, (rounds, workers))
        send = SEND + rng.exponential(1 / SEND_RATE, (rounds, workers))
        return np.asarray(self.load * compute + send / self.m)

    def sample(self, round: int, workers: int, seed: int) -> Floats:
        return self.draw(np.random.default_rng([seed, round]), 1, workers).ravel()

    def tail_indices(self, workers: int) -> Floats:
        return np.full(workers, math.inf)

    def least(self) -> float:
        return self.load * COMPUTE + SEND / self.m

    def survival(self, t: Floats) -> Floats:
        """Return the probability of more than t seconds beyond the least time."""
        a, b = COMPUTE_RATE / self.load, SEND_RATE * self.m
        if math.isclose(a, b):
            return np.asarray(np.exp(-a * t) * (1 + a * t))
        return np.asarray((b * np.exp(-a * t) - a * np.exp(-b * t)) / (b - a))


SHAPES = [(d, m) for m in range(1, N + 1) for d in range(m, N + 1)]  # all codes of N workers


def _code(d: int, m: int) -> YeAbbe:
    return YeAbbe(N, stragglers=d - m, reduce=m)


@figure("ye-abbe-table", "Ye and Abbe: time of a round against load and length of messages")
def table(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """Mean time of a round, if every worker has its own link.

    Computing a partial gradient takes a worker a shifted exponential time, the same throughout the
    round. Sending a full message takes another. A worker needs d times the former plus an m-th of
    the latter. A round ends with the first n - s workers, s = d - m. Simulated times are compared
    with the mean of this order statistic.
    """
    closed, ours = {}, {}
    for d, m in track(SHAPES):
        delays = _ComputeThenSend(d, m)
        closed[d, m] = _order_statistic_mean(delays)
        ours[d, m] = simulate(_code(d, m), delays, rounds=min(rounds, ENOUGH), seed=seed).mean
    note = "of the paper's model; the rest of its printed table was not at hand"
    panel = f"n = {N}, a link for each worker"
    yield from _parts("ye2018 table", panel, ours, closed, note, PRINTED)


@figure("ye-abbe-link", "Ye and Abbe's code where the master has one link")
def link(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """Mean time of a round, if messages pass a single link of the master, one after another.

    Computing takes the same times as in `table`. A message takes an m-th of `LINK` seconds. This
    number is not the paper's: it was chosen so that N full messages take as long as one message
    takes in the paper on average.
    """
    delays = ShiftedExponential(shift=COMPUTE, rate=COMPUTE_RATE, per="computation")
    closed, ours = {}, {}
    for d, m in track(SHAPES):
        closed[d, m] = _queue_mean(d, m)
        run = simulate(_code(d, m), delays, receive=LINK / m, rounds=min(rounds, ENOUGH), seed=seed)
        ours[d, m] = run.mean
    note = f"not in the paper: {LINK:g} s a message were chosen"
    panel = f"n = {N}, one link, {LINK:g} s for a full message"
    yield from _parts("ye2018 link", panel, ours, closed, note)


def _parts(
    source: str, panel: str, ours: Times, closed: Times, note: str, printed: Times | None = None
) -> Iterator[Part]:
    """Yield times of all shapes, what the best saves, and the cost of choosing by the formula."""
    for (d, m), exact in closed.items():
        what = f"time of a round (s), d = {d}, m = {m}"
        yield Row(source, what, ours[d, m], (printed or {}).get((d, m)), exact, note)
    best, fastest = min(ours, key=ours.__getitem__), min(closed, key=closed.__getitem__)
    whole = [(d, 1) for d in range(1, N + 1)]
    for what, shapes in (("uncoded", whole[:1]), ("full messages (m = 1) of any load", whole)):
        saved = 1 - ours[best] / min(ours[each] for each in shapes)
        exact = 1 - closed[fastest] / min(closed[each] for each in shapes)
        yield Row(source, f"less than {what}, at best", saved, closed=exact, note=note)
    d, m = fastest
    yield Row(
        source,
        f"time of d = {d}, m = {m} over the least",
        ours[fastest] / ours[best],
        closed=1.0,
        note="the least by the formula, over the least simulated, which here is that of "
        f"d = {best[0]}, m = {best[1]}: which of two near-ties comes out least is noise",
        tolerance=REGRET,
    )
    lines = []
    for m in range(1, N + 1):
        loads = range(m, N + 1)
        formula, found = ([times[d, m] for d in loads] for times in (closed, ours))
        lines += compared(f"m = {m}", loads, formula, found)
    yield Panel(f"{panel} (lines: formula, points: simulated)", "load d", "time (s)", lines)


def _mean_beyond(
    late: Callable[[Floats], Floats], start: float, bend: float, decay: float
) -> float:
    """Return the mean of a time of at least `start` with survival function `late`.

    `late` is smooth, except at the first N multiples of `bend` after `start`. After these it falls
    by a factor of e or more in every `decay` seconds.
    """
    nodes, weights = np.polynomial.legendre.leggauss(20)
    steps = np.repeat([bend, decay], [N, 40])
    ends = start + np.cumsum(steps)
    t = (ends - steps / 2)[:, None] + steps[:, None] / 2 * nodes
    return start + float((late(t.ravel()).reshape(t.shape) * weights).sum(axis=1) @ steps / 2)


def _order_statistic_mean(delays: _ComputeThenSend) -> float:
    f = N - (delays.load - delays.m)
    betainc = scipy("special").betainc

    def late(t: Floats) -> Floats:
        """Return the probability that fewer than f of N messages have come."""
        return np.asarray(betainc(N - f + 1, f, delays.survival(t - delays.least())))

    slower = max(delays.load / COMPUTE_RATE, 1 / (SEND_RATE * delays.m))
    return _mean_beyond(late, delays.least(), delays.load / COMPUTE_RATE, slower)


def _queue_mean(d: int, m: int) -> float:
    """Return the mean time until f messages are through a link, one at a time, LINK / m each.

    They are through by time t if, for each i up to f, the i-th message has come by t - (f - i + 1)
    LINK / m. So at least i of N independent times must be at most the i-th of f bounds, for each i.
    `_probability_of_order` counts the times between successive bounds.
    """
    f, each = N - (d - m), LINK / m

    def late(t: Floats) -> Floats:
        bounds = t - each * np.arange(f, 0, -1)[:, None]
        there = -np.expm1(-COMPUTE_RATE / d * np.maximum(bounds - d * COMPUTE, 0.0))
        return 1 - _probability_of_order(there)

    return _mean_beyond(late, d * COMPUTE + each, each, d / COMPUTE_RATE)


def _probability_of_order(there: Floats) -> Floats:
    """Probability that for each i at least i of N messages have come by the i-th bound.

    A message has come by the i-th bound with probability ``there[i - 1]``. Columns are cases.
    """
    counted = np.zeros((N + 1, there.shape[1]))  # probability of each number of messages come
    counted[0] = 1.0
    before = np.zeros(there.shape[1])
    for i, now in enumerate(there, 1):
        with np.errstate(invalid="ignore"):
            come = np.where(before < 1, (now - before) / (1 - before), 0.0)
        after = np.zeros_like(counted)
        for c in range(N + 1):
            for more in range(N - c + 1):
                ways = math.comb(N - c, more)
                after[c + more] += counted[c] * ways * come**more * (1 - come) ** (N - c - more)
        after[:i] = 0.0
        counted, before = after, now
    return np.asarray(counted.sum(axis=0))
