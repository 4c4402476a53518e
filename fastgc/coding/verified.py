"""Rounds that compare messages with each other before they decode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .._base.arrays import Array, Bools, Ints
from ..errors import UnverifiedError
from ..kernels import Status
from .round import Round
from .scheme import Coded
from .trust import Watch
from .verify import Finding, Inspector, liars_of


class VerifiedRound(Round):
    """A round that looks for messages that are finite but wrong.

    They are wrong because memory fails, a worker is a round behind or uses the wrong partition, or
    workers lie. The round keeps one random projection of each message, and waits until the code's
    parity checks have compared all messages that the gradient is decoded from with others. If
    messages contradict each other, it waits for more until they tell which workers are corrupt. It
    drops the messages of these workers and takes no more of them. If the gradient cannot be
    `verified`, `gradient` and `best` raise.

    If any `threshold` messages determine all others, as many spare messages as liars show that
    workers lie, and twice as many identify them. `fastgc.coding.verify` says how large a corruption
    must be to be found, and what is proven and tested for liars that collude.

    It is ready when what it would decode is `verified`, or when no more messages can come.

    Parameters
    ----------
    code, p, dtype, message_dtype, tracker, first_worker, partial_dtype
        As in `Round`.
    verify : bool or int
        Look for corrupt messages of at most so many workers, up to 16; True means 1. Workers that
        hold the same partition must then compute the same gradient of it, up to rounding.

    Raises
    ------
    ValueError, TypeError
        As `Round`; also if even the messages of all workers could not show that so many lie.
    """

    verifies = True

    def __init__(
        self,
        code: Coded,
        p: int,
        dtype: DTypeLike = np.float64,
        message_dtype: DTypeLike | None = None,
        tracker: Watch | None = None,
        *,
        verify: bool | int = True,
        first_worker: int = 0,
        partial_dtype: DTypeLike | None = None,
    ) -> None:
        self._liars = max(1, liars_of(verify))
        types = dtype, message_dtype, tracker
        super().__init__(code, p, *types, first_worker=first_worker, partial_dtype=partial_dtype)

    def _prepare(self) -> None:
        self._directly, self._plain = None, False
        self._inspector = Inspector(self.scheme, self._sent, self._liars)
        self._inspector.require_enough()

    def reset(self) -> None:
        """Forget all messages."""
        super().reset()
        self._inspector.reset()
        self._finding: Finding | None = None  # about the messages so far; None: not looked at
        self._look_again = 0  # after failed checks: not before so many messages came
        self._corrupt: list[int] = []

    @property
    def corrupt(self) -> list[int]:
        """Workers whose messages this round found to be corrupt, and dropped."""
        return self._corrupt

    @property
    def verified(self) -> bool:  # type: ignore[override]
        """Whether every message that the gradient is decoded from passed a parity check.

        All checks of this round must hold, and each message that matters must be in a check that
        would find a different message of the same size in its place. A message does not matter if
        its coefficient is 0, or so small that a different one would change the gradient by at most
        ten times its rounding error. False if messages do not suffice, or if `trust` is infinite.
        `gradient` raises if it is False.
        """
        if not self._decodable or not self._compared():
            return False
        vector = self._vector()
        if self._inspector.resolves(vector, self._arrivals.squares[: len(vector)]):
            return True
        gradient = self._combine(vector, self.form.output(None))
        return math.isfinite(self._trust(gradient, vector).relative_error)

    def wants(self, worker: int) -> bool:
        """Whether messages of this worker are still of use: it is not known to be corrupt."""
        return worker not in self._corrupt

    def require(self, messages: Ints) -> None:
        """As in `Round`; messages of corrupt workers do not count."""
        super().require(np.setdiff1d(messages, self.scheme.messages.of(self._corrupt)))

    def _took(self, number: int, reals: Array, status: int) -> bool:
        at, arrivals = self._rows.count, self._arrivals
        self._inspector.add(reals, float(arrivals.squares[at]), float(arrivals.energies[at]))
        self._finding = None
        self._ready = False
        return super()._took(number, reals, status)

    def _enough(self) -> bool:
        return self._settled() and super()._enough()

    @property
    def _complete(self) -> bool:
        dropped = sum(self.scheme.messages.counts[worker] for worker in self._corrupt)
        return self._arrivals.count + dropped == self.scheme.messages.count

    def _vector(self, method: str = "auto") -> Array:
        new = self._filled != method
        vector = super()._vector(method)
        return self._inspector.heed(self.survivors, vector) if new else vector

    def _inspect(self) -> Finding:
        """What parity says of the messages left, after dropping those that it proves wrong."""
        while self._finding is None:
            finding = self._inspector.inspect(self.survivors)
            if finding.corrupt:
                self._drop(finding.corrupt)
            else:
                self._conclude(finding)
        return self._finding

    def _conclude(self, finding: Finding) -> None:
        """Keep what parity says, until enough messages come that may change it."""
        self._finding = finding
        self._look_again = 0 if finding.holds else self._rows.count + finding.more

    def _compared(self) -> bool:
        """Whether all messages that the gradient is decoded from were compared, and agree."""
        finding = self._inspect()
        return self._decodable and finding.holds and self._covers(self._used())

    def _covers(self, used: Bools) -> bool:
        """Whether the checks would have seen lies in these messages."""
        return bool(used.any() and self._inspect().covered[used].all())

    def _settled(self) -> bool:
        """Whether further messages could say no more about what is decoded now."""
        if self._arrivals.count < self._look_again and not self._complete:
            return False
        return self._compared() or (self._decodable and self._complete)

    def _used(self) -> Bools:
        """For each message so far, whether the gradient depends on it by more than rounding."""
        try:
            vector = self._vector()
        except OverflowError:  # the gradient would be useless
            return np.zeros(self._rows.count, dtype=np.bool_)
        return self._inspector.matter(self.survivors, vector)

    def _drop(self, workers: Sequence[int]) -> None:
        """Drop all messages of these workers."""
        numbers = self.survivors
        kept = np.flatnonzero(~np.isin(numbers, self.scheme.messages.of(workers))).tolist()
        self._decodable = self._arrivals.keep(kept) == Status.OK
        if self._tally is not None:
            self._tally.reset()
            for number in numbers[kept].tolist():
                self._decodable = self._tally.add(number) or self._decodable
        self._filled = ""
        self._inspector.keep(kept)
        self._inspector.expect(max(1, self._inspector.liars - len(workers)))
        self._corrupt += workers

    def _require_sound(self) -> None:
        if not (finding := self._inspect()).holds:
            raise self._inspector.contradiction(finding, self._first_worker, self._complete)

    def _require_verified(self) -> None:
        if not self.verified:
            raise self._unverified(self._used())

    def _vouched(self, vector: Array) -> Array:
        vector = self._inspector.heed(self.survivors, vector.copy())
        used = self._inspector.matter(self.survivors, vector)
        if not self._covers(used):
            raise self._unverified(used)
        return vector

    def _unverified(self, used: Bools) -> UnverifiedError:
        unseen = self.survivors[used & ~self._inspect().covered]
        return self._inspector.unverified(self.survivors, unseen, self._first_worker)


def round_of(
    code: Coded, *types: Any, verify: bool | int, check_finite: bool, **named: Any
) -> Round:
    """Make the `Round`, or with `verify` the `VerifiedRound`, that these arguments describe."""
    if not liars_of(verify):
        return Round(code, *types, check_finite=check_finite, **named)
    if not check_finite:
        raise ValueError(
            f"verify={verify} reads each message as it comes: not with check_finite=False"
        )
    return VerifiedRound(code, *types, verify=verify, **named)
