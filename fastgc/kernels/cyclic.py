"""Tables of cyclic Reed-Solomon codes, and types that the kernels on them share.

With theta = pi q t / m, for every integer t,

    1 - alpha^t = 2 sin(theta) exp(i (theta - pi/2)),    alpha = exp(2 pi i q / m).

So the factors of a decoding vector (Halbawi et al., eq. 14) are kept in polar form. A product of
factors is a *real* product times one phase, whose angle is an integer number of steps of pi/m and
of quarter turns. It takes a quarter of the arithmetic of complex products, and the phase is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from .._base.arrays import Complexes, Floats, Ints

# The numbers are those of fgc_method in csrc/fastgc.h.
LOCATOR = 0  # product over the stragglers, O(f s)
LOOKUP = 1  # Algorithm 3 of Halbawi et al.: product over the other survivors, O(f^2)
SPREAD = 2  # locator; if that is ill-conditioned, from the survivors that are spread best

PI = np.longdouble("3.14159265358979323846264338327950288")
PAD = 8  # so many ones follow each table: full vectors may be read at its end


class Status(IntEnum):
    """What a kernel found; the numbers are those of fgc_status in csrc/fastgc.h."""

    OK = 0
    OUT_OF_RANGE = 1
    DUPLICATE = 2
    TOO_FEW = 3
    OVERFLOW = 4
    NO_MEMORY = 5
    NOT_FINITE = 6
    IMPRECISE = 7
    MISPLACED = 8


Decode: TypeAlias = Callable[[int, int], int]


class Where(Protocol):
    """One integer, at index 0: where the last status applies."""

    def __getitem__(self, at: Literal[0], /) -> int: ...
    def __setitem__(self, at: Literal[0], value: int, /) -> None: ...


class CyclicTables(NamedTuple):
    """Tables of a direct sum of cyclic codes ("blocks"), laid end to end.

    A named tuple of arrays, so that Numba takes it as an argument. ``fgc_cyclic`` in csrc/fastgc.h
    describes the fields.
    """

    start: Ints
    need: Ints
    q: Ints
    offset: Ints
    phase_offset: Ints
    sine: Floats
    cosecant: Floats
    phase: Floats


class CyclicPlan:
    """Tables, and what backends keep beside them.

    Attributes
    ----------
    tables : CyclicTables
    workers : int
    transforms : dict
        Transformed tables by (m, q), made at their first use: see `fastgc.kernels.fourier`.
    c : Any
        The C backend's view of the tables, made at its first use.
    """

    __slots__ = ("c", "tables", "transforms", "workers")

    def __init__(self, tables: CyclicTables) -> None:
        self.tables = tables
        self.workers = int(tables.start[-1])
        self.transforms: dict[tuple[int, int], Any] = {}
        self.c: Any = None


def sines(m: int, q: int) -> Floats:
    """``2 sin(pi q t / m)`` for t = -m .. m-1; the angle is reduced in integers."""
    half = 2 * _sine(m, 2 * q * np.arange(m))
    # sin(theta - pi q) = (-1)^q sin(theta)
    return np.concatenate([half if q % 2 == 0 else -half, half])


@lru_cache(maxsize=2)
def _quadrant(m: int) -> Floats:
    """``sin(pi k / (2 m))``, k = 0 .. m, rounded once.

    Computed in extended precision where there is one. Otherwise the rounding of pi would bias every
    factor alike, and a product's error would grow like the number of factors, not like its root.
    """
    found: Floats = np.sin(PI * np.arange(m + 1) / (2 * m)).astype(np.float64)
    found.flags.writeable = False
    return found


def _sine(m: int, k: Ints) -> Floats:
    """``sin(pi k / (2 m))`` for any integers k."""
    k = k % (4 * m)
    half = k % (2 * m)
    size = _quadrant(m)[np.minimum(half, 2 * m - half)]
    return np.negative(size, out=size, where=k >= 2 * m)


@lru_cache(maxsize=4)
def circle(m: int) -> Complexes:
    """``exp(pi i u / m)``, u = 0 .. 2m-1, each part rounded once."""
    angle = 2 * np.arange(2 * m)
    parts = np.stack([_sine(m, angle + m), _sine(m, angle)], axis=1)
    found: Complexes = parts.view(np.complex128).ravel()
    found.flags.writeable = False
    return found


def cyclic_tables(blocks: Sequence[tuple[int, int, int]]) -> CyclicTables:
    """Tables for blocks (workers m, root q, survivors needed); equal blocks share tables."""
    offsets: dict[tuple[int, int], tuple[int, int]] = {}
    sine, phase = [], []
    at = phase_at = 0
    for m, q, _ in blocks:
        if (m, q) not in offsets:
            offsets[m, q] = at, phase_at
            sine += [sines(m, q), np.ones(PAD)]
            phase.append(circle(m).view(np.float64))
            at += 2 * m + PAD
            phase_at += 4 * m
    table = np.concatenate(sine)
    return CyclicTables(
        start=np.cumsum([0, *(m for m, _, _ in blocks)], dtype=np.int64),
        need=np.array([need for _, _, need in blocks], dtype=np.int64),
        q=np.array([q for _, q, _ in blocks], dtype=np.int64),
        offset=np.array([offsets[m, q][0] for m, q, _ in blocks], dtype=np.int64),
        phase_offset=np.array([offsets[m, q][1] for m, q, _ in blocks], dtype=np.int64),
        sine=table,
        # 1 at t = 0: a survivor is not a factor of its own entry
        cosecant=np.divide(1.0, table, out=np.ones_like(table), where=table != 0),
        phase=np.concatenate(phase),
    )


class Polar(NamedTuple):
    """A backend's part of decoding by transforms, on fixed buffers.

    Attributes
    ----------
    mark : callable
        ``mark(f)`` checks ``survivors[:f]`` and marks them; returns a `Status`.
    write : callable
        ``write(f)`` writes ``out[:f]`` from the magnitudes; returns a `Status`.
    where : Where
        Where the last status applies.
    """

    mark: Callable[[int], int]
    write: Callable[[int], int]
    where: Where
