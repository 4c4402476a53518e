"""When messages suffice: one rule for each way of being decodable.

A rule says how many more messages are needed. It also makes tallies, which follow a round message
by message, in O(1) each if the rule allows. Messages are given by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple, Protocol, Self, overload

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .._base.arrays import Bools, Floats, Ints
from ..kernels import rounds
from ..kernels.arrivals import Tally as Counted
from ..numerics.graphs import components
from ..numerics.solve import SOLVED, Equations, least_squares, row_sizes
from .arguments import check_between


class Tally(Protocol):
    """Follows the messages of one round."""

    def reset(self) -> None:
        """Forget all messages."""

    def add(self, message: int) -> bool:
        """Take a new message, and return whether the messages so far suffice."""


class Rule(Protocol):
    """Says which sets of messages suffice."""

    def missing(self, survivors: Ints) -> int:
        """Least number of further messages after which decoding can succeed; 0: it does now."""

    def tally(self) -> Tally:
        """A tally that has heard nothing yet."""


class Blocks(NamedTuple):
    """Any ``need[b]`` messages of every block b suffice."""

    block: Ints  # the block of each message
    need: Ints  # for each block

    @classmethod
    def one(cls, messages: int, need: int) -> Self:
        """A single block."""
        return cls(np.zeros(messages, dtype=np.int64), np.array([need], dtype=np.int64))

    def missing(self, survivors: Ints) -> int:
        if self.need.size == 1:
            return max(int(self.need[0]) - survivors.size, 0)
        heard = np.bincount(self.block[survivors], minlength=self.need.size)
        return int(np.maximum(self.need - heard, 0).sum())

    def tally(self) -> Counted:
        return Counted.of_blocks(self.block, self.need)


class Sooner(Blocks):
    """Any `need` messages suffice; fewer may, but rounds do not wait for these sets.

    They are looked for only when somebody asks: no tally follows them. `suffice` says whether
    messages do; fewer than `least` never do.
    """

    least: int
    suffice: Callable[[Ints], bool]

    def missing(self, survivors: Ints) -> int:
        missing = super().missing(survivors)
        if missing and survivors.size >= self.least:
            return int(not self.suffice(survivors))
        return min(missing, max(self.least - survivors.size, 1))

    def whole(self) -> Blocks:
        """The rule that rounds wait for, which is all that checks see."""
        return Blocks(*self)


class Cells(NamedTuple):
    """Every message is the sum over one cell of partitions; distinct cells must weigh `need`."""

    cell: Ints  # the cell of each message
    weight: Ints  # the weight of each cell
    need: int

    def first(self, survivors: Ints) -> Ints:
        """Return the position of each cell's first message, -1 for a cell without any."""
        position = np.full(self.weight.size, -1, dtype=np.int64)
        # The last assignment to an entry stays; going backwards, that is the first position.
        position[self.cell[survivors[::-1]]] = np.arange(survivors.size - 1, -1, -1)
        return position

    def came(self, survivors: Ints) -> Bools:
        """Return for each cell whether any of its messages came."""
        came = np.zeros(self.weight.size, dtype=np.bool_)
        came[self.cell[survivors]] = True
        return came

    def missing(self, survivors: Ints) -> int:
        came = self.came(survivors)
        lacking = self.need - int(self.weight @ came)
        if lacking <= 0:
            return 0
        heaviest = np.sort(self.weight[~came])[::-1]
        return int(np.searchsorted(np.cumsum(heaviest), lacking)) + 1

    def tally(self) -> Counted:
        return Counted(rounds.CELLS, self.cell, self.need, weight=self.weight)


