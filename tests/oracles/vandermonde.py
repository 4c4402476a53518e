"""Vandermonde systems: Björck and Pereyra's algorithms."""

from fractions import Fraction

import mpmath
import numpy as np

from .lagrange import _larger_part
from .table import KINDS, NODES, WIDE, WIDE_COMPLEX, Kernel, equal, nodes_of, shapes


def leja_order(nodes, order):
    """Write to `order` a permutation that puts the nodes in Leja order."""
    _fill_leja(nodes, order)


def _fill_leja(nodes, order):
    """Write Leja's order. Returns the least mean log2 distance of a node from those before it."""
    m, complex_ = nodes.size, nodes.dtype.kind == "c"
    parts = np.array([nodes.real, nodes.imag] if complex_ else [nodes])
    order[:] = np.arange(m)
    low = max(8, 1 << (m - 1).bit_length()) - 1
    with np.errstate(all="ignore"):
        up = -min(max(_exponent(float(np.abs(parts).max())), -1022), 1022)
        parts *= 2.0**up
        product = np.ones(m)
        best, growth = int(np.argmax(_squares(parts))), 1.0
        least, scaled_by, grown = 0.0, 0, 0
        for k in range(m - 1):
            for each in (*parts, product, order):
                each[[k, best]] = each[[best, k]]
            distance = parts[:, k + 1 :] * growth - growth * parts[:, k : k + 1]
            rest = product[k + 1 :]
            rest *= _squares(distance) if complex_ else np.abs(distance[0])
            top = int(((rest.view(np.int64) & ~low) | np.arange(k + 1, m)).max())
            best = top & low
            if not (top & ~low and k < best < m):  # all products are 0, or not finite
                best = k + 1
            exponent = _exponent(float(np.int64(top).view(np.float64)))
            half = exponent >> 1 if complex_ else exponent
            scaled_by += up + grown
            least = min(least, (half - scaled_by) / (k + 1))
            grown = -half if abs(exponent) <= 1000 else 0
            growth = 2.0**grown
            if k % 16 == 15:  # the order of nodes with such small products does not matter
                np.maximum(rest, 2.0**-500, out=rest)
    return least


def _squares(parts):
    squares = (parts**2).sum(axis=0)
    return squares


def _exponent(x):
    """Exponent of the power of two at or below x; -1023 if x is zero or subnormal."""
    return (int(np.float64(x).view(np.int64)) >> 52 & 0x7FF) - 1023


# csrc/vandermonde.c explains these.
_UNIT, _ACCURATE, _HARMLESS, _RAY = 2.0**-53 * 1.001, 2.0**-48, 2.0**-32, 2.0**-20


_CLUSTERED, _SPREAD, _FILLED, _FEW = -3.5, -0.5, -1.1, 3


_TINY = 2.0**-1074


def solve_vandermonde(nodes, b, order, transpose, out, bound=None, choose=False, widely=False):
    """Solve ``V x = b`` or ``V^T x = b``, V = np.vander(nodes, increasing=True)."""
    m = nodes.size
    columns = b.reshape(m, -1)
    errors = np.zeros(columns.shape) if bound is None else bound.reshape(m, -1)
    try:
        with np.errstate(all="ignore", under="raise"):
            shift = _exponent_near(nodes)
            powers = shift * np.arange(m)[:, None]
            scaled = _times_power(nodes, -shift)
            if transpose:
                columns, errors = (_times_power(a, -powers) for a in (columns, errors))
            solved = _solve_scaled(
                scaled, columns, errors, order, transpose, bound is not None, choose
            )
    except FloatingPointError:
        return False
    if solved is None or not np.isfinite(nodes).all():
        return False
    found, limits = solved
    with np.errstate(all="ignore"):
        if not transpose and shift:
            was, erred = found != 0, limits != 0
            found, limits = (_times_power(a, -powers) for a in (found, limits))
            small = was & (_larger_part(found) < 2.0**-960) | erred & (limits < 2.0**-1000)
            limits += np.where(small, 2 * _TINY, 0.0)
    if not np.isfinite(found).all():
        return False
    out[...] = found.reshape(out.shape)
    if bound is not None:
        bound[...] = limits.reshape(bound.shape)
    return True


