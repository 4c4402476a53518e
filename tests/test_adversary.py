"""The adversary runs for a while: with --long, a minute on the local engine, less on others.

For longer, and on any version: ``python tests/adversary.py --seconds 600``.
"""

import os
import time
from pathlib import Path

import adversary
import programs
import pytest
from strength import much

from fastgc.engines import SimulatedCluster

SECONDS = float(os.environ.get("ADVERSARY_SECONDS", 60))
PROGRAM = adversary.__file__


def run(*arguments):
    """Run the program, which must find nothing."""
    return programs.run(programs.python(PROGRAM, *arguments), seconds=10 * SECONDS).stdout


def machine(cluster):
    """Play sequences of rounds on another engine, in this process."""

    class Machine(adversary.Rounds):
        engine = staticmethod(cluster)

    return Machine


def test_it_stands_alone():
    assert "--seconds" in run("--help")


@pytest.mark.long
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
            self.messages, receive = [], rnd.receive

            def kept(worker, message, *given, **options):
                self.messages.append(message)
                return receive(worker, message, *given, **options)

            rnd.receive = kept
            try:
                return super().collect(theta, rnd, workers)
            finally:
                del rnd.receive

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
        "                  ('write', lambda: os.write(1, b''))]:\n"
        "    with adversary.failing_call(call, 0, errno.ENOSPC):\n"
        "        try:\n"
        "            use()\n"
        "        except OSError as error:\n"
        "            print(call, error.errno == errno.ENOSPC)\n"
    )
    folder = Path(PROGRAM).parent
    done = programs.run(programs.python("-c", source, folder), env={"LD_PRELOAD": made})
    calls = ("memfd_create", "pipe2", "ftruncate", "fork", "write")
    assert done.stdout.split("\n")[:-1] == [f"{call} True" for call in calls], done.stderr


@pytest.mark.long
def test_actors():
    pytest.importorskip("ray")
    assert "operations" in run("--engine", "ray", "--seconds", SECONDS / 2, "--examples", 4)


@pytest.mark.long
@programs.needs_mpi
def test_ranks():
    words = ["--engine", "mpi", "--seconds", SECONDS / 3, "--examples", 8]
    command = programs.mpiexec(adversary.WORKERS + 1, PROGRAM, *words)
    assert "operations" in programs.run(command, seconds=SECONDS + 60).stdout
