# own_delay_model.py
"""A delay model of one's own: machines that are slow for a while, one after the other."""

import math

import numpy as np


class Bursts:
    """Workers that another program slows down, for `length` rounds at a time.

    Parameters
    ----------
    share : float
        Of the workers that are slow at a time, on average.
    length : int
        Rounds until others are.
    slow, usual : float
        Mean delays in seconds, of those that are slow, and of all others.
    """

    def __init__(self, share=0.1, length=20, slow=0.1, usual=0.005):
        if not 0 <= share <= 1:
            raise ValueError(f"share must be between 0 and 1, got {share}")
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        self.share, self.length, self.slow, self.usual = share, length, slow, usual

    def sample(self, round, workers, seed):
        """Seconds that each worker is late in a round: the same whenever it is asked."""
        burst = np.random.default_rng((seed, round // self.length, 1))
        means = np.where(burst.random(workers) < self.share, self.slow, self.usual)
        return np.random.default_rng((seed, round, 2)).exponential(means)

    def tail_indices(self, workers):
        """Tails are exponential, so that all means exist."""
        return np.full(workers, math.inf)
