"""Halbawi, Azizan-Ruhi, Salehi, Hassibi 2017: the best load, and training by the clock."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import data as datasets
from .._arrays import at_least
from .._extras import scipy
from ..codes import Code, CyclicRepetition, ReedSolomon, Uncoded
from ..data import Dataset
from ..delays import Pareto
from ..errors import InstabilityWarning
from ..models import SoftmaxRegression
from ..optimizers import Nesterov
from ..panels import Line, Panel
from ..planning.optimum import DecodeCost, limit_time, optimal_fraction, optimal_threshold
from ..simulation import simulate
from .figure import ROUNDS, Figure, Row, Track

__all__ = ["figure_2", "figure_3"]

PAPER = "halbawi2017"
N = 80  # workers, and partitions
DELAYS = Pareto(0.001, 1.1)
WORK = 0.035  # N c_g, seconds for the gradient of all the data
THRESHOLD_RS, THRESHOLD_MDS = 68, 33
# Seconds per operation of the master, c_m, which the paper does not state: with this one its two
# thresholds are the best.
OPERATION = 1.24e-7
DECODE_RS, DECODE_MDS = DecodeCost(OPERATION, "f2"), DecodeCost(OPERATION, "f3")

# Training, figure 2.
SAMPLES = 12_000  # at most, as in the paper
BUDGET = 3.0  # simulated seconds of a run
SHARES = (0.1, 1 / 3, 2 / 3, 1.0)  # of the budget, after which schemes are compared
TARGET = 0.05  # test error
CHECKED = 3  # rounds of a run whose gradients are decoded, too
_FEW = 1 << 20  # samples times features times runs, about, that train in half a minute


def figure_3() -> Figure:
    """Time of a round against the share of the data that a worker computes; the best threshold."""
    figure = f"{PAPER} figure 3"
    best = optimal_fraction(DELAYS, WORK)
    offline = optimal_threshold(N, DELAYS, WORK / N)
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
            "best threshold, decoding offline, exact eq. (17)",
            offline.f,
            closed=(1 - best) * N + 1,
            note="closed: (18) at α*, for large n",
        ),
    ]
    thresholds = np.arange(1, N + 1)
    lines = [Line("offline", thresholds, offline.times)]
    for name, decode, paper in (
        ("f(f - 1) operations", DECODE_RS, THRESHOLD_RS),
        ("f³ operations", DECODE_MDS, THRESHOLD_MDS),
    ):
        found = optimal_threshold(N, DELAYS, WORK / N, decode=decode)
        operations = np.array([decode(int(f), N) for f in thresholds]) / OPERATION
        low, high = _costs(offline.times, operations, paper)
        rows.append(
            Row(
                figure.replace("3", "2"),
                f"best threshold, decoding in {name}",
                found.f,
                paper,
                note=f"c_m = {OPERATION:g} s; the best for c_m from {low:.4g} to {high:.4g} s",
            )
        )
        lines.append(Line(f"decoding in {name}", thresholds, found.times))
        lines.append(Line(f"decoding in {name}", [found.f], [found.time], "points"))
    share = np.linspace(0.02, 0.98, 97)
    limit = [limit_time(float(x), DELAYS, WORK) for x in share]
    least = limit_time(best, DELAYS, WORK)
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


def _costs(
    times: NDArray[np.float64], operations: NDArray[np.float64], f: int
) -> tuple[float, float]:
    """Least and largest cost of an operation with which waiting for f is the best."""
    slower = times - times[f - 1]
    more = operations - operations[f - 1]
    # f is as good as another where cost * more >= -slower
    bound = np.divide(-slower, more, where=more != 0, out=np.zeros_like(more))
    return max(0.0, float(bound[more > 0].max())), float(bound[more < 0].min())


@dataclass(frozen=True)
class _Scheme:
    """What a round of training costs, and which gradient it gives."""

    name: str
    code: Code
    f: int  # workers waited for
    decode: float = 0.0  # seconds

    @property
    def exact(self) -> bool:
        return self.f == N or self.code.load > 1

    @property
    def work(self) -> float:
        """Seconds that computing and decoding add to the delays."""
        return WORK / N * self.code.load + self.decode

    def ends(self, delays: NDArray[np.float64]) -> NDArray[np.float64]:
        """When each round is over, for delays of shape (rounds, n)."""
        waits = np.partition(delays, self.f - 1, axis=1)[:, self.f - 1]
        return np.cumsum(waits + self.work)


def _schemes() -> list[_Scheme]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)
        mds = CyclicRepetition(N, stragglers=N - THRESHOLD_MDS)
    return [
        _Scheme(
            f"coded, RS, f = {THRESHOLD_RS}",
            ReedSolomon(N, stragglers=N - THRESHOLD_RS),
            THRESHOLD_RS,
            DECODE_RS(THRESHOLD_RS, N),
        ),
        _Scheme(
            f"coded, MDS, f = {THRESHOLD_MDS}", mds, THRESHOLD_MDS, DECODE_MDS(THRESHOLD_MDS, N)
        ),
        _Scheme("uncoded, all", Uncoded(N), N),
        *(
            _Scheme(f"uncoded, f = {f}", Uncoded(N, tolerance=1 - f / N), f)
            for f in (THRESHOLD_RS, THRESHOLD_MDS)
        ),
    ]


def figure_2(
    *,
    data: str = "digits",
    seed: int = 0,
    rounds: int = ROUNDS,
    budget: float = BUDGET,
    runs: int | None = None,
    track: Track = iter,
) -> Figure:
    """Test error against time of five schemes: real gradients, a simulated clock.

    All schemes see the same delays. Coded ones, and waiting for all, give the exact gradient;
    waiting for fewer gives the sum of the partial gradients that came, scaled to the whole (the
    paper does not say whether it is). In the first rounds of every run the gradient is encoded and
    decoded, and must be the one that is used.

    Parameters
    ----------
    data : str
        As `fastgc.data.load` takes it; of more than 12,000 training samples, so many are chosen.
    seed : int
        Of the delays and, where it is made here, the split into training and test samples.
    rounds : int
        Simulated for the median time of a round.
    budget : float
        Simulated seconds of a run.
    runs : int, optional
        Runs to average over, each with its own delays and split. Default: 8, or as many as train
        within about a minute.
    track : callable
        Wraps what is looped over.

    Raises
    ------
    ValueError
        If `rounds` is not at least 1, or `seed` negative.
    TypeError
        If `rounds` or `seed` is not an integer.
    ArithmeticError
        If a gradient is not decoded as it should be.
    """
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    figure = f"{PAPER} figure 2"
    schemes = _schemes()
    if runs is None:
        size = datasets.load(data, seed=seed).X_train[:SAMPLES].size
        runs = max(1, min(8, _FEW // size))
    grid = budget * np.unique(np.append(np.geomspace(0.01, 1, 61), SHARES))
    anew = np.empty((runs, len(schemes), grid.size))
    persistent = np.empty_like(anew)
    worst = 0.0
    for run in track(range(runs)):
        dataset = datasets.load(data, seed=seed + run)
        training = _Training(dataset, seed + run)
        rng = np.random.default_rng((seed, run))
        rank = rng.permutation(N)
        delays = DELAYS.draw(rng, int(budget / DELAYS.scale) + 1, N)
        slow = np.sort(delays, axis=1)[:, rank]  # the same workers in every round
        for at, scheme in enumerate(schemes):
            anew[run, at] = training.errors(scheme, delays, grid)
            # exact gradients do not depend on who was late
            again = not scheme.exact
            persistent[run, at] = training.errors(scheme, slow, grid) if again else anew[run, at]
        worst = max(worst, training.worst)
    return Figure(
        "halbawi-2",
        f"Halbawi et al., figure 2: test error against time, {dataset.name}",
        [
            *_round_rows(figure, schemes, rounds, seed),
            *_error_rows(figure, schemes, grid, anew, persistent, training.data),
            Row(
                figure,
                "relative error of a decoded gradient, largest",
                worst,
                note=f"of the first {CHECKED} rounds of every run",
            ),
        ],
        [
            Panel(
                title,
                "simulated time (s)",
                "test error",
                [
                    Line(scheme.name, grid, errors)
                    for scheme, errors in zip(schemes, curves.mean(axis=0), strict=True)
                ],
                log_x=True,
                log_y=True,
            )
            for title, curves in (
                ("Delays drawn anew in every round, as in the paper", anew),
                ("The same workers late in every round", persistent),
            )
        ],
    )


class _Training:
    """Runs on one split of the data."""

    def __init__(self, dataset: Dataset, seed: int) -> None:
        self.worst = 0.0  # relative error of a gradient decoded
        # in random order, so that partitions are alike
        chosen = np.random.default_rng(seed).permutation(len(dataset.X_train))[:SAMPLES]
        self._X, self._y = dataset.X_train[chosen], dataset.y_train[chosen]
        self._test = dataset.X_test, dataset.y_test
        self.data = f"{len(self._y)} samples of {dataset.name}"
        self._model = SoftmaxRegression(dataset.features, dataset.classes)
        sizes = [len(y) for _, y in datasets.partition(self._X, self._y, N)]
        self._partition = np.repeat(np.arange(N), sizes)

    def errors(
        self, scheme: _Scheme, delays: NDArray[np.float64], grid: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Test error at each time of the grid."""
        optimizer = Nesterov(self._model.learning_rate(self._X) / len(self._y))
        optimizer.reset(np.zeros(self._model.size))
        errors = np.empty(grid.size)
        done = 0
        for at, stop in enumerate(np.searchsorted(scheme.ends(delays), grid, side="right")):
            for number in range(done, int(stop)):
                heard = np.argpartition(delays[number], scheme.f - 1)[: scheme.f]
                gradient = self._gradient(scheme, heard, optimizer.point)
                if number < CHECKED:
                    self._check(scheme, heard, optimizer.point, gradient)
                optimizer.step(gradient)
            done = int(stop)
            errors[at] = self._model.error(optimizer.theta, *self._test)
        return errors

    def _gradient(
        self, scheme: _Scheme, heard: NDArray[np.int64], theta: NDArray[Any]
    ) -> NDArray[Any]:
        if scheme.exact:
            return self._model.gradient(theta, self._X, self._y)
        came = np.zeros(N, dtype=bool)
        came[heard] = True
        mask = came[self._partition]
        gradient = self._model.gradient(theta, self._X[mask], self._y[mask])
        gradient *= N / scheme.f
        return gradient

    def _check(
        self,
        scheme: _Scheme,
        heard: NDArray[np.int64],
        theta: NDArray[Any],
        wanted: NDArray[Any],
    ) -> None:
        """Encode and decode the gradient, and compare."""
        partials = np.array(
            [self._model.gradient(theta, X, y) for X, y in datasets.partition(self._X, self._y, N)]
        )
        code = scheme.code
        messages = [code.encode(int(i), partials[code.partitions(int(i))]) for i in heard]
        decoded = code.decode(heard, messages)
        error = float(np.linalg.norm(decoded - wanted) / np.linalg.norm(wanted))
        if not error < 1e-6:
            raise ArithmeticError(f"{scheme.name}: the gradient was decoded to within {error:.0e}")
        self.worst = max(self.worst, error)


