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
        The degree. ValueError if there is no such graph; the error says which there are.
    graph : {"random", "cayley", "paley", "lps", "complete"}
        As in ``fastgc.GraphCode``.
    wait : int, optional
        Most workers that a round waits for. Default: rounds wait until the gradient is exact.
    seed : int, default 0
        Seed of "random" and "cayley".
    """

    def __init__(self, n, *, load, graph="random", wait=None, seed=0):
        self.n = self.k = n
        self.wait = wait
        self.adjacency = graphs.adjacency(graphs.regular(graph, n, load, seed), n)

    def row(self, worker):
        """The neighbours of a worker, each of which counts once."""
        neighbours = np.flatnonzero(self.adjacency[worker])
        return neighbours, np.ones(neighbours.size)

    @cached_property
    def second(self):
        """The largest absolute value of the graph's eigenvalues other than its degree."""
        values = np.linalg.eigvalsh(self.adjacency)
        return float(max(abs(values[0]), abs(values[-2])))
