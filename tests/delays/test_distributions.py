"""Delays: laws agree with scipy, exact products and integrals; samples keep their promises."""

import itertools
import math
import pickle
import re
import sys

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc._base.extras import pip_install
from fastgc.delays import (
    Distribution,
    Empirical,
    Exponential,
    Heterogeneous,
    Mixture,
    Pareto,
    ShiftedExponential,
)
from fastgc.delays.distributions import mean_of_late

SEEDS = st.integers(0, 2**70)


@pytest.mark.parametrize(("scale", "shape"), [(0.001, 1.1), (2.0, 3.5), (1.0, 0.6)])
def test_cdf_and_quantile_against_scipy(scale, shape):
    pareto = pytest.importorskip("scipy.stats").pareto(b=shape, scale=scale)
    model = Pareto(scale, shape)
    t = scale * np.array([-1, 0, 0.5, 1, 1 + 1e-12, 1.5, 10, 1e6, np.inf])
    np.testing.assert_allclose(model.cdf(t), pareto.cdf(t), rtol=1e-3, atol=1e-15)
    np.testing.assert_allclose(model.cdf(t[5:]), pareto.cdf(t[5:]), rtol=1e-13)
    q = np.array([0, 1e-9, 0.25, 0.5, 0.99, 1])
    np.testing.assert_allclose(model.quantile(q), pareto.ppf(q), rtol=1e-13)
    np.testing.assert_allclose(model.cdf(model.quantile(q)), q, rtol=1e-6)


@pytest.mark.parametrize(("scale", "shape"), [(0.001, 1.1), (2.0, 3.5)])
def test_samples_follow_the_law(scale, shape):
    stats = pytest.importorskip("scipy.stats")
    model = Pareto(scale, shape)
    over_workers = model.sample(0, 20_000, seed=1)
    over_rounds = np.array([model.sample(r, 3, seed=1)[2] for r in range(3000)])
    over_seeds = np.array([model.sample(5, 1, seed=s)[0] for s in range(3000)])
    for samples in (over_workers, over_rounds, over_seeds):
        assert stats.kstest(samples, stats.pareto(b=shape, scale=scale).cdf).pvalue > 0.01


@settings(deadline=None)
@given(seed=SEEDS, round=st.integers(0, 2**40), fewer=st.integers(0, 40), more=st.integers(0, 40))
def test_sample_depends_on_seed_round_and_worker_only(seed, round, fewer, more):
    model = Pareto(0.001, 1.1)
    delays = model.sample(round, fewer + more, seed)
    assert delays.shape == (fewer + more,)
    assert delays.dtype == np.float64
    assert np.all((delays >= 0.001) & np.isfinite(delays))
    model.sample(round + 1, 7, seed)
    np.testing.assert_array_equal(model.sample(round, fewer, seed), delays[:fewer])
    np.testing.assert_array_equal(Pareto(0.001, 1.1).sample(round, fewer + more, seed), delays)


def test_rounds_and_seeds_differ():
    model = Pareto(1, 1.1)
    firsts = {model.sample(r, 1, s)[0] for r in range(30) for s in (*range(30), 2**32, 2**32 + 1)}
    assert len(firsts) == 30 * 32
    # The stream differs from that of the same seed elsewhere, for example in splits of data.
    assert model.sample(0, 1, seed=4)[0] != model.draw(np.random.default_rng(4), 1, 1)[0, 0]


def test_scale_and_tail_reuse_the_same_luck():
    np.testing.assert_allclose(
        Pareto(3, 2).sample(0, 9, seed=1), 3 * Pareto(1, 1).sample(0, 9, seed=1) ** 0.5, rtol=1e-14
    )


@pytest.mark.parametrize(("scale", "shape"), [(0.001, 1.1), (2.0, 3.5)])
def test_mean_against_scipy(scale, shape):
    pareto = pytest.importorskip("scipy.stats").pareto(b=shape, scale=scale)
    assert Pareto(scale, shape).mean() == pytest.approx(pareto.mean(), rel=1e-12)


@pytest.mark.parametrize("shape", [1, 0.5])
def test_no_mean_from_one_down(shape):
    with pytest.raises(
        ValueError, match=r"Pareto\(.*\) does not exist: shape must be greater than 1"
    ):
        Pareto(1, shape).mean()


