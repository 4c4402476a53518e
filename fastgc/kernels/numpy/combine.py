"""Linear combinations of long vectors, also in twice float64's precision, and their norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._base.arrays import Array, Floats, Ints
from ..contract import REALS, reads, takes, writes
from ..cyclic import Status
from ..dispatch import own
from ..rows import (
    EXPAND,
    LARGEST_GROUP,
    PACKED,
    REAL,
    REAL_PART,
    AddRow,
    Combinations,
    CombineRows,
    EncodeRows,
    Rows,
    alike,
    extent_of,
)

__all__ = [
    "bind_add",
    "bind_apart",
    "bind_combine",
    "bind_encode",
    "bind_square_sum",
    "combine",
    "hash_and_scale",
    "hash_words",
    "square_sum",
    "to_halves",
]


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
    _check_length(out, rows.length, out.size, mode == PACKED)
    _check_apart(rows, out)


def _check_length(out: Array, length: int, size: int, packed: bool) -> None:
    """Raise ValueError unless `out`, of `size` numbers, fits rows of `length` numbers."""
    if (size + 1) // 2 != (length + 1) // 2 if packed else size != length:
        more = ", or its last pair cut" if packed else ""
        raise ValueError(f"out must be as long as rows of {length}{more}: its shape is {out.shape}")


def _check_apart(rows: Rows, out: Array) -> None:
    if rows.nbytes and out.size and rows.overlap(out):
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
    parts is 1 for real coefficients and 2 for complex ones. (NumPy and Numba take all sums in
    float64.)

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
    extent = extent_of(mode, rows.length, out.size)
    size = extent // 2 if mode == PACKED else extent
    total: Array = np.zeros(size, dtype=np.float64 if mode == REAL else np.complex128)
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
        result: Array
        if mode == PACKED:
            result = total.view(np.float64)[: out.size]
        else:
            result = total.real if mode == REAL_PART else total
        np.copyto(out, out + result if accumulate else result, casting="same_kind")
    return not check or bool(np.isfinite(out).all())


@takes(x=reads("float32 float64 float16 bfloat16", "p"))
def square_sum(x: Array) -> float:
    """Sum of squares of a real vector, in double precision; not finite if `x` is not.

    `x` is of float32, float64, float16 or bfloat16.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.square(x, dtype=np.float64).sum())


