"""How late workers are and how long they work in simulated rounds, as the kernels read it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DelayPlan"]

_TOGETHER = 512  # delays that compiled loops draw at a time


class DelayPlan(NamedTuple):
    """Delays and works of n workers in any round, of which each random number is known by itself.

    With h exponential of mean 1, worker i is late by ``shift[i] + scale[i] h``, or where
    ``power[i] > 0`` by ``shift[i] + scale[i] exp(power[i] h)``, or by what is given. Times this
    delay, it begins after ``onset`` and works for ``load[i]``, and for ``work[i]`` seconds more.
    Both times are multiplied by the same random number between 1 and 1 + 2^-40: what is
    simultaneous comes in random order. There is a single random number for both.

    A named tuple, so that Numba takes it as an argument.

    Attributes
    ----------
    key : uint64
        Of the random numbers: SplitMix64's of the counter ``key + round n + worker``, in its steps.
    onset : float
    shift, scale, power, load, work : (repeats n,) float64 array
        The numbers of all workers, several times over for loops over several rounds.
    repeats : int
    given : (rounds, n) float64 array
        The delays of the rounds asked for, if any are given; else of no rounds.
    """

    key: np.uint64
    onset: float
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    power: NDArray[np.float64]
    load: NDArray[np.float64]
    work: NDArray[np.float64]
    repeats: int
    given: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        key: np.uint64,
        onset: float,
        shift: NDArray[np.float64],
        scale: NDArray[np.float64],
        power: NDArray[np.float64],
        load: NDArray[np.float64],
        work: NDArray[np.float64],
    ) -> DelayPlan:
        """The plan of n workers, each array of shape (n,), where no delays are given."""
        n = shift.size
        repeats = max(1, _TOGETHER // n)
        numbers = np.tile([shift, scale, power, load, work], repeats)
        shift, scale, power, load, work = numbers
        return cls(key, onset, shift, scale, power, load, work, repeats, np.empty((0, n)))

    def part(self, lo: int, hi: int) -> DelayPlan:
        """The same for rounds lo .. hi-1 of those that are given; a view."""
        return self._replace(given=self.given[lo:hi])
