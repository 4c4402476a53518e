"""Optimizers: iterates agree with closed forms on quadratics, rates with theory, and AMSGrad with
its equations, written down again, and with torch's.
"""

import array
import math
import pickle

import mpmath
import numpy as np
import pytest

from fastgc import kernels
from fastgc.training.optimizers import SGD, AMSGrad, Nesterov

EACH = pytest.mark.parametrize("method", [SGD, Nesterov, AMSGrad])
BOTH_WITH_MOMENTUM = pytest.mark.parametrize("method", [SGD, Nesterov])
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


def test_nesterov_keeps_its_bound():
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


def transcription(theta, gradients, lr, beta1, beta2, epsilon):
    """Yield theta_1, theta_2, ... by equations 8a to 8c in NumPy."""
    h, v_hat = np.zeros_like(theta), np.zeros_like(theta)
    for gradient in gradients:
        h = beta1 * h + (1 - beta1) * gradient
        v = beta2 * v_hat + (1 - beta2) * gradient**2
        v_hat = np.maximum(v_hat, v)
        theta = theta - lr * (epsilon + v_hat) ** -0.5 * h
        yield theta


@DTYPES
def test_amsgrad_over_a_thousand_steps(dtype):
    rng = np.random.default_rng(0)
    sizes = np.geomspace(1e-3, 1e3, 37) * rng.exponential(size=(1000, 1))  # below, above epsilon
    gradients = (sizes * (rng.standard_normal((1000, 37)) + 0.3)).astype(dtype)
    theta0 = rng.standard_normal(37).astype(dtype)
    optimizer = AMSGrad(lr=0.01, beta1=0.9, beta2=0.99, epsilon=1e-6)
    optimizer.reset(theta0)
    unit, scale = np.finfo(dtype).eps / 2, np.abs(theta0).max()
    for k, (gradient, theta) in enumerate(
        zip(gradients, transcription(theta0, gradients, 0.01, 0.9, 0.99, 1e-6), strict=True), 1
    ):
        assert theta.dtype == dtype
        optimizer.step(gradient)
        # Each step rounds theta once on both sides, and itself, at most 0.1 long, a few times.
        scale = max(scale, np.abs(theta).max())
        assert np.abs(optimizer.theta - theta).max() <= unit * k * (2 * scale + 10 * 0.1)
    assert scale > 1  # theta moved


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


def test_amsgrad_closed_form():
    """For a constant gradient, h_k = (1 - beta1^k) g and v_k = (1 - beta2^k) g^2."""
    g, k = np.array([0.3, -2.0, 1e-5]), np.arange(1, 41)[:, None]
    iterates = run(AMSGrad(0.1, 0.9, 0.99, 1e-8), np.zeros(3), lambda x: g, 40)
    steps = 0.1 * (1 - 0.9**k) * g / np.sqrt(1e-8 + (1 - 0.99**k) * g**2)
    np.testing.assert_allclose(iterates[1:], -np.cumsum(steps, axis=0), rtol=1e-12)


def torch_iterates(theta0, gradients, lr, beta1, beta2, correct):
    """Return iterates of torch's Adam(amsgrad=True) without epsilon; `correct`: bias correction."""
    torch = pytest.importorskip("torch")
    theta = torch.tensor(theta0, requires_grad=True)
    adam = torch.optim.Adam([theta], lr=lr, betas=(beta1, beta2), eps=0.0, amsgrad=True)
    for k, gradient in enumerate(gradients, 1):
        if not correct:
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
    theirs = torch_iterates(theta0, gradients, 0.01, 0.9, 0.99, correct=False)
    for gradient, theta in zip(gradients, theirs, strict=True):
        optimizer.step(gradient)
        assert np.abs(optimizer.theta - theta).max() <= 200 * np.finfo(dtype).eps


