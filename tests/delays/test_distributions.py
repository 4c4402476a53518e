"""Delays: laws agree with scipy, exact products and integrals; samples keep their promises."""

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
    Empirical,
    Exponential,
    Heterogeneous,
    Mixture,
    Pareto,
    ShiftedExponential,
)
from fastgc.delays.distributions import mean_of_late

SEEDS = st.integers(0, 2**70)


def test_sample_follows_the_law():
    stats, model = pytest.importorskip("scipy.stats"), Pareto(2.0, 3.5)
    over_workers = model.sample(0, 20_000, seed=1)
    over_rounds = np.array([model.sample(r, 3, seed=1)[2] for r in range(3000)])
    over_seeds = np.array([model.sample(5, 1, seed=s)[0] for s in range(3000)])
    for samples in (over_workers, over_rounds, over_seeds):
        assert stats.kstest(samples, law(model).cdf).pvalue > 0.01


def test_sample_differs_by_round_and_seed():
    model = Pareto(1, 1.1)
    firsts = {model.sample(r, 1, s)[0] for r in range(30) for s in (*range(30), 2**32, 2**32 + 1)}
    assert len(firsts) == 30 * 32
    # The stream differs from that of the same seed elsewhere, for example in splits of data.
    assert model.sample(0, 1, seed=4)[0] != model.draw(np.random.default_rng(4), 1, 1)[0, 0]


ONE_OF_EACH = [
    Pareto(1, 2),
    ShiftedExponential(1, 2),
    Exponential(1),
    Empirical([1, 2]),
    Mixture([Empirical([1, 2]), Exponential(1)], [0.5, 0.5]),
]


@pytest.mark.parametrize("model", ONE_OF_EACH, ids=repr)
def test_laws_of_nan_and_other_types(model):
    for law in (model.cdf, model.survival):
        np.testing.assert_array_equal(
            np.isnan(law([math.nan, 0.5, math.inf])), [True, False, False]
        )
        assert np.isnan(law(math.nan))
        assert law(10**30) == law(1e30)
        with pytest.raises(TypeError, match=r"t must be .*real"):
            law([1, None])
    with pytest.raises(TypeError, match="q must be real"):
        model.quantile("0.5")
    for f, n, what in ((2.5, 3, "f"), (1, 3.0, "n"), ("1", 3, "f")):
        with pytest.raises(TypeError, match=f"{what} must be an integer"):
            model.order_statistic_mean(f, n)
    for name, wrong in (("round", -1), ("workers", -1), ("seed", -1), ("workers", 2.5)):
        with pytest.raises((TypeError, ValueError), match=f"{name} must .*{wrong}"):
            model.sample(**{"round": 0, "workers": 3, "seed": 0} | {name: wrong})


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
def test_laws_against_scipy(model):
    expected = law(model)
    q = np.array([0, 1e-9, 0.25, 0.5, 0.99, 1])
    np.testing.assert_allclose(model.quantile(q), expected.ppf(q), rtol=1e-13)
    least = expected.ppf(0)
    t = np.concatenate([expected.ppf(q), [-1, 0.5 * least, least * (1 + 1e-8), 2 * least + 1e-9]])
    t = np.append(t, [1e6 * expected.mean(), math.inf])
    np.testing.assert_allclose(model.cdf(t), expected.cdf(t), rtol=1e-6)
    np.testing.assert_allclose(model.survival(t), expected.sf(t), rtol=1e-9)
    assert model.mean() == pytest.approx(expected.mean(), rel=1e-12)
    assert eval(repr(model)) == model
    assert hash(eval(repr(model))) == hash(model)
    assert eval(repr(model).replace("'round'", "'computation'").replace("0.", "1.")) != model


@pytest.mark.parametrize("model", [Pareto(0.5, 2.5), *EXPONENTIALS], ids=repr)
@pytest.mark.parametrize(("f", "n"), [(1, 8), (5, 8), (8, 8)])
def test_order_statistic_mean_against_draws(model, f, n):
    waits = np.sort(model.draw(np.random.default_rng(8), 40_000, n))[:, f - 1]
    error = waits.std() / math.sqrt(waits.size)
    assert abs(waits.mean() - model.order_statistic_mean(f, n)) < 4 * error


def test_tail_indices():
    assert Pareto(1, 1.5).tail_indices(3).tolist() == [1.5] * 3
    for model in EXPONENTIALS:
        assert model.tail_indices(2).tolist() == [math.inf] * 2


@pytest.mark.parametrize(
    ("kind", "name", "least"),
    [
        (Pareto, "scale", 0),
        (Pareto, "shape", 0),
        (ShiftedExponential, "shift", -1e-9),
        (ShiftedExponential, "rate", 0),
        (Exponential, "mean", 0),
    ],
)
def test_parameters_refused(kind, name, least):
    good = dict.fromkeys(["mean"] if kind is Exponential else kind.__match_args__[:2], 2.0)
    for value in (least, math.inf, math.nan, "3"):
        with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
            kind(**good | {name: value})
    with pytest.raises(ValueError, match=r"per must be .* 'task'"):
        kind(**good, per="task")
    assert kind(**good).per == ("computation" if kind is ShiftedExponential else "round")
    assert kind(**good, per="computation").per == "computation"


