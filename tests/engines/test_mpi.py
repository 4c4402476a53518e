"""The MPI engine, in programs run by mpiexec. No test asserts a time, except that a job ends."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from fastgc import ReedSolomon, Uncoded
from fastgc._base.extras import pip_install
from fastgc.engines import LocalCluster

BESIDE = Path(sys.executable).with_name("mpiexec")
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")

pytestmark = [
    pytest.mark.skipif(
        find_spec("mpi4py") is None or MPIEXEC is None, reason="needs the extra mpi"
    ),
]

SECONDS = 100.0  # time for a job to end on a busy machine

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
from mpi4py import MPI
from fastgc import *
from fastgc.engines.mpi import MPICluster

comm = MPI.COMM_WORLD
pids = comm.allgather(os.getpid())
ABSENT = 600.0

class Delays:
    def __init__(self, *rounds):
        self.rounds = rounds

    def sample(self, round, workers, seed):
        return np.array(self.rounds[round] if round < len(self.rounds) else [0.0] * workers)

class Random:
    def sample(self, round, workers, seed):
        return np.random.default_rng([seed, round]).exponential(0.002, workers)

def fragile(theta, shard, out):
    if shard < 0:
        raise ArithmeticError(f"no gradient of {shard}")
    out[:] = shard * theta

def serve(clusters):
    if comm.rank:
        for _ in range(clusters):
            assert MPICluster.serve()
        sys.exit()
    assert not MPICluster.serve()
"""


class Job:
    """A program under mpiexec, and what it printed."""

    def __init__(self, tmp_path, ranks, source, options=()):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM + textwrap.dedent(source))
        self._begin(ranks, [sys.executable, *options, str(path)])

    def _begin(self, ranks, command):
        self.mark = f"FASTGC_TEST_JOB={uuid.uuid4()}"
        name, value = self.mark.split("=")
        self.process = subprocess.Popen(
            [MPIEXEC, "-n", str(ranks), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                name: value,
                "OMP_NUM_THREADS": "1",
                "OMPI_ALLOW_RUN_AS_ROOT": "1",  # otherwise Open MPI refuses
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
            },
        )

    def end(self, seconds=SECONDS):
        """Wait for the end, and require that no process is left."""
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
        return self

    def pids(self):
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return found


class Command(Job):
    def __init__(self, ranks, *arguments):
        self._begin(ranks, [sys.executable, "-P", "-m", "fastgc", *arguments])


def run(tmp_path, ranks, source):
    job = Job(tmp_path, ranks, source).end()
    assert job.process.returncode == 0, job.err
    return job


@pytest.mark.long  # those of local processes run always
def test_conformance(tmp_path):
    job = run(
        tmp_path,
        5,
        """
        from fastgc.testing import engines as conformance
        if comm.rank:
            while comm.bcast(None):
                MPICluster.serve()
        else:
            def engine(*args, **options):
                comm.bcast(True)
                return MPICluster(*args, **options)

            for check in conformance.CHECKS:
                check(engine)
                print(check.__name__)
            comm.bcast(False)
        """,
    )
    from fastgc.testing import engines as conformance

    assert job.out.split() == [check.__name__ for check in conformance.CHECKS]


@pytest.mark.long
def test_machines_are_asked_for(tmp_path):
    job = run(
        tmp_path,
        5,
        """
        import warnings
        from fastgc.engines import mpi

        mpi._machine = lambda: f"node{comm.rank // 2}"
        serve(2)
        for code in (ReedSolomon(4, stragglers=1), Uncoded(4)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with MPICluster(code, [1.0] * 4, np.multiply, size=1) as cluster:
                    print(cluster.hosts, *(each.message for each in caught))
        """,
    )
    warned, silent = job.out.splitlines()
    assert warned.startswith("['', 'node1', 'node1', 'node2'] if node1 (workers 1, 2) is late, ")
    assert warned.endswith("by fastgc.engines.placement")
    assert silent == "['', 'node1', 'node1', 'node2']"


