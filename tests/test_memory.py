"""Memory stays flat over 100 000 rounds.

Tests count Python's objects; memory of compiled code shows in the size of the process.
"""

import contextlib
import ctypes
import gc
import itertools
import os
import sys

import numpy as np
import pytest
from strength import much

import fastgc
from fastgc import interpolation, optimizers, vandermonde

ROUNDS = 100_000

# A leak of sixteen bytes a round, malloc's least, adds up to 1.6 MB. Without --long, in a fifth of
# the rounds, a leak of sixty bytes shows.
RESIDENT_BYTES = 1 << 20
BLOCKS = 200  # blocks of memory of Python's objects that may be added

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="memory is read from /proc, of Linux"
)


def _resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _give_back():
    """Have glibc return memory that earlier tests freed: a leak could hide in it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def assert_flat(step, rounds):
    """Require that neither objects nor bytes grow after the first rounds, which fill caches.

    A leak grows in each of three attempts. An allocator that takes more from the system once, as
    what earlier tests freed lies in pieces, does not.
    """
    _give_back()
    for _ in range(much(1000, 200)):
        step()
    for _ in range(3):
        gc.collect()
        blocks, resident = sys.getallocatedblocks(), _resident()
        for _ in range(rounds):
            step()
        gc.collect()
        blocks, resident = sys.getallocatedblocks() - blocks, _resident() - resident
        if blocks < BLOCKS and resident < RESIDENT_BYTES:
            return
    assert blocks < BLOCKS, f"{blocks} more blocks after {rounds} rounds"
    assert resident < RESIDENT_BYTES, f"{resident} more bytes after {rounds} rounds"


def test_training():
    """In each round two workers encode, and the master decodes and takes a step."""
    code = fastgc.ReedSolomon(3, stragglers=1)
    encoders = [(code.encoder(i, 6), code.partitions(i).tolist()) for i in range(2)]
    rnd, gradient, g = code.round(6), np.empty(6), np.ones(6)
    optimizer = optimizers.SGD(1e-9, momentum=0.5)
    optimizer.reset(np.zeros(6))

    def step():
        rnd.reset()
        for worker, (encoder, parts) in enumerate(encoders):
            encoder.reset()
            for j in parts:
                encoder.add(j, g)
            rnd.receive(worker, encoder.message())
        optimizer.step(rnd.gradient(out=gradient))

    assert_flat(step, much(ROUNDS, ROUNDS // 5))


def test_plans_of_hot_loops():
    code = fastgc.BinaryCode(300, stragglers=1)  # more messages than C keeps on its stack
    messages, heard = np.ones((300, 6)), np.arange(299)
    bound, decoder = code.bind(messages, out=np.empty(6)), code.decoder()

    def step():
        bound(heard)
        decoder(heard)

    assert_flat(step, much(ROUNDS, ROUNDS // 5))


DECODED = np.array([2, 0])
NODES = np.cos(np.pi * np.arange(200) / 200)  # a leak of work space shows in few rounds
CODE = fastgc.ReedSolomon(3, stragglers=1)
ADAPTIVE = optimizers.GCADA(2, optimizers.AMSGrad(1e-9), max_age=3)


def _refused():
    try:
        CODE.decode([0], np.ones((1, 6)))
    except fastgc.NotDecodableError:
        return
    raise AssertionError


def _adapted():
    for group in ADAPTIVE.selected:
        ADAPTIVE.receive(group, np.ones(6))
    ADAPTIVE.step()


@pytest.mark.parametrize(
    "step",
    [
        lambda: CODE.decode(DECODED, np.ones((2, 6))),
        lambda: CODE.encode(1, np.ones((2, 6))),
        _refused,
        _adapted,
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in (
                lambda: CODE.best_vector(DECODED[:1]),
                lambda: CODE.decoding_vector(DECODED, method="vandermonde"),
            )
        ),
        lambda: vandermonde.solve(NODES, NODES),
        lambda: interpolation.functional(NODES, NODES / 3),
    ],
    ids=["decode", "encode", "refused", "adapted", "best", "vandermonde", "solve", "functional"],
)
def test_all_else(step):
    ADAPTIVE.reset(np.zeros(6))
    assert_flat(step, much(ROUNDS // 20, ROUNDS // 200))


@pytest.mark.parametrize("leak", [object, lambda: np.empty(2)], ids=["an object", "an array"])
def test_leaks_of_objects_are_seen(leak):
    """Even one object in ten rounds is seen."""
    kept = []
    with pytest.raises(AssertionError, match="more blocks"):
        assert_flat(lambda: kept.append(leak()), ROUNDS // 100)


def test_leaks_of_compiled_code_are_seen():
    """They are no objects. Some memory that earlier tests have freed may be used first."""
    libc, size, rounds = ctypes.CDLL(None), 100_000, 2000
    libc.malloc.restype = ctypes.c_void_p
    libc.memset.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    leaked = (ctypes.c_void_p * (5 * rounds))()
    at = itertools.count()

    def leak():
        leaked[next(at)] = place = libc.malloc(ctypes.c_size_t(size))
        libc.memset(place, 1, size)

    with pytest.raises(AssertionError, match="more bytes"):
        assert_flat(leak, rounds)
    for place in leaked:
        libc.free(ctypes.c_void_p(place))
