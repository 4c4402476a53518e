"""Communication-reducing gradient coding (Ye and Abbe 2018)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np

from .._base.arrays import Array, Bools, Complexes, Floats, Ints, check_integer
from ..coding.arguments import check_between, check_sizes, check_stragglers
from ..coding.cells import entries_of, even_cuts
from ..coding.clusters import roots, stable_root, tau
from ..coding.code import Code
from ..coding.rules import Blocks
from ..coding.scheme import Scheme
from ..coding.trust import check_stability
from ..kernels.cyclic import circle, sines
from ..kernels.rows import DOUBLE


class YeAbbe(Code):
    """Messages of p/m elements: any n - s of them give the exact gradient.

    Gradients are cut into m pieces. A worker computes s + m partial gradients and sends one
    combination of all their pieces, which is as long as one piece. It computes more than the s + 1
    partial gradients that tolerating s stragglers takes, and sends an m-th of the data.

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, at least n (default n); more as in `CyclicRepetition`.
    stragglers : int
        Stragglers to tolerate, s.
    reduce : int
        How many times shorter messages are than gradients, m, at most n - s.
    packed : bool, default True
        Send pairs of real numbers as complex ones, as in `ReedSolomon`. False: send as many complex
        numbers, which makes messages twice as long.
    clusters : int or "auto", default 1
        The number of groups into which workers and partitions are split, each with its own code.
        Load, length of messages and worst-case tolerance stay the same. Decoding is more precise
        and cheaper, and many smaller sets of survivors suffice. "auto": as many as possible,
        floor(n / (s + m)).
    strict : bool, default False
        As in `ReedSolomon`.

    Raises
    ------
    ValueError, UnstableCodeError
        As `ReedSolomon` does.

    Notes
    -----
    Ye and Abbe, "Communication-computation efficient gradient coding", ICML 2018, section III, with
    three changes that keep it precise. The points x_i at which worker i evaluates the polynomials
    are roots of unity instead of real numbers, in the order that suits the supports
    (`ReedSolomon`'s "stable" root), so powers count modulo n. s of these powers are idle: no
    polynomial contains them. The pieces of the sum are coefficients: in the paper of the m highest
    powers, here of the powers next to the idle ones, half of them above and half below. Decoding
    vectors are near-exact: they have a small residual where that costs less than rounding would.

    Stragglers are worst if their points are neighbours on the circle. At n = 80, m = 8, s = 12 the
    error is then 1e-10 (4e-9 with all pieces above). In clusters, which have a circle each, it is
    at most 5e-13.

    Examples
    --------
    >>> import numpy as np, fastgc
    >>> code = fastgc.YeAbbe(6, stragglers=1, reduce=2)
    >>> code.load, code.message_size(p=1000)
    (3, 500)
    >>> g = np.arange(24.0).reshape(6, 4)
    >>> messages = [code.encode(i, g[code.partitions(i)]) for i in range(1, 6)]
    >>> np.round(code.decode(range(1, 6), messages, p=4), 9)
    array([60., 66., 72., 78.])
    """

    scheme: YeAbbeScheme
    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        stragglers: int,
        reduce: int,
        packed: bool = True,
        clusters: int | Literal["auto"] = 1,
        strict: bool = False,
    ) -> None:
        n, k = check_sizes(n, k, at_least_n=True)
        s = check_stragglers(stragglers, n)
        m = check_between("reduce", reduce, 1, n - s, "n - s")
        most = n // (s + m)
        count = most if clusters == "auto" else check_integer("clusters", clusters)
        if not 1 <= count <= most:
            raise ValueError(
                f'clusters must be "auto" or in 1 .. floor(n / (stragglers + reduce)) = {most}, '
                f"not {clusters!r}"
            )
        super().__init__(YeAbbeScheme(n, k, s, m, count, bool(packed)))
        remedy = "use a smaller reduce, or fewer stragglers"
        check_stability(
            self.scheme, strict, f'use clusters="auto", {remedy[4:]}' if count < most else remedy
        )


class YeAbbeScheme(Scheme):
    """The scheme of `YeAbbe`."""

    is_complex = True
    stragglers: int

    def __init__(
        self, n: int, k: int, stragglers: int, pieces: int, clusters: int, packed: bool
    ) -> None:
        self.n, self.k, self.packed, self.clusters = n, k, packed, clusters
        self.stragglers, self.pieces = s, m = stragglers, pieces
        sizes = n // clusters + (np.arange(clusters) < n % clusters)
        self._ends = np.cumsum(sizes)
        self._circles = [
            _Circle(size, s + m, m, stable_root(size, s + m)) for size in sizes.tolist()
        ]
        # Each cluster has as many groups of partitions as workers.
        held = np.diff(self._ends * k // n, prepend=0)
        lengths = [
            np.diff(even_cuts(part, size))
            for size, part in zip(sizes.tolist(), held.tolist(), strict=True)
        ]
        self._cuts = np.append(0, np.cumsum(np.concatenate(lengths)))

    def row(self, worker: int) -> tuple[Ints, Complexes]:
        """Groups worker .. worker + s + m - 1 of its cluster: it is the first one's last holder."""
        c = int(np.searchsorted(self._ends, worker, side="right"))
        ring = self._circles[c]
        first = int(self._ends[c]) - ring.n
        coefficients = _table(ring)[::-1] * ring.values(ring.powers, np.array([worker - first]))
        group = first + (worker - first + np.arange(ring.d)) % ring.n
        _, held, values = entries_of(self._cuts, np.array([0, ring.d]), group, coefficients)
        return held, values if self.pieces > 1 else values[:, 0]

    # The rest is computed for all workers at once, place by place, as `row` computes it for one.

    def _places(self) -> Iterator[tuple[Ints, Complexes]]:
        """For each place of a worker's groups, from its own group on: groups and coefficients.

        Yields
        ------
        (n,) int64 array
        (n, pieces) complex128 array
            Coefficients are without the phases.
        """
        sizes = np.array([ring.n for ring in self._circles])
        size, first = np.repeat(sizes, sizes), np.repeat(self._ends - sizes, sizes)
        kinds = list(dict.fromkeys(self._circles))
        tables = np.array([_table(ring)[::-1] for ring in kinds])
        kind = np.repeat([kinds.index(ring) for ring in self._circles], sizes)
        at = np.arange(self.n) - first
        for place in range(tables.shape[1]):
            yield first + (at + place) % size, tables[kind, place]

    @cached_property
    def entries(self) -> tuple[Ints, Ints, Array]:
        listed = list(self._places())
        groups = np.stack([group for group, _ in listed], axis=1)
        values = np.stack([values for _, values in listed], axis=1)
        values = values * self._phases[:, None]
        first = np.arange(self.n + 1) * groups.shape[1]
        values = values.reshape(-1, self.pieces)
        if self.pieces == 1:
            values = values[:, 0]
        return entries_of(self._cuts, first, groups.ravel(), values)

    @property
    def _phases(self) -> Complexes:
        """The factors of a worker's coefficients, for each piece. (n, pieces)."""
        return np.concatenate([ring.values(ring.powers) for ring in self._circles])

    def _totals(self, each: Callable[[Array], Array]) -> Floats:
        """For each worker, the sum over its partitions of ``each(coefficients)``."""
        size = np.diff(self._cuts)
        found = np.zeros(self.n)
        for group, values in self._places():
            found += size[group] * each(values).sum(axis=1)
        return found

    @cached_property
    def _known_loads(self) -> Ints:
        return self._totals(lambda values: np.ones((self.n, 1))).astype(np.int64)

    @cached_property
    def row_norms(self) -> Floats:
        return self._totals(lambda values: np.abs(values) ** 2) / self.wanted

    @cached_property
    def row_sums(self) -> Floats:
        return self._totals(np.abs)

    def deviation(self, survivors: Ints, vector: Array) -> Array:
        m = self.pieces
        a = np.zeros((self.n, 1, m), dtype=np.clongdouble)
        a[survivors, 0] = vector.reshape(len(vector), m)
        phases = self._phases
        total = np.zeros((self.n, m, m), dtype=np.clongdouble)
        for group, values in self._places():  # each group occurs once in a place
            total[group] += (values * phases)[:, :, None] * a
        lacking: Array = total - np.eye(m)
        if self.layout == "complex":
            lacking = lacking.real
        lacking = np.repeat(lacking, np.diff(self._cuts), axis=0)
        return lacking.reshape(self.k) if m == 1 else lacking

    @cached_property
    def rule(self) -> Blocks:
        """All but s messages of each cluster."""
        sizes = np.array([ring.n for ring in self._circles])
        return Blocks(np.repeat(np.arange(sizes.size), sizes), sizes - self.stragglers)

    def vector(self, survivors: Ints) -> Complexes:
        """Near-exact vectors, by cluster: O(s^3 + n s)."""
        return self.vector_for(survivors, DOUBLE)

    def vector_for(self, survivors: Ints, unit: float) -> Complexes:
        if self.rule.missing(survivors):
            self.raise_too_few(survivors)
        lost = np.ones(self.n, dtype=np.bool_)
        lost[survivors] = False
        parts = np.split(lost, self._ends[:-1])
        of_all = [ring.vectors(gone, unit) for ring, gone in zip(self._circles, parts, strict=True)]
        found: Complexes = np.concatenate(of_all)[survivors]
        return found if self.pieces > 1 else found[:, 0]

    def rings(self) -> list[Ints]:
        """The workers of each cluster, in the order of their points on the circle."""
        return [
            end - ring.n + np.argsort(ring.q * np.arange(ring.n) % ring.n)
            for ring, end in zip(self._circles, self._ends.tolist(), strict=True)
        ]


class _Circle(NamedTuple):
    """The code of one cluster: its points, the idle powers, and the powers of the pieces."""

    n: int  # workers, and groups of partitions
    d: int  # workers that hold each group
    m: int  # pieces
    q: int  # the point of worker i is exp(2 pi i q i / n)

    @property
    def powers(self) -> Ints:
        """The power of each piece. The idle powers, m - d .. -1, lie between the pieces' powers."""
        below = self.m // 2
        return np.append(np.arange(self.m - below), self.m - self.d - 1 - np.arange(below))

    def values(self, powers: Ints, workers: Ints | None = None) -> Complexes:
        """x_i^t: a row for each of the workers (default: all), a column for each power."""
        workers = np.arange(self.n) if workers is None else workers
        turns = self.q * workers[:, None] * powers % self.n
        found: Complexes = roots(self.n)[turns]
        return found

    def vectors(self, lost: Bools, unit: float) -> Complexes:
        """Decoding vectors of all workers but the lost, whose entries are what is left out.

        The vector x_i^-t / n extracts the coefficient of x^t from the values at all points. Adding
        multiples of idle powers changes what it extracts only through lost messages. The multiples
        minimise the gradient's expected error, which has two parts: the entries of the lost are the
        residual, and the entries of the others multiply two roundings of each message. All rows of
        B have the same norm, so this is a ridge regression with parameter 2 u.
        """
        whole = self.values(-self.powers) / self.n
        s = self.d - self.m
        if not s or not lost.any():
            return whole
        idle = self.values(np.arange(1, s + 1))
        gone = np.flatnonzero(lost)
        # Householder's reflections keep the precision of small rows below large ones.
        system = np.zeros((gone.size + s, self.d), dtype=np.complex128)
        system[: gone.size, :s], system[: gone.size, s:] = idle[gone], whole[gone]
        np.fill_diagonal(system[gone.size :, :s], 2 * unit * math.sqrt(self.n))
        triangle: Array = np.asarray(np.linalg.qr(system, mode="r"))[:s]
        found: Complexes = whole - idle @ np.linalg.solve(triangle[:, :s], triangle[:, s:])
        return found


@lru_cache(maxsize=64)
def _table(ring: _Circle) -> Complexes:
    """Coefficients at each place of a group's holders, for each piece, up to the phase x^t.

    For the upper pieces these are sums of the first terms of ``prod_r (1 - y / x_r)`` at the
    place's own point. For the lower pieces they are sums of the last terms, less the whole product,
    which is 0. The product's coefficients follow from the q-binomial theorem, as precise as their
    factors.
    """
    n, d, m, q = ring
    below = m // 2
    sine = np.append(sines(n, q)[n:], 0.0)  # 2 sin(pi q t / n), t = 0 .. n
    t = np.arange(1, m - below + 1)
    binomial = np.append(1.0, np.cumprod(sine[d + 1 - t] / sine[t]))

    def terms(degree: Ints, size: Floats) -> Complexes:
        angle = q * degree * (2 * np.arange(d)[:, None] - (d - 1))  # in units of pi / n
        signed: Complexes = np.where(degree % 2, -size, size) * circle(n)[angle % (2 * n)]
        return signed

    first, last = np.arange(m - below), d - np.arange(below)
    upper = np.cumsum(terms(first, binomial[: m - below]), axis=1)[:, ::-1]
    lower = -np.cumsum(terms(last, binomial[:below]), axis=1)[:, ::-1]
    table = tau(n, d, q)[:, None] * np.hstack([upper, lower])
    table.flags.writeable = False
    return table
