"""Models to train: what a worker computes on its partition of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._arrays import Output, as_array, at_least, check_real, view_of

__all__ = [
    "LeastSquares",
    "LinearRegression",
    "Model",
    "SoftmaxRegression",
    "least_squares_gradient",
]

Array = NDArray[np.floating[Any]]
Labels = NDArray[np.integer[Any]]
Targets = NDArray[np.floating[Any]]


# Where samples or parameters are not finite, or too large, results are not: that says it.
_quiet = np.errstate(over="ignore", invalid="ignore")


class Model(Protocol):
    """What training asks of a model with a flat parameter vector theta.

    The gradient is a sum over samples, so that partial gradients add up to the gradient of all the
    data; whatever is not a sum over samples is added once, by the master, with
    ``add_regularisation``. The methods mean what `SoftmaxRegression` says of them.

    A model of real-valued targets also has an attribute ``measure`` that says what its `error` is,
    as `LinearRegression` has; without one that is the fraction put in the wrong class.
    """

    @property
    def quadratic(self) -> bool:
        """Whether the gradient is X'(X theta - y), quadratic in the data."""
        ...

    @property
    def size(self) -> int:
        """Length of theta, the gradient dimension p."""
        ...

    def prepare(self, X: Array, y: NDArray[Any]) -> tuple[Array, Any]:
        """What workers compute on, in place of samples and labels."""
        ...

    def learning_rate(self, X: Array) -> float:
        """A rate for gradient descent on the mean loss that converges."""
        ...

    def smoothness(self, X: Array) -> float:
        """Lipschitz constant of the mean loss's gradient, or a bound of it."""
        ...

    def gradient(self, theta: Array, X: Array, y: NDArray[Any], out: Output | None = None) -> Array:
        """Sum over the samples of the gradient of the loss, shape (size,)."""
        ...

    def partial_gradient(self, theta: Array, shard: Any, out: Array) -> None:
        """Write the gradient on one partition of what `prepare` returns to ``out``."""
        ...

    def add_regularisation(self, theta: Array, gradient: Array) -> None:
        """Add the gradient of the penalty, in place."""
        ...

    def loss(self, theta: Array, X: Array, y: NDArray[Any]) -> float:
        """Mean loss over the samples."""
        ...

    def predict(self, theta: Array, X: Array) -> NDArray[Any]:
        """Class of each sample, or its predicted targets."""
        ...

    def error(self, theta: Array, X: Array, y: NDArray[Any]) -> float:
        """Fraction of the samples put in the wrong class, or root mean squared error."""
        ...


class _Linear:
    """What models share whose scores for the columns of a table W are x W, or x W + b."""

    features: int
    l2: float
    bias: bool

    def __repr__(self) -> str:
        # A bias is not said: checkpoints know models by their texts, and older ones had all a bias.
        said = [f"{n}={v!r}" for n, v in vars(self).items() if n != "bias" or not v]
        return f"{type(self).__name__}({', '.join(said)})"

    @property
    def _columns(self) -> int:
        raise NotImplementedError

    def _check_parameters(self) -> None:
        object.__setattr__(self, "features", at_least("features", self.features, 1))
        object.__setattr__(self, "l2", check_real("l2", self.l2))
        if not isinstance(self.bias, bool | np.bool_):
            raise TypeError(f"bias must be True or False, not {self.bias!r}")
        object.__setattr__(self, "bias", bool(self.bias))

    @property
    def size(self) -> int:
        """Length of theta: features times columns, and columns more with a bias."""
        return (self.features + self.bias) * self._columns

    def learning_rate(self, X: Array) -> float:
        """1 over `smoothness`; ValueError where that is 0."""
        smoothness = self.smoothness(X)
        if not smoothness:
            raise ValueError("X is zero and there is no bias: the loss does not depend on theta")
        return 1.0 / smoothness

    def smoothness(self, X: Array) -> float:
        """Largest eigenvalue of the mean loss's Hessian, by power iteration."""
        return _largest_eigenvalue(X, self.bias)

    @_quiet
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
        theta, X = as_array("theta", theta), as_array("X", X)
        if theta.shape != (self.size,) or theta.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"theta must be a float32 or float64 array of shape ({self.size},), "
                f"got {theta.dtype} of shape {theta.shape}"
            )
        self._check_samples(X)
        table = theta.reshape(-1, self._columns)
        scores: Array = X.astype(theta.dtype, copy=False) @ table[: self.features]
        if self.bias:
            scores += table[-1]
        return scores

    def _with_ones(self, X: Array) -> Array:
        """Samples with a column of ones after them, if there is a bias."""
        if not self.bias:
            return X
        A = np.ones((len(X), self.features + 1), dtype=X.dtype)
        A[:, :-1] = X
        return A

    def _check_samples(self, X: Array) -> None:
        if X.ndim != 2 or X.shape[1] != self.features:
            raise ValueError(f"X must have shape (m, {self.features}), got {X.shape}")
        _check_real(X)


