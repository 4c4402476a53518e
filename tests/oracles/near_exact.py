"""Ridge regressions of near-exact decoding vectors."""

import math

import numpy as np

from .table import Kernel, shapes

BLOCK = 64  # unknowns of a triangular system that are solved for at a time


def _back(triangle, y):
    """Solve a system with an upper triangular matrix."""
    y = y.copy()
    for end in range(len(y), 0, -BLOCK):
        start = max(end - BLOCK, 0)
        y[start:end] = np.linalg.solve(triangle[start:end, start:end], y[start:end])
        y[:start] -= triangle[:start, start:end] @ y[start:end]
    return y


# MARGIN: assumed size of the solution, relative to that of the parts found so far. LARGER: steps
# end once the rounding is so many times the least error so far. NOTHING: a pivot so small, relative
# to the first, is mere rounding.
MARGIN, LARGER, NOTHING = 64.0, 4.0, 1e-18


def cauchy_ridge(x, y, g, h, b, unit, size, out):
    """Write to `out` a short z that nearly solves ``C z = b``, C[i, k] = g_i h_k / (x_i - y_k)."""
    c = h.size
    left, g, h = b.copy(), g.copy(), h.copy()
    rows = []
    columns = []
    upper = []
    parts = []
    rank, least, first = 0, math.inf, 0.0
    while True:
        bias, rounding = float(np.linalg.norm(left)), MARGIN * unit * math.sqrt(size)
        if math.hypot(bias, rounding) < least:
            rank, least = len(rows), math.hypot(bias, rounding)
        if len(rows) == min(g.size, c) or rounding > LARGER * least:
            break
        p, q, row, under, column, over = _pivot(x, g, y, h)
        pivot = column[p]
        first = first or abs(pivot)
        if not abs(pivot) > NOTHING * first:
            break
        part = left[p] / pivot
        left = left - column * part
        size += abs(part) ** 2
        rows.append(p)
        columns.append(q)
        upper.append(row / pivot)
        parts.append(part)
        g = g * _apart(x, x[:, p]) * over
        h = h * _apart(y, y[:, q]) * under
        left[p] = g[p] = h[q] = 0
    out[:] = 0
    if not rank:
        return
    pivots = np.array(columns[:rank])
    others = np.setdiff1d(np.arange(c), pivots)
    equations = np.array(upper[:rank])
    basic = _back(equations[:, pivots], np.array(parts[:rank]))
    w = _back(equations[:, pivots], equations[:, others])
    if 2 * rank < c:
        out[pivots] = np.linalg.solve(np.eye(rank) + w @ w.T, basic)
        out[others] = w.T @ out[pivots]
    else:
        out[others] = np.linalg.solve(np.eye(c - rank) + w.T @ w, w.T @ basic)
        out[pivots] = basic - w @ out[others]


def _pivot(x, g, y, h):
    """Find an entry that is the largest of its row and column."""
    p = int(np.argmax(np.abs(g)))
    while True:  # each entry is larger than the one before
        under = 1 / _apart(y, x[:, p])
        row = -g[p] * h * under
        q = int(np.argmax(np.abs(row)))
        over = 1 / _apart(x, y[:, q])
        column = g * h[q] * over
        better = int(np.argmax(np.abs(column)))
        if not abs(column[better]) > abs(column[p]):
            return p, q, row, under, column, over
        p = better


WORTH = 0.5  # an exchange makes the logarithm of the determinant so much larger


def exchange(table, key, enough, c, zero):
    """Mark others of n roots, until no exchange makes the weighted determinant much larger."""
    n = key.size
    while True:
        comes = np.where(zero, -math.inf, key).argmax()
        after, low, full = key + table[n - comes :][:n], enough, np.count_nonzero(zero) == c
        if full:
            goes = np.where(zero, after, math.inf).argmin()
            low = after[goes] if c else math.inf
        if not key[comes] > low + WORTH:
            return True
        zero[comes], key = 1, after
        if full:
            zero[goes], key = 0, after - table[n - goes :][:n]


def _apart(nodes, node):
    found = (nodes[0] - node[0]) + (nodes[1] - node[1])
    return found


# ------------------------------------------------------------ the table


def _equations(rng, size, count, dtype, unit):
    """Draw interlacing nodes, some of them close, and weights."""
    nodes = np.sort(rng.standard_normal(size + count))
    chosen = rng.permutation(size + count)
    x, y = (
        np.stack([nodes[at], 1e-17 * rng.standard_normal(at.size)])
        for at in (np.sort(chosen[:size]), np.sort(chosen[size:]))
    )
    return {
        "x": x,
        "y": y,
        "g": rng.uniform(0.5, 2, size),
        "h": rng.uniform(0.5, 2, count),
        "b": rng.standard_normal(size) + 1j * rng.standard_normal(size),
        "unit": unit,
        "size": 0.0,
        "out": np.zeros(count, complex),
    }


def _near_ridge(given, found, truth):
    """Assert that the solution is as good and as short as NumPy's."""
    x, y, b = (given[name] for name in "xyb")
    apart = np.subtract.outer(x[0], y[0]) + np.subtract.outer(x[1], y[1])
    matrix = given["g"][:, None] * given["h"] / apart

    def cost(z):
        return np.hypot(np.linalg.norm(matrix @ z - b), 64 * given["unit"] * np.linalg.norm(z))

    rounding = 1e-14 * np.linalg.norm(matrix) * np.linalg.norm(truth["out"])
    assert cost(found["out"]) <= 1.2 * cost(truth["out"]) + rounding
    assert np.linalg.norm(found["out"]) <= 1.1 * np.linalg.norm(truth["out"])


def _zeros(rng, size, count, dtype, spare):
    """Draw weights, and roots that are zeros."""
    n = size + count
    turns = np.arange(1, n)
    table = np.resize(np.append(0, np.log(2 * np.sin(np.pi / n * turns))), 2 * n + 8)
    return {
        "table": table,
        "key": 3 * rng.standard_normal(n),
        "enough": 1.0,
        "c": min(count + spare, n - 1),
        "zero": (rng.permutation(n) < count).astype(np.uint8),
    }


def _same(given, found, truth):
    np.testing.assert_array_equal(found["zero"], truth["zero"])
    assert np.count_nonzero(found["zero"]) <= given["c"]
    assert found["returned"]


KERNELS = [
    Kernel(
        "exchange",
        _zeros,
        _same,
        ("zero",),
        shapes((1, 2, 3, 8, 40, 100), (0, 1, 2, 7, 16, 33)),
        cases=({"spare": 0}, {"spare": 3}),
    ),
    Kernel(
        "cauchy_ridge",
        _equations,
        _near_ridge,
        ("out",),
        shapes((1, 2, 3, 8, 17, 40), (*range(1, 20), 33, 64)),
        cases=({"unit": 2.0**-53}, {"unit": 2.0**-24}),
        wide=False,
    ),
]
