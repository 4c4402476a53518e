"""The channel between a master and one worker: records of one length, on every engine but Ray's.

`Line` is the master's end, `WorkerEnd` the worker's. On one machine they are a pair of sockets, and
everything large lies in shared memory (`fastgc.engines.local`). In the kernel's eyes each direction
then has one writer and one reader: no process can reopen a socket, and each end is held by one
process alone. Elsewhere MPI (`fastgc.engines.mpi`) or TCP (`fastgc.engines.torch`) carry records,
and what is large comes behind them.

A worker is in one of these states, and the master knows in which::

    starting --JOINED--> idle --order--> at a round --last MESSAGE, or LEFT--> idle

From any state a worker may report FAILED, its last record, or end, which breaks the channel. While
it is idle or at a round, it may be asked; it answers each question once, when it comes to it.

The master sends
    an order (round, buffer, first message, delay) to a worker that is idle; questions (round,
    number, share) to one that has joined; and news of a newer round to one that is at a round, if
    they share no memory in which it stands.
The worker sends
    its messages, in order and each when it is complete, from the first one that it was ordered to
    send; LEFT in their place, if it sees that a newer round has begun; and answers.

Invariants, which ``tests/engines/test_channel.py`` checks in every state that can be reached:

1. An honest worker is never refused a record.
2. A record that is accepted is one that an honest worker could have sent. So whatever a worker
   writes, each order brings at most one record for each message, each question at most one, and
   everything else at most two.
3. The master overwrites neither parameters nor messages that an honest worker still uses: it hands
   out a buffer again once no worker is at its round.
4. Nobody waits for ever: as long as the worker lives, every order is followed by an idle worker,
   and every question by an answer.

What a worker writes in its memory can be anything at any time, and so can what the records say of
it. `Line` checks the records; whoever reads a message's memory must check, or copy, that.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import struct
import sys
import time
from typing import Any, NamedTuple

import numpy as np

from .._base.arrays import Array
from .._base.deadline import Deadline
from ..codes import Share
from .interface import Event, Kind, Question
from .worker import TRACEBACK_BYTES, Worker

__all__ = ["ASKED", "NEWS", "NONE", "ORDERED", "RECORD", "Line", "Nonsense", "Record", "WorkerEnd"]

RECORD = struct.Struct("=qqqqd")
ORDERED, ASKED, NEWS = range(3)  # the kinds of records to a worker
NONE = -1  # no round, or no message
# Packets cost two thirds of a stream's time; macOS has none between processes.
_KIND = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_STREAM


class Record(NamedTuple):
    """What one end tells the other.

    To a worker: an order's round, buffer, first message and delay; a question's round, number and
    share; or the number of a newer round. From a worker: the round, the message, and its energy. Of
    what comes behind it, `more` is the number of bytes; if nothing does, `more` is when a message
    was complete, and of an answer whether there is one.
    """

    kind: int
    round: int
    number: int = NONE
    more: int = 0
    real: float = 0.0


def event_of(worker: int, record: Record, behind: Array, dtype: np.dtype[Any]) -> Event:
    """The event of an accepted record, and of the bytes that came behind it."""
    kind, round, number, more, energy = record
    if kind in (Kind.MESSAGE, Kind.ANSWER):
        message = behind.view(dtype) if more else None
        return Event(Kind(kind), worker, round, number, message, energy=energy)
    return Event(Kind(kind), worker, round, text=behind.tobytes().decode(errors="replace"))


class Nonsense(Exception):
    """A worker wrote what no worker's program writes."""


