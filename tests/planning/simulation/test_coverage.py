"""Laws of UC-MMC agree with exact enumeration, integrals and simulation."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strength import much

import fastgc
from fastgc.delays import Empirical, Exponential, Heterogeneous, Mixture, Pareto, ShiftedExponential
from fastgc.planning.simulation import (
    closed_forms,
    covered_cdf,
    covered_mean,
    covered_messages,
    simulate,
    threshold_cdf,
    threshold_mean,
)

SHIFTED = ShiftedExponential(0.01, 10)
MODELS = [
    SHIFTED,
    Pareto(0.1, 2.5),
    Pareto(0.1, 2.5, per="computation"),
    Mixture([Exponential(0.3, "computation"), Pareto(0.2, 4, "computation")], [0.7, 0.3]),
]


def covered_law(n, k, batch, chances):
    """Return the probability of each number of different partitions, summed over all that was sent.

    Parameters
    ----------
    n, k, batch : int
    chances : list
        The probability of each number of messages of a worker, exact or not.
    """
    law = [0 * chances[0]] * (k + 1)
    for sent in itertools.product(range(len(chances)), repeat=n):
        came = {(i * k // n + j) % k for i, s in enumerate(sent) for j in range(s * batch)}
        law[len(came)] += math.prod(chances[s] for s in sent)
    return law


@settings(deadline=None, max_examples=much(300, 60))
@given(data=st.data())
def test_covered_cdf_is_the_sum_over_all_that_may_be_sent(data):
    """In exact fractions; delays are whole seconds, equally likely."""
    n, block = data.draw(st.integers(1, 6), "n"), data.draw(st.integers(1, 3), "k / n")
    k = n * block
    load = data.draw(st.integers(block, k), "load")
    batch = data.draw(st.integers(1, load), "batch")
    most = load // batch
    assume((most + 1) ** n <= 4000)
    seconds = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5), "delays")
    t = Fraction(data.draw(st.integers(1, 18 * load), "half seconds"), 2)
    done = [sum(x * batch * s <= t for x in seconds) for s in range(most + 2)]
    done[-1] = 0
    chances = [Fraction(a - b, len(seconds)) for a, b in itertools.pairwise(done)]
    law = covered_law(n, k, batch, chances)
    delays = Empirical([float(x) for x in seconds], per="computation")
    reached = k if most * batch >= block else n * most * batch
    for needed in range(1, reached + 1):
        cdf = covered_cdf(float(t), n, load, delays, k=k, needed=needed, batch=batch)
        assert abs(Fraction(float(cdf)) - sum(law[needed:])) < 1e-14


@pytest.mark.parametrize("delays", MODELS, ids=repr)
@pytest.mark.parametrize(
    ("n", "k", "load", "tolerance"),
    [(7, 7, 3, 0), (7, 7, 7, 0.3), (10, 10, 1, 0.2), (5, 15, 7, 0), (5, 15, 7, 0.3)],
)
def test_rounds_of_the_code_are_distributed_so(delays, n, k, load, tolerance):
    """Kolmogorov's distance stays below a limit that 1 simulation in 1000 exceeds."""
    code = fastgc.Uncoded(n, k, load=load, tolerance=tolerance)
    rounds, cost = 4000, 0.02
    run = simulate(code, delays, cost=cost, rounds=rounds, seed=3)
    law = {"k": k, "needed": code.scheme.rule.need, "cost": cost}
    assert 1 - tolerance <= code.scheme.rule.need / k < 1 - tolerance + 1 / k
    t = np.sort(run.times)
    cdf = covered_cdf(t, n, load, delays, **law)
    steps = np.arange(rounds + 1) / rounds
    distance = max(np.abs(cdf - steps[1:]).max(), np.abs(cdf - steps[:-1]).max())
    assert distance < math.sqrt(-math.log(0.001 / 2) / 2 / rounds)
    assert abs(run.mean - covered_mean(n, load, delays, **law)) < 4 * run.standard_error
    error = run.messages.std() / math.sqrt(rounds)
    messages = covered_messages(n, load, delays, **law)
    assert abs(run.mean_messages - messages) < 4 * error + 1e-9 * messages


