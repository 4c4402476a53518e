"""The chaos command, for a few seconds. For longer: ``python -m tests.chaos``."""

import importlib.util
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# One after the other, as each counts what it leaves behind.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("chaos")]

spec = importlib.util.spec_from_file_location("chaos", Path(__file__).with_name("chaos.py"))
chaos = importlib.util.module_from_spec(spec)
spec.loader.exec_module(chaos)


def counts_of(output):
    """Return the counts; Ray's own notices may stand between the lines."""
    return {what: int(count) for count, what in re.findall(r"^ *(\d+)  (.*)$", output, re.M)}


def test_processes(capsys):
    status = chaos.main(["--seconds", "5", "--each", "2", "--seed", "1"])
    counts = counts_of(capsys.readouterr().out)
    assert status == 0, counts
    assert min(counts[what] for what in ("rounds", "run again", "killed", "stopped")) > 0


def test_it_sees_wrong_gradients(capsys, monkeypatch):
    """Messages are corrupted, and no round verifies them."""
    corrupting = chaos.corrupting
    monkeypatch.setattr(chaos, "corrupting", lambda *args: (corrupting(*args[:-1], 0.5), {})[1])
    for seed in range(100):  # a cluster may have nothing to verify, or no time for a round
        status = chaos.main(["--seconds", "1", "--each", "1", "--seed", str(seed)])
        counts = counts_of(capsys.readouterr().out)
        if status:
            break
    assert counts["WRONG: accused"] > 0


def test_it_sees_what_is_left(capsys, monkeypatch):
    left = []

    def leave(*_):
        os.close(chaos.tempfile.mkstemp()[0])
        left.append(chaos.LocalCluster(chaos.fastgc.Uncoded(1), [0], chaos.np.multiply, 1))

    monkeypatch.setattr(chaos, "episode", leave)
    assert chaos.main(["--seconds", "0.1"]) == 1
    counts = counts_of(capsys.readouterr().out)
    for cluster in left:
        cluster.close()
    assert min(count for what, count in counts.items() if "LEAKED" in what) > 0


def test_files_that_are_left():
    """A file of /dev/shm that a process below us mapped counts once no process maps it."""
    program = """if True:
        import mmap, sys
        with open(sys.argv[1], "r+b") as file:
            memory = mmap.mmap(file.fileno(), 4096)
        print(flush=True)
        input()
    """
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.truncate(4096)
        command = [sys.executable, "-c", program, file.name]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            files = chaos.mapped(chaos.descendants())
            assert file.name in files
            assert not chaos.abandoned(files)  # in use
            process.communicate(b"\n")
        assert chaos.abandoned(files) == {file.name}
    assert not chaos.abandoned(files)  # deleted


def test_connections_of_ray_are_not_counted():
    """A TCP socket and an epoll are Ray's own; Unix sockets that are left count."""
    for opened, with_ray, with_processes in [
        (lambda: [socket.create_server(("127.0.0.1", 0))], 0, 1),
        (lambda: [select.epoll()], 0, 1),
        (socket.socketpair, 2, 2),
    ]:
        before = chaos.resources("ray")[0], chaos.resources()[0]
        files = opened()
        after = chaos.resources("ray")[0], chaos.resources()[0]
        for file in files:
            file.close()
        assert (after[0] - before[0], after[1] - before[1]) == (with_ray, with_processes)


def test_actors(capfd):
    pytest.importorskip("ray")
    status = chaos.main(["--engine", "ray", "--seconds", "15", "--each", "15", "--seed", "3"])
    counts = counts_of(capfd.readouterr().out)
    assert status == 0, counts
    assert min(counts[what] for what in ("rounds", "run again", "killed", "stopped")) > 0
