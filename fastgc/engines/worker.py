"""What a worker computes, whatever brings it the parameters and takes its messages."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .interface import Task

__all__ = ["Worker", "failure"]

Array = NDArray[Any]


class Worker:
    """One worker's side of a round: its messages, one after another.

    Parameters
    ----------
    number : int
        Which worker it is.
    task : Task
        Its shards are not used.
    data : list of lists of (partition, shard)
        ``task.data(number)``.
    out : sequence of ndarray, optional
        Where each of its messages is to be written. Default: new arrays.

    Attributes
    ----------
    message_count : int
        How many messages it sends in a round.
    partition : int
        The one that it is computing; -1: none.
    """

    def __init__(
        self,
        number: int,
        task: Task,
        data: list[list[tuple[int, Any]]],
        out: Sequence[Array] | None = None,
    ) -> None:
        self._task = task
        self._data = data
        self.message_count = len(data)
        self.partition = -1
        self._parts = self.message_count if task.spread else 1  # that a delay is slept in
        self._partial = np.zeros(task.size, task.code.partial_dtype(task.dtype))
        self._encoders = [
            task.code.encoder(
                number,
                task.size,
                task.dtype,
                out=None if out is None else out[index],
                index=index,
                message_dtype=task.message_dtype,
            )
            for index in range(self.message_count)
        ]

    def sleep_before(self, index: int, delay: float) -> float:
        """Seconds of a round's delay to sleep before a message."""
        return delay / self._parts if index < self._parts else 0.0

    def message(self, theta: Array, index: int, round: int) -> Array:
        """Compute a message of a round, of which the parameters are a read-only array."""
        encoder, task = self._encoders[index], self._task
        encoder.reset()
        for partition, shard in self._data[index]:
            self.partition = partition
            part = shard if task.batch is None else task.batch(shard, partition, round)
            task.gradient(theta, part, self._partial)
            encoder.add(partition, self._partial)
        self.partition = -1
        return encoder.message()


def failure(worker: Worker | None, nbytes: int = 1 << 14) -> bytes:
    """What to tell of the exception being handled: on which partition, and the traceback's end."""
    at = -1 if worker is None else worker.partition
    where = b":\n" if at < 0 else f" on partition {at}:\n".encode()
    text = traceback.format_exc().encode(errors="replace")
    return where + text[-(nbytes - len(where)) :]
