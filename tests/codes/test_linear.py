"""Linear codes and cyclic repetition: decoding vectors by null spaces, and their cache."""

import hashlib
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import SMALL

from fastgc import (
    BinaryCode,
    Code,
    CyclicRepetition,
    InstabilityWarning,
    LinearCode,
    NotDecodableError,
    ReedSolomon,
)
from fastgc.codes.linear import LinearScheme
from fastgc.coding import scheme
from fastgc.coding.fingerprint import fingerprint
from fastgc.coding.trust import check_stability

# -------------------------------------------------------------------------- cyclic repetition


@pytest.mark.parametrize(("n", "s"), [(1, 0), (4, 0), (5, 4), (6, 2), (20, 4), (50, 9)])
def test_construction(n, s):
    """Supports are cyclic, the diagonal is 1, and a random H with H 1 = 0 annihilates the rows."""
    code = CyclicRepetition(n, stragglers=s, seed=3)
    B = code.matrix()
    for i in range(n):
        assert sorted(code.partitions(i)) == sorted((i + np.arange(s + 1)) % n)
        assert B[i, i] == 1
    assert np.linalg.matrix_rank(B, tol=1e-8) == n - s
    null = np.linalg.svd(B)[2][n - s :]
    np.testing.assert_allclose(null @ np.ones(n), 0, atol=1e-9)
    again, other = (CyclicRepetition(n, stragglers=s, seed=seed).matrix() for seed in (3, 4))
    np.testing.assert_array_equal(B, again)
    if 0 < s < n - 1:
        assert np.abs(B - other).max() > 0.1


def test_groups_of_partitions():
    code = CyclicRepetition(4, 10, stragglers=1)
    single = CyclicRepetition(4, stragglers=1).matrix()
    np.testing.assert_array_equal(code.matrix(), np.repeat(single, [3, 3, 2, 2], axis=1))
    assert code.scheme.loads.tolist() == [6, 5, 4, 5]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_vectors_amplify_roundings_least(data):
    n = data.draw(st.integers(2, 24))
    s = data.draw(st.integers(0, min(n - 1, 6)))
    code = CyclicRepetition(n, stragglers=s, seed=data.draw(st.integers(0, 5)))
    F = data.draw(st.permutations(range(n)))[: data.draw(st.integers(n - s, n))]
    B = code.matrix()[F]
    vector = code.decoding_vector(F)
    norms = np.linalg.norm(B, axis=1)
    size = np.linalg.norm(np.linalg.lstsq((B / norms[:, None]).T, np.ones(n), rcond=1e-12)[0])
    np.testing.assert_allclose(vector @ B, 1, atol=1e-14 * max(1, size))
    assert np.linalg.norm(vector * norms) <= size * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize(("n", "k", "s"), [(1, 3, 0), (4, 6, 3), (6, 6, 0), (7, 9, 2), (8, 8, 4)])
def test_the_closed_form_is_that_of_the_matrix(n, k, s):
    """Vectors of all sets, parity checks and facts about messages are those of `LinearCode`."""
    cyclic = CyclicRepetition(n, k, stragglers=s, seed=1).scheme
    linear = LinearCode(cyclic.matrix(), stragglers=s).scheme
    assert fingerprint(cyclic) == fingerprint(linear)
    assert cyclic.loads.tolist() == linear.loads.tolist()
    np.testing.assert_allclose(cyclic.precision.row_norms, linear.precision.row_norms)
    np.testing.assert_allclose(cyclic.precision.row_sums, linear.precision.row_sums)
    for f in range(n - s, n + 1):
        for came in combinations(range(n), f):
            F = np.array(came)
            vector, expected = cyclic.vector(F), linear.vector(F)
            sizes = linear._sizes[F]
            least = np.linalg.norm(expected * sizes)
            assert np.linalg.norm((vector - expected) * sizes) <= 1e-11 * least
            np.testing.assert_allclose(
                cyclic.precision.deviation(F, vector), vector @ linear._B[F] - 1, atol=1e-14 * least
            )
            assert (
                abs(cyclic.precision.left_out(F, vector) - linear.precision.left_out(F, vector))
                <= 1e-14 * least
            )
            checks = cyclic.parity(F)
            assert checks.first.size == linear.parity(F).first.size == f - (n - s)
            for column in cyclic.matrix()[F].T:
                np.testing.assert_allclose(checks.apply(column), 0, atol=1e-10)


