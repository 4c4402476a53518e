"""The channel of a worker: its protocol in every reachable state, and its two ends."""

import math
import os
import socket
import struct
import threading
import time
from typing import NamedTuple

import numpy as np
import pytest

from fastgc.engines.channel import (
    ASKED,
    NEWS,
    NONE,
    ORDERED,
    Line,
    Nonsense,
    Record,
    SocketEnd,
    WorkerEnd,
    pair,
)
from fastgc.engines.interface import Buffers, Kind
from fastgc.engines.worker import TRACEBACK_BYTES

# ------------------------------------------------------------- the protocol, in every state


class Known(NamedTuple):
    """What a line knows of its worker."""

    joined: bool = False
    over: bool = False
    round: int = NONE
    next: int = 2
    told: int = NONE
    questions: frozenset = frozenset()

    @property
    def idle(self):
        return self.next == MESSAGES


MESSAGES, ROUNDS, QUESTIONS = 2, 3, 2


class ModelLine(Line):
    """The true checks of a line that knows this, without a socket: records are kept in `sent`."""

    def __init__(self, known):
        self._messages, self.sent = MESSAGES, ()
        self._joined, self._over, self._round, self._next, self._told, questions = known
        self._questions = set(questions)

    def _send(self, record):
        self.sent += (record,)
        return True

    @property
    def known(self):
        questions = frozenset(self._questions)
        return Known(self._joined, self._over, self._round, self._next, self._told, questions)


class State(NamedTuple):
    """An honest worker and its master; the master follows one worker among others."""

    known: Known = Known()
    to_worker: tuple = ()
    to_master: tuple = ()
    newest: int = NONE
    asked: int = 0
    contents: tuple = (NONE, NONE)  # the round whose parameters each buffer holds
    buffer: int = 0  # of the newest round
    handed: int = NONE  # the last round handed to the worker
    phase: str = "starting"  # or idle, round, ended
    round: int = NONE  # that the worker is at, its buffer, and its next message
    reads: int = 0
    next: int = 0


def moves(s):
    """Yield what may happen next, and the state after it."""
    if s.newest < ROUNDS - 1:
        in_use = set() if s.known.idle else {s.known.round}
        buffers = Buffers({s.contents[b]: b for b in range(2) if s.contents[b] in in_use})
        buffer = buffers.take(s.newest + 1, in_use)
        contents = tuple(s.newest + 1 if b == buffer else s.contents[b] for b in range(2))
        yield "publish", s._replace(newest=s.newest + 1, contents=contents, buffer=buffer)
    if s.known.joined and s.known.idle and s.handed < s.newest:
        line = ModelLine(s.known)
        line.order(s.newest, s.buffer, 0, 0.0)
        to_worker = s.to_worker + line.sent
        yield "order", s._replace(known=line.known, to_worker=to_worker, handed=s.newest)
    if s.known.joined and s.asked < QUESTIONS:
        line = ModelLine(s.known)
        line.ask(s.newest, s.asked, 7)
        to_worker = s.to_worker + line.sent
        yield "ask", s._replace(known=line.known, to_worker=to_worker, asked=s.asked + 1)
    if s.to_master:
        line = ModelLine(s.known)
        assert line.accepts(s.to_master[0]), f"an honest worker was refused {s.to_master[0]}: {s}"
        yield "read", s._replace(known=line.known, to_master=s.to_master[1:])
    yield from worker_moves(s)


def worker_moves(s):
    def tells(*record, **changes):
        return s._replace(to_master=(*s.to_master, Record(*record)), **changes)

    if s.phase == "ended":
        return
    yield "end", s._replace(phase="ended")
    yield "fail", tells(Kind.FAILED, s.round, NONE, phase="ended")
    if s.phase == "starting":
        yield "join", tells(Kind.JOINED, NONE, NONE, phase="idle")
        return
    if s.to_worker:
        kind, round, number, *_ = s.to_worker[0]
        rest = s.to_worker[1:]
        if kind == ASKED:
            yield "answer", tells(Kind.ANSWER, round, number, to_worker=rest)
        else:
            assert kind == ORDERED
            assert s.phase == "idle", "an order came to a worker that is at a round"
            yield (
                "begin",
                s._replace(phase="round", round=round, reads=number, next=0, to_worker=rest),
            )
    if s.phase == "round":
        if s.round < s.newest:
            yield "leave", tells(Kind.LEFT, s.round, NONE, phase="idle")
        else:
            phase = "idle" if s.next == MESSAGES - 1 else "round"
            yield "send", tells(Kind.MESSAGE, s.round, s.next, next=s.next + 1, phase=phase)


