"""How precise a decoded gradient is: bounds before any message has come, and measured errors."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._base.arrays import (
    Array,
    Floats,
    Ints,
    as_array,
    at_least,
    check_dtype,
    check_integer,
    gradient_dtype_of,
    is_half,
    unit_roundoff,
)
from .._base.files import half_of_memory
from ..codes import Code
from ..coding.scheme import Scheme
from ..coding.trust import trust_by_rows
from ..kernels.pairs import Pair, exact_sum, two_product
from ..kernels.rows import LARGEST_GROUP, LEAST_GROUP
from ..numerics.least_squares import least_squares_gradient

__all__ = [
    "MeasuredError",
    "amplification",
    "error_bound",
    "measured_error",
]

_SINGLE, _DOUBLE = 2.0**-24, 2.0**-53
_EXTENDED = float(np.finfo(np.longdouble).eps) / 2


def amplification(code: Code, survivors: ArrayLike) -> float:
    """How many times larger decoding can make rounding errors: ``sum_i |a_i| sum_j |B_ij|``.

    The gradient is a sum of k partial gradients. Decoding adds up numbers whose sizes sum to so
    many times the size of one partial gradient. The best possible value is k. For coefficients 0
    and 1 it is the sum of the loads of the messages used.

    Parameters
    ----------
    code : Code
    survivors : (f,) integer array, or (N,) bool array
        As in `Code.decoding_vector`.

    Returns
    -------
    float
        Inf if it is beyond float64.

    Raises
    ------
    NotDecodableError
        If more messages are needed.

    Notes
    -----
    O(f s + n) once the row sums of the code are known, O(n d), and B is never formed. For codes of
    the data (`LagrangeCode`), B's entries are the products of two Lagrange basis polynomials.
    """
    checked = code.scheme.check_survivors(survivors)
    try:
        vector = code.decoding_vector(checked)
    except OverflowError:
        return math.inf
    return amplification_of(code, checked, vector)


def amplification_of(code: Code, survivors: Ints, vector: Array) -> float:
    """`amplification` of a given vector."""
    used = np.flatnonzero(vector)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(code.scheme.precision.row_sums[survivors[used]] @ np.abs(vector[used]))


def _checked(code: Code, vector: ArrayLike, survivors: Ints) -> Array:
    a = as_array("the vector", vector)
    if a.shape != survivors.shape:
        raise ValueError(f"{survivors.size} survivors, but a vector of shape {a.shape}")
    return a


def error_bound(
    code: Code,
    survivors: ArrayLike,
    dtype: DTypeLike = np.float64,
    *,
    vector: ArrayLike | None = None,
    streaming: bool = False,
    terms: int = 0,
    gradient_dtype: DTypeLike | None = None,
) -> float:
    """A bound on the decoded gradient's error, whatever the partial gradients are.

    ``||decoded - exact|| <= error_bound * sqrt(k) * max_j ||g_j||`` in the 2-norm, for partial
    gradients g_j that are taken as exact. The unit on the right equals the norm of the gradient if
    partial gradients are equally long and orthogonal to each other.

    Parameters
    ----------
    code, survivors
        As in `amplification`.
    dtype : numpy dtype
        Dtype of the messages; float16 and bfloat16 decode to float32.
    vector : (f,) array, optional
        Default: ``code.decoding_vector(survivors, message_dtype=dtype)``.
    streaming : bool, default False
        Messages come from `Code.encoder`, and are rounded after each partial gradient.
    terms : int, default 0
        For codes of the data: the longest sum in a worker's computation, rows of a block plus
        features. Decoding amplifies its rounding errors too. The unit is then
        ``sqrt(k) max_jj' || |X_j|' (|X_j'| |theta| + |y_j'|) ||``.
    gradient_dtype : numpy dtype, optional
        Dtype of partial gradients, if messages are more precise: float32, if these are float64.

    Returns
    -------
    float
        Inf if the vector is beyond float64.

    Notes
    -----
    This is a standard analysis (Higham, Accuracy and Stability of Numerical Algorithms, section
    3.1): m roundings of unit u make a relative error of at most gamma_m = m u / (1 - m u). The
    rounding errors of the messages and of their combination are multiplied by the amplification.
    Errors of the coefficients enter through the computed residual. Overflow and underflow are not
    considered.
    """
    checked = code.scheme.check_survivors(survivors)
    if vector is None:
        try:
            vector = code.decoding_vector(checked, message_dtype=dtype)
        except OverflowError:
            return math.inf
    vector = _checked(code, vector, checked)
    if (terms := check_integer("terms", terms)) < 0:
        raise ValueError(f"terms must not be negative, but is {terms}")
    if gradient_dtype is not None:
        check_dtype(gradient_dtype, halves=True)
    decoded = None if gradient_dtype is None else code.scheme.format(1, gradient_dtype, dtype)
    kinds = dtype, None if decoded is None else decoded.gradient_dtype
    return assess(code.scheme, checked, vector, *kinds, streaming=streaming, terms=terms)[0].bound


class Assessment(NamedTuple):
    """`amplification` and `error_bound` of a decoding vector, and its largest ``|a_F B_F - 1|``."""

    amplification: float
    bound: float
    residual: float


def assess(
    scheme: Scheme,
    survivors: Ints,
    vector: Array,
    dtype: DTypeLike,
    gradient_dtype: np.dtype[Any] | None,
    *,
    streaming: bool = False,
    terms: int = 0,
) -> tuple[Assessment, float]:
    """An `Assessment`, for checked arguments, and ``||a_F B_F - 1|| / sqrt(k)``."""
    size, precision = np.abs(vector), scheme.precision
    kind, computed = check_dtype(dtype, halves=True), _EXTENDED
    used = np.flatnonzero(size)
    with np.errstate(over="ignore", invalid="ignore"):
        factors = size[used] * precision.row_sums[survivors[used]]
        factor = float(factors.sum())
        left = np.abs(precision.deviation(survivors, vector))
        lacking = float(left.sum())
        lacking += _gamma(3 * used.size + 3, computed) * (factor + scheme.k)
        coarse = 0.0 if gradient_dtype is None else unit_roundoff(gradient_dtype)
        w = -(-scheme.load // scheme.messages.per_worker)
        work = precision.computation_roundings(terms)
        parts = 2 if scheme.is_complex else 1  # roundings in a product
        rounding = _roundings(parts, w, work, kind, coarse, used.size, streaming) @ factors
        bound = float(rounding + lacking) / math.sqrt(scheme.k)
        if coarse > unit_roundoff(kind):
            # The gradient is rounded; it is at most k times as long as the longest partial one.
            bound += coarse * (math.sqrt(scheme.k) + bound)
    if not math.isfinite(bound):
        bound = math.inf
    return Assessment(factor, bound, float(left.max())), precision.residual(survivors, vector)


@lru_cache(maxsize=16)
def _roundings(
    parts: int, w: int, work: int, kind: np.dtype[Any], coarse: float, used: int, streaming: bool
) -> Floats:
    """Relative errors that are amplified: of each message, and of its part in combining them.

    A message has `w` terms, with `work` roundings each.
    """
    message = unit_roundoff(kind)
    half = is_half(kind)
    result = _SINGLE if half else message  # unit roundoff of sums
    encode = float(_summing(np.array(w), parts, half, result)) + _gamma(1, message)
    if streaming:  # each coefficient is rounded, too
        encode += _gamma(parts * w + parts + 1, result)
    computed = _gamma(work, max(result, coarse))
    # Rows are added in their order: the first go through the most sums.
    combine = _summing(np.arange(used, 0, -1), parts, half, result) + _gamma(1, result)
    # each part of a complex number has its own errors
    errors: Floats = math.sqrt(parts) * ((1 + encode + computed) * (1 + combine) - 1)
    return errors


def _summing(rows: Ints, parts: int, half: bool, result: float) -> Floats:
    """Relative errors of the first row in sums of so many rows."""
    if half or result == _DOUBLE:
        return _gammas(LARGEST_GROUP + rows // LEAST_GROUP + 2 + parts, result)
    # Coefficients, and sums in a group, are in float32; groups are added up in float64.
    within = np.minimum(rows, LARGEST_GROUP) + parts + 1
    return _gammas(within, _SINGLE) + _gammas(rows + 1 + parts, _DOUBLE)


def _gammas(counts: Ints, unit: float) -> Floats:
    part = counts * unit
    return np.where(part < 1, part / (1 - part), math.inf)


def _gamma(count: float, unit: float) -> float:
    return count * unit / (1 - count * unit) if count * unit < 1 else math.inf


# ------------------------------------------------------------------------- measured errors

_ROWS = 3  # samples of each block, for codes of the data
_FEATURES = 8


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


def _exact_least_squares(X: Array, y: Array, theta: Array) -> Pair:
    """``X' (X theta - y)`` in about twice float64's precision."""
    X, y, theta = X.astype(np.float64), y.astype(np.float64), theta.astype(np.float64)
    products = two_product(X, theta)
    r, rest = exact_sum(np.concatenate([*(part.T for part in products), -y[None]]))
    products = two_product(X, r[:, None])
    return exact_sum(np.concatenate([*products, X * rest[:, None]]))


def _largest_pair(X: Array, y: Array, theta: Array, rows: int) -> float:
    """``max || |X_j|' (|X_j'| |theta| + |y_j'|) ||`` over pairs of blocks.

    A pair is left out if the product of both norms is below the largest that is known.
    """
    padded = np.zeros((-(-len(X) // rows) * rows, X.shape[1]))
    padded[: len(X)] = np.abs(X)
    size = padded @ np.abs(theta).astype(np.float64)
    size[: len(y)] += np.abs(y)
    size = size.reshape(-1, rows).T
    lengths = np.linalg.norm(size, axis=0)
    longest = np.argsort(-lengths)
    size, lengths = size[:, longest], lengths[longest]
    blocks = padded.reshape(-1, rows, X.shape[1])
    norms = np.linalg.norm(blocks, axis=(1, 2))
    largest = 0.0
    for j in np.argsort(-norms).tolist():
        least = 0.999 * largest / max(float(norms[j]), sys.float_info.min)
        count = int(np.searchsorted(-lengths, -least, side="right"))
        if not count:
            break
        products = np.linalg.norm(blocks[j].T @ size[:, :count], axis=0)
        largest = max(largest, float(products.max()))
    return largest


class _Computed(Sequence[Array]):
    """What workers compute on coded blocks, each when it is asked for."""

    def __init__(self, shards: Sequence[Any], theta: Array) -> None:
        self._shards, self._theta = shards, theta

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, j: Any) -> Any:
        return least_squares_gradient(self._theta, *self._shards[j])


class _Work(NamedTuple):
    computed: Sequence[Array]  # the partial gradients, or results, that workers encode
    exact: Pair
    unit: float  # the unit of error_bound
    terms: int  # its argument


def _gradients(
    code: Code, partials: Any, dtype: np.dtype[Any], p: int, rng: np.random.Generator
) -> _Work:
    if partials is None:
        partials = rng.standard_normal((code.k, at_least("p", p, 1))).astype(dtype)
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
        _check_memory(code, dtype)
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
    computed = _Computed(code.encode_data(X, y), theta)
    rows = -(-len(X) // code.k)
    unit = math.sqrt(code.k) * _largest_pair(X, y, theta, rows)
    return _Work(computed, _exact_least_squares(X, y, theta), unit, rows + theta.size)


def _check_memory(code: Code, dtype: np.dtype[Any]) -> None:
    """Refuse to make more coded data than half of this machine's memory takes."""
    number = dtype.itemsize * (1 + code.scheme.is_complex)
    taken = float(code.scheme.loads.sum()) * _ROWS * (_FEATURES + 1) * number
    if taken > half_of_memory():
        raise MemoryError(
            f"workers of {code!r} hold {code.load} coded blocks each, {taken / 1e9:,.0f} GB for "
            f"all {code.n:,}: take fewer workers, or fewer stragglers"
        )


