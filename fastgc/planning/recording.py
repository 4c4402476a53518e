"""Recorded times of a real cluster, to make a plan for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._base.arrays import Floats, check_real, check_reals
from .._base.files import path_of, read_json, refusing
from .._base.text import duration, plural
from ..delays import Empirical
from ..delays.interface import Per, check_per
from ..delays.tables import say

__all__ = ["Recording"]


@dataclass(frozen=True, eq=False)
class Recording:
    """Times of all workers in rounds that waited for all of them.

    Attributes
    ----------
    times : (rounds, n) float64 array
        Seconds from handing out the parameters to the worker's answer, for one partition each.
    cost : float
        Seconds that another partition adds; 0 if times are per computation.
    source : str
        A description of the run.
    per : "round" or "computation"
        "round": workers were late once in a round, whatever they computed. "computation": they were
        slow in each computation. See `fastgc.delays.Delays`.
    """

    times: Floats
    cost: float
    source: str = ""
    per: Per = "round"

    def __repr__(self) -> str:
        rounds, n = self.times.shape
        return (
            f"Recording({plural(rounds, 'round')} of {plural(n, 'worker')}, median "
            f"{duration(float(np.median(self.times)))}, another partition {duration(self.cost)}"
            f"{f'; {self.source}' if self.source else ''})"
        )

    def __post_init__(self) -> None:
        times = check_reals("times", self.times)
        if times.ndim != 2 or not times.size:
            raise ValueError(
                f"times must be an array of rounds and workers, not of shape {times.shape}"
            )
        if not ((times > 0) & (times < np.inf)).all():
            raise ValueError("times must be positive seconds")
        check_real("cost", self.cost)
        check_per(self.per)
        object.__setattr__(self, "times", times)

    @property
    def delays(self) -> Empirical:
        """The times without `cost`, as a model that draws whole rounds."""
        return Empirical(np.maximum(self.times - self.cost, 0.0), self.per)

    def to_dict(self) -> dict[str, Any]:
        """Return the recording in types that JSON has, with times rounded to 0.1 µs."""
        return {
            "source": self.source,
            "cost": self.cost,
            "per": self.per,
            "times": np.round(self.times, 7).tolist(),
        }

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        cost: float | None = None,
        unit: str | None = None,
        per: Per = "round",
        columns: Sequence[str | int] | None = None,
    ) -> Self:
        """Read a JSON file of what `to_dict` returned, or a table of recorded times.

        Parameters
        ----------
        path : str or path
            A JSON file of what `to_dict` returned, which needs no other argument; or a table that
            `Empirical.read` reads, with a row for each round and a column for each worker.
        cost : float, optional
            For a table: the seconds of each time in which one partition is computed.
        unit, per, columns
            For a table: as in `Empirical.read`. Times per computation need no cost.

        Raises
        ------
        ValueError
            If the file holds something else, or a table needs a cost and has none, or one above
            most of its times.
        TypeError, OSError, ImportError
            As `Empirical.read` does.
        """
        name = path_of(path)
        if name.suffix.lower() == ".json":
            what = "recording of times"
            held = read_json(name, what)
            if not isinstance(held, list):
                with refusing(name, what):
                    if [cost, unit, columns, per] != [None, None, None, "round"]:
                        raise ValueError("leave out cost, unit, per and columns: it contains them")
                    found = cls._of(held)
                say(name, found.times, f", another partition {duration(found.cost)}")
                return found
        samples = Empirical.read(name, unit, per, columns).samples
        if samples.ndim != 2:
            raise ValueError(
                f"{name}: to plan, there must be times of several rounds and workers, not a single "
                f"row or column of {samples.size}"
            )
        if cost is None and per == "round":
            raise ValueError(
                f"{name}: give cost (--cost), how many seconds of each time compute one partition "
                '(0 if none), or per="computation" (--per) if all do'
            )
        if cost and per == "computation":
            raise ValueError(f"{name}: times per computation have no further cost, not {cost:g}")
        if cost and cost > (middle := float(np.median(samples))):
            raise ValueError(
                f"{name}: a cost of {duration(cost)} is more than half of the times take, whose "
                f"median is {duration(middle)}: is their unit {unit or 's'}, the cost in seconds?"
            )
        rounds, workers = samples.shape
        source = f"{rounds} rounds of {workers} workers, {name.name}"
        return cls(samples, cost or 0.0, source, per)

    @classmethod
    def _of(cls, held: Any) -> Self:
        if not isinstance(held, dict) or not {"times", "cost", "source"} <= held.keys():
            raise ValueError("it does not hold times, their cost and source")
        times, cost = np.array(held["times"], np.float64), float(held["cost"])
        return cls(times, cost, str(held["source"]), held.get("per", "round"))
