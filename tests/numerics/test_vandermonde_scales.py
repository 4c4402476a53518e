"""Vandermonde systems with nodes of any scale: bounds, refinement and orders, by exact numbers.

Systems are drawn from seeds; ``--long`` draws ten thousand.
"""

import math
import time
import warnings

import mpmath
import numpy as np
import pytest
from oracles.vandermonde import far, truth
from strength import much

from fastgc import interpolation
from fastgc.numerics import vandermonde
from fastgc.numerics.vandermonde import leja_order, solve

pytestmark = pytest.mark.every_backend


# ------------------------------------------------------------------------------------- sets


def _turned(rng, m):
    """Return complex nodes of many moduli, or in clusters."""
    moduli = FAMILIES[("mixed", "geometric", "clustered")[rng.integers(3)]](rng, m)
    return moduli * np.exp(2j * np.pi * rng.random(m))


def _circle(rng, m):
    n = m + int(rng.integers(0, m + 1))
    return np.exp(2j * np.pi * rng.permutation(n)[:m] / n)


FAMILIES = {
    "geometric": lambda rng, m: (
        rng.uniform(1.05, 8) ** -np.arange(m) * rng.choice([-1, 1], m) ** rng.integers(2)
    ),
    "clustered": lambda rng, m: (
        rng.choice(rng.standard_normal(rng.integers(1, 5)), m)
        + 10.0 ** -rng.uniform(1, 9) * rng.standard_normal(m)
    ),
    "mixed": lambda rng, m: (
        rng.standard_normal(m) * 10.0 ** rng.uniform(*sorted(rng.uniform(-150, 150, 2)), m)
    ),
    "Chebyshev": lambda rng, m: interpolation.chebyshev(m) + rng.choice([0, 0, 0.5, 1]),
    "near": lambda rng, m: 1 + 2.0 ** -rng.integers(10, 48) * np.arange(m),
    "subnormal": lambda rng, m: rng.permutation(np.arange(-m, 2 * m))[:m] * 2.0**-1074,
    "plain": lambda rng, m: rng.standard_normal(m) if rng.random() < 0.5 else rng.random(m),
    "even": lambda rng, m: np.linspace(rng.choice([-1, 0, 0.5]), 1, m),
    "circle": _circle,
    "Gaussian": lambda rng, m: rng.standard_normal(m) + 1j * rng.standard_normal(m),
    "turned": _turned,
}


def _size(rng):
    low, high = (1, 17) if (u := rng.random()) < 0.8 else (17, 61) if u < 0.98 else (61, 201)
    return int(rng.integers(low, high))


def _system(seed):
    """Draw nodes, a right-hand side, and which system to solve; None if two nodes coincide."""
    rng = np.random.default_rng([37, seed])
    m = _size(rng) if much(True, False) else int(rng.integers(1, 17))
    nodes = rng.permutation([*FAMILIES.values()][seed % len(FAMILIES)](rng, m))
    if rng.random() < 0.3 and nodes.dtype.kind == "f":
        nodes = np.ldexp(nodes, rng.integers(-200, 200))
    # The moments of a node at 1 have solutions with zeros, which only many digits show.
    kinds = [np.eye(m)[0], rng.choice([-1.0, 1.0], m), rng.standard_normal(m), np.ones(m)]
    b = kinds[rng.integers(4 if m <= 16 else 3)]
    transpose = bool(rng.integers(2))
    if not np.isfinite(nodes).all() or np.unique(nodes).size < m:
        return None
    return nodes, b.astype(nodes.dtype), transpose


