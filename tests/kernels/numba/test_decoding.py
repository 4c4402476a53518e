"""Decoding vectors, and rounds of a user's own compiled loop."""

import numpy as np
import oracles
import pytest

import fastgc
from fastgc.kernels import Status

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402

pytestmark = pytest.mark.numba
P = 7  # odd, so that packed messages are longer than gradients


@numba.njit(cache=True)
def rounds(tables, partitions, coefficients, partials, arrivals, sums):
    """Encode all messages, and decode the sum of each round."""
    n, f = len(partitions), arrivals.shape[1]
    messages = np.full((n, partials.shape[1] + partials.shape[1] % 2), np.nan)
    vector = np.empty(f, np.complex128)
    for r in range(len(arrivals)):
        for i in arrivals[r]:
            if not nb.combine_rows(coefficients[i], partials, messages[i], partitions[i]):
                return r, 6
        status, _ = nb.decoding_vector(tables, nb.SPREAD, arrivals[r], vector)
        if status != 0:
            return r, status
        if not nb.combine_rows(vector, messages, sums[r], arrivals[r]):
            return r, 6
    return -1, 0


def arrays(code):
    """Return a code's arrays for `rounds`."""
    partitions = np.array([code.partitions(i) for i in range(code.n)])
    coefficients = np.array([code.coefficients(i) for i in range(code.n)])
    return code.scheme.tables, partitions, coefficients


@pytest.mark.parametrize(("n", "k", "s"), [(7, 7, 2), (6, 9, 1), (80, 80, 12)])
def test_decoding_vector_in_a_loop_of_rounds(n, k, s):
    code, rng = fastgc.ReedSolomon(n, k, stragglers=s), np.random.default_rng(0)
    partials = rng.standard_normal((k, P))
    arrivals = np.array([rng.permutation(n)[: n - s] for _ in range(20)])
    sums = np.empty((20, P))
    assert rounds(*arrays(code), partials, arrivals, sums) == (-1, 0)
    np.testing.assert_allclose(sums, [partials.sum(axis=0)] * 20, atol=1e-9)
    for wrong, status in (
        (arrivals[:, 1:].copy(), Status.TOO_FEW),
        (np.where(arrivals == arrivals[0, 0], arrivals[0, 1], arrivals), Status.DUPLICATE),
    ):
        assert rounds(*arrays(code), partials, wrong, sums) == (0, status)
    partials[code.partitions(arrivals[0, 0])[0]] = np.inf
    assert rounds(*arrays(code), partials, arrivals, sums) == (0, Status.NOT_FINITE)


def test_decoding_vector_checks_lengths():
    tables = fastgc.ReedSolomon(6, stragglers=2).scheme.tables
    few, masks = np.full(3, 7j), np.ones((2, 6), bool)
    with pytest.raises(ValueError, match="out must be"):
        nb.decoding_vector(tables, 0, np.arange(4), few)
    with pytest.raises(ValueError, match="masks and out"):
        nb.decoding_vectors(tables, masks, 0, np.empty((2, 5), complex), np.zeros(2, int))
    assert (few == 7j).all()


def test_decoding_vector_as_the_oracle_spreads():
    tables, rng = fastgc.ReedSolomon(12, stragglers=5).scheme.tables, np.random.default_rng(0)
    for lost in range(6):
        survivors = rng.permutation(12)[lost:]
        out = np.empty(survivors.size, complex)
        assert nb.decoding_vector(tables, nb.SPREAD, survivors, out) == (Status.OK, 0)
        expected = oracles.decoding.decoding_vector(tables, nb.SPREAD, survivors)
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-14)


def test_decoding_vector_tells_a_long_one():
    """`Code.decode` takes a near-exact vector here; compiled code is told that this one is long."""
    code = fastgc.ReedSolomon(40, stragglers=18, root=1)
    vector = np.empty(22, complex)
    found = nb.decoding_vector(code.scheme.tables, nb.LOCATOR, np.arange(22), vector, 1e6)
    assert found[0] == Status.IMPRECISE
    assert np.isfinite(vector).all()


def test_decoding_vectors_of_many_rounds():
    code = fastgc.ReedSolomon(7, stragglers=2)
    masks = np.ones((3, 7), bool)
    masks[0, [1, 5]] = masks[1, :4] = False
    out, where = np.empty((3, 7), complex), np.empty(3, np.int64)
    nb.decoding_vectors(code.scheme.tables, masks.copy(), nb.SPREAD, out, where)
    assert where.tolist() == [0, 2, 0]
    for r in (0, 2):
        np.testing.assert_allclose(out[r, masks[r]], code.decoding_vector(np.flatnonzero(masks[r])))
        assert (out[r, ~masks[r]] == 0).all()
