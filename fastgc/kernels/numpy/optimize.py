"""Steps of optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .combine import square_sum

__all__ = ["amsgrad", "nesterov", "replace", "sgd", "square_distance"]


def sgd(
    theta: NDArray[Any],
    velocity: NDArray[Any] | None,
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """See `fastgc.kernels.sgd`."""
    real, before = theta.dtype.type, theta.copy()
    with np.errstate(all="ignore"):
        if velocity is None:
            theta -= real(lr) * gradient
        else:
            velocity[:] = real(momentum) * velocity - real(lr) * gradient
            theta += velocity
    return square_distance(theta, before)


def nesterov(
    theta: NDArray[Any],
    point: NDArray[Any],
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """See `fastgc.kernels.nesterov`."""
    real, before = theta.dtype.type, point.copy()
    with np.errstate(all="ignore"):
        following = point - real(lr) * gradient
        point[:] = following + real(momentum) * (following - theta)
    theta[:] = following
    return square_distance(point, before)


def amsgrad(
    theta: NDArray[Any],
    h: NDArray[Any],
    v: NDArray[Any],
    gradient: NDArray[Any],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> float:
    """See `fastgc.kernels.amsgrad`."""
    real, before = theta.dtype.type, theta.copy()
    with np.errstate(all="ignore"):
        h[:] = real(beta1) * h + real(1 - beta1) * gradient
        np.maximum(v, real(beta2) * v + real(1 - beta2) * (gradient * gradient), out=v)
        theta -= real(lr) * h / np.sqrt(real(epsilon) + v)
    return square_distance(theta, before)


def replace(old: NDArray[Any], new: NDArray[Any], total: NDArray[Any] | None) -> float:
    """See `fastgc.kernels.replace`."""
    moved = square_distance(new, old)
    if total is not None:
        with np.errstate(all="ignore"):
            total += new - old
    old[:] = new
    return moved


def square_distance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """See `fastgc.kernels.square_distance`."""
    with np.errstate(over="ignore", invalid="ignore"):
        return square_sum(np.subtract(x, y, dtype=np.float64))