@pytest.mark.parametrize(("scale", "shape"), [(0.001, 1.1), (2.0, 3.5), (1.0, 0.6), (1.0, 0.5)])
@pytest.mark.parametrize("n", [1, 2, 7, 80, 1000])
def test_order_statistic_mean_is_the_product(scale, shape, n):
    # The gamma functions telescope: prod of i / (i - 1/shape) over i = n - f + 1 .. n.
    model = Pareto(scale, shape)
    for f in range(1, n + 1):
        least = n - f + 1
        if least <= 1 / shape:
            fewest = int(1 / shape) + 1
            remedy = f"it does for f up to {n - fewest + 1}" if fewest <= n else "none does"
            with pytest.raises(
                ValueError, match=f"the {f}-th smallest of {n} .* too heavy: {remedy}"
            ):
                model.order_statistic_mean(f, n)
        else:
            product = math.prod(i / (i - 1 / shape) for i in range(least, n + 1))
            assert model.order_statistic_mean(f, n) == pytest.approx(scale * product, rel=1e-10)


@pytest.mark.parametrize(("f", "n"), [(1, 1), (1, 5), (3, 5), (5, 5), (68, 80)])
def test_order_statistic_mean_is_the_integral(f, n):
    integrate = pytest.importorskip("scipy.integrate")
    special = pytest.importorskip("scipy.special")
    model = Pareto(0.5, 2.5)
    # E T = scale + integral of P(T > t), and T > t if fewer than f of n have come.
    late, _ = integrate.quad(
        lambda t: special.betainc(n - f + 1, f, (0.5 / t) ** 2.5), 0.5, np.inf, epsrel=1e-10
    )
    assert model.order_statistic_mean(f, n) == pytest.approx(0.5 + late, rel=1e-8)


def test_order_statistic_mean_against_samples():
    model, n, f, rounds = Pareto(0.001, 1.1), 20, 15, 20_000
    waits = np.array([np.sort(model.sample(r, n, seed=2))[f - 1] for r in range(rounds)])
    error = waits.std() / math.sqrt(rounds)
    assert abs(waits.mean() - model.order_statistic_mean(f, n)) < 4 * error


def test_last_of_one_is_the_mean():
    assert Pareto(0.3, 1.7).order_statistic_mean(1, 1) == pytest.approx(Pareto(0.3, 1.7).mean())


@pytest.mark.parametrize("parameters", [(0, 1), (-1, 1), (math.inf, 1), (math.nan, 1)])
def test_parameters_rejected(parameters):
    scale, shape = parameters
    with pytest.raises(ValueError, match="scale must be positive and finite"):
        Pareto(scale, shape)
    with pytest.raises(ValueError, match="shape must be positive and finite"):
        Pareto(shape, scale)


@pytest.mark.parametrize("argument", ["round", "workers", "seed"])
def test_sample_rejects_negatives(argument):
    arguments = {"round": 0, "workers": 3, "seed": 0} | {argument: -1}
    with pytest.raises(ValueError, match=f"{argument} must not be negative, got -1"):
        Pareto(1, 1).sample(**arguments)


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan, [0.5, 2]])
def test_quantile_rejects(q):
    with pytest.raises(ValueError, match=r"q must be in \[0, 1\]"):
        Pareto(1, 1).quantile(q)


ONE_OF_EACH = [
    Pareto(1, 2),
    ShiftedExponential(1, 2),
    Exponential(1),
    Empirical([1, 2]),
    Mixture([Empirical([1, 2]), Exponential(1)], [0.5, 0.5]),
]


@pytest.mark.parametrize("model", ONE_OF_EACH, ids=repr)
def test_nan_stays_and_other_things_are_refused(model):
    for law in (model.cdf, model.survival):
        np.testing.assert_array_equal(
            np.isnan(law([math.nan, 0.5, math.inf])), [True, False, False]
        )
        assert np.isnan(law(math.nan))
        assert law(10**30) == law(1e30)
        for wrong in (None, "3", [1, None], 1j, [True]):
            with pytest.raises(TypeError, match=r"t must be .*real"):
                law(wrong)
    with pytest.raises(TypeError, match="q must be real"):
        model.quantile("0.5")
    for f, n, what in ((2.5, 3, "f"), (1, 3.0, "n"), ("1", 3, "f")):
        with pytest.raises(TypeError, match=f"{what} must be an integer"):
            model.order_statistic_mean(f, n)
    with pytest.raises(TypeError, match=r"workers must be an integer, not 2\.5"):
        model.sample(0, 2.5, 0)


@pytest.mark.parametrize("wrong", [None, "3", 1j, [1]])
def test_parameters_are_numbers(wrong):
    for model, what in (
        (lambda: Pareto(wrong, 1), "scale"),
        (lambda: Pareto(1, wrong), "shape"),
        (lambda: ShiftedExponential(wrong, 1), "shift"),
        (lambda: ShiftedExponential(1, wrong), "rate"),
        (lambda: Exponential(wrong), "mean"),
    ):
        with pytest.raises(TypeError, match=f"{what} must be a real number, not"):
            model()
    with pytest.raises(ValueError, match="mean must be positive and finite, not 10"):
        Exponential(10**400)


