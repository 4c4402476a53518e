"""The loop of a round, on simulated workers: whatever the transport, it is the same."""

import math
from array import array

import numpy as np
import pytest

import fastgc
from fastgc import FractionalRepetition, ReedSolomon
from fastgc.delays import Exponential, Pareto
from fastgc.engines import LocalCluster, SimulatedCluster
from fastgc.errors import NotDecodableError
from fastgc.stability import StabilityTracker
from fastgc.testing.engines import Delays, Taking
from fastgc.training.models import least_squares_gradient

NEVER = math.inf


def shards_of(code, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((3 * code.k, 3)), rng.standard_normal((3 * code.k, 2))
    return code.encode_data(X, y)


def gradient(theta, shard, out):
    least_squares_gradient(theta, *shard, out=out)


@pytest.mark.parametrize(
    ("need", "linger", "came", "end"),
    [
        (1, 0.0, [1], 2.0),
        (1, 0.5, [1, 0], 3.0),  # half as long as the first message took, and to the end
        (1, 0.75, [1, 0, 2], 3.5),
        (2, 0.5, [1, 0], 3.0),
        (3, 0.5, [1, 0, 2], 3.5),  # by then the time to linger is over
        (1, 9.0, [1, 0, 2, 3], 9.0),
    ],
)
def test_collect_lingers_as_long_as_a_round_wants(need, linger, came, end):
    delays = Delays([3.0, 2.0, 3.5, 9.0])
    code, rnd = fastgc.Uncoded(4), Taking(fastgc.Uncoded(4), 1, need, linger)
    rnd.code = code
    with SimulatedCluster(code, [1.0, 2.0, 4.0, 8.0], np.multiply, 1, delays=delays) as cluster:
        report = cluster.collect(np.ones(1), rnd)
    assert list(rnd.came) == came
    assert report.wait_seconds == end
    assert [float(rnd.came[worker][0]) for worker in came] == [2.0**worker for worker in came]


def test_collect_refuses_rounds_of_others():
    code = ReedSolomon(3, stragglers=1)
    with SimulatedCluster(code, [1.0] * 3, np.multiply, 2) as cluster:
        others = [code.round(3), ReedSolomon(3, stragglers=1).round(2), code.round(2, np.float32)]
        for rnd in others:
            with pytest.raises(ValueError, match="rnd must be a round of the cluster's code"):
                cluster.collect(np.ones(2), rnd)
        with pytest.raises(TypeError, match=r"rnd must be a round .*, not 'rnd'"):
            cluster.collect(np.ones(2), "rnd")
        assert cluster.collect(np.ones(2), code.round(2)).round == 0


def test_step_is_closed_by_an_error_of_decoding():
    """The round's messages suffice; the tracker refuses what they decode to."""
    code, tracker = ReedSolomon(3, stragglers=1), StabilityTracker(1e-30, "raise")
    with LocalCluster(code, [1.0] * 3, np.multiply, 1, tracker=tracker) as cluster:
        out = np.zeros(1)
        with pytest.raises(fastgc.UnstableRoundError):
            cluster.step(np.ones(1), out)
        assert out == 0
        with pytest.raises(RuntimeError, match="closed"):
            cluster.step(np.ones(1), np.empty(1))


@pytest.mark.parametrize("partial", ["best", "unbiased"])
def test_step_decodes_approximately_only_if_it_must(partial):
    """Of two copies of each half, one suffices; without either, half of the sum is lacking."""
    code, shards = FractionalRepetition(4, 2, stragglers=1), [1.0, 4.0]
    delays = Delays([0.0, 1.0, 2.0, 3.0], [0.0, NEVER, 1.0, NEVER], [1.0, 1.0, NEVER, NEVER])
    owners = [code.partitions(worker)[0] for worker in range(4)]
    options = {"delays": delays, "partial": partial, "timeout": 9.0}
    tracker = StabilityTracker()
    with SimulatedCluster(code, shards, np.multiply, 1, tracker=tracker, **options) as cluster:
        out = np.empty(1)
        for number in range(3):
            report = cluster.step(np.ones(1), out)
            heard = {owners[worker] for worker in report.survivors.tolist()}
            if len(heard) == 2:
                assert out[0] == 5.0
                assert np.isnan(report.residual)  # decoded by a formula: nobody computed it
            else:
                [part] = heard
                scale, left = (2.0, 1.0) if partial == "unbiased" else (1.0, np.sqrt(0.5))
                assert out[0] == pytest.approx(scale * shards[part])
                assert report.residual == pytest.approx(left)
            assert report.round == number


def test_collect_of_those_asked():
    code = fastgc.Grouped(
        [
            fastgc.ReedSolomon(3, 4, stragglers=1),
            fastgc.BinaryCode(3, stragglers=1),
            fastgc.Uncoded(2),
        ]
    )
    shards = shards_of(code)
    partials = np.empty((code.k, 6))
    theta = np.ones(6)
    for j, shard in enumerate(shards):
        gradient(theta, shard, partials[j])
    computed = []

    def counted(theta, shard, out):
        computed.append(
            next(j for j, each in enumerate(shards) if np.shares_memory(each[0], shard[0]))
        )
        gradient(theta, shard, out)

    delays = Exponential(1.0)
    with SimulatedCluster(code, shards, counted, 6, delays=delays, cost=0.1) as cluster:
        rnd = code.group_round(6)
        for number, groups in enumerate([[1], [], [0, 2], [2, 1, 0], []]):
            computed.clear()
            rnd.reset(groups)
            report = cluster.collect(theta, rnd, rnd.workers)
            assert report.round == number
            assert rnd.ready
            held = {j for g in groups for j in code.partitions_of(g)}
            assert set(computed) <= held
            assert len(set(computed)) == len(computed)  # each once, however many send it
            assert {code.group_of(i) for i in report.survivors.tolist()} == set(groups)
            assert report.received.tolist() == rnd.survivors.tolist()
            assert report.received.dtype == report.survivors.dtype == np.int64
            assert report.messages >= report.received.size == report.arrivals.size
            for g in groups:
                exact = partials[code.partitions_of(g)].sum(axis=0)
                np.testing.assert_allclose(rnd.gradient(g), exact, atol=1e-12)
            if not groups:
                assert (report.messages, report.wait_seconds) == (0, 0.0)


def test_collect_counts_messages_beyond_need():
    """In groups {0, 1} and {2, 3}, worker 1's message comes between the needed ones."""
    code = fastgc.Grouped.repetition(4, 2)
    delays = Delays([1.0, 2.0, 3.0, 4.0])
    cluster = SimulatedCluster(code, [1.0, 10.0], np.multiply, 1, delays=delays, receive=0.25)
    rnd = code.group_round(1)
    rnd.reset([0, 1])
    report = cluster.collect(np.ones(1), rnd, rnd.workers)
    assert report.messages == 3
    assert report.received.tolist() == report.survivors.tolist() == [0, 2]
    assert report.arrivals.tolist() == [1.25, 3.25]
    assert report.wait_seconds == 3.25


def test_step_waits_for_a_tracker():
    code = fastgc.ReedSolomon(20, stragglers=8, root=1)
    delays = Delays(np.arange(1.0, 21.0))
    shards, out = list(np.random.default_rng(0).standard_normal((20, 3))), np.empty(3)

    def step(limit, **options):
        tracker = StabilityTracker(limit, "wait")
        given = {"delays": delays, "tracker": tracker} | options
        with SimulatedCluster(code, shards, np.multiply, 3, **given) as cluster:
            report = cluster.step(np.ones(3), out)
        np.testing.assert_allclose(out, np.sum(shards, axis=0), rtol=1e-9)
        assert tracker.rounds[-1].messages == report.received.size == report.messages
        return report

    twelve = step(1.0)
    assert (twelve.messages, twelve.wait_seconds) == (12, 12.0)
    more = step(2.5e-13)
    assert 12 < more.messages < 20
    assert more.wait_seconds == more.messages
    # The master waits for the timeout, and goes on.
    with pytest.warns(match="beyond the limit"):
        late = step(2.5e-13, timeout=12.5)
    assert (late.messages, late.wait_seconds) == (12, 12.5)
    # Or no more messages will come; it goes on with a warning.
    with pytest.warns(match="beyond the limit"):
        least = step(1e-30, delays=Delays([*np.arange(1.0, 16.0), *[NEVER] * 5]))
    assert (least.messages, least.wait_seconds) == (15, 15.0)
    with pytest.warns(match="beyond the limit"):
        everything = step(1e-30)
    assert (everything.messages, everything.wait_seconds) == (20, 20.0)


def test_step_of_failing_gradients_and_messages():
    code = fastgc.Uncoded(3)
    cluster = SimulatedCluster(code, [1.0, np.nan, 1.0], np.multiply, 1)
    with pytest.raises(fastgc.NonFiniteMessageError) as caught:
        cluster.step(np.ones(1), np.empty(1))
    assert caught.value.worker == 1

    def write(theta, shard, out):
        theta[:] = 0

    cluster = SimulatedCluster(code, [1.0] * 3, write, 1)
    theta = np.ones(1)
    with pytest.raises(ValueError, match="read-only"):  # as on processes
        cluster.step(theta, np.empty(1))
    theta += 1  # the master may write to it
    assert theta == 2


@pytest.mark.parametrize("engine", [LocalCluster, SimulatedCluster])
@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"code": "rs"}, TypeError, "code must.*'rs'"),
        ({"shards": [1.0]}, ValueError, "2 partitions, got 1 shards"),
        ({"shards": None}, TypeError, "shards must.*NoneType"),
        ({"gradient": None}, TypeError, "gradient must be callable"),
        ({"size": 0}, ValueError, "size must"),
        ({"size": 2.5}, TypeError, "integer"),
        ({"dtype": object}, TypeError, "dtype"),
    ],
)
def test_constructors_refuse(engine, change, error, match):
    arguments = {
        "code": fastgc.Uncoded(2),
        "shards": [1.0, 2.0],
        "gradient": np.multiply,
        "size": 3,
    }
    with pytest.raises(error, match=match):
        engine(**(arguments | change))


