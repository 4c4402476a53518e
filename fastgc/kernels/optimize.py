"""Steps of optimizers."""

from __future__ import annotations

from .._base.arrays import Array
from . import unchecked
from .contract import REALS, reads, takes, writes

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
    return float(unchecked.sgd(theta, velocity, gradient, lr, momentum))


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
    return float(unchecked.nesterov(theta, point, gradient, lr, momentum))


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
    return float(unchecked.amsgrad(theta, h, v, gradient, lr, beta1, beta2, epsilon))


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
    return float(unchecked.replace(old, new, total))


@takes(x=reads(REALS, "p"), y=reads("x", "p"))
def square_distance(x: Array, y: Array) -> float:
    """Sum of the squares of ``x - y``, in float64; not finite if a difference is not.

    Parameters
    ----------
    x, y : (p,) float32 or float64 array
    """
    return float(unchecked.square_distance(x, y))
