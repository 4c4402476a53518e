"""Samples drawn as glyphs are like those of MNIST."""

import numpy as np
from papers.glyphs import glyphs


def test_glyphs():
    made = glyphs(300, 205, seed=1)
    assert (made.name, made.features, made.classes) == ("glyphs", 784, 10)
    assert (len(made.X_train), len(made.X_test)) == (300, 205)
    X = np.concatenate([made.X_train, made.X_test])
    y = np.concatenate([made.y_train, made.y_test])
    assert set(np.bincount(y)) == {50, 51}
    assert (X.min(), X.max()) == (0, 1)
    np.testing.assert_allclose(255 * X, np.rint(255 * X), atol=1e-4)
    images = X.reshape(-1, 28, 28)
    inside = images[:, 4:24, 4:24]
    assert np.count_nonzero(inside) == np.count_nonzero(images)
    edges = inside.sum(axis=0)
    assert min(edges[0].sum(), edges[-1].sum(), edges[:, 0].sum(), edges[:, -1].sum()) > 0
    # Most samples of a character are nearer to its mean than to others.
    means = np.array([made.X_train[made.y_train == c].mean(axis=0) for c in range(10)])
    distances = ((made.X_test[:, np.newaxis] - means) ** 2).sum(axis=2)
    assert 0.05 < np.mean(distances.argmin(axis=1) != made.y_test) < 0.5
    np.testing.assert_array_equal(glyphs(300, 205, seed=1).X_test, made.X_test)
    assert np.abs(glyphs(300, 205, seed=2).X_test - made.X_test).mean() > 0.01
    assert made.X_train.dtype == np.float32
