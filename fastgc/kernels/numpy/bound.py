"""Combinations on fixed buffers, combinations of rows as they come, and messages as they come.

These call `combine` and `square_sum` of the backend in use when they are bound. They serve every
backend that has no functions of these names; C has faster ones of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cyclic import Status
from ..dispatch import own
from ..rows import PACKED, REAL, AddRow, Combinations, CombineRows, EncodeRows, Rows, alike
from .combine import combine, square_sum

__all__ = [
    "bind_add",
    "bind_apart",
    "bind_arrivals",
    "bind_combine",
    "bind_encode",
    "bind_square_sum",
]


def bind_combine(
    mode: int,
    rows: Rows,
    numbers: NDArray[np.int64],
    coef: NDArray[Any],
    out: NDArray[Any],
    accumulate: bool = False,
    check: bool = False,
) -> CombineRows:
    """Prepare ``out = sum_r coef[r] * rows[numbers[r]]``, or ``out +=``, on fixed buffers.

    Returns a function ``combine(count) -> status`` that reads ``numbers[:count]`` and
    ``coef[:count]``. Rows whose coefficient is 0 are not read. The status is `Status.NOT_FINITE` if
    `combine` would return False. Pointers are taken once, here; the function keeps their arrays
    alive.

    Parameters
    ----------
    mode, rows, coef, out, accumulate, check
        As in `combine`.
    numbers : (capacity,) int64 array
        Numbers of rows; as long as `coef`.
    """
    add_up = own(combine)

    def combine_chosen(count: int) -> int:
        used = np.flatnonzero(coef[:count])
        chosen = rows.select(numbers[used])
        finite = add_up(mode, chosen, coef[used], out, accumulate, check)
        return Status.OK if finite else Status.NOT_FINITE

    return combine_chosen


def bind_encode(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    weights: NDArray[np.float64],
    out: NDArray[Any],
    accumulate: bool = False,
) -> EncodeRows:
    """Prepare ``out = sum_r coef[r] * rows[r]``, or ``out +=``, and the rows' norms, in one pass.

    Returns a function that combines the rows listed when it is called, and returns ``sum_r
    weights[r] * ||rows[r]||^2`` in double precision; it is not finite if a row is not. Pointers are
    taken once, here; the function keeps their arrays alive.

    Parameters
    ----------
    mode, rows, coef, out, accumulate
        As in `combine`, but not ``REAL_PART``, which is for decoding.
    weights : (f,) float64 array
        One for each of the f rows that will be listed, as in `coef`.
    """
    add_up, square_of = own(combine), own(square_sum)

    def encode() -> float:
        add_up(mode, rows, coef, out, accumulate)
        squares = [square_of(row) for row in rows.arrays]
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.multiply(weights, squares).sum())

    return encode


def bind_square_sum(x: NDArray[Any]) -> Callable[[], float]:
    """Prepare `square_sum` of a contiguous vector of float32 or float64, read at each call."""
    return partial(own(square_sum), x)


def bind_apart(
    mode: int,
    coef: NDArray[Any],
    length: int,
    dtype: np.dtype[Any],
    size: int,
    check: bool = False,
) -> Combinations:
    """Prepare ``out = sum_r coef[r] * rows[r]`` for rows and an `out` that each call is given.

    Rows and `out` must fit; `out` is contiguous and aligned. Rows whose coefficient is 0 are not
    read. The functions return one of these:

    - ``Status.OK``;
    - ``MISPLACED`` if a row is not aligned, not contiguous, or shares memory with `out`, or
      ``NO_MEMORY``; nothing is written then;
    - ``NOT_FINITE`` if `combine` would return False.

    Parameters
    ----------
    mode, check
        As in `combine`.
    coef : (capacity,) float64 or complex128 array
        As in `combine`; each call reads the first `count` of them.
    length : int
        Numbers in a row.
    dtype : numpy dtype
        Of rows as `combine` takes them, complex only for ``REAL_PART``. Rows and `out` of complex
        numbers that stand for two reals each may be given as they are.
    size : int
        Numbers in `out`, as `combine` takes it.
    """
    add_up = own(combine)

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
        finite = add_up(mode, chosen, coef[used], reals, False, check)
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

    Returns a function ``add(row, at, accumulate)``; without `accumulate`, it overwrites `out`. It
    returns ``Status.OK``; or ``MISPLACED``, with nothing written, if the row is not aligned or
    shares memory with `out`. The row is contiguous. Pointers to other arrays are taken once.

    Parameters
    ----------
    mode, coef, length, dtype
        As in `bind_apart`, but not ``REAL_PART``, which is for decoding.
    weights : (capacity,) float64 array
    out : array
        As `combine` takes it.
    energy : (1,) float64 array
        Not finite if a row is not.
    """
    rows, factor, weight = Rows(1, length, dtype), coef[:1].copy(), weights[:1].copy()
    bind = own(bind_encode)
    begin, go_on = (bind(mode, rows, factor, weight, out, add_to) for add_to in (False, True))

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
    """View complex numbers that stand for two reals each as reals."""
    paired = mode in (REAL, PACKED) and array.dtype.kind == "c"
    return array.view(array.real.dtype) if paired else array


class ArrivalArrays(NamedTuple):
    """The state of messages as they come: fgc_arrivals of csrc/fastgc.h, with the same names."""

    block: NDArray[np.int64]
    weight: NDArray[np.int64]
    lacking: NDArray[np.int64]
    state: NDArray[np.int64]
    heard: NDArray[np.uint8]
    numbers: NDArray[np.int64]
    squares: NDArray[np.float64]
    energies: NDArray[np.float64]


def bind_arrivals(
    rows: Rows, arrays: ArrivalArrays, check: bool
) -> tuple[Callable[[int, Any, float], int], Any]:
    """Prepare a function that takes messages one by one: `Arrivals.arrive`.

    Also returns C's handle of the state, or None in other backends.

    Parameters
    ----------
    rows, check
        As in `Arrivals`.
    arrays : ArrivalArrays
    """
    square_of = own(square_sum)
    block, weight, lacking, state, heard, numbers, squares, energies = arrays

    def arrive(number: int, row: NDArray[Any], energy: float) -> int:
        if not 0 <= number < numbers.size:
            return Status.OUT_OF_RANGE
        if heard[number]:
            return Status.DUPLICATE
        reals = row.view(row.real.dtype) if row.dtype.kind == "c" else row
        square = square_of(reals) if check else math.nan
        if check and not square < math.inf and not np.isfinite(reals).all():
            return Status.NOT_FINITE
        count = int(state[0])
        numbers[count], squares[count] = number, square
        energies[count] = energy if energy >= 0 else math.nan
        rows.point(count, row)
        heard[number] = 1
        state[0] += 1
        lacking[block[number]] -= 1
        if lacking[block[number]] == 0:
            state[1] -= weight[block[number]]
        return Status.TOO_FEW if state[1] > 0 else Status.OK

    return arrive, None
