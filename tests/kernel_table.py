"""The table of kernels: one entry for each, with its arguments and how far it may be off.

The truth is the oracle's, computed in extended precision. Tests compare C and Numba with it at all
sizes, dtypes and SIMD levels; the fuzzer and benches call kernels with these arguments.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import oracles

from fastgc import kernels
from fastgc.kernels import Status
from fastgc.kernels.cyclic import LOCATOR, LOOKUP, CyclicPlan, cyclic_tables

WIDE = np.longdouble
WIDE_COMPLEX = np.clongdouble
HALVES = (np.float16, ml_dtypes.bfloat16)
REALS = (np.float32, np.float64)
UNIT = {np.float32: 2.0**-24, np.float64: 2.0**-53, **dict.fromkeys(HALVES, 2.0**-24)}  # of sums
U = UNIT[np.float64]

LONG = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 1025, 4097, 16385)
NODES = (1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 33, 65)


def _plainly(function, given):
    return function(**given)


@dataclass(frozen=True)
class Kernel:
    """How to call a kernel, and what its results must be.

    Attributes
    ----------
    name : str
        Of the call in `fastgc.kernels.unchecked`, and of its oracle.
    make : callable
        ``make(rng, size, count, dtype, **case)`` returns the call's arguments by name: `count`
        vectors of `size` elements; or `size` workers of which `count` straggle; or `size` nodes and
        `count` points or columns.
    check : callable
        ``check(given, found, truth)`` asserts that results are near the truth, for the arguments
        before the call. Results are a dict: arrays that are written, and what is "returned".
    writes : tuple of str
        Arguments that it writes.
    shapes : iterable of (size, count)
    dtypes : tuple
    cases : tuple of dict
        What `make` takes besides.
    call : callable
        ``call(function, arguments)``; it leaves the arguments as they are, but for arrays.
    wide : bool
        Whether the oracle has its arguments in extended precision.
    truth : callable, optional
        ``truth(arguments)`` returns results by other means than the oracle.
    moves : str, optional
        Of a step: the vector whose change it returns.
    """

    name: str
    make: Callable[..., dict[str, Any]]
    check: Callable[..., None]
    writes: tuple[str, ...]
    shapes: Iterable[tuple[int, int]]
    dtypes: tuple[Any, ...] = (np.float64,)
    cases: tuple[dict[str, Any], ...] = ({},)
    call: Callable[..., Any] = _plainly
    wide: bool = True
    truth: Callable[..., dict[str, Any]] | None = None
    moves: str | None = None

    def run(self, given, function=None):
        """Call the kernel, or another function of its kind; return the results."""
        returned = self.call(function or getattr(kernels.unchecked, self.name), given)
        return {"returned": returned} | {
            name: given[name] for name in self.writes if given.get(name) is not None
        }

    def fresh(self, given):
        """Return the arguments; those that the kernel writes are copies."""
        return given | {name: copy.copy(given[name]) for name in self.writes}

    def true(self, given):
        """Return the true results."""
        if self.truth is not None:
            return self.truth(given)
        given = {
            name: widened(value) if self.wide else copy.deepcopy(value)
            for name, value in given.items()
        }
        return self.run(given, oracles.NAMED[self.name])


def widened(value):
    """Copy an argument; floats and complex numbers of an array in extended precision."""
    if isinstance(value, list):
        return [widened(each) for each in value]
    if not isinstance(value, np.ndarray) or value.dtype.kind in "iub":
        return copy.deepcopy(value)
    # By way of float64, to which bfloat16 converts.
    value = value.astype(np.result_type(value, np.float64))
    return value.astype(WIDE_COMPLEX if np.iscomplexobj(value) else WIDE)


def equal(given, found, truth):
    for name, value in truth.items():
        if value is not None:
            np.testing.assert_array_equal(found[name], value, name)


def within(bound, found, truth):
    """Assert that numbers are near the truth, or equal to it: Inf, or not a number."""
    with np.errstate(invalid="ignore"):  # Inf minus Inf
        near = np.abs(found - truth) <= bound
    assert (near | (found == truth) | (np.isnan(found) & np.isnan(truth))).all()


def shapes(sizes, counts):
    return [(size, count) for size in sizes for count in counts]


# ------------------------------------------------------------------------------ long vectors


def vectors(rng, size, count, dtype, complex_=False):
    """Draw vectors that begin at the second element: they need not begin on a cache line."""
    rows = []
    for _ in range(count):
        row = rng.standard_normal(size + 1)
        if complex_:
            row = row + 1j * rng.standard_normal(size + 1)
        rows.append(row.astype(np.result_type(dtype, np.complex64) if complex_ else dtype)[1:])
    return rows


def listed(rows):
    """Return vectors as `kernels.Rows`; those in extended precision as oracles take them."""
    if rows[0].dtype in (WIDE, WIDE_COMPLEX):
        return SimpleNamespace(arrays=rows, length=rows[0].size)
    return kernels.Rows.of(rows, rows[0].size, rows[0].dtype)


def _combination(rng, size, count, dtype, mode, accumulate=None, stacked=None):
    rows = vectors(rng, size, count, dtype, complex_=mode == kernels.REAL_PART)
    if rng.random() < 0.5 if stacked is None else stacked:
        wide = np.zeros((count, size + 3), rows[0].dtype)  # gaps between rows
        wide[:, :size] = rows
        rows = wide[:, :size]
    coef = rng.standard_normal(count)
    if mode != kernels.REAL:
        coef = coef + 1j * rng.standard_normal(count)
    out = rng.standard_normal(size + size % 2 if mode == kernels.PACKED else size)
    kind = np.result_type(dtype, np.complex64 if mode == kernels.EXPAND else np.float32)
    return {
        "mode": mode,
        "rows": rows,
        "coef": coef,
        "out": out.astype(kind),
        "accumulate": bool(rng.random() < 0.5) if accumulate is None else accumulate,
        "check": False,
    }


def _chosen(rng, size, count, dtype, mode, accumulate=None):
    """Choose rows from a table with rows of NaN: their coefficients are 0, so none may be read."""
    given = _combination(rng, size, count, dtype, mode, accumulate, stacked=False)
    coef, unread = given["coef"], np.full(size, np.nan).astype(given["rows"][0].dtype)
    table = [each for row in reversed(list(given["rows"])) for each in (unread, row)]
    return given | {
        "rows": table,
        "numbers": np.arange(2 * count)[::-1].copy(),
        "coef": np.stack([coef, np.zeros_like(coef)], axis=1).ravel(),
    }


def _near_combination(given, found, truth):
    """Each element is a sum of products: its error is bounded by the sum of their moduli."""
    dtype = given["rows"][0].real.dtype.type
    used = np.flatnonzero(given["coef"])
    rows = given["rows"] if "numbers" not in given else given["rows"][::-1]
    scale = sum(abs(given["coef"][at]) * float(np.abs(rows[at]).max()) for at in used)
    scale = 2 * scale + np.abs(given["out"]).max()
    within((used.size + 4) * UNIT[dtype] * scale, found["out"], truth["out"])
    assert found["returned"] == truth["returned"]


def _near_sum(given, found, truth):
    size = given["x"].size
    within((size + 4) * U * truth["returned"], found["returned"], truth["returned"])


def _halves(rng, size, count, dtype):
    """Draw numbers in and beyond float16's range, many of them half-way between two float16."""
    x = rng.standard_normal(size) * 2.0 ** rng.integers(-28, 18, size)
    x[1::3] = (2 * rng.integers(0, 2048, x[1::3].size) + 1) * 2.0 ** rng.integers(-25, 6)
    x[2::3] = np.resize([65520, 65519, -np.inf, np.nan, -0.0, 2.0**-25, 1e-40], x[2::3].size)
    with np.errstate(over="ignore", under="ignore"):
        return {"x": x.astype(dtype), "out": np.zeros(size, np.float16)}


