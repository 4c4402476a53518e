"""Histories: what is in a file of them, and what is summed up over rounds."""

import copy
import math
from dataclasses import replace

import pytest
from toys import made_up, toy

import fastgc
from fastgc import delays
from fastgc.training.history import (
    Spent,
    equal_error,
    equal_loss,
    left_out,
    read_json,
    record_of,
    round_rows,
    write_json,
)

WAITS = delays.Exponential(0.001)


def with_errors(*errors):
    history = made_up(*((time, 2 / time) for time in range(1, len(errors) + 1)))
    pairs = zip(history.rounds, errors, strict=True)
    history.rounds[:] = [replace(record, test_error=error) for record, error in pairs]
    return history


def test_equal_error():
    low, high = with_errors(3.0, 1.0, 2.0), with_errors(math.nan, 1.5)
    assert equal_error([low, high]) == equal_error([high, low]) == 1.5
    assert equal_error([low, with_errors(math.nan)]) == math.inf


def test_seconds_to():
    history = with_errors(0.4, 0.2, 0.1)
    assert [history.seconds_to(e) for e in (0.4, 0.39, 0.1, 0.09)] == [1, 2, 3, math.inf]


def test_spent_by_hand():
    """Eqs. (5), (6) of Zhu et al., for G-CADA with 3 groups of M_G = 4 and mini-batches of 10."""
    history = made_up(
        (0.5, 2.0, 12, 3, 120),
        (0.75, 1.5, 4, 1, 40),
        (0.75, 1.8, 0, 0, 0),
        (1.5, math.nan, 8, 2, 80),
        (2.0, 1.0, 4, 1, 40),
    )
    assert history.spent(3.0) == (1, 0.5, 15, 120)
    assert history.spent(2.0) == (1, 0.5, 15, 120)
    assert history.spent(1.9) == (2, 0.75, 20, 160)
    assert history.spent(1.4) == Spent(5, 2.0, 35, 280)
    assert history.spent(0.9) is None
    assert made_up().spent(1.0) is None


def test_equal_loss():
    low = made_up((1.0, 0.5, 0, 0, 0), (2.0, 0.7, 0, 0, 0))
    high = made_up((1.0, math.nan, 0, 0, 0), (2.0, 0.9, 0, 0, 0), (3.0, math.nan, 0, 0, 0))
    assert equal_loss([low]) == 0.5
    assert equal_loss([low, high]) == equal_loss([high, low]) == 0.9
    diverged = made_up((1.0, math.nan, 0, 0, 0))
    assert equal_loss([low, diverged]) == math.inf


def test_read_json_what_was_written(tmp_path):
    history = fastgc.train(fastgc.Uncoded(3), toy(), rounds=3, engine="simulated", name="a b")
    path = tmp_path / "runs.json"
    write_json([history, made_up((1.0, math.inf, 1, 2, 3))], path)
    read, diverged = read_json(path)
    assert repr(read.rounds) == repr(history.rounds)
    assert {**read.to_dict(), "rounds": 0} == {**history.to_dict(), "rounds": 0}
    assert math.isnan(diverged.rounds[0].loss)
    path.write_text("[]")  # a file without a run
    assert read_json(path) == []


def test_load_of_a_run():
    for code in (
        fastgc.Uncoded(4),
        fastgc.ReedSolomon(4, 8, stragglers=1),
        fastgc.GraphCode(6, degree=3, wait=4),
    ):
        history = fastgc.train(code, toy(), rounds=1, engine="simulated")
        held = sum(len(code.partitions(i)) for i in range(code.n)) / code.k
        assert history.load == pytest.approx(held)


def test_loss_at():
    history = made_up((0.5, 2.0), (1.0, 1.5), (2.0, 2.5))
    history.rounds[1] = replace(history.rounds[1], evaluated=False, loss=math.nan)
    assert math.isnan(history.loss_at(0.4))
    assert history.loss_at(0.5) == history.loss_at(1.9) == 2.0
    assert history.loss_at(math.inf) == 2.5  # the last, not the least


def test_residual_is_a_root_mean_square():
    history = made_up((0.5, 2.0), (1.0, 1.5))
    history.rounds[:] = [
        replace(r, residual=x) for r, x in zip(history.rounds, (3, 4), strict=True)
    ]
    assert history.residual() == pytest.approx(math.sqrt(12.5))
    assert math.isnan(made_up().residual())


def test_residual_that_nobody_computed():
    """Rounds of codes that decode by a formula leave out nothing, but one that approximates may."""
    history = made_up((0.5, 2.0), (1.0, 1.5))
    assert math.isnan(history.residual())
    history.rounds[1] = replace(history.rounds[1], residual=0.5)
    assert history.residual() == pytest.approx(0.5 / math.sqrt(2))


