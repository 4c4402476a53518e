"""Near-exact decoding vectors of Reed-Solomon codes, for stragglers whose exact ones are too long.

The locator form ``a_i = p(alpha^i)`` decodes exactly if p vanishes on the stragglers. If their
roots lie close together on the circle, such a p is astronomically large elsewhere and multiplies
the messages' rounding errors. A p that only nearly vanishes there stays small everywhere. What it
leaves of the stragglers' share, ``a_F B_F - 1``, can be as small as rounding: `kernels.near_exact`.

If some columns of B are alike, shorter exact vectors exist, too (`kernels.near_exact.shortest`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from .. import kernels
from .._base.arrays import Array, Complexes, Ints
from ..kernels.near_exact import Circulant, Projector, nearly_vanishing, shortest
from ..kernels.rows import DOUBLE
from .clusters import Cluster, log_tau, tau

# Largest degree of near-exact vectors: some tenths of a second.
AFFORDABLE = 4096

# Most entries of the projector on the kernel of a code's columns, and of the equations of
# `shortest`: 16 megabytes.
ENTRIES = 1 << 20

# Rounding errors of a vector by transforms are at most this many times ``sqrt(n)`` roundings.
# Measured, for stragglers that leave the vector short enough, and n up to 65536. Those of a vector
# by products of s factors are sqrt(s) / 2 roundings.
ROUNDED = 4.0

# Up to QUICK stragglers, the shortest exact vector takes less than a millisecond. With 1,021 of
# 4,096 workers it takes 100, and the near-exact one 2: "auto" is then content with ENOUGH as error.
QUICK, ENOUGH = 128, 1e-8

# Largest degree of a code that is computed to estimate precision; larger ones are scaled down.
SAMPLED = 128


def kept_error(unit: float, precision: float = 0.0) -> float:
    """Expected error up to which an exact vector is kept: 1e-10 for float64 messages, or more.

    Only the rounding of messages counts; it has then cost three eighths of the digits. A near-exact
    vector takes ten times as long. With random stragglers and a tolerance of a hundred, it gains a
    factor of five in every other set.
    """
    return max(float(unit**0.625), precision)


def longest_kept(
    clusters: Sequence[Cluster], unit: float, m: int = 0, precision: float = 0.0
) -> float:
    """Squared norm of the longest exact vector that is kept.

    Its expected error is at most `kept_error`, or twice the least that any vector has. If even that
    leaves nothing of the gradient, every vector is kept. The vector is computed by transforms of
    length `m`, whose rounding counts, or, if `m` is 0, by products, whose rounding does not.
    """
    k = sum(c.k for c in clusters)
    rows = [row_square(c, k) for c in clusters]
    least = math.hypot(*(least_rounding(c, k, unit) for c in clusters))
    if least >= 1:
        return math.inf
    error = max(kept_error(unit, precision), 2 * least)
    return (error / (2 * unit)) ** 2 / max(rows) / (1 + m * (ROUNDED * DOUBLE / unit) ** 2)


def affordable(clusters: Sequence[Cluster]) -> bool:
    """Whether near-exact vectors take tenths of a second at most."""
    return max(c.tolerance for c in clusters) <= AFFORDABLE


def square(vector: Complexes) -> float:
    """Squared norm of a vector; Inf or NaN beyond float64."""
    return float(kernels.unchecked.square_sum(np.ascontiguousarray(vector).view(np.float64)))


@lru_cache(maxsize=4096)
def _column_square(m: int, d: int, q: int) -> float:
    """Squared norm of a column; Inf beyond float64."""
    with np.errstate(over="ignore"):
        return float(np.exp(np.logaddexp.reduce(2 * log_tau(m, d, q))))


@lru_cache(maxsize=64)
def row_square(cluster: Cluster, k: int) -> float:
    """Mean squared norm of a cluster's rows of B; `k` counts the partitions of all clusters."""
    m, q = cluster.m, cluster.q
    light, heavy = divmod(m * cluster.w, cluster.k)
    total = (cluster.k - heavy) * _column_square(m, light, q)
    if heavy:
        total += heavy * _column_square(m, light + 1, q)
    return total / (m * k)


