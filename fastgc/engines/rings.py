"""Orders and news between a master and its worker processes, in memory that they share.

An order hands a round to a worker; news report that a worker has a message, or left a round.
Neither needs a lock. Each worker has its own ring of orders and its own ring of news, and each ring
has one writer, so any process may be stopped or killed at any moment while the others go on. One
word wakes all workers, and one call takes the news of all.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import kernels
from .._base.arrays import Array, Ints
from ..kernels.unchecked import Arrivals

# Sizes in numbers of 64 bits: a cache line, a record of news, an order, and a worker's orders.
_LINE, _NEWS, _ORDER, _ORDERS = 8, 4, 4, 16
_LEAST = 1024  # room for news that one call takes, at the least
_NONSENSE = -2  # the index in news of a worker that told more than it can have
_MOST_PAUSE = 1e6  # seconds of one call that waits: epoll takes at most 2e6
_FOUND = np.dtype(
    [
        ("time", np.int64),
        ("worker", np.int64),
        ("round", np.int64),
        ("index", np.int64),
        ("energy", np.float64),
    ]
)
_ORDER_OF = struct.Struct("=qqqd")

# Of a message: nanoseconds, worker, round, index, energy.
News = tuple[int, int, int, int, float]


class Rings:
    """Orders and news of the workers of one machine, in shared memory that is zero at first.

    With the C backend on Linux, workers sleep on a shared word, a futex, and wake the master only
    after as many news as it wants. Otherwise each process waits at a file of its own, and whoever
    has something for it writes a byte there.

    Attributes
    ----------
    futex : bool
        Whether workers sleep on a word; otherwise they wait at their files.
    hand : callable
        ``hand(workers, first, delay, round, buffer)`` gives an order to each of these workers; the
        first three are lists. A worker may have two orders that it has not read.
    admit : callable
        ``admit(worker, birth)``: from now on only this birth of the worker lives; any other ends.
    wait : callable
        ``wait(worker, birth, seen, seconds)`` sleeps up to `seconds`, until the number of orders
        given to the worker differs from `seen`, or until a signal comes. It returns that number;
        -1: the worker must end.
    tell : callable
        ``tell(worker, round, index, energy)`` writes a worker's news, if fewer than `capacity` of
        them are untaken.
    take : callable
        ``take()`` returns what workers told as a list of (nanoseconds, worker, round, index,
        energy), in order of time; all these times have passed. Index -2: the worker's count of its
        news is impossible, and the worker is ignored until `renew`. Everything except the worker's
        number is what the worker wrote.
    want : callable
        ``want(count)`` does the same for a master that sleeps next if there is nothing. Its bell
        rings after `count` news of the newest round, or after one of another round.
    gather : callable, optional
        ``gather(arrivals, slots, files, heard, seconds)`` does the same for a master that has
        nothing to decide until messages of the newest round suffice. `arrivals` takes these
        messages from `slots`, a list of one slot for each worker, which must not change; the other
        news are returned. In between it sleeps, for at most `seconds`, until a signal comes, or
        until another file than `heard`, the bell's, can be read among the `files` of an epoll. None
        if processes wait at files.
    look : callable, optional
        ``look(files, heard)`` does the same as `take`, unless another file than `heard` can be
        read: it then takes nothing and returns None. None as for `gather`.

    Parameters
    ----------
    newest : (1, 8) int64 array
        Begins with the number of the newest round, which the master writes before it hands it out.
    orders : (n, 16) int64 array
    wanted : (1, 8) int64 array
    capacity : int
        The number of news of a worker that fit. `renew` and `place` say where they lie.
    bell : int
        Open file; a byte written there wakes the master. Writing does not wait if the pipe is full.
    rouse : callable, optional
        ``rouse(worker)`` writes a byte to the file of a worker, if there is no futex. For the
        master.
    inbox : int, optional
        That file, for a worker.
    """

    hand: Callable[[list[int], list[int], list[float], int, int], None]
    admit: Callable[[int, int], None]
    wait: Callable[[int, int, int, float], int]
    tell: Callable[[int, int, int, float], None]
    take: Callable[[], list[News]]
    want: Callable[[int], list[News]]
    gather: Callable[[Arrivals, Sequence[Array], int, int, float], list[News]] | None = None
    look: Callable[[int, int], list[News] | None] | None = None

    def __init__(
        self,
        newest: Ints,
        orders: Ints,
        wanted: Ints,
        capacity: int,
        bell: int,
        rouse: Callable[[int], object] | None = None,
        inbox: int = -1,
    ) -> None:
        n, address = len(orders), kernels.unchecked.address
        self._newest, self._orders, self._wanted = newest, orders, wanted
        self._capacity = capacity
        nowhere = np.zeros(self.shapes(n, capacity)["news"], np.int64)  # until `renew` or `place`
        self._news = [nowhere] * n  # each worker's ring
        self._places = np.full(n, address(nowhere), np.uintp)  # addresses of these rings
        self._taken = np.zeros(n, np.int64)  # of each worker: how many of its news were taken
        self._bytes = memoryview(orders.data).cast("B")
        self.futex = sys.platform == "linux" and kernels.backend() == "c"
        if self.futex:
            self._sleep_on_a_word(bell)
        else:
            self._wait_at_files(bell, rouse, inbox)

    @staticmethod
    def shapes(workers: int, capacity: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the int64 arrays in shared memory, by name; "news" is for one worker."""
        return {
            "newest": (1, _LINE),
            "orders": (workers, _ORDERS),
            "wanted": (1, _LINE),
            "news": (_LINE + _NEWS * capacity,),
        }

    def renew(self, worker: int, news: Ints) -> None:
        """Take a new birth's news, whatever the one before told. For the master.

        `news` has the shape of `shapes` and is zero; the worker must `place` its news there.
        """
        taken = self._taken
        taken[worker] = max(taken[worker], ~taken[worker])
        news[0] = taken[worker]
        self.place(worker, news)

    def place(self, worker: int, news: Ints) -> None:
        """Set where a worker's news lie. For the worker."""
        self._news[worker], self._places[worker] = news, kernels.unchecked.address(news)

    def given(self, worker: int) -> int:
        """The number of orders that a worker has been given so far."""
        return int(self._orders[worker, 0])

    def order(self, worker: int, number: int) -> tuple[int, int, int, float]:
        """The last order of a worker, or the one before it: round, buffer, first, delay."""
        at = 8 * (_ORDERS * worker + _LINE + _ORDER * (number % 2))
        return _ORDER_OF.unpack_from(self._bytes, at)

    def _wait_at_files(self, bell: int, rouse: Callable[[int], object] | None, inbox: int) -> None:
        """Set the functions of csrc/ring.c, with files to wait at; system calls order writes."""
        orders, wanted, news, taken = self._orders, self._wanted, self._news, self._taken
        capacity = self._capacity

        def record_of(worker: int, number: int) -> Ints:
            """The record of a worker's news of this number, counted from 0."""
            found: Ints = news[worker][_LINE:].reshape(-1, _NEWS)[number % capacity]
            return found

        def hand(
            workers: list[int], first: list[int], delay: list[float], round: int, buffer: int
        ) -> None:
            assert rouse is not None
            for worker, begin, seconds in zip(workers, first, delay, strict=True):
                given = int(orders[worker, 0]) + 1
                order = orders[worker, _LINE:].reshape(-1, _ORDER)[given % 2]
                order[:-1] = round, buffer, begin
                order[-1:].view(np.float64)[0] = seconds
                orders[worker, 0] = given
                rouse(worker)

        def admit(worker: int, birth: int) -> None:
            assert rouse is not None
            orders[worker, 1] = birth
            rouse(worker)

        def wait(worker: int, birth: int, seen: int, seconds: float) -> int:
            until = time.monotonic() + seconds
            while True:
                if orders[worker, 1] != birth:
                    return -1
                given, left = int(orders[worker, 0]), min(until - time.monotonic(), _MOST_PAUSE)
                if given != seen or left <= 0:
                    return given
                if select.select([inbox], [], [], left)[0] and not os.read(inbox, 4096):
                    return -1  # the master is gone

        def tell(worker: int, round: int, index: int, energy: float) -> None:
            told = int(news[worker][0])
            record = record_of(worker, told)
            record[:-1] = time.perf_counter_ns(), round, index
            record[-1:].view(np.float64)[0] = energy
            news[worker][0] = told + 1
            with contextlib.suppress(BlockingIOError):  # the pipe is full: the master will wake
                os.write(bell, b"\0")

        def take() -> list[News]:
            found: list[News] = []
            counts = [int(each[0]) for each in news]
            for worker in np.flatnonzero((np.array(counts) != taken) & (taken >= 0)).tolist():
                before, end = int(taken[worker]), counts[worker]
                most = min(before + capacity, int(orders[worker, 0]) * capacity)
                if not before <= end <= most:
                    found.append((0, worker, -1, _NONSENSE, 0.0))
                    taken[worker] = ~before
                    continue
                latest = time.perf_counter_ns()
                for told in range(before, end):
                    record = record_of(worker, told)
                    when, round, index = record[:-1].tolist()
                    energy = float(record[-1:].view(np.float64)[0])
                    found.append((min(when, latest), worker, round, index, energy))
                taken[worker] = end
            return sorted(found, key=lambda each: each[0])

        def want(count: int) -> list[News]:
            wanted[0, 0] = count
            return take()

        self.hand, self.admit, self.wait, self.tell = hand, admit, wait, tell
        self.take, self.want = take, want

    def _sleep_on_a_word(self, bell: int) -> None:
        """Set the functions of csrc/ring.c, for workers that sleep on a word that all share."""
        from ..kernels._cffi import ffi, lib  # imported only if there is C
        from ..kernels.c.calls import struct_of

        found = np.zeros(max(len(self._orders), _LEAST), _FOUND)  # room for news that a call takes
        rings = struct_of(
            "fgc_rings",
            newest=self._newest,
            orders=self._orders,
            wanted=self._wanted,
            news=self._places,
            workers=len(self._orders),
            capacity=self._capacity,
        )
        taken = ffi.from_buffer("int64_t[]", self._taken)
        out = ffi.from_buffer("fgc_news[]", found)
        hand_out, take_all, take_more = lib.fgc_rings_hand, lib.fgc_rings_take, lib.fgc_rings_want

        def hand(
            workers: list[int], first: list[int], delay: list[float], round: int, buffer: int
        ) -> None:
            hand_out(rings, workers, first, delay, round, buffer, len(workers))

        def take() -> list[News]:
            news: list[News] = found[: take_all(rings, taken, out, found.size)].tolist()
            return news

        def want(count: int) -> list[News]:
            news: list[News] = found[: take_more(rings, taken, out, found.size, count)].tolist()
            return news

        last: tuple[Any, ...] = ()  # what `gather` took into last, and its struct in C

        def gather(
            arrivals: Arrivals, slots: Sequence[Array], files: int, heard: int, seconds: float
        ) -> list[News]:
            nonlocal last
            if (
                not last
                or last[0] is not arrivals
                or last[1] is not arrivals.when
                or last[2] is not slots
            ):
                last = arrivals, arrivals.when, slots, _intake(arrivals, slots, files, heard)
            start, before = arrivals.start, arrivals.count
            left = lib.fgc_rings_gather(rings, taken, out, found.size, last[3], start, seconds)
            if arrivals.count > before:
                arrivals.pending, arrivals.slots = True, slots
            return found[:left].tolist() if left else []

        def look(files: int, heard: int) -> list[News] | None:
            number = lib.fgc_rings_look(rings, taken, out, found.size, files, heard)
            return found[:number].tolist() if number > 0 else [] if number == 0 else None

        self.admit = partial(lib.fgc_rings_admit, rings)
        self.wait = partial(lib.fgc_rings_wait, rings)
        self.tell = partial(lib.fgc_rings_tell, rings, bell)
        self.hand, self.take, self.want = hand, take, want
        self.gather, self.look = gather, look


def _intake(arrivals: Arrivals, slots: Sequence[Array], files: int, heard: int) -> Any:
    """The struct by which C takes a round's messages from `slots`."""
    from ..kernels.c.calls import struct_of

    return struct_of(
        "fgc_intake",
        when=arrivals.when,
        slots=np.array([kernels.unchecked.address(slot) for slot in slots], np.uintp),
        arrivals=arrivals.c,
        least=arrivals.least,
        once=arrivals.once,
        files=files,
        bell=heard,
    )
