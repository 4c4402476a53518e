"""Search for rounds whose gradient is not as wrong as `Round.trust` says; there must be none.

``python -m tests.trust_adversary --seconds 60`` searches by hill climbing, with restarts, for this
time for each code of the catalogue. It varies the dtypes of gradients and messages, which workers
are heard and in which order, and the partial gradients: their sizes and scale, what they have in
common, how much of them cancels, and in which messages; for codes of the data, how near the model
is to its optimum. It compares trust with the true error, whose elements are summed up without
rounding. Rounds get each message's energy, as from engines. The exit status is 1 if anything was
found.

Errors, true and trusted, are relative to the norm of the decoded gradient. Two ratios must not
exceed `MOST`:

- *optimistic*: the true error over the trusted one, of a single round with any partial gradients;
- *pessimistic*: the trusted error over the true one. Trust estimates a typical error, and a single
  round may have no error by chance, or because its numbers are round. So this ratio is the median
  of `DRAWS` rounds of the same messages, with partial gradients drawn anew by the same law. The law
  excludes cases whose sums are exact: numbers too small to be normal; numbers of two bytes, which
  are round in sums of four; multiples of one vector, whose sums are exact in all elements or in
  none. An error below the gradient's last rounding counts as that rounding.

If a round leaves something out, it does not know partitions that no message holds; it assumes that
they are like the others. Then both ratios are medians, of partial gradients whose sizes follow one
law for all partitions, within a factor of 100. (If one of them were nearly the whole gradient, the
error would be everything or nothing. Trust is the root of the mean square, but the median would be
nothing.) An error below ``sqrt(eps)`` times the residual counts as that: squares of norms do not
resolve less.

*bound* is the true error over `fastgc.stability.error_bound`; it must not exceed 1. The bound
leaves out underflow, so rounds whose numbers may underflow are left out, too.

A trusted error above 1 says that nothing is known of the gradient, as rounding errors may exceed
it. This is never too pessimistic, even if there is no error, as with two messages that differ only
in sign. *unknown* counts rounds with a trusted error above 1 and a true one below.

``--honest N`` plays N rounds with ``verify=`` and honest workers, whose partial gradients cancel,
are tiny, huge, equal, or 0. No worker may be accused, and no round may find a contradiction. A
round must be verified if it would be with random partial gradients, unless nothing is known of its
gradient: it is 0, its trusted error is not below 1e-2, or its numbers are too small to be normal.

``--lies N`` plays N rounds with at most as many liars as ``verify=`` looks for: neighbours or any
workers, with the same or different lies, in all elements or one, by amounts from below the rounding
errors to far above, and in their energies, too. No honest worker may be accused. A verified
gradient may be wrong by more than t times ten rounding errors of one decoded without the liars, but
no more often than ``27 (1 + log t) / t`` (`fastgc.coding.verify`), except by chance.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
import warnings
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import fastgc
from fastgc import stability
from fastgc.codes import catalogue
from fastgc.errors import CorruptMessageError, NonFiniteMessageError, UnverifiedError

MOST = 30.0
DRAWS = 9
LEFT_OUT = 1e-6  # a larger residual is more than rounding
STALE, ROUNDS = 60, 400  # a climb ends after so many tries without success, or rounds
GOALS = ["optimistic", "pessimistic", "bound"]


class Kind(NamedTuple):
    """The dtypes of gradients and messages."""

    gradient: Any
    message: Any = None

    def __str__(self) -> str:
        return "/".join(str(np.dtype(each)) for each in self if each is not None)

    @property
    def sent(self) -> Any:
        return self.gradient if self.message is None else self.message

    @property
    def narrow(self) -> bool:
        """Whether a real of either has fewer than 8 bytes."""
        return min(np.dtype(each).itemsize for each in self._real) < 8

    @property
    def unit(self) -> float:
        """Unit roundoff of the decoded gradient."""
        return 2.0**-24 if self.narrow else 2.0**-53

    @property
    def extent(self) -> tuple[float, float]:
        """Decimal exponents of the smallest and the largest number."""
        if self.gradient is np.float16:
            return -7.0, 4.0
        return (-45.0, 37.0) if self.narrow else (-322.0, 306.0)

    @property
    def _real(self) -> list[Any]:
        return [np.empty(0, each).real.dtype for each in (self.gradient, self.sent)]


KINDS = [
    Kind(np.float64),
    Kind(np.float32),
    Kind(np.float64, np.float32),
    Kind(np.float32, np.float64),
    Kind(np.float32, np.float16),
    Kind(np.float32, ml_dtypes.bfloat16),
    Kind(np.float16),
    Kind(ml_dtypes.bfloat16),
    Kind(np.complex128),
    Kind(np.complex64),
]


@cache
def codes_of(name: str) -> list[fastgc.Code]:
    """Return codes of this name, of all sizes that a search has time for."""
    if name == "linear":
        rng = np.random.default_rng(0)
        dense, few = rng.standard_normal((9, 6)), rng.standard_normal((12, 10))
        few *= rng.random(few.shape) < 0.6
        far = rng.standard_normal((8, 5)) * 10.0 ** rng.uniform(-3, 3, (8, 1))
        return [
            fastgc.LinearCode(B)
            for B in (dense, few + np.eye(12, 10), far, dense + 1j * few[:9, :6])
        ]
    texts = {
        "rs": ["rs", "rs:root=1", "rs:packed=false"],
        "lcc": ["lcc", "lcc:nodes=roots"],
        "lcc-mmc-2": ["lcc-mmc-2", "lcc-mmc-2:nodes=roots"],
    }.get(name, [name])
    found = []
    for text in texts:
        for n, s in ((4, 1), (8, 2), (13, 4), (24, 7), (40, 10)):
            with contextlib.suppress(ValueError):
                found.append(catalogue.make(text, n, stragglers=s, seed=n))
        with contextlib.suppress(ValueError):
            found.append(catalogue.make(text, 8, 12, stragglers=2, seed=1))
    return found


_OF_DATA = (np.float32, np.float64)


def fitting(code: fastgc.Code) -> list[Kind]:
    """Return the kinds that this code takes."""
    found = []
    for kind in KINDS:
        if code.scheme.codes_data and np.dtype(kind.gradient) not in _OF_DATA:
            continue
        with contextlib.suppress(TypeError):
            code.scheme.format(1, *kind)
            found.append(kind)
    return found


# ---------------------------------------------------------------------------- partial gradients


class Law(NamedTuple):
    """The law by which partial gradients are drawn or, for codes of the data, the data.

    Attributes
    ----------
    scale, spread : float
        Decimal exponents of the common factor, and of the ratio of the largest size to the least.
    common : float
        Size of the vector that all have in common, relative to each one's own.
    kept : float
        Decimal exponent of the part of a sum that is kept when the sum is subtracted; 0: all of it.
    where : str
        Which sum is subtracted: that of all, from each ("all") or from one ("one"); or that of each
        partition and the next ("pairs"). Not used for data.
    line : bool
        Whether all are multiples of one vector.
    """

    scale: float = 0.0
    spread: float = 0.0
    common: float = 0.0
    kept: float = 0.0
    where: str = "all"
    line: bool = False


WHERE = ["all", "one", "pairs"]


def law_from(rng: np.random.Generator, kind: Kind) -> Law:
    """Return a random law."""
    digits, scale = -math.log10(kind.unit), 0.0
    if rng.random() < 0.5:
        scale = float(rng.uniform(*kind.extent) / (3 if rng.random() < 0.8 else 1))
    return Law(
        scale=scale,
        spread=float(rng.uniform(0, digits) * (rng.random() < 0.3)),
        common=float(10.0 ** rng.uniform(-1, 2) * (rng.random() < 0.3)),
        kept=float(-rng.uniform(0, digits + 1) * (rng.random() < 0.5)),
        where=str(rng.choice(WHERE)),
        line=bool(rng.random() < 0.2),
    )


def drawn(
    law: Law, sizes: NDArray[Any], p: int, kind: Kind, rng: np.random.Generator
) -> NDArray[Any]:
    """Draw partial gradients by this law, times 10 to the power of `sizes`."""
    k, dtype = sizes.size, np.dtype(kind.gradient)

    def normal(*shape: int) -> NDArray[Any]:
        real = rng.standard_normal(shape)
        return real + 1j * rng.standard_normal(shape) if dtype.kind == "c" else real

    own = normal(k, 1) * normal(p) if law.line else normal(k, p)
    g, left = 10.0 ** sizes[:, None] * own, 10.0**law.kept
    if law.kept:
        if law.where == "pairs":
            g[1::2] = (left - 1) * g[: 2 * (k // 2) : 2] + left * g[1::2]
        elif law.where == "one":
            g[0] = left * g[0] - (1 - left) * g[1:].sum(axis=0)
        else:
            g -= (1 - left) * g.mean(axis=0)
    # The factor is no round number: otherwise sums are exact where digits have cancelled.
    factor = 10.0**law.scale * rng.uniform(1, 2)
    g = factor * (g + left * law.common * normal(p))
    found: NDArray[Any] = g.astype(dtype)
    return found


class Job(NamedTuple):
    """What the workers compute in a round.

    Attributes
    ----------
    partials : sequence of (p,) arrays
    cancelled : list of float
        See `fastgc.coding.plan.Encoder.add`.
    exact : list of Fraction or None
        The gradient; None: the sum of the partial gradients.
    unit : float
        The factor of `fastgc.stability.error_bound`.
    terms : int
        Its argument `terms`.
    """

    partials: Any
    cancelled: list[float]
    exact: list[Fraction] | None
    unit: float
    terms: int


def job_of(
    code: fastgc.Code,
    law: Law,
    sizes: NDArray[Any],
    p: int,
    kind: Kind,
    rng: np.random.Generator,
) -> Job:
    """Draw partial gradients; for codes of the data, least squares 10**kept from the optimum."""
    if not code.scheme.codes_data:
        g = drawn(law, sizes, p, kind, rng)
        unit = math.sqrt(code.k) * max(map(norm, g))
        return Job(g, [0.0] * code.k, None, unit, 0)
    dtype, features = np.dtype(kind.gradient), min(p, 5)
    rows, scale = 3, 10.0 ** (law.scale / 4)
    X = rng.standard_normal((rows * code.k, features))
    X *= 10.0 ** np.repeat(sizes / 4, rows)[:, None]
    X = (scale * X).astype(dtype)
    wanted = rng.standard_normal(features).astype(dtype)
    theta = (wanted + 10.0**law.kept * rng.standard_normal(features)).astype(dtype)
    y = (X.astype(np.float64) @ wanted).astype(dtype)
    if law.common:  # the residuals do not vanish at the optimum
        y += (scale * law.common * rng.standard_normal(y.size)).astype(dtype)
    shards = code.encode_data(X, y)
    partials = [code.compute(shard, theta) for shard in shards]
    known = [code.scheme.cancelling(shard) for shard in shards]
    cancelled = [0.0 if each is None else each(theta) for each in known]
    return Job(
        partials,
        cancelled,
        exact_gradient(X, y, theta),
        math.sqrt(code.k) * largest_pair(X, y, theta, rows),
        rows + features,
    )


def exact_gradient(X: NDArray[Any], y: NDArray[Any], theta: NDArray[Any]) -> list[Fraction]:
    """Return ``X' (X theta - y)`` without rounding."""
    (X, one), (theta, two), (y, three) = map(integers, (X, theta, y))
    both = min(one + two, three)
    residuals = (X @ theta << one + two - both) - (y << three - both)
    return [Fraction(each) * Fraction(2) ** (one + both) for each in X.T @ residuals]


