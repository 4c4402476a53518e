"""Reed-Solomon codes in twice the precision of float64, for messages of float64x2.

Half of the workers of 256 may straggle so that the best vector there is loses two thirds of
float64's digits. With coefficients, messages and sums in pairs of float64 it still does, of twice
as many: what is left is more than a gradient of float64 can hold.

All that depends on the code alone is computed once, by Python's own decimal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .cache import VectorFunction, remembering
from .clusters import Cluster
from .near_exact import kept_error, row_square, split, square, unnamed
from .scheme import Scheme

__all__ = ["bind_pairs", "deviation", "pair_row"]

# Unit roundoff of a sum of two float64.
PAIR = 2.0**-106

METHODS = ("auto", "locator", "near-exact")

# Digits that tables are computed with, and that they are rounded to: pairs have 32.
COMPUTED, KEPT = 60, Decimal(10) ** -50

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")

# Steps, degree^3, up to which near-exact vectors are computed: up to two seconds.
AFFORDABLE = 1 << 30


# ---------------------------------------------------------------------------- what codes are of


def _sine_and_cosine(angle: Decimal) -> tuple[Decimal, Decimal]:
    """By Taylor's series, of an angle in 0 .. pi."""
    sums, term, power = [Decimal(0), Decimal(0)], Decimal(1), 0
    while abs(term) > KEPT * KEPT or power < 10:
        sums[power % 2] += term if power % 4 < 2 else -term
        power += 1
        term *= angle / power
    return sums[1], sums[0]


@lru_cache(maxsize=16)
def _half_turns(n: int) -> list[tuple[Decimal, Decimal]]:
    """Cosine and sine of ``pi j / n``, j = 0 .. 2n-1."""
    with localcontext(prec=COMPUTED):
        step_sine, step_cosine = _sine_and_cosine(PI / n)
        cosine, sine = Decimal(1), Decimal(0)
        found = []
        for _ in range(n):
            found.append((cosine.quantize(KEPT), sine.quantize(KEPT)))
            cosine, sine = (
                cosine * step_cosine - sine * step_sine,
                cosine * step_sine + sine * step_cosine,
            )
        return found + [(-c, -s) for c, s in found]


def _pairs(numbers: Iterable[Decimal]) -> NDArray[np.float64]:
    """The nearest float64 of each, and what it lacks. (..., 2)."""
    found = []
    with localcontext(prec=COMPUTED):
        for number in numbers:
            high = float(number)
            found.append((high, float(number - Decimal(high)) if math.isfinite(high) else 0.0))
    return np.array(found).reshape(-1, 2)


@lru_cache(maxsize=16)
def circle(n: int) -> NDArray[np.float64]:
    """Cosine and sine of ``pi j / n`` in pairs, j = 0 .. 2n-1. (2n, 2, 2)."""
    found = _pairs(part for each in _half_turns(n) for part in each).reshape(2 * n, 2, 2)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=256)
def pair_tau(m: int, d: int, q: int) -> NDArray[np.complex128]:
    """`fastgc.coding.clusters.tau` in pairs. (d, 2)."""
    turns = _half_turns(m)
    residues = [q * u % m for u in range(d)]
    angles = np.cumsum(residues)
    with localcontext(prec=COMPUTED):
        products = [Decimal(1)]
        for residue in residues[1:]:
            products.append(products[-1] * 2 * turns[residue][1])
        numbers = []
        for x in range(d):
            size = m / (products[x] * products[d - 1 - x])
            # the angle as in `tau`: half turns over m, and quarter turns
            cosine, sine = turns[int(angles[d - 1 - x] - angles[x]) % (2 * m)]
            for _ in range((2 * x - (d - 1)) % 4):
                cosine, sine = -sine, cosine
            numbers += [size * cosine, size * sine]
    parts = _pairs(numbers).reshape(d, 2, 2)
    found: NDArray[np.complex128] = parts[:, 0] + 1j * parts[:, 1]
    found.flags.writeable = False
    return found


@lru_cache(maxsize=1024)
def pair_row(cluster: Cluster, worker: int) -> NDArray[np.complex128]:
    """Coefficients of a worker in pairs. (w, 2)."""
    _, place, weight = cluster.row(worker)
    found = np.empty((place.size, 2), dtype=np.complex128)
    for d in np.unique(weight).tolist():
        of_d = weight == d
        found[of_d] = pair_tau(cluster.m, d, cluster.q)[place[of_d]]
    found.flags.writeable = False
    return found


