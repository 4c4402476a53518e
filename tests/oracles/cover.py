"""Decoding vectors of messages that are plain sums: over cells or intervals, or of two blocks."""

from collections import deque
from typing import NamedTuple

import numpy as np

from fastgc import kernels
from fastgc.kernels import Status

from .table import Kernel, shapes, within


def _fault(survivors, messages):
    if ((survivors < 0) | (survivors >= messages)).any():
        return Status.OUT_OF_RANGE
    return Status.OK if np.unique(survivors).size == survivors.size else Status.DUPLICATE


def bind_cells(plan, survivors, out):
    """Prepare the decoding vector of messages that are sums over cells, on two fixed buffers.

    Returns a function ``fill(f) -> status`` that reads ``survivors[:f]`` and writes ``out[:f]``: 1,
    or the plan's factor, for the first message of each cell, and 0 for others. If its status is
    `Status.OUT_OF_RANGE`, `Status.DUPLICATE` or `Status.TOO_FEW`, `out` means nothing. Pointers are
    taken once, here.

    Parameters
    ----------
    plan : CellsPlan
    survivors : (M,) int64 array
    out : (M,) float64 array
    """

    def fill(f):
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


def _path(plan, came, back):
    """Edges of the fewest messages that lead from the first point to the last, from the end on."""
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


def bind_tiling(plan, survivors, out):
    """Prepare the decoding vector of messages that are sums over intervals, on two fixed buffers.

    Takes the same buffers as `bind_cells`, and returns the same kind of function ``fill(f) ->
    status``. It writes 1 for the fewest messages that add up to the whole. If none do, it writes 1
    and -1 for the fewest that add up to it if some are subtracted. Other messages have 0. Of
    equally few, it takes those that breadth-first search finds first, by number.
    """

    def fill(f):
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


# Conjugate gradients end when the squared relative residual is below SHORT, or after STEPS steps.
# The vector is then the shortest, to about a part in a thousand. (As in csrc/cover.c.)
SHORT = 1e-6
STEPS = 100


class _Part(NamedTuple):
    """A component: its vertices as reached, the edges that reach them, and one within a side."""

    order: list[int]
    via: list[int]
    odd: int  # -1: there is none


def _parts(ends, vertices):
    """All components, and the side of each vertex, 1 or -1."""
    meets = [[] for _ in range(vertices)]
    for j, (u, v) in enumerate(ends.tolist()):
        meets[u].append((j, v))
        meets[v].append((j, u))
    side, parts = [0] * vertices, []
    for root in range(vertices):
        if side[root]:
            continue
        side[root] = 1
        order, via, odd = [root], [-1], -1
        for here in order:  # which grows
            for j, there in meets[here]:
                if not side[there]:
                    side[there] = -side[here]
                    order.append(there)
                    via.append(j)
                elif side[there] == side[here] and odd < 0:
                    odd = j
        parts.append(_Part(order, via, odd))
    return parts, np.array(side)


def _sums(ends, values, vertices):
    """Sum of the values of edges at each vertex."""
    # without edges, bincount returns integers
    return np.bincount(ends.ravel(), np.repeat(values, 2), minlength=vertices).astype(np.float64)


def _shortest(ends, weight, wanted):
    """Short values of edges with nearly the wanted sums, by conjugate gradients: csrc/cover.c."""
    u, v = ends.T
    share = 1 / (weight[u] + weight[v])

    def sums(values):
        return _sums(ends, values, weight.size)

    total = sums(share)
    scale = np.divide(1, total, out=np.zeros_like(total), where=total > 0)
    y, r = np.zeros(weight.size), wanted.copy()
    p = scale * r
    square = r @ p
    enough = SHORT * square
    for _ in range(STEPS):
        if not square > enough:
            break
        q = sums(share * (p[u] + p[v]))
        curve = p @ q
        if not curve > 0:
            break
        y += square / curve * p
        r -= square / curve * q
        before, square = square, r @ (scale * r)
        p = scale * r + square / before * p
    return share * (y[u] + y[v])  # type: ignore[no-any-return]


