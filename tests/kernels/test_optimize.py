"""Steps of optimizers: what is not finite, vectors that are one, distances of any size."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import named
from oracles.optimize import STEPS, exact_square_distance
from oracles.table import UNIT

from fastgc import kernels

pytestmark = pytest.mark.every_backend
EACH_STEP = pytest.mark.parametrize(**named(STEPS))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@EACH_STEP
def test_steps_tell_what_is_not_finite(kernel, case, dtype, bad):
    """The bad value is reported, and spreads to no other element."""
    rng = np.random.default_rng(12)
    for size in (1, 2, 17, 3073):
        arguments = kernel.make(rng, size, 1, dtype, **case)
        good = kernel.run(kernel.fresh(arguments))
        assert np.isfinite(good["returned"])
        incoming = "gradient" if "gradient" in arguments else "new"
        for at in {0, 1, size // 2, size - 1} & set(range(size)):
            changed = copy.deepcopy(arguments)
            changed[incoming][at] = bad
            after = kernel.run(changed)
            assert not np.isfinite(after["returned"])
            for name in after.keys() - {"returned"}:
                assert not np.isfinite(after[name][at])
                others = np.arange(size) != at
                np.testing.assert_array_equal(after[name][others], good[name][others])
            if "v" in after and np.isnan(bad):  # the maximum keeps a NaN
                changed[incoming][at] = 1
                again = kernel.run(changed)
                assert np.isnan(again["returned"])
                assert np.isnan(again["v"][at])


@pytest.mark.parametrize(**named(STEPS[:-1]))
def test_steps_where_the_gradient_is_what_they_move(kernel, case, dtype):
    arguments = kernel.make(np.random.default_rng(13), 1025, 1, dtype, **case)
    for name in kernel.writes:
        if arguments[name] is None:
            continue
        apart = kernel.run(copy.deepcopy(arguments | {"gradient": arguments[name].copy()}))
        given = copy.deepcopy(arguments)
        together = kernel.run(given | {"gradient": given[name]})
        assert together["returned"] == pytest.approx(apart["returned"], rel=1e-5)
        for other in apart.keys() - {"returned"}:
            np.testing.assert_allclose(together[other], apart[other], atol=20 * UNIT[dtype])


@pytest.mark.parametrize(
    "sizes", [(1e-30, 1), (1e-23, 1e-20), (1e-45, 1e-18), (1e18, 3e19), (1e-45, 1e37)]
)
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.999])
@pytest.mark.parametrize(
    ("kernel", "case"), [(each, case) for each in STEPS for case in each.cases]
)
def test_steps_of_distances_of_any_size(kernel, case, sizes, zeros, at_each_level):
    """Squares too large or too small for float32, in all, some or none of a block."""
    rng = np.random.default_rng(14)
    for size in (3, 64, 129, 1000):
        arguments = kernel.make(rng, size, 1, np.float32, **case)
        for name, vector in arguments.items():
            if not isinstance(vector, np.ndarray):
                continue
            vector[:] = np.exp(rng.uniform(*np.log(sizes), size)) * rng.choice([-1, 1], size)
            vector[rng.random(size) < zeros] = 0
            if name == "v":
                np.abs(vector, out=vector)
        for _ in at_each_level():
            after = kernel.run(kernel.fresh(arguments))
            exact = exact_square_distance(after[kernel.moves], arguments[kernel.moves])
            if np.isfinite(exact):
                assert abs(after["returned"] - exact) <= 2.0**-20 * exact
            else:
                assert not np.isfinite(after["returned"])


@given(data=st.data(), size=st.integers(1, 70), dtype=st.sampled_from([np.float32, np.float64]))
@settings(deadline=None, max_examples=30)
def test_replace_keeps_a_running_sum(data, size, dtype):
    """Sums of whole numbers are exact."""
    rng = np.random.default_rng(size)
    vectors = rng.integers(-1000, 1000, (4, size)).astype(dtype)
    total = vectors.sum(axis=0)
    for which in data.draw(st.lists(st.integers(0, 3), max_size=10)):
        new = rng.integers(-1000, 1000, size).astype(dtype)
        exact = exact_square_distance(new, vectors[which])
        assert kernels.replace(vectors[which], new, total) == exact
        np.testing.assert_array_equal(vectors[which], new)
        np.testing.assert_array_equal(total, vectors.sum(axis=0))
