"""Times of steps, as a table that grows by a row with each."""

import warnings

import pytest

pytest.importorskip("torch")

from fastgc.torch.times import Times


def test_end_step_writes_a_row_of_equal_shares(tmp_path):
    times = Times(tmp_path / "times.csv")
    for writes in (True, False, True):
        times.add([0, 2], [1.0, 3.0], [1, 3])
        times.end_step(writes)
    times.end_step(True)  # without a sum
    assert (tmp_path / "times.csv").read_text() == "2,,2\n" * 2


def test_end_step_warns_once_where_nothing_can_be_written():
    times = Times("/dev/full")
    times.add([0], [1.0], [1])
    with pytest.warns(UserWarning, match="times of steps are no longer written: .*No space left"):
        times.end_step(True)
    times.add([0], [1.0], [1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        times.end_step(True)
