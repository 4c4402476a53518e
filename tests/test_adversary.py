"""Whatever is done to a cluster, in whatever order: the sum is exact, or an error says why not.

A state machine of Hypothesis draws sequences: rounds, kills and stops of any process, system calls
that fail, forks, clusters closed early and rounds read late, results written where messages lie. In
the end nothing may be left: no process, no open file.

    pytest --long tests/test_adversary.py

runs it for a minute, and ``ADVERSARY_SECONDS=3600`` before it for an hour.
"""

import contextlib
import errno
import os
import signal
import time

import numpy as np
import pytest
import worker_processes
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from remote import Remote
from strength import much

import fastgc
from fastgc import checkpoint
from fastgc.engines import LocalCluster, fork_server

pytestmark = pytest.mark.any_backend

WORKERS = 4
CODES = [
    fastgc.ReedSolomon(WORKERS, stragglers=2),
    fastgc.BinaryCode(WORKERS, stragglers=1),
    fastgc.Uncoded(WORKERS, load=3),
    fastgc.YeAbbe(WORKERS, stragglers=1, reduce=2),
]
PATIENCE = 10.0  # seconds for the dead to come back


# What never ends, whatever signal comes but one.
STALLING = Remote(
    "lambda theta, shard, out, signal=__import__('signal'), time=__import__('time'): "
    "(signal.signal(signal.SIGTERM, signal.SIG_IGN), time.sleep(600)) if shard == 4.0 "
    "else out.__setitem__(slice(None), shard * theta)"
)


