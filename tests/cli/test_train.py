"""``fastgc train``."""

import csv
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from commands import COST, RECORDED, done, figures, refused, run

import fastgc
from fastgc.delays import parse
from fastgc.engines import RoundOptions, SimulatedCluster
from fastgc.training import train

SIMULATED = ("--engine", "simulated", "--delays", "exponential:mean=0.001")


def read(path):
    return json.loads(path.read_text())


def losses(path):
    return {each["name"]: [r["loss"] for r in each["rounds"]] for each in read(path)}


@pytest.fixture
def prepared(monkeypatch):
    """What the command makes of its options: arguments of `Training`; nothing is trained."""
    made = []

    def training(*given, **options):
        made.append((given, options))
        raise ValueError("enough")

    monkeypatch.setattr(train, "Training", training)

    def ask(*arguments):
        assert refused("train", *arguments) == "fastgc: enough"
        return made[-1]

    return ask


# ------------------------------------------------------------------------------------------ codes


def test_compare_writes_table_history_and_plot(tmp_path, drawn):
    """With the same delays and exact gradients, all methods reach the same model."""
    history = tmp_path / "runs.json"
    small = ("-n", "4", "-s", "1", "--rounds", "3", "--delays", "pareto:scale=0.001,shape=1.1")
    compared = "rs, uncoded, ignore", "--plot", "runs.svg", "--json", history
    compared += "--target", "0.5"
    result = done("train", *small, *compared)
    runs = read(history)
    assert [r["name"] for r in runs] == ["rs", "uncoded", "ignore"]
    assert {len(r["rounds"]) for r in runs} == {3}
    coded, everyone, _ = runs
    assert coded["rounds"][-1]["loss"] == pytest.approx(everyone["rounds"][-1]["loss"], rel=1e-9)
    assert {len(r["survivors"]) for r in coded["rounds"]} <= {2, 3}
    assert {len(r["survivors"]) for r in everyone["rounds"]} == {4}
    assert drawn["runs.svg"].axes[0].get_title().startswith("50% error: ")
    assert " 50% " in result.stdout
    head = "digits: 1438 training, 359 test samples, 10 classes; model softmax; delays: pareto:"
    assert head in result.stderr
    assert "rs (Reed-Solomon): any 3 of 4 messages, load 2 of 4 partitions\n" in result.stderr
    assert "ignore (uncoded, ignores stragglers): any 3 of 4 messages" in result.stderr


def test_by_label(tmp_path):
    """Training that ignores slow workers never sees their labels; a code does."""
    late = "4 of exponential:mean=0.001; 1 of exponential:mean=10"
    small = "-n", "5", "-s", "1", "--delays", late, "--engine", "simulated", "--rounds", "20"
    history = tmp_path / "runs.json"
    asked = "rs,uncoded,ignore", "--by-label", "--json", history
    result = done("train", *asked, *small)
    assert "digits by label: " in result.stderr
    assert f"delays: {late}, seed 0" in result.stderr
    coded, everyone, ignoring = (each["rounds"][-1] for each in read(history))
    assert coded["test_error"] == everyone["test_error"] < 0.1 < ignoring["test_error"]
    assert 100 * coded["time"] < everyone["time"]


APPROXIMATE = (
    *("train", "-n", "6", "-s", "2", "--rounds", "8", "--engine", "simulated"),
    *("fractional:load=2,wait=3", "uncoded", "--model", "least-squares"),
    *("--method", "sgd", "--delays", "exponential:mean=0.01"),
)


