"""Workers of a local cluster that write wherever they can, and report what no honest worker does.

Each liar is a program in its worker, which knows the memory and the files that the worker has.
tests/adversary.py explains how liars are made.
"""

import time

import numpy as np
import pytest
from adversary import RANDOM_LIES, liar
from strength import much
from worker_processes import pids, wait_for_ends

from fastgc import FractionalRepetition, Reactive, ReedSolomon, Uncoded
from fastgc.codes import Share
from fastgc.engines import LocalCluster
from fastgc.engines.interface import Question
from fastgc.engines.loop import RoundLoop
from fastgc.errors import WorkerFailedError

P = 50


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    wait_for_ends(*pids())


def expelled(lie, code=None, **options):
    """Step until the liar is replaced; all steps must be exact."""
    code = ReedSolomon(4, stragglers=2) if code is None else code
    shards = [float(j + 1) for j in range(code.scheme.data.shards)]
    with LocalCluster(code, shards, liar(lie), P, timeout=60.0, **options) as cluster:
        deaths, back = 0, False
        until = time.monotonic() + 60.0
        while not (deaths and back):
            assert time.monotonic() < until
            theta, out = np.random.default_rng().standard_normal(P), np.empty(P)
            report = cluster.step(theta, out)
            np.testing.assert_allclose(out, theta * sum(shards), rtol=1e-10)
            deaths = report.deaths
            back = 1 in report.survivors and not report.lost
        assert deaths == 1


@pytest.mark.parametrize("index", [1, 99, -2, 2**62, -(2**62)])
def test_a_message_that_a_worker_cannot_have(index):
    expelled(f"me['channel'].write((0, round, {index}, 0, 0.0))")


@pytest.mark.parametrize("round", ["round - 1", "round + 1", "-1", "2**62"])
def test_a_message_of_a_round_that_it_was_not_handed(round):
    expelled(f"me['channel'].write((0, {round}, 0, 0, 0.0))")


@pytest.mark.parametrize(
    "written",
    [
        "b'x'",
        "b''",  # on a line of packets it looks like the line's end
        "bytes(39)",
        "struct.pack('=qqqqd', 2, -1, -1, 0, 0.0)",  # it joins again
        "struct.pack('=qqqqd', 3, round, -1, 0, 0.0)",  # it says that it died
        "struct.pack('=qqqqd', 99, round, 0, 0, 0.0)",
        "struct.pack('=qqqqd', 5, round, 6, 1, 0.0)",  # it was not asked
        "bytes([255]) * (1 << 12)",
    ],
)
def test_nonsense_on_its_line(written):
    expelled(f"os.write(me['line'], {written})")


def test_one_that_answers_twice_what_it_was_asked():
    lie = """
usual = me["worker"].answer
def twice(question, out=None):
    me["channel"].write((5, question.round, question.number, 1, 0.0))
    return usual(question, out)
me["worker"].answer = twice
"""
    code, out = Reactive(4, holders=2), np.empty(P)
    with LocalCluster(code, [1.0] * 4, liar(lie), P) as cluster:
        deaths = 0
        while not deaths:
            report = cluster.step(np.ones(P), out)
            deaths = report.deaths
            cluster.transport.ask(1, Question(10**6, report.round, Share(0)))
        np.testing.assert_allclose(out, 4.0)


def test_one_that_never_reads_its_questions_holds_nobody_up():
    lie = "me['worker'].answer = lambda *_: time.sleep(1e6)"
    code, out = Reactive(4, holders=2), np.empty(P)
    with LocalCluster(code, [1.0] * 4, liar(lie), P) as cluster:
        for number in range(3000):
            cluster.step(np.ones(P), out) if number in (0, 2999) else None
            cluster.transport.ask(1, Question(number, 0, Share(0)))
        assert len(cluster.transport._lines[1]._questions) < 3000  # the line is full
    np.testing.assert_allclose(out, 4.0)


def test_one_that_says_it_is_done_and_never_reads_its_orders_is_replaced():
    """Its line is full after some hundred rounds."""
    lie = """
for number in range(10**6):
    me["channel"].write((0, number, 0, 0, 0.0))
    while me["channel"]._newest[0] <= number:
        time.sleep(0)
    time.sleep(1e-3)  # until the order has been sent, too
"""
    expelled(lie, FractionalRepetition(4, stragglers=3), verify=1)


