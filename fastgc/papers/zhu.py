"""Zhu, Zhang, Simeone, Wang 2022: distributed Adam, CADA and G-CADA (section V, figure 2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import data as datasets
from .._arrays import at_least
from ..codes import BinaryCode, Code, FractionalRepetition, Grouped, Uncoded
from ..delays import DelayModel, Exponential, ShiftedExponential
from ..history import History, Spent
from ..models import LinearRegression
from ..optimizers import CADA, GCADA, SGD, AMSGrad, Optimizer
from ..plotting import spending_panels
from ..plotting.panels import Line, Panel
from ..simulation import closed_forms, simulate
from ..training import train
from .figure import ROUNDS, SIMULATED, Part, Row, Track, compared, figure

__all__ = ["figure_2", "section_5"]

FIGURE, SECTION = partial(Row, "zhu2022 figure 2"), partial(Row, "zhu2022 section V")
# Section VI states 3 groups of 4; the loads that it reports are those of 4 groups of 3.
M, GROUPS = 12, 4
SIZE = M // GROUPS  # workers in a group, M_G
STATED_SIZE = 4
ETA = 1e-4  # seconds, mean time of a gradient
# Section VI's constants c of the rules of selection, (7) for CADA and (9) for G-CADA, and rates.
C, C_GROUPS = 2.0, 0.3
RATE, SGD_RATE = 0.01, 2.6
# What section VI reports at a training loss of 0.1: seconds, communication, computation.
REPORTED = {"CADA": (0.380, 19_292, 9_646), "G-CADA": (0.068, 12_292, 9_219)}
METRICS = ("time", "communication", "computation")
# Of figure 2, not stated there: D, samples of a mini-batch, steps, and the level of comparison, a
# share of the training loss's excess over its minimum.
MAX_AGE, BATCH, STEPS, LEVEL = 10, 20, 300, 0.05
PATIENCE = 10  # times as many steps for who needs more to the loss of comparison
RUNS = 20  # on other data splits, mini-batches and times
LARGE = 1 << 21  # numbers in a training set of which one run is enough
FEW = 2000  # training samples of runs that only show how long steps take
SGD_NAME, ADAM, STATED = "distributed SGD", "distributed Adam", "G-CADA in groups of 4"
# Groups and constant of each, and what is compared.
ADAPTIVE: dict[str, tuple[type[GCADA], int, float]] = {
    "CADA": (CADA, M, C),
    "G-CADA": (GCADA, GROUPS, C_GROUPS),
    STATED: (GCADA, M // STATED_SIZE, C_GROUPS),
}
METHODS = (ADAM, "CADA", "G-CADA")
# The reading, and others that differ in one thing; at these levels, of so many runs.
READING = f"D = {MAX_AGE}, batch {BATCH}, rate {RATE}"
VARIED: dict[str, dict[str, Any]] = {
    READING: {},
    "D = 2": {"age": 2},
    "D = 5": {"age": 5},
    "D = 20": {"age": 20},
    "batch 5": {"batch": 5},
    "batch 80": {"batch": 80},
    "rate 0.003": {"rate": 0.003},
}
LEVELS = (0.1, 0.07, LEVEL, 0.035, 0.025)
FEW_RUNS = 3
RATIOS = (("CADA", "G-CADA", 1), ("CADA", "G-CADA", 2), (ADAM, "CADA", 2))  # of `Spent`'s fields
# Of section V: smoothness constants, which it does not state, such that its formulas have some
# selected in every round and some seldom.
SMOOTHNESS = np.geomspace(0.03, 0.3, M)
SMOOTHNESS_GROUPS = np.geomspace(0.05, 0.5, GROUPS)
FEATURES = 10
# Method, constants L and c, workers in a group, and the equations of number, time and loads.
OF_SECTION: dict[str, tuple[type[GCADA], NDArray[np.float64], float, int, tuple[str, ...]]] = {
    "CADA": (CADA, SMOOTHNESS, C, 1, ("(12)", "(13)", "(18)", "(21)")),
    "G-CADA": (GCADA, SMOOTHNESS_GROUPS, C_GROUPS, SIZE, ("(15)", "(16)", "(19)", "(22)")),
}


@figure("zhu-5", "Zhu et al., section V: time and loads of an iteration")
def section_5(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """Time, communication and computation of an iteration: eqs. (10) to (22), and measured.

    The numbers selected are those of `fastgc.optimizers.CADA` and `GCADA` at work: on quadratic
    functions of known smoothness, with noise in their gradients. The optimizers make a twentieth as
    many steps as there are rounds, and 100 at least.
    """
    delays = Exponential(mean=ETA)
    rng = np.random.default_rng(seed)
    alone, grouped = Uncoded(M), FractionalRepetition(M, stragglers=SIZE - 1)
    for what, code, groups, size in (
        ("distributed Adam, eq. (11)", alone, M, 1),
        (f"all {GROUPS} groups of {SIZE}, eq. (14)", grouped, GROUPS, SIZE),
    ):
        run = simulate(code, delays, rounds=rounds, seed=seed)
        exact = closed_forms.fastest_of_groups_mean(groups, size, delays)
        yield SECTION(f"time (µs), {what}", 1e6 * run.mean, closed=1e6 * exact, note=SIMULATED)
    steps = max(rounds // 20, 100)
    for name, scaled in track([(name, scaled) for name in OF_SECTION for scaled in (False, True)]):
        yield from _selection_rows(name, scaled, delays, steps, rng)
    yield from _load_rows()
    yield _panel(delays, rng, rounds)
    yield _selection_panel(max(steps // 5, 100), rng)


def _selection_rows(
    name: str, scaled: bool, delays: Exponential, steps: int, rng: np.random.Generator
) -> Iterator[Row]:
    """What a rule of selection does, beside the paper's formulas."""
    kind, smoothness, stated, size, numbers = OF_SECTION[name]
    groups = len(smoothness)
    c = stated / groups**2 if scaled else stated
    chosen, straight = _selected(kind, smoothness, c, steps, rng)
    counts = chosen.sum(axis=1)
    mean = float(counts.mean())
    formula = closed_forms.selected_mean(smoothness, stated, MAX_AGE, oldest=MAX_AGE + 1)
    # of each round the slowest selected, one or the fastest of a group
    times = np.where(chosen, rng.exponential(ETA / size, chosen.shape), 0.0).max(axis=1)
    at_mean = 1e6 * closed_forms.fastest_of_groups_mean(mean, size, delays)
    letter = "M" if size == 1 else "G"
    rule = "(7)" if size == 1 else "(9)"
    how = f"{name}, rule {rule}" + (f" with c / {letter}²" if scaled else "")
    who = "workers" if size == 1 else "groups"
    if scaled:
        why = (
            "a bound, for steps in line and none before them: the squared distance gone is "
            f"{straight:.2f} of that, on average over ages below D. With L̄_0 infinite, where the "
            f"paper's 0 would leave out {who} selected in every round"
        )
    else:
        age_only = int((chosen.mean(axis=0) <= 1 / MAX_AGE + 1 / len(chosen)).sum())
        why = (
            f"rule {rule} as it stands spares all with L² <= c / d up to age d, and the formula "
            f"counts those with L² <= c / (d {letter}²). Measured, {age_only} of {groups} are "
            "selected by their age alone"
        )
    of_them = f"of {mean:.3g} {who} selected, where the formula has {formula:.3g}"
    loads, expected = (closed_forms.adaptive_loads(each, size) for each in (mean, formula))
    selected = f"{who} selected, {how}"
    yield SECTION(f"{selected}, eq. {numbers[0]}", mean, closed=formula, note=why, bound=scaled)
    yield SECTION(
        f"time (µs), {how}, eq. {numbers[1]}",
        1e6 * float(times.mean()),
        closed=1e6 * closed_forms.fastest_of_groups_mean(formula, size, delays),
        note=f"at the mean number selected, {mean:.3g}, the equation gives {at_mean:.4g}; the "
        "rest is that the number varies",
        bound=scaled,  # the mean of a concave function of a number that is below one
    )
    for at, what in enumerate(("communication", "computation")):
        equation = f"{what} load, {how}, eq. {numbers[2 + at]}"
        yield SECTION(equation, loads[at], closed=expected[at], note=of_them, bound=scaled)
    if scaled:
        kept = closed_forms.selected_mean(smoothness, c, MAX_AGE, scale=1)
        bound = "the bound that Algorithm 1 keeps: age D at most, where eq. {} has D + 1"
        note = bound.format(numbers[0]) + f"; distances are {straight:.2f} of what it allows for"
        yield SECTION(f"{selected}, bound", mean, closed=kept, note=note, bound=True)
        return
    late = closed_forms.selected_mean(smoothness, c, MAX_AGE, scale=1, oldest=MAX_AGE + 1)
    note = (
        f"above it: Algorithm 1 selects at age D = {MAX_AGE}, the equation takes it for D + 1"
        if mean > late
        else f"a bound: the squared distance gone is {straight:.2f} of what it allows for, on "
        "average over ages below D"
    )
    what = f"{selected}, eq. {numbers[0]} with thresholds c / d"
    yield SECTION(what, mean, closed=late, note=note, bound=True)


