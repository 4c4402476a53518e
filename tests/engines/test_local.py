"""The local engine. No test asserts a time; no test waits for a worker whose delay is ABSENT."""

import errno
import gc
import logging
import os
import re
import signal
import sys
import textwrap
import threading
import time
import warnings

import numpy as np
import programs
import pytest
from engine_checks import Delays, check_lateness, check_leaving_between_messages, check_two_clusters
from remote import Remote
from strength import much
from worker_processes import pids, wait_for_ends

from fastgc import (
    BinaryCode,
    CouponCollector,
    Grouped,
    RandomAssignment,
    Reactive,
    ReedSolomon,
    Uncoded,
)
from fastgc.delays import Empirical
from fastgc.engines import LocalCluster, local, placement
from fastgc.errors import NonFiniteMessageError, NotDecodableError, WorkerFailedError
from fastgc.stability import StabilityTracker
from fastgc.testing import engines as conformance
from fastgc.training.tables import training_bar

ABSENT = 600.0


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    wait_for_ends(*pids())


# np.multiply(theta, shard, out) has the signature of a gradient function, and pickles.


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check):
    check(LocalCluster)


def test_late_worker_jumps_to_the_newest_parameters():
    # Either of the two workers can answer alone.
    out = np.empty(3)
    with LocalCluster(ReedSolomon(2, 2, stragglers=1), [1.0, 2.0], np.multiply, 3) as cluster:
        zero, one = *pids(0), *pids(1)
        os.kill(one, signal.SIGSTOP)
        report = cluster.step(np.full(3, 10.0), out)
        assert report.survivors.tolist() == [0]
        np.testing.assert_allclose(out, 30.0)

        os.kill(zero, signal.SIGSTOP)
        os.kill(one, signal.SIGCONT)
        report = cluster.step(np.full(3, 20.0), out)
        assert report.survivors.tolist() == [1]
        assert report.stale in (0, 1)  # whether it began before the new round did
        np.testing.assert_allclose(out, 60.0)

        # Worker 0 has not begun to read the parameters of round 1, so they must stay in place.
        for number in range(2, 6):
            report = cluster.step(np.full(3, float(number)), out)
            assert report.survivors.tolist() == [1]
            assert report.stale == 0
            np.testing.assert_allclose(out, 3.0 * number)

        os.kill(one, signal.SIGSTOP)
        os.kill(zero, signal.SIGCONT)
        report = cluster.step(np.full(3, 7.0), out)
        assert report.survivors.tolist() == [0]
        assert report.stale in (0, 1)  # whether it began before the new round did
        np.testing.assert_allclose(out, 21.0)
        os.kill(one, signal.SIGCONT)


def test_message_that_comes_between_two_rounds_is_stale_in_the_second():
    out = np.empty(1)
    with LocalCluster(ReedSolomon(2, 2, stragglers=1), [1.0, 2.0], np.multiply, 1) as cluster:
        zero, one = *pids(0), *pids(1)
        os.kill(one, signal.SIGSTOP)
        assert cluster.step(np.ones(1), out).stale == 0
        os.kill(one, signal.SIGCONT)
        time.sleep(0.1)  # time for it to come; the assertions hold even if it does not
        os.kill(zero, signal.SIGSTOP)
        report = cluster.step(np.full(1, 2.0), out)
        assert report.stale == 1
        assert report.survivors.tolist() == [1]
        np.testing.assert_allclose(out, 6.0)
        os.kill(zero, signal.SIGCONT)


def test_random_delays_leave_every_gradient_exact():
    class Random:
        def sample(self, round, workers, seed):
            return np.random.default_rng([seed, round]).exponential(0.002, workers)

    code = ReedSolomon(6, 6, stragglers=2)
    rng = np.random.default_rng(2)
    shards = list(rng.standard_normal((6, 11)))
    out = np.empty(11)
    stale = 0
    with LocalCluster(code, shards, np.multiply, 11, delays=Random(), seed=3) as cluster:
        for _ in range(much(200, 60)):
            theta = rng.standard_normal(11)
            stale += cluster.step(theta, out).stale
            np.testing.assert_allclose(out, theta * np.sum(shards, axis=0), atol=1e-12)
    assert stale > 0