def _quiet(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # overflow
        return solve(*arguments, **options)


def _fits(true):
    """Whether all numbers of a solution are in the range of doubles."""
    return all(abs(z) < 1.7e308 for z in true)


def _orders(nodes):
    rising = np.argsort(np.abs(nodes), kind="stable")
    return (
        leja_order(nodes),
        np.arange(nodes.size),
        rising,
        rising[::-1].copy(),
        np.argsort(nodes.real),
    )


SEEDS = [range(start, start + 25) for start in range(0, much(10000, 75), 25)]


@pytest.mark.subnormal
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: str(seeds.start))
def test_solve_bounds_refinement_and_choice(seeds):
    """Bounds hold, refinement makes nothing worse, and "auto" is as good as the best of five.

    Scale the solution to nodes of size 1, and divide its largest error by its largest number. For
    "auto", this is at most ten times the least of five orders, or 2^-40 m, also for a column among
    others.
    """
    gained = 0
    for seed in seeds:
        system = _system(seed)
        if system is None:
            continue
        nodes, b, transpose = system
        true = truth(nodes, b, transpose)
        plain = _quiet(nodes, b, transpose)
        beside = _quiet(nodes, np.stack([b[::-1], b], axis=1), transpose)[:, 1]
        x, bound = _quiet(nodes, b, transpose, return_bound=True)
        refined, limit = _quiet(nodes, b, transpose, refine=1 + seed % 3, return_bound=True)
        given, wide = _quiet(nodes, b, transpose, order="given", return_bound=True)
        before, after = far(x, true), far(refined, true)
        for what, errors, limits in (
            ("auto", before, bound),
            ("refined", after, limit),
            ("given", far(given, true), wide),
        ):
            assert not np.isnan(limits).any(), (seed, what)
            for e, most in zip(errors, limits.tolist(), strict=True):
                assert most == np.inf or e <= most, (seed, what)
        for a, e, now in zip(x.tolist(), before, after, strict=True):
            assert now <= e * (1 + 2.0**-8) or not np.isfinite(a), seed
            gained += now < e / 4
        if _fits(true):
            assert np.isfinite(plain).all(), seed
            assert np.isfinite(bound).all(), seed
            found = [_quiet(nodes, b, transpose, order=order) for order in _orders(nodes)]
            sizes = [_over_largest(e, nodes, true, transpose) for e in (plain, x, beside, *found)]
            assert max(sizes[:3]) <= max(10 * min(sizes[3:]), 2.0**-40 * nodes.size), seed
    assert gained > 20


def _over_largest(x, nodes, true, transpose):
    """Return the largest error over the largest number, both scaled to nodes of size 1."""
    with mpmath.workdps(50):
        scale = 1 if transpose else mpmath.mpf(float(np.abs(nodes).max()))
        weights = [scale**j for j in range(len(true))]
        errors = [e * w for e, w in zip(far(x, true), weights, strict=True)]
        least = mpmath.mpf(2) ** -1070  # smaller numbers underflow
        errors = [e if e > least * w else 0 for e, w in zip(errors, weights, strict=True)]
        return max(errors) / max(abs(z) * w for z, w in zip(true, weights, strict=True))


# ------------------------------------------------------------------------------------ scales


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"subnormal", "turned"}))
def test_powers_of_two_change_exponents_alone(family):
    """Scaling nodes, and moments with them, keeps all digits of solutions and bounds."""
    for seed in range(much(200, 6)):
        rng = np.random.default_rng([1, seed])
        m = int(rng.integers(1, 20))
        nodes = rng.permutation(FAMILIES[family](rng, m))
        if family == "mixed":
            nodes = rng.standard_normal(m) * 10.0 ** rng.uniform(-3, 3, m)
        nodes /= np.abs(nodes).max() or 1
        if np.unique(nodes).size < m:
            continue
        b = rng.standard_normal(m).astype(nodes.dtype)
        for k in (-40, -3, 1, 30):
            powers = 2.0 ** (k * np.arange(m))
            for transpose in (False, True):
                moved = b * powers if transpose else b
                plain, bound = solve(nodes, b, transpose, return_bound=True)
                other, limit = solve(nodes * 2.0**k, moved, transpose, return_bound=True)
                factor = np.ones(m) if transpose else powers
                np.testing.assert_array_equal(other * factor, plain)
                np.testing.assert_array_equal(limit * factor, bound)
                np.testing.assert_array_equal(
                    solve(nodes * 2.0**k, moved, transpose) * factor, solve(nodes, b, transpose)
                )


