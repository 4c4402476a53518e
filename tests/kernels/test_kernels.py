"""Kernels: each has an entry in the table, and threads change no result."""

import numpy as np
import oracles
import pytest
from oracles import KERNELS, SPLIT, named

from fastgc import kernels
from fastgc.kernels.c import calls

pytestmark = pytest.mark.every_backend


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
    "bind_add": "c/test_calls",
    "bind_apart": "coding/test_plan",
    "bind_arrivals": "test_arrivals",
    "bind_decode": "coding/test_plan",
    "bind_deviation": "coding/test_precision",
    "bind_polar": "test_fourier",
    "bind_survivor_mask": "test_cover",
    "bind_taken": "coding/test_plan",
    "bind_tally": "test_arrivals",
    "bind_trust": "coding/test_trust",
    "completion": "planning/simulation/test_rounds",
    "struct_of": "coding/test_verify",
    "take_masks": "coding/test_code",
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
