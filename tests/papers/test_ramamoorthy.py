"""The figure of Ramamoorthy et al.: times of partial work by its definition."""

import numpy as np
import pytest
from papers import ramamoorthy


def test_partial_work_halves_the_time_in_the_best_order(checked):
    rows = checked(ramamoorthy.figure_3(n=12, load=3, rounds=3000))
    assert all(row.paper is None for row in rows.values())  # the paper has 200 workers
    [ratio] = [row.ours for what, row in rows.items() if "over time by partial work" in what]
    assert 1.3 < ratio < 2.6
    for kind in ramamoorthy.STORED:
        for some in (1, 2, 3):
            whole, random, ours = (
                rows[f"completion time, {kind} assignment, {label}, ℓ = {some}"].ours
                for label in ramamoorthy.KINDS
            )
            assert whole >= random >= ours
            assert (whole == ours) == (some == 3)  # equal if all three holders must finish
    one, other = (row for what, row in rows.items() if "suffice" in what or "is best" in what)
    assert one.ours == one.closed == 31
    assert other.ours == other.closed == 90
    [random] = [row for what, row in rows.items() if "random order over" in what]
    assert random.ours > 1


def test_times_of_partial_work_are_the_authors(checked):
    figure = ramamoorthy.figure_3(rounds=15)
    rows = checked(figure)
    stored = [row for row in rows.values() if row.paper is not None]
    assert len(stored) == 2 * 9 + 1
    for row in stored:  # few rounds
        assert row.ours == pytest.approx(row.paper, rel=0.3), row.what
    assert sum(row.ok for row in stored) > len(stored) / 2


@pytest.mark.parametrize(("copies", "failed"), [(1, 0), (2, 0), (1, 2)])
def test_completion_times_are_those_of_the_definition(copies, failed):
    held = [[0, 1], [1, 2], [2, 0], [0, 2, 1]]
    partial_work, whole = ramamoorthy.completion_times(held, copies, 20, 3, failed)
    speeds = ramamoorthy.drawn_speeds(np.random.default_rng(3), 20, 4, failed)
    assert (np.isinf(speeds).sum(axis=1) == failed).all()
    for row, one, other in zip(speeds, partial_work, whole, strict=True):
        done = {
            j: sorted(
                (row[i] * (mine.index(j) + 1), row[i] * len(mine))
                for i, mine in enumerate(held)
                if j in mine
            )
            for j in range(3)
        }
        assert one == max(each[copies - 1][0] for each in done.values())
        assert other == max(sorted(end for _, end in each)[copies - 1] for each in done.values())
    with pytest.raises(ValueError, match="load must be from 2 to below n=4"):
        ramamoorthy.figure_3(n=4, load=4)


@pytest.mark.parametrize(("n", "load"), [(3, 2), (9, 4), (30, 12)])
def test_regular_assignments_are(n, load):
    held = ramamoorthy.regular_assignment(n, load, np.random.default_rng(0))
    assert [len(set(mine)) for mine in held] == [load] * n
    assert np.bincount(np.ravel(held)).tolist() == [load] * n
