"""Orders and news in shared memory: none is lost, whoever sleeps, stops or dies."""

import contextlib
import math
import mmap
import os
import select
import signal
import socket
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much

from fastgc import kernels
from fastgc.engines.rings import Rings

pytestmark = pytest.mark.every_backend


class Sides:
    """A master's rings and its workers', in one process or in forks of it."""

    def __init__(self, workers, capacity=3, given=1000):
        shapes = Rings.shapes(workers, capacity)
        arrays = [self.shared(shapes[name]) for name in ("newest", "orders", "wanted")]
        self.newest, self.orders = arrays[:2]
        arrays.append(capacity)
        self.orders[:, 0] = given  # each worker has room for `capacity` news
        self.heard, self.bell = os.pipe()
        os.set_blocking(self.heard, False)
        os.set_blocking(self.bell, False)
        self.lines = [socket.socketpair() for _ in range(workers)]
        self.master = Rings(*arrays, self.bell, lambda i: self.lines[i][0].send(b"\0"))
        self.workers = [
            Rings(*arrays, self.bell, inbox=theirs.fileno()) for _, theirs in self.lines
        ]
        self.shape = shapes["news"]
        for worker in range(workers):
            self.renew(worker)
            self.master.admit(worker, 1)

    @staticmethod
    def shared(shape):
        return np.frombuffer(mmap.mmap(-1, 8 * math.prod(shape)), np.int64).reshape(shape)

    def renew(self, worker):
        news = self.shared(self.shape)
        self.master.renew(worker, news)
        self.workers[worker].place(worker, news)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for end in self.heard, self.bell:
            os.close(end)
        for pair in self.lines:
            for end in pair:
                end.close()

    def rung(self):
        """Return how often the bell rang since the last call."""
        try:
            return len(os.read(self.heard, 1 << 16))
        except BlockingIOError:
            return 0

    def sleep(self, wanted=1):
        """Return the news at hand, or those that come when the bell rings, within ten seconds."""
        if found := self.master.want(wanted):
            return found
        assert select.select([self.heard], [], [], 10.0)[0]
        self.rung()
        return self.master.take()


def without_times(news):
    return [each[1:] for each in news]


def test_a_worker_reads_its_orders():
    with Sides(3, given=0) as sides:
        mine = sides.workers[1]
        assert (mine.given(1), mine.wait(1, 1, 0, 0.0)) == (0, 0)
        sides.master.hand([0, 1], [5, 6], [0.25, math.inf], 7, 8)
        assert mine.wait(1, 1, 0, math.inf) == mine.given(1) == 1
        assert mine.order(1, 1) == (7, 8, 6, math.inf)
        assert sides.workers[0].order(0, 1) == (7, 8, 5, 0.25)
        sides.master.hand([1], [2], [0.5], -1, 2**60)
        assert mine.wait(1, 1, 1, 0.0) == 2
        assert mine.order(1, 2) == (-1, 2**60, 2, 0.5)
        assert mine.order(1, 1) == (7, 8, 6, math.inf)  # the order before it
        assert (sides.workers[0].given(0), sides.workers[2].given(2)) == (1, 0)


def test_a_wait_ends_in_time_without_orders():
    with Sides(2, given=0) as sides:
        sides.master.hand([0], [0], [0.0], 1, 0)
        start = time.monotonic()
        assert sides.workers[0].wait(0, 1, 1, 0.02) == 1
        assert time.monotonic() - start >= 0.02


def test_a_birth_that_is_over_ends():
    with Sides(2, given=0) as sides:
        sides.master.hand([0], [0], [0.0], 1, 0)
        sides.master.admit(0, 2)
        assert sides.workers[0].wait(0, 1, 0, math.inf) == -1  # even though there is an order
        assert sides.workers[0].wait(0, 2, 0, math.inf) == 1
        assert sides.workers[1].wait(1, 1, 0, 0.0) == 0


