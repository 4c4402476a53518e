"""Simulated rounds: the kernel agrees with the codes' own rounds, and both with closed forms."""

import math
import sys

import numpy as np
import pytest
from scipy import stats
from strength import much
from tables import SMALL, SMALL_IDS

from fastgc import (
    BinaryCode,
    CouponCollector,
    FractionalRepetition,
    LagrangeCode,
    LinearCode,
    ReedSolomon,
    Uncoded,
    codes,
)
from fastgc.delays import Exponential, Heterogeneous, Pareto, ShiftedExponential
from fastgc.planning.simulation import Simulation, follow, simulate
from fastgc.planning.simulation.monte_carlo import kernel_rule
from fastgc.planning.simulation.rounds import MessageByMessage

PARETO = Pareto(0.001, 1.5)
SHIFTED = ShiftedExponential(0.01, 10.0)  # the delay of each computation
MEDIUM = [
    ReedSolomon(40, stragglers=7, clusters="auto"),
    BinaryCode(31, 47, stragglers=4),
    CouponCollector(40, load=8, seed=1),
    Uncoded(40, load=5, tolerance=0.05),
    LagrangeCode(20, load=6, messages=3, nodes="roots"),
]


def assert_same(one, other):
    for name in ("times", "messages", "workers", "computations"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.message_weight == other.message_weight


@pytest.mark.parametrize("code", SMALL + MEDIUM, ids=SMALL_IDS + [repr(c)[:12] for c in MEDIUM])
@pytest.mark.parametrize("interrupted", [True, False])
def test_kernel_does_what_rounds_do(code, interrupted):
    if kernel_rule(code) is None:
        pytest.skip("no kernel knows the rule of any matrix, or of groups of several kinds")
    settings = {"rounds": much(60, 20), "seed": 5, "interrupted": interrupted}
    cost = np.linspace(1e-4, 3e-4, code.n)
    for delays, more in (
        (PARETO, {"cost": cost}),
        (SHIFTED, {"cost": 1e-3, "receive": 0.004}),
        (None, {"cost": 1e-3, "receive": 1e-5, "overhead": 0.002}),  # all workers answer at once
    ):
        by = [
            simulate(code, delays, method=method, **settings, **more)
            for method in ("kernel", "round")
        ]
        assert_same(*by)
        assert (by[0].messages >= by[0].workers).all()
        assert (by[0].computations <= code.scheme.loads.sum()).all()


@pytest.mark.parametrize("size", [2, 3, 7, 8, 15, 16, 17, 32, 33, 50, 70])
def test_cells_of_any_size(size):
    """Cells in the order of workers and in another; in many parts, with a remainder."""
    rounds = 333
    for cells in (2, 5):
        in_order = FractionalRepetition(cells * size, stragglers=size - 1)
        found = simulate(in_order, PARETO, cost=1e-4, rounds=rounds)
        assert_same(found, _one_by_one(in_order, rounds))
    mixed = CouponCollector(2 * size, load=size, seed=1)
    assert_same(simulate(mixed, PARETO, cost=1e-4, rounds=rounds), _one_by_one(mixed, rounds))


def _one_by_one(code, rounds):
    """Simulate each round by a round of the code itself."""
    return simulate(code, PARETO, cost=1e-4, rounds=rounds, method="round")


def test_any_matrix_is_simulated_by_its_rounds():
    code = LinearCode(ReedSolomon(6, stragglers=2).matrix(), packed=False)
    found = simulate(code, PARETO, rounds=50)
    like = simulate(ReedSolomon(6, stragglers=2), PARETO, rounds=50)
    assert (found.times <= like.times).all()  # it decodes all sets that the other does, and more
    with pytest.raises(
        ValueError, match='LinearCode has no kernel to simulate it: use method="round"'
    ):
        simulate(code, PARETO, rounds=50, method="kernel")


# ------------------------------------------------------------------------- against closed forms

ROUNDS = {"kernel": 40_000, "round": 3_000}


def z_score(found, mean):
    return (found.mean - mean) / found.standard_error


@pytest.mark.parametrize("method", ["kernel", "round"])
def test_mean_times(method):
    code = ReedSolomon(20, 40, stragglers=4)
    found = simulate(code, PARETO, cost=1e-4, rounds=ROUNDS[method], seed=1, method=method)
    mean = PARETO.order_statistic_mean(16, 20) + 1e-4 * code.load
    assert abs(z_score(found, mean)) < 4
    assert abs(z_score(found, PARETO.order_statistic_mean(17, 20) + 1e-4 * code.load)) > 8
    exponential = Exponential(0.01)
    found = simulate(Uncoded(12), exponential, rounds=ROUNDS[method], seed=2, method=method)
    assert abs(z_score(found, exponential.order_statistic_mean(12, 12))) < 4
    # A round waits for the fastest of each of three groups, and so for the slowest of these.
    groups = FractionalRepetition(12, stragglers=3)
    found = simulate(groups, exponential, rounds=ROUNDS[method], seed=3, method=method)
    assert abs(z_score(found, 0.01 / 4 * (1 + 1 / 2 + 1 / 3))) < 4


@pytest.mark.parametrize("method", ["kernel", "round"])
def test_distribution_of_times(method):
    """Kolmogorov's test accepts eq. (18) of Ozfatura et al., and rejects its neighbour."""
    code = LagrangeCode(10, load=5)
    rounds = ROUNDS[method]
    times = simulate(code, SHIFTED, rounds=rounds, seed=4, method=method).times

    def law(threshold):
        return lambda t: stats.binom.sf(threshold - 1, 10, SHIFTED.cdf(t / 5))

    assert code.threshold == 3
    assert stats.kstest(times, law(3)).pvalue > 1e-4
    assert stats.kstest(times, law(4)).pvalue < 1e-9


@pytest.mark.parametrize("method", ["kernel", "round"])
def test_batches_are_coupons(method):
    code = CouponCollector(400, load=100, seed=0)
    found = simulate(code, PARETO, rounds=ROUNDS[method], seed=7, method=method)
    error = found.workers.std() / math.sqrt(found.workers.size)
    counts = np.unique([code.partitions(w)[0] for w in range(400)], return_counts=True)[1]
    assert abs(found.mean_workers - first_of_each(counts)) < 4 * error


@pytest.mark.parametrize("method", ["kernel", "round"])
def test_messages_sent_together_cover_by_eq_16(method):
    """Eq. (16) of Li et al.: the first time at which finished workers hold all partitions."""
    loads = [3, 1, 4, 4, 5, 2]
    code = CouponCollector(6, 7, loads=loads, send="together", seed=1)
    run = simulate(code, Given(SHIFTED.sample, "computation"), rounds=60, seed=3, method=method)
    for round, time in enumerate(run.times.tolist()):
        done = SHIFTED.sample(round, 6, 3) * loads
        held, heard = set(), 0
        for worker in np.argsort(done).tolist():
            held |= set(code.partitions(worker).tolist())
            heard += 1
            if len(held) == 7:
                break
        assert time == pytest.approx(done[worker], rel=1e-9)
        assert run.workers[round] == heard
        assert run.messages[round] == sum(np.array(loads)[np.argsort(done)[:heard]])


class Given:
    """A delay model defined by a function."""

    def __init__(self, sample, per):
        self.sample, self.per = sample, per


def first_of_each(counts):
    """Return the mean number of draws without replacement until every kind has come."""
    total, mean = counts.sum(), 0.0
    for subset in range(1, 1 << counts.size):
        chosen = [c for i, c in enumerate(counts) if subset >> i & 1]
        mean -= (-1) ** len(chosen) * (total + 1) / (sum(chosen) + 1)
    return mean


def test_workers_that_differ():
    delays = Heterogeneous([ShiftedExponential(2.0, 1.0)] * 3 + [ShiftedExponential(2.0, 20.0)] * 2)
    found = simulate(Uncoded(5), delays, rounds=50_000, seed=6)
    t = np.linspace(2, 40, 400_001)
    late = 1 - (1 - np.exp(-(t - 2))) ** 3 * (1 - np.exp(-20 * (t - 2))) ** 2
    assert abs(z_score(found, 2 + np.trapezoid(late, t))) < 4


# ------------------------------------------------------------------------------------ the model


def test_simultaneous_answers_come_one_by_one():
    code = ReedSolomon(20, stragglers=4)
    found = simulate(code, cost=2.0, rounds=30)
    np.testing.assert_allclose(found.times, 10.0, rtol=1e-11)
    assert (found.workers == 16).all()
    linked = simulate(code, cost=1e-9, receive=0.5, rounds=30)
    np.testing.assert_allclose(linked.times, 8.0, rtol=1e-8)
    assert linked.communication_load == 16


@pytest.mark.parametrize("method", ["kernel", "round"])
def test_no_computation_is_lost_beside_a_long_delay(method):
    """None is lost, even though most digits of the time since the delay's end are."""
    code = ReedSolomon(6, stragglers=2)
    for scale, cost in ((1.0, 1e-8), (100.0, 1e-6), (0.01, 0.0)):
        delays = Pareto(scale, 1.5)
        found = simulate(code, delays, cost=cost, receive=1e-9, rounds=200, method=method)
        assert (found.workers == 4).all()
        assert (found.computations == 4 * code.load).all()


def test_messages_come_one_by_one_though_computing_takes_no_time():
    code = Uncoded(4, load=4)
    found = simulate(code, PARETO, rounds=200)
    # The first worker has sent all its partitions, or the last of them is the fourth message.
    assert (found.messages == 4).all()
    assert (found.workers == 1).all()
    at_once = simulate(ReedSolomon(6, stragglers=2), None, rounds=50)
    assert (at_once.messages == 4).all()
    assert (at_once.times < 1e-11).all()


def test_late_workers_miss_rounds():
    class Scripted:
        def sample(self, round, workers, seed):
            # In round 0 worker 0 takes 10 s, and ends 9.2 s after the round; otherwise 0.1 s.
            return np.array([10.0 if round == 0 else 0.1, 0.5, 0.8])

    code = ReedSolomon(3, stragglers=1)
    dropped = simulate(code, Scripted(), rounds=3)
    np.testing.assert_allclose(dropped.times, [0.8, 0.5, 0.5])
    late = simulate(code, Scripted(), rounds=20, interrupted=False)
    # Rounds take 0.8 s without worker 0, until it is free 10 s after the start.
    expected = [0.8] * 12
    np.testing.assert_allclose(late.times[:12], expected)
    # After 9.6 s: in the next round it answers after 0.4 + 0.1 s, like the first of the others.
    np.testing.assert_allclose(late.times[12], 0.5)


def test_messages_of_a_round_are_left_between_two():
    class Scripted:
        per = "computation"

        def sample(self, round, workers, seed):
            return np.array([2.0, 0.5])

    # Worker 0 computes partitions 0 and 1, worker 1 1 and 0, each in half of its time.
    code = Uncoded(2, load=2)
    found = simulate(code, Scripted(), rounds=2, interrupted=False)
    # Worker 1 has sent both after 1 s. Then worker 0 needs 1 s more for its first message, and
    # takes up the next round after it.
    np.testing.assert_allclose(found.times, [1.0, 1.0])
    assert found.messages.tolist() == [2, 2]
    assert found.computations.tolist() == [2, 2]


def test_a_delay_of_the_round_comes_first():
    class Scripted:
        def __init__(self, per):
            self.per = per

        def sample(self, round, workers, seed):
            return np.array([3.0, 5.0])

    code = Uncoded(2, load=2)
    once = simulate(code, Scripted("round"), cost=1.0, rounds=1)
    assert once.times == pytest.approx(5.0)  # worker 0 begins after 3 s
    each = simulate(code, Scripted("computation"), cost=1.0, rounds=1)
    assert each.times == pytest.approx(6.0)  # worker 1 finishes its first partition
    assert once.computations == 2
    assert each.computations == 2


def test_delays_of_a_seed():
    small, large = ReedSolomon(20, stragglers=1), ReedSolomon(20, stragglers=8)
    settings = {"rounds": 200, "seed": 9}
    few, many = (simulate(code, PARETO, **settings) for code in (small, large))
    assert (many.times <= few.times).all()  # `large` waits for fewer of the same delays
    again = simulate(small, PARETO, **settings)
    assert_same(few, again)
    assert (simulate(small, PARETO, rounds=200, seed=10).times != few.times).all()


def test_more_rounds_than_are_drawn_at_a_time(monkeypatch):
    from fastgc.planning.simulation import monte_carlo

    code = Uncoded(8, load=2)
    whole = simulate(code, PARETO, rounds=100, interrupted=False)
    monkeypatch.setattr(monte_carlo, "_DRAWN", 8 * 7)
    parts = simulate(code, PARETO, rounds=100, interrupted=False)
    np.testing.assert_allclose(parts.times, whole.times, rtol=1e-10)


def test_figures_of_a_simulation():
    counts = np.array([2, 4, 3, 3])
    found = Simulation(np.array([4.0, 1.0, 3.0, 2.0]), counts, counts - 1, counts + 5, 1.5)
    assert found.mean == 2.5
    assert found.standard_error == pytest.approx(math.sqrt(5 / 3 / 4))
    assert found.mean_messages == 3
    assert found.mean_workers == 2
    assert found.mean_computations == 8
    assert found.communication_load == 4.5
    assert found.quantile(0.5) == 2.5
    np.testing.assert_array_equal(found.cdf([0.5, 1, 2.5, 4]), [0, 0.25, 0.5, 1])
    one = Simulation(np.ones(1), counts[:1], counts[:1], counts[:1])
    assert math.isnan(one.standard_error)


class Strange:
    per = "round"

    def __init__(self, *values):
        self.values = values

    def sample(self, round, workers, seed):
        return np.array(self.values)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"cost": -1}, "cost must be seconds, finite and not negative"),
        ({"cost": [1, 2]}, "one for each of 5 workers"),
        ({"receive": -1}, "receive must be finite and not negative"),
        ({"overhead": math.inf}, "overhead must be finite and not negative"),
        ({"method": "fast"}, 'method must be "auto", "kernel" or "round"'),
        ({"delays": Strange(1, 2)}, r"shape \(5,\), got \(2,\)"),
        ({"delays": Strange(1, 1, 1, 1, -1)}, "not be negative or NaN"),
        ({"delays": Strange(1, 1, 1, 1, math.nan)}, "not be negative or NaN"),
        ({"delays": Strange(1, 1, 1, 1, math.inf)}, "finite and not negative"),
        ({"delays": Pareto(1, 0.4)}, "mean time of a round does not exist.*all but 1"),
        ({"delays": Heterogeneous([PARETO] * 4)}, "4 workers"),
    ],
)
def test_bad_arguments(settings, text):
    code = ReedSolomon(5, stragglers=1)
    with pytest.raises(ValueError, match=text):
        simulate(code, **{"rounds": 10, **settings})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rounds": 2.5}, "rounds must be an integer"),
        ({"seed": None}, "seed must be an integer"),
        ({"delays": 3.0}, "delays must be a model"),
        ({"cost": "3"}, "cost"),
        ({"cost": None}, "cost"),
        ({"receive": None}, "receive"),
    ],
)
def test_arguments_of_a_wrong_type(settings, text):
    with pytest.raises(TypeError, match=text):
        simulate(ReedSolomon(5, stragglers=1), **settings)
    with pytest.raises(TypeError, match="code must be a code of fastgc, not 5"):
        simulate(5)


