"""Tables and bars show names as they are."""

import io
import logging
import unicodedata
from pathlib import Path

import pytest

pytest.importorskip("rich")

from rich.console import Console

from fastgc._base import progress
from fastgc._base.progress import folded, logged_above, rich_table, share_bar, task_bar

NAMES = ["own:Ring:load=3", "own:Code:kind=[bold]", "[/]"]


def shown(table):
    file = io.StringIO()
    Console(file=file, width=200).print(table)
    return file.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_no_markup(name):
    text = shown(progress.Shown(f"{name}, 12 workers", ["code", name], [[name, name]]))
    assert text.count(name) == 4


@pytest.mark.parametrize("bar", [task_bar, share_bar])
def test_without_a_terminal_work_that_takes_long_says_so_in_one_line(bar, monkeypatch, capsys):
    times = iter([0.0, 1.0, 2.5, 9.0])
    monkeypatch.setattr("fastgc._base.progress.time.monotonic", lambda: next(times))
    with bar("measuring", 4) as show:
        for part in range(3):
            show() if bar is task_bar else show(part, 1, 1)
    out, err = capsys.readouterr()
    assert err == "measuring: 50% after 2 s\n"
    assert not out


def test_without_a_terminal_work_that_ends_soon_says_nothing(capsys):
    with task_bar("measuring", 2) as show:
        show()
        show()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar(monkeypatch):
    told = []

    class Bar:
        def __init__(self, console, transient):
            told.append(transient)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            told.append("over")

        def add_task(self, name, total):
            told.append((name, total))
            return 7

        def update(self, task, completed):
            told.append((task, completed))

    monkeypatch.setattr(progress, "Progress", Bar)
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(force_terminal=stderr))
    with task_bar("measuring", 3) as show:
        show()
        show()
    with share_bar("drawing", 4) as show:
        show(2, 1, 4)
    assert told == [
        *(True, ("measuring", 3), (7, 1), (7, 2), "over"),
        *(True, ("drawing", 4), (7, 2.25), "over"),
    ]


@pytest.mark.parametrize(("level", "shown"), [(logging.NOTSET, True), (logging.WARNING, False)])
def test_logged_above_prints_information_unless_the_program_chose(level, shown):
    log, file = logging.getLogger("fastgc"), io.StringIO()
    before = log.level, list(log.handlers)
    log.setLevel(level)
    try:
        with logged_above(Console(file=file, width=9)):
            log.info("[bold] is no markup, nor folded")
        assert (log.level, log.handlers) == (level, before[1])
    finally:
        log.setLevel(before[0])
    assert file.getvalue() == shown * "[bold] is no markup, nor folded\n"


@pytest.mark.parametrize(
    ("width", "heading", "whole"),
    [
        (17, "mean time", True),
        (16, "mean\ntime", True),
        (12, "mean\ntime", True),
        (11, "mean\ntime", False),
    ],
)
def test_rich_table_breaks_headings_that_are_too_wide(width, heading, whole, monkeypatch):
    """Each column takes its longest text and two blanks; names fold only if they must."""
    monkeypatch.setenv("COLUMNS", str(width))
    name, time = rich_table("", ["code", "mean time"], [["rs", "1.25"]]).columns
    assert time.header.plain == heading
    assert name.no_wrap == whole
    assert (name.justify, name.overflow, name.min_width) == ("left", "fold", None)
    assert (time.justify, time.overflow, time.min_width) == ("right", "ellipsis", 4)
    assert not time.no_wrap


def test_rich_table_folds_long_names(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for length in (30, 31):
        name, _ = rich_table("", ["code", "time"], [["a" * length, "1"]]).columns
        assert name.no_wrap == (length == 30)
    assert [each.min_width for each in rich_table("", ["code", "time"], []).columns] == [None, 0]
    with pytest.raises(ValueError, match="zip"):  # a row lacks a number
        rich_table("", ["code", "time"], [["rs"]])


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
def test_folded_tables_have_all_numbers_whole(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    head = ["code", *("load", "mean time ms", "99%", "workers", "sent", "amplif.", "error")]
    rows = [[name, *(f"{at}.{'1' * at}" for at in range(1, 8))] for name in ("rs", "binary-code")]
    parts = list(folded(head, rows))
    assert [heading for part, _ in parts for heading in part[1:]] == head[1:]
    for at, row in enumerate(rows):
        assert [cell for _, body in parts for cell in body[at][1:]] == row[1:]
        assert all(body[at][0] == row[0] for _, body in parts)
    assert (len(parts) == 1) == (width >= 80)
    for part in parts:
        console = Console()
        with console.capture() as text:
            console.print(rich_table("", *part))
        assert all(len(line.rstrip()) <= width for line in text.get().splitlines())
        assert all(cell in text.get() for row in part[1] for cell in row[1:])


def test_latex_table():
    """What LaTeX takes for more than a letter is written in its own words."""
    rows = [["[a_b] & ~^#", "1e-16", "-2.5", "50%"], ["*x|`{\\}", "-3e+08", "–2 µs…", "--csv"]]
    lines = progress.latex_table("error, α ≤ 1", ["a$b", "n²", "time, s", ""], rows).split("\n")
    assert lines[2:4] == [r"  \caption{error, $\alpha$ $\le$ 1}", r"  \begin{tabular}{lrrr}"]
    assert [line.strip() for line in lines if line.endswith(r"\\")] == [
        r"a\$b & n$^2$ & time, s &  \\",
        r"{}[a\_b] \& \textasciitilde{}\textasciicircum{}\# & $1 \cdot 10^{-16}$ & $-$2.5 & "
        r"50\% \\",
        r"{}*x\textbar{}\textasciigrave{}\{\textbackslash{}\} & $-3 \cdot 10^{8}$ & "
        r"\textendash{}2 \textmu{}s\ldots{} & -{}-csv \\",
    ]


def test_latex_table_with_a_note():
    lines = progress.latex_table("a", ["b"], [["c"]], "5%: a part").splitlines()
    assert lines[-3:] == [
        r"  \end{tabular}",
        r"  \par\smallskip\footnotesize 5\%: a part",
        r"\end{table}",
    ]


def test_latex_table_has_words_for_all_letters_of_commands():
    for file in (Path(progress.__file__).parents[1] / "cli").glob("*.py"):
        for letter in set(file.read_text(encoding="utf-8")):
            text = progress.latex_table(letter, [""], [])
            assert text.isascii() or unicodedata.name(letter).startswith("LATIN"), letter


def test_markdown_table():
    lines = progress.markdown_table("title", ["a", "b", "c"], [["1", "2", "3"]], text=2)
    assert lines.splitlines() == [
        *("title", "", "| a | b | c |"),
        *("| --- | --- | ---: |", "| 1 | 2 | 3 |"),
    ]
