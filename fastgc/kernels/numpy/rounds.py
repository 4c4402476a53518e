"""Simulated rounds: random delays of workers, and when their messages suffice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._base.arrays import Floats, Ints
from ..dispatch import own

__all__ = ["completion", "draw"]

# Rules by which messages suffice. The numbers are those of fgc_rule in csrc/fastgc.h.
BLOCKS = 0  # any `need` messages of each block
CELLS = 1  # messages of cells that weigh `total` together
TILING = 2  # intervals that, as edges between their ends, connect 0 and k
EDGES = 3  # edges of a graph whose components each have an odd cycle, or two sides of one size
SPAN = 4  # rows that span: the messages that did not come can be spared

# Numbers of `spare` that count as zero: ZERO in the orthonormal columns, SOLVED in the first, whose
# largest is 1. (As in csrc/rounds.c.)
ZERO = 1e-9
SOLVED = 1e-6


class CompletionPlan(NamedTuple):
    """The messages of a round: n workers send M messages.

    A named tuple, so that Numba takes it as an argument.

    Attributes
    ----------
    kind : int
        The rule by which messages suffice: ``BLOCKS``, ``CELLS``, ``TILING``, ``EDGES`` or
        ``SPAN``.
    first : (n + 1,) int64 array
        Worker i sends messages ``first[i] .. first[i+1] - 1``, in this order.
    share : (M,) float64 array
        Share of its worker's work after which a message is sent, in (0, 1]; ascending for each
        worker.
    loads : (n,) int64 array
        Computations of each worker.
    group : (M,) int64 array
        The block or cell of each message, or the start of its interval or edge.
    other : (M,) or (0,) int64 array
        ``TILING`` and ``EDGES``: the end of the interval or edge.
    need : (groups,) int64 array
        ``BLOCKS``: messages needed of each block; ``CELLS``: weight of each cell.
    total : int
        ``CELLS``: weight needed, each cell counted once; ``TILING``: k; ``EDGES``: vertices.
    wait : int
        All messages of so many workers suffice in any case; 0: no such limit.
    spare : (M, q + 1) or (0, 0) float64 array
        ``SPAN``: messages can be spared if, in their rows, the first column is a combination of the
        others. Over all rows the others are orthonormal, and the largest number of the first column
        is 1. C-contiguous.
    """

    kind: int
    first: Ints
    share: Floats
    loads: Ints
    group: Ints
    other: Ints
    need: Ints
    total: int
    wait: int = 0
    spare: Floats = np.empty((0, 0))

    def complete(
        self,
        delay: Floats,
        work: Floats,
        late: Floats,
        receive: float = 0.0,
        overhead: float = 0.0,
        interrupted: bool = True,
    ) -> Completion:
        """Return what ``kernels.unchecked.completion`` writes, by the backend in use."""
        out = Completion.empty(len(work))
        own(completion)(self, delay, work, late, receive, overhead, interrupted, out)
        return out


class Completion(NamedTuple):
    """How rounds went; arrays of shape (rounds,).

    Attributes
    ----------
    time : float64 array
        Seconds until the gradient is known; Inf if all messages together do not suffice.
    messages, workers, computations : int64 array
        At the time when messages suffice: the messages that have come, the workers that have sent
        any, and the computations that all workers have finished.
    """

    time: Floats
    messages: Ints
    workers: Ints
    computations: Ints

    @classmethod
    def empty(cls, rounds: int) -> Completion:
        """Return arrays with room for `rounds` rounds."""
        counts = np.empty((3, rounds), dtype=np.int64)
        return cls(np.empty(rounds), *counts)

    def part(self, lo: int, hi: int) -> Completion:
        """Return a view of rounds lo .. hi-1."""
        return Completion._make(each[lo:hi] for each in self)


_ARRIVALS = 1 << 22  # arrivals that are computed at a time: 32 MB


def completion(
    plan: CompletionPlan,
    delay: Floats,
    work: Floats,
    late: Floats,
    receive: float,
    overhead: float,
    interrupted: bool,
    out: Completion,
) -> None:
    """Simulate rounds: when messages suffice, and what has come and been computed by then.

    Message m of worker i arrives ``late[i] + delay[r, i] + work[r, i] * share[m]`` seconds after
    round r began.

    Parameters
    ----------
    plan : CompletionPlan
    delay, work : (rounds, n) float64 array
        Seconds until each worker begins, once it is free, and seconds that all its work takes.
        C-contiguous, finite, not negative.
    late : (n,) float64 array
        Seconds from the beginning of a round until each worker is free: in every round if
        `interrupted`; else in the first round, and overwritten with those of the next round.
    receive : float
        Seconds that the master takes for each message that came, one after the other in order of
        arrival.
    overhead : float
        Seconds between the end of a round and the beginning of the next one.
    interrupted : bool
        Whether workers drop their work when a round ends. If not, they finish the message that they
        are at when the next round begins, which nobody uses, and then join the newest round.
    out : Completion
        Where results are written; arrays of shape (rounds,).
    """
    sender = np.repeat(np.arange(plan.loads.size), np.diff(plan.first))
    step = max(_ARRIVALS // max(sender.size, 1), 1) if interrupted else 1
    for lo in range(0, len(work), step):
        whole, done = work[lo : lo + step], out.part(lo, lo + step)
        begin = late + delay[lo : lo + step]
        arrival = begin[:, sender] + whole[:, sender] * plan.share
        _complete(plan, arrival, begin, whole, receive, done)
        if not interrupted:
            end = done.time[0] + overhead
            for i in range(late.size):
                sent = arrival[0, plan.first[i] : plan.first[i + 1]]
                ahead = [at for at in (late[i], *sent) if at > end]
                late[i] = ahead[0] - end if ahead else 0.0


def _complete(
    plan: CompletionPlan,
    arrival: Floats,
    begin: Floats,
    whole: Floats,
    receive: float,
    out: Completion,
) -> None:
    """Simulate rounds whose messages arrive at `arrival`, (rounds, M)."""
    latest = np.full(len(arrival), np.inf)
    if plan.wait:
        last = np.sort(arrival[:, plan.first[1:] - 1], axis=1)
        latest = last[:, plan.wait - 1]
    if plan.kind == BLOCKS:
        ready = _blocks_ready(plan, arrival)
    elif plan.kind == CELLS:
        ready = _cells_ready(plan, arrival)
    elif plan.kind == TILING:
        ready = _tiling_ready(plan, arrival)
    else:
        one = _edges_ready if plan.kind == EDGES else _span_ready
        ready = np.array([one(plan, *each) for each in zip(arrival, latest, strict=True)])
    ready = np.minimum(ready, latest)
    heard = arrival <= ready[:, None]
    out.messages[:] = heard.sum(axis=1)
    sends = np.diff(plan.first) > 0
    first = plan.first[:-1][sends]
    out.workers[:] = heard[:, first].sum(axis=1)
    since = ready[:, None] - begin
    part = (since >= 0).astype(float)
    np.divide(since, whole, out=part, where=(since >= 0) & (since < whole))
    if first.size:  # `since` may have lost digits: see `computed` in csrc/rounds.c
        sent = np.maximum.reduceat(np.where(heard, plan.share, 0.0), first, axis=1)
        part[:, sends] = np.maximum(part[:, sends], sent)
    out.computations[:] = np.floor(plan.loads * part + 1e-9).sum(axis=1)
    out.time[:] = ready
    if receive > 0:
        in_order = np.sort(np.where(heard, arrival, np.inf), axis=1)
        left = out.messages[:, None] - np.arange(arrival.shape[1])
        taken = in_order + left * receive
        np.maximum(ready, taken.max(axis=1, initial=0.0, where=left > 0), out=out.time)


def _blocks_ready(plan: CompletionPlan, arrival: Floats) -> Floats:
    ready = np.zeros(len(arrival))
    for b, need in enumerate(plan.need):
        mine = arrival[:, plan.group == b]
        if need > mine.shape[1]:
            ready[:] = np.inf
        elif need > 0:
            mine.partition(need - 1, axis=1)
            np.maximum(ready, mine[:, need - 1], out=ready)
    return ready


def _cells_ready(plan: CompletionPlan, arrival: Floats) -> Floats:
    order = np.argsort(plan.group, kind="stable")
    cells, starts = np.unique(plan.group[order], return_index=True)
    earliest = np.minimum.reduceat(arrival[:, order], starts, axis=1)
    by_time = np.argsort(earliest, axis=1)
    # The weight is 0 before the first arrival; rounds that never have enough are ready at Inf.
    weight = np.cumsum(np.pad(plan.need[cells][by_time], ((0, 0), (1, 0))), axis=1)
    times = np.take_along_axis(earliest, by_time, axis=1)
    times = np.pad(times, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, np.inf)))
    enough: Floats = times[np.arange(len(times)), (weight < plan.total).sum(axis=1)]
    return enough


def _tiling_ready(plan: CompletionPlan, arrival: Floats) -> Floats:
    ready = np.zeros(len(arrival))
    starts, ends, k = plan.group.tolist(), plan.other.tolist(), plan.total
    for r, row in enumerate(arrival):
        parent = list(range(k + 1))

        def root(point: int, parent: list[int] = parent) -> int:
            while parent[point] != point:
                parent[point] = point = parent[parent[point]]
            return point

        ahead = iter(np.argsort(row).tolist())
        while root(0) != root(k):
            m = next(ahead, None)
            if m is None:
                ready[r] = np.inf
                break
            parent[root(starts[m])] = root(ends[m])
            ready[r] = row[m]
    return ready


def _edges_ready(plan: CompletionPlan, arrival: Floats, latest: float) -> float:
    """When each component has an odd cycle, or two sides of one size, by two copies of vertices.

    An edge joins the first copy of either end to the second copy of the other. If a component has
    an odd cycle, it is joined to its own copy, and has equally many first and second copies.
    Otherwise its first copies are one side, and its second copies the other.
    """
    part = np.arange(2 * plan.total)
    excess = np.repeat([1, -1], plan.total)  # counts first copies less second ones
    for m in np.argsort(arrival, kind="stable"):
        if arrival[m] > latest:
            break
        u, v = plan.group[m], plan.other[m]
        for one, other in ((u, v + plan.total), (v, u + plan.total)):
            part[part == part[one]] = part[other]
        if not np.bincount(part, excess).any():
            return float(arrival[m])
    return np.inf


def _span_ready(plan: CompletionPlan, arrival: Floats, latest: float) -> float:
    """When rows span, by least squares: the latest messages that can be spared together."""
    in_order = np.argsort(arrival, kind="stable")
    first, others = plan.spare[:, 0], plan.spare[:, 1:]
    for at in range(arrival.size - 1, -1, -1):
        late = in_order[at:]
        basis, size, _ = np.linalg.svd(others[late], full_matrices=False)
        basis = basis[:, size > ZERO]  # not relative to the largest, which may be mere rounding
        if np.abs(first[late] - basis @ (basis.T @ first[late])).max() > SOLVED:
            last = float(arrival[in_order[at]])
            return last if last <= latest else np.inf
    return 0.0


_TOGETHER = 512  # delays that compiled loops draw at a time


class DelayPlan(NamedTuple):
    """Delays and works of n workers in any round: each random number can be drawn by itself.

    With h exponential of mean 1, worker i is late by ``shift[i] + scale[i] h``, or if
    ``power[i] > 0`` by ``shift[i] + scale[i] exp(power[i] h)``, or by its given delay. It begins
    after ``onset`` times this delay, and works for ``load[i]`` times the delay plus ``work[i]``
    seconds. Both times are multiplied by the same random number between 1 and 1 + 2^-40, so that
    simultaneous messages come in random order. One random number gives h and this factor.

    A named tuple, so that Numba takes it as an argument.

    Attributes
    ----------
    key : uint64
        The random numbers are SplitMix64's, ``round n + worker`` steps after this counter.
    onset : float
    shift, scale, power, load, work : (repeats n,) float64 array
        The numbers of all workers, `repeats` times over, for loops over several rounds.
    repeats : int
    given : (rounds, n) float64 array
        The given delays of the rounds to draw; without rounds if delays are random.
    """

    key: np.uint64
    onset: float
    shift: Floats
    scale: Floats
    power: Floats
    load: Floats
    work: Floats
    repeats: int
    given: Floats

    @classmethod
    def of(
        cls,
        key: np.uint64,
        onset: float,
        shift: Floats,
        scale: Floats,
        power: Floats,
        load: Floats,
        work: Floats,
    ) -> DelayPlan:
        """Return the plan of n workers with random delays; each array has shape (n,)."""
        n = shift.size
        repeats = max(1, _TOGETHER // n)
        numbers = np.tile([shift, scale, power, load, work], repeats)
        shift, scale, power, load, work = numbers
        return cls(key, onset, shift, scale, power, load, work, repeats, np.empty((0, n)))

    def part(self, lo: int, hi: int) -> DelayPlan:
        """Return a view of the plan for the given rounds lo .. hi-1."""
        return self._replace(given=self.given[lo:hi])

    def draw(self, first: int, rounds: int) -> tuple[Floats, Floats]:
        """Return what ``kernels.unchecked.draw`` writes for rounds, by the backend in use."""
        wait, whole = np.empty((2, rounds, self.given.shape[1]))
        own(draw)(self, first, wait, whole)
        return wait, whole


Bits = NDArray[np.uint64]

# csrc/delays.c explains these, and the polynomials. Every backend rounds alike.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST = np.uint64(31)
_ONE, _ROOT, _WHOLE = np.array([1.0, 0.5**0.5, 2.0**52]).view(np.uint64)
_LN2_HIGH, _LN2_LOW = 0.6931471805592082, 7.371002565167799e-13
_LOG = (
    0.14616449685043406,
    0.15331721600556042,
    0.18182889125261723,
    0.2222221113479508,
    0.28571428625975487,
    0.39999999999899505,
    0.666666666666667,
)
_EXP = (
    2.5100375832561234e-08,
    2.7620075879983367e-07,
    2.7557268480310024e-06,
    2.4801521322368692e-05,
    0.00019841269863040545,
    0.0013888888917196719,
    0.008333333333330065,
    0.041666666666624164,
    0.16666666666666669,
    0.5000000000000001,
)


def draw(delays: DelayPlan, first: int, wait: Floats, whole: Floats) -> None:
    """Draw the delays and works of rounds ``first``, ``first + 1``, ...

    They depend only on the plan, the round and the number of workers.

    Parameters
    ----------
    delays : DelayPlan
    first : int
    wait, whole : (rounds, n) float64 array
        Written: the seconds until each worker begins, once it is free, and the seconds that all its
        work takes, as `completion` reads them.
    """
    rounds, n = wait.shape
    random = _random(delays.key, first * n, rounds * n).reshape(rounds, n)
    apart = 1 + (((random << 32) >> 12 | _ONE).view(np.float64) - 1) * 2.0**-40
    shift, scale, power, load, work = (each[:n] for each in delays[2:7])
    if len(delays.given):
        time = delays.given
    else:
        hazard = _exponential(random)
        if power.any():
            hazard = np.where(power > 0, _power_of_e(hazard * power), hazard)
        time = shift + scale * hazard
    wait[:] = time * delays.onset * apart
    whole[:] = (time * load + work) * apart


def _random(key: np.uint64, first: int, count: int) -> Bits:
    counters = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    z = key + counters * _STEP  # modulo 2^64
    for shift, factor in _MIX:
        z = (z ^ (z >> shift)) * factor
    mixed: Bits = z ^ (z >> _LAST)
    return mixed


def _exponential(random: Bits) -> Floats:
    u = 2 - (random >> 12 | _ONE).view(np.float64) - 2.0**-53
    bits = u.view(np.uint64)
    e = bits + (_ONE - _ROOT) >> 52
    exponent = (e | _WHOLE).view(np.float64) - (2.0**52 + 1023)
    m = (bits + _ONE - (e << 52)).view(np.float64)
    s = (m - 1) / (m + 1)
    z = s * s
    p = np.full_like(z, _LOG[0])
    for each in _LOG[1:]:
        p = p * z + each
    hazard: Floats = -(exponent * _LN2_HIGH + (2 * s + (s * z * p + exponent * _LN2_LOW)))
    return hazard


def _power_of_e(x: Floats) -> Floats:
    shifted = x * 1.4426950408889634 + 1.5 * 2.0**52
    k = shifted - 1.5 * 2.0**52
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    q = np.full_like(r, _EXP[0])
    for each in _EXP[1:]:
        q = q * r + each
    p = 1 + (r + r * r * q)
    power: Floats = (p.view(np.uint64) + (shifted.view(np.uint64) << 52)).view(np.float64)
    return power
