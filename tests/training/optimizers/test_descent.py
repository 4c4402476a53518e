"""Optimizers: iterates agree with closed forms on quadratics, and AMSGrad with mpmath and torch."""

import copy
import math

import mpmath
import numpy as np
import pytest

from fastgc import kernels
from fastgc.training.optimizers import SGD, AMSGrad, Nesterov

EACH = pytest.mark.parametrize("method", [SGD, Nesterov, AMSGrad])
FIVE = [SGD(0.1), SGD(0.1, 0.9), Nesterov(0.1), Nesterov(0.1, 0.9), AMSGrad(0.1)]
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def run(optimizer, theta0, gradient, rounds):
    """Return the iterates theta_0 .. theta_rounds."""
    optimizer.reset(theta0)
    iterates = [optimizer.theta.copy()]
    for _ in range(rounds):
        optimizer.step(gradient(optimizer.point))
        iterates.append(optimizer.theta.copy())
    return np.array(iterates)


def two_term_recurrence(trace, determinant, start, rounds):
    """Return x_k with x_{k+1} = trace x_k - determinant x_{k-1} and x_{-1} = x_0, by its roots."""
    roots = np.roots([1, -trace, determinant]).astype(complex)
    weights = np.linalg.solve([[1, 1], 1 / roots], [start, start])
    return ((roots[:, None] ** np.arange(rounds + 1)) * weights[:, None]).sum(axis=0).real


@pytest.mark.parametrize("method", [SGD, Nesterov])
@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9])
def test_step_with_momentum_in_closed_form(method, momentum):
    curvature, lr = np.array([0.3, 2.0, 7.0]), 0.11
    theta0 = np.array([1.0, -2.0, 0.5])
    iterates = run(method(lr, momentum), theta0, lambda x: curvature * x, 60)
    for column, c, start in zip(iterates.T, curvature, theta0, strict=True):
        shrink = 1 - lr * c
        if not momentum:
            exact = start * shrink ** np.arange(61)
        elif method is SGD:
            exact = two_term_recurrence(shrink + momentum, momentum, start, 60)
        else:
            exact = two_term_recurrence(shrink * (1 + momentum), shrink * momentum, start, 60)
        np.testing.assert_allclose(column, exact, atol=1e-12)


def test_nesterov_sequence_by_hand():
    # f(x) = x^2 / 2, lr = 1/2, x_0 = 1: t = 1, 1.618.., 2.194.., and beta = 0, 0.2817.., 0.4340..
    t1 = (1 + math.sqrt(5)) / 2
    t2 = (1 + math.sqrt(1 + 4 * t1**2)) / 2
    beta1 = (t1 - 1) / t2
    x1, x2 = 0.5, 0.25
    x3 = (x2 + beta1 * (x2 - x1)) / 2
    iterates = run(Nesterov(0.5), np.array([1.0]), lambda x: x, 3)
    np.testing.assert_allclose(iterates[:, 0], [1, x1, x2, x3], rtol=1e-15)


def test_amsgrad_against_mpmath():
    rng = np.random.default_rng(1)
    gradients = rng.standard_normal((12, 3)) * [1e-3, 1, 1e3]
    theta0 = np.zeros(3)
    optimizer = AMSGrad(0.125, 0.875, 0.75, 2.0**-20)  # 1 - beta is exact
    optimizer.reset(theta0)
    with mpmath.workdps(40):
        theta, h, v_hat = ([mpmath.mpf(0)] * 3 for _ in range(3))
        for gradient in gradients:
            moved = optimizer.step(gradient)
            before = theta
            g = [mpmath.mpf(x) for x in gradient]
            h = [(7 * h[i] + g[i]) / 8 for i in range(3)]
            v_hat = [max(v_hat[i], (3 * v_hat[i] + g[i] ** 2) / 4) for i in range(3)]
            steps = [h[i] / 8 / mpmath.sqrt(mpmath.mpf(2) ** -20 + v_hat[i]) for i in range(3)]
            theta = [theta[i] - steps[i] for i in range(3)]
            np.testing.assert_allclose(optimizer.theta, [float(x) for x in theta], atol=2e-15)
            distance = sum((a - b) ** 2 for a, b in zip(theta, before, strict=True))
            assert moved == pytest.approx(float(distance), rel=1e-13)


def torch_iterates(theta0, gradients, lr, beta1, beta2):
    """Yield iterates of torch's Adam(amsgrad=True) without epsilon and bias correction."""
    torch = pytest.importorskip("torch")
    theta = torch.tensor(theta0, requires_grad=True)
    adam = torch.optim.Adam([theta], lr=lr, betas=(beta1, beta2), eps=0.0, amsgrad=True)
    for k, gradient in enumerate(gradients, 1):
        adam.param_groups[0]["lr"] = lr * (1 - beta1**k) / math.sqrt(1 - beta2**k)
        theta.grad = torch.tensor(gradient)
        adam.step()
        yield theta.detach().numpy().copy()


