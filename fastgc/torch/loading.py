"""Samples of coming steps, fetched by processes of a worker's own."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import signal
import socket
import struct
import traceback
import weakref
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ..engines import fork_server
from ..engines.memory import Memory
from .batches import Feed
from .pickling import pickled
from .randomness import Drawn, seed_all

__all__ = ["Loader"]

_SIZE = struct.Struct("=q")  # of the memory that an object comes in
_OFTEN = 3  # processes that end while they fetch the same samples, before that is an error


class _Order(NamedTuple):
    """Samples to be fetched at once, with generators seeded for a partition of a step."""

    step: int
    partition: int
    indices: bytes  # of int64

    @classmethod
    def of(cls, step: int, partition: int, indices: NDArray[np.int64]) -> _Order:
        return cls(step, partition, indices.tobytes())

    @property
    def samples(self) -> list[int]:
        """Their indices."""
        found: list[int] = np.frombuffer(self.indices, np.int64).tolist()
        return found


class Loader:
    """Fetches samples ahead, in processes that are forked from this one.

    A batch is what it would have been here, and generators are where they would be after it. The
    `count` processes end with this one, however it ends. One that ends before is replaced.
    """

    def __init__(self, feed: Feed, seed: int, count: int) -> None:
        self._feed, self._seed = feed, seed
        # What is of earlier steps is not fetched any more.
        self._oldest = np.frombuffer(mmap.mmap(-1, 8), np.int64)
        life, self._life = os.pipe()
        self._ends = life, self._life
        self._processes: list[_Process] = []
        weakref.finalize(self, _end, self._ends, self._processes)
        for _ in range(count):
            self._processes.append(self._started())
        self._ready: dict[_Order, Any] = {}

    def _started(self) -> _Process:
        return _Process(self._feed, self._seed, self._oldest, self._ends)

    def begin(self, step: int) -> None:
        """Forget what was asked for earlier steps."""
        self._oldest[0] = step
        self._ready = {order: found for order, found in self._ready.items() if order.step >= step}

    def ask(self, step: int, partition: int, indices: NDArray[np.int64]) -> None:
        """Ask for samples that will be taken, unless that was done."""
        order = _Order.of(step, partition, indices)
        if order in self._ready or any(order in each.asked for each in self._processes):
            return
        min(self._processes, key=lambda each: len(each.asked)).ask(order)

    def take(self, step: int, partition: int, indices: NDArray[np.int64]) -> Any:
        """A batch of samples, once they are there; sets the generators.

        Raises
        ------
        RuntimeError
            If the dataset raised; with the traceback.
        """
        order = _Order.of(step, partition, indices)
        self.ask(step, partition, indices)
        while order not in self._ready:
            self._hear()
        batch, drawn, error = self._ready.pop(order)
        if error:
            raise RuntimeError(f"in a process that fetches samples:\n{error}")
        seed_all(self._seed, step, partition)
        if drawn is not None:
            drawn.restore()
        return batch

    def _hear(self) -> None:
        """Take what has come, after a wait for it; replace processes that have ended."""
        lines = {each.line: at for at, each in enumerate(self._processes)}
        for line in wait(list(lines)):
            at = lines[cast(socket.socket, line)]
            process = self._processes[at]
            try:
                found = _receive(process.line)
            except EOFError:
                self._replace(at)
                continue
            order = process.asked.pop(0)
            if found is not None and order.step >= self._oldest[0]:
                self._ready[order] = found

    def _replace(self, at: int) -> None:
        process = self._processes[at]
        end, first = process.end(), process.asked[:1]
        fatal = process.fatal + 1 if first == process.first else 1
        if first and fatal == _OFTEN:
            raise RuntimeError(
                f"{fatal} processes that were to fetch samples {first[0].samples} have ended, the "
                f"last of them {end}"
            )
        self._processes[at] = new = self._started()
        new.first, new.fatal = first, fatal
        for order in process.asked:
            new.ask(order)


class _Process:
    """A process that fetches samples, as who asks it sees it."""

    def __init__(
        self, feed: Feed, seed: int, oldest: NDArray[np.int64], life: tuple[int, int]
    ) -> None:
        self.asked: list[_Order] = []  # what it has not answered yet, in its order
        # at which the processes that it replaces ended, and how many of them there were
        self.first: list[_Order] = []
        self.fatal = 0
        self.line, theirs = socket.socketpair()
        with theirs:
            self._process = multiprocessing.get_context("fork").Process(
                target=_serve, args=(feed, seed, oldest, life, theirs, self.line), daemon=True
            )
            self._process.start()

    def ask(self, order: _Order) -> None:
        self.asked.append(order)
        with contextlib.suppress(OSError):  # it has ended, which is seen when it is listened to
            _send(self.line, Memory.of(order))

    def end(self) -> str:
        """End it, unless it has ended; returns by what it did."""
        self.line.close()
        self._process.kill()
        self._process.join()
        code = self._process.exitcode or 0
        return f"by signal {-code}" if code < 0 else f"with exit status {code}"


def _end(ends: Sequence[int], processes: Sequence[_Process]) -> None:
    for end in ends:
        os.close(end)
    for each in processes:
        each.end()


def _send(line: socket.socket, memory: Memory) -> None:
    with memory:
        socket.send_fds(line, [_SIZE.pack(memory.nbytes)], [memory.fd])


def _receive(line: socket.socket) -> Any:
    """What was sent; EOFError if nothing more will be."""
    try:
        size, files, _, _ = socket.recv_fds(line, _SIZE.size, 1)
    except OSError:
        size, files = b"", []
    if not files:
        raise EOFError
    memory = Memory(_SIZE.unpack(size)[0], files[0], "copy")
    try:
        return memory.load()
    finally:
        os.close(files[0])  # of which the mapping has another


def _serve(
    feed: Feed,
    seed: int,
    oldest: NDArray[np.int64],
    life: tuple[int, int],
    line: socket.socket,
    other: socket.socket,
) -> None:
    """Be such a process."""
    other.close()
    os.close(life[1])
    fork_server.end_with(life[0])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the worker
    with contextlib.suppress(OSError):  # what ps and top call it, after the worker
        comm = Path("/proc/self/comm")
        comm.write_text(f"{comm.read_text().strip()}.data")
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError):
        while True:
            order = _receive(line)
            late = order.step < oldest[0]
            _send(line, Memory.of(None) if late else _fetched(feed, seed, order))


def _fetched(feed: Feed, seed: int, order: _Order) -> Memory:
    """A batch, where generators are after it if it drew numbers, and a traceback if it failed."""
    try:
        seed_all(seed, order.step, order.partition)
        before = Drawn.now()
        batch = feed(order.samples)
        after = Drawn.now()
        return Memory.of((batch, after if after != before else None, ""), pickled)
    except Exception:
        return Memory.of((None, None, traceback.format_exc()))
