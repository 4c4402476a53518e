"""Which ranks take part: lines between ranks, and `Members` on random schedules.

Their store is in memory, a schedule moves their clock, and a group is a list of what its members
gave.
"""

import contextlib
import errno
import json
import os
import random
import resource
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from strength import much

torch = pytest.importorskip("torch")
from fastgc import FinishedError, LeftOutError  # noqa: E402
from fastgc.torch import membership  # noqa: E402
from fastgc.torch.agreement import Answer, Life, Record  # noqa: E402
from fastgc.torch.membership import BrokenGroupError, Members  # noqa: E402

# -------------------------------------------------------------------------------------------- lines


def test_a_rank_without_file_descriptors_says_so():
    lines = lines_between(3)
    mine = lines[Life(0, 1)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert not mine.lacks_files
        most = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most + 1, soft), hard))
        assert len(mine.cut_off(most + 2, [], True)) == 2
        assert mine.lacks_files
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert len(mine.cut_off(2, [], False)) == 2  # connections made meanwhile may have failed
        assert mine.cut_off(2, [], True) == ()
        assert not mine.lacks_files
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in lines.values():
            each.close()


def lines_between(count):
    """Return the connected lines of `count` ranks, by their lives."""
    lines = {Life(r, 1): membership.Lines(5.0) for r in range(count)}
    for own, each in lines.items():
        each.watch(set(lines) - {own}, lambda life: lines[life].address)
    until(lambda: all(len(connections_to(each)) == count - 1 for each in lines.values()))
    assert not any(each.dead() for each in lines.values())
    return lines


def connections_to(lines):
    """Return the connections to a rank's lines that are made: each one's descriptor and inode."""
    found = set()
    for each in membership.sockets_open():
        with contextlib.suppress(OSError), membership.handle_of(each) or socket.socket() as handle:
            if handle.getpeername()[:2] == lines.address[:2]:
                found.add(each)
    return found


def break_off(lines):
    """Break the only connection to a rank's lines, and return it."""
    (each,) = connections_to(lines)
    with membership.handle_of(each) as handle:
        handle.shutdown(socket.SHUT_RDWR)
    return {each}


def until(there, seconds=5.0):
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_connection_that_breaks_is_no_death():
    """Otherwise the two ranks would shut out each other, and never agree on a group."""
    lines = lines_between(2)
    (_, mine), (b, theirs) = lines.items()
    try:
        for _ in range(3):
            old = break_off(theirs)
            until(lambda: not mine.dead() and connections_to(theirs) - old)  # noqa: B023
            assert mine.cut_off(2, [b], True) == ()
        theirs.close()
        until(mine.dead)
        assert mine.dead([b]) == {b}
    finally:
        for each in lines.values():
            each.close()


def waits(lines):
    """Return a thread that ends when these lines are called."""
    thread = threading.Thread(target=lines.wait, args=(60.0,), daemon=True)
    thread.start()
    return thread


def test_who_is_called_looks_at_once():
    lines = lines_between(3)
    (a, mine), (b, theirs), (c, third) = lines.items()
    try:
        for end in (
            lambda: mine.call([b]),
            lambda: mine.call([a, c, b]),  # a call of itself does no harm
            mine.call,
            theirs.wake,
            lambda: (theirs.wake(), theirs.wake(), mine.call()),
        ):
            waiting = waits(theirs)
            end()
            waiting.join(30.0)
            assert not waiting.is_alive()
            theirs.wait(0.001)  # takes the other calls
            begin = time.monotonic()
            theirs.wait(0.02)
            assert time.monotonic() - begin >= 0.02
        waiting = waits(mine)
        third.call([b])  # this does not call `mine`
        third.close()  # a death does
        waiting.join(30.0)
        assert not waiting.is_alive()
        assert mine.dead() == {c}
        theirs.close()
        theirs.wake()  # late, by a main thread
        mine.call()
    finally:
        for each in lines.values():
            each.close()


def test_what_called_while_a_rank_looked_is_not_forgotten():
    """A look handles events, too. A call that it sees must still end the next wait."""
    lines = lines_between(2)
    (_, mine), (b, theirs) = lines.items()
    try:
        mine.call([b])
        theirs.dead()
        waiting = waits(theirs)
        waiting.join(30.0)
        assert not waiting.is_alive()
    finally:
        for each in lines.values():
            each.close()


