"""Graphs: those that codes are made of, paths between messages, and matchings of work to ranks.

A graph that a code is made of is an (edges, 2) array of edges. Of a random one each edge has its
smaller vertex first, and edges are in ascending order.

A message is an edge if it is the difference of what two points stand for: a sum over an interval is
the difference of two partial sums. Every path between its ends is another way to compute it
(`Network`). By Menger's theorem, the largest number of paths without a common edge is the least
number of edges that cut the ends apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Floats, Ints, as_array
from ..errors import NotDecodableError

Edges = Ints
Ends = Ints  # (messages, 2)
Pair = tuple[int, int]

TRIES = 100  # random graphs until one is connected


def check_edges(graph: ArrayLike) -> Edges:
    """Return a user's graph as an array of edges, or raise an error."""
    given = as_array("graph", graph)
    if given.ndim != 2 or given.shape[1] != 2 or not len(given):
        raise ValueError(
            f"graph must be an array of edges, two vertices each, not of shape {given.shape}"
        )
    if given.dtype.kind not in "iu":
        raise TypeError(f"graph must be of integers, numbers of vertices, not {given.dtype}")
    edges = np.ascontiguousarray(given, dtype=np.int64)
    if edges.min() < 0:
        raise ValueError(f"vertices are numbered from 0, but graph has {edges.min()}")
    missing = np.setdiff1d(np.arange(min(int(edges.max()), 2 * len(edges)) + 1), edges)
    if missing.size:
        raise ValueError(f"vertex {missing[0]} of the graph has no edge")
    same = np.flatnonzero(edges[:, 0] == edges[:, 1])
    if same.size:
        raise ValueError(f"edge {same[0]} of the graph leads from {edges[same[0], 0]} to itself")
    return edges


def adjacency(edges: Edges, vertices: int) -> Floats:
    """Return the number of edges between each two vertices, (vertices, vertices)."""
    found = np.zeros((vertices, vertices))
    np.add.at(found, (edges[:, 0], edges[:, 1]), 1)
    np.add.at(found, (edges[:, 1], edges[:, 0]), 1)
    return found


def components(edges: Edges, vertices: int) -> Ints:
    """Return the component of each vertex, named by its least vertex."""
    least = np.arange(vertices)
    one, other = edges.T
    while True:
        u, v = least[one], least[other]
        low, high = np.minimum(u, v), np.maximum(u, v)
        if (low == high).all():
            return least
        np.minimum.at(least, high, low)
        while ((further := least[least]) != least).any():
            least = further


def edge_connectivity(edges: Edges, vertices: int) -> int:
    """Return the least number of edges that cut the graph (Stoer, Wagner 1997), O(vertices^3)."""
    between = adjacency(edges, vertices)
    left, least = list(range(vertices)), len(edges)
    while len(left) > 1:
        inside = between[np.ix_(left, left)]
        tied = inside[0].copy()
        tied[0] = -1
        last, before = 0, 0
        for _ in left[1:]:
            last, before = int(np.argmax(tied)), last
            cut = tied[last]
            waiting = tied >= 0
            waiting[last] = False
            tied[waiting] += inside[last, waiting]
            tied[last] = -1
        least = min(least, int(cut))
        u, v = left[before], left[last]
        between[u] += between[v]
        between[:, u] += between[:, v]
        between[u, u] = 0
        left.remove(v)
    return least


def _ordered(edges: Ints) -> Edges:
    """Each edge once, by its vertices; a number an edge is sorted faster than rows are."""
    vertices = int(edges.max(initial=0)) + 1
    keys = np.unique(edges.min(axis=1) * vertices + edges.max(axis=1))
    return np.stack(np.divmod(keys, vertices), axis=1)


