"""Halbawi, Azizan-Ruhi, Salehi, Hassibi 2017: the best load, and training against time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fastgc._base.extras import one_thread_of_blas
from fastgc.codes import Code, CyclicRepetition, ReedSolomon, Uncoded
from fastgc.delays import Pareto
from fastgc.planning.optimum import (
    DecodeCost,
    Optimum,
    limit_time,
    optimal_fraction,
    optimal_threshold,
)
from fastgc.planning.simulation import simulate
from fastgc.plotting import Line, Panel
from fastgc.training import data as datasets
from fastgc.training.data import Dataset
from fastgc.training.models import SoftmaxRegression
from fastgc.training.optimizers import Nesterov

from .figure import (
    ROUNDS,
    Array,
    Bools,
    Floats,
    Ints,
    Part,
    Row,
    figure,
    median_seconds,
    times_alone,
)
from .glyphs import glyphs

N = 80  # workers, and partitions
DELAYS = Pareto(0.001, 1.1)
WORK = 0.035  # N c_g, seconds for the gradient of all the data
THRESHOLD_RS, THRESHOLD_MDS = 68, 33
# c_m, seconds per operation of the master, which the paper does not state. It is fitted: with this
# value, the paper's two thresholds are the best.
OPERATION = 1.24e-7
DECODE_RS, DECODE_MDS = DecodeCost(OPERATION, "f2"), DecodeCost(OPERATION, "f3")
TIMED, WARM = 101, 10  # decoding vectors that are timed, after some that are not

# Training, figure 2.
BUDGET = 6.0  # simulated seconds of a run: until places change no more
RUNS = 6  # the fewest with an interval for the median
SHARES = (1 / 60, 1 / 6, 1 / 2, 1.0)  # schemes are compared after these parts of the budget
TIMES = np.geomspace(0.01, 1, 61)  # and curves drawn at these
SAMPLES = 12_000  # the most training samples, as in the paper
EVALUATED = 80  # the test error is computed after this many numbers of rounds, in geometric steps
CHECKED = 3  # the first rounds of a run, whose gradients are also decoded

SECOND, THIRD = partial(Row, "halbawi2017 figure 2"), partial(Row, "halbawi2017 figure 3")

Theta = NDArray[np.float32]


class DecodingTimes(NamedTuple):
    """Seconds to compute a decoding vector, for as many survivors as the paper waits for."""

    rs: float  # ``ReedSolomon.decoding_vector(method="lookup")``, 68 of 80 survivors
    solve: float  # ``numpy.linalg.solve``, 33 equations of an MDS code's generator
    lstsq: float  # ``numpy.linalg.lstsq``, 80 equations of its encoding matrix


@figure("halbawi-3", "Halbawi et al., figure 3: the best share of the data")
def figure_3(*, times: DecodingTimes | None = None) -> Iterator[Part]:
    """Time of a round against the share of the data that a worker computes; the best threshold.

    The paper does not state c_m, the seconds of one operation of the master. Some rows take a value
    fitted to the paper's thresholds, and say so. The others take `times`, by default measured here.
    """
    best = optimal_fraction(DELAYS, WORK)
    offline = optimal_threshold(N, DELAYS, WORK / N)
    least = limit_time(best, DELAYS, WORK)
    yield THIRD(
        "optimal fraction α*, eq. (22)",
        best,
        0.1477,
        note="N c_g = 0.035, as the figure says; 12,000 samples at 3e-6 s are 0.036",
    )
    what, closed = "best f, decoding offline, exact eq. (17)", (1 - best) * N + 1
    yield THIRD(what, offline.f, closed=closed, note="closed: (18) at α*, for large n")
    thresholds = np.arange(1, N + 1)
    lines = [Line("offline", thresholds, offline.times)]
    # The thresholds are stated for figure 2.
    for name, decode, paper in (
        ("f(f - 1) operations", DECODE_RS, THRESHOLD_RS),
        ("f³ operations", DECODE_MDS, THRESHOLD_MDS),
    ):
        found = optimal_threshold(N, DELAYS, WORK / N, decode=decode)
        operations = np.array([decode(int(f), N) for f in thresholds]) / OPERATION
        low, high = _costs(offline.times, operations, paper)
        any_below = f"for any c_m below {high:.4g} s"
        yield SECOND(
            f"best f, decoding in {name}, c_m chosen so that it is {paper}",
            found.f,
            paper,
            fitted=f"c_m = {OPERATION:g} s",
            note=f"the paper states none. {paper} is the best "
            f"{f'only for c_m from {low:.4g} to {high:.4g} s' if low else any_below}",
        )
        lines += _lines(f"decoding in {name}, c_m = {OPERATION:g} s", found)
    took = _measured() if times is None else times
    for name, product, seconds, paper, what in (
        ("f(f - 1) operations", DECODE_RS, took.rs, THRESHOLD_RS, 'method="lookup"'),
        ("f³ operations, by solve", DECODE_MDS, took.solve, THRESHOLD_MDS, "numpy.linalg.solve"),
        ("f³ operations, by lstsq", DECODE_MDS, took.lstsq, THRESHOLD_MDS, "numpy.linalg.lstsq"),
    ):
        cost = replace(product, seconds=OPERATION * seconds / product(paper, N))
        found = optimal_threshold(N, DELAYS, WORK / N, decode=cost)
        decoding = cost(found.f, N)
        yield SECOND(
            f"best f, decoding in {name}, c_m measured here",
            found.f,
            paper,
            note=f"c_m = {cost.seconds:.2g} s, from the {1e6 * seconds:.3g} µs that {what} "
            f"took for f = {paper} on this machine: by it, decoding at f = {found.f} takes "
            f"{1e3 * decoding:.2g} ms, {100 * decoding / found.time:.2g} % of a round, and "
            f"moves the best f from {offline.f}, offline, to {found.f}",
        )
        lines += _lines(f"decoding in {name}, c_m measured", found)
    share = np.linspace(0.02, 0.98, 97)
    curve = Line("T_f", share, [limit_time(float(x), DELAYS, WORK) for x in share])
    limit = [curve, Line(f"α* = {best:.4f}", [best], [least], "points")]
    x, y = "fraction of the data on a worker α", "time of a round (s)"
    yield Panel("Large n, decoding offline, eq. (21)", x, y, limit)
    yield Panel(f"n = {N}, eq. (17)", "workers waited for f", y, lines, log_y=True)


def _lines(label: str, found: Optimum) -> list[Line]:
    """Return a line of the times of all thresholds, and a point for the least."""
    least = Line(label, [found.f], [found.time], "points")
    return [Line(label, np.arange(1, N + 1), found.times), least]


def _measured() -> DecodingTimes:
    """Measure the median time of each decoder on random survivors, called as users call it."""
    rng = np.random.default_rng(0)
    medians = []
    for f, decode in _decoders():
        calls = [partial(decode, rng.permutation(N)[:f]) for _ in range(TIMED + WARM)]
        medians.append(median_seconds(calls, warm=WARM))
    return DecodingTimes(*medians)


def _decoders() -> list[tuple[int, Callable[[Ints], Array]]]:
    """Return, for each field of `DecodingTimes`, the number of survivors and the decoder."""
    rs = ReedSolomon(N, stragglers=N - THRESHOLD_RS)
    mds = _mds()
    B = mds.matrix()
    # The n rows of B lie in a space of f dimensions; the generator has their coordinates.
    left, size, right = np.linalg.svd(B)
    f = THRESHOLD_MDS
    generator = left[:, :f] * size[:f]
    wanted, ones = right[:f] @ np.ones(N), np.ones(N)
    return [
        # "lookup" takes the f (f - 1) operations of the cost model; the default takes f s.
        (THRESHOLD_RS, partial(rs.decoding_vector, method="lookup")),
        (f, lambda survivors: np.linalg.solve(generator[survivors].T, wanted)),
        (f, lambda survivors: np.linalg.lstsq(B[survivors].T, ones)[0]),
    ]


def _costs(times: Floats, operations: Floats, f: int) -> tuple[float, float]:
    """Return the least and the largest cost of an operation for which waiting for f is the best."""
    slower = times - times[f - 1]
    more = operations - operations[f - 1]
    # f is at least as good as another threshold if cost * more >= -slower.
    bound = np.divide(-slower, more, where=more != 0, out=np.zeros_like(more))
    return max(0.0, float(bound[more > 0].max())), float(bound[more < 0].min())


def _mds() -> CyclicRepetition:
    with times_alone():
        return CyclicRepetition(N, stragglers=N - THRESHOLD_MDS)


# ------------------------------------------------------ figure 2: training with a simulated clock


@dataclass(frozen=True)
class Scheme:
    """A way to get a gradient in a round, and its time."""

    name: str
    code: Code  # a code of N workers and partitions
    f: int  # workers waited for
    decode: float = 0.0  # seconds that decoding takes

    @property
    def exact(self) -> bool:
        """Whether the gradient is exact for any stragglers."""
        return self.f == N or self.code.load > 1

    @property
    def work(self) -> float:
        """Seconds that computing and decoding add to the delays."""
        return WORK / N * self.code.load + self.decode

    @property
    def median(self) -> float:
        """Median seconds of a round: the f-th smallest delay has a level of Beta distribution."""
        level = special.betaincinv(self.f, N - self.f + 1, 0.5)
        return float(DELAYS.quantile(level)) + self.work

    def ends(self, delays: Floats) -> Floats:
        """Return when each round ends, for delays of shape (rounds, n)."""
        waits = np.partition(delays, self.f - 1, axis=1)[:, self.f - 1]
        return np.cumsum(waits + self.work)


def drawn(rng: np.random.Generator, rounds: int) -> Floats:
    """Draw delays (2, rounds, n): anew in every round, and sorted so that the same are late."""
    rank = rng.permutation(N)
    anew = DELAYS.draw(rng, rounds, N)
    return np.stack((anew, np.sort(anew, axis=1)[:, rank]))


class Ran:
    """The rounds of a scheme in every run, for both kinds of delays of `drawn`.

    In arrays and arguments, kind 0 is delays drawn anew, and kind 1 is the same workers late.
    """

    def __init__(self, scheme: Scheme, delays: list[Floats], budget: float) -> None:
        self.scheme = scheme
        both = np.array(delays).swapaxes(0, 1)
        # (2, runs, rounds): seconds at which each round ends
        self.ends = np.array([[scheme.ends(run) for run in kind] for kind in both])
        # (2, runs, rounds, f): workers that the master waited for
        self.came = np.argpartition(both, scheme.f - 1, axis=-1)[..., : scheme.f]
        self.done = (self.ends <= budget).sum(axis=-1)  # (2, runs): rounds in the budget
        # Numbers of rounds, from 0, after which the test error was computed.
        self.evaluated = np.zeros(1, dtype=np.int64)
        # (2 * runs, evaluations): test errors; a run that has ended repeats its last one.
        self.errors = np.ones((self.done.size, 1))

    def of_kind(self, late: int) -> Floats:
        """Return the errors of the runs with one kind of delays, (runs, evaluations)."""
        own: Floats = self.errors.reshape(*self.done.shape, -1)[late]
        return own

    def follow(self, errors: Floats) -> None:
        """Store the errors after each round, which are the same in every run."""
        self.evaluated = np.arange(errors.size)
        self.errors = np.tile(errors, (self.done.size, 1))

    def at(self, times: Floats, late: int) -> Floats:
        """Return the test errors of every run at these times in the budget, (runs, times)."""
        own = self.of_kind(late)
        done = [np.searchsorted(ends, times, side="right") for ends in self.ends[late]]
        taken = [np.searchsorted(self.evaluated, each, side="right") - 1 for each in done]
        return np.stack([errors[each] for errors, each in zip(own, taken, strict=True)])

    def reached(self, target: float, late: int) -> Floats:
        """Return the seconds of each run to its first evaluation that meets the target, or Inf.

        Exact schemes may meet it after the budget.
        """
        times, runs = [], (self.of_kind(late), self.ends[late], self.done[late])
        for errors, ends, done in zip(*runs, strict=True):
            met = np.flatnonzero(errors <= target)
            number = self.evaluated[met[0]] if met.size else ends.size + 1
            if met.size and not self.scheme.exact:
                number = min(number, done)  # the run did no more rounds
            times.append(np.concatenate(([0], ends, [np.inf]))[number])
        return np.array(times)


class Training:
    """Nesterov's method on the data, in float32, for many runs at a time.

    Pixels that are 0 in all training samples are left out, because their weights stay 0.
    """

    def __init__(self, dataset: Dataset, seed: int) -> None:
        self.worst = self.rounded = 0.0  # relative errors of gradients decoded, and used
        # A random order makes partitions alike.
        chosen = np.random.default_rng(seed).permutation(len(dataset.X_train))[:SAMPLES]
        X, y = dataset.X_train[chosen], dataset.y_train[chosen]
        self.data = (
            f"{len(X):,} samples of {dataset.features} features of {dataset.name}, "
            f"{len(dataset.X_test):,} to test"
        )
        used = X.any(axis=0)  # weights of pixels that are always 0 stay 0
        X = X[:, used]
        self._model = SoftmaxRegression(X.shape[1], dataset.classes)
        # 1 / L of the sum over the samples, the rate that Nesterov's method takes.
        self._rate = 1 / (self._model.smoothness(X) * len(X))
        self._parts = datasets.partition(X, y, N)
        # All partitions get one shape: samples with a 1 for the bias, then rows of 0, which add
        # nothing to a gradient.
        longest = max(len(y) for _, y in self._parts)
        self._samples = np.zeros((N, longest, X.shape[1] + 1), dtype=np.float32)
        self._classes = np.zeros((N, dataset.classes, longest), dtype=np.float32)
        for j, (part, y) in enumerate(self._parts):
            self._samples[j, : len(y), :-1] = part
            self._samples[j, : len(y), -1] = 1
            self._classes[j, y, np.arange(len(y))] = 1
        tested = dataset.X_test[:, used]
        self._test = np.hstack((tested, np.ones((len(tested), 1), dtype=np.float32)))
        self._answers = dataset.y_test

    def exact(self, ran: list[Ran], rounds: int, pool: Executor) -> Floats:
        """Train with exact gradients; return test errors before and after each round."""

        def check(number: int, theta: Theta, gradient: Theta) -> None:
            for each in ran:
                self._check(each.scheme, each.came[:, :, number], theta, gradient)

        everyone = np.ones((1, rounds, N), dtype=np.bool_)
        numbers = np.arange(rounds + 1)
        return self._run(everyone, np.array([rounds]), 1.0, numbers, check, pool).ravel()

    def ignore(self, ran: Ran, pool: Executor) -> None:
        """Train all runs of a scheme that ignores stragglers; store their errors in `ran`."""
        scheme, lengths = ran.scheme, ran.done.ravel()
        heard = ran.came.reshape(lengths.size, -1, scheme.f)[:, : lengths.max()]
        came = np.zeros((*heard.shape[:2], N), dtype=np.bool_)
        np.put_along_axis(came, heard, True, axis=-1)
        came[np.arange(came.shape[1]) >= lengths[:, np.newaxis]] = False  # the run has ended

        def check(number: int, theta: Theta, gradient: Theta) -> None:
            self._check(scheme, heard[0, number], theta, gradient)

        numbers = np.geomspace(1, max(1, lengths.max()), EVALUATED).astype(np.int64)
        ran.evaluated = np.unique(np.append(0, numbers))
        ran.errors = self._run(came, lengths, N / scheme.f, ran.evaluated, check, pool)

    def _run(
        self,
        came: Bools,
        lengths: Ints,
        scale: float,
        numbers: Ints,
        check: Callable[[int, Theta, Theta], None],
        pool: Executor,
    ) -> Floats:
        """Train each run, and return its test errors after these numbers of rounds.

        `came`, (runs, rounds, N), says whose partial gradients are added up, and `scale` multiplies
        the sum. `check` is called in the first rounds of the first run.
        """
        optimizers = [Nesterov(self._rate) for _ in lengths]
        for optimizer in optimizers:
            optimizer.reset(np.zeros(self._model.size, dtype=np.float32))
        points = np.zeros((len(lengths), *self._samples.shape[2:], self._model.classes), np.float32)
        tables = np.ascontiguousarray(points.swapaxes(1, 2))
        errors = [self._errors(optimizers)]
        for number in range(int(lengths.max())):
            for table, optimizer in zip(tables, optimizers, strict=True):
                table[:] = optimizer.point.reshape(-1, self._model.classes).T
            sums = self.summed(tables, came[:, number], pool)
            sums *= scale
            for at, (optimizer, length) in enumerate(zip(optimizers, lengths, strict=True)):
                if number < length:
                    gradient = sums[at].T.ravel()
                    if at == 0 and number < CHECKED:
                        check(number, optimizer.point, gradient)
                    optimizer.step(gradient)
            if number + 1 in numbers:
                errors.append(self._errors(optimizers))
        return np.array(errors).T

    def summed(self, tables: Theta, came: Bools, pool: Executor) -> Theta:
        """Return the sum of the partial gradients that came to each run, with two threads."""

        def add(partitions: Ints) -> Theta:
            total = np.zeros_like(tables)
            for j in partitions.tolist():
                runs = np.flatnonzero(came[:, j])
                if runs.size:
                    samples = self._samples[j]
                    scores = tables[runs].reshape(-1, samples.shape[1]) @ samples.T
                    scores = scores.reshape(runs.size, -1, len(samples))
                    scores -= scores.max(axis=1, keepdims=True)
                    np.exp(scores, out=scores)
                    scores /= scores.sum(axis=1, keepdims=True)
                    scores -= self._classes[j]
                    found = scores.reshape(-1, len(samples)) @ samples
                    total[runs] += found.reshape(runs.size, *tables.shape[1:])
            return total

        first, second = pool.map(add, np.array_split(np.arange(N), 2))
        first += second
        return first

    def _errors(self, optimizers: list[Nesterov]) -> Floats:
        tables = [o.theta.reshape(-1, self._model.classes) for o in optimizers]
        scores = (self._test @ np.hstack(tables)).reshape(len(self._test), len(tables), -1)
        wrong = scores.argmax(axis=2) != self._answers[:, np.newaxis]
        errors: Floats = wrong.mean(axis=0)
        return errors

    def _check(self, scheme: Scheme, came: Ints, theta: Theta, used: Theta) -> None:
        """Decode the gradient from sets of workers; raise ArithmeticError unless `used` is near."""
        code, point = scheme.code, theta.astype(np.float64)
        partials = np.array([self._model.gradient(point, X, y) for X, y in self._parts])
        messages = [code.encode(i, partials[code.partitions(i)]) for i in range(N)]
        for heard in came.reshape(-1, scheme.f):
            scale, summed = (1.0, partials) if scheme.exact else (N / scheme.f, partials[heard])
            wanted = scale * summed.sum(axis=0)
            decoded = code.decode(heard, [messages[i] for i in heard])
            size = np.linalg.norm(wanted)
            error, rounded = (float(np.linalg.norm(g - wanted) / size) for g in (decoded, used))
            wrong = f"{scheme.name}: the gradient"
            if not error < 1e-6:
                raise ArithmeticError(f"{wrong} was decoded to within {error:.0e}")
            if not rounded < 1e-3:
                raise ArithmeticError(f"{wrong} used is off by {rounded:.0e}")
            self.worst, self.rounded = max(self.worst, error), max(self.rounded, rounded)


def _schemes() -> list[Scheme]:
    rs, mds = THRESHOLD_RS, THRESHOLD_MDS
    return [
        Scheme(f"coded, RS, f = {rs}", ReedSolomon(N, stragglers=N - rs), rs, DECODE_RS(rs, N)),
        Scheme(f"coded, MDS, f = {mds}", _mds(), mds, DECODE_MDS(mds, N)),
        Scheme("uncoded, all", Uncoded(N), N),
        *(Scheme(f"uncoded, f = {f}", Uncoded(N, tolerance=1 - f / N), f) for f in (rs, mds)),
    ]


@figure("halbawi-2", "Halbawi et al., figure 2: test error against time")
def figure_2(
    *,
    data: str | None = None,
    seed: int = 0,
    rounds: int = ROUNDS,
    budget: float = BUDGET,
    runs: int = RUNS,
) -> Iterator[Part]:
    """Test error against time of five schemes, with real gradients and a simulated clock.

    All schemes have the same delays and the same samples. Coded schemes, and waiting for all, give
    the exact gradient for any stragglers. They share one sequence of iterates, and differ only in
    their times. Waiting for fewer workers gives the sum of the partial gradients that came, scaled
    to the whole (the paper does not say whether it scales), and is trained anew in every run. In
    the first rounds, gradients are also encoded and decoded, and must equal those that are used.

    The target is the lowest test error that all schemes reach. Exact schemes must reach it within
    the fewest rounds that RS does in the budget of any run; schemes that ignore stragglers, within
    the budget of every run. Waiting for all may need more than the budget to reach it.

    `data` is as in `fastgc.data.load`: for example, a folder with MNIST's four idx files. Of more
    than 12,000 training samples, 12,000 are chosen at random. By default it is `glyphs`, 12,000
    synthetic images of MNIST's size and 10,000 test images. `seed` is also that of the order of
    samples, the glyphs, and the split of data without one. `rounds` are simulated for the median
    time of a round.

    Each of the `runs` has its own delays and takes `budget` simulated seconds; in less than RS
    needs for a round, ValueError is raised. Rows give medians over runs, with intervals between
    order statistics. For these data and any distribution, such an interval contains the median with
    a probability of 95 % or more. It takes at least 6 runs. A wrong gradient is an ArithmeticError.
    """
    if runs < 1 or not 0 < budget < math.inf:
        raise ValueError(f"runs must be at least 1, and budget positive, not {runs} and {budget}")
    if data is None:
        dataset = glyphs(seed=seed)
    else:
        dataset = datasets.load(data, seed=seed, dtype=np.float32)
    yield f"Halbawi et al., figure 2: test error against time, {dataset.name}"
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
        for each in ran:
            if each.scheme.exact:
                each.follow(shared)
            else:
                training.ignore(each, pool)
    lowest = [shared[: least + 1].min()]
    lowest += [min(errors) for each in ran if not each.scheme.exact for errors in each.errors]
    yield from _round_rows(schemes, rounds, seed)
    yield from _target_rows(ran, float(max(lowest)), least, training.data)
    yield from _error_rows(ran, budget)
    yield SECOND(
        "relative error of a decoded gradient, largest",
        training.worst,
        note=f"of the first {CHECKED} rounds: of exact schemes for the survivors of every run, of "
        "the others in one; in float64, as workers compute here for this. The gradients trained "
        f"with are of float32, and differ by {training.rounded:.0e} at most",
    )
    grid = budget * TIMES
    for title, late in (
        (f"Delays drawn anew in every round, as in the paper; median of {runs} runs", 0),
        (f"The same workers late in every round; median of {runs} runs", 1),
    ):
        lines = [
            Line(each.scheme.name, grid, np.median(each.at(grid, late), axis=0)) for each in ran
        ]
        yield Panel(title, "simulated time (s)", "test error", lines, log_x=True, log_y=True)


def _round_rows(schemes: list[Scheme], rounds: int, seed: int) -> Iterator[Row]:
    slowest = (
        f"medians, as the slowest worker's delay has no variance (tail exponent {DELAYS.shape:g})"
    )
    for scheme in schemes:
        run = simulate(scheme.code, DELAYS, cost=WORK / N, rounds=rounds, seed=seed)
        yield SECOND(
            f"median time of a round (ms), {scheme.name}",
            1e3 * (float(run.quantile(0.5)) + scheme.decode),
            closed=1e3 * scheme.median,
            note=slowest if scheme.f == N else "the median of simulated rounds estimates the law's",
        )


def _interval(values: Floats) -> str:
    """Describe a confidence interval for the median of the distribution of `values`.

    The median lies between the r-th smallest and the r-th largest of m values unless fewer than r
    of them are on one of its sides, that is with probability 1 - 2 P(Binomial(m, 1/2) < r).
    """
    m = len(values)
    outside = 2 * np.cumsum([math.comb(m, r) for r in range(m)]) / 2**m
    r = int((outside <= 0.05).sum())
    if not r:
        return f"no interval from {m} runs, which are too few"
    low, high = np.sort(values)[[r - 1, m - r]]
    sure = 100 * (1 - outside[r - 1])
    return f"{low:.4g} to {high:.4g} with {sure:.0f} % (order statistics of {m} runs)"


def _target_rows(ran: list[Ran], target: float, least: int, trained: str) -> Iterator[Row]:
    """Yield each scheme's time to the target, and the place of RS."""
    name = f"{100 * target:.3g} %"
    medians = []
    for each in ran:
        anew, late = (each.reached(target, kind) for kind in (0, 1))
        medians.append(float(np.median(anew)))
        note = f"the median: {_interval(anew)}"
        if not each.scheme.exact:
            note += f"; where the same workers are late {np.median(late):.3g} s ({_interval(late)})"
        what = f"time to a test error of {name} (s), {each.scheme.name}"
        yield SECOND(what, medians[-1], note=note)
    rs, *others = (each for each in ran if each.scheme.exact)
    exact = [each.reached(target, 0) for each in (rs, *others)]
    needed = int(rs.evaluated[(rs.errors[0] <= target).argmax()])
    first = int((exact[0] < np.min(exact[1:], axis=0)).sum())
    offline = ", ".join(
        f"{1e3 * (each.scheme.median - each.scheme.decode):.3g} ms {each.scheme.name}"
        for each in (rs, *others)
    )
    better = sum(medians[ran.index(each)] < medians[ran.index(rs)] for each in others)
    yield SECOND(
        f"place of RS among the 3 exact schemes, by median time to {name}",
        1 + better,
        1,
        note=f"first in {first} of {len(exact[0])} runs, on {trained}; the paper, on 12,000 of "
        f"MNIST. {name} is the lowest test error that all schemes reach, the exact ones in "
        f"{needed} rounds (RS does {least} or more in the budget): so their place is that of "
        "their rounds. The time of decoding, c_m, is chosen, but decides nothing: without it "
        f"rounds take {offline}",
    )