def integers(x: NDArray[Any]) -> tuple[Any, int]:
    """Return numbers as integers times a power of two: the integers, and the exponent."""
    mantissas, exponents = np.frexp(x.astype(np.float64))
    least = int(exponents.min())
    whole = np.ldexp(mantissas, 53).astype(np.int64).astype(object)
    return whole << (exponents - least).astype(object), least - 53


def largest_pair(X: NDArray[Any], y: NDArray[Any], theta: NDArray[Any], rows: int) -> float:
    """Return the maximum of ``|| |X_i|' (|X_j| |theta| + |y_j|) ||`` over pairs of blocks."""
    X, size = np.abs(X.astype(np.float64)), np.abs(y.astype(np.float64))
    size = (X @ np.abs(theta.astype(np.float64)) + size).reshape(-1, rows)
    blocks = X.reshape(-1, rows, X.shape[1])
    return max(norm(block.T @ each) for block in blocks for each in size)


def norm(x: Any) -> float:
    """Return the 2-norm, whose squares do not underflow."""
    wide = np.asarray(x)
    wide = wide.astype(np.complex128 if wide.dtype.kind == "c" else np.float64)
    return math.hypot(*np.abs(wide).tolist())


def error_of(decoded: NDArray[Any], job: Job) -> float:
    """Return the norm of a decoded gradient's error; its elements are summed without rounding."""
    if job.exact is not None:
        return math.hypot(
            *(float(Fraction(float(d)) - x) for d, x in zip(decoded, job.exact, strict=True))
        )
    terms = np.vstack([job.partials, -decoded[None].astype(decoded.dtype)])
    if terms.dtype.kind == "c":
        terms = terms.astype(np.complex128).view(np.float64)
    return math.hypot(*map(math.fsum, terms.astype(np.float64).T.tolist()))


