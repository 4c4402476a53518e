"""Runs that are killed at any instant go on as if they had not been."""

import errno
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import programs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much
from toys import METHODS, Network, toy

import fastgc
from fastgc import CheckpointError, Grouped, checkpoint, models
from fastgc.delays import Pareto
from fastgc.engines import SimulatedCluster
from fastgc.stability import StabilityTracker
from fastgc.training.optimizers import GCADA, SGD, AMSGrad, Nesterov

CODES = {
    "cada": Grouped.repetition(6, 6),
    "gcada": Grouped([fastgc.ReedSolomon(3, stragglers=1), fastgc.BinaryCode(3, stragglers=1)]),
    "gcada, known": Grouped.repetition(6, 2),
}
CODE = fastgc.ReedSolomon(6, stragglers=2)
ROUNDS = 7
# This file is also a program, which imports what lies beside it in tests/.
AROUND = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}


def run(method="nesterov", dtype=np.float64, **options):
    """Train with workers whose speeds, and so the late ones, differ between runs."""
    given = {
        "code": CODES.get(method, CODE),
        "data": toy(dtype),
        "optimizer": METHODS[method](),
        "rounds": ROUNDS,
        "batch": 5,
        "seed": 4,
        "delays": Pareto(0.001, 1.1),
        "engine": "simulated",
        "every": 2,
    }
    return fastgc.train(**given | options)


def on_other_workers(seed):
    return partial(SimulatedCluster, cost=np.random.default_rng(seed).exponential(0.01, 6))


def assert_same(history, whole):
    """Require that histories agree to the last bit, except in seconds."""
    assert history.theta.dtype == whole.theta.dtype
    assert history.theta.tobytes() == whole.theta.tobytes()
    timeless = {"time": 0, "wait": 0, "decode": 0, "arrivals": (), "messages": 0, "stale": 0}
    for one, other in zip(history.rounds, whole.rounds, strict=True):
        assert repr(replace(one, **timeless)) == repr(replace(other, **timeless))  # NaN != NaN
    times = [r.time for r in history.rounds]
    assert times == sorted(times)


