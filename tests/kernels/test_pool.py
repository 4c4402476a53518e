"""The pool of threads of C's kernels: callers, forks, exits, and the number of threads."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import programs
import pytest
from strength import much

import fastgc
from fastgc import kernels
from fastgc.delays import Exponential
from fastgc.kernels import threads
from fastgc.planning.simulation import simulate

compiled = pytest.importorskip("fastgc.kernels.c")
several_processors = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two processors",
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ONES = np.ones(5 * 8192 + 1)  # six parts: see csrc/split.c


def square_sum():
    return kernels.unchecked.square_sum(ONES)


def wait_until(true):
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def fresh(code, **environment):
    """Return what a new Python prints as JSON."""
    found = programs.run(programs.python("-W", "ignore", "-c", code), env=environment)
    assert found.stderr == ""
    return json.loads(found.stdout)


def test_every_hand_off_is_done_once(split_over):
    """A piece left out or done twice would change the sum."""
    split_over(3)
    total = np.zeros(4 * 1024)
    rows = kernels.Rows.of([np.ones(total.size)], total.size, total.dtype)
    one = np.ones(1)
    before = compiled.counts()
    calls = much(10**5, 10**4)
    for _ in range(calls):
        assert kernels.unchecked.combine(kernels.REAL, rows, one, total, True, True)
        assert square_sum() == ONES.size
    np.testing.assert_array_equal(total, calls)
    called, shared = np.subtract(compiled.counts(), before)
    assert called == 2 * calls
    assert 0 < shared <= called


def test_short_work_is_the_callers_alone():
    before = threads.get_num_threads()
    threads.set_num_threads(3)
    called = compiled.counts()
    try:
        for size in (8193, 20_000, 60_000):  # several parts of a few microseconds
            for _ in range(100):
                assert kernels.unchecked.square_sum(np.ones(size)) == size
        assert compiled.counts() == called
    finally:
        threads.set_num_threads(before)


@several_processors
def test_simulated_rounds_that_put_messages_in_order_wake_a_thread():
    """They take about 700 microseconds; counting as many messages takes 40."""
    code, before, called = fastgc.BinaryCode(20, stragglers=4), threads.get_num_threads(), []
    threads.set_num_threads(2)

    def wakes():
        time.sleep(0.002)  # until threads sleep
        called.append(compiled.counts()[0])
        simulate(code, Exponential(1.0), rounds=2000, seed=0)
        return compiled.counts()[0] > called[-1]

    try:
        wait_until(wakes)  # a call may be among those that the caller does alone
    finally:
        threads.set_num_threads(before)


def helpers():
    """Return the /proc directories of the pool's threads."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # another's has ended
            if (task / "comm").read_text() == "fastgc\n":
                found.append(task)
    return found


def field(task, name):
    with open(f"{task}/status") as status:
        return next(line.split()[1] for line in status if line.startswith(f"{name}:"))


@linux
@pytest.mark.parametrize("spin", [0, 50, 2000])
def test_idle_threads_sleep(split_over, spin):
    split_over(3)
    compiled.set_spin(1000 * spin)
    try:
        for _ in range(3):
            assert square_sum() == ONES.size
            assert helpers()
            wait_until(lambda: {field(task, "State") for task in helpers()} == {"S"})
            assert square_sum() == ONES.size  # wakes the threads
    finally:
        compiled.set_spin()


@linux
def test_signals_are_for_threads_of_python(split_over):
    split_over(2)
    square_sum()
    for task in helpers():
        blocked = int(field(task, "SigBlk"), 16)
        for number, raised_by_faults in [(2, 0), (15, 0), (10, 0), (11, 1), (8, 1)]:
            assert blocked >> (number - 1) & 1 == 1 - raised_by_faults


@linux
@several_processors
def test_threads_keep_off_the_callers_processor(split_over):
    split_over(2)
    mine = os.sched_getaffinity(0)
    square_sum()
    for task in helpers()[:1]:
        others = os.sched_getaffinity(int(os.path.basename(task)))
        assert others < mine
        assert len(others) == len(mine) - 1


PINNED = """
import json, os
import numpy as np
from fastgc.kernels import c, threads, unchecked
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
c.set_least(0)
found = [unchecked.square_sum(np.ones(50_000)) for _ in range(10)]
tasks = len(os.listdir("/proc/self/task"))
print(json.dumps([threads.get_num_threads(), found, c.counts()[0], tasks]))
"""


