"""Numbers of twice float64's precision: arithmetic and kernels agree with exact numbers."""

import functools
import importlib.util
import itertools
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastgc import kernels
from fastgc.kernels.numpy import pairs

U2 = Fraction(1, 2**106)


def value(pair):
    return Fraction(float(pair[0])) + Fraction(float(pair[1]))


def is_normal(pair):
    return float(pair[0]) + float(pair[1]) == float(pair[0])


def near(low, high):
    """Return a strategy of 0 and numbers whose sizes lie between two powers of two."""
    size = st.floats(2.0**low, 2.0**high, allow_subnormal=False)
    return st.one_of(st.just(0.0), size, size.map(lambda x: -x))


@st.composite
def numbers(draw, low=-200, high=200):
    x = draw(near(low, high))
    share = draw(st.floats(-0.5, 0.5))
    return pairs.two_sum(x, share * float(np.spacing(abs(x))) if x else 0.0)


@pytest.mark.any_backend
class TestArithmetic:
    @given(numbers(), numbers(), st.integers(-3, 3))
    def test_sum_and_product(self, x, y, nearly):
        if nearly:  # the numbers nearly cancel
            y = pairs.two_sum(-x[0] * (1 + nearly * 2.0**-52), y[1] * 2.0**-60)
        for found, exact, within in (
            (pairs.add(x, y), value(x) + value(y), 4),
            (pairs.multiply(x, y), value(x) * value(y), 7),
            (pairs.add(x, pairs.negate(x)), Fraction(0), 0),
        ):
            assert is_normal(found)
            assert abs(value(found) - exact) <= within * U2 * abs(exact)

    @given(numbers(), numbers())
    def test_quotient_and_root(self, x, y):
        if y[0]:
            exact = value(x) / value(y)
            found = pairs.divide(x, y)
            assert is_normal(found)
            assert abs(value(found) - exact) <= 16 * U2 * abs(exact)
        positive = (abs(x[0]), np.copysign(1.0, x[0]) * x[1])
        found = pairs.square_root(positive)
        assert is_normal(found)
        # A root's relative error is half of its square's.
        assert abs(value(found) ** 2 - value(positive)) <= 32 * U2 * value(positive)

    @given(st.lists(st.lists(numbers(), min_size=3, max_size=3), min_size=1, max_size=9))
    def test_total(self, rows):
        table = np.array(rows, dtype=np.float64)  # (terms, 3, 2)
        found = pairs.total((table[..., 0], table[..., 1]))
        for k in range(3):
            terms = [value(row[k]) for row in rows]
            assert is_normal((found[0][k], found[1][k]))
            error = abs(value((found[0][k], found[1][k])) - sum(terms))
            assert error <= 4 * 4 * U2 * sum(map(abs, terms))

    def test_total_of_nothing(self):
        high, low = pairs.total((np.empty((0, 2)), np.empty((0, 2))))
        assert (high.tolist(), low.tolist()) == ([0, 0], [0, 0])

    @pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
    def test_what_is_not_finite_stays_so(self, bad):
        one, broken = (np.array(1.5), np.array(2.0**-60)), (np.array(bad), np.array(0.0))
        with np.errstate(invalid="ignore"):
            for operation in (pairs.add, pairs.multiply):
                for found in (operation(one, broken), operation(broken, one)):
                    assert not np.isfinite(sum(found))
            assert not np.isfinite(sum(pairs.divide(broken, one)))


# ---------------------------------------------------------------------------------- combinations

UNIT = 400  # exact numbers are integers times 2^-400, which are faster than fractions


