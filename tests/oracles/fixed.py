"""Sums in fixed point."""

import numpy as np

from .table import LONG, REALS, Kernel, equal, shapes, vectors


def add_fixed(x, total, exponent, least, most, keep):
    """``total += rint(x 2^exponent)``; return how many reach `least`, Inf if some are left out."""
    with np.errstate(all="ignore"):
        scaled = np.ldexp(x.astype(np.longdouble), int(exponent))
        fits, large = np.abs(scaled) < most, np.abs(scaled) >= least
    if not keep:
        total[:] = 0
    total[fits] += np.rint(scaled[fits]).astype(np.int64)
    return float(large.sum()) if fits.all() else np.inf


def from_fixed(out, total, exponent):
    """``out = total 2^-exponent``; return how many elements are Inf."""
    with np.errstate(over="ignore"):
        out[:] = np.ldexp(total.astype(np.longdouble), -int(exponent)).astype(out.dtype)
    return float(np.isinf(out).sum())


# ------------------------------------------------------------ the table


def _add(rng, size, count, dtype, exponent, bad, keep):
    x = vectors(rng, size, 1, dtype)[0] * np.exp2(-rng.integers(0, 60, size)).astype(dtype)
    some = rng.integers(0, size, 3)
    x[some] = (np.rint(x[some] * 4) + 0.5) * 2.0**-exponent  # ties
    if bad:
        x[rng.integers(0, size)] = rng.choice([np.nan, np.inf, -np.inf, 2.0 ** (62 - exponent)])
    found = {"x": x, "total": rng.integers(-(2**60), 2**60, size), "exponent": exponent}
    return found | {"least": 2.0**50, "most": 2.0**62, "keep": keep}


def _back(rng, size, count, dtype, exponent):
    total = rng.integers(-(2**63), 2**63 - 1, size) >> rng.integers(0, 63, size)
    return {"out": np.zeros(size, dtype), "total": total, "exponent": exponent}


ADD = Kernel(
    "add_fixed",
    _add,
    equal,
    ("total",),
    shapes(LONG, (1,)),
    REALS,
    (
        {"exponent": 58.0, "bad": True, "keep": 1.0},
        {"exponent": 50.0, "bad": False, "keep": 0.0},
        {"exponent": -20.0, "bad": False, "keep": 1.0},
    ),
    wide=False,
    split=True,
)
BACK = Kernel(
    "from_fixed",
    _back,
    equal,
    ("out",),
    shapes(LONG, (1,)),
    REALS,
    ({"exponent": 58.0}, {"exponent": -66.0}, {"exponent": 190.0}),
    wide=False,
    split=True,
)
KERNELS = [ADD, BACK]