def test_a_cyclic_code_of_as_many_workers_as_no_matrix_has():
    """Its matrix would take 80 GB."""
    n, s = 100_000, 3
    code = CyclicRepetition(n, stragglers=s)
    assert code.partitions(n - 1).tolist() == [0, 1, 2, n - 1]
    F = np.setdiff1d(np.arange(n), [5, 6, 70_000])
    vector = code.decoding_vector(F)
    assert code.residual(F) < 1e-9 > code.scheme.precision.left_out(F, vector) > 0
    assert 0 < code.trust(F).relative_error < 1e-8
    g = np.random.default_rng(0).standard_normal(n)
    H = code.scheme._values.T * g[(np.arange(n) + np.arange(s + 1)[:, None]) % n]
    assert abs(vector @ H.sum(axis=0)[F] - g.sum()) < 1e-8 * np.linalg.norm(g)


def test_what_large_codes_leave_out_costs_less_than_rounding_would(monkeypatch):
    """Vectors are chosen as for codes too large for matrices, with float16 messages' rounding.

    They are never worse than exact vectors, and often hardly worse than ridge regression.
    """
    unit, ratios = 2.0**-11, []
    for seed in range(4):
        scheme = CyclicRepetition(60, stragglers=40, seed=seed).scheme
        for first in (0, 20):
            F = np.setdiff1d(np.arange(60), (first + np.arange(40)) % 60)

            def error(vector, scheme=scheme, F=F):
                rounding = 2 * unit * np.linalg.norm(vector * scheme._sizes[F]) / np.sqrt(60)
                return np.hypot(scheme.precision.left_out(F, vector), rounding)

            best = error(scheme._solve(F, unit)[0])
            exact = error(scheme._solve(F)[0])
            with monkeypatch.context() as patch:
                patch.setitem(vars(scheme), "_dense", None)
                vector, left = scheme._solve(F, unit)
                assert left == pytest.approx(scheme.precision.left_out(F, vector), rel=1e-6)
                assert error(vector) <= exact * (1 + 1e-9)
                ratios.append(error(vector) / best)
    assert np.median(ratios) < 1.2


@pytest.mark.parametrize("n", [30, 60, 100])
def test_as_precise_as_least_squares(n):
    s = n // 10
    code = CyclicRepetition(n, stragglers=s)
    rng = np.random.default_rng(0)
    B = code.matrix()
    ours, theirs = [], []
    for _ in range(30):
        F = rng.permutation(n)[: n - s]
        ours.append(np.abs(code.decoding_vector(F) @ B[F] - 1).max())
        theirs.append(np.abs(np.linalg.lstsq(B[F].T, np.ones(n), rcond=None)[0] @ B[F] - 1).max())
    assert np.median(ours) < 20 * np.median(theirs)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 5, "stragglers": 5}, "stragglers must be in 0"),
        ({"n": 5, "k": 4, "stragglers": 1}, "k must be at least n=5, not 4"),
        ({"n": 5, "stragglers": 1, "seed": -1}, "seed must be at least 0"),
    ],
)
def test_impossible_cyclic_repetition(arguments, says):
    with pytest.raises(ValueError, match=says):
        CyclicRepetition(**arguments)


# --------------------------------------------------------------------------------- any matrix


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


# -------------------------------------------------------------------------------------- cache


