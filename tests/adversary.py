"""Random attacks on clusters, rounds and checkpoints, in any order.

Whatever is done, the sum is exact, or an error says why not, and nothing is left behind.

``python tests/adversary.py --seconds 60`` draws sequences from a state machine of Hypothesis. Each
seed runs in a process of its own, because some findings end it. The sequences read rounds late,
write results where messages lie, kill and stop processes, fork beside threads, make system calls
fail (by ``LD_PRELOAD``), interrupt a cluster's start, and kill masters. The program prints each
finding with its count; the exit status is 1 if there is any. It uses only the public interface and
what the system tells about processes, so it also runs on other versions. Workers that lie write to
their memory, whose names they know (`LIAR`).

``--engine ray`` draws the sequences that Ray can run. ``mpiexec -n 5 python -m mpi4py
tests/adversary.py --engine mpi`` draws those for the ranks of a job; it ends at the first finding.

``--engine ranks`` draws groups of three to six ranks without a master
(`fastgc.torch.CodedAllReduce`). The ranks start late, are killed and started again, are stopped,
cut off, left without file descriptors, or hold the interpreter; their store is stopped or killed.
Sums must be exact, copies equal and no progress lost. No rank that was not attacked may be left
out. All must end, and leave nothing behind. The seed determines a group: ``--seed 7 --seconds 0``
runs one.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import datetime
import errno
import faulthandler
import gc
import heapq
import itertools
import math
import mmap
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

import fastgc
from fastgc import checkpoint
from fastgc.engines import LocalCluster
from fastgc.errors import CorruptMessageError, UnverifiedError, WorkerFailedError

WORKERS = 4
CODES = [
    fastgc.ReedSolomon(WORKERS, stragglers=2),
    fastgc.BinaryCode(WORKERS, stragglers=1),
    fastgc.Uncoded(WORKERS, load=3),
]
SHARDS = [1.0, 2.0, 4.0, 8.0]
# Codes whose messages are compared, and the number of liars.
VERIFIED = [
    (fastgc.FractionalRepetition(6, stragglers=2), 1),
    (fastgc.FractionalRepetition(5, stragglers=4), 2),
    (fastgc.ReedSolomon(6, stragglers=3), 1),
]
TIMEOUT, SLACK = 30.0, 30.0  # seconds of a round, and more until its error
TO_END = 20.0  # seconds for processes to be gone
MARK = "FASTGC_ADVERSARY"

# Kinds of operations. Each process does about SHARE of them.
KINDS = ["read", "write_where_messages_lie", "leave_by_an_error", "time_out", "kill", "stop"]
KINDS += ["strike_the_server", "fork", "fork_beside_threads", "interrupt_a_start", "kill_a_master"]
KINDS += ["save", "fail_a_call", "many", "lie"]
SHARE = 0.3
KEPT = 50  # rounds to be read late

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

static volatile int armed = -1, left, error;
static volatile pid_t owner;

void adversary_arm(int which, int after, int number)
{
    owner = getpid();
    left = after;
    error = number;
    armed = which;
}

static int fails(int which)
{
    if (armed != which || getpid() != owner || left-- > 0)
        return 0;
    armed = -1;
    errno = error;
    return 1;
}

#define CALL(which, type, name, parameters, arguments)                                             \
    type name parameters                                                                           \
    {                                                                                              \
        static type(*real) parameters;                                                             \
        if (!real)                                                                                 \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                    \
        return fails(which) ? (type)-1 : real arguments;                                           \
    }

CALL(0, ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
CALL(1, ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
CALL(1, ssize_t, pwrite64, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
CALL(2, int, fsync, (int fd), (fd))
CALL(3, int, rename, (const char *from, const char *to), (from, to))
CALL(4, int, socketpair, (int domain, int type, int protocol, int *fds),
     (domain, type, protocol, fds))
CALL(5, int, pipe2, (int *fds, int flags), (fds, flags))
CALL(6, int, memfd_create, (const char *name, unsigned flags), (name, flags))
CALL(7, int, ftruncate, (int fd, off_t size), (fd, size))
CALL(7, int, ftruncate64, (int fd, off_t size), (fd, size))
CALL(8, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
CALL(9, ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
CALL(10, pid_t, fork, (void), ())
"""
CALLS = ["write", "pwrite", "fsync", "rename", "socketpair", "pipe2", "memfd_create", "ftruncate"]
CALLS += ["sendmsg", "send", "fork"]
ERRORS = [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EAGAIN]

# A program whose workers never end by themselves, and ignore all signals except SIGKILL.
HUNG = """
import signal, sys, time
import numpy as np
import fastgc
from fastgc.engines import LocalCluster

class Stall:
    def __reduce__(self):
        return eval, (
            "lambda theta, shard, out, signal=__import__('signal'), time=__import__('time'): "
            "(signal.signal(signal.SIGTERM, signal.SIG_IGN), time.sleep(600))",
        )
    def __call__(self, theta, shard, out):
        raise AssertionError

if __name__ == "__main__":
    cluster = LocalCluster(fastgc.Uncoded(4), [1.0, 2.0, 4.0, 8.0], Stall(), 3)
    print("open", flush=True)
    cluster.step(np.ones(3), np.empty(3))
"""


# A gradient, shard times theta. A lie calls `me` the local variables of its worker's function
# `fastgc.engines.local.work`. Other engines have no such names, and there some lies do nothing.
LIAR = """
import mmap, os, random, select, struct, sys, threading, time
import numpy as np

def files():
    for name in os.listdir("/proc/self/fd"):
        try:
            if "memfd:fastgc" in os.readlink(f"/proc/self/fd/{name}"):
                yield int(name)
        except OSError:
            pass

def pipes():  # reopened, to write to them
    for name in os.listdir("/proc/self/fd"):
        if "pipe:" in (attempt(os.readlink, f"/proc/self/fd/{name}") or ""):
            file = attempt(os.open, f"/proc/self/fd/{name}", os.O_WRONLY | os.O_NONBLOCK)
            if file is not None:
                yield file
                os.close(file)

def mapped(file):  # another thread may have closed it
    return attempt(lambda: mmap.mmap(file, os.fstat(file).st_size))

def attempt(call, *given):
    try:
        return call(*given)
    except (OSError, ValueError):
        return None

def gradient(theta, shard, out, *, round):
    np.multiply(theta, shard, out)
    frame = sys._getframe()
    while frame and frame.f_code.co_name != "work":
        frame = frame.f_back
    if frame is None:  # it is asked, in a thread of its own
        return
    me = frame.f_locals
    if (LIARS is None or me["number"] in LIARS) and (ALWAYS or is_first(me["number"])):
        lie(me, round, theta, out)

first = []  # whether this process is the first of its worker, once that is known

def is_first(number):
    if not first:  # a later one finds the file that the first has made
        flags = os.O_CREAT | os.O_EXCL
        first.append(attempt(os.open, f"{FIRST}-{number}", flags) is not None)
    return first[0]

"""


