"""Rounds that compare messages with each other before they decode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._base.arrays import Array, Ints, as_real, check_index, check_real
from ..errors import NonFiniteMessageError
from ..kernels.rows import Projecting
from .round import Round
from .rules import Blocks, Cells, Tiling, spare_tally
from .scheme import Coded, Decoder
from .trust import Trust, Watch
from .verify import DUST, Finding, Inspector, Unseen, default_limit, liars_of

# Most sets of workers that are set aside in turn, for a gradient on which all agree.
SETS_ASIDE = 4

# A round that is not verified looks again once its messages are more by this part.
MORE = 1 / 64


class Answer(NamedTuple):
    """What a round would decode: from which messages, how, and what lies could be in it."""

    at: Ints  # positions of the messages, in order of arrival
    vector: Array
    unseen: Unseen
    fine: bool  # whether it is verified


class VerifiedRound(Round):
    """A round that looks for messages that are finite but wrong.

    They are wrong because memory fails, a worker is a round behind or uses the wrong partition, or
    workers lie. The round keeps random projections of each message, and compares messages by the
    code's parity checks. What at most `verify` liars can have changed unseen in the gradient is one
    number, the `resolution`. The round waits until it is at most `limit`; then it is `verified`.

    If messages contradict each other, the round decodes what they agree on. It drops the messages
    of workers that must have lied, whoever else has (`corrupt`). If it is not clear who has, it
    sets aside some of those that may have (`suspects`), as long as all choices lead to the same
    gradient. If no more messages can come and the gradient is not verified, `gradient` and `best`
    raise. `fastgc.coding.verify` has the mathematics.

    `receive` reads a message at once. It raises NonFiniteMessageError, and the round is unchanged,
    if the message holds NaN or Inf, or its energy is negative.

    Parameters
    ----------
    code, p, dtype, message_dtype, tracker, first_worker, partial_dtype
        As in `Round`.
    verify : bool or int
        Look for corrupt messages of at most so many workers, up to 16; True means 1. Workers that
        hold the same partition must then compute the same gradient of it, up to rounding.
    limit : float, optional
        Largest `resolution` of a verified gradient. Default: the root of the messages' precision,
        as 1.5e-8 in float64 and 3.5e-4 in float32, or 200 times the rounding errors of the gradient
        if these are larger, as where partial gradients nearly cancel.

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
        limit: float | None = None,
        first_worker: int = 0,
        partial_dtype: DTypeLike | None = None,
    ) -> None:
        self._liars = max(1, liars_of(verify))
        self._given = None if limit is None else check_real("limit", limit, infinite=True)
        types = dtype, message_dtype, tracker
        super().__init__(code, p, *types, first_worker=first_worker, partial_dtype=partial_dtype)
        self._inspector.attach(self._arrivals)

    def _prepare(self) -> Projecting:
        self._inspector = Inspector(self.scheme, self._sent, self._liars)
        self._inspector.require_enough()
        self._choose = Decoder(self.scheme, self.form.unit)
        self._all_spares = spare_tally(self.scheme.rule, self._liars)
        alone = max(self.scheme.messages.counts) == 1
        self._known = alone and isinstance(self.scheme.rule, Blocks | Cells | Tiling)
        self._corrupt: list[int] = []
        return self._inspector.projection.numbers

    def reset(self) -> None:
        """Forget all messages."""
        self._spares, self._spare = self._all_spares, self._all_spares is None
        if self._spares is not None:
            self._spares.reset()
        super().reset()
        self._inspector.reset()
        self._finding: Finding | None = None  # about the messages so far; None: not looked at
        self._answer: Answer | None = None  # the last that was found
        self._look_again = 0  # not before so many messages came
        self._corrupt = []

    @property
    def corrupt(self) -> list[int]:
        """Workers that must have lied, whose messages are dropped.

        None if a message came without its energy: then rounding errors may be larger than assumed,
        and those workers are `suspects`.
        """
        self._look()
        return [] if self._untold else self._corrupt

    @property
    def _untold(self) -> bool:
        """Whether a message came without its energy."""
        return bool(np.isnan(self._arrivals.energies[: self._rows.count]).any())

    @property
    def suspects(self) -> list[int]:
        """Workers that may have lied beside those that must: each in some explanation, none in all.

        An explanation is a set of at most `verify` workers without whose messages the others agree.
        If nobody knows what explains the messages, these are all workers that sent one.
        """
        groups = self._look().suspects
        everyone = np.unique(self.scheme.messages.workers[self._left]).tolist()
        dropped = self._corrupt if self._untold else []
        return sorted({worker for group in groups for worker in (group or everyone)}.union(dropped))

    def resolution(self) -> float:
        """The largest relative error that at most `verify` liars can have caused unseen.

        Larger ones are seen with a probability of 1 - 1e-6. It follows from how precise the
        gradient is without the messages of any `verify` workers, and from how nearly the messages
        agree. Inf: any error; the messages do not suffice, or leave open what the gradient is.
        """
        self._look()
        return self._answer.unseen.error if self._answer is not None else math.inf

    @property
    def verified(self) -> bool:  # type: ignore[override]
        """Whether the `resolution` is at most the limit. `gradient` raises if it is not."""
        self._look()
        return self._answer is not None and self._answer.fine

    def _limit(self, unseen: Unseen) -> float:
        return default_limit(self.form, unseen.rounding) if self._given is None else self._given

    def _fine(self, unseen: Unseen) -> bool:
        """Whether an answer is verified in which so much could be."""
        return unseen.error < math.inf and unseen.error <= self._limit(unseen)

    def wants(self, worker: int) -> bool:
        """Whether messages of this worker are still of use: it is not known to be corrupt."""
        return worker not in self._corrupt

    def require(self, messages: Ints) -> None:
        """As in `Round`; messages of corrupt workers do not count."""
        super().require(np.setdiff1d(messages, self.scheme.messages.of(self._corrupt)))

    def trust(self) -> Trust:
        """As `Round.trust`, with the `resolution`."""
        return super().trust()._replace(resolution=self.resolution())

    def _receive(self, worker: int, message: ArrayLike, index: int | None, energy: float) -> bool:
        if type(energy) is not float:
            energy = as_real("energy", energy)
        if energy < 0:
            named = self._first_worker + check_index("worker", worker, self.scheme.n)
            raise NonFiniteMessageError(
                f"the energy of worker {named}'s message is {energy}, and must not be negative: "
                "rnd.receive(worker, message, energy=encoder.energy)",
                named,
            )
        return super()._receive(worker, message, index, energy)

    def _took(self, message: Any) -> bool:
        self._keep(message)
        self._finding, self._ready = None, False
        number = self._decoder.survivors.item(len(self._rows.arrays) - 1)
        if self._spares is not None:
            self._spare = self._spares.add(number)
        if not self._decodable and self._tally.add(number):
            self._decodable = True
        if self._decodable:
            self._ready = self._settled() and super()._enough()
        return self._ready

    @property
    def _numbers(self) -> Ints:
        """The numbers of all messages, dropped or not, in order of arrival."""
        return self._decoder.survivors[: self._rows.count]

    @property
    def _kept(self) -> Ints:
        """The positions of messages that were not dropped."""
        if not self._corrupt:
            return np.arange(self._rows.count)
        dropped = self.scheme.messages.of(self._corrupt)
        return np.flatnonzero(~np.isin(self._numbers, dropped))

    @property
    def _left(self) -> Ints:
        """The numbers of those messages."""
        return self._numbers[self._kept] if self._corrupt else self._numbers

    @property
    def _complete(self) -> bool:
        if not self._corrupt:
            return super()._complete
        dropped = sum(self.scheme.messages.counts[worker] for worker in self._corrupt)
        return self._kept.size + dropped == self.scheme.messages.count

    def _places(self) -> Ints:
        self._look()
        return self._kept if self._answer is None else self._answer.at

    def _settled(self) -> bool:
        """Whether further messages could say no more about what is decoded now."""
        if self._answer is not None and self._answer.fine:  # what comes later cannot change that
            return True
        early = not self._spare or self._rows.count < self._look_again
        complete = self._complete
        if early and not complete:
            return False
        if not (self._known or complete or self.scheme.approximate):
            liars, spare = self._inspector.liars, self._inspector.withstands(self._left)
            if 0 <= spare < liars:
                self._look_again = self._arrivals.count + liars - spare
                return False
        finding, came = self._look(), self._arrivals.count
        if self.verified:
            return True
        unknown = finding.explanations(self._inspector.liars) is None
        self._look_again = came + max(1 + int(MORE * came), finding.more if unknown else 1)
        return self._decodable and complete

    def _look(self) -> Finding:
        """What parity says of the messages left, after dropping those that it proves wrong."""
        while self._finding is None:
            kept = self._kept
            numbers = self._numbers[kept]
            finding = self._inspector.inspect(numbers, kept)
            if finding.corrupt:
                self._drop(finding.corrupt)
                continue
            self._finding = finding
            found = self._resolved(finding, kept, numbers)
            if self._answer is None or not self._answer.fine or (found is not None and found.fine):
                self._answer = found
        return self._finding

    def _resolved(self, finding: Finding, kept: Ints, numbers: Ints) -> Answer | None:
        """Return the best way to decode, by any choice of who lied; None if there is none.

        `kept` are the positions of the messages inspected, `numbers` theirs.
        """
        sets = finding.explanations(self._inspector.liars)
        if not sets or not self._decodable:
            return None
        best = None
        for aside in sets[:SETS_ASIDE]:
            at = np.arange(kept.size)
            if aside:
                at = np.flatnonzero(~np.isin(self.scheme.messages.workers[numbers], aside))
                if self.scheme.rule.missing(numbers[at]):
                    continue
            if (aside or self._corrupt or self._complete) and self._inspector.rough.any():
                fine = at[~self._inspector.rough[at]]
                at = at if self.scheme.rule.missing(numbers[fine]) else fine
            try:
                vector = self._choose(numbers[at]).copy()
            except OverflowError:  # the gradient would be useless
                continue
            for _ in range(2):
                full = vector
                if at.size < kept.size:
                    full = np.zeros(kept.size, dtype=vector.dtype)
                    full[at] = vector
                unseen = self._inspector.unseen(full, sets)
                if best is None or unseen.error < best.unseen.error:
                    best = Answer(kept[at], vector, unseen, self._fine(unseen))
                if best.fine:
                    return best
                if not unseen.dusty:
                    break
                vector = self._without_dust(vector, numbers[at])
        return best

    def _without_dust(self, vector: Array, numbers: Ints) -> Array:
        """Return a vector without coefficients that rounding left where there should be none.

        Else 1e-17 times a lie may be more than the gradient.
        """
        sizes = np.abs(vector) ** 2 * self.scheme.precision.row_norms[numbers]
        kept = sizes > DUST**2 * sizes.max(initial=0.0)
        return vector if (kept | (vector == 0)).all() else np.where(kept, vector, 0)

    def _vector(self, method: str = "auto") -> Array:
        self._look()
        if self._answer is not None and method == "auto":
            return self._answer.vector
        return self._choose(self.survivors, method)

    def _fill(self, method: str) -> int:
        f = self._rows.count
        full = self._decoder.vector[:f]
        full[:] = 0
        full[self._places()] = self._vector(method)
        return f

    def _combine(self, vector: Array, out: Any, method: str = "") -> Any:
        full = np.zeros(self._rows.count, dtype=vector.dtype)
        full[self._places()] = vector
        return super()._combine(full, out, method)

    def _drop(self, workers: Sequence[int]) -> None:
        """Drop all messages of these workers."""
        self._corrupt = self._corrupt + list(workers)
        self._inspector.liars = max(0, self._inspector.liars - len(workers))
        self._look_again = 0
        self._tally.reset()
        kept = self._left.tolist()
        came = [self._tally.add(number) for number in kept]
        self._decodable = bool(came and came[-1])
        self._spares = spare_tally(self.scheme.rule, self._inspector.liars)
        if self._spares is not None:
            came = [self._spares.add(number) for number in kept]
            self._spare = bool(came and came[-1])

    def _require_verified(self) -> None:
        if self.decodable and not self.verified:
            self._refuse(self._answer.unseen if self._answer is not None else None)

    def _vouched(self, vector: Array) -> Array:
        finding, vector = self._look(), self._without_dust(vector, self.survivors)
        if self.verified:
            return vector
        if not finding.holds:
            self._refuse(None)
        unseen = self._inspector.unseen(vector, [()])
        if not unseen.error <= self._limit(unseen):
            self._refuse(unseen)
        return vector

    def _refuse(self, unseen: Unseen | None) -> NoReturn:
        finding, inspector = self._look(), self._inspector
        unseen = Unseen(math.inf, apart=math.inf) if unseen is None else unseen
        limit = self._limit(unseen)
        if not finding.holds and unseen.apart > limit:
            raise inspector.contradiction(finding, self._first_worker, self._complete)
        raise inspector.unverified(self._left, unseen.error, limit)


def round_of(
    code: Coded,
    *types: Any,
    verify: bool | int,
    limit: float | None = None,
    **named: Any,
) -> Round:
    """Make the `Round`, or with `verify` the `VerifiedRound`, that these arguments describe."""
    if not liars_of(verify):
        return Round(code, *types, **named)
    return VerifiedRound(code, *types, verify=verify, limit=limit, **named)
