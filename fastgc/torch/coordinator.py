"""The coordinator: it alone decides which ranks take part (`docs/extending/protocol.md`).

`Coordinator` is the protocol: messages and the time go in, messages come out. It reads no clock and
no socket, so that tests enumerate the code that runs. `Server` carries its messages over sockets,
in one thread, for any number of runs. It loads no PyTorch: a guard or ``python -m fastgc.store``
keeps it, which outlive ranks.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from .._base.deadline import Deadline

__all__ = ["Coordinator", "Server"]

_SETTLE = 3.0  # seconds to answer in, once somebody has waited for `hang` seconds already
_HANG = 60.0  # seconds that a silent rank is waited for, until ranks tell of another number
_SPEAK = 30.0  # seconds in which a connection must say who it is
_TAKE = 5.0  # seconds in which it must take a message
_LINE = 1 << 24  # most bytes of a message

Message = list[Any]  # what it is, and its numbers


class Life:
    """A process of a rank, from its first message until its connection closes."""

    def __init__(self, line: object, told: dict[str, Any]) -> None:
        self.line, self.name = line, str(told["life"])
        self.rank: int = -1 if told["rank"] is None else int(told["rank"])
        self.address = told["address"]  # where it takes the state
        self.holds = bool(told["holds"])  # whether it has the state, of `at` sums
        self.at = int(told["at"])
        self.last = int(told["view"])  # the last view in which it was
        self.asked = 0  # the last view for which it was asked where it is
        self.answered = 0  # the last one for which it said so
        self.boundary = self.waits = self.busy = False
        self.ready = bool(told["ready"])  # it has the state, has tried a step alone, and may enter
        self.source: Life | None = None  # who sends it the state
        self.got = False  # whether it has got the state, to try a step alone

    def __repr__(self) -> str:
        return f"rank {self.rank} ({self.name})"


class Coordinator:
    """Decides who takes part: one view at a time, with a life that holds the newest state.

    `send` is called with a life's line and a message; with None, it closes the line.
    """

    def __init__(self, send: Callable[[object, Message | None], None]) -> None:
        self._send = send
        self.lives: dict[object, Life] = {}
        self.number = 0  # of the newest view, or of the one that is being made
        self.view: list[Life] = []  # the lives of the newest view
        self._made: set[str] = set()  # names of the lives of the last view that was made
        self.gathering = False
        self.begun = False  # whether some life has held the state
        self.finished: int | None = None
        self._refused: dict[str, Message] = {}  # names of lives that may not go on, and why
        self._know: set[int] = set()  # ranks that were told of the end
        self.world = 1  # ranks that begin
        self._heard = 0  # the largest number of a view that a life has heard of
        self._last = 0  # after a restart: the number of the last view that was told
        self._awaited: set[str] = set()  # its lives
        self._limit: float | None = None  # until when answers are awaited
        self._alone: float | None = None  # since when nobody holds the state
        self._late = False  # whether somebody has waited for `hang` seconds
        self._hang, self._replace = _HANG, float("inf")

    # ------------------------------------------------------------------------------ what comes in

    def receive(self, line: object, message: Message, now: float) -> None:
        """Take a message of a line."""
        what, *told = message
        if what == "hello":
            self._hello(line, told[0], now)
            return
        life = self.lives.get(line)
        if life is None:
            return
        if what == "ping":
            self._send(line, ["pong"])
        elif what == "here":
            self._here(life, told[0])
        elif what == "holds":
            self._holds(life, now)
        elif what == "broken" and told[0] == self.number and not self.gathering:
            self._gather(now, late=bool(told[1]))
        elif what == "boundary" and told[0] == self.number and not self.gathering:
            self._gather(now)
        elif what == "got":
            life.got = True
        elif what == "unsent":
            for each in self.lives.values():
                if each.name == told[0] and each.source is life and not each.got:
                    each.source = None
        elif what == "warm":
            life.ready = True
            self._tell(self.view, ["admit", life.name])
        elif what == "busy":
            life.busy = bool(told[0])
        elif what == "hang":
            self._hang = float(told[0])
        elif what == "put":
            for each in self.view if told[0] == self.number and not self.gathering else ():
                self._send(each.line, message)
        elif what == "finish":
            self.finished = int(told[0])
            self._tell(list(self.lives.values()), ["finished", self.finished])
            self._know |= {each.rank for each in self.lives.values()}
        elif what == "refuse":
            names = self._made | self._awaited | {each.name for each in self.lives.values()}
            self._refused |= {name: ["refused", told[0]] for name in names}
            self._begin_anew(["refused", told[0]])
        elif what == "bye":
            others = [each for each in self.lives.values() if each is not life]
            self._tell(others, ["gone", life.rank, *told])
            self.closed(line, now)
            self._send(line, None)
        self._decide(now)

    def closed(self, line: object, now: float) -> None:
        """A line has closed: its life is dead."""
        life = self.lives.pop(line, None)
        if life is None:
            return
        for each in self.lives.values():
            if each.source is life and not each.got:
                each.source = None
        if life in self.view and self.finished is None:
            self.view.remove(life)
            self._gather(now)
        self._decide(now)

    def tick(self, now: float) -> None:
        """Time has passed."""
        self._decide(now)

    def until(self) -> float | None:
        """Return when `tick` is due, None if there is nothing to wait for."""
        waits = [self._limit if self.gathering else None]
        if self._alone is not None:
            waits.append(self._alone + self._grace())
        return min((each for each in waits if each is not None), default=None)

    @property
    def awaits(self) -> bool:
        """Whether a rank has not been told of the end: it died, and may be starting again."""
        return self.finished is not None and len(self._know) < self.world

    # ---------------------------------------------------------------------------------- messages

    def _hello(self, line: object, told: dict[str, Any], now: float) -> None:
        life = Life(line, told)
        if life.name in self._refused:
            self._send(line, self._refused[life.name])
            return
        self._hang = float(told.get("hang") or self._hang)
        if told.get("replace") is not None:
            self._replace = float(told["replace"])
        if told.get("world"):
            self.world = max(self.world, int(told["world"]))
        taken = {each.rank: each for each in self.lives.values()}
        if life.rank < 0:
            life.rank = next(r for r in range(len(taken) + 1) if r not in taken)
        for older in [e for e in self.lives.values() if life.rank == e.rank]:
            self._leave(older, "another process of the same rank has taken its place", now)
        if self.finished is not None:
            self._send(line, ["finished", self.finished])
            self._know.add(life.rank)
            return
        if life.holds and not self._may_return(life):
            self._send(line, ["left", "the others went on without this rank meanwhile"])
            return
        self.lives[line] = life
        self._send(line, ["welcome", life.rank])
        self._heard = max(self._heard, int(told["number"]))
        if not self.view and life.last > self._last:  # this coordinator is new
            self._last, self._awaited = life.last, set(told["lives"])
        begins = not self.begun and (self.gathering or len(self.lives) >= self.world)
        if life.holds:  # its connection broke, or this coordinator is new
            self.begun = True
            self._gather(now)
        elif begins or (self.gathering and self._heard >= self.number):  # numbers are used once
            self._gather(now)
        elif self.gathering and self._takes_part(life):
            self._ask(life)
        self._decide(now)

    def _may_return(self, life: Life) -> bool:
        """Whether a life that holds a state, and lost its connection, still belongs to the view."""
        if not self.begun or not self.number:
            return True
        if self._made:
            return self.gathering and life.name in self._made
        return life.name in self._awaited or (self.gathering and life.last >= self._last)

    def _holds(self, life: Life, now: float) -> None:
        life.holds = self.begun = True
        if self.gathering and life.asked != self.number:
            self._ask(life)  # this coordinator is new, and took the life for a newcomer
        elif not self.gathering and not self.view:
            self._gather(now)
        elif not self.gathering and life not in self.view:
            self._leave(life, "the others went on without this rank meanwhile", now)

    def _here(self, life: Life, told: dict[str, Any]) -> None:
        if int(told["view"]) != self.number:
            return
        life.answered = self.number
        life.at, life.holds = int(told["at"]), bool(told["holds"])
        life.boundary, life.waits = bool(told["boundary"]), bool(told["waits"])
        self.begun |= life.holds

    def _gather(self, now: float, late: bool = False) -> None:
        """Ask the lives that take part where they are, to make a new view of them."""
        if self.finished is not None:
            return
        self.number = max(self.number, self._heard) + 1
        self.gathering, self._late = True, late or (self.gathering and self._late)
        self._limit = now + (min(_SETTLE, self._hang) if self._late else self._hang)
        for each in self.lives.values():
            if self._takes_part(each):
                self._ask(each)

    def _takes_part(self, life: Life) -> bool:
        """Whether a life may be in the next view: all but newcomers that have no state yet."""
        known = life in self.view or life.name in self._awaited
        return not self.begun or life.holds or life.ready or known

    def _ask(self, life: Life) -> None:
        life.asked = self.number
        self._send(life.line, ["gather", self.number])

    def _tell(self, lives: list[Life], message: Message | None) -> None:
        for each in lives:
            self._send(each.line, message)

    def _leave(self, life: Life, why: str, now: float) -> None:
        """Leave a life out, and say why."""
        self._send(life.line, ["left", why])
        self._send(life.line, None)
        if life in self.view:
            self.view.remove(life)
            if not self.gathering:
                self._gather(now)
        self.lives.pop(life.line, None)

    # ----------------------------------------------------------------------------------- deciding

    def _grace(self) -> float:
        return max(self._hang, self._replace if self._replace != float("inf") else 0.0)

    def _decide(self, now: float) -> None:
        if self.finished is not None:
            return
        if self.begun:
            self._serve_newcomers(now)
        if not self.gathering:
            return
        over = self._limit is not None and now >= self._limit
        asked = [each for each in self.lives.values() if each.asked == self.number]
        silent = [each for each in asked if each.answered != self.number]
        absent = self._awaited - {each.name for each in self.lives.values()}
        if (silent or absent) and not over:
            return
        for each in silent:
            self._leave(each, f"it did not answer within {self._hang:g} s", now)
        here = [each for each in asked if each.answered == self.number]
        if not self.begun:
            if len(here) >= self.world:
                self._make(here)
            return
        holders = [each for each in here if each.holds]
        if not holders:
            return
        apart = [e for e in holders if e.last < self._last and e.name not in self._awaited]
        for each in apart if len(apart) < len(holders) else ():
            self._leave(each, "the others went on without this rank meanwhile", now)
            holders.remove(each)
        newest = max(each.at for each in holders)
        for each in [each for each in holders if each.at < newest - 1]:
            self._leave(each, "it holds an older state than the others", now)
            holders.remove(each)
        if self._late:
            hung = [each for each in holders if not each.waits and not each.busy]
            for each in hung if len(hung) < len(holders) else ():
                self._leave(each, f"the others waited for it for {self._hang:g} s", now)
                holders.remove(each)
        ready: list[Life] = []
        if all(each.boundary for each in holders):
            ready = [each for each in here if each.ready and not each.holds]
        self._make(holders + ready)

    def _make(self, lives: list[Life]) -> None:
        self.gathering, self._late, self._limit = False, False, None
        self._made, self._last, self._awaited = {each.name for each in lives}, 0, set()
        self.view = sorted(lives, key=lambda each: each.rank)
        told = [[each.rank, each.name, each.address] for each in self.view]
        waiting = [e.name for e in self.lives.values() if e.ready and e not in self.view]
        self._tell(self.view, ["view", self.number, told, waiting])

    def _begin_anew(self, message: Message) -> None:
        """Tell all lives why they end. The next ones begin anew, from a checkpoint."""
        for told in (message, None):  # None closes the line
            self._tell(list(self.lives.values()), told)
        self.lives, self.view, self._awaited = {}, [], set()
        self.begun, self._alone, self.gathering = False, None, False

    def _serve_newcomers(self, now: float) -> None:
        """Have a life of the view send its state to each newcomer; or say that nobody has it."""
        standing = [each for each in self.view if each.holds]
        newcomers = [e for e in self.lives.values() if not (e.holds or e.ready or e in self.view)]
        if standing or any(each.holds for each in self.lives.values()):
            self._alone = None
        elif self._alone is None:
            self._alone = now
        elif now >= self._alone + self._grace():
            self._begin_anew(["lost", "nobody who held the state of the run is left"])
            return
        for each in newcomers:
            if each.source is None and not each.got and standing:
                counts = [e.source for e in newcomers]
                each.source = min(standing, key=lambda s: (counts.count(s), -s.rank))
                self._send(each.line, ["newcomer"])
                self._send(each.source.line, ["fetch", each.name, each.address])


class Server:
    """Coordinators behind a socket: one for each run, by the name that ranks tell."""

    def __init__(self, host: str = "", port: int = 0) -> None:
        self._listener = socket.create_server((host, port), backlog=4096)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._lines: dict[socket.socket, _Line] = {}
        self._runs: dict[str, Coordinator] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Server:
        """Serve in a thread."""
        self._thread = threading.Thread(target=self.run, name="fastgc-coordinator", daemon=True)
        self._thread.start()
        return self

    @property
    def connected(self) -> int:
        """The number of lives that are connected."""
        return sum(len(each.lives) for each in list(self._runs.values()))

    def run(self) -> None:
        """Serve until `close`."""
        while not self._over.is_set():
            now = time.monotonic()
            dues = [each for run in self._runs.values() if (each := run.until()) is not None]
            wait = max(0.0, min([1.0, *(each - now for each in dues)]))
            for key, _ in self._selector.select(wait):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._read(key.data)
            now = time.monotonic()
            for line in list(self._lines.values()):
                if line.run is None and not line.speak.left:
                    self._drop(line)
            for run in self._runs.values():
                run.tick(now)
        for line in list(self._lines.values()):
            self._drop(line)
        self._listener.close()
        self._selector.close()

    def drain(self, seconds: float, guarded: bool = False) -> None:
        """Wait until no life is connected, for at most `seconds`.

        If guards start ranks again, wait also for those that died, which would look for it in vain.
        """
        end = Deadline(seconds)
        while self.connected or (guarded and any(e.awaits for e in list(self._runs.values()))):
            if not end.sleep(0.02):
                break

    def close(self) -> None:
        """End, and close all connections."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _accept(self) -> None:
        try:
            made = self._listener.accept()[0]
        except OSError:  # too many open files: close who has said nothing
            for line in [e for e in self._lines.values() if e.run is None]:
                self._drop(line)
            return
        made.settimeout(_TAKE)
        keep_alive(made)
        self._lines[made] = line = _Line(made)
        self._selector.register(made, selectors.EVENT_READ, line)

    def _read(self, line: _Line) -> None:
        try:
            got = line.socket.recv(1 << 16)
        except OSError:
            got = b""
        line.left += got
        *whole, line.left = line.left.split(b"\n")
        if not got or len(line.left) > _LINE:
            self._lost(line)
            return
        for each in whole:
            try:
                message = json.loads(each)
                if line.run is None:
                    line.run = self._run_of(message)
                line.run.receive(line, message, time.monotonic())
            except (ValueError, KeyError, TypeError, IndexError):  # not of ours
                self._lost(line)
                return

    def _run_of(self, message: Message) -> Coordinator:
        if message[0] != "hello":
            raise ValueError
        return self._runs.setdefault(str(message[1]["run"]), Coordinator(self._write))

    def _write(self, line: Any, message: Message | None) -> None:
        if message is None:
            self._drop(line)
            return
        try:
            line.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:  # its end is read next
            with contextlib.suppress(OSError):
                line.socket.shutdown(socket.SHUT_RDWR)

    def _lost(self, line: _Line) -> None:
        self._drop(line)
        if line.run is not None:
            line.run.closed(line, time.monotonic())

    def _drop(self, line: _Line) -> None:
        if self._lines.pop(line.socket, None) is not None:
            self._selector.unregister(line.socket)
            line.socket.close()


def keep_alive(made: socket.socket) -> None:
    """Have the kernel notice within about 6 seconds that the other end's host has vanished."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 5)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Line:
    """A connection."""

    def __init__(self, made: socket.socket) -> None:
        self.socket, self.left, self.speak = made, b"", Deadline(_SPEAK)
        self.run: Coordinator | None = None