@pytest.mark.parametrize("seed", range(3))
def test_killed_workers_are_stragglers_until_too_many_are(seed, caplog):
    rng = np.random.default_rng(seed)
    code = ReedSolomon(6, 6, stragglers=2)
    out = np.empty(5)
    killed = []
    with LocalCluster(code, [1.0] * 6, np.multiply, 5, patience=0) as cluster:
        for victim in rng.permutation(6):
            for _ in range(rng.integers(1, 30)):
                report = cluster.step(np.ones(5), out)
                np.testing.assert_allclose(out, 6.0)
            assert set(report.lost) <= set(killed)
            alive = sorted(set(range(6)) - {*killed, int(victim)})
            os.kill(*pids(victim), signal.SIGKILL)
            killed.append(int(victim))
            if not code.decodable(alive):
                break
        # The master may notice the last death a round later.
        with pytest.raises(NotDecodableError, match=str(killed[-1])) as caught:  # noqa: PT012
            while True:
                cluster.step(np.ones(5), out)
        assert caught.value.missing == 1
        told = [re.fullmatch(r"worker (\d) died in round \d+", said) for said in caplog.messages]
        assert sorted(int(each[1]) for each in told) == sorted(killed)  # once each
        wait_for_ends(*pids())


def test_death_during_a_round():
    die = Remote("lambda theta, shard, out: __import__('os').abort() if shard else out.fill(1)")
    cluster = LocalCluster(Uncoded(3, 3), [0, 1, 0], die, 1, patience=0)
    with pytest.raises(NotDecodableError, match=r"workers \[1\] have died.*round 0") as caught:
        cluster.step(np.ones(1), np.empty(1))
    assert caught.value.missing == 1


@pytest.mark.parametrize(
    ("gradient", "match"),
    [
        ("{}['é' * 100_000 + ' the end']", "the end"),  # longer than the space for it
        ("exit(shard)", "SystemExit: 3"),
        ("theta.fill(0)", "read-only"),
    ],
)
def test_what_a_gradient_must_not_do(gradient, match):
    fail = Remote(f"lambda theta, shard, out: {gradient}")
    cluster = LocalCluster(Uncoded(1, 1), [3], fail, 1)
    with pytest.raises(WorkerFailedError, match=match):
        cluster.step(np.ones(1), np.empty(1))


def test_shard_that_cannot_be_loaded():
    class Shard:
        def __reduce__(self):
            return int, ("not a number",)

    with pytest.raises(WorkerFailedError, match=r"(?s)worker 1 failed while it started.*not a n"):
        LocalCluster(Uncoded(2, 2), [1.0, Shard()], np.multiply, 1)


def test_worker_that_dies_while_it_starts():
    class Shard:
        def __reduce__(self):
            return os._exit, (3,)

    with pytest.raises(WorkerFailedError, match="worker 1 died") as caught:
        LocalCluster(Uncoded(2, 2), [1.0, Shard()], np.multiply, 1)
    assert caught.value.worker == 1


def test_gradient_that_cannot_be_pickled():
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        LocalCluster(Uncoded(1, 1), [1.0], threading.Lock().acquire, 1)


def test_timeout_names_the_silent():
    delays = Delays([0.0, ABSENT, ABSENT])
    cluster = LocalCluster(Uncoded(3, 3), [1.0] * 3, np.multiply, 1, delays=delays, timeout=0.3)
    with pytest.raises(TimeoutError, match=r"workers \[1, 2\]"):
        cluster.step(np.ones(1), np.empty(1))
    wait_for_ends(*pids())


def test_close_ends_a_worker_that_will_not_end(monkeypatch):
    monkeypatch.setattr(local, "GRACE", 0.2)
    stubborn = Remote(
        "lambda theta, shard, out, signal=__import__('signal'), time=__import__('time'): "
        "[signal.signal(signal.SIGTERM, signal.SIG_IGN), time.sleep(600)] if shard else out.fill(0)"
    )
    cluster = LocalCluster(Uncoded(2, 2), [0, 1], stubborn, 1, timeout=0.3)
    with pytest.raises(TimeoutError):
        cluster.step(np.ones(1), np.empty(1))
    wait_for_ends(*pids())


