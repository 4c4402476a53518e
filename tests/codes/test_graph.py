"""Codes whose workers are edges of a graph: whom they tolerate, and what they leave out."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc import GraphCode, NotDecodableError


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 2, "degree": 2}, "has 3 edges or more, not 2"),
        ({"n": 12, "degree": 7}, r"degree must be in 2 .. 4 for 12 edges"),
        ({"n": 12}, "give degree="),
        ({"n": 3, "graph": [[0, 1], [0, 2], [3, 3]]}, "edge 2 of the graph leads from 3 to itself"),
        ({"n": 3, "graph": [[0, 1], [0, 2], [0, 4]]}, "vertex 3 of the graph has no edge"),
        ({"n": 3, "graph": [[0, 1], [0, 2], [-1, 1]]}, "numbered from 0, but graph has -1"),
        ({"n": 2, "graph": [[0, 1], [1, 2], [2, 0]]}, "2 workers need as many edges"),
        ({"n": 2, "graph": [0, 1]}, "two vertices each"),
        ({"n": 3, "degree": 2, "graph": [[0, 1], [1, 2], [2, 0]]}, "give degree=.* or the edges"),
        ({"n": 2, "k": 3, "graph": [[0, 1], [0, 2]]}, "bipartite with sides of different sizes"),
        ({"n": 10, "k": 4, "degree": 4}, "at least the number of blocks, 5, not 4"),
        ({"n": 10, "degree": 4, "wait": 11}, "wait must be in 1 .. n = 10"),
        ({"n": 10, "degree": 4, "seed": -1}, "seed must be at least 0"),
    ],
)
def test_errors_say_what_is_possible(arguments, says):
    with pytest.raises(ValueError, match=says):
        GraphCode(**arguments)


def test_edges_must_be_integers():
    with pytest.raises(TypeError, match="numbers of vertices, not float64"):
        GraphCode(2, graph=[[0.0, 1.0], [1.0, 2.0]])


@pytest.mark.parametrize("degree", [2, 3, 4, 5])
def test_as_many_stragglers_are_tolerated_as_the_code_says(degree):
    # Try all sets of s and of s + 1 silent workers.
    for blocks in (7, 8):
        if blocks * degree % 2:
            continue
        n = blocks * degree // 2
        code = GraphCode(n, degree=degree)
        found = next(
            s
            for s in itertools.count()
            if any(
                not code.decodable(np.delete(np.arange(n), lost))
                for lost in itertools.combinations(range(n), s + 1)
            )
        )
        assert code.stragglers == found


@pytest.mark.parametrize(
    ("edges", "s"),
    [
        ([[0, 1], [1, 2], [2, 0]], 0),  # two of its edges form a path of three blocks
        ([[0, 1], [1, 2], [2, 3], [3, 0]], 1),
        ([[0, 1], [1, 2], [2, 3]], 0),
        ([[0, 1], [0, 1], [1, 2], [2, 0]], 0),
        ([[0, 1], [0, 1], [2, 3], [2, 3]], 1),  # repetition
    ],
)
def test_stragglers_of_small_graphs(edges, s):
    assert GraphCode(len(edges), graph=edges).stragglers == s


def test_stragglers_that_are_proved():
    """Circles of many blocks: of an even number, one worker; of an odd one, it is not proved."""
    assert GraphCode(102, degree=2).stragglers == 1
    assert GraphCode(103, degree=2).stragglers is None
    whole = [*map(list, itertools.combinations(range(15), 2))]
    hanging = [*whole, [0, 15]]  # without the last edge, nobody has block 15
    apart = [*whole, *([u + 15, v + 15] for u, v in whole), [0, 30]]
    assert GraphCode(106, graph=hanging).stragglers == 0
    assert GraphCode(211, graph=apart).stragglers is None  # not connected


def test_stragglers_of_large_graphs():
    assert GraphCode(600, degree=6).stragglers == 5
    bridge = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [4, 5], [5, 3]]
    assert GraphCode(7, graph=bridge).stragglers == 1  # both halves are exact without the bridge
    assert GraphCode(3000, degree=2).stragglers is None  # too many blocks to say


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_any_set_of_messages_is_decoded_as_well_as_can_be(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 24))
    code = GraphCode(n, n + int(rng.integers(9)), degree=3, wait=n // 2, seed=seed)
    f = int(rng.integers(1, n + 1))
    survivors = rng.permutation(n)[:f]
    B = code.matrix()[survivors]
    best = np.linalg.lstsq(B.T, np.ones(code.k))[0]
    least = np.linalg.norm(best @ B - 1) / np.sqrt(code.k)
    vector = code.scheme.vector(survivors)
    np.testing.assert_allclose(vector @ B, best @ B, rtol=0, atol=1e-11)
    assert np.linalg.norm(vector) <= 1.5 * np.linalg.norm(best) + 1e-9
    assert code.residual(survivors) == pytest.approx(least, abs=1e-12)
    exact = least < 1e-9
    if exact or f >= n // 2:
        np.testing.assert_array_equal(code.decoding_vector(survivors), vector)
        assert code.decodable(survivors)
        assert code.trust(survivors).relative_error == pytest.approx(least, abs=1e-12)
    else:
        assert not code.decodable(survivors)
        with pytest.raises(NotDecodableError):
            code.decoding_vector(survivors)
