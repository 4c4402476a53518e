"""Mixtures, workers that differ, and workers that fail together."""

import itertools
import math
import pickle

import mpmath
import numpy as np
import pytest

from fastgc import BinaryCode, FractionalRepetition, delays, planning
from fastgc.delays import (
    Empirical,
    Exponential,
    Heterogeneous,
    Mixture,
    Outages,
    Pareto,
    ShiftedExponential,
)
from fastgc.engines import placement
from fastgc.engines.machines import dealt
from fastgc.planning.simulation import simulate


def any_mixture(per="round"):
    return Mixture(
        [Pareto(0.2, 2.5, per), ShiftedExponential(0.5, 3, per), Empirical([0.1, 0.4], per)],
        [0.5, 0.3, 0.2],
    )


NODES = ["a", "a", "a", "b", "b", "c"]


def test_outages_of_a_domain_together():
    late = Exponential(0.01)
    outages = Outages(late, NODES, 0.25, 60)
    times = outages.draw(np.random.default_rng(0), 4000, 6)
    out = times > 30
    for one, other in ((0, 1), (1, 2), (3, 4)):
        np.testing.assert_array_equal(out[:, one], out[:, other])
    rates = out[:, [0, 3, 5]].mean(axis=0)
    np.testing.assert_allclose(rates, 0.25, atol=5 * math.sqrt(0.25 * 0.75 / 4000))
    both = (out[:, 0] & out[:, 3]).mean()  # domains are independent
    assert abs(both - 0.0625) < 5 * math.sqrt(0.0625 / 4000)
    # With the same seed, the model's own times are drawn first.
    np.testing.assert_array_equal(
        times - 60 * out, (late.draw(np.random.default_rng(0), 4000, 6) + 60 * out) - 60 * out
    )


def test_outages_sample_depends_on_seed_and_round_alone():
    late = Pareto(0.01, 1.5)
    outages = Outages(late, NODES, 0.5, 60)
    assert pickle.loads(pickle.dumps(outages)) == outages
    found = [outages.sample(round, 6, 3) for round in range(20)]
    for round in (7, 0, 19):
        np.testing.assert_array_equal(outages.sample(round, 6, 3), found[round])
        own = late.sample(round, 6, 3)
        assert np.isin(np.round(found[round] - own, 6), [0, 60]).all()
    assert {bool(each[0] > 50) for each in found} == {True, False}
    two = Mixture([Empirical([1.0]), Empirical([2.0])], [0.5, 0.5])  # domains fail by other luck
    drawn = {Outages(two, NODES, 0.5, 60).sample(round, 6, 3)[0] for round in range(40)}
    assert drawn == {1, 2, 61, 62}
    assert outages.per == "round"
    assert outages.tail_indices(6).tolist() == [1.5] * 6
    assert Outages(None, NODES, 0.5, 60).tail_indices(6).tolist() == [math.inf] * 6


class Late:
    def sample(self, round, workers, seed):
        return np.arange(workers) + 0.125 * (seed % 2)


def test_outages_of_own_models():
    outages = Outages(Late(), NODES, 0.5, 60)
    times = outages.draw(np.random.default_rng(1), 50, 6)
    assert np.isin(times % 60 % 0.125, 0).all()
    assert np.isnan(outages.tail_indices(6)).all()
    recorded = Empirical(np.arange(12.0).reshape(2, 6))
    assert Outages(recorded, NODES, 0, 60).draw(np.random.default_rng(1), 5, 6).max() <= 11


@pytest.mark.parametrize("kind", [BinaryCode, FractionalRepetition])
@pytest.mark.parametrize("placed", [False, True])
def test_outages_rounds_last_as_long_as_what_is_lost_says(kind, placed):
    nodes = [i // 4 for i in range(12)] if kind is BinaryCode else [i % 3 for i in range(12)]
    code = kind(12, stragglers=1)
    outages = Outages(None, nodes, 0.1, 60)
    outages = outages.dealt(placement(code, nodes)) if placed else outages
    nodes = outages.domains
    p = 0.1
    lost = 0.0
    for out in itertools.product([False, True], repeat=3):
        chance = math.prod(p if each else 1 - p for each in out)
        lost += chance * (not code.decodable([i for i in range(12) if not out[nodes[i]]]))
    assert (lost > 0.1) != placed
    found = simulate(code, outages, rounds=4000)
    assert abs(found.mean - 60 * lost) < 5 * 60 * math.sqrt(lost * (1 - lost) / 4000)
    assert found.mean_exists


def test_outages_in_plans():
    nodes = [i // 2 for i in range(8)]
    outages = Outages(Exponential(0.01), nodes, 0.05, 60)
    found = planning.plan(8, outages, 0.001, codes=["binary"], rounds=300)
    for choice in found.choices:
        if choice.code.stragglers:  # a round waits for 60 s only where two nodes are out
            assert choice.time < 2 * 60 * 6 * 0.05**2
    with pytest.raises(ValueError, match="for each of 6 workers, not 8"):
        dealt(outages, BinaryCode(6, stragglers=1))
    with pytest.raises(ValueError, match="each number from 0 to 7 once"):
        outages.dealt([0, 1, 2, 3, 4, 5, 6, 6])


def test_outages_by_text():
    found = delays.parse(
        "0.5*exponential:mean=1 + 0.5*pareto:scale=1,shape=2 | Outages: sizes=3/2/1, "
        "probability=0.25, seconds=60"
    )
    model = delays.Mixture([Exponential(1.0), Pareto(1.0, 2.0)], [0.5, 0.5])
    assert found == Outages(model, [0, 0, 0, 1, 1, 2], 0.25, 60)
    alone = delays.parse("none|outages:sizes=2,probability=0,seconds=1")
    assert alone == Outages(None, [0, 0], 0, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("none | outages:sizes=3/0/1,probability=0.1,seconds=6", "sizes must .*3, 0, 1"),
        ("none | outages:sizes=3/x,probability=0.1,seconds=6", "sizes must .*3/x"),
        ("none | outages:sizes=3/2,probability=2,seconds=6", "probability .*not 2"),
        ("none | outages:sizes=3/2,probability=0.1", "needs seconds=VALUE"),
        ("none | outages:sizes=1000000/1,probability=0.1,seconds=6", "at most 1000000 workers"),
        (
            "shifted-exponential:shift=1,rate=1 | outages:sizes=2,probability=0.1,seconds=6",
            "per='computation'",
        ),
    ],
)
def test_outages_by_text_refused(text, said):
    with pytest.raises(ValueError, match=f"outages:.* {said}"):
        delays.parse(text)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((3, NODES, 0.1, 60), TypeError, "delays must .*not 3"),
        ((None, NODES, 1.5, 60), ValueError, "probability .*not 1.5"),
        ((None, NODES, -0.5, 60), ValueError, "probability .*not -0.5"),
        ((None, NODES, 0.1, math.inf), ValueError, "seconds .*not inf"),
        ((None, NODES, 0.1, -1), ValueError, "seconds .*not -1"),
        ((None, ["a", ["b"]], 0.1, 60), TypeError, r"domains\[1\] must .*\['b'\]"),
        ((None, "aab", 0.1, 60), TypeError, "domains must .*'aab'"),
        ((None, 6, 0.1, 60), TypeError, "domains must .*6"),
    ],
)
def test_outages_refused(arguments, error, said):
    with pytest.raises(error, match=said):
        Outages(*arguments)


