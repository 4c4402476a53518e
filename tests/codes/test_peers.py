"""Peers: methods of the first research codes, written from their papers, agree with fastgc."""

import numpy as np
import pytest

from fastgc import CyclicRepetition, FractionalRepetition, LinearCode
from fastgc.delays import Empirical
from fastgc.planning.simulation import simulate


def cyclic_by_the_paper(H):
    """Return B by Algorithm 2 of Tandon et al. 2017: rows of s + 1 entries in H's null space."""
    s, n = H.shape
    B = np.zeros((n, n))
    for worker in range(n):
        others = [(worker + step) % n for step in range(1, s + 1)]
        B[worker, worker] = 1
        B[worker, others] = np.linalg.solve(H[:, others], -H[:, worker])
    return B


def random_null_space(rng, n, s):
    """Return H of Algorithm 2: random, with rows that add up to 0."""
    H = rng.standard_normal((s, n))
    H[:, n - 1] = -H[:, : n - 1].sum(axis=1)
    return H


@pytest.mark.parametrize(("n", "s"), [(10, 1), (12, 2), (15, 3), (20, 2)])
def test_cyclic_codes_decode_as_by_least_squares(n, s):
    """Gradients agree to 1e-11 of the sum of moduli, for 50 sets each, 200 in all."""
    rng = np.random.default_rng(n)
    B = cyclic_by_the_paper(random_null_space(rng, n, s))
    code = LinearCode(B)
    partials = rng.standard_normal((n, 7))
    messages = B @ partials
    for _ in range(50):
        came = np.sort(rng.permutation(n)[: n - s])
        by_least_squares = np.linalg.lstsq(B[came].T, np.ones(n), rcond=None)[0]
        ours = code.decode(came, messages[came])
        terms = np.abs(by_least_squares) @ np.abs(messages[came])
        difference = np.abs(ours - by_least_squares @ messages[came])
        assert (difference <= 1e-11 * terms).all()
        assert (np.abs(ours - partials.sum(axis=0)) <= 1e-11 * terms).all()


@pytest.mark.parametrize("seed", range(3))
def test_our_cyclic_code_is_the_papers(seed):
    n, s = 14, 3
    H = random_null_space(np.random.default_rng(seed), n, s)
    B = CyclicRepetition(n, stragglers=s, seed=seed).matrix()
    np.testing.assert_allclose(B, cyclic_by_the_paper(H), rtol=1e-9)


def erasurehead(groups, arrivals, most, messages):
    """Play a round of Wang et al. 2019: return the workers heard and the sum of one per group.

    It takes messages as they come, until each group has sent one or `most` have come.
    """
    heard, gradient, came = set(), np.zeros(messages.shape[1]), []
    for worker in np.argsort(arrivals).tolist():
        came.append(worker)
        if groups[worker] not in heard:
            heard.add(groups[worker])
            gradient += messages[worker]
        if len(heard) == len(set(groups)) or len(came) == most:
            return came, gradient


@pytest.mark.parametrize(("n", "copies", "most"), [(12, 3, 6), (12, 2, 8), (15, 5, 4), (8, 4, 8)])
def test_erasurehead_hears_and_decodes_the_same(n, copies, most):
    """They agree in 100 rounds each, 400 in all."""
    rng = np.random.default_rng(n + copies)
    code = FractionalRepetition(n, load=copies, wait=most)
    held = [tuple(code.partitions(worker)) for worker in range(n)]
    groups = [sorted(set(held)).index(each) for each in held]  # workers with equal partitions
    partials = rng.standard_normal((code.k, 5))
    messages = np.array([partials[list(each)].sum(axis=0) for each in held])
    incomplete = 0
    for _ in range(100):
        arrivals = rng.exponential(size=n)
        came, gradient = erasurehead(groups, arrivals, most, messages)
        round_ = code.round(5)
        waited_for = []
        for worker in np.argsort(arrivals).tolist():
            waited_for.append(worker)
            round_.receive(worker, messages[worker])
            if round_.ready:
                break
        assert waited_for == came
        np.testing.assert_allclose(round_.gradient(), gradient, rtol=0, atol=1e-12)
        simulated = simulate(code, Empirical(arrivals[np.newaxis]), rounds=1)
        assert simulated.times == pytest.approx([arrivals[came[-1]]], rel=1e-9)
        incomplete += not np.allclose(gradient, partials.sum(axis=0))
    assert 0 < incomplete < 100 or most == n
