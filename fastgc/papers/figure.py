"""The parts of a reproduced figure, and helpers that several experiments share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, update_wrapper
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, ParamSpec, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Ints, at_least
from ..errors import InstabilityWarning
from ..plotting.panels import Line, Panel, Style

ROUNDS = 100_000  # simulated by default, as in Ozfatura et al.
TOLERANCE = 0.05  # relative, for means of simulated rounds, and for printed or measured numbers
# The note that says why such a mean agrees with a closed form.
SIMULATED = "the mean of simulated rounds estimates what the closed form computes"

GALLERY = Path(__file__).parents[2] / "docs" / "examples" / "codes"

# Wraps the items of a figure's loop, to show progress.
Track = Callable[[Sequence[Any]], Iterable[Any]]


@cache
def gallery(name: str) -> Any:
    """Import a file of docs/examples/codes, beside which this one lies in a checkout."""
    found = spec_from_file_location(name, GALLERY / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


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

    name: str  # key in `fastgc.papers.FIGURES`
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
    rows are measured times, during which nothing else may run. Raises ValueError if `rounds` is not
    at least 1, or `seed` is negative, and TypeError if one is not an integer.
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


def random_sets(n: int, f: int, count: int, rng: np.random.Generator) -> Iterator[Ints]:
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
