"""Rounding errors of sums, as everything that predicts how precise a gradient is counts them."""

import math

from ..kernels.rows import LARGEST_GROUP

__all__ = ["DOUBLE", "ROUNDING", "of_groups", "sums_of"]

# Unit roundoff of float64.
DOUBLE = 2.0**-53

# Mean square of rounding errors over that of the numbers, in units of roundoff: 1/3 for numbers
# between 1 and 2, whose mean square is 3 / (2 ln 2) if their logarithms are spread evenly.
ROUNDING = 2 * math.log(2) / 9


def sums_of(terms: float) -> float:
    """Additions that a term goes through: in its group, and of groups after it."""
    return min(terms, terms / LARGEST_GROUP + LARGEST_GROUP / 2)


def of_groups(terms: float) -> float:
    """Mean square of the errors of sums of float32, over that of all terms, in units of roundoff.

    That of the coefficients; and in each group, of partial sums, which grow from one term to all.
    """
    return ROUNDING * (1 + (min(terms, LARGEST_GROUP) + 1) / 2)
