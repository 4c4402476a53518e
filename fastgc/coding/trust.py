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
from ..kernels.rows import DOUBLE, ROUNDING, in_groups, sums_of
from ..numerics.solve import SOLVED, least_squares
from .arguments import warns
from .format import Format
from .precision import Residuals
from .scheme import Scheme, fill_vectors, size_of

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


@np.errstate(all="ignore")
def trust_by_rows(scheme: Scheme, survivors: Ints, vector: Array, form: Format) -> Trust:
    """As `expected_trust`, with this vector."""
    sums = Sums.of(scheme, vector, survivors)
    return trust_of(scheme, vector, survivors, form, Energies(sums.terms, sums.spread))


class Sums(NamedTuple):
    """What csrc/kernels.def says of ``trust_sums``."""

    terms: float
    squares: float
    spread: float
    aligned: float
    inside: float
    scatter: float

    @classmethod
    def of(
        cls,
        scheme: Scheme,
        vector: Array,
        survivors: Ints,
        norms: Floats | None = None,
        energies: Floats | None = None,
        least: float = 0.0,
    ) -> Sums:
        """Compute them, with squared norms and energies of messages if these have come.

        Errors of messages are independent, except that all copies of a message have the same error.
        """
        rows, copies, told = scheme.precision.row_norms, scheme.precision.copies, np.empty(6)
        work = None if copies is None else np.empty(2 * rows.size)
        given = survivors, norms, energies, least, rows, copies, work, told
        kernels.unchecked.trust_sums(np.ascontiguousarray(vector), *given)
        return cls._make(told.tolist())


class Energies(NamedTuple):
    """Squared norms in a decoded sum, relative to the squared norm of the gradient.

    Attributes
    ----------
    terms : float
        Number of messages that have a coefficient other than 0.
    amplified : float
        The sum of their squared norms, times their squared coefficients in the decoding vector.
    messages : (f,) float64 array or None
        Squared norms of all messages, which may be anything where the coefficient is 0. None before
        messages have come, when partial gradients are taken to have equal norms and random
        directions.
    scatter : float
        The sum of the partial gradients' squared norms, as estimated from messages.
    inside : float
        As `amplified`, for the squared norms of the partial gradients in each message, times its
        squared coefficients, as workers told them; NaN if unknown.
    lost : float
        The square of what underflow lost.
    aligned : float
        The norm of their sum if all had one direction. 0 before messages have come.
    """

    terms: float
    amplified: float
    messages: Floats | None = None
    scatter: float = math.nan
    inside: float = math.nan
    lost: float = 0.0
    aligned: float = 0.0

    @property
    def told(self) -> bool:
        """Whether workers have told energies."""
        return self.inside >= 0

    @property
    def larger(self) -> float:
        """The larger of `amplified` and `inside`."""
        return max(self.amplified, self.inside) if self.told else self.amplified


def trust_of(
    scheme: Scheme, vector: Array, survivors: Ints, form: Format, energies: Energies
) -> Trust:
    """Return how far to trust what this vector decodes to."""
    if not energies.amplified < math.inf or energies.inside == math.inf:  # beyond float64
        return Trust(math.inf, math.inf)
    wrong = scheme.precision.left_out(survivors, vector)
    if energies.messages is not None and 0 < wrong < math.inf:
        wrong = _missing(scheme, wrong, energies.scatter)
    errors = scheme.precision.vector_errors(survivors, vector)
    if errors is not None:
        norms = energies.messages
        norms = scheme.precision.row_norms[survivors] if norms is None else norms
        wrong = math.hypot(wrong, math.sqrt(float(errors @ np.where(vector != 0, norms, 0.0))))
    wrong = math.hypot(wrong, math.sqrt(energies.lost))
    rounded = not _copied(scheme, survivors, form)
    squared = _rounding(scheme, energies, form, rounded)
    return Trust(math.hypot(math.sqrt(squared), wrong), math.sqrt(energies.larger))