RANDOM_LIES = """
rng = random.Random()
def spoil(file, count=20):
    memory = mapped(file)
    if memory is None:
        return
    for _ in range(count):
        word = rng.choice([rng.randbytes(8), struct.pack("=q", rng.choice([0, 1, -1, 2**62])),
                           struct.pack("=d", rng.choice([0.0, 1e300, float("nan"), 1.5]))])
        at = rng.randrange(0, len(memory) - 7, 8)
        memory[at : at + 8] = word
    memory.close()
def keep_on():
    while True:
        for file in files():
            attempt(spoil, file)
        time.sleep(0.001)
tell, line = me["channel"].tell, me["line"]
what = rng.choice([*range(12), 10, 10, 10, 10])  # the 10th takes time to be seen
if what == 0:
    for file in pipes():
        attempt(os.write, file, rng.randbytes(rng.randrange(1, 1 << 8)))
elif what == 1:
    for _ in range(rng.randrange(4)):
        kind, when = rng.choice([0, 0, 1, 2, 4, 5, 6]), rng.choice([0, 1, -1, 2**62])
        tell(kind, round + rng.choice([-1, 0, 0, 1]), rng.choice([0, 0, -1, 5]), when, 1.0)
elif what == 2:
    os.write(line, rng.randbytes(rng.choice([0, 1, 16, 40, 40, 50])))
elif what == 3:
    for file in files():
        attempt(os.ftruncate, file, rng.choice([0, 4096, 1 << 22]))
        attempt(os.pwrite, file, bytes(64), rng.randrange(1 << 12))
elif what == 4 and "bad" not in globals():
    globals()["bad"] = threading.Thread(target=keep_on, daemon=True)
    bad.start()
elif what == 5:
    for file in files():
        attempt(spoil, file)
elif what == 6:
    for _ in range(rng.randrange(1, 1 << 12)):
        tell(1, round)
elif what == 7:
    while select.select([line], [], [], rng.random() * 0.1)[0] and os.read(line, 40):
        pass  # orders that it never carries out
elif what == 8:
    out += rng.choice([1e-3, 1.0, 1e6])
elif what == 9:
    os.kill(os.getpid(), 9)
elif what == 10 and "turns" not in globals():
    slot = me["own"].slots[0]
    def turn():
        while True:
            slot[:] += 1e6
            time.sleep(rng.random() * 1e-2)
            slot[:] -= 1e6
            time.sleep(rng.random() * 1e-2)
    globals()["turns"] = threading.Thread(target=turn, daemon=True)
    turns.start()
"""


# Files that the first processes of lying workers make, to know each other.
firsts = tempfile.TemporaryDirectory(prefix="adversary-")


class Gradient:
    """A gradient that workers evaluate from its source: they cannot import a test module."""

    def __init__(self, text):
        self.text = text

    def __reduce__(self):
        made = f"(lambda names: (exec({self.text!r}, names), names['gradient'])[1])({{}})"
        return eval, (made,)

    def __call__(self, theta, shard, out, *, round):
        """Only workers compute it."""
        raise NotImplementedError


def liar(lie, workers=(1,), always=False):
    """Return a gradient that runs `lie` in some workers, or in all if `workers` is None.

    Without `always`, only their first birth lies.
    """
    lines = "".join(f"    {line}\n" for line in lie.strip().splitlines())
    first = f"{firsts.name}/{uuid.uuid4()}"
    head = f"LIARS, ALWAYS, FIRST = {workers}, {always}, {first!r}"
    return Gradient(f"{LIAR}\n{head}\ndef lie(me, round, theta, out):\n{lines}")


class Late:
    """Delays with which one worker never answers."""

    def sample(self, round, workers, seed):
        return np.array([0.0, 0.0, 600.0, 0.0])


class Slow:
    """Delays that are long for some workers, other ones in each round."""

    def sample(self, round, workers, seed):
        rng = np.random.default_rng((round, seed))
        return rng.choice([0.0, 0.0, 0.0, 0.01, 0.05], workers)


# ------------------------------------------------------------------------- processes, by the system


def status_of(pid):
    """Return a process's parent and state, or None."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else (int(parent), state)


def marked(mark):
    """Return all descendants of this process, also orphans, found by their environment."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in (each / "environ").read_bytes().split(b"\0"):
                    found.append(int(each.name))
    return [pid for pid in sorted(found) if status_of(pid)]


def server():
    """Return the process from which workers are forked, or None."""
    for pid in marked(os.environ[MARK]):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            status = status_of(pid)
            if status and status[0] == os.getpid() and b"fork" in line and b"tracker" not in line:
                return pid
    return None


def workers():
    """Return the workers of all clusters that a server has forked, even if it is dead."""
    found = []
    for pid in marked(os.environ[MARK]):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            status = status_of(pid)
            if status and status[0] != os.getpid() and b"fork" in line:
                found.append(pid)
    return found


