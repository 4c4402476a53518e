"""Optimizers: iterates against closed forms on quadratics, and the accelerated rate."""

import math
import pickle

import numpy as np
import pytest

from fastgc.optimizers import SGD, Nesterov

pytestmark = pytest.mark.any_backend

BOTH = pytest.mark.parametrize("method", [SGD, Nesterov])


def run(optimizer, theta0, gradient, rounds):
    """Iterates theta_0 .. theta_rounds."""
    optimizer.reset(theta0)
    iterates = [optimizer.theta.copy()]
    for _ in range(rounds):
        optimizer.step(gradient(optimizer.point))
        iterates.append(optimizer.theta.copy())
    return np.array(iterates)


def two_term_recurrence(trace, determinant, start, rounds):
    """x_k with x_{k+1} = trace x_k - determinant x_{k-1} and x_{-1} = x_0, by the roots."""
    roots = np.roots([1, -trace, determinant]).astype(complex)
    weights = np.linalg.solve([[1, 1], 1 / roots], [start, start])
    return ((roots[:, None] ** np.arange(rounds + 1)) * weights[:, None]).sum(axis=0).real


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_sgd_closed_form(momentum):
    curvature, lr = np.array([0.3, 2.0, 7.0]), 0.11
    theta0 = np.array([1.0, -2.0, 0.5])
    iterates = run(SGD(lr, momentum), theta0, lambda x: curvature * x, 60)
    for column, c, start in zip(iterates.T, curvature, theta0, strict=True):
        if momentum:
            exact = two_term_recurrence(1 + momentum - lr * c, momentum, start, 60)
        else:
            exact = start * (1 - lr * c) ** np.arange(61)
        np.testing.assert_allclose(column, exact, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.3, 0.9])
def test_nesterov_fixed_momentum_closed_form(momentum):
    curvature, lr = np.array([0.3, 2.0, 7.0]), 0.11
    theta0 = np.array([1.0, -2.0, 0.5])
    iterates = run(Nesterov(lr, momentum), theta0, lambda x: curvature * x, 60)
    for column, c, start in zip(iterates.T, curvature, theta0, strict=True):
        shrink = 1 - lr * c
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


def test_nesterov_keeps_its_bound_where_gradient_descent_does_not():
    # Nesterov's worst function: the bound 2 L |x_0 - x*|^2 / (k + 1)^2 is tight to a constant.
    p, L = 200, 4.0
    A = 2 * np.eye(p) - np.eye(p, k=1) - np.eye(p, k=-1)
    b = np.eye(p)[0]
    best = np.linalg.solve(A, b)

    def excess(x):
        return np.einsum("ki,ij,kj->k", x - best, A, x - best) / 2

    rounds = 400
    bound = 2 * L * (best @ best) / (np.arange(rounds + 1) + 1) ** 2
    accelerated, plain = (
        excess(run(optimizer, np.zeros(p), lambda x: A @ x - b, rounds))
        for optimizer in (Nesterov(1 / L), SGD(1 / L))
    )
    assert np.all(accelerated <= bound)
    assert accelerated[-1] < plain[-1] / 20


def test_nesterov_fixed_momentum_converges_linearly():
    curvature = np.geomspace(1e-4, 1, 30)
    root = math.sqrt(1e4)
    momentum = (root - 1) / (root + 1)
    theta0 = np.ones(30)
    iterates = run(Nesterov(1.0, momentum), theta0, lambda x: curvature * x, 1500)
    # Nesterov's bound: f_k <= (f_0 + mu |x_0|^2 / 2) (1 - 1 / sqrt(kappa))^k.
    excess = (curvature * iterates**2).sum(axis=1) / 2
    bound = (excess[0] + 1e-4 * 30 / 2) * (1 - 1 / root) ** np.arange(1501)
    assert np.all(excess <= bound)


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_keep_type_and_place(method, dtype):
    optimizer = method(0.1, momentum=0.5)
    theta0 = np.array([1, 2, 3], dtype)
    optimizer.reset(theta0)
    theta, point = optimizer.theta, optimizer.point
    gradient = np.ones(3, dtype)
    for _ in range(3):
        optimizer.step(gradient)
    assert optimizer.theta is theta
    assert optimizer.point is point
    assert theta.dtype == point.dtype == dtype
    assert not np.array_equal(theta, theta0)
    np.testing.assert_array_equal(theta0, [1, 2, 3])
    np.testing.assert_array_equal(gradient, 1)