def test_approximate_codes_train_biased_and_unbiased(tmp_path, drawn):
    files = "--json", tmp_path / "runs.json", "--csv", tmp_path / "runs.csv", "--plot", "a.svg"
    result = done(*APPROXIMATE, "--partial", "best,unbiased", "--cost", "0.5", *files)
    best, unbiased, whole = read(tmp_path / "runs.json")
    assert [each["name"] for each in (best, unbiased, whole)] == [
        "fractional:load=2,wait=3 best",
        "fractional:load=2,wait=3 unbiased",
        "uncoded",
    ]
    assert "fractional:load=2,wait=3 (fractional repetition), unbiased: any 3" in result.stderr
    for two, one in zip(best["rounds"], whole["rounds"], strict=True):
        assert two["wait"] > 2 * 0.5 > 0.6 > one["wait"] > 0.5  # load times the cost
    for biased, scaled in zip(best["rounds"], unbiased["rounds"], strict=True):
        r = biased["residual"]
        assert scaled["residual"] == pytest.approx(r / np.sqrt(1 - r**2), abs=1e-12)
    assert any(each["residual"] > 0.1 for each in best["rounds"])
    assert "training loss after" in result.stdout
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 8
    assert [float(row["loss"]) for row in rows[:8]] == [r["loss"] for r in best["rounds"]]
    labels = [axes.get_ylabel() for axes in drawn["a.svg"].axes]
    assert "training loss above the optimum" in " ".join(" ".join(labels).split())
    # An uncoded sum that is rescaled is unbiased already: it has no other way.
    both = "--partial", "best,unbiased", "--rounds", "1", *SIMULATED
    [rescaled] = figures("train", "uncoded:rescale=true", *both)
    assert rescaled["name"] == "uncoded:rescale=true"


def test_groups_are_made_as_told(prepared):
    def code(*arguments):
        return prepared(*arguments)[0][0]

    rs = fastgc.ReedSolomon
    # A code also works in groups without an adaptive method; -s then counts within a group.
    asked = "rs", "-n", "6", "--groups", "2"
    assert code(*asked, "-s", "1") == fastgc.Grouped([rs(3, stragglers=1)] * 2)
    assert code(*asked, "-s", "2") == fastgc.Grouped([rs(3, stragglers=2)] * 2)
    assert code(*asked) == fastgc.Grouped([rs(3, stragglers=1)] * 2)
    assert code("rs", "-n", "3", "--groups", "3") == fastgc.Grouped([rs(1, stragglers=0)] * 3)
    assert code(*asked, "-k", "8") == fastgc.Grouped([rs(3, 4, stragglers=1)] * 2)
    assert code("rs", "-n", "6") == rs(6, stragglers=1)
    assert code("rs", "-n", "12/3") == rs(12, stragglers=3)
    # Groups of 4 workers or a few more by default.
    for n, groups in (12, 3), (14, 2), (6, 1), (3, 1), (20, 5):
        assert code("--method", "gcada", "-n", n) == fastgc.Grouped.repetition(n, groups, None)
    asked = "--method", "gcada", "-n", "12", "-k", "24"
    assert code(*asked, "--groups", "2") == fastgc.Grouped.repetition(12, 2, 24)
    assert code("--method", "cada", "-n", "6") == fastgc.Grouped.repetition(6, 6, None)


# --------------------------------------------------------------------------------- data and models


