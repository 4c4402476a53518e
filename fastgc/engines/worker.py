"""What a worker computes, on every transport."""

from __future__ import annotations

import contextlib
import inspect
import math
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from .._base.arrays import Array, read_only
from .interface import Gradient, Messages, Question, Task

TRACEBACK_BYTES = 1 << 14  # the longest text of an exception that a worker sends

# A NaN that no arithmetic makes, by the size of a real. Elements that a gradient function leaves so
# were not written, or were only added to.
_UNWRITTEN = {4: np.uint32(0x7FC04743), 8: np.uint64(0x7FF8464153544743)}


def partial_gradient(
    gradient: Gradient,
    theta: Array,
    shard: Any,
    out: Array,
    *,
    partition: int = -1,
    round: int = -1,
    asked: Sequence[str] | None = None,
) -> None:
    """Let `gradient` write a partial gradient to `out`, whatever `out` holds.

    `asked` is ``asked_of(gradient)``, for those who call this often.

    Raises
    ------
    TypeError
        If the function returns something other than None or `out`, which would be lost.
    ValueError
        If it does not write all of `out`; the error says what is missing.
    """
    bits, unwritten = _marked(out)
    bits.fill(unwritten)
    if asked is None:
        asked = asked_of(gradient)
    told = {"partition": partition, "round": round}
    _check_returned(gradient(theta, shard, out, **{name: told[name] for name in asked}), out)
    missing = np.flatnonzero(bits == unwritten) // (bits.size // out.size)
    if missing.size:
        count = np.unique(missing).size
        raise ValueError(
            f"the gradient did not write {count} of the {out.size} elements of its argument out, "
            f"the first of them out[{missing[0]}]: it must write all of them, and not add to what "
            "is there"
        )


def asked_of(gradient: Gradient) -> list[str]:
    """Those of the keywords ``partition`` and ``round`` that a gradient function has."""
    try:
        parameters = inspect.signature(gradient).parameters
    except (TypeError, ValueError):  # some callables have no signature
        return []
    own = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        name
        for name in ("partition", "round")
        if name in parameters and parameters[name].kind in own
    ]


def _marked(out: Array) -> tuple[Array, Any]:
    """The reals of an array as bits, and the bits that mark an element as not written."""
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


class Cancelling:
    """The energy that cancels while partial gradients are computed; 0 unless the data are coded."""

    def __init__(self, task: Task) -> None:
        self._task, self._known = task, dict[int, Callable[[Array], float] | None]()

    def __call__(self, theta: Array, partition: int, part: Any) -> float:
        """Squared norm of what cancels (`Data.cancelling`) in a computation on this `part`."""
        scheme, known = self._task.code.scheme, self._known
        if not scheme.data.coded:
            return 0.0
        if self._task.batch is not None:  # a different part in every round
            found = scheme.data.cancelling(part)
        elif partition in known:
            found = known[partition]
        else:
            found = known[partition] = scheme.data.cancelling(part)
        return 0.0 if found is None else found(theta)


class _Alone(NamedTuple):
    """A message that is one partial gradient, with everything prepared."""

    message: Array  # to which the gradient function writes
    bits: Array
    unwritten: Any
    energy: Callable[[], float]


