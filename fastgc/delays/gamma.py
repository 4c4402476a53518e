"""Ratios of gamma functions and differences of harmonic numbers, for arguments of any size."""

from __future__ import annotations

import math

__all__ = ["harmonic_difference", "log_gamma_ratio"]

# From here on the asymptotic series below are good to the last digit.
_LARGE = 24
# With Bernoulli numbers B_2k / 2k (2k - 1), of log gamma, and B_2k / 2k, of harmonic numbers.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_HARMONIC = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)


def log_gamma_ratio(x: float, y: float, c: float) -> float:
    """``log [Γ(x) Γ(y - c) / (Γ(x - c) Γ(y))]``, for ``x >= y > c >= 0``.

    Each of the four would have lost as many digits as x has before they are subtracted.
    """
    return c * math.log(x / y) + _excess(x, c) - _excess(y, c)


def _excess(x: float, c: float) -> float:
    """``log Γ(x) - log Γ(x - c) - c log x``."""
    added = 0.0
    start = x
    while x - c < _LARGE:  # Γ(x) / Γ(x - c) = (x - c) / x  Γ(x + 1) / Γ(x + 1 - c)
        added += math.log1p(-c / x)
        x += 1
    y = x - c
    large = (y - 0.5) * -math.log1p(-c / x) - c + _series(_STIRLING, x) - _series(_STIRLING, y)
    return large + added + c * math.log(x / start)


def _series(coefficients: tuple[float, ...], x: float) -> float:
    return math.fsum(b / x ** (2 * k + 1) for k, b in enumerate(coefficients))


def harmonic_difference(f: int, n: int) -> float:
    """``H_n - H_(n-f)``, the mean of the f-th smallest of n exponentials of mean 1."""
    low = n - f
    first = math.fsum(1 / i for i in range(low + 1, min(n, _LARGE) + 1))
    low = max(low, _LARGE)
    if n <= low:
        return first
    # H_m = log m + γ + 1 / 2m - sum_k B_2k / 2k m^-2k
    rest = [0.5 / n - 0.5 / low]
    rest += [b * (low ** -(2.0 * k) - n ** -(2.0 * k)) for k, b in enumerate(_HARMONIC, 1)]
    return math.fsum([first, math.log1p((n - low) / low), *rest])
