"""Halbawi, Azizan-Ruhi, Salehi, Hassibi 2017: the best load, and training by the clock."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import data as datasets
from .._arrays import at_least, check_real
from .._extras import one_thread_of_blas
from ..codes import CyclicRepetition, ReedSolomon, Uncoded
from ..errors import InstabilityWarning
from ..planning.optimum import (
    DecodeCost,
    Optimum,
    limit_time,
    optimal_fraction,
    optimal_threshold,
)
from ..plotting.panels import Line, Panel
from ..simulation import simulate
from .clocked import CHECKED, DELAYS, WORK, N, Ran, Scheme, Training, drawn
from .figure import ROUNDS, Figure, Row, Track

__all__ = ["DecodingTimes", "figure_2", "figure_3"]

PAPER = "halbawi2017"
THRESHOLD_RS, THRESHOLD_MDS = 68, 33
# Seconds per operation of the master, c_m, which the paper does not state: with this one its two
# thresholds are the best.
OPERATION = 1.24e-7
DECODE_RS, DECODE_MDS = DecodeCost(OPERATION, "f2"), DecodeCost(OPERATION, "f3")
TIMED, WARM = 101, 10  # decoding vectors of which each is timed, after some that are not

# Training, figure 2.
BUDGET = 1.0  # simulated seconds of a run
RUNS = 9
SHARES = (0.1, 1 / 3, 2 / 3, 1.0)  # of the budget, after which schemes are compared


class DecodingTimes(NamedTuple):
    """Seconds for a decoding vector, from as many survivors as the paper waits for.

    Attributes
    ----------
    rs : float
        `ReedSolomon.decoding_vector`, of 68 of 80.
    solve, lstsq : float
        ``numpy.linalg.solve`` on the 33 equations of an MDS code's generator, and
        ``numpy.linalg.lstsq`` on the 80 of its encoding matrix.
    """

    rs: float
    solve: float
    lstsq: float


def figure_3(*, times: DecodingTimes | None = None) -> Figure:
    """Time of a round against the share of the data that a worker computes; the best threshold.

    The paper does not state c_m, the seconds of one of the master's operations. Some rows take one
    chosen so that the paper's thresholds come out, and say so; the others take those measured.

    Parameters
    ----------
    times : DecodingTimes, optional
        Measured on this machine by default.
    """
    figure = f"{PAPER} figure 3"
    best = optimal_fraction(DELAYS, WORK)
    offline = optimal_threshold(N, DELAYS, WORK / N)
    least = limit_time(best, DELAYS, WORK)
    rows = [
        Row(
            figure,
            "optimal fraction α*, eq. (22)",
            best,
            0.1477,
            note="N c_g = 0.035, as the figure says; 12,000 samples at 3e-6 s are 0.036",
        ),
        Row(
            figure,
            "best f, decoding offline, exact eq. (17)",
            offline.f,
            closed=(1 - best) * N + 1,
            note="closed: (18) at α*, for large n",
        ),
    ]
    thresholds = np.arange(1, N + 1)
    lines = [Line("offline", thresholds, offline.times)]
    figure = figure.replace("3", "2")  # which the thresholds belong to
    for name, decode, paper in (
        ("f(f - 1) operations", DECODE_RS, THRESHOLD_RS),
        ("f³ operations", DECODE_MDS, THRESHOLD_MDS),
    ):
        found = optimal_threshold(N, DELAYS, WORK / N, decode=decode)
        operations = np.array([decode(int(f), N) for f in thresholds]) / OPERATION
        low, high = _costs(offline.times, operations, paper)
        any_below = f"for any c_m below {high:.4g} s"
        rows.append(
            Row(
                figure,
                f"best f, decoding in {name}, c_m chosen so that it is {paper}",
                found.f,
                paper,
                note=f"c_m = {OPERATION:g} s, chosen here: the paper states none. {paper} is the "
                f"best {f'only for c_m from {low:.4g} to {high:.4g} s' if low else any_below}",
            )
        )
        lines += _lines(f"decoding in {name}, c_m = {OPERATION:g} s", found)
    took = _measured() if times is None else times
    for name, product, seconds, paper, what in (
        ("f(f - 1) operations", DECODE_RS, took.rs, THRESHOLD_RS, "ReedSolomon.decoding_vector"),
        ("f³ operations, by solve", DECODE_MDS, took.solve, THRESHOLD_MDS, "numpy.linalg.solve"),
        ("f³ operations, by lstsq", DECODE_MDS, took.lstsq, THRESHOLD_MDS, "numpy.linalg.lstsq"),
    ):
        cost = replace(product, seconds=OPERATION * seconds / product(paper, N))
        found = optimal_threshold(N, DELAYS, WORK / N, decode=cost)
        decoding = cost(found.f, N)
        rows.append(
            Row(
                figure,
                f"best f, decoding in {name}, c_m measured here",
                found.f,
                paper,
                note=f"c_m = {cost.seconds:.2g} s, from the {1e6 * seconds:.3g} µs that {what} "
                f"took for f = {paper} on this machine: by it, decoding at f = {found.f} takes "
                f"{1e3 * decoding:.2g} ms, {100 * decoding / found.time:.2g} % of a round, and "
                f"moves the best f from {offline.f}, offline, to {found.f}",
            )
        )
        lines += _lines(f"decoding in {name}, c_m measured", found)
    share = np.linspace(0.02, 0.98, 97)
    limit = [limit_time(float(x), DELAYS, WORK) for x in share]
    return Figure(
        "halbawi-3",
        "Halbawi et al., figure 3: the best share of the data",
        rows,
        [
            Panel(
                "Large n, decoding offline, eq. (21)",
                "fraction of the data on a worker α",
                "time of a round (s)",
                [
                    Line("T_f", share, limit),
                    Line(f"α* = {best:.4f}", [best], [least], "points"),
                ],
            ),
            Panel(
                f"n = {N}, eq. (17)",
                "workers waited for f",
                "time of a round (s)",
                lines,
                log_y=True,
            ),
        ],
    )


def _lines(label: str, found: Optimum) -> list[Line]:
    """Times of all thresholds, and the least."""
    return [
        Line(label, np.arange(1, N + 1), found.times),
        Line(label, [found.f], [found.time], "points"),
    ]


def _measured() -> DecodingTimes:
    """Median time of each decoder on random survivors, called as users call it."""
    rng = np.random.default_rng(0)
    medians = []
    for f, decode in _decoders():
        sets = [rng.permutation(N)[:f] for _ in range(TIMED + WARM)]
        took = []
        for survivors in sets:
            begin = perf_counter()
            decode(survivors)
            took.append(perf_counter() - begin)
        medians.append(float(np.median(took[WARM:])))
    return DecodingTimes(*medians)


def _decoders() -> list[tuple[int, Callable[[NDArray[np.int64]], NDArray[Any]]]]:
    """How many survivors each of `DecodingTimes` takes, and what gives their decoding vector."""
    rs = ReedSolomon(N, stragglers=N - THRESHOLD_RS)
    mds = _mds()
    B = mds.matrix()
    # The n rows of B lie in a space of f dimensions, in which these are coordinates.
    left, size, right = np.linalg.svd(B)
    f = THRESHOLD_MDS
    generator = left[:, :f] * size[:f]
    wanted, ones = right[:f] @ np.ones(N), np.ones(N)
    return [
        (THRESHOLD_RS, rs.decoding_vector),
        (f, lambda survivors: np.linalg.solve(generator[survivors].T, wanted)),
        (f, lambda survivors: np.linalg.lstsq(B[survivors].T, ones)[0]),
    ]


def _costs(
    times: NDArray[np.float64], operations: NDArray[np.float64], f: int
) -> tuple[float, float]:
    """Least and largest cost of an operation with which waiting for f is the best."""
    slower = times - times[f - 1]
    more = operations - operations[f - 1]
    # f is as good as another where cost * more >= -slower
    bound = np.divide(-slower, more, where=more != 0, out=np.zeros_like(more))
    return max(0.0, float(bound[more > 0].max())), float(bound[more < 0].min())


def _mds() -> CyclicRepetition:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)
        return CyclicRepetition(N, stragglers=N - THRESHOLD_MDS)


def _schemes() -> list[Scheme]:
    return [
        Scheme(
            f"coded, RS, f = {THRESHOLD_RS}",
            ReedSolomon(N, stragglers=N - THRESHOLD_RS),
            THRESHOLD_RS,
            DECODE_RS(THRESHOLD_RS, N),
        ),
        Scheme(
            f"coded, MDS, f = {THRESHOLD_MDS}", _mds(), THRESHOLD_MDS, DECODE_MDS(THRESHOLD_MDS, N)
        ),
        Scheme("uncoded, all", Uncoded(N), N),
        *(
            Scheme(f"uncoded, f = {f}", Uncoded(N, tolerance=1 - f / N), f)
            for f in (THRESHOLD_RS, THRESHOLD_MDS)
        ),
    ]


def figure_2(
    *,
    data: str | None = None,
    seed: int = 0,
    rounds: int = ROUNDS,
    budget: float = BUDGET,
    runs: int = RUNS,
    track: Track = iter,
) -> Figure:
    """Test error against time of five schemes: real gradients, a simulated clock.

    All schemes see the same delays, and compute on the same samples. Coded ones, and waiting for
    all, give the exact gradient, whoever is late: they share one sequence of iterates, and differ
    in their clocks alone. Waiting for fewer gives the sum of the partial gradients that came,
    scaled to the whole (the paper does not say whether it is), and is trained anew in every run. In
    the first rounds gradients are encoded and decoded, and must be those that are used.

    The target is the lowest test error that all reach: the exact iterates in the fewest rounds that
    RS does in the budget of any run, and those that ignore stragglers in the budget of every run.
    Waiting for all may take longer than the budget to get there, and goes on.

    Parameters
    ----------
    data : str, optional
        As `fastgc.data.load` takes it: a folder with MNIST's four idx files, say. Of more than
        12,000 training samples, so many are chosen at random. Default: `fastgc.data.glyphs`, 12,000
        synthetic images of MNIST's size and 10,000 to test.
    seed : int
        Of the delays, the order of samples, the glyphs, and the split of data that is not split.
    rounds : int
        Simulated for the median time of a round.
    budget : float
        Simulated seconds of a run.
    runs : int
        Each with its own delays. Medians over them are given, with the intervals between order
        statistics in which medians lie with a probability of 95 % or more, whatever the
        distribution, for these data. It takes 6 runs to have one.
    track : callable
        Wraps what is looped over.

    Raises
    ------
    ValueError
        If `rounds` or `runs` is not at least 1, `seed` negative, or `budget` too short for RS to do
        a round.
    TypeError
        If `rounds`, `runs` or `seed` is not an integer.
    ArithmeticError
        If a gradient is not decoded as it should be.
    """
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    runs, budget = at_least("runs", runs, 1), check_real("budget", budget, positive=True)
    if data is None:
        dataset = datasets.glyphs(seed=seed, dtype=np.float32)
    else:
        dataset = datasets.load(data, seed=seed, dtype=np.float32)
    figure = f"{PAPER} figure 2"
    schemes = _schemes()
    delays = [
        drawn(np.random.default_rng((seed, run)), int(budget / DELAYS.scale) + 1)
        for run in range(runs)
    ]
    training = Training(dataset, seed)
    ran = [Ran(scheme, delays, budget) for scheme in schemes]
    least = int(ran[0].done.min())
    if not least:
        raise ValueError(
            f"budget must be longer: in {budget:g} s of the slowest run, RS does no round"
        )
    most = max(int(each.done.max()) for each in ran if each.scheme.exact)
    with one_thread_of_blas(), ThreadPoolExecutor(2) as pool:
        shared = training.exact([each for each in ran if each.scheme.exact], most, pool)
        for each in track(ran):
            if each.scheme.exact:
                each.follow(shared)
            else:
                training.ignore(each, pool)
    lowest = [shared[: least + 1].min()]
    lowest += [min(errors) for each in ran if not each.scheme.exact for errors in each.errors]
    target = float(max(lowest))
    return Figure(
        "halbawi-2",
        f"Halbawi et al., figure 2: test error against time, {dataset.name}",
        [
            *_round_rows(figure, schemes, rounds, seed),
            *_target_rows(figure, ran, target, least, training.data),
            *_error_rows(figure, ran, budget),
            Row(
                figure,
                "relative error of a decoded gradient, largest",
                training.worst,
                note=f"of the first {CHECKED} rounds: of exact schemes for the survivors of every "
                "run, of the others in one; in float64, as workers compute here for this. The "
                f"gradients trained with are of float32, and differ by {training.rounded:.0e} at "
                "most",
            ),
        ],
        [
            Panel(
                title,
                "simulated time (s)",
                "test error",
                [
                    Line(each.scheme.name, grid, np.median(each.at(grid, late), axis=0))
                    for each in ran
                ],
                log_x=True,
                log_y=True,
            )
            for grid in [budget * np.geomspace(0.01, 1, 61)]
            for title, late in (
                (f"Delays drawn anew in every round, as in the paper; median of {runs} runs", 0),
                (f"The same workers late in every round; median of {runs} runs", 1),
            )
        ],
    )


def _round_rows(figure: str, schemes: list[Scheme], rounds: int, seed: int) -> list[Row]:
    rows = []
    for scheme in schemes:
        run = simulate(scheme.code, DELAYS, cost=WORK / N, rounds=rounds, seed=seed)
        rows.append(
            Row(
                figure,
                f"median time of a round (ms), {scheme.name}",
                1e3 * (float(run.quantile(0.5)) + scheme.decode),
                closed=1e3 * scheme.median,
                note=f"medians, as the slowest worker's delay has no variance (tail exponent "
                f"{DELAYS.shape:g})"
                if scheme.f == N
                else "",
            )
        )
    return rows


def _interval(values: NDArray[np.float64]) -> str:
    """Where the median of the distribution lies that these were drawn from, in words.

    Between the r-th smallest and the r-th largest of m it lies unless r - 1 or fewer are on one of
    its sides: with a probability of 1 - 2 P(Binomial(m, 1/2) < r).
    """
    m = len(values)
    outside = 2 * np.cumsum([math.comb(m, r) for r in range(m)]) / 2**m
    r = int((outside <= 0.05).sum())
    if not r:
        return f"no interval from {m} runs, which are too few"
    low, high = np.sort(values)[[r - 1, m - r]]
    sure = 100 * (1 - outside[r - 1])
    return f"{low:.4g} to {high:.4g} with {sure:.0f} % (order statistics of {m} runs)"


def _target_rows(figure: str, ran: list[Ran], target: float, least: int, trained: str) -> list[Row]:
    """Times to the target, which all reach, and who is there first."""
    name = f"{100 * target:.3g} %"
    medians, rows = [], []
    for each in ran:
        anew, late = (each.reached(target, kind) for kind in (0, 1))
        medians.append(float(np.median(anew)))
        note = f"the median: {_interval(anew)}"
        if not each.scheme.exact:
            note += f"; where the same workers are late {np.median(late):.3g} s ({_interval(late)})"
        rows.append(
            Row(
                figure, f"time to a test error of {name} (s), {each.scheme.name}", medians[-1],
                note=note,
            )
        )  # fmt: skip
    rs, *others = (each for each in ran if each.scheme.exact)
    exact = [each.reached(target, 0) for each in (rs, *others)]
    needed = int(rs.evaluated[(rs.errors[0] <= target).argmax()])
    first = int((exact[0] < np.min(exact[1:], axis=0)).sum())
    offline = ", ".join(
        f"{1e3 * (each.scheme.median - each.scheme.decode):.3g} ms {each.scheme.name}"
        for each in (rs, *others)
    )
    better = sum(medians[ran.index(each)] < medians[ran.index(rs)] for each in others)
    rows.append(
        Row(
            figure,
            f"place of RS among the 3 exact schemes, by median time to {name}",
            1 + better,
            1,
            note=f"first in {first} of {len(exact[0])} runs, on {trained}; the paper, on 12,000 of "
            f"MNIST. {name} is the lowest test error that all schemes reach, the exact ones in "
            f"{needed} rounds (RS does {least} or more in the budget): so their place is that of "
            "their rounds. The time of decoding, c_m, is chosen, but decides nothing: without it "
            f"rounds take {offline}",
        )
    )
    return rows


def _error_rows(figure: str, ran: list[Ran], budget: float) -> list[Row]:
    """Who is first of all, after shares of the budget."""
    rows = []
    for late, title in enumerate(("delays drawn anew", "same workers late")):
        for time in budget * np.array(SHARES):
            errors = np.array([each.at(np.array([time]), late)[:, 0] for each in ran])
            medians = np.median(errors, axis=1)
            done = [int(np.median((each.ends[late] <= time).sum(axis=-1))) for each in ran]
            told = ", ".join(
                f"{100 * median:.1f} % {each.scheme.name} ({number} rounds)"
                for each, median, number in zip(ran, medians, done, strict=True)
            )
            rows.append(
                Row(
                    figure,
                    f"place of RS among all 5 after {time:.2g} s, {title}",
                    1 + int((medians[1:] < medians[0]).sum()),
                    1,
                    note=f"medians of test errors: {told}; RS, {_interval(100 * errors[0])}. "
                    f"{_penalty(ran, late, done[0], done)}",
                )
            )
    return rows


def _penalty(ran: list[Ran], late: int, rounds: int, done: list[int]) -> str:
    """What ignoring stragglers gains in rounds, and costs in as many rounds as RS does."""
    told = []
    for each, number in zip(ran, done, strict=True):
        if not each.scheme.exact:
            own = each.errors.reshape(*each.done.shape, -1)[late]
            at = int(np.searchsorted(each.evaluated, rounds, side="right")) - 1
            told.append(
                f"{each.scheme.name} does {number / max(rounds, 1):.1f} times as many rounds as "
                f"RS, and after as many is at {100 * np.median(own[:, at]):.1f} %"
            )
    return "; ".join(told)
