"""Reed-Solomon codes in clusters: which workers hold what, at which roots, and the numbers of B.

Workers and partitions are split into clusters, then each cluster gets its mask and its root.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Array, Complexes, Floats, Ints, check_reals
from ..kernels.cyclic import sines
from ..numerics.interpolation import roots_of_unity
from .arguments import check_between, check_stragglers

# Largest number of products for which a correlation is summed term by term, a third of a second.
# A larger one uses transforms if no value is more than EVEN times another.
DIRECT, EVEN = 1 << 26, 1e3


# Most columns that differ, for the rank of rows to tell which workers suffice. With 128 a vector
# takes a millisecond, and to follow a round 0.03 ms a message; with 250 it is 200 ms and 1 ms.
SPANNED = 128


class Cluster(NamedTuple):
    """One code of the direct sum: Algorithms 1, 2 and 4 on its own workers and partitions."""

    first_worker: int
    first_partition: int
    m: int  # workers
    k: int  # partitions
    w: int  # load
    q: int  # root exp(2 pi i q / m)

    @property
    def alone(self) -> Cluster:
        """The same cluster in a code of its own."""
        return self._replace(first_worker=0, first_partition=0)

    @property
    def tolerance(self) -> int:
        """Number of stragglers tolerated, eq. (2)."""
        return self.m * self.w // self.k - 1

    def columns(self) -> tuple[Ints, Ints]:
        """Return the first row and the weight of each column of the mask (Algorithm 4)."""
        return _columns(self.m, self.k, self.w)

    @property
    def cells(self) -> Ints | None:
        """Where cells of workers begin, and the end, if each worker has one column but for copies.

        The first column begins at worker 0, and each of the others where one before it ends. So if
        no two that differ share a worker, they cut the circle into arcs, and none wraps.
        """
        first, weight, _ = self.kinds()
        return np.append(first, self.m) if weight.sum() == self.m else None

    @property
    def deficient(self) -> bool:
        """Whether columns span less than all polynomials of degrees up to `m - tolerance - 1`.

        Column j has the values of a polynomial t_j of such a degree at the m roots, and t_j(0) = 1.
        If their span, V, has all, fewer survivors than its dimension never suffice: the product of
        ``1 - z / alpha^i`` over them is in V, vanishes at all of them, and is 1 at 0. As a sum of
        ``x_j t_j`` it shows an x with ``B_F x = 0`` and ``sum(x) = 1``.

        Columns of one weight d begin at all multiples of ``g = gcd(d, m)``, and there are m / g
        that differ. Then V is spanned by the parts of t_0 whose exponents are equal modulo m / g.
        No coefficient of t_0 up to its degree m - d is 0: it is a Gaussian binomial of alpha. So
        V has the dimension ``min(m / g, m - d + 1)``. For two weights it is computed.
        """
        differ, need = self.kinds()[0].size, self.m - self.tolerance
        if differ < need or len(self.weights) == 1:
            return differ < need
        if differ > SPANNED:
            return False
        rank = np.linalg.matrix_rank(self.distinct())
        return int(rank) < need

    def kinds(self) -> tuple[Ints, Ints, Ints]:
        """Return the first row and the weight of columns that differ, and how many of each."""
        return _kinds(self.m, self.k, self.w)

    def distinct(self) -> Complexes:
        """The columns that differ, each times the root of how many there are."""
        rows = np.zeros((self.m, self.kinds()[0].size), dtype=np.complex128)
        kinds = zip(*map(np.ndarray.tolist, self.kinds()), strict=True)
        for at, (first, d, count) in enumerate(kinds):
            rows[(first + np.arange(d)) % self.m, at] = tau(self.m, d, self.q) * math.sqrt(count)
        return rows

    @property
    def weights(self) -> list[int]:
        """Weights of columns, at most two; the weight of most columns comes last."""
        light, heavy = divmod(self.m * self.w, self.k)
        return [light + 1, light] if heavy else [light]

    def totals(self, weight: int, values: Floats) -> Floats:
        """Sum ``values[place]`` over the partitions of this weight, for each worker. (m,)."""
        # Laid end to end around the workers, columns of this weight are at begin .. end-1. So what
        # a worker meets repeats itself after `weight` workers.
        light, heavy = divmod(self.m * self.w, self.k)
        change = heavy * (light + 1)
        begin, end = (change, self.m * self.w) if weight == light else (0, change)
        first, last = -(-begin // self.m), end // self.m  # rounds with this weight only
        found = np.zeros(self.m)
        if first < last:
            rotations = (self.m * np.arange(first, last, dtype=np.int64) - begin) % weight
            periodic = _correlation(np.bincount(rotations, minlength=weight), values)
            found += np.resize(periodic, self.m)
        rest = [(begin, min(first * self.m, end)), (max(last * self.m, begin), end)]
        for lo, hi in rest if first <= last else [(begin, end)]:
            at = np.arange(lo, hi)
            found[at % self.m] += values[(at - begin) % weight]
        return found

    def row(self, worker: int | Ints) -> tuple[Ints, Ints, Ints]:
        """Return a worker's partitions, and for each the place m and weight d of its tau_d(m).

        It takes O(w). A column of workers gives a row for each.
        """
        # Columns laid end to end go w times around all workers: a worker meets every m-th place.
        light, heavy = divmod(self.m * self.w, self.k)  # weight of most; columns with one more
        at = worker - self.first_worker + self.m * np.arange(self.w, dtype=np.int64)
        if not heavy:
            held, place = np.divmod(at, light)
            return held + self.first_partition, place, np.full_like(at, light)
        beyond = at - heavy * (light + 1)
        weight = light + (beyond < 0)
        held, place = np.divmod(np.where(beyond < 0, at, beyond), weight)
        return held + np.where(beyond < 0, 0, heavy) + self.first_partition, place, weight


@np.errstate(under="ignore")
def _correlation(count: Ints, values: Floats) -> Floats:
    """Return ``sum_r count[r] values[(i + r) mod d]`` for each i < d; no value is negative."""
    used = np.flatnonzero(count)
    found = np.zeros(values.size)
    # A transform's errors are as large as those of its largest sum.
    even = values.max() <= EVEN * values.min() < np.inf
    if used.size * values.size <= DIRECT or not even:
        for r in used.tolist():
            found += count[r] * np.roll(values, -r)
        return found
    spectrum = np.conj(np.fft.rfft(count)) * np.fft.rfft(values)
    return np.maximum(np.fft.irfft(spectrum, values.size), 0.0)


@lru_cache(maxsize=64)
def _columns(m: int, k: int, w: int) -> tuple[Ints, Ints]:
    d_low, heavy = divmod(m * w, k)
    d_high = d_low + (heavy > 0)
    j = np.arange(k, dtype=np.int64)
    offset = np.where(j < heavy, j * d_high, heavy * d_high + (j - heavy) * d_low) % m
    weight = np.where(j < heavy, d_high, d_low)
    offset.flags.writeable = weight.flags.writeable = False
    return offset, weight


@lru_cache(maxsize=64)
def _kinds(m: int, k: int, w: int) -> tuple[Ints, Ints, Ints]:
    kinds, count = np.unique(np.stack(_columns(m, k, w)), axis=1, return_counts=True)
    return kinds[0], kinds[1], count


def load_and_stragglers(
    n: int, k: int, load: int | None, stragglers: int | None
) -> tuple[int, int]:
    """Return the load, and the stragglers to tolerate with it, or raise ValueError."""
    if stragglers is None and load is None:
        raise ValueError("give stragglers= or load=")
    if stragglers is not None:
        check_stragglers(stragglers, n)
    if load is None:
        assert stragglers is not None
        load = -(-(stragglers + 1) * k // n)
    check_between("load", load, 1, k, "k")
    tolerated = n * load // k - 1
    if tolerated < (stragglers or 0):
        needed = -(-((stragglers or 0) + 1) * k // n)
        raise ValueError(
            f"n={n} workers with load {load} of k={k} partitions tolerate {tolerated} stragglers "
            f"at most; {stragglers or 0} need load {needed}"
        )
    return load, tolerated if stragglers is None else stragglers


def shares_of(
    n: int, k: int, load: int, stragglers: int, clusters: Literal["auto"] | int
) -> list[tuple[int, int]]:
    """Return the workers and partitions of each cluster, or raise ValueError."""
    most = n // (stragglers + 1)
    if clusters == "auto":
        return next(s for g in range(most, 0, -1) if (s := _split(n, k, load, stragglers, g)))
    if not 1 <= clusters <= most:
        raise ValueError(
            f'clusters must be "auto" or in 1 .. floor(n / (s+1)) = {most}, not {clusters!r}'
        )
    shares = _split(n, k, load, stragglers, clusters)
    if not shares:
        raise ValueError(
            f"k={k} partitions cannot be shared by {clusters} clusters at load {load} so that each "
            f'tolerates {stragglers} stragglers; use fewer, or clusters="auto"'
        )
    return shares


def shares_by_speed(
    speed: Floats, k: int, stragglers: int, clusters: Literal["auto"] | int
) -> list[tuple[int, int]]:
    """Return workers and partitions of each cluster so that all end together, or raise ValueError.

    A cluster of m workers, each with load (s + 1) k_c / m, waits for all but s of them. So k_c is
    proportional to m times the speed of the slowest of its m - s fastest workers.
    """
    n = speed.size
    most = min(n // (stragglers + 1), k)
    if clusters == "auto":
        clusters = most
    if not 1 <= clusters <= most:
        raise ValueError(
            f'clusters must be "auto" or in 1 .. min(floor(n / (s+1)), k) = {most}, not '
            f"{clusters!r}"
        )
    sizes = [n // clusters + (c < n % clusters) for c in range(clusters)]
    members = np.split(speed, np.cumsum(sizes)[:-1])
    waited = np.array([np.sort(each)[stragglers] for each in members])
    shares = apportion(k, waited / waited.max() * np.array(sizes)).tolist()
    return list(zip(sizes, shares, strict=True))


def _split(n: int, k: int, load: int, stragglers: int, clusters: int) -> list[tuple[int, int]]:
    """Return nearly equal clusters, partitions as even as capacities allow; [] if impossible."""
    sizes = [n // clusters + (c < n % clusters) for c in range(clusters)]
    capacity = [m * load // (stragglers + 1) for m in sizes]
    if k < clusters or sum(capacity) < k:
        return []
    ends = [end * k // n for end in accumulate(sizes)]
    shares = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    shares = [min(max(share, 1), most) for share, most in zip(shares, capacity, strict=True)]
    excess = sum(shares) - k
    step = -1 if excess > 0 else 1

    def room(c: int) -> list[tuple[float, int]]:
        fits = 1 <= shares[c] + step <= capacity[c]
        return [(shares[c] / sizes[c] * step, c)] if fits else []

    # Move what the limits cut off or added, one by one, to the clusters where it matters least.
    heap = [entry for c in range(clusters) for entry in room(c)] if excess else []
    heapify(heap)
    for _ in range(abs(excess)):
        _, c = heappop(heap)
        shares[c] += step
        for entry in room(c):
            heappush(heap, entry)
    return list(zip(sizes, shares, strict=True))


def check_speeds(speeds: ArrayLike, n: int) -> Floats:
    """Return the speeds of n workers as an array, or raise an error."""
    speed = check_reals("speeds", speeds)
    if speed.shape != (n,):
        raise ValueError(f"{n} workers need {n} speeds, not an array of shape {speed.shape}")
    if not (np.isfinite(speed) & (speed > 0)).all():
        raise ValueError(f"speeds must be positive and finite, not {speed}")
    return speed


def apportion(k: int, weight: Floats) -> Ints:
    """Return whole numbers of sum k, at least 1, in proportion to weights: largest remainders."""
    weight = weight / weight.max()
    ideal = k * weight / weight.sum()
    size = np.maximum(np.floor(ideal), 1).astype(np.int64)
    while (excess := int(size.sum()) - k) > 0:  # because small ones were raised to 1
        over = np.where(size > 1, size - ideal, -np.inf)
        size[np.argsort(-over, kind="stable")[: min(excess, int((size > 1).sum()))]] -= 1
    if excess:
        size[np.argsort(size - ideal, kind="stable")[:-excess]] += 1
    shares: Ints = size
    return shares


def valid_root(m: int, k: int, w: int, root: Literal["stable"] | int) -> int:
    """Return the q of the requested root exp(2 pi i q / m), or raise ValueError."""
    if root == "stable":
        return stable_root(m, -(-m * w // k))
    if math.gcd(root, m) != 1:
        raise ValueError(
            f"root={root} is not coprime to {m}: exp(2 pi i {root} / {m}) is no primitive root"
        )
    return root % m if m > 1 else 1


# Largest number of factors that a search for the best root computes: half a second.
SEARCHED = 1 << 26


@lru_cache(maxsize=4096)
def stable_root(m: int, d: int) -> int:
    """Return the q whose root exp(2 pi i q / m) makes the largest entry of a column smallest.

    Columns have weight d. A root costs O(d). q and m - q give conjugate codes, so half of them
    suffice. If these are too many, only those are tried that spread points evenly: q / m next to
    fractions with denominator d or numerator 1. Where this was compared, the largest entry was up
    to 1.5 times the smallest possible, and up to 5 times for a prime m.
    """
    log_sines = _log_sines(m)
    u = np.arange(d, dtype=np.int64)
    best, best_size = 1, np.inf
    candidates = _roots_to_try(m, d)
    step = max((1 << 16) // d, 1)
    for at in range(0, candidates.size, step):
        some = candidates[at : at + step]
        partial = np.cumsum(log_sines[some[:, None] * u % m], axis=1)
        sizes = -(partial + partial[:, ::-1]).min(axis=1)
        for q, size in zip(some.tolist(), sizes.tolist(), strict=True):
            if size < best_size - 1e-9:
                best, best_size = q, size
    return best


def _roots_to_try(m: int, d: int) -> Ints:
    """Return numbers up to m / 2 that are coprime to m: all, or as many as may be searched."""
    q = np.arange(1, max(m // 2, 1) + 1, dtype=np.int64)
    most = max(SEARCHED // d, 100)
    if q.size > most:
        even = np.linspace(1, d // 2, most // 10).astype(np.int64) / d
        turns = 1 / np.arange(2, most // 10 + 2)
        near = np.rint(np.append(even, turns) * m).astype(np.int64)[:, None] + np.arange(-2, 3)
        q = np.unique(np.clip(near, 1, m // 2))
    coprime: Ints = q[np.gcd(q, m) == 1]
    return coprime


def _log_sines(m: int) -> Floats:
    """Return log|1 - exp(2 pi i t / m)| for t = 0 .. m-1, with 0 at t = 0."""
    table = np.zeros(m)
    table[1:] = np.log(np.abs(sines(m, 1)[m + 1 :]))
    return table


def log_tau(m: int, d: int, q: int) -> Array:
    """Return log|tau(x)| = log m - P(x) - P(d-1-x), P(t) = sum_{u=1..t} log|1 - alpha^u|.

    It uses extended precision if there is one, because the sums are much larger than the result.
    """
    partial = np.zeros(d, dtype=np.longdouble)
    np.cumsum(np.log(np.abs(sines(m, q)[m + 1 : m + d]).astype(np.longdouble)), out=partial[1:])
    logs: Array = np.log(np.longdouble(m)) - partial - partial[::-1]
    return logs


def log_totals(clusters: Sequence[Cluster], power: int) -> Floats:
    """Return the logarithm of ``sum_j |B_ij|^power`` for each worker's row."""
    known: dict[Cluster, Floats] = {}  # many clusters are alike
    for c in clusters:
        alike = c.alone
        if alike in known:
            continue
        sums = np.full(c.m, -np.inf)
        for d in c.weights:
            logs = power * log_tau(c.m, d, c.q)
            top = logs.max()
            with np.errstate(divide="ignore"):
                total = top + np.log(c.totals(d, np.exp(logs - top)))
            sums[:] = np.logaddexp(sums, total)  # logs have extended precision until here
        known[alike] = sums
    return np.concatenate([known[c.alone] for c in clusters])


