"""Barycentric weights and Lagrange bases: truth in high precision, thousands of nodes, errors."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_table import nodes_of
from strength import much

from fastgc import interpolation
from fastgc.interpolation import basis, chebyshev, evaluate, functional, roots_of_unity, weights

pytestmark = pytest.mark.every_backend


def wide_basis(nodes, points):
    """By definition, in 60 digits."""
    with mpmath.workdps(60):
        x, z = ([mpmath.mpmathify(v) for v in values.tolist()] for values in (nodes, points))
        rows = [
            [
                mpmath.fprod((p - x[i]) / (x[j] - x[i]) for i in range(len(x)) if i != j)
                for j in range(len(x))
            ]
            for p in z
        ]
        total = [mpmath.fsum(column) for column in zip(*rows, strict=True)]
        kind = complex if np.iscomplexobj(nodes) or np.iscomplexobj(points) else float
        return np.array([[kind(v) for v in row] for row in rows]), np.array(list(map(kind, total)))


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("m", [1, 2, 5, 24])
def test_against_mpmath(complex_, m):
    """Every value accurate relative to itself: also far outside, and next to a node."""
    rng = np.random.default_rng(m)
    nodes = nodes_of(rng, m, complex_)
    points = np.append(rng.uniform(-3, 3, 5), nodes[0].real + np.array([0, 1e-13, 1e-30, 0.5]))
    truth, total = wide_basis(nodes, points)
    found = basis(nodes, points)
    assert found.dtype == truth.dtype
    scale = np.where(truth == 0, 1, np.abs(truth))
    assert (np.abs(found - truth) / scale).max() < 1e-14 * (m + 2)
    error = np.abs(functional(nodes, points) - total).max()
    assert error < 1e-13 * np.abs(truth).sum(axis=0).max()
    w = weights(nodes)
    exact = np.array(
        [1 / np.prod(x - np.delete(nodes.astype(np.clongdouble), j)) for j, x in enumerate(nodes)]
    )
    ratio = w / exact
    assert np.abs(ratio / ratio[0] - 1).max() < 1e-14 * (m + 2)
    assert 1 <= np.abs(w).max() < 2


def test_points_far_from_the_nodes():
    """As far as doubles go; beyond that an error that says so, not one about the nodes."""
    nodes = np.array([0.0, 1.0, 3.0])
    for z in (1e5, -1e60, 1e70):
        truth, _ = wide_basis(nodes, np.array([z]))
        np.testing.assert_allclose(basis(nodes, [z]), truth, rtol=1e-14)
        np.testing.assert_allclose(basis(nodes * 1e-200, [z * 1e-200]), truth, rtol=1e-13)
    for node, point in ((0.0, 1e100), (1e-300, 0.0)):
        np.testing.assert_allclose(basis([node], [point]), 1, rtol=3e-16)
    with pytest.raises(ValueError, match="points reach 1e\\+100, more than 2\\^240 times as far"):
        functional(nodes, [0.5, 1e100])


def test_exact_at_nodes():
    for nodes in (chebyshev(30), roots_of_unity(30), np.array([4.0])):
        np.testing.assert_array_equal(basis(nodes, nodes), np.eye(nodes.size))
        np.testing.assert_array_equal(functional(nodes, nodes[::-1]), np.ones(nodes.size))


@given(st.integers(1, 40), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_reproduces_polynomials(m, complex_, random):
    rng = np.random.default_rng(random.randrange(2**32))
    nodes = nodes_of(rng, m, complex_) / 2
    points = rng.uniform(-1, 1, 7) + 1j * rng.uniform(-0.1, 0.1, 7) * complex_
    points = points if complex_ else points.real
    coefficients = rng.standard_normal((m, 3))
    values, expected = (
        np.polynomial.polynomial.polyval(z, coefficients).T for z in (nodes, points)
    )
    L = basis(nodes, points)
    tolerance = 1e-13 * (m + 5) * np.abs(L).sum(axis=1).max() * np.abs(values).max()
    np.testing.assert_allclose(L @ values, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(evaluate(nodes, values, points), expected, rtol=0, atol=tolerance)
    one = evaluate(nodes, values[:, 0], points)
    np.testing.assert_allclose(one, expected[:, 0], rtol=0, atol=tolerance)
    np.testing.assert_allclose(L.sum(axis=1), 1, rtol=0, atol=tolerance)
    np.testing.assert_allclose(
        functional(nodes, points) @ values, expected.sum(axis=0), rtol=0, atol=7 * tolerance
    )
    shuffled = rng.permutation(m)
    np.testing.assert_allclose(
        basis(nodes[shuffled], points), L[:, shuffled], rtol=1e-12, atol=1e-300
    )


@pytest.mark.parametrize("length", much([1e-100, 1e-3, 1.0, 1e5, 1e100], [1e-100]))
def test_thousands_of_nodes_on_any_interval(length):
    rng = np.random.default_rng(0)
    points = np.append(rng.uniform(-1, 1, 8), 0.3)
    for nodes in (chebyshev(2000), roots_of_unity(2000)):
        w = weights(nodes * length)
        assert np.isfinite(w).all()
        assert 1 <= np.abs(w).max() < 2
        L = basis(nodes * length, points * length)
        np.testing.assert_allclose(L, basis(nodes, points), rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(L.sum(axis=1), 1, atol=1e-11)
        c = functional(nodes * length, points * length)
        np.testing.assert_allclose(c, L.sum(axis=0), atol=1e-11)
    known = (-1.0) ** np.arange(2000) * np.sin((np.arange(2000) + 0.5) * np.pi / 2000)
    ratio = weights(chebyshev(2000) * length) / known
    np.testing.assert_allclose(ratio / ratio[0], 1, rtol=1e-10)
    ratio = weights(roots_of_unity(2000)) / roots_of_unity(2000)
    np.testing.assert_allclose(ratio / ratio[0], 1, rtol=1e-10)


@pytest.mark.every_backend
@pytest.mark.parametrize("length", [2.0**-1000, 2.0**-300, 2.0**300, 2.0**1000])
def test_complex_points_of_any_size(length):
    """Among nodes whose products are beyond a double; powers of two change no digit."""
    nodes, points = roots_of_unity(60), np.array([0.3 + 0.2j, -0.1 - 0.7j, 0.9j])
    L = basis(nodes, points)
    np.testing.assert_allclose(L @ nodes**7, points**7, atol=1e-13)
    np.testing.assert_allclose(basis(nodes * length, points * length), L, rtol=1e-12)


@pytest.mark.every_backend
def test_weights_of_any_size_on_a_slanted_line():
    """Of equispaced nodes, from 1 to 1e-300 and less; turning all by one angle changes nothing."""
    nodes, points, turn = np.linspace(0, 1, 1500), np.array([0.49999, 0.5003 + 1e-4j]), np.exp(0.7j)
    L = basis(nodes, points)
    turned = basis(nodes * turn, points * turn)
    for row, point in zip(turned, points, strict=True):  # nothing is left of the point before
        np.testing.assert_allclose(basis(nodes * turn, [point * turn])[0], row, rtol=1e-12)
    size = np.abs(L).max(axis=1, keepdims=True)
    assert np.abs(turned - L).max() < 1e-9 * size.max()
    large = np.abs(L) > 1e-6 * size
    assert large.sum() > 50
    np.testing.assert_allclose(turned[large], L[large], rtol=1e-7)


def test_equispaced_nodes_are_hopeless_but_no_nan():
    nodes = np.linspace(0, 1, 2000)
    w = weights(nodes)
    assert np.isfinite(w).all()
    assert w[0] == 0  # 1e-598 of the largest
    middle, edge = basis(nodes, [0.49999, 1 / 4000])
    assert np.isfinite(middle).all()
    assert np.abs(middle.sum() - 1) < 1e-10
    assert not np.isnan(edge).any()
    assert np.isinf(edge).any()  # as large as it is
    w = weights(np.linspace(-1, 1, 20))
    binomial = [(-1) ** j * float(mpmath.binomial(19, j)) for j in range(20)]
    np.testing.assert_allclose(w / w[0], binomial, rtol=1e-13)


@mpmath.workdps(30)
def test_points_of_chebyshev_and_roots_of_unity():
    for m in (1, 2, 3, 10, 101):
        x = chebyshev(m)
        assert (np.diff(x) > 0).all()
        np.testing.assert_array_equal(x, -x[::-1])
        exact = [float(mpmath.cos(mpmath.pi * (2 * (m - 1 - j) + 1) / (2 * m))) for j in range(m)]
        np.testing.assert_allclose(x, exact, rtol=0, atol=1.2e-16)
        for offset in (0.0, 0.5):
            z = roots_of_unity(m, offset)
            exact = [complex(mpmath.expjpi(mpmath.mpf(2) * (j + offset) / m)) for j in range(m)]
            np.testing.assert_allclose(z, exact, rtol=0, atol=1.2e-16)
    for function in (chebyshev, roots_of_unity):
        with pytest.raises(ValueError, match="at least 1"):
            function(0)
        with pytest.raises(TypeError, match="integer"):
            function(2.5)


@pytest.mark.parametrize("function", [basis, functional])
def test_refuses(function):
    points = np.array([0.5])
    for nodes, at, error, says in [
        ([1, 2, 1], points, ValueError, "nodes 0 and 2 are both 1.0: nodes must be distinct"),
        ([1j, 2, 3, 1j], points, ValueError, "nodes 0 and 3 are both 1j"),
        ([1, np.nan], points, ValueError, r"nodes\[1\] is nan: nodes must be finite"),
        ([1, np.inf], points, ValueError, r"nodes\[1\] is inf"),
        ([1, 2], [0, -np.inf], ValueError, r"points\[1\] is -inf"),
        ([1, 2], [0, np.nan], ValueError, r"points\[1\] is nan"),
        ([], points, ValueError, "nodes must not be empty"),
        ([[1, 2]], points, ValueError, "nodes must be one-dimensional"),
        ([1, 2], [[0]], ValueError, "points must be one-dimensional"),
        (["a"], points, TypeError, "nodes must be real or complex"),
        ([1, 2], [None], TypeError, "points must be real or complex"),
    ]:
        with pytest.raises(error, match=says):
            function(nodes, at)
    with pytest.raises(ValueError, match="nodes 1 and 2 are both"):
        weights([0, 3, 3])


def test_out():
    nodes, points = chebyshev(4), np.array([0.1, 0.2])
    out = np.full((2, 4), 7.0)
    assert basis(nodes, points, out=out) is out
    np.testing.assert_array_equal(out, basis(nodes, points))
    for bad, error, says in [
        (np.full((4, 2), 7.0), ValueError, r"out must have shape \(2, 4\)"),
        (np.full((2, 4), 7.0, complex), TypeError, "out must have dtype float64"),
        (np.full((2, 8), 7.0)[:, ::2], ValueError, "contiguous"),
    ]:
        with pytest.raises(error, match=says):
            basis(nodes, points, out=bad)
        assert (bad == 7).all()
    room = np.arange(8.0)  # out over the nodes
    expected = basis(room[:4].copy(), points)
    found = basis(room[:4], points, out=room.reshape(2, 4))
    np.testing.assert_array_equal(found, expected)


def test_public_names():
    for name in interpolation.__all__:
        assert getattr(interpolation, name).__doc__


def test_values_that_are_not_finite_stay_so():
    found = interpolation.evaluate([0, 1], [np.inf, 1], [0.5, 1])
    assert found[0] == np.inf
    assert np.isnan(found[1])


def test_roots_far_around_the_circle():
    """A turn more, or 2^100 of them, changes nothing, as long as the offset is exact."""
    expected = interpolation.roots_of_unity(8, 0.5)
    np.testing.assert_array_equal(interpolation.roots_of_unity(8, 0.5 + 8), expected)
    far = interpolation.roots_of_unity(8, 2.0**100)
    np.testing.assert_array_equal(far, interpolation.roots_of_unity(8))


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-300, 3e200])
def test_prepared_functionals_are_the_same(complex_, scale):
    """To the last bit, whichever nodes are chosen."""
    rng = np.random.default_rng(7)
    nodes = nodes_of(rng, 23, complex_) * scale
    nodes[5] = 0
    points = rng.uniform(-1.5, 1.5, 6) * scale
    of = interpolation.Functionals(nodes, points)
    for size in (1, 2, 7, 22, 23):
        chosen = rng.permutation(23)[:size]
        np.testing.assert_array_equal(of(chosen), functional(nodes[chosen], points))
    np.testing.assert_array_equal(of([5]), np.array([6]))  # a constant, at six points
    nodes[:], points[:] = 1, 2  # it has its own
    assert np.isfinite(of([0, 1])).all()


def test_prepared_functionals_of_the_least_nodes():
    """Which alone are so near each other that the points are too far from them."""
    nodes, points = np.array([1.0, 2.0**-245, 2.0**-244]), np.array([0.5, 1.0])
    of = interpolation.Functionals(nodes, points)
    np.testing.assert_array_equal(of([0, 2]), functional(nodes[[0, 2]], points))
    with pytest.raises(ValueError, match=r"more than 2\^240 times as far as the nodes"):
        of([1, 2])


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ([], "chosen must be numbers of nodes, 0 to 3"),
        ([0, 4], r"chosen must be numbers of nodes, 0 to 3, not \[0, 4\]"),
        ([-1], "chosen must be numbers of nodes"),
        ([2, 0, 2], "chosen must name each node once"),
        ([[0, 1]], "chosen must be one-dimensional"),
    ],
)
def test_prepared_functionals_refuse(chosen, says):
    of = interpolation.Functionals(chebyshev(4), [0.1])
    np.testing.assert_array_equal(of(np.array([True, False, True, True])), of([0, 2, 3]))
    with pytest.raises(ValueError, match="chosen must be numbers, or 4 booleans"):
        of(np.ones(3, dtype=bool))
    with pytest.raises(ValueError, match=says):
        of(chosen)
    with pytest.raises(TypeError, match="chosen must be integers"):
        of([0.5])
    with pytest.raises(ValueError, match="nodes 0 and 1 are both"):
        interpolation.Functionals([1.0, 1.0], [0.1])
