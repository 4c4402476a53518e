"""Vandermonde systems in a user's compiled code."""

import numpy as np
import pytest

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402

pytestmark = pytest.mark.numba


@pytest.mark.parametrize("order", [[0, 1, 3], [-1, 0, 2], [0, 1]])
def test_solve_vandermonde_checks_orders(order):
    three, out = np.arange(3.0), np.full(3, 7.0)
    with pytest.raises(ValueError, match="order must be"):
        nb.solve_vandermonde(three, three, np.array(order), False, out)
    assert (out == 7).all()


def test_solve_vandermonde_checks_lengths():
    three, two = np.arange(3.0), np.full(2, 7.0)
    with pytest.raises(ValueError, match="shape"):
        nb.solve_vandermonde(three, three, None, False, two)
    with pytest.raises(ValueError, match="order must be"):
        nb.leja_order(three, np.zeros(2, np.int64))
    assert (two == 7).all()