@pytest.mark.parametrize(("f", "n"), [(0, 5), (6, 5), (-1, 5), (0, 0)])
def test_order_statistic_rejects(f, n):
    with pytest.raises(ValueError, match=rf"f must lie in 1 \.\. n = {n}, got {f}"):
        Pareto(1, 1).order_statistic_mean(f, n)


EXPONENTIALS = [ShiftedExponential(0.01, 10), ShiftedExponential(0, 0.3), Exponential(0.02)]
# All kinds of smoothness: kinks, steps, tails of powers and lighter ones.
RECORDED = [0.3, 0.1, 0.2, 0.1, 2.5]
CLOSED = [Pareto(0.001, 1.1), Pareto(2, 3.5), *EXPONENTIALS]


def law(model):
    """Return the same distribution in scipy.stats."""
    stats = pytest.importorskip("scipy.stats")
    if isinstance(model, Pareto):
        return stats.pareto(b=model.shape, scale=model.scale)
    if isinstance(model, ShiftedExponential):
        return stats.expon(model.shift, 1 / model.rate)
    return stats.expon(scale=model.mean())


@pytest.mark.parametrize("model", CLOSED, ids=repr)
def test_functions_against_scipy(model):
    expected = law(model)
    q = np.array([0, 1e-9, 0.25, 0.5, 0.99, 1])
    np.testing.assert_allclose(model.quantile(q), expected.ppf(q), rtol=1e-13)
    t = np.append(expected.ppf(q), [-1, 1e6 * expected.mean()])
    np.testing.assert_allclose(model.cdf(t), expected.cdf(t), rtol=1e-6)
    np.testing.assert_allclose(model.survival(t), expected.sf(t), rtol=1e-9)
    assert model.mean() == pytest.approx(expected.mean(), rel=1e-12)
    assert eval(repr(model)) == model
    assert hash(eval(repr(model))) == hash(model)
    assert eval(repr(model).replace("'round'", "'computation'").replace("0.", "1.")) != model


@pytest.mark.parametrize("model", CLOSED, ids=repr)
def test_draws_follow_the_law_and_the_generator(model):
    stats = pytest.importorskip("scipy.stats")
    drawn = model.draw(np.random.default_rng(3), 200, 150)
    assert drawn.shape == (200, 150)
    assert drawn.dtype == np.float64
    assert stats.kstest(drawn.ravel(), law(model).cdf).pvalue > 1e-4
    np.testing.assert_array_equal(model.draw(np.random.default_rng(3), 200, 150), drawn)
    assert np.unique(drawn).size > 29_990
    assert model.draw(np.random.default_rng(3), 0, 5).shape == (0, 5)
    for counts in ((-1, 2), (2, -1)):
        with pytest.raises(ValueError, match=r"(rounds|workers) must not be negative, got -1"):
            model.draw(np.random.default_rng(3), *counts)


def order_statistic(model, f, n):
    """Return n C(n-1, f-1) times the integral of Q(u) u^(f-1) (1 - u)^(n-f), in 30 digits."""
    with mpmath.workdps(30):
        if isinstance(model, Pareto):
            scale, shape = mpmath.mpf(model.scale), mpmath.mpf(model.shape)
            # rest = 1 - u. Its power joins the density's, as both may be singular.
            return float(
                scale
                * n
                * mpmath.binomial(n - 1, f - 1)
                * mpmath.quad(
                    # Substituting rest = v^a flattens the singularity at rest = 0.
                    lambda v: (
                        (1 - v**20) ** (f - 1) * v ** (20 * (n - f) - 20 / shape) * 20 * v**19
                    ),
                    [0, 0.8, 0.9, 0.95, 1],
                )
            )
        shift, rate = getattr(model, "shift", 0), getattr(model, "rate", None)
        mean = 1 / mpmath.mpf(rate) if rate else mpmath.mpf(model.mean())
        return float(
            shift
            + mean
            * n
            * mpmath.binomial(n - 1, f - 1)
            * mpmath.quad(
                lambda x: x * (-mpmath.expm1(-x)) ** (f - 1) * mpmath.exp(-x * (n - f + 1)),
                [0, 0.1, 1, 3, 10, 30, mpmath.inf],
            )
        )


