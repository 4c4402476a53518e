"""Messages that are sums of two blocks: their decoding vectors agree with least squares."""

import itertools
from functools import partial

import kernel_table
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_table import WRONG_SURVIVORS

from fastgc import kernels
from fastgc.kernels import Status

filled = partial(kernel_table.filled, kernels.unchecked.bind_edges)


def matrix(plan, survivors):
    """Return the matrix of messages, with a column for each partition."""
    held = np.zeros((len(survivors), plan.weight.size))
    for row, i in zip(held, survivors, strict=True):
        row[plan.ends[i]] = 1
    return np.repeat(held, plan.weight.astype(int), axis=1)


def check(plan, survivors, longer=1.01):
    """Require that the kernel's vector has the least residual and is nearly the shortest."""
    B = matrix(plan, survivors)
    best = np.linalg.lstsq(B.T, np.ones(B.shape[1]))[0] if len(survivors) else np.zeros(0)
    least = np.linalg.norm(best @ B - 1)
    status, vector = filled(plan, survivors)
    if len(survivors) < plan.need and least > 1e-8:
        assert status == Status.TOO_FEW
        return
    assert status == Status.OK
    np.testing.assert_allclose(vector @ B, best @ B, rtol=0, atol=1e-11)
    sizes = B.sum(axis=1)
    weighted = np.linalg.lstsq((B / np.sqrt(sizes)[:, None]).T, np.ones(B.shape[1]))[0]
    shortest = np.linalg.norm(weighted)
    assert shortest * (1 - 1e-9) <= np.linalg.norm(vector * np.sqrt(sizes)) <= shortest * longer


GRAPHS = {
    "triangle": [(0, 1), (1, 2), (0, 2)],
    "square": [(0, 1), (1, 2), (2, 3), (0, 3)],
    "star": [(0, 1), (0, 2), (0, 3), (0, 4)],
    "twice": [(0, 1), (0, 1), (1, 2)],
    "complete": list(itertools.combinations(range(4), 2)),
    "two parts": [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5)],
    "a triangle's tail": [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (3, 5)],
}


@pytest.mark.parametrize("weights", ["equal", "unequal"])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_set_of_messages(name, weights):
    ends = np.array(GRAPHS[name])
    sizes = np.ones(ends.max() + 1) if weights == "equal" else np.arange(1.0, ends.max() + 2)
    for need in (0, len(ends)):
        plan = kernels.cover.EdgesPlan(ends, sizes, need)
        for chosen in range(2 ** len(ends)):
            check(plan, [i for i in range(len(ends)) if chosen >> i & 1])


@given(st.integers(2, 12), st.integers(1, 24), st.integers(0, 20), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_any_graph(vertices, count, need, seed):
    rng = np.random.default_rng(seed)
    start = rng.integers(vertices, size=count)
    ends = np.stack([start, (start + rng.integers(1, vertices, size=count)) % vertices], axis=1)
    plan = kernels.cover.EdgesPlan(ends, rng.integers(1, 5, size=vertices).astype(float), need)
    survivors = rng.permutation(count)[: rng.integers(count + 1)].tolist()
    check(plan, survivors)
    # The order in which messages came does not matter.
    status, vector = filled(plan, survivors)
    if status == Status.OK:
        again = np.sort(survivors).astype(np.int64)
        oracle = np.empty(len(again))
        assert oracles.cover.bind_edges(plan, again, oracle)(len(again)) == Status.OK
        by_number = dict(zip(again.tolist(), oracle, strict=True))
        np.testing.assert_allclose(vector, [by_number[i] for i in survivors], atol=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize("lost", [0.0, 0.1, 0.3, 0.6])
def test_large_ones(lost):
    rng = np.random.default_rng(int(10 * lost))
    ends = np.stack([np.arange(600), (np.arange(600) + rng.integers(1, 200, 600)) % 200], axis=1)
    ends[:, 0] %= 200
    plan = kernels.cover.EdgesPlan(ends, rng.integers(1, 3, 200).astype(float), 0)
    check(plan, np.flatnonzero(rng.random(600) > lost).tolist())


def test_long_paths():
    # If conjugate gradients end early, the rest is solved along a spanning tree.
    n = 2000
    ends = np.stack([np.arange(n), np.arange(n) + 1], axis=1)
    for closed in (False, True):
        if closed:
            ends[-1, 1] = 0
        plan = kernels.cover.EdgesPlan(ends, np.ones(n + 1 - closed), 0)
        vector = filled(plan, np.arange(n))[1]
        sums = np.bincount(ends.ravel(), np.repeat(vector, 2))
        side = 1 - 2 * (np.arange(n + 1) % 2)
        expected = np.ones(n) if closed else 1 - side / (n + 1)
        np.testing.assert_allclose(sums, expected, atol=1e-11)


@pytest.mark.parametrize(
    ("survivors", "status"),
    [*WRONG_SURVIVORS, ([2, 0], Status.OK), ([2, 0, 1], Status.OK)],
)
def test_what_is_wrong_with_survivors(survivors, status):
    plan = kernels.cover.EdgesPlan(np.array([[0, 1], [1, 2], [2, 0]]), np.ones(3), 2)
    assert filled(plan, survivors)[0] == status
