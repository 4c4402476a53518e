"""Whole shares in proportion to weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import check_reals

__all__ = ["apportion", "check_speeds"]


def check_speeds(speeds: ArrayLike, n: int) -> NDArray[np.float64]:
    """Speeds of n workers, or an error."""
    speed = check_reals("speeds", speeds)
    if speed.shape != (n,):
        raise ValueError(f"{n} workers need {n} speeds, not an array of shape {speed.shape}")
    if not (np.isfinite(speed) & (speed > 0)).all():
        raise ValueError(f"speeds must be positive and finite, not {speed}")
    return speed


def apportion(k: int, weight: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers of sum k, at least 1 each, in proportion to the weights: largest remainders."""
    weight = weight / weight.max()
    ideal = k * weight / weight.sum()
    size = np.maximum(np.floor(ideal), 1).astype(np.int64)
    while (excess := int(size.sum()) - k) > 0:  # after raising slow ones to 1
        over = np.where(size > 1, size - ideal, -np.inf)
        size[np.argsort(-over, kind="stable")[: min(excess, int((size > 1).sum()))]] -= 1
    if excess:
        size[np.argsort(size - ideal, kind="stable")[:-excess]] += 1
    shares: NDArray[np.int64] = size
    return shares
