"""The table of kernels, for tests and benches.

Each entry makes arguments of a given size, calls the kernel, and computes the
true result by other means: sums in extended precision, products by definition.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fastgc import kernels
from fastgc.coding.rules import Blocks, Cells, Parts, Tiling, Waiting
from fastgc.kernels import Status, fourier
from fastgc.kernels.cyclic import CyclicPlan, cyclic_tables

WIDE = np.longdouble
WIDE_COMPLEX = np.clongdouble
HALVES = (np.float16, ml_dtypes.bfloat16)


# Survivors that every kernel for three workers, of which two must answer, rejects.
WRONG_SURVIVORS = [
    ([0, 1, 3], Status.OUT_OF_RANGE),
    ([0, -1], Status.OUT_OF_RANGE),
    ([0, 1, 0], Status.DUPLICATE),
    ([0], Status.TOO_FEW),
    ([], Status.TOO_FEW),
]


def filled(bind, plan, survivors):
    """Return the kernel's result for these survivors; check that it writes nothing beyond them."""
    room, vector = np.append(survivors, [0, 0]).astype(np.int64), np.full(len(survivors) + 2, 7.0)
    status = bind(plan, room, vector)(len(survivors))
    assert (vector[len(survivors) :] == 7).all()
    return status, vector[: len(survivors)]


@dataclass(frozen=True)
class Kernel:
    """A kernel with the means to call and to check it.

    ``make(rng, size, count, dtype)`` returns arguments: `count` vectors of `size` elements; for
    decoding vectors, `size` workers of which `count` straggle; for kernels on nodes, `size` nodes
    and `count` columns or points. ``run(arguments)`` returns the result, and ``truth(arguments)``
    the true one. Their difference is at most ``bound(arguments)``; kernels without a bound have
    tests of their own. For combinations, ``finite(arguments)`` is what the kernel says of NaN and
    Inf.
    """

    name: str
    make: Callable[..., dict[str, Any]]
    run: Callable[[dict[str, Any]], Any]
    truth: Callable[[dict[str, Any]], Any]
    dtypes: tuple[Any, ...]
    finite: Callable[[dict[str, Any]], bool] | None = None
    bound: Callable[[dict[str, Any]], Any] | None = None


def _vectors(rng, size, count, dtype, complex_=False):
    rows = []
    for _ in range(count):
        # Rows begin at the second element: they need not begin on a cache line.
        row = rng.standard_normal(size + 1)
        if complex_:
            row = row + 1j * rng.standard_normal(size + 1)
        rows.append(row.astype(np.result_type(dtype, np.complex64) if complex_ else dtype)[1:])
    return rows


def _wide(array):
    """Return an array in extended precision, by way of float64, to which bfloat16 converts."""
    return array.astype(np.result_type(array, np.float64)).astype(
        WIDE_COMPLEX if np.iscomplexobj(array) else WIDE
    )


