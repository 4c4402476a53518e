"""Barycentric weights and Lagrange bases: precision, thousands of nodes, errors."""

import functools

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.table import nodes_of
from strength import much

from fastgc import interpolation, kernels
from fastgc.numerics.interpolation import basis, chebyshev, functional, roots_of_unity, weights

pytestmark = pytest.mark.every_backend


def evaluate(nodes, values, points, out=None):
    return interpolation.Interpolator(nodes)(values, points, out)


def derivative(nodes, values, points, der=1, out=None):
    return interpolation.Interpolator(nodes).derivative(values, points, der, out)


def wide_basis(nodes, points):
    """Compute the basis by definition, in 60 digits."""
    basis, total = _wide_basis(tuple(nodes.tolist()), tuple(points.tolist()))
    kind = complex if np.iscomplexobj(nodes) or np.iscomplexobj(points) else float
    return np.array(basis, dtype=kind), np.array(total, dtype=kind)


@functools.cache  # shared by all backends
def _wide_basis(nodes, points):
    with mpmath.workdps(60):
        x, z = ([mpmath.mpmathify(v) for v in values] for values in (nodes, points))
        below = [mpmath.fprod(a - b for b in x if b is not a) for a in x]
        rows = []
        for p in z:
            off = [p - a for a in x]
            above = [mpmath.fprod(off[:j] + off[j + 1 :]) for j in range(len(x))]
            rows.append([one / other for one, other in zip(above, below, strict=True)])
        total = [mpmath.fsum(column) for column in zip(*rows, strict=True)]
        kind = complex if isinstance((nodes + points)[0], complex) else float
        return [[kind(v) for v in row] for row in rows], list(map(kind, total))


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("m", [1, 2, 5, 24])
def test_against_mpmath(complex_, m):
    """Every value has a small relative error, also far outside and next to a node."""
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


