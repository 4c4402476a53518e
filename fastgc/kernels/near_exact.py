"""Decoding vectors that nearly decode, or decode and are short.

`nearly_vanishing` finds polynomials that nearly vanish at given roots of unity and are small at all
others. Of the polynomials ``p(z) = 1/n + x_1 z + ... + x_c z^c`` it finds the one that minimises

    sum over the given roots of |p|^2 + (2 u)^2 sum over all n-th roots of unity of |p|^2

Let ``a_i = p(alpha^i)`` be the decoding vector of a Reed-Solomon code whose columns have weight
c + 1, and let the given roots be the stragglers'. Then the first sum is what the gradient lacks,
and the second what rounding messages by a unit u adds to it: both pass through rows of B, which
have the same norm. So the parameter of this ridge regression is known: ``2 u sqrt(n)`` for x.

`shortest` serves where columns are alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .._base.arrays import Bools, Complexes, Floats, Ints
from . import unchecked
from .cyclic import circle
from .fourier import Transform, logarithms
from .pairs import Pair, add, divide, multiply, negate

# The residual at the roots is solved for once more up to this squared norm, relative to the least.
_SHORT = 1e4


def nearly_vanishing(turns: Ints, n: int, c: int, unit: float) -> Complexes:
    """Values at all n-th roots of unity of the polynomial that nearly vanishes at some of them.

    These are ``exp(2 pi i turns / n)``, distinct, turns in 0 .. n-1; c < n is the degree, `unit`
    the unit roundoff of messages. The objective is up to a few times as large as the least possible
    (twice for float64 messages, five times for halves). It takes O(n log n + m n) if all but m
    roots are about as far apart as at random. Otherwise it takes O((s + c) r) where r degrees of
    freedom matter: about s^2 / n and a few tens if all are neighbours. A QR factorisation of all
    equations takes O(s c^2).
    """
    if not (turns.size and c):
        return np.full(n, 1 / n, dtype=np.complex128)
    turns = np.sort(turns)
    # Elimination takes c^2 steps of two nanoseconds, or more. Transforms take as long as 32
    # exchanges, of which there are about as many as roots that lie too close to others.
    exchanges = 32 + c - turns.size + np.ptp(turns * (turns.size / n) - np.arange(turns.size))
    quick = turns.size <= c and exchanges * n + (1 << 15) <= 2 * c * c
    return (_by_exchange if quick else _by_elimination)(turns, n, c, unit)


@lru_cache(maxsize=4)
def _cauchy(n: int, c: int) -> tuple[Any, ...]:
    """Tables of the equations ``C z = b``, with C[i, k] = g_i h_k / (x_i - y_k), and degree c.

    They are x, y, g, h for all n roots, the factors of what is left at the roots, which give b,
    those of z, coefficients of c Dirichlet kernels, before their transform, and those of it.

    The kernels' points psi are equispaced on the circle: the basis is a unitary transform of the
    coefficients. With half angles phi and psi, and after a diagonal phase, entries are
    ``sin(c (phi_i - psi_0)) (-1)^k / sqrt(c)`` over ``sin(phi_i - psi_k)``. They have that form,
    as ``sin(phi - psi) = cos(phi) cos(psi) (tan(phi) - tan(psi))``.

    Half angles may be as near as ``pi / (2 n c)``. Tangents are sums of two numbers, so that their
    differences are as precise as they are.
    """
    # Half angles are integer multiples of pi / common, odd for psi and even for phi. Then all are
    # turned by half a step, so that no tangent is Inf.
    common = 2 * math.lcm(n, c)
    phi = common // n * np.arange(n)
    psi = common // c * np.arange(c) + 1
    x, of_x = _tangents(-1, 2 * common // n, n, 2 * common)
    y, of_y = _tangents(1, 2 * common // c, c, 2 * common)
    g = np.sin(np.pi / common * (c * (phi - 1) % (2 * common))) / math.sqrt(c) / of_x
    h = np.where(np.arange(c) % 2 == 0, 1.0, -1.0) / of_y
    phase = -circle(n)[-np.arange(n) * (c + 1) % (2 * n)]
    turned = np.exp(1j * np.pi / common * ((psi * (c - 1) + 2) % (2 * common)))
    back = np.exp(-2j * np.pi / common * np.arange(1, c + 1)) / math.sqrt(c)
    return x, y, g, h, phase, turned, back


_PI = 3.141592653589793, 1.2246467991473532e-16
_TERMS = 46  # terms of Taylor's series: after them, pi^p / p! is below 1e-33


def _sines(turns: Ints, of: int) -> tuple[Pair, Pair]:
    """Sine and cosine of ``pi turns / of``, in -pi .. pi, by Taylor's series in pairs."""
    zero = np.zeros(turns.size)
    angle = divide(multiply((turns.astype(np.float64), zero), _PI), (float(of), 0.0))
    term: Pair = zero + 1, zero
    sums = [term, (zero, zero)]
    inverses = np.stack(divide((1.0, 0.0), (np.arange(1.0, _TERMS + 1), 0.0)), axis=1)
    for power, inverse in enumerate(inverses.tolist(), 1):
        term = multiply(multiply(term, angle), inverse)
        sums[power % 2] = add(sums[power % 2], negate(term) if power & 2 else term)
    return sums[1], sums[0]


