"""Sums and products without rounding, as pairs of floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pair", "exact_sum", "two_product", "two_sum"]

Pair = tuple[NDArray[Any], NDArray[Any]]  # a number and what it lacks


def two_sum(a: NDArray[Any], b: NDArray[Any]) -> Pair:
    """Sum and its rounding error (Knuth)."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def two_product(a: NDArray[Any], b: NDArray[Any]) -> Pair:
    """Product and its rounding error (Dekker)."""
    product = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _halves(a: NDArray[Any]) -> Pair:
    large = a * 134217729.0  # 2^27 + 1
    high = large - (large - a)
    return high, a - high


def exact_sum(terms: NDArray[Any]) -> Pair:
    """Sum over the first axis, and what it lacks: twice as precise as float64.

    Raises
    ------
    ValueError
        If a number or a sum is not finite.
    """
    if not np.isfinite(terms).all():
        raise ValueError("numbers to be added up exactly must be finite: one is NaN or Inf")
    if terms.dtype.kind == "c":
        (a, b), (c, d) = exact_sum(terms.real), exact_sum(terms.imag)
        return a + 1j * c, b + 1j * d
    columns = terms.astype(np.float64).T.tolist()
    try:
        total = [math.fsum(column) for column in columns]
    except OverflowError:
        raise ValueError("an exact sum is beyond float64") from None
    rest = [math.fsum([*column, -t]) for column, t in zip(columns, total, strict=True)]
    return np.array(total), np.array(rest)