def test_workers_run_one_thread_each():
    threads = Remote(
        "lambda theta, shard, out: out.fill(int(__import__('os').environ['OMP_NUM_THREADS']) "
        "+ 10 * __import__('fastgc').kernels.threads.get_num_threads())"
    )
    before = dict(os.environ)
    out = np.empty(1)
    with LocalCluster(Uncoded(2, 2), [0, 0], threads, 1) as cluster:
        cluster.step(np.ones(1), out)
    assert out == [22.0]
    assert dict(os.environ) == before


def test_two_clusters_at_once():
    check_two_clusters(LocalCluster)


def test_workers_import_what_the_master_does(tmp_path):
    """A folder named fastgc in the working directory, such as a checkout, changes nothing."""
    (tmp_path / "fastgc").mkdir()
    (tmp_path / "fastgc" / "__init__.py").write_text("raise ImportError('not this one')")
    source = """
        import os, sys
        import numpy as np
        from fastgc import Uncoded
        from fastgc.engines import LocalCluster, SimulatedCluster
        sys.path.insert(0, os.getcwd())  # after all that it imports

        if __name__ == "__main__":
            with LocalCluster(Uncoded(2), [1.0, 2.0], np.multiply, 1) as cluster:
                cluster.step(np.ones(1), out := np.empty(1))
                print(out)
    """
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "elsewhere" / "program.py"
    script.write_text(textwrap.dedent(source))
    result = programs.run([sys.executable, script], folder=tmp_path)
    assert (result.stdout, result.stderr) == ("[3.]\n", "")


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONSAFEPATH"])
def test_workers_keep_the_environment(name, monkeypatch):
    if name in os.environ:
        monkeypatch.delenv(name)
    unset = Remote(f"lambda t, s, out: out.fill({name!r} not in __import__('os').environ)")
    with LocalCluster(Uncoded(1), [None], unset, 1) as cluster:
        cluster.step(np.ones(1), out := np.zeros(1))
    assert out == 1
    assert name not in os.environ


def test_forgotten_cluster_is_closed():
    cluster = LocalCluster(Uncoded(1, 1), [1.0], np.multiply, 1)
    cluster.step(np.ones(1), np.empty(1))
    del cluster
    gc.collect()
    wait_for_ends(*pids())


def test_workers_wait_for_each_of_their_partitions():
    code = Uncoded(2, 8)
    assert code.scheme.loads.tolist() == [4, 4]
    out = np.empty(1)
    for per, least in (("round", 0.04), ("computation", 0.16)):
        delays = Empirical([0.04], per)
        with LocalCluster(code, [1.0] * 8, np.multiply, 1, delays=delays) as cluster:
            assert cluster.step(np.ones(1), out).wait_seconds >= least
            assert out == 8.0


SCRIPT = """
    import signal
    import os, sys
    import numpy as np
    from fastgc import ReedSolomon
    from fastgc.engines import LocalCluster, SimulatedCluster

    class Delays:
        def sample(self, round, workers, seed):
            return np.array([0.0, 0.0, 600.0, 0.0])

    def named_memory():
        if not os.path.exists("/proc/self/maps"):
            return 0
        with open("/proc/self/maps") as maps:
            return maps.read().count("/dev/shm/")

    if __name__ == "__main__":
        # a shell's background jobs, and what they start, have it ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        before = named_memory()
        cluster = LocalCluster(
            ReedSolomon(4, 4, stragglers=1), [1.0] * 4, np.multiply, 5, delays=Delays()
        )
        out = np.empty(5)
        cluster.step(np.ones(5), out)
        assert named_memory() == before
        print("running", flush=True)
        while sys.argv[1:] == ["on"]:
            cluster.step(np.ones(5), out)
"""


