"""Messages of a round as they come: where they lie, and whether they suffice."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base.arrays import Array, Ints
from . import unchecked
from ._cffi import lib
from .rounds import BLOCKS
from .rows import ArrivalArrays, Projecting, Rows


class Tally:
    """Follows the messages of a round until they suffice.

    Attributes
    ----------
    add : callable
        ``add(message)`` takes the number of a new message. Returns whether they suffice.
    reset : callable
        ``reset()`` forgets all messages.
    c : Any
        What C knows of them.

    Parameters
    ----------
    kind : int
        A rule of `fastgc.kernels.rounds`, but not ``SPAN``.
    group : (N,) int64 array
        As in `CompletionPlan`, as is `other`.
    total : int
    other : (N,) int64 array, optional
    weight, need : (groups,) int64 array, optional
        The weight of a block or cell once it has the messages that it needs. Default: 1 message.
        One that needs none weighs nothing.
    """

    def __init__(
        self,
        kind: int,
        group: Ints,
        total: int,
        other: Ints | None = None,
        weight: Ints | None = None,
        need: Ints | None = None,
    ) -> None:
        self.c, self.add, self.reset = unchecked.bind_tally(kind, group, total, other, weight, need)
        self.reset()

    @classmethod
    def of_blocks(cls, block: Ints, need: Ints) -> Tally:
        """Messages suffice once every block has as many as it needs."""
        weight = (need > 0).astype(np.int64)
        return cls(BLOCKS, block, int(weight.sum()), weight=weight, need=need)

    @property
    def lacking(self) -> int:
        """The weight, or the components, that still lack something."""
        return int(self.c.due)


# Messages have SIDE^2 projections. Rows of ROW elements share random numbers.
SIDE, ROW = lib.FGC_SIDE, lib.FGC_ROW

NEXT = -1 << 63  # the index of a worker's message after the last that came


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
    next : (n,) int64 array
        Of each worker, the index of the message after the last that came.
    values : (N, SIDE^2) float64 or complex128 array
        Their projections; complex if they are `paired`. Empty if there are none.
    norms : (N,) float64 array
        Their norms, times the projections' `unit`, however large or small. Empty as `values`.
    c : Any
        All of that, as C knows it.
    arrive : callable
        ``arrive(worker, index, row, energy)`` takes a worker's message; ``NEXT`` is the `next`. Its
        row is contiguous, has the rows' dtype and length, and stays where it is. Returns
        ``Status.TOO_FEW`` if the messages taken do not suffice, and ``OK`` if they do or there is
        no `tally`. With ``OUT_OF_RANGE`` or ``DUPLICATE`` it is not taken, nor with ``NOT_FINITE``:
        it is to be read, and holds NaN or Inf, or its energy is negative.
    accept : callable
        ``accept(worker, index, id(message), energy)`` is `arrive` for any object. ``MISPLACED``,
        and it is not taken, unless it is a contiguous and aligned NumPy array as `sent` says.

    Parameters
    ----------
    rows : Rows
        Empty.
    numbers : (N,) int64 array
    first : (n + 1,) int64 array
        Worker i sends messages ``first[i] .. first[i+1] - 1``.
    tally : Tally, optional
        Counts the messages. Default: nobody does.
    project : Projecting, optional
        Read each message, for its norm and these projections, and to find NaN and Inf. The numbers
        may change between rounds. Default: messages are not read.
    sent : (dtype, int), optional
        The dtype of messages that `accept` takes, and their length. Default: those of the rows.
    """

    def __init__(
        self,
        rows: Rows,
        numbers: Ints,
        first: Ints,
        tally: Tally | None = None,
        project: Projecting | None = None,
        sent: tuple[np.dtype[Any], int] | None = None,
    ) -> None:
        self.rows, self.numbers = rows, numbers
        self.squares, self.energies = np.empty(numbers.size), np.empty(numbers.size)
        self.heard = np.empty(numbers.size, dtype=np.uint8)
        self.next = np.empty(first.size - 1, dtype=np.int64)
        kind = np.complex128 if project and project.paired else np.float64
        read = numbers.size if project else 0
        self.values: Array = np.empty((read, SIDE**2), dtype=kind)
        self.norms = np.empty(read)
        arrays = ArrivalArrays(
            first,
            self.next,
            self.heard,
            numbers,
            self.squares,
            self.energies,
            *((self.values, self.norms) if project else (None, None)),
        )
        count = None if tally is None else tally.c
        bound = unchecked.bind_arrivals(rows, arrays, count, project, sent)
        self.c, self.arrive, self.accept, self._forget = bound
        self.reset()

    @property
    def count(self) -> int:
        """Number of messages taken."""
        return int(self.c.taken)

    def reset(self) -> None:
        """Forget all messages."""
        self.rows.arrays.clear()
        self._forget()
