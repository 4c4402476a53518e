"""Closed forms agree with enumeration, exact fractions, multiprecision integrals and samples."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strength import much

import fastgc
from fastgc.delays import Empirical, Exponential, Heterogeneous, Mixture, Pareto, ShiftedExponential
from fastgc.planning.simulation import (
    adaptive_loads,
    completions_pmf,
    coupon_threshold,
    coverage_probability,
    covered_cdf,
    covered_mean,
    covered_messages,
    fastest_of_groups_mean,
    least_threshold,
    mds_threshold,
    random_threshold,
    received_cdf,
    received_mean,
    selected_mean,
    simulate,
    threshold_cdf,
    threshold_mean,
    total_cdf,
    total_mean,
)


def test_means_of_times_that_hardly_vary():
    """Means are right if times vary by no more, or little more, than rounding."""
    for shape in (1e4, 1e5, 1e6):
        pareto = Pareto(1.0, shape)
        exact = pareto.order_statistic_mean(3, 3)
        assert received_mean([1] * 3, pareto, 3) == pytest.approx(exact, rel=1e-11)
        same = Heterogeneous([pareto] * 3)
        assert same.order_statistic_mean(3, 3) == pytest.approx(exact, rel=1e-11)
    exponential = Exponential(1e-9, per="computation")
    harmonic = sum(1 / i for i in range(11, 21))
    found = received_mean([10] * 20, exponential, 100, cost=10.0)
    assert found == pytest.approx(100 + 1e-8 * harmonic, rel=1e-13)
    shifted = Heterogeneous([ShiftedExponential(0.01, 1e6)] * 10)
    exact = 0.01 + 1e-6 * sum(1 / i for i in range(3, 11))
    assert threshold_mean(10, 8, shifted, 1) == pytest.approx(exact, rel=1e-12)


SHIFTED = ShiftedExponential(0.01, 10)
MODELS = [
    SHIFTED,
    ShiftedExponential(0.2, 3, per="round"),
    Pareto(0.1, 2.5),
    Pareto(0.1, 2.5, per="computation"),
    Exponential(0.3),
    Mixture([Exponential(0.3), Pareto(0.2, 4)], [0.7, 0.3]),
    Empirical([0.1, 0.15, 0.15, 0.4, 0.9]),
]
TIMES = np.array([-1, 0, 0.05, 0.11, 0.2, 0.33, 0.5, 0.77, 1.3, 4, 60])


def done(t, count, delays, cost=0.0):
    """Return P(a worker has done j computations by t); it is late once, or in each of them."""
    if delays.per == "round":
        return delays.cdf(t - cost * count)
    return delays.cdf(t / count - cost)


def assert_mean(mean, samples):
    error = samples.std() / math.sqrt(samples.size)
    assert abs(samples.mean() - mean) < 4 * error


# ---------------------------------------------------------------------- any K of n workers


@pytest.mark.parametrize("delays", MODELS, ids=repr)
@pytest.mark.parametrize(("n", "threshold", "load", "cost"), [(1, 1, 1, 0), (6, 4, 3, 0.02)])
def test_threshold_cdf_is_the_sum(delays, n, threshold, load, cost):
    p = done(TIMES, load, delays, cost)
    terms = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(threshold, n + 1)]
    cdf = threshold_cdf(TIMES, n, threshold, delays, load, cost=cost)
    np.testing.assert_allclose(cdf, sum(terms), rtol=1e-12, atol=1e-15)


def test_threshold_cdf_keeps_its_digits():
    # Eq. (18), at a time when the sum has terms of 1e+28 times its value.
    n, K, r, t = 100, 91, 10, 0.1 + 1e-3
    p = 1 - mpmath.e ** (-10 * (mpmath.mpf(t) / r - mpmath.mpf(0.01)))
    exact = mpmath.fsum(mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k) for k in range(K, n + 1))
    assert 0 < exact < 1e-200
    assert float(threshold_cdf(t, n, K, SHIFTED, r)) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("delays", MODELS, ids=repr)
def test_threshold_mean_is_that_of_the_total(delays):
    # Each worker sends one message, after all its computations.
    mean = threshold_mean(6, 4, delays, 3, cost=0.02)
    assert total_mean(6, 3, 4, delays, batch=3, cost=0.02) == pytest.approx(mean, rel=1e-9)
    assert received_mean([3] * 6, delays, 12, cost=0.02) == pytest.approx(mean, rel=1e-9)


def test_threshold_mean_of_shifted_exponentials():
    mean = threshold_mean(10, 7, SHIFTED, 4, cost=0.5)
    assert mean == pytest.approx(4 * (0.51 + sum(0.1 / i for i in range(4, 11))), rel=1e-13)


def test_threshold_of_workers_that_differ():
    delays = Heterogeneous([Exponential(1), Exponential(2), Exponential(0.5)])
    p = np.array([model.cdf(TIMES) for model in delays.models])
    two = p[0] * p[1] * (1 - p[2]) + p[0] * (1 - p[1]) * p[2] + (1 - p[0]) * p[1] * p[2]
    both = two + p.prod(axis=0)
    np.testing.assert_allclose(threshold_cdf(TIMES, 3, 2, delays, 5), both, atol=1e-15)
    # The first of exponential times is exponential; the rest follows by inclusion and exclusion.
    rates = [1, 0.5, 2]
    exact = sum(1 / (a + b) for a, b in itertools.combinations(rates, 2)) - 2 / sum(rates)
    assert threshold_mean(3, 2, delays, 5) == pytest.approx(exact, rel=1e-10)


# ----------------------------------------------------- any number of messages, whoever sends them


@pytest.mark.parametrize("delays", MODELS, ids=repr)
@pytest.mark.parametrize(("load", "batch"), [(1, 1), (5, 1), (6, 2), (7, 3)])
def test_completions_pmf(delays, load, batch):
    pmf = completions_pmf(TIMES, load, delays, batch=batch, cost=0.01)
    assert pmf.shape == (TIMES.size, load // batch + 1)
    np.testing.assert_allclose(pmf.sum(axis=1), 1, rtol=1e-14)
    assert (pmf >= 0).all()
    at_least = [done(TIMES, s, delays, 0.01) for s in range(batch, load + 1, batch)]
    tails = pmf[:, ::-1].cumsum(axis=1)[:, -2::-1]
    np.testing.assert_allclose(tails, np.transpose(at_least), rtol=1e-12, atol=1e-15)


def test_completions_pmf_is_equation_13():
    mu, alpha, r = 10.0, 0.01, 5
    for t in (0.005, 0.013, 0.025, 0.047, 0.2):
        pmf = completions_pmf(t, r, SHIFTED)
        for s in range(1, r):
            if t < s * alpha:
                expected = 0.0
            elif t < (s + 1) * alpha:
                expected = 1 - math.exp(-mu * (t / s - alpha))
            else:
                expected = math.exp(-mu * (t / (s + 1) - alpha)) - math.exp(-mu * (t / s - alpha))
            assert pmf[s] == pytest.approx(expected, rel=1e-12, abs=1e-16)
        assert pmf[r] == pytest.approx(max(0, 1 - math.exp(-mu * (t / r - alpha))), abs=1e-16)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_total_cdf_is_the_enumeration(data):
    # Eq. (14), literally.
    n, load = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    batch = data.draw(st.integers(1, load))
    threshold = data.draw(st.integers(1, n * (load // batch)))
    delays = data.draw(st.sampled_from(MODELS))
    t = data.draw(st.floats(0, 3))
    pmf = completions_pmf(t, load, delays, batch=batch)
    probability = 0.0
    for counts in itertools.product(range(n + 1), repeat=pmf.size):
        if sum(counts) == n and np.arange(pmf.size) @ counts >= threshold:
            ways, left = 1, n
            for count in counts:
                ways *= math.comb(left, count)
                left -= count
            probability += ways * float(np.prod(pmf**counts))
    cdf = total_cdf(t, n, load, threshold, delays, batch=batch)
    assert float(cdf) == pytest.approx(probability, abs=1e-13)


def test_total_cdf_of_workers_that_differ():
    delays = Heterogeneous([Exponential(1), Exponential(3), Exponential(1), Pareto(0.2, 2)])
    t = 0.9
    pmfs = [completions_pmf(t, 3, model) for model in delays.models]
    exact = sum(
        math.prod(pmf[s] for pmf, s in zip(pmfs, counts, strict=True))
        for counts in itertools.product(range(4), repeat=4)
        if sum(counts) >= 8
    )
    assert float(total_cdf(t, 4, 3, 8, delays)) == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("delays", [SHIFTED, Pareto(0.1, 1.3), Exponential(0.3)], ids=repr)
def test_total_mean_is_the_integral(delays):
    # Eq. (17); if two workers are late, their tail is in powers of 1 / t.
    n, r, threshold = 4, 3, 8

    def late(t):
        return mpmath.mpf(float(1 - total_cdf(float(t), n, r, threshold, delays)))

    mean = total_mean(n, r, threshold, delays)
    scales = range(1, r + 1) if delays.per == "computation" else [1]
    kinks = [float(delays.quantile(0)) * scale for scale in scales]
    edges = sorted({0.0, *kinks, *(mean * 2.0**j for j in range(-6, 14))})
    end = edges[-1]
    mpmath.mp.dps = 15
    body = mpmath.quad(late, edges)
    index = 2 * delays.tail_indices(1)[0]
    rest = 0 if math.isinf(index) else end * late(end) / (index - 1)
    assert mean == pytest.approx(float(body + rest), rel=1e-7)


@pytest.mark.parametrize("load", [2, 4, 10, 40])
def test_total_mean_with_and_without_messages_in_between(load):
    # Fig. 2(a) of Ozfatura et al.: the master needs 79 computations, or 2 ceil(40 / r) - 1 workers.
    lcc = threshold_mean(40, 2 * -(-40 // load) - 1, SHIFTED, load)
    mmc = total_mean(40, load, 79, SHIFTED)
    # At r = 2 it needs all computations but one, or all workers but one.
    assert mmc > lcc if load == 2 else mmc < lcc


# --------------------------------------------------------------- workers of different loads


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_received_cdf_is_the_sum_over_sets(data):
    n = data.draw(st.integers(1, 6))
    loads = data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n).filter(any))
    needed = data.draw(st.integers(1, sum(loads)))
    delays = Heterogeneous([Exponential(data.draw(st.sampled_from([0.5, 1, 2]))) for _ in loads])
    t = data.draw(st.floats(0, 3))
    p = [float(model.cdf(t - 0.1 * r)) for model, r in zip(delays.models, loads, strict=True)]
    exact = sum(
        math.prod(q if i in done else 1 - q for i, q in enumerate(p))
        for size in range(n + 1)
        for done in itertools.combinations(range(n), size)
        if sum(loads[i] for i in done) >= needed
    )
    cdf = received_cdf(t, loads, delays, needed, cost=0.1)
    assert float(cdf) == pytest.approx(exact, abs=1e-13)


def test_received_mean_of_all_is_that_of_the_maximum():
    loads, delays = [1, 2, 3], Heterogeneous([Exponential(m, per="computation") for m in (3, 2, 1)])
    rates = [1 / 3, 1 / 4, 1 / 3]
    pairs = [sum(pair) for pair in itertools.combinations(rates, 2)]
    exact = sum(1 / a for a in rates) - sum(1 / a for a in pairs) + 1 / sum(rates)
    assert received_mean(loads, delays, 6) == pytest.approx(exact, rel=1e-10)


def test_received_mean_exists_by_the_heaviest_tails():
    for loads, needed in ([1, 1, 1], 3), ([5, 1, 1], 3), ([2, 1, 1], 3), ([0, 1, 1], 2):
        with pytest.raises(ValueError, match=r"mean does not exist.*tail t\^-0\.7"):
            received_mean(loads, Pareto(1, 0.7), needed)
    assert math.isfinite(received_mean([2, 1, 1], Pareto(1, 0.7), 2))
    delays = Heterogeneous([Pareto(1, 0.4), Exponential(1), Pareto(1, 0.5), Pareto(1, 0.3)])
    assert math.isfinite(received_mean([1, 1, 1, 1], delays, 1))
    assert math.isfinite(received_mean([1, 2, 1, 1], delays, 3))  # 0.4 + 0.5 + 0.3
    with pytest.raises(ValueError, match=r"tail t\^-0\.7"):
        received_mean([2, 1, 1, 1], delays, 3)
    with pytest.raises(ValueError, match=r"tail t\^-0\.7"):
        total_mean(4, 2, 6, delays)


# ------------------------------------------------------------------------ recovery thresholds


def test_thresholds_are_those_of_li_et_al():
    # Fig. 2 and section III-C: m = n = 100 and r = 10.
    assert least_threshold(100, 10) == 10
    assert mds_threshold(100, 10) == 91
    assert coupon_threshold(100, 10) == pytest.approx(10 * sum(1 / i for i in range(1, 11)))
    assert coupon_threshold(50, 12) == pytest.approx(5 * (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5))
    assert coupon_threshold(2**63, 1) == pytest.approx(2**63 * float(mpmath.harmonic(2**63)), 1e-14)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 20])
def test_random_threshold_by_counting_what_is_covered(k):
    """The threshold agrees with a sum of positive terms, by how many partitions a draw adds."""
    for load in range(1, k + 1):
        means = [Fraction(0)]  # indexed by the number of partitions not drawn yet
        for left in range(1, k + 1):
            draws = math.comb(k, load)
            chances = [
                Fraction(math.comb(left, new) * math.comb(k - left, load - new), draws)
                for new in range(min(left, load) + 1)
            ]
            rest = sum(chance * means[left - new] for new, chance in enumerate(chances) if new)
            means.append((1 + rest) / (1 - chances[0]))
        assert random_threshold(k, load) == pytest.approx(float(means[k]), rel=1e-15)


def test_random_threshold_of_many_partitions():
    """At load 1 it is the coupon collector's, at load k it is 1."""
    for k in (10, 1000):
        harmonic = math.fsum(1 / i for i in range(1, k + 1))
        assert random_threshold(k, 1) == pytest.approx(k * harmonic, rel=1e-12)
        assert random_threshold(k, k) == 1


