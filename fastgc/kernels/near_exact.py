"""Decoding vectors that nearly decode, or decode and are short.

`near_exact`: polynomials that nearly vanish at given roots of unity, and are small at all others.
Of the polynomials ``p(z) = 1/n + x_1 z + ... + x_c z^c`` the one is wanted that makes

    sum over the given roots of |p|^2 + (2 u)^2 sum over all n-th roots of unity of |p|^2

least. With ``a_i = p(alpha^i)`` as decoding vector of a Reed-Solomon code whose columns have weight
c + 1, and the stragglers' roots given, the first sum is what is left out of the gradient, the
second what rounding messages by a unit u adds to it: both pass through rows of B, which are of one
norm. So the parameter of this ridge regression is known, ``2 u sqrt(n)`` for x.

`minimum_norm` and `weighted_minimum_norm` are asked where these are not good enough. These two and
`CauchyElimination` are by LAPACK and long vectors through NumPy, and so the same for every backend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import numpy as plain
from .contract import check_numbers_below, reads, takes
from .cyclic import circle
from .dispatch import kernel
from .numpy.pairs import divide

__all__ = [
    "CauchyElimination",
    "Circulant",
    "Projector",
    "locator_pairs",
    "minimum_norm",
    "near_exact",
    "near_exact_pairs",
    "weighted_minimum_norm",
]

# From so many products s c^2 on, a QR factorisation takes half a second and more: elimination is
# tried first, which takes O(s) for a degree of freedom and is up to 8 times less precise. It will
# do if a decoded gradient has a relative error of so many u. Beyond the last bound, half a minute
# and gigabytes, there is nothing else.
_MANY = 2.0**33
_ENOUGH = 1e7
_TOO_MANY = 2.0**40

_ridge, _ridge_pairs = kernel(plain.ridge), kernel(plain.ridge_pairs)
_leja_order = kernel(plain.leja_order)
_locator_values = kernel(plain.locator_values)


def _check_degree(turns: NDArray[np.int64], n: int, c: int) -> None:
    if not 0 <= c < n:
        raise ValueError(f"c must be a degree in 0 .. n - 1, with n = {n}, not {c}")
    check_numbers_below("turns", turns, n)


def _check_nearly(turns: NDArray[np.int64], n: int, c: int, unit: float) -> None:
    _check_degree(turns, n, c)
    if not 0 < unit < 1:
        raise ValueError(f"unit must be a unit roundoff, over 0 and below 1, not {unit}")


def _check_circle(circle: NDArray[np.float64], n: int) -> None:
    if len(circle) != 2 * n:
        raise ValueError(f"circle must have shape ({2 * n}, 2, 2), not {circle.shape}")


@takes(_check_nearly, turns=reads("int64", "s"))
def near_exact(turns: NDArray[np.int64], n: int, c: int, unit: float) -> NDArray[np.complex128]:
    """Values at all n-th roots of unity of the polynomial that nearly vanishes at some.

    Takes O(s c^2) where that is below a second, in strips of columns that stay in a cache; for
    larger problems O((s + c) r) and r^2 c, with r degrees of freedom that matter.

    Parameters
    ----------
    turns : (s,) int64 array
        The roots ``exp(2 pi i turns / n)``, distinct, turns in 0 .. n-1.
    n : int
    c : int
        Degree; 0 <= c < n.
    unit : float
        Unit roundoff of messages.

    Returns
    -------
    (n,) complex128 array
        ``p(exp(2 pi i t / n))``, t = 0 .. n-1.
    """
    if turns.size * float(c) ** 2 > _MANY:
        values, error = _eliminated(turns, n, c, unit)
        if error <= _ENOUGH * unit or turns.size * float(c) ** 2 > _TOO_MANY:
            return values
    x = np.zeros(n, dtype=np.complex128)
    x[0] = 1 / n
    if turns.size and c:
        _ridge(circle(n), turns, c, unit, x[1 : c + 1])
    return np.fft.ifft(x, norm="forward")


def _check_nearly_pairs(
    turns: NDArray[np.int64], n: int, c: int, circle: NDArray[np.float64]
) -> None:
    _check_degree(turns, n, c)
    _check_circle(circle, n)


@takes(_check_nearly_pairs, turns=reads("int64", "s"), circle=reads("float64", "u 2 2"))
def near_exact_pairs(
    turns: NDArray[np.int64], n: int, c: int, circle: NDArray[np.float64]
) -> NDArray[np.complex128]:
    """The same values for messages of pairs, of which u = 2^-106, in pairs themselves.

    Takes O(s c^2 + n c), whatever the size: 1 ms for n = 256 and s = c = 128, 50 ms for 1024 and
    512.

    Parameters
    ----------
    turns : (s,) int64 array
        As of `near_exact`.
    n : int
    c : int
        Degree; 0 <= c < n.
    circle : (2 n, 2, 2) float64 array
        ``circle[u]`` is ((high, low) of cos(pi u / n), (high, low) of sin(pi u / n)).

    Returns
    -------
    (n, 2) complex128 array
        ``p(exp(2 pi i t / n))``, t = 0 .. n-1: high parts of real and imaginary part, low ones.
        Errors are about 2^-104 of the sum of the coefficients' moduli.
    """
    out = np.zeros((n, 2), dtype=np.complex128)
    if turns.size and c:
        _ridge_pairs(circle, turns, c, out)
    else:
        high, low = divide((1.0, 0.0), (float(n), 0.0))
        out[:, 0], out[:, 1] = high, low
    return out


def _check_located(turns: NDArray[np.int64], n: int, circle: NDArray[np.float64]) -> None:
    _check_degree(turns, n, 0)
    _check_circle(circle, n)


@takes(_check_located, turns=reads("int64", "s"), circle=reads("float64", "u 2 2"))
def locator_pairs(
    turns: NDArray[np.int64], n: int, circle: NDArray[np.float64]
) -> NDArray[np.complex128]:
    """The exact vector ``(1/n) prod_j (1 - exp(2 pi i (t - turns[j]) / n))`` in pairs, O(n s).

    Parameters
    ----------
    turns : (s,) int64 array
        As of `near_exact`.
    n : int
    circle : (2 n, 2, 2) float64 array
        As of `near_exact_pairs`.

    Returns
    -------
    (n, 2) complex128 array
        For t = 0 .. n-1, in the form of `near_exact_pairs`; 0 at the turns, and relative errors of
        ``8 (s + 4) 2^-106`` at most elsewhere. What is beyond float64 is Inf or NaN, what is below
        it 0.
    """
    out = np.empty((n, 2), dtype=np.complex128)
    _locator_values(circle, turns, out)
    return out


def _eliminated(
    turns: NDArray[np.int64], n: int, c: int, unit: float
) -> tuple[NDArray[np.complex128], float]:
    """The better of two polynomials, and the relative error of a gradient decoded by it."""
    elimination = CauchyElimination(turns, n, c, unit)
    found = []
    for rank in elimination.ranks:
        values = elimination.solve(rank)
        left, size = np.linalg.norm(values[turns]), np.linalg.norm(values)
        # rows of B have the norm n / sqrt(c + 1) at least, and partials are of one size
        error = math.hypot(left, 2 * unit * size) * math.sqrt(n / (c + 1))
        found.append((values, error))
    return min(found, key=lambda each: each[1])


_STRIP = 64  # unknowns that a triangular system is solved for at a time
# What the size of z is taken for, over that of the parts it is a sum of: two guesses at where to
# stop, whose results are compared.
_MARGINS = (4.0, 64.0)
_NOTHING = 1e-18  # of the first pivot


def _back(triangle: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Solve with an upper triangle."""
    y = y.copy()
    for end in range(len(y), 0, -_STRIP):
        start = max(end - _STRIP, 0)
        y[start:end] = np.linalg.solve(triangle[start:end, start:end], y[start:end])
        y[:start] -= triangle[:start, start:end] @ y[start:end]
    return y


