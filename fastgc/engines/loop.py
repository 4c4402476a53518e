"""The loop of a round, the same for real workers and for simulated ones.

`RoundLoop` runs any `Gathering` (`fastgc.coding.round`): it brings events to the round, puts
the round's questions to workers, and ends it. Its subclasses say what happens, and when: in
`Master` workers are processes elsewhere, in `SimulatedCluster` they take simulated time.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import DTypeLike

from .._base.arrays import (
    Array,
    Floats,
    Ints,
    check_dtype,
    check_index,
    check_output,
    check_vector,
    read_only,
)
from ..codes import Code, ReactiveRound, Round, Share
from ..coding.format import Format
from ..coding.round import Chosen, Gathering, Host
from ..delays.interface import per_of
from ..errors import NonFiniteMessageError
from .interface import (
    Event,
    Gradient,
    Kind,
    RoundKeywords,
    RoundOptions,
    RoundReport,
    Task,
    check_cluster,
    parameters_of,
    sample_delays,
)

_ANSWER = Kind.ANSWER


@dataclass(slots=True)
class Run:
    """The state of a round while it runs; times are those of the loop's clock."""

    rnd: Gathering
    asked: frozenset[int]  # workers that take part
    # Seconds from the round's start until each message came, by message number; NaN: not yet.
    when: Floats
    delays: list[float]  # seconds that each worker sleeps
    start: float = 0.0  # when the parameters were handed out
    deadline: float = math.inf  # when the round times out
    hope: float = math.inf  # until when dead workers are waited for; inf: the others suffice
    until: float = -math.inf  # until when a ready round goes on taking messages; -inf: not at all
    single: bool = False  # each worker sends one message; none of this round came before it began
    messages: int = 0  # that came
    bad: list[int] = field(default_factory=list)  # workers whose messages are not finite
    last: float = 0.0  # seconds from the round's start to its last message
    wait: float = 0.0  # seconds until the round was over

    @property
    def corrupt(self) -> list[int]:
        """Workers whose messages are refused: not finite, then those the round found corrupt."""
        return [*self.bad, *self.rnd.corrupt]