def _words(rng, size, count, dtype, keys):
    """Draw words and keys, some of them the largest."""
    words, key = rng.integers(2**64, size=(2, max(size, keys)), dtype=np.uint64)
    words[::5] = 2**64 - 1
    key[:1] = 2**32 - 1
    return {"words": words[:size], "keys": key[:keys], "out": np.zeros(-(-size // keys), np.uint64)}


def _hashed(rng, size, count, dtype, keys, factor):
    """Draw a vector, some numbers of which are not finite."""
    x = rng.standard_normal(size).astype(dtype)
    x[3::7] = np.resize(np.array([np.nan, np.inf, 0.0, -0.0], dtype), x[3::7].size)
    return {
        "x": x,
        "factor": factor,
        "keys": rng.integers(2**64, size=keys, dtype=np.uint64),
        "product": np.zeros_like(x),
        "out": np.zeros(-(-x.nbytes // (8 * keys)), np.uint64),
    }


MODES = tuple(
    {"mode": m} for m in (kernels.REAL, kernels.PACKED, kernels.REAL_PART, kernels.EXPAND)
)
COMBINED = (
    *shapes(LONG[:10], (1, 2, 3, 4, 5, 8, 13)),
    *shapes((1025, 4097), (1, 2, 4, 5, 13)),
    *shapes((16385,), (1, 5)),
)
COMBINE = Kernel(
    "combine",
    _combination,
    _near_combination,
    ("out",),
    COMBINED,
    (*REALS, *HALVES),
    MODES,
    call=lambda function, given: function(**given | {"rows": listed(given["rows"])}),
)
BIND_COMBINE = Kernel(
    "bind_combine",
    _chosen,
    _near_combination,
    ("out",),
    COMBINED,
    (*REALS, *HALVES),
    MODES,
    call=lambda function, given: function(**given | {"rows": listed(given["rows"])})(
        given["coef"].size
    ),
)
SQUARE_SUM = Kernel(
    "square_sum",
    lambda rng, size, count, dtype: {"x": vectors(rng, size, 1, dtype)[0]},
    _near_sum,
    (),
    shapes(LONG, (1,)),
    (*REALS, *HALVES),
)
BIND_SQUARE_SUM = Kernel(
    "bind_square_sum",
    SQUARE_SUM.make,
    _near_sum,
    (),
    shapes(LONG[:11], (1,)),
    (*REALS, *HALVES),
    call=lambda function, given: function(**given)(),
)
HASHES = [
    Kernel(
        "hash_words",
        _words,
        equal,
        ("out",),
        shapes(LONG[:-1], (1,)),
        (np.uint64,),
        tuple({"keys": keys} for keys in (1, 5, 64)),
        wide=False,
    ),
    Kernel(
        "hash_and_scale",
        _hashed,
        equal,
        ("product", "out"),
        shapes(LONG[:-1], (1,)),
        REALS,
        tuple({"keys": k, "factor": f} for k, f in ((5, 1 / 3), (64, 0.0), (64, 1.0))),
        wide=False,
    ),
]
TO_HALVES = Kernel("to_halves", _halves, equal, ("out",), shapes(LONG, (1,)), REALS, wide=False)

# ----------------------------------------------------------------------- steps of optimizers


def exact_square_distance(x, y):
    return float(np.sum((x.astype(WIDE) - y.astype(WIDE)) ** 2))


def _step(name, moves, writes, reads, cases=({},), **numbers):
    """Return the entry of an optimizer's step; numbers of a case are arguments, too."""

    def make(rng, size, count, dtype, **case):
        given = {each: vectors(rng, size, 1, dtype)[0] for each in (*writes, *reads)}
        if "v" in given:
            given["v"] = np.abs(given["v"]) + dtype(0.5)
        return given | numbers | case

    def check(given, found, truth):
        dtype = given[moves].dtype.type
        for name in found.keys() - {"returned"}:
            # A few roundings of numbers up to 10, and one of each coefficient.
            within(40 * UNIT[dtype], found[name], truth[name])
        # The distance of the stored vectors, not of the move before it was rounded.
        exact = exact_square_distance(found[moves], given[moves])
        rough = 2.0**-20 if dtype == np.float32 and "gradient" in given else 0
        within((rough + (found[moves].size + 4) * U) * exact, found["returned"], exact)

    return Kernel(name, make, check, writes, shapes(LONG, (1,)), REALS, cases, moves=moves)


STEPS = [
    _step(
        "sgd",
        "theta",
        ("theta", "velocity"),
        ("gradient",),
        ({"velocity": None, "momentum": 0.0}, {"momentum": 0.9}),
        lr=0.1,
    ),
    _step("nesterov", "point", ("theta", "point"), ("gradient",), lr=0.1, momentum=0.8),
    _step(
        "amsgrad",
        "theta",
        ("theta", "h", "v"),
        ("gradient",),
        lr=0.1,
        beta1=0.9,
        beta2=0.75,
        epsilon=1e-3,
    ),
    _step("replace", "old", ("old", "total"), ("new",), ({}, {"total": None})),
]
SQUARE_DISTANCE = Kernel(
    "square_distance",
    lambda rng, size, count, dtype: dict(zip("xy", vectors(rng, size, 2, dtype), strict=True)),
    _near_sum,
    (),
    shapes(LONG, (1,)),
    REALS,
)

# ----------------------------------------------------------------------------- cyclic codes


def _survivors(rng, size, count, dtype, method, parts):
    sizes = [size] if parts == 1 else [size - 2 * (size // 3), size // 3, size // 3]
    blocks = []
    for m in filter(None, sizes):
        q = next(q for q in (3, 5, 7, 1) if np.gcd(q, m) == 1) % max(m, 2)
        blocks.append((m, q, 0))
    survivors = np.sort(rng.permutation(size)[: size - min(count, size - 1)])
    rng.shuffle(survivors)
    return {
        "plan": CyclicPlan(cyclic_tables(blocks)),
        "survivors": survivors.astype(np.int64),
        "out": np.zeros(survivors.size, np.complex128),
        "method": method,
    }


def decoded(function, given):
    """Decode a vector; return the status, which says what is wrong with the last survivor."""
    decode, _ = function(given["plan"], given["survivors"], given["out"])
    return decode(given["method"], given["survivors"].size)


def decoding_truth(blocks, survivors):
    """Return locator products by definition, from sines in extended precision.

    1 - exp(2 pi i t / m) = 2 sin(pi t / m) exp(i (pi t / m - pi / 2)), for t reduced to 0 .. m-1.
    """
    start = np.cumsum([0, *(m for m, _, _ in blocks)])
    pi = np.arctan(WIDE(1)) * 4
    value = np.empty(len(survivors), WIDE_COMPLEX)
    for b, (m, q, _) in enumerate(blocks):
        mine = [at for at, i in enumerate(survivors) if start[b] <= i < start[b + 1]]
        heard = {int(survivors[at] - start[b]) for at in mine}
        lost = np.array([j for j in range(m) if j not in heard], dtype=int)
        t = np.arange(m)
        near = np.minimum(t, m - t) * pi / m
        log_sine = np.log(np.where(t == 0, 1, 2 * np.sin(near)))
        for at in mine:
            r = q * (int(survivors[at] - start[b]) - lost) % m
            turns = int(2 * r.sum() - m * len(lost)) % (4 * m)  # multiples of pi / (2 m)
            size = np.exp(log_sine[r].sum() - np.log(WIDE(m)))
            angle = turns * pi / (2 * m)
            value[at] = size * (np.cos(angle) + 1j * np.sin(angle))
    return value


def decoded_truly(given):
    tables = given["plan"].tables
    blocks = [(int(m), int(q), 0) for m, q in zip(np.diff(tables.start), tables.q, strict=True)]
    return {"returned": Status.OK, "out": decoding_truth(blocks, given["survivors"])}


def near_vector(given, found, truth, times=1):
    """Assert that there is one rounding per factor, and about one for the phase."""
    assert found["returned"] == truth["returned"]
    bound = times * (given["plan"].workers + 16) * U
    within(bound * np.abs(truth["out"]), found["out"], truth["out"])


WORKERS = [
    (size, count)
    for size in (1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 100, 257)
    for count in {0, 1, 2, size // 8, size // 3, size // 2, size - 1}
]
DECODING = Kernel(
    "bind_decoding_vector",
    _survivors,
    near_vector,
    ("out",),
    WORKERS,
    cases=tuple({"method": m, "parts": parts} for m in (LOCATOR, LOOKUP) for parts in (1, 3)),
    call=decoded,
    truth=decoded_truly,
)


def _masks(rng, size, count, dtype):
    """Draw rounds, some of which have too few survivors, of two blocks."""
    blocks = [(size, 1 if size < 3 else size - 1, size // 2 + 1), (3, 2, 1)]
    masks = rng.random((count, size + 3)) < 0.7
    return {
        "plan": CyclicPlan(cyclic_tables(blocks)),
        "masks": masks,
        "method": LOCATOR,
        "out": np.full(masks.shape, 7j),
        "where": np.full(count, 7),
    }


def _near_vectors(given, found, truth):
    tables, masks = given["plan"].tables, given["masks"]
    came = np.add.reduceat(masks, tables.start[:-1], axis=1, dtype=int)
    lacking = np.maximum(tables.need - came, 0).sum(axis=1)
    np.testing.assert_array_equal(found["where"], lacking)
    for mask, vector, lacks in zip(masks, found["out"], lacking, strict=True):
        one = {"plan": given["plan"], "survivors": np.flatnonzero(mask)}
        result = {"returned": Status.OK, "out": vector[mask]}
        if lacks:
            assert (vector == 7j).all()
        else:
            near_vector(one, result, decoded_truly(one))
            assert (vector[~mask] == 0).all()


DECODING_ALL = Kernel(
    "decoding_vectors",
    _masks,
    _near_vectors,
    ("out", "where"),
    shapes((1, 2, 7, 8, 9, 33), (1, 5)),
    truth=lambda given: {},
)


# ------------------------------------------------------------------------------- plain sums


def _heard(rng, plan, messages):
    """Draw some of the messages; once in four times the last number is one that may not come."""
    survivors = rng.permutation(messages)[: rng.integers(messages + 1)]
    if survivors.size and rng.random() < 0.25:
        survivors[-1] = rng.choice([survivors[0], -1, messages])
    return {"plan": plan, "survivors": survivors, "out": np.full(survivors.size, 7.0)}


def _cells(rng, size, count, dtype):
    weight = rng.integers(1, 5, count + 1)
    cell, need = rng.integers(count + 1, size=size), int(rng.integers(weight.sum() + 1))
    whole = float(weight.sum() * rng.integers(2))
    return _heard(rng, kernels.cover.CellsPlan(cell, weight, need, whole), size)


def _intervals(rng, size, count, dtype):
    ends = np.sort([rng.permutation(count + 1)[:2] for _ in range(size)], axis=1)
    plan = kernels.cover.tiling_plan(*ends.T.copy(), count)
    return _heard(rng, plan, size)


def _edges(rng, size, count, dtype):
    start = rng.integers(count + 1, size=size)
    other = (start + rng.integers(1, count + 1, size=size)) % (count + 1)
    weight, need = rng.integers(1, 5, count + 1).astype(float), int(rng.integers(size + 1))
    plan = kernels.cover.EdgesPlan(np.stack([start, other], axis=1), weight, need)
    return _heard(rng, plan, size)


def _near_plain(given, found, truth):
    assert found["returned"] == truth["returned"]
    if found["returned"] == Status.OK:
        within(1e-9, found["out"], truth["out"])


PLAIN = [
    Kernel(
        name,
        make,
        _near_plain,
        ("out",),
        shapes((1, 2, 3, 5, 8, 13, 30), (1, 2, 3, 4, 6)),
        call=lambda function, given: function(**given)(given["survivors"].size),
        wide=False,
    )
    for name, make in (("bind_cells", _cells), ("bind_tiling", _intervals), ("bind_edges", _edges))
]


def _drawn(rng, size, count, dtype, given):
    """Draw a plan of `size` workers: random delays, given ones, or given ones exactly."""
    rounds = kernels.rounds
    key, numbers = rng.integers(2**64, dtype=np.uint64), rng.random((5, size))
    numbers[2] *= rng.random(size) < 0.5
    plan = rounds.DelayPlan.of(key, 1.0 + rng.random(), *numbers)
    if given:
        plan = plan._replace(given=rng.random((count + 2, size)), start=5)
    if given == "exactly":
        plan = plan._replace(whole=rng.random((count + 2, size)))
    wait, whole = np.zeros((2, count, size))
    return {"delays": plan, "first": 6, "wait": wait, "whole": whole}


DRAW = Kernel(
    "draw",
    _drawn,
    equal,
    ("wait", "whole"),
    shapes((1, 2, 7, 8, 9, 33), (1, 3, 9)),
    cases=tuple({"given": given} for given in (None, "nearly", "exactly")),
    wide=False,
)

# ------------------------------------------------------------------ Vandermonde, Lagrange


def nodes_of(rng, size, complex_):
    """Return good nodes in random order: in [-2, 2], of capacity 1, or 8/9 of all roots of 1."""
    if not complex_:
        return rng.permutation(2 * np.cos(np.pi * (np.arange(size) + 0.5) / size))
    whole = size + size // 8
    return np.exp(2j * np.pi * rng.permutation(whole)[:size] / whole)


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


KINDS = ({"complex_": False}, {"complex_": True})


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
        oracles.vandermonde.leja_order(nodes, order)
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


def _basis(rng, size, count, dtype, complex_, ndim=2):
    given = _products(rng, size, count + 2, dtype, complex_)
    nodes, points = given["nodes"], given["points"]
    own = widened(nodes)
    mantissa, (exponent, hit) = np.empty_like(own), np.zeros((2, size), np.int64)
    oracles.lagrange.lagrange_products(own, own, mantissa, exponent, hit)
    return {
        "nodes": nodes,
        "weights": (1 / mantissa).astype(nodes.dtype),
        "weight_exponent": -exponent,
        "points": points,
        "out": np.zeros((points.size, size)[2 - ndim :], nodes.dtype),
    }


def _products(rng, size, count, dtype, complex_):
    """Draw nodes and points, one of which is a node."""
    nodes = nodes_of(rng, size, complex_) / 2
    points = rng.uniform(-1, 1, count).astype(nodes.dtype)
    if complex_:
        points += 1j * rng.uniform(-1, 1, count)
    points[count // 2] = nodes[size // 2]
    return {
        "nodes": nodes,
        "points": points,
        "mantissa": np.zeros_like(points),
        "exponent": np.zeros(count, np.int64),
        "hit": np.zeros(count, np.int64),
    }


def part(x):
    """Return the larger part of a number."""
    return np.maximum(np.abs(x.real), np.abs(x.imag))


def _times_two(mantissa, exponent):
    wide = mantissa.astype(np.result_type(mantissa, WIDE))
    return wide * np.ldexp(WIDE(1), exponent.astype(np.intc))


def _near_product(given, found, truth):
    assert ((part(found["mantissa"]) >= 1) & (part(found["mantissa"]) < 2)).all()
    np.testing.assert_array_equal(found["hit"], truth["hit"])
    one, other = (_times_two(each["mantissa"], each["exponent"]) for each in (found, truth))
    within(2 * (given["nodes"].size + 2) * U * np.abs(other), one, other)


def _near_basis(given, found, truth):
    bound = 6 * (given["nodes"].size + 2) * U * np.abs(truth["out"])
    if truth["out"].ndim == 1:
        bound = given["points"].size * bound.max()
    within(bound, found["out"], truth["out"])


def _weighed(rng, size, count, dtype, complex_, together=False):
    nodes = nodes_of(rng, size, complex_) * 2.0 ** rng.integers(-600, 600)
    return {
        "nodes": nodes,
        "scaled": np.zeros_like(nodes),
        "weights": np.zeros_like(nodes),
        "exponent": None if together else np.zeros(size, np.int64),
    }


def _near_weights(given, found, truth):
    assert found["returned"] == truth["returned"]
    np.testing.assert_array_equal(found["scaled"], truth["scaled"])
    assert 0.5 <= part(found["scaled"]).max() < 1
    one, other = found["weights"], truth["weights"]
    if "exponent" in found:
        one, other = (_times_two(each["weights"], each["exponent"]) for each in (found, truth))
    within(2 * (one.size + 2) * U * np.abs(other), one, other)


def _values(rng, size, count, dtype, complex_):
    given = _basis(rng, size, count, dtype, complex_)
    return given | {
        "values": 3e-200 * given["nodes"] + 1e-200,
        "points": given["points"] * 4,
        "scale": 0.25,
        "out": np.zeros_like(given["points"]),
    }


def _near_values(given, found, truth):
    assert found["returned"]
    wide = {name: widened(value) for name, value in given.items() if name != "values"}
    basis = np.zeros((wide["points"].size, wide["nodes"].size), wide["nodes"].dtype)
    points = wide["points"] * given["scale"]
    names = (wide["nodes"], wide["weights"], given["weight_exponent"])
    oracles.lagrange.lagrange_basis(*names, points, basis)
    scale = np.abs(basis) @ np.abs(given["values"])
    within(8 * (wide["nodes"].size + 2) * U * scale, found["out"], truth["out"])


def _functional(rng, size, count, dtype, complex_):
    """Choose all nodes of a table that has others between them, in reversed order."""
    given = _products(rng, size, count + 2, dtype, complex_)
    spread, chosen = np.full(2 * size, 9, given["nodes"].dtype), np.arange(2 * size)[::-2].copy()
    spread[chosen] = given["nodes"]
    return {
        "nodes": spread,
        "points": given["points"],
        "chosen": chosen,
        "out": np.zeros(size, spread.dtype),
    }


def _near_functional(given, found, truth):
    assert found["returned"] == truth["returned"] == Status.OK
    size = 6 * (given["out"].size + 2) * U * np.abs(truth["out"]).max()
    within(size * given["points"].size, found["out"], truth["out"])


def _unordered(rng, size, count, dtype, complex_):
    nodes = rng.standard_normal(size)
    if complex_:
        nodes = nodes + 1j * rng.standard_normal(size)
    return {"nodes": nodes, "order": np.zeros(size, np.int64)}


POINTS = (*shapes(NODES[:8], (1, 2, 3, 4, 5, 9)), *shapes(NODES[8:], (1, 66)))
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
LAGRANGE = [
    Kernel(
        "lagrange_products",
        _products,
        _near_product,
        ("mantissa", "exponent", "hit"),
        POINTS,
        cases=KINDS,
    ),
    Kernel(
        "lagrange_basis",
        _basis,
        _near_basis,
        ("out",),
        POINTS,
        cases=tuple(kind | {"ndim": n} for n in (1, 2) for kind in KINDS),
    ),
    Kernel(
        "lagrange_weights",
        _weighed,
        _near_weights,
        ("scaled", "weights", "exponent"),
        shapes(NODES, (1,)),
        cases=tuple(kind | {"together": t} for t in (False, True) for kind in KINDS),
    ),
    Kernel("lagrange_evaluate", _values, _near_values, ("out",), POINTS, cases=KINDS),
    Kernel(
        "bind_functional",
        _functional,
        _near_functional,
        ("out",),
        POINTS,
        cases=KINDS,
        call=lambda function, given: function(**given)(given["out"].size),
    ),
]

# ----------------------------------------------------------------------- near-exact vectors


def _equations(rng, size, count, dtype):
    x, y = np.zeros((2, size)), np.zeros((2, count))
    x[0], y[0] = 2 + np.arange(size), -2 - np.arange(count)
    return {
        "x": x,
        "y": y,
        "g": rng.random(size),
        "h": rng.random(count),
        "b": rng.standard_normal(size) + 1j * rng.standard_normal(size),
        "unit": 1e-2,
        "size": 1.0,
        "out": np.zeros(count, complex),
    }


def _near_ridge(given, found, truth):
    within(1e-6 * np.abs(truth["out"]).max(), found["out"], truth["out"])


RIDGE = Kernel(
    "cauchy_ridge",
    _equations,
    _near_ridge,
    ("out",),
    shapes((*range(1, 10), 17, 33, 64), (1, 3, 8, 17)),
    wide=False,
)

SPLIT = [COMBINE, BIND_COMBINE, SQUARE_SUM, SQUARE_DISTANCE, *STEPS]  # threads share their work
KERNELS = [
    *(*SPLIT, BIND_SQUARE_SUM, TO_HALVES, *HASHES, DECODING, DECODING_ALL, *PLAIN, DRAW),
    *(SOLVE, LEJA, *LAGRANGE, RIDGE),
]


def named(chosen):
    """Return what ``pytest.mark.parametrize`` takes for each kernel, case and dtype."""
    found, ids = [], []
    for kernel in chosen:
        for case in kernel.cases:
            for dtype in kernel.dtypes:
                if dtype in HALVES and case.get("mode", 0) > kernels.PACKED:
                    continue
                found.append((kernel, case, dtype))
                words = [f"{name}={value}" for name, value in case.items()]
                words += [np.dtype(dtype).name] if len(kernel.dtypes) > 1 else []
                ids.append("-".join([kernel.name, *words]))
    return {"argnames": ("kernel", "case", "dtype"), "argvalues": found, "ids": ids}
