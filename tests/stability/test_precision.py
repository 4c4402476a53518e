"""Amplification, bounds, measured errors, and polynomials around the circle."""

import math
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much
from tables import LARGE, LARGE_IDS, SMALL, SMALL_IDS

import fastgc
from fastgc import (
    BinaryCode,
    CouponCollector,
    CyclicRepetition,
    FractionalRepetition,
    InstabilityWarning,
    LagrangeCode,
    NotDecodableError,
    ReedSolomon,
    Uncoded,
    stability,
)
from fastgc.kernels.pairs import exact_sum
from fastgc.kernels.rows import LARGEST_GROUP, LEAST_GROUP
from fastgc.stability import precision
from fastgc.stability.precision import Experiment, relative_error
from fastgc.stability.search import messages_without
from fastgc.training.models import least_squares_gradient


def decodable_sets(code, rng, count):
    """Yield random sets of messages, each worker's in order, from just enough to all."""
    numbers = np.arange(code.scheme.messages.count)
    found = []
    while len(found) < count:
        silent = rng.permutation(code.n)[: rng.integers(0, code.stragglers + 1)]
        F = messages_without(code, silent)
        found.append(rng.permutation(F if code.decodable(F) else numbers))
    return found


def products(code):
    """Return B, or for codes of the data the products of two basis polynomials; and its target."""
    if code.scheme.data.coded:
        alpha, beta = code.alpha, code.beta
        gaps = alpha[:, None] - alpha + np.eye(alpha.size)
        parts = (beta[:, None, None] - alpha) / gaps  # the j-th polynomial has no factor j
        basis = np.where(np.eye(alpha.size, dtype=bool), 1, parts).prod(axis=2)
        rows = (basis[:, :, None] * basis[:, None, :]).reshape(len(basis), -1)
        return rows, np.eye(basis.shape[1]).ravel(), code.load // code.scheme.messages.per_worker
    return code.matrix(), np.ones(code.k), 1


def largest_deviation(code, survivors, vector):
    return np.abs(code.scheme.precision.deviation(survivors, vector)).max()


@pytest.mark.parametrize("code", SMALL + LARGE[:9], ids=SMALL_IDS + LARGE_IDS[:9])
def test_amplification_and_residual_by_definition(code):
    B, target, weight = products(code)
    for F in decodable_sets(code, np.random.default_rng(1), 5):
        a = code.decoding_vector(F)
        expected = weight * (np.abs(a) @ np.abs(B[F]).sum(axis=1))
        found = stability.amplification(code, F)
        assert found == pytest.approx(expected, rel=1e-12)
        combined = a @ B[F]
        if code.scheme.data.coded or not code.scheme.packed:
            combined = combined.real
        rounding = 4e-16 * len(F) * (np.abs(a) @ np.abs(B[F])).max()
        expected = np.abs(combined - target).max()
        assert largest_deviation(code, F, a) == pytest.approx(expected, abs=rounding)
        assert largest_deviation(code, F, a * 1.5) == pytest.approx(
            np.abs(1.5 * combined - target).max(), abs=2 * rounding
        )


@pytest.mark.parametrize(
    "code",
    [
        BinaryCode(11, stragglers=3),
        BinaryCode(30, 41, stragglers=6, speeds=np.arange(1, 31)),
        FractionalRepetition(12, stragglers=3),
        CouponCollector(20, load=5, seed=1),
        Uncoded(7, 9),
        Uncoded(6, load=3),
    ],
    ids=lambda code: type(code).__name__,
)
def test_amplification_of_zeros_and_ones_is_the_sum_of_the_loads(code):
    rng = np.random.default_rng(0)
    for F in decodable_sets(code, rng, 20):
        a = code.decoding_vector(F)
        if (a < 0).any():  # a path through blocks of different classes subtracts some blocks
            continue
        used = [code.partitions(*code.scheme.messages.sender(m)).size for m in F[a != 0].tolist()]
        assert stability.amplification(code, F) == sum(used) >= code.k
        assert largest_deviation(code, F, a) == 0


