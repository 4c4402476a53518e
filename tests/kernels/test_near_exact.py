"""Polynomials that nearly vanish are about as good as the best."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc.kernels import near_exact
from fastgc.kernels.cyclic import circle

UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def cost(values, turns, unit):
    """Return the root of the cost: squares at the given roots plus (2 u)^2 times those at all."""
    wide = values.astype(np.clongdouble)
    at, everywhere = np.sum(np.abs(wide[turns]) ** 2), np.sum(np.abs(wide) ** 2)
    return float(np.sqrt(at + (2 * unit) ** 2 * everywhere))


def coefficients(values):
    return np.fft.fft(values, norm="forward")


def check_form(values, n, c):
    """Require degree c and a constant coefficient of 1/n."""
    assert values.shape == (n,)
    assert values.dtype == np.complex128
    x = coefficients(values)
    size = np.linalg.norm(x)
    assert abs(x[0] - 1 / n) <= 1e-14 * size
    np.testing.assert_allclose(x[c + 1 :], 0, atol=1e-14 * size)


def patterns(n, s, rng):
    """Yield arcs, unions of two, progressions, nearly uniform sets with a gap, any sets."""
    spread = np.arange(s)
    found = [
        spread,
        np.r_[spread[: s // 2], n // 2 + spread[: s - s // 2]],
        spread * math.ceil(n / (2 * s)) % n,
        spread * 3 * n // (4 * s),
        spread * (n - 1) // s,
        rng.permutation(n)[:s],
    ]
    return [np.sort(each) for each in found if np.unique(each).size == s]


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_nothing_to_do(unit):
    """There are no roots, or no degrees of freedom."""
    empty = np.empty(0, np.int64)
    for turns, n, c in ((empty, 6, 3), (empty, 1, 0), (np.array([3, 1]), 6, 0)):
        np.testing.assert_allclose(
            near_exact.nearly_vanishing(turns, n, c, unit), np.full(n, 1 / n)
        )


def by_least_squares(turns, n, c, unit):
    """The least cost, by a QR factorisation of all equations at once."""
    powers = circle(n)[2 * np.multiply.outer(turns, np.arange(1, c + 1)) % (2 * n)]
    system = np.concatenate([powers, 2 * unit * math.sqrt(n) * np.eye(c)])
    q, r = np.linalg.qr(system)
    x = np.zeros(n, np.complex128)
    x[0] = 1 / n
    x[1 : c + 1] = np.linalg.solve(r, q[: turns.size].conj().T @ np.full(turns.size, -1 / n))
    return np.fft.ifft(x, norm="forward")


@settings(max_examples=60)
@given(st.integers(3, 300), st.sampled_from(sorted(UNITS)), st.data())
def test_elimination(n, dtype, data):
    """Elimination is nearly as good as ridge regression, for any numbers of roots and degrees."""
    s = data.draw(st.integers(1, min(n, 80)))
    c = data.draw(st.one_of(st.just(min(s, n - 1)), st.integers(1, min(n - 1, 80))))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    turns = rng.permutation(data.draw(st.sampled_from(patterns(n, s, rng))))
    kept = turns.copy()
    values = near_exact.nearly_vanishing(turns, n, c, UNITS[dtype])
    np.testing.assert_array_equal(turns, kept)
    check_form(values, n, c)
    least = cost(by_least_squares(turns, n, c, UNITS[dtype]), turns, UNITS[dtype])
    assert cost(values, turns, UNITS[dtype]) <= 10 * least


@pytest.mark.parametrize(
    ("n", "s", "pattern", "within"),
    [
        (256, 32, 0, 1.5),
        (1000, 100, 0, 1.5),
        (1000, 100, 1, 2),
        (1000, 100, 2, 2.5),
        (1000, 100, 3, 5),
        (1000, 100, 4, 2),
        (1000, 100, 5, 2),
        (1009, 200, 0, 2),
        (1009, 200, 5, 4),
        (512, 256, 5, 2),
    ],
)
def test_elimination_finds_what_matters(n, s, pattern, within):
    """For neighbours on the circle, few degrees of freedom matter; for random roots, all."""
    turns = patterns(n, s, np.random.default_rng(n))[pattern]
    unit = UNITS["float64"]
    values = near_exact.nearly_vanishing(turns, n, s, unit)
    least = cost(by_least_squares(turns, n, s, unit), turns, unit)
    assert cost(values, turns, unit) <= within * least


def test_elimination_of_spare_degrees_is_short():
    """If the roots' equations hold, hardly any solution is shorter."""
    n, s, c = 97, 9, 23
    turns = np.random.default_rng(0).permutation(n)[:s]
    values = near_exact.nearly_vanishing(turns, n, c, UNITS["float64"])
    assert np.abs(values[turns]).max() < 1e-15
    matrix = np.exp(2j * np.pi / n * np.multiply.outer(turns, np.arange(1, c + 1)))
    x = np.linalg.pinv(matrix) @ np.full(s, -1 / n)
    assert np.linalg.norm(coefficients(values)[1 : c + 1]) < 1.001 * np.linalg.norm(x)


