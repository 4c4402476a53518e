"""Workers that die, stop and come back. No test passes or fails by how fast anything is."""

import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from fastgc import (
    BinaryCode,
    FractionalRepetition,
    Grouped,
    NonFiniteMessageError,
    NotDecodableError,
    ReedSolomon,
    Uncoded,
    WorkerFailedError,
)
from fastgc.engines import LocalCluster, SimulatedCluster
from fastgc.engines.interface import Event, Kind
from fastgc.engines.master import Master
from fastgc.errors import CorruptMessageError

pytestmark = pytest.mark.any_backend


def pid_of(worker):
    """Of the process that runs now; None while there is none."""
    for child in multiprocessing.active_children():
        if child.name == f"fastgc-{worker}":
            return child.pid
    return None


def kill(worker):
    pid = pid_of(worker)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


class Remote:
    """A gradient that workers evaluate from its source, since they cannot import a test module."""

    def __init__(self, source):
        self.source = source

    def __reduce__(self):
        return eval, (self.source,)

    def __call__(self, theta, shard, out):
        raise AssertionError("not for the master")


def fatal(path):
    """A gradient that ends its process where a file holds the shard."""
    return Remote(
        "lambda theta, shard, out: __import__('os')._exit(3) "
        f"if str(shard) in open({str(path)!r}).read().split() else out.fill(shard * theta[0])"
    )


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    assert [c for c in multiprocessing.active_children() if c.name.startswith("fastgc-")] == []


def steps_until(cluster, holds, out, value=1.0):
    """Rounds until a report is as wanted; every gradient on the way is right."""
    while True:
        report = cluster.step(np.full(out.size, value), out)
        np.testing.assert_allclose(out, cluster._code.k * value)
        if holds(report):
            return report
        time.sleep(0.001)


def test_the_dead_come_back():
    code, out = ReedSolomon(4, stragglers=2), np.empty(3)
    with LocalCluster(code, [1.0] * 4, np.multiply, 3) as cluster:
        for deaths, worker in enumerate([2, 0, 2], 1):
            steps_until(cluster, lambda report, worker=worker: worker in report.survivors, out)
            before = pid_of(worker)
            kill(worker)
            steps_until(cluster, lambda report, deaths=deaths: report.deaths == deaths, out)
            steps_until(cluster, lambda report, worker=worker: worker in report.survivors, out)
            assert pid_of(worker) != before
        assert cluster.step(np.ones(3), out).lost == ()


@pytest.mark.parametrize("code", [ReedSolomon(5, stragglers=2), BinaryCode(6, stragglers=2)])
def test_kills_at_any_moment_change_nothing(code):
    """The same bits as a run that nothing happened to, with the same survivors."""
    rng = np.random.default_rng(5)
    shards = list(rng.standard_normal((code.k, 40)))
    thetas = rng.standard_normal((150, 40))
    found, received = np.empty((150, 40)), []
    over = threading.Event()

    def killer():
        chance = np.random.default_rng(6)
        while not over.wait(chance.exponential(0.02)):
            kill(int(chance.integers(code.n)))

    thread = threading.Thread(target=killer)
    with LocalCluster(code, shards, np.multiply, 40) as cluster:
        thread.start()
        try:
            for theta, out in zip(thetas, found, strict=True):
                report = cluster.step(theta, out)
                received.append(report.received)
                time.sleep(0.002)
        finally:
            over.set()
            thread.join()
    assert report.deaths > 10
    np.testing.assert_allclose(found, thetas * np.sum(shards, axis=0), atol=1e-12)
    again = np.empty_like(found)
    with LocalCluster(code, shards, np.multiply, 40, survivors=received.__getitem__) as cluster:
        for theta, out in zip(thetas, again, strict=True):
            cluster.step(theta, out)
    np.testing.assert_array_equal(found, again)


def test_patience_with_too_many_dead(tmp_path):
    doomed = tmp_path / "doomed"
    doomed.write_text("1.0 3.0")
    cluster = LocalCluster(
        ReedSolomon(4, stragglers=1), [0.0, 1.0, 2.0, 3.0], fatal(doomed), 2, patience=0.5
    )
    # Every worker has partition 1 or 3, and dies again as soon as it is back.
    with pytest.raises(NotDecodableError, match=r"have died and were waited for 0.5 s") as caught:
        cluster.step(np.ones(2), np.empty(2))
    assert len(cluster._lost) > 1
    assert cluster._deaths > len(cluster._lost)
    assert caught.value.missing >= 1