@pytest.mark.parametrize("model", CLOSED, ids=repr)
@pytest.mark.parametrize(("f", "n"), [(1, 1), (1, 5), (3, 5), (5, 5), (12, 20), (20, 20)])
def test_order_statistic_means_against_quadrature(model, f, n):
    expected = order_statistic(model, f, n)
    assert model.order_statistic_mean(f, n) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("model", [Pareto(0.5, 2.5), *EXPONENTIALS], ids=repr)
@pytest.mark.parametrize(("f", "n"), [(1, 8), (5, 8), (8, 8)])
def test_order_statistic_means_against_draws(model, f, n):
    waits = np.sort(model.draw(np.random.default_rng(8), 40_000, n))[:, f - 1]
    error = waits.std() / math.sqrt(waits.size)
    assert abs(waits.mean() - model.order_statistic_mean(f, n)) < 4 * error


def test_tails():
    assert Pareto(1, 1.5).tail_indices(3).tolist() == [1.5] * 3
    for model in EXPONENTIALS:
        assert model.tail_indices(2).tolist() == [math.inf] * 2


def test_what_a_time_is_of():
    assert Pareto(1, 2).per == Exponential(1).per == "round"
    assert ShiftedExponential(1, 2).per == "computation"
    for kind in (Pareto, ShiftedExponential):
        assert kind(1, 2, per="computation").per == "computation"
        with pytest.raises(ValueError, match="per must be 'round' or 'computation', got 'task'"):
            kind(1, 2, "task")
    with pytest.raises(ValueError, match="per must be"):
        Exponential(1, per=1)


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_exponentials_reject(value):
    with pytest.raises(ValueError, match="rate must be positive and finite"):
        ShiftedExponential(1, value)
    with pytest.raises(ValueError, match="mean must be positive and finite"):
        Exponential(value)
    if value != 0:
        with pytest.raises(ValueError, match="shift must be finite and not negative"):
            ShiftedExponential(value, 1)


def any_mixture(per="round"):
    return Mixture(
        [Pareto(0.2, 2.5, per), ShiftedExponential(0.5, 3, per), Empirical([0.1, 0.4], per)],
        [0.5, 0.3, 0.2],
    )


EVERY = [*CLOSED, Empirical(RECORDED), any_mixture()]


class Bare(Distribution):
    """The methods that a user must define, taken from another distribution."""

    per = "round"

    def __init__(self, of):
        self.cdf, self.survival, self.quantile = of.cdf, of.survival, of.quantile
        self.tail_indices = of.tail_indices

    cdf = survival = quantile = None


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_quantile_inverts_cdf(model):
    q = np.concatenate([np.random.default_rng(0).random(500), np.arange(1, 100) / 100, [1e-12]])
    t = model.quantile(q)
    # A quantile's definition: F(Q(q)) >= q, and F < q below; closed forms hold up to rounding.
    slack = 0 if isinstance(model, (Empirical, Mixture)) else 1e-14
    assert np.all(model.cdf(t) >= q - slack)
    assert np.all(model.cdf(t * (1 - 1e-15)) < q + slack)
    np.testing.assert_allclose(model.cdf(t) + model.survival(t), 1, rtol=1e-14)
    assert np.all(np.diff(t[np.argsort(q)]) >= 0)
    for scalar in (0, 0.3, 1):
        assert model.quantile(scalar) == model.quantile([scalar])[0]
        assert model.cdf(scalar) == model.cdf([scalar])[0]
    assert model.quantile(np.full((2, 3), 0.5)).shape == (2, 3)
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"q must be in \[0, 1\]"):
            model.quantile(q)


@pytest.mark.parametrize("model", EVERY, ids=repr)
@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, round=st.integers(0, 2**40), fewer=st.integers(0, 40), more=st.integers(0, 40))
def test_samples_of_every_model_depend_on_seed_round_and_worker_only(
    model, seed, round, fewer, more
):
    times = model.sample(round, fewer + more, seed)
    assert times.shape == (fewer + more,)
    np.testing.assert_array_equal(model.sample(round, fewer, seed), times[:fewer])
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).sample(round, 3, seed), model.sample(round, 3, seed)
    )


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_draws_have_the_cdf(model):
    drawn = np.sort(model.draw(np.random.default_rng(12), 500, 40).ravel())
    # Kolmogorov: the distance exceeds 2.23 / sqrt(N) with probability 1e-4, less where F has steps.
    points = np.linspace(0, model.quantile(0.999), 2000)
    seen = np.searchsorted(drawn, points, side="right") / drawn.size
    assert np.abs(seen - model.cdf(points)).max() < 2.23 / math.sqrt(drawn.size)


