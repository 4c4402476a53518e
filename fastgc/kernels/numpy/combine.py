"""Linear combinations of long vectors, also in twice float64's precision, and their norms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..rows import INTEGER, LARGEST_GROUP, PACKED, REAL, REAL_PART, Rows, extent_of, extent_of_pairs
from .pairs import Pair, add, multiply, negate

__all__ = ["combine", "combine_pairs", "square_sum", "to_halves"]


def combine(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    out: NDArray[Any],
    accumulate: bool = False,
    check: bool = False,
) -> bool:
    """``out = sum_r coef[r] * rows[r]``, or ``out +=`` that.

    Rows of float32 are added up in float32, as coefficients are rounded to it, by at most 8; what
    these add up to, in float64, and that is rounded once. The error is at most, to first order,
    ``u |out| + (min(f, 8) + parts + 1) u sum_r |coef[r]| |rows[r]|`` with ``u = 2^-24``, and of
    parts 1 for real coefficients, 2 for complex ones. (NumPy and Numba take all sums in float64.)

    Parameters
    ----------
    mode : int
        ``REAL``, ``PACKED``, ``REAL_PART`` or ``EXPAND``: how rows and `out` relate.
    rows : Rows
        Real rows of one length and of `out`'s precision; complex ones for ``REAL_PART``. For
        ``REAL`` and ``PACKED`` also rows of float16 or bfloat16, with `out` of float32. For
        ``REAL`` also rows of integers, with `out` of their dtype and coefficients that are
        integers: sums are taken in it, and wrap around.
    coef : (f,) float64 or complex128 array
        float64 for ``REAL``, complex128 otherwise.
    out : (p,) array
        float32 or float64; complex of that precision for ``EXPAND``.
    accumulate : bool
        Add to `out`.
    check : bool
        Look for NaN and Inf in what is written.

    Returns
    -------
    bool
        False if `check` is set and a written value is NaN or Inf, else True.
    """
    if rows.kind == INTEGER:
        return _combine_integers(rows, coef, out, accumulate)
    extent = extent_of(mode, rows.length, out.size)
    size = extent // 2 if mode == PACKED else extent
    total: NDArray[Any] = np.zeros(size, dtype=np.float64 if mode == REAL else np.complex128)
    scaled, group = np.empty_like(total), np.zeros_like(total)
    with np.errstate(over="ignore", invalid="ignore"):
        for r, (a, row) in enumerate(zip(coef, rows.arrays, strict=False), 1):
            if mode == PACKED:
                whole = row.size // 2
                wide = row.astype(np.float64, copy=False)
                np.multiply(wide[: 2 * whole].view(np.complex128), a, out=scaled[:whole])
                scaled[whole:] = a * wide[2 * whole] if row.size % 2 else 0
            else:
                np.multiply(row.astype(np.result_type(row, np.float64), copy=False), a, out=scaled)
            group += scaled
            if r % LARGEST_GROUP == 0 or r == coef.size:
                total += group
                group[:] = 0
        result: NDArray[Any]
        if mode == PACKED:
            result = total.view(np.float64)[: out.size]
        else:
            result = total.real if mode == REAL_PART else total
        np.copyto(out, out + result if accumulate else result, casting="same_kind")
    return not check or bool(np.isfinite(out).all())


def _combine_integers(rows: Rows, coef: NDArray[Any], out: NDArray[Any], accumulate: bool) -> bool:
    """In the dtype of the rows, modulo the power of two that it holds."""
    if not accumulate:
        out[:] = 0
    for a, row in zip(coef.tolist(), rows.arrays, strict=False):
        if a == 1:
            np.add(out, row, out=out)
        elif a == -1:
            np.subtract(out, row, out=out)
        else:
            np.add(out, row * np.array(int(a)).astype(out.dtype), out=out)
    return True


def square_sum(x: NDArray[Any]) -> float:
    """Sum of squares of a real vector, in double precision; not finite if `x` is not.

    Of float32, float64, float16, bfloat16 or integers.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.square(x, dtype=np.float64).sum())