def test_honest_workers_are_never_refused_and_never_wait_for_ever():
    """Invariants 1, 3 and 4, in all states of two messages, three rounds and two questions."""
    seen, ahead = {State()}, [State()]
    while ahead:
        s = ahead.pop()
        after = dict(moves(s))
        if s.phase == "round":
            assert s.contents[s.reads] == s.round, f"parameters in use were overwritten: {s}"
        if not after.keys() - {"end", "fail"}:  # all rounds are over, or the worker has ended
            assert not s.to_master
            assert s.phase == "ended" or (s.known.idle and not s.known.questions), s
        for each in after.values():
            if each not in seen:
                seen.add(each)
                ahead.append(each)
    assert len(seen) > 1000


def test_what_a_liar_may_send_is_bounded():
    """Invariant 2: whatever it sends at any time."""
    records = [
        Record(kind, round, number)
        for kind in (*Kind, -1, 99)
        for round in (NONE, 0, 1, 2**62)
        for number in (NONE, 0, 1, 2, 2**62)
    ]
    start = Known(), 0, 0, 0  # what is known, orders, questions, and records accepted
    seen, ahead = {start}, [start]
    while ahead:
        known, orders, asked, accepted = ahead.pop()
        assert accepted <= MESSAGES * orders + asked + 2
        after = []
        if known.idle and orders < 2:
            line = ModelLine(known)
            line.order(orders, 0, 0, 0.0)
            after.append((line.known, orders + 1, asked, accepted))
        if asked < QUESTIONS:
            line = ModelLine(known)
            line.ask(0, asked, 7)
            after.append((line.known, orders, asked + 1, accepted))
        for record in records:
            line = ModelLine(known)
            if line.accepts(record):
                after.append((line.known, orders, asked, accepted + 1))
                assert (
                    record.kind in (Kind.JOINED, Kind.FAILED)
                    or record.round == known.round
                    or (record.kind == Kind.ANSWER)
                )
        for each in after:
            if each not in seen:
                seen.add(each)
                ahead.append(each)


@pytest.mark.parametrize(
    ("kind", "number", "sizes"),
    [
        (Kind.MESSAGE, 0, [24]),
        (Kind.ANSWER, 1, [0, 24]),
        (Kind.FAILED, NONE, range(TRACEBACK_BYTES + 1)),
        (Kind.LEFT, NONE, [0]),
        (Kind.JOINED, NONE, [0]),
    ],
)
def test_no_more_comes_behind_a_record_than_an_honest_worker_sends(kind, number, sizes):
    tried = [-(2**62), -24, -1, 0, 1, 23, 24, 25, 100, TRACEBACK_BYTES, TRACEBACK_BYTES + 1, 2**62]
    known = Known(round=0, next=0, questions=frozenset({1}))
    for more in tried:
        record = Record(kind, 0, number, more)
        assert ModelLine(known).accepts(record, 24) == (more in sizes)
        assert ModelLine(known).accepts(record)


# ------------------------------------------------------------------------- the two ends


class Ends:
    """Both ends of a channel, in one process."""

    def __init__(self, messages=2):
        (self.line, self.theirs), self.newest = pair(messages), np.array([NONE])
        thetas = [np.full(1, 10.0 * buffer) for buffer in range(4)]
        slots = [np.empty(1) for _ in range(messages + 1)]
        self.worker = SocketEnd(self.theirs.fileno(), self.newest, thetas, slots)
        self.worker._worker, self.questions = self, []

    def answer(self, question, out):
        assert out is self.worker.slots[-1]
        self.questions.append((question.round, question.number, question.what.worker))
        return (out, 0.5) if question.what.worker < 9 else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.line.close()
        self.theirs.close()


