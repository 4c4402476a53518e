"""Gradient coding on the ranks that ``torchrun`` starts: rank 0 is the master of the others.

The master and each worker form a process group of two, by gloo. So the death of a worker disturbs
no other, and a worker that was started again joins by a new group. Both sides find each other
through torchrun's store. torchrun ends the job when one of its own processes dies. Therefore that
process only watches another one, which computes, and forks a new one if it is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import queue
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from typing import Any, NoReturn

import numpy as np

from .._base.arrays import Array
from .._base.deadline import LONGEST, Deadline, in_time
from .._base.extras import pip_install
from .interface import NONSENSE, Answering, Buffers, Event, Kind, Question, Task, can_be_told
from .master import Master
from .memory import packed_for_ranks
from .processes import end_with
from .worker import TRACEBACK_BYTES, Worker, as_process, failure, reply

try:
    import torch
    import torch.distributed
except ImportError as error:
    raise ImportError(f"this engine needs PyTorch ({error}): {pip_install('torch')}") from error

__all__ = ["TorchCluster"]

dist: Any = torch.distributed  # exports less than it documents, for type checkers

# What the master sends: kind, round, first message, delay, and what follows the header.
_Order = tuple[int, int, int, float, Array | bytes | None]

_LINE = 64  # bytes of a header
# Kind; round; first message or index; bytes that follow; a number.
_HEADER = struct.Struct("=qqqqd")
_NONE = -1
_ROUND, _NEWS, _END = range(100, 103)  # kinds of orders, besides those of Kind
_START, _BYE = 103, 104
_QUESTION = 105
_LONG = timedelta(seconds=LONGEST)  # of a wait for the other side, which may be at work or asleep
_LOOK = 0.02  # seconds between looks for a worker that is to come
_SECONDS = 60.0  # in which torchrun's store must answer
GRACE = 1.0  # seconds for workers to end when a cluster is closed
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class TorchCluster(Master):
    """Workers on ranks 1 to n of a ``torchrun`` job, with the master on rank 0.

    All ranks run the same program, ``torchrun --nproc-per-node 9 script.py`` for 8 workers. Rank 0
    makes a cluster, and the others call `serve`; `fastgc.train` and `fastgc.torch` do both.

    `fastgc.engines.master.Master` explains the parameters, and how slow and dead workers are
    handled.

    Raises
    ------
    ImportError
        Without PyTorch.
    RuntimeError
        If ``torchrun`` did not start the program, if this rank is not the master, or while another
        cluster is open.
    ValueError
        If the number of ranks does not fit the code.

    Notes
    -----
    When a rank begins to serve, it forks a process that computes. If that process is killed, its
    worker is a straggler until the rank has forked another process. If a rank itself dies, torchrun
    ends the whole job. A worker that still hangs when the program ends is killed.

    Examples
    --------
    >>> if not TorchCluster.serve():  # doctest: +SKIP
    ...     with TorchCluster(code, shards, gradient, size=p) as cluster:
    ...         report = cluster.step(theta, out=g)
    """

    _outage = "late", "the others wait"  # a rank that dies ends the job

    def _open(self, task: Task) -> _Ranks:
        rank, _ = _place()
        if rank != 0:
            raise RuntimeError(
                f"this is rank {rank}: clusters are made on rank 0, and the other ranks take part "
                "by TorchCluster.serve()"
            )
        return _Ranks(task)

    @staticmethod
    def serve() -> bool:
        """On all ranks but the first: be a worker of clusters until the master's program ends.

        Returns
        -------
        bool
            True if this rank was a worker. On the master, False at once.
        """
        rank, _ = _place()
        if rank == 0:
            _the_job()
            return False
        global _served
        if not _served:
            _watch(rank - 1)
            _served = True
        return True

    serve_all = serve


def _place() -> tuple[int, int]:
    """The rank of this process, and the number of ranks."""
    missing = [name for name in _NEEDED if name not in os.environ]
    if missing:
        raise RuntimeError(
            f"this engine runs in a job of torchrun, which sets {', '.join(missing)}: "
            "torchrun --nproc-per-node RANKS script.py, with one rank more than workers"
        )
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _store(keep: bool = False) -> Any:
    """A new connection to the job's store: waiting on it does not delay others."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, None, keep, _LONG, wait_for_workers=False)


def _pair(store: Any, cluster: int, worker: int, birth: int, side: int) -> Any:
    name = f"fastgc/{cluster}/{worker}/{birth}/pair"
    return dist.ProcessGroupGloo(dist.PrefixStore(name, store), side, 2, _LONG)


