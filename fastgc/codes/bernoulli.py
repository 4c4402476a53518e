"""Bernoulli and stochastic block codes (Charles, Papailiopoulos, Ellenberg 2017 and 2018)."""

from __future__ import annotations

import numpy as np

from .._base.arrays import at_least
from ..coding.arguments import check_between, check_sizes
from ..coding.cells import IncidenceScheme
from ..coding.code import Code
from ..coding.rules import check_wait
from ..numerics.solve import SOLVED


class BernoulliCode(Code):
    """Each worker has each partition with the same probability, and sends the sum of what it has.

    With ``groups=1`` this is the Bernoulli gradient code, BGC, which needs no planning. It is
    regularised as in the paper: a worker that drew more than twice the load keeps `load` of its
    partitions, chosen at random; a worker that drew none takes one. With more groups it is the
    stochastic block code: workers and partitions are in groups, and on average the fraction
    `within` of a worker's load lies in its own group. An adversary who does not know the groups can
    hardly choose stragglers that do more harm than random ones.

    Parameters
    ----------
    n, k : int
        Workers, and partitions. By default k is n.
    load : int
        Partitions of each worker, on average.
    groups : int, default 1
        Groups of workers and partitions, as even as possible, at most n and k.
    within : float, default 0.5
        Fraction of the load that lies in a worker's own group, if there are several. 1 / groups is
        the same as a single group; 1 keeps groups apart.
    wait : int, optional
        Most workers that a round waits for. Default: rounds wait until the gradient is exact.
    seed : int, default 0

    Raises
    ------
    ValueError
        If the parameters do not fit, or if without `wait` not even all messages give the exact
        gradient.

    Notes
    -----
    A decoding vector is a least-squares solution, found by conjugate gradients if rows are sparse,
    and otherwise by a dense solver in O(f k^2). Vectors of recent survivor sets are kept.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.BernoulliCode(20, load=4, wait=15)
    >>> code.scheme.loads.tolist()[:8], round(code.residual(range(15)), 3)
    ([5, 3, 4, 4, 3, 5, 1, 6], 0.371)
    """

    def __init__(
        self,
        n: int,
        k: int | None = None,
        *,
        load: int,
        groups: int = 1,
        within: float = 0.5,
        wait: int | None = None,
        seed: int = 0,
    ) -> None:
        n, k = check_sizes(n, k)
        w = check_between("load", load, 1, k, "k")
        groups = check_between("groups", groups, 1, min(n, k), "min(n, k)")
        if not 0 <= within <= 1:
            raise ValueError(f"within must be in 0 .. 1, a part of the load, not {within}")
        seed = at_least("seed", seed, 0)
        rng = np.random.default_rng(seed)
        group = np.arange(k) * groups // k
        own = group == (np.arange(n) * groups // n)[:, None]
        inside = own.sum(axis=1, keepdims=True)
        chance = np.full((n, k), w / k)
        if groups > 1:
            chance = np.where(own, within * w / inside, (1 - within) * w / (k - inside))
        if chance.max() > 1:
            raise ValueError(
                f"a group has {inside.min()} partitions, too few for {within:g} of a load of {w}: "
                "use fewer groups, or a smaller within"
            )
        held = rng.random((n, k)) < chance
        for worker in np.flatnonzero(held.sum(axis=1) > 2 * w):
            lost = rng.permutation(np.flatnonzero(held[worker]))[w:]
            held[worker, lost] = False
        for worker in np.flatnonzero(~held.any(axis=1)):
            held[worker, rng.choice(k, p=chance[worker] / chance[worker].sum())] = True
        rows = [np.flatnonzero(row) for row in held]
        scheme = IncidenceScheme(np.arange(k + 1), rows, check_wait(wait, n))
        if wait is None and scheme.solution(np.arange(n))[1] > SOLVED:
            raise ValueError(
                f"with seed={seed} not even all messages give the exact gradient: for an "
                "approximation give wait=, how many workers to wait for; or use another seed or a "
                "larger load"
            )
        super().__init__(scheme)
