"""Graphs: random ones, what joins their vertices, and paths without common edges."""

import itertools
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much

from fastgc import NotDecodableError
from fastgc.numerics import graphs
from fastgc.numerics.graphs import Network, parallel


def simple(edges):
    return (edges[:, 0] != edges[:, 1]).all() and len(np.unique(np.sort(edges), axis=0)) == len(
        edges
    )


@given(st.integers(3, 30), st.data())
@settings(max_examples=60, deadline=None)
def test_random_is_simple_connected_and_even(vertices, data):
    most = vertices * (vertices - 1) // 2
    count = data.draw(st.integers(min(most, int(1.5 * vertices)), most))
    edges = graphs.random(vertices, count, data.draw(st.integers(0, 9)))
    assert len(edges) == count
    assert simple(edges)
    assert not graphs.components(edges, vertices).any()
    assert np.ptp(np.bincount(edges.ravel(), minlength=vertices)) <= 1


def test_random_of_few_edges_is_connected():
    # At degree 2, graphs are circles: most pairings give several circles.
    for seed in range(20):
        assert not graphs.components(graphs.random(9, 9, seed), 9).any()


def test_random_differs_by_seed():
    first, again, other = (graphs.random(20, 40, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    # All edges are equally likely.
    drawn = sum(graphs.adjacency(graphs.random(6, 9, seed), 6) for seed in range(400))
    assert abs(drawn[~np.eye(6, dtype=bool)] / 400 - 0.6).max() < 5 * np.sqrt(0.24 / 400)


@pytest.mark.parametrize("vertices", [2, 3, 4, 6])
def test_edge_connectivity_by_all_cuts(vertices):
    """Of simple graphs, of those in several parts, and of those with parallel edges."""
    rng = np.random.default_rng(vertices)
    pairs = np.array(list(itertools.combinations(range(vertices), 2)))
    found = set()
    for _ in range(40):
        edges = pairs[rng.integers(len(pairs), size=rng.integers(1, 3 * vertices))]
        least = min(
            sum((u in side) != (v in side) for u, v in edges.tolist())
            for size in range(1, vertices)
            for side in itertools.combinations(range(vertices), size)
        )
        assert graphs.edge_connectivity(edges, vertices) == least
        found.add(least)
    assert {0, 1, 2} <= found or vertices == 2


@pytest.mark.parametrize(
    ("graph", "error", "says"),
    [
        ([[0, 1, 2]], ValueError, r"\(1, 3\)"),
        ([0, 1], ValueError, r"\(2,\)"),
        (np.empty((0, 2), int), ValueError, r"\(0, 2\)"),
        ([[0, 1.0]], TypeError, "float64"),
        ([[0, -1]], ValueError, "-1"),
        ([[0, 1], [3, 4]], ValueError, "vertex 2 "),
        ([[0, 10**15]], ValueError, "vertex 1 "),
        ([[0, 1], [2, 2]], ValueError, "edge 1 .* from 2 to itself"),
    ],
)
def test_check_edges_refuses(graph, error, says):
    with pytest.raises(error, match=says):
        graphs.check_edges(graph)


def test_check_edges_takes_what_is_a_graph():
    for graph in ([[0, 1], [1, 0]], np.array([[2, 0], [1, 0]], np.uint8)):
        edges = graphs.check_edges(graph)
        assert edges.dtype == np.int64
        assert edges.flags.c_contiguous
        np.testing.assert_array_equal(edges, graph)


def test_adjacency_counts_edges_both_ways():
    found = graphs.adjacency(np.array([[0, 1], [1, 0], [2, 1]]), 4)
    np.testing.assert_array_equal(found, [[0, 2, 0, 0], [2, 0, 1, 0], [0, 1, 0, 0], [0] * 4])


@given(st.integers(1, 9), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=9))
def test_components_by_search(vertices, edges):
    edges = np.array([e for e in edges if max(e) < vertices], int).reshape(-1, 2)
    near = {v: {v} for v in range(vertices)}
    for _ in range(vertices):
        for u, v in edges.tolist():
            near[u] = near[v] = near[u] | near[v]
            for each in near[u]:
                near[each] = near[u]
    found = graphs.components(edges, vertices)
    assert found.tolist() == [min(near[v]) for v in range(vertices)]


def test_random_where_there_is_none(monkeypatch):
    for vertices, count, says in ((5, 3, "4 to 10 edges, not 3"), (5, 11, "4 to 10 edges, not 11")):
        with pytest.raises(ValueError, match=says):
            graphs.random(vertices, count, 0)
    monkeypatch.setattr(graphs, "TRIES", 2)
    with pytest.raises(ValueError, match=r"none of 2 .* 400 vertices and 400"):
        graphs.random(400, 400, 0)
    np.testing.assert_array_equal(graphs.random(4, 6, 0), [*itertools.combinations(range(4), 2)])


def test_of_degree():
    for count in range(1, 40):
        most = max(2 * count // v for v in range(2, 40) if v * (v - 1) >= 2 * count)
        assert graphs.max_degree(count) == most
    for count, degree in ((20, 4), (21, 4), (15, 5), (12, 2)):
        edges = graphs.of_degree(count, degree, 0)
        assert len(edges) == count
        assert simple(edges)
        assert edges.max() + 1 == round(2 * count / degree)
    for count, degree, says in ((20, 1, "2 .. 5"), (20, 6, "2 .. 5"), (2, 2, "3 edges or more")):
        with pytest.raises(ValueError, match=f"{says}.*not {degree if count > 2 else count}"):
            graphs.of_degree(count, degree, 0)


def test_parallel_groups_by_ends():
    ends = np.array([[3, 1], [0, 2], [1, 3], [2, 0], [1, 2]])
    found = {pair: each.tolist() for pair, each in parallel(ends, np.array([4, 2, 1, 0])).items()}
    assert found == {(0, 2): [1], (1, 2): [4], (1, 3): [2, 0]}
    assert parallel(ends, np.empty(0, int)) == {}


@given(
    st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=7),
    st.sets(st.integers(0, 5), min_size=1),
)
@settings(max_examples=much(300, 60))
def test_owners_are_even(holders, ranks):
    """The largest number at one rank is least, and then as many ranks as possible own something."""
    holders = [sorted(each) for each in holders]
    able = [sorted(ranks.intersection(each)) for each in holders]
    lost = [j for j, each in enumerate(able) if not each]
    if lost:
        with pytest.raises(NotDecodableError, match=re.escape(f"partitions {lost}")):
            graphs.owners(holders, ranks)
        return
    found = graphs.owners(holders, sorted(ranks, reverse=True))
    assert all(rank in each for rank, each in zip(found, able, strict=True))
    assert found == graphs.owners([each[::-1] for each in holders], iter(ranks))
    ways = [sorted(Counter(way).values()) for way in itertools.product(*able)]
    assert max(Counter(found).values()) == min(map(max, ways))
    assert len(set(found)) == max(map(len, ways))


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
def test_flow_and_disjoint_paths_are_as_many_as_the_least_cut(seed, points, edges):
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