def test_a_sleeper_is_woken_by_its_order_and_by_its_end():
    with Sides(40, given=0) as sides:  # more workers than a word has bits
        found = {}

        def wait(worker):
            found[worker] = sides.workers[worker].wait(worker, 1, 0, math.inf)

        threads = {i: threading.Thread(target=wait, args=(i,)) for i in range(40)}
        for thread in threads.values():
            thread.start()
        sides.master.hand([33], [0], [0.0], 0, 0)
        threads.pop(33).join()
        assert found == {33: 1}
        sides.master.admit(1, 0)
        threads.pop(1).join()
        assert found == {33: 1, 1: -1}
        others = list(threads)
        sides.master.hand(others, [0] * 38, [0.0] * 38, 0, 0)
        for thread in threads.values():
            thread.join()
        assert all(found[i] == 1 for i in others)


@settings(max_examples=much(200, 30), deadline=None)
@given(data=st.data(), capacity=st.integers(1, 5))
def test_news_come_once_and_in_order(data, capacity):
    with Sides(3, capacity) as sides:
        told, count = [], [0] * 3
        for step in range(data.draw(st.integers(1, 40))):
            worker = data.draw(st.integers(0, 2))
            if count[worker] < capacity:
                energy = data.draw(st.floats())
                sides.workers[worker].tell(worker, step, -step, energy)
                told.append((worker, step, -step, energy))
                count[worker] += 1
            if data.draw(st.booleans()):
                found = sides.master.take() if step % 2 else sides.master.want(1)
                times = [each[0] for each in found]
                assert times == sorted(times)
                np.testing.assert_array_equal(sorted(without_times(found)), sorted(told))
                told, count = [], [0] * 3
        assert len(sides.master.take()) == len(told)
        assert sides.master.take() == []


def test_times_are_those_of_the_clock():
    with Sides(1) as sides:
        before = time.perf_counter_ns()
        sides.workers[0].tell(0, 0, 0, 0.0)
        [(when, *_)] = sides.master.take()
        assert before <= when <= time.perf_counter_ns()


def test_the_bell_rings_for_as_many_as_are_wanted():
    with Sides(4) as sides:
        sides.newest[0, 0] = 5
        tell = [lambda round, i=i: sides.workers[i].tell(i, round, 0, 0.0) for i in range(4)]
        if not sides.master.futex:
            tell[0](5)
            assert sides.rung() == 1  # each message rings the bell
            return
        tell[0](5)
        assert sides.rung() == 0  # the master is awake
        assert len(sides.master.want(3)) == 1
        assert sides.master.want(3) == []
        tell[0](5), tell[1](5)
        assert sides.rung() == 0
        tell[2](5)
        assert sides.rung() == 1
        tell[3](5)
        assert sides.rung() == 0  # the master was woken already
        assert len(sides.master.want(2)) == 4
        tell[0](4)  # a message of an old round: the worker must get the newest
        assert sides.rung() == 1
        tell[1](4)
        assert sides.rung() == 0


def test_a_bell_that_is_full_holds_nobody_up():
    with Sides(1) as sides:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(sides.bell, b"\0")
        sides.master.want(1)
        sides.workers[0].tell(0, 0, 0, 0.0)
        assert len(sides.master.take()) == 1


class Taken:
    """Takes messages (rows of ones) from a master's news until `need` have come."""

    def __init__(self, sides, need, once=False):
        workers = len(sides.workers)
        self.slots = np.ones((workers, 3))
        rows = kernels.Rows(workers, 3, self.slots.dtype)
        enough = kernels.unchecked.Enough.of_blocks(np.zeros(workers, dtype=int), np.array([need]))
        self.arrivals = kernels.unchecked.Arrivals(rows, np.full(workers, -1), enough, check=True)
        self.arrivals.when = self.when = np.full(workers, np.nan)
        self.arrivals.least, self.arrivals.once = need, once
        self.sides, self.files = sides, select.epoll()
        self.files.register(sides.heard, select.EPOLLIN)

    def gather(self, seconds=10.0):
        given = list(self.slots), self.files.fileno(), self.sides.heard, seconds
        return without_times(self.sides.master.gather(self.arrivals, *given))

    def look(self):
        return self.sides.master.look(self.files.fileno(), self.sides.heard)

    @property
    def numbers(self):
        return self.arrivals.numbers[: self.arrivals.count].tolist()