def _exponent_near(nodes):
    """Exponent of the power of two nearest to the largest part of a node."""
    part, exponent = np.frexp(_larger_part(nodes).max())
    return int(exponent) - int(part < np.sqrt(0.5)) if 0 < part < 1 else 0


def _times_power(x, exponent):
    """Multiply numbers by 2^exponent, rounded once."""
    product = np.empty_like(x)
    product.real = np.ldexp(x.real, exponent)
    if x.dtype.kind == "c":
        product.imag = np.ldexp(x.imag, exponent)
    return product


def _solve_scaled(nodes, b, errors, order, transpose, bounded, choose):
    """The solution and, if wanted, bounds of its errors; None if no order is shown to be good."""
    leja = np.empty(nodes.size, dtype=np.int64)
    if order is not None:
        return _solve_in_order(nodes, b, errors, order, transpose, bounded)
    values = np.count_nonzero(b, axis=0)
    sparse = (2 * values < nodes.size) & (choose and not transpose)
    few = sparse & (values <= _FEW)
    enough = _CLUSTERED
    if (sparse & ~few).any():
        real = nodes.dtype.kind == "f"
        enough = _FILLED + np.log2(_larger_part(nodes).max()) if real else _SPREAD
    apart, rising = _fill_leja(nodes, leja), None
    doubtful = choose and not apart >= enough
    if doubtful or (choose and _are_on_ray(nodes)):
        rising = np.argsort(_larger_part(nodes), kind="stable")
    x, limits = np.empty_like(b), np.empty_like(errors)
    for columns in ([~few] if not few.all() else []) + list(np.eye(few.size, dtype=bool)[few]):
        mine, taken = (b[:, columns], errors[:, columns]), leja
        if (few & columns).any():
            taken = leja[np.argsort(mine[0][leja, 0] != 0, kind="stable")]  # `part` of csrc
        if rising is None:
            found = _solve_in_order(nodes, *mine, taken, transpose, bounded)
        else:
            chosen = _choose(nodes, *mine, rising, taken, transpose, bounded, doubtful)
            if chosen is None:
                return None
            found = chosen
        x[:, columns], limits[:, columns] = found
    return x, limits


def _choose(nodes, b, errors, rising, leja, transpose, bounded, doubtful):
    """The solution in rising order where it is accurate, else the better one; None if in doubt."""
    found, limits = _solve_in_order(nodes, b, errors, rising, transpose, True)
    if not np.isfinite(found).all():
        return None
    short = ~_are_accurate(found, limits)
    if short.any():
        first, rest = (found[:, short], limits[:, short]), (b[:, short], errors[:, short])
        other = _solve_in_order(nodes, *rest, leja, transpose, bounded or doubtful)
        if not np.isfinite(other[0]).all():
            return None
        with np.errstate(under="ignore"):
            best = _better(first, other, doubtful)
        if best is None:
            return None
        found[:, short], limits[:, short] = best
    return found, limits


def _are_on_ray(nodes):
    """Whether all nodes are on one ray from 0, or nearly so."""
    far = nodes[np.argmax(_larger_part(nodes))]
    with np.errstate(all="ignore"):
        if nodes.dtype.kind == "c":
            along = nodes.real * far.real + nodes.imag * far.imag
            across = np.abs(nodes.imag * far.real - nodes.real * far.imag)
            return bool((across <= _RAY * along).all())
        return not ((nodes > 0) if far < 0 else (nodes < 0)).any()


