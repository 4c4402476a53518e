"""The simulated engine: its times agree with simulations, its gradients with direct sums."""

import itertools
import math

import numpy as np
import pytest
from strength import much

import fastgc
from fastgc.delays import Exponential
from fastgc.engines import SimulatedCluster
from fastgc.planning.simulation import simulate
from fastgc.testing.engines import Delays
from fastgc.training.models import least_squares_gradient

NEVER = math.inf

CODES = [
    fastgc.ReedSolomon(6, stragglers=2),
    fastgc.BinaryCode(7, 9, stragglers=2),
    fastgc.Uncoded(4, load=2),
    fastgc.Uncoded(3, 6, load=3),
    fastgc.CouponCollector(8, load=3, seed=2),
    fastgc.RandomAssignment(4, load=[3, 2, 2, 1], seed=3),
    fastgc.CouponCollector(4, loads=[3, 2, 2, 1], send="together", seed=3),
    fastgc.LagrangeCode(4, load=2, messages=2, nodes="roots"),
    fastgc.Grouped(
        [
            fastgc.ReedSolomon(3, 4, stragglers=1),
            fastgc.BinaryCode(3, stragglers=1),
            fastgc.Uncoded(2, load=2),
        ]
    ),
]
EACH = pytest.mark.parametrize("code", CODES, ids=repr)


class Sampled:
    """A delay model from which engines and simulations draw the same."""

    def __init__(self, model):
        self.model, self.per = model, model.per

    def sample(self, round, workers, seed):
        return self.model.sample(round, workers, seed)


def gradient(theta, shard, out):
    least_squares_gradient(theta, *shard, out=out)


def shards_of(code, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((3 * code.k, 3)), rng.standard_normal((3 * code.k, 2))
    return code.encode_data(X, y), lambda theta: least_squares_gradient(theta, X, y)


@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cost": 0.3},
        {"cost": 0.1, "receive": 0.2, "overhead": 0.4},
        {"cost": "each", "receive": 0.05},
    ],
    ids=repr,
)
@pytest.mark.parametrize("per", ["round", "computation"])
@EACH
def test_rounds_are_those_of_simulations(code, per, options, interrupted):
    options = options | {"interrupted": interrupted}
    if options.get("cost") == "each":
        options["cost"] = np.linspace(0.1, 0.7, code.n)
    delays, seed, rounds = Sampled(Exponential(1.0, per=per)), 5, much(25, 8)
    expected = simulate(code, delays, rounds=rounds, seed=seed, method="round", **options)
    shards, exact = shards_of(code)
    rng = np.random.default_rng(1)
    with SimulatedCluster(
        code, shards, gradient, 6, delays=delays, seed=seed, **options
    ) as cluster:
        clock = cluster.clock()
        for number in range(rounds):
            theta, out = rng.standard_normal(6), np.full(6, np.nan)
            report = cluster.step(theta, out)
            np.testing.assert_allclose(out, exact(theta), atol=1e-10)
            assert report.round == number
            assert report.wait_seconds == pytest.approx(expected.times[number], rel=1e-9)
            assert report.messages == expected.messages[number]
            assert report.survivors.size == expected.workers[number]
            assert report.received.size == report.messages
            assert code.decodable(report.received)
            senders = [code.scheme.messages.sender(m)[0] for m in report.received.tolist()]
            assert report.survivors.tolist() == list(dict.fromkeys(senders))
            assert (np.diff(report.arrivals) >= 0).all()
            assert report.arrivals[-1] == report.wait_seconds
            assert (report.decode_seconds, report.stale, report.lost) == (0.0, 0, ())
            clock += report.wait_seconds + options.get("overhead", 0.0)
            assert cluster.clock() == pytest.approx(clock, rel=1e-12)


