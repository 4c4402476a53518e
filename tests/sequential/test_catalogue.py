"""Comparisons of schemes across rounds by name, and the command for it."""

import csv
import io
import json
import sys
from functools import partial

import numpy as np
import pytest
from strength import much
from typer.testing import CliRunner

import fastgc
from fastgc.cli import app
from fastgc.engines import SimulatedCluster
from fastgc.sequential import (
    MSGC,
    SRSGC,
    Independent,
    SequentialCluster,
    SequentialScheme,
    compare,
    make,
    names,
    simulate_sequential,
)
from fastgc.sequential.catalogue import candidates, describe
from fastgc.testing import engines as conformance

M = "m-sgc:burst=1,window=2,stragglers=1"


def run(*arguments):
    return CliRunner().invoke(app, ["sequential", *arguments])


# ------------------------------------------------------------------------------------------ names


def test_schemes_are_made_by_name():
    scheme = make("m-sgc:burst=2,window=3,stragglers=1,code=binary", 5)
    assert isinstance(scheme, MSGC)
    assert (scheme.burst, scheme.window, scheme.stragglers) == (2, 3, 1)
    assert isinstance(scheme.parts[-1], fastgc.BinaryCode)
    assert isinstance(make("SR-SGC:burst=1,window=2,stragglers=2", 4), SRSGC)
    code = make("fractional", 6, stragglers=2)
    assert isinstance(code, Independent)
    assert code.load == 3
    assert names()[:2] == ["sr-sgc", "m-sgc"]
    assert describe("m-sgc:burst=1") == "m-sgc:burst=1 (multiplexed)"
    assert describe("rs") == "rs (Reed-Solomon)"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cloud", "unknown code 'cloud'.*across rounds code sr-sgc, m-sgc"),
        ("m-sgc", "burst and window and stragglers missing, as in m-sgc:burst=1"),
        ("m-sgc:rate=1", "takes burst, window, stragglers, code, once each; got 'rate=1'"),
        ("m-sgc:burst", "once each; got 'burst'"),
        ("sr-sgc:burst=2,window=4,stragglers=1", "1 more than a multiple of burst"),
        ("m-sgc:burst=1,window=2,stragglers=1,code=cloud", "unknown code 'cloud'"),
        ("random:load=2", "one message each"),
        ("nowhere:Scheme", "no module 'nowhere'"),
    ],
)
def test_what_no_text_names_is_refused(text, says):
    with pytest.raises(ValueError, match=says):
        make(text, 4)


def test_what_a_name_leaves_open_is_tried_within_the_delay():
    for text in ("m-sgc", "sr-sgc"):
        for delay in (1, 2, 3):
            found = candidates(text, 9, delay)
            assert {each.scheme.delay for each in found} == set(range(1, delay + 1))
            again = [make(f"{text}:{_listed(each.found)}", 9) for each in found]
            assert list(map(repr, again)) == [repr(each.scheme) for each in found]
            assert {each.found["stragglers"] for each in found} >= {1, 9}
    assert {each.found["stragglers"] for each in candidates("rs", 9, 0)} == {0, 1, 2, 3, 4, 6, 8}
    assert [each.found for each in candidates("uncoded", 9, 0)] == [{}]
    fixed = candidates("m-sgc:burst=1,code=binary", 9, 3)
    assert {each.scheme.burst for each in fixed} == {1}
    assert {each.scheme.window for each in fixed} == {2, 3, 4}
    assert all("burst" not in each.found for each in fixed)
    with pytest.raises(ValueError, match="done 2 rounds after it begins, and 1 are allowed"):
        candidates("m-sgc:burst=1,window=3,stragglers=1", 4, 1)
    with pytest.raises(ValueError, match="with jobs done 1 rounds after they begin, none is such"):
        candidates("m-sgc:burst=3", 4, 1)
    with pytest.raises(ValueError, match="leaves part of the gradient out"):
        candidates("ignore", 4, 1)


def _listed(found):
    return ",".join(f"{key}={value}" for key, value in found.items())


