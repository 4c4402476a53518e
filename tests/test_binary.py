"""Charalambides et al.: the worked example, the algorithms as printed, and unequal workers."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much

from fastgc import BinaryCode, FractionalRepetition
from fastgc.codes.rules import Tiling

pytestmark = pytest.mark.any_backend


def test_worked_example():
    """n = k = 11, s = 3: the matrix of section III."""
    rows = [
        "1111.......",
        "1111.......",
        "1111.......",
        "111111.....",
        "....1111...",
        "....1111...",
        "....1111...",
        "......11111",
        "........111",
        "........111",
        "........111",
    ]
    expected = [[float(entry == "1") for entry in row] for row in rows]
    np.testing.assert_array_equal(BinaryCode(11, stragglers=3).matrix(), expected)


def algorithms_1_and_2(n, s):
    """B as the paper's two algorithms write it (for n = k), loop headers corrected.

    Algorithm 2 runs over i = r .. s; lambda and r~ come from the division of n by l + 1.
    """
    B = np.zeros((n, n))
    ell, r = divmod(n, s + 1)
    t, q = divmod(r, ell)
    lam, rest = divmod(n, ell + 1)
    for i in range(r):
        if ell + r > s:
            for j in range(1, ell + r - s + 1):
                B[(j - 1) * (s + 1) + i, (j - 1) * (s + 1) : j * (s + 1)] = 1
            for j in range(ell + r - s + 1, ell + 2):
                at = (j - 1) * s + ell + r - s
                B[(j - 1) * (s + 1) + i, at : at + s] = 1
        else:
            for j in range(1, rest + 1):
                B[(j - 1) * (s + 1) + i, (j - 1) * (lam + 1) : j * (lam + 1)] = 1
            for j in range(rest + 1, ell + 2):
                at = (j - 1) * lam + rest
                B[(j - 1) * (s + 1) + i, at : at + lam] = 1
    for i in range(r, s + 1):
        for j in range(1, q + 1):
            B[(j - 1) * (s + 1) + i, (j - 1) * (s + t + 2) : j * (s + t + 2)] = 1
        for j in range(q + 1, ell + 1):
            at = (j - 1) * (s + t + 1) + q
            B[(j - 1) * (s + 1) + i, at : at + s + t + 1] = 1
    return B


@pytest.mark.parametrize("n", range(1, 41))
def test_two_lines_are_the_paper(n):
    for s in range(n):
        np.testing.assert_array_equal(
            BinaryCode(n, stragglers=s).matrix(), algorithms_1_and_2(n, s), err_msg=f"s={s}"
        )


@pytest.mark.parametrize("n", much(range(1, 61), [*range(1, 20), 41, 60]))
def test_support_is_as_small_as_can_be(n):
    """Every partition on s + 1 workers, one in each class; in a class, loads differ by one."""
    for s, k in itertools.product(range(0, n, 3), (n, n + 5, 2 * n)):
        code = BinaryCode(n, k, stragglers=s)
        B = code.matrix()
        np.testing.assert_array_equal(B.sum(axis=0), s + 1)
        for c in range(s + 1):
            loads = B[c :: s + 1].sum(axis=1)
            assert loads.max() - loads.min() <= 1
            assert (np.diff(loads) <= 0).all()
            np.testing.assert_array_equal(B[c :: s + 1].sum(axis=0), 1)


def test_fractional_repetition_is_a_case():
    for n, s in ((6, 2), (12, 3), (20, 4)):
        binary = BinaryCode(n, stragglers=s).matrix()
        repeated = FractionalRepetition(n, stragglers=s).matrix()
        np.testing.assert_array_equal(np.sort(binary, axis=0), np.sort(repeated, axis=0))


@given(st.data())
@settings(max_examples=much(60, 25), deadline=None)
def test_decodes_from_any_n_minus_s(data):
    n = data.draw(st.integers(1, 200))
    s = data.draw(st.integers(0, n - 1))
    k = data.draw(st.integers(-(-n // (s + 1)), 3 * n))
    speeds = data.draw(st.none() | st.lists(st.floats(0.01, 100), min_size=n, max_size=n))
    code = BinaryCode(n, k, stragglers=s, speeds=speeds)
    assert (code.loads > 0).all()
    assert code.loads.sum() == (s + 1) * k
    F = data.draw(st.permutations(range(n)))[: n - s]
    vector = code.decoding_vector(F)
    np.testing.assert_array_equal(vector @ code.matrix()[F], 1)  # exactly: sums of small integers
    assert set(vector) <= {0, 1}  # a complete class there is


def test_classes_are_complete_first():
    """The class of the fewest messages, with coefficients 0 and 1."""
    code = BinaryCode(11, stragglers=3)
    assert code.decoding_vector(range(11)).tolist() == [float(i in (3, 7)) for i in range(11)]
    assert code.decoding_vector([8, 0, 4]).tolist() == [1, 1, 1]
    # of different classes, block by block
    assert code.decoding_vector([8, 1, 6, 7]).tolist() == [1, 1, 1, 0]


def test_subtracts_where_that_helps():
    code = BinaryCode(3, 3, stragglers=1)  # blocks [0, 2), [0, 3), [2, 3)
    assert code.decoding_vector([1]).tolist() == [1]
    tiling = Tiling(np.array([0, 0, 1, 1]), np.array([2, 1, 2, 4]), 4)
    # [0, 2) - [1, 2) + [1, 4)
    assert tiling.path(np.array([0, 2, 3])) == {0: 1, 1: -1, 2: 1}
    assert tiling.path(np.array([0, 1])) is None
    assert tiling.missing(np.array([0])) == 2
    assert tiling.missing(np.array([0, 2])) == 1
    assert tiling.missing(np.array([1, 3])) == 0


@pytest.mark.parametrize(("alpha", "beta", "t1", "t2"), [(1, 1, 1, 2), (2, 1, 1, 3), (1, 3, 2, 5)])
def test_two_types_of_machines(alpha, beta, t1, t2):
    """Section VI: |J_1| and |J_2| in closed form, where they are whole; all end together."""
    s = 2
    per_class = (alpha + beta) * 2
    n = per_class * (s + 1)
    tau1, tau2 = n * alpha // (alpha + beta), n * beta // (alpha + beta)
    k = per_class * (alpha * t2 + beta * t1) * 3
    J1 = (s + 1) * k * alpha * t2 / (alpha * t2 + beta * t1) / tau1
    J2 = (s + 1) * k * beta * t1 / (alpha * t2 + beta * t1) / tau2
    assert J1 * t1 == pytest.approx(J2 * t2)
    kind = np.random.default_rng(0).permutation([1] * tau1 + [2] * tau2)
    code = BinaryCode(n, k, stragglers=s, speeds=np.where(kind == 1, 1 / t1, 1 / t2))
    assert J1.is_integer()
    assert (code.loads == np.where(kind == 1, J1, J2)).all()


def test_any_number_of_types():
    speeds = np.repeat([8.0, 4.0, 2.0, 1.0], [3, 6, 6, 6])
    code = BinaryCode(21, 66, stragglers=2, speeds=speeds)
    np.testing.assert_array_equal(code.loads, speeds * 3)
    # rounded, where it does not come out even, by less than one partition
    code = BinaryCode(21, 100, stragglers=2, speeds=speeds)
    assert np.abs(code.loads - speeds * 100 / 22).max() < 1
    assert BinaryCode(4, 8, stragglers=0, speeds=[1e308] * 4).loads.tolist() == [2] * 4
    # the slowest still compute one
    code = BinaryCode(6, 7, stragglers=1, speeds=[1000, 1000, 1, 1, 1, 1])
    assert code.loads.tolist() == [5, 5, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 0, "stragglers": 0}, "0 <= stragglers < n"),
        ({"n": 5, "stragglers": 5}, "0 <= stragglers < n"),
        ({"n": 5, "stragglers": -1}, "0 <= stragglers < n"),
        ({"n": 7, "k": 3, "stragglers": 1}, r"at least ceil\(n / \(s \+ 1\)\) = 4, not 3"),
        ({"n": 3, "stragglers": 1, "speeds": [1, 2]}, "3 workers need 3 speeds"),
        ({"n": 3, "stragglers": 1, "speeds": 3}, "3 workers need 3 speeds"),
        ({"n": 3, "stragglers": 1, "speeds": [1, 2, 0]}, "positive and finite"),
        ({"n": 3, "stragglers": 1, "speeds": [1, 2, np.inf]}, "positive and finite"),
    ],
)
def test_impossible(arguments, says):
    with pytest.raises(ValueError, match=says):
        BinaryCode(**arguments)


def test_speeds_are_real():
    with pytest.raises(TypeError, match="speeds must be real numbers, not complex128"):
        BinaryCode(3, stragglers=1, speeds=[1j, 1, 1])
