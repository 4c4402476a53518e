"""Rounds that take messages chosen beforehand: those of an earlier run, whose bits they give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import check_workers
from ..errors import CorruptMessageError, NotDecodableError
from .approximation import Partial
from .gathering import Gathering

__all__ = ["Chosen"]


class Chosen(Gathering):
    """A round that takes messages chosen beforehand, all of them and in their order.

    So sums are rounded as they were when those messages came in that order by themselves.

    Parameters
    ----------
    rnd : Gathering
        Which takes them, once all have come.
    numbers : array_like
        Numbers of the messages, or a boolean for each message of the code.
    asked : frozenset of int
        Workers that take part.
    partial : "raise", "best" or "unbiased"
        As of `fastgc.engines.RoundOptions`: "raise" if the messages must suffice.

    Raises
    ------
    TypeError, ValueError
        If there are no such messages, one is named twice, or its worker takes no part.
    NotDecodableError
        If they must suffice, and do not.
    """

    linger = None
    replaceable = False

    def __init__(
        self, rnd: Gathering, numbers: ArrayLike, asked: frozenset[int], partial: Partial | str
    ) -> None:
        self.code, self.form = rnd.code, rnd.form
        chosen = check_workers("survivors", numbers, self.code.scheme.message_count)
        senders = [self.code.scheme.sender(m)[0] for m in chosen.tolist()]
        if len(set(chosen.tolist())) < chosen.size:
            raise ValueError(f"survivors name a message twice: {chosen.tolist()}")
        if not asked.issuperset(senders):
            strangers = sorted(set(senders) - asked)
            raise ValueError(f"survivors are of workers {strangers}, which take no part")
        if partial == "raise":
            rnd.require(chosen)
        self._round, self._chosen = rnd, chosen
        self._missing = set(chosen.tolist())
        self._held: dict[int, tuple[NDArray[Any], float]] = {}

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
    def verified(self) -> bool:  # type: ignore[override]
        """As of the round."""
        return self._round.verified

    @property
    def survivors(self) -> NDArray[np.int64]:
        """Those that came, once all have."""
        return self._round.survivors

    def straggles(self, worker: int) -> None:
        """As of the round."""
        self._round.straggles(worker)

    def receive(
        self,
        worker: int,
        message: NDArray[Any],
        index: int | None = None,
        *,
        energy: float = math.nan,
    ) -> bool:
        """Take a message, or drop one that was not chosen; whether the round is ready."""
        number = self.code.scheme.message_number(worker, index or 0)
        if number in self._missing:
            self._held[number] = message, energy
            self._missing.remove(number)
            if not self._missing:
                self._pass_on()
        return self.ready

    def _pass_on(self) -> None:
        """Let the round take them; nothing can stand in for one that is corrupt."""
        for m in self._chosen.tolist():
            worker, index = self.code.scheme.sender(m)
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