class Faults:
    """Do something at the i-th operation on files; writes are torn there."""

    def __init__(self, at, fail):
        self.at, self.fail, self.count = at, fail, 0

    def due(self):
        self.count += 1
        return self.count == self.at

    def before(self, function):
        def faulty(*arguments, **options):
            if self.due():
                self.fail()
            return function(*arguments, **options)

        return faulty

    def write(self, file, content):
        if self.due():
            os_write(file, content[: len(content) // 2])
            self.fail()
        return os_write(file, content)

    def install(self, patch):
        patch(os, "write", self.write)
        for name in ("fsync", "ftruncate", "lseek", "mkdir", "open", "replace", "unlink"):
            patch(os, name, self.before(getattr(os, name)))


os_write = os.write


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def killed(at, go):
    """Fork a process that dies at the at-th file operation of `go`; return whether it died."""
    child = os.fork()
    if not child:
        Faults(at, die).install(lambda where, name, value: setattr(where, name, value))
        try:
            go()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status != 0


def sweep(method, dtype, folder):
    """Kill a run at every file operation, and other runs repeatedly; print how often."""
    whole = run(method, dtype)
    for at in itertools.count(1):
        options = {"method": method, "dtype": dtype, "survivors": whole}
        if not killed(at, partial(run, checkpoint=folder, engine=on_other_workers(at), **options)):
            break
        assert_same(run(checkpoint=folder, **options), whole)
        if folder.exists():
            shutil.rmtree(folder)
    shutil.rmtree(folder, ignore_errors=True)
    again, rng = 0, random.Random(0)

    def go():
        run(checkpoint=folder, engine=on_other_workers(again), **options)

    while killed(rng.randint(1, 2 * at // 3), go):
        again += 1
    assert_same(run(checkpoint=folder, **options), whole)
    print(at - 1, again)


@pytest.mark.long
@pytest.mark.parametrize("method", ["sgd", "nesterov", "amsgrad", "cada", "gcada"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_train_killed_at_every_touch_of_a_file(method, dtype, tmp_path):
    command = [sys.executable, __file__, method, dtype, tmp_path / "run"]
    # One thread, as the process forks.
    one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = programs.run(command, env=AROUND | one)
    kills, again = map(int, done.stdout.split())
    assert kills > 5 * 10  # five checkpoints, each of more than ten touches
    assert again > 1


def test_save_killed_at_every_touch_of_a_file(tmp_path, monkeypatch):
    """Whatever is left, the same program goes on from there, also from within its first save."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # the system lives: spare the disk

    def go(folder):
        with checkpoint.Checkpoint(folder, {"run": "x"}) as kept:
            for number in range(kept.round, 3):
                kept.add({"round": number})
                kept.save({"theta": np.full(3, number / 3)})
        return contents(folder)

    whole = go(tmp_path / "whole")
    assert list(whole) == ["checkpoint", "rounds.jsonl"]
    for at in itertools.count(1):
        folder = tmp_path / str(at)
        if not killed(at, partial(go, folder)):
            break
        assert go(folder) == whole
    assert at > 3 * 12


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.few(14)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch", [None, 5])
def test_train_in_parts(method, dtype, batch, tmp_path):
    whole = run(method, dtype, batch=batch, rounds=11)
    for number, upto in enumerate(much((1, 4, 5, 11, 11), (4, 11, 11))):
        options = {"survivors": whole, "engine": on_other_workers(number), "batch": batch}
        history = run(method, dtype, rounds=upto, checkpoint=tmp_path, **options)
        assert_same(history, replace(whole, rounds=whole.rounds[:upto], theta=history.theta))
    assert_same(history, whole)


def never(*_, **__):
    pytest.fail("workers were started")


def test_train_complete_run_starts_no_worker(tmp_path):
    whole = run(checkpoint=tmp_path)
    before = contents(tmp_path)
    called = []
    history = run(checkpoint=tmp_path, engine=never, callback=called.append)
    assert_same(history, whole)
    assert not called
    assert contents(tmp_path) == before
    more = run(checkpoint=tmp_path, rounds=ROUNDS + 2, callback=called.append)
    assert called == more.rounds[ROUNDS:]
    assert repr(more.rounds[:ROUNDS]) == repr(whole.rounds)
    with pytest.raises(CheckpointError, match=r"already has 9 rounds: .* not for 8") as refused:
        run(checkpoint=tmp_path, rounds=8)
    assert not hasattr(refused.value, "__notes__")


def test_train_complete_run_reached_its_loss(tmp_path):
    losses = [r.loss for r in run().rounds]
    ended = run(checkpoint=tmp_path, until=losses[4])
    assert len(ended.rounds) == 5  # between two rounds that are kept whatever their loss
    assert_same(run(checkpoint=tmp_path, until=losses[4], engine=never), ended)
    assert_same(run(checkpoint=tmp_path), run())


def test_train_in_parts_time_and_deaths(tmp_path):
    class Mortal(SimulatedCluster):
        def step(self, theta, out):
            report = super().step(theta, out)
            return report._replace(deaths=report.round)

    first = run(checkpoint=tmp_path, rounds=4, engine=Mortal)
    history = run(checkpoint=tmp_path, engine=Mortal)
    assert [r.deaths for r in history.rounds] == [0, 1, 2, 3, 3 + 4, 3 + 5, 3 + 6]
    assert history.rounds[4].time == pytest.approx(first.rounds[3].time + history.rounds[4].wait)


@pytest.mark.parametrize("measure_every", [0, 2])
def test_train_in_parts_tracked(tmp_path, measure_every):
    whole, parts = StabilityTracker(measure_every=measure_every), None
    run(tracker=whole)
    for upto in (3, ROUNDS):
        parts = StabilityTracker(measure_every=measure_every)
        history = run(tracker=parts, rounds=upto, checkpoint=tmp_path)
    assert repr(parts.rounds) == repr(whole.rounds)
    assert [r.rounding for r in history.rounds] == [t.predicted for t in whole.rounds]


def test_save_adds_to_the_history(tmp_path):
    path, seen = tmp_path / "rounds.jsonl", []
    run(checkpoint=tmp_path, callback=lambda _: seen.append(path.read_bytes()), every=2)
    seen.append(path.read_bytes())
    assert [text.count(b"\n") for text in seen] == [0, 0, 2, 2, 4, 4, 6, 7]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(seen))


def test_save_fails_at_every_touch_of_a_file(tmp_path, monkeypatch):
    """For example if a disk is full: the error says what was saved, and the run can go on."""
    whole = run(rounds=3)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # the system lives: spare the disk

    def fail():
        raise OSError(errno.ENOSPC, "No space left on device")

    clear, opened = 0, len(os.listdir("/proc/self/fd"))
    for at in itertools.count(1):
        folder, code, text = tmp_path / str(at), errno.ENOSPC, ""
        faults = Faults(at, fail)
        with monkeypatch.context() as patched:
            faults.install(partial(patched.setattr, raising=False))
            try:
                run(checkpoint=folder, rounds=3)
            except OSError as error:
                code, text = error.errno, str(error)
        if faults.count < at:
            break
        assert code == errno.ENOSPC
        says = rf"of round \d could not be written to {folder}, (that|there).*No space left"
        clear += re.search(says, text) is not None
        assert not [*folder.glob(".fastgc-*")]
        assert len(os.listdir("/proc/self/fd")) == opened
        assert_same(run(checkpoint=folder, rounds=3), whole)
    assert at - clear < 10  # before the first checkpoint, the system's own error is raised
    assert clear > 24  # three checkpoints


def test_save_has_on_disk_what_the_next_write_depends_on(tmp_path, monkeypatch):
    """So a loss of power leaves the old checkpoint or the new one, each with its rounds."""
    names, done = {}, []

    def watched(name, call):
        def seen(*given):
            result = call(*given)
            if name == "open":
                names[result] = re.sub(r"^\.fastgc-\w+", "", Path(given[0]).name)
            else:
                done.append((name, names.get(given[0]) or Path(given[1]).name))
            return result

        return seen

    for name in ("open", "write", "fsync", "replace"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    with checkpoint.Checkpoint(tmp_path / "run", {"run": "x"}) as kept:
        assert done == [("fsync", tmp_path.name)]
        done.clear()
        kept.add(1)
        kept.save({"theta": np.ones(3)})
    assert [each for each, _ in itertools.groupby(done)] == [
        ("write", "rounds.jsonl"),
        ("fsync", "rounds.jsonl"),
        ("write", ".part"),
        ("fsync", ".part"),
        ("replace", "checkpoint"),
        ("fsync", "run"),
    ]


def test_save_may_be_repeated(tmp_path, monkeypatch):
    """With more rounds or not, after any number of failures, nothing is written twice."""

    def fail():
        raise OSError(errno.EIO, "Input/output error")

    def keep(folder, faults=None):
        """Save three rounds in two saves; the second fails. Return what a resumed run finds."""
        with checkpoint.Checkpoint(folder, {"run": "x"}) as kept:
            kept.add(1)
            kept.save({"theta": np.ones(3)})
            kept.add("two")
            with monkeypatch.context() as patched:
                if faults:
                    faults.install(partial(patched.setattr, raising=False))
                try:
                    kept.save({"theta": np.full(3, 2.0)})
                except OSError:
                    assert kept.round == 1
                    found = read_again(folder)  # what a process that dies now leaves behind
                    assert found in ([[1], 1.0], [[1, "two"], 2.0])
            if faults:
                kept.add(3)
                kept.save({"theta": np.full(3, 3.0)})
        return read_again(folder)

    def read_again(folder):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        with checkpoint.Checkpoint(copy, {"run": "x"}) as kept:
            return [kept.lines, float(kept.state["theta"][0])]

    assert keep(tmp_path / "plain") == [[1, "two"], 2.0]
    for at in itertools.count(1):
        faults = Faults(at, fail)
        assert keep(tmp_path / str(at), faults) == [[1, "two", 3], 3.0]
        if faults.count < at:
            break
    assert at > 6


def test_checkpoint_lock_is_no_file(tmp_path):
    """A second run does not write to the folder, whatever else is removed from it."""
    with checkpoint.Checkpoint(tmp_path / "run", {"run": "x"}) as kept:
        kept.add(1)
        kept.save({"theta": np.ones(3)})
        for path in (tmp_path / "run").iterdir():
            if path.name not in ("checkpoint", "rounds.jsonl"):
                path.unlink()
        before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
        with pytest.raises(CheckpointError, match="another process keeps a run"):
            checkpoint.Checkpoint(tmp_path / "run", {"run": "x"})
        assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before
        kept.add(2)
        kept.save({"theta": np.ones(3)})
    with checkpoint.Checkpoint(tmp_path / "run", {"run": "x"}) as kept:
        assert kept.lines == [1, 2]


def test_save_follows_no_links(tmp_path):
    """Somebody else may have put them there."""
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("dear")
    with checkpoint.Checkpoint(folder, {"run": "x"}) as kept:
        (folder / "checkpoint").symlink_to(victim)
        kept.add(1)
        kept.save({"theta": np.ones(3)})
    assert not (folder / "checkpoint").is_symlink()
    (folder / "rounds.jsonl").unlink()
    (folder / "rounds.jsonl").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        checkpoint.Checkpoint(folder, {"run": "x"})
    assert victim.read_text() == "dear"


LINES = [b"nonsense", b"{}", b"[1, 2]", b"[{}, null]"]
FIELDS = {"loss": "x", "round": 7, "other": 1, "tracked": "x"}


@pytest.mark.parametrize("forged", [*LINES, b"[" * 100_000, *FIELDS], ids=lambda x: str(x[:9]))
def test_train_refuses_forged_rounds(tmp_path, forged):
    """They raise the same error even if every checksum is right."""
    run(checkpoint=tmp_path / "run", tracker=StabilityTracker())
    path, history = tmp_path / "run" / "checkpoint", tmp_path / "run" / "rounds.jsonl"
    head, state = checkpoint.read(path)
    lines = history.read_bytes().splitlines()
    if forged in FIELDS:
        record, tracked = json.loads(lines[1])
        if forged == "tracked":
            tracked[0] = FIELDS[forged]
        else:
            record[forged] = FIELDS[forged]
        forged = json.dumps([record, tracked]).encode()
    content = b"\n".join([lines[0], forged, *lines[2:]]) + b"\n"
    history.write_bytes(content)
    head["history"] = [len(content), blake2b(content, digest_size=32).hexdigest()]
    checkpoint.write(path, head, state)
    with pytest.raises(CheckpointError):
        run(checkpoint=tmp_path / "run", tracker=StabilityTracker())


@pytest.mark.parametrize(
    "theta",
    [
        lambda theta: theta + 1j,
        lambda theta: theta.astype(np.float32),
        lambda theta: np.append(theta, 1.0),
        None,
    ],
)
@pytest.mark.parametrize("method", ["sgd", "nesterov", "amsgrad", "gcada"])
def test_train_refuses_forged_states(theta, method, tmp_path):
    """Even if every checksum is right; the error names the folder."""
    folder = tmp_path / "run"
    run(method, checkpoint=folder)
    head, state = checkpoint.read(folder / "checkpoint")
    vectors = [name for name, value in state.items() if getattr(value, "shape", ()) == (18,)]
    assert {"theta", "optimizer.theta"} & {*vectors}
    for name in vectors:
        if theta is None:
            del state[name]
        else:
            state[name] = theta(state[name])
    checkpoint.write(folder / "checkpoint", head, state)
    before = contents(folder)
    with pytest.raises(CheckpointError, match=f"{folder} does not hold a state of "):
        run(method, checkpoint=folder)
    assert contents(folder) == before


def test_checkpoint_notes_what_is_kept(tmp_path):
    def interrupt(record):
        if record.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as ended:
        run(checkpoint=tmp_path, callback=interrupt)
    assert ended.value.__notes__ == [
        f"round 4 is kept in {tmp_path}: repeat the run to go on from there"
    ]
    called, whole = [], run()  # and goes on with another engine
    options = {"engine": "local", "survivors": whole, "callback": called.append}
    assert_same(run(checkpoint=tmp_path, **options), whole)
    assert [r.round for r in called] == [5, 6, 7]


def test_checkpoint_is_the_masters(tmp_path):
    class Serving(SimulatedCluster):
        master, opened, closed = True, 0, 0

        @classmethod
        def serve(cls):
            return not cls.master

        def __enter__(self):
            Serving.opened += 1
            return super().__enter__()

        def close(self):
            Serving.closed += 1
            super().close()

    folder = tmp_path / "run"
    Serving.master = False
    assert run(checkpoint=folder, engine=Serving).rounds == []
    assert not folder.exists()
    Serving.master = True
    for _ in range(2):  # the second run is complete, but waits for a cluster and its end
        assert_same(run(checkpoint=folder, engine=Serving), run())
    assert Serving.opened == Serving.closed == 2
    with pytest.raises(CheckpointError, match="another run"):
        run(checkpoint=folder, engine=Serving, seed=5)
    assert Serving.closed == 3


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of a small run."""
    folder = tmp_path_factory.mktemp("kept")
    run(checkpoint=folder, rounds=4)
    return folder


@pytest.fixture
def folder(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "run")
    return tmp_path / "run"


def test_read_cut_at_every_byte(folder):
    path, content = folder / "checkpoint", (folder / "checkpoint").read_bytes()
    for length in range(0, len(content), much(1, 5)):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"no checkpoint of fastgc|is cut off"):
            checkpoint.read(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(CheckpointError, match="checksum"):
        checkpoint.read(path)


def test_read_changed_at_every_byte(folder):
    path, content = folder / "checkpoint", (folder / "checkpoint").read_bytes()
    masks = (0x01, 0x80, 0xFF)
    for at in range(0, len(content), much(1, 5)):
        changed = bytearray(content)
        changed[at] ^= masks[at % 3]
        path.write_bytes(changed)
        with pytest.raises(CheckpointError):
            checkpoint.read(path)


def test_checkpoint_history_cut_or_changed(folder):
    path, content = folder / "rounds.jsonl", (folder / "rounds.jsonl").read_bytes()
    what = checkpoint.read(folder / "checkpoint")[0]["run"]

    def refused(changed, match):
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match=match):
            checkpoint.Checkpoint(folder, what)
        assert path.read_bytes() == changed

    for length in range(0, len(content), much(1, 17)):
        refused(content[:length], "rounds.jsonl is cut off")
    for at in range(0, len(content), much(1, 17)):
        changed = bytearray(content)
        changed[at] ^= 0x10
        refused(changed, "rounds.jsonl is damaged")
    path.unlink()
    with pytest.raises(CheckpointError, match=r"cut off: .* but it has 0"):
        run(checkpoint=folder)


@pytest.mark.parametrize("beyond", [b"x" * 10_000, b'[{"round": 5, "time"', b"[1, null]\n[2, nu"])
def test_checkpoint_history_beyond_is_cut_off(beyond, tmp_path):
    folder = tmp_path / "run"  # not `kept`, which other kernels computed
    run(checkpoint=folder, rounds=4)
    with open(folder / "rounds.jsonl", "ab") as file:
        file.write(beyond)
    (folder / ".fastgc-0.part").write_bytes(b"torn")
    assert_same(run(checkpoint=folder), run())
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)[0]["round"] for line in lines] == list(range(1, ROUNDS + 1))


def seal(head, arrays=b"", version=1):
    content = b"fastgc checkpoint\n" + version.to_bytes(4, "little")
    content += len(head).to_bytes(8, "little") + head + arrays
    return content + blake2b(content, digest_size=32).digest()


def test_read_files_of_others(folder):
    path = folder / "checkpoint"
    head, state = checkpoint.read(path)
    state = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in state.items()}
    text = json.dumps(head | {"values": state, "arrays": []}).encode()
    path.write_bytes(seal(text))
    assert checkpoint.read(path) == (head, state)
    for content, match in [
        (b"", "no checkpoint of fastgc"),
        (b"PK\x03\x04 something else entirely, such as an archive of arrays", "no checkpoint of"),
        (seal(text, version=2), "of format 2, but this fastgc knows 1"),
        (seal(text, b"more"), "does not hold what a checkpoint does"),
        (seal(b"[]"), "does not hold"),
        (seal(b"{"), "does not hold"),
        (seal(b'{"values": {}, "arrays": [["a", "O", [1]]]}', bytes(8)), "does not hold"),
        (seal(b'{"values": {}, "arrays": [["a", "<f8", [2]]]}', bytes(8)), "does not hold"),
        (seal(b'{"values": {}, "arrays": []}'), "no checkpoint of a run of training"),
    ]:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=match):
            run(checkpoint=folder)
        assert path.read_bytes() == content
    plain = {"run": {}, "round": 4, "history": [9, "x"]}
    for wrong in ({"run": []}, {"round": 4.0}, {"history": [1]}, {"history": ["9", "x"]}):
        checkpoint.write(path, plain | wrong, state)
        with pytest.raises(CheckpointError, match="no checkpoint of a run of training"):
            checkpoint.Checkpoint(folder, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["run", "round", "seed", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
LAYOUT = st.lists(
    st.tuples(
        st.text(max_size=3),
        st.sampled_from(["<f8", "O", "V0", "f3", "(2,", "i4,i4", "|S0", "", "<M8[s]"]) | st.text(),
        st.lists(st.integers(-2, 9) | st.just(10**30), max_size=3),
    ),
    max_size=2,
)


@settings(deadline=None, max_examples=much(300, 20))
@given(
    head=st.fixed_dictionaries(
        {},
        optional={
            "run": JSON,
            "round": st.integers(-1, 5) | JSON,
            "history": st.lists(st.integers(-9, 9) | JSON, min_size=2, max_size=2) | JSON,
            "values": JSON,
            "arrays": LAYOUT | JSON,
        },
    ),
    arrays=st.binary(max_size=40),
)
def test_checkpoint_of_any_content(kept, head, arrays):
    """Even if its checksum is right, only a CheckpointError is raised."""
    path = kept / "fuzz" / "checkpoint"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(seal(json.dumps(head).encode(), arrays))
    with pytest.raises(CheckpointError):
        checkpoint.Checkpoint(path.parent, {"code": "x"})


class Fixed:
    """A delay model without a representation."""

    def sample(self, round, workers, seed):
        return np.zeros(workers)


class Other(Fixed):
    pass


MATRIX = fastgc.BinaryCode(6, stragglers=2).matrix()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ({}, {"code": fastgc.ReedSolomon(6, stragglers=1)}, r"code: .*stragglers=2.* -> .*=1"),
        # The same model in words.
        (
            {"code": fastgc.LinearCode(MATRIX)},
            {"code": fastgc.LinearCode(MATRIX * 2)},
            "another run. what the code computes: [0-9a-f]{16} -> [0-9a-f]{16}. Make",
        ),
        ({}, {"model": models.SoftmaxRegression(5, 3, l2=0.1)}, r"model: .*l2=0, .* -> .*l2=0.1"),
        ({}, {"optimizer": SGD(0.3)}, r"optimizer: Nesterov\(lr=0.4, .* -> SGD\(lr=0.3"),
        ({}, {"data": toy(seed=8)}, r"data: .*digest \w+ -> .*digest \w+\. Make"),
        ({}, {"data": toy(np.float32)}, "float64 features, .* -> .* float32 features"),
        ({}, {"message_dtype": "float32"}, "messages: .*float64.* -> .*float32"),
        ({}, {"delays": Pareto(0.001, 1.2)}, r"delays: Pareto\(.*1\.1.* -> .*1\.2"),
        ({"delays": Fixed()}, {"delays": Other()}, r"delays: .*Fixed.* -> .*Other"),
        ({}, {"tracker": StabilityTracker()}, "tracked: False -> True"),
        ({}, {"seed": 5, "batch": None}, "seed: 4 -> 5; batch: 5 -> None"),
    ],
)
def test_describe_another_run(old, new, says, tmp_path):
    run(checkpoint=tmp_path, **old)
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match=says):
        run(checkpoint=tmp_path, **old | new)
    assert contents(tmp_path) == before
    old |= {"delays": Fixed()} if "delays" in old else {}  # another object of the same kind
    assert len(run(checkpoint=tmp_path, **old).rounds) == ROUNDS


