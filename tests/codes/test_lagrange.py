"""Lagrange coded computing: thresholds, coded data, nodes, precision."""

import contextlib
import warnings

import mpmath
import numpy as np
import pytest
from strength import much
from tables import Job

import fastgc
from fastgc import InstabilityWarning, LagrangeCode, ReedSolomon, interpolation, stability
from fastgc.delays import Exponential
from fastgc.engines import SimulatedCluster
from fastgc.errors import NotDecodableError
from fastgc.training.models import least_squares_gradient


def random_data(samples, features, outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(samples if outputs is None else (samples, outputs))
    return rng.standard_normal((samples, features)), y


def sent(code, shards, theta):
    """Return all messages, in the order of their numbers."""
    computed = [code.compute(shard, theta) for shard in shards]
    return [
        code.encode(worker, [computed[j] for j in code.partitions(worker, index)], index=index)
        for worker, index in map(code.scheme.messages.sender, range(code.scheme.messages.count))
    ]


@pytest.mark.few(6)
@pytest.mark.parametrize("N", much(range(1, 31), [1, 2, 3, 4, 5, 6, 8, 9, 12, 17, 24]))
def test_thresholds_of_the_paper(N):
    for r in range(1, N + 1):
        needed = 2 * -(-N // r) - 1
        if needed <= N:
            assert LagrangeCode(N, load=r).threshold == needed  # K_LCC(r)
        else:
            with pytest.raises(ValueError, match=f"{needed} messages are needed, but {N} workers"):
                LagrangeCode(N, load=r)
        if N * r >= 2 * N - 1:
            assert LagrangeCode(N, load=r, messages=r).threshold == 2 * N - 1  # LCC-MMC
        if r % 2 == 0 and N > 1:
            code = LagrangeCode(N, load=r, messages=r // 2)  # LCC-MMC-2
            assert code.threshold == 2 * -(-N // 2) - 1
            assert code.scheme.messages.count == N * r // 2


def test_workers_compute_the_polynomials():
    """Eqs. (4) and (6): coded rows are values of Lagrange polynomials; zeros pad blocks."""
    alpha, beta = np.array([0.0, 1.0, 3.0]), np.array([-1.0, 2.0, 4.0, 5.0, 7.0, 0.5])
    code = LagrangeCode(6, 5, load=2, nodes=(alpha, beta))
    X, y = random_data(13, 2)
    shards = code.encode_data(X, y)
    blocks_X, blocks_y = np.zeros((6, 3, 2)), np.zeros((6, 3))  # ceil(13 / 5) rows; a sixth block
    blocks_X.reshape(-1, 2)[:13] = X
    blocks_y.reshape(-1)[:13] = y
    for worker in range(6):
        z = beta[worker]
        value = np.zeros(2)
        for polynomial, j in enumerate(code.partitions(worker)):
            f = np.zeros((3, 2))
            for i in range(3):
                others = [m for m in range(3) if m != i]
                basis = np.prod([(z - alpha[m]) / (alpha[i] - alpha[m]) for m in others])
                f += basis * blocks_X[3 * polynomial + i]
            np.testing.assert_allclose(shards[j][0], f, atol=1e-12)
            assert shards[j][1].shape == (3,)
            theta = np.array([1.0, -2.0])
            value += code.compute(shards[j], theta)
            residual = f @ theta - shards[j][1]
            np.testing.assert_allclose(code.compute(shards[j], theta), f.T @ residual)
        partials = [code.compute(shards[j], theta) for j in code.partitions(worker)]
        np.testing.assert_allclose(code.encode(worker, partials), value)


@pytest.mark.few(16)
@pytest.mark.parametrize("nodes", ["chebyshev", "roots"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("outputs", [None, 1, 3])
@pytest.mark.parametrize("samples", [5, 6, 11, 100])
def test_the_gradient_of_least_squares(nodes, dtype, outputs, samples):
    code = LagrangeCode(8, 5, load=4, messages=2, nodes=nodes)
    X, y = (a.astype(dtype) for a in random_data(samples, 4, outputs))
    theta = np.random.default_rng(1).standard_normal(4 * (outputs or 1)).astype(dtype)
    shards = code.encode_data(X, y)
    expected = np.complex64 if dtype == np.float32 else np.complex128
    assert shards[0][0].dtype == (dtype if nodes == "chebyshev" else expected)
    form = code.scheme.format(1, dtype)
    assert form.partial_dtype == form.message_dtype == shards[0][0].dtype
    received, messages = code.round(theta.size, dtype), sent(code, shards, theta)
    due = [iter(messages[2 * i : 2 * i + 2]) for i in range(8)]
    for worker in np.random.default_rng(2).permutation(np.repeat(range(8), 2)).tolist():
        if received.receive(worker, next(due[worker])):
            break
    gradient = received.gradient()
    assert gradient.dtype == dtype
    truth = X.astype(float).T @ (X.astype(float) @ theta.reshape(4, -1) - y.reshape(samples, -1))
    error = np.linalg.norm(gradient - truth.ravel()) / np.linalg.norm(truth)
    assert error < 30 * received.trust().relative_error


def test_complex_gradients_of_complex_data():
    """This needs real nodes, as h has no conjugates."""
    code = LagrangeCode(5, load=2)
    rng = np.random.default_rng(0)
    X, y = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for shape in ((10, 2), 10))
    theta = np.array([1 + 1j, 2.0])
    gradient = code.decode(range(5), sent(code, code.encode_data(X, y), theta))
    np.testing.assert_allclose(gradient, X.T @ (X @ theta - y), atol=1e-10)
    with pytest.raises(TypeError, match="real nodes"):
        LagrangeCode(5, load=2, nodes="roots").round(3, np.complex128)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 0}, "n=0"),
        ({"load": 3, "messages": 2}, "messages must divide load"),
        ({"messages": 0}, "messages must divide load"),
        ({"load": 1}, "7 messages are needed, but 4 workers send 4"),
        ({"nodes": "equispaced"}, "nodes must be .*equispaced"),
        ({"nodes": None}, "nodes must be .*None"),
        ({"nodes": ([0, 1],)}, "nodes must be"),
        ({"nodes": ([0, 1, 2], [3, 4, 5, 6])}, "alpha must be 2 numbers"),
        ({"nodes": ([0, 1], [3, 4, 5])}, "beta must be 4 numbers"),
        ({"nodes": ([0, 1], [3, 4, 3, 6])}, "nodes must be distinct"),
    ],
)
def test_impossible(arguments, says):
    with pytest.raises(ValueError, match=says):
        LagrangeCode(**{"n": 4, "load": 2} | arguments)


def test_data_that_do_not_fit():
    code, roots = LagrangeCode(4, load=2), LagrangeCode(4, load=2, nodes="roots")
    X, y = random_data(8, 2)
    for each, data, error, says in (
        (code, (X, y[:7]), ValueError, "8 samples but 7 labels"),
        (code, (X[:3], y[:3]), ValueError, "3 samples cannot be cut into k = 4"),
        (code, (np.ones((8, 2), dtype=int), y), TypeError, "X must be floating-point"),
        (roots, (X + 0j, y), TypeError, "complex data need real nodes"),
        (code, (X, y + 0j), TypeError, "y is complex, but X is float64"),
    ):
        with pytest.raises(error, match=says):
            each.encode_data(*data)
    with pytest.raises(ValueError, match="read-only"):
        code.alpha[0] = 5
    with pytest.raises(ValueError, match="theta"):
        code.compute((X, y), np.ones(3))


UNIT = interpolation.roots_of_unity(8)


@pytest.mark.parametrize(
    ("code", "few"),
    [
        (LagrangeCode(12, 4, load=1, nodes="roots"), 5),
        (LagrangeCode(7, 3, load=1, nodes="roots"), 3),
        (LagrangeCode(20, 8, load=1, nodes="roots"), 13),
        (LagrangeCode(10, 6, load=4, messages=4, nodes="roots"), 9),
        (LagrangeCode(15, 5, load=1), 9),
        (LagrangeCode(8, 4, load=1, nodes=(UNIT[:4], UNIT * np.exp(0.3j))), 5),
        (LagrangeCode(9, 4, load=1, nodes=(np.arange(4.0), np.arange(9.0))), 7),
    ],
    ids=repr,
)
def test_messages_are_decodable_if_nothing_is_left_of_them(code, few):
    """Fewer than rounds wait for: if the gradient is real, or points lie well."""
    rng, job, count = np.random.default_rng(0), Job(code, seed=1), code.scheme.messages.count
    points, sent = code.alpha.size, code.scheme.messages
    at_points = [m for m in range(count) if np.abs(code.alpha - code.beta[m]).min() < 1e-12]
    sets = [rng.permutation(count)[:f] for f in range(1, code.threshold + 1) for _ in range(8)]
    found = set()
    for F in [*sets, np.array(at_points, dtype=int)][: None if at_points else -1]:
        decodable, rnd = code.decodable(F), code.round(job.p)
        assert decodable == (code.residual(F) < 1e-6)
        for number in F.tolist():
            worker, index = sent.sender(number)
            energy = float(np.linalg.norm(job.messages[number])) ** 2
            ready = rnd.receive(worker, job.messages[number], index, energy=energy)
        assert ready <= rnd.decodable == decodable
        if decodable:
            found.add(F.size)
            error = job.error(rnd.gradient())
            assert error < 30 * rnd.trust().relative_error
            assert np.array_equal(code.decode(F, [job.messages[m] for m in F]), rnd.gradient())
        else:
            with pytest.raises(NotDecodableError):
                rnd.gradient()
    assert few in found
    assert len(at_points) < points or points in found


@pytest.mark.parametrize(
    "code", [LagrangeCode(8, 4, load=1), LagrangeCode(9, 5, load=2, messages=1)], ids=repr
)
def test_what_is_left_of_too_few_messages(code):
    """The residual compares the sum of l_j l_j' x_j x_j'^T theta with that of x_j x_j^T theta."""
    F = np.arange(code.threshold - 1)
    vector, residual = code.best_vector(F)
    basis = interpolation.basis(code.alpha, code.beta[F])
    pairs = np.einsum("m,mi,mj->ij", vector, basis, basis)
    expected = np.linalg.norm(pairs - np.eye(len(pairs))) / np.sqrt(len(pairs))
    assert expected > 0.1
    assert residual == pytest.approx(expected, rel=1e-9)


def test_messages_of_a_worker_are_halfway_between_those_of_others():
    beta = LagrangeCode(5, load=4, messages=4, nodes="roots").beta
    place = np.rint(np.angle(beta) % (2 * np.pi) * 20 / (2 * np.pi) - 0.5).astype(int)
    assert sorted(place) == list(range(20))
    assert (place.reshape(5, 4) % 4).tolist() == [[0, 2, 1, 3]] * 5
    # Real points beside complex ones are complex, too.
    assert LagrangeCode(3, 2, load=1, nodes=([1j, -1j], [0.0, 1, 2])).beta.dtype == complex


# ----------------------------------------------------------- several messages, of partial rounds


def delivered(code, rng):
    """Return the numbers of all messages in the order in which they come.

    Workers' speeds follow the paper's eq. (12) with alpha = 0.01 and mu = 10: in each round, one
    random time for all computations of a worker.
    """
    each = 0.01 + rng.exponential(0.1, code.n)
    times = np.arange(1, code.scheme.messages.per_worker + 1) * each[:, None]
    return np.argsort(times.ravel(), kind="stable").tolist(), np.sort(times.ravel())


@pytest.mark.few(2)
@pytest.mark.parametrize("nodes", ["chebyshev", "roots"])
@pytest.mark.parametrize("load", [4, 40])
def test_rounds_wait_for_messages_they_decode_well(load, nodes):
    """At the paper's N = 40, the gradient from the first 2 N - 1 messages may be nonsense."""
    rng = np.random.default_rng(load)
    X, y = random_data(120, 3)
    theta = rng.standard_normal(3)
    truth = least_squares_gradient(theta, X, y)
    code = LagrangeCode(40, load=load, messages=load, nodes=nodes)
    with pytest.warns(InstabilityWarning, match="in one round of a thousand the gradient's rel"):
        paper = LagrangeCode(40, load=load, messages=load, nodes=nodes, limit=None)
    messages = sent(code, code.encode_data(X, y), theta)
    errors, ours, theirs, ratios = [], 0.0, 0.0, []
    rnd, first = code.round(3), paper.round(3)
    lost = 0
    for _ in range(much(2000, 300)):
        order, times = delivered(code, rng)
        for each in (rnd, first):
            each.reset()
            for m in order:
                worker, index = code.scheme.messages.sender(m)
                if each.receive(worker, messages[m], index):
                    break
        assert first.survivors.size == code.threshold == 79
        assert rnd.decodable
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = rnd.gradient()
        errors.append(np.linalg.norm(found - truth) / np.linalg.norm(truth))
        ratios.append(errors[-1] / rnd.trust().relative_error)
        with contextlib.suppress(OverflowError):
            lost += np.linalg.norm(first.gradient() - truth) > 1e-6 * np.linalg.norm(truth)
        ours += times[rnd.survivors.size - 1]
        theirs += times[78]
    assert max(errors) < 1e-6
    assert 0.1 < np.median(ratios) < 2
    assert max(ratios) < 10
    assert ours < 1.03 * theirs
    assert lost > 0 or nodes == "roots"


def test_a_round_waits_for_no_more_workers_than_it_tolerates_to_lose():
    """Only the messages of n - s workers may ever come, however badly they decode."""
    line = np.linspace(-1, 1, 32)
    code = LagrangeCode(8, 8, load=4, messages=4, nodes=(np.linspace(-1, 1, 8) + 0.01, line))
    assert code.stragglers == 4  # 16 messages come, and 15 suffice
    X, y = random_data(16, 2)
    theta = np.ones(2)
    messages, rnd = sent(code, code.encode_data(X, y), theta), code.round(2)
    for m in range(16):
        ready = rnd.receive(m // 4, messages[m])
        assert rnd.decodable == (m >= 14)
        assert ready == (m == 15)
    with pytest.warns(InstabilityWarning, match="from these 16 messages has a relative") as said:
        found = rnd.gradient()
    assert [warning.filename for warning in said] == [__file__]
    truth = least_squares_gradient(theta, X, y)
    error = np.linalg.norm(found - truth) / np.linalg.norm(truth)
    assert rnd.trust().relative_error > 1e-7
    assert error < 30 * rnd.trust().relative_error
    with pytest.warns(InstabilityWarning, match="15 messages") as said:
        code.bind(np.array(messages))(range(15))
    assert [warning.filename for warning in said] == [__file__]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_what_a_round_waits_for_depends_on_the_messages(dtype):
    """Messages of lower precision can bear less growth: half of their digits."""
    code = LagrangeCode(20, load=4, messages=4)
    survivors = np.sort(np.random.default_rng(1).permutation(80)[:45])
    limits = {}
    for kind in (np.float64, dtype):
        form = code.scheme.format(3, np.float32 if kind == np.float16 else kind, kind)
        worst = 0.0
        rng = np.random.default_rng(0)
        for _ in range(300):
            order, _ = delivered(code, rng)
            survivors = np.array(order[:42])
            vector = code.scheme.vector(survivors)
            if not code.scheme.gate.doubt(survivors, vector, form):
                worst = max(worst, code.trust(survivors).growth)
        limits[kind] = worst
    assert limits[np.float64] > 100 * limits[dtype]


def test_limits_that_are_none():
    for limit, error in ((0.0, ValueError), (-1.0, ValueError), ("x", TypeError)):
        with pytest.raises(error, match="limit"):
            LagrangeCode(6, load=2, messages=2, limit=limit)
    assert not LagrangeCode(6, load=2, messages=2, limit=None).scheme.gate.waits
    assert not LagrangeCode(6, load=2).scheme.gate.waits
    assert LagrangeCode(6, load=2, messages=2).scheme.gate.waits


# ------------------------------------------------------------------------------- convergence


def regression(dtype, noise, shape=(60, 5)):
    rng = np.random.default_rng(3)
    X = rng.standard_normal(shape).astype(dtype)
    y = X @ rng.standard_normal(shape[1]) + noise * rng.standard_normal(len(X))
    return X, y.astype(dtype)


def descent(cluster, code, X, y, rounds):
    """Return the true and the predicted relative error of each round of gradient descent."""
    theta, step = np.zeros(X.shape[1], X.dtype), 1 / np.linalg.norm(X, 2) ** 2
    rnd = code.round(theta.size, X.dtype)
    rows, true = [[*map(mpmath.mpf, row)] for row in X.tolist()], [*map(mpmath.mpf, y.tolist())]
    for _ in range(rounds):
        rnd.reset()
        cluster.collect(theta, rnd)
        gradient = rnd.gradient().copy()
        with mpmath.workprec(5000):  # so many bits hold any sum of products of two floats
            at = [*map(mpmath.mpf, theta.tolist())]
            residuals = [mpmath.fdot(row, at) - each for row, each in zip(rows, true, strict=True)]
            exact = np.array([float(mpmath.fdot(c, residuals)) for c in zip(*rows, strict=True)])
        error = np.linalg.norm(gradient - exact) / np.linalg.norm(exact)
        yield error, rnd.trust().relative_error
        theta = (theta - step * gradient).astype(X.dtype)


def own_gradient(theta, shard, out):
    out[:] = least_squares_gradient(theta, *shard)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({}, "float64"),
        ({}, "float32"),
        ({"nodes": "roots"}, "float64"),
        ({"messages": 3}, "float64"),
    ],
)
def test_trust_sees_what_cancels_in_workers_at_convergence(options, dtype, noise):
    """Coded residuals do not vanish when those of the data do."""
    X, y = regression(dtype, noise)
    code = LagrangeCode(12, 6, load=3, **options)
    shards, delays = code.encode_data(X, y), Exponential(0.01)
    types = {"dtype": X.dtype, "delays": delays, "seed": 1}
    with SimulatedCluster(code, shards, own_gradient, 5, **types) as cluster:
        found = np.array([*descent(cluster, code, X, y, much(200, 60))])
    known = found[:, 1] < 1  # otherwise the gradient is lost
    errors, trusted = found[known].T
    assert known.sum() > 20
    assert errors.max() > 100 * errors[0]
    assert (errors <= 30 * trusted).all()
    assert np.median(trusted / errors) <= 30


