"""Gradient coding on the worker processes of one machine.

Parameters and messages cross in memory that master and workers share; pipes carry only records of
a few bytes. No lock guards the memory, because every part of it has one owner at a time: from the
moment a worker is handed a round until its announcement arrives, its message slot and the
parameters it reads are the worker's; at any other time they are the master's.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import pickle
import select
import selectors
import signal
import struct
import sys
import tempfile
import time
import traceback
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import forkserver, reduction
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import kernels
from .._arrays import check_dtype, check_index, check_vector
from ..codes import Code
from ..delays import DelayModel
from ..errors import NotDecodableError, WorkerFailedError
from .interface import (
    Batch,
    Collected,
    Gradient,
    RoundReport,
    check_cluster,
    check_round,
    sample_delays,
)

if TYPE_CHECKING:
    from ..stability import StabilityTracker

__all__ = ["LocalCluster"]

Array = NDArray[Any]

_COMMAND = struct.Struct("=qqd")  # round, parameter buffer, delay in seconds
_ANNOUNCEMENT = struct.Struct("=iiiiq")  # status, worker, message, partition, round
_DONE, _FAILED, _DIED, _SKIPPED = range(4)
_NONE = -1  # no partition; also the "round" a worker announces when it has started
_INBOX_BYTES = 4096 * _ANNOUNCEMENT.size  # more than a pipe holds, in whole records
_TRACEBACK_BYTES = 1 << 14
_LONGEST_WAIT = 1e6  # seconds, of one call that waits: epoll takes no more than 2e6
_GRACE = 1.0  # seconds to leave before SIGTERM, and again before SIGKILL
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class LocalCluster:
    """One worker process for each worker of a code, on this machine.

    Every worker receives its partitions once, at the start. A round hands the newest parameters
    to the workers; one still busy with a message of an older round is not interrupted, its late
    message is dropped, and it goes on with the newest round. A worker process that dies counts as
    a straggler for good, as long as the others can still decode.

    Parameters
    ----------
    code : Code
        The scheme; ``code.n`` processes are started.
    shards : sequence of length ``code.shard_count``
        The data of each partition, anything that can be pickled: what ``code.encode_data`` returns.
    gradient : callable
        ``gradient(theta, shard, out)`` writes the partial gradient of a shard at the read-only
        parameters ``theta`` to ``out``. It is pickled, so define it in an importable module.
    size : int
        The gradient dimension p.
    dtype : numpy dtype, default ``float64``
        The type of parameters and gradient.
    message_dtype : numpy dtype, optional
        The type of messages, if they are to be less precise: ``float16`` or ``"bfloat16"``, say.
    delays : DelayModel, optional
        ``delays.sample(round, workers, seed)`` gives the seconds that each worker sleeps in a
        round before it computes. If ``delays.per`` is ``"computation"``, they are taken times the
        worker's load (`fastgc.delays.Delays`), and one that sends several messages sleeps an
        equal part before each. Without it nature provides the stragglers.
    seed : int, default 0
        The seed of the delays.
    timeout : float, optional
        The longest a round may wait, in seconds.
    batch : callable, optional
        ``batch(shard, partition, round)`` gives what `gradient` gets in place of a shard in a round
        (`fastgc.data.MiniBatches`). All who compute a partition must get the same.
    tracker : StabilityTracker, optional
        Takes down how precise each gradient is. If it is to wait for more messages when few make it
        imprecise, a round waits until it is content, no worker is left, or the time is out.

    Notes
    -----
    The processes come from the ``forkserver`` of ``multiprocessing``, so as always a script has to
    guard its start with ``if __name__ == "__main__":``. The fork server is started with one BLAS
    thread per process, n workers being parallel enough; if the program has started it before, it
    keeps the number it has. A program that itself calls ``os.fork`` while a cluster is open keeps
    the workers alive for as long as the fork lives.

    A cluster belongs to one thread at a time. Leaving the ``with`` block, ``close()``, an error in
    a round, the end of the program and even its sudden death all end the workers, and the shared
    memory has no name, so nothing is left behind.

    Examples
    --------
    >>> with LocalCluster(code, shards, gradient, size=p) as cluster:  # doctest: +SKIP
    ...     report = cluster.step(theta, out=g)
    """

    def __init__(
        self,
        code: Code,
        shards: Sequence[Any],
        gradient: Gradient,
        size: int,
        dtype: DTypeLike = np.float64,
        delays: DelayModel | None = None,
        seed: int = 0,
        timeout: float | None = None,
        message_dtype: DTypeLike | None = None,
        tracker: StabilityTracker | None = None,
        batch: Batch | None = None,
    ) -> None:
        size, timeout = check_cluster(code, shards, gradient, size, delays, seed, timeout, batch)
        self._code = code
        self._size = size
        self._dtype = check_dtype(dtype)
        self._delays = delays
        self._loads = code.loads
        self._seed = seed
        self._timeout = timeout
        self._number = _NONE
        self._live = set(range(code.n))
        # worker: the rounds it was handed and may still be at, and their parameter buffers
        self._busy: dict[int, dict[int, int]] = {}
        # A worker that sends several messages looks for a newer round before each. It is handed
        # no third one: what it has in hand may not be the newest, but it can tell, and ask.
        self._ahead = 1 if code.messages == 1 else 2
        self._lost: list[int] = []
        self._inbox: deque[tuple[int, int, int, int, int]] = deque()
        sent = code._format(self._size, self._dtype, message_dtype)
        self._round = code.round(
            self._size, sent.gradient_dtype, sent.message_dtype, tracker=tracker
        )
        self._decoded = None  # where to decode to, if messages give less precision than is wanted
        if sent.gradient_dtype != self._dtype:
            self._decoded = np.empty(self._size, dtype=sent.gradient_dtype)
        self._layout = _Layout(
            code.n,
            self._ahead,
            code.message_count,
            self._size,
            self._dtype,
            sent.message_size,
            sent.message_dtype,
        )
        self._resources = contextlib.ExitStack()
        self._close = weakref.finalize(self, self._resources.close)
        environment = {name: os.environ.get(name) for name in ("PYTHONPATH", "PYTHONSAFEPATH")}
        try:
            spread = getattr(delays, "per", "round") == "computation"
            task = kernels.backend(), environment, code, gradient, batch, spread
            self._start(shards, pickle.dumps(task))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and release the shared memory; a second call does nothing."""
        self._close()

    @staticmethod
    def clock() -> float:
        """Seconds of the time that rounds take, from some moment on."""
        return time.perf_counter()

    def step(self, theta: Array, out: Array) -> RoundReport:
        """Run one round: hand out the parameters, wait until decodable, decode.

        Parameters
        ----------
        theta : ndarray of shape (size,)
            The parameters. They are copied before the call returns.
        out : ndarray of shape (size,)
            Receives the sum of all partial gradients at ``theta``.

        Returns
        -------
        RoundReport
            Who took part, and what it cost.

        Raises
        ------
        WorkerFailedError
            If ``gradient`` raised in a worker; the worker's traceback is in the text.
        NotDecodableError
            If so many worker processes have died that the others cannot decode.
        NonFiniteMessageError
            If a message holds NaN or Inf.
        UnstableRoundError
            If the tracker finds the gradient too imprecise and is to raise.
        TimeoutError
            If the round was not ready within ``timeout`` seconds.

        Every error closes the cluster, except that unsuitable arguments are refused before
        anything happens.
        """
        gradient = check_vector("out", out, self._dtype, self._size, output=True)
        self._round.reset()
        report = self.collect(theta, self._round)
        start = time.perf_counter()
        try:
            if self._decoded is None:
                self._round.gradient(out=gradient)
            else:
                gradient[:] = self._round.gradient(out=self._decoded)
        except BaseException:
            self.close()
            raise
        return report._replace(decode_seconds=time.perf_counter() - start)

    def collect(
        self, theta: Array, rnd: Collected, workers: Iterable[int] | None = None
    ) -> RoundReport:
        """Run one round without decoding: hand out the parameters, and wait for the messages.

        Parameters
        ----------
        theta : ndarray of shape (size,)
            The parameters. They are copied before the call returns.
        rnd : Round or GroupedRound
            Of the cluster's code, size and types, reset: takes the messages until it is ready. They
            lie in shared memory, so decode them before the next round.
        workers : iterable of int, optional
            To whom the parameters are handed; `rnd` must become ready by these workers' messages.
            Default: all. The others go on with what they are at, or wait.

        Returns
        -------
        RoundReport
            As of `step`, with no time for decoding.

        Raises
        ------
        WorkerFailedError, NotDecodableError, NonFiniteMessageError, TimeoutError
            As `step` does; NotDecodableError also if `workers` are too few for `rnd`.
        """
        if not self._close.alive:
            raise RuntimeError("the cluster is closed")
        theta = check_vector("theta", theta, self._dtype, self._size)
        check_round(rnd, self._round)
        n = self._code.n
        asked = set(range(n) if workers is None else (check_index("worker", i, n) for i in workers))
        try:
            return self._collect(theta, rnd, asked)
        except BaseException:
            self.close()
            raise

    def _start(self, shards: Sequence[Any], task: bytes) -> None:
        resources = self._resources
        context = multiprocessing.get_context("forkserver")
        memory = resources.enter_context(_Memory(self._layout.nbytes))
        self._slots, self._thetas, self._tracebacks, self._newest = self._layout.rows(memory)
        for rows in (self._slots, self._thetas, self._tracebacks, self._newest):
            resources.callback(rows.clear)
        resources.callback(self._round.reset)
        self._selector = resources.enter_context(selectors.DefaultSelector())
        # The write end stays open here too: deaths are told by the sentinels, not by its closing.
        results, announce = (resources.enter_context(end) for end in context.Pipe(duplex=False))
        self._results = results.fileno()
        os.set_blocking(self._results, False)
        self._selector.register(results, selectors.EVENT_READ, None)
        self._processes: list[BaseProcess] = []
        commands: list[Connection] = []
        resources.callback(_stop, self._processes, commands)

        context.set_forkserver_preload(
            [__name__, f"{kernels.__name__}.{kernels.backend()}_backend"]
        )
        with _server_environment():
            forkserver.ensure_running()
        for worker in range(self._code.n):
            inbox, command = context.Pipe(duplex=False)
            commands.append(command)
            mine = [
                [(int(j), shards[j]) for j in self._code.partitions(worker, t)]
                for t in range(self._code.message_counts[worker])
            ]
            # Pickled here, so that a worker that cannot load it has a traceback to send.
            data = pickle.dumps(mine, pickle.HIGHEST_PROTOCOL)
            process = context.Process(
                target=_work,
                args=(worker, inbox, announce, memory, self._layout, task, data),
                name=f"fastgc-{worker}",
                daemon=True,
            )
            with inbox:
                process.start()
            self._processes.append(process)
            self._selector.register(process.sentinel, selectors.EVENT_READ, worker)
        self._commands = [command.fileno() for command in commands]

        waiting = set(self._live)
        while waiting:
            answer = self._next(None)
            if answer is None:
                worker = self._lost[-1]
                raise WorkerFailedError(f"worker {worker} died while it started", worker)
            waiting.remove(answer[0])

    def _collect(self, theta: Array, rnd: Collected, asked: set[int]) -> RoundReport:
        self._number += 1
        delays = sample_delays(self._delays, self._loads, self._number, self._seed)
        stale = 0
        self._listen(0.0)
        while self._inbox:
            answer = self._next(None)
            stale += answer is not None and answer[1] != _NONE
        self._require(rnd, asked)

        in_use = {buffer for rounds in self._busy.values() for buffer in rounds.values()}
        buffer = next(b for b in range(len(self._thetas)) if b not in in_use)
        self._thetas[buffer][:] = theta
        self._newest[0][0] = self._number
        start = time.perf_counter()
        deadline = None if self._timeout is None else start + self._timeout
        for worker in self._live & asked:
            self._hand(worker, buffer, delays[worker])
        arrivals: list[float] = []
        surplus = 0
        ready = rnd.ready
        while not ready:
            try:
                answer = self._next(deadline)
            except TimeoutError:
                if not rnd.decodable:
                    raise
                break
            if answer is None:
                self._require(rnd, asked)
            elif answer[2] == self._number:
                worker, index, _ = answer
                if rnd.wants(worker):
                    slot = self._slots[self._code.message_number(worker, index)]
                    ready = rnd.receive(worker, slot, index)
                    arrivals.append(time.perf_counter() - start)
                else:
                    surplus += 1
            else:
                worker, index, _ = answer
                stale += index != _NONE
                if worker in asked:
                    self._hand(worker, buffer, delays[worker])
            # A tracker may want more messages than there will be.
            ready = ready or (rnd.decodable and asked.isdisjoint(self._busy))
        received = rnd.survivors
        return RoundReport(
            self._number,
            np.array(
                list(dict.fromkeys(self._code.sender(m)[0] for m in received.tolist())),
                dtype=np.int64,
            ),
            received.size + surplus,
            time.perf_counter() - start,
            0.0,
            stale,
            tuple(self._lost),
            received,
            np.array(arrivals),
        )

    def _hand(self, worker: int, buffer: int, delay: float) -> None:
        rounds = self._busy.setdefault(worker, {})
        if len(rounds) == self._ahead or self._number in rounds:
            return
        rounds[self._number] = buffer
        with contextlib.suppress(BrokenPipeError):  # its sentinel reports the death
            os.write(self._commands[worker], _COMMAND.pack(self._number, buffer, delay))

    def _listen(self, seconds: float | None) -> None:
        events = self._selector.select(seconds)
        if not events:
            return
        # Read after select(): what a dead worker announced was in the pipe before its sentinel
        # fired, and so stands in front of its death.
        with contextlib.suppress(BlockingIOError):
            self._inbox.extend(_ANNOUNCEMENT.iter_unpack(os.read(self._results, _INBOX_BYTES)))
        for key, _ in events:
            if key.data is not None:
                self._selector.unregister(key.fileobj)
                self._inbox.append((_DIED, key.data, _NONE, _NONE, _NONE))

    def _next(self, deadline: float | None) -> tuple[int, int, int] | None:
        """Wait for an answer: (worker, message, round), or None if a worker died instead.

        The message is _NONE if the worker left the round, because it is not the newest.
        """
        while not self._inbox:
            left = None if deadline is None else deadline - time.perf_counter()
            self._listen(None if left is None else min(left, _LONGEST_WAIT))
            if left is not None and left <= 0.0 and not self._inbox:
                raise TimeoutError(
                    f"round {self._number} was not decodable after {self._timeout} s; "
                    f"not heard from workers {sorted(self._busy)}, lost workers {self._lost}"
                )
        status, worker, index, partition, number = self._inbox.popleft()
        rounds = self._busy.pop(worker, {})
        if status == _FAILED:
            text = self._tracebacks[worker].tobytes().rstrip(b"\0").decode(errors="replace")
            when = "while it started" if number == _NONE else f"in round {number}"
            where = "" if partition == _NONE else f" on partition {partition}"
            raise WorkerFailedError(f"worker {worker} failed {when}{where}:\n{text}", worker)
        if status == _DIED:
            self._live.remove(worker)
            self._lost.append(worker)
            return None
        # It is at this round at least, and after its last message through with it.
        last = status == _SKIPPED or index == self._code.message_counts[worker] - 1
        over = number + last
        if still := {r: buffer for r, buffer in rounds.items() if r >= over}:
            self._busy[worker] = still
        return worker, index, number

    def _require(self, rnd: Collected, asked: set[int]) -> None:
        """Raise NotDecodableError if those asked are too few, or too many of them have died."""
        if not self._lost and len(asked) == self._code.n:
            return
        try:
            rnd.require(np.union1d(self._code.messages_of(self._live & asked), rnd.survivors))
        except NotDecodableError as error:
            if not self._lost:
                raise
            raise NotDecodableError(
                f"the processes of workers {self._lost} have died, and the others are too few for "
                f"round {self._number}: {error}",
                error.missing,
            ) from None


