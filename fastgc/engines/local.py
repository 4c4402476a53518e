"""Gradient coding on the worker processes of one machine.

Each worker has a channel of its own, one pair of sockets: `fastgc.engines.channel` defines what
goes over it. Parameters and messages lie in shared memory. A worker owns its messages, and the
parameters that it reads, from its order until it has reported its last message of that round; at
any other time the master owns them.

Nothing forces a worker to keep to that. So memory is of two kinds: parameters, which only the
master can write to; and a worker's own, which no other worker has, and whose contents the master
does not trust. No process can change the size of either.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import multiprocessing
import os
import selectors
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing import spawn
from multiprocessing.connection import wait
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from .._base.arrays import Array
from .._base.deadline import Deadline
from .channel import NONE, Nonsense, Record, SocketEnd, SocketLine, pair
from .interface import Answering, Buffers, Event, Kind, Question, Task
from .master import Master
from .memory import Memory, main_is_importable
from .processes import THREADS, Process, interrupts_put_off, start
from .worker import TRACEBACK_BYTES, Worker, as_process, failure

GRACE = 1.0  # seconds for workers to end before SIGTERM, and again before SIGKILL
_HURRY = 0.05  # while workers end: seconds between looks at who is left, and for Ctrl-C


class LocalCluster(Master):
    """One worker process on this machine for each worker of a code.

    `fastgc.engines.master.Master` explains the parameters, and how slow and dead workers are
    handled.

    Notes
    -----
    Worker processes are forked from a process that has imported what they need. They import your
    program, so a script must guard its start with ``if __name__ == "__main__":``. Each has one BLAS
    thread, and may start processes of its own. If your program calls ``os.fork`` while a cluster is
    open, the cluster stays with the parent.

    Only one thread may use a cluster at a time. Leaving the ``with`` block, ``close()``, an error
    in a round, the end of the program and even its sudden death all end the workers. The shared
    memory has no name, so nothing is left behind.

    Examples
    --------
    >>> with LocalCluster(code, shards, gradient, size=p) as cluster:  # doctest: +SKIP
    ...     report = cluster.step(theta, out=g)
    """

    def _open(self, task: Task) -> _Processes:
        return _Processes(task)


class _Processes(Answering):
    """Worker processes, their channels, and the memory shared with them."""

    def __init__(self, task: Task) -> None:
        code = task.code
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise _ProgramError(
                "a worker process imported your program, which starts a cluster when imported: "
                'put what starts it under if __name__ == "__main__":'
            )
        self.exposed = True
        self.asks = task.asks
        self._master = os.getpid()
        self._task = task
        self._number, self._buffer = NONE, 0
        self._buffers = Buffers()
        self._lines: dict[int, SocketLine] = {}  # of workers that are not known to be gone
        self._processes: dict[int, Process] = {}  # the same workers'
        self._own: dict[int, _Own] = {}  # the memory that each worker writes to
        self._gone: list[Event] = []  # deaths that no line tells of
        self._hurry: list[int] = []  # pending Ctrl-C while the cluster closes
        self._resources = contextlib.ExitStack()
        try:
            self._start()
        except OSError as error:
            self.close()
            if error.errno == errno.EMFILE:
                raise OSError(
                    error.errno,
                    f"{code.n} workers need {2 * code.n} open files besides those of the program, "
                    "more than the limit: raise it, with ulimit -n in a shell",
                ) from None
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if os.getpid() == self._master:  # else this is a fork of the master's process
            with interrupts_put_off() as self._hurry:
                self._resources.close()

    def _start(self) -> None:
        task, resources = self._task, self._resources
        self._layout = _Layout(task)
        with interrupts_put_off():  # or a file could stay open that `resources` do not have yet
            self._told = resources.enter_context(Memory(self._layout.told.nbytes, alone=True))
        resources.callback(self._forget)
        thetas, self._newest = self._layout.told.arrays(self._told)
        self._thetas = list(thetas)
        self._newest[0, 0] = NONE
        self._selector = resources.enter_context(selectors.DefaultSelector())

        main = sys.modules["__main__"]
        if not hasattr(main, "__spec__"):  # after IPython's second %run; multiprocessing reads it
            main.__spec__ = None
        prepared = spawn.get_preparation_data("fastgc-worker")
        if not (main_is_importable() and getattr(task.gradient, "of_main", True)):
            prepared = {key: v for key, v in prepared.items() if not key.startswith("init_main")}
        prepared["authkey"] = bytes(prepared["authkey"])  # its own type refuses to be pickled
        common = self._layout, prepared, os.environ | dict.fromkeys(THREADS, "1")
        with interrupts_put_off():
            self._common = resources.enter_context(Memory.of(common))
            self._shared = resources.enter_context(Memory.of(task.without_data()))
        self._modules = [__name__, kernels.unchecked.__name__]
        resources.callback(self._stop)
        for worker in range(task.code.n):
            self._launch(worker)

    def _forget(self) -> None:
        """Drop the arrays in shared memory."""
        self._own.clear()
        for name in ("thetas", "newest"):
            vars(self).pop(f"_{name}", None)

    def _launch(self, worker: int) -> None:
        task, layout = self._task, self._layout
        required = getattr(task.gradient, "modules", ())
        # Pickled here, so that a worker that cannot load its data has a traceback to send. In
        # memory and not in a pipe, which would block the master until the new process reads it.
        with (
            interrupts_put_off(),
            Memory.of(task.data(worker)) as data,
            Memory(layout.own.nbytes) as own,
            contextlib.ExitStack() as unless_started,
        ):
            line, theirs = pair(task.code.scheme.messages.counts[worker])
            unless_started.callback(line.close)
            read = self._common, self._shared, data
            files = [theirs.fileno(), *(memory.fd for memory in (self._told, own, *read))]
            numbers = (worker, *(memory.nbytes for memory in read))
            with theirs:
                self._processes[worker] = start(work, numbers, files, self._modules, required)
            unless_started.pop_all()
            self._lines[worker], self._own[worker] = line, _Own.of(layout, own)
            self._selector.register(line, selectors.EVENT_READ, worker)

    def restart(self, worker: int) -> None:
        try:
            self._launch(worker)
        except OSError as error:
            self._gone.append(Event(Kind.DIED, worker, text=f": {error}"))

    def pids(self) -> dict[int, int]:
        """Process ids of the workers that run; from any thread."""
        return {worker: process.pid for worker, process in self._processes.copy().items()}

    def publish(self, number: int, theta: Array, in_use: set[int]) -> None:
        self._buffer = self._buffers.take(number, in_use)
        self._thetas[self._buffer][:] = theta
        self._newest[0, 0] = self._number = number

    def hand(self, worker: int, first: int, delay: float) -> None:
        line = self._lines.get(worker)
        if line is not None and not line.order(self._number, self._buffer, first, delay):
            self._gone.append(self._expelled(worker))

    def ask(self, worker: int, question: Question) -> None:
        line = self._lines.get(worker)
        if line is not None:
            line.ask(question.round, question.number, question.what.worker)

    def listen(self, seconds: float) -> list[Event]:
        events, self._gone = self._gone, []
        if events:
            return events
        for key, _ in self._selector.select(seconds):
            worker: int = key.data
            try:
                record = self._lines[worker].read()
            except Nonsense:
                events.append(self._expelled(worker))
                continue
            if record is None:
                self._hang_up(worker)
                events.append(Event(Kind.DIED, worker))
            else:
                events.append(self._event(worker, record))
        return events

    def _event(self, worker: int, record: Record) -> Event:
        """The event of a record that its line has accepted."""
        kind, round, index, more, energy = record
        own = self._own[worker]
        if kind == Kind.MESSAGE:
            when = min(more, time.perf_counter_ns())
            return Event(Kind.MESSAGE, worker, round, index, own.slots[index], "", energy, when)
        if kind == Kind.ANSWER:
            answer = own.slots[-1] if more else None
            return Event(Kind.ANSWER, worker, round, index, answer, "", energy)
        text = ""
        if kind == Kind.FAILED:
            text = own.traceback.tobytes().rstrip(b"\0").decode(errors="replace")
        return Event(Kind(kind), worker, round, text=text)

    def _expelled(self, worker: int) -> Event:
        """End a worker that does what no worker's program does; it counts as dead."""
        self._hang_up(worker)
        return Event(Kind.DIED, worker, text=": it was ended, for it told what no worker tells")

    def _hang_up(self, worker: int) -> None:
        """End a worker that is not heard of any more; it may live though its line has closed."""
        line = self._lines.pop(worker)
        self._selector.unregister(line)
        line.close()
        self._processes.pop(worker).kill()

    def _stop(self) -> None:
        """End the workers: by their channels, by signals, and at last by what they live by."""
        for line in self._lines.values():
            line.end()
        running = self._lines.copy()
        for insist in (None, signal.SIGTERM, signal.SIGKILL):
            for worker in running:
                if insist is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._processes[worker].pid, insist)
                if insist == signal.SIGKILL:
                    self._processes[worker].release()
            grace = Deadline(GRACE)
            while running and (left := grace.left):
                if self._hurry and insist != signal.SIGKILL:
                    break
                wait([line.fileno() for line in running.values()], min(left, _HURRY))
                running = {i: line for i, line in running.items() if not line.ended()}
        for worker in list(self._lines):
            self._hang_up(worker)


