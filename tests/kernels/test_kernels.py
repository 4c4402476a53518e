"""Each kernel of the table computes what its oracle does, however it is called."""

import copy

import numpy as np
import oracles
import pytest
from kernel_table import KERNELS, SPLIT, named

from fastgc import kernels
from fastgc.kernels.c import calls

pytestmark = pytest.mark.every_backend

GUARD = 64  # numbers before and after an array that a kernel writes


def guarded(kernel, given):
    """Copy arguments; those that the kernel writes lie between guards. Return both."""
    given, guards = copy.deepcopy(given), []
    for name in kernel.writes:
        if given[name] is not None:
            size, shape = given[name].size, given[name].shape
            whole = np.full(size + 2 * GUARD, 7, given[name].dtype)
            whole[GUARD:-GUARD] = given[name].ravel()
            guards += [whole[:GUARD], whole[-GUARD:]]
            given[name] = whole[GUARD:-GUARD].reshape(shape)
    return given, guards


def bits(value):
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


@pytest.mark.parametrize(**named(KERNELS))
def test_each_kernel(kernel, case, dtype, at_each_level):
    """Its results are the truth's, and it writes nothing else."""
    rng = np.random.default_rng(1)
    for size, count in kernel.shapes:
        before = kernel.make(rng, size, count, dtype, **case)
        truth = kernel.true(before)
        for _ in at_each_level():
            given, guards = guarded(kernel, before)
            kernel.check(before, kernel.run(given), truth)
            assert all((guard == 7).all() for guard in guards)
            for name in before.keys() - {*kernel.writes, "plan"}:
                if isinstance(before[name], list):
                    assert [*map(bits, given[name])] == [*map(bits, before[name])]
                else:
                    assert bits(given[name]) == bits(before[name]), name


@pytest.mark.parametrize(**named(SPLIT))
def test_threads_change_no_bit(kernel, case, dtype, split_over):
    rng = np.random.default_rng(3)
    for size in (1, 1024, 1025, 5000, 70001):
        before = kernel.make(rng, size, 6, dtype, **case)
        split_over(1)
        alone = kernel.run(kernel.fresh(before))
        for count in (2, 3):
            split_over(count)
            found = kernel.run(kernel.fresh(before))
            for name, value in alone.items():
                np.testing.assert_array_equal(found[name], value, name)


# Kernels whose tests are files of their own: plans, and sums over a round's messages.
APART = {
    "bind_add": "test_combine",
    "bind_apart": "coding/test_plan",
    "bind_arrivals": "test_arrivals",
    "bind_cells": "test_cover",
    "bind_edges": "test_cover",
    "bind_polar": "test_fourier",
    "bind_square_sum": "test_combine",
    "bind_survivor_mask": "test_cover",
    "bind_tiling": "test_cover",
    "completion": "planning/simulation/test_rounds",
    "decoding_vectors": "codes/test_reed_solomon",
    "draw": "test_rounds",
    "minimum_norm": "test_near_exact",
    "near_exact": "test_near_exact",
}


def test_every_kernel_has_an_entry():
    functions = {name for name in kernels.__all__ if callable(getattr(kernels, name))}
    functions = {name for name in functions if not isinstance(getattr(kernels, name), type)}
    called = {*calls.__all__, *functions} - {"backend"}
    assert {kernel.name for kernel in KERNELS} | APART.keys() >= called
    assert oracles.NAMED.keys() >= {kernel.name for kernel in KERNELS if kernel.truth is None}


def test_oracles_stand_for_kernels():
    with oracles.instead():
        assert kernels.unchecked.sgd is oracles.optimize.sgd
    assert kernels.unchecked.sgd is not oracles.optimize.sgd
