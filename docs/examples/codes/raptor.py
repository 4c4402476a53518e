# raptor.py
"""Each worker sums a random number of random batches, as the symbols of a raptor code."""

import math

import numpy as np

import fastgc


def degrees(missing):
    """Probabilities of the degrees 1, 2, ... of a raptor code (Shokrollahi 2006).

    With D = floor(1 / missing) and u = 2 missing (1 - 2 missing) / (1 - 4 missing)^2 these are u
    for degree 1, 1 / (i (i - 1)) for i = 2 .. D, and 1 / D for D + 1, all divided by u + 1.
    """
    if not 0 < missing < 0.25:
        raise ValueError(f"missing must be more than 0 and less than 1/4, not {missing}")
    D = math.floor(1 / missing)
    u = 2 * missing * (1 - 2 * missing) / (1 - 4 * missing) ** 2
    i = np.arange(2, D + 1)
    return np.concatenate([[u], 1 / (i * (i - 1)), [1 / D]]) / (u + 1)


class RaptorCode(fastgc.Code):
    """Batched raptor code (Wang, Liu, Shroff 2019), for hundreds of workers.

    Any `wait` messages almost surely give all batches but a part of about `missing`, with a mean
    load of O(log(1 / missing)) batches, however many workers there are. The paper peels batches off
    one by one; least squares, used here, leave out no more, and round less.

    Parameters
    ----------
    n : int
        Workers, and as many partitions.
    wait : int
        Most workers that a round waits for, n - s. The ``n / (ceil(1 / log(n / s)) + 1)`` batches
        are as even as possible.
    missing : float, default 0.1
        Part of the batches that may be missing, below 1/4: epsilon of the paper.
    seed : int, default 0
    """

    def __init__(self, n, *, wait, missing=0.1, seed=0):
        chances, rng, s = degrees(missing), np.random.default_rng(seed), n - wait
        self.n, self.k, self.wait = n, n, wait
        self.batches = n // (math.ceil(1 / math.log(n / s)) + 1 if s else 1)
        sizes = np.minimum(1 + rng.choice(chances.size, size=n, p=chances), self.batches)
        self.held = [rng.choice(self.batches, size=size, replace=False) for size in sizes.tolist()]
        self._parts = np.array_split(np.arange(n), self.batches)

    def row(self, worker):
        """The partitions of a worker's batches, each of which counts once."""
        mine = np.concatenate([self._parts[batch] for batch in np.sort(self.held[worker])])
        return mine, np.ones(mine.size)
