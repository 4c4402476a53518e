"""The process that workers are forked from: one for all clusters of a program.

It has imported what workers need, so that a fork takes milliseconds. It has no thread and no lock,
and no memory of the program. The fork server of `multiprocessing` would not do: the program waits
for it however long it hangs, the round that finds it dead ends, it leaves a folder in the file
system if the program is killed, and its children may have no children.

Nothing here waits. A record over a socket asks for a fork, and another one answers. If the server
is dead or late, a new one takes its place, and whoever has no answer asks again.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing import spawn, util
from pathlib import Path

from .._base.registry import load_object

_NUMBERS = 6  # numbers in a record, besides its ticket
_ORDER = struct.Struct(f"={1 + _NUMBERS}q")  # a ticket, and the numbers for the child
_ANSWER = struct.Struct("=qq")  # a ticket, and a process id
_FILES = 16  # the most open files that a child is given
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
NONE = -1  # in place of a process id: the fork failed
_READY = -1  # the ticket of the first answer over a connection
_TO_START, _TO_FORK = 60.0, 5.0  # seconds for an answer: the first one, others
_TO_DIE = 0.05  # seconds to wait until a server that is ending has ended
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
# Imports this very package: by now the program's path may find another one first.
_BEGIN = """
import importlib.util, json, sys
path, this, *arguments = sys.argv[1:]
sys.path[:] = json.loads(path)
spec = importlib.util.spec_from_file_location("fastgc", this)
sys.modules["fastgc"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["fastgc"])
from fastgc.engines.fork_server import serve
serve(int(arguments[0]), int(arguments[1]), arguments[2], arguments[3:])
"""


class Connection:
    """Asks the server for forks, and takes its answers. Only one thread may use it."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self._tickets: list[int] = []
        self._given = 0
        self.ready = False  # whether the server has ever answered
        # When, by time.monotonic(), the next answer is due; inf: none is.
        self.deadline = time.monotonic() + self._patience()
        with theirs:
            self.lost = not server.introduce(theirs)  # whether it will never answer again

    def fileno(self) -> int:
        """The file that can be read once there is an answer, or the server is dead."""
        return self._socket.fileno()

    def fork(self, numbers: Sequence[int], files: Sequence[int]) -> int:
        """Ask for a child that gets these numbers and open files; return a ticket."""
        ticket = self._given
        self._given += 1
        self._tickets.append(ticket)
        padded = (*numbers, *[0] * (_NUMBERS - len(numbers)))
        with contextlib.suppress(OSError):  # dead, or so far behind that its deadline passes
            socket.send_fds(self._socket, [_ORDER.pack(ticket, *padded)], files)
        self.deadline = min(self.deadline, time.monotonic() + self._patience())
        return ticket

    def _patience(self) -> float:
        return _TO_FORK if self._server.ready else _TO_START

    def answers(self) -> list[tuple[int, int]]:
        """Return tickets and process ids of forks, or NONE; set `lost` if there is no server."""
        found: list[tuple[int, int]] = []
        while not self.lost:
            try:
                answer = self._socket.recv(_ANSWER.size)
            except BlockingIOError:
                break
            except OSError:
                answer = b""
            if len(answer) < _ANSWER.size:
                self.lost = True
                break
            ticket, pid = _ANSWER.unpack(answer)
            self.ready = self._server.ready = True
            if ticket != _READY:
                self._tickets.remove(ticket)
                found.append((ticket, pid))
            self.deadline = time.monotonic() + _TO_FORK if self._tickets else float("inf")
        self.lost = self.lost or time.monotonic() > self.deadline
        return found

    @property
    def killed(self) -> bool:
        """Whether the server was lost because somebody killed it."""
        return self._server.killed()

    def close(self) -> None:
        """Ask for no more forks; end the server if it was lost."""
        self._socket.close()
        if self.lost:
            self._server.end()


