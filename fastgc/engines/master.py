"""What a master decides, whichever transport carries its messages."""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._base.arrays import Array, Ints
from .._base.deadline import LONGEST
from .._base.text import listed, plural
from ..codes import Round, Share
from ..errors import NotDecodableError, WorkerFailedError, warn_caller
from .interface import Event, Kind, Question, Task, Transport
from .loop import RoundLoop, Run
from .machines import members_of

__all__ = ["Master"]

_LOG = logging.getLogger("fastgc")

_CHANGES = Kind.DIED, Kind.JOINED  # events that change which workers there are

_NOBODY = -1, None  # stands for a question that was never asked

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0  # seconds; doubled with each death without a message


class Master(RoundLoop):
    """The master of a cluster: hands out rounds, and takes messages until one can be decoded.

    Every worker receives its partitions once, at the start. A round hands the newest parameters to
    the workers. A worker that is still busy with an older round is not interrupted: its late
    message is dropped, and it continues with the newest round. A worker that dies is a straggler
    until it is back. It is restarted at once or, if it dies again without having sent a message,
    after pauses of up to 10 seconds.

    Engines are subclasses, each with its `Transport`.

    Parameters
    ----------
    code : Code
        The gradient code, for ``code.n`` workers.
    shards : sequence of length ``code.scheme.data.shards``
        The data of each partition, as ``code.encode_data`` returns them: anything that can be
        pickled. NumPy arrays in them are read-only to `gradient`.
    gradient : callable
        ``gradient(theta, shard, out)`` writes the partial gradient of a shard at the read-only
        parameters ``theta`` to all of ``out``, which holds NaN, and returns None or ``out``. It is
        pickled, so define it in an importable module. If it has keywords ``partition`` and
        ``round``, it gets them. For more control, give a `Computation`.
    size : int
        The gradient dimension p.
    dtype : numpy dtype, default ``float64``
        Dtype of parameters and gradient.
    options : RoundOptions, optional
        How rounds are run.
    **keywords
        Single options of `fastgc.engines.RoundOptions`, which override `options`:
        ``timeout=5.0, verify=True``.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit. No worker has been started in that case.

    Notes
    -----
    This is what happens after faults:

    - A worker that is slow, stopped, or hangs is a straggler. It then jumps to the newest round.
    - Up to s workers may die at any moment. They are stragglers, and are restarted and rejoin.
      Under MPI the job ends and says so; it can be resumed from its checkpoint.
    - If more than s die, the round waits for them to come back (`patience`). It then raises an
      error that names them, or uses an approximation (``partial="best"``, "unbiased").
    - If the gradient function raises, the master raises a `WorkerFailedError` with worker,
      partition and traceback. It does the same if the function does not write all of ``out``, or
      returns something else, which would be lost.
    - If a message that the gradient is decoded from is not finite, the master raises a
      `NonFiniteMessageError`, which names the worker.
    - `verify` finds messages that are wrong: with two spare messages, parity checks identify the
      worker, which counts as a straggler of that round. If too many workers have died to tell, the
      round waits for them.
    - If the master dies, all workers end. The run can be resumed from its checkpoint.
    """

    _least_wait = 0.1
    # Where machines are named: what an outage of one does.
    _outage = "is lost, the others cannot go on"

    def _start_workers(self) -> None:
        self._starting, self._live = set(self._everyone), set[int]()
        self._busy: dict[int, int] = {}  # worker: the round that it was handed, and is not over
        self._left = self._options.patience  # seconds of patience left in this round
        self._idle_deaths = [0] * self._code.n  # deaths since the worker's last message
        self._due: dict[int, float] = {}  # lost worker: when to restart it
        self._heard: set[int] = set()  # numbers of this round's messages that were sent
        self._inbox: deque[Event] = deque()
        self._message_shape = (self._form.message_size,)
        self._message_dtype = self._form.message_dtype
        # Whether each message may show that the lost are needed in place of the corrupt, or that an
        # approximation does without them.
        self._hopes_anew = bool(self._options.verify) or self._options.partial != "raise"
        self._pid = os.getpid()
        self.transport = self._open(self._task)
        self._can_ask = getattr(self.transport, "asks", False)
        self._exposed = getattr(self.transport, "exposed", False)
        self._task = self._task.without_data()  # the master computes nothing
        self._close = weakref.finalize(self, _end, self._round, self.transport)
        try:
            self._await_all()
            self._warn_of_machines()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        state = "at work" if self._close.alive else "closed"
        if self._lost:
            state += f", lost: workers {listed(self._lost)}"
        rounds = self._number + 1 - self._options.first_round
        return f"<{type(self).__name__} of {self._code!r}: {plural(rounds, 'round')}, {state}>"

    @property
    def hosts(self) -> list[str]:
        """The machine of each worker, as it said when it first joined.

        "": the machine of the master. Engines on one machine do not ask.
        """
        return list(getattr(self.transport, "hosts", [""] * self._code.n))

    def _warn_of_machines(self) -> None:
        """Warn of machines that the others cannot spare, where another order of workers may help.

        It leaves out the master's own, with which all is lost, a machine with all workers, a
        machine with one worker, and a machine none of whose workers can be spared alone.
        """
        needed = [
            f"{host} (workers {listed(those)})"
            for host, those in members_of(self.hosts).items()
            if host and 1 < len(those) < self._code.n and not self._can_spare(those)
            if any(self._can_spare([one]) for one in those)
        ]
        if needed and self._options.partial == "raise":
            warn_caller(
                f"if {' or '.join(needed)} {self._outage}: they lack what only these hold of "
                f"{self._code!r}. Deal its workers out to the machines by "
                "fastgc.engines.placement",
                UserWarning,
            )

    def _can_spare(self, workers: Iterable[int]) -> bool:
        """Whether the other workers can go on without these."""
        scheme = self._code.scheme
        others = self._everyone.difference(workers)
        if self._can_ask and scheme.holders.stand_ins:  # others compute what is missing
            return not any(others.isdisjoint(scheme.holders.of(i)) for i in range(scheme.n))
        return self._code.decodable(scheme.messages.of(others))

    def _open(self, task: Task) -> Transport:
        """Start the workers of a task."""
        raise NotImplementedError

    def close(self) -> None:
        """End the workers and release what they use; a second call does nothing."""
        self._close()

    def _is_closed(self) -> bool:
        return not self._close.alive

    def _spoil(self) -> None:
        self.close()

    @staticmethod
    def clock() -> float:
        """Seconds since some fixed moment, on the clock that times rounds."""
        return time.perf_counter()

    def _now(self) -> float:
        return time.perf_counter()

    def _await_all(self) -> None:
        seconds = self._options.start_timeout
        until = self._now() + seconds
        while self._starting:
            event = self._next(until)
            if event is None:
                raise TimeoutError(
                    f"workers {listed(sorted(self._starting))} have not started within "
                    f"{seconds:g} s, which start_timeout= changes"
                )
            if event.kind == Kind.DIED:
                raise WorkerFailedError(
                    f"worker {event.worker} died while it started{event.text}", event.worker
                )

    def _opened(self, theta: Array) -> Array:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"the workers belong to process {self._pid}, of which this one is a fork: make a "
                "cluster in the process that uses it"
            )
        return super()._opened(theta)

    def _hand_out(self, run: Run, theta: Array) -> None:
        self._stale = self._refused = 0
        while (event := self._next(-math.inf)) is not None:  # came since the last round
            if event.kind == Kind.ANSWER:
                del self._asked[event.index]
        self._heard.clear()
        self._left = self._options.patience
        self.transport.publish(self._number, theta, set(self._busy.values()))
        run.start = self._now()
        run.deadline = run.start + self._timeout
        for worker in self._live & run.asked:
            self._hand(run, worker)
        for worker in self._lost:
            run.rnd.straggles(worker)
        if self._lost:
            run.hope = self._hope(run)

    def _wait(self, run: Run, until: float) -> Event | None:
        return self._next(until)

    def _take(self, run: Run, event: Event) -> None:
        rnd, worker, kind = run.rnd, event.worker, event.kind
        if (event.round == self._number and kind == Kind.MESSAGE) or kind == Kind.ANSWER:
            self._bring(run, event)
        elif kind == Kind.DIED:
            rnd.straggles(worker)
        elif worker in run.asked:  # it sent an older round's message, left one, or joined
            self._hand(run, worker)
        if kind in _CHANGES or (self._lost and self._hopes_anew):
            run.hope = self._hope(run)

    def _at_work(self, run: Run) -> bool:
        return not run.asked.isdisjoint(self._busy) or bool(run.rnd.owing)

    def _ask(self, run: Run, asked: dict[int, tuple[int, Share]]) -> None:
        transport: Any = self.transport
        for number, (worker, what) in asked.items():
            if worker in self._live:
                transport.ask(worker, Question(number, self._number, what))
            else:
                del self._asked[number]
                run.rnd.hear(worker, what, None)

    def _hand(self, run: Run, worker: int) -> None:
        """Hand the newest round to a worker, unless it has that, or another, in hand."""
        if worker in self._busy:
            return
        first, end = self._first[worker : worker + 2]
        # A worker that died and is back goes on after the messages that it had sent.
        sent = sum(m in self._heard for m in range(first, end)) if self._deaths else 0
        if first + sent == end:  # it sent everything, died, and is back
            return
        self._busy[worker] = self._number
        self.transport.hand(worker, sent, run.delays[worker])

    def _next(self, until: float) -> Event | None:
        """Return the next event; None if there is none until the clock shows `until`."""
        inbox = self._inbox
        while True:
            while not inbox:
                now = time.perf_counter()
                wake = until
                if self._due:
                    self._restart(now)
                    wake = min(until, *self._due.values(), math.inf)
                inbox.extend(self.transport.listen(min(max(0.0, wake - now), LONGEST)))
                if until <= now and not inbox:
                    return None
            event = inbox.popleft()
            if self._admit(event):
                return event
            self._refused += 1

    def _restart(self, now: float) -> None:
        for worker in [worker for worker, due in self._due.items() if due <= now]:
            del self._due[worker]
            self._starting.add(worker)
            self.transport.restart(worker)

    def _admit(self, event: Event) -> bool:
        """Note what an event says of its worker; return False if no worker can have sent it."""
        kind, worker = event.kind, event.worker
        if not 0 <= worker < self._code.n:
            return False
        if kind == Kind.MESSAGE:
            return self._admit_message(event)
        if kind == Kind.ANSWER:
            return self._asked.get(event.index, _NOBODY)[0] == worker
        if kind == Kind.FAILED:
            when = "while it started" if event.round < 0 else f"in round {event.round}"
            raise WorkerFailedError(f"worker {worker} failed {when}{event.text}", worker)
        if kind == Kind.JOINED:
            if worker not in self._starting:
                return False
            self._starting.remove(worker)
            self._live.add(worker)
            if worker in self._lost:
                self._lost.remove(worker)
            return True
        if kind == Kind.DIED:
            if worker not in self._live and worker not in self._starting:
                return False
            self._bury(event)
            return True
        if event.round != self._busy.get(worker):
            return False
        del self._busy[worker]  # it left this round
        return True

    def _admit_message(self, event: Event) -> bool:
        """Note a message that was sent; return False if its worker cannot have it."""
        worker, number = event.worker, event.round
        if number != self._busy.get(worker):
            return False
        sent, end = self._first[worker] + event.index, self._first[worker + 1]
        if event.index < 0 or sent >= end or not self._fits(event):
            return False
        if number < self._number:
            self._stale += 1
        elif sent in self._heard:
            return False
        else:
            self._heard.add(sent)
        self._idle_deaths[worker] = 0
        if sent == end - 1:
            del self._busy[worker]
        return True

    def _fits(self, event: Event) -> bool:
        """Whether an event has a message of this cluster's size and dtype."""
        message, dtype = event.message, self._message_dtype
        return (
            message is not None
            and message.shape == self._message_shape
            and (message.dtype is dtype or message.dtype == dtype)
        )

    def _bury(self, event: Event) -> None:
        worker = event.worker
        when = "while it started" if worker in self._starting else f"in round {self._number}"
        _LOG.warning("worker %d died %s%s", worker, when, event.text)
        self._live.discard(worker)
        self._starting.discard(worker)
        self._busy.pop(worker, None)
        self._asked = {number: put for number, put in self._asked.items() if put[0] != worker}
        if worker not in self._lost:
            self._lost.append(worker)
        self._deaths += 1
        if self._options.patience > 0:
            idle = self._idle_deaths[worker]
            self._idle_deaths[worker] += 1
            pause = min(FIRST_PAUSE * 2.0 ** (idle - 1), LONGEST_PAUSE) if idle else 0.0
            self._due[worker] = self._now() + pause

    def _hope(self, run: Run) -> float:
        """Until when to wait for dead workers; inf if the others suffice.

        One patience budget per round, however many workers die: otherwise workers that come back
        only to die again would be waited for without end.
        """
        before = run.hope
        if not run.asked.isdisjoint(self._lost):
            try:
                run.rnd.require(self._within_reach(run))
            except NotDecodableError:
                return min(before, self._now() + self._left)
        if before < math.inf:
            self._left = max(0.0, before - self._now())
        return math.inf

    def _within_reach(self, run: Run) -> Ints:
        """Numbers of the messages that came, and of those from workers still at work."""
        at_work = self._code.scheme.messages.of(run.asked & self._busy.keys())
        return np.union1d(at_work, run.rnd.taken)

    def _exhausted(self, run: Run) -> bool:
        dead = not run.asked.isdisjoint(self._lost)
        if dead and not (run.rnd.decodable and not self._options.verify):
            if run.hope == math.inf:  # the dead could still show which worker is corrupt
                run.hope = self._now() + self._left
            return False
        # A tracker may want more messages than there will be.
        said = "no more messages will come, and those that came"
        if run.corrupt:
            said = f"messages of workers {run.corrupt} are corrupt, and the others"
        self._make_do(run, said)
        return True

    def _give_up(self, run: Run) -> bool:
        if run.hope <= run.deadline:
            if self._awaits_first(run):  # its message ends the round: no patience is left
                self._left, run.hope = 0.0, math.inf
                return False
            patience = self._options.patience
            waited = f" and were waited for {patience} s" if patience else ""
            self._make_do(run, f"workers {self._lost} have died{waited}, and the others")
        elif not self._enough(run.rnd):
            silent = sorted((run.asked & self._busy.keys()).union(run.rnd.owing))
            named = ("not heard from", silent), ("lost", self._lost), ("corrupt", run.corrupt)
            told = ", ".join(f"{what} workers {workers}" for what, workers in named if workers)
            raise TimeoutError(
                f"round {self._number} was not decodable after {self._options.timeout} s; "
                f"{told or 'all workers were heard'}"
            )
        return True

    def _awaits_first(self, run: Run) -> bool:
        """Whether one message would do for an approximation, and a living worker may send it."""
        rnd = run.rnd
        if self._options.partial == "raise" or not rnd.replaceable or self._enough(rnd):
            return False
        return not (run.asked & self._busy.keys()) <= set(run.corrupt)

    def _make_do(self, run: Run, why: str) -> None:
        """Raise NotDecodableError unless what came suffices, alone or as an approximation.

        The error begins with `why`: why no more will come, and the subject of "are too few".
        """
        if self._enough(run.rnd):
            return
        try:
            run.rnd.require(self._within_reach(run))
        except NotDecodableError as error:
            raise NotDecodableError(
                f"{why} are too few for round {self._number}: {error}", error.missing
            ) from None


def _end(rnd: Round, transport: Transport) -> None:
    rnd.reset()  # drop its messages: they lie in the transport's memory
    transport.close()
