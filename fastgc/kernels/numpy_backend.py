"""The kernels in NumPy: the oracle of the other two, and the fallback."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .completion import BLOCKS, CELLS, Completion, CompletionPlan
from .cyclic import (
    LOCATOR,
    LOOKUP,
    SPREAD,
    CyclicPlan,
    CyclicStream,
    CyclicTables,
    Decode,
    Status,
    StreamCalls,
    Where,
)
from .fourier import Polar
from .rows import LARGEST_GROUP, PACKED, REAL, REAL_PART, CombinePart, Rows

__all__ = [
    "amsgrad",
    "bind_combine",
    "bind_decoding_vector",
    "bind_polar",
    "bind_stream",
    "bind_survivor_mask",
    "combine",
    "completion",
    "decoding_vectors",
    "lagrange_basis",
    "lagrange_products",
    "leja_order",
    "nesterov",
    "replace",
    "sgd",
    "solve_vandermonde",
    "square_distance",
    "square_sum",
]

_RUN = 32  # factors between two normalisations; see csrc/cyclic.c


def _cyclic_product(
    table: NDArray[np.float64], m: int, index: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Mantissa and binary exponent of ``prod_j table[m + i - index[j]]``, i = 0 .. m-1."""
    product, exponent = np.ones(m), np.zeros(m, dtype=np.int64)
    slices = np.lib.stride_tricks.sliding_window_view(table, m)  # row m - j starts at t = -j
    for at in range(0, index.size, _RUN):
        product *= np.multiply.reduce(slices[m - index[at : at + _RUN]], axis=0)
        product, shift = np.frexp(product)
        exponent += shift
    return product, exponent


def _turn(
    tables: CyclicTables,
    b: int,
    lookup: bool,
    count: int,
    total: int,
    product: NDArray[np.float64],
    exponent: NDArray[np.int64],
) -> NDArray[np.complex128]:
    """Entries from the products over `count` workers with this sum of their indices."""
    m, q = product.size, int(tables.q[b])
    # locator: factors 2 sin * exp(i (theta - pi/2)) over the stragglers, and 1/m;
    # lookup: their inverses over the other survivors
    sign, factors = (-1, count - 1) if lookup else (1, count)
    turn = sign * q * (count * np.arange(m) - total) % (2 * m)
    at = tables.phase_offset[b]
    phase = tables.phase[at : at + 4 * m].view(np.complex128)[turn]
    quarter = (1, 1j, -1, -1j)[-sign * factors % 4]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        magnitude = np.ldexp(product / (1 if lookup else m), exponent)
        return np.asarray(magnitude * (phase * quarter))


def _decode_block(
    tables: CyclicTables, b: int, method: int, present: NDArray[np.bool_]
) -> NDArray[np.complex128]:
    m, lookup = present.size, method == LOOKUP
    index = np.flatnonzero(present if lookup else ~present)
    at = tables.offset[b]
    table = (tables.cosecant if lookup else tables.sine)[at : at + 2 * m]
    product, exponent = _cyclic_product(table, m, index)
    return _turn(tables, b, lookup, index.size, int(index.sum()), product, exponent)


def _keep_spread(
    sine: NDArray[np.float64], need: int, present: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """The `need` survivors that are spread best, in Leja order; see csrc/decoding.c."""
    m = present.size
    kept = np.zeros(m, dtype=np.bool_)
    score = present.astype(float)
    for _ in range(need):
        best, largest = -1, 0.0
        for i in np.flatnonzero(score > 0):
            if score[i] > largest * (1 + 1e-9):
                best, largest = int(i), score[i]
        if best < 0:
            best = int(np.flatnonzero(present & ~kept)[0])
        kept[best] = True
        score *= np.abs(sine[m - best : 2 * m - best]) * (1 / largest if largest > 0 else 1.0)
    return kept


def _spread_block(
    tables: CyclicTables, b: int, present: NDArray[np.bool_]
) -> NDArray[np.complex128]:
    need, m, count = int(tables.need[b]), present.size, np.count_nonzero(present)
    value = _decode_block(tables, b, LOOKUP if 2 * count < m else LOCATOR, present)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sum(np.abs(value[present]) ** 2))
    if count == need or norm <= 1 + 1e-9:
        return value
    at = tables.offset[b]
    kept = _keep_spread(tables.sine[at : at + 2 * m], need, present)
    value = _decode_block(tables, b, LOOKUP if 2 * need < m else LOCATOR, kept)
    return np.where(kept, value, 0)


