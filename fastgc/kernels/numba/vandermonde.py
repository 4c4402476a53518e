"""Vandermonde systems: Björck and Pereyra's algorithms."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

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


# csrc/vandermonde.c says what these are.
_UNIT, _ACCURATE, _HARMLESS, _RAY = 2.0**-53 * 1.001, 2.0**-48, 2.0**-32, 2.0**-20


def _roundings(x):
    """Of a product and of a quotient of numbers like x's."""


@overload(_roundings)
def _roundings_of(x):
    return (lambda x: (3.0, 12.0)) if isinstance(x.dtype, types.Complex) else lambda x: (1.0, 6.0)


@njit
def _bounded_column(x, c, e, transpose):
    """Solve in place, nodes and c in the order of elimination; e bounds c's errors, in _UNIT."""
    m = x.size
    in_product, in_quotient = _roundings(x)
    if transpose:
        for k in range(m - 1):
            size = abs(x[k])
            for i in range(m - 1, k, -1):
                e[i] += size * (e[i - 1] + in_product * abs(c[i - 1]))
                c[i] -= x[k] * c[i - 1]
                e[i] += abs(c[i])
        for k in range(m - 2, -1, -1):
            for i in range(k, m - 1):
                d = x[i + 1] - x[i - k]
                c[i + 1] = over(c[i + 1], d)
                e[i + 1] = e[i + 1] / abs(d) + in_quotient * abs(c[i + 1])
                c[i] -= c[i + 1]
                e[i] += e[i + 1] + abs(c[i])
    else:
        for k in range(m - 1):
            for i in range(m - 1, k, -1):
                d = x[i] - x[i - k - 1]
                c[i] = over(c[i] - c[i - 1], d)
                e[i] = (e[i] + e[i - 1]) / abs(d) + (in_quotient + 1) * abs(c[i])
        for k in range(m - 2, -1, -1):
            size = abs(x[k])
            for i in range(k, m - 1):
                e[i] += size * (e[i + 1] + in_product * abs(c[i + 1]))
                c[i] -= x[k] * c[i + 1]
                e[i] += abs(c[i])


@njit
def _bounded_in_order(x, order, b, errors, t, transpose, found, limits):
    """Column t of the solution, and of bounds of its errors, from those of b; whether finite."""
    m = x.size
    c, e = np.empty_like(x), np.empty(m)
    for i in range(m):
        row = i if transpose else order[i]
        c[i], e[i] = b[row, t], errors[row, t] / _UNIT
    _bounded_column(x, c, e, transpose)
    good = np.isfinite(c).all()
    for i in range(m):
        row, limit = order[i] if transpose else i, e[i] * _UNIT
        found[row], limits[row] = c[i], limit if good and limit < np.inf else np.inf
    return good


@njit
def _is_accurate(x, e):
    """Whether all numbers are good to about their last digits."""
    limit, all_ = _ACCURATE * x.size, True
    for i in range(x.size):
        all_ = all_ and e[i] <= limit * larger_part(x[i])
    return all_


@njit
def _is_better(x, e, other):
    """Whether the bounds prove that x is better than the other: see csrc."""
    most = most_relative = least = least_relative = largest = 0.0
    for i in range(x.size):
        size = larger_part(x[i])
        if not (e[i] < size or e[i] == 0):
            return False
        if e[i] > 0:
            most_relative = max(most_relative, e[i] / (size - e[i]))
        proven = larger_part(x[i] - other[i]) - e[i]  # the other's error is no less
        if proven > 0:
            least_relative = max(least_relative, proven / (1.5 * size + e[i]))
            least = max(least, proven)
        most, largest = max(most, e[i]), max(largest, size)
    return most_relative < least_relative and (most <= least or most <= _HARMLESS * largest)


@njit_exact  # or Numba would compile `leja_order`, if first asked for here, as freely as this
def _solve_bounded(nodes, b, errors, order, transpose, out, forced, choose):
    """With bounds in place of b's errors; with `choose`, in Leja's order where it may be better."""
    m, width = b.shape
    if not (forced or np.isfinite(nodes).all()):
        return False
    x, finite, there = nodes[order], True, False
    leja, y = np.empty(m, np.int64), np.empty_like(nodes)
    found, limits = np.empty_like(nodes), np.empty(m)
    other, others = np.empty_like(nodes), np.empty(m)
    for t in range(width):
        good = _bounded_in_order(x, order, b, errors, t, transpose, found, limits)
        if choose and not (good and _is_accurate(found, limits)):
            if not there:
                leja_order(nodes, leja)
                y[:], there = nodes[leja], True
            finds = _bounded_in_order(y, leja, b, errors, t, transpose, other, others)
            stays = good and (not finds or _is_better(found, limits, other))
            for i in range(m):
                far = abs(found[i] - other[i])
                if stays:
                    limits[i] = min(limits[i], 1.001 * (far + others[i]) if finds else np.inf)
                else:
                    limits[i] = min(others[i], 1.001 * (far + limits[i]) if good else np.inf)
                    found[i] = other[i]
            good = good or finds
        finite = finite and good
        if not (good or forced):
            return False
        for i in range(m):
            out[i, t], errors[i, t] = found[i], limits[i]
    return finite


@njit
def _order_on_ray(nodes, order):
    """Order by modulus, if all nodes are on one ray from 0, or nearly so; whether they are."""
    size, far = np.empty(nodes.size), nodes[0]
    for i in range(nodes.size):
        size[i] = larger_part(nodes[i])
        if size[i] > larger_part(far):
            far = nodes[i]
    for z in nodes:
        if not _is_beside(z, far):
            return False
    order[:] = np.argsort(size, kind="mergesort")  # which is stable
    return True


def _is_beside(z, far):
    """Whether the angle between two numbers is nearly 0, or a number is 0."""


@overload(_is_beside)
def _is_beside_of(z, far):
    if isinstance(z, types.Complex):

        def is_beside(z, far):
            along = z.real * far.real + z.imag * far.imag
            return abs(z.imag * far.real - z.real * far.imag) <= _RAY * along

        return is_beside
    return lambda z, far: not (z > 0 if far < 0 else z < 0)


@njit
def _solve_vandermonde(nodes, b, order, transpose, out, forced):
    return _solve_in_order(nodes[order], b, order, transpose, out, forced)


def solve_vandermonde(nodes, b, order, transpose, out, forced=False, bound=None, choose=False):
    if order is None:
        order = np.empty(nodes.size, dtype=np.int64)
        choose = choose and _order_on_ray(nodes, order)
        if not choose:
            leja_order(nodes, order)
    else:
        choose = False
    if not b.flags.writeable:  # all would be compiled again for it
        b = b.copy()
    shape = nodes.size, -1
    given = nodes, b.reshape(shape)
    how = bool(transpose), out.reshape(shape), forced
    if choose or bound is not None:
        errors = np.zeros(given[1].shape) if bound is None else bound.reshape(shape)
        finite = _solve_bounded(*given, errors, order, *how, choose)
    else:
        finite = _solve_vandermonde(*given, order, *how)
    return bool(finite) and bool(np.isfinite(nodes).all())
