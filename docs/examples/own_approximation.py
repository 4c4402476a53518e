# own_approximation.py
"""An approximate code, and delays by the law of Weibull."""

import numpy as np

import fastgc


class Permuted(fastgc.Code):
    """Each worker has `load` random partitions, and each partition as many workers."""

    def __init__(self, n, *, load, wait, seed=0):
        self.n = self.k = n
        self.wait = wait
        self._held = np.random.default_rng(seed).permuted([np.arange(n)] * load, axis=1)

    def row(self, worker):
        """Partitions of a worker, and what their gradients are multiplied by."""
        held = np.unique(self._held[:, worker])
        return held, np.ones(held.size)


class Weibull:
    """Workers are late by `scale` seconds times a power of an exponential variable."""

    def __init__(self, shape=0.7, scale=0.01):
        self.shape, self.scale = shape, scale

    def sample(self, round, workers, seed):
        """Seconds by which each worker is late in a round."""
        return self.scale * np.random.default_rng([seed, round]).weibull(self.shape, workers)
