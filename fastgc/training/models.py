"""Models to train: what a worker computes on its partition of the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from .._base.arrays import Output, as_array, at_least, check_flag, check_real, view_of
from .._base.text import listing
from ..numerics.least_squares import least_squares_gradient

__all__ = [
    "LeastSquares",
    "LinearRegression",
    "Model",
    "SoftmaxRegression",
    "least_squares_gradient",
]
__dir__ = listing(__all__)

Array = NDArray[np.floating[Any]]
Labels = NDArray[np.integer[Any]]
Targets = NDArray[np.floating[Any]]


# If samples or parameters are not finite, or too large, the results show it, without a warning.
_quiet = np.errstate(over="ignore", under="ignore", invalid="ignore")


class Model(Protocol):
    """What training needs of a model with a flat parameter vector theta.

    The gradient is a sum over samples, so that partial gradients add up to the gradient of all the
    data. If it has a term that is not a sum over samples, the master adds this once, with
    ``add_regularisation``. `SoftmaxRegression` explains the methods.

    Training uses these further attributes if a model has them, as those of this module do:

    ``initial(rng)``
        Initial parameters, an array of shape (size,), drawn from a ``numpy.random.Generator``.
        Default: zero, where networks cannot start, because equal units stay equal.
    ``learning_rate(X)``
        The rate of gradient descent on the mean loss if no optimizer is given. Without it you must
        give one. Only `LeastSquares` and `LinearRegression` promise that descent converges at it.
    ``prepare(X, y)``
        The pair of arrays that workers compute on instead of samples and labels, with as many rows.
    ``add_regularisation(theta, gradient)``
        Adds the gradient of the penalty in place. Default: no penalty.
    ``quadratic``
        Whether the gradient is X'(X theta - y), quadratic in the data. Default: False.
    ``measure``
        The name of ``error``, as in `LinearRegression`. Default: the fraction of misclassified
        samples.
    """

    @property
    def size(self) -> int:
        """Length of theta, the gradient dimension p."""

    @property
    def partial_gradient(self) -> Callable[..., object]:
        """``partial_gradient(theta, shard, out)`` writes a partition's gradient to all of ``out``.

        The shard is the pair that `prepare` returns, or (X, y) without it. If the method has the
        keywords ``partition`` and ``round``, it gets them, counted from 0. Random numbers must be a
        function of them: otherwise workers that compute the same partition disagree.
        """

    def loss(self, theta: Array, X: Array, y: NDArray[Any]) -> float:
        """Mean loss over the samples."""

    def error(self, theta: Array, X: Array, y: NDArray[Any]) -> float:
        """Fraction of samples that are misclassified, or root mean squared error."""


def prepared(model: Model, X: Array, y: NDArray[Any]) -> tuple[Array, Any]:
    """Return what workers compute on: `prepare`'s result, or X and y."""
    prepare = getattr(model, "prepare", None)
    pair: tuple[Array, Any] = (X, y) if prepare is None else prepare(X, y)
    return pair


