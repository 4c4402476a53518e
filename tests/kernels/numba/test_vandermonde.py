"""Vandermonde systems in a user's compiled code."""

import numpy as np
import oracles
import pytest

from fastgc import interpolation

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


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.few(1)
def test_leja_order_is_the_oracles(complex_):
    """Ties, of which symmetric nodes have many, are broken alike."""
    for m in (1, 2, 3, 8, 17, 64):
        nodes = interpolation.roots_of_unity(m) if complex_ else interpolation.chebyshev(m)
        order, expected = np.zeros((2, m), np.int64)
        nb.leja_order(nodes, order)
        oracles.vandermonde.leja_order(nodes, expected)
        np.testing.assert_array_equal(order, expected)
