"""A suite that is ended leaves no process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import leftovers
import pytest

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux' /proc"),
]

CONFTEST = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("leftovers", {leftovers.__file__!r})
leftovers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(leftovers)

def pytest_configure(config):
    leftovers.begin()
    if config.pluginmanager.hasplugin("xdist"):
        from xdist.workermanage import NodeManager
        NodeManager.EXIT_TIMEOUT = 0.5  # seconds in which its workers may end by themselves
"""

# A process that would live on by itself, like ranks, and one that it starts.
SUITE = """
import os, subprocess, sys, time

INNER = "import time; time.sleep(600)"
OUTER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {INNER!r}])"

def test_that_takes_long(tmp_path):
    subprocess.Popen([sys.executable, "-c", OUTER], start_new_session=True)
    open("started", "w").close()
    time.sleep(600)
"""


def wait_for(condition):
    """Return when a condition holds; the suite has its own time limit."""
    while not condition():
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("options", "signal_"),
    [
        (["-n", "2"], signal.SIGKILL),
        (["-p", "no:xdist"], signal.SIGTERM),
        pytest.param(["-n", "2"], signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(["-p", "no:xdist"], signal.SIGKILL, marks=pytest.mark.long),
    ],
    ids=["two, killed", "one, ended", "two, ended", "one, killed"],
)
def test_nothing_is_left_of_a_suite_that_is_ended(tmp_path, options, signal_):
    if "-n" in options:
        pytest.importorskip("xdist")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    around = {
        name: value
        for name, value in os.environ.items()
        if name != leftovers.NAME and not name.startswith("PYTEST")
    }
    # This test's own mark, put in front of the inner suite's.
    around["FASTGC_TEST_LEFTOVERS"] = mine = f"{os.getpid()}-{tmp_path.name}"
    command = [sys.executable, "-m", "pytest", "-q", *options, "test_it.py"]
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    suite = subprocess.Popen(command, cwd=tmp_path, env=around, start_new_session=True, **quiet)

    def of_the_suite():
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"FASTGC_TEST_LEFTOVERS={mine}".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    try:
        wait_for(lambda: (tmp_path / "started").exists() or suite.poll() is not None)
        assert suite.poll() is None
        wait_for(lambda: len(of_the_suite()) >= (6 if "-n" in options else 4))
        suite.send_signal(signal_)
        assert suite.wait() != 0
        wait_for(lambda: not of_the_suite())  # the watching process ends, too
    finally:
        for each in of_the_suite():
            os.kill(each, signal.SIGKILL)
        suite.wait()


def test_a_suite_within_a_suite_is_watched_over_once(monkeypatch):
    monkeypatch.setenv(leftovers.NAME, "a word")
    leftovers.begin()  # starts nothing, and keeps the signal's handler
    assert os.environ[leftovers.NAME] == "a word"
