"""The Ray engine. No test asserts a time; no test waits for a worker whose delay is ABSENT.

All clusters of this file share one Ray, which an extra cluster keeps alive. Tests of how Ray
starts, ends or is shared run programs of their own.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import programs
import pytest
from engine_checks import (
    check_lateness,
    check_leaving_between_messages,
    check_two_clusters,
)
from remote import Remote

import fastgc
from fastgc import (
    NotDecodableError,
    ReedSolomon,
    Uncoded,
    WorkerFailedError,
)
from fastgc._base import extras
from fastgc.engines import LocalCluster
from fastgc.engines import ray as ray_engine
from fastgc.engines.ray import RayCluster
from fastgc.testing import engines as conformance
from fastgc.testing.engines import Delays

ray = pytest.importorskip("ray")

ABSENT = 600.0
PATIENCE = 120.0  # seconds for a restart on a busy machine


def pids(cluster):
    """Return the process id of each worker, which has to be alive and idle."""
    actors = cluster.transport._actors
    return ray.get(
        [
            actor.__ray_call__.remote(Remote("lambda actor: __import__('os').getpid()"))
            for actor in actors
        ]
    )


def exists(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):  # the process ended before or during reading
        return False
    return state != "Z"


def await_end(processes):
    deadline = time.monotonic() + PATIENCE
    while any(map(exists, processes)):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.02)


@pytest.fixture(scope="module", autouse=True)
def session():
    with RayCluster(Uncoded(1), [1.0], np.multiply, 1):
        yield
    assert not ray.is_initialized()


# np.multiply(theta, shard, out) has the signature of a gradient function, and pickles.


@pytest.mark.parametrize(
    ("code", "dtype", "p"),
    [
        (ReedSolomon(4, stragglers=1), np.float64, 7),
        (ReedSolomon(3, stragglers=1), np.float32, 40_000),  # so long that the object store is used
        pytest.param(Uncoded(3, load=2), np.float64, 1, marks=pytest.mark.long),
        (Uncoded(2, 4, load=3), np.float32, 30_000),
    ],
    ids=repr,
)
def test_every_round_gives_the_sum_of_all_partial_gradients(code, dtype, p):
    rng = np.random.default_rng(1)
    shards = [rng.integers(-9, 9, p).astype(dtype) for _ in range(code.k)]
    out = np.full(p, np.nan, dtype)
    with RayCluster(code, shards, np.multiply, p, dtype) as cluster:
        assert cluster.hosts == [""] * code.n  # all on the machine of the master
        for number in range(20):
            theta = rng.integers(-9, 9, p).astype(dtype)
            expected = theta * np.sum(shards, axis=0)
            report = cluster.step(theta, out=out)
            theta.fill(np.nan)  # parameters have been copied
            np.testing.assert_allclose(out, expected, atol=1e3 * np.finfo(dtype).eps)
            assert report.round == number
            assert report.lost == ()
            assert report.refused == 0
            assert code.decodable(report.received)
            assert len(report.survivors) <= report.messages <= code.scheme.messages.count
            assert (np.diff(report.arrivals) >= 0).all()


@pytest.mark.parametrize(
    "check",
    [
        conformance.coded_data_are_decoded,
        conformance.less_precise_messages_are_decoded,
        conformance.only_those_asked_take_part,
        conformance.failures_name_worker_and_partition,
    ],
    ids=lambda check: check.__name__,
)
def test_conformance(check):
    """Others take seconds for each cluster."""
    check(RayCluster)


def test_forced_survivors_give_what_they_give_on_processes_though_some_are_killed():
    code = ReedSolomon(4, stragglers=2)
    rng = np.random.default_rng(3)
    shards = list(rng.standard_normal((4, 9)))
    chosen = [[2, 0], [1, 3, 0], [3, 2, 1, 0], [0, 3]]
    found = []
    options = {"survivors": chosen.__getitem__, "patience": PATIENCE}
    for engine in (LocalCluster, RayCluster):
        theta, out = np.ones(9), np.empty(9)
        with engine(code, shards, np.multiply, 9, **options) as cluster:
            for number in range(4):
                if engine is RayCluster and number % 2:
                    os.kill(pids(cluster)[chosen[number][0]], signal.SIGKILL)
                report = cluster.step(theta, out)
                assert report.received.tolist() == chosen[number]
                theta += out / 7
        found.append(theta)
    assert found[0].tobytes() == found[1].tobytes()


# ------------------------------------------------------------------------------------- stragglers


def test_late_worker_jumps_to_the_newest_parameters():
    # Either of the two workers can answer alone.
    out = np.empty(3)
    with RayCluster(ReedSolomon(2, 2, stragglers=1), [1.0, 2.0], np.multiply, 3) as cluster:
        zero, one = pids(cluster)
        os.kill(one, signal.SIGSTOP)
        for number in range(5):
            report = cluster.step(np.full(3, float(number)), out)
            assert report.survivors.tolist() == [0]
            assert report.stale == 0
            np.testing.assert_allclose(out, 3.0 * number)
        os.kill(zero, signal.SIGSTOP)
        os.kill(one, signal.SIGCONT)
        # The worker was handed only round 0: this message is stale, and its next is of this round.
        report = cluster.step(np.full(3, 20.0), out)
        assert report.survivors.tolist() == [1]
        assert report.stale == 1
        np.testing.assert_allclose(out, 60.0)
        os.kill(zero, signal.SIGCONT)


def test_a_late_worker_leaves_a_round_between_two_messages():
    # Its first message of round 0 is stale; the second was never asked for.
    check_leaving_between_messages(RayCluster, pids, stale=1)


def test_a_worker_is_late_once_or_with_each_message():
    check_lateness(RayCluster)


# ------------------------------------------------------------------------------ failures and deaths


@pytest.mark.parametrize(
    ("gradient", "p", "match"),
    [
        ("lambda theta, shard, out: theta.fill(0)", 1, "read-only"),
        ("lambda theta, shard, out: theta.fill(0)", 40_000, "read-only"),
        ("lambda theta, shard, out: exit(3)", 1, "SystemExit: 3"),
    ],
)
def test_what_a_gradient_must_not_do(gradient, p, match):
    cluster = RayCluster(Uncoded(1), [0.0], Remote(gradient), p)
    with pytest.raises(WorkerFailedError, match=match):
        cluster.step(np.ones(p), np.empty(p))


@pytest.mark.parametrize(
    ("loaded", "match"),
    [
        ((int, ("not a number",)), "(?s)worker 1 failed while it started.*not a number"),
        ((os._exit, (3,)), "worker 1 died while it started: "),
    ],
)
def test_shards_that_cannot_be_loaded(loaded, match):
    class Shard:
        def __reduce__(self):
            return loaded

    with pytest.raises(WorkerFailedError, match=match) as caught:
        RayCluster(Uncoded(2), [1.0, Shard()], np.multiply, 1)
    assert caught.value.worker == 1


def test_worker_that_never_starts():
    with pytest.raises(TimeoutError, match=r"^workers 0 have not started within 0.5 s, "):
        RayCluster(
            Uncoded(1),
            [1.0],
            np.multiply,
            1,
            actor_options={"resources": {"no such thing": 1}},
            start_timeout=0.5,
        )


@pytest.mark.parametrize("told", ["5", "(theta, None)"])
def test_an_actor_that_returns_what_no_worker_does_is_replaced(told):
    lie = Remote(
        "lambda theta, shard, out: (out.__setitem__(slice(None), theta), shard == 1.0 and setattr("
        "__import__('fastgc.engines.ray').engines.ray._Side, 'message', "
        f"lambda side, theta, *more: {told}))"
    )
    code, out = ReedSolomon(4, stragglers=2), np.empty(3)
    shards = [0.0] * 4
    for j in set(code.partitions(0)) - set(code.partitions(1)):
        shards[j] = 1.0  # on these, worker 0 and other holders return `told` next
    with RayCluster(code, shards, lie, 3, patience=PATIENCE) as cluster:
        until = time.monotonic() + PATIENCE
        deaths = 0
        while not deaths:
            assert time.monotonic() < until
            theta = np.full(3, 2.0)
            deaths = cluster.step(theta, out).deaths
            np.testing.assert_allclose(out, 4 * theta)


def test_workers_killed_in_a_round_are_stragglers_and_come_back():
    code = ReedSolomon(5, stragglers=2)
    delays = Delays([0.0] * 5, [0.0, 0.0, 0.0, ABSENT, ABSENT])
    out = np.empty(3)
    with RayCluster(code, [1.0] * 5, np.multiply, 3, delays=delays, patience=PATIENCE) as cluster:
        cluster.step(np.ones(3), out)
        before = pids(cluster)
        cluster.step(np.full(3, 2.0), out)  # workers 3 and 4 stay in this round for long
        np.testing.assert_allclose(out, 10.0)
        os.kill(before[3], signal.SIGKILL)
        os.kill(before[4], signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE

        def go_on(number):
            assert time.monotonic() < deadline
            report = cluster.step(np.full(3, float(number)), out)
            np.testing.assert_allclose(out, 5.0 * number)
            assert set(report.lost) <= {3, 4}
            return report

        number = 2
        while (report := go_on(number)).deaths < 2 or report.lost:
            number += 1
        after = pids(cluster)
        assert after[:3] == before[:3]
        assert not set(after[3:]) & set(before)
        for worker in (0, 1):  # workers that came back are as good as the others
            os.kill(after[worker], signal.SIGSTOP)
        while not {3, 4} <= set(go_on(number).survivors.tolist()):
            number += 1
    await_end(after)


@pytest.mark.parametrize("partial", ["raise", "best"])
def test_more_deaths_than_stragglers(partial):
    """In the round, and when the message of the one that is left has come."""
    code, out = ReedSolomon(3, stragglers=1), np.empty(2)
    options = {"patience": 0, "partial": partial, "delays": Delays([0.0, ABSENT, ABSENT])}
    with RayCluster(code, [1.0] * 3, np.multiply, 2, **options) as cluster:
        killers = [threading.Timer(1.0, os.kill, (p, signal.SIGKILL)) for p in pids(cluster)[1:]]
        for each in killers:
            each.start()
        if partial == "best":
            report = cluster.step(np.ones(2), out)
            assert sorted(report.lost) == [1, 2]
            assert report.survivors.tolist() == [0]
            assert report.residual > 0
            assert np.isfinite(out).all()
        else:
            with pytest.raises(NotDecodableError, match=r"workers \[(1, 2|2, 1)\] have died"):
                cluster.step(np.ones(2), out)


def test_workers_that_are_stopped_do_not_outlive_the_cluster():
    with RayCluster(ReedSolomon(3, stragglers=1), [1.0] * 3, np.multiply, 1) as cluster:
        processes = pids(cluster)
        os.kill(processes[1], signal.SIGSTOP)
        for number in range(5):
            report = cluster.step(np.full(1, float(number)), out := np.empty(1))
            assert 1 not in report.survivors
            assert out == pytest.approx(3.0 * number)
    await_end(processes)


# ------------------------------------------------------------------------------- workers and Ray


def test_workers_run_one_thread_each():
    threads = Remote(
        "lambda theta, shard, out: out.fill(int(__import__('os').environ['OMP_NUM_THREADS']) "
        "+ 10 * __import__('fastgc').kernels.threads.get_num_threads())"
    )
    before = dict(os.environ)
    out = np.empty(1)
    with RayCluster(Uncoded(2), [0, 0], threads, 1) as cluster:
        cluster.step(np.ones(1), out)
    assert out == [22.0]
    assert dict(os.environ) == before


def test_partitions_are_in_the_store_once():
    """Both workers read the same memory, and neither can write to it."""
    read_only = Remote("lambda theta, shard, out: out.fill(shard.flags.writeable)")
    shards = [np.ones(100_000)] * 2
    with RayCluster(Uncoded(2, load=2), shards, read_only, 1) as cluster:
        cluster.step(np.ones(1), out := np.ones(1))
    assert out == 0.0


@pytest.mark.long  # starts a Ray of its own
def test_two_clusters_at_once():
    check_two_clusters(RayCluster)


def test_messages_outlive_the_cluster():
    code = Uncoded(2)
    rnd = code.round(50_000)
    with RayCluster(code, [1.0, 2.0], np.multiply, 50_000) as cluster:
        cluster.collect(np.ones(50_000), rnd)
    np.testing.assert_array_equal(rnd.gradient(), 3.0)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"address": 6379}, TypeError, "address must.*6379"),
        ({"address": "elsewhere:1"}, ValueError, "Ray is initialised already, at .*'elsewhere:1'"),
        ({"actor_options": ["num_cpus"]}, TypeError, "actor_options must"),
        ({"actor_options": {"num_cpu": 1}}, ValueError, "num_cpu"),
        ({"actor_options": {"max_restarts": 3}}, ValueError, "must leave max_restarts to the cl"),
        ({"options": {"num_cpus": 1}}, TypeError, "given as actor_options="),
        ({"colour": "red"}, TypeError, "colour"),
    ],
)
def test_constructor_refuses(change, error, match):
    arguments = {"shards": [1.0, 2.0], "gradient": np.multiply, "size": 3} | change
    with pytest.raises(error, match=match):
        RayCluster(Uncoded(2, 2), **arguments)


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=re.escape(extras.pip_install("ray"))):
        RayCluster(Uncoded(1), [1.0], np.multiply, 1)
    monkeypatch.undo()
    assert extras.ray() is ray


def test_training():
    code = ReedSolomon(3, stragglers=1)
    found = [
        fastgc.train(code, rounds=4, engine=engine, seed=2).rounds[-1]
        for engine in ("ray", "local")
    ]
    assert found[0].loss == pytest.approx(found[1].loss)


# ----------------------------------------------------------------------- programs of their own

PROGRAM = """
    import os, sys
    import numpy as np
    import fastgc
    from fastgc import ReedSolomon, Uncoded
    from fastgc.engines.ray import RayCluster

    assert "ray" not in sys.modules

    def step(**options):
        with RayCluster(ReedSolomon(2, stragglers=1), [1.0, 2.0], np.multiply, 1, **options) as it:
            it.step(np.ones(1), out := np.empty(1))
            np.testing.assert_allclose(out, 3.0)