# --------------------------------------------------------------------------------------- rounds


class Played(NamedTuple):
    """A round.

    Attributes
    ----------
    error, trusted : float
        The true and the trusted error, over the norm of the decoded gradient.
    left_out : float
    heard : tuple of int
    unit : float
        The factor of the error bound, over the same norm.
    """

    error: float
    trusted: float
    left_out: float
    heard: tuple[int, ...]
    unit: float


@cache
def bound_of(name: str, at: int, heard: tuple[int, ...], kind: Kind, terms: int) -> float:
    """Return the proven bound for encoders that add partial gradients one by one."""
    other = None if kind.message is None else kind.gradient
    return stability.error_bound(
        codes_of(name)[at], heard, kind.sent, streaming=True, terms=terms, gradient_dtype=other
    )


def play(code: fastgc.Code, kind: Kind, order: NDArray[Any], more: int, job: Job) -> Played | None:
    """Play a round: messages come in this order, `more` of them after those that suffice.

    Return None if numbers overflow, or if nothing is decoded.
    """
    p = len(job.partials[0])
    form = code.scheme.format(p, *kind)
    types, sent = (p, form.gradient_dtype, form.message_dtype), Counter[int]()
    rnd = code.round(*types, partial_dtype=kind.gradient)
    for worker in order.tolist():
        index = sent[worker]
        sent[worker] += 1
        encoder = code.encoder(worker, p, kind.gradient, index=index, message_dtype=kind.message)
        for j in code.partitions(worker, index).tolist():
            encoder.add(j, job.partials[j], job.cancelled[j])
        try:
            rnd.receive(worker, encoder.message(), index, energy=encoder.energy)
        except NonFiniteMessageError:
            return None
        if rnd.ready and (more := more - 1) < 0:
            break
    if not rnd.ready:
        return None
    try:
        decoded = rnd.gradient()
    except (OverflowError, fastgc.NotDecodableError):
        return None
    if not np.isfinite(decoded).all():
        return None
    assert decoded.dtype == form.gradient_dtype
    size, error = norm(decoded), error_of(decoded, job)
    trusted, left = rnd.trust().relative_error, rnd.residual()
    if not size:
        return None
    return Played(error / size, trusted, left, tuple(rnd.survivors.tolist()), job.unit / size)


