"""Views: sets of ranks that take part, each with a process group that they share.

`agreement` decides who takes part. One thread of each rank looks at the store and at the other
ranks' sockets, and carries out what `agreement.decide` returns; a second thread builds groups. So a
rank also answers while its main thread computes, or while a group is built in vain. When the main
thread wants to all-reduce, the group is ready. No step uses the store. A rank that has written to
the store sends the others an empty datagram, so that they look at once. If the datagram is lost,
they look a little later.

How a rank knows that another is gone: each rank listens, and every other rank holds an idle
connection to it. The kernel keeps the connection open while the process is stopped or holds the
GIL, and closes it when the process ends. A connection may also break by itself. So a rank whose
connection was closed connects again, and takes the other rank for dead only if that is refused.
Gloo's own sockets close as well. A rank that sees this drops the group, which closes its own
sockets, too, so that nobody goes on waiting for data. Forks of a rank, such as the workers of a
DataLoader, let go of all these sockets, because they may outlive the rank.

A group is made from scratch, in 3 ms for five ranks of one machine. Tried: PyTorch 2.14 can remake
an existing group (`torch.distributed._reconfigure`). That takes 23 ms, because it closes the old
group first.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import math
import os
import selectors
import socket
import stat
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from ..errors import FinishedError, LeftOutError
from .agreement import (
    Answer,
    Begin,
    Build,
    End,
    Life,
    Own,
    Record,
    Replace,
    Say,
    Seen,
    Wait,
    decide,
)

dist: Any = torch.distributed  # type checkers do not see all that it exports

_LOOK = 0.03  # seconds between looks while nothing changes
_LATE = 0.9  # after this share of its patience, a rank has waited in vain
_AWAY = 1.0  # if more seconds pass between looks, this process itself was stopped or held
_BUILD = 10.0  # most seconds for each wait while a group is built, which takes milliseconds
_REACH = 5.0  # most seconds for a connection

_Socket = tuple[int, int]  # its descriptor, and its inode's number, which no later socket has


class BrokenGroupError(Exception):
    """A member is gone or late: a new view follows."""


class View:
    """The ranks that take part, ascending, and their group.

    `number` is the epoch of the view's record. `seconds` is the time from when this rank knew of
    the change until the group was ready.
    """

    def __init__(
        self, number: int, ranks: list[int], group: Any, members: Members, seconds: float
    ) -> None:
        self.number, self.ranks, self.seconds = number, ranks, seconds
        self._group, self._members = group, members

    def sum(self, tensor: torch.Tensor, patience: float | None = None) -> None:
        """Sum over all ranks, in place. All get the same bits, because one rank sums each number.

        Wait for others for `patience` seconds at most, but not beyond the deadline (the default).
        """
        self._do(lambda group, seconds: group.sum(tensor, seconds), patience)

    def copy(self, tensor: torch.Tensor, rank: int) -> None:
        """Copy `rank`'s tensor to all ranks."""
        root = self.ranks.index(rank)
        self._do(lambda group, seconds: group.copy(tensor, root, seconds))

    def _do(self, what: Callable[[Any, float], None], patience: float | None = None) -> None:
        members = self._members
        patience = members.deadline if patience is None else min(patience, members.deadline)
        members.wait_for_others(patience)
        try:
            what(self._group, patience)
        except RuntimeError as error:  # raised by gloo
            self.leave()
            raise BrokenGroupError from error
        members.since = None

    def leave(self) -> None:
        """Leave the group, which is broken: that closes this rank's sockets."""
        self._group = None
        self._members.failed(self.number)