def test_describe_shows_long_texts_from_before_they_differ(tmp_path):
    """From 20 letters before the first difference, up to 60 after it; the first 60 are shown."""

    def told(old, new):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        with checkpoint.Checkpoint(folder, {"run": old}) as kept:
            kept.save({})
        with pytest.raises(CheckpointError) as refused:
            checkpoint.Checkpoint(folder, {"run": new})
        return str(refused.value).partition("run: ")[2].partition(". Make")[0]

    assert told("a" * 60 + "b", "a" * 60 + "c") == f"{'a' * 60}b -> {'a' * 60}c"
    assert told("a" * 61 + "b", "a" * 61) == f"…{'a' * 20}b -> …{'a' * 20}"
    assert told("x" + "b" * 60, "y" + "b" * 59) == f"x{'b' * 59}… -> y{'b' * 59}"


def test_digest():
    array = np.arange(6.0)
    found = checkpoint.digest([array, array.astype("f4")])
    assert found == checkpoint.digest([np.repeat(array, 2)[::2], array.astype("f4")])
    others = ([array], [array.astype("f4"), array], [array.reshape(2, 3), array.astype("f4")])
    assert len({found, *map(checkpoint.digest, others)}) == 4
    assert checkpoint.digest([np.zeros(8)]) != checkpoint.digest([np.zeros(4, complex)])
    assert len(found) == 16


