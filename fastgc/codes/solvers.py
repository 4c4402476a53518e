"""Decoding vectors of Reed-Solomon codes by solving their systems, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import vandermonde
from .clusters import Cluster
from .near_exact import split
from .roots import roots

__all__ = ["SOLVERS", "by_system"]

# Called with m and the exponents of the survivors' roots.
Solver = Callable[[int, NDArray[np.int64]], NDArray[np.complex128]]


def by_system(
    clusters: Sequence[Cluster], survivors: NDArray[np.int64], solve: Solver
) -> NDArray[np.complex128]:
    """a_F G_F = e_1, eq. (12), in each cluster: G_F has the survivors' Vandermonde rows."""
    vector = np.empty(survivors.size, dtype=np.complex128)
    for c, at, turns in split(clusters, survivors):
        vector[at] = solve(c.m, turns)
    return vector


def _lapack(m: int, exponent: NDArray[np.int64]) -> NDArray[np.complex128]:
    """The vector with moments (1, 0, ..., 0) on these m-th roots of unity."""
    powers = np.outer(np.arange(exponent.size), exponent) % m
    moments = np.zeros(exponent.size)
    moments[0] = 1
    found: NDArray[np.complex128] = np.linalg.solve(np.exp(2j * np.pi / m * powers), moments)
    return found


def _bjorck_pereyra(
    m: int, exponent: NDArray[np.int64], order: str = "golden"
) -> NDArray[np.complex128]:
    """The same, in O(f^2)."""
    moments = np.zeros(exponent.size, dtype=np.complex128)
    moments[0] = 1
    taken: Any = order
    if order == "golden":
        taken = vandermonde.roots_order(m, exponent)
    elif order == "natural":
        taken = np.argsort(exponent)
    return vandermonde.solve(roots(m)[exponent], moments, transpose=True, order=taken)


# Methods that do.
SOLVERS: dict[str, Solver] = {
    "vandermonde": _bjorck_pereyra,
    "leja": partial(_bjorck_pereyra, order="leja"),
    "natural": partial(_bjorck_pereyra, order="natural"),
    "solve": _lapack,
}
