"""What a worker computes, whatever brings it the parameters and takes its messages."""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .interface import Gradient, Task

__all__ = ["Worker", "failure", "partial_gradient"]

Array = NDArray[Any]

# A NaN that no arithmetic makes, by the bytes of a real: what a gradient leaves of it, it did not
# write, or added to.
_UNWRITTEN = {4: np.uint32(0x7FC04743), 8: np.uint64(0x7FF8464153544743)}


def partial_gradient(gradient: Gradient, theta: Array, shard: Any, out: Array) -> None:
    """Let `gradient` write a partial gradient to `out`, whatever that holds.

    Raises
    ------
    TypeError
        If it returns something else than None or `out`: that would be lost.
    ValueError
        If it does not write all of `out`; says what is missing.
    """
    bits, unwritten = _marked(out)
    bits.fill(unwritten)
    _check_returned(gradient(theta, shard, out), out)
    missing = np.flatnonzero(bits == unwritten) // (bits.size // out.size)
    if missing.size:
        count = np.unique(missing).size
        raise ValueError(
            f"the gradient did not write {count} of the {out.size} elements of its argument out, "
            f"the first of them out[{missing[0]}]: it must write all of them, and not add to what "
            "is there"
        )


def _marked(out: Array) -> tuple[Array, Any]:
    """The reals of an array as bits, and those that stand for nothing written."""
    reals = _reals(out)
    return reals.view(f"u{reals.itemsize}"), _UNWRITTEN[reals.itemsize]


def _reals(array: Array) -> Array:
    return array.view(array.real.dtype)


def _check_returned(returned: object, out: Array) -> None:
    if returned is not None and returned is not out:
        raise TypeError(
            f"the gradient returned {type(returned).__name__}, which would be lost: it must write "
            "the partial gradient to its argument out (out[:] = ...), and return None or out"
        )


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
        self._together = bool(task.code.sends_together[number])
        # By round and index: those that are computed, and not yet asked for.
        self._computed: dict[tuple[int, int], tuple[Array, float]] = {}
        # That a delay is slept in.
        self._parts = self.message_count if task.spread and not self._together else 1
        self._partial = np.empty(task.size, task.code.partial_dtype(task.dtype))
        self._bits, self._unwritten = _marked(self._partial)
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

    def message(self, theta: Array, index: int, round: int) -> tuple[Array, float]:
        """Compute a message of a round, of which the parameters are a read-only array.

        A worker that sends its messages together computes them all before it returns the first.

        Returns it, and its energy.
        """
        if (round, index) not in self._computed:
            end = self.message_count if self._together else index + 1
            self._computed = {
                (round, at): self._compute(theta, at, round) for at in range(index, end)
            }
        return self._computed.pop((round, index))

    def _compute(self, theta: Array, index: int, round: int) -> tuple[Array, float]:
        encoder, task = self._encoders[index], self._task
        encoder.reset()
        for partition, shard in self._data[index]:
            self.partition = partition
            part = shard if task.batch is None else task.batch(shard, partition, round)
            self._bits.fill(self._unwritten)  # what is not written is NaN in the message
            _check_returned(task.gradient(theta, part, self._partial), self._partial)
            encoder.add(partition, self._partial)
        message = encoder.message()
        if math.isnan(encoder.energy):
            self._find_unwritten(theta, index, round)
        self.partition = -1
        return message, encoder.energy

    def _find_unwritten(self, theta: Array, index: int, round: int) -> None:
        """Compute the partial gradients of a message anew, to tell which is not written whole."""
        task = self._task
        for partition, shard in self._data[index]:
            self.partition = partition
            part = shard if task.batch is None else task.batch(shard, partition, round)
            partial_gradient(task.gradient, theta, part, self._partial)


def failure(worker: Worker | None, nbytes: int = 1 << 14) -> bytes:
    """What to tell of the exception being handled: on which partition, and the traceback's end."""
    at = -1 if worker is None else worker.partition
    where = b":\n" if at < 0 else f" on partition {at}:\n".encode()
    text = traceback.format_exc().encode(errors="replace")
    return where + text[-(nbytes - len(where)) :]