@pytest.fixture
def program(tmp_path):
    """Start a program that uses a cluster; its child processes share its standard error."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(SCRIPT))
    started = []

    def start(*arguments):
        process = programs.start([sys.executable, script, *arguments], start_new_session=True)
        started.append(process)
        assert process.stdout.readline() == "running\n", process.communicate()[1]
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


# communicate() returns at the end of standard error: when the last process that holds it (master,
# worker or helper) has ended.


def test_program_that_forgets_to_close(program):
    process = program()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors == ""


def test_interrupt_leaves_nothing(program):
    process = program("on")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert errors.endswith("KeyboardInterrupt\n")


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGKILL, marks=pytest.mark.long), signal.SIGTERM]
)
def test_death_of_the_master_leaves_nothing(program, number):
    process = program("on")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -number
    assert errors == ""


# ---------------------------------------------------------------- several messages per worker


@pytest.mark.parametrize(
    "code",
    [
        Uncoded(3, load=2),
        Uncoded(2, 4, load=3),
        RandomAssignment(4, load=[3, 2, 2, 1], seed=3),
        RandomAssignment(4, load=[3, 2, 2, 1], send="together", seed=3),
        CouponCollector(5, 4, load=2),
        BinaryCode(5, stragglers=2),
    ],
    ids=repr,
)
def test_every_message_counts(code):
    rng = np.random.default_rng(2)
    shards = [rng.integers(-9, 9, 5).astype(float) for _ in range(code.k)]
    out = np.empty(5)
    with LocalCluster(code, shards, np.multiply, 5) as cluster:
        for number in range(30):
            theta = rng.integers(-9, 9, 5).astype(float)
            report = cluster.step(theta, out=out)
            np.testing.assert_array_equal(out, theta * np.sum(shards, axis=0))
            assert report.round == number
            assert len(report.survivors) <= report.messages <= code.threshold
            assert code.decodable(report.received)
            assert report.received.size == report.arrivals.size == report.messages
            senders = [code.scheme.messages.sender(m)[0] for m in report.received.tolist()]
            assert list(dict.fromkeys(senders)) == report.survivors.tolist()
            assert report.arrivals[0] > 0
            assert (np.diff(report.arrivals) >= 0).all()
            assert report.arrivals[-1] <= report.wait_seconds
            assert len(set(report.survivors.tolist())) == len(report.survivors)


def test_a_late_worker_leaves_a_round_between_two_messages():
    # The worker was handed only the first two rounds. It sees that neither is the newest.
    check_leaving_between_messages(LocalCluster, lambda _: (*pids(0), *pids(1)), stale=0)


def test_what_a_straggler_sent_counts():
    out = np.empty(1)
    # Partitions of worker 0: 0, 1; of worker 1: 1, 2; of worker 2: 2, 0. Worker 2 is late.
    delays = Delays([0.0, 0.0, ABSENT])
    with LocalCluster(
        Uncoded(3, load=2), [1.0, 2.0, 4.0], np.multiply, 1, delays=delays
    ) as cluster:
        report = cluster.step(np.ones(1), out)
        assert sorted(report.survivors.tolist()) == [0, 1]
        assert report.messages in (3, 4)  # worker 0's second message may precede worker 1's
        assert out[0] == 7.0


def test_a_worker_is_late_once_or_with_each_message():
    check_lateness(LocalCluster)


def test_dead_workers_of_several_messages():
    out = np.empty(1)
    with LocalCluster(Uncoded(3, load=2), [1.0, 2.0, 4.0], np.multiply, 1, patience=0) as cluster:
        cluster.step(np.ones(1), out)
        os.kill(*pids(1), signal.SIGKILL)
        while len(pids()) > 2:
            time.sleep(0.01)
        report = cluster.step(np.ones(1), out)
        assert 1 not in report.survivors[-1:]
        assert out[0] == 7.0
        os.kill(*pids(2), signal.SIGKILL)
        while len(pids()) > 1:
            time.sleep(0.01)
        with pytest.raises(NotDecodableError, match="have died, and the others are too few"):
            cluster.step(np.ones(1), out)


def test_a_failure_names_the_partition_of_a_later_message():
    failing = Remote("lambda theta, shard, out: out.fill(1 / shard)")
    # Worker 0 fails in its second message, for which the round waits.
    code = Uncoded(1, 2, load=2)
    with (
        LocalCluster(code, [1.0, 0.0], failing, 1) as cluster,
        pytest.raises(WorkerFailedError, match=r"in round 0 on partition 1:(.|\n)*ZeroDivision"),
    ):
        cluster.step(np.ones(1), np.empty(1))


def test_no_worker_stays_behind():
    """A worker slower than the rounds joins the newest one after each message.

    If it took up each round in the order handed to it, it would stay behind for good: it then took
    part in 6 of 60 rounds instead of 38.
    """
    out, took_part, rounds = np.empty(1), 0, much(60, 30)
    # Seconds before each worker's messages.
    delays = Delays(*[[0.015, 0.01, 0.01, 0.01, 0.01, 0.01]] * rounds, per="computation")
    with LocalCluster(Uncoded(6, load=4), [1.0] * 6, np.multiply, 1, delays=delays) as cluster:
        for number in range(rounds):
            report = cluster.step(np.full(1, float(number)), out)
            assert out[0] == 6.0 * number
            took_part += 0 in report.survivors
    assert took_part > rounds / 4


@pytest.mark.parametrize("timeout", [float("inf"), 1e12])
def test_a_timeout_beyond_all_bounds(timeout):
    out = np.empty(1)
    with LocalCluster(Uncoded(1), [1.0], np.multiply, 1, timeout=timeout) as cluster:
        cluster.step(np.ones(1), out)


# --------------------------------------------------------------------------- some of the workers

# A shard is a number and a file, to which each process that computes on it appends its id.
LOGGED = Remote(
    "lambda theta, shard, out: (out.fill(theta[0] * shard[0]), "
    "shard[1].open('a').write(f'{__import__(\"os\").getpid()}\\n'))"
)


def logged_shards(values, folder):
    return [(value, folder / str(j)) for j, value in enumerate(values)]


def calls(shard):
    """Return the ids of the processes that computed on a shard."""
    return list(map(int, shard[1].read_text().split())) if shard[1].exists() else []


@pytest.mark.parametrize(
    "code",
    [
        Grouped.repetition(6, 3),
        Grouped([ReedSolomon(3, stragglers=1), Uncoded(2, load=2), BinaryCode(3, stragglers=1)]),
        Grouped([Uncoded(2, 4, load=2), RandomAssignment(3, load=[3, 2, 2], seed=3)]),
    ],
    ids=repr,
)
def test_rounds_of_groups(code):
    """Each group's gradient is that of its partitions; p is odd, so complex codes pad."""

    class Random:
        def sample(self, round, workers, seed):
            return np.random.default_rng([seed, round]).exponential(0.001, workers)

    rng = np.random.default_rng(2)
    shards = list(rng.standard_normal((code.k, 5)))
    rnd = code.group_round(5)
    with LocalCluster(code, shards, np.multiply, 5, delays=Random(), seed=3) as cluster:
        for number in range(60):
            groups = np.flatnonzero(rng.random(code.groups) < 0.5)
            theta = rng.standard_normal(5)
            rnd.reset(groups)
            report = cluster.collect(theta, rnd, rnd.workers)
            assert rnd.ready
            for g in groups:
                exact = theta * np.sum([shards[j] for j in code.partitions_of(g)], axis=0)
                np.testing.assert_allclose(rnd.gradient(g), exact, atol=1e-12)
            assert report.round == number
            assert report.received.tolist() == rnd.survivors.tolist()
            assert report.received.dtype == report.survivors.dtype == np.int64
            assert report.messages >= report.received.size == report.arrivals.size
            assert {code.group_of(i) for i in report.survivors} == set(groups)
            assert report.decode_seconds == 0.0


