"""The local engine. No test asserts a time."""

import errno
import gc
import os
import signal
import socket
import sys
import textwrap
from multiprocessing import reduction

import numpy as np
import programs
import pytest
from adversary import liar
from engine_checks import check_lateness, check_leaving_between_messages, check_two_clusters
from remote import Remote
from strength import much
from worker_processes import is_stopped, pids, wait_for_ends

from fastgc import FractionalRepetition, Reactive, ReedSolomon, Uncoded
from fastgc.codes import Share
from fastgc.engines import LocalCluster, local
from fastgc.engines.interface import Kind, Question
from fastgc.errors import WorkerFailedError
from fastgc.testing import engines as conformance


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    wait_for_ends(*pids())


# np.multiply(theta, shard, out) has the signature of a gradient function, and pickles.


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check):
    check(LocalCluster)


def test_late_worker_jumps_to_the_newest_parameters():
    # Either of the two workers can answer alone.
    out = np.empty(3)
    with LocalCluster(ReedSolomon(2, 2, stragglers=1), [1.0, 2.0], np.multiply, 3) as cluster:
        zero, one = *pids(0), *pids(1)
        os.kill(one, signal.SIGSTOP)
        report = cluster.step(np.full(3, 10.0), out)
        assert report.survivors.tolist() == [0]
        np.testing.assert_allclose(out, 30.0)

        os.kill(zero, signal.SIGSTOP)
        os.kill(one, signal.SIGCONT)
        report = cluster.step(np.full(3, 20.0), out)
        assert report.survivors.tolist() == [1]
        assert report.stale in (0, 1)  # whether it began before the new round did
        np.testing.assert_allclose(out, 60.0)

        # Worker 0 has not begun to read the parameters of round 1, so they must stay in place.
        for number in range(2, 6):
            report = cluster.step(np.full(3, float(number)), out)
            assert report.survivors.tolist() == [1]
            assert report.stale == 0
            np.testing.assert_allclose(out, 3.0 * number)

        os.kill(one, signal.SIGSTOP)
        os.kill(zero, signal.SIGCONT)
        report = cluster.step(np.full(3, 7.0), out)
        assert report.survivors.tolist() == [0]
        assert report.stale in (0, 1)  # whether it began before the new round did
        np.testing.assert_allclose(out, 21.0)
        os.kill(one, signal.SIGCONT)


def test_parameters_stay_while_a_gradient_reads_them():
    lie = """
if not theta.any():
    os.kill(os.getpid(), 19)  # SIGSTOP
    assert not theta.any()
"""
    code, out = FractionalRepetition(2, 1, stragglers=1), np.empty(3)
    with LocalCluster(code, [3.0], liar(lie), 3) as cluster:
        zero, one = *pids(0), *pids(1)
        while not is_stopped(one):
            cluster.step(np.zeros(3), out)
        for number in range(1, 5):
            cluster.step(np.full(3, float(number)), out)
        os.kill(zero, signal.SIGSTOP)
        os.kill(one, signal.SIGCONT)
        assert cluster.step(np.full(3, 5.0), out).survivors.tolist() == [1]
        np.testing.assert_array_equal(out, 15.0)
        os.kill(zero, signal.SIGCONT)


def test_a_worker_at_another_round_has_no_answer():
    with LocalCluster(Reactive(2, holders=2), [1.0, 2.0], np.multiply, 1) as cluster:
        cluster.step(np.ones(1), np.empty(1))
        cluster.transport.ask(0, Question(99, 5, Share(1)))
        events = []
        while not events or events[-1].kind != Kind.ANSWER:
            events += cluster.transport.listen(60.0)
        assert (events[-1].index, events[-1].message) == (99, None)
        del events


@pytest.mark.parametrize(
    ("gradient", "match"),
    [
        ("{}['é' * 100_000 + ' the end']", "the end"),  # longer than the space for it
        ("exit(shard[0])", "SystemExit: 3"),
        ("theta.fill(0)", "read-only"),
        ("shard[1].fill(0)", "read-only"),
    ],
)
def test_what_a_gradient_must_not_do(gradient, match):
    fail = Remote(f"lambda theta, shard, out: {gradient}")
    cluster = LocalCluster(Uncoded(1, 1), [(3, np.ones(2))], fail, 1)
    with pytest.raises(WorkerFailedError, match=match):
        cluster.step(np.ones(1), np.empty(1))


