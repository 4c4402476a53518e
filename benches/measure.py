"""References for benchmarks, measured in the same run and, where possible, in turns."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from fastgc.kernels import threads

try:
    import threadpoolctl
except ImportError:  # BLAS then runs on as many threads as it likes
    threadpoolctl = None

SHARED_BYTES = 1 << 20  # from this size on, a reader's threads repay the time to start them
REPEATS = {10**7: 2, 10**6: 5, 10**5: 25, 10**4: 51, 650: 101}  # calls, by the vectors' length


@intrinsic
def _pointer(typingctx, address):
    def codegen(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.int64)(address), codegen


@numba.njit(nogil=True, cache=True)
def _one_by_one(addresses, lo, hi):
    total = 0
    for address in addresses:
        row = numba.carray(_pointer(address), hi)
        for i in range(lo, hi):
            total ^= row[i]
    return total


@numba.njit(nogil=True, cache=True)
def _four_at_once(addresses, lo, hi):
    total = 0
    for r in range(0, addresses.size - 3, 4):
        a = numba.carray(_pointer(addresses[r]), hi)
        b = numba.carray(_pointer(addresses[r + 1]), hi)
        c = numba.carray(_pointer(addresses[r + 2]), hi)
        d = numba.carray(_pointer(addresses[r + 3]), hi)
        for i in range(lo, hi):
            total ^= a[i] ^ b[i] ^ c[i] ^ d[i]
    return total ^ _one_by_one(addresses[addresses.size // 4 * 4 :], lo, hi)


class Reader:
    """Reads rows from end to end; large ones on as many threads as fastgc uses.

    It reads one row after the other or four at once, whichever is faster. With a single stream of
    addresses, a core does not reach the bandwidth of combining several rows.
    """

    def __init__(self, rows, moved):
        self.rows = rows  # keeps them alive: reading uses only their addresses
        self.addresses = np.array([row.ctypes.data for row in rows])
        words = rows[0].nbytes // 8
        count = threads.get_num_threads() if moved >= SHARED_BYTES else 1
        cuts = [i * words // count for i in range(count + 1)]
        self.first, *self.others = pairwise(cuts)
        self.pool = ThreadPoolExecutor(count)
        times = {}
        for self.read in (_one_by_one, _four_at_once):
            times[self.read] = seconds(self, 5)
        self.read = min(times, key=times.get)

    def __call__(self):
        others = [self.pool.submit(self.read, self.addresses, *piece) for piece in self.others]
        self.read(self.addresses, *self.first)
        for other in others:
            other.result()


def one_blas_thread():
    """Return a context in which BLAS uses one thread, if threadpoolctl is installed."""
    return threadpoolctl.threadpool_limits(1, "blas") if threadpoolctl else nullcontext()


def seconds(function, repeats=9):
    """Return the median time of a call."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


class Rivals:
    """NumPy's forms of a computation; fastgc is compared with the fastest.

    Forms with BLAS run on one thread and on all: on a busy machine BLAS's threads wait for each
    other, and a ratio to their time would say nothing about fastgc.
    """

    def __init__(self, forms, repeats):
        self.repeats = repeats
        self.forms = {}
        for name, call in forms.items():
            self.forms[name] = call
            if "matmul" in name:
                self.forms[f"{name}, 1 thread"] = self._alone(call)
        self.times = {name: seconds(call, repeats) for name, call in self.forms.items()}
        self.best = min(self.times, key=self.times.get)
        time.sleep(0.1)  # until BLAS's threads stop spinning

    @staticmethod
    def _alone(call):
        def alone():
            with one_blas_thread():
                call()

        return alone

    def again(self):
        """Return the time of the fastest form: the mean of before and now, against drift."""
        return (self.times[self.best] + seconds(self.forms[self.best], self.repeats)) / 2


def in_turns(benchmark, function, reader, rounds):
    """Benchmark a call in turns with a reader; return the reader's median time."""
    reads = []

    def read():
        start = time.perf_counter()
        reader()
        reads.append(time.perf_counter() - start)

    benchmark.pedantic(function, setup=read, rounds=rounds, warmup_rounds=2)
    return float(np.median(reads[2:] or reads))
