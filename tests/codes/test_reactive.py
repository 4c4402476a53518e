"""Reactive redundancy: who computes a share in place of its owner."""

from fastgc import Reactive


def test_holders_are_the_workers_after_the_owner():
    scheme = Reactive(5, 7, holders=3).scheme
    assert [scheme.holders.of(i) for i in (0, 3, 4)] == [[0, 1, 2], [3, 4, 0], [4, 0, 1]]
    assert (scheme.holders.stand_ins, scheme.load, scheme.known_stragglers()) == (2, 2, 0)
