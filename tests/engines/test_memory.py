"""Objects for workers: by name, by value or in shared memory; otherwise an error says why not."""

import importlib.machinery
import os
import pickle
import sys
import textwrap
import threading
import types
from pathlib import Path

import numpy as np
import programs
import pytest

from fastgc import Uncoded
from fastgc.engines import LocalCluster
from fastgc.engines.interface import Task
from fastgc.engines.memory import Memory, main_is_importable, packed, packed_for_ranks


def loaded(memory):
    """Return what another process would get."""
    return Memory(memory.nbytes, os.dup(memory.fd), "copy").load()


@pytest.mark.parametrize(
    "dtype", ["f4", "f8", "c16", "i1", "?", "M8[s]", [("a", "f4"), ("b", "i8")]]
)
@pytest.mark.parametrize("size", [0, 1, 511, 4095, 4096, 4097, 100_003])
def test_memory_of_arrays(dtype, size):
    rng = np.random.default_rng(size)
    array = rng.integers(0, 2, size * np.dtype(dtype).itemsize, np.uint8).view(dtype)
    others = [array[::2], array.reshape(1, -1).T, np.asfortranarray(array.reshape(1, size))]
    for value in (array, others, {"a": (array, array[: size // 3])}):
        with Memory.of(value) as memory:
            found = loaded(memory)
            assert repr(type(found)) == repr(type(value))
        for mine, theirs in zip(flat(found), flat(value), strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            assert mine.tobytes() == theirs.tobytes()
            assert mine.flags.writeable
            assert mine.flags.aligned


def flat(value):
    if isinstance(value, np.ndarray):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    return [array for each in values for array in flat(each)]


def test_memory_is_shared_until_arrays_are_written():
    array = np.arange(100_000)
    with Memory.of([array, "text", array]) as memory:
        first, text, same = loaded(memory)
        second = loaded(memory)[0]
    assert first is same
    assert text == "text"
    assert in_our_memory(first)
    assert first.ctypes.data % 64 == 0
    first[:] = 0
    assert np.array_equal(second, array)
    assert array[-1] == 99_999


def in_our_memory(array):
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(each, 16) for each in line.split()[0].split("-"))
        if begin <= address < end:
            return "memfd:fastgc" in line
    raise AssertionError("it lies nowhere")


def test_memory_of_arrays_that_are_read_only():
    array = np.arange(10_000.0)
    array.flags.writeable = False
    with Memory.of(array) as memory:
        assert not loaded(memory).flags.writeable


def test_memory_of_what_cannot_be_pickled_leaves_nothing_open():
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises((TypeError, AttributeError)):
        Memory.of([np.zeros(10_000), threading.Lock()])
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_of_objects_without_arrays():
    for value in (None, {"a": [1, 2.5, b"x" * 10_000]}, bytearray(9_999)):
        with Memory.of(value) as memory:
            assert loaded(memory) == value


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory is not sealed here")
def test_memory_is_sealed():
    with Memory(8192) as shared, Memory(8192, alone=True) as own:
        for memory in (shared, own):
            for size in (0, 4096, 1 << 20):
                with pytest.raises(PermissionError):
                    os.ftruncate(memory.fd, size)
        Memory(8192, os.dup(shared.fd)).map[5] = 7
        assert shared.map[5] == 7
        with pytest.raises(PermissionError):
            Memory(8192, own.fd)
        with pytest.raises(PermissionError):
            os.pwrite(own.fd, b"x", 0)
        own.map[5] = 8
        assert Memory(8192, os.dup(own.fd), "read").map[5] == 8


# ------------------------------------------------------------------------ by name, or by value


@pytest.fixture
def program(monkeypatch):
    """``program(source)``: be the program of this source, of a file or another origin."""

    def run(source, file=None, name=None):
        main = types.ModuleType("__main__")
        main.__spec__ = name and importlib.machinery.ModuleSpec(name, None)
        if file is not None:
            main.__file__ = str(file)
        monkeypatch.setitem(sys.modules, "__main__", main)
        exec(textwrap.dedent(source), vars(main))
        return main

    return run


def step(gradient):
    """Return the sum of two workers that compute this gradient."""
    out = np.zeros(1)
    with LocalCluster(Uncoded(2), [1.0, 2.0], gradient, 1) as cluster:
        cluster.step(np.ones(1), out)
    return out[0]


def test_packed_refuses_what_cannot_be_pickled():
    with pytest.raises(TypeError, match=r"what pickle cannot store \(.*lock.*: they find"):
        LocalCluster(Uncoded(1), [threading.Lock()], np.multiply, 1)


def test_packed_takes_functions_inside_of_functions_by_value(monkeypatch):
    pytest.importorskip("cloudpickle")
    factor, out = np.arange(3000.0), np.empty(3000)

    def inside(theta, shard, out):
        out[:] = factor * shard

    shards = [np.full(3000, 2.0), np.ones(3000)]  # pickled out of band, before and after
    with LocalCluster(Uncoded(2), shards, inside, 3000) as cluster:
        cluster.step(np.zeros(3000), out)
    np.testing.assert_array_equal(out, 3 * factor)
    apart = [memoryview(b"before")]
    pickle.loads(packed((factor, inside), apart), buffers=apart[1:])
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    kept = list(apart)
    with pytest.raises(TypeError, match="cloudpickle is installed"):
        packed((factor, inside), apart)
    assert apart == kept


@pytest.mark.parametrize(("size", "parts"), [(511, 0), (512, 1), (513, 1)])
def test_packed_keeps_arrays_of_a_page_apart(size, parts):
    apart = []
    head = packed([np.arange(float(size))], apart)
    assert len(apart) == parts
    assert pickle.loads(head, buffers=apart)[0][-1] == size - 1


def test_packed_names_what_stands_under_the_guard(program, tmp_path):
    file = tmp_path / "program.py"
    file.write_text("def above(theta, shard, out):\n    out[:] = shard\n")
    main = program(
        """
        def above(theta, shard, out):
            out[:] = shard

        def below(theta, shard, out):  # in its file it stands under the guard
            out[:] = shard
        """,
        file,
    )
    assert step(main.above) == 3.0
    with pytest.raises(Exception, match=r"attribute 'below'(?s:.*)define it above that$"):
        step(main.below)


def test_packed_leaves_other_missing_attributes_as_they_are(program, tmp_path):
    source = """
    class Broken:
        def __setstate__(self, state):
            self.nowhere

        def __call__(self, theta, shard, out):
            out[:] = shard
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(source))
    broken = program(source, file).Broken()
    broken.here = 1
    with pytest.raises(Exception, match="in __setstate__") as caught:
        step(broken)
    assert "cannot import" not in str(caught.value)


TWICE = """
class Twice:
    def __init__(self, factor):
        self.factor = factor

def own(theta, shard, out):
    out[:] = TWICE.factor * shard

TWICE = Twice(2.0)
"""


@pytest.mark.parametrize(
    ("file", "name", "prompt"),
    [
        (None, None, False),
        (None, None, True),
        ("deleted.py", None, False),
        ("folder/__main__.py", "__main__", False),
        ("folder/__main__.py", "folder.__main__", False),
    ],
    ids=["a pipe", "a session", "a deleted script", "a folder", "a package"],
)
def test_packed_takes_by_value_what_workers_cannot_import(
    program, tmp_path, monkeypatch, file, name, prompt
):
    pytest.importorskip("cloudpickle")
    if prompt:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    main = program(TWICE, file and tmp_path / file, name)
    assert step(main.own) == 6.0
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(Exception, match="cannot import what a program without a file, a session"):
        step(main.own)


def test_packed_by_a_session_of_its_own():
    """Python's prompt reads the program."""
    pytest.importorskip("cloudpickle")
    source = f"""{TWICE}
import numpy as np
from fastgc import Uncoded
from fastgc.engines import LocalCluster
for gradient in own, lambda theta, shard, out: out.fill(3 * shard):
    with LocalCluster(Uncoded(2), [1.0, 2.0], gradient, 1) as cluster:
        cluster.step(np.zeros(1), out := np.zeros(1))
    print(out)
"""
    done = programs.run(programs.python("-i", "-q"), input=f"exec({source!r})\n")
    assert done.stdout.split() == ["[6.]", "[9.]"], done.stderr


def test_packed_by_a_program_whose_module_has_no_spec(program):
    """IPython's second %run makes such a module."""
    del program("").__spec__
    assert step(np.multiply) == 3.0


@pytest.mark.parametrize(
    ("name", "file", "importable"),
    [
        (None, __file__, True),
        (None, "nowhere.py", False),
        (None, "<stdin>", False),
        (None, None, False),
        ("package.module", None, True),
        ("package.__main__", __file__, False),
        ("__main__", __file__, False),
    ],
)
def test_main_is_importable(program, name, file, importable):
    program("", file, name)
    assert main_is_importable() == importable


def test_packed_for_ranks_of_a_job():
    float64 = np.dtype(np.float64)
    shards = [1.0, 2.0]
    task = Task(Uncoded(2), shards, np.multiply, None, 1, float64, 1, float64, False, parameters=1)
    common, data = packed_for_ranks(task, 3, "mpiexec -n", False)
    assert pickle.loads(common) == task.without_data()
    assert list(map(pickle.loads, data)) == [[[(0, 1.0)]], [[(1, 2.0)]]]
    for ranks in (1, 2, 4):
        with pytest.raises(ValueError, match=rf"\(mpiexec -n 3\), not {ranks}"):
            packed_for_ranks(task, ranks, "mpiexec -n", False)
    with pytest.raises(RuntimeError, match="is open"):
        packed_for_ranks(task, 3, "mpiexec -n", True)
