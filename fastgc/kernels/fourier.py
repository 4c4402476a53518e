"""Quasi-linear decoding vectors: the locator product's logarithm is a cyclic convolution.

``log|a_i| + log m = sum over stragglers j of log|1 - alpha^(i-j)|`` convolves the stragglers'
indicator with one table. The transforms are NumPy's, which are compiled already. Marks,
signs and phases, exact in integers, are kernels.

An entry's relative error is the absolute error of its logarithm. Compared with sums in extended
precision, it is 1e-13 at n = 65536 and 6e-13 at n = 2^20 for random stragglers. Stragglers that lie
regularly have transforms with coefficients of up to n / pi, whose rounding is in all entries: below
1e-12 up to n = 2^15, and 1e-11 at n = 2^20 for workers with neighbouring numbers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .._base.arrays import Array, Complexes, Floats, Ints
from . import unchecked
from .cyclic import CyclicPlan, Status


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
    def of(cls, table: Array) -> Transform:
        """Transform an even table of cyclic sums, of t = 0 .. m-1."""
        m, length = table.size, transform_length(table.size)
        if length > m:  # t = 0 .. m-1, and -(m-1) .. -1 at the end
            table = np.concatenate([table, np.zeros(length - 2 * m + 1), table[1:]])
        return cls(length, np.fft.rfft(table).real.astype(np.float64))

    def convolve(self, x: Floats, spectrum: Complexes) -> None:
        """Overwrite x, of shape (length,) and 0 from m on, with its convolution."""
        np.fft.rfft(x, out=spectrum)
        spectrum *= self.kernel
        np.fft.irfft(spectrum, self.length, out=x)


def logarithms(m: int, q: int) -> Array:
    """log|1 - alpha^t|, t = 0 .. m-1, for alpha = exp(2 pi i q / m), with 0 at t = 0.

    In extended precision where there is one. The largest coefficient of its transform is about
    -m / 2: otherwise its rounding would be in all coefficients. Those of stragglers that lie
    regularly are as large.
    """
    turns = q * np.arange(m) % m
    half = 4 * np.arctan(np.longdouble(1)) * np.minimum(turns, m - turns) / m
    table = np.zeros(m, dtype=np.longdouble)
    table[1:] = np.log(2 * np.sin(half[1:]))
    return table


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


class Fourier:
    """Decoding vectors by transforms, on two fixed buffers.

    Two threads must not use it at once. `where` says where a status applies.
    """

    def __init__(self, plan: CyclicPlan, survivors: Ints, out: Complexes) -> None:
        tables, kept = plan.tables, plan.transforms
        self._blocks = []
        for b, (lo, hi) in enumerate(pairwise(tables.start.tolist())):
            key = hi - lo, int(tables.q[b])
            if key not in kept:
                kept[key] = Transform.of(logarithms(*key))
            self._blocks.append((slice(lo, hi), kept[key]))
        longest = max(transform.length for _, transform in self._blocks)
        self._x = np.empty(longest)
        self._spectrum = np.empty(longest // 2 + 1, dtype=np.complex128)
        # Polar marks survivors in the first, and reads magnitudes from the second.
        self._present, self._size = np.empty(plan.workers, dtype=np.bool_), np.empty(plan.workers)
        self._polar = unchecked.bind_polar(plan, survivors, self._present, self._size, out)
        self.where = self._polar.where

    def vector(self, f: int) -> int:
        """Check ``survivors[:f]`` and write their vector to ``out[:f]``. Returns a `Status`."""
        status = self._polar.mark(f)
        if status == Status.OK:
            self._write_logarithms()
            with np.errstate(over="ignore", under="ignore"):
                np.exp(self._size, out=self._size)
            status = self._polar.write(f)
        return status

    def _write_logarithms(self) -> None:
        """Write ``log|a_i|`` of all workers to `_size`."""
        for part, transform in self._blocks:
            m = part.stop - part.start
            x = self._x[: transform.length]
            # Subtract the mean, which would add rounding errors: its part, log m, is known.
            density = 1 - np.count_nonzero(self._present[part]) / m
            np.subtract(1 - density, self._present[part], out=x[:m])
            x[m:] = 0
            transform.convolve(x, self._spectrum[: transform.length // 2 + 1])
            np.add(x[:m], (density - 1) * np.log(m), out=self._size[part])


# Transforms of m workers take as long as products of so many factors. Measured by C with AVX-512:
# 512 factors at m = 1024 and 390 at 2048; on an Intel Xeon 310 at 4096, 290 at 16384, 240 at 65536;
# on an AMD EPYC 325, 318 and 328.
FACTORS = 320


def crossover(m: int) -> int:
    """Factors from which on transforms are faster for blocks of any m workers, 1024 or more.

    A vector by products takes time in proportion to workers times factors.
    """
    return round(FACTORS * transform_length(m) / m)
