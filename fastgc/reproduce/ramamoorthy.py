"""Ramamoorthy, Meng, Girimaji 2024: exact gradient coding where partial work counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations, product

import numpy as np
from numpy.typing import NDArray

from .._arrays import at_least
from ..codes import PartialWork, Uncoded
from ..delays import ShiftedExponential
from ..panels import Line, Panel
from ..simulation import covered_mean, simulate
from .figure import ROUNDS, Figure, Row, Track

__all__ = ["best_of_all_orders", "completion_times", "figure_3", "regular_assignment"]

FIGURE = "ramamoorthy2024 figure 3"
DELAYS = ShiftedExponential(shift=0.01, rate=10)  # of a computation, by ours
FASTER = 2.0  # "around", in the abstract
SMALL = (4, 2)  # workers and load, of assignments whose orders are all tried
ASKED = 2000  # rounds at most in which messages are counted
AT_ONCE = 1 << 20  # computations of many rounds that are drawn together

Held = Sequence[Sequence[int]]


def regular_assignment(n: int, load: int, rng: np.random.Generator) -> list[list[int]]:
    """Of n workers and partitions, each worker holds `load` at random, and so many hold each."""
    held: NDArray[np.int64] = np.empty((n, 0), dtype=np.int64)
    while held.shape[1] < load:
        drawn = rng.permutation(n)
        clash = (drawn[:, np.newaxis] == held).any(axis=1)
        while clash.any():  # one of those that hold it already changes with anybody
            i, j = np.flatnonzero(clash)[0], rng.integers(n)
            drawn[[i, j]] = drawn[[j, i]]
            clash = (drawn[:, np.newaxis] == held).any(axis=1)
        held = np.column_stack([held, drawn])
    mixed: list[list[int]] = rng.permuted(held, axis=1).tolist()
    return mixed


def completion_times(
    held: Held, copies: int, delays: ShiftedExponential, rounds: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When every partition was computed so many times: by anybody; by workers that are through.

    Parameters
    ----------
    held : sequence of n sequences of int
        Partitions of each worker, in the order of computation.
    copies : int
        The paper's ℓ: messages are so many times shorter than gradients.
    delays : ShiftedExponential
        Of a computation, the same for all of a worker's in a round.
    rounds, seed : int

    Returns
    -------
    two (rounds,) arrays
        Seconds.
    """
    n = len(held)
    worker = np.repeat(np.arange(n), [len(mine) for mine in held])
    place = np.concatenate([np.arange(1, len(mine) + 1) for mine in held])
    whole = np.repeat([len(mine) for mine in held], [len(mine) for mine in held])
    partition = np.concatenate([np.asarray(mine) for mine in held])
    of = [np.flatnonzero(partition == j) for j in np.unique(partition)]
    rng = np.random.default_rng(seed)
    step = max(1, AT_ONCE // worker.size)
    times = np.empty((2, rounds))
    for at in range(0, rounds, step):
        speed = delays.draw(rng, min(step, rounds - at), n)[:, worker]
        for kind, size in enumerate((place, whole)):
            done = speed * size
            each = [np.partition(done[:, mine], copies - 1, axis=1)[:, copies - 1] for mine in of]
            times[kind, at : at + step] = np.max(each, axis=0)
    return times[0], times[1]


def best_of_all_orders(held: Held, k: int) -> int:
    """Computations that always suffice, by the best order: by trying all. For few workers."""
    n = len(held)
    orders = product(*(permutations(mine) for mine in held))
    thresholds = (PartialWork(n, k, assignment=o, ordered=False).threshold for o in orders)
    return min(thresholds)


def figure_3(
    *, n: int = 40, load: int = 5, seed: int = 0, rounds: int = ROUNDS, track: Track = iter
) -> Figure:
    """Completion time of exact gradient coding, and what the order of computation does to it.

    The sizes and the law of the speeds are ours: what is compared is that time falls to about half,
    as the abstract has it, and what can be proved.

    Parameters
    ----------
    n, load : int
        Workers, and partitions of each; 2 <= load < n.
    seed, rounds : int
        Of the simulation, and of the assignment, which is random.
    track : callable
        Wraps what is looped over.

    Raises
    ------
    ValueError
        If `load` or `rounds` is out of range, or `seed` negative.
    TypeError
        If an argument is not an integer.
    """
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    n, load = at_least("n", n, 3), at_least("load", load, 2)
    if load >= n:
        raise ValueError(f"load must be below n={n}, not {load}")
    rng = np.random.default_rng(seed)
    held = regular_assignment(n, load, rng)
    code = PartialWork(n, assignment=held)
    ordered = [code.partitions(i).tolist() for i in range(n)]
    copies = range(1, load + 1)
    mean = {}
    for some in track(list(copies)):
        ours, whole = completion_times(ordered, some, DELAYS, rounds, seed)
        random, _ = completion_times(held, some, DELAYS, rounds, seed)
        mean[some] = [float(times.mean()) for times in (whole, random, ours)]
    rows = [
        Row(
            FIGURE,
            f"time by workers that are through over time by partial work, ℓ = {some}",
            whole / ours,
            FASTER if some == 1 else None,
            note="the abstract: around 2; sizes and speeds are ours"
            if some == 1
            else "the larger ℓ, the more workers have to be through in any case",
        )
        for some, (whole, _, ours) in mean.items()
    ]
    rows += [
        Row(
            FIGURE,
            "time in random order over time in the order found, ℓ = 1",
            mean[1][1] / mean[1][2],
            note="the paper draws it, and prints no number that we know of",
        ),
        *_orders(code, held),
        *_on_request(n, load, seed, rounds),
    ]
    labels = ("only workers that are through", "partial work, random order", "partial work")
    panel = Panel(
        f"N = m = {n}, {load} chunks of each worker",
        "ℓ: each chunk ℓ times, messages of 1/ℓ",
        "mean completion time (s)",
        [
            Line(label, list(copies), [mean[some][at] for some in copies], "points")
            for at, label in enumerate(labels)
        ],
    )
    title = "Ramamoorthy et al., figure 3: completion time of exact gradient coding"
    return Figure("ramamoorthy-3", title, rows, [panel])


def _orders(code: PartialWork, held: Held) -> list[Row]:
    """What the order of computation is worth, and whether a better one exists."""
    n, load = code.n, code.load
    few, each = SMALL
    pairs = list(combinations(range(few), each))
    small = [a for a in product(pairs, repeat=few) if (np.bincount(np.ravel(a)) == each).all()]
    found = sum(
        PartialWork(few, assignment=a).threshold == best_of_all_orders(a, few) for a in small
    )
    unordered = PartialWork(n, assignment=held, ordered=False).threshold
    return [
        Row(
            FIGURE,
            "computations that always suffice, in the order found (Q_max of ℓ = 1)",
            code.threshold,
            closed=n * load - load * (load + 1) // 2 + 1,
            note=f"no order of a regular assignment needs fewer; in random order {unordered}",
        ),
        Row(
            FIGURE,
            f"regular assignments of {few} workers with {each} of {few} chunks whose order is best",
            found,
            closed=len(small),
            note="by trying all orders",
        ),
    ]


def _on_request(n: int, load: int, seed: int, rounds: int) -> list[Row]:
    """Rounds of sums on request, of the circular assignment, beside UC-MMC."""
    code, other = PartialWork(n, load=load), Uncoded(n, load=load)
    some = min(rounds, ASKED)
    asked = simulate(code, DELAYS, rounds=some, seed=seed)
    sent = simulate(other, DELAYS, rounds=some, seed=seed)
    times = simulate(code, DELAYS, rounds=rounds, seed=seed, method="kernel")
    return [
        Row(
            FIGURE,
            "mean completion time (s), circular assignment, ℓ = 1",
            times.mean,
            closed=covered_mean(n, load, DELAYS),
            note="the law is ours: fastgc.simulation.covered_mean",
        ),
        Row(
            FIGURE,
            "time of partial work over that of UC-MMC, which sends every gradient",
            asked.mean / sent.mean,
            closed=1.0,
            note=f"{some} rounds; round trips take no time here",
        ),
        Row(
            FIGURE,
            "messages of partial work for each worker",
            asked.mean_messages / n,
            note=f"of UC-MMC {sent.mean_messages / n:.2f}; at most 1",
        ),
    ]