@pytest.mark.parametrize(
    "closed", ["os.close(me['line'])", "os.closerange(3, 256)"], ids=["line", "every file"]
)
def test_one_that_lives_on_after_its_line_closed_is_ended(closed):
    """A program that closes every file closes also what its worker lives by."""
    code, out = FractionalRepetition(4, stragglers=1), np.empty(P)
    with LocalCluster(code, [1.0] * 4, liar(f"{closed}\ntime.sleep(600)"), P) as cluster:
        first = cluster.transport.pids()[1]
        until = time.monotonic() + 60.0
        while cluster.step(np.ones(P), out).deaths < 1:
            assert time.monotonic() < until
        np.testing.assert_allclose(out, 4.0)
        wait_for_ends(first)


@pytest.mark.parametrize("what", ["memfd", "pipe", "socket"])
def test_nobody_reopens_what_others_read(what):
    """A worker closes or spoils every file that it can reopen: only it takes harm."""
    lie = f"""
for name in attempt(os.listdir, "/proc/self/fd") or ():  # it has opened too many in the end
    again = attempt(os.open, f"/proc/self/fd/{{name}}", os.O_RDWR | os.O_NONBLOCK)
    if again is not None and {what!r} in attempt(os.readlink, f"/proc/self/fd/{{name}}"):
        attempt(os.write, again, bytes(64))
"""
    code, out = FractionalRepetition(6, stragglers=2), np.empty(P)
    with LocalCluster(code, [1.0] * 6, liar(lie), P, verify=1) as cluster:
        before = cluster.transport.pids()
        for number in range(50):
            report = cluster.step(np.full(P, float(number)), out)
            np.testing.assert_allclose(out, 6.0 * number)
            assert set(report.lost) <= {1}
        after = cluster.transport.pids()
        assert all(after[worker] == before[worker] for worker in (0, 2, 3, 4, 5))


def test_nonsense_while_it_starts_is_named():
    class Shard:
        def __reduce__(self):
            write = "[os.write(fd, b'x') for fd in range(3, 30) if is_socket(fd)]"
            return eval, (
                f"(lambda os, stat: (lambda is_socket: {write})(lambda fd: os.path.exists("
                "f'/proc/self/fd/{fd}') and stat.S_ISSOCK(os.fstat(fd).st_mode)))"
                "(__import__('os'), __import__('stat'))",
            )

    with pytest.raises(WorkerFailedError, match="worker 1 died while it started: it was ended"):
        LocalCluster(Uncoded(2, 2), [1.0, Shard()], np.multiply, 1)


def test_a_message_from_the_future_came_when_it_is_read():
    lie = """
me["channel"].write((0, round, 0, 2**62, 0.0))
me["channel"].next()
"""
    with LocalCluster(Uncoded(2), [1.0] * 2, liar(lie), P) as cluster:
        assert cluster.step(np.ones(P), np.empty(P)).arrivals.max() < 100.0


def test_nobody_changes_the_size_of_memory():
    """A process that reads beyond the end of shrunk memory dies by SIGBUS."""
    lie = """
for file in files():
    for size in (0, 1, 1 << 30):
        attempt(os.ftruncate, file, size)
"""
    with LocalCluster(ReedSolomon(3, stragglers=1), [1.0] * 3, liar(lie), P) as cluster:
        for _ in range(5):
            out = np.empty(P)
            cluster.step(np.ones(P), out)
            np.testing.assert_allclose(out, 3.0)


@pytest.mark.parametrize("way", ["map", "write", "seal", "protect"])
def test_nobody_writes_to_the_parameters(way):
    """Otherwise all would compute the same wrong gradient, which no comparison finds."""
    lie = {
        "map": """
for file in files():
    memory = mapped(file)
    while memory and (at := memory.find(theta[:2].tobytes())) >= 0:
        memory[at : at + theta.nbytes] = bytes(theta.nbytes)
""",
        "write": """
for file in files():
    again = attempt(os.open, f"/proc/self/fd/{file}", os.O_RDWR)
    whole = os.pread(again, os.fstat(file).st_size, 0)
    if (at := whole.find(theta[:2].tobytes())) >= 0:
        attempt(os.pwrite, again, bytes(theta.nbytes), at)
""",
        "seal": """
import fcntl
for file in files():
    for seal in (0x8, 0x10):
        attempt(fcntl.fcntl, file, fcntl.F_ADD_SEALS, seal)
""",
        "protect": """
import ctypes
at = theta.ctypes.data // 4096 * 4096
if ctypes.CDLL(None).mprotect(ctypes.c_void_p(at), ctypes.c_size_t(4096), 3) == 0:
    ctypes.memset(theta.ctypes.data, 0, theta.nbytes)
""",
    }[way]
    code, out = FractionalRepetition(4, stragglers=1), np.empty(P)
    with LocalCluster(code, [3.0] * 4, liar(lie, None), P, verify=1) as cluster:
        for number in range(1, 5):
            theta = np.arange(P) + 100.0 * number
            assert cluster.step(theta, out).verified
            np.testing.assert_allclose(out, 12.0 * theta)


