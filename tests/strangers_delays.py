"""A user's file: a delay model that can be sampled, a distribution, and what is no model."""

import numpy as np

from fastgc.delays import Distribution


class Weibull:
    """A delay model without a repr and without a base."""

    def __init__(self, shape, scale=0.01):
        self.shape, self.scale = shape, scale

    def sample(self, round, workers, seed):
        rng = np.random.default_rng((seed, round))
        return (self.scale * rng.weibull(self.shape, workers)).tolist()


class Uniform(Distribution):
    """A distribution that does not define its tails."""

    def __init__(self, width: float, per="round"):
        self.width, self.per = width, per

    def cdf(self, t):
        return np.clip(np.asarray(t) / self.width, 0, 1)

    def survival(self, t):
        return 1 - self.cdf(t)

    def quantile(self, q):
        return self.width * np.asarray(q, dtype=float)


class Useless:
    def __init__(self, size=1):
        self.size = size


def no_model():
    return None
