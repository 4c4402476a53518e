"""Search for the survivors from which decoding is least precise."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._base.arrays import (
    Array,
    Bools,
    Ints,
    at_least,
    check_dtype,
    check_integer,
    check_real,
    gradient_dtype_of,
)
from ..codes import Code
from ..coding.trust import trust_by_rows
from ..errors import NotDecodableError
from .precision import log_amplification

__all__ = ["WorstCase", "worst_survivors"]

_RINGS = 4  # clusters that are searched: all are alike
_STEPS = 12  # the largest step of a progression
_PLACES = 8  # windows of a contiguous pattern
_PARTS = (2, 3, 4, 6)  # arcs of a union

# Annealing starts from _CLIMBED sets; its temperatures, in logarithms of the error, go from _HOT to
# _COLD. Measured at 256/64, 256/128 and 1000/100: this finds sets twice as bad as with 0.2 at
# first, and three times as bad as with single exchanges that always gain.
_CLIMBED = 3
_HOT, _COLD = 0.05, 0.0025
_NEAR = 8  # most places that an exchange nearby moves

_BEYOND = 1e4  # logarithm that stands for errors beyond float64
_LARGEST = math.log(sys.float_info.max)  # stands for the logarithm of amplifications beyond it

Found = tuple[float, str, Ints]  # how bad a set is, its pattern, and its silent workers


class WorstCase(NamedTuple):
    """The worst survivors found.

    Attributes
    ----------
    survivors : (f,) int64 array
        Numbers of the messages.
    stragglers : (s,) int64 array
        The workers that are silent.
    log10_amplification : float
        Decimal logarithm of the `amplification`, by the vector of this method.
    pattern : str
        How they were found: "contiguous", "arcs", "progression", "graded", "random" or "exchanges".
    error : float
        Relative error that `Code.trust` predicts for the gradient with this method's vector; Inf if
        that is beyond float64.
    start_error : float
        The same for the worst set before exchanges.
    sets : int
        Sets whose errors were computed.
    """

    survivors: Ints
    stragglers: Ints
    log10_amplification: float
    pattern: str
    error: float
    start_error: float
    sets: int


def messages_without(code: Code, stragglers: ArrayLike) -> Ints:
    """Numbers of the messages that come when these workers are silent."""
    heard = np.ones(code.n, dtype=np.bool_)
    heard[np.asarray(stragglers, dtype=np.int64)] = False
    return code.scheme.messages_of(np.flatnonzero(heard))


def silent_workers(code: Code, stragglers: int | None) -> int:
    """How many workers are silent: as many as given, or as the code tolerates."""
    if stragglers is None:
        return code.scheme.known_stragglers()
    s = check_integer("stragglers", stragglers)
    if not 0 <= s < code.n:
        raise ValueError(f"stragglers must be in 0 .. n-1 = {code.n - 1}, not {s}")
    return s


def worst_survivors(
    code: Code,
    stragglers: int | None = None,
    *,
    method: str = "auto",
    dtype: DTypeLike = np.float64,
    trials: int = 200,
    seconds: float | None = None,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> WorstCase:
    """Search for the silent workers that make the decoded gradient least precise.

    It tries stragglers that are contiguous (a rack that fails) and random ones. On the circle of
    the code's evaluation points it tries one arc or several, arithmetic progressions, and windows
    that are filled nearly evenly, or more densely at their ends or in their middle. Then simulated
    annealing exchanges stragglers of the worst sets for others, and moves whole stretches of them.
    Sets with fewer stragglers than allowed are tried too: half a cluster can be worse than a whole
    one.

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
        Number of windows, of random sets, and of exchanges from each of the three worst sets.
    seconds : float, optional
        Time limit, after which at least one set is finished. The result then depends on the
        computer.
    seed : int
    progress : callable, optional
        Called with the number of sets whose errors are known, and the largest number to compute.

    Returns
    -------
    WorstCase

    Raises
    ------
    NotDecodableError
        If no set tried can be decoded.

    Notes
    -----
    The search maximises ``Code.trust(survivors).relative_error`` with this method's vector, or the
    amplification if that error is beyond float64. It proves nothing: the true worst case may be
    worse.

    Near-exact vectors of Reed-Solomon codes are worst if stragglers fill a window of the circle
    evenly, but more densely at its ends, like the nodes of quadrature rules.
    """
    s = silent_workers(code, stragglers)
    trials = at_least("trials", trials, 0)
    until = math.inf
    if seconds is not None:
        until = time.monotonic() + check_real("seconds", seconds, positive=True)
    rng = np.random.default_rng(at_least("seed", seed, 0))
    look = Sight(code, method, dtype)
    starts = list(_starts(code, s, trials, rng))
    total = len(starts) + (_CLIMBED * trials if s else 0)

    def measured(lost: Ints) -> float:
        value = look(lost)
        if progress is not None:
            progress(look.sets, total)
        return value

    known = _worst_of(starts, measured, until)
    if not known:
        raise NotDecodableError(
            f"no set of {s} silent workers that was tried leaves the gradient decodable; this code "
            f"tolerates {code.stragglers}",
            1,
        )
    best = first = known[0]
    moves = _Moves(code, s, rng)
    for start in known if s else []:
        found = _anneal(start, moves, measured, trials, until)
        best = max(best, found, key=itemgetter(0))
    worst = np.unique(best[2])
    survivors = messages_without(code, worst)
    factor = look.amplification(survivors) / math.log(10)
    return WorstCase(
        survivors, worst, factor, best[1], _error(best[0]), _error(first[0]), look.sets
    )


def _worst_of(
    starts: list[tuple[str, Callable[[], Ints]]], measured: Callable[[Ints], float], until: float
) -> list[Found]:
    """The _CLIMBED worst of these sets, the worst first."""
    known: list[Found] = []
    for pattern, make in starts:
        lost = make()
        value = measured(lost)
        if value > -math.inf:
            known.append((value, pattern, lost))
            known.sort(key=itemgetter(0), reverse=True)
            del known[_CLIMBED:]
        if time.monotonic() >= until:
            break
    return known


def _anneal(
    start: Found, moves: _Moves, measured: Callable[[Ints], float], trials: int, until: float
) -> Found:
    """The worst set that simulated annealing meets on its way from `start`."""
    value, _, lost = best = start
    now = np.isin(np.arange(moves.place.size), lost)
    for step in range(trials):
        if time.monotonic() >= until:
            break
        there = moves(now)
        found = measured(np.flatnonzero(there))
        heat = _HOT * (_COLD / _HOT) ** (step / trials)
        if found > value or moves.rng.random() < math.exp(max((found - value) / heat, -700.0)):
            value, now = found, there
            if value > best[0]:
                best = value, "exchanges", np.flatnonzero(now)
    return best


def _error(value: float) -> float:
    """The relative error for a value of `Sight`."""
    return math.exp(value) if value < _BEYOND else math.inf


class Sight:
    """How bad a set of silent workers is: logarithm of the error, or -Inf if it is not decodable.

    If the error is beyond float64, it is `_BEYOND` plus the logarithm of the amplification.
    """

    def __init__(self, code: Code, method: str, dtype: DTypeLike) -> None:
        self.code, self.method, self.sets = code, method, 0
        self.dtype = kind = check_dtype(dtype, halves=True)
        self.form = code.scheme.format(1, gradient_dtype_of(kind), kind)

    def __call__(self, lost: Ints) -> float:
        """How bad it is that these workers are silent."""
        self.sets += 1
        survivors = messages_without(self.code, lost)
        try:
            vector = self._vector(survivors)
        except NotDecodableError:
            return -math.inf
        except OverflowError:
            return _BEYOND + self.amplification(survivors)
        error = trust_by_rows(self.code.scheme, survivors, vector, self.form).relative_error
        if self.code.scheme.exact and self.method != "auto":
            # Trust does not include what the vector lacks.
            error = math.hypot(error, self.code.residual(survivors, vector))
        if not error < math.inf:
            return _BEYOND + self.amplification(survivors)
        return math.log(max(error, sys.float_info.min))

    def error(self, lost: Ints) -> float:
        """The relative error; Inf if the set is not decodable."""
        value = self(lost)
        return math.inf if value == -math.inf else _error(value)

    def _vector(self, survivors: Ints) -> Array:
        return self.code.decoding_vector(survivors, self.method, message_dtype=self.dtype)

    def amplification(self, survivors: Ints) -> float:
        """Logarithm of the amplification, by this method's vector."""
        try:
            vector = self._vector(survivors)
        except OverflowError:
            return _LARGEST
        with np.errstate(divide="ignore"):
            return log_amplification(self.code, survivors, np.log(np.abs(vector)))


