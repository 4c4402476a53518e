# bernoulli.py
"""Each worker draws its partitions, which needs no planning."""

import numpy as np

import fastgc


class BernoulliCode(fastgc.Code):
    """Each worker has each partition with the same probability, and sends the sum of what it has.

    With one group this is BGC (Charles, Papailiopoulos, Ellenberg 2017), regularised as there: who
    drew more than twice the load keeps `load` partitions, and who drew none takes one. With several
    groups it is the stochastic block code (Charles, Papailiopoulos 2018): an adversary who does not
    know the groups can hardly choose stragglers that do more harm than random ones.

    Parameters
    ----------
    n : int
        Workers, and as many partitions.
    load : int
        Partitions of each worker, on average.
    groups : int, default 1
        Groups of workers and partitions, as even as possible.
    within : float, default 0.5
        Fraction of the load that lies in a worker's own group, if there are several.
    wait : int, optional
        Most workers that a round waits for. Default: rounds wait until the gradient is exact.
    seed : int, default 0
    """

    def __init__(self, n, *, load, groups=1, within=0.5, wait=None, seed=0):
        if not 1 <= load <= n or not 1 <= groups <= n:
            raise ValueError(f"load and groups must be in 1 .. n={n}, not {load} and {groups}")
        self.n = self.k = n
        self.wait = wait
        rng, group = np.random.default_rng(seed), np.arange(n) * groups // n
        own = group == group[:, None]
        inside = own.sum(axis=1, keepdims=True)
        chance = np.full((n, n), load / n)
        if groups > 1:
            chance = np.where(own, within * load / inside, (1 - within) * load / (n - inside))
        if chance.max() > 1:
            raise ValueError(f"a group of {inside.min()} partitions is too small for this load")
        self.held = rng.random((n, n)) < chance
        for worker in np.flatnonzero(self.held.sum(axis=1) > 2 * load):
            lost = rng.permutation(np.flatnonzero(self.held[worker]))[load:]
            self.held[worker, lost] = False
        for worker in np.flatnonzero(~self.held.any(axis=1)):
            self.held[worker, rng.choice(n, p=chance[worker] / chance[worker].sum())] = True

    def row(self, worker):
        """The partitions that a worker drew, each of which counts once."""
        mine = np.flatnonzero(self.held[worker])
        return mine, np.ones(mine.size)
