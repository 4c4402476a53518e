"""Rounds of workers that share processors, event by event."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import check_real, check_reals
from ..codes import Code
from .rounds import Conditions, OneByOne, Outcome, Watch
from .rounds import through as link_times

__all__ = ["SharedProcessors", "check_processors", "crowding"]

Array = NDArray[np.float64]


def check_processors(n: int, processors: ArrayLike) -> tuple[NDArray[np.int64], float]:
    """Which machine each of n workers is on, and how many processors each machine has.

    Raises
    ------
    ValueError
        If it is neither a positive number nor as many labels as there are workers.
    TypeError
        If it is of a wrong type.
    """
    if np.ndim(processors) == 0:
        return np.zeros(n, dtype=np.int64), check_real("processors", processors, positive=True)
    labels = check_reals("processors", processors)
    if labels.shape != (n,):
        raise ValueError(
            f"processors must be how many all {n} workers share, or name the processor of each, "
            f"not an array of shape {labels.shape}"
        )
    machine = np.unique(labels, return_inverse=True)[1].reshape(n)
    return machine.astype(np.int64), 1.0


def crowding(n: int, processors: ArrayLike | None) -> NDArray[np.float64]:
    """How many workers there are to a processor, at least 1, where each of n workers is."""
    if processors is None:
        return np.ones(n)
    machine, power = check_processors(n, processors)
    crowd: NDArray[np.float64] = np.maximum(np.bincount(machine)[machine] / power, 1.0)
    return crowd


class _Machine:
    """Processors that share their time evenly among jobs, none of which uses more than one.

    What each job has got since the beginning is the same for all that are there, `given`: a job
    ends when that has grown by its work.
    """

    def __init__(self, power: float) -> None:
        self._power = power
        self.jobs: list[tuple[float, int]] = []  # by when they end, in terms of `given`
        self.given = 0.0

    @property
    def _rate(self) -> float:
        return min(1.0, self._power / len(self.jobs))

    def next(self) -> float:
        """Seconds until the first of the jobs ends."""
        if not self.jobs:
            return math.inf
        return max(self.jobs[0][0] - self.given, 0.0) / self._rate

    def add(self, worker: int, work: float) -> None:
        heappush(self.jobs, (self.given + work, worker))

    def gains(self, seconds: float) -> float:
        """What `given` grows by, if no job ends or begins."""
        return seconds * self._rate if self.jobs else 0.0


class _Crowd:
    """Workers on their machines, from one event of a round to the next.

    Attributes
    ----------
    at : list of int
        The message that each worker is at; -1: that of an earlier round.
    asleep : list of (float, int)
        When those who sleep wake up: a heap.
    """

    def __init__(
        self,
        machine_of: list[int],
        power: float,
        ends: list[list[float]],
        work: list[float],
        left: list[float],
    ) -> None:
        self.machines = [_Machine(power) for _ in range(max(machine_of) + 1)]
        self._of = [self.machines[at] for at in machine_of]
        self._ends, self.work, self._left = ends, work, left
        self.at = [-1] * len(work)
        self.asleep: list[tuple[float, int]] = []
        self.now = 0.0

    def turn_to_round(self, worker: int, delay: float) -> None:
        self.at[worker] = 0
        heappush(self.asleep, (self.now + delay, worker))

    def compute(self, worker: int) -> None:
        """Begin the message that it is at."""
        ends, index = self._ends[worker], self.at[worker]
        if index < 0:
            self._of[worker].add(worker, self._left[worker])
        elif index < len(ends):
            begun = ends[index - 1] if index else 0.0
            self._of[worker].add(worker, self.work[worker] * (ends[index] - begun))

    def next(self) -> float:
        """When the next event is: somebody wakes up, or has computed a message."""
        self._steps = [machine.next() for machine in self.machines]
        wakes = self.asleep[0][0] if self.asleep else math.inf
        self._wakes = wakes <= self.now + min(self._steps)
        return min(self.now + min(self._steps), wakes)

    def advance(self, following: float) -> int | None:
        """Let time pass until that event. Returns who has computed a message; None: one woke up."""
        for machine in self.machines:
            machine.given += machine.gains(following - self.now)
        self.now = following
        if self._wakes:
            self.compute(heappop(self.asleep)[1])
            return None
        machine = self.machines[self._steps.index(min(self._steps))]
        machine.given = max(machine.given, machine.jobs[0][0])  # whatever rounding left of it
        return heappop(machine.jobs)[1]


class SharedProcessors(OneByOne):
    """Rounds of a code whose workers share processors.

    A worker sleeps while it is late, and then computes message after message. One that finishes
    leaves its share to the others. What a late worker of an earlier round still computes takes its
    share as well, unless workers are interrupted.
    """

    def __init__(self, code: Code, processors: ArrayLike, watch: Watch | None = None) -> None:
        super().__init__(code, watch)
        self._tally = code.scheme.rule.tally()
        self._machine, self._power = check_processors(code.n, processors)
        first = code.scheme.first_messages
        self._first = [int(at) for at in first]
        shares = code.scheme.message_shares
        self._ends = [shares[lo:hi].tolist() for lo, hi in pairwise(self._first)]
        self._loads = code.scheme.loads
        # of the message that each worker is at from an earlier round: to sleep, and to compute
        self._sleep, self._left = [0.0] * code.n, [0.0] * code.n

    def _one(self, wait: Array, work: Array, late: Array, how: Conditions) -> Outcome:
        """A round; `late` is not used."""
        it = _Crowd(self._machine.tolist(), self._power, self._ends, work.tolist(), self._left)
        ready, through, end = math.inf, 0.0, math.inf
        order, moments = list[int](), list[float]()  # of messages heard: numbers, and when
        counted: NDArray[np.int64] | None = None
        self._tally.reset()
        for worker, delay in enumerate(wait.tolist()):
            if self._sleep[worker] > 0 or self._left[worker] > 0:
                heappush(it.asleep, (self._sleep[worker], worker))
            else:
                it.turn_to_round(worker, delay)
        while True:
            following = it.next()
            if counted is None and following > ready:
                counted = self._computed(it, ready - it.now)
                if how.interrupted:
                    break
                end = through + how.overhead
            if following > end or following == math.inf:
                break
            computed = it.advance(following)
            if computed is None:  # one woke up
                continue
            worker = computed
            if it.at[worker] < 0:
                it.turn_to_round(worker, float(wait[worker]))
                continue
            if it.now <= ready:
                order.append(self._first[worker] + it.at[worker])
                moments.append(it.now)
                through = max(through, it.now) + how.receive
                if ready == math.inf and self._suffices(order):
                    ready = it.now
            it.at[worker] += 1
            it.compute(worker)
        received = np.array(order, dtype=np.int64)
        decoded: NDArray[np.int64] | None = received
        if counted is None:  # they never suffice
            counted, through, decoded = self._computed(it, 0.0), math.inf, None
        if not how.interrupted:
            self._keep(it, end)
        senders = {int(self._code.scheme.sender(number)[0]) for number in order}
        times = link_times(np.array(moments), how.receive)
        return through, received, times, decoded, len(senders), int(counted.sum())

    def _suffices(self, order: list[int]) -> bool:
        enough = self._tally.add(order[-1])
        if not enough or len(order) == self._code.scheme.message_count:
            return bool(enough)
        return not self._code.scheme.awaits_more(np.array(order))

    def _computed(self, it: _Crowd, later: float) -> NDArray[np.int64]:
        """Partial gradients that each worker has computed so many seconds later."""
        part = np.zeros(len(it.at))
        for worker, index in enumerate(it.at):
            part[worker] = self._ends[worker][index - 1] if index > 0 else 0.0
        for machine in it.machines:
            gained = machine.gains(later)
            for until, worker in machine.jobs:
                index = it.at[worker]
                if index >= 0 and it.work[worker] > 0:
                    left = until - machine.given - gained
                    part[worker] = self._ends[worker][index] - left / it.work[worker]
        done: NDArray[np.int64] = np.floor(self._loads * part + 1e-9).astype(np.int64)
        return done

    def _keep(self, it: _Crowd, end: float) -> None:
        """What workers are at when the next round begins."""
        before, n = self._left, self._code.n
        self._sleep, self._left = [0.0] * n, [0.0] * n
        if end == math.inf:
            return
        for until, worker in it.asleep:
            if it.at[worker] < 0:
                self._left[worker] = before[worker]
            elif self._ends[worker]:
                self._left[worker] = it.work[worker] * self._ends[worker][0]
            self._sleep[worker] = until - end
        for machine in it.machines:
            machine.given += machine.gains(end - it.now)
            for ends_at, worker in machine.jobs:
                self._left[worker] = max(ends_at - machine.given, 0.0)
