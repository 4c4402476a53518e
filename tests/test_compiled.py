"""All public functions of fastgc.kernels.numba work in a user's compiled code."""

import copy
import inspect
import subprocess
import sys

import numpy as np
import pytest
from kernel_table import KERNELS, nodes_of

import fastgc
from fastgc import interpolation, kernels, vandermonde
from fastgc.kernels import Status

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402

pytestmark = [pytest.mark.any_backend, pytest.mark.numba]

FILES = ("combine", "cover", "decoding", "jitted", "lagrange", "vandermonde")
FUNCTIONS = [name for name in nb.__all__ if callable(getattr(nb, name))]


def _code():
    return fastgc.ReedSolomon(7, stragglers=2).scheme.tables


def _prepared(nodes):
    scaled, weights = np.empty((2, nodes.size), nodes.dtype)
    exponent = np.empty(nodes.size, np.int64)
    shift = kernels.numpy.lagrange_weights(nodes, scaled, weights, exponent)
    return (scaled, weights, exponent), 2.0**shift


NODES, POINTS = interpolation.chebyshev(6), np.array([0.3, -0.2, 0.95])
SURVIVORS = np.array([6, 0, 3, 2, 5])
PLANS = {
    "bind_cells": kernels.unchecked.CellsPlan(np.array([0, 0, 1, 1]), np.ones(2, int), 2, 0.0),
    # Intervals from 0 to 1 and from 1 to 2.
    "bind_tiling": kernels.unchecked.TilingPlan(
        2,
        np.array([0, 1, 3, 4]),
        np.array([0, 1, 1, 2]),
        np.array([1, 0, 2, 1]),
        np.array([0, 0, 1, 1]),
    ),
    "bind_edges": kernels.unchecked.EdgesPlan(np.array([[0, 1], [1, 2], [2, 0]]), np.ones(3), 3),
}


def _of_plan(name, *survivors):
    return lambda rng: (PLANS[name], np.array([*survivors, 9]), np.zeros(len(survivors) + 1))


# Arguments of functions that `of_table` finds none for.
CASES = {
    "accumulate": lambda rng: (0.5 + 1j, rng.random(6), rng.random(6)),
    "bind_cells": _of_plan("bind_cells", 1, 2),
    "bind_edges": _of_plan("bind_edges", 2, 0, 1),
    "bind_functional": lambda rng: (NODES, POINTS, np.array([4, 0, 2, 9]), np.zeros(4)),
    "bind_tiling": _of_plan("bind_tiling", 1, 0),
    "combine_rows": lambda rng: (
        *(rng.random(5) + 1j, rng.random((7, 8)), np.empty(8), SURVIVORS),
    ),
    "decode": lambda rng: (
        *(
            fastgc.codes.jit(fastgc.ReedSolomon(7, stragglers=2)),
            SURVIVORS,
            rng.random((7, 8)),
            np.empty(8),
        ),
    ),
    "decoding_vector": lambda rng: (_code(), nb.SPREAD, SURVIVORS, np.empty(5, complex)),
    "encode": lambda rng: (
        *(
            fastgc.codes.jit(fastgc.ReedSolomon(7, stragglers=2)),
            4,
            rng.random((7, 8)),
            np.empty(8),
        ),
    ),
    "lagrange_basis": lambda rng: (*_prepared(NODES)[0], POINTS, np.empty((3, 6))),
    "lagrange_evaluate": lambda rng: (
        *(*_prepared(NODES)[0], np.exp(NODES), POINTS, _prepared(NODES)[1], np.empty(3)),
    ),
    "lagrange_products": lambda rng: (NODES, POINTS, np.empty(3), *np.empty((2, 3), np.int64)),
    "lagrange_weights": lambda rng: (NODES, *np.empty((2, 6)), np.empty(6, np.int64)),
    "leja_order": lambda rng: (NODES, np.empty(6, np.int64)),
    "solve_vandermonde": lambda rng: (NODES, rng.random((6, 2)), None, True, np.empty((6, 2))),
    "vandermonde_column": lambda rng: (NODES, rng.random(6), True),
}


class Called(Exception):
    """A kernel was called with these arguments."""


def of_table(name, rng):
    """Return the arguments that a row of the table of kernels calls this kernel with."""

    def note(*given, **named):
        raise Called(inspect.signature(getattr(kernels.numpy, name)).bind(*given, **named).args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, name, note, raising=False)
        patch.setattr(kernels.unchecked, name, note)
        for kernel in KERNELS:
            dtype = np.float64 if np.float64 in kernel.dtypes else kernel.dtypes[0]
            try:
                kernel.run(kernel.make(rng, 9, 2, dtype))
            except Called as call:
                return call.args[0]
    raise ValueError(f"no row of kernel_table.py calls {name}, and CASES lacks it, too")


