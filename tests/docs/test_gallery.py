"""The codes of docs/examples/codes are short, and keep what codes and their papers promise."""

from fractions import Fraction

import numpy as np
import pytest
from examples import EXAMPLES, example

from fastgc import GraphCode
from fastgc.testing.codes import check

BIBDCode = example("codes/bibd").BIBDCode
BernoulliCode = example("codes/bernoulli").BernoulliCode
ExpanderCode = example("codes/expander").ExpanderCode
RaptorCode = example("codes/raptor").RaptorCode
paley, lps = example("codes/ramanujan").paley, example("codes/ramanujan").lps

CODES = [
    BIBDCode(2),
    BIBDCode(3, "affine", wait=6),
    BernoulliCode(7, load=3, seed=1),
    BernoulliCode(12, load=3, groups=3, within=0.8, wait=8),
    ExpanderCode(7, load=4),
    ExpanderCode(13, load=6, edges=paley(13), wait=10),
    RaptorCode(16, wait=10),
]


def test_every_file_is_short():
    files = sorted((EXAMPLES / "codes").glob("*.py"))
    assert [file.stem for file in files] == ["bernoulli", "bibd", "expander", "ramanujan", "raptor"]
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        assert lines[0] == f"# {file.name}"
        assert len(lines) <= 60, file.name


@pytest.mark.parametrize("code", CODES, ids=repr)
def test_they_keep_what_codes_promise(code):
    check(code, engines=["simulated"], report=lambda line: None)


@pytest.mark.parametrize(
    ("q", "design", "n", "blocks", "load", "common"),
    [
        (2, "projective", 7, 7, 3, 1),
        (3, "projective", 13, 13, 4, 1),
        (2, "affine", 4, 6, 3, 1),
        (5, "affine", 25, 30, 6, 1),
        (11, "paley", 11, 11, 5, 2),
        (23, "paley", 23, 23, 11, 5),
    ],
)
def test_designs_are_balanced_and_leave_what_the_formula_says(q, design, n, blocks, load, common):
    code, rng = BIBDCode(q, design, wait=1), np.random.default_rng(0)
    B = code.matrix()
    assert B.shape == (n, blocks)
    np.testing.assert_array_equal(B @ B.T, common + (load - common) * np.eye(n))
    for f in range(1, n + 1):
        expected = 1 - Fraction(load**2 * f, blocks * (load - common + common * f))
        for survivors in (rng.permutation(n)[:f] for _ in range(5)):
            same = np.full(f, load / (load - common + common * f))
            np.testing.assert_allclose(code.scheme.vector(survivors), same, atol=1e-12)
            assert code.residual(survivors) ** 2 == pytest.approx(float(expected), abs=1e-13)


def test_designs_that_do_not_exist():
    for q, design in ((4, "projective"), (5, "paley"), (3, "fano")):
        with pytest.raises(ValueError, match="q="):
            BIBDCode(q, design)


GRAPHS = {
    "random": (4, None),
    "paley": (6, paley(13)),
    "complete": (12, np.stack(np.triu_indices(13, 1), axis=1)),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_eigenvalue_bounds_what_any_messages_leave(graph):
    n, (load, edges), rng = 13, GRAPHS[graph], np.random.default_rng(1)
    code = ExpanderCode(n, load=load, edges=edges, wait=1)
    np.testing.assert_array_equal(code.matrix(), code.adjacency)
    for f in range(1, n + 1):
        bound = (code.second / load) ** 2 * (n - f) / f
        same = np.full(f, n / (load * f))
        for survivors in (rng.permutation(n)[:f] for _ in range(10)):
            left = code.residual(survivors)
            assert left <= code.residual(survivors, same) + 1e-12
            assert code.residual(survivors, same) ** 2 <= bound + 1e-12


def test_expanders_are_regular():
    for edges in (None, [[0, 1], [1, 2]]):
        with pytest.raises(ValueError, match="not every worker has 3 neighbours"):
            ExpanderCode(5, load=3, edges=edges)


def spectrum(edges):
    return np.linalg.eigvalsh(
        ExpanderCode(
            edges.max() + 1, load=2 * len(edges) // (edges.max() + 1), edges=edges
        ).adjacency
    )


@pytest.mark.parametrize("q", [5, 13, 29])
def test_paley_graphs_have_the_spectrum_they_are_known_for(q):
    expected = np.repeat([(-1 - q**0.5) / 2, (-1 + q**0.5) / 2], q // 2)
    np.testing.assert_allclose(spectrum(paley(q)), [*expected, (q - 1) / 2], atol=1e-9)


@pytest.mark.parametrize(("p", "q", "vertices"), [(17, 13, 1092), (29, 13, 1092), (5, 13, 2184)])
def test_lps_graphs_are_ramanujan(p, q, vertices):
    edges = lps(p, q)
    assert (edges[:, 0] < edges[:, 1]).all()
    assert len(np.unique(edges, axis=0)) == len(edges)
    assert edges.max() + 1 == vertices
    found = np.abs(spectrum(edges))  # which also says that all degrees are the same
    # The degree, and its negative if the graph is bipartite, as 5 is no square modulo 13.
    assert (found > 2 * p**0.5).sum() == 1 + (p == 5)
    assert found.max() == pytest.approx(p + 1)


def test_codes_of_explicit_graphs():
    code = GraphCode(39, graph=paley(13))
    assert (code.blocks, code.stragglers) == (13, 5)
    for make, arguments in (paley, (9,)), (lps, (5, 5)), (lps, (17, 5)), (lps, (7, 13)):
        with pytest.raises(ValueError, match=r"must be a prime|must be larger"):
            make(*arguments)


def test_loads_of_random_assignments():
    held = [BernoulliCode(200, load=6, wait=9, seed=seed).held for seed in range(5)]
    loads = np.sum(held, axis=2)
    assert loads.min() >= 1
    assert loads.max() <= 12
    assert loads.mean() == pytest.approx(6, abs=0.3)
    B = BernoulliCode(120, load=12, groups=4, within=0.75, wait=60).matrix()
    own = np.kron(np.eye(4), np.ones((30, 30))).astype(bool)
    assert B[own].sum() / B.sum() == pytest.approx(0.75, abs=0.03)
    for wrong in ({"load": 8}, {"load": 4, "groups": 4, "within": 1}):
        with pytest.raises(ValueError, match="load"):
            BernoulliCode(7, **wrong)


@pytest.mark.parametrize("missing", [Fraction(1, 5), Fraction(1, 10), Fraction(1, 33)])
def test_degrees_are_a_distribution_and_those_of_the_paper(missing):
    D = int(1 / missing)
    u = 2 * missing * (1 - 2 * missing) / (1 - 4 * missing) ** 2
    exact = [u, *(Fraction(1, i * (i - 1)) for i in range(2, D + 1)), Fraction(1, D)]
    assert sum(exact) == 1 + u
    found = example("codes/raptor").degrees(float(missing))
    np.testing.assert_allclose(found, [float(p / (1 + u)) for p in exact], rtol=1e-12)


def test_raptor_codes_leave_out_hardly_more_than_was_asked_for():
    rng = np.random.default_rng(0)
    for missing, lost in ((0.05, 100), (0.1, 40)):
        left = []
        for seed in range(10):
            code = RaptorCode(200, wait=200 - lost, missing=missing, seed=seed)
            left.append(code.residual(rng.permutation(200)[: 200 - lost]) ** 2)
        assert np.mean(left) < missing
    with pytest.raises(ValueError, match=r"less than 1/4, not 0\.25"):
        RaptorCode(20, wait=15, missing=0.25)
