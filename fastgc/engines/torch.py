"""Gradient coding on the ranks that ``torchrun`` starts: rank 0 is the master of the others.

Each worker connects to the master, which told its address to torchrun's store, and both talk as
`fastgc.engines.channel` defines. So the death of a worker disturbs no other. torchrun ends the job
when one of its own processes dies. Therefore that process only watches another one, which computes
for one cluster, and forks a new one when it has ended.
"""

from __future__ import annotations

import contextlib
import hmac
import math
import os
import pickle
import secrets
import select
import selectors
import signal
import socket
import struct
import sys
from collections import deque
from datetime import timedelta
from functools import cache
from multiprocessing.connection import wait
from typing import Any, NoReturn

import numpy as np

from .._base.arrays import Array
from .._base.deadline import LONGEST, Deadline, in_time
from .._base.extras import pip_install
from .channel import NONE, ORDERED, RECORD, Nonsense, Record, SocketLine, WorkerEnd, event_of
from .interface import NONSENSE, Answering, Buffers, Event, Kind, Question, Task
from .master import Master
from .memory import packed_for_ranks
from .processes import end_with
from .worker import Worker, as_process, failure

try:
    import torch
    import torch.distributed
except ImportError as error:
    raise ImportError(f"this engine needs PyTorch ({error}): {pip_install('torch')}") from error

__all__ = ["TorchCluster"]

dist: Any = torch.distributed  # exports less than it documents, for type checkers

_HELLO = struct.Struct("=32sqq64s")  # the job's secret, a worker's number, process and machine
_START = 100  # the first records to a worker, besides those of the channel
_SPEAK, _LOOK = 30.0, 0.02  # seconds for a connection to say who it is, and between looks for that
_LONG = timedelta(seconds=LONGEST)
_SECONDS = 60.0  # in which torchrun's store must answer
_AGAIN = 75  # exit status of a process that has served one cluster
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
    A rank that serves forks a process for each cluster, which computes. If that process is killed,
    its worker is a straggler until the rank has forked another process. If a rank itself dies,
    torchrun ends the whole job. A worker that still hangs when its cluster is closed is killed.

    Examples
    --------
    >>> if not TorchCluster.serve():  # doctest: +SKIP
    ...     with TorchCluster(code, shards, gradient, size=p) as cluster:
    ...         report = cluster.step(theta, out=g)
    """

    _outage = "is late, the others wait"  # a rank that dies ends the job

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
    """A connection to the job's store."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, None, keep, _LONG, wait_for_workers=False)


# ------------------------------------------------------------------------------------- the master


class _Job:
    """What the clusters of a program share: whom workers connect to, and those that wait."""

    def __init__(self) -> None:
        self.open = False
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self.listener = socket.create_server(
            ("", 0), family=family, backlog=4096, dualstack_ipv6=both
        )
        self.listener.setblocking(False)
        self.secret = secrets.token_bytes(32)
        # Connections that have not said who they are, and workers in no cluster, with who they are.
        self.strangers: dict[socket.socket, Deadline] = {}
        self.waiting: dict[int, tuple[socket.socket, int, str]] = {}
        agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        keep = not (agents or dist.is_initialized())  # if nobody else does
        told = f"{self.listener.getsockname()[1]} {self.secret.hex()}"
        try:
            self.store = in_time(lambda: _store(keep), _SECONDS)
            in_time(lambda: self.store.set("fastgc/master", told), _SECONDS)
        except Exception as error:
            raise RuntimeError(f"torchrun's store cannot be used: {error}") from error

    def meet(self) -> None:
        """Take new connections, and what they say; without waiting."""
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.listener.accept()
                self.strangers[line] = Deadline(_SPEAK)
        for line, speaks in list(self.strangers.items()):
            told = _peeked(line)
            if told and len(told) < _HELLO.size and speaks.left:
                continue
            del self.strangers[line]
            if not hmac.compare_digest(told[:32], self.secret) or len(told) < _HELLO.size:
                line.close()
                continue
            _, worker, pid, host = _HELLO.unpack(line.recv(_HELLO.size))
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._forget(worker)  # a process that has died
            self.waiting[worker] = line, pid, host.rstrip(b"\0").decode(errors="replace")
        for worker, (line, *_) in list(self.waiting.items()):
            if not _peeked(line):
                self._forget(worker)

    def _forget(self, worker: int) -> None:
        if worker in self.waiting:
            self.waiting.pop(worker)[0].close()