class _Linear:
    """Common parts of models with scores x W, or x W + b: a score for each column of W."""

    features: int
    l2: float
    bias: bool
    _wide: ClassVar[tuple[str, int]]  # the field that is the number of columns, and its least value

    def __post_init__(self) -> None:
        if not isinstance(self.bias, bool | np.bool_):
            raise TypeError(f"bias must be True or False, not {self.bias!r}")
        name, least = self._wide
        features = at_least("features", self.features, 1)
        columns = {name: at_least(name, getattr(self, name), least)}
        l2 = check_real("l2", self.l2)
        vars(self).update(columns, features=features, l2=l2, bias=check_flag("bias", self.bias))

    @property
    def _columns(self) -> int:
        return int(vars(self)[self._wide[0]])

    @property
    def size(self) -> int:
        """Length of theta: features times columns, plus columns with a bias."""
        return (self.features + self.bias) * self._columns

    def learning_rate(self, X: Array) -> float:
        """1 / `smoothness`; raises ValueError if that is 0."""
        smoothness = self.smoothness(X)
        if not smoothness:
            raise ValueError("X is zero and there is no bias: the loss does not depend on theta")
        return 1.0 / smoothness

    def smoothness(self, X: Array) -> float:
        """Largest eigenvalue of the mean loss's Hessian, A'A / N, by power iteration."""
        X = _checked_samples(X, self.features)
        if not len(X):
            raise ValueError("X holds no sample")
        A = self._with_ones(X.astype(np.float64))
        vector = np.random.default_rng(0).standard_normal(self.features + self.bias)
        value, before = 0.0, -1.0
        # The norms ascend, and have twice as many right digits as the vectors.
        while value - before > 1e-12 * value:
            before = value
            with np.errstate(over="ignore", invalid="ignore"):
                vector = A.T @ (A @ (vector / np.linalg.norm(vector)))
                norm = float(np.linalg.norm(vector))
            if not norm < math.inf:
                raise ValueError(
                    "X holds NaN or Inf, or samples whose squares overflow: scale them"
                )
            value = max(before, norm)
        return value / len(X)

    @_quiet
    def add_regularisation(self, theta: Array, gradient: Array) -> None:
        """Add l2 * W, the gradient of the penalty, to ``gradient`` in place; both (size,) arrays.

        The master calls it once a round: in the partial gradients, it would count once for each
        partition.
        """
        theta, total = as_array("theta", theta), view_of("gradient", gradient)
        if not theta.shape == total.shape == (self.size,):
            raise ValueError(
                f"theta and gradient must have shape ({self.size},), "
                f"got {theta.shape} and {total.shape}"
            )
        if self.l2:
            weights = slice(0, self.features * self._columns)
            total[weights] += self.l2 * theta[weights]

    def _scores(self, theta: Array, X: Array) -> Array:
        """Compute x W + b."""
        theta, X = _checked_theta(theta, self.size), _checked_samples(X, self.features)
        table = theta.reshape(-1, self._columns)
        scores: Array = X.astype(theta.dtype, copy=False) @ table[: self.features]
        if self.bias:
            scores += table[-1]
        return scores

    def _with_ones(self, X: Array) -> Array:
        """Return the samples, with a last column of ones if there is a bias."""
        if not self.bias:
            return X
        A = np.ones((len(X), self.features + 1), dtype=X.dtype)
        A[:, :-1] = X
        return A


@dataclass(frozen=True)
class _Classifier(_Linear):
    """Common parts of models with a score, a column of W, for each class."""

    features: int
    classes: int
    l2: float = 0.0
    bias: bool = True

    _wide: ClassVar[tuple[str, int]] = ("classes", 2)

    @_quiet
    def predict(self, theta: Array, X: Array) -> NDArray[np.intp]:
        """Class with the highest score for each sample, shape (m,); the lowest among equals."""
        classes: NDArray[np.intp] = self._scores(theta, X).argmax(axis=1)
        return classes

    def error(self, theta: Array, X: Array, y: Labels) -> float:
        """Fraction of the m >= 1 samples whose predicted class is not ``y``."""
        X, y = self._checked(X, y, least=1)
        return float(np.mean(self.predict(theta, X) != y))

    def _checked(self, X: Array, y: Labels, least: int = 0) -> tuple[Array, Labels]:
        """Return samples and labels as arrays; raise unless every label is a class."""
        X, y = _checked_samples(X, self.features), as_array("y", y)
        if y.shape != (len(X),) or y.dtype.kind not in "iu":
            raise ValueError(
                f"y must be an integer array of shape ({len(X)},), got {y.dtype} of shape {y.shape}"
            )
        _check_count(y, least)
        # Otherwise a negative label would count from the last class.
        if len(y) and not 0 <= y.min() <= y.max() < self.classes:
            raise ValueError(
                f"labels must lie in 0 .. {self.classes - 1}, got {y.min()} to {y.max()}"
            )
        return X, y


