"""Gradients of coding across rounds, simulated, on processes, and in programs of each engine."""

from pathlib import Path

import jobs_across_rounds
import numpy as np
import programs
import pytest
from jobs_across_rounds import Times, trained
from tables import SEQUENTIAL

import fastgc
from fastgc.sequential import MSGC, SRSGC, Independent, SequentialCluster, simulate_sequential
from fastgc.testing import engines as conformance
from fastgc.testing.engines import ABSENT

PROGRAM = jobs_across_rounds.__file__
RUN = {
    "local": programs.python(),
    "ray": programs.python(),
    "mpi": programs.mpiexec(5, "-m", "mpi4py"),
    "torch": programs.torchrun(5),
}

LONG = [pytest.mark.long]  # they take long to start
RAY, TORCH = (pytest.param(name, marks=LONG) for name in ("ray", "torch"))


def launch(engine, *words):
    """Run the program of jobs on an engine; return the last line that it prints."""
    if engine == "mpi" and programs.MPIEXEC is None:
        pytest.skip("there is no mpiexec")
    if engine in ("ray", "torch"):
        pytest.importorskip(engine)
    command, beside = [*RUN[engine], PROGRAM, engine, *words], str(Path(PROGRAM).parent)
    done = programs.run(command, env={"PYTHONPATH": beside})
    return done.stdout.splitlines()[-1]  # Ray prints before it


# Over a second: five ranks start, and import what they train.
@pytest.mark.parametrize("engine", [RAY, "mpi", TORCH])
def test_step_on_every_engine(engine):
    assert launch(engine) == "done"


@pytest.mark.parametrize("engine", ["local", RAY, TORCH])
def test_step_of_a_worker_that_dies_and_is_back(engine, tmp_path):
    """No other worker holds its partition: the job's gradient is exact only after the restart."""
    assert launch(engine, tmp_path / "died") == "1"
    assert (tmp_path / "died").exists()


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
    options = {"engine": "simulated", "delays": Times(times), "mu": 0.5}
    _, waits, _ = trained(scheme, 20 - scheme.delay, **options)
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
    done, *_ = trained(scheme, 6, delays=Times(late), mu=1.0, timeout=100.0)
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
    options = {"engine": "simulated", "delays": Times(times), "timeout": 5.0}
    with SequentialCluster(scheme, [1.0] * scheme.k, np.multiply, 2, **options) as cluster:
        assert cluster.step(np.ones(2)) == []
        with pytest.raises(TimeoutError, match="was not decodable after"):
            cluster.step(np.ones(2))
        with pytest.raises(RuntimeError, match="closed"):
            cluster.step(np.ones(2))


def test_step_names_who_never_answers():
    scheme = MSGC(4, burst=1, window=2, stragglers=1)
    options = {"engine": "simulated", "delays": Times([[0.0, 0.0, 0.0, np.inf]]), "mu": 0.0}
    with SequentialCluster(scheme, [1.0] * 12, np.multiply, 2, **options) as cluster:
        assert cluster.step(np.ones(2)) == []
        with pytest.raises(fastgc.NotDecodableError, match=r"without workers \[3\]"):
            cluster.step(np.ones(2))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scheme": fastgc.Uncoded(4)}, "one of fastgc.sequential"),
        ({"shards": [1.0] * 3}, "each of the 12 partitions"),
        ({"shards": 12}, "must be a sequence"),
        ({"gradient": "np.multiply"}, "gradient must be"),
        ({"dtype": np.int64}, "dtype"),
        ({"mu": -0.5}, "mu must be"),
        ({"verify": True}, "no option 'verify'"),
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