unstable = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")


@pytest.mark.long
@unstable
def test_amplification_beyond_float64():
    n, s = 1600, 900
    code = ReedSolomon(n, stragglers=s, root=1)
    F = np.arange(n - s)
    assert stability.amplification(code, F) == math.inf
    assert stability.error_bound(code, F) == math.inf
    assert stability.measured_error(code, F) == (math.inf, math.inf)


def test_amplification_needs_survivors_that_decode():
    code = ReedSolomon(9, stragglers=2)
    with pytest.raises(NotDecodableError):
        stability.amplification(code, range(6))
    with pytest.raises(ValueError, match="a second time"):
        stability.amplification(code, [0, 0, 1, 2, 3, 4, 5])
    with pytest.raises(ValueError, match="7 survivors, but a vector of shape"):
        stability.error_bound(code, range(7), vector=np.ones(6))


def exact_gradient(X, y, theta):
    """Return ``X' (X theta - y)``, by mpmath."""
    with mpmath.workdps(60):
        A, b, t = (mpmath.matrix(a.astype(float).tolist()) for a in (X, y, theta))
        return A.T * (A * t - b)


def test_measured_error_of_the_data_is_against_exact_least_squares():
    """mpmath agrees on an ill-conditioned problem whose gradient nearly vanishes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 3)) * 10.0 ** rng.integers(-3, 3, (8, 1))
    theta = rng.standard_normal(3)
    y = X @ theta
    code = LagrangeCode(8, load=4)
    F = np.arange(code.threshold)
    computed = [least_squares_gradient(theta, *shard) for shard in code.encode_data(X, y)]
    messages = [code.encode(w, [computed[j] for j in code.partitions(w)]) for w in F]
    decoded = code.decode(F, messages)
    exact = exact_gradient(X, y, theta)
    with mpmath.workdps(60):
        error = mpmath.norm(mpmath.matrix(decoded.tolist()) - exact)
        length = mpmath.norm(exact)
        pairs = [
            (abs(one) * (abs(other) @ abs(theta) + abs(label)))
            for one in X
            for other, label in zip(X, y, strict=True)
        ]
        unit = math.sqrt(code.k) * max(map(np.linalg.norm, pairs))
        expected = float(error / length), float(error / unit)
    assert expected[0] > 0.1 > 1e-9 > expected[1] > 0
    assert stability.measured_error(code, F, (X, y, theta)) == pytest.approx(expected, rel=1e-9)


MEDIUM = [
    ReedSolomon(24, stragglers=5),
    ReedSolomon(24, 30, stragglers=5, clusters="auto"),
    ReedSolomon(11, stragglers=3, root=1, packed=False),
    BinaryCode(23, stragglers=4),
    CyclicRepetition(16, stragglers=3),
    CyclicRepetition(20, stragglers=7, seed=3),
    LagrangeCode(16, load=4),
    LagrangeCode(12, load=3, messages=3),
    LagrangeCode(12, load=4, messages=2, nodes="roots"),
]


@settings(max_examples=much(400, 100), deadline=None)
@given(st.data())
def test_error_bound_is_a_bound(data):
    """For partial gradients of any sizes, encoded at once or one by one, in float32 and float64."""
    code = data.draw(st.sampled_from(SMALL + MEDIUM), label="code")
    dtype = data.draw(st.sampled_from([np.float32, np.float64]), label="dtype")
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
    rng = np.random.default_rng(seed)
    (F,) = decodable_sets(code, rng, 1)
    if code.scheme.data.coded:
        rows, features = code.k * int(rng.integers(1, 4)), int(rng.integers(1, 6))
        X = rng.standard_normal((rows, features)) * 10.0 ** rng.integers(-3, 4, (rows, 1))
        given_ = [X, rng.standard_normal(rows), rng.standard_normal(features)]
        given_ = tuple(array.astype(dtype) for array in given_)
        terms = -(-rows // code.k) + features
    else:
        p = int(rng.integers(1, 9))
        given_ = rng.standard_normal((code.k, p)) * 10.0 ** rng.integers(-3, 4, (code.k, 1))
        given_ = given_.astype(dtype)
        terms = 0
    found = stability.measured_error(code, F, given_)
    bound = stability.error_bound(code, F, dtype, terms=terms)
    assert found.scaled <= bound
    if code.scheme.data.coded:
        return
    streamed = []
    for number in F.tolist():
        worker, index = code.scheme.messages.sender(number)
        encoder = code.encoder(worker, p, dtype, index=index)
        for j in code.partitions(worker, index).tolist():
            encoder.add(j, given_[j])
        streamed.append(encoder.message())
    decoded = code.decode(F, streamed, p=p)
    total, rest = exact_sum(given_)
    error = np.linalg.norm((decoded.astype(float) - total) - rest)
    unit = math.sqrt(code.k) * np.linalg.norm(given_.astype(float), axis=1).max()
    longer = stability.error_bound(code, F, dtype, streaming=True)
    assert error <= longer * unit
    assert longer >= bound


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_error_bound_of_messages_of_more_precision(data):
    """Gradients of float32 are rounded once more when they are decoded."""
    code = data.draw(st.sampled_from(SMALL + MEDIUM), label="code")
    if code.scheme.data.coded:
        return
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
    rng = np.random.default_rng(seed)
    (F,) = decodable_sets(code, rng, 1)
    p, streaming = int(rng.integers(1, 9)), bool(rng.integers(2))
    partials = rng.standard_normal((code.k, p)).astype(np.float32)
    wide = {"message_dtype": np.float64}
    received = code.round(p, np.float32, **wide)
    for number in F.tolist():
        worker, index = code.scheme.messages.sender(number)
        held = code.partitions(worker, index).tolist()
        message = code.encode(worker, [partials[j] for j in held], index=index, **wide)
        if streaming:
            encoder = code.encoder(worker, p, np.float32, index=index, **wide)
            for j in held:
                encoder.add(j, partials[j])
            message = encoder.message()
        received.receive(worker, message, index)
    vector, dtypes = code.decoding_vector(F), {"dtype": np.float64, "gradient_dtype": np.float32}
    bound = stability.error_bound(code, F, **dtypes, vector=vector, streaming=streaming)
    total, rest = exact_sum(partials)
    decoded = received.gradient().astype(float)
    error = np.linalg.norm((decoded - total) - rest)
    unit = math.sqrt(code.k) * np.linalg.norm(partials.astype(float), axis=1).max()
    assert error <= bound * unit
    assert bound <= 2.0**-23 * math.sqrt(code.k) + 2 * stability.error_bound(
        code, F, vector=vector, streaming=True
    )


def test_error_bound_of_gradients_of_less_precision():
    code, F = BinaryCode(6, stragglers=2), range(4)
    single = stability.error_bound(code, F, gradient_dtype=np.float32)
    assert single > 1e6 * stability.error_bound(code, F)
    assert stability.error_bound(code, F, "bfloat16", gradient_dtype="bfloat16") == (
        stability.error_bound(code, F, "bfloat16")
    )
    with pytest.raises(TypeError, match="dtypes"):
        stability.error_bound(code, F, gradient_dtype=np.int64)


@pytest.mark.parametrize(("n", "load"), [(7, 2), (20, 4), (30, 6)])
def test_error_bound_of_computations_of_less_precision(n, load):
    """Codes of the data amplify the rounding of float32 computations, in messages of any dtype."""
    with warnings.catch_warnings(action="ignore", category=InstabilityWarning):
        code = LagrangeCode(n, load=load)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, y, theta = (
            rng.standard_normal(shape).astype(np.float32) for shape in ((n, 4), (n,), (4,))
        )
        computed = [least_squares_gradient(theta, *shard) for shard in code.encode_data(X, y)]
        F = rng.permutation(n)[: code.threshold]
        wide = {"message_dtype": np.float64}
        messages = [code.encode(w, [computed[j] for j in code.partitions(w)], **wide) for w in F]
        decoded = code.decode(F, messages).astype(np.float32)
        exact = np.array(exact_gradient(X, y, theta).apply(float).tolist())[:, 0]
        error = np.linalg.norm(decoded - exact)
        X, y, theta = (np.abs(each.astype(float)) for each in (X, y, theta))
        unit = math.sqrt(code.k) * np.linalg.norm(X, axis=1).max() * (X @ theta + y).max()
        bound = stability.error_bound(code, F, terms=5, gradient_dtype=np.float32)
        assert error / unit <= bound < 1e4 * 2.0**-24 * stability.amplification(code, F)


def terms_of(code, rows=3, features=8):
    """Return the longest sum in a worker's computation; random data have blocks of 3 x 8."""
    return rows + features if code.scheme.data.coded else 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_error_bound_of_short_messages(dtype, data):
    code = data.draw(st.sampled_from(SMALL + MEDIUM), label="code")
    if code.scheme.layout in ("complex", "complex data"):
        return
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
    (F,) = decodable_sets(code, np.random.default_rng(seed), 1)
    experiment = Experiment(code, dtype=dtype, p=data.draw(st.integers(1, 9)), seed=seed)
    vector = code.decoding_vector(F)
    bound = stability.error_bound(code, F, dtype, terms=terms_of(code))
    assert experiment.error(F, vector).scaled <= bound


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "code",
    [
        *MEDIUM,
        ReedSolomon(80, stragglers=12),
        ReedSolomon(256, stragglers=32),
        ReedSolomon(256, stragglers=32, clusters="auto"),
        BinaryCode(256, stragglers=32),
        CyclicRepetition(60, stragglers=6),
        LagrangeCode(60, load=10, nodes="roots"),
    ],
    ids=repr,
)
def test_error_bound_is_near_the_worst_error(code, dtype):
    if "16" in dtype and code.scheme.layout in ("complex", "complex data"):
        pytest.skip("no complex numbers of two bytes")
    ratios = []
    for seed in range(much(6, 1)):
        work, terms = None, terms_of(code)
        if code.scheme.data.coded and "16" not in dtype:  # blocks have one row or more
            rng = np.random.default_rng(seed)
            X = rng.standard_normal((code.k * (1 + seed % 3), 1 + seed)).astype(dtype)
            work = X, rng.standard_normal(len(X)).astype(dtype), np.ones(1 + seed, dtype)
            terms = terms_of(code, 1 + seed % 3, 1 + seed)
        experiment = Experiment(code, work, dtype=dtype, p=4, seed=seed)
        for F in decodable_sets(code, np.random.default_rng(seed), 60):
            vector = code.decoding_vector(F)
            bound = stability.error_bound(code, F, dtype, vector=vector, terms=terms)
            ratios.append(experiment.error(F, vector).scaled / bound)
    # The bound counts eight roundings for each group in C's sums of float32; most of them cancel.
    assert (5e-4 if dtype == "float32" else 1e-3) < max(ratios) <= 1


