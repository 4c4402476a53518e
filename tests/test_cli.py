"""The command, as a user calls it."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import fastgc
from fastgc.cli import app

pytestmark = pytest.mark.any_backend


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_info_says_what_is_in_use():
    result = run("info")
    assert result.exit_code == 0
    for fact in (fastgc.__version__, fastgc.backend(), "simd", "threads"):
        assert fact in result.stdout


def test_info_json():
    facts = json.loads(run("info", "--json").stdout)
    assert facts["version"] == fastgc.__version__
    assert facts["backends"] == list(fastgc.backends())
    assert facts["simd"] in ("baseline", "avx2", "avx512")


@pytest.mark.parametrize("name", fastgc.backends())
def test_info_under_each_backend(name, monkeypatch):
    monkeypatch.setenv("FASTGC_BACKEND", name)
    command = [sys.executable, "-P", "-m", "fastgc", "info", "--json"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(output)["backend"] == name


def test_compare_writes_table_history_and_plot(tmp_path):
    plot, history = tmp_path / "runs.svg", tmp_path / "runs.json"
    small = ("-n", "4", "-s", "1", "--rounds", "3", "--delays", "pareto:t0=0.001,xi=1.1")
    result = run("train", "--compare", *small, "--plot", str(plot), "--json", str(history))
    assert result.exit_code == 0, result.output
    names = ["coded (RS)", "wait for all", "ignore stragglers"]
    for name in names:
        assert name in result.stdout
    runs = json.loads(history.read_text())
    assert [r["name"] for r in runs] == names
    assert {len(r["rounds"]) for r in runs} == {3}
    # the same delays, and gradients that are exact: the same model, whoever was waited for
    coded, everyone, _ = runs
    assert coded["rounds"][-1]["loss"] == pytest.approx(everyone["rounds"][-1]["loss"], rel=1e-9)
    assert {len(r["survivors"]) for r in coded["rounds"]} == {3}
    assert {len(r["survivors"]) for r in everyone["rounds"]} == {4}
    assert "<svg" in plot.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--plot", "runs.bmp"], "must end in"),
        (["--plot", "no/such/folder/runs.png"], "no folder"),
        (["--root", "x"], '--root must be "stable" or an integer'),
        (["--root", "4"], "not coprime"),
        (["--clusters", "many"], '--clusters must be "auto" or an integer'),
        (["--clusters", "9"], "clusters must be"),
        (["-s", "20"], "stragglers must be"),
        (["--data", "nowhere.npz"], "nowhere.npz"),
        (["--delays", "gauss:1"], "unknown delay model"),
        (["--lr", "0"], "lr"),
    ],
)
def test_errors_are_one_line_and_nothing_runs(arguments, says):
    result = run("train", *arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


def test_says_what_is_missing_without_typer(monkeypatch):
    from fastgc.__main__ import main

    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"fastgc\[cli\]"):
        main()
