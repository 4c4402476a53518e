"""The engine for torchrun, in programs that it runs. No test asserts a time, only that jobs end."""

import re
import textwrap

import programs
import pytest

torch = pytest.importorskip("torch")

INSTALLED = {"PYTHONSAFEPATH": "1"}  # ranks import the installed fastgc

PROGRAM = """
import os, signal, socket, sys, time
import numpy as np
import fastgc
from fastgc import BinaryCode, Uncoded
from fastgc.testing import engines as conformance
from fastgc.engines.torch import TorchCluster

RANK = int(os.environ["RANK"])

def fragile(theta, shard, out):
    if shard < 0:
        raise ArithmeticError(f"no gradient of {shard}")
    out[:] = shard * theta

def sum_of(theta, shard, out):
    out[:] = shard * theta

def killed_twice(theta, shard, out):
    # as worker 1, from the third round on, and from the ninth on once more
    if open("/proc/self/comm").read() == "fastgc-1\\n":
        deaths = open(sys.argv[1]).read()
        if theta[0] >= 3.0 and not deaths or theta[0] >= 9.0 and deaths == ".":
            open(sys.argv[1], "a").write(".")
            os.kill(os.getpid(), signal.SIGKILL)
    out[:] = shard * theta

LIES = [  # kind, round, message, what is behind it
    (0, 0, 99, np.zeros(2)), (0, 0, -1, np.zeros(2)), (77, 0, 0),
    (4, 0, 0, np.zeros(1 << 20, np.uint8)), (0, 0, 0, np.zeros(1)), None,  # it closes its line
]

def close_line():
    for file in range(3, 256):
        try:
            line = socket.socket(fileno=os.dup(file))
            if line.getpeername()[1] != int(os.environ["MASTER_PORT"]):  # the store's
                line.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

def lies(theta, shard, out):
    # as worker 1, once in each of its first lives
    out[:] = shard * theta
    told = open(sys.argv[2]).read()
    if len(told) < len(LIES) and open("/proc/self/comm").read() == "fastgc-1\\n":
        open(sys.argv[2], "a").write(".")
        if LIES[len(told)] is None:
            close_line()
            time.sleep(600)
        frame = sys._getframe()
        while frame.f_code.co_name != "_serve":
            frame = frame.f_back
        wire, lie = frame.f_locals["wire"], LIES[len(told)]
        wire.tell(lie[0], wire.round, *lie[2:])
        time.sleep(600)

def hangs(theta, shard, out):
    if theta[0] >= 2.0 and open("/proc/self/comm").read() == "fastgc-1\\n":
        os.kill(os.getpid(), signal.SIGSTOP)
    out[:] = shard * theta
"""


def launch(tmp_path, ranks, source, *arguments):
    """Run the master's program, with ranks that serve it."""
    path = tmp_path / "program.py"
    master = textwrap.indent(textwrap.dedent(source), "    ")
    path.write_text(f"{PROGRAM}if not TorchCluster.serve():\n{master}")
    return run(ranks, str(path), *arguments)


