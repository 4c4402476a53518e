"""Sequential schemes, their runs, and the simplest scheme: every job in its own round.

A job is a gradient, for instance of one of several models trained in turn. A new job begins in each
round, and must be done within a fixed number of rounds. So a worker that straggles in one round can
do its part of the job in a later one. A scheme cuts the partitions of a job into parts, each with a
code. In each round it says which parts of which jobs a worker computes; these are the worker's
mini-tasks. A worker's message for a part is that of the part's code.

A scheme tolerates patterns of stragglers. A pattern has a row for each round and a column for each
worker. True marks a straggler, from which nothing came in that round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import (
    Bools,
    Ints,
    as_array,
    at_least,
    check_index,
    check_integer,
    check_workers,
)
from ..codes import Code


def _runs(pattern: ArrayLike, window: int) -> Bools:
    """Return all runs of `window` rounds, (runs, window, workers); a shorter pattern is one run."""
    checked = as_array("pattern", pattern)
    if checked.dtype.kind != "b":
        raise TypeError(f"pattern must be of booleans, True for a straggler, not {checked.dtype}")
    if checked.ndim != 2:
        raise ValueError(f"pattern must have shape (rounds, workers), not {checked.shape}")
    if len(checked) <= window:
        return checked[np.newaxis]
    view = np.lib.stride_tricks.sliding_window_view(checked, window, axis=0)
    return view.transpose(0, 2, 1)


class _OfWindows:
    """A model that constrains every run of `window` rounds.

    A subclass has a first field in 1 .. `window`, and then `window` and `stragglers`.
    """

    window: int
    stragglers: int

    def __post_init__(self) -> None:
        """Store the fields as ints; raise ValueError unless 1 <= first field <= window."""
        name, *_ = vars(self)
        part, window = (check_integer(each, getattr(self, each)) for each in (name, "window"))
        if not 1 <= part <= window:
            raise ValueError(f"1 <= {name} <= window is needed, not {name}={part}, window={window}")
        stragglers = at_least("stragglers", self.stragglers, 0)
        vars(self).update({name: part, "window": window, "stragglers": stragglers})


@dataclass(frozen=True)
class PerRound:
    """At most so many stragglers in each round.

    Parameters
    ----------
    stragglers : int
        The number of stragglers, s.

    Attributes
    ----------
    window : int
        Rounds that the model constrains together: 1.

    Raises
    ------
    TypeError, ValueError
        If `stragglers` is not an integer, or is negative.
    """

    stragglers: int
    window: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "stragglers", at_least("stragglers", self.stragglers, 0))

    def admits(self, pattern: ArrayLike) -> bool:
        """Whether a pattern fits this model.

        Parameters
        ----------
        pattern : (rounds, workers) array of bool
            Who straggled.

        Raises
        ------
        TypeError, ValueError
            If `pattern` is not such an array.
        """
        return bool((_runs(pattern, 1).sum(axis=(1, 2)) <= self.stragglers).all())


@dataclass(frozen=True)
class Bursty(_OfWindows):
    """Few workers straggle within a window of rounds, and each in one short burst.

    In any `window` rounds in a row, at most `stragglers` different workers straggle, and a worker's
    last straggling round is less than `burst` rounds after its first. The paper writes (B, W,
    lambda) for the three numbers (Krishnan, Ebrahimi, Khisti 2023, section 2).

    Parameters
    ----------
    burst, window : int
        B and W, in rounds: 1 <= B <= W.
    stragglers : int
        Different workers that may straggle in a window, lambda.

    Raises
    ------
    TypeError, ValueError
        If an argument is not such an integer.
    """

    burst: int
    window: int
    stragglers: int

    def admits(self, pattern: ArrayLike) -> bool:
        """Whether a pattern fits this model; as `PerRound.admits`.

        If a pattern is shorter than a window, all its rounds are one window.
        """
        runs = _runs(pattern, self.window)
        if (runs.any(axis=1).sum(axis=1) > self.stragglers).any():
            return False
        rounds = runs.shape[1]
        at = np.arange(rounds)[:, np.newaxis]
        first = np.where(runs, at, rounds).min(axis=1, initial=rounds)
        last = np.where(runs, at, -1).max(axis=1, initial=-1)
        return bool((last - first < self.burst).all())


@dataclass(frozen=True)
class Arbitrary(_OfWindows):
    """Few workers straggle within a window of rounds, each a few times, in any rounds.

    In any `window` rounds in a row, at most `stragglers` different workers straggle, none of them
    more than `times` times. The paper writes (N, W', lambda') for the three numbers.

    Parameters
    ----------
    times, window : int
        N and W', in rounds: 1 <= N <= W'.
    stragglers : int
        Different workers that may straggle in a window, lambda'.

    Raises
    ------
    TypeError, ValueError
        If an argument is not such an integer.
    """

    times: int
    window: int
    stragglers: int

    def admits(self, pattern: ArrayLike) -> bool:
        """Whether a pattern fits this model; as `Bursty.admits`."""
        runs = _runs(pattern, self.window)
        few = (runs.any(axis=1).sum(axis=1) <= self.stragglers).all()
        return bool(few and (runs.sum(axis=1) <= self.times).all())


# [age, part, worker]: whether the message came. The job that begins in a round has age 0.
State = Bools


class Tasks(NamedTuple):
    """The mini-tasks of all workers in a round, one in each slot.

    Attributes
    ----------
    age : (n, slots) int64 array
        Age of the job, in rounds since it began; -1 for a slot without a mini-task.
    part : (n, slots) int64 array
        Part of the job.
    """

    age: Ints
    part: Ints


class SequentialScheme:
    """A way to compute many gradients on the same workers, one begun in each round.

    Attributes
    ----------
    n : int
        Workers.
    k : int
        Partitions of a job, over all parts.
    parts : tuple of Code
        The code of each part of a job, for n workers that send one message each. Partitions are
        numbered part after part.
    delay : int
        T, the most rounds that a job takes beyond its first: a job that begins in round t is done
        when round t + T ends, or earlier.
    ages : tuple of int
        Ages of the jobs that a round works on, ascending, in rounds since they began.
    slots : int
        The most mini-tasks of a worker in a round.
    load : float
        Largest load of a worker in a round, in units of k / n partitions: an uncoded scheme has
        load 1. It is n times the paper's normalised load.
    model : Bursty, PerRound or None
        Patterns of stragglers for which no round waits; None if the scheme has no such model.
    """

    n: int
    k: int
    parts: tuple[Code, ...]
    delay: int
    ages: tuple[int, ...]
    slots: int
    model: Bursty | PerRound | None = None

    def _set_parts(self, parts: Sequence[Code], slots: int, ages: Sequence[int]) -> None:
        self.parts, self.slots, self.ages = tuple(parts), slots, tuple(ages)
        self.delay = self.ages[-1]
        self.k = sum(code.k for code in parts)
        self._first = np.cumsum([0, *(code.k for code in parts)]).tolist()
        # Load of each part and worker, in units of k / n partitions.
        self.loads = np.array([code.scheme.loads for code in parts]) * (self.n / self.k)

    @property
    def load(self) -> float:
        """Largest load of a worker in a round; an uncoded scheme has load 1."""
        return float(self.slots * self.loads.max())

    def partitions(self, part: int) -> range:
        """Return the partitions of a part; TypeError or ValueError if there is no such part."""
        part = check_index("part", part, len(self.parts))
        return range(self._first[part], self._first[part + 1])

    def schedule(self) -> Schedule:
        """Begin a run."""
        return Schedule(self)

    # hooks of a scheme

    @classmethod
    def choices(cls, n: int, delay: int) -> Iterator[dict[str, Any]]:
        """Yield the arguments, other than n, that `compare` tries if they are not given.

        A job may take `delay` rounds beyond its first; the caller drops slower schemes. Default: a
        single choice without arguments.
        """
        yield {}

    def tasks(self, state: State, live: Sequence[int], silent: Ints) -> Tasks:
        """Return the mini-tasks of a round.

        Parameters
        ----------
        state : (delay + 1, parts, n) bool array
            For each age of a job, the messages that came in earlier rounds.
        live : sequence of int
            Ages of the jobs that are not done, including the one that begins (0).
        silent : (n,) int64 array
            For each worker, the rounds with tasks since its last answer.
        """
        raise NotImplementedError

    def tolerable(self, state: State, live: Sequence[int]) -> bool:
        """Whether a round may end, because all jobs can still be done in time.

        `state` and `live` are as in `tasks`, including the messages of this round.
        """
        raise NotImplementedError

    def excused(self, tasks: Tasks, straggled: Bools) -> bool:
        """Whether a round's stragglers do not count in the model's later windows.

        They are the workers that had mini-tasks and did not answer. Default: they count.
        """
        return False

    def lacks(self, part: int, came: Bools) -> int:
        """Return the least number of further messages that a part needs."""
        return self.parts[part].scheme.rule.missing(np.flatnonzero(came))


class Schedule:
    """One run of a scheme: its rounds, one after another, and their jobs.

    Parameters
    ----------
    scheme : SequentialScheme

    Raises
    ------
    TypeError
        If `scheme` is not a scheme.

    Attributes
    ----------
    scheme : SequentialScheme
    round : int
        Number of rounds that have ended. A job is numbered by the round in which it begins.

    Examples
    --------
    >>> from fastgc.sequential import MSGC
    >>> schedule = MSGC(4, burst=1, window=2, stragglers=1).schedule()
    >>> _, _ = schedule.begin(), schedule.end([0, 1, 2])  # worker 3 straggles
    >>> tasks = schedule.begin()
    >>> tasks.part[:, 1]  # of job 0: worker 3 makes up for its part 0
    array([1, 1, 1, 0])
    >>> schedule.end([0, 1, 2, 3])
    [0]
    """

    def __init__(self, scheme: SequentialScheme) -> None:
        check_scheme(scheme)
        self.scheme = scheme
        self.round = 0
        ages, parts = scheme.delay + 1, len(scheme.parts)
        self._state = np.zeros((ages, parts, scheme.n), dtype=bool)
        self._known = np.zeros((ages, parts), dtype=bool)  # parts found decodable
        self._live: list[int] = []
        self._silent = np.zeros(scheme.n, dtype=np.int64)
        self._tasks: Tasks | None = None
        # Index of each task's message in the flattened state; -1 for a slot without a task.
        self._places = np.empty((scheme.n, scheme.slots), dtype=np.int64)

    @property
    def jobs(self) -> list[int]:
        """Jobs that have begun and are not done."""
        return [self.round - age for age in self._live]

    @property
    def idle(self) -> bool:
        """Whether all jobs are done."""
        return not self._live

    def begin(self, job: bool = True) -> Tasks:
        """Begin a round, and if `job` a job with it; return the round's mini-tasks.

        RuntimeError if the previous round has not ended.
        """
        if self._tasks is not None:
            raise RuntimeError(f"round {self.round} has begun: end it before the next one")
        if job:
            self._live = [0, *self._live]
        tasks = self._tasks = self.scheme.tasks(self._state, self._live, self._silent)
        _, parts, n = self._state.shape
        place = (tasks.age * parts + tasks.part) * n + np.arange(n)[:, np.newaxis]
        self._places = np.where(tasks.age >= 0, place, -1)
        return tasks

    def enough(self, came: ArrayLike) -> bool:
        """Whether the round may end with these answers, because all jobs can be done in time.

        Parameters and errors are as in `end`.
        """
        return self.scheme.tolerable(self._after(came), self._live)

    def end(self, came: ArrayLike) -> list[int]:
        """End the round, in which the workers `came` have answered.

        Parameters
        ----------
        came : (n,) array of bool, or workers

        Returns
        -------
        list of int
            The jobs that this round completes, oldest first.

        Raises
        ------
        RuntimeError, TypeError, ValueError
            If no round has begun, `came` does not name workers, or these are too few for all jobs
            to be done in time.
        """
        scheme, state = self.scheme, self._after(came)
        if not scheme.tolerable(state, self._live):
            raise ValueError(
                f"round {self.round} cannot end yet: if no further workers answer, one of the jobs "
                f"{self.jobs} cannot be done in time"
            )
        done = []
        for age in self._live:
            for part in np.flatnonzero(~self._known[age]).tolist():
                if scheme.lacks(part, state[age, part]):
                    break
                self._known[age, part] = True
            else:
                done.append(age)
        assert self._tasks is not None
        asked = self._tasks.age.max(axis=1) >= 0
        self._silent[asked] += 1
        self._silent[check_workers("came", came, scheme.n)] = 0
        finished = [self.round - age for age in reversed(done)]
        self._live = [age + 1 for age in self._live if age not in done]
        self._state[1:], self._state[0] = state[:-1], False
        self._known[1:], self._known[0] = self._known[:-1].copy(), False
        self._tasks = None
        self.round += 1
        return finished

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to continue: arrays, and lists of numbers.

        RuntimeError if a round has begun and not ended.
        """
        if self._tasks is not None:
            raise RuntimeError(f"round {self.round} has begun: end it before it is kept")
        return {
            "round": self.round,
            "live": list(self._live),
            "came": self._state.copy(),
            "silent": self._silent.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue a run of the same scheme that gave this `state`.

        TypeError or ValueError if `state` does not fit; nothing has changed in that case.
        """
        own = self.state()
        for name, mine in own.items():
            given = state.get(name)
            if isinstance(mine, np.ndarray):
                if not isinstance(given, np.ndarray) or given.dtype != mine.dtype:
                    raise TypeError(f"{name} of the state must be an array of {mine.dtype}")
                if given.shape != mine.shape:
                    raise ValueError(
                        f"{name} of the state must have shape {mine.shape}, not {given.shape}"
                    )
        number = at_least("round of the state", state.get("round"), 0)
        live = [at_least("an age in live of the state", age, 1) for age in state.get("live", ())]
        if live != sorted(set(live)) or not all(
            age <= min(self.scheme.delay, number) for age in live
        ):
            raise ValueError(f"live of the state must be ages of jobs, ascending, not {live}")
        self.round, self._live = number, live
        self._state = state["came"].copy()
        self._known[:] = False  # `end` tests all parts again
        self._silent = state["silent"].copy()

    def _after(self, came: ArrayLike) -> State:
        """Return the state after messages from the workers `came`."""
        if self._tasks is None:
            raise RuntimeError("no round has begun")
        n = self.scheme.n
        workers = check_workers("came", came, n)
        if ((workers < 0) | (workers >= n)).any():
            raise ValueError(f"came must be workers from 0 to {n - 1}, not {workers.tolist()}")
        state = self._state.copy()
        sent = self._places[workers]
        state.reshape(-1)[sent[sent >= 0]] = True
        return state


def check_scheme(scheme: object) -> None:
    """Raise TypeError unless `scheme` is a sequential scheme."""
    if not isinstance(scheme, SequentialScheme):
        raise TypeError(f"scheme must be one of fastgc.sequential, not {scheme!r}")


def check_part(code: Code, n: int, stragglers: int) -> Code:
    """Return `code`; raise TypeError or ValueError unless a part of a job may have it."""
    if not isinstance(code, Code):
        raise TypeError(f"code must make a code of fastgc, not {code!r}")
    if code.n != n or code.scheme.messages.count != n:
        raise ValueError(
            f"code must be of {n} workers that send one message each, not {code!r}, of "
            f"{code.n} workers and {code.scheme.messages.count} messages"
        )
    if code.scheme.codes_data or (code.scheme.is_complex and not code.scheme.packed):
        raise ValueError(
            f"{code!r} does not go into a job: its messages are no combinations of real "
            "gradients, or are expanded to complex numbers"
        )
    if code.scheme.known_stragglers() < stragglers:
        raise ValueError(
            f"code must tolerate {stragglers} stragglers, but {code!r} tolerates {code.stragglers}"
        )
    return code


class Independent(SequentialScheme):
    """A gradient code, round by round: a job is done in the round in which it begins.

    Parameters
    ----------
    code : Code
        `fastgc.Uncoded`, or any code whose workers send one message.

    Raises
    ------
    TypeError, ValueError
        If `code` is not such a code.

    Examples
    --------
    >>> import fastgc
    >>> Independent(fastgc.FractionalRepetition(6, stragglers=2)).load
    3.0
    """

    def __init__(self, code: Code) -> None:
        if not isinstance(code, Code):
            raise TypeError(f"code must be a code of fastgc, not {code!r}")
        self.n = code.n
        self._set_parts([check_part(code, code.n, 0)], slots=1, ages=[0])
        self.model = None if code.stragglers is None else PerRound(code.stragglers)

    def __repr__(self) -> str:
        return f"Independent({self.parts[0]!r})"

    def tasks(self, state: State, live: Sequence[int], silent: Ints) -> Tasks:  # noqa: D102
        age = np.full((self.n, 1), 0 if live else -1)
        return Tasks(age, np.zeros((self.n, 1), dtype=np.int64))

    def tolerable(self, state: State, live: Sequence[int]) -> bool:  # noqa: D102
        return not live or not self.lacks(0, state[0, 0])