@dataclass(frozen=True)
class SoftmaxRegression(_Classifier):
    """Multinomial logistic regression.

    Sample x belongs to class c with probability proportional to exp(x W_c + b_c). Training
    minimises the sum over all samples of the cross entropy, plus l2 / 2 times the squared entries
    of W.

    ``theta`` is flat. The first rows of ``theta.reshape(-1, classes)`` are W, of shape (features,
    classes), and the last row is the bias b, of shape (classes,), if there is one. Arithmetic uses
    theta's dtype, float32 or float64; samples of another dtype are converted at every call.

    Parameters
    ----------
    features : int
        Numbers per sample, at least 1.
    classes : int
        Number of classes, at least 2.
    l2 : float
        Weight of the penalty on W (not on the bias), against the *sum* of the cross entropies.
    bias : bool, default True
        Whether the model has a bias b.

    Raises
    ------
    TypeError, ValueError
        If a parameter has a wrong type or is out of range; in the methods, if an array has the
        wrong shape or dtype, or a label is not in 0 .. classes - 1.
    """

    quadratic: ClassVar[bool] = False

    def learning_rate(self, X: Array) -> float:
        """1, whatever X is: a rate for a few dozen features in [0, 1], such as digits' 64.

        It is not derived from X. Descent surely converges at 1 / `smoothness` only, which is slower
        by far where the bound is pessimistic (5.7 for digits), and may diverge at 1 for more or
        larger features: 784 pixels that are mostly 1 have a smoothness near 250. Give
        ``optimizer=Nesterov(1 / model.smoothness(X))`` there.
        """
        return 1.0

    def smoothness(self, X: Array) -> float:
        """Bound of the mean loss's curvature (Böhning 1992): half of that of least squares."""
        return super().smoothness(X) / 2

    @_quiet
    def probabilities(self, theta: Array, X: Array) -> Array:
        """Probability of each class for each sample, shape (m, classes), of theta's type."""
        return _softmax(self._scores(theta, X))

    @_quiet
    def gradient(self, theta: Array, X: Array, y: Labels, out: Output | None = None) -> Array:
        """Sum (not mean) over the samples of the cross entropy's gradient.

        Parameters
        ----------
        theta : array, shape (size,)
            Parameters, float32 or float64.
        X : array, shape (m, features)
            Samples; m may be 0.
        y : array of int, shape (m,)
            Their classes.
        out : array, shape (size,), optional
            Overwritten with the result; contiguous, of theta's type.

        Returns
        -------
        array, shape (size,)
            ``out`` if it was given, otherwise a new array.
        """
        theta, (X, y) = as_array("theta", theta), self._checked(X, y)
        total = np.empty_like(theta) if out is None else view_of("out", out)
        if total.shape != theta.shape or total.dtype != theta.dtype or not total.flags.c_contiguous:
            raise ValueError(
                f"out must be a contiguous {theta.dtype} array of shape {theta.shape}, "
                f"got {total.dtype} of shape {total.shape}"
            )
        residual = _softmax(self._scores(theta, X))
        residual[np.arange(len(y)), y] -= 1
        table = total.reshape(-1, self.classes)
        np.matmul(X.astype(theta.dtype, copy=False).T, residual, out=table[: self.features])
        if self.bias:
            residual.sum(axis=0, out=table[-1])
        return total if out is None else out

    def partial_gradient(self, theta: Array, shard: tuple[Array, Labels], out: Array) -> None:
        """Write the `gradient` of a shard, a pair (X, y), to ``out``, shape (size,)."""
        self.gradient(theta, *shard, out=out)

    @_quiet
    def loss(self, theta: Array, X: Array, y: Labels) -> float:
        """Mean cross entropy over the m >= 1 samples, in nats, without the penalty."""
        X, y = self._checked(X, y, least=1)
        logits = _shifted(self._scores(theta, X))
        correct = logits[np.arange(len(y)), y]
        np.exp(logits, out=logits)
        return float(np.mean(np.log(logits.sum(axis=1)) - correct, dtype=np.float64))


class _Quadratic(_Linear):
    """Common parts of models whose loss is half a squared distance: their gradient is quadratic."""

    quadratic: ClassVar[bool] = True

    def partial_gradient(self, theta: Array, shard: tuple[Array, Array], out: Array) -> None:
        """Write the gradient of a shard to ``out``, shape (size,), complex if the shard is.

        The shard is the result of `prepare`, or a combination of such over several partitions.
        """
        least_squares_gradient(theta, *shard, out=out)

    def _targets(self, X: Array, y: Any, least: int = 0) -> tuple[Array, Array]:
        """Return checked samples, and what their scores should be, (m, columns)."""
        raise NotImplementedError

    def prepare(self, X: Array, y: Any) -> tuple[Array, Array]:
        """Return what workers compute on.

        Parameters
        ----------
        X : array, shape (m, features)
            Samples.
        y : array
            Their classes, integers of shape (m,); or their targets, real numbers of shape
            (m, outputs), or (m,) for a single output.

        Returns
        -------
        pair (A, Y)
            Samples, with a column of ones for a bias, and indicators of the classes, (m, classes),
            or targets, (m, outputs), of X's type.
        """
        X, Y = self._targets(X, y)
        return self._with_ones(X), Y.astype(X.dtype, copy=False)

    @_quiet
    def loss(self, theta: Array, X: Array, y: Any) -> float:
        """Mean over the m >= 1 samples of half the squared distance, without the penalty."""
        X, Y = self._targets(X, y, least=1)
        return float(np.sum(np.square(self._scores(theta, X) - Y), dtype=np.float64) / (2 * len(Y)))

    def gradient(self, theta: Array, X: Array, y: Any, out: Output | None = None) -> Array:
        """Sum (not mean) over the samples of the gradient, shape (size,)."""
        return least_squares_gradient(theta, *self.prepare(X, y), out=out)

    def optimum(self, X: Array, y: Any) -> Array:
        """Parameters that minimise the penalised loss, by a dense least-squares solution.

        They have shape (size,) and X's type, and are the shortest ones, if several minimise it.
        X and y are as in `prepare`.
        """
        A, Y = self.prepare(X, y)
        if self.l2:
            penalty = math.sqrt(self.l2) * np.eye(self.features, A.shape[1], dtype=A.dtype)
            A, Y = np.vstack([A, penalty]), np.vstack([Y, np.zeros((self.features, Y.shape[1]))])
        found: Array = np.linalg.lstsq(A, Y.astype(A.dtype), rcond=None)[0].ravel()
        return found