@pytest.mark.parametrize("model", CLOSED[1:], ids=repr)
@pytest.mark.parametrize(("f", "n"), [(1, 1), (1, 9), (9, 9), (30, 40), (990, 1000)])
def test_means_by_quadrature_meet_closed_forms(model, f, n):
    expected = model.order_statistic_mean(f, n)
    assert Bare(model).order_statistic_mean(f, n) == pytest.approx(expected, rel=1e-10)
    assert Bare(model).mean() == pytest.approx(model.mean(), rel=1e-10)
    np.testing.assert_array_equal(
        Bare(model).draw(np.random.default_rng(1), 3, 2),
        model.quantile(np.random.default_rng(1).random((3, 2))),
    )
    heterogeneous = Heterogeneous([model] * n)
    assert heterogeneous.order_statistic_mean(f, n) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("f", [1, 1000, 999_999, 1_000_000])
def test_quadrature_finds_what_ends_or_begins_at_a_knot(f):
    n = 1_000_000
    first = Exponential(1).order_statistic_mean(f, n)
    assert Bare(Exponential(1)).order_statistic_mean(f, n) == pytest.approx(first, rel=1e-10)
    late = Bare(ShiftedExponential(1e5, 1)).order_statistic_mean(f, n) - 1e5
    assert late == pytest.approx(first, abs=1e-10)


@pytest.mark.parametrize("shape", [1.001, 1.01, 1.1, 1.9, 2.1, 7])
def test_quadrature_of_heavy_tails(shape):
    model = Pareto(0.01, shape)
    assert Bare(model).mean() == pytest.approx(model.mean(), rel=1e-9)
    mixed = Mixture([model, Exponential(3)], [0.9, 0.1])
    expected = 0.9 * model.mean() + 0.3
    assert mixed.mean() == pytest.approx(expected, rel=1e-14)
    assert mixed.order_statistic_mean(1, 1) == pytest.approx(expected, rel=1e-8)


def test_quadrature_of_polynomials():
    # P(late) is 1 on [0, 1], then (3 - t) / 2 up to 3.
    late = mean_of_late(lambda t: np.clip((3 - t) / 2, 0, 1), np.array([1.0, 3.0]), math.inf)
    assert late == pytest.approx(2, rel=1e-14)


@pytest.mark.parametrize(("f", "n"), [(1, 1), (1, 3), (2, 3), (3, 3), (2, 5), (5, 5)])
def test_pooled_samples_against_every_tuple(f, n):
    tuples = np.sort(list(itertools.product(RECORDED, repeat=n)), axis=1)
    model = Empirical(RECORDED)
    assert model.order_statistic_mean(f, n) == pytest.approx(tuples[:, f - 1].mean(), rel=1e-12)
    # The same law by quadrature of its steps: alone, mixed with itself, and for each worker.
    for same in (Mixture([model, model], [0.25, 0.75]), Bare(model), Heterogeneous([model] * n)):
        if not isinstance(same, Bare):  # `Bare` does not know where the steps are
            expected = pytest.approx(tuples[:, f - 1].mean(), rel=1e-12)
            assert same.order_statistic_mean(f, n) == expected


def test_negative_zeros_are_zeros():
    model = Empirical([-0.0, 1.0])
    assert not np.signbit(model.samples).any()
    assert Mixture([model, Exponential(1)], [0.5, 0.5]).quantile([0.1, 0.25]).tolist() == [0, 0]


def check_numbers_of_workers(model, says):
    """Require that a model of three workers refuses to draw for two or four."""
    for wrong in (
        lambda: model.sample(0, 2, 0),
        lambda: model.draw(np.random.default_rng(0), 1, 4),
        lambda: model.order_statistic_mean(1, 2),
        lambda: model.tail_indices(4),
    ):
        with pytest.raises(ValueError, match=says):
            wrong()


def test_recorded_rounds():
    rounds = np.array([[1.0, 2, 3], [4, 6, 5]])
    model = Empirical(rounds)
    assert [model.order_statistic_mean(f, 3) for f in (1, 2, 3)] == [2.5, 3.5, 4.5]
    assert Empirical(rounds.ravel()).order_statistic_mean(1, 3) != 2.5
    drawn = model.draw(np.random.default_rng(0), 400, 3)
    firsts = drawn[:, 0] == 1
    np.testing.assert_array_equal(drawn[firsts], np.broadcast_to(rounds[0], drawn[firsts].shape))
    np.testing.assert_array_equal(drawn[~firsts], np.broadcast_to(rounds[1], drawn[~firsts].shape))
    assert abs(firsts.sum() - 200) < 40
    assert {tuple(model.sample(r, 3, seed=1)) for r in range(30)} == set(map(tuple, rounds))
    assert model.mean() == 3.5
    assert model.cdf(3) == 0.5
    assert model.quantile(0.5) == 3
    check_numbers_of_workers(model, "of 3 workers, not of [24]: pool the samples")


