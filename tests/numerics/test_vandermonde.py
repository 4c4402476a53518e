"""Vandermonde systems: solutions agree with exact ones; orders, layouts, error bounds, errors."""

import functools
import itertools
import math
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles.decoding import decoding_truth
from oracles.table import nodes_of
from oracles.vandermonde import solved_by_steps
from strength import much

from fastgc import interpolation, kernels, vandermonde
from fastgc.numerics.vandermonde import leja_order, roots_order, solve

pytestmark = pytest.mark.every_backend


class Complex:
    """A complex number made of two fractions."""

    def __init__(self, z):
        self.re, self.im = Fraction(z.real), Fraction(z.imag)

    @classmethod
    def of(cls, re, im):
        z = cls(0j)
        z.re, z.im = re, im
        return z

    def __sub__(self, z):
        return Complex.of(self.re - z.re, self.im - z.im)

    def __mul__(self, z):
        return Complex.of(self.re * z.re - self.im * z.im, self.re * z.im + self.im * z.re)

    def __truediv__(self, z):
        size = z.re**2 + z.im**2
        return self * Complex.of(z.re / size, -z.im / size)


def exact(nodes, b, transpose):
    """Solve a system in exact fractions, by the algorithm of Björck and Pereyra."""
    number = Complex if np.iscomplexobj(nodes) else Fraction
    return list(_exact(*(tuple(np.asarray(z).tolist()) for z in (nodes, b)), transpose, number))


@functools.cache
def _exact(nodes, b, transpose, number):
    x, c = (np.array([number(z) for z in a], dtype=object) for a in (nodes, b))
    return solved_by_steps(x, c, transpose).tolist()


