"""Partial work counts: orders of computation, the workers to ask, and rounds of sums."""

import heapq
import itertools
import os
import signal
from functools import partial

import numpy as np
import pytest

import fastgc
from fastgc import NotDecodableError, PartialWork, Uncoded
from fastgc.codes import Request, SumRound
from fastgc.codes.partial_work import in_good_order
from fastgc.delays import Pareto, ShiftedExponential
from fastgc.engines import LocalCluster, SimulatedCluster
from fastgc.engines.interface import Question, Task
from fastgc.engines.worker import Worker
from fastgc.planning.simulation import simulate

ANY = [[0, 1, 3], [2, 1], [3, 2, 0]]  # an assignment of four partitions


def least_sum(order, k):
    """Return, over partitions, the least that is not computed if all holders stop before one."""
    return min(sum(len(mine) - mine.index(j) for mine in order if j in mine) for j in range(k))


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


@pytest.mark.any_backend
def test_the_threshold_is_what_suffices_however_far_each_worker_gets():
    for (held, k), ordered in itertools.product(assignments(40, 4, 4, 3), (False, True)):
        code = PartialWork(len(held), k, assignment=held, ordered=ordered)
        order = [code.partitions(i).tolist() for i in range(code.n)]
        assert code.threshold == computations_that_suffice(order, k)
        assert [sorted(mine) for mine in order] == [sorted(mine) for mine in held]
        if not ordered:
            assert order == held
        # This is also the paper's metric.
        assert code.threshold == code.scheme.message_count - least_sum(order, k) + 1


@pytest.mark.any_backend
def test_orders_are_the_best_or_one_computation_short_of_it():
    for held, k in assignments(100, 3, 4, 3):
        best = max(
            least_sum(order, k)
            for order in itertools.product(*(map(list, itertools.permutations(m)) for m in held))
        )
        assert best - 1 <= least_sum(in_good_order(held, k), k) <= best


@pytest.mark.parametrize(("n", "load"), [(5, 2), (7, 3), (30, 8), (60, 20), (4, 4)])
@pytest.mark.any_backend
def test_where_each_is_held_as_often_as_workers_hold_no_order_is_better(n, load):
    rng = np.random.default_rng(n)
    renamed, shifts = rng.permutation(n), rng.permutation(n)[:load]
    held = [rng.permutation(renamed[(i + shifts) % n]).tolist() for i in range(n)]
    mean = load * (load + 1) // 2  # the mean of the sums, which bounds the least of them
    assert least_sum(in_good_order(held, n), n) == mean
    assert least_sum(held, n) < mean or load == 1
    # The default order, around the circle, is one of the best.
    assert PartialWork(n, load=load).threshold == n * load - mean + 1


# ----------------------------------------------------------------------------------- whom to ask


def fewest(code, came):
    """Return the fewest workers that suffice, by trying all sets."""
    mine = [
        {
            int(code.partitions(*code.scheme.sender(m))[0])
            for m in came
            if code.scheme.sender(m)[0] == i
        }
        for i in range(code.n)
    ]
    for size in range(1, code.n + 1):
        for some in itertools.combinations(mine, size):
            if len(set().union(*some)) == code.k:
                return size
    return None


@pytest.mark.any_backend
def test_one_message_of_each_partition_is_taken():
    rng = np.random.default_rng(1)
    for held, k in assignments(100, 6, 6, 4):
        code = PartialWork(len(held), k, assignment=held)
        came = rng.permutation(code.scheme.message_count)[
            : rng.integers(code.scheme.message_count + 1)
        ].tolist()
        cells = [int(code.partitions(*code.scheme.sender(m))[0]) for m in came]
        if len(set(cells)) < k:
            with pytest.raises(NotDecodableError):
                code.decoding_vector(came)
            continue
        vector = code.decoding_vector(came)
        assert set(vector) <= {0.0, 1.0}
        assert sorted(np.array(cells)[vector == 1].tolist()) == list(range(k))
        asked = len({code.scheme.sender(m)[0] for m, a in zip(came, vector, strict=True) if a})
        assert fewest(code, came) <= asked <= fewest(code, came) + 1


@pytest.mark.any_backend
def test_few_more_workers_are_asked_than_would_suffice():
    code, rng = PartialWork(12, load=5), np.random.default_rng(0)
    done = rng.integers(0, 6, (200, 12))
    masks = (np.arange(5) < done[:, :, np.newaxis]).reshape(200, -1)
    vectors = code.decoding_vectors(masks, undecodable="nan")
    good = ~np.isnan(vectors[:, 0])
    assert 50 < good.sum() < 200
    asked = (vectors[good].reshape(-1, 12, 5) > 0).any(axis=2).sum(axis=1)
    few = [fewest(code, np.flatnonzero(mask).tolist()) for mask in masks[good]]
    assert np.mean(asked) < 1.06 * np.mean(few)
    for mask, vector in zip(masks, vectors, strict=True):
        assert code.decodable(mask) == (not np.isnan(vector).any())
        if code.decodable(mask):
            assert code.decoding_vector(mask).tolist() == vector[mask].tolist()


