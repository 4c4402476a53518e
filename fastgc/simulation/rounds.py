"""Ways to simulate rounds of a code, each for the codes that it is right, or fast, for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .._shown import duration, plural
from ..codes import Code
from ..coding.rules import Cells, Span, Waiting
from ..coding.solve import SOLVED

__all__ = [
    "Awaiting",
    "Conditions",
    "FollowedRound",
    "Kernel",
    "MessageByMessage",
    "OnRequest",
    "OneByOne",
    "Outcome",
    "Simulator",
    "Watch",
    "WithRule",
    "through",
]

Array = NDArray[np.float64]

# Delays that kernels draw and use at a time: 4 MB. With fewer, threads are called for more often
# than caches save; 65,536 took 1.1 to 1.4 times as long.
_DRAWN_AT_ONCE = 1 << 19
_AT_ONCE = 1 << 20  # messages of rounds that are asked for sums together
_SUPPORT = 1 << 22  # entries of B, at most, whose zeros are remembered


class Conditions(NamedTuple):
    """What rounds are simulated under: arguments of `fastgc.simulation.simulate`."""

    receive: float
    overhead: float
    interrupted: bool


class FollowedRound(NamedTuple):
    """One simulated round, message by message.

    Attributes
    ----------
    round : int
        From 1.
    time : float
        Seconds from the beginning of the first round to the end of this one.
    wait : float
        Seconds from the hand-off of the parameters until the gradient could be decoded; inf if it
        never could.
    received : (messages,) int64 array
        Numbers of the messages that had come by then, in order of arrival.
    arrivals : (messages,) float64 array
        When the master had each of them, in seconds from the hand-off.
    decode : float
        Seconds for decoding: 0, for it is not simulated.
    decoded : (messages,) int64 array, optional
        Of those received, the messages up to the one that sufficed; None if none did.
    """

    round: int
    time: float
    wait: float
    received: NDArray[np.int64]
    arrivals: NDArray[np.float64]
    decode: float = 0.0
    decoded: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        return (
            f"FollowedRound(round {self.round}: waited {duration(self.wait)} for "
            f"{plural(len(self.received), 'message')})"
        )


Watch = Callable[[FollowedRound], None]


class Simulator(ABC):
    """Simulates rounds, some at a time, in order."""

    @abstractmethod
    def __call__(
        self, delays: kernels.DelayPlan, first: int, rounds: int, late: Array, how: Conditions
    ) -> tuple[NDArray[Any], ...]:
        """Simulate rounds ``first``, ``first + 1``, ... of what `delays` draws.

        `late` is as of `fastgc.kernels.completion`, and so is what is returned: times, messages,
        workers and computations.
        """


class Kernel(Simulator):
    """Rounds by the kernels, a few at a time, so that what is drawn stays in the caches.

    Of the first rounds, `judged` of them, `judge` is told which messages each is decoded from.
    """

    def __init__(
        self,
        rule: kernels.CompletionPlan,
        judge: Callable[[NDArray[np.int64]], None] | None = None,
        judged: int = 0,
    ) -> None:
        self._rule, self._judge, self._judged = rule, judge, judged
        self._sender = np.repeat(np.arange(rule.loads.size), np.diff(rule.first))

    def __call__(  # noqa: D102
        self, delays: kernels.DelayPlan, first: int, rounds: int, late: Array, how: Conditions
    ) -> tuple[NDArray[Any], ...]:
        rule, out = self._rule, kernels.Completion.empty(rounds)
        lo = 0
        while lo < rounds:
            left = self._judged - first - lo  # to be judged
            step = max(1, _DRAWN_AT_ONCE // late.size)
            if left > 0:  # who is not interrupted is late for the next round
                step = min(step, left) if how.interrupted else 1
            hi = min(lo + step, rounds)
            wait, work = delays.part(lo, hi).draw(first + lo, hi - lo)
            begin, done = late + wait if left > 0 else wait, out.part(lo, hi)
            kernels.completion(rule, wait, work, late, *how, done)
            if left > 0 and self._judge is not None:
                arrival = begin[:, self._sender] + work[:, self._sender] * rule.share
                order = np.argsort(arrival, axis=1, kind="stable")
                for came, count in zip(order, done.messages, strict=True):
                    self._judge(came[:count])
            lo = hi
        return out


# Of one round: `wait`, `received`, `arrivals` and `decoded` of its `FollowedRound`, the number of
# workers that were heard, and the partial gradients computed by then.
Outcome = tuple[float, NDArray[np.int64], Array, NDArray[np.int64] | None, int, int]


class OneByOne(Simulator):
    """Rounds one after the other, each told to whoever watches."""

    def __init__(self, code: Code, watch: Watch | None = None) -> None:
        self._code, self._watch, self._now = code, watch, 0.0

    def __call__(  # noqa: D102
        self, delays: kernels.DelayPlan, first: int, rounds: int, late: Array, how: Conditions
    ) -> tuple[NDArray[Any], ...]:
        rows = []
        for number, drawn in enumerate(zip(*delays.draw(first, rounds), strict=True), first + 1):
            wait, received, arrivals, decoded, senders, done = self._one(*drawn, late, how)
            rows.append((wait, received.size, senders, done))
            if self._watch is not None:
                self._now += wait + how.overhead
                it = FollowedRound(number, self._now, wait, received, arrivals, decoded=decoded)
                self._watch(it)
        times, *counts = zip(*rows, strict=True)
        return np.array(times), *(np.array(each, dtype=np.int64) for each in counts)

    @abstractmethod
    def _one(self, wait: Array, work: Array, late: Array, how: Conditions) -> Outcome:
        """One round."""


class MessageByMessage(OneByOne):
    """Rounds by the code's own `Round`, message by message: for any code, and as a proof."""

    def __init__(self, code: Code, watch: Watch | None = None) -> None:
        super().__init__(code, watch)
        self._round = code.round(2)
        form = self._round.form
        self._message = np.zeros(form.message_size, form.message_dtype)
        self._sender = np.repeat(np.arange(code.n), code.scheme.message_counts)
        self._shares, self._loads = code.scheme.message_shares, code.scheme.loads

    def _last(self, order: NDArray[np.int64]) -> int:
        """The message that makes a round ready, of all in the order they come; -1: none does."""
        self._round.reset()
        for number in order.tolist():
            if self._round.receive(*self._code.scheme.sender(number)[:1], self._message):
                return int(number)
        return -1

    def _one(self, wait: Array, work: Array, late: Array, how: Conditions) -> Outcome:
        code, sender, begin = self._code, self._sender, late + wait
        arrival = begin[sender] + work[sender] * self._shares
        order = np.argsort(arrival, kind="stable")
        last = self._last(order)
        ready = float(arrival[last]) if last >= 0 else math.inf
        came = arrival <= ready
        sent = np.zeros(code.n)
        np.maximum.at(sent, sender[came], self._shares[came])
        done = computed(ready, begin, work, self._loads, sent)
        received = order[: int(came.sum())]
        arrivals = through(arrival[received], how.receive)
        time = ready
        if how.receive > 0:  # one after another: the last is through when each of the queues is
            queue = arrival[received]
            time = float(np.max(queue + how.receive * np.arange(queue.size, 0, -1)))
        if not how.interrupted:
            self._go_on(arrival, time + how.overhead, late)
        decoded = order[: int(np.flatnonzero(order == last)[0]) + 1] if last >= 0 else None
        senders = np.unique(sender[came]).size
        return time, received, arrivals, decoded, senders, int(done.sum())

    def _go_on(self, arrival: Array, end: float, late: Array) -> None:
        """Let workers finish the message that they are at when a round ends."""
        first = self._code.scheme.first_messages
        for worker in range(self._code.n):
            if late[worker] > end:
                late[worker] -= end
            else:
                mine = arrival[first[worker] : first[worker + 1]]
                rest = mine[mine > end]
                late[worker] = rest[0] - end if rest.size else 0.0