def test_a_connection_that_is_refused_calls_nobody():
    """Each look connects again. If a refusal ended the wait, looks would follow without a pause."""
    mine, b = membership.Lines(5.0), Life(1, 1)
    try:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            mine.watch({b}, lambda life: ("127.0.0.1", unused.getsockname()[1], 0))
            waiting = waits(mine)
            until(lambda: mine.cut_off(0, [], False) == (b,))
        waiting.join(0.02)
        assert waiting.is_alive()
        mine.wake()
        waiting.join(30.0)
        assert not waiting.is_alive()
    finally:
        mine.close()


def test_a_group_is_let_go_while_gloo_closes_its_sockets(monkeypatch):
    """Gloo takes 10 ms for each peer, and meanwhile the rank must agree on the next group."""
    may_close, closed = threading.Event(), threading.Event()

    class Slow:
        _Options = SimpleNamespace
        create_device = staticmethod(lambda hostname: hostname)

        def __init__(self, store, rank, size, options):
            assert (store, rank, size) == ("store", 1, 3)
            assert options._devices == ["host"]

        def __del__(self):
            assert may_close.wait(30.0)
            closed.set()

    monkeypatch.setattr(membership, "dist", SimpleNamespace(ProcessGroupGloo=Slow))
    group = membership.Group("store", 1, 3, "host", 1.0)
    del group
    assert not closed.is_set()
    may_close.set()
    assert closed.wait(30.0)
    group = membership.Group("store", 1, 3, "host", 1.0)
    closed.clear()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more_threads)
        del group
    assert closed.is_set()
    group = membership.Group("store", 1, 3, "host", 1.0)
    closed.clear()
    with monkeypatch.context() as patch:  # the interpreter ends
        ended = threading.Thread()
        patch.setattr(threading, "main_thread", lambda: ended)
        del group
        assert closed.is_set()