def _round_rows(figure: str, schemes: list[_Scheme], rounds: int, seed: int) -> list[Row]:
    rows = []
    for scheme in schemes:
        run = simulate(scheme.code, DELAYS, cost=WORK / N, rounds=rounds, seed=seed)
        # of the f-th smallest of n uniforms, whose law is a Beta distribution
        level = scipy("special").betaincinv(scheme.f, N - scheme.f + 1, 0.5)
        rows.append(
            Row(
                figure,
                f"median time of a round (ms), {scheme.name}",
                1e3 * (float(run.quantile(0.5)) + scheme.decode),
                closed=1e3 * (float(DELAYS.quantile(level)) + scheme.work),
                note=f"medians, as the slowest worker's delay has no variance (tail exponent "
                f"{DELAYS.shape:g})"
                if scheme.f == N
                else "",
            )
        )
    return rows


def _error_rows(
    figure: str,
    schemes: list[_Scheme],
    grid: NDArray[np.float64],
    anew: NDArray[np.float64],
    persistent: NDArray[np.float64],
    trained: str,
) -> list[Row]:
    """Rows from test errors of shape (runs, schemes, times); `trained` says on what."""

    def reached(errors: NDArray[np.float64]) -> float:
        good = errors <= TARGET
        return float(grid[good.argmax()]) if good.any() else float("inf")

    def rank(errors: NDArray[np.float64]) -> int:
        return 1 + int((errors[1:] < errors[0]).sum())

    def listed(errors: NDArray[np.float64]) -> str:
        return ", ".join(
            f"{100 * error:.1f} % {scheme.name}"
            for scheme, error in zip(schemes, errors, strict=True)
        )

    exact = [scheme.exact for scheme in schemes]
    first = [reached(errors) for errors in anew.mean(axis=0)]
    rows = [
        Row(
            figure,
            f"time to a test error of {100 * TARGET:g} % (s), {scheme.name}",
            seconds,
            note="" if scheme.exact else f"{reached(late):.2g} s where the same workers are late",
        )
        for scheme, seconds, late in zip(schemes, first, persistent.mean(axis=0), strict=True)
    ]
    rows.append(
        Row(
            figure,
            f"place of RS among the 3 exact schemes, by time to {100 * TARGET:g} %",
            rank(np.array(first)[exact]),
            1,
            note=f"trained on {trained}; the paper, on 12,000 of MNIST",
        )
    )
    why = (
        "Rounds that ignore stragglers are 2 to 6 times shorter than those of RS; on digits all "
        "schemes overfit from some 150 rounds on, the one of the longest rounds last. Where delays "
        "are drawn anew, others are late in every round, so that ignoring them costs little; where "
        "the same workers are late, their data are never learnt"
    )
    runs = len(anew)
    for title, of_runs in (("delays drawn anew", anew), ("same workers late", persistent)):
        curves = of_runs.mean(axis=0)
        for at in np.searchsorted(grid, grid[-1] * np.array(SHARES)):
            # no standard error: the runs' test samples overlap
            spread = (
                f"; standard deviation of RS over {runs} runs "
                f"{100 * of_runs[:, 0, at].std(ddof=1):.1f} %"
                if runs > 1
                else ""
            )
            rows.append(
                Row(
                    figure,
                    f"place of RS among all 5 after {grid[at]:.2g} s, {title}",
                    rank(curves[:, at]),
                    1,
                    note=listed(curves[:, at]) + spread + (f". {why}" if why else ""),
                )
            )
            why = ""  # said once
    return rows