class Tiling(NamedTuple):
    """Every message is the sum over an interval of partitions; intervals must add up to [0, k).

    An interval is an edge between its ends. The sum over [0, k) is a combination of the messages if
    and only if a path of edges leads from 0 to k. An edge passed forwards has the coefficient 1,
    one passed backwards -1. (The rows of B form an incidence matrix; they span exactly the
    differences between points of a component.)
    """

    start: Ints  # the start of each message's interval
    stop: Ints
    k: int

    def edges(self, survivors: Ints) -> Ints:
        """Where the survivors' intervals start and stop, a row each."""
        ends = np.empty((survivors.size, 2), dtype=np.int64)
        ends[:, 0], ends[:, 1] = self.start[survivors], self.stop[survivors]
        return ends

    def circles(self, edges: Ints) -> tuple[Ints, Ints, Floats]:
        """Return a basis of the combinations of messages with coefficients 1 and -1 that are zero.

        They are the circles of a graph: see edge_circles in csrc/kernels.def. The result is where
        the entries of each begin, the entries' positions, and their coefficients.
        """
        circles, points = kernels.unchecked.edge_circles, self.k + 1
        told = np.empty(2, dtype=np.int64)
        circles(edges, points, None, None, None, told)
        count, entries = told.tolist()
        first, position = np.empty(count, np.int64), np.empty(entries, np.int64)
        coefficient = np.empty(entries)
        circles(edges, points, first, position, coefficient, told)
        return first, position, coefficient

    def paths(self, edges: Ints, most: int, reached: bytearray | None = None) -> int:
        """Return how many paths from 0 to k have no edge in common, at most `most`.

        `reached` as in edge_flow in csrc/kernels.def.
        """
        found: int = kernels.unchecked.edge_flow(edges, self.k + 1, 0, self.k, most, reached)
        if found < 0:
            raise MemoryError
        return found

    def missing(self, survivors: Ints) -> int:
        edges = self.edges(survivors)
        if self.paths(edges, 1) == 1:
            return 0
        # Components that are reached with one more message, with two, and so on.
        component, near = components(edges, self.k + 1), dict[int, list[int]]()
        for start, stop in zip(
            component[self.start].tolist(), component[self.stop].tolist(), strict=True
        ):
            near.setdefault(start, []).append(stop)
            near.setdefault(stop, []).append(start)
        goal, reached, ahead, steps = component[self.k], {0}, {0}, 0
        while ahead and goal not in ahead:
            ahead = {there for here in ahead for there in near.get(here, ())} - reached
            reached |= ahead
            steps += 1
        return steps if ahead else self.start.size - survivors.size + 1  # more than are left

    def tally(self) -> Counted:
        return Counted(rounds.TILING, self.start, self.k, self.stop)


