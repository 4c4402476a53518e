"""Bounds of rounding errors, before any message has come."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import kernels
from .._arrays import (
    as_array,
    check_dtype,
    check_integer,
    check_workers,
    is_half,
    is_pairs,
    unit_roundoff,
)
from ..codes import Code, ReedSolomon
from ..coding.scheme import Scheme
from ..kernels.choice import folds_floats
from ..kernels.rows import LARGEST_GROUP, LEAST_GROUP

__all__ = ["CircleValues", "amplification", "circle_values", "error_bound", "residual"]

_SINGLE, _DOUBLE = 2.0**-24, 2.0**-53
_EXTENDED = float(np.finfo(np.longdouble).eps) / 2


def amplification(code: Code, survivors: ArrayLike, *, log: bool = False) -> float:
    """How many times larger decoding can make rounding errors: ``sum_i |a_i| sum_j |B_ij|``.

    The gradient is a sum of k partial gradients. Decoding adds up numbers whose sizes sum to so
    many times the size of one partial gradient. The best possible value is k. For coefficients 0
    and 1 it is the sum of the loads of the messages used.

    Parameters
    ----------
    code : Code
    survivors : (f,) integer array, or (N,) bool array
        As in `Code.decoding_vector`.
    log : bool, default False
        Return the natural logarithm, which is finite even if the factor is beyond float64.

    Returns
    -------
    float
        Inf if it is beyond float64, unless `log`.

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
    if log:
        logs = code.scheme.log_vector(checked).real.reshape(checked.size, -1)
        return float(np.logaddexp.reduce(logs + code.scheme.log_row_sums[checked, None]).max())
    try:
        vector = code.decoding_vector(checked)
    except OverflowError:
        return math.inf
    return amplification_of(code, checked, vector)


def amplification_of(code: Code, survivors: NDArray[np.int64], vector: NDArray[Any]) -> float:
    """`amplification` of a given vector."""
    size = np.abs(vector).reshape(survivors.size, -1)
    used = np.flatnonzero(size.any(axis=1))
    with np.errstate(over="ignore", invalid="ignore"):
        return float((code.scheme.row_sums[survivors[used]] @ size[used]).max(initial=0.0))


def residual(code: Code, survivors: ArrayLike, vector: ArrayLike | None = None) -> float:
    """How far a computed decoding vector is from an exact one: ``max_j |(a_F B_F - 1)_j|``.

    Parameters
    ----------
    code : Code
    survivors : (f,) integer array, or (N,) bool array
        As in `Code.decoding_vector`.
    vector : (f,) array, optional
        Default: ``code.decoding_vector(survivors)``.

    Returns
    -------
    float
        For a vector that is as good as float64 allows, 0 to a few 1e-16 times the largest
        ``|a_i B_ij|``. It is large for codes that are not exact (`Uncoded` with a tolerance).

    Notes
    -----
    O(n d), in extended precision if the platform has it.
    """
    checked = code.scheme.check_survivors(survivors)
    a = code.decoding_vector(checked) if vector is None else _checked(code, vector, checked)
    return float(np.abs(code.scheme.deviation(checked, a)).max())


def _checked(
    code: Code, vector: ArrayLike, survivors: NDArray[np.int64], paired: bool = False
) -> NDArray[Any]:
    a = as_array("the vector", vector)
    columns = 2 if paired else code.scheme.pieces
    if a.shape != (survivors.shape if columns == 1 else (survivors.size, columns)):
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
    code : Code
    survivors : (f,) integer array, or (N,) bool array
        As in `Code.decoding_vector`.
    dtype : numpy dtype
        Dtype of the messages; float16 and bfloat16 decode to float32.
    vector : (f,) array, or (f, 2) of pairs for messages of float64x2, optional
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
    vector = _checked(code, vector, checked, paired=is_pairs(check_dtype(dtype, True, pairs=True)))
    if (terms := check_integer("terms", terms)) < 0:
        raise ValueError(f"terms must not be negative, but is {terms}")
    if gradient_dtype is not None:
        check_dtype(gradient_dtype, halves=True)
    decoded = None if gradient_dtype is None else code.scheme.format(1, gradient_dtype, dtype)
    kinds = dtype, None if decoded is None else decoded.gradient_dtype
    return assess(code.scheme, checked, vector, *kinds, streaming=streaming, terms=terms)[0].bound