def _selected(
    kind: type[GCADA],
    smoothness: NDArray[np.float64],
    c: float,
    rounds: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.bool_], float]:
    """Who is selected in each round, (rounds, groups), and how straight the way is.

    Group g has the function L_g / 2 ||theta - t||^2 with a t of its own, which varies from gradient
    to gradient. The second is the mean of ||theta^k - theta^(k - tau)||^2 over tau times the sum of
    the D squared steps, which is 1 at most, over the rounds and tau = 1 .. D - 1.
    """
    groups = smoothness.size
    targets = rng.standard_normal((groups, FEATURES))
    method = kind(
        groups, AMSGrad(RATE), c=c, max_age=MAX_AGE, smoothness=smoothness, relative=False
    )
    method.reset(np.zeros(FEATURES))
    chosen = np.zeros((MAX_AGE + rounds, groups), dtype=bool)
    points = np.empty((MAX_AGE + rounds, FEATURES))
    for at in range(MAX_AGE + rounds):
        points[at] = method.point
        chosen[at, method.selected] = True
        for group in method.selected:
            target = targets[group] + rng.standard_normal(FEATURES)
            method.receive(group, smoothness[group] * (method.point - target))
        method.step()
    squares = np.sum(np.diff(points, axis=0) ** 2, axis=1)
    recent = np.convolve(squares, np.ones(MAX_AGE), "valid")
    straight = [
        np.mean(np.sum((points[MAX_AGE:] - points[MAX_AGE - t : -t]) ** 2, axis=1) / (t * recent))
        for t in range(1, MAX_AGE)
    ]
    return chosen[MAX_AGE:], float(np.mean(straight))


