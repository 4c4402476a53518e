"""Steps of optimizers."""

import numpy as np

from .combine import square_sum


def sgd(theta, velocity, gradient, lr, momentum):
    """One step of gradient descent with momentum, in one pass."""
    real, before = theta.dtype.type, theta.copy()
    with np.errstate(all="ignore"):
        if velocity is None:
            theta -= real(lr) * gradient
        else:
            velocity[:] = real(momentum) * velocity - real(lr) * gradient
            theta += velocity
    return square_distance(theta, before)


def nesterov(theta, point, gradient, lr, momentum):
    """One step of Nesterov's accelerated gradient; see `sgd`."""
    real, before = theta.dtype.type, point.copy()
    with np.errstate(all="ignore"):
        following = point - real(lr) * gradient
        point[:] = following + real(momentum) * (following - theta)
    theta[:] = following
    return square_distance(point, before)


def amsgrad(theta, h, v, gradient, lr, beta1, beta2, epsilon):
    """One step of AMSGrad (Zhu et al. 2022, equations 8a to 8c); see `sgd`."""
    real, before = theta.dtype.type, theta.copy()
    with np.errstate(all="ignore"):
        square = gradient * gradient  # the gradient may be h
        h[:] = real(beta1) * h + real(1 - beta1) * gradient
        np.maximum(v, real(beta2) * v + real(1 - beta2) * square, out=v)
        theta -= real(lr) * h / np.sqrt(real(epsilon) + v)
    return square_distance(theta, before)


def replace(old, new, total=None):
    """Replace a vector: ``total += new - old; old = new``, in one pass; see `sgd`."""
    moved = square_distance(new, old)
    if total is not None:
        with np.errstate(all="ignore"):
            total += new - old
    old[:] = new
    return moved


def square_distance(x, y):
    """Sum of the squares of ``x - y``, in float64; not finite if a difference is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return square_sum(np.subtract(x, y, dtype=np.promote_types(x.dtype, np.float64)))