def test_amsgrad_has_no_bias_correction():
    """First steps differ: torch's have length lr for any gradient."""
    gradients = np.array([[3.0, -0.01]])
    optimizer = AMSGrad(0.01, 0.9, 0.96, 1e-300)
    ours = run(optimizer, np.zeros(2), lambda x: gradients[0], 1)[1]
    (theirs,) = torch_iterates(np.zeros(2), gradients, 0.01, 0.9, 0.96, correct=True)
    np.testing.assert_allclose(theirs, [-0.01, 0.01], rtol=1e-13)
    np.testing.assert_allclose(ours, theirs * (1 - 0.9) / math.sqrt(1 - 0.96), rtol=1e-13)


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
    theirs = [0.0, *(x[0] for x in torch_iterates(np.zeros(1), gradients, 1.0, 0.0, 0.5, False))]
    np.testing.assert_allclose(np.diff(theirs) ** 2, [2, 0, 8 / 5], rtol=1e-14)


def test_amsgrad_weights_near_one():
    """1 - beta is computed before rounding: either beta would round to 1 in float32."""
    rest, lr, gradient = 2.0**-30, 0.5, 3.0
    optimizer = AMSGrad(lr, 1 - rest, 1 - rest, epsilon=1e-9)
    optimizer.reset(np.zeros(20, np.float32))
    optimizer.step(np.full(20, gradient, np.float32))
    expected = -lr * rest * gradient / math.sqrt(1e-9 + rest * gradient**2)
    np.testing.assert_allclose(optimizer.theta, expected, rtol=1e-6)


def test_amsgrad_lr_may_change():
    gradients = np.random.default_rng(3).standard_normal((20, 4))
    optimizer, fixed = AMSGrad(0.5), AMSGrad(1.0)
    optimizer.reset(np.zeros(4))
    fixed.reset(np.zeros(4))
    theta = np.zeros(4)
    for k, gradient in enumerate(gradients, 1):
        before = fixed.theta.copy()
        fixed.step(gradient)
        theta += (fixed.theta - before) / math.sqrt(k)
        optimizer.lr = 1 / math.sqrt(k)
        optimizer.step(gradient)
    np.testing.assert_allclose(optimizer.theta, theta, rtol=1e-12)


@DTYPES
@pytest.mark.parametrize(
    "optimizer",
    [SGD(0.1), SGD(0.1, 0.9), Nesterov(0.1), Nesterov(0.1, 0.9), AMSGrad(0.1)],
    ids=repr,
)
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
def test_step_of_strided_gradients(method, dtype):
    pairs = np.random.default_rng(5).standard_normal((10, 6, 2)).astype(dtype)
    optimizers = [method(0.1), method(0.1)]
    for each, gradients in zip(optimizers, (pairs[..., 1], pairs[..., 1].copy()), strict=True):
        each.reset(np.ones(12, dtype)[::2])
        for gradient in gradients:
            each.step(gradient)
    np.testing.assert_array_equal(optimizers[0].theta, optimizers[1].theta)


@EACH
@DTYPES
def test_step_keeps_arrays_in_place(method, dtype):
    optimizer = method(0.1) if method is AMSGrad else method(0.1, momentum=0.5)
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


@pytest.mark.parametrize(
    "optimizer", [SGD(0.1, 0.9), Nesterov(0.1), Nesterov(0.1, 0.9), AMSGrad(0.1)], ids=repr
)
def test_reset_forgets(optimizer):
    theta0 = np.array([1.0, -1.0])
    first = run(optimizer, theta0, lambda x: 2 * x, 10)
    np.testing.assert_array_equal(run(optimizer, theta0, lambda x: 2 * x, 10), first)


@pytest.mark.parametrize("optimizer", [SGD(0.1, 0.9), Nesterov(0.1), AMSGrad(0.1)], ids=repr)
def test_step_after_pickling(optimizer):
    run(optimizer, np.array([1.0, -1.0]), lambda x: 2 * x, 5)
    copy = pickle.loads(pickle.dumps(optimizer))
    for each in (optimizer, copy):
        for _ in range(5):
            each.step(2 * each.point)
    np.testing.assert_array_equal(copy.theta, optimizer.theta)
    assert not np.shares_memory(copy.theta, optimizer.theta)


