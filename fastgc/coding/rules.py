"""When messages suffice: one rule for each way of being decodable.

A rule says how many more messages are needed, and makes tallies, which follow a round message by
message, in O(1) each where the rule allows it. Messages are known by their numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .._arrays import check_integer

__all__ = [
    "Blocks",
    "Cells",
    "Follower",
    "Groups",
    "Rule",
    "Tally",
    "Tiling",
    "Waiting",
    "check_wait",
    "first_positions",
    "side_by_side",
]

Numbers = NDArray[np.int64]


def first_positions(kind: Numbers, kinds: int) -> Numbers:
    """Position of the first entry of each of so many kinds, -1 where there is none."""
    position = np.empty(kinds, dtype=np.int64)
    position.fill(-1)
    # the last assignment to an entry stays: from the end, that is the first
    position[kind[::-1]] = np.arange(kind.size - 1, -1, -1)
    return position


class Tally(Protocol):
    """Follows one round."""

    def reset(self) -> None:
        """Forget all messages."""

    def add(self, message: int) -> bool:
        """Take a message that did not come before; whether those that came suffice now."""


class Rule(Protocol):
    """Which sets of messages suffice."""

    def missing(self, survivors: Numbers) -> int:
        """Least number of further messages after which decoding can succeed; 0: it does now."""

    def tally(self) -> Tally:
        """A tally that has heard nothing yet."""


class Follower(Protocol):
    """What prepares a round's decoding vector while its messages come."""

    def reset(self) -> None:
        """Forget all messages."""

    def receive(self, worker: int) -> None:
        """A worker's message came."""

    def straggles(self, worker: int) -> None:
        """No message of this worker is to be expected."""

    def vector(self, f: int) -> NDArray[Any] | None:
        """Decoding vector of the f messages that came; None if none is prepared."""


class Blocks(NamedTuple):
    """In every block b, ``need[b]`` of its messages, whichever they are."""

    block: Numbers  # of each message
    need: Numbers  # of each block

    @classmethod
    def one(cls, messages: int, need: int) -> Blocks:
        """A single block."""
        return cls(np.zeros(messages, dtype=np.int64), np.array([need], dtype=np.int64))

    def missing(self, survivors: Numbers) -> int:
        heard = np.bincount(self.block[survivors], minlength=self.need.size)
        return int(np.maximum(self.need - heard, 0).sum())

    def tally(self) -> Tally:
        return _BlocksTally(self.block.tolist(), self.need.tolist())

    def enough(self) -> kernels.Enough:
        """The same for `fastgc.kernels.Arrivals`."""
        return kernels.Enough.of_blocks(self.block, self.need)


class _BlocksTally:
    def __init__(self, block: list[int], need: list[int]) -> None:
        self._block, self._need = block, need
        self.reset()

    def reset(self) -> None:
        self._lacking = self._need.copy()
        self._open = sum(need > 0 for need in self._need)  # blocks that need any

    def add(self, message: int) -> bool:
        b = self._block[message]
        self._lacking[b] -= 1
        self._open -= self._lacking[b] == 0
        return self._open == 0


class Cells(NamedTuple):
    """Every message is the sum over one cell of partitions; distinct cells must weigh `need`."""

    cell: Numbers  # of each message
    weight: Numbers  # of each cell
    need: int

    def first(self, survivors: Numbers) -> Numbers:
        """Position of the first message of each cell, -1 where none came."""
        return first_positions(self.cell[survivors], self.weight.size)

    def came(self, survivors: Numbers) -> NDArray[np.bool_]:
        """Of each cell, whether any of its messages came."""
        came = np.zeros(self.weight.size, dtype=np.bool_)
        came[self.cell[survivors]] = True
        return came

    def missing(self, survivors: Numbers) -> int:
        came = self.came(survivors)
        lacking = self.need - int(self.weight[came].sum())
        if lacking <= 0:
            return 0
        heaviest = np.sort(self.weight[~came])[::-1]
        return int(np.searchsorted(np.cumsum(heaviest), lacking)) + 1

    def tally(self) -> Tally:
        return _CellsTally(self.cell.tolist(), self.weight.tolist(), self.need)

    def enough(self) -> kernels.Enough:
        """The same for `fastgc.kernels.Arrivals`."""
        return kernels.Enough(self.cell, np.ones_like(self.weight), self.weight, self.need)