# ------------------------------------------------------------------------------------- coverage


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_coverage_probability_by_counting_all_placements(n, k):
    for loads in itertools.product(range(k + 1), repeat=n):
        choices = [list(itertools.combinations(range(k), load)) for load in loads]
        placements = list(itertools.product(*choices))
        good = sum(len(set().union(*placement)) == k for placement in placements)
        found = coverage_probability(loads, k)
        assert found == pytest.approx(good / len(placements), rel=1e-14, abs=0)


def by_inclusion_and_exclusion(loads, k):
    kinds = Counter(loads)
    return sum(
        (-1) ** j
        * math.comb(k, j)
        * math.prod(Fraction(math.comb(k - j, r), math.comb(k, r)) ** c for r, c in kinds.items())
        for j in range(k + 1)
    )


@pytest.mark.parametrize(
    ("loads", "k"),
    [
        ([1] * 100, 10),  # the batches of table II
        ([1] * 50, 50),  # 3e-21
        ([1] * 50, 51),  # never
        ([100, 3, 90] * 3, 100),
        ([32] * 86 + [33] * 9 + [37] * 5, 500),  # figure 5
    ],
)
def test_coverage_probability_by_inclusion_and_exclusion(loads, k):
    exact = float(by_inclusion_and_exclusion(loads, k))
    assert coverage_probability(loads, k) == pytest.approx(exact, rel=2e-12, abs=0)