class _Wire:
    """One side of a pair: sends and receives headers, each followed by some bytes."""

    def __init__(self, group: Any, other: int) -> None:
        self._group, self._other = group, other
        self._header = torch.empty(_LINE, dtype=torch.uint8)
        self._sent = np.zeros(_LINE, np.uint8)
        self._sending = threading.Lock()

    def send(
        self, kind: int, number: int, index: int, value: float, payload: Array | bytes | None = None
    ) -> None:
        if not isinstance(payload, np.ndarray):
            payload = np.frombuffer(bytearray(payload or b""), np.uint8)  # which can be written
        with self._sending:
            _HEADER.pack_into(self._sent.data, 0, kind, number, index, payload.nbytes, value)
            self._group.send([torch.from_numpy(self._sent)], self._other, 0).wait()
            if payload.nbytes:
                self._group.send([_bytes(payload)], self._other, 0).wait()

    def header(self) -> tuple[int, int, int, int, float]:
        self._group.recv([self._header], self._other, 0).wait()
        kind, number, index, nbytes, value = _HEADER.unpack_from(self._header.numpy().data)
        return kind, number, index, nbytes, value

    def payload(self, to: Array | int) -> Array:
        """Receive what follows a header, to an array or to so many new bytes."""
        memory = np.empty(to, np.uint8) if isinstance(to, int) else to
        if memory.nbytes:
            self._group.recv([_bytes(memory)], self._other, 0).wait()
        return memory


def _bytes(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.view(np.uint8).reshape(-1))


# ------------------------------------------------------------------------------------- the master


class _Job:
    """What the clusters of a program share."""

    def __init__(self) -> None:
        self.clusters = 0
        self.open = False
        self.links: list[_Link] = []
        self.connections: queue.SimpleQueue[Any] = queue.SimpleQueue()  # to the store, in no use
        agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        keep = not (agents or dist.is_initialized())  # if nobody else does
        try:
            self.store = in_time(lambda: _store(keep), _SECONDS)
        except Exception as error:
            raise RuntimeError(f"torchrun's store cannot be used: {error}") from error
        atexit.register(self.dismiss)

    def dismiss(self) -> None:
        """Let all ranks end; kill those on this machine that hang."""
        self.store.set(f"fastgc/{self.clusters + 1}", b"over")
        if not self.clusters:
            self.store.set("fastgc/newest", "1")
        late = [link for link in self.links if link.late()]
        for link in late:
            link.kill()
        if late:
            names = ", ".join(str(link.worker + 1) for link in late)
            sys.stderr.write(f"fastgc: ranks {names} hang, and are killed at the end\n")


@cache
def _the_job() -> _Job:
    return _Job()


class _Ranks(Answering):
    """The master's side of a cluster."""

    def __init__(self, task: Task) -> None:
        self._job = job = _the_job()
        code, (_, world) = task.code, _place()
        common, data = packed_for_ranks(task, world, "torchrun --nproc-per-node", job.open)
        job.open = True
        job.clusters += 1
        self._task, self._common, self._data = task, common, data
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._buffers = Buffers()
        self._thetas: list[Array] = []
        self._births = [0] * code.n
        self._links: dict[int, _Link] = {}
        self._number = _NONE
        self.asks = task.asks
        job.store.set("fastgc/newest", str(job.clusters))
        job.store.set(f"fastgc/{job.clusters}", b"go")
        for worker in range(code.n):
            self.restart(worker)

    @property
    def hosts(self) -> list[str]:
        own = os.uname().nodename
        said = [self._links[worker].host for worker in range(self._task.code.n)]
        return ["" if host == own else host for host in said]

    def restart(self, worker: int) -> None:
        self._births[worker] += 1
        start = self._common, self._data[worker]
        self._links[worker] = link = _Link(
            self._task, self._job.clusters, worker, self._births[worker], start, self._events
        )
        others = [each for each in self._job.links if each.worker != worker]
        self._job.links = [*others, link]

    def publish(self, number: int, theta: Array, in_use: set[int]) -> None:
        buffer = self._buffers.take(number, in_use)
        if buffer == len(self._thetas):
            self._thetas.append(np.empty(theta.size, theta.dtype))
        self._number = number
        self._theta = self._thetas[buffer]
        self._theta[:] = theta
        if self._task.code.scheme.messages.per_worker > 1:
            for link in self._links.values():
                link.orders.put((_NEWS, number, 0, 0.0, None))

    def hand(self, worker: int, first: int, delay: float) -> None:
        self._links[worker].orders.put((_ROUND, self._number, first, delay, self._theta))

    def ask(self, worker: int, question: Question) -> None:
        self._links[worker].ask(question)

    def listen(self, seconds: float) -> list[Event]:
        events: list[Event] = []
        with contextlib.suppress(queue.Empty):
            events.append(self._events.get(True, seconds))
            while True:
                events.append(self._events.get_nowait())
        return events

    def close(self) -> None:
        links = list(self._links.values())
        for link in links:
            link.over = True
            link.orders.put((_END, _NONE, 0, 0.0, None))
        self._job.store.set(f"fastgc/{self._job.clusters}/closed", b"")
        grace = Deadline(GRACE)
        for link in links:
            link.receiver.join(grace.left)
        self._job.open = False


