"""Recordings of times: what they hold, and the files that they are read from."""

import json
import math

import numpy as np
import pytest

from fastgc.delays import Empirical
from fastgc.planning import Recording


@pytest.mark.parametrize(
    ("times", "cost", "text"),
    [
        ([1.0, 2.0], 0.0, r"rounds and workers, not of shape \(2,\)"),
        ([[1.0, -2.0]], 0.0, "positive seconds"),
        ([[1.0, 0.0]], 0.0, "positive seconds"),
        ([[1.0, math.inf]], 0.0, "positive seconds"),
        ([[1.0, 2.0]], -1.0, "cost must be"),
    ],
)
def test_recording_refused(times, cost, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        Recording(np.array(times), cost)
    path = tmp_path / "times.json"
    path.write_text(json.dumps({"times": times, "cost": cost, "source": ""}))
    with pytest.raises(ValueError, match="is no recording of.*" + text):
        Recording.read(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="it holds no times"):
        Recording.read(path)


def test_recording_of_other_types():
    with pytest.raises(ValueError, match=r"per must be .*'day'"):
        Recording([[1.0]], 0.0, per="day")
    with pytest.raises(TypeError, match=r"times must .*not complex128"):
        Recording(np.ones((2, 2), complex), 0.0)
    with pytest.raises(TypeError):  # not a file descriptor, which would be closed
        Recording.read(1)


TIMES = np.random.default_rng(0).random((7, 4))


def test_read_tables(tmp_path):
    path = tmp_path / "times.csv"
    np.savetxt(path, TIMES + 1, delimiter=",", fmt="%.17g")
    read = Recording.read(path, cost=0.25)
    assert np.array_equal(read.times, TIMES + 1)
    assert (read.cost, read.per, read.source) == (0.25, "round", "7 rounds of 4 workers, times.csv")
    assert np.allclose(read.delays.samples, TIMES + 0.75)
    read = Recording.read(path, unit="ms", per="computation")
    assert (read.cost, read.per) == (0, "computation")
    assert np.array_equal(read.times, (TIMES + 1) / 1000)
    listed = tmp_path / "times.json"
    listed.write_text(json.dumps(TIMES.tolist()))
    assert np.array_equal(Recording.read(listed, cost=0).times, TIMES)
    for settings, says in (
        ({}, r"times\.csv: give cost .*how many seconds of each time compute one"),
        ({"cost": 0.1, "per": "computation"}, "times per computation have no further cost, not"),
        ({"cost": -1}, "cost must be"),
    ):
        with pytest.raises(ValueError, match=says):
            Recording.read(path, **settings)
    path.write_text("1,2,3")
    with pytest.raises(ValueError, match="not a single row or column of 3"):
        Recording.read(path, cost=0)
    written = tmp_path / "recording.json"
    written.write_text(json.dumps(read.to_dict()))
    assert np.allclose(Recording.read(written).times, read.times, atol=1e-7)
    with pytest.raises(ValueError, match="leave out cost, unit, per and columns"):
        Recording.read(written, cost=0.1)


def test_delays_are_times_without_cost():
    """A time below the cost is no negative delay."""
    recording = Recording([[0.001, 0.02], [0.01, 0.005]], cost=0.005)
    expected = [[0, 0.015], [0.005, 0]]
    np.testing.assert_allclose(recording.delays.samples, expected, atol=1e-15)
    assert recording.delays.per == "round"
    each = Recording([[0.001, 0.02]], 0.0, per="computation")
    assert each.delays == Empirical([[0.001, 0.02]], "computation")


def test_to_dict_rounds_to_tenths_of_microseconds():
    held = Recording([[0.12345678, 2]], 0.25, "a run", "computation").to_dict()
    expected = {"source": "a run", "cost": 0.25, "per": "computation", "times": [[0.1234568, 2.0]]}
    assert held == expected
