"""Audits: a rank whose gradients are wrong is found by others that compute the same ones.

A device may err without an error: it computes some number wrongly, each time. It cannot find that
itself, for a replay on it gives the same. So in every m-th step each rank computes, besides the
share of the batch that it owns, the share of another owner, and both tell a few random projections
of what they have found. This takes 1/m of the time that computing takes, and a few passes over the
gradients. All shares are audited at once, since ranks that waited for one audit would wait for all
of them.

What is compared is the gradient that is going to be summed up, as the loop computed it, so that no
way of computing it is left unaudited. The auditor calls the loop's `recompute`, with the same
samples in the same order.

- Who audits whom: ranks form a ring in random order, drawn anew in each audit from a secret, to
  which each rank adds a random number when its gradient is there already. From it come the random
  signs of the projections, too. All ranks know it by then: this is against machines that err, not
  against somebody who has a rank in his hands.
- What differs: gradients whose difference, estimated by the projections, is above a limit relative
  to their norm, `SAME`, or `SAME_HALF` where they were computed in bfloat16 or float16. What is not
  finite agrees with what is not finite.
- Who errs: where two differ a third rank computes the same share in the same step. The one of three
  that is away from both others, `_CLEAR` times as far as these are from each other, is outvoted. If
  none is, what differs is rounding, or the computation is not reproducible, as with dropout, and
  nobody is to blame.
- What follows: an outvoted rank's share is computed by one of the others, so that the step is
  right. The next `_AGAIN` steps are audited, too, and who is outvoted again is named and left out.
  So a machine that erred once, or a ReLU that the last bit decided, costs nobody a rank.
- Overflow: with a `torch.amp.GradScaler` one of two may overflow by the last bit. That tells
  nothing: the scaler skips the step. The next one is audited, too, and the third such one in a row
  counts.
- The sum: its projections are the sums of those that ranks told. If they are not, a machine or a
  wire has erred in between, and ranks sum up again.
- NaN, and what is very large, would spoil the parameters before the next audit: a step in which the
  ranks' norms are `_RISE` times those of the step before is audited before anybody uses it. Ranks
  add up their norms in the message, so that all have the same bits of it.
- Parameters: their fingerprints are compared in the same steps. They are the same to the last bit.

With proactive redundancy nothing more is computed: ranks with equal rows, copies, have the same
gradient, and with the same arithmetic the same bits of it.

- Fingerprints of all gradients are in the message that is summed up, so that they cost no message
  of their own. Where all copies have the same, the step is done.
- Where some differ, projections tell by how much, and parameters are compared: those of a minority
  would explain it. Copies that had the same bits before agree up to `ROUNDED`, for some kernels
  add up in any order; others, whose machines may round differently, up to `SAME` or `SAME_HALF`.
- Who differs from most of its copies, clearly (`_CLEAR`), is outvoted: the step is summed up again
  without it. What follows is as above. Without a majority nobody knows whose copy is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from .. import kernels
from ..codes import Code
from .membership import View
from .sampler import real_row

__all__ = [
    "ROUNDED",
    "SAME",
    "SAME_HALF",
    "Audit",
    "Fingerprint",
    "Signs",
    "Sketch",
    "Verdict",
    "copies",
    "in_half",
    "majority",
    "odd_one",
]

# Relative difference of gradients that should be equal, and of such as were computed in bfloat16 or
# float16 (measured, in bfloat16: up to 0.02).
SAME, SAME_HALF = 1e-3, 0.1
ROUNDED = 1e-5  # of such as had the same bits before
_ADDED = 1e-4  # relative difference of a sum from what it should be
_PROJECTIONS = 8
_WIDTH = 3 + _PROJECTIONS  # numbers of a sketch
_CLEAR = 8.0
_AGAIN = 3  # steps that are audited after one in which a rank was outvoted
_RISE = 10.0
_COLUMNS = 4096
_SAMPLE = 1 << 15  # numbers of a tensor
_WORDS = 4096  # of 64 bits, that become one

Compute = Callable[[list[int]], tuple[torch.Tensor, bool]]


@torch.no_grad()
def in_half(gradients: Iterable[torch.Tensor | None]) -> bool:
    """Whether some of the gradients' numbers, one in 16, were computed in bfloat16 or float16.

    The last bits of a float32 are then 0, as they are of one in 256 otherwise; also of the sum of
    a few. Of a large tensor some numbers tell.
    """
    zero = there = 0
    for grad in gradients:
        if grad is not None and grad.dtype == torch.float32 and not grad.is_sparse:
            flat = grad.reshape(-1)
            some = flat[:: max(1, flat.numel() // _SAMPLE)]
            used = some[some != 0]
            if not used.numel():  # where few rows of an embedding are used
                used = flat[flat != 0]
            zero += int((used.view(torch.int32) & 0xFF == 0).sum())
            there += used.numel()
    return 16 * zero > there


class Fingerprint:
    """A number of 64 bits that differs where any bit of some vectors on the CPU does.

    Whatever two lists of vectors of the same lengths are, it is the same with probability 2^-30 at
    most, if they have less than 2^26 numbers, over random keys, which are drawn by the seed: every
    4096 words of 64 bits of a vector are hashed to one, and so are these, until one is left.
    """

    def __init__(self, seed: Sequence[int]) -> None:
        self._rng = np.random.default_rng(seed)
        self._keys = _keys(self._rng)
        self._found: list[NDArray[np.uint64]] = []

    def add(self, flat: torch.Tensor) -> None:
        """Hash one more vector, which is contiguous."""
        for _ in self.parts(flat, max(len(flat), 1)):
            pass

    def parts(self, flat: torch.Tensor, size: int) -> Iterator[slice]:
        """Hash one more vector, part by part: each after something else has read it.

        A part is in the caches then, from which hashing takes a third of the time. Their `size`, a
        multiple of 16384, changes nothing of the fingerprint.
        """
        aligned = flat if flat.data_ptr() % 8 == 0 else flat.clone()
        octets = aligned.view(torch.uint8).numpy()
        whole, width = len(octets) // 8, flat.element_size()
        words = octets[: 8 * whole].view(np.uint64)
        found = np.empty(-(-whole // _WORDS), dtype=np.uint64)
        for first in range(0, len(flat), size):
            yield slice(first, first + size)
            begin, end = first * width // 8, min((first + size) * width // 8, whole)
            _hash(words[begin:end], self._keys, found[begin // _WORDS : -(-end // _WORDS)])
        self._found.append(found)
        if 8 * whole < len(octets):
            last = np.zeros(8, dtype=np.uint8)
            last[: len(octets) - 8 * whole] = octets[8 * whole :]
            self._found.append(last.view(np.uint64))

    def value(self) -> int:
        """The fingerprint of all vectors so far."""
        words = np.concatenate([*self._found, np.zeros(1, dtype=np.uint64)])
        while len(words) > 1:
            found = np.empty(-(-len(words) // _WORDS), dtype=np.uint64)
            _hash(words, _keys(self._rng), found)
            words = found
        return int(words[0])


def _hash(words: NDArray[np.uint64], keys: NDArray[np.uint64], found: NDArray[np.uint64]) -> None:
    if len(words):
        kernels.unchecked.hash_words(words, keys, found)


def _keys(rng: np.random.Generator) -> NDArray[np.uint64]:
    return rng.integers(2**64 - 1, size=_WORDS, dtype=np.uint64, endpoint=True)


def copies(code: Code) -> list[list[int]]:
    """Ranks with equal rows, which have the same gradient.

    Raises
    ------
    ValueError
        If a rank has none that is equal.
    """
    of: dict[tuple[tuple[float, ...], ...], list[int]] = {}
    for rank in range(code.n):
        partitions, row = real_row(code, rank)
        of.setdefault((tuple(partitions.tolist()), tuple(row.tolist())), []).append(rank)
    found = list(of.values())
    alone = next((each[0] for each in found if len(each) < 2), None)
    if alone is not None:
        raise ValueError(
            f'audit= with redundancy="proactive" compares ranks with equal rows, and no other row '
            f"of {code!r} is that of rank {alone}: take FractionalRepetition, or BinaryCode with n "
            'a multiple of s + 1, or redundancy="reactive", which audits with any code'
        )
    return found


class Signs:
    """Random signs, and the projections of a vector on them.

    Each is the outer product of two vectors of signs: few are drawn, and a vector of p numbers is
    read once. The mean square of the projections is the vector's squared norm on average; of a
    vector with one number it is exactly that.

    Parameters
    ----------
    size : int
        Of the vectors.
    seed : int
    """

    def __init__(self, size: int, seed: int) -> None:
        self._columns = min(_COLUMNS, max(size, 1))
        generator = torch.Generator().manual_seed(seed)
        rows = -(-size // self._columns)
        self._left, self._right = (
            2 * torch.randint(2, (many, _PROJECTIONS), generator=generator).double() - 1
            for many in (rows, self._columns)
        )

    @torch.no_grad()
    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """The projections of a vector on the CPU, in float64."""
        rows = flat.numel() // self._columns
        whole = flat[: rows * self._columns].view(rows, self._columns)
        found = (whole @ self._right.to(flat.dtype)).double().mul_(self._left[:rows]).sum(0)
        if rows < len(self._left):
            rest = flat[rows * self._columns :]
            found += (rest @ self._right[: rest.numel()].to(flat.dtype)).double() * self._left[-1]
        return found


class Sketch(NamedTuple):
    """What a rank tells of a gradient.

    Attributes
    ----------
    finite, half : bool
        Whether its numbers are, and whether they were computed in half precision.
    norm : float
    projections : tuple of float
    """

    finite: bool
    half: bool
    norm: float
    projections: tuple[float, ...]

    @classmethod
    def of(cls, flat: torch.Tensor, half: bool, signs: Signs) -> Self:
        """The sketch of a vector on the CPU."""
        norm = float(torch.linalg.vector_norm(flat))
        if not math.isfinite(norm):  # squares may overflow
            norm = float(torch.linalg.vector_norm(flat, dtype=torch.float64))
        if not math.isfinite(norm):
            return cls(False, half, 0.0, (0.0,) * _PROJECTIONS)
        most = torch.finfo(torch.float32).max  # in which sums may overflow
        found = torch.nan_to_num(signs.of(flat), 0.0, most, -most)
        return cls(True, half, norm, tuple(found.tolist()))

    def row(self) -> list[float]:
        """As numbers that are summed up with zeros of others."""
        return [1.0 if self.finite else 2.0, float(self.half), self.norm, *self.projections]

    @classmethod
    def read(cls, row: Sequence[float]) -> Self:
        """The sketch of a `row`."""
        return cls(row[0] == 1.0, row[1] != 0.0, row[2], tuple(row[3:]))

    def distance(self, other: Self) -> float:
        """The norm of the difference, relative to the larger norm of both: an estimate."""
        if not (self.finite and other.finite):
            return 0.0 if self.finite == other.finite else math.inf
        difference = np.subtract(self.projections, other.projections)
        scale = max(self.norm, other.norm)
        return float(np.sqrt(np.mean((difference / scale) ** 2))) if scale else 0.0

    def differs(self, other: Self) -> bool:
        """Whether the difference is more than rounding."""
        return self.distance(other) > _limit(self, other)


def _limit(*sketches: Sketch) -> float:
    return SAME_HALF if any(each.half for each in sketches) else SAME


def odd_one(three: Sequence[Sketch]) -> int | None:
    """Which of three sketches of the same gradient is away from both others; None: none clearly."""
    limit = _limit(*three)
    for at in range(3):
        one, (a, b) = three[at], (three[at - 1], three[at - 2])
        away = min(one.distance(a), one.distance(b))
        if away > limit and _CLEAR * a.distance(b) <= away:
            return at
    return None


class Verdict(NamedTuple):
    """What came of an audit: the same on all ranks.

    Attributes
    ----------
    outvoted : tuple of int
        Ranks that differed from two others.
    named : tuple of int
        Those of them that were outvoted before: they are to be left out.
    instead : dict of int to int
        For each outvoted rank whose own share is wrong, the rank that computes it.
    undecided : tuple of int
        Ranks that differ, of which no majority agrees: two, where no third one was there.
    unlike : tuple of int
        Two ranks that differ as both do from a third one, or as others do.
    """

    outvoted: tuple[int, ...] = ()
    named: tuple[int, ...] = ()
    instead: dict[int, int] = {}  # noqa: RUF012
    undecided: tuple[int, ...] = ()
    unlike: tuple[int, ...] = ()


class Audit:
    """When ranks audit each other, and what that has shown. All ranks of a view know the same.

    Parameters
    ----------
    rank : int
    count : int
        Of ranks there may be.
    every : int
        Steps from one audit to the next.
    scaled : bool
        Whether gradients may overflow, by a `torch.amp.GradScaler`.
    groups : list of list of int
        Ranks with the same gradients, the `copies`, with proactive redundancy.
    """

    def __init__(
        self,
        rank: int,
        count: int,
        every: int,
        scaled: bool,
        groups: Sequence[Sequence[int]] = (),
    ) -> None:
        self._rank, self._count, self._every, self._scaled = rank, count, every, scaled
        self._groups = groups
        self.forget()

    def forget(self, secret: int = 0) -> None:
        """Members have changed: those that join know nothing of the audits before.

        Keys of fingerprints are drawn by the secret from now on.
        """
        self._again = self._overflows = 0
        self._secret, self._seen = secret, False  # seen: copies were compared before
        self._rounding: set[tuple[int, int]] = set()  # pairs that agreed, and not to the bit
        self._outvoted: set[int] = set()
        self._told: tuple[Signs, list[Sketch]] | None = None
        self._norms: float | None = None

    def due(self, step: int) -> bool:
        """Whether a step is to be audited."""
        return step % self._every == 0 or self._again > 0

    def rises(self, norms: float) -> bool:
        """Whether the sum of all ranks' norms says that this step is to be audited; it is kept."""
        if self._scaled and not math.isfinite(norms):
            return False  # the scaler skips it
        before, self._norms = self._norms, norms
        if before is None or not math.isfinite(before):
            return False
        return not norms <= _RISE * before

    def look(
        self,
        view: View,
        secret: int,
        shares: dict[int, list[int]],
        own: tuple[torch.Tensor, bool],
        compute: Compute,
    ) -> Verdict:
        """Audit all ranks of a view.

        Parameters
        ----------
        view : View
        secret : int
        shares : dict of int to list of int
            The partitions that each rank has computed in this step.
        own : tuple of (p,) Tensor and bool
            This rank's gradient, and whether it was computed in half precision.
        compute : callable
            ``compute(partitions)`` gives the same for others.
        """
        ring = np.random.default_rng(secret).permutation(view.ranks).tolist()
        auditor = dict(zip(ring[1:] + ring[:1], ring, strict=True))
        signs = Signs(own[0].numel(), secret)
        told = torch.zeros(2, self._count, _WIDTH, dtype=torch.float64)

        def tell(role: int, owner: int, found: tuple[torch.Tensor, bool]) -> None:
            told[role, owner] = told.new_tensor(Sketch.of(*found, signs).row())

        tell(0, self._rank, own)
        for owner, other in auditor.items():
            if other == self._rank:
                tell(1, owner, compute(shares[owner]))
        view.sum(told)
        mine, others = told.tolist()
        self._told = signs, [Sketch.read(mine[r]) for r in ring]
        pairs = {r: (Sketch.read(mine[r]), Sketch.read(others[r])) for r in ring}
        differing = [r for r in ring if self._tells(pairs[r]) and pairs[r][0].differs(pairs[r][1])]
        self._note_overflow(pairs.values())
        if not differing:
            return self.judge({}, {})
        if len(ring) < 3:
            return Verdict(undecided=tuple(sorted(ring)))
        arbiter = _arbiters(ring, auditor, differing)
        told.zero_()
        for owner, third in arbiter.items():
            if third == self._rank:
                tell(0, owner, compute(shares[owner]))
        view.sum(told)
        thirds = told[0].tolist()
        return self.judge(
            {r: (*pairs[r], Sketch.read(thirds[r])) for r in differing},
            {r: (r, auditor[r], arbiter[r]) for r in differing},
        )

    def adds_up(self, total: torch.Tensor) -> bool:
        """Whether the sum of gradients is that of what ranks told; True if that is not known."""
        if self._told is None:
            return True
        signs, each = self._told
        if not all(one.finite for one in each):
            return True
        found = Sketch.of(total, False, signs)
        truth = np.sum([one.projections for one in each], 0)
        error = np.abs(np.subtract(found.projections, truth)).max()
        return found.finite and bool(error <= _ADDED * sum(one.norm for one in each))

    def _tells(self, pair: tuple[Sketch, Sketch]) -> bool:
        """Whether a pair's difference counts, or is overflow that may be an accident."""
        return self._overflows >= _AGAIN - 1 or not (
            self._scaled and pair[0].finite != pair[1].finite
        )

    def _note_overflow(self, pairs: Iterable[tuple[Sketch, Sketch]]) -> None:
        if self._scaled and any(a.finite != b.finite for a, b in pairs):
            self._overflows += 1
            # One more than `judge` will take.
            self._again = max(self._again, 2)
        else:
            self._overflows = 0

    def judge(
        self,
        sketches: dict[int, tuple[Sketch, Sketch, Sketch]],
        by: dict[int, tuple[int, int, int]],
    ) -> Verdict:
        """The verdict on gradients of which two sketches differ.

        Parameters
        ----------
        sketches : dict of int to tuple of Sketch
            For each owner of one, its own sketch, its auditor's and the third rank's.
        by : dict of int to tuple of int
            Those three ranks.
        """
        odd = {owner: odd_one(three) for owner, three in sketches.items()}
        outvoted = {by[owner][at] for owner, at in odd.items() if at is not None}
        instead = {
            owner: next((r for r in by[owner][1:] if r not in outvoted), by[owner][1])
            for owner, at in odd.items()
            if at == 0
        }
        unlike = next(
            (
                by[owner][:2]
                for owner, at in odd.items()
                if at is None and _all_unlike(sketches[owner])
            ),
            (),
        )
        if instead:
            self._told = None  # others' gradients are in the sum
        named = self._remember(outvoted)
        return Verdict(tuple(sorted(outvoted)), tuple(sorted(named)), instead, unlike=unlike)

    def _remember(self, outvoted: set[int]) -> set[int]:
        """Note who was outvoted, or that nobody was; who was before, too, is named."""
        named = outvoted & self._outvoted
        if outvoted:
            self._again, self._outvoted = _AGAIN, self._outvoted | outvoted
        elif self._again:
            self._again -= 1
            if not self._again:
                self._outvoted = set()
        return named

    # -------------------------------------------------------------------------------- copies

    def fingerprint(self, step: int) -> Fingerprint:
        """That of this rank's gradient in a step, of which nothing is hashed yet."""
        return Fingerprint((self._secret, step))

    def agree(self, ranks: Sequence[int], prints: Sequence[int], total: torch.Tensor) -> bool:
        """Whether all copies among these ranks have the same fingerprint; `total` is the sum."""
        if any(prints[a] != prints[b] for a, b in self._pairs(ranks)):
            return False
        self._seen = self._seen or _tells_arithmetic(total)
        self._overflows = 0
        self._remember(set())
        return True

    def compare(
        self,
        view: View,
        secret: int,
        prints: Sequence[int],
        own: tuple[torch.Tensor, bool],
        total: torch.Tensor,
    ) -> Verdict:
        """The verdict on copies that do not `agree`; the arguments are those of `look`, too."""
        told = torch.zeros(self._count, _WIDTH, dtype=torch.float64)
        told[self._rank] = told.new_tensor(Sketch.of(*own, Signs(own[0].numel(), secret)).row())
        view.sum(told)
        sketches = {r: Sketch.read(row) for r, row in enumerate(told.tolist()) if r in view.ranks}
        verdict = self.judge_copies(prints, sketches)
        self._seen = self._seen or _tells_arithmetic(total)
        return verdict

    def judge_copies(self, prints: Sequence[int], sketches: dict[int, Sketch]) -> Verdict:
        """The verdict on what ranks have told: fingerprints, and sketches of those that are there.

        Copies with the same fingerprint are equal, whatever rounding made of their sketches.
        """
        ranks = sorted(sketches)
        pairs = [(a, b) for a, b in self._pairs(ranks) if prints[a] != prints[b]]
        away: dict[tuple[int, int], float] = {}  # of those that agree, how far
        differing: dict[tuple[int, int], float] = {}
        for a, b in pairs:
            pair = sketches[a], sketches[b]
            if not self._tells(pair) or not any(each.finite for each in pair):
                continue
            distance = pair[0].distance(pair[1])
            if distance > self._limit((a, b), *pair):
                differing[a, b] = differing[b, a] = distance
            else:
                away[a, b] = distance
        self._rounding |= away.keys()
        self._note_overflow((sketches[a], sketches[b]) for a, b in pairs)
        outvoted: set[int] = set()
        lost: list[list[int]] = []  # groups without a majority
        for group in self._among(ranks):
            at_odds = {r: [x for x in group if (r, x) in differing] for r in group}
            most = [r for r in group if 2 * len(at_odds[r]) < len(group)]
            if not most:
                lost.append(group)
            spread = max((away.get(pair, 0.0) for pair in combinations(most, 2)), default=0.0)
            outvoted |= {
                r
                for r in group
                if most
                and set(most) <= set(at_odds[r])
                and _CLEAR * spread <= min(differing[r, x] for x in most)
            }
        named = self._remember(outvoted)
        undecided, unlike = _without_majority(lost, differing)
        return Verdict(
            tuple(sorted(outvoted)), tuple(sorted(named)), undecided=undecided, unlike=unlike
        )

    def _among(self, ranks: Sequence[int]) -> list[list[int]]:
        """Groups that there are still copies of."""
        there = set(ranks)
        left = ([r for r in group if r in there] for group in self._groups)
        return [group for group in left if len(group) > 1]

    def _pairs(self, ranks: Sequence[int]) -> list[tuple[int, int]]:
        return [pair for group in self._among(ranks) for pair in combinations(group, 2)]

    def _limit(self, pair: tuple[int, int], a: Sketch, b: Sketch) -> float:
        """Up to which distance a pair agrees."""
        if a.half or b.half or not self._seen or pair in self._rounding:
            return _limit(a, b)
        return ROUNDED