def _mark(
    plan: CyclicPlan, survivors: NDArray[np.int64], present: NDArray[np.bool_]
) -> tuple[Status, int]:
    """Check and mark survivors."""
    inside = (survivors >= 0) & (survivors < plan.workers)
    present[:] = False
    present[survivors[inside]] = True
    if np.count_nonzero(present) < survivors.size:
        fault = np.ones(survivors.size, dtype=bool)
        fault[np.unique(survivors, return_index=True)[1]] = False
        at = int(np.argmax(fault | ~inside))
        return (Status.DUPLICATE if inside[at] else Status.OUT_OF_RANGE), at
    missing = _missing(plan.tables, present)
    return (Status.TOO_FEW if missing else Status.OK), missing


def _missing(tables: CyclicTables, present: NDArray[np.bool_]) -> int:
    missing = tables.need - np.add.reduceat(present, tables.start[:-1], dtype=np.int64)
    return int(missing[missing > 0].sum())


def _decode_marked(
    tables: CyclicTables, method: int, present: NDArray[np.bool_]
) -> NDArray[np.complex128]:
    """The entries of all workers."""
    blocks = [present[lo:hi] for lo, hi in pairwise(tables.start)]
    if method == SPREAD:
        return np.concatenate([_spread_block(tables, b, block) for b, block in enumerate(blocks)])
    return np.concatenate(
        [_decode_block(tables, b, method, block) for b, block in enumerate(blocks)]
    )


def _finite(out: NDArray[np.complex128]) -> tuple[Status, int]:
    beyond = np.flatnonzero(~np.isfinite(out))
    return (Status.OVERFLOW, int(beyond[-1])) if beyond.size else (Status.OK, 0)


def bind_decoding_vector(
    plan: CyclicPlan, survivors: NDArray[np.int64], out: NDArray[np.complex128]
) -> tuple[Decode, Where]:
    """See `fastgc.kernels.bind_decoding_vector`."""
    present, where = np.empty(plan.workers, dtype=np.bool_), [0]

    def decode(method: int, f: int) -> int:
        status, where[0] = _mark(plan, survivors[:f], present)
        if status == Status.OK:
            out[:f] = _decode_marked(plan.tables, method, present)[survivors[:f]]
            status, where[0] = _finite(out[:f])
        return status

    return decode, where


def bind_polar(
    plan: CyclicPlan,
    survivors: NDArray[np.int64],
    present: NDArray[np.bool_],
    size: NDArray[np.float64],
    out: NDArray[np.complex128],
) -> Polar:
    """See `fastgc.kernels.fourier.Polar`."""
    tables, where = plan.tables, [0]

    def mark(f: int) -> int:
        status, where[0] = _mark(plan, survivors[:f], present)
        return status

    def write(f: int) -> int:
        value = np.empty(plan.workers, dtype=np.complex128)
        for b, (lo, hi) in enumerate(pairwise(tables.start)):
            q, m, lost = int(tables.q[b]), int(hi - lo), np.flatnonzero(~present[lo:hi])
            # With theta = pi r / m for the residues r = q (i-j) mod m all sines are positive, and
            # the angles add up: sum r = s x - sum y + m #{y > x}, x = q i mod m, y = q j mod m.
            x, y = q * np.arange(m) % m, np.sort(q * lost % m)
            above = y.size - np.searchsorted(y, x, side="right")
            turn = (y.size * x - y.sum() + m * above) % (2 * m)
            at = tables.phase_offset[b]
            phase = tables.phase[at : at + 4 * m].view(np.complex128)[turn]
            with np.errstate(invalid="ignore"):
                value[lo:hi] = size[lo:hi] * (phase * (1, -1j, -1, 1j)[y.size % 4])
        out[:f] = value[survivors[:f]]
        status, where[0] = _finite(out[:f])
        return status

    return Polar(mark, write, where)