def gamma(count, unit):
    """Return how much so many roundings are relative to what they round, at most."""
    return Fraction(int(count)) * Fraction(unit) / (1 - Fraction(int(count)) * Fraction(unit))


def summing(rows, parts, result):
    """Return the error of the first row of so many that C adds up, in groups."""
    if result == 2.0**-53:
        return gamma(LARGEST_GROUP + rows // LEAST_GROUP + 2 + parts, result)
    within = gamma(min(rows, LARGEST_GROUP) + parts + 1, 2.0**-24)
    return within + gamma(rows + 1 + parts, 2.0**-53)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("code", "terms"),
    [
        (BinaryCode(12, stragglers=3), 0),
        (CyclicRepetition(14, stragglers=11), 0),
        (ReedSolomon(13, stragglers=2), 0),
        (LagrangeCode(9, load=3), 50),
    ],
    ids=["binary", "cyclic", "packed", "of data"],
)
def test_error_bound_by_definition(code, terms, dtype, streaming):
    """Each rounding is counted: of messages, of sums, of coefficients and of vectors."""
    unit = float(np.finfo(dtype).eps) / 2
    F = np.arange(code.threshold) + code.n - code.threshold
    vector = code.decoding_vector(F, message_dtype=dtype)
    used = np.flatnonzero(vector)
    parts = 2 if code.scheme.is_complex else 1
    w = code.load
    encode = summing(w, parts, unit) + gamma(1, unit)
    if streaming:
        encode += gamma(parts * (w + 1) + 1, unit)
    work = gamma(code.scheme.precision.computation_roundings(terms), unit)
    B, _, weight = products(code)
    total = amplified = 0.0
    for at, i in enumerate(used.tolist()):
        size = abs(vector[i]) * weight * np.abs(B[F[i]]).sum()
        combine = summing(used.size - at, parts, unit) + gamma(1, unit)
        total += math.sqrt(parts) * float((1 + encode + work) * (1 + combine) - 1) * size
        amplified += size
    lacking = np.abs(code.scheme.precision.deviation(F, vector)).sum()
    lacking += float(gamma(3 * used.size + 3, float(np.finfo(np.longdouble).eps) / 2)) * (
        amplified + code.k
    )
    found = stability.error_bound(code, F, dtype, vector=vector, streaming=streaming, terms=terms)
    assert found == pytest.approx(float(total + lacking) / math.sqrt(code.k), rel=1e-9)


