"""Comparisons of codes: what they cost, and how precise they are, typically and at worst."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from .._base.arrays import Array, Ints, at_least, check_dtype
from ..codes import Code
from ..coding.orders import random_arrivals
from ..coding.trust import residuals
from ..errors import NotDecodableError
from .precision import Experiment, amplification_of
from .search import contiguous, messages_without, silent_workers, worst_stragglers

__all__ = [
    "PATTERNS",
    "StabilityRow",
    "compare",
    "matched",
]

PATTERNS = ("random", "contiguous", "neighbouring", "adversarial")


class StabilityRow(NamedTuple):
    """One code, one dtype, one pattern of stragglers. Errors are relative to the gradient's norm.

    Attributes
    ----------
    code : str
        Name of the code.
    n, k, load : int
        Workers, partitions, and partitions of the worker that has most.
    mean_load : float
        Partitions per worker, on average.
    messages : float
        Messages needed if they come in random order, on average.
    message_size : float
        Size of a message, in gradients.
    stragglers : int
        Largest number of silent workers.
    dtype : str
        Dtype of the messages.
    pattern : str
        Which workers are silent: one of `PATTERNS`, see `compare`.
    sets : int
        Sets of survivors decoded.
    decode_seconds : float
        Median time to compute a decoding vector that is not cached.
    error, worst_error : float
        Median and largest measured error.
    predicted : float
        Median error that `Code.trust` predicts, with the vector of this method.
    bound : float
        The larger `error_bound` of the two sets with the largest amplification and error, relative
        to the norm of the same gradient.
    amplification, worst_amplification : float
        Median and largest amplification, with the vector of this method.
    """

    code: str
    n: int
    k: int
    load: int
    mean_load: float
    messages: float
    message_size: float
    stragglers: int
    dtype: str
    pattern: str
    sets: int
    decode_seconds: float
    error: float
    worst_error: float
    predicted: float
    bound: float
    amplification: float
    worst_amplification: float


def compare(
    codes: Mapping[str, Code | tuple[Code, str]],
    *,
    stragglers: int | None = None,
    patterns: Sequence[str] = ("random",),
    dtypes: Sequence[DTypeLike] = (np.float64,),
    sets: int = 200,
    p: int = 16,
    seed: int = 0,
    progress: Callable[[float, int], object] = lambda done, rows: None,
) -> list[StabilityRow]:
    """Measure what codes cost, and how much precision decoding loses.

    Every code has the same silent workers, and decodes from the messages of all others. Codes that
    tolerate equally many stragglers may have different loads; `matched` finds codes of equal load.

    Parameters
    ----------
    codes : mapping of names to codes
        Or to pairs of a code and the method that computes its decoding vectors.
    stragglers : int, optional
        Number of silent workers. Default: as many as each code tolerates.
    patterns : sequence of str
        "random": `sets` random sets of silent workers. "contiguous": as many windows of workers
        with adjacent numbers, like a rack that fails. "neighbouring": as many windows of the circle
        of the code's evaluation points, from which exact vectors of Reed-Solomon codes lose all
        precision; "contiguous" for codes without such points. "adversarial": the worst set that
        `worst_stragglers` finds for the method.
    dtypes : sequence of numpy dtypes
        Dtypes of partial gradients and messages, as in `measured_error`.
    sets : int, default 200
    p : int, default 16
        Elements of a gradient.
    seed : int
        Seed of partial gradients and sets.
    progress : callable, optional
        Called before each set with the rows done, the last in part, and the number of all rows.

    Returns
    -------
    list of StabilityRow
        One for each code, dtype and pattern, in this order. Patterns are left out if a code can
        decode none of their sets.
    """
    unknown = [pattern for pattern in patterns if pattern not in PATTERNS]
    if unknown:
        raise ValueError(f"unknown pattern {unknown[0]!r}: choose among {', '.join(PATTERNS)}")
    sets, seed = at_least("sets", sets, 1), at_least("seed", seed, 0)
    rows, done = [], 0
    steps = len(codes) * len(dtypes) * len(patterns)

    def within(row: int, part: float) -> None:
        progress(row + part, steps)

    for name, entry in codes.items():
        code, method = entry if isinstance(entry, tuple) else (entry, "auto")
        s = silent_workers(code, stragglers)
        needed = code.recovery(sets, seed).messages
        mean, size = float(code.scheme.loads.mean()), code.scheme.message_weight
        for dtype in [check_dtype(each, halves=True) for each in dtypes]:
            try:
                experiment = Experiment(code, dtype=dtype, p=p, seed=seed)
            except OverflowError:  # coefficients are beyond float64
                experiment = None
            for pattern in patterns:
                lost = list(_silent(code, s, pattern, method, dtype, sets, seed))
                figures = _measure(code, method, experiment, lost, partial(within, done))
                if figures is not None:
                    costs = (code.n, code.k, code.load, mean, needed, size)
                    head = (name, *costs, s, dtype.name, pattern)
                    rows.append(StabilityRow(*head, *figures))
                done += 1
    return rows


def _silent(
    code: Code, s: int, pattern: str, method: str, dtype: np.dtype[Any], sets: int, seed: int
) -> Iterator[Ints]:
    """Yield sets of s silent workers; none if no set that an adversary tries is decodable."""
    rng = np.random.default_rng(seed)
    if pattern == "random":
        yield from (rng.permutation(code.n)[:s].copy() for _ in range(sets))
    elif pattern == "contiguous":
        yield from contiguous(code.n, s, sets, rng)
    elif pattern == "neighbouring":
        circle = np.concatenate(code.scheme.rings())
        yield from (circle[window] for window in contiguous(code.n, s, sets, rng))
    else:
        with suppress(NotDecodableError):
            yield worst_stragglers(code, s, method=method, dtype=dtype, trials=sets, seed=seed)


def _measure(
    code: Code,
    method: str,
    experiment: Experiment | None,
    silent: Sequence[Ints],
    progress: Callable[[float], object] = lambda part: None,
) -> tuple[int, float, float, float, float, float, float, float] | None:
    kind = np.dtype(np.float64) if experiment is None else experiment.dtype
    seconds, errors, factors, predicted = (list[float]() for _ in range(4))
    decoded: list[tuple[Ints, Array | None]] = []
    for done, lost in enumerate(silent):
        progress(done / len(silent))
        survivors = messages_without(code, lost)
        try:
            if not seconds:  # make now what the code makes once
                _vector(code, survivors, method, kind)
            start = time.perf_counter()
            vector = _vector(code, survivors, method, kind)
            seconds.append(time.perf_counter() - start)
        except NotDecodableError:
            continue
        decoded.append((survivors, vector))
        factor = math.inf if vector is None else amplification_of(code, survivors, vector)
        factors.append(factor)
        if vector is None or experiment is None or math.isinf(factor):
            errors.append(math.inf)
            predicted.append(math.inf)
            continue
        errors.append(experiment.error(survivors, vector).relative)
        predicted.append(experiment.trust(survivors, vector))
    if not factors:
        return None
    bound = math.inf
    if experiment is not None and math.isfinite(max(factors)):
        worst = [decoded[int(np.argmax(each))] for each in (factors, errors)]
        bound = max(experiment.bound(survivors, vector) for survivors, vector in worst)
    taken, error, expected, factor = (
        float(np.median(each)) for each in (seconds, errors, predicted, factors)
    )
    return len(factors), taken, error, max(errors), expected, bound, factor, max(factors)


def _vector(code: Code, survivors: Ints, method: str, kind: np.dtype[Any]) -> Array | None:
    try:
        return code.decoding_vector(survivors, method, message_dtype=kind)
    except OverflowError:  # the vector is beyond float64
        return None


def matched(make: Callable[[int], Code], reference: StabilityRow) -> int:
    """How many stragglers a code should tolerate to be comparable with a reference of equal load.

    It is the largest number for which the code's load does not exceed the reference's. If several
    numbers give the same load, it is the one nearest to the reference's.

    Parameters
    ----------
    make : callable
        Makes the code for s stragglers. It raises ValueError or OverflowError if there is none for
        this s. Loads are assumed to grow with s.
    reference : StabilityRow
        A row of the code to compare with.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If the load of every code exceeds the reference's.
    TypeError
        If `reference` is not a `StabilityRow`.

    Examples
    --------
    With 128 of 256 stragglers, two workers of a binary code compute everything; at the load of a
    Reed-Solomon code, it tolerates one straggler less.

    >>> import fastgc
    >>> from fastgc.stability import compare, matched
    >>> rs = fastgc.ReedSolomon(256, stragglers=128)
    >>> [row] = compare({"rs": rs}, sets=1)
    >>> fastgc.BinaryCode(256, stragglers=128).load, row.load
    (256, 129)
    >>> matched(lambda s: fastgc.BinaryCode(256, stragglers=s), row)
    127
    """
    if not isinstance(reference, StabilityRow):
        raise TypeError(f"reference must be a StabilityRow of compare, not {reference!r}")
    why: Exception | None = None

    @cache
    def load(s: int) -> int | None:
        nonlocal why
        try:
            return make(s).load
        except (ValueError, OverflowError) as error:
            why = error
            return None

    def nearest(s: int) -> int:
        """The largest number up to s for which there is a code, or -1."""
        return next((t for t in range(s, -1, -1) if load(t) is not None), -1)

    def nearest_load(s: int) -> int:
        return load(nearest(s)) or 0

    every = range(reference.n)
    if nearest(reference.n - 1) < 0:
        raise ValueError(f"there is no such code for {reference.n} workers: {why}")
    # By bisection: making a code for each s would take long.
    s = nearest(bisect.bisect_right(every, reference.load, key=nearest_load) - 1)
    if s < 0:
        raise ValueError(f"no such code has a load of at most {reference.load}")
    first = bisect.bisect_left(every, nearest_load(s), key=nearest_load)
    return max(first, nearest(min(max(reference.stragglers, first), s)))


P = 32  # elements of a gradient
_SETS, _FEW, _FEWEST = 2000, 5000, 5  # sets whose residuals are computed, of up to _FEW workers
_TOGETHER = 2000  # decoding so many messages takes about as long as encoding one


class Figures(NamedTuple):
    """A code's figures, as in `StabilityRow`, for messages in random order.

    Attributes
    ----------
    stragglers : int or None
        Workers that may be wholly silent; None if that is not known.
    messages : int
        Messages in a round, of all workers together.
    threshold : int or None
        Messages that always suffice, each worker's in order; None if that is not known.
    mean_workers, mean_messages : float
        Workers and messages that had come when the gradient could be decoded, on average.
    communication_load : float
        ``mean_messages * message_size``.
    residual : float
        Root mean square of `fastgc.codes.Approximation.residual`, the part of the gradient that is
        left out. 0 for codes that decode only exactly.
    worst_residual : float
        The largest possible residual, or the largest that is known.
    worst_is_known : bool
        Whether `worst_residual` is the largest possible; else it is that of random sets.
    """

    load: int
    mean_load: float
    stragglers: int | None
    messages: int
    threshold: int | None
    mean_workers: float
    mean_messages: float
    message_size: float
    communication_load: float
    decode_seconds: float
    error: float
    worst_error: float
    residual: float
    worst_residual: float
    worst_is_known: bool


def measure(
    code: Code,
    trials: int = 200,
    seed: int = 0,
    *,
    progress: Callable[[int, int], object] = lambda done, steps: None,
) -> Figures:
    """Run a code on random partial gradients, or data, in `trials` rounds.

    Messages arrive in random order. `progress` is called with the steps done and the number of all
    steps, before the first and after each. A step takes about as long as encoding a message.
    Decoding a round is one step, or several if there are many messages.
    """
    if trials < 1:
        raise ValueError(f"trials must be at least 1, not {trials}")
    messages = code.scheme.messages.count
    of_round = 1 + messages // _TOGETHER
    # What is left out: of the rounds, and of as many sets as `Code.residuals` takes, but fewer of
    # many workers.
    others = max(_FEWEST, min(_SETS, _SETS * _FEW // code.n)) if code.scheme.approximate else 0
    steps = messages + of_round * (trials + others)
    progress(0, steps)
    experiment = Experiment(
        code, p=P, seed=seed, progress=lambda encoded, _: progress(encoded, steps)
    )
    decoder = code.decoder()
    decoder(np.arange(messages))  # make now what the code makes once
    errors, times, workers = list[float](), list[float](), list[int]()
    sets: list[Ints] = []
    for done, order in enumerate(random_arrivals(code.scheme, trials, seed), 1):
        sets.append(np.array(order, dtype=np.int64))
        start = time.perf_counter()
        vector = decoder(sets[-1])
        times.append(time.perf_counter() - start)
        errors.append(experiment.error(sets[-1], vector).relative)
        workers.append(code.scheme.messages.senders(sets[-1]).size)
        progress(messages + of_round * done, steps)
    mean_messages = float(np.mean([F.size for F in sets]))
    form = code.message_size(P) * experiment.messages.itemsize / (P * 8)
    return Figures(
        code.load,
        float(code.scheme.loads.mean()),
        code.stragglers,
        messages,
        code.threshold,
        float(np.mean(workers)),
        mean_messages,
        form,
        mean_messages * form,
        float(np.median(times)),
        float(np.median(errors)),
        float(np.max(errors)),
        *_left_out(
            code,
            sets,
            others,
            seed,
            lambda done: progress(messages + of_round * (trials + done), steps),
        ),
    )


def _left_out(
    code: Code, sets: list[Ints], others: int, seed: int, progress: Callable[[int], object]
) -> tuple[float, float, bool]:
    """Mean and worst residual, and whether the latter is the largest possible.

    The mean is that of these sets; the worst also that of `others`, unless the code knows it.
    """
    if not code.scheme.approximate:
        return 0.0, 0.0, True
    left = np.array([code.residual(heard) for heard in sets])
    workers = code.n if code.scheme.awaited is None else code.scheme.awaited
    waiting = residuals(code.scheme, workers, others, seed, progress)
    # If a code waits for a number of workers, all sets of so many, or a formula, give the worst.
    known = waiting.exhaustive and (code.scheme.wait is not None or waiting.sets == 0)
    mean = float(np.sqrt(np.mean(left**2)))
    return mean, max(waiting.worst, float(left.max())), known
