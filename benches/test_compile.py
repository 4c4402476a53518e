"""Numba's compilation of each kernel, and its loading from the cache, in fresh processes."""

import os
import subprocess
import sys

import numpy as np
import pytest

SETUP = """
import time
import numpy as np
import fastgc
from fastgc import kernels
from fastgc.kernels import numba as nb
code = fastgc.ReedSolomon(80, stragglers=12)
tables, survivors, vector = code.scheme.tables, np.arange(68), np.empty(68, complex)
rows, coef, out = np.ones((3, 8)), np.ones(3, complex), np.empty(8)
start = time.perf_counter()
{call}
print(time.perf_counter() - start)
"""
CALLS = {
    "decoding_vector": "nb.decoding_vector(tables, kernels.cyclic.LOCATOR, survivors, vector)",
    "combine_rows": "nb.combine_rows(coef, rows, out)",
}


@pytest.mark.parametrize("kernel", CALLS)
@pytest.mark.parametrize("state", ["cold", "warm"])
def test_first_call(benchmark, note, tmp_path, kernel, state):
    """Time the whole process, and the first call in it; "cold" has an empty cache."""
    source = SETUP.format(call=CALLS[kernel])
    folders = (tmp_path / str(i if state == "cold" else 0) for i in range(9))
    first = []

    def run(environment):
        done = subprocess.run(
            [sys.executable, "-P", "-c", source],
            check=True,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        first.append(float(done.stdout))

    def environment():
        return {**os.environ, "NUMBA_CACHE_DIR": str(next(folders))}

    if state == "warm":
        run(environment())  # fills the cache
        first.clear()
    benchmark.group = f"compile: {kernel}"
    benchmark.pedantic(run, setup=lambda: ((environment(),), {}), rounds=3)
    note(kernel=kernel, state=state, first_call=float(np.median(first)))