def test_only_those_asked_compute(tmp_path):
    code = Grouped([ReedSolomon(2, stragglers=1), Uncoded(2), BinaryCode(2, stragglers=0)])
    shards = logged_shards([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], tmp_path)
    rnd = code.group_round(1)
    with LocalCluster(code, shards, LOGGED, 1) as cluster:
        process = {i: pids(i)[0] for i in range(6)}
        for groups in ([1], [], [0, 1]):
            rnd.reset(groups)
            cluster.collect(np.ones(1), rnd, rnd.workers)
    assert calls(shards[2]) == [process[2]] * 2
    assert calls(shards[3]) == [process[3]] * 2
    for j in (0, 1):  # the round may end before one of them begins
        assert 1 <= len(calls(shards[j])) <= 2
        assert set(calls(shards[j])) <= {process[0], process[1]}
    assert calls(shards[4]) == calls(shards[5]) == []


def test_a_late_worker_that_is_not_asked_is_handed_nothing(tmp_path):
    code = Grouped.repetition(4, 2)
    shards = logged_shards([1.0, 10.0], tmp_path)
    rnd = code.group_round(1)

    def run(*groups):
        rnd.reset(groups)
        return cluster.collect(np.ones(1), rnd, rnd.workers)

    with LocalCluster(code, shards, LOGGED, 1) as cluster:
        three, late = *pids(3), *pids(2)
        os.kill(late, signal.SIGSTOP)
        assert set(run(0, 1).survivors.tolist()) & {2, 3} == {3}
        for _ in range(3):
            assert run(0).stale in (0, 1)  # a message of group 0's other member
        os.kill(late, signal.SIGCONT)  # it sees that its rounds in hand are not the newest
        for _ in range(5):
            run(0)
            time.sleep(0.01)
        assert calls(shards[1]) == [three]
        # It is there when it is asked again.
        os.kill(three, signal.SIGSTOP)
        assert run(1).survivors.tolist() == [2]
        os.kill(three, signal.SIGCONT)


