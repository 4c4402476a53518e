"""Comparisons of codes: what they cost, and how precise they are, typically and at worst."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from .._base.arrays import Array, Ints, at_least, check_dtype, check_word
from ..codes import Code
from ..coding.orders import random_arrivals
from ..errors import NotDecodableError
from .precision import Experiment, amplification_of
from .search import contiguous, messages_without, silent_workers, worst_stragglers

__all__ = [
    "PATTERNS",
    "StabilityRow",
    "compare",
]

PATTERNS = ("random", "late", "contiguous", "neighbouring", "adversarial")


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
    workers, messages : float
        Workers heard and messages needed if messages come in random order, on average.
    message_size : float
        Size of a message, in gradients.
    stragglers : int
        Largest number of silent workers, but of late ones.
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
    left_out, worst_left_out : float
        Root mean square and maximum of `Code.residual`, the part of the gradient that is left out.
        NaN if coefficients or vectors are beyond float64.
    """

    code: str
    n: int
    k: int
    load: int
    mean_load: float
    workers: float
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
    left_out: float
    worst_left_out: float


def compare(
    codes: Mapping[str, Code | tuple[Code, str]],
    *,
    stragglers: int | None = None,
    patterns: Sequence[str] = ("random",),
    dtypes: Sequence[DTypeLike] = (np.float64,),
    sets: int = 200,
    p: int = 16,
    seed: int = 0,
    progress: Callable[[float, int], object] = lambda done, steps: None,
) -> list[StabilityRow]:
    """Measure what codes cost, and how much precision decoding loses.

    Every code has the same silent workers, and decodes from the messages of all others. Codes that
    tolerate equally many stragglers may have different loads.

    Parameters
    ----------
    codes : mapping of names to codes
        Or to pairs of a code and the method that computes its decoding vectors.
    stragglers : int, optional
        Number of silent workers, but of late ones. Default: as many as each code tolerates.
    patterns : sequence of str
        "random": `sets` random sets of silent workers. "late": messages come in random order until
        the round is ready, so that often more workers are silent; `sets` such rounds.
        "contiguous": as many windows of workers with adjacent numbers, like a rack that fails.
        "neighbouring": as many windows of the circle of the code's evaluation points, from which
        exact vectors of Reed-Solomon codes lose all precision; "contiguous" for codes without such
        points. "adversarial": the worst set that `worst_stragglers` finds for the method.
    dtypes : sequence of numpy dtypes
        Dtypes of partial gradients and messages, as in `measured_error`.
    sets : int, default 200
    p : int, default 16
        Elements of a gradient.
    seed : int
        Seed of partial gradients and sets.
    progress : callable, optional
        Called with the steps done, the last in part, and the number of all steps. A code's steps
        are, for each dtype, encoding its messages and measuring each pattern.

    Returns
    -------
    list of StabilityRow
        One for each code, dtype and pattern, in this order. Patterns are left out if a code can
        decode none of their sets.
    """
    for pattern in patterns:
        check_word("pattern", pattern, *PATTERNS)
    sets, seed = at_least("sets", sets, 1), at_least("seed", seed, 0)
    if not isinstance(codes, Mapping):
        raise TypeError(f"codes must be a mapping of names to codes, not {codes!r}")
    rows, done = [], 0
    steps = len(codes) * len(dtypes) * (1 + len(patterns))

    def within(parts: int, of: int) -> None:
        progress(done + parts / of, steps)

    within(0, 1)
    for name, entry in codes.items():
        code, method = entry if isinstance(entry, tuple) else (entry, "auto")
        rounds = [np.array(heard) for heard in random_arrivals(code.scheme, sets, seed)]
        came = [(code.scheme.messages.senders(heard).size, heard.size) for heard in rounds]
        loads = (code.load, float(code.scheme.loads.mean()))
        workers, needed = np.mean(came, axis=0).tolist()
        costs = (*loads, workers, needed, code.scheme.message_weight)
        s = silent_workers(code, stragglers)
        for dtype in [check_dtype(each, halves=True) for each in dtypes]:
            try:
                experiment = Experiment(code, dtype=dtype, p=p, seed=seed, progress=within)
            except OverflowError:  # coefficients are beyond float64
                experiment = None
            done += 1
            for pattern in patterns:
                heard_of = rounds
                if pattern != "late":
                    lost = _silent(code, s, pattern, method, dtype, sets, seed)
                    heard_of = [messages_without(code, each) for each in lost]
                figures = _measure(code, method, dtype, experiment, heard_of, within)
                if figures is not None:
                    head = (name, code.n, code.k, *costs, s, dtype.name, pattern)
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
    dtype: np.dtype[Any],
    experiment: Experiment | None,
    sets: Sequence[Ints],
    progress: Callable[[int, int], object] = lambda done, sets: None,
) -> tuple[int, float, float, float, float, float, float, float, float, float] | None:
    seconds, errors, factors, predicted, left_out = (list[float]() for _ in range(5))
    decoded: list[tuple[Ints, Array | None]] = []
    for done, survivors in enumerate(sets):
        progress(done, len(sets))
        try:
            if not seconds:  # make now what the code makes once
                _vector(code, survivors, method, dtype)
            start = time.perf_counter()
            vector = _vector(code, survivors, method, dtype)
            seconds.append(time.perf_counter() - start)
        except NotDecodableError:
            continue
        decoded.append((survivors, vector))
        factor = math.inf if vector is None else amplification_of(code, survivors, vector)
        factors.append(factor)
        if vector is None or experiment is None or math.isinf(factor):
            errors.append(math.inf)
            predicted.append(math.inf)
            left_out.append(math.nan)
            continue
        errors.append(experiment.error(survivors, vector).relative)
        predicted.append(experiment.trust(survivors, vector))
        left_out.append(code.residual(survivors, vector))
    if not factors:
        return None
    bound = math.inf
    if experiment is not None and math.isfinite(max(factors)):
        worst = [decoded[int(np.argmax(each))] for each in (factors, errors)]
        bound = max(experiment.bound(survivors, vector) for survivors, vector in worst)
    taken, error, expected, factor = (
        float(np.median(each)) for each in (seconds, errors, predicted, factors)
    )
    precision = (taken, error, max(errors), expected, bound, factor, max(factors))
    left = math.sqrt(float(np.mean(np.square(left_out))))
    return len(factors), *precision, left, max(left_out)


def _vector(code: Code, survivors: Ints, method: str, kind: np.dtype[Any]) -> Array | None:
    try:
        return code.decoding_vector(survivors, method, message_dtype=kind)
    except OverflowError:  # the vector is beyond float64
        return None
