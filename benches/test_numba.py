"""Numba's kernels against C's: every kernel of the tests' table, in turns."""

import time

import numpy as np
import pytest
from kernel_table import COMPLETIONS, KERNELS, STEPS

import fastgc

pytestmark = pytest.mark.skipif(
    not {"c", "numba"} <= set(fastgc.backends()), reason="compares the C and Numba backends"
)

# (size, count) for the table's ``make``: for each kind of kernel, arrays in the nearest caches
# ("near"), and larger ones ("far").
SHAPES = {
    "combine": ((20_000, 13), (400_000, 13)),
    "square": ((20_000, 1), (2_000_000, 1)),
    "step": ((20_000, 1), (1_000_000, 1)),
    "locator": ((512, 64), (65_536, 64)),
    "lookup": ((512, 64), (4096, 512)),
    "fft": ((512, 64), (65_536, 64)),
    "stream": ((512, 64), (65_536, 64)),
    "vandermonde": ((1024, 1), (1024, 32)),
    "lagrange": ((1024, 16), (1024, 512)),
    "completion": ((100, 10), (2000, 10)),
}
LONG = SHAPES["step"]  # for all other kernels, which work on long vectors
ROUNDS = 5
CASES = [
    *((kernel.name.split()[0].strip(","), kernel) for kernel in KERNELS + COMPLETIONS),
    *(("step", kernel) for kernel, _ in STEPS),
]


def in_turns(call):
    """Return the median time of a call under C and under Numba."""
    times = {"c": [], "numba": []}
    for _ in range(ROUNDS + 1):
        for name, taken in times.items():
            with fastgc.use_backend(name):
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
    arguments = kernel.make(np.random.default_rng(0), *SHAPES.get(kind, LONG)[size == "far"], dtype)
    if kind == "combine":
        into = (arguments["before"].copy(),)
    elif kind == "step":
        into = ({name: x for name, x in arguments.items() if name not in ("gradient", "new")},)
    else:
        into = ()
    times = in_turns(lambda: kernel.run(arguments, *into))
    note(numba=kernel.name, dtype=np.dtype(dtype).name, times=times)
    benchmark.group = "numba over c"
    with fastgc.use_backend("numba"):
        benchmark.pedantic(kernel.run, (arguments, *into))
