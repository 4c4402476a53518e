"""Vandermonde systems: Björck and Pereyra's algorithms."""

from __future__ import annotations

import ctypes
import math
import platform

import numpy as np
from llvmlite import binding
from numba import types
from numba.extending import overload

from ..numpy import vandermonde as plain
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

__all__ = ["leja_order", "solve_vandermonde", "vandermonde_column"]


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
def _fill_leja(nodes, order):
    """Write Leja's order. Returns the least mean log2 distance of a node from those before it.

    Every rounding is that of csrc/vandermonde.c, which says why.
    """
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
    least, scaled_by, grown = 0.0, 0, 0
    for k in range(m - 1):
        at, where = x[chosen], order[chosen]
        x[chosen], product[chosen], order[chosen] = x[k], product[k], order[k]
        x[k], order[k] = at, where
        top = _multiply_distances(x, k, growth, product, low)
        chosen = top & low
        if not top & ~low or chosen <= k or chosen >= m:  # all products are 0, or not finite
            chosen = k + 1
        e = _exponent(double_of(top))
        scaled_by += up + grown
        least = min(least, (_of_distance(e, x[k]) - scaled_by) / (k + 1))
        grown = -_of_distance(e, x[k]) if abs(e) <= 1000 else 0
        growth = power_of_two(grown)
        if k % 16 == 15:  # the order of nodes with such small products does not matter
            for i in range(k + 1, m):
                product[i] = max(product[i], 2.0**-500)
    return least


@njit_exact
def leja_order(nodes, order):
    """Write to `order` a permutation that puts the nodes in Leja order."""
    _fill_leja(nodes, order)


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
def vandermonde_column(x, c, transpose):
    """Solve ``V^T a = c``, or ``V a = c``, in place: Björck and Pereyra's algorithms.

    `x` holds the nodes, (m,), in the order in which they are taken. Without `transpose` the entries
    of c are in this order, with it the entries of a. Nodes are not scaled, so that results may
    over- or underflow.
    """
    if c.size != x.size:
        raise ValueError("c must be as long as x")
    _solve_columns(x, c.reshape(1, x.size), transpose)


@njit
def _solve_in_order(nodes, b, start, stop, rows, powers, transpose, out):
    """Solve for columns start .. stop-1 of b, with nodes in the order `rows`.

    b[i] is multiplied by powers[i] if `transpose`, else out[i] is. Returns whether all is finite.
    """
    m, x = nodes.size, nodes[rows]
    work = np.empty((min(stop - start, _COLUMNS), m), x.dtype)
    for done in range(start, stop, _COLUMNS):
        columns = work[: min(_COLUMNS, stop - done)]
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
def _solve_plainly(nodes, b, order, powers, transpose, parting, out):
    """Solve for all columns in `order`; if `parting`, columns of few values take it in parts."""
    start, width = 0, b.shape[1]
    while start < width:
        stop, taken = start + 1, order
        if parting and _has_few(b, start):
            taken = _parted(order, b, start)
        else:
            while stop < width and not (parting and _has_few(b, stop)):
                stop += 1
        if not _solve_in_order(nodes, b, start, stop, taken, powers, transpose, out):
            return False
        start = stop
    return True


# csrc/vandermonde.c explains these.
_UNIT, _ACCURATE, _HARMLESS, _RAY = 2.0**-53 * 1.001, 2.0**-48, 2.0**-32, 2.0**-20
_CLUSTERED, _SPREAD, _FILLED, _FEW = -3.5, -0.5, -1.1, 3
_TINY = 2.0**-1074


@by_types
def _roundings(x):
    """Roundings of a product, and of a quotient, of numbers like those of x."""
    return (lambda x: (3.0, 12.0)) if isinstance(x.dtype, types.Complex) else lambda x: (1.0, 6.0)


@njit
def _bounded_column(x, c, e, transpose):
    """Solve in place; x and c are in the order of elimination, e bounds c's errors, in _UNIT."""
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
def _bounded_in_order(nodes, order, b, errors, powers, t, transpose, found, limits):
    """Solve for column t, with bounds of errors from those of b. Returns whether it is finite."""
    m, x = nodes.size, nodes[order]
    c, e = np.empty_like(x), np.empty(m)
    for i in range(m):
        row, power = (i, powers[i]) if transpose else (order[i], 1.0)
        c[i], e[i] = times(b[row, t], power), errors[row, t] * power / _UNIT
    _bounded_column(x, c, e, transpose)
    for i in range(m):
        row, limit = order[i] if transpose else i, e[i] * _UNIT
        if e[i] > 0:
            limit += _TINY
        found[row], limits[row] = c[i], limit if limit < np.inf else np.inf
    return np.isfinite(c).all()


@njit
def _is_accurate(x, e):
    """Whether all numbers are good to about their last digits."""
    limit, all_ = _ACCURATE * x.size, True
    for i in range(x.size):
        all_ = all_ and e[i] <= limit * larger_part(x[i])
    return all_


_WORSE, _BETTER, _UNDECIDED = range(3)


