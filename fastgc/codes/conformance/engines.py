"""A code on every engine that is installed."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...delays import Exponential
from ...engines import LocalCluster, SimulatedCluster
from ...models import least_squares_gradient
from ..precision import UNSTABLE
from .subject import P, Subject, require

__all__ = ["ENGINES", "engines_run_it"]

ENGINES = ("simulated", "local", "mpi", "ray")


def engines_run_it(subject: Subject, engines: Sequence[str]) -> str:
    """Every engine that is installed decodes the gradient."""
    code = subject.code
    ran, left_out = [], []
    for name in engines:
        missing = _missing(name)
        if missing:
            left_out.append(f"{name} ({missing})")
            continue
        if name == "mpi":
            _under_mpiexec(subject)
        else:
            _run(subject, _engine(name))
        ran.append(name)
    said = f"{', '.join(ran)}; messages of {code.message_weight:g} gradients"
    return said + (f"; not {', '.join(left_out)}" if left_out else "")


def _missing(engine: str) -> str:
    """What an engine lacks, if anything."""
    if engine == "mpi":
        if importlib.util.find_spec("mpi4py") is None:
            return "mpi4py is not installed"
        return "" if _mpiexec() else "there is no mpiexec"
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        return "ray is not installed"
    return ""


def _mpiexec() -> str | None:
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def _engine(name: str) -> Callable[..., Any]:
    if name == "ray":
        from ...engines.ray import RayCluster

        return RayCluster
    return LocalCluster if name == "local" else SimulatedCluster


def _gradient(theta: NDArray[Any], shard: Any, out: NDArray[Any]) -> None:
    out[:] = least_squares_gradient(theta, *shard)


def _run(subject: Subject, engine: Callable[..., Any]) -> None:
    code, (shards, _, _, theta) = subject.code, subject.work
    out = np.empty(P)
    delays = Exponential(0.001)
    with engine(code, shards, _gradient, P, delays=delays) as cluster:
        for _ in range(3):
            report = cluster.step(theta, out)
            received = report.received
            require(
                code.decodable(received),
                f"{engine.__name__} decoded from {received.tolist()}, which do not suffice",
            )
            error, left = subject.gradients_error(out), code.residual(received)
            require(
                error <= subject.expected(received) or left > UNSTABLE,
                f"{engine.__name__}: from {received.tolist()} the gradient is off by {error:.2g}",
            )
            require(
                abs(report.residual - left) <= 0.1 * left + UNSTABLE,
                f"{engine.__name__} reports {report.residual:.2g} as left out, not {left:.2g}",
            )


def _under_mpiexec(subject: Subject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.pickle"
        path.write_bytes(pickle.dumps((subject.code, subject.seed)))
        command = [str(_mpiexec()), "-n", str(subject.code.n + 1), sys.executable, "-c"]
        program = f"from {__name__} import rank_of; rank_of({str(path)!r})"
        paths = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [*command, program],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=300,
        )
    require(done.returncode == 0, f"under mpiexec: {done.stdout[-800:]}{done.stderr[-800:]}")


def rank_of(path: str) -> None:
    """Be a rank of a job under mpiexec that runs the code in a file."""
    from ...engines.mpi import MPICluster

    if not MPICluster.serve():
        code, seed = pickle.loads(Path(path).read_bytes())
        _run(Subject(code, seed), MPICluster)