def _combine(mode, accumulate, stacked, bound=False):
    name = {
        kernels.REAL: "real",
        kernels.PACKED: "packed",
        kernels.REAL_PART: "real part",
        kernels.EXPAND: "expand",
    }[mode]

    def make(rng, size, count, dtype):
        rows = _vectors(rng, size, count, dtype, complex_=mode == kernels.REAL_PART)
        if stacked:
            wide = np.zeros((count, size + 3), rows[0].dtype)  # gaps between rows
            wide[:, :size] = rows
            rows = wide[:, :size]
        coef = rng.standard_normal(count)
        if mode != kernels.REAL:
            coef = coef + 1j * rng.standard_normal(count)
        out_size = size + size % 2 if mode == kernels.PACKED else size
        out_type = np.result_type(dtype, np.complex64 if mode == kernels.EXPAND else np.float32)
        return {
            "rows": rows,
            "coef": coef,
            "before": rng.standard_normal(out_size).astype(out_type),
            "size": size,
        }

    def combine(arguments, out, check=False):
        rows = kernels.Rows.of(arguments["rows"], arguments["size"], arguments["rows"][0].dtype)
        coef = arguments["coef"]
        if not bound:
            return kernels.combine(mode, rows, coef, out, accumulate, check)
        # The table holds rows of NaN, too; their coefficients are 0, so the kernel must skip them.
        count = coef.size
        table = kernels.Rows(2 * count, rows.length, rows.arrays[0].dtype)
        unread = np.full(rows.length, np.nan).astype(rows.arrays[0].dtype)
        for row in reversed(list(rows.arrays)):
            table.append(unread)
            table.append(row)
        numbers = np.array([*range(2 * count)][::-1])
        with_zeros = np.stack([coef, np.zeros_like(coef)], axis=1).ravel()
        run = kernels.unchecked.bind_combine(
            mode, table, numbers, with_zeros, out, accumulate, check
        )
        status = run(2 * count)
        assert status in (kernels.Status.OK, kernels.Status.NOT_FINITE)
        return status == kernels.Status.OK

    def run(arguments, out=None):
        out = arguments["before"].copy() if out is None else out
        combine(arguments, out)
        return out

    def finite(arguments):
        return combine(arguments, arguments["before"].copy(), check=True)

    def truth(arguments):
        before = arguments["before"]
        total = np.zeros(before.size, WIDE_COMPLEX)
        for a, row in zip(arguments["coef"], arguments["rows"], strict=True):
            row = _wide(row)
            if mode == kernels.PACKED:
                padded = np.zeros(before.size, WIDE)
                padded[: row.size] = row
                product = (padded[::2] + 1j * padded[1::2]) * a
                total[::2] += product.real
                total[1::2] += product.imag
            else:
                total += row * a
        result = total if mode == kernels.EXPAND else total.real
        return result + before if accumulate else result

    ways = {", accumulate": accumulate, ", stacked": stacked, ", bound": bound}
    title = f"combine {name}{''.join(way for way, taken in ways.items() if taken)}"
    halves = HALVES if mode in (kernels.REAL, kernels.PACKED) else ()
    return Kernel(title, make, run, truth, (np.float32, np.float64, *halves), finite)


def _square_sum():
    def make(rng, size, count, dtype):
        return {"x": _vectors(rng, size, 1, dtype)[0]}

    return Kernel(
        "square sum",
        make,
        lambda arguments: kernels.square_sum(arguments["x"]),
        lambda arguments: np.sum(_wide(arguments["x"]) ** 2),
        (np.float32, np.float64, *HALVES),
    )


def _square_distance():
    def make(rng, size, count, dtype):
        return dict(zip("xy", _vectors(rng, size, 2, dtype), strict=True))

    def truth(arguments):
        return np.sum((_wide(arguments["x"]) - _wide(arguments["y"])) ** 2)

    return Kernel(
        "distance",
        make,
        lambda arguments: kernels.square_distance(**arguments),
        truth,
        (np.float32, np.float64),
        bound=lambda arguments: (arguments["x"].size + 4) * 2.0**-53 * truth(arguments),
    )


def _to_halves():
    """Round numbers in and beyond float16's range, many of them half-way between two float16."""

    def make(rng, size, count, dtype):
        x = rng.standard_normal(size) * 2.0 ** rng.integers(-28, 18, size)
        x[1::3] = (2 * rng.integers(0, 2048, x[1::3].size) + 1) * 2.0 ** rng.integers(-25, 6)
        x[2::3] = np.resize([65520, 65519, -np.inf, np.nan, -0.0, 2.0**-25, 1e-40], x[2::3].size)
        with np.errstate(over="ignore", under="ignore"):
            return {"x": x.astype(dtype)}

    def run(arguments):
        out = np.empty(arguments["x"].size, np.float16)
        kernels.to_halves(arguments["x"], out)
        return out

    def truth(arguments):
        x = _wide(arguments["x"])
        _, exponent = np.frexp(np.where(np.isfinite(x), x, 0))
        unit = np.ldexp(WIDE(1), np.maximum(exponent, -13) - 11)
        rounded = np.rint(x / unit) * unit
        return np.where(np.abs(rounded) > 65504, np.copysign(np.inf, x), rounded)

    return Kernel(
        "to halves", make, run, truth, (np.float32, np.float64), bound=lambda arguments: 0
    )


