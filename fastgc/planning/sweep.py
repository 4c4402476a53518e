"""Simulate a grid of codes, workers, stragglers and delays, with the time of a round a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import at_least, check_cost, check_real
from .._base.text import duration, plural, short
from ..codes import Code, catalogue
from ..delays import DelayModel, parse
from ..delays.interface import check_model, described, sample
from .plan import made, trusted_error
from .simulation import follow, simulate

if TYPE_CHECKING:
    from ..training.data import Dataset
    from ..training.models import Model

__all__ = ["Cell", "Sweep", "sweep"]

_NORMAL = 1.959963984540054  # standard errors to each side of a mean that contain 95%

Integers = int | Sequence[int]


class Cell(NamedTuple):
    """One cell of a grid, with its results.

    Numbers that were not computed are NaN; `reason` says why. Intervals contain the mean with 95%
    confidence, if rounds are independent and their means nearly normal.

    Attributes
    ----------
    code : str
        The name that was given.
    n, k, stragglers : int
        Workers, partitions, and stragglers that the code was asked to tolerate.
    delays : str
        Text or description of the delays.
    load : int
        Largest number of partitions of a worker; 0 if there is no such code.
    tolerated : int or None
        Stragglers that the code tolerates in the worst case; None if unknown.
    seconds, seconds_low, seconds_high : float
        Mean simulated time of a round, and its interval.
    median, late : float
        Seconds within which half of the rounds, and 99% of them, ended.
    workers, messages, gradients, computations : float
        Means of the workers waited for, the messages received, their size in gradients, and the
        partial gradients computed by then.
    residual, largest_residual : float
        Root mean square and maximum of the residual over the first rounds: how far the coefficients
        of the partial gradients in the decoded gradient are from 1.
    largest_error : float
        The largest relative error of a gradient that `Code.trust` predicts for these rounds.
    mean_exists : bool or None
        Whether the mean time exists (`fastgc.simulation.Simulation.mean_exists`).
    measured, measured_low, measured_high : float
        Mean time of a round of processes on this machine, and its interval.
    reason : str
        Why a number is missing; empty if none is.
    """

    code: str
    n: int
    k: int
    stragglers: int
    delays: str
    load: int = 0
    tolerated: int | None = None
    seconds: float = math.nan
    seconds_low: float = math.nan
    seconds_high: float = math.nan
    median: float = math.nan
    late: float = math.nan
    workers: float = math.nan
    messages: float = math.nan
    gradients: float = math.nan
    computations: float = math.nan
    residual: float = math.nan
    largest_residual: float = math.nan
    largest_error: float = math.nan
    mean_exists: bool | None = None
    measured: float = math.nan
    measured_low: float = math.nan
    measured_high: float = math.nan
    reason: str = ""

    def __repr__(self) -> str:
        where = f"{self.code}, n={self.n}, s={self.stragglers}"
        if math.isnan(self.seconds):
            return f"Cell({where}: {self.reason})"
        return (
            f"Cell({where}: {duration(self.seconds)} a round, load {self.load}, "
            f"{short(self.messages)} messages)"
        )


class Sweep:
    """The result of `sweep`: cells, which are computed while you iterate over them.

    ``len`` is the number of cells. Each new iteration computes all cells again.
    """

    def __init__(
        self, points: Sequence[tuple[str, int, int, int]], run: Callable[[], Iterator[Cell]]
    ) -> None:
        self._points, self._run = points, run

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[Cell]:
        return self._run()

    def __repr__(self) -> str:
        return f"<Sweep of {plural(len(self), 'cell')}>"


def sweep(
    codes: str | Sequence[str],
    n: Integers | Sequence[tuple[int, int]],
    stragglers: Integers | None = None,
    delays: Any = None,
    *,
    k: int | None = None,
    cost: ArrayLike = 0.0,
    work: ArrayLike = 0.0,
    receive: float = 0.0,
    rounds: int = 2000,
    sets: int = 20,
    seed: int = 0,
    interrupted: bool = True,
    processors: ArrayLike | None = None,
    live: int = 0,
    data: Dataset | None = None,
    model: Model | None = None,
    progress: Callable[[float, float], object] | None = None,
) -> Sweep:
    """Simulate every code for all numbers of workers and stragglers, and all delays.

    Impossible cells are included with the reason, for instance if a code cannot tolerate as many
    stragglers. A code that is the same for several numbers of stragglers is simulated once.

    Parameters
    ----------
    codes : str or sequence of str
        Names, as `fastgc.codes.make` takes them: ``"rs"``, ``"bcc:load=5"``, ``"module:Class"``.
    n, stragglers : int or sequence of int
        Workers, and stragglers to tolerate. Or only `n`, as a sequence of pairs of both.
    delays : DelayModel or str, or a sequence of such, optional
        The delays of the workers: a model, a text that `fastgc.delays.parse` reads, or a pair of a
        name for the results and a model. Default: no delays.
    k : int, optional
        Partitions. Default: as many as workers.
    cost, receive, interrupted, processors
        As in `fastgc.simulation.simulate`.
    work : float or (n,) array
        Instead of `cost`, seconds to compute the partial gradients of all k partitions once. Use it
        to compare numbers of workers.
    rounds : int
        Rounds to simulate in each cell.
    sets : int
        Number of these rounds for which the residual and the error are computed.
    seed : int
        Seed of delays and random codes. Cells with the same n and delays have the same delays.
    live : int
        Rounds to measure in each cell, with worker processes on this machine. Default: none.
    data, model : optional
        Data and model of these workers. Default: softmax regression of the handwritten digits.
    progress : callable, optional
        Called after every few rounds with the part of a cell's simulation that is done, and with
        the whole.

    Returns
    -------
    Sweep
        An iterable of `Cell`.

    Raises
    ------
    TypeError, ValueError
        If an argument is impossible in every cell.

    Examples
    --------
    >>> from fastgc import planning
    >>> cells = list(planning.sweep(["rs", "binary"], 8, range(3), "exponential:mean=0.01"))
    >>> len(cells), min(cells, key=lambda cell: cell.seconds).code
    (6, 'binary')
    """
    names = _names(codes)
    sizes = _sizes(n, stragglers)
    k = None if k is None else at_least("k", k, 1)
    rounds, sets = at_least("rounds", rounds, 1), at_least("sets", sets, 1)
    seed, live = at_least("seed", seed, 0), at_least("live", live, 0)
    receive = check_real("receive", receive)
    _check_costs(sizes, cost, work)
    laws = _laws(delays)
    points = [
        (name, workers, s, at)
        for at, workers, name in product(range(len(laws)), sizes, names)
        for s in sizes[workers]
    ]
    how: dict[str, Any] = {"receive": receive, "seed": seed, "interrupted": bool(interrupted)}
    how["processors"] = processors

    def found(code: Code, law: DelayModel | None) -> dict[str, Any]:
        seconds = np.divide(work, code.k) if np.any(work) else cost
        numbers = _simulated(code, law, rounds, sets, how | {"cost": seconds}, progress)
        return numbers | (_measured(code, law, live, seed, data, model) if live else {})

    def run() -> Iterator[Cell]:
        known: dict[tuple[Code, int], dict[str, Any]] = {}
        for name, workers, s, at in points:
            told, law = laws[at]
            cell = Cell(name, workers, workers if k is None else k, s, told)
            try:
                code = made(name, workers, k, s, seed)
                cell = cell._replace(k=code.k, load=code.load, tolerated=code.stragglers)
                if law is not None:
                    sample(law, 0, workers, seed)  # raises if it is for another number of workers
                if (code, at) not in known:
                    known[code, at] = found(code, law)
                cell = cell._replace(**known[code, at])
            except (ValueError, OverflowError) as error:
                cell = cell._replace(reason=str(error))
            yield cell

    return Sweep(points, run)


def _simulated(
    code: Code,
    law: DelayModel | None,
    rounds: int,
    sets: int,
    how: dict[str, Any],
    progress: Callable[[float, float], object] | None,
) -> dict[str, Any]:
    """Return the fields of a cell that simulated rounds give."""
    parts = 3  # of the progress: rounds, followed rounds, and what these decode

    def told(part: int) -> Callable[[int, int], object]:
        if progress is None:
            return lambda *_: None
        return lambda done, total: progress(part + done / total, parts)

    sets = min(sets, rounds)
    run = simulate(code, law, rounds=rounds, progress=told(0), **how)
    followed = follow(code, law, rounds=sets, progress=told(1), **how).rounds
    residuals, errors = [], []
    for done, each in enumerate(followed, 1):
        residuals.append(code.residual(each.received))
        errors.append(trusted_error(code, each.received))
        told(2)(done, sets)
    median, late = run.quantile([0.5, 0.99]).tolist()
    return {
        **_interval("seconds", run.mean, run.standard_error),
        "median": median,
        "late": late,
        "workers": run.mean_workers,
        "messages": run.mean_messages,
        "gradients": run.communication_load,
        "computations": run.mean_computations,
        "residual": math.sqrt(np.mean(np.square(residuals))),
        "largest_residual": max(residuals),
        "largest_error": max(errors),
        "mean_exists": run.mean_exists,
    }


def _measured(
    code: Code,
    law: DelayModel | None,
    rounds: int,
    seed: int,
    data: Dataset | None,
    model: Model | None,
) -> dict[str, Any]:
    """Return the fields of a cell that rounds of processes on this machine give."""
    from ..training.data import load
    from ..training.models import SoftmaxRegression
    from .live import measured_rounds

    dataset = load("digits", seed=seed) if data is None else data
    trained = SoftmaxRegression(dataset.features, dataset.classes) if model is None else model
    if code.scheme.codes_data and not getattr(trained, "quadratic", False):
        return {"reason": "not measured: it decodes only gradients that are quadratic in the data"}
    seconds = measured_rounds(code, dataset, trained, delays=law, rounds=rounds, seed=seed)
    error = float(seconds.std(ddof=1)) / math.sqrt(rounds) if rounds > 1 else math.nan
    return _interval("measured", float(seconds.mean()), error)


def _interval(name: str, mean: float, error: float) -> dict[str, float]:
    """Return a mean and its interval, by the fields' names in a cell."""
    half = _NORMAL * error
    return {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}


