"""Sequential schemes, their runs, and the simplest scheme: every job in its own round.

A job is a gradient, for instance of one of several models trained in turn. A new job begins in each
round, and must be done within a fixed number of rounds. So a worker that straggles in one round can
do its part of the job in a later one. A scheme cuts the partitions of a job into parts, each with a
code. In each round it says which parts of which jobs a worker computes; these are the worker's
mini-tasks. A worker's message for a part is that of the part's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Bools, Ints, check_index, check_workers
from ..codes import Code
from ..coding.code import check_code

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
    """

    n: int
    k: int
    parts: tuple[Code, ...]
    delay: int
    ages: tuple[int, ...]
    slots: int

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

    def lacks(self, part: int, came: Bools) -> int:
        """Return the least number of further messages that a part needs."""
        return self.parts[part].scheme.counting_rule.missing(came.nonzero()[0])


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
        self._asked = np.zeros_like(self._state)  # messages of this round's mini-tasks
        self._enough = b""  # the last state of this round that was found tolerable

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
        worker, slot = (tasks.age >= 0).nonzero()
        self._asked[:] = False
        self._asked[tasks.age[worker, slot], tasks.part[worker, slot], worker] = True
        self._enough = b""
        return tasks

    def enough(self, came: ArrayLike) -> bool:
        """Whether the round may end with these answers, because all jobs can be done in time.

        Parameters and errors are as in `end`.
        """
        return self._tolerable(self._after(self._answered(came)))

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
        scheme, answered = self.scheme, self._answered(came)
        state = self._after(answered)
        if not self._tolerable(state):
            raise ValueError(
                f"round {self.round} cannot end yet: if no further workers answer, one of the jobs "
                f"{self.jobs} cannot be done in time"
            )
        done = []
        for age in self._live:
            for part in (~self._known[age]).nonzero()[0].tolist():
                if scheme.lacks(part, state[age, part]):
                    break
                self._known[age, part] = True
            else:
                done.append(age)
        self._silent += self._asked.any(axis=(0, 1))
        self._silent[answered] = 0
        finished = [self.round - age for age in reversed(done)]
        self._live = [age + 1 for age in self._live if age not in done]
        self._state[1:], self._state[0] = state[:-1], False
        self._known[1:], self._known[0] = self._known[:-1].copy(), False
        self._tasks = None
        self.round += 1
        return finished

    def _answered(self, came: ArrayLike) -> Bools:
        """Return for each worker whether it is one of `came`."""
        if self._tasks is None:
            raise RuntimeError("no round has begun")
        n = self.scheme.n
        if type(came) is np.ndarray and came.dtype == np.bool_ and came.shape == (n,):
            return came
        workers = check_workers("came", came, n)
        if ((workers < 0) | (workers >= n)).any():
            raise ValueError(f"came must be workers from 0 to {n - 1}, not {workers.tolist()}")
        answered = np.zeros(n, dtype=bool)
        answered[workers] = True
        return answered

    def _after(self, answered: Bools) -> State:
        """Return the state after messages from the workers that answered."""
        state: State = self._state | self._asked & answered
        return state

    def _tolerable(self, state: State) -> bool:
        """Whether the round may end in this state; the last such state is known without a look."""
        told = state.tobytes()
        if told != self._enough and self.scheme.tolerable(state, self._live):
            self._enough = told
        return told == self._enough


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
    if code.scheme.data.coded or (code.scheme.is_complex and not code.scheme.packed):
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
        check_code(code)
        self.n = code.n
        self._set_parts([check_part(code, code.n, 0)], slots=1, ages=[0])

    def __repr__(self) -> str:
        return f"Independent({self.parts[0]!r})"

    def tasks(self, state: State, live: Sequence[int], silent: Ints) -> Tasks:  # noqa: D102
        age = np.full((self.n, 1), 0 if live else -1)
        return Tasks(age, np.zeros((self.n, 1), dtype=np.int64))

    def tolerable(self, state: State, live: Sequence[int]) -> bool:  # noqa: D102
        return not live or not self.lacks(0, state[0, 0])
