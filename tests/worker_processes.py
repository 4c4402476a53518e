"""The worker processes of local clusters, as the system knows them."""

import os
import time
from pathlib import Path

from fastgc.engines import processes


def status(pid):
    """Return a process's state, a letter, and its parent; None if it has ended."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else (state, int(parent))


def runs(pid):
    """Whether a process has not ended yet."""
    return status(pid) is not None


def is_stopped(pid):
    return status(pid)[0] == "T"


def children(pid):
    """Return the running processes that a process has started."""
    found = sorted(int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    return [each for each in found if (known := status(each)) and known[1] == pid]


def server():
    """Return the pid of the process that workers are forked from; None if there is none."""
    running = [each._forkserver_pid for each in processes._servers]
    return running[-1] if running and runs(running[-1]) else None


def pids(*workers):
    """Return the pids of this program's running workers, or of some of them."""
    found = {}
    for pid in children(server()):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:  # the process has ended
            continue
        if name.startswith("fastgc-"):
            found[pid] = int(name.removeprefix("fastgc-"))
    return [pid for pid, worker in found.items() if not workers or worker in workers]


def end():
    """Kill the process that workers are forked from."""
    os.kill(pid := server(), 9)
    wait_for_ends(pid)


def wait_for_ends(*pids):
    """Wait until processes have ended: they close what they hold a moment earlier."""
    until = time.monotonic() + 60.0
    while any(map(runs, pids)):
        assert time.monotonic() < until, f"of {pids} some are left"
        time.sleep(0.001)
