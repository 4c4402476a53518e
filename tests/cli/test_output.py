"""Tables, files of figures and pictures, of every command."""

import csv
import errno
import importlib
import json
import math
import os
import re
import sys

import commands
import numpy as np
import pytest
import typer
from commands import SMALL, done, refused, run

import fastgc
from fastgc import plotting
from fastgc.cli.output import csv_line, microseconds, milliseconds


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
def test_files_of_every_command(command, times, drawn):
    """A table is printed beside files; figures without a file are printed in its place."""
    files = "--csv", "out.csv", "--json", "out.json", "--plot", "out.svg"
    first = done(*small(command), *files)
    assert "─" in first.stdout
    assert list(drawn) == ["out.svg"]
    for line in ("figures written to out.csv", "written to out.json", "plot written to out.svg"):
        assert line in first.stderr
    rows = list(csv.DictReader((times / "out.csv").read_text().splitlines()))
    held = json.loads((times / "out.json").read_text())
    if command == "plan":
        held = held["choices"]
    if command == "train":
        held = [each for history in held for each in history["rounds"]]
    assert len(rows) == len(held) > 0
    of_one = held[0] if isinstance(held, list) else next(iter(held.values()))
    if command != "train":
        assert set(rows[0]) - {"code"} == set(of_one) - {"code"}
    printed = done(*small(command), "--csv")
    assert "─" not in printed.stdout
    assert printed.stdout.splitlines()[0] == (times / "out.csv").read_text().splitlines()[0]
    assert 'width must be "single"' in refused(*small(command), "--plot", "a.svg", "--width", "w")
    for option, wrong, says in (
        ("--plot", "out.bmp", "must end in .png"),
        ("--plot", "nowhere/out.svg", "there is no folder nowhere to write out.svg to"),
        ("--csv", "out.txt", "--csv out.txt: a file's name must end in .csv"),
        ("--json", ".", "must end in .json"),
        ("--csv", "nowhere/out.csv", "there is no folder nowhere to write out.csv to"),
        ("--latex", "out.txt", "--latex out.txt: a file's name must end in .tex"),
        ("--latex", "nowhere/out.tex", "there is no folder nowhere to write out.tex to"),
    ):
        assert says in refused(*small(command), option, wrong)
    assert "printed figures replace" in refused(*small(command), "--csv", "--latex", "o.tex")
    assert "cannot both be printed" in refused(*small(command), "--csv", "--json", "-")


@pytest.mark.parametrize("command", [*SMALL, "fit"])
def test_tables_for_latex_are_those_in_markdown(command, times):
    first = done(*small(command), "--latex", "out.tex", "--markdown")
    assert "tables written to out.tex" in first.stderr
    assert (times / "out.tex").read_text().count(r"\begin{table}") == first.stdout.count(
        "\n| --- |"
    )
    written = [line.strip() for line in (times / "out.tex").read_text().splitlines()]
    rows = [line.count(" & ") for line in written if line.endswith(r"\\")]
    shown = [line for line in first.stdout.splitlines() if line.startswith("|")]
    assert rows == [line.count(" | ") for line in shown if not line.startswith("| ---")]
    done(*small(command), "--latex", "again.tex")  # beside the terminal's shorter headings
    again = (times / "again.tex").read_text().splitlines()
    heads = [each.strip() for each in again if each.endswith(r"\\")]
    assert heads[0] == next(line for line in written if line.endswith(r"\\"))


OWN_CODE = """
import fastgc

class Few(fastgc.Code):
    def __init__(self, n, *, stragglers):
        self.n = self.k = n
        self.wait = n - stragglers

    def row(self, worker):
        return [worker], [1.0]
"""


@pytest.mark.parametrize(("names", "has"), [("binary,few:Few", True), ("binary,uncoded", False)])
def test_tables_say_what_signs_mean(names, has, times, monkeypatch):
    """Below a table in Markdown and LaTeX stands what a dash means, if it has one."""
    monkeypatch.syspath_prepend(times)
    (times / "few.py").write_text(OWN_CODE)
    options = "-n 6 -s 1 --rounds 20 --delays exponential:mean=1 --latex o.tex --markdown"
    ran = done("simulate", names, *options.split())
    assert ran.stdout.endswith("|\n\n–: no more than rounding\n") == has
    note = r"  \par\smallskip\footnotesize \textendash{}: no more than rounding"
    assert (note in (times / "o.tex").read_text().splitlines()) == has