def test_patience_is_rewarded():
    """More than s die; the round goes on when they are back, and is as right as any."""
    code, out = Uncoded(3), np.empty(2)
    with LocalCluster(code, [1.0] * 3, np.multiply, 2) as cluster:
        for _ in range(5):
            kill(0)
            kill(2)
            cluster.step(np.ones(2), out)
            np.testing.assert_array_equal(out, 3.0)
        steps_until(cluster, lambda report: report.deaths >= 8 and not report.lost, out)


def test_the_best_of_what_came(tmp_path):
    doomed = tmp_path / "doomed"
    doomed.write_text("4.0")
    out = np.empty(2)
    with LocalCluster(
        Uncoded(3), [1.0, 2.0, 4.0], fatal(doomed), 2, patience=0.3, partial="best"
    ) as cluster:
        for number in range(2):
            report = cluster.step(np.ones(2), out)
            np.testing.assert_array_equal(out, 3.0)
            assert report.round == number
            assert report.lost == (2,)
            np.testing.assert_allclose(report.residual, np.sqrt(1 / 3))
        doomed.write_text("")
        for _ in range(100):  # it is back after its pause
            report = cluster.step(np.ones(2), out)
            if report.residual == 0.0:
                break
        np.testing.assert_array_equal(out, 7.0)


def test_without_any_message_there_is_no_best(tmp_path):
    doomed = tmp_path / "doomed"
    doomed.write_text("1.0")
    cluster = LocalCluster(Uncoded(2), [1.0, 1.0], fatal(doomed), 2, patience=0.2, partial="best")
    with pytest.raises(NotDecodableError, match=r"workers \[[01], [01]\] have died"):
        cluster.step(np.ones(2), np.empty(2))


def test_who_comes_back_goes_on_with_what_it_had_not_sent():
    """What it had sent lies in memory that the round still reads."""
    code, out = Uncoded(2, load=2), np.empty(1)
    calls = []

    class Slow:
        """Worker 0 sends its first message at once; then it waits for long, and is killed."""

        per = "computation"

        def sample(self, round, workers, seed):
            return np.array([0.3, 0.0])

    with LocalCluster(code, [1.0, 2.0], np.multiply, 1, delays=Slow()) as cluster:
        hand = cluster._transport.hand
        cluster._transport.hand = lambda *order: (calls.append(order), hand(*order))
        timer = threading.Timer(0.45, kill, (0,))  # between its messages
        timer.start()
        forced = np.arange(4)
        cluster._survivors = lambda round: forced
        cluster.step(np.ones(1), out)
        timer.join()
    assert out[0] == 3.0
    handed = [first for worker, first, _ in calls if worker == 0]
    assert handed in ([0], [0, 0], [0, 1])  # by when it was killed
    if cluster._deaths:
        assert len(handed) == 2


def test_a_worker_that_cannot_start_again(tmp_path):
    """It raises where it starts: an error like any other."""
    flag = tmp_path / "flag"

    class Shard:
        def __reduce__(self):
            return eval, (f"1.0 if not __import__('os').path.exists({str(flag)!r}) else 1 / 0",)

    cluster = LocalCluster(ReedSolomon(2, stragglers=1), [Shard(), Shard()], np.multiply, 1)
    out = np.empty(1)
    cluster.step(np.ones(1), out)
    flag.touch()
    kill(1)
    match = r"(?s)worker 1 failed while it started.*division"
    with pytest.raises(WorkerFailedError, match=match):
        steps_until(cluster, lambda report: False, out)