def test_what_cancels_is_what_rounding_leaves():
    """It agrees with residuals whose terms have random errors of one rounding."""
    rng = np.random.default_rng(0)
    X, y, theta = rng.standard_normal((40, 6)), rng.standard_normal(40), rng.standard_normal(6)
    X[:5] *= 30
    shaken = rng.standard_normal((2000, 40, 7)) * np.abs(np.c_[X * theta, y])
    errors = shaken.sum(axis=2) @ X
    found = LagrangeCode(4, load=2).scheme.data.cancelling((X, y))(theta)
    assert found == pytest.approx((errors**2).sum(axis=1).mean(), rel=0.1)
    for other in ("what a user made of it", ("X", "y"), (X.tolist(), y), (X, y[:3]), (y, X), None):
        assert LagrangeCode(4, load=2).scheme.data.cancelling(other) is None
    assert ReedSolomon(4, stragglers=1).scheme.data.cancelling((X, y)) is None


@pytest.mark.parametrize("nodes", ["chebyshev", "roots"])
def test_what_is_said_of_precision_takes_no_matrix(nodes, monkeypatch):
    """The result is the same with a few rows at a time of the n by K matrix."""
    F, said = np.random.default_rng(0).permutation(12)[:9], []
    for together in (1 << 20, 7):
        monkeypatch.setattr("fastgc.interpolation._TOGETHER", together)
        scheme = LagrangeCode(12, 7, load=3, nodes=nodes).scheme
        of = scheme.precision
        said.append((of.row_norms, of.row_sums, of.vector_errors(F, scheme.vector(F))))
    for each, same in zip(*said, strict=True):
        np.testing.assert_allclose(each, same, rtol=1e-14)
    code = LagrangeCode(12, 7, load=3, nodes=nodes)
    basis = interpolation.basis(code.alpha, code.beta)
    norms = (np.abs(basis) ** 2).sum(axis=1) ** 2 / code.alpha.size
    np.testing.assert_allclose(said[0][0], norms, rtol=1e-13)
    sums = 3 * np.abs(basis).sum(axis=1) ** 2  # a worker has three polynomials
    np.testing.assert_allclose(said[0][1], sums, rtol=1e-13)


@pytest.mark.parametrize("nodes", ["chebyshev", "roots"])
def test_decoding_vector_takes_messages_that_are_spread(nodes):
    code = LagrangeCode(64, load=9, nodes=nodes)
    silent = np.arange(20, 28)
    F = np.setdiff1d(np.arange(64), silent)
    vector = code.decoding_vector(F)
    assert np.count_nonzero(vector) == code.threshold
    assert stability.measured_error(code, F).relative < 1e-14
    everything = fastgc.interpolation.functional(code.beta[F], code.alpha)
    assert np.linalg.norm(everything) > 1e3 * np.linalg.norm(vector)
