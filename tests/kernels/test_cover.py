"""Messages that are plain sums: the choice of those added up is the best, or least squares."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import KERNELS

from fastgc import kernels


def filled(bind, plan, survivors):
    """Return the kernel's result for these survivors; check that it writes nothing beyond them."""
    room, vector = np.append(survivors, [0, 0]).astype(np.int64), np.full(len(survivors) + 2, 7.0)
    status = bind(plan, room, vector)(len(survivors))
    assert (vector[len(survivors) :] == 7).all()
    return status, vector[: len(survivors)]


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_bind_survivor_mask(data):
    n = data.draw(st.integers(1, 200))
    chosen = data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n))
    survivors = np.full(n, -1, np.int64)
    survivors[: len(chosen)] = chosen
    bits = np.full(-(-n // 8) + 1, 7, np.uint8)  # the last byte must stay
    mask = kernels.unchecked.bind_survivor_mask(n, survivors, bits[:-1])
    assert mask(len(chosen)) == 0
    assert int.from_bytes(bits[:-1].tobytes(), "little") == sum(1 << i for i in chosen)
    assert bits[-1] == 7
    if chosen:
        wrong = data.draw(st.sampled_from([chosen[0], -1, n, n + 8, -(2**63), 2**63 - 1]))
        survivors[data.draw(st.integers(min(1, len(chosen) - 1), len(chosen) - 1))] = wrong
        bad = len(set(survivors[: len(chosen)].tolist())) < len(chosen) or not 0 <= wrong < n
        assert mask(len(chosen)) == bad


# ------------------------------------------------------------------------------- intervals


def test_bind_tiling_goes_forwards_where_it_can():
    """With fewer messages it could go back from 5 to 4, but ones alone are sums of partitions."""
    start, stop = np.array([0, 1, 2, 3, 4, 0, 4]), np.array([1, 2, 3, 4, 5, 5, 6])
    plan = kernels.cover.tiling_plan(start, stop, 6)
    _, forwards = filled(kernels.unchecked.bind_tiling, plan, np.arange(7))
    assert forwards.tolist() == [1, 1, 1, 1, 0, 0, 1]
    _, back = filled(kernels.unchecked.bind_tiling, plan, np.arange(4, 7))
    assert back.tolist() == [-1, 1, 1]


# ------------------------------------------------------------------- messages of two blocks


def check(plan, survivors):
    """Require that the kernel's vector has the least residual and is nearly the shortest."""
    [kernel] = (each for each in KERNELS if each.name == "bind_edges")
    given = {"plan": plan, "survivors": np.array(survivors, np.int64)}
    given["out"] = np.full(len(survivors), 7.0)
    kernel.check(given, kernel.run(kernel.fresh(given)), kernel.true(given))


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
def test_bind_edges_of_every_set(name, weights):
    ends = np.array(GRAPHS[name])
    sizes = np.ones(ends.max() + 1) if weights == "equal" else np.arange(1.0, ends.max() + 2)
    for need in (0, len(ends)):
        plan = kernels.cover.EdgesPlan(ends, sizes, need)
        for chosen in range(2 ** len(ends)):
            check(plan, [i for i in range(len(ends)) if chosen >> i & 1])


@pytest.mark.few(1)
@pytest.mark.parametrize("lost", [0.0, 0.1, 0.3, 0.6])
def test_bind_edges_of_large_graphs(lost):
    rng = np.random.default_rng(int(10 * lost))
    ends = np.stack([np.arange(600), (np.arange(600) + rng.integers(1, 200, 600)) % 200], axis=1)
    ends[:, 0] %= 200
    plan = kernels.cover.EdgesPlan(ends, rng.integers(1, 3, 200).astype(float), 0)
    check(plan, np.flatnonzero(rng.random(600) > lost).tolist())


def test_bind_edges_of_long_paths():
    # If conjugate gradients end early, the rest is solved along a spanning tree.
    n = 2000
    ends = np.stack([np.arange(n), np.arange(n) + 1], axis=1)
    for closed in (False, True):
        if closed:
            ends[-1, 1] = 0
        plan = kernels.cover.EdgesPlan(ends, np.ones(n + 1 - closed), 0)
        vector = filled(kernels.unchecked.bind_edges, plan, np.arange(n))[1]
        sums = np.bincount(ends.ravel(), np.repeat(vector, 2))
        side = 1 - 2 * (np.arange(n + 1) % 2)
        expected = np.ones(n) if closed else 1 - side / (n + 1)
        np.testing.assert_allclose(sums, expected, atol=1e-11)