def test_one_that_sees_the_end_of_its_round_is_handed_no_other_unasked(tmp_path):
    code = Grouped.repetition(3, 3)
    shards = logged_shards([1.0, 10.0, 100.0], tmp_path)
    rnd, rounds = code.group_round(1), [[0.0] * 3, [0.0, 0.0, 0.0], [0.2, 0.0, 0.0]]
    with LocalCluster(code, shards, LOGGED, 1, delays=Delays(*rounds)) as cluster:
        (late,) = pids(2)
        os.kill(late, signal.SIGSTOP)
        for groups in ([1], [0]):
            rnd.reset(groups)
            cluster.collect(np.ones(1), rnd, [*rnd.workers, 2] if groups == [1] else rnd.workers)
        rnd.reset([0])
        wakes = threading.Timer(0.05, os.kill, (late, signal.SIGCONT))
        wakes.start()  # while the master waits for worker 0
        cluster.collect(np.ones(1), rnd, rnd.workers)
        wakes.join()
        time.sleep(0.05)
    assert calls(shards[2]) == []


def test_what_came_before_its_sender_died_counts():
    delays, out = Delays([0.0, 0.3]), np.empty(1)
    with LocalCluster(Uncoded(2), [1.0, 2.0], np.multiply, 1, delays=delays, patience=0) as cluster:
        (early,) = pids(0)
        dies = threading.Timer(0.1, os.kill, (early, signal.SIGKILL))
        dies.start()
        report = cluster.step(np.ones(1), out)
        dies.join()
    assert out[0] == 3.0
    assert report.lost == (0,)


def test_messages_of_no_more_use_are_counted(monkeypatch):
    code = Grouped.repetition(4, 2)
    rnd = code.group_round(1)
    rnd.reset([0, 1])
    came, wants = [], rnd.wants

    def told(worker):
        came.append(worker)
        if came in ([0, 1], [1, 0]):  # only now group 1 answers
            os.kill(*pids(2), signal.SIGCONT)
        return wants(worker)

    monkeypatch.setattr(rnd, "wants", told)
    with LocalCluster(code, [1.0] * 2, np.multiply, 1) as cluster:
        for late in (2, 3):
            os.kill(*pids(late), signal.SIGSTOP)
        report = cluster.collect(np.ones(1), rnd, rnd.workers)
    assert came[2:] == [2]
    assert report.received.size == report.arrivals.size == 2
    assert report.messages == 3


def test_no_worker_asked_returns_at_once():
    code = Grouped.repetition(2, 1)
    rnd = code.group_round(1)
    with LocalCluster(code, [1.0], np.multiply, 1) as cluster:
        for pid in pids():
            os.kill(pid, signal.SIGSTOP)
        report = cluster.collect(np.ones(1), rnd, [])
        assert (report.round, report.messages, report.lost) == (0, 0, ())
        assert report.survivors.dtype == report.received.dtype == np.int64
        assert report.survivors.size == report.received.size == report.arrivals.size == 0
        for pid in pids():
            os.kill(pid, signal.SIGCONT)
        rnd.reset([0])
        assert cluster.collect(np.ones(1), rnd, [1, 0]).round == 1
        assert rnd.gradient(0) == 1.0