def connections(count):
    """Return `count` connections, and their other ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ends = [socket.create_connection(server.getsockname()) for _ in range(count)]
        others = [server.accept()[0] for _ in range(count)]
    return ends, others


def identity(each):
    return each.fileno(), os.fstat(each.fileno()).st_ino


@pytest.mark.parametrize("more", [0, 1])
def test_who_waits_in_a_group_that_is_let_go_hears_of_it(monkeypatch, more):
    """The known connections of a group are shut down at once, while gloo still closes sockets.

    If there are more than the group has, some are of somebody else, and none is shut down.
    """

    class Made:
        _Options = SimpleNamespace
        create_device = staticmethod(lambda hostname: hostname)

        def __init__(self, *_):
            pass

    monkeypatch.setattr(membership, "dist", SimpleNamespace(ProcessGroupGloo=Made))
    ends, others = connections(2 + more)
    with contextlib.ExitStack() as opened:
        for each in ends + others:
            opened.enter_context(each)
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        pair = [opened.enter_context(each) for each in socket.socketpair()]
        group = membership.Group(None, 0, 3, "", 1.0)
        group.note(map(identity, [*ends, listener, *pair]))
        del group
        for other in others:
            other.setblocking(False)
            if more:
                with pytest.raises(BlockingIOError):
                    other.recv(1)
            else:
                assert other.recv(1) == b""


def test_the_number_of_a_socket_that_was_closed_is_not_taken_for_it():
    with socket.socket() as old:
        was = identity(old)
        assert was in membership.sockets_open()
        with membership.handle_of(was) as same:
            assert os.fstat(same.fileno()).st_ino == was[1]
    with socket.socket() as new:
        assert new.fileno() == was[0]
        assert membership.handle_of(was) is None
        assert was not in membership.sockets_open()
    assert membership.handle_of(was) is None


def no_more_threads(thread):
    raise RuntimeError("can't start new thread")


def test_one_connection_to_the_store_builds_group_after_group():
    """The server of a TCPStore may ask a name server about each connection."""

    class Cloned(Store):
        clones = 0

        def clone(self):
            self.clones += 1
            return Cloned()

        def set_timeout(self, seconds):
            pass

    store = Cloned()
    board = membership.Board(store)
    first = board.lend(1.0)
    board.give_back(first)
    assert board.lend(1.0) is first
    assert store.clones == 1
    assert board.lend(1.0) is not first  # a group still uses the first, or could not be built
    assert store.clones == 2


def test_what_ranks_wrote_is_read():
    """Ranks read also if only some have written, and after the record was replaced."""
    store = Store()
    boards = [membership.Board(store) for _ in range(3)]
    lives = [board.start(r, ("", 1, 2)) for r, board in enumerate(boards[:2])]
    assert lives == [Life(0, 1), Life(1, 1)]
    assert boards[2].newest(3) == boards[0].newest(3) == (1, 1, 0)
    assert boards[1].record() is None
    said = Answer(True, False, True, (lives[1],))
    boards[0].answer(0, lives[0], said)
    for board in boards:
        assert board.answers(0, lives) == {lives[0]: said}
    boards[1].answer(0, lives[1], Answer())
    boards[0].answer(0, lives[0], Answer())  # replaces the first answer
    assert boards[2].answers(0, lives) == dict.fromkeys(lives, Answer())
    boards[0].replace(None, Record(1, tuple(lives)))
    boards[1].replace(None, Record(1, ()))
    assert boards[1].record() == boards[2].record() == Record(1, tuple(lives))
    assert boards[2].answers(1, lives) == {}
    assert boards[2].start(2, ("", 3, 4)) == Life(2, 1)
    assert boards[2].start(2, ("", 3, 4)) == Life(2, 2)
    assert boards[1].newest(3) == (1, 1, 2)
    assert boards[1].address(Life(2, 2)) == ("", 3, 4)
    assert boards[1].address(Life(1, 7)) is None


def test_who_answers_behind_a_wall_is_not_dead(monkeypatch):
    """A rank whose connections are closed and refused cannot be in a group, but may be alive."""
    lines = lines_between(2)
    (_, mine), (b, theirs) = lines.items()
    try:
        monkeypatch.setattr(socket.socket, "connect_ex", lambda *_: errno.ECONNREFUSED)
        break_off(theirs)
        until(mine.dead)
        # It may have died after its answer to epoch 3. But one to epoch 4 shows that it lives.
        assert mine.dead([b], 3) == mine.dead([b], 3) == {b}
        assert mine.dead([], 4) == {b}
        assert mine.dead([b], 4) == frozenset()
        mine.watch({b}, lambda life: theirs.address)
        assert mine.dead([b], 4) == frozenset()
        assert mine.cut_off(2, [], True) == (b,)  # before it answers, too
        assert mine.cut_off(2, [b], True) == (b,)
        monkeypatch.undo()
        mine.watch({b}, lambda life: theirs.address)
        until(lambda: not mine.dead([b], 5) and not mine.cut_off(2, [], True))
        assert mine.cut_off(2, [b], True) == ()
    finally:
        for each in lines.values():
            each.close()


class Store:
    """The part of a store that `Members` uses."""

    def __init__(self):
        self.found = {}

    def set(self, key, value):
        self.found[key] = value.encode() if isinstance(value, str) else value

    def get(self, key):
        return self.found[key]

    def multi_get(self, keys):
        return [self.found[key] for key in keys]

    def check(self, keys):
        return all(key in self.found for key in keys)

    def add(self, key, amount):
        self.found[key] = str(int(self.found.get(key, 0)) + amount).encode()
        return int(self.found[key])

    def compare_set(self, key, expected, desired):
        if self.found.get(key, b"") == expected.encode():
            self.set(key, desired)
        return self.found.get(key, b"")


class NotYet(Exception):
    """A main thread would have to wait."""


class Lines:
    """A rank's lines in a world, which knows who is alive and which pairs are cut."""

    host, address, lacks_files = "", ("", 0, 0), False

    def __init__(self, world, rank):
        self.world, self.rank, self.lives = world, rank, set()
        self.reached = set()

    def watch(self, lives, address):
        self.lives = set(lives)
        self.reached |= self.lives - set(self.cut())

    def dead(self, answers=(), epoch=None):
        return frozenset(self.lives - set(self.world.alive)) | self.refusing(answers)

    def refusing(self, answers=()):
        return frozenset(self.cut()) - self.reached - set(answers)

    def cut(self):
        pairs = self.world.cuts
        lives = self.lives & set(self.world.alive)
        return [life for life in lives if frozenset((life.rank, self.rank)) in pairs]

    def cut_off(self, count, answers, grouped):
        return tuple(sorted(self.cut()))

    def report(self):
        return ""

    def wake(self):
        pass

    def call(self, lives=()):
        pass

    def close(self):
        pass


