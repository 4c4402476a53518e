"""Plans: which code, which load, and which assignment by speeds."""

import contextlib
import itertools
import json
import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from fastgc import (
    BinaryCode,
    LinearCode,
    ReedSolomon,
    planning,
    stability,
)
from fastgc._base import progress
from fastgc.coding.orders import random_arrivals
from fastgc.delays import Empirical, Exponential, Pareto
from fastgc.planning.simulation import simulate

PARETO = Pareto(0.001, 1.1)
MODULE = sys.modules["fastgc.planning.plan"]  # `fastgc.planning.plan` is the function
RECORDED = Path(__file__).parents[1] / "recorded.csv"


def times_of(found, name):
    return {choice.code.stragglers: choice for choice in found.choices if choice.name == name}


def test_plan_of_reed_solomon_is_the_exact_optimum():
    n, cost = 31, 4e-4  # a prime: all sets of n - s suffice, and no smaller ones
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


def test_plan_tries_all_loads_around_the_best():
    found = planning.plan(101, Exponential(0.1), 2e-3, codes=["rs"], rounds=200)
    tried = times_of(found, "rs")
    best = found.best.code.stragglers
    assert best > 20  # there, the first loads tried are several apart
    assert {best - 1, best, best + 1} <= set(tried)
    first = np.unique(np.round(np.geomspace(1, 101, 32)).astype(int) - 1).tolist()
    at = min(range(len(first)), key=lambda i: tried[first[i]].time)
    assert set(tried) == {*first, *range(first[at - 1], first[at + 1] + 1)}


def test_plan_of_every_code():
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
def test_plan_of_other_numbers_of_partitions(n, k):
    found = planning.plan(n, Exponential(0.01), 1e-3, k, rounds=50)
    assert {choice.code.k for choice in found.choices} == {k}
    assert found.best.code.n == n
    assert ("uncoded" in found.refused) == (k < n)


def test_plan_least_numbers():
    found = planning.plan(1, k=1, p=1, rounds=1, codes=["uncoded"], memory=1, seed=0)
    assert found.best.simulation.times == pytest.approx([0.0], abs=1e-9)
    found = planning.plan(10, None, 1e-3, rounds=20)
    assert (found.best.code.load, found.best.wait) == (1, pytest.approx(1e-3, rel=1e-6))


def test_plan_simulates_few_rounds_of_what_is_slow():
    late, every = Exponential(1.0), {"cost": 0.02, "rounds": 2000}
    found = planning.plan(30, late, codes=["rs", "binary"], **every)
    slow = [each for each in found.choices if each.simulation.times.size < 2000]
    assert 20 < len(slow) < len(found.choices) - 10
    assert not {id(each) for each in slow} & {id(each) for each in found.by_code()}
    for choice in slow:
        alone = simulate(choice.code, late, **every)
        assert np.array_equal(choice.simulation.times, alone.times[:100])
        assert alone.mean + choice.decode > found.best.time


def test_plan_simulates_as_simulate_does():
    """Also where workers finish their work while the master decodes and is busy otherwise."""
    late = Empirical(np.random.default_rng(0).exponential(1.0, (40, 9)))
    found = planning.plan(9, late, 0.05, rounds=60)
    assert len(found.choices) > 40
    for choice in found.choices:
        alone = simulate(choice.code, late, cost=0.05, rounds=60)
        assert np.array_equal(choice.simulation.times, alone.times)
    busy = {"cost": 0.05, "rounds": 60, "interrupted": False, "seed": 3}
    for choice in planning.plan(9, late, codes=["rs"], overhead=0.5, **busy).choices:
        alone = simulate(choice.code, late, overhead=0.5 + choice.decode, **busy)
        assert np.array_equal(choice.simulation.times, alone.times)
        assert choice.standard_error == alone.standard_error


def test_plan_judges_nine_sets_of_survivors():
    found = planning.plan(12, codes=["rs:root=1,stragglers=5"], rounds=3)
    [choice] = found.choices
    code = choice.code
    sets = [np.array(heard) for heard in random_arrivals(code.scheme, 9, seed=0)]
    grown = sorted(stability.amplification(code, heard) for heard in sets)
    assert choice.amplification == grown[4]
    assert choice.amplification_interval == (grown[1], grown[7])
    assert choice.error == sorted(code.trust(heard).relative_error for heard in sets)[4]


