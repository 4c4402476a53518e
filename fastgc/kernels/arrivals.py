"""Messages of a round as they come: where they lie, and whether they suffice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._base.arrays import Array, Ints
from . import unchecked
from ._cffi import lib
from .rows import ArrivalArrays, Projecting, Rows


class Enough(NamedTuple):
    """Messages suffice once the blocks that have as many as they need weigh `total` together.

    Attributes
    ----------
    block : (N,) int64 array
        The block of each message.
    need, weight : (blocks,) int64 arrays
        The messages that each block needs, and its weight once it has them. A block that needs none
        weighs nothing.
    total : int
    """

    block: Ints
    need: Ints
    weight: Ints
    total: int

    @classmethod
    def of_blocks(cls, block: Ints, need: Ints) -> Enough:
        """Messages suffice once every block has as many as it needs."""
        weight = (need > 0).astype(np.int64)
        return cls(block, need, weight, int(weight.sum()))


# Messages have SIDE^2 projections. Rows of ROW elements share random numbers.
SIDE, ROW = lib.FGC_SIDE, lib.FGC_ROW


class Arrivals:
    """Takes messages one by one.

    Attributes
    ----------
    rows : Rows
        The messages taken, in order of arrival. `arrive` records the address of one; the caller
        keeps it alive: ``rows.arrays.append``.
    numbers : (N,) int64 array
        Their numbers, a buffer.
    squares : (N,) float64 array
        Their squared norms; NaN without `project`.
    energies : (N,) float64 array
        Their energies (`fastgc.coding.plan.Encoder.energy`); NaN if not known.
    heard : (N,) uint8 array
        Whether each message was taken, by number.
    values : (N, SIDE^2) float64 or complex128 array
        Their projections; complex if they are `paired`. Empty if there are none.
    norms : (N,) float64 array
        Their norms, times the projections' `unit`, however large or small. Empty as `values`.
    c : Any
        All of that, as C knows it.
    arrive : callable
        ``arrive(number, row, energy)`` takes a message. Its row is contiguous, has the rows' dtype
        and length, and stays where it is. Returns ``Status.OK`` if the messages taken suffice, as
        far as `enough` says, else ``TOO_FEW``. With ``OUT_OF_RANGE`` or ``DUPLICATE`` it is not
        taken, nor with ``NOT_FINITE``: it was read, and holds NaN or Inf.
    accept : callable
        ``accept(number, id(message), energy)`` is `arrive` for any object. ``MISPLACED``, and it is
        not taken, unless it is a NumPy array that `arrive` may be given.

    Parameters
    ----------
    rows : Rows
        Empty.
    numbers : (N,) int64 array
    enough : Enough, optional
        Without it, `arrive` never says that messages suffice.
    project : Projecting, optional
        Read each message, for its norm and these projections, and to find NaN and Inf. The numbers
        may change between rounds. Default: messages are not read.
    """

    def __init__(
        self,
        rows: Rows,
        numbers: Ints,
        enough: Enough | None,
        project: Projecting | None = None,
    ) -> None:
        self.rows, self.numbers = rows, numbers
        self.squares, self.energies = np.empty(numbers.size), np.empty(numbers.size)
        self.heard = np.zeros(numbers.size, dtype=np.uint8)
        kind = np.complex128 if project and project.paired else np.float64
        read = numbers.size if project else 0
        self.values: Array = np.empty((read, SIDE**2), dtype=kind)
        self.norms = np.empty(read)
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
            *((self.values, self.norms) if project else (None, None)),
        )
        self.c, self.arrive, self.accept = unchecked.bind_arrivals(rows, arrays, project)
        self._counts = self._state.data  # a memoryview: read in half the time

    @property
    def count(self) -> int:
        """Number of messages taken."""
        return self._counts[0]

    @property
    def enough(self) -> bool:
        """Whether the messages taken suffice, by `Enough`."""
        return self._counts[1] <= 0

    def reset(self) -> None:
        """Forget all messages."""
        self.rows.clear()
        self.heard.fill(0)
        self._lacking[:] = self._enough.need
        self._state[:] = self._first
