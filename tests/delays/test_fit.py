"""Fits: likelihoods and distances agree with scipy's, parameters are recovered, p-values hold."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much

from fastgc.delays import Exponential, Pareto, ShiftedExponential, fit

PARETO = Pareto(0.005, 1.3)
SHIFTED = ShiftedExponential(0.2, 10, per="round")
EXPONENTIAL = Exponential(0.03)
KINDS = {"pareto": PARETO, "shifted-exponential": SHIFTED, "exponential": EXPONENTIAL}


def recorded(model, n, seed=0):
    return model.draw(np.random.default_rng(seed), 1, n)[0]


def by_kind(times, **options):
    return {type(each.model): each for each in fit(times, draws=19, **options)}


@pytest.mark.parametrize("model", KINDS.values(), ids=KINDS)
def test_figures_against_scipy(model):
    stats = pytest.importorskip("scipy.stats")
    times = recorded(model, 300)
    for kind, parameters in ((Pareto, 2), (ShiftedExponential, 2), (Exponential, 1)):
        each = by_kind(times)[kind]
        if isinstance(each.model, Pareto):
            law = stats.pareto(b=each.model.shape, scale=each.model.scale)
        else:
            shift = getattr(each.model, "shift", 0)
            law = stats.expon(shift, each.model.mean() - shift)
        assert each.log_likelihood == pytest.approx(law.logpdf(times).sum(), rel=1e-9)
        assert each.aic == pytest.approx(2 * parameters - 2 * each.log_likelihood, rel=1e-12)
        assert each.ks == pytest.approx(stats.kstest(times, law.cdf).statistic, rel=1e-9)
        assert each.model.per == "round"


@pytest.mark.parametrize("model", KINDS.values(), ids=KINDS)
def test_no_parameters_nearby_are_likelier(model):
    times = recorded(model, 200)

    def density(of):  # the logarithm; -Inf outside of the support
        with np.errstate(divide="ignore"):
            inside = np.log((times >= of.quantile(0)).astype(float))
        if isinstance(of, Pareto):
            rest = math.log(of.shape * of.scale**of.shape) - (of.shape + 1) * np.log(times)
        else:
            shift = getattr(of, "shift", 0)
            rate = 1 / (of.mean() - shift)
            rest = math.log(rate) - rate * (times - shift)
        return (inside + rest).sum()

    for each in fit(times, draws=1):
        best = each.model
        assert density(best) == pytest.approx(each.log_likelihood, rel=1e-9)
        for a in (0.97, 1, 1.03):
            for b in (0.97, 1, 1.03):
                if isinstance(best, Pareto):
                    other = Pareto(best.scale * a, best.shape * b)
                elif isinstance(best, ShiftedExponential):
                    other = ShiftedExponential(best.shift * a, best.rate * b)
                else:
                    other = Exponential(best.mean() * a)
                assert density(other) <= each.log_likelihood * (1 + 1e-12 * np.sign(density(best)))


@pytest.mark.parametrize("seed", range(5))
def test_parameters_are_recovered_and_the_family_found(seed):
    # These estimates have relative errors of 1 / sqrt(N) for shape, rate and mean, and of
    # 1 / (N shape) for scale; the least of N exponentials is 1 / (N rate) late on average.
    n = 500
    best, *others = fit(recorded(PARETO, n, seed))
    assert isinstance(best.model, Pareto)
    assert abs(best.model.shape / PARETO.shape - 1) < 4 / math.sqrt(n)
    assert 0 <= best.model.scale / PARETO.scale - 1 < 12 / (n * PARETO.shape)
    assert best.p_value > 0.01
    assert all(other.p_value == 1 / 200 for other in others)
    assert [best.aic, *(o.aic for o in others)] == sorted(f.aic for f in (best, *others))

    best, *others = fit(recorded(SHIFTED, n, seed))
    assert isinstance(best.model, ShiftedExponential)
    assert abs(best.model.rate / SHIFTED.rate - 1) < 4 / math.sqrt(n)
    assert 0 <= best.model.shift - SHIFTED.shift < 12 / (n * SHIFTED.rate)
    assert best.p_value > 0.01
    assert all(other.p_value < 0.05 for other in others)

    fits = fit(recorded(EXPONENTIAL, n, seed))
    for each in fits[:2]:  # also the shifted one, whose shift is nearly 0
        assert isinstance(each.model, (Exponential, ShiftedExponential))
        assert abs(each.model.mean() / EXPONENTIAL.mean() - 1) < 4 / math.sqrt(n)
        assert each.p_value > 0.01
        assert each.model.quantile(0) < 12 * EXPONENTIAL.mean() / n
    assert isinstance(fits[2].model, Pareto)
    assert fits[2].p_value == 1 / 200


@pytest.mark.parametrize("kind", KINDS)
def test_p_values_are_uniform_where_the_family_is_right(kind):
    stats = pytest.importorskip("scipy.stats")
    values = [
        fit(recorded(KINDS[kind], 25, seed), [kind], draws=99, seed=seed)[0].p_value
        for seed in range(much(300, 100))
    ]
    # Multiples of 1/100, equally likely, are spread evenly over the hundredth below.
    spread = np.array(values) - np.random.default_rng(0).random(len(values)) / 100
    assert stats.kstest(spread, "uniform").pvalue > 1e-4


def test_of_equal_scale_and_seed_p_values_do_not_change():
    times = recorded(SHIFTED, 60)
    for one, other in zip(fit(times), fit(1000 * times), strict=True):
        assert type(one.model) is type(other.model)
        assert one.ks == pytest.approx(other.ks, rel=1e-9)
        assert one.p_value == pytest.approx(other.p_value, abs=0.011)
    assert fit(times) == fit(times)
    assert fit(times, seed=1) != fit(times)


@pytest.mark.parametrize(
    "times", [[1, 1 + 2.0**-52], [1e-150, 2e-150], [1e-150, 1e150], [1e149, 1e149 * (1 + 2.0**-52)]]
)
def test_times_next_to_each_other_or_far_apart(times):
    # The distance of two times from a fit is the same for any two.
    for each, plain in zip(
        sorted(fit(times), key=lambda f: repr(type(f.model))),
        sorted(fit([1, 2]), key=lambda f: repr(type(f.model))),
        strict=True,
    ):
        assert type(each.model) is type(plain.model)
        assert math.isfinite(each.aic)
        if not isinstance(each.model, Exponential):
            assert each.ks == pytest.approx(plain.ks, rel=1e-9)
            assert each.p_value == pytest.approx(plain.p_value, abs=0.011)


def test_loads_divide_times():
    loads = np.array([1, 2, 5, 10])
    single = SHIFTED.draw(np.random.default_rng(4), 50, 4)
    fits, expected = fit(single * loads, loads=loads), fit(single)
    for each, plain in zip(fits, expected, strict=True):
        assert each.model.per == "computation"
        assert each.model.mean() == pytest.approx(plain.model.mean(), rel=1e-12)
        assert each.ks == pytest.approx(plain.ks, rel=1e-9)
    assert fit(3 * single, loads=3)[0].model.mean() == pytest.approx(fits[0].model.mean())


def test_kinds_are_those_asked_for():
    times = recorded(PARETO, 40)
    (only,) = fit(times, ["exponential"])
    assert isinstance(only.model, Exponential)
    assert only.model.mean() == pytest.approx(times.mean(), rel=1e-14)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=30).filter(lambda t: min(t) < max(t)))
def test_any_times_can_be_fitted(times):
    for each in fit(times, draws=3):
        assert 0 < each.ks <= 1
        assert each.p_value in (0.25, 0.5, 0.75, 1)
        assert math.isfinite(each.aic)


@pytest.mark.parametrize(
    ("times", "options", "message"),
    [
        ([], {}, "times must not be empty"),
        ([1], {}, "at least two times, positive and not all equal: got 1 from 1.0 to 1.0"),
        ([2, 2, 2], {}, "not all equal: got 3 from 2.0 to 2.0"),
        ([0, 1], {}, "positive and not all equal: got 2 from 0.0"),
        ([1, -1], {}, "times must not be negative, got -1.0"),
        ([1, math.nan], {}, r"times\[1\] is nan"),
        ([1, math.inf], {}, r"times\[1\] is inf"),
        ([1, 2], {"kinds": ["gauss"]}, "unknown kind of model 'gauss': choose from pareto, "),
        ([1, 2], {"loads": [1, 2, 3]}, r"loads of shape \(3,\) do not fit times of shape \(2,\)"),
        ([1, 2], {"loads": [1, 0]}, "loads must be positive, got 0.0"),
        ([1, 2], {"loads": [1, math.nan]}, r"loads\[1\] is nan"),
        ([1, 2], {"loads": [1, 2]}, "not all equal: got 2 from 1.0 to 1.0"),
        ([1, 2], {"draws": 0}, "draws must be at least 1, not 0"),
        ([1, 2], {"kinds": ()}, "kinds must name a model at least: choose from pareto, "),
        ([5e-324, 1e-323], {}, "from 1e-150 to 1e.150 seconds to be fitted: got 5e-324 to 1e-323"),
        ([1, 1e-310], {}, "seconds to be fitted: got 1e-310 to 1.0"),
        ([1, 1e308], {}, "seconds to be fitted: got 1.0 to 1e.308"),
        ([1e300, 3e300], {}, "seconds to be fitted"),
        ([1, 1e308], {"loads": [1, 1e-9]}, "seconds to be fitted: got 1.0 to inf"),
    ],
)
def test_unsuitable_times(times, options, message):
    with pytest.raises(ValueError, match=message):
        fit(times, **options)


def test_times_must_be_real():
    with pytest.raises(TypeError, match="times must be real"):
        fit([1j, 2])
