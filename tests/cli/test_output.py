"""Tables, files of figures and pictures, of every command."""

import csv
import json
import math
import re
import sys

import commands
import numpy as np
import pytest
from commands import SMALL, done, refused

from fastgc.cli.output import check_drawn, csv_line, microseconds, milliseconds


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
    ):
        assert says in refused(*small(command), option, wrong)
    assert "cannot both be printed" in refused(*small(command), "--csv", "--json", "-")


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
    assert all(len(line) <= 80 for line in lines[: at + len(body)])
    for line in body:
        name = line.split()[0]
        assert "…" not in name
        if command in SMALL:
            assert re.match(r"binary|uncoded", name)
    if command in ("codes", "simulate", "stability"):
        assert "Codes: binary, uncoded (waits for all)." in shown.replace("\n", " ")
        assert "Codes: " not in done(*small(command), "--markdown").stdout


@pytest.mark.parametrize(
    "command",
    [
        ("train", "-n", "4/1", "--rounds", "5", "--engine", "simulated", "rs,uncoded"),
        ("simulate", "rs,uncoded", "-n", "4/1", "--rounds", "50"),
    ],
    ids=lambda words: words[0],
)
def test_timelines_are_drawn(command, drawn, monkeypatch):
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


def test_check_drawn():
    check_drawn("abcdefgh", "name some")
    with pytest.raises(ValueError, match="at most 8 codes in one picture, not 9: name some"):
        check_drawn("abcdefghi", "name some")


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