def _hash_words(keys):
    """Hash words, some of them the largest; the truth is computed in Python's integers."""

    def make(rng, size, count, dtype):
        words, key = rng.integers(2**64, size=(2, max(size, keys)), dtype=np.uint64)
        words[::5] = 2**64 - 1
        key[:1] = 2**32 - 1
        return {"words": words[:size], "keys": key[:keys]}

    def run(arguments):
        words = arguments["words"]
        out = np.full(-(-words.size // keys), 7, np.uint64)
        kernels.hash_words(words, arguments["keys"], out)
        return out

    def truth(arguments):
        def halves(word, key):
            return (word + key) % 2**32 * (((word >> 32) + (key >> 32)) % 2**32)

        words, key = arguments["words"].tolist(), arguments["keys"].tolist()
        blocks = [words[at : at + keys] for at in range(0, len(words), keys)]
        sums = [sum(map(halves, block, key)) % 2**64 for block in blocks]
        return np.array(sums, np.uint64)

    title = f"hash of {keys} words"
    return Kernel(title, make, run, truth, (np.uint64,), bound=lambda arguments: 0)


def _hash_and_scale(keys, factor, what):
    """Hash and multiply a vector, some numbers of which are not finite.

    The true hash is that of bytes, which `struct` reads as words, in Python's integers.
    """

    def make(rng, size, count, dtype):
        x = rng.standard_normal(size).astype(dtype)
        x[3::7] = np.resize(np.array([np.nan, np.inf, 0.0, -0.0], dtype), x[3::7].size)
        return {"x": x, "keys": rng.integers(2**64, size=keys, dtype=np.uint64)}

    def run(arguments):
        x = arguments["x"]
        product = np.full(x.size, 7, x.dtype)
        out = np.full(-(-x.nbytes // (8 * keys)), 7, np.uint64)
        kernels.hash_and_scale(x, factor, arguments["keys"], product, out)
        return out if what == "hash" else product

    def truth(arguments):
        x, key = arguments["x"], arguments["keys"].tolist()
        if what == "product":
            return np.zeros(x.size, WIDE) if factor == 0 else _wide(x * x.dtype.type(factor))
        octets = x.tobytes() + bytes(-x.nbytes % 8)
        halves = struct.unpack(f"<{len(octets) // 4}I", octets)
        sums = [0] * -(-len(halves) // (2 * keys))
        for at, (low, high) in enumerate(zip(halves[::2], halves[1::2], strict=True)):
            k = key[at % keys]
            sums[at // keys] += (low + k) % 2**32 * ((high + (k >> 32)) % 2**32)
        return np.array([total % 2**64 for total in sums], np.uint64)

    title = f"{what} of a vector times {factor}, {keys} keys"
    return Kernel(title, make, run, truth, (np.float32, np.float64), bound=lambda arguments: 0)


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


def _decoding_vector(name, method, cut):
    def make(rng, size, count, dtype):
        blocks = []
        for m in cut(size):
            q = next(q for q in (3, 5, 7, 1) if np.gcd(q, m) == 1) % max(m, 2)
            blocks.append((m, q, 0))
        survivors = np.sort(rng.permutation(size)[: size - min(count, size - 1)])
        rng.shuffle(survivors)
        return {
            "blocks": blocks,
            "plan": CyclicPlan(cyclic_tables(blocks)),
            "survivors": survivors.astype(np.int64),
        }

    def run(arguments):
        survivors = arguments["survivors"]
        out = np.empty(survivors.size, np.complex128)
        if method is None:
            status = fourier.bind_fourier(arguments["plan"], survivors, out).vector(survivors.size)
            assert status == kernels.Status.OK
        else:
            decode, where = kernels.unchecked.bind_decoding_vector(
                arguments["plan"], survivors, out
            )
            status = decode(method, survivors.size)
            assert status == kernels.Status.OK, (status, where[0])
        return out

    def truth(arguments):
        return decoding_truth(arguments["blocks"], arguments["survivors"])

    return Kernel(name, make, run, truth, (np.float64,))


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


def _vandermonde(transpose, complex_):
    def make(rng, size, count, dtype):
        nodes = nodes_of(rng, size, complex_)
        columns = rng.standard_normal((size, max(count, 1))).astype(nodes.dtype)
        if complex_:
            columns += 1j * rng.standard_normal(columns.shape)
        return {"nodes": nodes, "b": columns}

    def run(arguments):
        out = np.empty_like(arguments["b"])
        solve = kernels.solve_vandermonde
        assert solve(arguments["nodes"], arguments["b"], None, transpose, out)
        return out

    def truth(arguments):
        nodes, b = arguments["nodes"], arguments["b"]
        solved = [bjorck_pereyra(nodes, column, transpose) for column in b.T]
        return np.array(solved).T

    kind = f"{'moments' if transpose else 'coefficients'}, {'complex' if complex_ else 'real'}"
    return Kernel(f"vandermonde {kind}", make, run, truth, (np.float64,))


def _lagrange(what, complex_):
    def make(rng, size, count, dtype):
        nodes = nodes_of(rng, size, complex_) / 2
        points = rng.uniform(-1, 1, count + 2)
        if complex_:
            points = points + 1j * rng.uniform(-1, 1, count + 2)
        points[1] = nodes[size // 2]  # a point that is a node
        equal = points[:, None] == nodes
        hit = np.where(equal.any(axis=1), equal.argmax(axis=1), -1)
        values = 3e-200 * nodes + 1e-200
        return {"nodes": nodes, "points": points, "hit": hit, "values": values}

    def run(arguments):
        nodes, points = arguments["nodes"], arguments["points"]
        if what == "values":
            scaled, weights = np.empty((2, nodes.size), nodes.dtype)
            power = np.empty(nodes.size, np.int64)
            shift = kernels.lagrange_weights(nodes, scaled, weights, power)
            np.testing.assert_array_equal(scaled, nodes * 2.0**shift)
            assert 0.5 <= _part(scaled).max() < 1
            out, prepared = np.empty_like(points), (scaled, weights, power)
            values, scale = arguments["values"], 2.0**shift
            assert kernels.lagrange_evaluate(*prepared, values, points, scale, out)
            return out
        if what == "chosen":
            n = nodes.size
            spread, chosen = np.full(2 * n, 9, nodes.dtype), np.arange(2 * n)[::-2].copy()
            spread[chosen] = nodes
            out = np.empty_like(spread)
            run = kernels.unchecked.bind_functional(spread, points, np.append(chosen, -1), out)
            assert run(n + 1) == kernels.Status.OUT_OF_RANGE
            assert run(n) == kernels.Status.OK
            return out[:n]
        if what == "products":
            product, exponent, hit = _products(nodes, points)
            assert ((_part(product) >= 1) & (_part(product) < 2)).all()
            np.testing.assert_array_equal(hit, arguments["hit"])
            wide = product.astype(WIDE_COMPLEX if complex_ else WIDE)
            return wide * np.ldexp(WIDE(1), exponent.astype(np.intc))
        product, exponent, _ = _products(nodes, nodes)
        out = np.empty((points.size, nodes.size)[what == "functional" :], nodes.dtype)
        kernels.lagrange_basis(nodes, 1 / product, -exponent, points, out)
        return out

    def truth(arguments):
        wide = WIDE_COMPLEX if complex_ else WIDE
        nodes, points = (arguments[name].astype(wide) for name in ("nodes", "points"))
        if what == "products":
            factors = points[:, None] - nodes
            return np.where(factors == 0, 1, factors).prod(axis=1)
        basis = np.ones((points.size, nodes.size), wide)
        for i in range(nodes.size):
            others = np.arange(nodes.size) != i
            basis[:, others] *= ((points - nodes[i])[:, None] / (nodes - nodes[i] + ~others))[
                :, others
            ]
        if what == "values":
            return basis @ arguments["values"]
        return basis if what == "basis" else basis.sum(axis=0)

    return Kernel(
        f"lagrange {what}, {'complex' if complex_ else 'real'}", make, run, truth, (np.float64,)
    )


def _part(x):
    return np.maximum(np.abs(x.real), np.abs(x.imag))


def _products(nodes, points):
    product = np.empty_like(points)
    exponent, hit = np.empty((2, points.size), np.int64)
    kernels.lagrange_products(nodes, points, product, exponent, hit)
    return product, exponent, hit


def _whole(n):
    return [n]


def _thirds(n):
    return [m for m in (n - 2 * (n // 3), n // 3, n // 3) if m]


KERNELS = [
    *(
        _combine(mode, accumulate, stacked)
        for mode in (kernels.REAL, kernels.PACKED, kernels.REAL_PART, kernels.EXPAND)
        for accumulate in (False, True)
        for stacked in (False, True)
    ),
    *(
        _combine(mode, accumulate, stacked=True, bound=True)
        for mode in (kernels.REAL, kernels.PACKED, kernels.REAL_PART, kernels.EXPAND)
        for accumulate in (False, True)
    ),
    _square_sum(),
    _square_distance(),
    _to_halves(),
    *map(_hash_words, (1, 5, 64)),
    *(_hash_and_scale(5, 1 / 3, what) for what in ("hash", "product")),
    *(_hash_and_scale(64, factor, what) for factor in (0.0, 1.0) for what in ("hash", "product")),
    _decoding_vector("locator", kernels.cyclic.LOCATOR, _whole),
    _decoding_vector("lookup", kernels.cyclic.LOOKUP, _whole),
    _decoding_vector("fft", None, _whole),
    _decoding_vector("locator, three blocks", kernels.cyclic.LOCATOR, _thirds),
    _decoding_vector("lookup, three blocks", kernels.cyclic.LOOKUP, _thirds),
    _decoding_vector("fft, three blocks", None, _thirds),
    *(_vandermonde(transpose, complex_) for transpose in (False, True) for complex_ in (0, 1)),
    *(
        _lagrange(what, complex_)
        for what in ("products", "basis", "functional", "chosen", "values")
        for complex_ in (0, 1)
    ),
]


# ------------------------------------------------------------------ steps of optimizers


def _step(title, kernel, moving, written, read, truth, **numbers):
    """Return a row for an optimizer's step, and `moving`, the vector whose move it measures.

    ``run`` returns the vectors that the step writes, copies unless `after` is given, and the
    squared distance; ``truth`` returns the vectors alone.
    """

    def make(rng, size, count, dtype):
        vectors = {name: _vectors(rng, size, 1, dtype)[0] for name in (*written, *read)}
        if "v" in vectors:
            vectors["v"] = np.abs(vectors["v"]) + dtype(0.5)
        return vectors

    def run(arguments, after=None):
        if after is None:
            after = {name: arguments[name].copy() for name in written}
        return after, kernel(**{**arguments, **after, **numbers})

    def wide_truth(arguments):
        vectors = {name: _wide(vector) for name, vector in arguments.items()}
        after = truth(**vectors, **{name: WIDE(x) for name, x in numbers.items() if x is not None})
        return dict(zip(written, after, strict=True))

    step = Kernel(title, make, run, wide_truth, (np.float32, np.float64))
    return step, moving


def _momentum_truth(theta, velocity, gradient, lr, momentum):
    move = momentum * velocity - lr * gradient
    return theta + move, move


def _nesterov_truth(theta, point, gradient, lr, momentum):
    following = point - lr * gradient
    return following, following + momentum * (following - theta)


def _amsgrad_truth(theta, h, v, gradient, lr, beta1, beta2, epsilon):
    h = beta1 * h + (1 - beta1) * gradient
    v = np.maximum(v, beta2 * v + (1 - beta2) * gradient**2)
    return theta - lr * h / np.sqrt(epsilon + v), h, v


# Each row with the name of the vector whose move the step measures.
STEPS = [
    _step(
        "sgd",
        kernels.sgd,
        "theta",
        ["theta"],
        ["gradient"],
        lambda theta, gradient, lr, momentum: [theta - lr * gradient],
        velocity=None,
        lr=0.1,
        momentum=0.0,
    ),
    _step(
        "sgd, momentum",
        kernels.sgd,
        "theta",
        ["theta", "velocity"],
        ["gradient"],
        _momentum_truth,
        lr=0.1,
        momentum=0.9,
    ),
    _step(
        "nesterov",
        kernels.nesterov,
        "point",
        ["theta", "point"],
        ["gradient"],
        _nesterov_truth,
        lr=0.1,
        momentum=0.8,
    ),
    _step(
        "amsgrad",
        kernels.amsgrad,
        "theta",
        ["theta", "h", "v"],
        ["gradient"],
        _amsgrad_truth,
        lr=0.1,
        beta1=0.9,
        beta2=0.75,
        epsilon=1e-3,
    ),
    _step("replace", kernels.replace, "old", ["old"], ["new"], lambda old, new: [new]),
    _step(
        "replace, total",
        kernels.replace,
        "old",
        ["old", "total"],
        ["new"],
        lambda old, total, new: [new, total + (new - old)],
    ),
]


# ---------------------------------------------------------------------- completion times


def rule_of(plan):
    """Return the rule of `fastgc.coding.rules` that a plan stands for."""
    if plan.kind == kernels.rounds.BLOCKS:
        return Blocks(plan.group, plan.need)
    if plan.kind == kernels.rounds.CELLS:
        return Cells(plan.group, plan.need, plan.total)
    if plan.kind == kernels.rounds.EDGES:
        return Parts(np.stack([plan.group, plan.other], axis=1), plan.total)
    return Tiling(plan.group, plan.other, plan.total)


def completed(plan, delay, work, late, receive=0.0, overhead=0.0, interrupted=True):
    """Return what the kernel of simulated rounds writes."""
    out = kernels.rounds.Completion.empty(len(work))
    how = receive, overhead, interrupted
    kernels.unchecked.completion(plan, given_exactly(delay, work), 0, late, *how, out)
    return out


def given_exactly(delay, work):
    """Return the plan of these delays and works, with nothing drawn."""
    zeros = (np.zeros(delay.shape[1]) for _ in range(5))
    plan = kernels.rounds.DelayPlan.of(np.uint64(0), 1.0, *zeros)
    return plan._replace(given=delay, whole=work)


def completion_truth(plan, delay, work, late, receive, overhead, interrupted, rule=None):
    """Follow rounds message by message; return a `Completion` of lists, and workers' lateness."""
    rule, first, late = rule or rule_of(plan), plan.first.tolist(), late.tolist()
    if plan.wait:
        rule = Waiting(rule, np.repeat(np.arange(plan.loads.size), np.diff(first)), plan.wait)
    none = np.empty(0, np.int64)
    rounds = []
    for waits, row in zip(delay.tolist(), work.tolist(), strict=True):
        begin = [free_at + wait for free_at, wait in zip(late, waits, strict=True)]
        sent = [
            [begin[i] + whole * share for share in plan.share[first[i] : first[i + 1]].tolist()]
            for i, whole in enumerate(row)
        ]
        arrivals = sorted(
            (at, first[i] + m) for i, own in enumerate(sent) for m, at in enumerate(own)
        )
        tracker = rule.tally()
        at_once = not plan.total if plan.kind == kernels.rounds.TILING else not rule.missing(none)
        enough = (at for at, message in arrivals if tracker.add(message))
        ready = 0.0 if at_once else next(enough, math.inf)
        heard = [at for at, _ in arrivals if at <= ready]
        done = 0
        for i, (load, whole, since) in enumerate(zip(plan.loads.tolist(), row, begin, strict=True)):
            if since <= ready:
                part = min(1.0, (ready - since) / whole) if whole else 1.0
                came = sum(at <= ready for at in sent[i])
                part = max(part, plan.share[first[i] + came - 1]) if came else part
                done += math.floor(load * part + 1e-9)
        time = max([ready, *(at + (len(heard) - j) * receive for j, at in enumerate(heard))])
        senders = sum(bool(own) and own[0] <= ready for own in sent)
        rounds.append((time, len(heard), senders, done))
        if not interrupted:
            end = time + overhead
            busy = [
                [at for at in (free_at, *own) if at > end]
                for free_at, own in zip(late, sent, strict=True)
            ]
            late = [ahead[0] - end if ahead else 0.0 for ahead in busy]
    return kernels.rounds.Completion(*map(list, zip(*rounds, strict=True))), late


def _completion(rule, receive, interrupted):
    """Return a row for rounds of `size` workers that each send `count` messages."""

    def make(rng, size, count, dtype, rounds=30):
        worker = np.repeat(np.arange(size), count)
        sent = np.tile(np.arange(count), size)
        empty = np.empty(0, np.int64)
        other, total = empty, 0
        if rule == "blocks":  # needs one message fewer than 2 workers send
            kind, group = kernels.rounds.BLOCKS, np.zeros_like(worker)
            need = np.array([min(2 * count - 1, worker.size)])
        elif rule == "cells":  # worker i begins with cell i
            kind, group, total = kernels.rounds.CELLS, (worker + sent) % size, size
            need = np.ones(size, np.int64)
        else:  # about three classes of workers, each of which splits the partitions
            kind, total, need = kernels.rounds.TILING, 2 * size * count, empty
            classes = np.array_split(np.arange(size * count), min(3, size * count))
            ends = [np.linspace(0, total, part.size + 1).astype(np.int64) for part in classes]
            group = np.concatenate([end[:-1] for end in ends])
            other = np.concatenate([end[1:] for end in ends])
        plan = kernels.rounds.CompletionPlan(
            kind,
            first=np.arange(size + 1) * count,
            share=(sent + 1) / count,
            loads=np.full(size, 2 * count),
            group=group,
            other=other,
            need=need,
            total=total,
        )
        delay, work = rng.exponential(size=(2, rounds, size))
        return {"plan": plan, "delay": delay, "work": 1 + work, "late": np.zeros(size)}

    def run(arguments):
        late = arguments["late"].copy()
        plan, how = arguments["plan"], (receive, 0.01, interrupted)
        return completed(plan, arguments["delay"], arguments["work"], late, *how), late

    def truth(arguments):
        return completion_truth(
            **arguments, receive=receive, overhead=0.01, interrupted=interrupted
        )

    title = f"completion {rule}{', receive' if receive else ''}{'' if interrupted else ', finish'}"
    return Kernel(title, make, run, truth, (np.float64,))


COMPLETIONS = [
    _completion(rule, receive, interrupted)
    for rule in ("blocks", "cells", "tiling")
    for receive, interrupted in ((0.0, True), (1e-3, True), (0.0, False))
]