def _peeked(line: socket.socket) -> bytes:
    """What has come by a connection and was not read; a blank: nothing yet; empty: it is closed."""
    try:
        return line.recv(_HELLO.size, socket.MSG_DONTWAIT | socket.MSG_PEEK)
    except BlockingIOError:
        return b" "
    except OSError:
        return b""


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
        self._task, self._common, self._data = task, common, data
        self._buffers = Buffers()
        self._thetas: list[Array] = []
        self._links: dict[int, _Link] = {}
        self._wanted = set(range(code.n))  # workers whose new process has not connected
        self._hosts = [""] * code.n
        self._selector = selectors.DefaultSelector()
        self._selector.register(job.listener, selectors.EVENT_READ)
        self._number = NONE
        self.asks = task.asks

    @property
    def hosts(self) -> list[str]:
        own = os.uname().nodename
        return ["" if host == own else host for host in self._hosts]

    def restart(self, worker: int) -> None:
        self._wanted.add(worker)

    def publish(self, number: int, theta: Array, in_use: set[int]) -> None:
        self._number, self._buffer = number, self._buffers.take(number, in_use)
        if self._buffer == len(self._thetas):
            self._thetas.append(np.empty(theta.size, theta.dtype))
        self._thetas[self._buffer][:] = theta
        if self._task.code.scheme.messages.per_worker > 1:
            for worker, link in self._links.items():
                link.tell(number)
                self._flush(worker)

    def hand(self, worker: int, first: int, delay: float) -> None:
        if (link := self._links.get(worker)) is not None:
            link.order(self._number, self._buffer, first, delay)
            link.follow(self._thetas[self._buffer])
            self._flush(worker)

    def ask(self, worker: int, question: Question) -> None:
        if (link := self._links.get(worker)) is not None:
            link.ask(question.round, question.number, question.what.worker)
            self._flush(worker)

    def _flush(self, worker: int) -> None:
        """Send what can be sent without waiting; `listen` sends the rest."""
        link = self._links[worker]
        if link.flush() == link.late:
            link.late = not link.late
            awaited = selectors.EVENT_READ | link.late * selectors.EVENT_WRITE
            self._selector.modify(link, awaited, worker)

    def listen(self, seconds: float) -> list[Event]:
        self._begin()
        events: list[Event] = []
        if self._job.strangers:  # who have not said who they are
            seconds = min(seconds, _LOOK)
        for key, ready in self._selector.select(seconds):
            if (worker := key.data) is None:
                continue
            if ready & selectors.EVENT_WRITE:
                self._flush(worker)
            if ready & selectors.EVENT_READ:
                events += self._links[worker].come()
                if events and events[-1].kind == Kind.DIED:
                    self._hang_up(worker)
        return events

    def _begin(self) -> None:
        """Begin with workers that were waited for, and have connected."""
        self._job.meet()
        for worker in self._wanted & self._job.waiting.keys():
            self._wanted.remove(worker)
            line, pid, self._hosts[worker] = self._job.waiting.pop(worker)
            self._links[worker] = link = _Link(line, self._task, worker, pid, self._hosts[worker])
            self._selector.register(link, selectors.EVENT_READ, worker)
            link.start(self._common, self._data[worker])
            self._flush(worker)

    def _hang_up(self, worker: int) -> None:
        """End a worker that is not heard of any more; it may live though its line has closed."""
        link = self._links.pop(worker)
        self._selector.unregister(link)
        link.kill()
        link.close()

    def close(self) -> None:
        for link in self._links.values():
            link.end()
        running, grace = self._links, Deadline(GRACE)
        while running and (left := grace.left):
            wait([link.fileno() for link in running.values()], left)
            running = {worker: link for worker, link in running.items() if not link.ended()}
        if running:
            names = ", ".join(str(worker + 1) for worker in sorted(running))
            sys.stderr.write(f"fastgc: ranks {names} hang, and are killed\n")
        self._selector.close()
        for worker, link in self._links.items():
            if worker in running:
                link.kill()
            link.close()
        self._job.open = False


class _Link(SocketLine):
    """The master's end of the channel to one process of a worker.

    It waits for nothing: what cannot be sent at once is kept, and what came in part, too.
    """

    def __init__(self, line: socket.socket, task: Task, worker: int, pid: int, host: str) -> None:
        count = int(task.code.scheme.messages.counts[worker])
        super().__init__(count, line)
        self._worker, self._pid, self._host = worker, pid, host
        self._out: deque[memoryview] = deque()
        self.late = False  # whether something is left to send
        self._slots = [np.empty(task.message_size, task.message_dtype) for _ in range(count)]
        self._head = np.empty(RECORD.size, np.uint8)
        self._record: Record | None = None  # the one whose rest is to come
        self._to, self._left = self._head, self._head.data

    def start(self, *parts: bytes) -> None:
        """Send what the worker starts with."""
        for part in parts:
            self._send(Record(_START, NONE, more=len(part)))
            self._out.append(memoryview(part))

    def follow(self, array: Array) -> None:
        """Send an array, which must not change until the worker has it."""
        self._out.append(array.view(np.uint8).data)

    def _send(self, record: Record) -> bool:
        self._out.append(memoryview(RECORD.pack(*record)))
        return True

    def flush(self) -> bool:
        """Send what can be sent at once; return whether all has been sent."""
        try:
            while self._out:
                sent = self._socket.send(self._out[0], socket.MSG_DONTWAIT)
                self._out[0] = self._out[0][sent:]
                if not self._out[0]:
                    self._out.popleft()
        except BlockingIOError:
            return False
        except OSError:  # it has died, which is read
            self._out.clear()
        return True

    def come(self) -> list[Event]:
        """Return the events that have come, the worker's death as the last one."""
        events: list[Event] = []
        try:
            while True:
                if self._left:
                    got = self._socket.recv_into(self._left, 0, socket.MSG_DONTWAIT)
                    if not got:
                        raise ConnectionError("its connection has closed")
                    self._left = self._left[got:]
                if not self._left:
                    events += self._taken()
        except BlockingIOError:
            return events
        except Nonsense:
            text = NONSENSE
        except OSError as error:
            text = f": {error}"
        return [*events, Event(Kind.DIED, self._worker, text=text)]

    def _taken(self) -> list[Event]:
        """What follows from a record, or from what is behind it, that has come whole."""
        if self._record is None:
            record = Record(*RECORD.unpack(self._head.data))
            if not self.accepts(record, self._slots[0].nbytes):
                raise Nonsense
            self._record, self._to = record, np.empty(record.more, np.uint8)
            if record.kind == Kind.MESSAGE:
                self._to = self._slots[record.number].view(np.uint8)
            self._left = self._to.data
            return []
        event = event_of(self._worker, self._record, self._to, self._slots[0].dtype)
        self._record, self._to, self._left = None, self._head, self._head.data
        return [event]

    def kill(self) -> None:
        """End the worker's process, if it is on this machine."""
        if self._pid > 0 and self._host == os.uname().nodename:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._pid, signal.SIGKILL)