def test_dead_workers_of_groups():
    code = Grouped([Uncoded(2), ReedSolomon(3, stragglers=1)])
    rnd = code.group_round(1)

    def run(*groups):
        rnd.reset(groups)
        return cluster.collect(np.ones(1), rnd, rnd.workers)

    def end(worker):
        (pid,) = pids(worker)
        os.kill(pid, signal.SIGKILL)
        while pids(worker):
            time.sleep(0.01)

    with LocalCluster(code, [1.0] * 5, np.multiply, 1, patience=0) as cluster:
        run(0, 1)
        end(1)
        for _ in range(3):  # group 0 is lost, but it is not asked
            report = run(1)
            np.testing.assert_allclose(rnd.gradient(1), 3.0)
        assert report.lost == (1,)
        end(4)
        run(1)  # the code tolerates this loss
        np.testing.assert_allclose(rnd.gradient(1), 3.0)
        with pytest.raises(NotDecodableError, match=r"workers \[1, 4\] have died") as caught:
            run(0, 1)
        assert caught.value.missing == 1
        wait_for_ends(*pids())


def test_death_in_a_group_that_waits():
    die = Remote("lambda theta, shard, out: __import__('os').abort() if shard else out.fill(1)")
    code = Grouped([Uncoded(2), Uncoded(2)])
    cluster = LocalCluster(code, [0, 0, 1, 0], die, 1, patience=0)
    rnd = code.group_round(1)
    rnd.reset([0])
    cluster.collect(np.ones(1), rnd, rnd.workers)
    rnd.reset([0, 1])
    with pytest.raises(NotDecodableError, match=r"workers \[2\] have died.*round 1"):
        cluster.collect(np.ones(1), rnd, rnd.workers)
    wait_for_ends(*pids())


def test_a_tracker_does_not_wait_for_those_not_asked():
    code = ReedSolomon(4, stragglers=2)
    away = Delays([0.0, 0.0, 0.0, ABSENT])
    with LocalCluster(code, [1.0] * 4, np.multiply, 1, delays=away) as cluster:
        cluster.collect(np.ones(1), code.round(1))
        rnd = code.round(1, tracker=StabilityTracker(1e-30, "wait"))
        assert cluster.collect(np.ones(1), rnd, [0, 1, 2]).messages == 3
        assert rnd.decodable
        assert not rnd.ready


@pytest.mark.parametrize(
    ("shards", "error", "match"),
    [
        ([1.0, 1.0, np.ones(4)], WorkerFailedError, "worker 2 failed in round 0 on partition 2"),
        ([1.0, 1.0, np.inf], NonFiniteMessageError, "message of worker 2 is not finite"),
    ],
)
def test_errors_in_rounds_of_groups_close(shards, error, match):
    """Errors name workers by their numbers in the whole code."""
    code = Grouped([Uncoded(1), Uncoded(2)])
    cluster = LocalCluster(code, shards, np.multiply, 3)
    rnd = code.group_round(3)
    rnd.reset([1])
    with pytest.raises(error, match=match) as caught:
        cluster.collect(np.ones(3), rnd, rnd.workers)
    assert caught.value.worker == 2
    wait_for_ends(*pids())
    with pytest.raises(RuntimeError, match="the cluster is closed"):
        cluster.collect(np.ones(3), rnd, rnd.workers)


@pytest.mark.parametrize("name", ["memfd_create", "ftruncate"])
def test_a_start_that_the_system_refuses_leaves_nothing(name, monkeypatch):
    """Whichever call fails, its own error is raised and no file stays open."""
    usual, errors = getattr(os, name, None), set()
    if usual is None:
        pytest.skip(f"this system has no {name}")

    def open_files():
        gc.collect()  # an error may hold references to files
        return len(os.listdir("/proc/self/fd"))

    with LocalCluster(Uncoded(2), [1.0, 2.0], np.multiply, 2):
        pass  # opens what stays open for the program's life
    for number in much(range(50), range(0, 50, 13)):
        calls = iter(range(50))

        def refuse(*given, calls=calls, number=number):
            if next(calls) == number:
                raise OSError(errno.ENOSPC, "refused")
            return usual(*given)

        before = open_files()
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            try:
                with LocalCluster(Uncoded(2), [1.0, 2.0], np.multiply, 2):
                    break  # there are no more such calls
            except OSError as error:
                errors.add(error.errno)
        assert open_files() == before
    assert errors == {errno.ENOSPC}