class _Moves:
    """Random neighbours of a set of at most s silent workers."""

    def __init__(self, code: Code, s: int, rng: np.random.Generator) -> None:
        self.s, self.rng = s, rng
        self.rings = code.scheme.rings()
        self.ring = np.zeros(code.n, dtype=np.int64)
        self.place = np.zeros(code.n, dtype=np.int64)
        for r, ring in enumerate(self.rings):
            self.ring[ring], self.place[ring] = r, np.arange(ring.size)

    def __call__(self, lost: Bools) -> Bools:
        """A neighbour of this set, or the set itself."""
        rng, there = self.rng, lost.copy()
        silent, heard = np.flatnonzero(lost), np.flatnonzero(~lost)
        kind = rng.random()
        if kind < 0.1 and (len(self.rings) > 1 or silent.size < self.s):
            # one silent worker more or less
            at = rng.integers(lost.size)
            if silent.size - lost[at] > 0 and silent.size + (not lost[at]) <= self.s:
                there[at] = not lost[at]
            return there
        at = rng.choice(silent)
        ring = self.rings[self.ring[at]]
        m, here = ring.size, self.place[at]
        if kind < 0.4:  # move to the next free place, either way
            free = np.flatnonzero(~lost[np.roll(ring, -here)])
            to = ring[(here + rng.choice(free[[0, -1]])) % m] if free.size else at
        elif kind < 0.5:  # move somewhere near
            to = ring[(here + rng.integers(-_NEAR, _NEAR + 1)) % m]
        elif kind < 0.6:  # move anywhere
            to = rng.choice(heard)
        else:  # move a whole stretch by one place
            stretch = ring[(here + np.arange(rng.integers(2, max(m, 3)))) % m]
            there[stretch] = np.roll(lost[stretch], rng.choice((-1, 1)))
            return there
        if not lost[to]:
            there[at], there[to] = False, True
        return there


