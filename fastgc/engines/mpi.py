"""Gradient coding on the ranks of an MPI job: rank 0 is the master, the others are its workers.

They talk as `fastgc.engines.channel` defines. Parameters and messages are sent straight from
memory, a message behind its record. The master keeps one receive posted for each worker, into a
buffer that the kernels will combine from. It sends all workers the same copy of the parameters,
which does not change until the last of them has answered. So no message is copied, and parameters
only once a round. Nothing is cancelled.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import pickle
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NoReturn, Unpack

import numpy as np
from numpy.typing import DTypeLike

from .. import kernels
from .._base.arrays import Array
from .._base.deadline import Deadline
from .._base.extras import pip_install
from .._base.text import listed
from ..codes import Code
from .channel import NONE, ORDERED, RECORD, Line, Record, WorkerEnd, event_of
from .interface import (
    NONSENSE,
    Answering,
    Buffers,
    Event,
    Gradient,
    Kind,
    Question,
    RoundKeywords,
    RoundOptions,
    Task,
)
from .master import Master
from .memory import packed_for_ranks
from .worker import TRACEBACK_BYTES, Worker, failure

try:
    from mpi4py import MPI
    from mpi4py.run import set_abort_status
except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py finds no MPI library
    error = type(error)(str(error).partition("\n")[0])  # without the list of places it searched
    raise ImportError(
        f"the MPI engine needs mpi4py and MPI ({error}): {pip_install('mpi')}"
    ) from error

__all__ = ["MPICluster"]


_LINE = 64  # bytes before a message, which hold its record, and alignment of what follows
_PARAMETERS, _END = (
    100,
    101,
)  # records to a worker, besides those of the channel: a round's, the last
_BYE = -1  # a worker's last kind, besides those of Kind: it has finished with the cluster
_NO_MORE = b"-"  # sent in place of a cluster's start data: there are no more clusters
_START = 0  # tag of start data; then each cluster has two: of records, and of orders
_TAGS = 1000  # clusters until tags are used again
GRACE = 1.0  # seconds for workers to end when a cluster is closed
_LAST_GRACE = 5.0  # the same at the end of the program
_SAYING = 0.2  # seconds for mpiexec to pass on last words, which an abort would lose
_SPIN = 1e-4  # seconds of polling before a wait sleeps
_SHARE, _LONGEST = 0.2, 0.01  # next sleep: fraction of the time waited; most seconds
# Shortest sleep, in seconds, of the master and of workers, if ranks outnumber processors. They then
# sleep at once, because a rank that polls takes the processor from those it waits for. With 17
# ranks on 2 processors a round of small messages takes half the time.
_LEAST = (1e-4, 1e-3)
# The same for a worker that may be asked, whose sleep delays the round.
_WAKEFUL = (0.05, 2e-3)


class MPICluster(Master):
    """Workers on ranks 1 to n of an MPI job, with the master on rank 0.

    All ranks run the same program, ``mpiexec -n 13 python -m mpi4py script.py`` for 12 workers.
    Rank 0 makes a cluster, and the others call `serve`; `fastgc.train` does both.

    `fastgc.engines.master.Master` explains the other parameters, and how slow workers are handled.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The master and the workers, ``code.n + 1`` ranks. Default: ``COMM_WORLD``. The cluster
        uses its own copy.

    Raises
    ------
    ValueError
        If the number of ranks does not fit the code.
    RuntimeError
        If this rank is not the master, or while another cluster on these ranks is open.

    Notes
    -----
    MPI ends the whole job when one of its ranks dies, so workers are never restarted; you can
    resume a run from its checkpoint. A rank that hangs is a straggler. If it still hangs when the
    cluster is closed, it is left behind, and is a straggler of later clusters until it answers. At
    the end of the program, the master names ranks that do not answer within 5 seconds, and aborts
    the job. The job is also aborted after an uncaught exception on any rank, because the others
    would wait for it forever, and by ``os._exit`` in a worker; ``-m mpi4py`` does the same for
    ``sys.exit``.

    Waiting ranks look for messages at increasing intervals, up to a fifth of the time waited, and
    leave the processor to others in between.

    Examples
    --------
    >>> if not MPICluster.serve():  # doctest: +SKIP
    ...     with MPICluster(code, shards, gradient, size=p) as cluster:
    ...         report = cluster.step(theta, out=g)
    """

    def __init__(
        self,
        code: Code,
        shards: Sequence[Any],
        gradient: Gradient,
        size: int,
        dtype: DTypeLike = np.float64,
        *,
        comm: MPI.Intracomm | None = None,
        options: RoundOptions | None = None,
        **keywords: Unpack[RoundKeywords],
    ) -> None:
        comm = _check_comm(comm)
        if comm.rank != 0:
            raise RuntimeError(
                f"this is rank {comm.rank}: clusters are made on rank 0, and the other ranks take "
                "part by MPICluster.serve()"
            )
        self._comm = comm
        super().__init__(code, shards, gradient, size, dtype, options=options, **keywords)

    _outage = "is late, the others wait"  # a rank that dies ends the job

    def _open(self, task: Task) -> _Ranks:
        return _Ranks(_job(self._comm, self._options.start_timeout), task)

    @staticmethod
    def serve(comm: MPI.Intracomm | None = None) -> bool:
        """On all ranks but the master: be a worker of one cluster until the master closes it.

        Parameters
        ----------
        comm : mpi4py.MPI.Intracomm, optional
            As for the cluster.

        Returns
        -------
        bool
            True if this rank was a worker. On the master, False at once.
        """
        comm = _check_comm(comm)
        if comm.rank == 0:
            return False
        with _as_worker():
            _serve(_job(comm).comm)
        return True

    @staticmethod
    def serve_all(comm: MPI.Intracomm | None = None) -> bool:
        """Be a worker of one cluster after the other, until the master's program ends.

        Parameters and result are as for `serve`. If the master calls this, all other ranks must
        call it, too.
        """
        comm = _check_comm(comm)
        job = _job(comm, math.inf if comm.rank else RoundOptions.start_timeout)
        if comm.rank == 0:
            if not job.dismisses:
                job.dismisses = True
                weakref.finalize(job, _dismiss, job.comm)
            return False
        with _as_worker():
            while _serve(job.comm):
                pass
        return True


def _check_comm(comm: MPI.Intracomm | None) -> MPI.Intracomm:
    if comm is None:
        return MPI.COMM_WORLD
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"comm must be an intracommunicator of mpi4py, not {comm!r}")
    return comm


_UNANSWERED: list[MPI.Request] = []  # MPI may still write to what these hold


class _Job:
    """What the clusters on one communicator share."""

    def __init__(self, comm: MPI.Intracomm, seconds: float) -> None:
        self.comm, asked = comm.Idup()  # nobody else uses this copy
        machines = np.zeros((comm.size, MPI.MAX_PROCESSOR_NAME), np.uint8)
        if in_time := _wait(asked, seconds):
            _unname()
            own = np.frombuffer(_machine().encode().ljust(machines.shape[1], b"\0"), np.uint8)
            asked = self.comm.Iallgather(own, machines)
            in_time = _wait(asked, seconds)
        if not in_time:
            _UNANSWERED.append(asked)
            raise TimeoutError(
                f"not all other ranks have called MPICluster.serve() within {seconds:g} s, which "
                "start_timeout= changes"
            )
        master, *names = (bytes(name).rstrip(b"\0").decode() for name in machines)
        if (machines == own).all(axis=1).sum() > _processors():
            _Pause.spin, _Pause.least = 0.0, _LEAST[comm.rank > 0]
        self.hosts = ["" if name == master else name for name in names]
        self.clusters, self.open = 0, False  # how many there were; whether one is open
        # Whether the other ranks wait for clusters until they hear that there are no more.
        self.dismisses = False
        self.late: list[_Link] = []  # to workers that did not answer when their cluster was closed
        # Finalizers run in reverse order of their making: this one after those of clusters.
        weakref.finalize(self, _leave, self.late)


def _dismiss(comm: MPI.Intracomm) -> None:
    """Tell all ranks that there are no more clusters."""
    if not (MPI.Is_finalized() or hasattr(sys, "last_value")):  # else the job is aborted
        sends = [comm.Isend([_NO_MORE, MPI.BYTE], rank, _START) for rank in range(1, comm.size)]
        pause = _Pause(GRACE)
        while not MPI.Request.Testall(sends) and pause():
            pass


def _machine() -> str:
    """Name of the machine of this rank."""
    return MPI.Get_processor_name()


def _processors() -> int:
    """The number of processors for this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _key() -> int:
    return MPI.Comm.Create_keyval()


