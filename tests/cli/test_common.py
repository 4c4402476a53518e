"""The command as a whole: its help, its errors, its start."""

import inspect
import re
import shlex
import signal
import sys
from pathlib import Path

import numpy as np
import programs
import pytest
import typer
from commands import done, refused, run
from typer.testing import CliRunner

import fastgc
from fastgc.cli import app
from fastgc.cli.common import numbers, status_of

COMMANDS = typer.main.get_command(app).commands


def test_version_and_help():
    assert run("--version").stdout == f"fastgc {fastgc.__version__}\n"
    for words in ((), ("train",), ("codes",)):
        short, long = done(*words, "-h"), done(*words, "--help")
        assert short.stdout == long.stdout
    listed = re.findall(r"│ ([a-z]+) ", run("-h").stdout)
    assert listed == ["train", "codes", "plan", "simulate", "sequential", "fit",
                      "stability", "info"]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_helps_are_whole_at_80_columns(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = done(command, "--help-all" if command == "train" else "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert "Example: fastgc" in shown


def test_a_long_help_fits_a_screen():
    """It names all options, and explains those of the first panels."""
    shown = done("train", "--help").stdout
    assert len(shown.splitlines()) <= 50
    assert max(map(len, shown.splitlines()[:-2])) <= 80
    options = [each.opts[0] for each in COMMANDS["train"].params if each.opts[0].startswith("-")]
    assert len(options) > 40
    assert "\nCODES: The code, such as rs" in shown
    assert ".;" not in shown
    for option in options:
        assert re.search(rf"(?<!\S){option}(?![\w-])", shown), option
    assert "\n  --rounds          Gradient steps.\n" in shown
    assert shown.count("\n") < 0.3 * done("train", "--help-all").stdout.count("\n")


def test_the_command_alone_prints_its_help():
    assert done().stdout.rstrip() == done("--help").stdout.rstrip()


@pytest.mark.few(5)
@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_the_help_run(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("times.csv", 1e3 * np.random.default_rng(0).exponential(0.1, (40, 3)), delimiter=",")
    said = inspect.cleandoc(COMMANDS[command].epilog)
    program, name, *arguments = shlex.split(said.removeprefix("Example: "))
    assert (program, name) == ("fastgc", command)
    if command in ("train", "plan", "sequential"):
        arguments += ["--rounds", "40"]
    done(name, *arguments)


def test_options_of_one_name_are_called_the_same():
    called = {}
    for command in COMMANDS.values():
        for each in command.params:
            called.setdefault(each.name, set()).add(tuple(each.opts))
    assert {name for name, opts in called.items() if len(opts) > 1} == set()


def test_completion_is_offered():
    environment = {"_FASTGC_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    environment |= {"COMP_WORDS": "fastgc train rs-"}
    found = programs.run(programs.python("-m", "fastgc"), env=environment)
    assert set(found.stdout.split()) == {"rs-clustered"}, found.stderr
    for words, names in (
        ("fastgc train rs,unc", {"rs,uncoded"}),
        ("fastgc train --engine s", {"simulated"}),
        ("fastgc train --method ca", {"cada"}),
        ("fastgc sequential m-", {"m-sgc"}),
    ):
        environment |= {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        found = CliRunner().invoke(app, prog_name="fastgc", env=environment)
        assert set(found.stdout.split()) == names, found.output
    assert "--install-completion" in run("-h").stdout


def test_status_of_misuse_and_of_failure():
    for error in (
        *(ValueError(), TypeError(), OverflowError(), RuntimeError(), FileNotFoundError()),
        *(FileExistsError(), IsADirectoryError(), NotADirectoryError(), PermissionError()),
    ):
        assert status_of(error) == 2
    for error in (
        *(fastgc.NotDecodableError("", 1), fastgc.WorkerFailedError("", 1)),
        *(fastgc.LeftOutError(), fastgc.FinishedError(), fastgc.UnstableRoundError()),
        *(fastgc.NonFiniteMessageError("", 1), fastgc.CorruptMessageError("", 1)),
        *(TimeoutError(), ImportError(), OSError(28, "full"), MemoryError()),
    ):
        assert status_of(error) == 1, error
    assert status_of(KeyboardInterrupt()) == 130


@pytest.mark.parametrize(
    ("error", "status", "lines"),
    [
        (OSError(28, "No space left", "out.csv"), 1, ["out.csv: no space left"]),
        (ZeroDivisionError("by zero"), 1, ["by zero"]),
        (MemoryError("8 GB"), 1, ["too large for memory: 8 GB"]),
        (MemoryError(), 1, ["too large for memory"]),
        (KeyboardInterrupt(), 130, ["interrupted; the worker processes have ended"]),
        (ValueError("no"), 2, ["no", "in round 3"]),
        (BrokenPipeError(32, "Broken pipe"), 1, []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_end_a_command_with_a_line_each(error, status, lines, monkeypatch):
    """Notes on an error have lines of their own."""

    def fail():
        raise error

    for note in lines[1:]:
        error.add_note(note)
    monkeypatch.setattr("fastgc.kernels.backend", fail)
    result = run("info")
    assert result.exit_code == status
    assert result.stderr.splitlines() == [f"fastgc: {line}" for line in lines]


def test_errors_of_the_program_are_not_hidden(monkeypatch):
    monkeypatch.setattr("fastgc.kernels.backend", None, raising=True)
    assert run("info").exit_code == 2  # a TypeError counts as misuse
    monkeypatch.delattr("fastgc.kernels.backend")
    assert isinstance(run("info").exception, AttributeError)


def test_numbers_between_slashes():
    assert numbers("--mu", "0/0.5/1", "a number") == [0, 0.5, 1]
    with pytest.raises(ValueError, match="--mu must be a number, not 'a/1'"):
        numbers("--mu", "a/1", "a number")


def test_says_what_is_missing_without_typer(monkeypatch):
    from fastgc.__main__ import main

    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"gradient-coding\[cli\]|\.\[cli\]"):
        main()


@pytest.mark.filterwarnings("default::fastgc.errors.InstabilityWarning")
def test_warnings_are_one_line():
    asked = "-n", "128", "-s", "16", "--trials", "1"
    assert "fastgc: warning: ReedSolomon(n=128" in done("codes", "rs:root=1", *asked).stderr
    assert "is numerically unstable" in refused("codes", "rs:root=1,strict=yes", *asked)


def test_an_encoding_without_our_characters():
    """One program prints all: a table, Markdown, and the help."""
    source = """
import contextlib, sys
from fastgc.__main__ import main
for words in "simulate rs -n 6 --rounds 9", "codes rs -n 6 --trials 2 --markdown", "--help":
    sys.argv = ["fastgc", *words.split()]
    with contextlib.suppress(SystemExit):
        main()
    print("----")
"""
    ran = programs.run(programs.python("-c", source), env={"PYTHONIOENCODING": "ascii"})
    assert ran.stderr == ""
    assert ran.stdout.isascii()
    table, markdown, help, _ = ran.stdout.split("----\n")
    assert "+-" in table
    assert "decoding vector, us" in markdown
    assert "Gradient coding" in help


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


def test_an_option_given_twice_is_refused():
    """Click would take the last. Flags may be repeated."""
    for twice in (["--delays", "none"], ["--delays=none"], ["-n", "4"], ["--json", "-"]):
        found = run("simulate", "rs", *twice, *twice)
        assert found.exit_code == 2
        assert "is given twice: leave one out" in found.stderr
    assert "twice" not in run("simulate", "none", "--markdown", "--markdown").stderr


def test_paths_may_begin_with_a_tilde(tmp_path, monkeypatch):
    """Also those in delays and codes, and where the shell does not expand them, after =."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.csv").write_text("0.5,0.25\n0.75,1.25\n")
    np.save(tmp_path / "B.npy", np.eye(2))
    asked = "simulate", "linear:B=~/B.npy", "--rounds=5"
    done(*asked, "-n2/0", "--delays=empirical:~/a.csv", "--json=~/a.json", "--plot=~/a.svg")
    done(*asked, "-s0", "--recorded=~/a.csv", "--cost=0.1", "--csv=~/b.csv")
    done("fit", "~/a.csv", "--json=~/b.json")
    run_of = "train", "uncoded", "-n2", "--rounds=1", "--engine=simulated"
    done(*run_of, "--checkpoint=~/run", "--json=~/c.json")
    left = {path.name for path in tmp_path.iterdir()}
    assert left >= {"a.json", "a.svg", "b.csv", "b.json", "run", "c.json"}
    assert not Path("~").exists()
    assert len(fastgc.history.read_json("~/c.json")) == 1
