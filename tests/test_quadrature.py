"""Sums of polynomials' values on grids of very many points."""

import math
import warnings

import mpmath
import numpy as np
import pytest
from strength import much

from fastgc import LagrangeCode, interpolation
from fastgc.codes import lagrange
from fastgc.numerics.quadrature import Quadrature

SIZES = [(1, 2), (3, 5), (5, 11), (40, 100), (60, 401), (150, 300)]


def places_of(kind, K, M, seed=0):
    count, rng = 2 * K - 1, np.random.default_rng(seed)
    return rng.permutation(M)[:count] if kind == "random" else (M - count) // 3 + np.arange(count)


def terms(K, M, roots, places, of):
    """``l_k(alpha_j)`` over j, for each k in `of`, to 60 digits."""
    pi = mpmath.pi
    if roots:
        alpha = [mpmath.expjpi(mpmath.mpf(2 * j) / K) for j in range(K)]
        beta = [mpmath.expjpi(mpmath.mpf(2 * j + 1) / M) for j in range(M)]
    else:
        alpha = [-mpmath.cos(pi * (2 * j + 1) / (2 * K)) for j in range(K)]
        beta = [-mpmath.cos(pi * (2 * j + 1) / (2 * M)) for j in range(M)]
    nodes = [beta[place] for place in places.tolist()]
    for k in of:
        others = nodes[:k] + nodes[k + 1 :]
        below = mpmath.fprod(nodes[k] - node for node in others)
        yield [mpmath.fprod(a - node for node in others) / below for a in alpha]