def _load_rows() -> Iterator[Row]:
    """What the loads that section VI reports tell of the size of groups."""
    time, communication, computation = REPORTED["G-CADA"]
    yield FIGURE(
        "communication over computation, CADA",
        2.0,
        REPORTED["CADA"][1] / REPORTED["CADA"][2],
        note="one model and one gradient of each that computes",
    )
    for size, why in (
        (SIZE, "it is (M_G + 1) / M_G, and taken for 3 because of it: section VI states M_G = 4"),
        (
            STATED_SIZE,
            "section VI states it, but reports 12,292 / 9,219 = 4/3; nor are 12,292 / 5 and "
            "9,219 / 4 whole numbers of selections, as 12,292 / 4 = 9,219 / 3 = 3073 is",
        ),
    ):
        one = closed_forms.adaptive_loads(1.0, size)
        what = f"communication over computation, G-CADA in groups of {size}"
        ours = one.communication / one.computation
        yield FIGURE(what, ours, communication / computation, note=why)
    # a round of g selections takes H_g <= g times the mean of a group
    for size in (SIZE, STATED_SIZE):
        most = ETA / size * communication / (size + 1)
        yield FIGURE(
            f"longest time (s) of 12,292 vectors, G-CADA in groups of {size}",
            most,
            time if most < time else None,
            note="g selections in one round take H_g times the mean of one, less than in g "
            "rounds: the 0.068 s reported are too long for groups of 4, and not for 3",
        )


