"""Comparisons of codes, and codes of equal load."""

import math

import numpy as np
import pytest
from strength import much

import fastgc
from fastgc import BinaryCode, ReedSolomon, Uncoded, stability
from fastgc.coding.orders import random_arrivals
from fastgc.stability.precision import Experiment
from fastgc.stability.survey import PATTERNS


def figures(row):
    """Return what rows of the same sets have in common, whatever the code's name and the clock."""
    return {
        key: value for key, value in row._asdict().items() if key not in ("code", "decode_seconds")
    }


def test_compare_is_tidy():
    codes = {
        "rs": ReedSolomon(11, stragglers=2),
        "lu": (ReedSolomon(11, stragglers=2), "solve"),
        "binary": BinaryCode(12, stragglers=2),
    }
    done = []
    rows = stability.compare(
        codes,
        patterns=PATTERNS,
        dtypes=["float64", "float32"],
        sets=9,
        progress=lambda *at: done.append(at),
    )
    assert len(rows) == 30
    assert {int(at) for at, _ in done} == set(range(3 * 2 * (1 + 5) + 1)) - {36}
    assert [row.code for row in rows[::10]] == list(codes)
    for row in rows:
        assert row.error <= row.worst_error <= row.bound
        assert row.amplification <= row.worst_amplification
        assert 1e-18 < row.error < (1e-13 if row.dtype == "float64" else 1e-5)
        assert row.error / 30 < row.predicted < 30 * row.error
        assert row.sets == (1 if row.pattern == "adversarial" else 9)
        assert (row.load, row.mean_load, row.message_size) == (3, 3.0, 1.0)
        # Computed, not claimed: sums leave nothing out, other coefficients only what is rounded.
        assert 0 <= row.left_out <= row.worst_left_out < 1e-14
        assert (row.left_out > 0) == (row.code != "binary")
        assert row.decode_seconds > 0
    assert [row.messages for row in rows[:20]] == [row.workers for row in rows[:20]] == [9.0] * 20
    assert all(4 <= row.messages == row.workers < 10 for row in rows[20:])
    again = stability.compare(codes, patterns=PATTERNS, dtypes=["f8", "f4"], sets=9)
    assert [*map(figures, again)] == [*map(figures, rows)]


def test_compare_exact_and_near_exact_vectors():
    """Each row has the same neighbours on the circle and the vector of its own method."""
    code = ReedSolomon(256, stragglers=32)
    codes, dtypes = {"exact": (code, "spread"), "auto": code}, ["float64", "float32", "float16"]
    options = {"patterns": ["neighbouring"], "dtypes": dtypes, "sets": 3}
    exact, *lost, auto, single, half = stability.compare(codes, **options)
    assert exact.sets == auto.sets == 3
    assert 1e-8 < exact.error < 1e-6
    assert min(row.error for row in lost) > 1
    for row, most in ((auto, 1e-12), (single, 1e-6), (half, 1e-2)):
        assert row.worst_error < most
    for row in (exact, auto, single, half):
        assert row.error / 10 < row.predicted < 10 * row.error
    for row in (exact, auto):
        assert row.worst_error < row.bound < 1e5 * row.worst_error
    assert exact.amplification > 1e4 * auto.amplification
    # Neighbours by number are far apart on the circle of the best root.
    [rack] = stability.compare({"exact": (code, "spread")}, patterns=["contiguous"], sets=3)
    assert rack.worst_error < 1e-14


def heard_by(kind, *given, **options):
    """Return a code that keeps the survivors from whom it is asked to decode, each set once."""

    class Heard(kind):
        seen = ()

        def decoding_vector(self, survivors, method="auto", **more):
            self.seen = dict.fromkeys([*self.seen, tuple(np.asarray(survivors).tolist())])
            return super().decoding_vector(survivors, method, **more)

    return Heard(*given, **options)


def test_compare_by_definition():
    """The sets of the largest amplification and of the largest error differ."""
    code = heard_by(fastgc.CyclicRepetition, 12, stragglers=3)
    [row] = stability.compare({"a": code}, sets=25, p=4, dtypes=["float32"], seed=0)
    sets = [np.array(each) for each in code.seen]
    assert row.sets == 25
    experiment = Experiment(code, dtype="float32", p=4, seed=0)
    vectors = [code.decoding_vector(each, message_dtype="float32") for each in sets]
    pairs = list(zip(sets, vectors, strict=True))
    B = np.abs(code.matrix()).sum(axis=1)
    factors = [np.abs(vector) @ B[each] for each, vector in pairs]
    errors = [experiment.error(*pair).relative for pair in pairs]
    bounds = [experiment.bound(*pair) for pair in pairs]
    trusted = [code.trust(each, np.float32).relative_error for each in sets]
    # Some sets are drawn twice, so a median may be that of neighbours.
    for found, each in (row.amplification, factors), (row.error, errors), (row.predicted, trusted):
        assert min(abs(np.log(found / np.array(each)))) < 0.2
        assert np.quantile(each, 0.35) < found < np.quantile(each, 0.65)
    assert row.worst_amplification == pytest.approx(max(factors))
    assert row.worst_error == max(errors)
    assert row.bound == bounds[np.argmax(factors)] > 1.01 * bounds[np.argmax(errors)]