def random(vertices: int, count: int, seed: int) -> Edges:
    """Return a random connected simple graph of `count` edges, whose degrees differ by at most one.

    Half-edges are paired at random. Half-edges that make a loop or a double edge change partners
    with random others, until there are none. ValueError if there is no such graph, or none is
    found.
    """
    most = vertices * (vertices - 1) // 2
    if not vertices - 1 <= count <= most:
        raise ValueError(
            f"a connected graph of {vertices} vertices has {vertices - 1} to {most} edges, "
            f"not {count}"
        )
    rng = np.random.default_rng(seed)
    for _ in range(TRIES):
        if 2 * count > most:  # the edges that it does not have are easier to draw
            u, v = np.triu_indices(vertices, 1)
            without = _paired(rng, vertices, most - count, high=False)
            kept = np.ones((vertices, vertices), dtype=bool)
            kept[without[:, 0], without[:, 1]] = False
            edges = np.stack([u, v], axis=1)[kept[u, v]]
        else:
            edges = _paired(rng, vertices, count, high=True)
        if not components(edges, vertices).any():
            return edges
    raise ValueError(
        f"none of {TRIES} random graphs of {vertices} vertices and {count} edges is connected: "
        "a larger degree makes it likely"
    )


def _paired(rng: np.random.Generator, vertices: int, count: int, high: bool) -> Edges:
    """Return a random simple graph; vertices of larger degree come first if `high`, else last."""
    least, more = divmod(2 * count, vertices)
    degree = np.full(vertices, least)
    degree[np.arange(more) if high else np.arange(vertices - more, vertices)] += 1
    ends = rng.permutation(np.repeat(np.arange(vertices), degree)).reshape(-1, 2)
    while True:
        key = ends.min(axis=1) * vertices + ends.max(axis=1)
        order = np.argsort(key, kind="stable")
        again = np.zeros(len(ends), dtype=bool)
        again[order[1:]] = key[order[1:]] == key[order[:-1]]
        bad = np.flatnonzero(again | (ends[:, 0] == ends[:, 1]))
        if not bad.size:
            return _ordered(ends)
        for i, j in zip(bad.tolist(), rng.integers(len(ends), size=bad.size), strict=True):
            ends[i, 1], ends[j, 1] = ends[j, 1], ends[i, 1]
            if rng.integers(2):
                ends[j] = ends[j, ::-1]


def max_degree(count: int) -> int:
    """Return the largest mean degree, rounded down, of a simple graph with `count` edges."""
    vertices = 2
    while vertices * (vertices - 1) < 2 * count:
        vertices += 1
    return 2 * count // vertices


def of_degree(count: int, degree: int, seed: int) -> Edges:
    """Return a random graph of `count` edges in which vertices have about this degree.

    ValueError if there is none.
    """
    largest = max_degree(count)
    if not 2 <= degree <= largest:
        raise ValueError(
            f"degree must be in 2 .. {largest} for {count} edges of a simple graph, not {degree}"
            if largest >= 2
            else f"a simple graph without ends has 3 edges or more, not {count}"
        )
    return random(round(2 * count / degree), count, seed)