@pytest.mark.long
def test_random_delays_leave_every_gradient_exact(tmp_path):
    run(
        tmp_path,
        7,
        """
        codes = [ReedSolomon(6, 6, stragglers=2), Uncoded(6, load=3), Uncoded(6, 9)]
        codes += [LagrangeCode(6, 2, load=1), Grouped.repetition(6, 2)]
        serve(len(codes))
        rng = np.random.default_rng(2)
        for code, p in zip(codes, [11, 1, 3000, 70_000, 4]):
            shards = list(rng.integers(-9, 9, (code.scheme.data.shards, p)).astype(float))
            rnd = code.group_round(p) if isinstance(code, Grouped) else None
            out, stale = np.empty(p), 0
            with MPICluster(code, shards, np.multiply, p, delays=Random(), seed=3) as cluster:
                for _ in range(60):
                    theta = rng.integers(-9, 9, p).astype(float)
                    if rnd is not None:
                        rnd.reset([0])
                        stale += cluster.collect(theta, rnd, rnd.workers).stale
                        parts = np.unique(np.concatenate([code.partitions(w) for w in rnd.workers]))
                        expected = theta * np.sum([shards[j] for j in parts], axis=0)
                        np.testing.assert_allclose(rnd.gradient(0), expected, atol=1e-9)
                        continue
                    stale += cluster.step(theta, out).stale
                    if code.scheme.data.coded:
                        continue  # whose gradient is no linear one: see the conformance
                    np.testing.assert_allclose(
                        out, theta * np.sum(shards, axis=0), atol=1e-9, err_msg=repr(code)
                    )
            assert stale > 0 or code.threshold == code.scheme.messages.count, code
        """,
    )


@pytest.mark.long
def test_stopped_worker_is_late_and_jumps_to_the_newest_parameters(tmp_path):
    run(
        tmp_path,
        3,
        """
        serve(2)
        for p in (3, 100_000):  # sent at once, and as the receiver takes it
            out = np.empty(p)
            code = ReedSolomon(2, 2, stragglers=1)
            with MPICluster(code, [1.0, 2.0], np.multiply, p) as cluster:
                os.kill(pids[2], signal.SIGSTOP)
                for number in range(4):
                    report = cluster.step(np.full(p, 10.0 + number), out)
                    assert report.survivors.tolist() == [0]
                    assert report.stale == 0
                    np.testing.assert_allclose(out, 30.0 + 3 * number)
                os.kill(pids[1], signal.SIGSTOP)
                os.kill(pids[2], signal.SIGCONT)
                report = cluster.step(np.full(p, 20.0), out)
                assert report.survivors.tolist() == [1]
                assert report.stale == 1  # of round 0: those after it were not for it
                np.testing.assert_allclose(out, 60.0)
                os.kill(pids[1], signal.SIGCONT)
        """,
    )


@pytest.mark.long
def test_worker_at_an_older_round_leaves_it_between_two_messages(tmp_path):
    run(
        tmp_path,
        3,
        """
        def gradient(theta, shard, out):
            if comm.rank == 2 and theta[0] == 1.0:
                time.sleep(0.2)
            out[:] = shard * theta

        serve(1)
        out = np.empty(2)
        with MPICluster(Uncoded(2, 4, load=4), [1.0] * 4, gradient, 2) as cluster:
            stale = 0
            for value in (1.0, 1.0, 1.0, 2.0, 3.0):
                report = cluster.step(np.full(2, value), out)
                np.testing.assert_array_equal(out, 4.0 * value)
                stale += report.stale
                if value > 1.0:
                    time.sleep(0.5)
            assert stale <= 1, stale  # of four, and of rounds it had not begun none
        """,
    )


def test_failures_end_their_cluster_only(tmp_path):
    run(
        tmp_path,
        4,
        """
        serve(5)
        out = np.empty(2)
        for shards in ([1.0, 2.0, 4.0], [1.0, -1.0, 1.0], [1.0, 2.0, 4.0]):
            try:
                with MPICluster(Uncoded(3), shards, fragile, 2) as cluster:
                    cluster.step(np.ones(2), out)
            except WorkerFailedError as error:
                assert min(shards) < 0
                for part in ("worker 1", "round 0", "partition 1", "Traceback", "of -1.0"):
                    assert part in str(error), error
            else:
                assert min(shards) > 0
                np.testing.assert_array_equal(out, 7.0)

        class Unloadable:
            def __reduce__(self):
                return eval, ("undefined",)
        try:
            MPICluster(Uncoded(3), [1.0, Unloadable(), 1.0], fragile, 2)
        except WorkerFailedError as error:
            assert "worker 1 failed while it started" in str(error)
            assert "undefined" in str(error)
        else:
            raise AssertionError

        # The first messages are all of one partition, so that second ones are needed.
        code = RandomAssignment(3, load=2, seed=4)
        assert {code.partitions(worker)[0] for worker in range(3)} == {0}
        with MPICluster(code, [1.0, 2.0, 4.0], fragile, 2) as cluster:
            for number in range(1, 4):
                cluster.step(np.full(2, float(number)), out)
                np.testing.assert_array_equal(out, 7.0 * number)
        """,
    )


