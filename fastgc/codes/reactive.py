"""Each share is held by many and computed by one: reactive redundancy (Gupta, Vaidya 2019)."""

from __future__ import annotations

import numpy as np

from .._arrays import check_index, check_integer
from ..coding.arguments import check_sizes
from ..coding.cells import CellScheme, even_cuts
from ..coding.code import Code
from ..coding.reactive import Deadline, check_deadline

__all__ = ["Reactive"]


class Reactive(Code):
    """Each partition is held by several workers and computed by one, until that one fails.

    The partitions are cut into n shares. Worker i computes share i, and sends its sum, as in
    `Uncoded`: nobody computes anything twice. Shares i - 1, i - 2, ... it holds besides, and
    computes if it is asked to. The master asks when their owner has died, or is late beyond the
    `deadline`, in the same round: the gradient is the exact sum over all partitions, whoever up
    to ``holders - 1`` workers are that fail. A late owner's own share counts if it comes first.

    So a round without failures takes a load of k / n, where a code that tolerates as many
    stragglers takes `holders` times as much; a round with one takes the deadline, for who is late,
    and another share's time (`fastgc.planning.plan` says which pays). Data are held as often as in
    those codes.

    The workers of all engines are asked. Where they cannot be (`survivors` are given, or MPI
    without threads), a round waits for all, as `Uncoded` does.

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, at least n; n by default. Shares are as even as can be.
    holders : int
        Workers that hold each share, s + 1, in 2 .. n: so many less one may fail in a round.
    deadline : float or "auto"
        Seconds from a round's beginning until shares that did not come are asked for. "auto": twice
        the median, over the last 32 rounds, of the time until all shares but `holders` - 1 had
        come; in the first round twice that time itself. At least 0.1 s where time is real. inf:
        only the dead are stood in for.

    Attributes
    ----------
    stragglers : int
        0: messages that may be missing. Those of workers that fail are computed by others.

    Raises
    ------
    ValueError, TypeError
        If the parameters do not fit; says which and why.

    Notes
    -----
    Which workers hold a share is as in rows of `CyclicRepetition`. What is asked for goes to
    holders that have sent their own share, so that the most that any of them is asked for is the
    least possible.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.Reactive(6, 12, holders=3)
    >>> code.load, code.partitions(1).tolist()
    (2, [2, 3])
    >>> code.scheme.holders_of(1)  # who can compute them
    [1, 2, 3]
    """

    stragglers: int

    def __init__(
        self, n: int, k: int | None = None, *, holders: int, deadline: Deadline = "auto"
    ) -> None:
        n, k = check_sizes(n, k)
        if k < n:
            raise ValueError(f"each worker needs a share of the partitions: k >= n = {n}, not {k}")
        self.holders = holders = check_integer("holders", holders)
        if not 2 <= holders <= n:
            raise ValueError(
                f"holders, the workers that hold each share, must be in 2 .. n = {n}, not {holders}"
            )
        self.deadline = deadline = check_deadline(deadline)
        super().__init__(_ReactiveScheme(n, k, holders, deadline))


class _ReactiveScheme(CellScheme):
    def __init__(self, n: int, k: int, holders: int, deadline: Deadline) -> None:
        super().__init__(even_cuts(k, n), np.ones(n, np.int64), np.arange(n), stragglers=0)
        self.spare, self.deadline = holders - 1, deadline

    def holders_of(self, worker: int) -> list[int]:
        worker = check_index("worker", worker, self.n)
        return [(worker + step) % self.n for step in range(self.spare + 1)]