def test_one_message_of_one_partition_is_a_threshold():
    t = np.linspace(0, 1, 30).reshape(5, 6)
    for needed in (1, 3, 4):
        cdf = covered_cdf(t, 4, 1, SHIFTED, needed=needed)
        np.testing.assert_allclose(cdf, threshold_cdf(t, 4, needed, SHIFTED, 1), atol=1e-15)
        mean = covered_mean(4, 1, SHIFTED, needed=needed)
        assert mean == pytest.approx(threshold_mean(4, needed, SHIFTED, 1), rel=1e-12)
    # All in one message.
    cdf = covered_cdf(t, 4, 3, SHIFTED, k=12, batch=3)
    np.testing.assert_allclose(cdf, threshold_cdf(t, 4, 4, SHIFTED, 3), atol=1e-15)


def test_one_worker_that_sends_all_is_enough():
    """At load k, a round ends at the latest with the first of n workers to finish."""
    t = np.linspace(0, 0.4, 50)
    first = threshold_cdf(t, 6, 1, SHIFTED, 6)
    assert (covered_cdf(t, 6, 6, SHIFTED) >= first).all()
    late = 1 - covered_cdf(t, 1, 3, SHIFTED, k=3)
    np.testing.assert_allclose(late, SHIFTED.survival(t / 3), atol=1e-15)


@pytest.mark.parametrize("needed", [5, 4, 2])
@pytest.mark.parametrize("delays", [SHIFTED, Pareto(0.1, 1.3, "computation")], ids=repr)
def test_covered_mean_is_the_integral(delays, needed):
    """The mean is the integral of the law; in the tail, the variable is 1 / t."""
    n, load = 5, 3
    sent = np.array(list(itertools.product(range(load + 1), repeat=n)))
    came = np.array([len({(i + j) % n for i in range(n) for j in range(row[i])}) for row in sent])

    def late(t):
        done = np.array([np.ones_like(t), *(delays.cdf(t / s) for s in (1, 2, 3)), 0 * t])
        return (done[:-1] - done[1:])[sent[came < needed]].prod(axis=1).sum(axis=0)

    nodes, weights = np.polynomial.legendre.leggauss(24)
    least, end = float(delays.quantile(0)), 2.0
    kinks = [least, 2 * least, 3 * least]
    edges = np.array([0.0, *kinks, *np.geomspace(1.2 * kinks[-1], end, 12)])
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges)[:, None] / 2
    body = (
        late((middle[:, None] + half * nodes).ravel()).reshape(half.size, -1) * weights * half
    ).sum()
    v = (1 + nodes) / 2
    rest = (late(end / v) * end / v**2) @ weights / 2
    assert covered_mean(n, load, delays, needed=needed) == pytest.approx(body + rest, rel=1e-8)