def to_halves(x: NDArray[Any], factor: float, out: NDArray[np.float16]) -> None:
    """``out = x * factor``, rounded to float16 once; what is beyond it is Inf.

    Parameters
    ----------
    x : (p,) float32 or float64 array
        Contiguous, as `out`.
    factor : float
        A power of two, 2^-254 to 2^254.
    out : (p,) float16 array
    """
    # float32 is faster, but cannot hold larger factors
    dtype = None if 2.0**-100 <= factor <= 2.0**100 else np.float64
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.multiply(x, factor, out=out, dtype=dtype, casting="same_kind")


def combine_pairs(
    rows: Rows,
    coef: NDArray[np.complex128],
    out: NDArray[np.float64],
    *,
    paired: bool,
    rounded: bool = False,
    accumulate: bool = False,
    check: bool = False,
) -> bool:
    """``out = sum_r coef[r] * rows[r]``, or ``out +=`` that, in twice float64's precision.

    Complex coefficients, and reals that stand for complex pairs, as in `combine` for ``PACKED``. A
    number of twice float64's precision is a pair of float64, `high` and `low`, that stands for
    ``high + low``, with ``|low| <= ulp(high) / 2``; vectors of them have both side by side.

    High parts are added up without error, what they lack in float64 (Ogita, Rump and Oishi,
    "Accurate sum and dot product", 2005). Errors are at most ``(f + 2)^2 2^-106 sum_r |coef[r]|
    |rows[r]|``, and the final rounding; with elements of size 1 they are usually about
    ``0.3 sqrt(f) 2^-106 ||coef||``. Coefficients and elements over 2^995 may give NaN, and products
    below 2^-968 errors of 2^-1072 each. What is not finite gives NaN or Inf.

    Parameters
    ----------
    rows : Rows
        Of float64: q reals each; or with `paired` q pairs, 2 q float64.
    coef : (f, 2) complex128 array
        High parts of the real and the imaginary part, then low ones.
    out : (2 p,) float64 array
        p pairs, normalised; p is q, or if this is odd, q + 1, or one less than q if this is even.
        With `rounded` (p,): numbers rounded to float64.
    paired : bool
        Rows consist of pairs.
    rounded : bool
        Write float64; for rows of pairs.
    accumulate, check
        As of `combine`; so is what is returned.
    """
    extent = extent_of_pairs(rows, out, paired, rounded)
    nothing: Pair = np.zeros(extent // 2), np.zeros(extent // 2)
    re, im = nothing, nothing
    with np.errstate(over="ignore", invalid="ignore"):
        for (high, low), row in zip(coef.tolist(), rows.arrays, strict=False):
            v, w = _parts(row, extent, paired)
            x, y = (high.real, low.real), (high.imag, low.imag)
            re = add(re, add(multiply(x, v), negate(multiply(y, w))))
            im = add(im, add(multiply(x, w), multiply(y, v)))
        if accumulate:
            v, w = _parts(out, extent, not rounded)
            re, im = add(re, v), add(im, w)
        result = np.stack([re, im]).transpose(2, 0, 1)  # pair by pair of numbers
        if rounded:
            result = result[..., 0]
    out[:] = result.reshape(-1)[: out.size]
    return not check or bool(np.isfinite(out).all())


def _parts(row: NDArray[np.float64], size: int, paired: bool) -> tuple[Pair, Pair]:
    """Real and imaginary parts of a row, completed by zeros to so many reals."""
    parts = np.zeros((size // 2, 2, 2))  # real or imaginary, high or low
    if paired:
        parts.reshape(-1)[: row.size] = row
    else:
        parts[..., 0].reshape(-1)[: row.size] = row
    return (parts[:, 0, 0], parts[:, 0, 1]), (parts[:, 1, 0], parts[:, 1, 1])
