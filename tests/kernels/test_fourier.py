"""Transforms of any number of workers: lengths, and cyclic sums by them."""

import math

import numpy as np

from fastgc.kernels.fourier import Transform, transform_length


def test_transforms_have_fast_lengths():
    assert transform_length(1024) == 1024
    assert transform_length(2310) == 2310  # 2 3 5 7 11
    assert transform_length(1009) == 2025  # a prime; 2 * 1009 - 1 = 2017
    x = np.random.default_rng(0).random(1024)
    for m in (1009, 1024, 1, 2):
        padded = Transform.of(m, 1)
        table = np.array([math.log(2 * math.sin(math.pi * t / m)) if t else 0 for t in range(m)])
        taken = np.append(x[:m], np.zeros(padded.length - m))
        expected = [sum(x[j] * table[(i - j) % m] for j in range(m)) for i in (0, m // 2)]
        padded.convolve(taken, np.empty(padded.length // 2 + 1, dtype=complex))
        np.testing.assert_allclose(taken[[0, m // 2]], expected, atol=1e-11)
