"""``fastgc plan`` and ``fastgc fit``."""

import math
import re

import commands
import numpy as np
import pytest
from commands import COST, RECORDED, done, figures, refused

from fastgc import planning
from fastgc.delays import Empirical, Exponential, Pareto, fit, parse
from fastgc.delays.text import written

HEAVY = "pareto:scale=1,shape=0.9"


def choices(*arguments):
    """Return the choices that ``fastgc plan`` prints, without measured times."""
    listed = figures("plan", *arguments)["choices"]
    assert all(each["time"] == pytest.approx(each["wait"] + each["decode"]) for each in listed)
    timed = "time", "decode", "standard_error"
    return [{name: each[name] for name in each if name not in timed} for each in listed]


def of_choice(choice):
    return {
        "name": choice.name,
        "code": repr(choice.code),
        "load": choice.code.load,
        "stragglers": choice.code.stragglers,
        "wait": choice.wait,
        "workers": choice.simulation.mean_workers,
        "communication_load": choice.simulation.communication_load,
        "amplification": choice.amplification,
        "error": choice.error,
        "residual": None if math.isnan(choice.residual) else choice.residual,
        "trustworthy": choice.trustworthy,
        "mean_exists": choice.simulation.mean_exists,
    }


def test_plan_prints_what_plan_returns():
    """All options reach it; delays are long, so that decoding does not change the order."""
    asked = "rs binary ignore -n 6/1 -k 12 --memory 6 --rounds 40 --cost 0.01 --seed 3"
    asked += " --delays exponential:mean=0.1 --size 50 --bandwidth 8000 --residual 0.9"
    codes = ["rs", "binary", "ignore"]
    settings = {"p": 50, "bandwidth": 8000, "memory": 6, "residual": 0.9, "rounds": 40, "seed": 3}
    settings |= {"codes": codes, "stragglers": 1, "interrupted": True}
    found = planning.plan(6, Exponential(0.1), 0.01, 12, **settings)
    same = {"key": lambda each: each["code"]}
    expected = [of_choice(each) for each in found.choices]
    assert sorted(choices(*asked.split(), "--all"), **same) == sorted(expected, **same)
    best = [of_choice(each) for each in found.by_code()]
    assert sorted(choices(*asked.split()), **same) == sorted(best, **same)
    assert len(best) == 3 < len(expected)
    settings["interrupted"] = False
    waits = {repr(each.code): each.wait for each in planning.plan(
        6, Exponential(0.1), 0.01, 12, **settings).choices}  # fmt: skip
    late = choices(*asked.split(), "--all", "--finish")
    assert {each["code"]: each["wait"] for each in late} == pytest.approx(waits, rel=0.05)
    assert sum(late[0]["wait"] != each["wait"] for each in choices(*asked.split())) > 0


def test_plan_table(drawn):
    small = "-n", "6", "--memory", "3", "--rounds", "100", "--cost", "0.0001"
    result = done("plan", *small, "--plot", "loads.svg")
    for name in planning.CODES:
        assert result.stdout.count(f"\n {name} ") == 1
    assert max(map(len, result.stdout.split("time: of a round")[0].splitlines())) <= 80
    assert "amplif.: how many times" in result.stdout
    assert "left: part" not in result.stdout
    assert len(drawn["loads.svg"].axes) == 2
    assert set(figures("plan", "rs,uncoded", *small)) == {"choices", "refused"}
    shown = done("plan", "rs,uncoded", *small, "--all", "--markdown", "-k", "12").stdout
    title = "n=6 workers, k=12 partitions; pareto:scale=0.005,shape=1.5; 0.0001 s per partition"
    assert f"{title}; up to 100 rounds each, seed 0" in shown
    head, *cells = commands.table(shown)
    assert {"decoding, ms", "stragglers tolerated", "amplification", "predicted error"} < set(head)
    assert sorted(row[:2] for row in cells) == [
        ["rs (Reed-Solomon)", "2"],
        ["uncoded (waits for all)", "2"],
    ]


def test_plan_marks_what_is_not_near_and_what_is_not_trusted():
    """An approximate code's column takes the place of amplification in a terminal."""
    small = "plan", "rs", "ignore", "-n", "6/1", "--rounds", "50", "--delays", "exponential:mean=1"
    shown = done(*small, "--residual", "0.1").stdout
    assert "amplif." not in shown
    assert "left: part of the gradient" in shown
    [row] = re.findall(r"^ ignore .*", shown, re.MULTILINE)
    assert row.split()[-4:] == ["4e-01", "!", "0.45", "!"]
    [row] = re.findall(r"^ ignore .*", done(*small, "--residual", "0.5").stdout, re.MULTILINE)
    assert row.split()[-2:] == ["4e-01", "0.45"]
    head, *_ = commands.table(done(*small, "--residual", "0.5", "--markdown").stdout)
    assert {"left out, root mean square", "amplification"} < set(head)


