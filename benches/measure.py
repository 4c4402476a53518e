"""How benchmarks measure what they compare with."""

from __future__ import annotations

import time
from contextlib import nullcontext

import numpy as np

try:
    import threadpoolctl
except ImportError:  # BLAS then runs on as many threads as it likes
    threadpoolctl = None


def one_blas_thread():
    """Return a context in which BLAS uses one thread, if threadpoolctl is installed."""
    return threadpoolctl.threadpool_limits(1, "blas") if threadpoolctl else nullcontext()


def seconds(function, repeats=9):
    """Return the median time of a call, after one that is not timed."""
    function()
    return float(np.median(times(function, repeats)))


def times(function, repeats):
    """Return the seconds of each call."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return found


def zero(theta, shard, out):
    """Write a gradient as fast as possible."""
    out.fill(0.0)
