"""Rounds of workers that share processors, event by event."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import check_real, check_reals
from ..codes import Code
from .rounds import Conditions, OneByOne, Seen
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

    def pass_time(self, seconds: float) -> None:
        if self.jobs:
            self.given += seconds * self._rate


class SharedProcessors(OneByOne):
    """Rounds of a code whose workers share processors.

    A worker sleeps while it is late, and then computes message after message. One that finishes
    leaves its share to the others. What a late worker of an earlier round still computes takes its
    share as well, unless workers are interrupted.
    """

    def __init__(
        self, code: Code, processors: ArrayLike, watch: Callable[[Seen], None] | None = None
    ) -> None:
        super().__init__(code, watch)
        self._tally = code.rule.tally()
        self._machine, self._power = check_processors(code.n, processors)
        first = code.first_messages
        self._first = [int(at) for at in first]
        shares = code.message_shares
        self._ends = [shares[lo:hi].tolist() for lo, hi in pairwise(self._first)]
        self._loads = code.loads
        # of the message that each worker is at from an earlier round: to sleep, and to compute
        self._sleep, self._left = [0.0] * code.n, [0.0] * code.n

    def _one(
        self, delay: Array, working: Array, late: Array, how: Conditions
    ) -> tuple[Seen, int, int]:
        """A round; `late` is not used."""
        wait, work = delay.tolist(), working.tolist()
        n = self._code.n
        machines = [_Machine(self._power) for _ in range(max(self._machine.tolist()) + 1)]
        of = [machines[at] for at in self._machine.tolist()]
        asleep: list[tuple[float, int]] = []
        at = [-1] * n  # the message that a worker is at; -1: that of an earlier round
        now, heard = 0.0, 0
        order, moments = list[int](), list[float]()  # of messages heard: numbers, and when
        through, ready, end = 0.0, math.inf, math.inf
        counted: NDArray[np.int64] | None = None
        self._tally.reset()

        def compute(worker: int) -> None:
            """Begin the message that it is at."""
            ends, index = self._ends[worker], at[worker]
            if index < 0:
                of[worker].add(worker, self._left[worker])
            elif index < len(ends):
                begun = ends[index - 1] if index else 0.0
                of[worker].add(worker, work[worker] * (ends[index] - begun))

        def turn_to_round(worker: int) -> None:
            at[worker] = 0
            heappush(asleep, (now + wait[worker], worker))

        for worker in range(n):
            if self._sleep[worker] > 0 or self._left[worker] > 0:
                heappush(asleep, (self._sleep[worker], worker))
            else:
                turn_to_round(worker)
        while True:
            steps = [machine.next() for machine in machines]
            step = min(steps)
            wakes = asleep[0][0] if asleep else math.inf
            following = min(now + step, wakes)
            if counted is None and following > ready:
                counted = self._computed(at, of, work, ready - now)
                if how.interrupted:
                    break
                end = through + how.overhead
            if following > end or following == math.inf:
                break
            sleeping = wakes <= now + step
            for machine in machines:
                machine.pass_time(following - now)
            now = following
            if sleeping:
                compute(heappop(asleep)[1])
                continue
            machine = machines[steps.index(step)]
            machine.given = max(machine.given, machine.jobs[0][0])  # whatever rounding left of it
            worker = heappop(machine.jobs)[1]
            if at[worker] < 0:
                turn_to_round(worker)
                continue
            number = self._first[worker] + at[worker]
            at[worker] += 1
            if now <= ready:
                heard += 1
                order.append(number)
                moments.append(now)
                through = max(through, now) + how.receive
                if ready == math.inf and self._suffices(order):
                    ready = now
            compute(worker)
        received = np.array(order, dtype=np.int64)
        decoded: NDArray[np.int64] | None = received
        if counted is None:  # they never suffice
            counted, through, decoded = self._computed(at, of, work, 0.0), math.inf, None
        if not how.interrupted:
            self._keep(asleep, machines, at, work, end, end - now)
        senders = {int(self._code.sender(number)[0]) for number in order}
        times = link_times(np.array(moments), how.receive)
        return Seen(through, decoded, received, times), len(senders), int(counted.sum())

    def _suffices(self, order: list[int]) -> bool:
        enough = self._tally.add(order[-1])
        if not enough or len(order) == self._code.message_count:
            return bool(enough)
        return not self._code.awaits_more(np.array(order))

    def _computed(
        self, at: list[int], of: list[_Machine], work: list[float], later: float
    ) -> NDArray[np.int64]:
        """Partial gradients that each worker has computed so many seconds later."""
        part = np.zeros(len(at))
        for worker, index in enumerate(at):
            part[worker] = self._ends[worker][index - 1] if index > 0 else 0.0
        for machine in set(of):
            gained = later * machine._rate if machine.jobs else 0.0
            for until, worker in machine.jobs:
                index = at[worker]
                if index >= 0 and work[worker] > 0:
                    left = until - machine.given - gained
                    part[worker] = self._ends[worker][index] - left / work[worker]
        done: NDArray[np.int64] = np.floor(self._loads * part + 1e-9).astype(np.int64)
        return done

    def _keep(
        self,
        asleep: list[tuple[float, int]],
        machines: list[_Machine],
        at: list[int],
        work: list[float],
        end: float,
        later: float,
    ) -> None:
        """What workers are at when the next round begins, so many seconds after the last event."""
        self._sleep, self._left, before = [0.0] * len(at), [0.0] * len(at), self._left
        if end == math.inf:
            return
        for until, worker in asleep:
            if at[worker] < 0:
                self._left[worker] = before[worker]
            elif self._ends[worker]:
                self._left[worker] = work[worker] * self._ends[worker][0]
            self._sleep[worker] = until - end
        for machine in machines:
            machine.pass_time(later)
            for ends_at, worker in machine.jobs:
                self._left[worker] = max(ends_at - machine.given, 0.0)