class Line:
    """The master's end of a channel: sends orders, and takes only what the protocol allows.

    A subclass says how records are sent.

    Parameters
    ----------
    messages : int
        Number of messages that the worker sends in a round.
    """

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._joined = self._over = False
        self._round, self._next = NONE, messages  # the next message; `messages`: the worker is idle
        self._told = NONE  # the newest round that it knows of
        self._questions: set[int] = set()

    def _send(self, record: Record) -> bool:
        """Send a record without waiting; False: the worker does not read what it was sent.

        It is no error if the worker has died.
        """
        raise NotImplementedError

    def order(self, round: int, buffer: int, first: int, delay: float) -> bool:
        """Hand a round to the worker, which is idle; False: it does not read its orders."""
        self._round, self._next, self._told = round, first, round
        return self._send(Record(ORDERED, round, buffer, first, delay))

    def ask(self, round: int, number: int, share: int) -> None:
        """Ask the worker, unless it does not read its questions: then it does not answer."""
        if self._send(Record(ASKED, round, number, share)):
            self._questions.add(number)

    def tell(self, round: int) -> None:
        """Tell a worker that is at an older round, once, that this one has begun."""
        if self._next < self._messages and self._told == self._round:
            self._told = round
            self._send(Record(NEWS, round))

    def accepts(self, record: Record, behind: int | None = None) -> bool:
        """Whether the worker may send a record now; note what follows from it.

        If what is large comes behind records, `behind` is the number of bytes of a message.
        """
        kind, round, index, more, _ = record
        if self._over:
            return False
        if behind is not None:
            room = TRACEBACK_BYTES * (kind == Kind.FAILED)
            if kind == Kind.MESSAGE or (kind == Kind.ANSWER and more):
                more, room = abs(more - behind), 0
            if not 0 <= more <= room:
                return False
        if kind == Kind.MESSAGE or kind == Kind.LEFT:
            at_it = round == self._round and self._next < self._messages
            expected = self._next if kind == Kind.MESSAGE else NONE
            if not at_it or index != expected:
                return False
            self._next = index + 1 if kind == Kind.MESSAGE else self._messages
        elif kind == Kind.ANSWER:
            if index not in self._questions:
                return False
            self._questions.remove(index)
        elif kind == Kind.FAILED:
            self._over = True
        elif kind == Kind.JOINED and not self._joined:
            self._joined = True
        else:
            return False
        return True


def pair(messages: int) -> tuple[SocketLine, socket.socket]:
    """Return a line to a process of this machine, and the other end, to be closed once it has it.

    The process sends so many messages in a round.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, _KIND)
    return SocketLine(messages, ours), theirs


class SocketLine(Line):
    """A line that is a socket: on this machine one of a `pair`."""

    def __init__(self, messages: int, line: socket.socket) -> None:
        super().__init__(messages)
        self._socket = line

    def fileno(self) -> int:
        """The file that can be read once there is a record, or once the worker is gone."""
        return self._socket.fileno()

    def _send(self, record: Record) -> bool:
        with contextlib.suppress(ConnectionError):
            try:
                self._socket.send(RECORD.pack(*record), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
        return True

    def read(self) -> Record | None:
        """Return the next record; None: the worker is gone, and told everything before.

        Raises BlockingIOError if there is none, and Nonsense after what no worker may send.
        """
        sent = self._receive()
        if not sent:
            return None
        if len(sent) < RECORD.size:  # workers write whole records
            raise Nonsense
        record = Record(*RECORD.unpack(sent))
        if not self.accepts(record):
            raise Nonsense
        return record

    def ended(self) -> bool:
        """Whether the worker is gone; what it sent is dropped."""
        try:
            return not self._receive(1 << 20)
        except BlockingIOError:
            return False

    def _receive(self, nbytes: int = RECORD.size) -> bytes:
        """The next packet; empty: there will be no more."""
        try:
            return self._socket.recv(nbytes, socket.MSG_DONTWAIT)
        except ConnectionResetError:  # once, if the other end closed and had not read everything
            return self._socket.recv(nbytes, socket.MSG_DONTWAIT)

    def end(self) -> None:
        """Have the worker end when it next looks; its last records can still be read."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


