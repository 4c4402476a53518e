"""Parity checks: combinations of messages that must be zero, and who lies if they are not.

Correct messages are c_F = B_F g, so h c_F = 0 for every h with h B_F = 0. Such h exist once more
messages came than are needed. `fastgc.coding.verify` compares messages by them.

A set of workers *explains* failed checks if other messages of theirs would make all of them hold.
At most e workers lie, so the liars are such a set, and a worker in all such sets lies. Two methods
find it in time polynomial in e and in the number of workers n.

- A majority, where messages are edges of a graph, as copies and sums over intervals are. An honest
  worker disagrees only with paths that contain a liar. So a worker lies that disagrees with more
  than e others, or with more than e paths of which no two share a message. By Menger's theorem,
  t liars are named as soon as e + t + 1 messages would have to lie together to be believed.
- An error locator, where any so many messages determine all others. In Reed-Solomon codes the
  checks are moments ``sum_i d_i x_i^l`` of the corruptions d at the workers' roots x. The liars'
  roots are those of the polynomial whose coefficients annihilate the moments' Hankel matrix (Prony
  1795; Peterson 1960; for gradient codes Chen, Wang, Charles, Papailiopoulos 2018, "Draco"). For
  other codes, sets are grown worker by worker. The checks judge every proposed set. With checks for
  at least e + t messages, no other set of e workers explains what t liars do.

Neither can tell apart sets that explain the checks to within rounding: in floating-point numbers, e
neighbours on the circle can imitate one worker between them. The smallest set is named; if another
set is as small, nobody is.

If there are few sets, all are tried one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np

from .._base.arrays import Array, Bools, Floats, Ints
from ..kernels.rows import DOUBLE
from .graphs import Ends, Network, Pair, parallel

# Checks asked of messages that have more to spare, at least: they notice any 8 corrupt messages.
CHECKS = 8

# Rounding bounds, in units of typical rounding errors. The root mean square of an error's
# projections exceeds such a bound less than once in 1e12 times.
SAFETY = 10.0

# Try all sets one by one up to FEW_SETS first of all, because nothing else is exact; up to
# SETS_LOOKED_AT, about a second, if nothing else is known of the code.
FEW_SETS, SETS_LOOKED_AT, SETS_AT_A_TIME = 2_000, 10_000, 250

# Sets that are kept at each size while sets are grown.
SETS_KEPT = 200

# Workers to each side that are tried in place of the one nearest to a polynomial's root.
NEIGHBOURS = 6

# What elimination leaves of a number below this part of the largest before is mere rounding.
ROUNDED = 64 * DOUBLE

# Bounds below this are taken for underflow.
TINY = 1e-280

# Checks are moments if they differ from exact ones by no more than this.
MOMENTS = 1e-9


class Parity(NamedTuple):
    """Checks ``sum_i h_i c_i = 0`` of some messages, by the coefficients h_i that are not 0."""

    first: Ints  # index of each check's first entry in the next two
    position: Ints  # position of each entry's message among those that came
    coefficient: Array  # float64 or complex128
    error: Floats  # for each check the norm of h B_F, not quite 0 because h is rounded
    # (f, 2): the two points, where each message is the difference between what they stand for:
    # where it begins and ends. -1 for other messages. The checks of messages with points are
    # circles, and all of their circles are here.
    ends: Ends | None = None

    @classmethod
    def of(cls, H: Array, position: Ints | None = None, error: Floats | None = None) -> Parity:
        """Checks from the rows of a dense matrix, whose columns stand for messages `position`."""
        error = np.zeros(len(H)) if error is None else error
        if H.size and H.all():
            at = np.arange(H.shape[1]) if position is None else position
            first = np.arange(0, H.size, at.size)
            return cls(first, np.concatenate([at] * len(H)), H.ravel(), error)
        rows, columns = np.nonzero(H)
        count = np.bincount(rows, minlength=len(H))
        kept = count > 0
        return cls(
            (np.cumsum(count) - count)[kept],
            columns if position is None else position[columns],
            H[rows, columns],
            error[kept],
        )

    @classmethod
    def none(cls) -> Parity:
        """Return an object with no checks."""
        return cls.of(np.empty((0, 0)))

    @classmethod
    def beside(cls, parts: Iterable[tuple[Parity, Ints]]) -> Parity:
        """Join the checks of several groups of messages; each comes with its positions."""
        every = list(parts)
        listed = [(part, at) for part, at in every if part.first.size]
        if not listed:
            return cls.none()
        ends = None
        if any(part.ends is not None for part, _ in listed):
            ends = np.full((sum(at.size for _, at in every), 2), -1)
            points = 0
            for part, at in listed:
                if part.ends is not None:
                    ends[at] = part.ends + np.where(part.ends >= 0, points, 0)
                    points = int(ends.max()) + 1
        stops = np.cumsum([part.position.size for part, _ in listed])
        return cls(
            np.concatenate(
                [
                    part.first + stop - part.position.size
                    for (part, _), stop in zip(listed, stops, strict=True)
                ]
            ),
            np.concatenate([at[part.position] for part, at in listed]),
            np.concatenate([part.coefficient for part, _ in listed]),
            np.concatenate([part.error for part, _ in listed]),
            ends,
        )

    @property
    def row(self) -> Ints:
        """The check of each entry."""
        sizes = np.diff(np.append(self.first, self.position.size))
        return np.repeat(np.arange(self.first.size), sizes)


# Sets of workers.
Sets = list[tuple[int, ...]]

# For each pair of ends, its copies in ascending order: how many others disagree, and the message.
Votes = dict[Pair, list[tuple[int, int]]]


class Failure(NamedTuple):
    """A set of m checks of q projections of f messages, some of which failed."""

    parity: Parity
    senders: Ints  # the worker of each message
    values: Array  # (f, q): the projections of the messages
    squares: Floats  # of the typical rounding errors of `values`
    sums: Array  # (m, q): results of the checks, which should be 0
    errors: Floats  # what the errors of the checks' coefficients change in `sums`
    bound: Floats  # rounding bounds of the root mean squares of `sums`
    failed: Bools
    # Messages to spare in the block of each message, if any others than these determine all of the
    # block; 0: unknown.
    spare: Ints


class Blame(NamedTuple):
    """What failed checks prove."""

    corrupt: list[int]  # workers that must be corrupt
    # For each group of checks that proves nobody corrupt: the minimal sets that explain it; empty,
    # if more workers must lie than may; None, if they are unknown.
    sets: list[Sets | None]
    # The workers of these sets; None, if they are unknown.
    suspects: list[tuple[int, ...] | None]
    # Least number of further messages with which each of these groups can prove somebody corrupt,
    # unless others are named before.
    more: int


class _Verdict(NamedTuple):
    """The `Blame` of one group of checks: who is corrupt, and who may be if nobody is named."""

    surely: set[int]
    perhaps: set[int] | None
    sets: Sets | None = None
    more: int = 1

    @classmethod
    def of(cls, sets: Sets) -> _Verdict:
        """What all minimal sets that explain the checks say."""
        return cls(set(sets[0]).intersection(*sets) if sets else set(), set().union(*sets), sets)


def root_mean_square(values: Array) -> Floats:
    """Of the last axis."""
    found: Floats = np.linalg.norm(values, axis=-1) / math.sqrt(values.shape[-1])
    return found


def blame(failure: Failure, most: int) -> Blame:
    """Return who must be corrupt, and for checks that do not tell, who may be.

    Checks that share workers, directly or through others, form a group. In each group at most
    `most` workers lie.
    """
    found = Blame([], [], [], 1)
    for checks in _together(failure.parity, failure.senders, failure.failed):
        verdict = _blame_by(failure, checks, most)
        if verdict.surely:
            found.corrupt.extend(sorted(verdict.surely))
        else:
            perhaps = verdict.perhaps
            found.sets.append(verdict.sets)
            found.suspects.append(None if perhaps is None else tuple(sorted(perhaps)))
            found = found._replace(more=max(found.more, verdict.more))
    return found


def _together(parity: Parity, senders: Ints, failed: Bools) -> Iterator[Bools]:
    """Yield the groups of checks that share workers, directly or not, and of which one failed."""
    row, worker = parity.row, senders[parity.position]
    left = failed.copy()
    while left.any():
        checks = np.zeros_like(left)
        grown = np.arange(left.size) == np.argmax(left)
        holds = np.zeros(int(worker.max()) + 1, dtype=np.bool_)
        while (grown != checks).any():
            checks = grown
            holds[worker[checks[row]]] = True
            grown = np.zeros_like(left)
            grown[row[holds[worker]]] = True
        left &= ~checks
        yield checks


def _blame_by(failure: Failure, checks: Bools, most: int) -> _Verdict:
    """Return who is corrupt, and who may be, by the checks of one group."""
    parity = failure.parity
    used = np.unique(parity.position[checks[parity.row]])
    workers = np.unique(failure.senders[used])
    sets = sum(math.comb(workers.size, size) for size in range(1, most + 1))
    more = 1
    if parity.ends is not None and (parity.ends[used] >= 0).all():
        named, more = _outvoted(failure, used, most)
        if named:
            return _Verdict(named, set()) if len(named) <= most else _Verdict.of([])
        pairs = np.sort(parity.ends[used], axis=1)
        if workers.size == used.size and bool((pairs == pairs[0]).all()):
            outvoted = _minorities(failure, used, most)
            return _Verdict(set(), set(workers.tolist()), outvoted, more)
        if sets > SETS_LOOKED_AT:
            return _Verdict(set(), set(workers.tolist()), None, more)
    problem = _Problem(failure, checks)
    if most > 1 and sets > FEW_SETS and problem.determined:
        return problem.located(most)
    if most > 1 and sets > SETS_LOOKED_AT:
        return _Verdict(set(), None)
    return _Verdict.of(problem.explaining(most))


# -------------------------------------------------------------------------- edges of a graph


def _outvoted(failure: Failure, used: Ints, most: int) -> tuple[set[int], int]:
    """Return workers whose messages disagree with more than `most` copies, or disjoint paths.

    Also return the least number of further messages with which one could: each that comes adds one
    disagreement at most.
    """
    ends = failure.parity.ends
    assert ends is not None
    sender = failure.senders
    values = failure.values.copy()  # each is turned to lead from the lower end to the higher
    values[used[ends[used, 0] > ends[used, 1]]] *= -1
    votes: Votes = {}
    for pair, copies in parallel(ends, used).items():
        against = _apart(values[copies], failure.squares[copies]).sum(axis=1).tolist()
        votes[pair] = sorted(zip(against, copies.tolist(), strict=True))
    against_most = max(copies[-1][0] for copies in votes.values())
    named = {at for copies in votes.values() for against, at in copies if against > most}
    if not named and np.unique(sender[used]).size == used.size:
        named, against_most = _outvoted_by_paths(values, failure, votes, most)
    return set(sender[list(named)].tolist()), most + 1 - against_most


def _apart(value: Array, square: Floats) -> Bools:
    """Return for each pair of copies whether they differ by more than rounding."""
    rows = [
        root_mean_square(one - value) > SAFETY * np.sqrt(own + square)
        for one, own in zip(value, square, strict=True)
    ]
    return np.array(rows)


def _minorities(failure: Failure, used: Ints, most: int) -> Sets:
    """Return all minimal sets of at most `most` workers without which these copies agree.

    Each is all that disagree with one copy, if the rest agree.
    """
    ends = failure.parity.ends
    assert ends is not None
    values = np.where((ends[used, 0] > ends[used, 1])[:, None], -1, 1) * failure.values[used]
    apart = _apart(values, failure.squares[used])
    found = {
        tuple(np.flatnonzero(row).tolist())
        for row in apart
        if row.sum() <= most and not apart[np.ix_(~row, ~row)].any()
    }
    senders = failure.senders[used]
    minimal = [each for each in found if not any(set(each) > set(other) for other in found)]
    return [tuple(sorted(senders[list(each)].tolist())) for each in sorted(minimal)]


def _outvoted_by_paths(
    values: Array, failure: Failure, votes: Votes, most: int
) -> tuple[set[int], int]:
    """Return messages that disagree with more than `most` disjoint paths between their ends.

    Copies count as paths. Messages that at least half of their copies contradict are tried first,
    and the others if none of these is named. Also return the largest number of disagreements with
    one message.
    """
    network = Network({pair: [at for _, at in copies] for pair, copies in votes.items()})
    square = failure.squares.tolist()
    named: set[int] = set()
    against_most = 0
    for doubted in (True, False):
        for pair, copies in votes.items():
            size = len(copies)
            asked = [
                (against, at)
                for against, at in copies
                if (2 * against >= size) == doubted and size - against <= most + 1
            ]
            if not asked:
                continue
            possible = asked[-1][0] + network.others(pair)
            if possible <= most:
                against_most = max(against_most, possible)
                continue
            paths = network.disjoint_paths(*pair, 2 * most + 2, without=pair)
            edges = [[edge for edge, _ in path] for path in paths]
            signs = [np.array([sign for _, sign in path]) for path in paths]
            told = [sign @ values[edge] for edge, sign in zip(edges, signs, strict=True)]
            rounding = np.array([sum(square[e] for e in edge) for edge in edges])
            for against, at in asked:
                if told:
                    within = SAFETY * np.sqrt(rounding + square[at])
                    against += int((root_mean_square(values[at] - np.array(told)) > within).sum())
                against_most = max(against_most, against)
                if against > most:
                    named.add(at)
        if named:
            break
    return named, against_most


# ------------------------------------------------------------------------ any other checks


class _Problem:
    """Checks of one group, of some `workers`, as a matrix in units of their rounding bounds."""

    def __init__(self, failure: Failure, checks: Bools) -> None:
        parity = failure.parity
        row = parity.row
        entries = np.flatnonzero(checks[row])
        used, column = np.unique(parity.position[entries], return_inverse=True)
        place = np.cumsum(checks) - 1
        H = np.zeros((int(checks.sum()), used.size), dtype=parity.coefficient.dtype)
        H[place[row[entries]], column] = parity.coefficient[entries]
        self._nodes = _nodes(H)
        # Sets are searched by the projection that shows most, and judged by all.
        wrong = failure.sums[checks] / failure.bound[checks][:, None]
        shows = int(np.abs(wrong).max(axis=0).argmax())
        self._moments, self._wrong = failure.sums[checks, shows], wrong[:, shows]
        # Least squares leave as much: rounding errors of messages, and their own.
        own = 16 * DOUBLE
        self._enough = 2 * math.sqrt(len(self._wrong)) + own * float(np.linalg.norm(self._wrong))
        self._most_rounded = float(failure.bound[checks].max())
        self._raw, self._own = H, failure.errors[checks] ** 2
        self._values, self._squares = failure.values[used], failure.squares[used]
        H = H / failure.bound[checks][:, None]
        lengths = np.abs(H).max(axis=0)  # a liar's change may have any size
        self._H = H / np.where(lengths > 0, lengths, 1)
        senders = failure.senders[used]
        workers, first = np.unique(senders, return_index=True)
        self.workers: list[int] = workers.tolist()
        self._single = len(workers) == used.size
        if self._single:  # columns in the order of workers
            self._H, self._raw = self._H[:, first], self._raw[:, first]
            self._values, self._squares = self._values[first], self._squares[first]
            self._nodes = None if self._nodes is None else self._nodes[first]
            senders = senders[first]
        self._senders = senders
        spare = failure.spare[used]
        self._whole = self._single and bool((spare == len(H)).all())

    @cached_property
    def _columns(self) -> list[Ints]:
        """The columns of each worker."""
        order = np.argsort(self._senders, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self._senders[order])) + 1)

    @property
    def determined(self) -> bool:
        """Whether any so many messages as there are checks can be told from the others."""
        return self._whole or self._nodes is not None

    def _explains(self, columns: list[int]) -> bool:
        return bool(self._explain(np.array([columns]))[0])

    def _explain(self, columns: Ints) -> Bools:
        """Whether all messages but these agree, for each of some sets of messages, (sets, size).

        They agree if the checks hold that have none of the set. These are what Gaussian elimination
        leaves of the checks. What is eliminated is not in them, however large it is. A row is only
        subtracted from rows that rounding disturbs as much; so precise checks stay precise.
        """
        each, squares = np.arange(len(columns)), np.minimum(self._squares, 1 / TINY)
        sizes = root_mean_square(self._values) ** 2
        part = self._raw[:, columns].swapaxes(0, 1).copy()
        H = np.repeat(self._raw[None], each.size, axis=0)
        H.swapaxes(1, 2)[each[:, None], columns] = 0
        largest = np.abs(part).max(axis=2)
        own = np.repeat(self._own[None], each.size, axis=0)
        for _ in range(min(part.shape[1:])):
            coarse = np.abs(H) ** 2 @ squares + own
            sharp = np.abs(part) ** 2 / np.maximum(coarse, TINY)[:, :, None]
            sharp[np.abs(part) <= ROUNDED * largest[:, :, None]] = 0
            row, column = divmod(sharp.reshape(each.size, -1).argmax(axis=1), part.shape[2])
            found = sharp[each, row, column] > 0
            if not found.any():
                break
            by = part[each, :, column] / np.where(found, part[each, row, column], 1)[:, None]
            by[~found] = by[each, row] = 0
            taken, its = H[each, row], part[each, row]
            own += np.abs(by) ** 2 * own[each, row][:, None]
            subtracted = by[:, :, None] * taken[:, None]
            rounded = (np.abs(H) ** 2 + np.abs(subtracted) ** 2) @ sizes
            own += DOUBLE**2 * np.where(by != 0, rounded, 0)
            largest = np.maximum(largest, np.abs(by) * largest[each, row][:, None])
            H -= subtracted
            part -= by[:, :, None] * its[:, None]
            used, at = each[found], (row[found], column[found])
            part[used, :, at[1]] = 0
            H[used, at[0]] = part[used, at[0]] = own[used, at[0]] = 0
        bound = SAFETY * np.sqrt(np.abs(H) ** 2 @ squares + own)
        shown = root_mean_square(H @ self._values)
        agree: Bools = (shown <= np.maximum(bound, TINY)).all(axis=1)
        return agree

    def _left_by_each(self) -> Floats:
        """What each column leaves of the checks if it alone explains what it can."""
        H, wrong = self._H, self._wrong
        squares = (np.abs(H) ** 2).sum(axis=0)
        change = (H.conj().T @ wrong) / np.where(squares > 0, squares, 1)
        left: Floats = np.linalg.norm(wrong[:, None] - H * change, axis=0)
        return left

    # All sets, one by one

    def explaining(self, most: int) -> list[tuple[int, ...]]:
        """Return all minimal sets of at most `most` workers that explain the checks."""
        found: list[tuple[int, ...]] = []
        for size in range(1, min(most, len(self.workers)) + 1):
            if size == 1 and self._single:
                likely = np.flatnonzero(self._left_by_each() <= self._enough).tolist()
                found = [(at,) for at in likely if self._explains([at])]
                continue
            sets = combinations(range(len(self.workers)), size)
            while some := list(islice(sets, SETS_AT_A_TIME)):
                new = [each for each in some if not any(map(set(each).issuperset, found))]
                alike: dict[int, list[tuple[tuple[int, ...], Ints]]] = {}
                for each in new:
                    columns = np.concatenate([self._columns[i] for i in each])
                    alike.setdefault(columns.size, []).append((each, columns))
                for group in alike.values():
                    explain = self._explain(np.stack([columns for _, columns in group]))
                    found += [group[at][0] for at in np.flatnonzero(explain).tolist()]
        return [tuple(self.workers[i] for i in each) for each in found]

    # An error locator

    def located(self, most: int) -> _Verdict:
        """Return who is corrupt, and who may be, where messages are `determined` by the others."""
        checks = len(self._H)
        # If a larger set were found, another set of at most `most` could explain the checks, too.
        found = self._located(min(most, checks - most)) if checks > most else None
        if found is None:
            everyone = None if checks >= 2 * most else set(self.workers)
            return _Verdict(set(), everyone, None, max(1, most + self._least - checks))
        if rivals := self._rivals(found):
            sets = [tuple(self.workers[at] for at in each) for each in (found, *rivals)]
            return _Verdict(set(), set().union(*sets), sets)
        return _Verdict({self.workers[at] for at in found}, set())

    @cached_property
    def _least(self) -> int:
        """Least number of liars.

        The moments of t corruptions form a Hankel matrix of rank t at most. Rounding changes a
        singular value by no more than the norm of the rounding errors.
        """
        if self._nodes is None:
            return 1
        size = (len(self._moments) + 1) // 2
        hankel = np.lib.stride_tricks.sliding_window_view(self._moments, size)
        values = np.linalg.svd(hankel, compute_uv=False)
        rounding = math.sqrt(size * self._wrong.size) * self._most_rounded
        return max(1, int((values > rounding).sum()))

    def _rivals(self, found: list[int]) -> list[list[int]]:
        """Return sets that explain the checks with another column in place of one of those found.

        p_i is the part of the found column i that the other found columns cannot give. P_j is the
        part of any column j that all found columns cannot give. If column j replaces i, whose
        share is x_i, it leaves ``|x_i| |p_i| |P_j|`` over the length of
        ``P_j + <p_i, h_j> p_i / |p_i|^2``.
        """
        H, mine = self._H, self._H[:, found]
        inverse = np.linalg.pinv(mine, rcond=1e-15)
        part = np.abs(inverse @ self._wrong)
        lengths = 1 / np.linalg.norm(inverse, axis=1)  # |p_i|
        along = np.abs(inverse @ H) * lengths[:, None]
        Q, _ = np.linalg.qr(mine)
        apart = np.linalg.norm(H - Q @ (Q.conj().T @ H), axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            left = (part * lengths)[:, None] * (apart / np.hypot(apart, along))
        left[:, found] = math.inf
        swaps = np.argwhere(left <= self._enough).tolist()
        return [[*found[:turn], *found[turn + 1 :], other] for turn, other in swaps]

    def _located(self, most: int) -> list[int] | None:
        """Return the columns of the smallest set that is found to explain the checks, or None."""
        left = self._left_by_each()
        if left.min() <= self._enough and self._explains([int(left.argmin())]):
            return [int(left.argmin())]
        if self._nodes is None:
            return self._grown(most)
        for size in range(max(2, self._least), most + 1):
            if (found := self._by_moments(size)) is not None:
                return found
        return None

    def _by_moments(self, size: int) -> list[int] | None:
        """Return `size` columns, nearest to the roots of the polynomial that annihilates moments.

        Return None if no polynomial does. Rounding changes singular values of the Hankel matrix by
        at most the norm of the rounding errors of its entries.
        """
        nodes = self._nodes
        assert nodes is not None
        hankel = np.lib.stride_tricks.sliding_window_view(self._moments, size + 1)
        values = np.linalg.svd(hankel, compute_uv=False)
        rounding = math.sqrt((size + 1) * self._wrong.size) * self._most_rounded
        if values.size == size + 1 and values[-1] > rounding:
            return None
        found: list[int] = []
        moments, free = self._moments, np.ones(nodes.size, dtype=np.bool_)
        for left in range(size, 0, -1):
            hankel = np.lib.stride_tricks.sliding_window_view(moments, left + 1)
            roots = np.roots(np.linalg.svd(hankel)[2][-1].conj()[::-1])
            if not roots.size:
                return None
            # The root nearest to a node most likely belongs to the largest corruption. Taking the
            # node for it, which is exact, makes the other roots more precise.
            far = np.abs(nodes - roots[:, None]) + np.where(free, 0, np.inf)
            at = int(far.min(axis=0).argmin())
            found.append(at)
            free[at] = False
            moments = moments[1:] - nodes[at] * moments[:-1]
        return self._improved(found)

    def _improved(self, found: list[int]) -> list[int] | None:
        """Replace columns by neighbours on the circle while more is explained, until all is."""
        if self._explains(found):
            return found
        assert self._nodes is not None
        order = np.argsort(np.angle(self._nodes))
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        least = math.inf
        while True:
            before = least
            for turn in range(len(found)):
                others = found[:turn] + found[turn + 1 :]
                around = np.arange(-NEIGHBOURS, NEIGHBOURS + 1)
                near = order[np.unique((place[found[turn]] + around) % order.size)]
                near = near[~np.isin(near, others)]
                Q, _ = np.linalg.qr(self._H[:, others])
                mine = self._H[:, near]
                mine = mine - Q @ (Q.conj().T @ mine)
                wrong = self._wrong - Q @ (Q.conj().T @ self._wrong)
                lengths = np.linalg.norm(mine, axis=0)
                mine /= np.where(lengths > 0, lengths, 1)
                left = np.linalg.norm(wrong[:, None] - mine * (mine.conj().T @ wrong), axis=0)
                if left.min() < least:
                    least = float(left.min())
                    found = [*found[:turn], int(near[left.argmin()]), *found[turn + 1 :]]
                    if least <= self._enough and self._explains(found):
                        return found
            if least > 0.99 * before:
                return None

    def _grown(self, most: int) -> list[int] | None:
        """Grow the best sets column by column, and return the first that explains the checks."""
        H, wrong = self._H, self._wrong
        squares = (np.abs(H) ** 2).sum(axis=0)
        best = [()]
        for size in range(1, most + 1):
            sets = np.array(best, dtype=np.int64).reshape(len(best), size - 1)
            Q, _ = np.linalg.qr(H[:, sets].swapaxes(0, 1))
            rest = wrong - (Q @ (Q.conj().swapaxes(1, 2) @ wrong)[:, :, None])[:, :, 0]
            apart = squares - (np.abs(Q.conj().swapaxes(1, 2) @ H) ** 2).sum(axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                gain = np.where(apart > 1e-12 * squares, np.abs(rest.conj() @ H) ** 2 / apart, 0)
            np.put_along_axis(gain, sets, 0, axis=1)
            left = (np.abs(rest) ** 2).sum(axis=1)[:, None] - gain
            likely = np.argsort(left, axis=None)[: 2 * size * SETS_KEPT]
            which, column = np.divmod(likely, len(squares))
            new = dict.fromkeys(
                tuple(sorted((*best[s], j)))
                for s, j in zip(which.tolist(), column.tolist(), strict=True)
            )
            best = list(new)[:SETS_KEPT]
            for each in best[:8]:
                if self._explains(list(each)):
                    return list(each)
        return None


def _nodes(H: Array) -> Array | None:
    """Return x of each column, if every column is ``c (1, x, x^2, ...)`` for some c; else None."""
    if len(H) < 2 or H.dtype.kind != "c" or not H.all():
        return None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        nodes = H[1] / H[0]
        off = np.abs(H[2:] - H[1:-1] * nodes) / np.abs(H[0])
        good = np.abs(np.abs(nodes) - 1).max() <= MOMENTS and (off <= MOMENTS).all()
    return nodes if good else None
