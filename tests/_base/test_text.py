"""Texts that show numbers and lists to people."""

import math

import pytest

from fastgc._base.text import duration, listed, listing, plural, short


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"),
        (math.inf, "inf s"),
        (math.nan, "nan s"),
        (1.0, "1 s"),
        (-2.5, "-2.5 s"),
        (123.4, "123 s"),
        (12.34, "12.3 s"),
        (0.9994, "999 ms"),
        (0.9995, "1 s"),
        (2.5e-6, "2.5 µs"),
        (3e-13, "0.0003 ns"),
    ],
)
def test_duration(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3.0, "3"),
        (-999_999, "-999999"),
        (1e6, "1e+06"),
        (0.12345, "0.123"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_short(value, shown):
    assert short(value) == shown


def test_counts_and_lists():
    assert [plural(count, "round") for count in (0, 1, 2)] == ["0 rounds", "1 round", "2 rounds"]
    assert listed(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert listed(range(9)) == "0, 1, 2, 3, 4, 5, 6, 7, … (9)"
    assert listed("ab", most=1) == "a, … (2)"
    assert listing({"b", "a"})() == ["a", "b"]
