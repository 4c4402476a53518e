"""The parts of a reproduced figure, and helpers that several experiments share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import update_wrapper
from time import perf_counter
from typing import Any, Generic, ParamSpec, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import at_least
from ..codes import Code, catalogue
from ..coding.arguments import unasked
from ..delays import Empirical
from ..errors import InstabilityWarning
from ..plotting.panels import Line, Panel, Style
from ..simulation import simulate

__all__ = [
    "ROUNDS",
    "SIMULATED",
    "TOLERANCE",
    "Experiment",
    "Figure",
    "Part",
    "Recorded",
    "Row",
    "Timed",
    "Track",
    "coded",
    "compared",
    "figure",
    "interval",
    "median_seconds",
    "needs_data",
    "overall",
    "panel",
    "positive",
    "random_sets",
    "ratio_interval",
    "rows_of",
    "times_alone",
    "verdict",
]

ROUNDS = 100_000  # simulated by default, as in Ozfatura et al.
TOLERANCE = 0.05  # relative, for means of simulated rounds, and for printed or measured numbers
# The note that says why such a mean agrees with a closed form.
SIMULATED = "the mean of simulated rounds estimates what the closed form computes"

# Wraps the items of a figure's loop, to show progress.
Track = Callable[[Sequence[Any]], Iterable[Any]]

P = ParamSpec("P")


@dataclass(frozen=True)
class Row:
    """One claim: a number that is computed here, beside the number that it should be.

    Parameters
    ----------
    figure : str
        Source of the claim: paper and figure, as in ``"halbawi2017 figure 3"``.
    what : str
        Meaning of the number, with its unit.
    ours : float
        The number computed or simulated here.
    paper : float, optional
        The number that the paper states, if any.
    closed : float, optional
        The closed form's value, if `ours` is simulated.
    note : str
        Why the two numbers must agree, what was assumed or fitted, or why they cannot agree. Every
        row with a reference has a note.
    tolerance : float
        Allowed relative difference: 0 for counts.
    bound : bool
        Whether the closed form is an upper bound of `ours`, not its value.
    interval : (float, float), optional
        95 % confidence interval of `ours` if it is a mean of measured rounds, by a bootstrap that
        treats rounds as independent.
    """

    figure: str
    what: str
    ours: float
    paper: float | None = None
    closed: float | None = None
    note: str = ""
    interval: tuple[float, float] | None = None
    tolerance: float = TOLERANCE
    bound: bool = False

    def __post_init__(self) -> None:
        if self.reference is not None and not self.note:
            raise ValueError(f"{self.figure}, {self.what}: the note must say why numbers agree")

    @property
    def reference(self) -> float | None:
        """The number that `ours` is compared with: the paper's, or else the closed form's."""
        return self.closed if self.paper is None else self.paper

    @property
    def difference(self) -> float:
        """Relative difference from the reference; NaN if there is none, or if it is a bound."""
        if self.reference is None or self.bound:
            return math.nan
        if self.reference == 0:
            return 0.0 if self.ours == 0 else math.inf
        return self.ours / self.reference - 1

    @property
    def ok(self) -> bool:
        """Whether `ours` is within `tolerance` of its reference, or does not exceed its bound."""
        if self.bound:
            return self.closed is not None and self.ours <= self.closed
        return self.reference is None or abs(self.difference) <= self.tolerance


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure or table of a paper, computed anew.

    Attributes
    ----------
    name : str
        Key in `fastgc.papers.FIGURES`.
    title : str
    rows : list of Row
    panels : list of Panel
    """

    name: str
    title: str
    rows: list[Row]
    panels: list[Panel] = field(default_factory=list)


# An experiment yields its rows, its panels, and its title if that depends on the data.
Part: TypeAlias = Row | Panel | str


class Experiment(Generic[P]):
    """Computes a figure: calls a function, and collects the rows and panels that it yields.

    It takes that function's keywords. In all figures, `seed` is the seed of everything random.
    `rounds` is the number of simulated rounds of each point; a figure says how many are enough, and
    simulates no more. `track` wraps the items of a loop, to show progress. `timed` says that some
    rows are measured times, during which nothing else may run.

    Raises
    ------
    ValueError
        If `rounds` is not at least 1, or if `seed` is negative.
    TypeError
        If `rounds` or `seed` is not an integer.
    """

    def __init__(
        self, name: str, title: str, parts: Callable[P, Iterator[Part]], timed: bool
    ) -> None:
        self.name, self._title, self._parts, self.timed = name, title, parts, timed
        update_wrapper(self, parts)

    def __call__(self, *args: P.args, **given: P.kwargs) -> Figure:
        """Compute the figure."""
        checked: Any = dict(given)
        for key, least in (("rounds", 1), ("seed", 0)):
            if key in given:
                checked[key] = at_least(key, given[key], least)
        parts = list(self._parts(*args, **checked))
        title = next((part for part in parts if isinstance(part, str)), self._title)
        rows = [part for part in parts if isinstance(part, Row)]
        return Figure(self.name, title, rows, [part for part in parts if isinstance(part, Panel)])


