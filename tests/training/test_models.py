"""Models: gradients agree with differences, with mpmath, and with sums of their parts."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc.training.data import partition
from fastgc.training.models import (
    LeastSquares,
    LinearRegression,
    SoftmaxRegression,
    least_squares_gradient,
)

MODEL = SoftmaxRegression(features=4, classes=3)
LEAST = LeastSquares(features=4, classes=3)


def problem(samples=11, dtype=np.float64, model=MODEL, seed=1):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=model.size).astype(dtype)
    X = rng.normal(size=(samples, model.features)).astype(dtype)
    return theta, X, rng.integers(0, model.classes, samples)


@pytest.mark.parametrize(("model", "h"), [(MODEL, 1e-5), (LEAST, 1e-4)])
def test_gradient_is_that_of_the_summed_loss(model, h):
    theta, X, y = problem(model=model)
    differences = [
        (model.loss(theta + h * e, X, y) - model.loss(theta - h * e, X, y)) / (2 * h)
        for e in np.eye(model.size)
    ]
    gradient = model.gradient(theta, X, y)
    np.testing.assert_allclose(gradient, len(y) * np.array(differences), rtol=1e-7, atol=1e-8)
    out = np.empty_like(gradient)
    assert model.gradient(theta, X, y, out=out) is out
    np.testing.assert_array_equal(out, gradient)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-13), (np.float32, 2e-5)])
def test_softmax_against_mpmath(dtype, rtol):
    mpmath = pytest.importorskip("mpmath")
    theta, X, y = problem(samples=3, dtype=dtype)
    # Logits of a few hundred: naive exponentials would overflow in float32.
    theta *= 50
    features, classes = MODEL.features, MODEL.classes
    total, gradient = mpmath.mpf(0), mpmath.zeros(features + 1, classes)
    with mpmath.workdps(50):
        for x, label in zip(X.tolist(), y.tolist(), strict=True):
            x = [*x, 1.0]
            scores = [
                mpmath.fsum(x[r] * mpmath.mpf(float(theta[r * classes + c])) for r in range(len(x)))
                for c in range(classes)
            ]
            weights = [mpmath.exp(score) for score in scores]
            total += mpmath.log(mpmath.fsum(weights)) - scores[label]
            for c in range(classes):
                excess = weights[c] / mpmath.fsum(weights) - (c == label)
                for r in range(features + 1):
                    gradient[r, c] += x[r] * excess
    exact = np.array(gradient.tolist(), dtype=float).ravel()
    assert MODEL.loss(theta, X, y) == pytest.approx(float(total / 3), rel=rtol)
    computed = MODEL.gradient(theta, X, y)
    assert computed.dtype == dtype
    np.testing.assert_allclose(computed, exact, rtol=0, atol=10 * rtol * np.abs(exact).max())


@pytest.mark.parametrize("scale", [1e4, 1e300])
def test_softmax_of_huge_logits(scale):
    model = SoftmaxRegression(1, 2)
    theta = np.array([scale, -scale, 0, 0])  # decides for class 0 at x = 1
    X, y = np.ones((1, 1)), np.array([1])
    assert model.loss(theta, X, y) == 2 * scale
    np.testing.assert_array_equal(model.gradient(theta, X, y), [1, -1, 1, -1])


def test_softmax_predict_by_weights_then_bias():
    theta = np.zeros((5, 3))
    theta[2, 1] = 1  # class 1 if feature 2 is positive
    theta[4, 0] = 0.5  # otherwise class 0, by the bias
    X = np.zeros((3, 4))
    X[:, 2] = 2, 0.1, -3
    np.testing.assert_array_equal(MODEL.predict(theta.ravel(), X), [1, 0, 0])
    assert MODEL.error(theta.ravel(), X, np.array([1, 1, 0])) == pytest.approx(1 / 3)


@settings(deadline=None)
@given(samples=st.integers(1, 40), data=st.data(), seed=st.integers(0, 1000))
def test_partial_gradient_sums_to_the_gradient(samples, data, seed):
    k = data.draw(st.integers(1, samples))
    theta, X, y = problem(samples, seed=seed)
    partials = np.full((k, MODEL.size), np.nan)
    for shard, out in zip(partition(X, y, k), partials, strict=True):
        assert MODEL.partial_gradient(theta, shard, out) is None
    np.testing.assert_allclose(partials.sum(axis=0), MODEL.gradient(theta, X, y), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_out(dtype):
    """It is filled, and inputs are left alone, whatever their strides."""
    model = MODEL
    theta, X, y = problem(dtype=dtype)
    spaced = np.repeat(theta, 2)[::2], np.asfortranarray(X), np.repeat(y, 2)[::2]
    for array in spaced:
        array.flags.writeable = False
    out = np.full(model.size, np.nan, dtype)
    assert model.gradient(*spaced, out=out) is out
    np.testing.assert_allclose(out, model.gradient(theta, X, y), rtol=20 * np.finfo(dtype).eps)
    model.partial_gradient(theta, (X[:0], y[:0]), out)
    np.testing.assert_array_equal(out, 0)


def test_gradient_has_the_dtype_of_theta():
    theta, X, y = problem(dtype=np.float32)
    wide = X.astype(np.float64)
    gradient = MODEL.gradient(theta, wide, y)
    assert gradient.dtype == np.float32
    np.testing.assert_array_equal(gradient, MODEL.gradient(theta, X, y))
    assert MODEL.loss(theta, wide, y) == MODEL.loss(theta, X, y)


def test_add_regularisation_is_the_masters():
    theta, X, y = problem()
    penalised = replace(MODEL, l2=0.7)
    np.testing.assert_array_equal(penalised.gradient(theta, X, y), MODEL.gradient(theta, X, y))
    assert penalised.loss(theta, X, y) == MODEL.loss(theta, X, y)
    for each in (MODEL, penalised):
        gradient = np.ones(MODEL.size)
        each.add_regularisation(theta, gradient)
        np.testing.assert_allclose(gradient[:12], 1 + each.l2 * theta[:12])
        np.testing.assert_array_equal(gradient[12:], 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, X, y: (t[1:], X, y), "theta must .*got float64 of shape"),
        (lambda t, X, y: (t.astype(int), X, y), "theta must .*got int64"),
        (lambda t, X, y: (t, X[:, 1:], y), r"X must .*got \(11, 3\)"),
        (lambda t, X, y: (t, X[0], y[:4]), r"X must .*got \(4,\)"),
        (lambda t, X, y: (t, X, y[1:]), r"y must .*got int64 of shape \(10,\)"),
        (lambda t, X, y: (t, X, y.astype(float)), "y must .*got float64"),
        (lambda t, X, y: (t, X, y + 1), "labels .* got 1 to 3"),
        (lambda t, X, y: (t, X, y - 1), "labels .* got -1 to 1"),
    ],
)
@pytest.mark.parametrize("method", ["gradient", "loss", "error"])
def test_methods_refuse(method, change, message):
    with pytest.raises(ValueError, match=message):
        getattr(MODEL, method)(*change(*problem()))
    if method != "gradient":
        theta, X, y = problem()
        with pytest.raises(ValueError, match="mean over no samples"):
            getattr(MODEL, method)(theta, X[:0], y[:0])


@pytest.mark.parametrize(
    "out", [np.zeros(14), np.zeros(15, np.float32), np.zeros(30)[::2]], ids=str
)
def test_gradient_out_refused(out):
    with pytest.raises(ValueError, match=r"out must be a contiguous .* \(15,\)"):
        MODEL.gradient(*problem(), out=out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_least_squares_is_regression_on_indicators(dtype):
    theta, X, y = problem(dtype=dtype, model=LEAST)
    regression, E = LinearRegression(4, 3), np.eye(3)[y]
    for ours, theirs in zip(LEAST.prepare(X, y), regression.prepare(X, E), strict=True):
        assert ours.dtype == dtype
        np.testing.assert_array_equal(ours, theirs)
    assert LEAST.loss(theta, X, y) == pytest.approx(regression.loss(theta, X, E), rel=1e-6)
    np.testing.assert_array_equal(LEAST.gradient(theta, X, y), regression.gradient(theta, X, E))
    scores = regression.predict(theta, X)
    np.testing.assert_array_equal(LEAST.predict(theta, X), scores.argmax(axis=1))


def test_least_squares_gradient_of_complex_data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 3)) + 1j * rng.standard_normal((6, 3))
    y = rng.standard_normal((6, 2)) + 0j
    theta = rng.standard_normal(6)
    expected = X.T @ (X @ theta.reshape(3, 2) - y)
    np.testing.assert_allclose(least_squares_gradient(theta, X, y), expected.ravel())


def regression(outputs, bias=True, samples=11, dtype=np.float64, l2=0.0):
    rng = np.random.default_rng(outputs)
    model = LinearRegression(4, outputs, l2=l2, bias=bias)
    X = rng.normal(size=(samples, 4)).astype(dtype)
    y = rng.normal(size=(samples, outputs) if outputs > 1 else samples).astype(dtype)
    return model, rng.normal(size=model.size).astype(dtype), X, y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [1, 3])
def test_linear_regression_by_definition(outputs, bias, dtype):
    """Regression agrees with its definition in exact arithmetic."""
    model, theta, X, y = regression(outputs, bias, samples=5, dtype=dtype)
    assert model.size == (4 + bias) * outputs
    F = np.vectorize(Fraction, otypes=[object])
    A = np.hstack([F(X.astype(float)), np.full((5, int(bias)), Fraction(1))])
    residual = A @ F(theta.astype(float)).reshape(-1, outputs) - F(y.astype(float)).reshape(5, -1)
    square = sum((residual**2).ravel())
    rtol = 1e-5 if dtype == np.float32 else 1e-13
    assert model.loss(theta, X, y) == pytest.approx(float(square) / 10, rel=rtol)
    assert model.error(theta, X, y) == pytest.approx((float(square) / 5 / outputs) ** 0.5, rel=rtol)
    gradient = model.gradient(theta, X, y)
    assert gradient.dtype == dtype
    exact = (A.T @ residual).astype(float).ravel()
    np.testing.assert_allclose(gradient, exact, rtol=0, atol=10 * rtol * abs(exact).max())
    predicted = residual.astype(float) + y.reshape(5, -1)
    np.testing.assert_allclose(model.predict(theta, X), predicted, atol=10 * rtol)
    parts = np.zeros((2, model.size), dtype)
    for part, shard in zip(parts, partition(*model.prepare(X, y), 2), strict=True):
        model.partial_gradient(theta, shard, part)
    np.testing.assert_allclose(parts.sum(axis=0), exact, rtol=0, atol=10 * rtol * abs(exact).max())


def test_linear_regression_of_any_real_targets():
    model, theta, X, y = regression(1)
    whole = np.rint(4 * y)
    expected = model.gradient(theta, X, whole)
    for same in (whole.astype("i1"), whole.astype("f4"), whole[:, None], whole.tolist()):
        np.testing.assert_array_equal(model.gradient(theta, X, same), expected)
        assert model.loss(theta, X, same) == model.loss(theta, X, whole)
    A, Y = model.prepare(X.astype("f4"), whole)
    assert A.dtype == Y.dtype == np.float32
    assert Y.shape == (11, 1)


@pytest.mark.parametrize("kind", [LinearRegression, LeastSquares, SoftmaxRegression])
def test_bias_is_a_feature_of_ones(kind):
    """A model without a bias, on samples with a column of ones, is the model with a bias."""
    with_bias, without = kind(4, 3), kind(5, 3, bias=False)
    assert (with_bias.size, kind(4, 3, bias=False).size) == (without.size, 12)
    rng = np.random.default_rng(0)
    X, theta = rng.normal(size=(20, 4)), rng.normal(size=15)
    A = np.hstack([np.ones((20, 1)), X])
    moved = theta.reshape(5, 3)[[4, 0, 1, 2, 3]].ravel()
    y = rng.normal(size=(20, 3)) if kind is LinearRegression else rng.integers(0, 3, 20)
    gradient = with_bias.gradient(theta, X, y).reshape(5, 3)[[4, 0, 1, 2, 3]].ravel()
    np.testing.assert_allclose(without.gradient(moved, A, y), gradient, rtol=1e-10)
    for name in ("loss", "error"):
        here, there = getattr(with_bias, name)(theta, X, y), getattr(without, name)(moved, A, y)
        assert here == pytest.approx(there, rel=1e-12)
    np.testing.assert_allclose(with_bias.predict(theta, X), without.predict(moved, A), rtol=1e-10)
    assert with_bias.smoothness(X) == pytest.approx(without.smoothness(A), rel=1e-9)
    ones = np.ones(15)
    gradient = np.zeros(15)
    kind(4, 3, l2=2.0).add_regularisation(ones, gradient)
    np.testing.assert_array_equal(gradient, [2] * 12 + [0] * 3)
    gradient = np.zeros(12)
    kind(4, 3, l2=2.0, bias=False).add_regularisation(ones[:12], gradient)
    np.testing.assert_array_equal(gradient, 2)


def test_linear_regression_refused():
    model, theta, X, y = regression(2)
    for wrong in (y[:, 0], y[:5], y.astype(complex), y.T):
        with pytest.raises(ValueError, match=r"y must .* shape \(11, 2\), got"):
            model.loss(theta, X, wrong)
    with pytest.raises(ValueError, match=r"y must .* shape \(11, 1\) or \(11,\), got"):
        LinearRegression(4).prepare(X, y)
    with pytest.raises(ValueError, match="a mean over no samples"):
        model.error(theta, X[:0], y[:0])
    with pytest.raises(ValueError, match="does not depend on theta"):
        LinearRegression(4, bias=False).learning_rate(np.zeros((3, 4)))
    assert LinearRegression(4).learning_rate(np.zeros((3, 4))) == pytest.approx(1)


def hessian(model, theta, X, y, h=1e-4):
    """Return the Hessian of the mean loss, by differences of its gradient."""
    columns = [
        (model.gradient(theta + h * e, X, y) - model.gradient(theta - h * e, X, y)) / (2 * h)
        for e in np.eye(model.size)
    ]
    return np.array(columns) / len(y)


@pytest.mark.parametrize("samples", [1, 3, 60])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_smoothness_is_the_largest_eigenvalue(samples, dtype):
    theta, X, y = problem(samples, dtype, LEAST)
    A = LEAST.prepare(X.astype(float), y)[0]
    exact = np.linalg.eigvalsh(A.T @ A / samples)[-1]
    assert LEAST.smoothness(X) == pytest.approx(exact, rel=1e-10)
    assert LEAST.smoothness(X) <= exact * (1 + 1e-14)
    assert LEAST.learning_rate(X) == 1 / LEAST.smoothness(X)
    largest = np.linalg.eigvalsh(hessian(LEAST, theta.astype(float), X.astype(float), y))[-1]
    assert LEAST.smoothness(X) == pytest.approx(largest, rel=1e-6)


def test_smoothness_where_the_largest_eigenvalues_are_close():
    """For example if features are orthogonal and nearly equally large."""
    X = np.linalg.qr(np.random.default_rng(0).standard_normal((50, 6)))[0]
    X -= X.mean(axis=0)
    model = LeastSquares(6, 2)
    A = model.prepare(X * 7, np.zeros(50, int))[0]
    exact = np.linalg.eigvalsh(A.T @ A / 50)[-1]
    assert model.smoothness(X * 7) == pytest.approx(exact, rel=1e-9)
    assert model.smoothness(np.zeros((5, 6))) == pytest.approx(1.0)  # the bias alone


@pytest.mark.parametrize("model", [MODEL, LEAST])
def test_smoothness_refused(model):
    X = np.ones((5, model.features))
    for samples, says in ((X[:0], "no sample"), (X * 1e200, "overflow"), (X * np.nan, "NaN")):
        with pytest.raises(ValueError, match=says):
            model.smoothness(samples)


@pytest.mark.parametrize("scale", [0.0, 0.1, 3.0])
def test_smoothness_of_softmax_is_a_bound(scale):
    theta, X, y = problem(40)
    largest = np.linalg.eigvalsh(hessian(MODEL, scale * theta, X, y))[-1]
    assert largest <= MODEL.smoothness(X)
    assert MODEL.smoothness(X) == LEAST.smoothness(X) / 2
    if scale == 0:  # all classes are equally likely: 1 / classes instead of the bound's 1 / 2
        assert largest == pytest.approx(LEAST.smoothness(X) / 3, rel=1e-6)


def test_samples_refused():
    model, theta, y = LeastSquares(2, 2), np.zeros(6), np.array([0, 1])
    calls = model.smoothness, partial(model.predict, theta), lambda X: model.prepare(X, y)
    for X in (np.zeros(2), np.zeros((2, 2), complex), np.zeros((2, 1))):  # the last broadcasts
        for call in calls:
            with pytest.raises((TypeError, ValueError), match="X must"):
                call(X)
    with pytest.raises(ValueError, match="theta and gradient must have shape"):
        model.add_regularisation(theta, np.zeros(5))


@pytest.mark.parametrize("kind", [LeastSquares, SoftmaxRegression])
def test_gradient_of_numbers_that_are_not_finite(kind):
    """Such numbers must reach the master in a message, which names the worker: no warning."""
    model = kind(2, 2)
    X, y = np.array([[np.inf, 1], [1, 2]]), np.array([0, 1])
    assert not np.isfinite(model.gradient(np.ones(6), X, y)).all()
    assert not np.isfinite(model.loss(np.ones(6), X, y))


def test_size_is_an_integer():
    assert type(LeastSquares(np.int8(100), np.int8(10)).size) is int
    assert LeastSquares(np.int8(100), np.int8(10)).size == 1010


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((kind, "features", 0) for kind in (SoftmaxRegression, LinearRegression)),
        *((kind, "classes", 1) for kind in (SoftmaxRegression, LeastSquares)),
        *((kind, "l2", -1.0) for kind in (SoftmaxRegression, LinearRegression)),
        (LinearRegression, "outputs", 0),
        (LinearRegression, "bias", "no"),
    ],
)
def test_models_refused(kind, name, value):
    given = {"features": 4} if kind is LinearRegression else {"features": 4, "classes": 3}
    with pytest.raises((TypeError, ValueError), match=f"{name}.* must .*not '?{value}"):
        kind(**given | {name: value})


@pytest.mark.parametrize("l2", [0.0, 2.5])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [LeastSquares, LinearRegression])
def test_optimum(kind, bias, l2):
    model, rng = kind(4, 3, l2, bias), np.random.default_rng(0)
    X = rng.normal(size=(30, 4)) + 1
    y = rng.integers(0, 3, 30) if kind is LeastSquares else rng.normal(size=(30, 3))
    theta = model.optimum(X, y)
    gradient = model.gradient(theta, X, y)
    model.add_regularisation(theta, gradient)
    np.testing.assert_allclose(gradient, 0, atol=1e-11)
    assert model.optimum(X.astype(np.float32), y).dtype == np.float32


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_probabilities(scale):
    model = MODEL
    theta, X, y = problem()
    theta *= scale
    shares = model.probabilities(theta, X)
    assert shares.shape == (11, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(shares.argmax(axis=1), model.predict(theta, X))
    if scale == 1:
        expected = -np.mean(np.log(shares[np.arange(11), y]))
        assert model.loss(theta, X, y) == pytest.approx(expected, rel=1e-12)
    assert model.probabilities(theta.astype(np.float32), X).dtype == np.float32