@pytest.fixture
def by_futex(backend):
    with Sides(1) as sides:
        if not sides.master.futex:
            pytest.skip("these news are told one by one")


def test_messages_are_taken_until_they_suffice(by_futex):
    with Sides(5) as sides:
        taken = Taken(sides, 3)
        sides.newest[0, 0] = 7
        sides.master.hand(list(range(5)), [0] * 5, [0.0] * 5, 7, 0)
        before = taken.arrivals.start = time.perf_counter()
        for worker in (3, 0):
            sides.workers[worker].tell(worker, 7, 0, 0.5 + worker)
        assert taken.gather(0.0) == []  # two messages are too few
        assert taken.numbers == [3, 0]
        for worker in (4, 1):
            sides.workers[worker].tell(worker, 7, 0, -1.0)
        assert taken.gather() == [(1, 7, 0, -1.0)]  # not needed any more
        assert taken.arrivals.pending
        assert taken.numbers == [3, 0, 4]
        assert taken.arrivals.enough
        np.testing.assert_array_equal(taken.arrivals.energies[:3], [3.5, 0.5, np.nan])
        np.testing.assert_array_equal(taken.arrivals.squares[:3], 3.0)
        when = taken.when[[3, 0, 4]]
        assert (np.diff([0.0, *when, time.perf_counter() - before]) >= 0).all()
        assert taken.arrivals.follow() == [3, 0, 4]
        rows = taken.arrivals.rows
        assert rows.addresses[:3].tolist() == [
            kernels.unchecked.address(row) for row in rows.arrays
        ]
        assert rows.addresses[0] == kernels.unchecked.address(taken.slots[3])
        assert not taken.arrivals.pending


def test_no_message_came_sooner_than_the_one_before(by_futex):
    """Arrivals never decrease, though a worker reads the clock before it writes its news."""
    with Sides(2) as sides:
        taken = Taken(sides, 2)
        sides.newest[0, 0] = 7
        sides.master.hand([0, 1], [0] * 2, [0.0] * 2, 7, 0)
        taken.arrivals.start = time.perf_counter() - 1.0
        sides.workers[1].tell(1, 7, 0, 1.0)
        assert taken.gather(0.0) == []
        taken.arrivals.start += 10.0  # as if worker 0 had read the clock before worker 1
        sides.workers[0].tell(0, 7, 0, 1.0)
        assert taken.gather() == []
        assert taken.numbers == [1, 0]
        assert taken.when[0] == taken.when[1] >= 1.0


def test_a_master_that_gathers_is_woken_when_there_are_enough(by_futex):
    with Sides(6) as sides:
        taken = Taken(sides, 6)
        sides.master.hand(list(range(6)), [0] * 6, [0.0] * 6, 0, 0)
        threads = [
            threading.Timer(0.02 * i, sides.workers[i].tell, (i, 0, 0, 1.0)) for i in range(6)
        ]
        for thread in threads:
            thread.start()
        assert taken.gather() == []
        assert taken.numbers == list(range(6))
        for thread in threads:
            thread.join()


def test_a_master_that_looks_at_once_gathers_one_by_one(by_futex):
    with Sides(3) as sides:
        taken = Taken(sides, 3, once=True)
        sides.master.hand(list(range(3)), [0] * 3, [0.0] * 3, 0, 0)
        for count, worker in enumerate((2, 0, 1), start=1):
            sides.workers[worker].tell(worker, 0, 0, 1.0)
            assert taken.gather() == []
            assert len(taken.numbers) == count