class Assessment(NamedTuple):
    """`amplification`, `error_bound` and `residual` of one decoding vector."""

    amplification: float
    bound: float
    residual: float


def assess(
    scheme: Scheme,
    survivors: NDArray[np.int64],
    vector: NDArray[Any],
    dtype: DTypeLike,
    gradient_dtype: np.dtype[Any] | None,
    *,
    streaming: bool = False,
    terms: int = 0,
) -> tuple[Assessment, float]:
    """An `Assessment`, for checked arguments, and ``||a_F B_F - 1|| / sqrt(k)``."""
    size = np.abs(vector).reshape(survivors.size, -1)  # a column for each piece of the gradient
    kind, computed = check_dtype(dtype, halves=True, pairs=True), _EXTENDED
    if is_pairs(kind):  # columns are high and low parts; the deviation is computed in pairs, too
        size, computed = size.sum(axis=1, keepdims=True), unit_roundoff(kind) * (2 * len(size) + 4)
    used = np.flatnonzero(size.any(axis=1))
    with np.errstate(over="ignore", invalid="ignore"):
        factors = size[used] * scheme.row_sums[survivors[used], None]
        factor = factors.sum(axis=0)
        deviation = np.abs(scheme.deviation(survivors, vector)).astype(np.float64)
        lacking = deviation.reshape(-1, scheme.pieces).sum(axis=0)
        lacking += _gamma(3 * used.size + 3, computed) * (factor + scheme.k)
        coarse = 0.0 if gradient_dtype is None else unit_roundoff(gradient_dtype)
        if is_pairs(kind):
            coarse = _DOUBLE
        rounding = _roundings(scheme, kind, coarse, used.size, streaming, terms) @ factors
        bound = float(np.linalg.norm(rounding + lacking)) / math.sqrt(scheme.k)
        if coarse > unit_roundoff(kind):
            # The gradient is rounded; it is at most k times as long as the longest partial one.
            bound += coarse * (math.sqrt(scheme.k) + bound)
    if not math.isfinite(bound):
        bound = math.inf
    norm = scheme.residual(survivors, vector)
    return Assessment(float(factor.max(initial=0.0)), bound, float(deviation.max())), norm


