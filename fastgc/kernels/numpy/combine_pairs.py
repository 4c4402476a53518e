"""Linear combinations of long vectors in twice float64's precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..rows import Rows, extent_of_pairs
from .pairs import Pair, add, multiply, negate

__all__ = ["combine_pairs"]


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
