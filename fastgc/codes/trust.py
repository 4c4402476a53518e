"""How far to trust what was decoded."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Approximation", "Trust"]


class Trust(NamedTuple):
    """How far to trust a decoded gradient.

    Attributes
    ----------
    relative_error : float
        Estimated error of the gradient over its norm: from rounding, and for codes that are not
        exact (`Uncoded` with a tolerance) from what is left out.
    amplification : float
        By how much decoding amplifies the relative rounding errors of the messages; 1 or less is
        as good as adding up the partial gradients themselves.
    """

    relative_error: float
    amplification: float

    @classmethod
    def of(
        cls,
        amplification_squared: float,
        terms: int,
        steps: float,
        left_out: float,
        dtype: np.dtype[Any],
    ) -> Self:
        """Estimate from the messages combined, the roundings in each, and a residual."""
        # Rounding errors add up like a random walk. In the messages, each amplified. In the
        # gradient: one error of the size of a partial sum for each term (1/3 on average, as they
        # grow), and that of the last rounding.
        unit = float(np.finfo(dtype).eps) / 2
        total = amplification_squared * steps + terms / 3 + 1
        error = float(np.hypot(unit * np.sqrt(total), left_out))
        return cls(error, float(np.sqrt(amplification_squared)))


class Approximation(NamedTuple):
    """The best that too few messages give.

    Attributes
    ----------
    gradient : (p,) array
        The combination of messages whose coefficients on the partial gradients are nearest to 1.
    residual : float
        Distance of those coefficients from 1, ``||a_F B_F - 1|| / sqrt(k)``: the expected error
        over the expected norm, for partial gradients of equal norm in random directions. 0: exact.
    """

    gradient: NDArray[Any]
    residual: float
