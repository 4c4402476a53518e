"""Survivors that are hard to decode from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import at_least, check_integer
from ..codes import Code
from ..errors import NotDecodableError
from .bounds import amplification

__all__ = ["WorstCase", "messages_without", "worst_survivors"]

_RINGS = 4  # clusters searched: they are alike
_STEPS = 12  # of progressions
_PLACES = 8  # windows of a contiguous pattern

Numbers = NDArray[np.int64]


class WorstCase(NamedTuple):
    """The worst survivors found.

    Attributes
    ----------
    survivors : (f,) int64 array
        Numbers of the messages.
    stragglers : (s,) int64 array
        The workers that are silent.
    log10_amplification : float
        Decimal logarithm of the `amplification`.
    pattern : str
        How they were found: "contiguous", "progression", "random" or "greedy".
    """

    survivors: Numbers
    stragglers: Numbers
    log10_amplification: float
    pattern: str


def messages_without(code: Code, stragglers: ArrayLike) -> Numbers:
    """Numbers of the messages that come when these workers are silent."""
    return code.messages_of(np.setdiff1d(np.arange(code.n), stragglers))


def worst_survivors(
    code: Code, stragglers: int | None = None, *, trials: int = 200, seed: int = 0
) -> WorstCase:
    """Search for the silent workers that make decoding amplify rounding the most.

    Tries stragglers that are contiguous (a rack that fails), in arithmetic progressions along the
    order of the code's evaluation points, and random; then exchanges single stragglers of the worst
    found so far as long as that makes it worse. Sets of fewer stragglers than allowed are tried
    too: half a cluster can be worse than a whole one.

    Parameters
    ----------
    code : Code
    stragglers : int, optional
        Silent workers, at most. Default: ``code.stragglers``.
    trials : int, default 200
        Random sets, and as many exchanges.
    seed : int

    Returns
    -------
    WorstCase

    Raises
    ------
    NotDecodableError
        If no set tried can be decoded.

    Notes
    -----
    A search, not a proof: the true worst case may be worse.
    """
    s = code.known_stragglers() if stragglers is None else check_integer("stragglers", stragglers)
    if not 0 <= s < code.n:
        raise ValueError(f"stragglers must be in 0 .. n-1 = {code.n - 1}, not {s}")
    if (trials := check_integer("trials", trials)) < 0:
        raise ValueError(f"trials must not be negative, but is {trials}")
    rng = np.random.default_rng(at_least("seed", seed, 0))
    worst, size, found = np.empty(0, dtype=np.int64), -math.inf, "contiguous"

    def measure(lost: Numbers) -> float:
        try:
            return amplification(code, messages_without(code, lost), log=True)
        except NotDecodableError:
            return -math.inf

    for pattern, lost in _candidates(code, s, trials, rng):
        value = measure(lost)
        if value > size:
            worst, size, found = lost, value, pattern
    for _ in range(trials if 0 < worst.size < code.n else 0):
        lost = worst.copy()
        others = np.setdiff1d(np.arange(code.n), worst)
        lost[rng.integers(lost.size)] = rng.choice(others)
        value = measure(lost)
        if value > size:
            worst, size, found = lost, value, "greedy"
    if size == -math.inf:
        raise NotDecodableError(
            f"no set of {s} silent workers that was tried leaves the gradient decodable; this code "
            f"tolerates {code.stragglers}",
            1,
        )
    worst = np.sort(worst)
    return WorstCase(messages_without(code, worst), worst, size / math.log(10), found)


def _candidates(
    code: Code, s: int, trials: int, rng: np.random.Generator
) -> Iterator[tuple[str, Numbers]]:
    n = code.n
    for lost in contiguous(n, s, _PLACES, rng):
        yield "contiguous", lost
    for ring in code.rings()[:_RINGS]:
        m = ring.size
        sizes = {min(s, max(1, m * part // 8)) for part in range(1, 9)}
        for step in range(1, min(_STEPS, m) + 1):
            for size in sorted(sizes):
                at = np.arange(size) * step % m
                if np.unique(at).size == size:
                    yield "progression", ring[at]
    for _ in range(trials):
        yield "random", rng.permutation(n)[:s]


def contiguous(n: int, s: int, count: int, rng: np.random.Generator) -> Iterator[Numbers]:
    """Windows of s neighbours around the circle of n workers: all, or `count` of them."""
    starts = np.arange(n) if n <= count else np.sort(rng.permutation(n)[:count])
    for start in starts.tolist():
        yield (start + np.arange(s)) % n
