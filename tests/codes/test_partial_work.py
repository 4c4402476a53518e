"""Partial work counts: orders of computation, rounds and simulations."""

import itertools
from functools import partial

import numpy as np
import pytest

from fastgc import NotDecodableError, PartialWork, Uncoded
from fastgc.codes.partial_work import in_good_order
from fastgc.delays import Pareto, ShiftedExponential
from fastgc.engines import LocalCluster, SimulatedCluster
from fastgc.planning.simulation import simulate

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


# --------------------------------------------------------------------------------------- orders


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


def test_one_message_of_each_partition_is_taken():
    rng = np.random.default_rng(1)
    for held, k in assignments(100, 6, 6, 4):
        code = PartialWork(len(held), k, assignment=held)
        came = rng.permutation(code.scheme.messages.count)[
            : rng.integers(code.scheme.messages.count + 1)
        ].tolist()
        cells = [int(code.partitions(*code.scheme.messages.sender(m))[0]) for m in came]
        if len(set(cells)) < k:
            with pytest.raises(NotDecodableError):
                code.decoding_vector(came)
            continue
        vector = code.decoding_vector(came)
        assert set(vector) <= {0.0, 1.0}
        assert sorted(np.array(cells)[vector == 1].tolist()) == list(range(k))


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


# ------------------------------------------------------------------------------------- simulation

SPEEDS = ShiftedExponential(shift=0.01, rate=10, per="computation")
LATE = Pareto(scale=0.005, shape=2.5)


@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.parametrize("delays", [SPEEDS, LATE, None])
def test_rounds_are_simulated_as_message_by_message(delays, interrupted):
    code = PartialWork(8, 12, load=5)
    run = partial(simulate, code, delays, cost=1e-3, rounds=60, interrupted=interrupted, seed=1)
    fast, proof = run(), run(method="round")
    np.testing.assert_allclose(fast.times, proof.times, rtol=1e-12)
    for name in ("messages", "workers", "computations"):
        assert np.array_equal(getattr(fast, name), getattr(proof, name))


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_simulated_cluster_is_the_simulation_and_gives_the_gradient(interrupted):
    code = PartialWork(5, 7, load=3)
    shards = np.random.default_rng(0).standard_normal((7, 4))
    options = {"cost": 2e-3, "receive": 5e-4, "interrupted": interrupted}
    # The same delays: simulations and clusters both read a recording in order.
    times = np.random.default_rng(1).exponential(0.01, (12, 5))

    class Recorded:
        def sample(self, round, workers, seed):
            return times[round]

    run = simulate(code, Recorded(), rounds=12, **options)
    theta, out = np.full(4, 2.0), np.empty(4)
    with SimulatedCluster(code, list(shards), np.multiply, 4, delays=Recorded(), **options) as one:
        for number in range(12):
            report = one.step(theta, out)
            np.testing.assert_allclose(out, 2 * shards.sum(axis=0), rtol=1e-13)
            assert report.wait_seconds == pytest.approx(run.times[number])
            assert report.messages == run.messages[number]
            assert report.residual == 0.0


def test_messages_are_verified_or_chosen_as_with_any_code():
    code, shards = PartialWork(4, load=3), np.arange(8.0).reshape(4, 2)
    for options in ({"verify": True}, {"survivors": lambda _: range(12)}, {"partial": "best"}):
        with SimulatedCluster(code, list(shards), np.multiply, 2, **options) as one:
            out = np.empty(2)
            report = one.step(np.ones(2), out)
            assert report.messages > len(report.survivors)
            np.testing.assert_allclose(out, shards.sum(axis=0))
    late = SimulatedCluster(code, list(shards), np.multiply, 2, timeout=1e-3, cost=1.0)
    with late, pytest.raises(TimeoutError, match="round 0 was not decodable"):
        late.step(np.ones(2), np.empty(2))


# ------------------------------------------------------------------------------------ real workers


class FirstOnly:
    """A delay model: worker 0 sleeps very long before each computation."""

    per = "computation"

    def sample(self, round, workers, seed):
        return np.array([0.3] + [0.0] * (workers - 1))


def test_a_slow_worker_is_not_needed():
    code, shards = PartialWork(3, load=2), [1.0, 2.0, 4.0]
    with LocalCluster(code, shards, np.multiply, 2, delays=FirstOnly()) as cluster:
        out = np.empty(2)
        for number in range(2):
            report = cluster.step(np.full(2, number + 1.0), out)
            assert out.tolist() == [7.0 * (number + 1)] * 2
            assert report.residual == 0.0
            assert set(report.survivors) == {1, 2}  # they hold everything
