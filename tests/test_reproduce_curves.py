"""Curves of codes by graphs agree with other means, and their rows expose a wrong decoder."""

import numpy as np
import pytest
from examples import example
from strength import much

from fastgc import GraphCode
from fastgc.codes.graph import GraphScheme
from fastgc.papers import FIGURES, approximate

pytestmark = pytest.mark.any_backend


@pytest.mark.long
def test_rows_are_what_they_should_be(monkeypatch):
    monkeypatch.setattr(approximate, "FULL", much(approximate.FULL, approximate.FULL[:1]))
    figure = FIGURES["glasgow-curves"](rounds=40, seed=1)
    assert figure.name == "glasgow-curves"
    assert len({(row.figure, row.what) for row in figure.rows}) == len(figure.rows)
    for row in figure.rows:
        assert row.paper is None  # no number is claimed to be printed
        assert row.ok or row.note
        if "above the bound" in row.what:
            assert row.ours == row.closed == 0
        elif "random regular" in row.what and "mean error of" in row.what:
            assert row.ours == pytest.approx(row.closed, rel=1e-9)
        elif row.closed is not None:
            assert row.ours == pytest.approx(row.closed, rel=0.35), row.what  # sets are few
        elif "repetition" in row.what:
            assert 0.5 < row.ours < 1  # a Ramanujan graph; 0.5 if blocks were not neighbours
    assert len(figure.panels) == 3
    for panel in figure.panels:
        assert all(np.isfinite(line.y).all() and line.y.size for line in panel.lines)


@pytest.mark.parametrize("seed", range(12))
def test_what_components_leave_is_what_least_squares_do(seed):
    rng = np.random.default_rng(seed)
    blocks = int(rng.integers(2, 9))
    ends = rng.integers(0, blocks, (int(rng.integers(1, 14)), 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    A = np.zeros((blocks, len(ends)))
    for j, (u, v) in enumerate(ends):
        A[u, j] = A[v, j] = 1
    left = np.ones(blocks)
    if len(ends):
        left = A @ np.linalg.lstsq(A, left, rcond=None)[0] - left
    truth = left @ left / blocks
    assert approximate.left_by_components(ends, blocks) == pytest.approx(truth, abs=1e-12)


def test_the_variance_of_blocks_is_that_of_drawn_assignments():
    n, load, groups, within, f = 12, 4, 3, 0.7, 7
    p, q = within * load / 4, (1 - within) * load / 8
    same = np.repeat(np.arange(3), 4)
    chance = np.where(same[:, np.newaxis] == same, p, q)
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(4000):
        B = rng.random((n, n)) < chance
        counted = B[rng.permutation(n)[:f]].sum(axis=0) * n / (f * load)
        errors.append(((counted - 1) ** 2).mean())
    assert approximate.variance_of_blocks(n, load, groups, within, f) == pytest.approx(
        np.mean(errors), rel=0.03
    )
    # If `within` is 1 / groups, groups do not matter: Charles et al., (k - w) / (f w).
    assert approximate.variance_of_blocks(100, 10, 5, 0.2, 40) == pytest.approx(90 / 400)


@pytest.mark.parametrize("s", [0, 3, 7, 15, 23])
def test_so_many_straggle_and_take_whole_partitions(s):
    for code in (
        GraphCode(24, 16, degree=3, wait=1),
        example("codes/bernoulli").BernoulliCode(24, load=4, wait=1, seed=2),
    ):
        came = approximate.isolated_first(code, s)
        assert came.size == code.n - s
        assert (np.diff(came) > 0).all()
        if s >= 7:
            assert (code.matrix()[came] != 0).any(axis=0).sum() < code.k


def test_a_wrong_decoder_is_seen(monkeypatch):
    right = GraphScheme.residual
    monkeypatch.setattr(GraphScheme, "residual", lambda scheme, *came: 0.95 * right(scheme, *came))
    small = GraphCode(12, 8, degree=3, wait=1)
    assert not any(row.ok for row in approximate._exhaustively(small))