class Members:
    """A rank's part in the agreement on who takes part.

    Nothing else uses the `store`. ``enough(ranks)`` says whether these ranks, of all `count`, can
    do without the others. Ranks wait `deadline` seconds for a rank that is alive but silent. If one
    of them has already waited that long, the others wait only `settle` seconds more.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        count: int,
        enough: Callable[[list[int]], bool],
        deadline: float,
        settle: float,
    ) -> None:
        self.deadline, self._settle = deadline, settle
        # When the main thread began to wait for others; None while it does something else.
        self.since: float | None = None
        self._patience = deadline  # seconds of that wait
        # Set by `join`: what this rank knows of itself, the view while it has one, why it takes
        # part no longer, and the last epoch to which it answered, with the first answer's time.
        self.own: Own
        self.present: View | None
        self.error: Exception | None
        self.answered: tuple[int, float]
        self._board = Board(store)
        self._rank, self._count, self._enough = rank, count, enough
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._builder: threading.Thread | None = None

    def join(self) -> None:
        """Ask to take part, from the next view on."""
        self.close()
        self._lines = Lines(min(_REACH, self.deadline / 3))
        self.own = Own(Life(self._rank, 0))  # until the store gives its life a number
        self._record: Record | None = None
        self.present = self.error = None
        self._made: tuple[int, Any] | None = None
        self._unrest: float | None = time.monotonic()  # since when this rank has no group
        self.answered = (-1, 0.0)
        self._looked = time.monotonic()
        self._away = 0.0  # seconds for which this process was stopped, or its interpreter held
        self._over.clear()
        self.start()

    def start(self) -> None:
        """Start the thread that agrees with the others."""
        self._thread = threading.Thread(target=self._run, name="fastgc-members", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave, and close the sockets."""
        self._over.set()
        if self._thread is not None:
            self._lines.wake()
        for thread in (self._thread, self._builder):
            if thread is not None:
                thread.join(1.0)  # it lives on only if the store, or a peer, does not answer
        if self._thread is not None:
            self._lines.close()
        with self._changed:
            self.present = self._thread = self._builder = self._made = None
            self._changed.notify_all()
        self.since = None

    def wait_for_others(self, seconds: float) -> None:
        """Begin a wait for other ranks, of at most `seconds`."""
        self._patience, self.since = seconds, self.clock()

    def clock(self) -> float:
        """Return the time that counts as waiting, in seconds: without that of being away.

        A process that was stopped cannot know whether others were silent then: they may have been
        stopped as well.
        """
        return time.monotonic() - self._away

    def failed(self, number: int) -> None:
        """Tell the agreement that the group of view `number` is broken."""
        with self._changed:
            self.own = self.own._replace(broken=max(self.own.broken, number))
        self._lines.wake()

    def view(self) -> View:
        """Return the present view, or the next one if the present one is broken.

        If this rank takes part no longer, raise the error that says why (`_explained`). Raise
        RuntimeError if there is no view within twice the deadline, or if the store is gone.
        """
        if self.since is None:
            self.wait_for_others(self.deadline)

        def there() -> View | None:
            view = self.present
            return None if view is None or view.number <= self.own.broken else view

        view: View = self.wait_until(there, "there is no group of ranks")
        self.wait_for_others(self.deadline)
        return view

    def hold(self, view: View) -> None:
        """Tell the agreement that this rank holds the state, and wait until the record says so.

        The rank got the state from another, or found that all ranks begin with the same. If the
        view was replaced before the record named carriers, raise BrokenGroupError: training has
        not begun.
        """
        with self._changed:
            if self._record is not None:
                founded = self._record.epoch == view.number and bool(self._record.carriers)
                holds = self.own.holds or founded
                self.own = self.own._replace(compared=view.number, holds=holds)

        def known() -> bool:
            if self.own.holds:
                return True
            if self._record is not None and self._record.epoch != view.number:
                raise BrokenGroupError
            return False

        self._lines.wake()
        self.wait_until(known, "nobody could write down that training begins")

    def finish(self, step: int) -> None:
        """Tell the agreement that the run has ended, and wait until the record says so.

        Raise LeftOutError if the others ended without this rank, RuntimeError if the store is gone.
        """
        with self._changed:
            self.own = self.own._replace(finished=step)
        self._lines.wake()
        with contextlib.suppress(FinishedError):
            self.wait_until(lambda: False, "nobody could write down that the run ended")

    def wait_until(self, found: Callable[[], Any], otherwise: str) -> Any:
        """Wait until `found` returns something, and return it; `otherwise` begins the error."""
        until = time.monotonic() + 2 * self.deadline
        with self._changed:
            while not (value := found()):
                if self.error is not None:
                    raise self.error
                if self._thread is None:
                    raise RuntimeError("this rank has left: nothing can be reduced any more")
                if (left := until - time.monotonic()) <= 0:
                    raise RuntimeError(f"{otherwise} after {2 * self.deadline:g} s: {self._why()}")
                self._changed.wait(left)
            return value

    def _why(self) -> str:
        if time.monotonic() - self._looked > self.deadline / 2:
            return "the store by which ranks agree does not answer"
        return self._lines.report() or "ranks that are alive do not answer"

    # ------------------------------------------------------------------------------- the thread's

    def _run(self) -> None:
        lines = self._lines
        try:
            self.begin()
            while not self._over.is_set() and self.error is None:
                seen = self.move()
                if seen is not None:
                    lines.wait(_LOOK / 3 if seen.begun else _LOOK)
        except Exception as error:  # raised by the store; the present group works without it
            text = (str(error) or type(error).__name__).splitlines()[0]
            with self._changed:
                self.error = RuntimeError(f"the store by which ranks agree cannot be used: {text}")
                self._changed.notify_all()
        finally:
            lines.close()

    def begin(self) -> None:
        """Begin a life."""
        life = self._board.start(self._rank, self._lines.address)
        with self._changed:
            self.own = Own(life)

    def move(self) -> Seen | None:
        """Look, decide and act. Return what was seen if there was nothing to do."""
        seen = self._look()
        action = decide(self._now(seen), seen, self._enough)
        if isinstance(action, Wait):
            return seen
        if isinstance(action, End):
            with self._changed:
                self.present, self.error = None, self._explained(action, seen)
                self._changed.notify_all()
        else:
            self._carry_out(action, seen)
        return None

    def _look(self) -> Seen:
        """Return what this rank sees. While nothing changes, read only whether a change began."""
        board, record = self._board, self._record
        if (passed := time.monotonic() - self._looked) > _AWAY:
            self._away += passed
        dead = self._lines.dead()
        begun = board.has_begun(0 if record is None else record.epoch)
        self._take_group(begun)
        own = self.own
        if (
            record is not None
            and own.life in record.members
            and not begun
            and own.broken < record.epoch
            and own.finished is None
            and (own.holds or own.compared < record.epoch)
            and dead.isdisjoint(record.members)
        ):
            # `decide` can only wait or build. The members' own numbers may stand for the newest
            # lives, because a newer life of a member begins a change itself.
            numbers = dict(record.members)
            self._looked = time.monotonic()
            return Seen(
                record, False, tuple(numbers.get(r, 0) for r in range(self._count)), dead=dead
            )
        record = board.record()
        epoch = 0 if record is None else record.epoch
        if record != self._record:
            self._take_record(record)
            begun = board.has_begun(epoch)
        newest = board.newest(self._count)
        lives = {Life(r, number) for r, number in enumerate(newest) if number}
        answers = board.answers(epoch, lives)
        self._lines.watch(
            lives.union(() if record is None else record.members) - {own.life}, board.address
        )
        self._looked = time.monotonic()
        passed = self.clock() - self.answered[1] if self.answered[0] == epoch else 0.0
        return Seen(
            record,
            begun,
            newest,
            answers,
            self._lines.dead(answers, epoch),
            self._lines.refusing(answers),
            settled=passed > self._settle,
            over=passed > self.deadline,
        )

    def _take_record(self, record: Record | None) -> None:
        with self._changed:
            self._record = record
            if record is not None and self.own.life in record.carriers:
                self.own = self.own._replace(holds=True)
            self._changed.notify_all()

    def _take_group(self, begun: bool) -> None:
        """Make a view of the group that was built, if its epoch is still the record's."""
        with self._changed:
            made, record = self._made, self._record
            if made is None or record is None or made[0] != record.epoch:
                return
            self._made = None
            if made[1] is None:
                self.own = self.own._replace(broken=record.epoch)
            elif not begun:
                now = time.monotonic()
                passed = 0.0 if self._unrest is None else now - self._unrest
                self._unrest = None
                ranks = [life.rank for life in record.members]
                self.present = View(record.epoch, ranks, made[1], self, passed)
            self._changed.notify_all()

    def _now(self, seen: Seen) -> Own:
        """Return what this rank knows of itself, and would answer now."""
        cut_off = self._lines.cut_off(self._count, seen.answers, self.present is not None)
        with self._changed:
            own, since = self.own, self.since
            if cut_off and self._lines.lacks_files:
                cut_off = tuple(sorted({*cut_off, own.life}))
            waited = 0.0 if since is None else self.clock() - since
            return own._replace(
                answer=Answer(
                    waits=since is not None,
                    in_vain=waited > _LATE * self._patience,
                    cut_off=cut_off,
                )
            )

    def _carry_out(self, action: Build | Say | Begin | Replace, seen: Seen) -> None:
        life = self.own.life
        if isinstance(action, Build):
            with self._changed:
                self.own = self.own._replace(built=seen.epoch)
            self.build(action.record, life)
        elif isinstance(action, Say):
            with self._changed:
                self.present = None  # closes the group's sockets, unless the main thread uses them
                self._unrest = self._unrest or time.monotonic()
            if self.answered[0] != seen.epoch:
                self.answered = (seen.epoch, self.clock())
            self._board.answer(seen.epoch, life, action.answer)
            members = () if seen.record is None else seen.record.members
            here = (each for each in members if not seen.gone(each))
            self._lines.call(itertools.islice(here, 1))  # the one that most often replaces it
        elif isinstance(action, Begin):
            self._board.begin(seen.epoch)
            self._lines.call()
        else:
            self._board.replace(seen.record, action.record)
            self._lines.call()

    def build(self, record: Record, life: Life) -> None:
        """Build the group in its own thread, because that takes long if a member has died."""
        lives, lines = record.members, self._lines

        def build() -> None:
            # The limit of each wait in gloo, which tries five times to reach a silent member.
            seconds = min(_BUILD, self.deadline / 3)
            before = sockets_open()
            try:
                store = self._board.lend(seconds)
                before = sockets_open()  # now with the connection to the store, if it is new
                apart = dist.PrefixStore(f"group/{record.epoch}", store)
                group = Group(apart, lives.index(life), len(lives), lines.host, seconds)
                self._board.give_back(store)
            except Exception:  # a member died, or does not answer
                group = None
            lines.hold(opened := sockets_open() - before)
            if group is not None:
                group.note(opened)
            self.note_group(record.epoch, group)
            lines.wake()

        self._builder = threading.Thread(target=build, name="fastgc-group", daemon=True)
        self._builder.start()

    def note_group(self, epoch: int, group: Any) -> None:
        """Note the group that was built for an epoch; None if it could not be."""
        with self._changed:
            if not self._over.is_set():
                self._made = (epoch, group)

    def _explained(self, end: End, seen: Seen) -> Exception:
        """Return the exception that tells the user why this rank takes part no longer."""
        record, rank = seen.record, self._rank
        if end is End.LEFT_OUT:
            return LeftOutError(
                f"rank {rank} did not answer in time, and the others went on without it: its "
                "parameters are out of date; join() gets those of the others"
            )
        if end is End.SHUT_OUT:
            return LeftOutError(
                f"rank {rank} and others cannot reach each other, and these went on without it: "
                f"{self._lines.report() or 'they do not reach it'}"
            )
        if end is End.REPLACED:
            return RuntimeError(
                f"rank {rank} was started again, and the newer process took its place"
            )
        if end is End.LOST:
            return RuntimeError(
                "the state of the training is lost: no rank that held it can be reached; start all "
                "ranks again, from a checkpoint, with a new store"
            )
        assert record is not None
        return FinishedError(
            f"the run ended at step {record.finished}: there is nothing that rank {rank} could "
            "join; to train on, start all ranks with a new store"
        )


