"""Processes of this machine, forked by the standard library's fork server.

The server has imported what workers need, so that a fork takes milliseconds. It is an instance of
our own: a program that uses ``multiprocessing`` itself keeps its server, with its own modules and
environment. The server ends with the program.

A process lives no longer than its `Process.life` is open: the system closes that, however the
program ends.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import pickle
import select
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["THREADS", "Process", "end_with", "interrupts_put_off", "start"]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_PACKAGE = Path(__file__).resolve().parents[1]
_TRIES = 3  # servers that may end or hang before one starts a process
# Seconds for a server to start its first process, before which it imports modules, and others.
TO_START, TO_FORK = 60.0, 5.0
# Bytes of a folder's name that leave room for those of the standard library's socket in it.
_LONGEST_FOLDER = 64


class Process(NamedTuple):
    """A process that was started: its id, and the open file that it lives by."""

    pid: int
    life: int

    def release(self) -> None:
        """Close what the process lives by; a second call does nothing."""
        if self.life in _lives:
            _lives.remove(self.life)
            os.close(self.life)

    def kill(self) -> None:
        """End the process, if it runs, also one that closed the file it lives by; release it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # Its number may be another program's by now, if it has ended: not one of our group.
            if self.life in _lives and os.getpgid(self.pid) == os.getpgrp():
                os.kill(self.pid, signal.SIGKILL)
        self.release()


# Of processes that run. A fork of the program closes its copies.
_lives: set[int] = set()


def start(
    run: Callable[[Sequence[int], Sequence[int]], None],
    numbers: Sequence[int],
    files: Sequence[int],
    modules: Sequence[str] = (),
    required: Sequence[str] = (),
) -> Process:
    """Start a process that calls ``run(numbers, files)``, with copies of these open files.

    A server that runs is taken if it has imported the `required` modules. One that is started now
    imports all of them. Raises OSError if no server starts the process.
    """
    path = [os.path.abspath(folder) for folder in sys.path]
    child = _Child(run, tuple(numbers))
    # What the standard library reads in a new process: what to prepare, and what to run.
    head = pickle.dumps({"sys_path": path}) + pickle.dumps(child)
    for _ in range(_TRIES):
        server = status = life = None
        try:
            with interrupts_put_off():
                server = _running(modules, required)
                status, life = server.connect_to_new_process(list(files))
            with contextlib.suppress(BrokenPipeError):  # it has died already
                os.write(life, head)
            if wait([status], TO_FORK if server.ready else TO_START):
                process, life = Process(forkserver.read_signed(status), life), None
                _lives.add(process.life)
                server.ready = True
                return process
        except (ConnectionError, EOFError, FileNotFoundError):
            pass  # the server has ended
        finally:
            for end in status, life:
                if end is not None:
                    os.close(end)
        if server is not None:
            _drop(server)
    raise OSError(f"{_TRIES} processes that workers are forked from ended, or did not answer")


class _Child(NamedTuple):
    """What a new process unpickles and runs."""

    run: Callable[[Sequence[int], Sequence[int]], None]
    numbers: tuple[int, ...]

    def _bootstrap(self, parent: int) -> int:
        """Run the process, as ``multiprocessing`` asks for it; return its exit status."""
        status = 1
        try:
            files = _own_files()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the master decides
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            end_with(parent)
            self.run(self.numbers, files)
            # Ends the process's own children, of which multiprocessing knows.
            util._exit_function()  # type: ignore[attr-defined]
            status = 0
        except BaseException:
            traceback.print_exc()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        return status


def _own_files() -> list[int]:
    """The files that this process was given. It leaves those that all processes of a server share.

    Its own children have a server and a resource tracker of their own, if they need one.
    """
    server: Any = forkserver._forkserver
    tracker: Any = resource_tracker._resource_tracker
    files: list[int] = server.get_inherited_fds()
    os.close(server._forkserver_alive_fd)
    server.__init__()
    os.close(tracker._fd)
    tracker._fd = None
    return files


# ------------------------------------------------------------------------------- the servers


