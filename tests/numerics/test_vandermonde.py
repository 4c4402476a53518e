"""Vandermonde systems: solutions agree with exact ones; orders, layouts, error bounds, errors."""

import warnings

import numpy as np
import oracles
import pytest
from oracles.decoding import decoding_truth
from oracles.table import nodes_of
from oracles.vandermonde import far, truth
from strength import much

from fastgc import interpolation
from fastgc.numerics.vandermonde import leja_order, roots_order, solve

pytestmark = pytest.mark.every_backend


# ---------------------------------------------------------------------------- orders, bounds

FAMILIES = {
    "1 to m": lambda m: np.arange(1.0, m + 1),
    "1/(i+3)": lambda m: 1 / np.arange(3.0, m + 3),
    "1/(i+3), rising": lambda m: 1 / np.arange(3.0, m + 3)[::-1],
    "1/(i+2)": lambda m: 1 / np.arange(2.0, m + 2),
    "shuffled": lambda m: np.random.default_rng(m).permutation(1 / np.arange(2.0, m + 2)),
    "negative": lambda m: -np.arange(1.0, m + 1),
}


def _promised(nodes, transpose):
    """Return a b whose signs alternate along the nodes, or the powers, taken as positive."""
    signs = (-1.0) ** np.arange(nodes.size)
    if transpose:
        return np.abs(signs) if nodes[0] < 0 else signs
    b = np.empty(nodes.size)
    b[np.argsort(np.abs(nodes))] = signs
    return b


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("transpose", [False, True])
def test_solve_is_good_to_each_number_where_higham_promises_it(family, transpose):
    for m in much((2, 9, 25, 40, 60), (2, 20)):
        nodes = FAMILIES[family](m)
        b = _promised(nodes, transpose)
        x, bound = solve(nodes, b, transpose, return_bound=True)
        true, size = truth(nodes, b, transpose), np.abs(x)
        assert (far(x, true) <= bound).all()
        assert (bound <= 2.0**-48 * m * size).all()
        for found in (x, solve(nodes, b, transpose), solve(nodes, b, transpose, refine=2)):
            assert (far(found, true) <= 1e-14 * size).all()


def test_solve_chooses_an_order_since_others_lose_all_digits():
    nodes, signs = 1 / np.arange(2.0, 32), (-1.0) ** np.arange(30)
    true = np.array(truth(nodes, signs, True), float)
    with np.errstate(all="ignore"):
        leja = solve(nodes, signs, True, order="leja")
        given = solve(np.linspace(0, 1, 60), np.ones(60), True, order="given")
    assert (np.abs(leja - true) > 1e3 * np.abs(true)).any()
    np.testing.assert_allclose(solve(nodes, signs, True), true, rtol=1e-14)
    exactly = np.eye(60)[-1]  # b holds the moments of one node
    assert np.abs(given - exactly).max() > 1e3
    np.testing.assert_array_equal(solve(np.linspace(0, 1, 60), np.ones(60), True), exactly)


def test_solve_bounds_many_columns():
    """A column has the bounds that it has alone; complex columns of real nodes count both parts."""
    rng = np.random.default_rng(7)
    nodes, B = np.arange(1.0, 8), rng.standard_normal((7, 5))
    for transpose in (False, True):
        X, bound = solve(nodes, B, transpose, return_bound=True)
        for col in range(5):
            alone = solve(nodes, B[:, col], transpose, return_bound=True)[1]
            np.testing.assert_allclose(bound[:, col], alone, rtol=1e-6)
        _, limit = solve(nodes, B + 1j * B[::-1], transpose, return_bound=True)
        other = solve(nodes, B[::-1], transpose, return_bound=True)[1]
        np.testing.assert_allclose(limit, np.hypot(bound, other), rtol=1e-9)
        out = B.copy()
        same, limit = solve(nodes, out, transpose, out=out, return_bound=True)
        assert same is out
        np.testing.assert_array_equal(out, X)
        np.testing.assert_array_equal(limit, bound)
    # On circles the running bound says nothing, but the residual and the inverse's norms do.
    nodes = np.exp(2j * np.pi * rng.permutation(24)[:20] / 24)
    for transpose in (False, True):
        b = np.eye(20)[0] + 0j
        x, bound = solve(nodes, b, transpose, return_bound=True)
        assert (far(x, truth(nodes, b, transpose)) <= bound).all()
        assert bound.max() <= 1e-9 * np.abs(x).max()


@pytest.mark.parametrize("transpose", [False, True])
def test_solve_refined_is_never_worse(transpose):
    """If nodes nearly coincide, corrections may not shrink; then they are undone."""
    rng, m = np.random.default_rng(2), 20
    nodes, b = 1 + 1e-6 * np.arange(m), rng.standard_normal((m, 3))
    b[:, 1] = 0 if transpose else 2.5  # this column needs no correction
    b[0, 1] = 2.5
    true = [truth(nodes, column, transpose) for column in b.T]

    def worst(x):
        return [max(far(x[:, c], true[c])) / max(map(abs, true[c])) for c in range(3)]

    plain = worst(solve(nodes, b, transpose))
    for steps in (1, 2, 5):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            refined = worst(solve(nodes, b, transpose, refine=steps))
        assert all(after <= 2 * e + 1e-15 for after, e in zip(refined, plain, strict=True))
        assert len(said) <= 1
        if max(refined) > 1e-3:
            assert "cannot be shown to improve" in str(said[0].message)
    with warnings.catch_warnings():  # no warning if there is nothing to improve
        warnings.simplefilter("error")
        solve(np.cos(np.arange(12.0)), rng.standard_normal(12), transpose, refine=9)