def _starts(
    code: Code, s: int, trials: int, rng: np.random.Generator
) -> Iterator[tuple[str, Callable[[], Ints]]]:
    """Pairs of a pattern's name and a function that makes a set of it."""
    n = code.n
    for lost in contiguous(n, s, _PLACES, rng):
        yield "contiguous", _taken(np.arange(n), lost)
    rings = code.scheme.rings()[:_RINGS]
    shares = []
    for ring in rings:
        m = ring.size
        sizes = sorted({min(s, max(1, m * part // 8)) for part in range(1, 9)} if s else {0})
        for size in sizes:
            shares.append((ring, size))
            for step in range(1, min(_STEPS, m) + 1):
                at = np.arange(size) * step % m
                if np.unique(at).size == size:
                    # If a set also has a simpler pattern, name it by that: other sets of the
                    # simpler pattern are as bad except for rounding, which must not decide the
                    # worst set's name.
                    gaps = np.diff(ring[at]) % n
                    adjacent = (gaps == 1).all() or (gaps == n - 1).all()
                    pattern = "contiguous" if adjacent else "progression" if step > 1 else "arcs"
                    yield pattern, _taken(ring, at)
            for parts in _PARTS:
                if parts <= size:
                    yield "arcs", _taken(ring, _arcs(m, size, parts))
    for _ in range(trials if s else 0):
        ring, size = shares[rng.integers(len(shares))]
        yield "graded", _taken(ring, _graded(ring.size, size, *rng.random(2)))
    for _ in range(trials):
        yield "random", lambda: rng.permutation(n)[:s]


def _taken(ring: Ints, places: Ints) -> Callable[[], Ints]:
    return lambda: ring[places]


def _arcs(m: int, size: int, parts: int) -> Ints:
    """`size` places on a circle of m, in `parts` arcs of equal lengths and distances."""
    i = np.arange(size)
    return i + i * parts // size * (m - size) // parts


def _graded(m: int, size: int, width: float, grade: float) -> Ints:
    """`size` places in a window of a circle of m, more densely at its ends or in its middle."""
    x = (np.arange(size) + 0.5) / size
    density = 0.3 - grade  # from 0.3, in the middle, to -0.7, at the ends
    x += density * np.sin(2 * np.pi * x) / (2 * np.pi)
    at = np.floor((size + width * (m - size)) * x).astype(np.int64)
    # distinct places, all within the window
    rank = np.arange(size)
    at = np.maximum.accumulate(at - rank) + rank
    return np.minimum(at, m - size + rank)


def contiguous(n: int, s: int, count: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Windows of s neighbours around the circle of n workers: all, or `count` random ones."""
    starts = np.arange(n) if n <= count else np.sort(rng.permutation(n)[:count])
    for start in starts.tolist():
        yield (start + np.arange(s)) % n