def arguments_of(name):
    rng = np.random.default_rng(0)
    return CASES[name](rng) if name in CASES else of_table(name, rng)


def test_all_that_can_be_called_is_public_and_tried():
    """Functions left out take Python objects: plans of cyclic codes, or rows."""
    assert set(CASES) <= set(FUNCTIONS)
    assert all(map(arguments_of, FUNCTIONS))
    for file in FILES:
        module = sys.modules[f"fastgc.kernels.numba.{file}"]
        for name in set(module.__all__) - set(nb.__all__):
            taken = inspect.signature(getattr(kernels.numpy, name)).parameters.values()
            assert {each.annotation for each in taken} & {"Rows", "CyclicPlan"}, name


def from_compiled_code(function):
    """Return the function as called from a user's compiled code."""

    @numba.njit
    def call(*arguments):
        return function(*arguments)

    @numba.njit
    def call_inlined(code, which, rows, out):  # Numba inlines no call with *arguments
        return function(code, which, rows, out)

    @numba.njit
    def call_bound(f, *arguments):
        return function(*arguments)(f)

    if function in (nb.encode, nb.decode):
        return call_inlined
    if not function.__name__.startswith("bind_"):
        return call
    return lambda *arguments: call_bound(arguments[1 + (len(arguments) == 4)].size - 1, *arguments)


def reference(name):
    """Return the same function of NumPy; if there is none, Numba's own, called from Python."""
    function = getattr(kernels.numpy, name, None) or getattr(nb, name)
    if name.startswith("bind_"):
        return lambda *given: function(*given)(given[1 + (len(given) == 4)].size - 1)
    return function


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
        x, xs, bound = np.empty_like(b), np.empty_like(columns), np.zeros(nodes.size)
        solved = solve(nodes, b, None, False, x, bound, True)
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
        return solved and evaluated and refused, x, xs, bound, total, found, together

    rng = np.random.default_rng(1)
    nodes = nodes_of(rng, 9, complex_)
    b, columns = rng.random(9).astype(nodes.dtype), rng.random((9, 2)).astype(nodes.dtype)
    points = rng.uniform(-1, 1, 4).astype(nodes.dtype)
    for fixed in (False, True):  # read-only arrays are copied
        for each in (nodes, b, columns):
            each.flags.writeable = not fixed
        done, x, xs, bound, total, found, together = run(nodes, b, columns, points, np.exp(nodes))
        assert done
        exact, limits = vandermonde.solve(nodes, b, return_bound=True)
        assert (np.abs(x - exact) <= bound + limits).all()
        assert bound.max() < 1e-10
        np.testing.assert_allclose(xs, vandermonde.solve(nodes, columns, True), rtol=1e-10)
        np.testing.assert_allclose(total, interpolation.functional(nodes, points), rtol=1e-11)
        wanted = interpolation.evaluate(nodes, np.exp(nodes), points)
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
        ("shape", nb.solve_vandermonde, three, three, None, False, two),
        ("shape", nb.solve_vandermonde, three, three, None, False, three, two),
        ("order must be", nb.solve_vandermonde, three, three, far, False, three.copy()),
        ("order must be", nb.solve_vandermonde, three, three, far - 1, False, three.copy()),
        ("order must be", nb.solve_vandermonde, three, three, far[:2], False, three.copy()),
        ("room for f", nb.bind_functional(three, two, numbers, two), 3),
        ("room for f", nb.bind_functional(three, two, numbers, three), 0),
        ("room for f", nb.bind_cells(PLANS["bind_cells"], numbers, two), 3),
        ("room for f", nb.bind_edges(PLANS["bind_edges"], numbers, three), -1),
        ("room for f", nb.bind_tiling(PLANS["bind_tiling"], numbers, two), 3),
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
    functional = nb.bind_functional(nodes, points, chosen, weights)
    status = functional(chosen.size)
    solved = nb.solve_vandermonde(nodes, b, None, True, x, None, True)
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
        command = [sys.executable, "-P", "-W", "error", str(tmp_path / "users.py")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == kept


def test_statuses_are_those_of_the_facade():
    of = nb.bind_functional(np.arange(3.0), np.ones(1), np.array([0, 5, 0]), np.empty(3))
    assert of(2) == Status.OUT_OF_RANGE
    of = nb.bind_functional(np.arange(3.0), np.ones(1), np.array([0, 1, 0]), np.empty(3))
    assert of(3) == Status.DUPLICATE