class _CellsTally:
    def __init__(self, cell: list[int], weight: list[int], need: int) -> None:
        self._cell, self._weight, self._need = cell, weight, need
        self.reset()

    def reset(self) -> None:
        self._came = bytearray(len(self._weight))
        self._lacking = self._need

    def add(self, message: int) -> bool:
        c = self._cell[message]
        if not self._came[c]:
            self._came[c] = 1
            self._lacking -= self._weight[c]
        return self._lacking <= 0


class Tiling(NamedTuple):
    """Every message is the sum over an interval of partitions; the intervals must give [0, k).

    An interval is an edge between its ends. The sum over [0, k) is a combination of the messages
    if and only if a path of such edges leads from 0 to k: coefficient 1 for an edge passed
    forwards, -1 for one passed backwards. (The rows of B are those of an incidence matrix, whose
    differences over a component of the graph are all that it spans.)
    """

    start: Numbers  # of each message's interval
    stop: Numbers
    k: int

    def _edges(self, survivors: Numbers) -> dict[int, list[tuple[int, int, int]]]:
        """At each point: the other ends of its edges, positions of their messages, and signs."""
        edges: dict[int, list[tuple[int, int, int]]] = {}
        starts, stops = self.start[survivors].tolist(), self.stop[survivors].tolist()
        for at, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            edges.setdefault(start, []).append((stop, at, 1))
            edges.setdefault(stop, []).append((start, at, -1))
        return edges

    def cycles(self, survivors: Numbers) -> list[dict[int, int]]:
        """Positions and coefficients (1, -1) of messages that add up to zero: a basis of them all.

        Each message off a spanning forest closes a cycle with the paths to its ends, which are as
        short as can be.
        """
        edges = self._edges(survivors)
        came_by: dict[int, tuple[int, int, int]] = {}
        depth: dict[int, int] = {}
        spare = set(range(survivors.size))
        for root in edges:
            if root in depth:
                continue
            depth[root] = 0
            ahead = deque([root])
            while ahead:
                here = ahead.popleft()
                for there, at, sign in edges[here]:
                    if there not in depth:
                        depth[there] = depth[here] + 1
                        came_by[there] = here, at, sign
                        spare.discard(at)
                        ahead.append(there)
        found = []
        for at in sorted(spare):
            cycle = {at: 1}
            number = int(survivors[at])
            end, other, way = int(self.start[number]), int(self.stop[number]), 1
            while end != other:  # from the deeper of the two, one step up
                if depth[end] < depth[other]:
                    end, other, way = other, end, -way
                end, passed, sign = came_by[end]
                cycle[passed] = way * sign
            found.append(cycle)
        return found

    def missing(self, survivors: Numbers) -> int:
        # shortest path where a message at hand costs nothing and any other one
        price = np.ones(self.start.size, dtype=np.int64)
        price[survivors] = 0
        edges: dict[int, list[tuple[int, int]]] = {}
        for start, stop, cost in zip(
            self.start.tolist(), self.stop.tolist(), price.tolist(), strict=True
        ):
            edges.setdefault(start, []).append((stop, cost))
            edges.setdefault(stop, []).append((start, cost))
        done: dict[int, int] = {}
        ahead = deque([(0, 0)])
        while ahead:
            here, so_far = ahead.popleft()
            if here in done:
                continue
            done[here] = so_far
            for there, cost in edges.get(here, ()):
                if there not in done:
                    if cost:
                        ahead.append((there, so_far + 1))
                    else:
                        ahead.appendleft((there, so_far))
        return done[self.k]

    def tally(self) -> Tally:
        return _TilingTally(self.start.tolist(), self.stop.tolist(), self.k)