@pytest.mark.parametrize(("n", "k", "load"), [(8, 8, 3), (12, 7, 4), (30, 30, 9), (25, 40, 20)])
def test_of_many_messages_the_same_are_taken(n, k, load, monkeypatch):
    """The heap and the direct search take the same messages, however many came."""
    scheme, rng = PartialWork(n, k, load=load).scheme, np.random.default_rng(0)
    done = rng.integers(0, load + 1, (200, n))
    done[0] = load
    masks = (np.arange(load) < done[:, :, np.newaxis]).reshape(200, -1)
    side_by_side, by_a_heap = np.zeros((2, *masks.shape))
    good = scheme.fill_vectors(masks, "auto", side_by_side)
    assert good[0]
    monkeypatch.setattr("fastgc.codes.partial_work._SIDE_BY_SIDE", 0)
    assert scheme.fill_vectors(masks, "auto", by_a_heap).tolist() == good.tolist()
    assert np.array_equal(side_by_side, by_a_heap)


def test_what_workers_have_is_counted_anew_a_few_times_each(monkeypatch):
    n = 20_000
    scheme, sums = PartialWork(n, load=6).scheme, []
    monkeypatch.setattr(
        "fastgc.codes.partial_work.heapreplace",
        lambda heap, item: sums.append(item) or heapq.heapreplace(heap, item),
    )
    came = np.flatnonzero(np.arange(6) < np.random.default_rng(0).integers(3, 7, n)[:, None])
    assert scheme.vector(came).sum() == n
    assert len(sums) < 6 * n


@pytest.mark.any_backend
def test_rounds_take_as_long_as_those_of_uncoded_with_the_same_load():
    one, other = PartialWork(6, load=3), Uncoded(6, load=3)
    assert np.array_equal(one.matrix(), other.matrix())
    assert (one.threshold, one.stragglers) == (other.threshold, other.stragglers) == (13, 2)
    assert one.scheme.on_request
    assert not other.scheme.on_request


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
@pytest.mark.any_backend
def test_what_does_not_fit_is_said(arguments, error, text):
    with pytest.raises(error, match=text):
        PartialWork(3, 4, **arguments)


# --------------------------------------------------------------------------------- rounds of sums


def answer(code, partials, worker, asked):
    """Return what a worker sends when it is asked for a sum."""
    kept = [
        code.encode(worker, [partials[j] for j in code.partitions(worker, at)], index=at)
        for at in asked.indices.tolist()
    ]
    return asked.coefficients @ np.array(kept)


@pytest.mark.parametrize(
    "code",
    [
        PartialWork(5, load=3),
        PartialWork(3, 4, assignment=ANY),
        Uncoded(4, load=2),
        fastgc.RandomAssignment(4, load=3, seed=2),
        fastgc.LinearCode([[1, 2, 0], [0, -1, 3], [1, 1, 1], [2, 0, 5]]),
    ],
    ids=lambda code: type(code).__name__,
)
@pytest.mark.any_backend
def test_a_round_of_sums_is_the_gradient_in_any_order(code):
    rng = np.random.default_rng(0)
    partials = rng.standard_normal((code.k, 7))
    rnd = SumRound(code, 7)
    for _ in range(20):
        rnd.reset()
        tally = code.scheme.rule.tally()
        with pytest.raises(NotDecodableError):
            rnd.gradient()
        for number in rng.permutation(code.scheme.message_count).tolist():
            enough = tally.add(number)
            assert rnd.report(*code.scheme.sender(number)) == enough
            assert bool(rnd.requests) == enough
            if enough:
                break
        for worker, asked in rnd.requests.items():
            assert not rnd.ready
            assert asked.coefficients.all()
            with pytest.raises(NotDecodableError):
                rnd.gradient()
            rnd.receive(worker, answer(code, partials, worker, asked))
        assert rnd.ready
        out = np.empty(7)
        assert rnd.gradient(out) is out
        np.testing.assert_allclose(out, partials.sum(axis=0), rtol=1e-12, atol=1e-12)
        assert rnd.residual() < 1e-14
        assert rnd.trust().relative_error < 1e-14
        used = {code.scheme.sender(m)[0] for m in rnd.survivors.tolist()}
        assert used == set(rnd.requests)