@njit
def _compare(x, e, other):
    """Whether the bounds e prove that x is better than `other`: as in csrc/vandermonde.c."""
    most = most_relative = least = least_relative = largest = 0.0
    for i in range(x.size):
        size = larger_part(x[i])
        if not (e[i] < size or e[i] == 0):
            most_relative = np.inf
        elif e[i] > 0:
            most_relative = max(most_relative, e[i] / (size - e[i]))
        proven = larger_part(x[i] - other[i]) - e[i]  # the other's error is no less
        if proven > 0:
            least_relative = max(least_relative, proven / (1.5 * size + e[i]))
            least = max(least, proven)
        most, largest = max(most, e[i]), max(largest, size)
    if most_relative < least_relative and (most <= least or most <= _HARMLESS * largest):
        return _BETTER
    undecided = most < least and least > _ACCURATE * x.size * largest
    return _UNDECIDED if undecided else _WORSE


@njit
def _solve_bounded(
    x, b, errors, first, leja, powers, transpose, out, bounded, choose, doubtful, moved, parting
):
    """Solve with bounds, which replace b's errors; if `choose`, in Leja's order where needed."""
    m, width = b.shape
    found, limits = np.empty_like(x), np.empty(m)
    other, others = np.empty_like(x), np.empty(m)
    for t in range(width):
        second = leja
        if parting and _has_few(b, t):
            second = _parted(leja, b, t)
        order = first if choose else second
        if not _bounded_in_order(x, order, b, errors, powers, t, transpose, found, limits):
            return False
        if choose and not _is_accurate(found, limits):
            if not _bounded_in_order(x, second, b, errors, powers, t, transpose, other, others):
                return False
            if doubtful:
                verdict = _WORSE if _is_accurate(other, others) else _UNDECIDED
            else:
                verdict = _compare(found, limits, other)
            if verdict == _UNDECIDED:
                return False
            for i in range(m):
                far = abs(found[i] - other[i])
                if verdict == _BETTER:
                    limits[i] = min(limits[i], 1.001 * (far + others[i]))
                else:
                    limits[i] = min(others[i], 1.001 * (far + limits[i]))
                    found[i] = other[i]
        if moved and not transpose:
            for i in range(m):
                was, erred = found[i] != 0, limits[i] != 0
                found[i], limits[i] = times(found[i], powers[i]), limits[i] * powers[i]
                small = larger_part(found[i]) < 2.0**-960
                if (was and small) or (erred and limits[i] < 2.0**-1000):
                    limits[i] += 2 * _TINY
            if not np.isfinite(found).all():
                return False
        for i in range(m):
            out[i, t] = found[i]
            if bounded:
                errors[i, t] = limits[i]
    return True


@njit
def _are_on_ray(nodes):
    """Whether all nodes are on one ray from 0, or nearly so."""
    far = nodes[0]
    for z in nodes:
        if larger_part(z) > larger_part(far):
            far = z
    beside = True
    for z in nodes:
        beside = beside and _is_beside(z, far)
    return beside


@njit
def _rising(nodes):
    """The rising order of the nodes' larger parts."""
    size = np.empty(nodes.size)
    for i in range(nodes.size):
        size[i] = larger_part(nodes[i])
    return np.argsort(size, kind="mergesort")  # stable


@njit
def _count_values(b, t, most):
    """Count the numbers of column t that differ from 0, up to `most`."""
    found = 0
    for i in range(b.shape[0]):
        found += b[i, t] != 0
        if found >= most:
            break
    return found


@njit
def _has_few(b, t):
    """Whether at most _FEW numbers of column t differ from 0, and these are fewer than half."""
    found = _count_values(b, t, _FEW + 1)
    return found <= _FEW and 2 * found < b.shape[0]


@njit
def _is_sparse(b):
    """Whether in some column more than _FEW numbers differ from 0, but fewer than half."""
    half, sparse = (b.shape[0] + 1) // 2, False
    for t in range(b.shape[1]):
        sparse = sparse or _FEW < _count_values(b, t, half) < half
    return sparse


@njit
def _parted(order, b, t):
    """The order with rows first that are 0 in column t: see `part` in csrc/vandermonde.c."""
    parted, at = np.empty_like(order), 0
    for last in (False, True):
        for i in order:
            if (b[i, t] != 0) == last:
                parted[at] = i
                at += 1
    return parted


@by_types
def _enough(nodes):
    """Least mean distance for which Leja's order is trusted if most values at the nodes are 0."""
    if isinstance(nodes.dtype, types.Complex):
        return lambda nodes: _SPREAD
    return lambda nodes: _FILLED + np.log2(np.abs(nodes).max())


@by_types
def _is_beside(z, far):
    """Whether the angle between two numbers is nearly 0, or a number is 0."""
    if isinstance(z, types.Complex):

        def is_beside(z, far):
            along = z.real * far.real + z.imag * far.imag
            return abs(z.imag * far.real - z.real * far.imag) <= _RAY * along

        return is_beside
    return lambda z, far: not (z > 0 if far < 0 else z < 0)