def test_plan_stragglers():
    found = planning.plan(8, codes=["rs", "uncoded"], stragglers=3, rounds=5)
    assert {choice.code.stragglers for choice in found.choices} == {3, 4, 5, 6, 7}
    assert found.refused["uncoded"] == "no load tolerates 3 stragglers"
    unknown = LinearCode(ReedSolomon(40, stragglers=10).matrix())
    with pytest.raises(ValueError, match="it is not known whether it tolerates 1 stragglers"):
        planning.plan(40, codes=[unknown], stragglers=1)
    with pytest.raises(ValueError, match=r"stragglers must be in 0 \.\. n-1 = 7, not 8"):
        planning.plan(8, stragglers=8)


def test_plan_residual():
    """What leaves out more than is allowed comes last, however fast, and is never the best."""
    names = ["ignore:tolerance=0.5", "rs"]
    late = Exponential(0.1)
    none, half = (
        planning.plan(8, late, 1.0, codes=names, residual=r, rounds=300) for r in (0.0, 1.0)
    )
    for found, near in ((none, False), (half, True)):
        [ignored] = (choice for choice in found.choices if choice.name == names[0])
        assert ignored.residual == 1  # of half the gradient, twice as large
        assert (ignored.near, ignored.trustworthy) == (near, near)
        assert ignored.time < min(c.time for c in found.choices if c.name == "rs")
        assert found.choices[0 if near else -1] is ignored
        assert (found.best is ignored) == near


def test_plan_names_and_makes_each_code_once():
    mine = BinaryCode(6, stragglers=2)
    found = planning.plan(6, codes=["fractional", mine, mine, "uncoded", "uncoded"], rounds=3)
    made = [repr(choice.code) for choice in found.choices]
    # Some loads make the same code, as with numbers of stragglers between divisors.
    assert sorted(made) == sorted({*made})
    assert [c.name for c in found.by_code()].count(repr(mine)) == 1
    with pytest.raises(ValueError, match=r"has n=6, k=6, not n=7, k=7"):
        planning.plan(7, codes=[mine])
    with pytest.raises(TypeError, match="not None"):
        planning.plan(4, codes=[None])


@pytest.fixture
def still(monkeypatch):
    """A clock that stands still, and a combination of 16 rows that takes the given seconds."""

    def combined_in(seconds):
        monkeypatch.setattr(MODULE, "repeat", lambda *given, **options: [seconds] * 5)
        monkeypatch.setattr(MODULE, "time", types.SimpleNamespace(perf_counter=lambda: 1.0))

    return combined_in


def test_plan_ranks_the_smaller_load_first_among_equal_times(still):
    """Times that differ by less than a hundredth, to which decoding is measured, are equal."""
    still(0.064)
    names = ["uncoded", "fractional:stragglers=1", "rs:stragglers=1", "rs:stragglers=0,packed=no"]
    ranked = planning.plan(4, Empirical([1.0]), codes=names[::-1], rounds=3).choices
    assert [choice.name for choice in ranked] == names
    times = [choice.time for choice in ranked]
    assert times == pytest.approx([1.016, 1.008, 1.008, 1.032])


def test_plan_decodes_in_the_time_of_the_messages_it_reads(still, monkeypatch):
    still(0.016)
    names = ["uncoded", "rs:stragglers=1", "rs:stragglers=1,packed=no", "fractional:stragglers=1"]
    found = planning.plan(4, codes=names, rounds=3)
    read = {choice.name: choice.decode for choice in found.choices}
    expected = dict(zip(names, (0.004, 0.002, 0.004, 0.002), strict=True))
    assert read == pytest.approx(expected)
    # Each call takes a second: one of nine sets is timed.
    calls = itertools.count()
    monkeypatch.setattr(MODULE, "time", types.SimpleNamespace(perf_counter=lambda: next(calls)))
    [choice] = planning.plan(4, codes=names[:1], rounds=3).choices
    assert (choice.decode, next(calls)) == (pytest.approx(1.004), 2)


def test_plan_progress(monkeypatch):
    """The bar ends when all loads are tried, of whatever number."""
    done = []

    @contextlib.contextmanager
    def bar(name, total):
        yield lambda: done.append(total)

    monkeypatch.setattr(progress, "task_bar", bar)
    planning.plan(5, codes=["rs", "uncoded", "reactive"], rounds=3, progress=True)
    assert done == [2 * 32 * 3] * len(done)
    assert len(done) == done[0]


