"""Messages of a round: how many each worker sends, their numbers, and who sends which."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np

from .._base.arrays import Bools, Floats, Ints, check_index


class Messages:
    """The messages of a round, which are numbered worker by worker.

    Parameters
    ----------
    counts : sequence of int
        Messages of each worker, each for an equal share of its partitions.
    together : (n,) bool array, optional
        Whether each worker sends all its messages together when it has computed all. Default: no
        worker does; each message is sent as soon as it is computed.

    Attributes
    ----------
    counts, together
        As given.
    count : int
        All workers together.
    per_worker : int
        Messages of a worker; the largest number, if workers differ.
    """

    def __init__(self, counts: Sequence[int], together: Bools | None = None) -> None:
        self.counts, self._workers = counts, len(counts)
        self.together = np.zeros(len(counts), dtype=np.bool_) if together is None else together
        self.count, self.per_worker = sum(counts), max(counts)

    @cached_property
    def first(self) -> list[int]:
        """Number of each worker's first message; at the end, the number of all messages."""
        return [0, *accumulate(self.counts)]

    @cached_property
    def shares(self) -> Floats:
        """For each message, the fraction of its worker's computation after which it is sent.

        Messages are sent after equal parts, or after the whole if the worker sends them together.
        """
        counts = np.array(self.counts, dtype=np.int64)
        sent = np.arange(1, counts.sum() + 1) - np.repeat(np.cumsum(counts) - counts, counts)
        shares: Floats = sent / np.repeat(counts, counts)
        shares[np.repeat(self.together, counts)] = 1.0
        return shares

    @cached_property
    def workers(self) -> Ints:
        """The worker of each message."""
        return np.repeat(np.arange(self._workers), self.counts)

    def number(self, worker: int, index: int = 0) -> int:
        """Number of a worker's message, as `survivors` use it."""
        worker = check_index("worker", worker, self._workers)
        sent = self.counts[worker]
        if type(index) is not int or not 0 <= index < sent:
            what = f"message of worker {worker}, which sends {sent}: index"
            index = check_index(what, index, sent)
        return self.first[worker] + index

    def sender(self, number: int) -> tuple[int, int]:
        """Worker and index of a message."""
        number = check_index("message", number, self.count)
        worker = bisect_right(self.first, number) - 1
        return worker, number - self.first[worker]

    def senders(self, messages: Ints) -> Ints:
        """Workers that send these messages: in ascending order, each once."""
        sent = np.zeros(self._workers, dtype=bool)
        sent[self.workers[messages]] = True
        return np.flatnonzero(sent)

    def of(self, workers: Iterable[int]) -> Ints:
        """Numbers of all messages of these workers, ascending."""
        n = self._workers
        heard = np.zeros(n, dtype=bool)
        if isinstance(workers, np.ndarray) and workers.dtype == np.int64:
            for worker in workers[(workers < 0) | (workers >= n)][:1].tolist():
                check_index("worker", worker, n)
            heard[workers] = True
        else:
            heard[[check_index("worker", worker, n) for worker in workers]] = True
        if self.per_worker > 1 or self.count < n:
            heard = np.repeat(heard, self.counts)
        return np.flatnonzero(heard)
