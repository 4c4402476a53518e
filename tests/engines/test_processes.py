"""Processes of workers and their server: killed or interrupted, they leave nothing behind."""

import os
import signal
import subprocess
import textwrap
import time

import numpy as np
import programs
import pytest
import worker_processes
from remote import Remote
from strength import much
from worker_processes import children, is_stopped, pids, runs, status, wait_for_ends

from fastgc import ReedSolomon, Uncoded
from fastgc.engines import LocalCluster, processes
from fastgc.errors import NotDecodableError


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    wait_for_ends(*pids())


def until_it_is_back(cluster, worker, out):
    """Kill a worker, and step until it is back; return the deaths until then."""
    workers = len(cluster.transport.pids())
    report = cluster.step(np.ones(out.size), out)
    deaths = report.deaths
    os.kill(cluster.transport.pids()[worker], signal.SIGKILL)
    until = time.monotonic() + 60.0
    while report.deaths == deaths or report.lost:
        report = cluster.step(np.ones(out.size), out)
        np.testing.assert_allclose(out, float(workers))
        assert time.monotonic() < until
        time.sleep(0.001)
    return report.deaths


# --------------------------------------------------------------------- the server fails


@pytest.mark.few(2)
@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_the_server_may_die_around_a_restart(moment):
    """The next server takes its place, and no round fails."""
    code, out = ReedSolomon(4, stragglers=1), np.empty(2)
    with LocalCluster(code, [1.0] * 4, np.multiply, 2) as cluster:
        transport, launch, servers = cluster.transport, cluster.transport._launch, set()

        def launch_and_kill(worker):
            if moment == "between":
                end_once()
            launch(worker)
            if moment == "after":
                end_once()

        def end_once():
            if len(servers) < turn:
                servers.add(worker_processes.server())
                worker_processes.end()

        transport._launch = launch_and_kill
        for turn in much((1, 2), (1,)):
            if moment == "before":
                end_once()
            until_it_is_back(cluster, turn, out)
            assert len(servers) == turn
        workers = transport.pids().values()
    wait_for_ends(*workers)


def test_a_server_that_hangs_is_left_for_another(monkeypatch):
    monkeypatch.setattr(processes, "TO_FORK", 1.0)
    code, out = ReedSolomon(4, stragglers=1), np.empty(2)
    with LocalCluster(code, [1.0] * 4, np.multiply, 2) as cluster:
        hung = worker_processes.server()
        os.kill(hung, signal.SIGSTOP)
        until_it_is_back(cluster, 1, out)
        assert not runs(hung)
        assert worker_processes.server() != hung


def test_a_server_that_dies_while_it_forks(monkeypatch):
    """Others are tried, and not for ever; a round goes on without the worker meanwhile."""
    connect, died = processes._Server.connect_to_new_process, []

    def dies(server, files):
        if len(died) < count:
            died.append(server)
            os.kill(worker_processes.server(), signal.SIGSTOP)
            found = connect(server, files)
            os.kill(worker_processes.server(), signal.SIGKILL)
            return found
        return connect(server, files)

    count, code, out = 0, ReedSolomon(4, stragglers=1), np.empty(2)
    monkeypatch.setattr(processes._Server, "connect_to_new_process", dies)
    with LocalCluster(code, [1.0] * 4, np.multiply, 2) as cluster:
        before = len(os.listdir("/proc/self/fd"))
        count = 2
        deaths = until_it_is_back(cluster, 1, out)
        assert (len(died), deaths) == (2, 1)
        count = 5  # one start fails, and the next does not
        deaths = until_it_is_back(cluster, 2, out)
        assert (len(died), deaths) == (5, 3)
        assert len(os.listdir("/proc/self/fd")) == before
    count = 8
    with pytest.raises(OSError, match="3 processes that workers are forked from ended"):
        LocalCluster(code, [1.0] * 4, np.multiply, 2)


def test_a_cluster_opens_though_the_server_died_or_hangs(monkeypatch):
    monkeypatch.setattr(processes, "TO_FORK", 1.0)
    out = np.empty(2)
    for number in (signal.SIGKILL, signal.SIGSTOP):
        with LocalCluster(Uncoded(2), [1.0] * 2, np.multiply, 2) as cluster:
            cluster.step(np.ones(2), out)
        os.kill(worker_processes.server(), number)
        with LocalCluster(Uncoded(2), [1.0] * 2, np.multiply, 2) as cluster:
            cluster.step(np.ones(2), out)
            np.testing.assert_array_equal(out, 2.0)


def test_clusters_share_a_server_and_not_its_end():
    out = np.empty(2)
    with LocalCluster(Uncoded(2), [1.0] * 2, np.multiply, 2) as one:
        first = worker_processes.server()
        with LocalCluster(ReedSolomon(3, stragglers=1), [1.0] * 3, np.multiply, 2) as two:
            assert worker_processes.server() == first
            worker_processes.end()
            until_it_is_back(two, 0, out)
            one.step(np.ones(2), out)
            np.testing.assert_array_equal(out, 2.0)
        both = one.transport.pids()
    wait_for_ends(*both.values())


def test_a_server_imports_the_package_of_its_program(tmp_path, monkeypatch):
    """A folder that the program put first has another one."""
    (tmp_path / "fastgc").mkdir()
    (tmp_path / "fastgc" / "__init__.py").write_text("raise RuntimeError('another')")
    worker_processes.end()
    monkeypatch.syspath_prepend(tmp_path)
    out = np.empty(2)
    with LocalCluster(Uncoded(2), [1.0] * 2, np.multiply, 2) as cluster:
        cluster.step(np.ones(2), out)
    np.testing.assert_array_equal(out, 2.0)