@pytest.mark.parametrize(
    ("loaded", "match"),
    [
        ((int, ("not a number",)), "(?s)worker 1 failed while it started.*not a number"),
        ((os._exit, (3,)), "worker 1 died while it started"),
    ],
)
def test_shards_that_cannot_be_loaded(loaded, match):
    class Shard:
        def __reduce__(self):
            return loaded

    with pytest.raises(WorkerFailedError, match=match) as caught:
        LocalCluster(Uncoded(2, 2), [1.0, Shard()], np.multiply, 1)
    assert caught.value.worker == 1


def test_a_worker_that_stops_while_it_starts_is_named(monkeypatch):
    monkeypatch.setattr(local, "GRACE", 0.05)
    stops = Remote("__import__('os').kill(__import__('os').getpid(), 19)")
    with pytest.raises(TimeoutError, match=r"^workers 1 have not started within 0.5 s, "):
        LocalCluster(Uncoded(2), [1.0, stops], np.multiply, 1, start_timeout=0.5)


def test_close_ends_a_worker_that_will_not_end(monkeypatch):
    monkeypatch.setattr(local, "GRACE", 0.2)
    stubborn = Remote(
        "lambda theta, shard, out, signal=__import__('signal'), time=__import__('time'): "
        "[signal.signal(signal.SIGTERM, signal.SIG_IGN), time.sleep(600)] if shard else out.fill(0)"
    )
    cluster = LocalCluster(Uncoded(2, 2), [0, 1], stubborn, 1, timeout=0.3)
    with pytest.raises(TimeoutError):
        cluster.step(np.ones(1), np.empty(1))
    wait_for_ends(*pids())


def test_workers_have_the_environment_and_one_thread_each(monkeypatch):
    """And what a server needs to start is left in neither."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    found = Remote(
        "lambda theta, shard, out, names=__import__('os').environ: out.__setitem__(slice(None), ["
        "names['OMP_NUM_THREADS'], __import__('fastgc').kernels.threads.get_num_threads(), "
        "'PYTHONPATH' in names, 'PYTHONSAFEPATH' in names])"
    )
    before = dict(os.environ)
    with LocalCluster(Uncoded(2), [0, 0], found, 4) as cluster:
        cluster.step(np.ones(4), out := np.empty(4))
    assert out.tolist() == [2.0, 2.0, 0.0, 0.0]
    assert dict(os.environ) == before


def test_two_clusters_at_once():
    check_two_clusters(LocalCluster)


@pytest.mark.parametrize("dies", [False, True])
def test_workers_import_what_the_master_does(dies, tmp_path):
    """A folder named fastgc in the working directory, such as a checkout, changes nothing.

    Nor if the server dies after it was asked for: the standard library would start it again.
    """
    (tmp_path / "fastgc").mkdir()
    (tmp_path / "fastgc" / "__init__.py").write_text("raise ImportError('not this one')")
    source = """
        import os, sys
        import numpy as np
        from fastgc import Uncoded
        from fastgc.engines import LocalCluster, processes
        sys.path.insert(0, os.getcwd())  # after all that it imports
        running, struck = processes._running, [not DIES]

        def strike(*given):
            server = running(*given)
            if not all(struck):
                os.kill(pid := server._forkserver_pid, 9)
                struck[0] = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return server

        processes._running = strike
        if __name__ == "__main__":
            with LocalCluster(Uncoded(2), [1.0, 2.0], np.multiply, 1) as cluster:
                cluster.step(np.ones(1), out := np.empty(1))
                print(out)
    """
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "elsewhere" / "program.py"
    script.write_text(textwrap.dedent(source).replace("DIES", str(dies)))
    result = programs.run([sys.executable, script], folder=tmp_path)
    assert (result.stdout, result.stderr) == ("[3.]\n", "")


def test_forgotten_cluster_is_closed():
    cluster = LocalCluster(Uncoded(1, 1), [1.0], np.multiply, 1)
    cluster.step(np.ones(1), np.empty(1))
    del cluster
    gc.collect()
    wait_for_ends(*pids())


SCRIPT = """
    import signal
    import sys
    import numpy as np
    from fastgc import ReedSolomon
    from fastgc.engines import LocalCluster

    class Delays:
        def sample(self, round, workers, seed):
            return np.array([0.0, 0.0, 600.0, 0.0])

    if __name__ == "__main__":
        # a shell's background jobs, and what they start, have it ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code, out = ReedSolomon(4, stragglers=1), np.empty(5)
        cluster = LocalCluster(code, [1.0] * 4, np.multiply, 5, delays=Delays())
        cluster.step(np.ones(5), out)
        with open("/proc/self/maps") as maps:
            assert "/dev/shm/" not in maps.read()  # what the cluster shares has no name
        print("running", flush=True)
        while sys.argv[1:] == ["on"]:
            cluster.step(np.ones(5), out)
