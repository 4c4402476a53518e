"""Simulate how long jobs take on recorded or drawn times; choose parameters, and rank schemes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import (
    Bools,
    Floats,
    Ints,
    at_least,
    check_finite,
    check_real,
    check_reals,
)
from .._base.text import duration
from .catalogue import Candidate, candidates
from .scheme import Schedule, SequentialScheme, check_scheme


@dataclass(frozen=True, eq=False)
class SequentialRun:
    """Simulated rounds of a scheme.

    Attributes
    ----------
    rounds : (rounds,) float64 array
        Seconds of each round.
    done : (jobs,) float64 array
        When each job was done, in seconds from the beginning of the first round.
    stragglers : (rounds,) int64 array
        Workers with mini-tasks that had not answered when the round ended.
    waited : (rounds,) bool array
        Whether the round lasted longer than (1 + mu) times the fastest worker's time. Then more
        workers had straggled by that time than jobs can make up for.
    """

    rounds: Floats
    done: Floats
    stragglers: Ints
    waited: Bools

    @property
    def seconds(self) -> float:
        """Seconds of all rounds together."""
        return float(self.rounds.sum())

    @property
    def seconds_per_job(self) -> float:
        """Seconds of all rounds per job, including the last rounds, in which no job begins."""
        return self.seconds / self.done.size

    @property
    def standard_error(self) -> float:
        """Standard error of `seconds_per_job`, from batches of rounds; NaN for few rounds.

        With N rounds there are about sqrt(N) batches. The estimate includes slowness that lasts
        for a batch, but no drift over the run.
        """
        count = math.isqrt(self.rounds.size)
        if count < 3:
            return math.nan
        means = [float(batch.mean()) for batch in np.array_split(self.rounds, count)]
        scale = self.rounds.size / self.done.size
        return scale * float(np.std(means, ddof=1)) / math.sqrt(count)


def _checked(times: ArrayLike, scheme: SequentialScheme) -> Floats:
    seconds = check_reals("times", times)
    if seconds.ndim != 2 or seconds.shape[1] != scheme.n:
        raise ValueError(
            f"times must have shape (rounds, {scheme.n}), a column for each worker of {scheme!r}, "
            f"not {seconds.shape}"
        )
    check_finite("times", seconds)
    if len(seconds) <= scheme.delay:
        raise ValueError(
            f"times must be of more than {scheme.delay} rounds, which a job takes, not of "
            f"{len(seconds)}"
        )
    return seconds


def simulate_sequential(
    times: ArrayLike,
    scheme: SequentialScheme,
    *,
    mu: float = 1.0,
    load_slope: ArrayLike = 0.0,
    at_load: float = 1.0,
    interrupted: bool = True,
) -> SequentialRun:
    """Run a scheme on times of workers, recorded or drawn.

    Of N rounds, each of the first N - T begins a job; T is ``scheme.delay``. A round ends after
    (1 + mu) times the fastest worker's time, or as soon as all have answered; but it lasts until
    the answers allow all jobs to be done in time (`SequentialScheme.tolerable`). Workers that have
    not answered by then are stragglers, and their work of this round is lost.

    Parameters
    ----------
    times : (rounds, workers) array
        Seconds that each worker takes for a load of `at_load` in each round. Rows are used in this
        order. They may be the `samples` of `fastgc.delays.Empirical`.
    scheme : SequentialScheme
        A scheme for as many workers as `times` has columns.
    mu : float
        A round waits at least (1 + mu) times as long as the fastest worker takes. 0: it ends as
        soon as possible, as with a gradient code.
    load_slope : float, or array (workers,) or (rounds, workers)
        Seconds per unit of load; an uncoded scheme has load 1.
    at_load : float
        The load for which `times` are; 0 if they are times of empty rounds.
    interrupted : bool
        True: workers drop their computation when a round ends, as in the paper. False: workers
        first finish it, as those of the engines do, before they begin the next round.

    Returns
    -------
    SequentialRun

    Raises
    ------
    ValueError
        If `times` do not have a column for each worker of the scheme, or are negative or not
        finite; if there are fewer rounds than a job takes; or if times of a smaller load would be
        negative.
    TypeError
        If an argument has a wrong type.

    Notes
    -----
    The rule of (1 + mu) comes from Krishnan, Ebrahimi and Khisti (ICLR 2023), whose scripts then
    wait for all workers if the stragglers are not of the scheme's pattern; after the same
    stragglers, this never ends a round later. In the first and last rounds, workers have fewer
    mini-tasks and take proportionally less time.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgc.sequential import MSGC, simulate_sequential
    >>> times = np.ones((8, 4))
    >>> times[3, 2] = 60.0  # worker 2 straggles once
    >>> scheme = MSGC(4, burst=1, window=2, stragglers=1)
    >>> simulate_sequential(times, scheme).seconds_per_job
    1.2857142857142858
    """
    check_scheme(scheme)
    seconds = _checked(times, scheme)
    mu, at_load = check_real("mu", mu), check_real("at_load", at_load)
    slope = _slope(load_slope, seconds.shape)
    schedule = scheme.schedule()
    jobs = len(seconds) - scheme.delay
    rounds, done = np.zeros(len(seconds)), np.zeros(jobs)
    stragglers = np.zeros(len(seconds), dtype=np.int64)
    waited = np.zeros(len(seconds), dtype=bool)
    late = np.zeros(scheme.n)  # seconds until each worker is free
    workers = np.arange(scheme.n)[:, np.newaxis]
    now = 0.0
    for r, row in enumerate(seconds):
        tasks = schedule.begin(job=r < jobs)
        busy = tasks.age.max(axis=1) >= 0
        loads = np.where(tasks.age >= 0, scheme.loads[tasks.part, workers], 0.0)
        took = row + slope[r] * (loads.sum(axis=1) - at_load)
        arrival = np.where(busy, took, 0.0)
        if arrival.min() < 0:
            raise ValueError(
                f"times must not be negative, but worker {int(arrival.argmin())} would take "
                f"{arrival.min()} s in round {r}: lower load_slope, or times are of another load"
            )
        arrival[busy] += late[busy]
        rounds[r], waited[r], came = _round(schedule, arrival, busy, mu)
        stragglers[r] = np.count_nonzero(busy & ~came)
        if not interrupted:
            # A worker that is not free before this round ends skips it.
            begun = busy & (late <= rounds[r])
            late = np.maximum(np.where(begun, arrival, late) - rounds[r], 0.0)
        now += rounds[r]
        for job in schedule.end(came):
            done[job] = now
    return SequentialRun(rounds, done, stragglers, waited)


def _slope(load_slope: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return `load_slope` for each round and worker."""
    slope = check_reals("load_slope", load_slope)
    if slope.shape not in ((), shape[1:], shape):
        raise ValueError(
            f"load_slope must be a number, or one for each of {shape[1]} workers, or of {shape[0]} "
            f"rounds and these, not an array of shape {slope.shape}"
        )
    if not (np.isfinite(slope) & (slope >= 0)).all():
        raise ValueError(f"load_slope must be seconds, finite and not negative, not {slope}")
    return np.broadcast_to(slope, shape)


