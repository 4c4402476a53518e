"""The number of threads that the C kernels use.

The threads are C's own (csrc/pool.c). Kernels of other backends use one thread.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from .._base.arrays import at_least

__all__ = ["attach", "get_num_threads", "set_num_threads"]

MOST = 256  # more do not help: threads share the channels of one memory
MOST_BY_DEFAULT = 16
_OWN_GROUPS, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")

_threads = 0  # not known yet
_tell: Callable[[int], None] | None = None


def attach(tell: Callable[[int], None]) -> None:
    """Call ``tell(threads)`` now, and at each change."""
    global _tell
    tell(get_num_threads())
    _tell = tell


def get_num_threads() -> int:
    """Number of threads for a long call, including the caller's.

    It is ``FASTGC_NUM_THREADS`` or, by default, the number of processors that this process may use
    by its affinity and its control group's limit, at most 16.
    """
    global _threads
    if not _threads:
        asked = os.environ.get("FASTGC_NUM_THREADS")
        try:
            _threads = _checked(int(asked)) if asked else _available()
        except ValueError:
            raise ValueError(f"FASTGC_NUM_THREADS must be 1 to {MOST}, not {asked!r}") from None
    return _threads


def set_num_threads(threads: int) -> None:
    """Split calls over this many threads, at most 256 (1: only the caller's).

    Threads that exist already do not end: they sleep.
    """
    global _threads
    _threads = _checked(threads)
    if _tell is not None:
        _tell(_threads)


def _checked(threads: int) -> int:
    threads = at_least("the number of threads", threads, 1)
    if threads > MOST:
        raise ValueError(f"the number of threads must be at most {MOST}, not {threads}")
    return threads


def _available() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    processors = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(math.ceil(min(processors, _limit())), MOST_BY_DEFAULT)


def _limit() -> float:
    """The number of processors that this process's control groups allow; Inf if unlimited."""
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        return math.inf
    least = math.inf
    for line in lines:  # number:controllers:path; version 2 has no controllers
        _, controllers, path = line.split(":", 2)
        if not controllers:
            tree = _GROUPS
        elif "cpu" in controllers.split(","):
            tree = _GROUPS / controllers
        else:
            continue
        group = tree / path.lstrip("/")
        # A group's limit holds for the groups in it. In a container the tree's root is its group.
        for folder in (group, *group.parents):
            least = min(least, _share(folder))
            if folder == tree:
                break
    return least


def _share(folder: Path) -> float:
    """Quota over period of one group, in version 2 or version 1."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / name).read_text() for name in names).split()
        except (OSError, ValueError):
            continue
        if quota not in ("max", "-1"):
            return max(float(quota) / float(period), 1e-3)
    return math.inf