class Worker:
    """One worker's side of a round: its messages, one after another.

    Parameters
    ----------
    number : int
        The worker's number.
    task : Task
        What to compute; its shards are not used.
    data : list of lists of (partition, shard)
        ``task.data(number)``.
    out : sequence of ndarray, optional
        Where to write each of its messages. Default: new arrays.

    Attributes
    ----------
    number : int
    message_count : int
        Messages that it sends in a round.
    """

    def __init__(
        self,
        number: int,
        task: Task,
        data: list[list[tuple[int, Any]]],
        out: Sequence[Array] | None = None,
    ) -> None:
        self.number, self.message_count = number, task.code.scheme.messages.counts[number]
        self._together = bool(task.code.scheme.messages.together[number])
        data = [[(partition, read_only(shard)) for partition, shard in part] for part in data]
        data, others = data[: self.message_count], data[self.message_count :]
        # Other workers' data that it holds, and what computes their messages once it is asked.
        self._others = dict(zip(task.code.scheme.holders.held_for[number], others, strict=False))
        self._instead: dict[int, Messages] = {}
        self._asked, self._task = task.asks, task
        self._round = -1
        self._theta: Array = np.empty(0)  # the parameters of `_round`
        self._computing = threading.Lock()  # the gradient function runs in one thread at a time
        # If messages are sent together: those computed and not yet sent, by round and index.
        self._computed: dict[tuple[int, int], tuple[Array, float]] = {}
        # The number of equal parts in which a delay is slept.
        self._parts = self.message_count if task.spread and not self._together else 1
        if data and not hasattr(task.gradient, "worker"):
            # Kernels are made at their first call: make them now, before a round.
            alike = replace(task, size=1, gradient=_zero, batch=None)
            Encoded(number, alike, data[:1], None)(np.zeros(1), 0, 0)
        self._compute = _messages(number, task, data, out)

    @property
    def partition(self) -> int:
        """The partition that is being computed; -1: none."""
        return self._compute.partition

    def sleep_before(self, index: int, delay: float) -> float:
        """The seconds of a round's delay to sleep before message `index`."""
        return delay / self._parts if index < self._parts else 0.0

    def message(self, theta: Array, index: int, round: int) -> tuple[Array, float]:
        """Compute a message of a round; return it, and its energy.

        `theta` is a read-only array. A worker that sends its messages together computes them all
        before it returns the first. A worker that may be asked keeps the parameters.
        """
        if not self._asked:
            return self._message(theta, index, round)
        with self._computing:
            self._round, self._theta = round, theta
            return self._message(theta, index, round)

    def _message(self, theta: Array, index: int, round: int) -> tuple[Array, float]:
        if not self._together:
            return self._compute(theta, index, round)
        if (round, index) not in self._computed:
            self._computed = {
                (round, at): self._compute(theta, at, round)
                for at in range(index, self.message_count)
            }
        return self._computed.pop((round, index))

    def answer(self, question: Question, out: Array | None = None) -> tuple[Array, float] | None:
        """Answer a question, from any thread, also while messages are computed.

        Return another worker's message, and its energy. The message is written to `out` (default:
        an array that the next answer overwrites). None if the worker is at another round, or does
        not hold what the message is computed from.
        """
        if question.round != self._round:
            return None
        found = self._share(question.what.worker)
        if found is None or out is None:
            return found
        out[:] = found[0]
        return out, found[1]

    def _share(self, owner: int) -> tuple[Array, float] | None:
        """Another worker's message, computed as that worker computes it."""
        if owner not in self._others:
            return None
        with self._computing:
            theta, round = self._theta.copy(), self._round  # the next round may overwrite it
            if owner not in self._instead:
                data = [self._others[owner]]
                self._instead[owner] = _messages(owner, self._task, data, None)
            theta.flags.writeable = False
            return self._instead[owner](theta, 0, round)


def _messages(
    number: int, task: Task, data: list[list[tuple[int, Any]]], out: Sequence[Array] | None
) -> Messages:
    """What computes a worker's messages: its gradient itself, or an encoder of its gradients."""
    own = getattr(task.gradient, "worker", None)
    return Encoded(number, task, data, out) if own is None else own(number, task, out)


def _zero(theta: Array, shard: Any, out: Array) -> None:
    out.fill(0)


