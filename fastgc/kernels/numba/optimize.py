"""Steps of optimizers, each in one pass over its vectors."""

from __future__ import annotations

import numpy as np

from .combine import sum_squares
from .njit import njit

__all__ = ["amsgrad", "nesterov", "replace", "sgd", "square_distance"]

LENGTHS = "all vectors must be of one length"
_PIECE = 1024  # the changes of so many elements are kept until their squares are added up


@njit
def sgd(theta, velocity, gradient, lr, momentum):
    if gradient.size != theta.size:
        raise ValueError(LENGTHS)
    if velocity is not None and velocity.size != theta.size:
        raise ValueError(LENGTHS)
    lr_, momentum_ = theta.dtype.type(lr), theta.dtype.type(momentum)
    change, total = np.empty(min(theta.size, _PIECE)), 0.0
    for at in range(0, theta.size, _PIECE):
        x, g = theta[at : at + _PIECE], gradient[at : at + _PIECE]
        if velocity is None:
            for j in range(x.size):
                old = x[j]
                x[j] = old - lr_ * g[j]
                change[j] = np.float64(x[j]) - np.float64(old)
        else:
            u = velocity[at : at + _PIECE]
            for j in range(x.size):
                old = x[j]
                move = momentum_ * u[j] - lr_ * g[j]
                u[j] = move
                x[j] = old + move
                change[j] = np.float64(x[j]) - np.float64(old)
        total += sum_squares(change[: x.size])
    return total


@njit
def nesterov(theta, point, gradient, lr, momentum):
    if not (theta.size == point.size == gradient.size):
        raise ValueError(LENGTHS)
    lr_, momentum_ = theta.dtype.type(lr), theta.dtype.type(momentum)
    change, total = np.empty(min(theta.size, _PIECE)), 0.0
    for at in range(0, theta.size, _PIECE):
        x, y = theta[at : at + _PIECE], point[at : at + _PIECE]
        g = gradient[at : at + _PIECE]
        for j in range(x.size):
            old = y[j]
            following = old - lr_ * g[j]
            y[j] = following + momentum_ * (following - x[j])
            x[j] = following
            change[j] = np.float64(y[j]) - np.float64(old)
        total += sum_squares(change[: x.size])
    return total


@njit
def amsgrad(theta, h, v, gradient, lr, beta1, beta2, epsilon):
    if not (theta.size == h.size == v.size == gradient.size):
        raise ValueError(LENGTHS)
    real = theta.dtype.type
    lr_, epsilon_ = real(lr), real(epsilon)
    keep1, take1, keep2, take2 = real(beta1), real(1 - beta1), real(beta2), real(1 - beta2)
    change, total = np.empty(min(theta.size, _PIECE)), 0.0
    for at in range(0, theta.size, _PIECE):
        x, g = theta[at : at + _PIECE], gradient[at : at + _PIECE]
        mean, most = h[at : at + _PIECE], v[at : at + _PIECE]
        for j in range(x.size):
            old = x[j]
            mean_ = keep1 * mean[j] + take1 * g[j]
            now = keep2 * most[j] + take2 * (g[j] * g[j])
            most_ = most[j] if most[j] > now else now
            mean[j], most[j] = mean_, most_
            x[j] = old - lr_ * mean_ / np.sqrt(epsilon_ + most_)
            change[j] = np.float64(x[j]) - np.float64(old)
        total += sum_squares(change[: x.size])
    return total


@njit
def replace(old, new, total=None):
    if new.size != old.size:
        raise ValueError(LENGTHS)
    if total is not None and total.size != old.size:
        raise ValueError(LENGTHS)
    change, moved = np.empty(min(old.size, _PIECE)), 0.0
    for at in range(0, old.size, _PIECE):
        x, y = old[at : at + _PIECE], new[at : at + _PIECE]
        if total is not None:
            t = total[at : at + _PIECE]
            for j in range(x.size):
                t[j] += y[j] - x[j]
        for j in range(x.size):
            change[j] = np.float64(y[j]) - np.float64(x[j])
            x[j] = y[j]
        moved += sum_squares(change[: x.size])
    return moved


@njit
def square_distance(x, y):
    if y.size != x.size:
        raise ValueError(LENGTHS)
    change, total = np.empty(min(x.size, _PIECE)), 0.0
    for at in range(0, x.size, _PIECE):
        u, w = x[at : at + _PIECE], y[at : at + _PIECE]
        for j in range(u.size):
            change[j] = np.float64(u[j]) - np.float64(w[j])
        total += sum_squares(change[: u.size])
    return total
