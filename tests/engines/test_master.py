"""Workers that die, stop and come back. No test depends on how fast anything is."""

import contextlib
import multiprocessing
import os
import signal
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from beside import beside
from strength import much
from worker_processes import pids, wait_for_ends

from fastgc import (
    BinaryCode,
    CyclicRepetition,
    FractionalRepetition,
    Grouped,
    Reactive,
    ReedSolomon,
    Uncoded,
)
from fastgc.coding.round import Gathering
from fastgc.engines import LocalCluster, master, placement
from fastgc.engines.interface import Event, Kind
from fastgc.engines.master import Master
from fastgc.errors import (
    CorruptMessageError,
    NonFiniteMessageError,
    NotDecodableError,
    UnverifiedError,
)
from fastgc.stability import StabilityTracker


def pid_of(worker):
    """Return the pid of a worker's process, or None while there is none."""
    return next(iter(pids(worker)), None)


def kill(worker):
    pid = pid_of(worker)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    wait_for_ends(*pids())


def steps_until(cluster, holds, out, total):
    """Run rounds until a report `holds`, and return it; every gradient must be right."""
    while True:
        report = cluster.step(np.ones(out.size), out)
        np.testing.assert_allclose(out, total)
        if holds(report):
            return report
        time.sleep(0.001)


def test_the_dead_come_back():
    code, out = ReedSolomon(4, stragglers=2), np.empty(3)
    with LocalCluster(code, [1.0] * 4, np.multiply, 3) as cluster:
        for deaths, worker in enumerate([2, 0, 2], 1):
            steps_until(
                cluster, lambda report, worker=worker: worker in report.survivors, out, code.k
            )
            before = pid_of(worker)
            kill(worker)
            steps_until(cluster, lambda report, deaths=deaths: report.deaths == deaths, out, code.k)
            steps_until(
                cluster, lambda report, worker=worker: worker in report.survivors, out, code.k
            )
            assert pid_of(worker) != before
        assert cluster.step(np.ones(3), out).lost == ()


def hurt(cluster, code, seed, pause, hit):
    """Hit workers in another thread, one after the other, while no more than s are lost."""

    def work(over):
        chance = np.random.default_rng(seed)
        while not over.wait(chance.exponential(pause)):
            pid = cluster.transport.pids().get(int(chance.integers(code.n)))
            lost = code.n - len(cluster.transport.pids())
            if pid is not None and lost < code.stragglers:
                with contextlib.suppress(ProcessLookupError):
                    hit(pid, chance)

    return beside(work)


@pytest.mark.parametrize("code", [ReedSolomon(5, stragglers=2), BinaryCode(6, stragglers=2)])
def test_kills_at_any_moment_change_nothing(code, monkeypatch):
    """Gradients have the same bits as those of an undisturbed run with the same survivors."""
    monkeypatch.setattr(master, "LONGEST_PAUSE", 0.05)
    rng = np.random.default_rng(5)
    shards = list(rng.standard_normal((code.k, 40)))
    thetas, found, received, deaths = [], [], [], 0
    with (
        LocalCluster(code, shards, np.multiply, 40, patience=np.inf) as cluster,
        hurt(cluster, code, 6, 0.02, lambda pid, _: os.kill(pid, signal.SIGKILL)),
    ):
        while deaths < much(12, 5):
            thetas.append(rng.standard_normal(40))
            found.append(np.empty(40))
            report = cluster.step(thetas[-1], found[-1])
            received.append(report.received)
            deaths = report.deaths
            time.sleep(0.002)
    np.testing.assert_allclose(found, np.array(thetas) * np.sum(shards, axis=0), atol=1e-12)
    again = np.empty((len(found), 40))
    with LocalCluster(code, shards, np.multiply, 40, survivors=received.__getitem__) as cluster:
        for theta, out in zip(thetas, again, strict=True):
            cluster.step(theta, out)
    np.testing.assert_array_equal(found, again)


