"""The parts of a reproduced figure, and helpers that several experiments share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastgc import InstabilityWarning
from fastgc.plotting import Line, Panel

ROUNDS = 100_000  # simulated by default, as in Ozfatura et al.
TOLERANCE = 0.05  # relative, for means of simulated rounds, and for printed or measured numbers
# The note that says why such a mean agrees with a closed form.
SIMULATED = "the mean of simulated rounds estimates what the closed form computes"

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


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
        Why the two numbers must agree, what was assumed, or why they cannot agree. Every row with a
        reference has a note.
    fitted : str
        The constants that were chosen so that numbers of this paper come out, and that this number
        depends on. Empty if there are none.
    tolerance : float
        Allowed relative difference: 0 for counts.
    bound : bool
        Whether the closed form is an upper bound of `ours`, not its value.
    """

    figure: str
    what: str
    ours: float
    paper: float | None = None
    closed: float | None = None
    note: str = ""
    fitted: str = ""
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
    """A figure or table of a paper, computed anew."""

    name: str  # key in `FIGURES`
    title: str
    rows: list[Row]
    panels: list[Panel] = field(default_factory=list)


# An experiment yields its rows, its panels, and its title if that depends on the data.
Part: TypeAlias = Row | Panel | str

FIGURES: dict[str, Callable[..., Figure]] = {}
TITLES: dict[str, str] = {}


def figure(
    name: str, title: str
) -> Callable[[Callable[..., Iterator[Part]]], Callable[..., Figure]]:
    """Add to `FIGURES` what collects the parts that the decorated function yields.

    In all figures, `seed` is the seed of everything random. `rounds` is the number of simulated
    rounds of each point; a figure says how many are enough, and simulates no more.
    """

    def add(parts: Callable[..., Iterator[Part]]) -> Callable[..., Figure]:
        @wraps(parts)
        def compute(*args: Any, **given: Any) -> Figure:
            found = list(parts(*args, **given))
            return Figure(
                name,
                next((part for part in found if isinstance(part, str)), title),
                [part for part in found if isinstance(part, Row)],
                [part for part in found if isinstance(part, Panel)],
            )

        FIGURES[name], TITLES[name] = compute, title
        return compute

    return add


def compared(label: str, x: ArrayLike, formula: ArrayLike, found: ArrayLike) -> list[Line]:
    """Return a line by a formula or by a paper, and points found here, in the same colour."""
    return [Line(label, x, formula), Line(label, x, found, "points")]


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