class _Layout(NamedTuple):
    """How the shared memory divides into rows."""

    workers: int
    rounds: int  # that a worker is handed at a time
    messages: int
    size: int
    dtype: np.dtype[Any]
    message_size: int
    message_dtype: np.dtype[Any]

    def _blocks(self) -> Iterator[tuple[int, int, np.dtype[Any]]]:
        yield self.messages, self.message_size, self.message_dtype
        # Each busy worker can hold a buffer for each round, and the newest parameters need another.
        # Pages of a buffer that is never used are never allocated.
        yield self.workers * self.rounds + 1, self.size, self.dtype
        yield self.workers, _TRACEBACK_BYTES, np.dtype(np.uint8)
        yield 1, 1, np.dtype(np.int64)  # the newest round; only the master writes it

    @staticmethod
    def _stride(length: int, dtype: np.dtype[Any]) -> int:
        return -(-length * dtype.itemsize // 64) * 64  # no two rows share a cache line

    @property
    def nbytes(self) -> int:
        return sum(rows * self._stride(length, dtype) for rows, length, dtype in self._blocks())

    def rows(self, memory: _Memory) -> list[list[Array]]:
        """Messages, parameters, tracebacks and the newest round, one array a row."""
        offset = 0
        blocks: list[list[Array]] = []
        for rows, length, dtype in self._blocks():
            stride = self._stride(length, dtype)
            shape, strides = (rows, length), (stride, dtype.itemsize)
            blocks.append(list(np.ndarray(shape, dtype, memory.map, offset, strides)))
            offset += rows * stride
        return blocks


class _Memory:
    """Memory that a child process maps too once it has been passed to it.

    It has no name in the file system, so that however the processes end, it ends with them, and
    the size of /dev/shm does not bound it.
    """

    def __init__(self, nbytes: int, fd: int | None = None) -> None:
        if fd is None:
            fd = _anonymous_file()
            os.ftruncate(fd, nbytes)
        self._fd = fd
        self._nbytes = nbytes
        self.map = mmap.mmap(fd, nbytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._nbytes, reduction.DupFd(self._fd))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file descriptor; the mapping stays as long as its arrays."""
        os.close(self._fd)


def _attach(nbytes: int, fd: Any) -> _Memory:
    return _Memory(nbytes, fd.detach())


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fastgc")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@contextlib.contextmanager
def _server_environment() -> Iterator[None]:
    """Set what a fork server started meanwhile needs to know.

    BLAS libraries use one thread in it and in its workers. It imports from where this process
    does: left to itself it would look in the current folder first, which may be a checkout of
    fastgc that is not the one installed.
    """
    changes = dict.fromkeys(_THREADS, "1")
    changes["PYTHONPATH"] = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    changes["PYTHONSAFEPATH"] = "1"
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        _restore_environment(before)


def _restore_environment(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _stop(processes: list[BaseProcess], commands: list[Connection]) -> None:
    for command in commands:
        command.close()  # the end of its commands ends a worker, even one that sleeps
    for insist in (None, BaseProcess.terminate, BaseProcess.kill):
        deadline = time.monotonic() + _GRACE
        for process in processes:
            if insist is not None and process.is_alive():
                insist(process)
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.close()


def _work(
    worker: int,
    commands: Connection,
    announcements: Connection,
    memory: _Memory,
    layout: _Layout,
    task: bytes,
    data: bytes,
) -> None:
    """Run a worker process until its commands end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the master ends the workers
    kernels.threads.set_num_threads(1)
    # select() takes descriptors below 1024 only, and dup() returns the lowest that is free.
    inbox, outbox = os.dup(commands.fileno()), announcements.fileno()
    messages, thetas, tracebacks, [newest] = layout.rows(memory)
    for theta in thetas:
        theta.flags.writeable = False

    def announce(status: int, index: int, partition: int, number: int) -> None:
        try:
            os.write(outbox, _ANNOUNCEMENT.pack(status, worker, index, partition, number))
        except BrokenPipeError:
            os._exit(1)  # the master is gone

    number = index = partition = _NONE
    try:
        backend, environment, code, gradient, batch, spread = pickle.loads(task)
        _restore_environment(environment)
        kernels.use_backend(backend)
        messages_of_mine = pickle.loads(data)
        partial = np.empty(layout.size, code.partial_dtype(layout.dtype))
        first = code.message_number(worker)
        encoders = [
            code.encoder(
                worker,
                layout.size,
                layout.dtype,
                out=messages[first + t],
                index=t,
                message_dtype=layout.message_dtype,
            )
            for t in range(len(messages_of_mine))
        ]
        announce(_DONE, _NONE, _NONE, _NONE)
        orders = _Orders(inbox)
        parts = len(messages_of_mine) if spread else 1  # that a delay is slept in
        while order := orders.wait():
            number, buffer, delay = order
            for index, shards in enumerate(messages_of_mine):
                if not orders.sleep(0.0):
                    return
                if orders.newer:
                    break
                if number < newest[0]:
                    announce(_SKIPPED, _NONE, _NONE, number)
                    break
                if delay > 0.0 and index < parts and not orders.sleep(delay / parts):
                    return
                encoders[index].reset()
                for partition, shard in shards:
                    part = shard if batch is None else batch(shard, partition, number)
                    gradient(thetas[buffer], part, partial)
                    encoders[index].add(partition, partial)
                partition = _NONE
                encoders[index].message()
                announce(_DONE, index, _NONE, number)
    except BaseException:
        text = traceback.format_exc().encode(errors="replace")[-_TRACEBACK_BYTES:]
        tracebacks[worker][: len(text)] = np.frombuffer(text, np.uint8)
        announce(_FAILED, index, partition, number)


class _Orders:
    """The rounds that a worker is handed."""

    def __init__(self, inbox: int) -> None:
        self._inbox = inbox
        self.newer: tuple[int, int, float] | None = None  # arrived, but not waited for

    def wait(self) -> tuple[int, int, float] | None:
        """The newest round, or None at the end."""
        if self.newer is None:
            self._read()
        order, self.newer = self.newer, None
        return order

    def sleep(self, seconds: float) -> bool:
        """Sleep, and take what arrives meanwhile; False at the end, at once."""
        until = time.monotonic() + seconds
        while True:
            left = min(max(0.0, until - time.monotonic()), _LONGEST_WAIT)
            if select.select([self._inbox], [], [], left)[0]:
                if not self._read():
                    return False
            elif left == 0.0:
                return True

    def _read(self) -> bool:
        command = os.read(self._inbox, _COMMAND.size)
        self.newer = _COMMAND.unpack(command) if command else None
        return bool(command)