def _tangents(first: int, step: int, count: int, of: int) -> tuple[Floats, Floats]:
    """Tangents of ``pi (first + j step) / of``, j = 0 .. count-1, as sums of two; and the cosines.

    Each angle is the sum of two, each of which is one of about sqrt(count) angles.
    """
    block = math.isqrt(count) + 1
    many = first + step * np.arange(0, count, block, dtype=np.int64)
    sine, cosine = _sines(np.append(many, step * np.arange(block, dtype=np.int64)), of)

    def product(one: Pair, other: Pair) -> Pair:
        high, low = multiply(
            (one[0][: many.size, None], one[1][: many.size, None]),
            (other[0][many.size :], other[1][many.size :]),
        )
        return high.reshape(-1)[:count], low.reshape(-1)[:count]

    sine, cosine = (
        add(product(sine, cosine), product(cosine, sine)),
        add(product(cosine, cosine), negate(product(sine, sine))),
    )
    return np.stack(divide(sine, cosine)), cosine[0]


_GRID, _FINE = 2.0**20, 2.0**26  # logarithms are split at multiples of 1 / _GRID, and of 1 / _FINE


@lru_cache(maxsize=4)
def _logarithms(n: int) -> tuple[Floats, int, Floats]:
    """log|1 - alpha^t| for t = -n .. n+7, and for `_sums` the transforms' length and kernels."""
    table = logarithms(n, 1)
    high = np.rint(table * _GRID) / _GRID
    (length, one), (_, other) = Transform.of(high), Transform.of(table - high)
    return np.resize(table.astype(np.float64), 2 * n + 8), length, np.stack([one, other])


def _sums(zero: Bools) -> tuple[Floats, Floats]:
    """For each root, the sum of logarithms of its distances to others that are zeros: two parts.

    The first is a multiple of 2^-20, and exact. So transforms are rounded only in the second, which
    is a million times smaller: the sum is as precise as the table.
    """
    _, length, kernels = _logarithms(zero.size)
    high, low = np.fft.irfft(np.fft.rfft(zero, length) * kernels, length)[:, : zero.size]
    return np.rint(high * _GRID) / _GRID, low


