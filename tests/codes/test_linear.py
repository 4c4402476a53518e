"""Linear codes of any matrix: vectors by null spaces, what they tolerate, and trust."""

import itertools

import numpy as np
import pytest
from liars import dense

from fastgc import (
    BinaryCode,
    CyclicRepetition,
    InstabilityWarning,
    LinearCode,
    NotDecodableError,
    ReedSolomon,
)


@pytest.mark.parametrize(
    "source",
    [
        BinaryCode(9, stragglers=2),
        ReedSolomon(7, stragglers=3),
        CyclicRepetition(7, stragglers=2),
    ],
    ids=repr,
)
def test_finds_what_a_matrix_tolerates(source):
    code = LinearCode(source.matrix())
    assert code.stragglers == source.stragglers
    assert code.load == source.load
    assert code.scheme.is_complex == source.scheme.is_complex
    for i in range(code.n):
        np.testing.assert_array_equal(np.sort(source.partitions(i)), code.partitions(i))


def test_messages_that_are_not_packed_are_two_real_equations_each():
    """Whatever sums of real and imaginary parts give the gradient suffices, and nothing else."""
    B = ReedSolomon(7, stragglers=2).matrix()
    parts, packed = LinearCode(B, packed=False), LinearCode(B)
    smaller = 0
    g = np.random.default_rng(0).standard_normal((7, 3))
    for f in range(8):
        for F in map(list, itertools.combinations(range(7), f)):
            rows = np.concatenate([B[F].real, B[F].imag])
            spanned = f > 0 and np.linalg.matrix_rank(np.vstack([rows, np.ones(7)])) == (
                np.linalg.matrix_rank(rows)
            )
            assert parts.decodable(F) == spanned
            assert packed.decodable(F) == (f >= 5)
            if spanned:
                smaller += f < packed.threshold
                found = parts.decode(F, [parts.encode(i, g[parts.partitions(i)]) for i in F])
                error = np.linalg.norm(found - g.sum(axis=0))
                assert error <= 30 * parts.trust(F).relative_error * np.linalg.norm(g.sum(axis=0))
                assert parts.residual(F) < 1e-12
    assert smaller > 20


def test_wide_tall_and_rank_deficient():
    rng = np.random.default_rng(0)
    # The vector of ones is row 0 plus row 1, and row 2 minus row 3; ranks are at most 3.
    wide = rng.standard_normal((2, 6))
    B = np.array([wide[0], 1 - wide[0], 1 + wide[1], wide[1]])
    code = LinearCode(B)
    assert code.stragglers == 1
    for F, ready in [([0, 1], True), ([2, 3], True), ([0, 2], False), ([1, 2, 3], True)]:
        assert code.decodable(F) == ready
        if ready:
            np.testing.assert_allclose(code.decoding_vector(F) @ B[F], 1)
    tall = LinearCode(np.ones((5, 1)))
    assert tall.stragglers == 4
    np.testing.assert_allclose(tall.decoding_vector([4, 1]), 0.5)  # the shortest vector


def test_too_many_sets_to_try():
    B = CyclicRepetition(60, stragglers=5).matrix()
    unknown = LinearCode(B)
    assert unknown.stragglers is unknown.threshold is None
    with pytest.raises(ValueError, match="it is not known how many stragglers"):
        unknown.scheme.known_stragglers()
    assert unknown.decodable(range(55))
    with pytest.raises(NotDecodableError, match="how many always suffice is not known"):
        unknown.decoding_vector(range(50))
    code = LinearCode(B, stragglers=5)
    assert code.threshold == 55
    assert code.decodable(range(55))
    assert not code.decodable(range(54))


@pytest.mark.parametrize(
    ("B", "says"),
    [
        (np.ones(3), "must be a matrix"),
        (np.ones((0, 3)), "must be a matrix"),
        ([[1, 2], [0, 0]], "row 1 of B is zero"),
        ([[1, 0], [1, 0]], "column 1 of B is zero"),
        ([[1, np.nan]], "NaN or Inf"),
        ([[1, 2], [2, 4]], "not even the messages of all workers"),
    ],
)
def test_impossible_matrices(B, says):
    with pytest.raises(ValueError, match=says):
        LinearCode(B)
    with pytest.raises(TypeError, match="must be real or complex"):
        LinearCode([["a"]])
    with pytest.raises(ValueError, match="stragglers must be in 0"):
        LinearCode([[1, 1]], stragglers=1)


@pytest.mark.subnormal
def test_coefficients_near_the_end_of_float64():
    with pytest.warns(InstabilityWarning, match="numerically unstable"):
        code = LinearCode(np.diag([1e308, 1e308, 1e308]), stragglers=0)
    assert code.threshold == 3


@pytest.mark.parametrize("kind", ["real", "complex", "rank 3"])
def test_parity_is_a_check_for_each_dependent_message(kind):
    """Checks are combinations of the rows that came, and are zero on all columns."""
    rng = np.random.default_rng(0)
    B = rng.standard_normal((7, 4)) + 0j
    if kind == "complex":
        B = B * np.exp(1j * rng.standard_normal((7, 4)))
    elif kind == "rank 3":
        B[:, 3] = 2 - B[:, 0] - B[:, 1] - B[:, 2]
        B = B @ np.diag([1, 1, 1, 1])
        B[:, 2] = B[:, 0] + B[:, 1]
    B *= 10.0 ** np.arange(-3, 4)[:, None]
    code = LinearCode(B if kind == "complex" else B.real, wait=2)
    for f in range(1, 8):
        F = rng.permutation(7)[:f]
        parity = code.scheme.parity(F)
        H = dense(parity, f)
        sizes = np.linalg.norm(B[F], axis=1)
        np.testing.assert_allclose(H @ B[F], 0, atol=1e-12)
        assert len(H) == f - np.linalg.matrix_rank(B[F] / sizes[:, None])
        np.testing.assert_allclose(parity.error, np.linalg.norm(H @ B[F], axis=1), atol=1e-14)
        assert len(H) == 0 or np.linalg.matrix_rank(H * sizes) == len(H)