def parallel(ends: Ends, kept: Ints) -> dict[Pair, Ints]:
    """Group the messages `kept` by their ends, the lower end first."""
    if not kept.size:
        return {}
    low, high = np.sort(ends[kept], axis=1).T
    order = np.lexsort((high, low))
    new = np.ones(order.size, dtype=np.bool_)
    new[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
    first = np.flatnonzero(new)
    strands = np.split(kept[order], first[1:])
    at = order[first]
    return dict(zip(zip(low[at].tolist(), high[at].tolist(), strict=True), strands, strict=True))


class Network:
    """Points joined by edges: `strands` maps two points, the lower first, to those between them."""

    def __init__(self, strands: Mapping[Pair, Sequence[int] | Ints]) -> None:
        self._strands = strands
        self._near: dict[int, list[int]] = {}
        self._room: dict[Pair, int] = {}  # each way
        for (u, v), edges in strands.items():
            if u != v and len(edges):
                self._near.setdefault(u, []).append(v)
                self._near.setdefault(v, []).append(u)
                self._room[u, v] = self._room[v, u] = len(edges)

    def others(self, pair: Pair) -> int:
        """Bound the number of edge-disjoint paths between two points, direct edges left out."""
        direct = self._room.get(pair, 0)
        return min(sum(self._room[u, v] for v in self._near.get(u, ())) for u in pair) - direct

    def flow(
        self, source: int, target: int, most: int, *, without: Pair | None = None
    ) -> tuple[int, dict[Pair, int]]:
        """Return how many edge-disjoint paths lead from `source` to `target`, up to `most`.

        Edges between the points `without`, the lower first, are left out. Also return for each pair
        of points how many of the paths pass from one to the other, less those that come back. This
        is Ford and Fulkerson's algorithm (1956) with shortest paths, as in Edmonds and Karp's
        (1972). Each path is taken as often as its edges allow.
        """
        room = self._room.copy()
        if without in room:
            u, v = without
            room[u, v] = room[v, u] = 0
        whole = room.copy()
        found = 0
        while found < most:
            came_from = {source: source}
            ahead = deque([source])
            while ahead and target not in came_from:
                here = ahead.popleft()
                for there in self._near.get(here, ()):
                    if there not in came_from and room[here, there]:
                        came_from[there] = here
                        ahead.append(there)
            if target not in came_from:
                break
            steps, here = [], target
            while here != source:
                steps.append((came_from[here], here))
                here = came_from[here]
            wide = min(most - found, *(room[step] for step in steps))
            for u, v in steps:
                room[u, v] -= wide
                room[v, u] += wide
            found += wide
        return found, {
            pair: whole[pair] - left for pair, left in room.items() if left != whole[pair]
        }

    def disjoint_paths(
        self, source: int, target: int, most: int, *, without: Pair | None = None
    ) -> list[list[tuple[int, int]]]:
        """Return up to `most` edge-disjoint paths; of parallel edges, the first are used first.

        Arguments are those of `flow`. A path consists of edges, each with a sign: 1 if it is passed
        from its lower end to the higher, else -1.
        """
        found, along = self.flow(source, target, most, without=without)
        next_of: dict[int, list[int]] = {}
        for (u, v), passing in along.items():
            next_of.setdefault(u, []).extend([v] * passing)
        taken: dict[Pair, int] = {}
        paths = []
        for _ in range(found):
            points = [source]
            while points[-1] != target:
                there = next_of[points[-1]].pop()
                if there in points:  # a circle, which leads nowhere
                    del points[points.index(there) + 1 :]
                else:
                    points.append(there)
            path = []
            for u, v in pairwise(points):
                pair = (u, v) if u < v else (v, u)
                number = taken.get(pair, 0)
                path.append((self._strands[pair][number], 1 if u < v else -1))
                taken[pair] = number + 1
            paths.append(path)
        return paths


def owners(holders: Sequence[Collection[int]], ranks: Iterable[int]) -> list[int]:
    """Return one holder for each partition, so that the largest number at one rank is least.

    `holders` are the ranks that hold each partition, and `ranks` those that are there;
    NotDecodableError if none of them holds some partition. It is a bipartite matching by augmenting
    paths. Each rank has one place at first, and one more whenever partitions are left over. So as
    many ranks as possible own something. Equal sets of ranks give the same owners, in whatever
    order they are given.
    """
    there = set(ranks)
    able = [sorted(there.intersection(each)) for each in holders]
    if lost := [j for j, each in enumerate(able) if not each]:
        raise NotDecodableError(f"no rank is left that holds partitions {lost}", 1)
    own: dict[int, set[int]] = {r: set() for r in there}
    of: list[int] = [-1] * len(able)
    left, places = list(range(len(able))), 0
    while left:
        places += 1
        left = [j for j in left if not _place_by_path(j, able, own, of, places)]
    return of


def _place_by_path(
    j: int, able: list[list[int]], own: dict[int, set[int]], of: list[int], places: int
) -> bool:
    """Give a partition to a rank with a free place, moving others for it; False if none is free."""
    first = min(able[j], key=lambda r: len(own[r]))
    if len(own[first]) < places:
        own[first].add(j)
        of[j] = first
        return True
    # By rank: the partition that would move there, and the rank it would leave.
    came_from: dict[int, tuple[int, int]] = {}
    ahead = deque([(j, -1)])
    while ahead:
        part, here = ahead.popleft()
        for r in sorted(able[part], key=lambda r: len(own[r])):
            if r in came_from:
                continue
            came_from[r] = part, here
            if len(own[r]) < places:
                while r >= 0:
                    part, here = came_from[r]
                    if here >= 0:
                        own[here].discard(part)
                    own[r].add(part)
                    of[part] = r
                    r = here
                return True
            ahead.extend((other, r) for other in sorted(own[r]))
    return False