@pytest.mark.any_backend
@pytest.mark.parametrize("lost", ["lose", "straggles"])
def test_a_round_of_sums_knows_workers_by_any_integer(lost):
    rounds = []
    for worker in (0, np.int8(0), np.array(0)):
        rnd = SumRound(PartialWork(3, load=2), 4)
        for sender in (0, 2):
            for index in (0, 1):
                rnd.report(sender, index)
        getattr(rnd, lost)(worker)
        rounds.append((rnd.reported.tolist(), sorted(rnd.requests), rnd.awaited))
    assert rounds[0] == rounds[1] == rounds[2]
    assert 0 not in rounds[0][2]


def test_what_a_round_of_sums_refuses_leaves_it_as_it_was():
    rnd = SumRound(PartialWork(3, load=2), 4)
    rnd.report(0, 0)
    with pytest.raises(ValueError, match="message 0 of worker 0 was reported already"):
        rnd.report(0, 0)
    with pytest.raises(ValueError, match="index"):
        rnd.report(0, 2)
    with pytest.raises(ValueError, match="worker 0 was not asked"):
        rnd.receive(0, np.ones(4))
    rnd.report(0, 1)
    assert rnd.report(2, 0)
    with pytest.raises(ValueError, match="worker 1 was not asked"):
        rnd.receive(1, np.ones(4))
    with pytest.raises(fastgc.NonFiniteMessageError, match="worker 2"):
        rnd.receive(2, np.array([1, np.nan, 0, 0]))
    with pytest.raises(ValueError, match="sum of worker 2"):
        rnd.receive(2, np.ones(3))
    rnd.receive(0, np.ones(4))
    with pytest.raises(ValueError, match="worker 0 has answered already"):
        rnd.receive(0, np.ones(4))
    assert rnd.report(1, 0)  # too late to matter
    assert set(rnd.requests) == {0, 2}
    assert rnd.receive(2, np.ones(4))
    assert rnd.gradient().tolist() == [2.0] * 4
    with pytest.raises(TypeError, match="sums are taken of messages that are gradients"):
        SumRound(fastgc.LagrangeCode(4, load=2, nodes="roots"), 4)
    with pytest.raises(TypeError, match="sums are taken"):
        SumRound(PartialWork(3, load=2), 4, np.float16)


@pytest.mark.any_backend
def test_whoever_is_lost_the_gradient_is_that_of_the_others():
    """Workers die at any moment, and compute again what they kept. Messages sent count."""
    rng = np.random.default_rng(3)
    spared = 0
    for held, k in assignments(150, 6, 6, 4):
        code = PartialWork(len(held), k, assignment=held)
        partials = rng.standard_normal((k, 3))
        rnd, done = SumRound(code, 3), [0] * code.n
        sent = {}
        while not rnd.ready:
            worker, chance = int(rng.integers(code.n)), rng.random()
            if chance < 0.1:
                others = [m for m in rnd.reported.tolist() if code.scheme.sender(m)[0] != worker]
                assert rnd.suffices_without(worker) == code.decodable(others)
                before, answered = rnd.requests, rnd.answered
                owed = worker in before and worker not in answered
                assert rnd.lose(worker) == bool(rnd.requests)
                done[worker] = 0
                if not owed:
                    assert rnd.requests.keys() == before.keys()
                    assert rnd.answered == answered
                else:
                    assert worker not in rnd.requests
                    assert bool(rnd.requests) == code.decodable(others)
                    spared += bool(rnd.answered)
                sent = {i: sent[i] for i in rnd.answered}
            elif chance < 0.5 and worker in rnd.requests and worker not in rnd.answered:
                request = rnd.requests[worker]
                assert request.indices.max() < done[worker]
                sent[worker] = answer(code, partials, worker, request)
                rnd.receive(worker, sent[worker])
            elif done[worker] < code.scheme.message_counts[worker]:
                rnd.report(worker, done[worker])
                done[worker] += 1
        np.testing.assert_allclose(rnd.gradient(), partials.sum(axis=0), atol=1e-13)
        np.testing.assert_allclose(sum(sent.values()), partials.sum(axis=0), atol=1e-13)
    assert spared


# ------------------------------------------------------------------------------------- simulation

SPEEDS = ShiftedExponential(shift=0.01, rate=10, per="computation")
LATE = Pareto(scale=0.005, shape=2.5)


@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.parametrize("delays", [SPEEDS, LATE, None])
@pytest.mark.any_backend
def test_without_round_trips_rounds_take_as_long_as_message_by_message(delays, interrupted):
    code = PartialWork(8, 12, load=5)
    run = partial(simulate, code, delays, cost=1e-3, rounds=60, interrupted=interrupted, seed=1)
    asked, sent, proof = run(), run(method="kernel"), run(method="round")
    np.testing.assert_allclose(asked.times, sent.times, rtol=1e-12)
    np.testing.assert_allclose(asked.times, proof.times, rtol=1e-12)
    assert asked.computations.tolist() == proof.computations.tolist()
    assert (asked.messages <= np.minimum(sent.workers, sent.messages)).all()
    assert asked.messages.tolist() == asked.workers.tolist()
    assert asked.mean_messages < 0.6 * sent.mean_messages


