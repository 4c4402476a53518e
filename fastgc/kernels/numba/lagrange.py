"""Lagrange bases."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from ..cyclic import Status
from .njit import (
    bits_of,
    by_types,
    double_of,
    inverses,
    larger_part,
    njit,
    over,
    power_of_two,
    times,
)

__all__ = [
    "lagrange_basis",
    "lagrange_evaluate",
    "lagrange_functional",
    "lagrange_products",
    "lagrange_weights",
]

_OUT_OF_RANGE, _DUPLICATE = int(Status.OUT_OF_RANGE), int(Status.DUPLICATE)
_OVERFLOW = int(Status.OVERFLOW)
_NODES = "there must be a node at least, and vectors of nodes must be of one length"
_NEAREST = 2.0**-250
_POINTS = 64  # the products of so many points are in the nearest cache


@njit
def _factor(d, one):
    return d if larger_part(d) >= _NEAREST else one


@njit
def _normal(x):
    """Divide a number by a power of two, so that its larger part is in [1, 2); and its exponent."""
    e = math.frexp(larger_part(x))[1] - 1
    half = e >> 1  # a single factor may be out of range
    return times(times(x, power_of_two(-half)), power_of_two(half - e)), e


@njit
def _multiply_nodes(nodes, j, points, mantissa, exponent):
    """Multiply by differences to four nodes, and normalise. Returns whether one was left out."""
    x0, x1, x2, x3 = nodes[j], nodes[j + 1], nodes[j + 2], nodes[j + 3]
    one = mantissa.dtype.type(1)
    near = False
    for i in range(points.size):
        d0, d1, d2, d3 = points[i] - x0, points[i] - x1, points[i] - x2, points[i] - x3
        far = (larger_part(d0) >= _NEAREST) & (larger_part(d1) >= _NEAREST)
        near |= not (far & (larger_part(d2) >= _NEAREST) & (larger_part(d3) >= _NEAREST))
        first, second = _factor(d0, one) * _factor(d1, one), _factor(d2, one) * _factor(d3, one)
        product = mantissa[i] * first * second
        e = (bits_of(larger_part(product)) >> 52) - 1023
        mantissa[i] = times(product, double_of((1023 - e) << 52))
        exponent[i] += e
    return near


@njit
def lagrange_products(nodes, points, mantissa, exponent, hit):
    """Compute ``mantissa[i] 2^exponent[i] = prod_j (points[i] - nodes[j])``."""
    if not (points.size == mantissa.size == exponent.size == hit.size):
        raise ValueError("mantissa, exponent and hit must be as long as points")
    mantissa[:] = 1
    exponent[:] = 0
    hit[:] = -1
    x = np.full(nodes.size + -nodes.size % 4, nodes.dtype.type(np.nan))  # NaN is left out, too
    x[: nodes.size] = nodes
    for lo in range(0, points.size, _POINTS):
        hi = min(lo + _POINTS, points.size)
        z, product, power, equal = points[lo:hi], mantissa[lo:hi], exponent[lo:hi], hit[lo:hi]
        for j in range(0, x.size, 4):
            if _multiply_nodes(x, j, z, product, power):
                for t in range(j, min(j + 4, nodes.size)):
                    for i in range(z.size):
                        d = z[i] - nodes[t]
                        if larger_part(d) == 0:
                            equal[i] = t
                        elif larger_part(d) < _NEAREST:  # left out by `_multiply_nodes`
                            d, e = _normal(d)
                            product[i], f = _normal(product[i] * d)
                            power[i] += e + f
                            equal[i] = -2 if equal[i] == -1 else equal[i]


@njit
def _two_rows(nodes, weights, y, z, p, q, row, other):
    """row[j] = p weights[j] / (y - nodes[j]) and other[j] = q weights[j] / (z - nodes[j])."""
    for j in range(nodes.size):
        first, second = inverses(y - nodes[j], z - nodes[j])
        row[j], other[j] = p * (weights[j] * first), q * (weights[j] * second)


@njit
def _add_two_rows(nodes, weights, y, z, p, q, row):
    """Add both to one row."""
    for j in range(nodes.size):
        first, second = inverses(y - nodes[j], z - nodes[j])
        row[j] += p * (weights[j] * first) + q * (weights[j] * second)


@njit
def _add_any(nodes, weights, weight_exponent, z, p, exponent, row):
    """Add p 2^exponent weights[j] / (z - nodes[j]) to the row, for exponents of any size."""
    for j in range(nodes.size):
        d, e = _normal(z - nodes[j])
        value = over(p, d) * weights[j]
        e = exponent + weight_exponent[j] - e
        half = e >> 1  # a single factor may be out of range
        row[j] += times(times(value, power_of_two(half)), power_of_two(e - half))


@njit
def _bases(nodes, weights, weight_exponent, points, rows):
    """Write l_j(points[i]) to row i, or the sums over i to the only row."""
    mantissa, spare = np.empty_like(points), np.empty_like(nodes)
    exponent, hit = np.empty(points.size, np.int64), np.empty(points.size, np.int64)
    lagrange_products(nodes, points, mantissa, exponent, hit)
    most = weight_exponent.max()
    alike = most - weight_exponent.min() < 400  # nearly always: one scale holds all without loss
    scaled = weights.copy()
    for j in range(nodes.size):
        scaled[j] = times(weights[j], power_of_two(weight_exponent[j] - most))
    together = len(rows) != points.size
    if together:
        rows[:] = 0
    usual, count = np.empty(points.size, np.int64), 0
    for i in range(points.size):
        e = exponent[i] + most
        if hit[i] == -1 and alike and abs(e) < 400:
            mantissa[i] = times(mantissa[i], power_of_two(e))
            usual[count] = i
            count += 1
            continue
        row = rows[0 if together else i]
        if not together:
            row[:] = 0
        if hit[i] >= 0:
            row[hit[i]] += 1
        else:
            _add_any(nodes, weights, weight_exponent, points[i], mantissa[i], exponent[i], row)
    for at in range(0, count, 2):
        i, last = usual[at], at + 1 == count
        j = i if last else usual[at + 1]
        y, z, p, q = points[i], points[j], mantissa[i], mantissa[j]
        if together:
            q = 0 * q if last else q
            _add_two_rows(nodes, scaled, y, z, p, q, rows[0])
        else:
            _two_rows(nodes, scaled, y, z, p, q, rows[i], spare if last else rows[j])


@by_types
def _rows(out, count):
    """A row of `out` for each of `count` points, or its only row."""

    def rows(out, count):
        if len(out) != count:
            raise ValueError("out must have a row for each point, or be a vector")
        return out

    return rows if out.ndim == 2 else lambda out, count: out.reshape(1, out.size)


@njit
def lagrange_basis(nodes, weights, weight_exponent, points, out):
    rows = _rows(out, points.size)
    if not (0 < nodes.size == weights.size == weight_exponent.size == rows.shape[1]):
        raise ValueError(_NODES)
    _bases(nodes, weights, weight_exponent, points, rows)


@njit
def _invert(hit, weights, exponent):
    """Replace products by weights. Returns whether no two nodes coincide."""
    for i in range(hit.size):
        if hit[i] != i:
            return False
    one = weights.dtype.type(1)
    for i in range(hit.size):
        weights[i] = over(one, weights[i])
        exponent[i] = -exponent[i]
    return True


@njit
def _put_together(weights, exponent):
    """Scale all weights by one power of two: the largest modulus then lies in [1, 2), about."""
    most = -(1 << 62)
    for i in range(weights.size):
        most = max(most, exponent[i] + math.frexp(abs(weights[i]))[1] - 1)
    for i in range(weights.size):
        e = max(exponent[i] - most, -4000)
        half = e >> 1  # a single power so small underflows
        weights[i] = times(times(weights[i], math.ldexp(1.0, half)), math.ldexp(1.0, e - half))


@njit
def _weights(nodes, scaled, weights, exponent, together):
    """Write scaled nodes and weights. Returns the shift, and whether there are weights."""
    size, finite = 0.0, True
    for x in nodes:
        size = max(size, larger_part(x))
        finite &= np.isfinite(x)
    if not finite:
        return 0, False
    shift = min(-math.frexp(size)[1], 1023)
    half = shift >> 1
    for i in range(nodes.size):
        scaled[i] = times(times(nodes[i], power_of_two(half)), power_of_two(shift - half))
    hit = np.empty(nodes.size, np.int64)
    lagrange_products(scaled, scaled, weights, exponent, hit)
    distinct = _invert(hit, weights, exponent)
    if distinct and together:
        _put_together(weights, exponent)
    return shift, distinct


@by_types
def _powers(exponent, size):
    """Where exponents are written: `exponent`, or new memory if it is None."""
    if isinstance(exponent, types.Array):
        return lambda exponent, size: exponent
    return lambda exponent, size: np.empty(size, np.int64)


@njit
def lagrange_weights(nodes, scaled, weights, exponent):
    powers = _powers(exponent, nodes.size)
    if not (0 < nodes.size == scaled.size == weights.size == powers.size):
        raise ValueError(_NODES)
    shift, good = _weights(nodes, scaled, weights, powers, exponent is None)
    return shift if good else None


@njit
def _value(nodes, weights, weight_exponent, values, z, row):
    """The value at one point that is not a node, from its row of the basis."""
    product, exponent = nodes.dtype.type(1), 0
    for j in range(nodes.size):
        d, e = _normal(z - nodes[j])
        product, f = _normal(product * d)
        exponent += e + f
    row[:] = 0
    _add_any(nodes, weights, weight_exponent, z, product, exponent, row)
    total = nodes.dtype.type(0)
    for j in range(nodes.size):
        total += row[j] * values[j]
    return total


@njit
def lagrange_evaluate(nodes, weights, weight_exponent, values, points, scale, out):
    if not (0 < nodes.size == weights.size == weight_exponent.size == values.size):
        raise ValueError(_NODES)
    if out.size != points.size:
        raise ValueError("out must be as long as points")
    for z in points:
        if not larger_part(times(z, scale)) <= 2.0**239:
            return False
    for value in values:
        if not np.isfinite(value):
            return False
    row = np.empty_like(nodes)
    for i in range(points.size):
        z, hit = times(points[i], scale), -1
        for j in range(nodes.size):
            hit = j if larger_part(z - nodes[j]) == 0 else hit
        if hit >= 0:
            out[i] = values[hit]
        else:
            out[i] = _value(nodes, weights, weight_exponent, values, z, row)
    return True


@njit
def lagrange_functional(nodes, points, chosen, out):
    """Write the column sums of the Lagrange basis of some of the nodes.

    Parameters
    ----------
    nodes : (n,) float64 or complex128 array
        Moduli are about 1 at most.
    points : (p,) array
    chosen : (f,) int64 array
        Numbers of nodes, f >= 1.
    out : (f,) array
        Written: ``sum_i l_j(points[i])`` for each chosen node j. `points` and `out` have the dtype
        of `nodes`.

    Returns
    -------
    int
        A `fastgc.kernels.Status`: ``OUT_OF_RANGE`` if a number is not that of a node, ``DUPLICATE``
        if two nodes coincide, ``OVERFLOW`` if a sum does not fit a double.

    Raises
    ------
    ValueError
        If `out` is not as long as `chosen`, or that is empty.
    """
    if not 1 <= chosen.size == out.size:
        raise ValueError("out must be as long as chosen, and that must not be empty")
    x = np.empty(chosen.size, nodes.dtype)
    for i in range(chosen.size):
        if chosen[i] < 0 or chosen[i] >= nodes.size:
            return _OUT_OF_RANGE
        x[i] = nodes[chosen[i]]
    weights = np.empty_like(x)
    exponent, hit = np.empty(x.size, np.int64), np.empty(x.size, np.int64)
    lagrange_products(x, x, weights, exponent, hit)
    if not _invert(hit, weights, exponent):
        return _DUPLICATE
    _bases(x, weights, exponent, points, out.reshape(1, x.size))
    for value in out:
        if not np.isfinite(value):
            return _OVERFLOW
    return 0