@lru_cache(maxsize=4)
def _all_rows(alone: Cluster) -> NDArray[np.float64]:
    """Rows of B as messages of float64x2: (m, 4 k)."""
    found = np.zeros((alone.m, alone.k, 2, 2))
    for worker in range(alone.m):
        held = alone.row(worker)[0]
        coefficients = pair_row(alone, worker)
        found[worker, held, 0], found[worker, held, 1] = coefficients.real, coefficients.imag
    return found.reshape(alone.m, -1)


# ---------------------------------------------------------------------------------- decoding


def deviation(
    clusters: Sequence[Cluster], survivors: NDArray[np.int64], vector: NDArray[np.complex128]
) -> NDArray[np.complex128]:
    """``a_F B_F - 1`` of every partition, computed in pairs."""
    found = np.empty(clusters[-1].first_partition + clusters[-1].k, dtype=np.complex128)
    for c, at, _ in split(clusters, survivors):
        mine = slice(c.first_partition, c.first_partition + c.k)
        found[mine] = _lacking(_alone(c), survivors[at] - c.first_worker, vector[at])
    return found


def _alone(cluster: Cluster) -> Cluster:
    return cluster._replace(first_worker=0, first_partition=0)


def _lacking(
    alone: Cluster, survivors: NDArray[np.int64], vector: NDArray[np.complex128]
) -> NDArray[np.complex128]:
    rows = _all_rows(alone)
    sums = np.zeros(rows.shape[1])
    used = np.flatnonzero(vector.any(axis=1))
    if used.size:
        chosen = kernels.Rows.of(rows, rows.shape[1], rows.dtype).select(survivors[used])
        kernels.combine_pairs(chosen, vector[used], sums, paired=True)
    parts = sums.reshape(alone.k, 2, 2)
    parts[:, 0, 0] -= 1  # which is exact where it matters
    found: NDArray[np.complex128] = parts.sum(axis=2).view(np.complex128).ravel()
    return found


def bind_pairs(
    scheme: Scheme,
    clusters: Sequence[Cluster],
    survivors: NDArray[np.int64],
    vector: NDArray[np.complex128],
) -> VectorFunction:
    """As `Scheme.bind_vector`, of vectors in pairs."""

    def fill(f: int, method: str) -> None:
        if method not in METHODS:
            raise ValueError(
                f"no method {method!r} for messages of float64x2: choose one of {METHODS}"
            )
        chosen = scheme.check_survivors(survivors[:f])
        if scheme.rule.missing(chosen):
            scheme.raise_too_few(chosen)
        vector[:f] = pair_vector(clusters, chosen, method)

    if scheme.cache is None:
        return fill
    return remembering(fill, scheme.n, survivors, vector, scheme.cache, b"pairs")


def pair_vector(
    clusters: Sequence[Cluster], survivors: NDArray[np.int64], method: str
) -> NDArray[np.complex128]:
    """A vector of survivors that suffice, in pairs: exact, or near-exact. (f, 2).

    With "auto" the latter where it is expected to lose fewer digits, and the former would lose
    three eighths of them.

    Raises
    ------
    OverflowError
        If no vector is within float64's range.
    """
    vector = np.empty((survivors.size, 2), dtype=np.complex128)
    for c, at, turns in split(clusters, survivors):
        roots, alone = unnamed(c.m, turns), _alone(c)
        members = survivors[at] - c.first_worker
        row = row_square(alone, alone.k)
        error = math.inf
        if method != "near-exact":
            vector[at] = kernels.locator_pairs(roots, c.m, circle(c.m))[turns]
            length = square(vector[at, 0])
            error = _error(alone, members, vector[at])
            if method == "locator" or 2 * PAIR * math.sqrt(row * length) <= kept_error(PAIR):
                continue
        if method == "near-exact" or c.tolerance**3 <= AFFORDABLE:
            near = kernels.near_exact_pairs(roots, c.m, c.tolerance, circle(c.m))[turns]
            if method == "near-exact" or _error(alone, members, near) < error:
                vector[at] = near
    if not np.isfinite(vector).all():
        worst = survivors[int(np.argmin(np.isfinite(vector).all(axis=1)))]
        raise OverflowError(
            f"the coefficient of worker {worst} is beyond float64: these stragglers make decoding "
            'hopeless with one code for all workers; use clusters="auto"'
        )
    return vector


def _error(alone: Cluster, survivors: NDArray[np.int64], vector: NDArray[np.complex128]) -> float:
    """Error to expect: of what is left out, and of rounding."""
    with np.errstate(over="ignore", invalid="ignore"):
        left = square(_lacking(alone, survivors, vector)) / alone.k
        total = left + (2 * PAIR) ** 2 * row_square(alone, alone.k) * square(vector[:, 0])
    return math.sqrt(total) if total < math.inf else math.inf