# ----------------------------------------------------------------------------- CADA and G-CADA


def test_selected_mean_of_the_least_scale():
    assert selected_mean([1.0, 2.0], 0.3, 4, scale=5e-324) == 2 / 4
    assert selected_mean([1.0], 1, 4, scale=1) == 1 / 2  # as large as the threshold


def test_fastest_of_groups_mean_of_exponentials():
    harmonic = 1 + 1 / 2 + 1 / 3
    assert fastest_of_groups_mean(3, 4, Exponential(8)) == pytest.approx(2 * harmonic)
    shifted = ShiftedExponential(0.5, 0.125)
    assert fastest_of_groups_mean(3, 4, shifted) == pytest.approx(0.5 + 2 * harmonic)
    assert fastest_of_groups_mean(12, 1, Exponential(8)) == pytest.approx(
        Exponential(8).order_statistic_mean(12, 12)
    )


@pytest.mark.parametrize("groups", [0.5, 2.5, 7])
def test_fastest_of_groups_mean_is_equation_14(groups):
    exact = mpmath.quad(lambda x: 1 - (1 - mpmath.e ** (-2 * x)) ** groups, [0, 1, 4, 40])
    assert fastest_of_groups_mean(groups, 2, Exponential(1)) == pytest.approx(float(exact))
    # An exponential in the guise of another class is computed by quadrature.
    kinds = Mixture([Exponential(1), Exponential(1)], [0.5, 0.5])
    assert fastest_of_groups_mean(groups, 2, kinds) == pytest.approx(float(exact), rel=1e-10)


