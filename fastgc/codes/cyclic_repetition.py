"""Cyclic repetition (Tandon, Lei, Dimakis, Karampatziakis 2017)."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .._base.arrays import Floats, at_least
from ..coding.arguments import check_sizes, check_stragglers
from ..coding.cells import even_cuts
from ..coding.code import Code
from ..coding.rules import Blocks
from ..coding.trust import check_stability
from .linear import LinearScheme

# Numbers in systems of s equations, one for each worker, to be solved at a time.
_AT_ONCE = 1 << 22


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
    Vectors are those of `LinearCode`, and B is held as a matrix: up to some thousand workers.
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


class _CyclicScheme(LinearScheme):
    """Worker i sends groups i .. i + s of partitions, modulo n; columns of a group are equal."""

    stragglers: int

    def __init__(self, n: int, k: int, stragglers: int, seed: int) -> None:
        H = np.random.default_rng(seed).standard_normal((stragglers, n))
        H[:, -1] = -H[:, :-1].sum(axis=1)  # rows add up to 0
        groups = (np.arange(n)[:, None] + np.arange(stragglers + 1)) % n
        of_groups = np.zeros((n, n))
        np.put_along_axis(of_groups, groups, _coefficients(H), axis=1)
        super().__init__(np.repeat(of_groups, np.diff(even_cuts(k, n)), axis=1))
        self.stragglers = stragglers

    @cached_property
    def rule(self) -> Blocks:
        return Blocks.one(self.n, self.n - self.stragglers)


def _coefficients(H: Floats) -> Floats:
    """Each worker's coefficients for the groups from its own on; the first is 1. (n, s + 1)."""
    s, n = H.shape
    values = np.ones((n, s + 1))
    step = max(1, _AT_ONCE // max(s * s, 1))
    for at in range(0, n if s else 0, step):
        part = np.arange(at, min(at + step, n))
        columns = H[:, (part[:, None] + 1 + np.arange(s)) % n].transpose(1, 0, 2)
        values[part, 1:] = -np.linalg.solve(columns, H.T[part, :, None])[:, :, 0]
    return values