def test_samples_are_kept_as_they_were():
    given = np.array([3, 1, 2])
    model = Empirical(given)
    given[0] = 7
    assert model.samples.tolist() == [3, 1, 2]
    assert model.samples.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        model.samples[0] = 1
    assert model == Empirical([3.0, 1.0, 2.0])
    assert hash(model) == hash(Empirical([3.0, 1.0, 2.0]))
    assert model != Empirical([1, 2, 3])
    assert model != Empirical([3, 1, 2], per="computation")
    assert model != Empirical([[3, 1, 2]])
    assert model != 3
    assert repr(model) == "Empirical(3 samples, mean 2, per='round')"
    assert (
        repr(Empirical(np.ones((4, 2)))) == "Empirical(4 rounds of 2 workers, mean 1, per='round')"
    )


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([], ValueError, "samples must not be empty"),
        ([[[1.0]]], ValueError, r"shape \(N,\) or \(rounds, workers\), not \(1, 1, 1\)"),
        (1.0, ValueError, r"shape \(N,\) or \(rounds, workers\), not \(\)"),
        ([1, -2], ValueError, "samples must not be negative, got -2"),
        ([1, math.nan], ValueError, r"samples\[1\] is nan"),
        ([[1, math.inf]], ValueError, r"samples\[0, 1\] is inf"),
        ([1j], TypeError, "samples must be real"),
        (["a"], TypeError, "samples must be real"),
    ],
)
def test_unsuitable_samples(samples, error, message):
    with pytest.raises(error, match=message):
        Empirical(samples)
    with pytest.raises(ValueError, match="per must be"):
        Empirical([1], "day")


def test_mixture_is_the_mixed_law():
    model, t = any_mixture(), np.array([0, 0.1, 0.3, 0.4, 0.7, 5, 1e9])
    parts = zip(model.models, model.weights, strict=True)
    np.testing.assert_allclose(model.cdf(t), sum(w * m.cdf(t) for m, w in parts), rtol=1e-14)
    assert model.mean() == pytest.approx(
        0.5 * 0.2 * 2.5 / 1.5 + 0.3 * (0.5 + 1 / 3) + 0.2 * 0.25, rel=1e-14
    )
    assert model.survival(1e9) == pytest.approx(0.5 * (0.2 / 1e9) ** 2.5, rel=1e-12)
    assert model.per == "round"
    assert any_mixture("computation").per == "computation"
    assert model.tail_indices(2).tolist() == [2.5, 2.5]
    assert model.quantile(0) == 0.1
    assert model.quantile(1) == math.inf
    assert model.quantile(0.1) == 0.1  # where F steps over 0.1
    assert model == any_mixture()
    assert hash(model) == hash(any_mixture())
    alike = Mixture([Pareto(1, 3), Exponential(2)], [0.5, 0.5])
    assert eval(repr(alike)) == alike


@pytest.mark.few(4)
@pytest.mark.parametrize(("f", "n"), [(1, 3), (5, 6), (6, 6), (40, 50)])
@pytest.mark.parametrize(
    "model",
    [
        any_mixture(),
        Mixture([any_mixture(), Exponential(0.1)], [0.3, 0.7]),
        Mixture([Exponential(1), Exponential(1000)], [0.99, 0.01]),
    ],
    ids=["three", "nested", "far apart"],
)
def test_order_statistics_of_mixtures_against_draws(model, f, n):
    waits = np.sort(model.draw(np.random.default_rng(21), 20_000, n))[:, f - 1]
    error = waits.std() / math.sqrt(waits.size)
    assert abs(waits.mean() - model.order_statistic_mean(f, n)) < 4 * error


@pytest.mark.parametrize(
    ("weight", "slow"), [(0.01, 1e3), (0.5, 1e6), (1e-3, 1e6), (1e-6, 1e6), (1 - 1e-6, 1e6)]
)
@pytest.mark.parametrize(("f", "n"), [(1, 1), (1, 5), (3, 5), (5, 5), (12, 12)])
def test_mixtures_of_exponentials_by_expansion(weight, slow, f, n):
    """Expand P(T_f > t) in powers of the mixed survival S, and these in exponentials."""
    model = Mixture([Exponential(1), Exponential(slow)], [1 - weight, weight])
    fast, rare = map(mpmath.mpf, model.weights)
    with mpmath.workdps(60):
        exact = mpmath.mpf(0)
        for i in range(n - f + 1, n + 1):
            power = mpmath.fsum(
                mpmath.binomial(i, j) * fast ** (i - j) * rare**j / (i - j + mpmath.mpf(j) / slow)
                for j in range(i + 1)
            )
            sign = (-1) ** (i - (n - f + 1))
            exact += sign * mpmath.binomial(i - 1, n - f) * mpmath.binomial(n, i) * power
    assert model.order_statistic_mean(f, n) == pytest.approx(float(exact), rel=1e-11)