def test_stopped_workers_are_stragglers():
    code, out = ReedSolomon(4, stragglers=2), np.empty(2)
    with LocalCluster(code, [1.0] * 4, np.multiply, 2) as cluster:
        stopped = [pid_of(1), pid_of(3)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        for _ in range(20):
            report = cluster.step(np.ones(2), out)
            np.testing.assert_allclose(out, 4.0)
            assert set(report.survivors.tolist()) == {0, 2}
            assert report.deaths == 0
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        steps_until(cluster, lambda report: set(report.survivors.tolist()) & {1, 3}, out)
        assert report.lost == ()


def test_killed_while_stopped():
    code, out = ReedSolomon(3, stragglers=1), np.empty(2)
    with LocalCluster(code, [1.0] * 3, np.multiply, 2) as cluster:
        os.kill(pid_of(1), signal.SIGSTOP)
        cluster.step(np.ones(2), out)
        kill(1)
        steps_until(cluster, lambda report: report.deaths and 1 in report.survivors, out)


def test_data_beyond_what_a_pipe_holds():
    """The master never waits for a new process to read them: here that would be for ever."""
    code, out = ReedSolomon(3, stragglers=1), np.empty(2)
    first = Remote("lambda theta, shard, out: out.fill(shard[0] * theta[0])")
    with LocalCluster(code, [np.ones(100_000)] * 3, first, 2) as cluster:
        start = cluster._transport._launch
        stopped = []

        def launch(worker):
            start(worker)
            stopped.append(cluster._transport._processes[worker].pid)
            os.kill(stopped[0], signal.SIGSTOP)

        cluster._transport._launch = launch
        kill(1)
        steps_until(cluster, lambda report: stopped, out)
        for _ in range(5):
            cluster.step(np.ones(2), out)
        os.kill(stopped[0], signal.SIGCONT)
        steps_until(cluster, lambda report: 1 in report.survivors, out)


class Script(Master):
    """A master whose workers do what is written: what each call of listen() tells."""

    ahead = 1

    def __init__(self, code, told, **options):
        self.told, self.done = list(told), []
        super().__init__(code, [1.0] * code.k, np.multiply, 1, **options)

    def _open(self, task):
        self.told.insert(0, [Event(Kind.JOINED, worker) for worker in range(task.code.n)])
        return self

    def publish(self, number, theta, in_use):
        self.done.append(("publish", number, in_use))

    def hand(self, worker, first, delay):
        self.done.append(("hand", worker, first))

    def listen(self, seconds):
        if not self.told and seconds > 0:
            raise RuntimeError("would wait for ever")
        return self.told.pop(0) if self.told else []

    def restart(self, worker):
        self.done.append(("restart", worker))


def message(worker, round, value=1.0, index=0):
    return Event(Kind.MESSAGE, worker, round, index, np.array([value]))


NOTHING = []  # what listen() tells between rounds


def script(code, told, **options):
    # The transport is the master itself here, and what closes one need not close the other.
    cluster = Script.__new__(Script)
    cluster.close = lambda: None
    Script.__init__(cluster, code, told, **options)
    return cluster


def test_a_worker_that_died_is_restarted_and_handed_the_round():
    out = np.empty(1)
    cluster = script(
        Uncoded(2),
        [NOTHING, [Event(Kind.DIED, 1)], [Event(Kind.JOINED, 1)], [message(1, 0), message(0, 0)]],
    )
    report = cluster.step(np.ones(1), out)
    assert out[0] == 2.0
    assert (report.lost, report.deaths, report.survivors.tolist()) == ((), 1, [1, 0])
    assert cluster.done == [
        ("publish", 0, set()),
        ("hand", 0, 0),
        ("hand", 1, 0),
        ("restart", 1),
        ("hand", 1, 0),
    ]


def test_what_was_sent_before_a_death_is_not_asked_for_again():
    out = np.empty(1)
    cluster = script(
        Uncoded(2, 4, load=2),
        [
            NOTHING,
            [message(1, 0, 1.0, 0), Event(Kind.DIED, 1)],
            [Event(Kind.JOINED, 1), message(0, 0, 2.0, 0), message(0, 0, 4.0, 1)],
            [Event(Kind.DIED, 0)],  # it has sent all
            [Event(Kind.JOINED, 0)],
            [message(1, 0, 8.0, 1)],
        ],
    )
    assert cluster.step(np.ones(1), out).messages == 4
    assert out[0] == 15.0
    hands = [order[1:] for order in cluster.done if order[0] == "hand"]
    assert hands == [(0, 0), (1, 0), (1, 1)]


def test_pauses_grow_until_a_message_comes(monkeypatch):
    from fastgc.engines import master

    now = 0.0
    monkeypatch.setattr(master.time, "perf_counter", lambda: now)
    cluster = script(BinaryCode(2, stragglers=1), [NOTHING])
    pauses = []
    for _ in range(10):
        cluster._admit(Event(Kind.DIED, 1))
        pauses.append(cluster._due[1] - now)
        now += pauses[-1]
        assert cluster._due[1] <= now
        cluster._restart(now)
        assert 1 not in cluster._due
        assert cluster._admit(Event(Kind.JOINED, 1))
    assert pauses == pytest.approx([0.0, *(0.1 * 2.0**k for k in range(7)), 10.0, 10.0])
    assert cluster._deaths == 10
    cluster._number, cluster._busy[1] = 0, {0}
    assert cluster._admit(message(1, 0))
    cluster._admit(Event(Kind.DIED, 1))
    assert cluster._due[1] == now


def test_the_dead_are_not_restarted_without_patience():
    cluster = script(Uncoded(2), [NOTHING, [Event(Kind.DIED, 0)]], patience=0)
    with pytest.raises(NotDecodableError, match=r"^workers \[0\] have died, and the others"):
        cluster.step(np.ones(1), np.empty(1))
    assert ("restart", 0) not in cluster.done


def test_a_death_told_twice_counts_once():
    cluster = script(
        BinaryCode(2, stragglers=1),
        [NOTHING, [Event(Kind.DIED, 0)] * 3, [message(1, 0)]],
    )
    report = cluster.step(np.ones(1), np.empty(1))
    assert (report.deaths, report.refused, report.lost) == (1, 2, (0,))


def test_late_messages_of_several(monkeypatch):
    """A worker with two rounds in hand is at the newer one as soon as it says so."""
    out = np.empty(1)
    cluster = script(Uncoded(2, 4, load=2, tolerance=0.5), [NOTHING])
    cluster.ahead = 2
    cluster.told += [[message(0, 0, index=0), message(0, 0, index=1)]]
    cluster.step(np.ones(1), out)  # worker 1 has sent nothing of round 0
    assert cluster._busy == {1: {0}}
    cluster.told += [NOTHING, [message(1, 0, index=0), message(1, 1, index=0)]]
    cluster.told += [[message(0, 1, index=0)]]
    report = cluster.step(np.ones(1), out)
    assert (report.stale, report.refused, report.messages) == (1, 0, 2)
    assert cluster._busy == {0: {1}, 1: {1}}
    assert cluster.done[-1] == ("hand", 1, 0)


def test_patience_ends_while_others_are_waited_for(monkeypatch):
    """It is counted from the death that made them too few, and begins anew after a return."""
    from fastgc.engines import master

    class Clock:
        now = 0.0

        def perf_counter(self):
            self.now += 0.25
            return self.now

    monkeypatch.setattr(master, "time", Clock())
    died, joined = Event(Kind.DIED, 0), Event(Kind.JOINED, 0)
    cluster = script(
        Uncoded(2), [NOTHING, [died], [joined], [died], *[NOTHING] * 200], patience=5.0
    )
    with pytest.raises(NotDecodableError, match=r"were waited for 5\.0 s"):
        cluster.step(np.ones(1), np.empty(1))
    assert cluster._deaths == 2
    assert 5.0 <= master.time.now <= 20.0


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"patience": -1}, ValueError, "patience must be finite and not negative"),
        ({"patience": "long"}, TypeError, "patience"),
        ({"partial": "worst"}, ValueError, 'partial must be "raise" or "best", not \'worst\''),
        ({"first_round": -1}, ValueError, "first_round"),
        ({"survivors": [0, 1]}, TypeError, "survivors must be callable"),
    ],
)
def test_unsuitable_options(options, error, match):
    with pytest.raises(error, match=match):
        LocalCluster(Uncoded(2), [1.0] * 2, np.multiply, 1, **options)


