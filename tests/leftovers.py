"""However a suite ends, no process that its tests have started stays behind.

Every process that the suite starts inherits a word in its environment. A separate process watches
the suite. When the suite has ended, it kills all processes with this word. Without ``/proc``
nothing is done.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

NAME = "FASTGC_TEST_SESSION"
PROC = Path("/proc")


def begin():
    """Watch this process, unless it is watched already, as a test or a worker of another is."""
    if NAME in os.environ or not (PROC / "self" / "environ").exists():
        return
    word = uuid.uuid4().hex
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), word]
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.run(command, check=True, start_new_session=True, **quiet)
    os.environ[NAME] = word
    # Tests clean up after a KeyboardInterrupt, but not when SIGTERM ends the process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def born(pid):
    """Return when a process began, in the kernel's clock; None if it is gone, or a zombie."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def with_word(word):
    """Yield the processes that have inherited the word."""
    for folder in PROC.glob("[0-9]*"):
        try:
            if f"{NAME}={word}".encode() in (folder / "environ").read_bytes():
                yield int(folder.name)
        except OSError:
            pass  # gone, or another user's


def watch(pid, word):
    """Wait until a process ends, then kill the processes with its word until none is left."""
    begun = born(pid)
    while born(pid) == begun:
        time.sleep(0.2)
    while left := list(with_word(word)):
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__" and not os.fork():  # the parent exits, so this process has none
    watch(int(sys.argv[1]), sys.argv[2])
