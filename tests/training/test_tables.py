"""Tables and bars of training runs."""

import math
from dataclasses import replace

from toys import made_up

from fastgc.training.tables import (
    comparison_table,
    loss_table,
    spending_table,
    training_bar,
)


def test_spending_table():
    runs = [
        made_up((0.5, 2.0, 12, 3, 120), (1.0, 1.0, 4, 1, 40), name="gcada"),
        made_up((2.0, 1.5, 12, 12, 120), (4.0, 0.5, 12, 12, 120), name="adam"),
        made_up((1.0, 3.0, 12, 12, 120), name="sgd"),
    ]
    assert spending_table(runs, 1.0) == (
        "to a training loss of 1",
        ["method", "rounds", "time s", "communication", "computation"],
        [
            ["gcada", "2", "1", "20", "160"],
            ["adam", "2", "4 (4.00x)", "48 (2.40x)", "240 (1.50x)"],
            ["sgd", "never", "", "", ""],
        ],
    )
    # A run that takes no time has no ratio.
    timeless = [made_up((0.0, 1.0, 4, 4, 4)), made_up((0.0, 1.0, 2, 4, 4))]
    assert spending_table(timeless, 1.0).rows[1] == ["x", "1", "0", "6 (0.75x)", "4 (1.00x)"]
    # The first run never ends there: other runs have no ratio to it.
    assert spending_table(runs[::-1], 1.0).rows[2] == ["gcada", "2", "1", "20", "160"]


def by_hand(name, times, **changes):
    """Return a history of rounds at these times, and lists of what differs in them."""
    history = made_up(*((time, 2.0 / at) for at, time in enumerate(times, 1)), name=name)
    for at in range(len(times)):
        now = {key: values[at] for key, values in changes.items()}
        history.rounds[at] = replace(history.rounds[at], **now)
    return history


def test_comparison_table():
    one = by_hand(
        "one", (0.25, 5.0, 10.0), test_error=(0.5, 0.125, 0.25), survivors=((1, 2), (1,), (0, 1)),
        messages=(2, 1, 3), wait=(0.002, 0.004, 0.005), decode=(1e-6, 3e-6, 4e-6),
    )  # fmt: skip
    two = by_hand("two", (0.5, 1.0), test_error=(0.5, 0.5))
    head = ["scheme", "time s", "to 12.5%", "error", "loss"]
    head += ["workers", "msgs", "wait ms", "dec. µs"]
    row = ["one", "10.0", "5", "25.00%", "0.6667", "1.7", "2.0", "4.0", "3"]
    other = ["two", "1", "never", "50.00%", "1.0000", "0.0", "0.0", "0.0", "0"]
    assert comparison_table([one, two], 0.125) == ("2 to 3 rounds", head, [row, other])
    assert comparison_table([one], 0.125).title == "3 rounds each"
    one.measure = "RMSE"
    shown = comparison_table([one], 0.2)
    assert shown.head[2:5] == ["to 0.2", "RMSE", "loss"]
    assert shown.rows[0][2:5] == ["5", "0.25", "0.667"]


def test_comparison_table_of_what_is_rare():
    """Rounding, deaths and residuals have columns if one run has any."""
    plain = by_hand("plain", (1.0, 2.0))
    tracked = by_hand("tracked", (1.0, 2.0, 3.0), rounding=(2e-10, math.nan, 3e-12))
    dying = by_hand("dying", (1.0, 2.0), deaths=(1, 3))
    rough = by_hand("rough", (1.0, 2.0), residual=(0.3, 0.4))
    assert comparison_table([plain], 0.1).head[8:] == ["dec. µs"]
    shown = comparison_table([plain, tracked, dying, rough], 0.1)
    assert shown.head[8:] == ["rounding", "deaths", "left out"]
    assert [row[8:] for row in shown.rows] == [
        ["nan", "0", "–"],
        ["2e-10", "0", "–"],
        ["nan", "3", "–"],
        ["nan", "0", "0.35"],
    ]


def test_loss_table():
    one, two = by_hand("one", (1.0, 2.0, 4.0)), by_hand("two", (1.5, 8.0), residual=(0.0, 0.2))
    one.load = 2.5
    assert loss_table([one, two]) == (
        "training loss after",
        ["scheme", "load", "left out", "1 s", "2 s", "4 s", "in the end"],
        [
            ["one", "2.5", "–", "2", "1", "0.667", "0.667"],
            ["two", "nan", "0.14", "", "2", "2", "1"],
        ],
    )


def test_training_bar(capsys):
    record = made_up((1.0, 0.4567)).rounds[0]
    rough = replace(record, residual=0.5, decode=3e-6, survivors=(1, 2))
    unknown = replace(record, loss=math.nan, test_error=math.nan, evaluated=False)
    for options, records, said, unsaid in (
        ({"done": 2, "measure": "RMSE"}, [rough], "3/5  loss 0.457  RMSE 0.5  2/6", "%"),
        ({}, [rough], "2/6 workers  3 µs  approximate", "nan"),
        ({}, [record], "1/5  loss 0.457  error 50.00%  0/6 workers", "approximate"),
        ({}, [unknown], "1/5  0/6 workers", "loss"),
        ({}, [record, unknown], "2/5  loss 0.457  error 50.00%  0/6", "nan"),  # the last known
    ):
        with training_bar("run", 5, 6, **options) as show:
            for each in records:
                show(each)
        shown = capsys.readouterr().err
        assert said in shown
        assert unsaid not in shown
