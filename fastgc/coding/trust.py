"""How near a decoded gradient is to the true one, if messages do not suffice, and after rounding.

Least squares brings the coefficients v = a_F B_F on the partial gradients as near to 1 as possible.
That v is biased towards 0: it is the projection of 1 on the span of the rows, so its mean is
1 - r^2, where r is the residual ``||v - 1|| / sqrt(k)``. Divided by its mean, v is the nearest to 1
of all vectors with the mean 1, and its residual is r / sqrt(1 - r^2). Such a gradient is unbiased

- over all orders in which the data may lie in the partitions, whoever the survivors are;
- over random survivors, for each partition, if the code treats all partitions alike.

The factor is computed from the rows of the survivors at hand. No law of delays is assumed, and
nothing is simulated. (Glasgow and Wootters 2021, section I, divide by the mean over all sets of
survivors, for the same purpose.) The residual of an unbiased gradient is the standard deviation of
its coefficients over partitions.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import DTypeLike

from .. import kernels
from .._base.arrays import (
    Array,
    Bools,
    Floats,
    Ints,
    check_word,
    is_half,
    least_number,
    unit_roundoff,
)
from ..errors import InstabilityWarning, NotDecodableError, UnstableCodeError
from ..kernels.rows import DOUBLE, LARGEST_GROUP, ROUNDING
from ..numerics.solve import SOLVED, least_squares
from .arguments import warns
from .format import Format
from .precision import Residuals
from .scheme import FORMATS_KEPT, Scheme, fill_vectors

# Relative error from which a code counts as unstable: half of float64's digits are lost.
UNSTABLE = 2.0**-26

# Roundings of equal terms are equal, and add up like the terms. So errors are taken to be at least
# this part of what they are if all have one direction: trust is short by no more.
OFF = 30.0

Partial = Literal["best", "unbiased"]


class Trust(NamedTuple):
    """How far to trust a decoded gradient.

    Attributes
    ----------
    relative_error : float
        Estimated error relative to the norm of the decoded gradient. It comes from rounding and,
        for codes that are not exact, from what is left out. It may exceed 1: if partial gradients
        cancel, the gradient is small, but what is left out is not. Integers are never rounded: 0
        then means exact modulo 2^bits, as nobody checks whether the gradient fits in its dtype.
    growth : float
        How many times larger decoding typically makes the relative rounding errors of the messages.
        1 or less is as good as adding up the partial gradients themselves. The maximum is
        `fastgc.stability.amplification`.
    resolution : float or None
        The largest relative error that liars can have caused unseen, see `Round.resolution`. None:
        messages were not compared (``verify=``).
    """

    relative_error: float
    growth: float
    resolution: float | None = None

    def __repr__(self) -> str:
        compared = "" if self.resolution is None else f", resolution={self.resolution:.3g}"
        return (
            f"Trust(relative_error={self.relative_error:.3g}, growth={self.growth:.3g}{compared})"
        )


class Approximation(NamedTuple):
    """The best gradient that too few messages give.

    Attributes
    ----------
    gradient : (p,) array
        The combination of messages whose coefficients on the partial gradients are nearest to 1.
        An unbiased gradient is the nearest one whose coefficients have the mean 1.
    residual : float
        Distance of the coefficients from 1, ``||a_F B_F - 1|| / sqrt(k)``; 0 means exact. This is
        the expected error relative to the expected norm, if partial gradients have equal norms and
        random directions.
    mean : float
        Mean of the coefficients. It is 1 if the gradient is unbiased or exact. For the best
        gradient it is 1 - residual^2: on average, the gradient is too short by this factor.
    """

    gradient: Array
    residual: float
    mean: float

    def __repr__(self) -> str:
        size = len(self.gradient)
        return (
            f"Approximation(gradient of {size} elements, residual={self.residual:.3g}, "
            f"mean={self.mean:.3g})"
        )


def expected_trust(
    scheme: Scheme, survivors: Ints, dtype: DTypeLike, message_dtype: DTypeLike | None
) -> Trust:
    """Return how far to trust what checked survivors decode to, before any message has come."""
    form = scheme.format(1, dtype, message_dtype)
    return trust_by_rows(scheme, survivors, scheme.vector(survivors, form.unit), form)


def trust_by_rows(scheme: Scheme, survivors: Ints, vector: Array, form: Format) -> Trust:
    """As `expected_trust`, with this vector."""
    estimate = Estimate(scheme, form, np.ascontiguousarray(vector), survivors)
    return estimate(slice(survivors.size), survivors.size)


def _trusted(scheme: Scheme, form: Format) -> Any:
    """What C is told of a scheme and a format, which is kept."""
    known, precision = scheme._kept.trusted, scheme.precision
    if form in known:
        return known[form]
    # Each message may be a partial gradient as it was computed, in no lower precision.
    copied = scheme.load == scheme.messages.per_worker and not (
        scheme.is_complex
        or scheme.data.coded
        or unit_roundoff(form.message_dtype) > unit_roundoff(form.partial_dtype)
    )
    # Underflow, where threads may flush what they lose to 0.
    reals = form.gradient_size * (2 if form.gradient_dtype.kind == "c" else 1) / 3
    sent, decoded, out = form.message_dtype, form.decoded_dtype, form.gradient_dtype
    lost = scheme.load * form.least**2
    lost += least_number(sent) ** 2 if sent != form.sum_dtype else 0.0
    half = is_half(sent)
    if len(known) >= FORMATS_KEPT:
        known.clear()
    found = known[form] = kernels.unchecked.struct_of(
        "fgc_trust",
        rows=precision.row_norms,
        copies=precision.copies,
        messages=precision.row_norms.size,
        copied=copied,
        half=half,
        k=scheme.k,
        same=4 * DOUBLE,
        added=scheme.load / scheme.messages.per_worker,
        roundings=precision.message_roundings,
        coded=precision.data_roundings,
        message=unit_roundoff(sent),
        sums=unit_roundoff(np.dtype(np.float32 if half else np.float64)),
        each=unit_roundoff(form.sum_dtype),
        gradient=unit_roundoff(out),
        partial=unit_roundoff(form.partial_dtype),
        mean=ROUNDING,
        off=OFF,
        group=LARGEST_GROUP,
        # Squares below the normal range may be lost.
        least=least_number(np.dtype(np.float64)) * scheme.load * form.message_size,
        lost_each=lost * reals,
        lost_term=least_number(decoded) ** 2 * reals,
        lost_once=least_number(out) ** 2 * reals if decoded != out else 0.0,
    )
    return found


class Estimate:
    """Estimates how far to trust what a vector decodes, from buffers that are bound once.

    Parameters
    ----------
    scheme : Scheme
    form : Format
        The format by which workers encode.
    vector : (N,) float64 or complex128 array
    numbers : (N,) int64 array
        Of messages; copies have the same errors, and others independent ones.
    squares : (N + 1,) float64 array, optional
        The messages' squared norms, and after those of a call that of the gradient. Norms of
        messages with coefficients of 0 may be anything. Default: partial gradients are taken to
        have equal norms and random directions.
    energies : (N,) float64 array, optional
        The squared norms of the partial gradients in each message, times its squared coefficients,
        as workers told them; NaN if unknown.
    """

    __slots__ = ("_find", "_numbers", "_scheme", "_squares", "_told", "_vector")

    def __init__(
        self,
        scheme: Scheme,
        form: Format,
        vector: Array,
        numbers: Ints,
        squares: Floats | None = None,
        energies: Floats | None = None,
    ) -> None:
        self._scheme, self._vector, self._numbers, self._squares = scheme, vector, numbers, squares
        copies, self._told = scheme.precision.copies, np.empty(4)
        self._find = kernels.unchecked.bind_trust(
            _trusted(scheme, form),
            vector=vector,
            complex_=vector.dtype.kind == "c",
            numbers=numbers,
            norms=squares,
            energies=energies,
            work=None if copies is None else np.empty(2 * copies.size),
            told=self._told,
        )

    def __call__(self, places: Any, count: int, zero: bool = False) -> Trust:
        """Return trust in what the first `count` messages are decoded to.

        Those at other `places` have coefficients of 0. `zero` says that all messages are 0, which
        squared norms do not tell from underflow.
        """
        known = self._find(count, zero)
        squared, larger, lost, scatter = self._told.tolist()
        if not known:
            return Trust(larger, larger)
        scheme, squares = self._scheme, self._squares
        survivors, vector = self._numbers[places], self._vector[places]
        wrong = scheme.precision.left_out(survivors, vector)
        if squares is not None and 0 < wrong < math.inf:
            wrong = _missing(scheme, wrong, scatter)
        errors = scheme.precision.vector_errors(survivors, vector)
        if errors is not None:
            norms = scheme.precision.row_norms[survivors]
            with np.errstate(all="ignore"):
                if squares is not None:
                    norms = squares[places] / squares[count]
                more = math.sqrt(float(errors @ np.where(vector != 0, norms, 0.0)))
            wrong = math.hypot(wrong, more)
        wrong = math.hypot(wrong, math.sqrt(lost))
        return Trust(math.hypot(math.sqrt(squared), wrong), math.sqrt(larger))


def _missing(scheme: Scheme, residual: float, scatter: float) -> float:
    """Expected norm of what is left out, relative to the decoded gradient.

    What is left out is ``sum_j (v_j - 1) g_j`` with v = a_F B_F. Of v two numbers are known, its
    `residual` and its mean. Of the partial gradients two more are known: `scatter`, the sum of
    their squared norms, and the squared norm of ``sum_j v_j g_j``, which is 1. They fit partial
    gradients with one common part and random parts. If the g_j are alike, their sum is long, and
    what is left out depends little on the residual. If they cancel, their sum is short.
    """
    k, left = scheme.k, residual**2
    mean = 1.0 if scheme.precision.unbiased else 1 - left
    square = left + 2 * mean - 1  # the squared norm of v, over k
    common, room = 1 - square * scatter, k * mean**2 - square
    common = min(max(common / room, 0.0), scatter) if room > 0 else 0.0
    return math.sqrt(k * (1 - mean) ** 2 * common + left * (scatter - common))


class Watch(Protocol):
    """Follows the precision of decoded gradients, as `fastgc.stability.StabilityTracker` does."""

    def enough(self, predict: Callable[[], float]) -> bool:
        """Whether to decode from messages that suffice, or to wait for more.

        `predict` estimates the relative error of the gradient they decode to.
        """

    def record(
        self, scheme: Scheme, survivors: Ints, vector: Array, form: Format, predicted: float
    ) -> None:
        """Record a round that was decoded with this vector, or raise."""


def typical_error(scheme: Scheme) -> float:
    """Expected relative error in float64 if as many workers straggle as may."""
    known = scheme.precision.typical_error()
    if known is not None:
        return known
    # Errors spread over many decades. If sets take long, only a few are tried.
    sets = 25 if scheme.messages.count <= 400 else 5
    errors: list[float] = []
    for error in _expected_errors(scheme, sets, np.dtype(np.float64), np.dtype(np.float64)):
        errors.append(error)
        bad = sum(not error <= UNSTABLE for error in errors)
        if 2 * max(bad, len(errors) - bad) > sets:  # it is clear on which side the median is
            break
    return float(np.median(errors))


def _expected_errors(
    scheme: Scheme, sets: int, dtype: np.dtype[Any], message_dtype: np.dtype[Any]
) -> Iterator[float]:
    """Yield expected relative errors for random sets, with as many stragglers as may be."""
    rng = np.random.default_rng(0)
    for _ in range(sets):
        heard = scheme.messages.of(rng.permutation(scheme.n)[: scheme.awaited])
        try:
            yield expected_trust(scheme, heard, dtype, message_dtype).relative_error
        except (OverflowError, NotDecodableError):  # the latter: the best vector is 0
            yield math.inf


def warn_of_precision(scheme: Scheme, form: Format) -> None:
    """Warn if gradients or messages of less than float64 lose more than half of their digits.

    In float64 the constructor of the code warns; codes with a gate warn in each round.
    """
    least = max(map(unit_roundoff, (form.gradient_dtype, form.message_dtype)))
    limit = math.sqrt(least)
    if scheme.gate.waits or least <= unit_roundoff(np.dtype(np.float64)):
        return
    key = form.gradient_dtype, form.message_dtype
    known = scheme._kept.precisions
    if key not in known:
        sets = 20 if scheme.messages.count <= 400 else 10
        errors = list(_expected_errors(scheme, sets, *key))
        best = _expected_errors(scheme, sets, *[np.dtype(np.float64)] * 2)
        # Do not blame the precision for what is left out in any precision.
        blamed = [e if e > 2 * left else 0.0 for e, left in zip(errors, best, strict=True)]
        known[key] = float(np.quantile(blamed, 0.9, method="lower"))
    error = known[key]
    if not error <= limit:
        wide = np.result_type(form.message_dtype, np.float64)
        remedy = "compute in float64" if scheme.data.coded else f"send message_dtype={wide}"
        warnings.warn(
            f"{scheme!r} decodes messages of {form.message_dtype} imprecisely: of rounds with "
            f"{scheme.stragglers} random stragglers, one in ten has a relative error of about "
            f"{error:.0e} or more; {remedy}, or use a code that amplifies less",
            InstabilityWarning,
            stacklevel=3,
        )


def check_stability(
    scheme: Scheme, strict: bool, remedy: str, *, when: str = "", limit: float = UNSTABLE
) -> None:
    """Warn, or raise if `strict`, if rounding would leave nothing of use.

    Constructors of codes call this. `when` names the rounds for which `typical_error` holds, if
    not those with as many random stragglers as may be.
    """
    if not warns(strict):
        return
    error = typical_error(scheme)
    if not error <= limit:
        text = (
            f"{scheme!r} is numerically unstable: "
            f"{when or f'with {scheme.stragglers} random stragglers'} the "
            f"gradient's relative error is about {error:.0e} in float64; {remedy}"
        )
        if strict:
            raise UnstableCodeError(text)
        warnings.warn(text, InstabilityWarning, stacklevel=3)


# ------------------------------------------------------------------- if messages do not suffice

# Mean coefficient up to which messages hold nothing of the gradient but rounding.
_NOTHING = 1e-12


class Nearest(NamedTuple):
    """The vector nearest to a decoding vector, and how near it comes: see `Approximation`."""

    vector: Array
    residual: float
    mean: float


def check_partial(partial: str | None, *others: str | None) -> None:
    """Raise ValueError unless `partial` is a way to approximate, or one of `others`."""
    check_word("partial", partial, *others, *get_args(Partial))


def nearest_vector(scheme: Scheme, survivors: Ints, unit: float, partial: Partial) -> Nearest:
    """Return the vector nearest to a decoding vector, for checked survivors.

    Raise NotDecodableError if it is to be unbiased and the messages hold nothing of the gradient.
    """
    check_partial(partial)
    if scheme.wait is None and scheme.rule.missing(survivors):
        vector = least_squares(scheme.equations(survivors))[0]
    else:
        vector = scheme.vector(survivors, unit)
    residual, mean = _assess(scheme, survivors, vector)
    if partial == "unbiased" and residual > SOLVED:
        if not mean > _NOTHING:
            raise NotDecodableError(
                f"no combination of these {survivors.size} messages is unbiased: they hold nothing "
                "of the gradient",
                max(1, scheme.rule.missing(survivors)),
            )
        vector = vector / mean
        residual, mean = _assess(scheme, survivors, vector)
    return Nearest(vector, residual, mean)


def _assess(scheme: Scheme, survivors: Ints, vector: Array) -> tuple[float, float]:
    """Return a vector's residual, and the mean coefficient that it gives partitions."""
    lacking = scheme.precision.deviation(survivors, vector)
    with np.errstate(over="ignore", invalid="ignore"):
        # Of coded data, each block with itself is a partition.
        own = lacking if lacking.ndim == 1 else np.diagonal(lacking)
        mean = float(own.real.mean()) + 1
    return scheme.precision.residual(survivors, vector), mean