def run(ranks, *command):
    return programs.run(
        programs.torchrun(ranks, *command),
        status=None,
        env={"PYTHONSAFEPATH": "1"},
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """One job for several tests, each of which reads a part of its output: ranks start slowly."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "deaths").write_text("")
    (folder / "lies").write_text("")
    return launch(
        folder,
        5,
        """
        def deaths():
            code, out = BinaryCode(4, stragglers=1), np.empty(2)
            with TorchCluster(code, [1.0, 2.0, 3.0, 4.0], killed_twice, 2) as cluster:
                assert cluster.hosts == [""] * 4  # all on the machine of the master
                cluster.transport._hosts[1:3] = ["node1"] * 2
                assert cluster.hosts == ["", "node1", "node1", ""]
                for round in range(1, 1000):
                    report = cluster.step(np.full(2, float(round)), out)
                    assert (out == 10.0 * round).all()
                    if round > 12 and report.deaths == 2 and not report.lost:
                        break
                    time.sleep(0.02)
            print("deaths:", report.deaths, report.lost, flush=True)

        def lying():
            from fastgc.engines import torch as engine
            address = "127.0.0.1", engine._the_job().listener.getsockname()[1]
            silent, gone, stranger = (socket.create_connection(address) for _ in range(3))
            gone.close()
            stranger.sendall(bytes(engine._HELLO.size))  # without the job's secret
            code, out = BinaryCode(4, stragglers=1), np.empty(2)
            with TorchCluster(code, [1.0, 2.0, 3.0, 4.0], lies, 2) as cluster:
                for round in range(1, 2000):
                    report = cluster.step(np.full(2, float(round)), out)
                    assert (out == 10.0 * round).all()
                    if report.deaths == len(LIES) and not report.lost:
                        break
                    time.sleep(0.02)
            print("expelled:", report.deaths, report.lost, not engine._peeked(stranger), flush=True)

        def hanging():
            code, out = BinaryCode(4, stragglers=1), np.empty(2)
            with TorchCluster(code, [1.0, 2.0, 3.0, 4.0], hangs, 2) as cluster:
                for round in range(1, 30):
                    time.sleep(0.02)
                    cluster.step(np.full(2, float(round)), out)
                    assert (out == 10.0 * round).all()
            print("done", flush=True)

        for check in conformance.CHECKS:
            check(TorchCluster)
            print("check:", check.__name__, flush=True)
        deaths()
        lying()
        hanging()
        """,
        str(folder / "deaths"),
        str(folder / "lies"),
    )


def test_conformance(job):
    from fastgc.testing import engines as conformance

    checks = re.findall("^check: (.*)$", job.stdout, re.M)
    assert checks == [check.__name__ for check in conformance.CHECKS], job.stderr


def test_workers_that_are_killed_are_stragglers_and_come_back(job):
    assert "\ndeaths: 2 ()\n" in job.stdout, job.stderr


def test_workers_that_send_what_no_worker_sends_are_ended_and_come_back(job):
    assert "\nexpelled: 6 () True\n" in job.stdout, job.stderr


def test_workers_that_hang_are_stragglers_and_are_ended_in_the_end(job):
    assert job.stdout.endswith("\ndone\n"), job.stderr
    assert job.returncode == 0, job.stderr
    assert "ranks 2 hang" in job.stderr


def test_errors_of_gradients_and_of_the_master_end_the_job(tmp_path):
    """Arguments that do not fit raise before."""
    job = launch(
        tmp_path,
        3,
        """
        try:
            TorchCluster(Uncoded(3), [1.0] * 3, sum_of, 1)
        except ValueError as error:
            print("told:", error, flush=True)
        a = TorchCluster(Uncoded(2), [1.0] * 2, sum_of, 1)
        try:
            TorchCluster(Uncoded(2), [1.0] * 2, sum_of, 1)
        except RuntimeError as error:
            print("told:", error, flush=True)
        a.close()
        try:
            with TorchCluster(Uncoded(2), [1.0, -1.0], fragile, 1) as cluster:
                cluster.step(np.ones(1), np.empty(1))
        except fastgc.WorkerFailedError as error:
            print(error.worker, "no gradient of -1.0" in str(error), flush=True)
        with TorchCluster(Uncoded(2), [1.0, 2.0], sum_of, 1) as cluster:
            cluster.step(np.ones(1), np.empty(1))
            raise RuntimeError("the master ends here")
        """,
    )
    few, open_, failed = job.stdout.splitlines()
    assert re.match("told: .*needs 4 ranks", few)
    assert re.match("told: .*is open: close it", open_)
    assert failed == "1 True"
    assert job.returncode != 0
    assert "the master ends here" in job.stderr


def test_outside_of_torchrun():
    from fastgc.engines.torch import TorchCluster

    with pytest.raises(RuntimeError, match="torchrun --nproc-per-node"):
        TorchCluster.serve()


def test_training_from_the_command_line():
    """Each rank except the master is a worker."""
    job = run(3, "-m", "fastgc", "train", "-s", "1", "--engine", "torch", "--rounds", "4")
    assert job.returncode == 0, job.stderr
    assert job.stdout.count("4/4") + job.stderr.count("4/4") == 1
