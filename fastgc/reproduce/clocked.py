"""Training by a simulated clock: what schemes reach in a time, run by run (for `halbawi`)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import data as datasets
from .._extras import scipy
from ..codes import Code
from ..data import Dataset
from ..delays import Pareto
from ..models import SoftmaxRegression
from ..optimizers import Nesterov

__all__ = [
    "CHECKED",
    "DELAYS",
    "WORK",
    "N",
    "Ran",
    "Scheme",
    "Training",
    "drawn",
]

N = 80  # workers, and partitions
DELAYS = Pareto(0.001, 1.1)
WORK = 0.035  # N c_g, seconds for the gradient of all the data
SAMPLES = 12_000  # at most, as in the paper
EVALUATED = 80  # numbers of rounds, in geometric steps, after which the test error is taken
CHECKED = 3  # rounds of a run whose gradients are decoded, too

Theta: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True)
class Scheme:
    """What a round of training costs, and which gradient it gives.

    Parameters
    ----------
    name : str
    code : Code
        Of `N` workers and partitions.
    f : int
        Workers waited for.
    decode : float
        Seconds that decoding takes.
    """

    name: str
    code: Code
    f: int
    decode: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether its gradients are those of all the data, whoever is late."""
        return self.f == N or self.code.load > 1

    @property
    def work(self) -> float:
        """Seconds that computing and decoding add to the delays."""
        return WORK / N * self.code.load + self.decode

    @property
    def median(self) -> float:
        """Seconds of a round: the median of the f-th delay, whose level has a Beta distribution."""
        level = scipy("special").betaincinv(self.f, N - self.f + 1, 0.5)
        return float(DELAYS.quantile(level)) + self.work

    def ends(self, delays: NDArray[np.float64]) -> NDArray[np.float64]:
        """When each round is over, for delays of shape (rounds, n)."""
        waits = np.partition(delays, self.f - 1, axis=1)[:, self.f - 1]
        return np.cumsum(waits + self.work)


def drawn(rng: np.random.Generator, rounds: int) -> NDArray[np.float64]:
    """Delays (2, rounds, n): drawn anew in every round, and sorted so that the same are late."""
    rank = rng.permutation(N)
    anew = DELAYS.draw(rng, rounds, N)
    return np.stack((anew, np.sort(anew, axis=1)[:, rank]))


class Ran:
    """What a scheme did in every run, of both kinds of delays.

    Attributes
    ----------
    scheme : Scheme
    ends : (2, runs, rounds) array
        Seconds at which each round is over: of delays drawn anew, and of the same workers late.
    came : (2, runs, rounds, f) array
        Workers that were waited for.
    done : (2, runs) array
        Rounds in the budget.
    evaluated : (evaluations,) array
        Numbers of rounds after which the test error was taken, 0 among them.
    errors : (2 * runs, evaluations) array
        The last one again where a run had come to its end.
    """

    def __init__(self, scheme: Scheme, delays: list[NDArray[np.float64]], budget: float) -> None:
        self.scheme = scheme
        both = np.array(delays).swapaxes(0, 1)
        self.ends = np.array([[scheme.ends(run) for run in kind] for kind in both])
        self.came = np.argpartition(both, scheme.f - 1, axis=-1)[..., : scheme.f]
        self.done = (self.ends <= budget).sum(axis=-1)
        self.evaluated = np.zeros(1, dtype=np.int64)
        self.errors = np.ones((self.done.size, 1))

    def follow(self, errors: NDArray[np.float64]) -> None:
        """Take the errors after each round, which are the same in every run."""
        self.evaluated = np.arange(errors.size)
        self.errors = np.tile(errors, (self.done.size, 1))

    def at(self, times: NDArray[np.float64], late: int) -> NDArray[np.float64]:
        """Test errors of every run at these times, in the budget; (runs, times)."""
        own = self.errors.reshape(*self.done.shape, -1)[late]
        done = [np.searchsorted(ends, times, side="right") for ends in self.ends[late]]
        taken = [np.searchsorted(self.evaluated, each, side="right") - 1 for each in done]
        return np.stack([errors[each] for errors, each in zip(own, taken, strict=True)])

    def reached(self, target: float, late: int) -> NDArray[np.float64]:
        """Seconds to the first evaluation that meets the target in each run; Inf where none does.

        Of exact schemes also after the budget.
        """
        own = self.errors.reshape(*self.done.shape, -1)[late]
        times = []
        for errors, ends, done in zip(own, self.ends[late], self.done[late], strict=True):
            met = np.flatnonzero(errors <= target)
            number = self.evaluated[met[0]] if met.size else ends.size + 1
            if met.size and not self.scheme.exact:
                number = min(number, done)  # it did no more
            times.append(np.concatenate(([0], ends, [np.inf]))[number])
        return np.array(times)


