"""Who computes what, of those that hold it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ..errors import NotDecodableError

__all__ = ["owners"]


def owners(holders: Sequence[Sequence[int]], ranks: Iterable[int]) -> list[int]:
    """One holder for each partition, among these ranks, so that the largest share is the least.

    Parameters
    ----------
    holders : sequence of sequences of int
        Of each partition, the ranks that hold it.
    ranks : iterable of int
        Those that are there.

    Raises
    ------
    NotDecodableError
        If none of them holds some partition.

    Notes
    -----
    A bipartite matching in which each rank has one place, by augmenting paths, and one more while
    there are partitions that found none: as many ranks as can be own something. The same ranks have
    the same owners, in whatever order they are given.
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
    """Give a partition to a rank with a place, others moving on for it; whether there is one."""
    first = min(able[j], key=lambda r: len(own[r]))
    if len(own[first]) < places:
        own[first].add(j)
        of[j] = first
        return True
    came_from: dict[
        int, tuple[int, int]
    ] = {}  # of a rank: the partition that goes there, from where
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
