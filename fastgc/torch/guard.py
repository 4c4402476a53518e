"""A guard, which runs a script and runs it again if it is killed.

The guard starts the script again if a signal ended it (the kernel kills processes when memory runs
out), or if the script raised a `LeftOutError` because it was late. With
`fastgc.torch.CodedAllReduce` the new process joins the other ranks, which have lost no step. If the
script ends by itself or by another error, the guard ends with the same exit status. If the script
raises a `FinishedError`, the other ranks have ended the run, and the guard ends with status 0.

The guard itself loads no PyTorch, so that it is small beside the script.
"""

from __future__ import annotations

import argparse
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

from .._base.arrays import at_least
from ..errors import FinishedError, LeftOutError

__all__ = ["main"]

_LEFT_OUT = 75  # exit status of a script that is to be started again
_SHORT, _LONGEST_PAUSE = 60.0, 30.0  # seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fastgc.guard",
        description="Runs a Python script, and runs it again if it is killed.",
        epilog="For each rank: torchrun --nproc-per-node 4 -m fastgc.guard script.py",
    )
    parser.add_argument(
        "--restarts",
        type=int,
        default=10,
        metavar="R",
        help="restarts in a row, each of less than a minute, after which it gives up (%(default)s)",
    )
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)  # a guard's child
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    return parser


def main() -> None:
    """Guard a script, as the command line says."""
    given = _parser().parse_args()
    if given.run:
        _run(given.script, given.arguments, given.module)
        return
    if not given.module and not Path(given.script).exists():
        _parser().error(f"there is no file {given.script}: SCRIPT is a Python file, without python")
    try:
        restarts = at_least("--restarts", given.restarts, 0)
    except ValueError as error:
        _parser().error(str(error))
    own = [*(["-m"] if given.module else []), given.script, *given.arguments]
    sys.exit(_Guard(own, restarts).run())


class _Guard:
    """Runs a script until it ends by itself, or is told to end."""

    def __init__(self, own: list[str], restarts: int) -> None:
        self._command = [sys.executable, "-m", "fastgc.guard", "--run", *own]
        self._restarts = restarts
        self._stopped = 0  # number of the signal that told the guard to end
        self._child: subprocess.Popen[bytes] | None = None
        rank = os.environ.get("RANK")
        self._name = "the script" if rank is None else f"rank {rank}"
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)

    def _stop(self, number: int, _: object) -> None:
        self._stopped = number
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def run(self) -> int:
        """Run the script as often as needed, and return the exit status to end with."""
        short = 0  # short lives in a row
        while True:
            begin = time.monotonic()
            status = self._live()
            if self._stopped:
                return 128 + self._stopped
            if status >= 0 and status != _LEFT_OUT:
                return status
            why = "was left out" if status >= 0 else f"was killed by {_name_of(-status)}"
            short = short + 1 if time.monotonic() - begin < _SHORT else 0
            if short > self._restarts:
                self._say(f"{why}, {short} times in a row within a minute: it is not started again")
                return 1
            self._say(f"{why}, and is started again")
            self._pause(short)

    def _live(self) -> int:
        """Run the script once; return its exit status, or minus the signal that ended it."""
        # Its own process group: a terminal's Ctrl-C then reaches it once, through `_stop`.
        self._child = subprocess.Popen(self._command, process_group=0)
        if self._stopped:  # before there was a child to send the signal to
            self._child.send_signal(self._stopped)
        return self._child.wait()

    def _pause(self, short: int) -> None:
        """Pause before a restart: not after the first short life, then 1 s, doubled each time."""
        end = time.monotonic() + (min(2.0 ** (short - 2), _LONGEST_PAUSE) if short > 1 else 0.0)
        while not self._stopped and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _say(self, what: str) -> None:
        print(f"fastgc.guard: {self._name} {what}", file=sys.stderr, flush=True)


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _run(script: str, arguments: list[str], module: bool) -> None:
    """Run the script in this process, as if Python had been started with it."""
    _end_with_parent()
    sys.argv = [script, *arguments]
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(script).resolve().parent)
            runpy.run_path(script, run_name="__main__")
    except FinishedError as error:
        print(f"fastgc.guard: {error}", file=sys.stderr, flush=True)
    except LeftOutError as error:
        print(f"fastgc.guard: {error}", file=sys.stderr, flush=True)
        sys.exit(_LEFT_OUT)


def _end_with_parent() -> None:
    """On Linux, have the kernel kill this process when its guard is killed."""
    if sys.platform != "linux":
        return
    import ctypes

    guard = os.getppid()
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != guard:  # the guard died before prctl took effect
        os.kill(os.getpid(), signal.SIGKILL)
