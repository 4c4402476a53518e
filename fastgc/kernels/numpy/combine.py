"""Linear combinations of long vectors, and their norms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..rows import INTEGER, LARGEST_GROUP, PACKED, REAL, REAL_PART, Rows, extent_of

__all__ = ["combine", "square_sum", "to_halves"]


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
