"""Lagrange bases."""

import math

import numpy as np

from fastgc.kernels import Status

from .table import KINDS, NODES, WIDE, Kernel, U, nodes_of, shapes, widened, within


def lagrange_products(nodes, points, mantissa, exponent, hit):
    """Compute ``mantissa[i] 2^exponent[i] = prod_j (points[i] - nodes[j])``."""
    mantissa[:] = 1.0
    exponent[:] = 0
    hit[:] = -1
    for at in range(0, nodes.size, 4):
        factors = points[:, None] - nodes[at : at + 4]
        row, column = np.nonzero(_larger_part(factors) == 0)
        hit[row] = at + column
        factors[row, column] = 1.0
        # Four factors that are smaller leave the range of a double.
        near = _larger_part(factors) < 2.0**-250
        hit[near.any(axis=1) & (hit == -1)] = -2
        shift = np.where(near, _exponent(factors), 0)
        exponent += shift.sum(axis=1)
        mantissa *= _ldexp(factors, -shift).prod(axis=1)
        shift = _exponent(mantissa)
        mantissa[:] = _ldexp(mantissa, -shift)
        exponent += shift


def _exponent(x):
    exponent = np.frexp(_larger_part(x))[1].astype(np.int64) - 1
    return exponent


def _larger_part(x):
    size = np.maximum(np.abs(x.real), np.abs(x.imag))
    return size


def _ldexp(x, exponent):
    exponent = np.clip(exponent, -9000, 9000).astype(np.intc)  # the type that ldexp takes
    scaled = np.empty_like(x)
    with np.errstate(over="ignore", under="ignore"):
        scaled.real = np.ldexp(x.real, exponent)
        if np.iscomplexobj(x):
            scaled.imag = np.ldexp(x.imag, exponent)
    return scaled


def lagrange_basis(nodes, weights, weight_exponent, points, out):
    """Compute ``out[i, j] = l_j(points[i])``, or the sums of columns."""
    mantissa, exponent = np.empty_like(points), np.empty(points.size, dtype=np.int64)
    hit = np.empty(points.size, dtype=np.int64)
    lagrange_products(nodes, points, mantissa, exponent, hit)
    difference = points[:, None] - nodes
    difference[hit >= 0] = 1.0
    shift = _exponent(difference)
    quotient = mantissa[:, None] / _ldexp(difference, -shift) * weights
    values = _ldexp(quotient, exponent[:, None] + weight_exponent - shift)
    values[hit >= 0] = 0.0
    values[hit >= 0, hit[hit >= 0]] = 1.0
    out[...] = values if out.ndim == 2 else values.sum(axis=0)


def lagrange_weights(nodes, scaled, weights, exponent):
    """Compute barycentric weights ``1 / prod_(i != j) (x_j - x_i)`` of scaled nodes x."""
    largest = float(_larger_part(nodes).max())
    if not np.isfinite(nodes).all():
        return None
    shift = min(-math.frexp(largest)[1], 1023)
    scaled[:] = _ldexp(nodes, np.array(shift))
    powers, hit = np.empty((2, nodes.size), dtype=np.int64)
    lagrange_products(scaled, scaled, weights, powers, hit)
    if (hit != np.arange(nodes.size)).any():
        return None
    weights[:] = 1.0 / weights
    powers = -powers
    if exponent is None:
        powers -= (powers + np.frexp(np.abs(weights))[1]).max() - 1
        weights[:] = _ldexp(weights, powers)
    else:
        exponent[:] = powers
    return shift


def lagrange_evaluate(nodes, weights, weight_exponent, values, points, scale, out):
    """Compute ``out[i] = sum_j values[j] l_j(scale * points[i])``, exactly if a point is a node."""
    with np.errstate(over="ignore", invalid="ignore"):
        points = points * scale
        if not ((_larger_part(points) <= 2.0**239).all() and np.isfinite(values).all()):
            return False
        basis = np.empty((points.size, nodes.size), nodes.dtype)
        lagrange_basis(nodes, weights, weight_exponent, points, basis)
        out[:] = basis @ values
    row, column = np.nonzero(_larger_part(points[:, None] - nodes) == 0)
    out[row] = values[column]
    return True


def bind_functional(nodes, points, chosen, out):
    """Prepare the column sums of the basis of the nodes with these numbers."""

    def run(f):
        which = chosen[:f]
        if ((which < 0) | (which >= nodes.size)).any():
            return Status.OUT_OF_RANGE
        if np.unique(nodes[which]).size < f:
            return Status.DUPLICATE
        basis = np.ones((points.size, f), nodes.dtype)
        for j, node in enumerate(nodes[which]):
            others = np.delete(nodes[which], j)
            basis[:, j] = np.prod((points[:, None] - others) / (node - others), axis=1)
        out[:f] = basis.sum(axis=0)
        return Status.OK

    return run


# ------------------------------------------------------------ the table


def _basis(rng, size, count, dtype, complex_, ndim=2):
    given = _products(rng, size, count + 2, dtype, complex_)
    nodes, points = given["nodes"], given["points"]
    own = widened(nodes)
    mantissa, (exponent, hit) = np.empty_like(own), np.zeros((2, size), np.int64)
    lagrange_products(own, own, mantissa, exponent, hit)
    return {
        "nodes": nodes,
        "weights": (1 / mantissa).astype(nodes.dtype),
        "weight_exponent": -exponent,
        "points": points,
        "out": np.zeros((points.size, size)[2 - ndim :], nodes.dtype),
    }


