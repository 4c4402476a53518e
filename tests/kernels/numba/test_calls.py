"""All public functions of fastgc.kernels.numba work in a user's compiled code."""

import copy

import numpy as np
import oracles
import programs
import pytest
from kernel_table import nodes_of

import fastgc
from fastgc import interpolation, kernels, vandermonde
from fastgc.kernels import Status

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402

pytestmark = [pytest.mark.numba]

FUNCTIONS = [name for name in nb.__all__ if callable(getattr(nb, name))]


def _code():
    return fastgc.ReedSolomon(7, stragglers=2).scheme.tables


def _prepared(nodes):
    scaled, weights = np.empty((2, nodes.size), nodes.dtype)
    exponent = np.empty(nodes.size, np.int64)
    shift = kernels.lagrange_weights(nodes, scaled, weights, exponent)
    return (scaled, weights, exponent), 2.0**shift


NODES, POINTS = interpolation.chebyshev(6), np.array([0.3, -0.2, 0.95])
SURVIVORS = np.array([6, 0, 3, 2, 5])


CASES = {
    "lagrange_functional": lambda rng: (NODES, POINTS, np.array([4, 0, 2]), np.zeros(3)),
    "combine_rows": lambda rng: (
        *(rng.random(5) + 1j, rng.random((7, 8)), np.empty(8), SURVIVORS),
    ),
    "decoding_vector": lambda rng: (_code(), nb.SPREAD, SURVIVORS, np.empty(5, complex)),
    "decoding_vectors": lambda rng: (
        *(_code(), np.ones((2, 7), bool), nb.SPREAD, np.empty((2, 7), complex), np.zeros(2, int)),
    ),
    "lagrange_basis": lambda rng: (*_prepared(NODES)[0], POINTS, np.empty((3, 6))),
    "lagrange_evaluate": lambda rng: (
        *(*_prepared(NODES)[0], np.exp(NODES), POINTS, _prepared(NODES)[1], np.empty(3)),
    ),
    "lagrange_products": lambda rng: (NODES, POINTS, np.empty(3), *np.empty((2, 3), np.int64)),
    "lagrange_weights": lambda rng: (NODES, *np.empty((2, 6)), np.empty(6, np.int64)),
    "leja_order": lambda rng: (NODES, np.empty(6, np.int64)),
    "solve_vandermonde": lambda rng: (NODES, rng.random((6, 2)), None, True, np.empty((6, 2))),
}


def arguments_of(name):
    return CASES[name](np.random.default_rng(0))


def test_all_that_can_be_called_is_tried():
    assert set(CASES) == set(FUNCTIONS)


def from_compiled_code(function):
    """Return the function as called from a user's compiled code."""

    @numba.njit
    def call(*arguments):
        return function(*arguments)

    return call


def reference(name):
    """Return the oracle; if there is none, Numba's own function, called from Python."""
    apart = {"decoding_vector", "decoding_vectors"}
    families = () if name in apart else oracles.FAMILIES
    found = [getattr(family, name) for family in families if hasattr(family, name)]
    return found[0] if found else getattr(nb, name)


def arrays(arguments):
    for each in arguments:
        if isinstance(each, tuple):
            yield from arrays(each)
        elif isinstance(each, np.ndarray):
            yield each


@pytest.mark.few(5)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_called_from_compiled_code(name):
    given = arguments_of(name)
    expected = copy.deepcopy(given)
    returned = from_compiled_code(getattr(nb, name))(*given)
    wanted = reference(name)(*expected)
    assert returned == pytest.approx(wanted, rel=1e-13)
    for found, each in zip(arrays(given), arrays(expected), strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-12, atol=1e-13)


@pytest.mark.long  # compiling takes long
@pytest.mark.parametrize("complex_", [False, True])
def test_polynomials_in_a_compiled_loop(complex_):
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
    numbers, square = np.arange(3), np.ones((3, 2))
    exponent, far = np.zeros(3, int), np.array([0, 1, 3])
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
        ("shape", nb.solve_vandermonde, three, three, None, False, two),
        ("order must be", nb.solve_vandermonde, three, three, far, False, three.copy()),
        ("order must be", nb.solve_vandermonde, three, three, far - 1, False, three.copy()),
        ("order must be", nb.solve_vandermonde, three, three, far[:2], False, three.copy()),
    ]


@pytest.mark.few(9)
@pytest.mark.parametrize("at", range(len(wrong_lengths())))
def test_lengths_are_checked(at):
    says, kernel, *given = wrong_lengths()[at]
    with pytest.raises(ValueError, match=says):
        kernel(*given)


USERS = """
import sys
import numba
import numpy as np
from fastgc import interpolation
from fastgc.kernels import numba as nb


@numba.njit(cache=True, fastmath=True)
def run(nodes, points, chosen, b):
    weights, x = np.empty(chosen.size), np.empty(b.size)
    status = nb.lagrange_functional(nodes, points, chosen, weights)
    solved = nb.solve_vandermonde(nodes, b, None, True, x)
    order = np.empty(nodes.size, np.int64)
    nb.leja_order(nodes, order)
    return status, solved, weights, x, order


nodes, points = interpolation.chebyshev(6), np.array([0.1, -0.4])
status, solved, weights, x, order = run(nodes, points, np.array([5, 0, 2]), np.ones(6))
assert status == 0 and solved
np.testing.assert_allclose(weights, interpolation.functional(nodes[[5, 0, 2]], points))
print(sum(run.stats.cache_hits.values()), sum(run.stats.cache_misses.values()))
"""


@pytest.mark.long
def test_what_users_compile_is_kept_on_disk(tmp_path):
    """A second process compiles nothing."""
    (tmp_path / "users.py").write_text(USERS)
    for kept in ("0 1", "1 0"):
        done = programs.run(programs.python("-W", "error", tmp_path / "users.py"), seconds=600)
        assert done.stdout.strip() == kept


def test_statuses_are_those_of_the_facade():
    def found(*chosen):
        return nb.lagrange_functional(np.arange(3.0), np.ones(1), np.array(chosen), np.empty(3))

    assert found(0, 5, 0) == Status.OUT_OF_RANGE
    assert found(0, 1, 0) == Status.DUPLICATE
