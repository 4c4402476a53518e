"""Rounds of codes whose workers keep their messages, and are asked for one sum of them each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..codes import Code
from ..coding.rules import Cells

__all__ = ["Asking"]

Array = NDArray[np.float64]

# Messages of many rounds that are looked at together.
_AT_ONCE = 1 << 20


class Asking:
    """Simulates rounds of a code that `on_request` is True of.

    A round is over one round trip after what was computed suffices, once the sums were received.

    Parameters
    ----------
    code : Code
        Whose rule is one of `Cells`, all of which it needs.
    request : float
        Seconds of the round trip.
    """

    def __init__(self, code: Code, request: float) -> None:
        rule = code.rule
        assert isinstance(rule, Cells)
        self._code, self._request = code, request
        self._first = np.asarray(code.first_messages)
        self._counts = np.asarray(code.message_counts)
        self._sender = np.repeat(np.arange(code.n), self._counts)
        self._by_cell = np.argsort(rule.cell, kind="stable")
        self._cells = np.searchsorted(rule.cell[self._by_cell], np.arange(rule.weight.size))
        self._shares, self._loads = code.message_shares, code.loads

    def __call__(
        self,
        delays: kernels.DelayPlan,
        first: int,
        rounds: int,
        late: Array,
        receive: float,
        overhead: float,
        interrupted: bool,
    ) -> tuple[NDArray[Any], ...]:
        """Times of rounds, messages, workers and computations, as `fastgc.kernels.completion`."""
        wait, work = kernels.draw(delays, first, rounds)
        # Who is late depends on the round before, if workers finish what they are at.
        step = max(1, _AT_ONCE // self._sender.size) if interrupted else 1
        parts = []
        for at in range(0, rounds, step):
            begin, whole = late + wait[at : at + step], work[at : at + step]
            arrival = begin[:, self._sender] + whole[:, self._sender] * self._shares
            times, asked, done = self._some(begin, whole, arrival, receive)
            parts.append((times, asked, asked, done))
            if not interrupted:
                self._go_on(arrival[0], float(times[0]) + overhead, late)
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
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(work > 0, (ready - begin) / work, (begin <= ready) * 1.0)
        # beside a long delay the time since may have lost the digits that tell
        sent = np.maximum.reduceat(np.where(came, self._shares, 0.0), self._first[:-1], axis=1)
        done = np.floor(self._loads * np.maximum(np.clip(part, 0.0, 1.0), sent) + 1e-9)
        times = ready[:, 0] + self._request + receive * asked
        return times, asked, done.sum(axis=1).astype(np.int64)

    def _go_on(self, arrival: Array, end: float, late: Array) -> None:
        """Let workers finish the message that they are at when a round ends."""
        after = np.where(arrival > end, arrival, np.inf)
        due = np.minimum.reduceat(after, self._first[:-1])
        rest = np.where(np.isfinite(due), due - end, 0.0)
        late[:] = np.where(late > end, late - end, rest)