def test_workers_that_never_come_back():
    code = ReedSolomon(10, stragglers=4)
    heavy = Pareto(0.01, 0.9)  # the fifth slowest has a mean, but a single worker has none
    simulate(code, heavy, rounds=10)
    with pytest.raises(ValueError, match=r"does not exist if workers finish.*the 4 "):
        simulate(code, heavy, rounds=10, interrupted=False)
    few = Heterogeneous([Pareto(0.01, 0.9)] * 4 + [PARETO] * 6)
    simulate(code, few, rounds=10, interrupted=False)


def test_means_that_just_exist():
    with pytest.raises(ValueError, match="does not exist"):
        simulate(Uncoded(5), Pareto(1, 1.0), rounds=10)
    simulate(ReedSolomon(5, stragglers=1), Pareto(1, 0.51), rounds=10)
    heavy = Heterogeneous([Pareto(1, 0.5)] * 2 + [Exponential(1)] * 3)
    simulate(ReedSolomon(5, stragglers=2), heavy, rounds=10)
    with pytest.raises(ValueError, match="does not exist"):
        simulate(ReedSolomon(5, stragglers=1), heavy, rounds=10)


def test_costs_beyond_a_double_are_refused():
    with pytest.raises(ValueError, match="cost is too large for loads up to 2"):
        simulate(BinaryCode(4, stragglers=1), cost=1e308)
    with pytest.raises(ValueError, match="and 100 rounds"):
        simulate(BinaryCode(4, stragglers=1), cost=1e306, rounds=100)
    assert simulate(BinaryCode(4, stragglers=1), cost=1e200).standard_error > 0