class WorkerEnd:
    """The worker's end of a channel. A subclass says how records are sent and received.

    Attributes
    ----------
    round, first, delay
        The last order.
    newest : int
        The newest round that the worker knows of.
    theta : ndarray
        The parameters of the round.
    slots : list of ndarray
        Where the worker's messages lie, in order; and its answer, if it may be asked.
    """

    def __init__(self, slots: list[Array]) -> None:
        self.slots, self.theta = slots, np.empty(0)
        self.round = self.newest = NONE
        self.first, self.delay = 0, 0.0

    def serve(self, worker: Worker) -> None:
        """Tell that the worker has joined; send the messages of each round, until the end.

        Between messages it answers what is asked, and leaves a round if a newer one has begun.
        """
        self._worker = worker
        self.tell(Kind.JOINED, NONE)
        while self.next():
            for index in range(self.first, worker.message_count):
                if not self.look():
                    return
                if self.round < self.newest:
                    self.tell(Kind.LEFT, self.round)
                    break
                seconds = worker.sleep_before(index, self.delay)
                if seconds > 0.0 and not self.sleep(seconds):
                    return
                message, energy = worker.message(self.theta, index, self.round)
                self.tell(Kind.MESSAGE, self.round, index, message, energy)

    def next(self) -> bool:
        """Wait for an order, and answer what is asked before; False: the worker must end."""
        while record := self._read():
            if self._take(record):
                return True
        return False

    def _take(self, record: Record) -> bool:
        """Note an order or news, or answer a question; return whether it was an order."""
        kind, round, number, more, real = record
        if kind == ORDERED:
            self.round, self.first, self.delay = round, more, real
        elif kind == ASKED:
            out = self.slots[-1]
            found = self._worker.answer(Question(number, round, Share(more)), out)
            answer, energy = found or (None, math.nan)
            self.tell(Kind.ANSWER, round, number, answer, energy)
        if kind != ASKED:
            self.newest = max(self.newest, round)
        return bool(kind == ORDERED)

    def look(self) -> bool:
        """Answer what is asked; False: the worker must end."""
        while self._wait(0.0):
            record = self._read()
            if not record:
                return False
            self._take(record)
        return True

    def sleep(self, seconds: float) -> bool:
        """Sleep, and answer what is asked meanwhile; False, at once: the worker must end."""
        end = Deadline(seconds)
        while left := end.left:
            if self._wait(left) and not self.look():
                return False
        return True

    def tell(
        self,
        kind: int,
        round: int,
        number: int = NONE,
        behind: Array | None = None,
        energy: float = math.nan,
    ) -> None:
        """Send a record to the master, and what comes behind it; end if the master is gone."""
        raise NotImplementedError

    def _read(self) -> Record | None:
        """Wait for a record; None: the master is gone, or has given this worker up."""
        raise NotImplementedError

    def _wait(self, seconds: float) -> bool:
        """Wait so long for a record, or less; return whether there is one, or never will be."""
        raise NotImplementedError


class SocketEnd(WorkerEnd):
    """The other end of a `SocketLine`; what is large lies in shared memory.

    Parameters
    ----------
    file : int
    newest : array of one int
        The number of the newest round, which the master writes.
    thetas : list of ndarray
        The buffers of parameters.
    slots : list of ndarray
    """

    def __init__(self, file: int, newest: Array, thetas: list[Array], slots: list[Array]) -> None:
        super().__init__(slots)
        self._file, self._newest, self._thetas = file, newest.data, thetas
        self._poll = select.poll()
        self._poll.register(file, select.POLLIN)

    def _read(self) -> Record | None:
        try:
            sent = os.read(self._file, RECORD.size)
        except ConnectionResetError:
            return None
        if not sent:
            return None
        record = Record(*RECORD.unpack(sent))
        if record.kind == ORDERED:
            self.theta = self._thetas[record.number]
        return record

    def _wait(self, seconds: float) -> bool:
        self.newest = self._newest[0]
        if 0.0 < seconds < 1e-3:  # `poll` counts whole milliseconds
            time.sleep(seconds)
            return False
        return bool(self._poll.poll(int(1e3 * seconds)))

    def tell(
        self,
        kind: int,
        round: int,
        number: int = NONE,
        behind: Any = None,
        energy: float = math.nan,
    ) -> None:
        """Send a record to the master; end the process if the master is gone."""
        more = time.perf_counter_ns() if kind == Kind.MESSAGE else behind is not None
        self.write(Record(kind, round, number, more, energy))

    def write(self, record: Record) -> None:
        """Write a record, whatever it says."""
        try:
            os.write(self._file, RECORD.pack(*record))
        except OSError:
            os._exit(1)