@pytest.mark.any_backend
def test_a_round_trip_and_messages_take_their_time():
    code = PartialWork(8, load=4)
    run = partial(simulate, code, SPEEDS, rounds=50)
    plain, slow = run(), run(request=0.5, receive=0.25)
    np.testing.assert_allclose(slow.times, plain.times + 0.5 + 0.25 * plain.messages)
    for name in ("messages", "workers", "computations"):
        assert np.array_equal(getattr(slow, name), getattr(plain, name))
    with pytest.raises(ValueError, match="request"):
        run(request=-1.0)


@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.any_backend
def test_a_simulated_cluster_is_the_simulation_and_gives_the_gradient(interrupted):
    code = PartialWork(5, 7, load=3)
    shards = np.random.default_rng(0).standard_normal((7, 4))
    options = {"cost": 2e-3, "request": 1e-3, "receive": 5e-4, "interrupted": interrupted}
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
            assert report.messages == len(report.survivors) == run.messages[number]
            assert report.residual == 0.0
            assert sorted(set(report.arrivals)) == pytest.approx(
                report.wait_seconds - 5e-4 * np.arange(report.messages)[::-1]
            )


@pytest.mark.any_backend
def test_messages_that_are_verified_or_chosen_are_sent_one_by_one():
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


@pytest.mark.any_backend
def test_training_goes_as_with_any_exact_code():
    run = partial(fastgc.train, engine="simulated", rounds=3, delays=SPEEDS)
    one, other = run(PartialWork(6, load=3)), run(Uncoded(6))
    for mine, theirs in zip(one.rounds, other.rounds, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-12)
        assert mine.messages <= 6
        assert mine.residual == 0.0


# ------------------------------------------------------------------------------------ real workers


class FirstOnly:
    """A delay model: worker 0 sleeps very long before its second computation."""

    per = "computation"

    def sample(self, round, workers, seed):
        return np.array([0.3] + [0.0] * (workers - 1))


@pytest.mark.any_backend
def test_local_workers_are_asked_for_one_sum_each():
    code, shards = PartialWork(3, load=2), [1.0, 2.0, 4.0]
    with LocalCluster(code, shards, np.multiply, 2, delays=FirstOnly()) as cluster:
        out = np.empty(2)
        for number in range(2):
            report = cluster.step(np.full(2, number + 1.0), out)
            assert out.tolist() == [7.0 * (number + 1)] * 2
            assert report.residual == 0.0
            assert report.messages == report.asks == 2
            assert set(report.survivors) == {1, 2}  # they hold everything: worker 0 is not needed


@pytest.mark.any_backend
def test_who_is_killed_when_it_is_asked_is_replaced():
    """Others replace it, or it does itself when it is back: what it kept is computed again."""
    shards, out = [1.0, 2.0, 4.0], np.empty(2)
    for code in (PartialWork(3, load=2), PartialWork(3, load=1)):
        with LocalCluster(code, shards, np.multiply, 2) as cluster:
            transport = cluster.transport
            ask, killed = transport.ask, []

            def ask_the_dead(worker, question, ask=ask, killed=killed, transport=transport):
                if not killed:
                    killed.append(worker)
                    os.kill(transport.pids()[worker], signal.SIGKILL)
                ask(worker, question)

            for number in range(4):
                if number == 1:
                    transport.ask = ask_the_dead
                report = cluster.step(np.full(2, number + 1.0), out)
                assert out.tolist() == [7.0 * (number + 1)] * 2
            assert killed
            assert report.deaths == 1
            assert report.refused == 0


@pytest.mark.any_backend
def test_what_asks_for_more_than_its_worker_kept_is_said():
    code = PartialWork(2, load=2)
    dtype = np.dtype(np.float64)
    task = Task(code, [1.0, 2.0], np.multiply, None, 3, dtype, 3, dtype, False, 3, asks=True)
    worker = Worker(0, task, task.data(0))
    worker.message(np.ones(3), 0, 5)
    both = Request(np.array([0, 1]), np.ones(2))
    assert worker.answer(Question(0, 5, both)) is None
    worker.message(np.ones(3), 1, 5)
    answer, energy = worker.answer(Question(0, 5, both))
    assert answer.tolist() == [3.0] * 3
    assert energy == pytest.approx(3 * 1 + 3 * 4)
    assert worker.answer(Question(1, 4, both)) is None
    worker.message(np.ones(3), 0, 6)
    assert worker.answer(Question(2, 5, both)) is None
