"""Linear combinations of long vectors in twice float64's precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..rows import Rows
from .pairs import Pair, add, multiply, negate

__all__ = ["combine_pairs"]


def combine_pairs(
    rows: Rows,
    coef: NDArray[np.complex128],
    out: NDArray[np.float64],
    extent: int,
    paired: bool,
    rounded: bool,
    accumulate: bool,
    check: bool,
) -> bool:
    """See `fastgc.kernels.combine_pairs`; `extent` numbers, an even one, of all that there are."""
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