@DTYPES
def test_amsgrad_as_torch_where_gradients_never_shrink(dtype):
    pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    sizes = np.cumsum(rng.exponential(size=(200, 11)), axis=0)
    gradients = (sizes * rng.choice([-1, 1], (200, 11))).astype(dtype)
    theta0 = rng.standard_normal(11).astype(dtype)
    tiny = float(np.finfo(dtype).smallest_normal)  # no epsilon
    optimizer = AMSGrad(0.01, 0.9, 0.99, tiny)
    optimizer.reset(theta0)
    theirs = torch_iterates(theta0, gradients, 0.01, 0.9, 0.99)
    for gradient, theta in zip(gradients, theirs, strict=True):
        optimizer.step(gradient)
        assert np.abs(optimizer.theta - theta).max() <= 200 * np.finfo(dtype).eps


def test_amsgrad_unlike_torch_where_gradients_shrink_and_grow():
    """For squares 1, 0, 1 and beta2 = 1/2, v is 1/2, 1/2, 3/4; torch's average is 1/2, 1/4, 5/8.

    With beta1 = 0, steps are proportional to 1 / sqrt(v).
    """
    pytest.importorskip("torch")
    gradients = np.array([[1.0], [0.0], [1.0]])
    optimizer = AMSGrad(lr=1.0, beta1=0.0, beta2=0.5, epsilon=1e-300)
    optimizer.reset(np.zeros(1))
    ours = [optimizer.step(gradient) for gradient in gradients]
    np.testing.assert_allclose(ours, [2, 0, 4 / 3], rtol=1e-14)
    theirs = [0.0, *(x[0] for x in torch_iterates(np.zeros(1), gradients, 1.0, 0.0, 0.5))]
    np.testing.assert_allclose(np.diff(theirs) ** 2, [2, 0, 8 / 5], rtol=1e-14)


def test_amsgrad_weights_near_one():
    """1 - beta is computed before rounding: either beta would round to 1 in float32."""
    rest, lr, gradient = 2.0**-30, 0.5, 3.0
    optimizer = AMSGrad(lr, 1 - rest, 1 - rest, epsilon=1e-9)
    optimizer.reset(np.zeros(20, np.float32))
    optimizer.step(np.full(20, gradient, np.float32))
    expected = -lr * rest * gradient / math.sqrt(1e-9 + rest * gradient**2)
    np.testing.assert_allclose(optimizer.theta, expected, rtol=1e-6)


@DTYPES
@pytest.mark.parametrize("optimizer", FIVE, ids=repr)
def test_step_returns_how_far_the_point_moved(optimizer, dtype):
    rng = np.random.default_rng(4)
    optimizer.reset(rng.standard_normal(1000).astype(dtype))
    for _ in range(10):
        before = optimizer.point.astype(np.float64)
        moved = optimizer.step(rng.standard_normal(1000).astype(dtype))
        assert isinstance(moved, float)
        rel = 1e-12 if dtype == np.float64 else 2.0**-20
        assert moved == pytest.approx(np.sum((optimizer.point - before) ** 2), rel=rel)
    bad = np.zeros(1000, dtype)
    bad[777] = np.nan
    assert math.isnan(optimizer.step(bad))
    assert np.flatnonzero(np.isnan(optimizer.theta)).tolist() == [777]


@EACH
@DTYPES
def test_step_keeps_arrays_in_place(method, dtype):
    optimizer = method(0.1) if method is AMSGrad else method(0.1, momentum=0.5)
    theta0, gradient = np.array([1, 2, 3], dtype), np.ones(3, dtype)
    optimizer.reset(np.repeat(theta0, 2)[::2])
    theta, point = optimizer.theta, optimizer.point
    for _ in range(3):
        optimizer.step(np.repeat(gradient, 2)[::2])
    other = copy.deepcopy(optimizer)
    other.reset(theta0)
    for _ in range(3):
        other.step(gradient)
    np.testing.assert_array_equal(theta, other.theta)
    assert optimizer.theta is theta
    assert optimizer.point is point
    assert theta.dtype == point.dtype == dtype
    assert not np.array_equal(theta, theta0)
    np.testing.assert_array_equal(theta0, [1, 2, 3])
    np.testing.assert_array_equal(gradient, 1)


@pytest.mark.parametrize("optimizer", FIVE, ids=repr)
def test_reset_forgets(optimizer):
    theta0 = np.array([1.0, -1.0])
    first = run(optimizer, theta0, lambda x: 2 * x, 10)
    np.testing.assert_array_equal(run(optimizer, theta0, lambda x: 2 * x, 10), first)