def test_a_round_by_hand():
    """Worker 0 holds partitions 0, 1; worker 1: 1, 2; worker 2: 2, 0."""
    delays = Delays([5.0, 0.0, 1.0], [0.0, 9.0, 9.0])
    out = np.empty(1)
    with SimulatedCluster(
        fastgc.Uncoded(3, load=2),
        [1.0, 2.0, 4.0],
        np.multiply,
        1,
        delays=delays,
        cost=2.0,
        overhead=0.5,
        interrupted=False,
    ) as cluster:
        # Messages come at 2 and 4 (worker 1), 3 and 5 (worker 2), 7 and 9 (worker 0).
        report = cluster.step(np.full(1, 3.0), out)
        assert out == 21.0
        assert report.wait_seconds == 5.0
        assert report.received.tolist() == [2, 4, 3, 5]
        assert report.survivors.tolist() == [1, 2]
        assert report.arrivals.tolist() == [2.0, 3.0, 4.0, 5.0]
        assert cluster.clock() == 5.5
        # Worker 0 first finishes its message, at 7 - 5.5; then it sends at 3.5 and 5.5.
        report = cluster.step(np.full(1, 1.0), out)
        assert out == 7.0
        assert report.arrivals.tolist() == [3.5, 5.5, 11.0, 11.0]
        assert report.received.tolist() == [0, 1, 2, 4]
    interrupted = SimulatedCluster(
        fastgc.Uncoded(3, load=2), [1.0, 2.0, 4.0], np.multiply, 1, delays=delays, cost=2.0
    )
    interrupted.step(np.ones(1), out)
    assert interrupted.step(np.ones(1), out).arrivals.tolist()[:2] == [2.0, 4.0]


# ------------------------------------------------------------------------------- part of a round


def test_those_not_asked_finish_what_they_are_at():
    code = fastgc.Grouped.repetition(4, 2)
    delays = Delays([1.0, 7.0, 1.0, 9.0])
    cluster = SimulatedCluster(
        code, [1.0, 10.0], np.multiply, 1, delays=delays, cost=1.0, interrupted=False
    )
    rnd = code.group_round(1)

    def run(*groups, workers=None):
        rnd.reset(groups)
        return cluster.collect(np.ones(1), rnd, workers or rnd.workers)

    assert run(0, 1).wait_seconds == 2.0  # worker 1 ends at 8, worker 3 at 10
    assert run(0).wait_seconds == 1.0
    assert run(0).wait_seconds == 1.0
    assert cluster.clock() == 4.0
    assert run(1).received.tolist() == [2]
    assert run(0, workers=[1]).wait_seconds == 3.0 + 1.0  # from 5 until 8, and its own second
    assert run(1, workers=[3]).wait_seconds == 1.0 + 1.0  # from 9 until 10
    assert run(0, 1).wait_seconds == 1.0


# ------------------------------------------------------------------------- rounds that ask


@pytest.mark.parametrize(
    ("late", "receive", "arrivals", "stood_in", "then"),
    [
        # Worker 0 is asked for share 2 when its own is there. In the next round, share 2 is asked
        # for at once, of worker 1, which sends first.
        ([0.0, 0.0, NEVER], 0.0, [1.0, 2.0, 3.5], [(2, 0, 2.0)], [1.0, 2.0, 2.5]),
        # Worker 0 computes both others' shares, one after the other.
        (
            [0.0, NEVER, NEVER],
            0.25,
            [2.25, 4.0, 5.75],
            [(1, 0, 2.25), (2, 0, 4.0)],
            [2.25, 4.0, 5.75],
        ),
        # Worker 1's own message comes before worker 0's answer at 4; then it is asked, too.
        ([0.0, 2.25, NEVER], 0.25, [2.25, 3.5, 5.25], [(2, 1, 3.5)], [1.25, 2.25, 3.0]),
    ],
)
def test_a_round_that_asks_by_hand(late, receive, arrivals, stood_in, then):
    """Shares take 2, 1 and 1 seconds, and a request takes half a second."""
    code, out = fastgc.Reactive(3, 4, holders=3, deadline=2.0), np.empty(1)
    delays = Delays(late, [0.0] * 3)
    options = {"cost": 1.0, "request": 0.5, "receive": receive, "interrupted": False}
    with SimulatedCluster(
        code, [1.0, 2.0, 4.0, 8.0], np.multiply, 1, delays=delays, **options
    ) as cluster:
        report = cluster.step(np.ones(1), out)
        assert out == 15.0
        assert report.arrivals.tolist() == arrivals
        assert list(report.stood_in) == stood_in
        assert cluster.clock() == arrivals[-1]
        assert cluster.step(np.ones(1), out).arrivals.tolist() == then