def test_patience_is_rewarded():
    """More than s workers die; the round goes on when they are back, and its gradient is right."""
    code, out = Uncoded(3), np.empty(2)
    with LocalCluster(code, [1.0] * 3, np.multiply, 2) as cluster:
        for _ in range(5):
            kill(0)
            kill(2)
            cluster.step(np.ones(2), out)
            np.testing.assert_array_equal(out, 3.0)
        steps_until(cluster, lambda report: report.deaths >= 8 and not report.lost, out, code.k)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # by Python 3.12
def test_a_fork_of_the_master_leaves_the_cluster_alone():
    code, out = Uncoded(2), np.empty(2)
    with LocalCluster(code, [1.0] * 2, np.multiply, 2) as cluster:
        fork = multiprocessing.get_context("fork").Process(target=cluster.close)
        fork.start()
        fork.join()
        assert fork.exitcode == 0
        for _ in range(5):
            report = cluster.step(np.ones(2), out)
            np.testing.assert_array_equal(out, 2.0)
        assert report.deaths == 0


def test_a_worker_begins_with_the_message_that_it_is_handed():
    with LocalCluster(Uncoded(1, 3, load=3), [1.0, 2.0, 4.0], np.multiply, 1) as cluster:
        transport = cluster.transport
        transport.publish(0, np.ones(1), set())
        transport.hand(0, 1, 0.0)
        events = []
        while len(events) < 2:
            events += transport.listen(60.0)
        assert [event.index for event in events] == [1, 2]
        assert [float(event.message[0]) for event in events] == [2.0, 4.0]
        del events


class Script(Master):
    """A master whose workers follow a script: a list of what each call of listen() returns."""

    hosts = ()  # it is its own transport, which knows of no machines

    def __init__(self, code, told, **options):
        self.told, self.done = list(told), []
        super().__init__(code, [1.0] * code.k, np.multiply, 1, **options)

    def _open(self, task):
        self.asks = task.asks
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
    energy = float(value**2) if np.isfinite(value) else 0.0
    return Event(Kind.MESSAGE, worker, round, index, np.array([value]), energy=energy)


NOTHING = []  # what listen() returns between rounds
COPIES = FractionalRepetition(4, 1, stragglers=3)  # each worker alone suffices
REAL = CyclicRepetition(3, stragglers=1)  # any two workers suffice


def script(code, told, hosts=(), **options):
    # Here the master is its own transport: closing the master must not close it again.
    cluster = Script.__new__(Script)
    cluster.close, cluster.hosts = lambda: None, hosts
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
            [Event(Kind.DIED, 0)],  # after its last message
            [Event(Kind.JOINED, 0)],
            [message(1, 0, 8.0, 1)],
        ],
    )
    assert cluster.step(np.ones(1), out).messages == 4
    assert out[0] == 15.0
    hands = [order[1:] for order in cluster.done if order[0] == "hand"]
    assert hands == [(0, 0), (1, 0), (1, 1)]


def test_pauses_grow_until_a_message_comes(passing):
    died, joined = [Event(Kind.DIED, 1)], [Event(Kind.JOINED, 1)]
    told = [NOTHING, *[died, 20.0, joined] * 10, [message(1, 0)]]
    told += [NOTHING, died, 20.0, joined, [message(1, 1)]]
    code = BinaryCode(2, stragglers=1)
    cluster, now = passing(script(code, told, patience=np.inf))
    restarts, out = [], np.empty(1)
    cluster.restart = lambda worker: restarts.append(now[0])
    assert cluster.step(np.ones(1), out).deaths == 10
    pauses = np.array(restarts) - 20.0 * np.arange(10)
    assert pauses == pytest.approx([0.0, *(0.1 * 2.0**k for k in range(7)), 10.0, 10.0])
    assert cluster.step(np.ones(1), out).deaths == 11
    assert restarts[10] == 200.0  # at once, after a message


def test_the_dead_are_not_restarted_without_patience():
    cluster = script(Uncoded(2), [NOTHING, [Event(Kind.DIED, 0)]], patience=0)
    with pytest.raises(NotDecodableError, match=r"^workers \[0\] have died, and the others"):
        cluster.step(np.ones(1), np.empty(1))
    assert ("restart", 0) not in cluster.done