MIXED_RATES = [1.0, 1.0, 0.25, 5.0, 0.01]


def of_rates(shift=0.0):
    return Heterogeneous([ShiftedExponential(shift, rate) for rate in MIXED_RATES])


@pytest.mark.parametrize("shift", [0.0, 20.0])
def test_unlike_exponentials_by_inclusion_and_exclusion(shift):
    model, n = of_rates(shift), len(MIXED_RATES)
    first = 1 / sum(MIXED_RATES)
    last = sum(
        (-1) ** (size + 1) / sum(chosen)
        for size in range(1, n + 1)
        for chosen in itertools.combinations(MIXED_RATES, size)
    )
    assert model.order_statistic_mean(1, n) == pytest.approx(shift + first, rel=1e-10)
    assert model.order_statistic_mean(n, n) == pytest.approx(shift + last, rel=1e-10)
    waits = [model.order_statistic_mean(f, n) for f in range(1, n + 1)]
    # The order statistics add up to the sum of all times.
    assert sum(waits) == pytest.approx(sum(m.mean() for m in model.models), rel=1e-10)


@pytest.mark.parametrize("f", range(1, 7))
@pytest.mark.parametrize(
    "means", [[1, 1, 1, 1, 1, 1e6], [1, 1e6, 1e6, 1e6, 1e6, 1e6], [1, 1e-3, 1e3, 1e6, 1e6, 1e-6]]
)
def test_unlike_exponentials_of_scales_far_apart(means, f):
    model, n = Heterogeneous([Exponential(mean) for mean in means]), len(means)
    exact = mpmath.mpf(0)
    with mpmath.workdps(40):
        for size in range(n - f + 1, n + 1):
            firsts = mpmath.fsum(
                1 / mpmath.fsum(1 / mpmath.mpf(mean) for mean in chosen)
                for chosen in itertools.combinations(means, size)
            )
            exact += (-1) ** (size - (n - f + 1)) * mpmath.binomial(size - 1, n - f) * firsts
    assert model.order_statistic_mean(f, n) == pytest.approx(float(exact), rel=1e-11)


def test_heterogeneous_workers():
    slow, fast = ShiftedExponential(20, 1), ShiftedExponential(20, 20)
    model = Heterogeneous([slow, fast, slow])
    assert model.per == "computation"
    assert repr(model) == f"Heterogeneous([{slow!r}] * 1 + [{fast!r}] * 1 + [{slow!r}] * 1)"
    assert eval(repr(model)) == model
    assert hash(eval(repr(model))) == hash(model)
    drawn = model.draw(np.random.default_rng(5), 30_000, 3)
    for column, each in zip(drawn.T, model.models, strict=True):
        assert abs(column.mean() - each.mean()) < 4 * column.std() / math.sqrt(column.size)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(3)).max() < 4 / math.sqrt(30_000)
    np.testing.assert_array_equal(model.draw(np.random.default_rng(5), 30_000, 3), drawn)
    np.testing.assert_array_equal(model.sample(3, 3, seed=1), model.sample(3, 3, seed=1))
    assert len({model.sample(r, 3, s)[1] for r in range(9) for s in range(9)}) == 81
    for f in (1, 2, 3):
        waits = np.sort(drawn)[:, f - 1]
        error = waits.std() / math.sqrt(waits.size)
        assert abs(waits.mean() - model.order_statistic_mean(f, 3)) < 4 * error
    check_numbers_of_workers(model, "times of 3 workers, not of [24]")


def test_means_of_heavy_and_light_workers():
    # The second of two waits for both; exponents of tails add up only if either may be late.
    model = Heterogeneous([Pareto(1, 0.7), Exponential(1), Pareto(1, 0.4)])
    assert model.tail_indices(3).tolist() == [0.7, math.inf, 0.4]
    for f in (1, 2):
        assert model.order_statistic_mean(f, 3) < math.inf
    with pytest.raises(ValueError, match=r"the 3-th smallest of 3 .* it does for f up to 2"):
        model.order_statistic_mean(3, 3)
    # The first of shapes 0.7 and 0.4 alone is a Pareto of shape 1.1.
    pair = Heterogeneous([Pareto(1, 0.7), Pareto(1, 0.4)])
    assert pair.order_statistic_mean(1, 2) == pytest.approx(11, rel=1e-10)


