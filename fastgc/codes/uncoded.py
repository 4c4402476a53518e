"""No code: every partition on one worker."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import check_index, check_integer
from .base import Blocks, Code, VectorFunction

__all__ = ["Uncoded"]


class Uncoded(Code):
    """Every partition on one worker: wait for all, or ignore the stragglers.

    With a tolerance the gradient is *not exact*: it is the sum of the partial gradients that came
    (Ozfatura et al., UC-MMC-PG; the baselines of Halbawi et al., figure 2).

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, at least n (default n); worker i holds a contiguous share.
    tolerance : float, default 0
        Fraction of the partial gradients that may be missing: a round is over with
        ceil((1 - tolerance) k) of them.
    rescale : bool, default True
        Multiply what came by k over the number of partial gradients in it, so that the result
        estimates the full sum.
    """

    _complex = False

    def __init__(
        self, n: int, k: int | None = None, *, tolerance: float = 0.0, rescale: bool = True
    ) -> None:
        n = check_integer("n", n)
        k = n if k is None else check_integer("k", k)
        if n < 1 or k < n:
            raise ValueError(f"an uncoded scheme needs 1 <= n <= k, not n={n}, k={k}")
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance must be in [0, 1), not {tolerance}")
        self.n, self.k, self.tolerance, self.rescale = n, k, float(tolerance), bool(rescale)
        self._starts = np.arange(n + 1) * k // n
        self._sizes = np.diff(self._starts)
        self.load = int(self._sizes.max())
        # rounded, so that tolerance=s/n means s workers
        self._need = max(1, math.ceil(round((1 - self.tolerance) * k, 9)))
        heaviest_lost = np.cumsum(np.sort(self._sizes)[::-1])
        self.stragglers = int(np.searchsorted(heaviest_lost, k - self._need, side="right"))

    def _parameters(self) -> dict[str, Any]:
        return {"n": self.n, "k": self.k, "tolerance": self.tolerance, "rescale": self.rescale}

    def partitions(self, worker: int) -> NDArray[np.int64]:  # noqa: D102
        worker = check_index("worker", worker, self.n)
        return np.arange(self._starts[worker], self._starts[worker + 1], dtype=np.int64)

    def coefficients(self, worker: int) -> NDArray[np.float64]:  # noqa: D102
        return np.ones(self.partitions(worker).size)

    @property
    def _blocks(self) -> Blocks:
        return Blocks(
            np.zeros(self.n, dtype=np.int64),
            self._sizes.astype(np.int64),
            np.array([self._need], dtype=np.int64),
        )

    def _bind_vector(
        self, survivors: NDArray[np.int64], vector: NDArray[np.float64]
    ) -> VectorFunction:
        def fill(f: int, method: str) -> None:
            if method != "auto":
                raise ValueError(f'Uncoded knows the method "auto", not {method!r}')
            chosen = self._check_survivors(survivors[:f])
            came = int(self._sizes[chosen].sum())
            if came < self._need:
                self._raise_too_few(chosen)
            vector[:f] = self.k / came if self.rescale else 1.0

        return fill
