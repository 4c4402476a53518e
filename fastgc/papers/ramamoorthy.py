"""Ramamoorthy, Meng, Girimaji 2024: gradient coding where partial work counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, permutations, product
from math import sqrt

import numpy as np

from .._base.arrays import Floats, Ints, at_least
from .._base.extras import one_thread_of_blas
from ..codes import PartialWork, Uncoded
from ..delays import Exponential
from ..planning.simulation import covered_mean, simulate
from ..plotting.panels import Line, Panel
from .figure import ROUNDS, Part, Row, Track, figure, gallery, positive

CLAIM, EXACT, NEAR = (
    partial(Row, f"ramamoorthy2024 figure 3{part}") for part in ("", "(b)", "(a)")
)
DELAYS = Exponential(1.0)  # time of a computation
FASTER = 2.0  # the abstract says "around"
SMALL = (4, 2)  # workers and load of assignments for which all orders are tried
ENOUGH, NEAREST, GRAPHS = 4000, 200, 10  # rounds at most, for times and least squares; graphs
ASKED = 2000  # rounds in which messages are counted, at most
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
# Mean norms of the rest that is left out at each time, of 1,000 rounds in experiment_result.pkl: by
# optimal decoding of whole messages, for 200 and 300 workers; and by partial work of 200 workers.
TIMES = (3, 6, 9, 12, 15, 18, 21, 24)
STORED_NEAREST = {
    200: (5.8844, 3.4482, 2.2332, 1.5129, 1.0673, 0.7836, 0.5942, 0.4711),
    300: (7.1910, 4.2035, 2.6792, 1.7954, 1.2346, 0.8805, 0.6459, 0.4928),
}
# By l and time; only those with a standard error of 4% or less.
STORED_PARTIAL = {(2, 3): 1.4772, (3, 3): 4.3428, (3, 6): 0.5376}

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


def _speeds(rng: np.random.Generator, rounds: int, n: int, failed: int) -> Floats:
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
        speed = _speeds(rng, min(step, rounds - at), n, failed)[:, worker]
        for kind, size in enumerate((place, whole)):
            done = speed * size
            each = [np.partition(done[:, mine], copies - 1, axis=1)[:, copies - 1] for mine in of]
            times[kind, at : at + step] = np.max(each, axis=0)
    return times[0], times[1]


def uncovered_norms(
    held: Held, copies: int, time: float, rounds: int, seed: int, failed: int = 0
) -> Floats:
    """Return, for each round, the norm of what partial work leaves out at time `time`.

    Partial gradients have norm 1 and random directions. The gradient has `copies` pieces; for a
    partition that was computed c times, ``copies - c`` of them are left out. Parameters as in
    `completion_times`.
    """
    n = len(held)
    speed = _speeds(np.random.default_rng(seed), rounds, n, failed)
    through = np.floor(time / speed).astype(np.int64)
    counted = np.zeros((rounds, n), dtype=np.int64)
    for i, mine in enumerate(held):
        for place, partition in enumerate(mine, 1):
            counted[:, partition] += through[:, i] >= place
    norms: Floats = np.sqrt(np.maximum(copies - counted, 0).sum(axis=1))
    return norms


def best_of_all_orders(held: Held, k: int) -> int:
    """Return the fewest computations that always suffice, over all orders; for few workers only."""
    n = len(held)
    orders = product(*(permutations(mine) for mine in held))
    thresholds = (PartialWork(n, k, assignment=o, ordered=False).threshold for o in orders)
    return min(thresholds)


@figure(
    "ramamoorthy-3", "Ramamoorthy et al., figure 3: exact and inexact gradients, with partial work"
)
def figure_3(
    *, n: int = WORKERS, load: int = LOAD, seed: int = 0, rounds: int = ROUNDS, track: Track = iter
) -> Iterator[Part]:
    """Time of exact gradients, and error of inexact ones, with and without partial work.

    Sizes and the law of the speeds are the authors'. Graphs are drawn by their law, but are other
    graphs. In the assignment by a random regular graph, load - ℓ workers have failed and never
    answer; for inexact gradients it is load - 1. With another n or load, 2 <= load < n, there are
    no numbers to compare with. Completion times have at most 4,000 rounds, least squares 200.
    """
    n, load = at_least("n", n, 3), at_least("load", load, 2)
    if load >= n:
        raise ValueError(f"load must be below n={n}, not {load}")
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
    with one_thread_of_blas():
        for kind, order in orders.items():
            found = np.empty((len(copies), 3))
            mixed = rng.permuted(np.array(order), axis=1).tolist()
            failed = (kind == "random regular") * load
            for some in track(list(copies)):
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
        yield from _on_request(n, load, seed, min(rounds, ENOUGH))
        for label, times, stored in zip(
            KINDS, mean["random regular"].T, np.transpose(STORED["random regular"]), strict=True
        ):
            lines.append(Line(label, list(copies), times, "points"))
            if theirs:
                lines.append(Line(label, copies, stored))
        title = f"Random regular graph, N = m = {n}, {load} chunks each"
        x, y = "ℓ: each chunk ℓ times, messages of 1/ℓ", "mean completion time"
        yield Panel(title + " (lines: the authors)" * theirs, x, y, lines)
        if theirs:
            yield from _near(regular, seed, rounds, track)


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


def _near(order: Held, seed: int, rounds: int, track: Track) -> Iterator[Part]:
    """Yield what is left out at each time: by optimal decoding of messages, and by partial work."""
    lines = []
    few = min(max(rounds // 20, GRAPHS), NEAREST)
    note = (
        f"norm, mean of {few} rounds on {min(few, GRAPHS)} random graphs, which differ by about 5% "
        "in what is left out at the latest times; the authors stored 1,000 rounds of one graph"
    )
    for n, stored in STORED_NEAREST.items():
        whole = LOAD * _speeds(np.random.default_rng(seed), few, n, LOAD - 1)
        norms = np.zeros(len(TIMES))
        for i in track(range(min(few, GRAPHS))):
            code = gallery("expander").ExpanderCode(n, load=LOAD, wait=1, seed=seed + i)
            for times in whole[i::GRAPHS]:
                norms += [code.residual(np.flatnonzero(times <= time)) for time in TIMES]
        norms *= sqrt(n) / few
        for time, norm, theirs in zip(TIMES, norms.tolist(), stored, strict=True):
            what = f"optimal decoding of whole messages, n = {n}, T = {time}"
            yield NEAR(what, norm, theirs, note=note)
        label = f"whole messages, n = {n}"
        lines += [Line(label, TIMES, norms, "points"), Line(label, TIMES, stored)]

    def left_out(copies: int, time: float) -> float:
        norms = uncovered_norms(order, copies, time, min(rounds, ENOUGH), seed, LOAD - 1)
        return float(norms.mean())

    note = "norm; the authors stored 1,000 rounds, with a standard error of up to 4%"
    for (copies, time), norm in STORED_PARTIAL.items():
        what = f"partial work, n = {WORKERS}, ℓ = {copies}, T = {time}"
        yield NEAR(what, left_out(copies, time), norm, note=note)
    for copies in (1, 2, 3):
        partly = [left_out(copies, time) for time in TIMES]
        lines.append(positive(f"partial work, ℓ = {copies}", TIMES, partly, "points", least=0))
    title = "What is left out at a time T (lines: the authors)"
    x = "T (a computation takes 1 on average)"
    yield Panel(title, x, "norm of what is left out", lines, log_y=True)


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


def _on_request(n: int, load: int, seed: int, rounds: int) -> Iterator[Row]:
    """Yield rounds of sums on request with the circular assignment, beside UC-MMC."""
    code, other = PartialWork(n, load=load), Uncoded(n, load=load)
    some = min(rounds, ASKED)
    asked, sent = (simulate(each, DELAYS, rounds=some, seed=seed) for each in (code, other))
    times = simulate(code, DELAYS, rounds=rounds, seed=seed, method="kernel")
    yield CLAIM(
        "mean completion time (s), circular assignment, ℓ = 1",
        times.mean,
        closed=covered_mean(n, load, DELAYS),
        note="the law is ours: fastgc.simulation.covered_mean",
    )
    yield CLAIM(
        "time of partial work over that of UC-MMC, which sends every gradient",
        asked.mean / sent.mean,
        closed=1.0,
        note=f"{some} rounds; round trips take no time here",
    )
    yield CLAIM(
        "messages of partial work for each worker",
        asked.mean_messages / n,
        note=f"of UC-MMC {sent.mean_messages / n:.2f}; at most 1",
    )