def test_a_round():
    with Ends() as ends:
        ends.worker.tell(Kind.JOINED, NONE)
        assert ends.line.read()[:2] == (Kind.JOINED, NONE)
        assert ends.line.order(7, 3, 0, 0.25)
        ends.line.ask(7, 11, 5)
        ends.line.ask(7, 12, 9)
        assert ends.worker.next()
        worker = ends.worker
        assert (worker.round, worker.theta[0], worker.first, worker.delay) == (7, 30.0, 0, 0.25)
        ends.newest[0] = 9
        assert worker.look()
        assert worker.newest == 9
        assert ends.questions == [(7, 11, 5), (7, 12, 9)]
        before = time.perf_counter_ns()
        worker.tell(Kind.MESSAGE, 7, 0, worker.slots[0], 1.5)
        worker.tell(Kind.LEFT, 7)
        assert ends.line.read() == (Kind.ANSWER, 7, 11, 1, 0.5)
        assert ends.line.read()[:4] == (Kind.ANSWER, 7, 12, 0)
        kind, round, index, when, energy = ends.line.read()
        assert (kind, round, index, energy) == (Kind.MESSAGE, 7, 0, 1.5)
        assert before <= when <= time.perf_counter_ns()
        assert ends.line.read()[:3] == (Kind.LEFT, 7, NONE)
        with pytest.raises(BlockingIOError):
            ends.line.read()


class Scripted(WorkerEnd):
    """An end that is handed records, each before a look, and keeps what it tells."""

    def __init__(self, *records, ends=99):
        super().__init__([np.empty(1)] * 4)
        self.records, self.told, self.slept, self.ends = list(records), [], [], ends

    def _read(self):
        return self.records.pop(0) if self.records else None

    def _wait(self, seconds):
        if seconds:
            self.slept.append(seconds)
            time.sleep(seconds)
        self.ends -= 1
        first = self.records[0] if self.records else None
        return self.ends < 0 or (first is not None and first.kind == NEWS)

    def tell(self, kind, round, number=NONE, behind=None, energy=math.nan):
        self.told.append((int(kind), number))
        if self.records and self.records[0] is None:
            self.records.pop(0)


class Three:
    """A worker of three messages, which notes what it is asked to compute."""

    message_count = 3

    def __init__(self, spread=False):
        self.spread = spread

    def sleep_before(self, index, delay):
        return delay / 3 if self.spread else delay * (index == 0)

    def message(self, theta, index, round):
        return theta, float(index)