def figure(
    name: str, title: str, *, timed: bool = False
) -> Callable[[Callable[P, Iterator[Part]]], Experiment[P]]:
    """Make an `Experiment` of the decorated function."""
    return lambda parts: Experiment(name, title, parts, timed)


def compared(label: str, x: ArrayLike, formula: ArrayLike, found: ArrayLike) -> list[Line]:
    """Return a line by a formula or by a paper, and points found here, in the same colour."""
    return [Line(label, x, formula), Line(label, x, found, "points")]


def positive(
    label: str, x: ArrayLike, y: ArrayLike, style: Style = "line", least: float = 1e-9
) -> Line:
    """Return a line of the values above `least`; others are 0 up to rounding, or have no log."""
    x, y = np.asarray(x), np.asarray(y)
    return Line(label, x[y > least], y[y > least], style)


def random_sets(
    n: int, f: int, count: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield `count` random sets of f of n workers, each sorted."""
    for _ in range(count):
        yield np.sort(rng.permutation(n)[:f])


def median_seconds(tasks: Iterable[Callable[[], object]], warm: int = 0) -> float:
    """Return the median time of the calls after the first `warm` calls."""
    took = []
    for task in tasks:
        begin = perf_counter()
        task()
        took.append(perf_counter() - begin)
    return float(np.median(took[warm:]))


@contextmanager
def times_alone() -> Iterator[None]:
    """Silence warnings about unstable codes, of which only times matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)
        yield


Array = NDArray[np.float64]

_CODES = ("rs", "rs-clustered", "binary", "fractional", "bcc")
_RESAMPLED = 2000
_LEVELS = (0.025, 0.975)


def needs_data(name: str, what: str, source: str) -> ValueError:
    """Return the error for a figure that needs data and got none."""
    return ValueError(f"{name} needs data=PATH (--data PATH), {what} of {source}")


@dataclass(frozen=True, eq=False)
class Recorded:
    """Recorded rounds."""

    name: str
    delays: Empirical  # times at one load; rounds are replayed in this order
    cost: float = 0.0  # seconds that each partition adds

    @property
    def workers(self) -> int:
        """Number of workers."""
        return int(self.delays.samples.shape[1])

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.delays.samples)

    def seconds(self, code: Code) -> Array:
        """Return the seconds of each round until the gradient could be decoded."""
        run = simulate(code, _Replayed(self.delays), cost=self.cost, rounds=self.rounds)
        times: Array = run.times
        return times


class _Replayed:
    """A delay model that replays recorded rounds once, one after the other."""

    def __init__(self, delays: Empirical) -> None:
        self.per = delays.per
        self._times, self._next = delays.samples, 0

    def sample(self, round: int, workers: int, seed: int) -> Array:
        times: Array = self._times[round]
        return times

    def draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Array:
        self._next += rounds
        return self._times[self._next - rounds : self._next]

    def tail_indices(self, workers: int) -> Array:
        return np.full(workers, np.inf)


def _resampled(seconds: Array, seed: int) -> Array:
    """Return means of rounds drawn with replacement; equal seeds draw equal rounds."""
    drawn = np.random.default_rng(seed).integers(seconds.size, size=(_RESAMPLED, seconds.size))
    means: Array = seconds[drawn].mean(axis=1)
    return means


def _between(means: Array) -> tuple[float, float]:
    low, high = np.quantile(means, _LEVELS).tolist()
    return low, high