@takes(x=reads(REALS, "p"), out=writes("float16", "p"))
def to_halves(x: Array, out: NDArray[np.float16]) -> None:
    """Round a vector to float16, each number once; an overflow becomes Inf.

    Parameters
    ----------
    x : (p,) float32 or float64 array
        Contiguous, like `out`.
    out : (p,) float16 array
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.multiply(x, 1, out=out, casting="same_kind")  # as computing does, it makes NaN quiet


def _check_blocks(words: int, keys: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    blocks = -(-words // keys.size)
    if out.size != blocks:
        raise ValueError(
            f"out must have shape ({blocks},), one word for every {keys.size} of {words}: "
            f"its shape is {out.shape}"
        )


@takes(
    lambda words, keys, out: _check_blocks(words.size, keys, out),
    words=reads("uint64", "n"),
    keys=reads("uint64", "k", least=1),
    out=writes("uint64", "m"),
)
def hash_words(
    words: NDArray[np.uint64], keys: NDArray[np.uint64], out: NDArray[np.uint64]
) -> None:
    """Hash each block of k words to one word, by the family NH with k random keys.

    The half of each word's key is added, modulo 2^32, to each half of the word. The hash is the
    sum, modulo 2^64, of the products of the two halves. Blocks that differ have the same hash with
    a probability of at most 2^-32 over the keys (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC:
    fast and secure message authentication", 1999).

    Parameters
    ----------
    words : (n,) uint64 array
        Contiguous, like the others.
    keys : (k,) uint64 array
        A shorter last block uses as many keys as it has words.
    out : (ceil(n / k),) uint64 array
    """
    half, mask = np.uint64(32), np.uint64(2**32 - 1)
    for at in range(out.size):
        block = words[at * keys.size : (at + 1) * keys.size]
        key = keys[: block.size]
        low = ((block & mask) + (key & mask)) & mask
        high = ((block >> half) + (key >> half)) & mask
        out[at] = (low * high).sum(dtype=np.uint64)


@takes(
    lambda x, keys, out: _check_blocks(-(-x.nbytes // 8), keys, out),
    x=reads(REALS, "p", same="product"),
    keys=reads("uint64", "k", least=1),
    product=writes("x", "p", same="x"),
    out=writes("uint64", "m"),
)
def hash_and_scale(
    x: Array, factor: float, keys: NDArray[np.uint64], product: Array, out: NDArray[np.uint64]
) -> None:
    """Hash the bits of a vector as `hash_words` does, and compute ``product = x * factor``.

    It takes hardly longer than the multiplication alone, as it reads the vector once.

    Parameters
    ----------
    x : (p,) float32 or float64 array
        Contiguous, like the others. If p float32 are no whole number of words, zeros fill the last.
    factor : float
        It is rounded to the dtype of `x`. If it is 0, so is the product, also where `x` is NaN.
    keys : (k,) uint64 array
    product : (p,) array
        Of the dtype of `x`; it may be `x`.
    out : (ceil(w / k),) uint64 array
        The hashes of the w words.
    """
    octets = np.zeros(-(-x.nbytes // 8) * 8, dtype=np.uint8)
    octets[: x.nbytes] = x.view(np.uint8)
    hash_words(octets.view(np.uint64), keys, out)
    by = x.dtype.type(factor)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.multiply(x, by, out=product)
    if by == 0:
        product.fill(0)


# Combinations on fixed buffers, and of rows as they come. They call `combine` and `square_sum` of
# the backend in use when they are bound; C has faster ones of its own.


def bind_combine(
    mode: int,
    rows: Rows,
    numbers: Ints,
    coef: Array,
    out: Array,
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
    mode: int, rows: Rows, coef: Array, weights: Floats, out: Array, accumulate: bool = False
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


def bind_square_sum(x: Array) -> Callable[[], float]:
    """Prepare `square_sum` of a contiguous vector of float32 or float64, read at each call."""
    return partial(own(square_sum), x)


def bind_apart(
    mode: int, coef: Array, length: int, dtype: np.dtype[Any], size: int, check: bool = False
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

    def listed(rows: Rows, out: Array, count: int) -> int:
        first = rows.select(np.arange(count))
        if first.overlap(out) or (first.addresses % dtype.alignment).any():
            return Status.MISPLACED
        used = np.flatnonzero(coef[:count])
        chosen = rows.select(used)
        chosen.arrays = [row.view(dtype) for row in chosen.arrays]
        finite = add_up(mode, chosen, coef[used], _reals(out, mode), False, check)
        return Status.OK if finite else Status.NOT_FINITE

    def separate(rows: Sequence[Array], out: Array, count: int) -> int:
        if not (alike(rows) and all(row.flags.c_contiguous for row in rows)):
            return Status.MISPLACED
        return listed(Rows.of(rows, length, dtype), out, count)

    def stacked(rows: Any, out: Array, count: int) -> int:
        flat = np.frombuffer(rows, np.uint8)[: count * length * dtype.itemsize]
        return separate([*flat.reshape(count, -1)], out, count)

    return Combinations(stacked, separate, listed)


def bind_add(
    mode: int,
    coef: Array,
    weights: Floats,
    length: int,
    dtype: np.dtype[Any],
    out: Array,
    energy: Floats,
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

    def add(row: Array, at: int, accumulate: bool) -> int:
        rows.clear()
        rows.append(_reals(row, mode))
        if rows.overlap(out) or not row.flags.aligned:
            return Status.MISPLACED
        factor[0], weight[0] = coef[at], weights[at]
        energy[0] += (go_on if accumulate else begin)()
        return Status.OK

    return add


def _reals(array: Array, mode: int) -> Array:
    """View complex numbers that stand for two reals each as reals."""
    paired = mode in (REAL, PACKED) and array.dtype.kind == "c"
    return array.view(array.real.dtype) if paired else array
