"""Messages as edges of a graph: copies are parallel edges, and checks are circles.

A message is an edge if it is the difference of what two points stand for: a sum over an interval is
the difference of two partial sums. Every path between its ends is another way to compute it. By
Menger's theorem, the largest number of paths without a common edge is the least number of edges
that cut the ends apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ends", "Network", "Pair", "parallel"]

Ends = NDArray[np.int64]  # (messages, 2)
Pair = tuple[int, int]


def parallel(ends: Ends, kept: NDArray[np.int64]) -> dict[Pair, NDArray[np.int64]]:
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
    """Points joined by edges.

    Parameters
    ----------
    strands : mapping
        The edges between two points; the lower point is named first.
    """

    def __init__(self, strands: Mapping[Pair, Sequence[int] | NDArray[np.int64]]) -> None:
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

        Parameters
        ----------
        source, target, most : int
        without : pair of int, optional
            Leave out the edges between these points; the lower point is named first.

        Returns
        -------
        found : int
        along : dict
            How many of the paths pass from one point to the next, for each pair; the negative of
            that for the pair reversed.

        Notes
        -----
        Ford and Fulkerson's algorithm (1956) with shortest paths, as in Edmonds and Karp's (1972).
        Each path is taken as often as its edges allow.
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

        Parameters are those of `flow`.

        Returns
        -------
        list of list of (edge, sign)
            Sign 1 if the edge is passed from its lower end to the higher, else -1.
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
