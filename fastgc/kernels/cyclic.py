"""Tables of cyclic Reed-Solomon codes, and what is shared by the kernels that read them.

With theta = pi q t / m, for every integer t,

    1 - alpha^t = 2 sin(theta) exp(i (theta - pi/2)),    alpha = exp(2 pi i q / m),

so the factors of a decoding vector (Halbawi et al., eq. 14) are kept in polar form: a product of
them is a *real* product times one phase, whose angle is a whole number of steps of pi/m and of
quarter turns. That is a quarter of the arithmetic of complex products, and the phase is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LOCATOR",
    "LOOKUP",
    "SPREAD",
    "CyclicPlan",
    "CyclicTables",
    "Decode",
    "Status",
    "Where",
    "cyclic_tables",
    "fourier_vector",
    "log_magnitudes",
    "sines",
]

# The numbers are csrc/fastgc.h's fgc_method.
LOCATOR = 0  # product over the stragglers, O(f s)
LOOKUP = 1  # Algorithm 3 of Halbawi et al.: product over the other survivors, O(f^2)
SPREAD = 2  # locator, or where that is ill-conditioned, from the survivors that are spread best

PI = np.longdouble("3.14159265358979323846264338327950288")
PAD = 8  # ones after each table, so that full vectors may be read at its end


class Status(IntEnum):
    """What a kernel found; the numbers are csrc/fastgc.h's fgc_status."""

    OK = 0
    OUT_OF_RANGE = 1
    DUPLICATE = 2
    TOO_FEW = 3
    OVERFLOW = 4
    NO_MEMORY = 5
    NOT_FINITE = 6


Decode: TypeAlias = Callable[[int, int], int]


class Where(Protocol):
    """One integer, at index 0: where the last status applies."""

    def __getitem__(self, at: Literal[0], /) -> int: ...


class CyclicTables(NamedTuple):
    """Tables of a direct sum of cyclic codes ("blocks"), laid end to end.

    A named tuple of arrays, so that Numba takes it as an argument. csrc/fastgc.h describes the
    fields (there, ``fgc_cyclic``).
    """

    start: NDArray[np.int64]
    need: NDArray[np.int64]
    q: NDArray[np.int64]
    offset: NDArray[np.int64]
    phase_offset: NDArray[np.int64]
    sine: NDArray[np.float64]
    cosecant: NDArray[np.float64]
    phase: NDArray[np.float64]


class CyclicPlan:
    """Tables plus whatever a backend wants to keep beside them.

    Attributes
    ----------
    tables : CyclicTables
    workers : int
    c : Any
        The C backend's view of the tables, made when first asked for.
    """

    __slots__ = ("c", "tables", "workers")

    def __init__(self, tables: CyclicTables) -> None:
        self.tables = tables
        self.workers = int(tables.start[-1])
        self.c: Any = None


def sines(m: int, q: int) -> NDArray[np.float64]:
    """``2 sin(pi q t / m)`` for t = -m .. m-1; the angle is reduced in integers.

    In extended precision where there is one: the rounding of pi would bias every factor alike, and
    the error of a product would grow with the number of its factors instead of its root.
    """
    turns = (q * np.arange(m)) % (2 * m)  # theta = pi turns / m
    sign = np.where(turns < m, 2.0, -2.0)
    turns %= m
    half = (sign * np.sin(PI * np.minimum(turns, m - turns) / m)).astype(np.float64)
    # sin(theta - pi q) = (-1)^q sin(theta)
    return np.concatenate([half if q % 2 == 0 else -half, half])


def cyclic_tables(blocks: Sequence[tuple[int, int, int]]) -> CyclicTables:
    """Tables for blocks (workers m, root q, survivors needed); like blocks share theirs."""
    offsets: dict[tuple[int, int], tuple[int, int]] = {}
    sine, phase = [], []
    at = phase_at = 0
    for m, q, _ in blocks:
        if (m, q) not in offsets:
            offsets[m, q] = at, phase_at
            sine += [sines(m, q), np.ones(PAD)]
            angle = np.pi * np.arange(2 * m) / m
            phase.append(np.stack([np.cos(angle), np.sin(angle)], axis=1).ravel())
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
        # a survivor is no factor of its own entry
        cosecant=np.divide(1.0, table, out=np.ones_like(table), where=table != 0),
        phase=np.concatenate(phase),
    )


def _cyclic_convolution(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    m = x.size
    rest = m
    for prime in (2, 3, 5, 7):
        while rest % prime == 0:
            rest //= prime
    # A length with a large prime factor costs several times its neighbours: pad and fold instead.
    length = m if rest == 1 else 1 << (2 * m - 1).bit_length()
    product = np.fft.irfft(np.fft.rfft(x, length) * np.fft.rfft(y, length), length)
    return product if length == m else product[:m] + np.append(product[m : 2 * m - 1], 0.0)


def _log_magnitudes(tables: CyclicTables, b: int, lost: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Logarithm of block b's locator products, without 1/m: a cyclic convolution."""
    m = lost.size
    half = tables.sine[tables.offset[b] + m : tables.offset[b] + 2 * m]
    # log of the zero at t = 0 only ever reaches the stragglers' own, unused entries
    log_table = np.log(np.abs(half), out=np.zeros(m), where=half != 0)
    return _cyclic_convolution(lost.astype(float), log_table)


def log_magnitudes(tables: CyclicTables, survivors: NDArray[np.int64]) -> NDArray[np.float64]:
    """``log|a_i|`` of the decoding vector, O(n log n): cannot overflow."""
    start = tables.start
    lost = np.ones(int(start[-1]), dtype=bool)
    lost[survivors] = False
    blocks = [
        _log_magnitudes(tables, b, lost[lo:hi]) - np.log(hi - lo)
        for b, (lo, hi) in enumerate(pairwise(start.tolist()))
    ]
    found: NDArray[np.float64] = np.concatenate(blocks)[survivors]
    return found


def fourier_vector(
    tables: CyclicTables, survivors: NDArray[np.int64], out: NDArray[np.complex128]
) -> None:
    """Quasi-linear decoding vector: the locator product's logarithm is a cyclic convolution.

    NumPy for every backend: the transform is compiled already. Expects survivors that decode;
    writes ``out[:f]``. Its error is that of the logarithms, about 1e-16 times the largest
    ``sum_j log|1 - alpha^(i-j)|``.
    """
    n = int(tables.start[-1])
    straggles = np.ones(n, dtype=bool)
    straggles[survivors] = False
    value = np.empty(n, dtype=np.complex128)
    for b, q in enumerate(tables.q):
        lo, hi = tables.start[b], tables.start[b + 1]
        m = int(hi - lo)
        lost = straggles[lo:hi]
        log_size = _log_magnitudes(tables, b, lost)
        index = np.flatnonzero(lost)
        # With theta = pi r / m for the residues r = q (i-j) mod m all sines are positive, and the
        # angles add up exactly: sum r = s x - sum(y) + m #{y > x}, x = q i mod m, y = q j mod m.
        x = (q * np.arange(m)) % m
        y = np.sort((q * index) % m)
        residues = index.size * x - y.sum() + m * (index.size - np.searchsorted(y, x, side="right"))
        turn = residues % (2 * m)
        phase = tables.phase[tables.phase_offset[b] : tables.phase_offset[b] + 4 * m]
        quarter = (1, -1j, -1, 1j)[index.size % 4]
        with np.errstate(over="ignore", invalid="ignore"):
            value[lo:hi] = np.exp(log_size) / m * (phase.view(np.complex128)[turn] * quarter)
    out[: survivors.size] = value[survivors]
