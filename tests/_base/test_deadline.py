"""When waits end: one object for all of them."""

import ast
import math
import re
import threading
import time
from pathlib import Path

import pytest

from fastgc._base import deadline
from fastgc._base.deadline import LONGEST, Deadline, in_time


@pytest.fixture
def clock(monkeypatch):
    """Time passes in sleeps alone; return what was slept."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + sum(slept))
    return slept


def test_deadline_counts_from_its_beginning(clock):
    end = Deadline(10.0)
    assert (end.waited, end.left) == (0.0, 10.0)
    time.sleep(4.0)
    assert (end.waited, end.left) == (4.0, 6.0)
    time.sleep(7.0)
    assert (end.waited, end.left) == (11.0, 0.0)


def test_deadline_sleeps_no_longer_than_until_its_end(clock):
    end = Deadline(10.0)
    assert end.sleep(4.0)
    assert end.sleep(7.0)
    assert not end.sleep(7.0)
    assert clock == [4.0, 6.0, 0.0]


@pytest.mark.parametrize("seconds", [math.inf, 1e300])
def test_deadline_without_end_fits_into_calls_of_the_system(clock, seconds):
    end = Deadline() if seconds == math.inf else Deadline(seconds)
    time.sleep(1e6)
    assert end.left == LONGEST < 2**31 / 1e3
    assert end.sleep(1.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, -math.inf])
def test_deadline_that_is_over_at_once(clock, seconds):
    assert Deadline(seconds).left == 0.0
    assert not Deadline(seconds).sleep(5.0)


def test_in_time_returns_and_raises_what_the_call_does():
    assert in_time(lambda: None, 60.0) is None
    with pytest.raises(KeyError, match="mine"):
        in_time(lambda: {}["mine"], 60.0)


def test_in_time_leaves_a_call_that_takes_longer():
    over = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer for 0\.05 s"):
        in_time(over.wait, 0.05)
    over.set()


def test_no_other_file_counts_down():
    """What reads a clock to know when a wait ends would be a second deadline."""
    now = r"time\.(?:monotonic|perf_counter)\(\)"
    sums = re.compile(rf"{now} *[+<>]|[<>-] *{now}")
    files = Path(deadline.__file__).parents[1].rglob("*.py")
    found = {each.name: what for each in files if (what := sums.findall(each.read_text()))}
    assert found == {}


# Every function that calls the system, or a library, to wait for another thread or process.
WAITS = {
    "seconds": """
        _base/deadline: Deadline.sleep in_time
        engines/channel: SocketEnd._wait WorkerEnd.serve
        engines/local: _Processes._stop _Processes.listen
        engines/mpi: _exits_told.say_and_abort _Job.__init__ _Pause.__call__
        engines/processes: start
        engines/ray: _Actors._ended _Actors._put _Side.message _check_answers _shut_down
        engines/torch: _Job.__init__ _Ranks.close _Ranks.listen _Wire._wait
        guard: _Guard._pause
        torch/coordinator: Server._write Server.close Server.drain Server.run
        torch/finding: find
        torch/handover: _read receive send
        torch/member: Member._connect Member._done Member._listen Member.accept Member.call
        torch/member: Member.close Member.end Member.say _Board.get _Board.wait _close_all
        torch/reactive: ReactiveDataParallel._hand_over
    """,
    # The other side may compute for as long as it likes; its end ends the wait.
    "its end": """
        engines/channel: SocketEnd._read
        engines/mpi: _Orders.finish _Orders.tell _receive_bytes
        engines/processes: _end_at_end_of
        engines/torch: _Wire._receive _Wire.tell _serve _watch
        guard: _Guard._live
        torch/batches: Loader.take
        torch/member: Member.there _close_groups
        torch/reactive: ReactiveDataParallel._rehearse
    """,
    # What is waited for has come, or the process has been killed; or the call does not wait.
    "there": """
        engines/channel: SocketEnd.__init__ SocketLine._receive
        engines/torch: _Job.meet _Link.come _peeked
        engines/processes: _Server.runs _drop end_with
        guard: _Guard._stop
        torch/coordinator: Server._accept Server._read
        training/checkpoint: Checkpoint.__init__
        _base/writing: _part _taken
    """,
}
CALLS = """
    Improbe Recv Wait accept acquire allgather connect_to_new_process
    create_connection flock join poll recv recv_into result select sendall sleep wait
    waitpid
"""


def waiting(file):
    """Yield the functions of a file that call what waits."""

    def visit(node, where):
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.Call):
                name = ast.unparse(each.func)
                last = name.rpartition(".")[2]
                text = last == "join" and re.search(r"['\"]|^os\.p", name)
                gets = last == "get" and not each.args and not each.keywords
                if (
                    (last in CALLS.split() and not text)
                    or gets
                    or name in ("os.read", "_wait", "in_time")
                ):
                    yield ".".join(where)
            named = isinstance(each, ast.FunctionDef | ast.ClassDef)
            yield from visit(each, [*where, each.name] if named else where)

    yield from visit(ast.parse(file.read_text()), [])


def test_every_wait_is_known():
    """Whoever adds one says above how it ends, and tries it with a peer that is silent."""
    known = set()
    for line in "".join(WAITS.values()).strip().splitlines():
        file, _, names = line.strip().partition(": ")
        known |= {f"{file}: {name}" for name in names.split()}
    package, found = Path(deadline.__file__).parents[1], set()
    for where in ("*.py", "_base/*.py", "engines/*.py", "torch/*.py", "training/*.py"):
        for file in package.glob(where):
            place = file.relative_to(package).with_suffix("")
            found |= {f"{place}: {name}" for name in waiting(file)}
    assert found == known
