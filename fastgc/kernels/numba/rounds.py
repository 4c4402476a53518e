"""Simulated rounds: random delays of workers, and when their messages suffice."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from ..numpy.rounds import (
    _EXP,
    _LN2_HIGH,
    _LN2_LOW,
    _LOG,
    _ONE,
    _ROOT,
    _STEP,
    _WHOLE,
    BLOCKS,
    CELLS,
    EDGES,
    SOLVED,
    TILING,
    ZERO,
)
from .njit import bits_as, njit_exact

__all__ = ["completion", "draw"]

_SAMPLE = 8


@njit_exact
def _select(key, weight, whole, need):
    """The smallest t such that the keys up to t weigh at least `need` > 0: see csrc/rounds.c.

    All keys together weigh `whole`; each weighs 1 if `weight` is None. The arrays are overwritten.
    """
    if need > whole:
        return np.inf
    count = key.size
    spare, sample = np.empty_like(key), np.empty(_SAMPLE)
    weights = np.empty(0, np.int64) if weight is None else weight
    spare_weights = np.empty_like(weights)
    random = np.uint64(1)
    while True:
        size = 1 if count < 4 * _SAMPLE else _SAMPLE
        for i in range(size):
            random = random * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            x = key[((random >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)]
            at = i
            while at and sample[at - 1] > x:
                sample[at] = sample[at - 1]
                at -= 1
            sample[at] = x
        pivot = sample[int((need - 0.5) / whole * size)]
        less, more, below, above = 0, 0, 0, 0
        for j in range(count):
            x, w = key[j], 1
            key[less] = x
            spare[more] = x
            if weight is not None:
                w = weights[j]
                weights[less] = w
                spare_weights[more] = w
            below += w if x < pivot else 0
            above += w if x > pivot else 0
            less += x < pivot
            more += x > pivot
        if need <= below:
            count, whole = less, below
        elif need <= whole - above:
            return pivot
        else:
            need -= whole - above
            count, whole = more, above
            key, spare = spare, key
            weights, spare_weights = spare_weights, weights


@njit_exact
def _blocks_ready(plan, order, bound, arrival):
    ready = 0.0
    key = np.empty_like(arrival)
    for b in range(plan.need.size):
        if plan.need[b] == 0:
            continue
        later = np.int64(0)  # a literal 0 would have _select compiled once more
        for m in order[bound[b] : bound[b + 1]]:
            key[later] = arrival[m]
            later += arrival[m] > ready
        lacking = plan.need[b] - (bound[b + 1] - bound[b] - later)
        if lacking > 0:
            ready = _select(key[:later], None, later, lacking)
    return ready


@njit_exact
def _in_groups(group, count):
    """Messages in order of their groups, and where each group begins."""
    bound = np.zeros(count + 1, np.int64)
    for c in group:
        bound[c + 1] += 1
    for c in range(count):
        bound[c + 1] += bound[c]
    order, at = np.empty(group.size, np.int64), bound.copy()
    for m in range(group.size):
        order[at[group[m]]] = m
        at[group[m]] += 1
    return order, bound


@njit_exact
def _cells_ready(plan, arrival):
    earliest = np.full(plan.need.size, np.inf)
    for m in range(arrival.size):
        c = plan.group[m]
        earliest[c] = arrival[m] if arrival[m] < earliest[c] else earliest[c]
    if plan.total <= 0:
        return 0.0
    return _select(earliest, plan.need.copy(), plan.need.sum(), plan.total)


@njit_exact
def _root(parent, point):
    while parent[point] != point:
        parent[point] = parent[parent[point]]
        point = parent[point]
    return point


@njit_exact
def _tiling_ready(plan, arrival):
    first, last = np.int64(0), plan.total
    parent = np.arange(last + 1)
    ready = 0.0
    for m in np.argsort(arrival):
        if _root(parent, first) == _root(parent, last):
            return ready
        parent[_root(parent, plan.group[m])] = _root(parent, plan.other[m])
        ready = arrival[m]
    return ready if _root(parent, first) == _root(parent, last) else np.inf


@njit_exact
def _side(parent, sign, vertex):
    side = np.int64(1)
    while parent[vertex] != vertex:
        side *= sign[vertex]
        vertex = parent[vertex]
    return vertex, side


@njit_exact
def _edges_ready(plan, arrival, latest):
    parent, odd = np.arange(plan.total), np.zeros(plan.total, np.bool_)
    sign, size, more = np.ones((3, plan.total), np.int64)
    lacking = plan.total
    for m in np.argsort(arrival):
        if arrival[m] > latest:
            break
        u, one = _side(parent, sign, plan.group[m])
        v, other = _side(parent, sign, plan.other[m])
        lacking -= more[u] != 0 and not odd[u]
        if u == v:
            odd[u] |= one == other
        else:
            lacking -= more[v] != 0 and not odd[v]
            if size[u] < size[v]:
                u, v = v, u
            parent[v], sign[v] = u, -one * other
            size[u] += size[v]
            more[u] += sign[v] * more[v]
            odd[u] |= odd[v]
        lacking += more[u] != 0 and not odd[u]
        if lacking == 0:
            return arrival[m]
    return np.inf


@njit_exact
def _span_ready(plan, arrival, latest):
    width = plan.spare.shape[1]
    basis, held, square = np.empty((width, width)), 0, 0.0
    in_order = np.argsort(arrival)
    for at in range(arrival.size - 1, -1, -1):
        m = in_order[at]
        row = basis[held]
        row[:] = plan.spare[m]
        for _ in range(2):  # one pass leaves the rounding errors of what it subtracts
            for b in range(held):
                along = 0.0
                for j in range(1, width):
                    along += basis[b, j] * row[j]
                for j in range(width):
                    row[j] -= along * basis[b, j]
            square = 0.0
            for j in range(1, width):
                square += row[j] * row[j]
        if square > ZERO * ZERO:
            row /= math.sqrt(square)
            held += 1
        elif abs(row[0]) > SOLVED:
            return arrival[m] if arrival[m] <= latest else np.inf
    return 0.0


@njit_exact
def completion(plan, delay, work, late, receive, overhead, interrupted, out):
    """Simulate rounds: see ``kernels.unchecked.completion``."""
    n, rounds = plan.loads.size, work.shape[0]
    if delay.shape != work.shape or work.shape[1] != n or late.size != n:
        raise ValueError("delay, work and late must be of every worker, and of as many rounds")
    if min(out.time.size, out.messages.size, out.workers.size, out.computations.size) < rounds:
        raise ValueError("there must be room for every round in out")
    arrival = np.empty(plan.share.size)
    if plan.kind == BLOCKS:
        order, bound = _in_groups(plan.group, plan.need.size)
    for r in range(rounds):
        for i in range(n):
            for m in range(plan.first[i], plan.first[i + 1]):
                arrival[m] = late[i] + delay[r, i] + work[r, i] * plan.share[m]
        latest = np.inf
        if plan.wait > 0:
            latest = np.sort(arrival[plan.first[1:] - 1])[plan.wait - 1]
        if plan.kind == BLOCKS:
            ready = _blocks_ready(plan, order, bound, arrival)
        elif plan.kind == CELLS:
            ready = _cells_ready(plan, arrival)
        elif plan.kind == TILING:
            ready = _tiling_ready(plan, arrival)
        elif plan.kind == EDGES:
            ready = _edges_ready(plan, arrival, latest)
        else:
            ready = _span_ready(plan, arrival, latest)
        ready = min(ready, latest)

        heard, senders, done = 0, 0, 0
        for i in range(n):
            sent = 0
            for m in range(plan.first[i], plan.first[i + 1]):
                sent += arrival[m] <= ready
            heard += sent
            senders += sent > 0
            since = ready - (late[i] + delay[r, i])
            part = 1.0 if since >= 0 else 0.0
            if 0 <= since < work[r, i]:
                part = since / work[r, i]
            if sent:  # `since` may have lost digits: see `computed` in csrc/rounds.c
                part = max(part, plan.share[plan.first[i] + sent - 1])
            done += math.floor(plan.loads[i] * part + 1e-9)
        end = ready
        if receive > 0:
            heard_at = arrival[arrival <= ready]
            in_order = heard_at[np.argsort(heard_at)]  # argsort, which is compiled already
            for j in range(heard):
                end = max(end, in_order[j] + (heard - j) * receive)
        out.time[r], out.messages[r] = end, heard
        out.workers[r], out.computations[r] = senders, done
        if interrupted:
            continue
        end += overhead
        for i in range(n):
            free_at = late[i]
            for m in range(plan.first[i], plan.first[i + 1]):
                if free_at > end:
                    break
                free_at = arrival[m]
            late[i] = free_at - end if free_at > end else 0.0


_from_bits = bits_as(types.uint64, types.float64)
_bits_of = bits_as(types.float64, types.uint64)


@njit_exact
def _mixed(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit_exact
def _exponential(random):
    u = 2 - _from_bits((random >> np.uint64(12)) | _ONE) - 2.0**-53
    bits = _bits_of(u)
    e = (bits + (_ONE - _ROOT)) >> np.uint64(52)
    exponent = _from_bits(e | _WHOLE) - (2.0**52 + 1023)
    m = _from_bits(bits + _ONE - (e << np.uint64(52)))
    s = (m - 1) / (m + 1)
    z = s * s
    p = 0.0
    for each in _LOG:
        p = p * z + each
    return -(exponent * _LN2_HIGH + (2 * s + (s * z * p + exponent * _LN2_LOW)))


@njit_exact
def _power_of_e(x):
    shifted = x * 1.4426950408889634 + 1.5 * 2.0**52
    k = shifted - 1.5 * 2.0**52
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    q = 0.0
    for each in _EXP:
        q = q * r + each
    p = 1 + (r + r * r * q)
    return _from_bits(_bits_of(p) + (_bits_of(shifted) << np.uint64(52)))


@njit_exact
def draw(delays, first, wait, whole):
    """Draw rounds: see ``kernels.unchecked.draw``."""
    rounds, n = wait.shape
    if whole.shape != wait.shape or delays.shift.size < n or delays.given.shape[1] != n:
        raise ValueError("wait and whole must be of every worker, and of as many rounds")
    given = delays.given.shape[0] > 0
    if given and delays.given.shape[0] < rounds:
        raise ValueError("delays must be given of every round")
    counter = delays.key + np.uint64(first) * np.uint64(n) * _STEP
    for r in range(rounds):
        for i in range(n):
            counter += _STEP
            random = _mixed(counter)
            apart = 1 + (_from_bits(((random << np.uint64(32)) >> np.uint64(12)) | _ONE) - 1) * (
                2.0**-40
            )
            if given:
                time = delays.given[r, i]
            else:
                h = _exponential(random)
                if delays.power[i] > 0:
                    h = _power_of_e(h * delays.power[i])
                time = delays.shift[i] + delays.scale[i] * h
            wait[r, i] = time * delays.onset * apart
            whole[r, i] = (time * delays.load[i] + delays.work[i]) * apart