JOINED, LEFT = (2, NONE), (1, NONE)
SENT = [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize(
    ("records", "spread", "ends", "told", "sleeps"),
    [
        ([Record(ORDERED, 3)], False, 99, SENT, 0),
        ([Record(ORDERED, 3, 0, 1)], False, 99, SENT[1:], 0),
        ([Record(ORDERED, 3, 0, 0, 0.003)], False, 99, SENT, 1),
        ([Record(ORDERED, 3, 0, 0, 0.003)], True, 99, SENT, 3),
        ([Record(ORDERED, 3, 0, 1, 0.003)], False, 99, SENT[1:], 0),
        ([Record(ORDERED, 3)], False, 0, [], 0),
        ([Record(ORDERED, 3)], False, 2, SENT[:2], 0),
        ([Record(ORDERED, 3), Record(NEWS, 4)], False, 99, [LEFT], 0),
        ([Record(ORDERED, 3), None, Record(NEWS, 4)], False, 99, [SENT[0], LEFT], 0),
        ([Record(ORDERED, 3), Record(NEWS, 3)], False, 99, SENT, 0),
        ([Record(ORDERED, 3, 0, 0, 0.003)], True, 1, [], 1),
        ([Record(ORDERED, 3), Record(ORDERED, 4, 0, 2)], False, 99, [*SENT, SENT[2]], 0),
    ],
)
def test_serve(records, spread, ends, told, sleeps):
    end = Scripted(*records, ends=ends)
    end.serve(Three(spread))
    assert end.told == [JOINED, *told]
    assert len(end.slept) == sleeps


def test_a_worker_that_sleeps_answers_and_ends():
    with Ends() as ends:
        ends.worker.tell(Kind.JOINED, NONE)
        ends.line.read()
        ends.line.ask(0, 1, 2)
        start = time.monotonic()
        assert ends.worker.sleep(0.0203)
        assert time.monotonic() - start >= 0.0203
        assert ends.questions == [(0, 1, 2)]
        ends.line.ask(0, 2, 3)
        threading.Timer(0.02, ends.line.end).start()
        assert not ends.worker.sleep(math.inf)
        assert not ends.worker.next()
        assert not ends.worker.look()
        assert ends.line.read().number == 1
        assert ends.line.read().number == 2


def test_what_came_before_the_end_is_read():
    with Ends() as ends:
        ends.worker.tell(Kind.JOINED, NONE)
        assert not ends.line.ended()  # it drops the record
        ends.worker.tell(Kind.FAILED, NONE)
        ends.theirs.close()
        assert ends.line.read().kind == Kind.FAILED
        assert ends.line.read() is None
        assert ends.line.ended()
        assert ends.line.order(0, 0, 0, 0.0)  # no error: the death is known elsewhere


def test_ends_that_have_not_read_everything():
    """The system tells the other end of a reset, once, before what was sent."""
    with Ends() as ends:
        ends.line.order(0, 0, 0, 0.0)
        ends.worker.tell(Kind.JOINED, NONE)
        ends.worker.tell(Kind.FAILED, NONE)
        ends.theirs.close()
        assert ends.line.read().kind == Kind.JOINED
        assert ends.line.read().kind == Kind.FAILED
        assert ends.line.read() is None
    with Ends() as ends:
        ends.worker.tell(Kind.JOINED, NONE)
        ends.line._socket.close()
        assert not ends.worker.look()
    with Ends() as ends:
        ends.worker.tell(Kind.JOINED, NONE)
        ends.line._socket.close()
        assert not ends.worker.next()


@pytest.mark.parametrize("size", [1, 39, 41])
def test_records_of_another_length(size):
    with Ends() as ends:
        os.write(ends.theirs.fileno(), b"\xff" * size)
        with pytest.raises(Nonsense):
            ends.line.read()


def test_a_full_line_holds_nobody_up():
    with Ends(messages=1) as ends:
        ends.line.accepts(Record(Kind.JOINED, NONE, NONE))
        number = 0
        while ends.line.order(number, 0, 0, 0.0):
            assert ends.line.accepts(Record(Kind.MESSAGE, number, 0))
            number += 1
        assert number > 10
        ends.line.ask(0, 0, 0)
        assert not ends.line.accepts(Record(Kind.ANSWER, 0, 0))  # it was not asked


@pytest.mark.skipif(not hasattr(socket, "SOCK_SEQPACKET"), reason="no packets here")
def test_nobody_can_reopen_a_line():
    with Ends() as ends, pytest.raises(OSError, match="No such device"):
        os.open(f"/proc/self/fd/{ends.theirs.fileno()}", os.O_RDWR)


def test_news_are_told_once_to_whoever_is_at_an_older_round():
    line = ModelLine(Known())
    line.tell(0)
    assert line.sent == ()
    line.order(0, 0, 0, 0.0)
    for round in (1, 2):
        line.tell(round)
    assert line.sent[1:] == (Record(NEWS, 1),)
    assert line.accepts(Record(Kind.LEFT, 0, NONE))
    line.order(2, 0, 0, 0.0)
    line.tell(3)
    assert line.sent[-1] == Record(NEWS, 3)


def test_records_are_of_one_size():
    with Ends() as ends:
        ends.line.order(1, 2, 0, 0.5)
        sent = ends.theirs.recv(1 << 12)
        assert struct.unpack("=qqqqd", sent) == (ORDERED, 1, 2, 0, 0.5)
