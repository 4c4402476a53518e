"""Vandermonde solves against numpy.linalg.solve on a prepared system."""

from contextlib import nullcontext

import numpy as np
import pytest
from measure import one_blas_thread
from oracles.decoding import decoding_truth
from oracles.table import nodes_of
from oracles.vandermonde import bjorck_pereyra

from fastgc import vandermonde

SIZES = [64, 128, 256, 512, 1024]
METHODS = [
    "linalg",
    "linalg, all threads",
    "from the nodes",
    "Björck–Pereyra",
    "Björck–Pereyra, order given",
]


def linalg_from_the_nodes(nodes, b):
    return np.linalg.solve(np.vander(nodes, increasing=True).T, b)


def case(m, kind):
    """Return nodes and moments: well-placed real nodes, or roots for a decoding vector."""
    rng = np.random.default_rng(m)
    if kind == "real":
        nodes, b = nodes_of(rng, m, False), rng.standard_normal(m)
        return nodes, b, bjorck_pereyra(nodes, b, True), vandermonde.leja_order(nodes)
    n = m * 8 // 7
    chosen = rng.permutation(n)[:m]
    b = np.zeros(m, complex)
    b[0] = 1
    order = vandermonde.roots_order(n, chosen)
    truth = decoding_truth([(n, 1, 0)], chosen)
    return np.exp(2j * np.pi * chosen / n), b, truth, order


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("method", METHODS)
def test_solve(benchmark, note, m, kind, method):
    """Time V^T x = b, by LAPACK with V ready-made or not, and by fastgc."""
    nodes, b, truth, order = case(m, kind)
    benchmark.group = f"vandermonde, {kind} f={m:4d}"
    if method.startswith("linalg"):
        call, arguments = np.linalg.solve, (np.vander(nodes, increasing=True).T.copy(), b)
    elif method == "from the nodes":
        call, arguments = linalg_from_the_nodes, (nodes, b)
    elif method.endswith("given"):
        call, arguments = lambda *a: vandermonde.solve(*a, order=order), (nodes, b, True)
    else:
        call, arguments = vandermonde.solve, (nodes, b, True)
    with one_blas_thread() if method == "linalg" else nullcontext():
        found = benchmark(call, *arguments)
    error = float(np.abs(found - truth).max() / np.abs(truth).max())
    note(across="f", kind=kind, f=m, solver=method, error=error)


KINDS = {
    "Chebyshev in [-1, 1]": lambda rng, m: np.cos((np.arange(m) + 0.5) * np.pi / m),
    "even in [-1, 1]": lambda rng, m: np.linspace(-1, 1, m),
    "random in [0, 1]": lambda rng, m: rng.random(m),
    "normal": lambda rng, m: rng.standard_normal(m),
    "-k to k": lambda rng, m: np.arange(m) - float(m // 2),
    "all roots of unity": lambda rng, m: np.exp(2j * np.pi * np.arange(m) / m),
    "two clusters": lambda rng, m: np.resize([1.0, -1.0], m) + 1e-3 * rng.random(m),
}


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("m", [1000, 4096])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["linalg", "V^T x", "V x", "V x, one value"])
def test_thousands_of_nodes(benchmark, note, method, m, kind):
    """Time systems whose numbers may leave a double's range, by LAPACK where V does not."""
    rng = np.random.default_rng(m)
    nodes = KINDS[kind](rng, m)
    b = rng.standard_normal(m).astype(nodes.dtype)
    benchmark.group = f"vandermonde, {kind}, m={m:4d}"
    if method == "linalg":
        with np.errstate(all="ignore"):
            V = np.vander(nodes, increasing=True).T.copy()
        if not np.isfinite(V).all():
            pytest.skip("powers of the nodes overflow")
        call, arguments = np.linalg.solve, (V, b)
    else:
        if method.endswith("value"):
            b[1:] = 0
        call, arguments = vandermonde.solve, (nodes, b, method == "V^T x")
    with one_blas_thread() if method == "linalg" else nullcontext():
        found = benchmark.pedantic(call, arguments, rounds=3 if m > 1000 else 9)
    overflows = not np.isfinite(found).all()
    note(across="solver", kind=kind, f=m, solver=method, overflows=overflows)


@pytest.mark.parametrize("method", [METHODS[0], METHODS[1], METHODS[3]])
def test_many_right_hand_sides(benchmark, note, method):
    rng = np.random.default_rng(0)
    nodes, B = nodes_of(rng, 256, False), rng.standard_normal((256, 16))
    truth = np.array([bjorck_pereyra(nodes, b, True) for b in B.T]).T
    benchmark.group = "vandermonde, real f= 256, 16 columns"
    if method.startswith("linalg"):
        call, arguments = np.linalg.solve, (np.vander(nodes, increasing=True).T.copy(), B)
    else:
        call, arguments = vandermonde.solve, (nodes, B, True)
    with one_blas_thread() if method == "linalg" else nullcontext():
        found = benchmark(call, *arguments)
    error = float(np.abs(found - truth).max() / np.abs(truth).max())
    note(solver=method, error=error)