@pytest.mark.parametrize("roots", [False, True])
@pytest.mark.parametrize("kind", ["random", "neighbours"])
def test_weights_and_their_squares(roots, kind):
    """Each coefficient is as precise as the sum of its terms, also where it is 1e+100."""
    for K, M in much(SIZES, SIZES[:-1]):
        places = places_of(kind, K, M)
        grid = Quadrature(K, M, roots)
        found, squares = grid.weights(places), grid.squares(places)
        of = range(0, places.size, max(1, places.size // 4))
        with mpmath.workdps(150):
            for k, each in zip(of, terms(K, M, roots, places, of), strict=True):
                size = mpmath.sqrt(mpmath.fsum(abs(term) ** 2 for term in each))
                error = abs(mpmath.mpmathify(found[k].item()) - mpmath.fsum(each)) / size
                assert error < 1e-14, (K, M, k)
                assert squares[k] < 4 * size**2, (K, M, k)
                assert squares[k] > 0.03 * size**2 or places.size == M, (K, M, k)


@pytest.mark.parametrize("roots", [False, True])
def test_sums_in_boxes_are_those_over_all_places(roots):
    """Kernels of many levels of boxes, around the circle, and next to the ends."""
    for M in (96, 391, 1537):
        grid, rng = Quadrature(2, M, roots), np.random.default_rng(M)
        u = rng.standard_normal(M) * 10.0 ** rng.integers(-200, 100, M)
        j, k = np.arange(M), np.arange(M)[:, None]
        kernel = grid._inverse(j, k)
        for power in (1, 2):
            expected = kernel**power @ (u**power / 10.0**100)
            scale = np.abs(kernel**power) @ np.abs(u**power / 10.0**100)
            found = grid._sums(u**power / 10.0**100, power)
            bound = {1: 2e-14, 2: 1e-13}[power] * scale
            assert (np.abs(found - expected) < bound).all(), (M, power)


@pytest.mark.parametrize("roots", [False, True])
def test_values_norms_and_bases_are_those_of_any_points(roots):
    K, M = 21, 60
    rng = np.random.default_rng(1)
    if roots:
        alpha, beta = interpolation.roots_of_unity(K), interpolation.roots_of_unity(M, 0.5)
    else:
        alpha, beta = interpolation.chebyshev(K), interpolation.chebyshev(M)
    grid, basis = Quadrature(K, M, roots), interpolation.basis(alpha, beta)
    given = rng.standard_normal((K, 2))
    for values in (given, given + 1j * rng.standard_normal((K, 2))):
        np.testing.assert_allclose(grid.values(values), basis @ values, atol=1e-12)
    np.testing.assert_allclose(grid.norms, (np.abs(basis) ** 2).sum(axis=1), rtol=1e-12)
    places = places_of("random", K, M)
    others = np.setdiff1d(np.arange(M), places)
    expected = interpolation.basis(beta[places], beta[others])
    np.testing.assert_allclose(
        grid.basis(places, others), expected, atol=1e-12 * np.abs(expected).max()
    )


@pytest.mark.parametrize("roots", [False, True])
def test_sums_of_many_places_at_the_ends(roots):
    M = 30_011
    grid, rng = Quadrature(2, M, roots), np.random.default_rng(0)
    for charged in (slice(None), slice(0, 40), slice(M - 40, M)):
        u = np.zeros(M)
        u[charged] = rng.standard_normal(u[charged].size)
        found = grid._sums(u, 1)
        for k in (0, 1, 120, 2500, M // 2, M - 2500, M - 120, M - 2, M - 1):
            terms = u * grid._inverse(np.arange(M), np.array(k))
            assert abs(found[k] - math.fsum(terms)) < 4e-15 * np.linalg.norm(terms), k


def test_chosen_places_are_spread_on_both_sides_of_a_gap():
    grid = Quadrature(75, 400, False)
    places = np.delete(np.arange(400), np.arange(160, 240))
    chosen = np.sort(places[grid.spread(places, 149)])
    assert np.unique(chosen).size == 149
    assert np.count_nonzero(chosen < 160) in (74, 75)
    for at in (50, 100, 300, 350):
        assert abs(np.count_nonzero(chosen < at) - 149 * at / 400) < 1
    shuffled = np.random.default_rng(0).permutation(places)
    assert np.sort(shuffled[grid.spread(shuffled, 149)]).tolist() == chosen.tolist()
    assert grid.spread(places, places.size).tolist() == list(range(places.size))
    assert Quadrature(1, 2, False).spread(np.array([0]), 1).tolist() == [0]


@pytest.mark.parametrize("options", [{}, {"nodes": "roots"}, {"messages": 2}])
def test_codes_of_many_messages_are_those_of_few(options, monkeypatch):
    """Coded data, vectors, trust and parity are the same on the grid, up to rounding."""
    rng = np.random.default_rng(2)
    X, y, theta = rng.standard_normal((50, 3)), rng.standard_normal(50), rng.standard_normal(3)
    exact = X.T @ (X @ theta - y)
    few = LagrangeCode(24, load=4, **options)
    monkeypatch.setattr(lagrange, "_MANY", 1)
    code = LagrangeCode(24, load=4, **options)
    count, f = code.scheme.messages.count, code.threshold
    shards, same = code.encode_data(X, y), few.encode_data(X, y)
    for mine, other in zip(shards, same, strict=True):
        np.testing.assert_allclose(mine[0], other[0], atol=1e-12)
    messages = [
        code.encode(i, [code.compute(shards[j], theta) for j in code.partitions(i, t)], index=t)
        for i in range(24)
        for t in range(code.scheme.messages.per_worker)
    ]
    came = rng.permutation(count)
    np.testing.assert_allclose(
        code.decoding_vector(came[:f]), few.decoding_vector(came[:f]), rtol=1e-9
    )
    for survivors in (came[:f], came[: f + 3], came):
        found = code.decode(survivors, np.array(messages)[survivors])
        error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
        told = code.trust(survivors)
        assert error < max(100 * told.relative_error, 1e-13)
        assert told.growth < 100 * few.trust(survivors).growth
    parity = code.scheme.parity(came)
    assert parity.first.size > 0
    products = parity.coefficient[:, None] * np.array(messages)[came][parity.position]
    left = np.add.reduceat(products, parity.first)
    assert (np.abs(left) < 1e-12 * np.add.reduceat(np.abs(products), parity.first)).all()
    np.testing.assert_allclose(
        code.scheme.precision.row_norms, few.scheme.precision.row_norms, rtol=1e-12
    )
    np.testing.assert_allclose(
        code.scheme.precision.row_sums, few.scheme.precision.row_sums, rtol=1e-12
    )
    with pytest.raises(ValueError, match="a second time"):
        code.decoding_vector([0, 0, *came[: f - 2]])


def test_many_workers():
    """No array of n^2 numbers; coefficients satisfy what defines them, on random polynomials."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = LagrangeCode(20_011, load=6)
    rng = np.random.default_rng(0)
    survivors = rng.permutation(code.n)[: code.n - 5]
    vector = code.decoding_vector(survivors)
    assert np.count_nonzero(vector) == code.threshold
    angle = np.arccos(code.beta[survivors])
    nodes = np.arccos(code.alpha)
    for degree in (0, 1, 2, 17, 3335, code.threshold - 1):
        expected = np.cos(degree * nodes).sum()
        assert abs(vector @ np.cos(degree * angle) - expected) < 1e-8
    assert code.trust(survivors).relative_error < 1e-13
