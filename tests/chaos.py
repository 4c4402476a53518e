"""Kill, stop and corrupt at random, and count what comes of it.

``python -m tests.chaos --seconds 300`` runs clusters of random codes, one after another. Meanwhile
it kills and stops worker processes, sometimes more than the code tolerates, and the process that
workers are forked from. It corrupts messages on their way, at most one a round. It compares each
gradient with the sum of all partial gradients. Then it runs each cluster's rounds again,
undisturbed, with the same survivors: the results must be the same to the last bit. The exit status
is 1 if a gradient is wrong, or if a process, a file descriptor, a piece of shared memory or a
temporary file is left.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from multiprocessing import util
from pathlib import Path

import numpy as np

import fastgc
from fastgc.engines import LocalCluster
from fastgc.engines import processes as engine_processes
from fastgc.engines.interface import Event, Kind
from fastgc.errors import CorruptMessageError, UnverifiedError

# Mean seconds between two faults. A new actor of Ray takes as long as hundreds of new processes.
FAULTS = {
    "LocalCluster": {"kill": 0.15, "stop": 0.15, "kill server": 3.0, "stop server": 30.0},
    "RayCluster": {"kill": 4.0, "stop": 1.0},
}


def processes():
    """Map the pid of each process of this machine that is no zombie to its parent's."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if stat[0] != "Z":
                found[int(entry.name)] = int(stat[1])
    return found


def descendants():
    """Return the pids of all processes below this one."""
    parents, below = processes(), {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {os.getpid()}


def resources(engine=LocalCluster):
    """Count what a cluster must leave unchanged: open descriptors, and our shared memory.

    With Ray, connections over TCP and what waits for them are not counted: Ray makes and closes
    them when it likes, and fastgc keeps none. Pipes, files and Unix sockets are counted.
    """
    links = [os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) for fd in open_descriptors()]
    if engine is not LocalCluster:
        over_tcp = {f"socket:[{inode}]" for inode in connections()}
        links = [link for link in links if link not in over_tcp and "anon_inode" not in link]
    return len(links), sum("memfd:fastgc" in link for link in links)


def connections():
    """Return the inodes of all sockets of this machine that speak TCP."""
    tables = [Path("/proc/self/net") / name for name in ("tcp", "tcp6")]
    rows = [table.read_text().splitlines()[1:] for table in tables if table.exists()]
    return {row.split()[9] for table in rows for row in table}


def mapped(pids):
    """Return the files of /dev/shm that processes map."""
    found = set()
    for pid in pids:
        try:
            found |= set(re.findall(r"/dev/shm/.*", Path(f"/proc/{pid}/maps").read_text()))
        except OSError:
            continue
    return found


def abandoned(ours):
    """Return those of these files that are still there, and that no process maps."""
    return {file for file in ours - mapped(processes()) if os.path.exists(file)}


def open_descriptors():
    """Return the open descriptors, except the one that lists them."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        found.append(fd)
    return found


def pids(cluster):
    """Return the pids of running workers."""
    if isinstance(cluster, LocalCluster):
        return list(cluster.transport.pids().values())
    return [pid for pid in descendants() if title(pid).startswith("ray::_WorkerActor")]


def title(pid):
    """Return a process's command line, where Ray's workers write their names."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


