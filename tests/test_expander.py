"""Codes whose workers are vertices of a graph, and codes of random assignments."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc import BernoulliCode, ExpanderCode, NotDecodableError, codes
from fastgc.numerics import graphs

pytestmark = pytest.mark.any_backend

GRAPHS = [
    {"n": 12, "load": 4},
    {"n": 14, "load": 3, "graph": "cayley"},
    {"n": 13, "graph": "paley"},
    {"n": 17, "graph": "paley"},
    {"n": 7, "graph": "complete"},
    {"n": 10, "graph": [[i, (i + t) % 10] for i in range(10) for t in (1, 3)]},  # bipartite
]


@given(st.sampled_from(GRAPHS), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_the_eigenvalue_bounds_what_any_messages_leave(given, seed):
    # Raviv et al.: the bound holds for any choice of stragglers.
    rng = np.random.default_rng(seed)
    code = ExpanderCode(**given, wait=1)
    f = int(rng.integers(1, code.n + 1))
    survivors = rng.permutation(code.n)[:f]
    bound = (code.second / code.load) ** 2 * (code.n - f) / f
    left = code.residual(survivors)
    assert left**2 <= bound + 1e-12
    # One coefficient for all workers already achieves it.
    same = np.full(f, code.n / (code.load * f))
    assert left <= code.residual(survivors, same) + 1e-12
    assert code.residual(survivors, same) ** 2 <= bound + 1e-12


def test_the_bound_is_met():
    # With half of a bipartite graph's workers, no partition of the other side came.
    code = ExpanderCode(10, graph=GRAPHS[-1]["graph"], wait=5)
    assert code.second == pytest.approx(code.load)
    same = np.full(5, 10 / (code.load * 5))
    assert code.residual(range(0, 10, 2), same) ** 2 == pytest.approx(1.0)


@pytest.mark.parametrize("given", GRAPHS)
def test_rows_are_neighbours(given):
    code = ExpanderCode(**given, wait=3)
    B = code.matrix()
    np.testing.assert_array_equal(B, graphs.adjacency(code.edges, code.n))
    assert (code.scheme.loads == code.load).all()
    values = np.sort(np.abs(np.linalg.eigvals(B)))
    assert code.second == pytest.approx(values[-2])


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_any_set_is_decoded_by_least_squares(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 14))
    f = int(rng.integers(1, n + 1))
    for code in (
        ExpanderCode(n, n + int(rng.integers(5)), load=4, wait=f, seed=seed),
        BernoulliCode(n, n + int(rng.integers(5)), load=3, wait=f, seed=seed),
        BernoulliCode(n, n + 3, load=2, groups=2, within=0.8, wait=f, seed=seed),
    ):
        survivors = rng.permutation(n)[:f]
        B = code.matrix()[survivors]
        best = np.linalg.lstsq(B.T, np.ones(code.k))[0]
        left = np.linalg.norm(best @ B - 1) / np.sqrt(code.k)
        assert code.residual(survivors) == pytest.approx(left, abs=1e-10)
        np.testing.assert_allclose(code.decoding_vector(survivors) @ B, best @ B, atol=1e-8)
        if f > 1 and code.residual(survivors[:-1]) > 1e-8:
            with pytest.raises(NotDecodableError):
                code.decoding_vector(survivors[:-1])


def test_loads_of_random_assignments():
    loads = np.concatenate(
        [BernoulliCode(200, load=6, wait=9, seed=s).scheme.loads for s in range(5)]
    )
    assert loads.min() >= 1
    assert loads.max() <= 12
    # Loads are binomial, except for a few that were regularised or empty.
    k, p = 200, 6 / 200
    assert abs(loads.mean() - 6) < 4 * np.sqrt(k * p * (1 - p) / loads.size) + 0.1
    assert loads.var() == pytest.approx(k * p * (1 - p), rel=0.2)


def test_groups_have_their_share():
    code = BernoulliCode(120, load=12, groups=4, within=0.75, wait=60)
    B = code.matrix()
    own = np.kron(np.eye(4), np.ones((30, 30))).astype(bool)
    assert B[own].sum() / B.sum() == pytest.approx(0.75, abs=0.03)
    assert B.sum() / 120 == pytest.approx(12, rel=0.05)
    apart = BernoulliCode(12, load=2, groups=3, within=1, wait=6).matrix()
    assert not apart[:4, 4:].any()


@pytest.mark.parametrize(
    ("kind", "arguments", "says"),
    [
        (ExpanderCode, {"n": 12}, "give load="),
        (ExpanderCode, {"n": 13, "load": 3}, "has an even degree, not 3"),
        (ExpanderCode, {"n": 12, "load": 12}, "has degrees of 1 to 11, not 12"),
        (ExpanderCode, {"n": 12, "graph": "paley"}, "such as 9, 13, 17, not 12"),
        (ExpanderCode, {"n": 13, "load": 4, "graph": "paley"}, "has degree 6, not 4"),
        (ExpanderCode, {"n": 12, "load": 6, "graph": "lps"}, "have 2184, 4896"),
        (ExpanderCode, {"n": 12, "k": 11, "load": 3}, "k must be at least n=12"),
        (ExpanderCode, {"n": 3, "graph": [[0, 1], [1, 2]]}, "must be regular"),
        (ExpanderCode, {"n": 2, "graph": [[0, 1], [0, 1]]}, "that is there twice"),
        (ExpanderCode, {"n": 4, "graph": [[0, 1], [1, 2], [2, 0]]}, "4 workers are as many"),
        (ExpanderCode, {"n": 3, "load": 2, "graph": [[0, 1], [1, 2], [2, 0]]}, "leave it out"),
        (ExpanderCode, {"n": 12, "load": 3, "wait": 0}, "wait must be in 1 .. n = 12"),
        (BernoulliCode, {"n": 7, "load": 8}, "load must be in 1 .. k = 7"),
        (
            BernoulliCode,
            {"n": 7, "load": 2, "groups": 8},
            r"groups must be in 1 .. min\(n, k\) = 7",
        ),
        (BernoulliCode, {"n": 7, "load": 2, "within": 1.5}, "a part of the load, not 1.5"),
        (BernoulliCode, {"n": 8, "load": 4, "groups": 4, "within": 1}, "has 2 partitions, too few"),
        (BernoulliCode, {"n": 7, "load": 1}, "not even all messages give the exact gradient"),
    ],
)
def test_errors_say_what_is_possible(kind, arguments, says):
    with pytest.raises(ValueError, match=says):
        kind(**arguments)


def test_the_names_make_one_for_every_n():
    for n, s in itertools.product((4, 7, 20), (0, 1, 3)):
        for name in ("expander", "bgc", "brc"):
            if name == "expander" and s == 0 and n % 2 == 0:
                continue  # degree 1 gives pairs, which are not connected
            assert codes.make(name, n, stragglers=s).scheme.wait == n - s
