"""Every kernel of the tests' table."""

import numpy as np
import pytest
from kernel_table import KERNELS, STEPS

# Length and number of vectors, or numbers of workers and stragglers.
SHAPES = {"combine": (20000, 13), "square": (20000, 1)}
BOUNDED = (20000, 1)  # for kernels with a bound in the table
WORKERS = (512, 64)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_kernel(benchmark, note, kernel):
    size, count = SHAPES.get(kernel.name.split()[0], BOUNDED if kernel.bound else WORKERS)
    dtype = np.float64 if np.float64 in kernel.dtypes else kernel.dtypes[0]
    arguments = kernel.make(np.random.default_rng(0), size, count, dtype)
    benchmark.group = f"kernel: {kernel.name}"
    result = benchmark(kernel.run, arguments)
    truth = kernel.truth(arguments)
    note(error=float(np.abs(result - truth).max() / np.abs(truth).max()))


@pytest.mark.parametrize("kernel", [kernel for kernel, _ in STEPS], ids=lambda k: k.name)
def test_step(benchmark, note, kernel):
    arguments = kernel.make(np.random.default_rng(0), 20000, 1, np.float64)
    truth = kernel.truth(arguments)
    benchmark.group = f"kernel: {kernel.name}"
    after, _ = kernel.run(arguments)
    note(error=max(float(np.abs(after[name] - truth[name]).max()) for name in truth))
    benchmark(kernel.run, arguments, after)
