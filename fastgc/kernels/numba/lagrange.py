"""Lagrange bases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .njit import njit
from .vector import bits_of, double_of, inverses, larger_part, over, power_of_two, times

__all__ = ["lagrange_basis", "lagrange_products"]

_NEAREST = 2.0**-250
_POINTS = 64  # whose products are in the nearest cache


@njit
def _factor(d, one):
    return d if larger_part(d) >= _NEAREST else one


@njit
def _multiply_nodes(nodes, j, points, mantissa, exponent):
    """Multiply by the differences to four nodes and normalise; whether one counts as none."""
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
    """``mantissa[i] 2^exponent[i] = prod_j (points[i] - nodes[j])``, see the facade."""
    if not (points.size == mantissa.size == exponent.size == hit.size):
        raise ValueError("mantissa, exponent and hit must be as long as points")
    mantissa[:] = 1
    exponent[:] = 0
    hit[:] = -1
    x = np.full(nodes.size + -nodes.size % 4, nodes.dtype.type(np.nan))  # no factor either
    x[: nodes.size] = nodes
    for lo in range(0, points.size, _POINTS):
        hi = min(lo + _POINTS, points.size)
        z, product, power, equal = points[lo:hi], mantissa[lo:hi], exponent[lo:hi], hit[lo:hi]
        for j in range(0, x.size, 4):
            if _multiply_nodes(x, j, z, product, power):
                for t in range(j, min(j + 4, nodes.size)):
                    for i in range(z.size):
                        equal[i] = t if larger_part(z[i] - nodes[t]) < _NEAREST else equal[i]


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
    """Add p 2^exponent weights[j] / (z - nodes[j]), whatever the exponents."""
    for j in range(nodes.size):
        value = over(p, z - nodes[j]) * weights[j]
        e = exponent + weight_exponent[j]
        half = e >> 1  # one factor alone may be out of range
        row[j] += times(times(value, power_of_two(half)), power_of_two(e - half))


@njit
def _bases(nodes, weights, weight_exponent, points, rows):
    """Writes l_j(points[i]) to row i, or the sums over i to the only one."""
    mantissa, spare = np.empty_like(points), np.empty_like(nodes)
    exponent, hit = np.empty(points.size, np.int64), np.empty(points.size, np.int64)
    lagrange_products(nodes, points, mantissa, exponent, hit)
    most = weight_exponent.max()
    alike = most - weight_exponent.min() < 400  # nearly always: all fit one scale, without loss
    scaled = weights.copy()
    for j in range(nodes.size):
        scaled[j] = times(weights[j], power_of_two(weight_exponent[j] - most))
    together = len(rows) < points.size
    if together:
        rows[:] = 0
    usual, count = np.empty(points.size, np.int64), 0
    for i in range(points.size):
        e = exponent[i] + most
        if hit[i] < 0 and alike and abs(e) < 400:
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


def lagrange_basis(
    nodes: NDArray[Any],
    weights: NDArray[Any],
    weight_exponent: NDArray[np.int64],
    points: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """See `fastgc.kernels.lagrange_basis`."""
    _bases(nodes, weights, weight_exponent, points, np.atleast_2d(out))
