"""Record the times of a real cluster, to make a plan and to check it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from .._base.arrays import Floats, check_real, check_reals
from .._base.files import read_json, refusing
from .._base.text import duration, plural
from ..codes import Code, Uncoded
from ..delays import DelayModel, Empirical
from ..delays.interface import Per, check_per, described, per_of
from ..engines.interface import RoundReport
from ..engines.local import LocalCluster
from ..training.data import Dataset, partition
from ..training.models import Model, prepared

__all__ = ["Recording", "measured_rounds", "record"]

# Workers share processors if one alone computes in less than this part of the time beside others.
_AS_FAST = 0.9
_ALONE = 20  # at most this many rounds run with a single worker


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
    processors : float, optional
        The number of processors that the workers shared, if there were fewer than workers.
    """

    times: Floats
    cost: float
    source: str = ""
    per: Per = "round"
    processors: float | None = None

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
        if self.processors is not None:
            check_real("processors", self.processors, positive=True)
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
            "processors": self.processors,
            "times": np.round(self.times, 7).tolist(),
        }

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        cost: float | None = None,
        unit: str = "s",
        per: Per = "round",
    ) -> Self:
        """Read a file of ``fastgc plan --record``, or a table of recorded times.

        Parameters
        ----------
        path : str or path
            The JSON file of ``--record``, which needs no other argument; or a table that
            `Empirical.read` reads, with a row for each round and a column for each worker.
        cost : float, optional
            For a table: the seconds of each time in which one partition is computed.
        unit, per
            For a table: as in `Empirical.read`. Times per computation need no cost.

        Raises
        ------
        ValueError
            If the file holds something else, or a table needs a cost and has none.
        TypeError, OSError, ImportError
            As `Empirical.read` does.
        """
        name = os.fspath(path)
        if Path(path).suffix.lower() == ".json":
            what = "recording of `fastgc plan --record`"
            held = read_json(path, what)
            if not isinstance(held, list):
                with refusing(path, what):
                    if cost is not None or unit != "s" or per != "round":
                        raise ValueError("leave out cost, unit and per, which it contains")
                    return cls._of(held)
        samples = Empirical.read(path, unit, per).samples
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
        rounds, workers = samples.shape
        source = f"{rounds} rounds of {workers} workers, {Path(path).name}"
        return cls(samples, cost or 0.0, source, per)

    @classmethod
    def _of(cls, held: Any) -> Self:
        if not isinstance(held, dict) or not {"times", "cost", "source"} <= held.keys():
            raise ValueError("it does not hold times, their cost and source")
        per, processors = held.get("per", "round"), held.get("processors")
        times, cost = np.array(held["times"]), float(held["cost"])
        return cls(times, cost, str(held["source"]), per, processors)


def record(
    n: int,
    data: Dataset,
    model: Model,
    *,
    delays: DelayModel | None = None,
    rounds: int = 200,
    seed: int = 0,
    progress: Callable[[], object] = lambda: None,
) -> Recording:
    """Run all n workers on this machine, wait for all of them, and record their times.

    The workers run once with one partition each, and once with more, on the same delays. The
    difference is the cost of computation; if workers share processors, it includes how they slow
    each other down. Then one worker runs alone, and its speed-up tells how many processors they
    share. If the artificial delays are per computation, so are the times, and the cost is 0.

    Parameters
    ----------
    n : int
        Workers, and partitions.
    data : Dataset
    model : Model
        The model whose partial gradients are computed, at zero.
    delays : DelayModel, optional
        Artificial delays.
    rounds : int
        Rounds to record.
    seed : int
        Seed of the delays.
    progress : callable, optional
        Called after each of ``2 * rounds`` rounds.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    more = 1 + -(-n // 4)  # partitions, about a code's load
    shards = partition(*prepared(model, data.X_train, data.y_train), n)

    def run(workers: int, load: int, rounds: int) -> Floats:
        times = np.empty((rounds, workers))
        repeated = [shards[j % n] for j in range(workers * load)]
        code = Uncoded(workers, workers * load)
        late = delays if workers == n else None
        with _cluster(code, repeated, data, model, late, seed) as step:
            for row in times:
                report = step()
                row[report.received] = report.arrivals
                if workers == n:
                    progress()
        return times

    times, longer = (run(n, load, rounds) for load in (1, more))
    source = f"{rounds} rounds of {n} local workers, {data.name}, {described(delays)}"
    per = per_of(delays)
    if per == "computation":
        return Recording(times, 0.0, source, per)
    cost = max(float(np.median(longer - times)) / (more - 1), 0.0)
    few = min(rounds, _ALONE)
    each, longer = (run(1, load, few) for load in (1, more))
    alone = max(float(np.median(longer) - np.median(each)) / (more - 1), 0.0)
    shared = 0 < alone < _AS_FAST * cost
    return Recording(times, cost, source, per, n * alone / cost if shared else None)


def measured_rounds(
    code: Code,
    data: Dataset,
    model: Model,
    *,
    delays: DelayModel | None = None,
    rounds: int = 200,
    seed: int = 0,
    progress: Callable[[], object] = lambda: None,
) -> Floats:
    """Run rounds of a code on this machine, and return the time of each: waiting and decoding.

    Parameters as in `record`.

    Returns
    -------
    (rounds,) float64 array
        Seconds.
    """
    seconds = np.empty(rounds)
    shards = code.encode_data(*prepared(model, data.X_train, data.y_train))
    with _cluster(code, shards, data, model, delays, seed) as step:
        for at in range(rounds):
            report = step()
            seconds[at] = report.wait_seconds + report.decode_seconds
            progress()
    return seconds


@contextmanager
def _cluster(
    code: Code,
    shards: Sequence[Any],
    data: Dataset,
    model: Model,
    delays: DelayModel | None,
    seed: int,
) -> Iterator[Callable[[], RoundReport]]:
    """Start worker processes; yield a function that runs a round with parameters of zero."""
    theta, out = np.zeros((2, model.size), dtype=data.X_train.dtype)
    gradient, dtype = model.partial_gradient, theta.dtype
    with LocalCluster(
        code, shards, gradient, model.size, dtype=dtype, delays=delays, seed=seed
    ) as cluster:
        yield lambda: cluster.step(theta, out)