def least_rounding(cluster: Cluster, k: int, unit: float) -> float:
    """Lower bound of what rounding of messages adds to the gradient, whoever straggles; may be Inf.

    `k` counts the partitions of all clusters, as the gradient is of all.

    It is reached by ``a = 1 / m`` for all m workers: ``2 u`` times the root of a row's mean square
    over m. The values of any polynomial p with p(0) = 1/m, stragglers' included, are as long or
    longer.

    Call the bound r. If equally many columns begin at each worker, the expected error of any vector
    is at least ``r / sqrt(1 + r^2)``. For ``a B - 1`` is at least as large as its mean, sum(a) - 1,
    and sum(a) is at most sqrt(m) times the length of a.
    """
    square = row_square(cluster, k) / cluster.m
    return 2 * unit * math.sqrt(square) if square < math.inf else math.inf


def unnamed(m: int, numbers: Ints) -> Ints:
    """Return those of 0 .. m-1 that are not in `numbers`."""
    left = np.ones(m, dtype=np.bool_)
    left[numbers] = False
    return np.flatnonzero(left)


def split(clusters: Sequence[Cluster], survivors: Ints) -> Iterator[tuple[Cluster, Any, Ints]]:
    """Yield each cluster with the positions of its survivors, and their numbers in it."""
    if len(clusters) == 1:
        yield clusters[0], slice(None), survivors
        return
    firsts = np.array([c.first_worker for c in clusters])
    of = np.searchsorted(firsts, survivors, side="right") - 1
    order = np.argsort(of, kind="stable")
    ends = np.cumsum(np.bincount(of, minlength=len(clusters)))
    for c, at in zip(clusters, np.split(order, ends[:-1]), strict=True):
        yield c, at, survivors[at] - c.first_worker


def nearer_vector(
    clusters: Sequence[Cluster],
    survivors: Ints,
    unit: float,
    exact: Complexes | None = None,
    kept: float = 0.0,
    precision: float = 0.0,
) -> Complexes:
    """Return the near-exact vector of survivors that suffice, found cluster by cluster.

    With `exact`, whose entries may be beyond float64, a cluster keeps the exact vector if its
    |a_F|^2 is at most `kept`. Otherwise, if few columns differ, it takes the shortest exact vector
    if that is good enough. Otherwise it takes the near-exact vector, or the shortest if its
    expected error, of what is left out and of rounding, is smaller. With `exact`, and more than
    `QUICK` stragglers, it tries the near-exact vector first, whose error may be `ENOUGH`.

    An exact vector that is too long is not compared: of 22 codes of 64 to 4096 workers, random
    stragglers, arcs, windows, and two of three, in float64, float32 and float16, none had less than
    a quarter of the near-exact one's error.
    """
    vector = np.empty(survivors.size, dtype=np.complex128)
    for c, at, members in split(clusters, survivors):
        if exact is not None and kept > 0:
            length = square(exact[at])
            if length <= kept and length < math.inf:
                vector[at] = exact[at]
                continue
        projector = projector_of(c.alone) if (c.m - members.size) ** 2 <= ENTRIES else None
        if projector is None:
            vector[at] = _near(c, members, unit)[0]
            continue
        enough, least = kept_error(unit, precision), math.inf
        ways: list[_Way] = [partial(_short, projector), _near]
        if exact is not None and c.m - members.size > QUICK:
            enough, ways = max(enough, ENOUGH), ways[::-1]
        for way in ways:
            found, error = way(c, members, unit)
            if error > enough:
                error = _error(c.alone, members, found, unit)
            if error < least or (way is _near and least == math.inf):
                vector[at], least = found, error
            if least <= enough:
                break
    return vector


_Way = Callable[[Cluster, Ints, float], tuple[Complexes, float]]


def _near(c: Cluster, members: Ints, unit: float) -> tuple[Complexes, float]:
    """The near-exact vector; no bound of its expected error is known."""
    turns = c.q * members % c.m
    return nearly_vanishing(unnamed(c.m, turns), c.m, c.tolerance, unit)[turns], math.inf


