"""Steps of optimizers."""

from __future__ import annotations

import numpy as np

from ..._base.arrays import Array
from ..contract import REALS, reads, takes, writes
from .combine import square_sum

__all__ = ["amsgrad", "nesterov", "replace", "sgd", "square_distance"]


@takes(
    theta=writes(REALS, "p"),
    velocity=writes("theta", "p", optional=True),
    gradient=reads("theta", "p", same="theta velocity"),
)
def sgd(theta: Array, velocity: Array | None, gradient: Array, lr: float, momentum: float) -> float:
    """One step of gradient descent with momentum, in one pass.

    ``velocity = momentum * velocity - lr * gradient; theta += velocity``.

    All steps here work in place and in the vectors' own precision. The gradient may be one of the
    vectors that are written; other vectors must not overlap.

    Parameters
    ----------
    theta, gradient : (p,) float32 or float64 array
        All vectors of a step are contiguous and of one dtype.
    velocity : (p,) array or None
        None: no momentum, ``theta -= lr * gradient``.
    lr, momentum : float

    Returns
    -------
    float
        Squared distance that theta moved: the sum of squares, in float64, of the changes of what is
        stored. Not finite if a change is not. Its relative error is below p 2^-53; for float32 it
        may be 2^-20 more, as exact differences would cost half of the step's time.
    """
    real, before = theta.dtype.type, theta.copy()
    with np.errstate(all="ignore"):
        if velocity is None:
            theta -= real(lr) * gradient
        else:
            velocity[:] = real(momentum) * velocity - real(lr) * gradient
            theta += velocity
    return square_distance(theta, before)


@takes(
    theta=writes(REALS, "p"),
    point=writes("theta", "p"),
    gradient=reads("theta", "p", same="theta point"),
)
def nesterov(theta: Array, point: Array, gradient: Array, lr: float, momentum: float) -> float:
    """One step of Nesterov's accelerated gradient; see `sgd`.

    ``next = point - lr * gradient; point = next + momentum * (next - theta); theta = next``.

    Parameters
    ----------
    theta, point, gradient : (p,) float32 or float64 array
    lr, momentum : float

    Returns
    -------
    float
        Squared distance that the point moved.
    """
    real, before = theta.dtype.type, point.copy()
    with np.errstate(all="ignore"):
        following = point - real(lr) * gradient
        point[:] = following + real(momentum) * (following - theta)
    theta[:] = following
    return square_distance(point, before)


@takes(
    theta=writes(REALS, "p"),
    h=writes("theta", "p"),
    v=writes("theta", "p"),
    gradient=reads("theta", "p", same="theta h v"),
)
def amsgrad(
    theta: Array,
    h: Array,
    v: Array,
    gradient: Array,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> float:
    """One step of AMSGrad (Zhu et al. 2022, equations 8a to 8c); see `sgd`.

    ``h = beta1 * h + (1 - beta1) * gradient; v = max(v, beta2 * v + (1 - beta2) * gradient ** 2);
    theta -= lr * h / sqrt(epsilon + v)``, element by element. The maximum is NaN where a gradient
    is.

    Parameters
    ----------
    theta, h, v, gradient : (p,) float32 or float64 array
    lr, beta1, beta2, epsilon : float

    Returns
    -------
    float
        Squared distance that theta moved.
    """
    real, before = theta.dtype.type, theta.copy()
    with np.errstate(all="ignore"):
        square = gradient * gradient  # the gradient may be h
        h[:] = real(beta1) * h + real(1 - beta1) * gradient
        np.maximum(v, real(beta2) * v + real(1 - beta2) * square, out=v)
        theta -= real(lr) * h / np.sqrt(real(epsilon) + v)
    return square_distance(theta, before)


@takes(
    old=writes(REALS, "p"),
    new=reads("old", "p", same="old"),
    total=writes("old", "p", optional=True),
)
def replace(old: Array, new: Array, total: Array | None = None) -> float:
    """Replace a vector: ``total += new - old; old = new``, in one pass; see `sgd`.

    If `total` is the sum of several vectors, one of them `old`, it stays their sum.

    Parameters
    ----------
    old, new : (p,) float32 or float64 array
    total : (p,) array, optional

    Returns
    -------
    float
        Squared distance from the old vector to the new one.
    """
    moved = square_distance(new, old)
    if total is not None:
        with np.errstate(all="ignore"):
            total += new - old
    old[:] = new
    return moved


@takes(x=reads(REALS, "p"), y=reads("x", "p"))
def square_distance(x: Array, y: Array) -> float:
    """Sum of the squares of ``x - y``, in float64; not finite if a difference is not.

    Parameters
    ----------
    x, y : (p,) float32 or float64 array
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return square_sum(np.subtract(x, y, dtype=np.float64))