def _solve_in_order(nodes, b, errors, order, transpose, bounded):
    """The solution and, if `bounded`, bounds of its errors, from those of b."""
    m, complex_ = nodes.size, nodes.dtype.kind == "c"
    in_product, in_quotient = (3, 12) if complex_ else (1, 6)
    x = nodes[order].reshape(-1, 1)
    c, e = (a.copy() if transpose else a[order] for a in (b, errors / _UNIT))

    def subtract(k, to, what):
        if bounded:
            e[to] += np.abs(x[k]) * (e[what] + in_product * np.abs(c[what]))
        c[to] -= x[k] * c[what]
        if bounded:
            e[to] += np.abs(c[to])

    for k in range(m - 1):
        if transpose:
            subtract(k, slice(k + 1, None), slice(k, -1))
        else:
            d = x[k + 1 :] - x[: m - k - 1]
            c[k + 1 :] = (c[k + 1 :] - c[k:-1]) / d
            if bounded:
                e[k + 1 :] = (e[k + 1 :] + e[k:-1]) / np.abs(d)
                e[k + 1 :] += (in_quotient + 1) * np.abs(c[k + 1 :])
    for k in range(m - 2, -1, -1):
        if transpose:
            d = x[k + 1 :] - x[: m - k - 1]
            c[k + 1 :] /= d
            if bounded:
                e[k + 1 :] = e[k + 1 :] / np.abs(d) + in_quotient * np.abs(c[k + 1 :])
                e[k:-1] += e[k + 1 :]
            c[k:-1] -= c[k + 1 :]
            if bounded:
                e[k:-1] += np.abs(c[k:-1])
        else:
            subtract(k, slice(k, -1), slice(k + 1, None))
    with np.errstate(under="ignore"):
        e = _UNIT * e + np.where(e > 0, _TINY, 0.0)
    e[:, ~np.isfinite(c).all(axis=0)] = np.inf
    e[np.isnan(e)] = np.inf
    if not transpose:
        return c, e
    found, limits = np.empty_like(c), np.empty_like(e)
    found[order], limits[order] = c, e
    return found, limits


def _are_accurate(x, e):
    """Whether all numbers of each column are good to about their last digits."""
    good = np.all(e <= _ACCURATE * len(x) * _larger_part(x), axis=0)
    return good


def _better(first, second, doubtful):
    """For each column, take the second solution, unless bounds prove that the first is better."""
    (x, e), (other, others) = first, second
    better = np.zeros(x.shape[1], dtype=bool)
    if doubtful:
        if not _are_accurate(other, others).all():
            return None
    else:
        size, gap = _larger_part(x), _larger_part(x - other)
        proven = np.maximum(gap - e, 0.0)  # the other's error is no less
        known = (e < size) | (e == 0)
        relative = np.where(e > 0, e / (size - e), 0.0)
        worst = np.where(known, relative, np.inf).max(axis=0)
        least = np.where(proven > 0, proven / (1.5 * size + e), 0.0).max(axis=0)
        most, largest, proven = e.max(axis=0), size.max(axis=0), proven.max(axis=0)
        better = (worst < least) & ((most <= proven) | (most <= _HARMLESS * largest))
        if (~better & (most < proven) & (proven > _ACCURATE * len(x) * largest)).any():
            return None
    far = np.abs(x - other)
    # A number's error is at most its distance from another one, plus that one's bound.
    e, others = np.fmin(e, 1.001 * (far + others)), np.fmin(others, 1.001 * (far + e))
    return np.where(better, x, other), np.where(better, e, others)


# ------------------------------------------------------------ the table


def bjorck_pereyra(x, b, transpose):
    """Solve a system by the published algorithm, in extended precision, nodes in Leja order."""
    wide = WIDE_COMPLEX if np.iscomplexobj(x) else WIDE
    order, product = [int(np.argmax(np.abs(x)))], np.ones(x.size, WIDE)
    while len(order) < x.size:
        product = product * np.abs(x - x[order[-1]])
        order.append(int(np.argmax(product)))
    c = solved_by_steps(
        x[order].astype(wide), (b if transpose else b[order]).astype(wide), transpose
    )
    if not transpose:
        return c
    solved = np.empty_like(c)
    solved[order] = c
    return solved


def solved_by_steps(x, c, transpose):
    """Solve a system by the published algorithm, in the order of the nodes and the arrays' dtype.

    `c` is overwritten. With `transpose`, the solution has a number for each node, in their order.
    """
    m = len(x)
    if transpose:
        for k in range(m - 1):
            c[k + 1 :] -= c[k:-1] * x[k]
        for k in range(m - 2, -1, -1):
            c[k + 1 :] /= x[k + 1 :] - x[: m - k - 1]
            c[k:-1] -= c[k + 1 :]
        return c
    for k in range(m - 1):
        c[k + 1 :] = (c[k + 1 :] - c[k:-1]) / (x[k + 1 :] - x[: m - k - 1])
    for k in range(m - 2, -1, -1):
        c[k:-1] -= c[k + 1 :] * x[k]
    return c


