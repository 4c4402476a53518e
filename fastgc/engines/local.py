"""Gradient coding on the worker processes of one machine.

Parameters and messages cross in memory that master and workers share; pipes carry only records of
a few bytes. No lock guards the memory, because every part of it has one owner at a time: from the
moment a worker is handed a round until its announcement arrives, its message slot and the
parameters it reads are the worker's; at any other time they are the master's.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import mmap
import multiprocessing
import os
import pickle
import select
import selectors
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import spawn
from multiprocessing.connection import wait
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from . import fork_server
from .interface import Event, Kind, Task
from .master import Master
from .worker import Worker, failure

__all__ = ["LocalCluster"]

Array = NDArray[Any]

_COMMAND = struct.Struct("=qqqd")  # round, parameter buffer, first message, delay in seconds
_ANNOUNCEMENT = struct.Struct("=iiiqd")  # kind, worker, message, round, the message's energy
_NONE = -1
_INBOX_BYTES = 4096 * _ANNOUNCEMENT.size  # more than a pipe holds, in whole records
_TRACEBACK_BYTES = 1 << 14
_LONGEST_WAIT = 1e6  # seconds, of one call that waits: epoll takes no more than 2e6
_GRACE = 1.0  # seconds to leave before SIGTERM, and again before SIGKILL
_HURRY = 0.05  # seconds after which it is seen that there is none any more
_SERVERS = 3  # to try, if they end of themselves without having answered
_RESULTS, _SERVER = -1, -2  # what is listened to besides workers


class LocalCluster(Master):
    """One worker process for each worker of a code, on this machine.

    Parameters, and what a worker's slowness or death means, are those of
    `fastgc.engines.master.Master`.

    Notes
    -----
    Processes are forked from one that has imported what they need, and import the program itself,
    so a script has to guard its start with ``if __name__ == "__main__":``. They have one BLAS
    thread each, n workers being parallel enough, and may have processes of their own. A program
    that itself calls ``os.fork`` while a cluster is open leaves it to the parent.

    A cluster belongs to one thread at a time. Leaving the ``with`` block, ``close()``, an error in
    a round, the end of the program and even its sudden death all end the workers, and the shared
    memory has no name, so nothing is left behind.

    Examples
    --------
    >>> with LocalCluster(code, shards, gradient, size=p) as cluster:  # doctest: +SKIP
    ...     report = cluster.step(theta, out=g)
    """

    def _open(self, task: Task) -> _Processes:
        return _Processes(task)


class _Processes:
    """Worker processes, and the memory shared with them."""

    def __init__(self, task: Task) -> None:
        code = task.code
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise _UnguardedError(
                "a worker imports the program that it is of, and came to where that starts a "
                'cluster: put this under if __name__ == "__main__":, below what workers need'
            )
        # A worker that sends several messages looks for a newer round before each. It is handed
        # no third one: what it has in hand may not be the newest, but it can tell, and ask.
        self.ahead = 1 if code.messages_per_worker == 1 else 2
        self._master = os.getpid()
        self._task = task
        self._first = code.first_messages
        self._number = _NONE
        self._buffers: dict[int, int] = {}  # of the parameters of rounds that may be in use
        self._layout = _Layout(
            code.n,
            self.ahead,
            code.message_count,
            task.size,
            task.dtype,
            task.message_size,
            task.message_dtype,
        )
        self._births = [0] * code.n
        self._pids: dict[int, int] = {}
        # A line each, for its orders. It breaks when the worker dies.
        self._lines: list[socket.socket | None] = [None] * code.n
        self._asked: dict[int, int] = {}  # workers that are to be forked, by their tickets
        self._early: set[int] = set()  # of these, whose lines are broken
        self._failures = 0  # servers that never answered, one after the other
        self._hurry: list[int] = []  # interrupts while it closes
        self._resources = contextlib.ExitStack()
        try:
            self._start()
        except OSError as error:
            self.close()
            if error.errno == errno.EMFILE:
                raise OSError(
                    error.errno,
                    f"{code.n} workers need {code.n} open files besides those of the program, more "
                    "than the limit: raise it, with ulimit -n in a shell",
                ) from None
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if os.getpid() == self._master:  # else in a fork of it, which they do not work for
            with _interrupts_put_off() as self._hurry:
                self._resources.close()

    def _start(self) -> None:
        resources = self._resources
        # The workers end when this is closed, by whatever.
        self._life, ours = os.pipe()
        resources.callback(os.close, self._life)
        self._ours = ours
        _lives.add(ours)
        resources.callback(_end_life, ours)
        self._told = resources.enter_context(_Memory(self._layout.told.nbytes))
        self._sent = resources.enter_context(_Memory(self._layout.sent.nbytes))
        self._thetas, self._newest = self._layout.told.rows(self._told)
        self._slots, self._tracebacks = self._layout.sent.rows(self._sent)
        for rows in (self._thetas, self._newest, self._slots, self._tracebacks):
            resources.callback(rows.clear)
        self._selector = resources.enter_context(selectors.DefaultSelector())
        # The write end stays open here too: deaths are told by the lines, not by its closing.
        self._results, self._announce = os.pipe()
        for end in self._results, self._announce:
            resources.callback(os.close, end)
        os.set_blocking(self._results, False)
        self._selector.register(self._results, selectors.EVENT_READ, _RESULTS)
        resources.callback(self._stop)

        prepared = spawn.get_preparation_data("fastgc-worker")
        prepared["authkey"] = bytes(prepared["authkey"])  # it refuses to be pickled otherwise
        task = pickle.dumps((kernels.backend(), self._task.without_data()))
        environment = os.environ | dict.fromkeys(fork_server.THREADS, "1")
        common = pickle.dumps((self._layout, prepared, environment, task))
        self._common = resources.enter_context(_Memory(len(common)))
        self._common.map[:] = common
        self._server: fork_server.Connection | None = None
        resources.callback(self._disconnect)
        self._connect()
        for worker in range(self._task.code.n):
            self._launch(worker)

    def _connect(self) -> None:
        modules = [__name__, f"{kernels.__name__}.{kernels.backend()}"]
        with _interrupts_put_off():
            self._server = fork_server.connect(f"{__name__}:work", modules)
            self._selector.register(self._server, selectors.EVENT_READ, _SERVER)

    def _disconnect(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            self._selector.unregister(server)
            server.close()

    def _launch(self, worker: int) -> None:
        assert self._server is not None
        self._births[worker] += 1
        # Pickled here, so that a worker that cannot load it has a traceback to send. In memory, not
        # in a pipe, which would hold the master up for as long as the new process does not read it.
        pickled = pickle.dumps(self._task.data(worker), pickle.HIGHEST_PROTOCOL)
        with _interrupts_put_off(), _Memory(len(pickled)) as data:
            data.map[:] = pickled
            line, theirs = socket.socketpair()
            self._lines[worker] = line
            self._selector.register(line, selectors.EVENT_READ, worker)
            memories = (self._told, self._sent, self._common, data)
            files = [theirs.fileno(), self._announce, self._life, *(m.fd for m in memories)]
            numbers = (worker, self._births[worker], self._common.nbytes, data.nbytes)
            with theirs:
                self._asked[self._server.fork(numbers, files)] = worker

    def _hear_server(self) -> list[int]:
        """Take note of who was forked; returns those who are dead already."""
        assert self._server is not None
        for ticket, pid in self._server.answers():
            worker = self._asked.pop(ticket)
            if pid != fork_server.NONE:  # else its line is broken: it is told dead
                self._pids[worker] = pid
        dead = self._early.difference(self._asked.values())
        self._early -= dead
        if self._server.lost:  # those who were not forked are asked for once more
            if self._server.ready or self._server.killed:
                self._failures = 0
            else:
                self._failures += 1
            if self._failures == _SERVERS:
                raise OSError("the process that workers are forked from ends while it starts")
            again = list(self._asked.values())
            self._disconnect()
            self._connect()
            self._asked.clear()
            for worker in again:
                self._hang_up(worker)
                self._launch(worker)
        return list(dead)

    def _hang_up(self, worker: int) -> None:
        line, self._lines[worker] = self._lines[worker], None
        if line is not None:
            if worker not in self._early:
                self._selector.unregister(line)
            line.close()
        self._early.discard(worker)

    def restart(self, worker: int) -> None:
        line, self._lines[worker] = self._lines[worker], None
        if line is not None:
            line.close()
        self._launch(worker)

    def pids(self) -> dict[int, int]:
        """Of each worker that runs, as far as is known; from any thread."""
        return self._pids.copy()

    def publish(self, number: int, theta: Array, in_use: set[int]) -> None:
        self._buffers = {r: buffer for r, buffer in self._buffers.items() if r in in_use}
        taken = self._buffers.values()
        self._buffer = next(b for b in range(len(self._thetas)) if b not in taken)
        self._buffers[number] = self._buffer
        self._thetas[self._buffer][:] = theta
        self._newest[0][0] = self._number = number

    def hand(self, worker: int, first: int, delay: float) -> None:
        line = self._lines[worker]
        assert line is not None
        with contextlib.suppress(ConnectionError):  # listen() tells of the death
            line.send(_COMMAND.pack(self._number, self._buffer, first, delay))

    def listen(self, seconds: float) -> list[Event]:
        assert self._server is not None
        events: list[Event] = []
        until_late = self._server.deadline - time.monotonic()
        happened = self._selector.select(max(0.0, min(seconds, until_late, _LONGEST_WAIT)))
        told = [key.data for key, _ in happened]
        # Read after select(): what a dead worker announced was in the pipe before its line broke,
        # and so stands in front of its death.
        if told:
            with contextlib.suppress(BlockingIOError):
                announced = os.read(self._results, _INBOX_BYTES)
                for each in _ANNOUNCEMENT.iter_unpack(announced):
                    events += self._events(*each)
        dead = [worker for worker in told if worker >= 0]
        for worker in dead:
            line = self._lines[worker]
            assert line is not None
            self._selector.unregister(line)
            self._early.add(worker)
        if dead or _SERVER in told or until_late <= 0.0:
            for worker in self._hear_server():
                self._pids.pop(worker, None)
                events.append(Event(Kind.DIED, worker))
        return events

    def _events(
        self, kind: int, worker: int, index: int, number: int, energy: float
    ) -> Iterator[Event]:
        """The event that an announcement tells of."""
        if kind == Kind.MESSAGE:
            slot = self._slots[self._first[worker] + index]
            yield Event(Kind.MESSAGE, worker, number, index, slot, energy=energy)
        elif kind == Kind.FAILED:
            text = self._tracebacks[worker].tobytes().rstrip(b"\0")
            yield Event(Kind.FAILED, worker, number, text=text.decode(errors="replace"))
        elif kind != Kind.JOINED or index == self._births[worker]:  # else it was forked twice
            yield Event(Kind(kind), worker, number)

    def _stop(self) -> None:
        """End the workers: by their orders, by a signal, and then by their common life."""
        running = {i: line for i, line in enumerate(self._lines) if line is not None}
        for line in running.values():
            # The end of its orders ends a worker, even one that sleeps, and its death can be told.
            with contextlib.suppress(OSError):  # some systems refuse once it is dead
                line.shutdown(socket.SHUT_WR)
        running = {i: running[i] for i in running.keys() & self._pids.keys()}  # they were forked
        for insist in (None, signal.SIGTERM, signal.SIGKILL):
            if insist == signal.SIGKILL:
                _end_life(self._ours)
            for i in running:
                if insist is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._pids[i], insist)
            deadline = time.monotonic() + _GRACE
            while running and (left := deadline - time.monotonic()) > 0:
                if self._hurry and insist != signal.SIGKILL:
                    break
                broken = wait(running.values(), min(left, _HURRY))
                running = {i: line for i, line in running.items() if line not in broken}
        for each in self._lines:
            if each is not None:
                each.close()


class _Layout(NamedTuple):
    """What the shared memory holds: two parts of it, each of which is written by one side."""

    workers: int
    rounds: int  # that a worker is handed at a time
    messages: int
    size: int
    dtype: np.dtype[Any]
    message_size: int
    message_dtype: np.dtype[Any]

    @property
    def told(self) -> _Blocks:
        """Parameters, and the newest round."""
        # Each busy worker can hold a buffer for each round, and the newest parameters need another.
        # Pages of a buffer that is never used are never allocated.
        buffers = self.workers * self.rounds + 1
        return _Blocks([(buffers, self.size, self.dtype), (1, 1, np.dtype(np.int64))])

    @property
    def sent(self) -> _Blocks:
        """Messages and tracebacks."""
        return _Blocks(
            [
                (self.messages, self.message_size, self.message_dtype),
                (self.workers, _TRACEBACK_BYTES, np.dtype(np.uint8)),
            ]
        )


class _Blocks:
    """Blocks of memory: each so many rows, of one length and dtype."""

    def __init__(self, blocks: list[tuple[int, int, np.dtype[Any]]]) -> None:
        self._blocks = blocks

    @staticmethod
    def _stride(length: int, dtype: np.dtype[Any]) -> int:
        return -(-length * dtype.itemsize // 64) * 64  # no two rows share a cache line

    @property
    def nbytes(self) -> int:
        return sum(rows * self._stride(length, dtype) for rows, length, dtype in self._blocks)

    def rows(self, memory: _Memory) -> list[list[Array]]:
        """Of each block, one array a row, which keep the memory for as long as there is one."""
        # An array on the map itself would not claim it, and the map be closed under the array.
        held = np.frombuffer(memory.map, np.uint8)
        offset = 0
        blocks: list[list[Array]] = []
        for rows, length, dtype in self._blocks:
            stride = self._stride(length, dtype)
            strides = stride, dtype.itemsize
            whole: Array = np.ndarray((rows, length), dtype, held, offset, strides)
            blocks.append(list(whole))
            offset += rows * stride
        return blocks


class _Memory:
    """Memory that another process maps too, once it has been given the open file.

    It has no name in the file system, so that however the processes end, it ends with them, and
    the size of /dev/shm does not bound it.
    """

    def __init__(self, nbytes: int, fd: int | None = None, writable: bool = True) -> None:
        self.fd = _anonymous_file() if fd is None else fd
        self.nbytes = nbytes
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        try:
            if fd is None:
                os.ftruncate(self.fd, nbytes)
            self.map = mmap.mmap(self.fd, nbytes, prot=access)
        except BaseException:
            if fd is None:
                os.close(self.fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file descriptor; the mapping stays as long as it has arrays."""
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self.map.close()


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fastgc")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


