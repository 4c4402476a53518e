"""When waits end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

LONGEST = 1e6  # seconds: the most that every call of the system which waits can take


class Deadline:
    """The end of a wait that may take several calls: `seconds` from now on; inf: never."""

    def __init__(self, seconds: float = math.inf) -> None:
        self._begin, self._seconds = time.monotonic(), seconds

    @property
    def waited(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        """Seconds until the end, for a call that waits: 0 after it, and at most `LONGEST`."""
        return min(max(0.0, self._seconds - self.waited), LONGEST)

    def sleep(self, seconds: float) -> bool:
        """Sleep, but not beyond the end; return False, at once, if that has passed."""
        left = self.left
        time.sleep(min(seconds, left))
        return left > 0.0


def in_time(call: Callable[[], T], seconds: float) -> T:
    """Return what a call returns, or raise what it raises; TimeoutError if it takes longer.

    For calls that cannot be ended. A thread makes the call, and is left to it if that takes longer.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    if not wait([future], seconds).done:
        raise TimeoutError(f"there was no answer for {seconds:g} s")
    return future.result()