class _Link:
    """The master's side of one birth of a worker: one thread sends, another receives."""

    def __init__(
        self,
        task: Task,
        cluster: int,
        worker: int,
        birth: int,
        start: tuple[bytes, bytes],
        events: queue.SimpleQueue[Event],
    ) -> None:
        self.worker, self.over = worker, False
        self.orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._task, self._cluster, self._birth, self._start = task, cluster, birth, start
        self._events = events
        self._pid, self.host = 0, ""
        count = int(task.code.scheme.messages.counts[worker])
        self._slots = [np.empty(task.message_size, task.message_dtype) for _ in range(count)]
        self._questions: dict[int, Question] = {}  # unanswered questions by number
        self.receiver = threading.Thread(target=self._receive, daemon=True)
        self._threads = [self.receiver]
        self.receiver.start()

    def ask(self, question: Question) -> None:
        self._questions[question.number] = question
        packed = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        self.orders.put((_QUESTION, question.round, 0, 0.0, packed))

    def late(self) -> bool:
        """Whether the worker was told to end and has not ended."""
        self.receiver.join(GRACE)
        return self.receiver.is_alive() and self._pid > 0

    def kill(self) -> None:
        """End the worker's process, if it is on this machine."""
        if self._stop():
            # A thread that comes back from gloo while Python ends would abort the program.
            for thread in self._threads:
                thread.join(GRACE)

    def _stop(self) -> bool:
        """Kill the worker's process, if it is on this machine; return whether it is."""
        here = self._pid > 0 and self.host == os.uname().nodename
        if here:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        return here

    def _receive(self) -> None:
        try:
            wire = self._connect()
            if wire is None:
                return
            sender = threading.Thread(target=self._send, args=(wire,), daemon=True)
            self._threads.append(sender)
            sender.start()
            while self._take(wire):
                pass
        except RuntimeError as error:  # gloo's: the other side is gone
            if not self.over:
                text = f": {str(error).splitlines()[0]}"
                self._events.put(Event(Kind.DIED, self.worker, text=text))
                self._stop()  # it may live, and would not come back
        self.orders.put((_END, _NONE, 0, 0.0, None))

    def _connect(self) -> _Wire | None:
        """Wait for this birth of the worker; None if the cluster is over before."""
        # Use a connection again once its pair has met: making one may take seconds.
        connections = _the_job().connections
        try:
            store = connections.get_nowait()
        except queue.Empty:
            store = _store()
        key = f"fastgc/{self._cluster}/{self.worker}"
        while store.add(f"{key}/births", 0) < self._birth:
            if self.over:
                connections.put(store)
                return None
            time.sleep(_LOOK)
        store.set(f"{key}/{self._birth}/invited", b"")
        wire = _Wire(_pair(store, self._cluster, self.worker, self._birth, 0), 1)
        connections.put(store)
        return wire

    def _send(self, wire: _Wire) -> None:
        with contextlib.suppress(RuntimeError):  # the receiver reports the death
            for part in self._start:
                wire.send(_START, _NONE, 0, 0.0, part)
            kind = _START
            while kind != _END:
                kind, number, first, delay, follows = self.orders.get()
                wire.send(kind, number, first, delay, follows)

    def _take(self, wire: _Wire) -> bool:
        """Take what comes next; False at the end."""
        kind, number, index, nbytes, value = wire.header()
        if kind == _BYE:
            return False
        fits = can_be_told(kind, index, len(self._slots))
        if fits and kind == Kind.MESSAGE:
            fits = nbytes == self._slots[index].nbytes
        elif fits:
            fits = 0 <= nbytes <= max(self._task.answer_bytes, TRACEBACK_BYTES)
        if not fits:
            self._events.put(Event(Kind.DIED, self.worker, text=NONSENSE))
            self._stop()
            return False
        if kind == Kind.MESSAGE:
            message = wire.payload(self._slots[index])
            event = Event(Kind.MESSAGE, self.worker, number, index, message, energy=value)
        elif kind == Kind.ANSWER:
            question = self._questions.pop(index, None)
            payload, answer = wire.payload(nbytes), None
            if question is not None and nbytes == self._task.answer_bytes:
                answer = self._task.answer_in(payload)
            event = Event(Kind.ANSWER, self.worker, number, index, answer, energy=value)
        else:
            text = wire.payload(nbytes).tobytes().decode(errors="replace")
            if kind == Kind.JOINED and not self._pid:
                self._pid, self.host, text = index, text, ""
            event = Event(Kind(kind), self.worker, number, text=text)
        self._events.put(event)
        return True


