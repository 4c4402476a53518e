"""Delays of workers that fail together, and their effect on rounds and plans."""

import itertools
import json
import math
import pickle

import numpy as np
import pytest

from fastgc import BinaryCode, FractionalRepetition, delays, planning
from fastgc.delays import Empirical, Exponential, Outages, Pareto
from fastgc.engines import placement
from fastgc.engines.machines import dealt
from fastgc.planning.simulation import simulate

NODES = ["a", "a", "a", "b", "b", "c"]


def test_workers_of_a_domain_are_out_together():
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


def test_samples_depend_on_seed_and_round_alone():
    late = Pareto(0.01, 1.5)
    outages = Outages(late, NODES, 0.5, 60)
    assert pickle.loads(pickle.dumps(outages)) == outages
    found = [outages.sample(round, 6, 3) for round in range(20)]
    for round in (7, 0, 19):
        np.testing.assert_array_equal(outages.sample(round, 6, 3), found[round])
        own = late.sample(round, 6, 3)
        assert np.isin(np.round(found[round] - own, 6), [0, 60]).all()
    assert {bool(each[0] > 50) for each in found} == {True, False}
    assert outages.per == "round"
    assert outages.tail_indices(6).tolist() == [1.5] * 6
    assert Outages(None, NODES, 0.5, 60).tail_indices(6).tolist() == [math.inf] * 6


class Late:
    def sample(self, round, workers, seed):
        return np.arange(workers) + 0.125 * (seed % 2)


def test_models_of_ones_own_have_outages():
    outages = Outages(Late(), NODES, 0.5, 60)
    times = outages.draw(np.random.default_rng(1), 50, 6)
    assert np.isin(times % 60 % 0.125, 0).all()
    assert np.isnan(outages.tail_indices(6)).all()
    recorded = Empirical(np.arange(12.0).reshape(2, 6))
    assert Outages(recorded, NODES, 0, 60).draw(np.random.default_rng(1), 5, 6).max() <= 11


@pytest.mark.parametrize("kind", [BinaryCode, FractionalRepetition])
@pytest.mark.parametrize("placed", [False, True])
def test_rounds_last_as_long_as_what_is_lost_says(kind, placed):
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


def test_plans_place_their_codes():
    nodes = [i // 2 for i in range(8)]
    outages = Outages(Exponential(0.01), nodes, 0.05, 60)
    found = planning.plan(8, outages, 0.001, codes=["binary", "rs-clustered"], rounds=300)
    for choice in found.choices:
        if choice.code.stragglers:  # a round waits for 60 s only where two nodes are out
            assert choice.time < 2 * 60 * 6 * 0.05**2
    with pytest.raises(ValueError, match="for each of 6 workers, not 8"):
        dealt(outages, BinaryCode(6, stragglers=1))
    with pytest.raises(ValueError, match="each number from 0 to 7 once"):
        outages.dealt([0, 1, 2, 3, 4, 5, 6, 6])


def test_a_text_says_which_nodes_fail():
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
        ("sizes=3/0/1,probability=0.1,seconds=6", "sizes must be workers of each node"),
        ("sizes=3/x,probability=0.1,seconds=6", "sizes must be workers of each node"),
        ("sizes=3/2,probability=2,seconds=6", "probability must be in 0 .. 1"),
        ("sizes=3/2,probability=0.1", "seconds"),
        ("sizes=1000000/1,probability=0.1,seconds=6", "at most 1000000 workers"),
        ("sizes=3/2,probability=0.1,seconds=6,nodes=2", "it takes"),
    ],
)
def test_texts_are_checked(text, said):
    with pytest.raises(ValueError, match=said):
        delays.parse("none | outages: " + text)
    with pytest.raises(ValueError, match="has per='computation'"):
        delays.parse(
            "shifted-exponential:shift=1,rate=1 | outages:sizes=2/2,probability=0.1,seconds=6"
        )


def test_commands_deal_workers_out():
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from fastgc.cli import app

    text = "none | outages: sizes=4/4, probability=0.1, seconds=60"
    sizes = ["-n", "8", "--rounds", "4000", "--delays", text, "--json"]
    done = CliRunner().invoke(app, ["simulate", "binary", "-s", "1", *sizes])
    assert done.exit_code == 0, done.output
    # A round lasts 60 s if both nodes are out, in one of 100; without placement, one would do.
    lost = 0.01
    error = 60 * math.sqrt(lost * (1 - lost) / 4000)
    assert abs(json.loads(done.stdout)["binary"]["mean"] - 60 * lost) < 5 * error


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((delays.ShiftedExponential(0.1, 1.0), NODES, 0.1, 60), ValueError, "has per=.computation"),
        ((3, NODES, 0.1, 60), TypeError, "delays must be a model"),
        ((None, NODES, 1.5, 60), ValueError, "probability must be in 0 .. 1"),
        ((None, NODES, -0.5, 60), ValueError, "probability"),
        ((None, NODES, 0.1, math.inf), ValueError, "seconds"),
        ((None, NODES, 0.1, -1), ValueError, "seconds"),
        ((None, "aab", 0.1, 60), TypeError, "label for each worker"),
        ((None, 6, 0.1, 60), TypeError, "label for each worker"),
    ],
)
def test_outages_are_checked(arguments, error, said):
    with pytest.raises(error, match=said):
        Outages(*arguments)


def test_they_are_of_as_many_workers():
    outages = Outages(None, NODES, 0.1, 60)
    for ask in (
        lambda: outages.sample(0, 5, 0),
        lambda: outages.draw(np.random.default_rng(0), 1, 7),
        lambda: outages.tail_indices(5),
        lambda: simulate(BinaryCode(4, stragglers=1), outages),
    ):
        with pytest.raises(ValueError, match="domains of 6 workers"):
            ask()