# --------------------------------------------------------------------------------------- search


class Try(NamedTuple):
    """A point of the search: the code and kind, the order of messages, and what is drawn."""

    at: int
    kind: Kind
    order: NDArray[Any]
    more: int
    law: Law
    sizes: NDArray[Any]
    p: int
    seed: int


class Found:
    """The worst rounds of a code."""

    def __init__(self) -> None:
        self.rounds = self.unknown = 0
        self.optimistic = self.pessimistic = self.bound = 0.0
        self.last = -1.0  # the last round's error over its bound
        self.worst: dict[str, Try] = {}

    def take(self, what: str, ratio: float, point: Try) -> None:
        """Record a ratio if it is the largest."""
        if ratio > getattr(self, what):
            setattr(self, what, ratio)
            self.worst[what] = point

    @property
    def wrong(self) -> bool:
        """Whether a ratio exceeds its limit."""
        return max(self.optimistic, self.pessimistic) > MOST or self.bound > 1


def begun(name: str, rng: np.random.Generator) -> Try:
    """Return a random point."""
    costs = np.array([code.scheme.messages.count * code.load for code in codes_of(name)])
    at = int(rng.choice(costs.size, p=costs**-0.5 / (costs**-0.5).sum()))
    code = codes_of(name)[at]
    kinds = fitting(code)
    kind = kinds[rng.integers(len(kinds))]
    everyone = np.repeat(np.arange(code.n), code.scheme.message_counts)
    order = rng.permutation(everyone)
    if rng.random() < 0.3:  # the workers not heard are neighbours
        order = np.roll(np.sort(everyone), rng.integers(everyone.size))
    law = law_from(rng, kind)
    sizes = law.spread * rng.uniform(-0.5, 0.5, code.k)
    p = int(rng.choice([1, 2, 7, 33] if rng.random() < 0.2 else [24, 33]))
    return Try(at, kind, order, 0, law, sizes, p, int(rng.integers(2**31)))


