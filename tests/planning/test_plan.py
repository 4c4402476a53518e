"""Plans: which code, and which load."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest

from fastgc import InstabilityWarning, ReedSolomon, UnstableCodeError, planning
from fastgc.coding.arguments import unasked
from fastgc.delays import Empirical, Exponential, Pareto, ShiftedExponential
from fastgc.planning.simulation import simulate

PARETO = Pareto(0.001, 1.1)
RECORDED = Path(__file__).parents[1] / "recorded.json"


def times_of(found, name):
    return {choice.code.stragglers: choice for choice in found.choices if choice.name == name}


def test_best_load_of_reed_solomon_is_the_exact_optimum():
    n, cost = 30, 4e-4
    found = planning.plan(n, PARETO, cost, codes=["rs"], rounds=20_000)
    exact = {s: PARETO.order_statistic_mean(n - s, n) + cost * (s + 1) for s in range(n)}
    mine = times_of(found, "rs")
    for s, choice in mine.items():
        if s > 0:  # otherwise the variance is infinite
            assert abs(choice.wait - exact[s]) < 5 * choice.standard_error
        assert choice.code.load == s + 1
        assert choice.time == choice.wait + choice.decode
    best = min(exact, key=exact.__getitem__)
    assert best in mine  # even though not all loads were simulated
    assert exact[found.best.code.stragglers] < exact[best] * 1.05
    assert found.choices == sorted(found.choices, key=lambda choice: choice.time)


def test_all_loads_around_the_best_are_tried():
    found = planning.plan(100, Exponential(0.1), 2e-3, codes=["rs"], rounds=200)
    tried = times_of(found, "rs")
    best = found.best.code.stragglers
    assert best > 20  # there, the first loads tried are several apart
    assert {best - 1, best, best + 1} <= set(tried)
    assert 32 <= len(tried) < 50


def test_every_code_has_its_row():
    found = planning.plan(12, PARETO, 1e-5, rounds=500, memory=6)
    assert {choice.name for choice in found.choices} == set(planning.CODES)
    assert not found.refused
    assert all(choice.code.load <= 6 for choice in found.choices)
    best = found.by_code()
    assert [choice.name for choice in best] == list(
        dict.fromkeys(choice.name for choice in found.choices)
    )
    assert best[0] is found.choices[0]
    for choice in found.choices:
        assert choice.amplification >= 0.999 * choice.code.k
        assert 0 < choice.decode < 0.1
        assert choice.trustworthy
        assert choice.error < 1e-10
    # A code with a given load is a single choice.
    one = planning.plan(12, PARETO, codes=["bcc:load=4", "uncoded"], rounds=100)
    assert sorted(choice.name for choice in one.choices) == ["bcc:load=4", "uncoded"]


@pytest.mark.parametrize(("n", "k"), [(5, 3), (3, 7), (1, 1), (1, 4), (4, 1)])
def test_partitions_need_not_be_as_many_as_workers(n, k):
    found = planning.plan(n, Exponential(0.01), 1e-3, k, rounds=50)
    assert {choice.code.k for choice in found.choices} == {k}
    assert found.best.code.n == n
    assert ("uncoded" in found.refused) == (k < n)


def test_no_delay_needs_no_code():
    found = planning.plan(10, None, 1e-3, rounds=20)
    assert found.best.code.load == 1
    assert found.best.wait == pytest.approx(1e-3, rel=1e-6)


def test_simulations_beside_are_those_of_simulate():
    """They are the same in any thread, whatever is measured at the same time."""
    late = Empirical(np.random.default_rng(0).exponential(1.0, (40, 16)))
    found = planning.plan(16, late, 0.05, rounds=60)
    assert len(found.choices) > 60
    for choice in found.choices:
        alone = simulate(choice.code, late, cost=0.05, rounds=60)
        assert np.array_equal(choice.simulation.times, alone.times)


class Failing(Exponential):
    """A delay model that fails when it is drawn, not when it is checked."""

    def draw(self, rng, rounds, workers):
        raise OSError("the disk is gone")

    def quantile(self, q):
        return np.ones_like(q)


def test_errors_of_simulations_are_raised():
    with pytest.raises(OSError, match="the disk is gone"):
        planning.plan(6, Failing(1.0), 0.1, rounds=10)


def test_a_slow_link_prefers_few_messages():
    slow = planning.plan(12, Exponential(1e-5), 1e-6, p=1000, bandwidth=8e6, rounds=300)
    # A message takes 1 ms: the best load is everything, and one message suffices.
    wait = {choice.name: choice.wait for choice in slow.by_code()}
    assert wait["uncoded"] > 0.012
    assert 0.001 < slow.best.wait < 0.0011
    assert slow.best.code.load == 12
    # Complex messages that are not packed are twice as long.
    names = ["rs", "rs:packed=no"]
    both = planning.plan(12, None, 1e-9, codes=names, p=1000, bandwidth=8e6, rounds=5)
    for s, choice in times_of(both, "rs").items():
        assert choice.wait == pytest.approx((12 - s) * 1e-3, rel=1e-3)
        twice = times_of(both, "rs:packed=no")[s]
        assert twice.wait == pytest.approx(2 * choice.wait, rel=1e-3)


def test_useless_codes_are_no_best_choice():
    names = ["rs:root=1,stragglers=32", "binary"]
    found = planning.plan(256, Exponential(1.0), 1e-3, codes=names, rounds=50, memory=33)
    useless = times_of(found, names[0])[32]
    assert not useless.trustworthy
    assert useless.amplification > 1e10
    assert found.best.name == "binary"
    alone = planning.Plan([useless], {})
    with pytest.raises(ValueError, match="no code is both fast"):
        _ = alone.best


def test_codes_whose_mean_time_does_not_exist_are_refused():
    heavy = Pareto(0.001, 0.9)
    found = planning.plan(10, heavy, rounds=100)
    assert "does not exist" in found.refused["uncoded"]
    spared = [each.code.stragglers + each.code.scheme.holders.stand_ins for each in found.choices]
    assert min(spared) >= 1
    with pytest.raises(ValueError, match="no code fits: uncoded: the mean time"):
        planning.plan(10, heavy, codes=["uncoded"], rounds=100)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"n": 0}, "n must be at least 1"),
        ({"k": 0}, "k must be at least 1"),
        ({"p": 0}, "p must be at least 1"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"cost": -1e-3}, "cost must be seconds"),
        ({"cost": [1e-3, 1e-3]}, "one for each of 10 workers"),
        ({"bandwidth": 0}, "bandwidth must be positive"),
        ({"bandwidth": math.nan}, "bandwidth must be positive"),
        ({"overhead": -1}, "overhead must be finite and not negative, not -1"),
        ({"codes": "rs"}, "codes must be a sequence of names"),
        ({"k": 25, "memory": 2}, "memory=2: 10 workers must hold 25 partitions.*at least 3"),
        ({"codes": []}, "name at least one code"),
        ({"codes": ["rs", "reed"]}, "unknown code 'reed'"),
    ],
)
def test_bad_arguments(settings, text):
    with pytest.raises(ValueError, match=text):
        planning.plan(**{"n": 10, "delays": PARETO, "rounds": 10, **settings})


# -------------------------------------------------------------------------------- real times


def test_recorded_times_predict_the_best_codes():
    """Times of twelve local processes predict what was measured of the three best codes.

    Of 200 rounds, with delays of pareto:scale=0.005,shape=1.5 and gradients of 650 elements.
    """
    recording = planning.Recording.read(RECORDED)
    held = json.loads(RECORDED.read_text())
    n = recording.times.shape[1]
    settings = {"memory": 4, "p": held["size"], "interrupted": False}
    found = planning.plan(n, recording.delays, recording.cost, **settings)
    best = found.by_code()[:3]
    assert {choice.name for choice in best} == {code["name"] for code in held["codes"]}
    for choice in best:
        measured = next(c["measured"] for c in held["codes"] if c["code"] == repr(choice.code))
        assert choice.time == pytest.approx(measured, rel=0.2), choice.name
    # Predictions need the workers that are still late from the round before.
    settings["interrupted"] = True
    alone = planning.plan(n, recording.delays, recording.cost, **settings).by_code()[0]
    assert alone.time < 0.7 * min(code["measured"] for code in held["codes"])


@pytest.mark.parametrize(
    ("times", "cost", "text"),
    [
        ([1.0, 2.0], 0.0, r"rounds and workers, not of shape \(2,\)"),
        ([[1.0, -2.0]], 0.0, "positive seconds"),
        ([[1.0, 2.0]], -1.0, "cost must be finite and not negative"),
    ],
)
def test_bad_recordings(times, cost, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        planning.Recording(np.array(times), cost)
    path = tmp_path / "times.json"
    path.write_text(json.dumps({"times": times, "cost": cost, "source": ""}))
    with pytest.raises(ValueError, match="is no recording of.*" + text):
        planning.Recording.read(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="it holds no times"):
        planning.Recording.read(path)


def test_per_computation_delays_are_paid_for_every_partition():
    slow = ShiftedExponential(0.01, 1000.0)
    found = planning.plan(8, slow, codes=["rs"], rounds=200)
    assert found.best.code.load == 1
    loads = times_of(found, "rs")
    assert loads[7].wait > 7 * loads[0].wait / 2


def test_names_and_recordings_of_other_types():
    with pytest.raises(TypeError, match="a code is named by a text, not None"):
        planning.plan(4, codes=[None])
    with pytest.raises(TypeError, match="times must be real numbers, not complex128"):
        planning.Recording(np.ones((2, 2), complex), 0.0)
    with pytest.raises(TypeError):  # not a file descriptor, which would be closed
        planning.Recording.read(1)


# ------------------------------------------------------------------------ workers that differ


def test_speeds_are_tried_in_every_assignment():
    speeds = np.array([4.0, 4, 4, 4, 1, 1, 1, 1])
    options = {"cost": 1 / speeds, "k": 40, "codes": ["binary", "rs-clustered", "rs"], "rounds": 20}
    plain, found = (planning.plan(8, **options, speeds=v) for v in (None, speeds))
    before, after = ({choice.name: choice for choice in p.by_code()} for p in (plain, found))
    assert set(before) == set(after) == {"binary", "rs-clustered", "rs"}
    # 40 partitions over speeds that sum up to 20; equal loads wait for workers of speed 1.
    assert before["binary"].wait == pytest.approx(5.0)
    assert after["binary"].wait == pytest.approx(2.0)
    assert after["rs-clustered"].wait < before["rs-clustered"].wait
    assert after["rs"].wait == before["rs"].wait
    names = {repr(choice.code) for choice in found.choices if choice.code.stragglers == 1}
    for assignment in ("spread", "aligned", "classes"):
        assert any(f"assignment='{assignment}'" in name for name in names)
    with pytest.raises(ValueError, match="8 workers need 8 speeds"):
        planning.plan(8, speeds=[1, 2])


def test_codes_are_made_without_a_look_at_their_precision():
    """Precision is computed only if asked for, as by a strict code."""
    with warnings.catch_warnings(), unasked():
        warnings.simplefilter("error")
        ReedSolomon(200, stragglers=60, root=1)
        with pytest.raises(UnstableCodeError):
            ReedSolomon(200, stragglers=60, root=1, strict=True)
    with pytest.warns(InstabilityWarning):
        ReedSolomon(200, stragglers=60, root=1)
