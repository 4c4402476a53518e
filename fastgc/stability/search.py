"""Search for the survivors from which decoding is least precise."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._base.arrays import Ints, at_least, check_dtype, gradient_dtype_of
from ..codes import Code
from ..coding.arguments import check_stragglers
from ..coding.trust import trust_by_rows
from ..errors import NotDecodableError

__all__ = ["worst_stragglers"]

_WINDOWS = 8  # windows of neighbours by number
_BEYOND = 1e4  # logarithm that stands for errors beyond float64


def messages_without(code: Code, stragglers: ArrayLike) -> Ints:
    """Numbers of the messages that come when these workers are silent."""
    return code.scheme.messages.of(np.setdiff1d(np.arange(code.n), stragglers))


def silent_workers(code: Code, stragglers: int | None) -> int:
    """How many workers are silent: as many as given, or as the code tolerates."""
    if stragglers is None:
        return code.scheme.known_stragglers()
    return check_stragglers(stragglers, code.n)


def contiguous(n: int, s: int, count: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Windows of s neighbours around the circle of n workers: all, or `count` random ones."""
    starts = np.arange(n) if n <= count else np.sort(rng.permutation(n)[:count])
    for start in starts.tolist():
        yield (start + np.arange(s)) % n


def worst_stragglers(
    code: Code,
    stragglers: int | None = None,
    *,
    method: str = "auto",
    dtype: DTypeLike = np.float64,
    trials: int = 200,
    seed: int = 0,
) -> Ints:
    """Search for the silent workers that make the decoded gradient least precise.

    It tries windows of workers, arcs of a circle of the code's evaluation points, windows that are
    filled nearly evenly, and random sets. From the worst set it climbs: it exchanges a straggler
    wherever that makes the set worse. Sets with fewer stragglers than allowed are tried, too: half
    a cluster can be worse than a whole one.

    Parameters
    ----------
    code : Code
    stragglers : int, optional
        Largest number of silent workers. Default: ``code.stragglers``.
    method : str, default "auto"
        The method whose decoding vectors are attacked, as in `Code.decoding_vector`.
    dtype : numpy dtype
        Dtype of the messages. Gradients have the same, or float32 for float16 and bfloat16.
    trials : int, default 200
        Number of windows and of random sets, and a third of the number of exchanges.
    seed : int

    Returns
    -------
    (s,) int64 array
        The workers that are silent.

    Raises
    ------
    NotDecodableError
        If no set tried can be decoded.

    Notes
    -----
    It maximises ``Code.trust(survivors).relative_error`` with this method's vector; all sets for
    which that is beyond float64 are equally bad. It proves nothing: the true worst case may be
    worse.
    Near-exact vectors are worst if stragglers fill a window of the circle evenly, but more densely
    at its ends, like the nodes of quadrature rules.
    """
    s, trials = silent_workers(code, stragglers), at_least("trials", trials, 0)
    rng, kind = np.random.default_rng(at_least("seed", seed, 0)), check_dtype(dtype, halves=True)
    form = code.scheme.format(1, gradient_dtype_of(kind), kind)

    def badness(lost: Ints) -> float:
        """Logarithm of the error if these workers are silent, or -Inf if it is not decodable."""
        survivors = messages_without(code, lost)
        try:
            vector = code.decoding_vector(survivors, method, message_dtype=kind)
            error = trust_by_rows(code.scheme, survivors, vector, form).relative_error
            if code.scheme.exact and method != "auto":  # trust does not include what it lacks
                error = math.hypot(error, code.residual(survivors, vector))
        except NotDecodableError:
            return -math.inf
        except OverflowError:
            return _BEYOND
        return min(_BEYOND, math.log(max(error, sys.float_info.min)))

    starts = [*_starts(code, s, trials, rng)]
    known = [badness(lost) for lost in starts]
    most, worst = max(known), starts[int(np.argmax(known))]
    if most == -math.inf:
        raise NotDecodableError(
            f"no set of {s} silent workers that was tried leaves the gradient decodable; this code "
            f"tolerates {code.stragglers}",
            1,
        )
    for _ in range(3 * trials if s else 0):
        lost = _neighbour(worst, code.n, s, rng)
        if (found := badness(lost)) > most:
            most, worst = found, lost
    return np.unique(worst)


def _neighbour(lost: Ints, n: int, s: int, rng: np.random.Generator) -> Ints:
    """Exchange one of at most s silent workers; in a tenth of the moves, only drop or add one."""
    others = rng.permutation(lost)[1:]
    new = rng.choice(np.setdiff1d(np.arange(n), lost))
    move = rng.random()
    if move < 0.05 and lost.size > 1:
        return others
    return np.append(lost if move > 0.95 and lost.size < s else others, new)


def _starts(code: Code, s: int, trials: int, rng: np.random.Generator) -> Iterator[Ints]:
    yield from contiguous(code.n, s, _WINDOWS, rng)
    if s:
        ring = code.scheme.rings()[0]  # all clusters are alike
        sizes = sorted({min(s, max(1, ring.size * part // 8)) for part in range(1, 9)})
        yield from (ring[:size] for size in sizes)
        for size in rng.choice(sizes, trials).tolist():
            yield ring[_graded(ring.size, size, *rng.random(2))]
    for _ in range(trials):
        yield rng.permutation(code.n)[:s]


def _graded(m: int, size: int, width: float, grade: float) -> Ints:
    """`size` places in a window of a circle of m, more densely at its ends or in its middle."""
    rank = np.arange(size)
    x = (rank + 0.5) / size
    density = 0.3 - grade  # from 0.3, in the middle, to -0.7, at the ends
    x += density * np.sin(2 * np.pi * x) / (2 * np.pi)
    at = np.floor((size + width * (m - size)) * x).astype(np.int64)
    at = np.maximum.accumulate(at - rank) + rank  # distinct places, and all within the window
    return np.minimum(at, m - size + rank)
