"""Parity checks: combinations of messages that must be zero.

Correct messages are c_F = B_F g, so h c_F = 0 for every h with h B_F = 0. Such h exist once more
messages came than are needed. `fastgc.coding.verify` compares messages by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .edges import Ends

__all__ = ["CHECKS", "Numbers", "Parity"]

Numbers = NDArray[np.int64]

# Checks asked of messages that have more to spare, at least: they notice any 8 corrupt messages.
CHECKS = 8


class Parity(NamedTuple):
    """Checks ``sum_i h_i c_i = 0`` of some messages, by the coefficients h_i that are not 0.

    Attributes
    ----------
    first : (m,) int64 array
        Index in `position` and `coefficient` of each check's first entry.
    position : (entries,) int64 array
        Position of the entry's message among those that came.
    coefficient : (entries,) float64 or complex128 array
    error : (m,) float64 array
        Norm of ``h B_F``, which is not quite zero because h is rounded.
    ends : (f, 2) int64 array or None
        The two points, where each message is the difference between what they stand for: where it
        begins and ends. -1 for other messages. The checks of messages with points are circles, and
        all of their circles are here.
    """

    first: Numbers
    position: Numbers
    coefficient: NDArray[Any]
    error: NDArray[np.float64]
    ends: Ends | None = None

    @classmethod
    def of(
        cls,
        H: NDArray[Any],
        position: Numbers | None = None,
        error: NDArray[np.float64] | None = None,
    ) -> Parity:
        """Checks from the rows of a dense matrix, whose columns stand for messages `position`."""
        rows, columns = np.nonzero(H)
        count = np.bincount(rows, minlength=len(H))
        kept = count > 0
        error = np.zeros(len(H)) if error is None else error
        return cls(
            (np.cumsum(count) - count)[kept],
            columns if position is None else position[columns],
            H[rows, columns],
            error[kept],
        )

    @classmethod
    def none(cls) -> Parity:
        """Return an object with no checks."""
        return cls.of(np.empty((0, 0)))

    @classmethod
    def beside(cls, parts: Iterable[tuple[Parity, Numbers]]) -> Parity:
        """Join the checks of several groups of messages; each comes with its positions."""
        listed = [(part, at) for part, at in parts if part.first.size]
        if not listed:
            return cls.none()
        ends = None
        if any(part.ends is not None for part, _ in listed):
            ends = np.full((1 + max(int(at.max()) for _, at in listed), 2), -1)
            points = 0
            for part, at in listed:
                if part.ends is not None:
                    ends[at] = part.ends + np.where(part.ends >= 0, points, 0)
                    points = int(ends.max()) + 1
        stops = np.cumsum([part.position.size for part, _ in listed])
        return cls(
            np.concatenate(
                [
                    part.first + stop - part.position.size
                    for (part, _), stop in zip(listed, stops, strict=True)
                ]
            ),
            np.concatenate([at[part.position] for part, at in listed]),
            np.concatenate([part.coefficient for part, _ in listed]),
            np.concatenate([part.error for part, _ in listed]),
            ends,
        )

    @property
    def row(self) -> Numbers:
        """The check of each entry."""
        sizes = np.diff(np.append(self.first, self.position.size))
        return np.repeat(np.arange(self.first.size), sizes)

    def apply(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return ``sum_i h_i values_i`` for each check."""
        return self._sums(self.coefficient * values[self.position])

    def spread(self, squares: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
        """Return the root of ``sum_i |h_i|^2 squares_i + (error scale)^2``, for each check."""
        sums = self._sums(np.abs(self.coefficient) ** 2 * squares[self.position])
        return np.sqrt(sums + (self.error * scale) ** 2)

    def _sums(self, entries: NDArray[Any]) -> NDArray[Any]:
        if not self.first.size:
            return entries[:0]
        return np.add.reduceat(entries, self.first)
