"""Linear combinations of long vectors, and their norms."""

from types import SimpleNamespace

import numpy as np

from fastgc import kernels
from fastgc.kernels import Status
from fastgc.kernels.rows import LARGEST_GROUP, PACKED, REAL_PART

from .table import (
    HALVES,
    LONG,
    REALS,
    UNIT,
    WIDE,
    WIDE_COMPLEX,
    Kernel,
    U,
    equal,
    shapes,
    vectors,
    within,
)


def combine(mode, rows, coef, out, accumulate=False, check=False):
    """Compute ``out = sum_r coef[r] * rows[r]``, or ``out +=`` that."""
    size = (max(rows.length, out.size) + 1) // 2 if mode == PACKED else rows.length
    total = np.zeros(size, np.result_type(coef, out))
    scaled, group = np.empty_like(total), np.zeros_like(total)
    with np.errstate(over="ignore", invalid="ignore"):
        for r, (a, row) in enumerate(zip(coef, rows.arrays, strict=False), 1):
            if mode == PACKED:
                whole = row.size // 2
                wide = row.astype(total.real.dtype, copy=False)
                np.multiply(wide[: 2 * whole].view(total.dtype), a, out=scaled[:whole])
                scaled[whole:] = a * wide[2 * whole] if row.size % 2 else 0
            else:
                np.multiply(row.astype(np.result_type(row, np.float64), copy=False), a, out=scaled)
            group += scaled
            if r % LARGEST_GROUP == 0 or r == coef.size:
                total += group
                group[:] = 0
        if mode == PACKED:
            result = total.view(total.real.dtype)[: out.size]
        else:
            result = total.real if mode == REAL_PART else total
        np.copyto(out, out + result if accumulate else result, casting="same_kind")
    return not check or bool(np.isfinite(out).all())


def bind_combine(mode, rows, numbers, coef, out, accumulate=False, check=False):
    """Prepare `combine` of rows with these numbers; those whose coefficient is 0 are not read."""

    def run(count):
        used = np.flatnonzero(coef[:count])
        arrays = [rows.arrays[i] for i in numbers[used]]
        chosen = SimpleNamespace(arrays=arrays, length=rows.length)
        finite = combine(mode, chosen, coef[used], out, accumulate, check)
        return Status.OK if finite else Status.NOT_FINITE

    return run


def square_sum(x):
    """Sum of squares of a real vector, in double precision; not finite if `x` is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.square(x, dtype=np.promote_types(x.dtype, np.float64)).sum())


def bind_square_sum(x):
    """Prepare `square_sum` of a vector that is read at each call."""
    return lambda: square_sum(x)


def to_halves(x, out):
    """Round a vector to float16, each number once; an overflow becomes Inf."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.multiply(x, 1, out=out, casting="same_kind")  # as computing does, it makes NaN quiet


# ------------------------------------------------------------ the table


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
    # A last pair may be cut.
    out = rng.standard_normal(size + size % 2 * (mode == kernels.PACKED and rng.random() < 0.5))
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


def near_sum(given, found, truth):
    size = given["x"].size
    within((size + 4) * U * truth["returned"], found["returned"], truth["returned"])


def _halves(rng, size, count, dtype):
    """Draw numbers in and beyond float16's range, many of them half-way between two float16."""
    x = rng.standard_normal(size) * 2.0 ** rng.integers(-28, 18, size)
    x[1::3] = (2 * rng.integers(0, 2048, x[1::3].size) + 1) * 2.0 ** rng.integers(-25, 6)
    x[2::3] = np.resize([65520, 65519, -np.inf, np.nan, -0.0, 2.0**-25, 1e-40], x[2::3].size)
    with np.errstate(over="ignore", under="ignore"):
        return {"x": x.astype(dtype), "out": np.zeros(size, np.float16)}


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
    split=True,
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
    split=True,
)

SQUARE_SUM = Kernel(
    "square_sum",
    lambda rng, size, count, dtype: {"x": vectors(rng, size, 1, dtype)[0]},
    near_sum,
    (),
    shapes(LONG, (1,)),
    (*REALS, *HALVES),
    split=True,
)

BIND_SQUARE_SUM = Kernel(
    "bind_square_sum",
    SQUARE_SUM.make,
    near_sum,
    (),
    shapes(LONG[:11], (1,)),
    (*REALS, *HALVES),
    call=lambda function, given: function(**given)(),
)

TO_HALVES = Kernel("to_halves", _halves, equal, ("out",), shapes(LONG, (1,)), REALS, wide=False)
KERNELS = [COMBINE, BIND_COMBINE, SQUARE_SUM, BIND_SQUARE_SUM, TO_HALVES]
