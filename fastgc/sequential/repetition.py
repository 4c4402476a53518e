"""Selective repetition: SR-SGC (Krishnan, Ebrahimi, Khisti 2023)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..codes import Code
from .scheme import BurstyScheme, State, Tasks, gradient_code

__all__ = ["SRSGC"]

_WINDOWS = (1, 2, 3)  # `choices` tries windows of this many bursts plus one round


class SRSGC(BurstyScheme):
    """A gradient code for few stragglers per round; missing messages are repeated B rounds later.

    Every job has one code for s stragglers, s = ceil(B lambda / (W - 1 + B)). If more straggle in
    the round in which a job begins, some workers compute their message for it B rounds later,
    instead of one for the job that begins then: as many workers as messages are missing. For
    patterns of stragglers of the model ``Bursty(B, W, lambda)``, and for s stragglers in each round
    (``PerRound(s)``), no round waits for a straggler.

    A round may end when the job that is due is decoded and the newest job lacks at most lambda - s
    messages. Patterns of the model satisfy this. If more workers straggle, the rule limits the work
    that is postponed.

    Parameters
    ----------
    n : int
        Workers.
    burst : int
        Rounds after which a message is repeated, B; the delay of a job.
    window : int
        W of the model: 1 more than a multiple of B.
    stragglers : int
        Different workers that may straggle in a window, lambda, at most n.
    code : callable, optional
        ``code(n, stragglers=s)`` makes the code of a job. Default: `fastgc.FractionalRepetition` if
        s + 1 divides n (the paper's SR-SGC-Rep), otherwise `fastgc.ReedSolomon`.

    Attributes
    ----------
    s : int
        Stragglers that the code of a job tolerates.
    model : Bursty
        Patterns that are tolerated.

    Raises
    ------
    TypeError, ValueError
        If there is no such scheme; the message says why.

    Notes
    -----
    The source is section 3 of the paper that `MSGC` names. Workers repeat only messages that no
    other message replaces: with fractional repetition, one of each group from which none came.

    Examples
    --------
    >>> scheme = SRSGC(256, burst=2, window=3, stragglers=23)
    >>> scheme.s, scheme.load, scheme.delay
    (12, 13.0, 2)
    """

    def _make(self, code: Callable[..., Code] | None) -> None:
        model = self.model
        if (model.window - 1) % model.burst or model.window == 1:
            raise ValueError(
                "window must be 1 more than a multiple of burst, not "
                f"window={model.window}, burst={model.burst}"
            )
        self.s = -(-model.burst * model.stragglers // (model.window - 1 + model.burst))
        self._put_off = model.stragglers - self.s
        self._set_parts([gradient_code(self.n, self.s, code)], slots=1, ages=[0, model.burst])

    @staticmethod
    def _windows(burst: int, delay: int) -> Iterable[int]:
        return (times * burst + 1 for times in _WINDOWS)

    def tasks(  # noqa: D102
        self, state: State, live: Sequence[int], silent: NDArray[np.int64]
    ) -> Tasks:
        age = np.full((self.n, 1), 0 if 0 in live else -1)
        if self.delay in live:
            age[self._repeating(state[self.delay, 0].copy(), silent)] = self.delay
        return Tasks(age, np.zeros((self.n, 1), dtype=np.int64))

    def _repeating(self, came: NDArray[np.bool_], silent: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the workers that compute their messages for the job due, as few as suffice."""
        lacking = self.lacks(0, came)
        # Workers silent for fewer rounds are likelier to answer; dead ones come last.
        others = np.flatnonzero(~came)
        repeating = []
        for worker in others[np.argsort(silent[others], kind="stable")].tolist():
            if not lacking:
                break
            came[worker] = True
            if (now := self.lacks(0, came)) < lacking:
                lacking = now
                repeating.append(worker)
            else:
                came[worker] = False
        return np.array(repeating, dtype=np.int64)

    def excused(self, tasks: Tasks, straggled: NDArray[np.bool_]) -> bool:  # noqa: D102
        # Up to s stragglers: the code of the new job makes up for them, if no worker repeated.
        return int(straggled.sum()) <= self.s and not (tasks.age > 0).any()

    def tolerable(self, state: State, live: Sequence[int]) -> bool:  # noqa: D102
        if self.delay in live and self.lacks(0, state[self.delay, 0]):
            return False
        return 0 not in live or self.lacks(0, state[0, 0]) <= self._put_off