def test_cache_is_bounded_and_keeps_the_last_used(monkeypatch):
    monkeypatch.setattr(scheme, "SOLUTIONS_BYTES", 3 * (32 * 8 + 500))
    code = CyclicRepetition(8, stragglers=2)
    solved = []
    kind = type(code.scheme)
    solve = kind._solve
    monkeypatch.setattr(
        kind,
        "_solve",
        lambda self, F, unit: solved.append(tuple(F)) or solve(self, F, unit),
    )
    sets = [(0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6), (2, 3, 4, 5, 6, 7), (0, 2, 3, 4, 5, 6)]
    first = code.decoding_vector(sets[0])
    backwards = code.decoding_vector(sets[0][::-1])  # the same set in another order
    np.testing.assert_array_equal(first, backwards[::-1])
    assert solved == sets[:1]
    for F in (sets[1], sets[2], sets[0], sets[3]):  # the last one evicts sets[1]
        code.decoding_vector(F)
    assert solved == [sets[0], sets[1], sets[2], sets[3]]
    code.decoding_vector(sets[0])
    assert len(solved) == 4
    code.decoding_vector(sets[1])
    assert solved[4:] == [sets[1]]
    first[:] = 0  # callers get copies
    assert code.decoding_vector(sets[0]).any()
    code.decoding_vector(sets[1], message_dtype=np.float32)
    assert solved[5:] == [sets[1]]  # another vector, if it is near-exact


def test_trust_counts_the_residual():
    code = LinearCode([[1, 1 - 1e-7], [0, 1]], stragglers=0)
    assert code.trust([0]).relative_error == pytest.approx(5e-8, rel=0.1)  # half on either side


def test_trust_counts_what_the_vector_at_hand_leaves():
    """It is not what the shortest vector leaves out, as a subclass may use another vector."""

    class Short(LinearScheme):
        def bind_vector(self, survivors, vector, unit=2.0**-53):
            return self.by_formula(lambda came: 0.9 * self._solution(came)[0], survivors, vector)

    scheme = Short(np.eye(4), 10)
    with pytest.warns(InstabilityWarning, match="relative error is about 1e-01"):
        check_stability(scheme, False, "use another")
    code = Code(scheme)
    assert code.trust(range(4)).relative_error == pytest.approx(0.1)
    assert code.residual(range(4)) == pytest.approx(0.1)


def test_missing_is_a_lower_bound():
    code = LinearCode(BinaryCode(6, stragglers=1).matrix())
    with pytest.raises(NotDecodableError) as caught:
        code.decoding_vector([0])
    assert caught.value.missing == 2  # blocks of two partitions


def test_coefficients_near_the_end_of_float64():
    with pytest.warns(InstabilityWarning, match="numerically unstable"):
        code = LinearCode(np.diag([1e308, 1e308, 1e308]), stragglers=0)
    assert code.threshold == 3


def test_fingerprints_do_not_see_the_sign_of_nothing():
    """A number that is rounded to 0 may come from either side."""
    codes = [LinearCode([[1, tiny], [0, 1], [1, 1]]) for tiny in (1e-9, -1e-9, 1e-3)]
    prints = [fingerprint(code.scheme) for code in codes]
    assert prints[0] == prints[1] != prints[2]


def test_fingerprints_are_digests_row_by_row():
    """This holds for codes of any kind, and for one with two kinds of rows."""

    class Mixed(Code):
        def __init__(self, n):
            self.n = self.k = n

        def row(self, worker):
            held = [worker, (worker + 1) % self.n]
            return held[: 1 + worker % 2], [1.5 + 1j * (worker > 1), 1e-9][: 1 + worker % 2]

    for code in (*SMALL, Mixed(4), LinearCode(np.diag([1.0, -2e-9, -3.0]))):
        hashed = hashlib.blake2b(digest_size=8)
        for number in range(code.scheme.messages.count):
            worker, index = code.scheme.messages.sender(number)
            values = code.coefficients(worker, index)
            largest = float(np.abs(values).max(initial=0)) or 1.0
            rounded = (np.round(values / largest, 6) + 0.0) * float(f"{largest:.6g}")
            for array in (code.partitions(worker, index), rounded):
                hashed.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        if not code.scheme.data.coded:
            assert fingerprint(code.scheme) == hashed.hexdigest()


@pytest.mark.parametrize(("n", "s"), [(9, 2), (10, 6), (40, 8), (300, 20)])
def test_cyclic_checks_are_zero_up_to_rounding(n, s):
    """Checks that B maps to zero expose lies: errors in them would accuse honest workers."""
    scheme = CyclicRepetition(n, stragglers=s).scheme
    rows = np.array([np.bincount(*scheme.row(i), minlength=n) for i in range(n)])
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    null = scheme._null[1]
    assert np.linalg.norm(null @ rows) < 1e-14
    assert np.linalg.norm(null @ null.T - np.eye(s)) < 1e-13
