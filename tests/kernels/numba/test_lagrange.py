"""Lagrange's bases in a user's compiled code."""

import numpy as np
import pytest
from oracles.table import nodes_of

from fastgc import interpolation, vandermonde
from fastgc.kernels import Status

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402

pytestmark = pytest.mark.numba


@pytest.mark.long  # compiling takes long
@pytest.mark.parametrize("complex_", [False, True])
def test_lagrange_and_systems_in_a_compiled_loop(complex_):
    """Systems and interpolation of every form agree with the public functions."""
    solve, prepare, basis = nb.solve_vandermonde, nb.lagrange_weights, nb.lagrange_basis
    evaluate = nb.lagrange_evaluate

    @numba.njit
    def run(nodes, b, columns, points, values):
        order = np.arange(nodes.size)[::-1].copy()
        x, xs = np.empty_like(b), np.empty_like(columns)
        solved = solve(nodes, b, None, False, x)
        solved &= solve(nodes, columns, order, True, xs)
        scaled, weights = np.empty_like(nodes), np.empty_like(nodes)
        exponent = np.empty(nodes.size, np.int64)
        shift = prepare(nodes, scaled, weights, exponent)
        total, found = np.empty_like(nodes), np.empty_like(points)
        if shift is None:
            return None
        scale = 2.0**shift
        basis(scaled, weights, exponent, points * scale, total)
        evaluated = evaluate(scaled, weights, exponent, values, points, scale, found)
        together = np.empty_like(nodes)
        prepare(nodes, scaled, together, None)
        twice = nodes.copy()
        twice[1] = twice[0]
        refused = prepare(twice, scaled, weights, None) is None
        return solved and evaluated and refused, x, xs, total, found, together

    rng = np.random.default_rng(1)
    nodes = nodes_of(rng, 9, complex_)
    b, columns = rng.random(9).astype(nodes.dtype), rng.random((9, 2)).astype(nodes.dtype)
    points = rng.uniform(-1, 1, 4).astype(nodes.dtype)
    for fixed in (False, True):  # read-only arrays are copied
        for each in (nodes, b, columns):
            each.flags.writeable = not fixed
        done, x, xs, total, found, together = run(nodes, b, columns, points, np.exp(nodes))
        assert done
        np.testing.assert_allclose(x, vandermonde.solve(nodes, b), rtol=1e-9)
        np.testing.assert_allclose(xs, vandermonde.solve(nodes, columns, True), rtol=1e-10)
        np.testing.assert_allclose(total, interpolation.functional(nodes, points), rtol=1e-11)
        wanted = interpolation.Interpolator(nodes)(np.exp(nodes), points)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
        np.testing.assert_allclose(together, interpolation.weights(nodes), rtol=1e-13)
    nodes = np.array([1e-200, 2e-200, 1.0]).astype(nodes.dtype)
    refused = run(nodes, nodes, np.ones((3, 1), nodes.dtype), points, nodes)
    assert not refused[0]  # the flag reports that something underflows


def wrong_lengths():
    one, two, three = np.ones(1), np.ones(2), np.arange(3.0)
    numbers, square, exponent = np.arange(3), np.ones((3, 2)), np.zeros(3, int)
    return [
        ("out must", nb.lagrange_basis, three, three, exponent, two, square),
        ("one length", nb.lagrange_basis, three, three, exponent, two, np.ones((2, 2))),
        ("one length", nb.lagrange_basis, three, two, exponent, two, three),
        ("one length", nb.lagrange_weights, three, two, three, None),
        ("one length", nb.lagrange_weights, three, three, three, exponent[:2]),
        ("a node at least", nb.lagrange_weights, three[:0], three[:0], three[:0], None),
        ("as long as points", nb.lagrange_evaluate, *[three] * 2, exponent, three, two, 1.0, one),
        ("one length", nb.lagrange_evaluate, *[three] * 2, exponent, two, two, 1.0, two),
        ("as long as chosen", nb.lagrange_functional, three, two, numbers, two),
        ("as long as chosen", nb.lagrange_functional, three, two, numbers[:0], two[:0]),
    ]


@pytest.mark.few(9)
@pytest.mark.parametrize("at", range(len(wrong_lengths())))
def test_lagrange_checks_lengths(at):
    says, kernel, *given = wrong_lengths()[at]
    with pytest.raises(ValueError, match=says):
        kernel(*given)


def test_lagrange_functional_tells_what_is_wrong():
    def found(*chosen):
        return nb.lagrange_functional(np.arange(3.0), np.ones(1), np.array(chosen), np.empty(3))

    assert found(0, 5, 0) == Status.OUT_OF_RANGE
    assert found(0, 1, 0) == Status.DUPLICATE
