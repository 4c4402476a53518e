# expander.py
"""Workers are vertices of a regular graph, and B is its adjacency matrix."""

from functools import cached_property

import numpy as np

import fastgc
from fastgc.numerics import graphs


class ExpanderCode(fastgc.Code):
    """Each worker sums the partitions of its neighbours (Raviv, Tandon, Dimakis, Tamo 2018).

    Let d be the degree, and `second` the largest absolute value of the other eigenvalues. Then the
    square of any f workers' residual is at most ``(second / d)^2 (n - f) / f`` (section V).
    Coefficients n / (d f) for all messages achieve this; least squares, used here, are at least as
    good. ``fastgc.GraphCode``, whose workers are edges, decodes in linear time.

    Parameters
    ----------
    n : int
        Workers, and as many partitions.
    load : int
        The degree of a random graph; n load must be even.
    edges : (n load / 2, 2) integer array, optional
        Another graph, such as those of ``ramanujan.py``.
    wait : int, optional
        Most workers that a round waits for. Default: rounds wait until the gradient is exact.
    seed : int, default 0
        Seed of the random graph.
    """

    def __init__(self, n, *, load, edges=None, wait=None, seed=0):
        self.n = self.k = n
        self.wait = wait
        u, v = (graphs.random(n, n * load // 2, seed) if edges is None else np.asarray(edges)).T
        self.adjacency = np.zeros((n, n))
        self.adjacency[u, v] = self.adjacency[v, u] = 1
        if (self.adjacency.sum(axis=0) != load).any():
            raise ValueError(f"not every worker has {load} neighbours")

    def row(self, worker):
        """The neighbours of a worker, each of which counts once."""
        neighbours = np.flatnonzero(self.adjacency[worker])
        return neighbours, np.ones(neighbours.size)

    @cached_property
    def second(self):
        """The largest absolute value of the graph's eigenvalues other than its degree."""
        values = np.linalg.eigvalsh(self.adjacency)
        return float(max(abs(values[0]), abs(values[-2])))
