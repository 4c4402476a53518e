"""``python -m fastgc.guard script.py``: runs a script, and runs it again if it dies.

torchrun ends all ranks of a machine when a process that it started dies. So let it start a guard,
which outlives the script::

    torchrun --nproc-per-node 4 -m fastgc.guard script.py --epochs 10

The guard starts the script again if a signal ended it (the kernel kills processes when memory runs
out), if it raised an error (a loader's worker was killed, a GPU or a disk failed), or if the others
left it out because it was silent. With `fastgc.torch.ReactiveDataParallel` the new process joins
the other ranks, which have lost no step. An error that comes again and again is a bug: after
``--restarts`` restarts in a row, each within a minute, the guard ends. It also ends if the script
ends by itself, with the same exit status. If the script raises a `FinishedError`, the other ranks
have ended the run, and the guard ends with status 0.

The guard of rank 0 keeps the coordinator, unless ``FASTGC_STORE`` names another. It loads no
PyTorch, so that it is small beside the script.
"""

from __future__ import annotations

import argparse
import os
import runpy
import signal
import subprocess
import sys
import traceback
import zlib
from pathlib import Path

from ._base.arrays import at_least
from ._base.deadline import Deadline
from .errors import FinishedError, LeftOutError, LostError
from .torch.coordinator import Server

__all__ = ["main"]

_LEFT_OUT, _FAILED = 75, 76  # exit statuses of scripts that may be started again
_SEEN = "FASTGC_SEEN"  # in the environment: a hash of the last error, which was printed
_WHYS = ("error", "signal")
_SHORT, _LONGEST_PAUSE = 60.0, 30.0  # seconds
_DRAIN = 60.0  # most seconds for which the coordinator outlives rank 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fastgc.guard",
        description="Runs a Python script, and runs it again if it dies.",
        epilog="For each rank: torchrun --nproc-per-node 4 -m fastgc.guard script.py",
    )
    parser.add_argument(
        "--restarts",
        type=int,
        default=10,
        metavar="R",
        help="give up after so many restarts in a row, each within a minute (%(default)s)",
    )
    parser.add_argument(
        "--restart-on",
        default=",".join(_WHYS),
        metavar="WHY",
        help="why a script may be started again: error, signal, or both (%(default)s)",
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
    whys = set(given.restart_on.split(","))
    if not whys <= set(_WHYS):
        _parser().error(f"--restart-on takes {' and '.join(_WHYS)}, not {given.restart_on!r}")
    own = [*(["-m"] if given.module else []), given.script, *given.arguments]
    server = _own_coordinator()
    status = _Guard(own, restarts, whys).run()
    if server is not None:
        # Ranks need it until they know of the end.
        server.drain(_DRAIN if status == 0 else 0.0, guarded=True)
    sys.exit(status)


def _own_coordinator() -> Server | None:
    """Keep the coordinator, if this is the guard of rank 0 and nobody else keeps it."""
    names = os.environ
    alone = int(names.get("WORLD_SIZE", "1")) == 1
    if "FASTGC_STORE" in names or names.get("RANK") != "0" or alone:
        return None
    server = Server().start()
    os.environ["FASTGC_COORDINATOR"] = str(server.port)
    return server


class _Guard:
    """Runs a script until it ends by itself, or is told to end."""

    def __init__(self, own: list[str], restarts: int, whys: set[str]) -> None:
        self._command = [sys.executable, "-m", "fastgc.guard", "--run", *own]
        self._restarts, self._whys = restarts, whys
        self._told, self._tells = os.pipe()  # hashes of errors that were printed
        os.set_blocking(self._told, False)
        self._seen = ""
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
            self._child.send_signal(signal.SIGCONT)  # it may be stopped

    def run(self) -> int:
        """Run the script as often as needed, and return the exit status to end with."""
        short = 0  # short lives in a row
        while True:
            life = Deadline(_SHORT)
            status = self._live()
            if self._stopped:
                return 128 + self._stopped
            if status == _FAILED and "error" not in self._whys:
                return 1
            if status >= 0 and status not in (_LEFT_OUT, _FAILED):
                return status
            if status < 0 and "signal" not in self._whys:
                return 128 - status
            why = "was left out" if status == _LEFT_OUT else "raised an error"
            why = f"was killed by {_name_of(-status)}" if status < 0 else why
            short = short + 1 if life.left else 0
            if short > self._restarts:
                self._say(f"{why}, {short} times in a row within a minute: it is not started again")
                return 1
            self._say(f"{why}, and is started again")
            self._pause(short)

    def _live(self) -> int:
        """Run the script once; return its exit status, or minus the signal that ended it."""
        # Its own process group: a terminal's Ctrl-C then reaches it once, through `_stop`.
        around = os.environ | {"FASTGC_TELL": str(self._tells)}
        try:
            around[_SEEN] = os.read(self._told, 4096).decode().split()[-1]
        except (BlockingIOError, IndexError):
            around[_SEEN] = self._seen
        self._seen = around[_SEEN]
        self._child = subprocess.Popen(
            self._command, process_group=0, env=around, pass_fds=[self._tells]
        )
        if self._stopped:  # before there was a child to send the signal to
            self._child.send_signal(self._stopped)
        return self._child.wait()

    def _pause(self, short: int) -> None:
        """Pause before a restart: not after the first short life, then 1 s, doubled each time."""
        pause = Deadline(min(2.0 ** (short - 2), _LONGEST_PAUSE) if short > 1 else 0.0)
        while not self._stopped and pause.sleep(0.1):
            pass

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
    except LostError as error:
        sys.exit(f"fastgc.guard: {error}")
    except Exception:
        sys.exit(_tell_error(traceback.format_exc()))


def _tell_error(text: str) -> int:
    """Print a traceback, unless the last life printed the same; return the exit status."""
    lines = text.rstrip().splitlines()
    hashed = str(zlib.crc32(text.encode()))
    if os.environ.get(_SEEN) == hashed:
        print(f"fastgc.guard: the same error again: {lines[-1]}", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, end="", flush=True)
    if tells := os.environ.get("FASTGC_TELL"):
        os.write(int(tells), f"{hashed} ".encode())
    return _FAILED


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


if __name__ == "__main__":
    main()