def test_outages_of_as_many_workers():
    outages, rng = Outages(None, NODES, 1, 60), np.random.default_rng(0)
    assert (outages.sample(3, 6, 0) == 60).all()
    assert (Outages(None, NODES, 0, 60).draw(rng, 9, 6) == 0).all()
    for ask in (
        lambda: outages.sample(0, 5, 0),
        lambda: outages.draw(rng, 1, 7),
        lambda: outages.tail_indices(5),
    ):
        with pytest.raises(ValueError, match="domains of 6 workers"):
            ask()
    for ask, name in (
        (lambda: outages.sample(-1, 6, 0), "round"),
        (lambda: outages.sample(0, 6, -1), "seed"),
        (lambda: outages.draw(rng, -1, 6), "rounds"),
    ):
        with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
            ask()


def test_mixture_is_the_mixed_law():
    model, t = any_mixture(), np.array([0, 0.1, 0.3, 0.4, 0.7, 5, 1e9])
    parts = zip(model.models, model.weights, strict=True)
    np.testing.assert_allclose(model.cdf(t), sum(w * m.cdf(t) for m, w in parts), rtol=1e-14)
    assert model.mean() == pytest.approx(
        0.5 * 0.2 * 2.5 / 1.5 + 0.3 * (0.5 + 1 / 3) + 0.2 * 0.25, rel=1e-14
    )
    assert model.survival(1e9) == pytest.approx(0.5 * (0.2 / 1e9) ** 2.5, rel=1e-12)
    nearly = Mixture([Exponential(1), Exponential(2)], np.array([0.5, 0.5 + 9e-10]))
    assert nearly.cdf(math.inf) == nearly.survival(0) == 1  # where probabilities add up to more
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


@pytest.mark.parametrize(
    ("weight", "slow"),
    [(0.01, 1e3), (0.5, 1e6), (1e-6, 1e6), (1 - 1e-6, 1e6), (1e-3, 1e60), (1e-3, 1e-60)],
)
@pytest.mark.parametrize(("f", "n"), [(1, 1), (1, 5), (3, 5), (5, 5), (12, 12)])
def test_mixture_order_statistic_mean_by_expansion(weight, slow, f, n):
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


@pytest.mark.parametrize("f", range(1, 7))
@pytest.mark.parametrize(
    "means",
    [[1, 1, 4, 0.2, 100, 3], [1, 1e6, 1e6, 1e6, 1e6, 1e6], [1, 1e-3, 1e3, 1e6, 1e6, 1e-6]],
)
def test_heterogeneous_order_statistic_mean_by_inclusion(means, f):
    """Also of scales far apart."""
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
    later = Heterogeneous([ShiftedExponential(20.0, 1 / mean) for mean in means])
    assert later.order_statistic_mean(f, n) == pytest.approx(20 + float(exact), rel=1e-11)


def test_heterogeneous_draws(refuse_other_numbers):
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
    refuse_other_numbers(model, "times of 3 workers, not of [24]")
    assert Heterogeneous([Exponential(1)]).per == Mixture([Exponential(1)], [1]).per == "round"


def test_heterogeneous_of_heavy_and_light_tails():
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
        ([Pareto(1, 2), 3], TypeError, "distributions .* got 3"),
        ([Pareto(1, 2), Heterogeneous([Pareto(1, 2)])], TypeError, "got Heterogeneous"),
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
        ([1, 0], "positive with sum 1"),
        ([math.nan, 1], "positive with sum 1"),
    ],
)
def test_mixture_weights_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        Mixture([Exponential(1), Exponential(2)], weights)