def test_a_share_that_its_owner_sent_is_not_computed_again():
    """Of the answers that are due, those that nobody waits for are left out."""
    code, out = fastgc.Reactive(4, holders=3, deadline=1.5), np.empty(1)
    computed = []

    def counted(theta, shard, out, *, partition):
        computed.append(partition)
        np.multiply(theta, shard, out=out)

    # Workers 2 and 3 are asked for at 1.5. Both send at 2, before the answers at 2.5.
    delays = Delays([0.0, 0.0, 1.0, 1.0])
    with SimulatedCluster(code, [1.0] * 4, counted, 1, delays=delays, cost=1.0) as cluster:
        report = cluster.step(np.ones(1), out)
    assert report.asks == 2
    assert (report.messages, report.arrivals.tolist()) == (4, [1.0, 1.0, 2.0, 2.0])
    assert report.stood_in == ()
    assert computed == [0, 1, 2, 3]


def test_whoever_is_silent_others_are_asked():
    """For every set of up to s workers that never answer, in every pair of rounds."""
    code = fastgc.Reactive(4, 6, holders=3)
    shards, out = list(np.arange(1.0, 7.0)), np.empty(3)
    sets = [F for s in range(3) for F in itertools.combinations(range(4), s)]
    for first, second in itertools.product(sets, repeat=2):
        delays = Delays(
            *[[NEVER if i in F else 0.01 * i for i in range(4)] for F in (first, second)]
        )
        with SimulatedCluster(code, shards, np.multiply, 3, delays=delays, cost=1.0) as cluster:
            for number, silent in enumerate((first, second), 1):
                report = cluster.step(np.full(3, float(number)), out)
                np.testing.assert_array_equal(out, 21.0 * number)
                assert report.messages == 4
                assert report.asks >= len(silent)
                assert number == 2 or report.asks == len(silent)
                assert report.wait_seconds < 2 * 2.03 + 2 * 2.0 + 0.1


def test_a_late_owner_counts_if_it_comes_before_the_answer():
    code, out = fastgc.Reactive(4, holders=2, deadline=1.5), np.empty(1)
    delays = Delays(*[[late, 0.0, 0.0, 0.0] for late in (0.7, 1.9, 0.7)])
    with SimulatedCluster(
        code, [1.0, 2.0, 4.0, 8.0], np.multiply, 1, delays=delays, cost=1.0
    ) as cluster:
        report = cluster.step(np.ones(1), out)  # asked at 1.5, a holder would take until 2.5
        assert (report.wait_seconds, report.asks, out[0]) == (1.7, 1, 15.0)
        report = cluster.step(np.ones(1), out)
        assert (report.wait_seconds, report.asks, out[0]) == (2.5, 1, 15.0)
        report = cluster.step(np.ones(1), out)  # worker 0 was silent, so its share is asked for
        assert (report.wait_seconds, report.asks, out[0]) == (1.7, 1, 15.0)


@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.parametrize("per", ["round", "computation"])
@pytest.mark.parametrize(
    "code",
    [
        fastgc.Reactive(6, 13, holders=3),
        fastgc.Reactive(4, holders=2, deadline=1.01),
        fastgc.Reactive(5, holders=5, deadline=0.3719),
    ],
    ids=repr,
)
def test_rounds_that_ask_are_those_of_simulations(code, per, interrupted):
    delays, rounds, out = Sampled(Exponential(1.0, per=per)), much(40, 12), np.empty(1)
    cost = np.linspace(0.1, 0.7, code.n) ** 1.1  # no two events at the same time
    for options in (
        {"cost": cost},
        {"cost": cost, "receive": 0.2117, "overhead": 0.4, "request": 0.0507},
        {"cost": cost[::-1], "receive": 0.0509},
    ):
        options = options | {"interrupted": interrupted, "seed": 5}
        expected = simulate(code, delays, rounds=rounds, **options)
        shards = np.arange(1.0, code.k + 1)
        with SimulatedCluster(code, shards, np.multiply, 1, delays=delays, **options) as cluster:
            for number in range(rounds):
                report = cluster.step(np.ones(1), out)
                assert out[0] == shards.sum()
                assert report.wait_seconds == pytest.approx(expected.times[number], rel=1e-9)
                assert report.messages == expected.messages[number]
                assert (np.diff(report.arrivals) >= 0).all()