def test_describe_what_may_differ(folder):
    """For example, the last digit of what was computed from the data, but no whole entry."""
    what = checkpoint.read(folder / "checkpoint")[0]["run"]
    less = {key: value for key, value in what.items() if key != "seed"}
    for other, says in ((less, "seed: "), (what | {"nap": 3}, "nap: ")):
        with pytest.raises(CheckpointError, match=f"of another run. {says}"):
            checkpoint.Checkpoint(folder, other)
    waits = {"patience": 3.0, "timeout": 1e9}
    run(checkpoint=folder, name="other", optimizer=Nesterov(0.4 + 1e-16), **waits)


def test_checkpoint_refused(tmp_path):
    class Plain:
        """An optimizer without state methods."""

        def reset(self, theta0):
            self.theta = self.point = theta0.copy()

        def step(self, gradient):
            return 0.0

    folder = tmp_path / "run"
    a_file, a_link = tmp_path / "file", tmp_path / "link"
    a_file.touch()
    a_link.symlink_to("nowhere")
    for options, error, match in [
        ({"optimizer": Plain()}, TypeError, "checkpoint needs an optimizer with methods state"),
        ({"tracker": SimpleNamespace(record=1)}, TypeError, "can only save a StabilityTracker"),
        ({"every": 0}, ValueError, "every .*not 0"),
        ({"checkpoint": tmp_path / "no" / "run"}, ValueError, "no folder .*no to make run in"),
        ({"checkpoint": a_file}, ValueError, "file is a file"),
        ({"checkpoint": a_link}, ValueError, "link is a link to nothing"),
        ({"checkpoint": 3}, TypeError, "path|PathLike"),
    ]:
        with pytest.raises(error, match=match):
            run(**{"checkpoint": folder} | options)
        assert not folder.exists()
    with pytest.raises(TypeError, match=r"Plain.* has no methods state and restore"):
        run("gcada", optimizer=GCADA(2, Plain()), checkpoint=folder)
    assert not (folder / "checkpoint").exists()


