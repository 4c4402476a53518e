"""Approximate codes whose workers are vertices of a graph (Raviv, Tandon, Dimakis, Tamo 2018)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import at_least, check_integer
from ..coding.arguments import check_sizes
from ..coding.cells import IncidenceScheme, even_cuts
from ..coding.code import Code
from ..coding.rules import check_wait
from ..numerics import graphs


class ExpanderCode(Code):
    """Workers are vertices of a regular graph: each sums the partitions of its neighbours.

    B is the adjacency matrix. If the graph is an expander, the residual of any f workers' messages
    is small. Let d be the degree and `second` the largest absolute value of the other eigenvalues.
    Then the square of the residual is at most ``(second / d)^2 (n - f) / f``, if groups of
    partitions have equal size (Raviv et al., section V). Multiplying all messages by n / (d f)
    achieves this bound for any stragglers; least squares, used here, are at least as good.

    Parameters
    ----------
    n : int
        Workers.
    k : int, optional
        Partitions, at least n (default n); more as in `CyclicRepetition`.
    load : int, optional
        The degree, which is the number of groups per worker. Not needed if `graph` consists of
        edges.
    graph : str or (edges, 2) integer array
        "random", "cayley", "paley", "lps" or "complete" as in `GraphCode`, or the edges of a
        regular graph.
    wait : int, optional
        Most workers that a round waits for. Default: rounds wait until the gradient is exact.
    seed : int, default 0
        Seed of "random" and "cayley".

    Attributes
    ----------
    edges : (n d / 2, 2) int64 array

    Raises
    ------
    ValueError
        If there is no such graph; the error says which there are.

    Notes
    -----
    A decoding vector is a least-squares solution, found by conjugate gradients if rows are sparse:
    some 10 ms for 256 workers, 50 ms for 1,500. Vectors of recent survivor sets are kept.
    `GraphCode` decodes in linear time.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.ExpanderCode(13, graph="paley", wait=10)
    >>> round(code.second, 3), round(code.residual(range(10)), 3)
    (2.303, 0.139)
    """

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        load: int | None = None,
        graph: str | ArrayLike = "random",
        wait: int | None = None,
        seed: int = 0,
    ) -> None:
        n, k = check_sizes(n, k, at_least_n=True)
        seed = at_least("seed", seed, 0)
        if isinstance(graph, str):
            degree = {"complete": n - 1, "paley": (n - 1) // 2}.get(graph)
            degree = degree if load is None else check_integer("load", load)
            if degree is None:
                raise ValueError("give load=, the degree of the graph")
            self.edges = graphs.regular(graph, n, degree, seed)
        else:
            self.edges = graphs.check_edges(graph)
            if load is not None:
                raise ValueError(
                    "load is the degree of the graph whose edges are given: leave it out"
                )
            if self.edges.max() + 1 != n:
                raise ValueError(
                    f"{n} workers are as many vertices, but the graph has {self.edges.max() + 1}"
                )
        A = graphs.adjacency(self.edges, n)
        degrees = A.sum(axis=1)
        if A.max() > 1 or np.ptp(degrees):
            raise ValueError("the graph must be regular, without an edge that is there twice")
        neighbours = list(np.nonzero(A)[1].reshape(n, int(degrees[0])))
        super().__init__(IncidenceScheme(even_cuts(k, n), neighbours, check_wait(wait, n)))

    @cached_property
    def second(self) -> float:
        """The largest absolute value of the graph's eigenvalues other than its degree.

        It equals the degree if the graph is bipartite or not connected. Some residuals are then
        large.
        """
        values = np.linalg.eigvalsh(graphs.adjacency(self.edges, self.n))
        return float(max(abs(values[0]), abs(values[-2])))
