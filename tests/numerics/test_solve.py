"""Decoding vectors by linear algebra: near-exact if exact ones are long."""

import functools
import math

import mpmath
import numpy as np
import pytest
from examples import example
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fastgc import (
    Code,
    CyclicRepetition,
    LinearCode,
    ReedSolomon,
    stability,
)
from fastgc.numerics.solve import near_exact_solution, near_exact_vector, row_sizes

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning"),
]

UNIT = 2.0**-53


def smooth(n, width):
    """Return rows so similar (n values of a Gaussian) that exact vectors are long."""
    at = np.arange(n)
    return np.exp(-(((at[:, None] - at) / width) ** 2))


def expected(rows, vector, unit=UNIT):
    """Return the expected relative error: what the vector leaves out, and rounding of messages."""
    with mpmath.workdps(150):
        exactly = np.vectorize(mpmath.mpmathify)
        B, a = exactly(rows), exactly(vector)
        lacks = sum(abs(sum(a * B[:, j]) - 1) ** 2 for j in range(B.shape[1]))
        rounding = sum(abs(a[i]) ** 2 * sum(abs(B[i]) ** 2) for i in range(len(B)))
        return float(mpmath.sqrt((lacks + (2 * unit) ** 2 * rounding) / B.shape[1]))


def least(rows, unit=UNIT):
    """Return the least expected error of any vector, in 150 digits."""
    return _least(tuple(map(tuple, rows.tolist())), unit)


