"""Threads for the few calls that move enough memory to repay them.

Compiled kernels release the GIL, so a small Python thread pool scales with the memory channels and
needs no OpenMP.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["get_num_threads", "run", "set_num_threads"]

T = TypeVar("T")

# Handing a piece to another thread and waiting for it costs 60-100 microseconds. Two threads gained
# 1.3x at 10 MB, 1.6x at 27 MB and 1.8x at 54 MB; at 5.5 MB between 0.75x and 1.2x.
THRESHOLD_BYTES = 8 << 20
ALIGN = 1024  # pieces are multiples of this many elements: no cache line is shared, no pair cut

_pool: ThreadPoolExecutor | None = None
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
    """Split large calls over this many threads (1: none but the caller's)."""
    global _threads
    if threads < 1:
        raise ValueError(f"the number of threads must be at least 1, not {threads}")
    _threads = threads
    _forget_pool()


def _forget_pool() -> None:
    global _pool
    _pool = None  # idle threads of a dropped pool end by themselves


# A forked child has the pool object but none of its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def run(task: Callable[[int, int], T], extent: int, align: int = ALIGN) -> list[T]:
    """Cut ``range(extent)`` into a piece per thread and call ``task(lo, hi)`` on each.

    Pieces are multiples of `align`, the last one aside. The first is done in this thread.
    """
    global _pool
    step = -(-extent // (get_num_threads() * align)) * align
    if step < extent and _pool is None:
        _pool = ThreadPoolExecutor(get_num_threads(), thread_name_prefix="fastgc")
    others = [
        _pool.submit(task, lo, min(lo + step, extent)) for lo in range(step, extent, step) if _pool
    ]
    first = task(0, min(step, extent))
    return [first, *(other.result() for other in others)]
