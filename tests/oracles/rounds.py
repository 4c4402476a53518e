"""Simulated rounds: random delays of workers, and when their messages suffice."""

import numpy as np
from numpy.typing import NDArray

from fastgc.kernels.rounds import BLOCKS, CELLS, EDGES, TILING

# Numbers of `spare` that count as zero: ZERO in the orthonormal columns, SOLVED in the first, whose
# largest is 1. (As in csrc/rounds.c.)
ZERO = 1e-9
SOLVED = 1e-6


_ARRIVALS = 1 << 22  # arrivals that are computed at a time: 32 MB


def completion(
    plan,
    delays,
    first,
    late,
    receive,
    overhead,
    interrupted,
    out,
):
    """Simulate rounds: when messages suffice, and what has come and been computed by then.

    In a round for which `draw` writes `wait` and `whole`, message m of worker i arrives ``late[i] +
    wait[i] + whole[i] * share[m]`` seconds after the round began.

    Parameters
    ----------
    plan : CompletionPlan
    delays : DelayPlan
    first : int
        The number of the first round.
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
    delay, work = np.empty((2, out.time.size, late.size))
    draw(delays, first, delay, work)
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
    plan,
    arrival,
    begin,
    whole,
    receive,
    out,
):
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


def _blocks_ready(plan, arrival):
    ready = np.zeros(len(arrival))
    for b, need in enumerate(plan.need):
        mine = arrival[:, plan.group == b]
        if need > mine.shape[1]:
            ready[:] = np.inf
        elif need > 0:
            mine.partition(need - 1, axis=1)
            np.maximum(ready, mine[:, need - 1], out=ready)
    return ready


def _cells_ready(plan, arrival):
    order = np.argsort(plan.group, kind="stable")
    cells, starts = np.unique(plan.group[order], return_index=True)
    earliest = np.minimum.reduceat(arrival[:, order], starts, axis=1)
    by_time = np.argsort(earliest, axis=1)
    # The weight is 0 before the first arrival; rounds that never have enough are ready at Inf.
    weight = np.cumsum(np.pad(plan.need[cells][by_time], ((0, 0), (1, 0))), axis=1)
    times = np.take_along_axis(earliest, by_time, axis=1)
    times = np.pad(times, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, np.inf)))
    enough = times[np.arange(len(times)), (weight < plan.total).sum(axis=1)]
    return enough


def _tiling_ready(plan, arrival):
    ready = np.zeros(len(arrival))
    starts, ends, k = plan.group.tolist(), plan.other.tolist(), plan.total
    for r, row in enumerate(arrival):
        parent = list(range(k + 1))

        def root(point, parent=parent):
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


def _edges_ready(plan, arrival, latest):
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


def _span_ready(plan, arrival, latest):
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


def draw(delays, first, wait, whole):
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
    given = slice(first - delays.start, first - delays.start + rounds)
    if len(delays.whole):
        wait[:], whole[:] = delays.given[given], delays.whole[given]
        return
    random = _random(delays.key, first * n, rounds * n).reshape(rounds, n)
    apart = 1 + (((random << 32) >> 12 | _ONE).view(np.float64) - 1) * 2.0**-40
    shift, scale, power, load, work = (each[:n] for each in delays[2:7])
    if len(delays.given):
        time = delays.given[given]
    else:
        hazard = _exponential(random)
        if power.any():
            hazard = np.where(power > 0, _power_of_e(hazard * power), hazard)
        time = shift + scale * hazard
    wait[:] = time * delays.onset * apart
    whole[:] = (time * load + work) * apart


def _random(key, first, count):
    counters = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    z = key + counters * _STEP  # modulo 2^64
    for shift, factor in _MIX:
        z = (z ^ (z >> shift)) * factor
    mixed = z ^ (z >> _LAST)
    return mixed


def _exponential(random):
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
    hazard = -(exponent * _LN2_HIGH + (2 * s + (s * z * p + exponent * _LN2_LOW)))
    return hazard


def _power_of_e(x):
    shifted = x * 1.4426950408889634 + 1.5 * 2.0**52
    k = shifted - 1.5 * 2.0**52
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    q = np.full_like(r, _EXP[0])
    for each in _EXP[1:]:
        q = q * r + each
    p = 1 + (r + r * r * q)
    power = (p.view(np.uint64) + (shifted.view(np.uint64) << 52)).view(np.float64)
    return power