def test_round_rows():
    code = fastgc.FractionalRepetition(4, load=2, wait=2)
    run = fastgc.train(code, toy(), rounds=3, engine="simulated", delays=WAITS, evaluate_every=2)
    other = made_up((0.5, 2.0), name="y")
    rows = list(round_rows([run, other]))
    assert [row["run"] for row in rows] == [run.name] * 3 + ["y"]
    assert [row["round"] for row in rows] == [1, 2, 3, 1]
    assert [row["load"] for row in rows[:3]] == [2.0] * 3
    assert [row["workers"] for row in rows[:3]] == [2] * 3
    assert [row["evaluated"] for row in rows[:3]] == [False, True, True]
    for row, record in zip(rows, run.rounds, strict=False):
        assert (row["time"], row["residual"]) == (record.time, record.residual)


GOOD = {
    "round": 1,
    "time": 0.5,
    "wait": 0,
    "decode": 0.0,
    "survivors": [2],
    "messages": 1,
    "stale": 0,
    "loss": None,
    "test_error": 1,
    "stood_in": [[1, 2, 0.5]],
}


def test_record_of_what_json_holds():
    record = record_of(GOOD)
    assert (record.survivors, record.stood_in) == ((2,), ((1, 2, 0.5),))
    assert math.isnan(record.loss)
    assert (record.test_error, record.evaluated) == (1, True)
    assert math.isnan(record.residual)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("round", 1.0),
        ("round", True),
        ("round", None),
        ("time", "0.5"),
        ("time", True),
        ("survivors", 2),
        ("survivors", [2.5]),
        ("arrivals", ["x"]),
        ("stood_in", [[1, 2]]),
        ("stood_in", [[1, 0.5, 0.5]]),
        ("verified", 1),
        ("other", 1),
    ],
)
def test_record_of_refused(name, value):
    with pytest.raises(TypeError, match=name):
        record_of(GOOD | {name: value})


def test_record_of_lacks_a_number():
    with pytest.raises(TypeError, match="must have 'messages'"):
        record_of({name: value for name, value in GOOD.items() if name != "messages"})
    with pytest.raises(TypeError, match="must be an object"):
        record_of([1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"measure": "error"', '"measure": 7'),
        ('"message_counts": []', '"message_counts": [1.5]'),
        ('"load": null', '"load": "1"'),
        ('"load": null', '"load": true'),
        ('"rounds": [', '"rounds": [[], '),
        ('"rounds"', '"others"'),
        ("[", "[1, "),
    ],
)
def test_read_json_refused(before, after, tmp_path):
    path = tmp_path / "runs.json"
    write_json([made_up((1.0, 1.0, 1, 2, 3))], path)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(ValueError, match=r"runs.json is no history of runs of training"):
        read_json(path)


def test_left_out():
    assert [left_out(r) for r in (math.nan, 0.0, 3e-12, 0.123)] == ["–", "0", "3e-12", "0.12"]


def test_repr_of_a_history_tells_its_errors():
    history = with_errors(0.4, 0.5, 0.25, 0.125)
    history.rounds[0] = replace(history.rounds[0], evaluated=False)
    assert "loss 1 to 0.5, test error 50% to 12.5%)" in repr(history)
    history.measure = "RMSE"
    history.rounds[3] = replace(history.rounds[3], residual=0.5, deaths=3)
    assert "test RMSE 0.5 to 0.125, approximate gradients 1, deaths 3)" in repr(history)
    assert repr(made_up()).endswith("rounds 0)")
    told = repr(replace(history.rounds[3], corrupt=(1, 4)))
    assert "loss 0.5, test error 0.125, approximate, residual 0.5, corrupt: workers 1, 4)" in told


def test_history_equals_a_copy_and_one_that_is_read(tmp_path):
    """Also where numbers are NaN; parameters count, which files do not keep."""
    history = toy_history()
    assert math.isnan(history.load) or any(math.isnan(r.rounding) for r in history.rounds)
    same = copy.deepcopy(history)
    assert history == same
    assert history in [same]
    assert history != "history"
    for other in (
        replace(history, name="another"),
        replace(history, theta=history.theta + 1),
        replace(history, theta=history.theta[:-1]),
        replace(history, rounds=history.rounds[:-1]),
        replace(history, rounds=[*history.rounds[:-1], replace(history.rounds[-1], loss=7.0)]),
    ):
        assert history != other
    write_json([history], tmp_path / "one.json")
    (read,) = read_json(tmp_path / "one.json")
    assert read == replace(history, theta=read.theta)


def toy_history():
    return fastgc.train(fastgc.BinaryCode(4, stragglers=1), toy(), rounds=3, engine="simulated")