def test_repr_round_trips():
    made = SGD(0.1, 0.9), Nesterov(0.1), Nesterov(0.1, 0.9), AMSGrad(0.1, 0.5, 0.75, 1e-3)
    for optimizer in made:
        again = eval(repr(optimizer))
        assert type(again) is type(optimizer)
        assert vars(again) == vars(optimizer)


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        *((method, "lr", value) for method in (SGD, Nesterov, AMSGrad) for value in (0, math.inf)),
        *((method, "momentum", value) for method in (SGD, Nesterov) for value in (-0.1, 1)),
        *((AMSGrad, name, value) for name in ("beta1", "beta2") for value in (-0.5, 1)),
        (AMSGrad, "epsilon", 0),
    ],
)
def test_parameters_refused(method, name, value):
    with pytest.raises(ValueError, match=f"{name} must .*not {value}"):
        method(**({"lr": 0.1} | {name: value}))


def test_reset_refuses_an_epsilon_that_theta_cannot_hold():
    optimizer = AMSGrad(epsilon=1e-40)
    optimizer.reset(np.ones(2))
    with pytest.raises(ValueError, match=r"epsilon must be at least 1\.17.*e-38 .* float32"):
        optimizer.reset(np.zeros(2, np.float32))
    np.testing.assert_array_equal(optimizer.theta, 1)


@EACH
def test_step_without_a_run(method):
    optimizer = method(0.1)
    for use in (
        lambda: optimizer.theta,
        lambda: optimizer.point,
        lambda: optimizer.step(np.ones(2)),
    ):
        with pytest.raises(RuntimeError, match=rf"{method.__name__}: reset\(theta0\) begins a run"):
            use()


@EACH
@pytest.mark.parametrize(
    ("theta0", "error", "message"),
    [
        ([0, 1], TypeError, "theta0 .*, got int64"),
        (np.zeros(3, np.float16), TypeError, "theta0 .*, got float16"),
        (np.zeros(3, ">f8"), TypeError, "theta0 .*, got >f8"),
        (np.zeros((3, 1)), ValueError, r"theta0 .*, got shape \(3, 1\)"),
        (np.array([0, np.nan]), ValueError, "theta0 holds NaN"),
    ],
)
def test_reset_refuses_theta0(method, theta0, error, message):
    with pytest.raises(error, match=message):
        method(0.1).reset(theta0)


@EACH
@pytest.mark.parametrize("gradient", [np.ones((3, 1)), np.ones(3, np.float32)])
def test_step_refused_changes_nothing(method, gradient):
    optimizer = method(0.1)
    optimizer.reset(np.ones(3))
    with pytest.raises((TypeError, ValueError), match="gradient must"):
        optimizer.step(gradient)
    np.testing.assert_array_equal(optimizer.theta, 1)
    np.testing.assert_array_equal(optimizer.point, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 5, 6, 7, 15, 16, 21, 103])
def test_step_wherever_vectors_lie(dtype, size):
    """Side by side or far apart, in any order, steps and distances agree to the last bit."""
    rng = np.random.default_rng(size)
    given = [rng.standard_normal(size).astype(dtype) for _ in range(4)]
    given[2] = abs(given[2])
    calls = {
        "sgd": lambda a, b, c, d: kernels.sgd(a, b, d, 0.3, 0.5),
        "plain sgd": lambda a, b, c, d: kernels.sgd(a, None, d, 0.3, 0.0),
        "nesterov": lambda a, b, c, d: kernels.nesterov(a, b, d, 0.3, 0.7),
        "amsgrad": lambda a, b, c, d: kernels.amsgrad(a, b, c, d, 0.01, 0.9, 0.999, 1e-8),
        "replace": lambda a, b, c, d: kernels.replace(a, b, c),
        "replace alone": lambda a, b, c, d: kernels.replace(a, b, None),
        "distance": lambda a, b, c, d: kernels.square_distance(a, b),
    }
    for name, call in calls.items():
        seen = set()
        for gaps in ([0] * 4, [1] * 4, [0, 2, 1, 3], [64] * 4, [200, 8, 0, 90]):
            for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
                memory = np.zeros(4 * size + 300, dtype)
                starts = np.cumsum(gaps) + size * np.arange(4)
                vectors = [memory[starts[at] : starts[at] + size] for at in order]
                for vector, values in zip(vectors, given, strict=True):
                    vector[:] = values
                moved = call(*vectors)
                seen.add((float(moved).hex(), *(vector.tobytes() for vector in vectors)))
        assert len(seen) == 1, name