def _roundings(
    scheme: Scheme, kind: np.dtype[Any], coarse: float, used: int, streaming: bool, terms: int
) -> NDArray[np.float64]:
    """Relative errors that are amplified: of each message, and of its part in combining them."""
    message = unit_roundoff(kind)
    if is_pairs(kind):  # as `kernels.combine_pairs` says
        each = message * ((2 * scheme.load + 4) ** 2 + (2 * used + 4) ** 2)
        return np.full(used, math.sqrt(2) * each)
    half = is_half(kind)
    result = _SINGLE if half else message  # unit roundoff of sums
    parts = 2 if scheme.is_complex else 1  # roundings in a product
    w = -(-scheme.load // scheme.messages_per_worker) * scheme.pieces
    encode = float(_summing(np.array(w), parts, half, result)) + _gamma(1, message)
    if streaming:  # each coefficient is rounded, too
        encode += _gamma(parts * w + parts + 1, result)
    work = _gamma(scheme.computation_roundings(terms), max(result, coarse))
    # Rows are added in their order: the first go through the most sums.
    combine = _summing(np.arange(used, 0, -1), parts, half, result) + _gamma(1, result)
    # each part of a complex number has its own errors
    errors: NDArray[np.float64] = math.sqrt(parts) * ((1 + encode + work) * (1 + combine) - 1)
    return errors


def _summing(rows: NDArray[np.int64], parts: int, half: bool, result: float) -> NDArray[np.float64]:
    """Relative errors of the first row in sums of so many rows, by the backend in use."""
    if half or result == _DOUBLE:
        return _gammas(LARGEST_GROUP + rows // LEAST_GROUP + 2 + parts, result)
    if not folds_floats():  # sums are in float64, but a single row is in its own precision
        return _gammas(rows + 1 + parts, _DOUBLE) + (
            _gamma(parts, _SINGLE) if rows.max() == 1 else 0
        )
    # Coefficients, and sums in a group, are in float32; groups are added up in float64.
    within = np.minimum(rows, LARGEST_GROUP) + parts + 1
    return _gammas(within, _SINGLE) + _gammas(rows + 1 + parts, _DOUBLE)


def _gammas(counts: NDArray[np.int64], unit: float) -> NDArray[np.float64]:
    part = counts * unit
    return np.where(part < 1, part / (1 - part), math.inf)


def _gamma(count: float, unit: float) -> float:
    return count * unit / (1 - count * unit) if count * unit < 1 else math.inf


class CircleValues(NamedTuple):
    """Sizes of two polynomials p at the code's n roots of unity, in their order on the circle.

    For survivors, ``p(alpha^i)`` is the coefficient a_i of a decoding vector; for stragglers, it is
    what the gradient lacks. Adding up all n messages has 1/n everywhere.

    Attributes
    ----------
    lost : (n,) bool array
        The roots of stragglers.
    exact : (n,) float64 array
        Decimal logarithms of ``n |p|`` for the exact vector, which may be beyond float64; -Inf at
        stragglers.
    near_exact : (n,) float64 array
        The same for the near-exact vector; rarely -Inf.
    """

    lost: NDArray[np.bool_]
    exact: NDArray[np.float64]
    near_exact: NDArray[np.float64]


def circle_values(code: Code, stragglers: ArrayLike, dtype: DTypeLike = np.float64) -> CircleValues:
    """The polynomials of the methods "locator" and "near-exact" at every root, for stragglers.

    They are computed even if columns of B are alike, and the code has shorter exact vectors.

    Parameters
    ----------
    code : Code
        A `ReedSolomon` code of one cluster.
    stragglers : integer array, or (n,) bool array
        Silent workers, at most as many as the code tolerates.
    dtype : numpy dtype
        Dtype of the messages.

    Returns
    -------
    CircleValues

    Raises
    ------
    TypeError
        If the code is not a `ReedSolomon` code.
    ValueError
        If it has several clusters, or stragglers do not exist, are named twice, or are more than it
        tolerates.
    """
    if not isinstance(code, ReedSolomon):
        raise TypeError(f"only Reed-Solomon codes have polynomials on a circle, not {code!r}")
    if code.scheme.clusters > 1:
        raise ValueError(
            f"{code!r} has {code.scheme.clusters} circles: give a code with clusters=1"
        )
    unit = unit_roundoff(check_dtype(dtype, halves=True))
    silent = check_workers("stragglers", stragglers, code.n)
    if silent.size and not 0 <= silent.min() <= silent.max() < code.n:
        raise ValueError(f"stragglers must be in 0 .. n-1 = {code.n - 1}, not {silent.tolist()}")
    if np.unique(silent).size < silent.size:
        raise ValueError(f"stragglers must not be named twice: {silent.tolist()}")
    if silent.size > code.stragglers:
        raise ValueError(f"{silent.size} stragglers, but {code!r} tolerates {code.stragglers}")
    lost = np.isin(code.scheme.rings()[0], silent)
    turns = np.flatnonzero(lost)
    apart = (np.arange(code.n)[:, None] - turns) % code.n
    with np.errstate(divide="ignore"):
        exact = np.log10(2 * np.sin(math.pi / code.n * apart)).sum(axis=1)
        values = kernels.unchecked.near_exact(turns, code.n, code.stragglers, unit)
        near = np.log10(code.n * np.abs(values))
    return CircleValues(lost, exact, near)