# The programs' ends of the pipes that workers live by. A fork of the program closes its copies.
_lives: set[int] = set()


def _end_life(end: int) -> None:
    if end in _lives:
        _lives.remove(end)
        os.close(end)


def _end_lives() -> None:
    for end in list(_lives):
        _end_life(end)


os.register_at_fork(after_in_child=_end_lives)


@contextlib.contextmanager
def _interrupts_put_off() -> Iterator[list[int]]:
    """Let Ctrl-C wait for what must not be done by halves; yields those that wait."""
    before = signal.getsignal(signal.SIGINT)
    waiting: list[int] = []
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield waiting  # none is told of here
        return
    signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield waiting
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def work(numbers: Sequence[int], files: Sequence[int]) -> None:
    """Run a worker process until its orders end."""
    number, birth, *sizes = numbers
    inbox, outbox, life, *memories = files
    fork_server.end_with(life)
    # Else what it forks would keep its line whole after its death.
    os.register_at_fork(after_in_child=functools.partial(os.close, inbox))
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(f"fastgc-{number}")  # what ps and top call it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the master ends the workers
    kernels.threads.set_num_threads(1)
    common, data = (
        _Memory(size, fd, False).map for size, fd in zip(sizes, memories[2:], strict=False)
    )
    layout, prepared, environment, pickled = pickle.loads(common)
    told = _Memory(layout.told.nbytes, memories[0], writable=False)
    sent = _Memory(layout.sent.nbytes, memories[1])
    thetas, [newest] = layout.told.rows(told)
    messages, tracebacks = layout.sent.rows(sent)

    def announce(kind: Kind, index: int, round: int, energy: float = 0.0) -> None:
        try:
            os.write(outbox, _ANNOUNCEMENT.pack(kind, number, index, round, energy))
        except BrokenPipeError:
            os._exit(1)  # the master is gone

    round, worker = _NONE, None
    try:
        os.environ.clear()
        os.environ.update(environment)
        backend, task = _load(prepared, pickled)
        kernels.use_backend(backend)
        slots = messages[task.code.message_number(number) :]
        worker = Worker(number, task, pickle.loads(data), slots)
        announce(Kind.JOINED, birth, _NONE)
        orders = _Orders(inbox)
        while order := orders.wait():
            round, buffer, first, delay = order
            for index in range(first, worker.message_count):
                if not orders.sleep(0.0):
                    return
                if orders.newer:
                    break
                if round < newest[0]:
                    announce(Kind.LEFT, _NONE, round)
                    break
                seconds = worker.sleep_before(index, delay)
                if seconds > 0.0 and not orders.sleep(seconds):
                    return
                _, energy = worker.message(thetas[buffer], index, round)
                announce(Kind.MESSAGE, index, round, energy)
    except BaseException as error:
        text = failure(worker, _TRACEBACK_BYTES)
        if isinstance(error, _UnguardedError):
            text = f": {error}".encode()
        tracebacks[number][: len(text)] = np.frombuffer(text, np.uint8)
        announce(Kind.FAILED, _NONE, round)


def _load(prepared: dict[str, Any], pickled: bytes) -> tuple[str, Task]:
    """Get ready as processes of multiprocessing do, which import the program; and load the task."""
    process = multiprocessing.current_process()
    process._inheriting = True  # type: ignore[attr-defined]
    try:
        spawn.prepare(prepared)
        backend, task = pickle.loads(pickled)
    finally:
        del process._inheriting  # type: ignore[attr-defined]
    return backend, task


class _UnguardedError(RuntimeError):
    """A worker imports the program, and this starts a cluster."""


class _Orders:
    """The rounds that a worker is handed."""

    def __init__(self, inbox: int) -> None:
        self._inbox = inbox
        self.newer: tuple[int, int, int, float] | None = None  # arrived, but not waited for

    def wait(self) -> tuple[int, int, int, float] | None:
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
