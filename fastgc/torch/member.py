"""A rank's part in the protocol: its line to the coordinator, and the gloo group of a view.

A thread reads what the coordinator says. When a new view is to be made, it shuts down the group's
connections, so that nobody waits for this rank any longer, and says where this rank is, as soon as
the main thread is in no collective. Another thread builds the new group. So a rank answers while
its main thread computes, and the group is ready when the main thread needs it.

Gloo's groups find each other through the coordinator (`_Board`), which passes on what each rank
would put into a store: no other store is used.

Forks of a rank, such as the workers of a DataLoader, let go of its sockets, because they may
outlive it.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import ctypes
import json
import logging
import os
import queue
import secrets
import socket
import stat
import struct
import threading
import weakref
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed

from .._base.deadline import Deadline
from ..errors import FinishedError, LeftOutError, LostError
from .coordinator import keep_alive

_LOG = logging.getLogger("fastgc")
dist: Any = torch.distributed  # type checkers do not see all that it exports

_BUILD = 10.0  # seconds for a group to be built
_REACH = 30.0  # seconds, at least, in which the coordinator must be reached
_FIRST_WAIT, _WAIT = 0.05, 0.2  # seconds between looks at the view, while a collective runs
_FOREVER = timedelta(days=30)
_ANSWER = 3.0  # seconds in which a newcomer that waits for the state answers
_PIECE = 5.0  # seconds, at least, for the next piece of the state
_RETRY = 0.2  # seconds between attempts to reach the coordinator
_PING = 5.0  # seconds of silence after which the coordinator is asked whether it is there

_Socket = tuple[int, int]  # its descriptor, and its inode's number, which no later socket has


class BrokenViewError(Exception):
    """A member of the view is gone or late: a new view follows."""


class NewcomerError(Exception):
    """The others are running: this rank gets their state before it takes part."""


class View:
    """The ranks that take part, ascending, and their group; None if there is one rank."""

    def __init__(self, number: int, lives: list[list[Any]], own: str, group: Group | None) -> None:
        self.number, self.lives, self.group = number, lives, group
        self.ranks: list[int] = [each[0] for each in lives]
        self.slot = [each[1] for each in lives].index(own)  # this rank's place in it


class Member:
    """A life of this rank: `there` waits for a view, `do` runs a collective in it."""

    def __init__(
        self,
        address: tuple[str, int],
        run: str,
        rank: int | None,
        world: int | None,
        hang: float | None,
        replace: float | None,
    ) -> None:
        self.rank = -1 if rank is None else rank
        self.name = secrets.token_hex(6)  # 48 bits: a float64 holds them
        self.at = 0  # sums done
        self.holds = self.boundary = self.newcomer = self.ready = False
        self.waiting: set[str] = set()  # newcomers that are ready to enter
        self.hang = 60.0 if hang is None else hang
        self.fetches: list[tuple[str, Any]] = []  # newcomers that want the state
        self.view: View | None = None
        self.last: View | None = None  # the last view that there was
        self.spoiled = False  # whether a group that was given up may still write to memory
        self._address, self._run, self._world, self._replace = address, run, world, replace
        self._changed = threading.Condition()
        self._number = 0  # of the view that is being made
        self._group: Group | None = None
        self._inside = self._owes = self._waits = self._closing = False
        self._error: Exception | None = None
        self._board: _Board | None = None
        self.state_at = socket.create_server((own_host(), 0), backlog=16)
        try:
            self._line = self._connect(max(self.hang, _REACH))
        except RuntimeError:
            self.state_at.close()
            raise
        _all_members.add(self)
        self._thread = threading.Thread(target=self._listen, name="fastgc-member", daemon=True)
        self._thread.start()

    # ----------------------------------------------------------------------------- the main thread

    def there(self, after: int = 0) -> View:
        """Wait for a view of a number above `after`, and return it."""
        with self._changed:
            self._waits = True
            try:
                while True:
                    if self._error is not None:
                        raise self._error
                    if self.newcomer and self.view is None:
                        raise NewcomerError
                    if self.view is not None and self.view.number > after:
                        return self.view
                    self._changed.wait()
            finally:
                self._waits = False

    def give_up(self, view: View, *message: Any) -> NoReturn:
        """Wait for the next view: raise BrokenViewError, and tell the coordinator a message."""
        with self._changed:
            self._waits = True  # until it computes again
            if self.view is view:
                self.view = None
        if message:
            self.say(*message)
        raise BrokenViewError

    def do(
        self, view: View, start: Callable[[Group], Any], then: Callable[[], None] | None = None
    ) -> None:
        """Run a collective, and then call `then`, before this rank says where it is.

        Raise BrokenViewError if the view changes, or if others do not come within `hang` seconds.
        """
        with self._changed:
            if self._error is not None:
                raise self._error
            if self.view is not view:
                self._waits = True
                raise BrokenViewError
            self._inside, self._waits = True, False
        late = False
        try:
            if view.group is not None:
                late = not self._done(view, start(view.group))
            if not late and then is not None:
                then()
        except RuntimeError:  # gloo's
            self.give_up(view, "broken", view.number, False)
        finally:
            with self._changed:
                self._waits |= late
                self._inside = False
                if self._owes:
                    self._answer()
        if late:
            self.give_up(view, "broken", view.number, True)

    def _done(self, view: View, work: Any) -> bool:
        """Wait until a collective is done; return False if it is late, or the view has changed.

        Time is counted by waits, so that a process that was stopped does not take others for late.
        A group whose connections were shut may still not wake those who wait in it (seen with
        PyTorch 2.13): then it is given up, with the memory that it may write to.
        """
        waited = 0.0
        while True:
            seconds = _FIRST_WAIT if not waited else _WAIT
            try:
                work.wait(timedelta(seconds=seconds))
                return True
            except RuntimeError:
                if work.is_completed():
                    work.wait()  # raises its error, unless it has ended just now
                    return True
            waited += seconds
            if self.view is not view or waited > self.hang:
                with contextlib.suppress(RuntimeError):
                    if view.group is not None:
                        view.group.shut()
                    work.wait(timedelta(seconds=_FIRST_WAIT))  # it ends now, as a rule
                if not work.is_completed():
                    self.spoiled = True
                    if view.group is not None:
                        view.group.give_up()
                return False

    def sum(self, view: View, tensor: torch.Tensor, then: Callable[[], None] | None = None) -> None:
        """Sum a tensor over the view's ranks, in place: all get the same bits."""
        self.do(view, lambda group: group.sum(tensor), then)

    def copy(
        self, view: View, tensor: torch.Tensor, slot: int, then: Callable[[], None] | None = None
    ) -> None:
        """Copy the tensor of the rank at `slot` to all."""
        self.do(view, lambda group: group.copy(tensor, slot), then)

    def pass_boundary(self, view: View) -> None:
        """Leave the boundary between two steps; BrokenViewError if the view has changed."""
        with self._changed:
            if self.view is not view:
                self._waits = True
                raise BrokenViewError
            self.boundary = False

    def warm(self) -> None:
        """Tell that this newcomer has tried a step, and may enter."""
        with self._changed:
            self.newcomer, self.ready = False, True
        self.say("warm")

    def hold(self) -> None:
        """From now on, this rank holds the state."""
        with self._changed:
            self.holds, self.newcomer = True, False
        self.say("holds")

    def end(self, *message: Any) -> None:
        """Tell that the run has ended, until the coordinator knows it: it may be starting again."""
        end = Deadline(max(self.hang, _REACH))
        with self._changed:
            while self._error is None and end.left:
                self.say(*message)
                self._changed.wait(1.0)

    def refuse(self, why: str) -> NoReturn:
        """Raise RuntimeError on all ranks: those that lack what this one has seen would go on."""
        self.end("refuse", why)
        raise RuntimeError(why)

    def say(self, *message: Any) -> None:
        """Tell the coordinator something; what is not delivered is told again by `hello`."""
        line = self._line
        try:
            line.sendall(json.dumps(message).encode() + b"\n")
        except OSError:  # a part may be on its way: the line's thread connects anew
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def accept(self, number: int, seconds: float) -> socket.socket:
        """Wait for a rank that sends the state for view `number`; OSError if none comes.

        None comes if the view has changed. A connection for something else is refused: its sender
        may have thought that this rank lacks what it has got from another one meanwhile.
        """
        end = Deadline(seconds)
        while True:
            self.state_at.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                made = self.state_at.accept()[0]
                made.settimeout(_ANSWER / 4)  # whoever waits behind it is served in time
                with contextlib.suppress(OSError):
                    keep_alive(made)
                    told = _purpose(self.name, number)
                    if made.recv(len(told), socket.MSG_WAITALL) == told:
                        made.sendall(b"+")
                        made.settimeout(max(self.hang, _PIECE))
                        return made
                made.close()
            if self._error is not None:
                raise self._error
            view = self.view
            if number and (view is None or view.number != number):
                raise ConnectionError("the view has changed")
            if not end.left:
                raise TimeoutError("no rank has sent the state")

    def call(self, name: str, address: list[Any], number: int) -> socket.socket:
        """Connect to a newcomer that waits for the state; OSError if it does not."""
        made = socket.create_connection((address[0], address[1]), timeout=_ANSWER)
        try:
            keep_alive(made)
            made.sendall(_purpose(name, number))
            if made.recv(1) != b"+":
                raise ConnectionError("the newcomer does not wait for the state")
        except OSError:
            made.close()
            raise
        made.settimeout(max(self.hang, _PIECE))
        return made

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing

    def close(self) -> None:
        """Leave: the coordinator takes this life for dead."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self.state_at.close()
        self._thread.join(2.0)
        self._line.close()
        with self._changed:
            self._drop()

    # ---------------------------------------------------------------------------- the line's thread

    def _connect(self, seconds: float) -> socket.socket:
        """Connect to the coordinator, and say hello."""
        end = Deadline(seconds)
        while True:
            try:
                line = socket.create_connection(self._address, timeout=max(1.0, seconds))
                with contextlib.ExitStack() as undone:
                    undone.enter_context(line)
                    line.settimeout(_PING)
                    keep_alive(line)
                    line.sendall(json.dumps(["hello", self._hello()]).encode() + b"\n")
                    undone.pop_all()
                return line
            except OSError as error:
                if self._closing or not end.sleep(_RETRY):
                    raise self._alone(f"cannot be reached for {seconds:g} s: {error}") from None

    def _alone(self, why: str) -> RuntimeError:
        host, port = self._address
        return RuntimeError(
            f"the coordinator at {host}:{port}, by which ranks find each other, {why}. It runs in "
            "python -m fastgc.store, or in the guard of rank 0"
        )

    def _hello(self) -> dict[str, Any]:
        last = self.last
        return {
            "run": self._run,
            "rank": None if self.rank < 0 else self.rank,
            "world": self._world,
            "life": self.name,
            "address": list(self.state_at.getsockname()[:2]),
            "holds": self.holds,
            "ready": self.ready,
            "at": self.at,
            "number": self._number,
            "view": 0 if last is None else last.number,
            "lives": [] if last is None else [each[1] for each in last.lives],
            "hang": self.hang,
            "replace": self._replace,
        }

    def _listen(self) -> None:
        left, silent = b"", 0.0
        while not self._closing:
            try:
                got, silent = self._line.recv(1 << 16), 0.0
            except TimeoutError:
                silent += _PING  # counted by waits: this process may have been stopped
                if silent > max(self.hang, _REACH):
                    self._fail(self._alone(f"has not answered for {silent:g} s"))
                    return
                self.say("ping")
                continue
            except OSError:
                got = b""
            if not got:
                left = b""
                self._line.close()
                if not self._again():
                    return
                continue
            *whole, left = (left + got).split(b"\n")
            for each in whole:
                self._hear(json.loads(each))

    def _again(self) -> bool:
        """Connect anew after the connection closed; the present group works meanwhile."""
        if self._closing or self._error is not None:
            return False
        try:
            self._line = self._connect(max(self.hang, _REACH))
            return True
        except RuntimeError as error:
            self._fail(error)
            return False

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = self._error or error
            self.view = None
            self._drop()
            self._changed.notify_all()

    def _hear(self, message: list[Any]) -> None:
        what, *told = message
        if what == "put":
            board = self._board
            if board is not None and board.number == told[0]:
                board.take(told[1], base64.b64decode(told[2]))
        elif what == "welcome":
            self.rank = told[0]
        elif what == "gone":
            _LOG.warning("rank %d has left at step %d, and the others go on: %s", *told)
        elif what == "left":
            self._fail(LeftOutError(f"rank {self.rank} was left out: {told[0]}"))
        elif what == "refused":
            self._fail(RuntimeError(told[0]))
        elif what == "lost":
            self._fail(LostError(f"{told[0]}: start the run again, from a checkpoint"))
        elif what == "finished":
            self._fail(FinishedError(f"the run has ended at step {told[0]}, without this rank"))
        else:
            with self._changed:
                if what == "gather":
                    self._number, self.view, self._owes = told[0], None, True
                    self._drop()
                    if not self._inside:
                        self._answer()
                elif what == "view" and told[0] == self._number:
                    self._board = _Board(told[0], self)
                    self.waiting = set(told[2])
                    threading.Thread(target=self._build, args=told[:2], daemon=True).start()
                elif what == "newcomer":
                    self.newcomer = True
                elif what == "fetch":
                    self.fetches.append((told[0], told[1]))
                elif what == "admit":
                    self.waiting.add(told[0])
                self._changed.notify_all()

    def _answer(self) -> None:
        self._owes = False
        self.say(
            "here",
            {
                "view": self._number,
                "at": self.at,
                "holds": self.holds,
                "boundary": self.boundary,
                "waits": self._waits or self._inside,
            },
        )

    def _build(self, number: int, lives: list[list[Any]]) -> None:
        board, group = self._board, None
        assert board is not None
        slot = [each[1] for each in lives].index(self.name)
        try:
            if len(lives) > 1:
                group = Group(board, slot, len(lives))
        except Exception:  # gloo's, or of the board
            self.say("broken", number, False)
            return
        with self._changed:
            if number == self._number:
                self._group = group
                self.view = self.last = View(number, lives, self.name, group)
                self._changed.notify_all()

    def _drop(self) -> None:
        """Shut down the group's connections, so that nobody waits for this rank in it."""
        group, self._group = self._group, None
        if self._board is not None:
            self._board.close()
        if group is not None:
            group.shut()

    def let_go(self) -> None:
        """In a fork: release the sockets by which others would take the rank for alive."""
        null = os.open(os.devnull, os.O_RDWR)
        own = {self._line.fileno(), self.state_at.fileno()}
        if self._group is not None:
            own |= {fd for fd, _ in self._group.lines}
        for fd in own - {-1}:  # their numbers stay in use: their owners close them once more
            os.dup2(null, fd, inheritable=False)
        os.close(null)