def bind_edges(plan, survivors, out):
    """Prepare the decoding vector of messages that are sums of two blocks, on two fixed buffers.

    Takes the same buffers as `bind_cells`, and returns the same kind of function ``fill(f) ->
    status``. Its vector combines the messages so that each block counts as nearly once as possible:
    if block v counts x_v times, the sum over v of ``weight_v (x_v - 1)^2`` is least. It takes time
    linear in blocks and messages. In a component of the graph that is not bipartite, all x are 1.
    In one that is, with sides L and R, ``x_v = 1 -+ (|L| - |R|) / (weight_v sum over u of 1 /
    weight_u)``, with - in L and + in R. The status is `Status.TOO_FEW` if fewer messages came than
    the plan needs, unless all x are 1.

    Of all vectors with these x it writes a short one. At most a hundred steps of conjugate
    gradients go towards the least sum, over messages, of the weight of both blocks times the square
    of the coefficient. What x then lacks is corrected along a spanning tree.
    """

    def fill(f):
        if fault := _fault(survivors[:f], len(plan.ends)):
            return fault
        ascending = np.argsort(survivors[:f])
        ends, weight = plan.ends[survivors[ascending]], plan.weight
        parts, side = _parts(ends, weight.size)
        wanted = np.ones(weight.size)
        for order, _, odd in parts:
            more = 0 if odd >= 0 else side[order].sum()
            wanted[order] -= side[order] * more / (weight[order] * (1 / weight[order]).sum())
            if len(order) == 1:
                wanted[order] = 0  # exactly: no edge could make up for a rounding
        if f < plan.need and (wanted != 1).any():
            return Status.TOO_FEW
        values = _shortest(ends, weight, wanted)
        lacking = wanted - _sums(ends, values, weight.size)
        for order, via, odd in parts:
            if odd >= 0:
                half = side[ends[odd, 0]] * (side[order] @ lacking[order]) / 2
                values[odd] += half
                lacking[ends[odd]] -= half
            for here, j in zip(order[:0:-1], via[:0:-1], strict=True):
                values[j] += lacking[here]
                lacking[ends[j].sum() - here] -= lacking[here]
        out[ascending] = values
        return Status.OK

    return fill


# ------------------------------------------------------------ the table


def _heard(rng, plan, messages):
    """Draw some of the messages; once in four times the last number is one that may not come."""
    survivors = rng.permutation(messages)[: rng.integers(messages + 1)]
    if survivors.size and rng.random() < 0.25:
        survivors[-1] = rng.choice([survivors[0], -1, messages])
    return {"plan": plan, "survivors": survivors, "out": np.full(survivors.size, 7.0)}


def _cells(rng, size, count, dtype):
    weight = rng.integers(1, 5, count + 1)
    cell, need = rng.integers(count + 1, size=size), int(rng.integers(weight.sum() + 1))
    whole = float(weight.sum() * rng.integers(2))
    return _heard(rng, kernels.cover.CellsPlan(cell, weight, need, whole), size)


def _intervals(rng, size, count, dtype):
    ends = np.sort([rng.permutation(count + 1)[:2] for _ in range(size)], axis=1)
    plan = kernels.cover.tiling_plan(*ends.T.copy(), count)
    return _heard(rng, plan, size)


def _edges(rng, size, count, dtype):
    start = rng.integers(count + 1, size=size)
    other = (start + rng.integers(1, count + 1, size=size)) % (count + 1)
    weight, need = rng.integers(1, 5, count + 1).astype(float), int(rng.integers(size + 1))
    plan = kernels.cover.EdgesPlan(np.stack([start, other], axis=1), weight, need)
    return _heard(rng, plan, size)


def _near_plain(given, found, truth):
    assert found["returned"] == truth["returned"]
    if found["returned"] == Status.OK:
        within(1e-9, found["out"], truth["out"])


KERNELS = [
    Kernel(
        name,
        make,
        _near_plain,
        ("out",),
        shapes((1, 2, 3, 5, 8, 13, 30), (1, 2, 3, 4, 6)),
        call=lambda function, given: function(**given)(given["survivors"].size),
        wide=False,
    )
    for name, make in (("bind_cells", _cells), ("bind_tiling", _intervals), ("bind_edges", _edges))
]