@pytest.mark.long
def test_a_rank_that_sends_what_no_worker_sends_is_named(tmp_path):
    run(
        tmp_path,
        3,
        """
        from fastgc.engines.mpi import _HEADER, _LINE, _Ranks

        def lies(theta, shard, out):
            if shard and comm.rank == 2:
                frame = sys._getframe()
                while frame.f_code.co_name != "_serve":
                    frame = frame.f_back
                header = _HEADER.pack(*shard[:3], 0.0).ljust(_LINE, b"\\0") + bytes(*shard[3:])
                frame.f_locals["comm"].Send([header, MPI.BYTE], 0, frame.f_locals["tag"])
            out[:] = 1.0

        serve(14)
        out, listen, too_long = np.empty(2), _Ranks.listen, (0, 0, 0, 1 << 20)

        def late(ranks, seconds):  # when the honest message has come, too
            time.sleep(0.05)
            return listen(ranks, seconds)

        lies_told = [(77, 0, 0), (-7, 0, 0), (0, 0, 5), (0, 0, -3), *[too_long] * 9, None]
        for number, lie in enumerate(lies_told):
            _Ranks.listen = late if 4 < number < 13 else listen  # MPI may take either first
            try:
                with MPICluster(Uncoded(2), [lie] * 2, lies, 2) as cluster:
                    cluster.step(np.ones(2), out)
            except WorkerFailedError as error:
                assert lie is not None
                assert "worker 1 failed in round 0: it sent what no worker sends" in str(error)
            else:
                assert lie is None
                assert (out == 2.0).all()
        """,
    )


def test_nobody_waits_for_the_answers_of_a_rank_that_only_says_goodbye(tmp_path):
    run(
        tmp_path,
        1,
        """
        from types import SimpleNamespace
        from fastgc.codes import Share
        from fastgc.engines.interface import Question
        from fastgc.engines.mpi import _ANSWER, _HEADER, _QUESTION, _Asked

        asked = _Asked(comm, -1, 20, SimpleNamespace(answer_bytes=0))  # this rank itself
        questions = bytearray(1000)
        for number in range(2):
            asked.ask(Question(number, 0, Share(0)))
        asked.send(None)
        for left in (2, 1):
            assert not asked.ended() and len(asked.due) == left
            comm.Recv(questions, 0, 20 + _QUESTION)
            comm.Send(_HEADER.pack(77, 0, 0, 0.0), 0, 20 + _ANSWER)
        while asked.due:
            asked.ended()
        comm.Recv(questions, 0, 20 + _QUESTION)
        while not asked.ended():
            pass
        """,
    )


def test_what_does_not_fit_is_refused_and_leaves_the_ranks_as_they_are(tmp_path):
    run(
        tmp_path,
        3,
        """
        def refused(kind, text, *args, **options):
            try:
                MPICluster(*args, **options)
            except kind as error:
                assert text in str(error), error
            else:
                raise AssertionError(text)

        given = ([1.0, 2.0], np.multiply, 1)
        refused(TypeError, "intracommunicator", Uncoded(2), *given, comm="world")
        if comm.rank:
            refused(RuntimeError, f"rank {comm.rank}", Uncoded(2), *given)
        serve(2)
        refused(ValueError, "mpiexec -n 5", Uncoded(4), [1.0] * 4, np.multiply, 1)
        refused(ValueError, "2 partitions", Uncoded(2), [1.0], np.multiply, 1)
        refused(Exception, "pickle", Uncoded(2), [1.0, 2.0], threading.Lock().acquire, 1)
        refused(Exception, "pickle", Uncoded(2), [1.0, threading.Lock()], np.multiply, 1)
        out = np.empty(1)
        for _ in range(2):
            with MPICluster(Uncoded(2), *given) as cluster:
                refused(RuntimeError, "another cluster", Uncoded(2), *given)
                cluster.step(np.ones(1), out)
                assert out[0] == 3.0
        """,
    )


@pytest.mark.long
def test_communicators_of_some_ranks(tmp_path):
    job = run(
        tmp_path,
        5,
        """
        part = comm.Split(comm.rank % 2)
        if not MPICluster.serve(part):
            out = np.empty(1)
            code = Uncoded(part.size - 1)
            with MPICluster(code, [1.0] * code.n, np.multiply, 1, comm=part) as cluster:
                cluster.step(np.ones(1), out)
            print(code.n, out[0])
        """,
    )
    assert sorted(job.out.splitlines()) == ["1 1.0", "2 2.0"]