def test_fastest_of_groups_mean_of_other_models():
    # The least of Pareto delays is a Pareto delay whose shape is the sum of theirs.
    heavy = fastest_of_groups_mean(5, 3, Pareto(2, 0.4, per="computation"))
    assert heavy == pytest.approx(Pareto(2, 1.2).order_statistic_mean(5, 5), rel=1e-9)
    samples = Empirical([0.3, 1, 5, 6])
    drawn = samples.draw(np.random.default_rng(1), 40_000, 12).reshape(-1, 4, 3)
    assert_mean(fastest_of_groups_mean(4, 3, samples), drawn.min(axis=2).max(axis=1))


def test_selected_mean_counts_by_thresholds():
    # Squares 0.1, 0.3, 0.9, 2 compared with c / d = 1, 1/2, 1/3, 1/4.
    smoothness = np.sqrt([0.1, 0.3, 0.9, 2])
    bound = selected_mean(smoothness, c=1, max_age=4, scale=1, oldest=5)
    assert bound == pytest.approx(1 / 5 + 1 / 4 + 1 / 2 + 1)
    assert selected_mean(smoothness, c=16, max_age=4, oldest=5) == pytest.approx(bound)  # scale 4
    assert selected_mean(smoothness, c=1, max_age=4, scale=1) == pytest.approx(bound + 1 / 20)
    assert selected_mean(smoothness, c=1e-9, max_age=4) == 4
    assert selected_mean(smoothness, c=1e9, max_age=9, oldest=10) == pytest.approx(4 / 10)
    assert selected_mean(smoothness, c=1e9, max_age=9) == pytest.approx(4 / 9)


