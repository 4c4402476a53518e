"""A suite that is ended, in whatever way, leaves no process that its tests have started.

Whatever is started inherits a word in its environment. A process apart looks whether the suite
still runs, and when it does not, ends all that have this word. Without ``/proc`` nothing is done.
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
    """Watch over this process, unless it is itself watched: as a worker of another, or a test."""
    if NAME in os.environ or not (PROC / "self" / "environ").exists():
        return
    word = uuid.uuid4().hex
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), word]
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.run(command, check=True, start_new_session=True, **quiet)
    os.environ[NAME] = word
    # tests clean up after an interrupt, but not after the signal's own way to end a process
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def born(pid):
    """When a process began, in the kernel's clock; None if it is gone, or a zombie."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def with_word(word):
    """Processes that have inherited the word."""
    for folder in PROC.glob("[0-9]*"):
        try:
            if f"{NAME}={word}".encode() in (folder / "environ").read_bytes():
                yield int(folder.name)
        except OSError:
            pass  # gone, or another user's


def watch(pid, word):
    """Wait for the end of a process, and end what has its word, until there is none."""
    begun = born(pid)
    while born(pid) == begun:
        time.sleep(0.2)
    while left := list(with_word(word)):
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__" and not os.fork():  # nobody's child
    watch(int(sys.argv[1]), sys.argv[2])
