"""Li, Mousavi Kalan, Avestimehr, Soltanolkotabi 2017: recovery thresholds and running times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from fastgc.codes import Code, CouponCollector, CyclicRepetition, RandomAssignment, Uncoded
from fastgc.codes.random_assignment import UncoveredError
from fastgc.delays import Exponential, Heterogeneous, ShiftedExponential
from fastgc.planning.loads import Allocation, equal_time_loads, generalised_bcc
from fastgc.planning.simulation import Simulation, closed_forms, simulate
from fastgc.plotting import Line, Panel

from .figure import ROUNDS, SIMULATED, Part, Row, compared, figure

LOADS = (10, 20, 30, 40, 50)  # loads in figure 2
ASSIGNMENTS = 100  # random assignments to average over; those that do not cover all are left out
ENOUGH = 25_000  # rounds of a point: assignments differ by more than rounds do
ANY_ORDER = Exponential(mean=1.0)  # workers answer in random order
CURVE = 14  # points of a curve of means
POINTS = 400  # points of a distribution function

# Figure 5: the shift of all workers, and the rates of 95 slow and 5 fast workers.
EXAMPLES, SHIFT, RATES = 500, 20.0, [1.0] * 95 + [20.0] * 5


class _Scenario(NamedTuple):
    """The numbers of a table, for the uncoded scheme, cyclic repetition and BCC in this order."""

    name: str
    n: int
    thresholds: tuple[int, int, int]
    communication: tuple[float, float, float]  # seconds of 100 iterations
    computation: tuple[float, float, float]
    saved: tuple[float, float]  # parts of the first two schemes' running times that BCC saves


SCENARIOS = (
    _Scenario(
        *("table I", 50, (50, 41, 11), (28.556, 12.031, 3.043)),
        *((0.230, 1.959, 1.162), (0.854, 0.699)),
    ),
    _Scenario(
        *("table II", 100, (100, 91, 25), (31.567, 24.698, 7.246)),
        *((1.453, 4.784, 1.685), (0.730, 0.697)),
    ),
)
SCHEMES = ("uncoded", "cyclic repetition", "BCC")
TABLE_LOAD = 10
ITERATIONS = 100
ANY = "any n - s messages decode, and no fewer do"

# Mean delay of a worker, and time of a message on the master's link, in seconds. They are fitted to
# the six communication times.
DELAY, MESSAGE = 0.060, 0.00275


def _assignments(make: Callable[..., Code], count: int, seed: int) -> list[Code]:
    """Return the codes that cover all partitions, of `count` seeds from `seed` on."""
    made = []
    for tried in range(seed, seed + count):
        try:
            made.append(make(seed=tried))
        except UncoveredError:
            continue
    return made


@figure("li-2", "Li et al., figure 2: recovery threshold against load")
def figure_2(
    *,
    m: int = 100,
    loads: Sequence[int] = LOADS,
    assignments: int = ASSIGNMENTS,
    seed: int = 0,
    rounds: int = ROUNDS,
) -> Iterator[Part]:
    """Recovery threshold against computational load: simulated, and eqs. (2), (5) and (7).

    There are m partitions and m workers, with r partitions per worker for each r in `loads`. The
    rounds, at most 25 000, are divided among the random assignments.
    """
    formulas: dict[str, Callable[[int, int], float]] = {
        "BCC": closed_forms.coupon_threshold,
        "random": lambda m, load: m / load * math.log(m),
        "CR": closed_forms.mds_threshold,
    }
    heard: dict[str, list[float]] = {name: [] for name in formulas}
    each = -(-min(rounds, ENOUGH) // assignments)
    for load in loads:
        for name, kind in (("BCC", CouponCollector), ("random", RandomAssignment)):
            make = partial(kind, m, load=load, send="together")
            runs = [
                simulate(code, ANY_ORDER, rounds=each, seed=seed + at)
                for at, code in enumerate(_assignments(make, assignments, seed))
            ]
            heard[name].append(float(np.mean([run.mean_workers for run in runs])))
        heard["CR"].append(m - CyclicRepetition(m, stragglers=load - 1).stragglers)
    lines = [Line("lower bound", loads, [closed_forms.least_threshold(m, r) for r in loads])]
    for name, means in heard.items():
        formula = [formulas[name](m, r) for r in loads]
        for r, mean, closed in zip(loads, means, formula, strict=True):
            what = f"recovery threshold, {name}, r = {r}"
            note = {"random": _why_random(m, r), "CR": ANY}.get(name, SIMULATED)
            yield Row("li2017 figure 2", what, mean, closed=closed, note=note)
        lines += compared(name, loads, formula, means)
    title = f"m = n = {m} (lines: formulas, points: simulated)"
    yield Panel(title, "computational load r", "recovery threshold K", lines)


def _why_random(m: int, load: int) -> str:
    """Return the note on why the simple randomised scheme differs from eq. (5)."""
    one_by_one = closed_forms.coupon_threshold(m, 1) / load
    return (
        f"eq. (5) takes log m for the harmonic number, with which it is {one_by_one:.1f}, and "
        "partitions for picked one by one; those of a worker are distinct, so that the mean is "
        f"{closed_forms.random_threshold(m, load):.1f}, exactly, for as many workers as it takes"
    )


@figure("li-tables", "Li et al., tables I and II: recovery thresholds and running times")
def tables(*, seed: int = 0, rounds: int = ROUNDS) -> Iterator[Part]:
    """Running times that the paper measured, against a model with two constants for both tables.

    In the model, every worker answers after an exponential delay, and each message occupies the
    master's link for a fixed time, one message after another. The two constants, `DELAY` and
    `MESSAGE`, were fitted to the six communication times that the paper measured, at its measured
    recovery thresholds. BCC's times with its own simulated thresholds follow from the model.

    `rounds` rounds of BCC are simulated, in runs of 100 as in the paper, each with its own random
    assignment. Each time of the model takes at most 25 000 rounds.
    """
    for scenario in SCENARIOS:
        n = scenario.n
        # Wait for any K of the n messages, as the first two schemes do in each round.
        modelled = [_run(_any_of(K, n), min(rounds, ENOUGH), seed) for K in scenario.thresholds]
        bcc = partial(CouponCollector, n, load=TABLE_LOAD)
        runs = [
            _run(code, ITERATIONS, seed + at)
            for at, code in enumerate(_assignments(bcc, -(-rounds // ITERATIONS), seed))
        ]
        yield from _table_rows(scenario, [ITERATIONS * run.mean for run in modelled], runs)
        curve = np.unique(np.linspace(n // 10, n, CURVE).astype(int)).tolist()
        drawn = [_run(_any_of(K, n), min(rounds, ENOUGH // CURVE), seed).mean for K in curve]
        heard = float(np.mean([run.mean_workers for run in runs]))
        seconds = float(np.mean([run.mean for run in runs]))
        lines = [
            Line("model, any K workers", curve, ITERATIONS * np.array(drawn)),
            Line("measured", scenario.thresholds, scenario.communication, "points"),
            Line("model, BCC's own rounds", [heard], [ITERATIONS * seconds], "points"),
        ]
        title = f"{scenario.name}: n = {n}, r = {TABLE_LOAD}"
        yield Panel(title, "workers waited for", "communication time (s)", lines)


def _any_of(K: int, n: int) -> Code:
    """Return a code whose rounds end with any K of n messages."""
    return Uncoded(n, tolerance=(n - K) / n)


def _run(code: Code, rounds: int, seed: int) -> Simulation:
    return simulate(code, Exponential(mean=DELAY), receive=MESSAGE, rounds=rounds, seed=seed)


def _table_rows(
    scenario: _Scenario, modelled: Sequence[float], runs: Sequence[Simulation]
) -> Iterator[Row]:
    """Yield the rows of one table: the model at the paper's thresholds, and runs of BCC."""
    claim, n = partial(Row, f"li2017 {scenario.name}"), scenario.n
    heard = np.array([run.mean_workers for run in runs])
    seconds = ITERATIONS * np.array([run.mean for run in runs])
    paper = scenario.thresholds[-1]
    low, high = np.quantile(heard, [0.05, 0.95])
    few = float(np.mean(heard < paper + 0.5))
    spread = (
        f"the paper's is the mean of {ITERATIONS} rounds in one random assignment: of "
        f"{len(runs)} such means, for workers that answer in random order, {100 * few:.1f} ± "
        f"{100 * np.sqrt(few * (1 - few) / len(runs)):.1f} % round to {paper} or less, and those "
        f"from 5 % to 95 % are {low:.1f} to {high:.1f}; eq. (2): "
        f"{closed_forms.coupon_threshold(n, TABLE_LOAD):.1f}"
    )
    cyclic = n - CyclicRepetition(n, stragglers=TABLE_LOAD - 1).stragglers
    thresholds = (n, cyclic, float(heard.mean()))
    for name, ours, K in zip(SCHEMES, thresholds, scenario.thresholds, strict=True):
        note = {"BCC": spread, "uncoded": "all are waited for"}.get(name, ANY)
        yield claim(f"recovery threshold, {name}", ours, K, note=note)
    claim = partial(
        claim,
        fitted=f"exponential delays of mean {1e3 * DELAY:g} ms and {1e3 * MESSAGE:g} ms a message "
        "on the master's link",
    )
    for name, time, theirs in zip(SCHEMES, modelled, scenario.communication, strict=True):
        note = "two constants chosen for the six communication times of both tables"
        yield claim(f"communication time (s), {name}", time, theirs, note=note)
    yield claim(
        "communication time (s), BCC, from its own rounds",
        float(seconds.mean()),
        scenario.communication[-1],
        note=f"with {heard.mean():.1f} workers, not {paper}; "
        f"from 5 % to 95 % of the runs: {np.quantile(seconds, 0.05):.2f} to "
        f"{np.quantile(seconds, 0.95):.2f} s",
    )
    total = np.add(modelled, scenario.computation).tolist()
    theirs = np.add(scenario.communication, scenario.computation).tolist()
    own = float(seconds.mean()) + scenario.computation[-1]
    as_printed, by_rounds = f"BCC, K = {paper}", f"BCC, K = {heard.mean():.1f} of its own rounds"
    names, times = [*SCHEMES[:2], as_printed, by_rounds], [*total, own]
    for name, ours, printed in zip(names, times, [*theirs, theirs[-1]], strict=True):
        note = "the sum of the modelled communication and the measured computation"
        yield claim(f"running time (s), {name}", ours, printed, note=note)
    for bcc, time in ((as_printed, total[-1]), (by_rounds, own)):
        for name, ours, saved in zip(SCHEMES[:2], total[:2], scenario.saved, strict=True):
            note = "of these running times"
            yield claim(f"{bcc}, speeds up {name} by", 1 - time / ours, saved, note=note)


