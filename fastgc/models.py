"""Models to train: what a worker computes on its partition of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Model", "SoftmaxRegression"]

Array = NDArray[np.floating[Any]]
Labels = NDArray[np.integer[Any]]


class Model(Protocol):
    """What training asks of a model with a flat parameter vector theta.

    The gradient is a sum over samples, so that partial gradients add up to the gradient of all the
    data; whatever is not a sum over samples is added once, by the master, with
    ``add_regularisation``. The methods mean what `SoftmaxRegression` says of them.
    """

    @property
    def size(self) -> int:
        """Length of theta, the gradient dimension p."""
        ...

    def gradient(self, theta: Array, X: Array, y: Labels, out: Array | None = None) -> Array:
        """Sum over the samples of the gradient of the loss, shape (size,)."""
        ...

    def partial_gradient(self, theta: Array, shard: tuple[Array, Labels], out: Array) -> None:
        """Write the gradient on one partition, ``shard = (X, y)``, to ``out``."""
        ...

    def add_regularisation(self, theta: Array, gradient: Array) -> None:
        """Add the gradient of the penalty, in place."""
        ...

    def loss(self, theta: Array, X: Array, y: Labels) -> float:
        """Mean loss over the samples."""
        ...

    def predict(self, theta: Array, X: Array) -> NDArray[np.intp]:
        """Class of each sample."""
        ...

    def error(self, theta: Array, X: Array, y: Labels) -> float:
        """Fraction of the samples put in the wrong class."""
        ...


@dataclass(frozen=True)
class SoftmaxRegression:
    """Multinomial logistic regression with a bias.

    Sample x falls in class c with probability proportional to exp(x W_c + b_c). Training minimises
    the sum over all samples of the cross entropy, plus l2 / 2 times the squared entries of W.

    ``theta`` is flat. ``theta.reshape(features + 1, classes)`` has W, of shape
    (features, classes), in its first rows and the bias b, of shape (classes,), in the last.
    Arithmetic is done in theta's type, float32 or float64; samples of another type are converted
    at every call.

    Parameters
    ----------
    features : int
        Numbers per sample, at least 1.
    classes : int
        Number of classes, at least 2.
    l2 : float
        Weight of the penalty on W (not on the bias), against the *sum* of the cross entropies.

    Raises
    ------
    ValueError
        If a parameter is out of range; in the methods, if an array has the wrong shape or type, or
        a label is not in 0 .. classes - 1.
    """

    features: int
    classes: int
    l2: float = 0.0

    def __post_init__(self) -> None:
        if self.features < 1:
            raise ValueError(f"features must be at least 1, got {self.features}")
        if self.classes < 2:
            raise ValueError(f"classes must be at least 2, got {self.classes}")
        if not 0 <= self.l2 < math.inf:
            raise ValueError(f"l2 must be finite and not negative, got {self.l2}")

    @property
    def size(self) -> int:
        """Length of theta, (features + 1) * classes."""
        return (self.features + 1) * self.classes

    def gradient(self, theta: Array, X: Array, y: Labels, out: Array | None = None) -> Array:
        """Sum (not mean) over the samples of the gradient of the cross entropy.

        Parameters
        ----------
        theta : array, shape (size,)
            Parameters, float32 or float64.
        X : array, shape (m, features)
            Samples; m may be 0.
        y : array of int, shape (m,)
            Their classes.
        out : array, shape (size,), optional
            Overwritten with the result: contiguous, of theta's type.

        Returns
        -------
        array, shape (size,)
            ``out`` where it was given, else a new array.
        """
        self._check_labels(X, y)
        if out is None:
            out = np.empty_like(theta)
        elif out.shape != theta.shape or out.dtype != theta.dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be a contiguous {theta.dtype} array of shape {theta.shape}, "
                f"got {out.dtype} of shape {out.shape}"
            )
        X = X.astype(theta.dtype, copy=False)
        residual = self._shifted_logits(theta, X)
        np.exp(residual, out=residual)
        residual /= residual.sum(axis=1, keepdims=True)
        residual[np.arange(len(y)), y] -= 1
        table = out.reshape(self.features + 1, self.classes)
        np.matmul(X.T, residual, out=table[:-1])
        residual.sum(axis=0, out=table[-1])
        return out

    def partial_gradient(self, theta: Array, shard: tuple[Array, Labels], out: Array) -> None:
        """Write the partial gradient g_j of one partition to ``out``.

        Parameters
        ----------
        theta : array, shape (size,)
            Parameters.
        shard : pair (X, y)
            The partition's samples and labels, as `gradient` takes them.
        out : array, shape (size,)
            Overwritten.
        """
        self.gradient(theta, *shard, out=out)

    def add_regularisation(self, theta: Array, gradient: Array) -> None:
        """Add l2 * W, the gradient of the penalty, to ``gradient`` in place.

        For the master to call once a round: were it part of every partial gradient, it would be
        counted once for each partition.

        Parameters
        ----------
        theta : array, shape (size,)
            Parameters.
        gradient : array, shape (size,)
            The decoded gradient.
        """
        if self.l2:
            weights = slice(0, self.features * self.classes)
            gradient[weights] += self.l2 * theta[weights]

    def loss(self, theta: Array, X: Array, y: Labels) -> float:
        """Mean cross entropy, in nats, without the penalty.

        Parameters
        ----------
        theta : array, shape (size,)
            Parameters.
        X : array, shape (m, features)
            Samples, m >= 1.
        y : array of int, shape (m,)
            Their classes.
        """
        self._check_labels(X, y, least=1)
        logits = self._shifted_logits(theta, X)
        correct = logits[np.arange(len(y)), y]
        np.exp(logits, out=logits)
        return float(np.mean(np.log(logits.sum(axis=1)) - correct, dtype=np.float64))

    def predict(self, theta: Array, X: Array) -> NDArray[np.intp]:
        """Most probable class of each sample, shape (m,); the lowest among equals."""
        classes: NDArray[np.intp] = self._shifted_logits(theta, X).argmax(axis=1)
        return classes

    def error(self, theta: Array, X: Array, y: Labels) -> float:
        """Fraction of the m >= 1 samples whose predicted class is not ``y``."""
        self._check_labels(X, y, least=1)
        return float(np.mean(self.predict(theta, X) != y))

    def _shifted_logits(self, theta: Array, X: Array) -> Array:
        """Compute x W + b less each row's maximum, so that no exponential overflows."""
        if theta.shape != (self.size,) or theta.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"theta must be a float32 or float64 array of shape ({self.size},), "
                f"got {theta.dtype} of shape {theta.shape}"
            )
        if X.ndim != 2 or X.shape[1] != self.features:
            raise ValueError(f"X must have shape (m, {self.features}), got {X.shape}")
        table = theta.reshape(self.features + 1, self.classes)
        logits: Array = X.astype(theta.dtype, copy=False) @ table[:-1]
        logits += table[-1]
        logits -= logits.max(axis=1, keepdims=True)
        return logits

    def _check_labels(self, X: Array, y: Labels, least: int = 0) -> None:
        if y.shape != (len(X),) or y.dtype.kind not in "iu":
            raise ValueError(
                f"y must be an integer array of shape ({len(X)},), got {y.dtype} of shape {y.shape}"
            )
        if len(y) < least:
            raise ValueError("a mean over no samples is not defined")
        # Without this a negative label would count from the last class.
        if len(y) and not 0 <= y.min() <= y.max() < self.classes:
            raise ValueError(
                f"labels must lie in 0 .. {self.classes - 1}, got {y.min()} to {y.max()}"
            )