class WithRule(MessageByMessage):
    """The same for codes that have a rule, without rounds: in an eighth of the time."""

    def __init__(self, code: Code, watch: Watch | None = None) -> None:
        super().__init__(code, watch)
        self._tally = code.scheme.rule.tally()

    def _last(self, order: NDArray[np.int64]) -> int:
        self._tally.reset()
        for at, number in enumerate(order.tolist(), 1):
            if self._tally.add(number) and (
                at == order.size or not self._code.scheme.awaits_more(order[:at])
            ):
                return int(number)
        return -1


class Awaiting(MessageByMessage):
    """The same for codes that wait for some workers: what came before is seldom looked at."""

    def __init__(self, code: Code, watch: Watch | None = None) -> None:
        super().__init__(code, watch)
        rule = code.scheme.rule
        assert isinstance(rule, Waiting)
        self._rule, self._wait = rule.rule, rule.wait
        self._sent = np.array(code.scheme.message_counts)
        self._support: NDArray[np.bool_] | None = None
        if isinstance(self._rule, Span) and code.scheme.message_count * code.k <= _SUPPORT:
            rows = code.matrix().reshape(code.scheme.message_count, code.k, -1)
            self._support = np.asarray(rows.any(axis=2))

    def _exact(self, some: NDArray[np.int64]) -> bool:
        if not some.size or (self._support is not None and not self._support[some].any(0).all()):
            return False
        if isinstance(self._rule, Span):
            return self._rule.residual(some) <= SOLVED
        return not self._rule.missing(some)

    def _last(self, order: NDArray[np.int64]) -> int:
        at = np.empty(order.size, dtype=np.int64)
        at[order] = np.arange(order.size)
        whole = np.maximum.reduceat(
            at, self._code.scheme.first_messages[:-1]
        )  # a worker's last message
        end = int(np.partition(whole, self._wait - 1)[self._wait - 1])
        # Sets that hold an exact one are exact: the first such prefix, if any is, by bisection.
        low, high = -1, end
        if self._exact(order[:end]):
            high = end - 1
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if self._exact(order[: middle + 1]) else (middle, high)
        return int(order[high])


