"""Decoding vectors and streams of cyclic codes, and bit masks of survivors."""

from itertools import pairwise

import numpy as np

from fastgc.kernels.cyclic import LOCATOR, LOOKUP, SPREAD

_RUN = 32  # factors between two normalisations; see csrc/levels.h


def cyclic_product(table, m, index):
    """Mantissa and binary exponent of ``prod_j table[m + i - index[j]]``, i = 0 .. m-1."""
    product, exponent = np.ones(m), np.zeros(m, dtype=np.int64)
    slices = np.lib.stride_tricks.sliding_window_view(table, m)  # row m - j starts at t = -j
    for at in range(0, index.size, _RUN):
        product *= np.multiply.reduce(slices[m - index[at : at + _RUN]], axis=0)
        product, shift = np.frexp(product)
        exponent += shift
    return product, exponent


def _turn_block(tables, b, lookup, count, total, product, exponent):
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


def _decode_block(tables, b, method, present):
    m, lookup = present.size, method == LOOKUP
    index = np.flatnonzero(present if lookup else ~present)
    at = tables.offset[b]
    table = (tables.cosecant if lookup else tables.sine)[at : at + 2 * m]
    product, exponent = cyclic_product(table, m, index)
    return _turn_block(tables, b, lookup, index.size, int(index.sum()), product, exponent)


def _keep_spread(sine, need, present):
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


def _spread_block(tables, b, present):
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


def _decode_marked(tables, method, present):
    """Entries for all workers."""
    blocks = [present[lo:hi] for lo, hi in pairwise(tables.start)]
    if method == SPREAD:
        return np.concatenate([_spread_block(tables, b, block) for b, block in enumerate(blocks)])
    return np.concatenate(
        [_decode_block(tables, b, method, block) for b, block in enumerate(blocks)]
    )


def decoding_vector(tables, method, survivors):
    """Decoding vector of a direct sum of cyclic codes, of enough survivors."""
    present = np.zeros(tables.start[-1], dtype=np.bool_)
    present[survivors] = True
    return _decode_marked(tables, method, present)[survivors]