def test_compare_exact_vectors_beyond_float64():
    class Beyond(ReedSolomon):
        def decoding_vector(self, survivors, method="auto", **options):
            if method == "spread":
                raise OverflowError("beyond float64")
            return super().decoding_vector(survivors, method, **options)

    beyond, code = Beyond(256, stragglers=32), ReedSolomon(256, stragglers=32)
    codes = {"beyond": (beyond, "spread"), "auto": beyond, "usual": code}
    nothing, auto, usual = stability.compare(codes, patterns=["neighbouring"], sets=1, p=4)
    assert (nothing.error, nothing.worst_error, nothing.predicted, nothing.bound) == (math.inf,) * 4
    assert (nothing.amplification, nothing.worst_amplification) == (math.inf,) * 2
    assert usual.worst_error < 1e-12
    assert figures(auto) == figures(usual)


@pytest.mark.parametrize(
    ("pattern", "sets"), [("neighbouring", 99), ("contiguous", 99), ("contiguous", 7)]
)
def test_compare_windows(pattern, sets):
    """Of the circles of evaluation points, or of workers; all of them, or some."""
    code = heard_by(ReedSolomon, 20, stragglers=6, clusters=2)
    circle = list(range(20))
    if pattern == "neighbouring":
        circle = np.concatenate(code.scheme.rings()).tolist()
        assert circle[:10] != sorted(circle[:10])
    stability.compare({"a": code}, patterns=[pattern], stragglers=4, sets=sets, seed=3)
    windows = [(circle + circle)[start : start + 4] for start in range(20)]
    expected = [tuple(np.setdiff1d(range(20), window).tolist()) for window in windows]
    if sets == 99:
        assert list(code.seen) == expected
    else:
        at = [expected.index(each) for each in code.seen]
        assert at == sorted(at)
        assert len(at) == 7


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"patterns": ["rare"]}, ValueError, 'pattern must be "random", .*, not'),
        ({"sets": 0}, ValueError, "sets must be at least 1"),
        ({"sets": 2.5}, TypeError, "sets must be an integer"),
        ({"stragglers": 6}, ValueError, "stragglers must be in"),
        ({"codes": ReedSolomon(6, stragglers=1)}, TypeError, "codes must be a mapping of names to"),
    ],
)
def test_compare_refuses(options, error, says):
    with pytest.raises(error, match=says):
        stability.compare(**{"codes": {"rs": ReedSolomon(6, stragglers=1)}} | options)


def test_compare_loads_that_are_not_even_and_codes_that_cannot_decode():
    codes = {"all": Uncoded(11), "some": BinaryCode(11, stragglers=3)}
    [row] = stability.compare(codes, sets=20, stragglers=3)
    assert (row.code, row.load, row.mean_load) == ("some", 6, pytest.approx(4))


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_compare_hopeless_codes():
    code = ReedSolomon(2600, stragglers=1300, root=1)  # not even B fits float64
    (row,) = stability.compare({"hopeless": code}, sets=2, patterns=["contiguous"])
    assert row.error == row.bound == row.predicted == row.amplification == math.inf


@pytest.mark.parametrize(("n", "s"), [(256, 32), (1000, 100)])
def test_compare_figures_promised_over_many_sets(n, s):
    codes = {
        "clustered": ReedSolomon(n, stragglers=s, clusters="auto"),
        "binary": BinaryCode(n, stragglers=s),
        "one": ReedSolomon(n, stragglers=s),
    }
    clustered, binary, one = stability.compare(codes, sets=much(1000, 60), p=8)
    assert clustered.error < 1e-13
    assert clustered.worst_error < 1e-11
    if n <= 256:
        assert clustered.error < 10 * binary.error
        assert clustered.worst_error < 10 * binary.worst_error
        assert one.error < 1e-12


@pytest.mark.parametrize("code", [BinaryCode(8, stragglers=2), Uncoded(8, tolerance=0.5)])
def test_compare_late_workers_are_those_after_the_round_is_ready(code):
    [row] = stability.compare({"code": code}, patterns=["late"], stragglers=0, sets=50, seed=3)
    needs = code.recovery(50, seed=3)
    assert (row.workers, row.messages) == (pytest.approx(needs.workers), needs.messages)
    heard = list(random_arrivals(code.scheme, 50, 3))
    left = [code.residual(each) for each in heard] if code.scheme.approximate else [0.0]
    assert row.left_out == pytest.approx(np.sqrt(np.mean(np.square(left))))
    assert row.worst_left_out == max(left)
    factors = [stability.amplification(code, each) for each in heard]
    assert (row.amplification, row.worst_amplification) == (np.median(factors), max(factors))


def test_compare_says_how_far_it_is():
    """They count the messages that are encoded, then the sets of each pattern."""
    steps, codes = [], {"rs": fastgc.ReedSolomon(8, stragglers=2)}
    options = {"patterns": ("random", "contiguous"), "progress": lambda *at: steps.append(at)}
    stability.compare(codes, sets=3, **options)
    encoded = [done / 8 for done in range(9)]
    assert steps == [
        (done, 3) for done in encoded + [row + done / 3 for row in (1, 2) for done in range(3)]
    ]
