"""What a benchmark is held against, measured in the same run."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np

from fastgc.kernels import threads


@numba.njit(nogil=True, cache=True)
def _xor(words):
    total = 0
    for i in range(words.size):
        total ^= words[i]
    return total


class Reader:
    """Reads buffers from end to end on as many threads as fastgc uses: the bandwidth there is."""

    def __init__(self, buffers):
        words = [b.reshape(-1).view(np.int64) for b in buffers]
        count = threads.get_num_threads()
        self.shares = [
            [w[i * w.size // count : (i + 1) * w.size // count] for w in words]
            for i in range(count)
        ]
        self.pool = ThreadPoolExecutor(count)

    def __call__(self):
        waiting = [self.pool.submit(self._read, share) for share in self.shares[1:]]
        self._read(self.shares[0])
        for one in waiting:
            one.result()

    @staticmethod
    def _read(share):
        for words in share:
            _xor(words)


def seconds(function, repeats=9):
    """Median time of a call: for what is compared with a benchmark in the same test."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))
