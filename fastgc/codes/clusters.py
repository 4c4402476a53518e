"""How Reed-Solomon codes split workers and partitions: loads, clusters, and the mask of each."""

from __future__ import annotations

from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .apportion import apportion

__all__ = ["Cluster", "load_and_stragglers", "shares_by_speed", "shares_of"]

# Products up to which a correlation is added up term by term, a third of a second; and how much
# larger one value may be than another where it is not.
DIRECT, EVEN = 1 << 26, 1e3


class Cluster(NamedTuple):
    """One code of the direct sum: Algorithms 1, 2 and 4 on its own workers and partitions."""

    first_worker: int
    first_partition: int
    m: int  # workers
    k: int  # partitions
    w: int  # load
    q: int  # root exp(2 pi i q / m)

    @property
    def tolerance(self) -> int:
        """Stragglers tolerated, eq. (2)."""
        return self.m * self.w // self.k - 1

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First row and weight of each column of the mask (Algorithm 4)."""
        return _columns(self.m, self.k, self.w)

    @property
    def weights(self) -> list[int]:
        """Weights of columns: at most two, that of most last."""
        light, heavy = divmod(self.m * self.w, self.k)
        return [light + 1, light] if heavy else [light]

    def totals(self, weight: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each worker the sum of ``values[place]`` over its partitions of this weight. (m,)."""
        # Columns of this weight, laid end to end, are at begin .. end-1 on their way around the
        # workers: what a worker meets repeats itself after `weight` workers.
        light, heavy = divmod(self.m * self.w, self.k)
        change = heavy * (light + 1)
        begin, end = (change, self.m * self.w) if weight == light else (0, change)
        first, last = -(-begin // self.m), end // self.m  # rounds that are of this weight alone
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

    def row(self, worker: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Partitions of a worker, and for each the place m and weight d of its tau_d(m). O(w)."""
        # Columns laid end to end go w times around all workers: a worker meets every m-th place.
        light, heavy = divmod(self.m * self.w, self.k)  # weight of most, columns with one more
        at = worker - self.first_worker + self.m * np.arange(self.w, dtype=np.int64)
        beyond = at - heavy * (light + 1)
        weight = light + (beyond < 0)
        held, place = np.divmod(np.where(beyond < 0, at, beyond), weight)
        return held + np.where(beyond < 0, 0, heavy) + self.first_partition, place, weight


def _correlation(count: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """``sum_r count[r] values[(i + r) mod d]`` for each i < d; values are not negative."""
    used = np.flatnonzero(count)
    found = np.zeros(values.size)
    # Errors of transforms are as large as those of the largest sum.
    even = values.max() <= EVEN * values.min() < np.inf
    if used.size * values.size <= DIRECT or not even:
        for r in used.tolist():
            found += count[r] * np.roll(values, -r)
        return found
    spectrum = np.conj(np.fft.rfft(count)) * np.fft.rfft(values)
    return np.maximum(np.fft.irfft(spectrum, values.size), 0.0)


@lru_cache(maxsize=64)
def _columns(m: int, k: int, w: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    d_low, heavy = divmod(m * w, k)
    d_high = d_low + (heavy > 0)
    j = np.arange(k, dtype=np.int64)
    offset = np.where(j < heavy, j * d_high, heavy * d_high + (j - heavy) * d_low) % m
    weight = np.where(j < heavy, d_high, d_low)
    offset.flags.writeable = weight.flags.writeable = False
    return offset, weight


def load_and_stragglers(
    n: int, k: int, load: int | None, stragglers: int | None
) -> tuple[int, int]:
    """The load, and the stragglers to tolerate with it, or ValueError."""
    if stragglers is None and load is None:
        raise ValueError("give stragglers= or load=")
    if stragglers is not None and not 0 <= stragglers < n:
        raise ValueError(f"stragglers must be in 0 .. n-1 = {n - 1}, not {stragglers}")
    if load is None:
        assert stragglers is not None
        load = -(-(stragglers + 1) * k // n)
    if not 1 <= load <= k:
        raise ValueError(f"load must be in 1 .. k = {k}, not {load}")
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
    """Workers and partitions of each cluster, or ValueError."""
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
    speed: NDArray[np.float64], k: int, stragglers: int, clusters: Literal["auto"] | int
) -> list[tuple[int, int]]:
    """Workers and partitions of each cluster, so that all end at the same time, or ValueError.

    A cluster of m workers, of load (s + 1) k_c / m each, waits for all but s of them: k_c is in
    proportion to m times the speed of the slowest of the m - s fastest.
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
    """Nearly equal clusters, partitions as even as their capacities allow; [] if impossible."""
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

    # what rounding to the capacities moved, one by one to where it matters least
    heap = [entry for c in range(clusters) for entry in room(c)] if excess else []
    heapify(heap)
    for _ in range(abs(excess)):
        _, c = heappop(heap)
        shares[c] += step
        for entry in room(c):
            heappush(heap, entry)
    return list(zip(sizes, shares, strict=True))
