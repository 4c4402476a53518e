"""Codes side by side: each has workers and partitions of its own."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._base.arrays import (
    Array,
    Ints,
    Output,
    check_index,
    check_integer,
    check_vector,
    check_workers,
)
from .._base.text import listed
from ..coding.code import Code, check_code
from ..coding.messages import Messages
from ..coding.precision import Precision
from ..coding.round import Gathering, Round
from ..coding.rules import Rule, side_by_side
from ..coding.scheme import Scheme, VectorFunction, empty_vector, whole_row
from ..coding.verified import round_of
from ..kernels.rows import DOUBLE
from ..numerics.parity import CHECKS, Parity
from .fractional_repetition import FractionalRepetition


class Grouped(Code):
    """Groups of workers, each with its own code over its own share of the partitions.

    The gradient is the sum of the groups' gradients, so decoding it needs all groups. A
    `group_round` decodes each group that takes part by itself, which adaptive methods need
    (`fastgc.optimizers.GCADA`).

    Parameters
    ----------
    codes : sequence of Code
        The code of each group. Workers and partitions are numbered group after group. Codes of the
        data, and complex codes that are not packed, cannot be used in groups.

    Attributes
    ----------
    codes : tuple of Code
    groups : int
        Number of groups, G.

    Raises
    ------
    TypeError, ValueError
        If `codes` is empty, or holds anything that cannot be used in groups.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.codes.Grouped([fastgc.BinaryCode(4, 2, stragglers=1)] * 3)
    >>> code.n, code.k, code.load, code.stragglers
    (12, 6, 1, 1)
    """

    scheme: GroupedScheme

    def __init__(self, codes: Sequence[Code]) -> None:
        if not isinstance(codes, Sequence):
            raise TypeError(f"codes must be a sequence of codes, one a group, not {codes!r}")
        self.codes = tuple(codes)
        if not self.codes:
            raise ValueError("codes must hold a code for each group, but is empty")
        for g, code in enumerate(self.codes):
            check_code(code, f"codes[{g}]")
            if code.scheme.data.coded or (code.scheme.is_complex and not code.scheme.packed):
                raise ValueError(
                    f"codes[{g}], {code!r}, cannot be used in a group: its messages are not "
                    "combinations of real gradients, or are expanded to complex numbers"
                )
        self.groups = len(self.codes)
        super().__init__(GroupedScheme([code.scheme for code in self.codes]))

    @classmethod
    def repetition(cls, n: int, groups: int, k: int | None = None) -> Grouped:
        """Groups of n / G workers; each worker holds all partitions of its group.

        These are the groups of G-CADA (Zhu et al., section IV). With as many groups as workers,
        they are the workers of CADA.

        Parameters
        ----------
        n, groups : int
            `groups` divides `n`.
        k : int, optional
            Partitions, a multiple of `groups`. Default: one for each group.

        Raises
        ------
        TypeError, ValueError
            If the numbers are not positive integers, or do not divide each other.
        """
        n, groups = check_integer("n", n), check_integer("groups", groups)
        k = groups if k is None else check_integer("k", k)
        if not 1 <= groups <= min(n, k) or n % groups or k % groups:
            raise ValueError(
                f"groups must divide the n={n} workers and the k={k} partitions, not be {groups}"
            )
        size = n // groups
        return cls([FractionalRepetition(size, k // groups, stragglers=size - 1)] * groups)

    def members(self, group: int) -> range:
        """Workers of a group."""
        group, first = check_index("group", group, self.groups), self.scheme.first_worker
        return range(first[group], first[group + 1])

    def partitions_of(self, group: int) -> range:
        """Partitions of a group."""
        group, first = check_index("group", group, self.groups), self.scheme.first_partition
        return range(first[group], first[group + 1])

    def group_of(self, worker: int) -> int:
        """Group of a worker."""
        return bisect_right(self.scheme.first_worker, check_index("worker", worker, self.n)) - 1

    def group_round(
        self,
        p: int,
        dtype: DTypeLike = np.float64,
        message_dtype: DTypeLike | None = None,
        *,
        verify: bool | int = False,
        limit: float | None = None,
        partial_dtype: DTypeLike | None = None,
    ) -> GroupedRound:
        """A round that decodes some of the groups, each by itself; parameters as in `round`."""
        named: Any = {"verify": verify, "limit": limit, "partial_dtype": partial_dtype}
        return GroupedRound(self, p, dtype, message_dtype, **named)

    def __repr__(self) -> str:
        return repr(self.scheme)


class _Precision(Precision):
    """What the groups' schemes know."""

    scheme: GroupedScheme

    def __init__(self, scheme: GroupedScheme) -> None:
        super().__init__(scheme)
        every = scheme.schemes
        self.unbiased = all(each.exact or each.precision.unbiased for each in every)

    def left_out(self, survivors: Ints, vector: Array) -> float:
        squares = 0.0
        for scheme, came, at in self.scheme._parts(survivors):
            mine = vector[at] if scheme.is_complex else vector[at].real
            squares += scheme.k * scheme.precision.left_out(came, mine) ** 2
        return math.sqrt(squares / self.scheme.k)

    @property
    def message_roundings(self) -> float:
        return max(scheme.precision.message_roundings for scheme in self.scheme.schemes)


