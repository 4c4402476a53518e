"""Simulators of rounds, each right, or fast, for some codes; `simulate` chooses among them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from ..._base.arrays import Array, Floats, Ints
from ...codes import Code
from ...coding.reactive import Dues
from ...kernels.rounds import Completion, CompletionPlan, DelayPlan
from ...kernels.unchecked import completion, draw


def drawn(delays: DelayPlan, first: int, rounds: int) -> tuple[Floats, Floats]:
    """Return delays and works of rounds `first` and following, of shape (rounds, n) each."""
    wait, whole = np.empty((2, rounds, delays.given.shape[1]))
    draw(delays, first, wait, whole)
    return wait, whole


class Conditions(NamedTuple):
    """Those arguments of `fastgc.simulation.simulate` that every simulator needs."""

    receive: float
    overhead: float
    interrupted: bool


# Simulates consecutive rounds; each call goes on where the call before ended. It takes the plan of
# delays, the number of the first round, how many rounds, and how late workers are, which is read
# and updated as by ``kernels.unchecked.completion``. It returns, as that does, times, messages,
# workers and computations.
Simulator = Callable[[DelayPlan, int, int, Floats, Conditions], tuple[Array, ...]]


class Kernel:
    """Simulates with compiled kernels.

    `judge` is called with the messages from which each of the first `judged` rounds is decoded.
    """

    def __init__(
        self, rule: CompletionPlan, judge: Callable[[Ints], None] | None = None, judged: int = 0
    ) -> None:
        self._rule, self._judge, self._judged = rule, judge, judged
        self._sender = np.repeat(np.arange(rule.loads.size), np.diff(rule.first))

    def __call__(  # noqa: D102
        self, delays: DelayPlan, first: int, rounds: int, late: Floats, how: Conditions
    ) -> tuple[Array, ...]:
        rule, out = self._rule, Completion.empty(rounds)
        lo = 0
        while lo < rounds:
            left = self._judged - first - lo  # rounds still to be judged
            hi = rounds
            if left > 0:
                # Without interruption, the arrivals below need `late` as it is before each round.
                hi = min(lo + left, rounds) if how.interrupted else lo + 1
            done = out.part(lo, hi)
            if left > 0 and self._judge is not None:
                wait, work = drawn(delays, first + lo, hi - lo)
                arrival = (late + wait)[:, self._sender] + work[:, self._sender] * rule.share
                order = np.argsort(arrival, axis=1, kind="stable")
            completion(rule, delays, first + lo, late, *how, done)
            if left > 0 and self._judge is not None:
                for came, count in zip(order, done.messages, strict=True):
                    self._judge(came[:count])
            lo = hi
        return out


class Outcome(NamedTuple):
    """One simulated round."""

    time: float  # seconds until the round is ready; inf if it never is
    messages: int  # received by then
    workers: int  # that had sent them
    computations: int  # partial gradients computed by then
    decoded: Ints | None = None  # the messages up to the one that sufficed; None if none did


class RoundByRound(ABC):
    """Simulates one round after another; `judge` gets the messages each is decoded from."""

    def __init__(self, code: Code, judge: Callable[[Ints], None] | None = None) -> None:
        self._code, self._judge = code, judge

    def __call__(  # noqa: D102
        self, delays: DelayPlan, first: int, rounds: int, late: Floats, how: Conditions
    ) -> tuple[Array, ...]:
        rows = []
        for times in zip(*drawn(delays, first, rounds), strict=True):
            *row, decoded = self._one(*times, late, how)
            rows.append(row)
            if self._judge is not None and decoded is not None:
                self._judge(decoded)
        times, *counts = zip(*rows, strict=True)
        return np.array(times), *(np.array(each, dtype=np.int64) for each in counts)

    @abstractmethod
    def _one(self, wait: Floats, work: Floats, late: Floats, how: Conditions) -> Outcome:
        """Simulate one round."""


class MessageByMessage(RoundByRound):
    """Hands message after message to the code's own `Round`: for any code, and as tests' oracle."""

    def __init__(self, code: Code, judge: Callable[[Ints], None] | None = None) -> None:
        super().__init__(code, judge)
        self._round = code.round(2)
        form = self._round.form
        self._message = np.zeros(form.message_size, form.message_dtype)
        self._sender = np.repeat(np.arange(code.n), code.scheme.messages.counts)
        self._shares, self._loads = code.scheme.messages.shares, code.scheme.loads

    def _last(self, order: Ints) -> int:
        """Return the message that makes a round ready if they come in `order`; -1 if none does."""
        self._round.reset()
        for number in order.tolist():
            if self._round.receive(*self._code.scheme.messages.sender(number)[:1], self._message):
                return int(number)
        return -1

    def _one(self, wait: Floats, work: Floats, late: Floats, how: Conditions) -> Outcome:
        code, sender, begin = self._code, self._sender, late + wait
        arrival = begin[sender] + work[sender] * self._shares
        order = np.argsort(arrival, kind="stable")
        last = self._last(order)
        ready = float(arrival[last]) if last >= 0 else math.inf
        came = arrival <= ready
        sent = np.zeros(code.n)
        np.maximum.at(sent, sender[came], self._shares[came])
        done = computed(ready, begin, work, self._loads, sent)
        time, count = ready, int(came.sum())
        if how.receive > 0:
            # The largest, over messages, of arrival + time to receive it and all later ones.
            queue = arrival[order[:count]]
            time = float(np.max(queue + how.receive * np.arange(queue.size, 0, -1)))
        if not how.interrupted:
            finish_messages(arrival, sender, time + how.overhead, late)
        decoded = order[: int(np.flatnonzero(order == last)[0]) + 1] if last >= 0 else None
        senders = int(np.count_nonzero(np.bincount(sender[came], minlength=code.n)))
        return Outcome(time, count, senders, int(done.sum()), decoded)


class ByRule(MessageByMessage):
    """Asks the code's rule instead of its `Round`: the same result in an eighth of the time."""

    def __init__(self, code: Code, judge: Callable[[Ints], None] | None = None) -> None:
        super().__init__(code, judge)
        self._tally = code.scheme.rule.tally()

    def _last(self, order: Ints) -> int:
        self._tally.reset()
        for at, number in enumerate(order.tolist(), 1):
            if self._tally.add(number) and (
                at == order.size or not self._code.scheme.gate.awaits_more(order[:at])
            ):
                return int(number)
        return -1


