"""Codes by block designs: their designs, and what they leave out."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc import BIBDCode, NotDecodableError, codes
from fastgc.codes import bibd

pytestmark = pytest.mark.any_backend

# n, design, blocks, load, blocks that two workers have in common
KNOWN = [
    (7, "projective", 7, 3, 1),
    (13, "projective", 13, 4, 1),
    (21, "projective", 21, 5, 1),  # over a field of 4 elements
    (91, "projective", 91, 10, 1),  # over a field of 9 elements
    (4, "affine", 6, 3, 1),
    (9, "affine", 12, 4, 1),
    (16, "affine", 20, 5, 1),
    (15, "hyperplanes", 15, 7, 3),
    (31, "hyperplanes", 31, 15, 7),
    (40, "hyperplanes", 40, 13, 4),
    (11, "paley", 11, 5, 2),
    (27, "paley", 27, 13, 6),
    (6, "pairs", 15, 5, 1),
]


@pytest.mark.parametrize(("n", "design", "blocks", "load", "common"), KNOWN)
def test_designs_are_balanced(n, design, blocks, load, common):
    code = BIBDCode(n, design=design)
    B = code.matrix()
    assert code.k == blocks
    assert code.load == load
    np.testing.assert_array_equal(B @ B.T, common + (load - common) * np.eye(n))
    assert (B.sum(axis=0) == n * load / blocks).all()
    assert BIBDCode(n, design=B) != code
    np.testing.assert_array_equal(BIBDCode(n, design=B).matrix(), B)


@pytest.mark.parametrize(("n", "design", "blocks", "load", "common"), KNOWN[:1] + KNOWN[4:6])
@pytest.mark.parametrize("size", [1, 3])
def test_every_set_leaves_what_the_formula_says(n, design, blocks, load, common, size):
    # In rationals, the least residual of any combination is the formula's, for any workers.
    code = BIBDCode(n, size * blocks, design=design, wait=1)
    B = code.matrix()
    for f in range(1, n + 1):
        expected = 1 - Fraction(load**2 * f, blocks * (load - common + common * f))
        assert (expected == 0) == (f == n)
        for survivors in itertools.combinations(range(n), f):
            best = np.linalg.lstsq(B[list(survivors)].T, np.ones(code.k))[0]
            np.testing.assert_allclose(code.scheme.vector(np.array(survivors)), best, atol=1e-12)
            assert code.residual(survivors) ** 2 == pytest.approx(float(expected), abs=1e-14)


@given(st.sampled_from(KNOWN), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_any_set_leaves_what_the_formula_says(known, seed):
    n, design, blocks, load, common = known
    rng = np.random.default_rng(seed)
    f = int(rng.integers(1, n + 1))
    code, survivors = BIBDCode(n, design=design, wait=f), rng.permutation(n)[:f]
    expected = 1 - load**2 * f / (blocks * (load - common + common * f))
    assert code.residual(survivors) ** 2 == pytest.approx(expected, abs=1e-13)
    best = np.linalg.lstsq(code.matrix()[survivors].T, np.ones(code.k))[0]
    np.testing.assert_allclose(code.decoding_vector(survivors), best, atol=1e-12)


def test_rounds_wait_for_as_many_as_they_are_told():
    waiting, exact = BIBDCode(7, wait=4), BIBDCode(7)
    assert waiting.stragglers == exact.stragglers == 0
    assert waiting.threshold == 4
    assert exact.threshold == 7
    assert waiting.decodable([0, 2, 3, 5])
    for code, f in (waiting, 3), (exact, 6):
        assert not code.decodable(range(f))
        with pytest.raises(NotDecodableError):
            code.decoding_vector(range(f))
    assert exact.residual(range(7)) < 1e-15


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 2}, "at least 3 points"),
        ({"n": 12, "design": "projective"}, "there is one of 7, 13, 21, 31; of 12 there is pairs"),
        (
            {"n": 1000},
            "no design of n=1000 workers is known here: there are some of 983, 991, 993, 1019",
        ),
        (
            {"n": 2049, "design": "pairs"},
            "there is one of 197, 198, 199, 200; of 2049 there is none",
        ),
        ({"n": 7, "design": "fano"}, "must be one of projective"),
        ({"n": 7, "k": 8}, "a multiple of the design's 7 blocks, not 8"),
        ({"n": 7, "wait": 8}, "wait must be in 1 .. n = 7"),
        ({"n": 3, "design": np.ones((2, 3))}, "a row for each of n=3"),
        ({"n": 3, "design": 2 * np.eye(3)}, "consist of 0 and 1"),
        ({"n": 3, "design": np.ones((3, 3))}, "no incomplete design"),
        ({"n": 3, "design": [[1, 0], [1, 1], [0, 1]]}, "same number of partitions, not 1 and 2"),
        ({"n": 3, "design": [[1, 1], [1, 1], [1, 1]]}, "no incomplete design"),
        ({"n": 4, "design": np.kron(np.eye(2), [[1], [1]])}, "in common, not 0 and 1"),
    ],
)
def test_errors_say_what_there_is(arguments, says):
    with pytest.raises(ValueError, match=says):
        BIBDCode(**arguments)


def test_what_is_waited_for_is_a_number():
    with pytest.raises(TypeError, match="wait must be a number of workers, not True"):
        BIBDCode(7, wait=True)


def test_the_name_takes_the_design_whose_load_fits():
    for n, s, design in (
        (13, 3, "projective"),
        (7, 1, "projective"),
        (31, 14, "hyperplanes"),
    ):
        code = codes.make("bibd", n, stragglers=s)
        assert (code.design, code.scheme.wait) == (design, n - s)
    assert codes.make("bibd", 7, 21, stragglers=1).design == "pairs"  # there are 21 pairs
    assert codes.make("bibd", 7, 14, stragglers=1).design == "projective"
    for n in range(3, 40):
        found = {d.name for d in bibd._designs(n)}
        assert found <= set(bibd.DESIGNS)
        assert "pairs" in found
    assert codes.make("bibd:design=affine", 9, 12, stragglers=2).k == 12
    with pytest.raises(ValueError, match="a multiple of the design's 66 blocks, not 12"):
        codes.make("bibd", 12, stragglers=1)