class Board:
    """The keys of the store that ranks write and read."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._spare: list[Any] = []  # stores of groups that are built, for the next ones
        self._epoch, self._there = -1, set[str]()  # the last epoch, and the keys found in it

    def start(self, rank: int, address: _Address) -> Life:
        """Begin a rank's next life, which others reach at this address."""
        life = Life(rank, int(self._store.add(f"lives/{rank}", 1)))
        self._store.set(self._key("address", life), json.dumps(address))
        return life

    def newest(self, count: int) -> tuple[int, ...]:
        """Return the number of each rank's newest life."""
        keys = [f"lives/{rank}" for rank in range(count)]
        for key in set(keys) - self._there:
            self._store.add(key, 0)  # create it: reading a missing key would block
        self._there.update(keys)
        return tuple(map(int, self._store.multi_get(keys)))

    def address(self, life: Life) -> _Address | None:
        """Return the address of a life, or None if it told none."""
        found = self._read([self._key("address", life)])[0]
        return None if found is None else (found[0], found[1], found[2])

    def has_begun(self, epoch: int) -> bool:
        """Whether the record of an epoch is to be replaced."""
        return bool(self._store.check([f"begun/{epoch}"]))

    def begin(self, epoch: int) -> None:
        """Say that the record of an epoch is to be replaced."""
        self._store.set(f"begun/{epoch}", b"1")

    def answer(self, epoch: int, life: Life, answer: Answer) -> None:
        """Write a life's answer to an epoch."""
        self._store.set(self._key(f"answer/{epoch}", life), json.dumps(answer))

    def answers(self, epoch: int, lives: Iterable[Life]) -> dict[Life, Answer]:
        """Return the answers of these lives to an epoch, as far as there are any."""
        if epoch != self._epoch:
            self._epoch, self._there = epoch, set()
        found, lives = {}, list(lives)
        said = self._read([self._key(f"answer/{epoch}", life) for life in lives])
        for life, each in zip(lives, said, strict=True):
            if each is not None:
                holds, waits, in_vain, cut_off = each
                found[life] = Answer(holds, waits, in_vain, _lives(cut_off))
        return found

    def record(self) -> Record | None:
        """Return the record; None before the first."""
        found = self._read(["record"])[0]
        if found is None:
            return None
        epoch, members, carriers, finished, shut_out = found
        return Record(epoch, _lives(members), _lives(carriers), finished, _lives(shut_out))

    def replace(self, old: Record | None, new: Record) -> None:
        """Replace the record, if it is still the old one."""
        expected = "" if old is None else json.dumps(old)
        self._store.compare_set("record", expected, json.dumps(new))

    def lend(self, seconds: float) -> Any:
        """Return a store to build a group with; its waits do not block this one."""
        if self._spare:
            store = self._spare.pop()
        else:
            store = self._store.clone() if hasattr(self._store, "clone") else self._store
        store.set_timeout(timedelta(seconds=seconds))
        return store

    def give_back(self, store: Any) -> None:
        """Keep the store of a group that is built, so that the next one needs no new connection."""
        self._spare.append(store)

    def _read(self, keys: list[str]) -> list[Any]:
        """Return what the `keys` hold; None for a key that is not written yet."""
        self._there.update(k for k in keys if k not in self._there and self._store.check([k]))
        there = [key for key in keys if key in self._there]
        found = dict(zip(there, self._store.multi_get(there), strict=True)) if there else {}
        return [json.loads(found[key]) if key in found else None for key in keys]

    @staticmethod
    def _key(what: str, life: Life) -> str:
        return f"{what}/{life.rank}/{life.number}"