def _round(
    schedule: Schedule, arrival: Floats, busy: Bools, mu: float
) -> tuple[float, bool, Bools]:
    """Return the seconds of a round, whether it waited for stragglers, and who answered."""
    if not busy.any():
        return 0.0, False, ~busy
    least = min((1 + mu) * arrival[busy].min(), arrival.max())
    came = arrival <= least
    if schedule.enough(came):
        return least, False, came
    # `enough` stays true when more workers answer: bisect for the first time at which it is.
    ends = np.unique(arrival[arrival > least]).tolist()
    end = ends[bisect_left(ends[:-1], True, key=lambda end: schedule.enough(arrival <= end))]
    return end, True, arrival <= end


# The schemes that `compare` ranks by default.
NAMES = ("m-sgc", "sr-sgc", "uncoded", "rs", "rs-clustered", "binary", "fractional")

_PROBE = 100  # by default, at most this many rounds choose parameters


@dataclass(frozen=True, eq=False)
class Compared:
    """A scheme, how it was chosen, and how long it takes.

    Attributes
    ----------
    name : str
        The name that was given.
    found : dict
        The chosen parameters, which the name left open; for a gradient code, its stragglers.
    scheme : SequentialScheme
    mu : float
        Rounds wait at least (1 + mu) times as long as the fastest worker takes.
    run : SequentialRun
        The rounds that were not used to choose parameters.
    tried : tuple of (float, float)
        Load and seconds per job of each choice, on the rounds that choose parameters, or on those
        of `run` if there is nothing to choose.
    """

    name: str
    found: dict[str, Any]
    scheme: SequentialScheme
    mu: float
    run: SequentialRun
    tried: tuple[tuple[float, float], ...]

    @property
    def text(self) -> str:
        """The name with all chosen parameters; `make` gives the same scheme for it."""
        chosen = ",".join(f"{key}={value}" for key, value in self.found.items())
        if not chosen:
            return self.name
        return f"{self.name}{',' if ':' in self.name else ':'}{chosen}"

    def __repr__(self) -> str:
        return (
            f"Compared({self.text}: load {self.scheme.load:.3g}, "
            f"{duration(self.run.seconds_per_job)} a job, done after {self.scheme.delay} rounds)"
        )


