"""Gradient coding on the worker processes of one machine.

Parameters and messages cross in memory that master and workers share; pipes carry only records of
a few bytes. No lock guards the memory, because every part of it has one owner at a time: from the
moment a worker is handed a round until its announcement arrives, its message slot and the
parameters it reads are the worker's; at any other time they are the master's.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import multiprocessing
import os
import pickle
import select
import selectors
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .interface import Event, Kind, Task
from .master import Master
from .worker import Worker, failure

__all__ = ["LocalCluster"]

Array = NDArray[Any]

_COMMAND = struct.Struct("=qqqd")  # round, parameter buffer, first message, delay in seconds
_ANNOUNCEMENT = struct.Struct("=iiiq")  # kind, worker, message, round
_NONE = -1
_INBOX_BYTES = 4096 * _ANNOUNCEMENT.size  # more than a pipe holds, in whole records
_TRACEBACK_BYTES = 1 << 14
_LONGEST_WAIT = 1e6  # seconds, of one call that waits: epoll takes no more than 2e6
_FILES = 3  # of each worker: its line, and two that multiprocessing keeps
_GRACE = 1.0  # seconds to leave before SIGTERM, and again before SIGKILL
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class LocalCluster(Master):
    """One worker process for each worker of a code, on this machine.

    Parameters, and what a worker's slowness or death means, are those of
    `fastgc.engines.master.Master`.

    Notes
    -----
    The processes come from the ``forkserver`` of ``multiprocessing``, so as always a script has to
    guard its start with ``if __name__ == "__main__":``. The fork server is started with one BLAS
    thread per process, n workers being parallel enough; if the program has started it before, it
    keeps the number it has. A program that itself calls ``os.fork`` while a cluster is open leaves
    it to the parent: should that die without closing it, the workers live as long as the fork.

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
        self._processes: list[BaseProcess | None] = [None] * code.n
        self._pids: dict[int, int] = {}
        # A line each, for its orders. It breaks when the worker dies, whereas the sentinel of the
        # process breaks also when the fork server does, which workers outlive.
        self._lines: list[Connection | None] = [None] * code.n
        self._resources = contextlib.ExitStack()
        try:
            self._start()
        except OSError as error:
            self.close()
            if error.errno == errno.EMFILE:
                raise OSError(
                    error.errno,
                    f"{code.n} workers need {_FILES * code.n} open files besides those of the "
                    "program, more than the limit: raise it, with ulimit -n in a shell",
                ) from None
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if os.getpid() == self._master:  # else in a fork of it, which they do not work for
            self._resources.close()

    def _start(self) -> None:
        resources = self._resources
        self._context = multiprocessing.get_context("forkserver")
        self._memory = resources.enter_context(_Memory(self._layout.nbytes))
        self._slots, self._thetas, self._tracebacks, self._newest = self._layout.rows(self._memory)
        for rows in (self._slots, self._thetas, self._tracebacks, self._newest):
            resources.callback(rows.clear)
        self._selector = resources.enter_context(selectors.DefaultSelector())
        # The write end stays open here too: deaths are told by the lines, not by its closing.
        results, self._announce = (
            resources.enter_context(end) for end in self._context.Pipe(duplex=False)
        )
        self._results = results.fileno()
        os.set_blocking(self._results, False)
        self._selector.register(results, selectors.EVENT_READ, None)
        resources.callback(_stop, self._processes, self._lines, self._pids)

        environment = {name: os.environ.get(name) for name in ("PYTHONPATH", "PYTHONSAFEPATH")}
        common = pickle.dumps((kernels.backend(), environment, self._task.without_data()))
        self._common = resources.enter_context(_Memory(len(common)))
        self._common.map[:] = common
        self._context.set_forkserver_preload([__name__, f"{kernels.__name__}.{kernels.backend()}"])
        for worker in range(self._task.code.n):
            self._launch(worker)

    def _launch(self, worker: int) -> None:
        inbox, self._lines[worker] = self._context.Pipe()
        # Pickled here, so that a worker that cannot load it has a traceback to send. In memory, not
        # in a pipe, which would hold the master up for as long as the new process does not read it.
        pickled = pickle.dumps(self._task.data(worker), pickle.HIGHEST_PROTOCOL)
        with inbox, _Memory(len(pickled)) as data, _server_environment():
            data.map[:] = pickled
            process = self._context.Process(
                target=_work,
                args=(
                    worker,
                    inbox,
                    self._announce,
                    self._memory,
                    self._layout,
                    self._common,
                    data,
                ),
                name=f"fastgc-{worker}",
                daemon=True,
            )
            process.start()
        self._processes[worker] = process
        assert process.pid is not None
        self._pids[worker] = process.pid
        self._selector.register(self._line(worker), selectors.EVENT_READ, worker)

    def _line(self, worker: int) -> Connection:
        line = self._lines[worker]
        assert line is not None
        return line

    def restart(self, worker: int) -> None:
        process, line = self._processes[worker], self._line(worker)
        assert process is not None
        self._processes[worker] = self._lines[worker] = None
        line.close()
        _release(process)
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
        order = _COMMAND.pack(self._number, self._buffer, first, delay)
        with contextlib.suppress(ConnectionError):  # listen() tells of the death
            os.write(self._line(worker).fileno(), order)

    def listen(self, seconds: float) -> list[Event]:
        events: list[Event] = []
        happened = self._selector.select(min(seconds, _LONGEST_WAIT))
        if not happened:
            return events
        # Read after select(): what a dead worker announced was in the pipe before its line broke,
        # and so stands in front of its death.
        with contextlib.suppress(BlockingIOError):
            announced = os.read(self._results, _INBOX_BYTES)
            for kind, worker, index, number in _ANNOUNCEMENT.iter_unpack(announced):
                if kind == Kind.MESSAGE:
                    slot = self._slots[self._first[worker] + index]
                    events.append(Event(kind, worker, number, index, slot))
                elif kind == Kind.FAILED:
                    text = self._tracebacks[worker].tobytes().rstrip(b"\0")
                    events.append(Event(kind, worker, number, text=text.decode(errors="replace")))
                else:
                    events.append(Event(kind, worker, number))
        for key, _ in happened:
            if key.data is not None:
                self._selector.unregister(key.fileobj)
                del self._pids[key.data]
                events.append(Event(Kind.DIED, key.data))
        return events


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
        """Close the file descriptor; the mapping stays as long as it has arrays."""
        os.close(self._fd)
        with contextlib.suppress(BufferError):
            self.map.close()


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


