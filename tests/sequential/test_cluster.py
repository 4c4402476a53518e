"""Coding across rounds runs on all engines, in separate programs, with late and dying workers."""

import textwrap

import programs
import pytest

SECONDS = 200.0  # time for a job to end on a busy machine
RUN = {
    "local": programs.python(),
    "ray": programs.python(),
    "mpi": programs.mpiexec(5, "-m", "mpi4py"),
    "torch": programs.torchrun(5),
}

LONG = [pytest.mark.long]  # they take long to start
RAY, TORCH = (pytest.param(name, marks=LONG) for name in ("ray", "torch"))

# The module that workers import.
GRADIENTS = """
import os
import signal
import numpy as np

class Fatal:
    def __init__(self, path):
        self.path = path

    def __call__(self, theta, shard, out, *, partition, round):
        # partition 1 is of one worker only
        if self.path and (partition, round) == (1, 2) and not os.path.exists(self.path):
            open(self.path, "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
        np.multiply(np.sin(theta), shard, out=out)

class Late:
    def __init__(self, rounds):
        self.rounds = rounds

    def sample(self, round, workers, seed):
        return np.array(self.rounds[round % len(self.rounds)])
"""

PROGRAM = """
import sys
import numpy as np
import fastgc
from gradients import Fatal, Late
from fastgc.engines import find_engine
from fastgc.sequential import MSGC, SRSGC, Independent, SequentialCluster

name, path = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
engine = find_engine(name)
p = 5

def trained(scheme, jobs, dtype=np.float64, idle=(), **options):
    rng = np.random.default_rng(7)
    shards = list(rng.standard_normal((scheme.k, p)).astype(dtype))
    done, begun, deaths = [], {}, 0
    options = {"engine": name, "mu": 0.5, "timeout": 100.0, "patience": 100.0} | options
    with SequentialCluster(scheme, shards, Fatal(path), p, dtype, **options) as cluster:
        for i, theta in enumerate(rng.standard_normal((jobs, p)).astype(dtype)):
            if i in idle:
                done += cluster.step(None)
            begun[cluster.schedule.round] = theta
            done += cluster.step(theta)
        done += cluster.finish()
        deaths = cluster.report.deaths
    assert sorted(each.job for each in done) == sorted(begun)
    for each in done:
        truth = sum(np.sin(begun[each.job]).astype(float) * shard for shard in shards)
        np.testing.assert_allclose(each.gradient, truth, atol=1e3 * np.finfo(dtype).eps)
        assert each.gradient.dtype == dtype
    return deaths
"""


def launch(tmp_path, engine, source, *arguments):
    """Run a program whose rank 0 executes `source` on an engine; return what it prints."""
    (tmp_path / "gradients.py").write_text(GRADIENTS)
    body = textwrap.indent(textwrap.dedent(source), "    ")
    serve = "getattr(engine, 'serve_all', bool)()"  # serves any number of clusters
    (tmp_path / "program.py").write_text(
        f"{PROGRAM}\nif __name__ == '__main__' and not {serve}:\n{body}"
    )
    return started(tmp_path, engine, *arguments)


def started(tmp_path, engine, *arguments):
    """Run program.py with the engine's name; return what it prints."""
    if engine == "mpi" and programs.MPIEXEC is None:
        pytest.skip("there is no mpiexec")
    if engine in ("ray", "torch"):
        pytest.importorskip(engine)
    command = [*RUN[engine], tmp_path / "program.py", engine, *arguments]
    return programs.run(command, seconds=SECONDS, env={"PYTHONPATH": str(tmp_path)}).stdout


@pytest.mark.parametrize("engine", [RAY, "mpi", "torch"])
def test_gradients_are_sums_on_every_engine(engine, tmp_path):
    """Workers are late in turn, and finish their work when a round is over."""
    out = launch(
        tmp_path,
        engine,
        """
        late = Late([[0.0, 0.0, 0.0, 0.2], [0.0] * 4, [0.0, 0.2, 0.0, 0.0], [0.0] * 4])
        scheme = MSGC(4, burst=2, window=3, stragglers=1, code=fastgc.ReedSolomon)
        trained(scheme, 9, idle=(4, 5), delays=late)
        trained(SRSGC(4, burst=2, window=3, stragglers=3), 7, np.float32, delays=late)
        print("done", flush=True)
        """,
    )
    assert out.split() == ["done"]


@pytest.mark.parametrize("engine", ["mpi", TORCH])
def test_all_ranks_train_several_models(engine, tmp_path):
    """Ranks other than the master get histories without rounds."""
    (tmp_path / "program.py").write_text(
        """
import sys
import fastgc
from fastgc.training.models import SoftmaxRegression
from fastgc.sequential import MSGC, train_models

scheme = MSGC(4, burst=1, window=2, stragglers=1)
models = [SoftmaxRegression(64, 10, l2=l2) for l2 in (0.0, 0.1)]
runs = train_models(scheme, models=models, steps=3, engine=sys.argv[1])
if runs[0].rounds:
    for model, run in zip(models, runs):
        plain = fastgc.train(fastgc.Uncoded(4), model=model, rounds=3, engine="simulated")
        assert abs(run.theta - plain.theta).max() < 1e-12
    print([len(run.rounds) for run in runs], flush=True)
"""
    )
    assert started(tmp_path, engine) == "[3, 3]\n"


@pytest.mark.parametrize("engine", ["local", RAY, TORCH])
def test_a_worker_that_dies_makes_up_for_it_when_it_is_back(engine, tmp_path):
    """No other worker holds its partition: the job's gradient is exact only after the restart."""
    out = launch(
        tmp_path,
        engine,
        "print(trained(MSGC(4, burst=1, window=2, stragglers=1), 8), flush=True)",
        str(tmp_path / "died"),
    )
    assert out.splitlines()[-1] == "1"  # Ray prints before it
    assert (tmp_path / "died").exists()