@dataclass(frozen=True)
class LeastSquares(_Quadratic, _Classifier):
    """Classification by linear least squares on the classes' indicators, one against all.

    Training minimises half the sum of || x W + b - e_y ||^2 over the samples, where e_y is the
    indicator of a sample's class, plus l2 / 2 times the squared entries of W. Its gradient is
    quadratic in the data, as Lagrange coded computing requires. `LinearRegression` is the same for
    targets.

    ``theta`` has the layout of `SoftmaxRegression`. Workers compute on ``(A, E)``: the samples with
    a further column of ones, and the indicators (`prepare`).

    Parameters
    ----------
    features, classes, l2, bias
        As in `SoftmaxRegression`.
    """

    def _targets(self, X: Array, y: Labels, least: int = 0) -> tuple[Array, Array]:
        X, y = self._checked(X, y, least)
        return X, np.eye(self.classes, dtype=X.dtype)[y]


@dataclass(frozen=True)
class LinearRegression(_Quadratic):
    """Linear regression: least squares on real-valued targets.

    Training minimises half the sum of || x W + b - y ||^2 over the samples, plus l2 / 2 times the
    squared entries of W. Its gradient is quadratic in the data, as Lagrange coded computing
    requires.

    ``theta`` has the layout of `SoftmaxRegression`, with outputs instead of classes. Arithmetic
    uses theta's dtype, float32 or float64, except for means, which use float64. Raises as
    `SoftmaxRegression`.

    Parameters
    ----------
    features, l2, bias
        As in `SoftmaxRegression`; the penalty is against the *sum* of half the squared distances.
    outputs : int
        Targets per sample, at least 1.

    Attributes
    ----------
    measure : str
        Name of `error` in tables and plots: "RMSE".
    """

    features: int
    outputs: int = 1
    l2: float = 0.0
    bias: bool = True

    measure: ClassVar[str] = "RMSE"
    _wide: ClassVar[tuple[str, int]] = ("outputs", 1)

    @_quiet
    def predict(self, theta: Array, X: Array) -> Array:
        """Targets of each sample, shape (m, outputs), of theta's type."""
        return self._scores(theta, X)

    def error(self, theta: Array, X: Array, y: Targets) -> float:
        """Root mean squared error over the m >= 1 samples and all outputs, in units of ``y``."""
        return math.sqrt(2 * self.loss(theta, X, y) / self.outputs)

    def _targets(self, X: Array, y: Targets, least: int = 0) -> tuple[Array, Array]:
        X, y = _checked_samples(X, self.features), as_array("y", y)
        shapes = [(len(X), self.outputs)] + [(len(X),)] * (self.outputs == 1)
        if y.shape not in shapes or y.dtype.kind not in "biuf":
            raise ValueError(
                f"y must be an array of real numbers of shape {' or '.join(map(str, shapes))}, "
                f"got {y.dtype} of shape {y.shape}"
            )
        _check_count(y, least)
        return X, y.reshape(len(X), self.outputs)


def _check_count(y: NDArray[Any], least: int) -> None:
    if len(y) < least:
        raise ValueError("a mean over no samples is not defined")


def _shifted(scores: Array) -> Array:
    """Subtract each row's maximum in place, so that no exponential overflows."""
    scores -= scores.max(axis=1, keepdims=True)
    return scores


@np.errstate(under="ignore")
def _softmax(scores: Array) -> Array:
    """Replace the scores by probabilities."""
    np.exp(_shifted(scores), out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def _checked_theta(theta: Array, size: int) -> Array:
    theta = as_array("theta", theta)
    if theta.shape != (size,) or theta.dtype not in (np.float32, np.float64):
        raise ValueError(
            f"theta must be a float32 or float64 array of shape ({size},), "
            f"got {theta.dtype} of shape {theta.shape}"
        )
    return theta


def _checked_samples(X: Array, features: int) -> Array:
    X = as_array("X", X)
    if X.ndim != 2 or X.shape[1] != features:
        raise ValueError(f"X must have shape (m, {features}), got {X.shape}")
    if X.dtype.kind not in "biuf":
        raise TypeError(f"X must be real numbers, not {X.dtype}")
    return X