@pytest.mark.parametrize(
    ("chosen", "error", "match"),
    [
        ([0, 0, 1], ValueError, "twice"),
        ([0, 3], ValueError, "message"),
        ([0], NotDecodableError, "more"),
        ([0.5, 1.0], TypeError, "survivors must be integers"),
    ],
)
def test_unsuitable_survivors(chosen, error, match):
    cluster = script(ReedSolomon(3, stragglers=1), [NOTHING], survivors=lambda round: chosen)
    with pytest.raises(error, match=match):
        cluster.step(np.ones(1), np.empty(1))


def test_survivors_that_take_no_part():
    code = Grouped([Uncoded(1), Uncoded(1)])
    rnd = code.group_round(1)
    rnd.reset([1])
    cluster = script(code, [NOTHING], survivors=lambda round: [0, 1])
    with pytest.raises(ValueError, match=r"survivors are of workers \[0\]"):
        cluster.collect(np.ones(1), rnd, rnd.workers)


def test_a_limit_of_open_files_is_named(monkeypatch):
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, before[1]))
    try:
        with pytest.raises(OSError, match=r"50 workers need 150 open files.*ulimit -n"):
            LocalCluster(Uncoded(50), [1.0] * 50, np.multiply, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


COPIES = FractionalRepetition(4, 1, stragglers=3)  # each worker alone can answer


def test_a_corrupt_worker_is_a_straggler_of_its_round():
    out = np.empty(1)
    told = [NOTHING, [message(2, 0, 5.0)], [message(0, 0, 1.0)], [message(3, 0, 1.0)]]
    told += [[message(1, 0, 1.0)], NOTHING, [message(2, 1, 1.0), message(1, 1, 1.0)]]
    cluster = script(COPIES, told, verify=True)
    report = cluster.step(np.ones(1), out)
    assert out[0] == 1.0
    assert report.corrupt == (2,)
    assert report.verified
    assert report.survivors.tolist() == [0, 3]
    assert report.messages == 3
    assert report.arrivals.size == 2
    report = cluster.step(np.ones(1), out)  # and in the next it is as any other
    assert (report.corrupt, report.verified, report.survivors.tolist()) == ((), True, [2, 1])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_messages_that_are_not_finite(value):
    out = np.empty(1)
    told = [NOTHING, [message(2, 0, value), message(0, 0), message(3, 0)]]
    report = script(COPIES, told, verify=True).step(np.ones(1), out)
    assert out[0] == 1.0
    assert (report.corrupt, report.verified, report.messages) == ((2,), True, 3)
    with pytest.raises(NonFiniteMessageError, match="worker 2"):
        script(COPIES, [NOTHING, [message(2, 0, value)]]).step(np.ones(1), out)


def test_nobody_left_to_tell_who_is_corrupt():
    out = np.full(1, 7.0)
    told = [NOTHING, [message(0, 0, 5.0)], [message(1, 0, 1.0)]]
    cluster = script(FractionalRepetition(2, 1, stragglers=1), told, verify=True)
    with pytest.raises(CorruptMessageError, match="workers 0, 1") as caught:
        cluster.step(np.ones(1), out)
    assert caught.value.suspects == (0, 1)
    assert out[0] == 7.0


def test_the_dead_may_tell_who_is_corrupt():
    out = np.empty(1)
    told = [NOTHING, [message(0, 0, 5.0)], [message(1, 0, 1.0)], [Event(Kind.DIED, 2)]]
    told += [[Event(Kind.JOINED, 2)], [message(2, 0, 1.0)]]
    cluster = script(FractionalRepetition(3, 1, stragglers=2), told, verify=True)
    report = cluster.step(np.ones(1), out)
    assert (out[0], report.corrupt, report.verified) == (1.0, (0,), True)


def test_a_gradient_that_nobody_is_left_to_verify():
    """It is decoded, and said not to be verified."""
    out = np.empty(1)
    told = [NOTHING, [message(0, 0, 5.0)], [Event(Kind.DIED, 1)]]
    cluster = script(FractionalRepetition(2, 1, stragglers=1), told, verify=True, patience=0)
    report = cluster.step(np.ones(1), out)
    assert (out[0], report.corrupt, report.verified, report.residual) == (5.0, (), False, 0.0)


def test_too_few_that_are_not_corrupt():
    told = [NOTHING, [message(0, 0, np.nan), message(1, 0, np.inf)]]
    cluster = script(FractionalRepetition(2, 1, stragglers=1), told, verify=True)
    match = r"messages of workers \[0, 1\] are corrupt, and the others are too few for round 0"
    with pytest.raises(NotDecodableError, match=match):
        cluster.step(np.ones(1), np.empty(1))


def test_simulated_rounds_are_verified():
    code, out = ReedSolomon(5, stragglers=2), np.empty(3)
    with SimulatedCluster(code, [1.0] * 5, np.multiply, 3, verify=True) as cluster:
        report = cluster.step(np.ones(3), out)
    assert report.verified
    assert report.messages == code.threshold + 1
    np.testing.assert_allclose(out, 5.0)
