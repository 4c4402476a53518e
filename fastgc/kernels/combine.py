"""Linear combinations of long vectors, and their norms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._base.arrays import Array
from . import unchecked
from .contract import REALS, reads, takes, writes
from .rows import EXPAND, PACKED, REAL, REAL_PART, Rows

__all__ = ["combine", "square_sum", "to_halves"]


_FLOAT, _DOUBLE, _COMPLEX = map(np.dtype, ("float32", "float64", "complex128"))


_WIDE = ("float", "double")


_TAKEN = {  # kinds of rows
    REAL: (*_WIDE, "half", "bfloat"),
    PACKED: (*_WIDE, "half", "bfloat"),
    REAL_PART: _WIDE,
    EXPAND: _WIDE,
}


def _check_combination(mode: int, rows: Rows, coef: Array, out: Array) -> None:
    """Raise TypeError or ValueError unless `combine` can do this."""
    if mode not in _TAKEN:
        raise ValueError(f"mode must be REAL, PACKED, REAL_PART or EXPAND, not {mode}")
    rows.check("rows")
    row = rows.dtype
    if row.kind == "c" and mode != REAL_PART:
        raise TypeError(f"rows must be real, unless the mode is REAL_PART: they are {row}")
    if row.kind != "c" and mode == REAL_PART:
        raise TypeError(f"rows must be complex for REAL_PART: they are {row}")
    if rows.kind not in _TAKEN[mode]:
        raise TypeError(f"rows of {row} are not for this mode")
    wanted: np.dtype[Any] = _DOUBLE if mode == REAL else _COMPLEX
    if coef.dtype != wanted:
        raise TypeError(f"coef must have dtype {wanted} for this mode, not {coef.dtype}")
    if coef.size != rows.count:
        raise ValueError(f"coef must have shape ({rows.count},), as there are rows: {coef.shape}")
    wanted = _DOUBLE if rows.kind == "double" else _FLOAT
    if mode == EXPAND:
        wanted = np.result_type(wanted, np.complex64)
    if out.dtype != wanted:
        raise TypeError(f"out must have dtype {wanted} for these rows and mode, not {out.dtype}")
    length, packed = rows.length, mode == PACKED
    if out.size != length and not (packed and (out.size + 1) // 2 == (length + 1) // 2):
        more = ", or its last pair cut" if packed else ""
        raise ValueError(f"out must be as long as rows of {length}{more}: its shape is {out.shape}")
    if length and rows.overlap(out):
        raise ValueError("out and rows overlap: they must share no memory")


@takes(
    _check_combination,
    rows=Rows,
    coef=reads("float64 complex128", "f"),
    out=writes("float32 float64 complex64 complex128", "p"),
)
def combine(
    mode: int, rows: Rows, coef: Array, out: Array, accumulate: bool = False, check: bool = False
) -> bool:
    """Compute ``out = sum_r coef[r] * rows[r]``, or ``out +=`` that.

    For rows of float32, coefficients are rounded to float32, at most 8 rows are added up in
    float32, and these sums in float64; the total is rounded once. To first order, the error is at
    most ``u |out| + (min(f, 8) + parts + 1) u sum_r |coef[r]| |rows[r]|``, where ``u = 2^-24``, and
    parts is 1 for real coefficients and 2 for complex ones. (Numba
    takes all sums in float64.)

    Parameters
    ----------
    mode : int
        ``REAL``, ``PACKED``, ``REAL_PART`` or ``EXPAND``: how rows and `out` relate.
    rows : Rows
        Real rows of one length and of the precision of `out`; complex rows for ``REAL_PART``. For
        ``REAL`` and ``PACKED`` also rows of float16 or bfloat16, with `out` of float32.
    coef : (f,) float64 or complex128 array
        float64 for ``REAL``, complex128 otherwise.
    out : (p,) array
        float32 or float64; complex of that precision for ``EXPAND``.
    accumulate : bool
        Add to `out`.
    check : bool
        Look for NaN and Inf in the values that are written.

    Returns
    -------
    bool
        False if `check` is set and a written value is NaN or Inf, else True.
    """
    return unchecked.combine(mode, rows, coef, out, accumulate, check)


@takes(x=reads("float32 float64 float16 bfloat16", "p"))
def square_sum(x: Array) -> float:
    """Sum of squares of a real vector, in double precision; not finite if `x` is not.

    `x` is of float32, float64, float16 or bfloat16.
    """
    return float(unchecked.square_sum(x))


@takes(x=reads(REALS, "p"), out=writes("float16", "p"))
def to_halves(x: Array, out: NDArray[np.float16]) -> None:
    """Round a vector to float16, each number once; an overflow becomes Inf.

    Parameters
    ----------
    x : (p,) float32 or float64 array
        Contiguous, like `out`.
    out : (p,) float16 array
    """
    unchecked.to_halves(x, out)