@dataclass(frozen=True, repr=False)
class _LinearClassifier(_Linear):
    """Linear models whose columns are classes."""

    features: int
    classes: int
    l2: float = 0.0
    bias: bool = True

    def __post_init__(self) -> None:
        self._check_parameters()
        object.__setattr__(self, "classes", at_least("classes", self.classes, 2))

    @property
    def _columns(self) -> int:
        return self.classes

    @_quiet
    def predict(self, theta: Array, X: Array) -> NDArray[np.intp]:
        """Class of the highest score of each sample, shape (m,); the lowest among equals."""
        classes: NDArray[np.intp] = self._scores(theta, X).argmax(axis=1)
        return classes

    def error(self, theta: Array, X: Array, y: Labels) -> float:
        """Fraction of the m >= 1 samples whose predicted class is not ``y``."""
        X, y = self._checked(X, y, least=1)
        return float(np.mean(self.predict(theta, X) != y))

    def _checked(self, X: Array, y: Labels, least: int = 0) -> tuple[Array, Labels]:
        """Samples and labels as arrays, if every sample has one of the classes."""
        X, y = as_array("X", X), as_array("y", y)
        self._check_samples(X)
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
        return X, y


@dataclass(frozen=True, repr=False)
class SoftmaxRegression(_LinearClassifier):
    """Multinomial logistic regression.

    Sample x falls in class c with probability proportional to exp(x W_c + b_c). Training minimises
    the sum over all samples of the cross entropy, plus l2 / 2 times the squared entries of W.

    ``theta`` is flat. ``theta.reshape(-1, classes)`` has W, of shape (features, classes), in its
    first rows and the bias b, of shape (classes,), in one more, unless there is none.
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
    bias : bool, default True
        Whether there is a b.

    Raises
    ------
    ValueError
        If a parameter is out of range; in the methods, if an array has the wrong shape or type, or
        a label is not in 0 .. classes - 1.
    """

    quadratic: ClassVar[bool] = False

    def prepare(self, X: Array, y: Labels) -> tuple[Array, Labels]:
        """Samples and labels themselves."""
        return X, y

    def learning_rate(self, X: Array) -> float:
        """1, which suits samples in [0, 1]."""
        return 1.0

    def smoothness(self, X: Array) -> float:
        """Bound of the mean loss's curvature (Böhning 1992): half that of least squares."""
        return super().smoothness(X) / 2

    @_quiet
    def gradient(self, theta: Array, X: Array, y: Labels, out: Output | None = None) -> Array:
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
        theta, (X, y) = as_array("theta", theta), self._checked(X, y)
        total = np.empty_like(theta) if out is None else view_of("out", out)
        if total.shape != theta.shape or total.dtype != theta.dtype or not total.flags.c_contiguous:
            raise ValueError(
                f"out must be a contiguous {theta.dtype} array of shape {theta.shape}, "
                f"got {total.dtype} of shape {total.shape}"
            )
        residual = self._shifted_logits(theta, X)
        X = X.astype(theta.dtype, copy=False)
        np.exp(residual, out=residual)
        residual /= residual.sum(axis=1, keepdims=True)
        residual[np.arange(len(y)), y] -= 1
        table = total.reshape(-1, self.classes)
        np.matmul(X.T, residual, out=table[: self.features])
        if self.bias:
            residual.sum(axis=0, out=table[-1])
        return total if out is None else out

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

    @_quiet
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
        X, y = self._checked(X, y, least=1)
        logits = self._shifted_logits(theta, X)
        correct = logits[np.arange(len(y)), y]
        np.exp(logits, out=logits)
        return float(np.mean(np.log(logits.sum(axis=1)) - correct, dtype=np.float64))

    def _shifted_logits(self, theta: Array, X: Array) -> Array:
        """Scores less each row's maximum, so that no exponential overflows."""
        logits = self._scores(theta, X)
        logits -= logits.max(axis=1, keepdims=True)
        return logits