def fixed(x):
    above, below = float(x).as_integer_ratio()
    return above * (2**UNIT // below)


def fixed_pair(pair):
    return fixed(pair[0]) + fixed(pair[1])


SIZES = [*range(1, 20), 31, 33, 511, 512, 513, 514, 1025]


def split(numbers):
    """Return normalised pairs of these high parts, with random low parts."""
    rng = np.random.default_rng(numbers.size)
    return np.stack([numbers, 0.49 * rng.uniform(-1, 1, numbers.shape) * np.spacing(numbers)], -1)


def draw_combination(rng, f, q, paired, spread=0, cancel=False):
    """Draw coefficients (f, 2) and rows (f, q), and the same exactly, with q made even by a 0."""

    def some(*shape):
        return rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)

    coef, rows = split(some(f, 2)), split(some(f, q))
    if not paired:
        rows[..., 1] = 0
    if cancel:  # each row twice, so that only low parts are left
        half = f // 2
        coef[half : 2 * half] = -coef[:half]
        rows[half : 2 * half] = rows[:half]
        rows[half : 2 * half, :, 0] *= 1 + rng.integers(0, 2, q) * 2.0**-52
    exact = [[fixed_pair(pair) for pair in row] + [0] * (q % 2) for row in rows]
    given = np.ascontiguousarray(coef.swapaxes(1, 2)).view(np.complex128)[..., 0]
    flat = rows.reshape(f, 2 * q) if paired else np.ascontiguousarray(rows[..., 0])
    return given, flat, [[fixed_pair(pair) for pair in row] for row in coef], exact


def exact_combination(coef, rows, extent):
    """Return the exact results and sums of moduli, for each number, times 2^(2 UNIT)."""
    sums, sizes = [0] * extent, [0] * extent
    for (x, y), row in zip(coef, rows, strict=True):
        for j, v in enumerate(row):
            turned = row[j + 1] * -y if j % 2 == 0 else row[j - 1] * y
            sums[j] += x * v + turned
            sizes[j] += abs(x * v) + abs(turned)
    return sums, sizes


def run_combination(coef, flat, paired, rounded, accumulate, p, rng, check=False):
    """Return what a kernel writes, what `out` held before, and its result; neighbours stay."""
    q = flat.shape[1] // (1 + paired) if flat.ndim == 2 else 0
    each = 1 if rounded else 2
    before = rng.standard_normal(p * each)
    if not rounded:
        before[1::2] = 0.4 * np.spacing(before[::2])
    guarded = np.concatenate([[7.0], before, [7.0] * 40])
    out = guarded[1 : 1 + p * each]
    kept = coef.copy(), flat.copy()
    rows = kernels.Rows.of(list(flat), q * (1 + paired), np.dtype(np.float64))
    fine = kernels.combine_pairs(
        rows, coef, out, paired=paired, rounded=rounded, accumulate=accumulate, check=check
    )
    assert guarded[0] == 7
    assert set(guarded[1 + p * each :]) == {7}
    np.testing.assert_array_equal(coef, kept[0])
    np.testing.assert_array_equal(flat, kept[1])
    return out, before, fine


def check_combination(combination, paired, rounded, accumulate, p, rng):
    coef, flat, exact_coef, exact_rows = combination
    f = len(exact_coef)
    extent = len(exact_rows[0])
    out, before, fine = run_combination(coef, flat, paired, rounded, accumulate, p, rng)
    assert fine
    sums, sizes = exact_combination(exact_coef, exact_rows, extent)
    for j in range(p):
        if rounded:
            found, added = fixed(out[j]), fixed(before[j])
        else:
            assert is_normal(out[2 * j : 2 * j + 2])
            found, added = fixed_pair(out[2 * j : 2 * j + 2]), fixed_pair(before[2 * j : 2 * j + 2])
        wanted = sums[j] + (added * accumulate << UNIT)
        size = sizes[j] + (abs(added) * accumulate << UNIT)
        error = abs((found << UNIT) - wanted) << 106
        within = (f + 2 + accumulate) ** 2 * size + abs(wanted) * (2**53 if rounded else 2)
        assert error <= within, (f, p, j)


KINDS = {"encode": (False, False), "decode": (True, True), "pairs": (True, False)}


