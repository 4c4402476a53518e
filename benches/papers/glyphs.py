"""Images of made-up characters, of the size of MNIST's digits, to use in their place."""

from __future__ import annotations

import numpy as np

from fastgc.training.data import Dataset

_CLASSES = 10
_POINTS = 5  # of a character


def glyphs(train: int = 12_000, test: int = 10_000, *, seed: int = 0) -> Dataset:
    """Return float32 samples with 784 features in [0, 1], of 10 classes.

    Each class is one character: five points, drawn uniformly from the middle 14 x 14 of 28 x 28
    pixels, and joined in a fixed order. In a sample, each point is moved (by 1 pixel in either
    direction). The whole is sheared (by 0.2), stretched (by 10 % each way), turned (by 0.2 radians)
    and moved (by 1 pixel). All these numbers are standard deviations of normal ones. The pen's ink
    falls off as a Gaussian, of a width uniform in 0.7 to 1.3 pixels. Ink adds up, to 1 at most, and
    is rounded to a multiple of 1 / 255. As in MNIST, ink outside the middle 20 x 20 pixels is cut
    off. Both sets together have equally many samples of each class, to within one. `seed` is that
    of everything, also of the characters.
    """
    total = train + test
    rng = np.random.default_rng(seed)
    shapes = rng.uniform(-7, 7, (_CLASSES, _POINTS, 2))
    y = rng.permutation(np.arange(total) % _CLASSES)
    points = shapes[y] + rng.standard_normal((total, _POINTS, 2))
    points[..., 0] += rng.normal(0, 0.2, (total, 1)) * points[..., 1]
    points *= rng.normal(1, 0.1, (total, 1, 2))
    turned = (points @ [1, 1j]) * np.exp(1j * rng.normal(0, 0.2, (total, 1)))
    points = np.stack((turned.real, turned.imag), axis=-1) + rng.normal(0, 1, (total, 1, 2))
    width = rng.uniform(0.7, 1.3, (total, 1, 1, 1))
    # The pen takes six steps from each point to the next.
    time = np.linspace(0, _POINTS - 1, 6 * (_POINTS - 1) + 1)
    joined = np.maximum(1 - np.abs(time[:, np.newaxis] - np.arange(_POINTS)), 0)
    pixels = np.arange(20) - 9.5
    X = np.zeros((total, 28, 28), dtype=np.float32)
    for some in np.array_split(np.arange(total), -(-total // 1000)):
        pen = joined @ points[some]
        ink = np.exp(-(((pen[..., np.newaxis] - pixels) / width[some]) ** 2) / 2)
        X[some, 4:24, 4:24] = ink[:, :, 1].swapaxes(1, 2) @ ink[:, :, 0]
    # Round to 256 levels: arithmetic is slow on the tiny traces of ink far from the pen.
    X = np.rint(255 * np.minimum(X, 1)).reshape(total, -1) / 255
    return Dataset("glyphs", X[:train], y[:train], X[train:], y[train:])