def _size(z):
    """Return the modulus of a fraction or a `Complex` of any size."""
    if isinstance(z, Fraction):
        return abs(z)
    square = z.re**2 + z.im**2
    scale = 1 << 600
    return Fraction(math.isqrt(square.numerator * scale**2 // square.denominator), scale)


def errors(x, truth):
    """Return the exact errors, and the relative errors of each number as floats."""
    number = Complex if np.iscomplexobj(x) else Fraction
    found = [_size(number(a) - z) for a, z in zip(x.tolist(), truth, strict=True)]
    sizes = [_size(z) for z in truth]
    relative = [e / z if z else Fraction(bool(e)) for e, z in zip(found, sizes, strict=True)]
    return found, [float(e) for e in relative]


def test_exact_solutions_are_exact():
    nodes, b = [2, -1, 3, 5, 0], [1, -2, 0, 4, 7]
    for transpose in (False, True):
        x = exact(nodes, b, transpose)
        V = [[Fraction(z) ** j for j in range(5)] for z in nodes]
        rows = zip(*V, strict=True) if transpose else V
        assert [sum(a * z for a, z in zip(row, x, strict=True)) for row in rows] == b
        wide = exact([z * (1 + 2j) for z in nodes], [z + 0j for z in b], transpose)
        turned = [z * Complex((1 + 2j) ** j) for j, z in enumerate(wide)]
        if not transpose:
            assert [(z.re, z.im) for z in turned] == [(a, 0) for a in x]


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
def test_each_number_is_good_where_higham_promises_it(family, transpose):
    quick = transpose or family == "1 to m"  # the others' fractions grow
    for m in much((2, 9, 25, 40, 60), (2, 25, 40) if quick else (2, 20)):
        nodes = FAMILIES[family](m)
        b = _promised(nodes, transpose)
        x, bound = solve(nodes, b, transpose, return_bound=True)
        truth = exact(nodes, b, transpose)
        found, relative = errors(x, truth)
        assert max(relative) <= 1e-14
        assert all(e <= limit for e, limit in zip(found, bound, strict=True))
        assert (bound <= 2.0**-48 * m * np.abs(x)).all()
        np.testing.assert_allclose(solve(nodes, b, transpose), x, rtol=1e-14)
        refined = solve(nodes, b, transpose, refine=2)
        assert max(errors(refined, truth)[1]) <= 1e-14


def test_what_an_order_is_chosen_for():
    """An order is chosen since Leja's order or the nodes' own may lose all digits of a number."""
    m = 30
    nodes, signs = 1 / np.arange(2.0, m + 2), (-1.0) ** np.arange(m)
    truth = exact(nodes, signs, True)
    assert max(errors(solve(nodes, signs, True, order="leja"), truth)[1]) > 1e3
    assert max(errors(solve(nodes, signs, True), truth)[1]) < 1e-14
    ones, even = np.ones(60), np.linspace(0, 1, 60)
    exactly = np.zeros(60)
    exactly[-1] = 1  # b holds the moments of one node
    with np.errstate(all="ignore"):
        given = solve(even, ones, True, order="given")
    assert np.abs(given - exactly).max() > 1e3
    np.testing.assert_array_equal(solve(even, ones, True), exactly)


@pytest.mark.c_only
@pytest.mark.parametrize("transpose", [False, True])
def test_no_column_is_worse_than_in_lejas_order(transpose):
    """Each column's largest error is no worse, neither absolutely nor relative to a number."""
    rng = np.random.default_rng(1)
    for m in much((3, 8, 25, 60), (8, 15)):
        i = np.arange(m)
        B = np.stack([np.ones(m), (-1.0) ** i, rng.standard_normal(m), i == 0, np.exp(-i)], 1)
        for nodes in [
            np.linspace(0, 1, m),
            np.linspace(-1, 1, m),
            rng.standard_normal(m),
            rng.permutation(i + 1.0),
            0.5 + 0.5 * interpolation.chebyshev(m),
            1 / (i + 2.0),
        ]:
            x = solve(nodes, B, transpose)
            # Solve in Leja's order in each way that "auto" may have taken: columns together, with
            # or without bounds, or one alone. They round differently, and numbers that cancel may
            # come out better by chance.
            leja = [
                solve(nodes, B, transpose, order="leja", return_bound=True)[0],
                solve(nodes, B, transpose, order="leja"),
                np.stack([solve(nodes, b.copy(), transpose, order="leja") for b in B.T], axis=1),
            ]
            for col in range(B.shape[1]):
                truth = exact(nodes, B[:, col], transpose)
                largest = max(abs(z) for z in truth)
                e, relative = errors(x[:, col], truth)
                other, others = errors(leja[0][:, col], truth)
                if not any(np.array_equal(x[:, col], same[:, col]) for same in leja):
                    assert max(relative) <= max(max(others), 1e-13)
                    assert max(e) <= max(max(other), largest * Fraction(1e-12))
                alone = solve(nodes, B[:, col].copy(), transpose)
                pair = solve(nodes, B[:, [col, 0]].copy(), transpose)[:, 0]
                assert np.abs(alone - pair).max() <= 1e-9 * np.abs(alone).max()
                single, _ = errors(alone, truth)  # some systems have no right digit
                assert max(e) <= max(8 * max(single), largest * Fraction(1e-12))


@pytest.mark.c_only
@pytest.mark.parametrize("transpose", [False, True])
def test_nodes_on_a_ray(transpose):
    """Real nodes that are turned are solved like real ones; nodes beside a ray like others."""
    m = 10
    turn = np.exp(0.7j)
    nodes, b = turn / np.arange(2, m + 2), np.arange(m) % 2 * 2 - 1 + 0j
    if transpose:
        b *= turn ** np.arange(m)
    x, bound = solve(nodes, b, transpose, return_bound=True)
    found, relative = errors(x, exact(nodes, b, transpose))
    assert max(relative) < 1e-13
    assert all(e <= limit for e, limit in zip(found, bound, strict=True))
    for others in (nodes * np.exp(1e-5j * np.arange(m)), nodes.real, -nodes):
        others = others.astype(complex)
        leja = solve(others, b, transpose, order="leja")
        same = np.array_equal(leja, solve(others, b, transpose))
        # On the ray, Leja's order may be taken as well if bounds do not decide.
        assert same or abs(np.angle(others[-1] / others[0])) < 1e-6


NUMBERS = st.floats(-8, 8, allow_subnormal=False).filter(lambda a: a == 0 or abs(a) > 1e-3)


@given(data=st.data(), complex_=st.booleans(), transpose=st.booleans(), positive=st.booleans())
@settings(max_examples=much(300, 60), deadline=None)
def test_errors_are_within_their_bounds(data, complex_, transpose, positive):
    m = data.draw(st.integers(1, 9))
    part = hnp.arrays(np.float64, m, elements=NUMBERS, unique=True)
    other = hnp.arrays(np.float64, m, elements=NUMBERS)
    nodes, b = data.draw(part), data.draw(other)
    if positive:
        nodes = np.unique(np.abs(nodes))
        b, m = b[: nodes.size], nodes.size
    if complex_:
        nodes, b = nodes + 1j * data.draw(other)[:m], b + 1j * data.draw(other)[:m]
    order = data.draw(st.sampled_from(["auto", "leja", "given"]))
    refine = data.draw(st.integers(0, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        plain, limits = solve(nodes, b, transpose, order=order, return_bound=True)
        x, bound = solve(nodes, b, transpose, order=order, refine=refine, return_bound=True)
    assert x.shape == bound.shape == b.shape
    assert bound.dtype == np.float64
    truth = exact(nodes, b, transpose)
    before, after = errors(plain, truth)[0], errors(x, truth)[0]
    for e, limit in [*zip(before, limits, strict=True), *zip(after, bound, strict=True)]:
        assert limit == np.inf or e <= Fraction(limit) + Fraction(1e-290)
    for a, e, now in zip(plain.tolist(), before, after, strict=True):
        assert now <= e + Fraction(abs(a)) * 2 / 2**53 + Fraction(1e-290)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("order", ["auto", "leja"])
def test_refinement_can_only_improve(transpose, order):
    """By exact fractions, no number becomes worse by more than a rounding, and many better."""
    rng = np.random.default_rng(3)
    gained = 0
    for m in much((6, 14, 30, 60), (6, 14)):
        i = np.arange(m)
        for nodes in [
            1 / (i + 2.0),
            np.linspace(-1, 1, m),
            interpolation.chebyshev(m),
            1 + 1e-6 * i,
            i + 1.0,
        ]:
            for b in (np.ones(m), (-1.0) ** i, rng.standard_normal(m)):
                truth = exact(nodes, b, transpose)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    plain = solve(nodes, b, transpose, order=order)
                    plain, limits = solve(nodes, b, transpose, order=order, return_bound=True)
                    x, bound = solve(nodes, b, transpose, order=order, refine=3, return_bound=True)
                before, after = errors(plain, truth)[0], errors(x, truth)[0]
                gained += sum(now < e / 4 for now, e in zip(after, before, strict=True))
                for a, e, now in zip(plain.tolist(), before, after, strict=True):
                    assert now <= e + Fraction(abs(a)) * 4 / 2**53
                for e, limit in [
                    *zip(before, limits, strict=True),
                    *zip(after, bound, strict=True),
                ]:
                    assert e <= limit
    assert gained > 30 or order == "auto"


def test_bounds_on_circles_are_of_use():
    """The running bound says nothing there, but the residual and the inverse's norms do."""
    for m, n in ((12, 16), (20, 24)):
        nodes = np.exp(2j * np.pi * np.random.default_rng(m).permutation(n)[:m] / n)
        b = np.zeros(m, complex)
        b[0] = 1
        for transpose in (False, True):
            x, bound = solve(nodes, b, transpose, return_bound=True)
            with mpmath.workdps(60):
                V = mpmath.matrix([[mpmath.mpmathify(z) ** j for j in range(m)] for z in nodes])
                truth = mpmath.lu_solve(V.T if transpose else V, mpmath.matrix(b.tolist()))
                error = [float(abs(mpmath.mpmathify(a) - z)) for a, z in zip(x, truth, strict=True)]
            assert (np.array(error) <= bound).all()
            assert bound.max() <= 1e-9 * np.abs(x).max()


def test_bounds_of_many_columns():
    """A column has the bounds that it has alone; complex columns of real nodes count both parts."""
    rng = np.random.default_rng(7)
    nodes, B = np.arange(1.0, 8), rng.standard_normal((7, 5))
    for transpose in (False, True):
        X, bound = solve(nodes, B, transpose, return_bound=True)
        assert bound.shape == X.shape
        for col in range(5):
            alone = solve(nodes, B[:, col], transpose, return_bound=True)[1]
            np.testing.assert_allclose(bound[:, col], alone, rtol=1e-6)
        mixed, limit = solve(nodes, B + 1j * B[::-1], transpose, return_bound=True)
        assert mixed.dtype == np.complex128
        other = solve(nodes, B[::-1], transpose, return_bound=True)[1]
        np.testing.assert_allclose(limit, np.hypot(bound, other), rtol=1e-9)
        out = B.copy()
        same, limit = solve(nodes, out, transpose, out=out, return_bound=True)
        assert same is out
        np.testing.assert_array_equal(out, X)
        np.testing.assert_array_equal(limit, bound)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_bounds_are_the_same_everywhere(complex_, transpose, at_each_level):
    """They agree with the oracle on every SIMD level, up to how a modulus is bounded."""
    rng = np.random.default_rng(9)
    for m in (1, 2, 3, 5, 8, 9, 17, 33):
        for nodes in (rng.permutation(np.arange(1.0, m + 1)), interpolation.chebyshev(m)):
            nodes = nodes * np.exp(0.5j) if complex_ else nodes
            b = rng.standard_normal((m, 5)).astype(nodes.dtype)
            for known in (np.zeros(b.shape), 1e-9 * rng.random(b.shape)):
                for choose in (False, True):
                    with oracles.instead():
                        expected, limit = np.empty_like(b), known.copy()
                        arguments = (nodes, b, None, transpose)
                        assert kernels.solve_vandermonde(
                            *arguments, expected, bound=limit, choose=choose
                        )
                    for _ in at_each_level():
                        x, bound = np.empty_like(b), known.copy()
                        assert kernels.solve_vandermonde(*arguments, x, bound=bound, choose=choose)
                        # Numbers as small as their errors differ, but the largest agree.
                        most, other = bound.max(axis=0), limit.max(axis=0)
                        tiny = 2.0**-49 * np.abs(x).max(axis=0)
                        assert (most <= 2.5 * other + tiny).all()
                        assert (other <= 2.5 * most + tiny).all()
                        assert (np.abs(x - expected) <= 1.01 * (bound + limit)).all()


@pytest.mark.parametrize("transpose", [False, True])
def test_refinement_never_makes_it_worse(transpose):
    """If nodes nearly coincide, corrections may not shrink; then they are undone."""
    rng = np.random.default_rng(2)
    m = 20
    nodes, b = 1 + 1e-6 * np.arange(m), rng.standard_normal((m, 3))
    b[:, 1] = 0 if transpose else 2.5  # this column needs no correction
    b[0, 1] = 2.5
    plain = solve(nodes, b, transpose)
    with mpmath.workdps(400):
        V = mpmath.matrix([[mpmath.mpf(x) ** j for j in range(m)] for x in nodes.tolist()])
        truth = np.array(
            [list(mpmath.lu_solve(V.T if transpose else V, b[:, col].tolist())) for col in range(3)]
        ).T

    def worst(x):
        return [max(abs(truth[:, c] - x[:, c])) / max(abs(truth[:, c])) for c in range(3)]

    for steps in (1, 2, 5):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            refined = solve(nodes, b, transpose, refine=steps)
        for after, before in zip(worst(refined), worst(plain), strict=True):
            assert after <= 2 * before + 1e-15
        if any(after > 1e-3 for after in worst(refined)):
            assert "cannot be shown to improve" in str(said[0].message)
        assert len(said) <= 1
    good = rng.standard_normal(12)
    with warnings.catch_warnings():  # no warning if there is nothing to improve
        warnings.simplefilter("error")
        solve(np.cos(np.arange(12.0)), good, transpose, refine=9)


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
def test_every_small_set_of_integers(transpose):
    rng = np.random.default_rng(0)
    for m in (1, 2, 3, 4):
        for nodes in itertools.combinations(range(-3, 4), m):
            nodes = rng.permutation(nodes)
            b = rng.integers(-5, 6, m)
            x = solve(nodes, b, transpose)
            assert x.dtype == np.float64
            expected = [float(v) for v in exact(nodes.tolist(), b.tolist(), transpose)]
            np.testing.assert_allclose(x, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("m", much([13, 32], [13]))
def test_against_mpmath(transpose, complex_, m):
    rng = np.random.default_rng(m)
    nodes = nodes_of(rng, m, complex_)
    b = rng.standard_normal(m) + 1j * rng.standard_normal(m) * complex_
    b = b if complex_ else b.real
    with mpmath.workdps(60):
        V = mpmath.matrix([[mpmath.mpmathify(z) ** j for j in range(m)] for z in nodes.tolist()])
        truth = mpmath.lu_solve(V.T if transpose else V, mpmath.matrix(b.tolist()))
    truth = np.array([complex(v) for v in truth])
    for order in ("leja", leja_order(nodes)):
        error = np.abs(solve(nodes, b, transpose, order=order) - truth).max()
        assert error < 1e-12 * np.abs(truth).max()
    refined = solve(nodes, b, transpose, refine=2)
    assert np.abs(refined - truth).max() < 3e-15 * np.abs(truth).max()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("m", [1, 2, 4, 8, 9, 21])
def test_many_right_hand_sides(transpose, dtype, m, at_each_level):
    every = [*range(1, 10), 16, 17, 33]
    first = (m + transpose + 2 * (dtype is complex)) % 6
    for _ in at_each_level():
        for columns in much(every, every[first::6]):
            check_many_right_hand_sides(transpose, dtype, columns, m)


def check_many_right_hand_sides(transpose, dtype, columns, m):
    rng = np.random.default_rng(columns)
    nodes = nodes_of(rng, m, dtype is complex)
    B = rng.standard_normal((m, columns)).astype(dtype)
    if dtype is complex:
        B += 1j * rng.standard_normal(B.shape)
    X = solve(nodes, B, transpose)
    assert X.shape == B.shape
    for x, b in zip(X.T, B.T, strict=True):
        alone = solve(nodes, b.copy(), transpose)
        np.testing.assert_allclose(x, alone, rtol=0, atol=1e-13 * np.abs(alone).max())
    mixed = solve(nodes, B + 1j * B[::-1], transpose)  # real nodes, complex columns
    assert mixed.dtype == np.complex128
    expected = X + 1j * solve(nodes, B[::-1], transpose)
    np.testing.assert_allclose(mixed, expected, atol=1e-11 * np.abs(expected).max())
    out = np.empty_like(X)
    assert solve(nodes, B, transpose, out=out) is out
    np.testing.assert_allclose(out, X, atol=1e-13 * np.abs(X).max())
    before = B.copy()
    assert solve(nodes, B, transpose, out=B) is B  # in place
    np.testing.assert_allclose(B, X, atol=1e-13 * np.abs(X).max())
    solve(nodes, before, transpose, out=before, refine=1)
    np.testing.assert_allclose(before, X, atol=1e-10 * np.abs(X).max())


@pytest.mark.parametrize("dtype", [float, complex])
def test_columns_that_overflow_harm_no_others(dtype):
    """Only these columns are lost, whatever is solved together with them."""
    rng = np.random.default_rng(0)
    nodes = nodes_of(rng, 12, dtype is complex) * 1e-3
    B = rng.standard_normal((12, 40)).astype(dtype)
    plain = solve(nodes, B)
    B[:, 19] *= 1e290
    with pytest.warns(RuntimeWarning, match="overflow"):
        found = solve(nodes, B)
    others = np.arange(40) != 19
    assert np.isfinite(found).all(axis=0).tolist() == others.tolist()
    scale = np.abs(plain).max(axis=0)[others]
    assert (np.abs(found - plain)[:, others].max(axis=0) <= 1e-12 * scale).all()
    with pytest.raises(ValueError, match="nodes 1 and 3 are both"):
        solve(np.where(np.arange(12) == 3, nodes[1], nodes), B)


def test_layouts():
    rng = np.random.default_rng(0)
    nodes, B = nodes_of(rng, 12, False), rng.standard_normal((12, 4))
    expected = solve(nodes, B)
    wide = np.zeros((24, 8))
    wide[::2, ::2] = B
    spread = np.zeros(36)
    spread[::3] = nodes
    for x, b in [
        (nodes, np.asfortranarray(B)),
        (nodes, wide[::2, ::2]),
        (spread[::3], B),
        (nodes.astype(">f8"), B.astype(">f8")),
        (nodes.tolist(), B.tolist()),
    ]:
        np.testing.assert_array_equal(solve(x, b), expected)
    single = solve(nodes.astype(np.float32), B.astype(np.float32))
    assert single.dtype == np.float64
    read_only = B.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(solve(nodes, read_only), expected)


# ------------------------------------------------------------------------------------- orders


def products(x):
    """Return for each node the product of its distances to those before it."""
    return np.array([np.prod(np.abs(x[k] - x[:k])) for k in range(x.size)])


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("m", [1, 2, 3, 8, 17, 60, 150])
def test_leja_order_is_greedy(complex_, m):
    rng = np.random.default_rng(m)
    nodes = rng.standard_normal(m) + 1j * rng.standard_normal(m) * complex_
    nodes = nodes if complex_ else nodes.real
    order = leja_order(nodes)
    assert sorted(order.tolist()) == list(range(m))
    x = nodes[order]
    assert np.abs(x[0]) == np.abs(nodes).max()
    for k in range(1, m):
        distances = np.sum(np.log(np.abs(x[k:, None] - x[:k])), axis=1)
        assert distances[0] >= distances.max() - 1e-9


def _sets_of_nodes(m):
    """Yield symmetric nodes, many of them equally far; clustered, coincident, of all scales."""
    rng = np.random.default_rng(m)
    whole = rng.integers(-3, 4, (2, m)).astype(float)
    yield interpolation.chebyshev(m)
    yield 3e-200 * interpolation.chebyshev(m)
    yield interpolation.roots_of_unity(m)
    yield rng.permutation(interpolation.roots_of_unity(m, 0.5))
    yield np.linspace(-1, 1, m)
    yield 1 + 1e-6 * np.arange(m)
    yield 1 + 1e-6j * np.arange(m)
    yield whole[0]
    yield whole[0] + 1j * whole[1]
    yield np.concatenate([rng.standard_normal(m // 2) * 1e-9, 5 + rng.standard_normal(m - m // 2)])
    yield 2.0 ** rng.integers(-1070, 1020, m)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 79])
def test_leja_order_is_the_same_everywhere(m, at_each_level):
    """SIMD levels break ties alike, of which symmetric nodes have many."""
    for nodes in _sets_of_nodes(m):
        with oracles.instead():
            expected = leja_order(nodes)
        assert sorted(expected.tolist()) == list(range(m))
        for _ in at_each_level():
            np.testing.assert_array_equal(leja_order(nodes), expected)


def test_leja_orders_of_symmetric_nodes_are_the_same_everywhere(at_each_level):
    """Many are equally far up to the last bits, which must not decide differently anywhere."""
    rng = np.random.default_rng(4)
    for trial in range(much(3000, 200)):
        m = int(rng.integers(2, 40))
        side = int(rng.integers(2, 6))
        grid = np.arange(side) + 1j * np.arange(side)[:, None]
        nodes = [
            interpolation.roots_of_unity(m),
            np.append(interpolation.roots_of_unity(m), 0),
            grid.ravel(),
            np.linspace(-1, 1, m) + 0j,
        ][trial % 4]
        nodes = rng.permutation(nodes) * np.exp(2j * np.pi * rng.random())
        with oracles.instead():
            expected = leja_order(nodes)
        for _ in at_each_level():
            np.testing.assert_array_equal(leja_order(nodes), expected)


@pytest.mark.parametrize("m", [33, 79, 101])
def test_leja_order_of_nodes_far_from_zero_is_greedy(m):
    """Lanes beyond the last node must not count as nodes at 0, which would be far away."""
    nodes = 1 + 1e-6 * np.arange(m)
    x = nodes[leja_order(nodes)]
    for k in range(1, m):
        distances = np.log2(np.abs(x[k:, None] - x[:k])).sum(axis=1)
        assert distances[0] >= distances.max() - 1e-9


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("scale", [2.0**-1000, 1e-150, 1e-20, 1.0, 1e20, 1e150, 2.0**1000])
def test_leja_order_does_not_see_the_scale(scale, complex_):
    nodes = np.random.default_rng(1).standard_normal(200)
    if complex_:
        nodes = nodes + 1j * np.random.default_rng(2).standard_normal(200)
    np.testing.assert_array_equal(leja_order(nodes * scale), leja_order(nodes))
    clustered = np.concatenate([nodes * 1e-9, nodes + 5])
    assert sorted(leja_order(clustered).tolist()) == list(range(400))


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


def test_given_orders():
    rng = np.random.default_rng(0)
    nodes, b = rng.standard_normal(6), rng.standard_normal(6)
    V = np.vander(nodes, increasing=True)
    for transpose in (False, True):
        expected = np.linalg.solve(V.T if transpose else V, b)
        for order in ("given", "leja", [5, 3, 1, 0, 2, 4], np.array([0, 1, 2, 3, 4, 5], np.int8)):
            np.testing.assert_allclose(solve(nodes, b, transpose, order=order), expected, rtol=1e-8)


# -------------------------------------------------------------------------------------- random


@given(
    nodes=hnp.arrays(
        np.float64, st.integers(1, 10), elements=st.integers(-1000, 1000), unique=True
    ),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_backward_error(nodes, data):
    b = data.draw(hnp.arrays(np.float64, nodes.size, elements=st.integers(-99, 99)))
    V = np.vander(nodes / 1000, increasing=True)
    for transpose in (False, True):
        x = solve(nodes / 1000, b, transpose)
        A = V.T if transpose else V
        residual = np.abs(A @ x - b).max()
        assert residual <= 1e-12 * (np.abs(A) @ np.abs(x) + np.abs(b)).max()


# -------------------------------------------------------------------------------------- errors


def test_nothing_is_written_for_an_error():
    nodes, b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0])
    out = np.full(3, 7.0)
    read_only = np.full(3, 7.0)
    read_only.flags.writeable = False
    for arguments, options, error, says in [
        (([1, 2, 1], b), {}, ValueError, r"nodes 0 and 2 are both 1.0: nodes must be distinct"),
        (([1j, 2, 1j], b + 0j), {"out": out + 0j}, ValueError, "nodes 0 and 2 are both 1j"),
        (([1, np.nan, 2], b), {}, ValueError, r"nodes\[1\] is nan: nodes must be finite"),
        (([1, 3, np.inf], b), {}, ValueError, r"nodes\[2\] is inf"),
        ((nodes, [1, 2, np.nan]), {}, ValueError, r"b\[2\] is nan: b must be finite"),
        ((nodes, [[1, 2], [3, np.inf], [0, 0]]), {"out": None}, ValueError, r"b\[1, 1\] is inf"),
        ((nodes, b[:2]), {}, ValueError, r"b must have shape \(3,\) or \(3, r\), not \(2,\)"),
        ((nodes, np.ones((3, 1, 1))), {}, ValueError, "b must have shape"),
        ((nodes[:, None], b), {}, ValueError, "nodes must be one-dimensional"),
        (([], []), {}, ValueError, "nodes must not be empty"),
        ((["a"], [1]), {}, TypeError, "nodes must be real or complex numbers"),
        (
            (nodes, b),
            {"order": "best"},
            ValueError,
            "order must be 'auto', 'leja', 'given' or a perm",
        ),
        ((nodes, b), {"order": [0, 1]}, ValueError, r"order must have shape \(3,\)"),
        ((nodes, b), {"order": [0, 1, 1]}, ValueError, "permutation of 0 to 2: 2 is missing"),
        ((nodes, b), {"order": [0, 1, 3]}, ValueError, "it reaches outside"),
        ((nodes, b), {"order": np.array([0, 1, -1])}, ValueError, "it reaches outside"),
        ((nodes, b), {"order": [0.0, 1, 2]}, TypeError, "order must be integers"),
        ((nodes, b), {"refine": -1}, ValueError, "refine must be at least 0"),
        ((nodes, b), {"refine": 0.5}, TypeError, "refine"),
        ((nodes, b), {"out": read_only}, ValueError, "read-only"),
        ((nodes, b), {"out": out.astype(np.float32)}, TypeError, "out must have dtype float64"),
        ((nodes, b), {"out": np.full(4, 7.0)}, ValueError, r"out must have shape \(3,\)"),
        ((nodes, b), {"out": np.full(6, 7.0)[::2]}, ValueError, "contiguous"),
    ]:
        options = {"out": out, **options}
        for transpose in (False, True):
            with pytest.raises(error, match=says):
                solve(*arguments, transpose, **options)
        if options["out"] is not None:
            assert (options["out"] == 7).all()


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


def test_overflow_warns():
    nodes = np.linspace(1, 2, 40)
    with pytest.warns(RuntimeWarning, match="overflow in solving a Vandermonde system"):
        x = solve(nodes * 1e-12, np.random.default_rng(0).standard_normal(40))
    assert not np.isfinite(x).all()


def test_public_names():
    assert set(vandermonde.__all__) == {"leja_order", "roots_order", "solve"}


def test_any_truth_transposes():
    nodes, b = np.arange(3.0), np.ones(3)
    expected = vandermonde.solve(nodes, b, transpose=True)
    for truth in (1, "yes", memoryview(b"x")):
        np.testing.assert_array_equal(vandermonde.solve(nodes, b, transpose=truth), expected)
