"""Vandermonde systems: Björck and Pereyra's algorithms."""

from fractions import Fraction

import mpmath
import numpy as np

from .table import KINDS, NODES, WIDE, Kernel, equal, nodes_of, shapes


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


def solve_vandermonde(
    nodes, b, order, transpose, out, bound=None, choose=False, may_overflow=False
):
    """Solve ``V x = b`` or ``V^T x = b``, V = np.vander(nodes, increasing=True).

    C also bounds errors; if it may choose, in another order than Leja's where that is better.
    """
    with np.errstate(all="ignore"):
        found = bjorck_pereyra(nodes, b, transpose, order).astype(out.dtype)
    if not (np.isfinite(found).all() and np.isfinite(nodes).all()):
        return False
    out[...] = found
    return True


# ------------------------------------------------------------ the table


def bjorck_pereyra(nodes, b, transpose, order=None):
    """Solve a system by the published algorithm, in extended precision, nodes in Leja order."""
    kind = np.result_type(nodes, WIDE)
    if order is None:
        order = np.empty(nodes.size, np.int64)
        leja_order(nodes.astype(np.complex128 if nodes.dtype.kind == "c" else np.float64), order)
    x = nodes[order].astype(kind).reshape(-1, *[1] * (b.ndim - 1))
    c = solved_by_steps(x, (b if transpose else b[order]).astype(kind), transpose)
    if transpose:
        c[order] = c.copy()
    return c


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
    more = rng.random(4) < 0.5 if plain is None else [not plain] * 4
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
        "may_overflow": bool(more[2]),
    }


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
)

LEJA = Kernel(
    "leja_order", _unordered, equal, ("order",), shapes(NODES, (1,)), cases=KINDS, wide=False
)
KERNELS = [SOLVE, LEJA]
