"""Numba's kernels against C's: those of the tests' table that Numba has, in turns."""

import time
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
from kernel_table import KERNELS

from fastgc.kernels import unchecked
from fastgc.kernels.numba import calls

# (size, count) for the table's ``make``: for each kind of kernel, arrays in the nearest caches
# ("near"), and larger ones ("far").
SHAPES = {
    "combine": ((20_000, 13), (400_000, 13)),
    "locator": ((512, 64), (65_536, 64)),
    "lookup": ((512, 64), (4096, 512)),
    "vandermonde": ((1024, 1), (1024, 32)),
    "lagrange": ((1024, 16), (1024, 512)),
}
ROUNDS = 5
BY_NUMBA = mock.patch.multiple(unchecked, **{n: getattr(calls, n) for n in calls.__all__})
CASES = [
    (kind, kernel) for kernel in KERNELS if (kind := kernel.name.split()[0].strip(",")) in SHAPES
]


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


@pytest.mark.parametrize("size", ["near", "far"])
@pytest.mark.parametrize(
    ("kind", "kernel", "dtype"),
    [
        pytest.param(kind, kernel, dtype, id=f"{kernel.name}-{np.dtype(dtype).name}")
        for kind, kernel in CASES
        for dtype in kernel.dtypes
        if "stacked" not in kernel.name  # the same kernels
    ],
)
def test_against_c(benchmark, note, kind, kernel, dtype, size):
    arguments = kernel.make(np.random.default_rng(0), *SHAPES[kind][size == "far"], dtype)
    into = (arguments["before"].copy(),) if kind == "combine" else ()
    times = in_turns(lambda: kernel.run(arguments, *into))
    note(numba=kernel.name, dtype=np.dtype(dtype).name, times=times)
    benchmark.group = "numba over c"
    with BY_NUMBA:
        benchmark.pedantic(kernel.run, (arguments, *into))