# Options of outputs, beside the table.
FILES = {"--json": "o.json", "--csv": "o.csv", "--latex": "o.tex", "--plot": "o.svg"}
OUTPUTS = {command: dict(FILES) for command in SMALL}
OUTPUTS["fit"] = OUTPUTS["codes"]
OUTPUTS["info"] = {"--json": "o.json"}
OUTPUTS["train"] |= {"--timeline": "t.svg", "--track": "t.jsonl", "second": "o-precision.svg"}
FAULTS = [
    (command, output, fault)
    for command, outputs in OUTPUTS.items()
    for output, name in {**outputs, "table": ""}.items()
    for fault in (
        *(("full", "replace") if name else ("full", "closed")),
        *(("draw",) * name.endswith("svg")),
    )
]


@pytest.fixture
def quick(monkeypatch):
    """Pictures are made, but hardly drawn."""
    figure = pytest.importorskip("matplotlib.figure")

    def savefig(self, file, **_):
        file.write(b"<svg>")

    monkeypatch.setattr(figure.Figure, "savefig", savefig)


@pytest.mark.few(30)
@pytest.mark.parametrize(("command", "output", "fault"), FAULTS)
def test_a_write_that_fails_takes_nothing_with_it(
    command, output, fault, times, quick, monkeypatch
):
    """A warning names it, all else is kept, whole, and the status is 1."""
    outputs = OUTPUTS[command]
    failing = outputs.get(output, "")
    call = ["info"] if command == "info" else small(command)
    call = ["rs" if each == "uncoded" else each for each in call]
    for option, name in outputs.items():
        call += [option, name] * (option != "second")
    for name in outputs.values():
        if name == failing and fault == "full":
            (times / name).symlink_to("/dev/full")
        else:
            (times / name).write_text("old")
    code = errno.EPIPE if fault == "closed" else errno.ENOSPC

    def fail_if(is_it, then):
        def call(*given, **options):
            if is_it(given, options):
                raise OSError(code, os.strerror(code))
            return then(*given, **options)

        return call

    if fault == "replace":
        to_it = fail_if(lambda given, _: given[1].name == failing, os.replace)
        monkeypatch.setattr(os, "replace", to_it)
    elif fault == "draw":
        to_it = fail_if(lambda given, _: given[1].name == failing, plotting.save)
        monkeypatch.setattr(plotting, "save", to_it)
    elif not failing:
        to_it = fail_if(lambda _, options: options["file"] is sys.stdout, typer.echo)
        monkeypatch.setattr(typer, "echo", to_it)
    result = run(*call)
    assert result.exit_code == 1
    warned = [line for line in result.stderr.splitlines() if "warning" in line]
    if fault == "closed":
        assert warned == []  # as of any program whose reader is gone
    else:
        said = f"fastgc: warning: {failing or 'standard output'}: no space left on device"
        assert warned == [said]
    assert bool(result.stdout) == bool(failing)
    if fault != "full":
        assert not failing or (times / failing).read_text() == "old"
    for name in set(outputs.values()) - {failing}:
        text = (times / name).read_text()
        if name == "o.tex" and not failing:
            continue  # it has the tables that were shown
        assert text.startswith({"json": ("[", "{"), "svg": "<svg>"}.get(name[-3:].strip("."), ""))
        assert text != "old"
        if name == "o.json":
            json.loads(text)
    assert sorted(each.name for each in times.iterdir()) == sorted(["times.csv", *outputs.values()])


BEFORE = [(command, output) for command, outputs in OUTPUTS.items() for output in outputs]


@pytest.mark.parametrize(("command", "output"), [each for each in BEFORE if each[1] != "second"])
def test_outputs_are_tried_before_the_work(command, output, times, monkeypatch):
    """What cannot be written is refused, with its name, and nothing is left anywhere."""
    pytest.importorskip("matplotlib")
    kind = OUTPUTS[command][output].partition(".")[2]
    (times / f"folder.{kind}").mkdir()
    (times / f"dangling.{kind}").symlink_to(f"nowhere/a.{kind}")
    before = sorted(times.iterdir())
    call = ["info"] if command == "info" else small(command)
    for name, says in (
        (f"nowhere/a.{kind}", f"there is no folder nowhere to write a.{kind} to"),
        (f"times.csv/a.{kind}", f"there is no folder times.csv to write a.{kind} to"),
        (f"folder.{kind}", f"folder.{kind} is a folder: name a file"),
        (f"dangling.{kind}", f"dangling.{kind} is a link to {times}/nowhere/a.{kind}, whose"),
    ):
        assert says in refused(*call, output, name)
    for name, code in ("open", errno.EROFS), ("write", errno.ENOSPC):
        then = getattr(os, name)

        def fail(path, *given, code=code, then=then, **options):
            if isinstance(path, int) or ".fastgc" in str(path):
                raise OSError(code, os.strerror(code))
            return then(path, *given, **options)

        with monkeypatch.context() as patched:
            patched.setattr(os, name, fail)
            line = refused(*call, output, f"a.{kind}", status=1)
        assert line.lower() == (
            f"fastgc: a.{kind}: {os.strerror(code).lower()}; name a file in another folder"
        )
    assert sorted(times.iterdir()) == before


