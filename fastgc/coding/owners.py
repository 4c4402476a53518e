"""Which rank computes a partition, of those that hold it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ..errors import NotDecodableError

__all__ = ["owners"]


def owners(holders: Sequence[Sequence[int]], ranks: Iterable[int]) -> list[int]:
    """Return one holder for each partition, so that the largest number at one rank is least.

    Parameters
    ----------
    holders : sequence of sequences of int
        For each partition, the ranks that hold it.
    ranks : iterable of int
        The ranks that are there.

    Raises
    ------
    NotDecodableError
        If none of `ranks` holds some partition.

    Notes
    -----
    It is a bipartite matching by augmenting paths. Each rank has one place at first, and one more
    whenever partitions are left over. So as many ranks as possible own something. Equal sets of
    ranks give the same owners, in whatever order they are given.
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
