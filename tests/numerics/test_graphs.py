"""Graphs: random ones, what joins their vertices, and paths without common edges."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much

from fastgc.numerics import graphs
from fastgc.numerics.graphs import Network, parallel


def simple(edges):
    return (edges[:, 0] != edges[:, 1]).all() and len(np.unique(np.sort(edges), axis=0)) == len(
        edges
    )


@given(st.integers(3, 30), st.data())
@settings(max_examples=60, deadline=None)
def test_random_graphs_are_simple_connected_and_even(vertices, data):
    most = vertices * (vertices - 1) // 2
    count = data.draw(st.integers(min(most, int(1.5 * vertices)), most))
    edges = graphs.random(vertices, count, data.draw(st.integers(0, 9)))
    assert len(edges) == count
    assert simple(edges)
    assert not graphs.components(edges, vertices).any()
    assert np.ptp(np.bincount(edges.ravel(), minlength=vertices)) <= 1


def test_sparse_random_graphs_are_connected():
    # At degree 2, graphs are circles: most pairings give several circles.
    for seed in range(20):
        assert not graphs.components(graphs.random(9, 9, seed), 9).any()


def test_random_graphs_differ_by_seed():
    first, again, other = (graphs.random(20, 40, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    # All edges are equally likely.
    drawn = sum(graphs.adjacency(graphs.random(6, 9, seed), 6) for seed in range(400))
    assert abs(drawn[~np.eye(6, dtype=bool)] / 400 - 0.6).max() < 5 * np.sqrt(0.24 / 400)


@pytest.mark.parametrize("seed", range(6))
def test_edge_connectivity_against_all_cuts(seed):
    rng = np.random.default_rng(seed)
    pairs = np.array(list(itertools.combinations(range(6), 2)))
    edges = pairs[rng.random(15) < 0.6]
    edges = np.concatenate([edges, pairs[:1]])
    least = min(
        sum((u in side) != (v in side) for u, v in edges.tolist())
        for size in (1, 2, 3)
        for side in itertools.combinations(range(6), size)
    )
    assert graphs.edge_connectivity(edges, 6) == least


def cut(capacity, source, target, points):
    """Return the least cut, by trying all."""
    others = [point for point in points if point not in (source, target)]
    return min(
        sum(count for (u, v), count in capacity.items() if ((u in side) != (v in side)))
        for size in range(len(others) + 1)
        for some in itertools.combinations(others, size)
        for side in [{source, *some}]
    )


@settings(deadline=None, max_examples=much(500, 60))
@given(seed=st.integers(0, 2**32), points=st.integers(2, 7), edges=st.integers(0, 20))
def test_disjoint_paths_are_as_many_as_the_least_cut(seed, points, edges):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, points, (edges, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    strands = parallel(ends, np.arange(len(ends)))
    assert sorted(np.concatenate([*strands.values(), []]).tolist()) == list(range(len(ends)))
    capacity = {pair: len(each) for pair, each in strands.items()}
    source, target = rng.permutation(points)[:2].tolist()
    most = int(rng.integers(1, 8))
    expected = min(most, cut(capacity, source, target, range(points)))
    network = Network(strands)
    assert network.flow(source, target, most)[0] == expected
    for pair in strands:
        rest = {each: count for each, count in capacity.items() if each != pair}
        others = cut(rest, *pair, range(points))
        assert network.flow(*pair, most, without=pair)[0] == min(most, others)
        assert network.others(pair) >= others
    paths = network.disjoint_paths(source, target, most)
    assert len(paths) == expected
    taken = [edge for path in paths for edge, _ in path]
    assert len(set(taken)) == len(taken)
    for path in paths:
        here = source
        for edge, sign in path:
            low, high = sorted(ends[edge].tolist())
            assert here == (low if sign == 1 else high)
            here = high if sign == 1 else low
        assert here == target