"""


def start(body, folder, cwd=None, **environment):
    """Run a program whose Ray has its own folder."""
    program = textwrap.dedent(PROGRAM) + textwrap.dedent(body)
    command = programs.python("-W", "error", "-c", program)
    return programs.start(command, folder=cwd, env={"RAY_TMPDIR": folder} | environment)


def run(body, folder, cwd=None, **environment):
    with start(body, folder, cwd, **environment) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output, errors


def those_of(folder):
    """Return the processes of the Ray with this folder."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if folder.encode() in line.read_bytes():
                found.append(int(line.parent.name))
    return found


@pytest.fixture
def folder():
    """A folder with a short name, since paths of sockets begin with it."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    yield folder
    await_end(those_of(folder))
    shutil.rmtree(folder)


@pytest.mark.long  # starts a Ray of its own
def test_nothing_is_left_of_a_ray_started_for_a_cluster(folder):
    memory = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    body = """
        import ray
        step()
        assert not ray.is_initialized()
        assert os.listdir(os.environ["RAY_TMPDIR"]) == []
        forgotten = RayCluster(Uncoded(1), [1.0], np.multiply, 1)
    """
    assert run(body, folder) == ("", "")
    assert os.listdir(folder) == []
    if memory:
        assert not {name for name in os.listdir("/dev/shm") if "plasma" in name} - memory


@pytest.mark.long  # starts a Ray of its own
def test_the_ray_of_the_program_is_left_to_it(folder):
    body = """
        os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
        import ray
        own = dict(include_dashboard=False, log_to_driver=False, _temp_dir=os.environ["RAY_TMPDIR"])
        ray.init("local", num_cpus=1, **own)
        kept = ray.put(3.0)
        step()
        step(address="auto")
        step(address=ray.get_runtime_context().gcs_address)
        assert ray.get(kept) == 3.0
        cluster = RayCluster(Uncoded(1), [1.0], np.multiply, 1)
        ray.shutdown()
        try:
            cluster.step(np.ones(1), np.empty(1))
        except RuntimeError as error:
            assert "shut down" in str(error)
        else:
            raise AssertionError
        assert not ray.is_initialized()
        step()
        assert not ray.is_initialized()
    """
    assert run(body, folder)[0] == ""


@pytest.mark.long  # starts a Ray of its own
def test_sudden_death_of_the_master_leaves_no_process(folder):
    body = """
        cluster = RayCluster(Uncoded(2), [1.0, 2.0], np.multiply, 1)
        cluster.step(np.ones(1), np.empty(1))
        print("running", flush=True)
        sys.stdin.read()
    """
    with start(body, folder) as process:
        assert process.stdout.readline() == "running\n"
        assert those_of(folder)
        process.kill()
    await_end(those_of(folder))


@pytest.mark.long  # starts a Ray of its own
@pytest.mark.parametrize("stopped", ["raylet", "gcs_server"])
def test_a_ray_that_does_not_answer_is_killed_at_the_end(folder, stopped):
    """The program goes on until then. Its status is Ray's, which may end a program so."""
    body = f"""
        import contextlib, glob, signal
        from fastgc.engines import ray as engine

        engine._SECONDS = 3.0
        p, out = 10**6, np.empty(10**6)  # in the object store
        with RayCluster(Uncoded(1), [1.0], np.multiply, p) as cluster:
            cluster.step(np.ones(p), out)
            for each in glob.glob("/proc/[0-9]*/cmdline"):
                with contextlib.suppress(OSError), open(each) as file:
                    words = file.read()
                    if {stopped!r} in words.split("\\0")[0] and {folder!r} in words:
                        os.kill(int(each.split("/")[2]), signal.SIGSTOP)
            if {stopped!r} == "raylet":
                try:
                    cluster.step(np.ones(p), out)
                except TimeoutError as error:
                    print(error)
        print("closed", flush=True)
    """
    with start(body, folder) as process:
        output, errors = process.communicate(timeout=300)
    said = "Ray on this machine has not answered for 3 s\n" * (stopped == "raylet")
    assert output == f"{said}closed\n"
    assert "Ray has not ended within 3 s" in errors


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def answers(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_an_address_that_does_not_answer_is_left(monkeypatch):
    """A connection is made by the kernel, also if the process that listens is stopped."""
    monkeypatch.setattr(ray_engine, "_ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        ray_engine._check_answers(f"127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.long  # starts a Ray of its own
def test_address(folder):
    port = free_port()
    body = f"""
        try:
            step(address="127.0.0.1:{port}")
        except ConnectionError as error:
            assert "127.0.0.1:{port}" in str(error)
        else:
            raise AssertionError
    """
    assert run(body, folder) == ("", "")
    command = [Path(sys.executable).with_name("ray"), "start", "--head", f"--port={port}"]
    command += [f"--temp-dir={folder}", "--include-dashboard=false", "--num-cpus=1"]
    command += ["--disable-usage-stats", "--block"]
    head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers(port):
            assert time.monotonic() < deadline
            assert head.poll() is None
            time.sleep(0.1)
        body = f"""
            import ray
            step(address="127.0.0.1:{port}")
            assert not ray.is_initialized()
            os.environ["RAY_ADDRESS"] = "127.0.0.1:{port}"
            step()
            step()
        """
        assert run(body, folder)[0] == ""
    finally:
        head.terminate()
        head.wait()


@pytest.mark.long  # starts a Ray of its own
def test_workers_import_what_the_program_does(folder, tmp_path):
    """They do not import the fastgc in the working directory, such as a checkout."""
    (tmp_path / "fastgc").mkdir()
    (tmp_path / "fastgc" / "__init__.py").write_text("raise ImportError('of the current folder')")
    assert run("step()", folder, tmp_path)[0] == ""
