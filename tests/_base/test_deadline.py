"""When waits end: one object for all of them."""

import math
import re
import threading
import time
from pathlib import Path

import pytest

from fastgc._base import deadline
from fastgc._base.deadline import LONGEST, Deadline, in_time


@pytest.fixture
def clock(monkeypatch):
    """Time passes in sleeps alone; return what was slept."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + sum(slept))
    return slept


def test_deadline_counts_from_its_beginning(clock):
    end = Deadline(10.0)
    assert (end.waited, end.left) == (0.0, 10.0)
    time.sleep(4.0)
    assert (end.waited, end.left) == (4.0, 6.0)
    time.sleep(7.0)
    assert (end.waited, end.left) == (11.0, 0.0)


def test_deadline_sleeps_no_longer_than_until_its_end(clock):
    end = Deadline(10.0)
    assert end.sleep(4.0)
    assert end.sleep(7.0)
    assert not end.sleep(7.0)
    assert clock == [4.0, 6.0, 0.0]


@pytest.mark.parametrize("seconds", [math.inf, 1e300])
def test_deadline_without_end_fits_into_calls_of_the_system(clock, seconds):
    end = Deadline() if seconds == math.inf else Deadline(seconds)
    time.sleep(1e6)
    assert end.left == LONGEST < 2**31 / 1e3
    assert end.sleep(1.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, -math.inf])
def test_deadline_that_is_over_at_once(clock, seconds):
    assert Deadline(seconds).left == 0.0
    assert not Deadline(seconds).sleep(5.0)


def test_in_time_returns_and_raises_what_the_call_does():
    assert in_time(lambda: None, 60.0) is None
    with pytest.raises(KeyError, match="mine"):
        in_time(lambda: {}["mine"], 60.0)


def test_in_time_leaves_a_call_that_takes_longer():
    over = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer for 0\.05 s"):
        in_time(over.wait, 0.05)
    over.set()


def test_no_other_file_counts_down():
    """What reads a clock to know when a wait ends would be a second deadline."""
    now = r"time\.(?:monotonic|perf_counter)\(\)"
    sums = re.compile(rf"{now} *[+<>]|[<>-] *{now}")
    files = Path(deadline.__file__).parents[1].rglob("*.py")
    found = {each.name: what for each in files if (what := sums.findall(each.read_text()))}
    assert found == {}