def bind_stream(plan: CyclicPlan, stream: CyclicStream) -> StreamCalls:
    """See `fastgc.kernels.bind_stream`."""
    tables = plan.tables
    start = tables.start.tolist()
    where = [0]

    def rebuild() -> None:
        for b, (lo, hi) in enumerate(pairwise(start)):
            m, q, at = hi - lo, int(tables.q[b]), tables.offset[b]
            lost = np.flatnonzero(stream.away[lo:hi])
            if 2 * lost.size > m:  # over all, without the others; see csrc/decoding.c
                kept = np.flatnonzero(~stream.away[lo:hi])
                product, exponent = _cyclic_product(tables.cosecant[at : at + 2 * m], m, kept)
                odd = (m - 1) * (q + 1) // 2 + q * np.arange(m)
                product *= np.where(odd % 2, -m, m)
            else:
                product, exponent = _cyclic_product(stream.factor[at : at + 2 * m], m, lost)
            stream.product[lo:hi], stream.exponent[lo:hi] = product, exponent
            stream.lost[b], stream.lost_sum[b] = lost.size, lost.sum()

    def step(worker: int, away: bool) -> None:
        b = int(np.searchsorted(tables.start, worker, side="right")) - 1
        lo, hi = start[b], start[b + 1]
        m, j, at = hi - lo, worker - lo, tables.offset[b]
        table = (stream.factor if away else tables.cosecant)[at : at + 2 * m]
        product, shift = np.frexp(stream.product[lo:hi] * table[m - j : 2 * m - j])
        stream.product[lo:hi] = product
        stream.exponent[lo:hi] += shift
        stream.lost[b] += 1 if away else -1
        stream.lost_sum[b] += j if away else -j
        stream.away[worker] = away

    def vector(survivors: NDArray[np.int64], out: NDArray[np.complex128]) -> int:
        missing = tables.need - (np.diff(tables.start) - stream.lost)
        if (missing > 0).any():
            where[0] = int(missing[missing > 0].sum())
            return Status.TOO_FEW
        value = np.empty(plan.workers, dtype=np.complex128)
        for b, (lo, hi) in enumerate(pairwise(start)):
            of = int(stream.lost[b]), int(stream.lost_sum[b])
            product, exponent = stream.product[lo:hi], stream.exponent[lo:hi]
            value[lo:hi] = _turn(tables, b, False, *of, product, exponent)
        out[:] = value[survivors]
        status, where[0] = _finite(out)
        return status

    return StreamCalls(rebuild, lambda i: step(i, True), lambda i: step(i, False), vector, where)


def decoding_vectors(
    plan: CyclicPlan,
    masks: NDArray[np.bool_],
    method: int,
    out: NDArray[np.complex128],
    where: NDArray[np.int64],
) -> None:
    """See `fastgc.kernels.decoding_vectors`."""
    for r, present in enumerate(masks):
        where[r] = _missing(plan.tables, present)
        if not where[r]:
            value = _decode_marked(plan.tables, method, present)
            out[r] = np.where(present, value, 0)
            where[r] = -(_finite(out[r])[0] != Status.OK)


def bind_survivor_mask(
    n: int, survivors: NDArray[np.int64], bits: NDArray[np.uint8]
) -> Callable[[int], int]:
    """See `fastgc.kernels.bind_survivor_mask`."""

    def mask(f: int) -> int:
        chosen = survivors[:f]
        if ((chosen < 0) | (chosen >= n)).any():
            return 1
        present = np.zeros(n, dtype=np.bool_)
        present[chosen] = True
        bits[:] = np.packbits(present, bitorder="little")
        return int(np.count_nonzero(present) < f)

    return mask


