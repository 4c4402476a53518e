"""Fractional repetition of Tandon et al., and ErasureHead of Wang et al. from its paper."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from fastgc import FractionalRepetition
from fastgc.delays import Empirical
from fastgc.planning.simulation import simulate


def test_fractional_repetition_is_replicas():
    code = FractionalRepetition(6, stragglers=1)
    expected = np.repeat(np.eye(3), 2, axis=1)
    np.testing.assert_array_equal(code.matrix(), np.vstack([expected, expected]))
    assert code.decoding_vector([5, 2, 1, 3]).tolist() == [1, 0, 1, 1]  # the first of each block


@pytest.mark.parametrize(
    ("n", "k", "s", "f"), [(6, 6, 1, 3), (8, 11, 3, 3), (9, 9, 2, 4), (6, 8, 2, 6), (6, 3, 1, 2)]
)
def test_residuals_by_counting_are_those_of_every_set(n, k, s, f):
    code = FractionalRepetition(n, k, stragglers=s, wait=f)
    found = code.residuals()
    left = [code.residual(F) for F in combinations(range(n), f)]
    assert (found.workers, found.sets, found.exhaustive) == (f, 0, True)
    assert found.mean == pytest.approx(np.sqrt(np.mean(np.square(left))), abs=1e-9)
    assert found.worst == pytest.approx(max(left), abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 7, "stragglers": 2}, "multiple of s \\+ 1 = 3, not 7; BinaryCode"),
        ({"n": 6, "stragglers": 6}, "stragglers must be in 0"),
        ({"n": 6, "k": 2, "stragglers": 1}, "at least n / \\(s \\+ 1\\) = 3, not 2"),
        ({"n": 6, "load": 0}, "load=0"),
        ({"n": 6, "load": 7}, "load=7"),
        ({"n": 6, "k": 4, "load": 1}, "load=1"),
    ],
)
def test_impossible_fractional_repetition(arguments, says):
    with pytest.raises(ValueError, match=says):
        FractionalRepetition(**arguments)


def test_a_load_says_how_many_stragglers():
    assert FractionalRepetition(6, 9, load=3).stragglers == 1
    assert FractionalRepetition(6, load=6).stragglers == 5
    assert FractionalRepetition(6, load=1).stragglers == 0
    for arguments in ({}, {"load": 2, "stragglers": 1}):
        with pytest.raises(TypeError, match="either stragglers or load"):
            FractionalRepetition(6, **arguments)


def test_recovery_of_fractional_repetition():
    """The mean number of workers needed, by inclusion and exclusion over blocks not heard."""
    n, s = 100, 9
    expected = sum(
        sum((-1) ** (j + 1) * comb(10, j) * comb(n - 10 * j, m) / comb(n, m) for j in range(1, 11))
        for m in range(n)
    )
    found = FractionalRepetition(n, stragglers=s).recovery(trials=4000).workers
    assert found == pytest.approx(expected, rel=0.02)
    assert 24 < found < 27  # the worst case is 91


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