@pytest.mark.parametrize(
    ("n", "k", "load", "needed", "batch"),
    [(4, 4, 2, None, 1), (4, 4, 4, None, 1), (5, 10, 5, 8, 2), (3, 6, 2, 4, 1), (6, 6, 1, 4, 1)],
)
def test_a_mean_exists_if_enough_must_be_late(n, k, load, needed, batch):
    """A round's tail is that of the smallest set of workers that it cannot do without."""
    needed = k if needed is None else needed
    sent = load // batch * batch
    for silent in range(n + 1):
        sets = itertools.combinations(range(n), n - silent)
        came = [{(i * k // n + j) % k for i in some for j in range(sent)} for some in sets]
        if min(map(len, came)) < needed:
            break
    law = {"k": k, "needed": needed, "batch": batch}
    assert covered_mean(n, load, Pareto(1, 1.01 / silent), **law) > 1
    with pytest.raises(ValueError, match="mean does not exist"):
        covered_mean(n, load, Pareto(1, 0.99 / silent), **law)


def test_tails_keep_their_digits():
    """The mean lies in the tail, in probabilities too small to compute as differences from 1."""
    # With a delay per round and no cost, a worker sends all three at once, and one suffices.
    delays = Pareto(1.0, 0.34)  # the exponents of three late workers add up to 1.02
    mean = covered_mean(3, 3, delays)
    assert mean == pytest.approx(delays.order_statistic_mean(1, 3), rel=1e-9)
    assert mean > 50


def test_of_recorded_times_the_mean_is_exact():
    delays = Empirical([1.0, 2.0, 6.0], per="computation")
    n, load = 4, 2
    times = [
        max(min(d[i], 2 * d[i - 1]) for i in range(n))
        for d in itertools.product([1, 2, 6], repeat=n)
    ]
    assert covered_mean(n, load, delays) == pytest.approx(sum(times) / 3**n, rel=1e-14)


@pytest.mark.parametrize(
    ("n", "k", "load", "needed", "batch"),
    [
        (5, 5, 3, 5, 1),
        (6, 6, 3, 5, 1),
        (5, 5, 5, 4, 2),
        (4, 12, 7, 11, 2),
        (4, 12, 3, 10, 1),
        (1, 3, 3, 2, 1),
        (3, 3, 1, 3, 1),
    ],
)
@pytest.mark.parametrize("delays", [Exponential(2.0), Pareto(1.0, 0.1)], ids=repr)
def test_covered_messages_of_every_order(n, k, load, needed, batch, delays):
    """If workers are late once and then send all messages, all orders are equally likely."""
    counts = []
    for order in itertools.permutations(range(n)):
        came, count = set(), 0
        for worker, m in itertools.product(order, range(load // batch)):
            first = worker * k // n + m * batch
            came |= {j % k for j in range(first, first + batch)}
            count += 1
            if len(came) >= needed:
                break
        counts.append(count)
    mean = covered_messages(n, load, delays, k=k, needed=needed, batch=batch)
    assert mean == pytest.approx(sum(counts) / len(counts), rel=1e-9)


def test_covered_messages_of_two_and_three_workers():
    # With two workers, the round ends with the second message, whoever sends it.
    assert covered_messages(2, 2, ShiftedExponential(0.1, 3)) == pytest.approx(2, rel=1e-10)
    x = np.random.default_rng(1).exponential(size=(100_000, 3))
    over = np.max(np.minimum(x, 2 * np.roll(x, 1, axis=1)), axis=1, keepdims=True)
    counts = (x <= over).sum(axis=1) + (2 * x <= over).sum(axis=1)
    mean = covered_messages(3, 2, Exponential(1, "computation"))
    assert abs(mean - counts.mean()) < 4 * counts.std() / math.sqrt(counts.size)
    assert counts.std() > 0.3


@pytest.mark.parametrize("t", [0.0, 0.5, 2.0, 4.0, 8.0])
@pytest.mark.parametrize(("n", "load", "needed"), [(3, 2, 3), (6, 3, 5), (6, 5, 6)])
def test_messages_to_come_are_bounded(n, load, needed, t):
    """Panels end where few messages are to come: these are no more than the bound says."""
    circle = closed_forms._Circle(n, load, Exponential(1, "computation"), None, needed, 1, 0.0)
    edges = np.linspace(t, t + 60, 400)
    rest = circle._messages(edges[:-1], edges[1:])[0].sum()
    assert 0 < rest <= circle._to_come(t) * (1 + 1e-9)


def test_covered_messages_of_workers_that_hardly_differ():
    delays = ShiftedExponential(1e6, 1, per="round")
    alike = covered_messages(6, 3, Exponential(1), needed=5)
    assert alike == pytest.approx(6.3, rel=1e-12)
    assert covered_messages(6, 3, delays, needed=5) == pytest.approx(6.3, rel=1e-7)
    spread = covered_messages(6, 3, Exponential(1), cost=0.5)
    assert covered_messages(6, 3, delays, cost=0.5) == pytest.approx(spread, rel=1e-7)
    with pytest.raises(ValueError, match="come at the same moment"):
        covered_messages(6, 3, ShiftedExponential(1.0, 1e12))
    with pytest.raises(ValueError, match="too heavy-tailed: workers are late beyond all floats"):
        covered_messages(3, 3, Pareto(1, 1e-3, "computation"))
    for unit in (1e-200, 1e200):
        scaled = ShiftedExponential(0.1 * unit, 10 / unit)
        exact = covered_messages(6, 3, ShiftedExponential(0.1, 10))
        assert covered_messages(6, 3, scaled) == pytest.approx(exact, rel=1e-12)
        mean = covered_mean(6, 3, ShiftedExponential(0.1, 10))
        assert covered_mean(6, 3, scaled) / unit == pytest.approx(mean, rel=1e-12)


def test_covered_messages_of_scales_far_apart():
    """One worker in ten takes a million times as long."""
    delays = Mixture(
        [Exponential(1e-3, "computation"), Exponential(1e3, "computation")], [0.9, 0.1]
    )
    code = fastgc.Uncoded(4, load=2)
    run = simulate(code, delays, rounds=40_000, seed=2)
    error = run.messages.std() / math.sqrt(run.messages.size)
    assert abs(run.mean_messages - covered_messages(4, 2, delays)) < 4 * error
    assert error < 0.01


def test_more_load_and_more_tolerance_take_less_time():
    t = np.linspace(0, 2, 200)
    for law in ("load", "needed"):
        each = [
            covered_cdf(t, 12, *((r, SHIFTED) if law == "load" else (3, SHIFTED)), needed=needed)
            for r, needed in (
                [(r, 12) for r in range(1, 13)]
                if law == "load"
                else [(3, m) for m in range(12, 0, -1)]
            )
        ]
        for less, more in itertools.pairwise(each):
            assert (more >= less - 1e-14).all()
        assert all(((cdf >= 0) & (cdf <= 1)).all() for cdf in each)
        assert all((np.diff(cdf) > -1e-14).all() for cdf in each)


def test_times_of_any_shape():
    assert covered_cdf(0.3, 5, 2, SHIFTED).shape == ()
    assert covered_cdf([], 5, 2, SHIFTED).shape == (0,)
    found = covered_cdf([[0.1, math.nan], [-1.0, math.inf]], 5, 2, SHIFTED)
    assert found.shape == (2, 2)
    assert math.isnan(found[0, 1])
    assert found[1, 0] == 0
    assert found[1, 1] == 1
    many = np.linspace(0, 1, 20_000)  # more than are computed at once
    whole = covered_cdf(many, 5, 2, SHIFTED)
    np.testing.assert_array_equal(whole[::1999], covered_cdf(many[::1999], 5, 2, SHIFTED))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 0}, "n must be at least 1, not 0"),
        ({"k": 6}, "k must be a multiple of n = 4, not 6"),
        ({"load": 5}, r"load must be in k / n = 1 \.\. k = 4, not 5"),
        ({"load": 1, "k": 8}, r"load must be in k / n = 2 \.\. k = 8, not 1"),
        ({"batch": 3}, r"batch must be in 1 \.\. load = 2, not 3"),
        ({"needed": 0}, r"needed must be in 1 \.\. 4, .* not 0"),
        ({"needed": 5}, r"needed must be in 1 \.\. 4, .* not 5"),
        ({"k": 12, "load": 3, "batch": 2, "needed": 9}, r"needed must be in 1 \.\. 8, .* not 9"),
        ({"cost": -1}, "cost must be finite and not negative"),
        ({"delays": Heterogeneous([SHIFTED] * 4)}, "workers must be alike, not Heterogeneous"),
        ({"delays": Empirical([[1, 2], [3, 4]])}, "simulate, or pool the samples"),
    ],
)
def test_bad_arguments(arguments, says):
    given = {"n": 4, "load": 2, "delays": SHIFTED} | arguments
    with pytest.raises(ValueError, match=says):
        covered_cdf(0.1, **given)
    for mean in (covered_mean, covered_messages):
        with pytest.raises(ValueError, match=says):
            mean(**given)


def test_messages_that_come_at_the_same_moment():
    for delays in (
        Empirical([0.1, 0.2], per="computation"),
        Mixture([Empirical([0.3, 0.5]), Exponential(1)], [0.5, 0.5]),
    ):
        with pytest.raises(ValueError, match=r"come at the same moment.*: simulate"):
            covered_messages(4, 2, delays)


def test_wrong_types():
    with pytest.raises(TypeError, match=r"delays must be a model of fastgc\.delays"):
        covered_mean(4, 2, None)
    with pytest.raises(TypeError, match="needed must be an integer"):
        covered_cdf(0.1, 4, 2, SHIFTED, needed=3.5)
    with pytest.raises(TypeError, match="t must be"):
        covered_cdf("3", 4, 2, SHIFTED)
