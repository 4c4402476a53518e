"""Binary codes of Charalambides et al.: the worked example, the algorithms, unequal workers."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much

from fastgc import BinaryCode, NotDecodableError
from fastgc.codes.binary import ASSIGNMENTS, classes_by_speed


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
    """Return B by the paper's two algorithms (for n = k), with corrected loop headers.

    Algorithm 2 runs over i = r .. s; dividing n by l + 1 gives lambda and r~.
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
    """Every partition is on one worker of each of s + 1 classes, in which loads differ by one."""
    for s, k in itertools.product(range(0, n, 3), (n, n + 5, 2 * n)):
        code = BinaryCode(n, k, stragglers=s)
        B = code.matrix()
        np.testing.assert_array_equal(B.sum(axis=0), s + 1)
        for c in range(s + 1):
            loads = B[c :: s + 1].sum(axis=1)
            assert loads.max() - loads.min() <= 1
            assert (np.diff(loads) <= 0).all()
            np.testing.assert_array_equal(B[c :: s + 1].sum(axis=0), 1)


@given(st.data())
@settings(max_examples=much(60, 25), deadline=None)
def test_decodes_from_any_n_minus_s(data):
    n = data.draw(st.integers(1, 200))
    s = data.draw(st.integers(0, n - 1))
    k = data.draw(st.integers(-(-n // (s + 1)), 3 * n))
    speeds = data.draw(st.none() | st.lists(st.floats(0.01, 100), min_size=n, max_size=n))
    assignment = None if speeds is None else data.draw(st.sampled_from(ASSIGNMENTS))
    code = BinaryCode(n, k, stragglers=s, speeds=speeds, assignment=assignment)
    assert (code.scheme.loads > 0).all()
    held = np.bincount(np.concatenate([code.partitions(i) for i in range(n)]), minlength=k)
    assert held.min() >= s + 1
    if assignment in (None, "classes", "uniform") or n % (s + 1) == 0:
        assert held.max() == s + 1
    F = data.draw(st.permutations(range(n)))[: n - s]
    vector = code.decoding_vector(F)
    np.testing.assert_array_equal(vector @ code.matrix()[F], 1)  # exact: sums of small integers
    assert set(vector) <= {0, 1}  # no block is subtracted


def test_classes_are_complete_first():
    """Complete classes come first, that of the fewest messages, with coefficients 0 and 1."""
    code = BinaryCode(11, stragglers=3)
    assert code.decoding_vector(range(11)).tolist() == [float(i in (3, 7)) for i in range(11)]
    assert code.decoding_vector([8, 0, 4]).tolist() == [1, 1, 1]
    # Blocks of different classes.
    assert code.decoding_vector([8, 1, 6, 7]).tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(("alpha", "beta", "t1", "t2"), [(1, 1, 1, 2), (2, 1, 1, 3), (1, 3, 2, 5)])
def test_two_types_of_machines(alpha, beta, t1, t2):
    """Section VI gives |J_1| and |J_2| in closed form; if they are whole, all end together."""
    s = 2
    per_class = (alpha + beta) * 2
    n = per_class * (s + 1)
    tau1, tau2 = n * alpha // (alpha + beta), n * beta // (alpha + beta)
    k = per_class * (alpha * t2 + beta * t1) * 3
    J1 = (s + 1) * k * alpha * t2 / (alpha * t2 + beta * t1) / tau1
    J2 = (s + 1) * k * beta * t1 / (alpha * t2 + beta * t1) / tau2
    assert J1 * t1 == pytest.approx(J2 * t2)
    kind = np.random.default_rng(0).permutation([1] * tau1 + [2] * tau2)
    speeds = np.where(kind == 1, 1 / t1, 1 / t2)
    code = BinaryCode(n, k, stragglers=s, speeds=speeds, assignment="classes")
    assert J1.is_integer()
    assert (code.scheme.loads == np.where(kind == 1, J1, J2)).all()


def test_any_number_of_types():
    speeds = np.repeat([8.0, 4.0, 2.0, 1.0], [3, 6, 6, 6])
    code = BinaryCode(21, 66, stragglers=2, speeds=speeds, assignment="classes")
    np.testing.assert_array_equal(code.scheme.loads, speeds * 3)
    # Otherwise loads are rounded, by less than one partition.
    code = BinaryCode(21, 100, stragglers=2, speeds=speeds, assignment="classes")
    assert np.abs(code.scheme.loads - speeds * 100 / 22).max() < 1
    # The slowest workers still compute one partition.
    code = BinaryCode(6, 7, stragglers=1, speeds=[1000, 1000, 1, 1, 1, 1], assignment="classes")
    assert code.scheme.loads.tolist() == [5, 5, 1, 1, 1, 1]


@given(st.data())
@settings(max_examples=much(100, 40), deadline=None)
def test_classes_are_about_equally_fast(data):
    """If s + 1 divides n, classes are equally fast up to the speeds dealt in one turn."""
    s, turns = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 6))
    n = (s + 1) * turns
    speeds = np.array(data.draw(st.lists(st.floats(0.1, 10), min_size=n, max_size=n)))
    k = 10_000
    code = BinaryCode(n, k, stragglers=s, speeds=speeds, assignment="classes")
    mine = classes_by_speed(s, speeds)
    sums = np.bincount(mine, speeds)
    assert np.bincount(mine).tolist() == [turns] * (s + 1)
    dealt = np.sort(speeds).reshape(turns, s + 1)
    assert np.ptp(sums) <= (dealt[:, -1] - dealt[:, 0]).max() + 1e-12
    # Each class ends at one time, up to one partition: eq. (2).
    assert np.abs(code.scheme.loads - k * speeds / sums[mine]).max() < 1 + 1e-9


@pytest.mark.parametrize("assignment", ["spread", "aligned"])
def test_blocks_are_decoded_from_every_set_that_suffices(assignment):
    """They use as few messages as suffice."""
    for n, s in itertools.chain.from_iterable(((n, s) for s in range(n)) for n in range(1, 7)):
        code = BinaryCode(n, stragglers=s, speeds=range(1, n + 1), assignment=assignment)
        B, rule = code.matrix(), code.scheme.rule
        fewest = {}  # for each set of workers: the size of its smallest subset that suffices
        for f in range(n + 1):
            for came in itertools.combinations(range(n), f):
                F = np.array(came, dtype=int)
                if rule.missing(F):
                    with pytest.raises(NotDecodableError):
                        code.scheme.vector(F)
                else:
                    smaller = (fewest.get(came[:i] + came[i + 1 :], f) for i in range(f))
                    fewest[came] = min([f, *smaller])
                    vector = code.scheme.vector(F)
                    np.testing.assert_array_equal(vector @ B[F], 1)
                    assert vector.sum() == fewest[came]


def test_fastest_hold_different_blocks():
    """With sixteen workers and s = 3 there are four blocks; also if s + 1 does not divide n."""
    speeds = np.arange(16.0, 0, -1)
    spread = BinaryCode(16, 580, stragglers=3, speeds=speeds)
    assert spread.assignment == "spread"
    B = spread.matrix()
    for turn in range(4):
        np.testing.assert_array_equal(B[4 * turn : 4 * turn + 4].sum(axis=0), 1)
    np.testing.assert_array_equal(
        spread.scheme.loads[:4], speeds[:4] * 10
    )  # each block's fastest holders
    aligned = BinaryCode(16, 400, stragglers=3, speeds=speeds, assignment="aligned")
    for turn in range(4):
        assert len(np.unique(aligned.matrix()[4 * turn : 4 * turn + 4], axis=0)) == 1
    np.testing.assert_array_equal(aligned.scheme.loads[::4], np.array([16, 12, 8, 4]) * 10)
    # n = 14: four blocks, and the two slowest workers hold two each.
    code = BinaryCode(14, 460, stragglers=3, speeds=speeds[:14])
    B = code.matrix()
    np.testing.assert_array_equal(B.sum(axis=0), 4)
    assert (np.abs(np.diff(B, axis=1)).sum(axis=0) > 0).sum() == 3  # places where blocks end
    blocks = np.split(B, np.flatnonzero(np.abs(np.diff(B, axis=1)).sum(axis=0)) + 1, axis=1)
    held = np.array([block[:, 0] for block in blocks]).sum(axis=0)
    assert held.tolist() == [1] * 12 + [2, 2]
    # Three blocks; but two if most workers would hold the same two of three.
    code = BinaryCode(13, 26, stragglers=4, speeds=speeds[:13])
    assert len({int(code.partitions(i)[0]) for i in range(code.n)}) == 3
    code = BinaryCode(28, 56, stragglers=12, speeds=[1.0] * 28)
    assert len({int(code.partitions(i)[0]) for i in range(code.n)}) == 2
    assert set(code.matrix().sum(axis=0)) == {14}


@pytest.mark.subnormal
def test_speeds_may_be_as_far_apart_as_floats():
    for assignment in ASSIGNMENTS:
        far = BinaryCode(2, 4, stragglers=1, speeds=[1e308, 1e-308], assignment=assignment)
        assert far.scheme.loads.tolist() == [4, 4]
        even = BinaryCode(4, 8, stragglers=0, speeds=[1e308] * 4, assignment=assignment)
        assert even.scheme.loads.tolist() == [2] * 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 0, "stragglers": 0}, "n=0"),
        ({"stragglers": 3}, "stragglers must be in 0"),
        ({"stragglers": -1}, "stragglers must be in 0"),
        ({"n": 7}, r"at least ceil\(n / \(s \+ 1\)\) = 4, not 3"),
        ({"speeds": [1, 2]}, "3 workers need 3 speeds"),
        ({"speeds": 3}, "3 workers need 3 speeds"),
        ({"speeds": [1, 2, 0]}, "positive and finite"),
        ({"speeds": [1, 2, np.inf]}, "positive and finite"),
        ({"speeds": [1, 2, 3], "assignment": "fair"}, "assignment must be .*not 'fair'"),
        ({"assignment": "spread"}, "assignment='spread' needs speeds="),
    ],
)
def test_impossible(arguments, says):
    with pytest.raises(ValueError, match=says):
        BinaryCode(**{"n": 3, "k": 3, "stragglers": 1} | arguments)
    with pytest.raises(TypeError, match="speeds must be real numbers, not complex128"):
        BinaryCode(3, stragglers=1, speeds=[1j, 1, 1])
