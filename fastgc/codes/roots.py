"""The numerics of roots of unity as evaluation points: which to take, and what B consists of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..interpolation import roots_of_unity
from ..kernels.cyclic import sines
from .clusters import Cluster

__all__ = ["log_tau", "log_totals", "roots", "stable_root", "tau", "valid_root"]


def valid_root(m: int, k: int, w: int, root: Literal["stable"] | int) -> int:
    """The q of the root exp(2 pi i q / m) that is asked for, or ValueError."""
    if root == "stable":
        return stable_root(m, -(-m * w // k))
    if math.gcd(root, m) != 1:
        raise ValueError(
            f"root={root} is not coprime to {m}: exp(2 pi i {root} / {m}) is no primitive root"
        )
    return root % m if m > 1 else 1


# Factors that a search for the best root looks at, at most: half a second.
SEARCHED = 1 << 26


@lru_cache(maxsize=4096)
def stable_root(m: int, d: int) -> int:
    """The q for which exp(2 pi i q / m) gives columns of weight d the smallest largest entry.

    A root costs O(d). q and m - q give conjugate codes: half of them suffice. Where these are too
    many, those are tried with which points come to lie evenly: q / m next to fractions with the
    denominator d, or the numerator 1. Where that was compared, the largest entry was up to 1.5
    times the smallest there is, and 5 times for an m that is prime.
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


def _roots_to_try(m: int, d: int) -> NDArray[np.int64]:
    """Numbers up to m / 2 that are coprime to m: all, or as many as may be searched."""
    q = np.arange(1, max(m // 2, 1) + 1, dtype=np.int64)
    most = max(SEARCHED // d, 100)
    if q.size > most:
        even = np.linspace(1, d // 2, most // 10).astype(np.int64) / d
        turns = 1 / np.arange(2, most // 10 + 2)
        near = np.rint(np.append(even, turns) * m).astype(np.int64)[:, None] + np.arange(-2, 3)
        q = np.unique(np.clip(near, 1, m // 2))
    coprime: NDArray[np.int64] = q[np.gcd(q, m) == 1]
    return coprime


def _log_sines(m: int) -> NDArray[np.float64]:
    """log|1 - exp(2 pi i t / m)| for t = 0 .. m-1, and 0 at t = 0."""
    table = np.zeros(m)
    table[1:] = np.log(np.abs(sines(m, 1)[m + 1 :]))
    return table


def log_tau(m: int, d: int, q: int) -> NDArray[Any]:
    """log|tau(x)| = log m - P(x) - P(d-1-x), P(t) = sum over u = 1 .. t of log|1 - alpha^u|.

    In extended precision, where there is one: the sums are larger than what is left of them.
    """
    partial = np.zeros(d, dtype=np.longdouble)
    np.cumsum(np.log(np.abs(sines(m, q)[m + 1 : m + d]).astype(np.longdouble)), out=partial[1:])
    logs: NDArray[Any] = np.log(np.longdouble(m)) - partial - partial[::-1]
    return logs


def log_totals(clusters: Sequence[Cluster], power: int) -> NDArray[np.float64]:
    """Logarithms of ``sum_j |B_ij|^power`` of each worker's row."""
    known: dict[Cluster, NDArray[np.float64]] = {}  # many clusters are alike
    for c in clusters:
        alike = c._replace(first_worker=0, first_partition=0)
        if alike in known:
            continue
        sums = np.full(c.m, -np.inf)
        for d in c.weights:
            logs = power * log_tau(c.m, d, c.q)
            top = logs.max()
            with np.errstate(divide="ignore"):
                total = top + np.log(c.totals(d, np.exp(logs - top)))
            sums[:] = np.logaddexp(sums, total)  # in extended precision until here
        known[alike] = sums
    return np.concatenate([known[c._replace(first_worker=0, first_partition=0)] for c in clusters])


@lru_cache(maxsize=256)
def tau(m: int, d: int, q: int) -> NDArray[np.complex128]:
    """A column's d nonzeros: tau(x) = m / prod over r = 0 .. d-1, r != x, of (1 - alpha^(x-r)).

    That is Algorithm 2's prod over u = d .. m-1 of (1 - alpha^(x-u)), in O(d).
    """
    # The angle of 1 - alpha^u is pi r / m - pi / 2 with the residue r = q u mod m, and that of
    # 1 - alpha^-u its negative.
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
    found: NDArray[np.complex128] = size * (np.exp(1j * np.pi / m * turns) * quarter)
    found.flags.writeable = False
    return found


roots = lru_cache(maxsize=16)(roots_of_unity)
