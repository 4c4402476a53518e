"""The channel between a master and one worker process of its machine.

It is one pair of sockets. Records of one length go both ways, and everything large lies in shared
memory (`fastgc.engines.local`). In the kernel's eyes each direction has one writer and one reader:
no process can reopen a socket, and each end is held by one process alone.

A worker is in one of these states, and the master knows in which::

    starting --JOINED--> idle --order--> at a round --last MESSAGE, or LEFT--> idle

From any state a worker may report FAILED, its last record, or end, which breaks the channel. While
it is idle or at a round, it may be asked; it answers each question once, when it comes to it.

The master sends
    an order (round, buffer, first message, delay) to a worker that is idle; and questions (round,
    number, share) to one that has joined.
The worker sends
    its messages, in order and each when it lies complete in memory, from the first one that it was
    ordered to send; LEFT in their place, if it sees that a newer round has begun; and answers.

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
from collections.abc import Callable
from typing import NamedTuple

from .._base.arrays import Array
from .._base.deadline import Deadline
from .interface import Kind

__all__ = ["ASKED", "ORDERED", "Line", "Nonsense", "Record", "WorkerEnd"]

_FORMAT = struct.Struct("=qqqqd")
ORDERED, ASKED = 0, 1  # the kinds of records to a worker
NONE = -1  # no round, or no message
# Packets cost two thirds of a stream's time; macOS has none between processes.
_KIND = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_STREAM


class Record(NamedTuple):
    """What one end tells the other.

    To a worker: an order's round, buffer, first message and delay; or a question's round, number
    and share. From a worker: the round, the message, when it was complete (of an answer: whether
    there is one), and its energy.
    """

    kind: int
    round: int
    number: int
    more: int = 0
    real: float = 0.0


class Nonsense(Exception):
    """A worker wrote what no worker's program writes."""


class Line:
    """The master's end of a channel: sends orders, and takes only what the protocol allows.

    Parameters
    ----------
    messages : int
        Number of messages that the worker sends in a round.

    Attributes
    ----------
    theirs : socket
        The worker's end, to be closed once the worker has it.
    """

    def __init__(self, messages: int) -> None:
        self._socket, self.theirs = socket.socketpair(socket.AF_UNIX, _KIND)
        self._messages = messages
        self._joined = self._over = False
        self._round, self._next = NONE, messages  # the next message; `messages`: the worker is idle
        self._questions: set[int] = set()

    def fileno(self) -> int:
        """The file that can be read once there is a record, or once the worker is gone."""
        return self._socket.fileno()

    def order(self, round: int, buffer: int, first: int, delay: float) -> bool:
        """Hand a round to the worker, which is idle; False: it does not read its orders.

        It is no error if the worker has died.
        """
        self._round, self._next = round, first
        return self._send(Record(ORDERED, round, buffer, first, delay))

    def ask(self, round: int, number: int, share: int) -> None:
        """Ask the worker, unless it does not read its questions: then it does not answer."""
        if self._send(Record(ASKED, round, number, share)):
            self._questions.add(number)

    def _send(self, record: Record) -> bool:
        with contextlib.suppress(ConnectionError):
            try:
                self._socket.send(_FORMAT.pack(*record), socket.MSG_DONTWAIT)
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
        if len(sent) < _FORMAT.size:  # workers write whole records
            raise Nonsense
        record = Record(*_FORMAT.unpack(sent))
        if not self.accepts(record):
            raise Nonsense
        return record

    def accepts(self, record: Record) -> bool:
        """Whether the worker may send a record now; note what follows from it."""
        kind, round, index = record[:3]
        if self._over:
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

    def ended(self) -> bool:
        """Whether the worker is gone; what it sent is dropped."""
        try:
            return not self._receive()
        except BlockingIOError:
            return False

    def _receive(self) -> bytes:
        """The next packet; empty: there will be no more."""
        try:
            return self._socket.recv(_FORMAT.size, socket.MSG_DONTWAIT)
        except ConnectionResetError:  # once, if the other end closed and had not read everything
            return self._socket.recv(_FORMAT.size, socket.MSG_DONTWAIT)

    def end(self) -> None:
        """Have the worker end when it next looks; its last records can still be read."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
        self.theirs.close()


class WorkerEnd:
    """The worker's end of a channel (`fastgc.engines.worker.Orders`).

    Parameters
    ----------
    file : int
    newest : array of one int
        The number of the newest round, which the master writes.
    answer : callable
        ``answer(round, number, share)`` answers a question.
    """

    def __init__(
        self, file: int, newest: Array, answer: Callable[[int, int, int], tuple[bool, float]]
    ) -> None:
        self._file, self._newest, self._answer = file, newest.data, answer
        self._poll = select.poll()
        self._poll.register(file, select.POLLIN)
        self.round, self.buffer, self.first, self.delay = NONE, 0, 0, 0.0

    @property
    def newest(self) -> int:
        """The newest round."""
        newest: int = self._newest[0]
        return newest

    def next(self) -> bool:
        """Wait for an order, and answer what is asked before; False: the worker must end."""
        while record := self._read():
            if self._take(record):
                return True
        return False

    def _read(self) -> bytes:
        """Wait for a record; empty: the master is gone, or has given this worker up."""
        try:
            return os.read(self._file, _FORMAT.size)
        except ConnectionResetError:
            return b""

    def _take(self, record: bytes) -> bool:
        """Note an order, or answer a question; return whether it was an order."""
        kind, round, index, more, real = _FORMAT.unpack(record)
        if kind == ORDERED:
            self.round, self.buffer, self.first, self.delay = round, index, more, real
        else:
            has, energy = self._answer(round, index, more)
            self.tell(Kind.ANSWER, round, index, has, energy)
        return bool(kind == ORDERED)

    def look(self) -> bool:
        """Answer what is asked; False: the worker must end."""
        while self._poll.poll(0):
            record = self._read()
            if not record:
                return False
            self._take(record)
        return True

    def sleep(self, seconds: float) -> bool:
        """Sleep, and answer what is asked meanwhile; False, at once: the worker must end."""
        end = Deadline(seconds)
        while left := end.left:
            if left < 1e-3:  # `poll` counts whole milliseconds
                time.sleep(left)
            elif self._poll.poll(int(1e3 * left)) and not self.look():
                return False
        return True

    def tell(
        self, kind: Kind, round: int, index: int = NONE, more: int = 0, energy: float = math.nan
    ) -> None:
        """Send a record to the master; end the process if the master is gone."""
        try:
            os.write(self._file, _FORMAT.pack(kind, round, index, more, energy))
        except OSError:
            os._exit(1)

    def send(self, index: int, energy: float) -> None:
        """Tell that a message of the round lies complete in memory."""
        self.tell(Kind.MESSAGE, self.round, index, time.perf_counter_ns(), energy)

    def leave(self) -> None:
        """Tell that the round is left without its further messages."""
        self.tell(Kind.LEFT, self.round)