E0_CASES = {
    "1e-6 (1 ... 90)": 1e-6 * np.arange(1, 91.0),
    "1e-4 Chebyshev's": 1e-4 * np.cos((np.arange(100) + 0.5) * np.pi / 100),
    "1.3^-i": 1.3 ** -np.arange(110.0),
    "roots of unity / 2^30": np.exp(2j * np.pi * np.arange(64) / 64) * 2.0**-30,
    "random in [0, 1]": np.random.default_rng(0).random(much(800, 400)),
    "10^+-20": np.array([3e20, -1e-20, 2e-20, -4e20, 5e20, -7e-20]),
}


@pytest.mark.subnormal
@pytest.mark.parametrize("name", E0_CASES)
def test_solve_for_no_moment_but_the_first(name):
    """x_i = prod over j of x_j / (x_j - x_i): these once underflowed silently, with bounds of 0."""
    nodes = E0_CASES[name]
    m = nodes.size
    e0, rows = np.eye(m)[0].astype(nodes.dtype), slice(None, None, 40 if m >= 200 else 1)
    with mpmath.workdps(700):
        z = [mpmath.mpmathify(node) for node in nodes.tolist()]
        true = [mpmath.fprod(b / (b - a) for b in z if b is not a) for a in z[rows]]
    size = max(map(abs, true))
    for refine in (0, 2):
        x, bound = solve(nodes, e0, True, refine=refine, return_bound=True)
        errors = far(x[rows], true)
        assert (errors <= bound[rows]).all()
        assert max(errors) <= 1e-12 * size
        assert max(bound[rows]) <= 1e-11 * size
    assert (np.array(errors, float) <= 2.0**-52 * np.abs(x[rows])).all()


def _incomplete_circle(m, missing, seed):
    rng = np.random.default_rng(seed)
    return np.exp(2j * np.pi * rng.permutation(m + missing)[:m] / (m + missing))


FEW_CASES = {
    "circle": _incomplete_circle(60, 14, 0),
    "large circle": 3e-3 * _incomplete_circle(80, 22, 1),
    "Chebyshev's": 1.4 * np.cos((np.arange(80) + 0.5) * np.pi / 80),
    "even": np.linspace(-1, 1, 60),
    "random": np.random.default_rng(2).uniform(-1, 1, 57),
    "Gaussian": FAMILIES["Gaussian"](np.random.default_rng(3), 60),
    "seven": np.linspace(-1, 1, 7),
}


@pytest.mark.parametrize("name", FEW_CASES)
def test_polynomials_of_few_values(name):
    """Polynomials that vanish at all but three nodes are good to 2^-44 m; in Leja's order, not all.

    A column alone, among others, or with a bound is the same up to rounding.
    """
    nodes = FEW_CASES[name]
    m, rng = nodes.size, np.random.default_rng(4)
    B = np.zeros((m, 8), dtype=nodes.dtype)
    for col in range(8):
        B[rng.permutation(m)[: col % 4], col] = rng.choice([-1.0, 1.0, 0.3], col % 4)
    B[:, 4] = rng.standard_normal(m)  # a polynomial of many values
    together, (x, bound) = solve(nodes, B), solve(nodes, B, return_bound=True)
    exactly = solve(nodes, B, refine=1)
    weights = np.abs(nodes).max() ** np.arange(m)
    for col in (0, 1, 2, 3, 5, 6, 7):
        largest = (weights * np.abs(exactly[:, col])).max()
        for found in (together[:, col], x[:, col], solve(nodes, B[:, col].copy())):
            error = (weights * np.abs(found - exactly[:, col])).max()
            assert error <= 2.0**-44 * m * largest, (name, col)
        assert (np.abs(x - exactly)[:, col] <= bound[:, col] + 2.0**-52 * np.abs(x[:, col])).all()


@pytest.mark.subnormal
def test_bounds_of_what_leaves_the_range():
    """Numbers that overflow have the bound Inf, others finite ones; no sum is Inf - Inf."""
    rng = np.random.default_rng(5)
    for nodes in (
        rng.standard_normal(20) * 1e-30,
        rng.standard_normal(20) * 1e30,
        np.array([1e-200, 1e200, -1e-100, -1e150]),
        2.0**-1074 * np.arange(1, 8),
        1e300 * np.arange(1, 9),
    ):
        b = rng.standard_normal(nodes.size)
        for transpose in (False, True):
            for refine in (0, 1):
                x, bound = _quiet(nodes, b, transpose, refine=refine, return_bound=True)
                assert not np.isnan(x).any()
                assert (np.isinf(bound) | np.isfinite(x)).all()
                true = truth(nodes, b, transpose)
                for e, limit in zip(far(x, true), bound.tolist(), strict=True):
                    assert limit == np.inf or e <= limit
                finite = [abs(z) < 1e308 for z in true]
                assert np.isfinite(x).tolist() == finite


