"""Partial work counts: orders of computation, rounds and simulations."""

import itertools

import numpy as np
import pytest

from fastgc import PartialWork, Uncoded
from fastgc.codes.partial_work import in_good_order

pytestmark = pytest.mark.timeout(30)  # orders are improved until nothing helps: that must end

ANY = [[0, 1, 3], [2, 1], [3, 2, 0]]  # an assignment of four partitions


def sums(order, k):
    """Return for each partition what is not computed if all its holders stop before it."""
    return [sum(len(mine) - mine.index(j) for mine in order if j in mine) for j in range(k)]


def least_sum(order, k):
    return min(sums(order, k))


def computations_that_suffice(order, k):
    """Return the number of computations that suffice, by trying how far each worker got."""
    lengths = [range(len(mine) + 1) for mine in order]
    most = -1
    for done in itertools.product(*lengths):
        came = {j for mine, t in zip(order, done, strict=True) for j in mine[:t]}
        if len(came) < k:
            most = max(most, sum(done))
    return most + 1


def assignments(count, workers, partitions, load):
    """Yield random assignments that hold every partition, with their numbers of partitions."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        n, k = rng.integers(1, workers + 1), int(rng.integers(1, partitions + 1))
        held = [rng.permutation(k)[: rng.integers(1, min(load, k) + 1)].tolist() for _ in range(n)]
        for j in set(range(k)).difference(*held):
            held[j % n].append(j)
        yield held, k


def test_the_threshold_is_what_suffices_however_far_each_worker_gets():
    for (held, k), ordered in itertools.product(assignments(40, 4, 4, 3), (False, True)):
        code = PartialWork(len(held), k, assignment=held, ordered=ordered)
        order = [code.partitions(i).tolist() for i in range(code.n)]
        assert code.threshold == computations_that_suffice(order, k)
        assert [sorted(mine) for mine in order] == [sorted(mine) for mine in held]
        if not ordered:
            assert order == held
        # This is also the paper's metric.
        assert code.threshold == code.scheme.messages.count - least_sum(order, k) + 1


def test_orders_are_the_best_or_one_computation_short_of_it():
    for held, k in assignments(100, 3, 4, 3):
        best = max(
            least_sum(order, k)
            for order in itertools.product(*(map(list, itertools.permutations(m)) for m in held))
        )
        found = in_good_order(held, k)
        assert best - 1 <= least_sum(found, k) <= best
        squares = np.square(sums(found, k)).sum()
        for mine in found:  # no worker could swap two of its partitions for the better
            for a, b in itertools.combinations(range(len(mine)), 2):
                mine[a], mine[b] = mine[b], mine[a]
                assert np.square(sums(found, k)).sum() >= squares
                mine[a], mine[b] = mine[b], mine[a]


@pytest.mark.parametrize(("n", "load"), [(5, 2), (7, 3), (30, 8), (60, 20), (4, 4)])
def test_where_each_is_held_as_often_as_workers_hold_no_order_is_better(n, load):
    rng = np.random.default_rng(n)
    renamed, shifts = rng.permutation(n), rng.permutation(n)[:load]
    held = [rng.permutation(renamed[(i + shifts) % n]).tolist() for i in range(n)]
    mean = load * (load + 1) // 2  # the mean of the sums, which bounds the least of them
    assert least_sum(in_good_order(held, n), n) == mean
    assert least_sum(held, n) < mean or load == 1
    # The default order, around the circle, is one of the best.
    assert PartialWork(n, load=load).threshold == n * load - mean + 1


def test_rounds_take_as_long_as_those_of_uncoded_with_the_same_load():
    one, other = PartialWork(6, load=3), Uncoded(6, load=3)
    assert np.array_equal(one.matrix(), other.matrix())
    assert (one.threshold, one.stragglers) == (other.threshold, other.stragglers) == (13, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({}, ValueError, "either load or assignment"),
        ({"load": 2, "assignment": ANY}, ValueError, "either load or assignment"),
        ({"load": 1}, ValueError, r"load must be in k/n = 2 .. k = 4, not 1"),
        ({"load": 5}, ValueError, "not 5"),
        ({"load": 2.5}, TypeError, "load"),
        ({"assignment": ANY[:2]}, ValueError, "a list for each of n=3 workers, not 2"),
        ({"assignment": [[0, 1], [], [2, 3]]}, ValueError, "worker 1 no partition"),
        ({"assignment": [[0, 1], [1, 1], [2, 3]]}, ValueError, "twice for worker 1"),
        ({"assignment": [[0, 1], [4], [2, 3]]}, ValueError, "worker 1 partition 4"),
        ({"assignment": [[0], [1], [3]]}, ValueError, "partition 2 to no worker"),
        ({"assignment": [[0.5], [1], [3]]}, TypeError, "partition"),
    ],
)
def test_what_does_not_fit_is_said(arguments, error, text):
    with pytest.raises(error, match=text):
        PartialWork(3, 4, **arguments)
