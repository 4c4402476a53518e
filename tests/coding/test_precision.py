"""What schemes say of errors: of their rows, and what vectors leave out."""

import numpy as np
import pytest
from tables import EVERY_SMALL, LARGE, LARGE_IDS, SMALL, SMALL_IDS

import fastgc
from fastgc.coding.precision import Precision


@pytest.mark.parametrize("code", [*SMALL, *LARGE], ids=[*SMALL_IDS, *LARGE_IDS])
def test_what_is_said_of_rows_is_what_rows_say(code):
    """Some schemes compute loads and norms without their rows; they must agree with them."""
    sizes = [values for _, values in code.scheme.message_rows()]
    loads = [code.partitions(worker).size for worker in range(code.n)]
    assert code.scheme.loads.dtype == np.int64
    assert code.scheme.loads.tolist() == loads
    assert code.load == max(loads)
    if code.scheme.data.coded:
        return
    for each in (code.scheme.precision.row_norms, code.scheme.precision.row_sums):
        assert each.dtype == np.float64
    norms = np.array([np.sum(np.abs(values) ** 2) for values in sizes]) / code.scheme.k
    np.testing.assert_allclose(code.scheme.precision.row_norms, norms, rtol=1e-13)
    np.testing.assert_allclose(
        code.scheme.precision.row_sums, [np.abs(v).sum() for v in sizes], rtol=1e-13
    )


@pytest.mark.parametrize("kept", [0, 1 << 23], ids=["row by row", "all entries"])
@EVERY_SMALL
def test_deviation_is_that_of_rows(code, kept, monkeypatch):
    """For any vector, some of whose coefficients are 0; also where the base class computes it."""
    if code.scheme.data.coded:
        return
    monkeypatch.setattr("fastgc.coding.precision.ENTRIES_KEPT", kept)
    rng, B = np.random.default_rng(0), code.matrix()
    for size in range(1, code.scheme.messages.count + 1):
        F = rng.permutation(code.scheme.messages.count)[:size]
        vector = rng.standard_normal(size) * (rng.random(size) < 0.8)
        if code.scheme.is_complex:
            vector = vector * np.exp(1j * rng.standard_normal(size))
        lacking = vector @ B[F] - 1
        for precision in (code.scheme.precision, Precision(code.scheme)):
            found = precision.deviation(F, vector)
            wanted = lacking.real if code.scheme.layout == "complex" else lacking
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13 * np.abs(B).max() * size)
            left = np.sqrt(np.mean(np.abs(found) ** 2))
            assert precision.residual(F, vector) == pytest.approx(left, rel=1e-13)


def test_residual_whose_square_is_beyond_float64():
    code = fastgc.ReedSolomon(8, stragglers=2)
    vector = np.full(8, 1e200 + 0j)
    assert code.residual(np.arange(8), vector) == pytest.approx(
        1e200 * np.sqrt(np.mean(np.abs(code.matrix().sum(axis=0)) ** 2)), rel=1e-12
    )


def test_a_deviation_of_its_own_is_what_a_residual_is_of():
    class Own(Precision):
        def deviation(self, survivors, vector):
            return np.array([3.0, 4.0])

    own = Own(fastgc.BinaryCode(8, stragglers=2).scheme)
    assert own.residual(np.arange(2), np.ones(2)) == pytest.approx(np.sqrt(12.5))


@EVERY_SMALL
def test_deviation_is_summed_up_in_extended_precision(code, monkeypatch):
    """To the last bit, as NumPy adds up row by row."""
    if code.scheme.data.coded:
        return
    base, rng = Precision(code.scheme), np.random.default_rng(0)
    F = rng.permutation(code.scheme.messages.count)[: 1 + code.scheme.messages.count // 2]
    vector = rng.standard_normal(F.size) * [1e9, *np.ones(F.size - 1)] * (rng.random(F.size) < 0.8)
    vector = vector * np.exp(1j * rng.standard_normal(F.size)) if code.scheme.is_complex else vector
    found = base.deviation(F, vector)
    monkeypatch.setattr("fastgc.coding.precision.ENTRIES_KEPT", 0)
    np.testing.assert_array_equal(found, base.deviation(F, vector))


@EVERY_SMALL
def test_what_the_base_class_says(code):
    scheme, base = code.scheme, Precision(code.scheme)
    sizes = [np.abs(values) for _, values in scheme.message_rows()]
    np.testing.assert_allclose(base.row_sums, [each.sum() for each in sizes])
    np.testing.assert_allclose(base.row_norms, [(each**2).sum() / code.k for each in sizes])
    added = code.load / scheme.messages.per_worker  # partial gradients, in groups of eight
    assert base.message_roundings == min(added, added / 8 + 4) + 2
    assert (base.copies, base.data_roundings, base.computation_roundings(9)) == (None, 0, 0)
    assert not base.unbiased
    assert base.typical_error() is base.known_residuals(1) is None
    everyone = np.arange(scheme.messages.count)
    vector = scheme.vector(everyone)
    assert base.vector_errors(everyone, vector) is None
    assert base.left_out(everyone, vector) == (0 if scheme.exact else code.residual(everyone))