class Driven(Members):
    """Members without threads."""

    def __init__(self, world, rank):
        self.world, self.rank = world, rank
        super().__init__(world.store, rank, world.count, world.enough, world.deadline, settle=0.5)

    def join(self):
        membership.Lines = lambda patience: Lines(self.world, self.rank)
        super().join()

    def start(self):
        self.begin()
        self.world.alive[self.own.life] = self

    def wait_until(self, found, otherwise):
        if not (value := found()):
            if self.error is not None:
                raise self.error
            raise NotYet
        return value

    def build(self, record, life):
        self.world.groups.setdefault(record.epoch, Group(record.members)).built.add(life)


class Group:
    def __init__(self, members):
        self.members, self.built, self.entered, self.offered = members, set(), {}, {}


class Rank:
    """A life: the thread of its `Members`, and the work of its main thread with groups."""

    def __init__(self, world, rank):
        self.world, self.fresh, self.history = world, True, ()
        self.view, self.aligned, self.ended, self.stopped = None, False, None, False
        self.members = Driven(world, rank)
        self.members.join()
        self.life = self.members.own.life
        world.ever.append(self)

    def thread(self):
        if self.members.error is None:
            self.members.move()
        own = self.members.own
        group = self.world.groups.get(own.built)
        if group is not None and own.built > getattr(self, "had", 0):
            if group.built >= set(group.members):
                self.had = own.built
                self.members.note_group(own.built, object())
            elif any(life not in self.world.alive for life in group.members):
                self.had = own.built
                self.members.note_group(own.built, None)

    def main(self):
        try:
            self._main()
        except NotYet:
            pass
        except BrokenGroupError:
            self.leave()
        except (LeftOutError, FinishedError, RuntimeError) as error:
            self.end(error)

    def end(self, error):
        self.ended = error
        self.world.alive.pop(self.life, None)

    def leave(self):
        if self.view is not None:
            self.members.failed(self.view.number)
        self.view, self.aligned = None, False

    def _main(self):
        world, members = self.world, self.members
        if self.view is None:
            self.view, self.aligned = members.view(), False
            group = world.groups[self.view.number]
            group.entered[self.life] = (self.fresh, self.history)
            return
        at, step = self.view.number, len(self.history)
        group = world.groups[at]
        if not self.aligned:
            if len(group.entered) == len(group.members):
                self.align(group)
            elif world.torn(group, at):
                self.leave()
            return
        if members.own.finished is not None or (step == world.steps and self.offered(group)):
            members.finish(step)
            self.end(FinishedError())
            return
        if group.offered.get(self.life) != step:
            if at in self.history and members.present is not self.view:
                self.view, self.aligned = None, False
                return
            group.offered[self.life] = step
            members.since = members.clock()
        elif self.offered(group):
            self.history += (at,)
            world.most = max(world.most, len(self.history))
            members.since = None
        elif world.torn(group, at) or members.clock() - members.since > world.deadline:
            self.leave()

    def offered(self, group):
        step = len(self.history)
        return all(group.offered.get(life, -1) >= step for life in group.members)

    def align(self, group):
        running = [history for fresh, history in group.entered.values() if not fresh]
        newest = max(running, key=len, default=())
        for other in running:
            assert len(other) >= len(newest) - 1
            assert other == newest[: len(other)]
        gets = self.fresh or len(self.history) < len(newest)
        self.members.hold(self.view)
        if json.loads(self.world.store.found["record"])[0] == self.view.number:
            assert len(newest if gets else self.history) >= self.world.most - 1
        self.history = newest if gets else self.history
        self.fresh, self.aligned = False, True