def _products(rng, size, count, dtype, complex_):
    """Draw nodes and points, one of which is a node."""
    nodes = nodes_of(rng, size, complex_) / 2
    points = rng.uniform(-1, 1, count).astype(nodes.dtype)
    if complex_:
        points += 1j * rng.uniform(-1, 1, count)
    points[count // 2] = nodes[size // 2]
    return {
        "nodes": nodes,
        "points": points,
        "mantissa": np.zeros_like(points),
        "exponent": np.zeros(count, np.int64),
        "hit": np.zeros(count, np.int64),
    }


def _times_two(mantissa, exponent):
    wide = mantissa.astype(np.result_type(mantissa, WIDE))
    return wide * np.ldexp(WIDE(1), exponent.astype(np.intc))


def _near_product(given, found, truth):
    assert ((_larger_part(found["mantissa"]) >= 1) & (_larger_part(found["mantissa"]) < 2)).all()
    np.testing.assert_array_equal(found["hit"], truth["hit"])
    one, other = (_times_two(each["mantissa"], each["exponent"]) for each in (found, truth))
    within(2 * (given["nodes"].size + 2) * U * np.abs(other), one, other)


def _near_basis(given, found, truth):
    bound = 6 * (given["nodes"].size + 2) * U * np.abs(truth["out"])
    if truth["out"].ndim == 1:
        bound = given["points"].size * bound.max()
    within(bound, found["out"], truth["out"])


def _weighed(rng, size, count, dtype, complex_, together=False):
    nodes = nodes_of(rng, size, complex_) * 2.0 ** rng.integers(-600, 600)
    return {
        "nodes": nodes,
        "scaled": np.zeros_like(nodes),
        "weights": np.zeros_like(nodes),
        "exponent": None if together else np.zeros(size, np.int64),
    }


def _near_weights(given, found, truth):
    assert found["returned"] == truth["returned"]
    np.testing.assert_array_equal(found["scaled"], truth["scaled"])
    assert 0.5 <= _larger_part(found["scaled"]).max() < 1
    one, other = found["weights"], truth["weights"]
    if "exponent" in found:
        one, other = (_times_two(each["weights"], each["exponent"]) for each in (found, truth))
    within(2 * (one.size + 2) * U * np.abs(other), one, other)


def _values(rng, size, count, dtype, complex_):
    given = _basis(rng, size, count, dtype, complex_)
    return given | {
        "values": 3e-200 * given["nodes"] + 1e-200,
        "points": given["points"] * 4,
        "scale": 0.25,
        "out": np.zeros_like(given["points"]),
    }


def _near_values(given, found, truth):
    assert found["returned"]
    wide = {name: widened(value) for name, value in given.items() if name != "values"}
    basis = np.zeros((wide["points"].size, wide["nodes"].size), wide["nodes"].dtype)
    points = wide["points"] * given["scale"]
    names = (wide["nodes"], wide["weights"], given["weight_exponent"])
    lagrange_basis(*names, points, basis)
    scale = np.abs(basis) @ np.abs(given["values"])
    within(8 * (wide["nodes"].size + 2) * U * scale, found["out"], truth["out"])


def _functional(rng, size, count, dtype, complex_):
    """Choose all nodes of a table that has others between them, in reversed order."""
    given = _products(rng, size, count + 2, dtype, complex_)
    spread, chosen = np.full(2 * size, 9, given["nodes"].dtype), np.arange(2 * size)[::-2].copy()
    spread[chosen] = given["nodes"]
    return {
        "nodes": spread,
        "points": given["points"],
        "chosen": chosen,
        "out": np.zeros(size, spread.dtype),
    }


def _near_functional(given, found, truth):
    assert found["returned"] == truth["returned"] == Status.OK
    size = 6 * (given["out"].size + 2) * U * np.abs(truth["out"]).max()
    within(size * given["points"].size, found["out"], truth["out"])


POINTS = (*shapes(NODES[:8], (1, 2, 3, 4, 5, 9)), *shapes(NODES[8:], (1, 66)))

KERNELS = [
    Kernel(
        "lagrange_products",
        _products,
        _near_product,
        ("mantissa", "exponent", "hit"),
        POINTS,
        cases=KINDS,
    ),
    Kernel(
        "lagrange_basis",
        _basis,
        _near_basis,
        ("out",),
        POINTS,
        cases=tuple(kind | {"ndim": n} for n in (1, 2) for kind in KINDS),
    ),
    Kernel(
        "lagrange_weights",
        _weighed,
        _near_weights,
        ("scaled", "weights", "exponent"),
        shapes(NODES, (1,)),
        cases=tuple(kind | {"together": t} for t in (False, True) for kind in KINDS),
    ),
    Kernel("lagrange_evaluate", _values, _near_values, ("out",), POINTS, cases=KINDS),
    Kernel(
        "bind_functional",
        _functional,
        _near_functional,
        ("out",),
        POINTS,
        cases=KINDS,
        call=lambda function, given: function(**given)(given["out"].size),
    ),
]