@settings(deadline=None, max_examples=50)
@given(
    L=st.lists(st.floats(0.05, 5), min_size=1, max_size=4),
    c=st.floats(0.05, 10),
    max_age=st.integers(1, 5),
    later=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_selected_mean_bounds_rule_7(L, c, max_age, later, seed):
    # Eq. (7) on a random walk; workers as old as D, or D + 1, are selected as well.
    rounds = 200
    steps = np.random.default_rng(seed).normal(size=(rounds + max_age + 1, 3))
    steps[: max_age + 1] = 0
    points = steps.cumsum(axis=0)
    last = dict.fromkeys(range(len(L)), max_age)
    selected = Counter()
    for k in range(max_age + 1, len(points)):
        recent = sum(float(steps[k - d] @ steps[k - d]) for d in range(max_age))
        for m, constant in enumerate(L):
            change = points[k] - points[last[m]]
            moved = constant**2 * (change @ change) > c * recent * (1 + 1e-9)  # avoids ties
            if moved or k - last[m] >= max_age + later:
                last[m] = k
                selected[m] += 1
    bound = selected_mean(L, c, max_age, scale=1, oldest=max_age + later)
    assert selected.total() <= bound * rounds + len(L)


def test_adaptive_loads_are_equations_17_to_22():
    assert adaptive_loads(12, batch=5) == (24, 60)  # distributed Adam, M = 12
    assert adaptive_loads(4.5, batch=5) == (9, 22.5)  # CADA
    assert adaptive_loads(1.5, size=4, batch=5) == (7.5, 30)  # G-CADA


# ------------------------------------------------------------------------------- numbers


# --------------------------------------------------------------------------- laws of UC-MMC

COVERED = [
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


@pytest.mark.parametrize("delays", COVERED, ids=repr)
@pytest.mark.parametrize(
    ("n", "k", "load", "tolerance"),
    [(7, 7, 3, 0), (7, 7, 7, 0.3), (10, 10, 1, 0.2), (5, 15, 7, 0), (5, 15, 7, 0.3)],
)
def test_covered_cdf_is_that_of_the_codes_rounds(delays, n, k, load, tolerance):
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


@pytest.mark.parametrize(
    ("n", "k", "load", "needed", "batch"),
    [(4, 4, 2, None, 1), (4, 4, 4, None, 1), (5, 10, 5, 8, 2), (3, 6, 2, 4, 1), (6, 6, 1, 4, 1)],
)
def test_covered_mean_exists_if_enough_must_be_late(n, k, load, needed, batch):
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


def test_covered_cdf_keeps_its_digits():
    """The mean lies in the tail, in probabilities too small to compute as differences from 1."""
    # With a delay per round and no cost, a worker sends all three at once, and one suffices.
    delays = Pareto(1.0, 0.34)  # the exponents of three late workers add up to 1.02
    mean = covered_mean(3, 3, delays)
    assert mean == pytest.approx(delays.order_statistic_mean(1, 3), rel=1e-9)
    assert mean > 50


def test_covered_mean_of_numbers_of_numpy():
    """Sizes of few bits do not overflow."""
    kinds = np.int8, int
    small, large = (covered_mean(12, 24, Exponential(1.0), k=144, batch=kind(2)) for kind in kinds)
    assert small == large


def test_covered_mean_of_recorded_times_is_exact():
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


# ------------------------------------------------------------------------------- arguments

HETEROGENEOUS = Heterogeneous([Exponential(1)] * 3)
RECORDED = Empirical([[1, 2], [3, 4]])
HALF_RECORDED = Mixture([Empirical([0.3, 0.5]), Exponential(1)], [0.5, 0.5])


def at(t, **more):
    """Return the closed forms of these times, one by each way to compute them."""
    return [
        threshold_cdf(t, 3, 2, SHIFTED, 1, **more),
        completions_pmf(t, 2, SHIFTED, **more),
        total_cdf(t, 3, 2, 4, SHIFTED, **more),
        received_cdf(t, [1, 2], SHIFTED, 2, **more),
        covered_cdf(t, 5, 2, SHIFTED, **more),
    ]


def test_closed_forms_of_times_of_any_shape():
    times = [[0.1, math.nan], [-1.0, math.inf]]
    for found, one, never, always in zip(at(times), at(0.1), at(-1.0), at(1e308), strict=True):
        assert found.shape == (2, 2, *one.shape)
        np.testing.assert_allclose(found[0, 0], one, rtol=1e-14)
        assert np.isnan(found[0, 1]).all()
        np.testing.assert_array_equal(found[1], [never, always])
    assert [found.shape for found in at([])] == [(0,), (0, 3), (0,), (0,), (0,)]
    many = np.linspace(0, 1, 20_000)  # more than are computed at once
    whole = covered_cdf(many, 5, 2, SHIFTED)
    np.testing.assert_array_equal(whole[::1999], covered_cdf(many[::1999], 5, 2, SHIFTED))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: threshold_cdf(1, 0, 1, SHIFTED, 1), "n must .*not 0"),
        (lambda: threshold_cdf(1, 5, 6, SHIFTED, 1), "threshold must .*5, not 6"),
        (lambda: threshold_mean(5, 5, SHIFTED, 0), "load must .*not 0"),
        (lambda: threshold_mean(5, 5, SHIFTED, 1, cost=-1), "cost must .*not -1"),
        (lambda: threshold_cdf(1, 5, 5, SHIFTED, 1, cost=math.nan), "cost must .*not nan"),
        (lambda: threshold_cdf(1, 4, 2, HETEROGENEOUS, 1), "3 workers, not of 4"),
        (lambda: threshold_cdf(1, 2, 1, RECORDED, 1), "Empirical.*simulate, or pool"),
        (lambda: completions_pmf(1, 3, SHIFTED, batch=4), "batch must .*3, not 4"),
        (lambda: completions_pmf(1, 3, HETEROGENEOUS), "not Heterogeneous"),
        (lambda: total_cdf(1, 4, 5, 9, SHIFTED, batch=2), "threshold must .*8, not 9"),
        (lambda: total_cdf(1, 3, 2, 4, SHIFTED, cost=1e308), "cost .*load of 2"),
        (lambda: total_mean(2, 1, 2, Pareto(1, 1.0)), "mean does not exist: .*2 of 2"),
        (lambda: received_cdf(1, [1, 2], SHIFTED, 4), "needed must .*3, not 4"),
        (lambda: received_cdf(1, [1, -2], SHIFTED, 1), "loads must .*-2"),
        (lambda: received_mean([1.5], SHIFTED, 1), "loads must .*1.5"),
        (lambda: received_mean([], SHIFTED, 1), "loads must"),
        (lambda: received_mean([[1]], SHIFTED, 1), "loads must"),
        (lambda: mds_threshold(5, 6), "load must .*5, not 6"),
        (lambda: coupon_threshold(0, 1), "k must .*not 0"),
        (lambda: coverage_probability([], 3), "loads must"),
        (lambda: coverage_probability([[1]], 3), "loads must"),
        (lambda: coverage_probability([1.5], 3), "loads must .*1.5"),
        (lambda: coverage_probability([1, 4], 3), r"loads must .*3, not 1 \.\. 4"),
        (lambda: coverage_probability([-1, 2], 3), r"loads must .*3, not -1 \.\. 2"),
        (lambda: coverage_probability([1], 0), "k must .*not 0"),
        (lambda: coverage_probability([10**5], 10**6), "k = 1000000 .*simulate"),
        (lambda: fastest_of_groups_mean(0, 1, SHIFTED), "groups must .*not 0"),
        (lambda: fastest_of_groups_mean(2, 0, SHIFTED), "size must .*not 0"),
        (lambda: fastest_of_groups_mean(2, 1, HETEROGENEOUS), "not Heterogeneous"),
        (lambda: fastest_of_groups_mean(2, 3, Pareto(1, 0.3)), "mean does not exist"),
        (lambda: selected_mean([1, -1], 1, 1), "smoothness must .*-1"),
        (lambda: selected_mean([], 1, 1), "smoothness must"),
        (lambda: selected_mean([1], 0, 1), "c must .*not 0"),
        (lambda: selected_mean([1], 1, 0), "max_age must .*not 0"),
        (lambda: selected_mean([1], 1, 4, oldest=3), "oldest must .*4, .*not 3"),
        (lambda: selected_mean([1], 1, 1, scale=0), "scale must .*not 0"),
        (lambda: adaptive_loads(-1), "selected must .*not -1"),
        (lambda: adaptive_loads(1, size=0), "size must .*not 0"),
        (lambda: adaptive_loads(1, batch=0), "batch must .*not 0"),
        (lambda: covered_cdf(1, 0, 2, SHIFTED), "n must .*not 0"),
        (lambda: covered_cdf(1, 4, 2, SHIFTED, k=6), "k must .*4, not 6"),
        (lambda: covered_cdf(1, 4, 5, SHIFTED), "load must .*4, not 5"),
        (lambda: covered_cdf(1, 4, 1, SHIFTED, k=8), "load must .*2 .*8, not 1"),
        (lambda: covered_cdf(1, 4, 2, SHIFTED, needed=0), "needed must .*4, .*not 0"),
        (lambda: covered_mean(4, 2, SHIFTED, needed=5), "needed must .*4, .*not 5"),
        (lambda: covered_mean(4, 3, SHIFTED, k=12, batch=2, needed=9), "needed .*8, .*not 9"),
        (lambda: covered_messages(4, 2, HETEROGENEOUS), "not Heterogeneous"),
        (lambda: covered_messages(4, 2, Empirical([0.1, 0.2], "computation")), "same moment"),
        (lambda: covered_messages(4, 2, HALF_RECORDED), "same moment.*: simulate"),
    ],
)
def test_closed_forms_refuse_numbers(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: threshold_mean(5, 2, None, 1), "delays must .*not None"),
        (lambda: threshold_mean(5, 2, SHIFTED, 1, cost="3"), "cost must .*not"),
        (lambda: threshold_mean(5, 2.5, SHIFTED, 1), "threshold must .*not"),
        (lambda: threshold_cdf("3", 5, 2, SHIFTED, 1), "t must be"),
        (lambda: completions_pmf(1j, 5, SHIFTED), "t must be"),
        (lambda: total_mean(3, 2, 4, Pareto), "delays must .*not"),
        (lambda: total_cdf([1, None], 3, 2, 4, SHIFTED), "t must be"),
        (lambda: received_mean([1, 1], SHIFTED, 1.5), "needed must .*not"),
        (lambda: received_mean([1, 1], SHIFTED, 1, cost=1j), "cost must .*not"),
        (lambda: covered_mean(4, 2, None), "delays must .*not None"),
        (lambda: covered_cdf(0.1, 4, 2, SHIFTED, needed=3.5), "needed must .*not"),
        (lambda: fastest_of_groups_mean(2, 1, None), "delays must .*not None"),
        (lambda: fastest_of_groups_mean("2", 1, SHIFTED), "groups must .*not"),
        (lambda: selected_mean([1], None, 1), "c must .*not None"),
        (lambda: selected_mean(["1"], 1, 1), "smoothness must"),
    ],
)
def test_closed_forms_refuse_types(call, message):
    with pytest.raises(TypeError, match=message):
        call()
