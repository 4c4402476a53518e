"""What schemes share whose messages are sums over cells of partitions, without coefficients."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .._arrays import check_index
from .cache import VectorFunction, filling
from .code import Code
from .parity import Parity
from .rounding import DOUBLE
from .rules import Cells, Rule

__all__ = ["CellCode"]


class CellCode(Code):
    """Every message is the sum over one cell of the partitions, which other workers may sum too.

    The master adds up one message of each cell and drops the others. A scheme says what the cells
    are and, for each worker, which ones its messages sum.

    Attributes
    ----------
    _cuts : (cells + 1,) int64 array
        Cell c is the partitions ``_cuts[c] .. _cuts[c + 1] - 1``.
    _sizes : (n,) int64 array
        Messages of each worker.
    _choices : (messages,) int64 array
        The cell of each message: worker by worker, and each worker's in order.
    _together : bool
        Whether workers send their messages only when all of their work is done.
    """

    is_complex = False
    integral = True
    stragglers: int
    exact = True  # but where partitions may be missing
    _need: int | None = None  # partitions that must have come; None: all
    _whole = 0.0  # what came is multiplied by this over its partitions; 0: it is not
    _cuts: NDArray[np.int64]
    _sizes: NDArray[np.int64]
    _choices: NDArray[np.int64]
    _together = False

    def row(self, worker: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        worker = check_index("worker", worker, self.n)
        first, end = self.first_messages[worker : worker + 2]
        cells = self._choices[first:end]
        partitions = np.concatenate([np.arange(self._cuts[c], self._cuts[c + 1]) for c in cells])
        return partitions, np.ones(partitions.size)

    @cached_property
    def message_counts(self) -> list[int]:
        return self._sizes.tolist()  # type: ignore[no-any-return]

    @property
    def sends_together(self) -> NDArray[np.bool_]:
        return np.full(self.n, self._together)

    @cached_property
    def cells(self) -> Cells:
        """The cell of each message, and what all of them weigh."""
        need = self.k if self._need is None else self._need
        return Cells(self._choices, np.diff(self._cuts), need)

    @cached_property
    def rule(self) -> Rule:
        return self.cells if self.wait is None else self.waiting(self.cells)

    @property
    def loads(self) -> NDArray[np.int64]:
        weight = np.diff(self._cuts)
        ends = np.cumsum(self._sizes)
        held = np.append(0, np.cumsum(weight[self._choices]))
        return held[ends] - held[ends - self._sizes]  # type: ignore[no-any-return]

    @cached_property
    def row_sums(self) -> NDArray[np.float64]:
        return self.cells.weight[self.cells.cell].astype(np.float64)

    @property
    def row_norms(self) -> NDArray[np.float64]:
        return self.row_sums / self.wanted

    def bind_vector(
        self, survivors: NDArray[np.int64], vector: NDArray[np.float64], unit: float = DOUBLE
    ) -> VectorFunction:
        plan = kernels.CellsPlan(*self.cells, self._whole)
        if self.wait is None:
            return filling(self, kernels.bind_cells(plan, survivors, vector), survivors)
        # One message of each cell that came: no other sum of messages is nearer to the gradient.
        nearest = kernels.bind_cells(plan._replace(need=0), survivors, vector)
        least = self.message_count - self.n + self.wait  # of which all are ready, in any order

        def run(f: int) -> int:
            if not (status := nearest(f)) and f < least and self.rule.missing(survivors[:f]):
                return int(kernels.Status.TOO_FEW)
            return status

        return filling(self, run, survivors)

    def vector(self, survivors: NDArray[np.int64]) -> NDArray[np.float64]:
        found = self._empty_vector(survivors.size)
        if self.wait is None:
            CellCode.bind_vector(self, survivors, found)(survivors.size, "auto")
            return found
        first = self.cells.first(survivors)
        found[:] = 0
        found[first[first >= 0]] = 1
        return found

    def parity(self, survivors: NDArray[np.int64]) -> Parity:
        """Every copy of a cell is the first one."""
        first = self.cells.first(survivors)[self.cells.cell[survivors]]
        copies = np.flatnonzero(first != np.arange(survivors.size))
        return Parity(
            2 * np.arange(copies.size),
            np.stack([copies, first[copies]], axis=1).ravel(),
            np.tile([1.0, -1.0], copies.size),
            np.zeros(copies.size),
        )

    @cached_property
    def threshold(self) -> int:
        """Messages that always suffice, if each worker's come in order."""
        # The most that can come without cell c: of its holders, what they send before it.
        lost = np.zeros(self._cuts.size - 1, dtype=np.int64)
        ends = np.repeat(np.cumsum(self._sizes), self._sizes)
        np.add.at(lost, self._choices, ends - np.arange(self._choices.size))
        enough = self.message_count - int(lost.min()) + 1
        return enough if self.wait is None else min(enough, self.message_count - self.n + self.wait)