def test_plan_by_speeds():
    late = "--delays", "exponential:mean=1e-9"
    small = "-n", "4", "-k", "20", "--rounds", "20", "--cost", "0.001", *late
    shown = done("plan", "binary", *small, "--speeds", "4/4/1/1").stdout
    assert re.search(r"^binary: assignment=\w+$", shown, re.MULTILINE)
    assert "assignment" not in done("plan", "binary", *small).stdout
    found = figures("plan", "binary", *small, "--speeds", "4/4/1/1")
    assert found["choices"][0]["wait"] == pytest.approx(2e-3, rel=1e-3)  # speeds sum up to 10
    for speeds, says in (
        ("4/4/1", "--speeds must be one for each of 4 workers, not 3"),
        ("4/4/x/1", "--speeds must be numbers, as in 4/4/2/1, not '4/4/x/1'"),
        ("4/4/0/1", "--speeds must be positive and finite, not '4/4/0/1'"),
    ):
        assert says in refused("plan", "binary", *small, "--speeds", speeds)


def test_plan_says_what_is_refused():
    asked = "plan", "rs,uncoded", "-n", "6", "--rounds", "50", "--delays", HEAVY
    [line] = done(*asked).stderr.splitlines()
    assert line.startswith("uncoded: the mean time of a round does not exist")
    assert "does not exist" in figures(*asked)["refused"]["uncoded"]
    few = "plan", "rs", "uncoded", "random", "-n", "8/3", "--rounds", "20"
    found = figures(*few, "--all")
    assert {each["name"] for each in found["choices"]} == {"rs", "random"}
    assert min(each["stragglers"] for each in found["choices"]) == 3
    assert found["refused"]["uncoded"] == "no load tolerates 3 stragglers"
    assert "no code fits: uncoded" in refused("plan", "uncoded", "--delays", HEAVY)
    said = "rs-clustered, n=6, s=4: one cluster, the same code as without clusters"
    one = "plan", "rs-clustered", "-n", "6", "--delays", "exponential:mean=1", "--cost", "1e-4"
    assert said in done(*one, "--memory", "5", "--rounds", "50").stdout


def test_plan_for_recorded_times():
    late = Empirical(np.maximum(np.loadtxt(RECORDED, delimiter=",") - COST, 0))
    asked = "rs,uncoded", "--recorded", RECORDED, "--cost", COST, "--rounds", "50", "--memory"
    settings = {"codes": ["rs", "uncoded"], "rounds": 50, "interrupted": False}
    for k, memory, more in (12, 4, ()), (24, 8, ("-k", "24")):
        # The number of partitions does not change the size of the data.
        cost = COST * 12 / k
        found = planning.plan(12, late, cost, k, memory=memory, **settings)
        waits = {repr(each.code): each.wait for each in found.choices}
        told = choices(*asked, memory, *more, "--all")
        # Late workers go on while the master decodes, which takes measured time.
        assert {each["code"]: each["wait"] for each in told} == pytest.approx(waits, rel=0.05)
    shown = done("plan", *asked, "8", "-k", "24", "--markdown").stdout
    assert "k=24 partitions; 200 rounds of 12 workers, recorded.csv" in shown
    assert f"{COST / 2:.3g} s per partition" in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rs:load=5", "--memory", "4"], "a worker must hold 5 partitions, and memory is 4"),
        (["--delays", "3 of exponential:mean=1"], "the times of 3 workers, not of 20"),
        (["--recorded", "else.json", "--cost", "0"], "it must be a list of times"),
    ],
)
def test_plan_refuses_its_options(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "else.json").write_text('{"times": [[1.0]]}')
    assert says in refused("plan", *arguments, "--rounds", "10")


# --------------------------------------------------------------------------------------- fit


def test_fit_prints_what_fit_returns(tmp_path, drawn):
    times = Pareto(10, 1.5).draw(np.random.default_rng(0), 40, 10)
    path = tmp_path / "times.npy"
    np.save(path, times)
    found = fit(times / 1e3)
    listed = figures("fit", path, "--unit", "ms", "--plot", "fit.svg")
    assert len(listed) == 3
    for told, each in zip(listed, found, strict=True):
        assert told == each._asdict() | {"model": written(each.model)}
    assert parse(listed[0]["model"]).shape == pytest.approx(1.5, rel=0.2)
    assert list(drawn) == ["fit.svg"]
    shown = done("fit", path, "--unit", "ms", "--markdown").stdout
    assert f"400 times, median {np.median(times):.3g} ms, from times.npy" in shown
    head, *cells = commands.table(shown)
    assert head == ["model", "AIC", "KS", "p"]
    assert cells == [
        [written(each.model), f"{each.aic:.0f}", f"{each.ks:.3f}", f"{each.p_value:.3f}"]
        for each in found
    ]


@pytest.mark.parametrize("text", ["1\n", "1\n-1\n", ""])
def test_fit_refuses_no_times(tmp_path, text):
    path = tmp_path / "times.txt"
    path.write_text(text)
    refused("fit", path)
    line = refused("fit", tmp_path / "none.json")
    assert line.endswith("none.json: no such file or directory")
