"""Cyclic repetition (Tandon, Lei, Dimakis, Karampatziakis 2017)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .._arrays import check_integer
from ..coding.arguments import check_stragglers
from ..coding.cells import even_cuts
from ..coding.code import Code
from ..coding.rules import Blocks
from ..coding.trust import check_stability
from .linear import LinearScheme, check_matrix
from .random_assignment import check_seed

__all__ = ["CyclicRepetition"]


class CyclicRepetition(Code):
    """Random coefficients on s + 1 consecutive partitions: any n - s messages suffice.

    The rows of B lie in the null space of a random s x n matrix H with H 1 = 0. With probability 1,
    any n - s of them span it (Algorithm 2 of Tandon et al.). How well conditioned they are is left
    to chance: `trust` says it for a set of survivors. From about 30 workers on, `ReedSolomon` is
    better conditioned.

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
    cache : int, default 256
        Number of survivor sets whose decoding vectors are kept.
    strict : bool, default False
        As in `ReedSolomon`.

    Raises
    ------
    ValueError, UnstableCodeError
        As `ReedSolomon`.
    """

    stragglers: int

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        stragglers: int,
        seed: int = 0,
        cache: int = 256,
        strict: bool = False,
    ) -> None:
        n = check_integer("n", n)
        k = n if k is None else check_integer("k", k)
        s = check_integer("stragglers", stragglers)
        check_stragglers(s, n)
        if k < n:
            raise ValueError(f"k must be at least n={n}, not {k}")
        group = np.repeat(np.arange(n), np.diff(even_cuts(k, n)))
        scheme = _CyclicScheme(check_matrix(_matrix(n, s, check_seed(seed))[:, group]), cache, s)
        super().__init__(scheme)
        remedy = 'use BinaryCode, or ReedSolomon with clusters="auto"'
        check_stability(scheme, strict, remedy)
        scheme.cache.clear()  # of sets that nobody asked for


class _CyclicScheme(LinearScheme):
    stragglers: int

    def __init__(self, B: NDArray[np.float64], cache: int, stragglers: int) -> None:
        super().__init__(B, cache)
        self.stragglers = stragglers

    def _rank(self, singular: NDArray[np.float64]) -> int:
        return self.n - self.stragglers

    @cached_property
    def rule(self) -> Blocks:
        return Blocks.one(self.n, self.n - self.stragglers)


def _matrix(n: int, s: int, seed: int) -> NDArray[np.float64]:
    """B of n workers and n partitions."""
    H = np.random.default_rng(seed).standard_normal((s, n))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    at = np.arange(n)
    others = (at[:, None] + 1 + np.arange(s)) % n
    B = np.zeros((n, n))
    B[at, at] = 1
    if s:
        systems = H[:, others].transpose(1, 0, 2)
        B[at[:, None], others] = -np.linalg.solve(systems, H.T[:, :, None])[:, :, 0]
    return B
