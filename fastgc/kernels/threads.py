"""Threads for the few calls that move enough memory to repay them.

Compiled kernels release the GIL, so a small Python thread pool scales with the memory channels and
needs no OpenMP.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from .._arrays import at_least

__all__ = ["get_num_threads", "run", "set_num_threads"]

T = TypeVar("T")

# Handing a piece to another thread and waiting for it costs 20-60 microseconds; by an executor of
# concurrent.futures 40 more. Two threads break even at 6 MB of rows, and gain 1.1x to 1.7x at 8 MB
# and 1.8x at 54 MB.
THRESHOLD_BYTES = 6 << 20
MOST = 256  # more would be a mistake: they share the channels of one memory
ALIGN = 1024  # pieces are multiples of this many elements: no cache line is shared, no pair cut

_pool: _Pool | None = None
_threads = 0


def get_num_threads() -> int:
    """Threads a large call is split over.

    ``FASTGC_NUM_THREADS``, or the processors this process may use, at most 16.
    """
    global _threads
    if not _threads:
        asked = os.environ.get("FASTGC_NUM_THREADS")
        if asked:
            set_num_threads(_parse(asked))
        else:
            available = getattr(os, "sched_getaffinity", None)
            _threads = min(len(available(0)) if available else os.cpu_count() or 1, 16)
    return _threads


def _parse(asked: str) -> int:
    try:
        return int(asked)
    except ValueError:
        raise ValueError(f"FASTGC_NUM_THREADS must be an integer, not {asked!r}") from None


def set_num_threads(threads: int) -> None:
    """Split large calls over this many threads, 256 at most (1: none but the caller's)."""
    global _threads
    threads = at_least("the number of threads", threads, 1)
    if threads > MOST:
        raise ValueError(f"the number of threads must be at most {MOST}, not {threads}")
    _threads = threads
    _forget_pool()


def _forget_pool() -> None:
    global _pool
    _pool = None


# A forked child has the pool object but none of its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


class _Pool:
    """Threads that work until the pool is dropped, by the last call of `run` that uses it."""

    def __init__(self, threads: int) -> None:
        # task, lo, hi, number, and the queue that wants (number, result, error)
        self.pieces: SimpleQueue[Any] = SimpleQueue()
        weakref.finalize(self, _end, self.pieces, threads)
        for number in range(threads):
            name = f"fastgc_{number}"
            threading.Thread(target=_serve, args=(self.pieces,), name=name, daemon=True).start()


def _end(pieces: SimpleQueue[Any], threads: int) -> None:
    for _ in range(threads):
        pieces.put(None)


def _serve(pieces: SimpleQueue[Any]) -> None:
    while (piece := pieces.get()) is not None:
        task, lo, hi, number, done = piece
        try:
            done.put((number, task(lo, hi), None))
        except BaseException as error:
            done.put((number, None, error))
        del piece, task, done  # keep nothing of the caller's alive


def run(task: Callable[[int, int], T], extent: int, align: int = ALIGN) -> list[T]:
    """Cut ``range(extent)`` into a piece per thread and call ``task(lo, hi)`` on each.

    Pieces are multiples of `align`, the last one aside. The first is done in this thread. An error
    is raised when no piece is being worked on any more.
    """
    global _pool
    threads = get_num_threads()  # once: another thread may set it meanwhile
    step = -(-extent // (threads * align)) * align
    if step >= extent:
        return [task(0, extent)]
    starts = range(step, extent, step)
    pool = _pool = _pool or _Pool(threads - 1)
    done: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
    for number, lo in enumerate(starts, start=1):
        pool.pieces.put((task, lo, min(lo + step, extent), number, done))
    results: list[Any] = [None] * (1 + len(starts))
    failed: BaseException | None = None
    try:
        results[0] = task(0, step)
    except BaseException as error:
        failed = error
    for _ in starts:
        number, results[number], other = done.get()
        failed = failed or other
    if failed is not None:
        raise failed
    return results