@pytest.mark.parametrize("kind", [Heterogeneous, lambda models: Mixture(models, [0.5, 0.5])])
@pytest.mark.parametrize(
    ("models", "error", "message"),
    [
        ([], ValueError, "at least one model is needed"),
        ([Pareto(1, 2), 3], TypeError, "distributions of fastgc.delays, got 3"),
        ([Pareto(1, 2), of_rates()], TypeError, "distributions of fastgc.delays, got Hetero"),
        ([Pareto(1, 2), ShiftedExponential(1, 2)], ValueError, "per must be the same"),
        ([Pareto(1, 2), Empirical([[1.0]])], ValueError, "draws whole rounds.*pool its samples"),
    ],
)
def test_models_that_do_not_go_together(kind, models, error, message):
    with pytest.raises(error, match=message):
        kind(models)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1], "2 models need as many weights, got 1"),
        ([0.5, 0.6], "positive with sum 1, got .* with sum 1.1"),
        ([1.5, -0.5], "positive with sum 1"),
        ([1, 0], "positive with sum 1"),
        ([math.nan, 1], "positive with sum 1"),
    ],
)
def test_weights_rejected(weights, message):
    with pytest.raises(ValueError, match=message):
        Mixture([Exponential(1), Exponential(2)], weights)


def test_without_scipy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(ImportError, match=re.escape(pip_install("planning"))):
        Empirical([1, 2]).order_statistic_mean(1, 2)
    assert Pareto(1, 2).order_statistic_mean(1, 2) == pytest.approx(4 / 3)


def test_times_beyond_all_scales_have_probabilities():
    for model in (ShiftedExponential(1.0, 10.0), Exponential(0.1), Pareto(1e-3, 2.0)):
        assert model.cdf(1e308) == 1
        assert model.survival(1e308) < 1e-300


def test_weights_are_numbers():
    models = [Exponential(1.0), Exponential(2.0)]
    with pytest.raises(TypeError, match="weights must be real numbers, not complex128"):
        Mixture(models, np.array([0.5, 0.5], complex))
    assert Mixture(models, np.array([0.5, 0.5])).weights == (0.5, 0.5)


@pytest.mark.parametrize("n", [1, 2, 5, 30, 100, 10**6, 10**9, 10**12])
def test_order_statistics_of_any_number_of_workers(n):
    """They agree to 60 digits, and neither time nor memory grows with n."""
    with mpmath.workdps(60):
        for f in sorted({1, max(1, n // 2), max(1, n - 30), max(1, n - 1), n}):
            late = n - f + 1
            for shape in (0.3, 1.01, 1.5, 2.5, 30.0):
                if late * shape <= 1:
                    with pytest.raises(ValueError, match="does not exist"):
                        Pareto(2.0, shape).order_statistic_mean(f, n)
                    continue
                c = 1 / mpmath.mpf(shape)
                ratio = mpmath.loggamma(late - c) - mpmath.loggamma(late)
                ratio += mpmath.loggamma(n + 1) - mpmath.loggamma(n + 1 - c)
                found = Pareto(2.0, shape).order_statistic_mean(f, n)
                assert abs(found / (2 * mpmath.exp(ratio)) - 1) < 2e-14
            truth = mpmath.harmonic(n) - mpmath.harmonic(n - f)
            assert abs(Exponential(1.0).order_statistic_mean(f, n) / truth - 1) < 2e-15


@pytest.mark.parametrize("slow", [1e-3, 1.0, 1e9, 1e60])
def test_order_statistics_of_times_any_scale_apart(slow):
    """All slow workers come after all fast ones; their number is random."""
    fast, share, f, n = 1e-9, 0.001, 90, 100
    model = Mixture([Exponential(fast), Exponential(slow)], [1 - share, share])
    truth = mpmath.mpf(0)
    with mpmath.workdps(60):
        for k in range(n + 1):
            if k <= n - f:
                late = fast * (mpmath.harmonic(n - k) - mpmath.harmonic(n - k - f))
            else:
                late = slow * (mpmath.harmonic(k) - mpmath.harmonic(n - f))
            truth += mpmath.binomial(n, k) * mpmath.mpf(share) ** k * (1 - share) ** (n - k) * late
    assert abs(model.order_statistic_mean(f, n) / truth - 1) < (1e-4 if slow < 1 else 1e-9)