@pytest.mark.parametrize("optimizer", [SGD(0.1, 0.9), Nesterov(0.1), Nesterov(0.1, 0.9)], ids=repr)
def test_reset_forgets(optimizer):
    theta0 = np.array([1.0, -1.0])
    first = run(optimizer, theta0, lambda x: 2 * x, 10)
    np.testing.assert_array_equal(run(optimizer, theta0, lambda x: 2 * x, 10), first)


@pytest.mark.parametrize("optimizer", [SGD(0.1, 0.9), Nesterov(0.1)], ids=repr)
def test_pickled_mid_run_goes_on_the_same(optimizer):
    run(optimizer, np.array([1.0, -1.0]), lambda x: 2 * x, 5)
    copy = pickle.loads(pickle.dumps(optimizer))
    for each in (optimizer, copy):
        for _ in range(5):
            each.step(2 * each.point)
    np.testing.assert_array_equal(copy.theta, optimizer.theta)
    assert not np.shares_memory(copy.theta, optimizer.theta)


def test_repr_round_trips():
    for optimizer in (SGD(0.1), SGD(0.1, 0.9), Nesterov(0.1), Nesterov(0.1, momentum=0.9)):
        again = eval(repr(optimizer))
        assert type(again) is type(optimizer)
        assert (again.lr, again.momentum) == (optimizer.lr, optimizer.momentum)


@BOTH
@pytest.mark.parametrize("lr", [0, -1, math.inf, math.nan])
def test_lr_rejected(method, lr):
    with pytest.raises(ValueError, match="lr must be positive and finite"):
        method(lr)


@BOTH
@pytest.mark.parametrize("momentum", [-0.1, 1, math.nan])
def test_momentum_rejected(method, momentum):
    with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\)"):
        method(0.1, momentum)


@BOTH
def test_no_run_begun(method):
    optimizer = method(0.1)
    for use in (
        lambda: optimizer.theta,
        lambda: optimizer.point,
        lambda: optimizer.step(np.ones(2)),
    ):
        with pytest.raises(RuntimeError, match=rf"{method.__name__}: reset\(theta0\) begins a run"):
            use()


@BOTH
@pytest.mark.parametrize(
    ("theta0", "error", "message"),
    [
        (np.zeros(3, int), TypeError, "theta0 must be an array of floats, got int64"),
        ([0.0, 1.0], TypeError, "theta0 must be an array of floats, got <class 'list'>"),
        (np.zeros(3, complex), TypeError, "theta0 must be an array of floats, got complex128"),
        (np.zeros((3, 1)), ValueError, r"theta0 must be one-dimensional, got shape \(3, 1\)"),
        (np.array([0, np.nan]), ValueError, "theta0 holds NaN or Inf"),
    ],
)
def test_theta0_rejected(method, theta0, error, message):
    with pytest.raises(error, match=message):
        method(0.1).reset(theta0)


@BOTH
@pytest.mark.parametrize("shape", [(2,), (3, 1), ()])
def test_gradient_of_another_shape_changes_nothing(method, shape):
    optimizer = method(0.1)
    optimizer.reset(np.ones(3))
    with pytest.raises(ValueError, match=r"gradient has shape .*, theta \(3,\)"):
        optimizer.step(np.ones(shape))
    np.testing.assert_array_equal(optimizer.theta, 1)
    np.testing.assert_array_equal(optimizer.point, 1)
