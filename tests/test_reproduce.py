"""The papers' figures: what is computed is what the papers print, or a note says why not."""

import math

import numpy as np
import pytest

from fastgc.reproduce import charalambides
from fastgc.reproduce.figure import Line, Row

pytestmark = pytest.mark.any_backend


def checked(figure):
    """Rows by what they say, and the rules that hold for all of them."""
    assert figure.rows
    assert figure.panels
    for row in figure.rows:
        assert row.ok or row.note, f"{row.what}: {row.ours} against {row.reference}, without a note"
        assert not math.isnan(row.ours)
    for panel in figure.panels:
        assert panel.lines
        assert all(np.isfinite(line.y).all() for line in panel.lines)
    return {row.what: row for row in figure.rows}


# ---------------------------------------------------------------------------------- rows, lines


def test_rows_compare_with_the_paper_first():
    row = Row("figure", "number", 1.04, paper=1.0, closed=2.0)
    assert row.reference == 1.0
    assert row.difference == pytest.approx(0.04)
    assert row.ok
    assert not Row("figure", "number", 0.94, closed=1.0).ok
    assert Row("figure", "number", 0.96, closed=1.0).ok
    assert Row("figure", "number", 3.0).ok
    assert math.isnan(Row("figure", "number", 3.0).difference)
    assert Row("figure", "number", 0.0, paper=0.0).difference == 0
    assert not Row("figure", "number", 1.0, paper=0.0).ok


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


# -------------------------------------------------------------------------------- charalambides


@pytest.mark.parametrize(("k", "parts"), [(0, 1), (3, 1), (4, 3), (6, 4)])
def test_splits_are_all_there_are(k, parts):
    splits = [tuple(split) for split in charalambides._splits(k, parts)]
    assert len(set(splits)) == len(splits) == math.comb(k + parts - 1, parts - 1)
    assert {sum(split) for split in splits} == {k}
    assert {len(split) for split in splits} == {parts}


def test_binary_codes_are_as_even_as_classes_allow():
    rows = checked(charalambides.figure_5(workers=range(3, 9)))
    within, over_all, example = rows.values()
    assert within.ours == within.paper == sum(n - 2 for n in range(3, 9))
    # s + 1 divides n, 1 <= s <= n - 2: proper divisors of n other than 1
    divisors = sum(n % d == 0 for n in range(3, 9) for d in range(2, n))
    assert over_all.ours == divisors
    assert not over_all.ok
    assert example.ours == example.closed == 6
