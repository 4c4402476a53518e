"""The command, as a user calls it."""

import base64
import csv
import hashlib
import json
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import programs
import pytest
from strength import much
from typer.testing import CliRunner

import fastgc.training.train  # it would load only when used
from fastgc.cli import app, info
from fastgc.codes import catalogue
from fastgc.delays import Pareto, parse
from fastgc.delays.text import FORMS
from fastgc.engines import RoundOptions

RECORDED = Path(__file__).parents[1] / "recorded.json"
HEAVY = "pareto:scale=1,shape=0.9"


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
    assert facts["backend"] == fastgc.backend()
    assert facts["simd"] in ("baseline", "avx2", "avx512")


def test_info_says_whose_files_are_imported(tmp_path, monkeypatch):
    """As installed, or overwritten by another distribution; another folder; none installed."""
    package, about = tmp_path / "fastgc", tmp_path / "gradient_coding-1.0.dist-info"
    for folder in package, about:
        folder.mkdir()
    text = b"points = 'of a gradient'\n"
    (package / "__init__.py").write_bytes(text)
    digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gradient-coding\nVersion: 1.0\n")
    (about / "RECORD").write_text(f"fastgc/__init__.py,sha256={digest},{len(text)}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert info.files(package) == "as installed"
    (package / "__init__.py").write_text("points = 'of a cloud'\n")
    said = "1 not as installed, such as fastgc/__init__.py: uninstall fastgc, then reinstall "
    assert info.files(package).startswith(said)
    (tmp_path / "earlier" / "fastgc").mkdir(parents=True)
    said = info.files(tmp_path / "earlier" / "fastgc")
    assert said.startswith(f"not those of {package}, which comes later")
    monkeypatch.setattr(sys, "path", [])
    assert info.files(package) == "of a checkout: gradient-coding is not installed"


def test_version_and_help():
    assert run("--version").stdout == f"fastgc {fastgc.__version__}\n"
    for words in ((), ("train",), ("codes",)):
        short, long = run(*words, "-h"), run(*words, "--help")
        assert short.exit_code == long.exit_code == 0
        assert short.stdout == long.stdout
    listed = re.findall(r"│ ([a-z]+) ", run("-h").stdout)
    assert listed == ["train", "codes", "plan", "simulate", "sequential", "fit",
                      "stability", "info"]  # fmt: skip


@pytest.mark.parametrize("name", ["train", "plan", "simulate", "sequential"])
def test_delays_are_explained(name):
    result = run(name, "--delays", "help")
    assert result.exit_code == 0
    for form, meaning in FORMS:
        assert f"{form}\n    {meaning}\n" in result.stdout


def test_options_of_train_are_in_groups():
    text = run("train", "-h").stdout
    panels = re.findall(r"╭─ (.*?) ─+╮(.*?)╰", text, re.DOTALL)
    assert [name for name, _ in panels] == [
        *("Arguments", "Options", "Code and workers", "Data and model", "Optimizer"),
        *("Engine, delays and messages", "Recorded times"),
        "Workers that die or compute wrongly",
        *("What is shown and drawn", "What is written", "Going on, and decoding as before"),
        "Precision of gradients",
    ]
    options = {name: re.findall(r"│ --([a-z-]+)", body) for name, body in panels}
    assert options["Options"] == ["help"]  # all other options are in groups
    assert "by-label" in options["Data and model"]
    assert max(map(len, options.values())) <= 7


def test_completion_is_offered():
    environment = {"_FASTGC_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    environment |= {"COMP_WORDS": "fastgc train rs-"}
    done = programs.run(programs.python("-m", "fastgc"), env=environment)
    assert set(done.stdout.split()) == {"rs-clustered"}, done.stderr
    for words, found in (
        ("fastgc train rs-", {"rs-clustered"}),
        ("fastgc train --compare rs,unc", {"rs,uncoded"}),
        ("fastgc train --engine s", {"simulated"}),
        ("fastgc train --method ca", {"cada"}),
    ):
        environment |= {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        done = CliRunner().invoke(app, prog_name="fastgc", env=environment)
        assert set(done.stdout.split()) == found, done.output
    assert "--install-completion" in run("-h").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["codes", "-n", "3", "-s", "5"], "stragglers must be in 0 .. n-1 = 2, not 5"),
        (["codes", "-k", "0"], "no code fits: rs, rs-clustered, "),
        (["stability", "nosuch"], "unknown code 'nosuch'"),
        (["stability", "rs@lu"], "rs has no method 'lu'"),
        (["simulate", "-k", "0"], "no code fits: rs, rs-clustered, "),
        (["simulate", "rs", "--timeline", "x.png", "--request", "1"], "leave out --timeline"),
        (["fit", "nowhere.json"], "nowhere.json: no such file or directory"),
    ],
)
def test_refusals_are_said_once(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith(f"fastgc: {says}")
    reason = says.partition(": ")[2] or says
    assert line.count(reason) == 1
    assert not result.stdout


def test_status_tells_misuse_from_failure():
    from fastgc.cli.common import status_of

    for error in (ValueError(), TypeError(), OverflowError(), FileNotFoundError(), RuntimeError()):
        assert status_of(error) == 2
    for error in (
        *(fastgc.NotDecodableError("", 1), fastgc.WorkerFailedError("", 1)),
        *(
            fastgc.LeftOutError(),
            fastgc.FinishedError(),
            fastgc.UnstableRoundError(),
            TimeoutError(),
            ImportError(),
            OSError(28, "full"),
        ),
    ):
        assert status_of(error) == 1, error
    assert status_of(KeyboardInterrupt()) == 130


@pytest.mark.parametrize("engine", ["mpi", "ray", "torch"])
def test_what_an_engine_lacks_is_said_first(engine, monkeypatch, tmp_path):
    """It is the first error, before data are read or workers start."""
    missing = {"mpi": "mpi4py", "ray": "ray", "torch": "torch"}[engine]
    monkeypatch.setitem(sys.modules, missing, None)
    if engine != "ray":
        monkeypatch.delitem(sys.modules, f"fastgc.engines.{engine}", raising=False)
    result = run("train", "--engine", engine, "--data", str(tmp_path / "nowhere.npz"))
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "pip install" in line
    assert f"[{engine}]" in line


def test_engines_that_are_not_started_so_say_how(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.delenv("RANK", raising=False)
    result = run("train", "--engine", "torch")
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert "torchrun --nproc-per-node" in line


def test_by_label(tmp_path):
    """Training that ignores slow workers never sees their labels; a code does."""
    history = tmp_path / "runs.json"
    late = "4 of exponential:mean=0.001; 1 of exponential:mean=10"
    result = run(
        *("train", "--by-label", "-n", "5", "-s", "1", "--delays", late, "--engine", "simulated"),
        *("--compare", "uncoded,ignore", "--rounds", "20", "--json", str(history)),
    )
    assert result.exit_code == 0, result.output
    assert "digits by label: " in result.stderr
    assert f"delays: {late}, seed 0" in result.stderr
    coded, everyone, ignoring = json.loads(history.read_text())
    last = [each["rounds"][-1] for each in (coded, everyone, ignoring)]
    assert last[0]["test_error"] == last[1]["test_error"] < 0.1 < last[2]["test_error"]
    assert 100 * last[0]["time"] < last[1]["time"]
    mixed = run(
        *("train", "-n", "5", "-s", "1", "--delays", late, "--engine", "simulated"),
        *("ignore", "--rounds", "20", "--json", str(history)),
    )
    assert mixed.exit_code == 0, mixed.output
    [mixed] = json.loads(history.read_text())
    assert mixed["rounds"][-1]["test_error"] < 0.1


def test_figures_of_info_go_to_files(tmp_path):
    path = tmp_path / "out.json"
    result = run("info", "--json", str(path))
    assert result.exit_code == 0, result.output
    assert f"figures written to {path}" in result.stderr
    assert result.stdout.strip()
    held = json.loads(path.read_text())
    for options in (("--json",), ("--json", "-")):
        assert json.loads(run("info", *options).stdout) == held
    wrong = run("info", "--json", "out.txt")
    assert wrong.exit_code == 2
    assert "must end in .json" in wrong.stderr


def test_codes_in_clusters_have_a_name():
    found = json.loads(
        run("codes", "rs,rs-clustered,rs:clusters=2", "-n", "15", "-s", "3", "--json").stdout
    )
    whole, clustered, two = found.values()
    assert whole["load"] == clustered["load"] == two["load"] == 4
    assert clustered["mean_workers"] < two["mean_workers"] < whole["mean_workers"] == 12
    said = "rs-clustered, n=6, s=3: one cluster, the same code as without clusters"
    assert said in run("codes", "rs-clustered", "-n", "6", "-s", "3", "--trials", "2").output


def test_the_table_of_codes_is_as_wide_as_a_terminal():
    """A table of its own shows what approximate codes leave out; exact codes are not in it."""
    result = run("codes", "fractional:load=2,wait=12,graph,rs", "-n", "21", "-k", "21", "-s", "4")
    assert result.exit_code == 2  # two copies of 21
    result = run("codes", "fractional:load=2,wait=12,ignore,graph,rs", "-n", "20", "-s", "4")
    tables, _, more = result.stdout.partition("Codes whose gradients may be approximations")
    assert max(map(len, tables.split("load: partitions")[0].splitlines())) <= 80
    assert "…" not in tables
    assert re.search(r"\n graph .* ≥ ", more)
    assert re.search(r"\n ignore +1 +16.0 +0.5 +0.5 ", more)
    assert not re.search(r"\n rs ", more)


APPROXIMATE = (
    *("train", "-n", "6", "-s", "2", "--rounds", "8", "--engine", "simulated"),
    *("fractional:load=2,wait=3", "--compare", "uncoded", "--model", "least-squares"),
    *("--method", "sgd", "--delays", "exponential:mean=0.01"),
)


def test_approximate_codes_train_biased_and_unbiased_beside_each_other(tmp_path):
    plot = tmp_path / "runs.svg"
    result = run(
        *(*APPROXIMATE, "--partial", "best,unbiased", "--cost", "0.5"),
        *("--json", str(tmp_path / "runs.json"), "--csv", str(tmp_path / "runs.csv")),
        *("--plot", str(plot)),
    )
    assert result.exit_code == 0, result.output
    best, unbiased, whole = json.loads((tmp_path / "runs.json").read_text())
    assert [each["name"] for each in (best, unbiased, whole)] == [
        "fractional:load=2,wait=3 best",
        "fractional:load=2,wait=3 unbiased",
        "uncoded",
    ]
    for two, one in zip(best["rounds"], whole["rounds"], strict=True):
        assert two["wait"] > 2 * 0.5 > 0.6 > one["wait"] > 0.5  # load times the cost
    for biased, scaled in zip(best["rounds"], unbiased["rounds"], strict=True):
        r = biased["residual"]
        assert scaled["residual"] == pytest.approx(r / np.sqrt(1 - r**2), abs=1e-12)
    assert any(each["residual"] > 0.1 for each in best["rounds"])
    assert "training loss after" in result.stdout
    with open(tmp_path / "runs.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 8
    assert [float(row["loss"]) for row in rows[:8]] == [r["loss"] for r in best["rounds"]]
    assert "training loss above the optimum" in plot.read_text().replace("\n", " ")


def test_training_prints_figures_in_place_of_tables():
    listed = json.loads(run(*APPROXIMATE, "--json").stdout)
    assert [len(each["rounds"]) for each in listed] == [8, 8]
    assert listed == json.loads(run(*APPROXIMATE, "--json", "-").stdout)
    rows = list(csv.DictReader(run(*APPROXIMATE, "--csv", "-").stdout.splitlines()))
    assert len(rows) == 16
    assert not Path("-").exists()


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
    # With the same delays and exact gradients, all methods reach the same model.
    coded, everyone, _ = runs
    assert coded["rounds"][-1]["loss"] == pytest.approx(everyone["rounds"][-1]["loss"], rel=1e-9)
    assert {len(r["survivors"]) for r in coded["rounds"]} == {3}
    assert {len(r["survivors"]) for r in everyone["rounds"]} == {4}
    assert "<svg" in plot.read_text()


@pytest.mark.parametrize(
    "command",
    [
        ("codes", "rs", "-n", "6", "-s", "1", "--trials", "5"),
        ("fit", "times.npy"),
        ("stability", "rs", "-n", "8/2", "--trials", "3"),
    ],
    ids=lambda words: words[0],
)
def test_figures_go_to_a_file_or_are_printed(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("times.npy", np.random.default_rng(0).exponential(0.1, 50))
    result = run(*command, "--json", "out.json")
    assert result.exit_code == 0, result.output
    assert "figures written to out.json" in result.stderr
    assert "─" in result.stdout  # a table is drawn
    held = json.loads((tmp_path / "out.json").read_text())
    for words in (("--json", "-"), ("--json",)):
        printed = json.loads(run(*command, *words).stdout)
        assert len(printed) == len(held) > 0
        assert (set(held) if isinstance(held, dict) else set(held[0])) == (
            set(printed) if isinstance(printed, dict) else set(printed[0])
        )
    refused = run(*command, "--json", "nowhere/out.json")
    assert refused.exit_code == 2
    assert "there is no folder" in refused.stderr
    assert not refused.stdout


@pytest.mark.parametrize(
    "command",
    [
        (
            "train",
            "-n",
            "4",
            "-s",
            "1",
            "--rounds",
            "5",
            "--engine",
            "simulated",
            "--compare",
            "uncoded",
        ),
        ("simulate", "rs,uncoded", "-n", "4", "-s", "1", "--rounds", "50"),
    ],
    ids=lambda words: words[0],
)
def test_timelines_are_drawn(command, tmp_path, monkeypatch):
    path = tmp_path / "rounds.svg"
    result = run(*command, "--timeline", str(path))
    assert result.exit_code == 0, result.output
    assert f"timeline written to {path}" in result.stderr
    drawn = path.read_text()
    for text in ("rs (Reed-Solomon)", "uncoded (waits for all)", "messages suffice: decoded"):
        assert f"<!-- {text}" in drawn
    # The command checks what it needs before anything runs.
    path.unlink()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run(*command, "--timeline", str(path))
    assert result.exit_code == 1
    assert "pictures need matplotlib" in result.stderr
    assert not result.stdout
    assert not path.exists()


def test_messages_of_less_precision(tmp_path):
    small = ("-n", "3", "-s", "1", "--rounds", "2", "--delays", "none")
    losses = []
    for messages in ("float64", "float32", "bfloat16"):
        history = tmp_path / "run.json"
        result = run("train", *small, "--message-dtype", messages, "--json", str(history))
        assert result.exit_code == 0, result.output
        losses.append(json.loads(history.read_text())[0]["rounds"][-1]["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert losses[2] == pytest.approx(losses[0], rel=1e-2)
    assert len(set(losses)) == 3


@pytest.mark.parametrize("name", catalogue.names())
def test_every_code_trains(name, tmp_path):
    """Exact codes reach the same model as waiting for all does."""
    history = tmp_path / "runs.json"
    small = ("-n", "6", "-s", "1", "--rounds", "4", "--delays", "none", "--json", str(history))
    small += ("--engine", much("local", "simulated"))
    model = ("--model", "least-squares") if name.startswith("lcc") else ("--seed", "2")
    result = run("train", name, "--compare", "uncoded:rescale=true", *small, *model)
    assert result.exit_code == 0, result.output
    coded, everyone = json.loads(history.read_text())
    code = catalogue.make(name, 6, None, 1, 2 if "--seed" in model else 0)
    if code.scheme.approximate:
        assert coded["rounds"][-1]["loss"] < coded["rounds"][0]["loss"]
    else:
        assert coded["rounds"][-1]["loss"] == pytest.approx(
            everyone["rounds"][-1]["loss"], rel=1e-9
        )
    assert all(r["messages"] <= code.threshold for r in coded["rounds"])


def test_any_matrix_trains(tmp_path):
    np.save(tmp_path / "B.npy", fastgc.BinaryCode(4, stragglers=1).matrix())
    code = f"linear:B={tmp_path / 'B.npy'}"
    result = run("train", code, "-n", "4", "--rounds", "2", "--delays", "none")
    assert result.exit_code == 0, result.output
    result = run("train", code, "-n", "5")
    assert "the matrix has 4 rows, but there are 5 workers" in result.output


def test_table_of_codes():
    result = run("codes", "-n", "8", "-s", "1", "--trials", "5")
    assert result.exit_code == 0, result.output
    for name in catalogue.BUILT_IN:
        assert (name in result.stdout) == (name != "linear")
    assert "7/8" in result.stdout  # the threshold of rs
    markdown = run("codes", "rs,lcc:load=2", "-n", "8", "-s", "1", "--trials", "5", "--markdown")
    lines = [line for line in markdown.stdout.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| rs (Reed-Solomon) | 2 | 2 | 7/8 | 7.0 | 7.0 | 1 |")
    figures = json.loads(run("codes", "binary", "-n", "6", "-s", "1", "--json").stdout)["binary"]
    assert figures["threshold"] == 5
    assert (figures["load"], figures["mean_load"]) == (2, 2.0)
    assert figures["worst_error"] < 1e-14
    assert 3 <= figures["mean_messages"] == figures["communication_load"] <= 5


def test_table_of_codes_of_many_workers_is_of_fewer_rounds():
    fractional = ("codes", "fractional", "-s", "1", "--markdown")
    assert "; 200 rounds," in run(*fractional, "-n", "4").stdout
    assert "; 50 rounds," in run(*fractional, "-n", "20000").stdout
    assert "; 3 rounds," in run(*fractional, "-n", "20000", "--trials", "3").stdout


def test_table_of_codes_says_which_loads_differ():
    names = "rs,uncoded,lcc,lcc-mmc-2,uc-mmc,ignore"
    result = run("codes", names, "-n", "10", "-s", "2", "--trials", "1")
    assert result.stdout.endswith(
        "Compared at a load of 3; uncoded, ignore at 1; lcc-mmc-2 at 4.\n"
    )
    even = run("codes", "rs,lcc,lcc-mmc-2", "-n", "8", "-s", "1", "--trials", "1", "--markdown")
    assert "Compared" not in even.stdout


def test_table_of_codes_leaves_out_what_does_not_exist():
    result = run("codes", "-n", "7", "-s", "2", "--trials", "2")
    assert result.exit_code == 0
    assert "fractional repetition needs n to be a multiple" in result.output
    result = run("codes", "fractional", "-n", "7", "-s", "2")
    assert result.exit_code == 2
    assert "fastgc: fractional repetition needs n to be a multiple" in result.output


def test_codes_of_the_data_that_memory_has_no_room_for(monkeypatch):
    """They are left out, with the reason; one that is asked for ends the command."""
    load = catalogue.make("lcc", 8, stragglers=1).load
    taken = 8 * load * 3 * (8 + 1) * 8  # workers, blocks of 3 samples, features and a label
    said = f"workers of LagrangeCode(n=8, load={load}) hold {load} coded blocks each, 0 GB for all"
    few = "-n", "8", "-s", "1", "--trials", "2"
    for room, status in (taken - 1, 1), (taken, 0):
        monkeypatch.setattr("fastgc.stability.precision.half_of_memory", lambda room=room: room)
        of_all, of_one = run("codes", *few), run("codes", "lcc", *few)
        assert (of_all.exit_code, of_one.exit_code) == (0, status)
        assert (f"lcc: too large for memory: {said}" in of_all.stderr) == bool(status)
        assert (f"fastgc: too large for memory: {said}" in of_one.stderr) == bool(status)


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_codes_whose_coefficients_are_beyond_float64_have_no_precision():
    size = "-n", "3000", "-s", "1500", "--trials", "1"
    hopeless, _ = json.loads(run("codes", "rs:root=1,uncoded", *size, "--json").stdout).values()
    assert hopeless["load"] == 1501
    assert hopeless["error"] is hopeless["worst_error"] is None
    assert re.search(r"rs:root=1 .* inf +inf", run("codes", "rs:root=1", *size).stdout)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--plot", "runs.bmp"], "must end in"),
        (["--plot", "no/such/folder/runs.png"], "no folder"),
        (["turbo"], "unknown code 'turbo': choose among rs, rs-clustered, binary"),
        (["adam"], "adam is a method, not a code: name it by --method adam"),
        (["rs:root"], "once each; got 'root'"),
        (["linear:B=empty.npy"], "empty.npy"),
        (["--compare", "lcc", "--model", "softmax"], "--model least-squares"),
        (["--json", "."], "must end in .json"),
        (["--csv", "runs.json"], "must end in .csv"),
        (["--csv", "-", "--json", "-"], "cannot both be printed"),
        (["--cost", "0.1"], "--cost is for --engine simulated: workers of 'local'"),
        (["--partial", "best,worst"], "not 'worst'"),
        (["--timeline", "no/such/folder/runs.png"], "no folder"),
        (["--timeline", "runs.bmp"], "must end in"),
        (["--timeline", "runs.png", "--plot", "runs.png"], "must name different files"),
        (["-n", "0"], "--workers"),
        (["-k", "0"], "k must be at least 1"),
        (["-s", "-1"], "--stragglers: '-1' is neither a number"),
        (["--model", "resnet"], '--model must be "auto"'),
        (["--data", "nowhere.npz"], "nowhere.npz"),
        (["--delays", "gauss:1"], "unknown delay model"),
        (["--lr", "0"], "lr"),
        (["--message-dtype", "int8"], "bfloat16, not int8"),
        (
            ["--compare", "lcc:nodes=roots", "--message-dtype", "float16"],
            "sends complex128 messages",
        ),
    ],
)
def test_errors_are_one_line_and_nothing_runs(arguments, says):
    result = run("train", *arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


# ---------------------------------------------------------------------------------- regression

SIMULATED = ("--engine", "simulated", "--delays", "exponential:mean=0.001")


@pytest.fixture
def targets(tmp_path):
    """Files of targets: floats in two columns, or integers."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X @ rng.standard_normal((3, 2)) + 1 + 0.1 * rng.standard_normal((60, 2))
    np.savez(tmp_path / "floats.npz", X=X, y=y)
    np.savez(tmp_path / "whole.npz", X=X, y=np.rint(50 * y[:, 0]).astype(int))
    return tmp_path


def test_regression_is_told_in_rmse(targets):
    history, plot = targets / "runs.json", targets / "runs.svg"
    result = run(
        *("train", "--data", str(targets / "floats.npz"), "lcc:load=2", "-n", "4"),
        *("--rounds", "20", "--compare", "rs", "--json", str(history), "--plot", str(plot)),
        *SIMULATED,
    )
    assert result.exit_code == 0, result.output
    y = fastgc.data.load(targets / "floats.npz").y_test
    spread = np.sqrt(np.mean(np.var(y, axis=0)))
    assert f"12 test samples, 2 targets (standard deviation {spread:.4g} in" in result.output
    runs = json.loads(history.read_text())
    assert [each["measure"] for each in runs] == ["RMSE"] * 2
    lowest = max(min(r["test_error"] for r in each["rounds"]) for each in runs)
    head = next(line for line in result.stdout.splitlines() if "RMSE" in line)
    assert head.split()[:5] == ["scheme", "time", "s", "to", f"{lowest:.3g}"]
    assert "%" not in result.stdout
    assert "never" not in result.stdout
    drawn = plot.read_text()
    assert "<!-- test RMSE -->" in drawn
    assert "%" not in "".join(line for line in drawn.splitlines() if "<!--" in line)


def test_whole_numbers_are_targets_where_told(targets):
    history = targets / "runs.json"
    common = ("train", "--data", str(targets / "whole.npz"), "-n", "4", "--rounds", "2", *SIMULATED)
    result = run(*common)
    assert "classes; model softmax" in result.output
    assert "if y are numbers to predict, say --task regression" in result.output
    assert "say --task" not in run(*common, "--task", "classification").output
    result = run(*common, "--task", "regression", "--no-bias", "--json", str(history), "--target",
                 "40")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "1 target (standard" in result.output
    assert "model least-squares without a bias" in result.output
    assert "say --task" not in result.output
    assert "to 40" in result.stdout
    found = fastgc.data.load(targets / "whole.npz", task="regression")
    model = fastgc.models.LinearRegression(3, bias=False)
    same = fastgc.train(
        fastgc.Uncoded(4), found, model=model, rounds=2, engine="simulated", optimizer=None
    )
    [told] = json.loads(history.read_text())
    assert told["rounds"][-1]["test_error"] == pytest.approx(same.rounds[-1].test_error, rel=1e-9)


@pytest.mark.parametrize("kind", ["softmax", "least-squares"])
def test_classifiers_without_a_bias(tmp_path, kind):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    np.savez(tmp_path / "two.npz", X=rng.standard_normal((60, 3)) + y[:, None] + 1, y=y)
    history = tmp_path / "runs.json"
    result = run("train", "--data", str(tmp_path / "two.npz"), "-n", "4", "--rounds", "3",
                 "--model", kind, "--no-bias", "--json", str(history), *SIMULATED)  # fmt: skip
    assert result.exit_code == 0, result.output
    dataset = fastgc.data.load(tmp_path / "two.npz")
    classifiers = {
        "softmax": fastgc.models.SoftmaxRegression,
        "least-squares": fastgc.models.LeastSquares,
    }
    losses = []
    for bias in (False, True):
        model = classifiers[kind](3, 2, bias=bias)
        same = fastgc.train(fastgc.Uncoded(4), dataset, model=model, rounds=3, engine="simulated")
        losses.append(same.rounds[-1].loss)
    [told] = json.loads(history.read_text())
    assert told["rounds"][-1]["loss"] == pytest.approx(losses[0], rel=1e-9)
    assert abs(losses[0] - losses[1]) > 1e-3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--data", "floats.npz", "--model", "softmax"],
            "floats has real-valued targets, and soft",
        ),
        (["--data", "floats.npz", "--task", "classification"], "expected one label per sample"),
        (["--task", "regress"], '--task must be "auto", "classification" or "regression"'),
        (["--target", "1.5"], "--target is a fraction of the test set here, not 1.5"),
    ],
)
def test_regression_errors_are_one_line_and_nothing_runs(targets, monkeypatch, arguments, says):
    monkeypatch.chdir(targets)
    result = run("train", *arguments, *SIMULATED, "--json", "written.json")
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output
    assert "loss" not in result.output
    assert not Path("written.json").exists()


# ------------------------------------------------------------------------------ adaptive methods


def listed(text):
    """Return the rows of the tables on a page, as lists of words."""
    return [line.split() for line in text.splitlines()]


def test_gcada_prints_what_was_spent_and_plots_it(tmp_path):
    plot, history = tmp_path / "runs.svg", tmp_path / "runs.json"
    result = run(
        *("train", "--method", "gcada", "-n", "8", "--groups", "2", "--rounds", "12", "--batch"),
        *("5", *SIMULATED, "--compare", "cada,adam,sgd", "--c", "1", "--max-age", "4"),
        *("--loss", "1.5", "--json", str(history), "--plot", str(plot)),
    )
    assert result.exit_code == 0, result.output
    names = ["gcada", "cada", "adam", "sgd"]
    rows = listed(result.stdout)
    assert "to a training loss of 1.5" in result.stdout
    runs = {each["name"]: each["rounds"] for each in json.loads(history.read_text())}
    assert list(runs) == names
    lengths = [len(runs[name]) for name in names]
    assert min(lengths) < max(lengths) == 12  # runs end when the loss is reached
    assert f"{min(lengths)} to 12 rounds" in result.stdout
    for name in names:
        first, second = (row for row in rows if row[:1] == [name])
        assert len(first) == 9
        upto = next((r["round"] for r in runs[name] if r["loss"] <= 1.5), None)
        if upto is None:
            assert second[1:] == ["never"]
            continue
        assert len(runs[name]) == upto
        used = runs[name][:upto]
        communication = sum(r["downloads"] + r["uploads"] for r in used)
        computation = sum(r["samples"] for r in used)
        assert second[1] == str(upto)
        assert {str(communication), str(computation)} <= set(second)
    assert all(r["downloads"] == 4 * r["uploads"] <= 8 for r in runs["gcada"])
    assert all(r["downloads"] == r["uploads"] for r in runs["cada"])
    assert all((r["downloads"], r["uploads"]) == (8, 8) for r in runs["adam"] + runs["sgd"])
    assert all(r["samples"] == 5 * r["downloads"] for name in names for r in runs[name])
    assert "<svg" in plot.read_text()


def test_adaptive_methods_are_compared_with_adam_unless_told(tmp_path):
    history = tmp_path / "runs.json"
    small = ("-n", "4", "--rounds", "2", *SIMULATED, "--json", str(history))
    assert run("train", "--method", "gcada", *small).exit_code == 0
    assert [each["name"] for each in json.loads(history.read_text())] == ["gcada", "adam"]
    result = run("train", "--method", "cada", "--compare", "", *small)
    assert result.exit_code == 0
    assert [each["name"] for each in json.loads(history.read_text())] == ["cada"]
    assert "to a training loss of" in result.stdout


def test_codes_inside_groups(tmp_path):
    """Exact codes of the same partitions make the same steps."""
    history = tmp_path / "runs.json"
    result = run(
        *("train", "--method", "gcada", "-n", "12", "-k", "12", "--groups", "3", "--rounds", "6"),
        *("--batch", "5", *SIMULATED, "--compare", "rs,binary:stragglers=2", "-s", "1"),
        *("--json", str(history)),
    )
    assert result.exit_code == 0, result.output
    assert "to a training loss of" in result.stdout  # even if all runs have one method
    runs = json.loads(history.read_text())
    assert [each["name"] for each in runs] == ["gcada", "gcada rs", "gcada binary:stragglers=2"]
    losses = [[r["loss"] for r in each["rounds"]] for each in runs]
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-9)
    assert runs[1]["code"] == repr(fastgc.Grouped([fastgc.ReedSolomon(4, 4, stragglers=1)] * 3))
    # A code also works in groups without an adaptive method.
    result = run(
        *("train", "rs", "-s", "1", "-n", "6", "--groups", "2", "--rounds", "2"),
        *(*SIMULATED, "--json", str(history)),
    )
    assert result.exit_code == 0, result.output
    (grouped,) = json.loads(history.read_text())
    assert grouped["code"] == repr(fastgc.Grouped([fastgc.ReedSolomon(3, stragglers=1)] * 2))
    assert "to a training loss of" not in result.stdout


def test_gcada_on_processes(tmp_path):
    history = tmp_path / "runs.json"
    result = run(
        *("train", "--method", "gcada", "-n", "4", "--groups", "2", "--rounds", "4"),
        *("--delays", "none", "--json", str(history), "repetition", "--compare", "adam"),
    )
    assert result.exit_code == 0, result.output
    names = [each["name"] for each in json.loads(history.read_text())]
    assert names == ["gcada", "adam"]


def test_what_suits_no_run_compared_with_is_refused_before_the_first(tmp_path):
    few = tmp_path / "few.npz"
    np.savez(few, X=np.eye(6), y=np.arange(6) % 2)
    result = run("train", "--method", "gcada", "--data", str(few), *SIMULATED)
    assert result.exit_code == 2
    assert "5 samples cannot be cut into k = 20 partitions" in result.output
    assert "loss" not in result.output


@pytest.mark.parametrize("method", ["adam", "cada", "gcada"])
def test_optimizers_are_as_told(method, monkeypatch):
    made = []

    def training(code, data, *, optimizer, **options):
        made.append((code, data, optimizer))
        raise ValueError("enough")

    monkeypatch.setattr(fastgc.training.train, "Training", training)
    options = () if method == "adam" else ("--c", "0.7", "--max-age", "4")
    run("train", "--method", method, "-n", "8", "--lr", "0.05", *options, *SIMULATED)
    [(code, data, optimizer)] = made
    if method != "adam":
        assert (optimizer.c, optimizer.max_age) == (0.7, 4)
        model = fastgc.models.SoftmaxRegression(data.features, data.classes)
        shards = fastgc.data.partition(data.X_train, data.y_train, code.k)
        held = [shards[group][0] for group in range(code.groups)]
        assert len(held) == code.k == (8 if method == "cada" else 2)
        np.testing.assert_allclose(optimizer.smoothness, [model.smoothness(X) for X in held])
        assert len(set(optimizer.smoothness)) == len(held)
        optimizer = optimizer.optimizer
    assert repr(optimizer) == repr(fastgc.optimizers.AMSGrad(0.05))


def test_networks_and_rare_evaluations(tmp_path):
    """The command runs them as `fastgc.train` does."""
    file, plot = tmp_path / "runs.json", tmp_path / "runs.svg"
    result = run(
        *("train", "-n", "4", "--method", "adam", "binary", "-s", "1", "--rounds", "7"),
        *("--model", "mlp:hidden=8/5,activation=tanh"),
        *("--evaluate-every", "3", "--compare", "sgd", "--lr", "0.05", "--seed", "3", *SIMULATED),
        *("--json", str(file), "--plot", str(plot)),
    )
    assert result.exit_code == 0, result.output
    assert "model mlp:hidden=8/5,activation=tanh" in result.output
    assert "nan" not in result.output
    told = fastgc.history.read_json(file)
    data = fastgc.data.load("digits", seed=3)
    code, model = (
        fastgc.BinaryCode(4, stragglers=1),
        fastgc.models.MLP(64, 10, [8, 5], "tanh"),
    )
    same = fastgc.train(
        code,
        data,
        model=model,
        optimizer=fastgc.optimizers.AMSGrad(0.05),
        evaluate_every=3,
        rounds=7,
        seed=3,
        engine="simulated",
    )
    for record, ours in zip(told[0].rounds, same.rounds, strict=True):
        assert record.evaluated == ours.evaluated
        assert record.loss == pytest.approx(ours.loss, rel=1e-9, nan_ok=True)
    assert len(told) == 2
    shown = run("train", "--method", "gcada", "-n", "4", "--groups", "2", "--rounds", "4",
                "--model", "mlp", *SIMULATED)  # fmt: skip
    assert shown.exit_code == 0, shown.output  # its smoothness is estimated


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "mlp:width=3"], "--model mlp: it takes hidden, activation, l2, once each; "),
        (["--model", "mlp", "--no-bias"], "--no-bias is for linear models"),
        (["--model", "mlp", "lcc"], "use --model least-squares"),
        (["--evaluate-every", "0"], "--evaluate-every"),
    ],
)
def test_networks_that_cannot_be(arguments, says):
    result = run("train", *SIMULATED, *arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


def test_a_network_is_for_classes(targets):
    result = run("train", "--data", str(targets / "floats.npz"), "--model", "mlp", *SIMULATED)
    assert result.exit_code == 2
    assert "has real-valued targets, and mlp is for classes" in result.output


def test_simulated_without_delays():
    """Such a run takes no time, and nothing is divided by it."""
    result = run(
        *("train", "--method", "adam", "--compare", "sgd", "-n", "3", "--rounds", "3"),
        *("--engine", "simulated", "--delays", "none"),
    )
    assert result.exit_code == 0, result.output
    assert "to a training loss of" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--method", "lion"],
            '--method must be "nesterov", "sgd", "adam", "cada" or "gcada", not',
        ),
        (["--engine", "pvm"], '"simulated" or "torch", not'),
        (["--c", "1"], "--c is for the methods cada and gcada"),
        (["--max-age", "5", "--compare", "adam"], "--max-age is for the methods cada and gcada"),
        (["--method", "gcada", "--max-age", "0"], "--max-age"),
        (["--loss", "-1"], "--loss"),
        (["--method", "cada", "rs"], "cada asks single workers, without a code"),
        (["--groups", "2"], "--groups needs the method gcada, or a code to use in each group"),
        (
            ["--method", "gcada", "--groups", "3", "rs"],
            "3 groups need a multiple of 3 workers, not 20",
        ),
        (
            ["--method", "gcada", "--groups", "4", "rs", "-k", "6"],
            "4 groups need a multiple of 4 partitions, not 6",
        ),
        (["--method", "gcada", "lcc"], "cannot be used in a group"),
        (["--method", "gcada", "--max-error", "1"], "precision of gcada cannot be tracked"),
        (["--batch", "0"], "--batch"),
        # The second run's error is found before the first run starts.
        (["--method", "gcada", "--batch", "100"], "the smallest of the 20 partitions has 71"),
        (["lcc", "--batch", "5"], "codes the data once"),
    ],
)
def test_adaptive_errors_are_one_line_and_nothing_runs(arguments, says, monkeypatch):
    monkeypatch.setattr(fastgc.training.train.Training, "run", None)
    result = run("train", *arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


# ------------------------------------------------------------------------------- nothing is lost

RESUMED = ("-n", "4", "-s", "1", *SIMULATED)


def losses(path):
    return {each["name"]: [r["loss"] for r in each["rounds"]] for each in read(path)}


def read(path):
    return json.loads(path.read_text())


def test_runs_go_on_from_a_checkpoint(tmp_path):
    whole, parts, folder = tmp_path / "whole.json", tmp_path / "parts.json", tmp_path / "run"
    assert run("train", *RESUMED, "--rounds", "9", "--json", str(whole)).exit_code == 0
    kept = ("--checkpoint", str(folder), "--every", "2", "--json", str(parts))
    for rounds in ("5", "9", "9"):
        result = run("train", *RESUMED, "--rounds", rounds, *kept)
        assert result.exit_code == 0, result.output
        assert f"{rounds} rounds each" in result.stdout
    assert losses(parts) == losses(whole)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint", "rounds.jsonl"]
    result = run("train", *RESUMED, "--rounds", "9", *kept, "--lr", "0.5")
    assert result.exit_code == 2
    assert "holds a checkpoint of another run. optimizer: Nesterov(lr=1" in result.output
    assert "Traceback" not in result.output


def test_each_run_compared_has_a_folder(tmp_path):
    folder, history = tmp_path / "runs", tmp_path / "runs.json"
    command = ("train", *RESUMED, "--compare", "uncoded,bcc:load=2", "--checkpoint", str(folder))
    for rounds in ("3", "5"):
        result = run(*command, "--rounds", rounds, "--json", str(history))
        assert result.exit_code == 0, result.output
    names = ["rs", "uncoded", "bcc:load=2"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert {name: len(listed) for name, listed in losses(history).items()} == dict.fromkeys(
        names, 5
    )
    np.save(tmp_path / "B.npy", fastgc.BinaryCode(4, stragglers=1).matrix())
    apart = f"linear:B={tmp_path / 'B.npy'}"
    result = run(*command[:-1], str(tmp_path / "other"), "--compare", apart, "--rounds", "1")
    assert result.exit_code == 0, result.output
    found = {path.name for path in (tmp_path / "other").iterdir()}
    assert found == {"rs", apart.replace("/", "%2F")}


def test_interrupted_runs_say_what_is_kept(tmp_path, monkeypatch):
    step, steps = fastgc.optimizers.Nesterov.step, []

    def interrupted(self, gradient):
        steps.append(gradient)
        if len(steps) == 6:
            raise KeyboardInterrupt
        return step(self, gradient)

    monkeypatch.setattr(fastgc.optimizers.Nesterov, "step", interrupted)
    folder = tmp_path / "run"
    command = ("train", *RESUMED, "--rounds", "7", "--checkpoint", str(folder), "--every", "2")
    result = run(*command)
    assert result.exit_code == 130
    said = result.output.replace("\n", " ")
    assert "interrupted; the worker processes have ended" in said
    assert f"round 4 is kept in {folder}: repeat the run to go on from there" in said
    assert run(*command).exit_code == 0
    assert len(steps) == 6 + 3
    steps.clear()
    result = run("train", *RESUMED, "--rounds", "7")
    assert result.exit_code == 130
    assert "is kept in" not in result.output


def test_runs_are_replayed(tmp_path):
    first, again = tmp_path / "first.json", tmp_path / "again.json"
    small = ("-n", "5", "-s", "2", "--rounds", "6", "--delays", "exponential:mean=0.003")
    compared = ("--compare", "bcc:load=2")
    assert run("train", *small, *compared, "--json", str(first)).exit_code == 0
    result = run("train", *small, *compared, "--replay", str(first), "--json", str(again))
    assert result.exit_code == 0, result.output
    assert losses(again) == losses(first)
    for one, other in zip(read(again), read(first), strict=True):
        assert [r["received"] for r in one["rounds"]] == [r["received"] for r in other["rounds"]]
    result = run("train", *small, "--replay", str(first), "--compare", "uncoded")
    assert result.exit_code == 2
    assert "has no run 'uncoded', but 'rs', 'bcc:load=2'" in result.output
    # A file's only run is taken, whatever its name.
    first.write_text(json.dumps(read(first)[:1]))
    assert run("train", *small, "rs:root=1", "--replay", str(first)).exit_code == 0
    result = run("train", *small, "--rounds", "7", "--replay", str(first))
    assert "the run in survivors has no round 7: it has 6" in result.output


def test_options_of_engines_are_passed_on(monkeypatch):
    given = []

    def training(*_, **options):
        given.append(options)
        raise ValueError("enough")

    monkeypatch.setattr(fastgc.training.train, "Training", training)
    usual = RoundOptions(delays=parse("exponential:mean=0.001"))
    names = ("keywords", "checkpoint", "every")
    run("train", *RESUMED)
    assert [given[-1][name] for name in names] == [{"survivors": None}, None, 10]
    assert given[-1]["options"] == usual
    run("train", *RESUMED, "--patience", "0.5", "--partial", "best", "--verify", "2")
    assert [given[-1][name] for name in names] == [{"survivors": None}, None, 10]
    assert given[-1]["options"] == replace(usual, patience=0.5, partial="best", verify=2)
    run("train", *RESUMED, "--message-dtype", "float32", "--seed", "5")
    assert given[-1]["options"] == replace(usual, message_dtype="float32", seed=5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--every", "5"], "--every needs --checkpoint, a folder to keep the run in"),
        (["--checkpoint", "no/where/run"], "there is no folder no/where to make run in"),
        (["--checkpoint", __file__], "is a file: name a folder"),
        (["--checkpoint", "no/where/runs", "--compare", "bcc"], "no folder no/where to make runs"),
        (["--checkpoint", __file__, "--compare", "bcc"], "is a file: name a folder"),
        (["--checkpoint", "run", "--every", "0"], "--every"),
        (
            ["--partial", "all"],
            '--partial must be "raise", "best" or "unbiased", or several of them, not \'all\'',
        ),
        (["--partial", "best", "--compare", "gcada"], "gcada keeps gradients for later rounds"),
        (["--patience", "-1"], "--patience"),
        (["--replay", "nowhere.json"], "nowhere.json"),
        (["--replay", __file__], "is no history of runs of training"),
    ],
)
def test_what_cannot_be_kept_or_replayed_is_one_line(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("train", *RESUMED, "--rounds", "1", *arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_says_what_is_missing_without_typer(monkeypatch):
    from fastgc.__main__ import main

    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"gradient-coding\[cli\]|\.\[cli\]"):
        main()


# ---------------------------------------------------------------------------------- stability


def test_stability_table_json_and_csv(tmp_path):
    path = tmp_path / "figures.csv"
    arguments = ("stability", "rs:root=1,rs@leja,binary", "-n", "16,12/3", "-s", "0.25")
    options = ("--dtype", "float64,float32", "--patterns", "random", "--worst", "--trials", "5")
    result = run(*arguments, *options, "--csv", str(path), "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert len(rows) == 3 * 2 * 2 * 2
    assert {(row["n"], row["stragglers"]) for row in rows} == {(16, 4), (12, 3)}
    assert {row["code"] for row in rows} == {"rs:root=1", "rs@leja", "binary"}
    assert path.read_text().count("\n") == 25
    table = run(*arguments, *options)
    assert table.stdout.count("float32, adversarial stragglers") == 1
    assert len(re.findall("^ *binary ", table.stdout, re.MULTILINE)) == 8 + 2
    assert table.stdout.count(" µs ") == 4  # next to errors: it depends on the stragglers
    assert max(map(len, table.stdout.splitlines()[:40])) <= 80
    markdown = run(*arguments, *options, "--markdown").stdout
    assert "| rs@leja (Reed-Solomon, by Björck–Pereyra, Leja order) | 16 | 4 |" in markdown


def test_tables_say_which_clustered_codes_are_not():
    """With fewer than 2 s + 2 workers there is one cluster: another name for the same code."""
    said = "rs-clustered, n=6, s=4: one cluster, the same code as without clusters"
    plan = ("plan", "rs-clustered", "-n", "6", "--delays", "exponential:mean=1", "--cost", "1e-4")
    assert said in run(*plan, "--memory", "5", "--rounds", "50").output
    assert said in run("codes", "rs-clustered", "-n", "6", "-s", "4", "--trials", "2").output
    assert "one cluster" not in run("codes", "rs-clustered", "-n", "6", "-s", "2").output


def test_stability_at_equal_load():
    arguments = ("stability", "rs,rs-clustered,binary,fractional", "-n", "16/8", "--patterns")
    arguments = (*arguments, "random", "--trials")
    rows = json.loads(run(*arguments, "3", "--equal", "load", "--json").stdout)
    assert [(row["code"], row["stragglers"], row["load"]) for row in rows] == [
        ("rs", 8, 9),
        ("rs-clustered", 8, 9),
        ("binary", 7, 8),
        ("fractional", 7, 8),
    ]
    result = run(*arguments, "3", "--equal", "load")
    assert "loads and messages; equal: load" in result.output
    assert result.output.count("one cluster, the same code as without clusters") == 1
    assert "fractional" in run(*arguments, "3").stderr  # there is none for 8 stragglers
    # Sizes that the first code does not have are reported.
    result = run("stability", "fractional,rs", "-n", "16/4,16/3", "--equal", "load")
    assert result.exit_code == 0
    assert "rs at 16/4: --equal compares with fractional, which could not" in result.stderr


def test_stability_shows_exact_vectors_beside_near_exact_ones():
    arguments = ("stability", "rs@spread,rs", "-n", "256/32", "--trials", "2")
    rows = json.loads(run(*arguments, "--json").stdout)  # by default: random and neighbouring
    found = {(row["code"], row["pattern"]): row["error"] for row in rows}
    assert list(found) == [
        (code, pattern) for code in ("rs@spread", "rs") for pattern in ("random", "neighbouring")
    ]
    assert found["rs", "neighbouring"] < 1e-12 < 1e-9 < found["rs@spread", "neighbouring"]
    assert found["rs", "random"] == pytest.approx(found["rs@spread", "random"])
    shown = run(*arguments, "--patterns", "neighbouring", "--markdown").stdout
    assert "float64, neighbouring stragglers; up to 2 sets" in shown
    assert shown.count("| rs@spread (Reed-Solomon, exact vectors) | 256 | 32 |") == 2
    assert shown.count("| rs (Reed-Solomon) | 256 | 32 |") == 2


def test_stability_draws_vectors_around_the_circle(tmp_path):
    circle = tmp_path / "circle.svg"
    arguments = ("stability", "rs", "-n", "16/4", "--trials", "1", "--patterns", "random")
    result = run(*arguments, "--circle", str(circle))
    assert result.exit_code == 0, result.output
    assert f"plot written to {circle}" in result.output
    picture = circle.read_text()
    for text in ("n = 16, s = 4", "exact vector", "near-exact vector", "stragglers"):
        assert f"<!-- {text} -->" in picture
    again = tmp_path / "again.svg"
    run(*arguments, "--circle", str(again))
    assert again.read_text() == picture
    binary = run("stability", "binary", "-n", "16/4", "--circle", str(circle))
    assert binary.exit_code == 2
    assert "only Reed-Solomon codes have polynomials on a circle" in binary.output


def test_stability_says_what_does_not_exist():
    result = run("stability", "fractional,binary", "-n", "16/4", "--trials", "2")
    assert result.exit_code == 0
    assert "fractional at 16/4: fractional repetition needs n to be a multiple" in result.output
    result = run("stability", "fractional", "-n", "16/4")
    assert result.exit_code == 2
    assert "fastgc: nothing to measure: fractional at 16/4: fractional" in result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["rs@lu"], "rs has no method 'lu': choose one of auto, locator, spread"),
        (["rs", "-n", "many"], "--workers: 'many' is neither a number nor a range"),
        (["rs", "-n", "8/8"], "8 of 8 workers cannot straggle"),
        (["rs", "-s", "1.5"], "--stragglers: '1.5' is neither a number nor a range such as 0:8 or"),
        (["rs", "-n", ""], "--workers must name a number"),
        (["", "-n", "16"], "name at least one code"),
        (["rs", "--patterns", ""], "at least one code, dtype and pattern"),
        (["rs", "--dtype", "int64"], "must be of one of the dtypes float32, float64"),
        (["rs", "--equal", "weight"], '--equal must be "stragglers" or "load"'),
        (["rs", "--csv", "nowhere/figures.csv"], "there is no folder nowhere"),
        (["rs", "--plot", "out.bmp"], "must end in .png"),
        (["rs", "--circle", "out.bmp"], "must end in .png"),
        (["rs", "--circle", "nowhere/out.png"], "there is no folder nowhere"),
        (["rs:clusters=2", "-n", "16/2", "--circle", "out.png"], "has 2 circles"),
    ],
)
def test_stability_errors_are_one_line(arguments, text):
    result = run("stability", *arguments, "--trials", "2")
    assert result.exit_code == 2
    assert text in result.output
    assert "Traceback" not in result.output


def test_stability_plots_what_was_asked_for(tmp_path):
    plot = tmp_path / "errors.svg"
    arguments = ("stability", "rs@spread,rs,rs@solve", "-n", "16/2,8/3", "--trials", "2")
    arguments += ("--patterns", "random", "--worst", "--dtype", "float64,float32")
    result = run(*arguments, "--plot", str(plot))
    assert result.exit_code == 0, result.output
    picture = plot.read_text()
    assert picture.startswith("<?xml")
    for text in ("rs@spread (Reed-Solomon, exact vectors)", "rs (Reed-Solomon)"):
        assert picture.count(f"<!-- {text} -->") == 1  # only in the legend
    for kind in ("float64", "float32"):
        for pattern in ("random", "adversarial"):
            assert f"<!-- {pattern} stragglers, {kind} -->" in picture
    assert picture.count("<!-- 8/3 -->") == picture.count("<!-- 16/2 -->") == 4
    assert "neighbouring" not in picture
    assert f"plot written to {plot}" in result.output
    # A code made for fewer stragglers appears at the sizes of the first one.
    result = run("stability", "rs,binary", "-n", "16/8", "--trials", "2", "--equal", "load",
                 "--patterns", "random", "--plot", str(plot))  # fmt: skip
    assert result.exit_code == 0, result.output
    assert plot.read_text().count("<!-- 16/8 -->") == 1
    assert "<!-- 16/7 -->" not in plot.read_text()


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
    assert result.exit_code == 1
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


# ------------------------------------------------------------------------- simulate and plan


def table(markdown):
    """Return the cells of a Markdown table, with its heading first."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [rows[0], *rows[2:]]


def test_simulate_requests():
    small = ("-n", "6", "-s", "1", "--rounds", "50", "--cost", "0.001", "--delays")
    late = (*small, "5 of exponential:mean=0.001; 1 of exponential:mean=10")
    alone, asked = (
        json.loads(run("simulate", "uncoded,reactive", *late, *more, "--json").stdout)
        for more in ((), ("--request", "0.25"))
    )
    assert asked["reactive"]["mean"] > alone["reactive"]["mean"] + 0.1
    assert asked["uncoded"] == alone["uncoded"]


@pytest.mark.parametrize(("width", "points"), [("single", 252), ("double", 515.52), ("slide", 900)])
def test_pictures_have_the_width_that_is_asked_for(width, points, tmp_path):
    """The width is in points, for a paper's column, its page or a slide; no font is of Type 3."""
    plot = tmp_path / "rounds.pdf"
    small = ("-n", "6", "-s", "1", "--rounds", "50")
    result = run("simulate", "rs,uncoded", *small, "--plot", str(plot), "--width", width)
    assert result.exit_code == 0, result.output
    content = plot.read_bytes()
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", content)
    assert float(box[1]) == pytest.approx(points)
    assert b"/Type3" not in content
    wrong = run("simulate", "rs", *small, "--plot", str(plot), "--width", "wide")
    assert wrong.exit_code == 2
    assert 'width must be "single", "double" or "slide"' in wrong.stderr
    assert not wrong.stdout


def test_a_plot_tells_an_approximate_code_from_an_exact_one(tmp_path):
    """All codes wait for 7 of 9 workers: their lines coincide, but their gradients differ."""
    plot = tmp_path / "rounds.svg"
    names = "rs,rs:root=1,ignore"
    small = ("-n", "9", "-s", "2", "--rounds", "200")
    result = run("simulate", names, *small, "--plot", str(plot), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert len({each["mean"] for each in found.values()}) == 1
    shown = " ".join(re.findall("<!-- (.*?) -->", plot.read_text(), re.DOTALL))
    left = 100 * found["ignore"]["residual"]
    assert left > 1
    said = f"ignore (uncoded, ignores stragglers): leaves out {left:.2g}%"
    assert said in " ".join(shown.split())
    assert "rs (Reed-Solomon) = rs:root=1 (Reed-Solomon)" in " ".join(shown.split())


def test_simulate_table_markdown_json_and_plot(tmp_path):
    plot = tmp_path / "rounds.svg"
    small = ("-n", "8", "-s", "1", "--rounds", "200", "--cost", "0.001", "--seed", "3")
    result = run("simulate", *small, "--plot", str(plot))
    assert result.exit_code == 0, result.output
    for name in catalogue.BUILT_IN:
        assert (f"\n {name} " in result.stdout) == (name != "linear")
    assert "n=8 workers, s=1 stragglers, k=8 partitions" in " ".join(result.stdout.split())
    assert plot.read_text().startswith("<?xml")
    assert f"plot written to {plot}" in result.stderr
    found = json.loads(run("simulate", "rs, bcc:load=4", *small, "--json").stdout)
    assert list(found) == ["rs", "bcc:load=4"]
    for figures in found.values():
        assert set(figures) == {
            "load",
            "mean",
            "standard_error",
            "median",
            "99%",
            "workers",
            "messages",
            "communication_load",
            "computations",
            "mean_exists",
            "residual",
        }
    rs = found["rs"]
    assert (rs["load"], rs["workers"], rs["messages"]) == (2, 7, 7)
    assert rs["median"] < rs["mean"] < rs["99%"]
    rows = list(
        csv.DictReader(run("simulate", "rs, bcc:load=4", *small, "--csv").stdout.splitlines())
    )
    assert [row["code"] for row in rows] == list(found)
    for row, figures in zip(rows, found.values(), strict=True):
        assert row["residual"] == ""  # not computed: both codes decode only exactly
        assert figures["residual"] is None
        known = {k: value for k, value in figures.items() if k not in ("mean_exists", "residual")}
        assert {key: float(row[key]) for key in known} == known
    files = tmp_path / "found.json", tmp_path / "found.csv"
    result = run(
        "simulate", "rs, bcc:load=4", *small, "--json", str(files[0]), "--csv", str(files[1])
    )
    assert "\n bcc:load=4 " in result.stdout  # also in the table
    assert json.loads(files[0].read_text()) == found
    assert list(csv.DictReader(files[1].read_text().splitlines())) == rows
    assert found["bcc:load=4"]["load"] == 4
    head, row = table(run("simulate", "rs", *small, "--markdown").stdout)
    assert head[2] == "mean time, ms"
    assert row[:3] == ["rs (Reed-Solomon)", "2", f"{1e3 * rs['mean']:.3g}"]


def test_simulate_does_what_the_library_does():
    from fastgc.delays import Exponential
    from fastgc.planning.simulation import simulate

    options = ("--delays", "exponential:mean=0.01", "--rounds", "300", "--receive", "0.002")
    found = json.loads(run("simulate", "binary", "-n", "6", "-s", "2", *options, "--json").stdout)
    code = fastgc.BinaryCode(6, stragglers=2)
    settings = {"receive": 0.002, "rounds": 300, "seed": 0}
    expected = simulate(code, Exponential(0.01), **settings)
    assert found["binary"]["mean"] == expected.mean
    options = (*options, "--finish", "--json")
    found = json.loads(run("simulate", "binary", "-n", "6", "-s", "2", *options).stdout)
    expected = simulate(code, Exponential(0.01), **settings, interrupted=False)
    assert found["binary"]["mean"] == expected.mean


def test_simulate_leaves_out_what_does_not_exist():
    """Codes that do not exist are left out unless they are named; all numbers are readable."""
    result = run("simulate", ",", "-n", "6", "--rounds", "50", "--delays", HEAVY)
    assert result.exit_code == 0, result.output
    refused = [line.partition(":")[0] for line in result.stderr.splitlines()]
    assert refused == ["bcc", "random", "uncoded", "lcc-mmc"]
    assert "…" not in result.stdout
    assert max(map(len, result.stdout.split("mean, 99%: ")[0].splitlines())) <= 80
    result = run("simulate", "-n", "6", "--rounds", "50", "--delays", HEAVY, "--json")
    assert len(json.loads(result.stdout)) == len(catalogue.names()) - 4
    assert result.stderr.count("does not exist") == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["turbo"], "unknown code 'turbo': choose among rs, rs-clustered"),
        (["rs:root=4"], "root=4 is not coprime to 20"),
        (["fractional", "-n", "7", "-s", "2"], "needs n to be a multiple"),
        (["rs", "-s", "20"], "stragglers must be in 0 .. n-1 = 19, not 20"),
        (["-s", "20"], "stragglers must be in 0 .. n-1 = 19, not 20"),
        (["uncoded", "--delays", HEAVY], "the mean time of a round does not exist"),
        (["rs", "--cost", "inf"], "cost must be seconds, finite and not negative, not inf"),
        (["rs", "--receive", "inf"], "receive must be finite and not negative"),
        (["--delays", "gauss:mean=1"], "unknown delay model"),
        (["--delays", "3 of exponential:mean=1"], "the times of 3 workers, not of 20"),
        (["--delays", "empirical:nowhere.npy"], "nowhere.npy"),
        (["--plot", "no/such/folder/rounds.png"], "no folder"),
        (["--plot", "rounds.bmp"], "must end in .png"),
        (["--timeline", "rounds.bmp"], "must end in .png"),
        (["--timeline", "rounds.png"], "--timeline draws at most 8 codes in one picture, not "),
        (["--json", "rs"], "--json rs: a file's name must end in .json; --json - prints"),
        (["--csv", "no/such/folder/rounds.csv"], "no folder"),
        (["--csv", "-", "--json", "-"], "cannot both be printed"),
    ],
)
def test_simulate_errors_are_one_line(arguments, says):
    result = run("simulate", *arguments, "--rounds", "10")
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("fastgc: ")
    assert says in line
    assert line.count("stragglers must be") <= 1  # a reason is given once
    assert not result.stdout


@pytest.mark.parametrize("command", ["simulate", "plan"])
@pytest.mark.parametrize("option", ["--cost", "--rounds", "--seed", "--workers"])
def test_negative_numbers_are_refused(command, option):
    result = run(command, option, "-1")
    assert result.exit_code == 2
    assert option in result.stderr
    assert "Traceback" not in result.stderr


PLANNED = {
    "name",
    "code",
    "load",
    "stragglers",
    "time",
    "standard_error",
    "wait",
    "decode",
    "workers",
    "communication_load",
    "amplification",
    "error",
    "trustworthy",
    "mean_exists",
    "residual",
}


def test_plan_by_speeds():
    late = ("--delays", "exponential:mean=1e-9")
    small = ("-n", "4", "-k", "20", "--rounds", "20", "--cost", "0.001", *late)
    shown = run("plan", "binary", *small, "--speeds", "4/4/1/1").stdout
    assert re.search(r"^binary: assignment=\w+$", shown, re.MULTILINE)
    assert "assignment" not in run("plan", "binary", *small).stdout
    found = json.loads(run("plan", "binary", *small, "--speeds", "4/4/1/1", "--json").stdout)
    assert found["choices"][0]["wait"] == pytest.approx(2e-3, rel=1e-3)  # speeds sum up to 10
    for speeds, says in (
        ("4/4/1", "--speeds must be one for each of 4 workers, not 3"),
        ("4/4/x/1", "--speeds must be numbers, as in 4/4/2/1, not '4/4/x/1'"),
        ("4/4/0/1", "--speeds must be positive and finite, not '4/4/0/1'"),
    ):
        result = run("plan", "binary", *small, "--speeds", speeds)
        assert result.exit_code == 2
        assert says in result.stderr


def test_plan_table_markdown_json_and_plot(tmp_path):
    from fastgc.planning import CODES

    plot = tmp_path / "loads.svg"
    small = ("-n", "6", "--memory", "3", "--rounds", "100", "--cost", "0.0001")
    result = run("plan", *small, "--plot", str(plot))
    assert result.exit_code == 0, result.output
    for name in CODES:
        assert result.stdout.count(f"\n {name} ") == 1
    assert max(map(len, result.stdout.split("time: of a round")[0].splitlines())) <= 80
    assert plot.read_text().startswith("<?xml")
    assert f"plot written to {plot}" in result.stderr
    found = json.loads(run("plan", "rs,uncoded", *small, "--json").stdout)
    assert set(found) == {"choices", "refused"}
    assert not found["refused"]
    assert [choice["name"] for choice in found["choices"]] == ["rs", "uncoded"]
    for choice in found["choices"]:
        assert set(choice) == PLANNED
        assert choice["time"] == pytest.approx(choice["wait"] + choice["decode"])
    every = json.loads(run("plan", "rs,uncoded", *small, "--all", "--json").stdout)["choices"]
    rows = list(csv.DictReader(run("plan", "rs,uncoded", *small, "--csv", "-").stdout.splitlines()))
    assert [row["name"] for row in rows] == [choice["name"] for choice in found["choices"]]
    assert set(rows[0]) == PLANNED
    assert sorted((choice["name"], choice["load"]) for choice in every) == [
        ("rs", 1),
        ("rs", 2),
        ("rs", 3),
        ("uncoded", 1),
    ]
    assert [choice["time"] for choice in every] == sorted(choice["time"] for choice in every)
    head, *rows = table(run("plan", "rs,uncoded", *small, "--all", "--markdown").stdout)
    assert {"decoding", "stragglers", "amplification"} < set(head)
    assert sorted(row[:2] for row in rows) == [
        *(["rs (Reed-Solomon)", str(load)] for load in (1, 2, 3)),
        ["uncoded (waits for all)", "1"],
    ]


def test_plan_says_what_is_refused():
    arguments = ("plan", "rs,uncoded", "-n", "6", "--rounds", "50", "--delays", HEAVY)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    [line] = result.stderr.splitlines()
    assert line.startswith("uncoded: the mean time of a round does not exist")
    assert "does not exist" in json.loads(run(*arguments, "--json").stdout)["refused"]["uncoded"]


def test_plan_for_recorded_times():
    from fastgc.planning import Recording

    arguments = ("plan", "rs,uncoded", "--recorded", str(RECORDED), "--rounds", "50")
    result = run(*arguments, "--memory", "4")
    assert result.exit_code == 0, result.output
    title = " ".join(result.stdout.split("code")[0].split())
    assert title.startswith("n=12 workers, k=12 partitions; 200 rounds of 12 local workers")
    first = json.loads(run(*arguments, "--memory", "4", "--json").stdout)["choices"][0]
    assert first["code"].startswith("ReedSolomon(n=12, k=12, stragglers=3")
    # The number of partitions does not change the size of the data.
    halves = run(*arguments, "--memory", "8", "-k", "24", "--markdown").stdout
    cost = Recording.read(RECORDED).cost
    assert "k=24 partitions; 200 rounds of 12 local workers" in halves
    assert f"{cost / 2:.3g} s per partition" in halves


def test_plan_for_a_table(tmp_path):
    from fastgc.planning import Recording

    held = Recording.read(RECORDED)
    table = tmp_path / "times.csv"
    np.savetxt(table, 1e3 * held.times, delimiter=",", fmt="%.17g")
    small = ("plan", "rs,uncoded", "--rounds", "50", "--json", "--all")
    options = ("--recorded", str(table), "--unit", "ms")
    result = run(*small, *options, "--cost", str(held.cost))
    assert result.exit_code == 0, result.output
    mine = json.loads(result.stdout)["choices"]
    theirs = json.loads(run(*small, "--recorded", str(RECORDED)).stdout)["choices"]
    waits = [{each["code"]: each["wait"] for each in listed} for listed in (mine, theirs)]
    # Late workers go on while the master decodes, which takes measured time.
    assert waits[0] == pytest.approx(waits[1], rel=0.05)
    all_of_it = json.loads(run(*small, *options, "--per", "computation").stdout)["choices"]
    loads = {each["load"]: each["wait"] for each in all_of_it if each["name"] == "rs"}
    assert loads[12] > 10 * held.times.min(axis=1).mean()  # the delay applies to each partition
    assert "how many seconds of each time" in run(*small, *options).stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rs,turbo"], "unknown code 'turbo': choose among rs"),
        (["--cost", "inf"], "cost must be seconds, finite and not negative, not inf"),
        (["-k", "0"], "k must be at least 1"),
        (["-k", "41", "--memory", "2"], "memory=2: 20 workers must hold 41 partitions"),
        (["rs:load=5", "--memory", "4"], "a worker must hold 5 partitions, and memory is 4"),
        (["uncoded,uc-mmc:load=1", "--delays", HEAVY], "no code fits: uncoded, uc-mmc:load=1: the"),
        (["--bandwidth", "0"], "bandwidth must be positive"),
        (["--bandwidth", "nan"], "bandwidth must be positive"),
        (["--delays", "gauss:mean=1"], "unknown delay model"),
        (["--delays", "3 of exponential:mean=1"], "the times of 3 workers, not of 20"),
        (["--recorded", "nowhere.json"], "nowhere.json"),
        (["--recorded", "else.json"], "else.json is no recording of times"),
        (["--recorded", __file__], "the name of a file of times ends in one of .npy, .npz, .json"),
        (["--recorded", str(RECORDED), "--cost", "1"], "leave out cost, unit and per, which"),
        (["--recorded", str(RECORDED), "--per", "computation"], "leave out cost, unit and per"),
        (["--recorded", str(RECORDED), "--per", "day"], "per must be 'round' or 'computation'"),
        (["--unit", "ms"], "--unit describes a table: name the table by --recorded"),
        (["--recorded", str(RECORDED), "-n", "12"], "--workers and --recorded exclude"),
        (["--recorded", str(RECORDED), "--delays", "none"], "--delays and --recorded exclude"),
        (["--plot", "no/such/folder/loads.png"], "no folder"),
        (["--plot", "loads.bmp"], "must end in .png"),
    ],
)
def test_plan_errors_are_one_line(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("else.json").write_text('{"times": [[1.0]]}')
    result = run("plan", *arguments, "--rounds", "10")
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("fastgc: ")
    assert says in line
    assert not result.stdout


# --------------------------------------------------------------------------------------- fit


def test_fit_of_times(tmp_path):
    times = Pareto(0.01, 1.5).draw(np.random.default_rng(0), 40, 10)
    np.save(tmp_path / "times.npy", times)
    result = run("fit", str(tmp_path / "times.npy"))
    assert result.exit_code == 0, result.output
    assert "400 times" in result.stdout
    names = ("pareto:scale=", "shifted-exponential:shift=", "exponential:mean=")
    lines = [line.strip() for line in result.stdout.splitlines() if line.strip().startswith(names)]
    assert lines[0].startswith(names[0])
    assert len(lines) == 3
    plot = tmp_path / "fit.svg"
    found = run("fit", str(tmp_path / "times.npy"), "--json", "--plot", str(plot))
    best, *others = json.loads(found.stdout)
    assert best["model"].startswith(names[0])
    assert parse(best["model"]).shape == pytest.approx(1.5, rel=0.2)
    assert best["p_value"] > 0.05
    assert all(other["p_value"] < 0.05 for other in others)
    assert plot.read_text().startswith("<?xml")


def test_fit_of_a_recording():
    recorded = Path(__file__).parents[1] / "recorded.json"
    listed = json.loads(run("fit", str(recorded), "--json").stdout)
    kinds = {type(parse(entry["model"])).__name__ for entry in listed}
    assert kinds == {"Pareto", "ShiftedExponential", "Exponential"}


@pytest.mark.parametrize("text", ["1\n", "1\n1\n", "1\nx\n", "1\n-1\n", ""])
def test_fit_of_no_times_is_one_line(tmp_path, text):
    path = tmp_path / "times.txt"
    path.write_text(text)
    result = run("fit", str(path))
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" not in result.output
    assert run("fit", str(tmp_path / "none.json")).exit_code == 2


@pytest.mark.few(1)
@pytest.mark.parametrize("threads", ["5000", "0", "x"])
def test_numbers_of_threads_are_checked(threads):
    """The error is one line, not a traceback, and comes before any thread starts."""
    done = programs.run(
        programs.python("-m", "fastgc", "info"), status=2, env={"FASTGC_NUM_THREADS": threads}
    )
    assert "Traceback" not in done.stderr
    assert "threads" in done.stderr.lower()


# ------------------------------------------------------------------------- terminals and interrupts


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["codes", "rs", "-s", "2", "-n", "6"], " us "),
        (["codes", "rs", "-s", "2", "-n", "6", "--markdown"], "decoding vector, us"),
        (["simulate", "rs", "-s", "2", "-n", "6", "--rounds", "9"], "+-"),
        (["--help"], "Gradient coding"),
    ],
    ids=["table", "markdown", "simulate", "help"],
)
def test_an_encoding_without_our_characters(arguments, says):
    ran = programs.run(
        programs.python("-m", "fastgc", *arguments), env={"PYTHONIOENCODING": "ascii"}
    )
    assert ran.stderr == ""
    assert ran.stdout.isascii()
    assert says in ran.stdout


def test_an_interrupt_while_it_imports_ends_it_in_silence():
    """It ends by the signal, like any program that does not catch it, without a traceback."""
    source = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "fastgc.codes.catalogue":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["fastgc", "codes", "rs"]
from fastgc.__main__ import main
main()
"""
    ran = programs.run(programs.python("-c", source), status=-signal.SIGINT)
    assert (ran.stdout, ran.stderr) == ("", "")
