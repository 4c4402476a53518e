"""Schemes whose messages are sums over one cell of partitions each, or over several."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .. import kernels
from .._base.arrays import Array, Floats, Ints, check_index
from ..kernels.rows import DOUBLE
from ..numerics.parity import CHECKS, Parity
from .messages import Messages
from .precision import Precision
from .rules import Cells, Rule
from .scheme import Scheme, VectorFunction, frozen, vector_function


def even_cuts(k: int, cells: int) -> Ints:
    """Return where each of the cells begins, and the end. Cells are even, larger ones first."""
    sizes = k // cells + (np.arange(cells) < k % cells)
    return np.concatenate([[0], np.cumsum(sizes)])


def entries_of(cuts: Ints, first: Ints, cells: Ints, values: Array) -> tuple[Ints, Ints, Array]:
    """Return `Scheme.entries` of messages that are given by cells, cut as in `CellScheme`.

    `first`, (messages + 1,), is where each message begins in `cells`, and the end. `values`, (m,),
    are the coefficients of all partitions of each of the m cells listed.
    """
    sizes = cuts[cells + 1] - cuts[cells]
    ends = np.append(0, np.cumsum(sizes))
    held = np.arange(ends[-1]) + np.repeat(cuts[cells] - ends[:-1], sizes)
    return ends[first], held, np.repeat(values, sizes)


class SumPrecision(Precision):
    """Every coefficient is 1."""

    scheme: SumScheme

    @cached_property
    def row_sums(self) -> Floats:
        return np.diff(self.scheme._ends).astype(np.float64)

    @property
    def row_norms(self) -> Floats:
        return self.row_sums / self.scheme.k


class SumScheme(Scheme):
    """Every message is the sum over some cells, cut as in `CellScheme`.

    Message m is that of ``cells[first[m]:first[m + 1]]``, where `_listed` is (first, cells).
    """

    precision = cached_property(SumPrecision)
    is_complex = False
    cuts: Ints
    _listed: tuple[Ints, Ints]

    def row(self, worker: int) -> tuple[Ints, Floats]:
        worker = check_index("worker", worker, self.n)
        first, cells = self._listed
        begin, end = first[self.messages.first[worker : worker + 2]]
        ends = np.array([0, end - begin])
        return entries_of(self.cuts, ends, cells[begin:end], np.ones(end - begin))[1:]

    @cached_property
    def entries(self) -> tuple[Ints, Ints, Array]:
        first, cells = self._listed
        return entries_of(self.cuts, first, cells, np.ones(cells.size))

    @cached_property
    def _ends(self) -> Ints:
        """Where each message's partitions begin among those of all messages, and the end."""
        first, cells = self._listed
        return np.append(0, np.cumsum(np.diff(self.cuts)[cells]))[first]

    @cached_property
    def loads(self) -> Ints:
        return frozen(np.diff(self._ends[self.messages.first]))


class CellPrecision(SumPrecision):
    """Vectors are ones, unless they are rescaled."""

    scheme: CellScheme

    def __init__(self, scheme: CellScheme) -> None:
        super().__init__(scheme)
        self.unbiased = scheme._rescale


class CellScheme(SumScheme):
    """Every message is the sum over one cell of the partitions; several workers may hold a cell.

    The master adds up one message of each cell and drops the others.

    Parameters
    ----------
    cuts : (cells + 1,) int64 array
        Cell c has the partitions ``cuts[c] .. cuts[c + 1] - 1``.
    sizes : (n,) int64 array
        Number of messages of each worker.
    choices : (messages,) int64 array
        The cell of each message, worker by worker, in the order in which each sends them.
    stragglers : int
    wait : int, optional
        As in `Scheme`.
    together : bool
        Whether workers send their messages only when all of their work is done.
    need : int, optional
        Number of partitions that must have come. Default: all.
    rescale : bool
        Whether the sum of those that came is multiplied by k over their number.
    """

    precision = cached_property(CellPrecision)
    stragglers: int

    def __init__(
        self,
        cuts: Ints,
        sizes: Ints,
        choices: Ints,
        *,
        stragglers: int,
        wait: int | None = None,
        together: bool = False,
        need: int | None = None,
        rescale: bool = False,
    ) -> None:
        self.n, self.k = sizes.size, int(cuts[-1])
        self.stragglers, self.wait = stragglers, wait
        self.cuts, self._sizes, self._choices, self._together = cuts, sizes, choices, together
        self._listed = np.arange(choices.size + 1), choices
        self._need, self._rescale = self.k if need is None else need, rescale
        self.exact = self._need == self.k and wait is None

    @cached_property
    def messages(self) -> Messages:
        return Messages(self._sizes.tolist(), np.full(self.n, self._together))

    @cached_property
    def cells(self) -> Cells:
        """The cell of each message, and the weights of the cells."""
        return Cells(self._choices, np.diff(self.cuts), self._need)

    @cached_property
    def rule(self) -> Rule:
        return self.cells if self.wait is None else self.waiting(self.cells)

    def bind_vector(self, survivors: Ints, vector: Floats, unit: float = DOUBLE) -> VectorFunction:
        plan = self._plan
        if self.wait is not None:
            # One message of each cell that came: no other combination is nearer to the gradient.
            plan = plan._replace(need=0)
        return vector_function(
            self, kernels.unchecked.bind_cells(plan, survivors, vector), survivors
        )

    @property
    def _plan(self) -> kernels.cover.CellsPlan:
        return kernels.cover.CellsPlan(*self.cells, float(self.k) if self._rescale else 0.0)

    def parity(self, survivors: Ints, most: int = CHECKS) -> Parity:
        """Compare every copy of a cell with the first one."""
        cell = self.cells.cell[survivors]
        first = self.cells.first(survivors)[cell]
        copies = np.flatnonzero(first != np.arange(survivors.size))
        position, coefficient = np.empty((copies.size, 2), np.int64), np.empty((copies.size, 2))
        position[:, 0], position[:, 1] = copies, first[copies]
        coefficient[:] = 1.0, -1.0
        ends = np.zeros((survivors.size, 2), dtype=np.int64)
        ends[:, 1] = cell + 1
        begins, exact = np.arange(0, 2 * copies.size, 2), np.zeros(copies.size)
        return Parity(begins, position.ravel(), coefficient.ravel(), exact, ends)

    @cached_property
    def threshold(self) -> int:
        """Number of messages that always suffice if each worker's come in order."""
        enough = self._suffices
        return (
            enough if self.wait is None else min(enough, self.messages.count - self.n + self.wait)
        )

    @property
    def _suffices(self) -> int:
        """The threshold if rounds wait for every cell."""
        # Most messages without cell c: holders send those before it, all others send everything.
        lost = np.zeros(self.cuts.size - 1, dtype=np.int64)
        ends = np.repeat(np.cumsum(self._sizes), self._sizes)
        np.add.at(lost, self._choices, ends - np.arange(self._choices.size))
        return self.messages.count - int(lost.min()) + 1
