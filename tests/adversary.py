"""Random attacks on clusters and rounds, in any order, drawn by a state machine of Hypothesis.

Whatever is done, the sum is exact, or an error says why not, and nothing is left behind. The
sequences read rounds late, kill and stop processes, fork, and interrupt a cluster's start. Workers
that lie write to their memory, whose names they know (`LIAR`).
"""

import gc
import os
import signal
import tempfile
import threading
import time
import uuid
from _thread import interrupt_main
from contextlib import suppress

import numpy as np
import worker_processes
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from worker_processes import pids, wait_for_ends

import fastgc
from fastgc.engines import LocalCluster

WORKERS = 4
CODES = [
    fastgc.ReedSolomon(WORKERS, stragglers=2),
    fastgc.BinaryCode(WORKERS, stragglers=1),
    fastgc.Uncoded(WORKERS, load=3),
]
SHARDS = [1.0, 2.0, 4.0, 8.0]
TIMEOUT = 60.0  # seconds of a round
KEPT = 50  # rounds to be read late

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
tell, line = lambda *record: me["channel"].write(record), me["line"]
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
        tell(1, round, -1, 0, 0.0)
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


# --------------------------------------------------------------------------------- the sequences


class Rounds(RuleBasedStateMachine):
    """Clusters and their rounds, used in any order that every engine can take."""

    engine = staticmethod(LocalCluster)

    def __init__(self):
        super().__init__()
        self.cluster = self.code = None
        self.kept = []  # rounds, and the gradients that they must decode to

    @rule(code=st.sampled_from(CODES), p=st.sampled_from([1, 6, 5000]))
    def open(self, code, p):
        self.close()
        self.code, self.p = code, p
        self.cluster = self.engine(code, SHARDS, np.multiply, p, timeout=TIMEOUT)

    @precondition(lambda self: self.cluster)
    @rule(value=st.floats(-4, 4), own=st.booleans())
    def step(self, value, own):
        """Do a step; its result may overwrite the parameters."""
        theta = np.full(self.p, value)
        expected = theta * sum(SHARDS)
        out = theta if own else np.empty(self.p)
        self.cluster.step(theta, out)
        np.testing.assert_allclose(out, expected, atol=1e-12)

    @precondition(lambda self: self.cluster)
    @rule(value=st.floats(-4, 4))
    def collect(self, value):
        theta = np.full(self.p, value)
        rnd = self.code.round(self.p)
        self.cluster.collect(theta, rnd)
        if len(self.kept) == KEPT:
            del self.kept[KEPT // 2]
        self.kept.append((rnd, theta * sum(SHARDS)))

    @precondition(lambda self: self.kept)
    @rule(at=st.integers(0, KEPT), verb=st.sampled_from(["gradient", "best", "trust"]))
    def read(self, at, verb):
        """Read a round: at any later time it is unchanged, or says that it is gone."""
        rnd, expected = self.kept[at % len(self.kept)]
        try:
            found = getattr(rnd, verb)()
        except RuntimeError as error:
            if "gone" not in str(error):
                raise
            return
        if verb != "trust":
            found = found.gradient if verb == "best" else found
            np.testing.assert_allclose(found, expected, atol=1e-12)

    @precondition(lambda self: self.cluster)
    @rule(number=st.integers(0, 2**32 - 1), count=st.sampled_from([1, 10, 100, 1000]))
    def many(self, number, count):
        """Do many quick operations, for errors that appear once in thousands."""
        rng = np.random.default_rng(number)
        for what in rng.integers(3, size=count).tolist():
            if what == 0:
                self.step(rng.uniform(-4, 4), rng.random() < 0.5)
            elif what == 1:
                self.collect(rng.uniform(-4, 4))
            elif self.kept:
                self.read(rng.integers(KEPT), ["gradient", "best", "trust"][rng.integers(3)])

    @rule()
    def close(self):
        if self.cluster:
            self.cluster.close()
            self.cluster.close()
            self.cluster = self.code = None

    @precondition(lambda self: self.cluster)
    @rule(error=st.sampled_from([KeyError, KeyboardInterrupt]))
    def leave_by_an_error(self, error):
        cluster, self.cluster = self.cluster, None
        with suppress(error), cluster:
            raise error

    def teardown(self):
        self.close()
        self.kept.clear()


def send(pid, number):
    """Send a signal to a process, which may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def open_files():
    gc.collect()  # errors may hold maps of memory
    return len(os.listdir("/proc/self/fd"))


class Adversary(Rounds):
    """The same, while processes are killed and stopped, forks are made, and starts interrupted."""

    def __init__(self):
        super().__init__()
        self.stopped = set()
        with LocalCluster(fastgc.Uncoded(1), [0], np.multiply, 1):
            pass  # it opens what stays open for the program's life
        self.files = open_files()

    @precondition(lambda self: self.cluster)
    @rule(at=st.integers(0, WORKERS - 1))
    def kill(self, at):
        if running := pids():
            send(running[at % len(running)], signal.SIGKILL)

    @precondition(lambda self: self.cluster and self.code.stragglers)
    @rule(at=st.integers(0, WORKERS - 1))
    def stop(self, at):
        running = pids()
        if running and not self.stopped:
            self.stopped.add(running[at % len(running)])
            send(*self.stopped, signal.SIGSTOP)

    @rule()
    def wake(self):
        for pid in self.stopped:
            send(pid, signal.SIGCONT)
        self.stopped.clear()

    @rule(number=st.sampled_from([signal.SIGKILL, signal.SIGSTOP]), then=st.booleans())
    def strike_the_server(self, number, then):
        """Kill or stop the server and, if `then`, a worker that it would have to fork again."""
        if (struck := worker_processes.server()) is not None:
            if then and self.cluster and (running := pids()):
                send(running[0], signal.SIGKILL)
            send(struck, number)

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
        assert os.waitpid(child, 0)[1] == 0

    @rule(after=st.floats(1e-4, 0.3))
    def interrupt_a_start(self, after):
        """Interrupt a start at any moment; the next start is undisturbed."""
        self.close()
        interrupts = threading.Timer(after, interrupt_main)
        with suppress(KeyboardInterrupt):
            interrupts.start()
            LocalCluster(fastgc.Uncoded(WORKERS), SHARDS, np.multiply, 2).close()
            interrupts.join()
        with LocalCluster(fastgc.Uncoded(WORKERS), SHARDS, np.multiply, 2) as cluster:
            out = np.empty(2)
            cluster.step(np.ones(2), out)
            np.testing.assert_allclose(out, sum(SHARDS))

    def teardown(self):
        super().teardown()
        self.wake()
        wait_for_ends(*pids())
        until = time.monotonic() + 60.0
        while open_files() > self.files:  # threads and processes that end release them later
            assert time.monotonic() < until, "files are left open"
            time.sleep(0.05)


def draw(machine, number, examples, steps=12):
    """Run sequences of as many seeds, from `number` on; raise what they find."""
    chosen = settings(
        # The shortest one, and another: of more, Hypothesis would require that those which begin
        # alike go on alike, and with real processes they do not.
        max_examples=2,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    for each in range(number, number + examples):
        try:
            run_state_machine_as_test(seed(each)(machine), settings=chosen)
        except FlakyStrategyDefinition as unlike:  # both begin alike, and time let one end earlier
            if unlike.__context__ is not None:  # it was to repeat what had failed
                raise


def on(cluster):
    """Return a machine of sequences on another engine."""
    return type("Machine", (Rounds,), {"engine": staticmethod(cluster)})
