"""ErasureHead's figure: its laws agree with enumeration, and the simulation with its laws."""

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest

from fastgc import FractionalRepetition
from fastgc.papers import approximate, reproduce

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize(("n", "copies"), [(6, 1), (6, 2), (8, 4), (9, 3), (6, 6)])
def test_the_law_of_missing_blocks(n, copies):
    """It is exact over all sets of workers, and its mean is the hypergeometric formula."""
    blocks = n // copies
    for came in range(n + 1):
        counts = [0] * (blocks + 1)
        for F in combinations(range(n), came):
            counts[blocks - len({worker % blocks for worker in F})] += 1
        law = approximate.missing_blocks(n, copies, came)
        assert law == [Fraction(count, comb(n, came)) for count in counts]
        mean = sum(m * p for m, p in enumerate(law)) / blocks
        assert mean == Fraction(comb(n - copies, came), comb(n, came))
        assert approximate.uncovered(n, copies, came) == float(1 - law[0])
        if came:
            code = FractionalRepetition(n, load=copies, wait=came)
            assert code.residuals().mean ** 2 == pytest.approx(float(mean), abs=1e-12)


def test_the_figure():
    [figure] = reproduce(["erasurehead"], rounds=4000, seed=1)
    names = [row.what for row in figure.rows]
    assert len(set(names)) == len(names) > 50
    for row in figure.rows:
        assert row.note
        assert row.paper is None  # no number is claimed to be printed
        rare = "squared" in row.what and row.closed < 0.05
        assert abs(row.difference) < (0.2 if rare else 0.06), row
    rows = {row.what: row.ours for row in figure.rows}
    assert rows["residual squared, d = 1, f = 10 of 30"] == pytest.approx(2 / 3)
    assert rows["workers waited for, d = 1, f = 10 of 30"] == 10
    assert len(figure.panels) == 2