def _by_exchange(turns: Ints, n: int, c: int, unit: float) -> Complexes:
    """Product over up to c roots: the given ones, but for a few that others stand for.

    Let w be 1 at the given roots and 2 e u at others: e, as these are many. No exchange of two
    makes the determinant of powers 1 .. c of the roots, times their w, exp(1/2) times as large. So
    ``|w l|`` for a Lagrange polynomial l is at most exp(1/2) times that at its root, and ``|w p|``
    at most ``1 + sqrt(e c)`` times the least root of the sum of all ``|w p|^2``. Measured, errors
    are those by elimination or smaller: 0.4 to 1.2 times in the median of random sets.
    """
    zero = np.zeros(n, dtype=np.bool_)
    zero[turns] = True
    key, others = _sums(zero)[0], math.log(2 * unit) + 1
    key[~zero] += others
    unchecked.exchange(_logarithms(n)[0], key, others + math.log(2), c, zero)
    high, low = _sums(zero)
    near = np.rint((high + low) * _FINE) / _FINE  # exact, as its exponential is
    size: Floats = np.exp(near) * (1 + ((high - near) + low)) / n
    size[zero] = 0
    # 1 - alpha^(i-j) has the angle pi (i - j) / n - pi/2, plus pi if i < j.
    places, below = np.flatnonzero(zero), np.cumsum(zero)
    turn = places.size * np.arange(n) - places.sum() + n * (places.size - below)
    phase: Complexes = circle(n)[turn % (2 * n)]
    return phase * size * (1, -1j, -1, 1j)[places.size % 4]


def _by_elimination(turns: Ints, n: int, c: int, unit: float) -> Complexes:
    """Elimination in a Cauchy matrix.

    If the polynomial is as short as exact ones of spread roots are, the residual is solved for once
    more.
    """
    coefficients = np.zeros(n, dtype=np.complex128)
    coefficients[0] = size = 1 / n
    left: Any = 1 / n
    x, y, g, h, phase, turned, back = _cauchy(n, c)
    x, g, phase, square_of = x.take(turns, axis=1), g[turns], phase[turns], unchecked.square_sum
    z = np.empty(c, dtype=np.complex128)
    for _ in range(2):
        unchecked.cauchy_ridge(x, y, g, h, phase * left, unit, size, z)
        coefficients[1 : c + 1] += np.fft.fft(z * turned) * back
        values: Complexes = np.fft.ifft(coefficients, norm="forward")
        left = values[turns]
        size = n * square_of(coefficients[: c + 1].view(np.float64))
        if square_of(left.view(np.float64)) <= (4 * unit) ** 2 * size or size * n > _SHORT:
            break
    return values


_LITTLE = 2.0**-46  # a residual that is small enough, relative to a vector's norm
_NEGLIGIBLE = 1e-12  # singular values that count as 0, relative to the largest


@dataclass(frozen=True, eq=False)
class Projector:
    """The projector onto the vectors that a matrix of m rows maps to zero from the left.

    Attributes
    ----------
    whole : (m,) complex128 array
        The shortest vector that has product 1 with all columns.
    projector : (m, m) complex128 array
    """

    whole: Complexes
    projector: Complexes

    @classmethod
    def of(cls, columns: Complexes) -> Projector:
        """The projector for these columns, which may be dependent. O(m^2 columns), once for a code.

        Singular values up to 1e-12 of the largest count as 0.
        """
        q, r = np.linalg.qr(columns)
        u, sizes, v = np.linalg.svd(r)
        rank = int(np.count_nonzero(sizes > _NEGLIGIBLE * sizes[0]))
        u, v = q @ u[:, :rank], v[:rank]
        whole = u.conj() @ (v.conj().sum(axis=1) / sizes[:rank])
        projector = -u.conj() @ u.T
        projector[np.diag_indices_from(projector)] += 1
        return cls(whole, projector)

    def of_lost(self, lost: Ints) -> tuple[Complexes, Callable[[Complexes], Complexes]]:
        """Return the projector's rows and columns `lost`, (s, s), and a function of z, (s,).

        The function returns `whole` less the columns `lost` times z. Both read the rows of these
        columns, as the projector is Hermitian: columns of 16 megabytes take three times as long.
        """
        rows = self.projector.take(lost, axis=0)
        return rows.take(lost, axis=1), lambda z: self.whole - (z.conj() @ rows).conj()