@lru_cache(maxsize=256)
def tau(m: int, d: int, q: int) -> Complexes:
    """Return a column's d nonzeros, tau(x) = m / prod_{r=0..d-1, r!=x} (1 - alpha^(x-r)).

    This is Algorithm 2's product over u = d .. m-1 of (1 - alpha^(x-u)), in O(d).
    """
    # The angle of 1 - alpha^u is pi r / m - pi / 2, with the residue r = q u mod m. The angle of
    # 1 - alpha^-u is its negative.
    residues = np.cumsum(q * np.arange(d, dtype=np.int64) % m)
    turns = (residues[::-1] - residues) % (2 * m)
    turns[turns > m] -= 2 * m
    quarter = np.array([1, 1j, -1, -1j])[(2 * np.arange(d) - (d - 1)) % 4]
    with np.errstate(over="ignore"):
        size = np.exp(log_tau(m, d, q)).astype(np.float64)
    if not np.isfinite(size).all():
        raise OverflowError(
            f"the coefficients of root {q} for {m} workers and column weight {d} are beyond "
            'float64; use root="stable"'
        )
    found: Complexes = size * (np.exp(1j * np.pi / m * turns) * quarter)
    found.flags.writeable = False
    return found


roots = lru_cache(maxsize=16)(roots_of_unity)