def interval(seconds: Array, seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean, by a bootstrap over rounds."""
    return _between(_resampled(seconds, seed))


def ratio_interval(one: Timed, other: Timed, seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of times on the same rounds, by a bootstrap."""
    first, second = (each.scale * _resampled(each.seconds, seed) for each in (one, other))
    return _between(first / second)


def coded(n: int, seed: int) -> Iterator[tuple[str, Code]]:
    """Yield the codes to compare, at loads that double; the first waits for all workers."""
    yield "uncoded", catalogue.make("uncoded", n, None, 0, seed)
    loads = range(2, n + 1) if n <= 8 else [2**i for i in range(1, 8) if 2**i < n]
    for name in _CODES:
        made = set()
        for load in loads:
            try:
                with times_alone(), unasked():
                    code = catalogue.make(name, n, None, load - 1, seed)
            except ValueError:  # fractional repetition needs s + 1 to divide n
                continue
            if code.load not in made:
                made.add(code.load)
                yield name, code


@dataclass(frozen=True, eq=False)
class Timed:
    """The times of a scheme. A gradient takes the mean of `seconds`, times `scale`."""

    name: str
    load: float  # in partitions
    seconds: Array  # of each round
    scale: float = 1.0  # rounds per gradient
    note: str = ""
    picked: bool = False  # whether the load was picked for these rounds

    @property
    def mean(self) -> float:
        """Seconds per gradient."""
        return self.scale * float(self.seconds.mean())


def rows_of(figure: str, recorded: str, timed: Iterable[Timed], seed: int) -> Iterator[Row]:
    """Yield a row for each scheme, with seconds per gradient and their interval."""
    for each in timed:
        what = f"{each.name}, load {each.load:.3g}: s per gradient"
        between = interval(each.scale * each.seconds, seed)
        yield Row(f"{figure} {recorded}", what, each.mean, note=each.note, interval=between)


def overall(figure: str, found: list[list[Timed]], seed: int) -> Iterator[Row]:
    """Yield, for each scheme, the ratio of its time to that of waiting for all workers.

    It is the geometric mean over recordings. Its interval is by a bootstrap over recordings, and
    over the rounds of each.
    """
    rng = np.random.default_rng(seed)
    logs: dict[str, list[Array]] = {}
    for timed in found:
        plain = timed[0]
        drawn = rng.integers(plain.seconds.size, size=(_RESAMPLED, plain.seconds.size))
        for each in timed[1:]:
            label = each.name if each.picked else f"{each.name}, load {each.load:.3g}"
            both = [
                np.append(t.mean, t.scale * t.seconds[drawn].mean(axis=1)) for t in (each, plain)
            ]
            logs.setdefault(label, []).append(np.log(both[0] / both[1]))
    for label, each_log in logs.items():
        if len(each_log) < len(found):
            continue
        table = np.array(each_log)
        picked = rng.integers(len(found), size=(len(found), _RESAMPLED))
        means = np.take_along_axis(table[:, 1:], picked, axis=0).mean(axis=0)
        low, high = np.exp(np.quantile(means, _LEVELS)).tolist()
        ratio = float(np.exp(table[:, 0].mean()))
        what = f"{label}: over uncoded, geometric mean"
        yield Row(f"{figure} all {len(found)}", what, ratio, interval=(low, high))


def verdict(figure: str, recorded: str, timed: list[Timed], seed: int) -> Row:
    """Return a row that compares the fastest code with waiting for all, on the same rounds."""
    uncoded = next(each for each in timed if each.name == "uncoded")
    others = [each for each in timed if each.load > uncoded.load]
    best = min(others, key=lambda each: each.mean)
    ratio = best.mean / uncoded.mean
    slower = sum(each.mean > uncoded.mean for each in others)
    if ratio >= 1:
        note = "Coding loses here: no code is as fast as waiting for all."
    elif slower:
        note = f"Of {len(others)} codes and loads, {slower} are slower than waiting for all."
    else:
        note = ""
    return Row(
        f"{figure} {recorded}",
        f"fastest code ({best.name}, load {best.load:.3g}) over uncoded",
        ratio,
        note=note,
        interval=ratio_interval(best, uncoded, seed),
    )


def panel(recorded: str, timed: list[Timed]) -> Panel:
    """Return a panel of seconds per gradient against load."""
    lines = []
    for name in dict.fromkeys(each.name for each in timed):
        mine = [each for each in timed if each.name == name]
        style: Style = "points" if len(mine) == 1 else "joined"
        loads, seconds = (np.array([getattr(e, key) for e in mine]) for key in ("load", "mean"))
        # A code gets its name in tables; anything else keeps its own.
        shown = catalogue.describe(name) if name in catalogue.names() else name
        lines.append(Line(shown, loads, seconds, style))
    x_label = "load (partitions per worker)"
    return Panel(recorded, x_label, "seconds per gradient", lines, log_x=True)
