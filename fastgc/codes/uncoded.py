"""No code: partial gradients are added up as they come."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from .._base.arrays import Array, Ints, as_real, check_flag, check_integer
from ..coding.arguments import check_sizes
from ..coding.cells import CellPrecision, CellScheme
from ..coding.code import Code
from ..coding.precision import Residuals


class Uncoded(Code):
    """No code: wait for all, ignore stragglers, or take every partial gradient as it comes.

    Without `load` each partition is on one worker, which sends the sum of its partial gradients.
    With a load of r, each worker computes r partitions in circular-shift order and sends each
    partial gradient as soon as it is computed, so that the work of stragglers counts too (UC-MMC of
    Ozfatura et al., eq. (11)). `fastgc.simulation.covered_cdf` gives the distribution of the time
    that this takes.

    With a tolerance the gradient is *not exact*: it is the sum of the partial gradients that came
    (UC-MMC-PG; without `load`, the master of Halbawi et al., figure 2, which ignores stragglers).

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, at least n (default n). Worker i holds, or begins with, a contiguous share.
    load : int, optional
        Partitions per worker, r, at least k / n. k must then be a multiple of n.
    tolerance : float, default 0
        Fraction of the partial gradients that may be missing: a round ends with
        ceil((1 - tolerance) k) different ones.
    rescale : bool, default True
        Multiply the sum by k over the number of partial gradients in it, so that it estimates the
        full sum.
    """

    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        load: int | None = None,
        tolerance: float = 0.0,
        rescale: bool = True,
    ) -> None:
        n, k = check_sizes(n, k, at_least_n=True)
        tolerance = as_real("tolerance", tolerance)
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance must be in [0, 1), not {tolerance}")
        self.tolerance, self.rescale = tolerance, check_flag("rescale", rescale)
        need = max(1, math.ceil(round((1 - tolerance) * k, 9)))  # so that tolerance=s/n means s
        starts = np.arange(n + 1) * k // n
        if load is None:
            sizes, choices = np.ones(n, dtype=np.int64), np.arange(n)
            heaviest_lost = np.cumsum(np.sort(np.diff(starts))[::-1])
            s = int(np.searchsorted(heaviest_lost, k - need, side="right"))
        else:
            load = check_integer("load", load)
            if k % n:
                raise ValueError(f"with load=, k must be a multiple of n={n}, not {k}")
            if not k // n <= load <= k:
                raise ValueError(f"load must be in k/n = {k // n} .. k = {k}, not {load}")
            sizes = np.full(n, load)
            choices = ((starts[:-1, np.newaxis] + np.arange(load)) % k).ravel()
            # t neighbours are the only holders of (t + 1) k/n - load partitions.
            s = min((k - need + load) // (k // n) - 1, n - 1)
        cuts = starts if load is None else np.arange(k + 1)
        given: Any = {"stragglers": s, "need": need, "rescale": self.rescale}
        super().__init__(UncodedScheme(cuts, sizes, choices, **given))


class _Precision(CellPrecision):
    """What is left out is what did not come."""

    scheme: UncodedScheme

    def left_out(self, survivors: Ints, vector: Array) -> float:
        scheme = self.scheme
        came = int(scheme.cells.weight @ scheme.cells.came(survivors))
        # Rescaled, partitions that came are wrong by k / came - 1 each, the others by 1.
        return math.sqrt((scheme.k - came) / (came if self.unbiased else scheme.k))

    def known_residuals(self, workers: int) -> Residuals | None:
        scheme = self.scheme
        came, rest = divmod(workers * scheme.k, scheme.n)
        if not scheme._single or rest or scheme.k % scheme.n or came < scheme._need:
            return None
        left = math.sqrt((scheme.k - came) / (came if self.unbiased else scheme.k))
        return Residuals(workers, left, left, 0, True)


class UncodedScheme(CellScheme):
    """The scheme of `Uncoded`."""

    precision = cached_property(_Precision)

    @property
    def _single(self) -> bool:
        """Whether each worker sends one message, of partitions that no other worker has."""
        return self.messages.count == self.n == self.cuts.size - 1

    @property
    def approximate(self) -> bool:
        return not self.exact

    @cached_property
    def threshold(self) -> int:
        """Messages that always suffice, if each worker's come in order."""
        if self._single:
            return self.n - self.stragglers
        if self._need == self.k:
            return self._suffices
        return self.messages.count - self._fewest_lost(self.k - self._need + 1) + 1

    def _fewest_lost(self, missing: int) -> int:
        """The fewest messages that are missing if `missing` partitions are.

        A worker stops at the first missing partition it meets. Let e and e' be consecutive missing
        partitions. Workers that start in (e, e'] stop at e', and lose their messages from e' on.
        The least total loss is a shortest path around the circle over the missing partitions.
        """
        k, step = self.k, self.k // self.n
        start = np.arange(0, 2 * k, step)
        best = self.messages.count
        ends = np.arange(2 * k)
        # lost[e, e']: messages that workers which start in (e, e'] would send from e' on.
        sent = np.where(start <= ends[:, None], self.load - (ends[:, None] - start), 0)
        sent = np.maximum(sent, 0)
        after = start > ends[:, None]  # the worker starts after e
        lost = (after.astype(float) @ sent.T.astype(float)).astype(np.int64)  # floats, for BLAS
        for first in range(step):  # by symmetry, one missing partition is among these
            reach = np.full(2 * k, np.iinfo(np.int64).max // 4)
            reach[first] = 0
            for _ in range(missing - 1):
                ahead = np.where(ends[:, None] < ends, reach[:, None] + lost, reach.max())
                reach = ahead.min(axis=0)
                reach[ends >= first + k] = reach.max()
            here = ends < first + k
            best = min(best, int((reach[here] + lost[here, first + k]).min()))
        return best