# ------------------------------------------------------------------------------------- the workers

_served = False  # whether this process served until the end of the master's program


def _watch(worker: int) -> None:
    """Fork the process that computes; fork another one until the master's program has ended."""
    port, secret = _store().get("fastgc/master").decode().split()
    hello = bytes.fromhex(secret), worker
    while True:
        life, ours = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _compute(worker, life, (os.environ["MASTER_ADDR"], int(port)), hello)
        os.close(life)
        try:
            _, status = os.waitpid(pid, 0)
        finally:
            os.close(ours)
        code = os.waitstatus_to_exitcode(status)
        if code >= 0 and code != _AGAIN:
            if code:
                raise SystemExit(code)
            return


def _compute(
    worker: int, life: int, address: tuple[str, int], hello: tuple[bytes, int]
) -> NoReturn:
    status = 1
    try:
        end_with(life)
        as_process(worker)
        torch.set_num_threads(1)
        status = _serve(worker, address, hello)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _serve(number: int, address: tuple[str, int], hello: tuple[bytes, int]) -> int:
    """Be the worker of the next cluster; return the exit status: 0 if there is none."""
    try:
        line = socket.create_connection(address)
        line.sendall(_HELLO.pack(*hello, os.getpid(), os.uname().nodename.encode()[:64]))
    except ConnectionError:  # the master's program has ended
        return 0
    wire, worker = _Wire(line), None
    if (common := wire.part()) is None or (data := wire.part()) is None:
        return 0
    try:
        task = pickle.loads(common.data)
        wire.prepare(task, number)
        worker = Worker(number, task, pickle.loads(data.data), wire.slots)
        wire.serve(worker)
    except BaseException:
        text = np.frombuffer(failure(worker), np.uint8)
        wire.tell(Kind.FAILED, wire.round, behind=text)
        with contextlib.suppress(ConnectionError):
            while line.recv(1 << 16):
                pass
    return _AGAIN


class _Wire(WorkerEnd):
    """A worker's end of the channel."""

    def __init__(self, line: socket.socket) -> None:
        super().__init__([])
        self._line, self._head = line, np.empty(RECORD.size, np.uint8)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _receive(self, array: Array) -> bool:
        """Fill an array; return False if the master is gone."""
        left = array.view(np.uint8).data
        with contextlib.suppress(ConnectionError):
            while left and (got := self._line.recv_into(left)):
                left = left[got:]
        return not left

    def part(self) -> Array | None:
        """Return a part of what a worker starts with; None if the master is gone."""
        if not self._receive(self._head):
            return None
        whole = np.empty(Record(*RECORD.unpack(self._head.data)).more, np.uint8)
        return whole if self._receive(whole) else None

    def prepare(self, task: Task, number: int) -> None:
        """Prepare memory for the parameters and the messages of a task."""
        self._memory = np.empty(task.parameters, task.dtype)
        self.theta = self._memory.view()
        self.theta.flags.writeable = False
        count = int(task.code.scheme.messages.counts[number]) + task.asks
        self.slots = [np.empty(task.message_size, task.message_dtype) for _ in range(count)]

    def _read(self) -> Record | None:
        if not self._receive(self._head):
            return None
        record = Record(*RECORD.unpack(self._head.data))
        return None if record.kind == ORDERED and not self._receive(self._memory) else record

    def _wait(self, seconds: float) -> bool:
        return bool(select.select([self._line], [], [], seconds)[0])

    def tell(
        self,
        kind: int,
        round: int,
        number: int = NONE,
        behind: Array | None = None,
        energy: float = math.nan,
    ) -> None:
        """Send a record to the master, and what comes behind it; end if the master is gone."""
        nbytes = 0 if behind is None else behind.nbytes
        try:
            self._line.sendall(RECORD.pack(kind, round, number, nbytes, energy))
            if behind is not None:
                self._line.sendall(behind.view(np.uint8).data)
        except OSError:
            os._exit(_AGAIN)
