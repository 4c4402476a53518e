"""Numerically stable binary gradient coding (Charalambides, Mahdavifar, Hero 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .._arrays import check_index, check_integer, check_reals
from .base import Code
from .parity import Parity
from .rules import Tiling

__all__ = ["BinaryCode"]


class BinaryCode(Code):
    """Coefficients 0 and 1 only, for every n, s and k; nothing is multiplied or divided.

    Workers are dealt into s + 1 classes, worker i into class i mod (s + 1), and the members of
    each class share all k partitions, in contiguous blocks as even as can be, the larger ones
    first. (That is what Algorithms 1 and 2 amount to.) The sum over a complete class is the
    gradient, and n - s messages hold one.

    Often fewer messages do: blocks of different classes fit together where their ends meet, also
    when one must be subtracted. The gradient is decoded whenever any linear decoder could.

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, n by default; at least ceil(n / (s + 1)), so that nobody is idle.
    stragglers : int
        Stragglers to tolerate, s.
    speeds : sequence of n positive numbers, optional
        Relative speeds of the workers. Blocks are as long as their workers are fast, so that all
        of a class end at the same time (section VI, for any number of types), and every class gets
        its share of the fast ones: workers are dealt into classes in order of speed.

    Raises
    ------
    ValueError
        If no code has these parameters; says why.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.BinaryCode(11, stragglers=3)
    >>> code.loads.tolist()
    [4, 4, 4, 6, 4, 4, 4, 5, 3, 3, 3]
    >>> code.decoding_vector([0, 4, 7, 8, 9]).tolist()
    [1.0, 1.0, 0.0, 1.0, 0.0]
    """

    exact = True
    is_complex = False
    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        stragglers: int,
        speeds: Sequence[float] | None = None,
    ) -> None:
        n = check_integer("n", n)
        k = n if k is None else check_integer("k", k)
        s = check_integer("stragglers", stragglers)
        if n < 1 or not 0 <= s < n:
            raise ValueError(f"0 <= stragglers < n is needed, not n={n}, stragglers={s}")
        if k < -(-n // (s + 1)):
            raise ValueError(
                f"k must be at least ceil(n / (s + 1)) = {-(-n // (s + 1))}, not {k}: the members "
                "of a class share the partitions"
            )
        self.n, self.k, self.stragglers = n, k, s
        speed = np.ones(n) if speeds is None else check_reals("speeds", speeds)
        if speed.shape != (n,):
            raise ValueError(f"{n} workers need {n} speeds, not an array of shape {speed.shape}")
        if not (np.isfinite(speed) & (speed > 0)).all():
            raise ValueError(f"speeds must be positive and finite, not {speed}")
        self.speeds = None if speeds is None else speed.tolist()
        by_speed = np.argsort(-speed, kind="stable")
        self._class, place = np.empty((2, n), dtype=np.int64)
        place[by_speed], self._class[by_speed] = np.divmod(np.arange(n), s + 1)
        self._size = np.bincount(self._class)
        if (speed == speed[0]).all():
            least, more = np.divmod(k, self._size[self._class])
            self._start = place * least + np.minimum(place, more)
            self._stop = self._start + least + (place < more)
        else:
            self._start, self._stop = np.empty((2, n), dtype=np.int64)
            for c in range(s + 1):
                members = by_speed[c :: s + 1]
                ends = np.cumsum(_apportion(k, speed[members]))
                self._start[members] = np.append(0, ends[:-1])
                self._stop[members] = ends
        self.load = int((self._stop - self._start).max())

    def row(self, worker: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        worker = check_index("worker", worker, self.n)
        held = np.arange(self._start[worker], self._stop[worker])
        return held, np.ones(held.size)

    @property
    def loads(self) -> NDArray[np.int64]:
        return self._stop - self._start

    @property
    def row_sums(self) -> NDArray[np.float64]:
        return self.loads.astype(np.float64)

    @property
    def row_norms(self) -> NDArray[np.float64]:
        return self.row_sums / self.wanted

    @cached_property
    def rule(self) -> Tiling:
        return Tiling(self._start, self._stop, self.k)

    def vector(self, survivors: NDArray[np.int64]) -> NDArray[np.float64]:
        """Algorithm 3, O(n); where no class is complete, by a path through the blocks."""
        mine = self._class[survivors]
        came = np.bincount(mine, minlength=self._size.size)
        # of the complete classes, that of the fewest messages: what is not added need not be read
        best = ((self._size - came) * (self.n + 1) + self._size).argmin()
        if came[best] == self._size[best]:
            chosen: NDArray[np.float64] = (mine == best).astype(np.float64)
            return chosen
        path = self.rule.path(survivors)
        if path is None:
            self.raise_too_few(survivors)
        vector = np.zeros(survivors.size)
        vector[list(path)] = list(path.values())
        return vector

    def parity(self, survivors: NDArray[np.int64]) -> Parity:
        """The messages round a circle of blocks add up to zero."""
        cycles = self.rule.cycles(survivors)
        sizes = np.array([len(cycle) for cycle in cycles], dtype=np.int64)
        return Parity(
            np.cumsum(sizes) - sizes,
            np.array([at for cycle in cycles for at in cycle], dtype=np.int64),
            np.array([sign for cycle in cycles for sign in cycle.values()], dtype=np.float64),
            np.zeros(sizes.size),
        )


def _apportion(k: int, weight: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers of sum k, at least 1 each, in proportion to the weights: largest remainders."""
    weight = weight / weight.max()
    ideal = k * weight / weight.sum()
    size = np.maximum(np.floor(ideal), 1).astype(np.int64)
    while (excess := int(size.sum()) - k) > 0:  # after raising slow ones to 1
        over = np.where(size > 1, size - ideal, -np.inf)
        size[np.argsort(-over, kind="stable")[: min(excess, int((size > 1).sum()))]] -= 1
    if excess:
        size[np.argsort(size - ideal, kind="stable")[:-excess]] += 1
    shares: NDArray[np.int64] = size
    return shares
