# own_code.py
"""A gradient code of one's own: every worker computes the partitions at the same random shifts."""

import numpy as np

import fastgc


class RandomShifts(fastgc.Code):
    """Worker i computes the partitions i + t, for `load` random shifts t.

    Parameters
    ----------
    n : int
        Workers, and as many partitions.
    load : int
        Partitions of each worker.
    stragglers : int
        Messages of any n - s workers are decoded, as well as they can be.
    seed : int
        Of the shifts.
    """

    def __init__(self, n, *, load, stragglers, seed=0):
        if not 0 < load <= n:
            raise ValueError(f"load must be between 1 and n={n}, got {load}")
        self.n = self.k = n
        self.wait = n - stragglers
        self._shifts = np.random.default_rng(seed).permutation(n)[:load]

    def row(self, worker):
        """Partitions of a worker, and what their gradients are multiplied by."""
        return (worker + self._shifts) % self.n, np.ones(len(self._shifts))
