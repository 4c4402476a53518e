"""Cyclic repetition of Tandon et al.: its construction, and vectors by a closed form."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from liars import dense

from fastgc import CyclicRepetition, LinearCode
from fastgc.coding.fingerprint import fingerprint


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
            sizes = np.linalg.norm(linear.matrix()[F], axis=1)
            least = np.linalg.norm(expected * sizes)
            assert np.linalg.norm((vector - expected) * sizes) <= 1e-11 * least
            np.testing.assert_allclose(
                cyclic.precision.deviation(F, vector),
                vector @ linear.matrix()[F] - 1,
                atol=1e-14 * least,
            )
            assert (
                abs(cyclic.precision.left_out(F, vector) - linear.precision.left_out(F, vector))
                <= 1e-14 * least
            )
            checks = cyclic.parity(F)
            assert checks.first.size == linear.parity(F).first.size == f - (n - s)
            H = np.zeros((checks.first.size, F.size))  # real: all entries, check by check
            rows = np.repeat(np.arange(len(H)), np.diff(checks.first, append=checks.position.size))
            H[rows, checks.position] = checks.coefficient
            np.testing.assert_allclose(H @ cyclic.matrix()[F], 0, atol=1e-10)


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
    first, held, values = code.scheme.entries
    messages = np.add.reduceat(values * g[held], first[:-1])
    assert abs(vector @ messages[F] - g.sum()) < 1e-8 * np.linalg.norm(g)


def test_what_large_codes_leave_out_costs_less_than_rounding_would(monkeypatch):
    """Codes too large for matrices choose as well, for float16 messages, where exact is worse."""
    unit, F = 2.0**-11, np.arange(20)
    scheme, large = (CyclicRepetition(60, stragglers=40, seed=2).scheme for _ in range(2))
    sizes = np.linalg.norm(scheme.matrix(), axis=1)[F]

    def error(vector):
        rounding = 2 * unit * np.linalg.norm(vector * sizes) / np.sqrt(60)
        return np.hypot(scheme.precision.left_out(F, vector), rounding)

    best, exact = error(scheme.vector(F, unit)), error(scheme.vector(F))
    monkeypatch.setattr("fastgc.codes.cyclic_repetition._DENSE", 0)
    assert error(large.vector(F, unit)) < 1.01 * best < 0.6 * exact


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


@pytest.mark.parametrize(("n", "s"), [(9, 2), (10, 6), (40, 8), (300, 20)])
def test_cyclic_checks_are_zero_up_to_rounding(n, s):
    """Checks that B maps to zero expose lies: errors in them would accuse honest workers."""
    scheme = CyclicRepetition(n, stragglers=s).scheme
    rows = np.array([np.bincount(*scheme.row(i), minlength=n) for i in range(n)])
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    sizes = np.linalg.norm(scheme.matrix(), axis=1)
    null = dense(scheme.parity(np.arange(n)), n) * sizes
    assert np.linalg.norm(null @ rows) < 1e-14
    assert np.linalg.norm(null @ null.T - np.eye(s)) < 1e-13


def cyclic_by_the_paper(H):
    """Return B by Algorithm 2 of Tandon et al. 2017: rows of s + 1 entries in H's null space."""
    s, n = H.shape
    B = np.zeros((n, n))
    for worker in range(n):
        others = [(worker + step) % n for step in range(1, s + 1)]
        B[worker, worker] = 1
        B[worker, others] = np.linalg.solve(H[:, others], -H[:, worker])
    return B


def random_null_space(rng, n, s):
    """Return H of Algorithm 2: random, with rows that add up to 0."""
    H = rng.standard_normal((s, n))
    H[:, n - 1] = -H[:, : n - 1].sum(axis=1)
    return H


@pytest.mark.parametrize(("n", "s"), [(10, 1), (12, 2), (15, 3), (20, 2)])
def test_cyclic_codes_decode_as_by_least_squares(n, s):
    """Gradients agree to 1e-11 of the sum of moduli, for 50 sets each, 200 in all."""
    rng = np.random.default_rng(n)
    B = cyclic_by_the_paper(random_null_space(rng, n, s))
    code = LinearCode(B)
    partials = rng.standard_normal((n, 7))
    messages = B @ partials
    for _ in range(50):
        came = np.sort(rng.permutation(n)[: n - s])
        by_least_squares = np.linalg.lstsq(B[came].T, np.ones(n), rcond=None)[0]
        ours = code.decode(came, messages[came])
        terms = np.abs(by_least_squares) @ np.abs(messages[came])
        difference = np.abs(ours - by_least_squares @ messages[came])
        assert (difference <= 1e-11 * terms).all()
        assert (np.abs(ours - partials.sum(axis=0)) <= 1e-11 * terms).all()


@pytest.mark.parametrize("seed", range(3))
def test_our_cyclic_code_is_the_papers(seed):
    n, s = 14, 3
    H = random_null_space(np.random.default_rng(seed), n, s)
    B = CyclicRepetition(n, stragglers=s, seed=seed).matrix()
    np.testing.assert_allclose(B, cyclic_by_the_paper(H), rtol=1e-9)
