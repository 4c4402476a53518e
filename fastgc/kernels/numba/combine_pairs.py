"""Linear combinations of long vectors in twice float64's precision."""

from __future__ import annotations

import numba
import numpy as np

from ..rows import extent_of_pairs
from .combine import pointer
from .njit import njit_exact
from .pairs import quick_two_sum, two_product, two_sum

__all__ = ["combine_pairs"]

_BLOCK = 512  # elements of a row handled at a time


@njit_exact
def _add_row(v, x, x_low, y, y_low, size, sums, step):
    """Add x v and y v to the sums, whose high and low parts are rows of their own."""
    x_high, y_high, x_rest, y_rest = sums[0], sums[1], sums[2], sums[3]
    for j in range(size):
        high = v[step * j]
        low = v[step * j + 1] if step == 2 else 0.0
        product, lost = two_product(x, high)
        total, rest = two_sum(x_high[j], product)
        rest += x_rest[j] + (lost + (x * low + x_low * high))
        x_high[j], x_rest[j] = quick_two_sum(total, rest)
        product, lost = two_product(y, high)
        total, rest = two_sum(y_high[j], product)
        rest += y_rest[j] + (lost + (y * low + y_low * high))
        y_high[j], y_rest[j] = quick_two_sum(total, rest)


@njit_exact
def _finish(sums, to, size, rounded, accumulate):
    """Write the sums, or add them; returns whether all are finite."""
    finite = True
    for j in range(size):
        other = j ^ 1
        sign = 1.0 if j % 2 else -1.0
        high, low = two_sum(sums[0, j], sign * sums[1, other])
        low += sums[2, j] + sign * sums[3, other]
        if accumulate:
            high, rest = two_sum(high, to[j] if rounded else to[2 * j])
            low += rest if rounded else rest + to[2 * j + 1]
        high, low = two_sum(high, low)
        if rounded:
            to[j] = high
        else:
            to[2 * j], to[2 * j + 1] = high, low
        finite &= np.isfinite(high)
    return finite


@njit_exact
def _combine_pairs(
    addresses, count, coef, out, in_len, out_len, extent, paired, rounded, accumulate
):
    """csrc/combine_pairs.c's fgc_combine_pairs."""
    step, each = (2 if paired else 1), (1 if rounded else 2)
    sums = np.empty((4, _BLOCK))
    finite = True
    for j in range(0, extent, _BLOCK):
        size = min(_BLOCK, extent - j)
        present = min(size, in_len - j)
        sums[:, :size] = 0
        for r in range(count):
            v = numba.carray(
                pointer(addresses[r] + np.uintp(8 * step * j)), (step * present,), np.float64
            )
            x, y, x_low, y_low = coef[r, 0], coef[r, 1], coef[r, 2], coef[r, 3]
            if paired:  # a constant for the inlined function
                _add_row(v, x, x_low, y, y_low, present, sums, 2)
            else:
                _add_row(v, x, x_low, y, y_low, present, sums, 1)
        finite &= _finish(sums, out[each * j :], min(size, out_len - j), rounded, accumulate)
    return finite


def combine_pairs(rows, coef, out, *, paired, rounded=False, accumulate=False, check=False):
    finite = _combine_pairs(
        rows.addresses,
        rows.count,
        # a copy: for one that is read-only all would be compiled again
        np.array(coef, order="C").view(np.float64),
        out,
        rows.length // (2 if paired else 1),
        out.size // (1 if rounded else 2),
        extent_of_pairs(rows, out, paired, rounded),
        paired,
        rounded,
        accumulate,
    )
    return not check or bool(finite)
