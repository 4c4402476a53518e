"""Messages of a round as they come: where they lie, their norms, and whether they suffice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import choice
from .cyclic import Status
from .facade import square_sum
from .rows import INTEGER, Rows

__all__ = ["Arrivals"]


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
    heard : (N,) uint8 array
        Which messages were taken, by number.
    arrive : callable
        ``arrive(number, row)`` takes a message, whose row is contiguous, of the rows' dtype and
        length, and stays where it is. ``Status.OK``: those that came suffice; ``TOO_FEW``: more are
        needed, as far as `blocks` say; else it was not taken: ``OUT_OF_RANGE``, ``DUPLICATE`` or
        ``NOT_FINITE``.

    Parameters
    ----------
    rows : Rows
        None is listed yet.
    numbers : (N,) int64 array
    blocks : tuple of two int64 arrays, optional
        The block of each message, and how many each block needs. Without it, `arrive` never says
        that messages suffice.
    check : bool
        Read messages, for their norms and to find what is not finite.
    """

    __slots__ = (
        "_block",
        "_lacking",
        "_need",
        "_open",
        "_state",
        "arrive",
        "heard",
        "numbers",
        "rows",
        "squares",
    )

    def __init__(
        self,
        rows: Rows,
        numbers: NDArray[np.int64],
        blocks: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
        check: bool,
    ) -> None:
        self.rows, self.numbers = rows, numbers
        self.squares = np.empty(numbers.size)
        self.heard = np.zeros(numbers.size, dtype=np.uint8)
        if blocks is None:  # one, which never has enough
            blocks = np.zeros(numbers.size, dtype=np.int64), np.array([1 << 62])
        self._block, self._need = blocks
        self._open = int(np.count_nonzero(self._need > 0))  # blocks that need any
        self._lacking = self._need.copy()
        self._state = np.array([0, self._open])  # messages taken, blocks that lack some
        bind = getattr(choice.load(), "bind_arrivals", None)
        if bind is None or rows.kind == INTEGER:
            bind = _bind
        self.arrive: Callable[[int, Any], int] = bind(
            rows, numbers, self.squares, self.heard, self._block, self._lacking, self._state, check
        )

    def reset(self) -> None:
        """Forget all messages."""
        self.rows.clear()
        self.heard.fill(0)
        self._lacking[:] = self._need
        self._state[0] = 0
        self._state[1] = self._open

    def keep(self, positions: list[int]) -> int:
        """Forget all messages but these; the `Status` that the last of them has."""
        arrays = [self.rows.arrays[at] for at in positions]
        numbers, squares = self.numbers[positions], self.squares[positions]
        self.reset()
        for at, array in enumerate(arrays):
            self.rows.append(array)
            self._lacking[self._block[numbers[at]]] -= 1
        kept = len(positions)
        self.numbers[:kept], self.squares[:kept], self.heard[numbers] = numbers, squares, 1
        self._state[:] = kept, np.count_nonzero(self._lacking > 0)
        return Status.TOO_FEW if self._state[1] else Status.OK


def _bind(
    rows: Rows,
    numbers: NDArray[np.int64],
    squares: NDArray[np.float64],
    heard: NDArray[np.uint8],
    block: NDArray[np.int64],
    lacking: NDArray[np.int64],
    state: NDArray[np.int64],
    check: bool,
) -> Callable[[int, Any], int]:
    """What csrc/arrivals.c does, without a compiler."""

    def arrive(number: int, row: NDArray[Any]) -> int:
        if not 0 <= number < numbers.size:
            return Status.OUT_OF_RANGE
        if heard[number]:
            return Status.DUPLICATE
        reals = row.view(row.real.dtype) if row.dtype.kind == "c" else row
        square = square_sum(reals) if check else math.nan
        if check and not square < math.inf and not np.isfinite(reals).all():
            return Status.NOT_FINITE
        count = state[0]
        numbers[count], squares[count] = number, square
        rows.point(int(count), row)
        heard[number] = 1
        state[0] += 1
        lacking[block[number]] -= 1
        state[1] -= lacking[block[number]] == 0
        return Status.OK if state[1] == 0 else Status.TOO_FEW

    return arrive
