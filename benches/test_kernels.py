"""Every kernel of the tests' table."""

import numpy as np
import pytest
from oracles import KERNELS, SPLIT, named

# Length and number of vectors, or numbers of workers and stragglers, nodes and points.
SHAPES = {"combine": (20000, 13), "bind_combine": (20000, 13)}
LONG = (20000, 1)
WORKERS = (512, 64)


@pytest.mark.parametrize(**named(KERNELS))
def test_kernel(benchmark, note, kernel, case, dtype):
    if dtype is not kernel.dtypes[-1] and dtype is not np.float64:
        pytest.skip("as for float64")
    long = kernel in SPLIT or len(kernel.dtypes) > 1 or dtype is np.uint64
    size, count = SHAPES.get(kernel.name, LONG if long else WORKERS)
    given = kernel.make(np.random.default_rng(0), size, count, dtype, **case)
    words = ", ".join(f"{name} {value}" for name, value in case.items())
    benchmark.group = f"kernel: {kernel.name} {words}"
    truth, found = kernel.true(given), kernel.run(kernel.fresh(given))
    numbers = [name for name, value in truth.items() if np.asarray(value).dtype.kind in "fc"]
    note(error=max((_error(found[name], truth[name]) for name in numbers), default=0.0))
    benchmark(kernel.run, given)


def _error(found, truth):
    """Return the largest error relative to the largest number; 0 where the truth has none."""
    found, truth = (np.asarray(each)[np.isfinite(truth)] for each in (found, truth))
    return float(np.abs(found - truth).max() / np.abs(truth).max()) if truth.any() else 0.0