class Training:
    """Nesterov's method on the data, in float32, for many runs side by side.

    Pixels that are 0 in all training samples are left out: their weights stay 0.
    """

    def __init__(self, dataset: Dataset, seed: int) -> None:
        self.worst = self.rounded = 0.0  # relative errors of gradients decoded, and used
        # in random order, so that partitions are alike
        chosen = np.random.default_rng(seed).permutation(len(dataset.X_train))[:SAMPLES]
        X, self._y = dataset.X_train[chosen], dataset.y_train[chosen]
        used = X.any(axis=0)
        self._X = X[:, used]
        self.data = (
            f"{len(X):,} samples of {dataset.features} features of {dataset.name}, "
            f"{len(dataset.X_test):,} to test"
        )
        self._model = SoftmaxRegression(self._X.shape[1], dataset.classes)
        # 1 / L, as Nesterov's method wants it, of the sum over the samples
        self._rate = 1 / (self._model.smoothness(self._X) * len(X))
        self._parts = datasets.partition(self._X, self._y, N)
        # Partitions of one shape: samples, with a 1 for the bias, and below them rows of 0, which
        # add nothing to a gradient.
        longest = max(len(y) for _, y in self._parts)
        self._samples = np.zeros((N, longest, self._X.shape[1] + 1), dtype=np.float32)
        self._classes = np.zeros((N, dataset.classes, longest), dtype=np.float32)
        for j, (part, y) in enumerate(self._parts):
            self._samples[j, : len(y), :-1] = part
            self._samples[j, : len(y), -1] = 1
            self._classes[j, y, np.arange(len(y))] = 1
        tested = dataset.X_test[:, used]
        self._test = np.hstack((tested, np.ones((len(tested), 1), dtype=np.float32)))
        self._answers = dataset.y_test

    def exact(self, ran: list[Ran], rounds: int, pool: Executor) -> NDArray[np.float64]:
        """Test errors before and after each of so many rounds of exact gradients."""

        def check(number: int, theta: Theta, gradient: Theta) -> None:
            partials = self._partials(theta)
            for each in ran:
                code = each.scheme.code
                messages = [code.encode(i, partials[code.partitions(i)]) for i in range(N)]
                for heard in each.came[:, :, number].reshape(-1, each.scheme.f):
                    decoded = code.decode(heard, [messages[i] for i in heard])
                    self._compare(each.scheme, decoded, partials.sum(axis=0), gradient)

        everyone = np.ones((1, rounds, N), dtype=np.bool_)
        numbers = np.arange(rounds + 1)
        return self._run(everyone, np.array([rounds]), 1.0, numbers, check, pool).ravel()

    def ignore(self, ran: Ran, pool: Executor) -> None:
        """Train all runs of a scheme that ignores stragglers."""
        scheme, lengths = ran.scheme, ran.done.ravel()
        heard = ran.came.reshape(lengths.size, -1, scheme.f)[:, : lengths.max()]
        came = np.zeros((*heard.shape[:2], N), dtype=np.bool_)
        np.put_along_axis(came, heard, True, axis=-1)
        came[np.arange(came.shape[1]) >= lengths[:, np.newaxis]] = False  # has come to its end

        def check(number: int, theta: Theta, gradient: Theta) -> None:
            partials = self._partials(theta)
            code, mine = scheme.code, heard[0, number]
            messages = [code.encode(int(i), partials[code.partitions(int(i))]) for i in mine]
            wanted = N / scheme.f * partials[mine].sum(axis=0)
            self._compare(scheme, code.decode(mine, messages), wanted, gradient)

        numbers = np.geomspace(1, max(1, lengths.max()), EVALUATED).astype(np.int64)
        ran.evaluated = np.unique(np.append(0, numbers))
        ran.errors = self._run(came, lengths, N / scheme.f, ran.evaluated, check, pool)

    def _run(
        self,
        came: NDArray[np.bool_],
        lengths: NDArray[np.int64],
        scale: float,
        numbers: NDArray[np.int64],
        check: Callable[[int, Theta, Theta], None],
        pool: Executor,
    ) -> NDArray[np.float64]:
        """Test errors of each run after these numbers of its rounds.

        `came`, (runs, rounds, N), says whose partial gradients are added up, and `scale` multiplies
        the sum. The first rounds of the first run are checked.
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
            sums = self._gradients(tables, came[:, number], pool)
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

    def _gradients(
        self, tables: NDArray[np.float32], came: NDArray[np.bool_], pool: Executor
    ) -> NDArray[np.float32]:
        """Sums of the partial gradients that came to each run, in two threads."""

        def add(partitions: NDArray[np.int64]) -> NDArray[np.float32]:
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

    def _errors(self, optimizers: list[Nesterov]) -> NDArray[np.float64]:
        """Test error of each."""
        tables = [o.theta.reshape(-1, self._model.classes) for o in optimizers]
        scores = (self._test @ np.hstack(tables)).reshape(len(self._test), len(tables), -1)
        wrong = scores.argmax(axis=2) != self._answers[:, np.newaxis]
        errors: NDArray[np.float64] = wrong.mean(axis=0)
        return errors

    def _partials(self, theta: Theta) -> NDArray[np.float64]:
        theta = theta.astype(np.float64)
        return np.array([self._model.gradient(theta, X, y) for X, y in self._parts])

    def _compare(
        self,
        scheme: Scheme,
        decoded: NDArray[np.float64],
        wanted: NDArray[np.float64],
        used: Theta,
    ) -> None:
        """Raise unless a gradient was decoded, and used, as it should be."""
        size = np.linalg.norm(wanted)
        error, rounded = (float(np.linalg.norm(each - wanted) / size) for each in (decoded, used))
        if not error < 1e-6:
            raise ArithmeticError(f"{scheme.name}: the gradient was decoded to within {error:.0e}")
        if not rounded < 1e-3:
            raise ArithmeticError(f"{scheme.name}: the gradient used is off by {rounded:.0e}")
        self.worst, self.rounded = max(self.worst, error), max(self.rounded, rounded)
