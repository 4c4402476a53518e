"""The program of papers' figures: what it prints, draws and refuses."""

import json
import sys
from pathlib import Path

import programs
import pytest
from papers import __main__ as program
from papers import halbawi
from papers.figure import FIGURES, Figure

ROOT = Path(__file__).parents[2]


def test_the_same_seed_gives_the_same_figure():
    first, again, other = (
        [row.ours for row in FIGURES["zhu-5"](seed=seed, rounds=100).rows] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_the_program_prints_and_draws(tmp_path, capsys):
    program.main(["halbawi-3", "ozfatura-1", "--rounds", "500", "--plot", str(tmp_path / "a.png")])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {8}
    assert lines[2].startswith("| halbawi2017 figure 3 | optimal fraction α*, eq. (22) | N c_g = ")
    assert lines[2].endswith(" | 0.1477 | 0.1477 |  | +0.0% |")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    program.main(["zhu-5", "--rounds", "500", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert {row["figure"] for row in rows} == {"zhu2022 section V", "zhu2022 figure 2"}
    program.main(["--list"])
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == sorted(
        FIGURES
    )


def test_data_are_for_figures_that_train(monkeypatch):
    seen = []

    def figure(*, data="own", seed=0):
        seen.append(data)
        return Figure("halbawi-2", "", [])

    monkeypatch.setitem(FIGURES, "halbawi-2", figure)
    program.main(["halbawi-2"])
    program.main(["halbawi-2", "--data", "digits"])
    assert seen == ["own", "digits"]
    monkeypatch.undo()
    monkeypatch.setattr(halbawi, "glyphs", lambda **options: seen.append(options) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        halbawi.figure_2(seed=4)
    assert seen[-1] == {"seed": 4}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["halbawi-9"], "there is no figure 'halbawi-9': choose among charalambides-5"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--seed", "-1"], "--seed must not be negative"),
    ],
)
def test_wrong_words_are_named(words, says, capsys):
    with pytest.raises(SystemExit):
        program.main(words)
    assert says in capsys.readouterr().err


def test_it_runs_from_a_checkout():
    done = programs.run([sys.executable, "-m", "benches.papers", "--list"], folder=ROOT)
    assert done.stdout.startswith("charalambides-5: ")


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(FIGURES.keys() - {"halbawi-2", "zhu-2", "li-2"}))
def test_figures_are_made_of_few_rounds(name):
    """Those left out are computed with even fewer by tests above."""
    assert program.compute(name, rounds=100, seed=0).rows