def test_steps_refused_are_no_rounds():
    good, out = np.ones(3), np.full(3, -1.0)
    code = fastgc.Uncoded(2)
    with SimulatedCluster(code, [1.0, 2.0], np.multiply, 3, delays=Pareto(0.1, 1.5)) as cluster:
        rnd = code.round(3)
        for call, error, match in [
            (lambda: cluster.step(np.ones(4), out), ValueError, r"theta must have shape \(3,\)"),
            (lambda: cluster.step(good, np.ones(3, np.float32)), TypeError, "out must have dtype"),
            (lambda: cluster.step(good, [0.0] * 3), TypeError, "out must"),
            (lambda: cluster.collect(good, rnd, [2]), ValueError, "worker 2 does not exist"),
            (lambda: cluster.collect(good, rnd, [0.5]), TypeError, "worker must"),
        ]:
            with pytest.raises(error, match=match):
                call()
        assert (out == -1).all()
        assert rnd.survivors.size == 0
        assert cluster.step(good, out).round == 0
        np.testing.assert_array_equal(out, 3.0)
        others = array("d", [1.0, 2.0, 4.0])  # memory of another object, used in place
        cluster.step(others, others)
        assert others.tolist() == [3.0, 6.0, 12.0]
    cluster.close()
    for call in (lambda: cluster.step(good, out), lambda: cluster.collect(good, rnd)):
        with pytest.raises(RuntimeError, match="the cluster is closed"):
            call()