@pytest.fixture
def targets(tmp_path):
    """Files of targets: floats in two columns, or integers."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X @ rng.standard_normal((3, 2)) + 1 + 0.1 * rng.standard_normal((60, 2))
    np.savez(tmp_path / "floats.npz", X=X, y=y)
    np.savez(tmp_path / "whole.npz", X=X, y=np.rint(50 * y[:, 0]).astype(int))
    return tmp_path


def test_regression_is_told_in_rmse(targets, drawn):
    history, data = targets / "runs.json", targets / "floats.npz"
    result = done(
        *("train", "--data", data, "lcc:load=2", "rs", "-n", "4", "--rounds", "20"),
        *("--json", history, "--plot", "runs.svg", *SIMULATED),
    )
    y = fastgc.data.load(data).y_test
    spread = np.sqrt(np.mean(np.var(y, axis=0)))
    assert f"12 test samples, 2 targets (standard deviation {spread:.4g} in" in result.stderr
    runs = read(history)
    assert [each["measure"] for each in runs] == ["RMSE"] * 2
    lowest = max(min(r["test_error"] for r in each["rounds"]) for each in runs)
    head = next(line for line in result.stdout.splitlines() if "RMSE" in line)
    assert head.split()[:5] == ["scheme", "time", "s", "to", f"{lowest:.3g}"]
    assert "%" not in result.stdout
    assert "never" not in result.stdout
    assert drawn["runs.svg"].axes[0].get_ylabel() == "test RMSE"


def test_whole_numbers_are_targets_where_told(targets):
    data = targets / "whole.npz"
    common = "train", "--data", data, "-n", "4", "--rounds", "2", *SIMULATED
    said = done(*common).stderr
    assert "classes; model softmax" in said
    assert "if y are numbers to predict, say --task regression" in said
    assert "say --task" not in done(*common, "--task", "classification").stderr
    told = targets / "runs.json"
    asked = "--task", "regression", "--no-bias", "--json", told, "--target", "40"
    result = done(*common, *asked)
    assert "1 target (standard" in result.stderr
    assert "model least-squares without a bias" in result.stderr
    assert "say --task" not in result.stderr
    assert "to 40" in result.stdout
    assert read(told)[0]["measure"] == "RMSE"


def test_models_are_as_told(targets, prepared):
    models = fastgc.models
    classes, whole = ("--data", targets / "whole.npz"), fastgc.data.load(targets / "whole.npz")
    floats = ("--data", targets / "floats.npz")
    for arguments, expected in (
        ((*classes,), models.SoftmaxRegression(3, whole.classes)),
        ((*classes, "lcc", "-n", "8"), models.LeastSquares(3, whole.classes)),
        ((*classes, "--model", "least-squares"), models.LeastSquares(3, whole.classes)),
        ((*classes, "--no-bias"), models.SoftmaxRegression(3, whole.classes, bias=False)),
        (
            (*classes, "--no-bias", "--model", "least-squares"),
            models.LeastSquares(3, whole.classes, bias=False),
        ),
        ((*floats, "-n", "4"), models.LinearRegression(3, 2)),
        ((*floats, "--no-bias"), models.LinearRegression(3, 2, bias=False)),
    ):
        made = prepared(*arguments)[1]["model"]
        assert (type(made), vars(made)) == (type(expected), vars(expected)), arguments


# -------------------------------------------------------------------------------------- optimizers


def test_gcada_prints_what_was_spent_and_plots_it(tmp_path, drawn):
    history = tmp_path / "runs.json"
    result = done(
        *("train", "gcada,cada,adam,sgd", "-n", "8", "--groups", "2", "--rounds", "12"),
        *("--batch", "5", *SIMULATED, "--c", "1", "--max-age", "4"),
        *("--loss", "1.5", "--json", history, "--plot", "runs.svg"),
    )
    names = ["gcada", "cada", "adam", "sgd"]
    rows = [line.split() for line in result.stdout.splitlines()]
    assert "to a training loss of 1.5" in result.stdout
    runs = {each["name"]: each["rounds"] for each in read(history)}
    assert list(runs) == names
    lengths = [len(runs[name]) for name in names]
    assert min(lengths) < max(lengths) == 12  # runs end when the loss is reached
    assert f"{min(lengths)} to 12 rounds" in result.stdout
    for name in names:
        _, second = (row for row in rows if row[:1] == [name])
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
    assert len(drawn["runs.svg"].axes) == 4


def test_adaptive_methods_are_compared_with_adam_unless_told():
    small = ("-n", "4", "--rounds", "2", *SIMULATED)
    names = [each["name"] for each in figures("train", "--method", "gcada", *small)]
    assert names == ["gcada", "adam"]
    names = [each["name"] for each in figures("train", "--method", "gcada", "rs", *small)]
    assert names == ["rs"]
    result = done("train", "cada", *small)
    assert "to a training loss of" in result.stdout
    names = [each["name"] for each in figures("train", "--method", "adam", "rs", "bcc", *small)]
    assert names == ["rs", "bcc"]
    names = [each["name"] for each in figures("train", "--method", "adam", "sgd,bcc", *small)]
    assert names == ["sgd", "adam bcc"]


@pytest.mark.parametrize("method", ["nesterov", "sgd", "adam", "cada", "gcada"])
@pytest.mark.parametrize("lr", [None, 0.05])
def test_optimizers_are_as_told(method, lr, prepared):
    adaptive = ("--c", "0.7", "--max-age", "4") if "cada" in method else ()
    rate = () if lr is None else ("--lr", lr)
    given, options = prepared("--method", method, "-n", "8", *rate, *adaptive, *SIMULATED)
    code, data = given
    optimizer, model = options["optimizer"], options["model"]
    optimizers = fastgc.optimizers
    if method in ("nesterov", "sgd"):
        kind = optimizers.Nesterov if method == "nesterov" else optimizers.SGD
        usual = model.learning_rate(data.X_train) if lr is None else lr
        assert repr(optimizer) == repr(kind(usual))
        return
    if method != "adam":
        assert (optimizer.c, optimizer.max_age) == (0.7, 4)
        shards = fastgc.data.partition(data.X_train, data.y_train, code.k)
        held = [shards[group][0] for group in range(code.groups)]
        assert len(held) == code.k == (8 if method == "cada" else 2)
        np.testing.assert_allclose(optimizer.smoothness, [model.smoothness(X) for X in held])
        assert len(set(optimizer.smoothness)) == len(held)
        optimizer = optimizer.optimizer
    assert repr(optimizer) == repr(optimizers.AMSGrad() if lr is None else optimizers.AMSGrad(lr))


def test_simulated_without_delays():
    """Such a run takes no time, and nothing is divided by it."""
    asked = "adam", "sgd", "-n", "3", "--rounds", "3"
    result = done("train", *asked, "--engine", "simulated", "--delays", "none")
    assert "to a training loss of" in result.stdout


# ----------------------------------------------------------------------------------------- engines


@pytest.mark.parametrize("engine", ["mpi", "ray", "torch"])
def test_what_an_engine_lacks_is_said_first(engine, monkeypatch, tmp_path):
    """It is the first error, before data are read or workers start."""
    missing = {"mpi": "mpi4py", "ray": "ray", "torch": "torch"}[engine]
    monkeypatch.setitem(sys.modules, missing, None)
    if engine != "ray":
        monkeypatch.delitem(sys.modules, f"fastgc.engines.{engine}", raising=False)
    asked = "--engine", engine, "--data", tmp_path / "nowhere.npz"
    line = refused("train", *asked, status=1)
    assert "pip install" in line
    assert f"[{engine}]" in line


@pytest.mark.parametrize(
    ("ranks", "says"),
    [(None, "this is no job of ranks"), ("1", "this job has 1"), ("20", "this job has 20")],
)
def test_ranks_that_are_asked_for_are_those_that_are_needed(ranks, says, monkeypatch):
    monkeypatch.setattr("fastgc.engines.find_engine", lambda name: None)  # torch may be missing
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    if ranks is not None:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", ranks)
    monkeypatch.setattr("fastgc.data.load", None)  # the error comes before any work
    of_20 = () if ranks == "1" else ("-n", "20")
    for size, needed in (of_20, 21), (("--recorded", RECORDED, "--cost", COST), 13):
        line = refused("train", "rs", "--engine", "torch", *size)
        assert f"{needed - 1} workers need {needed} ranks, one of them the master, and " in line
        assert says in line
        assert f": torchrun --nproc-per-node {needed} -m fastgc train --engine torch" in line


def test_options_of_engines_are_passed_on(prepared):
    small = ("-n", "4", "-s", "1", *SIMULATED)
    usual = RoundOptions(delays=parse("exponential:mean=0.001"))
    names = "keywords", "checkpoint", "every", "rounds", "until", "batch", "engine"
    plain = [{"survivors": None}, None, 10, 150, None, None, "simulated"]
    options = prepared(*small)[1]
    assert [options[name] for name in names] == plain
    assert options["options"] == usual
    options = prepared(*small, "--patience", "0.5", "--partial", "best", "--verify", "2",
                       "--limit", "0.1")[1]  # fmt: skip
    assert [options[name] for name in names] == plain
    assert options["options"] == replace(usual, patience=0.5, partial="best", verify=2, limit=0.1)
    options = prepared(*small, "--message-dtype", "float32", "--seed", "5", "--loss", "0.5",
                       "--batch", "3", "--rounds", "9", "--evaluate-every", "2")[1]  # fmt: skip
    assert options["options"] == replace(usual, message_dtype="float32", seed=5)
    assert (options["until"], options["batch"], options["rounds"]) == (0.5, 3, 9)
    assert options["evaluate_every"] == 2
    assert usual.tracker is None
    tracker = prepared(*small, "--max-error", "0.5", "--on-error", "wait")[1]["options"].tracker
    assert (tracker.limit, tracker.action, tracker.measure_every) == (0.5, "wait", 0)
    engine = prepared(*small, "--cost", "0.25")[1]["engine"]
    assert engine.func is SimulatedCluster
    assert engine.keywords == {"cost": 0.25, "interrupted": True}


def test_train_takes_recorded_times(prepared):
    """Simulated workers take the recorded cost; real ones compute for as long as they do."""
    asked = "rs", "-s", "3", "-k", "24", "--recorded", RECORDED, "--cost", COST
    made = prepared(*asked, "--engine", "simulated")[1]["engine"]
    assert made.keywords == {"cost": COST / 2, "interrupted": False}
    options = prepared(*asked)[1]
    assert options["engine"] == "local"
    times = np.loadtxt(RECORDED, delimiter=",")
    assert options["options"].delays == fastgc.delays.Empirical(np.maximum(times - COST, 0))


# ------------------------------------------------------------------------------- nothing is lost

RESUMED = ("-n", "4", "-s", "1", *SIMULATED)


def test_runs_go_on_from_a_checkpoint(tmp_path):
    whole, parts, folder = tmp_path / "whole.json", tmp_path / "parts.json", tmp_path / "run"
    done("train", *RESUMED, "--rounds", "9", "--json", whole)
    kept = ("--checkpoint", folder, "--every", "2", "--json", parts)
    for rounds in "5", "9":
        result = done("train", *RESUMED, "--rounds", rounds, *kept)
        assert f"{rounds} rounds each" in result.stdout
    assert losses(parts) == losses(whole)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint", "rounds.jsonl"]
    for more, says in (
        (("--checkpoint", folder, "--lr", "0.5"), "of another run. optimizer: Nesterov(lr=1"),
        (("--checkpoint", "no/where/run"), "there is no folder no/where to make run in"),
        (("--checkpoint", whole), "whole.json is a file: name a folder"),
    ):
        result = run("train", *RESUMED, "--rounds", "9", *more)
        assert result.exit_code == 2
        assert says in result.stderr.splitlines()[-1]


def test_each_run_compared_has_a_folder(tmp_path):
    folder, history = tmp_path / "runs", tmp_path / "runs.json"
    np.save(tmp_path / "B.npy", fastgc.BinaryCode(4, stragglers=1).matrix())
    apart = f"linear:B={tmp_path / 'B.npy'}"
    command = ("train", *RESUMED, f"rs,bcc:load=2,{apart}", "--checkpoint", folder)
    for rounds in ("3", "5"):
        done(*command, "--rounds", rounds, "--json", history)
    names = ["rs", "bcc:load=2", apart]
    assert {path.name for path in folder.iterdir()} == {name.replace("/", "%2F") for name in names}
    assert {name: len(each) for name, each in losses(history).items()} == dict.fromkeys(names, 5)


def test_interrupted_runs_say_what_is_kept(tmp_path, monkeypatch):
    step, steps = fastgc.optimizers.Nesterov.step, []

    def interrupted(self, gradient):
        steps.append(gradient)
        if len(steps) == 6:
            raise KeyboardInterrupt
        return step(self, gradient)

    monkeypatch.setattr(fastgc.optimizers.Nesterov, "step", interrupted)
    folder = tmp_path / "run"
    command = ("train", *RESUMED, "--rounds", "7", "--checkpoint", folder, "--every", "2")
    result = run(*command)
    assert result.exit_code == 130
    said = result.output.replace("\n", " ")
    assert "interrupted; the worker processes have ended" in said
    assert f"round 4 is kept in {folder}: repeat the run to go on from there" in said
    done(*command)
    assert len(steps) == 6 + 3


def stopped(monkeypatch, after, error):
    """Let training raise an error in the step after so many."""
    step, steps = fastgc.optimizers.Nesterov.step, []

    def fails(self, gradient):
        steps.append(gradient)
        if len(steps) > after:
            raise error
        return step(self, gradient)

    monkeypatch.setattr(fastgc.optimizers.Nesterov, "step", fails)


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (KeyboardInterrupt(), 130, "interrupted; the worker processes have ended"),
        (fastgc.NotDecodableError("no", 2), 1, "no"),
        (OSError(28, "No space left", "run"), 1, "run: no space left"),
    ],
)
def test_rounds_before_an_error_are_kept(error, status, says, tmp_path, drawn, monkeypatch):
    """Those of the runs that are over, and of the run that it ends."""
    stopped(monkeypatch, 5 + 2, error)
    named = "--json", tmp_path / "runs.json", "--csv", tmp_path / "runs.csv", "--plot", "a.svg"
    track = tmp_path / "rounds.jsonl"
    result = run("train", "uncoded,rs,binary", *RESUMED, "--rounds", "5", *named, "--track", track)
    assert result.exit_code == status
    assert result.stderr.endswith(
        f"fastgc: {says}\nfastgc: the figures of rs end with round 2 of 5\n"
    )
    assert {name: len(each) for name, each in losses(tmp_path / "runs.json").items()} == {
        "uncoded": 5,
        "rs": 2,
    }
    assert (tmp_path / "runs.csv").read_text().count("\n") == 1 + 5 + 2
    assert "2 to 5 rounds" in result.stdout
    assert track.read_text().count("\n") == 5 + 3  # the gradient that was not used as well
    assert list(drawn) == ["a.svg", "a-precision.svg"]


def test_runs_that_diverge_are_kept_until_then(tmp_path):
    path, small = tmp_path / "runs.json", ("-n", "4", "--rounds", "200", *SIMULATED)
    asked = "--method", "sgd", "--model", "least-squares", "--lr", "1e30", "--json", path
    result = run("train", *small, *asked)
    assert result.exit_code == 1
    [rounds] = losses(path).values()
    assert 0 < len(rounds) < 200
    assert f"end with round {len(rounds)} of 200" in result.stderr


def test_figures_of_runs_are_written_as_they_come(tmp_path, monkeypatch):
    """So they are there even if the process is killed in a later run."""
    path, found = tmp_path / "runs.json", []
    before = train.Training.run

    def seen(self):
        found.append(len(losses(path)) if path.exists() else 0)
        return before(self)

    monkeypatch.setattr(train.Training, "run", seen)
    result = done("train", "uncoded,rs,binary", *RESUMED, "--rounds", "2", "--json", path)
    assert found == [0, 1, 2]
    assert len(losses(path)) == 3
    assert result.stderr.count("figures written to") == 1


def test_runs_are_replayed(tmp_path):
    first, again = tmp_path / "first.json", tmp_path / "again.json"
    small = ("-n", "5", "-s", "2", "--rounds", "6", "--engine", "simulated")
    done("train", *small, "--delays", "exponential:mean=0.003", "rs,bcc:load=2", "--json", first)
    late = "--delays", "exponential:mean=0.003", "--seed", "1"  # other messages would come first
    done("train", *small, *late, "rs,bcc:load=2", "--replay", first, "--json", again)
    for one, other in zip(read(again), read(first), strict=True):
        assert [r["received"] for r in one["rounds"]] == [r["received"] for r in other["rounds"]]
    line = refused("train", *small, "--replay", first, "rs,uncoded")
    assert "has no run 'uncoded', but 'rs', 'bcc:load=2'" in line
    assert "nowhere.json" in refused("train", *small, "--replay", "nowhere.json")


def test_training_can_be_tracked(tmp_path, drawn):
    track = tmp_path / "rounds.jsonl"
    small = ("-n", "4", "-s", "1", "--rounds", "3", *SIMULATED, "rs,binary")
    asked = "--track", track, "--measure-every", "2", "--plot", "runs.svg"
    result = done("train", *small, *asked)
    assert "rounding" in result.stdout
    assert f"precision written to {track}" in result.stderr
    lines = [json.loads(line) for line in track.read_text().splitlines()]
    assert [(line["run"], line["round"]) for line in lines] == [
        (name, number) for name in ("rs", "binary") for number in (1, 2, 3)
    ]
    assert [line["measured"] is None for line in lines] == [False, True, False] * 2
    assert list(drawn) == ["runs.svg", "runs-precision.svg"]
    track.unlink()
    stern = "--track", track, "--max-error", "1e-18", "--on-error", "raise"
    result = run("train", *small, *stern)
    assert result.exit_code == 1
    assert "fastgc: round 1: the gradient decoded from" in result.stderr
    assert track.read_text().count("\n") == 1


# ------------------------------------------------------------------------------------------ errors


NINE = ",".join(f"rs:stragglers={s}" for s in range(9))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--method", "lion"], "--method must be .* or \"gcada\", not 'lion'"),
        (["--model", "resnet"], '--model must be "auto"'),
        (["--model", "softmax", "lcc"], "use --model least-squares"),
        (["--task", "regress"], '--task must be "auto", "classification" or "regression"'),
        (["--target", "1.5"], "--target is a fraction of the test set here, not 1.5"),
        (["--data", "floats.npz", "--model", "softmax"], "targets, and softmax is for classes"),
        (["--cost", "0.1", "--engine", "local"], "--cost is for --engine simulated: .* 'local'"),
        (["--partial", "best,worst"], "--partial must be .*, not 'worst'"),
        (["--partial", "best", "rs,gcada"], "gcada keeps gradients for later rounds"),
        (["--timeline", "runs.png", "--plot", "./runs.png"], "must name different files"),
        (["--timeline", "runs.png", NINE], "at most 8 runs in one picture, not 9"),
        (["--measure-every", "2"], "--measure-every needs --track"),
        (["--on-error", "raise"], "--on-error needs --max-error"),
        (["--max-error", "1", "--on-error", "panic"], '--on-error must be "warn", "raise" or'),
        (["--c", "1"], "--c is for the methods cada and gcada"),
        (["--max-age", "5", "adam"], "--max-age is for the methods cada and gcada"),
        (["--method", "cada", "rs"], "cada asks single workers, without a code"),
        (["--groups", "2"], "--groups needs the method gcada, or a code to use in each group"),
        (["--method", "gcada", "--max-error", "1"], "precision of gcada cannot be tracked"),
        # The second run's error is found before the first run starts.
        (["--method", "gcada", "--batch", "100"], "the smallest of the 20 partitions has 71"),
        (["--data", "few.npz", "--method", "gcada"], "5 samples cannot be cut into k = 20"),
        (["--every", "5"], "--every needs --checkpoint, a folder to keep the run in"),
        (["--checkpoint", "no/where/runs", "rs,bcc"], "no folder no/where to make runs"),
        (["--checkpoint", "file", "rs,bcc"], "file is a file: name a folder"),
        (["--checkpoint", "dangling"], "dangling is a link to nothing: name a folder"),
        (["--checkpoint", "kept", "--track", "kept/rounds.jsonl"], "--track must not write to the"),
    ],
)
def test_options_are_refused_before_anything_runs(arguments, says, targets, monkeypatch):
    monkeypatch.chdir(targets)
    (targets / "file").write_text("1")
    (targets / "dangling").symlink_to("nowhere")
    (targets / "kept").mkdir()
    np.savez("few.npz", X=np.eye(6), y=np.arange(6) % 2)
    monkeypatch.setattr(train.Training, "run", None)
    before = sorted(targets.iterdir())
    usual = () if "--engine" in arguments else ("--engine", "simulated")
    line = refused("train", *usual, *arguments, "--json", "written.json")
    assert re.search(says, line)
    assert sorted(targets.iterdir()) == before


@pytest.mark.parametrize("option", ["--batch", "--evaluate-every", "--max-age", "--every"])
def test_counts_are_positive(option):
    result = run("train", option, "0")
    assert result.exit_code == 2
    assert option in result.stderr


@pytest.mark.parametrize("launcher", ["PMI", "OMPI_COMM_WORLD"])
def test_ranks_that_train_alone_are_said(launcher, monkeypatch):
    """Once, by the first of those that mpiexec has started."""
    asked = "train", "uncoded", "-n2", "--rounds=1", "--engine=simulated"
    for rank, ranks, times in (("0", "3", 1), ("1", "3", 0), ("0", "1", 0)):
        monkeypatch.setenv(f"{launcher}_RANK", rank)
        monkeypatch.setenv(f"{launcher}_SIZE", ranks)
        said = done(*asked).stderr
        assert said.count("warning: 3 ranks train the same, each by itself: --engine mpi") == times
