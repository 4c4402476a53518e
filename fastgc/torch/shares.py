"""Shares of a batch: who computes which of its indices, from measured paces.

Shares are parts of the places 0, …, size − 1 of a batch: ascending lists of half-open intervals
that do not touch. All ranks compute the same shares from the same numbers, so every function here
is one of its arguments alone.
"""

from __future__ import annotations

from collections.abc import Sequence

Intervals = list[tuple[int, int]]

_GAIN = 0.05  # new shares must make the slowest rank faster by this much
_SMALL = 0.25  # a rank whose pace is unknown gets this part of the slowest known one's share


def counts(size: int, paces: Sequence[float], least: int = 1) -> list[int]:
    """Deal `size` samples in proportion to paces, at least `least` to each rank, as far as they go.

    A pace of 0 is unknown: it counts as a part of the slowest known one, or as all others' if none
    is known. If there are too few samples, the fastest ranks get some. Whole numbers by largest
    remainders; ties go to the first.
    """
    known = [pace for pace in paces if pace > 0]
    small = _SMALL * min(known) if known else 1.0
    speeds = [pace if pace > 0 else small for pace in paces]
    order = sorted(range(len(speeds)), key=lambda i: (-speeds[i], i))
    given = sorted(order[: max(1, size // least)])
    whole = sum(speeds[i] for i in given)
    exact = [size * speeds[i] / whole for i in given]
    found = [max(min(least, size), int(each)) for each in exact]
    while sum(found) > size:  # those of at least `least` have taken too many
        found[max(range(len(found)), key=lambda i: (found[i], -i))] -= 1
    rest = sorted(range(len(exact)), key=lambda i: (found[i] - exact[i], i))
    for at in range(size - sum(found)):
        found[rest[at % len(rest)]] += 1
    dealt = [0] * len(paces)
    for i, count in zip(given, found, strict=True):
        dealt[i] = count
    return dealt


def steady(
    size: int, paces: Sequence[float], before: Sequence[int] | None, least: int = 1
) -> list[int]:
    """Return `counts`, or the counts `before`, unless the new ones are worth a change.

    A change of a share's size has a price: kernels are chosen or compiled anew for it.
    """
    new = counts(size, paces, least)
    if before is None or len(before) != len(new) or sum(before) != size:
        return new
    if any(pace <= 0 for pace in paces):
        return new

    def seconds(dealt: Sequence[int]) -> float:
        return max(count / pace for count, pace in zip(dealt, paces, strict=True))

    return new if seconds(new) < (1 - _GAIN) * seconds(before) else list(before)


def cut(dealt: Sequence[int], free: Intervals) -> list[Intervals]:
    """Cut the places in `free` into shares of the sizes `dealt`, in order."""
    shares: list[Intervals] = []
    left = list(free)
    for count in dealt:
        share: Intervals = []
        while count and left:
            begin, end = left.pop(0)
            taken = min(count, end - begin)
            share.append((begin, begin + taken))
            count -= taken
            if begin + taken < end:
                left.insert(0, (begin + taken, end))
        shares.append(share)
    return shares


def length(intervals: Intervals) -> int:
    """Return the number of places."""
    return sum(end - begin for begin, end in intervals)


def joined(*several: Intervals) -> Intervals:
    """Return the places of several disjoint lists."""
    found: Intervals = []
    for begin, end in sorted(each for one in several for each in one):
        if found and found[-1][1] == begin:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return found


def missing(size: int, intervals: Intervals) -> Intervals:
    """Return the places that are not in `intervals`."""
    found, at = [], 0
    for begin, end in [*intervals, (size, size)]:
        if at < begin:
            found.append((at, begin))
        at = end
    return found


def overlap(a: Intervals, b: Intervals) -> bool:
    """Whether two lists have a place in common."""
    return any(begin < end2 and begin2 < end for begin, end in a for begin2, end2 in b)


def settle(size: int, had: Sequence[Intervals]) -> tuple[list[bool], Intervals]:
    """Decide whose sums count, and what nobody has.

    What a rank has is one sum: all of it counts, or nothing. So of ranks whose places overlap, the
    first counts.
    """
    taken: Intervals = []
    counts_: list[bool] = []
    for own in had:
        counts_.append(not overlap(own, taken))
        if counts_[-1]:
            taken = joined(taken, own)
    return counts_, missing(size, taken)
