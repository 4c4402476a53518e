"""The adversary runs for a while: with --long, a minute on the local engine, less on others.

For longer, and on any version: ``python tests/adversary.py --seconds 600``.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import adversary
import numpy as np
import pytest
from strength import much

from fastgc.engines import SimulatedCluster

SECONDS = float(os.environ.get("ADVERSARY_SECONDS", 60))
PROGRAM = adversary.__file__
BESIDE = Path(sys.executable).with_name("mpiexec")
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")


def run(*arguments, before=()):
    """Run the program, which must find nothing."""
    command = [*before, sys.executable, "-P", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def machine(cluster):
    """Play sequences of rounds on another engine, in this process."""

    class Machine(adversary.Rounds):
        engine = staticmethod(cluster)

    return Machine


def test_it_stands_alone():
    assert "--seconds" in run("--help")


@pytest.mark.long
@pytest.mark.xdist_group("adversary")
def test_local_workers():
    assert "operations" in run("--seconds", SECONDS, "--examples", 4, "--seed", time.time_ns())


def test_simulated_workers():
    adversary.draw(machine(SimulatedCluster), 0, much(200, 10))


def test_it_sees_wrong_sums():
    class Wrong(SimulatedCluster):
        def step(self, theta, out):
            report = super().step(theta, out)
            out *= 1 + 1e-6
            return report

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        adversary.draw(machine(Wrong), 0, 300)


def test_it_sees_rounds_that_are_gone():
    class Forgetful(SimulatedCluster):
        def collect(self, theta, rnd, workers=None):
            report = super().collect(theta, rnd, workers)
            self.messages = [np.asarray(row) for row in rnd._rows.arrays]
            return report

        def close(self):
            super().close()
            for message in getattr(self, "messages", ()):
                message[:] = 7

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        adversary.draw(machine(Forgetful), 0, 1000, steps=30)


def test_system_calls_fail_when_they_are_told_to(tmp_path):
    made = adversary.build_shim(tmp_path)
    if made is None:
        pytest.skip("no compiler")
    source = (
        "import errno, os, sys; sys.path.insert(0, sys.argv[1]); import adversary\n"
        "os.environ[adversary.MARK] = 'x'\n"
        "adversary.find_shim()\n"
        "for call, use in [('memfd_create', lambda: os.memfd_create('x')), ('pipe2', os.pipe),\n"
        "                  ('ftruncate', lambda: os.ftruncate(3, 1)), ('fork', os.fork),\n"
        "                  ('fsync', lambda: os.fsync(1)), ('write', lambda: os.write(1, b''))]:\n"
        "    with adversary.failing_call(call, 0, errno.ENOSPC):\n"
        "        try:\n"
        "            use()\n"
        "        except OSError as error:\n"
        "            print(call, error.errno == errno.ENOSPC)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", source, str(Path(PROGRAM).parent)],
        env=os.environ | {"LD_PRELOAD": made},
        capture_output=True,
        text=True,
        check=False,
    )
    calls = ("memfd_create", "pipe2", "ftruncate", "fork", "fsync", "write")
    assert done.stdout.split("\n")[:-1] == [f"{call} True" for call in calls], done.stderr


@pytest.mark.long
def test_actors():
    pytest.importorskip("ray")
    assert "operations" in run("--engine", "ray", "--seconds", SECONDS / 2, "--examples", 4)


WITH_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")


@pytest.mark.long
@pytest.mark.xdist_group("adversary")
@WITH_TORCH
def test_groups_of_ranks():
    done = run("--engine", "ranks", "--seconds", SECONDS, "--seed", time.time_ns() // 10**9)
    assert "groups of ranks" in done


@WITH_TORCH
def test_a_group_of_ranks(tmp_path):
    """A sequence in which a rank is killed and starts again, and little else happens."""

    def is_short(group):
        killed = [act.again in ("at once", "late") for act in group.acts if act.kind == "kill"]
        others = [act.kind in ("stop", "break") for act in group.acts if act.kind != "kill"]
        return killed and all(killed + others) and not (any(group.delays) or group.last)

    groups = (adversary.Group(number, tmp_path) for number in range(10_000))
    group = next(group for group in groups if len(group.acts) < 3 and is_short(group))
    assert "1  groups" in run("--engine", "ranks", "--seconds", 0, "--seed", group.number)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["6.0 1 1 0 begins", "7.0 1 1 0 joined"], "progress was lost"),
        (["6.0 0 0 2 left out"], "it was left out"),
        (["6.0 0 0 2 step"], "after 2"),
        (["60.0 0 0 3 step"], "for nobody's sake"),
        ([], "rank 1, life 0: 'TimeoutError'"),
    ],
)
def test_it_sees_what_groups_must_not_do(wrong, says, tmp_path):
    """Two ranks have done two steps each, and one was killed."""
    group = adversary.Group(0, tmp_path)
    group.last, group.events, group.killed = None, [(5.0, 1, "kill")], {(1, 0)}
    group.ended = {(0, 0): f"done {group.end[0]}", (1, 0): "" if wrong else "TimeoutError"}
    rank = "1.0 {0} 0 0 begins\n2.0 {0} 0 0 began\n3.0 {0} 0 1 step\n4.0 {0} 0 2 step\n"
    log = tmp_path / "log"
    log.write_text(rank.format(0) + rank.format(1))
    group.judge()
    log.write_text(log.read_text() + "".join(f"{line}\n" for line in wrong))
    if not wrong:
        group.killed.clear()
    with pytest.raises(AssertionError, match=says):
        group.judge()


@pytest.mark.long
@pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="there is no MPI"
)
def test_ranks():
    ranks = [MPIEXEC, "-n", str(adversary.WORKERS + 1)]
    done = run("--engine", "mpi", "--seconds", SECONDS / 3, "--examples", 8, before=ranks)
    assert "operations" in done