# ---------------------------------------------------------------------- machines that die whole


def said_of_machines(code, hosts, **options):
    """What a cluster whose workers say to be there warns of."""

    class Elsewhere(LocalCluster):
        def _open(self, task):
            transport = super()._open(task)
            transport.hosts = hosts
            return transport

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Elsewhere(code, range(code.k), np.multiply, size=1, **options) as cluster:
            assert cluster.hosts == hosts
    return [str(each.message) for each in caught]


def test_what_may_be_lost_is_said_where_all_is_well(caplog, capsys):
    """One sentence, shown only beside a bar; none where a machine ends training, or is alone."""
    caplog.set_level(logging.INFO, "fastgc")
    spare, exact = ReedSolomon(6, stragglers=2), Uncoded(6)
    copies = Grouped([RandomAssignment(3, load=2, seed=1)] * 2)  # its workers send two messages
    for code, hosts, says in (
        (spare, ["a", "a", "b", "b", "c", "c"], "Any one of 3 machines may be lost, of 2 workers"),
        (spare, ["a", "b", "b", "c", "", ""], "Any one of 3 other machines may be lost, of 1 to 2"),
        (spare, ["a", "", "", "", "", ""], "1 other machine may be lost, of 1 worker"),
        (spare, ["a", "a", "a", "", "", ""], None),
        (spare, ["a"] * 6, None),
        (spare, [""] * 6, None),
        (exact, ["a", "a", "b", "b", "c", "c"], None),
        (BinaryCode(6, stragglers=1), ["a", "a", "b", "b", "", ""], None),  # it is warned of
        (copies, ["a", "", "", "", "", ""], "1 other machine may be lost"),
        (Reactive(6, holders=3), ["a", "a", "b", "b", "", ""], "Any one of 2 other machines"),
    ):
        caplog.clear()
        said_of_machines(code, hosts)
        told = [record.getMessage() for record in caplog.records if record.name == "fastgc"]
        assert len(told) == (says is not None), (code, hosts, told)
        assert not told or told[0].startswith(says), told
    assert capsys.readouterr().err == ""
    logging.getLogger("fastgc").setLevel(logging.NOTSET)  # as for who has set nothing
    hosts = ["a", "a", "b", "b", "c", "c"]
    said_of_machines(spare, hosts)
    assert capsys.readouterr().err == ""
    with training_bar("x", 5, 6):
        said_of_machines(spare, hosts)
    assert "Any one of 3 machines may be lost, of 2 workers\n" in capsys.readouterr().err
    assert logging.getLogger("fastgc").level == logging.NOTSET
    assert not logging.getLogger("fastgc").handlers


def test_machines_that_the_others_cannot_spare_are_warned_of():
    hosts = ["a", "a", "b", "b", "", ""]  # the last two workers are beside the master
    code = BinaryCode(6, stragglers=1)
    [said] = said_of_machines(code, hosts)
    assert said.startswith(
        "if a (workers 0, 1) or b (workers 2, 3) is lost, the others cannot go on: they lack what "
        "only these hold of BinaryCode(n=6, stragglers=1). Deal its workers out to the "
        "machines by fastgc.engines.placement"
    )
    order = placement(code, hosts)
    assert said_of_machines(code, [hosts[order.index(worker)] for worker in range(6)]) == []
    assert said_of_machines(code, hosts, partial="best") == []  # rounds make do with what came
    for fine in (
        Uncoded(6),  # no worker can be spared
        ReedSolomon(6, stragglers=2),
        Reactive(6, holders=3),
    ):
        assert said_of_machines(fine, hosts) == [], fine
    [said] = said_of_machines(Reactive(6, holders=2), hosts)  # neighbours hold each other's shares
    assert "if a (workers 0, 1) or b (workers 2, 3) is lost" in said
    for hosts in (["a"] * 6, ["a", "b", "c", "d", "e", "f"], [""] * 6):
        assert said_of_machines(code, hosts) == [], hosts
