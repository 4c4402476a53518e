"""Tables and bars for people: names are shown as they are."""

import io

import pytest

pytest.importorskip("rich")

from rich.console import Console

import fastgc
from fastgc.progress import comparison_table, rich_table

pytestmark = pytest.mark.any_backend

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