def send(pid, number):
    """Send a signal to a process, which may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def files():
    """Count the open descriptors by kind."""
    found = collections.Counter()
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[re.sub(r"\d+", "", os.readlink(f"/proc/self/fd/{each}"))] += 1
    return found


# --------------------------------------------------------------------------------- the sequences


class Rounds(RuleBasedStateMachine):
    """Clusters and their rounds, used in any order that every engine can take."""

    engine = staticmethod(LocalCluster)
    operations = 0
    at_once = 1  # factor of the number of light operations in `many`

    def __init__(self):
        super().__init__()
        self.cluster = self.code = None
        self.kept = []  # rounds, and the gradients that they must decode to

    def did(self):
        Rounds.operations += 1

    @rule(code=st.sampled_from(CODES), p=st.sampled_from([1, 6, 5000]))
    def open(self, code, p):
        self.close()
        self.code, self.p = code, p
        self.cluster = self.engine(code, SHARDS, np.multiply, p, timeout=TIMEOUT)
        self.did()

    @precondition(lambda self: self.cluster)
    @rule(value=st.floats(-4, 4), own=st.booleans())
    def step(self, value, own):
        self._step(value, own)

    def _step(self, value, own):
        """Do a step; its result may overwrite the parameters."""
        theta = np.full(self.p, value)
        expected = theta * sum(SHARDS)
        out = theta if own else np.empty(self.p)
        start = time.monotonic()
        self.cluster.step(theta, out)
        assert time.monotonic() - start < TIMEOUT + SLACK
        np.testing.assert_allclose(out, expected, atol=1e-12)
        self.did()

    @precondition(lambda self: self.cluster)
    @rule(value=st.floats(-4, 4))
    def collect(self, value):
        self._collect(value)

    def _collect(self, value):
        theta = np.full(self.p, value)
        rnd = self.code.round(self.p)
        self.cluster.collect(theta, rnd)
        if len(self.kept) == KEPT:
            del self.kept[KEPT // 2]
        self.kept.append((rnd, theta * sum(SHARDS)))
        self.did()

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), verb=st.sampled_from(["gradient", "best", "trust"]))
    def read(self, data, verb):
        self._read(data.draw(st.sampled_from(self.kept)), verb)

    def _read(self, kept, verb):
        """Read a round: at any later time it is unchanged, or says that it is gone."""
        rnd, expected = kept
        try:
            found = getattr(rnd, verb)()
        except RuntimeError as error:
            if "gone" not in str(error):
                raise
            return
        if verb != "trust":
            found = found.gradient if verb == "best" else found
            np.testing.assert_allclose(found, expected, atol=1e-12)
        self.did()

    @rule(
        code=st.sampled_from(CODES[:3]),
        verb=st.sampled_from(["decode", "gradient"]),
        at=st.integers(0, 9),
        shift=st.integers(0, 3),
        check=st.booleans(),
        seed=st.integers(0, 99),
    )
    def write_where_messages_lie(self, code, verb, at, shift, check, seed):
        self._write(code, verb, at, shift, check, seed)

    def _write(self, code, verb, at, shift, check, seed):
        """Write a result anywhere among the messages: it is right, unless it is refused."""
        p, rng = 10, np.random.default_rng(seed)
        g = rng.standard_normal((code.k, p))
        memory = np.zeros(code.scheme.messages.count * p + 3)
        rows = memory[: code.scheme.messages.count * p].reshape(-1, p)
        for m in range(code.scheme.messages.count):
            worker, index = code.scheme.messages.sender(m)
            rows[m] = code.encode(worker, g[code.partitions(worker, index)], index=index)
        at = at % code.scheme.messages.count * p + shift
        out, expected = memory[at : at + p], g.sum(axis=0)
        try:
            if verb == "decode":
                numbers = range(code.scheme.messages.count)
                code.decode(numbers, list(rows), out=out, check_finite=check)
            else:
                rnd = code.round(p)
                for m in range(code.scheme.messages.count):
                    rnd.receive(*code.scheme.messages.sender(m)[:1], rows[m])
                rnd.gradient(out=out)
        except ValueError as error:
            if "memory" not in str(error):
                raise
            return
        np.testing.assert_allclose(out, expected, atol=1e-12)
        self.did()

    @precondition(lambda self: self.cluster)
    @rule(number=st.integers(0, 2**32 - 1), count=st.sampled_from([1, 10, 100]))
    def many(self, number, count):
        """Do many quick operations, for errors that appear once in thousands."""
        rng = np.random.default_rng(number)
        for what in rng.integers(4, size=count * self.at_once).tolist():
            if what == 0:
                self._step(rng.uniform(-4, 4), rng.random() < 0.5)
            elif what == 1:
                self._collect(rng.uniform(-4, 4))
            elif what == 2 and self.kept:
                verb = ["gradient", "best", "trust"][rng.integers(3)]
                self._read(self.kept[rng.integers(len(self.kept))], verb)
            elif what == 3:
                verb = ["decode", "gradient"][rng.integers(2)]
                at, shift, seed = rng.integers(10), rng.integers(4), rng.integers(100)
                self._write(CODES[rng.integers(3)], verb, at, shift, rng.random() < 0.5, seed)

    @rule()
    def close(self):
        if self.cluster:
            self.cluster.close()
            self.cluster.close()
            self.cluster = self.code = None
            self.did()

    @precondition(lambda self: self.cluster)
    @rule(error=st.sampled_from([KeyError, KeyboardInterrupt]))
    def leave_by_an_error(self, error):
        cluster, self.cluster = self.cluster, None
        try:
            with cluster:
                raise error
        except error:
            self.did()

    def teardown(self):
        self.close()
        self.kept.clear()


class Adversary(Rounds):
    """The same, while processes are killed and stopped, forks are made, and system calls fail."""

    at_once = 100

    def __init__(self):
        super().__init__()
        self.stopped = set()
        if server() is None:  # start it first: it lives as long as the program
            with LocalCluster(fastgc.Uncoded(1), [0], np.multiply, 1):
                pass
        self.files = files()

    @rule(refuses=st.booleans())
    def time_out(self, refuses):
        """An error in a round closes the cluster; the round's messages can still be read."""
        self.close()
        self.wake()
        code = fastgc.Uncoded(WORKERS)
        rnd = code.round(3)
        cluster = LocalCluster(code, SHARDS, np.multiply, 3, timeout=0.3, delays=Late())
        theta = np.array([7.0, 1.0, 1.0])
        try:
            cluster.collect(theta, rnd)
        except TimeoutError:
            pass
        else:
            raise AssertionError("a round without a worker did not time out")
        if set(rnd.survivors.tolist()) == {0, 1, 3}:
            np.testing.assert_allclose(rnd.best().gradient, 11.0 * theta)
        if refuses:
            cluster.close()
        self.did()

    @precondition(lambda self: self.cluster)
    @rule(data=st.data())
    def kill(self, data):
        if running := workers():
            send(data.draw(st.sampled_from(running)), signal.SIGKILL)
            self.did()

    @precondition(lambda self: self.cluster and self.code.stragglers)
    @rule(data=st.data())
    def stop(self, data):
        running = workers()
        if running and not self.stopped:
            pid = data.draw(st.sampled_from(running))
            send(pid, signal.SIGSTOP)
            self.stopped.add(pid)
            self.did()

    @rule()
    def wake(self):
        for pid in self.stopped:
            send(pid, signal.SIGCONT)
        self.stopped.clear()

    @rule(number=st.sampled_from([signal.SIGKILL, signal.SIGSTOP]), then=st.booleans())
    def strike_the_server(self, number, then):
        """Kill or stop the server and, if `then`, a worker that it would have to fork again."""
        struck = server()
        if struck is not None:
            if then and self.cluster and (running := workers()):
                send(running[0], signal.SIGKILL)
            send(struck, number)
            self.did()

    @precondition(lambda self: self.cluster)
    @rule(closes=st.booleans())
    def fork(self, closes):
        """A child may use its copy of the cluster in any way."""
        child = os.fork()
        if not child:
            try:
                if closes:
                    self.cluster.close()
            finally:
                os._exit(0)
        self._await_child(child)
        self.did()

    @rule(seed=st.integers(0, 9))
    def fork_beside_threads(self, seed):
        """A child decodes, whatever the threads of its parent were doing."""
        code, over = fastgc.CyclicRepetition(8, stragglers=2, seed=seed), threading.Event()
        sets = [np.random.default_rng(i).permutation(8)[:6] for i in range(100)]

        def decode():
            while not over.is_set():
                for some in sets:
                    code.decoding_vector(some)

        threads = [threading.Thread(target=decode) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(100):
                child = os.fork()
                if not child:
                    code.decoding_vector(sets[0])
                    os._exit(0)
                self._await_child(child)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.did()

    def _await_child(self, child):
        until = time.monotonic() + TO_END
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                assert status == 0, f"a forked child ended with status {status}"
                return
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise AssertionError("a forked child hangs")
            time.sleep(0.002)

    @rule(after=st.floats(1e-4, 0.3))
    def interrupt_a_start(self, after):
        """Interrupt a start at any moment; the next start is undisturbed."""
        self.close()
        signal.setitimer(signal.ITIMER_REAL, after)
        try:
            cluster = LocalCluster(fastgc.Uncoded(WORKERS), SHARDS, np.multiply, 2)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            cluster.close()
        except KeyboardInterrupt:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        with LocalCluster(fastgc.Uncoded(WORKERS), SHARDS, np.multiply, 2) as cluster:
            out = np.empty(2)
            cluster.step(np.ones(2), out)
            np.testing.assert_allclose(out, sum(SHARDS))
        self.did()

    @rule(number=st.sampled_from([signal.SIGKILL, signal.SIGTERM]))
    def kill_a_master(self, number):
        """Workers end with their master, whatever they are doing."""
        mark = str(uuid.uuid4())
        path = Path(tempfile.gettempdir()) / f"{mark}.py"
        path.write_text(HUNG)
        master = subprocess.Popen(
            [sys.executable, "-P", str(path)], env=os.environ | {MARK: mark}, stdout=subprocess.PIPE
        )
        try:
            assert master.stdout.readline() == b"open\n"
            time.sleep(0.2)
            assert len(marked(mark)) > WORKERS
            master.send_signal(number)
            master.wait(TO_END)
            self._gone(lambda: marked(mark), "workers of a killed master")
        finally:
            master.kill()
            for pid in marked(mark):
                send(pid, signal.SIGKILL)
            master.wait()
            master.stdout.close()
            path.unlink()
        self.did()

    @rule(
        failing=st.sampled_from(["fsync", "pwrite", "rename", "replace", "write"]),
        again=st.integers(1, 3),
        rounds=st.integers(1, 3),
        after=st.integers(0, 2),
    )
    def save(self, failing, again, rounds, after):
        """Saves of a checkpoint fail, and are repeated: what counts as saved is on the disk."""
        folder = Path(tempfile.mkdtemp())
        saved, lines = None, 0
        try:
            with checkpoint.Checkpoint(folder / "run", {"run": "x"}) as kept:
                for number in range(rounds):
                    for _ in range(again):
                        kept.add(lines)
                        lines += 1
                        with failing_call(failing, after, errno.EIO):
                            try:
                                kept.save({"theta": np.full(2, float(number))})
                                saved = number, lines
                            except OSError:
                                pass
                try:
                    kept.save({"theta": np.full(2, 77.0)})
                    saved = 77, lines
                except OSError:
                    pass
            if saved:
                with checkpoint.Checkpoint(folder / "run", {"run": "x"}) as kept:
                    assert list(kept.lines) == list(range(saved[1])), (kept.lines, saved)
                    np.testing.assert_array_equal(kept.state["theta"], saved[0])
        finally:
            shutil.rmtree(folder)
        self.did()

    @precondition(lambda self: shim is not None)
    @rule(
        call=st.sampled_from(CALLS),
        after=st.integers(0, 12),
        number=st.sampled_from(ERRORS),
        rounds=st.integers(0, 2),
    )
    def fail_a_call(self, call, after, number, rounds):
        """A system call fails while a cluster starts, runs or ends; the next cluster is fine."""
        self.close()
        self.wake()
        code = fastgc.Uncoded(WORKERS)
        for disturbed in (True, False):
            try:
                with (
                    failing_call(call, after, number) if disturbed else contextlib.nullcontext(),
                    LocalCluster(code, SHARDS, np.multiply, 2, timeout=TIMEOUT) as cluster,
                ):
                    for _ in range(max(rounds, 1 - disturbed)):
                        out = np.empty(2)
                        cluster.step(np.ones(2), out)
                        np.testing.assert_allclose(out, sum(SHARDS))
            except OSError:
                if not disturbed:
                    raise
        self.did()

    @rule(
        case=st.sampled_from(VERIFIED),
        seed=st.integers(0, 99),
        rounds=st.integers(1, 12),
        slow=st.booleans(),
        patience=st.sampled_from([0.0, TIMEOUT]),
    )
    def lie(self, case, seed, rounds, slow, patience):
        """Workers lie by writing wherever they can: verified results are right, accusations too."""
        self._lie(case, RANDOM_LIES, seed, rounds, slow=slow, patience=patience)

    def _lie(self, case, lie, seed, rounds, *, slow, **options):
        self.close()
        self.wake()
        code, liars = case
        rng, p = np.random.default_rng(seed), 50
        who = tuple(rng.permutation(code.n)[:liars].tolist())
        gradient = liar(lie, who, always=True)
        shards = [float(j + 1) for j in range(code.k)]
        options |= {"verify": liars, "timeout": TIMEOUT}
        if slow:
            options |= {"delays": Slow(), "seed": seed}
        with LocalCluster(code, shards, gradient, p, **options) as cluster:
            rnd, deaths = code.round(p, verify=liars), 0
            for number in range(rounds):
                theta, out = rng.standard_normal(p), np.empty(p)
                start = time.monotonic()
                try:
                    if number % 2:
                        report = cluster.step(theta, out)
                        verified = report.verified
                    else:
                        rnd.reset()
                        report = cluster.collect(theta, rnd)
                        verified = rnd.verified
                        time.sleep(rng.random() * 0.02)  # liars may change messages meanwhile
                        rnd.gradient(out=out)
                except WorkerFailedError as error:
                    if error.worker not in who:
                        raise
                    break
                except CorruptMessageError:  # liars that died are not replaced, and lacking
                    assert deaths or not options["patience"]
                    break
                except UnverifiedError:  # too few workers live to verify
                    assert deaths or not options["patience"]
                    break
                finally:
                    assert time.monotonic() - start < TIMEOUT + SLACK
                accused, deaths = {*report.corrupt, *report.lost}, report.deaths
                assert accused <= {*who}, f"{accused} are accused, and {who} lie"
                assert verified or deaths, "nothing is missing, and it is not verified"
                if verified:
                    np.testing.assert_allclose(out, sum(shards) * theta, rtol=1e-9, atol=1e-9)
        self.did()

    def _gone(self, what, name):
        until = time.monotonic() + TO_END
        while left := what():
            assert time.monotonic() < until, f"left: {name}: {left}"
            time.sleep(0.01)

    def teardown(self):
        super().teardown()
        self.wake()
        self._gone(workers, "workers of closed clusters")
        until = time.monotonic() + TO_END
        while True:  # threads and processes that are ending release files a moment later
            gc.collect()  # errors may hold maps of memory
            more = files() - self.files
            more = {name: count for name, count in more.items() if "[]" not in name or count > 2}
            if not more or time.monotonic() > until:
                break
            time.sleep(0.05)
        assert not more, f"left: open files: {more}"


@contextlib.contextmanager
def failing_call(name, after, number):
    """Let a call fail once, after `after` calls; without the shim, by Python's own names."""
    if name in CALLS and shim is not None:
        shim.adversary_arm(CALLS.index(name), after, number)
        try:
            yield
        finally:
            shim.adversary_arm(-1, 0, 0)
        return
    usual, left = getattr(os, name), [after]

    def fail(*arguments, **keywords):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(number, os.strerror(number))
        return usual(*arguments, **keywords)

    setattr(os, name, fail)
    try:
        yield
    finally:
        setattr(os, name, usual)


shim = None


def find_shim():
    """Find the preloaded library, if there is one."""
    global shim
    with contextlib.suppress(AttributeError):
        own = ctypes.CDLL(None)
        own.adversary_arm.argtypes = [ctypes.c_int] * 3
        shim = own


def build_shim(folder):
    """Return the library for `LD_PRELOAD`; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source = Path(folder) / "shim.c"
    source.write_text(SHIM)
    made = Path(folder) / "shim.so"
    command = [compiler, "-O1", "-shared", "-fPIC", str(source), "-o", str(made), "-ldl"]
    return str(made) if subprocess.run(command, capture_output=True).returncode == 0 else None


# ------------------------------------------------------------------------------- groups of ranks

DEADLINE, SETTLE = 6.0, 1.0  # options of a group
LATE = 20.0  # further seconds that a busy machine may take
AT_ONCE = 3  # groups run at once: they mostly wait
PAUSE = 0.01  # seconds between steps
SIZE = 5

HARD = ["kill", "kill", "long stop", "descriptors", "cut", "wall"]  # a rank may be left out
HARD += ["stop the others"]
MILD = ["stop", "hold", "stop the store", "break"]  # the others wait
# Ways in which a rank that was shut out ends. The second comes if a rank that holds the state is
# stopped for longer than the deadline: a rank that cannot connect to it takes it for dead.
SHUT_OUT = ["LeftOutError: rank .* and others cannot reach each other"]
SHUT_OUT += ["RuntimeError: the state of the training is lost"]
CONNECT = socket.socket.connect_ex
ABORTED = f"it ended with status {int(signal.SIGABRT)}"  # gloo aborts if it cannot accept


class Act(NamedTuple):
    """An attack on a rank, `steps` steps of the group and `pause` seconds after the last one."""

    kind: str
    rank: int
    steps: int
    pause: float
    seconds: float  # until it is undone
    again: str = ""  # when a killed rank starts again: "at once", "late", "end", "never"


def parts(step, theta, count):
    """Return the gradients of all partitions: integers, which float64 sums without rounding."""
    j, i = np.arange(count)[:, None], np.arange(SIZE)
    return (theta * (2 * j + 3) + 7919 * step + 104729 * j + 31 * i) % 1000003.0


TRUTHS = collections.defaultdict(lambda: [np.zeros(SIZE)])


def truth(step, count):
    """Return the parameters after so many steps."""
    known = TRUTHS[count]
    while len(known) <= step:
        before = known[-1]
        known.append((before + parts(len(known) - 1, before, count).sum(axis=0)) % 2.0**31)
    return known[step]


class Counter:
    """State that a rank that joins gets besides the parameters."""

    count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def ends_with_its_parent():
    """Let this process end with its parent, by SIGKILL, whatever it does."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Group:
    """Three to six ranks of a job without a master, their store, and the attacks on them.

    The number of ranks that are killed, stopped for long or cut off is at most what the code
    tolerates. So the others must go on, and at least one that holds the state lives.
    """

    def __init__(self, number, folder):
        rng = np.random.default_rng(number)
        n = self.count = int(rng.integers(3, 7))
        stragglers = int(rng.integers(1, 3))
        codes = [fastgc.BinaryCode(n, stragglers=stragglers)]
        if n % (stragglers + 1) == 0:
            codes.append(fastgc.FractionalRepetition(n, stragglers=stragglers))
        self.code, self.number, self.folder = codes[rng.integers(len(codes))], number, Path(folder)
        order = rng.permutation(n).tolist()
        self.delays = [0.0] * n
        if rng.random() < 0.3:
            self.delays[order[0]] = float(rng.choice([0.3, 2.0, DEADLINE + 1.0]))
        self.acts = [self._drawn(rng, order[:stragglers]) for _ in range(rng.integers(1, 7))]
        last = [None, "kill the store", "stop the store for good", "kill all"]
        self.last = last[rng.choice(4, p=[0.7, 0.1, 0.1, 0.1])]
        self.last_death = bool(rng.random() < 0.7)  # then the group must change without a store
        shared = np.frombuffer(mmap.mmap(-1, 8 * (1 + 2 * n)), np.int64)
        self.end, self.done, self.begun = np.split(shared, [1, 1 + n])  # last step; steps, lives
        self.end[0] = 2**62
        self.lives, self.pids, self.commands = [-1] * n, {}, {}
        self.killed, self.cut, self.after, self.ended = set(), set(), set(), {}
        self.busy = [0.0] * n  # times until which a rank is under attack
        self.absent = set()  # ranks that need not come back
        self.pending, self.planned = [], itertools.count()
        self.events = []  # time, rank, and attack
        self.reactive = bool(rng.random() < 0.5)

    def __repr__(self):
        way = "reactive" if self.reactive else "proactive"
        return f"{self.code}, {way}, late {self.delays}, {self.acts}, at last {self.last}"

    def _drawn(self, rng, struck):
        hard = rng.random() < 0.6
        kind = str(rng.choice(HARD if hard else MILD))
        rank = int(rng.choice(struck) if hard else rng.integers(self.count))
        if kind == "wall" and self.code.decodable([rank]):
            kind = "cut"  # behind a wall, a rank that is enough would go on alone
        seconds = {
            "long stop": DEADLINE + rng.uniform(0.5, 4.0),
            "stop the others": DEADLINE + rng.uniform(0.5, 2.0),
            "stop": rng.uniform(0.05, 2.0),
            "stop the store": rng.uniform(0.05, 2.0),
            "hold": rng.uniform(1.0, 3.0),
        }.get(kind, rng.uniform(0.2, 3.0))
        again = str(rng.choice(["at once", "at once", "late", "late", "end", "never"]))
        steps, pause = int(rng.choice([0, 0, 3, 20])), float(rng.choice([0.0, 0.02, 0.1, 0.5]))
        return Act(kind, rank, steps, rng.random() * pause, float(seconds), again)

    # -------------------------------------------------------------------- processes of the group

    def fork(self, run):
        """Fork a process of the group, which ends after `run`, and with the group."""
        if pid := os.fork():
            return pid
        try:
            ends_with_its_parent()
            run()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def keep_a_store(self):
        """Start a process that keeps the store and outlives the ranks, like torchrun's agent."""
        read, write = os.pipe()

        def keep():
            from torch.distributed import TCPStore

            store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            os.write(write, str(store.port).encode())
            while True:
                signal.pause()

        self.keeper = self.fork(keep)
        os.close(write)
        self.port = int(os.read(read, 10))
        os.close(read)

    def start(self, rank, cut=False):
        life = self.lives[rank] = self.lives[rank] + 1
        self.note(None, f"rank {rank} starts")
        if cut:
            self.cut.add((rank, life))
        if self.end[0] < 2**62:
            self.after.add((rank, life))
        read, write = os.pipe()
        self.commands[rank] = write
        self.pids[rank] = self.fork(lambda: self.be(rank, life, read, cut))
        os.close(read)

    def be(self, rank, life, commands, cut):
        """Be a rank."""
        result = os.open(self.folder / f"{rank}.{life}", os.O_CREAT | os.O_WRONLY)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        for each in self.commands.values():  # the other ranks' pipes, and this one's writing end
            os.close(each)
        threading.Thread(target=self.obey, args=[commands], daemon=True).start()
        if cut:
            refuse(np.random.default_rng((self.number, rank, life)))
        try:
            found = self.train(rank, life)
        except Exception as error:
            traceback.print_exc()
            found = f"{type(error).__name__}: {error}"
        os.write(result, found.encode())

    def obey(self, commands):
        """In a thread of a rank, carry out attacks that cannot come from outside."""
        while line := os.read(commands, 100):
            for word in line.decode().split():
                what, _, value = word.partition("=")
                rng = np.random.default_rng((self.number, int(float(value))))
                if what == "hold":
                    ctypes.PyDLL(None).usleep(int(float(value) * 1e6))  # holds the interpreter
                elif what == "open":
                    socket.socket.connect_ex = CONNECT
                elif what == "wall":
                    refuse(rng, all_of_them=True)
                    break_connections(self.port, rng, some=False)
                else:
                    break_connections(self.port, rng)

    def train(self, rank, life):
        """Do steps until the end; return how it ended, as text."""
        import torch
        from torch.distributed import TCPStore

        from fastgc.torch import CodedAllReduce, CodedSampler

        def compute(partitions):
            """Add the partitions' gradients to ``.grad``; return a sum."""
            mine = torch.from_numpy(each[partitions].sum(axis=0))
            module[0].grad = mine if module[0].grad is None else module[0].grad + mine
            return [float(each[partitions, 0].sum())]

        def note(what, step):
            line = f"{time.monotonic()} {rank} {life} {step} {what}\n"
            os.write(self.log, line.encode())
            self.done[rank] = max(self.done[rank], step)

        torch.set_num_threads(1)
        patience = datetime.timedelta(seconds=2 * DEADLINE)
        store = TCPStore("127.0.0.1", self.port, is_master=False, timeout=patience)
        theta = torch.zeros(SIZE, dtype=torch.float64)
        module, counter = torch.nn.ParameterList([theta]), Counter()
        theta = module[0].data
        options = {"deadline": DEADLINE, "settle": SETTLE, "state": [counter]}
        own = list(self.code.partitions(rank))
        if self.reactive:
            batch = range(self.code.k)  # one sample for each partition
            sampler = CodedSampler(batch, self.code, self.code.k, rank, order=batch)
            options |= {"sampler": sampler, "redundancy": "reactive", "recompute": compute}
        before = files()
        note("begins", 0)
        self.begun[rank] = life + 1
        with CodedAllReduce(module, self.code, store=store, rank=rank, **options) as all_reduce:
            note("joined" if all_reduce.joined else "began", all_reduce.step)
            while (step := all_reduce.step) < self.end[0]:
                expected = truth(step, self.code.k)
                if counter.count != step or not np.array_equal(theta.numpy(), expected):
                    return f"WRONG: {theta.numpy()} and {counter.count} in step {step}"
                each = parts(step, expected, self.code.k)
                module[0].grad = None
                given = compute(next(iter(sampler)) if self.reactive else own)
                try:
                    sums = all_reduce(*given)
                except fastgc.LeftOutError:
                    note("left out", step)
                    if not self.come_back(all_reduce):
                        return "gave up"
                    note("joined", all_reduce.step)
                    continue
                total = each.sum(axis=0)
                if sums != (total[0],) or not np.array_equal(module[0].grad.numpy(), total):
                    return f"WRONG: {module[0].grad.numpy()} in step {step}, and not {total}"
                theta.copy_((theta + module[0].grad) % 2.0**31)
                counter.count += 1
                note("step", all_reduce.step)
                time.sleep(PAUSE)
            steps = all_reduce.step
        del all_reduce, sums
        return left_of_a_rank(before) or f"done {steps}"

    def come_back(self, all_reduce):
        """Join again until the others accept it; False if the run has ended."""
        while True:
            try:
                all_reduce.join()
                return True
            except fastgc.LeftOutError:
                pass
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
            if self.end[0] < 2**62:
                return False
            time.sleep(0.1)

    # ---------------------------------------------------------------------- what is done to them

    def run(self):
        """Run the group and its attacks; raise AssertionError if anything is wrong."""
        self.log = os.open(self.folder / "log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self.keep_a_store()
        for rank, delay in enumerate(self.delays):
            self.later(delay, self.start, rank)
        try:
            for act in self.acts:
                target = self.done.max() + act.steps
                self.wait(lambda: self.done.max() >= target, 4 * DEADLINE)  # noqa: B023
                self.wait(lambda: False, act.pause)
                self.act(act)
            self.wait(lambda: not self.pending, 60.0)
            self.all_are_back()
            if self.last is not None:
                self.act_at_last()
            elif not self.ended:
                self.wait(lambda: False, 0.1)
            if self.last != "kill all":
                self.end[0] = self.done.max() + 10
            self.all_have_ended()
            if self.last is None:
                for rank in sorted(self.absent - set(self.pids)):
                    self.start(rank)
                self.all_have_ended()
            self.judge()
        finally:
            for pid in [*self.pids.values(), self.keeper]:
                send(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def later(self, seconds, act, *arguments):
        when = time.monotonic() + seconds
        heapq.heappush(self.pending, (when, next(self.planned), act, arguments))

    def wait(self, until, seconds):
        """Wait for `until`, at most so many seconds, and do what is due meanwhile."""
        limit = time.monotonic() + seconds
        while not until():
            now = time.monotonic()
            if self.pending and self.pending[0][0] <= now:
                _, _, act, arguments = heapq.heappop(self.pending)
                act(*arguments)
                continue
            for rank, pid in list(self.pids.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self.take_end(rank, status)
            if now > limit:
                return False
            time.sleep(0.002)
        return True

    def take_end(self, rank, status):
        del self.pids[rank]
        os.close(self.commands.pop(rank))
        life = rank, self.lives[rank]
        text = f"it ended with status {status}"
        if not status:
            text = (self.folder / f"{rank}.{life[1]}").read_text()
        self.ended[life] = text
        # A rank that was shut out starts again, if the others can be reached by now.
        shut_out = self.may_be_shut_out(life) and re.match("|".join(SHUT_OUT), text)
        if shut_out or (self.lacks_files(life) and text == ABORTED):
            self.later(0.1, self.start, rank)

    def may_be_shut_out(self, life):
        """If two ranks cannot reach each other, either may be shut out: neither is known to err."""
        walls = any(what == "wall" for *_, what in self.events)
        return bool(self.cut) or walls or self.lacks_files(life)

    def lacks_files(self, life):
        return any((rank, what) == (life[0], "descriptors") for _, rank, what in self.events)

    def note(self, rank, what):
        self.events.append((time.monotonic(), rank, what))

    def kill(self, rank):
        if rank in self.pids:
            self.killed.add((rank, self.lives[rank]))
            os.kill(self.pids[rank], signal.SIGKILL)
            self.take_end(rank, os.waitpid(self.pids[rank], 0)[1])

    def send(self, rank, number):
        if rank in self.pids:
            self.note(rank, signal.Signals(number).name)
            os.kill(self.pids[rank], number)

    def command(self, rank, what, value=0.0):
        if rank in self.pids:
            self.note(rank, what)
            os.write(self.commands[rank], f"{what}={value}\n".encode())

    def limit(self, rank, room):
        """Leave a rank room for so many more open files."""
        if rank in self.pids:
            self.note(rank, f"room for {room} files")
            pid = self.pids[rank]
            hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
            files_of = os.listdir(f"/proc/{pid}/fd")
            most = max(map(int, files_of), default=3) if room else 3  # lower numbers may be free
            soft = hard if room is None else most + room
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, hard), hard))

    def act(self, act):
        rank, now = act.rank, time.monotonic()
        if rank not in self.pids or now < self.busy[rank]:
            return
        if act.kind == "descriptors" and self.begun[rank] <= self.lives[rank]:
            return  # the rank is still opening files of this script
        others = [r for r in self.pids if r != rank]
        if act.kind == "stop the others":  # while this one starts again: it must not go on alone
            # Before the first step it need not wait for them longer than `deadline`.
            if not self.done.max() or max(map(self.busy.__getitem__, others), default=now) > now:
                return
            for other in others:
                self.note(other, "long stop")
                self.busy[other] = now + act.seconds + 1.0
                self.send(other, signal.SIGSTOP)
                self.later(act.seconds + 0.1 * other, self.send, other, signal.SIGCONT)
            self.kill(rank)
            self.start(rank)
            return
        self.note(None if "store" in act.kind else rank, act.kind)
        self.busy[rank] = now + act.seconds
        if act.kind in ("kill", "cut"):
            self.kill(rank)
            if act.kind == "cut":
                self.later(0.0 if act.again == "at once" else act.seconds, self.start, rank, True)
            elif act.again in ("at once", "late"):
                self.later(0.0 if act.again == "at once" else act.seconds, self.start, rank)
            else:
                self.absent.add(rank)
                self.busy[rank] = math.inf
        elif "store" in act.kind:
            os.kill(self.keeper, signal.SIGSTOP)
            self.later(act.seconds, os.kill, self.keeper, signal.SIGCONT)
        elif "stop" in act.kind:
            self.send(rank, signal.SIGSTOP)
            self.later(act.seconds, self.send, rank, signal.SIGCONT)
        elif act.kind == "descriptors":
            self.limit(rank, int(10 * act.pause) % 8)
            self.later(act.seconds, self.limit, rank, None)
        else:
            self.command(rank, act.kind, act.seconds)
            if act.kind == "wall":
                self.later(act.seconds, self.command, rank, "open")

    def act_at_last(self):
        self.note(None, self.last)
        if self.last == "kill all":
            for rank in list(self.pids):
                self.kill(rank)
            self.most = self.done.max()
            for rank in range(self.count):
                self.start(rank)
            return
        os.kill(self.keeper, signal.SIGKILL if "kill" in self.last else signal.SIGSTOP)
        if self.last_death:
            self.kill(max(self.pids))

    # ------------------------------------------------------------------------------ what must hold

    def all_are_back(self):
        """All ranks that were not killed for good do steps together again, when reachable."""
        for rank, life in self.cut:
            if self.lives[rank] == life:
                self.command(rank, "open")
        start, within = self.done.max(), 2 * (DEADLINE + SETTLE) + LATE
        due = [r for r in range(self.count) if r not in self.absent]
        if not self.wait(lambda: self.done[due].min() >= start + 3, within):
            late = [r for r in due if self.done[r] < start + 3]
            ends = {life: text for life, text in self.ended.items() if life not in self.killed}
            raise AssertionError(f"ranks {late} do no steps, or not those of the others: {ends}")

    def all_have_ended(self):
        if not self.wait(lambda: not self.pids, 3 * DEADLINE + LATE + TO_END):
            for pid in self.pids.values():
                send(pid, signal.SIGUSR1)  # it prints its stack
            time.sleep(1.0)
            raise AssertionError(f"ranks {sorted(self.pids)} hang")

    def judge(self):
        """Check how ranks ended, and the log of their steps."""
        for life, text in self.ended.items():
            if life not in self.killed:
                assert self.may_end(life, text), f"rank {life[0]}, life {life[1]}: {text!r}"
        most, begun, own, last = 0, {}, {}, {}
        untouched = set(range(self.count)) - {rank for _, rank, _ in self.events}
        broken = any(what in ("break", "wall") for *_, what in self.events)
        with open(self.folder / "log", encoding="utf-8") as log:
            lines = [line.rstrip("\n").split(" ", 4) for line in log]
        for when, rank, life, step, what in sorted(
            (float(when), int(rank), int(life), int(step), what)
            for when, rank, life, step, what in lines
        ):
            where = f"rank {rank}, life {life}, step {step}"
            if what in ("begins", "left out"):
                begun[rank] = most
            if what == "joined":
                assert step >= begun[rank] - 1, f"{where}: progress was lost: {begun[rank]}"
            if what == "step":
                assert step == own[rank, life] + 1, f"{where}: after {own[rank, life]}"
                most = max(most, step)
            if what == "left out":
                assert broken or self.excused(rank, when), f"{where}: it was left out"
            if rank in untouched and rank in last and self.last is None:
                since = max([t for t, *_ in self.events if t < when], default=0.0)
                waited = when - max(since, last[rank])
                assert waited < DEADLINE + SETTLE + LATE, f"{where}: {waited} s for nobody's sake"
            own[rank, life], last[rank] = step, when
        if self.last == "kill all":
            assert most == self.most, "a run began anew beside one whose state is lost"

    def excused(self, rank, when):
        """Whether a rank may have been left out: it, or others with it, were cut off or silent."""
        done = [event for event in self.events if event[0] < when]
        own = [(time, what) for time, struck, what in done if struck == rank]
        if any(what in HARD for _, what in own):
            return True
        window = own[-1][0] - DEADLINE - SETTLE if own else math.inf
        return any(struck != rank and time > window for time, struck, _ in done)

    def may_end(self, life, text):
        """Whether a life that was not killed may end in this way."""
        ends = [f"done {self.end[0]}"]
        if self.may_be_shut_out(life):
            ends += SHUT_OUT
        if self.lacks_files(life):
            ends.append(ABORTED)
        if life in self.after:
            ends.append(f"FinishedError: the run ended at step {self.end[0]}:")
        if self.last == "kill all":
            ends.append("RuntimeError: the state of the training is lost")
        if self.last is not None and "store" in self.last:
            ends.append("RuntimeError: .*the store by which ranks agree")
            ends.append("LEFT: .*fastgc-members")  # a thread still waits for the store
        return any(re.match(end, text) for end in ends)


def refuse(rng, all_of_them=False):
    """Let this process's connections fail from now on, to some addresses or to all."""
    number = int(rng.choice([errno.EHOSTUNREACH, errno.ECONNREFUSED]))
    some, usual = 1 if all_of_them else rng.choice([2, 1]), socket.socket.connect_ex

    def connect_ex(made, address):
        return number if address[1] % some == 0 else usual(made, address)

    socket.socket.connect_ex = connect_ex


def break_connections(kept, rng, some=True):
    """Shut down one of this process's connections, or all, except those to port `kept`."""
    found = []
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "socket" in os.readlink(f"/proc/self/fd/{each}"):
                copy = socket.socket(fileno=os.dup(int(each)))
                with contextlib.suppress(OSError, IndexError):
                    if copy.getpeername()[1] != kept:
                        found.append(copy)
    if found and some:
        found = [found[rng.integers(len(found))]]
    for each in found:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def left_of_a_rank(before):
    """Return a text about files and threads that a rank has opened and kept, or an empty one."""
    until = time.monotonic() + TO_END
    while True:
        gc.collect()
        found = [f"{count} of {name}" for name, count in (files() - before).items()]
        found += [each.name for each in threading.enumerate() if "fastgc" in each.name]
        if not found:
            return ""
        if time.monotonic() > until:
            faulthandler.dump_traceback()
            return f"LEFT: {found}"
        time.sleep(0.01)


def groups(options):
    """Run groups of ranks, several at once; return the exit status."""
    import torch

    import fastgc.torch  # noqa: F401 - once, and not by each of the forks

    torch.set_num_threads(1)
    found, begun, running = collections.Counter(), 0, {}
    until, number = time.monotonic() + options.seconds, options.seed
    with tempfile.TemporaryDirectory(prefix="adversary-") as top:
        while True:
            while len(running) < AT_ONCE and (time.monotonic() < until or not begun):
                (folder := Path(top) / str(number)).mkdir()
                if not (pid := os.fork()):
                    be_a_group(number, folder)
                running[pid] = number, folder
                number, begun = number + 1, begun + 1
            if not running:
                break
            pid, status = os.wait()
            seed, folder = running.pop(pid)
            left = list(in_session(pid))
            for each in left:
                send(each, signal.SIGKILL)
            text = (folder / "found").read_text() if (folder / "found").exists() else ""
            if status and not text:
                text = f"a group ended with status {status}"
            if left and not text:
                text = "left: processes of a group that has ended"
            if text:
                found[f"--seed {seed}: {text}"] += 1
                print((folder / "out").read_text(), flush=True)
            shutil.rmtree(folder)
    for what in found:
        print(f"        {what}")
    print(f"{begun:6d}  groups of ranks, of which {len(found)} found something")
    return int(bool(found))


def be_a_group(number, folder):
    """Run one group, in a session of its own."""
    status = 1
    try:
        os.setsid()
        ends_with_its_parent()
        with open(folder / "out", "w", encoding="utf-8") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        group = Group(number, folder)
        print(f"--seed {number}: {group}", flush=True)
        try:
            group.run()
            status = 0
        except BaseException as error:
            traceback.print_exc()
            for when, rank, what in group.events:
                print(f"{when} {rank} {what}")
            print((folder / "log").read_text())
            (folder / "found").write_text(f"{type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        os._exit(status)


def in_session(session):
    """Yield the processes of a session."""
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and status_of(int(each.name)):
            with contextlib.suppress(OSError):
                if os.getsid(int(each.name)) == session:
                    yield int(each.name)


# ---------------------------------------------------------------------------------- running them


def draw(machine, number, examples, steps=12):
    """Run sequences of one seed; raise what they find."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run_state_machine_as_test(seed(number)(machine), settings=chosen)


def child(number, examples, hangs, only):
    """Run sequences of one seed in this process, and print what they find."""
    find_shim()
    faulthandler.enable()
    faulthandler.dump_traceback_later(hangs, exit=True)
    signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGINT))
    # Few kinds of operations in each process: a finding ends it, and hides those of other kinds.
    drawn = np.random.default_rng(number).random(len(KINDS)) < SHARE
    chosen = only or [name for name, kept in zip(KINDS, drawn, strict=True) if kept]
    left_out = dict.fromkeys(set(KINDS).difference(chosen))
    try:
        draw(type("Some", (Adversary,), left_out), number, examples)
    except BaseException as error:
        found: BaseException = error
        while isinstance(found, BaseExceptionGroup):  # Hypothesis did not find it a second time
            found = found.exceptions[0]
        frames = traceback.extract_tb(found.__traceback__)
        named = [frame.name for frame in frames if frame.filename == __file__]
        rules = [name for name in named if name in vars(Adversary) or name in vars(Rounds)]
        text = str(found).strip().splitlines() or [""]
        print(f"FOUND {type(found).__name__} in {(rules or ['?'])[0]}: {text[0][:100]}")
        traceback.print_exc()
    print(f"OPERATIONS {Rounds.operations}")


def main(arguments=None):
    """Run for a while and print all findings; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--examples", type=int, default=6, help="sequences of a process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hangs", type=float, default=300.0, help="seconds that it must last")
    parser.add_argument("--engine", choices=["local", "ray", "mpi", "ranks"], default="local")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=[], help="no others than these")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        child(options.seed, options.examples, options.hangs, options.only)
        return 0
    if options.engine != "local":
        return other_engine(options)
    found, operations = collections.Counter(), 0
    with tempfile.TemporaryDirectory(prefix="adversary-") as folder:
        made = build_shim(folder)
        until, number = time.monotonic() + options.seconds, options.seed
        while True:
            environment = os.environ | {MARK: str(uuid.uuid4()), "TMPDIR": folder}
            if made:
                environment["LD_PRELOAD"] = made
            command = [sys.executable, "-P", __file__, "--child"]
            command += ["--seed", str(number), "--examples", str(options.examples)]
            command += ["--hangs", str(options.hangs)]
            command += ["--only", *options.only] if options.only else []
            # Output goes to files: processes that it leaves running would hold a pipe's ends.
            with (
                open(Path(folder) / "out", "w+", encoding="utf-8") as out,
                open(Path(folder) / "err", "w+", encoding="utf-8") as err,
            ):
                status = subprocess.run(command, env=environment, stdout=out, stderr=err).returncode
                out.seek(0)
                err.seek(0)
                printed, told = out.read(), err.read()
            number += 1
            ended = time.monotonic()
            while marked(environment[MARK]) and time.monotonic() < ended + 2.0:
                time.sleep(0.01)  # helpers of the standard library end a moment later
            for pid in marked(environment[MARK]):
                found["left: processes of a program that has ended"] += 1
                send(pid, signal.SIGKILL)
            for line in printed.splitlines():
                if line.startswith("OPERATIONS "):
                    operations += int(line.split()[1])
                if line.startswith("FOUND "):
                    found[line.removeprefix("FOUND ")] += 1
            if status:
                lines = re.findall(r"in (\w+)\n", told)
                at = next((name for name in lines if name in {*dir(Adversary)}), "?")
                how = f"signal {-status}" if status < 0 else "a hang"
                found[f"ended by {how} in {at}"] += 1
            if time.monotonic() > until:
                break
    for what, count in found.most_common():
        print(f"{count:6d}  {what}")
    print(f"{operations:6d}  operations in {number - options.seed} processes, without these")
    return int(bool(found))


def other_engine(options):
    """Run sequences on Ray or the ranks of an MPI job, or groups of ranks; return the status."""
    if options.engine == "ranks":
        return groups(options)
    if options.engine == "ray":
        from fastgc.engines.ray import RayCluster

        with RayCluster(fastgc.Uncoded(1), [0], np.multiply, 1):  # starts Ray, once
            return until_the_end(RayCluster, options)
    from fastgc.engines.mpi import MPI, MPICluster

    comm = MPI.COMM_WORLD
    if comm.rank:
        while comm.bcast(None):
            MPICluster.serve()
        return 0

    def engine(*arguments, **keywords):
        comm.bcast(True)
        return MPICluster(*arguments, **keywords)

    status = until_the_end(engine, options)
    comm.bcast(False)
    return status


def until_the_end(engine, options):
    """Run sequences of one seed after another until the time is over; raise the first finding."""

    class Machine(Rounds):
        pass

    Machine.engine = staticmethod(engine)
    until, number = time.monotonic() + options.seconds, options.seed
    while time.monotonic() < until:
        draw(Machine, number, options.examples)
        number += 1
    print(f"{Rounds.operations:6d}  operations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
