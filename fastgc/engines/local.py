"""Gradient coding on the worker processes of one machine.

Parameters, messages, orders (rounds handed to workers) and news (events of messages) cross in
memory that master and workers share. No lock guards it, because every part has one owner at a time.
A worker owns its message slot and the parameters it reads from the moment it is handed a round
until its news of that round is taken; at any other time the master owns them. Over its line, a
socket, a worker tells that it has joined or failed; the line breaks when it dies.

Nothing forces a worker to keep to that. So each worker gets three pieces of memory: one that only
the master can write to; one that no other worker has, whose contents the master does not trust; and
a word that all workers count down, through which a worker can cost the master nothing but time.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import multiprocessing
import os
import pickle
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import spawn
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from .. import kernels
from .._base.arrays import Array
from . import fork_server
from .interface import Answering, Buffers, Event, Kind, Question, Task
from .master import Master
from .memory import Memory, main_is_importable
from .rings import Rings
from .worker import TRACEBACK_BYTES, Worker, as_process, failure, reply

_NOTICE = struct.Struct("=qq")  # kind, round: a notice that a worker sends over its line
_SIZE = struct.Struct("=q")  # bytes of the question that follows
_ANSWER = struct.Struct("=qqd")  # question's number, kind, energy; the answer lies in memory
_NONE = -1
_NOBODY = 0  # a birth that no worker has: each worker process has its number, from 1
_BELL_BYTES = 1 << 16  # bytes of the bell to read at once
# Seconds of one call that waits. A worker that is stopped after it published a message and before
# it rang the bell is noticed after that time.
_LONGEST_WAIT = 0.05
_GRACE = 1.0  # seconds for workers to end before SIGTERM, and again before SIGKILL
_HURRY = 0.05  # while workers end: seconds between looks at who is left, and for Ctrl-C
_SERVERS = 3  # servers to try, if they end by themselves before they answer
_BELL, _SERVER = -1, -2  # selector keys that are not workers


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
    """Worker processes, and the memory shared with them."""

    def __init__(self, task: Task) -> None:
        code = task.code
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise _ProgramError(
                "a worker process imported your program, which starts a cluster when imported: "
                'put what starts it under if __name__ == "__main__":'
            )
        # A worker that sends several messages looks for a newer round before each of them. So it
        # may have two rounds in hand: it leaves the older one when it sees the newer one.
        self.ahead = 1 if code.scheme.messages_per_worker == 1 else 2
        self.exposed = True
        self.asks = task.asks
        self._master = os.getpid()
        self._task = task
        self._first = list(code.scheme.first_messages)
        self._number = _NONE
        self._buffers = Buffers()
        self._layout = _Layout(task, self.ahead)
        self._births = [0] * code.n
        self._pids: dict[int, int] = {}
        # Orders that are not given yet: workers, their first messages, and delays.
        self._handed: tuple[list[int], list[int], list[float]] = ([], [], [])
        # Each worker's line. It breaks when the worker dies.
        self._lines: list[socket.socket | None] = [None] * code.n
        # Each worker's second line, for questions and answers; none if nobody is asked.
        self._asking: list[socket.socket | None] = [None] * code.n
        self._unsent = [b""] * code.n  # the part of a question that did not fit into that line yet
        # For each worker, its unanswered questions by number.
        self._questions: list[dict[int, Question]] = [{} for _ in range(code.n)]
        self._asked: dict[int, int] = {}  # workers to be forked, by the server's tickets
        # Workers that died or were expelled, and whose death is not reported yet: what is known of
        # the cause. A worker that is still to be forked is reported once the server has answered.
        self._gone: dict[int, str] = {}
        self._joined: set[int] = set()
        self._failures = 0  # servers in a row that ended without an answer
        self._hurry: list[int] = []  # pending Ctrl-C while the cluster closes
        self._resources = contextlib.ExitStack()
        try:
            self._start()
        except OSError as error:
            self.close()
            if error.errno == errno.EMFILE:
                files = code.n * (3 if self.asks else 2)
                raise OSError(
                    error.errno,
                    f"{code.n} workers need {files} open files besides those of the program, more "
                    "than the limit: raise it, with ulimit -n in a shell",
                ) from None
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if os.getpid() == self._master:  # else this is a fork of the master's process
            with _interrupts_put_off() as self._hurry:
                self._resources.close()

    def _start(self) -> None:
        resources = self._resources
        # Workers end when this pipe is closed, however that happens.
        self._life, ours = os.pipe()
        resources.callback(os.close, self._life)
        self._ours = ours
        _lives.add(ours)
        resources.callback(_end_life, ours)
        self._told = resources.enter_context(Memory(self._layout.told.nbytes, alone=True))
        self._wanted = resources.enter_context(Memory(self._layout.wanted.nbytes))
        thetas, self._newest, orders = self._layout.told.arrays(self._told)
        self._thetas = list(thetas)
        [wanted] = self._layout.wanted.arrays(self._wanted)
        # Memory of each worker, set when it is started.
        n, nothing = len(self._lines), np.empty(0, np.uint8)
        self._slots = [nothing] * self._first[n]
        self._tracebacks, self._answers = [nothing] * n, [nothing] * n
        resources.callback(self._forget)
        self._selector = resources.enter_context(selectors.DefaultSelector())
        # The write end stays open here, so the pipe never ends; broken lines report deaths.
        ends = self._heard, self._bell = os.pipe()
        for end in ends:
            resources.callback(os.close, end)
        for end in ends:
            os.set_blocking(end, False)
        self._files = self._selector.fileno() if hasattr(self._selector, "fileno") else -1
        self._selector.register(self._heard, selectors.EVENT_READ, _BELL)
        self._rings = Rings(
            self._newest, orders, wanted, self._layout.capacity, self._bell, self._rouse
        )
        resources.callback(self._stop)

        main = sys.modules["__main__"]
        if not hasattr(main, "__spec__"):  # after IPython's second %run; multiprocessing reads it
            main.__spec__ = None
        prepared = spawn.get_preparation_data("fastgc-worker")
        if not (main_is_importable() and getattr(self._task.gradient, "of_main", True)):
            prepared = {key: v for key, v in prepared.items() if not key.startswith("init_main")}
        prepared["authkey"] = bytes(prepared["authkey"])  # its own type refuses to be pickled
        environment = os.environ | dict.fromkeys(fork_server.THREADS, "1")
        common = self._layout, prepared, environment
        self._common = resources.enter_context(Memory.of(common))
        task = kernels.backend(), self._task.without_data()
        self._shared = resources.enter_context(Memory.of(task))
        self._server: fork_server.Connection | None = None
        resources.callback(self._disconnect)
        self._connect()
        for worker in range(self._task.code.n):
            self._launch(worker)

    def _connect(self) -> None:
        modules = [__name__, f"{kernels.__name__}.{kernels.backend()}"]
        required = getattr(self._task.gradient, "modules", ())
        with _interrupts_put_off():
            self._server = fork_server.connect(f"{__name__}:work", modules, required)
            self._selector.register(self._server, selectors.EVENT_READ, _SERVER)

    def _disconnect(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            self._selector.unregister(server)
            server.close()

    def _launch(self, worker: int) -> None:
        assert self._server is not None
        self._births[worker] += 1
        self._joined.discard(worker)
        # Pickled here, so that a worker that cannot load its data has a traceback to send. In
        # memory and not in a pipe, which would block the master until the new process reads it.
        with (
            _interrupts_put_off(),
            Memory.of(self._task.data(worker)) as data,
            Memory(self._layout.sent.nbytes) as sent,
        ):
            self._listen_in(worker, sent)
            self._rings.admit(worker, self._births[worker])
            read = (self._common, self._shared, data)
            memories = [m.fd for m in (self._told, self._wanted, sent, *read)]
            numbers = (worker, self._births[worker], *(m.nbytes for m in read))
            with contextlib.ExitStack() as theirs:
                inbox = self._connected(self._lines, worker, theirs)
                files = [inbox, self._bell, self._life, *memories]
                if self.asks:
                    files.append(self._connected(self._asking, worker, theirs))
                self._asked[self._server.fork(numbers, files)] = worker

    def _listen_in(self, worker: int, sent: Memory) -> None:
        """Read what a worker sends from this memory from now on."""
        slots, [traceback], [answer], [news] = self._layout.sent.arrays(sent)
        self._tracebacks[worker], self._answers[worker] = traceback, answer
        first, end = self._first[worker : worker + 2]
        # A new list: `Rings.gather` looks for the slots again only if the list is another.
        self._slots = [*self._slots[:first], *slots[: end - first], *self._slots[end:]]
        self._rings.renew(worker, news)

    def _connected(
        self, lines: list[socket.socket | None], worker: int, theirs: contextlib.ExitStack
    ) -> int:
        """Make a line to a worker and listen to it; return its end of it, which `theirs` closes."""
        ours, end = socket.socketpair()
        theirs.enter_context(end)
        lines[worker] = ours
        kind = worker if lines is self._lines else worker + len(lines)
        self._selector.register(ours, selectors.EVENT_READ, kind)
        return end.fileno()

    def _hear_server(self) -> None:
        """Note who was forked; replace the server if it is lost."""
        assert self._server is not None
        for ticket, pid in self._server.answers():
            worker = self._asked.pop(ticket)
            if pid != fork_server.NONE:  # else its line breaks, which reports its death
                self._pids[worker] = pid
                if self._gone.get(worker):
                    self._kill(worker)
        if self._server.lost:  # ask a new server for those who were not forked
            if self._server.ready or self._server.killed:
                self._failures = 0
            else:
                self._failures += 1
            if self._failures == _SERVERS:
                raise OSError("the process that workers are forked from ended while it started")
            again = list(self._asked.values())
            self._disconnect()
            self._connect()
            self._asked.clear()
            for worker in again:
                self._hang_up(worker)
                self._launch(worker)

    def _expel(self, worker: int, why: str) -> None:
        """Kill a worker that sent what no worker sends; it counts as dead."""
        line = self._lines[worker]
        if line is not None and worker not in self._gone:
            self._selector.unregister(line)
            self._gone[worker] = f": it was ended, for {why}"
            self._rings.admit(worker, _NOBODY)
            self._kill(worker)

    def _kill(self, worker: int) -> None:
        if worker in self._pids:
            with contextlib.suppress(OSError):
                os.kill(self._pids[worker], signal.SIGKILL)

    def _deaths(self) -> list[Event]:
        """The deaths of workers that were forked and are gone; each is reported once."""
        told = []
        for worker in self._gone.keys() - self._asked.values():
            told.append(Event(Kind.DIED, worker, text=self._gone[worker]))
            self._pids.pop(worker, None)
            self._hang_up(worker)
        return told

    def _hang_up(self, worker: int) -> None:
        line, self._lines[worker] = self._lines[worker], None
        if line is not None:
            if worker not in self._gone:
                self._selector.unregister(line)
            line.close()
        self._ask_no_more(worker)
        self._gone.pop(worker, None)

    def _ask_no_more(self, worker: int) -> None:
        line, self._asking[worker] = self._asking[worker], None
        self._questions[worker].clear()
        self._unsent[worker] = b""
        if line is not None:
            self._selector.unregister(line)
            line.close()

    def _rouse(self, worker: int) -> None:
        """Wake a worker that waits at its line."""
        line = self._lines[worker]
        if line is not None:
            with contextlib.suppress(OSError):  # `listen` reports a worker's death
                line.send(b"\0", socket.MSG_DONTWAIT)

    def _forget(self) -> None:
        """Drop the arrays in shared memory, as far as the start made them."""
        for name in ("thetas", "newest", "slots", "tracebacks", "answers", "rings"):
            vars(self).pop(f"_{name}", None)

    def restart(self, worker: int) -> None:
        self._launch(worker)

    def pids(self) -> dict[int, int]:
        """Process ids of the workers that run, as far as they are known; from any thread."""
        return self._pids.copy()

    def publish(self, number: int, theta: Array, in_use: set[int]) -> None:
        self._buffer = self._buffers.take(number, in_use)
        self._thetas[self._buffer][:] = theta
        self._newest[0, 0] = self._number = number

    def hand(self, workers: Sequence[int], first: int, delays: Sequence[float]) -> None:
        to, firsts, seconds = self._handed
        to += workers
        firsts += [first] * len(workers)
        seconds += delays

    def ask(self, worker: int, question: Question) -> None:
        # A worker that has not read its last question gets no other: it is silent anyway.
        if self._send(worker):
            packed = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
            self._questions[worker][question.number] = question
            self._unsent[worker] = _SIZE.pack(len(packed)) + packed
            self._send(worker)

    def _send(self, worker: int) -> bool:
        """Send as much of a question as the line takes; return whether nothing is left to send."""
        line = self._asking[worker]
        with contextlib.suppress(OSError):  # it is full, or broken: then `listen` reports the death
            while line is not None and (rest := self._unsent[worker]):
                self._unsent[worker] = rest[line.send(rest, socket.MSG_DONTWAIT) :]
        return line is not None and not self._unsent[worker]

    def listen(self, seconds: float) -> list[Event]:
        if self._handed[0]:
            self._rings.hand(*self._handed, self._number, self._buffer)
            for each in self._handed:
                each.clear()
        rings, wait = self._rings, seconds > 0
        # Most calls end in one call of C: `look` takes what there is, `gather` waits for messages
        # where they lie. The selector below reads lines, the bell and the server.
        assert self._server is not None
        if not wait and rings.look is not None and time.monotonic() < self._server.deadline:
            found = rings.look(self._files, self._heard)
            if found is not None:
                return self._events(found)
        elif wait and self.intake is not None and rings.gather is not None:
            most = min(seconds, _LONGEST_WAIT)
            news = rings.gather(self.intake, self._slots, self._files, self._heard, most)
            if news or self.intake.pending:
                return self._events(news)
            seconds = 0.0  # the intake has waited, and something else may have happened
        else:
            news = rings.want(self.wanted) if wait else rings.take()
            if news:
                return self._events(news)
        until_late = self._server.deadline - time.monotonic()
        happened = self._selector.select(max(0.0, min(seconds, until_late, _LONGEST_WAIT)))
        told = [key.data for key, _ in happened]
        if _BELL in told:
            with contextlib.suppress(BlockingIOError):
                os.read(self._heard, _BELL_BYTES)
        # Take news after `select`: what a dead worker told lies in memory before its line breaks,
        # so its messages come before its death.
        events = self._events(self._rings.take()) if wait or told else []
        n = len(self._lines)
        for worker in told:
            if worker >= n:
                events += self._answered(worker - n)
        for worker in told:
            if 0 <= worker < n:
                events += self._notices(worker)
        if self._gone or _SERVER in told or until_late <= 0.0:
            self._hear_server()
        return events + self._deaths() if self._gone else events

    def _events(self, news: list[Any]) -> list[Event]:
        """The events of news that came through shared memory."""
        slots, first = self._slots, self._first
        events = []
        for when, worker, number, index, energy in news:
            slot = first[worker] + index
            if index >= 0 and slot < first[worker + 1]:
                message = slots[slot]
                event = Event(Kind.MESSAGE, worker, number, index, message, "", energy, when)
                events.append(event)
            elif index == _NONE:
                events.append(Event(Kind.LEFT, worker, number))
            else:
                self._expel(worker, "it told of a message that it cannot have")
        return events + self._deaths() if self._gone else events

    def _notices(self, worker: int) -> Iterator[Event]:
        """The events that came over a worker's line, which may be broken."""
        line = self._lines[worker]
        if line is None or worker in self._gone:
            return
        try:
            sent = line.recv(2 * _NOTICE.size, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            sent = b""
        if not sent:
            self._selector.unregister(line)
            self._gone[worker] = ""
            return
        rest = len(sent) % _NOTICE.size
        for kind, number in _NOTICE.iter_unpack(sent[: len(sent) - rest]):
            if kind == Kind.FAILED:
                text = self._tracebacks[worker].tobytes().rstrip(b"\0").decode(errors="replace")
                yield Event(Kind.FAILED, worker, number, text=text)
            elif kind == Kind.JOINED and worker not in self._joined:
                self._joined.add(worker)
                yield Event(Kind.JOINED, worker, number)
            else:
                rest = 1
        if rest:
            self._expel(worker, "it wrote to its line what no worker does")

    def _answered(self, worker: int) -> Iterator[Event]:
        """The answers that came over a worker's second line, which may be broken."""
        line = self._asking[worker]
        if line is None:
            return
        try:
            sent = line.recv(_ANSWER.size, socket.MSG_DONTWAIT)  # workers write whole answers
        except BlockingIOError:
            return
        except OSError:
            sent = b""
        if not sent:
            self._ask_no_more(worker)
            return
        number, kind, energy = _ANSWER.unpack(sent.ljust(_ANSWER.size, b"\0"))
        question, memory = self._questions[worker].pop(number, None), self._answers[worker]
        if len(sent) < _ANSWER.size or question is None or kind not in (Kind.ANSWER, Kind.LEFT):
            self._ask_no_more(worker)
            self._expel(worker, "it answered what it was not asked")
            return
        answer = self._task.answer_in(memory) if kind == Kind.ANSWER else None
        yield Event(Kind.ANSWER, worker, question.round, number, answer, energy=energy)

    def _stop(self) -> None:
        """End the workers: by orders, by signals, and at last by the pipe that they live by."""
        running = {i: line for i, line in enumerate(self._lines) if line is not None}
        for worker in running:  # this also ends workers that sleep
            self._rings.admit(worker, _NOBODY)
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
                heard = wait(running.values(), min(left, _HURRY))
                running = {
                    i: line for i, line in running.items() if line not in heard or _is_whole(line)
                }
        for each in (*self._lines, *self._asking):
            if each is not None:
                each.close()


def _is_whole(line: socket.socket) -> bool:
    """Read from a line; return whether there was something, and not its end."""
    try:
        return bool(line.recv(_NOTICE.size, socket.MSG_DONTWAIT))
    except OSError:
        return False


class _Layout:
    """The layout of shared memory: what the master, all processes, and one worker write."""

    def __init__(self, task: Task, rounds: int) -> None:
        """`rounds` is how many a worker may have in hand at a time."""
        n, messages = task.code.n, task.code.scheme.messages_per_worker
        # Most news of a worker at a time: each message of its rounds, and leaving each round.
        self.capacity = rounds * (messages + 1)
        byte, shapes = np.dtype(np.uint8), Rings.shapes(n, self.capacity)

        def ring(name: str) -> tuple[int, int, np.dtype[Any]]:
            rows, numbers = (1, *shapes[name])[-2:]
            return rows, numbers, np.dtype(np.int64)

        # Written by the master: parameters, the newest round, and orders. Each busy worker may
        # still read one buffer of parameters per round, and the newest ones need another one. Pages
        # of a buffer that is never used are never allocated.
        parameters = n * rounds + 1, task.parameters, task.dtype
        self.told = _Blocks([parameters, ring("newest"), ring("orders")])
        # Written by all: the number of news that the master sleeps for; workers count it down.
        self.wanted = _Blocks([ring("wanted")])
        # Written by one worker: messages, traceback, answer (if anybody is asked), and news.
        own = messages, task.message_size, task.message_dtype
        texts = [(1, TRACEBACK_BYTES, byte), (1, task.answer_bytes, byte)]
        self.sent = _Blocks([own, *texts, ring("news")])


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


# The master's ends of the pipes that workers live by. A fork of the program closes its copies.
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
    """Delay Ctrl-C in a step that must not be interrupted; yield the list of delayed signals."""
    before = signal.getsignal(signal.SIGINT)
    waiting: list[int] = []
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield waiting  # stays empty
        return
    signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield waiting
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            signal.raise_signal(signal.SIGINT)


class _Line:
    """A worker's end of its line; tracebacks go to shared memory."""

    def __init__(self, inbox: int, traceback: Array) -> None:
        self._inbox, self._traceback = inbox, traceback

    def tell(self, kind: Kind, round: int) -> None:
        try:
            os.write(self._inbox, _NOTICE.pack(kind, round))
        except OSError:
            os._exit(1)  # the master is gone, or has given up this birth

    def fail(self, round: int, text: bytes) -> None:
        self._traceback[: len(text)] = np.frombuffer(text, np.uint8)
        self.tell(Kind.FAILED, round)


def work(numbers: Sequence[int], files: Sequence[int]) -> None:
    """Run a worker process until its orders end."""
    number, birth, *sizes = numbers[:5]
    inbox, bell, life, *memories = files[:9]
    fork_server.end_with(life)
    # Otherwise a process that the worker forks would keep the line open after the worker's death.
    os.register_at_fork(after_in_child=functools.partial(os.close, inbox))
    as_process(number)
    # Pages are shared with the program, except those that this process writes to.
    common, shared, data = (
        Memory(size, fd, "copy") for size, fd in zip(sizes, memories[3:], strict=False)
    )
    layout, prepared, environment = common.load()
    told = Memory(layout.told.nbytes, memories[0], "read")
    thetas, newest, orders = layout.told.arrays(told)
    [wanted] = layout.wanted.arrays(Memory(layout.wanted.nbytes, memories[1]))
    slots, [traceback], [answer], [news] = layout.sent.arrays(
        Memory(layout.sent.nbytes, memories[2])
    )
    thetas = list(thetas)

    line = _Line(inbox, traceback)
    round, worker = _NONE, None
    try:
        os.environ.clear()
        os.environ.update(environment)
        backend, task = _load(prepared, shared)
        kernels.use_backend(backend)
        worker = Worker(number, task, data.load(), slots)
        for questions in files[9:]:  # one line, or none
            _answer_questions(worker, task, questions, answer, line)
        rings = Rings(newest, orders, wanted, layout.capacity, bell, inbox=inbox)
        rings.place(number, news)
        read = rings.given(number)  # orders so far went to earlier births
        line.tell(Kind.JOINED, _NONE)
        # With many processes on few cores, caches are cold at each turn: every call counts here.
        wait, order_of, tell, compute = rings.wait, rings.order, rings.tell, worker.compute
        count, now = worker.message_count, newest.data  # a memoryview is read in half the time
        while (given := wait(number, birth, read, math.inf)) >= 0:
            if given == read:  # woken by a signal
                continue
            read = given
            round, buffer, first, delay = order_of(number, read)
            for index in range(first, count):
                if index > first and (given := wait(number, birth, read, 0.0)) != read:
                    break
                if round < now[0, 0]:
                    tell(number, round, _NONE, 0.0)
                    break
                if delay:
                    seconds = worker.sleep_before(index, delay)
                    given = _sleep(seconds, read, lambda *left: wait(number, birth, *left))
                    if given < 0:
                        return
                _, energy = compute(thetas[buffer], index, round)
                tell(number, round, index, energy)
    except BaseException as error:
        text = failure(worker)
        if isinstance(error, _ProgramError):
            text = f": {error}".encode()
        line.fail(round, text)


def _answer_questions(worker: Worker, task: Task, file: int, memory: Array, line: _Line) -> None:
    """Answer questions from a line in another thread, while this one computes."""

    def run() -> None:
        with open(file, "rb", closefd=False) as asked:
            while size := asked.read(_SIZE.size):
                question: Question = pickle.loads(asked.read(*_SIZE.unpack(size)))
                kind, _, energy, text = reply(worker, question, task.answer_in(memory))
                if kind == Kind.FAILED:
                    line.fail(question.round, text)
                    return
                os.write(file, _ANSWER.pack(question.number, kind, energy))

    threading.Thread(target=run, name="fastgc answers", daemon=True).start()


def _load(prepared: dict[str, Any], shared: Memory) -> tuple[str, Task]:
    """Import the program, as processes of multiprocessing do; return backend and task."""
    process = multiprocessing.current_process()
    process._inheriting = True  # type: ignore[attr-defined]
    try:
        spawn.prepare(prepared)
        backend, task = shared.load()
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
    return backend, task


class _ProgramError(RuntimeError):
    """A mistake in the program that workers import, told in a sentence."""


def _sleep(seconds: float, given: int, wait: Callable[[int, float], int]) -> int:
    """Sleep for `seconds`, whatever orders come; return their number then, or -1 at once to end."""
    until = time.monotonic() + seconds
    while given >= 0 and (left := until - time.monotonic()) > 0.0:
        given = wait(given, left)
    return given
