"""Simulated rounds: the kernel agrees with the codes' own rounds, and both with closed forms."""

import math

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
    RandomAssignment,
    Reactive,
    ReedSolomon,
    Uncoded,
)
from fastgc.delays import Exponential, Heterogeneous, Pareto, ShiftedExponential
from fastgc.planning.simulation import Simulation, simulate
from fastgc.planning.simulation.monte_carlo import _Judge, kernel_rule

PARETO = Pareto(0.001, 1.5)
SHIFTED = ShiftedExponential(0.01, 10.0)  # the delay of each computation
MEDIUM = [
    ReedSolomon(40, stragglers=7, clusters="auto"),
    BinaryCode(31, 47, stragglers=4),
    CouponCollector(40, load=8, seed=1),
    Uncoded(40, load=5, tolerance=0.05),
    Uncoded(40, load=40),  # 40 messages of each partition: the kernel looks at the first ones
    RandomAssignment(36, 12, load=12, seed=1),
    LagrangeCode(20, load=6, messages=3, nodes="roots"),
]


HEAVY = Heterogeneous([Pareto(1, 0.5)] * 2 + [Exponential(1)] * 3)


class Given:
    """A delay model defined by a function."""

    def __init__(self, sample, per="round"):
        self.sample, self.per = sample, per


def always(*values, per="round"):
    """Return a model whose delays are the same in each round."""
    return Given(lambda round, workers, seed: np.array(values, dtype=float), per)


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
    code = ReedSolomon(19, 38, stragglers=4)
    found = simulate(code, PARETO, cost=1e-4, rounds=ROUNDS[method], seed=1, method=method)
    mean = PARETO.order_statistic_mean(15, 19) + 1e-4 * code.load
    assert abs(z_score(found, mean)) < 4
    assert abs(z_score(found, PARETO.order_statistic_mean(16, 19) + 1e-4 * code.load)) > 8
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


# ------------------------------------------------------------------------------------ the model


@pytest.mark.parametrize("method", ["kernel", "round"])
def test_no_computation_is_lost_beside_a_long_delay(method):
    """None is lost, even though most digits of the time since the delay's end are."""
    code = ReedSolomon(6, 5, stragglers=2)
    for scale, cost in ((1.0, 1e-8), (100.0, 1e-6), (0.01, 0.0)):
        delays = Pareto(scale, 1.5)
        found = simulate(code, delays, cost=cost, receive=1e-9, rounds=200, method=method)
        assert (found.workers == 4).all()
        assert (found.computations == 4 * code.load).all()


def test_late_workers_miss_rounds():
    # In round 0 worker 0 takes 10 s, and ends 9.2 s after the round; otherwise 0.1 s.
    late = Given(lambda round, workers, seed: np.array([0.1 if round else 10.0, 0.5, 0.8]))
    code = ReedSolomon(3, stragglers=1)
    dropped = simulate(code, late, rounds=3)
    np.testing.assert_allclose(dropped.times, [0.8, 0.5, 0.5])
    kept = simulate(code, late, rounds=20, interrupted=False)
    # Rounds take 0.8 s without worker 0, until it is free 10 s after the start.
    # After 9.6 s: in the next round it answers after 0.4 + 0.1 s, like the first of the others.
    np.testing.assert_allclose(kept.times[:13], [0.8] * 12 + [0.5])


def test_every_round_has_its_own_delays(monkeypatch):
    """This holds for a model without `draw`, however many rounds are simulated at once."""
    asked = []

    def sample(round, workers, seed):
        asked.append((round, workers, seed))
        return np.full(workers, float(round))

    monkeypatch.setattr("fastgc.simulation.monte_carlo._DRAWN", 12)
    found = simulate(Uncoded(3), Given(sample), cost=1.0, rounds=10, seed=5)
    assert asked == [(r, 3, 5) for r in range(10)]
    np.testing.assert_allclose(found.times, 1 + np.arange(10), rtol=1e-6)


def test_delays_of_a_seed():
    small, large = ReedSolomon(19, stragglers=1), ReedSolomon(19, stragglers=8)
    settings = {"rounds": 200, "seed": 9}
    few, many = (simulate(code, PARETO, **settings) for code in (small, large))
    assert (many.times <= few.times).all()  # `large` waits for fewer of the same delays
    again = simulate(small, PARETO, **settings)
    assert_same(few, again)
    assert (simulate(small, PARETO, rounds=200, seed=10).times != few.times).all()


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
    for verb in (one.quantile, one.cdf):
        with pytest.raises(TypeError, match="real numbers, not complex128"):
            verb(1j)


def test_workers_that_never_come_back():
    code = ReedSolomon(10, stragglers=4)
    heavy = Pareto(0.01, 1.0)  # the fifth slowest has a mean, but a single worker has none
    simulate(code, heavy, rounds=10)
    with pytest.raises(ValueError, match=r"does not exist if workers finish.*the 4 "):
        simulate(code, heavy, rounds=10, interrupted=False)
    few = Heterogeneous([Pareto(0.01, 0.9)] * 4 + [PARETO] * 6)
    simulate(code, few, rounds=10, interrupted=False)


def test_who_simulates_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr("fastgc.simulation.monte_carlo._DRAWN", 6)
    steps = []
    code = BinaryCode(3, stragglers=1)
    run = simulate(code, rounds=5, progress=lambda *at: steps.append(at))
    assert steps == [(2, 5), (4, 5), (5, 5)]
    assert len(run.times) == 5


