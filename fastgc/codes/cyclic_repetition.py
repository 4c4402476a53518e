"""Cyclic repetition (Tandon, Lei, Dimakis, Karampatziakis 2017)."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._base.arrays import Array, Floats, Ints, at_least, check_index
from ..coding.arguments import check_sizes, check_stragglers
from ..coding.cells import entries_of, even_cuts
from ..coding.code import Code
from ..coding.precision import Precision
from ..coding.rules import Blocks
from ..coding.scheme import Scheme, frozen
from ..coding.trust import check_stability
from ..kernels.rows import DOUBLE
from ..numerics.parity import CHECKS, Parity
from ..numerics.solve import near_exact_of, near_exact_vector, row_sizes
from .linear import checks_of, without_lost

# Numbers in systems of s equations, one for each worker, to be solved at a time.
_AT_ONCE = 1 << 22

# B is also kept as a dense matrix if it has at most this many entries: 32 MB.
_DENSE = 1 << 22


class CyclicRepetition(Code):
    """Random coefficients on s + 1 consecutive partitions: any n - s messages suffice.

    The rows of B lie in the null space of a random s x n matrix H with H 1 = 0. With probability 1,
    any n - s of them span it (Algorithm 2 of Tandon et al.). Their condition is left to chance;
    `trust` computes it for a set of survivors. From about 30 workers on, `ReedSolomon` is better
    conditioned.

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, at least n (default n). If there are more than n, n groups of them that are as
        even as possible take the place of single partitions.
    stragglers : int
        Stragglers to tolerate, s.
    seed : int, default 0
        Seed of H.
    strict : bool, default False
        As in `ReedSolomon`.

    Raises
    ------
    ValueError, UnstableCodeError
        As `ReedSolomon` does.

    Notes
    -----
    B is kept as n (s + 1) numbers, and up to n = 2048 as a matrix, too. Vectors are those of
    `LinearCode`, in O(n s + s^3), after O(n s^3) for the first. They follow from a closed form. Let
    h_i be the columns of H, and z_i the vector with z_i h_i = 1 that is orthogonal to the s - 1
    columns after h_i. Then all solutions of a B = b are ``a_i = z_i (v + b_1 h_1 + ... + b_i
    h_i)``, where v is any vector of s numbers. Above n = 2048, vectors that accept a residual to
    amplify less are not the best there are: they are such a solution for all workers, without the
    stragglers' entries.
    """

    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        stragglers: int,
        seed: int = 0,
        strict: bool = False,
    ) -> None:
        n, k = check_sizes(n, k, at_least_n=True)
        s, seed = check_stragglers(stragglers, n), at_least("seed", seed, 0)
        scheme = _CyclicScheme(n, k, s, seed)
        super().__init__(scheme)
        remedy = 'use BinaryCode, or ReedSolomon with clusters="auto"'
        check_stability(scheme, strict, remedy)


class _Precision(Precision):
    """Errors from the band of B."""

    scheme: _CyclicScheme

    @cached_property
    def row_norms(self) -> Floats:
        return self.scheme._sizes**2 / self.scheme.k

    @cached_property
    def row_sums(self) -> Floats:
        scheme = self.scheme
        found: Floats = (
            np.abs(scheme._band) * scheme._weight[scheme._groups(np.arange(scheme.n))]
        ).sum(axis=1)
        return found

    @np.errstate(all="ignore")
    def left_out(self, survivors: Ints, vector: Array) -> float:
        scheme = self.scheme
        lacking = scheme._combine(scheme._of_all(survivors, vector)) - scheme._weight
        return float(np.linalg.norm(lacking)) / math.sqrt(scheme.k)


class _CyclicScheme(Scheme):
    """Worker i sends groups i .. i + s of partitions, modulo n.

    Columns of a group are equal. Here one of them stands for all, times the square root of their
    number.
    """

    precision = cached_property(_Precision)
    stragglers: int
    is_complex = False

    def __init__(self, n: int, k: int, stragglers: int, seed: int) -> None:
        self.n, self.k, self.stragglers = n, k, stragglers
        self._H = np.random.default_rng(seed).standard_normal((stragglers, n))
        self._H[:, -1] = -self._H[:, :-1].sum(axis=1)  # rows add up to 0
        self._values = _coefficients(self._H)
        self._cuts = even_cuts(k, n)
        self._weight = np.sqrt(np.diff(self._cuts))
        self._band = self._values * self._weight[self._groups(np.arange(n))]
        self._sizes = row_sizes(self._band)

    def _groups(self, workers: Ints) -> Ints:
        """The groups of each worker, from its own on. (workers, s + 1)."""
        found: Ints = (workers[:, None] + np.arange(self.stragglers + 1)) % self.n
        return found

    def row(self, worker: int) -> tuple[Ints, Floats]:
        return self._entries_of(np.array([check_index("worker", worker, self.n)]))[1:]

    @cached_property
    def entries(self) -> tuple[Ints, Ints, Array]:
        return self._entries_of(np.arange(self.n))

    def _entries_of(self, workers: Ints) -> tuple[Ints, Ints, Array]:
        """`entries` of these workers' messages alone."""
        groups = self._groups(workers)
        order = np.argsort(groups, axis=1)
        values = np.take_along_axis(self._values[workers], order, axis=1)
        held = np.take_along_axis(groups, order, axis=1)
        first = np.arange(workers.size + 1) * held.shape[1]
        return entries_of(self._cuts, first, held.ravel(), values.ravel())

    @cached_property
    def rule(self) -> Blocks:
        return Blocks.one(self.n, self.n - self.stragglers)

    @cached_property
    def loads(self) -> Ints:
        size = np.diff(self._cuts)
        return frozen(sum(np.roll(size, -at) for at in range(self.stragglers + 1)))

    # ------------------------------------------------------------------------------ decoding

    @cached_property
    def _dense(self) -> Floats | None:
        """B if it is small: a row of all groups for each worker."""
        if self.n * self.n > _DENSE:
            return None
        matrix = np.zeros((self.n, self.n))
        np.put_along_axis(matrix, self._groups(np.arange(self.n)), self._band, axis=1)
        return matrix

    def _combine(self, of_all: NDArray[np.number]) -> Array:
        """``a B`` for a vector of all workers: a number for each group."""
        if self._dense is not None:
            sums: Array = of_all @ self._dense
            return sums
        total = np.zeros(self.n, dtype=np.result_type(of_all, np.float64))
        for at, values in enumerate(self._band.T):
            shares, wrapped = of_all * values, self.n - at  # np.roll takes five times as long
            total[at:] += shares[:wrapped]
            total[:at] += shares[wrapped:]
        return total

    def _of_all(self, survivors: Ints, vector: Array) -> Array:
        of_all = np.zeros(self.n, dtype=vector.dtype)
        of_all[survivors] = vector
        return of_all

    @cached_property
    def _null(self) -> tuple[Floats, Floats]:
        """The vectors z_i, and an orthonormal basis of x B = 0 for rows of norm 1. (s, n)."""
        z = _duals(self._H)
        null = np.linalg.qr(z * self._sizes[:, None])[0].T
        # The basis is as exact as rounding allows only after its own sums x B are subtracted once.
        # Checks of messages need that precision.
        sums = (self._combine(x / self._sizes) for x in null)
        added = [self._shortest_by(z, null, wanted) for wanted in sums]
        if added:
            null = np.linalg.qr((null - np.array(added)).T)[0].T
        return z, null

    @cached_property
    def _beyond(self) -> Floats:
        """Orthonormal combinations of groups that no sum of rows contains. (n, s)."""
        return np.linalg.qr((self._H / self._weight).T)[0]

    def _shortest(self, wanted: Array) -> Array:
        """The shortest vector of all workers for this sum, times the sizes of rows."""
        return self._shortest_by(*self._null, wanted) if self.stragglers else wanted

    def _shortest_by(self, z: Floats, null: Floats, wanted: Array) -> Array:
        wanted = wanted - self._beyond @ (self._beyond.T @ wanted)
        sums = np.cumsum(self._H * (wanted / self._weight), axis=1)
        vector = np.einsum("is,si->i", z, sums) * self._sizes
        shortest: Array = vector - (null @ vector) @ null
        return shortest

    def _solve(self, survivors: Ints, unit: float = DOUBLE) -> tuple[Array, float]:
        _, null = self._null
        sizes = self._sizes[survivors]
        solve = without_lost(null, self._shortest, survivors, sizes)
        if self._dense is not None:
            return near_exact_vector(solve, self._dense[survivors], sizes, self._weight, unit)
        return near_exact_of(
            solve,
            lambda vector: self._combine(self._of_all(survivors, vector)),
            lambda: self._regress(survivors, unit),
            sizes,
            self._weight,
            unit,
        )

    def _regress(self, survivors: Ints, unit: float) -> Floats:
        """The vector of all workers with the least error once stragglers' entries are dropped."""
        _, null = self._null
        lost = np.ones(self.n, dtype=bool)
        lost[survivors] = False
        whole = self._shortest(self._weight)
        basis: Floats = np.vstack([null, whole]) / self._sizes
        added = np.array([self._combine(np.where(lost, x, 0.0)) for x in basis])
        touched = added.any(axis=0)
        rounding = 2 * unit * (basis * self._sizes)[:, survivors]
        system = np.vstack([added[:, touched].T, rounding.T])
        triangle: Floats = np.asarray(np.linalg.qr(system, mode="r"))
        along = np.linalg.lstsq(triangle[:, :-1], triangle[:, -1])[0]
        vector: Floats = (basis[-1] - along @ basis[:-1])[survivors]
        return vector

    def parity(self, survivors: Ints, most: int = CHECKS) -> Parity:
        """Parity checks: the combinations of rows that are 0 and do not contain stragglers."""
        H = checks_of(self._null[1], survivors) / self._sizes[survivors]
        errors = [np.linalg.norm(self._combine(self._of_all(survivors, h))) for h in H]
        return Parity.of(H, error=np.array(errors))


def _windows(H: Floats, first: int) -> Any:
    """Yield parts of the workers and, for each worker i, the s columns of H from i + first on."""
    s, n = H.shape
    step = max(1, _AT_ONCE // max(s * s, 1))
    for at in range(0, n, step):
        part = np.arange(at, min(at + step, n))
        yield part, H[:, (part[:, None] + first + np.arange(s)) % n].transpose(1, 0, 2)


def _coefficients(H: Floats) -> Floats:
    """Each worker's coefficients for the groups from its own on; the first is 1. (n, s + 1)."""
    s, n = H.shape
    values = np.ones((n, s + 1))
    if s:
        for part, columns in _windows(H, 1):
            values[part, 1:] = -np.linalg.solve(columns, H.T[part, :, None])[:, :, 0]
    return values


def _duals(H: Floats) -> Floats:
    """For each column of H, a vector with product 1 with it, and 0 with the next s - 1. (n, s)."""
    s, n = H.shape
    found = np.empty((n, s))
    if s:
        one = np.eye(s)[:, :1]
        for part, columns in _windows(H, 0):
            systems = columns.transpose(0, 2, 1)
            found[part] = np.linalg.solve(systems, np.broadcast_to(one, (part.size, s, 1)))[..., 0]
    return found