_all_members: weakref.WeakSet[Member] = weakref.WeakSet()


def _let_go() -> None:
    for each in list(_all_members):
        each.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def own_host() -> str:
    """Return the address by which other ranks reach this one, found as gloo finds it."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if name:
        return _address_of_interface(name)
    with contextlib.suppress(OSError):
        for family, _, _, _, found in socket.getaddrinfo(
            socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM
        ):
            with contextlib.suppress(OSError), socket.socket(family) as made:
                made.bind((found[0], 0))
                return str(found[0])
    return "127.0.0.1"


def _address_of_interface(name: str) -> str:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        query = struct.pack("256s", name.encode()[:15])
        try:
            found = fcntl.ioctl(made.fileno(), 0x8915, query)  # SIOCGIFADDR
        except OSError as error:
            raise OSError(
                error.errno, f"GLOO_SOCKET_IFNAME={name}: no such interface with an IPv4 address"
            ) from None
    return socket.inet_ntoa(found[20:24])


def _purpose(name: str, number: int) -> bytes:
    """Return how the state for a life and a view begins; view 0: to try a step alone."""
    return f"{name} {number:011d}".encode()


class _Board(dist.Store):  # type: ignore[misc]
    """What the members of one view tell each other while gloo builds their group."""

    def __init__(self, number: int, member: Member) -> None:
        super().__init__()
        self.number, self._member = number, member
        self._found: dict[str, bytes] = {}
        self._there = threading.Condition()
        self._end = Deadline(_BUILD)
        self._closed = False

    def take(self, key: str, value: bytes) -> None:
        with self._there:
            self._found[key] = value
            self._there.notify_all()

    def close(self) -> None:
        with self._there:
            self._closed = True
            self._there.notify_all()

    def set(self, key: str, value: bytes | str) -> None:
        value = value.encode() if isinstance(value, str) else bytes(value)
        self._member.say("put", self.number, key, base64.b64encode(value).decode())

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._found[key]

    def wait(self, keys: Iterable[str], timeout: object = None) -> None:
        with self._there:
            while not all(key in self._found for key in keys):
                if self._closed or not self._end.left:
                    raise RuntimeError("the view has changed")
                self._there.wait(self._end.left)

    def check(self, keys: Iterable[str]) -> bool:
        return all(key in self._found for key in keys)

    def set_timeout(self, timeout: object) -> None:
        pass

    def has_extended_api(self) -> bool:
        return False


class Group:
    """A gloo group apart from those of torch.distributed.

    It closes its sockets when the last reference to it goes. Gloo takes 10 ms for each, so a thread
    closes them. Others may still wait for this rank, so `shut` ends the connections at once.
    """

    def __init__(self, board: _Board, slot: int, size: int) -> None:
        _start_closer()
        self.lines: set[_Socket] = set()
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=_BUILD)
        # Other threads may open sockets meanwhile: those of the group connect ports of its members.
        before = _sockets()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=own_host())]
        own = [ends[0] for each in _sockets() - before if len(ends := _ports(each)) == 1]
        board.set(f"ports {slot}", json.dumps(own))
        self._held = [dist.ProcessGroupGloo(board, slot, size, options)]
        ports = {port for i in range(size) for port in json.loads(board.get(f"ports {i}"))}
        found = {each: _ports(each) for each in _sockets() - before}
        self.lines = {
            e for e, ends in found.items() if len(ends) == 2 and not ports.isdisjoint(ends)
        }

    def sum(self, tensor: torch.Tensor) -> Any:
        """Begin to sum over all members, in place."""
        options = dist.AllreduceOptions()
        options.timeout = _FOREVER  # `Member` counts
        return self._held[0].allreduce([tensor], options)

    def copy(self, tensor: torch.Tensor, root: int) -> Any:
        """Begin to copy the tensor of member `root` to all."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = root, 0, _FOREVER
        return self._held[0].broadcast([tensor], options)

    def give_up(self) -> None:
        """Never close this group: a thread of it waits, and closing would wait for the thread."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._held[0]))

    def shut(self) -> None:
        """End all connections: what waits in them raises RuntimeError, here and elsewhere."""
        for each in self.lines:
            if (found := _handle(each)) is not None:
                with found, contextlib.suppress(OSError):  # the other end has closed it
                    found.shutdown(socket.SHUT_RDWR)
        self.lines = set()

    def __del__(self) -> None:
        # The collector may run this anywhere, also while a thread is being started. So it starts
        # none, and takes no lock: a queue of this kind may be used here.
        if getattr(self, "_held", None):  # otherwise the group could not be made
            self.shut()
            _closing.put(self._held)


_closing: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
_closers: list[threading.Thread] = []


def _close_groups() -> None:
    while (held := _closing.get()) is not None:
        held.clear()


def _start_closer() -> None:
    """Start the thread that closes groups, once in each process."""
    if not any(each.is_alive() for each in _closers):
        _closers[:] = [threading.Thread(target=_close_groups, name="fastgc-closes", daemon=True)]
        _closers[0].start()


@atexit.register
def _close_all() -> None:
    # The interpreter must not end while gloo closes sockets.
    if any(each.is_alive() for each in _closers):
        _closing.put(None)
        _closers[0].join(5.0)


def _sockets() -> set[_Socket]:
    """Return the open sockets of this process; none if the system does not list them."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                status = os.fstat(int(name))
                if stat.S_ISSOCK(status.st_mode):
                    found.add((int(name), status.st_ino))
    return found


def _handle(each: _Socket) -> socket.socket | None:
    """Return another handle of a socket, or None if another file, or none, has its descriptor."""
    try:
        fd = os.dup(each[0])
    except OSError:
        return None
    try:
        if os.fstat(fd).st_ino == each[1]:
            return socket.socket(fileno=fd)
    except OSError:
        pass
    os.close(fd)
    return None


def _ports(each: _Socket) -> list[int]:
    """Return the port of a socket, and that of its other end if it is connected."""
    found, ports = _handle(each), []
    if found is not None:
        with found, contextlib.suppress(OSError):
            if found.family in (socket.AF_INET, socket.AF_INET6):
                ports.append(found.getsockname()[1])
                ports.append(found.getpeername()[1])
    return ports
