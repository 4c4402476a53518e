"""How far to trust what was decoded."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._arrays import is_half, is_integer, is_pairs, unit_roundoff
from ..kernels.choice import folds_floats
from .format import Format
from .rounding import DOUBLE, ROUNDING, of_groups, sums_of
from .scheme import Scheme

__all__ = [
    "DOUBLE",
    "Approximation",
    "Trust",
    "expected_trust",
    "trust_by_rows",
    "trust_of",
    "trust_of_sums",
]


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


def expected_trust(
    scheme: Scheme,
    survivors: NDArray[np.int64],
    dtype: DTypeLike,
    message_dtype: DTypeLike | None,
) -> Trust:
    """How far to trust what checked survivors decode to, before any message is there."""
    form = scheme.format(1, dtype, message_dtype)
    return trust_by_rows(scheme, survivors, scheme._vector_by(survivors, unit=form.unit), form)


def trust_by_rows(
    scheme: Scheme, survivors: NDArray[np.int64], vector: NDArray[Any], form: Format
) -> Trust:
    """The same, by this vector."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (np.abs(vector) ** 2).reshape(survivors.size, -1).sum(axis=1)
        weights = squares * scheme.row_norms[survivors]
    weights[~vector.reshape(survivors.size, -1).any(axis=1)] = 0  # messages that are not read
    return trust_of(
        scheme, float(weights.sum()), vector, survivors, scheme.row_norms[survivors], form
    )


def trust_of(
    scheme: Scheme,
    growth_squared: float,
    vector: NDArray[Any],
    survivors: NDArray[np.int64],
    squares: NDArray[np.float64],
    form: Format,
    inside: float = math.nan,
) -> Trust:
    """How far to trust what this vector decodes to, if it amplifies errors by so much.

    `squares`: squared norms of the messages over that of the gradient. `inside`: by how much it
    amplifies errors of messages that were built up by encoders, NaN if that is not known.
    """
    wrong = scheme.left_out(survivors, vector)
    if growth_squared < math.inf:
        errors = scheme.vector_errors(survivors, vector)
        if errors is not None:
            wrong = math.hypot(wrong, math.sqrt(float(errors @ squares)))
    return Trust.of(
        growth_squared,
        inside,
        int(np.count_nonzero(vector[:, 0] if form.paired else vector)) // scheme.pieces,
        scheme.load * scheme.pieces / scheme.messages_per_worker,
        scheme.message_roundings,
        scheme.data_roundings,
        wrong,
        form.gradient_dtype,
        form.message_dtype,
    )


def trust_of_sums(
    scheme: Scheme,
    gradient: NDArray[Any],
    size: float,
    vector: NDArray[Any],
    survivors: NDArray[np.int64],
    norms: NDArray[np.float64],
    energies: NDArray[np.float64],
    form: Format,
) -> Trust:
    """How far to trust a gradient, by its squared norm and those and energies of its messages."""
    squares = np.abs(vector) ** 2
    if squares.ndim > 1:  # of all pieces
        squares = squares.sum(axis=1)
    spread = float(squares @ norms)
    used = squares > 0
    inside = float(squares[used] @ energies[used])  # NaN: not known
    if size == 0 or not np.isfinite(size + spread):
        # All is zero, or cancels, or squares are beyond a double: nothing can be said.
        zero = spread == 0 and not inside > 0 and not gradient.any()
        unknown = 0.0 if zero else np.inf
        return Trust(unknown, unknown)
    return trust_of(scheme, spread / size, vector, survivors, norms / size, form, inside / size)
