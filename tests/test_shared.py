"""Workers that share processors agree with closed forms and hand computation, and unshared ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastgc
from fastgc.delays import Empirical, Exponential
from fastgc.planning.simulation import follow, simulate

CODES = [
    fastgc.ReedSolomon(6, stragglers=2),
    fastgc.BinaryCode(6, stragglers=1),
    fastgc.FractionalRepetition(6, stragglers=2),
    fastgc.Uncoded(6, load=3),
    fastgc.RandomAssignment(6, load=4, seed=0),
    fastgc.RandomAssignment(6, load=4, seed=0, send="together"),
    fastgc.LagrangeCode(6, load=3),
]


@pytest.mark.parametrize("code", CODES, ids=repr)
@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.parametrize("processors", [6, 40.5, [3, 1, 4, 1.5, 9, 2]])
@pytest.mark.parametrize("per", ["round", "computation"])
def test_a_processor_for_each_is_as_none_shared(code, interrupted, processors, per):
    settings = {
        "cost": [0.2, 0.3, 0.25, 0.2, 0.4, 0.3],
        "receive": 0.07,
        "overhead": 0.1,
        "rounds": 60,
        "interrupted": interrupted,
    }
    late = Exponential(0.5, per)
    mine = simulate(code, late, processors=processors, **settings)
    theirs = simulate(code, late, **settings)
    np.testing.assert_allclose(mine.times, theirs.times, rtol=1e-9)
    assert np.array_equal(mine.messages, theirs.messages)
    assert np.array_equal(mine.workers, theirs.workers)
    assert np.array_equal(mine.computations, theirs.computations)


@given(
    works=st.lists(st.integers(1, 50), min_size=2, max_size=8),
    lost=st.integers(0, 7),
)
def test_one_processor_of_all(works, lost):
    """On one processor, T_f is the f - 1 smallest works plus n - f + 1 times the f-th."""
    n = len(works)
    code = fastgc.ReedSolomon(n, stragglers=lost % n)
    found = simulate(code, cost=works, rounds=1, processors=1).times[0]
    each, f = np.sort(works) * code.load, code.threshold
    assert found == pytest.approx(each[: f - 1].sum() + (n - f + 1) * each[f - 1])


@pytest.mark.parametrize("processors", [1, 2, 2.5, 5, 12, 30])
def test_equal_workers_take_turns(processors):
    """They begin and end together, and coding costs exactly what it computes."""
    for s in (0, 2, 5):
        code = fastgc.ReedSolomon(12, stragglers=s)
        run = simulate(code, cost=0.01, rounds=5, processors=processors, interrupted=False)
        expected = 0.01 * (s + 1) * max(1, 12 / processors)
        np.testing.assert_allclose(run.times, expected)


def test_those_on_one_processor_share_it():
    run = simulate(fastgc.Uncoded(5), cost=1.0, rounds=1, processors=[7, 7, 7, 2, 2])
    assert run.times == pytest.approx(3)
    code = fastgc.FractionalRepetition(4, stragglers=1)
    assert np.array_equal(code.partitions(0), code.partitions(2))
    each = {"cost": [1, 1, 9, 9], "rounds": 1}
    assert simulate(code, processors=[0, 1, 2, 3], **each).times == pytest.approx(2)
    assert simulate(code, processors=[0, 1, 0, 1], **each).times == pytest.approx(4)


def test_late_work_takes_its_share():
    """By hand: two workers with 2 s of work, one of them 0.9 s late, on one processor."""
    code, late = fastgc.FractionalRepetition(2, stragglers=1), Empirical([[0.0, 0.9]])
    settings = {"cost": 1.0, "rounds": 4, "processors": 1}
    run = simulate(code, late, interrupted=False, **settings)
    # 0.9 s alone, then 2.2 s shared; the late one still has 0.9 s to do, and so on.
    np.testing.assert_allclose(run.times, [3.1, 3.1, 3.8, 3.3])
    np.testing.assert_allclose(simulate(code, late, **settings).times, 3.1)
    # Between rounds the late worker has the processor to itself.
    rested = simulate(code, late, interrupted=False, overhead=0.9, **settings)
    np.testing.assert_allclose(rested.times, 3.1)


@given(
    seed=st.integers(0, 100),
    processors=st.floats(0.5, 8),
    index=st.integers(0, len(CODES) - 1),
)
def test_no_more_is_computed_than_there_are_processors(seed, processors, index):
    code = CODES[index]
    settings = {"cost": 0.3, "rounds": 20, "seed": seed}
    late = Exponential(0.5)
    for interrupted in (True, False):
        run = simulate(code, late, processors=processors, interrupted=interrupted, **settings)
        assert 0.3 * run.computations.sum() <= processors * run.times.sum() * (1 + 1e-9)
        alone = simulate(code, late, **settings)
        if interrupted:
            assert (run.times >= alone.times * (1 - 1e-9)).all()


@pytest.mark.parametrize("receive", [0.0, 0.3])
@pytest.mark.parametrize("interrupted", [True, False])
def test_rounds_can_be_followed(receive, interrupted):
    settings = {"cost": 0.5, "rounds": 20, "receive": receive, "interrupted": interrupted}
    for code in CODES:
        run = simulate(code, Exponential(1.0), processors=2, **settings)
        rounds = follow(code, Exponential(1.0), processors=2, **settings).rounds
        assert [each.wait for each in rounds] == run.times.tolist()
        assert [each.received.size for each in rounds] == run.messages.tolist()
        for each in rounds:
            assert (np.diff(each.arrivals) >= receive - 1e-12).all()
            assert each.arrivals[-1] == pytest.approx(each.wait)


@pytest.mark.parametrize(
    ("processors", "error", "says"),
    [
        (0, ValueError, "processors must be"),
        (-1, ValueError, "processors must be"),
        (float("nan"), ValueError, "processors must be"),
        ("two", TypeError, "processors must be"),
        ([0, 1], ValueError, "how many all 6 workers share, or name the processor of each"),
    ],
)
def test_processors_that_there_are_not(processors, error, says):
    with pytest.raises(error, match=says):
        simulate(CODES[0], processors=processors, rounds=1)
    with pytest.raises(ValueError, match='processors need method="auto"'):
        simulate(CODES[0], processors=2, method="round", rounds=1)
