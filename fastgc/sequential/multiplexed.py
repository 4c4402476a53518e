"""Multiplexed sequential gradient coding: M-SGC (Krishnan, Ebrahimi, Khisti 2023)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..codes import Code, Uncoded
from .patterns import Arbitrary
from .scheme import BurstyScheme, State, Tasks, gradient_code

__all__ = ["MSGC"]


class MSGC(BurstyScheme):
    """Most of a job is uncoded, and stragglers repeat it; a gradient code covers the rest.

    A job takes W - 1 + B rounds. Each of the first W - 1 rounds does one of its W - 1 uncoded
    parts. In each of the last B rounds, a worker repeats one of its uncoded parts that did not
    arrive. A worker without such parts does the coded part of that round, whose code tolerates
    lambda stragglers. So a round works on W - 1 + B jobs, and each worker has one mini-task for
    each of them. For patterns of stragglers of the models ``Bursty(B, W, lambda)`` and
    ``Arbitrary(B, W + B - 1, lambda)``, no round waits for a straggler.

    A round may end if all jobs can be done in time, provided that all workers answer from then on.

    Parameters
    ----------
    n : int
        Workers.
    burst, window : int
        B and W of the model: 1 <= B < W.
    stragglers : int
        Different workers that may straggle in a window, lambda, at most n. With lambda = n there
        are no coded parts.
    code : callable, optional
        ``code(n, stragglers=lambda)`` makes the code of the coded parts. Default:
        `fastgc.FractionalRepetition` if lambda + 1 divides n (the paper's M-SGC-Rep), otherwise
        `fastgc.ReedSolomon`.

    Attributes
    ----------
    model : Bursty
        Patterns that are tolerated.
    arbitrary : Arbitrary
        Further patterns that are tolerated.

    Raises
    ------
    TypeError, ValueError
        If there is no such scheme; the message says why.

    Notes
    -----
    The source is Krishnan, Ebrahimi and Khisti, "Sequential gradient coding for straggler
    mitigation", ICLR 2023, section 3. The paper's chunks have unequal sizes; here they are cut into
    equal ones, so that every mini-task has lambda + 1 partitions. The paper's normalised load is
    ``load / n``, which is (lambda + 1) (W - 1 + B) / (n (B + (W - 1) (lambda + 1))), or
    (W - 1 + B) / (n (W - 1)) without coded parts.

    If a worker is gone for good, its uncoded partitions are lost, because no code contains them.

    Examples
    --------
    >>> scheme = MSGC(256, burst=1, window=2, stragglers=27)
    >>> scheme.delay, round(scheme.load / 256, 5)
    (1, 0.00754)
    """

    def _make(self, code: Callable[..., Code] | None) -> None:
        n, model = self.n, self.model
        B, W, s = model.burst, model.window, model.stragglers
        if B == W:
            raise ValueError(f"burst must be less than window, not both {B}")
        self.arbitrary = Arbitrary(B, W + B - 1, s)
        self._uncoded = W - 1
        coded = [] if s == n else [gradient_code(n, s, code)] * B
        size = coded[0].load if coded else 1
        parts = [Uncoded(n, n * size)] * (W - 1) + coded
        self._set_parts(parts, slots=W - 1 + B, ages=range(W - 1 + B))

    @staticmethod
    def _windows(burst: int, delay: int) -> Iterable[int]:
        return range(burst + 1, delay + 3 - burst)

    def tasks(  # noqa: D102
        self, state: State, live: Sequence[int], silent: NDArray[np.int64]
    ) -> Tasks:
        age = np.full((self.n, self.slots), -1)
        part = np.zeros((self.n, self.slots), dtype=np.int64)
        for job in live:
            age[:, job] = job
            if job < self._uncoded:
                part[:, job] = job
                continue
            lacking = ~state[job, : self._uncoded]
            behind = lacking.any(axis=0)
            if job < len(self.parts):
                part[:, job] = np.where(behind, lacking.argmax(axis=0), job)
            else:  # no part is coded
                part[:, job] = lacking.argmax(axis=0)
                age[~behind, job] = -1
        return Tasks(age, part)

    def tolerable(self, state: State, live: Sequence[int]) -> bool:  # noqa: D102
        for job in live:
            begun = min(job + 1, self._uncoded)
            behind = (~state[job, :begun]).sum(axis=0)
            # Rounds left in which workers repeat uncoded parts.
            left = self.delay - max(job, self._uncoded - 1)
            if behind.max() > left:
                return False
            if len(self.parts) == self._uncoded:
                continue
            if job >= self._uncoded and self.lacks(job, state[job, job]):
                return False
            if left and self.lacks(self._uncoded, behind == 0):
                return False  # too few workers are free for the next coded part
        return True
