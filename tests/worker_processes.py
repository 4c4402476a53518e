"""The worker processes of local clusters, as the system knows them."""

import os
import time
from pathlib import Path

from fastgc.engines import processes


def server():
    """Return the pid of the process that workers are forked from; None if there is none."""
    running = [each._forkserver_pid for each in processes._servers]
    return running[-1] if running and runs(running[-1]) else None


def pids(*workers):
    """Return the pids of this program's running workers, or of some of them."""
    names = {f"fastgc-{worker}" for worker in workers}
    found = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                name = (each / "comm").read_text().strip()
                state, parent = (each / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:  # the process has ended
                continue
            if name.startswith("fastgc-") and int(parent) == server() and state != "Z":
                found[int(each.name)] = name
    return [pid for pid, name in sorted(found.items()) if not workers or name in names]


def end():
    """Kill the process that workers are forked from."""
    os.kill(server(), 9)
    while runs(server()):
        time.sleep(0.001)


def runs(pid):
    """Whether a process has not ended yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_ends(*pids):
    """Wait until processes have ended: they close what they hold a moment earlier."""
    until = time.monotonic() + 5.0
    while any(map(runs, pids)):
        assert time.monotonic() < until, f"of {pids} some are left"
        time.sleep(0.001)
