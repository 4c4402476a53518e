"""Rounds whose workers are asked: for sums, or as suspects."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import AskingRound, Code, Request, Round, SumRound
from ..coding.format import Format
from .options import RoundOptions

__all__ = ["Asked", "own_round", "sum_round"]

# Seconds that an answer may take at least, before others are asked in its place.
_LEAST_WAIT = 0.1


def own_round(
    code: Code, size: int, form: Format, options: RoundOptions, gradient: object
) -> Round:
    """What collects messages of a cluster, as its options say."""
    types = size, form.gradient_dtype, form.message_dtype
    if not options.ask:
        return code.round(*types, tracker=options.tracker, verify=options.verify)
    if hasattr(gradient, "worker"):
        raise TypeError(
            f"workers cannot be asked about partial gradients of {type(gradient).__name__}, which "
            "computes whole messages: leave ask=True out"
        )
    return AskingRound(code, *types, options.tracker, liars=int(options.verify))


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
    if not (code.scheme.on_request and plain):
        return None
    if form.message_dtype != form.gradient_dtype or form.message_size != form.gradient_size:
        return None
    return SumRound(code, form.gradient_size, form.gradient_dtype)


class Asked:
    """A round of sums, as a master takes it in the place of one of messages.

    A worker that has not answered after as long as the round had taken when it was asked is passed
    over, if what others have computed suffices: they are asked in its place. It may be stopped.

    Parameters
    ----------
    rnd : SumRound
    ask : callable
        ``ask(worker, request)`` asks, and returns the number of the question.

    Attributes
    ----------
    asks : int
        Questions so far.
    due : float
        When, of ``time.perf_counter()``, `pass_over` is to be called; inf: not before more has
        happened.
    """

    verified = False

    def __init__(self, rnd: SumRound, ask: Callable[[int, Request], int]) -> None:
        self._round, self._ask = rnd, ask
        self._begin = time.perf_counter()
        self._asked: dict[int, tuple[int, Request]] = {}  # of workers that have not answered
        self._aside: list[int] = []  # messages of those that were passed over
        self._overdue = False
        self.asks, self.due = 0, np.inf
        self.corrupt: list[int] = []

    @property
    def awaited(self) -> set[int]:
        """Workers that were asked, and have not answered."""
        return set(self._asked)

    @property
    def ready(self) -> bool:
        """Whether all who were asked have answered."""
        return self._round.ready

    decodable = ready

    @property
    def survivors(self) -> NDArray[np.int64]:
        """Numbers of the messages that are asked for; of those computed, as long as none are."""
        return self._round.survivors if self._round.requests else self._round.reported

    def computed(self, worker: int, index: int) -> None:
        """Take note of a message; ask for sums, if there are enough now."""
        self._round.report(worker, index)
        if self._overdue:
            self.pass_over()
        self._ask_all()

    def _ask_all(self) -> None:
        """Ask whom the round says, unless asked already."""
        requests = self._round.requests
        answered = self._round.answered
        now = time.perf_counter()
        self._asked = {i: asked for i, asked in self._asked.items() if requests.get(i) is asked[1]}
        for worker, request in requests.items():
            if worker not in self._asked and worker not in answered:
                self._asked[worker] = self._ask(worker, request), request
                self.asks += 1
                self.due = now + max(now - self._begin, _LEAST_WAIT)
                self._overdue = False

    def takes(self, worker: int, number: int) -> bool:
        """Whether this is the number of the question that this worker was asked last."""
        return worker in self._asked and self._asked[worker][0] == number

    def receive(
        self, worker: int, message: NDArray[Any], index: int | None = None, *, energy: float
    ) -> bool:
        """Take a sum; whether the round is ready."""
        del self._asked[worker]
        return self._round.receive(worker, message, energy=energy)

    def pass_over(self) -> None:
        """Ask others in the place of those who do not answer, if they have computed enough."""
        self.due, self._overdue = np.inf, True
        for worker in list(self._asked):
            if self._round.suffices_without(worker):
                self.lacks(worker)

    def lacks(self, worker: int) -> None:
        """Take note that a worker does not answer."""
        mine = self._round.code.scheme.messages_of([worker])
        self._aside += np.intersect1d(mine, self._round.reported).tolist()
        self._asked.pop(worker, None)
        self._round.lose(worker)
        self._ask_all()

    def straggles(self, worker: int) -> None:
        """Take note that a worker has died, and what it kept is gone."""
        code = self._round.code
        self._asked.pop(worker, None)
        self._aside = [m for m in self._aside if code.scheme.sender(m)[0] != worker]
        if not self._round.lose(worker):  # too few are left: those passed over may answer yet
            for number in self._aside:
                self._round.report(*code.scheme.sender(number))
            self._aside = []
        self._ask_all()

    def require(self, messages: NDArray[np.int64]) -> None:
        """Raise NotDecodableError unless these messages suffice."""
        code = self._round.code
        if code.scheme.rule.missing(messages):
            code.scheme.raise_too_few(messages)