class GroupedScheme(Scheme):
    """The scheme of `Grouped`."""

    precision = cached_property(_Precision)

    def __init__(self, schemes: Sequence[Scheme]) -> None:
        self.schemes, self.groups = schemes, len(schemes)
        self.first_worker = [0, *accumulate(scheme.n for scheme in schemes)]
        self.first_partition = [0, *accumulate(scheme.k for scheme in schemes)]
        self.n, self.k = self.first_worker[-1], self.first_partition[-1]
        self.load = max(scheme.load for scheme in schemes)
        tolerated = [scheme.stragglers for scheme in schemes]
        known = [s for s in tolerated if s is not None]
        self.stragglers = min(known) if len(known) == len(tolerated) else None
        self.exact = all(scheme.exact for scheme in schemes)
        self.is_complex = any(scheme.is_complex for scheme in schemes)

    def __repr__(self) -> str:
        names = [repr(scheme) for scheme in self.schemes]
        if len(set(names)) == 1:
            return f"Grouped([{names[0]}] * {self.groups})"
        return f"Grouped([{', '.join(names)}])"

    def row(self, worker: int) -> tuple[Ints, Array]:
        g = bisect_right(self.first_worker, worker) - 1
        held, values = whole_row(self.schemes[g], worker - self.first_worker[g])
        # Coefficients of one kind for all groups: kernels of packed messages take complex ones.
        return held + self.first_partition[g], values + 0j if self.is_complex else values

    @property
    def loads(self) -> Ints:
        return np.concatenate([scheme.loads for scheme in self.schemes])

    @cached_property
    def messages(self) -> Messages:
        parts = [scheme.messages for scheme in self.schemes]
        counts = list(chain.from_iterable(each.counts for each in parts))
        return Messages(counts, np.concatenate([each.together for each in parts]))

    @cached_property
    def cuts(self) -> Ints:
        """The first message of each group; at the end, the number of all messages."""
        return np.cumsum([0, *(scheme.messages.count for scheme in self.schemes)])

    @property
    def threshold(self) -> int | None:
        # As many messages may be missing as the group that tolerates the fewest can miss.
        enough = [(scheme.messages.count, scheme.threshold) for scheme in self.schemes]
        spare = [count - least for count, least in enough if least is not None]
        return None if len(spare) < self.groups else self.messages.count - min(spare)

    @cached_property
    def rule(self) -> Rule:
        return side_by_side([scheme.rule for scheme in self.schemes], self.cuts.tolist())

    @property
    def approximate(self) -> bool:
        return any(scheme.approximate for scheme in self.schemes)

    def _parts(self, survivors: Ints) -> Iterator[tuple[Scheme, Ints, Ints]]:
        """Yield each group's scheme, its survivors, and their positions among all survivors."""
        group = np.searchsorted(self.cuts, survivors, side="right") - 1
        for g, scheme in enumerate(self.schemes):
            at = np.flatnonzero(group == g)
            yield scheme, survivors[at] - self.cuts[g], at

    def bind_vector(self, survivors: Ints, vector: Array, unit: float = DOUBLE) -> VectorFunction:
        def compute(came: Ints) -> Array:
            if self.rule.missing(came):
                self.raise_too_few(came)
            found = empty_vector(self, came.size)
            for scheme, theirs, at in self._parts(came):
                found[at] = scheme.vector(theirs, unit)
            return found

        return self.by_formula(compute, survivors, vector)

    def parity(self, survivors: Ints, most: int = CHECKS) -> Parity:
        parts = self._parts(survivors)
        return Parity.beside((scheme.parity(came, most), at) for scheme, came, at in parts)

    def rings(self) -> list[Ints]:
        return [
            ring + first
            for scheme, first in zip(self.schemes, self.first_worker, strict=False)
            for ring in scheme.rings()
        ]


