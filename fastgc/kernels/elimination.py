"""Polynomials that nearly vanish at given roots of unity, by elimination in a Cauchy matrix.

In the basis of the c Dirichlet kernels at c points ``psi_k`` equispaced on the circle (a unitary
transform of the coefficients), and after a diagonal phase, the equations of the s given roots are

    C z = b,   C[i, k] = g_i h_k / sin(phi_i - psi_k),   C real, b complex,

with half angles phi, psi. Eliminating row p and column q leaves another such matrix, with

    g_i *= sin(phi_i - phi_p) / sin(phi_i - psi_q),   h_k *= sin(psi_k - psi_q) / sin(psi_k - phi_p)

(Gohberg, Kailath and Olshevsky 1995), so that a step takes O(s + c), only multiplies, and keeps the
high relative accuracy of every entry, however small (Demmel 1999). With rook pivots, r steps give
the r degrees of freedom that matter: about s^2 / n and a few tens for neighbours on the circle, all
where stragglers are spread. Steps end where what is left of the right-hand side meets the rounding
that the solution's size brings; of solutions to these equations the shortest is taken.

The arithmetic is NumPy's, on long vectors and matrices, and the same for every backend.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cyclic import circle

__all__ = ["Elimination"]

BLOCK = 64  # unknowns that a triangular system is solved for at a time
# What the size of z is taken for, over that of the parts it is a sum of: two guesses at where to
# stop, whose results are compared.
MARGINS = (4.0, 64.0)
NOTHING = 1e-18  # of the first pivot


def _back(triangle: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Solve with an upper triangle."""
    y = y.copy()
    for end in range(len(y), 0, -BLOCK):
        start = max(end - BLOCK, 0)
        y[start:end] = np.linalg.solve(triangle[start:end, start:end], y[start:end])
        y[:start] -= triangle[:start, start:end] @ y[start:end]
    return y


class Elimination:
    """C = L D U with rook pivots, for as many steps as pay.

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
        growth, first, best = 1 / n, 0.0, [(math.inf, 0)] * len(MARGINS)
        while True:
            bias = float(np.linalg.norm(left))
            rounding = [margin * unit * math.sqrt(growth) for margin in MARGINS]
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
            if abs(pivot) <= NOTHING * first:
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
