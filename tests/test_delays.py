"""Delays: Pareto against scipy, exact products and integrals; sampling against its promises."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc.delays import Exponential, Pareto, ShiftedExponential, parse

pytestmark = pytest.mark.any_backend

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
    # Not the stream that the same seed gives elsewhere, such as where data are split.
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
    # E T = scale + integral of P(T > t), and T > t when fewer than f of n have come.
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
    with pytest.raises(ValueError, match=r"q in \[0, 1\] only"):
        Pareto(1, 1).quantile(q)


@pytest.mark.parametrize(("f", "n"), [(0, 5), (6, 5), (-1, 5), (0, 0)])
def test_order_statistic_rejects(f, n):
    with pytest.raises(ValueError, match=rf"f must lie in 1 \.\. n = {n}, got {f}"):
        Pareto(1, 1).order_statistic_mean(f, n)


@settings(deadline=None)
@given(scale=st.floats(1e-300, 1e300), shape=st.floats(1e-300, 1e300))
def test_texts_round_trip(scale, shape):
    model = Pareto(scale, shape)
    assert eval(repr(model)) == model
    assert parse(f"pareto:scale={scale!r},shape={shape!r}") == model


@pytest.mark.parametrize(
    "text", ["pareto:scale=0.01,shape=1.1", " Pareto : shape = 1.1 , scale = 1e-2 "]
)
def test_parse_pareto(text):
    assert parse(text) == Pareto(scale=0.01, shape=1.1)


@pytest.mark.parametrize("text", ["none", " None "])
def test_parse_none(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown delay model '': expected 'none' or, for example, 'pareto:"),
        ("gauss:scale=1", "unknown delay model 'gauss:scale=1'"),
        ("none:scale=1", "unknown delay model 'none:scale=1'"),
        ("pareto", "scale and shape missing"),
        ("pareto:scale=1", "'pareto:scale=1': shape missing"),
        ("pareto:scale=1,shape=2,mu=3", "pareto takes scale and shape, once each; got 'mu=3'"),
        ("pareto:scale=1,scale=2,shape=3", "once each; got 'scale=2'"),
        ("pareto:scale=1,shape=fast", "shape must be a number"),
        ("pareto:scale,shape=1", "scale must be a number"),
        ("pareto:scale=1,shape=-1", "shape must be positive and finite, got -1.0"),
    ],
)
def test_parse_rejects(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


EXPONENTIALS = [ShiftedExponential(0.01, 10), ShiftedExponential(0, 0.3), Exponential(0.02)]
CLOSED = [Pareto(0.001, 1.1), Pareto(2, 3.5), *EXPONENTIALS]


def law(model):
    """The same distribution in scipy.stats."""
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
    """n C(n-1, f-1) times the integral of Q(u) u^(f-1) (1 - u)^(n-f), in 30 digits."""
    with mpmath.workdps(30):
        if isinstance(model, Pareto):
            scale, shape = mpmath.mpf(model.scale), mpmath.mpf(model.shape)
            # rest = 1 - u; its power is taken out with the density's, as both may be singular
            return float(
                scale
                * n
                * mpmath.binomial(n - 1, f - 1)
                * mpmath.quad(
                    # v with rest = v^a flattens the singularity at rest = 0
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
