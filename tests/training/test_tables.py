"""Tables and bars of training runs."""

import math
from functools import partial

import numpy as np
import pytest
from toys import made_up, toy

import fastgc
from fastgc.delays import Pareto
from fastgc.engines import SimulatedCluster
from fastgc.training.models import MLP

NETWORK = MLP(4, 3, hidden=(5, 6), activation="tanh")


CODE = fastgc.ReedSolomon(6, stragglers=2)


narrow = partial(toy, features=4)


train_network = partial(
    fastgc.train, CODE, model=NETWORK, engine="simulated", delays=Pareto(0.01, 1.5)
)


def test_training_bar_keeps_what_was_last_evaluated(capsys):
    from fastgc.training.tables import training_bar

    history = train_network(narrow(), rounds=5, evaluate_every=3)
    with training_bar("x", 5, 6) as show:
        show(history.rounds[0])
        show(history.rounds[1])
    assert "loss" not in capsys.readouterr().err
    with training_bar("x", 5, 6) as show:
        for record in history.rounds[:4]:
            show(record)
    shown = capsys.readouterr().err
    assert f"loss {history.rounds[2].loss:.3f}" in shown
    assert "nan" not in shown


def test_tables_and_pictures_show_what_was_evaluated(tmp_path):
    from rich.console import Console

    from fastgc.training.tables import comparison_table, spending_table

    plotting = pytest.importorskip("fastgc.plotting")
    pytest.importorskip("matplotlib")
    history = train_network(narrow(), rounds=7, evaluate_every=3)
    losses, by_time, _, by_messages = (
        panel.lines[0] for panel in plotting.spending_panels([history], True)
    )
    shown = [history.rounds[at] for at in (2, 5, 6)]
    scale = 1.0 if history.rounds[-1].time >= 1 else 1e3
    np.testing.assert_allclose(losses.x, [scale * r.time for r in shown])
    np.testing.assert_array_equal(losses.y, [r.loss for r in shown])
    assert by_time.x.size == 7
    spent = np.cumsum([r.downloads + r.uploads for r in history.rounds])
    np.testing.assert_array_equal(by_messages.x, spent[[2, 5, 6]])
    [ax] = plotting.error_curves([history]).axes
    times = [r.time for r in shown]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), times)
    console = Console(width=120)
    with console.capture() as printed:
        console.print(comparison_table([history], 0.5), spending_table([history], math.inf))
    text = printed.get()
    assert f"{history.rounds[-1].loss:.4f}" in text
    assert "nan" not in text


def test_spending_table():
    from rich.console import Console

    from fastgc.training.tables import spending_table

    runs = [
        made_up((0.5, 2.0, 12, 3, 120), (1.0, 1.0, 4, 1, 40), name="gcada"),
        made_up((2.0, 1.5, 12, 12, 120), (4.0, 0.5, 12, 12, 120), name="adam"),
        made_up((1.0, 3.0, 12, 12, 120), name="sgd"),
    ]
    console = Console(width=120)
    with console.capture() as shown:
        console.print(spending_table(runs, 1.0))
    lines = [line.split() for line in shown.get().splitlines() if line.strip()]
    assert shown.get().strip().startswith("to a training loss of 1")
    assert ["gcada", "2", "1", "20", "160"] in lines
    assert ["adam", "2", "4", "(4.00x)", "48", "(2.40x)", "240", "(1.50x)"] in lines
    assert ["sgd", "never"] in lines
    # A run that takes no time has no ratio.
    timeless = [made_up((0.0, 1.0, 4, 4, 4)), made_up((0.0, 1.0, 2, 4, 4))]
    with console.capture() as shown:
        console.print(spending_table(timeless, 1.0))
    assert "6 (0.75x)" in shown.get()
    assert "never" not in shown.get()


def test_comparison_table_shows_deaths():
    from rich.console import Console

    from fastgc.training.tables import comparison_table

    class Mortal(SimulatedCluster):
        def step(self, theta, out):
            report = super().step(theta, out)
            return report._replace(deaths=report.round)

    history = fastgc.train(fastgc.Uncoded(3), toy(), rounds=4, engine=Mortal)
    assert [r.deaths for r in history.rounds] == [0, 1, 2, 3]
    console = Console(width=120)
    with console.capture() as shown:
        console.print(comparison_table([history], 0.05))
    assert "deaths" in shown.get()
    assert "left" not in shown.get()
    assert "Uncoded" in shown.get()