@pytest.mark.long
@pytest.mark.parametrize("code", [ReedSolomon(4, stragglers=2), Uncoded(4, 8, load=2)], ids=repr)
def test_chosen_survivors_give_the_bits_of_local_processes(tmp_path, code):
    rng = np.random.default_rng(5)
    counts = code.threshold, code.scheme.messages.count
    chosen = [rng.permutation(counts[1])[: counts[0]].tolist() for _ in range(6)]
    shards = rng.standard_normal((code.k, 5)).tolist()
    source = f"""
        code = {code!r}
        chosen = {chosen}
        serve(1)
        def train(engine):
            theta, out = np.ones(5), np.empty(5)
            shards = [np.array(shard) for shard in {shards}]
            with engine(code, shards, np.multiply, 5, survivors=chosen.__getitem__) as cluster:
                for _ in chosen:
                    cluster.step(theta, out)
                    theta -= 0.1 * out
            return theta.tobytes().hex()
        print(train(MPICluster))
    """
    scope = {}
    body = textwrap.dedent(source).replace("serve(1)", "").replace("print(train(MPICluster))", "")
    exec(f"import numpy as np\nfrom fastgc import *\n{body}", scope)
    assert run(tmp_path, 5, source).out.strip() == scope["train"](LocalCluster)


@pytest.mark.long
def test_rank_that_hangs_is_a_straggler_of_the_next_cluster_until_it_is_back(tmp_path):
    run(
        tmp_path,
        4,
        """
        import fastgc.engines.mpi
        fastgc.engines.mpi._GRACE = 0.2
        serve(3)
        code = ReedSolomon(3, stragglers=1)
        out = np.empty(100_000)
        for hung in (False, True, False):
            with MPICluster(code, [1.0, 2.0, 4.0], np.multiply, out.size) as cluster:
                for number in range(5):
                    report = cluster.step(np.full(out.size, 1.0 + number), out)
                    np.testing.assert_allclose(out, 7.0 + 7 * number)
                    assert not hung or 1 not in report.survivors
                    if not hung:
                        os.kill(pids[2], signal.SIGSTOP)
                if hung:
                    os.kill(pids[2], signal.SIGCONT)
                    for number in range(5, 500):
                        report = cluster.step(np.full(out.size, 1.0 + number), out)
                        np.testing.assert_allclose(out, 7.0 + 7 * number)
                        if 1 in report.survivors:
                            break
                    else:
                        raise AssertionError("it has not come back")
        os.kill(pids[2], signal.SIGCONT)
        """,
    )


@pytest.mark.long
def test_rank_that_hangs_at_the_end_is_named_and_the_job_aborted(tmp_path):
    job = Job(
        tmp_path,
        4,
        """
        serve(1)
        with MPICluster(ReedSolomon(3, stragglers=1), [1.0] * 3, np.multiply, 1) as cluster:
            os.kill(pids[2], signal.SIGSTOP)
            cluster.step(np.ones(1), np.empty(1))
        print("results are written")
        """,
    ).end()
    assert job.process.returncode != 0
    assert "ranks [2] hang" in job.err
    assert "results are written" in job.out