def compare(
    times: ArrayLike,
    names: Sequence[str] = NAMES,
    *,
    models: int = 4,
    mu: float | Sequence[float] = (0.0, 0.2, 1.0),
    load_slope: ArrayLike = 0.0,
    at_load: float = 1.0,
    interrupted: bool = True,
    probe: int | None = None,
    seed: int = 0,
    progress: bool = False,
    after_each: Callable[[list[Compared]], object] = lambda found: None,
) -> list[Compared]:
    """Rank schemes by their seconds per job, on recorded or drawn times.

    The first rounds choose the parameters that a name leaves open. The other rounds judge all
    schemes, because a choice looks better than it is on the rounds that chose it.

    Parameters
    ----------
    times : (rounds, workers) array
        As in `simulate_sequential`, like `load_slope`, `at_load` and `interrupted`.
    names : sequence of str
        As in `make`, but parameters may be missing. Gradient codes run round by round.
    models : int
        Models trained in turn: jobs must be done ``models - 1`` rounds after they begin.
    mu : float or sequence of float
        Rounds wait at least (1 + mu) times as long as the fastest worker takes. Of several values,
        the best is chosen. Rounds of gradient codes end as soon as possible.
    probe : int, optional
        Number of rounds that choose parameters. Default: half of all rounds, at most 100; none if
        there is nothing to choose.
    seed : int
        Seed of random codes.
    progress : bool
        Show a progress bar (needs ``gradient-coding[cli]``).
    after_each : callable
        Called after each scheme, with those so far, the fastest first.

    Returns
    -------
    list of Compared
        The schemes, the fastest first.

    Raises
    ------
    ValueError
        If a name is unknown, or names no scheme that gives exact gradients in time for `models`; or
        if there are too few rounds.
    TypeError
        If an argument has a wrong type.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgc.sequential import compare
    >>> times = np.ones((60, 6))
    >>> times[4::10, 1] = 9.0  # a worker straggles now and then
    >>> names = ["m-sgc:burst=1,window=2,stragglers=1", "uncoded"]
    >>> [each.name for each in compare(times, names, models=2, mu=0.5)]
    ['m-sgc:burst=1,window=2,stragglers=1', 'uncoded']
    """
    seconds = check_reals("times", times)
    if seconds.ndim != 2 or not seconds.size:
        raise ValueError(f"times must have shape (rounds, workers), not {seconds.shape}")
    if isinstance(names, str) or not names:
        raise ValueError(f"names must be a sequence of one at least, not {names!r}")
    rounds, n = seconds.shape
    delay = at_least("models", models, 1) - 1
    patience = [check_real("mu", each) for each in np.atleast_1d(check_reals("mu", mu)).tolist()]
    if not patience:
        raise ValueError("mu must name one value at least")
    options = {
        name: [
            (each, m)
            for each in candidates(name, n, delay, seed)
            for m in (patience if each.scheme.delay else [0.0])
        ]
        for name in dict.fromkeys(names)
    }
    probe = _probed(probe, options, rounds, delay)
    slope = _slope(load_slope, seconds.shape)

    same: Any = {"at_load": at_load, "interrupted": interrupted}

    def run(choice: tuple[Candidate, float], part: slice) -> SequentialRun:
        (_, _, scheme), mu = choice
        return simulate_sequential(seconds[part], scheme, mu=mu, load_slope=slope[part], **same)

    bar: AbstractContextManager[Callable[[], object]] = nullcontext(lambda: None)
    if progress:
        from .._base.progress import task_bar

        runs = len(options) + (sum(map(len, options.values())) if probe else 0)
        bar = task_bar("simulating", runs)
    compared: list[Compared] = []
    with bar as advance:
        for name, each in options.items():
            tried = []
            for choice in each if probe else []:
                tried.append((choice[0].scheme.load, run(choice, slice(probe)).seconds_per_job))
                advance()
            best = min(range(len(tried)), key=lambda at: tried[at][1]) if tried else 0
            (_, left, scheme), m = each[best]
            found = run(each[best], slice(probe, None))
            advance()
            tried = tried or [(scheme.load, found.seconds_per_job)]
            compared.append(Compared(name, left, scheme, m, found, tuple(tried)))
            compared = sorted(compared, key=lambda each: each.run.seconds_per_job)
            after_each(compared)
    return compared


def _probed(probe: int | None, options: dict[str, list[Any]], rounds: int, delay: int) -> int:
    """Return how many rounds choose parameters: 0 if no name leaves any open."""
    if all(len(each) == 1 for each in options.values()):
        probe = 0
    elif probe is None:
        probe = min(rounds // 2, _PROBE)
    else:
        probe = at_least("probe", probe, 1)
    least = delay + 1
    if rounds - probe < least or 0 < probe < least:
        raise ValueError(
            f"{rounds} rounds are too few, {probe} of them to choose parameters by: both these and "
            f"the others must be {least} at least, which jobs of {least} models may take"
        )
    return probe
