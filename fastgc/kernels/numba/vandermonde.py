"""Vandermonde systems: Björck and Pereyra's algorithms."""

from __future__ import annotations

import ctypes
import math
import platform

import numpy as np
from llvmlite import binding
from numba import types

from .njit import (
    bits_of,
    by_types,
    double_of,
    inverses,
    larger_part,
    njit,
    njit_exact,
    over,
    power_of_two,
    times,
)

__all__ = ["leja_order", "solve_vandermonde"]


@by_types
def _distance(d):
    """Squared modulus of a complex number, modulus of a real one."""
    if isinstance(d, types.Complex):
        return lambda d: d.real * d.real + d.imag * d.imag
    return lambda d: abs(d)


@by_types
def _of_distance(e, z):
    """Exponent of a distance, from the exponent e of `_distance` for numbers like z."""
    return (lambda e, z: e >> 1) if isinstance(z, types.Complex) else (lambda e, z: e)


@njit_exact
def _multiply_distances(x, k, growth, product, low):
    """Multiply products after k by distances from k. The largest, with its place in bits `low`."""
    most = np.int64(0)  # non-negative numbers have the same order as their bits
    at = times(x[k], growth)
    for i in range(k + 1, x.size):
        product[i] *= _distance(times(x[i], growth) - at)
        most = max(most, (bits_of(product[i]) & ~low) | i)
    return most


@njit
def _exponent(x):
    return (bits_of(x) >> 52 & 0x7FF) - 1023


@njit_exact
def leja_order(nodes, order):
    # Every rounding is that of csrc/vandermonde.c, which says why.
    m = nodes.size
    if order.size != m:
        raise ValueError("order must be as long as nodes")
    largest = 0.0
    for z in nodes:
        largest = max(largest, abs(z.real), abs(z.imag))
    up = -min(max(_exponent(largest), -1022), 1022)
    x = nodes * power_of_two(up)
    chosen, farthest = 0, -1.0
    for i in range(m):
        size = x[i].real * x[i].real + x[i].imag * x[i].imag
        if size > farthest:
            chosen, farthest = i, size
        order[i] = i
    low = 8
    while low < m:
        low *= 2
    low -= 1
    product, growth = np.ones(m), 1.0
    for k in range(m - 1):
        at, where = x[chosen], order[chosen]
        x[chosen], product[chosen], order[chosen] = x[k], product[k], order[k]
        x[k], order[k] = at, where
        top = _multiply_distances(x, k, growth, product, low)
        chosen = top & low
        if not top & ~low or chosen <= k or chosen >= m:  # all products are 0, or not finite
            chosen = k + 1
        e = _exponent(double_of(top))
        growth = power_of_two(-_of_distance(e, x[k])) if abs(e) <= 1000 else 1.0
        if k % 16 == 15:  # the order of nodes with such small products does not matter
            for i in range(k + 1, m):
                product[i] = max(product[i], 2.0**-500)


_COLUMNS = 4  # columns that share their reciprocals


@njit
def _invert_differences(x, k, f, g):
    """f[i] = 1 / (x[i+k] - x[i-1]) and g[i] = 1 / (x[i+k-1] - x[i-1]), i > 0; f alone for k = 0."""
    near, middle, far = x[: x.size - k - 1], x[k : x.size - 1], x[k + 1 :]
    one, to, other = x.dtype.type(1), f[1:], g[1:]
    if k:
        for i in range(near.size):
            to[i], other[i] = inverses(far[i] - near[i], middle[i] - near[i])
        other[near.size] = over(one, x[-1] - x[near.size])
    else:
        for i in range(near.size):
            to[i] = over(one, far[i] - near[i])


@njit
def _subtract_before(c, node, to):
    to[0] = c[0]
    for i in range(1, c.size):
        to[i] = c[i] - node * c[i - 1]


@njit
def _subtract_after(c, node):
    for i in range(c.size - 1):
        c[i] -= node * c[i + 1]


@njit
def _subtract_divide(c, f, to):
    to[0] = c[0]
    for i in range(1, c.size):
        to[i] = (c[i] - c[i - 1]) * f[i]


@njit
def _divide_subtract(c, f):
    for i in range(c.size - 1):
        c[i] = c[i] * f[i] - c[i + 1] * f[i + 1]
    c[-1] *= f[c.size - 1]


@njit
def _solve_columns(x, columns, transpose):
    """Do the steps of csrc/vandermonde.c in pairs, last - 1 and last, which share reciprocals."""
    m = x.size
    f, g, spare = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    f[0] = g[0] = 1
    for last in range(m % 2, m - 1, 2):
        before = max(last - 1, 0)
        if not transpose:
            _invert_differences(x, last, f, g)
        for c in columns:
            if last == 0:
                spare[:] = c
            elif transpose:
                _subtract_before(c[before:], x[before], spare[before:])
            else:
                _subtract_divide(c[before:], g, spare[before:])
            if transpose:
                _subtract_before(spare[last:], x[last], c[last:])
            else:
                _subtract_divide(spare[last:], f, c[last:])
    for last in range(m - 2, -1, -2):
        if transpose:
            _invert_differences(x, last, f, g)
        for c in columns:
            if transpose:
                _divide_subtract(c[last:], f)
            else:
                _subtract_after(c[last:], x[last])
            if last and transpose:
                _divide_subtract(c[last - 1 :], g)
            elif last:
                _subtract_after(c[last - 1 :], x[last - 1])


