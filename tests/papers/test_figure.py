"""Rows and lines of figures: what they compare, and what they must say."""

import math
from functools import partial

import pytest
from papers import __main__ as program
from papers.figure import Row

from fastgc.plotting import Line


def test_rows_compare_with_the_paper_first():
    row = partial(Row, "figure", "number", note="the same law")
    assert row(1.04, paper=1.0, closed=2.0).reference == 1.0
    assert row(1.04, paper=1.0).difference == pytest.approx(0.04)
    assert row(1.04, paper=1.0).ok
    assert not row(1.04, paper=1.0, tolerance=0.01).ok
    assert not row(0.94, closed=1.0).ok
    assert row(0.96, closed=1.0).ok
    assert row(3.0).ok
    assert math.isnan(row(3.0).difference)
    assert row(0.0, paper=0.0, tolerance=0).difference == 0
    assert not row(1.0, paper=0.0).ok
    for ours, held in ((0.2, True), (1.0, True), (1.001, False)):  # a bound holds, far or near
        bound = row(ours, closed=1.0, bound=True)
        assert bound.ok == held
        assert math.isnan(bound.difference)
        assert program.cells(bound)[5:] == ["≤ 1", "held" if held else "violated"]


def test_rows_say_why_they_agree():
    with pytest.raises(ValueError, match="figure, number: the note must say why"):
        Row("figure", "number", 1.0, paper=1.0)
    assert Row("figure", "number", 1.0).note == ""


@pytest.mark.parametrize(
    ("x", "y", "style", "says"),
    [
        ([1, 2], [1], "line", "vectors of one length"),
        ([[1]], [[1]], "line", "vectors of one length"),
        ([1], [1], "dots", "style must be"),
    ],
)
def test_lines_are_checked(x, y, style, says):
    with pytest.raises(ValueError, match=says):
        Line("a", x, y, style)