@njit
def _orders(nodes, b, transpose, choose):
    """The first order and Leja's; whether to choose between them; whether Leja's is doubtful."""
    leja = np.empty(nodes.size, np.int64)
    apart = _fill_leja(nodes, leja)
    if not choose:
        return leja, leja, False, False
    enough = _CLUSTERED
    if not transpose and _is_sparse(b):
        enough = _enough(nodes)
    doubtful = not apart >= enough
    if not (doubtful or _are_on_ray(nodes)):
        return leja, leja, False, False
    return _rising(nodes), leja, True, doubtful


@njit
def _scale(nodes):
    """Divide nodes by the power of two nearest to their largest part.

    Returns the nodes, the rows' powers, whether these are in a double's range, and whether they
    differ from 1.
    """
    scaled, powers, largest = nodes.copy(), np.ones(nodes.size), 0.0
    for z in nodes:
        largest = max(largest, larger_part(z))
    part, exponent = math.frexp(largest)
    if part < math.sqrt(0.5):
        exponent -= 1
    if not largest > 0 or exponent == 0:
        return scaled, powers, True, False
    if abs(exponent) * (nodes.size - 1) > 1022:
        return scaled, powers, False, True
    half = exponent // 2
    for i in range(nodes.size):
        scaled[i] = times(times(nodes[i], power_of_two(-half)), power_of_two(half - exponent))
        powers[i] = power_of_two(-exponent * i)
    return scaled, powers, True, True


# The processor's flag for underflow, FE_UNDERFLOW of C's library, by the kind of machine.
_FLAG = {"x86_64": 0x10, "aarch64": 8, "arm64": 8}.get(platform.machine(), 0)
_clear_flags = types.ExternalFunction("feclearexcept", types.intc(types.intc))
_test_flags = types.ExternalFunction("fetestexcept", types.intc(types.intc))
if _FLAG:
    for _name in ("feclearexcept", "fetestexcept"):  # wherever this process has them
        _address = ctypes.cast(getattr(ctypes.CDLL(None), _name), ctypes.c_void_p).value
        binding.add_symbol(_name, _address)


@njit
def _solve(nodes, b, order, transpose, out, bound, choose):
    """Solve for columns; `order` and `bound` are empty if there are none."""
    m, bounded = nodes.size, bound.size > 0
    if b.size == 0 or len(b) != m or b.shape != out.shape or (bounded and bound.shape != b.shape):
        raise ValueError("b, out and bound must be of one shape, with a row for each node")
    if not np.isfinite(nodes).all():
        return False
    _clear_flags(_FLAG)
    scaled, powers, done, moved = _scale(nodes)
    if not done:
        return False
    first = leja = order
    choosing = doubtful = False
    parting = order.size == 0 and choose and not transpose
    if order.size == 0:
        first, leja, choosing, doubtful = _orders(scaled, b, transpose, choose)
    elif order.size != m or order.min() < 0 or order.max() >= m:
        raise ValueError("order must be numbers of nodes, as many as there are nodes")
    if choosing or bounded:
        errors = bound if bounded else np.zeros(b.shape)
        done = _solve_bounded(
            scaled, b, errors, first, leja, powers, transpose, out, bounded, choosing, doubtful,
            moved, parting,
        )  # fmt: skip
    else:
        done = _solve_plainly(scaled, b, first, powers, transpose, parting, out)
    return done and not _test_flags(_FLAG)


_NO_ORDER, _NO_BOUND = np.empty(0, np.int64), np.empty((0, 0))


def solve_vandermonde(nodes, b, order, transpose, out, bound=None, choose=False):
    if not _FLAG:
        return plain.solve_vandermonde(nodes, b, order, transpose, out, bound, choose)
    # A read-only array would have all compiled again.
    nodes, b = (x if x.flags.writeable else x.copy() for x in (nodes, b))
    shape = nodes.size, -1
    return _solve(
        nodes,
        b.reshape(shape),
        _NO_ORDER if order is None else order,
        bool(transpose),
        out.reshape(shape),
        _NO_BOUND if bound is None else bound.reshape(shape),
        bool(choose),
    )


@by_types
def _writable(x):
    """The array, or a copy if it is read-only."""
    return (lambda x: x) if x.mutable else (lambda x: x.copy())


@by_types
def _columns(x):
    """The array with a row for each node; without rows if it is None."""
    if isinstance(x, types.Array):
        return lambda x: x.reshape(len(x), x.size // max(len(x), 1))
    return lambda x: np.empty((0, 0))


@by_types
def _numbers(order):
    """The order; empty if it is None."""
    if isinstance(order, types.Array):
        return lambda order: order
    return lambda order: np.empty(0, np.int64)


if _FLAG:  # other machines use NumPy's function

    @overload(solve_vandermonde)
    def _solve_vandermonde(nodes, b, order, transpose, out, bound=None, choose=False):
        def solve(nodes, b, order, transpose, out, bound=None, choose=False):
            return _solve(
                _writable(nodes),
                _columns(_writable(b)),
                _numbers(order),
                bool(transpose),
                _columns(out),
                _columns(bound),
                bool(choose),
            )

        return solve