class Adversary(RuleBasedStateMachine):
    """What may happen to one cluster after another."""

    def __init__(self):
        super().__init__()
        self.cluster = None
        self.kept = []  # rounds, what they decode to, their clusters: None once they have lapsed
        self.stopped = set()
        self.seen = set()  # processes that were workers
        self.files = len(os.listdir("/proc/self/fd"))

    # ------------------------------------------------------------------ the usual

    @rule(code=st.sampled_from(CODES), p=st.sampled_from([1, 6, 5000]))
    def open(self, code, p):
        self.close()
        self.wake()
        self.code, self.p = code, p
        self.shards = [1.0, 2.0, 4.0, 8.0]
        self.cluster = LocalCluster(
            code, self.shards, np.multiply, p, timeout=20.0, patience=PATIENCE
        )
        self.note()

    def note(self):
        self.seen.update(self.cluster._transport.pids().values())

    def sum_at(self, theta):
        return theta * sum(self.shards)

    @precondition(lambda self: self.cluster)
    @rule(value=st.floats(-4, 4), own=st.booleans())
    def step(self, value, own):
        """The result may take the place of the parameters."""
        theta = np.full(self.p, value)
        expected = self.sum_at(theta)
        out = theta if own else np.empty(self.p)
        self.cluster.step(theta, out)
        np.testing.assert_allclose(out, expected, atol=1e-12)
        self.lapse()
        self.note()

    @precondition(lambda self: self.cluster)
    @rule(value=st.floats(-4, 4))
    def collect(self, value):
        theta = np.full(self.p, value)
        rnd = self.code.round(self.p)
        self.cluster.collect(theta, rnd)
        self.lapse()
        self.kept.append([rnd, self.sum_at(theta), self.cluster])
        self.note()

    def lapse(self):
        for each in self.kept:
            if each[2] is self.cluster:
                each[2] = None

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), verb=st.sampled_from(["gradient", "best", "into a message"]))
    def read(self, data, verb):
        """A round at any time later: what it decodes to, or that it has lapsed."""
        rnd, expected, cluster = data.draw(st.sampled_from(self.kept))
        if cluster is None:
            with pytest.raises(RuntimeError, match="gone"):
                rnd.gradient()
        elif verb == "gradient":
            np.testing.assert_allclose(rnd.gradient(), expected, atol=1e-12)
        elif verb == "best":
            np.testing.assert_allclose(rnd.best().gradient, expected, atol=1e-12)
        elif rnd._rows.arrays[0].size == expected.size:
            with pytest.raises(ValueError, match="shares memory"):
                rnd.gradient(out=rnd._rows.arrays[0])

    @rule()
    def close(self):
        if self.cluster:
            self.note()
            self.cluster.close()
            self.cluster.close()
            self.cluster = None
            self.code = None

    @precondition(lambda self: self.cluster)
    @rule(error=st.sampled_from([KeyError, KeyboardInterrupt]))
    def leave_by_an_error(self, error):
        cluster, self.cluster = self.cluster, None
        self.code = None
        with pytest.raises(error), cluster:
            raise error

    @rule(refuses=st.booleans())
    def time_out(self, refuses):
        """An error in a round closes the cluster; what came is still to be read."""
        self.close()
        self.wake()
        code = fastgc.Uncoded(WORKERS)
        rnd = code.round(3)
        gradient = STALLING if refuses else np.multiply
        delays = None if refuses else Late()
        cluster = LocalCluster(
            code, [1.0, 2.0, 4.0, 8.0], gradient, 3, timeout=0.2, delays=delays, patience=PATIENCE
        )
        self.seen.update(cluster._transport.pids().values())
        theta = np.array([7.0, 1.0, 1.0])
        with pytest.raises(TimeoutError):
            cluster.collect(theta, rnd)
        if set(rnd.survivors.tolist()) == {0, 1, 3}:
            np.testing.assert_allclose(rnd.best().gradient, 11.0 * theta)

    # ------------------------------------------------------------------ what is done to it

    @precondition(lambda self: self.cluster)
    @rule(worker=st.integers(0, WORKERS - 1))
    def kill(self, worker):
        pid = self.cluster._transport.pids().get(worker)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.stopped.discard(pid)

    @precondition(lambda self: self.cluster and self.code.stragglers)
    @rule(worker=st.integers(0, WORKERS - 1))
    def stop(self, worker):
        pid = self.cluster._transport.pids().get(worker)
        if pid is not None and not self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self.stopped.add(pid)

    @rule()
    def wake(self):
        for pid in self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stopped.clear()

    @precondition(lambda self: worker_processes.server() is not None)
    @rule(number=st.sampled_from([signal.SIGKILL, signal.SIGSTOP]))
    def strike_the_server(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker_processes.server(), number)

    @precondition(lambda self: self.cluster)
    @rule(closes=st.booleans())
    def fork(self, closes):
        """A child may do what it likes with its copy of the cluster."""
        child = os.fork()
        if not child:
            try:
                if closes:
                    self.cluster.close()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

    @rule(failing=st.sampled_from(["fsync", "pwrite", "replace"]), again=st.integers(1, 3))
    def save(self, failing, again):
        """A checkpoint's save fails, and is repeated."""
        folder = self.folder / str(time.monotonic_ns())
        usual = getattr(os, failing)

        def fail(*_):
            raise OSError(errno.EIO, "Input/output error")

        with checkpoint.Checkpoint(folder, {"run": "x"}) as kept:
            kept.add(1)
            setattr(os, failing, fail)
            try:
                for _ in range(again):
                    with pytest.raises(OSError, match="Input/output"):
                        kept.save({"theta": np.ones(2)})
            finally:
                setattr(os, failing, usual)
            kept.add(2)
            kept.save({"theta": np.ones(2)})
        with checkpoint.Checkpoint(folder, {"run": "x"}) as kept:
            assert kept.lines == [1, 2]

    def teardown(self):
        self.close()
        self.wake()
        self.kept.clear()
        worker_processes.wait_for_ends(*self.seen)
        server = worker_processes.server()
        if server is not None:
            os.kill(server, signal.SIGCONT)
        own = 2 * (server is not None)  # its socket, and its life
        left = len(os.listdir("/proc/self/fd")) - self.files
        assert left <= own, [os.readlink(f"/proc/self/fd/{f}") for f in os.listdir("/proc/self/fd")]


class Late:
    """One worker does not answer."""

    def sample(self, round, workers, seed):
        return np.array([0.0, 0.0, 600.0, 0.0])


def test_local_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_server, "_TO_FORK", 0.5)
    until = time.monotonic() + float(os.environ.get("ADVERSARY_SECONDS", much(60, 0)))
    Adversary.folder = tmp_path
    while True:
        run_state_machine_as_test(
            Adversary,
            settings=settings(
                max_examples=much(25, 3),
                stateful_step_count=12,
                deadline=None,
                derandomize=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
        if time.monotonic() > until:
            break