def combine(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    out: NDArray[Any],
    lo: int,
    hi: int,
    accumulate: bool,
    check: bool,
) -> bool:
    """See `fastgc.kernels.combine`; always all elements, whatever `lo` and `hi`."""
    size = hi // 2 if mode == PACKED else hi
    total: NDArray[Any] = np.zeros(size, dtype=np.float64 if mode == REAL else np.complex128)
    scaled, group = np.empty_like(total), np.zeros_like(total)
    with np.errstate(over="ignore", invalid="ignore"):
        for r, (a, row) in enumerate(zip(coef, rows.arrays, strict=False), 1):
            if mode == PACKED:
                whole = row.size // 2
                wide = row.astype(np.float64, copy=False)
                np.multiply(wide[: 2 * whole].view(np.complex128), a, out=scaled[:whole])
                scaled[whole:] = a * wide[2 * whole] if row.size % 2 else 0
            else:
                np.multiply(row.astype(np.result_type(row, np.float64), copy=False), a, out=scaled)
            group += scaled
            if r % LARGEST_GROUP == 0 or r == coef.size:
                total += group
                group[:] = 0
        result: NDArray[Any]
        if mode == PACKED:
            result = total.view(np.float64)[: out.size]
        else:
            result = total.real if mode == REAL_PART else total
        np.copyto(out, out + result if accumulate else result, casting="same_kind")
    return not check or bool(np.isfinite(out).all())


def bind_combine(
    mode: int,
    rows: Rows,
    numbers: NDArray[np.int64],
    coef: NDArray[Any],
    out: NDArray[Any],
    accumulate: bool,
    check: bool,
) -> CombinePart:
    """See `fastgc.kernels.bind_combine`."""

    def part(count: int, lo: int, hi: int) -> int:
        used = np.flatnonzero(coef[:count])
        chosen = rows.select(numbers[used])
        finite = combine(mode, chosen, coef[used], out, lo, hi, accumulate, check)
        return Status.OK if finite else Status.NOT_FINITE

    return part


