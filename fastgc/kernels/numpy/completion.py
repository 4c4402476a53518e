"""When the messages of a simulated round suffice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..completion import (
    BLOCKS,
    CELLS,
    EDGES,
    SOLVED,
    TILING,
    ZERO,
    Completion,
    CompletionPlan,
)

__all__ = ["completion"]

_ARRIVALS = 1 << 22  # at a time: 32 MB


def completion(
    plan: CompletionPlan,
    delay: NDArray[np.float64],
    work: NDArray[np.float64],
    late: NDArray[np.float64],
    receive: float,
    overhead: float,
    interrupted: bool,
    out: Completion,
) -> None:
    """See `fastgc.kernels.completion`."""
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
    arrival: NDArray[np.float64],
    begin: NDArray[np.float64],
    whole: NDArray[np.float64],
    receive: float,
    out: Completion,
) -> None:
    """Rounds whose messages arrive at `arrival`, (rounds, M)."""
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
    if first.size:  # since may have lost the digits that tell, see csrc/completion.c
        sent = np.maximum.reduceat(np.where(heard, plan.share, 0.0), first, axis=1)
        part[:, sends] = np.maximum(part[:, sends], sent)
    out.computations[:] = np.floor(plan.loads * part + 1e-9).sum(axis=1)
    out.time[:] = ready
    if receive > 0:
        in_order = np.sort(np.where(heard, arrival, np.inf), axis=1)
        left = out.messages[:, None] - np.arange(arrival.shape[1])
        taken = in_order + left * receive
        np.maximum(ready, taken.max(axis=1, initial=0.0, where=left > 0), out=out.time)


def _blocks_ready(plan: CompletionPlan, arrival: NDArray[np.float64]) -> NDArray[np.float64]:
    ready = np.zeros(len(arrival))
    for b, need in enumerate(plan.need):
        mine = arrival[:, plan.group == b]
        if need > mine.shape[1]:
            ready[:] = np.inf
        elif need > 0:
            mine.partition(need - 1, axis=1)
            np.maximum(ready, mine[:, need - 1], out=ready)
    return ready


def _cells_ready(plan: CompletionPlan, arrival: NDArray[np.float64]) -> NDArray[np.float64]:
    order = np.argsort(plan.group, kind="stable")
    cells, starts = np.unique(plan.group[order], return_index=True)
    earliest = np.minimum.reduceat(arrival[:, order], starts, axis=1)
    by_time = np.argsort(earliest, axis=1)
    # before the first arrival, nothing has come; and some rounds may wait for ever
    weight = np.cumsum(np.pad(plan.need[cells][by_time], ((0, 0), (1, 0))), axis=1)
    times = np.take_along_axis(earliest, by_time, axis=1)
    times = np.pad(times, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, np.inf)))
    enough: NDArray[np.float64] = times[np.arange(len(times)), (weight < plan.total).sum(axis=1)]
    return enough


def _tiling_ready(plan: CompletionPlan, arrival: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _edges_ready(plan: CompletionPlan, arrival: NDArray[np.float64], latest: float) -> float:
    """When each component has an odd cycle or even sides: by vertices that are in two copies.

    An edge joins each of its ends to the other's second copy. A component has an odd cycle if it is
    joined to its own copy; then both copies of each vertex are in one component, as often each.
    Otherwise those of its vertices that are in it as second copies are on the other side.
    """
    part = np.arange(2 * plan.total)
    excess = np.repeat([1, -1], plan.total)  # of first copies over second ones
    for m in np.argsort(arrival, kind="stable"):
        if arrival[m] > latest:
            break
        u, v = plan.group[m], plan.other[m]
        for one, other in ((u, v + plan.total), (v, u + plan.total)):
            part[part == part[one]] = part[other]
        if not np.bincount(part, excess).any():
            return float(arrival[m])
    return np.inf


def _span_ready(plan: CompletionPlan, arrival: NDArray[np.float64], latest: float) -> float:
    """By least squares of what is to be spared, from the last message on."""
    in_order = np.argsort(arrival, kind="stable")
    first, others = plan.spare[:, 0], plan.spare[:, 1:]
    for at in range(arrival.size - 1, -1, -1):
        late = in_order[at:]
        found = np.linalg.lstsq(others[late], first[late], rcond=ZERO)[0]
        if np.abs(first[late] - others[late] @ found).max() > SOLVED:
            last = float(arrival[in_order[at]])
            return last if last <= latest else np.inf
    return 0.0