@dataclass(frozen=True, eq=False)
class Circulant(Projector):
    """The projector for a matrix whose columns are cyclic shifts of one, by multiples of a step.

    The vectors that the matrix maps to zero from the left are invariant under these shifts, too,
    and so is the projector: `step` of its columns determine the others.

    Attributes
    ----------
    whole : (m,) complex128 array
    projector : (m // step, step, step) complex128 array
        The entry of row i and column j is at ``(i // step - j // step), i % step, j % step``, the
        first modulo ``m // step``.
    spectrum : (step, m // step) complex128 array
        The column's transform.
    back : (step, m // step) complex128 array
        Its conjugate over ``m step`` times the eigenvalues of the Gram matrix of all shifts.
    """

    spectrum: Complexes
    back: Complexes

    @classmethod
    def by_shifts(cls, column: Complexes, step: int) -> Circulant:
        """The projector for a column of m entries. `step` divides m; the shifts are independent."""
        m = column.size
        spectrum = np.fft.fft(column)
        energy = (np.abs(spectrum) ** 2).reshape(step, -1).sum(axis=0) / step
        parts = np.fft.fft(column.reshape(-1, step), axis=0)
        products = parts[:, :, None] * parts[:, None].conj() / energy[:, None, None]
        projector = -np.fft.ifft(products, axis=0).conj()
        projector[0, np.arange(step), np.arange(step)] += 1
        ones = np.zeros(m // step)
        ones[0] = m // step
        whole = np.fft.ifft(spectrum * np.tile(ones / energy, step)).conj()
        spectrum = spectrum.reshape(step, -1)
        return cls(whole, projector, spectrum, spectrum.conj() / (m * step * energy))

    def of_lost(self, lost: Ints) -> tuple[Complexes, Callable[[Complexes], Complexes]]:
        """As for any `Projector`; the function takes transforms."""
        step = len(self.spectrum)

        def less(z: Complexes) -> Complexes:
            at = np.zeros(self.whole.size, dtype=np.complex128)
            at[lost] = z
            parts = self.spectrum * np.fft.ifft(at, norm="forward").reshape(step, -1)
            found = np.fft.fft((self.back * parts.sum(axis=0)).reshape(-1))
            found += self.whole
            found -= at
            return found

        # Places that are negative count from the end, as differences of blocks do.
        row = step * lost
        column = row - (step + 1) * (lost % step)
        return self.projector.take(row[:, None] - column), less


def shortest(projector: Projector, lost: Ints) -> tuple[Complexes, float]:
    """The shortest vector that is 0 at `lost` and has product 1 with all columns, and its distance.

    It is ``a - P[:, lost] z``, where a is the projector's `whole`, P is the projector, and z makes
    the entries `lost` vanish. P[lost, lost] squares the condition number. But its rounding harms
    only these entries; if much is left of them, they are solved for once more. Takes O(s^3 + m s),
    or O(s^3 + m log m) with a `Circulant`. NaN if there is none.

    With the entries `lost` set to 0, the vector is at most so far from some vector that has product
    1 with all columns: it misses these entries, and what is wrong with `whole` and the projector.
    That is 1e-12 of the lengths of `whole`, which is shorter than the vector, and of z, as singular
    values up to that count as 0. Rounding is less: 50 units of 1e-16, measured in codes of 21 to
    1,000 workers.
    """
    (system, less), square_of = projector.of_lost(lost), unchecked.square_sum
    found, z = projector.whole, np.zeros(lost.size, dtype=np.complex128)
    for solutions in (2, 1, 0):
        left = found[lost]
        missed, square = square_of(left.view(np.float64)), square_of(found.view(np.float64))
        if missed <= _LITTLE**2 * square or not solutions:
            break
        try:
            z = z + np.linalg.solve(system, left)
        except np.linalg.LinAlgError:
            return np.full(projector.whole.size, np.nan, dtype=np.complex128), math.inf
        found = less(z)
    length = math.sqrt(square) + math.sqrt(square_of(z.view(np.float64)))
    return found, math.sqrt(missed) + _NEGLIGIBLE * length