def _short(projector: Projector, c: Cluster, members: Ints, unit: float) -> tuple[Complexes, float]:
    """The shortest exact vector, and a bound of its expected error."""
    found, off = shortest(projector, unnamed(c.m, members))
    return found[members], _error_bound(c.alone, off, square(found), unit)


def _error_bound(alone: Cluster, off: float, length: float, unit: float) -> float:
    """Bound of `_error` for a vector of squared norm `length` that is `off` from an exact one.

    What is left out is at most `off` times the norm of B, which is at most its Frobenius norm.
    """
    row = row_square(alone, alone.k)
    return math.sqrt(row * (alone.m * off * off + (2 * unit) ** 2 * length))


def _error(alone: Cluster, survivors: Ints, vector: Complexes, unit: float) -> float:
    """Expected error of a vector in a code of one cluster: what is left out, and rounding.

    Exact vectors leave something out, too: a product of many factors is rounded as often, and sums
    over the rows cancel.
    """
    row = row_square(alone, alone.k)
    if row == math.inf:
        return math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        left = left_squared(alone, survivors, vector)
        total = left / alone.k + (2 * unit) ** 2 * row * square(vector)
    return math.sqrt(total) if total < math.inf else math.inf


@lru_cache(maxsize=16)
def projector_of(alone: Cluster) -> Projector | None:
    """Projector on what B maps to zero; None unless there is a choice of exact vectors.

    There is one if fewer columns differ than there may be survivors. None also if columns are
    beyond float64, or if the projector would have too many entries.

    Columns lie end to end around the circle of m workers. Columns of one weight d begin at all
    multiples of gcd(d, m), and are shifts of tau by these.
    """
    m, weights = alone.m, alone.weights
    if row_square(alone, alone.k) == math.inf:
        return None
    if len(weights) == 1:
        common = math.gcd(weights[0], m)
        steps = [g for g in range(2, min(common, ENTRIES // m) + 1) if common % g == 0]
        step = max(steps, default=1)
        if step == 1 or m // step > m - weights[0]:
            return None
        column = np.zeros(m, dtype=np.complex128)
        column[: weights[0]] = tau(m, weights[0], alone.q)
        with np.errstate(over="ignore", invalid="ignore"):
            found: Projector = Circulant.by_shifts(column, step)
        return found if np.isfinite(found.projector).all() else None
    different = np.unique(np.stack(alone.columns()), axis=1)
    if different.shape[1] >= m - alone.tolerance or m * m > ENTRIES:
        return None
    columns = np.zeros((m, different.shape[1]), dtype=np.complex128)
    for at, (first, d) in enumerate(different.T.tolist()):
        columns[(first + np.arange(d)) % m, at] = tau(m, d, alone.q)
    return Projector.of(columns)


@lru_cache(maxsize=64)
def _spectrum(m: int, d: int, q: int) -> Complexes:
    """Factor of a vector's transform that gives its products with all shifts of tau."""
    padded = np.zeros(m, dtype=np.complex128)
    padded[:d] = tau(m, d, q)
    found: Complexes = np.conj(np.fft.fft(np.conj(padded)))
    found.flags.writeable = False
    return found


@lru_cache(maxsize=16)
def _of_weight(alone: Cluster) -> list[tuple[int, Ints, Ints]]:
    """Weights of columns, with the columns of each, and the workers at which they begin."""
    first, weight = alone.columns()
    return [(d, np.flatnonzero(weight == d), first[weight == d]) for d in alone.weights]


@lru_cache(maxsize=16)
def _begin(alone: Cluster) -> list[tuple[int, Ints]]:
    """Weights of columns, and for each how many columns begin at each worker."""
    return [(d, np.bincount(first, minlength=alone.m)) for d, _, first in _of_weight(alone)]


def left_squared(alone: Cluster, survivors: Ints, vector: Complexes) -> float:
    """Squared norm of `lacking` for one cluster."""
    of_all = np.zeros(alone.m, dtype=np.complex128)
    of_all[survivors] = vector
    transformed: Array = np.fft.fft(of_all)
    total = 0.0
    for d, counts in _begin(alone):
        missing = np.fft.ifft(transformed * _spectrum(alone.m, d, alone.q)) - 1
        total += float(counts @ (missing.real**2 + missing.imag**2))
    return total


def lacking(clusters: Sequence[Cluster], survivors: Ints, vector: Complexes) -> Complexes:
    """``a_F B_F - 1`` of every partition, by transforms: O(n log n + k).

    Its rounding errors are as large as those of messages in float64.
    """
    n = clusters[-1].first_worker + clusters[-1].m
    of_all = np.zeros(n, dtype=np.complex128)
    of_all[survivors] = vector
    alike: dict[Cluster, list[Cluster]] = {}
    for c in clusters:
        alike.setdefault(c.alone, []).append(c)
    found = np.empty(clusters[-1].first_partition + clusters[-1].k, dtype=np.complex128)
    for kind, members in alike.items():
        workers = np.array([c.first_worker for c in members])[:, None] + np.arange(kind.m)
        partitions = np.array([c.first_partition for c in members])[:, None] + np.arange(kind.k)
        transformed: Array = np.fft.fft(of_all[workers])
        for d, columns, first in _of_weight(kind):
            products = np.fft.ifft(transformed * _spectrum(kind.m, d, kind.q))
            found[partitions[:, columns]] = products[:, first]
    found -= 1
    return found


@np.errstate(under="ignore")
def typical_error(cluster: Cluster, s: int, precision: float, spread: bool) -> float:
    """Median relative error in float64 with s random stragglers of a cluster.

    For exact vectors it is computed from a sample of coefficients; `spread` says whether they are
    of survivors that are chosen if more came than are needed. If "auto" would take near-exact
    vectors, it is computed from a code of at most `SAMPLED` degrees with the same proportions.
    """
    rng = np.random.default_rng(0)
    d = -(-cluster.m * cluster.w // cluster.k)
    # The mean square of a row, over that of all partial gradients; then the roundings of a message.
    log_row = np.logaddexp.reduce(2 * log_tau(cluster.m, d, cluster.q)) - math.log(cluster.m)
    steps = cluster.w + 2
    found = []
    for _ in range(5):
        sample = min(max(4, (1 << 18) // (s + 1)), 64)
        chosen = rng.choice(cluster.m, min(s + sample, cluster.m), replace=False)
        lost, came = np.split(chosen, [s])
        turns = cluster.q * (came[:, None] - lost) % cluster.m
        logs = np.log(2 * np.sin(np.pi / cluster.m * turns)).sum(axis=1) - math.log(cluster.m)
        log_square = np.logaddexp.reduce(2 * logs) + math.log((cluster.m - s) / came.size)
        if spread and s < cluster.tolerance:
            log_square = min(log_square, 0)
        log_error = (log_square + log_row + math.log(steps)) / 2 + math.log(DOUBLE)
        if log_error > math.log(kept_error(DOUBLE, precision)):
            near = _near_growth(cluster.m, cluster.tolerance, s, steps, rng)
            log_error = min(log_error, (math.log(near / cluster.m) + log_row) / 2)
        found.append(log_error)
    return math.exp(min(float(np.median(found)), 709.0))


def _near_growth(m: int, degree: int, s: int, steps: int, rng: np.random.Generator) -> float:
    """``m (|a_S|^2 + steps u^2 |a_F|^2)`` of a near-exact vector with s random stragglers."""
    if degree > SAMPLED:
        m, s = max(SAMPLED * m // degree, SAMPLED + 1), max(SAMPLED * s // degree, 1)
        degree = SAMPLED
    lost = np.zeros(m, dtype=np.bool_)
    lost[rng.permutation(m)[:s]] = True
    size = np.abs(nearly_vanishing(np.flatnonzero(lost), m, degree, DOUBLE)) ** 2
    left, came = float(size[lost].sum()), float(size[~lost].sum())
    return m * (left + steps * DOUBLE**2 * came)