class Reacting(RoundByRound):
    """Rounds in which the master asks holders for missing shares, as `ReactiveRound` does.

    The code has `stand_ins`, and each worker sends one message. A worker that is asked begins
    the share a round trip later, `request` seconds.
    """

    def __init__(self, code: Code, request: float) -> None:
        super().__init__(code)
        scheme = code.scheme
        self._dues = Dues([scheme.holders.of(i) for i in range(code.n)], scheme.holders.deadline)
        self._request, self._loads = request, scheme.loads

    def _one(self, wait: Floats, work: Floats, late: Floats, how: Conditions) -> Outcome:
        begin = late + wait
        own, loads = begin + work, self._loads.tolist()
        each, order = (work / self._loads).tolist(), np.argsort(own, kind="stable").tolist()
        dues, receive = self._dues, how.receive
        arrival, n, at, now, asked = own.tolist(), len(order), 0, 0.0, 0
        free = [0.0] * len(order)
        # Answers to come, a heap: arrival, number of the question, worker, share.
        answers: list[tuple[float, int, int, Any]] = []
        begun: list[tuple[float, float, int]] = []  # of shares asked for: begin, seconds, load
        received = list[int]()
        dues.begin(now, asks=True)
        through = link_times(own[order], receive)
        if dues.in_time(through.tolist()):
            now, at, received = float(through[-1]), n, order
        while dues.missing:
            while answers and answers[0][2] not in dues.owing:  # no longer of use
                heappop(answers)
            answer = answers[0][0] if answers else math.inf
            message = max(now, arrival[order[at]]) + receive if at < n else math.inf
            due = dues.due
            if message <= due and message < answer:
                while True:  # until somebody is to be asked, or something else comes first
                    now, worker = message, order[at]
                    at += 1
                    received.append(worker)
                    if dues.came(worker, now) or at == n or not dues.missing:
                        break
                    message = max(now, arrival[order[at]]) + receive
                    if message > due or message >= answer:
                        break
            elif answer <= due:
                now, _, worker, what = heappop(answers)
                if (share := dues.answers(worker, what, now, has=True)) is not None:
                    received.append(share)
            else:
                now = due
                dues.elapse(now)
            for worker, what in dues.questions():
                start = max(now, free[worker])
                seconds = each[worker] * loads[what.worker]
                free[worker] = end = start + (self._request + seconds)
                heappush(answers, (end + receive, asked, worker, what))
                begun.append((end - seconds, seconds, loads[what.worker]))
                asked += 1
        if not how.interrupted:
            after = now + how.overhead
            finish_messages(own, np.arange(n), after, late)
            np.maximum(late, np.array(free) - after, out=late)
        done = int(computed(now, begin, work, self._loads, np.where(own <= now, 1.0, 0.0)).sum())
        starts, lengths, asked_for = np.array(begun).reshape(-1, 3).T
        done += int(computed(now, starts, lengths, asked_for, 0.0).sum())
        return Outcome(now, len(received), len(set(received)), done)


def computed(
    ready: Floats | float, begin: Floats, work: Floats, loads: Array, sent: Floats | float
) -> Floats:
    """Return how many partial gradients each worker has computed by time `ready`.

    `sent`, the part of its work that a worker had done when it sent its last message received, is a
    lower bound. It is needed because ``ready - begin`` loses digits next to a long delay.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(work > 0, (ready - begin) / work, np.where(begin <= ready, 1.0, 0.0))
    done: Floats = np.floor(loads * np.maximum(np.clip(part, 0, 1), sent) + 1e-9)
    return done


def finish_messages(arrival: Floats, sender: Ints, end: float, late: Floats) -> None:
    """Set `late` for the next round: each worker finishes the message that it is computing.

    A worker that is still late at `end` has not begun this round; it stays late for the rest.
    """
    due = np.full(late.size, np.inf)  # each worker's first arrival after the end
    np.minimum.at(due, sender, np.where(arrival > end, arrival, np.inf))
    rest = np.subtract(due, end, out=np.zeros(late.size), where=np.isfinite(due))
    late[:] = np.where(late > end, late - end, rest)


def link_times(times: Floats, receive: float) -> Floats:
    """Return when messages with ascending arrival `times` are through a link, `receive` s each."""
    if not receive > 0:
        return times
    at = np.arange(times.size)
    received: Floats = np.maximum.accumulate(times - receive * at) + receive * (at + 1)
    return received