def test_what_is_decoded_is_what_was_verified(tmp_path):
    """Workers change their messages after the comparison and before decoding."""
    lie = f"""
def later():
    while not os.path.exists({str(tmp_path / "go")!r}):
        time.sleep(0.001)
    me["own"].slots[0][:] += 1e6
    open({str(tmp_path)!r} + f"/{{me['number']}}", "w").close()
if round == 0:
    threading.Thread(target=later, daemon=True).start()
"""
    code = FractionalRepetition(4, stragglers=3)
    shards, out = [1.0] * 4, np.empty(P)
    with LocalCluster(code, shards, liar(lie, None), P, verify=1) as cluster:
        rnd = code.round(P, verify=1)
        cluster.collect(np.ones(P), rnd)
        (tmp_path / "go").touch()
        while not all((tmp_path / str(i)).exists() for i in rnd.survivors):
            time.sleep(0.001)
        assert rnd.verified
        rnd.gradient(out)
    np.testing.assert_allclose(out, 4.0)


@pytest.mark.parametrize("copies", [1, 2])
def test_nobody_writes_to_messages_of_others(copies, monkeypatch):
    """Otherwise both copies of a message could be wrong and verified, or the honest be accused."""
    lie = f"""
def overwrite():
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        for memory in memories:
            for _ in range({copies}):
                if (at := memory.find(other)) >= 0:
                    memory[at : at + len(other)] = bytes(len(other))
other = (theta * 3.0).tobytes()  # of workers 0 and 2
found = [mapped(file) for file in files()]
memories = [memory for memory in found if memory]
threading.Thread(target=overwrite, daemon=True).start()
"""
    own_copy = RoundLoop._own_copy

    def late(self, *given):
        time.sleep(0.02)
        return own_copy(self, *given)

    monkeypatch.setattr(RoundLoop, "_own_copy", late)
    code = FractionalRepetition(4, stragglers=1)
    shards = [0.0] * 4
    for j in code.partitions(0):
        shards[j] = 1.5
    out = np.empty(P)
    with LocalCluster(code, shards, liar(lie), P, verify=1) as cluster:
        for number in range(3):
            theta = np.arange(P) + 100.0 * (number + 1)
            report = cluster.step(theta, out)
            assert report.verified
            assert not report.corrupt
            np.testing.assert_allclose(out, 3.0 * theta)


@pytest.mark.parametrize(
    ("code", "who"),
    [
        (FractionalRepetition(6, stragglers=2), (1,)),
        (FractionalRepetition(5, stragglers=4), (1, 3)),
        (ReedSolomon(6, stragglers=3), (1,)),
    ],
)
def test_random_liars_of_memory(code, who):
    """No lie is verified, nobody else is accused or dies, and no round hangs."""
    shards, deaths = [float(j + 1) for j in range(code.k)], 0
    rng, lie = np.random.default_rng(1), liar(RANDOM_LIES, who, always=True)
    options = {"verify": len(who), "timeout": 60.0, "patience": 30.0}
    try:
        with LocalCluster(code, shards, lie, P, **options) as cluster:
            while deaths < much(20, 4):
                theta, out = rng.standard_normal(P), np.empty(P)
                report = cluster.step(theta, out)
                assert {*report.corrupt, *report.lost} <= {*who}
                np.testing.assert_allclose(out, sum(shards) * theta, rtol=1e-9, atol=1e-9)
                assert report.verified
                deaths = report.deaths
    except WorkerFailedError as error:  # it says so, which may be a lie
        if error.worker not in who:
            raise
