"""Fractional repetition (Tandon, Lei, Dimakis, Karampatziakis 2017)."""

from __future__ import annotations

import numpy as np

from .._arrays import check_integer
from .cells import CellCode

__all__ = ["FractionalRepetition"]


class FractionalRepetition(CellCode):
    """s + 1 copies of an uncoded scheme on n / (s + 1) workers each.

    Worker i sums block i mod g of g = n / (s + 1) blocks of partitions. The gradient is the sum of
    one message of each block: s + 1 stragglers suffice to prevent it, but on average it is ready
    long before n - s messages.

    Parameters
    ----------
    n : int
        Workers, a multiple of s + 1. `BinaryCode` has no such restriction.
    k : int, optional
        Partitions, at least n / (s + 1); n by default. Blocks are as even as can be.
    stragglers : int
        Stragglers to tolerate, s.

    Raises
    ------
    ValueError
        If no code has these parameters; says why.
    """

    def __init__(self, n: int, k: int | None = None, *, stragglers: int) -> None:
        n = check_integer("n", n)
        k = n if k is None else check_integer("k", k)
        s = check_integer("stragglers", stragglers)
        if n < 1 or not 0 <= s < n:
            raise ValueError(f"0 <= stragglers < n is needed, not n={n}, stragglers={s}")
        if n % (s + 1):
            raise ValueError(
                f"fractional repetition needs n to be a multiple of s + 1 = {s + 1}, not {n}; "
                "BinaryCode takes any n"
            )
        blocks = n // (s + 1)
        if k < blocks:
            raise ValueError(f"k must be at least n / (s + 1) = {blocks}, not {k}")
        self.n, self.k, self.stragglers = n, k, s
        sizes = k // blocks + (np.arange(blocks) < k % blocks)
        self._cuts = np.concatenate([[0], np.cumsum(sizes)])
        self._sizes, self._choices = np.ones(n, dtype=np.int64), np.arange(n) % blocks
        self.load = int(sizes.max())
