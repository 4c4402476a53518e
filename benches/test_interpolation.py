"""Barycentric weights, Lagrange bases and the functional of LCC against NumPy's natural forms."""

import numpy as np
import pytest
from measure import seconds

from fastgc import interpolation

KERNELS = ["weights", "basis", "functional"]


def numpy_weights(x):
    factors = x[:, None] - x
    np.fill_diagonal(factors, 1)
    return 1 / factors.prod(axis=1)


def numpy_weights_by_logarithms(x):
    """Compute the weights by logarithms, which do not overflow."""
    factors = x[:, None] - x
    np.fill_diagonal(factors, 1)
    size = np.log(np.abs(factors)).sum(axis=1)
    return np.exp(size.min() - size) / (factors / np.abs(factors)).prod(axis=1)


def numpy_basis(x, z, weights):
    terms = weights(x) / (z[:, None] - x)
    return terms / terms.sum(axis=1, keepdims=True)


def forms(kernel, x, z):
    """Yield NumPy's ways; the nodes decide which of them overflow."""
    for weights in (numpy_weights, numpy_weights_by_logarithms):
        yield {
            "weights": lambda w=weights: w(x),
            "basis": lambda w=weights: numpy_basis(x, z, w),
            "functional": lambda w=weights: numpy_basis(x, z, w).sum(axis=0),
        }[kernel]


def truth_of(kernel, x, z):
    """Compute a few values in extended precision, whose range is wide enough."""
    wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    x, z = x.astype(wide), z.astype(wide)
    if kernel == "weights":
        at = np.linspace(0, x.size - 1, 20).astype(int)
        return at, np.array([1 / np.prod(x[j] - np.delete(x, j)) for j in at])
    at = np.linspace(0, x.size - 1, 5).astype(int)
    columns = []
    for j in at:
        rest = np.delete(x, j)
        column = np.ones(z.size, wide)
        for node in rest:
            column *= (z - node) / (x[j] - node)
        columns.append(column)
    basis = np.array(columns).T
    return at, basis if kernel == "basis" else basis.sum(axis=0)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("m", [50, 400, 2000])
def test_kernel(benchmark, note, kernel, kind, m):
    """Time kernels at m nodes; bases have m points."""
    rng = np.random.default_rng(m)
    if kind == "real":  # on [-2, 2], NumPy's products overflow last
        x, z = 2 * interpolation.chebyshev(m), rng.uniform(-2, 2, m)
    else:
        x, z = interpolation.roots_of_unity(m), np.exp(2j * np.pi * rng.random(m))
    call = getattr(interpolation, kernel)
    arguments = (x,) if kernel == "weights" else (x, z)
    benchmark.group = f"lagrange {kernel}, {kind} m={m:4d}"
    found = benchmark(call, *arguments)
    at, truth = truth_of(kernel, x, z)
    part = found[..., at]
    if kernel == "weights":  # up to a common factor
        truth = truth * (part[0] / truth[0])
    size = 1 if kernel == "weights" else np.abs(truth)
    scale = np.abs(truth) if kernel == "weights" else np.where(size == 0, 1, size)
    with np.errstate(all="ignore"):
        usable = [form for form in forms(kernel, x, z) if np.isfinite(form()).all()]
        times = [seconds(form, 5 if m > 1000 else 15) for form in usable]
    note(
        across="m",
        lagrange=f"{kernel}, {kind}",
        m=m,
        times={"NumPy's": min(times)},
        error=float((np.abs(part - truth) / scale).max()),
    )
