"""What tests of all papers share."""

import math

import numpy as np
import pytest


@pytest.fixture
def checked():
    """Check rules that hold for every figure; return its rows by their text."""

    def check(figure):
        assert figure.rows
        assert figure.panels
        for row in figure.rows:
            assert row.reference is None or row.note
            assert not math.isnan(row.ours)
        for panel in figure.panels:
            assert panel.lines
            assert all(np.isfinite(line.y).all() for line in panel.lines)
        rows = {row.what: row for row in figure.rows}
        rows_of_figures = {(row.figure, row.what) for row in figure.rows}
        assert len(rows_of_figures) == len(figure.rows)
        return rows

    return check
