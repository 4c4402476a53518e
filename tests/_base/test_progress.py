"""Tables and bars show names as they are."""

import io

import pytest

pytest.importorskip("rich")

from rich.console import Console

import fastgc
from fastgc._base.progress import rich_table, share_bar, task_bar
from fastgc.training.tables import comparison_table

NAMES = ["own:Ring:load=3", "own:Code:kind=[bold]", "[/]"]


def shown(table):
    file = io.StringIO()
    Console(file=file, width=200).print(table)
    return file.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_no_markup(name):
    text = shown(rich_table(f"{name}, 12 workers", ["code", name], [[name, name]]))
    assert text.count(name) == 4


def test_a_name_of_a_run_is_no_markup():
    code = fastgc.FractionalRepetition(4, stragglers=1)
    history = fastgc.train(code=code, engine="simulated", rounds=2)
    history.name = NAMES[0]
    assert NAMES[0] in shown(comparison_table([history], 0.05))


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
