"""Objects in shared memory: their arrays lie there, and other owners' memory is not used."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from fastgc.engines.memory import Memory


def loaded(memory):
    """Return what another process would get."""
    return Memory(memory.nbytes, os.dup(memory.fd), "copy").load()


@pytest.mark.parametrize(
    "dtype", ["f4", "f8", "c16", "i1", "?", "M8[s]", [("a", "f4"), ("b", "i8")]]
)
@pytest.mark.parametrize("size", [0, 1, 511, 4095, 4096, 4097, 100_003])
def test_arrays_are_as_they_were(dtype, size):
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


def test_they_lie_in_the_memory_until_they_are_written():
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


def test_what_must_not_be_written_cannot_be():
    array = np.arange(10_000.0)
    array.flags.writeable = False
    with Memory.of(array) as memory:
        assert not loaded(memory).flags.writeable


def test_what_cannot_be_pickled_leaves_nothing_open():
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises((TypeError, AttributeError)):
        Memory.of([np.zeros(10_000), threading.Lock()])
    assert len(os.listdir("/proc/self/fd")) == before


def test_objects_without_arrays():
    for value in (None, {"a": [1, 2.5, b"x" * 10_000]}, bytearray(9_999)):
        with Memory.of(value) as memory:
            assert loaded(memory) == value


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory is not sealed here")
def test_sealed_memory():
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