def test_the_server_of_multiprocessing_is_the_programs(tmp_path):
    """Its processes have the program's environment and threads, also beside a cluster."""
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
        import multiprocessing, os
        import numpy as np
        from fastgc import Uncoded
        from fastgc.engines import LocalCluster

        def threads(pipe):
            pipe.send(os.environ.get("OMP_NUM_THREADS"))

        if __name__ == "__main__":
            out = np.empty(1)
            with LocalCluster(Uncoded(2), [1.0] * 2, np.multiply, 1) as cluster:
                ours, theirs = multiprocessing.Pipe()
                process = multiprocessing.get_context("forkserver").Process(
                    target=threads, args=(theirs,)
                )
                process.start()
                print(ours.recv())
                process.join()
                cluster.step(np.ones(1), out)
            print(out[0])
        """)
    )
    free = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"])
    found = programs.run(programs.python(tmp_path / "program.py"), env=free)
    assert found.stdout == "None\n2.0\n", found.stderr


# ---------------------------------------------------------------- what workers may do


def test_a_death_is_noticed_though_the_worker_had_forked():
    """The worker's child lives on, and holds everything that it had open."""
    fork = Remote(
        "lambda theta, shard, out, os=__import__('os'): (out.fill(shard * theta[0]), "
        "shard == 2.0 and (os.fork() or (__import__('time').sleep(600), os._exit(0))))"
    )
    code, out = Uncoded(2), np.empty(2)
    with LocalCluster(code, [1.0, 2.0], fork, 2, patience=0, timeout=60.0) as cluster:
        cluster.step(np.ones(2), out)
        forked = cluster.transport.pids()[1]
        [child] = children(forked)
        os.kill(forked, signal.SIGKILL)
        with pytest.raises(NotDecodableError, match=r"workers \[1\] have died"):
            cluster.step(np.ones(2), out)
    os.kill(child, signal.SIGKILL)


def test_gradients_may_use_multiprocessing():
    """For example, for data loaders: workers are no daemons."""
    pool = Remote(
        "lambda theta, shard, out: "
        "out.fill(sum(__import__('multiprocessing').get_context('fork').Pool(2)"
        ".map(abs, [-shard, 1.0])))"
    )
    out = np.empty(1)
    with LocalCluster(Uncoded(2), [1.0, 2.0], pool, 1) as cluster:
        cluster.step(np.ones(1), out)
        np.testing.assert_array_equal(out, 5.0)


# ------------------------------------------------------------------ the master fails

PROGRAM = """
    import ctypes, os, signal, sys, time
    import numpy as np
    from fastgc import Uncoded
    from fastgc.engines import LocalCluster, local

    local.GRACE = 600.0

    def hang(theta, shard, out):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if shard == 0:
            time.sleep(600)
        if shard == 1:
            ctypes.PyDLL(None).sleep(600)  # and nobody else has the interpreter
        if shard == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            pass

    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)
        cluster = LocalCluster(Uncoded(4), [0, 1, 2, 3], hang, 1)
        print(*cluster.transport.pids().values(), flush=True)
        cluster.step(np.ones(1), np.empty(1))
"""


@pytest.fixture
def program(tmp_path):
    """Start a program whose workers hang; yield it and their processes."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "tmp").mkdir()
    started = []

    def start():
        process = programs.start(
            programs.python(script),
            env={"TMPDIR": str(tmp_path / "tmp")},
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        workers = list(map(int, process.stdout.readline().split()))
        while not is_stopped(workers[2]):
            time.sleep(0.005)
        time.sleep(0.1)  # by then the others hang, too
        return process, workers

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
    # The standard library's folder of the server's socket stays if the program is killed.
    for folder in (tmp_path / "tmp").iterdir():
        assert folder.name.startswith("pymp-")


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_hung_workers_end_with_their_master(program, number):
    """They end whatever their gradient does, as does the process that they were forked from."""
    process, workers = program()
    _, server = status(workers[0])
    assert children(server) == sorted(workers)
    process.send_signal(number)
    process.wait()
    wait_for_ends(*workers, server)


def test_interrupts_while_it_closes_leave_nothing(program):
    """The second interrupt makes it hurry: it does not grant workers their time to end."""
    process, workers = program()
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert process.returncode in (1, -signal.SIGINT)
    wait_for_ends(*workers)


STARTING = """
    import contextlib, glob, os, signal, sys, time
    import numpy as np
    from fastgc import Uncoded
    from fastgc.engines import LocalCluster, processes

    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)
        seconds = float(sys.argv[1])
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            while True:
                with LocalCluster(Uncoded(6), [1.0] * 6, np.multiply, 1) as cluster:
                    pass
        except KeyboardInterrupt:
            pass
        out = np.empty(1)
        with LocalCluster(Uncoded(2), [1.0] * 2, np.multiply, 1) as cluster:
            cluster.step(np.ones(1), out)
        left, server = True, processes._servers[-1]._forkserver_pid
        while left:  # they end a moment later
            left = False
            for stat in glob.glob("/proc/[0-9]*/stat"):
                with contextlib.suppress(OSError), open(stat) as file:
                    left |= int(file.read().rpartition(")")[2].split()[1]) == server
        open_files = map(os.path.realpath, glob.glob("/proc/self/fd/*"))
        print(float(out[0]), sum("memfd" in each for each in open_files))
"""


def test_interrupts_while_it_starts_leave_nothing(tmp_path):
    """Interrupts come at any moment; the next cluster opens at once."""
    script = tmp_path / "starting.py"
    script.write_text(textwrap.dedent(STARTING))
    for seconds in much(np.linspace(0.005, 1.0, 60), [0.1, 0.35]):
        found = programs.run(programs.python(script, seconds))
        assert found.stdout.split() == ["2.0", "0"], found
