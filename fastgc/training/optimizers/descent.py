"""Gradient methods for the master: where it needs the next gradient, and what it does with it.

A run looks the same for every method::

    optimizer.reset(theta0)
    for _ in range(rounds):
        optimizer.step(gradient_at(optimizer.point))
    optimizer.theta

A method computes in theta0's precision, float32 or float64, with the kernels of `fastgc.kernels`:
each step is one pass, in place. A gradient that is not finite is applied like any other. The
squared distance that `step` returns shows it at no cost, because it is then not finite either.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import kernels
from ..._base.arrays import as_array, check_real, check_vector

Array = NDArray[np.floating[Any]]


class Optimizer(Protocol):
    """What training needs of a gradient method.

    For checkpoints it needs two more methods: ``state()`` returns arrays, numbers and lists of
    numbers by name, and after ``restore(state)`` it continues as if it had never stopped, to the
    last bit.
    """

    @property
    def theta(self) -> Array:
        """Current iterate, shape (p,): the model to test and to keep."""
        ...

    @property
    def point(self) -> Array:
        """The point at which the next gradient is needed, shape (p,)."""
        ...

    def reset(self, theta0: Array) -> None:
        """Begin a run at ``theta0``, shape (p,)."""
        ...

    def step(self, gradient: Array) -> float:
        """Move on, given the gradient at ``point``, shape (p,).

        Returns the squared distance that ``point`` has moved.
        """
        ...


class _Descent(ABC):
    """Common parts of gradient methods: iterate and point, checks of gradients, and the state."""

    _vectors: ClassVar[tuple[str, ...]] = ("_theta",)  # attributes of the state
    _numbers: ClassVar[tuple[str, ...]] = ("lr",)

    def __init__(self, lr: float) -> None:
        self.lr = check_real("lr", lr, positive=True)
        self._theta: Array | None = None
        self._point: Array | None = None

    @property
    def theta(self) -> Array:
        """Current iterate, shape (p,); the same array for the whole run, updated in place."""
        return self._started(self._theta)

    @property
    def point(self) -> Array:
        """The point at which the next gradient is needed, shape (p,); also updated in place."""
        return self._started(self._point)

    def reset(self, theta0: ArrayLike) -> None:
        """Begin a run at ``theta0``, shape (p,), float32 or float64; it is copied.

        Its dtype is that of the arithmetic. Raises TypeError if it has another dtype, and
        ValueError if it is not one-dimensional, or holds NaN or Inf.
        """
        self._theta = self._point = np.array(check_start(theta0), order="C")

    def step(self, gradient: Array) -> float:
        """Move on, given the gradient at ``point``.

        Parameters
        ----------
        gradient : (p,) array
            Of theta's dtype; unchanged, unless it is theta or point itself.

        Returns
        -------
        float
            Squared distance that ``point`` moved, in float32 within a relative 2^-20; not finite if
            the gradient is not.

        Raises
        ------
        RuntimeError, TypeError, ValueError
            If no run has begun; if the gradient's dtype or shape is not theta's.
        """
        theta = self._started(self._theta)
        return self._move(theta, check_vector("gradient", gradient, theta.dtype, theta.size))

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to continue: copies of arrays, and numbers.

        Raises RuntimeError if no run has begun.
        """
        self._started(self._theta)
        vectors = {name: getattr(self, name).copy() for name in self._kept_vectors()}
        numbers = {name: getattr(self, name) for name in self._numbers}
        return {name.removeprefix("_"): value for name, value in (vectors | numbers).items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue a run, with the same results to the last bit.

        `state` is the result of `state()` of a method with the same parameters; arrays are copied.
        Raises TypeError or ValueError if it is none; nothing has changed in that case.
        """
        keys = {name: name.removeprefix("_") for name in (*self._kept_vectors(), *self._numbers)}
        check_names(self, state, keys.values())
        start = np.zeros_like(as_array("theta", state["theta"]))
        vectors = {
            name: check_vector(keys[name], state[keys[name]], start.dtype, start.size)
            for name in self._kept_vectors()
        }
        for name in self._numbers:
            if not isinstance(state[keys[name]], Real):
                raise TypeError(f"{keys[name]} must be a real number, not {state[keys[name]]!r}")
        self.reset(start)
        for name, vector in vectors.items():
            getattr(self, name)[:] = vector
        for name in self._numbers:
            setattr(self, name, float(state[keys[name]]))

    def _kept_vectors(self) -> tuple[str, ...]:
        return self._vectors

    @abstractmethod
    def _move(self, theta: Array, gradient: Array) -> float:
        """Do a `step` along a gradient that was checked."""

    def _started(self, array: Array | None) -> Array:
        if array is None:
            raise RuntimeError(f"{type(self).__name__}: reset(theta0) begins a run")
        return array


class SGD(_Descent):
    """Gradient descent, optionally with heavy-ball momentum.

    v <- momentum * v - lr * gradient(theta), then theta <- theta + v, from v = 0 (Polyak, 1964).

    Parameters
    ----------
    lr : float
        Step size, positive. If the gradient is a sum over N samples instead of their mean, divide
        the step size by N. You may change this attribute between steps.
    momentum : float
        In [0, 1); 0 is plain gradient descent.

    Raises
    ------
    TypeError, ValueError
        If a parameter is not a real number, or out of range.
    """

    def __init__(self, lr: float, momentum: float = 0.0) -> None:
        super().__init__(lr)
        self.momentum = _fraction("momentum", momentum)

    def __repr__(self) -> str:
        return f"SGD(lr={self.lr}, momentum={self.momentum})"

    def reset(self, theta0: ArrayLike) -> None:
        """Begin a run at ``theta0``, a float array of shape (p,), with no velocity."""
        super().reset(theta0)
        self._velocity = np.zeros_like(self._theta) if self.momentum else None

    def _kept_vectors(self) -> tuple[str, ...]:
        return (*self._vectors, "_velocity") if self.momentum else self._vectors

    def _move(self, theta: Array, gradient: Array) -> float:
        return float(kernels.unchecked.sgd(theta, self._velocity, gradient, self.lr, self.momentum))


class Nesterov(_Descent):
    """Nesterov's accelerated gradient.

    ``theta[k+1] = y[k] - lr * gradient(y[k])``, then ``y[k+1] = theta[k+1] + beta[k] *
    (theta[k+1] - theta[k])``, from ``y[0] = theta[0]``, with ``beta[k] = (t[k] - 1) / t[k+1]``,
    ``t[k+1] = (1 + sqrt(1 + 4 t[k]^2)) / 2`` and ``t[0] = 1`` (Nesterov, Introductory Lectures on
    Convex Optimization, section 2.2). For a convex function whose gradient has Lipschitz constant
    L, with lr = 1 / L and its minimum at theta*, the value after k steps exceeds the minimum by at
    most ``2 L |theta[0] - theta*|^2 / (k + 1)^2``. Raises as `SGD`.

    Parameters
    ----------
    lr : float
        As in `SGD`.
    momentum : float, optional
        A fixed beta in [0, 1) instead of the sequence beta_k. For a strongly convex function with
        condition number kappa, (sqrt(kappa) - 1) / (sqrt(kappa) + 1) converges linearly.
    """

    _vectors = ("_theta", "_point")
    _numbers = ("lr", "_t")

    def __init__(self, lr: float, momentum: float | None = None) -> None:
        super().__init__(lr)
        self.momentum = None if momentum is None else _fraction("momentum", momentum)

    def __repr__(self) -> str:
        return f"Nesterov(lr={self.lr}, momentum={self.momentum})"

    def reset(self, theta0: ArrayLike) -> None:
        """Begin a run at ``theta0``, a float array of shape (p,), with no momentum."""
        super().reset(theta0)
        self._point = self.theta.copy()
        self._t = 1.0

    def _move(self, theta: Array, gradient: Array) -> float:
        moved: float = kernels.unchecked.nesterov(
            theta, self.point, gradient, self.lr, self._next_momentum()
        )
        return moved

    def _next_momentum(self) -> float:
        if self.momentum is not None:
            return self.momentum
        t, self._t = self._t, (1 + math.sqrt(1 + 4 * self._t**2)) / 2
        return (t - 1) / self._t


class AMSGrad(_Descent):
    """AMSGrad as communication-adaptive training defines it (Zhu et al. 2022, equations 8a to 8c).

    h <- beta1 * h + (1 - beta1) * gradient, then v <- max(v, beta2 * v + (1 - beta2) *
    gradient^2), then theta <- theta - lr * h / sqrt(epsilon + v), element by element, from h = 0
    and v = 0; v is the paper's v with a hat.

    It differs from others in three ways. There is no bias correction, so early steps are short
    because h is small. epsilon is inside the root. And v decays from the maximum: it never falls,
    and rises only if gradient^2 > v. Reddi et al. (2018) keep the decaying average of squares
    separate from its maximum, which is then smaller if gradients shrink and grow again, and have no
    epsilon. ``torch.optim.Adam(amsgrad=True)`` does the same, adds epsilon outside the root, and
    corrects the bias of h by 1 - beta1^k and that of v by 1 - beta2^k. As long as no element of the
    gradient shrinks, all of them agree except for epsilon and the corrections. Raises as `SGD`.

    Parameters
    ----------
    lr : float
        Step size alpha, positive. You may change this attribute between steps, for the paper's
        alpha^k.
    beta1, beta2 : float
        In [0, 1): weights of the past in h and in v.
    epsilon : float
        Positive, and at least the smallest normal number of theta's dtype. Gradient elements that
        are not much larger than its root take shorter steps than others.

    Notes
    -----
    Squares that overflow (gradients beyond 1e19 in float32, 1e154 in float64) leave Inf in v: that
    element of theta no longer moves.
    """

    _vectors = ("_theta", "_h", "_v")

    def __init__(
        self, lr: float = 0.01, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
    ) -> None:
        super().__init__(lr)
        self.beta1, self.beta2 = _fraction("beta1", beta1), _fraction("beta2", beta2)
        self.epsilon = check_real("epsilon", epsilon, positive=True)

    def __repr__(self) -> str:
        return (
            f"AMSGrad(lr={self.lr}, beta1={self.beta1}, beta2={self.beta2}, epsilon={self.epsilon})"
        )

    def reset(self, theta0: ArrayLike) -> None:
        """Begin a run at ``theta0``, an array of shape (p,), with h = v = 0.

        Raises as `SGD.reset`, and ValueError if its dtype is too narrow for epsilon.
        """
        start = check_start(theta0)
        least = np.finfo(start.dtype).smallest_normal
        if self.epsilon < least:
            raise ValueError(
                f"epsilon must be at least {least} where theta0 is of {start.dtype}, "
                f"not {self.epsilon}"
            )
        super().reset(start)
        self._h, self._v = np.zeros_like(self.theta), np.zeros_like(self.theta)

    def _move(self, theta: Array, gradient: Array) -> float:
        moved: float = kernels.unchecked.amsgrad(
            theta, self._h, self._v, gradient, self.lr, self.beta1, self.beta2, self.epsilon
        )
        return moved


def check_names(method: object, state: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise unless a state is a mapping with exactly these names."""
    if not isinstance(state, Mapping):
        raise TypeError(f"state must be what state() gave, not {state!r}")
    if set(state) != set(names):
        raise ValueError(
            f"the state of {type(method).__name__} consists of {', '.join(sorted(names))}, "
            f"not of {', '.join(sorted(state))}"
        )


def _fraction(what: str, value: float) -> float:
    number = check_real(what, value)
    if number >= 1:
        raise ValueError(f"{what} must lie in [0, 1), not {value}")
    return number


def check_start(theta0: ArrayLike) -> Array:
    """Return `theta0` as an array at which a run can begin; raise if it cannot."""
    start = as_array("theta0", theta0)
    if start.dtype not in (np.float32, np.float64):
        raise TypeError(f"theta0 must be an array of float32 or float64, got {start.dtype}")
    if start.ndim != 1:
        raise ValueError(f"theta0 must be one-dimensional, got shape {start.shape}")
    if not np.isfinite(start).all():
        raise ValueError("theta0 holds NaN or Inf")
    return start
