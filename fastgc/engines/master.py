"""What a master decides, whatever carries its messages."""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import kernels
from .._arrays import check_dtype, check_index, check_vector, check_workers
from .._shown import listed, plural
from ..codes import AskingRound, Code, GroupedRound, Request, Round, SumRound
from ..delays.interface import per_of
from ..errors import (
    CorruptMessageError,
    NonFiniteMessageError,
    NotDecodableError,
    WorkerFailedError,
)
from .interface import (
    Collected,
    Event,
    Gathering,
    Gradient,
    Kind,
    Lent,
    Question,
    RoundReport,
    Task,
    Transport,
    check_cluster,
    check_round,
    parameters_of,
    sample_delays,
)
from .options import RoundKeywords, RoundOptions, WhenShort
from .requests import Asked, own_round, sum_round
from .worker import partial_gradient

__all__ = ["Chosen", "Master"]

Array = NDArray[Any]

# What tells that messages were taken without being told of.
_TAKEN = Event(Kind.MESSAGE, -1)

# What a worker tells of a message that it has.
_COMPUTED = Kind.MESSAGE, Kind.COMPUTED

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0  # seconds before a worker is restarted again and again


class Master:
    """The master of a cluster: hands out rounds, and takes messages until one can be decoded.

    Every worker receives its partitions once, at the start. A round hands the newest parameters
    to the workers; one still busy with a message of an older round is not interrupted, its late
    message is dropped, and it goes on with the newest round. A worker that dies is a straggler
    until it is back: it is restarted at once, and if it dies again without having sent a message,
    after pauses of up to 10 seconds.

    Engines are subclasses, which say by which `Transport`.

    Parameters
    ----------
    code : Code
        The scheme, for ``code.n`` workers.
    shards : sequence of length ``code.scheme.shard_count``
        The data of each partition, anything that can be pickled: what ``code.encode_data`` returns.
    gradient : callable
        ``gradient(theta, shard, out)`` writes the partial gradient of a shard at the read-only
        parameters ``theta`` to all of ``out``, which holds NaN, and returns None or ``out``. It is
        pickled, so define it in an importable module. One that has keywords ``partition`` and
        ``round`` is told them, and one that has more to say is a `Computation`.
    size : int
        The gradient dimension p.
    dtype : numpy dtype, default ``float64``
        The type of parameters and gradient.
    options : RoundOptions, optional
        How rounds are run.
    **keywords
        Those of `fastgc.engines.RoundOptions`, one by one, in the place of what `options` says:
        ``timeout=5.0, verify=True``.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit; no worker has been started then.

    Notes
    -----
    What becomes of faults:

    - A worker that is slow, stopped, or hangs is a straggler; then it jumps to the newest round.
    - Up to s workers may die, at any moment: stragglers, which are restarted and rejoin. Under MPI
      the job ends and says so; it goes on from its checkpoint.
    - Where more than s die, the round waits for them to come back (`patience`), then raises an
      error that names them, or takes an approximation (``partial="best"``, "unbiased").
    - A gradient that raises is a `WorkerFailedError`: worker, partition, and its traceback. So is
      one that does not write all of ``out``, or returns what would be lost.
    - A message that is not finite is a `NonFiniteMessageError`, which names the worker.
    - A message that is wrong is found by `verify`: parity checks name the worker, given two
      messages to spare, and it is a straggler in that round. Where too many have died to tell, the
      round waits for them.
    - If the master dies all workers end, and the run goes on from its checkpoint.
    """

    def __init__(
        self,
        code: Code,
        shards: Sequence[Any],
        gradient: Gradient,
        size: int,
        dtype: DTypeLike = np.float64,
        *,
        options: RoundOptions | None = None,
        **keywords: Unpack[RoundKeywords],
    ) -> None:
        self._options = RoundOptions.of(options, keywords, type(self).__name__)
        self._size = check_cluster(code, shards, gradient, size)
        self._code = code
        self._parameters = parameters_of(gradient, self._size)
        self._dtype = check_dtype(dtype)
        self._loads = code.scheme.loads
        self._first = list(code.scheme.first_messages)
        self._senders = np.repeat(np.arange(code.n), code.scheme.message_counts)
        self._number = self._options.first_round - 1
        self._lent = Lent()
        self._stale = self._refused = 0
        # Messages that any round takes at least, and whether workers send one each.
        self._least = code.scheme.rule.missing(np.empty(0, dtype=np.int64))
        self._single = all(count == 1 for count in code.scheme.message_counts)
        self._everyone = frozenset(range(code.n))
        self._starting, self._live = set(range(code.n)), set[int]()
        self._busy: dict[int, set[int]] = {}  # worker: the rounds it was handed and may be at
        self._lost: list[int] = []
        self._deaths = 0
        self._left = self._options.patience  # in this round
        self._idle_deaths = [0] * code.n  # since the worker's last message
        self._due: dict[int, float] = {}  # when each of the lost is to be restarted
        self._heard: set[int] = set()  # messages of this round
        self._when = np.empty(
            code.scheme.message_count
        )  # each came, in seconds from the round's start
        self._intake: kernels.Arrivals | None = None  # which takes them
        self._inbox: deque[Event] = deque()
        sent = code.scheme.format(self._size, self._dtype, self._options.message_dtype)
        self._message_shape, self._message_dtype = (sent.message_size,), sent.message_dtype
        self._round = own_round(code, self._size, sent, self._options, gradient)
        self._decoded = None  # where to decode to, if messages give less precision than is wanted
        if sent.gradient_dtype != self._dtype:
            self._decoded = np.empty(self._size, dtype=sent.gradient_dtype)
        spread = per_of(self._options.delays) == "computation"
        sums = sum_round(code, sent, self._options)
        task = Task(
            code,
            shards,
            gradient,
            self._options.batch,
            self._size,
            self._dtype,
            sent.message_size,
            sent.message_dtype,
            spread,
            self._parameters,
            asks=sums is not None or self._options.ask,
        )
        self._task = task if self._options.ask else None  # the master computes, too
        self.transport = self._open(task)
        self._questions = 0  # so far
        self._asked: dict[int, int] = {}  # questions that were not answered: of which worker
        self._put_off: deque[Event] = deque()  # what happened while answers were waited for
        self._can_ask = getattr(self.transport, "asks", False)
        self._sums = sums if self._can_ask else None  # where workers are asked for sums
        self._close = weakref.finalize(self, _end, self._round, self.transport)
        try:
            self._await_all()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        state = "at work" if self._close.alive else "closed"
        if self._lost:
            state += f", lost: workers {listed(self._lost)}"
        rounds = self._number + 1 - self._options.first_round
        return f"<{type(self).__name__} of {self._code!r}: {plural(rounds, 'round')}, {state}>"

    def _open(self, task: Task) -> Transport:
        """Start workers for a task."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and release what they use; a second call does nothing."""
        self._close()

    @staticmethod
    def clock() -> float:
        """Seconds of the time that rounds take, from some moment on."""
        return time.perf_counter()

    def step(self, theta: Array, out: Array) -> RoundReport:
        """Run one round: hand out the parameters, wait until decodable, decode.

        Parameters
        ----------
        theta : ndarray of shape (size,)
            The parameters. They are copied before the call returns.
        out : ndarray of shape (size,)
            Receives the sum of all partial gradients at ``theta``.

        Returns
        -------
        RoundReport
            Who took part, and what it cost.

        Raises
        ------
        WorkerFailedError
            If ``gradient`` raised in a worker; the worker's traceback is in the text.
        NotDecodableError
            If so many workers have died that the others cannot decode, and stay away for longer
            than the patience lasts.
        NonFiniteMessageError
            If a message holds NaN or Inf, unless messages are verified.
        CorruptMessageError
            If messages contradict each other, and no others will come that tell which are corrupt.
        UnstableRoundError
            If the tracker finds the gradient too imprecise and is to raise.
        TimeoutError
            If the round was not ready within ``timeout`` seconds.

        Every error closes the cluster, except that unsuitable arguments are refused before
        anything happens.
        """
        gradient = check_vector("out", out, self._dtype, self._size, output=True)
        if self._sums is not None:
            return self._step_by_sums(theta, gradient, self._sums)
        self._round.reset()
        report = self.collect(theta, self._round)
        start = time.perf_counter()
        target = gradient if self._decoded is None else self._decoded
        try:
            residual = decode_round(self._round, target, self._options)
        except BaseException:
            self.close()
            raise
        if target is not gradient:
            gradient[:] = target
        return report._replace(decode_seconds=time.perf_counter() - start, residual=residual)

    def _step_by_sums(self, theta: Array, gradient: Array, rnd: SumRound) -> RoundReport:
        """`step`, where workers keep their messages and are asked for sums of them."""
        theta = self._opened(theta)
        rnd.reset()
        transport: Any = self.transport
        transport.keeping = True
        try:
            report = self._collect(theta, Asked(rnd, self._ask), self._everyone)
            start = time.perf_counter()
            rnd.gradient(gradient)
            residual = rnd.left_out()
        except BaseException:
            self.close()
            raise
        finally:
            transport.keeping = False
        return report._replace(decode_seconds=time.perf_counter() - start, residual=residual)

    def _ask(self, worker: int, what: Request | int) -> int:
        """Ask a worker about this round; the number of the question."""
        transport: Any = self.transport
        number = self._questions
        self._questions += 1
        self._asked[number] = worker
        transport.ask(worker, Question(number, self._number, what))
        return number

    def _settle(self, rnd: AskingRound, theta: Array, deadline: float) -> bool:
        """Name those who lie, where messages contradict each other; whether the round is ready."""
        ask = partial(self._hear, deadline=deadline) if self._can_ask else None
        read = theta.view()
        read.flags.writeable = False
        rnd.settle(ask, partial(self._compute, read))
        return rnd.ready

    def _hear(self, workers: Sequence[int], seed: int, deadline: float) -> dict[int, Array]:
        """What workers answer to a question, of those that do."""
        asked = {self._ask(worker, seed): worker for worker in workers if worker in self._live}
        until = min(deadline, time.perf_counter() + self._options.patience)
        answers: dict[int, Array] = {}
        others: list[Event] = []
        while asked and (event := self._next(until)) is not None:
            if event.kind == Kind.ANSWER and event.index in asked:
                del asked[event.index]
                if event.message is not None:
                    answers[event.worker] = event.message.copy()
                continue
            if event.kind == Kind.DIED:
                asked = {number: who for number, who in asked.items() if who != event.worker}
            others.append(event)
        self._put_off.extend(others)
        return answers

    def _compute(self, theta: Array, partition: int) -> Array:
        """A partial gradient of this round."""
        task, number = self._task, self._number
        assert task is not None
        shard = task.shards[partition]
        if task.batch is not None:
            shard = task.batch(shard, partition, number)
        out = np.empty(task.size, task.code.scheme.format(1, task.dtype).partial_dtype)
        partial_gradient(task.gradient, theta, shard, out, partition=partition, round=number)
        return out

    def _opened(self, theta: Array) -> Array:
        """The parameters, checked, of a cluster that is not closed."""
        if not self._close.alive:
            raise RuntimeError("the cluster is closed")
        return check_vector("theta", theta, self._dtype, self._parameters)

    def collect(
        self, theta: Array, rnd: Collected, workers: Iterable[int] | None = None
    ) -> RoundReport:
        """Run one round without decoding: hand out the parameters, and wait for the messages.

        Parameters
        ----------
        theta : ndarray of shape (size,)
            The parameters. They are copied before the call returns.
        rnd : Round, GroupedRound or Gathering
            Of the cluster's code, size and types, reset: takes the messages until it is ready. They
            lie in memory that the next round is received in: decode them before (it raises after).
        workers : iterable of int, optional
            To whom the parameters are handed; `rnd` must become ready by these workers' messages.
            Default: all. The others go on with what they are at, or wait.

        Returns
        -------
        RoundReport
            As of `step`, with no time for decoding. If the round has to make do with what came
            (``partial="best"``, "unbiased"), `rnd` is not decodable.

        Raises
        ------
        WorkerFailedError, NotDecodableError, NonFiniteMessageError, TimeoutError
            As `step` does; NotDecodableError also if `workers` are too few for `rnd`.
        """
        theta = self._opened(theta)
        check_round(rnd, self._round)
        if self._options.ask and isinstance(rnd, GroupedRound):
            raise ValueError("suspects in groups cannot be asked: leave ask=True out")
        asked, n = self._everyone, self._code.n
        if workers is not None:
            asked = frozenset(check_index("worker", i, n) for i in workers)
        self._lent.to(rnd)
        try:
            return self._collect(theta, rnd, asked)
        except BaseException:
            self.close()
            raise
        finally:
            if self._intake is not None:
                self._intake = self.transport.intake = None

    def _await_all(self) -> None:
        while len(self._live) < self._code.n:
            event = self._next(math.inf)
            if event is not None and event.kind == Kind.DIED:
                raise WorkerFailedError(
                    f"worker {event.worker} died while it started{event.text}", event.worker
                )

    def _collect(
        self, theta: Array, rnd: Collected | Chosen | Asked, asked: frozenset[int]
    ) -> RoundReport:
        self._number += 1
        number = self._number
        delays = sample_delays(self._options.delays, self._loads, number, self._options.seed)
        single = self._single and isinstance(rnd, Round)
        least = self._least if isinstance(rnd, Round) else 1
        if self._options.survivors is not None:
            single, least = False, 1
            assert not isinstance(rnd, Chosen | Asked)
            rnd = Chosen(rnd, self._options.survivors(number), asked, self._options.partial)
        elif len(asked) < self._code.n:
            rnd.require(self._code.scheme.messages_of(asked))
        self._stale = self._refused = 0
        while self._next(-math.inf) is not None:
            pass  # what has come since the last round; there, as here, late messages are counted
        self._heard.clear()
        self._left = self._options.patience

        self.transport.publish(number, theta, set().union(*self._busy.values()))
        start = time.perf_counter()
        deadline = math.inf if self._options.timeout is None else start + self._options.timeout
        free = self._live & asked
        if single:  # nothing of this round was heard, and each has one message to send
            late = free & self._busy.keys()
            fresh = list(free - late)
            self._busy |= {worker: {number} for worker in fresh}
            self.transport.hand(fresh, 0, [delays[worker] for worker in fresh])
            free = late
        for worker in free:
            self._hand(worker, delays[worker])
        for worker in self._lost:
            rnd.straggles(worker)
        hope = self._hope(rnd, asked, math.inf) if self._lost else math.inf
        first, when = self._first, self._when
        if single and isinstance(rnd, Round) and (intake := rnd.intake(when)) is not None:
            intake.start, intake.least = start, least
            self._intake = self.transport.intake = intake
        bad: list[int] = []  # workers whose messages are not finite
        messages = 0
        linger, until = rnd.linger if isinstance(rnd, Gathering) else None, -math.inf
        ready = rnd.ready
        while not ready or (time.perf_counter() < until and not asked.isdisjoint(self._busy)):
            if not self._inbox:
                # Half of what is lacking at a time: what came is looked at while the rest is waited
                # for, and the last one alone at last.
                self.transport.wanted = max(1, (least - messages + 1) // 2)
            due = rnd.due if isinstance(rnd, Asked) else math.inf
            event = self._next(min(deadline, hope, due, until if ready else math.inf))
            if event is None:
                if isinstance(rnd, Asked) and due < min(deadline, hope):
                    rnd.pass_over()
                    continue
                if not ready:
                    self._give_up(rnd, asked, hope <= deadline)
                break
            worker = event.worker
            if event is _TAKEN:
                assert isinstance(rnd, Round)
                messages += self._follow(rnd)
                ready = rnd.ready
            elif event.kind == Kind.DIED:
                rnd.straggles(worker)
                if isinstance(rnd, Asked):  # it has to compute again what it kept
                    self._heard.difference_update(range(*first[worker : worker + 2]))
                hope = self._hope(rnd, asked, hope)
            elif isinstance(rnd, Asked) and event.kind in _COMPUTED and event.round == number:
                rnd.computed(worker, event.index)
            elif event.kind == Kind.MESSAGE and event.round == number:
                assert event.message is not None
                assert not isinstance(rnd, Asked)
                messages += 1
                if worker not in bad and rnd.wants(worker):
                    came = 1e-9 * event.time if event.time else time.perf_counter()
                    if linger is not None and until == -math.inf:
                        until = start + (1 + linger) * (came - start)
                    when[first[worker] + event.index] = max(0.0, came - start)
                    index = None if single else event.index
                    try:
                        ready = rnd.receive(worker, event.message, index, energy=event.energy)
                    except NonFiniteMessageError:
                        if not self._options.verify or isinstance(rnd, Chosen):
                            raise
                        bad.append(worker)
                    if (
                        self._options.ask
                        and isinstance(rnd, AskingRound)
                        and rnd.decodable
                        and rnd.contradicted
                    ):
                        ready = self._settle(rnd, theta, deadline)
                    if self._lost and self._options.verify:
                        # they may have to stand in for the corrupt
                        hope = self._hope(rnd, asked, hope)
            elif event.kind == Kind.ANSWER:
                if isinstance(rnd, Asked) and rnd.takes(worker, event.index):
                    if event.message is not None and self._fits(event):
                        messages += 1
                        used = rnd.survivors
                        came = 1e-9 * event.time if event.time else time.perf_counter()
                        when[used[self._senders[used] == worker]] = max(0.0, came - start)
                        ready = rnd.receive(worker, event.message, energy=event.energy)
                    else:
                        rnd.lacks(worker)
            elif worker in asked:  # late, or new
                self._hand(worker, delays[worker])
                if event.kind == Kind.JOINED:
                    hope = self._hope(rnd, asked, hope)
            awaited = isinstance(rnd, Asked) and rnd.awaited
            at_work = awaited or self._put_off or not asked.isdisjoint(self._busy)
            if not (ready or at_work):
                if asked.isdisjoint(self._lost) or (rnd.decodable and not self._options.verify):
                    # A tracker may want more messages than there will be.
                    self._make_do(
                        rnd, asked, f"messages of workers {bad + rnd.corrupt} are corrupt"
                    )
                    break
                if hope == math.inf:  # the dead could still tell who is corrupt
                    hope = time.perf_counter() + self._left
        wait = time.perf_counter() - start
        received = rnd.survivors
        return RoundReport(
            number,
            received.copy() if self._single else self._senders_of(received),
            messages,
            wait,
            0.0,
            self._stale,
            tuple(self._lost),
            received,
            when[received],
            self._deaths,
            self._refused,
            0.0 if rnd.decodable and self._code.scheme.exact else math.nan,
            tuple(dict.fromkeys(corrupt)) if (corrupt := bad + rnd.corrupt) else (),
            rnd.verified,
            *_costs(rnd),
        )

    def _senders_of(self, messages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Their workers, in the order of their first messages."""
        return np.array(list(dict.fromkeys(self._senders[messages].tolist())), dtype=np.int64)

    def _follow(self, rnd: Round) -> int:
        """Take note of messages that a round's intake took; how many."""
        numbers = rnd.follow()
        self._heard.update(numbers)
        for worker in numbers:
            del self._busy[worker]
            self._idle_deaths[worker] = 0
        return len(numbers)

    def _hand(self, worker: int, delay: float) -> None:
        """Hand the newest round to a worker, unless it has it or cannot take it now."""
        rounds = self._busy.get(worker, set())
        if len(rounds) == self.transport.ahead or self._number in rounds:
            return
        first, end = self._first[worker : worker + 2]
        sent = sum(m in self._heard for m in range(first, end)) if self._deaths else 0
        if first + sent == end:  # died after its last message, and is back
            return
        self._busy[worker] = rounds | {self._number}
        self.transport.hand([worker], sent, [delay])

    def _next(self, until: float) -> Event | None:
        """Wait for something to happen, until a time of the clock; None if nothing does."""
        inbox = self._inbox
        if self._put_off:
            return self._put_off.popleft()
        while True:
            while not inbox:
                now = time.perf_counter()
                wake = until
                if self._due:
                    self._restart(now)
                    wake = min(until, *self._due.values(), math.inf)
                inbox.extend(self.transport.listen(max(0.0, wake - now)))
                if self._intake is not None and self._intake.pending:
                    return _TAKEN
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
        """Note what an event says of its worker; False if none can have told so."""
        kind, worker = event.kind, event.worker
        if not 0 <= worker < self._code.n:
            return False
        if kind in _COMPUTED:
            return self._admit_message(event)
        if kind == Kind.ANSWER:
            return self._asked.pop(event.index, None) == worker
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
            self._bury(worker)
            return True
        if event.round not in self._busy.get(worker, ()):
            return False
        self._goes_on(worker, event.round + 1)
        return True

    def _admit_message(self, event: Event) -> bool:
        """Note a message, sent or kept; False if its worker cannot have it."""
        worker, number = event.worker, event.round
        if number not in self._busy.get(worker, ()):
            return False
        sent, end = self._first[worker] + event.index, self._first[worker + 1]
        if event.index < 0 or sent >= end or (event.kind == Kind.MESSAGE and not self._fits(event)):
            return False
        if number < self._number:
            self._stale += event.kind == Kind.MESSAGE
        elif sent in self._heard:
            return False
        else:
            self._heard.add(sent)
        self._idle_deaths[worker] = 0
        # It is at this round at least, and after its last message through with it.
        over = number + (sent == end - 1)
        if over > self._number:
            del self._busy[worker]
        else:
            self._goes_on(worker, over)
        return True

    def _fits(self, event: Event) -> bool:
        """Whether an event has a message of this cluster's size and dtype."""
        message, dtype = event.message, self._message_dtype
        return (
            message is not None
            and message.shape == self._message_shape
            and (message.dtype is dtype or message.dtype == dtype)
        )

    def _goes_on(self, worker: int, over: int) -> None:
        """Note that a worker is through with all rounds before `over`."""
        if still := {r for r in self._busy[worker] if r >= over}:
            self._busy[worker] = still
        else:
            del self._busy[worker]

    def _bury(self, worker: int) -> None:
        self._live.discard(worker)
        self._starting.discard(worker)
        self._busy.pop(worker, None)
        self._asked = {number: who for number, who in self._asked.items() if who != worker}
        if worker not in self._lost:
            self._lost.append(worker)
        self._deaths += 1
        if self._options.patience > 0:
            idle = self._idle_deaths[worker]
            self._idle_deaths[worker] += 1
            pause = min(_FIRST_PAUSE * 2.0 ** (idle - 1), _LONGEST_PAUSE) if idle else 0.0
            self._due[worker] = time.perf_counter() + pause

    def _hope(self, rnd: Collected | Chosen | Asked, asked: frozenset[int], before: float) -> float:
        """Until when to wait for the dead, where the others are too few; `before`: as decided.

        Patience is spent by the round, not by the death: those who come back only to die again
        would else be waited for without end.
        """
        if not asked.isdisjoint(self._lost):
            try:
                rnd.require(self._within_reach(rnd, asked))
            except NotDecodableError:
                return min(before, time.perf_counter() + self._left)
        if before < math.inf:
            self._left = max(0.0, before - time.perf_counter())
        return math.inf

    def _within_reach(
        self, rnd: Collected | Chosen | Asked, asked: frozenset[int]
    ) -> NDArray[np.int64]:
        """Messages that came, and those of who is at work."""
        told = {event.worker for event in self._put_off if event.kind == Kind.MESSAGE}
        at_work = asked & (self._busy.keys() | told)
        return np.union1d(self._code.scheme.messages_of(at_work), rnd.survivors)

    def _give_up(
        self, rnd: Collected | Chosen | Asked, asked: frozenset[int], hopeless: bool
    ) -> None:
        """Wait no longer: for the dead, if hopeless, else because the time is out."""
        if hopeless:
            waited = (
                f" and were waited for {self._options.patience} s" if self._options.patience else ""
            )
            self._make_do(rnd, asked, f"workers {self._lost} have died{waited}")
        elif not self._enough(rnd):
            silent = asked & self._busy.keys()
            if isinstance(rnd, Asked):
                silent |= rnd.awaited
            raise TimeoutError(
                f"round {self._number} was not decodable after {self._options.timeout} s; not "
                f"heard from workers {sorted(silent)}, lost workers {self._lost}"
            )

    def _make_do(self, rnd: Collected | Chosen | Asked, asked: frozenset[int], why: str) -> None:
        """Raise unless the round can do with what came; `why` it is no more."""
        if self._enough(rnd):
            return
        try:
            rnd.require(self._within_reach(rnd, asked))
        except NotDecodableError as error:
            raise NotDecodableError(
                f"{why}, and the others are too few for round {self._number}: {error}",
                error.missing,
            ) from None

    def _enough(self, rnd: Collected | Chosen | Asked) -> bool:
        return rnd.decodable or (self._options.partial != "raise" and rnd.survivors.size > 0)


def _costs(rnd: object) -> tuple[int, int]:
    """Questions of a round, and partial gradients that the master computed."""
    if isinstance(rnd, AskingRound):
        return rnd.costs.asks, rnd.costs.computed
    return (rnd.asks if isinstance(rnd, Asked) else 0), 0


def decode_round(rnd: Round, out: Array, options: RoundOptions) -> float:
    """Decode a round's gradient, or what comes nearest where that may do; what it leaves out."""
    partial, code = options.partial, rnd.code
    scaled = partial == "unbiased" and isinstance(code, Code) and code.scheme.approximate
    if partial == "raise" or (rnd.decodable and not scaled):
        rnd.gradient(out=out)
        return rnd.left_out()
    if rnd.decodable and options.tracker is not None:
        rnd.gradient(out=out)  # which the tracker takes down
    return rnd.best(out, partial).residual


class Chosen:
    """A round that takes messages chosen beforehand, all of them and in their order.

    So sums are rounded as they were when those messages came in that order by themselves.
    """

    def __init__(
        self, rnd: Collected, numbers: ArrayLike, asked: frozenset[int], partial: WhenShort
    ) -> None:
        code = rnd.code
        chosen = check_workers("survivors", numbers, code.scheme.message_count)
        senders = [code.scheme.sender(m)[0] for m in chosen.tolist()]
        if len(set(chosen.tolist())) < chosen.size:
            raise ValueError(f"survivors name a message twice: {chosen.tolist()}")
        if not asked.issuperset(senders):
            strangers = sorted(set(senders) - asked)
            raise ValueError(f"survivors are of workers {strangers}, which take no part")
        if partial == "raise":
            rnd.require(chosen)
        self._round, self._chosen = rnd, chosen
        self._missing = set(chosen.tolist())
        self._held: dict[int, tuple[Array, float]] = {}

    @property
    def ready(self) -> bool:
        """Whether all of them came."""
        return not self._missing

    @property
    def decodable(self) -> bool:
        """As of the round."""
        return self._round.decodable

    @property
    def corrupt(self) -> list[int]:
        """As of the round."""
        return self._round.corrupt

    @property
    def verified(self) -> bool:
        """As of the round."""
        return self._round.verified

    @property
    def survivors(self) -> NDArray[np.int64]:
        """Those that came, once all have."""
        return self._round.survivors

    def wants(self, worker: int) -> bool:
        """All are: those not chosen are dropped."""
        return True

    def straggles(self, worker: int) -> None:
        """As of the round."""
        self._round.straggles(worker)

    def receive(self, worker: int, message: Array, index: int | None, *, energy: float) -> bool:
        """Take a message; whether the round is ready."""
        code = self._round.code
        number = code.scheme.message_number(worker, index or 0)
        if number in self._missing:
            self._held[number] = message, energy
            self._missing.remove(number)
            if not self._missing:
                self._pass_on()
        return self.ready

    def _pass_on(self) -> None:
        """Let the round take them; nothing can stand in for one that is corrupt."""
        for m in self._chosen.tolist():
            worker, index = self._round.code.scheme.sender(m)
            message, energy = self._held[m]
            self._round.receive(worker, message, index, energy=energy)
            if self._round.corrupt:
                raise CorruptMessageError(
                    f"messages of workers {self._round.corrupt} are corrupt, and among the "
                    "survivors that were chosen",
                    tuple(self._round.corrupt),
                )

    def require(self, messages: NDArray[np.int64]) -> None:
        """Raise NotDecodableError unless these messages hold those chosen that did not come yet."""
        missing = sorted(self._missing.difference(messages.tolist()))
        if missing:
            raise NotDecodableError(
                f"messages {missing} are among the survivors that were chosen", len(missing)
            )


def _end(rnd: Round, transport: Transport) -> None:
    rnd.reset()  # its messages lie in the transport's memory
    transport.close()