def test_outputs_have_files_of_their_own(times):
    pytest.importorskip("matplotlib")
    line = refused(*small("train"), "--plot", "a.svg", "--timeline", times / "a.svg")
    assert "a.svg is read, or is another output as well: they must name different files" in line
    for asked in (
        (*small("fit"), "--csv", times / "times.csv"),
        (*small("simulate"), "--recorded", "times.csv", "--csv", "./times.csv"),
        (*small("plan"), "--recorded", "times.csv", "--csv", "times.csv"),
        (*small("sequential"), "--recorded", "times.csv", "--csv", "times.csv"),
        ("train", "--recorded", "times.csv", "--per", "computation", "--track", "times.csv"),
        (*small("train"), "--replay", "run.json", "--json", "run.json"),
        (*small("train"), "--data", "a.npz", "--track", "a.npz"),
    ):
        assert "must name different files" in refused(*asked)


def test_a_folder_that_vanishes_takes_nothing_with_it(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    gone, kept = tmp_path / "a" / "o.csv", tmp_path / "o.json"
    whole = fastgc.simulation.simulate
    work = "fastgc.planning.simulation.simulate"
    monkeypatch.setattr(work, lambda *a, **b: ((tmp_path / "a").rmdir(), whole(*a, **b))[1])
    asked = "simulate", "rs", "-n", "4", "--rounds", "9", "--csv", gone, "--json", kept
    result = run(*asked)
    assert result.exit_code == 1
    assert f"fastgc: warning: {gone}: there is no folder {tmp_path}/a to write" in result.stderr
    assert json.loads(kept.read_text())
    assert "mean, median" in result.stdout


@pytest.mark.parametrize("error", [RuntimeError("no\n  latex"), ValueError("no latex")])
def test_a_picture_that_cannot_be_drawn_is_a_warning(error, tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")

    def savefig(*_, **__):
        raise error

    monkeypatch.setattr(figure.Figure, "savefig", savefig)
    path = tmp_path / "a.svg"
    result = run("simulate", "rs", "-n", "4", "--rounds", "9", "--plot", path)
    assert result.exit_code == 1
    assert result.stderr == f"fastgc: warning: {path}: no latex\n"
    assert "mean, median" in result.stdout
    assert not path.exists()


@pytest.mark.parametrize(
    ("command", "work"),
    [
        ("simulate", "fastgc.planning.simulation.simulate"),
        ("codes", "fastgc.stability.compare"),
        ("stability", "fastgc.stability.compare"),
        ("plan", "fastgc.planning.plan._Search"),
        ("sequential", "fastgc.sequential.simulation.Compared"),
    ],
)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError("no")])
def test_codes_before_an_error_are_kept(command, work, error, times, monkeypatch):
    module, name = work.rsplit(".", 1)
    then, calls = getattr(importlib.import_module(module), name), []
    kept = []  # before the end, as a process that is killed leaves it

    def once(*given, **options):
        calls.append(given)
        if len(calls) > 1:
            kept.append((times / "o.csv").read_bytes())
            raise error
        return then(*given, **options)

    monkeypatch.setattr(importlib.import_module(module), name, once)
    result = run(*small(command), "--csv", "o.csv", "--json", "o.json")
    assert result.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert result.stderr.startswith("figures written to o.json\nfigures written to o.csv\n")
    assert kept == [(times / "o.csv").read_bytes()]
    [row] = csv.DictReader((times / "o.csv").read_text().split("\n"))
    assert next(iter(row.values())).startswith("binary")
    assert "binary" in (times / "o.json").read_text()
    assert "binary" in result.stdout
    assert not re.search("(?m)^ *uncoded", result.stdout)  # no row of it


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "CODE", "--rounds", "9", "--delays", "empirical:FILE"),
        (
            "train",
            "CODE",
            "--rounds",
            "2",
            "--engine",
            "simulated",
            "--timeline",
            "b.svg",
            "--delays",
            "empirical:FILE",
        ),
        ("codes", "CODE", "--trials", "2"),
        ("fit", "FILE"),
    ],
    ids=lambda words: words[0],
)
def test_dollars_in_names_are_dollars_in_pictures(command, times):
    """A pair of them begins no formula, and this one would be wrong."""
    pytest.importorskip("matplotlib")
    np.save("B$^$.npy", fastgc.BinaryCode(4, stragglers=1).matrix())
    samples = np.random.default_rng(0).exponential(0.01, (9, 4))
    np.savetxt("cost$^$.csv", samples, delimiter=",", header="a,b,c,d", comments="")
    command = [each.replace("FILE", "cost$^$.csv") for each in command]
    if "CODE" in command:
        command[1:2] = "linear:B=B$^$.npy", "-n", "4", "-s", "1"
    done(*command, "--plot", "a.svg")