def test_write_refuses_other_states(tmp_path):
    path = tmp_path / "checkpoint"
    for value, match in [
        (np.array([None]), "x of the state must be numbers, not of dtype object"),
        (np.array(["a"]), "must be numbers"),
        ({1, 2}, "holds arrays, numbers, lists and text, not {1, 2}"),
    ]:
        with pytest.raises(TypeError, match=match):
            checkpoint.write(path, {}, {"x": value})
    assert list(tmp_path.iterdir()) == []


@settings(deadline=None)
@given(
    dtype=st.sampled_from(["?", "i1", "<i8", ">f4", "f8", "c16"]),
    shape=st.lists(st.integers(0, 4), max_size=3),
    values=st.lists(st.floats() | st.integers() | st.text(max_size=4)),
)
def test_read_what_was_written(kept, dtype, shape, values):
    path = kept / "written"
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype).T
    state = {"a": array, "b": values, "c": np.float32(0.1), "d": np.array(2.5)}
    checkpoint.write(path, {"e": 1}, state)
    head, found = checkpoint.read(path)
    assert head == {"e": 1}
    assert (found["a"].dtype, found["a"].shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found["a"], array)
    assert found["a"].flags.writeable
    assert repr(found["b"]) == repr(values)
    assert (found["c"], found["d"]) == (np.float32(0.1), 2.5)


