"""The MPI engine, in programs run by mpiexec. No test asserts a time, except that a job ends."""

import contextlib
import os
import signal
import subprocess
import textwrap
import time
import uuid
from pathlib import Path

import programs
import pytest
import strength

from fastgc._base.extras import pip_install

pytestmark = programs.needs_mpi

SECONDS = 100.0  # time for a job to end on a busy machine
RANKS = Path(__file__).parents[1] / "ranks_of_mpi.py"

PROGRAM = """
import os, signal, sys
import numpy as np
from mpi4py import MPI
from fastgc import *
from fastgc.engines.mpi import MPICluster

pids = MPI.COMM_WORLD.allgather(os.getpid())
if MPI.COMM_WORLD.rank == 0:
    shared = [line.split()[5] for line in open("/proc/self/maps") if "/dev/shm/mpich_" in line]
    print("shared:", *shared, flush=True)

def serve():
    if MPICluster.serve():
        sys.exit()
"""


class Job:
    """A job of ranks, and what it printed."""

    def __init__(self, ranks, *words):
        name, self.mark = "FASTGC_TEST_JOB", str(uuid.uuid4())
        self.process = programs.start(programs.mpiexec(ranks, *words), env={name: self.mark})
        self.mark = f"{name}={self.mark}".encode()

    def end(self, seconds=SECONDS):
        """Wait for the end, and require that no process and no memory with a name is left."""
        try:
            self.out, self.err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.out, self.err = self.process.communicate()
            pytest.fail(f"the job did not end:\n{self.out}\n{self.err}")
        until = time.monotonic() + 10.0
        while self.pids() and time.monotonic() < until:
            time.sleep(0.05)
        assert self.pids() == []
        shared = [line.split()[1:] for line in self.out.splitlines() if line.startswith("shared:")]
        assert not any(os.path.exists(name) for names in shared for name in names)
        return self

    def pids(self):
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return found


@pytest.fixture
def job(tmp_path):
    """Start a program on some ranks."""

    def start(ranks, source):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM + textwrap.dedent(source))
        return Job(ranks, path)

    return start


# ---------------------------------------------------------------------- what one job does in turn

ALWAYS = [
    "machines_are_asked_for",
    "random_delays_leave_every_gradient_exact",
    "a_stopped_worker_is_late_and_jumps_to_the_newest_parameters",
    "a_worker_at_an_older_round_leaves_it_between_two_messages",
    "failures_end_their_cluster_only",
    "a_rank_that_sends_what_no_worker_sends_is_named",
    "what_does_not_fit_is_refused_and_leaves_the_ranks_as_they_are",
    "communicators_of_some_ranks",
    "what_goes_wrong_where_workers_are_asked_names_the_worker",
    "holders_answer_messages_have_energies_and_chosen_ones_the_same_bits",
]
# The first runs on local processes always.
LONG = [
    "sequences_of_rounds_are_exact",
    "engines_behave_alike",
    "a_rank_that_hangs_is_a_straggler_of_the_next_cluster_until_it_is_back",
    "all_ranks_train",
]


@pytest.fixture(scope="module")
def done():
    """What a job of five ranks printed, which takes a second to start."""
    return Job(5, RANKS, *ALWAYS, *LONG * strength.LONG).end().out


@pytest.mark.parametrize(
    "name", [*ALWAYS, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]
)
def test_ranks(name, done):
    assert f"{name}: done\n" in done, done


# --------------------------------------------------------------------------- how a job may end


@pytest.mark.long
def test_rank_that_hangs_at_the_end_is_named_and_the_job_aborted(job):
    ended = job(
        4,
        """
        serve()
        with MPICluster(ReedSolomon(3, stragglers=1), [1.0] * 3, np.multiply, 1) as cluster:
            os.kill(pids[2], signal.SIGSTOP)
            cluster.step(np.ones(1), np.empty(1))
        print("results are written")
        """,
    ).end()
    assert ended.process.returncode != 0
    assert "ranks [2] hang" in ended.err
    assert "results are written" in ended.out


@pytest.mark.parametrize("status", [0, pytest.param(3, marks=pytest.mark.long)])
def test_job_ends_with_a_word_when_a_worker_exits(job, status):
    """The job never ends with status 0, as if all were well; processes it forked may exit."""
    ended = job(
        4,
        f"""
        class Exiting:
            def __call__(self, theta, shard, out):
                self.calls = getattr(self, "calls", 0) + 1
                child = os.fork()
                if not child:
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
                if shard == 2.0 and self.calls == 5:
                    os._exit({status})
                out[:] = shard

        serve()
        with MPICluster(Uncoded(3), [1.0, 2.0, 3.0], Exiting(), 1) as cluster:
            for number in range(10_000_000):
                cluster.step(np.ones(1), np.empty(1))
        """,
    ).end()
    assert ended.process.returncode != 0
    assert f"fastgc: rank 2 ended by os._exit({status}), so the job is aborted" in ended.err