@given(st.integers(1, 40), st.booleans(), st.integers(0, 2**32), st.sampled_from([-1000, 0, 900]))
@settings(max_examples=40, deadline=None)
def test_polynomials_are_reproduced(m, complex_, seed, power):
    """Also on nodes of any size, whose products exceed doubles, and exactly at nodes."""
    rng, by = np.random.default_rng(seed), 2.0**power
    nodes = nodes_of(rng, m, complex_) / 2
    points = rng.uniform(-1, 1, 7) + 1j * rng.uniform(-0.1, 0.1, 7) * complex_
    points = points if complex_ else points.real
    points[3] = nodes[0]
    coefficients = rng.standard_normal((m, 3))
    values, expected = (
        np.polynomial.polynomial.polyval(z, coefficients).T for z in (nodes, points)
    )
    L = basis(nodes, points)
    np.testing.assert_array_equal(L[3], np.eye(m)[0])
    np.testing.assert_allclose(basis(nodes * by, points * by), L, rtol=1e-12)
    tolerance = 1e-13 * (m + 5) * np.abs(L).sum(axis=1).max() * np.abs(values).max()
    total = functional(nodes, points)
    for found, wanted in (
        (L @ values, expected),
        (evaluate(nodes, values, points), expected),
        (evaluate(nodes * by, values[:, 0], points * by), expected[:, 0]),
        (L.sum(axis=1), 1),
        (total @ values / 7, expected.sum(axis=0) / 7),
    ):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)
    shuffled = rng.permutation(m)
    moved = basis(nodes[shuffled], points)
    np.testing.assert_allclose(moved, L[:, shuffled], rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("length", much([1e-100, 1e-3, 1.0, 1e5, 1e100], [1e-100]))
def test_thousands_of_nodes_on_any_interval(length):
    rng = np.random.default_rng(0)
    m = much(2000, 1000)
    points = np.append(rng.uniform(-1, 1, 8), 0.3)
    for nodes in (chebyshev(m), roots_of_unity(m)):
        w = weights(nodes * length)
        assert np.isfinite(w).all()
        assert 1 <= np.abs(w).max() < 2
        L = basis(nodes * length, points * length)
        np.testing.assert_allclose(L, basis(nodes, points), rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(L.sum(axis=1), 1, atol=1e-11)
        c = functional(nodes * length, points * length)
        np.testing.assert_allclose(c, L.sum(axis=0), atol=1e-11)
    known = (-1.0) ** np.arange(m) * np.sin((np.arange(m) + 0.5) * np.pi / m)
    ratio = weights(chebyshev(m) * length) / known
    np.testing.assert_allclose(ratio / ratio[0], 1, rtol=1e-10)
    ratio = weights(roots_of_unity(m)) / roots_of_unity(m)
    np.testing.assert_allclose(ratio / ratio[0], 1, rtol=1e-10)


def test_weights_are_at_most_about_2():
    """The largest modulus lies in [1, 2), up to a rounding: it may be 1 - 2^-53, or 2."""
    for seed in range(much(10000, 100)):
        rng = np.random.default_rng([2, seed])
        nodes = nodes_of(rng, int(rng.integers(1, 30)), bool(seed % 2))
        if seed % 4 == 1:  # moduli of two weights are 1
            nodes = np.array([0, np.exp(2j * np.pi * rng.random())])
        assert 1 - 2.0**-52 <= np.abs(weights(nodes * 2.0 ** rng.integers(-99, 99))).max() <= 2


@pytest.mark.every_backend
def test_weights_of_any_size_on_a_slanted_line():
    """Equispaced nodes have weights from 1 to below 1e-300; turning all changes nothing."""
    nodes, points, turn = np.linspace(0, 1, 1500), np.array([0.49999, 0.5003 + 1e-4j]), np.exp(0.7j)
    L = basis(nodes, points)
    turned = basis(nodes * turn, points * turn)
    for row, point in zip(turned, points, strict=True):  # earlier points leave no trace
        np.testing.assert_allclose(basis(nodes * turn, [point * turn])[0], row, rtol=1e-12)
    size = np.abs(L).max(axis=1, keepdims=True)
    assert np.abs(turned - L).max() < 1e-9 * size.max()
    large = np.abs(L) > 1e-6 * size
    assert large.sum() > 50
    np.testing.assert_allclose(turned[large], L[large], rtol=1e-7)


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
def test_what_are_no_nodes_and_points(function):
    for nodes, at, error, says in [
        ([1, 2, 1], [0.5], ValueError, "nodes 0 and 2 are both 1.0"),
        ([1j, 2, 3, 1j], [0.5], ValueError, "nodes 0 and 3 are both 1j"),
        ([1, np.nan], [0.5], ValueError, r"nodes\[1\] is nan"),
        ([1, 2], [0, -np.inf], ValueError, r"points\[1\] is -inf"),
        ([], [0.5], ValueError, "nodes .*empty"),
        ([[1, 2]], [0.5], ValueError, "nodes .*one-dim"),
        ([1, 2], [[0]], ValueError, "points .*one-dim"),
        ([0.0, 1.0], [0.5, 1e100], ValueError, r"points .*1e\+100.*2\^240"),
    ]:
        with pytest.raises(error, match=says):
            function(nodes, at)
    for nodes in ([1e300, 1e-30, 2e-30], [1e300, 1e-30j, 2e-30]):
        with pytest.raises(ValueError, match=r"nodes 1 and 2, .*, are too close"):
            weights(nodes)


CALLS = {
    "basis": basis,
    "weights": lambda nodes, points, **out: weights(nodes, **out),
    "functional": functional,
    "evaluate": lambda nodes, points, **out: evaluate(nodes, np.exp(nodes), points, **out),
    "derivative": lambda nodes, points, **out: derivative(nodes, np.exp(nodes), points, 2, **out),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("complex_", [False, True])
def test_results_written_where_they_are_wanted(name, complex_):
    call, nodes, points = CALLS[name], chebyshev(4), np.array([0.1, -0.3, 0.2])
    nodes = nodes * 1j if complex_ else nodes
    expected = call(nodes, points)
    out = np.full_like(expected, 7)
    assert call(nodes, points, out=out) is out
    np.testing.assert_array_equal(out, expected)
    out[...] = 7
    other = np.float64 if complex_ else np.complex128
    for bad, error in (
        (np.full((*expected.shape, 1), 7, expected.dtype), ValueError),
        (np.full(expected.shape, 7, other), TypeError),
    ):
        with pytest.raises(error, match="out"):
            call(nodes, points, out=bad)
        assert (bad == 7).all()
    with pytest.raises(ValueError, match="nodes 0 and 1 are both"):
        call(nodes[[0, 0, 2, 3]], points, out=out)
    assert (out == 7).all()
    if not complex_ and expected.size == 4:  # `out` overlaps the nodes
        room = nodes.copy()
        np.testing.assert_array_equal(call(room, points, out=room), expected)


def test_evaluate():
    """As SciPy's barycentric_interpolate: a node's value is exact, whatever the others are."""
    nodes, points = np.array([0.0, 1.0, 2.5]), [0.5, 2.5]
    values = np.array([[1.0, 2.0], [2.0, -1.0], [7.25, 0.5]])
    found = interpolation.evaluate(nodes, values, points)
    np.testing.assert_array_equal(found, interpolation.Interpolator(nodes)(values, points))
    assert interpolation.evaluate([0, 1, 2], [1, 2, 5], 3.0) == pytest.approx(10.0)
    assert interpolation.evaluate([0, 1, 2], [1, np.nan, 3], [0, 2]).tolist() == [1, 3]


@pytest.mark.parametrize("complex_", [False, True])
def test_interpolator_at_a_single_point(complex_):
    nodes = roots_of_unity(9) if complex_ else chebyshev(9)
    values = np.stack([np.exp(nodes), nodes**2], axis=1)
    for point in (0.3, np.float32(0.25), np.array(-0.5), nodes[2], 1, 0.2 + 0.1j):
        line = evaluate(nodes, values, [point])
        one, both = evaluate(nodes, values[:, 0], point), evaluate(nodes, values, point)
        assert isinstance(one, np.number)
        assert one == evaluate(nodes, values[:, 0], [point])[0]
        np.testing.assert_array_equal(both, line[0])
        for v, expected in ((values, both), (values[:, 0], np.asarray(one))):
            out = np.zeros_like(expected)
            assert evaluate(nodes, v, point, out=out) is out
            np.testing.assert_array_equal(out, expected)
        slope = derivative(nodes, nodes**3, point)
        assert slope == pytest.approx(3 * complex(point) ** 2 if complex_ else 3 * point**2)


@given(
    st.integers(1, 24),
    st.integers(0, 4),
    st.booleans(),
    st.integers(-200, 200),
    st.randoms(use_true_random=False),
)
@settings(max_examples=40, deadline=None)
def test_derivatives_of_polynomials(m, der, complex_, power, random):
    """They follow from coefficients; scaling nodes scales them by powers of two."""
    rng = np.random.default_rng(random.randrange(2**32))
    nodes = nodes_of(rng, m, complex_) / (1 if complex_ else 2)
    points = np.append(rng.uniform(-1, 1, 5).astype(nodes.dtype), nodes[:1])
    coefficients = rng.standard_normal((m, 3))
    exact = np.polynomial.polynomial.polyder(coefficients, der) if der else coefficients
    values, expected = (
        np.polynomial.polynomial.polyval(z, c).T
        for z, c in ((nodes, coefficients), (points, exact))
    )
    found = derivative(nodes, values, points, der)
    size = np.abs(basis(nodes, points)).sum(axis=1).max() * np.abs(values).max()
    # Some roots of unity are missing: each may amplify by up to 2.
    size *= m ** (2.0 * der) * np.abs(basis(nodes, nodes * 0.999)).sum(axis=1).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * size)
    by = 2.0**power
    scaled = derivative(nodes * by, values, points * by, der)
    np.testing.assert_allclose(scaled * by**der, found, rtol=1e-15)
    if der >= m:
        assert not found.any()
    if not der:
        np.testing.assert_array_equal(found, evaluate(nodes, values, points))
    constant = derivative(nodes, np.full(m, 3.7), points, 1 + der)
    np.testing.assert_allclose(constant, 0, atol=1e-13 * size)


def test_derivatives_where_weights_are_far_apart():
    """The least weight of 60 equispaced nodes is 1e-17 times the largest; of 900, 1e-269 times."""
    nodes = np.linspace(0, 1, 60)
    slope = derivative(nodes, nodes**3, nodes[25:35])
    np.testing.assert_allclose(slope, 3 * nodes[25:35] ** 2, rtol=1e-9)
    nodes = np.linspace(0, 1, 900)
    for near, sign in ((451, 1), (449, -1), (460, 1)):
        values = np.zeros(900)
        values[near] = 1
        found = derivative(nodes, values, nodes[450])
        ratio = mpmath.binomial(899, near) / mpmath.binomial(899, 450)
        exact = (-1) ** (near - 450) * ratio / (nodes[450] - nodes[near])
        assert found == pytest.approx(float(exact), rel=1e-9)
        assert np.sign(found) == sign * (-1) ** (near - 451)


def test_derivatives_that_are_refused():
    interpolate, values = interpolation.Interpolator(chebyshev(4)), np.ones(4)
    for der, error, says in ((-1, ValueError, "0, not -1"), (1.5, TypeError, r"not 1\.5")):
        with pytest.raises(error, match=f"der .*{says}"):
            interpolate.derivative(values, 0.5, der)
    assert interpolate.derivative(values, 0.5, 2**70) == 0


@pytest.mark.subnormal
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-300, 3e200])
def test_prepared_functionals_are_the_same(complex_, scale):
    """They agree to the last bit, whichever nodes are chosen."""
    rng = np.random.default_rng(7)
    nodes = nodes_of(rng, 23, complex_) * scale
    nodes[5] = 0
    points = rng.uniform(-1.5, 1.5, 6) * scale
    of = interpolation.Functionals(nodes, points)
    for size in (1, 2, 7, 22, 23):
        chosen = rng.permutation(23)[:size]
        np.testing.assert_array_equal(of(chosen), functional(nodes[chosen], points))
    np.testing.assert_array_equal(of([5]), np.array([6]))  # a constant, at six points
    nodes[:], points[:] = 1, 2  # it has copied them
    assert np.isfinite(of([0, 1])).all()


