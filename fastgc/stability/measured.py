"""Measured errors of decoded gradients, compared with exact ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._arrays import as_array, at_least, check_dtype, gradient_dtype_of
from ..codes import Code
from ..coding.scheme import Scheme
from ..coding.trust import trust_by_rows
from ..kernels.numpy.pairs import Pair, exact_sum, two_product
from ..models import least_squares_gradient
from .bounds import error_bound

__all__ = ["Experiment", "MeasuredError", "measured_error"]

_ROWS = 3  # samples of each block, for codes of the data
_FEATURES = 8
# Up to _ONE_BY_ONE messages are encoded one by one; more are encoded _TOGETHER at a time, if B has
# at most _ENTRIES entries.
_ONE_BY_ONE, _TOGETHER, _ENTRIES = 4000, 2000, 1 << 24


class MeasuredError(NamedTuple):
    """Error of a decoded gradient, in the 2-norm.

    Attributes
    ----------
    relative : float
        Relative to the norm of the exact gradient.
    scaled : float
        Relative to the unit of `error_bound`, ``sqrt(k) max_j ||g_j||``: the quantity that the
        bound bounds.
    """

    relative: float
    scaled: float


def _exact_least_squares(X: NDArray[Any], y: NDArray[Any], theta: NDArray[Any]) -> Pair:
    """``X' (X theta - y)`` in about twice float64's precision."""
    X, y, theta = X.astype(np.float64), y.astype(np.float64), theta.astype(np.float64)
    products = two_product(X, theta)
    r, rest = exact_sum(np.concatenate([*(part.T for part in products), -y[None]]))
    products = two_product(X, r[:, None])
    return exact_sum(np.concatenate([*products, X * rest[:, None]]))


def _largest_pair(X: NDArray[Any], y: NDArray[Any], theta: NDArray[Any], rows: int) -> float:
    """``max || |X_j|' (|X_j'| |theta| + |y_j'|) ||`` over pairs of blocks."""
    padded = np.zeros((-(-len(X) // rows) * rows, X.shape[1]))
    padded[: len(X)] = np.abs(X)
    size = padded @ np.abs(theta).astype(np.float64)
    size[: len(y)] += np.abs(y)
    size = size.reshape(-1, rows).T
    blocks = padded.reshape(-1, rows, X.shape[1])
    return max(float(np.linalg.norm(block.T @ size, axis=0).max()) for block in blocks)


class _Work(NamedTuple):
    computed: Sequence[NDArray[Any]]  # the partial gradients, or results, that workers encode
    exact: Pair
    unit: float  # the unit of error_bound
    terms: int  # its argument


def _gradients(
    code: Code, partials: Any, dtype: np.dtype[Any], p: int, rng: np.random.Generator
) -> _Work:
    if partials is None:
        partials = rng.standard_normal((code.k, p)).astype(dtype)
    computed = as_array("partials", partials)
    if computed.ndim != 2 or len(computed) != code.k:
        raise ValueError(
            f"partials must be of shape ({code.k}, p), a row for each partition, not "
            f"{computed.shape}"
        )
    unit = math.sqrt(code.k) * _largest_norm(computed.astype(np.result_type(computed, 0.0)))
    return _Work(list(computed), exact_sum(computed), unit, 0)


def _data(code: Code, data: Any, dtype: np.dtype[Any], rng: np.random.Generator) -> _Work:
    if data is None:
        rows = _ROWS * code.k
        shapes: list[tuple[int, ...]] = [(rows, _FEATURES), (rows,), (_FEATURES,)]
        data = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    if len(data) != 3:
        raise ValueError("codes of the data take (X, y, theta), not partial gradients")
    X, y, theta = map(as_array, ("X", "y", "theta"), data)
    if X.ndim != 2 or y.shape != X.shape[:1] or theta.shape != X.shape[1:]:
        raise ValueError(
            "X, y and theta must be of shape (N, features), (N,) and (features,), not "
            f"{X.shape}, {y.shape}, {theta.shape}"
        )
    if "c" in (X.dtype.kind, y.dtype.kind, theta.dtype.kind):
        raise TypeError("errors of codes of the data are measured on real data, not complex")
    computed = [least_squares_gradient(theta, *shard) for shard in code.encode_data(X, y)]
    rows = -(-len(X) // code.k)
    unit = math.sqrt(code.k) * _largest_pair(X, y, theta, rows)
    return _Work(computed, _exact_least_squares(X, y, theta), unit, rows + theta.size)


def _many(
    scheme: Scheme,
    computed: Sequence[NDArray[Any]],
    dtype: np.dtype[Any],
    sent: np.dtype[Any] | None,
    progress: Callable[[int, int], object],
) -> Any:
    """Messages of float64, encoded many at a time; None if they are few, or of other dtypes.

    Every term and every sum is rounded by itself; the kernels may round a term and its sum
    together.
    """
    count = scheme.message_count
    plain = dtype == np.float64 and sent is None and not scheme.codes_data
    if count <= _ONE_BY_ONE or not plain or scheme.n * scheme.load > _ENTRIES:
        return None
    first, held, values = scheme.entries
    if not np.diff(first).all():
        return None
    m = scheme.pieces
    form = scheme.format(computed[0].size, dtype)
    padded = np.zeros((len(computed), m * form.length))
    padded[:, : form.gradient_size] = computed
    reals: NDArray[Any] = padded
    if scheme.layout == "packed":
        reals = padded.view(np.complex128)
    given = reals.reshape(len(computed), m, -1)
    values = values.reshape(-1, m, 1)
    messages = np.empty((count, form.message_size), dtype=form.message_dtype)
    for at in range(0, count, _TOGETHER):
        end = min(at + _TOGETHER, count)
        some = slice(first[at], first[end])
        terms = (values[some] * given[held[some]]).sum(axis=1)
        sums = np.add.reduceat(terms, first[at:end] - first[at])
        messages[at:end] = sums.view(form.message_dtype)
        progress(end, count)
    return messages


class Experiment:
    """Partial gradients, the messages that workers make of them, and the exact gradient.

    Parameters
    ----------
    code : Code
    partials : (k, p) array, or (X, y, theta) for codes of the data, optional
        Default: random normal numbers.
    dtype : numpy dtype
        Dtype of the random numbers and the messages. float16, bfloat16 and float64x2 are dtypes of
        the messages alone: numbers are then float32, or float64 for float64x2.
    p : int
        Elements of random partial gradients. Codes of the data take least squares of 8 features.
    seed : int
    progress : callable, optional
        Called with the number of messages encoded so far, after one or several, and with the number
        of all.

    Notes
    -----
    More than 4,000 messages of float64 are encoded many at a time, others as by `Code.encode`.
    """

    def __init__(
        self,
        code: Code,
        partials: ArrayLike | tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        *,
        dtype: DTypeLike = np.float64,
        p: int = 64,
        seed: int = 0,
        progress: Callable[[int, int], object] = lambda done, messages: None,
    ) -> None:
        self.code = code
        self.dtype = check_dtype(dtype, halves=True, pairs=True)
        rng = np.random.default_rng(at_least("seed", seed, 0))
        kind = gradient_dtype_of(self.dtype)
        sent = None if kind == self.dtype else self.dtype
        if code.scheme.codes_data:
            work = _data(code, partials, kind, rng)
        else:
            work = _gradients(code, partials, kind, p, rng)
        self._exact, self.unit, self._terms = work.exact, work.unit, work.terms
        self._trusted = (kind, sent)
        self.norm = _norm(work.exact[0])
        self.p = work.exact[0].size
        self.messages = _many(code.scheme, work.computed, kind, sent, progress)
        if self.messages is None:
            messages, count = [], code.scheme.message_count
            for w, t in map(code.scheme.sender, range(count)):
                given = [work.computed[j] for j in code.partitions(w, t)]
                messages.append(code.encode(w, given, index=t, message_dtype=sent))
                progress(len(messages), count)
            self.messages = np.array(messages)

    def error(self, survivors: NDArray[np.int64], vector: NDArray[Any]) -> MeasuredError:
        """Decode with this vector, and compare."""
        decoded = self.code.combine(
            vector, survivors, self.messages[survivors], p=self.p, check_finite=False
        )
        return self.compare(decoded)

    def compare(self, decoded: NDArray[Any]) -> MeasuredError:
        """The error of a decoded gradient."""
        error = _error(decoded, self._exact)
        return MeasuredError(_over(error, self.norm), _over(error, self.unit))

    def trust(self, survivors: NDArray[np.int64], vector: NDArray[Any] | None = None) -> float:
        """Relative error that `Code.trust` predicts; with `vector`, for that vector."""
        if vector is None:
            return self.code.trust(survivors, *self._trusted).relative_error
        form = self.code.scheme.format(1, *self._trusted)
        return trust_by_rows(self.code.scheme, survivors, vector, form).relative_error

    def bound(self, survivors: NDArray[np.int64], vector: NDArray[Any] | None = None) -> float:
        """`error_bound`, relative to the norm of the exact gradient."""
        bound = error_bound(self.code, survivors, self.dtype, vector=vector, terms=self._terms)
        return _over(bound * self.unit, self.norm)


def relative_error(gradient: NDArray[Any], exact: Pair) -> float:
    """Error relative to the norm of the exact gradient."""
    return _over(_error(gradient, exact), _norm(exact[0]))


def _error(gradient: NDArray[Any], exact: Pair) -> float:
    wide = gradient.astype(np.result_type(gradient, np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        return _norm((wide - exact[0]) - exact[1])


def _norm(x: NDArray[Any]) -> float:
    """2-norm; Inf if an element is not finite, but not because squares overflow."""
    largest = float(np.abs(x).max())
    if not math.isfinite(largest):
        return math.inf
    return largest * float(np.linalg.norm(x / largest)) if largest else 0.0


def _largest_norm(rows: NDArray[Any]) -> float:
    """The largest `_norm` of a row."""
    largest = float(np.abs(rows).max())
    if not 0 < largest < math.inf:
        return largest if largest == 0 else math.inf
    return largest * float(np.linalg.norm(rows / largest, axis=1).max())


def _over(error: float, size: float) -> float:
    if size:
        return error / size
    return math.inf if error else 0.0


def measured_error(
    code: Code,
    survivors: ArrayLike,
    partials: ArrayLike | tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
    *,
    dtype: DTypeLike = np.float64,
    p: int = 64,
    seed: int = 0,
    method: str = "auto",
) -> MeasuredError:
    """Error of the gradient that these survivors' messages decode to.

    This encodes partial gradients, decodes, and compares the result with their sum, which is
    computed without rounding.

    Parameters
    ----------
    code : Code
    survivors : (f,) integer array, or (N,) bool array
        As in `Code.decoding_vector`.
    partials : (k, p) array, or (X, y, theta) for codes of the data, optional
        Default: random normal numbers.
    dtype : numpy dtype
        Dtype of random partial gradients and messages. float16, bfloat16 and float64x2 are dtypes
        of messages alone: partial gradients are then float32, or float64 for float64x2.
    p : int
        Elements of random partial gradients. Codes of the data compute least squares of 8 features.
    seed : int
    method : str
        As in `Code.decoding_vector`.

    Returns
    -------
    MeasuredError
        Inf if coefficients are beyond float64.

    Raises
    ------
    NotDecodableError
        If more messages are needed.
    """
    checked = code.scheme.check_survivors(survivors)
    try:
        vector = code.decoding_vector(checked, method, message_dtype=dtype)
        experiment = Experiment(code, partials, dtype=dtype, p=p, seed=seed)
    except OverflowError:
        return MeasuredError(math.inf, math.inf)
    return experiment.error(checked, vector)