def test_plan_of_a_slow_link_prefers_few_messages():
    slow = planning.plan(13, Exponential(1e-5), 1e-6, p=1000, bandwidth=8e6, rounds=300)
    # A message takes 1 ms: the best load is everything, and one message suffices.
    wait = {choice.name: choice.wait for choice in slow.by_code()}
    assert wait["uncoded"] > 0.013
    assert 0.001 < slow.best.wait < 0.0011
    assert slow.best.code.load == 13
    # Complex messages that are not packed are twice as long.
    names = ["rs", "rs:packed=no"]
    both = planning.plan(13, None, 1e-9, codes=names, p=1000, bandwidth=8e6, rounds=5)
    for s, choice in times_of(both, "rs").items():
        assert choice.wait == pytest.approx((13 - s) * 1e-3, rel=1e-3)
        # But they are two real equations each, so seven may determine 13 partitions.
        twice = times_of(both, "rs:packed=no")[s]
        assert 0.999 * min(13 - s, 7) < twice.wait / 2e-3 < 1.001 * (13 - s)


def test_best_is_no_useless_code():
    names = ["rs:root=1,stragglers=32", "binary"]
    found = planning.plan(256, Exponential(1.0), 1e-3, codes=names, rounds=50, memory=33)
    useless = times_of(found, names[0])[32]
    assert not useless.trustworthy
    assert useless.amplification > 1e10
    assert found.best.name == "binary"
    alone = planning.Plan([useless], {})
    with pytest.raises(ValueError, match="no code is both fast"):
        _ = alone.best


def test_plan_refuses_codes_without_a_mean_time():
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
        ({"n": 0}, "n must be"),
        ({"k": 0}, "k must be"),
        ({"p": 0}, "p must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"cost": -1e-3}, "cost must be seconds"),
        ({"cost": [1e-3, 1e-3]}, "one for each of 10 workers"),
        ({"bandwidth": 0}, "bandwidth must be positive"),
        ({"bandwidth": math.nan}, "bandwidth must be positive"),
        ({"bandwidth": "1e6"}, "bandwidth must be a real number"),
        ({"overhead": -1}, "overhead must .*not -1"),
        ({"codes": "rs"}, "codes must be a sequence of names"),
        ({"k": 25, "memory": 2}, "memory=2: 10 workers must hold 25 partitions.*at least 3"),
        ({"codes": []}, "name at least one code"),
        ({"codes": ["rs", "reed"]}, "unknown code 'reed'"),
    ],
)
def test_plan_refused(settings, text):
    with pytest.raises((TypeError, ValueError), match=text):
        planning.plan(**{"n": 10, "delays": PARETO, "rounds": 10, **settings})


def test_plan_of_recorded_times_predicts_the_best_codes():
    """Times of twelve local processes predict what was measured of the three best codes.

    Of 200 rounds, with delays of pareto:scale=0.005,shape=1.5 and gradients of 650 elements.
    """
    times = np.loadtxt(RECORDED, delimiter=",")
    held = json.loads(RECORDED.with_suffix(".json").read_text())
    delays, n = Empirical(np.maximum(times - held["cost"], 0)), times.shape[1]
    names = [code["name"] for code in held["codes"]]
    settings = {"memory": 4, "p": held["size"], "interrupted": False, "rounds": 600}
    measured_or_worse = [name for name in planning.CODES if name != "rs"]  # as good; not measured
    found = planning.plan(n, delays, held["cost"], codes=measured_or_worse, **settings)
    best = found.by_code()[:3]
    assert {choice.name for choice in best} == {code["name"] for code in held["codes"]}
    for choice in best:
        measured = next(c["measured"] for c in held["codes"] if c["code"] == repr(choice.code))
        assert choice.time == pytest.approx(measured, rel=0.2), choice.name
    # Predictions need the workers that are still late from the round before.
    settings |= {"interrupted": True, "codes": names}
    alone = planning.plan(n, delays, held["cost"], **settings).by_code()[0]
    assert alone.time < 0.7 * min(code["measured"] for code in held["codes"])


def test_plan_speeds_in_every_assignment():
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
