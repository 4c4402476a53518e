"""What schemes say of errors: of their rows, and what vectors leave out."""

import numpy as np
import pytest
from tables import (
    LARGE,
    LARGE_IDS,
    SMALL,
    SMALL_IDS,
)


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