def test_out_beside_what_is_read():
    """`out` may begin anywhere in b or in the nodes."""
    rng = np.random.default_rng(3)
    m, r = 5, 9
    nodes, b = rng.standard_normal(m), rng.standard_normal((m, r))
    for transpose in (False, True):
        truth = solve(nodes, b, transpose)
        for shift in range(-m * r + 1, m * r, 4):
            memory = np.zeros(3 * m * r)
            given = memory[m * r : 2 * m * r].reshape(m, r)
            out = memory[m * r + shift :][: m * r].reshape(m, r)
            given[:] = b
            solve(nodes, given, transpose, out=out)
            np.testing.assert_array_equal(out, truth)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("m", [1, 2, 4, 8, 9, 21])
def test_solve_many_columns(transpose, dtype, m, at_each_level):
    every, first = [*range(1, 10), 16, 17, 33], (m + transpose + 2 * (dtype is complex)) % 6
    for columns in much(every, every[first::6]):
        rng = np.random.default_rng(columns)
        nodes = nodes_of(rng, m, dtype is complex)
        B = rng.standard_normal((m, columns)).astype(dtype)
        if dtype is complex:
            B += 1j * rng.standard_normal(B.shape)
        for _ in at_each_level():
            X = solve(nodes, B, transpose)
            alone = [solve(nodes, b.copy(), transpose) for b in B.T]
            size = np.abs(X).max()
            np.testing.assert_allclose(X, np.transpose(alone), rtol=0, atol=1e-13 * size)
            mixed = solve(nodes, B + 1j * B[::-1], transpose)  # real nodes, complex columns
            assert mixed.dtype == np.complex128
            expected = X + 1j * solve(nodes, B[::-1], transpose)
            np.testing.assert_allclose(mixed, expected, atol=1e-11 * np.abs(expected).max())
            for refine in (0, 1):
                own = B.copy()  # in place
                assert solve(nodes, own, transpose, refine=refine, out=own) is own
                np.testing.assert_allclose(own, X, atol=(1e-10 if refine else 1e-13) * size)


@pytest.mark.parametrize("dtype", [float, complex])
def test_solve_where_a_column_overflows(dtype):
    """Only this column is lost, whatever is solved together with it, also in place."""
    rng = np.random.default_rng(0)
    nodes = nodes_of(rng, 12, dtype is complex) * 1e-3
    B = rng.standard_normal((12, 40)).astype(dtype)
    plain, others = solve(nodes, B), np.arange(40) != 19
    B[:, 19] *= 1e290
    for out in (None, B):
        with pytest.warns(RuntimeWarning, match="overflow"):
            found = solve(nodes, B, out=out)
        assert np.isfinite(found).all(axis=0).tolist() == others.tolist()
        scale = np.abs(plain).max(axis=0)[others]
        assert (np.abs(found - plain)[:, others].max(axis=0) <= 1e-12 * scale).all()


# ------------------------------------------------------------------------------------- orders


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 79, 101, 150])
def test_leja_order_is_greedy_and_the_same_everywhere(m, at_each_level):
    """SIMD levels break ties alike, of which symmetric nodes have many, up to the last bits.

    Lanes beyond the last node must not count as nodes at 0, which may be far away.
    """
    for nodes in _sets_of_nodes(m):
        with oracles.instead():
            order = leja_order(nodes)
        assert sorted(order.tolist()) == list(range(m))
        x, sizes = nodes[order], np.abs(nodes)
        distinct = np.unique(nodes).size == m > 1 and np.ptp(np.log2(sizes[sizes > 0])) < 300
        with np.errstate(divide="ignore"):
            assert np.abs(x[0]) >= np.abs(nodes).max() * (1 - 1e-9)
            for k in range(1, m if distinct else 1):
                distances = np.log2(np.abs(x[k:, None] - x[:k])).sum(axis=1)
                assert distances[0] >= distances.max() - 1e-9 * max(1, distances.max())
        for scale in (1.0, 2.0**-600, 2.0**600):
            if scale == 1 or (sizes.min() > 1e-100 and sizes.max() < 1e100):
                for _ in at_each_level():
                    np.testing.assert_array_equal(leja_order(nodes * scale), order)