"""


@pytest.fixture
def program(tmp_path):
    """Start a program that uses a cluster; its child processes share its standard error.

    So ``communicate`` returns when the last of them has ended: master, worker or helper.
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(SCRIPT))
    started = []

    def start(*arguments):
        process = programs.start([sys.executable, script, *arguments], start_new_session=True)
        started.append(process)
        assert process.stdout.readline() == "running\n", process.communicate()[1]
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_program_that_forgets_to_close(program):
    process = program()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors == ""


def test_interrupt_leaves_nothing(program):
    process = program("on")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert errors.endswith("KeyboardInterrupt\n")


def test_a_late_worker_leaves_a_round_between_two_messages():
    # The worker was handed only the first two rounds. It sees that neither is the newest.
    check_leaving_between_messages(LocalCluster, lambda _: (*pids(0), *pids(1)), stale=0)


def test_a_worker_is_late_once_or_with_each_message():
    check_lateness(LocalCluster)


@pytest.mark.parametrize("timeout", [float("inf"), 1e12])
def test_a_timeout_beyond_all_bounds(timeout):
    out = np.empty(1)
    with LocalCluster(Uncoded(1), [1.0], np.multiply, 1, timeout=timeout) as cluster:
        cluster.step(np.ones(1), out)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (os, "memfd_create"),
        (os, "ftruncate"),
        (os, "pipe"),
        (socket, "socketpair"),
        (reduction, "sendfds"),
    ],
)
def test_a_start_that_the_system_refuses_leaves_nothing(module, name, monkeypatch):
    """Whichever call fails, its own error is raised, and no file stays open."""
    usual, errors = getattr(module, name, None), set()
    if usual is None:
        pytest.skip(f"this system has no {name}")

    def open_files():
        gc.collect()  # an error may hold references to files
        return len(os.listdir("/proc/self/fd"))

    with LocalCluster(Uncoded(2), [1.0, 2.0], np.multiply, 2):
        pass  # opens what stays open for the program's life
    for number in much(range(50), range(0, 50, 13)):
        calls = iter(range(50))

        def refuse(*given, calls=calls, number=number):
            if next(calls) == number:
                raise OSError(errno.ENOSPC, "refused")
            return usual(*given)

        before = open_files()
        with monkeypatch.context() as patch:
            patch.setattr(module, name, refuse)
            try:
                with LocalCluster(Uncoded(2), [1.0, 2.0], np.multiply, 2):
                    break  # there are no more such calls
            except OSError as error:
                errors.add(error.errno)
        assert open_files() == before
    assert errors == {errno.ENOSPC}


@pytest.mark.skipif(sys.platform != "linux", reason="counts the open files of a process")
@pytest.mark.parametrize("interrupted", range(5))  # the cluster's three, and two of a worker
def test_ctrl_c_while_memory_is_made_leaves_no_file_open(interrupted, monkeypatch):
    made = []

    class Interrupted(local.Memory):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            made.append(self.nbytes)
            if len(made) == interrupted + 1:
                signal.raise_signal(signal.SIGINT)

    def files():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    LocalCluster(Uncoded(1), [1.0], np.multiply, 2).close()  # opens what a program keeps
    before = files()
    monkeypatch.setattr(local, "Memory", Interrupted)
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # not if it is ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            LocalCluster(Uncoded(1), [1.0], np.multiply, 2)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert len(made) > interrupted
    assert files() == before
