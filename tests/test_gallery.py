"""The codes of docs/examples/codes are short, and keep what codes and their papers promise."""

from fractions import Fraction

import numpy as np
import pytest
from examples import EXAMPLES, example

from fastgc.testing.codes import check

pytestmark = pytest.mark.any_backend

BIBDCode = example("codes/bibd").BIBDCode
BernoulliCode = example("codes/bernoulli").BernoulliCode
ExpanderCode = example("codes/expander").ExpanderCode
RaptorCode = example("codes/raptor").RaptorCode

CODES = [
    BIBDCode(2),
    BIBDCode(3, "affine", wait=6),
    BernoulliCode(7, load=3, seed=1),
    BernoulliCode(12, load=3, groups=3, within=0.8, wait=8),
    ExpanderCode(7, load=4),
    ExpanderCode(13, load=6, graph="paley", wait=10),
    RaptorCode(16, wait=10),
]


def test_every_file_is_short():
    files = sorted((EXAMPLES / "codes").glob("*.py"))
    assert [file.stem for file in files] == ["bernoulli", "bibd", "expander", "raptor"]
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
        (4, "projective", 21, 21, 5, 1),
        (2, "affine", 4, 6, 3, 1),
        (4, "affine", 16, 20, 5, 1),
        (11, "paley", 11, 11, 5, 2),
        (27, "paley", 27, 27, 13, 6),
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
    for q, design in ((6, "projective"), (5, "paley"), (3, "fano")):
        with pytest.raises(ValueError, match="q="):
            BIBDCode(q, design)


@pytest.mark.parametrize("graph", ["random", "cayley", "paley", "complete"])
def test_the_eigenvalue_bounds_what_any_messages_leave(graph):
    n, load = 13, {"paley": 6, "complete": 12}.get(graph, 4)
    code, rng = ExpanderCode(n, load=load, graph=graph, wait=1), np.random.default_rng(1)
    np.testing.assert_array_equal(code.matrix(), code.adjacency)
    for f in range(1, n + 1):
        bound = (code.second / load) ** 2 * (n - f) / f
        same = np.full(f, n / (load * f))
        for survivors in (rng.permutation(n)[:f] for _ in range(10)):
            left = code.residual(survivors)
            assert left <= code.residual(survivors, same) + 1e-12
            assert code.residual(survivors, same) ** 2 <= bound + 1e-12


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