def _lives(found: Iterable[Any]) -> tuple[Life, ...]:
    return tuple(Life(*each) for each in found)


class Lines:
    """Idle connections to the other ranks' lives, by which the kernel tells who is gone.

    Nobody accepts the connections. The kernel completes each one by itself, and keeps it in the
    listener's queue. So they need nothing from a rank that is busy, stopped or out of file
    descriptors.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience  # seconds for a connection
        self.host, family = _own_host()
        self._listener, self._ear = socket.socket(family), socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._listener.bind((self.host, 0))
            self._listener.listen(4096)
            self._ear.bind((self.host, 0))
            self._ear.setblocking(False)
        except BaseException:
            self._listener.close()
            self._ear.close()
            raise
        ports = self._listener.getsockname()[1], self._ear.getsockname()[1]
        self.address: _Address = (self.host, *ports)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._sockets: dict[Life, socket.socket] = {}
        self._begun: dict[Life, float] = {}  # when each pending connection was begun
        self._addresses: dict[Life, _Address] = {}
        self._closed: set[Life] = set()  # lives whose connection closed, until a new one is made
        # Lives that closed a connection and refused the next, each with the epoch in which this was
        # noticed (inf: in none yet).
        self._dead: dict[Life, float] = {}
        # Lives that refuse a connection but closed none (gone, or behind a firewall): since when.
        self._refused: dict[Life, float] = {}
        self._cut: dict[Life, str] = {}  # lives that this rank cannot reach, and why
        self._of_groups: set[_Socket] = set()
        _all_lines.add(self)

    def hold(self, opened: set[_Socket]) -> None:
        """Note a group's sockets: those to other ranks, of all `opened` while it was made."""
        hosts = {self.host, *(host for host, *_ in self._addresses.values())}
        self._of_groups &= sockets_open()
        self._of_groups |= {each for each in opened if host_of(each, own=True) in hosts}

    def let_go(self) -> None:
        """In a fork: release all sockets by which others would take the rank for alive."""
        held = self._of_groups & sockets_open()
        own = [self._listener, self._ear, *self._sockets.values()]
        null = os.open(os.devnull, os.O_RDWR)
        # Their numbers stay in use, for /dev/null: the objects that own them close them once more.
        for fd in {*(fd for fd, _ in held), *(each.fileno() for each in own)} - {-1}:
            os.dup2(null, fd, inheritable=False)
        os.close(null)

    def call(self, lives: Iterable[Life] | None = None) -> None:
        """Make these lives look at the store; by default all that are watched."""
        for life in list(self._sockets) if lives is None else lives:
            if life in self._addresses:
                self._send(self._addresses[life])

    def wake(self) -> None:
        """End a wait of this rank's thread, from another thread."""
        self._send(self.address)

    def _send(self, address: _Address) -> None:
        with contextlib.suppress(OSError):  # closed, or full: then it was called before
            self._ear.sendto(b"", (address[0], address[2]))

    def wait(self, seconds: float) -> None:
        """Wait until a life has died or this rank is called, for at most `seconds`."""
        until, dead, called = time.monotonic() + seconds, set(self._dead), False
        while not called and set(self._dead) == dead and (left := until - time.monotonic()) > 0:
            called = self._events(left)
        with contextlib.suppress(OSError):
            while called:  # take all datagrams, until there is none
                self._ear.recv(1)

    def _events(self, seconds: float) -> bool:
        """Handle sockets' first events within `seconds`; return whether this rank is called."""
        called = False
        for key, events in self._selector.select(seconds):
            if key.data is None:
                called = True
            else:
                self._event(key.data, events)
        return called

    def watch(self, lives: set[Life], address: Callable[[Life], _Address | None]) -> None:
        """Hold connections to these lives, and no others."""
        for life in set(self._sockets) - lives:
            self._drop(life)
        for life in lives - set(self._sockets) - set(self._dead):
            found = address(life)
            if found is not None:
                self._connect(life, found)

    def dead(self, answers: Collection[Life] = (), epoch: int | None = None) -> frozenset[Life]:
        """Return the lives that died or left, and those that are `refusing`.

        A life that died may have answered to the epoch in which it died, but to no later one. So a
        life that refuses connections, and answers to a later epoch, is alive.
        """
        self._events(0)
        now = time.monotonic()
        for life, begun in list(self._begun.items()):
            if now - begun > self._patience:
                self._lose(life, "no connection")
        if epoch is not None:
            for life, noticed in list(self._dead.items()):
                self._dead[life] = min(noticed, epoch)
                if life in answers and epoch > noticed:  # alive, behind a firewall
                    del self._dead[life]
                    self._closed.discard(life)
        return frozenset(self._dead) | self.refusing(answers)

    def refusing(self, answers: Collection[Life] = ()) -> frozenset[Life]:
        """Return lives that were never reached, refuse connections for long, and do not answer."""
        now = time.monotonic()
        refused = {r for r, since in self._refused.items() if now - since > self._patience}
        return frozenset(refused.difference(answers))

    def cut_off(self, count: int, answers: Collection[Life], grouped: bool) -> tuple[Life, ...]:
        """Return the lives that this rank cannot reach: all, if it cannot open `count` sockets.

        A life that refuses connections is included before it answers, so that a rank that reads
        both answers knows of the cut. If it is dead, it gives no answer, and its inclusion changes
        nothing. A lack of file descriptors is remembered until this rank is `grouped`: an attempt
        to make a group may have failed for the lack, and then freed descriptors.
        """
        others = set(self._sockets) | set(self._cut)
        if grouped:
            for life in set(self._sockets) - set(self._begun):
                if self._cut.get(life) in _NO_FILES:
                    del self._cut[life]
        for life in set(self._refused).intersection(answers):
            self._cut[life] = "connections are refused"
        with contextlib.ExitStack() as opened:
            try:
                for _ in range(count):
                    opened.enter_context(socket.socket())
            except OSError as error:
                for life in others:
                    self._cut.setdefault(life, error.strerror or str(error))
        return tuple(sorted(set(self._cut).union(self._refused) - set(self._dead)))

    @property
    def lacks_files(self) -> bool:
        """Whether this rank cannot reach others because it has no file descriptors."""
        return not _NO_FILES.isdisjoint(self._cut.values())

    def report(self) -> str:
        """Return in words which ranks this rank cannot reach, and why."""
        return "; ".join(f"rank {life.rank}: {why}" for life, why in sorted(self._cut.items()))

    def close(self) -> None:
        """Close all sockets, which the others see. A second call does nothing."""
        if self._listener.fileno() < 0:
            return
        for life in list(self._sockets):
            self._drop(life)
        self._selector.close()
        self._listener.close()
        self._ear.close()

    def _connect(self, life: Life, address: _Address) -> None:
        try:
            made = socket.socket(self._listener.family)
        except OSError as error:  # too many open files
            self._cut[life] = error.strerror or str(error)
            return
        made.setblocking(False)
        # A host that vanishes without closing its sockets is noticed after about 6 seconds.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 5)):
            if hasattr(socket, option):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._sockets[life] = made
        self._addresses[life] = address
        self._begun[life] = time.monotonic()
        self._selector.register(made, selectors.EVENT_READ | selectors.EVENT_WRITE, life)
        code = made.connect_ex(address[:2])
        if code not in (0, errno.EINPROGRESS):
            self._fail(life, code)

    def _event(self, life: Life, events: int) -> None:
        made = self._sockets[life]
        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._fail(life, code)
        elif events & selectors.EVENT_READ:  # its end: nothing is ever sent
            try:
                ended = made.recv(1) == b""
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(life, error.errno or errno.ECONNRESET)
                return
            if ended:
                self._fail(life, errno.ECONNRESET)
        else:  # connected
            self._begun.pop(life, None)
            self._cut.pop(life, None)
            self._refused.pop(life, None)
            self._closed.discard(life)
            self._selector.modify(made, selectors.EVENT_READ, life)

    def _fail(self, life: Life, code: int) -> None:
        # A closed connection is made once more. If that is refused, the life is dead; a refusal
        # without a closed connection may be a firewall's. Other errors cut it off, for now.
        if code == errno.ECONNREFUSED and life in self._closed:
            self._dead[life] = math.inf
            self._cut.pop(life, None)
            self._drop(life)
        elif code == errno.ECONNREFUSED:
            self._refused.setdefault(life, time.monotonic())
            self._drop(life)
        elif code in (errno.ECONNRESET, errno.EPIPE):
            self._closed.add(life)
            self._drop(life)
            self._connect(life, self._addresses[life])
        else:
            self._lose(life, os.strerror(code))

    def _lose(self, life: Life, why: str) -> None:
        """Note that a life cannot be reached for now; `watch` tries again."""
        self._cut[life] = why
        self._drop(life)

    def _drop(self, life: Life) -> None:
        made = self._sockets.pop(life)
        self._begun.pop(life, None)
        self._selector.unregister(made)
        made.close()


