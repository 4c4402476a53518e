"""Sums of a polynomial's values, from its values at some of very many structured points.

Lagrange coded computing needs ``sum_j h(alpha_j)`` over K points alpha from values of h, deg h <= 2
K - 2, at 2 K - 1 of M points beta. If both are Chebyshev points, the sum is K times the mean of
h's Chebyshev series, and so is K / M times the sum over all M points beta. So the coefficient of
``h(beta_k)`` is ``K / M (1 + sum_j l_k(beta_j))``, over the points j that are missing. For roots of
unity, ``h(beta_j)`` has the factor ``1 + beta_j^-K``. (`fastgc.interpolation` computes the same for
any points, in O(M^2).)

All points here are on one grid, so the products in ``l_k(beta_j)`` take O(M log M): their
logarithms are a convolution of two sequences, of which one has only zeros and ones. The other one
is split into multiples of 2^-20, whose convolution is rounded to what it is exactly, and small
rests. What is left, ``sum_j u_j / (beta_j - beta_k)``, takes O(M) by a fast multipole method:
charges of a box of neighbouring points are interpolated to a few Chebyshev points, for all boxes
that are not next to it (Dutt, Gu & Rokhlin 1996). Each sum is as precise as if its terms were added
one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._base.arrays import Array, Complexes, Floats, Ints
from . import interpolation

__all__ = ["Quadrature"]


_PI = np.longdouble("3.14159265358979323846264338327950288")
_STEP = 2.0**-20  # rounding of transforms is smaller, up to 10^8 points
_INSIDE = 20  # points of a box: kernels of boxes apart are interpolated to 1e-16
_LEAF = 24  # points of the smallest boxes
_TOGETHER = 1 << 18  # entries of kernels made at a time: 2 MB


class _Products(NamedTuple):
    """Signed products of the distances to all points that came, as mantissa times 2^exponent."""

    mantissa: Floats
    exponent: Ints


class Quadrature:
    """Sums over K points of a polynomial with values at some of M > K points; see this module.

    Points of the grid have numbers, `places`: as in `interpolation.chebyshev`, or as in
    ``interpolation.roots_of_unity(M, 0.5)`` if `roots`.
    """

    def __init__(self, K: int, M: int, roots: bool) -> None:
        self.K, self.M, self.roots = K, M, roots
        self._turn = M if roots else 2 * M  # places on the circle: Chebyshev points have mirrors

    def weights(self, places: Ints) -> Array:
        """Coefficients of the values at 2 K - 1 distinct places; Inf or NaN beyond float64."""
        products, u, top = self._charges(places)
        total = self._sums(u * self._given * self._phase, 1)[places]
        with np.errstate(over="ignore", invalid="ignore"):
            mantissa, exponent = (each[places] for each in products)
            factor = np.ldexp(1 / mantissa, np.clip(top - exponent, -9000, 9000).astype(np.intc))
            missing = total * factor * self._phase[places].conj()
            found: Array = (self._given[places] + missing) * (self.K / self.M)
        return found

    def squares(self, places: Ints) -> Floats:
        """For each coefficient, the sum of the squared moduli of the terms that it is made of."""
        products, u, top = self._charges(places)
        total = self._sums(np.abs(u * self._given) ** 2, 2)[places]
        with np.errstate(over="ignore", invalid="ignore"):
            mantissa, exponent = (each[places] for each in products)
            shift = np.clip(2 * (top - exponent), -9000, 9000).astype(np.intc)
            missing = np.ldexp(total / mantissa**2, shift)
            found: Floats = (np.abs(self._given[places]) ** 2 + missing) * (self.K / self.M) ** 2
        return found

    def basis(self, places: Ints, at: Ints) -> Array:
        """``l_k(beta_j)`` on the nodes at `places`, for each place j in `at`, which are others."""
        mantissa, exponent = self._products(places)
        shift = np.clip(exponent[at][:, None] - exponent[places], -9000, 9000).astype(np.intc)
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.ldexp(mantissa[at][:, None] / mantissa[places], shift)
            found = found * self._inverse(at[:, None], places)
            both: Array = found * self._phase[at][:, None] * self._phase[places].conj()
        return both

    def values(self, at_alpha: Array) -> Array:
        """Values at all places of polynomials with these values at the K points, one a column."""
        K, M = self.K, self.M
        number = np.arange(K)[:, None]
        if self.roots:
            series = np.fft.fft(at_alpha, axis=0) * np.exp(1j * np.pi / M * number)
            return np.asarray(np.fft.ifft(series, M, axis=0) * (M / K))
        real = np.ascontiguousarray(at_alpha)
        if real.dtype.kind == "c":
            parts = [self.values(part) for part in (real.real, real.imag)]
            return np.asarray(parts[0] + 1j * parts[1])
        series = np.fft.rfft(np.concatenate([real, real[::-1]]), axis=0)[:K]
        series *= np.exp(0.5j * np.pi * (1 / M - 1 / K) * number) * (M / K)
        return np.asarray(np.fft.irfft(series, 2 * M, axis=0)[:M])

    @cached_property
    def norms(self) -> Floats:
        """For each place, the sum of the squared moduli of the K points' Lagrange basis."""
        if self.roots:
            return np.ones(self.M)
        K, M = self.K, self.M
        odd = 2 * np.arange(M) + 1
        turn = (2 * K - 1) * odd % (4 * M)
        ratio = np.sin(np.pi / (2 * M) * turn) / np.sin(
            np.pi / (2 * M) * np.minimum(odd, 2 * M - odd)
        )
        return np.asarray(1 + (ratio - 1) / (2 * K))

    def spread(self, places: Ints, count: int) -> Ints:
        """Choose `count` of these places, spread evenly over the grid. Returns their indices.

        Even targets get the nearest places; where several would get the same one, all move apart.
        """
        order = np.argsort(places)
        rank, spare = np.arange(count), places.size - count
        targets = (2 * rank + 1) * self.M // (2 * count)
        here = places[order]
        after = np.clip(np.searchsorted(here, targets), 1, max(places.size - 1, 1))
        if places.size > 1:
            after -= targets - here[after - 1] < here[after] - targets
        free = after - rank
        later, sooner = np.maximum.accumulate(free), np.minimum.accumulate(free[::-1])[::-1]
        return np.asarray(order[np.clip((later + sooner) // 2, 0, spare) + rank])

    # ------------------------------------------------------------------------------------ parts

    @cached_property
    def _given(self) -> Array:
        """The factor of each value in the sum over all places."""
        if not self.roots:
            return np.ones(self.M)
        return 1 + self._root(-self.K)

    @cached_property
    def _phase(self) -> Array:
        """``l_k(beta_j)`` is ``phase_j / phase_k`` times a real number, for 2 K - 1 nodes."""
        return self._root(self.K - 1) if self.roots else np.ones(self.M)

    def _root(self, power: int) -> Complexes:
        """A power of all roots."""
        turns = power * (2 * np.arange(self.M) + 1) % (2 * self.M)
        return interpolation.roots_of_unity(2 * self.M)[turns]

    @cached_property
    def _sines(self) -> NDArray[np.longdouble]:
        """``2 sin(pi t / turn)``, t = 0 .. turn."""
        t = np.arange(self._turn + 1)
        return np.asarray(2 * np.sin(_PI * np.minimum(t, self._turn - t) / self._turn))

    @cached_property
    def _distances(self) -> Floats:
        return self._sines.astype(np.float64)

    @cached_property
    def _transformed(self) -> Floats:
        """Transforms of the logarithms of distances: of multiples of `_STEP`, and of the rests."""
        table = np.zeros(self._turn, dtype=np.longdouble)
        table[1:] = np.log2(self._sines[1:-1])
        whole = np.rint(table / _STEP) * _STEP
        parts = np.stack([whole, table - whole]).astype(np.float64)
        return np.asarray(np.fft.rfft(parts).real)

    def _products(self, places: Ints) -> _Products:
        came = np.zeros(self.M)
        came[places] = 1
        on_circle = came if self.roots else np.concatenate([came, came[::-1]])
        spectrum = np.fft.rfft(on_circle) * self._transformed
        whole, rest = np.fft.irfft(spectrum, self._turn)[:, : self.M]
        whole = np.rint(whole / _STEP) * _STEP
        if not self.roots:  # a point's distance to its own mirror is not in the product
            rest[places] -= np.log2(self._sines[2 * places + 1]).astype(np.float64)
        exponent = np.floor(whole).astype(np.int64)
        above = places.size - np.cumsum(came).astype(np.int64)  # factors below 0
        mantissa = np.exp2(whole - exponent + rest) * np.where(above & 1, -1.0, 1.0)
        return _Products(mantissa, exponent)

    def _charges(self, places: Ints) -> tuple[_Products, Floats, int]:
        """Products, those at missing places divided by 2^top and 0 elsewhere, and top."""
        products = self._products(places)
        missing = np.ones(self.M, dtype=np.bool_)
        missing[places] = False
        top = int(products.exponent[missing].max(initial=-(1 << 40)))
        down = np.clip(products.exponent - top, -9000, 0).astype(np.intc)
        return products, np.where(missing, np.ldexp(products.mantissa, down), 0.0), top

    def _inverse(self, j: Ints, k: Ints) -> Floats:
        """1 over the distance of places j and k without its phase, times 2 if not `roots`; or 0."""
        apart = j - k
        size = self._distances[np.abs(apart)]
        if not self.roots:
            size = size * self._distances[j + k + 1]
        with np.errstate(divide="ignore"):
            return np.where(apart == 0, 0.0, np.copysign(1 / size, apart))

    # ---------------------------------------------------------------------------- multipole sums

    @cached_property
    def _boxes(self) -> _Boxes:
        return _Boxes(self.M)

    def _sums(self, u: Array, power: int) -> Array:
        """``sum_j u_j _inverse(j, k)^power`` for all places k."""
        tree = self._boxes
        columns = np.ascontiguousarray(u).view(np.float64).reshape(self.M, -1)
        charge = tree.spread(columns)
        above = tree.gathered(charge)
        local = np.zeros((2, _INSIDE, columns.shape[1]))
        for level in range(2, tree.levels + 1):
            local = (tree.halves @ local).reshape(1 << level, _INSIDE, -1)
            for apart in (-3, -2, 2, 3):
                if level == 2 and self.roots and apart != 2:  # the same boxes around the circle
                    continue
                for target, source, wrapped in self._pairs(level, apart, _INSIDE):
                    kernel = self._between(level, target, apart) ** power
                    kernel *= wrapped[:, None, None] ** power
                    local[target] += kernel @ above[level][source]
        found = tree.basis @ local
        for apart in (-1, 0, 1):
            for target, source, _ in self._pairs(tree.levels, apart, tree.leaf):
                j, k = tree.places[source][:, None, :], tree.places[target][:, :, None]
                found[target] += self._inverse(j, k) ** power @ charge[source]
        flat = np.ascontiguousarray(found.reshape(-1, columns.shape[1])[tree.slot])
        return np.asarray(flat.view(u.dtype).reshape(self.M))

    def _pairs(self, level: int, apart: int, size: int) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Boxes that get from, and that give to, boxes `apart`; -1 where that is around the circle.

        Boxes 3 apart are those whose parents are neighbours.
        """
        boxes = 1 << level
        target = (
            np.arange(boxes) if self.roots else np.arange(-min(apart, 0), boxes - max(apart, 0))
        )
        if abs(apart) == 3:
            target = target[target % 2 == (apart < 0)]
        step = max(1, _TOGETHER // size**2)
        for at in range(0, target.size, step):
            some = target[at : at + step]
            source = some + apart
            inside = source % boxes
            yield some, inside, np.where(inside == source, 1.0, -1.0)

    def _between(self, level: int, target: Ints, apart: int) -> Floats:
        """`_inverse` between the inner points of boxes, those of the source in the last axis."""
        boxes, inner = 1 << level, self._boxes.inner / 2
        angle = np.pi / boxes if self.roots else np.pi / (2 * boxes)
        size = 2 * np.sin(angle * (apart + inner - inner[:, None]))
        if self.roots:
            return np.repeat(1 / size[None], target.size, axis=0)
        middle = (2 * target + apart + 1)[:, None, None]  # of both angles, in boxes
        near_end = middle > boxes
        both = inner + inner[:, None]
        both = np.where(near_end, 2 * boxes - middle - both, middle + both)
        return np.asarray(1 / (size * 2 * np.sin(angle * both)))


class _Boxes:
    """Halves of halves of a line of M places, and interpolation in them."""

    def __init__(self, M: int) -> None:
        self.levels = levels = max(2, round(math.log2(M / _LEAF)))
        boxes = 1 << levels
        at = np.arange(M)
        box = (2 * at + 1) * boxes // (2 * M)
        first = np.searchsorted(box, np.arange(boxes))
        self.leaf = int(np.bincount(box, minlength=boxes).max())
        self.slot = box * self.leaf + at - first[box]
        self.places = np.minimum(first[:, None] + np.arange(self.leaf), M - 1)
        self.inner = interpolation.chebyshev(_INSIDE)
        within = ((2 * at + 1) * boxes - 2 * M * box) / M - 1  # from -1 to 1
        self.basis = self.spread(interpolation.basis(self.inner, within))
        halves = np.concatenate([self.inner - 1, self.inner + 1]) / 2
        self.halves = interpolation.basis(self.inner, halves)

    def spread(self, of_places: Floats) -> Floats:
        """Rows for places, put into their boxes."""
        out = np.zeros((self.leaf << self.levels, of_places.shape[1]))
        out[self.slot] = of_places
        return out.reshape(1 << self.levels, self.leaf, -1)

    def gathered(self, charge: Floats) -> dict[int, Floats]:
        """Charges at the inner points of the boxes of each level."""
        found = {self.levels: self.basis.swapaxes(1, 2) @ charge}
        for level in range(self.levels, 2, -1):
            both = found[level].reshape(1 << (level - 1), 2 * _INSIDE, -1)
            found[level - 1] = self.halves.T @ both
        return found
