"""Rounds in a user's own compiled loop, by the functions of fastgc.kernels.numba."""

import numpy as np
import programs
import pytest

import fastgc
from fastgc.kernels import Status

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402

pytestmark = [pytest.mark.numba]
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
def test_sums_of_rounds(n, k, s):
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.few(3)
def test_messages_are_those_of_the_code(dtype, kind):
    """A worker's message, in one call or partition by partition."""
    of = fastgc.ReedSolomon if kind is complex else fastgc.BinaryCode
    code, rng = of(7, stragglers=2), np.random.default_rng(1)
    partials = rng.standard_normal((code.k, P)).astype(dtype)
    if np.dtype(dtype).kind == "c":
        partials += 1j * rng.standard_normal((code.k, P)).astype(dtype)
    for i in range(code.n):
        own, coefficients = code.partitions(i), code.coefficients(i)
        wanted = code.encode(i, partials[own])
        message, streamed = np.empty_like(wanted), np.full_like(wanted, 7)
        assert nb.combine_rows(coefficients, partials, message, own)
        for at, j in enumerate(own):
            one = coefficients[at : at + 1], partials[j].reshape(1, -1)
            assert nb.combine_rows(*one, streamed, None, at > 0)
        for found in (message, streamed):
            np.testing.assert_allclose(found, wanted, atol=50 * np.finfo(dtype).eps)


def test_a_long_vector_is_told():
    """`Code.decode` takes a near-exact vector here; compiled code is told that this one is long."""
    code = fastgc.ReedSolomon(40, stragglers=18, root=1)
    vector = np.empty(22, complex)
    found = nb.decoding_vector(code.scheme.tables, nb.LOCATOR, np.arange(22), vector, 1e6)
    assert found[0] == Status.IMPRECISE
    assert np.isfinite(vector).all()


def test_vectors_of_many_rounds():
    code = fastgc.ReedSolomon(7, stragglers=2)
    masks = np.ones((3, 7), bool)
    masks[0, [1, 5]] = masks[1, :4] = False
    out, where = np.empty((3, 7), complex), np.empty(3, np.int64)
    nb.decoding_vectors(code.scheme.tables, masks.copy(), nb.SPREAD, out, where)
    assert where.tolist() == [0, 2, 0]
    for r in (0, 2):
        np.testing.assert_allclose(out[r, masks[r]], code.decoding_vector(np.flatnonzero(masks[r])))
        assert (out[r, ~masks[r]] == 0).all()


USERS = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
import fastgc
from test_njit import arrays, rounds

code = fastgc.ReedSolomon(7, stragglers=2)
sums = np.empty((1, 4))
assert rounds(*arrays(code), np.ones((7, 4)), np.arange(1, 6)[None], sums) == (-1, 0)
np.testing.assert_allclose(sums, 7)
print(sum(rounds.stats.cache_hits.values()), sum(rounds.stats.cache_misses.values()))
"""


@pytest.mark.long
def test_a_loop_is_kept_on_disk(tmp_path, monkeypatch):
    """A second process compiles nothing."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    source = USERS.format(folder=__file__.rpartition("/")[0])
    for kept in ("0 1", "1 0"):
        done = programs.run(programs.python("-W", "error", "-c", source), seconds=600)
        assert done.stdout.strip() == kept
