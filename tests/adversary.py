"""Random attacks on clusters and rounds, in any order.

Whatever is done, the sum is exact, or an error says why not, and nothing is left behind.

``python tests/adversary.py --seconds 60`` draws sequences from a state machine of Hypothesis. Each
seed runs in a process of its own, because some findings end it. The sequences read rounds late,
write results where messages lie, kill and stop processes, fork beside threads, make system calls
fail (by ``LD_PRELOAD``), and interrupt a cluster's start. The program prints each finding with its
count; the exit status is 1 if there is any. It uses only the public interface and
what the system tells about processes, so it also runs on other versions. Workers that lie write to
their memory, whose names they know (`LIAR`).

``--engine ray`` draws the sequences that Ray can run. ``mpiexec -n 5 python -m mpi4py
tests/adversary.py --engine mpi`` draws those for the ranks of a job; it ends at the first finding.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import errno
import faulthandler
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from pathlib import Path

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
KINDS += ["strike_the_server", "fork", "fork_beside_threads", "interrupt_a_start", "fail_a_call"]
KINDS += ["many", "lie"]
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
CALL(1, int, socketpair, (int domain, int type, int protocol, int *fds),
     (domain, type, protocol, fds))
CALL(2, int, pipe2, (int *fds, int flags), (fds, flags))
CALL(3, int, memfd_create, (const char *name, unsigned flags), (name, flags))
CALL(4, int, ftruncate, (int fd, off_t size), (fd, size))
CALL(4, int, ftruncate64, (int fd, off_t size), (fd, size))
CALL(5, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
CALL(6, ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
CALL(7, pid_t, fork, (void), ())
"""
CALLS = ["write", "socketpair", "pipe2", "memfd_create", "ftruncate", "sendmsg", "send", "fork"]
ERRORS = [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EAGAIN]

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
    """Let a system call fail once, after `after` calls."""
    shim.adversary_arm(CALLS.index(name), after, number)
    try:
        yield
    finally:
        shim.adversary_arm(-1, 0, 0)


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
    parser.add_argument("--engine", choices=["local", "ray", "mpi"], default="local")
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
    """Run sequences on Ray or the ranks of an MPI job; return the status."""
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