class GroupedRound(Gathering):
    """One iteration of some groups: messages in, a gradient of each group out.

    It keeps references to the messages, not copies, as `Round` does. It does not use messages that
    come after their group's round is `ready`.

    Parameters
    ----------
    code : Grouped
    p : int
        The gradient dimension.
    dtype, message_dtype, partial_dtype : numpy dtype
        As in `Round`.
    verify : bool or int, default False
    limit : float, optional
        As in `Code.round`, in each group.
    """

    code: Grouped
    linger = None

    def __init__(
        self,
        code: Grouped,
        p: int,
        dtype: DTypeLike,
        message_dtype: DTypeLike | None = None,
        *,
        verify: bool | int = False,
        limit: float | None = None,
        partial_dtype: DTypeLike | None = None,
    ) -> None:
        self.code, self.scheme = code, code.scheme
        self.form = self.scheme.format(p, dtype, message_dtype)
        named: Any = {"verify": verify, "limit": limit, "partial_dtype": partial_dtype}
        self._rounds = [
            round_of(inner, p, dtype, message_dtype, first_worker=first, **named)
            for inner, first in zip(code.codes, self.scheme.first_worker, strict=False)
        ]
        self.reset([])

    def reset(self, groups: Iterable[int]) -> None:
        """Forget all messages; these groups take part from now on.

        Raises
        ------
        TypeError, ValueError
            If a group does not exist or is named twice; nothing has changed in that case.
        """
        chosen = [check_index("group", g, self.scheme.groups) for g in groups]
        if len(set(chosen)) < len(chosen):
            raise ValueError(f"groups must be named once each, not {chosen}")
        for inner in self._rounds:
            inner.reset()
        self._missing = set(chosen)
        self._received: list[int] = []
        self.groups = chosen

    def __repr__(self) -> str:
        groups = listed(self.groups) if self.groups else "none"
        missing = f"{len(self._missing)} of them lack messages" if self._missing else "all ready"
        return f"<GroupedRound of {self.scheme!r}, groups that take part: {groups}; {missing}>"

    @property
    def workers(self) -> list[int]:
        """The workers of the groups that take part."""
        return [worker for g in self.groups for worker in self.code.members(g)]

    @property
    def ready(self) -> bool:
        """Whether every group that takes part should be decoded now."""
        return not self._missing

    @property
    def decodable(self) -> bool:
        """Whether every group that takes part can be decoded."""
        return all(self._rounds[g].decodable for g in self.groups)

    @property
    def corrupt(self) -> list[int]:
        """Workers whose messages were found to be corrupt in this round, and dropped."""
        return [
            self.scheme.first_worker[g] + i for g in self.groups for i in self._rounds[g].corrupt
        ]

    @property
    def verifies(self) -> bool:  # type: ignore[override]
        """Whether any group's round verifies."""
        return any(rnd.verifies for rnd in self._rounds)

    @property
    def verified(self) -> bool:  # type: ignore[override]
        """Whether every group that takes part is verified, as `Round.verified`."""
        return all(self._rounds[g].verified for g in self.groups)

    def resolution(self) -> float:
        """The largest of all groups that take part, as `Round.resolution`."""
        return max((self._rounds[g].resolution() for g in self.groups), default=math.nan)

    @property
    def survivors(self) -> Ints:
        """Numbers of the messages used, in order of arrival."""
        received = np.array(self._received, dtype=np.int64)
        return received[~np.isin(received, self.scheme.messages.of(self.corrupt))]

    def wants(self, worker: int) -> bool:
        """Whether messages of this worker are still of use."""
        g = self.code.group_of(worker)
        return g in self._missing and self._rounds[g].wants(worker - self.scheme.first_worker[g])

    def lapse(self, why: str) -> None:
        """As in `Round`."""
        for inner in self._rounds:
            inner.lapse(why)

    def receive(
        self, worker: int, message: ArrayLike, index: int | None = None, *, energy: float = math.nan
    ) -> bool:
        """Take a worker's message; return whether the round is `ready`.

        Parameters and errors are as in `Round.receive`. ValueError also if the group takes no part.
        """
        g = self.code.group_of(worker)
        if g not in self.groups:
            raise ValueError(
                f"worker {worker} is of group {g}, which takes no part: {self.groups} do"
            )
        if g in self._missing:
            if index is not None:
                self.scheme.messages.number(worker, index)
            inner, form = self._rounds[g], self.form
            member = worker - self.scheme.first_worker[g]
            sent = inner._next_of(member) if index is None else index
            row = check_vector(
                "message of worker", message, form.message_dtype, form.message_size, number=worker
            )
            # In a complex code, messages of real groups are padded for odd p, too: drop the
            # padding.
            if row.size > inner.message_size:
                row = row[:-1]
            if inner.receive(member, row, index, energy=energy):
                self._missing.discard(g)
            self._received.append(self.scheme.messages.first[worker] + sent)
        return self.ready

    def gradient(self, group: int, out: Output | None = None) -> Array:
        """Decode the sum of a group's partial gradients, as `Round.gradient` does."""
        return self.of(group).gradient(out)

    def residual(self) -> float:
        """The residual over all groups that take part, as `Round.residual`."""
        parts = [(self.scheme.schemes[g].k, self._rounds[g].residual()) for g in self.groups]
        whole = sum(k for k, _ in parts)
        return math.sqrt(sum(k * part**2 for k, part in parts) / whole) if whole else 0.0

    def of(self, group: int) -> Round:
        """The round of one group, for `Round.trust`. Its workers and messages count from 0."""
        return self._rounds[check_index("group", group, self.scheme.groups)]

    def require(self, messages: Ints) -> None:
        """Raise NotDecodableError unless these messages would make the round ready."""
        scheme = self.scheme
        messages = check_workers("messages", messages, scheme.messages.count)
        for g in self.groups:
            mine = messages[(messages >= scheme.cuts[g]) & (messages < scheme.cuts[g + 1])]
            self._rounds[g].require(mine - scheme.cuts[g])
