"""Decoding vectors of cyclic codes."""

from __future__ import annotations

import math

import numpy as np

from ..cyclic import LOCATOR, LOOKUP, SPREAD, Status
from .njit import njit

__all__ = ["decoding_vector", "decoding_vectors"]

RUN = 32  # factors between two normalisations; see csrc/levels.h
CHUNK = 2048  # the products of so many workers are in the nearest cache
_STEPS = 16  # entries for which one phase is looked up


@njit
def normalise(product, exponent):
    """Move binary exponents of products to `exponent`."""
    bits = product.view(np.int64)
    for i in range(product.size):  # frexp without its branches
        biased = (bits[i] >> 52) & 0x7FF
        shift = (biased - 1023) & ~1 if biased else 0  # even; zero stays zero
        bits[i] -= shift << 52
        exponent[i] += shift


@njit
def scale(product, exponent):
    """Multiply product[i] by 2^exponent[i], an even power; `exponent` is overwritten."""
    for i in range(product.size):
        exponent[i] = (min(max(exponent[i] // 2, -1022), 1022) + 1023) << 52
    half = exponent.view(np.float64)
    for i in range(product.size):  # in two steps, which stay in range unless the result does not
        product[i] = product[i] * half[i] * half[i]


@njit
def multiply(table, lo, index, product, exponent):
    """Compute product[i] 2^exponent[i] = prod_j table[lo + i - index[j]].

    With at most RUN factors, exponents are not written: all are 0.
    """
    hi = lo + product.size
    product[:] = 1.0
    if index.size > RUN:
        exponent[:] = 0
    for at in range(0, index.size, RUN):
        some = index[at : at + RUN]
        done = some.size - some.size % 8
        for r in range(0, done, 8):  # eight at a time: a product is read and written once
            a = table[lo - some[r] : hi - some[r]]
            b = table[lo - some[r + 1] : hi - some[r + 1]]
            c = table[lo - some[r + 2] : hi - some[r + 2]]
            d = table[lo - some[r + 3] : hi - some[r + 3]]
            e = table[lo - some[r + 4] : hi - some[r + 4]]
            f = table[lo - some[r + 5] : hi - some[r + 5]]
            g = table[lo - some[r + 6] : hi - some[r + 6]]
            h = table[lo - some[r + 7] : hi - some[r + 7]]
            for i in range(product.size):
                product[i] *= ((a[i] * b[i]) * (c[i] * d[i])) * ((e[i] * f[i]) * (g[i] * h[i]))
        for j in some[done:]:
            a = table[lo - j : hi - j]
            for i in range(product.size):
                product[i] *= a[i]
        if at + RUN < index.size:
            normalise(product, exponent)


@njit
def cyclic_product(table, index, product):
    """Compute product[i] = prod_j table[i - index[j]], for a slice of a table that begins at -m."""
    m = table.size // 2
    exponent = np.empty(min(m, CHUNK) if index.size > RUN else 0, dtype=np.int64)
    for lo in range(0, m, CHUNK):
        part = product[lo : lo + CHUNK]
        power = exponent[: part.size]
        multiply(table, m + lo, index, part, power)
        if index.size > RUN:
            scale(part, power)


@njit
def turn_sizes(phase, m, turn, stride, quarter, size, value):
    """Compute value[i] = size[i] times the phase i strides on from `turn`, times 1j**quarter."""
    circle = 2 * m
    if quarter == 1:
        unit = 1j
    elif quarter == 2:
        unit = -1 + 0j
    elif quarter == 3:
        unit = -1j
    else:
        unit = 1 + 0j
    step = np.empty(_STEPS, np.complex128)
    at = 0
    for r in range(_STEPS):
        step[r] = complex(phase[2 * at], phase[2 * at + 1])
        at = (at + stride) % circle
    for lo in range(0, m, _STEPS):  # few look-ups: tables of large codes do not fit a cache
        base = complex(phase[2 * turn], phase[2 * turn + 1]) * unit
        hi = min(lo + _STEPS, m)
        to, by = value[lo:hi], size[lo:hi]
        for r in range(to.size):
            to[r] = by[r] * (base * step[r])
        turn += at
        if turn >= circle:
            turn -= circle


_OUT_OF_RANGE, _DUPLICATE = int(Status.OUT_OF_RANGE), int(Status.DUPLICATE)
_TOO_FEW, _OVERFLOW = int(Status.TOO_FEW), int(Status.OVERFLOW)
_IMPRECISE = int(Status.IMPRECISE)


@njit
def _turn_block(tables, b, lookup, count, total, product, value):
    """Entries from the products over `count` workers of a block, whose indices add to `total`."""
    m, q = product.size, tables.q[b]
    sign = -1 if lookup else 1
    factors = count - 1 if lookup else count
    if not lookup:
        product /= m
    circle = 2 * m
    stride = sign * q * count % circle
    turn = -sign * q * (total % circle) % circle
    phase = tables.phase[tables.phase_offset[b] :]
    turn_sizes(phase, m, turn, stride, -sign * factors % 4, product, value)


@njit
def _decode_block(tables, b, method, present, value):
    m, lookup = present.size, method == LOOKUP
    index = np.flatnonzero(present == lookup)
    offset = tables.offset[b]
    table = tables.cosecant if lookup else tables.sine
    product = np.empty(m)
    cyclic_product(table[offset : offset + 2 * m], index, product)
    _turn_block(tables, b, lookup, index.size, index.sum(), product, value)


@njit
def _keep_spread(sine, need, present):
    """Unmark all but the `need` survivors that are spread best: see csrc/cyclic.c."""
    m = present.size
    kept = np.zeros(m, dtype=np.bool_)
    score, largest = present.astype(np.float64), 1.0
    for _ in range(need):
        best, least = 0, largest * (1 - 1e-9)
        while not (score[best] >= least if largest > 0 else present[best] and not kept[best]):
            best += 1
        kept[best] = True
        distance = sine[m - best : 2 * m - best]
        scale = 1 / largest if largest > 0 else 1.0
        largest = 0.0
        for i in range(m):
            score[i] *= abs(distance[i]) * scale
            largest = max(largest, score[i])
    present[:] = kept


@njit
def _spread_block(tables, b, present, value):
    need, m, count = tables.need[b], present.size, np.count_nonzero(present)
    _decode_block(tables, b, LOOKUP if 2 * count < m else LOCATOR, present, value)
    if count == need:
        return
    norm = 0.0
    for i in range(m):
        if present[i]:
            norm += value[i].real ** 2 + value[i].imag ** 2
    if norm <= 1 + 1e-9:
        return
    at = tables.offset[b]
    _keep_spread(tables.sine[at : at + 2 * m], need, present)
    _decode_block(tables, b, LOOKUP if 2 * need < m else LOCATOR, present, value)
    for i in range(m):
        if not present[i]:
            value[i] = 0


@njit
def _mark(tables, survivors, present):
    """Check and mark survivors. Returns a status, and where it applies."""
    n = tables.start[-1]
    present[:] = False
    for at in range(survivors.size):
        i = survivors[at]
        if i < 0 or i >= n:
            return _OUT_OF_RANGE, at
        if present[i]:
            return _DUPLICATE, at
        present[i] = True
    missing = _missing(tables, present)
    return _TOO_FEW if missing else 0, missing


@njit
def _missing(tables, present):
    missing = 0
    for b in range(tables.q.size):
        count = np.count_nonzero(present[tables.start[b] : tables.start[b + 1]])
        missing += max(0, tables.need[b] - count)
    return missing


@njit
def _decode_marked(tables, method, present, value):
    for b in range(tables.q.size):
        lo, hi = tables.start[b], tables.start[b + 1]
        if method == SPREAD:
            _spread_block(tables, b, present[lo:hi], value[lo:hi])
        else:
            _decode_block(tables, b, method, present[lo:hi], value[lo:hi])


@njit
def _gather(value, survivors, out):
    """Write the survivors' entries. Returns a status, and where it applies."""
    status, where = 0, 0
    for at in range(survivors.size):
        out[at] = value[survivors[at]]
        if not (np.isfinite(out[at].real) and np.isfinite(out[at].imag)):
            status, where = _OVERFLOW, at
    return status, where


@njit
def _is_short(out, longest):
    total = 0.0
    for a in out:
        total += a.real * a.real + a.imag * a.imag
    return total <= longest


@njit
def decoding_vector(tables, method, survivors, out, longest=math.inf):
    """Decoding vector of a direct sum of cyclic codes (Halbawi et al., Algorithm 3).

    Parameters
    ----------
    tables : CyclicTables
        ``code.scheme.tables``.
    method : int
        ``LOCATOR`` (0), ``LOOKUP`` (1) or ``SPREAD`` (2).
    survivors : (f,) int64 array
    out : (f,) complex128 array
    longest : float
        If the sum of squares of `out` is over this, the status is ``IMPRECISE``.

    Returns
    -------
    (int, int)
        A `fastgc.kernels.Status`, and where it applies, as in csrc/fastgc.h.

    Raises
    ------
    ValueError
        If `out` is shorter than `survivors`.
    """
    if out.size < survivors.size:
        raise ValueError("out must be as long as survivors")
    n = tables.start[-1]
    present = np.empty(n, dtype=np.bool_)
    status, where = _mark(tables, survivors, present)
    if status != 0:
        return status, where
    value = np.empty(n, dtype=np.complex128)
    _decode_marked(tables, method, present, value)
    status, where = _gather(value, survivors, out)
    if status == 0 and not _is_short(out[: survivors.size], longest):
        return _IMPRECISE, 0
    return status, where


@njit
def decoding_vectors(tables, masks, method, out, where, longest=math.inf):
    """Decoding vectors of many rounds: see `decoding_vector`.

    Parameters
    ----------
    tables : CyclicTables
    masks : (rounds, n) bool array
        The survivors of each round. ``SPREAD`` overwrites it.
    method : int
    out : (rounds, n) complex128 array
        Written: the coefficients of all workers, 0 for stragglers.
    where : (rounds,) int64 array
        Written: 0; or how many more survivors are needed, and the row of `out` is not written; or
        -1 if an entry does not fit a double; or -2 if the sum of squares is over `longest`.
    longest : float

    Raises
    ------
    ValueError
        If shapes do not fit the tables or each other.
    """
    if not (masks.shape == out.shape == (where.size, tables.start[-1])):
        raise ValueError(
            "masks and out must have a row for each round, of a number for each worker"
        )
    for r in range(len(masks)):
        present, value = masks[r], out[r]
        where[r] = _missing(tables, present)
        if where[r] == 0:
            _decode_marked(tables, method, present, value)
            for i in range(present.size):
                if not present[i]:
                    value[i] = 0
                elif not (np.isfinite(value[i].real) and np.isfinite(value[i].imag)):
                    where[r] = -1
            if where[r] == 0 and not _is_short(value, longest):
                where[r] = -2
