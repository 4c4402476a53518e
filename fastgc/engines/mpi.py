"""Gradient coding on the ranks of an MPI job: rank 0 is the master, the others are its workers.

Parameters and messages are sent straight from memory, each behind a header of one cache line. The
master keeps one receive posted for each busy worker, into the buffer that the kernels will combine
from. It sends all workers the same copy of the parameters, which does not change until the last of
them has answered. So no message is copied, and parameters only once a round. Nothing is cancelled.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import pickle
import signal
import struct
import sys
import threading
import time
import weakref
from collections import deque
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
    can_be_told,
)
from .master import Master
from .memory import packed_for_ranks
from .worker import TRACEBACK_BYTES, Worker, failure, reply

try:
    from mpi4py import MPI
    from mpi4py.run import set_abort_status
except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py finds no MPI library
    error = type(error)(str(error).partition("\n")[0])  # without the list of places it searched
    raise ImportError(
        f"the MPI engine needs mpi4py and MPI ({error}): {pip_install('mpi')}"
    ) from error

__all__ = ["MPICluster"]


_LINE = 64  # bytes of a header, and alignment of what follows it
# Kind; round; first message or index; delay in seconds, or energy.
_HEADER = struct.Struct("=qqqd")
_NONE = -1
_BYE = -1  # a worker's last kind, besides those of Kind: it has finished with the cluster
_ROUND, _DELAY, _END = range(3)  # kinds of orders; a delay comes before the round it is for
_NO_MORE = b"-"  # sent in place of a cluster's start data: there are no more clusters
_START = 0  # tag of start data; then each cluster has tags of its own
_NEWS, _QUESTION, _ANSWER = 1, 2, 3  # a cluster's tags after its first, for orders and messages
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
# The same for a thread that waits for questions, whose sleep delays the round.
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

    Workers of `fastgc.Reactive` are asked for the shares of others. One thread of a worker answers
    while another computes, so MPI must have been initialised with ``MPI_THREAD_MULTIPLE``, which is
    mpi4py's default. Otherwise nobody is asked.

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

    _outage = "late", "the others wait"  # a rank that dies ends the job

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


class _Job:
    """What the clusters on one communicator share."""

    def __init__(self, comm: MPI.Intracomm, seconds: float) -> None:
        self.comm, copying = comm.Idup()  # nobody else uses this copy
        if not _wait(copying, seconds):
            raise TimeoutError(
                f"not all other ranks have called MPICluster.serve() within {seconds:g} s, which "
                "start_timeout= changes"
            )
        _unname()
        here = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        if here.size > _processors():
            _Pause.spin, _Pause.least = 0.0, _LEAST[comm.rank > 0]
        here.Free()
        master, *names = self.comm.allgather(_machine())
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
    """The master's side of a cluster.

    A worker at an older round hears that there is a newer one, and asks for it. It then gets the
    newest, so parameters need not be sent ahead.
    """

    def __init__(self, job: _Job, task: Task) -> None:
        self.asks = task.asks and MPI.Query_thread() == MPI.THREAD_MULTIPLE
        common, data = packed_for_ranks(task, job.comm.size, "mpiexec -n", job.open)
        self._job, self._task, self.hosts = job, task, job.hosts
        self._buffers = Buffers()
        self._orders: list[Array] = []
        self._nbytes = _LINE + task.parameters * task.dtype.itemsize
        job.open = True
        job.clusters += 1
        # The first of the cluster's tags, to which `_NEWS`, `_QUESTION` and `_ANSWER` are added.
        tag = _START + 1 + (1 + _ANSWER) * (job.clusters % _TAGS)
        _settle(job.late, 0.0)
        late = {link.worker for link in job.late}
        # Whatever is sent to a late rank waits for it: it counts as a slow worker that has joined.
        self._events = [Event(Kind.JOINED, worker) for worker in sorted(late)]
        self._links = []
        for worker, pickled in enumerate(data):
            link = _Link(job.comm, worker, tag, task, worker in late, self.asks)
            start = tag, self._nbytes, self.asks, common, pickled
            link.start(pickle.dumps(start, pickle.HIGHEST_PROTOCOL))
            self._links.append(link)
        self._receives = [link.receive for link in self._links]
        self._receives += [link.asked.receive for link in self._links if link.asked is not None]

    def publish(self, number: int, theta: Array, in_use: set[int]) -> None:
        buffer = self._buffers.take(number, in_use)
        if buffer == len(self._orders):
            self._orders.append(_aligned(self._nbytes))
        self._order = order = self._orders[buffer]
        _HEADER.pack_into(order.data, 0, _ROUND, number, 0, 0.0)
        order[_LINE:].view(self._task.dtype)[:] = theta
        self._number = number
        if self._task.code.scheme.messages.per_worker > 1:
            for link in self._links:
                link.tell(number)

    def hand(self, worker: int, first: int, delay: float) -> None:
        link = self._links[worker]
        link.hand(self._number, self._order, first, delay)
        self._receives[worker] = link.receive

    def ask(self, worker: int, question: Question) -> None:
        asked = self._links[worker].asked
        assert asked is not None
        asked.ask(question)
        self._receives[len(self._links) + worker] = asked.receive

    def listen(self, seconds: float) -> list[Event]:
        events, self._events = self._events, []
        pause = _Pause(0.0 if events else seconds)
        while True:
            try:
                ended = MPI.Request.Testsome(self._receives) or ()
            except MPI.Exception:  # a message is longer than there is room for
                come = {link: link.sources() for link in self._links}
                # MPICH empties the request of that message, and of no other.
                links = [link for link in self._links if MPI.ANY_SOURCE in come[link]]
                links = links or [link for link in self._links if come[link]]
                if not links:
                    raise
                for link in links:
                    link.give_up()
                return [*events, self._too_long([link.worker for link in links])]
            for at in ended:
                link = self._links[worker := at % len(self._links)]
                if at != worker:
                    assert link.asked is not None
                    events.append(link.asked.take())
                    self._receives[at] = link.asked.receive
                    continue
                event = link.take()
                if event is not None:
                    events.append(event)
                self._receives[worker] = link.receive
            if events or not pause():
                return events

    def _too_long(self, workers: list[int]) -> Event:
        """The event of a message that MPI could not receive; one of `workers` has sent it."""
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


class _Link:
    """The master's connection to one worker of a cluster.

    `receive` is the request of the next message, null while the worker has nothing to send.
    """

    def __init__(
        self, comm: MPI.Intracomm, worker: int, tag: int, task: Task, late: bool, asks: bool
    ) -> None:
        self.worker = worker
        self.asked = _Asked(comm, worker, tag, task) if asks else None
        self._comm, self._rank, self._tag = comm, worker + 1, tag
        # A buffer for each message of a round. Tracebacks come here, too. Pages that are never
        # written are never allocated.
        messages = max(1, task.code.scheme.messages.counts[worker])
        nbytes = task.message_size * task.message_dtype.itemsize
        stride = _LINE + -(-max(nbytes, TRACEBACK_BYTES) // _LINE) * _LINE
        memory = _aligned(messages * stride)
        self._slots = [memory[i * stride :][:stride] for i in range(messages)]
        self._rows = [slot[_LINE:][:nbytes].view(task.message_dtype) for slot in self._slots]
        self._late = late
        self._busy = self._through = False
        self._round = self._told = _NONE
        self._delay = np.zeros(_LINE, np.uint8)
        self._newest = np.zeros(1, np.int64)
        self._news: MPI.Request = MPI.REQUEST_NULL
        self._order: MPI.Request = MPI.REQUEST_NULL
        self._delaying: MPI.Request = MPI.REQUEST_NULL
        self._once: list[MPI.Request] = []
        self._post(0)

    def _post(self, slot: int) -> None:
        self._slot, self._posted = slot, True
        self.receive = self._comm.Irecv(self._slots[slot], self._rank, self._tag)

    def start(self, pickled: bytes) -> None:
        self._once.append(self._comm.Isend([pickled, MPI.BYTE], self._rank, _START))

    def tell(self, number: int) -> None:
        """Tell a worker at an older round, once per round, that there is a newer one."""
        if self._busy and self._told <= self._round and self._news.Test():
            self._newest[0] = self._told = number
            self._news = self._comm.Isend(self._newest, self._rank, self._tag + _NEWS)

    def hand(self, number: int, order: Array, first: int, delay: float) -> None:
        self._order.Wait()  # done already: the worker has answered
        if first or delay:
            self._delaying.Wait()
            _HEADER.pack_into(self._delay.data, 0, _DELAY, number, first, delay)
            self._delaying = self._comm.Isend(self._delay, self._rank, self._tag)
        self._order = self._comm.Isend(order, self._rank, self._tag)
        self._round, self._busy = number, True
        if not self._posted:
            self._post(first)

    def sources(self) -> list[int]:
        """Return the source of each message that has come and was not taken yet."""
        awaited = [self.receive] if self._posted else []
        if self.asked is not None and self.asked.due:
            awaited.append(self.asked.receive)
        status = MPI.Status()
        return [status.Get_source() for receive in awaited if receive.Get_status(status)]

    def give_up(self) -> None:
        """Drop the message that has come: MPI could not receive it."""
        if self._posted and self.receive.Get_status():
            self._posted = self._busy = False

    def take(self) -> Event | None:
        """The event that was received; None if the master knows of it."""
        self._posted = False
        slot = self._slots[self._slot]
        kind, number, index, energy = _HEADER.unpack_from(slot.data)
        if not can_be_told(kind, index, len(self._slots)):
            self._busy = False
            return Event(Kind.FAILED, self.worker, number, text=NONSENSE)
        if kind == Kind.MESSAGE:
            message = self._rows[self._slot]
            if index + 1 < len(self._slots):
                self._post(index + 1)
            else:
                self._busy = False
            return Event(Kind.MESSAGE, self.worker, number, index, message, energy=energy)
        if kind == Kind.JOINED and self._late:
            self._late = False
            if self._busy:
                self._post(self._slot)
            return None
        self._busy = False
        text = slot[_LINE:][:index].tobytes() if kind == Kind.FAILED else b""
        return Event(Kind(kind), self.worker, number, text=text.decode(errors="replace"))

    def end(self) -> None:
        """Begin to end the worker: by an order, and by news, which a busy worker looks for."""
        order, news = np.zeros(_LINE, np.uint8), np.full(1, _NONE, np.int64)
        _HEADER.pack_into(order.data, 0, _END, _NONE, 0, 0.0)
        self._once.append(self._comm.Isend(order, self._rank, self._tag))
        self._once.append(self._comm.Isend(news, self._rank, self._tag + _NEWS))
        if self.asked is not None:
            self.asked.send(None)  # ends the worker's thread that answers
        if not self._posted:
            self._post(0)

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
            kind, *_ = _HEADER.unpack_from(self._slots[self._slot].data)
            if kind == _BYE:
                self._through = True
            else:
                self._post(self._slot)
        if not self._through:
            return False
        # Before it said goodbye, the worker took everything that was sent to it, and answered.
        taken = MPI.Request.Testall([self._news, self._order, self._delaying, *self._once])
        return taken and (self.asked is None or self.asked.ended())


class _Asked:
    """The questions that the master asks one worker, and their answers.

    `receive` is the request of the next answer, null while none is `due`.
    """

    def __init__(self, comm: MPI.Intracomm, worker: int, tag: int, task: Task) -> None:
        self._comm, self._tag = comm, tag
        self._worker, self._task = worker, task
        self._slot = _answer(task)
        self.receive: MPI.Request = MPI.REQUEST_NULL
        self.due: deque[Question] = deque()
        self._sends: list[MPI.Request] = []

    def _post(self) -> None:
        self.receive = self._comm.Irecv(self._slot, self._worker + 1, self._tag + _ANSWER)

    def ask(self, question: Question) -> None:
        self.send(question)
        self.due.append(question)
        if len(self.due) == 1:
            self._post()

    def send(self, question: Question | None) -> None:
        self._sends = [send for send in self._sends if not send.Test()]
        packed = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        send = self._comm.Isend([packed, MPI.BYTE], self._worker + 1, self._tag + _QUESTION)
        self._sends.append(send)

    def take(self) -> Event:
        question = self.due.popleft()
        kind, number, size, energy = _HEADER.unpack_from(self._slot.data)
        text, answer = "", None
        if kind == Kind.FAILED:
            text = self._slot[_LINE:][:size].tobytes().decode(errors="replace")
        elif kind == Kind.ANSWER:
            answer = self._task.answer_in(self._slot, _LINE)
        if self.due:  # a newer question was asked: nobody needs this answer
            self._post()
        if kind == Kind.FAILED:
            return Event(Kind.FAILED, self._worker, question.round, text=text)
        return Event(Kind.ANSWER, self._worker, question.round, number, answer, energy=energy)

    def ended(self) -> bool:
        """Whether the worker has taken and answered all questions; if so, no request is left."""
        while self.due:
            if not self.receive.Test():
                return False
            self.take()
        return MPI.Request.Testall(self._sends)


def _answer(task: Task) -> Array:
    """A buffer for a header, and an answer or a traceback."""
    return _aligned(_LINE + max(task.answer_bytes, TRACEBACK_BYTES))


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
    orders = _Orders(comm, tag, nbytes)
    worker = answers = None

    def tell(kind: int, text: bytes = b"") -> None:
        header = _HEADER.pack(kind, orders.round, len(text), 0.0).ljust(_LINE, b"\0")
        _wait(comm.Isend([header + text, MPI.BYTE], 0, tag))

    def send_message(index: int, energy: float) -> None:
        sent = slots[index]
        _HEADER.pack_into(sent.data, 0, Kind.MESSAGE, orders.round, index, energy)
        if index + 1 == len(slots):
            orders.post()  # before the master answers this message
        _wait(comm.Isend(sent, 0, tag))  # now: MPI moves nothing while gradients are computed

    try:
        task = pickle.loads(common)
        number = comm.rank - 1
        slots = [
            _aligned(_LINE + task.message_size * task.message_dtype.itemsize)
            for _ in range(task.code.scheme.messages.counts[number])
        ]
        rows = [slot[_LINE:].view(task.message_dtype) for slot in slots]
        worker = Worker(number, task, pickle.loads(data), rows)
        theta = orders.parameters.view(task.dtype)
        theta.flags.writeable = False
        if asks:
            about = comm, tag, task, worker
            answers = threading.Thread(
                target=_answer_questions, args=about, name="fastgc answers", daemon=True
            )
            answers.start()
        tell(Kind.JOINED)
        while orders.wait():
            worker.send_all(theta, orders, send_message, lambda: tell(Kind.LEFT))
    except BaseException:
        tell(Kind.FAILED, failure(worker))
        while orders.wait():  # until the end
            pass
    if answers is not None:
        answers.join()
    elif asks:  # the worker failed before: take the message that would end the thread
        _receive_bytes(comm, tag + _QUESTION)
    tell(_BYE)
    return True


def _answer_questions(comm: MPI.Intracomm, tag: int, task: Task, worker: Worker) -> None:
    """Answer the master's questions, until there are no more, while another thread computes."""
    slot = _answer(task)
    while True:
        packed = _receive_bytes(comm, tag + _QUESTION, *_WAKEFUL)
        question: Question | None = pickle.loads(packed.data)
        if question is None:
            return
        kind, _, energy, text = reply(worker, question, task.answer_in(slot, _LINE))
        slot[_LINE:][: len(text)] = np.frombuffer(text, np.uint8)
        _HEADER.pack_into(slot.data, 0, kind, question.number, len(text), energy)
        _wait(comm.Isend(slot, 0, tag + _ANSWER))


