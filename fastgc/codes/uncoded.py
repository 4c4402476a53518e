"""No code: partial gradients are added up as they come."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import check_integer
from ..coding.approximation import Residuals
from ..coding.cells import CellCode

__all__ = ["Uncoded"]


class Uncoded(CellCode):
    """No code: wait for all, ignore stragglers, or take every partial gradient as it comes.

    Without `load` every partition is on one worker, which sends its sum. With `load`, r, workers
    compute r partitions each in circular-shift order and send each partial gradient as soon as it
    is there, so that what stragglers did counts too (Ozfatura et al., UC-MMC, eq. (11)).
    `fastgc.simulation.covered_cdf` has the law of the time that takes.

    With a tolerance the gradient is *not exact*: it is the sum of the partial gradients that came
    (UC-MMC-PG; without `load`, the master that ignores stragglers of Halbawi et al., figure 2).

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, at least n (default n); worker i holds, or starts with, a contiguous share.
    load : int, optional
        Partitions per worker, r, from k / n on; k must be a multiple of n then.
    tolerance : float, default 0
        Fraction of the partial gradients that may be missing: a round is over with
        ceil((1 - tolerance) k) different ones.
    rescale : bool, default True
        Multiply what came by k over the number of partial gradients in it, so that the result
        estimates the full sum.
    """

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        load: int | None = None,
        tolerance: float = 0.0,
        rescale: bool = True,
    ) -> None:
        n = check_integer("n", n)
        k = n if k is None else check_integer("k", k)
        if n < 1 or k < n:
            raise ValueError(f"an uncoded scheme needs 1 <= n <= k, not n={n}, k={k}")
        tolerance = float(tolerance)
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance must be in [0, 1), not {tolerance}")
        self.n, self.k, self.tolerance, self.rescale = n, k, tolerance, bool(rescale)
        # rounded, so that tolerance=s/n means s workers
        self._need: int = max(1, math.ceil(round((1 - self.tolerance) * k, 9)))
        self.exact = self._need == k
        self.integral = self.exact or not self.rescale
        self._whole = float(k) if self.rescale else 0.0
        starts = np.arange(n + 1) * k // n
        self._single = load is None
        if load is None:
            self._cuts = starts
            self._sizes, self._choices = np.ones(n, dtype=np.int64), np.arange(n)
            self.load = int(np.diff(starts).max())
            heaviest_lost = np.cumsum(np.sort(np.diff(starts))[::-1])
            self.stragglers = int(np.searchsorted(heaviest_lost, k - self._need, side="right"))
        else:
            load = check_integer("load", load)
            if k % n:
                raise ValueError(f"with load=, k must be a multiple of n={n}, not {k}")
            if not k // n <= load <= k:
                raise ValueError(f"load must be in k/n = {k // n} .. k = {k}, not {load}")
            self._cuts = np.arange(k + 1)
            self._sizes = np.full(n, load)
            self._choices = ((starts[:-1, np.newaxis] + np.arange(load)) % k).ravel()
            self.load = load
            # t neighbours alone hold (t + 1) k/n - load partitions
            self.stragglers = min((k - self._need + load) // (k // n) - 1, n - 1)

    @property
    def approximate(self) -> bool:
        return not self.exact

    def left_out(self, survivors: NDArray[np.int64], vector: NDArray[Any]) -> float:
        came = int(self.cells.weight @ self.cells.came(survivors))
        # rescaled, what came is wrong by k / came - 1 each, what did not by 1
        return math.sqrt((self.k - came) / (came if self.rescale else self.k))

    def _residuals_of(self, f: int, sets: int, seed: int) -> Residuals:
        came, rest = divmod(f * self.k, self.n)
        if not self._single or rest or self.k % self.n or came < self._need:
            return super()._residuals_of(f, sets, seed)
        left = math.sqrt((self.k - came) / (came if self.rescale else self.k))
        return Residuals(f, left, left, 0, True)

    @cached_property
    def threshold(self) -> int:
        """Messages that always suffice, if each worker's come in order."""
        if self._single:
            return self.n - self.stragglers
        return self.message_count - self._fewest_lost(self.k - self._need + 1) + 1

    def _fewest_lost(self, missing: int) -> int:
        """Fewest messages that fail to come when `missing` partitions do.

        A worker stops at the first missing partition it meets. With e the one before a missing
        partition e', the workers that start after e and up to e' stop at e', which costs each what
        it had to send from there on: a shortest path round the circle, over the missing ones.
        """
        k, step = self.k, self.k // self.n
        start = np.arange(0, 2 * k, step)
        best = self.message_count
        ends = np.arange(2 * k)
        # lost[e, e']: over the workers that start in (e, e'], what each has to send from e' on
        sent = np.where(start <= ends[:, None], self.load - (ends[:, None] - start), 0)
        sent = np.maximum(sent, 0)
        after = start > ends[:, None]  # worker starts after e
        lost = (after.astype(float) @ sent.T.astype(float)).astype(np.int64)  # by BLAS
        for first in range(step):  # by symmetry, some missing partition is among these
            reach = np.full(2 * k, np.iinfo(np.int64).max // 4)
            reach[first] = 0
            for _ in range(missing - 1):
                ahead = np.where(ends[:, None] < ends, reach[:, None] + lost, reach.max())
                reach = ahead.min(axis=0)
                reach[ends >= first + k] = reach.max()
            here = ends < first + k
            best = min(best, int((reach[here] + lost[here, first + k]).min()))
        return best