class Parts(NamedTuple):
    """Messages are edges: each component must have an odd cycle, or two sides of equal size.

    Attributes
    ----------
    ends : (messages, 2) int64 array
    vertices : int
    """

    ends: Ints
    vertices: int

    def missing(self, survivors: Ints) -> int:
        tally = self.tally()
        for message in survivors.tolist():
            tally.add(message)
        return -(-tally.lacking // 2)  # an edge joins two components

    def tally(self) -> Counted:
        return Counted(rounds.EDGES, self.ends[:, 0], self.vertices, self.ends[:, 1])


class Groups(NamedTuple):
    """The rules of several groups of messages, all of which must be met.

    Message m is message ``number[m]`` of group ``group[m]``.
    """

    rules: tuple[Rule, ...]
    group: Ints
    number: Ints

    @classmethod
    def joined(cls, rules: Sequence[Rule], first: Sequence[int]) -> Groups:
        """Groups whose messages follow one another: `first` as in `side_by_side`."""
        group = np.repeat(np.arange(len(rules)), np.diff(first))
        return cls(tuple(rules), group, np.arange(group.size) - np.array(first)[group])

    def parts(self, survivors: Ints) -> Iterator[tuple[Rule, Ints]]:
        """Yield each group's rule and survivors."""
        of = self.group[survivors]
        for g, rule in enumerate(self.rules):
            yield rule, self.number[survivors[of == g]]

    def missing(self, survivors: Ints) -> int:
        return sum(rule.missing(came) for rule, came in self.parts(survivors))

    def tally(self) -> Tally:
        return _GroupsTally(self)


class _GroupsTally:
    def __init__(self, rule: Groups) -> None:
        self._tallies = [each.tally() for each in rule.rules]
        self._group, self._number = rule.group.tolist(), rule.number.tolist()
        self.reset()

    def reset(self) -> None:
        for tally in self._tallies:
            tally.reset()
        self._open = set(range(len(self._tallies)))

    def add(self, message: int) -> bool:
        g = self._group[message]
        if self._tallies[g].add(self._number[message]):
            self._open.discard(g)
        return not self._open


@overload
def check_wait(wait: int, n: int) -> int: ...
@overload
def check_wait(wait: None, n: int) -> None: ...
def check_wait(wait: int | None, n: int) -> int | None:
    """Return `wait`, a number of workers in 1 .. n, or None; raise TypeError or ValueError else."""
    if wait is None:
        return None
    if isinstance(wait, bool):
        raise TypeError(f"wait must be a number of workers, not {wait}")
    return check_between("wait", wait, 1, n, "n")


class Waiting(NamedTuple):
    """Met if `rule` is, or if all messages of any `wait` workers came."""

    rule: Rule
    sender: Ints  # the worker of each message
    wait: int

    def missing(self, survivors: Ints) -> int:
        due = np.bincount(self.sender)
        due -= np.bincount(self.sender[survivors], minlength=due.size)
        whole = int((due == 0).sum())
        if whole >= self.wait:
            return 0
        rest = int(np.sort(due)[whole : self.wait].sum())
        return min(self.rule.missing(survivors), rest)

    def tally(self) -> Tally:
        return _WaitingTally(self.rule.tally(), self.sender, self.wait)


class _WaitingTally:
    def __init__(self, tally: Tally, sender: Ints, wait: int) -> None:
        self._tally, self._sender, self._wait = tally, sender.tolist(), wait
        self._sent = np.bincount(sender).tolist()
        self.reset()

    def reset(self) -> None:
        self._tally.reset()
        self._due = self._sent.copy()
        self._lacking = self._wait
        self._ready = False

    def add(self, message: int) -> bool:
        worker = self._sender[message]
        self._due[worker] -= 1
        self._lacking -= self._due[worker] == 0
        if not self._ready:  # a tally may need linear algebra
            self._ready = self._lacking <= 0 or self._tally.add(message)
        return self._ready


def side_by_side(rules: Sequence[Rule], first: Sequence[int]) -> Rule:
    """Return a rule met if all `rules` are: of their own kind, which simulations know, if possible.

    `first` are the numbers of each group's first message, and of all messages.
    """
    blocks = [rule for rule in rules if isinstance(rule, Blocks)]
    if len(blocks) == len(rules):
        return Blocks(
            _stacked([rule.block for rule in blocks], [rule.need.size for rule in blocks]),
            np.concatenate([rule.need for rule in blocks]),
        )
    cells = [
        rule for rule in rules if isinstance(rule, Cells) and rule.need == int(rule.weight.sum())
    ]
    if len(cells) == len(rules):
        return Cells(
            _stacked([rule.cell for rule in cells], [rule.weight.size for rule in cells]),
            np.concatenate([rule.weight for rule in cells]),
            sum(rule.need for rule in cells),
        )
    # Intervals end within their group, so a path from 0 to the last end passes all ends between.
    tilings = [rule for rule in rules if isinstance(rule, Tiling)]
    if len(tilings) == len(rules):
        sizes = [rule.k for rule in tilings]
        return Tiling(
            _stacked([rule.start for rule in tilings], sizes),
            _stacked([rule.stop for rule in tilings], sizes),
            sum(sizes),
        )
    return Groups.joined(rules, first)


def _stacked(numbers: Sequence[Ints], sizes: Sequence[int]) -> Ints:
    """Join the groups' numbers, each group's counted on from those before."""
    starts = np.cumsum([0, *sizes[:-1]])
    return np.concatenate([each + start for each, start in zip(numbers, starts, strict=True)])


# A tally computes the residual anew once the one it follows is this small, because a basis that
# grows with every message is less precise than a decomposition of all of them. Of 1,200 residuals
# of 13 codes, none was below 0.998 of the one followed.
LIKELY = 10 * SOLVED

# Most real entries of rows for which `Span.spare` is computed, half a second, and `Span.turned`.
SPARED, TURNED = 1 << 18, 1 << 20

# Least singular value, relative to the largest, at which it is clear that it is not zero.
CLEAR = 1e-5


class Span(NamedTuple):
    """Met if the rows that came span the target.

    `residual` returns what is left of the target if these messages are combined as well as
    possible.
    """

    equations: Callable[[Ints], Equations]
    residual: Callable[[Ints], float]
    messages: int  # of the code

    def missing(self, survivors: Ints) -> int:
        if survivors.size and self.residual(survivors) <= SOLVED:
            return 0
        # At least as many as cover all empty columns, if each had the largest support.
        rest = np.setdiff1d(np.arange(self.messages), survivors)
        if not rest.size:
            return 1  # it cannot come
        lacking = ~(self.equations(survivors).rows != 0).any(axis=0)
        largest = (self.equations(rest).rows != 0).sum(axis=1).max()
        return max(1, -(-int(lacking.sum()) // max(int(largest), 1)))

    def _reals(self, most: int) -> tuple[Floats, Floats] | None:
        """Real rows, as many for each message, that span the target as the messages' rows do.

        A complex row is two of twice the length. If only real parts count, it is two as well. None
        if there are more than `most` entries, or some beyond float64.
        """
        given = self.equations(np.arange(0))
        wide = given.rows.dtype.kind == "c" and not given.real_part
        if self.messages * given.target.size * (4 if wide else 1 + given.real_part) > most:
            return None
        given = self.equations(np.arange(self.messages))
        x, y = given.rows.real, given.rows.imag
        target = np.append(given.target, np.zeros(given.target.size * wide))
        rows = [np.hstack([x, y]), np.hstack([-y, x])] if wide else [x, -y][: 1 + given.real_part]
        found = np.stack(rows, axis=1).reshape(-1, target.size)
        return (found, target) if np.isfinite(found).all() else None

    def spare(self) -> Floats | None:
        """Return numbers that tell quickly, from missing messages S, whether the others suffice.

        Let a be the shortest vector of all messages, and N a basis of what can be added to it. The
        others suffice if there is a y with ``a_S + N_S y = 0``. The first column here is a, scaled
        to a largest entry of 1; the other columns are N, which is orthonormal. So the others
        suffice if, in the rows S, the first column is a combination of the other columns. Complex
        messages have two rows. If even all messages do not suffice, return a column of ones: none
        can be spared. Return None if rows are too many, or so nearly dependent that their rank is
        unclear.
        """
        if (given := self._reals(SPARED)) is None:
            return None
        rows, target = given
        left, sizes, right = np.linalg.svd(rows)
        least = max(rows.shape) * np.finfo(np.float64).eps
        rank = int((sizes > least * sizes[0]).sum())
        if rank == 0 or sizes[rank - 1] < CLEAR * sizes[0]:
            return None
        own = right[:rank] @ target
        if np.linalg.norm(target - own @ right[:rank]) > SOLVED * np.linalg.norm(target):
            return np.ones((len(rows), 1))
        shortest = left[:, :rank] @ (own / sizes[:rank])
        return np.column_stack([shortest / np.abs(shortest).max(), left[:, rank:]])

    def turned(self) -> Floats | None:
        """Return rows that tell quickly whether the messages that came suffice.

        They are those of the messages, of length 1, turned so that the target lies along the first
        axis. Messages suffice if, over all of their rows, the first column is *not* a combination
        of the others: then some combination of rows is 0 in all columns but the first. Return None
        if rows are too many.
        """
        if (given := self._reals(TURNED)) is None:
            return None
        rows, target = given
        together = rows.reshape(self.messages, -1)
        rows = (together / row_sizes(together)[:, None]).reshape(rows.shape)
        axis = target / np.linalg.norm(target)
        axis[0] -= 1  # a reflection takes the target to the first axis
        turned: Floats = rows - np.outer(rows @ axis, axis * (2 / (axis @ axis or 1)))
        return turned

    def whole(self) -> Span:
        """The rule that complex sums are met, not only their real parts: all that checks see."""
        if not self.equations(np.arange(0)).real_part:
            return self

        def equations(survivors: Ints) -> Equations:
            return self.equations(survivors)._replace(real_part=False)

        return Span(equations, lambda came: least_squares(equations(came))[1], self.messages)

    def tally(self) -> Tally:
        return _SpanTally(self)


class _SpanTally:
    """Follows the span by an orthonormal basis of the rows that came.

    The basis is empty until every column of the target is in some row: before, no rows span it.
    """

    def __init__(self, rule: Span) -> None:
        self._rule = rule
        self._target = rule.equations(np.arange(0)).target
        self._whole = float(np.linalg.norm(self._target))
        self._wanted: Bools = self._target != 0
        self.reset()

    def reset(self) -> None:
        self._came: list[int] = []
        self._lacking = self._wanted.copy()
        self._open = int(self._lacking.sum())
        self._ahead: list[int] = []
        self._basis: NDArray[np.number] = np.empty((0, self._target.size))  # with spare rows
        self._rank = 0  # rows of the basis in use
        self._left: NDArray[np.number] = self._target
        self._ready = False

    @np.errstate(under="ignore")
    def add(self, message: int) -> bool:
        self._came.append(message)
        if self._ready:
            return True
        self._ahead.append(message)
        if self._open:
            columns = np.flatnonzero(self._rule.equations(np.array([message])).rows[0])
            self._open -= int(np.count_nonzero(self._lacking[columns]))
            self._lacking[columns] = False
        if self._open:
            return False
        for each in self._ahead:
            given = self._rule.equations(np.array([each]))
            size = float(np.linalg.norm(given.rows))
            for row in given.split().rows if 0 < size < np.inf else ():
                self._span(row / size)
        self._ahead.clear()
        if np.linalg.norm(self._left) <= LIKELY * self._whole:
            self._ready = self._rule.residual(np.array(self._came)) <= SOLVED
        return self._ready

    def _span(self, new: NDArray[np.number]) -> None:
        basis = self._basis[: self._rank]
        for _ in range(2):  # one pass leaves rounding errors of the size of what it took away
            new = new - (basis @ new.conj()).conj() @ basis
        rest = np.linalg.norm(new)
        if rest > len(new) * np.finfo(np.float64).eps:
            new = new / rest
            self._keep(new)
            self._left = self._left - (self._left @ new.conj()) * new

    def _keep(self, new: NDArray[np.number]) -> None:
        """Add a row to the basis, doubling its room if it is full."""
        if self._rank == len(self._basis):
            room: NDArray[np.number] = np.empty((max(8, 2 * self._rank), new.size), new.dtype)
            room[: self._rank] = self._basis
            self._basis = room
        self._basis[self._rank] = new
        self._rank += 1


# Most sets that `tolerated` tries.
SETS_TRIED = 5_000


def tolerated(n: int, suffice: Callable[[list[int]], bool]) -> int | None:
    """Return how many of n workers may be silent, whichever they are; None if trying takes long.

    None as well if even the messages of all workers do not suffice. ``suffice(workers)`` says
    whether all messages of these workers do.
    """
    if not suffice(list(range(n))):
        return None
    tried = 0
    for s in range(1, n):
        tried += comb(n, s)
        if tried > SETS_TRIED:
            return None
        for lost in combinations(range(n), s):
            if not suffice(np.delete(np.arange(n), lost).tolist()):
                return s - 1
    return n - 1


def spare_tally(rule: Rule, liars: int) -> Tally | None:
    """A tally that suffices once any so many workers may be spared, or before; None: unknown.

    It suffices just then for `Blocks`, `Cells` and a `Tiling` if each worker sends one message.
    """
    if isinstance(rule, Blocks):
        need = np.where(rule.need > 0, rule.need + liars, 0)
        return rule._replace(need=need).tally()
    if isinstance(rule, Cells):
        need = np.full_like(rule.weight, 1 + liars)
        return Counted(rounds.CELLS, rule.cell, rule.need, weight=rule.weight, need=need)
    return _PathsTally(rule, liars + 1) if isinstance(rule, Tiling) else None


class _PathsTally:
    """Follows whether so many paths of a `Tiling` have no message in common.

    A message adds a path only if it leaves the part that the last search reached, at first point 0:
    30 messages of a `BinaryCode` take seven searches.
    """

    def __init__(self, rule: Tiling, paths: int) -> None:
        self._rule, self._paths = rule, paths
        self._edges, self._reached = np.empty((rule.start.size, 2), np.int64), bytearray(rule.k + 1)
        self._starts, self._stops = rule.start.tolist(), rule.stop.tolist()
        self._put = self._edges.reshape(-1).data
        self.reset()

    def reset(self) -> None:
        self._count, self._enough = 0, False
        self._reached[:] = b"\1" + bytes(self._rule.k)

    def add(self, message: int) -> bool:
        start, stop, at = self._starts[message], self._stops[message], 2 * self._count
        self._put[at], self._put[at + 1] = start, stop
        self._count += 1
        if not self._enough and self._reached[start] != self._reached[stop]:
            found = self._rule.paths(self._edges[: self._count], self._paths, self._reached)
            self._enough = found == self._paths
        return self._enough


# Most sets of workers that are taken away in turn to see whether the others suffice.
SETS_TAKEN_AWAY = 500


def withstands(rule: Rule, survivors: Ints, sender: Ints, most: int) -> int:
    """Return how many workers can be taken away, whichever they are, so that the others suffice.

    Return `most` at most, and -1 if even all survivors do not suffice. It is a lower bound if the
    rule is a `Span` or unknown, or workers share edges of a `Tiling`, and there are too many sets
    to try. `sender` is the worker of each message of the code. Complex messages are taken whole.
    """
    if isinstance(rule, Waiting):
        return withstands(rule.rule, survivors, sender, most)
    if isinstance(rule, Span):
        rule = rule.whole()
    if isinstance(rule, Groups):
        found = most
        for g, (each, came) in enumerate(rule.parts(survivors)):
            mine = np.flatnonzero(rule.group == g)
            theirs = sender[mine[np.argsort(rule.number[mine])]]
            found = min(found, withstands(each, came, theirs, most))
        return found
    mine = sender[survivors]
    if isinstance(rule, Tiling) and len(set(mine.tolist())) == mine.size:
        return rule.paths(rule.edges(survivors), most + 1) - 1
    workers, worker = np.unique(mine, return_inverse=True)
    if isinstance(rule, Blocks):
        sent = np.zeros((rule.need.size, workers.size), dtype=np.int64)
        np.add.at(sent, (rule.block[survivors], worker), 1)
        # without the workers that sent most
        heard = sent.sum(axis=1)
        left = heard[:, None] - np.cumsum(np.sort(sent, axis=1)[:, ::-1], axis=1)
        found = int((left >= rule.need[:, None]).sum(axis=1).min())
        return min(most, found) if (heard >= rule.need).all() else -1
    if isinstance(rule, Cells):
        held = np.zeros((rule.weight.size, workers.size), dtype=np.bool_)
        held[rule.cell[survivors], worker] = True
        holders = held.sum(axis=1)
        enough = [t for t in range(most + 1) if rule.weight[holders > t].sum() >= rule.need]
        return len(enough) - 1
    if rule.missing(survivors):
        return -1
    found = 0
    while found < most and comb(workers.size, found + 1) <= SETS_TAKEN_AWAY:
        for lost in combinations(range(workers.size), found + 1):
            if rule.missing(survivors[~np.isin(worker, lost)]):
                return found
        found += 1
    return found