def test_rounds_that_wait_for_better_messages_end_as_the_codes_own_do():
    """By the code's rule, which takes a fraction of the time."""
    code = LagrangeCode(8, 8, load=4, messages=2)
    assert code.scheme.gate.waits
    settings = {"cost": 1e-3, "receive": 1e-4, "rounds": 20, "seed": 3}
    run, own = (simulate(code, PARETO, method=method, **settings) for method in ("auto", "round"))
    np.testing.assert_allclose(run.times, own.times, rtol=1e-9)
    np.testing.assert_array_equal(run.messages, own.messages)


# ------------------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("error", "settings", "text"),
    [
        (ValueError, {"rounds": 0}, "rounds must .*not 0"),
        (TypeError, {"rounds": 2.5}, "rounds must"),
        (TypeError, {"seed": None}, "seed must"),
        (ValueError, {"cost": -1}, "cost must .*-1"),
        (ValueError, {"cost": [1, 2]}, "one for each of 5 workers"),
        (ValueError, {"cost": 1e308}, "cost .* loads up to 2"),
        (ValueError, {"cost": 1e306, "rounds": 100}, "cost .* 100 rounds"),
        (TypeError, {"cost": "3"}, "cost"),
        (ValueError, {"receive": -1}, "receive must .*-1"),
        (TypeError, {"receive": None}, "receive"),
        (ValueError, {"overhead": math.inf}, "overhead must .*inf"),
        (ValueError, {"method": "fast"}, 'method must be "auto", "kernel" or "round"'),
        (TypeError, {"delays": 3.0}, "delays must be a model"),
        (TypeError, {"delays": "none"}, "; fastgc.delays.parse makes one of a text"),
        (ValueError, {"delays": always(1, 2)}, r"shape \(5,\), got \(2,\)"),
        (ValueError, {"delays": always(1, 1, 1, 1, -1)}, "negative"),
        (ValueError, {"delays": always(1, 1, 1, 1, math.nan)}, "NaN"),
        (ValueError, {"delays": always(1, 1, 1, 1, math.inf)}, "finite"),
        (ValueError, {"delays": Heterogeneous([PARETO] * 4)}, "4 workers"),
        (ValueError, {"delays": Pareto(1, 0.5)}, "does not exist.*all but 1"),
        (ValueError, {"delays": HEAVY}, "does not exist"),
        (TypeError, {"code": 5}, "code must be a code of fastgc, .*, not 5"),
    ],
)
def test_simulate_refuses(error, settings, text):
    with pytest.raises(error, match=text):
        simulate(**{"code": ReedSolomon(5, stragglers=1), "rounds": 10, **settings})


@pytest.mark.parametrize(
    ("tails", "at_once", "later"),
    [
        ([2, 2, 2, 2, 2], True, True),
        ([math.nan, 2, 2, 2, 2], True, True),
        ([math.nan, 0.6, 0.6, 2, 2], True, None),  # 0 + 0.6 + 0.6, but one alone has no mean
        ([math.nan, math.nan, 1, 2, 2], None, None),  # 0 + 0 + 1
        ([math.nan, 0.5, 1, 2, 2], True, None),
    ],
)
def test_mean_exists_if_tails_that_are_unknown_do_not_matter(tails, at_once, later):
    model = always(1, 2, 3, 4, 5)
    model.tail_indices = lambda workers: np.array(tails, dtype=float)
    for interrupted, exists in ((True, at_once), (False, later)):
        code = ReedSolomon(5, stragglers=2)
        found = simulate(code, model, rounds=2, interrupted=interrupted)
        assert found.mean_exists is exists


def test_simulate_where_a_mean_or_a_square_just_exists():
    simulate(ReedSolomon(5, stragglers=1), Pareto(1, 0.51), rounds=10)
    simulate(ReedSolomon(5, stragglers=2), HEAVY, rounds=10)
    assert simulate(BinaryCode(4, stragglers=1), cost=1e200).standard_error > 0


@pytest.mark.parametrize(
    "code",
    [
        FractionalRepetition(12, 4, stragglers=2, wait=11),
        LinearCode(np.kron(np.eye(4), np.ones((3, 1))), wait=11),
        LinearCode(np.random.default_rng(0).choice([0.0, 1.0, -2.0], (12, 5)), wait=11),
    ],
    ids=["fractional", "linear", "any matrix"],
)
def test_rounds_that_wait_for_some_end_with_the_first_exact_set(code, monkeypatch):
    """Not one message later, though they would wait for eleven workers; also without a kernel."""
    delays = Exponential(1.0)
    sets, take = [], _Judge.take
    monkeypatch.setattr(_Judge, "take", lambda self, F: (sets.append(F), take(self, F)))
    waits = np.sort(simulate(code, delays, rounds=60, method="round").times)
    for received in sets:
        assert code.residual(received) < 1e-9
        assert code.residual(received[:-1]) > 1e-3
    assert len({received.size for received in sets}) > 4
    np.testing.assert_allclose(np.sort(simulate(code, delays, rounds=60).times), waits)
    monkeypatch.setattr("fastgc.planning.simulation.monte_carlo.kernel_rule", lambda code: None)
    np.testing.assert_allclose(np.sort(simulate(code, delays, rounds=60).times), waits)


@pytest.mark.parametrize("deadline", [0.1, math.inf])
def test_holders_that_are_asked_make_up_for_heavy_tails(deadline):
    """Three workers hold each share, so that only three heavy tails together have no mean."""
    code = Reactive(6, holders=3, deadline=deadline)
    heavy = Pareto(0.01, 0.4)
    if deadline == math.inf:
        with pytest.raises(ValueError, match="does not exist"):
            simulate(code, heavy, rounds=10)
    else:
        assert np.isfinite(simulate(code, heavy, rounds=10).times).all()
        with pytest.raises(ValueError, match="does not exist"):
            simulate(code, Pareto(0.01, 0.3), rounds=10)