def _job(comm: MPI.Intracomm, seconds: float = math.inf) -> _Job:
    """The job of a communicator; all its ranks must ask for it, the first time in `seconds`."""
    job = comm.Get_attr(_key())
    if job is None:
        job = _Job(comm, seconds)
        comm.Set_attr(_key(), job)
    assert isinstance(job, _Job)
    return job


def abort(status: int) -> None:
    """Have the job end with this status, also ranks that wait, when this program ends."""
    _unname()
    if MPI.COMM_WORLD.size > 1:
        set_abort_status(status)


@atexit.register
def _end() -> None:
    if hasattr(sys, "last_value") and not MPI.Is_finalized():  # an uncaught exception
        abort(1)


def _unname() -> None:
    """Remove the names of the memory that MPICH shares between ranks, which all have opened.

    MPICH does so when a job ends well; otherwise the memory would stay.
    """
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for name in {line.split()[5] for line in maps if "/dev/shm/mpich_shm_" in line}:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def _leave(late: list[_Link]) -> None:
    """Abort the job when the program ends, if workers hang."""
    if MPI.Is_finalized() or hasattr(sys, "last_value"):
        return
    _settle(late, _LAST_GRACE)
    if late:
        ranks = sorted({link.worker + 1 for link in late})
        sys.stderr.write(f"fastgc: ranks {ranks} hang, so the job is aborted at its end\n")
        abort(1)