def test_a_master_that_gathers_hears_of_other_files_and_of_the_time(by_futex):
    with Sides(2) as sides:
        taken = Taken(sides, 2)
        start = time.monotonic()
        assert taken.gather(0.02) == []
        assert time.monotonic() - start >= 0.02
        assert not taken.arrivals.pending
        assert taken.look() == []
        ours, theirs = sides.lines[0]
        taken.files.register(ours, select.EPOLLIN)
        sides.master.hand([1], [0], [0.0], 0, 0)
        theirs.send(b"x")
        sides.workers[1].tell(1, 0, 0, 1.0)
        assert taken.look() is None  # look() takes nothing
        assert taken.gather(1e6) == []
        assert taken.numbers == [1]
        ours.recv(1)
        sides.workers[1].tell(1, 0, 0, 2.0)
        assert without_times(taken.look()) == [(1, 0, 0, 2.0)]


@settings(max_examples=much(300, 50), deadline=None)
@given(data=st.data())
def test_what_is_taken_and_what_is_left(data):
    """By definition: taken are finite messages of the newest round, from workers that have it."""
    workers, newest = 5, 4
    with Sides(workers, 8) as sides:
        if not sides.master.futex:
            return
        need = data.draw(st.integers(1, workers))
        taken = Taken(sides, need)
        handed = data.draw(st.lists(st.sampled_from([3, 4]), min_size=workers, max_size=workers))
        for worker, round in enumerate(handed):
            sides.master.hand([worker], [0], [0.0], round, 0)
        sides.newest[0, 0] = newest
        told = data.draw(
            st.lists(
                st.tuples(
                    st.integers(0, workers - 1),
                    st.sampled_from([3, 4, 4, 4, 5]),
                    st.sampled_from([0, 0, 0, 1, -1]),
                ),
                min_size=1,
                max_size=8,
            )
        )
        for worker in data.draw(st.sets(st.integers(0, workers - 1), max_size=1)):
            taken.slots[worker, 2] = np.nan
        for worker, round, index in told:
            sides.workers[worker].tell(worker, round, index, 1.0)
        left, numbers = [], []
        rest = list(told)
        while rest and len(numbers) < need:
            worker, round, index = rest[0]
            if round < newest:
                left.append(rest.pop(0))
                continue
            if round != newest or index or handed[worker] != newest or worker in numbers:
                break
            if not np.isfinite(taken.slots[worker]).all():
                break
            numbers.append(worker)
            rest.pop(0)
        found = taken.gather(0.0)
        assert [each[:3] for each in found] == left + rest
        assert taken.numbers == numbers
        assert taken.arrivals.pending == bool(numbers)
        assert np.isfinite(taken.when).nonzero()[0].tolist() == sorted(numbers)


@pytest.mark.parametrize("wanted", [1, 3])
def test_no_news_are_lost_between_threads(backend, wanted):
    """The master sleeps whenever there are none, and workers write all the time."""
    workers, rounds = 4, much(25_000, 500)
    with Sides(workers, 2, given=0) as sides:

        def work(worker):
            mine, seen = sides.workers[worker], 0
            for _ in range(rounds):
                seen = mine.wait(worker, 1, seen, math.inf)
                round, _, first, _ = mine.order(worker, seen)
                mine.tell(worker, round, first, 0.5)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(workers)]
        for thread in threads:
            thread.start()
        for round in range(rounds):
            sides.newest[0, 0] = round
            sides.master.hand(list(range(workers)), [3, 2, 1, 0], [0.0] * workers, round, 0)
            found = []
            while len(found) < workers:
                found += sides.sleep(min(wanted, workers - len(found)))
            assert sorted(without_times(found)) == [
                (i, round, workers - 1 - i, 0.5) for i in range(workers)
            ]
        for thread in threads:
            thread.join()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # by Python 3.12
