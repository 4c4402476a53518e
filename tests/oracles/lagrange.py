"""Lagrange bases."""

import math

import numpy as np

from fastgc.kernels import Status


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