class CauchyElimination:
    """The same polynomial by elimination in a Cauchy matrix, for as many steps as pay.

    In the basis of the c Dirichlet kernels at c points ``psi_k`` equispaced on the circle (a
    unitary transform of the coefficients), and after a diagonal phase, the equations of the s given
    roots are

        C z = b,   C[i, k] = g_i h_k / sin(phi_i - psi_k),   C real, b complex,

    with half angles phi, psi. Eliminating row p and column q leaves another such matrix, with

        g_i *= sin(phi_i - phi_p) / sin(phi_i - psi_q)
        h_k *= sin(psi_k - psi_q) / sin(psi_k - phi_p)

    (Gohberg, Kailath and Olshevsky 1995), so that a step takes O(s + c), only multiplies, and keeps
    the high relative accuracy of every entry, however small (Demmel 1999). With rook pivots, r
    steps give the r degrees of freedom that matter: about s^2 / n and a few tens for neighbours on
    the circle, all where stragglers are spread. Steps end where what is left of the right-hand side
    meets the rounding that the solution's size brings; of solutions to these equations the shortest
    is taken.

    Parameters
    ----------
    turns : (s,) int64 array
    n, c : int
    unit : float
        As of `fastgc.kernels.near_exact`; s and c are not 0.

    Attributes
    ----------
    ranks : list of int
        Numbers of steps to choose from.
    """

    def __init__(self, turns: NDArray[np.int64], n: int, c: int, unit: float) -> None:
        self.turns, self.n, self.c = turns, n, c
        k = np.arange(c)
        # Half angles are whole numbers of pi / common; psi is one more than it would be, and never
        # one of phi. The nearest root is near[k] and the rest of the angle is small.
        self.common = 2 * math.lcm(n, c)
        unit_of_n = self.common // n
        self._psi = self.common // c * k + 1
        near = (self._psi + unit_of_n // 2) // unit_of_n
        rest = np.pi / self.common * (self._psi - near * unit_of_n)
        self._grid = np.sin(np.pi / c * np.arange(1 - c, c))
        angle = np.mod(c * (unit_of_n * turns - 1), 2 * self.common)
        g = np.sin(np.pi / self.common * angle) / math.sqrt(c)
        self._eliminate(g, np.where(k % 2 == 0, 1.0, -1.0), near, np.cos(rest), np.sin(rest), unit)

    def _eliminate(
        self,
        g: NDArray[np.float64],
        h: NDArray[np.float64],
        near: NDArray[np.int64],
        cosine: NDArray[np.float64],
        sine: NDArray[np.float64],
        unit: float,
    ) -> None:
        turns, n, c = self.turns, self.n, self.c
        roots = circle(n)
        cosines, sines = roots.real.copy(), roots.imag.copy()
        left = -self.phase(-1) / n  # of the right-hand side
        self.rows: list[int] = []
        self.columns: list[int] = []
        lower: list[NDArray[np.float64]] = []
        upper: list[NDArray[np.float64]] = []
        growth, first, best = 1 / n, 0.0, [(math.inf, 0)] * len(_MARGINS)
        while True:
            bias = float(np.linalg.norm(left))
            rounding = [margin * unit * math.sqrt(growth) for margin in _MARGINS]
            best = [
                min(old, (math.hypot(bias, e), len(lower)))
                for old, e in zip(best, rounding, strict=True)
            ]
            if len(lower) == min(turns.size, c) or rounding[0] > 4 * best[0][0]:
                break
            p = int(np.argmax(np.abs(g)))
            while True:  # each pivot is larger than that before
                d = (turns[p] - near) % (2 * n)
                under = 1 / (sines[d] * cosine - cosines[d] * sine)
                row = g[p] * h * under
                q = int(np.argmax(np.abs(row)))
                d = (turns - near[q]) % (2 * n)
                over = 1 / (sines[d] * cosine[q] - cosines[d] * sine[q])
                column = g * h[q] * over
                better = int(np.argmax(np.abs(column)))
                if not abs(column[better]) > abs(column[p]):
                    break
                p = better
            pivot = column[p]
            first = first or abs(pivot)
            if abs(pivot) <= _NOTHING * first:
                break
            y = left[p] / pivot
            left = left - column * y
            left[p] = 0
            growth += abs(y) ** 2
            self.rows.append(p)
            self.columns.append(q)
            lower.append(column)
            upper.append(row / pivot)
            g = g * sines[(turns - turns[p]) % (2 * n)] * over
            h = h * self._grid[c - 1 - q : 2 * c - 1 - q] * -under
            g[p], h[q] = 0, 0
        self.ranks = sorted({rank for _, rank in best})
        self._lower, self._upper = np.array(lower), np.array(upper)

    def phase(self, sign: int) -> NDArray[np.complex128]:
        """That of each root's equation."""
        return circle(self.n)[sign * self.turns * (self.c + 1) % (2 * self.n)]

    def solve(self, rank: int, refine: int = 1) -> NDArray[np.complex128]:
        """The polynomial's values at all roots of unity, by so many steps of elimination."""
        x = np.zeros(self.n, dtype=np.complex128)
        x[0] = 1 / self.n
        values = np.full(self.n, 1 / self.n, dtype=np.complex128)
        columns = np.array(self.columns[:rank], dtype=np.int64)
        rows = np.array(self.rows[:rank], dtype=np.int64)
        others = np.setdiff1d(np.arange(self.c), columns)
        # from the last to the first, this is an upper triangle
        lower = self._lower[:rank, rows[::-1]].T[:, ::-1]
        triangle = self._upper[:rank, columns]
        w = _back(triangle, self._upper[:rank, others])
        by_row = 2 * rank < self.c
        small = w @ w.T if by_row else w.T @ w
        small[np.diag_indices_from(small)] += 1
        for _ in range(1 + refine):
            b = self.phase(-1) * -values[self.turns]
            basic = _back(triangle, _back(lower, b[rows[::-1]])[::-1])
            z = np.zeros(self.c, dtype=np.complex128)
            if by_row:
                z[columns] = np.linalg.solve(small, basic)
                z[others] = w.T @ z[columns]
            else:
                z[others] = np.linalg.solve(small, w.T @ basic)
                z[columns] = basic - w @ z[others]
            x[1 : self.c + 1] += self._coefficients(z)
            values = np.fft.ifft(x, norm="forward")
        return values

    def _coefficients(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        c, common = self.c, self.common
        m = np.arange(1, c + 1)
        turned = np.exp(1j * np.pi / common * np.mod(self._psi * (c + 1), 2 * common))
        spectrum = np.fft.fft(z * turned)[m % c]
        found: NDArray[np.complex128] = spectrum * np.exp(-2j * np.pi / common * m) / math.sqrt(c)
        return found


def _check_weights(turns: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
    check_numbers_below("turns", turns, weights.size)
    if not ((weights > 0) & (weights < math.inf)).all():
        raise ValueError("weights must be positive and finite: one is not")


@takes(_check_weights, turns=reads("int64", "s", least=1), weights=reads("float64", "n", least=1))
def weighted_minimum_norm(
    turns: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.complex128]:
    """Values ``a(z) = sum over m of h_m z^m`` at all n-th roots of unity, 0 at some of them.

    Of those the one that makes ``sum over m of weights_m^2 |h_m - [m = 0] / n|^2`` least, in
    O(n s^2).

    Parameters
    ----------
    turns : (s,) int64 array
        The roots ``exp(2 pi i turns / n)`` where it vanishes, distinct, turns in 0 .. n-1; s > 0.
    weights : (n,) float64 array
        Positive.

    Returns
    -------
    (n,) complex128 array
        ``a(exp(2 pi i t / n))``, t = 0 .. n-1.

    Notes
    -----
    With ``y_m = weights_m (h_m - [m = 0] / n)`` it is the shortest solution of s equations. Weights
    range over fifteen decades. Householder's reflections do not lose the small rows if rows come
    in the order of their sizes and columns are pivoted; columns in Leja's order do as well.
    """
    n = weights.size
    roots = np.ascontiguousarray(circle(n)[::2])
    order = np.empty(turns.size, dtype=np.int64)
    _leja_order(roots[turns], order)
    rising = np.argsort(weights, kind="stable")
    rows = roots.conj()[np.multiply.outer(rising, turns[order]) % n] / weights[rising, None]
    q, r = np.linalg.qr(rows)
    target = np.full(turns.size, -1 / n, dtype=np.complex128)
    y: NDArray[Any] = q @ np.linalg.solve(r.conj().T, target)
    h = np.empty(n, dtype=np.complex128)
    h[rising] = y / weights[rising]
    h[0] += 1 / n
    return np.fft.ifft(h, norm="forward")


_LITTLE = 2.0**-46  # of a vector's norm


_NEGLIGIBLE = 1e-12  # singular values, over the largest one


@dataclass(frozen=True, eq=False)
class Projector:
    """On what a matrix of m rows maps to zero from the left.

    Attributes
    ----------
    whole : (m,) complex128 array
        The shortest vector that has product 1 with all columns.
    projector : (m, m) complex128 array
    """

    whole: NDArray[np.complex128]
    projector: NDArray[np.complex128]

    @classmethod
    def of(cls, columns: NDArray[np.complex128]) -> Projector:
        """Of columns that may depend on each other, up to a singular value of 1e-12 of the largest.

        O(m^2 columns), once for a code.
        """
        q, r = np.linalg.qr(columns)
        u, sizes, v = np.linalg.svd(r)
        rank = int(np.count_nonzero(sizes > _NEGLIGIBLE * sizes[0]))
        u, v = q @ u[:, :rank], v[:rank]
        whole = u.conj() @ (v.conj().sum(axis=1) / sizes[:rank])
        projector = -u.conj() @ u.T
        projector[np.diag_indices_from(projector)] += 1
        return cls(whole, projector)

    def check(self) -> None:
        """TypeError or ValueError if it was not made by `of`."""
        wanted = {"whole": "m", "projector": "m m"}
        self._check(wanted, {"m": np.size(self.whole)})

    def _check(self, wanted: dict[str, str], sizes: dict[str, int]) -> None:
        name = type(self).__name__
        for each, shape in wanted.items():
            part, dtype = getattr(self, each), np.float64 if each == "energy" else np.complex128
            if not (isinstance(part, np.ndarray) and part.dtype == dtype):
                raise TypeError(f"{each} of a {name} must be an array of {np.dtype(dtype)}")
            expected = tuple(sizes[size] for size in shape.split())
            if part.shape != expected:
                raise ValueError(
                    f"{each} of a {name} must have shape {expected}, as its classmethod makes it, "
                    f"not {part.shape}"
                )

    def among(self, lost: NDArray[np.int64]) -> NDArray[np.complex128]:
        """Its rows and columns of these numbers: (s, s)."""
        found: NDArray[np.complex128] = self.projector[lost[:, None], lost]
        return found

    def less(self, lost: NDArray[np.int64], z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """`whole` less the columns of these numbers times z."""
        found: NDArray[np.complex128] = self.whole - self.projector[:, lost] @ z
        return found


@dataclass(frozen=True, eq=False)
class Circulant(Projector):
    """Of a matrix whose columns are cyclic shifts of one by multiples of a step, transformed.

    What it maps to zero from the left is invariant under these shifts, too, and so is the projector
    on it: that has as many entries as the step has rows.

    Attributes
    ----------
    whole : (m,) complex128 array
    projector : (step, step, m // step) complex128 array
        Of row ``i`` and column ``j``: at ``i % step, j % step, (i // step - j // step) mod`` that.
    spectrum : (m,) complex128 array
        The column's transform.
    energy : (m // step,) float64 array
        Of each product of a vector with all shifts, transformed: what the shifts have of it.
    """

    spectrum: NDArray[np.complex128]
    energy: NDArray[np.float64]

    @classmethod
    def by_shifts(cls, column: NDArray[np.complex128], step: int) -> Circulant:
        """Of a column of m entries, of which a step that divides m makes independent shifts."""
        m = column.size
        spectrum = np.fft.fft(column)
        energy = (np.abs(spectrum) ** 2).reshape(step, -1).sum(axis=0) / step
        parts = np.fft.fft(column.reshape(-1, step), axis=0).T
        products = parts[:, None] * parts.conj() / energy
        projector = -np.fft.ifft(products).conj()
        projector[np.arange(step), np.arange(step), 0] += 1
        ones = np.zeros(m // step)
        ones[0] = m // step
        whole = np.fft.ifft(spectrum * np.tile(ones / energy, step)).conj()
        return cls(whole, projector, spectrum, energy)

    def check(self) -> None:
        """TypeError or ValueError if it was not made by `by_shifts`."""
        m, step = np.size(self.whole), max(len(np.atleast_1d(self.projector)), 1)
        wanted = {"whole": "m", "projector": "g g t", "spectrum": "m", "energy": "t"}
        self._check(wanted, {"m": m, "g": step, "t": m // step})

    def among(self, lost: NDArray[np.int64]) -> NDArray[np.complex128]:
        """Rows and columns of the projector."""
        block, phase = np.divmod(lost, len(self.projector))
        # negative ones count from the end
        at = phase[:, None], phase, block[:, None] - block
        found: NDArray[np.complex128] = self.projector[at]
        return found

    def less(self, lost: NDArray[np.int64], z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """`whole` less columns of the projector times z, by transforms."""
        step = len(self.projector)
        at = np.zeros(self.whole.size, dtype=np.complex128)
        at[lost] = z
        mapped = (self.spectrum.conj() * np.fft.fft(at.conj())).reshape(step, -1).sum(axis=0) / step
        kept = np.fft.ifft(self.spectrum * np.tile(mapped / self.energy, step)).conj()
        found: NDArray[np.complex128] = self.whole - at + kept
        return found


def _check_projector(projector: Projector, lost: NDArray[np.int64]) -> None:
    projector.check()
    check_numbers_below("lost", lost, projector.whole.size)


@takes(_check_projector, projector=Projector, lost=reads("int64", "s"))
def minimum_norm(projector: Projector, lost: NDArray[np.int64]) -> NDArray[np.complex128]:
    """The shortest vector that is 0 at some entries and has product 1 with all columns of a matrix.

    O(s^3 + m s), or O(s^3 + m log m) with a `Circulant`. NaN where there is none.

    Parameters
    ----------
    projector : Projector
    lost : (s,) int64 array
        The entries that are 0, but for rounding.

    Returns
    -------
    (m,) complex128 array

    Notes
    -----
    With the projector P on what maps to zero it is ``a - P[:, lost] z``, a the shortest vector of
    all and z such that the entries vanish. P[lost, lost] squares the condition number. But its
    rounding does harm to these entries only, and if much is left of them it is solved for once
    more.
    """
    system = projector.among(lost)
    found, z = projector.whole, np.zeros(lost.size, dtype=np.complex128)
    for _ in range(2):
        if np.linalg.norm(found[lost]) <= _LITTLE * np.linalg.norm(found):
            break
        try:
            z = z + np.linalg.solve(system, found[lost])
        except np.linalg.LinAlgError:
            return np.full(projector.whole.size, np.nan, dtype=np.complex128)
        found = projector.less(lost, z)
    return found
