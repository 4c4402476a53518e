"""`partial="unbiased"`: its definition, over every set of survivors, and where it applies."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgc
from fastgc.engines import SimulatedCluster
from fastgc.errors import NotDecodableError


def coefficients(code, F, **options):
    """Return v = a_F B_F and the residual, for a code of one message per worker."""
    a, residual = code.best_vector(F, **options)
    return a @ code.matrix()[list(F)], residual


ALIKE = [  # codes that treat all partitions alike
    fastgc.FractionalRepetition(6, stragglers=1),
    fastgc.FractionalRepetition(6, 12, stragglers=2, wait=2),
    fastgc.BinaryCode(6, stragglers=1),
    fastgc.LinearCode(
        [[1.0 * ((j - i) % 7 in (0, 1, 3)) for j in range(7)] for i in range(7)], wait=3
    ),
    fastgc.ReedSolomon(6, stragglers=2),
    fastgc.Uncoded(5),
]


@pytest.mark.parametrize("code", ALIKE, ids=repr)
def test_every_partition_is_taken_once_on_average(code):
    """By enumeration: over all sets of survivors, each partition's mean coefficient is 1."""
    for f in range(1, code.n + 1):
        best, unbiased = [], []
        for F in combinations(range(code.n), f):
            best.append(coefficients(code, F)[0])
            unbiased.append(coefficients(code, F, partial="unbiased")[0])
        np.testing.assert_allclose(np.mean(unbiased, axis=0), 1, atol=1e-9)
        if f == 1:
            assert np.mean(np.real(best)) < 0.9