def test_repr_round_trips():
    for optimizer in (
        SGD(0.1),
        SGD(0.1, 0.9),
        Nesterov(0.1),
        Nesterov(0.1, momentum=0.9),
        AMSGrad(),
        AMSGrad(0.1, 0.5, 0.75, 1e-3),
    ):
        again = eval(repr(optimizer))
        assert type(again) is type(optimizer)
        assert vars(again) == vars(optimizer)


@pytest.mark.parametrize("method", [SGD, Nesterov, AMSGrad])
def test_step_of_other_memory(method):
    optimizer, gradient = method(0.1), array.array("d", [1.0, -2.0])
    optimizer.reset(array.array("d", [0.5, 0.25]))
    expected = method(0.1)
    expected.reset(np.array([0.5, 0.25]))
    assert optimizer.step(gradient) == expected.step(np.array([1.0, -2.0]))
    np.testing.assert_array_equal(optimizer.theta, expected.theta)


@EACH
@pytest.mark.parametrize("lr", [0, -1, math.inf, math.nan])
def test_lr_refused(method, lr):
    with pytest.raises(ValueError, match="lr must be"):
        method(lr)


def test_lr_of_another_type():
    with pytest.raises(TypeError, match=r"lr must .*not '0\.1'"):
        AMSGrad("0.1")


@BOTH_WITH_MOMENTUM
@pytest.mark.parametrize("momentum", [-0.1, 1, math.nan])
def test_momentum_refused(method, momentum):
    with pytest.raises(ValueError, match=rf"momentum must .*, not {momentum}"):
        method(0.1, momentum)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"beta1": 1}, r"beta1 must lie in \[0, 1\), not 1"),
        ({"beta2": 1.5}, r"beta2 must lie in \[0, 1\), not 1.5"),
        ({"beta2": -0.5}, "beta2 must .*not -0.5"),
        ({"epsilon": 0}, "epsilon must .*not 0"),
        ({"epsilon": math.nan}, "epsilon must .*not nan"),
    ],
)
def test_amsgrad_refused(given, message):
    with pytest.raises(ValueError, match=message):
        AMSGrad(**given)


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
        (np.zeros(3, int), TypeError, "theta0 must be an array of float32 or float64, got int64"),
        ([0, 1], TypeError, "theta0 must be an array of .*, got int64"),
        ("zero", TypeError, "theta0 must be an array of .*, got <U4"),
        (np.zeros(3, complex), TypeError, "theta0 must be an array of .*, got complex128"),
        (np.zeros(3, np.float16), TypeError, "theta0 must be an array of .*, got float16"),
        (np.zeros(3, ">f8"), TypeError, "theta0 must be an array of .*, got >f8"),
        (np.zeros((3, 1)), ValueError, r"theta0 must be one-dimensional, got shape \(3, 1\)"),
        (np.array([0, np.nan]), ValueError, "theta0 holds NaN or Inf"),
    ],
)
def test_reset_refuses_theta0(method, theta0, error, message):
    with pytest.raises(error, match=message):
        method(0.1).reset(theta0)


@EACH
@pytest.mark.parametrize(
    ("gradient", "error", "message"),
    [
        (np.ones(2), ValueError, r"gradient must have shape \(3,\), not \(2,\)"),
        (np.ones((3, 1)), ValueError, r"gradient must have shape \(3,\), not \(3, 1\)"),
        (np.ones(()), ValueError, r"gradient must have shape \(3,\), not \(\)"),
        (np.ones(3, np.float32), TypeError, "gradient must have dtype float64, not float32"),
        (np.ones(3, complex), TypeError, "gradient must have dtype float64, not complex128"),
    ],
)
def test_step_refused_changes_nothing(method, gradient, error, message):
    optimizer = method(0.1)
    optimizer.reset(np.ones(3))
    with pytest.raises(error, match=message):
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
