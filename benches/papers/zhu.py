"""Zhu, Zhang, Simeone, Wang 2022: distributed Adam, CADA and G-CADA (section V, figure 2)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastgc.codes import BinaryCode, Code, FractionalRepetition, Grouped, Uncoded
from fastgc.delays import DelayModel, Exponential, ShiftedExponential
from fastgc.planning.simulation import closed_forms, simulate
from fastgc.plotting import Line, Panel
from fastgc.training import data as datasets
from fastgc.training.models import LinearRegression
from fastgc.training.optimizers import CADA, GCADA, SGD, AMSGrad, Optimizer
from fastgc.training.train import train

from .figure import ROUNDS, SIMULATED, Bools, Floats, Part, Row, compared, figure

FIGURE, SECTION = partial(Row, "zhu2022 figure 2"), partial(Row, "zhu2022 section V")
# Section VI states 3 groups of 4; the loads that it reports are those of groups of 3.
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
MAX_AGE = 10  # D of section V, which does not state it
# Figure 2, from the first author's script: the mean squared error at which runs end, on MEASURED
# random samples; the samples of a mini-batch, whose gradients have a factor of 2 / BATCH^2; the
# epsilon of AMSGrad for these gradients; three groups of three; D, the number of steps on the right
# of the rules of selection.
LEVEL, MEASURED, BATCH = 0.1, 1000, 100
EPSILON = 1e-7
SCRIPT_GROUPS = 3
SCRIPT_AGE = 9
OTHER_AGES = (5, 20)
RUNS, FEW_RUNS = 12, 3  # draws of true parameters, start, mini-batches and times
STEPS = 30_000  # steps of a run, at most
LARGE = 1 << 21  # a training set with this many numbers has a single run
FEW = 2000  # training samples of runs that only measure how long steps take
FEW_STEPS = 200  # steps of these runs
SGD_NAME, ADAM = "distributed SGD", "distributed Adam"


def script_smoothness(groups: int) -> Floats:
    """Return the constants L_m of the script, 1.3^(m - 1) + 1 for m = 0, 1, ..."""
    return np.asarray(1.3 ** np.arange(-1.0, groups - 1) + 1)


class _Method(NamedTuple):
    """Groups, workers in each, c, and optimizer; with c = 0, every round selects all groups."""

    kind: type[GCADA]
    groups: int
    size: int
    c: float
    optimizer: Callable[[], Optimizer]

    def begun(self, start: NDArray[np.floating], age: int) -> GCADA:
        """Return the method, reset to the parameters `start`."""
        how: Any = {"smoothness": script_smoothness(self.groups), "relative": False}
        method = self.kind(self.groups, self.optimizer(), c=self.c, max_age=age, **how)
        method.reset(start)
        return method


_AMSGRAD = partial(AMSGrad, RATE, epsilon=EPSILON)
METHODS = {
    SGD_NAME: _Method(CADA, M, 1, 0.0, partial(SGD, SGD_RATE)),
    ADAM: _Method(CADA, M, 1, 0.0, _AMSGRAD),
    "CADA": _Method(CADA, M, 1, C, _AMSGRAD),
    "G-CADA": _Method(GCADA, SCRIPT_GROUPS, SIZE, C_GROUPS, _AMSGRAD),
}
ADAPTIVE = ("CADA", "G-CADA")
FOURS = "G-CADA in groups of 4"
METHODS[FOURS] = METHODS["G-CADA"]._replace(size=STATED_SIZE)


# Section V does not state smoothness constants. With these, its formulas select some workers in
# every round and some seldom.
SMOOTHNESS = np.geomspace(0.03, 0.3, M)
SMOOTHNESS_GROUPS = np.geomspace(0.05, 0.5, GROUPS)
FEATURES = 10
# Method, constants L and c, workers in a group, and the equations of number selected, time, loads.
OF_SECTION: dict[str, tuple[type[GCADA], Floats, float, int, tuple[str, ...]]] = {
    "CADA": (CADA, SMOOTHNESS, C, 1, ("(12)", "(13)", "(18)", "(21)")),
    "G-CADA": (GCADA, SMOOTHNESS_GROUPS, C_GROUPS, SIZE, ("(15)", "(16)", "(19)", "(22)")),
}


@figure("zhu-5", "Zhu et al., section V: time and loads of an iteration")
def section_5(*, seed: int = 0, rounds: int = ROUNDS) -> Iterator[Part]:
    """Time, communication and computation of an iteration: eqs. (10) to (22), and measured.

    The numbers selected are measured with `fastgc.optimizers.CADA` and `GCADA` on quadratic
    functions of known smoothness, with noisy gradients. The optimizers make a twentieth as many
    steps as there are rounds, and at least 100.
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
    for name, scaled in [(name, scaled) for name in OF_SECTION for scaled in (False, True)]:
        yield from _selection_rows(name, scaled, delays, steps, rng)
    yield from _load_rows()
    yield _panel(delays, rng, rounds)
    yield _selection_panel(max(steps // 5, 100), rng)


def _selection_rows(
    name: str, scaled: bool, delays: Exponential, steps: int, rng: np.random.Generator
) -> Iterator[Row]:
    """Yield rows that compare a measured rule of selection with the paper's formulas."""
    kind, smoothness, stated, size, numbers = OF_SECTION[name]
    groups = len(smoothness)
    c = stated / groups**2 if scaled else stated
    chosen, straight = selections(kind, smoothness, c, steps, rng)
    counts = chosen.sum(axis=1)
    mean = float(counts.mean())
    formula = closed_forms.selected_mean(smoothness, stated, MAX_AGE, oldest=MAX_AGE + 1)
    # Each round takes as long as the slowest selected group, a group as its fastest worker.
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
        bound=scaled,  # time is concave in the number selected, whose mean is below the bound
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


def selections(
    kind: type[GCADA], smoothness: Floats, c: float, rounds: int, rng: np.random.Generator
) -> tuple[Bools, float]:
    """Return which groups are selected in each round, (rounds, groups), and how straight steps are.

    Group g has the function L_g / 2 ||theta - t||^2 with its own t, which varies from gradient to
    gradient. The straightness is the mean, over rounds and tau = 1 .. D - 1, of ||theta^k -
    theta^(k - tau)||^2 divided by tau times the sum of the last D squared steps; it is at most 1.
    """
    groups = smoothness.size
    targets = rng.standard_normal((groups, FEATURES))
    how: Any = {"c": c, "max_age": MAX_AGE, "smoothness": smoothness, "relative": False}
    method = kind(groups, AMSGrad(RATE), **how)
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
    """Yield rows on the size of groups that follows from the loads that section VI reports."""
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
    # A round that selects g groups takes H_g <= g times the mean time of a group.
    for size in (SIZE, STATED_SIZE):
        most = ETA / size * communication / (size + 1)
        yield FIGURE(
            f"longest time (s) of 12,292 vectors, G-CADA in groups of {size}",
            most,
            time if most < time else None,
            note="g selections in one round take H_g times the mean of one, less than in g "
            "rounds: the 0.068 s reported are too long for groups of 4, and not for 3",
        )
    for name, size, groups in (("CADA", 1, M), ("G-CADA", SIZE, SCRIPT_GROUPS)):
        time, communication, _ = REPORTED[name]
        counts = np.arange(1, groups + 1)
        times = [closed_forms.fastest_of_groups_mean(g, size, Exponential(ETA)) for g in counts]
        over = time / communication * (size + 1) * counts - times  # increasing from where it counts
        first = int(over.argmin())
        yield FIGURE(
            f"{'workers' if size == 1 else 'groups of 3'} selected in a round, at most, {name}",
            float(np.interp(0, over[first:], counts[first:])),
            note="from the seconds and vectors reported, as the time of a round is concave in the "
            "number selected: the mean time is at most that of the mean number",
        )


def _selection_panel(steps: int, rng: np.random.Generator) -> Panel:
    """Return a panel of workers selected by rule (7) against its constant, with the formulas."""
    constants = np.geomspace(C / M**2 / 10, 10 * C, 13)
    measured, formula, kept = [], [], []
    for c in constants.tolist():
        measured.append(selections(CADA, SMOOTHNESS, c, steps, rng)[0].sum(axis=1).mean())
        selected = partial(closed_forms.selected_mean, SMOOTHNESS, c, MAX_AGE)
        formula.append(selected(oldest=MAX_AGE + 1))
        kept.append(selected(1))
    lines = [
        Line("eq. (12)", constants, formula),
        Line("bound of rule (7)", constants, kept),
        Line("CADA at work", constants, measured, "points"),
    ]
    title = f"M = {M}, D = {MAX_AGE}, smoothness from {SMOOTHNESS[0]:g} to {SMOOTHNESS[-1]:g}"
    return Panel(title, "constant c of rule (7)", "workers selected in a round", lines, log_x=True)


def _panel(delays: Exponential, rng: np.random.Generator, rounds: int) -> Panel:
    """Return a panel of the time of an iteration against the number selected."""
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
    *, seed: int = 0, data: str = "digits", runs: int | None = None, steps: int = STEPS
) -> Iterator[Part]:
    """Loss, communication and computation against time, of four methods; and codes in groups.

    The problem is that of the first author's script: linear regression without a bias, with labels
    x θ* for a random θ*, from a random start to a mean squared error of 0.1. CADA has 12 workers,
    G-CADA three groups of three, and times are exponential. The rule of selection is the paper's:
    further rows have the groups of four of its text, the script's rule, and the whole script.

    `data` is as in `fastgc.data.load`; only its samples are used. Each of the `runs` (by default
    12, or 1 on large data) draws θ*, the start, mini-batches and times anew. A run ends at that
    error, or after `steps` steps.
    """
    if steps < 1 or (runs is not None and runs < 1):
        raise ValueError(f"runs and steps must be at least 1, not {runs} and {steps}")
    samples = datasets.load(data, seed=seed)
    large = samples.X_train.size >= LARGE
    if runs is None:
        runs = 1 if large else RUNS
    few = 0 if large else min(runs, FEW_RUNS)
    jobs = [(SCRIPT_AGE, run) for run in range(runs)]
    jobs += [(age, run) for age in OTHER_AGES for run in range(few)]
    taken: dict[int, list[_Taken]] = {}
    drawn: list[_Run] = []
    for age, run in jobs:
        problem = _problem(samples, seed + run)
        names = [ADAM, *ADAPTIVE] if age == SCRIPT_AGE else ADAPTIVE  # Adam has no ages
        found = [_trained(problem, name, seed + run, steps, age) for name in names]
        taken.setdefault(age, []).append({each.name: each.to_level() for each in found})
        drawn = drawn or found
    first = _problem(samples, seed)
    longest = max(each.loss.size for each in drawn)
    yield from _compared_rows(taken[SCRIPT_AGE])
    yield from _reading_rows(samples, seed, runs, steps)
    yield from _absolute_rows(first, taken[SCRIPT_AGE])
    yield from _run_panels([_trained(first, SGD_NAME, seed, longest), *drawn])
    if few:
        yield from _aged_rows({age: taken[age] for age in OTHER_AGES})
        yield from _spread_panels(taken[SCRIPT_AGE])
    yield from _coded_groups(first, seed, min(steps, FEW_STEPS))


# By a method's name, what it spent until it reached the level of comparison: rounds, seconds,
# vectors, gradients of mini-batches; NaN if it did not reach it.
_Taken = Mapping[str, Floats]


class _Run(NamedTuple):
    """A run of a method: values before each round, and after the last."""

    name: str
    loss: Floats
    spent: Floats  # (4, rounds + 1): what it has spent up to this point, as `_Taken`

    def to_level(self) -> Floats:
        """Return what the method spent until it reached the level; NaN if it did not."""
        return self.spent[:, -1] if self.loss[-1] <= LEVEL else np.full(4, np.nan)


class _Problem(NamedTuple):
    """Linear regression without a bias; a linear model makes the labels."""

    dataset: datasets.Dataset
    model: LinearRegression
    start: NDArray[np.floating]  # first parameters


def _problem(samples: datasets.Dataset, seed: int) -> _Problem:
    X, X_test = samples.X_train, samples.X_test
    rng = np.random.default_rng(seed)
    true, start = rng.standard_normal((2, samples.features)).astype(X.dtype)
    dataset = replace(samples, y_train=X @ true, y_test=X_test @ true)
    return _Problem(dataset, LinearRegression(samples.features, 1, bias=False), start)


def _trained(problem: _Problem, name: str, seed: int, steps: int, age: int = SCRIPT_AGE) -> _Run:
    """Run a method until it reaches the level of comparison, or for `steps` steps."""
    _, groups, size, *_ = METHODS[name]
    method = METHODS[name].begun(problem.start, age)
    X, y = problem.dataset.X_train, problem.dataset.y_train
    shards = datasets.partition(X, y, groups)
    rng = np.random.default_rng([seed, groups])
    some = rng.integers(len(X), size=MEASURED)
    measured = X[some], y[some]
    losses: list[float] = []
    spent = np.zeros((steps + 1, 4))
    while True:
        errors = measured[0] @ method.theta - measured[1]
        losses.append(float(errors @ errors) / MEASURED)
        at = len(losses)
        if losses[-1] <= LEVEL or at > steps:
            break
        selected = method.selected
        times = rng.exponential(ETA, (selected.size, size)).min(axis=1)
        loads = closed_forms.adaptive_loads(selected.size, size)
        spent[at] = spent[at - 1] + (1, times.max(initial=0.0), *loads)
        for group in selected.tolist():
            of_group, labels = shards[group]
            some = rng.integers(len(of_group), size=BATCH)
            batch = of_group[some]
            gradient = (batch @ method.point - labels[some]) @ batch
            gradient *= 2 / BATCH**2 / groups
            method.receive(group, gradient)
        method.step()
    return _Run(name, np.array(losses), spent[: len(losses)].T)


def _by_script(problem: _Problem, name: str, seed: int, steps: int, whole: bool = False) -> _Run:
    """Run a method by the script's rule of selection, or by the whole script.

    The right side of its rule is c times the square of the sum of nine steps, and ages have no
    limit. In the whole script, who is not selected draws a new mini-batch at its last point;
    AMSGrad takes the larger of two lists, of which Python compares the first elements that differ,
    and divides by it before it has seen the new gradient.
    """
    _, groups, size, c, optimizer = METHODS[name]
    shards = datasets.partition(problem.dataset.X_train, problem.dataset.y_train, groups)
    rng = np.random.default_rng([seed, groups])
    some = rng.integers(len(problem.dataset.X_train), size=MEASURED)
    X, y = problem.dataset.X_train[some], problem.dataset.y_train[some]
    theta, squares = problem.start, script_smoothness(groups) ** 2
    points, stored = np.tile(theta, (groups, 1)), np.zeros((groups, theta.size))
    momentum, second, top = np.zeros((3, theta.size))
    ours, pool = optimizer(), deque([theta], maxlen=SCRIPT_AGE + 1)
    ours.reset(theta)
    losses, spent = [float(np.mean((X @ theta - y) ** 2))], np.zeros((steps + 1, 4))
    while losses[-1] > LEVEL and len(losses) <= steps:
        right = c * np.sum((theta - pool[0]) ** 2)  # the sum of steps from one to the other
        selected = np.flatnonzero(squares * np.sum((theta - points) ** 2, axis=1) >= right)
        points[selected] = theta
        times = rng.exponential(ETA, (selected.size, size)).min(axis=1)
        loads = closed_forms.adaptive_loads(selected.size, size)
        spent[len(losses)] = spent[len(losses) - 1] + (1, times.max(initial=0.0), *loads)
        for group in range(groups) if whole else selected.tolist():
            of_group, labels = shards[group]
            some = rng.integers(len(of_group), size=BATCH)
            batch = of_group[some]
            stored[group] = (batch @ points[group] - labels[some]) @ batch * (2 / BATCH**2)
        gradient = stored.mean(axis=0)
        if whole:
            top = np.array(max(top.tolist(), second.tolist()))
            momentum = 0.9 * momentum + 0.1 * gradient
            second = 0.999 * top + 0.001 * gradient**2
            theta = theta - RATE * momentum / np.sqrt(top + EPSILON)
        else:
            ours.step(gradient)
            theta = ours.theta.copy()
        pool.append(theta)
        losses.append(float(np.mean((X @ theta - y) ** 2)))
    return _Run(name, np.array(losses), spent[: len(losses)].T)


def _reading_rows(samples: datasets.Dataset, seed: int, runs: int, steps: int) -> Iterator[Row]:
    """Yield the ratios by other readings than the script's problem with the paper's rule."""
    readings: dict[str, tuple[Callable[..., _Run], tuple[str, str]]] = {
        "groups of 4, as in the text": (_trained, ("CADA", FOURS)),
        "the script's rule": (_by_script, ADAPTIVE),
        "the whole script": (partial(_by_script, whole=True), ADAPTIVE),
    }
    for reading, (run, names) in readings.items():
        taken = []
        for at in range(runs):
            problem = _problem(samples, seed + at)
            taken.append({name: run(problem, name, seed + at, steps).to_level() for name in names})
        for at, what in enumerate(METRICS):
            ratios = _ratios(taken, *names, at)
            name = f"{what}, CADA : G-CADA, {reading} ({_range(ratios)})"
            note = f"in place of the paper's rule in groups of 3; the mean of {_draws(taken)}"
            yield FIGURE(name, _geometric(ratios), _reported(at), note=note)


def _reported(at: int) -> float:
    """Return the paper's ratio of CADA to G-CADA, of one of `METRICS`."""
    return REPORTED["CADA"][at] / REPORTED["G-CADA"][at]


def _compared_rows(taken: Sequence[_Taken]) -> Iterator[Row]:
    problem = (
        "the problem of the first author's script with the paper's rule: labels by random true "
        f"parameters, and a random start, to a mean squared error of {LEVEL:g}. It is the "
        f"geometric mean of {_draws(taken)}, in brackets the least and the largest; its standard "
        "error is {error}"
    )
    for at, what in enumerate(METRICS):
        ratios = _ratios(taken, "CADA", "G-CADA", at)
        low, high = ratios.min(), ratios.max()
        note = problem.format(error=_standard_error(ratios))
        if low < high:
            within = low <= _reported(at) <= high
            note += f". The paper's one run is {'within' if within else 'beyond'} these"
        if what == "computation":
            note += ". In groups of 3 it is 2/3 of the ratio of communication"
        name = f"{what}, CADA : G-CADA ({_range(ratios)})"
        yield FIGURE(name, _geometric(ratios), _reported(at), note=note)
    for at, what in enumerate(METRICS):
        ratios = _ratios(taken, ADAM, "CADA", at)
        note = "above 1 adaptive selection saves" if what != "time" else ""
        yield FIGURE(f"{what}, {ADAM} : CADA ({_range(ratios)})", _geometric(ratios), note=note)
    for name, who in zip(ADAPTIVE, ("workers", "groups"), strict=True):
        each = [run[name][2] / run[name][0] for run in taken]
        selected = float(np.mean(each)) / (METHODS[name].size + 1)
        yield FIGURE(f"{who} selected in a round, {name}", selected)


def _draws(taken: Sequence[_Taken]) -> str:
    return f"{len(taken)} draw{'s' * (len(taken) > 1)}"


def _aged_rows(taken: Mapping[int, Sequence[_Taken]]) -> Iterator[Row]:
    """Yield the same ratios for fewer runs and other D."""
    for age, runs in taken.items():
        note = f"in place of the script's {SCRIPT_AGE} steps; the mean of {_draws(runs)}"
        for at, what in enumerate(METRICS):
            ratios = _ratios(runs, "CADA", "G-CADA", at)
            name = f"{what}, CADA : G-CADA, with D = {age} ({_range(ratios)})"
            yield FIGURE(name, _geometric(ratios), note=note)


def _absolute_rows(problem: _Problem, taken: Sequence[_Taken]) -> Iterator[Row]:
    """Yield seconds and loads beside the paper's, and the largest stable rate of SGD."""
    note = (
        f"samples here have {problem.dataset.features} features, the paper's 784; the mean of "
        f"{_draws(taken)}"
    )
    for name in ADAPTIVE:
        for at, unit in enumerate(("s", "vectors", "gradients")):
            ours = float(np.mean([run[name][1 + at] for run in taken]))
            yield FIGURE(f"{METRICS[at]} ({unit}), {name}", ours, REPORTED[name][at], note=note)
    yield FIGURE(
        "largest stable rate of distributed SGD",
        BATCH / problem.model.smoothness(problem.dataset.X_train),
        note=f"for the paper's {SGD_RATE}, of the script's gradients, which are 2 / {BATCH} of "
        "those of half the mean squared error",
    )


def _ratios(taken: Sequence[_Taken], one: str, other: str, at: int) -> Floats:
    """Return the ratio of two methods in one of `METRICS`, for each run."""
    return np.array([run[one][1 + at] / run[other][1 + at] for run in taken])


def _geometric(ratios: Floats) -> float:
    return math.exp(float(np.mean(np.log(ratios))))


def _range(ratios: Floats) -> str:
    if np.isnan(ratios).any():
        return "not reached by all"
    return f"{ratios.min():.2f} to {ratios.max():.2f}" if ratios.size > 1 else "one run"


def _standard_error(ratios: Floats) -> str:
    if ratios.size == 1 or np.isnan(ratios).any():
        return "unknown"
    return f"{100 * np.std(np.log(ratios), ddof=1) / math.sqrt(ratios.size):.0f}%"


def _run_panels(runs: Sequence[_Run]) -> Iterator[Panel]:
    def panel(y: str, of: Callable[[_Run], Floats], log: bool) -> Panel:
        lines = [Line(run.name, 1e3 * run.spent[1], of(run)) for run in runs]
        return Panel("", "time (ms)", y, lines, log_y=log)

    yield panel("mean squared error", lambda run: run.loss, True)
    yield panel("communication (vectors)", lambda run: run.spent[2], False)
    yield panel("computation (gradients)", lambda run: run.spent[3], False)


def _spread_panels(taken: Sequence[_Taken]) -> Iterator[Panel]:
    """Yield panels of the ratios of all runs, in ascending order, and of the paper's ratio."""
    for at, what in enumerate(METRICS):
        ratios = np.sort(_ratios(taken, "CADA", "G-CADA", at))
        ratios = ratios[np.isfinite(ratios)]
        draws = np.arange(1, ratios.size + 1)
        if ratios.size:
            reported = Line("the paper", draws, np.full(ratios.size, _reported(at)))
            lines = [Line("here", draws, ratios, "points"), reported]
            title, y_label = "from the least to the largest", f"{what}, CADA : G-CADA"
            yield Panel(title, "draw of θ*", y_label, lines)


def _coded_groups(problem: _Problem, seed: int, steps: int) -> Iterator[Row]:
    """Yield times of G-CADA with a code in each group instead of repetition; steps are the same."""
    dataset = problem.dataset
    few = dataset.X_train[:FEW], dataset.y_train[:FEW]
    problem = problem._replace(dataset=replace(dataset, X_train=few[0], y_train=few[1]))
    codes: dict[str, Code] = {
        "repetition": FractionalRepetition(SIZE, stragglers=SIZE - 1),
        "the binary code, s = 1": BinaryCode(SIZE, stragglers=1),
        "UC-MMC, all messages": Uncoded(SIZE, load=SIZE),
    }
    batch = min(BATCH // SIZE, len(few[0]) // (SCRIPT_GROUPS * SIZE))  # samples per partition
    part = ETA / SIZE  # mean seconds of a third of a mini-batch
    times: dict[str, DelayModel] = {
        "exponential times": Exponential(part, per="computation"),
        "times half of which is constant": ShiftedExponential(part / 2, 2 / part),
    }
    for kind, delays in times.items():
        took: dict[str, float] = {}
        for name, code in codes.items():
            method = METHODS["G-CADA"].begun(problem.start, SCRIPT_AGE)
            grouped = Grouped([code] * SCRIPT_GROUPS)
            how: Any = {"model": problem.model, "theta0": problem.start, "delays": delays}
            how |= {"seed": seed, "batch": batch, "engine": "simulated"}
            history = train(grouped, problem.dataset, optimizer=method, rounds=steps, **how)
            took[name] = history.rounds[-1].time
        for name in list(codes)[1:]:
            yield FIGURE(
                f"time, groups with {name} : with repetition, {kind}",
                took[name] / took["repetition"],
                note="not in the paper: a member computes thirds of its group's mini-batch, "
                "each taking the same time; the steps are the same",
            )