def test_messages_came_when_their_events_say():
    """Without a time in its event, a message came when the event was returned."""
    cluster = script(Uncoded(3), [NOTHING])
    first, second, third = message(2, 0), message(0, 0), message(1, 0)
    cluster.told += [[first, second, third]]
    before = time.perf_counter()
    first.time, third.time = 1, round(1e9 * (before + 1000.0))
    report = cluster.step(np.ones(1), np.empty(1))
    assert report.received.tolist() == [2, 0, 1]
    assert report.arrivals[0] == 0.0  # not before the round began
    assert 0.0 < report.arrivals[1] <= report.wait_seconds
    assert 990.0 < report.arrivals[2] <= 1000.0


def test_a_death_told_twice_counts_once(caplog):
    cluster = script(
        BinaryCode(2, stragglers=1),
        [NOTHING, [Event(Kind.DIED, 0)] * 3, [message(1, 0)]],
    )
    report = cluster.step(np.ones(1), np.empty(1))
    assert (report.deaths, report.refused, report.lost) == (1, 2, (0,))
    assert caplog.messages == ["worker 0 died in round 0"]


def test_no_message_came_sooner_than_the_one_before():
    """Arrivals never decrease, even if workers report times out of order."""
    cluster, out = script(Uncoded(3), []), np.empty(1)
    now = time.perf_counter_ns()
    late = [replace(message(i, 0), time=now + 10**9 * t) for i, t in ((2, 5), (0, 3), (1, 6))]
    cluster.told += [NOTHING, late]
    report = cluster.step(np.ones(1), out)
    assert report.received.tolist() == [2, 0, 1]
    assert report.arrivals[0] == report.arrivals[1] < report.arrivals[2]


@pytest.fixture
def passing(monkeypatch):
    """Let time pass only where numbers stand between the events of a script."""
    now = [0.0]

    def timed(cluster):
        listen = cluster.listen

        def listen_and_pass(seconds):
            if not (cluster.told and isinstance(cluster.told[0], float)):
                return listen(seconds)
            passed = min(seconds, cluster.told[0])
            now[0] += passed
            if passed:
                cluster.done.append(("pass", passed))
            cluster.told[0] -= passed
            if cluster.told[0] <= 0.0:
                cluster.told.pop(0)
            return []

        cluster.listen = listen_and_pass
        return cluster, now

    monkeypatch.setattr(master.time, "perf_counter", lambda: now[0])
    return timed


def test_patience_is_spent_while_those_at_work_are_too_few(passing):
    """It is not spent after a return, and not renewed by workers that die again."""
    died, joined = [Event(Kind.DIED, 0)], [Event(Kind.JOINED, 0)]
    told = [NOTHING, died, 3.0, joined, 100.0, died, 50.0]
    cluster, now = passing(script(Uncoded(2), told, patience=5.0))
    restarts = []
    cluster.restart = lambda worker: restarts.append((worker, now[0]))
    with pytest.raises(NotDecodableError, match=r"were waited for 5\.0 s"):
        cluster.step(np.ones(1), np.empty(1))
    assert now[0] == pytest.approx(105.0)
    assert restarts == [(0, 0.0), (0, pytest.approx(103.1))]


def test_patience_begins_with_the_first_death_that_matters(passing):
    told = [NOTHING, [Event(Kind.DIED, 0)], 7.0, [Event(Kind.DIED, 1)], 3.0]
    told += [[Event(Kind.DIED, 2)], 50.0]
    cluster, now = passing(script(ReedSolomon(4, stragglers=1), told, patience=5.0))
    with pytest.raises(NotDecodableError, match=r"^workers \[0, 1, 2\] have died") as caught:
        cluster.step(np.ones(1), np.empty(1))
    assert now[0] == pytest.approx(12.0)
    assert caught.value.missing == 1  # of worker 0 or 1


