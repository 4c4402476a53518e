"""Bernoulli and stochastic block codes (Charles, Papailiopoulos, Ellenberg 2017 and 2018)."""

from __future__ import annotations

import numpy as np

from .._arrays import check_integer
from ..coding.arguments import check_sizes
from ..coding.cells import IncidenceScheme
from ..coding.code import Code
from ..coding.rules import check_wait
from ..coding.solve import SOLVED
from .random_assignment import check_seed

__all__ = ["BernoulliCode"]


class BernoulliCode(Code):
    """Each worker has each partition with the same probability, and sends the sum of what it has.

    With ``groups=1`` this is the Bernoulli gradient code, BGC: nothing need be planned. It is
    regularised, as in the paper: a worker that drew more than twice the load keeps `load` of them,
    chosen at random. One that drew none takes one. With more groups it is the stochastic block
    code: workers and partitions are in groups, and `within` of a worker's load lies, on average, in
    its own group. Who does not know the groups can hardly choose stragglers that do more harm than
    random ones.

    Parameters
    ----------
    n, k : int
        Workers, and partitions. By default k is n.
    load : int
        Partitions of each worker, on average.
    groups : int, default 1
        Groups of workers and partitions, as even as can be, at most n and k.
    within : float, default 0.5
        Part of the load that lies in a worker's own group, if there are several: 1 / groups is no
        different from one group, 1 keeps groups apart.
    wait : int, optional
        Workers that are waited for at most. Default: rounds wait until the gradient is exact.
    seed : int, default 0

    Raises
    ------
    ValueError
        If the parameters do not fit, or not even all messages are exact and there is no `wait`.

    Notes
    -----
    A decoding vector takes least squares, by conjugate gradients where rows are sparse, else dense
    ones in O(f k^2). Those of the sets used last are kept.

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
        w, groups = check_integer("load", load), check_integer("groups", groups)
        if not 1 <= w <= k:
            raise ValueError(f"load must be in 1 .. k = {k}, not {w}")
        if not 1 <= groups <= min(n, k):
            raise ValueError(
                f"groups must be in 1 .. {min(n, k)}, the smaller of n and k, not {groups}"
            )
        if not 0 <= within <= 1:
            raise ValueError(f"within must be in 0 .. 1, a part of the load, not {within}")
        seed = check_seed(seed)
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
                "take fewer groups, or less within them"
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
                f"with seed={seed} not even all messages give the gradient: say how many "
                "workers are waited for, by wait=, or take another seed or a larger load"
            )
        super().__init__(scheme)
