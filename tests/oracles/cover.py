"""Decoding vectors of messages that are plain sums: over cells or intervals, or of two blocks."""

from collections import deque

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
    or the plan's factor, times the plan's inverse, for the first message of each cell, and 0 for
    others. If its status is `Status.OUT_OF_RANGE`, `Status.DUPLICATE` or `Status.TOO_FEW`, `out`
    means nothing. Pointers are taken once, here.

    Parameters
    ----------
    plan : CellsPlan
    survivors : (M,) int64 array
    out : (M,) float64 array, or complex128 if the plan has inverses
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
        if plan.inverse is not None:
            out[:f] *= plan.inverse[survivors[:f]]
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


def partitions(plan, survivors):
    """Return the matrix of messages, with a column for each partition."""
    held = np.zeros((len(survivors), plan.weight.size))
    np.put_along_axis(held, plan.ends[survivors], 1, axis=1)
    return np.repeat(held, plan.weight.astype(int), axis=1)


def bind_edges(plan, survivors, out):
    """Prepare the decoding vector of messages that are sums of two blocks, on two fixed buffers.

    Takes the same buffers as `bind_cells`, and returns the same kind of function. It writes the
    vector with the least residual that is the shortest, if a message counts by its partitions. C's
    is longer by up to a part in a hundred.
    """

    def fill(f):
        if fault := _fault(survivors[:f], len(plan.ends)):
            return fault
        B = partitions(plan, survivors[:f])
        size = np.sqrt(B.sum(axis=1))
        vector = np.linalg.lstsq((B / size[:, None]).T, np.ones(B.shape[1]))[0] / size
        if f < plan.need and np.linalg.norm(vector @ B - 1) > 1e-8:
            return Status.TOO_FEW
        out[:f] = vector
        return Status.OK

    return fill


# ------------------------------------------------------------ the table


def _heard(rng, plan, messages):
    """Draw some of the messages; once in four times the last number is one that may not come."""
    survivors = rng.permutation(messages)[: rng.integers(messages + 1)]
    if survivors.size and rng.random() < 0.25:
        survivors[-1] = rng.choice([survivors[0], -1, messages])
    return {"plan": plan, "survivors": survivors, "out": np.full(survivors.size, 7.0)}


def _cells(rng, size, count, dtype, inverse=False):
    weight = rng.integers(1, 5, count + 1)
    cell, need = rng.integers(count + 1, size=size), int(rng.integers(weight.sum() + 1))
    whole = float(weight.sum() * rng.integers(2))
    plan = kernels.cover.CellsPlan(cell, weight, need, whole)
    if not inverse:
        return _heard(rng, plan, size)
    turned = np.exp(rng.standard_normal(size) + 1j * rng.random(size))
    given = _heard(rng, plan._replace(inverse=turned), size)
    return given | {"out": given["out"].astype(np.complex128)}


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


def _same_sum(given, found, truth):
    assert found["returned"] == truth["returned"]
    if found["returned"] == Status.OK:
        within(1e-9, found["out"], truth["out"])


def _same_edges(given, found, truth):
    """Assert that the sum is the oracle's, and the vector nearly as short."""
    assert found["returned"] == truth["returned"]
    if found["returned"] == Status.OK:
        B = partitions(given["plan"], given["survivors"])
        within(1e-9, found["out"] @ B, truth["out"] @ B)
        longer, least = (
            np.linalg.norm(each["out"] * np.sqrt(B.sum(axis=1))) for each in (found, truth)
        )
        assert least * (1 - 1e-9) <= longer <= 1.01 * least


KERNELS = [
    Kernel(
        name,
        make,
        check,
        ("out",),
        shapes((1, 2, 3, 5, 8, 13, 30), (1, 2, 3, 4, 6)),
        cases=cases,
        call=lambda function, given: function(**given)(given["survivors"].size),
        wide=False,
    )
    for name, make, check, cases in (
        ("bind_cells", _cells, _same_sum, ({"inverse": False}, {"inverse": True})),
        ("bind_tiling", _intervals, _same_sum, ({},)),
        ("bind_edges", _edges, _same_edges, ({},)),
    )
]
