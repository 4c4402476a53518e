"""Ramamoorthy, Meng, Girimaji 2024: gradient coding where partial work counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, permutations, product

import numpy as np

from fastgc.codes import PartialWork
from fastgc.delays import Exponential
from fastgc.plotting import Line, Panel

from .figure import ROUNDS, Floats, Ints, Part, Row, figure

CLAIM, EXACT = (partial(Row, f"ramamoorthy2024 figure 3{part}") for part in ("", "(b)"))
DELAYS = Exponential(1.0)  # time of a computation
FASTER = 2.0  # the abstract says "around"
SMALL = (4, 2)  # workers and load of assignments for which all orders are tried
ENOUGH = 4000  # rounds at most
AT_ONCE = 1 << 20  # computations drawn at a time, of many rounds

# github.com/flamethrower775/Leveraging-partial-stragglers-within-gradient-coding
WORKERS, LOAD = 200, 8
KINDS = "only workers that are through", "partial work, random order", "partial work"
# Mean completion times in whole units of time, for l = 1, 2, 3 and each of `KINDS`: 2,000 rounds
# stored there in rand*.pkl and in exact_gc_results_cyclic.pkl.
STORED = {
    "random regular": ((6.6055, 3.4365, 2.856), (9.539, 5.1975, 4.4325), (12.651, 7.3605, 6.39)),
    "circular": ((5.594, 3.189, 2.553), (8.257, 4.8355, 3.9235), (10.9725, 6.754, 5.654)),
}

Held = Sequence[Sequence[int]]


def regular_assignment(n: int, load: int, rng: np.random.Generator) -> list[list[int]]:
    """Assign n partitions to n workers at random: `load` to each worker, each to `load` workers."""
    held: Ints = np.empty((n, 0), dtype=np.int64)
    while held.shape[1] < load:
        drawn = rng.permutation(n)
        clash = (drawn[:, np.newaxis] == held).any(axis=1)
        while clash.any():  # a worker that already holds its partition swaps with a random one
            i, j = np.flatnonzero(clash)[0], rng.integers(n)
            drawn[[i, j]] = drawn[[j, i]]
            clash = (drawn[:, np.newaxis] == held).any(axis=1)
        held = np.column_stack([held, drawn])
    mixed: list[list[int]] = rng.permuted(held, axis=1).tolist()
    return mixed


def drawn_speeds(rng: np.random.Generator, rounds: int, n: int, failed: int) -> Floats:
    """Draw seconds per computation of each worker; for `failed` random workers they are Inf."""
    speed: Floats = DELAYS.draw(rng, rounds, n)
    if failed:
        dead = np.argpartition(rng.random((rounds, n)), failed - 1, axis=1)[:, :failed]
        np.put_along_axis(speed, dead, np.inf, axis=1)
    return speed


def completion_times(
    held: Held, copies: int, rounds: int, seed: int, failed: int = 0
) -> tuple[Floats, Floats]:
    """Return when every partition was computed `copies` times, as two (rounds,) arrays of seconds.

    The first counts all computations, the second only those of workers that have finished. Each
    worker's computation takes an exponential time of mean 1, the same throughout a round. `held`
    has the partitions of each worker in the order of computation. `copies` is the paper's ℓ, the
    factor by which messages are shorter than gradients. In each round `failed` random workers never
    compute anything.
    """
    n, loads = len(held), [len(mine) for mine in held]
    worker, whole = np.repeat(np.arange(n), loads), np.repeat(loads, loads)
    place = np.concatenate([np.arange(1, load + 1) for load in loads])
    partition = np.concatenate([np.asarray(mine) for mine in held])
    of = [np.flatnonzero(partition == j) for j in np.unique(partition)]
    rng = np.random.default_rng(seed)
    step = max(1, AT_ONCE // worker.size)
    times = np.empty((2, rounds))
    for at in range(0, rounds, step):
        speed = drawn_speeds(rng, min(step, rounds - at), n, failed)[:, worker]
        for kind, size in enumerate((place, whole)):
            done = speed * size
            each = [np.partition(done[:, mine], copies - 1, axis=1)[:, copies - 1] for mine in of]
            times[kind, at : at + step] = np.max(each, axis=0)
    return times[0], times[1]


def best_of_all_orders(held: Held, k: int) -> int:
    """Return the fewest computations that always suffice, over all orders; for few workers only."""
    n = len(held)
    orders = product(*(permutations(mine) for mine in held))
    thresholds = (PartialWork(n, k, assignment=o, ordered=False).threshold for o in orders)
    return min(thresholds)


@figure("ramamoorthy-3", "Ramamoorthy et al., figure 3(b): exact gradients, with partial work")
def figure_3(
    *, n: int = WORKERS, load: int = LOAD, seed: int = 0, rounds: int = ROUNDS
) -> Iterator[Part]:
    """Time of exact gradients, with and without partial work.

    Sizes and the law of the speeds are the authors'. Graphs are drawn by their law, but are other
    graphs. In the assignment by a random regular graph, load - ℓ workers have failed and never
    answer. With another n or load, 2 <= load < n, there are no numbers to compare with. At most
    4,000 rounds are drawn.
    """
    if not 2 <= load < n:
        raise ValueError(f"load must be from 2 to below n={n}, not {load}")
    theirs = (n, load) == (WORKERS, LOAD)
    rng = np.random.default_rng(seed)
    held = regular_assignment(n, load, rng)
    code = PartialWork(n, assignment=held)
    circle = PartialWork(n, load=load)
    regular = [code.partitions(i).tolist() for i in range(n)]
    orders = {
        "random regular": regular,
        "circular": [circle.partitions(i).tolist() for i in range(n)],
    }
    copies, lines, mean = range(1, min(load, 3) + 1), [], {}
    for kind, order in orders.items():
        found = np.empty((len(copies), 3))
        mixed = rng.permuted(np.array(order), axis=1).tolist()
        failed = (kind == "random regular") * load
        for some in copies:
            few = min(rounds, ENOUGH), seed, max(failed - some, 0)
            ours, whole = completion_times(order, some, *few)
            random, _ = completion_times(mixed, some, *few)
            found[some - 1] = [np.ceil(times).mean() for times in (whole, random, ours)]
        mean[kind] = found
        yield from _completion_rows(kind, found, theirs)
    whole, random, ours = mean["random regular"].T
    yield CLAIM(
        "time by workers that are through over time by partial work, ℓ = 1",
        whole[0] / ours[0],
        FASTER if theirs else None,
        note="the abstract: around 2; the rounds that the authors stored: 2.31",
    )
    ratio = random[0] / ours[0]
    yield CLAIM("time in random order over time in the order found, ℓ = 1", ratio)
    yield from _orders(code, held)
    for label, times, stored in zip(
        KINDS, mean["random regular"].T, np.transpose(STORED["random regular"]), strict=True
    ):
        lines.append(Line(label, list(copies), times, "points"))
        if theirs:
            lines.append(Line(label, copies, stored))
    title = f"Random regular graph, N = m = {n}, {load} chunks each"
    x, y = "ℓ: each chunk ℓ times, messages of 1/ℓ", "mean completion time"
    yield Panel(title + " (lines: the authors)" * theirs, x, y, lines)


def _completion_rows(kind: str, found: Floats, theirs: bool) -> Iterator[Row]:
    """Yield the mean completion times of an assignment, in whole units."""
    note = "2,000 rounds that the authors stored"
    if kind == "circular":
        note += ", of an earlier notebook, in which no worker has failed"
    for some, times in enumerate(found.tolist(), 1):
        for at, (label, time) in enumerate(zip(KINDS, times, strict=True)):
            what = f"completion time, {kind} assignment, {label}, ℓ = {some}"
            stored = STORED[kind][some - 1][at] if theirs else None
            yield EXACT(what, time, stored, note=note if theirs else "")


def _orders(code: PartialWork, held: Held) -> Iterator[Row]:
    """Yield the gain by the order of computation, and whether a better order exists."""
    n, load = code.n, code.load
    few, each = SMALL
    pairs = list(combinations(range(few), each))
    small = [a for a in product(pairs, repeat=few) if (np.bincount(np.ravel(a)) == each).all()]
    found = sum(
        PartialWork(few, assignment=a).threshold == best_of_all_orders(a, few) for a in small
    )
    unordered = PartialWork(n, assignment=held, ordered=False).threshold
    yield CLAIM(
        "computations that always suffice, in the order found (Q_max of ℓ = 1)",
        code.threshold,
        closed=n * load - load * (load + 1) // 2 + 1,
        note=f"no order of a regular assignment needs fewer; in random order {unordered}",
    )
    yield CLAIM(
        f"regular assignments of {few} workers with {each} of {few} chunks whose order is best",
        found,
        closed=len(small),
        note="by trying all orders",
    )
