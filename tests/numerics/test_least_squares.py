"""The gradient of least squares, by its definition."""

import numpy as np
import pytest

from fastgc.numerics.least_squares import least_squares_gradient


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("outputs", [0, 1, 3])
def test_least_squares_gradient(outputs, complex_):
    rng = np.random.default_rng(outputs)
    X, shape = rng.standard_normal((5, 2)), (outputs,) * bool(outputs)
    X = X + 1j * rng.standard_normal(X.shape) if complex_ else X
    y, theta = rng.standard_normal((5, *shape)), rng.standard_normal((2, *shape))
    kept = y.copy()
    expected = (X.T @ (X @ theta - y)).ravel()
    for given in (theta, theta.ravel(), theta.tolist()):
        np.testing.assert_allclose(least_squares_gradient(given, X, y), expected, rtol=1e-13)
    out = np.full_like(expected, 7)
    assert least_squares_gradient(theta, X, y, out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-13)
    np.testing.assert_array_equal(y, kept)
    for bad in (np.zeros(out.size + 1, out.dtype), np.zeros((2 * out.size,), out.dtype)[::2]):
        with pytest.raises(ValueError, match=rf"out .*\({out.size},\)"):
            least_squares_gradient(theta, X, y, bad)


@pytest.mark.parametrize(
    ("theta", "X", "y"),
    [((2,), (5,), (5,)), ((3,), (5, 2), (5,)), ((2,), (5, 2), (4,)), ((2,), (5, 2), (5, 2))],
)
def test_least_squares_gradient_of_shapes_that_do_not_fit(theta, X, y):
    with pytest.raises(ValueError, match="do not fit"):
        least_squares_gradient(np.ones(theta), np.ones(X), np.ones(y))


def test_least_squares_gradient_overflows_without_a_warning():
    assert least_squares_gradient([1e300], [[1e300]], [0.0])[0] == np.inf