OWN = """
import numpy as np
import fastgc
from fastgc.sequential import SequentialScheme, Tasks

class Slow(SequentialScheme):
    '''Each job in the round after it began.'''

    def __init__(self, n, pause=1):
        self.n, self.pause = n, pause
        self._set_parts([fastgc.Uncoded(n)], slots=1, ages=[pause])

    def tasks(self, state, live, silent):
        age = np.full((self.n, 1), self.pause if self.pause in live else -1)
        return Tasks(age, np.zeros((self.n, 1), dtype=np.int64))

    def tolerable(self, state, live):
        return self.pause not in live or not self.lacks(0, state[self.pause, 0])
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_scheme.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_scheme:Slow"
    sys.modules.pop("own_scheme", None)


def test_own_schemes_are_found_by_module_and_class(own):
    scheme = make(f"{own}:pause=2", 3)
    assert isinstance(scheme, SequentialScheme)
    assert scheme.delay == 2
    times = np.ones((6, 3))
    [found] = compare(times, [own], models=3, mu=0)
    assert (found.run.rounds.tolist(), found.text) == ([0.0, 1.0, 1.0, 1.0, 1.0, 1.0], own)
    result = run(f"{own},uncoded", "-n", "3", "--rounds", "10", "--mu", "0", "--csv")
    assert result.exit_code == 0, result.output
    assert own in result.stdout


# ------------------------------------------------------------------------------------ comparison


def test_parameters_are_chosen_by_the_first_rounds_and_judged_by_the_others():
    rng = np.random.default_rng(1)
    times = 1.0 + rng.exponential(0.1, (60, 6))
    times[rng.random(times.shape) < 0.05] += 5.0
    found = compare(times, ["m-sgc", "binary", "uncoded"], models=3, mu=(0.0, 1.0), probe=20,
                    load_slope=0.5)  # fmt: skip
    seconds = [each.run.seconds_per_job for each in found]
    assert seconds == sorted(seconds)
    for each in found:
        options = candidates(each.name, 6, 2)
        mus = (0.0, 1.0) if each.name == "m-sgc" else (0.0,)
        first = [
            (simulate_sequential(times[:20], option.scheme, mu=mu, load_slope=0.5).seconds_per_job)
            for option in options
            for mu in mus
        ]
        assert [taken for _, taken in each.tried] == first
        chosen = simulate_sequential(times[:20], each.scheme, mu=each.mu, load_slope=0.5)
        assert chosen.seconds_per_job == min(first)
        others = simulate_sequential(times[20:], each.scheme, mu=each.mu, load_slope=0.5)
        assert others.rounds.tolist() == each.run.rounds.tolist()
        assert repr(make(each.text, 6, stragglers=0)) == repr(each.scheme)


def test_all_rounds_count_where_nothing_is_to_be_chosen():
    times = np.random.default_rng(2).exponential(1.0, (30, 4))
    found = compare(times, [M, "uncoded"], models=2, mu=0.5)
    assert {each.run.rounds.size for each in found} == {30}
    assert {len(each.tried) for each in found} == {1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"times": np.ones(5)}, r"shape \(rounds, workers\)"),
        ({"names": "m-sgc"}, "must be a sequence"),
        ({"names": []}, "must be a sequence"),
        ({"mu": []}, "one value at least"),
        ({"mu": [-1.0]}, "mu must be"),
        ({"models": 0}, "models must be at least 1"),
        ({"models": 1}, "none is such"),
        ({"probe": 9}, "10 rounds are too few, 9 of them"),
        ({"probe": 1}, "must be 2 at least"),
        ({"probe": 0}, "probe must be at least 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, says):
    given = {"times": np.ones((10, 4)), "names": ["m-sgc"], "models": 2} | change
    with pytest.raises((TypeError, ValueError), match=says):
        compare(**given)


def test_late_workers_that_are_not_interrupted_stay_late():
    """They are late as on an engine whose workers finish their work."""
    rng = np.random.default_rng(6)
    times = rng.exponential(1.0, (25, 4)) ** 2

    class Rows:
        per = "round"

        def sample(self, round, workers, seed):
            return times[round]

    for scheme in (make(M, 4), make("sr-sgc:burst=2,window=3,stragglers=3", 4), make("uncoded", 4)):
        shards = list(rng.standard_normal((scheme.k, 3)))
        waits = []
        engine = partial(SimulatedCluster, interrupted=False)
        with SequentialCluster(
            scheme, shards, conformance.curved, 3, engine=engine, delays=Rows(), mu=0.5
        ) as cluster:
            for _ in range(25 - scheme.delay):
                cluster.step(np.ones(3))
                waits.append(cluster.report.wait_seconds)
        foreseen = simulate_sequential(times, scheme, mu=0.5, interrupted=False)
        assert waits == pytest.approx(foreseen.rounds[: len(waits)].tolist(), rel=1e-12)
        dropped = simulate_sequential(times, scheme, mu=0.5)
        assert foreseen.seconds >= dropped.seconds
        assert (foreseen.seconds > dropped.seconds) == (scheme.delay > 0)


def test_a_partition_may_take_another_time_in_each_round():
    per_partition = np.random.default_rng(3).exponential(1.0, (12, 4))
    scheme = make("fractional", 4, stragglers=1)
    run = simulate_sequential(np.zeros((12, 4)), scheme, mu=0, load_slope=per_partition, at_load=0)
    twice = simulate_sequential(2 * per_partition, scheme, mu=0)
    assert run.rounds == pytest.approx(twice.rounds)
    with pytest.raises(ValueError, match="or of 12 rounds and these"):
        simulate_sequential(np.zeros((12, 4)), scheme, load_slope=np.ones((4, 12)))


def test_standard_errors_are_those_of_means():
    """For independent rounds, runs spread by as much as their standard errors say on average."""
    rng, count = np.random.default_rng(4), much(400, 80)
    uncoded = make("uncoded", 1)
    runs = [simulate_sequential(rng.exponential(1.0, (100, 1)), uncoded) for _ in range(count)]
    spread = np.std([run.seconds_per_job for run in runs])
    said = np.mean([run.standard_error for run in runs])
    assert 0.85 < said / spread < 1.15
    # Rounds that are equal in runs of ten count less.
    alike = np.repeat(rng.exponential(1.0, (count, 10)), 10, axis=1)
    said = np.mean([simulate_sequential(row[:, None], uncoded).standard_error for row in alike])
    assert 0.8 < said / np.std(alike.mean(axis=1)) < 1.2
    assert np.isnan(simulate_sequential(np.ones((8, 1)), uncoded).standard_error)


# ----------------------------------------------------------------------------------- the command


def test_the_command_prints_what_is_computed(tmp_path):
    rng = np.random.default_rng(5)
    times = 1.0 + rng.exponential(0.1, (40, 6))
    path = tmp_path / "times.csv"
    np.savetxt(path, 1e3 * times, delimiter=",")
    arguments = [f"{M},sr-sgc,uncoded", "--recorded", str(path), "--unit", "ms", "--cost", "800",
                 "--models", "3", "--mu", "0/0.5", "--probe", "15"]  # fmt: skip
    result = run(*[a if a != "800" else "0.8" for a in arguments], "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    truth = compare(times, [M, "sr-sgc", "uncoded"], models=3, mu=[0, 0.5], probe=15,
                    load_slope=0.8)  # fmt: skip
    assert [each["scheme"] for each in printed] == [each.text for each in truth]
    for row, each in zip(printed, truth, strict=True):
        assert row["seconds_per_gradient"] == pytest.approx(each.run.seconds_per_job, rel=1e-9)
        assert row["gradients"] == each.run.done.size
        assert row["load"] == pytest.approx(each.scheme.load)
    result = run(*[a if a != "800" else "0.8" for a in arguments])
    assert "25 rounds" in result.stdout
    assert "m-sgc" in result.stdout
    markdown = run(*[a if a != "800" else "0.8" for a in arguments], "--markdown").stdout
    assert "| done after rounds |" in markdown


def test_drawn_times_are_those_of_the_delays():
    result = run("uncoded,binary:stragglers=1", "-n", "4", "--delays", "exponential:mean=0.5",
                 "--cost", "0.25", "--rounds", "50", "--seed", "3", "--csv")  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = {row["scheme"]: row for row in csv.DictReader(io.StringIO(result.stdout))}
    model = fastgc.delays.Exponential(0.5)
    times = np.array([model.sample(r, 4, 3) for r in range(50)])
    assert float(rows["uncoded"]["seconds_per_gradient"]) == pytest.approx(
        times.max(axis=1).mean() + 0.25
    )
    assert float(rows["binary:stragglers=1"]["load"]) == 2
    assert rows["uncoded"]["waited"] == ""


def test_times_of_computations_grow_with_the_load(tmp_path):
    times = 1.0 + np.random.default_rng(5).exponential(0.1, (20, 4))
    np.save(tmp_path / "times.npy", times)
    result = run("binary:stragglers=1", "--recorded", str(tmp_path / "times.npy"), "--per",
                 "computation", "--json", "-")  # fmt: skip
    assert result.exit_code == 0, result.output
    scheme = make("binary:stragglers=1", 4)
    truth = simulate_sequential(2 * times, scheme, mu=0).seconds_per_job
    assert json.loads(result.stdout)[0]["seconds_per_gradient"] == pytest.approx(truth)


def test_it_draws(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.svg"
    result = run(f"{M},uncoded", "-n", "4", "--rounds", "20", "--plot", str(path))
    assert result.exit_code == 0, result.output
    assert "gradients that are done" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["cloud"], "unknown code 'cloud'"),
        (["--mu", "a"], "--mu must be a number"),
        (["--unit", "ms"], "--unit describes a table"),
        (["--recorded", "times.npy", "-n", "4"], "exclude each other"),
        (["m-sgc", "--models", "1"], "none is such"),
        (["m-sgc", "-n", "4", "--rounds", "5"], "too few"),
        (["--recorded", "nowhere.npy", "--cost", "1"], "nowhere.npy"),
    ],
)
def test_what_the_command_cannot_do_is_told(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.output
