"""Linear combinations of long vectors, and their norms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cyclic import Status
from ..rows import INTEGER, LARGEST_GROUP, PACKED, REAL, REAL_PART, CombineRows, EncodeRows, Rows

__all__ = ["bind_combine", "bind_encode", "combine", "square_sum"]


def combine(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    out: NDArray[Any],
    extent: int,
    accumulate: bool,
    check: bool,
) -> bool:
    """See `fastgc.kernels.combine`."""
    if rows.kind == INTEGER:
        return _combine_integers(rows, coef, out, accumulate)
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


def bind_combine(
    mode: int,
    rows: Rows,
    numbers: NDArray[np.int64],
    coef: NDArray[Any],
    out: NDArray[Any],
    extent: int,
    accumulate: bool,
    check: bool,
) -> CombineRows:
    """See `fastgc.kernels.bind_combine`."""

    def combine_chosen(count: int) -> int:
        used = np.flatnonzero(coef[:count])
        chosen = rows.select(numbers[used])
        finite = combine(mode, chosen, coef[used], out, extent, accumulate, check)
        return Status.OK if finite else Status.NOT_FINITE

    return combine_chosen


def bind_encode(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    weights: NDArray[np.float64],
    out: NDArray[Any],
    extent: int,
    accumulate: bool,
) -> EncodeRows:
    """See `fastgc.kernels.bind_encode`."""

    def encode() -> float:
        combine(mode, rows, coef, out, extent, accumulate, False)
        squares = [square_sum(row) for row in rows.arrays]
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.multiply(weights, squares).sum())

    return encode


def square_sum(x: NDArray[Any]) -> float:
    """See `fastgc.kernels.square_sum`."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.square(x, dtype=np.float64).sum())