def test_one_message_is_waited_for_if_an_approximation_may_do(passing):
    """Patience is over, or there is none, but a worker that lives may send the first message."""
    died, options = [Event(Kind.DIED, 0)], {"partial": "best", "timeout": 60.0}
    for patience in (0.0, 5.0):
        for gone in (died, [*died, Event(Kind.DIED, 1)]):
            told = [NOTHING, gone, 20.0, [message(2, 0)], 90.0]
            cluster, now = passing(script(Uncoded(4), told, patience=patience, **options))
            start, out = now[0], np.empty(1)
            report = cluster.step(np.ones(1), out)
            assert now[0] - start == pytest.approx(20.0)  # worker 3 is not waited for
            assert (out[0], report.survivors.tolist(), len(report.lost)) == (1.0, [2], len(gone))
        # The others die as well, or are silent until the time is out.
        told = [NOTHING, died, 20.0, [Event(Kind.DIED, 1)], 90.0]
        cluster, now = passing(script(Uncoded(2), told, patience=patience, **options))
        start = now[0]
        with pytest.raises(NotDecodableError, match=r"^workers \[0, 1\] have died"):
            cluster.step(np.ones(1), np.empty(1))
        assert now[0] - start == pytest.approx(20.0)
        told = [NOTHING, died, 90.0]
        cluster, now = passing(script(Uncoded(2), told, patience=patience, **options))
        with pytest.raises(TimeoutError, match=r"not heard from workers \[1\], lost workers \[0\]"):
            cluster.step(np.ones(1), np.empty(1))
    # A worker whose message was found corrupt sends none that would do.
    told = [NOTHING, died, [message(1, 0, np.nan)], 90.0]
    code = FractionalRepetition(2, 2, stragglers=1)
    cluster, _ = passing(script(code, told, patience=0.0, verify=True, **options))
    with pytest.raises(NotDecodableError):
        cluster.step(np.ones(1), np.empty(1))


def test_each_round_has_its_patience(passing):
    died, joined = [Event(Kind.DIED, 0)], [Event(Kind.JOINED, 0)]
    told = []
    for number in range(3):
        told += [NOTHING, died, 4.0, joined, [message(0, number), message(1, number)]]
    cluster, _ = passing(script(Uncoded(2), told, patience=5.0))
    for number in range(3):
        assert cluster.step(np.ones(1), np.empty(1)).deaths == number + 1


def test_the_corrupt_are_not_counted_on_while_others_work(passing):
    told = [NOTHING, [Event(Kind.DIED, 1)], [message(0, 0, np.nan)], 50.0]  # worker 2 is silent
    cluster, now = passing(script(REAL, told, verify=True, patience=5.0))
    with pytest.raises(NotDecodableError, match=r"^workers \[1\] have died"):
        cluster.step(np.ones(1), np.empty(1))
    assert now[0] == pytest.approx(5.0)


def test_verification_has_patience_with_the_dead(passing):
    told = [NOTHING, [message(0, 0), Event(Kind.DIED, 1)], 50.0]
    code, out = FractionalRepetition(2, 1, stragglers=1), np.empty(1)
    cluster, now = passing(script(code, told, verify=True, patience=5.0))
    with pytest.raises(UnverifiedError):
        cluster.step(np.ones(1), out)
    assert now[0] == pytest.approx(5.0)


def test_a_tracker_does_not_wait_for_the_dead():
    code = REAL
    rnd = code.round(1, tracker=StabilityTracker(1e-30, "wait"))
    heard = [message(0, 0), message(1, 0)]
    cluster = script(code, [NOTHING, [Event(Kind.DIED, 2)], heard])
    assert cluster.collect(np.ones(1), rnd).lost == (2,)
    assert rnd.decodable
    assert not rnd.ready


def test_deaths_while_starting(passing):
    """Each death counts, its worker is listed once, and it joins only after a restart."""
    died, joined = [Event(Kind.DIED, 0)], [Event(Kind.JOINED, 0)]
    told = [NOTHING, died, died, joined, 0.2, joined, died, [message(1, 0)]]
    cluster, _ = passing(script(BinaryCode(2, stragglers=1), told))
    report = cluster.step(np.ones(1), np.empty(1))
    assert (report.deaths, report.lost, report.refused) == (3, (0,), 1)
    assert cluster.done.count(("restart", 0)) == 2


