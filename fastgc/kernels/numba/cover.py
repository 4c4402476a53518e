"""Decoding vectors of messages that are plain sums."""

from __future__ import annotations

import numpy as np

from ..cyclic import Status
from .njit import njit

__all__ = ["bind_cells", "bind_tiling"]

_OUT_OF_RANGE, _DUPLICATE = int(Status.OUT_OF_RANGE), int(Status.DUPLICATE)
_TOO_FEW = int(Status.TOO_FEW)


@njit
def places(survivors, place):
    """Where each message is among the survivors, -1 if it is not; whether something is wrong."""
    place[:] = -1
    for at in range(survivors.size):
        i = survivors[at]
        if i < 0 or i >= place.size:
            return _OUT_OF_RANGE
        if place[i] >= 0:
            return _DUPLICATE
        place[i] = at
    return 0


@njit
def _cells(plan, survivors, out):
    fault = places(survivors, np.empty(plan.cell.size, np.int64))
    if fault:
        return fault
    came, weight = np.zeros(plan.weight.size, np.bool_), 0
    for at in range(survivors.size):
        cell = plan.cell[survivors[at]]
        out[at] = 0.0 if came[cell] else 1.0
        weight += 0 if came[cell] else plan.weight[cell]
        came[cell] = True
    if weight < plan.need:
        return _TOO_FEW
    if plan.whole > 0 and weight > 0:
        for at in range(survivors.size):
            out[at] *= plan.whole / weight
    return 0


def bind_cells(plan, survivors, out):
    return lambda f: _cells(plan, survivors[:f], out[:f])


@njit
def _find_path(plan, place, back, via, queue):
    """Edges by which points are reached, -1 where they are not; see csrc/cover.c."""
    last, ahead, end = plan.first.size - 2, 0, 1
    via[:] = -1
    queue[0] = 0
    while ahead < end and via[last] < 0:
        here = queue[ahead]
        ahead += 1
        for e in range(plan.first[here], plan.first[here + 1]):
            there = plan.other[e]
            if place[plan.message[e]] < 0 or via[there] >= 0 or there == 0:
                continue
            if back or there > here:
                via[there] = e
                queue[end] = there
                end += 1


@njit
def _tiling(plan, survivors, out):
    place = np.empty(plan.messages, np.int64)
    fault = places(survivors, place)
    if fault:
        return fault
    points = plan.first.size - 1
    via, queue = np.empty(points, np.int64), np.empty(points, np.int64)
    for back in (False, True):
        _find_path(plan, place, back, via, queue)
        if via[points - 1] < 0:
            continue
        out[:] = 0
        point = points - 1
        while point > 0:
            e = via[point]
            out[place[plan.message[e]]] = 1.0 if plan.point[e] < point else -1.0
            point = plan.point[e]
        return 0
    return _TOO_FEW


def bind_tiling(plan, survivors, out):
    return lambda f: _tiling(plan, survivors[:f], out[:f])