def test_job_ends_when_a_rank_is_killed(job):
    ended = job(
        4,
        """
        serve()
        with MPICluster(ReedSolomon(3, stragglers=1), [1.0] * 3, np.multiply, 1) as cluster:
            for number in range(10_000_000):
                cluster.step(np.ones(1), np.empty(1))
                if number == 10:
                    os.kill(pids[2], signal.SIGKILL)
        """,
    ).end()
    assert ended.process.returncode != 0
    assert "9" in ended.err + ended.out  # mpiexec names the signal


@pytest.mark.parametrize(
    "where",
    ["within", *(pytest.param(each, marks=pytest.mark.long) for each in ("before", "after"))],
)
def test_uncaught_exception_of_the_master_ends_the_job(job, where):
    ended = job(
        3,
        f"""
        where = {where!r}
        if not MPICluster.serve():
            if where == "before":
                raise LookupError("the master is lost")
            cluster = MPICluster(Uncoded(2), [1.0] * 2, np.multiply, 1)
            cluster.step(np.ones(1), np.empty(1))
            if where == "within":
                raise LookupError("the master is lost")
            cluster.close()
            raise LookupError("the master is lost")
        MPICluster.serve()
        """,
    ).end()
    assert ended.process.returncode != 0
    assert "LookupError: the master is lost" in ended.err


@pytest.mark.parametrize("where", ["before", pytest.param("after", marks=pytest.mark.long)])
def test_uncaught_exception_of_a_worker_ends_the_job(job, where):
    ended = job(
        3,
        f"""
        if {where!r} == "before" and MPI.COMM_WORLD.rank == 2:
            raise LookupError("a worker is lost")
        if not MPICluster.serve():
            with MPICluster(Uncoded(2), [1.0] * 2, np.multiply, 1) as cluster:
                cluster.step(np.ones(1), np.empty(1))
        elif MPI.COMM_WORLD.rank == 2:
            raise LookupError("a worker is lost")
        """,
    ).end()
    assert ended.process.returncode != 0
    assert "LookupError: a worker is lost" in ended.err


@pytest.mark.parametrize("stops", ["", "mpi._machine = "])
def test_a_rank_that_does_not_serve_is_not_waited_for(job, stops):
    """Or one that stops when it has begun to."""
    ended = job(
        3,
        f"""
        import os, signal
        from fastgc.engines import mpi
        if MPI.COMM_WORLD.rank == 2:
            stop = lambda: os.kill(os.getpid(), signal.SIGSTOP)
            {stops or "stop()  #"}stop
        serve()
        MPICluster(Uncoded(2), [1.0] * 2, np.multiply, 1, start_timeout=0.5)
        """,
    ).end()
    assert ended.process.returncode != 0
    assert "TimeoutError: not all other ranks have called MPICluster.serve() within" in ended.err


@pytest.mark.long
def test_interrupt_ends_the_job(job):
    ended = job(
        3,
        """
        serve()
        with MPICluster(Uncoded(2), [1.0] * 2, np.multiply, 1) as cluster:
            for number in range(10_000_000):
                cluster.step(np.ones(1), np.empty(1))
                if number == 10:
                    print("begun", flush=True)
        """,
    )
    while ended.process.stdout.readline() != "begun\n":
        pass
    ended.process.send_signal(signal.SIGINT)
    ended.end()
    assert ended.process.returncode != 0


@pytest.mark.long
def test_command(tmp_path):
    file = tmp_path / "history.json"
    job = Job(
        5,
        *("-m", "fastgc", "train", "--engine", "mpi", "-s", "1", "--rounds", "3"),
        *("rs", "uc-mmc:load=2", "--json", str(file)),
    ).end()
    assert job.process.returncode == 0, job.err
    assert job.out.count("3 rounds each") == 1
    assert job.err.count("figures written") == 1
    assert file.exists()


@pytest.mark.long
def test_command_says_once_what_is_wrong():
    job = Job(3, "-m", "fastgc", "train", "--engine", "mpi", "--rounds", "2", "-n", "7").end()
    assert job.process.returncode != 0
    assert job.err.count("this job has 3: mpiexec -n 8") == 1
    assert "Traceback" not in job.err


def test_command_without_mpiexec():
    words = "-m", "fastgc", "train", "--engine", "mpi", "-n", "4"
    done = programs.run(programs.python(*words), status=2)
    assert done.stderr.startswith("fastgc: --engine mpi: 4 workers need 5 ranks")
    assert done.stderr.count("\n") == 1


def test_what_is_missing_is_named():
    source = "import sys; sys.modules['mpi4py'] = None; import fastgc.engines.mpi"
    done = programs.run(programs.python("-c", source), status=1)
    assert "ImportError" in done.stderr
    assert pip_install("mpi") in done.stderr
