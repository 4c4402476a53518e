"""Gradients of coding across rounds, simulated, on processes, and in programs of each engine."""

import textwrap

import numpy as np
import programs
import pytest
from tables import SEQUENTIAL

import fastgc
from fastgc.sequential import (
    MSGC,
    SRSGC,
    Independent,
    SequentialCluster,
    simulate_sequential,
)
from fastgc.testing import engines as conformance
from fastgc.testing.engines import ABSENT

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
from fastgc.sequential import MSGC, SRSGC, SequentialCluster, train_models
from fastgc.training.models import SoftmaxRegression

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

if __name__ == "__main__":
    if path is None:  # on all ranks
        models = [SoftmaxRegression(64, 10, l2=l2) for l2 in (0.0, 0.1)]
        each = MSGC(4, burst=1, window=2, stragglers=1)
        runs = train_models(each, models=models, steps=2, engine=name)
    serving = getattr(engine, "serve_all", bool)()  # serves any number of clusters
    if serving and path is None:
        assert [len(run.rounds) for run in runs] == [0, 0]
if __name__ == "__main__" and not serving:
"""


def launch(tmp_path, engine, source, *arguments):
    """Run a program whose rank 0 executes `source` on an engine; return what it prints."""
    (tmp_path / "gradients.py").write_text(GRADIENTS)
    body = textwrap.indent(textwrap.dedent(source), "    ")
    (tmp_path / "program.py").write_text(f"{PROGRAM}{body}")
    if engine == "mpi" and programs.MPIEXEC is None:
        pytest.skip("there is no mpiexec")
    if engine in ("ray", "torch"):
        pytest.importorskip(engine)
    command = [*RUN[engine], tmp_path / "program.py", engine, *arguments]
    return programs.run(command, seconds=SECONDS, env={"PYTHONPATH": str(tmp_path)}).stdout


# Over a second: five ranks start, and import what they train.
@pytest.mark.parametrize("engine", [RAY, "mpi", TORCH])
def test_step_on_every_engine(engine, tmp_path):
    """Workers are late in turn, and finish their work when a round is over.

    Before, all ranks train several models: others than the master get histories without rounds.
    """
    out = launch(
        tmp_path,
        engine,
        """
        assert [len(run.rounds) for run in runs] == [2, 2]
        for model, run in zip(models, runs, strict=True):
            plain = fastgc.train(fastgc.Uncoded(4), model=model, rounds=2, engine="simulated")
            assert abs(run.theta - plain.theta).max() < 1e-12
        late = Late([[0.0, 0.0, 0.0, 0.2], [0.0] * 4, [0.0, 0.2, 0.0, 0.0], [0.0] * 4])
        scheme = MSGC(4, burst=2, window=3, stragglers=1, code=fastgc.ReedSolomon)
        trained(scheme, 9, idle=(4, 5), delays=late)
        trained(SRSGC(4, burst=2, window=3, stragglers=3), 7, np.float32, delays=late)
        print("done", flush=True)
        """,
    )
    assert out.split() == ["done"]


@pytest.mark.parametrize("engine", ["local", RAY, TORCH])
def test_step_of_a_worker_that_dies_and_is_back(engine, tmp_path):
    """No other worker holds its partition: the job's gradient is exact only after the restart."""
    out = launch(
        tmp_path,
        engine,
        "print(trained(MSGC(4, burst=1, window=2, stragglers=1), 8), flush=True)",
        str(tmp_path / "died"),
    )
    assert out.splitlines()[-1] == "1"  # Ray prints before it
    assert (tmp_path / "died").exists()


class Times:
    """Delays from a table, a row for each round, repeated."""

    per = "round"

    def __init__(self, rows):
        self.rows = np.array(rows, dtype=float)

    def sample(self, round, workers, seed):
        return self.rows[round % len(self.rows)]


def trained(scheme, jobs, *, dtype=np.float64, p=5, idle=(), **options):
    """Return gradients of jobs, which depend on the parameters, and their errors."""
    rng = np.random.default_rng(7)
    shards = list(rng.standard_normal((scheme.k, p)).astype(dtype))
    thetas = rng.standard_normal((jobs, p)).astype(dtype)
    done, begun, waits = [], {}, []
    with SequentialCluster(scheme, shards, conformance.curved, p, dtype, **options) as cluster:
        for i, theta in enumerate(thetas):
            if i in idle:
                done += cluster.step(None)
            begun[cluster.schedule.round] = theta
            given = theta.copy()
            done += cluster.step(given)
            given[:] = np.nan  # the engine has copied it
            waits.append(cluster.report.wait_seconds)
        while not cluster.schedule.idle:
            done += cluster.step(None)
            waits.append(cluster.report.wait_seconds)
        assert cluster.finish() == []
    assert sorted(each.job for each in done) == sorted(begun)
    for each in done:
        assert each.gradient.dtype == dtype
        assert each.residual <= 1e-12
        truth = sum(np.sin(begun[each.job]).astype(float) * shard for shard in shards)
        np.testing.assert_allclose(each.gradient, truth, atol=1e3 * np.finfo(dtype).eps)
    return done, waits


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_step_of_every_scheme(name):
    scheme = SEQUENTIAL[name]()
    times = np.random.default_rng(3).exponential(1.0, (17, scheme.n)) ** 3
    trained(scheme, 25, engine="simulated", delays=Times(times), mu=0.5, idle=(4, 5, 6, 11))
    trained(scheme, 8, engine="simulated", delays=Times(times), mu=0.0, dtype=np.float32, p=4)


