"""Messages of a round as they come: where they lie, their norms, and whether they suffice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from . import numpy as plain
from .cyclic import Status
from .dispatch import kernel
from .numpy.bound import ArrivalArrays
from .rows import Rows

__all__ = ["Arrivals", "Enough"]

_bind = kernel(plain.bind_arrivals)


class Enough(NamedTuple):
    """When messages suffice: once the blocks that have as many as they need weigh so much.

    Attributes
    ----------
    block : (N,) int64 array
        Of each message.
    need, weight : (blocks,) int64 arrays
        How many messages each block needs, and what it then weighs. One that needs none weighs
        nothing.
    total : int
    """

    block: NDArray[np.int64]
    need: NDArray[np.int64]
    weight: NDArray[np.int64]
    total: int

    @classmethod
    def of_blocks(cls, block: NDArray[np.int64], need: NDArray[np.int64]) -> Enough:
        """In every block, as many messages as it needs."""
        weight = (need > 0).astype(np.int64)
        return cls(block, need, weight, int(weight.sum()))


class Arrivals:
    """Takes messages one by one, in half a microsecond by the C backend.

    Attributes
    ----------
    rows : Rows
        The messages taken, in order of arrival. `arrive` writes down where one lies; that it is
        kept is for the caller: ``rows.arrays.append``.
    numbers : (N,) int64 array
        Their numbers, a buffer.
    squares : (N,) float64 array
        Their squared norms; NaN without `check`.
    energies : (N,) float64 array
        Their energies (`fastgc.coding.plan.Encoder.energy`); NaN where it is not known.
    heard : (N,) uint8 array
        Which messages were taken, by number.
    arrive : callable
        ``arrive(number, row, energy)`` takes a message, whose row is contiguous, of the rows' dtype
        and length, and stays where it is. ``Status.OK``: those that came suffice; ``TOO_FEW``: more
        are needed, as far as `blocks` say; else it was not taken: ``OUT_OF_RANGE``, ``DUPLICATE``
        or ``NOT_FINITE``.
    c : Any
        What the C backend knows all this by: a local cluster has it take messages where they lie,
        of workers that send one each. None of rows that it does not take. It goes by what follows.
    least : int
        How many messages suffice at least.
    once : bool
        Whether messages are to be looked at before there are enough.
    start : float
        When the round began, by ``time.perf_counter()``.
    when : (N,) float64 array
        Where it is written how many seconds after that each message came.
    pending : bool
        Whether messages were taken that `follow` did not list yet.
    slots : sequence of arrays
        Where these lie, by number.

    Parameters
    ----------
    rows : Rows
        None is listed yet.
    numbers : (N,) int64 array
    enough : Enough, optional
        Without it, `arrive` never says that messages suffice.
    check : bool
        Read messages, for their norms and to find what is not finite.
    """

    __slots__ = (
        "_counts",
        "_enough",
        "_first",
        "_lacking",
        "_state",
        "arrive",
        "c",
        "energies",
        "heard",
        "least",
        "numbers",
        "once",
        "pending",
        "rows",
        "slots",
        "squares",
        "start",
        "when",
    )

    def __init__(
        self,
        rows: Rows,
        numbers: NDArray[np.int64],
        enough: Enough | None,
        check: bool,
    ) -> None:
        self.rows, self.numbers = rows, numbers
        self.squares, self.energies = np.empty(numbers.size), np.empty(numbers.size)
        self.heard = np.zeros(numbers.size, dtype=np.uint8)
        if enough is None:
            none = np.zeros(1, dtype=np.int64)
            enough = Enough(np.zeros(numbers.size, dtype=np.int64), none, none, 1)
        block, need, weight = (np.ascontiguousarray(each, dtype=np.int64) for each in enough[:3])
        self._enough = enough = Enough(block, need, weight, enough.total)
        self._lacking = need.copy()
        self._state = np.array([0, enough.total])  # messages taken, and the weight they lack
        self._first = self._state.copy()
        arrays = ArrivalArrays(
            block,
            weight,
            self._lacking,
            self._state,
            self.heard,
            numbers,
            self.squares,
            self.energies,
        )
        self.arrive, self.c = _bind(rows, arrays, check)
        self.least, self.once, self.start, self.pending = 1, False, 0.0, False
        self.when, self.slots = np.empty(0), cast("Sequence[NDArray[Any]]", ())
        self._counts = self._state.data  # a memoryview: read in half the time

    @property
    def count(self) -> int:
        """Messages taken, of which `rows` may not list the last."""
        return self._counts[0]

    @property
    def enough(self) -> bool:
        """Whether those that came suffice, as far as is known here."""
        return self._counts[1] <= 0

    def follow(self) -> list[int]:
        """List the rows that were taken where they lie; their numbers."""
        slots, rows = self.slots, self.rows.arrays
        numbers: list[int] = self.numbers[len(rows) : self.count].tolist()
        rows += [slots[number] for number in numbers]
        self.pending, self.slots = False, ()  # which are the transport's
        return numbers

    def reset(self) -> None:
        """Forget all messages."""
        self.rows.clear()
        self.heard.fill(0)
        self._lacking[:] = self._enough.need
        self._state[:] = self._first
        self.pending, self.slots = False, ()

    def keep(self, positions: list[int]) -> int:
        """Forget all messages but these; the `Status` that the last of them has."""
        arrays = [self.rows.arrays[at] for at in positions]
        buffers = self.numbers, self.squares, self.energies
        kept = [buffer[positions] for buffer in buffers]
        self.reset()
        for array in arrays:
            self.rows.append(array)
        for buffer, values in zip(buffers, kept, strict=True):
            buffer[: len(positions)] = values
        self.heard[kept[0]] = 1
        block, need, weight, total = self._enough
        self._lacking -= np.bincount(block[kept[0]], minlength=need.size)
        there = int(weight[(need > 0) & (self._lacking <= 0)].sum())
        self._state[:] = len(positions), total - there
        return Status.OK if self.enough else Status.TOO_FEW