def changed(point: Try, rng: np.random.Generator) -> Try:
    """Return a neighbour of a point."""
    what = rng.integers(6)
    if what == 0:
        order = point.order.copy()
        a, b = rng.integers(order.size, size=2)
        order[[a, b]] = order[[b, a]]
        return point._replace(order=order)
    if what == 1:
        return point._replace(more=int(rng.integers(4)))
    if what == 2:
        sizes = point.sizes.copy()
        sizes[rng.integers(sizes.size)] += rng.normal() * 2
        return point._replace(sizes=sizes)
    if what == 3:
        return point._replace(seed=int(rng.integers(2**31)))
    law, other = point.law, law_from(rng, point.kind)
    if what == 4:
        field = str(rng.choice(Law._fields))
        return point._replace(law=law._replace(**{field: getattr(other, field)}))
    digits = -math.log10(point.kind.unit)
    kept = min(0.0, max(-digits - 2, law.kept + rng.normal()))
    return point._replace(law=law._replace(kept=kept))


def played(name: str, point: Try, found: Found, *, anew: int | None = None) -> Played | None:
    """Play the round of a point, or with `anew` one whose sizes and gradients are drawn anew."""
    code, law = codes_of(name)[point.at], point.law
    rng = np.random.default_rng(point.seed if anew is None else (point.seed, anew))
    sizes = point.sizes
    if anew is not None:
        sizes = law.spread * rng.uniform(-0.5, 0.5, code.k)
    with np.errstate(all="ignore"):
        try:
            job = job_of(code, law, sizes, point.p, point.kind, rng)
        except OverflowError:
            return None
        if not all(np.isfinite(g).all() for g in job.partials):
            return None
        once = play(code, point.kind, point.order, point.more, job)
    if once is None:
        return None
    found.rounds += 1
    found.unknown += once.error < 1 < once.trusted
    if is_normal(job, point):
        bound = bound_of(name, point.at, once.heard, point.kind, job.terms) * once.unit
        found.last = once.error / bound
        found.take("bound", found.last, point)
    return once


def is_normal(job: Job, point: Try) -> bool:
    """Whether partial gradients are so large that underflow changes no result."""
    least, _ = point.kind.extent
    if point.kind.gradient is np.float16:
        return False
    if job.exact is not None:  # elements are products of four numbers
        return abs(point.law.scale) < -least / 6
    smallest = min((n for n in map(norm, job.partials) if n), default=0.0)
    return bool(smallest > 10.0 ** (least / 2))


def too_little(once: Played) -> float:
    """Return the true error over the trusted one."""
    if not once.trusted:
        return math.inf if once.error else 0.0
    return once.error / once.trusted


def too_much(once: Played, kind: Kind) -> float:
    """Return the trusted error over the true one, or over the least that counts."""
    if once.trusted > 1:
        return 0.0
    return once.trusted / max(once.error, kind.unit, 2.0**-26 * once.left_out)


def medians(name: str, point: Try, found: Found) -> tuple[float, float]:
    """Return the medians of both ratios over rounds of this law."""
    rounds = []
    for number in range(DRAWS):
        once = played(name, point, found, anew=number)
        if once is None:
            return 0.0, 0.0
        rounds.append(once)
    over = [too_little(once) for once in rounds]
    under = [too_much(once, point.kind) for once in rounds]
    return float(np.median(over)), float(np.median(under))


def search(name: str, seconds: float, seed: int) -> Found:
    """Climb from random points, towards each of the ratios in turn."""
    found, until, number = Found(), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        climb(name, found, np.random.default_rng((seed, number)), GOALS[number % 3])
        number += 1
    return found


def climb(
    name: str, found: Found, rng: np.random.Generator, goal: str, rounds: int = ROUNDS
) -> None:
    """Climb from a random point to worse neighbours, until none is found or `rounds` are over."""
    ratio_of = {"optimistic": of_a_round, "pessimistic": of_a_law, "bound": of_a_bound}[goal]
    point, stale, end = begun(name, rng), 0, found.rounds + rounds
    best = ratio_of(name, point, found)
    while best >= 0 and stale < STALE and found.rounds < end:
        other = changed(point, rng)
        ratio = ratio_of(name, other, found)
        stale += 1
        if ratio > best:
            point, best, stale = other, ratio, 0


def generic(point: Try) -> Try:
    """Return the point without what makes sums exact: the sum of all cancels, not of two."""
    least, law = point.kind.extent[0], point.law
    law = law._replace(where="all", line=False, scale=max(law.scale, 0.5 * least))
    return point._replace(law=law, p=max(point.p, 24))


def of_a_round(name: str, point: Try, found: Found) -> float:
    """Return *optimistic* of the round of a point; -1 if it is unknown."""
    once = played(name, point, found)
    if once is None:
        return -1.0
    if once.left_out > LEFT_OUT:
        over, _ = medians(name, alike(point), found)
        found.take("optimistic", over, alike(point))
        return over
    ratio = too_little(once)
    found.take("optimistic", ratio, point)
    return ratio


