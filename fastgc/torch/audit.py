"""Audits: ranks find a rank whose gradients are wrong by computing the same gradients.

A device may compute some number wrongly each time, without an error. It cannot find that itself: a
replay gives the same. So in every m-th step each rank computes, besides the share of the batch that
it owns, the share of another owner, by the loop's `recompute` with the same samples in the same
order. Both send a few random projections of the gradients. This takes 1/m of the computing time,
and a few passes over the gradients. All shares are audited in the same step, because ranks that
wait for one audit may as well wait for all.

- Who audits whom: each audit puts the ranks on a ring, in random order. A secret is the seed of the
  order, and of the random signs of the projections. It is the sum of random numbers that ranks tell
  each other once they have their gradients. So it protects from machines that err, but not from an
  attacker who controls a rank.
- What differs: gradients whose difference, estimated from the projections, is above a limit
  relative to their norm: `SAME`, or `SAME_HALF` if they were computed in bfloat16 or float16. Two
  gradients that are not finite agree.
- Who errs: if two ranks differ, a third one computes the same share in the same step. One of the
  three is outvoted if it is at least `_CLEAR` times as far from both others as they are from each
  other. If none is, the difference is rounding, or the computation is not reproducible (dropout),
  and nobody is to blame.
- What follows: another of the three computes the outvoted rank's share, so the step is right. The
  next `_AGAIN` steps are audited, too. A rank that is outvoted again is named and left out. So a
  machine that erred once, or a ReLU that the last bit decided, costs no rank.
- Overflow: with a `torch.amp.GradScaler`, the last bit may decide that one of two gradients
  overflows. The scaler skips that step, so this proves nothing. The next step is audited, too, and
  the third such step in a row counts.
- The sum: the projections of the sum are the sums of the ranks' projections. If they are not, a
  machine or a wire has erred in between, and ranks sum again.
- NaN and huge numbers would spoil the parameters before the next audit. So ranks add up their norms
  in the message, which gives all the same bits. A step with a sum `_RISE` times that of the step
  before is audited before anybody uses it.
- Parameters: the same steps compare their fingerprints. They agree to the last bit.

With proactive redundancy, ranks compute nothing more. Ranks with equal rows, copies, have the same
gradient, and with the same arithmetic the same bits of it. The message that is summed also contains
the fingerprints of all gradients. If all copies have the same one, the step is done.

If some differ, projections tell by how much. Ranks also compare parameters, since wrong parameters
would explain wrong gradients. Copies that had the same bits before agree up to `ROUNDED`, because
some kernels add in any order; others, whose machines may round differently, up to `SAME` or
`SAME_HALF`. A copy that clearly (`_CLEAR`) differs from most of its copies is outvoted: ranks sum
the step again without it. Without a majority nobody knows which copy is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from .. import kernels
from ..codes import Code
from .membership import View
from .sampler import real_row

# Largest relative difference of gradients that should be equal; the second if they were computed in
# bfloat16 or float16 (measured in bfloat16: up to 0.02).
SAME, SAME_HALF = 1e-3, 0.1
ROUNDED = 1e-5  # the same for copies that had the same bits before
_ADDED = 1e-4  # largest error of a sum, relative to the sum of the norms
_PROJECTIONS = 8
_WIDTH = 3 + _PROJECTIONS  # numbers of a sketch
_CLEAR = 8.0  # least distance of an outvoted gradient from others, relative to theirs
_AGAIN = 3  # steps that are audited after one in which a rank was outvoted
_RISE = 10.0  # largest ratio of two steps' sums of norms without an audit
_COLUMNS = 4096  # numbers in a row of a vector, for `Signs`
_SAMPLE = 1 << 15  # about how many numbers of a tensor `in_half` looks at
_WORDS = 4096  # words of 64 bits that are hashed to one

Compute = Callable[[list[int]], tuple[torch.Tensor, bool]]


@torch.no_grad()
def in_half(gradients: Iterable[torch.Tensor | None]) -> bool:
    """Whether more than one in 16 of the gradients' numbers were computed in bfloat16 or float16.

    A float32 number that was computed so has zeros in its last 8 bits, also after a sum of a few.
    Of other numbers, one in 256 has. Of a large tensor, only a sample of the numbers is read.
    """
    zero = there = 0
    for grad in gradients:
        if grad is not None and grad.dtype == torch.float32 and not grad.is_sparse:
            flat = grad.reshape(-1)
            some = flat[:: max(1, flat.numel() // _SAMPLE)]
            used = some[some != 0]
            if not used.numel():  # the sample missed the few rows of an embedding that are used
                used = flat[flat != 0]
            zero += int((used.view(torch.int32) & 0xFF == 0).sum())
            there += used.numel()
    return 16 * zero > there


class Fingerprint:
    """A 64-bit hash that tells whether lists of vectors differ in any bit.

    Vectors are float32 or float64, contiguous and on the CPU. Two different lists of vectors of the
    same lengths, with less than 2^26 numbers, have the same fingerprint with probability 2^-30 at
    most, over the keys that `seed` draws. Every 4096 words of 64 bits are hashed to one word, and
    these words again, until one is left.
    """

    def __init__(self, seed: Sequence[int]) -> None:
        self._rng = np.random.default_rng(seed)
        self._keys = _keys(self._rng)
        self._found: list[NDArray[np.uint64]] = []

    def add_multiplied(self, flat: torch.Tensor, coefficient: float, out: torch.Tensor) -> None:
        """Hash one more vector of float32 or float64, and write it times `coefficient` to `out`.

        Both in one pass. If the coefficient is 0, even NaN becomes 0.
        """
        x, product = flat.numpy(), out.numpy()
        found = np.empty(-(-x.nbytes // (8 * _WORDS)), dtype=np.uint64)
        if len(x):
            kernels.unchecked.hash_and_scale(x, coefficient, self._keys, product, found)
        self._found.append(found)

    def value(self) -> int:
        """Return the fingerprint of all vectors so far."""
        words = np.concatenate([*self._found, np.zeros(1, dtype=np.uint64)])
        while len(words) > 1:
            found = np.empty(-(-len(words) // _WORDS), dtype=np.uint64)
            kernels.unchecked.hash_words(words, _keys(self._rng), found)
            words = found
        return int(words[0])


def _keys(rng: np.random.Generator) -> NDArray[np.uint64]:
    return rng.integers(2**64 - 1, size=_WORDS, dtype=np.uint64, endpoint=True)


def copies(code: Code) -> list[list[int]]:
    """Return groups of ranks with equal rows; raise ValueError if a rank's row equals no other."""
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
    """Vectors of random signs, and the projections of a vector of `size` numbers on them.

    Each vector of signs is the outer product of two shorter ones. So few signs are drawn, and one
    pass over a vector gives all its projections. Their mean square is on average the squared norm
    of the vector, and exactly that if a single number of the vector is not 0.
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
        """Return the projections of a vector on the CPU, in float64."""
        rows = flat.numel() // self._columns
        whole = flat[: rows * self._columns].view(rows, self._columns)
        found = (whole @ self._right.to(flat.dtype)).double().mul_(self._left[:rows]).sum(0)
        if rows < len(self._left):
            rest = flat[rows * self._columns :]
            found += (rest @ self._right[: rest.numel()].to(flat.dtype)).double() * self._left[-1]
        return found


class Sketch(NamedTuple):
    """What a rank tells about its gradient."""

    finite: bool
    half: bool  # whether its numbers were computed in half precision
    norm: float
    projections: tuple[float, ...]

    @classmethod
    def of(cls, flat: torch.Tensor, half: bool, signs: Signs) -> Self:
        """Return the sketch of a vector on the CPU."""
        norm = float(torch.linalg.vector_norm(flat))
        if not math.isfinite(norm):  # squares may have overflowed
            norm = float(torch.linalg.vector_norm(flat, dtype=torch.float64))
        if not math.isfinite(norm):
            return cls(False, half, 0.0, (0.0,) * _PROJECTIONS)
        most = torch.finfo(torch.float32).max  # sums in float32 may have overflowed
        found = torch.nan_to_num(signs.of(flat), 0.0, most, -most)
        return cls(True, half, norm, tuple(found.tolist()))

    def row(self) -> list[float]:
        """Return the sketch as numbers, to be summed with the zeros of other ranks."""
        return [1.0 if self.finite else 2.0, float(self.half), self.norm, *self.projections]

    @classmethod
    def read(cls, row: Sequence[float]) -> Self:
        """Return the sketch that `row` wrote."""
        return cls(row[0] == 1.0, row[1] != 0.0, row[2], tuple(row[3:]))

    def distance(self, other: Self) -> float:
        """Estimate the norm of the difference, relative to the larger of the two norms."""
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
    """Return which of three sketches of one gradient is clearly away from both others, or None."""
    limit = _limit(*three)
    for at in range(3):
        one, (a, b) = three[at], (three[at - 1], three[at - 2])
        away = min(one.distance(a), one.distance(b))
        if away > limit and _CLEAR * a.distance(b) <= away:
            return at
    return None


class Verdict(NamedTuple):
    """What an audit found: the same on all ranks."""

    outvoted: tuple[int, ...] = ()  # ranks that differed from two others
    named: tuple[int, ...] = ()  # those that were outvoted before: they are to be left out
    # For each outvoted rank whose own share is wrong, the rank that computes it.
    instead: dict[int, int] = {}  # noqa: RUF012
    undecided: tuple[int, ...] = ()  # ranks that differ while no majority agrees
    # Two ranks that differ, as others do: the computation is not reproducible.
    unlike: tuple[int, ...] = ()


class Audit:
    """When ranks audit each other, and what they found. All ranks of a view know the same.

    There are `count` ranks, and `every` steps from one audit to the next. `scaled` says whether a
    `torch.amp.GradScaler` may let gradients overflow. With proactive redundancy, `groups` are the
    `copies`.
    """

    def __init__(
        self, rank: int, count: int, every: int, scaled: bool, groups: Sequence[Sequence[int]] = ()
    ) -> None:
        self._rank, self._count, self._every, self._scaled = rank, count, every, scaled
        self._groups = groups
        self.forget()

    def forget(self, secret: int = 0) -> None:
        """Forget all audits, of which ranks that join know nothing; `secret` draws new keys."""
        # Further steps to audit, and steps in a row in which one of two gradients overflowed.
        self._again = self._overflows = 0
        self._secret, self._seen = secret, False  # _seen: copies were compared before
        self._rounding: set[tuple[int, int]] = set()  # pairs that agreed, but not in all bits
        self._outvoted: set[int] = set()
        self._told: tuple[Signs, list[Sketch]] | None = None  # of the last audit, for `adds_up`
        self._norms: float | None = None  # the last step's sum of norms, for `rises`

    def due(self, step: int) -> bool:
        """Whether a step is to be audited."""
        return step % self._every == 0 or self._again > 0

    def rises(self, norms: float) -> bool:
        """Note the sum of all ranks' norms; return whether it says to audit this step."""
        if self._scaled and not math.isfinite(norms):
            return False  # the scaler skips this step
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

        `shares` are the partitions that each rank has computed in this step. `own` is this rank's
        gradient, and whether it was computed in half precision; ``compute(partitions)`` returns the
        same two for other partitions.
        """
        ring = np.random.default_rng(secret).permutation(view.ranks).tolist()
        auditor = dict(zip(ring[1:] + ring[:1], ring, strict=True))
        signs = Signs(own[0].numel(), secret)

        def computed(by: dict[int, int]) -> dict[int, Sketch]:
            """Return sketches of the shares of others that this rank computes."""
            mine = [owner for owner, other in by.items() if other == self._rank]
            return {owner: Sketch.of(*compute(shares[owner]), signs) for owner in mine}

        told, others = self._told_by(view, {self._rank: Sketch.of(*own, signs)}, computed(auditor))
        self._told = signs, [told[r] for r in ring]
        pairs = {r: (told[r], others[r]) for r in ring}
        differing = [r for r in ring if self._tells(pairs[r]) and pairs[r][0].differs(pairs[r][1])]
        self._note_overflow(pairs.values())
        if not differing:
            return self.judge({}, {})
        if len(ring) < 3:
            return Verdict(undecided=tuple(sorted(ring)))
        arbiter = _arbiters(ring, auditor, differing)
        (thirds,) = self._told_by(view, computed(arbiter))
        return self.judge(
            {r: (*pairs[r], thirds[r]) for r in differing},
            {r: (r, auditor[r], arbiter[r]) for r in differing},
        )

    def _told_by(self, view: View, *own: dict[int, Sketch]) -> list[dict[int, Sketch]]:
        """Return the sketches that any rank tells, by owners, where this rank tells `own`."""
        rows = torch.zeros(len(own), self._count, _WIDTH, dtype=torch.float64)
        for role, sketches in enumerate(own):
            for owner, each in sketches.items():
                rows[role, owner] = rows.new_tensor(each.row())
        view.sum(rows)
        return [
            {owner: Sketch.read(row) for owner, row in enumerate(each) if row[0]}
            for each in rows.tolist()
        ]

    def adds_up(self, total: torch.Tensor) -> bool:
        """Whether the sum of gradients has the projections that ranks told; True if unknown."""
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
        """Whether a pair's difference counts: it is no overflow, or the third in a row."""
        return self._overflows >= _AGAIN - 1 or not (
            self._scaled and pair[0].finite != pair[1].finite
        )

    def _note_overflow(self, pairs: Iterable[tuple[Sketch, Sketch]]) -> None:
        if self._scaled and any(a.finite != b.finite for a, b in pairs):
            self._overflows += 1
            # The next step is audited: `judge` subtracts one of these two.
            self._again = max(self._again, 2)
        else:
            self._overflows = 0

    def judge(
        self,
        sketches: dict[int, tuple[Sketch, Sketch, Sketch]],
        by: dict[int, tuple[int, int, int]],
    ) -> Verdict:
        """Return the verdict on the owners whose two sketches differ.

        For each of them, `sketches` has three sketches of its gradient: its own, its auditor's and
        that of a third rank; `by` has these three ranks.
        """
        odd = {owner: odd_one(three) for owner, three in sketches.items()}
        outvoted = {by[owner][at] for owner, at in odd.items() if at is not None}
        instead = {
            owner: next((r for r in by[owner][1:] if r not in outvoted), by[owner][1])
            for owner, at in odd.items()
            if at == 0
        }
        lost = [r for r, at in odd.items() if at is None and _all_unlike(sketches[r])]
        unlike = by[lost[0]][:2] if lost else ()
        if instead:
            self._told = None  # others' gradients are in the sum
        named = self._remember(outvoted)
        return Verdict(tuple(sorted(outvoted)), tuple(sorted(named)), instead, unlike=unlike)

    def _remember(self, outvoted: set[int]) -> set[int]:
        """Note the ranks that were outvoted, maybe none; return those that were before, too."""
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
        """Return the fingerprint, still empty, for this rank's gradient in a step."""
        return Fingerprint((self._secret, step))

    def agree(self, ranks: Sequence[int], prints: Sequence[int], total: torch.Tensor) -> bool:
        """Whether all copies among `ranks` have the same fingerprint; `total` is the sum."""
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
        """Return the verdict on copies that do not `agree`; `secret` and `own` are as in `look`."""
        sketch = Sketch.of(*own, Signs(own[0].numel(), secret))
        (sketches,) = self._told_by(view, {self._rank: sketch})
        verdict = self.judge_copies(prints, sketches)
        self._seen = self._seen or _tells_arithmetic(total)
        return verdict

    def judge_copies(self, prints: Sequence[int], sketches: dict[int, Sketch]) -> Verdict:
        """Return the verdict on copies, from all fingerprints and the sketches of a view's ranks.

        Copies with the same fingerprint are equal, even if rounding made their sketches differ.
        """
        ranks = sorted(sketches)
        pairs = [(a, b) for a, b in self._pairs(ranks) if prints[a] != prints[b]]
        away: dict[tuple[int, int], float] = {}  # distances of pairs that agree
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
            # Those that agree with more than half of the group, themselves included.
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
        """Return the members of each group that are among `ranks`, if there are two or more."""
        there = set(ranks)
        left = ([r for r in group if r in there] for group in self._groups)
        return [group for group in left if len(group) > 1]

    def _pairs(self, ranks: Sequence[int]) -> list[tuple[int, int]]:
        return [pair for group in self._among(ranks) for pair in combinations(group, 2)]

    def _limit(self, pair: tuple[int, int], a: Sketch, b: Sketch) -> float:
        """Return the largest distance at which a pair agrees."""
        if a.half or b.half or not self._seen or pair in self._rounding:
            return _limit(a, b)
        return ROUNDED