class _Layout:
    """The layout of shared memory: what the master writes, and what each worker writes."""

    def __init__(self, task: Task) -> None:
        n, messages = task.code.n, task.code.scheme.messages.per_worker
        # Parameters, and the newest round. Each busy worker may still read one buffer of
        # parameters, and the newest ones need another one. Pages of a buffer that is never used are
        # never allocated.
        newest = 1, 1, np.dtype(np.int64)
        self.told = _Blocks([(n + 1, task.parameters, task.dtype), newest])
        # A worker's messages; its answer, if anybody is asked; and its last words.
        slots = messages + task.asks, task.message_size, task.message_dtype
        self.own = _Blocks([slots, (1, TRACEBACK_BYTES, np.dtype(np.uint8))])


class _Own(NamedTuple):
    """A worker's memory."""

    slots: list[Array]
    traceback: Array

    @classmethod
    def of(cls, layout: _Layout, memory: Memory) -> _Own:
        slots, [traceback] = layout.own.arrays(memory)
        return cls(list(slots), traceback)


class _Blocks:
    """Blocks of memory, each with a number of rows of one length and dtype."""

    def __init__(self, blocks: list[tuple[int, int, np.dtype[Any]]]) -> None:
        self._blocks = blocks

    @staticmethod
    def _stride(length: int, dtype: np.dtype[Any]) -> int:
        return -(-length * dtype.itemsize // 64) * 64  # rows share no cache line

    @property
    def nbytes(self) -> int:
        return sum(rows * self._stride(length, dtype) for rows, length, dtype in self._blocks)

    def arrays(self, memory: Memory) -> list[Array]:
        """One array for each block, with the block's rows; they keep the memory mapped."""
        # An array directly on the map would not keep it: the map could be closed under the array.
        held = np.frombuffer(memory.map, np.uint8)
        offset = 0
        blocks: list[Array] = []
        for rows, length, dtype in self._blocks:
            stride = self._stride(length, dtype)
            strides = stride, dtype.itemsize
            whole: Array = np.ndarray((rows, length), dtype, held, offset, strides)
            blocks.append(whole)
            offset += rows * stride
        return blocks


def work(numbers: Sequence[int], files: Sequence[int]) -> None:
    """Run a worker process until its channel ends."""
    number, *sizes = numbers
    line, *memories = files
    # Otherwise a process that the worker forks would keep the channel open after its death.
    os.register_at_fork(after_in_child=functools.partial(os.close, line))
    as_process(number)
    # Pages are shared with the program, except those that this process writes to.
    common, shared, data = (
        Memory(size, fd, "copy") for size, fd in zip(sizes, memories[2:], strict=True)
    )
    layout, prepared, environment = common.load()
    thetas, [newest] = layout.told.arrays(Memory(layout.told.nbytes, memories[0], "read"))
    own = _Own.of(layout, Memory(layout.own.nbytes, memories[1]))
    channel = SocketEnd(line, newest, list(thetas), own.slots)
    worker: Worker | None = None
    try:
        os.environ.clear()
        os.environ.update(environment)
        task = _load(prepared, shared)
        worker = Worker(number, task, data.load(), own.slots)
        channel.serve(worker)
    except BaseException as error:
        text = failure(worker)
        if isinstance(error, _ProgramError):
            text = f": {error}".encode()
        own.traceback[: len(text)] = np.frombuffer(text, np.uint8)
        channel.tell(Kind.FAILED, channel.round)


def _load(prepared: dict[str, Any], shared: Memory) -> Task:
    """Import the program, as processes of multiprocessing do; return the task."""
    process = multiprocessing.current_process()
    process._inheriting = True  # type: ignore[attr-defined]
    try:
        spawn.prepare(prepared)
        task: Task = shared.load()
    except AttributeError as error:
        if "main__" not in str(error):
            raise
        where = "what a program without a file, a session or a notebook defines: put it into a "
        where += "module, or install cloudpickle"
        if "__mp_main__" in str(error):
            where = 'what a script defines under if __name__ == "__main__": define it above that'
        raise _ProgramError(f"{error}; workers cannot import {where}") from error
    finally:
        del process._inheriting  # type: ignore[attr-defined]
    return task


class _ProgramError(RuntimeError):
    """A mistake in the program that workers import, told in a sentence."""