class Chaos(threading.Thread):
    """A thread that kills and stops workers of a cluster until its `end` is called.

    `files` gets what processes below this one map of /dev/shm, just before a fault: other programs'
    memory lies there, too, and must not be taken for ours.
    """

    def __init__(self, cluster, rng, counts, files):
        super().__init__()
        self._files = files
        self._cluster, self._rng, self._counts = cluster, rng, counts
        self._over = threading.Event()

    def run(self):
        faults = FAULTS[type(self._cluster).__name__]
        due = {what: self._rng.exponential(mean) for what, mean in faults.items()}
        stopped = {}
        now = 0.0
        while not self._over.wait(0.005):
            now += 0.005
            for pid in [pid for pid, until in stopped.items() if until <= now]:
                self._signal(pid, signal.SIGCONT)
                del stopped[pid]
            for what, mean in faults.items():
                if due[what] > now:
                    continue
                due[what] = now + self._rng.exponential(mean)
                running = pids(self._cluster)
                if not running:
                    continue
                pid = int(self._rng.choice(running))
                self._files |= mapped(descendants())
                if "server" in what:
                    self._strike_server(what)
                elif what == "kill" and self._signal(pid, signal.SIGKILL):
                    self._counts["killed"] += 1
                elif what == "stop" and pid not in stopped and self._signal(pid, signal.SIGSTOP):
                    self._counts["stopped"] += 1
                    stopped[pid] = now + self._rng.exponential(0.1)
        for pid in stopped:
            self._signal(pid, signal.SIGCONT)

    def _strike_server(self, what):
        """Kill the process that workers are forked from, or stop it for good: it is replaced."""
        number = signal.SIGKILL if what == "kill server" else signal.SIGSTOP
        running = [server._forkserver_pid for server in engine_processes._servers]
        if running and self._signal(running[-1], number):
            self._counts["killed the server" if number == signal.SIGKILL else "stopped it"] += 1

    def end(self):
        self._over.set()
        self.join()

    @staticmethod
    def _signal(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True


def corrupting(cluster, rng, counts, chance):
    """Corrupt some messages on their way; return a dict of rounds and the workers hit."""
    transport, hit = cluster.transport, {}
    listen = transport.listen

    def listen_and_corrupt(seconds):
        events = list(listen(seconds))
        for at, event in enumerate(events):
            new = event.kind == Kind.MESSAGE and event.round == cluster._number
            if new and event.round not in hit and rng.random() < chance:
                hit[event.round] = event.worker
                counts["corrupted"] += 1
                events[at] = Event(
                    event.kind,
                    event.worker,
                    event.round,
                    event.index,
                    corrupt(event.message, rng),
                    energy=event.energy,
                )
        return events

    transport.listen = listen_and_corrupt
    return hit


def corrupt(message, rng):
    """Return the message, changed in one of six ways."""
    wrong = message.copy()
    element = int(rng.integers(wrong.size))
    kind = rng.integers(6)
    if kind == 0:
        wrong[element] = rng.choice([np.nan, np.inf, -np.inf])
    elif kind == 1:  # a bit of an exponent
        wrong.view(np.uint64)[element] ^= np.uint64(1 << int(rng.integers(54, 62)))
    elif kind == 2:
        wrong *= -1.0
    elif kind == 3:
        wrong[:] = 0.0
    elif kind == 4:
        wrong += rng.standard_normal(wrong.size) * np.abs(wrong).max()
    else:
        wrong[:] = np.roll(wrong, 1)
    return wrong


def random_code(rng):
    """Return a code of eight workers that tolerates three stragglers, or none."""
    n = 8
    return [
        lambda: fastgc.ReedSolomon(n, stragglers=3),
        lambda: fastgc.BinaryCode(n, stragglers=3),
        lambda: fastgc.FractionalRepetition(n, stragglers=3),
        lambda: fastgc.CyclicRepetition(n, stragglers=3, seed=int(rng.integers(99))),
        lambda: fastgc.ReedSolomon(n, 16, stragglers=3),
        lambda: fastgc.Uncoded(n, 16, load=2),
    ][rng.integers(6)]()


def episode(engine, rng, seconds, counts, files):
    """Start a cluster, disturb its rounds for `seconds`, and run them again undisturbed."""
    code = random_code(rng)
    p = int(rng.integers(2, 3000))
    verify = code.stragglers > 0 and rng.random() < 0.7
    shards = list(rng.standard_normal((code.k, p)))
    whole = np.sum(shards, axis=0)
    thetas, found, received = [], [], []
    with engine(code, shards, np.multiply, p, patience=60.0, verify=verify) as cluster:
        hit = corrupting(cluster, rng, counts, 0.02) if verify else {}
        chaos = Chaos(cluster, rng, counts, files)
        chaos.start()
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                theta, out = rng.standard_normal(p), np.full(p, np.nan)
                try:
                    report = cluster.step(theta, out)
                except CorruptMessageError as error:
                    counts["rounds refused: corrupt, and not to be told whose"] += 1
                    if cluster._number not in hit:
                        counts["WRONG: refused without cause"] += 1
                        print(f"refused: {code!r}, p={p}: {error}", file=sys.stderr)
                    return
                except UnverifiedError:
                    counts["rounds refused: too few were left to verify"] += 1
                    return
                counts["rounds"] += 1
                victim = hit.get(report.round)
                right = np.allclose(out, theta * whole, rtol=1e-6, atol=1e-6)
                if not right or report.verified < verify:
                    counts["WRONG: gradients"] += 1
                    print(f"wrong: {code!r}, p={p}, {report}", file=sys.stderr)
                if set(report.corrupt) - {victim}:
                    counts["WRONG: accused"] += 1
                    print(f"accused: {code!r}, p={p}, {report}", file=sys.stderr)
                counts["corrupt workers named"] += len(report.corrupt)
                counts["verified"] += report.verified
                if victim is None:
                    thetas.append(theta)
                    found.append(out)
                    received.append(report.received)
        finally:
            chaos.end()
            counts["died"] += cluster._deaths
    counts["clusters"] += 1
    with LocalCluster(code, shards, np.multiply, p, survivors=received.__getitem__) as cluster:
        out = np.empty(p)
        for theta, expected in zip(thetas, found, strict=True):
            cluster.step(theta, out)
            counts["run again"] += 1
            if not np.array_equal(out, expected):
                counts["WRONG: not the same when run again"] += 1
                print(f"not the same: {code!r}, p={p}", file=sys.stderr)


def main(arguments=None):
    """Run for a while, print the counts, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--each", type=float, default=5.0, help="seconds of a cluster's life")
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    engine = LocalCluster
    if options.engine == "ray":
        from fastgc.engines.ray import RayCluster

        engine = RayCluster
    rng, counts = np.random.default_rng(options.seed), Counter()
    util.get_temp_dir()  # of multiprocessing, until the end of the program
    folder = tempfile.mkdtemp(prefix="chaos-")
    before = os.environ.get("TMPDIR"), os.environ.get("RAY_TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = os.environ["RAY_TMPDIR"] = tempfile.tempdir = folder
    try:
        run(engine, options, rng, counts)
        counts["LEAKED: temporary files"] = len(os.listdir(folder))
    finally:
        for name, value in zip(("TMPDIR", "RAY_TMPDIR"), before[:2], strict=True):
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        tempfile.tempdir = before[2]
        shutil.rmtree(folder, ignore_errors=True)
    for what, count in sorted(counts.items()):
        print(f"{count:8d}  {what}")
    return int(any(count for what, count in counts.items() if what.startswith(("WRONG", "LEAKED"))))


def run(engine, options, rng, counts):
    """Run episodes, and count what they leave behind."""
    with LocalCluster(fastgc.Uncoded(1), [0], np.multiply, 1):
        pass  # starts the fork server and its helper, which live as long as the program
    # Ray is started once: each of its starts leaves two sockets of its own in this process.
    below, files = descendants(), set()
    with engine(fastgc.Uncoded(1), [0], np.multiply, 1):
        before = resources(engine)
        until = time.monotonic() + options.seconds
        while (left := until - time.monotonic()) > 0:
            episode(engine, rng, min(options.each, left), counts, files)
        gc.collect()
        after = resources(engine)
    # the last one that replaced a killed server
    below.update(server._forkserver_pid for server in engine_processes._servers)
    deadline = time.monotonic() + 5.0
    while descendants() - below and time.monotonic() < deadline:
        time.sleep(0.05)
    counts["LEAKED: processes"] = len(descendants() - below)
    counts["LEAKED: descriptors"] = max(0, after[0] - before[0])
    counts["LEAKED: shared memory"] = after[1] - before[1] + len(abandoned(files))


if __name__ == "__main__":
    sys.exit(main())
