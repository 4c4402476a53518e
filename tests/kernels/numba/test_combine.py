"""Combinations of rows in a user's compiled code."""

import numpy as np
import pytest

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402

pytestmark = pytest.mark.numba

USUAL = [(np.float32, complex)]  # each takes seconds to compile


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        pytest.param(dtype, kind, marks=[] if (dtype, kind) in USUAL else pytest.mark.long)
        for dtype in (np.float32, np.float64, np.complex64, np.complex128)
        for kind in (float, complex)
    ],
)
def test_combine_rows_of_chosen_rows(dtype, kind):
    """Only chosen rows are read, in any order, with real and with complex codes."""

    @numba.njit
    def combine(coef, rows, survivors, out):
        return nb.combine_rows(coef, rows, out, survivors)

    rng = np.random.default_rng(8)
    survivors = np.array([5, 0, 3, 7, 6, 1])
    for p in (1, 2, 7, 8, 40):
        packed = kind is complex and np.dtype(dtype).kind == "f"
        rows = np.full((8, p + 3), np.nan, dtype)[:, : p + (p % 2 if packed else 0)]
        rows[survivors] = rng.standard_normal((6, rows.shape[1]))
        coef = rng.standard_normal(6).astype(kind)
        if kind is complex:
            coef += 1j * rng.standard_normal(6)
        out = np.empty(p, dtype)
        assert combine(coef, rows, survivors, out)
        chosen = rows[survivors]
        if packed:
            pairs = np.result_type(dtype, np.complex64)
            truth = (coef @ np.ascontiguousarray(chosen).view(pairs)).view(float)[:p]
        else:
            truth = (coef @ chosen)[:p]
        np.testing.assert_allclose(out, truth, atol=20 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(rows[survivors], chosen)
        rows[3, 0] = np.inf
        assert not combine(coef, rows, survivors, out)


def test_combine_rows_checks_lengths():
    """In a user's compiled loop nothing else checks them, and memory would be overwritten."""
    four, rows, vector, out = np.arange(4), np.ones((6, 8)), np.ones(4, complex), np.full(8, 7.0)
    for says, *arguments in (
        ("a row for each", vector[:3], rows, out, four),
        ("is no row", vector, rows, out, four + 3),
        ("is no row", vector, rows, out, four - 1),
        ("a row for each", vector, rows, out, None),
        ("out must be", vector, rows, np.empty(9), four),
        ("out must be", vector, rows, np.empty(6), four),
        ("contiguous", vector, np.ones((6, 16))[:, ::2], out, four),
    ):
        with pytest.raises(ValueError, match=says):
            nb.combine_rows(*arguments)
    assert (out == 7).all()