def _rounding(scheme: Scheme, energies: Energies, form: Format, rounded: bool) -> float:
    """Expected square of the rounding errors in a decoded sum, as in `trust_of`.

    If workers have told energies, encoders built up each message by adding partial gradients one by
    one. `rounded` is False if each message is a partial gradient exactly as computed.
    """
    # Rounding errors add up like a random walk. Those in messages are amplified. The gradient adds
    # one error of the size of a partial sum for each sum (on average a third of the whole, squared,
    # as sums grow), and one for the last rounding.
    message, amplified = unit_roundoff(form.message_dtype), energies.amplified
    added = scheme.load / scheme.messages.per_worker
    sums = unit_roundoff(np.dtype(np.float32 if is_half(form.message_dtype) else np.float64))
    # Messages may be sums of higher precision than the sum over messages.
    each = unit_roundoff(form.sum_dtype)
    inner = min(sums, each)
    # The unit of some roundings, how many there are, their mean square, and what they round.
    walks = [
        (inner, scheme.precision.message_roundings, 1.0, energies.larger),
        (sums, sums_of(energies.terms), 1 / 3, 1.0),
        (sums, 1.0, 1.0, 1.0),
    ]
    if inner < sums:
        walks.append((sums, 1.0, 1.0, amplified))
    if energies.told and rounded:
        walks.append((each, added, 1 / 3, _partial_sums(energies, added) / added))
    # Floats are added as floats in groups whose sums are added in float64.
    if message > sums and not is_half(form.message_dtype):
        walks.append((message, in_groups(energies.terms), ROUNDING, amplified))
        if rounded and not energies.told:
            walks.append((message, in_groups(added), ROUNDING, amplified))
    # Results of lower precision than the sums: each element is rounded once.
    if message > sums and rounded:
        walks.append((message, 1.0, ROUNDING, amplified))
    if unit_roundoff(form.gradient_dtype) > sums:
        walks.append((unit_roundoff(form.gradient_dtype), 1.0, ROUNDING, 1.0))
    squared = sum(unit**2 * count * mean * size for unit, count, mean, size in walks)
    most = sum(unit * count * math.sqrt(size) for unit, count, _, size in walks)
    if amplified > 0:
        worst = most / OFF * energies.aligned / math.sqrt(amplified)
        squared = max(squared, worst * worst)  # beyond float64, a power would raise
    coded = energies.larger * scheme.precision.data_roundings
    return squared + unit_roundoff(form.partial_dtype) ** 2 * coded


def _partial_sums(energies: Energies, added: float) -> float:
    """Sum of the squared norms of the partial sums of `added` terms.

    A message's squared norm is more than its energy if its terms have a part in common, which then
    grows with the square of their number. Parts of random directions grow with the number. So on
    average over the sums, these are half, and the common part a third, of what they are in the end.
    Terms that cancel have no common part: their sums are taken to be random.
    """
    common = max(energies.amplified - energies.inside, 0.0) * added / max(added - 1, 1.0)
    random = max(energies.inside - common / max(added, 1.0), 0.0)
    return common * (added / 3 + 1) + random * (added / 2 + 1)


def _copied(scheme: Scheme, survivors: Ints, form: Format) -> bool:
    """Whether each message is a partial gradient as it was computed, in no lower precision."""
    if scheme.load != scheme.messages.per_worker or scheme.is_complex or scheme.data.coded:
        return False
    if unit_roundoff(form.message_dtype) > unit_roundoff(form.partial_dtype):
        return False
    return bool((np.abs(scheme.precision.row_norms[survivors] * scheme.k - 1) < 4 * DOUBLE).all())


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


def _underflow(scheme: Scheme, form: Format, amplified: float, terms: float) -> float:
    """Expected square of the errors by underflow, where threads may flush what they lose to 0.

    `amplified` is the squared norm of the vector, which has `terms` entries.
    """
    lost = scheme.load * form.least**2 * amplified
    if form.message_dtype != form.sum_dtype:
        lost += least_number(form.message_dtype) ** 2 * amplified
    lost += terms * least_number(form.decoded_dtype) ** 2
    if form.decoded_dtype != form.gradient_dtype:
        lost += least_number(form.gradient_dtype) ** 2
    parts = 2 if form.gradient_dtype.kind == "c" else 1
    return lost * form.gradient_size * parts / 3


@np.errstate(all="ignore")
def trust_of_sums(
    scheme: Scheme,
    zero: bool,
    size: float,
    vector: Array,
    survivors: Ints,
    norms: Floats,
    energies: Floats,
    form: Format,
) -> Trust:
    """Estimate trust from the squared norms of a gradient and its messages, and their energies.

    `zero` says that all messages are 0, which squared norms do not tell from underflow. Norms of
    messages with coefficients of 0 may be anything.
    """
    # Squares below the normal range may be lost.
    least = 0.0 if zero else least_number(np.dtype(np.float64)) * scheme.load * form.message_size
    sums = Sums.of(scheme, vector, survivors, norms, energies, least)
    if size == 0 or not math.isfinite(size + sums.spread):
        # The sum is zero or cancels, or squares are beyond float64: nothing is known.
        unknown = 0.0 if zero and not sums.inside > 0 else math.inf
        return Trust(unknown, unknown)
    relative = Energies(
        sums.terms,
        sums.spread / size,
        norms / size,
        sums.scatter / size,
        sums.inside / size,
        _underflow(scheme, form, sums.squares, sums.terms) / size,
        sums.aligned / math.sqrt(size),
    )
    return trust_of(scheme, vector, survivors, form, relative)


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
        mean = float(own.real.astype(np.float64).mean()) + 1
    return size_of(lacking), mean


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
