"""How far to trust what was decoded."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._arrays import is_half, is_integer, is_pairs, unit_roundoff
from ..kernels.choice import folds_floats
from ..kernels.rows import LARGEST_GROUP

__all__ = ["DOUBLE", "Approximation", "Trust"]

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


class Trust(NamedTuple):
    """How far to trust a decoded gradient.

    Attributes
    ----------
    relative_error : float
        Estimated error of the gradient over its norm: from rounding, and for codes that are not
        exact (`Uncoded` with a tolerance) from what is left out. Of integers nothing is rounded: 0
        then means modulo 2^bits, for whether the gradient fits in its dtype is not looked at.
    growth : float
        By how much decoding multiplies the relative rounding errors of the messages, typically; 1
        or less is as good as adding up the partial gradients themselves. At most it is
        `fastgc.stability.amplification`.
    """

    relative_error: float
    growth: float

    def __repr__(self) -> str:
        return f"Trust(relative_error={self.relative_error:.3g}, growth={self.growth:.3g})"

    @classmethod
    def of(
        cls,
        growth_squared: float,
        inside: float,
        terms: int,
        added: float,
        steps: float,
        partial_steps: float,
        wrong: float,
        gradient_dtype: np.dtype[Any],
        message_dtype: np.dtype[Any],
    ) -> Self:
        """Estimate from the messages combined, the roundings in each, and the vector's own error.

        `growth_squared` relates the messages combined, `inside` the partial gradients in them, each
        times its coefficients, to the gradient. The latter is NaN if not known; else the messages
        were built up by adding so many partial gradients, one by one. `steps` are those of sums,
        `partial_steps` those of the gradient's precision before them.
        """
        if not growth_squared < np.inf or inside == np.inf:  # beyond float64
            return cls(np.inf, np.inf)
        # Rounding errors add up like a random walk. In the messages, each amplified. In the
        # gradient: one error of the size of a partial sum for each sum (1/3 on average, as they
        # grow), and that of the last rounding.
        if is_integer(gradient_dtype):  # nothing is rounded
            return cls(wrong, float(np.sqrt(max(growth_squared, inside, 0.0))))
        gradient, message = unit_roundoff(gradient_dtype), unit_roundoff(message_dtype)
        sums = unit_roundoff(np.dtype(np.float32 if is_half(message_dtype) else np.float64))
        if is_pairs(message_dtype):
            sums = message
        amplified, known = growth_squared, inside >= 0
        if known:
            growth_squared = max(growth_squared, inside)
        squared = sums**2 * (growth_squared * steps + sums_of(terms) / 3 + 1)
        squared += gradient**2 * growth_squared * partial_steps
        if known:
            # Each sum was rounded, and they are half as large as all, on average.
            each = sums if is_half(message_dtype) else message
            squared += each**2 * inside * (added / 2 + 1) / 3
        # Floats are added up as such, the groups of them in float64, or all in float64.
        if message > sums and not is_half(message_dtype) and folds_floats():
            squared += message**2 * amplified * (of_groups(terms) + (not known) * of_groups(added))
        # Results of less precision than the sums: each element is rounded once.
        if message > sums:
            squared += ROUNDING * message**2 * amplified
        if gradient > sums:
            squared += ROUNDING * gradient**2
        error = float(np.hypot(np.sqrt(squared), wrong))
        return cls(error, float(np.sqrt(growth_squared)))


class Approximation(NamedTuple):
    """The best that too few messages give.

    Attributes
    ----------
    gradient : (p,) array
        The combination of messages whose coefficients on the partial gradients are nearest to 1;
        if it is to be unbiased, of those combinations where their mean is 1.
    residual : float
        Distance of those coefficients from 1, ``||a_F B_F - 1|| / sqrt(k)``: the expected error
        over the expected norm, for partial gradients of equal norm in random directions. 0: exact.
    mean : float
        Mean of those coefficients. 1: the gradient is unbiased, or exact. That of the best is
        1 - residual^2, by which the gradient is too short on average.
    """

    gradient: NDArray[Any]
    residual: float
    mean: float

    def __repr__(self) -> str:
        size = len(self.gradient)
        return (
            f"Approximation(gradient of {size} elements, residual={self.residual:.3g}, "
            f"mean={self.mean:.3g})"
        )