class Encoded:
    """Messages encoded from the partial gradients that the task's gradient function writes."""

    def __init__(
        self,
        number: int,
        task: Task,
        data: list[list[tuple[int, Any]]],
        out: Sequence[Array] | None,
    ) -> None:
        self._number, self._task, self._data = number, task, data
        self._asked = asked_of(task.gradient)
        self._gradient = self._told if self._asked else task.gradient
        self._cancelled = Cancelling(task)
        self.partition = self._round = -1
        self._partial = np.empty(task.size, task.code.scheme.format(1, task.dtype).partial_dtype)
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
            for index in range(len(data))
        ]
        self._alone = [self._prepared(index) for index in range(len(data))]

    def _prepared(self, index: int) -> _Alone | None:
        """Prepare a message that is one partial gradient: of coefficient 1, and not rounded.

        With a million parameters a round takes 1.3 times as long without. None for others, and for
        codes of the data: their energy is not that of the message alone.
        """
        task, out = self._task, self._encoders[index].out
        form = task.code.scheme.format(task.size, task.dtype, task.message_dtype)
        if (
            len(self._data[index]) != 1
            or task.code.scheme.data.coded
            or form.encode_mode != kernels.REAL
            or not form.partial_dtype == form.row_dtype == form.sum_dtype == out.dtype
            or task.code.coefficients(self._number, index)[0] != 1
        ):
            return None
        return _Alone(out, *_marked(out), kernels.unchecked.bind_square_sum(_reals(out)))

    def __call__(self, theta: Array, index: int, round: int) -> tuple[Array, float]:
        """Compute a message of a round; return it, and its energy."""
        self._round = round
        if (alone := self._alone[index]) is None:
            return self._compute_several(theta, index)
        # One partition. With many processes on few cores, every call costs.
        [(self.partition, part)] = self._data[index]
        batch, written = self._task.batch, alone.message
        if batch is not None:
            part = batch(part, self.partition, round)
        alone.bits.fill(alone.unwritten)
        returned = self._gradient(theta, part, written)
        if returned is not None:
            _check_returned(returned, written)
        energy = alone.energy()
        if energy != energy:
            self._find_unwritten(theta, index)
        self.partition = -1
        return written, energy

    def _compute_several(self, theta: Array, index: int) -> tuple[Array, float]:
        """Compute a message of any number of partitions; return it, and its energy."""
        encoder, partial = self._encoders[index], self._partial
        encoder.reset()
        for partition, part in self._parts(index):
            self._bits.fill(self._unwritten)  # what is not written becomes NaN in the message
            _check_returned(self._gradient(theta, part, partial), partial)
            encoder.add(partition, partial, self._cancelled(theta, partition, part))
        message = encoder.message()
        if math.isnan(encoder.energy):
            self._find_unwritten(theta, index)
        self.partition = -1
        return message, encoder.energy

    def _told(self, theta: Array, part: Any, out: Array) -> object:
        told = {"partition": self.partition, "round": self._round}
        return self._task.gradient(theta, part, out, **{name: told[name] for name in self._asked})

    def _parts(self, index: int) -> Iterator[tuple[int, Any]]:
        for partition, shard in self._data[index]:
            self.partition = partition
            yield partition, self._task.part(partition, shard, self._round)

    def partials(self, theta: Array, round: int, index: int = 0) -> Iterator[Array]:
        """The partial gradients of a message, one by one, in the same memory."""
        self._round, gradient = round, self._task.gradient
        for partition, part in self._parts(index):
            partial_gradient(gradient, theta, part, self._partial, partition=partition, round=round)
            yield self._partial
        self.partition = -1

    def _find_unwritten(self, theta: Array, index: int) -> None:
        """Compute a message's partial gradients again, to name one that was not written whole."""
        for _ in self.partials(theta, self._round, index):
            pass


def as_process(number: int) -> None:
    """Make this process a worker's: name it, give it one thread, and ignore Ctrl-C."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(f"fastgc-{number}")  # the name that ps and top show
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the master ends the workers
    kernels.threads.set_num_threads(1)


def failure(worker: Worker | None) -> bytes:
    """Text about the exception being handled: the partition, and the end of the traceback."""
    at = -1 if worker is None else worker.partition
    where = b":\n" if at < 0 else f" on partition {at}:\n".encode()
    text = traceback.format_exc().encode(errors="replace")
    return where + text[-(TRACEBACK_BYTES - len(where)) :]