def _as_if_loads(allocation: Allocation) -> Heterogeneous:
    """Return delays with which rounded loads take as long as real-valued loads, for figure 5."""
    ratios = (allocation.real_loads / allocation.loads).tolist()
    each = zip(RATES, ratios, strict=True)
    return Heterogeneous([ShiftedExponential(SHIFT * ratio, rate / ratio) for rate, ratio in each])


@figure("li-5", "Li et al., figure 5: a heterogeneous cluster")
def figure_5(
    *, assignments: int = ASSIGNMENTS, seed: int = 0, rounds: int = ROUNDS
) -> Iterator[Part]:
    """Load balancing against the generalised BCC on a heterogeneous cluster.

    The rounds, at most 25 000, are divided among the random assignments. Raises ValueError also if
    no assignment covers all examples.
    """
    claim, rounds = partial(Row, "li2017 figure 5"), min(rounds, ENOUGH)
    n = len(RATES)
    cluster = Heterogeneous([ShiftedExponential(shift=SHIFT, rate=rate) for rate in RATES])
    delays = cluster.draw(np.random.default_rng(seed), rounds, n)
    balanced = equal_time_loads(1 / np.array(RATES), EXAMPLES, 0)
    waits = (delays * balanced).max(axis=1)
    real_waits = (delays * (EXAMPLES * np.array(RATES) / sum(RATES))).max(axis=1)
    allocation = generalised_bcc(EXAMPLES, cluster)
    loads = allocation.loads.tolist()
    make = partial(CouponCollector, n, EXAMPLES, loads=loads, send="together")
    codes = _assignments(make, assignments, seed)
    if not codes:
        raise ValueError(f"none of {assignments} assignments covers all examples: try more")
    each = -(-rounds // assignments)
    runs = [
        [simulate(code, model, rounds=each, seed=seed + at) for at, code in enumerate(codes)]
        for model in (cluster, _as_if_loads(allocation))
    ]
    covered, real_covered = (np.concatenate([run.times for run in some]) for some in runs)
    mean, balanced_mean = float(covered.mean()), float(waits.mean())
    real_mean, real_balanced_mean = float(real_covered.mean()), float(real_waits.mean())
    among = f"of the {len(codes)} assignments of {assignments} that cover all"
    law = closed_forms.received_mean(balanced, cluster, EXAMPLES)
    yield claim("mean time, load balancing", balanced_mean, closed=law, note=SIMULATED)
    yield claim(
        "mean time, generalised BCC",
        mean,
        note=f"{among}: with others the gradient can never be had, and the proof of Theorem 2 "
        f"leaves them out, too; t* of {allocation.time:.0f}",
    )
    note = "cluster, loads and law of delays are the paper's, rounds are drawn anew"
    yield claim("generalised BCC takes less time by", 1 - mean / balanced_mean, 0.2928, note=note)
    yield claim(
        "generalised BCC takes less time by, loads not rounded",
        1 - real_mean / real_balanced_mean,
        0.2928,
        note=f"both compute as long as real-valued loads would take, {real_balanced_mean:.0f} "
        f"and {real_mean:.0f}; which examples, by the whole numbers",
    )
    chance = closed_forms.coverage_probability(loads, EXAMPLES)
    note = f"exact; here {among[3:]}"
    yield claim("probability that an assignment covers all", chance, note=note)
    share = np.linspace(0, 1, POINTS)
    lines = [
        Line(name, np.quantile(times, share), share)
        for name, times in (("load balancing", waits), ("generalised BCC", covered))
    ]
    x, y = "time of a round (the paper's unit)", "share of the rounds that are over"
    yield Panel(f"m = {EXAMPLES}, n = {n}", x, y, lines)