class _Ranks(Answering):
    """The master's side of a cluster."""

    def __init__(self, job: _Job, task: Task) -> None:
        self.asks = task.asks
        common, data = packed_for_ranks(task, job.comm.size, "mpiexec -n", job.open)
        self._job, self._task, self.hosts = job, task, job.hosts
        self._buffers = Buffers()
        self._orders: list[Array] = []
        job.open = True
        job.clusters += 1
        tag = _START + 1 + 2 * (job.clusters % _TAGS)
        _settle(job.late, 0.0)
        late = {link.worker for link in job.late}
        # Whatever is sent to a late rank waits for it: it counts as a slow worker that has joined.
        self._events = [Event(Kind.JOINED, worker) for worker in sorted(late)]
        self._links = []
        for worker, pickled in enumerate(data):
            link = _Link(job.comm, worker, tag, task, worker in late)
            nbytes = _LINE + task.parameters * task.dtype.itemsize
            start = tag, nbytes, task.asks, common, pickled
            link.send(pickle.dumps(start, pickle.HIGHEST_PROTOCOL), _START)
            self._links.append(link)
        self._receives = [link.receive for link in self._links]

    def publish(self, number: int, theta: Array, in_use: set[int]) -> None:
        self._number, self._buffer = number, self._buffers.take(number, in_use)
        if self._buffer == len(self._orders):
            self._orders.append(_aligned(_LINE + theta.nbytes))
        order = self._orders[self._buffer]
        RECORD.pack_into(order.data, 0, *Record(_PARAMETERS, number))
        order[_LINE:].view(theta.dtype)[:] = theta
        if self._task.code.scheme.messages.per_worker > 1:
            for link in self._links:
                link.tell(number)

    def hand(self, worker: int, first: int, delay: float) -> None:
        link = self._links[worker]
        link.order(self._number, self._buffer, first, delay)
        link.send(self._orders[self._buffer], link.tag + 1)

    def ask(self, worker: int, question: Question) -> None:
        self._links[worker].ask(question.round, question.number, question.what.worker)

    def listen(self, seconds: float) -> list[Event]:
        events, self._events = self._events, []
        pause = _Pause(0.0 if events else seconds)
        while True:
            try:
                ended = MPI.Request.Testsome(self._receives) or ()
            except MPI.Exception:  # a message is longer than there is room for
                return [*events, self._too_long()]
            for worker in ended:
                event = self._links[worker].take()
                if event is not None:
                    events.append(event)
                self._receives[worker] = self._links[worker].receive
            if events or not pause():
                return events

    def _too_long(self) -> Event:
        """The event of a message that MPI could not receive."""
        status, come = MPI.Status(), dict[_Link, int]()
        for link in self._links:
            if link.posted and link.receive.Get_status(status):
                come[link] = status.Get_source()
        # MPICH empties the request of that message, and of no other.
        links = [link for link in come if come[link] == MPI.ANY_SOURCE] or list(come)
        workers = [link.worker for link in links]
        for link in links:
            link.posted = False
        others = f", or another of workers {listed(workers)} did" if len(workers) > 1 else ""
        return Event(Kind.FAILED, workers[0], self._number, text=NONSENSE + others)

    def restart(self, worker: int) -> None:
        raise AssertionError(f"worker {worker} was told dead, which ends the job")

    def close(self) -> None:
        links, self._links = self._links, []
        for link in links:
            link.end()
        _settle(links, GRACE)
        self._job.late += links
        self._job.open = False