# Most entries of a matrix that takes messages to partial gradients, for many sets at once, and of
# the rows of these sets together.
_DENSE, _TOGETHER = 1 << 20, 1 << 20

_SMALL = 1 << 13  # most entries of a set's rows for which many sets are solved together


def residual_of_each(scheme: Scheme, masks: Bools) -> Floats:
    """`Scheme.residual` of many sets of messages, for a code whose `wait` is set.

    `masks`, of shape (sets, messages), are True for messages that came.
    """
    real = not (scheme.is_complex or scheme.data.coded)
    if not real or scheme.messages.count * scheme.k > _DENSE:
        return np.array([scheme.residual(mask) for mask in masks])
    vectors = np.zeros(masks.shape)
    if type(scheme).bind_vector is not Scheme.bind_vector:
        enough = fill_vectors(scheme, masks, "auto", vectors, DOUBLE)
    else:
        enough = np.ones(len(masks), dtype=np.bool_)
        _fill_shortest(scheme, masks, vectors)
    lacking = np.linalg.norm(vectors @ scheme.matrix() - 1, axis=1)
    left: Floats = lacking / math.sqrt(scheme.k)
    left[~enough] = [scheme.residual(mask) for mask in masks[~enough]]
    return left


def _fill_shortest(scheme: Scheme, masks: Bools, out: Floats) -> None:
    """Fill in the shortest vectors of least residual, all sets of one size together."""
    rows, target, _ = scheme.equations(np.arange(scheme.messages.count))
    sizes = masks.sum(axis=1)
    for f in np.unique(sizes).tolist():
        alike = np.flatnonzero(sizes == f)
        if f * target.size > _SMALL:  # one by one, sparse equations are solved faster
            for at in alike.tolist():
                those = np.flatnonzero(masks[at])
                out[at, those] = scheme.vector(those)
            continue
        step = max(1, _TOGETHER // max(1, f * target.size))
        for at in range(0, alike.size, step):
            some = alike[at : at + step]
            came = np.nonzero(masks[some])[1].reshape(some.size, f)
            cut = max(f, target.size) * np.finfo(np.float64).eps
            out[some[:, None], came] = target @ np.linalg.pinv(rows[came], rcond=cut)


def residuals(scheme: Scheme, workers: int, sets: int, seed: int) -> Residuals:
    """Return `fastgc.Code.residuals`, for checked arguments."""
    known = scheme.precision.known_residuals(workers)
    if known is not None:
        return known
    exhaustive = math.comb(scheme.n, workers) <= sets
    rng = np.random.default_rng(seed)
    drawn: Any = (rng.permutation(scheme.n)[:workers] for _ in range(sets))
    if exhaustive:
        drawn = map(np.array, combinations(range(scheme.n), workers))
    left = np.array([scheme.residual(scheme.messages.of(heard)) for heard in drawn])
    mean = float(np.sqrt(np.mean(left**2)))
    return Residuals(workers, mean, float(left.max()), left.size, exhaustive)
