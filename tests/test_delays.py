"""Delays: Pareto against scipy, exact products and integrals; sampling against its promises."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc.delays import Pareto, parse

pytestmark = pytest.mark.any_backend

SEEDS = st.integers(0, 2**70)


@pytest.mark.parametrize(("t0", "xi"), [(0.001, 1.1), (2.0, 3.5), (1.0, 0.6)])
def test_cdf_and_quantile_against_scipy(t0, xi):
    pareto = pytest.importorskip("scipy.stats").pareto(b=xi, scale=t0)
    model = Pareto(t0, xi)
    t = t0 * np.array([-1, 0, 0.5, 1, 1 + 1e-12, 1.5, 10, 1e6, np.inf])
    np.testing.assert_allclose(model.cdf(t), pareto.cdf(t), rtol=1e-3, atol=1e-15)
    np.testing.assert_allclose(model.cdf(t[5:]), pareto.cdf(t[5:]), rtol=1e-13)
    q = np.array([0, 1e-9, 0.25, 0.5, 0.99, 1])
    np.testing.assert_allclose(model.quantile(q), pareto.ppf(q), rtol=1e-13)
    np.testing.assert_allclose(model.cdf(model.quantile(q)), q, rtol=1e-6)


@pytest.mark.parametrize(("t0", "xi"), [(0.001, 1.1), (2.0, 3.5)])
def test_samples_follow_the_law(t0, xi):
    stats = pytest.importorskip("scipy.stats")
    model = Pareto(t0, xi)
    over_workers = model.sample(0, 20_000, seed=1)
    over_rounds = np.array([model.sample(r, 3, seed=1)[2] for r in range(3000)])
    over_seeds = np.array([model.sample(5, 1, seed=s)[0] for s in range(3000)])
    for samples in (over_workers, over_rounds, over_seeds):
        assert stats.kstest(samples, stats.pareto(b=xi, scale=t0).cdf).pvalue > 0.01


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
    # Not the stream that the same seed gives elsewhere, such as where data are split.
    elsewhere = model.quantile(np.random.default_rng(4).random(1))
    assert model.sample(0, 1, seed=4)[0] != elsewhere[0]


def test_scale_and_tail_reuse_the_same_luck():
    np.testing.assert_allclose(
        Pareto(3, 2).sample(0, 9, seed=1), 3 * Pareto(1, 1).sample(0, 9, seed=1) ** 0.5, rtol=1e-14
    )


@pytest.mark.parametrize(("t0", "xi"), [(0.001, 1.1), (2.0, 3.5)])
def test_mean_against_scipy(t0, xi):
    pareto = pytest.importorskip("scipy.stats").pareto(b=xi, scale=t0)
    assert Pareto(t0, xi).mean() == pytest.approx(pareto.mean(), rel=1e-12)


@pytest.mark.parametrize("xi", [1, 0.5])
def test_mean_is_infinite_from_one_down(xi):
    assert Pareto(1, xi).mean() == math.inf


@pytest.mark.parametrize(("t0", "xi"), [(0.001, 1.1), (2.0, 3.5), (1.0, 0.6), (1.0, 0.5)])
@pytest.mark.parametrize("n", [1, 2, 7, 80, 1000])
def test_order_statistic_mean_is_the_product(t0, xi, n):
    # The gamma functions telescope: prod of i / (i - 1/xi) over i = n - f + 1 .. n.
    model = Pareto(t0, xi)
    for f in range(1, n + 1):
        least = n - f + 1
        if least <= 1 / xi:
            assert model.order_statistic_mean(f, n) == math.inf
        else:
            product = math.prod(i / (i - 1 / xi) for i in range(least, n + 1))
            assert model.order_statistic_mean(f, n) == pytest.approx(t0 * product, rel=1e-10)


@pytest.mark.parametrize(("f", "n"), [(1, 1), (1, 5), (3, 5), (5, 5), (68, 80)])
def test_order_statistic_mean_is_the_integral(f, n):
    integrate = pytest.importorskip("scipy.integrate")
    special = pytest.importorskip("scipy.special")
    model = Pareto(0.5, 2.5)
    # E T = t0 + integral of P(T > t), and T > t when fewer than f of n have come.
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
    t0, xi = parameters
    with pytest.raises(ValueError, match="t0 must be positive and finite"):
        Pareto(t0, xi)
    with pytest.raises(ValueError, match="xi must be positive and finite"):
        Pareto(xi, t0)


@pytest.mark.parametrize("argument", ["round", "workers", "seed"])
def test_sample_rejects_negatives(argument):
    arguments = {"round": 0, "workers": 3, "seed": 0} | {argument: -1}
    with pytest.raises(ValueError, match=f"{argument} must not be negative, got -1"):
        Pareto(1, 1).sample(**arguments)


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan, [0.5, 2]])
def test_quantile_rejects(q):
    with pytest.raises(ValueError, match=r"q in \[0, 1\] only"):
        Pareto(1, 1).quantile(q)


@pytest.mark.parametrize(("f", "n"), [(0, 5), (6, 5), (-1, 5), (0, 0)])
def test_order_statistic_rejects(f, n):
    with pytest.raises(ValueError, match=rf"f must lie in 1 \.\. n = {n}, got {f}"):
        Pareto(1, 1).order_statistic_mean(f, n)


@settings(deadline=None)
@given(t0=st.floats(1e-300, 1e300), xi=st.floats(1e-300, 1e300))
def test_texts_round_trip(t0, xi):
    model = Pareto(t0, xi)
    assert eval(repr(model)) == model
    assert parse(f"pareto:t0={t0!r},xi={xi!r}") == model


@pytest.mark.parametrize("text", ["pareto:t0=0.01,xi=1.1", " Pareto : xi = 1.1 , t0 = 1e-2 "])
def test_parse_pareto(text):
    assert parse(text) == Pareto(t0=0.01, xi=1.1)


@pytest.mark.parametrize("text", ["none", " None "])
def test_parse_none(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown delay model '': expected 'none' or, for example, 'pareto:"),
        ("gauss:t0=1", "unknown delay model 'gauss:t0=1'"),
        ("none:t0=1", "unknown delay model 'none:t0=1'"),
        ("pareto", "t0 and xi missing"),
        ("pareto:t0=1", "'pareto:t0=1': xi missing"),
        ("pareto:t0=1,xi=2,mu=3", "pareto takes t0 and xi, once each; got 'mu=3'"),
        ("pareto:t0=1,t0=2,xi=3", "once each; got 't0=2'"),
        ("pareto:t0=1,xi=fast", "xi must be a number"),
        ("pareto:t0,xi=1", "t0 must be a number"),
        ("pareto:t0=1,xi=-1", "xi must be positive and finite, got -1.0"),
    ],
)
def test_parse_rejects(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)
