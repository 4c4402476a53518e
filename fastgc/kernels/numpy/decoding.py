"""Decoding vectors of cyclic codes, and bit masks of survivors."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..._base.arrays import Bools, Complexes, Floats, Ints
from ..cyclic import (
    LOCATOR,
    LOOKUP,
    SPREAD,
    CyclicPlan,
    CyclicTables,
    Decode,
    Polar,
    Status,
    Where,
)

__all__ = [
    "bind_decoding_vector",
    "bind_polar",
    "bind_survivor_mask",
    "decoding_vectors",
]

_RUN = 32  # factors between two normalisations; see csrc/levels.h


def cyclic_product(table: Floats, m: int, index: Ints) -> tuple[Floats, Ints]:
    """Mantissa and binary exponent of ``prod_j table[m + i - index[j]]``, i = 0 .. m-1."""
    product, exponent = np.ones(m), np.zeros(m, dtype=np.int64)
    slices = np.lib.stride_tricks.sliding_window_view(table, m)  # row m - j starts at t = -j
    for at in range(0, index.size, _RUN):
        product *= np.multiply.reduce(slices[m - index[at : at + _RUN]], axis=0)
        product, shift = np.frexp(product)
        exponent += shift
    return product, exponent


def _turn_block(
    tables: CyclicTables,
    b: int,
    lookup: bool,
    count: int,
    total: int,
    product: Floats,
    exponent: Ints,
) -> Complexes:
    """Entries from the products over `count` workers whose indices add up to `total`."""
    m, q = product.size, int(tables.q[b])
    # locator: factors 2 sin * exp(i (theta - pi/2)) over the stragglers, times 1/m;
    # lookup: the inverses of such factors over the other survivors
    sign, factors = (-1, count - 1) if lookup else (1, count)
    turn = sign * q * (count * np.arange(m) - total) % (2 * m)
    at = tables.phase_offset[b]
    phase = tables.phase[at : at + 4 * m].view(np.complex128)[turn]
    quarter = (1, 1j, -1, -1j)[-sign * factors % 4]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        magnitude = np.ldexp(product / (1 if lookup else m), exponent)
        return np.asarray(magnitude * (phase * quarter))


def _decode_block(tables: CyclicTables, b: int, method: int, present: Bools) -> Complexes:
    m, lookup = present.size, method == LOOKUP
    index = np.flatnonzero(present if lookup else ~present)
    at = tables.offset[b]
    table = (tables.cosecant if lookup else tables.sine)[at : at + 2 * m]
    product, exponent = cyclic_product(table, m, index)
    return _turn_block(tables, b, lookup, index.size, int(index.sum()), product, exponent)


def _keep_spread(sine: Floats, need: int, present: Bools) -> Bools:
    """Find the `need` survivors that are spread best, in Leja order: see csrc/cyclic.c."""
    m = present.size
    kept = np.zeros(m, dtype=np.bool_)
    score, largest = present.astype(float), 1.0
    for _ in range(need):
        left = score >= largest * (1 - 1e-9) if largest > 0 else present & ~kept
        best = int(np.argmax(left))
        kept[best] = True
        score *= np.abs(sine[m - best : 2 * m - best]) * (1 / largest if largest > 0 else 1.0)
        largest = float(score.max())
    return kept


def _spread_block(tables: CyclicTables, b: int, present: Bools) -> Complexes:
    need, m, count = int(tables.need[b]), present.size, np.count_nonzero(present)
    value = _decode_block(tables, b, LOOKUP if 2 * count < m else LOCATOR, present)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sum(np.abs(value[present]) ** 2))
    if count == need or norm <= 1 + 1e-9:
        return value
    at = tables.offset[b]
    kept = _keep_spread(tables.sine[at : at + 2 * m], need, present)
    value = _decode_block(tables, b, LOOKUP if 2 * need < m else LOCATOR, kept)
    return np.where(kept, value, 0)


def _mark(plan: CyclicPlan, survivors: Ints, present: Bools) -> tuple[Status, int]:
    """Check survivors and mark them in `present`. Returns the status, and where it applies."""
    inside = (survivors >= 0) & (survivors < plan.workers)
    present[:] = False
    present[survivors[inside]] = True
    if np.count_nonzero(present) < survivors.size:
        fault = np.ones(survivors.size, dtype=bool)
        fault[np.unique(survivors, return_index=True)[1]] = False
        at = int(np.argmax(fault | ~inside))
        return (Status.DUPLICATE if inside[at] else Status.OUT_OF_RANGE), at
    missing = _missing(plan.tables, present)
    return (Status.TOO_FEW if missing else Status.OK), missing


def _missing(tables: CyclicTables, present: Bools) -> int:
    missing = tables.need - np.add.reduceat(present, tables.start[:-1], dtype=np.int64)
    return int(missing[missing > 0].sum())


def _decode_marked(tables: CyclicTables, method: int, present: Bools) -> Complexes:
    """Entries for all workers."""
    blocks = [present[lo:hi] for lo, hi in pairwise(tables.start)]
    if method == SPREAD:
        return np.concatenate([_spread_block(tables, b, block) for b, block in enumerate(blocks)])
    return np.concatenate(
        [_decode_block(tables, b, method, block) for b, block in enumerate(blocks)]
    )


def _finite(out: Complexes) -> tuple[Status, int]:
    beyond = np.flatnonzero(~np.isfinite(out))
    return (Status.OVERFLOW, int(beyond[-1])) if beyond.size else (Status.OK, 0)


def _square_sum(out: Complexes) -> float:
    with np.errstate(over="ignore"):
        return float(np.sum(out.real**2 + out.imag**2))


def bind_decoding_vector(
    plan: CyclicPlan, survivors: Ints, out: Complexes, longest: float = math.inf
) -> tuple[Decode, Where]:
    """Prepare the computation of decoding vectors on two fixed buffers.

    Returns a function ``decode(method, f) -> status`` that reads ``survivors[:f]`` and writes
    ``out[:f]``, and an object whose item 0 then says where the status applies. Pointers are taken
    once, here. If the entries' sum of squares is over `longest`, they are written, and the status
    is ``IMPRECISE``.
    """
    present, where = np.empty(plan.workers, dtype=np.bool_), [0]

    def decode(method: int, f: int) -> int:
        status, where[0] = _mark(plan, survivors[:f], present)
        if status == Status.OK:
            out[:f] = _decode_marked(plan.tables, method, present)[survivors[:f]]
            status, where[0] = _finite(out[:f])
            if status == Status.OK and not _square_sum(out[:f]) <= longest:
                status = Status.IMPRECISE
        return status

    return decode, where


def bind_polar(
    plan: CyclicPlan, survivors: Ints, present: Bools, size: Floats, out: Complexes
) -> Polar:
    """Prepare a vector whose magnitudes are known, by worker: `size`, read when it is written.

    Parameters
    ----------
    plan : CyclicPlan
    survivors : (n,) int64 array
    present : (n,) bool array
        Written by `Polar.mark`.
    size : (n,) float64 array
    out : (n,) complex128 array
    """
    tables, where = plan.tables, [0]

    def mark(f: int) -> int:
        status, where[0] = _mark(plan, survivors[:f], present)
        return status

    def write(f: int) -> int:
        value = np.empty(plan.workers, dtype=np.complex128)
        for b, (lo, hi) in enumerate(pairwise(tables.start)):
            q, m, lost = int(tables.q[b]), int(hi - lo), np.flatnonzero(~present[lo:hi])
            # With theta = pi r / m for the residues r = q (i-j) mod m all sines are positive, and
            # the angles add up: sum r = s x - sum y + m #{y > x}, x = q i mod m, y = q j mod m.
            x, y = q * np.arange(m) % m, np.sort(q * lost % m)
            above = y.size - np.searchsorted(y, x, side="right")
            turn = (y.size * x - y.sum() + m * above) % (2 * m)
            at = tables.phase_offset[b]
            phase = tables.phase[at : at + 4 * m].view(np.complex128)[turn]
            with np.errstate(invalid="ignore"):
                value[lo:hi] = size[lo:hi] * (phase * (1, -1j, -1, 1j)[y.size % 4])
        out[:f] = value[survivors[:f]]
        status, where[0] = _finite(out[:f])
        return status

    return Polar(mark, write, where)


def decoding_vectors(
    plan: CyclicPlan,
    masks: Bools,
    method: int,
    out: Complexes,
    where: Ints,
    longest: float = math.inf,
) -> None:
    """Compute the decoding vectors of many rounds.

    Parameters
    ----------
    plan : CyclicPlan
    masks : (rounds, n) bool array
        The survivors of each round; C-contiguous. ``SPREAD`` overwrites it.
    method : int
        As for the function that `bind_decoding_vector` returns.
    out : (rounds, n) complex128 array
        C-contiguous; the coefficients of all workers, 0 for stragglers.
    where : (rounds,) int64 array
        0; or how many more survivors are needed, and the row of `out` is not written; or -1 if an
        entry does not fit a double; or -2 if the sum of squares is over `longest`.
    longest : float
    """
    for r, present in enumerate(masks):
        where[r] = _missing(plan.tables, present)
        if not where[r]:
            value = _decode_marked(plan.tables, method, present)
            out[r] = np.where(present, value, 0)
            if _finite(out[r])[0] != Status.OK:
                where[r] = -1
            elif not _square_sum(out[r]) <= longest:
                where[r] = -2


def bind_survivor_mask(n: int, survivors: Ints, bits: NDArray[np.uint8]) -> Callable[[int], int]:
    """Prepare the bit mask of a set of survivors on two fixed buffers.

    Returns a function ``mask(f)`` that reads ``survivors[:f]``, in any order, and writes `bits`:
    survivor i has bit ``i % 8`` of byte ``i // 8``. It returns 0 if survivors are distinct and in
    0 .. n-1; otherwise 1, and the bits mean nothing.

    Parameters
    ----------
    n : int
    survivors : (n,) int64 array
    bits : (ceil(n / 8),) uint8 array
    """

    def mask(f: int) -> int:
        chosen = survivors[:f]
        if ((chosen < 0) | (chosen >= n)).any():
            return 1
        present = np.zeros(n, dtype=np.bool_)
        present[chosen] = True
        bits[:] = np.packbits(present, bitorder="little")
        return int(np.count_nonzero(present) < f)

    return mask