def test_any_truth_interrupts():
    one, other = (
        simulate(BinaryCode(4, stragglers=1), Exponential(1.0), rounds=5, interrupted=truth)
        for truth in (True, memoryview(b"x"))
    )
    np.testing.assert_array_equal(one.times, other.times)


def test_quantiles_are_of_real_numbers():
    simulation = simulate(BinaryCode(4, stragglers=1), cost=0.1, rounds=3)
    for verb in (simulation.quantile, simulation.cdf):
        with pytest.raises(TypeError, match="must be real numbers, not complex128"):
            verb(1j)


def test_every_round_has_its_own_delays(monkeypatch):
    """This holds for a model without `draw`, however many rounds are simulated at once."""
    asked = []

    class Recorded:
        def sample(self, round, workers, seed):
            asked.append((round, workers, seed))
            return np.full(workers, float(round))

    monkeypatch.setattr("fastgc.simulation.monte_carlo._DRAWN", 12)
    found = simulate(Uncoded(3), Recorded(), cost=1.0, rounds=10, seed=5)
    assert asked == [(r, 3, 5) for r in range(10)]
    np.testing.assert_allclose(found.times, 1 + np.arange(10), rtol=1e-6)


def test_who_simulates_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr("fastgc.simulation.monte_carlo._DRAWN", 6)
    steps = []
    code = BinaryCode(3, stragglers=1)
    run = simulate(code, rounds=5, progress=lambda *at: steps.append(at))
    assert steps == [(2, 5), (4, 5), (5, 5)]
    assert len(run.times) == 5


