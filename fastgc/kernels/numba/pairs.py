"""Numbers of twice float64's precision as pairs: see `fastgc.kernels.numpy.pairs`.

Compiled without contraction, which would fuse products into sums whose rounding error is computed.
"""

from __future__ import annotations

import math

from ..numpy import pairs as plain
from .njit import njit_exact

two_sum, quick_two_sum = njit_exact(plain.two_sum), njit_exact(plain.quick_two_sum)
negate = njit_exact(plain.negate)


@njit_exact
def two_product(a, b):
    """Product and its rounding error (Dekker, Veltkamp)."""
    product = a * b
    large = a * 134217729.0  # 2^27 + 1
    ah = large - (large - a)
    al = a - ah
    large = b * 134217729.0
    bh = large - (large - b)
    bl = b - bh
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


@njit_exact
def add(x, y):
    """The sum, within a few roundings of the larger one's low part."""
    high, rest = two_sum(x[0], y[0])
    return quick_two_sum(high, rest + (x[1] + y[1]))


@njit_exact
def multiply(x, y):
    """The product of x and y."""
    high, rest = two_product(x[0], y[0])
    return quick_two_sum(high, rest + (x[0] * y[1] + x[1] * y[0]))


@njit_exact
def divide(x, y):
    """The quotient of x by y, by long division."""
    quotient = x[0] / y[0], 0.0
    for _ in range(2):
        left = add(x, negate(multiply(quotient, y)))
        quotient = quick_two_sum(quotient[0], quotient[1] + left[0] / y[0])
    return quotient


@njit_exact
def square_root(x):
    """Square root of a positive number."""
    root = math.sqrt(x[0])
    left = add(x, negate(two_product(root, root)))
    return quick_two_sum(root, left[0] / (2 * root))
