"""Lagrange bases by C's and Numba's kernels: what is special; the table has the rest."""

import numpy as np
import pytest

from fastgc import kernels

pytestmark = pytest.mark.every_backend


def test_lagrange_products_of_a_node_that_is_near():
    exponent, hit = np.empty((2, 3), int)
    points = np.array([2.0**-251, 2.0**-249, 0.0])
    kernels.lagrange_products(np.array([0.0, 0.5]), points, np.empty(3), exponent, hit)
    assert hit.tolist() == [-2, -1, 0]


@pytest.mark.parametrize("nodes", [[0.0, 1.0, 0.0], [0.0, np.inf, 1.0], [np.nan, 0.0, 1.0]])
def test_lagrange_weights_of_what_are_no_nodes(nodes):
    assert kernels.lagrange_weights(np.array(nodes), *np.empty((2, 3)), None) is None


@pytest.mark.parametrize("dtype", [float, complex])
def test_lagrange_basis_over_no_points_is_zero(dtype):
    nodes, out = np.arange(3, dtype=dtype), np.full(3, np.nan, dtype)
    kernels.lagrange_basis(nodes, nodes, np.zeros(3, int), nodes[:0], out)
    np.testing.assert_array_equal(out, 0)


def test_lagrange_evaluate_what_is_not_finite():
    """Also points that are too far from the nodes; then nothing is written."""
    nodes, scaled, weights, out = np.linspace(-1, 1, 5), *np.empty((2, 5)), np.full(3, 7.0)
    exponent = np.empty(5, int)
    kernels.lagrange_weights(nodes, scaled, weights, exponent)
    given, points = (scaled, weights, exponent), np.array([0.3, 0.5, -0.25])
    for wrong in (np.inf, np.nan, 2.0**240):
        points[1] = wrong
        assert not kernels.lagrange_evaluate(*given, nodes, points, 1.0, out)
        assert (out == 7).all()
    points[1] = 8 * scaled[3]
    assert kernels.lagrange_evaluate(*given, nodes**4, points, 0.125, out)
    assert out[1] == nodes[3] ** 4  # a node's value is exact
