"""Every kernel of the tests' table, under every backend."""

import numpy as np
import pytest
from kernel_table import KERNELS

import fastgc

# vectors of this length, or this many workers; so many vectors, or stragglers
SHAPES = {"combine": (20000, 13), "square": (20000, 1)}
WORKERS = (512, 64)


@pytest.mark.parametrize("backend", fastgc.backends())
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_kernel(benchmark, note, kernel, backend):
    size, count = SHAPES.get(kernel.name.split()[0], WORKERS)
    arguments = kernel.make(np.random.default_rng(0), size, count, np.float64)
    benchmark.group = f"kernel: {kernel.name}"
    with fastgc.use_backend(backend):
        result = benchmark(kernel.run, arguments)
    truth = kernel.truth(arguments)
    note(error=float(np.abs(result - truth).max() / np.abs(truth).max()))