class World:
    """Ranks and their faults."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count, self.steps = self.random.choice([2, 3, 3, 4]), self.random.choice([1, 6, 20])
        self.deadline, self.now, self.most = 10.0, 0.0, 0
        self.store, self.alive, self.groups, self.cuts = Store(), {}, {}, set()
        self.ranks, self.ever, self.at_fault = [], [], set()
        for rank in range(self.count):
            self.ranks.append(Rank(self, rank))

    def enough(self, ranks):
        return len(ranks) >= max(1, self.count - 1)

    def torn(self, group, epoch):
        """Whether a member of the group is gone, or its sockets to the group are closed."""
        at_it = {r.life for r in self.ranks if r.view is not None and r.view.number == epoch}
        for life in group.members:
            members = self.alive.get(life)
            if members is None:
                return True
            there = members.present is not None and members.present.number == epoch
            if not there and life not in at_it and members.answered[0] >= epoch:
                return True
        return False

    def mishap(self):
        kind = self.random.choice(["crash", "crash", "stop", "cut"])
        here = [r for r in self.ranks if r.life in self.alive and not r.stopped]
        if not here:
            return
        rank = self.random.choice(here)
        self.at_fault.add(rank.life)
        if kind == "crash":
            rank.end(None)
            self.ranks.remove(rank)
            self.later(rank.life.rank)
        elif kind == "stop":
            rank.stopped = self.now + self.random.choice([1.0, 30.0])
        elif self.count > 2:
            self.cuts.add(frozenset((rank.life.rank, (rank.life.rank + 1) % self.count)))
            self.at_fault.update(r.life for r in here)

    def later(self, rank):
        when = self.random.choice([0.0, 1.0, 15.0, None])
        if when is not None:
            self.starts.append((self.now + when, rank))

    def run(self, faults):
        self.starts = []
        moments = sorted(self.random.randrange(30 * self.count * self.steps) for _ in range(faults))
        for move in range(20_000):
            if moments and move >= moments[0]:
                moments.pop(0)
                self.mishap()
            for start in [s for s in self.starts if s[0] <= self.now]:
                self.starts.remove(start)
                self.ranks.append(Rank(self, start[1]))
                self.at_fault.add(self.ranks[-1].life)
            at_work = [r for r in self.ranks if r.life in self.alive]
            if not at_work and not self.starts:
                return
            if at_work:
                rank = self.random.choice(at_work)
                if rank.stopped and self.now >= rank.stopped:
                    rank.stopped = False
                if not rank.stopped:
                    self.random.choice([rank.thread, rank.thread, rank.main])()
                    self.rejoin(rank)
            self.now += 0.01
        raise AssertionError("no end")

    def rejoin(self, rank):
        """Let a rank that was left out join again."""
        if isinstance(rank.ended, LeftOutError) and "join()" in str(rank.ended):
            assert rank.life in self.at_fault, "a healthy rank was left out"
            self.ranks.remove(rank)
            self.ranks.append(Rank(self, rank.life.rank))
            self.at_fault.add(self.ranks[-1].life)


def one_schedule(seed, monkeypatch, kind=World, faults=None):
    world = None
    with monkeypatch.context() as patch:
        clock = SimpleNamespace(monotonic=lambda: 0.0 if world is None else world.now)
        patch.setattr(membership, "time", clock)
        patch.setattr(membership, "Lines", None)
        world = kind(seed)
        world.run(world.random.randrange(4) if faults is None else faults)
    record = json.loads(world.store.found.get("record", "[0, [], [], null, []]"))
    if record[3] is not None:
        ended = [r.history for r in world.ever if isinstance(r.ended, FinishedError)]
        assert len({history for history in ended if len(history) == world.steps}) <= 1
    return world


class AllStopped(World):
    """All ranks are stopped, and wake one by one: none may take its own sleep for others' silence.

    So no rank is left out.
    """

    def mishap(self):
        for rank in self.ranks:
            rank.stopped = self.now + 30.0 + self.random.random()

    def rejoin(self, rank):
        assert not isinstance(rank.ended, LeftOutError)


def test_ranks_that_were_all_stopped_wait_for_each_other(monkeypatch):
    for seed in range(much(1000, 50)):
        world = one_schedule(seed, monkeypatch, AllStopped, faults=1)
        assert len(world.ever) == world.count
        assert all(isinstance(rank.ended, FinishedError) for rank in world.ever)
        record = json.loads(world.store.found["record"])
        assert len(record[1]) == world.count, f"somebody was left out in {seed}"


def test_on_schedules(monkeypatch):
    seed = 0
    try:
        for seed in range(much(10_000, 100)):
            one_schedule(seed, monkeypatch)
    except BaseException as error:
        error.add_note(f"in schedule {seed}")
        raise