def _selection_panel(steps: int, rng: np.random.Generator) -> Panel:
    """Workers selected by rule (7) against its constant, and the formulas."""
    constants = np.geomspace(C / M**2 / 10, 10 * C, 13)
    measured = [_selected(CADA, SMOOTHNESS, float(c), steps, rng)[0].sum(axis=1).mean()
                for c in constants]  # fmt: skip
    formula, kept = (
        [
            closed_forms.selected_mean(SMOOTHNESS, float(c), MAX_AGE, scale, oldest=oldest)
            for c in constants
        ]
        for scale, oldest in ((None, MAX_AGE + 1), (1, MAX_AGE))
    )
    lines = [
        Line("eq. (12)", constants, formula),
        Line("bound of rule (7)", constants, kept),
        Line("CADA at work", constants, measured, "points"),
    ]
    title = f"M = {M}, D = {MAX_AGE}, smoothness from {SMOOTHNESS[0]:g} to {SMOOTHNESS[-1]:g}"
    return Panel(title, "constant c of rule (7)", "workers selected in a round", lines, log_x=True)


def _panel(delays: Exponential, rng: np.random.Generator, rounds: int) -> Panel:
    """Time of an iteration against the number selected, workers or groups."""
    lines = []
    for size in (1, 2, 3, 4, 6):
        counts = np.arange(1, M // size + 1)
        exact = [closed_forms.fastest_of_groups_mean(int(g), size, delays) for g in counts]
        fastest = delays.draw(rng, rounds, M).reshape(rounds, M // size, size).min(axis=2)
        simulated = np.maximum.accumulate(fastest, axis=1).mean(axis=0)
        name = "CADA" if size == 1 else f"G-CADA, groups of {size}"
        lines += compared(name, counts, 1e6 * np.array(exact), 1e6 * simulated)
    title = f"M = {M}, exponential times of mean {1e6 * ETA:g} µs (points: simulated)"
    return Panel(title, "workers or groups selected", "time of an iteration (µs)", lines)


@figure("zhu-2", "Zhu et al., figure 2: distributed SGD and Adam, CADA and G-CADA")
def figure_2(
    *,
    seed: int = 0,
    data: str = "digits",
    runs: int | None = None,
    steps: int = STEPS,
    track: Track = iter,
) -> Iterator[Part]:
    """Loss, communication and computation against time, of four methods; and codes in groups.

    Linear regression of a scalar label without a bias, M = 12 workers, G = 4 groups of 3,
    exponential times; everything is computed, in simulated time. The last panels, and the rows "in
    place of", tell how the ratios depend on what the paper does not state.

    `data` is as `fastgc.data.load` takes it: classes 0 .. C - 1 become labels y / (C - 1), and
    real-valued targets are taken as they are. Means are over so many `runs`, of which `seed` is the
    first one's: 20 by default, or 1 on large data. A run that is drawn has so many `steps`; those
    that are compared end at the loss of comparison, or after ten times as many.
    """
    steps = at_least("steps", steps, 1)
    if runs is not None:
        at_least("runs", runs, 1)
    raw = datasets.load(data, seed=seed)
    first = _problem(raw)
    large = raw.X_train.size >= LARGE
    if runs is None:
        runs = 1 if large else RUNS
    varied = 0 if large else min(runs, FEW_RUNS)
    jobs: list[tuple[str, int]] = [(READING, run) for run in range(runs)]
    jobs += [(what, run) for what in VARIED for run in range(varied) if what != READING]
    taken: dict[str, list[_Taken]] = {}
    for what, run in track(jobs):
        problem = _problem(datasets.load(data, seed=seed + run))
        options = VARIED[what]
        names: tuple[str, ...] = (*METHODS, STATED) if what == READING else METHODS
        if options.keys() == {"age"}:  # which distributed Adam has none of
            names = names[1:]
        levels = LEVELS if run < varied else (LEVEL,)
        until = problem.loss(min(levels))
        histories = [
            _trained(problem, name, seed + run, PATIENCE * steps, until=until, **options)
            for name in names
        ]
        each = {x: {h.name: h.spent(problem.loss(x)) for h in histories} for x in levels}
        if ADAM not in names:
            each = {x: {ADAM: taken[READING][run][x][ADAM], **each[x]} for x in levels}
        taken.setdefault(what, []).append(each)
    drawn = [_trained(first, name, seed, steps) for name in (SGD_NAME, *METHODS)]
    yield from _compared_rows(taken[READING])
    yield from _absolute_rows(raw, first, taken[READING], drawn[2])
    yield from spending_panels(drawn)
    if varied:
        few = {what: taken[what][:varied] for what in VARIED}
        yield from _varied_rows(few)
        yield from _region(few)
    yield from _coded_groups(first, seed, steps)


# What each method took to each level of comparison.
_Taken = Mapping[float, Mapping[str, Spent | None]]


class _Problem(NamedTuple):
    """Linear regression of a scalar label on samples of norm 1, without a bias."""

    dataset: datasets.Dataset
    model: LinearRegression
    start: float  # training loss at zero
    lowest: float

    def loss(self, level: float) -> float:
        """Training loss of which this share of the excess at the start is left."""
        return self.lowest + level * (self.start - self.lowest)


def _problem(dataset: datasets.Dataset) -> _Problem:
    def scaled(X: NDArray[np.floating]) -> NDArray[np.floating]:
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        unit: NDArray[np.floating] = X / np.where(norms > 0, norms, 1)
        return unit

    classes = dataset.task == "classification"
    per_class = 1 / (dataset.classes - 1) if classes else 1.0
    dataset = replace(
        dataset,
        X_train=scaled(dataset.X_train),
        y_train=per_class * dataset.y_train,
        X_test=scaled(dataset.X_test),
        y_test=per_class * dataset.y_test,
    )
    model = LinearRegression(dataset.features, dataset.outputs, bias=False)
    X, y = model.prepare(dataset.X_train, dataset.y_train)
    best = np.linalg.lstsq(X.T @ X, X.T @ y, rcond=None)[0].ravel()
    start, lowest = (model.loss(theta, X, y) for theta in (np.zeros(model.size), best))
    return _Problem(dataset, model, start, lowest)


def _trained(
    problem: _Problem,
    name: str,
    seed: int,
    rounds: int,
    *,
    until: float | None = None,
    age: int = MAX_AGE,
    batch: int = BATCH,
    rate: float = RATE,
) -> History:
    """A run of a method."""
    optimizer: Optimizer
    code: Code
    if name == SGD_NAME:
        code, optimizer = Uncoded(M), SGD(SGD_RATE)
    elif name == ADAM:
        code, optimizer = Uncoded(M), AMSGrad(rate)
    else:
        code = Grouped.repetition(M, ADAPTIVE[name][1])
        optimizer = _adaptive(name, problem, rate, age)
    return train(
        code,
        problem.dataset,
        model=problem.model,
        optimizer=optimizer,
        rounds=rounds,
        delays=Exponential(mean=ETA),
        seed=seed,
        name=name,
        batch=batch,
        until=until,
        engine="simulated",
    )


def _adaptive(name: str, problem: _Problem, rate: float, age: int) -> GCADA:
    """A method that selects, with the smoothness of each group's mean loss."""
    kind, groups, c = ADAPTIVE[name]
    shards = datasets.partition(problem.dataset.X_train, problem.dataset.y_train, groups)
    smoothness = [problem.model.smoothness(X) for X, _ in shards]
    return kind(groups, AMSGrad(rate), c=c, max_age=age, smoothness=smoothness, relative=False)


def _compared_rows(taken: Sequence[_Taken]) -> Iterator[Row]:
    """Ratios at the loss of comparison."""
    here = [each[LEVEL] for each in taken]
    fitted = (
        "fitted: what the paper does not state was chosen for these ratios on the digits: "
        f"D = {MAX_AGE}, "
        f"mini-batches of {BATCH}, compared where the loss, which oscillates, first has "
        f"{100 * LEVEL:g}% of its excess over the minimum; samples of norm 1, labels in [0, 1]. "
        f"Mean of {len(taken)} run{'s' * (len(taken) > 1)}, in brackets the least and the largest; "
        "its standard error is {error}"
    )
    reported = [a / b for a, b in zip(REPORTED["CADA"], REPORTED["G-CADA"], strict=True)]
    for at, what in enumerate(METRICS):
        ratio, spread, error = _ratios(here, "CADA", "G-CADA", at + 1)
        note = fitted.format(error=error)
        if what == "computation":
            note += ". In groups of 3 it is 2/3 of the ratio of communication"
        yield FIGURE(f"{what}, CADA : G-CADA ({spread})", ratio, reported[at], note=note)
    for at, what in enumerate(METRICS):
        ratio, spread, _ = _ratios(here, ADAM, "CADA", at + 1)
        note = "above 1 adaptive selection saves" if what != "time" else ""
        yield FIGURE(f"{what}, {ADAM} : CADA ({spread})", ratio, note=note)
    rounds = {name: _mean(here, name, lambda spent: spent.rounds) for name in here[0]}
    each = {
        name: 1e6 * _mean(here, name, lambda spent: spent.time / spent.rounds) for name in here[0]
    }
    measured = (
        "the groups that section VI states, but not those whose loads it reports. A round takes "
        f"{each[STATED]:.3g} µs in place of {each['G-CADA']:.3g}, and the loss {rounds[STATED]:.3g}"
        f" rounds in place of {rounds['G-CADA']:.3g}; CADA's takes {each['CADA']:.3g} µs"
    )
    for at, what in enumerate(METRICS):
        ratio, spread, _ = _ratios(here, "CADA", STATED, at + 1)
        name = f"{what}, CADA : G-CADA in 3 groups of {STATED_SIZE} ({spread})"
        yield FIGURE(name, ratio, reported[at], note=measured)
    for name, size in (("CADA", 1), ("G-CADA", SIZE)):
        vectors = _mean(here, name, lambda spent: spent.communication / spent.rounds)
        kind = "workers" if size == 1 else "groups"
        yield FIGURE(f"{kind} selected in a round, {name}", vectors / (size + 1))


def _mean(
    taken: Sequence[Mapping[str, Spent | None]], name: str, of: Callable[[Spent], float]
) -> float:
    """Over the runs; NaN if one has not reached the loss."""
    values = [math.nan if spent is None else of(spent) for each in taken for spent in [each[name]]]
    return float(np.mean(values))


def _varied_rows(taken: Mapping[str, Sequence[_Taken]]) -> Iterator[Row]:
    """The same ratios of fewer runs, with one thing changed."""
    for what, runs in taken.items():
        if what == READING:  # of more runs above
            continue
        note = f"in place of {READING}; mean of {len(runs)} run{'s' * (len(runs) > 1)}"
        for one, other, at in RATIOS:
            ratio, spread, _ = _ratios([run[LEVEL] for run in runs], one, other, at)
            name = f"{METRICS[at - 1]}, {one} : {other}, with {what} ({spread})"
            yield FIGURE(name, ratio, note=note)


def _absolute_rows(
    raw: datasets.Dataset, problem: _Problem, taken: Sequence[_Taken], cada: History
) -> Iterator[Row]:
    """What the paper's level, its seconds and its rate of SGD tell."""
    here = [each[LEVEL] for each in taken]
    least = REPORTED["CADA"][0] / (ETA * float(np.sum(1 / np.arange(1, M + 1))))
    reported = (
        f"the paper's 0.380 s are {least:.0f} rounds at least, of H_{M} times {1e6 * ETA:g} µs. "
        f"Here the loss falls from {problem.start:.3g} to {problem.lowest:.3g} at best"
    )
    passed = cada.spent(0.1)
    yield FIGURE(
        "rounds of CADA to a training loss of 0.1",
        math.nan if passed is None else passed.rounds,
        least,
        note=f"{reported}, with AMSGrad's first steps, which no bias correction shortens, through "
        "0.1: it is no level to compare at",
    )
    low = min(taken[0])
    to_low = _mean([each[low] for each in taken if low in each], "CADA", lambda spent: spent.rounds)
    lower = f"; {100 * low:g}% takes {to_low:.3g} rounds" if low < LEVEL else ""
    rounds = _mean(here, "CADA", lambda spent: spent.rounds)
    what = f"rounds of CADA to {100 * LEVEL:g}% of the loss's excess"
    yield FIGURE(what, rounds, least, note=f"{reported}{lower}")
    limits = [
        2 / LinearRegression(raw.features, bias=bias).smoothness(X)
        for X, bias in ((problem.dataset.X_train, True), (raw.X_train, False))
    ]
    yield FIGURE(
        "largest stable rate of distributed SGD, 2 / L",
        2 / problem.model.smoothness(problem.dataset.X_train),
        note=f"for the paper's {SGD_RATE}; with a bias it would be {limits[0]:.3g}, and of the "
        f"samples before they are scaled to norm 1 {limits[1]:.3g}",
    )


def _ratios(
    taken: Sequence[Mapping[str, Spent | None]], one: str, other: str, at: int
) -> tuple[float, str, str]:
    """What one method took over what the other did.

    The geometric mean of the runs, their range, and the standard error of the mean.
    """
    pairs = [(each[one], each[other]) for each in taken]
    ratios = [a[at] / b[at] for a, b in pairs if a is not None and b is not None]
    if len(ratios) < len(pairs):
        return math.nan, "not reached by all", "unknown"
    logs = np.log(ratios)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else "one run"
    error = (
        f"{100 * np.std(logs, ddof=1) / math.sqrt(len(logs)):.0f}%" if len(logs) > 1 else "unknown"
    )
    return math.exp(float(np.mean(logs))), spread, error


def _region(taken: Mapping[str, Sequence[_Taken]]) -> Iterator[Panel]:
    """Ratios against the level of comparison, with one thing changed, and the paper's."""
    for one, other, at in RATIOS:
        lines = []
        for what, runs in taken.items():
            ratios = [_ratios([run[level] for run in runs], one, other, at)[0] for level in LEVELS]
            label = "as read" if what == READING else what
            lines.append(Line(label, 100 * np.array(LEVELS), ratios))
        if one == "CADA":
            reported = REPORTED[one][at - 1] / REPORTED[other][at - 1]
            ends = 100 * np.array([min(LEVELS), max(LEVELS)])
            lines.append(Line("reported", ends, [reported] * 2))
        title = f"read as {READING}; or one thing changed; {len(runs)} runs"
        x, y = "excess of the loss that is left (%)", f"{METRICS[at - 1]}, {one} : {other}"
        yield Panel(title, x, y, lines, log_x=True, log_y=True)


def _coded_groups(problem: _Problem, seed: int, steps: int) -> Iterator[Row]:
    """G-CADA with a code in each group in place of repetition: the same steps, in less time."""
    dataset = problem.dataset
    few = dataset.X_train[:FEW], dataset.y_train[:FEW]
    problem = problem._replace(dataset=replace(dataset, X_train=few[0], y_train=few[1]))
    codes: dict[str, Code] = {
        "repetition": FractionalRepetition(SIZE, stragglers=SIZE - 1),
        "the binary code, s = 1": BinaryCode(SIZE, stragglers=1),
        "UC-MMC, all messages": Uncoded(SIZE, load=SIZE),
    }
    part = ETA / SIZE  # seconds that a third of a mini-batch takes, on average
    times: dict[str, DelayModel] = {
        "exponential times": Exponential(part, per="computation"),
        "times half of which is constant": ShiftedExponential(part / 2, 2 / part),
    }
    for kind, delays in times.items():
        took: dict[str, float] = {}
        for name, code in codes.items():
            method = _adaptive("G-CADA", problem, RATE, MAX_AGE)
            history = train(
                Grouped([code] * GROUPS),
                problem.dataset,
                model=problem.model,
                optimizer=method,
                rounds=steps,
                delays=delays,
                seed=seed,
                batch=BATCH // SIZE,
                engine="simulated",
            )
            took[name] = history.rounds[-1].time
        for name in list(codes)[1:]:
            yield FIGURE(
                f"time, groups with {name} : with repetition, {kind}",
                took[name] / took["repetition"],
                note="not in the paper: a member computes thirds of its group's mini-batch, "
                "each taking the same time; the steps are the same",
            )