@pytest.mark.parametrize(("n", "s", "c"), [(512, 256, 256), (509, 240, 250), (700, 250, 260)])
def test_exchanges_are_as_good_as_any_polynomial(n, s, c):
    """Where roots are random, few zeros of the product are moved; QR itself loses more digits."""
    unit, found = UNITS["float64"], []
    for seed in range(5):
        turns = np.random.default_rng(seed).permutation(n)[:s]
        values = near_exact.nearly_vanishing(turns, n, c, unit)
        check_form(values, n, c)
        least = cost(by_least_squares(turns, n, c, unit), turns, unit)
        found.append(cost(values, turns, unit) / least)
    assert max(found) < 2
    assert np.median(found) < 0.9


@pytest.mark.parametrize(("n", "c"), [(512, 256), (509, 240), (600, 200)])
def test_exchanges_keep_all_digits(n, c):
    """A product of distances is as precise as its sums of logarithms: they have two parts."""
    turns = np.arange(c) * n // c  # evenly spread: nothing is exchanged
    values = near_exact.nearly_vanishing(turns, n, c, UNITS["float64"])
    most = (8 if np.finfo(np.longdouble).nmant > 52 else 64) * UNITS["float64"]
    with mpmath.workdps(40):
        for i in range(0, n, 37):
            factors = [1 - mpmath.expjpi(mpmath.mpf(2) * (i - int(j)) / n) for j in turns]
            assert abs(mpmath.fprod(factors) / n - values[i]) <= most * abs(values[i])


def test_nodes_are_precise():
    """Differences of tangents are precise even for the closest half angles, pi / (2 n c)."""
    n, c = 1009, 200
    x, y, *_ = near_exact._cauchy(n, c)
    with mpmath.workdps(50):
        for i in range(0, n, 53):
            k = int(np.argmin([abs(4 * c * i - 4 * n * k - 2) for k in range(c)]))
            phi, psi = (mpmath.pi * z / (4 * n * c) for z in (4 * c * i - 1, 4 * n * k + 1))
            apart = x[0, i] - y[0, k] + (x[1, i] - y[1, k])
            assert abs(apart / (mpmath.tan(phi) - mpmath.tan(psi)) - 1) < 4 * UNITS["float64"]


@pytest.mark.parametrize(("m", "step"), [(4, 2), (12, 3), (12, 12), (30, 6), (35, 5), (64, 2)])
def test_shortest_vector_by_all_shifts(m, step):
    """They are the pseudoinverse's, for any column, full or not."""
    rng = np.random.default_rng(m)
    for weight in (m, m // 2 + 1):
        column = np.zeros(m, dtype=complex)
        column[:weight] = rng.standard_normal((weight, 2)) @ [1, 1j]
        columns = np.stack([np.roll(column, step * j) for j in range(m // step)], axis=1)
        shifts = near_exact.Circulant.by_shifts(column, step)
        most = m - m // step
        for count in (0, 1, most // 2, most) if weight == m else (most // 3,):
            lost = rng.permutation(m)[:count]
            came = np.setdiff1d(np.arange(m), lost)
            wanted = np.ones(m // step) @ np.linalg.pinv(columns[came])
            found = near_exact.shortest(shifts, lost)[0]
            size = np.linalg.norm(wanted)
            np.testing.assert_allclose(found[came], wanted, rtol=0, atol=1e-8 * size)
            assert np.abs(found[lost]).max(initial=0) < 1e-11 * size
            np.testing.assert_allclose(found @ columns, 1, atol=1e-10 * size)


@pytest.mark.parametrize(("m", "columns", "rank"), [(6, 2, 2), (9, 5, 5), (12, 7, 3), (8, 8, 4)])
def test_shortest_vector_by_any_columns(m, columns, rank):
    """They are the pseudoinverse's, even if columns depend on each other."""
    rng = np.random.default_rng(m)

    def normal(*shape):
        return rng.standard_normal((*shape, 2)) @ [1, 1j]

    # One row is constant, so that some vector has product 1 with all columns.
    matrix = normal(m, rank) @ np.concatenate([np.ones((1, columns)), normal(rank - 1, columns)])
    projector = near_exact.Projector.of(matrix)
    for count in range(m - rank + 1):
        lost = rng.permutation(m)[:count]
        came = np.setdiff1d(np.arange(m), lost)
        wanted = np.ones(columns) @ np.linalg.pinv(matrix[came], rcond=1e-12)
        found = near_exact.shortest(projector, lost)[0]
        size = np.linalg.norm(wanted)
        np.testing.assert_allclose(found[came], wanted, rtol=0, atol=1e-8 * size)
        assert np.abs(found[lost]).max(initial=0) < 1e-10 * size
        np.testing.assert_allclose(found @ matrix, 1, atol=1e-10 * size)


def test_shortest_vector_where_there_is_none():
    column = np.array([1, 0, 0, 0], dtype=complex)
    assert np.isnan(
        near_exact.shortest(near_exact.Circulant.by_shifts(column, 2), np.array([2]))[0]
    ).all()
