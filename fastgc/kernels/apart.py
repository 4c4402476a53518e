"""Combinations of rows as they come: maybe not aligned, maybe not apart from the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import choice
from . import numpy as plain
from .cyclic import Status
from .rows import INTEGER, PACKED, REAL, AddRow, Combinations, Rows, alike, extent_of, kind_of

__all__ = ["bind_add", "bind_apart"]


def bind_apart(
    mode: int,
    coef: NDArray[Any],
    length: int,
    dtype: np.dtype[Any],
    size: int,
    check: bool = False,
) -> Combinations:
    """Prepare ``out = sum_r coef[r] * rows[r]``, of rows and for an `out` given with each call.

    Rows fit, and `out` does, which is contiguous and aligned; rows whose coefficient is 0 are not
    read. The functions return ``Status.OK``; ``MISPLACED``, where a row is not aligned, or not
    contiguous, or shares memory with `out`, or ``NO_MEMORY``, and nothing was written; or
    ``NOT_FINITE``, where `combine` would return False.

    Parameters
    ----------
    mode, check
        As in `combine`.
    coef : (capacity,) float64 or complex128 array
        As in `combine`; the first ones are read in each call.
    length : int
        Numbers in a row.
    dtype : numpy dtype
        Of rows as `combine` takes them, complex only for ``REAL_PART``. Complex numbers that stand
        for two reals may be given as they are, and to `out`.
    size : int
        Numbers in `out`, as `combine` takes it.
    """
    backend, extent = choice.load(), extent_of(mode, length, size)
    integers = kind_of(dtype) == INTEGER
    bind = getattr(backend, "bind_apart", None)
    if bind is not None and not integers:
        return bind(mode, coef, length, dtype, extent, size, check)  # type: ignore[no-any-return]
    kernel = plain.combine if integers else backend.combine

    # What csrc/apart.c does, without a compiler.
    def listed(rows: Rows, out: NDArray[Any], count: int) -> int:
        first = rows.select(np.arange(count))
        if first.overlap(out) or (first.addresses % dtype.alignment).any():
            return Status.MISPLACED
        used = np.flatnonzero(coef[:count])
        chosen = rows.select(used)
        chosen.arrays = [row.view(dtype) for row in chosen.arrays]
        reals = (
            out.view(out.real.dtype) if mode in (REAL, PACKED) and out.dtype.kind == "c" else out
        )
        finite = kernel(mode, chosen, coef[used], reals, extent, False, check)
        return Status.OK if finite else Status.NOT_FINITE

    def separate(rows: Sequence[NDArray[Any]], out: NDArray[Any], count: int) -> int:
        if not all(row.flags.c_contiguous for row in rows):
            return Status.MISPLACED
        return listed(Rows.of(rows, length, dtype), out, count)

    def stacked(rows: Any, out: NDArray[Any], count: int) -> int:
        flat = np.frombuffer(rows, np.uint8)[: count * length * dtype.itemsize]
        return separate([*flat.reshape(count, -1)], out, count)

    def objects(arrays: list[Any], out: NDArray[Any], count: int) -> int:
        return separate(arrays, out, count) if alike(arrays) else Status.MISPLACED

    return Combinations(stacked, separate, listed, objects)


def bind_add(
    mode: int,
    coef: NDArray[Any],
    weights: NDArray[np.float64],
    length: int,
    dtype: np.dtype[Any],
    out: NDArray[Any],
    energy: NDArray[np.float64],
) -> AddRow:
    """Prepare ``out += coef[at] * row`` and ``energy[0] += weights[at] * ||row||^2``, in one pass.

    Returns a function ``add(row, at, accumulate)``; without `accumulate`, `out` is overwritten. It
    returns ``Status.OK``; or ``MISPLACED``, where the row is not aligned or shares memory with
    `out`, and nothing was written. The row is contiguous; pointers to all else are taken once.

    Parameters
    ----------
    mode, coef, length, dtype
        As of `bind_apart`, but for ``REAL_PART``, which is for decoding.
    weights : (capacity,) float64 array
    out : array
        As `combine` takes it.
    energy : (1,) float64 array
        In double precision: not finite if a row is not.
    """
    backend, extent = choice.load(), extent_of(mode, length, out.size)
    integers = kind_of(dtype) == INTEGER
    bind = getattr(backend, "bind_add", None)
    if bind is not None and not integers:
        return bind(mode, coef, weights, length, dtype, extent, out, energy)  # type: ignore[no-any-return]
    rows, factor, weight = Rows(1, length, dtype), coef[:1].copy(), weights[:1].copy()
    bind_encode = plain.bind_encode if integers else backend.bind_encode
    begin, go_on = (
        bind_encode(mode, rows, factor, weight, out, extent, accumulate)
        for accumulate in (False, True)
    )

    def add(row: NDArray[Any], at: int, accumulate: bool) -> int:
        rows.clear()
        rows.append(_reals(row, mode))
        if rows.overlap(out) or not row.flags.aligned:
            return Status.MISPLACED
        factor[0], weight[0] = coef[at], weights[at]
        energy[0] += (go_on if accumulate else begin)()
        return Status.OK

    return add


def _reals(array: NDArray[Any], mode: int) -> NDArray[Any]:
    """Complex numbers that stand for two reals each as these."""
    paired = mode in (REAL, PACKED) and array.dtype.kind == "c"
    return array.view(array.real.dtype) if paired else array
