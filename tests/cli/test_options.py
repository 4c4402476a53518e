"""Options that commands share: codes, sizes, recorded times, and files for figures."""

import csv
import inspect
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

import fastgc
from fastgc import planning, simulation
from fastgc.cli import app
from fastgc.cli.options import counts, named, pairs, repeated, size_of
from fastgc.engines import SimulatedCluster

RECORDED = Path(__file__).parents[1] / "recorded.json"
COMMANDS = typer.main.get_command(app).commands

# A small call of each command that prints tables, without sizes.
SMALL = {
    "train": ("--rounds", "2", "--engine", "simulated"),
    "codes": ("--trials", "2"),
    "plan": ("--rounds", "20"),
    "simulate": ("--rounds", "20"),
    "sequential": ("--rounds", "40"),
    "stability": ("--trials", "2", "--patterns", "random"),
}
TOLERATING = [name for name in SMALL if name != "sequential"]  # commands that take stragglers
TIMED = ("decode", "time", "standard_error", "wait", "seconds", "µs")  # these differ between runs


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments):
    """Return the line of error with which a command ends before it does anything."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    assert not result.stdout
    return line


def figures(*arguments):
    """Return what a command writes as JSON, without measured times."""

    def timeless(held):
        if isinstance(held, dict):
            kept = {k: v for k, v in held.items() if not any(part in k for part in TIMED)}
            return {key: timeless(value) for key, value in kept.items()}
        if isinstance(held, list):  # rows are ranked by measured times
            return sorted((timeless(each) for each in held), key=repr)
        return held

    return timeless(json.loads(done(*arguments, "--json").stdout))


# ------------------------------------------------------------------------------- codes and sizes


@pytest.mark.parametrize("command", TOLERATING)
def test_codes_and_sizes_are_written_alike(command):
    """Codes follow the name, separated by blanks or commas; sizes are -n and -s, or one text."""
    expected = figures(command, "rs", "binary", "-n", "8", "-s", "2", *SMALL[command])
    assert expected
    for arguments in (
        ("rs,binary", "-n", "8/2"),
        ("-n", "8", "rs", "-s", "0.25", "binary"),
        ("rs", "binary", "--workers=8", "--stragglers", "2"),
    ):
        assert figures(command, *arguments, *SMALL[command]) == expected, arguments


def test_schemes_across_rounds_have_no_stragglers_to_choose():
    small = SMALL["sequential"]
    expected = figures("sequential", "binary", "uncoded", "-n", "6", *small)
    assert figures("sequential", "binary,uncoded", "--workers", "6", *small) == expected
    assert "--workers: '6/2' is neither a number" in refused("sequential", "-n", "6/2")


@pytest.mark.parametrize("command", TOLERATING)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-n", "0"], "--workers: there must be at least one worker"),
        (["-n", "x"], "--workers: 'x' is neither a number nor a range"),
        (["-n", "8/2", "-s", "1"], "--workers 8/2 names the stragglers: leave out --stragglers"),
        (["-n", "8", "-s", "1.5"], "--stragglers: '1.5' is neither a number nor a range"),
        (["-n", ","], "--workers must name a number"),
        (["-n", "1:999999999"], "--workers: '1:999999999' has more than 10000 numbers"),
    ],
)
def test_sizes_that_cannot_be_are_one_line(command, arguments, says):
    assert says in refused(command, "rs", *arguments)


@pytest.mark.parametrize("command", ["train", "codes", "plan", "simulate"])
def test_commands_of_one_size_refuse_several(command):
    assert "takes one size, as in 20 or 20/4, not '8,9'" in refused(command, "-n", "8,9")
    assert "takes one number, as in 4, not '0:2'" in refused(command, "-n", "8", "-s", "0:2")
    assert "stragglers must be in 0 .. n-1 = 7, not 8" in refused(command, "-n", "8/8")


@given(
    ranges=st.lists(
        st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 9)), min_size=1
    )
)
def test_ranges_have_their_last(ranges):
    text = ",".join(f"{first}:{first + more}:{step}" for first, more, step in ranges)
    expected = [each for a, more, step in ranges for each in range(a, a + more + 1, step)]
    assert counts("-s", text) == expected


@example(n=100, thousandths=290)
@given(n=st.integers(1, 10**9), thousandths=st.integers(0, 999))
def test_fractions_are_exact(n, thousandths):
    """0.29 of 100 workers are 29; floating point would round down to 28."""
    assert counts("-s", f"0.{thousandths:03}", n) == [n * thousandths // 1000]


def test_what_is_said_once_is_not_said_twice():
    assert pairs("16,64", None, "0.125") == [(16, 2), (64, 8)]
    assert pairs("16/3,64", None, "0.125") == [(16, 3), (64, 8)]
    assert pairs("16/3,64", "5,5", "0.125") == [(16, 3), (64, 5)]
    with pytest.raises(ValueError, match="leave out --stragglers"):
        pairs("16/3", "5", "0.125")


def test_a_size_has_a_fifth_of_stragglers():
    class What:
        workers, stragglers = "20", None

    assert size_of(What) == (20, 4)
    assert size_of(What, 11) == (11, 2)
    assert size_of(What, 11, default=0) == (11, 0)


def test_names_are_split_at_blanks_and_commas():
    assert named(["rs:clusters=auto,root=1", "binary,bcc"]) == [
        "rs:clusters=auto,root=1", "binary", "bcc"]  # fmt: skip
    assert named(None) == named([""]) == named([","]) == []


def test_a_plan_tolerates_at_least_so_many():
    found = figures("plan", "rs", "uncoded", "random", "-n", "8/3", "--all", *SMALL["plan"])
    assert {each["name"] for each in found["choices"]} == {"rs", "random"}
    assert min(each["stragglers"] for each in found["choices"]) == 3
    assert found["refused"]["uncoded"] == "no load tolerates 3 stragglers"
    with pytest.raises(ValueError, match="stragglers must be in 0"):
        planning.plan(8, stragglers=8)


# -------------------------------------------------------------------------------- recorded times


@pytest.fixture
def held():
    return planning.Recording.read(RECORDED)


@pytest.fixture
def table(held, tmp_path):
    """Write the same times as a table, in milliseconds."""
    path = tmp_path / "times.csv"
    np.savetxt(path, 1e3 * held.times, delimiter=",", fmt="%.17g")
    return "--recorded", str(path), "--unit", "ms", "--cost", repr(held.cost)


def test_simulate_takes_recorded_times(held, table):
    code = fastgc.ReedSolomon(12, stragglers=3)
    how = {"cost": held.cost, "rounds": 50, "interrupted": False}
    expected = simulation.simulate(code, held.delays, **how).mean
    small = ("simulate", "rs", "-s", "3", "--rounds", "50", "--json")
    for times in (("--recorded", str(RECORDED)), table):
        found = json.loads(done(*small, *times).stdout)
        assert found["rs"]["mean"] == pytest.approx(expected)
    # The number of partitions does not change the data.
    halves = fastgc.ReedSolomon(12, k=24, stragglers=3)
    expected = simulation.simulate(halves, held.delays, **how | {"cost": held.cost / 2}).mean
    found = json.loads(done(*small, "-k", "24", *table).stdout)
    assert found["rs"]["mean"] == pytest.approx(expected)


def test_train_takes_recorded_times(held, table, tmp_path):
    code = fastgc.ReedSolomon(12, stragglers=3)
    cluster = lambda *a, **k: SimulatedCluster(  # noqa: E731
        *a, cost=held.cost, interrupted=False, **k
    )
    expected = fastgc.train(code, rounds=4, engine=cluster, delays=held.delays)
    waits = [each.wait for each in expected.rounds]
    small = ("train", "rs", "-s", "3", "--rounds", "4", "--engine", "simulated", "--json")
    for times in (("--recorded", str(RECORDED)), table):
        [history] = json.loads(done(*small, *times).stdout)
        assert [each["wait"] for each in history["rounds"]] == pytest.approx(waits)


def test_workers_of_recorded_times_are_delayed_by_what_is_not_computation(held, monkeypatch):
    """Real workers spend their own time on computation."""
    seen = []
    monkeypatch.setattr(
        "fastgc.training.train.Training.run", lambda self: seen.append(self) or 1 / 0
    )
    run("train", "rs", "--recorded", str(RECORDED))
    assert seen[0].engine == "local"
    assert seen[0].how.delays == held.delays


@pytest.mark.parametrize("command", ["train", "plan", "simulate", "sequential"])
def test_what_recorded_times_tell_is_not_said(command, tmp_path):
    times = ("--recorded", str(RECORDED))
    assert "--workers and --recorded exclude each other" in refused(command, *times, "-n", "12")
    said = refused(command, *times, "--delays", "none")
    assert "--delays and --recorded exclude each other" in said
    assert "name the table by --recorded" in refused(command, "--unit", "ms")
    assert "name the table by --recorded" in refused(command, "--per", "round")
    table = tmp_path / "times.csv"
    table.write_text("1,2\n3,4\n")
    assert "give cost (--cost)" in refused(command, "--recorded", str(table))
    assert "no such file" in refused(command, "--recorded", str(tmp_path / "none.csv"))


# ------------------------------------------------------------------------------- what is written


@pytest.fixture
def times(tmp_path, monkeypatch):
    """A folder with times to fit."""
    monkeypatch.chdir(tmp_path)
    samples = 1e3 * np.random.default_rng(0).exponential(0.1, (40, 3))
    np.savetxt("times.csv", samples, delimiter=",")
    return tmp_path


def small(command):
    """Return arguments of a small call of a command that prints a table."""
    if command == "fit":
        return "fit", "times.csv", "--unit", "ms"
    return command, "binary", "uncoded", "-n", "6", *SMALL[command]


@pytest.mark.parametrize("command", [*SMALL, "fit"])
def test_every_table_is_written_as_csv_and_json(command, times):
    first = done(*small(command), "--csv", "out.csv", "--json", "out.json")
    assert "─" in first.stdout  # the table is printed, too
    rows = list(csv.DictReader((times / "out.csv").read_text().splitlines()))
    held = json.loads((times / "out.json").read_text())
    if command == "plan":
        held = held["choices"]
    if command == "train":
        held = [each for history in held for each in history["rounds"]]
    assert len(rows) == len(held) > 0
    printed = done(*small(command), "--csv").stdout
    assert printed.splitlines()[0] == (times / "out.csv").read_text().splitlines()[0]
    assert "must end in .csv" in refused(*small(command), "--csv", "out.txt")
    assert "there is no folder" in refused(*small(command), "--csv", "nowhere/out.csv")


@pytest.mark.parametrize("command", [*SMALL, "fit"])
def test_every_command_draws(command, times, monkeypatch):
    first = done(*small(command), "--plot", "out.svg")
    assert "plot written to out.svg" in first.stderr
    assert (times / "out.svg").read_text().startswith("<?xml")
    assert "must end in .png" in refused(*small(command), "--plot", "out.bmp")
    assert 'width must be "single"' in refused(
        *small(command), "--plot", "out.svg", "--width", "wide"
    )


@pytest.mark.parametrize("command", [*SMALL, "fit"])
def test_tables_fit_a_terminal_with_their_first_column(command, times, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = done(*small(command)).stdout
    lines = shown.splitlines()
    at = next(number for number, line in enumerate(lines) if set(line.strip()) == {"─"})
    body = lines[at + 1 : next(n for n in range(at + 1, len(lines)) if not lines[n].strip())]
    assert all(len(line) <= 80 for line in lines[: at + len(body)])
    for line in body:
        name = line.split()[0]
        assert "…" not in name
        if command in SMALL:
            assert re.match(r"binary|uncoded", name)


# ------------------------------------------------------------------------------------- the help


@pytest.mark.few(5)
@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_the_help_run(command, times):
    said = inspect.cleandoc(COMMANDS[command].epilog)
    line = said.removeprefix("Example: ")
    program, name, *arguments = shlex.split(line)
    assert (program, name) == ("fastgc", command)
    if command in ("train", "plan", "sequential"):
        arguments += ["--rounds", "40"]
    done(name, *arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_helps_are_whole_at_80_columns(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = done(command, "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert "Example: fastgc" in shown


def test_options_of_one_name_are_called_the_same():
    called = {}
    for command in COMMANDS.values():
        for each in command.params:
            called.setdefault(each.name, set()).add(tuple(each.opts))
    assert {name for name, opts in called.items() if len(opts) > 1} == set()


# -------------------------------------------------------------------------------------- the ranks


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        (None, "20 workers need 21 ranks, one of them the master, and this is no job of ranks"),
        ("4", "20 workers need 21 ranks, one of them the master, and this job has 4"),
        ("20", "this job has 20: torchrun --nproc-per-node 21 -m fastgc train --engine torch"),
    ],
)
def test_ranks_that_are_asked_for_are_those_that_are_needed(ranks, says, monkeypatch):
    pytest.importorskip("torch")
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    if ranks is not None:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", ranks)
    monkeypatch.setattr("fastgc.data.load", None)  # the error comes before any work
    line = refused("train", "rs", "--engine", "torch", "-n", "20")
    assert says in line
    assert "torchrun --nproc-per-node 21 " in line
    line = refused("train", "rs", "--engine", "torch", "--recorded", str(RECORDED))
    assert "12 workers need 13 ranks" in line
    assert "torchrun --nproc-per-node 13 " in line


def test_codes_of_many_workers_are_repeated_less_often():
    for asked, n, expected in (
        (None, 5000, 2000),
        (None, 20_000, 500),
        (None, 10**8, 5),
        (7, 10**8, 7),
        (0, 12, 0),
    ):
        assert repeated(asked, 2000, n) == expected, (asked, n)
    assert "10000 rounds" in done("simulate", "uncoded", "-n", "3", "-s", "0").output