@pytest.mark.parametrize("row", [[-1.0, 0.0], [np.nan, 0.0], [0.0]])
def test_step_refuses_delays(row):
    cluster = SimulatedCluster(fastgc.Uncoded(2), [1.0, 2.0], np.multiply, 1, delays=Delays(row))
    with pytest.raises(ValueError, match="delays must"):
        cluster.step(np.ones(1), np.empty(1))


def test_collect_wants_workers_that_suffice():
    """The engine does not wait for a round that can never be ready, nor takes an approximation."""
    for asked, missing in (([], 2), ([0, 1], 1), ([3, 3], 1)):
        code = ReedSolomon(4, stragglers=1)
        cluster = SimulatedCluster(code, [1.0] * 4, np.multiply, 1, partial="best")
        with pytest.raises(NotDecodableError, match="not determine the gradient") as caught:
            cluster.collect(np.ones(1), code.round(1), asked)
        assert caught.value.missing == missing
    with SimulatedCluster(code, [1.0] * 4, np.multiply, 1) as cluster:
        rnd = code.round(1)
        for asked in ([1, 2, 3], range(4), np.array([3, 0, 1])):
            rnd.reset()
            assert set(cluster.collect(np.ones(1), rnd, asked).survivors) <= set(asked)
            np.testing.assert_allclose(rnd.gradient(), 4.0)


def test_step_verifies_copies_of_several_messages():
    """A worker's messages are copied, each to a place of its own, as it may change them later."""
    code, out = fastgc.Uncoded(3, load=3), np.empty(2)
    with LocalCluster(code, [1.0, 2.0, 4.0], np.multiply, 2, verify=1) as cluster:
        for value in (1.0, 5.0):
            report = cluster.step(np.full(2, value), out)
            assert (report.verified, report.corrupt) == (True, ())
            np.testing.assert_array_equal(out, 7.0 * value)


def test_step_verifies():
    code, out = ReedSolomon(5, stragglers=2), np.empty(3)
    with SimulatedCluster(code, [1.0] * 5, np.multiply, 3, verify=True) as cluster:
        report = cluster.step(np.ones(3), out)
    assert report.verified
    assert report.messages == code.threshold + 1
    np.testing.assert_allclose(out, 5.0)


def test_step_verifies_to_a_limit():
    code, out = ReedSolomon(5, stragglers=2), np.empty(3)
    for limit in (1e-3, 1e-20):
        options = {"verify": True, "limit": limit}
        with SimulatedCluster(code, [1.0] * 5, np.multiply, 3, **options) as cluster:
            if limit < 1e-16:
                with pytest.raises(fastgc.errors.UnverifiedError, match=r"more than 1\.0e-20"):
                    cluster.step(np.ones(3), out)
            else:
                assert cluster.step(np.ones(3), out).resolution <= limit