def test_titles_are_as_asked_for(drawn):
    pytest.importorskip("matplotlib")
    asked = "train", "rs", "-n", "4", "--rounds", "9", "--engine", "simulated"
    asked += "--plot", "a.svg", "--timeline", "b.svg"

    def titles(*more):
        done(*asked, *more)
        return [
            (
                figure.get_suptitle(),
                *(ax.get_title(loc) for ax in figure.axes for loc in ("left", "center")),
            )
            for figure in (drawn["a.svg"].figure, drawn["b.svg"].figure)
        ]

    own = titles()
    assert "error: rs " in own[0][2]
    assert own[1][1].startswith("rs (Reed-Solomon): 3 rounds in")
    assert titles("--title", "") == [("", "", ""), ("", "", "")]
    assert titles("--title", "Ours $5") == [("Ours $5", "", ""), ("Ours $5", "", "")]


def test_files_have_the_endings_of_their_kind_in_any_case(tmp_path):
    done("info", "--json", tmp_path / "FACTS.JSON")
    (tmp_path / "folder.json").mkdir()
    assert "is a folder" in refused("info", "--json", tmp_path / "folder.json")


@pytest.mark.parametrize("command", [*SMALL, "fit"])
def test_tables_fit_a_terminal_with_their_first_column(command, times, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = done(*small(command)).stdout
    lines = shown.splitlines()
    at = next(number for number, line in enumerate(lines) if set(line.strip()) == {"─"})
    body = lines[at + 1 : next(n for n in range(at + 1, len(lines)) if not lines[n].strip())]
    assert all(len(line) <= 80 for line in lines)
    assert not any(line.endswith(":") for line in lines)  # what a word means is in its line
    for line in body:
        name = line.split()[0]
        assert "…" not in name
        if command in SMALL:
            assert re.match(r"binary|uncoded", name)
    if command in ("codes", "simulate", "stability"):
        assert "Codes: binary, uncoded (waits for all)." in shown.replace("\n", " ")
        assert "Codes: " not in done(*small(command), "--markdown").stdout


def test_timelines_are_drawn(drawn, monkeypatch):
    command = "train", "-n", "4/1", "--rounds", "5", "--engine", "simulated", "rs,uncoded"
    result = done(*command, "--timeline", "rounds.svg")
    assert "timeline written to rounds.svg" in result.stderr
    titles = [axes.get_title(loc="left") for axes in drawn["rounds.svg"].axes]
    assert [title.partition(": ")[0] for title in titles] == [
        "rs (Reed-Solomon)",
        "uncoded (waits for all)",
    ]
    assert all(": 3 rounds in " in title for title in titles)
    # The command checks what it needs before anything runs.
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    line = refused(*command, "--timeline", "rounds.svg", status=1)
    assert "pictures need matplotlib" in line


@pytest.mark.parametrize(("width", "points"), [("single", 252), ("double", 515.52), ("slide", 900)])
def test_pictures_have_the_width_that_is_asked_for(width, points, drawn):
    """The width is in points, for a paper's column, its page or a slide."""
    command = "simulate", "rs", "-n", "6", "-s", "1", "--rounds", "50"
    done(*command, "--plot", "rounds.pdf", "--width", width)
    figure = drawn["rounds.pdf"].get_figure()
    assert 72 * figure.get_figwidth() == pytest.approx(points)


def test_pictures_are_files(tmp_path):
    path = tmp_path / "rounds.pdf"
    result = done("simulate", "rs", "-n", "6", "-s", "1", "--rounds", "50", "--plot", path)
    assert f"plot written to {path}" in result.stderr
    assert path.read_bytes().startswith(b"%PDF")
    assert b"/Type3" not in path.read_bytes()  # fonts that journals refuse


def test_csv_line_writes_numbers_in_full():
    assert csv_line(["a,b", 0.1 + 0.2, math.nan, math.inf, None, 3]) == (
        '"a,b",0.30000000000000004,,inf,,3\n'
    )


def test_seconds_are_written_for_narrow_columns():
    assert microseconds(1.25e-3) == "1250.0"
    for seconds, text in (
        (1.2345e-3, "1.23"),
        (0.9994, "999"),
        (0.9996, "1000"),
        (12.3456, "12346"),
        (999.9994, "999999"),
        (1234.5, "1.2e+06"),
        (math.inf, "inf"),
    ):
        assert milliseconds(seconds) == text, seconds
    assert [milliseconds(each, 2) for each in (0.0123, 0.0994, 0.0996)] == ["12", "99", "100"]


def test_json_of_nothing_finite_is_null():
    found = commands.figures("simulate", "rs", "-n", "3", "-s", "1", "--rounds", "9")
    assert found["rs"]["residual"] is None
