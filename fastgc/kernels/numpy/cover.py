"""Decoding vectors of messages that are plain sums."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cyclic import Status

__all__ = ["bind_cells", "bind_tiling"]


class CellsPlan(NamedTuple):
    """Messages that are each the sum over one cell of the partitions.

    A named tuple, so that Numba takes it as an argument.

    Attributes
    ----------
    cell : (M,) int64 array
        Of each message.
    weight : (cells,) int64 array
    need : int
        What distinct cells must weigh.
    whole : float
        What came is multiplied by this over its weight; 0: it is not.
    """

    cell: NDArray[np.int64]
    weight: NDArray[np.int64]
    need: int
    whole: float


class TilingPlan(NamedTuple):
    """Messages that are each the sum over an interval, as edges of a graph of their ends.

    A named tuple, so that Numba takes it as an argument. Points are the ends of intervals in
    ascending order, from 0 to k; each edge is there twice, once at either of its ends.

    Attributes
    ----------
    messages : int
    first : (points + 1,) int64 array
        Edges of point p are ``first[p] .. first[p+1] - 1``, in the order of their messages.
    point, other, message : (2 M,) int64 array
        Of each edge: the point that it is at, its other end, and its message.
    """

    messages: int
    first: NDArray[np.int64]
    point: NDArray[np.int64]
    other: NDArray[np.int64]
    message: NDArray[np.int64]


def tiling_plan(start: NDArray[np.int64], stop: NDArray[np.int64], k: int) -> TilingPlan:
    """Of messages that are sums over ``start[i]:stop[i]`` and are to give [0, k)."""
    messages = np.arange(start.size)
    ends, place = np.unique(np.concatenate([start, stop, [0, k]]), return_inverse=True)
    at, other = place[: 2 * start.size], np.roll(place[: 2 * start.size], start.size)
    message = np.tile(messages, 2)
    order = np.lexsort((message, at))
    first = np.searchsorted(at[order], np.arange(ends.size + 1))
    return TilingPlan(start.size, first, at[order], other[order], message[order])


def _fault(survivors: NDArray[np.int64], messages: int) -> Status:
    if ((survivors < 0) | (survivors >= messages)).any():
        return Status.OUT_OF_RANGE
    return Status.OK if np.unique(survivors).size == survivors.size else Status.DUPLICATE


def bind_cells(
    plan: CellsPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    """Prepare the decoding vector of messages that are sums over cells, on two fixed buffers.

    Returns a function ``fill(f) -> status`` that reads ``survivors[:f]`` and writes ``out[:f]``: 1,
    or what the plan multiplies by, for the first message of each cell, and 0 for others. Its status
    may be `Status.OUT_OF_RANGE`, `Status.DUPLICATE` or `Status.TOO_FEW`, and `out` means nothing
    then. Pointers are taken once, here.

    Parameters
    ----------
    plan : CellsPlan
    survivors : (M,) int64 array
    out : (M,) float64 array
    """

    def fill(f: int) -> int:
        if fault := _fault(survivors[:f], plan.cell.size):
            return fault
        cells, first = np.unique(plan.cell[survivors[:f]], return_index=True)
        weight = int(plan.weight[cells].sum())
        if weight < plan.need:
            return Status.TOO_FEW
        out[:f] = 0
        out[first] = plan.whole / weight if plan.whole > 0 and weight else 1
        return Status.OK

    return fill


def _path(plan: TilingPlan, came: NDArray[np.bool_], back: bool) -> list[int] | None:
    """Edges of the fewest messages that lead from the first point to the last, from the end."""
    last = plan.first.size - 2
    via, ahead = {0: -1}, deque([0])
    while ahead and last not in via:
        here = ahead.popleft()
        for e in range(plan.first[here], plan.first[here + 1]):
            there = int(plan.other[e])
            if came[plan.message[e]] and there not in via and (back or there > here):
                via[there] = e
                ahead.append(there)
    if last not in via:
        return None
    edges, point = [], last
    while point:
        edges.append(via[point])
        point = int(plan.point[via[point]])
    return edges


def bind_tiling(
    plan: TilingPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    """Prepare the decoding vector of messages that are sums over intervals, on two fixed buffers.

    Takes such buffers as `bind_cells`, and returns such a function ``fill(f) -> status``. It writes
    1 for the fewest messages that add up to the whole; where none do, 1 and -1 for the fewest that
    do if some are subtracted; and 0 for others. Of equally few it takes those found first, in
    breadth, by number.
    """

    def fill(f: int) -> int:
        if fault := _fault(survivors[:f], plan.messages):
            return fault
        place = np.full(plan.messages, -1)
        place[survivors[:f]] = np.arange(f)
        for back in (False, True):
            edges = _path(plan, place >= 0, back)
            if edges is not None:
                out[:f] = 0
                sign = np.where(plan.other[edges] > plan.point[edges], 1, -1)
                out[place[plan.message[edges]]] = sign
                return Status.OK
        return Status.TOO_FEW

    return fill