def test_processes_that_are_killed_leave_the_others_going():
    """Killed at any instant, each leaves exactly the news it wrote, whole and in order."""
    workers, chance = 3, np.random.default_rng(3)
    with Sides(workers, 4) as sides:

        def start(worker, birth):
            sides.renew(worker)
            sides.master.admit(worker, birth)
            mine, seen = sides.workers[worker], sides.workers[worker].given(worker)
            pid = os.fork()
            if pid:
                return pid
            while (seen := mine.wait(worker, birth, seen, math.inf)) >= 0:
                for index in range(3):
                    mine.tell(worker, mine.order(worker, seen)[0], index, float(birth))
            os._exit(0)

        births = [1] * workers
        running = {i: start(i, 1) for i in range(workers)}
        try:
            for round in range(much(5000, 15)):
                sides.newest[0, 0] = round
                sides.master.hand(list(running), [0] * workers, [0.0] * workers, round, 0)
                victim = int(chance.integers(workers))
                time.sleep(float(chance.random()) * 2e-4)
                os.kill(running[victim], signal.SIGKILL)
                os.waitpid(running[victim], 0)
                found = sides.master.take()
                while sum(each[1] != victim for each in found) < 3 * (workers - 1):
                    found += sides.sleep()
                found += sides.master.take()
                for worker in range(workers):
                    told = [each[2:] for each in found if each[1] == worker]
                    expected = [(round, index, float(births[worker])) for index in range(3)]
                    assert told == (expected[: len(told)] if worker == victim else expected)
                births[victim] += 1
                running[victim] = start(victim, births[victim])
            for worker, pid in running.items():
                sides.master.admit(worker, 0)
                assert os.waitpid(pid, 0)[1] == 0
        except BaseException:
            for pid in running.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise


@pytest.mark.parametrize("count", [2**62, 2**63 - 1, 4, -1, -(2**63)])
def test_a_count_that_cannot_be_is_told_once(count):
    """A ring holds three news: then the worker is ignored until another takes its place."""
    with Sides(3, 3) as sides:
        liar, honest = sides.workers[1], sides.workers[2]
        liar._news[1][0] = count
        honest.tell(2, 7, 0, 0.5)
        assert without_times(sides.master.take()) == [(1, -1, -2, 0.0), (2, 7, 0, 0.5)]
        liar._news[1][0] = 5
        assert sides.master.want(1) == []
        sides.renew(1)
        liar.tell(1, 8, 1, 0.25)
        assert without_times(sides.master.take()) == [(1, 8, 1, 0.25)]


def test_there_are_no_more_news_than_orders_allow():
    with Sides(1, 3, given=0) as sides:
        sides.workers[0].tell(0, 0, 0, 0.0)
        assert without_times(sides.master.take()) == [(0, -1, -2, 0.0)]
        sides.renew(0)
        sides.master.hand([0], [0], [0.0], 0, 0)
        for _ in range(3):
            sides.workers[0].tell(0, 0, 0, 0.0)
            assert without_times(sides.master.take()) == [(0, 0, 0, 0.0)]
        sides.workers[0].tell(0, 0, 0, 0.0)
        assert without_times(sides.master.take()) == [(0, -1, -2, 0.0)]


def test_no_news_are_of_times_to_come():
    with Sides(1) as sides:
        sides.workers[0].tell(0, 0, 0, 0.0)
        sides.workers[0]._news[0][8] = 2**62
        [(when, *_)] = sides.master.take()
        assert when <= time.perf_counter_ns()


def test_a_bell_that_never_falls_silent_holds_nobody_up(by_futex):
    with Sides(1) as sides:
        taken, over = Taken(sides, 1), threading.Event()

        def ring():
            os.set_blocking(sides.bell, True)
            while not over.is_set():
                os.write(sides.bell, bytes(1 << 16))

        ringer = threading.Thread(target=ring)
        ringer.start()
        try:
            assert taken.gather(0.05) == []
        finally:
            over.set()
            while ringer.is_alive():
                sides.rung()