def test_order_statistic_mean_refused():
    for f, n in ((0, 5), (6, 5), (0, 0)):
        with pytest.raises(ValueError, match=rf"f must lie in 1 \.\. n = {n}, got {f}"):
            Pareto(1, 1).order_statistic_mean(f, n)
    with pytest.raises(ValueError, match=r"shape must be greater than 1"):
        Pareto(1, 1).mean()
    # For the mean to exist, `fewest` times must be late together: more than 1 / shape.
    for shape, fewest in ((0.5, 3), (0.6, 2), (1.0, 2), (1.1, 1)):
        for n in (1, 2, 7):
            remedy = f"it does for f up to {n - fewest + 1}" if fewest <= n else "none does"
            for f in range(max(1, n - fewest + 2), n + 1):
                with pytest.raises(ValueError, match=f"the {f}-th smallest of {n} .*: {remedy}"):
                    Pareto(1, shape).order_statistic_mean(f, n)
            for f in range(1, n - fewest + 2):
                assert Pareto(1, shape).order_statistic_mean(f, n) > 1


MIXED = Mixture(
    [Pareto(0.2, 2.5), ShiftedExponential(0.5, 3, "round"), Empirical([0.1, 0.4])], [0.5, 0.3, 0.2]
)
EVERY = [*CLOSED, Empirical(RECORDED), MIXED]


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
    for q in (-0.1, 1.1, math.nan, [0.5, 2]):
        with pytest.raises(ValueError, match=r"q must be in \[0, 1\]"):
            model.quantile(q)


@pytest.mark.parametrize("model", EVERY, ids=repr)
@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, round=st.integers(0, 2**40), fewer=st.integers(0, 40), more=st.integers(0, 40))
def test_sample_depends_on_seed_round_and_worker_only(model, seed, round, fewer, more):
    times = model.sample(round, fewer + more, seed)
    assert times.shape == (fewer + more,)
    np.testing.assert_array_equal(model.sample(round, fewer, seed), times[:fewer])
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).sample(round, 3, seed), model.sample(round, 3, seed)
    )


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_draw_has_the_cdf(model):
    table = model.draw(np.random.default_rng(12), 500, 40)
    assert (table.shape, table.dtype) == ((500, 40), np.float64)
    np.testing.assert_array_equal(model.draw(np.random.default_rng(12), 500, 40), table)
    assert model.draw(np.random.default_rng(12), 0, 5).shape == (0, 5)
    for counts, name in (((-1, 2), "rounds"), ((2, -1), "workers")):
        with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
            model.draw(np.random.default_rng(12), *counts)
    drawn = np.sort(table.ravel())
    # Kolmogorov: the distance exceeds 2.23 / sqrt(N) with probability 1e-4, less where F has steps.
    points = np.linspace(0, model.quantile(0.999), 2000)
    seen = np.searchsorted(drawn, points, side="right") / drawn.size
    assert np.abs(seen - model.cdf(points)).max() < 2.23 / math.sqrt(drawn.size)


@pytest.mark.parametrize("model", CLOSED[1:], ids=repr)
@pytest.mark.parametrize(("f", "n"), [(1, 1), (1, 9), (9, 9), (30, 40), (990, 1000)])
def test_mean_of_late_meets_closed_forms(model, f, n, bare):
    expected = model.order_statistic_mean(f, n)
    assert bare(model).order_statistic_mean(f, n) == pytest.approx(expected, rel=1e-10)
    assert bare(model).mean() == pytest.approx(model.mean(), rel=1e-10)
    np.testing.assert_array_equal(
        bare(model).draw(np.random.default_rng(1), 3, 2),
        model.quantile(np.random.default_rng(1).random((3, 2))),
    )
    heterogeneous = Heterogeneous([model] * n)
    assert heterogeneous.order_statistic_mean(f, n) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("f", [1, 1000, 999_999, 1_000_000])
def test_mean_of_late_begins_or_ends_at_a_knot(f, bare):
    n = 1_000_000
    first = Exponential(1).order_statistic_mean(f, n)
    assert bare(Exponential(1)).order_statistic_mean(f, n) == pytest.approx(first, rel=1e-10)
    late = bare(ShiftedExponential(1e5, 1)).order_statistic_mean(f, n) - 1e5
    assert late == pytest.approx(first, abs=1e-10)


@pytest.mark.parametrize("shape", [1.001, 1.01, 1.1, 1.9, 2.1, 7])
def test_mean_of_late_of_heavy_tails(shape, bare):
    model = Pareto(0.01, shape)
    assert bare(model).mean() == pytest.approx(model.mean(), rel=1e-9)
    mixed = Mixture([model, Exponential(3)], [0.9, 0.1])
    expected = 0.9 * model.mean() + 0.3
    assert mixed.mean() == pytest.approx(expected, rel=1e-14)
    assert mixed.order_statistic_mean(1, 1) == pytest.approx(expected, rel=1e-8)


def test_mean_of_late_of_polynomials():
    # P(late) is 1 on [0, 1], then (3 - t) / 2 up to 3.
    late = mean_of_late(lambda t: np.clip((3 - t) / 2, 0, 1), np.array([1.0, 3.0]), math.inf)
    assert late == pytest.approx(2, rel=1e-14)


def test_order_statistic_mean_without_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(ImportError, match=re.escape(pip_install("planning"))):
        Empirical([1, 2]).order_statistic_mean(1, 2)
    assert Pareto(1, 2).order_statistic_mean(1, 2) == pytest.approx(4 / 3)


def test_laws_of_times_beyond_all_scales():
    for model in (ShiftedExponential(1.0, 10.0), Exponential(0.1), Pareto(1e-3, 2.0)):
        assert model.cdf(1e308) == 1
        assert model.survival(1e308) < 1e-300


@pytest.mark.parametrize("n", [1, 2, 5, 30, 100, 10**6])
def test_order_statistic_mean_of_any_number_of_workers(n):
    """They agree with 60 digits."""
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