def alike(point: Try) -> Try:
    """Return a generic point whose sizes are within a factor of 100."""
    point = generic(point)
    return point._replace(law=point.law._replace(spread=min(point.law.spread, 2.0)))


def of_a_law(name: str, point: Try, found: Found) -> float:
    """Return *pessimistic* of the law of a point; -1 if it is unknown."""
    if np.dtype(point.kind.gradient).itemsize == 2:
        return -1.0
    point = generic(point)
    once = played(name, point, found)
    if once is None:
        return -1.0
    if once.left_out > LEFT_OUT:
        point = alike(point)
    ratio = too_much(once, point.kind)
    if ratio < found.pessimistic / 3:  # the median is close to it, and no record
        return ratio
    over, under = medians(name, point, found)
    found.take("pessimistic", under, point)
    if once.left_out > LEFT_OUT:
        found.take("optimistic", over, point)
    return under


def of_a_bound(name: str, point: Try, found: Found) -> float:
    """Return *bound* of the round of a point; -1 if it is unknown."""
    found.last = -1.0
    played(name, point, found)
    return found.last


# ------------------------------------------------------------------------------- verified rounds


class Case(NamedTuple):
    """A code whose messages are verified, how many workers may lie, and the dtypes."""

    code: fastgc.Code
    liars: int
    kind: Kind


def cases(names: list[str]) -> list[Case]:
    """Return all cases of small codes that verify; fast ones eight times, to be drawn often."""
    found = []
    for code in (code for name in names for code in codes_of(name) if code.n <= 8):
        for kind in fitting(code):
            for liars in (1, 2, 3):
                if np.dtype(kind.gradient).itemsize == 2:  # like those of float32
                    continue
                with contextlib.suppress(TypeError, ValueError):
                    verifying(Case(code, liars, kind), 24)
                    times = 1 if code.scheme.approximate or code.scheme.messages.count > 12 else 8
                    found += [Case(code, liars, kind)] * times
    return found


@cache
def kept(case: Case, p: int) -> Any:
    """Return a round that verifies, the same at each call."""
    return verifying(case, p)


def verifying(case: Case, p: int) -> Any:
    """Return a new round that verifies."""
    form = case.code.scheme.format(p, *case.kind)
    types = p, form.gradient_dtype, form.message_dtype
    return case.code.round(*types, verify=case.liars, partial_dtype=case.kind.gradient)


class Sent(NamedTuple):
    """A message and its reported energy."""

    message: NDArray[Any]
    energy: float


def messages_of(case: Case, job: Job) -> list[Sent]:
    """Return the messages of honest workers."""
    code, kind, p = case.code, case.kind, len(job.partials[0])
    found = []
    for worker, index in map(code.scheme.messages.sender, range(code.scheme.messages.count)):
        encoder = code.encoder(worker, p, kind.gradient, index=index, message_dtype=kind.message)
        for j in code.partitions(worker, index).tolist():
            encoder.add(j, job.partials[j], job.cancelled[j])
        found.append(Sent(encoder.message().copy(), encoder.energy))
    return found


def verified(case: Case, sent: list[Sent], order: list[int], p: int) -> Any:
    """Return a round that has received these messages, as from an engine.

    Codes of the data get a new round each time: a used one knows the sizes of earlier messages.
    """
    rnd = verifying(case, p) if case.code.scheme.codes_data else kept(case, p)
    rnd.reset()
    for number in order:
        worker, index = case.code.scheme.messages.sender(number)
        if rnd.wants(worker):
            rnd.receive(worker, sent[number].message, index, energy=sent[number].energy)
    return rnd


HONEST = ["cancelling", "tiny", "huge", "equal", "zeros", "spread", "random"]


def honest_job(case: Case, how: str, p: int, rng: np.random.Generator) -> Job:
    """Draw partial gradients in one of the ways that `HONEST` names."""
    code, kind = case.code, case.kind
    law, sizes = Law(where=str(rng.choice(WHERE))), np.zeros(code.k)
    digits, (least, most) = -math.log10(kind.unit), kind.extent
    if how == "cancelling":
        law = law._replace(kept=float(-rng.uniform(0, digits + 1)), line=bool(rng.random() < 0.3))
    elif how == "tiny":
        law = law._replace(scale=float(rng.uniform(least, least / 3)))
    elif how == "huge":
        law = law._replace(scale=float(rng.uniform(most / 3, most - 2)))
    elif how == "spread":
        sizes = rng.uniform(-digits, 0, code.k)
    job = job_of(code, law, sizes, p, kind, rng)
    if how == "equal" and job.exact is None:
        job.partials[:] = job.partials[0]
    elif how == "zeros" and job.exact is None:
        job.partials[rng.random(code.k) < 0.5] = 0
    return job