class _Orders:
    """A worker's view of what the master wants (`fastgc.engines.worker.Orders`)."""

    def __init__(self, comm: MPI.Intracomm, tag: int, nbytes: int) -> None:
        self._comm, self._tag, self._memory = comm, tag, _aligned(nbytes)
        self.parameters = self._memory[_LINE:]  # bytes
        self.round = self.newest = _NONE
        self.first, self.delay = 0, 0.0
        self._posted = self._ended = False
        self._told = np.zeros(1, np.int64)
        self._listen()

    def _listen(self) -> None:
        self._news = self._comm.Irecv(self._told, 0, self._tag + _NEWS)

    def post(self) -> None:
        """Get ready for the next order, which overwrites the parameters."""
        if not self._posted:
            self._order = self._comm.Irecv(self._memory, 0, self._tag)
            self._posted = True

    def wait(self) -> bool:
        """Wait for the next round; False: the worker must end."""
        self.first, self.delay = 0, 0.0
        while True:
            self.post()
            _wait(self._order)
            self._posted = False
            kind, number, first, delay = _HEADER.unpack_from(self._memory.data)
            if kind == _DELAY:
                self.first, self.delay = first, delay
                continue
            if kind == _ROUND:
                self.round = number
                return True
            pause = _Pause()
            while self.look():  # news announce the end, too
                pause()
            return False

    def look(self) -> bool:
        """Take news; False: the worker must end."""
        while not self._ended and self._news.Test():
            self.newest = int(self._told[0])
            if self.newest == _NONE:
                self._ended = True
            else:
                self._listen()
        return not self._ended

    def sleep(self, seconds: float) -> bool:
        """Sleep; False, at once: the worker must end."""
        end = Deadline(seconds)
        while self.look():
            if not end.sleep(_LONGEST):
                return True
        return False


def _receive_bytes(
    comm: MPI.Intracomm, tag: int, share: float = _SHARE, longest: float = _LONGEST
) -> Array:
    """Receive the next message of this tag, of any length."""
    pause, status = _Pause(math.inf, share, longest), MPI.Status()
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


def _wait(request: MPI.Request, seconds: float = math.inf) -> bool:
    """Wait for a request; False if it has not ended in time."""
    pause = _Pause(seconds)
    while not (ended := request.Test()) and pause():
        pass
    return bool(ended)


def _aligned(nbytes: int) -> Array:
    memory = np.empty(nbytes + _LINE, np.uint8)
    return memory[-memory.ctypes.data % _LINE :][:nbytes]
