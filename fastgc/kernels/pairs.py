"""Numbers of twice float64's precision: pairs (high, low) that stand for high + low.

`high` is the sum rounded to float64, so that ``|low| <= ulp(high) / 2``. Errors below are relative
to the result, with u = 2^-53. Unless another source is named, they are those of Joldes, Muller and
Popescu, "Tight and rigorous error bounds for basic building blocks of double-word arithmetic"
(2017). Parts are arrays of any shapes that can be broadcast, or floats. Products of parts over
2^995 are not finite; products below 2^-968 have further errors of up to 2^-1072. Non-finite
operands give non-finite results.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from .._base.arrays import Array

Pair: TypeAlias = tuple[Any, Any]  # the high and the low parts


def two_sum(a: Array, b: Array) -> Pair:
    """Sum and its rounding error (Knuth)."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


@np.errstate(under="ignore")
def two_product(a: Array, b: Array) -> Pair:
    """Product and its rounding error (Dekker)."""
    product = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _halves(a: Array) -> Pair:
    large = a * 134217729.0  # 2^27 + 1
    high = large - (large - a)
    return high, a - high


def exact_sum(terms: Array) -> Pair:
    """Sum over the first axis and its rounding error: twice as precise as float64.

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


def quick_two_sum(a: Array, b: Array) -> Pair:
    """Sum and its rounding error, if a is 0 or no smaller than b in size (Dekker)."""
    high = a + b
    return high, b - (high - a)


def negate(x: Pair) -> Pair:
    """The number -x."""
    return -x[0], -x[1]


def add(x: Pair, y: Pair) -> Pair:
    """The sum of x and y, within little more than 3 u^2, even after cancellation."""
    high, rest = two_sum(x[0], y[0])
    low, last = two_sum(x[1], y[1])
    high, rest = quick_two_sum(high, rest + low)
    return quick_two_sum(high, rest + last)


@np.errstate(under="ignore")
def multiply(x: Pair, y: Pair) -> Pair:
    """The product of x and y, within 7 u^2 (Lange and Rump 2017: 5 u^2)."""
    high, rest = two_product(x[0], y[0])
    return quick_two_sum(high, rest + (x[0] * y[1] + x[1] * y[0]))


@np.errstate(under="ignore")
def divide(x: Pair, y: Pair) -> Pair:
    """The quotient of x by y, by long division in two steps: within 16 u^2."""
    quotient = x[0] / y[0]
    product, rest = two_product(quotient, y[0])
    return quick_two_sum(quotient, (x[0] - product - rest + (x[1] - quotient * y[1])) / y[0])