def play_honest(names: list[str], rounds: int, seed: int) -> bool:
    """Play rounds without liars; return whether all outcomes were right."""
    rng, every = np.random.default_rng(seed), cases(names)
    plain: dict[Case, bool] = {}
    told, fine = Counter[str](), True
    for number in range(rounds):
        case, how = every[rng.integers(len(every))], HONEST[number % len(HONEST)]
        p = int(rng.choice([1, 3, 24, 24]))
        with np.errstate(all="ignore"):
            job = honest_job(case, how, p, rng)
            sent = messages_of(case, job)
        if not all(np.isfinite(each.message.astype(complex)).all() for each in sent):
            told["beyond its dtype"] += 1
            continue
        order = rng.permutation(len(sent)).tolist()
        with np.errstate(all="ignore"):
            rnd = verified(case, sent, order, len(job.partials[0]))
            what = outcome(rnd, job)
        if what == "unverified" and known(case, rnd, how, plain):
            what = "refused"
        told[what] += 1
        if what in WRONG:
            fine = False
            print(f"{what}: {case}, {how}, round {number} of seed {seed}: {rnd.corrupt}")
    print(", ".join(f"{count} {what}" for what, count in told.most_common()), flush=True)
    return fine


WRONG = ["accused", "contradiction", "refused", "wrong"]


def outcome(rnd: Any, job: Job) -> str:
    """Return the outcome of a round without liars."""
    if rnd.corrupt:
        return "accused"
    try:
        decoded = rnd.gradient()
    except CorruptMessageError:
        return "contradiction"
    except (UnverifiedError, OverflowError):
        return "unverified"
    if not np.isfinite(decoded).all():
        return "beyond its dtype"
    size, trusted, error = norm(decoded), rnd.trust().relative_error, error_of(decoded, job)
    return "wrong" if size and error > MOST * trusted * size and trusted < 1 else "verified"


def known(case: Case, rnd: Any, how: str, plain: dict[Case, bool]) -> bool:
    """Whether a round should have been verified: its gradient is known, and a random one is."""
    if how in ("tiny", "huge") or not rnd.decodable or not rnd.trust().relative_error < 1e-2:
        return False
    if case not in plain:
        rng = np.random.default_rng(0)
        job = honest_job(case, "random", 24, rng)
        sent = messages_of(case, job)
        usual = verifying(case, len(job.partials[0]))
        for number, each in enumerate(sent):
            worker, index = case.code.scheme.messages.sender(number)
            usual.receive(worker, each.message, index, energy=each.energy)
        plain[case] = usual.verified
    return plain[case]


def lied(
    case: Case, sent: list[Sent], liars: NDArray[np.int64], rng: np.random.Generator
) -> list[Sent]:
    """Return the messages, with those of liars changed."""
    code, unit = case.code, max(case.kind.unit, float(2.0**-11 * (case.kind.sent == np.float16)))
    size = 10.0 ** rng.uniform(0, -math.log10(unit) + 6) * unit
    how = str(rng.choice(["each", "equal", "collinear", "element", "stale", "zero"]))
    claim = float(rng.choice([1.0, 1.0, 0.0, 1e6, math.inf]))
    same, found = None, list(sent)
    for number in code.scheme.messages.of(liars).tolist():
        message, energy = sent[number]
        wide = message.astype(np.complex128 if message.dtype.kind == "c" else np.float64)
        length = norm(wide) / math.sqrt(wide.size) or 1.0
        if how == "collinear":
            change = size * wide
        elif how == "stale":
            change = sent[(number + 1) % len(sent)].message.astype(wide.dtype) - wide
        elif how == "zero":
            change = -wide
        else:
            if same is None or how != "equal":
                same = length * size * rng.standard_normal(wide.size)
            change = same.astype(wide.dtype)
            if how == "element":
                change = change * (np.arange(wide.size) == rng.integers(wide.size))
        found[number] = Sent((wide + change).astype(message.dtype), claim * energy)
    return found


