"""Approximate codes whose workers are edges of a graph (Glasgow, Wootters 2021)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from .. import kernels
from .._base.arrays import Floats, Ints, at_least, check_integer
from ..coding.arguments import check_sizes
from ..coding.cells import SumScheme, even_cuts
from ..coding.code import Code
from ..coding.rules import Parts, Rule, check_wait, tolerated
from ..coding.scheme import VectorFunction, vector_function
from ..kernels.rows import DOUBLE
from ..numerics import graphs
from ..numerics.solve import Equations

# Limits, each of which takes half a second: blocks of a graph to compute its eigenvalues, blocks to
# find its least cut, and workers to try all their sets.
BLOCKS_SOLVED, BLOCKS_CUT, WORKERS_TRIED = 1024, 200, 100


class GraphCode(Code):
    """Workers are edges of a graph on blocks of partitions: each sums the two blocks at its ends.

    The messages that came are the edges of a graph. A component of it that is not bipartite gives
    its blocks exactly. If a component is bipartite, with a blocks on one side and b on the other,
    all of equal size, then least squares count each of the a blocks 1 - (a - b) / (a + b) times,
    and each of the b blocks 1 + (a - b) / (a + b) times. Computing the decoding vector takes time
    linear in blocks and messages. It is a short one of all vectors with the least residual, so
    rounding errors hardly grow (see ``kernels.unchecked.bind_edges``).

    With `wait` a round ends with the messages of `wait` workers at the latest, or earlier, as soon
    as the gradient is exact. If each worker straggles with probability p, the residual falls about
    as fast as p to the power of the degree, which is the probability that no message with a given
    block comes. If the graph is well connected, the code tolerates any fewer stragglers than the
    degree exactly, and no code with real coefficients tolerates more at this load.

    Parameters
    ----------
    n : int
        Workers, which are the edges.
    k : int, optional
        Partitions, at least as many as there are blocks, which are as even as possible. Default: n,
        or the number of blocks if that is larger.
    degree : int, optional
        Workers that hold each block of a random graph of 2 n / degree blocks; degrees differ by
        one if that is no integer. With k = n it is the load.
    graph : (n, 2) integer array, optional
        The edges, instead of a degree: pairs of different block numbers.
    wait : int, optional
        Most workers that a round waits for. Default: rounds wait until the gradient is exact.
    seed : int, default 0
        Seed of the random graph.

    Attributes
    ----------
    blocks : int
    ends : (n, 2) int64 array
        The blocks of each worker.

    Raises
    ------
    ValueError
        If there is no such graph. Also if, without `wait`, not even
        all messages give the exact gradient.

    Notes
    -----
    The matrix A of Glasgow and Wootters' Definition II.2 is the transpose of B, with blocks in
    place of partitions. Decoding is their optimal decoding.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.GraphCode(10, degree=4)  # 5 blocks of 2 partitions
    >>> code.stragglers, code.scheme.loads.tolist()[:3]
    (3, [4, 4, 4])
    >>> code = fastgc.GraphCode(10, degree=4, wait=5)
    >>> round(code.residual([0, 1, 2, 3, 4]), 3)  # those of block 0, and blocks 1 and 2
    0.0
    """

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        degree: int | None = None,
        graph: ArrayLike | None = None,
        wait: int | None = None,
        seed: int = 0,
    ) -> None:
        n, _ = check_sizes(n, k)
        seed = at_least("seed", seed, 0)
        if (degree is None) == (graph is None):
            raise ValueError(
                "give degree=, the number of workers that hold each block, or the edges of a graph="
            )
        if graph is None:
            self.ends = graphs.of_degree(n, check_integer("degree", degree), seed)
        else:
            self.ends = graphs.check_edges(graph)
        if len(self.ends) != n:
            raise ValueError(f"{n} workers need as many edges, but the graph has {len(self.ends)}")
        self.blocks = int(self.ends.max()) + 1
        k = max(n, self.blocks) if k is None else check_integer("k", k)
        if k < self.blocks:
            raise ValueError(f"k must be at least the number of blocks, {self.blocks}, not {k}")
        wait = check_wait(wait, n)
        if wait is None and Parts(self.ends, self.blocks).missing(np.arange(n)):
            raise ValueError(
                "not even all messages give the exact gradient, as a component of the graph is "
                "bipartite with sides of different sizes: for an approximation give wait=, how "
                "many workers to wait for; or add an edge within a side"
            )
        super().__init__(GraphScheme(self.ends, self.blocks, k, wait))


class GraphScheme(SumScheme):
    """The scheme of `GraphCode`."""

    def __init__(self, ends: Ints, blocks: int, k: int, wait: int | None) -> None:
        self.n, self.k, self.wait = len(ends), k, wait
        self.cuts, self._listed = even_cuts(k, blocks), (2 * np.arange(self.n + 1), ends.ravel())
        self._edges, self._blocks = ends, blocks

    @property
    def _exactly(self) -> Parts:
        return Parts(self._edges, self._blocks)

    @cached_property
    def rule(self) -> Rule:
        return self._exactly if self.wait is None else self.waiting(self._exactly)

    @cached_property
    def stragglers(self) -> int | None:
        """Workers that may send nothing at all, whichever they are, s; None if it is not known.

        It is one less than the smallest degree, if eigenvalues and the graph's edge connectivity
        prove that. Otherwise all sets are tried, if the code is small.
        """
        degrees = np.bincount(self._edges.ravel())
        least = int(degrees.min())
        if self._blocks <= BLOCKS_SOLVED and self._tolerates(least - 1, degrees):
            return least - 1
        if self.n > WORKERS_TRIED:
            return None
        return tolerated(self.n, lambda came: not self._exactly.missing(np.array(came, np.int64)))

    def _tolerates(self, s: int, degrees: Ints) -> bool:
        """Whether it is proved that s stragglers are tolerated, for s = smallest degree - 1.

        The graph must stay connected without any s edges. It then gives the exact gradient in two
        cases. First, if all degrees are s + 1 and the number of blocks is even: if the rest is
        bipartite with unequal sides, these differ by two or more, so at least s + 1 stragglers lie
        within one side. Second, if the rest is not bipartite: for any two sides, the number of
        edges within them is at least ``blocks / 4`` times the lowest eigenvalue of D + A, which
        must be more than s.
        """
        A, D = graphs.adjacency(self._edges, self._blocks), np.diag(degrees)
        if not (self._is_connected_without(s, A, D)):
            return False
        if self._blocks % 2 == 0 and (degrees == s + 1).all():
            return True
        return self._blocks / 4 * float(np.linalg.eigvalsh(D + A)[0]) > s + 1e-6

    def _is_connected_without(self, s: int, A: Floats, D: Ints) -> bool:
        """Whether it is proved that the graph stays connected without any s edges.

        If no edge is there twice, each set of fewer than s + 2 blocks has at least s + 1 edges to
        the rest. Each set of a blocks has at least ``a (blocks - a) / blocks`` times the second
        eigenvalue of D - A.
        """
        if s == 0:
            return not graphs.components(self._edges, self._blocks).any()
        larger = (s + 2) * (self._blocks - s - 2) / self._blocks
        if A.max() <= 1 and larger * float(np.linalg.eigvalsh(D - A)[1]) > s + 1e-6:
            return True
        if self._blocks > BLOCKS_CUT:
            return False
        return graphs.edge_connectivity(self._edges, self._blocks) > s

    @cached_property
    def _plan(self) -> kernels.cover.EdgesPlan:
        need = self.n if self.wait is None else 0
        return kernels.cover.EdgesPlan(self._edges, np.diff(self.cuts).astype(np.float64), need)

    def bind_vector(self, survivors: Ints, vector: Floats, unit: float = DOUBLE) -> VectorFunction:
        run = kernels.unchecked.bind_edges(self._plan, survivors, vector)
        return vector_function(self, run, survivors)

    def equations(self, survivors: Ints) -> Equations:
        # One column a block, as long as the columns of its partitions together.
        weight = np.sqrt(np.diff(self.cuts))
        ends, rows = self._edges[survivors], np.zeros((survivors.size, weight.size))
        np.put_along_axis(rows, ends, weight[ends], axis=1)
        return Equations(rows, weight)