def test_who_is_late_or_not_asked(passing):
    """Workers that are asked and free get the round; at the timeout, silent ones are named."""
    code = Grouped.repetition(6, 2)  # groups of three
    rnd = code.group_round(1)
    cluster, now = passing(
        script(code, [NOTHING, [message(0, 0), message(3, 0), message(0, 0)]], timeout=10.0)
    )
    rnd.reset([0, 1])
    cluster.collect(np.ones(1), rnd, rnd.workers)
    cluster.done.clear()
    cluster.told += [[Event(Kind.DIED, 2)], 4.0, [message(4, 0), Event(Kind.LEFT, 1, 0)], 50.0]
    rnd.reset([0])
    match = r"after 10.0 s; not heard from workers \[0, 1\], lost workers \[2\]"
    with pytest.raises(TimeoutError, match=match):
        cluster.collect(np.ones(1), rnd, rnd.workers)
    assert cluster.done == [
        ("restart", 2),
        ("publish", 1, {0}),
        ("hand", 0, 0),
        ("pass", 4.0),
        ("hand", 1, 0),
        ("pass", 6.0),
    ]
    assert now[0] == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([message(0, 0)], r"not heard from workers \[1, 2\]$"),
        (
            [message(0, 0), message(1, 0, np.nan)],
            r"not heard from workers \[2\], corrupt workers \[1\]$",
        ),
    ],
)
def test_errors_of_time_name_no_empty_list(passing, told, says):
    code = CyclicRepetition(3, stragglers=1)
    cluster, _ = passing(script(code, [NOTHING, told, 50.0], verify=True, timeout=10.0))
    with pytest.raises(TimeoutError, match=says):
        cluster.step(np.ones(1), np.empty(1))


class Agreeing(Gathering):
    """A round that waits for two equal messages, and never has them."""

    ready, survivors = False, np.empty(0, dtype=np.int64)

    def __init__(self, code):
        self.code, self.form = code, code.scheme.format(1, np.dtype(float), None)

    def receive(self, *_, **__):
        return False

    def require(self, messages):
        raise NotDecodableError("no two of them agree", 1)


def test_nobody_is_named_where_nobody_is_corrupt():
    code = Uncoded(2)
    cluster = script(code, [NOTHING, [message(0, 0), message(1, 0)]])
    says = "^no more messages will come, and those that came are too few for round 0: no two of"
    with pytest.raises(NotDecodableError, match=says):
        cluster.collect(np.ones(1), Agreeing(code))


def test_a_worker_that_sent_what_is_not_finite_is_out_of_the_round():
    """All of its messages are dropped, not only the one that is not finite."""
    told = [NOTHING, [message(0, 0, np.nan, 0), message(0, 0, 1.0, 1)]]
    told += [[message(worker, 0, 1.0, index)] for worker in (1, 2) for index in (0, 1, 2)]
    cluster = script(Uncoded(3, load=3), told, verify=True)
    report = cluster.step(np.ones(1), np.empty(1))
    assert report.corrupt == (0,)
    assert report.survivors.tolist() == [1, 2]


def test_too_few_are_asked_dead_or_alive():
    """The master does not wait for dead workers if they would not suffice either."""
    code = ReedSolomon(4, stragglers=1)
    cluster = script(code, [[Event(Kind.DIED, 0)]])
    with pytest.raises(NotDecodableError, match=r"^2 messages do not determine"):
        cluster.collect(np.ones(1), code.round(1), [0, 1])
    assert cluster.done == []


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


def test_a_survivor_that_died_after_it_was_heard():
    """Its message has arrived, even if the round has not taken it yet."""
    told = [NOTHING, [message(0, 0)], [Event(Kind.DIED, 0)], [message(1, 0)]]
    cluster = script(Uncoded(2), told, patience=0, survivors=lambda round: [1, 0])
    out = np.empty(1)
    report = cluster.step(np.ones(1), out)
    assert (out[0], report.lost, report.received.tolist()) == (2.0, (0,), [1, 0])


