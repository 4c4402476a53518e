"""When waits end."""

from __future__ import annotations

import math
import time

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