class _Quadratic(_Linear):
    """What models share whose loss is half a squared distance: gradients quadratic in the data."""

    quadratic: ClassVar[bool] = True

    def partial_gradient(self, theta: Array, shard: tuple[Array, Array], out: Array) -> None:
        """Write the partial gradient g_j of one partition, coded or not, to ``out``.

        Parameters
        ----------
        theta : array, shape (size,)
            Parameters.
        shard : pair (A, E)
            What `prepare` returns, or combinations of it over several partitions.
        out : array, shape (size,)
            Overwritten; complex where the shard is.
        """
        least_squares_gradient(theta, *shard, out=out)


@dataclass(frozen=True, repr=False)
class LeastSquares(_Quadratic, _LinearClassifier):
    """Classification by linear least squares on the classes' indicators, one against all.

    Training minimises half the sum of || x W + b - e_y ||^2 over the samples, e_y the indicator of
    a sample's class, plus l2 / 2 times the squared entries of W. Its gradient is quadratic in the
    data, which is what Lagrange coded computing needs. `LinearRegression` is the same for targets.

    ``theta`` is laid out as `SoftmaxRegression` has it. Workers compute on ``(A, E)``: the samples
    with a column of ones after them, and the indicators, see `prepare`.

    Parameters
    ----------
    features, classes, l2, bias
        As in `SoftmaxRegression`.
    """

    def prepare(self, X: Array, y: Labels) -> tuple[Array, Array]:
        """Samples, with a column of ones for a bias, and indicators, (m, classes)."""
        X, y = self._checked(X, y)
        return self._with_ones(X), np.eye(self.classes, dtype=X.dtype)[y]

    def gradient(self, theta: Array, X: Array, y: Labels, out: Output | None = None) -> Array:
        """Sum (not mean) over the samples of the gradient, shape (size,)."""
        return least_squares_gradient(theta, *self.prepare(X, y), out=out)

    @_quiet
    def loss(self, theta: Array, X: Array, y: Labels) -> float:
        """Mean over the samples of half the squared distance, without the penalty."""
        X, y = self._checked(X, y, least=1)
        residual = self._scores(theta, X)
        residual[np.arange(len(y)), y] -= 1
        return float(np.sum(np.square(residual), dtype=np.float64) / (2 * len(y)))


@dataclass(frozen=True, repr=False)
class LinearRegression(_Quadratic):
    """Linear regression: least squares on real-valued targets.

    Training minimises half the sum of || x W + b - y ||^2 over the samples, plus l2 / 2 times the
    squared entries of W. Its gradient is quadratic in the data, which is what Lagrange coded
    computing needs.

    ``theta`` is flat. ``theta.reshape(-1, outputs)`` has W, of shape (features, outputs), in its
    first rows and the bias b, of shape (outputs,), in one more, unless there is none. Arithmetic is
    done in theta's type, float32 or float64, but for means, which are of float64.

    Parameters
    ----------
    features : int
        Numbers per sample, at least 1.
    outputs : int
        Targets per sample, at least 1.
    l2 : float
        Weight of the penalty on W (not on the bias), against the *sum* of the squared distances
        over 2.
    bias : bool, default True
        Whether there is a b.

    Attributes
    ----------
    measure : str
        What `error` is called in tables and plots: "RMSE".

    Raises
    ------
    TypeError, ValueError
        If a parameter is of a wrong type or out of range; in the methods, if an array has the wrong
        shape or type.
    """

    features: int
    outputs: int = 1
    l2: float = 0.0
    bias: bool = True

    measure: ClassVar[str] = "RMSE"

    def __post_init__(self) -> None:
        self._check_parameters()
        object.__setattr__(self, "outputs", at_least("outputs", self.outputs, 1))

    @property
    def _columns(self) -> int:
        return self.outputs

    def prepare(self, X: Array, y: Targets) -> tuple[Array, Array]:
        """What workers compute on.

        Parameters
        ----------
        X : array, shape (m, features)
            Samples.
        y : array of real numbers, shape (m, outputs), or (m,) where there is one output
            Their targets.

        Returns
        -------
        pair (A, Y)
            Samples, with a column of ones for a bias, and targets, (m, outputs), of X's type.
        """
        X, y = self._checked(X, y)
        return self._with_ones(X), y.astype(X.dtype)

    def gradient(self, theta: Array, X: Array, y: Targets, out: Output | None = None) -> Array:
        """Sum (not mean) over the samples of the gradient, shape (size,)."""
        return least_squares_gradient(theta, *self.prepare(X, y), out=out)

    @_quiet
    def loss(self, theta: Array, X: Array, y: Targets) -> float:
        """Mean over the m >= 1 samples of half the squared distance, without the penalty."""
        X, y = self._checked(X, y, least=1)
        return float(np.sum(np.square(self._scores(theta, X) - y), dtype=np.float64) / (2 * len(y)))

    @_quiet
    def predict(self, theta: Array, X: Array) -> Array:
        """Targets of each sample, shape (m, outputs), of theta's type."""
        return self._scores(theta, X)

    def error(self, theta: Array, X: Array, y: Targets) -> float:
        """Root mean squared error over the m >= 1 samples and all outputs, in units of ``y``."""
        return math.sqrt(2 * self.loss(theta, X, y) / self.outputs)

    def _checked(self, X: Array, y: Targets, least: int = 0) -> tuple[Array, Array]:
        """Samples, and targets as a table."""
        X, y = as_array("X", X), as_array("y", y)
        self._check_samples(X)
        shapes = [(len(X), self.outputs)] + [(len(X),)] * (self.outputs == 1)
        if y.shape not in shapes or y.dtype.kind not in "biuf":
            raise ValueError(
                f"y must be an array of real numbers of shape {' or '.join(map(str, shapes))}, "
                f"got {y.dtype} of shape {y.shape}"
            )
        if len(y) < least:
            raise ValueError("a mean over no samples is not defined")
        return X, y.reshape(len(X), self.outputs)