class _Server:
    """The program's side of a server process."""

    def __init__(self, entry: str, modules: Sequence[str]) -> None:
        self.program = os.getpid()
        self.modules = set(modules)
        self.alive, self.ready = True, False
        self._status: int | None = None  # its exit status, once that is known
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        path = json.dumps([os.path.abspath(folder) for folder in sys.path])
        flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]
        executable = os.fsdecode(spawn.get_executable())
        life, self._life = os.pipe()
        this = os.path.abspath(Path(__file__).parents[1] / "__init__.py")
        try:
            with theirs:
                ends = str(theirs.fileno()), str(life)
                self.pid = os.posix_spawn(
                    executable,
                    [executable, *flags, "-c", _BEGIN, path, this, *ends, entry, *modules],
                    os.environ | dict.fromkeys(THREADS, "1"),
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        # to the same numbers, which keeps them open
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), theirs.fileno()),
                        (os.POSIX_SPAWN_DUP2, life, life),
                    ],
                    setsigmask=[signal.SIGINT],  # Ctrl-C is for the program
                )
        except BaseException:
            self._socket.close()
            os.close(self._life)
            raise
        finally:
            os.close(life)

    def introduce(self, connection: socket.socket) -> bool:
        """Hand the server its end of a connection; False if it is dead or does not listen."""
        try:
            socket.send_fds(self._socket, [b"+"], [connection.fileno()])
        except OSError:
            return False
        return True

    def killed(self) -> bool:
        """Whether somebody else's signal ended the server: it neither ended by itself nor hangs."""
        until = time.monotonic() + _TO_DIE
        while self._status is None and self.alive and self.program == os.getpid():
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._status = status if pid else None
            if self._status is not None or time.monotonic() > until:
                break
            time.sleep(_TO_DIE / 50)
        status = self._status or 0
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGTERM)

    def end(self) -> None:
        """Kill the server, unless that was done."""
        if self.alive and self.program == os.getpid():
            self.alive = False
            self._socket.close()
            os.close(self._life)
            if self._status is None:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(self.pid, signal.SIGKILL)
                    _, self._status = os.waitpid(self.pid, 0)


_server: _Server | None = None
_former: list[_Server] = []  # servers that have open clusters, and lack modules of a later cluster
_lock = threading.Lock()


def connect(entry: str, modules: Sequence[str], required: Sequence[str] = ()) -> Connection:
    """Connect to the program's server; start one if there is none.

    Children call the function `entry`, ``"module:function"``, with their numbers and files. A
    server that is started now imports the `modules`. One that has not imported the `required` ones
    stays with its clusters, and a new one takes its place.
    """
    global _server
    with _lock:
        if _server is not None and not _server.modules.issuperset(required):
            _former.append(_server)
            _server = None
        for again in (True, False):
            if _server is None or not _server.alive or _server.program != os.getpid():
                _server = _Server(entry, [*modules, *required])
            connection = Connection(_server)
            if connection.lost and again:
                connection.close()
            else:
                break
        return connection  # may be lost


@atexit.register
def _end() -> None:
    for server in (_server, *_former):
        if server is not None:
            server.end()


def _forget() -> None:
    """In a fork of the program: drop the server, which is not its own and must not end with it."""
    global _server, _lock
    for server in (_server, *_former):
        if server is not None and server.alive:
            os.close(server._life)
            server._socket.close()
    _server, _lock = None, threading.Lock()
    _former.clear()


os.register_at_fork(after_in_child=_forget)


# ------------------------------------------------------------- in the server, and its children


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


def serve(fd: int, life: int, entry: str, modules: Sequence[str]) -> None:
    """Fork children until the program ends; `fd` and `life` are ends of its socket and its pipe."""
    for file in fd, life:
        os.set_inheritable(file, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    if hasattr(fcntl, "F_SETSIG"):  # elsewhere no thread: a fork copies the locks that it holds
        end_with(life)
    for name in modules:
        with contextlib.suppress(ImportError):
            __import__(name)
    call = load_object(entry)
    program = socket.socket(fileno=fd)
    connections = {program.fileno(): program}
    poll = select.poll()
    poll.register(program, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            try:
                order, files, _, _ = socket.recv_fds(
                    connections[fd], _ORDER.size, _FILES, _CLOSE_ON_EXEC
                )
            except OSError:
                order, files = b"", []
            if fd == program.fileno():
                if not order:
                    for each in connections.values():
                        each.close()
                    return
                connection = socket.socket(fileno=files[0])
                connections[connection.fileno()] = connection
                poll.register(connection, select.POLLIN)
                _answer(connection, _READY, 0)
            elif len(order) < _ORDER.size:
                poll.unregister(fd)
                connections.pop(fd).close()
            else:
                ticket, *numbers = _ORDER.unpack(order)
                try:
                    pid = os.fork()
                except OSError:  # too many processes: another server could not fork either
                    pid = NONE
                if pid == 0:
                    for connection in connections.values():
                        connection.close()
                    _run(call, numbers, files)
                _answer(connections[fd], ticket, pid)
            if fd != program.fileno():
                for file in files:
                    os.close(file)


def _answer(connection: socket.socket, ticket: int, pid: int) -> None:
    with contextlib.suppress(OSError):  # the cluster was closed
        connection.send(_ANSWER.pack(ticket, pid))


def _run(call, numbers: Sequence[int], files: Sequence[int]) -> None:  # type: ignore[no-untyped-def]
    """Run a child, and end it."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        call(numbers, files)
        # ends the child's own children, of which multiprocessing knows
        util._exit_function()  # type: ignore[attr-defined]
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
