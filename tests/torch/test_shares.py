"""Who computes which places of a batch: counts by pace, intervals, and whose sums count."""

import random

import pytest
from strength import much

from fastgc.torch import shares


def places(intervals):
    return [place for begin, end in intervals for place in range(begin, end)]


@pytest.mark.parametrize(
    ("size", "paces", "expected"),
    [
        (120, [3, 3, 3, 1], [36, 36, 36, 12]),
        (7, [1, 1, 1], [3, 2, 2]),
        (4, [100, 1, 1], [2, 1, 1]),
        (2, [1, 3, 2], [0, 1, 1]),
        (8, [0, 0], [4, 4]),
        (9, [1, 1, 0], [4, 4, 1]),  # a newcomer starts small
        (1, [5], [1]),
    ],
)
def test_counts(size, paces, expected):
    assert shares.counts(size, paces) == expected


def test_counts_give_at_least_so_many():
    assert shares.counts(10, [100, 1, 1], least=2) == [6, 2, 2]
    assert shares.counts(5, [1, 3, 2], least=2) == [0, 3, 2]
    assert shares.counts(1, [1, 3, 2], least=2) == [0, 1, 0]


@pytest.mark.parametrize("seed", range(much(2000, 20)))
def test_counts_are_whole_and_near_the_paces(seed):
    rng = random.Random(seed)
    paces = [rng.choice([0, 1, rng.random(), 100 * rng.random()]) for _ in range(rng.randint(1, 9))]
    size, least = rng.randint(1, 200), rng.randint(1, 3)
    dealt = shares.counts(size, paces, least)
    assert sum(dealt) == size
    if size >= least * len(paces):
        assert min(dealt) >= least
    if least == 1 and min(paces) > 0 and min(size * p / sum(paces) for p in paces) >= 1:
        assert all(abs(n - size * p / sum(paces)) < 1 for n, p in zip(dealt, paces, strict=True))


def test_steady_changes_shares_only_where_it_pays():
    assert shares.steady(100, [1.0, 1.02], [50, 50]) == [50, 50]
    assert shares.steady(100, [1.0, 3.0], [50, 50]) == [25, 75]
    assert shares.steady(100, [1.0, 0.0], [90, 10]) == [80, 20]  # unknown paces
    assert shares.steady(80, [1.0, 1.0], [50, 50]) == [40, 40]  # another batch
    assert shares.steady(100, [1.0, 1.0, 1.0], [50, 50]) == [34, 33, 33]  # other ranks
    assert shares.steady(100, [1.0, 1.0], None) == [50, 50]


@pytest.mark.parametrize("seed", range(much(2000, 20)))
def test_settle_and_cut_make_each_place_count_once(seed):
    rng = random.Random(seed)
    size, ranks = rng.randint(1, 40), rng.randint(1, 5)
    had = []
    for _ in range(ranks):
        found = []
        for _ in range(rng.randint(0, 3)):
            begin = rng.randrange(size)
            piece = [(begin, rng.randint(begin + 1, size))]
            if not shares.overlap(found, piece):
                found = shares.joined(found, piece)
        had.append(found)
    counted, free = shares.settle(size, had)
    kept = [each for each, counts in zip(had, counted, strict=True) if counts]
    more = shares.cut(shares.counts(shares.length(free), [1.0] * ranks) if free else [], free)
    assert sorted(p for each in [*kept, *more] for p in places(each)) == list(range(size))
    for each, counts in zip(had, counted, strict=True):
        assert counts or any(shares.overlap(each, other) for other in kept)


def test_intervals():
    assert shares.joined([(0, 2), (5, 6)], [(2, 4)]) == [(0, 4), (5, 6)]
    assert shares.missing(8, [(0, 2), (5, 6)]) == [(2, 5), (6, 8)]
    assert shares.missing(3, [(0, 3)]) == []
    assert shares.overlap([(0, 2)], [(1, 4)])
    assert not shares.overlap([(0, 2)], [(2, 4)])
    assert shares.length([(0, 2), (5, 6)]) == 3
    assert shares.cut([2, 0, 3], [(0, 1), (4, 8)]) == [[(0, 1), (4, 5)], [], [(5, 8)]]