@njit
def _solve_in_order(nodes, b, rows, powers, transpose, out):
    """Solve with nodes in the order `rows`. Returns whether all is finite.

    b[i] is multiplied by powers[i] if `transpose`, else out[i] is.
    """
    m, x, width = nodes.size, nodes[rows], b.shape[1]
    work = np.empty((min(width, _COLUMNS), m), x.dtype)
    for done in range(0, width, _COLUMNS):
        columns = work[: min(_COLUMNS, width - done)]
        for i in range(m):
            row = b[i if transpose else rows[i]]
            for t in range(len(columns)):
                columns[t, i] = times(row[done + t], powers[i]) if transpose else row[done + t]
        _solve_columns(x, columns, transpose)
        if not transpose:
            for i in range(m):
                for t in range(len(columns)):
                    columns[t, i] = times(columns[t, i], powers[i])
        if not np.isfinite(columns).all():
            return False
        for i in range(m):
            row = out[rows[i] if transpose else i]
            for t in range(len(columns)):
                row[done + t] = columns[t, i]
    return True


@njit
def _scale(nodes):
    """Divide nodes by the power of two nearest to the mean distance from the one farthest from 0.

    The mean is geometric: products of distances then stay in range. Returns the nodes, the rows'
    powers, and whether these are in a double's range.
    """
    scaled, powers = nodes.copy(), np.ones(nodes.size)
    far, total, count = nodes[0], 0.0, 0
    for z in nodes:
        far = z if larger_part(z) > larger_part(far) else far
    for z in nodes:
        distance = larger_part(z - far)
        if distance > 0:
            total += math.log2(distance)
            count += 1
    exponent = round(total / count) if count else 0
    if exponent == 0:
        return scaled, powers, True
    if abs(exponent) * (nodes.size - 1) > 1022:
        return scaled, powers, False
    half = exponent // 2
    for i in range(nodes.size):
        scaled[i] = times(times(nodes[i], power_of_two(-half)), power_of_two(half - exponent))
        powers[i] = power_of_two(-exponent * i)
    return scaled, powers, True


# The processor's flag for underflow, FE_UNDERFLOW of C's library, by the kind of machine. Elsewhere
# underflow is not found.
_FLAG = {"x86_64": 0x10, "aarch64": 8, "arm64": 8}.get(platform.machine(), 0)
if _FLAG:
    clear_flags = types.ExternalFunction("feclearexcept", types.intc(types.intc))
    test_flags = types.ExternalFunction("fetestexcept", types.intc(types.intc))
    for _name in ("feclearexcept", "fetestexcept"):  # wherever this process has them
        _address = ctypes.cast(getattr(ctypes.CDLL(None), _name), ctypes.c_void_p).value
        binding.add_symbol(_name, _address)
else:

    @njit
    def clear_flags(flags):
        return 0

    test_flags = clear_flags


@by_types
def _writable(x):
    """The array, or a copy if it is read-only."""
    return (lambda x: x) if x.mutable else (lambda x: x.copy())


@by_types
def _order(nodes, order):
    """The order; Leja's if it is None."""
    if isinstance(order, types.Array):
        return lambda nodes, order: order

    def leja(nodes, order):
        found = np.empty(nodes.size, np.int64)
        leja_order(nodes, found)
        return found

    return leja


@njit
def solve_vandermonde(nodes, b, order, transpose, out):
    """Solve ``V X = B``, or ``V^T X = B`` with `transpose`: V[i, j] = nodes[i]^j.

    `fastgc.vandermonde.solve` knows better orders for some nodes, and bounds errors.

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
    b : (m,) or (m, r) array
    order : (m,) int64 array or None
        The order in which nodes are taken. None stands for Leja's.
    transpose : bool
    out : array
        Of the dtype of `nodes`, as `b` is, and of its shape. It may be `b`.

    Returns
    -------
    bool
        False if something over- or underflows, or is not finite; `out` then means nothing.

    Raises
    ------
    ValueError
        If shapes do not fit, or `order` has what is no number of a node.
    """
    m = nodes.size
    if b.size == 0 or len(b) != m or b.shape != out.shape:
        raise ValueError("b and out must be of one shape, with a row for each node")
    if not np.isfinite(nodes).all():
        return False
    clear_flags(_FLAG)
    x, powers, done = _scale(_writable(nodes))
    rows = _order(x, order)
    if rows.size != m or rows.min() < 0 or rows.max() >= m:
        raise ValueError("order must be numbers of nodes, as many as there are nodes")
    columns = _writable(b).reshape(m, b.size // m)
    done = done and _solve_in_order(x, columns, rows, powers, transpose, out.reshape(columns.shape))
    return done and test_flags(_FLAG) == 0