@pytest.mark.parametrize("partial", ["raise", "best"])
def test_a_survivor_that_died_before(partial):
    told = [NOTHING, [message(1, 0)], [Event(Kind.DIED, 0)]]
    cluster = script(Uncoded(2), told, patience=0, survivors=lambda round: [0, 1], partial=partial)
    match = r"workers \[0\] have died.*messages \[0\], which were chosen as survivors, are missing"
    with pytest.raises(NotDecodableError, match=match) as caught:
        cluster.step(np.ones(1), np.empty(1))
    assert caught.value.missing == 1


@pytest.mark.parametrize("partial", ["raise", "best"])
@pytest.mark.parametrize(
    ("values", "error", "match"),
    [
        ([1.0, np.nan, 1.0], NonFiniteMessageError, "message of worker 1 is not finite"),
        ([1.0, 5.0, 1.0], CorruptMessageError, r"messages of workers \[1\], which are corrupt"),
    ],
)
def test_nothing_stands_in_for_a_survivor_that_was_chosen(partial, values, error, match):
    told = [NOTHING, [message(worker, 0, value) for worker, value in enumerate(values)]]
    cluster = script(COPIES, told, verify=True, partial=partial, survivors=lambda round: [1, 2, 0])
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
        with pytest.raises(OSError, match=r"50 workers need 100 open files.*ulimit -n"):
            LocalCluster(Uncoded(50), [1.0] * 50, np.multiply, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


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
    report = cluster.step(np.ones(1), out)  # in the next round it is like any other
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
    """It is not decoded, whatever `partial` allows otherwise."""
    for partial in ("raise", "best", "unbiased"):
        told = [NOTHING, [message(0, 0, 5.0)], [Event(Kind.DIED, 1)]]
        code = FractionalRepetition(2, 1, stragglers=1)
        cluster = script(code, told, verify=True, patience=0, partial=partial)
        with pytest.raises(UnverifiedError, match="too few to show a lie, and one worker may lie"):
            cluster.step(np.ones(1), np.empty(1))


def test_too_few_that_are_not_corrupt():
    told = [NOTHING, [message(0, 0, np.nan), message(1, 0, np.inf)]]
    cluster = script(FractionalRepetition(2, 1, stragglers=1), told, verify=True)
    match = r"messages of workers \[0, 1\] are corrupt, and the others are too few for round 0"
    with pytest.raises(NotDecodableError, match=match):
        cluster.step(np.ones(1), np.empty(1))


@pytest.mark.parametrize("events", [[0, 1], [1, 0]], ids=["corrupt first", "dead first"])
@pytest.mark.parametrize("patience", [0, 0.01])
def test_some_are_corrupt_and_others_dead(events, patience):
    """The master does not count on workers whose messages were dropped, though they live."""
    told = [[message(0, 0, np.nan)], [Event(Kind.DIED, 1)]]
    cluster = script(
        FractionalRepetition(3, 1, stragglers=2),
        [NOTHING, *(told[i] for i in events), [Event(Kind.DIED, 2)]],
        verify=True,
        patience=patience,
    )
    listen = cluster.listen
    cluster.listen = lambda seconds: listen(0.0)
    with pytest.raises(
        NotDecodableError, match=r"^workers \[1, 2\] have died.*too few for round 0"
    ):
        cluster.step(np.ones(1), np.empty(1))


def test_a_corrupt_worker_is_out_of_the_round():
    """Everything that it sends from then on is dropped, too."""
    told = [NOTHING, [message(0, 0, 5.0, 0)], [message(1, 0, 1.0, index) for index in range(3)]]
    told += [[message(2, 0, 1.0, 0), message(2, 0, 1.0, 1)]]  # worker 2 holds partition 0, too
    told += [[message(0, 0, 1.0, 1)], [message(2, 0, 1.0, 2)]]
    out = np.empty(1)
    report = script(Uncoded(3, load=3), told, verify=True).step(np.ones(1), out)
    assert (out[0], report.corrupt, report.verified, report.messages) == (3.0, (0,), True, 7)


def test_one_of_several_messages_that_comes_twice():
    told = [NOTHING, [message(0, 0, 1.0, 0), message(0, 0, 9.0, 0), message(0, 0, 2.0, 1)]]
    out = np.empty(1)
    report = script(Uncoded(1, 2, load=2), told).step(np.ones(1), out)
    assert (out[0], report.messages, report.refused) == (3.0, 2, 1)


def test_what_is_stale_or_refused_is_counted_once():
    told = [NOTHING, [message(0, 0), message(0, 0)]]
    told += [NOTHING, [message(1, 0), message(0, 9), message(1, 1)], NOTHING, [message(1, 2)]]
    cluster = script(COPIES, told)
    reports = [cluster.step(np.ones(1), np.empty(1)) for _ in range(3)]
    assert [(report.stale, report.refused) for report in reports] == [(0, 0), (1, 2), (0, 0)]


def test_every_message_of_an_older_round_is_counted():
    out = np.empty(1)
    cluster = script(
        COPIES,
        [
            NOTHING,
            [message(0, 0)],
            NOTHING,
            [message(1, 0), message(2, 0), message(3, 0)],
            [message(0, 1)],
        ],
    )
    assert [cluster.step(np.ones(1), out).stale for _ in range(2)] == [0, 3]


def test_who_is_not_asked_is_not_waited_for():
    """Whether it is dead, which may matter to others, or late."""
    code = Grouped([Uncoded(2), REAL])
    rnd, died = code.group_round(1), [Event(Kind.DIED, 1)]
    told = [died, NOTHING, [message(3, 0), message(4, 0)], NOTHING]
    cluster = script(code, told, patience=0)
    rnd.reset([1])
    report = cluster.collect(np.ones(1), rnd, rnd.workers)
    assert (report.lost, report.survivors.tolist()) == ((1,), [3, 4])
    rnd.reset([])
    report = cluster.collect(np.ones(1), rnd, rnd.workers)
    assert (report.messages, report.survivors.size) == (0, 0)
    rnd.reset([0])
    with pytest.raises(NotDecodableError, match=r"workers \[1\] have died"):
        cluster.collect(np.ones(1), rnd, rnd.workers)
    alone = CyclicRepetition(4, stragglers=2)
    rnd = alone.round(1, tracker=StabilityTracker(1e-30, "wait"))
    first, second = ([message(worker, number) for worker in range(3)] for number in range(2))
    cluster = script(alone, [NOTHING, first, NOTHING, second])  # worker 3 is still at round 0
    cluster.collect(np.ones(1), alone.round(1))
    assert cluster.collect(np.ones(1), rnd, [0, 1, 2]).messages == 3
    assert rnd.decodable
    assert not rnd.ready


# ---------------------------------------------------------------------- machines that die whole


def said_of_machines(code, hosts, **options):
    """What a master whose workers say to be there warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        script(code, [], hosts, **options)
    return [str(each.message) for each in caught]


def kept_without(lost, hosts):
    return [worker for worker, host in enumerate(hosts) if host != lost]


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
    for hosts in (["a"] * 6, ["a", "b", "c", "d", "e", "f"], [""] * 6, ["a", "", "", "", "", ""]):
        assert said_of_machines(code, hosts) == [], hosts
    copies = FractionalRepetition(4, stragglers=1)
    for hosts, needed in (
        (["a", "b", "a", "b"], ["a (workers 0, 2)", "b (workers 1, 3)"]),
        (["a", "a", "b", "b"], ["a (workers 0, 1)", "b (workers 2, 3)"]),
        (["a", "a", "b", "c"], ["a (workers 0, 1)"]),
    ):
        lost = [host for host in needed if not copies.decodable(kept_without(host[0], hosts))]
        said = said_of_machines(copies, hosts)
        assert len(said) == bool(lost), (hosts, said)
        assert not lost or said[0].startswith(f"if {' or '.join(lost)} is lost")


def test_a_fork_that_uses_the_cluster_is_refused():
    """Its parent goes on."""
    with LocalCluster(Uncoded(2), [1.0, 2.0], np.multiply, 2) as cluster:
        out = np.empty(2)
        cluster.step(np.ones(2), out=out)
        pid = os.fork()
        if not pid:
            status = 1
            try:
                cluster.step(np.ones(2), out=out)
            except RuntimeError as error:
                status = 0 if "is a fork" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        cluster.step(np.full(2, 5.0), out=out)
        assert out.tolist() == [15.0, 15.0]