def _tells_arithmetic(total: torch.Tensor) -> bool:
    """Whether gradients with this sum tell that machines compute alike, as those of zero do not."""
    norm = float(torch.linalg.vector_norm(total))
    return norm > 0 and math.isfinite(norm)


def _without_majority(
    lost: Sequence[Sequence[int]], differing: dict[tuple[int, int], float]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Who of groups without a majority is undecided, and who unlike, as of a `Verdict`.

    One machine errs at a time: where several groups have no majority, or three ranks are all
    unlike, it is the computation that is not the same on all.
    """
    if not lost:
        return (), ()
    first = tuple(lost[0])
    each = [differing.get(pair, 0.0) for pair in combinations(first, 2)]
    if len(lost) > 1 or (len(first) > 2 and min(each) > SAME_HALF):
        return (), next(pair for pair in combinations(first, 2) if pair in differing)
    return first, ()


def _all_unlike(three: Sequence[Sketch]) -> bool:
    """Whether three differ from each other by more than rounding in any precision."""
    return min(three[at].distance(three[at - 1]) for at in range(3)) > SAME_HALF


def _arbiters(ring: list[int], auditor: dict[int, int], differing: list[int]) -> dict[int, int]:
    """For each owner a third rank: of those that agree with all others, if there are such.

    Else the next in the ring, which is itself at odds with somebody: the other way round, if one
    rank is to blame.
    """
    at_odds = {*differing, *(auditor[r] for r in differing)}
    free = [r for r in ring if r not in at_odds]
    if free:
        return {owner: free[at % len(free)] for at, owner in enumerate(differing)}
    following = {before: owner for owner, before in auditor.items()}
    return {owner: following[owner] for owner in differing}


def majority(values: dict[int, Any]) -> Any:
    """The value that more than half of the ranks have; None if there is none."""
    found = list(values.values())
    return next((x for x in found if 2 * found.count(x) > len(found)), None)
