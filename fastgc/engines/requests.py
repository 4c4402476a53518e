"""Rounds of sums, where engines ask for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Code, SumRound
from ..codes.format import Format
from .interface import Asking
from .options import RoundOptions

__all__ = ["Asked", "sum_round"]


def sum_round(code: Code, form: Format, options: RoundOptions) -> SumRound | None:
    """What collects sums, where workers are asked for them; None: they send every message.

    They are asked if the code says so, and if nothing else is to be known of single messages: these
    are not verified, tracked, or chosen beforehand, they are as precise as the gradient, and no
    approximation is to be made of what came.
    """
    plain = (
        options.survivors is None
        and options.tracker is None
        and not options.verify
        and options.partial == "raise"
    )
    if not (code.on_request and plain):
        return None
    if form.message_dtype != form.gradient_dtype or form.message_size != form.gradient_size:
        return None
    return SumRound(code, form.gradient_size, form.gradient_dtype)


class Asked:
    """A round of sums, as a master takes it in the place of one of messages.

    Attributes
    ----------
    awaited : set of int
        Workers that were asked, and have not answered.
    """

    verified = False

    def __init__(self, rnd: SumRound, transport: Asking) -> None:
        self._round, self._transport = rnd, transport
        self._requested = False
        self.awaited: set[int] = set()
        self.corrupt: list[int] = []

    @property
    def ready(self) -> bool:
        """Whether all who were asked have answered."""
        return self._round.ready

    decodable = ready

    @property
    def survivors(self) -> NDArray[np.int64]:
        """Numbers of the messages that are asked for."""
        return self._round.survivors

    def computed(self, worker: int, index: int) -> None:
        """Take note of a message; ask for sums, if there are enough now."""
        if self._round.report(worker, index) and not self._requested:
            self._requested = True
            requests = self._round.requests
            self.awaited.update(requests)
            for each, request in requests.items():
                self._transport.ask(each, request)

    def receive(
        self, worker: int, message: NDArray[Any], index: int | None, *, energy: float
    ) -> bool:
        """Take a sum; whether the round is ready."""
        self.awaited.discard(worker)
        return self._round.receive(worker, message, energy=energy)

    def wants(self, worker: int) -> bool:
        """Whether an answer of this worker is awaited."""
        return worker in self.awaited

    def straggles(self, worker: int) -> None:
        """Nothing: workers that are asked do not die."""

    def require(self, messages: NDArray[np.int64]) -> None:
        """Raise NotDecodableError unless these messages suffice."""
        code = self._round.code
        if code.rule.missing(messages):
            code.raise_too_few(messages)