_NO_FILES = {os.strerror(errno.EMFILE), os.strerror(errno.ENFILE)}
_Address = tuple[str, int, int]  # a host, and its ports for connections and datagrams

_all_lines: weakref.WeakSet[Lines] = weakref.WeakSet()


def _let_go() -> None:
    for lines in list(_all_lines):
        lines.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _own_host() -> tuple[str, socket.AddressFamily]:
    """Return the address by which other ranks reach this one, found as gloo finds it."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if name:
        return _address_of_interface(name), socket.AF_INET
    try:
        for family, _, _, _, found in socket.getaddrinfo(
            socket.gethostname(), None, type=socket.SOCK_STREAM
        ):
            with contextlib.suppress(OSError), socket.socket(family) as made:
                made.bind((found[0], 0))
                return str(found[0]), family
    except OSError:
        pass
    return "127.0.0.1", socket.AF_INET


def _address_of_interface(name: str) -> str:
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        query = struct.pack("256s", name.encode()[:15])
        try:
            found = fcntl.ioctl(made.fileno(), 0x8915, query)  # SIOCGIFADDR
        except OSError as error:
            raise OSError(
                error.errno, f"GLOO_SOCKET_IFNAME={name}: no such interface with an IPv4 address"
            ) from None
    return socket.inet_ntoa(found[20:24])


class Group:
    """A gloo group apart from those of torch.distributed.

    No other group uses its `store`. This rank listens at the address `host`. A RuntimeError says
    that a member did not come within `seconds`.

    It closes its sockets when the last reference to it goes. Gloo takes 10 ms for each socket, so a
    thread closes them, while the rank agrees with others on the next group. Others may still wait
    for this rank in the old group. So the connections that `note` found are shut down at once.
    """

    def __init__(self, store: Any, rank: int, size: int, host: str, seconds: float) -> None:
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=seconds)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
        self._held = [dist.ProcessGroupGloo(store, rank, size, options)]
        self._others, self._lines = size - 1, list[_Socket]()

    def note(self, opened: Iterable[_Socket]) -> None:
        """Find the group's connections among the sockets `opened` while it was made.

        Other sockets may be among them. If there are as many connections as other members, these
        are the group's; otherwise none is known.
        """
        connected = [each for each in opened if host_of(each) is not None]
        self._lines = connected if len(connected) == self._others else []

    def sum(self, tensor: torch.Tensor, seconds: float) -> None:
        """Sum over all members, in place; RuntimeError if one is gone, or later than `seconds`."""
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=seconds)
        self._held[0].allreduce([tensor], options).wait()

    def copy(self, tensor: torch.Tensor, root: int, seconds: float) -> None:
        """Copy the tensor of member `root` to all. Raises as `sum` does."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        options.timeout = timedelta(seconds=seconds)
        self._held[0].broadcast([tensor], options).wait()

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if not held:  # the group could not be made
            return
        for each in self._lines:
            if (found := handle_of(each)) is not None:
                with found, contextlib.suppress(OSError):  # the other end has closed it
                    found.shutdown(socket.SHUT_RDWR)
        # The interpreter must not end while gloo closes sockets. So the thread is no daemon, and
        # the interpreter waits for it. Once it waits for threads no more, none is started.
        if threading.main_thread().is_alive():
            with contextlib.suppress(RuntimeError):  # no more threads can be started
                threading.Thread(target=held.clear, name="fastgc-closes", daemon=False).start()
                return
        held.clear()


def sockets_open() -> set[_Socket]:
    """Return the open sockets of this process; none if the system does not list them."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                status = os.fstat(int(name))
                if stat.S_ISSOCK(status.st_mode):
                    found.add((int(name), status.st_ino))
    return found


def handle_of(each: _Socket) -> socket.socket | None:
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


def host_of(each: _Socket, own: bool = False) -> str | None:
    """Return the host that a socket is connected to, or None; with `own`, where it listens, too."""
    found = handle_of(each)
    if found is None:
        return None
    with found:
        if found.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        with contextlib.suppress(OSError):  # not connected
            return str(found.getpeername()[0])
        return str(found.getsockname()[0]) if own else None