class OnRequest(Simulator):
    """Rounds of a code whose workers keep their messages, and are asked for one sum of them each.

    A round is over one round trip after what was computed suffices, once the sums were received.

    Parameters
    ----------
    code : Code
        Whose rule is one of `Cells`, all of which it needs.
    request : float
        Seconds of the round trip.
    """

    def __init__(self, code: Code, request: float) -> None:
        rule = code.scheme.rule
        assert isinstance(rule, Cells)
        self._code, self._request = code, request
        self._first = np.asarray(code.scheme.first_messages)
        self._counts = np.asarray(code.scheme.message_counts)
        self._sender = np.repeat(np.arange(code.n), self._counts)
        self._by_cell = np.argsort(rule.cell, kind="stable")
        self._cells = np.searchsorted(rule.cell[self._by_cell], np.arange(rule.weight.size))
        self._shares, self._loads = code.scheme.message_shares, code.scheme.loads

    def __call__(  # noqa: D102
        self, delays: kernels.DelayPlan, first: int, rounds: int, late: Array, how: Conditions
    ) -> tuple[NDArray[Any], ...]:
        wait, work = delays.draw(first, rounds)
        # Who is late depends on the round before, if workers finish what they are at.
        step = max(1, _AT_ONCE // self._sender.size) if how.interrupted else 1
        parts = []
        for at in range(0, rounds, step):
            begin, whole = late + wait[at : at + step], work[at : at + step]
            arrival = begin[:, self._sender] + whole[:, self._sender] * self._shares
            times, asked, done = self._some(begin, whole, arrival, how.receive)
            parts.append((times, asked, asked, done))
            if not how.interrupted:
                self._go_on(arrival[0], float(times[0]) + how.overhead, late)
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))

    def _some(
        self, begin: Array, work: Array, arrival: Array, receive: float
    ) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
        """Times of these rounds, workers asked, and computations by when there were enough."""
        each = np.minimum.reduceat(arrival[:, self._by_cell], self._cells, axis=1)
        ready = each.max(axis=1, keepdims=True)
        came = arrival <= ready
        vectors = self._code.decoding_vectors(came)
        asked = np.logical_or.reduceat(vectors != 0, self._first[:-1], axis=1).sum(axis=1)
        sent = np.maximum.reduceat(np.where(came, self._shares, 0.0), self._first[:-1], axis=1)
        done = computed(ready, begin, work, self._loads, sent)
        times = ready[:, 0] + self._request + receive * asked
        return times, asked, done.sum(axis=1).astype(np.int64)

    def _go_on(self, arrival: Array, end: float, late: Array) -> None:
        """Let workers finish the message that they are at when a round ends."""
        after = np.where(arrival > end, arrival, np.inf)
        due = np.minimum.reduceat(after, self._first[:-1])
        rest = np.where(np.isfinite(due), due - end, 0.0)
        late[:] = np.where(late > end, late - end, rest)


def computed(
    ready: Array | float, begin: Array, work: Array, loads: NDArray[np.int64], sent: Array
) -> Array:
    """Partial gradients that workers have computed when a round is ready.

    `sent` is the part of its work after which each worker sent its last message that came: beside a
    long delay the time since it began may have lost the digits that tell.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(work > 0, (ready - begin) / work, np.where(begin <= ready, 1.0, 0.0))
    done: Array = np.floor(loads * np.maximum(np.clip(part, 0, 1), sent) + 1e-9)
    return done


def through(times: NDArray[np.float64], receive: float) -> NDArray[np.float64]:
    """When messages are through that arrive then, in order: the link takes one after another."""
    if not receive > 0:
        return times
    at = np.arange(times.size)
    through: NDArray[np.float64] = np.maximum.accumulate(times - receive * at) + receive * (at + 1)
    return through