def test_functionals_refuse():
    of = interpolation.Functionals(chebyshev(4), [0.1])
    np.testing.assert_array_equal(of(np.array([True, False, True, True])), of([0, 2, 3]))
    for chosen, error, says in (
        ([], ValueError, "0 to 3"),
        ([0, 4], ValueError, r"0 to 3, not \[0, 4\]"),
        ([-1], ValueError, "0 to 3"),
        ([2, 0, 2], ValueError, "once"),
        ([[0, 1]], ValueError, "one-dim"),
        (np.ones(3, bool), ValueError, "4 booleans"),
        ([0.5], TypeError, "integers"),
    ):
        with pytest.raises(error, match=f"chosen .*{says}"):
            of(chosen)
    with pytest.raises(ValueError, match=r"2\^240"):
        interpolation.Functionals([1.0, 2.0**-245], [0.5, 1.0])


# ------------------------------------------------------------------------------- prepared


@pytest.mark.few(9)
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 8, 9, 17, 33])
@pytest.mark.parametrize("size", [1.0, 2.0**-1000, 2.0**900])
def test_interpolation_of_prepared_nodes(complex_, m, size, at_each_level):
    """For few points and many, and for nodes and values of any size."""
    rng = np.random.default_rng(m)
    nodes = nodes_of(rng, m, complex_) * size
    inside = rng.uniform(-1, 1, 40) * (1 + 1j if complex_ else 1)
    points = np.append(inside, [7.0, -50.0]) * size
    points[5] = nodes[-1]
    truth, _ = wide_basis(nodes, points)
    values = rng.standard_normal(m) * (1 + 0.5j if complex_ else 1)
    scale = (np.abs(truth) @ np.abs(values)) * 1e-14 * (m + 2)
    for large in (1.0, 2.0**-990, 2.0**700):
        for _ in at_each_level():
            interpolate = interpolation.Interpolator(nodes)
            for first, p in ((0, 1), (1, 2), (3, 5), (0, 8), (4, 20), (0, 42)):
                at = slice(first, first + p)
                found = interpolate(values * large, points[at])
                assert (np.abs(found / large - truth[at] @ values) <= scale[at]).all()
                if first <= 5 < first + p:
                    assert found[5 - first] == values[-1] * large
    columns = np.stack([values, values[::-1]], axis=1)
    together = interpolate(columns, points)
    np.testing.assert_array_equal(together, evaluate(nodes, columns, points))
    np.testing.assert_allclose(together, basis(nodes, points) @ columns, rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize("complex_", [False, True])
def test_nodes_and_points_beside_each_other(complex_):
    """Even for neighbouring doubles, each factor is exact, so values are precise."""
    rng = np.random.default_rng(complex_)
    for _ in range(much(200, 20)):
        m = int(rng.integers(2, 9))
        sizes = 2.0 ** -rng.choice([0, 1, 100, 249, 251, 300, 600, 990], m)
        nodes = rng.choice([-1, 1], m) * sizes * rng.uniform(1, 1.9, m)
        nodes[0] = 0.7
        if complex_:
            nodes = nodes + 1j * rng.permutation(nodes) * (rng.random(m) < 0.5)
        nodes = np.unique(nodes)
        beside = 2.0 ** -rng.choice([249, 251, 300, 900], 2) * rng.uniform(0.5, 1, 2)
        points = np.concatenate(
            [nodes[:2] * rng.uniform(0.5, 2, 2), nodes[:1], nodes[-2:] + beside]
        )
        points = np.concatenate([points, beside.astype(nodes.dtype)])
        truth = wide_basis(nodes, points)[0]
        normal = np.isfinite(truth) & (np.abs(truth) > 1e-290) & (np.abs(truth) < 1e290)
        found = basis(nodes, points)
        np.testing.assert_allclose(found[normal], truth[normal], rtol=1e-13, atol=0)
        values = rng.standard_normal(nodes.size) + 0 * nodes
        sums = np.abs(truth) @ np.abs(values)
        fine = np.isfinite(truth).all(axis=1) & (sums < 1e290)
        for out in (
            evaluate(nodes, values, points),
            interpolation.Interpolator(nodes)(values, points),
        ):
            off = np.abs(out[fine] - truth[fine] @ values)
            assert (off <= 1e-12 * sums[fine]).all()


def test_weights_far_apart_interpolate():
    """If weights differ by more than 2^400, terms do not fit one scale."""
    nodes = np.linspace(-1, 1, 600)
    interpolate = interpolation.Interpolator(nodes)
    for points in (np.array([0.001]), np.array([0.001, -0.0021, nodes[300]])):
        for values in (nodes**3, np.ones(600)):
            expected = points**3 if values[0] < 0 else np.ones(points.size)
            np.testing.assert_allclose(interpolate(values, points), expected, atol=1e-9)
    turned = interpolation.Interpolator(nodes * 1j)
    found = turned(nodes + 0j, np.array([0.001j, -0.0021j]))
    np.testing.assert_allclose(found, [0.001, -0.0021], atol=1e-9)


def test_interpolator_of_other_kinds():
    nodes, values, points = chebyshev(5), np.array([1.0, -2, 0.5, 3, 1]), np.array([0.1, -0.3])
    interpolate = interpolation.Interpolator(nodes)
    expected = interpolate(values, points)
    nodes[:] = 7  # it has copied them
    for v, z in ((values + 0j, points), (values, points + 0j), (values.astype("f4"), points)):
        np.testing.assert_allclose(interpolate(v, z), expected, rtol=1e-14)
        assert (interpolate(v, z).dtype == complex) == (np.iscomplexobj(v) or np.iscomplexobj(z))
    # A constant, at points up to the largest doubles.
    constant = interpolation.Interpolator([0.0])
    for z in (0.0, 1e-320, 1e308):
        np.testing.assert_allclose(constant([3.0], [z]), 3, rtol=1e-15)
    found = interpolation.Interpolator([0, 1])([np.inf, 1], [0.5, 1])
    assert found[0] == np.inf
    assert found[1] == 1


@pytest.mark.parametrize(
    ("values", "points", "error", "says"),
    [
        ([1, 2], [0.5], ValueError, r"values .*\(3,\) or \(3, r\), not \(2,\)"),
        ([1, 2, 3], [0.5, np.nan], ValueError, r"points\[1\] is nan"),
        ([1, 2, 3], [1e100], ValueError, r"points .*1e\+100.*2\^240"),
        ([1, 2, 3], [], ValueError, "points .*empty"),
        ([1, 2, None], [0.5], TypeError, "values"),
    ],
)
def test_interpolator_refuses(values, points, error, says):
    interpolate = interpolation.Interpolator([0.0, 1.0, -1.0])
    with pytest.raises(error, match=says):
        interpolate(values, points)
    room = np.ones(6)
    with pytest.raises(ValueError, match="out"):
        interpolate([1.0, 2.0, 3.0], [0.5], out=np.ones(2))
    with pytest.raises(ValueError, match="out shares memory"):
        interpolate(np.ones(3), room[:2], out=room[1:3])
    assert (room == 1).all()


def test_functionals_bound_to_buffers():
    """What the kernel says is tested by `bind_functional` in the table of kernels."""
    nodes, points = chebyshev(7), np.array([0.3, 0.4])
    of = interpolation.Functionals(nodes, points)
    chosen, out = np.arange(7)[::-1].copy(), np.empty(7)
    run = of.bind(chosen, out)
    for f in (1, 4, 7):
        out[:] = np.nan
        assert run(f) == kernels.Status.OK
        np.testing.assert_array_equal(out[:f], functional(nodes[::-1][:f], points))
        assert np.isnan(out[f:]).all()
    chosen[:3] = 4, 7, 4
    assert run(2) == kernels.Status.OUT_OF_RANGE
    chosen[1] = 2
    assert run(3) == kernels.Status.DUPLICATE
    for f in (0, 8):
        with pytest.raises(ValueError, match=r"f .*1 \.\. 7"):
            run(f)
    for numbers, room in ((chosen.astype(np.int32), out), (chosen, out[:4]), (chosen, out + 0j)):
        with pytest.raises((TypeError, ValueError)):
            of.bind(numbers, room)


@pytest.mark.parametrize("bad", [np.nan, np.inf, complex(0, np.nan)])
def test_value_at_a_node_is_its_own_whatever_others_are(bad):
    nodes = np.array([-1.0, 0.0, 0.5, 2.0])
    values = np.array([1, bad, 3, 4])
    curve = interpolation.Interpolator(nodes)
    points = [2.0, 0.25, -1.0, 0.0]
    out = np.empty(4, values.dtype)
    for found in (curve(values, points), curve(values, points, out=out)):
        assert (found[0], found[2]) == (4, 1)
        assert not np.isfinite(found[[1, 3]]).any()
    several = curve(np.stack([values, values[::-1]], axis=1), points)
    assert several[0].tolist() == [4, 1]
    assert several[2].tolist() == [1, 4]