@pytest.mark.parametrize("code", SMALL + MEDIUM, ids=SMALL_IDS + [repr(c)[:12] for c in MEDIUM])
def test_rounds_are_followed_as_the_codes_own_round_goes(code, monkeypatch):
    """By the code's rule, where it is a kernel's, which takes a fraction of the time."""
    settings = {"cost": 1e-3, "receive": 1e-4, "rounds": 6, "seed": 3}
    told = []
    rounds = follow(code, PARETO, progress=lambda *each: told.append(each), **settings).rounds
    assert told == [(done, 6) for done in range(1, 7)]
    monkeypatch.setattr("fastgc.simulation.monte_carlo.ByRule", MessageByMessage)
    for one, other in zip(rounds, follow(code, PARETO, **settings).rounds, strict=True):
        assert one[:3] == other[:3]
        for name in ("received", "arrivals", "decoded"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def called(call):
    """Names of all functions of Python that a call calls."""
    names = set()
    sys.setprofile(lambda frame, *_: names.add(frame.f_code.co_name))
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def test_what_an_alarm_raises_comes_through():
    """NumPy asks Python how records compare: whatever is raised there, it raises TypeError."""
    asked = "_promote_fields"
    assert asked in called(lambda: np.unique(np.eye(2), axis=0))
    code = codes.make("graph", 30, stragglers=5)
    assert asked not in called(lambda: simulate(code, Exponential(0.01), rounds=20))
    assert asked not in called(lambda: codes.make("graph", 30, stragglers=5))