class RoundLoop:
    """Runs the rounds of a cluster; parameters and errors as in `Master`.

    A subclass defines how a round begins (`_hand_out`), what happens next (`_wait`), whether
    anything more can happen (`_at_work`), how to ask workers (`_ask`), and when to give up.
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
        self._options = run = RoundOptions.of(options, keywords, type(self).__name__)
        self._size = check_cluster(code, shards, gradient, size)
        self._code = code
        self._parameters = parameters_of(gradient, self._size)
        self._dtype = check_dtype(dtype)
        self._loads = code.scheme.loads
        self._first = list(code.scheme.messages.first)
        self._senders = np.repeat(np.arange(code.n), code.scheme.messages.counts)
        # Whether each worker sends exactly one message.
        self._single = all(count == 1 for count in code.scheme.messages.counts)
        self._everyone = frozenset(range(code.n))
        self._number = run.first_round - 1
        self._timeout = math.inf if run.timeout is None else run.timeout
        self._stale = self._refused = 0  # messages since the last report
        self._deaths = 0
        self._lost: list[int] = []
        self._questions = 0  # asked so far
        # Questions without an answer, by number: the worker asked, and what it was asked.
        self._asked: dict[int, tuple[int, Share]] = {}
        self._when = np.empty(code.scheme.messages.count)  # `Run.when`
        self._last: weakref.ref[Gathering] | None = None  # whose messages lie in our memory
        self._copies: Array | None = None  # of messages, for rounds that verify
        self._form = sent = code.scheme.format(self._size, self._dtype, run.message_dtype)
        self._round = _own_round(code, self._dtype, sent, run)
        self._decoded = None  # where to decode to, if messages decode to another precision
        if sent.gradient_dtype != self._dtype:
            self._decoded = np.empty(self._size, dtype=sent.gradient_dtype)
        self._task = Task(
            code,
            [read_only(shard) for shard in shards],
            gradient,
            run.batch,
            self._size,
            self._dtype,
            sent.message_size,
            sent.message_dtype,
            per_of(run.delays) == "computation",
            self._parameters,
            asks=isinstance(self._round, ReactiveRound),
        )
        self._start_workers()

    def _start_workers(self) -> None:
        """Start workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and release what they use; a second call does nothing."""
        raise NotImplementedError

    def step(self, theta: Array, out: Array) -> RoundReport:
        """Run one round: hand out the parameters, wait until decodable, decode.

        Every error closes the cluster, except for arguments that do not fit, which are refused
        before anything happens.

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
            If ``gradient`` raised in a worker; the error includes the worker's traceback.
        NotDecodableError
            If so many workers have died that the others cannot decode, and they do not come back
            within the patience.
        NonFiniteMessageError
            If a message that the gradient is decoded from holds NaN or Inf. If messages are
            verified, such a message is dropped.
        CorruptMessageError
            If messages contradict each other, and no more can come that tell which are corrupt.
        UnverifiedError
            If messages are verified and agree, but are too few to show lies.
        UnstableRoundError
            If the tracker finds the gradient too imprecise and was told to raise.
        TimeoutError
            If the round was not ready within ``timeout`` seconds.
        """
        gradient = check_output("out", out, self._dtype, (self._size,))
        self._round.reset()
        report = self.collect(theta, self._round)
        start = self._now()
        target = gradient if self._decoded is None else self._decoded
        try:
            residual = _decode(self._round, target, self._options)
        except BaseException:
            self._spoil()
            raise
        if target is not gradient:
            gradient[:] = target
        return report._replace(decode_seconds=self._now() - start, residual=residual)

    def collect(
        self, theta: Array, rnd: Gathering, workers: Iterable[int] | None = None
    ) -> RoundReport:
        """Run one round without decoding: hand out the parameters, and wait for the messages.

        Parameters
        ----------
        theta : ndarray of shape (size,)
            The parameters. They are copied before the call returns.
        rnd : Round, GroupedRound or any other Gathering
            A round of the cluster's code, size and dtypes, after `reset`. It takes messages until
            it is ready. Decode them before the next round, which overwrites their memory; decoding
            raises afterwards.
        workers : iterable of int, optional
            The workers that get the parameters. Their messages must suffice for `rnd`. Default:
            all. The others continue what they are doing, or wait.

        Returns
        -------
        RoundReport
            As from `step`, with no time for decoding. If messages do not suffice and an
            approximation is to do (``partial="best"``, "unbiased"), `rnd` is not decodable.

        Raises
        ------
        WorkerFailedError, NotDecodableError, NonFiniteMessageError, TimeoutError
            As `step` does; NotDecodableError also if `workers` are too few for `rnd`.
        """
        theta = self._opened(theta)
        self._check_round(rnd)
        asked = self._everyone
        if workers is not None:
            asked = frozenset(check_index("worker", i, self._code.n) for i in workers)
        self._told_round = self._now()  # the round begins; parameters are handed out later
        rnd.begin(Host(self._now, self._can_ask, self._least_wait))
        self._lend(rnd)
        try:
            run = self._begin(theta, rnd, asked)
            self._conduct(run)
        except BaseException:
            self._spoil()
            raise
        finally:
            self._over()
        return self._report(run)

    def _opened(self, theta: Array) -> Array:
        """The checked parameters; raises if the cluster is closed."""
        if self._is_closed():
            raise RuntimeError("the cluster is closed")
        return check_vector("theta", theta, self._dtype, self._parameters)

    def _check_round(self, rnd: Gathering) -> None:
        """Raise unless `rnd` takes the same messages as the cluster's own round."""
        own = self._round
        if rnd is own:
            return
        if not isinstance(rnd, Gathering):
            raise TypeError(f"rnd must be a round of the cluster's code, not {rnd!r}")
        if rnd.code is not own.code or rnd.form != own.form:
            raise ValueError("rnd must be a round of the cluster's code, size and types")

    def _lend(self, rnd: Gathering) -> None:
        """Give the cluster's memory to `rnd`: the round before can no longer read its messages."""
        last = None if self._last is None else self._last()
        if last is rnd:
            return
        if last is not None:
            last.lapse(
                "its cluster received the next round in their place; decode a round before, or "
                "copy what it decodes to"
            )
        self._last = weakref.ref(rnd)

    def _begin(self, theta: Array, rnd: Gathering, asked: frozenset[int]) -> Run:
        """Begin the next round, for the workers `asked`."""
        self._number = number = self._number + 1
        options = self._options
        delays = sample_delays(options.delays, self._loads, number, options.seed)
        single = self._single
        if options.survivors is not None:
            rnd, single = Chosen(rnd, options.survivors(number), asked, options.partial), False
        elif len(asked) < self._code.n:
            rnd.require(self._code.scheme.messages.of(asked))
        self._when.fill(math.nan)
        run = Run(rnd, asked, self._when, delays, single=single)
        self._hand_out(run, theta)
        return run

    def _conduct(self, run: Run) -> None:
        """Bring events to a round until it is over.

        Each turn waits for an event, or until the first of `deadline`, `hope` and `due`, and then
        puts the round's questions. A round is over when it is ready and no longer lingers, when its
        time or patience is out, or when no more can come and it can do without.
        """
        rnd, ready = run.rnd, run.rnd.ready
        while not ready or self._now() <= self._lingers(run):
            limit = min(run.deadline, run.hope, rnd.due)
            event = self._wait(run, min(limit, self._lingers(run)) if ready else limit)
            if event is not None:
                self._take(run, event)
            elif rnd.due == limit < math.inf:
                rnd.elapse()
            elif ready or self._give_up(run):
                break
            while questions := rnd.questions():
                asked = dict(enumerate(questions, self._questions))
                self._questions += len(questions)
                self._asked |= asked
                self._ask(run, asked)
            ready = rnd.ready
            if not ready and not self._at_work(run) and self._exhausted(run):
                break
        run.wait = self._now() - run.start

    def _take(self, run: Run, event: Event) -> None:
        """Handle an event: note what it changes, and bring it to the round."""
        self._bring(run, event)

    def _bring(self, run: Run, event: Event) -> None:
        """Bring the round a message, or the answer to a question."""
        rnd, worker, index = run.rnd, event.worker, event.index
        now = 1e-9 * event.time if event.time else self._now()
        # Workers read the clock before they send the event, so times may come out of order.
        passed = run.last = max(run.last, now - run.start)
        if event.kind == _ANSWER:
            _, what = self._asked.pop(index)
            brought = rnd.hear(worker, what, event.message, energy=event.energy)
            if brought.size:
                run.messages += 1
                run.when[brought] = passed
            return
        run.messages += 1
        if worker in run.bad or not rnd.wants(worker):
            return
        if rnd.linger is not None and run.until == -math.inf:
            run.until = run.start + (1 + rnd.linger) * passed
        at = self._first[worker] + index
        if run.when[at] != run.when[at]:  # else another has sent it in its place
            run.when[at] = passed
        message = event.message
        assert message is not None
        if self._exposed and rnd.verifies:
            message = self._own_copy(self._first[worker] + index, message)
        try:
            rnd.receive(worker, message, None if run.single else index, energy=event.energy)
        except NonFiniteMessageError:
            if not self._options.verify or not rnd.replaceable:
                raise
            run.bad.append(worker)

    def _own_copy(self, number: int, message: Array) -> Array:
        """A copy of a message, where its worker cannot write; valid until the next round."""
        if self._copies is None:
            self._copies = np.empty((len(self._when), message.size), message.dtype)
        copy: Array = self._copies[number]
        copy[:] = message
        return copy

    def _report(self, run: Run) -> RoundReport:
        received = run.rnd.survivors
        return RoundReport(
            self._number,
            received.copy() if self._single else self._senders_of(received),
            run.messages,
            run.wait,
            0.0,
            self._stale,
            tuple(self._lost),
            received,
            run.when[received],
            self._deaths,
            self._refused,
            0.0 if run.rnd.decodable and self._code.scheme.exact else math.nan,
            tuple(dict.fromkeys(run.corrupt)),
            run.rnd.verified,
            run.rnd.asks,
            self._since_start(run),
            found if (found := run.rnd.resolution()) < math.inf else math.nan,
        )

    def _since_start(self, run: Run) -> tuple[tuple[int, int, float], ...]:
        """`rnd.stood_in`, with times counted from handing out the parameters."""
        late = run.start - self._told_round
        return tuple((m, who, max(0.0, at - late)) for m, who, at in run.rnd.stood_in)

    def _senders_of(self, messages: Ints) -> Ints:
        """The workers of these messages, in the order of their first messages."""
        return np.array(list(dict.fromkeys(self._senders[messages].tolist())), dtype=np.int64)

    def _enough(self, rnd: Gathering) -> bool:
        """Whether a round that is not ready can end with the messages that came."""
        return rnd.decodable or (self._options.partial != "raise" and rnd.survivors.size > 0)

    # What subclasses define.

    # Whether workers answer questions.
    _can_ask = True
    # Whether workers can still write to messages after they sent them.
    _exposed = False
    # `Host.least_wait`: seconds before others are asked for a share, at the least.
    _least_wait = math.inf

    def _now(self) -> float:
        """Seconds of the loop's clock."""
        raise NotImplementedError

    def _is_closed(self) -> bool:
        raise NotImplementedError

    def _spoil(self) -> None:
        """Note that a round ended by an error."""

    def _over(self) -> None:
        """Note that a round is over."""

    def _hand_out(self, run: Run, theta: Array) -> None:
        """Hand out the parameters, and set the round's start and deadline."""
        raise NotImplementedError

    def _wait(self, run: Run, until: float) -> Event | None:
        """Return the next event; None if there is none until the clock shows `until`."""
        raise NotImplementedError

    def _lingers(self, run: Run) -> float:
        """Until when a ready round goes on; -inf: it is over."""
        return run.until if self._at_work(run) else -math.inf

    def _ask(self, run: Run, asked: dict[int, tuple[int, Share]]) -> None:
        """Put questions to workers: ``asked[number]`` is (worker, what)."""
        raise NotImplementedError

    def _at_work(self, run: Run) -> bool:
        """Whether more can happen: workers compute, or owe answers."""
        raise NotImplementedError

    def _exhausted(self, run: Run) -> bool:
        """End a round for which no more can come, or raise; False: more may come yet."""
        raise NotImplementedError

    def _give_up(self, run: Run) -> bool:
        """End a round whose time or patience is out, or raise; False: it still waits."""
        raise NotImplementedError


def _own_round(code: Code, dtype: np.dtype[Any], form: Format, options: RoundOptions) -> Round:
    """The round that collects a cluster's messages, for partial gradients of `dtype`."""
    types = form.gradient_size, form.gradient_dtype, form.message_dtype
    if code.scheme.holders.stand_ins and not options.verify:
        return ReactiveRound(code, *types, options.tracker, partial_dtype=dtype)
    how: Any = {name: getattr(options, name) for name in ("tracker", "verify", "limit")}
    return code.round(*types, **how, partial_dtype=dtype)


def _decode(rnd: Round, out: Array, options: RoundOptions) -> float:
    """Decode a round to `out`, or approximate as `options.partial` allows.

    Return the residual; NaN for a code that decodes by a formula, as rounding is all of it.
    """
    approximation, code = options.partial, rnd.code
    scaled = approximation == "unbiased" and isinstance(code, Code) and code.scheme.approximate
    if approximation == "raise" or (rnd.decodable and not scaled):
        rnd.gradient(out=out)
        return math.nan if code.scheme.exact else rnd.residual()
    if rnd.decodable and options.tracker is not None:
        rnd.gradient(out=out)  # the tracker records it
    return rnd.best(out, approximation).residual