@pytest.mark.every_backend
@pytest.mark.parametrize("kind", KINDS)
class TestCombination:
    def test_lengths(self, kind, at_each_level):
        """Every length near those of vectors and blocks, for whole rows and rows cut by one."""
        paired, rounded = KINDS[kind]
        for q in SIZES:
            rng = np.random.default_rng(q)
            combination = draw_combination(rng, 3, q, paired)
            extent = q + q % 2
            for _ in at_each_level():
                for p in (extent, extent - 1):
                    check_combination(combination, paired, rounded, p % 4 == 3, p, rng)

    def test_numbers_of_rows(self, kind, at_each_level):
        paired, rounded = KINDS[kind]
        for f in (1, 2, 5, 7, 8, 9, 15, 16, 17, 26):
            rng = np.random.default_rng(f)
            for spread, cancel in ((0, False), (0, True), (60, False)):
                combination = draw_combination(rng, f, 18, paired, spread, cancel)
                for _ in at_each_level():
                    for accumulate in (False, True):
                        check_combination(combination, paired, rounded, accumulate, 18, rng)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_any(self, kind, data, at_each_level):
        paired, rounded = KINDS[kind]
        f, q = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 40))
        spread = data.draw(st.sampled_from([0, 3, 20, 120]))
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        combination = draw_combination(rng, f, q, paired, spread, data.draw(st.booleans()))
        accumulate, p = data.draw(st.booleans()), q + q % 2 - data.draw(st.integers(0, 1))
        for _ in at_each_level():
            check_combination(combination, paired, rounded, accumulate, p, rng)

    def test_errors_grow_with_the_root_of_rows(self, kind, at_each_level):
        """Errors grow relative to the norm of coefficients, by which near-exact vectors go."""
        paired, rounded = KINDS[kind]
        f, q = 1000, 16
        rng = np.random.default_rng(5)
        coef, flat, exact_coef, exact_rows = draw_combination(rng, f, q, paired)
        sums, _ = exact_combination(exact_coef, exact_rows, q)
        norm = np.linalg.norm(coef)
        for _ in at_each_level():
            out, *_ = run_combination(coef, flat, paired, rounded, False, q, rng)
            if rounded:
                np.testing.assert_array_equal(out, [total / 2 ** (2 * UNIT) for total in sums])
            else:
                found = [fixed_pair(pair) << UNIT for pair in out.reshape(q, 2)]
                errors = [
                    ((each - total) << 106) / 2 ** (2 * UNIT)
                    for each, total in zip(found, sums, strict=True)
                ]
                assert np.linalg.norm(errors) / np.sqrt(q) <= np.sqrt(f) * norm

    def test_no_rows(self, kind, at_each_level):
        paired, rounded = KINDS[kind]
        rows = kernels.Rows.of([], 6 * (1 + paired), np.dtype(np.float64))
        for _ in at_each_level():
            for accumulate in (False, True):
                out = np.full(6 if rounded else 12, 2.0)
                out[1::2] = 2.0 if rounded else 0.0
                wanted = out * accumulate
                assert kernels.combine_pairs(
                    rows,
                    np.empty((0, 2), np.complex128),
                    out,
                    paired=paired,
                    rounded=rounded,
                    accumulate=accumulate,
                    check=True,
                )
                np.testing.assert_array_equal(out, wanted)

    def test_zero_coefficients(self, kind, at_each_level):
        paired, rounded = KINDS[kind]
        rng = np.random.default_rng(0)
        coef, flat, *_ = draw_combination(rng, 10, 20, paired)
        for _ in at_each_level():
            out, *_ = run_combination(0 * coef, flat, paired, rounded, False, 20, rng, True)
            assert not out.any()

    @pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
    def test_what_is_not_finite(self, kind, bad, at_each_level):
        paired, rounded = KINDS[kind]
        rng = np.random.default_rng(1)
        q = 35
        coef, flat, *_ = draw_combination(rng, 11, q, paired)
        for _ in at_each_level():
            for at in (0, 1, 17, 32, 34):
                broken = flat.copy()
                broken[4, at * (1 + paired)] = bad
                for check in (False, True):
                    out, _, fine = run_combination(
                        coef, broken, paired, rounded, False, q + 1, rng, check
                    )
                    assert fine == (not check)
                    high = out if rounded else out[::2]
                    wrong = np.flatnonzero(~np.isfinite(high)).tolist()
                    assert wrong == [at // 2 * 2, at // 2 * 2 + 1]
            lost = coef.copy()
            lost[3, 0] = complex(1, bad)
            out, _, fine = run_combination(lost, flat, paired, rounded, True, q + 1, rng, True)
            assert not fine
            # A zero completes the last number; kernels need not multiply it.
            assert not np.isfinite(out if rounded else out[::2])[: q - 1].any()

    def test_large_numbers_below_the_bound_stay_finite(self, kind, at_each_level):
        paired, rounded = KINDS[kind]
        rng = np.random.default_rng(2)
        coef, flat, *_ = draw_combination(rng, 4, 10, paired)
        for _ in at_each_level():
            found = []
            for smaller in (1.0, 2.0**-90):
                same = np.random.default_rng(3)
                large = flat * (2.0**990 * smaller)
                out, *_ = run_combination(coef * 2.0**-900, large, paired, rounded, False, 10, same)
                found.append(out / smaller)
            assert np.isfinite(found).all()
            np.testing.assert_array_equal(*found)

    def test_threads(self, kind, at_each_level, split_over):
        """Pieces give the same as the whole, at any cut."""
        paired, rounded = KINDS[kind]
        rng = np.random.default_rng(3)
        q = 4099
        coef, flat, *_ = draw_combination(rng, 3, q, paired)
        for _ in at_each_level():
            for p in (q, q + 1):
                found = []
                for count in (1, 3):
                    split_over(count)
                    same = np.random.default_rng(4)
                    found.append(run_combination(coef, flat, paired, rounded, True, p, same)[0])
                np.testing.assert_array_equal(*found)


# --------------------------------------------------------------------------------------- vectors

BITS = 360  # precision of the truth


@functools.cache
def roots(n):
    """Return exp(pi i u / n) for u = 0 .. 2n-1."""
    with mpmath.workprec(BITS):
        return [mpmath.expjpi(mpmath.mpf(u) / n) for u in range(2 * n)]


@functools.cache
def circle(n):
    """Return the same in the layout of kernels."""
    found = np.empty((2 * n, 2, 2))
    with mpmath.workprec(BITS):
        for at, root in enumerate(roots(n)):
            for part, x in enumerate((root.real, root.imag)):
                found[at, part] = float(x), float(x - float(x))
    found.flags.writeable = False
    return found


def wide(values):
    """Return the numbers that (n, 2) complex128 stand for."""
    with mpmath.workprec(BITS):
        return [mpmath.mpc(complex(high)) + mpmath.mpc(complex(low)) for high, low in values]


def exact_vector(turns, n):
    with mpmath.workprec(BITS):
        return [
            mpmath.fprod(1 - roots(n)[2 * (i - t) % (2 * n)] for t in turns) / n for i in range(n)
        ]


def ridge_cost(values, turns):
    """Return the cost that `fastgc.kernels.near_exact` minimises, for u = 2^-106."""
    at = mpmath.fsum(abs(values[t]) ** 2 for t in turns)
    return mpmath.sqrt(at + mpmath.ldexp(mpmath.fsum(abs(v) ** 2 for v in values), -210))


@functools.cache  # shared by all backends
def least_cost(turns, n, c):
    """Return the least cost by the normal equations, whose condition is the problem's square."""
    with mpmath.workprec(BITS):
        sums = [mpmath.fsum(roots(n)[2 * t * m % (2 * n)] for t in turns) for m in range(-c, c + 1)]
        ridge = mpmath.ldexp(n, -210)
        gram = mpmath.matrix(c)
        for i, j in itertools.product(range(c), repeat=2):
            gram[i, j] = sums[j - i + c] + (ridge if i == j else 0)
        x = mpmath.lu_solve(gram, mpmath.matrix([-sums[c - m] / n for m in range(1, c + 1)]))
        x = [1 / mpmath.mpf(n), *x]
        values = [
            mpmath.fsum(x[m] * roots(n)[2 * i * m % (2 * n)] for m in range(c + 1))
            for i in range(n)
        ]
        return ridge_cost(values, turns)


def check_polynomial(values, n, c):
    """Require normalised pairs of a polynomial of degree c with constant coefficient 1/n."""
    for part in (values.real, values.imag):
        np.testing.assert_array_equal(part[:, 0] + part[:, 1], part[:, 0])
    exact = wide(values)
    with mpmath.workprec(BITS):
        x = [
            mpmath.fsum(v * roots(n)[-2 * i * m % (2 * n)] for i, v in enumerate(exact)) / n
            for m in range(n)
        ]
        size = mpmath.fsum(map(abs, x[: c + 1]))
        assert abs(x[0] - 1 / mpmath.mpf(n)) <= mpmath.ldexp(size, -103)
        assert all(abs(each) <= mpmath.ldexp(size, -103) for each in x[c + 1 :])


def patterns(n, s):
    """Yield arcs, unions of two arcs, nearly uniform sets with a gap, any sets; in any order."""
    rng, spread = np.random.default_rng(n), np.arange(s)
    found = [
        spread,
        np.r_[spread[: s // 2], n // 2 + spread[: s - s // 2]],
        spread * (n - 1) // s,
        rng.permutation(n)[:s],
    ]
    return [rng.permutation(each) for each in found if np.unique(each).size == s]


@pytest.mark.every_backend
class TestVectors:
    @pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
    def test_all_sets(self, n, at_each_level):
        """Exact vectors, and near-exact ones, which are the same if exact ones are short."""
        rng = np.random.default_rng(n)
        for s in range(1, n):
            for chosen in itertools.combinations(range(1, n), s - 1):
                turns = rng.permutation(np.array([0, *chosen]))
                exact = exact_vector(turns, n)
                for _ in at_each_level():
                    vector = wide(kernels.locator_pairs(turns, n, circle(n)))
                    near = wide(kernels.near_exact_pairs(turns, n, s, circle(n)))
                    with mpmath.workprec(BITS):
                        size = max(map(abs, exact))
                        for found, same, wanted in zip(vector, near, exact, strict=True):
                            error = mpmath.ldexp(abs(found - wanted), 106)
                            assert error <= 8 * (s + 4) * abs(wanted)
                            assert mpmath.ldexp(abs(same - wanted), 102) <= size * (1 + n * size)

    @pytest.mark.parametrize(
        ("n", "s", "c"),
        [(5, 4, 4), (7, 5, 2), (11, 2, 7), (13, 13, 3), (23, 9, 8), (24, 12, 12)],
    )
    def test_least_cost(self, n, s, c, at_each_level):
        for turns in patterns(n, s):
            kept = turns.copy()
            least = least_cost(tuple(turns.tolist()), n, c)
            for _ in at_each_level():
                values = kernels.near_exact_pairs(turns, n, c, circle(n))
                np.testing.assert_array_equal(turns, kept)
                check_polynomial(values, n, c)
                with mpmath.workprec(BITS):
                    # Matrix and result have rounding errors of the ridge's size.
                    cost = ridge_cost(wide(values), turns)
                    assert (1 - 1e-9) * least <= cost <= 2 * least

    @pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 17, 33])
    def test_numbers_of_equations(self, size, at_each_level):
        """Numbers near those of vectors and sums; all backends leave the same residual."""
        n = 71
        for s, c in ((size, size), (20, size)):
            turns = np.random.default_rng(s).permutation(n)[:s]
            with kernels.use_backend("numpy"):
                wanted = kernels.near_exact_pairs(turns, n, c, circle(n))
            for _ in at_each_level():
                values = kernels.near_exact_pairs(turns, n, c, circle(n))
                with mpmath.workprec(BITS):
                    costs = [ridge_cost(wide(each), turns) for each in (values, wanted)]
                    assert costs[0] <= 2 * costs[1]
                    assert costs[1] <= 2 * costs[0]

    def test_where_the_ridge_acts(self, at_each_level):
        """Exact vectors are too long. Norm and cost are from `least_cost` in 520 bits (50 s)."""
        n, s = 160, 96
        norm, least = 3.788160020315074e16, 1.5536684519108597e-15
        for _ in at_each_level():
            values = kernels.near_exact_pairs(np.arange(s), n, s, circle(n))
            assert 0.7 * norm <= np.linalg.norm(values[:, 0]) <= 1.4 * norm
            left = np.linalg.norm(values[:s, 0])
            cost = np.hypot(left, 2.0**-105 * np.linalg.norm(values[:, 0]))
            assert (1 - 1e-9) * least <= cost <= 3 * least

    def test_nothing_to_do(self):
        """There are no roots, or no degrees of freedom."""
        for turns, c in ((np.empty(0, np.int64), 3), (np.arange(3), 0)):
            values = wide(kernels.near_exact_pairs(turns, 7, c, circle(7)))
            with mpmath.workprec(BITS):
                assert max(abs(v - mpmath.mpf(1) / 7) for v in values) <= mpmath.ldexp(1, -108)
        alone = wide(kernels.locator_pairs(np.empty(0, np.int64), 7, circle(7)))
        with mpmath.workprec(BITS):
            assert max(abs(v - mpmath.mpf(1) / 7) for v in alone) <= mpmath.ldexp(1, -108)

    @pytest.mark.parametrize(("n", "s"), [(35, 31), (41, 32), (43, 33), (75, 70)])
    def test_locator(self, n, s, at_each_level):
        for turns in patterns(n, s)[::2]:
            exact = exact_vector(turns, n)
            for _ in at_each_level():
                vector = wide(kernels.locator_pairs(turns, n, circle(n)))
                with mpmath.workprec(BITS):
                    for found, wanted in zip(vector, exact, strict=True):
                        error = mpmath.ldexp(abs(found - wanted), 106)
                        assert error <= 8 * (s + 4) * abs(wanted)

    def test_locator_beyond_a_doubles_range_on_the_way(self, at_each_level):
        """All but one: 1/n times n - 1 factors, whose product is n; the first ones are tiny."""
        n = 2600
        distance = np.arange(1, n // 2)
        turns = np.r_[np.stack([distance, n - distance], axis=1).ravel(), n // 2]
        steps = np.sin(np.pi / n * turns)
        assert np.log10(2 * steps).cumsum().min() < -330
        table = rounded_circle(n)
        for _ in at_each_level():
            vector = kernels.locator_pairs(turns, n, table)
            assert abs(vector[0, 0] - 1) <= 1e-11
            np.testing.assert_array_equal(vector[1:], 0)

    def test_locator_beyond_a_doubles_range(self, at_each_level):
        n = 2600
        turns = np.arange(n // 2)
        for _ in at_each_level():
            vector = kernels.locator_pairs(turns, n, rounded_circle(n))
            assert not np.isfinite(vector[3 * n // 4].sum())
            np.testing.assert_array_equal(vector[turns], 0)


@functools.cache
def rounded_circle(n):
    """Return the high parts alone, for tests that do not need all digits."""
    found = np.zeros((2 * n, 2, 2))
    angle = np.pi / n * np.arange(2 * n)
    found[:, 0, 0], found[:, 1, 0] = np.cos(angle), np.sin(angle)
    found[0, 1, 0] = 0
    return found


@pytest.mark.any_backend
def test_tables_of_the_bench():
    pytest.importorskip("rich")
    path = Path(__file__).parent.parent / "benches" / "pairs.py"
    spec = importlib.util.spec_from_file_location("pairs_bench", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)

    def cells(table):
        return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[4:]]

    ((f, p, size, *times),) = cells(bench.combinations([(3, 1024)], 0, 0))
    assert (f, p, float(size)) == ("3", "1024", 0.0234)
    assert all(float(each) > 0 for each in times)
    rows = cells(bench.vectors([(24, 12)], 0, 0))
    assert [row[0] for row in rows] == list(bench.patterns(24, 12, np.random.default_rng(0)))
    for _, n, s, double, _, twice, *_ in rows:
        assert (n, s) == ("24", "12")
        assert 1e-17 < float(double) < 1e-5
        assert 1e-33 < float(twice) < 1e-9 * float(double)