class Experiment:
    """Partial gradients, the messages that workers make of them, and the exact gradient.

    Parameters are those of `measured_error`. `progress` is called with the number of messages
    encoded so far, and with the number of all.
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
        self.dtype = check_dtype(dtype, halves=True)
        rng = np.random.default_rng(at_least("seed", seed, 0))
        kind = gradient_dtype_of(self.dtype)
        sent = None if kind == self.dtype else self.dtype
        if code.scheme.data.coded:
            work = _data(code, partials, kind, rng)
        else:
            work = _gradients(code, partials, kind, p, rng)
        self._exact, self.unit, self._terms = work.exact, work.unit, work.terms
        self._trusted = (kind, sent)
        self.norm = _norm(work.exact[0])
        self.p = work.exact[0].size
        messages, count = [], code.scheme.messages.count
        for w, t in map(code.scheme.messages.sender, range(count)):
            given = [work.computed[j] for j in code.partitions(w, t)]
            messages.append(code.encode(w, given, index=t, message_dtype=sent))
            progress(len(messages), count)
        self.messages = np.array(messages)

    def error(self, survivors: Ints, vector: Array) -> MeasuredError:
        """Decode with this vector, and compare."""
        decoded = self.code.combine(
            vector, survivors, self.messages[survivors], p=self.p, check_finite=False
        )
        error = _error(decoded, self._exact)
        return MeasuredError(_over(error, self.norm), _over(error, self.unit))

    def trust(self, survivors: Ints, vector: Array) -> float:
        """Relative error that `Code.trust` predicts, for this vector."""
        form = self.code.scheme.format(1, *self._trusted)
        return trust_by_rows(self.code.scheme, survivors, vector, form).relative_error

    def bound(self, survivors: Ints, vector: Array | None) -> float:
        """`error_bound`, relative to the norm of the exact gradient."""
        bound = error_bound(self.code, survivors, self.dtype, vector=vector, terms=self._terms)
        return _over(bound * self.unit, self.norm)


def relative_error(gradient: Array, exact: Pair) -> float:
    """Error relative to the norm of the exact gradient."""
    return _over(_error(gradient, exact), _norm(exact[0]))


def _error(gradient: Array, exact: Pair) -> float:
    wide = gradient.astype(np.result_type(gradient, np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        return _norm((wide - exact[0]) - exact[1])


def _norm(x: Array) -> float:
    """2-norm; Inf if an element is not finite, but not because squares overflow."""
    largest = float(np.abs(x).max())
    if not math.isfinite(largest):
        return math.inf
    return largest * float(np.linalg.norm(x / largest)) if largest else 0.0


def _largest_norm(rows: Array) -> float:
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
    code, survivors
        As in `amplification`.
    partials : (k, p) array, or (X, y, theta) for codes of the data, optional
        Default: random normal numbers.
    dtype : numpy dtype
        Dtype of random partial gradients and messages. float16 and bfloat16 are dtypes
        of messages alone: partial gradients are then float32.
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
    MemoryError
        If random coded data would take more than half of this machine's memory.
    """
    checked = code.scheme.check_survivors(survivors)
    try:
        vector = code.decoding_vector(checked, method, message_dtype=dtype)
        experiment = Experiment(code, partials, dtype=dtype, p=p, seed=seed)
    except OverflowError:
        return MeasuredError(math.inf, math.inf)
    return experiment.error(checked, vector)