def square_sum(x: NDArray[Any]) -> float:
    """See `fastgc.kernels.square_sum`."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.square(x, dtype=np.float64).sum())


def sgd(
    theta: NDArray[Any],
    velocity: NDArray[Any] | None,
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """See `fastgc.kernels.sgd`."""
    real, before = theta.dtype.type, theta.copy()
    with np.errstate(all="ignore"):
        if velocity is None:
            theta -= real(lr) * gradient
        else:
            velocity[:] = real(momentum) * velocity - real(lr) * gradient
            theta += velocity
    return square_distance(theta, before)


def nesterov(
    theta: NDArray[Any],
    point: NDArray[Any],
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """See `fastgc.kernels.nesterov`."""
    real, before = theta.dtype.type, point.copy()
    with np.errstate(all="ignore"):
        following = point - real(lr) * gradient
        point[:] = following + real(momentum) * (following - theta)
    theta[:] = following
    return square_distance(point, before)


def amsgrad(
    theta: NDArray[Any],
    h: NDArray[Any],
    v: NDArray[Any],
    gradient: NDArray[Any],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> float:
    """See `fastgc.kernels.amsgrad`."""
    real, before = theta.dtype.type, theta.copy()
    with np.errstate(all="ignore"):
        h[:] = real(beta1) * h + real(1 - beta1) * gradient
        np.maximum(v, real(beta2) * v + real(1 - beta2) * (gradient * gradient), out=v)
        theta -= real(lr) * h / np.sqrt(real(epsilon) + v)
    return square_distance(theta, before)


def replace(old: NDArray[Any], new: NDArray[Any], total: NDArray[Any] | None) -> float:
    """See `fastgc.kernels.replace`."""
    moved = square_distance(new, old)
    if total is not None:
        with np.errstate(all="ignore"):
            total += new - old
    old[:] = new
    return moved


def square_distance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """See `fastgc.kernels.square_distance`."""
    with np.errstate(over="ignore", invalid="ignore"):
        return square_sum(np.subtract(x, y, dtype=np.float64))


def leja_order(nodes: NDArray[Any], order: NDArray[np.int64]) -> None:
    """See `fastgc.kernels.leja_order`."""
    with np.errstate(all="ignore"):
        x = nodes / _power_of_two(nodes)
        product, left = np.ones(x.size), np.ones(x.size, dtype=bool)
        chosen = np.argmax(np.abs(x))
        for k in range(x.size):
            order[k] = chosen
            left[chosen] = False
            product *= np.abs(x - x[chosen])
            if k % 8 == 7:  # a common factor changes nothing; nor does the order of the hopeless
                product = np.maximum(product / _power_of_two(product), 2.0**-900)
            chosen = np.argmax(np.where(left, product, -1.0))


def _power_of_two(x: NDArray[Any]) -> float:
    """The power of two at or below the largest modulus; 1 where all is zero."""
    largest = np.abs(x).max()
    return float(2.0 ** (np.frexp(largest)[1] - 1)) if 0 < largest < np.inf else 1.0


def solve_vandermonde(
    nodes: NDArray[Any],
    b: NDArray[Any],
    order: NDArray[np.int64] | None,
    transpose: bool,
    out: NDArray[Any],
    forced: bool,
) -> bool:
    """See `fastgc.kernels.solve_vandermonde`."""
    m = nodes.size
    if order is None:
        order = np.empty(m, dtype=np.int64)
        leja_order(nodes, order)
    x = nodes[order].reshape(-1, *[1] * (b.ndim - 1))
    c = b.copy() if transpose else b[order]
    with np.errstate(all="ignore"):
        if transpose:
            for k in range(m - 1):
                c[k + 1 :] -= x[k] * c[k:-1]
            for k in range(m - 2, -1, -1):
                c[k + 1 :] /= x[k + 1 :] - x[: m - k - 1]
                c[k:-1] -= c[k + 1 :]
        else:
            for k in range(m - 1):
                c[k + 1 :] = (c[k + 1 :] - c[k:-1]) / (x[k + 1 :] - x[: m - k - 1])
            for k in range(m - 2, -1, -1):
                c[k:-1] -= x[k] * c[k + 1 :]
    finite = bool(np.isfinite(nodes).all() and np.isfinite(c).all())
    if finite or forced:
        out[order if transpose else slice(None)] = c
    return finite


def lagrange_products(
    nodes: NDArray[Any],
    points: NDArray[Any],
    mantissa: NDArray[Any],
    exponent: NDArray[np.int64],
    hit: NDArray[np.int64],
) -> None:
    """See `fastgc.kernels.lagrange_products`."""
    mantissa[:] = 1.0
    exponent[:] = 0
    hit[:] = -1
    for at in range(0, nodes.size, 4):
        factors = points[:, None] - nodes[at : at + 4]
        row, column = np.nonzero(_larger_part(factors) < 2.0**-250)
        hit[row] = at + column
        factors[row, column] = 1.0
        mantissa *= factors.prod(axis=1)
        shift = np.frexp(_larger_part(mantissa))[1] - 1
        mantissa[:] = _ldexp(mantissa, -shift)
        exponent += shift


def _larger_part(x: NDArray[Any]) -> NDArray[Any]:
    size: NDArray[Any] = np.maximum(np.abs(x.real), np.abs(x.imag))
    return size


def _ldexp(x: NDArray[Any], exponent: NDArray[Any]) -> NDArray[Any]:
    exponent = np.clip(exponent, -4000, 4000).astype(np.intc)  # which ldexp takes
    scaled: NDArray[Any] = np.empty_like(x)
    with np.errstate(over="ignore", under="ignore"):
        scaled.real = np.ldexp(x.real, exponent)
        if np.iscomplexobj(x):
            scaled.imag = np.ldexp(x.imag, exponent)
    return scaled


def lagrange_basis(
    nodes: NDArray[Any],
    weights: NDArray[Any],
    weight_exponent: NDArray[np.int64],
    points: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """See `fastgc.kernels.lagrange_basis`."""
    mantissa, exponent = np.empty_like(points), np.empty(points.size, dtype=np.int64)
    hit = np.empty(points.size, dtype=np.int64)
    lagrange_products(nodes, points, mantissa, exponent, hit)
    difference = points[:, None] - nodes
    difference[hit >= 0] = 1.0
    quotient = mantissa[:, None] / difference * weights
    values = _ldexp(quotient, exponent[:, None] + weight_exponent)
    values[hit >= 0] = 0.0
    values[hit >= 0, hit[hit >= 0]] = 1.0
    out[...] = values if out.ndim == 2 else values.sum(axis=0)


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
    if plan.kind == BLOCKS:
        ready = _blocks_ready(plan, arrival)
    else:
        ready = _cells_ready(plan, arrival) if plan.kind == CELLS else _tiling_ready(plan, arrival)
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
