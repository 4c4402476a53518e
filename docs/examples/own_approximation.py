# own_approximation.py
"""An approximate code, and delays by the law of Weibull."""

import numpy as np

import fastgc


class Permuted(fastgc.Code):
    def __init__(self, n, *, load, wait, seed=0):
        self.n = self.k = n
        self.wait = wait
        self._held = np.random.default_rng(seed).permuted([np.arange(n)] * load, axis=1)

    def row(self, worker):
        held = np.unique(self._held[:, worker])
        return held, np.ones(held.size)


class Weibull:
    def __init__(self, shape=0.7, scale=0.01):
        self.shape, self.scale = shape, scale

    def sample(self, round, workers, seed):
        return self.scale * np.random.default_rng([seed, round]).weibull(self.shape, workers)