def truth(nodes, b, transpose):
    """Solve exactly: in rationals for few real nodes, otherwise in 700 digits or more.

    Digits suffice if twice as many change nothing before the fortieth digit, or nothing above a
    size far below that of doubles.
    """
    if nodes.dtype.kind == "f" and nodes.size <= 16:
        x, c = (np.array([Fraction(z) for z in a.tolist()], object) for a in (nodes, b))
        return [_number(z) for z in solved_by_steps(x, c, transpose)]
    order = np.argsort(np.abs(nodes), kind="stable")
    digits, last = 700, None
    while True:
        with mpmath.workdps(digits):
            x, c = (
                np.array([mpmath.mpmathify(z) for z in a.tolist()], object)
                for a in (nodes[order], b if transpose else b[order])
            )
            found = solved_by_steps(x, c, transpose).tolist()
            if last is not None and all(
                abs(a - z) <= max(abs(z) * mpmath.mpf(10) ** -40, mpmath.mpf(10) ** -400)
                for a, z in zip(found, last, strict=True)
            ):
                break
            last, digits = found, 2 * digits
    if transpose:
        found = [z for _, z in sorted(zip(order.tolist(), found, strict=True), key=lambda p: p[0])]
    return found


def _number(z):
    with mpmath.workdps(700):
        return mpmath.mpf(z.numerator) / z.denominator


def far(x, true):
    """Return the errors as numbers of mpmath, which may be of any size."""
    with mpmath.workdps(700):
        return [abs(mpmath.mpmathify(a) - z) for a, z in zip(x.tolist(), true, strict=True)]


def _system(rng, size, count, dtype, transpose, complex_, plain=None):
    """Draw a system; unless `plain`, it may be asked for bounds, in a given order, and so on."""
    nodes = nodes_of(rng, size, complex_)
    b = rng.standard_normal((size, max(count, 1))).astype(nodes.dtype)
    if complex_:
        b += 1j * rng.standard_normal(b.shape)
    if count == 1:
        b = b[:, 0].copy()
    more = rng.random(4) < 0.25 if plain is None else [not plain] * 4
    order = np.arange(size) if more[3] else None
    if more[3]:
        leja_order(nodes, order)
    return {
        "nodes": nodes,
        "b": b,
        "order": order,
        "transpose": transpose,
        "out": np.zeros_like(b),
        "bound": np.zeros(b.shape) if more[0] else None,
        "choose": bool(more[1]),
        "widely": bool(more[2]),
    }


def _solved_truly(given):
    nodes, b = given["nodes"], given["b"]
    columns = b.reshape(nodes.size, -1).T
    solved = [bjorck_pereyra(nodes, column, given["transpose"]) for column in columns]
    return {"returned": True, "out": np.array(solved).T.reshape(b.shape)}


def _near_solution(given, found, truth):
    assert found["returned"]
    error = np.abs(found["out"] - truth["out"])
    assert (error.max(axis=0) <= 3e-14 * len(error) * np.abs(truth["out"]).max(axis=0)).all()
    if given["bound"] is not None:
        assert (error <= found["bound"]).all()


def _unordered(rng, size, count, dtype, complex_):
    nodes = rng.standard_normal(size)
    if complex_:
        nodes = nodes + 1j * rng.standard_normal(size)
    return {"nodes": nodes, "order": np.zeros(size, np.int64)}


COLUMNS = (*shapes(NODES[:8], (1, 2, 3, 4, 5, 9)), *shapes(NODES[8:], (1, 6)))

SOLVE = Kernel(
    "solve_vandermonde",
    _system,
    _near_solution,
    ("out", "bound"),
    COLUMNS,
    cases=tuple(kind | {"transpose": t} for t in (False, True) for kind in KINDS),
    truth=_solved_truly,
)

LEJA = Kernel(
    "leja_order", _unordered, equal, ("order",), shapes(NODES, (1,)), cases=KINDS, wide=False
)
KERNELS = [SOLVE, LEJA]