# ------------------------------------------------------------------------------------- the workers

_served = False  # whether this process served until the end of the master's program


def _watch(worker: int) -> None:
    """Fork the process that computes; fork another if it is killed, until one ends by itself."""
    while True:
        life, ours = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _compute(worker, life)
        os.close(life)
        try:
            _, status = os.waitpid(pid, 0)
        finally:
            os.close(ours)
        if not os.WIFSIGNALED(status):
            if code := os.waitstatus_to_exitcode(status):
                raise SystemExit(code)
            return


def _compute(worker: int, life: int) -> NoReturn:
    status = 1
    try:
        end_with(life)
        as_process(worker)
        torch.set_num_threads(1)
        store = _store()
        cluster = int(store.get("fastgc/newest"))
        while store.get(f"fastgc/{cluster}") != b"over":
            _serve(store, cluster, worker)
            cluster += 1
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _serve(store: Any, cluster: int, number: int) -> None:
    """Be the worker of one cluster."""
    key = f"fastgc/{cluster}/{number}"
    birth = store.add(f"{key}/births", 1)
    while not store.check([f"{key}/{birth}/invited"]):
        if store.check([f"fastgc/{cluster}/closed"]):
            return
        time.sleep(_LOOK)
    wire = _Wire(_pair(store, cluster, number, birth, 1), 0)
    common, data = (wire.payload(wire.header()[3]).tobytes() for _ in range(2))
    orders = worker = None
    try:
        task = pickle.loads(common)
        count = int(task.code.scheme.messages.counts[number])
        slots = [np.empty(task.message_size, task.message_dtype) for _ in range(count)]
        worker = Worker(number, task, pickle.loads(data), slots)
        orders = _Orders(wire, np.empty(task.parameters, task.dtype), slots)
        if task.asks:
            threading.Thread(target=orders.answer, args=(worker,), daemon=True).start()
        wire.send(Kind.JOINED, _NONE, os.getpid(), 0.0, os.uname().nodename.encode())
        for _ in orders:
            worker.send_all(orders.theta, orders, orders.send, orders.leave)
    except BaseException:
        round = _NONE if orders is None else orders.round
        wire.send(Kind.FAILED, round, 0, 0.0, failure(worker))
        for _ in orders or _Orders(wire, np.empty(0), []):
            pass
    with contextlib.suppress(RuntimeError):  # the master may not wait for it
        wire.send(_BYE, _NONE, 0, 0.0)


class _Orders:
    """A worker's view of what the master wants, received by a thread."""

    def __init__(self, wire: _Wire, theta: Array, slots: list[Array]) -> None:
        self._wire, self._memory, self._slots = wire, theta, slots
        self.theta = theta.view()
        self.theta.flags.writeable = False
        self.round = self.newest = _NONE
        self.first, self.delay, self.ended = 0, 0.0, False
        self._questions: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._rounds: queue.SimpleQueue[tuple[int, int, float] | None] = queue.SimpleQueue()
        self._end = threading.Event()
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        with contextlib.suppress(RuntimeError):  # the master is gone
            while True:
                kind, number, first, nbytes, delay = self._wire.header()
                if kind == _END:
                    break
                if kind == _QUESTION:
                    self._questions.put(pickle.loads(self._wire.payload(nbytes).tobytes()))
                elif kind == _ROUND:
                    fits = nbytes == self._memory.nbytes  # else the worker failed before it knew it
                    self._wire.payload(self._memory if fits else nbytes)
                    self._rounds.put((number, first, delay))
                self.newest = max(self.newest, number)
        self.ended = True
        self._end.set()
        self._rounds.put(None)
        self._questions.put(None)

    def __iter__(self) -> Iterator[int]:
        while (order := self._rounds.get()) is not None:
            self.round, self.first, self.delay = order
            yield self.round

    def answer(self, worker: Worker) -> None:
        """Answer questions until the end, while another thread computes."""
        with contextlib.suppress(RuntimeError):  # the master is gone
            while (question := self._questions.get()) is not None:
                kind, answer, energy, text = reply(worker, question)
                if kind == Kind.FAILED:
                    self._wire.send(kind, question.round, 0, 0.0, text)
                    return
                self._wire.send(Kind.ANSWER, question.round, question.number, energy, answer)

    def send(self, index: int, energy: float) -> None:
        """Send a message."""
        self._wire.send(Kind.MESSAGE, self.round, index, energy, self._slots[index])

    def leave(self) -> None:
        self._wire.send(Kind.LEFT, self.round, 0, 0.0)

    def look(self) -> bool:
        """Whether the worker may go on; the receiving thread takes news."""
        return not self.ended

    def sleep(self, seconds: float) -> bool:
        """Sleep; False, at once: the worker must end."""
        return not self._end.wait(seconds)
