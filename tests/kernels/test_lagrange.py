"""Lagrange bases by C's and Numba's kernels, by hand and by fractions; the table has the rest."""

from fractions import Fraction
from math import prod

import numpy as np
import pytest

from fastgc import kernels

pytestmark = pytest.mark.every_backend

NODES = [Fraction(-3, 4), Fraction(0), Fraction(1, 8), Fraction(1, 2), Fraction(7, 8)]
POINTS = [Fraction(1, 3), Fraction(1, 8), Fraction(-1, 1024)]


def floats(numbers):
    return np.array([float(each) for each in numbers])


def weights_of(nodes):
    return [1 / prod(x - y for y in nodes if y != x) for x in nodes]


def test_lagrange_products_by_fractions():
    nodes, points = floats(NODES), floats(POINTS)
    mantissa, exponent, hit = np.empty(3), np.empty(3, int), np.empty(3, int)
    kernels.lagrange_products(nodes, points, mantissa, exponent, hit)
    wanted = [prod(Fraction(x) - node for node in NODES if Fraction(x) != node) for x in points]
    np.testing.assert_allclose(np.ldexp(mantissa, exponent), floats(wanted), rtol=1e-15)
    assert hit.tolist() == [-1, 2, -1]  # the second point is a node, which is left out


def test_lagrange_products_of_a_node_that_is_near():
    exponent, hit = np.empty((2, 3), int)
    points = np.array([2.0**-251, 2.0**-249, 0.0])
    kernels.lagrange_products(np.array([0.0, 0.5]), points, np.empty(3), exponent, hit)
    assert hit.tolist() == [-2, -1, 0]


@pytest.mark.parametrize("shift", [0, -40, 600])
def test_lagrange_weights_by_fractions(shift):
    """Scaled nodes have their largest part in [1/2, 1), whatever their scale."""
    nodes, scaled, weights = np.ldexp(floats(NODES), shift), np.empty(5), np.empty(5)
    exponent = np.empty(5, int)
    assert kernels.lagrange_weights(nodes, scaled, weights, exponent) == -shift
    np.testing.assert_array_equal(scaled, floats(NODES))
    wanted = floats(weights_of(NODES))
    np.testing.assert_allclose(np.ldexp(weights, exponent), wanted, rtol=4e-15)
    kernels.lagrange_weights(nodes, scaled, weights, None)
    assert 1 <= np.abs(weights).max() < 2
    np.testing.assert_allclose(weights / weights[0], wanted / wanted[0], rtol=4e-15)


@pytest.mark.parametrize("nodes", [[0.0, 1.0, 0.0], [0.0, np.inf, 1.0], [np.nan, 0.0, 1.0]])
def test_lagrange_weights_of_what_are_no_nodes(nodes):
    assert kernels.lagrange_weights(np.array(nodes), *np.empty((2, 3)), None) is None


def test_lagrange_basis_by_fractions():
    nodes, points, weights = floats(NODES), floats(POINTS), floats(weights_of(NODES))
    out, sums = np.empty((3, 5)), np.empty(5)
    none = np.zeros(5, int)
    kernels.lagrange_basis(nodes, weights, none, points, out)
    kernels.lagrange_basis(nodes, weights, none, points, sums)
    wanted = [
        floats(w * prod(Fraction(x) - y for y in NODES if y != node)
               for w, node in zip(weights_of(NODES), NODES, strict=True))
        for x in points
    ]  # fmt: skip
    np.testing.assert_allclose(out, wanted, rtol=1e-14, atol=0)
    np.testing.assert_array_equal(out[1], [0, 0, 1, 0, 0])  # a node's own row is exact
    np.testing.assert_allclose(sums, np.sum(wanted, axis=0), rtol=1e-13)
    kernels.lagrange_basis(nodes, np.ldexp(weights, -70), none + 70, points, sums)
    np.testing.assert_allclose(sums, np.sum(wanted, axis=0), rtol=1e-13)


@pytest.mark.parametrize("dtype", [float, complex])
def test_lagrange_basis_over_no_points_is_zero(dtype):
    nodes, out = np.arange(3, dtype=dtype), np.full(3, np.nan, dtype)
    kernels.lagrange_basis(nodes, nodes, np.zeros(3, int), nodes[:0], out)
    np.testing.assert_array_equal(out, 0)


def test_lagrange_evaluate_by_fractions():
    """A polynomial of degree 4 is its interpolation in five nodes; a node's value is exact."""
    nodes, weights, points = floats(NODES), floats(weights_of(NODES)), floats(POINTS)

    def value(x):
        return 3 - 2 * x + x**2 / 4 - 5 * x**4

    values, out = floats(value(x) for x in NODES), np.empty(3)
    given = nodes, weights, np.zeros(5, int), values
    assert kernels.lagrange_evaluate(*given, 8 * points, 0.125, out)
    np.testing.assert_allclose(out, floats(value(Fraction(x)) for x in points), rtol=1e-14)
    assert out[1] == values[2]
    out[:] = 7
    for wrong in (np.inf, np.nan, 2.0**240):
        points[1] = wrong
        assert not kernels.lagrange_evaluate(*given, points, 1.0, out)
        assert (out == 7).all()
