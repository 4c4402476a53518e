"""Rounds on simulated workers: computed in this process, in simulated time."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._base.arrays import Array, check_cost, check_flag, check_real
from .._base.text import duration, plural
from ..codes import Code, Encoder, Share
from ..delays.interface import per_of
from .interface import Event, Gradient, Kind, RoundKeywords, RoundOptions, RoundReport
from .loop import RoundLoop, Run
from .worker import Cancelling, asked_of, partial_gradient


class SimulatedCluster(RoundLoop):
    """Workers whose times come from a model; this process only does their arithmetic.

    Messages are those that real workers would send, in the order in which they would arrive. Only
    messages that a round uses are computed, and each partial gradient only once. Rounds are the
    same as in `fastgc.simulation.simulate`. Worker i with load w begins after D seconds and
    computes for ``cost * w`` seconds, or for ``(D + cost) * w`` if delays are per computation; it
    sends its messages after equal parts of that time. For the same seed and round, D is the same as
    on a `LocalCluster`.

    Parameters
    ----------
    code, shards, gradient, size, dtype, options
        As in `fastgc.engines.master.Master`. Nothing is pickled, and no worker dies. Without
        delays, D is 0.
    cost : float or (n,) array
        Seconds to compute one partial gradient, or for each worker if they differ.
    request : float
        Seconds of a round trip to ask workers for missing shares (`Reactive`), which they then
        compute. Decoding takes no time.
    receive : float
        Seconds that the master's link needs for each message, one after the other.
    overhead : float
        Seconds between the end of a round and the beginning of the next one.
    interrupted : bool
        True: workers drop what they are computing when a round ends, as in the papers. False: they
        first finish the message they are working on, as on `LocalCluster`.
    **keywords
        Options of `fastgc.engines.RoundOptions`.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit.

    Examples
    --------
    >>> from functools import partial
    >>> engine = partial(SimulatedCluster, cost=1e-4, interrupted=False)
    >>> fastgc.train(code, engine=engine, delays=delays)  # doctest: +SKIP
    """

    def __init__(
        self,
        code: Code,
        shards: Sequence[Any],
        gradient: Gradient,
        size: int,
        dtype: DTypeLike = np.float64,
        *,
        cost: ArrayLike = 0.0,
        request: float = 0.0,
        receive: float = 0.0,
        overhead: float = 0.0,
        interrupted: bool = True,
        options: RoundOptions | None = None,
        **keywords: Unpack[RoundKeywords],
    ) -> None:
        super().__init__(code, shards, gradient, size, dtype, options=options, **keywords)
        self._work = check_cost(code.n, cost) * self._loads
        self._request = check_real("request", request)
        self._receive = check_real("receive", receive)
        self._overhead = check_real("overhead", overhead)
        self._interrupted = check_flag("interrupted", interrupted)
        self._encoders: dict[int, Encoder] = {}  # by message number
        self._together = code.scheme.messages.together.tolist()
        self._places = [code.scheme.messages.sender(m) for m in range(code.scheme.messages.count)]
        self._late = np.zeros(code.n)  # seconds from the round's start until a worker is free
        self._begun = self._elapsed = 0.0  # when the round began, and seconds since then
        self._order: list[int] = []  # numbers of this round's messages, in order of arrival
        self._arrival: list[float] = []  # seconds of arrival, by message number
        self._came, self._sender = 0, -1  # messages that have come, and the sender of the last one
        # To come: time, number of the question, worker, what it was asked.
        self._answers: list[tuple[float, int, int, Share]] = []
        self._free = np.zeros(code.n)  # when a worker is done with the shares that it was asked for
        self._cancelled, self._keywords = Cancelling(self._task), asked_of(gradient)
        self._partials: dict[int, Array] = {}  # of this round, computed when first needed
        self._theta: Array = np.empty(0)
        self._closed = False

    def __repr__(self) -> str:
        rounds = self._number + 1 - self._options.first_round
        return (
            f"<{type(self).__name__} of {self._code!r}: {plural(rounds, 'round')} in "
            f"{duration(self._begun)} of simulated time{', closed' * self._closed}>"
        )

    def close(self) -> None:
        """Take no further rounds; a second call does nothing."""
        self._closed = True

    def clock(self) -> float:
        """Simulated seconds since the beginning."""
        return self._begun

    def _now(self) -> float:
        return self._elapsed

    def _is_closed(self) -> bool:
        return self._closed

    def _hand_out(self, run: Run, theta: Array) -> None:
        self._theta = theta.view()
        self._theta.flags.writeable = False
        self._partials.clear()
        self._answers.clear()
        self._free[:] = 0.0
        self._asked.clear()
        sender, begin, work = self._senders, self._late, self._work
        if per_of(self._options.delays) == "computation":
            work = work + run.delays
        else:
            begin = begin + run.delays
        self._each = work / self._loads
        arrival = begin[sender] + work[sender] * self._code.scheme.messages.shares
        due = np.arange(sender.size)
        if len(run.asked) < self._code.n:
            due = due[np.isin(sender, list(run.asked))]
        self._order = due[np.argsort(arrival[due], kind="stable")].tolist()
        self._arrival = arrival.tolist()
        self._came, self._sender, self._elapsed = 0, -1, 0.0
        run.deadline = self._timeout

    def _wait(self, run: Run, until: float) -> Event | None:
        while self._answers and self._answers[0][2] not in run.rnd.owing:  # nobody waits for it
            del self._asked[self._answers.pop(0)[1]]
        due = self._answers[0][0] if self._answers else math.inf
        if self._came < len(self._order):
            number = self._order[self._came]
            at = max(self._elapsed, self._arrival[number]) + self._receive
            if at <= until and at < min(due, math.inf):
                self._came += 1
                self._elapsed = at
                worker, index = self._places[number]
                self._sender = worker
                event = Event(Kind.MESSAGE, worker, self._number, index)
                if worker not in run.bad and run.rnd.wants(worker):  # else nobody reads it
                    event.message, event.energy = self._message(worker, index)
                return event
        if self._answers and due <= until:
            _, number, worker, what = self._answers.pop(0)
            self._elapsed = due
            answer, energy = self._message(what.worker, 0)
            return Event(Kind.ANSWER, worker, self._number, number, answer, energy=energy)
        if until < math.inf:
            self._elapsed = max(self._elapsed, until)
        return None

    def _lingers(self, run: Run) -> float:
        """Messages that a worker sends together are all received, as in `fastgc.simulation`."""
        if self._came < len(self._order):
            worker, _ = self._places[self._order[self._came]]
            if worker == self._sender and self._together[worker]:
                return run.deadline
        return super()._lingers(run)

    def _ask(self, run: Run, asked: dict[int, tuple[int, Share]]) -> None:
        """Schedule the answers: a worker begins a share when it is done with those before."""
        for number, (worker, what) in asked.items():
            begin = max(self._elapsed, self._free[worker])
            work = self._each[worker] * self._loads[what.worker]
            self._free[worker] = end = float(begin + (self._request + work))
            insort(self._answers, (end + self._receive, number, worker, what), key=itemgetter(0))

    def _at_work(self, run: Run) -> bool:
        if self._answers or run.rnd.due < math.inf:
            return True
        if self._came == len(self._order):
            return False
        return self._timeout < math.inf or self._arrival[self._order[self._came]] < math.inf

    def _exhausted(self, run: Run) -> bool:
        """End a round for which no more can come, or raise; a tracker may have wanted more."""
        if not self._enough(run.rnd):
            run.rnd.require(run.rnd.taken)
        return True

    def _give_up(self, run: Run) -> bool:
        if not self._at_work(run):
            return self._exhausted(run)
        if not self._enough(run.rnd):
            run.rnd.require(self._code.scheme.messages.of(run.asked))
            raise TimeoutError(
                f"round {self._number} was not decodable after {self._timeout} simulated s"
            )
        return True

    def _over(self) -> None:
        self._elapsed = 0.0  # the next round begins at 0

    def _report(self, run: Run) -> RoundReport:
        self._pass(run.wait)
        return super()._report(run)

    def _pass(self, end: float) -> None:
        """Advance the time by a round that took `end` seconds."""
        after = end + self._overhead
        self._begun += after
        if self._interrupted:
            return
        late = np.maximum(self._late - after, 0.0)
        for number in reversed(self._order):  # each worker's first one after the end is set last
            worker, arrival = self._senders[number], self._arrival[number]
            if self._late[worker] <= after < arrival:
                late[worker] = arrival - after
        self._late = np.maximum(late, self._free - after)

    def _message(self, worker: int, index: int) -> tuple[Array, float]:
        """The message that a worker sends, and its energy."""
        encoder = self._encoder(worker, index)
        encoder.reset()
        for j in self._code.partitions(worker, index).tolist():
            encoder.add(j, self._compute(self._theta, j), self._cancelled_in(j))
        return encoder.message(), encoder.energy

    def _compute(self, theta: Array, partition: int) -> Array:
        task = self._task
        if partition not in self._partials:
            out = np.empty(task.size, self._form.partial_dtype)
            partial_gradient(
                task.gradient,
                theta,
                task.part(partition, task.shards[partition], self._number),
                out,
                partition=partition,
                round=self._number,
                asked=self._keywords,
            )
            self._partials[partition] = out
        return self._partials[partition]

    def _cancelled_in(self, partition: int) -> float:
        if not self._code.scheme.data.coded:
            return 0.0
        part = self._task.part(partition, self._task.shards[partition], self._number)
        return self._cancelled(self._theta, partition, part)

    def _encoder(self, worker: int, index: int) -> Encoder:
        number = self._code.scheme.messages.number(worker, index)
        if number not in self._encoders:
            self._encoders[number] = self._code.encoder(
                worker, self._size, self._dtype, index=index, message_dtype=self._form.message_dtype
            )
        return self._encoders[number]