@linux
def test_one_processor_has_one_thread_whatever_was_asked_for():
    count, found, called, tasks = fresh(PINNED, FASTGC_NUM_THREADS="3", OPENBLAS_NUM_THREADS="1")
    assert (count, set(found), called, tasks) == (3, {50_000.0}, 0, 1)


FORKS = """
import json, os, sys
import numpy as np
from fastgc.kernels import c, threads, unchecked
c.set_least(0)
x = np.ones(50_000)
def good():
    before = c.counts()[1]
    for _ in range(10_000):
        if unchecked.square_sum(x) != x.size:
            return False
        if c.counts()[1] > before:  # a thread of its own did a part
            return True
    return False
def child(generations):
    pid = os.fork()
    if not pid:
        os._exit(0 if good() and (generations == 1 or child(generations - 1)) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(json.dumps([good(), child(3), good(), child(1)]))
"""


@several_processors
def test_children_and_theirs_start_their_own_threads():
    assert fresh(FORKS, FASTGC_NUM_THREADS="2") == [True] * 4


EXITS = """
import sys, threading
import numpy as np
from fastgc.kernels import c, unchecked
c.set_least(0)
c.set_spin({})
x, begun = np.ones(50_000), threading.Barrier(4)
def call():
    unchecked.square_sum(x)
    begun.wait()
    while True:
        unchecked.square_sum(x)
for _ in range(3):
    threading.Thread(target=call, daemon=True).start()
begun.wait()
print(unchecked.square_sum(x))
sys.exit(0)
"""


@pytest.mark.parametrize("spin", [0, 10**8])
def test_a_process_ends_while_threads_work_or_spin(spin):
    for _ in range(much(10, 2)):
        assert fresh(EXITS.format(spin), FASTGC_NUM_THREADS="3") == 50_000


def test_threads_by_the_environment(monkeypatch):
    """C is told of the number, except of refused ones."""
    told = []
    monkeypatch.setattr(threads, "_threads", 0)
    monkeypatch.setattr(threads, "_tell", None)
    monkeypatch.setenv("FASTGC_NUM_THREADS", "3")
    threads.attach(told.append)
    assert threads.get_num_threads() == 3
    threads.set_num_threads(5)
    assert threads.get_num_threads() == 5
    for wrong, words in [(0, "at least 1"), (257, "at most 256")]:
        with pytest.raises(ValueError, match=words):
            threads.set_num_threads(wrong)
    assert told == [3, 5]
    for wrong in ("many", "0", "257"):
        monkeypatch.setattr(threads, "_threads", 0)
        monkeypatch.setenv("FASTGC_NUM_THREADS", wrong)
        with pytest.raises(ValueError, match=f"FASTGC_NUM_THREADS must be 1 to 256, not '{wrong}'"):
            threads.get_num_threads()


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        ("0::/\n", {"cpu.max": "250000 100000"}, 3),
        ("0::/\n", {"cpu.max": "50000 100000"}, 1),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2),
        ("0::/a\n", {"cpu.max": "100000 100000", "a/cpu.max": "700000 100000"}, 1),
        ("0::/../outside\n", {"cpu.max": "400000 100000"}, 4),
        (
            "4:memory:/a\n3:cpu,cpuacct:/a\n",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "600000", "cpu,cpuacct/a/cpu.cfs_period_us": "1e5"},
            6,
        ),
        (
            "3:cpu,cpuacct:/a\n",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "-1", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
            8,
        ),
        ("0::/\n", {"cpu.max": "nonsense"}, 8),
        (None, {}, 8),
    ],
)
def test_threads_by_default(monkeypatch, tmp_path, own, files, expected):
    """By default: the processors of the affinity mask, or what a control group's quota allows."""
    if own is not None:
        (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text + "\n")
    monkeypatch.setattr(threads, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(threads, "_GROUPS", tmp_path / "tree")
    monkeypatch.setattr(threads, "_threads", 0)
    monkeypatch.delenv("FASTGC_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert threads.get_num_threads() == expected
    monkeypatch.setattr(threads, "_threads", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert threads.get_num_threads() == (16 if expected == 8 else expected)
