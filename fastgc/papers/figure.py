"""What a reproduced figure consists of, and what the experiments behind it share."""

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
from ..errors import InstabilityWarning
from ..plotting.panels import Line, Panel, Style

__all__ = [
    "ROUNDS",
    "SIMULATED",
    "TOLERANCE",
    "Experiment",
    "Figure",
    "Part",
    "Row",
    "Track",
    "compared",
    "figure",
    "median_seconds",
    "positive",
    "random_sets",
    "times_alone",
]

ROUNDS = 100_000  # simulated by default, as in Ozfatura et al.
TOLERANCE = 0.05  # relative; of means of simulated rounds, and of what is printed or measured
# Why such a mean agrees with a closed form.
SIMULATED = "the mean of simulated rounds estimates what the closed form computes"

# Wraps what a figure loops over, to show how far it is.
Track = Callable[[Sequence[Any]], Iterable[Any]]

P = ParamSpec("P")


@dataclass(frozen=True)
class Row:
    """One claim: a number that is computed here, beside what it should be.

    Parameters
    ----------
    figure : str
        Source of the claim: paper and figure, as in ``"halbawi2017 figure 3"``.
    what : str
        What the number is, with its unit.
    ours : float
        As computed or simulated here.
    paper : float, optional
        As the paper states it, where it does.
    closed : float, optional
        The closed form's value, where ours is a simulation.
    note : str
        Why the two have to agree, what was assumed or fitted, or why they cannot agree. Every row
        that has a reference says it.
    tolerance : float
        Relative difference that is allowed: 0 of counts.
    interval : (float, float), optional
        Between which `ours` lies with a probability of 95 %, where it is a mean of measured rounds:
        by a bootstrap, as if they were independent.
    """

    figure: str
    what: str
    ours: float
    paper: float | None = None
    closed: float | None = None
    note: str = ""
    interval: tuple[float, float] | None = None
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if self.reference is not None and not self.note:
            raise ValueError(f"{self.figure}, {self.what}: the note must say why numbers agree")

    @property
    def reference(self) -> float | None:
        """What `ours` is compared with: the paper's number, or else the closed form's."""
        return self.closed if self.paper is None else self.paper

    @property
    def difference(self) -> float:
        """Relative difference to the reference; NaN where there is none."""
        if self.reference is None:
            return math.nan
        if self.reference == 0:
            return 0.0 if self.ours == 0 else math.inf
        return self.ours / self.reference - 1

    @property
    def ok(self) -> bool:
        """Whether `ours` is as near to its reference as `tolerance` allows, or has none."""
        return self.reference is None or abs(self.difference) <= self.tolerance


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure or table of a paper, computed anew.

    Attributes
    ----------
    name : str
        As in `fastgc.papers.FIGURES`.
    title : str
    rows : list of Row
    panels : list of Panel
    """

    name: str
    title: str
    rows: list[Row]
    panels: list[Panel] = field(default_factory=list)


# What an experiment yields: its rows, its panels, and its title where that depends on the data.
Part: TypeAlias = Row | Panel | str


class Experiment(Generic[P]):
    """Computes a figure: calls a function, and collects the rows and panels that it yields.

    Takes that function's keywords. Wherever they occur, `seed` is that of everything random,
    `rounds` is the number of simulated rounds of each point (a figure says how many are enough, and
    simulates no more), and `track` wraps what is looped over, to show how far it is.

    Raises
    ------
    ValueError
        If `rounds` is not at least 1, or `seed` negative.
    TypeError
        If `rounds` or `seed` is not an integer.
    """

    def __init__(self, name: str, title: str, parts: Callable[P, Iterator[Part]]) -> None:
        self.name, self._title, self._parts = name, title, parts
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


def figure(name: str, title: str) -> Callable[[Callable[P, Iterator[Part]]], Experiment[P]]:
    """Make an `Experiment` of the function below."""
    return lambda parts: Experiment(name, title, parts)


def compared(label: str, x: ArrayLike, formula: ArrayLike, found: ArrayLike) -> list[Line]:
    """A line by a formula, or as a paper has it, and in its colour the points found here."""
    return [Line(label, x, formula), Line(label, x, found, "points")]


def positive(
    label: str, x: ArrayLike, y: ArrayLike, style: Style = "line", least: float = 1e-9
) -> Line:
    """A line without values that a logarithmic axis cannot show, or that are 0 but for rounding."""
    x, y = np.asarray(x), np.asarray(y)
    return Line(label, x[y > least], y[y > least], style)


def random_sets(
    n: int, f: int, count: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Random sets of f of n workers, each sorted."""
    for _ in range(count):
        yield np.sort(rng.permutation(n)[:f])


def median_seconds(tasks: Iterable[Callable[[], object]], warm: int = 0) -> float:
    """Median time of calls, without the first `warm` of them."""
    took = []
    for task in tasks:
        begin = perf_counter()
        task()
        took.append(perf_counter() - begin)
    return float(np.median(took[warm:]))


@contextmanager
def times_alone() -> Iterator[None]:
    """Make codes that decode badly without a warning, where only their times matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)
        yield