def play_lies(names: list[str], rounds: int, seed: int) -> bool:
    """Play rounds with liars; return whether they did no more harm than is proven."""
    rng, every = np.random.default_rng(seed), cases(names)
    told, fine, beyond = Counter[str](), True, []
    for number in range(rounds):
        case = every[rng.integers(len(every))]
        code, count = case.code, case.code.scheme.messages.count
        job = honest_job(case, "random" if rng.random() < 0.7 else "cancelling", 24, rng)
        p = len(job.partials[0])
        liars = rng.permutation(code.n)[: rng.integers(1, case.liars + 1)]
        if rng.random() < 0.4:
            liars = (liars[0] + np.arange(liars.size)) % code.n
        honest = messages_of(case, job)
        with np.errstate(all="ignore"):
            sent = lied(case, honest, liars, rng)
        if not all(np.isfinite(each.message.astype(complex)).all() for each in sent):
            continue
        order = rng.permutation(count)[rng.integers(0, 1 + (code.stragglers or 0)) :].tolist()
        with np.errstate(all="ignore"):
            rnd = verified(case, sent, order, p)
            what, harm = harm_of(case, rnd, job, honest, liars)
        told[what] += 1
        beyond.append(harm)
        if what == "accused":
            fine = False
            print(f"accused: {case}, round {number} of seed {seed}: {rnd.corrupt} by {liars}")
    print(", ".join(f"{count} {what}" for what, count in told.most_common()))
    for t in 10.0 ** np.arange(0, 16):
        more, may = sum(harm > t for harm in beyond), 27 * (1 + math.log(t)) / t * len(beyond)
        if more:
            print(f"  wrong by more than {t:.0e} times ten roundings: {more}, at most {may:.3g}")
        fine &= more <= may + 5 * math.sqrt(may) + 1
    return fine


def harm_of(
    case: Case, rnd: Any, job: Job, honest: list[Sent], liars: NDArray[np.int64]
) -> tuple[str, float]:
    """Return a round's outcome, and its error over ten rounding errors."""
    if not set(rnd.corrupt) <= set(liars.tolist()):
        return "accused", 0.0
    try:
        decoded = rnd.gradient()
    except CorruptMessageError:
        return "contradiction", 0.0
    except (fastgc.NotDecodableError, OverflowError):
        return "unverified", 0.0
    error, trusted = error_of(decoded, job), rnd.trust().relative_error
    rounding = trusted * norm(decoded)
    left = np.setdiff1d(rnd.survivors, case.code.scheme.messages.of(liars))
    if case.code.decodable(left):  # compare with the precision without the liars
        apart = case.code.round(decoded.size, rnd.form.gradient_dtype, rnd.form.message_dtype)
        for number in left.tolist():
            worker, index = case.code.scheme.messages.sender(number)
            apart.receive(worker, honest[number].message, index, energy=honest[number].energy)
        with contextlib.suppress(OverflowError):
            rounding = max(rounding, apart.trust().relative_error * norm(apart.gradient()))
    what = "verified, liars named" if rnd.corrupt else "verified"
    return what, error / (10 * rounding) if rounding else (math.inf if error else 0.0)


# ---------------------------------------------------------------------------------- what is said


def row(*cells: object) -> str:
    """Return a line of the table."""
    return "{:18} {:>9} {:>9} {:>11} {:>12} {:>8}".format(*map(str, cells))


def searched(names: list[str], seconds: float, seed: int) -> bool:
    """Search each code, print what was found, and return whether all is within its limits."""
    print(row("code", "rounds", "unknown", "optimistic", "pessimistic", "bound"))
    fine = True
    for name in names:
        found = search(name, seconds, seed)
        ratios = [f"{getattr(found, what):.3g}" for what in GOALS]
        print(row(name, found.rounds, found.unknown, *ratios), flush=True)
        fine &= not found.wrong
        for what, point in found.worst.items():
            if getattr(found, what) > (1 if what == "bound" else MOST):
                print(f"  {what}: {codes_of(name)[point.at]}, {point}")
    return fine


def main(arguments: list[str] | None = None) -> int:
    """Run what the options ask for, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each code")
    parser.add_argument("--codes", nargs="*", default=list(catalogue.BUILT_IN), help="by name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--honest", type=int, metavar="N", help="rounds in which nobody lies")
    parser.add_argument("--lies", type=int, metavar="N", help="rounds in which some lie")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", fastgc.InstabilityWarning)
    np.set_printoptions(precision=2, threshold=50)
    fine = True
    if options.honest is not None:
        fine &= play_honest(options.codes, options.honest, options.seed)
    if options.lies is not None:
        fine &= play_lies(options.codes, options.lies, options.seed)
    if options.honest is None is options.lies:
        fine = searched(options.codes, options.seconds, options.seed)
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main())