def test_over_all_orders_of_the_data_whoever_the_survivors_are():
    """By enumeration of orders, for a code that does not treat partitions alike."""
    code = fastgc.LinearCode([[1, 2, 0, 0], [0, 1, -1, 3], [0, 0, 1, 1], [2, 0, 1, 0]], wait=2)
    g = np.random.default_rng(0).standard_normal((4, 3))
    for F in ([0, 1], [1, 3], [2, 3], [0]):
        totals = {"best": 0.0, "unbiased": 0.0}
        orders = list(permutations(range(4)))
        for order in orders:
            h = g[list(order)]
            messages = [code.encode(i, h[code.partitions(i)]) for i in F]
            for partial in totals:
                found = code.decode(F, messages, partial=partial)
                totals[partial] = totals[partial] + found.gradient / len(orders)
        np.testing.assert_allclose(totals["unbiased"], g.sum(axis=0), atol=1e-12)
        short = code.decode(F, messages, partial="best").mean
        np.testing.assert_allclose(totals["best"], short * g.sum(axis=0), atol=1e-12)
        assert short < 0.999


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_nearest_of_all_with_mean_one(seed, is_complex):
    """It agrees with constrained least squares, and residuals agree with the formulas."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((5, 7)) * (rng.random((5, 7)) < 0.7) + np.eye(5, 7)
    B[:, 5:] += 0.5
    if is_complex:
        B = B * np.exp(1j * rng.random((5, 7)))
    code = fastgc.LinearCode(B, wait=2)
    F = sorted(rng.permutation(5)[: rng.integers(1, 5)].tolist())
    v, r = coefficients(code, F)
    u, left = coefficients(code, F, partial="unbiased")
    assert v.mean().real == pytest.approx(1 - r**2, abs=1e-9)
    assert u.mean() == pytest.approx(1, abs=1e-9)
    assert left == pytest.approx(r / math.sqrt(1 - r**2), abs=1e-9)
    assert left == pytest.approx(np.linalg.norm(u - 1) / math.sqrt(7), abs=1e-9)
    rows = B[F]
    for _ in range(5):
        w = rng.standard_normal(len(F)) @ rows
        if abs(w.sum()) > 1e-3:
            other = w * (7 / w.sum())
            assert np.linalg.norm(other - 1) >= np.linalg.norm(u - 1) - 1e-9


def test_of_coded_data_each_block_counts_once_on_average():
    code = fastgc.LagrangeCode(7, load=2)
    F = [0, 1, 2]
    a, residual = code.best_vector(F, partial="unbiased")
    lacking = code.scheme.precision.deviation(np.array(F), a)
    assert np.diagonal(lacking).mean() == pytest.approx(0, abs=1e-9)
    assert residual > code.best_vector(F)[1]


def test_exact_sets_are_left_as_they_are():
    code = fastgc.ReedSolomon(7, stragglers=2)
    for F in (range(7), [6, 1, 2, 3, 5]):
        np.testing.assert_array_equal(
            code.best_vector(list(F), partial="unbiased")[0], code.decoding_vector(list(F))
        )


def test_messages_that_hold_nothing_of_the_gradient():
    code = fastgc.LinearCode([[1, -1], [1, 1]], wait=1)
    with pytest.raises(NotDecodableError, match="hold nothing of the gradient"):
        code.best_vector([0], partial="unbiased")
    with pytest.raises(NotDecodableError, match="these 1 messages is unbiased"):
        code.decode([0], [[1.0]], partial="unbiased")
    rnd = code.round(1)
    assert rnd.receive(0, np.ones(1))
    with pytest.raises(NotDecodableError, match="hold nothing"):
        rnd.best(partial="unbiased")


def test_verbs_say_which():
    code = fastgc.FractionalRepetition(6, stragglers=1)
    g = np.random.default_rng(3).standard_normal((6, 4))
    messages = [code.encode(i, g[code.partitions(i)]) for i in range(3)]
    best = code.decode([0, 1], messages[:2], partial="best")
    unbiased = code.decode([0, 1], messages[:2], partial="unbiased")
    assert (best.mean, unbiased.mean) == (pytest.approx(2 / 3), pytest.approx(1))
    np.testing.assert_allclose(unbiased.gradient, 1.5 * best.gradient)
    assert best.residual == pytest.approx(math.sqrt(1 / 3))
    assert unbiased.residual == pytest.approx(math.sqrt(1 / 2))
    rnd = code.round(4)
    for i in (0, 1):
        rnd.receive(i, messages[i])
    for partial, wanted in (("best", best), ("unbiased", unbiased)):
        np.testing.assert_allclose(rnd.best(partial=partial).gradient, wanted.gradient)
    rnd.receive(2, messages[2])
    assert rnd.best(partial="unbiased")[1:] == (0, 1)
    for verb in (lambda x: rnd.best(partial=x), lambda x: code.best_vector([0], partial=x)):
        with pytest.raises(ValueError, match='partial must be "best" or "unbiased", not \'most\''):
            verb("most")
    with pytest.raises(ValueError, match='partial must be None, "best" or "unbiased", not'):
        code.decode([0], messages[:1], partial="most")


@pytest.mark.parametrize("wait", [None, 2])
def test_engines_take_it(wait):
    """In rounds short of messages, and in rounds of an approximate code."""
    code = fastgc.FractionalRepetition(4, stragglers=1, wait=wait)
    shards = [1.0, 2.0, 30.0, 40.0]  # the gradients at theta = 1

    def gradient(theta, shard, out):
        np.multiply(theta, shard, out=out)

    late = fastgc.delays.Empirical([[0.1, 2.0, 0.2, 3.0]])  # first: workers 0 and 2, of one block
    for partial, factor in (("best", 1.0), ("unbiased", 2.0)):
        out = np.empty(1)
        options = {"delays": late, "timeout": 1.0, "partial": partial}
        with SimulatedCluster(code, shards, gradient, 1, **options) as cluster:
            report = cluster.step(np.ones(1), out)
        assert out[0] == pytest.approx(factor * 3.0)
        assert report.residual == pytest.approx(math.sqrt(factor / 2))
        assert report.wait_seconds == pytest.approx(1.0 if wait is None else 0.2)


def test_residuals_over_sets():
    """Formulas of means and worst cases agree with enumeration."""
    for n, k, s, f in ((6, 6, 1, 3), (8, 11, 3, 3), (9, 9, 2, 4), (6, 8, 2, 6)):
        code = fastgc.FractionalRepetition(n, k, stragglers=s, wait=f)
        found = code.residuals()
        left = [code.residual(F) for F in combinations(range(n), f)]
        assert found.exhaustive
        assert found.workers == f
        assert found.mean == pytest.approx(math.sqrt(np.mean(np.square(left))), abs=1e-9)
        assert found.worst == pytest.approx(max(left), abs=1e-9)
    code = fastgc.CyclicRepetition(6, stragglers=2)
    left = [code.residual(F) for F in combinations(range(6), 3)]
    found = code.residuals(3)
    assert found == (3, pytest.approx(math.sqrt(np.mean(np.square(left)))), max(left), 20, True)
    drawn = code.residuals(3, sets=10, seed=1)
    assert (drawn.sets, drawn.exhaustive) == (10, False)
    assert drawn.worst <= found.worst
    assert code.residuals().mean < 1e-9
    for wrong in (0, 7):
        with pytest.raises(ValueError, match=r"workers must be in 1 \.\. n = 6"):
            code.residuals(wrong)


@pytest.mark.parametrize(
    "code",
    [
        fastgc.Uncoded(6, tolerance=0.5),
        fastgc.Uncoded(6, 12, tolerance=0.5, rescale=False),
    ],
    ids=repr,
)
def test_residuals_by_formula_are_those_of_every_set(code):
    for f in range(4, code.n + 1):
        found = code.residuals(f)
        assert (found.workers, found.sets, found.exhaustive) == (f, 0, True)
        for heard in combinations(range(code.n), f):
            left = code.residual(heard)
            assert found.worst == pytest.approx(left, abs=1e-7)
            assert found.mean == found.worst
    assert code.residuals(code.n).worst == 0


def test_residuals_of_unequal_shares_are_looked_at():
    """It matters whether a worker with more partitions is missing."""
    found = fastgc.Uncoded(5, 7, tolerance=0.3).residuals()
    assert found.sets > 0
    assert found.mean < found.worst


def test_the_worst_is_known_where_no_round_can_end_worse():
    from fastgc.cli.codes import figures_of

    # With several messages per worker, a round may end before workers have sent all of theirs.
    for code, known in (
        (fastgc.Uncoded(6, load=2, tolerance=0.2), False),
        (fastgc.Uncoded(6, tolerance=0.5), True),
    ):
        assert figures_of("code", code, 20, 0)[1]["worst_is_known"] == known