@functools.cache
def _least(rows, unit):
    with mpmath.workdps(150):
        f, k = np.shape(rows)
        B = mpmath.matrix([list(row) for row in rows])
        normal = B * B.H
        for i in range(f):
            normal[i, i] += (2 * unit) ** 2 * sum(abs(B[i, j]) ** 2 for j in range(k))
        a = mpmath.lu_solve(normal.T, B.conjugate() * mpmath.ones(k, 1))
        return expected(np.array(rows), np.array(list(a)), unit)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_as_small_an_error_as_any_vector_has(data):
    """This holds for short and for extremely long exact vectors, and for rows of any scale."""
    n = data.draw(st.integers(2, 16))
    width = data.draw(st.sampled_from([0.3, 2.0, 4.0, 8.0]))
    unit = data.draw(st.sampled_from([2.0**-53, 2.0**-24, 2.0**-11]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rows = smooth(n, width)[np.sort(rng.permutation(n)[: data.draw(st.integers(1, n))])]
    if data.draw(st.booleans()):
        rows = rows * np.exp(2j * np.pi * rng.random(n))[:, None][: len(rows)]
    rows = (
        rows
        * 10.0 ** rng.uniform(*data.draw(st.sampled_from([(0, 0), (-20, 20)])), len(rows))[:, None]
    )
    vector, left = near_exact_solution(rows, np.ones(n), unit)
    found, best = expected(rows, vector, unit), least(rows, unit)
    # Exact vectors are kept while their error is below this.
    assert found <= max(3 * best, best + 1.01 * unit ** (5 / 8))
    deviation = np.linalg.norm(vector @ rows - 1) / math.sqrt(n)
    assert left == pytest.approx(deviation, rel=1e-3, abs=100 * UNIT * max(1, found / unit))


@pytest.mark.parametrize("unit", [2.0**-53, 2.0**-24])
def test_where_the_ridge_is_taken(unit):
    """Cutting off singular values, like a library's least squares, is worse."""
    rows = smooth(30, 5.0)
    vector, left = near_exact_solution(rows, np.ones(30), unit)
    best = least(rows, unit)
    assert expected(rows, vector, unit) < 1.5 * best
    cut = np.linalg.lstsq(rows.T, np.ones(30), rcond=None)[0]
    assert expected(rows, cut, unit) > 10 * best
    assert left <= 1.5 * best


def test_what_the_first_vector_lacks_is_solved_for():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((8, 8))
    asked = []

    def solve(wanted):
        asked.append(wanted)
        return np.linalg.solve(rows.T, wanted) * (1 + 1e-9)

    vector, left = near_exact_vector(solve, rows, row_sizes(rows), np.ones(8))
    assert len(asked) == 2
    assert left < 1e-14
    np.testing.assert_allclose(vector @ rows, 1, atol=1e-13)

    def worse(wanted):
        return np.linalg.solve(rows.T, wanted) * (1 + 1e-11 if (wanted == 1).all() else -1e3)

    _, left = near_exact_vector(worse, rows, row_sizes(rows), np.ones(8))
    assert left < 1e-14  # the ridge regression's: a second step that fails is dropped


def test_sizes_of_rows_of_any_scale():
    rows = np.array([[3, 4], [0, 0], [3e300, 4e300], [3e-300, 4e-300], [1.7e308, 1.7e308]])
    sizes = row_sizes(rows)
    np.testing.assert_allclose(sizes[:4], [5, 1, 5e300, 5e-300])
    assert sizes[4] == np.finfo(float).max
    np.testing.assert_allclose(row_sizes(np.array([[3j, 4.0]])), 5)


# ----------------------------------------------------------------------------------- as codes


class ByRows(Code):
    """A code of any matrix, defined by rows alone."""

    def __init__(self, B, stragglers):
        self.B = B
        self.n, self.k = B.shape
        self.stragglers = stragglers

    def row(self, worker):
        held = np.flatnonzero(self.B[worker])
        return held, self.B[worker][held]


def true_error(code, F, p=40, seed=0):
    """Return the relative error of a gradient decoded from real messages, by exact sums."""
    partials = np.random.default_rng(seed).standard_normal((code.k, p))
    messages = [code.encode(worker, [partials[j] for j in code.partitions(worker)]) for worker in F]
    exact = np.array([math.fsum(column) for column in partials.T])
    error = np.linalg.norm(code.decode(F, messages) - exact)
    # On average, partial gradients are equally long and orthogonal.
    return error / math.sqrt(code.k * p), error / np.linalg.norm(partials, axis=1).max()


def matrices(data):
    kind = data.draw(st.sampled_from(["smooth", "cyclic", "cyclic, scaled", "rs", "rs, root 1"]))
    if kind == "smooth":
        n = data.draw(st.integers(3, 24))
        return smooth(n, data.draw(st.sampled_from([0.5, 2.0, 5.0, 9.0])))
    n = data.draw(st.integers(4, 40))
    s = data.draw(st.integers(0, min(n - 2, 12)))
    seed = data.draw(st.integers(0, 20))
    if kind.startswith("rs"):
        return ReedSolomon(n, stragglers=s, root=1 if "1" in kind else "stable").matrix()
    B = CyclicRepetition(n, stragglers=s, seed=seed).matrix()
    if "scaled" in kind:
        B *= 10.0 ** np.random.default_rng(seed).uniform(-60, 60, (n, 1))
    return B


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_trust_and_bound_tell_the_truth(data):
    B = matrices(data)
    n, seed = len(B), data.draw(st.integers(0, 99))
    s = data.draw(st.integers(0, n // 2))
    make = data.draw(st.sampled_from([LinearCode, ByRows]))
    assume(near_exact_solution(B, np.ones(n))[1] < 1e-7)  # codes refuse others
    code = make(B, stragglers=s)
    F = np.sort(np.random.default_rng(seed).permutation(n)[s:])
    error, of_longest = true_error(code, F, seed=seed)
    assert of_longest <= stability.error_bound(code, F) * math.sqrt(code.k)
    said = code.trust(F).relative_error
    assert error <= 30 * said
    assert said <= 30 * max(error, UNIT)
    assert code.residual(F) <= 2 * said


def test_residuals_are_of_the_size_of_rounding():
    """Errors of the null space would add a hundred times as much."""
    for n, s in [(60, 6), (100, 10), (100, 30)]:
        code = CyclicRepetition(n, stragglers=s)
        rng = np.random.default_rng(0)
        for _ in range(5):
            F = np.sort(rng.permutation(n)[s:])
            a = code.decoding_vector(F)
            rounding = 2 * UNIT * math.sqrt(np.abs(a) ** 2 @ code.scheme.precision.row_norms[F])
            assert code.residual(F) < 4 * rounding


@pytest.mark.parametrize("n", [5, 7, 10, 20])
def test_what_cannot_be_solved_is_not_solved_by_long_vectors(n):
    # Dependent rows that miss the target: a regression may add any combination that cancels.
    for seed in range(400):
        rng = np.random.default_rng(seed)
        rows = (rng.random((n, n)) < 3 / n).astype(np.float64)
        rows[rows.sum(axis=1) == 0, 0] = 1
        rows[-2:] = rows[0]
        vector, left = near_exact_solution(rows, np.ones(n))
        shortest = np.linalg.lstsq(rows.T, np.ones(n), rcond=1e-10)[0]
        least = np.linalg.norm(rows.T @ shortest - 1) / np.sqrt(n)
        assert np.linalg.norm(vector) < 10 * np.linalg.norm(shortest) + 1, seed
        assert left == pytest.approx(least, abs=1e-9), seed


SPARSE = [
    example("codes/expander").ExpanderCode(160, load=4, wait=128),
    example("codes/bernoulli").BernoulliCode(160, load=6, wait=130),
    example("codes/bernoulli").BernoulliCode(200, load=1, wait=100),  # many messages are equal
    example("codes/raptor").RaptorCode(256, wait=200),  # mostly exact
    example("codes/raptor").RaptorCode(400, wait=200, missing=0.2),
]


@pytest.mark.few(2)
@pytest.mark.parametrize("code", SPARSE, ids=repr)
def test_sparse_rows_are_solved_as_dense_ones(code, monkeypatch):
    """They give the same vector without a decomposition: the shortest, weighted by rows' norms."""
    rng = np.random.default_rng(7)
    sets = [np.sort(rng.permutation(code.n)[: code.scheme.wait - i]) for i in range(3)]
    given = [code.scheme.equations(came) for came in sets]
    dense = []
    for rows, target, _ in given:
        sizes = row_sizes(rows)
        dense.append(np.linalg.lstsq((rows / sizes[:, None]).T, target)[0] / sizes)
    monkeypatch.delattr(np.linalg, "lstsq")
    monkeypatch.delattr(np.linalg, "qr")
    for (rows, target, _), vector in zip(given, dense, strict=True):
        found, left = near_exact_solution(rows, target)
        np.testing.assert_allclose(found, vector, rtol=0, atol=1e-10)
        optimum = np.linalg.norm(target - vector @ rows) / np.linalg.norm(target)
        assert left == pytest.approx(optimum, rel=0, abs=1e-12)
        assert left == pytest.approx(
            np.linalg.norm(target - found @ rows) / np.linalg.norm(target), rel=0, abs=1e-14
        )


@pytest.mark.parametrize("scale", [0, 3])
def test_near_exact_solution_of_sparse_rows_that_have_one(scale, monkeypatch):
    """What a first descent leaves is solved for by a second, to the last digits."""
    monkeypatch.delattr(np.linalg, "lstsq")
    monkeypatch.delattr(np.linalg, "qr")
    rng, rows = np.random.default_rng(scale), np.zeros((150, 200))
    for row in rows:
        row[rng.permutation(200)[:4]] = rng.standard_normal(4) * 10.0 ** rng.uniform(-scale, scale)
    vector = rng.standard_normal(150)
    found, left = near_exact_solution(rows, vector @ rows)
    assert left < 4e-16
    np.testing.assert_allclose(found, vector, rtol=1e-9)


def test_sparse_rows_that_are_nearly_dependent_are_decomposed():
    """Conjugate gradients do not converge there, so the result is that of a decomposition."""
    n = 200
    rows = np.eye(n) - np.roll(np.eye(n), 1, axis=1)
    rows[0, 0] += 1e-6
    target = np.random.default_rng(8).normal(size=n)
    found, left = near_exact_solution(rows, target)
    dense = np.linalg.lstsq(rows.T, target)[0]
    assert left < 1e-9
    np.testing.assert_allclose(found, dense, rtol=1e-6)


def test_sparse_rows_of_zeros_and_of_any_size():
    rows = np.zeros((200, 150))
    rows[np.arange(200), np.arange(200) % 150] = 10.0 ** np.linspace(-8, 8, 200)
    rows[5] = 0
    found, left = near_exact_solution(rows, np.ones(150))
    lost = np.sqrt(1 / 150) if not rows[:, 5].any() else 0.0
    assert left == pytest.approx(lost, abs=1e-12)
    np.testing.assert_allclose(found @ rows, rows.any(axis=0), atol=1e-12)