class _Link(Line):
    """The master's end of the channel to one worker of a cluster.

    `receive` is the request of the next record and of what comes behind it.
    """

    def __init__(self, comm: MPI.Intracomm, worker: int, tag: int, task: Task, late: bool) -> None:
        super().__init__(task.code.scheme.messages.counts[worker])
        self.worker, self.tag = worker, tag
        self._comm, self._late, self._through = comm, late, False
        # A buffer for each message of a round, and one to receive to. Tracebacks come here, too.
        # Pages that are never written are never allocated.
        self._nbytes = task.message_size * task.message_dtype.itemsize
        stride = _LINE + -(-max(self._nbytes, TRACEBACK_BYTES) // _LINE) * _LINE
        memory = _aligned((self._messages + 1) * stride)
        self._slots = [memory[i * stride :][:stride] for i in range(self._messages + 1)]
        self._dtype = task.message_dtype
        self._sends: list[MPI.Request] = []
        self._at = 0
        self._post()

    def _post(self) -> None:
        self.posted = True
        self.receive = self._comm.Irecv(self._slots[self._at], self.worker + 1, self.tag)

    def send(self, what: bytes | Array, tag: int) -> None:
        """Send bytes; they must not change until the worker has them."""
        self._sends = [each for each in self._sends if not each.Test()]
        self._sends.append(self._comm.Isend([what, MPI.BYTE], self.worker + 1, tag))

    def _send(self, record: Record) -> bool:
        if record.kind != ORDERED:
            self.send(RECORD.pack(*record), self.tag)
        elif record.more or record.real:  # else the parameters alone, all in one message, do
            self.send(RECORD.pack(*record), self.tag + 1)
        return True

    def take(self) -> Event | None:
        """The event that was received; None if the master knows of it."""
        self.posted = False
        slot = self._slots[self._at]
        record = Record(*RECORD.unpack_from(slot.data))
        kind, more = record.kind, record.more
        if not self.accepts(record, self._nbytes):
            return Event(Kind.FAILED, self.worker, record.round, text=NONSENSE)
        behind = slot[_LINE:][:more]
        if kind == Kind.MESSAGE:
            self._at = (self._at + 1) % len(self._slots)
        else:  # the next message comes to its place
            behind = behind.copy()
        self._post()
        if kind == Kind.JOINED and self._late:
            return None
        return event_of(self.worker, record, behind, self._dtype)

    def end(self) -> None:
        """Begin to end the worker."""
        for tag in (self.tag, self.tag + 1):
            self.send(RECORD.pack(*Record(_END, NONE)), tag)
        if not self.posted:
            self._post()

    def _has_come(self) -> bool:
        try:
            return self.receive.Test()
        except MPI.Exception:  # longer than its buffer; nobody needs it any more
            return True

    def ended(self) -> bool:
        """Whether the worker has finished with the cluster; if so, no request is left.

        It waits for nothing: a worker that says goodbye but takes nothing counts as hanging.
        """
        while not self._through and self._has_come():
            kind, *_ = RECORD.unpack_from(self._slots[self._at].data)
            self._through = kind == _BYE
            if not self._through:
                self._post()
        # Before it said goodbye, the worker took everything that was sent to it.
        return self._through and MPI.Request.Testall(self._sends)


def _settle(links: list[_Link], seconds: float) -> None:
    """Wait for workers to end; leave those in the list that do not."""
    pause = _Pause(seconds)
    while True:
        links[:] = [link for link in links if not link.ended()]
        if not links or not pause():
            return


def _serve(comm: MPI.Intracomm) -> bool:
    """Be the worker of one cluster; False, at once, if there are no more."""
    start = _receive_bytes(comm, _START)
    if start.tobytes() == _NO_MORE:
        return False
    tag, nbytes, asks, common, data = pickle.loads(start.data)
    orders, worker = _Orders(comm, tag, nbytes, asks), None
    try:
        task = pickle.loads(common)
        orders.prepare(task)
        worker = Worker(comm.rank - 1, task, pickle.loads(data), orders.slots)
        orders.serve(worker)
    except BaseException:
        text = np.frombuffer(failure(worker), np.uint8)
        orders.tell(Kind.FAILED, orders.round, behind=text)
    orders.finish()
    return True


class _Orders(WorkerEnd):
    """A worker's end of the channel."""

    def __init__(self, comm: MPI.Intracomm, tag: int, nbytes: int, asks: bool) -> None:
        super().__init__([])
        self._comm, self._tag, self._memory = comm, tag, _aligned(nbytes)
        self._pauses = _WAKEFUL if asks else (_SHARE, _LONGEST)
        self._record, self._ended = np.empty(RECORD.size, np.uint8), False
        self._memory[:_LINE] = 0
        self._given: Record | None = None  # the order that the parameters to come are for
        self._receive = self._comm.Irecv(self._record, 0, self._tag)
        self._await_order()

    def prepare(self, task: Task) -> None:
        """Prepare memory for the messages of a task."""
        self.theta = self._memory[_LINE:].view(task.dtype)
        self.theta.flags.writeable = False
        self._messages = task.code.scheme.messages.counts[self._comm.rank - 1]
        nbytes = task.message_size * task.message_dtype.itemsize
        self._sent = [_aligned(_LINE + nbytes) for _ in range(self._messages + task.asks)]
        self.slots = [each[_LINE:].view(task.message_dtype) for each in self._sent]

    def _await_order(self) -> None:
        """Get ready for the next order, which overwrites the parameters."""
        self._order: MPI.Request | None = self._comm.Irecv(self._memory, 0, self._tag + 1)

    def _come(self) -> bool:
        order = self._order
        return self._ended or self._receive.Test() or (order is not None and order.Test())

    def _wait(self, seconds: float) -> bool:
        if self._come() or not seconds:
            return self._come()
        pause = _Pause(seconds, *self._pauses)
        while pause():
            if self._come():
                return True
        return False

    def _read(self) -> Record | None:
        while self._wait(math.inf) and not self._ended:
            if self._order is None or not self._order.Test():
                record = Record(*RECORD.unpack(self._record.data))
                self._ended = record.kind == _END
                if not self._ended:
                    self._receive = self._comm.Irecv(self._record, 0, self._tag)
                    return record
                break
            record, self._order = Record(*RECORD.unpack_from(self._memory.data)), None
            if record.kind == _PARAMETERS:
                given, self._given = self._given, None
                return given or Record(ORDERED, record.round)
            self._ended = record.kind == _END
            if not self._ended:
                self._given = record
                self._await_order()
        return None

    def tell(
        self,
        kind: int,
        round: int,
        number: int = NONE,
        behind: Array | None = None,
        energy: float = math.nan,
    ) -> None:
        """Send a record to the master, and what comes behind it."""
        nbytes = 0 if behind is None else behind.nbytes
        if nbytes and kind != Kind.FAILED:
            sent = self._sent[number if kind == Kind.MESSAGE else -1]  # where it lies already
        else:
            sent = np.zeros(_LINE + nbytes, np.uint8)
            sent[_LINE:] = behind if nbytes else 0
        RECORD.pack_into(sent.data, 0, kind, round, number, nbytes, energy)
        if kind == Kind.LEFT or (kind == Kind.MESSAGE and number + 1 == self._messages):
            self._await_order()
        _wait(self._comm.Isend(sent, 0, self._tag))  # now: MPI moves nothing while others compute

    def finish(self) -> None:
        """Wait for the end, and say goodbye."""
        while self._read():
            pass
        _wait(self._receive)
        while RECORD.unpack_from(self._memory.data)[0] != _END:
            if self._order is None:
                self._await_order()
            while self._order is not None and _wait(self._order):
                self._order = None
        self.tell(_BYE, NONE)


def _receive_bytes(comm: MPI.Intracomm, tag: int) -> Array:
    """Receive the next message of this tag, of any length."""
    pause, status = _Pause(), MPI.Status()
    while (message := comm.Improbe(0, tag, status)) is None:
        pause()
    pickled = np.empty(status.Get_count(MPI.BYTE), np.uint8)
    message.Recv([pickled, MPI.BYTE])
    return pickled


@contextlib.contextmanager
def _as_worker() -> Iterator[None]:
    """Make this process one worker among many: one thread, which ignores Ctrl-C."""
    main = threading.current_thread() is threading.main_thread()
    before = kernels.threads.get_num_threads()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    kernels.threads.set_num_threads(1)
    try:
        with _exits_told():
            yield
    finally:
        kernels.threads.set_num_threads(before)
        if main:
            signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def _exits_told() -> Iterator[None]:
    """Make ``os._exit`` abort the job and say so: some mpiexec end it silently with status 0."""
    leave, pid = os._exit, os.getpid()

    def say_and_abort(status: int) -> NoReturn:
        if os.getpid() == pid:  # else in a process that a gradient function forked
            rank = MPI.COMM_WORLD.rank
            text = f"fastgc: rank {rank} ended by os._exit({status}), so the job is aborted\n"
            os.write(2, text.encode())
            time.sleep(_SAYING)
            MPI.COMM_WORLD.Abort(status or 1)
        leave(status)

    os._exit = say_and_abort
    try:
        yield
    finally:
        os._exit = leave


class _Pause(Deadline):
    """Pauses between looks for messages: none at first, then ever longer ones.

    MPI's own waiting keeps a processor busy, which the ranks it waits for may need.
    """

    spin, least = _SPIN, 0.0

    def __init__(
        self, seconds: float = math.inf, share: float = _SHARE, longest: float = _LONGEST
    ) -> None:
        super().__init__(seconds)
        self._share, self._longest = share, longest

    def __call__(self) -> bool:
        """Pause; False once the time is out."""
        waited = self.waited
        if waited < self.spin:
            os.sched_yield()
            return self.left > 0.0
        return self.sleep(min(max(waited * self._share, self.least), self._longest))


def _wait(request: MPI.Request, seconds: float = math.inf, *pauses: float) -> bool:
    """Wait for a request; False if it has not ended in time."""
    pause = _Pause(seconds, *pauses)
    while not (ended := request.Test()) and pause():
        pass
    return bool(ended)


def _aligned(nbytes: int) -> Array:
    memory = np.empty(nbytes + _LINE, np.uint8)
    return memory[-memory.ctypes.data % _LINE :][:nbytes]
