"""Transforms of any number of workers: lengths, cyclic sums, and decoding vectors by them."""

import math

import numpy as np
import pytest
from oracles.decoding import DECODING, near_vector

from fastgc.kernels import Status, fourier
from fastgc.kernels.fourier import Transform, transform_length


def test_transform_length_and_convolve():
    assert transform_length(1024) == 1024
    assert transform_length(2310) == 2310  # 2 3 5 7 11
    assert transform_length(1009) == 2025  # a prime; 2 * 1009 - 1 = 2017
    x = np.random.default_rng(0).random(1024)
    for m in (1009, 1024, 1, 2):
        table = np.array([math.log(2 * math.sin(math.pi * t / m)) if t else 0 for t in range(m)])
        padded = Transform.of(table)
        taken = np.append(x[:m], np.zeros(padded.length - m))
        expected = [sum(x[j] * table[(i - j) % m] for j in range(m)) for i in (0, m // 2)]
        padded.convolve(taken, np.empty(padded.length // 2 + 1, dtype=complex))
        np.testing.assert_allclose(taken[[0, m // 2]], expected, atol=1e-11)


@pytest.mark.parametrize("parts", [1, 3])
def test_vectors_by_transforms_by_definition(parts, at_each_level):
    """Entries lose some digits more than by products, whose definition they have."""
    rng = np.random.default_rng(2)
    for size, count in DECODING.shapes:
        given = DECODING.make(rng, size, count, float, method=None, parts=parts)
        truth, plan = DECODING.true(given), given["plan"]
        for _ in at_each_level():
            of = fourier.Fourier(plan, given["survivors"], given["out"])
            status = of.vector(given["survivors"].size)
            near_vector(given, {"returned": status, "out": given["out"]}, truth, times=8)
        assert len(plan.transforms) <= parts  # equal blocks share them


def test_vectors_by_transforms_of_wrong_survivors():
    given = DECODING.make(np.random.default_rng(2), 9, 2, float, method=None, parts=1)
    survivors, out = given["survivors"], np.full(7, 7j)
    of = fourier.Fourier(given["plan"], survivors, out)
    for wrong, status in ((survivors[0], Status.DUPLICATE), (9, Status.OUT_OF_RANGE)):
        survivors[4], kept = wrong, survivors[4]
        assert of.vector(7) == status
        assert of.where[0] == 4
        assert (out == 7j).all()
        survivors[4] = kept
    assert of.vector(7) == Status.OK
    assert (out != 7j).all()