class _TilingTally:
    """Components of the graph, by union-find with path halving."""

    def __init__(self, start: list[int], stop: list[int], k: int) -> None:
        self._start, self._stop, self._k = start, stop, k
        self.reset()

    def reset(self) -> None:
        # of those points alone that are no roots: a round that few messages end costs few steps
        self._parent: dict[int, int] = {}

    def _root(self, point: int) -> int:
        parent = self._parent
        while (above := parent.get(point)) is not None:
            top = parent.get(above)
            if top is None:
                return above
            parent[point] = point = top
        return point

    def add(self, message: int) -> bool:
        start, stop = self._root(self._start[message]), self._root(self._stop[message])
        if start != stop:
            self._parent[start] = stop
        return self._root(0) == self._root(self._k)


class Groups(NamedTuple):
    """Rules of several groups of messages, all of which must be met."""

    rules: tuple[Rule, ...]
    first: tuple[int, ...]  # message of each group, and the end

    def missing(self, survivors: Numbers) -> int:
        return sum(
            rule.missing(survivors[(survivors >= lo) & (survivors < hi)] - lo)
            for rule, lo, hi in zip(self.rules, self.first, self.first[1:], strict=False)
        )

    def tally(self) -> Tally:
        return _GroupsTally([rule.tally() for rule in self.rules], self.first)


class _GroupsTally:
    def __init__(self, tallies: list[Tally], first: tuple[int, ...]) -> None:
        self._tallies, self._first = tallies, first
        self.reset()

    def reset(self) -> None:
        for tally in self._tallies:
            tally.reset()
        self._open = set(range(len(self._tallies)))

    def add(self, message: int) -> bool:
        g = bisect_right(self._first, message) - 1
        if self._tallies[g].add(message - self._first[g]):
            self._open.discard(g)
        return not self._open


def check_wait(wait: int, n: int) -> int:
    """Workers of n that are waited for at most; TypeError or ValueError if they are none such."""
    if isinstance(wait, bool):
        raise TypeError(f"wait must be a number of workers, not {wait}")
    wait = check_integer("wait", wait)
    if not 1 <= wait <= n:
        raise ValueError(f"wait must be in 1 .. n = {n} workers, not {wait}")
    return wait


class Waiting(NamedTuple):
    """What a rule says, or all messages of as many workers as are waited for, whatever they are.

    Attributes
    ----------
    rule : Rule
        Which messages suffice before.
    sender : (messages,) int64 array
        Worker of each message.
    wait : int
        Workers that are waited for at most.
    """

    rule: Rule
    sender: Numbers
    wait: int

    def missing(self, survivors: Numbers) -> int:
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
    def __init__(self, tally: Tally, sender: Numbers, wait: int) -> None:
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
        if not self._ready:  # it may take linear algebra to find out
            self._ready = self._lacking <= 0 or self._tally.add(message)
        return self._ready


def side_by_side(rules: Sequence[Rule], first: Sequence[int]) -> Rule:
    """All of these rules at once: one of their own kind, which simulations know, if there is one.

    Parameters
    ----------
    rules : sequence of Rule
        Of each group.
    first : sequence of int
        Number of each group's first message, and of all messages.
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
    # Intervals end within their group: what leads from 0 to the last end passes all in between.
    tilings = [rule for rule in rules if isinstance(rule, Tiling)]
    if len(tilings) == len(rules):
        sizes = [rule.k for rule in tilings]
        return Tiling(
            _stacked([rule.start for rule in tilings], sizes),
            _stacked([rule.stop for rule in tilings], sizes),
            sum(sizes),
        )
    return Groups(tuple(rules), tuple(first))


def _stacked(numbers: Sequence[Numbers], sizes: Sequence[int]) -> Numbers:
    """Numbers of each group, counted on over all groups."""
    starts = np.cumsum([0, *sizes[:-1]])
    return np.concatenate([each + start for each, start in zip(numbers, starts, strict=True)])
