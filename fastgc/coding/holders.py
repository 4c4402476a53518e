"""Who else holds the partitions of a worker's message, and computes it if that worker fails."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Protocol

from .._base.arrays import Ints, check_index


class Loads(Protocol):
    """A `Scheme`, as far as `Holders` know it."""

    n: int

    @property
    def load(self) -> int: ...
    @property
    def loads(self) -> Ints: ...


class Holders:
    """Every worker holds what it computes, and nothing else.

    A scheme whose workers hold partitions of others has a subclass as its `Scheme.holders`. A
    worker that holds partitions of others sends one message.

    Attributes
    ----------
    stand_ins : int
        The smallest number of other workers that hold the partitions of a message. If its worker
        fails, engines that can ask workers ask these others (`fastgc.codes.ReactiveRound`).
    deadline : float or "auto"
        When the others are asked, if `stand_ins` is not 0: as in `fastgc.Reactive`.
    """

    stand_ins: int = 0
    deadline: float | Literal["auto"] = "auto"

    def __init__(self, scheme: Loads) -> None:
        self.scheme = scheme

    def of(self, worker: int) -> list[int]:
        """Workers that hold the partitions of a worker's message: itself, and `stand_ins` others.

        Default: itself.
        """
        return [check_index("worker", worker, self.scheme.n)]

    @cached_property
    def held_for(self) -> list[list[int]]:
        """For each worker, the others whose messages it can compute, as `of` implies."""
        n = self.scheme.n
        found: list[list[int]] = [[] for _ in range(n)]
        if self.stand_ins:
            for worker in range(n):
                for holder in self.of(worker):
                    if holder != worker:
                        found[holder].append(worker)
        return found

    @cached_property
    def stored(self) -> int:
        """Largest number of partitions that a worker holds, including those of others."""
        if not self.stand_ins:
            return self.scheme.load
        loads = self.scheme.loads
        held = (loads[i] + loads[mine].sum() for i, mine in enumerate(self.held_for))
        return int(max(held))
