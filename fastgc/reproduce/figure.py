"""What a reproduced figure consists of: rows to compare, and panels to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..plotting.panels import Panel

__all__ = ["ROUNDS", "TOLERANCE", "Figure", "Row", "Track"]

ROUNDS = 100_000  # simulated by default, as in Ozfatura et al.
TOLERANCE = 0.05  # relative difference from which on a row needs a note

# Wraps what a figure loops over, to show how far it is.
Track = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Row:
    """One number, beside what it should be.

    Parameters
    ----------
    figure : str
        Paper and figure, as in ``"halbawi2017 figure 3"``.
    what : str
        What the number is, with its unit.
    ours : float
        As computed or simulated here.
    paper : float, optional
        As the paper states it, where it does.
    closed : float, optional
        The closed form's value, where ours is a simulation.
    note : str
        What was assumed, or why the number cannot be met.
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
        """Whether `ours` is within 5 % of its reference, or has none."""
        return self.reference is None or abs(self.difference) <= TOLERANCE


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure or table of a paper, computed anew.

    Attributes
    ----------
    name : str
        As in `fastgc.reproduce.FIGURES`.
    title : str
    rows : list of Row
    panels : list of Panel
    """

    name: str
    title: str
    rows: list[Row]
    panels: list[Panel] = field(default_factory=list)