@pytest.mark.parametrize("name", ["sr 2 3 2, cyclic", "sr 1 2 3, binary", "m 2 3 1", "m 1 3 2"])
def test_step_lasts_as_long_as_simulated(name):
    scheme = SEQUENTIAL[name]()
    times = np.random.default_rng(4).exponential(1.0, (20, scheme.n)) ** 2
    run = simulate_sequential(times, scheme, mu=0.5)
    _, waits = trained(scheme, 20 - scheme.delay, engine="simulated", delays=Times(times), mu=0.5)
    lasted = run.rounds[run.rounds > 0]  # other rounds were not needed
    assert waits == pytest.approx(lasted[: len(waits)].tolist(), rel=1e-12)


@pytest.mark.parametrize(
    "scheme",
    [
        SRSGC(4, burst=1, window=2, stragglers=3),
        MSGC(3, burst=1, window=2, stragglers=1, code=fastgc.ReedSolomon),
    ],
    ids=repr,
)
def test_step_on_worker_processes(scheme):
    # One worker is late in every other round, and the others do not wait for it.
    late = [[0.0] * (scheme.n - 1) + [0.3], [0.0] * scheme.n]
    done, _ = trained(scheme, 6, delays=Times(late), mu=1.0, timeout=100.0)
    assert len(done) == 6


def test_gradient_is_told_the_job():
    scheme = SRSGC(4, burst=2, window=3, stragglers=2)
    shards = [1.0, 2.0, 3.0, 4.0]
    with SequentialCluster(scheme, shards, conformance.telling, 2, engine="simulated") as cluster:
        done = cluster.step(np.zeros(2))
        assert cluster.step(None) == []  # there is no work, so the engine runs no round
        for _ in range(3):
            done += cluster.step(np.zeros(2))
    assert [each.job for each in done] == [0, 2, 3, 4]
    for job, gradient, _ in done:
        told = [conformance.numbered(shard, j, job) for j, shard in enumerate(shards)]
        assert gradient.tolist() == [sum(told), 4 * job]


def test_finish_ends_all_jobs():
    scheme = MSGC(4, burst=2, window=3, stragglers=1)
    with SequentialCluster(scheme, [1.0] * scheme.k, np.multiply, 2, engine="simulated") as cluster:
        assert cluster.step(np.ones(2)) == cluster.step(np.ones(2)) == []
        done = cluster.finish()
    assert [each.job for each in done] == [0, 1]
    assert [each.gradient.tolist() for each in done] == [[scheme.k] * 2] * 2


def test_step_times_out_without_a_dead_worker():
    scheme = MSGC(4, burst=1, window=2, stragglers=1)
    times = [[0.0, 0.0, 0.0, ABSENT], [0.0, 0.0, 0.0, ABSENT]]
    cluster = SequentialCluster(
        scheme, [1.0] * scheme.k, np.multiply, 2, engine="simulated", delays=Times(times),
        timeout=5.0,
    )  # fmt: skip
    with cluster:
        assert cluster.step(np.ones(2)) == []
        with pytest.raises(TimeoutError, match="was not decodable after"):
            cluster.step(np.ones(2))
        with pytest.raises(RuntimeError, match="closed"):
            cluster.step(np.ones(2))


def test_step_names_who_never_answers():
    scheme = MSGC(4, burst=1, window=2, stragglers=1)
    gone = Times([[0.0, 0.0, 0.0, np.inf]])
    with SequentialCluster(
        scheme, [1.0] * 12, np.multiply, 2, engine="simulated", delays=gone, mu=0.0
    ) as cluster:
        assert cluster.step(np.ones(2)) == []
        with pytest.raises(
            fastgc.NotDecodableError, match=r"without workers \[3\], one of the jobs"
        ):
            cluster.step(np.ones(2))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scheme": fastgc.Uncoded(4)}, "one of fastgc.sequential"),
        ({"shards": [1.0] * 3}, "each of the 12 partitions"),
        ({"shards": 12}, "must be a sequence"),
        ({"gradient": "np.multiply"}, "gradient must be"),
        ({"batch": 3}, "no option 'batch'"),
        ({"size": 0}, "size must be"),
        ({"dtype": np.int64}, "dtype"),
        ({"mu": -0.5}, "mu must be"),
        ({"engine": "cloud"}, "unknown engine"),
        ({"verify": True}, "no option 'verify'"),
        ({"ask": True}, "no option 'ask'"),
        ({"delay": None}, "no option 'delay'"),
    ],
)
def test_cluster_refused(change, says):
    given = {
        "scheme": MSGC(4, burst=1, window=2, stragglers=1),
        "shards": [1.0] * 12,
        "gradient": np.multiply,
        "size": 2,
        "engine": "simulated",
    } | change
    with pytest.raises((TypeError, ValueError), match=says):
        SequentialCluster(**given)


def test_step_refuses_parameters_and_stays_open():
    scheme = Independent(fastgc.Uncoded(3))
    with SequentialCluster(scheme, [1.0, 2.0, 3.0], np.multiply, 2, engine="simulated") as cluster:
        with pytest.raises(ValueError, match="theta"):
            cluster.step(np.ones(3))
        with pytest.raises(TypeError, match="theta"):
            cluster.step(np.ones(2, dtype=np.float32))
        [done] = cluster.step(np.ones(2))
        assert done.gradient.tolist() == [6.0, 6.0]