def _sets_of_nodes(m):
    """Yield symmetric nodes, many of them equally far; clustered, coincident, of all scales."""
    rng = np.random.default_rng(m)
    whole, side = rng.integers(-3, 4, (2, m)).astype(float), int(m**0.5)
    grid = np.arange(side) + 1j * np.arange(m // side)[:, None]
    roots = interpolation.roots_of_unity(m)
    yield interpolation.chebyshev(m)
    yield 3e-200 * interpolation.chebyshev(m)
    yield roots
    for trial in range(much(50, 4)):
        nodes = (roots, np.append(roots[1:], 0), np.linspace(-1, 1, m))[trial % 3]
        yield rng.permutation(nodes) * np.exp(2j * np.pi * rng.random())
    yield np.resize(rng.permutation(grid.ravel()), m)
    yield 1 + 1e-6 * np.arange(m)
    yield 1 + 1e-6j * np.arange(m)
    yield whole[0]
    yield whole[0] + 1j * whole[1]
    yield np.concatenate([rng.standard_normal(m // 2) * 1e-9, 5 + rng.standard_normal(m - m // 2)])
    yield 2.0 ** rng.integers(-1070, 1020, m)


@pytest.mark.parametrize("trial", range(5))
def test_roots_of_unity_to_twelve_digits(trial):
    """Decoding vectors are moment problems, here on 224 of the 256th roots of unity."""
    rng = np.random.default_rng(trial)
    chosen = rng.permutation(256)[:224]
    truth = decoding_truth([(256, 1, 0)], chosen).astype(complex)
    nodes = np.exp(2j * np.pi * chosen / 256)
    moments = np.zeros(224)
    moments[0] = 1
    for order in ("leja", roots_order(256, chosen)):
        error = np.abs(solve(nodes, moments, True, order=order) - truth).max()
        assert error < 1e-12 * np.abs(truth).max()
    with np.errstate(all="ignore"):
        natural = solve(nodes[np.argsort(chosen)], moments, True, order="given")
    assert not np.abs(natural).max() < 1e10  # without Leja's order, nothing is right


def test_roots_order_of_any_integers():
    for n, f in ((1, 1), (5, 3), (100, 60)):
        chosen = np.random.default_rng(n).permutation(n)[:f]
        order = roots_order(n, chosen)
        assert sorted(order.tolist()) == list(range(f))
        np.testing.assert_array_equal(roots_order(n, chosen - 3 * n), order)
    with pytest.raises(ValueError, match="exponents 0 and 2 are the same root of unity modulo 7"):
        roots_order(7, [1, 2, 8])
    with pytest.raises(TypeError, match="exponents must be integers"):
        roots_order(7, [0.5])
    with pytest.raises(ValueError, match="n must be at least 1"):
        roots_order(0, [])


# -------------------------------------------------------------------------------------- random


# -------------------------------------------------------------------------------------- errors


def test_solve_writes_nothing_for_an_error():
    nodes, b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0])
    out = np.full(3, 7.0)
    for arguments, options, error, says in [
        (([1, 2, 1], b), {}, ValueError, "nodes 0 and 2 are both 1.0"),
        (([1j, 2, 1j], b + 0j), {"out": out + 0j}, ValueError, "nodes 0 and 2 are both 1j"),
        (([1, np.nan, 2], b), {}, ValueError, r"nodes\[1\] is nan"),
        ((nodes, [[1, 2], [3, np.inf], [0, 0]]), {"out": None}, ValueError, r"b\[1, 1\] is inf"),
        ((nodes, b[:2]), {}, ValueError, r"b .*\(3,\) or \(3, r\), not \(2,\)"),
        (([], []), {}, ValueError, "nodes .*empty"),
        ((nodes, b), {"order": "best"}, ValueError, "order .*'best'"),
        ((nodes, b), {"order": [0, 1]}, ValueError, r"order .*\(3,\)"),
        ((nodes, b), {"order": [0, 1, 1]}, ValueError, "2 is missing"),
        ((nodes, b), {"order": np.array([0, 1, -1])}, ValueError, "outside"),
        ((nodes, b), {"order": [0.0, 1, 2]}, TypeError, "order"),
        ((nodes, b), {"refine": -1}, ValueError, "refine"),
        ((nodes, b), {"out": out.astype(np.float32)}, TypeError, "out .*float64"),
        ((nodes, b), {"out": np.full(4, 7.0)}, ValueError, r"out .*\(3,\)"),
    ]:
        options = {"out": out, **options}
        for transpose in (False, True):
            with pytest.raises(error, match=says):
                solve(*arguments, transpose, **options)
        assert options["out"] is None or (options["out"] == 7).all()


@pytest.mark.every_backend
@pytest.mark.parametrize("size", [2.0**250, 2.0**-250])
@pytest.mark.parametrize("complex_", [False, True])
def test_nodes_of_any_size(size, complex_):
    """Powers of two change no digit, even if differences cannot be inverted two at a time."""
    nodes, powers = np.array([1.5, -0.5, 0.25, -2.0]), size ** np.arange(4)
    if complex_:
        nodes = nodes + 1j * np.array([0.5, 1.0, -1.5, 0.75])
    b = np.array([1.0, -2.0, 0.5, 3.0], nodes.dtype)
    plain, other = solve(nodes, b), solve(nodes, b, True)
    np.testing.assert_allclose(solve(nodes * size, b) * powers, plain, rtol=1e-12)
    np.testing.assert_allclose(solve(nodes * size, b * powers, True), other, rtol=1e-12)