def _error_rows(ran: list[Ran], budget: float) -> Iterator[Row]:
    """Yield the place of RS by test error after shares of the budget, and from when it leads."""
    for late, title in enumerate(("delays drawn anew", "same workers late")):
        curves = np.median([each.at(budget * TIMES, late) for each in ran], axis=1)
        behind = np.flatnonzero((curves[1:] < curves[0]).any(axis=0))
        leads = np.append(budget * TIMES, math.inf)[behind[-1] + 1 if behind.size else 0]
        yield SECOND(
            f"time (s) from which RS is first among all 5, {title}",
            float(leads),
            note=f"until {budget:g} s, by medians at 61 times in geometric steps; inf: it is not "
            "first in the end",
        )
        for time in budget * np.array(SHARES):
            errors = np.array([each.at(np.array([time]), late)[:, 0] for each in ran])
            medians = np.median(errors, axis=1)
            done = [int(np.median((each.ends[late] <= time).sum(axis=-1))) for each in ran]
            told = ", ".join(
                f"{100 * median:.1f} % {each.scheme.name} ({number} rounds)"
                for each, median, number in zip(ran, medians, done, strict=True)
            )
            yield SECOND(
                f"place of RS among all 5 after {time:.2g} s, {title}",
                1 + int((medians[1:] < medians[0]).sum()),
                1,
                note=f"medians of test errors: {told}; RS, {_interval(100 * errors[0])}. "
                f"{_penalty(ran, late, done[0], done)}",
            )


def _penalty(ran: list[Ran], late: int, rounds: int, done: list[int]) -> str:
    """Describe how many more rounds schemes that ignore stragglers do, and their error at RS's."""
    told = []
    for each, number in zip(ran, done, strict=True):
        if not each.scheme.exact:
            own = each.of_kind(late)
            at = int(np.searchsorted(each.evaluated, rounds, side="right")) - 1
            told.append(
                f"{each.scheme.name} does {number / max(rounds, 1):.1f} times as many rounds as "
                f"RS, and after as many is at {100 * np.median(own[:, at]):.1f} %"
            )
    return "; ".join(told)
