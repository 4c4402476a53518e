"""Parts of a job, the rounds of a schedule, and jobs that are independent of each other."""

import numpy as np
import pytest

import fastgc
from fastgc.sequential import MSGC, Independent, Schedule


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


def test_schedule_of_independent_jobs():
    schedule = Independent(fastgc.FractionalRepetition(4, stragglers=1)).schedule()
    assert (schedule.round, schedule.jobs, schedule.idle) == (0, [], True)
    assert schedule.begin(job=False).age.tolist() == [[-1]] * 4
    assert schedule.enough([])
    assert schedule.end([]) == []
    tasks = schedule.begin()
    assert (tasks.age.tolist(), tasks.part.tolist()) == ([[0]] * 4, [[0]] * 4)
    assert (schedule.round, schedule.jobs, schedule.idle) == (1, [1], False)
    assert not schedule.enough([0, 2])  # copies of each other
    assert schedule.enough([0, 1])
    assert schedule.enough(np.array([True, False, False, True]))
    assert schedule.end([0, 1]) == [1]
    assert (schedule.round, schedule.jobs, schedule.idle) == (2, [], True)
    with pytest.raises(RuntimeError, match="no round has begun"):
        schedule.end([0, 1])
    with pytest.raises(TypeError, match=r"one of fastgc.sequential"):
        Schedule(fastgc.Uncoded(4))


def test_schedule_counts_rounds_of_silence():
    """Only rounds count in which a worker had tasks; an answer ends the silence."""

    class Seen(Independent):
        def tasks(self, state, live, silent):
            seen.append(silent.tolist())
            return super().tasks(state, live, silent)

    seen = []
    schedule = Seen(fastgc.ReedSolomon(4, stragglers=2)).schedule()
    for job, came in ((True, [0, 1, 2]), (False, []), (True, [0, 1]), (True, [2, 3, 1])):
        schedule.begin(job)
        schedule.end(came)
    schedule.begin()
    assert seen == [[0] * 4, [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 2], [1, 0, 0, 0]]


def test_scheme_loads_are_in_units_of_an_uncoded_share():
    scheme = MSGC(4, burst=1, window=2, stragglers=1)  # 12 partitions: 8 uncoded, 4 of two copies
    assert scheme.loads.tolist() == [[2 / 3] * 4, [2 / 3] * 4]
    assert scheme.load == pytest.approx(2 * 2 / 3)
    assert scheme.lacks(0, np.array([True, True, False, True])) == 1
    assert scheme.lacks(1, np.ones(4, bool)) == 0


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (fastgc.Uncoded(4, load=2), "one message each"),
        ("rs", "must be a code of fastgc"),
        (fastgc.LagrangeCode(4, load=4), "no combinations of real"),
        (fastgc.ReedSolomon(4, stragglers=1, packed=False), "complex"),
    ],
    ids=repr,
)
def test_independent_refused(code, says):
    with pytest.raises((TypeError, ValueError), match=says):
        Independent(code)
