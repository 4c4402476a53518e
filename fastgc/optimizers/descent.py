"""Gradient methods for the master: where to take the gradient next, and what to do with it.

A run looks the same for every method::

    optimizer.reset(theta0)
    for _ in range(rounds):
        optimizer.step(gradient_at(optimizer.point))
    optimizer.theta
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["SGD", "Nesterov", "Optimizer"]

Array = NDArray[np.floating[Any]]


class Optimizer(Protocol):
    """What training asks of a gradient method."""

    @property
    def theta(self) -> Array:
        """Current iterate, shape (p,): the model to test and to keep."""
        ...

    @property
    def point(self) -> Array:
        """Where the next gradient is wanted, shape (p,)."""
        ...

    def reset(self, theta0: Array) -> None:
        """Begin a run at ``theta0``, shape (p,)."""
        ...

    def step(self, gradient: Array) -> None:
        """Move on, given the gradient at ``point``, shape (p,)."""
        ...


class _Descent:
    """The iterate, its point, and one scratch array, so that a step allocates nothing."""

    def __init__(self, lr: float) -> None:
        if not 0 < lr < math.inf:
            raise ValueError(f"lr must be positive and finite, got {lr}")
        self.lr = float(lr)
        self._theta: Array | None = None
        self._point: Array | None = None

    @property
    def theta(self) -> Array:
        """Current iterate, shape (p,); the same array for the whole run, updated in place."""
        return self._started(self._theta)

    @property
    def point(self) -> Array:
        """Where the next gradient is wanted, shape (p,); also updated in place."""
        return self._started(self._point)

    def reset(self, theta0: Array) -> None:
        """Begin a run.

        Parameters
        ----------
        theta0 : array of float, shape (p,)
            Where to start; copied. Its type is the type of the arithmetic.

        Raises
        ------
        TypeError
            If ``theta0`` is not an array of floats.
        ValueError
            If it is not one-dimensional, or holds NaN or Inf.
        """
        if not isinstance(theta0, np.ndarray) or theta0.dtype.kind != "f":
            raise TypeError(
                f"theta0 must be an array of floats, got {getattr(theta0, 'dtype', type(theta0))}"
            )
        if theta0.ndim != 1:
            raise ValueError(f"theta0 must be one-dimensional, got shape {theta0.shape}")
        if not np.isfinite(theta0).all():
            raise ValueError("theta0 holds NaN or Inf")
        self._theta = self._point = theta0.copy()
        self._scratch = np.empty_like(theta0)

    def _scaled(self, gradient: Array) -> Array:
        """Put lr times the gradient in the scratch array."""
        if gradient.shape != self.theta.shape:
            raise ValueError(f"gradient has shape {gradient.shape}, theta {self.theta.shape}")
        return np.multiply(gradient, self.lr, out=self._scratch)

    def _started(self, array: Array | None) -> Array:
        if array is None:
            raise RuntimeError(f"{type(self).__name__}: reset(theta0) begins a run")
        return array


class SGD(_Descent):
    """Gradient descent, with heavy-ball momentum if wanted.

    v <- momentum * v - lr * gradient(theta), then theta <- theta + v, from v = 0 (Polyak, 1964).

    Parameters
    ----------
    lr : float
        Step size, positive. A gradient that is a sum over N samples wants a step 1 / N of what the
        mean would.
    momentum : float
        In [0, 1); 0 is plain gradient descent.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    def __init__(self, lr: float, momentum: float = 0.0) -> None:
        super().__init__(lr)
        self.momentum = _fraction(momentum)

    def __repr__(self) -> str:
        return f"SGD(lr={self.lr}, momentum={self.momentum})"

    def reset(self, theta0: Array) -> None:
        """Begin a run at ``theta0``, a float array of shape (p,), with no velocity."""
        super().reset(theta0)
        self._velocity = np.zeros_like(theta0)

    def step(self, gradient: Array) -> None:
        """Move on, given the gradient at ``point``, shape (p,), which is left as it is.

        Raises
        ------
        RuntimeError
            If no run has begun.
        ValueError
            If the shape is not theta's.
        """
        scaled = self._scaled(gradient)
        self._velocity *= self.momentum
        self._velocity -= scaled
        theta = self.theta
        theta += self._velocity


class Nesterov(_Descent):
    """Nesterov's accelerated gradient.

    theta_{k+1} = y_k - lr * gradient(y_k), then y_{k+1} = theta_{k+1} + beta_k * (theta_{k+1} -
    theta_k), from y_0 = theta_0, with beta_k = (t_k - 1) / t_{k+1}, t_{k+1} = (1 + sqrt(1 + 4
    t_k^2)) / 2 and t_0 = 1 (Nesterov, Introductory Lectures on Convex Optimization, section 2.2).
    For a convex function whose gradient has Lipschitz constant L, and lr = 1 / L, the value is
    within 2 L |theta_0 - theta*|^2 / (k + 1)^2 of the least after k steps.

    Parameters
    ----------
    lr : float
        Step size, positive. A gradient that is a sum over N samples wants a step 1 / N of what the
        mean would.
    momentum : float, optional
        A fixed beta in [0, 1) in place of the sequence beta_k. For a strongly convex function of
        condition number kappa, (sqrt(kappa) - 1) / (sqrt(kappa) + 1) converges linearly.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    """

    def __init__(self, lr: float, momentum: float | None = None) -> None:
        super().__init__(lr)
        self.momentum = None if momentum is None else _fraction(momentum)

    def __repr__(self) -> str:
        return f"Nesterov(lr={self.lr}, momentum={self.momentum})"

    def reset(self, theta0: Array) -> None:
        """Begin a run at ``theta0``, a float array of shape (p,), with no momentum."""
        super().reset(theta0)
        self._point = theta0.copy()
        self._t = 1.0

    def step(self, gradient: Array) -> None:
        """Move on, given the gradient at ``point``, shape (p,), which is left as it is.

        Raises
        ------
        RuntimeError
            If no run has begun.
        ValueError
            If the shape is not theta's.
        """
        scaled = self._scaled(gradient)
        theta, point = self.theta, self.point
        point -= scaled
        move = np.subtract(point, theta, out=self._scratch)
        np.copyto(theta, point)
        move *= self._next_momentum()
        point += move

    def _next_momentum(self) -> float:
        if self.momentum is not None:
            return self.momentum
        t, self._t = self._t, (1 + math.sqrt(1 + 4 * self._t**2)) / 2
        return (t - 1) / self._t


def _fraction(momentum: float) -> float:
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
    return float(momentum)
