"""`python -m fastgc.guard`: a killed script runs again; otherwise it ends as without a guard."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastgc import guard
from fastgc._base import deadline

# The script counts its lives in a file; each life does what its argument says.
SCRIPT = """
import os, pathlib, signal, sys, time
from fastgc.errors import FinishedError, LeftOutError, LostError
lives = pathlib.Path("lives")
life = len(lives.read_text()) if lives.exists() else 0
lives.write_text("." * (life + 1))
what = sys.argv[1:][min(life, len(sys.argv) - 2)]
print(life, what, __name__, pathlib.Path(__file__).name, flush=True)
if what == "late":
    raise LeftOutError("the others went on")
if what == "over":
    raise FinishedError("the run has ended")
if what == "lost":
    raise LostError("nobody is left")
if what == "wait":
    signal.signal(signal.SIGTERM, lambda *_: (lives.write_text("told"), sys.exit(3)))
    pathlib.Path("pid").write_text(str(os.getpid()))
    time.sleep(60)
if what == "error":
    raise ArithmeticError("by zero")
if what.isdigit():
    sys.exit(int(what))
os.kill(os.getpid(), getattr(signal, what))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def start(folder, *arguments, module=False, **told):
    own = ["-m", "script"] if module else ["script.py"]
    options = [word for name, value in told.items() for word in (f"--{name}", str(value))]
    return subprocess.Popen(
        [sys.executable, "-m", "fastgc.guard", *options, *own, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"RANK": "2", "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def run(folder, *arguments, **options):
    guarding = start(folder, *arguments, **options)
    out, errors = guarding.communicate(timeout=60)
    return guarding.returncode, out.splitlines(), errors


@pytest.mark.parametrize("module", [False, True])
def test_a_script_that_is_killed_runs_again(module, folder):
    status, out, errors = run(folder, "SIGKILL", "SIGSEGV", "0", module=module)
    assert status == 0
    assert out == [
        f"{life} {what} __main__ script.py" for life, what in enumerate(("SIGKILL", "SIGSEGV", "0"))
    ]
    assert "fastgc.guard: rank 2 was killed by SIGKILL, and is started again" in errors
    assert "rank 2 was killed by SIGSEGV" in errors


@pytest.mark.parametrize(("what", "expected"), [("0", 0), ("7", 7), ("lost", 1), ("over", 0)])
def test_one_that_ends_by_itself_ends_its_guard(what, expected, folder):
    status, out, errors = run(folder, what)
    assert (status, len(out)) == (expected, 1)
    assert ("fastgc.guard: nobody is left" in errors) == (what == "lost")
    assert ("fastgc.guard: the run has ended" in errors) == (what == "over")


def test_one_that_raised_an_error_runs_again_and_says_it_once(folder):
    status, out, errors = run(folder, "error", "error", "0")
    assert (status, len(out)) == (0, 3)
    assert errors.count("Traceback") == 1
    assert errors.count("rank 2 raised an error, and is started again") == 2
    assert errors.count("the same error again: ArithmeticError: by zero") == 1


@pytest.mark.parametrize(("what", "on"), [("error", "signal"), ("SIGKILL", "error")])
def test_restart_on_says_why_it_runs_again(what, on, folder):
    status, out, errors = run(folder, what, **{"restart-on": on})
    assert (status, len(out)) == (1 if what == "error" else 128 + signal.SIGKILL, 1)
    assert "is started again" not in errors


def test_one_that_was_left_out_runs_again(folder):
    status, out, errors = run(folder, "late", "0")
    assert (status, len(out)) == (0, 2)
    assert "fastgc.guard: the others went on" in errors
    assert "rank 2 was left out, and is started again" in errors


def test_one_that_is_killed_again_and_again_is_given_up(folder):
    status, out, errors = run(folder, "SIGKILL", restarts=1)
    assert (status, len(out)) == (1, 2)
    assert "was killed by SIGKILL, 2 times in a row within a minute: it is not started" in errors


class Lives:
    """Stands for `subprocess.Popen` and the clock: each life has a length and an end."""

    def __init__(self, lives):
        self.lives, self.now, self.begun = iter(lives), 0.0, []
        self.pid = None

    def __call__(self, command, **options):
        self.begun.append(round(self.now, 1))
        return self

    def wait(self):
        seconds, status = next(self.lives)
        self.now += seconds
        return status

    def poll(self):
        return None

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(
    ("lives", "restarts", "begun", "status"),
    [
        # No pause after the first short life, then one that doubles, up to 30 s.
        ([(1, -9)] * 8 + [(1, 0)], 10, [0, 1, 3, 6, 11, 20, 37, 68, 99], 0),
        ([(1, -9)] * 5, 2, [0, 1, 3], 1),
        ([(1, -9)] * 12, None, [0, 1, 3, 6, 11, 20, 37, 68, 99, 130, 161], 1),
        ([(1, -9)], 0, [0], 1),
        # A minute's life begins the count again; a life that was left out counts as well.
        ([(1, -9), (60, -9), (1, -9), (1, 75), (5, 7)], 2, [0, 1, 61, 62, 64], 7),
        ([(59.9, 75), (59.9, 75), (1, 0)], 1, [0, 59.9], 1),
    ],
)
def test_main_pauses_between_short_lives(lives, restarts, begun, status, monkeypatch, capsys):
    lived = Lives(lives)
    monkeypatch.setattr(deadline, "time", lived)
    monkeypatch.setattr(guard.subprocess, "Popen", lived)
    monkeypatch.setattr(guard.signal, "signal", lambda *_: None)
    monkeypatch.delenv("RANK", raising=False)
    options = [] if restarts is None else ["--restarts", str(restarts)]
    monkeypatch.setattr(sys, "argv", ["guard", *options, "-m", "script"])
    with pytest.raises(SystemExit) as ended:
        guard.main()
    assert (lived.begun, ended.value.code) == (begun, status)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(begun) - (status in (0, 7))
    assert all(line.startswith("fastgc.guard: the script was ") for line in said)
    assert (f"{len(said)} times in a row" in said[-1]) == (status == 1)


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_guard_that_is_ended(number, stopped, folder):
    guarding = start(folder, "wait")
    end = time.monotonic() + 60
    while not (folder / "pid").exists() or not (folder / "pid").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
    child = int((folder / "pid").read_text())
    if stopped:
        os.kill(child, signal.SIGSTOP)
    guarding.send_signal(number)
    guarding.communicate(timeout=60)
    while not gone(child):
        assert time.monotonic() < end
        time.sleep(0.01)
    if number == signal.SIGTERM:
        assert guarding.returncode == 128 + number
        assert (folder / "lives").read_text() == "told"


def test_what_is_wrong_is_told(folder):
    assert "--restarts must be at least 0, not -1" in run(folder, "0", restarts=-1)[2]
    assert "not 'error,never'" in run(folder, "0", **{"restart-on": "error,never"})[2]
    command = [sys.executable, "-m", "fastgc.guard"]
    for own, said in (
        (["none.py"], "there is no file none.py: SCRIPT is a Python file, without python"),
        (["python", "script.py"], "there is no file python: SCRIPT is a Python file"),
    ):
        missing = subprocess.run([*command, *own], cwd=folder, capture_output=True, text=True)
        assert missing.returncode == 2
        assert said in missing.stderr
    told = subprocess.run([*command, "--help"], cwd=folder, capture_output=True, text=True)
    assert "torchrun --nproc-per-node 4 -m fastgc.guard script.py" in told.stdout
