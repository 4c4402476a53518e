"""Vandermonde systems: Björck and Pereyra's algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from .njit import njit, njit_exact
from .vector import bits_of, double_of, inverses, larger_part, over, power_of_two, times

__all__ = ["leja_order", "solve_vandermonde", "vandermonde_column"]


def _distance(d):
    """Squared modulus of a complex number, modulus of a real one."""


@overload(_distance)
def _distance_of(d):
    if isinstance(d, types.Complex):
        return lambda d: d.real * d.real + d.imag * d.imag
    return lambda d: abs(d)


def _of_distance(e, z):
    """Exponent of the distance whose square, of complex numbers like z, has exponent e."""


@overload(_of_distance)
def _of_distance_of(e, z):
    return (lambda e, z: e >> 1) if isinstance(z, types.Complex) else (lambda e, z: e)


@njit_exact
def _multiply_distances(x, k, growth, product, low):
    """Multiply those after k by distances from k; the largest, its place in its last bits `low`."""
    most = np.int64(0)  # numbers that are not negative are in the order of their bits
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
    """Write to `order` a permutation that puts the nodes in Leja order, see the facade.

    csrc/vandermonde.c says why every rounding is as there.
    """
    m = nodes.size
    if order.size != m:
        raise ValueError("order must be as long as nodes")
    largest = 0.0
    for z in nodes:
        largest = max(largest, abs(z.real), abs(z.imag))
    x = nodes * power_of_two(-min(max(_exponent(largest), -1022), 1022))
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
        if not top & ~low or chosen <= k or chosen >= m:  # all are 0, or not finite
            chosen = k + 1
        e = _exponent(double_of(top))
        growth = 1.0
        if abs(e) <= 1000:
            growth = power_of_two(-_of_distance(e, x[k]))
        if k % 16 == 15:  # the order of the hopeless changes nothing
            for i in range(k + 1, m):
                product[i] = max(product[i], 2.0**-500)


_COLUMNS = 4  # that share their reciprocals
_LARGEST = 2.0**240  # node whose differences can be inverted two at a time


@njit
def _invert_differences(x, k, f, g, careful):
    """f[i] = 1 / (x[i+k] - x[i-1]) and g[i] = 1 / (x[i+k-1] - x[i-1]), i > 0; f alone for k = 0."""
    near, middle, far = x[: x.size - k - 1], x[k : x.size - 1], x[k + 1 :]
    one, to, other = x.dtype.type(1), f[1:], g[1:]
    if k and not careful:
        for i in range(near.size):
            to[i], other[i] = inverses(far[i] - near[i], middle[i] - near[i])
    else:
        for i in range(near.size):
            to[i] = over(one, far[i] - near[i])
            if k:
                other[i] = over(one, middle[i] - near[i])
    if k:
        other[near.size] = over(one, x[-1] - x[near.size])


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
def _solve_columns(x, columns, transpose, careful):
    """csrc/vandermonde.c's steps k in pairs, last - 1 and last, that share their reciprocals."""
    m = x.size
    f, g, spare = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    f[0] = g[0] = 1
    for last in range(m % 2, m - 1, 2):
        before = max(last - 1, 0)
        if not transpose:
            _invert_differences(x, last, f, g, careful)
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
            _invert_differences(x, last, f, g, careful)
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
def vandermonde_column(x, c, transpose):
    """Solve ``V^T a = c``, or ``V a = c``, in place: Björck and Pereyra's algorithms.

    `x` : the nodes, (m,), in the order in which they are to be taken, and c's entries too unless
    `transpose`. With it, the entries of a belong to the nodes in this order.
    """
    if c.size != x.size:
        raise ValueError("c must be as long as x")
    order = np.arange(x.size)
    column = c.copy().reshape(x.size, 1)
    _solve_in_order(x, column, order, transpose, c.reshape(x.size, 1), True)


@njit
def _solve_in_order(x, b, rows, transpose, out, forced):
    """Solve for b[rows] (or b, if `transpose`) and nodes in the order of elimination."""
    m, width = b.shape
    large = 0.0
    for z in x:
        large = max(large, larger_part(z))
    finite = True
    work = np.empty((min(width, _COLUMNS), m), x.dtype)
    for done in range(0, width, _COLUMNS):
        columns = work[: min(_COLUMNS, width - done)]
        # Fast reciprocals are not finite outside the middle of a double's range: see csrc.
        good = False
        for careful in (False, True):
            if good or (large > _LARGEST and not careful):
                continue
            for i in range(m):
                row = b[i if transpose else rows[i]]
                for t in range(len(columns)):
                    columns[t, i] = row[done + t]
            _solve_columns(x, columns, transpose, careful)
            good = np.isfinite(columns).all()
        finite = finite and good
        if not (good or forced):
            return False
        for i in range(m):
            row = out[rows[i] if transpose else i]
            for t in range(len(columns)):
                row[done + t] = columns[t, i]
    return finite


@njit
def _solve_vandermonde(nodes, b, order, transpose, out, forced):
    return _solve_in_order(nodes[order], b, order, transpose, out, forced)


def solve_vandermonde(
    nodes: NDArray[Any],
    b: NDArray[Any],
    order: NDArray[np.int64] | None,
    transpose: bool,
    out: NDArray[Any],
    forced: bool,
) -> bool:
    """See `fastgc.kernels.solve_vandermonde`."""
    if order is None:
        order = np.empty(nodes.size, dtype=np.int64)
        leja_order(nodes, order)
    if not b.flags.writeable:  # all would be compiled again for it
        b = b.copy()
    shape = nodes.size, -1
    finite = _solve_vandermonde(
        nodes, b.reshape(shape), order, bool(transpose), out.reshape(shape), forced
    )
    return bool(finite) and bool(np.isfinite(nodes).all())
