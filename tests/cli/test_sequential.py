"""``fastgc sequential`` prints what `fastgc.sequential.compare` returns."""

import csv
import io
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import fastgc
from fastgc.cli import app
from fastgc.sequential import (
    compare,
    make,
    simulate_sequential,
)

M = "m-sgc:burst=1,window=2,stragglers=1"


def run(*arguments):
    return CliRunner().invoke(app, ["sequential", *arguments])


def test_sequential_prints_what_compare_returns(tmp_path):
    rng = np.random.default_rng(5)
    times = 1.0 + rng.exponential(0.1, (40, 6))
    path = tmp_path / "times.csv"
    np.savetxt(path, 1e3 * times, delimiter=",")
    arguments = [f"{M},sr-sgc,uncoded", "--recorded", str(path), "--unit", "ms", "--cost", "0.8",
                 "--models", "3", "--mu", "0/0.5", "--probe", "15"]  # fmt: skip
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    truth = compare(times, [M, "sr-sgc", "uncoded"], models=3, mu=[0, 0.5], probe=15,
                    load_slope=0.8)  # fmt: skip
    assert [each["scheme"] for each in printed] == [each.text for each in truth]
    for row, each in zip(printed, truth, strict=True):
        assert row["seconds_per_gradient"] == pytest.approx(each.run.seconds_per_job, rel=1e-9)
        assert row["gradients"] == each.run.done.size
        assert row["load"] == pytest.approx(each.scheme.load)
    table = run(*arguments, "--markdown").stdout
    assert "25 rounds" in table
    assert "| done after rounds |" in table


def test_sequential_draws_times():
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


def test_sequential_per_computation(tmp_path):
    times = 1.0 + np.random.default_rng(5).exponential(0.1, (20, 4))
    np.save(tmp_path / "times.npy", times)
    result = run("binary:stragglers=1", "--recorded", str(tmp_path / "times.npy"), "--per",
                 "computation", "--json", "-")  # fmt: skip
    assert result.exit_code == 0, result.output
    scheme = make("binary:stragglers=1", 4)
    truth = simulate_sequential(2 * times, scheme, mu=0).seconds_per_job
    assert json.loads(result.stdout)[0]["seconds_per_gradient"] == pytest.approx(truth)


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
def test_sequential_refused(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.output