@pytest.mark.subnormal
def test_solve_bounds_numbers_of_any_size():
    """Bounds hold where neighbours in a vector are thousands of powers of two apart."""
    for seed in range(much(1000, 20)):
        rng = np.random.default_rng([5, seed])
        m = int(rng.integers(9, 14))
        nodes, b = 10.0 ** rng.uniform(-70, 110, m), rng.standard_normal(m)
        nodes *= rng.choice([-1, 1], m)
        for transpose in (False, True):
            x, bound = _quiet(nodes, b, transpose, order="given", return_bound=True)
            for e, limit in zip(far(x, truth(nodes, b, transpose)), bound.tolist(), strict=True):
                assert limit == math.inf or e <= limit, seed


# ------------------------------------------------------------- clusters, scales, few values


@pytest.fixture
def no_decimals(monkeypatch):
    """Let no system be solved in decimals, which takes seconds for a thousand nodes."""

    def refuse(*_):
        raise AssertionError("solved in decimals")

    monkeypatch.setattr(vandermonde._Precise, "solve", refuse)


KINDS = {
    "1 to m": lambda rng, m: np.arange(1.0, m + 1),
    "1/(i+3)": lambda rng, m: 1 / np.arange(3.0, m + 3),
    "even in [0, 1]": lambda rng, m: np.linspace(0, 1, m),
    "even in [-1, 1]": lambda rng, m: np.linspace(-1, 1, m),
    "Chebyshev's": lambda rng, m: interpolation.chebyshev(m),
    "random in [0, 1]": lambda rng, m: rng.random(m),
    "random in [-1, 1]": lambda rng, m: rng.uniform(-1, 1, m),
    "normal": lambda rng, m: rng.standard_normal(m),
    "many scales": lambda rng, m: np.exp(3 * rng.standard_normal(m)),
    "many scales, two signs": lambda rng, m: (
        np.exp(3 * rng.standard_normal(m)) * rng.choice([-1, 1], m)
    ),
    "two clusters": lambda rng, m: (
        np.resize([1.0, -1.0], m) + 1e-3 * rng.random(m)  # each of m / 2 nodes
    ),
    "a cluster": lambda rng, m: 1 + 1e-4 * rng.uniform(-1, 1, m),
    "-k to k": lambda rng, m: np.arange(m) - float(m // 2),
    "circle": _circle,
    "arc": lambda rng, m: np.exp(1j * np.pi * np.arange(m) / m / 2),
    "disc": lambda rng, m: np.sqrt(rng.random(m)) * np.exp(2j * np.pi * rng.random(m)),
}
RIGHTS = {
    "e0": lambda rng, m: np.eye(m)[0],
    "last": lambda rng, m: np.eye(m)[-1],
    "random": lambda rng, m: rng.standard_normal(m),
    "(-1)^i": lambda rng, m: (-1.0) ** np.arange(m),
    "1": lambda rng, m: np.ones(m),
    "few": lambda rng, m: np.eye(m)[rng.permutation(m)[: m // 4]].sum(axis=0),
    "many sizes": lambda rng, m: 2.0 ** -rng.permutation(m),
}


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_solve_is_good_beside_the_largest_number(kind, transpose):
    """Errors are below 1e-10 of the largest number, for nodes as they are and of size 1."""
    for m in much((12, 30, 50), (11, 24)):
        for seed, right in enumerate(RIGHTS):
            rng = np.random.default_rng([m, seed])
            nodes = KINDS[kind](rng, m)
            b = RIGHTS[right](rng, m).astype(nodes.dtype)
            x, true = solve(nodes, b, transpose), truth(nodes, b, transpose)
            relative = max(far(x, true)) / max(map(abs, true))
            assert max(relative, _over_largest(x, nodes, true, transpose)) < 1e-10, (right, m)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("kind", ["many scales, two signs", "two clusters"])
@pytest.mark.parametrize("right", ["random", "few", "last"])
def test_solve_by_the_inverse(kind, transpose, right, no_decimals, at_each_level):
    """Nodes in clusters and of many scales need no decimals, unless terms cancel."""
    for m in (9, 17, 40, much(130, 90)):
        rng = np.random.default_rng(m)
        nodes, b = KINDS[kind](rng, m), RIGHTS[right](rng, m)
        nodes[-1] *= m != 17  # one node at 0
        true = truth(nodes, b, transpose)
        assert _fits(true)
        for _ in at_each_level():
            errors = far(solve(nodes, b, transpose), true)
            assert max(errors) <= 1e-13 * m * max(map(abs, true)), m


@pytest.mark.parametrize("m", [30, 300])
@pytest.mark.parametrize("kind", ["even in [-1, 1]", "normal", "-k to k", "disc", "circle"])
def test_solve_by_the_inverse_where_few_values_matter(kind, m, no_decimals):
    """A polynomial of nine values is the sum of nine that are 0 at all other nodes."""
    rng = np.random.default_rng(3)
    nodes, rights = KINDS[kind](rng, m), np.zeros((m, 9))
    rights[rng.permutation(m)[:9], np.arange(9)] = rng.standard_normal(9)
    together = rights.sum(axis=1)
    together[together == 0] = 1e-40  # which does not matter
    terms = solve(nodes, rights)
    error = np.abs(solve(nodes, together) - terms.sum(axis=1))
    assert error.max() <= 1e-12 * np.abs(terms).max()


# ---------------------------------------------------------------------------- thousands of nodes


def _chebyshev_on(largest):
    return lambda m: largest * np.cos((np.arange(m) + 0.5) * np.pi / m)


FILLED = {
    "[-2, 2]": _chebyshev_on(2.0),
    "[-1, 1]": _chebyshev_on(1.0),
    "[-1e-3, 1e-3]": _chebyshev_on(1e-3),
    "disc": lambda m: (
        np.sqrt((np.arange(m) + 0.5) / m) * np.exp(2j * np.pi * np.arange(m) * 0.618034)
    ),
}


@pytest.mark.parametrize("name", FILLED)
def test_moments_of_thousands_of_nodes(name, no_decimals):
    """V^T x = e0 has x_i = prod over j of x_j / (x_j - x_i), of size 1 for any number of nodes."""
    m = much(4000, 1100)
    nodes = FILLED[name](m)
    e0 = np.eye(m)[0].astype(nodes.dtype)
    x, rows = solve(nodes, e0, True), range(0, m, m // 7)
    with mpmath.workdps(60):
        z = [mpmath.mpmathify(node) for node in nodes.tolist()]
        true = [mpmath.fprod(z[j] / (z[j] - z[i]) for j in range(m) if j != i) for i in rows]
    errors = [float(e) for e in far(x[list(rows)], true)]
    assert max(errors) <= 1e-11 * np.abs(x).max()


@pytest.mark.parametrize("m", [1022, 1500])
@pytest.mark.parametrize("name", ["[-2, 2]", "[-1, 1]"])
def test_products_of_a_thousand_distances(name, m, no_decimals):
    """V^T x = e_last has x_i = 1 / prod over j of (x_i - x_j), which no longer underflows at 1022.

    It is Inf, with its sign, if it is too large: for 1500 nodes in [-1, 1].
    """
    nodes, rows = FILLED[name](m), range(0, m, m // 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if name == "[-1, 1]" and m == 1500 else "error")
        x = solve(nodes, np.eye(m)[-1], True)[list(rows)]
    with mpmath.workdps(60):
        z = [mpmath.mpf(node) for node in nodes.tolist()]
        true = [1 / mpmath.fprod(z[i] - z[j] for j in range(m) if j != i) for i in rows]
        relative = [float(e / max(map(abs, true))) for e in far(x, true)]
    if _fits(true):
        assert max(relative) <= 1e-11
    else:
        np.testing.assert_array_equal(x, [math.inf * float(mpmath.sign(a)) for a in true])


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("kind", ["even in [-1, 1]", "1 to m", "-k to k", "a cluster", "circle"])
def test_solve_takes_time_as_squares_do(kind, transpose):
    """No size is a cliff: where numbers leave a double's range, it is not ten times as slow."""
    times = []
    for m in (300, 1200):
        rng = np.random.default_rng(m)
        nodes = KINDS[kind](rng, m)
        b = rng.standard_normal(m).astype(nodes.dtype)
        for _ in range(5):
            start = time.process_time()
            _quiet(nodes, b, transpose)
            times.append(time.process_time() - start)
    assert min(times[5:]) < 10 * 16 * min(times[:5])


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("order", ["auto", "leja"])
def test_numbers_of_any_exponent(transpose, complex_, order, no_decimals, at_each_level):
    """Where the largest numbers are Inf, the others are those of a system in range."""
    rng = np.random.default_rng(8)
    for m in (2, 7, 16, 40):
        nodes = np.exp(2j * np.pi * rng.random(m)) if complex_ else rng.uniform(-1, 1, m)
        b = rng.standard_normal(m).astype(nodes.dtype)
        b[0 if transpose else m // 2] = 0
        plain = solve(nodes, b, transpose, order=order)
        k = 20 if transpose else 900 // (m - 1)  # nodes are divided by 2^k
        powers = k * np.arange(m)
        up = 0 * powers if transpose else powers
        most = np.frexp(np.maximum(np.abs(plain.real), np.abs(plain.imag)))[1] + up
        up += 1026 - most.max()
        given = _times_power(b, 1026 - most.max() - transpose * powers)
        expected = _times_power(plain, up)
        for _ in at_each_level():
            with pytest.warns(RuntimeWarning, match="overflow"):
                x = solve(_times_power(nodes, -k), given, transpose, order=order)
            inside = np.isfinite(expected)
            assert np.isfinite(x).tolist() == inside.tolist()
            far = np.abs(_times_power(x, -up) - plain)[inside]
            assert (far <= 2.0**-44 * m * np.abs(plain).max()).all()


def test_bounds_beside_what_is_too_large(no_decimals):
    """Bounds prove the numbers beside those that are Inf, and that these are too large."""
    m = 40
    for transpose in (False, True):
        nodes = np.linspace(0.9, 1, m) * (1 if transpose else 2.0**-27)
        b = (-1.0) ** np.arange(m) * (2.0**785 if transpose else 1)
        with pytest.warns(RuntimeWarning, match="overflow"):
            x, bound = solve(nodes, b, transpose, return_bound=True)
        true = truth(nodes, b, transpose)
        assert np.isfinite(x).tolist() == [abs(z) < 1.7e308 for z in true]
        assert 0 < np.isinf(x).sum() < m
        for a, e, limit in zip(x.tolist(), far(x, true), bound.tolist(), strict=True):
            assert limit == math.inf if math.isinf(a) else e <= limit <= 1e-12 * abs(a)


def _times_power(x, exponents):
    """Multiply numbers by powers of two of any size; what is too large is Inf."""
    found = np.empty_like(x)
    with np.errstate(over="ignore", under="ignore"):
        found.real = np.ldexp(x.real, exponents)
        if x.dtype.kind == "c":
            found.imag = np.ldexp(x.imag, exponents)
    return found


def test_a_doubtful_order_is_not_taken_where_numbers_are_too_large():
    """Two clusters: the order by modulus loses digits, also beside numbers that are Inf."""
    m = 24
    nodes = np.concatenate([1 + 1e-3 * np.arange(m // 2), -1 - 1.1e-3 * np.arange(m // 2)])
    for b in np.random.default_rng(2).standard_normal((4, m)):
        exactly = solve(nodes, b, True, refine=1)
        up = 1025 - np.frexp(np.abs(exactly).max())[1]
        with pytest.warns(RuntimeWarning, match="overflow"):
            x = solve(nodes, _times_power(b, up), True)
        inside = np.isfinite(_times_power(exactly, up))
        assert np.isfinite(x).tolist() == inside.tolist()
        found = _times_power(x, -up)[inside]
        np.testing.assert_allclose(found, exactly[inside], rtol=2.0**-48 * m)
