"""Coupon collector's codes of Li et al.: thresholds on average, batches and loads."""

import numpy as np
import pytest
from scipy import stats
from strength import much

from fastgc import CouponCollector, NotDecodableError, RandomAssignment
from fastgc.codes.random_assignment import distinct_draws


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


@pytest.mark.parametrize(("m", "r"), [*much([(50, 10), (100, 10), (40, 7)], []), (30, 30), (20, 5)])
def test_coupon_collector_threshold(m, r):
    """Eq. (2) and Theorem 1: on average over seeds, ceil(m/r) H_ceil(m/r) workers."""
    batches = -(-m // r)
    expected = batches * harmonic(batches)
    waited = []
    for seed in range(much(150, 75)):
        # Far more workers than needed, so that coverage does not restrict the draws.
        code = CouponCollector(40 * batches, m, load=r, seed=seed)
        found = code.recovery(trials=8, seed=seed)
        assert found.communication_load == found.messages == found.workers
        waited.append(found.workers)
    assert np.mean(waited) == pytest.approx(expected, rel=0.06)


def test_a_million_workers():
    code = CouponCollector(10**6, load=10**4, seed=3)
    assert code.scheme.loads.sum() == 10**10
    assert code.stragglers == np.bincount(code.scheme.cells.cell).min() - 1
    holders = np.bincount(code.scheme.cells.cell, minlength=100)
    assert stats.chisquare(holders).pvalue > 1e-3
    assert (
        code.partitions(10**6 - 1)[0]
        == 10**4 * distinct_draws(3, np.array([10**6 - 1]), 100, 1)[0, 0]
    )


def test_last_batch_may_be_smaller():
    code = CouponCollector(30, 10, load=4)
    assert {tuple(code.partitions(i)) for i in range(30)} == {
        (0, 1, 2, 3),
        (4, 5, 6, 7),
        (8, 9),
    }


def test_one_worker_alone():
    for code in (CouponCollector(1, 3, load=3), CouponCollector(1, 3, loads=[3])):
        assert (code.load, code.stragglers) == (3, 0)
        np.testing.assert_array_equal(code.matrix().sum(axis=0), 1)


def test_duplicates_are_dropped():
    code = CouponCollector(12, 9, load=3, seed=0)
    batch = np.array([code.partitions(i)[0] for i in range(12)])
    vector = code.decoding_vector(range(12))
    assert vector.sum() == 3
    for b in (0, 3, 6):
        assert np.flatnonzero(vector * (batch == b)).tolist() == [np.argmax(batch == b)]
    F = np.flatnonzero(batch != 3)
    with pytest.raises(NotDecodableError) as caught:
        code.decoding_vector(F)
    assert caught.value.missing == 1


def test_generalised_scheme_sends_each_partial_gradient():
    loads = [3, 1, 4, 4, 5]
    code = CouponCollector(5, 6, loads=loads, seed=3)
    assert not code.scheme.messages.together.any()
    np.testing.assert_array_equal(code.scheme.messages.shares[:4], [1 / 3, 2 / 3, 1, 1])
    assert code.scheme.loads.tolist() == code.scheme.messages.counts == loads
    assert code.scheme.messages.per_worker == 5
    assert code.scheme.messages.count == 17
    assert all(code.partitions(i, t).size == 1 for i in range(5) for t in range(loads[i]))
    alike = RandomAssignment(5, 6, load=loads, seed=3)
    np.testing.assert_array_equal(code.matrix(), alike.matrix())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "give load= .* or loads="),
        ({"load": 2, "loads": [1] * 4}, "give load= .* or loads="),
        ({"load": 0}, "load must be in 1 .. k = 4, not 0"),
        ({"load": 5}, "load must be in 1 .. k = 4, not 5"),
        ({"loads": [1, 2]}, "4 workers need 4 loads, not 2"),
        ({"load": 4, "seed": -1}, "seed must be at least 0"),
        ({"loads": [1, 2, 10**400, 1]}, "load must be in 1 .. k = 4, not 1000"),
        ({"load": 2, "send": "later"}, 'send must be "each" or "together", not \'later\''),
    ],
)
def test_impossible_coupon_collector(arguments, says):
    with pytest.raises(TypeError, match="load must be an integer"):
        CouponCollector(4, load=[2, 1, 1, 1])
    with pytest.raises(ValueError, match=says):
        CouponCollector(4, **arguments)
