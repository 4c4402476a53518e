"""Importing and compiling, in separate processes: other benchmarks do not time them."""

import os
import subprocess
import sys

import pytest

CODE = "import fastgc; c = fastgc.ReedSolomon(80, stragglers=12); "
DECODE = CODE + "c.decoding_vector(range(68)); "
ALL = DECODE + "import numpy as np; c.decode(range(68), np.ones((68, 8)))"

CASES = {
    "python": ("pass", None),
    "import numpy": ("import numpy", None),
    "import fastgc": ("import fastgc", None),
    **{f"first decode, {name}": (ALL, name) for name in ("c", "numba")},
}


def run(source, environment):
    subprocess.run([sys.executable, "-P", "-c", source], check=True, env=environment)


@pytest.mark.parametrize("what", CASES)
def test_start(benchmark, note, what):
    source, backend = CASES[what]
    environment = dict(os.environ)
    if backend:
        environment["FASTGC_BACKEND"] = backend
    run(source, environment)  # fills the caches
    benchmark.group = "start"
    note(what=what + (" (compiled before)" if backend == "numba" else ""))
    benchmark.pedantic(run, (source, environment), rounds=5)


def test_compilation(benchmark, note, tmp_path):
    environment = {**os.environ, "FASTGC_BACKEND": "numba"}
    benchmark.group = "start"
    note(what="first decode, numba (compiling)")
    folders = iter(tmp_path / str(i) for i in range(9))

    def setup():
        return (ALL, {**environment, "NUMBA_CACHE_DIR": str(next(folders))}), {}

    benchmark.pedantic(run, setup=setup, rounds=3)