def _check_real(X: Array) -> None:
    if X.dtype.kind not in "biuf":
        raise TypeError(f"X must be real numbers, not {X.dtype}")


def _largest_eigenvalue(X: Array, bias: bool) -> float:
    """Of A'A / N, A the N samples, with a column of ones for a bias, by power iteration."""
    X = as_array("X", X)
    if X.ndim != 2:
        raise ValueError(f"X must have shape (m, features), got {X.shape}")
    if not len(X):
        raise ValueError("X holds no sample")
    _check_real(X)
    A = np.ones((len(X), X.shape[1] + bias))
    A[:, : X.shape[1]] = X
    vector = np.random.default_rng(0).standard_normal(A.shape[1])
    value, before = 0.0, -1.0
    # The norms ascend, with twice the digits of the vectors.
    while value - before > 1e-12 * value:
        before = value
        with np.errstate(over="ignore", invalid="ignore"):
            vector = A.T @ (A @ (vector / np.linalg.norm(vector)))
            norm = float(np.linalg.norm(vector))
        if not norm < math.inf:
            raise ValueError("X holds NaN or Inf, or samples whose squares overflow: scale them")
        value = max(before, norm)
    return value / len(X)


@_quiet
def least_squares_gradient(
    theta: ArrayLike, X: ArrayLike, y: ArrayLike, out: Output | None = None
) -> NDArray[Any]:
    """X'(X theta - y), flat.

    Parameters
    ----------
    theta : (features,), (features, outputs) or flat (features * outputs,) array
    X : (m, features) array
        Real or complex; X' is not conjugated.
    y : (m,) or (m, outputs) array
    out : (theta.size,) array, optional
        Contiguous.

    Returns
    -------
    (theta.size,) array

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    theta, X, y = as_array("theta", theta), as_array("X", X), as_array("y", y)
    outputs = y.shape[1] if y.ndim == 2 else 1
    if (
        X.ndim != 2
        or theta.size != X.shape[1] * outputs
        or y.shape
        not in (
            (len(X),),
            (len(X), outputs),
        )
    ):
        raise ValueError(
            f"shapes do not fit: theta {theta.shape}, X {X.shape}, y {y.shape}; X must be "
            "(m, features), y (m,) or (m, outputs), and theta have features * outputs elements"
        )
    table = theta.reshape(X.shape[1], outputs)
    residual = X @ table
    residual -= y.reshape(len(X), outputs)
    dtype = np.result_type(theta, X)
    total = np.empty(theta.size, dtype) if out is None else view_of("out", out)
    if total.shape != (theta.size,) or not total.flags.c_contiguous:
        raise ValueError(
            f"out must be a contiguous array of shape ({theta.size},), not {total.shape}"
        )
    np.matmul(X.T, residual, out=total.reshape(X.shape[1], outputs))
    return total if out is None else out
