"""Start other programs in one way: interpreters, and ranks that mpiexec or torchrun start."""

import os
import shutil
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

BESIDE = Path(sys.executable).with_name("mpiexec")
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    find_spec("mpi4py") is None or MPIEXEC is None, reason="needs the extra mpi"
)
# Each rank has one thread. Open MPI refuses root, and more ranks than cores, unless it is told.
AROUND = {
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "RANK": None,
    "WORLD_SIZE": None,
}


def python(*words):
    """Return the command of an interpreter that imports fastgc as this one does.

    ``-P``: a folder named fastgc beside the program, such as a checkout, is not imported.
    """
    return [sys.executable, "-P", *map(str, words)]


def mpiexec(ranks, *words):
    """Return the command of `ranks` ranks of MPI, each an interpreter with these words."""
    return [MPIEXEC, "-n", str(ranks), *python(*words)]


def torchrun(ranks, *words):
    """Return the command of `ranks` ranks of torchrun."""
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return python(*start, *words)


def around(**names):
    """Return the environment of a program: this one's, with names set, or left out if None."""
    both = os.environ | AROUND | names
    return {name: value for name, value in both.items() if value is not None}


def start(command, *, folder=None, env=None, **options):
    """Start a command whose outputs are pipes of text."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen([*map(str, command)], cwd=folder, env=around(**env or {}), **options)


def run(command, *, status=0, folder=None, input=None, env=None):
    """Run a command to its end, and return it with its outputs as text.

    It has the time that pytest gives the test.

    Parameters
    ----------
    command : list
        As `python`, `mpiexec` or `torchrun` return it.
    status : int or None
        The exit status that is required; None: any.
    folder : path, optional
        Where it runs.
    input : str, optional
        Its standard input.
    env : dict
        Names that differ in its environment; None: without this name.
    """
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        input=input,
        capture_output=True,
        text=True,
        env=around(**env or {}),
        check=False,
    )
    assert status in (None, done.returncode), (
        f"status {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done


def printed(source, **options):
    """Return what an interpreter prints that runs a program given as text."""
    return run(python("-c", textwrap.dedent(source)), **options).stdout.strip()
