"""Decoding vectors of messages that are plain sums: over cells or intervals, or of two blocks."""

from __future__ import annotations

import numpy as np

from .. import numpy as plain
from ..cyclic import Status
from ..numpy.cover import SHORT, STEPS
from .njit import binder, njit

__all__ = ["bind_cells", "bind_edges", "bind_tiling"]

_OUT_OF_RANGE, _DUPLICATE = int(Status.OUT_OF_RANGE), int(Status.DUPLICATE)
_TOO_FEW = int(Status.TOO_FEW)


@njit
def places(survivors, place):
    """Write where each message is among the survivors, -1 if it is not. Returns a status."""
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
def first_of(survivors, out, f):
    """The first f entries of each."""
    if not 0 <= f <= min(survivors.size, out.size):
        raise ValueError("survivors and out must have room for f numbers")
    return survivors[:f], out[:f]


@njit
def _cells(plan, survivors, out, f):
    survivors, out = first_of(survivors, out, f)
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


bind_cells = binder(plain.bind_cells, _cells)


@njit
def _find_path(plan, place, back, via, queue):
    """Find the edges by which points are reached, -1 if they are not: see csrc/cover.c."""
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
def _tiling(plan, survivors, out, f):
    survivors, out = first_of(survivors, out, f)
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


bind_tiling = binder(plain.bind_tiling, _tiling)


@njit
def _collect(all_ends, place, count):
    """Ends of the edges that came, in order of messages, and their places among the survivors."""
    ends, slot, j = np.empty((count, 2), np.int64), np.empty(count, np.int64), 0
    for i in range(place.size):
        if place[i] >= 0:
            ends[j], slot[j] = all_ends[i], place[i]
            j += 1
    return ends, slot


@njit
def _meeting(ends, vertices):
    """Edges ``at[first[i] : first[i + 1]]`` meet at vertex i."""
    first, at = np.zeros(vertices + 2, np.int64), np.empty(2 * len(ends), np.int64)
    for end in ends.ravel():
        first[end + 2] += 1
    for i in range(2, vertices + 1):
        first[i + 1] += first[i]
    for j in range(len(ends)):
        for end in ends[j]:
            at[first[end + 1]] = j
            first[end + 1] += 1
    return first, at


@njit
def _explore(ends, vertices):
    """Vertices as reached, where components begin, the edges that reach vertices; and sides."""
    first, at = _meeting(ends, vertices)
    order, part = np.empty(vertices, np.int64), np.empty(vertices + 1, np.int64)
    via, side = np.full(vertices, -1, np.int64), np.zeros(vertices, np.int64)
    end, ahead, parts = 0, 0, 0
    for root in range(vertices):
        if side[root]:
            continue
        part[parts] = end
        parts += 1
        order[end], side[root] = root, 1
        end += 1
        while ahead < end:
            here = order[ahead]
            ahead += 1
            for j in at[first[here] : first[here + 1]]:
                there = ends[j, 0] + ends[j, 1] - here
                if not side[there]:
                    side[there], via[there] = -side[here], j
                    order[end] = there
                    end += 1
                elif side[there] == side[here] and via[root] < 0:
                    via[root] = j
    part[parts] = end
    return order, part[: parts + 1], via, side


@njit
def _aim(order, part, via, side, weight):
    """The sums nearest to 1 that edges can have, and whether these are 1 everywhere."""
    wanted, exact = np.ones(weight.size), True
    for c in range(part.size - 1):
        members = order[part[c] : part[c + 1]]
        if via[members[0]] >= 0:
            continue
        more, inverse = 0, 0.0
        for i in members:
            more += side[i]
            inverse += 1 / weight[i]
        for i in members:
            wanted[i] = 1 - side[i] * more / (weight[i] * inverse)
        if members.size == 1:
            wanted[members[0]] = 0  # exactly: no edge could make up for a rounding
        exact &= more == 0
    return wanted, exact


@njit
def _spread(ends, share, x, out):
    out[:] = 0
    for j in range(len(ends)):
        u, v = ends[j]
        both = share[j] * (x[u] + x[v])
        out[u] += both
        out[v] += both


@njit
def _shortest(ends, weight, wanted):
    """Short values of edges whose sums are nearly as wanted, by conjugate gradients."""
    n = weight.size
    share = np.empty(len(ends))
    for j in range(len(ends)):
        share[j] = 1 / (weight[ends[j, 0]] + weight[ends[j, 1]])
    scale, p, q = np.empty(n), np.full(n, 0.5), np.empty(n)
    _spread(ends, share, p, scale)
    y, r, square = np.zeros(n), wanted.copy(), 0.0
    for i in range(n):
        scale[i] = 1 / scale[i] if scale[i] > 0 else 0.0
        p[i] = scale[i] * r[i]
        square += r[i] * p[i]
    enough = SHORT * square
    for _ in range(STEPS):
        if not square > enough:
            break
        _spread(ends, share, p, q)
        curve, after = 0.0, 0.0
        for i in range(n):
            curve += p[i] * q[i]
        if not curve > 0:
            break
        for i in range(n):
            y[i] += square / curve * p[i]
            r[i] -= square / curve * q[i]
            after += scale[i] * r[i] * r[i]
        for i in range(n):
            p[i] = scale[i] * r[i] + after / square * p[i]
        square = after
    for j in range(len(ends)):
        share[j] *= y[ends[j, 0]] + y[ends[j, 1]]
    return share


@njit
def _settle(ends, order, part, via, side, lacking, value):
    """Make the sums exact: see `settle` in csrc/cover.c."""
    for c in range(part.size - 1):
        members = order[part[c] : part[c + 1]]
        odd = via[members[0]]
        if odd >= 0:
            half = 0.0
            for i in members:
                half += side[i] * lacking[i] / 2
            half *= side[ends[odd, 0]]
            value[odd] += half
            lacking[ends[odd, 0]] -= half
            lacking[ends[odd, 1]] -= half
        for i in members[:0:-1]:
            j = via[i]
            value[j] += lacking[i]
            lacking[ends[j, 0] + ends[j, 1] - i] -= lacking[i]


@njit
def _edges(plan, survivors, out, f):
    survivors, out = first_of(survivors, out, f)
    place = np.empty(len(plan.ends), np.int64)
    fault = places(survivors, place)
    if fault:
        return fault
    ends, slot = _collect(plan.ends, place, survivors.size)
    order, part, via, side = _explore(ends, plan.weight.size)
    wanted, exact = _aim(order, part, via, side, plan.weight)
    if not exact and survivors.size < plan.need:
        return _TOO_FEW
    value = _shortest(ends, plan.weight, wanted)
    for j in range(len(ends)):
        wanted[ends[j, 0]] -= value[j]
        wanted[ends[j, 1]] -= value[j]
    _settle(ends, order, part, via, side, wanted, value)
    for j in range(len(ends)):
        out[slot[j]] = value[j]
    return 0


bind_edges = binder(plain.bind_edges, _edges)
