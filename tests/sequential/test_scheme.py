"""Coding across rounds: all patterns tolerated by few workers; loads; simulated times."""

import pytest

from fastgc.sequential import (
    MSGC,
)


def test_partitions_are_shared_by_the_parts_of_a_job():
    scheme = MSGC(4, burst=2, window=3, stragglers=1)
    held = [j for part in range(len(scheme.parts)) for j in scheme.partitions(part)]
    assert held == list(range(scheme.k))
    assert [len(scheme.partitions(part)) for part in range(4)] == [8, 8, 4, 4]
    with pytest.raises(ValueError, match="part 4 does not exist"):
        scheme.partitions(4)


def test_schedule_has_rounds_one_after_another():
    schedule = MSGC(4, burst=1, window=2, stragglers=1).schedule()
    with pytest.raises(RuntimeError, match="no round has begun"):
        schedule.enough([0])
    schedule.begin()
    with pytest.raises(RuntimeError, match="end it before"):
        schedule.begin()
    with pytest.raises(ValueError, match="workers from 0 to 3"):
        schedule.end([0, 1, 4])
    with pytest.raises(ValueError, match="cannot end yet"):
        schedule.end([0, 2])  # one of two groups is missing
    assert schedule.end([0, 1, 2, 3]) == []
    assert (schedule.round, schedule.jobs, schedule.idle) == (1, [0], False)
