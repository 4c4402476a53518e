"""Several workers hold each share and one computes it: reactive redundancy (Gupta, Vaidya 2019)."""

from __future__ import annotations

import numpy as np

from .._base.arrays import check_index
from ..coding.arguments import check_between, check_sizes
from ..coding.cells import CellScheme, even_cuts
from ..coding.code import Code
from ..coding.holders import Holders
from ..coding.reactive import Deadline, check_deadline


class Reactive(Code):
    """Several workers hold each partition; one computes it, and the others only if that one fails.

    The partitions are cut into n shares. Worker i computes share i and sends its sum, as in
    `Uncoded`, so no partition is computed twice. It also holds shares i - 1, i - 2, ..., and
    computes one of them if the master asks. The master asks, in the same round, when a share's
    owner has died or has missed the `deadline`. The gradient is the exact sum over all partitions,
    whichever ``holders - 1`` workers fail. If a late owner's message comes first, it counts.

    A round without failures takes a load of k / n, whereas a code that tolerates as many stragglers
    takes `holders` times as much. A round with a failure takes another share's time and, if a
    worker is late, the deadline (`fastgc.planning.plan` says which code pays). The data are held as
    often as with such codes.

    All engines can ask their workers, except MPI without threads; none asks if `survivors` are
    given. A round that cannot ask waits for all workers, as `Uncoded` does.

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, at least n; n by default. Shares are as even as possible.
    holders : int
        Workers that hold each share, s + 1, in 2 .. n. In a round s of them may fail.
    deadline : float or "auto"
        Seconds after the beginning of a round at which the master asks for missing shares. "auto":
        twice the median, over the last 32 rounds, of the time until all shares but `holders` - 1
        had come; in the first round, twice that time itself. At least 0.1 s, except in simulated
        time. inf: ask only for shares of workers that died.

    Attributes
    ----------
    stragglers : int
        0: no message may be missing. Other workers compute the messages of workers that fail.

    Raises
    ------
    ValueError, TypeError
        If the parameters do not fit; the error says which and why.

    Notes
    -----
    A share's holders are those of a partition of `CyclicRepetition`. The master asks holders that
    have sent their own share, and distributes the missing shares as evenly as possible.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.Reactive(6, 12, holders=3)
    >>> code.load, code.partitions(1).tolist()
    (2, [2, 3])
    >>> code.scheme.holders.of(1)  # who can compute them
    [1, 2, 3]
    """

    stragglers: int

    def __init__(
        self, n: int, k: int | None = None, *, holders: int, deadline: Deadline = "auto"
    ) -> None:
        n, k = check_sizes(n, k, at_least_n=True)
        called = "holders, the workers that hold each share,"
        self.holders = holders = check_between(called, holders, 2, n, "n")
        self.deadline = deadline = check_deadline(deadline)
        super().__init__(_ReactiveScheme(n, k, holders, deadline))


class _Next(Holders):
    """The workers after the one that sends."""

    def __init__(self, scheme: CellScheme, stand_ins: int, deadline: Deadline) -> None:
        super().__init__(scheme)
        self.stand_ins, self.deadline = stand_ins, deadline

    def of(self, worker: int) -> list[int]:
        worker, n = check_index("worker", worker, self.scheme.n), self.scheme.n
        return [(worker + step) % n for step in range(self.stand_ins + 1)]


class _ReactiveScheme(CellScheme):
    def __init__(self, n: int, k: int, holders: int, deadline: Deadline) -> None:
        super().__init__(even_cuts(k, n), np.ones(n, np.int64), np.arange(n), stragglers=0)
        self.holders = _Next(self, holders - 1, deadline)
