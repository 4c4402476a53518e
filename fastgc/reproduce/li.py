"""Li, Mousavi Kalan, Avestimehr, Soltanolkotabi 2017: recovery thresholds and running times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._arrays import at_least
from ..codes import Code, CouponCollector, CyclicRepetition, RandomAssignment, Uncoded
from ..codes.random_assignment import UncoveredError
from ..delays import Exponential, Heterogeneous, ShiftedExponential
from ..panels import Line, Panel
from ..planning.loads import balanced_loads, generalised_bcc
from ..simulation import closed_forms, simulate
from .figure import ROUNDS, Figure, Row, Track

__all__ = ["figure_2", "figure_5", "tables"]

PAPER = "li2017"
LOADS = (10, 20, 30, 40, 50)  # of figure 2
ASSIGNMENTS = 100  # random ones to average over
POINTS = 400  # of a distribution function drawn

# Figure 5: the shift of all workers, and the rates of 95 slow and 5 fast ones.
EXAMPLES, SHIFT, RATES = 500, 20.0, [1.0] * 95 + [20.0] * 5


class _Scenario(NamedTuple):
    """What a table says, of the uncoded scheme, cyclic repetition and BCC in this order."""

    name: str
    n: int
    thresholds: tuple[int, int, int]
    communication: tuple[float, float, float]  # seconds of 100 iterations
    computation: tuple[float, float, float]
    saved: tuple[float, float]  # of the running time of the first two, by BCC


SCENARIOS = (
    _Scenario(
        "table I",
        50,
        (50, 41, 11),
        (28.556, 12.031, 3.043),
        (0.230, 1.959, 1.162),
        (0.854, 0.699),
    ),
    _Scenario(
        "table II",
        100,
        (100, 91, 25),
        (31.567, 24.698, 7.246),
        (1.453, 4.784, 1.685),
        (0.730, 0.697),
    ),
)
SCHEMES = ("uncoded", "cyclic repetition", "BCC")
TABLE_LOAD = 10
ITERATIONS = 100


def _assignments(make: Callable[..., Code], count: int, seed: int) -> list[Code]:
    """The codes that cover all partitions, of so many seeds."""
    made = []
    for tried in range(seed, seed + count):
        try:
            made.append(make(seed=tried))
        except UncoveredError:
            continue
    return made


def _coverage(code: Code, done: NDArray[np.float64]) -> NDArray[np.float64]:
    """When the workers that are done hold all partitions, eq. (16).

    In the paper a worker sends all that it has when its work is done, also what it does not add up.

    Parameters
    ----------
    code : Code
    done : (n, rounds) array
        When each worker is done.
    """
    first = np.full((code.k, done.shape[1]), np.inf)
    for worker in range(code.n):
        held = code.partitions(worker)
        first[held] = np.minimum(first[held], done[worker])
    covered: NDArray[np.float64] = first.max(axis=0)
    return covered


def figure_2(
    *,
    m: int = 100,
    loads: Sequence[int] = LOADS,
    assignments: int = ASSIGNMENTS,
    seed: int = 0,
    rounds: int = ROUNDS,
    track: Track = iter,
) -> Figure:
    """Recovery threshold against computational load: simulated, and eqs. (2), (5) and (7).

    Parameters
    ----------
    m : int
        Partitions, and workers.
    loads : sequence of int
        Partitions per worker r.
    assignments : int
        Random assignments; those that do not cover all partitions are left out.
    seed, rounds : int
        Of the simulation; the rounds are divided among the assignments.
    track : callable
        Wraps what is looped over.

    Raises
    ------
    ValueError
        If `rounds` is not at least 1, or `seed` negative.
    TypeError
        If `rounds` or `seed` is not an integer.
    """
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    figure = f"{PAPER} figure 2"
    formulas: dict[str, Callable[[int, int], float]] = {
        "BCC": closed_forms.coupon_threshold,
        "random": closed_forms.random_threshold,
        "CR": closed_forms.mds_threshold,
    }
    heard: dict[str, list[float]] = {name: [] for name in formulas}
    rng = np.random.default_rng(seed)
    places = np.tile(np.arange(1.0, m + 1)[:, np.newaxis], -(-rounds // assignments))
    for load in track(loads):
        for name, kind in (("BCC", CouponCollector), ("random", RandomAssignment)):
            codes = _assignments(partial(kind, m, load=load), assignments, seed)
            # workers answer in random order: the last one needed has its place in it
            waits = [_coverage(code, rng.permuted(places, axis=0)).mean() for code in codes]
            heard[name].append(float(np.mean(waits)))
        heard["CR"].append(m - CyclicRepetition(m, stragglers=load - 1).stragglers)
    why = (
        "eq. (5) takes log m for the harmonic number, which is less, and partitions for picked "
        "one by one, while those of a worker are distinct, so that fewer workers suffice"
    )
    rows = [
        Row(
            figure,
            f"recovery threshold, {name}, r = {load}",
            mean,
            closed=formulas[name](m, load),
            note=why if name == "random" else "",
        )
        for name, means in heard.items()
        for load, mean in zip(loads, means, strict=True)
    ]
    lines = [Line("lower bound", loads, [closed_forms.least_threshold(m, r) for r in loads])]
    for name, means in heard.items():
        lines.append(Line(name, loads, [formulas[name](m, r) for r in loads]))
        lines.append(Line(name, loads, means, "points"))
    panel = Panel(
        f"m = n = {m} (lines: formulas, points: simulated)",
        "computational load r",
        "recovery threshold K",
        lines,
    )
    title = "Li et al., figure 2: recovery threshold against load"
    return Figure("li-2", title, rows, [panel])


def tables(
    *,
    assignments: int = ASSIGNMENTS,
    seed: int = 0,
    rounds: int = ROUNDS,
    track: Track = iter,
) -> Figure:
    """Running times the paper measured, against a model in which only messages take time.

    The time of a message on the master's link is fitted to the row of cyclic repetition; the other
    rows are predicted. Running times are those of the model and the computation times measured.

    Parameters
    ----------
    assignments : int
        Random assignments of BCC to average over.
    seed, rounds : int
        Of the simulation; the rounds are divided among the assignments.
    track : callable
        Wraps what is looped over.

    Raises
    ------
    ValueError
        If `rounds` is not at least 1, or `seed` negative.
    TypeError
        If `rounds` or `seed` is not an integer.
    """
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    rows, panels = [], []
    for scenario in track(SCENARIOS):
        bcc = partial(CouponCollector, scenario.n, load=TABLE_LOAD)
        schemes = (
            [Uncoded(scenario.n)],
            [CyclicRepetition(scenario.n, stragglers=TABLE_LOAD - 1)],
            _assignments(bcc, assignments, seed),
        )
        message = scenario.communication[1] / ITERATIONS / scenario.thresholds[1]
        # delays that only decide the order: beside a message they are nothing
        order = Exponential(mean=1e-6 * message)
        each = -(-rounds // assignments)
        heard, seconds = [], []
        for codes in schemes:
            runs = [
                simulate(code, order, receive=message, rounds=each, seed=seed + at)
                for at, code in enumerate(codes)
            ]
            heard.append(np.array([run.mean_workers for run in runs]))
            seconds.append(ITERATIONS * float(np.mean([run.mean for run in runs])))
        rows += _table_rows(scenario, heard, seconds)
        panels.append(
            Panel(
                f"{scenario.name}: n = {scenario.n}, r = {TABLE_LOAD}",
                "workers waited for",
                "communication time (s)",
                [
                    Line("model", [workers.mean() for workers in heard], seconds),
                    Line("measured", scenario.thresholds, scenario.communication, "points"),
                ],
            )
        )
    title = "Li et al., tables I and II: recovery thresholds and running times"
    return Figure("li-tables", title, rows, panels)


def _table_rows(
    scenario: _Scenario, heard: Sequence[NDArray[np.float64]], seconds: Sequence[float]
) -> list[Row]:
    """Rows of one table: workers heard of in each assignment, and seconds, of all schemes."""
    figure = f"{PAPER} {scenario.name}"
    of_bcc, paper = heard[-1], scenario.thresholds[-1]
    low, high = np.quantile(of_bcc, [0.05, 0.95])
    spread = (
        "measured in one random assignment, on workers that need not answer in random order; the "
        f"means of {of_bcc.size} assignments are from {low:.1f} to {high:.1f}, 5 % quantile to "
        f"95 %, and {100 * np.mean(of_bcc <= paper):.0f} % of them at most {paper}; eq. (2): "
        f"{closed_forms.coupon_threshold(scenario.n, TABLE_LOAD):.1f}"
    )
    measured = [
        1e3 * total / ITERATIONS / workers
        for total, workers in zip(scenario.communication, scenario.thresholds, strict=True)
    ]
    per_message = (
        f"with {measured[1]:.2f} ms a message; measured were {measured[0]:.2f} ms uncoded, "
        f"{measured[1]:.2f} ms by cyclic repetition and {measured[2]:.2f} ms by BCC"
    )
    late = (
        "the time of a message is not constant: the paper's communication time is the running time "
        "less the largest computation time among the workers heard, so that waiting for a slow "
        "link or for a worker that begins late is in it, as if the uncoded scheme's last message "
        "came late"
    )
    notes = {
        "uncoded": f"{per_message}; {late}",
        "cyclic repetition": "fitted",
        "BCC": f"{per_message}; for {paper} messages the model says "
        f"{seconds[1] * paper / scenario.thresholds[1]:.2f} s",
    }
    rows = [
        Row(
            figure,
            f"recovery threshold, {name}",
            float(workers.mean()),
            threshold,
            note=spread if name == "BCC" else "",
        )
        for name, workers, threshold in zip(SCHEMES, heard, scenario.thresholds, strict=True)
    ]
    rows += [
        Row(figure, f"communication time (s), {name}", ours, theirs, note=notes[name])
        for name, ours, theirs in zip(SCHEMES, seconds, scenario.communication, strict=True)
    ]
    total = np.add(seconds, scenario.computation)
    paper_total = np.add(scenario.communication, scenario.computation)
    rows += [
        Row(
            figure,
            f"running time (s), {name}",
            float(ours),
            float(theirs),
            note="communication as in the model, computation as measured",
        )
        for name, ours, theirs in zip(SCHEMES, total, paper_total, strict=True)
    ]
    rows += [
        Row(
            figure,
            f"BCC speeds up {name} by",
            float(1 - total[-1] / ours),
            saved,
            note=late if name == "uncoded" else "",
        )
        for name, ours, saved in zip(SCHEMES[:2], total[:2], scenario.saved, strict=True)
    ]
    return rows


def figure_5(
    *,
    assignments: int = ASSIGNMENTS,
    seed: int = 0,
    rounds: int = ROUNDS,
    track: Track = iter,
) -> Figure:
    """Load balancing against the generalised BCC on a heterogeneous cluster.

    Parameters
    ----------
    assignments : int
        Random assignments; those that do not cover all examples are left out.
    seed, rounds : int
        Of the simulation; the rounds are divided among the assignments.
    track : callable
        Wraps what is looped over.

    Raises
    ------
    ValueError
        If no assignment covers all examples, `rounds` is not at least 1, or `seed` negative.
    TypeError
        If `rounds` or `seed` is not an integer.
    """
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    figure = f"{PAPER} figure 5"
    n = len(RATES)
    cluster = Heterogeneous([ShiftedExponential(shift=SHIFT, rate=rate) for rate in RATES])
    rng = np.random.default_rng(seed)
    balanced = balanced_loads(RATES, EXAMPLES)
    waits = (cluster.draw(rng, rounds, n) * balanced).max(axis=1)
    allocation = generalised_bcc(EXAMPLES, cluster)
    make = partial(CouponCollector, n, EXAMPLES, loads=allocation.loads.tolist())
    codes = _assignments(make, assignments, seed)
    if not codes:
        raise ValueError(f"none of {assignments} assignments covers all examples: try more")
    covered = np.concatenate(
        [
            _coverage(code, (cluster.draw(rng, -(-rounds // assignments), n) * code.loads).T)
            for code in track(codes)
        ]
    )
    mean, balanced_mean = float(covered.mean()), float(waits.mean())
    rows = [
        Row(
            figure,
            "mean time, load balancing",
            balanced_mean,
            closed=closed_forms.received_mean(balanced, cluster, EXAMPLES),
        ),
        Row(
            figure,
            "mean time, generalised BCC",
            mean,
            note=f"of the {len(codes)} assignments of {assignments} that cover all: with others "
            "the gradient can never be had, and the proof of Theorem 2 leaves them out, too; t* of "
            f"{allocation.time:.0f}",
        ),
        Row(figure, "generalised BCC takes less time by", 1 - mean / balanced_mean, 0.2928),
    ]
    share = np.linspace(0, 1, POINTS)
    panel = Panel(
        f"m = {EXAMPLES}, n = {n}",
        "time of a round",
        "share of the rounds that are over",
        [
            Line(name, np.quantile(times, share), share)
            for name, times in (("load balancing", waits), ("generalised BCC", covered))
        ],
    )
    return Figure("li-5", "Li et al., figure 5: a heterogeneous cluster", rows, [panel])