@pytest.mark.parametrize("status", [0, pytest.param(3, marks=pytest.mark.long)])
def test_job_ends_with_a_word_when_a_worker_exits(tmp_path, status):
    """The job never ends with status 0, as if all were well; processes it forked may exit."""
    job = Job(
        tmp_path,
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

        serve(1)
        with MPICluster(Uncoded(3), [1.0, 2.0, 3.0], Exiting(), 1) as cluster:
            for number in range(10_000_000):
                cluster.step(np.ones(1), np.empty(1))
        """,
    ).end()
    assert job.process.returncode != 0
    assert f"fastgc: rank 2 ended by os._exit({status}), so the job is aborted" in job.err


def test_job_ends_when_a_rank_is_killed(tmp_path):
    job = Job(
        tmp_path,
        4,
        """
        serve(1)
        with MPICluster(ReedSolomon(3, stragglers=1), [1.0] * 3, np.multiply, 1) as cluster:
            for number in range(10_000_000):
                cluster.step(np.ones(1), np.empty(1))
                if number == 10:
                    os.kill(pids[2], signal.SIGKILL)
        """,
    ).end()
    assert job.process.returncode != 0
    assert "9" in job.err + job.out  # mpiexec names the signal


@pytest.mark.parametrize(
    "where",
    ["within", *(pytest.param(each, marks=pytest.mark.long) for each in ("before", "after"))],
)
def test_uncaught_exception_of_the_master_ends_the_job(tmp_path, where):
    job = Job(
        tmp_path,
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
    assert job.process.returncode != 0
    assert "LookupError: the master is lost" in job.err


@pytest.mark.long
def test_interrupt_ends_the_job(tmp_path):
    job = Job(
        tmp_path,
        3,
        """
        serve(1)
        with MPICluster(Uncoded(2), [1.0] * 2, np.multiply, 1) as cluster:
            for number in range(10_000_000):
                cluster.step(np.ones(1), np.empty(1))
                if number == 10:
                    print("begun", flush=True)
        """,
    )
    assert job.process.stdout.readline() == "begun\n"
    job.process.send_signal(signal.SIGINT)
    job.end()
    assert job.process.returncode != 0


@pytest.mark.long
def test_train_on_all_ranks(tmp_path):
    pytest.importorskip("sklearn")
    job = run(
        tmp_path,
        4,
        """
        history = train(ReedSolomon(3, stragglers=1), rounds=3, engine="mpi")
        other = train(Uncoded(3), rounds=2, engine="mpi", name="other")
        if comm.rank:
            assert history.rounds == other.rounds == []
        else:
            print(len(history.rounds), len(other.rounds), history.rounds[-1].loss < 2.3)
        assert (history.data, history.name, other.name) == ("digits", "ReedSolomon", "other")
        """,
    )
    assert job.out.split() == ["3", "2", "True"]


@pytest.mark.long
def test_command(tmp_path):
    pytest.importorskip("sklearn")
    file = tmp_path / "history.json"
    job = Command(
        5,
        *("train", "--engine", "mpi", "-s", "1", "--rounds", "3"),  # one worker per rank
        *("--compare", "uc-mmc:load=2", "--json", str(file)),
    ).end()
    assert job.process.returncode == 0, job.err
    assert job.out.count("3 rounds each") == 1
    assert job.err.count("history written") == 1
    assert file.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-n", "7"],
            "7 workers need 8 ranks, one of them the master, and this job has 3: mpiexec -n 8",
        ),
        *(
            pytest.param(["-n", "2", *arguments], message, marks=pytest.mark.long)
            for arguments, message in (
                (["nonsense"], "unknown code"),
                (["--data", "nowhere.npz"], "no data at nowhere.npz"),
            )
        ),
    ],
)
def test_command_says_once_what_is_wrong(arguments, message):
    job = Command(3, "train", "--engine", "mpi", "--rounds", "2", *arguments).end()
    assert job.process.returncode != 0
    assert job.err.count(message) == 1
    assert "Traceback" not in job.err


def test_what_is_missing_is_named():
    source = "import sys; sys.modules['mpi4py'] = None; import fastgc.engines.mpi"
    done = subprocess.run([sys.executable, "-P", "-c", source], capture_output=True, text=True)
    assert "ImportError" in done.stderr
    assert pip_install("mpi") in done.stderr


# ----------------------------------------------------------------------- shares that are asked for


@pytest.mark.few(1)
@pytest.mark.parametrize("wrong", ["raises", "is not finite", "cannot be loaded"])
def test_what_goes_wrong_where_workers_are_asked_names_the_worker(tmp_path, wrong):
    job = run(
        tmp_path,
        4,
        f"""
        wrong = {wrong!r}
        class Shard:
            def __init__(self, number):
                self.number = number
            def __setstate__(self, state):
                if state["number"] == 1 and wrong == "cannot be loaded":
                    raise ArithmeticError("no such shard")
                self.number = state["number"]
        def gradient(theta, shard, out):
            if shard.number == 1 and wrong == "raises":
                raise ArithmeticError("no gradient")
            out[:] = np.nan if shard.number == 1 and wrong == "is not finite" else theta
        serve(2)
        try:
            shards = [Shard(number) for number in range(3)]
            with MPICluster(Reactive(3, holders=2), shards, gradient, 2) as cluster:
                cluster.step(np.ones(2), np.empty(2))
        except (WorkerFailedError, NonFiniteMessageError) as error:
            assert "worker 1" in str(error), error
        else:
            raise AssertionError("nothing was raised")
        # and the ranks are whole
        out = np.empty(2)
        with MPICluster(Reactive(3, holders=2), [1.0, 2.0, 3.0], fragile, 2) as cluster:
            cluster.step(np.ones(2), out)
        print(out.tolist())
        """,
    )
    assert job.out.split() == ["[6.0,", "6.0]"]
