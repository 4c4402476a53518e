"""The cost of a round in each engine, beside bare loops that move the same bytes.

Gradients are zeros, written anew each time. The first 13 of 16 messages suffice, and as many in
proportion for 4 and 64 local workers. Each program measures its loops in turns and prints JSON: a
row for each size, with medians in seconds.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or "mpiexec"
PROGRAMS = {
    "local": [sys.executable, "local_loop.py"],
    "mpi": [MPIEXEC, "-n", "17", sys.executable, "mpi_loop.py"],
    "ray": [sys.executable, "ray_loop.py"],
}
NEEDED = {"mpi": "mpi4py", "ray": "ray"}


@pytest.mark.parametrize("engine", PROGRAMS)
def test_rounds(benchmark, note, engine):
    if engine in NEEDED and importlib.util.find_spec(NEEDED[engine]) is None:
        pytest.skip(f"no {NEEDED[engine]}")
    printed = []

    def run():
        done = subprocess.run(
            PROGRAMS[engine], cwd=HERE, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)

    benchmark.group = "engines"
    benchmark.pedantic(run, rounds=1)
    note(title=f"Rounds of the engine {engine!r}", rows=json.loads(printed[0].splitlines()[-1]))
