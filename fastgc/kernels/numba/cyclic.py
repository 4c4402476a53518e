"""Products over tables of cyclic codes, and their phases."""

from __future__ import annotations

import numpy as np

from .njit import njit

__all__ = ["CHUNK", "RUN", "cyclic_product", "multiply", "normalise", "scale", "turn_sizes"]

RUN = 32  # factors between two normalisations; see csrc/levels.h
CHUNK = 2048  # workers whose products are in the nearest cache
_STEPS = 16  # phases that are turned by one that is looked up


@njit
def normalise(product, exponent):
    """Move binary exponents of products to `exponent`."""
    bits = product.view(np.int64)
    for i in range(product.size):  # frexp, but for its branches
        biased = (bits[i] >> 52) & 0x7FF
        shift = (biased - 1023) & ~1 if biased else 0  # even; zero stays zero
        bits[i] -= shift << 52
        exponent[i] += shift


@njit
def scale(product, exponent):
    """product[i] *= 2^exponent[i], an even power; `exponent` is overwritten."""
    for i in range(product.size):
        exponent[i] = (min(max(exponent[i] // 2, -1022), 1022) + 1023) << 52
    half = exponent.view(np.float64)
    for i in range(product.size):  # twice: neither step leaves the range unless both do
        product[i] = product[i] * half[i] * half[i]


@njit
def multiply(table, lo, index, product, exponent):
    """product[i] 2^exponent[i] = prod_j table[lo + i - index[j]].

    Of no more than RUN factors the exponents are not written: all are 0.
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
    """product[i] = prod_j table[i - index[j]], for a slice of a table that begins at -m."""
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
    """value[i] = size[i] times the phase i strides on from `turn`, and i^quarter."""
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
    for lo in range(0, m, _STEPS):  # tables of large codes are in no cache
        base = complex(phase[2 * turn], phase[2 * turn + 1]) * unit
        hi = min(lo + _STEPS, m)
        to, by = value[lo:hi], size[lo:hi]
        for r in range(to.size):
            to[r] = by[r] * (base * step[r])
        turn += at
        if turn >= circle:
            turn -= circle
