"""Figures of approximate codes: closed forms are true, and computed numbers agree with them."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from examples import example

from fastgc import FractionalRepetition
from fastgc.coding.scheme import Scheme
from fastgc.papers import FIGURES, approximate

pytestmark = pytest.mark.any_backend

BIBDCode = example("codes/bibd").BIBDCode
ExpanderCode = example("codes/expander").ExpanderCode
raptor = example("codes/raptor")


@pytest.mark.parametrize(
    "name", ["raviv-bound", "charles-means", "kadhe-worst", "glasgow-random", "wang-peeling"]
)
def test_rows_are_what_they_should_be(name):
    figure = FIGURES[name](rounds=60, seed=1)
    assert figure.name == name
    for row in figure.rows:
        assert row.paper is None  # no number is claimed to be printed
        if row.closed == 0:
            assert row.ours <= 1  # a bound that holds with high probability
        else:
            assert row.ours == pytest.approx(row.closed, rel=0.5)  # loose, as rounds are few
        assert row.ok or row.note
    for panel in figure.panels:
        assert all(np.isfinite(line.y).all() and line.y.size for line in panel.lines)


def test_bounds_and_designs_are_exact():
    rows = [
        *FIGURES["raviv-bound"](rounds=100).rows,
        *FIGURES["kadhe-worst"](rounds=100).rows,
    ]
    for row in rows:
        if "bound" in row.what or row.figure.startswith("kadhe"):
            assert row.ours == pytest.approx(row.closed, rel=1e-12), row.what


def test_closed_forms_over_all_sets():
    # Raviv et al., one coefficient; Charles et al., repetition: the mean over every set.
    code = ExpanderCode(9, load=4, graph="paley", wait=1)
    repeated = FractionalRepetition(9, load=3, wait=1)
    n, d = 9, 4
    for f in range(1, 9):
        sets = list(combinations(range(n), f))
        same = np.full(f, n / (d * f))
        mean = np.mean([code.residual(came, same) ** 2 for came in sets])
        assert mean == pytest.approx(float(Fraction((n - f) * (n - d), d * f * (n - 1))))
        mean = np.mean([repeated.residual(came) ** 2 for came in sets])
        assert mean == pytest.approx(comb(n - 3, f) / comb(n, f), abs=1e-14)
    # An adversary can do no more to a design than chance, but much to repetition.
    plane = BIBDCode(2, wait=1)
    worst = max(plane.residual(came) for came in combinations(range(7), 4))
    assert worst == pytest.approx(min(plane.residual(came) for came in combinations(range(7), 4)))


@pytest.mark.parametrize(("missing", "messages"), [(0.05, 1.5), (0.1, 1.6), (0.2, 1.5)])
def test_density_evolution_is_the_largest_fixed_point(missing, messages):
    chances = raptor.degrees(missing)
    order = np.arange(1, chances.size + 1)

    def left(y):
        return np.exp(-messages * np.sum(order * chances * (1 - y) ** (order - 1))) - y

    found = approximate.missing_by_density_evolution(missing, messages)
    assert left(found) == pytest.approx(0, abs=1e-9)
    assert (np.array([left(y) for y in np.linspace(found + 1e-6, 1, 2000)]) < 0).all()
    # Fewer messages leave out more.
    assert approximate.missing_by_density_evolution(missing, messages / 2) > found


def test_a_wrong_decoder_is_seen(monkeypatch):
    # With half a message more or less, rows no longer agree.
    right = Scheme.solution
    monkeypatch.setattr(Scheme, "solution", lambda *given: (right(*given)[0] * 1.1, 0.0))
    assert not all(row.ok for row in FIGURES["kadhe-worst"](rounds=40).rows)