def _check_costs(sizes: Iterable[int], cost: ArrayLike, work: ArrayLike) -> None:
    for workers in sizes:
        check_cost(workers, cost)
        check_cost(workers, work)
    if np.any(cost) and np.any(work):
        raise ValueError("cost, of one partition, and work, of all, exclude each other")


def _names(codes: str | Sequence[str]) -> list[str]:
    names = catalogue.split(codes) if isinstance(codes, str) else list(codes)
    if not names:
        raise ValueError("name at least one code")
    for name in names:
        catalogue.check_name(name)
    return names


def _sizes(n: Any, stragglers: Integers | None) -> dict[int, list[int]]:
    """Return the numbers of stragglers to tolerate for each number of workers."""
    if stragglers is not None:
        tolerate = _integers("stragglers", stragglers, 0)
        return dict.fromkeys(_integers("n", n, 1), tolerate)
    sizes: dict[int, list[int]] = {}
    try:
        each = [(workers, s) for workers, s in n]
    except (TypeError, ValueError):
        raise TypeError(
            f"without stragglers, n must be pairs of workers and stragglers, not {n!r}"
        ) from None
    if not each:
        raise ValueError("n must be one pair of workers and stragglers or several, not none")
    for workers, s in dict.fromkeys(each):
        at = at_least("n", workers, 1)
        sizes.setdefault(at, []).append(at_least("stragglers", s, 0))
    return sizes


def _integers(name: str, values: Integers, least: int) -> list[int]:
    """Return the distinct integers, in the order given."""
    listed = [values] if isinstance(values, int | np.integer) else list(values)
    if not listed:
        raise ValueError(f"{name} must be one integer or several, not none")
    return list(dict.fromkeys(at_least(name, each, least) for each in listed))


def _laws(delays: Any) -> list[tuple[str, DelayModel | None]]:
    """Return the delay models, each after its text."""
    several = isinstance(delays, list | tuple)
    found: list[tuple[str, DelayModel | None]] = []
    for each in delays if several else [delays]:
        if isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str):
            told, law = each
        else:
            law = parse(each) if isinstance(each, str) else each
            told = each if isinstance(each, str) else "none" if each is None else described(each)
        check_model(law)
        found.append((told, law))
    if not found:
        raise ValueError("delays must be a model, some models or None, not an empty sequence")
    return found