def _stop(
    processes: Sequence[BaseProcess | None],
    lines: Sequence[Connection | None],
    pids: dict[int, int],
) -> None:
    running = {i: line for i, line in enumerate(lines) if line is not None}
    for line in running.values():
        # The end of its orders ends a worker, even one that sleeps. Its death can still be told.
        orders = socket.socket(fileno=line.fileno())
        with contextlib.suppress(OSError):  # some systems refuse once it is dead
            orders.shutdown(socket.SHUT_WR)
        orders.detach()
    for insist in (None, signal.SIGTERM, signal.SIGKILL):
        for i in running.keys() & pids.keys():
            if insist is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[i], insist)
        deadline = time.monotonic() + _GRACE
        while running and (left := deadline - time.monotonic()) > 0:
            broken = wait(running.values(), left)
            running = {i: line for i, line in running.items() if line not in broken}
    for each in lines:
        if each is not None:
            each.close()
    for process in processes:
        if process is not None:
            _release(process)


def _release(process: BaseProcess) -> None:
    """Close what is kept for a process whose line is broken."""
    process.join(_GRACE)
    with contextlib.suppress(ValueError):  # "still running": the fork server hangs
        process.close()


def _work(
    number: int,
    commands: Connection,
    announcements: Connection,
    memory: _Memory,
    layout: _Layout,
    common: _Memory,
    data: _Memory,
) -> None:
    """Run a worker process until its commands end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the master ends the workers
    kernels.threads.set_num_threads(1)
    # select() takes descriptors below 1024 only, and dup() returns the lowest that is free.
    inbox, outbox = os.dup(commands.fileno()), announcements.fileno()
    messages, thetas, tracebacks, [newest] = layout.rows(memory)
    for theta in thetas:
        theta.flags.writeable = False

    def announce(kind: Kind, index: int, round: int) -> None:
        try:
            os.write(outbox, _ANNOUNCEMENT.pack(kind, number, index, round))
        except BrokenPipeError:
            os._exit(1)  # the master is gone

    round, worker = _NONE, None
    try:
        backend, environment, task = pickle.loads(common.map)
        _restore_environment(environment)
        kernels.use_backend(backend)
        slots = messages[task.code.message_number(number) :]
        worker = Worker(number, task, pickle.loads(data.map), slots)
        announce(Kind.JOINED, _NONE, _NONE)
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
                worker.message(thetas[buffer], index, round)
                announce(Kind.MESSAGE, index, round)
    except BaseException:
        text = failure(worker, _TRACEBACK_BYTES)
        tracebacks[number][: len(text)] = np.frombuffer(text, np.uint8)
        announce(Kind.FAILED, _NONE, round)


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