def _tells_arithmetic(total: torch.Tensor) -> bool:
    """Whether this sum is of nonzero, finite gradients: only these compare machines' arithmetic."""
    norm = float(torch.linalg.vector_norm(total))
    return norm > 0 and math.isfinite(norm)


def _without_majority(
    lost: Sequence[Sequence[int]], differing: dict[tuple[int, int], float]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return `undecided` and `unlike` of a `Verdict` for groups without a majority.

    One machine errs at a time. If several groups have no majority, or three ranks are all unlike,
    the computation itself is not the same on all ranks.
    """
    if not lost:
        return (), ()
    first = tuple(lost[0])
    each = [differing.get(pair, 0.0) for pair in combinations(first, 2)]
    if len(lost) > 1 or (len(first) > 2 and min(each) > SAME_HALF):
        return (), next(pair for pair in combinations(first, 2) if pair in differing)
    return first, ()


def _all_unlike(three: Sequence[Sketch]) -> bool:
    """Whether all three differ from each other by more than rounding in any precision."""
    return min(three[at].distance(three[at - 1]) for at in range(3)) > SAME_HALF


def _arbiters(ring: list[int], auditor: dict[int, int], differing: list[int]) -> dict[int, int]:
    """Choose a third rank for each owner whose gradient is in question.

    Prefer ranks that are at odds with nobody. If there are none, take the owner's successor in the
    ring. It is at odds with a rank, too; but if a single rank is to blame, it is not the successor.
    """
    at_odds = {*differing, *(auditor[r] for r in differing)}
    free = [r for r in ring if r not in at_odds]
    if free:
        return {owner: free[at % len(free)] for at, owner in enumerate(differing)}
    following = {before: owner for owner, before in auditor.items()}
    return {owner: following[owner] for owner in differing}


def majority(values: dict[int, Any]) -> Any:
    """Return the value that more than half of the ranks have, or None."""
    found = list(values.values())
    return next((x for x in found if 2 * found.count(x) > len(found)), None)
