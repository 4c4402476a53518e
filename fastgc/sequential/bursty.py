"""Schemes for stragglers in bursts, SR-SGC and M-SGC (Krishnan, Ebrahimi, Khisti 2023)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .._base.arrays import Bools, Ints, at_least, check_integer
from ..codes import Code, FractionalRepetition, ReedSolomon, Uncoded
from .scheme import SequentialScheme, State, Tasks, check_part

_WINDOWS = (1, 2, 3)  # `SRSGC.choices` tries windows of this many bursts plus one round


class _BurstyScheme(SequentialScheme):
    """A scheme for stragglers in bursts, with gradient codes in its last parts.

    It tolerates these patterns: in any `window` rounds in a row, at most `stragglers` different
    workers straggle, and a worker's last straggling round is less than `burst` rounds after its
    first. The paper writes (B, W, lambda) for the three numbers (section 2). If a run is shorter
    than a window, all its rounds are one window.

    A subclass says which windows to try (`_windows`), and makes its parts (`_make`).
    """

    _uncoded = 0  # number of parts without a code, which come first

    def __init__(
        self,
        n: int,
        *,
        burst: int,
        window: int,
        stragglers: int,
        code: Callable[..., Code] | None = None,
    ) -> None:
        self.n = check_integer("n", n)
        self.burst, self.window = check_integer("burst", burst), check_integer("window", window)
        if not 1 <= self.burst <= self.window:
            raise ValueError(f"1 <= burst <= window is needed, not burst={burst}, window={window}")
        self.stragglers = at_least("stragglers", stragglers, 0)
        if not self.stragglers <= self.n:
            raise ValueError(f"stragglers must be at most n={self.n}, not {stragglers}")
        self._make(code)

    def __repr__(self) -> str:
        coded = f", code={self.parts[-1]!r}" if len(self.parts) > self._uncoded else ""
        return (
            f"{type(self).__name__}({self.n}, burst={self.burst}, window={self.window}, "
            f"stragglers={self.stragglers}{coded})"
        )

    @classmethod
    def choices(cls, n: int, delay: int) -> Iterator[dict[str, Any]]:
        for burst in range(1, delay + 1):
            for window in cls._windows(burst, delay):
                for stragglers in ladder(n):
                    yield {"burst": burst, "window": window, "stragglers": stragglers}

    @staticmethod
    def _windows(burst: int, delay: int) -> Iterable[int]:
        """Return the windows that `choices` tries for bursts of `burst` rounds."""
        raise NotImplementedError

    def _make(self, code: Callable[..., Code] | None) -> None:
        """Set the parts of a job, or raise ValueError if there is no such scheme."""
        raise NotImplementedError


class SRSGC(_BurstyScheme):
    """A gradient code for few stragglers per round; missing messages are repeated B rounds later.

    Every job has one code for s stragglers, s = ceil(B lambda / (W - 1 + B)). If more straggle in
    the round in which a job begins, some workers compute their message for it B rounds later,
    instead of one for the job that begins then: as many workers as messages are missing. No round
    waits for a straggler if in any W rounds at most lambda workers straggle, each within B rounds
    in a row; nor if at most s straggle in each round.

    A round may end when the job that is due is decoded and the newest job lacks at most lambda - s
    messages. Such patterns satisfy this. If more workers straggle, the rule limits the work
    that is postponed.

    Parameters
    ----------
    n : int
        Workers.
    burst : int
        Rounds after which a message is repeated, B; the delay of a job.
    window : int
        W: 1 more than a multiple of B.
    stragglers : int
        Different workers that may straggle in a window, lambda, at most n.
    code : callable, optional
        ``code(n, stragglers=s)`` makes the code of a job. Default: as in `MSGC` (the paper's
        SR-SGC-Rep).

    Attributes
    ----------
    s : int
        Stragglers that the code of a job tolerates.

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
        B, W = self.burst, self.window
        if (W - 1) % B or W == 1:
            raise ValueError(
                f"window must be 1 more than a multiple of burst, not window={W}, burst={B}"
            )
        self.s = -(-B * self.stragglers // (W - 1 + B))
        self._put_off = self.stragglers - self.s
        self._set_parts([_gradient_code(self.n, self.s, code)], slots=1, ages=[0, B])

    @staticmethod
    def _windows(burst: int, delay: int) -> Iterable[int]:
        return (times * burst + 1 for times in _WINDOWS)

    def tasks(self, state: State, live: Sequence[int], silent: Ints) -> Tasks:  # noqa: D102
        age = np.full((self.n, 1), 0 if 0 in live else -1)
        if self.delay in live:
            age[self._repeating(state[self.delay, 0].copy(), silent)] = self.delay
        return Tasks(age, np.zeros((self.n, 1), dtype=np.int64))

    def _repeating(self, came: Bools, silent: Ints) -> Ints:
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

    def tolerable(self, state: State, live: Sequence[int]) -> bool:  # noqa: D102
        if self.delay in live and self.lacks(0, state[self.delay, 0]):
            return False
        return 0 not in live or self.lacks(0, state[0, 0]) <= self._put_off


class MSGC(_BurstyScheme):
    """Most of a job is uncoded, and stragglers repeat it; a gradient code covers the rest.

    A job takes W - 1 + B rounds. Each of the first W - 1 rounds does one of its W - 1 uncoded
    parts. In each of the last B rounds, a worker repeats one of its uncoded parts that did not
    arrive. A worker without such parts does the coded part of that round, whose code tolerates
    lambda stragglers. So a round works on W - 1 + B jobs, and each worker has one mini-task for
    each of them. No round waits for a straggler if in any W rounds at most lambda workers straggle,
    each within B rounds in a row; nor if in any W + B - 1 rounds at most lambda workers straggle,
    each at most B times, in any rounds (the paper's arbitrary stragglers).

    A round may end if all jobs can be done in time, provided that all workers answer from then on.

    Parameters
    ----------
    n : int
        Workers.
    burst, window : int
        B and W: 1 <= B < W.
    stragglers : int
        Different workers that may straggle in a window, lambda, at most n. With lambda = n there
        are no coded parts.
    code : callable, optional
        ``code(n, stragglers=lambda)`` makes the code of the coded parts. Default:
        `fastgc.FractionalRepetition` if lambda + 1 divides n (the paper's M-SGC-Rep), otherwise
        `fastgc.ReedSolomon`.

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
        n, B, W, s = self.n, self.burst, self.window, self.stragglers
        if B == W:
            raise ValueError(f"burst must be less than window, not both {B}")
        self._uncoded = W - 1
        coded = [] if s == n else [_gradient_code(n, s, code)] * B
        size = coded[0].load if coded else 1
        parts = [Uncoded(n, n * size)] * (W - 1) + coded
        self._set_parts(parts, slots=W - 1 + B, ages=range(W - 1 + B))
        # [age, part, 0]: whether an uncoded part is begun when a round ends.
        self._begun = np.tri(W - 1 + B, W - 1, dtype=bool)[:, :, np.newaxis]

    @staticmethod
    def _windows(burst: int, delay: int) -> Iterable[int]:
        return range(burst + 1, delay + 3 - burst)

    def tasks(self, state: State, live: Sequence[int], silent: Ints) -> Tasks:  # noqa: D102
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
        behind = (self._begun & ~state[:, : self._uncoded]).sum(axis=1)
        for job, most in zip(live, behind.max(axis=1)[list(live)].tolist(), strict=True):
            # Rounds left in which workers repeat uncoded parts.
            left = self.delay - max(job, self._uncoded - 1)
            if most > left:
                return False
            if len(self.parts) == self._uncoded:
                continue
            if job >= self._uncoded and self.lacks(job, state[job, job]):
                return False
            if left and most and self.lacks(self._uncoded, behind[job] == 0):
                return False  # too few workers are free for the next coded part
        return True


def ladder(most: int) -> list[int]:
    """Return numbers from 1 to `most`, each about 1.5 times the one before."""
    found, number = [], 1
    while number < most:
        found.append(number)
        number += max(number // 2, 1)
    return [*found, most] if most > 0 else []


def _gradient_code(n: int, stragglers: int, code: Callable[..., Code] | None) -> Code:
    """Return the code of a part; by default, the paper's GC-Rep where it exists, otherwise GC."""
    if code is None:
        code = ReedSolomon if n % (stragglers + 1) else FractionalRepetition
    if not callable(code):
        raise TypeError(
            "code must make a code of n workers, as fastgc.CyclicRepetition does, not "
            f"{type(code).__name__}"
        )
    return check_part(code(n, stragglers=stragglers), n, stragglers)
