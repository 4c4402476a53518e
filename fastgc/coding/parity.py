"""Parity checks: combinations of messages that must be zero.

True messages are c_F = B_F g, so that h c_F = 0 for every h with h B_F = 0: a set of more messages
than it needs has such h. What looks at messages by them is in `fastgc.coding.verify`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .edges import Ends

__all__ = ["CHECKS", "Numbers", "Parity"]

Numbers = NDArray[np.int64]

# Checks of a set of messages that has more to spare, at least: they see any so many corrupt ones.
CHECKS = 8


class Parity(NamedTuple):
    """Checks of some messages, ``sum_i h_i c_i = 0`` each, by their coefficients other than 0.

    Attributes
    ----------
    first : (m,) int64 array
        Where each check begins in what follows.
    position : (entries,) int64 array
        Of a message among those that came.
    coefficient : (entries,) float64 or complex128 array
    error : (m,) float64 array
        Norm of ``h B_F``, which rounding leaves instead of zero.
    ends : (f, 2) int64 array or None
        Of each message, where it is the difference of what two points stand for: these points,
        where it begins and ends; of others -1. Its checks are then circles, and all of them are
        here.
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
        """Checks with a row each in a dense matrix; `position` says what its columns stand for."""
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
        """No check."""
        return cls.of(np.empty((0, 0)))

    @classmethod
    def beside(cls, parts: Iterable[tuple[Parity, Numbers]]) -> Parity:
        """The checks of several groups of messages, whose positions are given with each."""
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
        """The check that each entry belongs to."""
        sizes = np.diff(np.append(self.first, self.position.size))
        return np.repeat(np.arange(self.first.size), sizes)

    def apply(self, values: NDArray[Any]) -> NDArray[Any]:
        """``sum_i h_i values_i`` for each check."""
        return self._sums(self.coefficient * values[self.position])

    def spread(self, squares: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
        """Root of ``sum_i |h_i|^2 squares_i``, and of what the checks lack themselves."""
        sums = self._sums(np.abs(self.coefficient) ** 2 * squares[self.position])
        return np.sqrt(sums + (self.error * scale) ** 2)

    def _sums(self, entries: NDArray[Any]) -> NDArray[Any]:
        if not self.first.size:
            return entries[:0]
        return np.add.reduceat(entries, self.first)
