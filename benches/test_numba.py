"""Numba's kernels against C's: those of the tests' table that Numba has, in turns."""

import time
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
from oracles import KERNELS, named

from fastgc.kernels import unchecked
from fastgc.kernels.numba import calls

# (size, count) for the table's ``make``: larger arrays than fit the nearest caches.
LAGRANGE = 1024, 512
SHAPES = {
    "combine": (400_000, 13),
    "bind_decoding_vector": (4096, 512),
    "solve_vandermonde": (1024, 32),
    "lagrange_products": LAGRANGE,
    "lagrange_basis": LAGRANGE,
    "lagrange_evaluate": LAGRANGE,
    "bind_functional": LAGRANGE,
}
ROUNDS = 5
BY_NUMBA = mock.patch.multiple(unchecked, **{n: getattr(calls, n) for n in calls.__all__})


def in_turns(call):
    """Return the median time of a call under C and under Numba."""
    times = {"c": [], "numba": []}
    for _ in range(ROUNDS + 1):
        for name, taken in times.items():
            with BY_NUMBA if name == "numba" else nullcontext():
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
    return {name: float(np.median(taken[1:])) for name, taken in times.items()}


@pytest.mark.parametrize(**named(kernel for kernel in KERNELS if kernel.name in SHAPES))
def test_against_c(benchmark, note, kernel, case, dtype):
    more = {"plain": True} if kernel.name == "solve_vandermonde" else {}
    arguments = kernel.make(np.random.default_rng(0), *SHAPES[kernel.name], dtype, **case, **more)
    times = in_turns(lambda: kernel.run(arguments))
    words = ", ".join((kernel.name, *(f"{name} {value}" for name, value in case.items())))
    note(across="dtype", kernel=words, dtype=np.dtype(dtype).name, turns=times)
    benchmark.group = "numba over c"
    with BY_NUMBA:
        benchmark.pedantic(kernel.run, (arguments,))
