"""Codes side by side: how precise, how often, and how bad at worst."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._arrays import at_least, check_dtype, check_integer
from ..codes import Code
from ..errors import NotDecodableError
from .bounds import amplification
from .measured import Experiment
from .search import contiguous, messages_without, worst_survivors

__all__ = ["PATTERNS", "StabilityRow", "compare", "write_csv"]

PATTERNS = ("random", "contiguous", "adversarial")


class StabilityRow(NamedTuple):
    """One code, one dtype, one pattern of stragglers. Errors are relative to the gradient's norm.

    Attributes
    ----------
    code : str
        Its name.
    n, k, load : int
        Workers, partitions, and partitions per worker.
    stragglers : int
        Silent workers, at most.
    dtype : str
        Of the messages.
    pattern : str
        "random", "contiguous" or "adversarial" (`worst_survivors`).
    sets : int
        Sets of survivors decoded.
    error, worst_error : float
        Median and largest measured error.
    predicted : float
        Median of what `Code.trust` says beforehand.
    bound : float
        The larger `error_bound` of the two sets with the largest amplification and error, over the
        norm of the same gradient.
    amplification, worst_amplification : float
        Median and largest.
    """

    code: str
    n: int
    k: int
    load: int
    stragglers: int
    dtype: str
    pattern: str
    sets: int
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
    progress: Callable[[], object] | None = None,
) -> list[StabilityRow]:
    """Measure what decoding costs in precision.

    Every code gets the same silent workers, and the messages of all others.

    Parameters
    ----------
    codes : mapping of names to codes
        Or to pairs of a code and the method that computes its decoding vectors.
    stragglers : int, optional
        Silent workers. Default: as many as each code tolerates.
    patterns : sequence of str
        "random": `sets` random sets of silent workers. "contiguous": as many windows of
        neighbours. "adversarial": the worst that `worst_survivors` finds.
    dtypes : sequence of numpy dtypes
        Of partial gradients and messages, as in `measured_error`.
    sets : int, default 200
    p : int, default 16
        Elements of a gradient.
    seed : int
        Of partial gradients and sets.
    progress : callable, optional
        Called after each row.

    Returns
    -------
    list of StabilityRow
        One for each code, dtype and pattern, in this order. Patterns of which a code can decode no
        set are left out.
    """
    unknown = [pattern for pattern in patterns if pattern not in PATTERNS]
    if unknown:
        raise ValueError(f"unknown pattern {unknown[0]!r}: choose among {', '.join(PATTERNS)}")
    sets, seed = at_least("sets", sets, 1), at_least("seed", seed, 0)
    rows = []
    for name, entry in codes.items():
        code, method = entry if isinstance(entry, tuple) else (entry, "auto")
        s = (
            code.known_stragglers()
            if stragglers is None
            else check_integer("stragglers", stragglers)
        )
        if not 0 <= s < code.n:
            raise ValueError(f"stragglers must be in 0 .. n-1 = {code.n - 1}, not {s}")
        for dtype in [check_dtype(each, halves=True) for each in dtypes]:
            try:
                experiment = Experiment(code, dtype=dtype, p=p, seed=seed)
            except OverflowError:  # its coefficients are beyond float64
                experiment = None
            for pattern in patterns:
                lost = list(_silent(code, s, pattern, sets, seed))
                figures = _measure(code, method, experiment, lost)
                if figures is not None:
                    head = (name, code.n, code.k, code.load, s, dtype.name, pattern)
                    rows.append(StabilityRow(*head, *figures))
                if progress is not None:
                    progress()
    return rows


def _silent(code: Code, s: int, pattern: str, sets: int, seed: int) -> Iterator[NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    if pattern == "random":
        yield from (rng.permutation(code.n)[:s] for _ in range(sets))
    elif pattern == "contiguous":
        yield from contiguous(code.n, s, sets, rng)
    else:
        try:
            yield worst_survivors(code, s, trials=sets, seed=seed).stragglers
        except NotDecodableError:
            return


def _measure(
    code: Code,
    method: str,
    experiment: Experiment | None,
    silent: Sequence[NDArray[np.int64]],
) -> tuple[int, float, float, float, float, float, float] | None:
    errors: list[float] = []
    factors: list[float] = []
    predicted: list[float] = []
    decoded: list[NDArray[np.int64]] = []
    for lost in silent:
        survivors = messages_without(code, lost)
        try:
            factor = amplification(code, survivors)
        except NotDecodableError:
            continue
        factors.append(factor)
        decoded.append(survivors)
        if experiment is None or math.isinf(factor):
            errors.append(math.inf)
            predicted.append(math.inf)
            continue
        vector = code.decoding_vector(survivors, method)
        errors.append(experiment.error(survivors, vector).relative)
        expected = experiment.trust(survivors)
        if method != "auto":  # what this method's vector lacks is not in trust
            expected = float(np.hypot(expected, code.residual(survivors, vector)))
        predicted.append(expected)
    if not factors:
        return None
    bound = math.inf
    if experiment is not None and math.isfinite(max(factors)):
        worst = [decoded[int(np.argmax(each))] for each in (factors, errors)]
        bound = max(
            experiment.bound(survivors, code.decoding_vector(survivors, method))
            for survivors in worst
        )
    error, expected, factor = (float(np.median(v)) for v in (errors, predicted, factors))
    return len(factors), error, max(errors), expected, bound, factor, max(factors)


def write_csv(rows: Sequence[StabilityRow], path: str | os.PathLike[str]) -> None:
    """Write rows to a CSV file with a line of headings."""
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(StabilityRow._fields)
        writer.writerows(rows)
