"""Quasi-linear decoding vectors: the locator product's logarithm is a cyclic convolution.

``log|a_i| + log m = sum over stragglers j of log|1 - alpha^(i-j)|`` convolves the stragglers'
indicator with one table. Every backend uses NumPy's transforms, which are compiled already. Marks,
signs and phases, exact in integers, are kernels.

An entry's relative error is the absolute error of its logarithm. Compared with sums in extended
precision, it is 1e-13 at n = 65536 and 6e-13 at n = 2^20 for random stragglers. Stragglers that lie
regularly have transforms with coefficients of up to n / pi, whose rounding is in all entries: below
1e-12 up to n = 2^15, and 1e-11 at n = 2^20 for workers with neighbouring numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .._base.arrays import Bools, Complexes, Floats, Ints
from . import numpy as plain
from .choice import backend
from .cyclic import CyclicPlan, CyclicStream, Polar, Status, sines
from .dispatch import own


class Transform(NamedTuple):
    """The table of one block, transformed.

    Attributes
    ----------
    length : int
        Length of the transforms: m, or at least 2 m - 1 if m has a large prime factor.
    kernel : (length // 2 + 1,) float64 array
        Real, as the table is even.
    """

    length: int
    kernel: Floats

    @classmethod
    def of(cls, m: int, q: int) -> Transform:
        """Transform log|1 - alpha^t|, alpha = exp(2 pi i q / m), with 0 at t = 0.

        In extended precision where there is one. The largest coefficient is about -m / 2: otherwise
        its rounding would be in all coefficients. Those of stragglers that lie regularly are as
        large.
        """
        table = np.zeros(m, dtype=np.longdouble)
        table[1:] = np.log(np.abs(sines(m, q)[m + 1 :]).astype(np.longdouble))
        length = transform_length(m)
        if length > m:  # t = 0 .. m-1, and -(m-1) .. -1 at the end
            between = np.zeros(length - 2 * m + 1, dtype=np.longdouble)
            table = np.concatenate([table, between, table[1:]])
        return cls(length, np.fft.rfft(table).real.astype(np.float64))

    def convolve(self, x: Floats, spectrum: Complexes) -> None:
        """Overwrite x, of shape (length,) and 0 from m on, with its convolution."""
        np.fft.rfft(x, out=spectrum)
        spectrum *= self.kernel
        np.fft.irfft(spectrum, self.length, out=x)


def _smooth(length: int) -> bool:
    """Whether transforms of this length take no longer than those of others nearby."""
    for prime in (2, 3, 5, 7, 11):
        while length % prime == 0:
            length //= prime
    return length == 1


def transform_length(m: int) -> int:
    """m, or the shortest fast length that an acyclic convolution of m numbers fits in."""
    if _smooth(m):
        return m
    length = 2 * m - 1
    while not _smooth(length):
        length += 1
    return length


class Logarithms:
    """Computes ``log|a_i|`` of all workers by transforms, on its own buffers."""

    def __init__(self, plan: CyclicPlan) -> None:
        tables, kept = plan.tables, plan.transforms
        self._blocks = []
        for b, (lo, hi) in enumerate(pairwise(tables.start.tolist())):
            key = hi - lo, int(tables.q[b])
            if key not in kept:
                kept[key] = Transform.of(*key)
            self._blocks.append((slice(lo, hi), kept[key]))
        longest = max(transform.length for _, transform in self._blocks)
        self._x = np.empty(longest)
        self._spectrum = np.empty(longest // 2 + 1, dtype=np.complex128)

    def write(self, present: Bools, size: Floats) -> None:
        """Write to `size` for the survivors marked in `present`; both have shape (n,)."""
        for part, transform in self._blocks:
            m = part.stop - part.start
            x = self._x[: transform.length]
            # Subtract the mean, which would add rounding errors: its part, log m, is known.
            density = 1 - np.count_nonzero(present[part]) / m
            np.subtract(1 - density, present[part], out=x[:m])
            x[m:] = 0
            transform.convolve(x, self._spectrum[: transform.length // 2 + 1])
            np.add(x[:m], (density - 1) * np.log(m), out=size[part])


def fourier_rebuild(plan: CyclicPlan, stream: CyclicStream) -> None:
    """`StreamCalls.rebuild` by transforms, O(n log n)."""
    tables, size = plan.tables, np.empty(plan.workers)
    Logarithms(plan).write(~stream.away, size)
    size /= np.log(2)
    exponent = 2 * np.floor(size / 2).astype(np.int64)  # even, as Numba's `scale` needs
    np.exp2(size - exponent, out=size)
    for b, (lo, hi) in enumerate(pairwise(tables.start.tolist())):
        m, lost = hi - lo, np.flatnonzero(stream.away[lo:hi])
        # A sine of pi q (i-j) / m is negative for an odd number q (i-j) // m of half turns. With
        # x = q i mod m, y = q j mod m that is q i // m - q j // m, and one less where y > x.
        turned = tables.q[b] * np.arange(m)
        whole = turned // m
        x = turned - m * whole
        up_to = np.zeros(m, dtype=np.int64)
        up_to[x[lost]] = 1
        above = lost.size - np.cumsum(up_to)[x]
        half_turns = lost.size * whole - whole[lost].sum() - above
        stream.product[lo:hi] = size[lo:hi] * np.where(half_turns & 1, -m, m)
        stream.exponent[lo:hi] = exponent[lo:hi]
        stream.lost[b], stream.lost_sum[b], stream.pending[b] = lost.size, lost.sum(), 1


class Fourier:
    """Decoding vectors by transforms, on two fixed buffers.

    Two threads must not use it at once.

    Parameters
    ----------
    plan : CyclicPlan
    present : (n,) bool array
        `polar` marks survivors here.
    size : (n,) float64 array
        `polar` reads the magnitude of each worker's entry here.
    polar : Polar
    """

    def __init__(self, plan: CyclicPlan, present: Bools, size: Floats, polar: Polar) -> None:
        self._present, self.size, self._polar = present, size, polar
        self.where = polar.where
        self._logarithms = Logarithms(plan)

    def vector(self, f: int) -> int:
        """Check ``survivors[:f]`` and write their vector to ``out[:f]``. Returns a `Status`."""
        status = self._polar.mark(f)
        if status == Status.OK:
            self._logarithms.write(self._present, self.size)
            with np.errstate(over="ignore", under="ignore"):
                np.exp(self.size, out=self.size)
            status = self._polar.write(f)
        return status

    def logarithms(self, f: int) -> int:
        """Check ``survivors[:f]`` and write ``exp(i arg a)`` to ``out[:f]``. Returns a `Status`.

        Also writes ``log|a_i|`` of every survivor i, which cannot overflow, to `size`.
        """
        status = self._polar.mark(f)
        if status == Status.OK:
            self.size[:] = 1
            status = self._polar.write(f)
            self._logarithms.write(self._present, self.size)
        return status


def bind_fourier(plan: CyclicPlan, survivors: Ints, out: Complexes) -> Fourier:
    """Prepare decoding vectors by transforms on two fixed buffers."""
    present, size = np.empty(plan.workers, dtype=np.bool_), np.empty(plan.workers)
    polar = own(plain.bind_polar)(plan, survivors, present, size, out)
    return Fourier(plan, present, size, polar)


SIZES = tuple(1 << bits for bits in range(6, 21))

# For each of SIZES, the factors from which on transforms are faster than products, measured on an
# Intel Xeon with AVX-512; benches/test_auto.py shows how well they fit. On another machine,
# ``method="auto"`` may take the slower way where both take about as long. If the number is more
# than half of the workers, products are always faster.
BUILT_IN = {
    "c avx512": (640, 1280, 1020, 640, 470, 330, 262, 250, 262, 232, 236, 270, 275, 197, 150),
    "c avx2": (640, 1280, 730, 469, 321, 218, 180, 188, 200, 190, 201, 240, 243, 180, 150),
    "c baseline": (640, 903, 502, 318, 219, 153, 140, 145, 145, 140, 145, 170, 174, 140, 125),
    "numba": (640, 1280, 1100, 658, 432, 323, 260, 265, 285, 265, 275, 315, 320, 218, 160),
    "numpy": (20, 20, 27, 47, 50, 43, 46, 51, 66, 100, 100, 50, 45, 50, 41),
}


def crossover_kind() -> str:
    """The key in BUILT_IN: the backend in use, and for C its level of SIMD instructions."""
    name = backend()
    if name != "c":
        return name
    from .c import simd

    return f"c {simd()}"


def crossover_table() -> Mapping[int, int]:
    """Factors from which on transforms are faster, by length, for the backend in use."""
    return dict(zip(SIZES, BUILT_IN.get(crossover_kind(), BUILT_IN["c avx512"]), strict=True))


def crossover(m: int) -> int:
    """Factors from which on transforms are faster for blocks of any m workers.

    A vector by products takes time in proportion to workers times factors; by transforms, to
    m log m.
    """
    counts = crossover_table()
    length = transform_length(m)
    log = np.interp(math.log2(length), np.log2(list(counts)), np.log2(list(counts.values())))
    return max(1, round(2.0**log * length / m))