class _Server(forkserver.ForkServer):
    """A fork server whose processes have one BLAS thread each."""

    # The standard library's own: the process, and the pipe that it lives by.
    _forkserver_pid: int
    _forkserver_alive_fd: int | None

    def __init__(self, modules: Sequence[str]) -> None:
        super().__init__()
        self.modules, self.ready, self._begun = set(modules), False, False
        self.set_forkserver_preload([__name__, *modules])  # with this one, no process finds another
        with _environment(), _short_folder(), _blocked(signal.SIGINT):  # Ctrl-C is for the program
            self.ensure_running()

    def ensure_running(self) -> None:
        """Start it once: the standard library would start it again, in another environment."""
        if not self._begun:
            self._begun = True
            super().ensure_running()
        elif not self.runs:
            raise ConnectionError("the server has ended")

    @property
    def runs(self) -> bool:
        """Whether the server is a child of this process that has not ended."""
        try:
            return os.waitpid(self._forkserver_pid, os.WNOHANG)[0] == 0
        except ChildProcessError:  # it was seen to end before, or belongs to our parent
            return False

    def forget(self) -> None:
        """Close what keeps the server alive."""
        alive, self._forkserver_alive_fd = self._forkserver_alive_fd, None
        if alive is not None:
            os.close(alive)


_servers: list[_Server] = []
_lock = threading.Lock()


def _running(modules: Sequence[str], required: Sequence[str]) -> _Server:
    """A server that has imported the `required` modules; start one if there is none."""
    with _lock:
        for server in _servers[:]:
            if not server.runs:
                _servers.remove(server)
                server.forget()
            elif server.modules.issuperset(required):
                return server
        _servers.append(_Server([*modules, *required]))
        return _servers[-1]


def _drop(server: _Server) -> None:
    """End a server, whatever it does."""
    with _lock:
        if server in _servers:
            _servers.remove(server)
            server.forget()
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(server._forkserver_pid, signal.SIGKILL)
                os.waitpid(server._forkserver_pid, 0)


@atexit.register
def _end() -> None:
    for server in _servers[:]:
        _drop(server)


def _in_a_fork() -> None:
    """Forget the servers in a fork of the program: they must not live as long as the fork."""
    global _lock
    _lock = threading.Lock()
    for server in _servers:
        server.forget()
    for life in _lives:
        os.close(life)
    _servers.clear()
    _lives.clear()


os.register_at_fork(after_in_child=_in_a_fork)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """Set the environment in which a server starts: one thread, and this package.

    The program's path may find another package of this name first, also in the working directory.
    """
    path = [os.path.abspath(folder) for folder in sys.path if folder]
    own = [folder for folder in path if _is_ours(os.path.join(folder, _PACKAGE.name))]
    changes = dict.fromkeys(THREADS, "1")
    changes |= {"PYTHONPATH": os.pathsep.join(own), "PYTHONSAFEPATH": "1"}
    before = {name: os.environ[name] for name in changes if name in os.environ}
    searched = sys.path[:]
    try:
        os.environ.update(changes)
        sys.path[:] = own  # which the standard library hands to the server
        yield
    finally:
        sys.path[:] = searched
        for name in changes:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextlib.contextmanager
def _short_folder() -> Iterator[None]:
    """Have the server's socket in /tmp if the folder of temporary files has a long name.

    The system refuses sockets whose names have more than 107 bytes (macOS: 103).
    """
    before = tempfile.gettempdir()
    tempfile.tempdir = before if len(os.fsencode(before)) <= _LONGEST_FOLDER else "/tmp"
    try:
        yield
    finally:
        tempfile.tempdir = before


def _is_ours(folder: str) -> bool:
    return not os.path.exists(folder) or os.path.realpath(folder) == str(_PACKAGE)


# ------------------------------------------------------------------------------- signals, and ends


@contextlib.contextmanager
def _blocked(number: int) -> Iterator[None]:
    """Block a signal, here and in a process that is started meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def interrupts_put_off() -> Iterator[list[int]]:
    """Delay Ctrl-C in a step that must not be interrupted; yield the list of delayed signals."""
    before = signal.getsignal(signal.SIGINT)
    waiting: list[int] = []
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield waiting  # stays empty
        return
    signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield waiting
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def end_with(life: int) -> None:
    """End this process as soon as the other end of a pipe is closed.

    On Linux the kernel kills the process, even if it is stopped or inside compiled code. On other
    systems a thread ends it, as soon as the thread gets its turn.
    """
    if hasattr(fcntl, "F_SETSIG") and os.path.exists("/proc/self/fd"):
        # A separate open file: it holds the process to signal, and others may share `life`.
        own = os.open(f"/proc/self/fd/{life}", os.O_RDONLY | os.O_NONBLOCK)
        os.close(life)
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([own], [], [], 0.0)[0]:  # it was closed before
            os._exit(1)
    else:
        threading.Thread(target=_end_at_end_of, args=(life,), daemon=True).start()


def _end_at_end_of(life: int) -> None:
    os.read(life, 1)
    os._exit(1)