# ---------------------------------------------------------------------- what goes another way


def test_workers_that_never_answer():
    code = fastgc.ReedSolomon(5, stragglers=2)
    shards, out = [1.0] * 5, np.empty(2)
    delays = Delays([1.0, NEVER, 2.0, NEVER, 3.0], [0.0, 0.0, NEVER, 0.0, 1.0])
    cluster = SimulatedCluster(code, shards, np.multiply, 2, delays=delays, interrupted=False)
    report = cluster.step(np.ones(2), out)
    np.testing.assert_allclose(out, 5.0)
    assert report.wait_seconds == 3.0
    # Two workers are away for good, so the others cannot decode.
    with pytest.raises(fastgc.NotDecodableError, match="2 messages do not determine") as caught:
        cluster.step(np.ones(2), out)
    assert caught.value.missing == 1
    assert cluster.clock() == 3.0  # the failed round took no time
    report = cluster.step(np.ones(2), out)
    assert report.round == 2
    assert sorted(report.survivors.tolist()) == [0, 2, 4]


def test_what_comes_at_the_timeout_is_in_time():
    code = fastgc.Uncoded(2)
    for receive, timeout in ((0.0, 2.0), (0.5, 2.5)):
        cluster = SimulatedCluster(
            code,
            [1.0] * 2,
            np.multiply,
            1,
            delays=Delays([1.0, 2.0]),
            timeout=timeout,
            receive=receive,
        )
        assert cluster.step(np.ones(1), np.empty(1)).wait_seconds == timeout


@pytest.mark.parametrize(
    ("code", "first"),
    [
        (fastgc.ReedSolomon(6, stragglers=2), [5, 3, 0]),  # 3, 4 and 5 hold the same
        (fastgc.ReedSolomon(9, stragglers=5), [0, 1, 8]),  # three of three columns that differ
    ],
    ids=repr,
)
def test_rounds_end_as_soon_as_rows_span_the_sum(code, first):
    delays = np.full(code.n, 9.0)
    delays[first] = [1.0, 2.0, 3.0]
    cluster = SimulatedCluster(code, [1.0] * code.k, np.multiply, 1, delays=Delays(delays))
    out = np.empty(1)
    report = cluster.step(np.ones(1), out)
    assert report.survivors.tolist() == first
    assert report.wait_seconds == 3.0
    np.testing.assert_allclose(out, code.k, rtol=1e-13)


def test_a_timeout_in_simulated_time():
    code = fastgc.ReedSolomon(4, 3, stragglers=1)
    delays = Delays([1.0, 2.0, 3.0, NEVER], [1.0, NEVER, 4.0, NEVER], [1.0, 2.0, 3.5, 9.0])
    cluster = SimulatedCluster(code, [1.0] * 3, np.multiply, 1, delays=delays, timeout=3.25)
    out = np.zeros(1)
    assert cluster.step(np.ones(1), out).wait_seconds == 3.0
    for number in (1, 2):
        out[:] = 0
        with pytest.raises(TimeoutError, match=f"round {number} was .* after 3.25 simulated s"):
            cluster.step(np.ones(1), out)
        assert out == 0
    assert cluster.clock() == 3.0
    cluster.step(np.ones(1), out)  # without delays
    np.testing.assert_allclose(out, 3.0)
    # Too few workers are asked, so the engine does not wait for the timeout.
    with pytest.raises(fastgc.NotDecodableError) as caught:
        cluster.collect(np.ones(1), code.round(1), [1, 3])
    assert caught.value.missing == 1


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"cost": -1}, ValueError, "cost must.*negative"),
        ({"cost": [1.0] * 3}, ValueError, "one for each of 2 workers"),
        ({"cost": "1"}, TypeError, "cost must"),
        ({"receive": math.inf}, ValueError, "receive must be finite"),
        ({"overhead": None}, TypeError, "overhead must"),
    ],
)
def test_simulated_constructor_refuses(change, error, match):
    with pytest.raises(error, match=match):
        SimulatedCluster(fastgc.Uncoded(2), [1.0, 2.0], np.multiply, 3, **change)