def test_error_bound_of_half_precision_by_definition():
    """Messages of float16 are added up in float64, and rounded to float32."""
    code, F = BinaryCode(12, stragglers=3), np.arange(9)
    vector = code.decoding_vector(F, message_dtype="float16")
    encode = gamma(LARGEST_GROUP + 4 // LEAST_GROUP + 3, 2.0**-24) + gamma(1, 2.0**-11)
    used, total = np.flatnonzero(vector), 0.0
    for at, i in enumerate(used.tolist()):
        count = LARGEST_GROUP + (used.size - at) // LEAST_GROUP + 3
        combine = gamma(count, 2.0**-24) + gamma(1, 2.0**-24)
        size = abs(vector[i]) * code.partitions(int(F[i])).size
        total += float((1 + encode) * (1 + combine) - 1) * size
    found = stability.error_bound(code, F, "float16", vector=vector)
    assert found == pytest.approx(total / math.sqrt(12), rel=1e-9)


@pytest.mark.parametrize(("nodes", "size"), [("chebyshev", 8), ("roots", 16)])
def test_measured_error_of_coded_data_that_memory_has_no_room_for(nodes, size, monkeypatch):
    code = LagrangeCode(9, load=3, nodes=nodes)
    taken = 9 * 3 * 3 * (8 + 1) * size  # workers, blocks of 3 samples, features and a label
    monkeypatch.setattr(precision, "half_of_memory", lambda: taken)
    stability.measured_error(code, range(9))
    monkeypatch.setattr(precision, "half_of_memory", lambda: taken - 1)
    with pytest.raises(MemoryError, match="hold 3 coded blocks each, 0 GB for all 9"):
        stability.measured_error(code, range(9))


def test_error_bound_of_inexact_codes():
    code = Uncoded(10, tolerance=0.3, rescale=False)
    F = np.arange(7)
    assert largest_deviation(code, F, code.decoding_vector(F)) == 1
    assert stability.error_bound(code, F) == pytest.approx(3 / math.sqrt(10))
    found = stability.measured_error(code, F, np.ones((10, 1)))
    assert found.scaled == pytest.approx(3 / math.sqrt(10))
    assert found.relative == pytest.approx(0.3)


def test_measured_error_of_numbers_that_need_no_rounding_is_zero():
    code = BinaryCode(7, stragglers=2)
    partials = np.arange(21.0).reshape(7, 3)
    assert stability.measured_error(code, range(2, 7), partials) == (0.0, 0.0)
    assert stability.measured_error(code, range(2, 7), np.zeros((7, 3))) == (0.0, 0.0)


def test_measured_error_finds_a_wrong_vector():
    code = ReedSolomon(9, stragglers=2)
    experiment = Experiment(code, np.ones((9, 4)))
    F = np.arange(1, 9)
    vector = code.decoding_vector(F)
    assert experiment.error(F, vector).relative < 1e-14
    found = experiment.error(F, 1.25 * vector)
    assert found.relative == pytest.approx(0.25)
    assert found.scaled == pytest.approx(0.25 * 9 / 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_measured_error_of_given_gradients(dtype):
    code = ReedSolomon(9, stragglers=2)
    rng = np.random.default_rng(0)
    partials = rng.standard_normal((9, 5)).astype(dtype)
    if partials.dtype.kind == "c":
        partials *= 1 + 2j
    unit = np.finfo(dtype).eps
    assert 0 < stability.measured_error(code, range(7), partials).relative < 50 * unit


@pytest.mark.parametrize("scale", [1e-170, 1e150])
def test_measured_error_of_tiny_and_huge_gradients(scale):
    code = ReedSolomon(9, stragglers=2)
    partials = np.random.default_rng(0).standard_normal((9, 5)) * scale
    found = stability.measured_error(code, range(7), partials)
    assert 0 < found.scaled < found.relative < 1e-14


def test_measured_error_refuses_what_does_not_fit():
    code = ReedSolomon(9, stragglers=2)
    with pytest.raises(ValueError, match="must be finite: one is NaN or Inf"):
        stability.measured_error(code, range(7), np.full((9, 3), np.nan))
    with pytest.raises(ValueError, match=r"partials must be of shape \(9, p\)"):
        stability.measured_error(code, range(7), np.ones((8, 3)))
    data = LagrangeCode(9, load=2)
    with pytest.raises(ValueError, match=r"\(X, y, theta\)"):
        stability.measured_error(data, range(9), np.ones((9, 3)))
    with pytest.raises(ValueError, match=r"X, y and theta must be of shape"):
        stability.measured_error(data, range(9), (np.ones((9, 3)), np.ones(8), np.ones(3)))


@pytest.mark.parametrize("root", ["stable", 1, 3])
@pytest.mark.parametrize(("n", "s"), [(1, 0), (7, 3), (16, 15), (41, 5)])
@unstable
def test_circle_values(n, s, root):
    if root == 3 and n == 1:
        pytest.skip("roots are below n")
    code = ReedSolomon(n, stragglers=s, root=root)
    ring = code.scheme.rings()[0]
    lost = np.random.default_rng(n).permutation(n)[:s]
    values = stability.circle_values(code, lost)
    assert np.flatnonzero(values.lost).tolist() == np.flatnonzero(np.isin(ring, lost)).tolist()
    assert (values.exact[values.lost] == -np.inf).all()
    heard = ring[~values.lost]  # in the order of the circle
    for found, method in ((values.exact, "locator"), (values.near_exact, "near-exact")):
        size = np.abs(code.decoding_vector(heard, method))
        np.testing.assert_allclose(found[~values.lost], np.log10(n * size), atol=1e-9)
    missing = 10 ** values.near_exact[values.lost]  # left out, in units of 1/n
    assert (missing < 1e-8).all()
    mask = np.isin(np.arange(n), lost)
    for one, other in zip(values, stability.circle_values(code, mask), strict=True):
        np.testing.assert_array_equal(one, other)


def test_circle_values_of_less_precision_are_shorter():
    code = ReedSolomon(64, stragglers=16)
    neighbours = code.scheme.rings()[0][:16]
    fine, coarse = (stability.circle_values(code, neighbours, t) for t in ("f8", "f4"))
    np.testing.assert_array_equal(fine.exact, coarse.exact)
    assert coarse.near_exact[~fine.lost].max() < fine.near_exact[~fine.lost].max() - 1
    assert coarse.near_exact[fine.lost].max() > fine.near_exact[fine.lost].max() + 3


def test_circle_values_refuses():
    with pytest.raises(TypeError, match="only Reed-Solomon codes have polynomials on a circle"):
        stability.circle_values(BinaryCode(6, stragglers=1), [0])
    code = ReedSolomon(12, stragglers=2, clusters=2)
    with pytest.raises(ValueError, match="has 2 circles: give a code with clusters=1"):
        stability.circle_values(code, [0])
    code = ReedSolomon(12, stragglers=2)
    with pytest.raises(ValueError, match=r"3 stragglers, but ReedSolomon.* tolerates 2"):
        stability.circle_values(code, [0, 1, 2])
    with pytest.raises(ValueError, match=r"stragglers must be in 0 .. n-1 = 11, not"):
        stability.circle_values(code, [-1])
    with pytest.raises(ValueError, match="must not be named twice"):
        stability.circle_values(code, [3, 3])


def test_measured_error_of_the_data_is_of_real_numbers():
    code = LagrangeCode(4, load=2)
    with pytest.raises(TypeError, match="measured on real data, not complex"):
        stability.measured_error(code, range(4), dtype=np.complex64)


def test_relative_error_beyond_float64():
    exact = exact_sum(np.array([[1.0], [2.0**-60]]))
    assert relative_error(np.array([1.0]), exact) == 2.0**-60


def test_error_bound_of_coded_data_grows_with_the_work():
    """These codes also amplify the rounding of a worker's sums, which have `terms` terms."""
    code = LagrangeCode(6, load=3)
    F = range(code.threshold)
    few, many = (stability.error_bound(code, F, terms=terms) for terms in (0, 10**6))
    growth = stability.amplification(code, F) / math.sqrt(code.k)
    assert many - few == pytest.approx(10**6 * 2.0**-53 * growth, rel=1e-3)


def test_experiment_encodes_many_messages_together(monkeypatch):
    """The result is that of `Code.encode` up to rounding; otherwise they are encoded one by one."""
    codes = [
        fastgc.ReedSolomon(9, 12, stragglers=2),
        fastgc.ReedSolomon(8, 11, stragglers=1, clusters=2, packed=False),
        fastgc.CyclicRepetition(7, 10, stragglers=2),
        fastgc.BinaryCode(8, stragglers=3),
        fastgc.PartialWork(5, 7, load=3),
        fastgc.LagrangeCode(7, 3, load=2),
    ]
    for code in codes:
        one_by_one = precision.Experiment(code, p=13).messages
        with monkeypatch.context() as patch:
            patch.setattr(precision, "_ONE_BY_ONE", 0)
            patch.setattr(precision, "_TOGETHER", 3)
            steps = []
            together = precision.Experiment(code, p=13, progress=lambda *at, s=steps: s.append(at))
        assert together.messages.dtype == one_by_one.dtype, code
        np.testing.assert_allclose(together.messages, one_by_one, rtol=0, atol=1e-13 * 20)
        assert steps[-1] == (code.scheme.messages.count,) * 2
        if not code.scheme.data.coded:
            assert len(steps) == -(-code.scheme.messages.count // 3)


@pytest.mark.parametrize(("room", "first"), [(9 * 4, 3), (9 * 4 - 1, 1)])
def test_experiment_encodes_one_by_one_if_entries_are_too_many(room, first, monkeypatch):
    code, steps = ReedSolomon(9, 12, stragglers=2), []
    assert code.load == 4
    for name, value in ("_ONE_BY_ONE", 8), ("_TOGETHER", 3), ("_ENTRIES", room):
        monkeypatch.setattr(precision, name, value)
    Experiment(code, p=5, progress=lambda *at: steps.append(at))
    assert steps[0] == (first, 9)
    monkeypatch.setattr(precision, "_ONE_BY_ONE", 9)
    steps.clear()
    Experiment(code, p=5, progress=lambda *at: steps.append(at))
    assert steps[0] == (1, 9)