NETWORK = Network()
train_network = partial(run, data=toy(features=4), model=NETWORK)


@pytest.mark.parametrize("method", [lambda: SGD(0.4, 0.5), lambda: Nesterov(0.3), AMSGrad])
def test_train_in_parts_with_a_rate_that_falls(method, tmp_path):
    """A checkpoint keeps the learning rate that a callback set."""
    kept = {"checkpoint": tmp_path / "run", "every": 2}

    class Stopped(Exception):
        pass

    def train(stop=None, **given):
        optimizer = method()

        def fall(record):
            optimizer.lr *= 0.9
            if record.round == stop:
                raise Stopped

        given = {"rounds": 10, "theta0": start} | given
        return train_network(optimizer=optimizer, callback=fall, **given)

    start = np.random.default_rng(1).normal(size=NETWORK.size)
    whole = train()
    with pytest.raises(Stopped):
        train(stop=7, evaluate_every=5, **kept)  # the checkpoint keeps 6 rounds
    short = train(rounds=6, **kept)
    assert len(short.rounds) == 6
    assert short.rounds[-1].evaluated  # it was not, while more rounds were to follow
    assert short.rounds[-1].loss == whole.rounds[5].loss
    assert not short.rounds[3].evaluated
    again = train(**kept)
    assert again.theta.tobytes() == whole.theta.tobytes()
    assert [r.loss for r in again.rounds[6:]] == [r.loss for r in whole.rounds[6:]]


def test_describe_start(tmp_path):
    given = {"rounds": 4, "optimizer": SGD(0.3), "checkpoint": tmp_path / "run"}
    start = NETWORK.initial(3)
    train_network(theta0=start, **given)
    for other, says in (({"theta0": start + 1}, "digest .* -> digest"), ({}, "digest .* -> None")):
        with pytest.raises(fastgc.CheckpointError, match=f"start: {says}"):
            train_network(**given | other)
    longer = given | {"theta0": start, "rounds": 6}
    history = train_network(**longer)
    assert len(history.rounds) == 6
    np.testing.assert_array_equal(history.theta, train_network(**longer).theta)


if __name__ == "__main__":
    method, dtype, folder = sys.argv[1:]
    sweep(method, np.dtype(dtype), Path(folder))


def test_describe_numbers_of_numpy_are_numbers(tmp_path):
    run(checkpoint=tmp_path / "run", delays=fastgc.delays.Exponential(0.01))
    same = fastgc.delays.Exponential(np.float64(0.01))
    run(checkpoint=tmp_path / "run", delays=same)
    with pytest.raises(CheckpointError, match="of another run"):
        run(checkpoint=tmp_path / "run", delays=fastgc.delays.Exponential(np.float32(0.02)))
