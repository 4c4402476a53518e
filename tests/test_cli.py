"""The command, as a user calls it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import fastgc
from fastgc.cli import app
from fastgc.codes import catalogue

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
    small = ("-n", "4", "-s", "1", "--rounds", "3", "--delays", "pareto:scale=0.001,shape=1.1")
    result = run(
        "train", "--compare", "uncoded, ignore", *small, "--plot", str(plot), "--json", str(history)
    )
    assert result.exit_code == 0, result.output
    names = ["rs", "uncoded", "ignore"]
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


def test_messages_of_less_precision(tmp_path):
    small = ("-n", "3", "-s", "1", "--rounds", "2", "--delays", "none")
    losses = []
    for messages in ("float64", "float32", "bfloat16"):
        history = tmp_path / "run.json"
        result = run("train", *small, "--messages", messages, "--json", str(history))
        assert result.exit_code == 0, result.output
        losses.append(json.loads(history.read_text())[0]["rounds"][-1]["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert losses[2] == pytest.approx(losses[0], rel=1e-2)
    assert len(set(losses)) == 3


@pytest.mark.parametrize("name", [name for name in catalogue.NAMES if name != "linear"])
def test_every_code_trains(name, tmp_path):
    """To the same model as waiting for all does, unless it is not exact."""
    history = tmp_path / "runs.json"
    small = ("-n", "6", "-s", "1", "--rounds", "4", "--delays", "none", "--json", str(history))
    model = ("--model", "least-squares") if name.startswith("lcc") else ("--seed", "2")
    result = run("train", "--code", name, "--compare", "uncoded:rescale=true", *small, *model)
    assert result.exit_code == 0, result.output
    coded, everyone = json.loads(history.read_text())
    if name in ("ignore", "uc-mmc-pg"):
        assert coded["rounds"][-1]["loss"] < coded["rounds"][0]["loss"]
    else:
        assert coded["rounds"][-1]["loss"] == pytest.approx(
            everyone["rounds"][-1]["loss"], rel=1e-9
        )
    code = catalogue.make(name, 6, None, 1, 2 if "--seed" in model else 0)
    assert all(r["messages"] <= code.threshold for r in coded["rounds"])


def test_any_matrix_trains(tmp_path):
    np.save(tmp_path / "B.npy", fastgc.BinaryCode(4, stragglers=1).matrix())
    code = f"linear:B={tmp_path / 'B.npy'}"
    result = run("train", "--code", code, "-n", "4", "--rounds", "2", "--delays", "none")
    assert result.exit_code == 0, result.output
    result = run("train", "--code", code, "-n", "5")
    assert "the matrix has 4 rows, but there are 5 workers" in result.output


def test_table_of_codes():
    result = run("codes", "-n", "8", "-s", "1", "--trials", "5")
    assert result.exit_code == 0, result.output
    for name in catalogue.NAMES:
        assert (name in result.stdout) == (name != "linear")
    assert "7/8" in result.stdout  # the threshold of rs
    markdown = run("codes", "rs,lcc:load=2", "-n", "8", "-s", "1", "--trials", "5", "--markdown")
    lines = [line for line in markdown.stdout.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| Reed-Solomon (`rs`) | 2 | 7/8 | 7.0 | 7.0 | 1 |")
    figures = json.loads(run("codes", "binary", "-n", "6", "-s", "1", "--json").stdout)["binary"]
    assert figures["threshold"] == 5
    assert figures["load"] == 2
    assert figures["worst_error"] < 1e-14
    assert 3 <= figures["mean_messages"] == figures["communication_load"] <= 5


def test_table_of_codes_leaves_out_what_does_not_exist():
    result = run("codes", "-n", "7", "-s", "2", "--trials", "2")
    assert result.exit_code == 0
    assert "fractional repetition needs n to be a multiple" in result.output
    result = run("codes", "fractional", "-n", "7", "-s", "2")
    assert result.exit_code == 2
    assert "fastgc: fractional repetition needs n to be a multiple" in result.output


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_hopeless_code_is_one_line():
    result = run("codes", "rs:root=1", "-n", "3000", "-s", "1500", "--trials", "1")
    assert result.exit_code == 2
    assert "beyond float64" in result.output
    assert "Traceback" not in result.output


def test_lists_of_codes():
    assert catalogue.split("rs:clusters=auto,root=1, bcc,lcc:load=4,messages=2,") == [
        "rs:clusters=auto,root=1",
        "bcc",
        "lcc:load=4,messages=2",
    ]
    code = catalogue.make("binary:speeds=3/1/1.5,stragglers=0", 3, 11)
    assert code.loads.tolist() == [6, 2, 3]
    assert catalogue.make("uncoded:tolerance=0.5,rescale=false", 4).rescale is False
    assert catalogue.make("bcc:loads=2/2/2,seed=4", 3, 2).load == 2
    assert catalogue.make("rs:load=3", 6, stragglers=4).stragglers == 2
    assert catalogue.make("uncoded:tolerance=0.5,rescale=no", 4).rescale is False
    assert catalogue.make("ignore", 20, 23, stragglers=4).stragglers == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--plot", "runs.bmp"], "must end in"),
        (["--plot", "no/such/folder/runs.png"], "no folder"),
        (["--code", "turbo"], "unknown code 'turbo': choose among rs, rs-clustered, binary"),
        (["--code", "rs:root=x"], 'root, unless "stable", must be an integer'),
        (["--code", "rs:root=4"], "not coprime"),
        (
            ["--code", "rs:roots=1"],
            "rs takes stragglers, load, root, packed, clusters, strict, once each",
        ),
        (["--code", "rs:root"], "once each; not root"),
        (["--code", "rs:clusters=9"], "clusters must be"),
        (["--compare", "bcc:load=0"], "load must be in"),
        (["--code", "linear"], "linear:B=matrix.npy"),
        (["--code", "linear:B=nowhere.npy"], "nowhere.npy"),
        (["--code", "linear:B=empty.npy"], "empty.npy"),
        (["--compare", "lcc", "--model", "softmax"], "--model least-squares"),
        (["--json", "."], "is a folder"),
        (["-n", "0"], "--workers"),
        (["-k", "0"], "n and k must be at least 1"),
        (["-s", "-1"], "stragglers must be in 0"),
        (["--model", "resnet"], '--model must be "auto"'),
        (["--code", "lcc", "--model", "softmax"], "quadratic in the data"),
        (["-s", "20"], "stragglers must be"),
        (["--data", "nowhere.npz"], "nowhere.npz"),
        (["--delays", "gauss:1"], "unknown delay model"),
        (["--lr", "0"], "lr"),
        (["--messages", "int8"], "float16, bfloat16, not int8"),
        (["--messages", "float17"], "not understood"),
        (["--compare", "lcc:nodes=roots", "--messages", "float16"], "sends complex128 messages"),
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


# ---------------------------------------------------------------------------------- stability


def test_stability_table_json_and_csv(tmp_path):
    path = tmp_path / "figures.csv"
    arguments = ("stability", "rs:root=1,rs@leja,binary", "--sizes", "16,12/3", "-s", "0.25")
    options = ("--dtype", "float64,float32", "--patterns", "random,adversarial", "--trials", "5")
    result = run(*arguments, *options, "--csv", str(path), "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert len(rows) == 3 * 2 * 2 * 2
    assert {(row["n"], row["stragglers"]) for row in rows} == {(16, 4), (12, 3)}
    assert {row["code"] for row in rows} == {"rs:root=1", "rs@leja", "binary"}
    assert path.read_text().count("\n") == 25
    table = run(*arguments, *options)
    assert table.stdout.count("float32, adversarial stragglers") == 1
    assert table.stdout.count("binary ") == 8
    assert max(map(len, table.stdout.splitlines()[:30])) <= 80
    markdown = run(*arguments, *options, "--markdown").stdout
    assert "| Reed-Solomon, by Björck–Pereyra, Leja order | 16 | 4 |" in markdown


def test_stability_says_what_does_not_exist():
    result = run("stability", "fractional,binary", "--sizes", "16/4", "--trials", "2")
    assert result.exit_code == 0
    assert "fractional, n=16, s=4: fractional repetition needs n to be a multiple" in result.output
    result = run("stability", "fractional", "--sizes", "16/4")
    assert result.exit_code == 2
    assert "fastgc: nothing to measure: fractional, n=16, s=4" in result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["rs@lu"], "rs has no method 'lu': choose one of auto, locator, spread"),
        (["binary@solve"], "binary has no method 'solve': choose one of auto"),
        (["turbo"], "unknown code 'turbo'"),
        (["rs", "--sizes", "many"], "--sizes and --stragglers are lists of numbers"),
        (["rs", "--sizes", "8/8"], "8 of 8 workers cannot straggle"),
        (["rs", "-s", "3"], "--stragglers are fractions of n, from 0 to 1, not 3"),
        (["rs", "-s", "inf"], "--sizes and --stragglers are lists of numbers"),
        (["rs", "--sizes", ""], "must name something to measure"),
        (["rs", "--patterns", ""], "at least one code, one dtype and one pattern"),
        (["rs", "--patterns", "rare"], "unknown pattern 'rare'"),
        (["rs", "--dtype", "float7"], "float7"),
        (["rs", "--dtype", "int64"], "must be of one of the dtypes float32, float64"),
        (["rs", "--csv", "nowhere/figures.csv"], "there is no folder nowhere"),
        (["rs", "--plot", "out.bmp"], "must end in .png"),
    ],
)
def test_stability_errors_are_one_line(arguments, text):
    result = run("stability", *arguments, "--trials", "2")
    assert result.exit_code == 2
    assert text in result.output
    assert "Traceback" not in result.output


def test_stability_plot(tmp_path, monkeypatch):
    from fastgc.cli import stability

    monkeypatch.setattr(stability, "PLOTTED", (8, 16))
    monkeypatch.setattr(stability, "PLOTTED_STRAGGLERS", (1, 2))
    plot = tmp_path / "errors.svg"
    result = run("stability", "rs,rs@solve", "--sizes", "8", "--trials", "2", "--plot", str(plot))
    assert result.exit_code == 0, result.output
    picture = plot.read_text()
    assert picture.startswith("<?xml")
    assert f"plot written to {plot}" in result.output


def test_training_can_be_tracked(tmp_path):
    small = ("-n", "4", "-s", "1", "--rounds", "3", "--delays", "none", "--compare", "binary")
    track, plot = tmp_path / "rounds.jsonl", tmp_path / "runs.svg"
    result = run(
        "train", *small, "--track", str(track), "--measure-every", "2", "--plot", str(plot)
    )
    assert result.exit_code == 0, result.output
    assert "rounding" in result.stdout
    lines = [json.loads(line) for line in track.read_text().splitlines()]
    assert [(line["run"], line["round"]) for line in lines] == [
        (name, number) for name in ("rs", "binary") for number in (1, 2, 3)
    ]
    assert [line["measured"] is None for line in lines] == [False, True, False] * 2
    assert (tmp_path / "runs-precision.svg").exists()
    track.unlink()
    result = run(
        "train", *small, "--track", str(track), "--max-error", "1e-18", "--on-error", "raise"
    )
    assert result.exit_code == 2
    assert "fastgc: round 1: the gradient decoded from" in result.output
    assert track.read_text().count("\n") == 1
    result = run("train", *small, "--max-error", "1", "--on-error", "panic")
    assert result.exit_code == 2
    assert '--on-error must be "warn", "raise" or "wait"' in result.output


@pytest.mark.filterwarnings("default::fastgc.errors.InstabilityWarning")
def test_unstable_codes_are_warned_about_in_one_line():
    result = run("codes", "rs:root=1", "-n", "128", "-s", "16", "--trials", "1")
    assert result.exit_code == 0
    assert "fastgc: warning: ReedSolomon(n=128" in result.output
    result = run("codes", "rs:root=1,strict=yes", "-n", "128", "-s", "16", "--trials", "1")
    assert result.exit_code == 2
    assert "is numerically unstable" in result.output
