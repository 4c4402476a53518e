"""Amplification, bounds, measured errors, and polynomials around the circle."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from strength import much
from tables import LARGE, LARGE_IDS, SMALL, SMALL_IDS

from fastgc import (
    BinaryCode,
    CyclicRepetition,
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


unstable = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")


def test_amplification_needs_survivors_that_decode():
    code = ReedSolomon(9, stragglers=2)
    with pytest.raises(NotDecodableError):
        stability.amplification(code, range(6))
    with pytest.raises(ValueError, match="a second time"):
        stability.amplification(code, [0, 0, 1, 2, 3, 4, 5])
    with pytest.raises(ValueError, match="7 survivors, but a vector of shape"):
        stability.error_bound(code, range(7), vector=np.ones(6))
    with pytest.raises(ValueError, match="terms"):
        stability.error_bound(code, range(7), terms=-1)
    with pytest.raises(TypeError, match="int64"):
        stability.error_bound(code, range(7), gradient_dtype=np.int64)


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
    with mpmath.workdps(60):
        A, b, t = (mpmath.matrix(a.tolist()) for a in (X, y, theta))
        exact = A.T * (A * t - b)
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


def terms_of(code, rows=3, features=8):
    """Return the longest sum in a worker's computation; random data have blocks of 3 x 8."""
    return rows + features if code.scheme.data.coded else 0


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


UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def summing(rows, parts, dtype):
    """Return the error of the first row of so many that C adds up, in groups."""
    if dtype == "float32":
        within = gamma(min(rows, LARGEST_GROUP) + parts + 1, 2.0**-24)
        return within + gamma(rows + 1 + parts, 2.0**-53)
    result = 2.0**-53 if dtype == "float64" else 2.0**-24
    return gamma(LARGEST_GROUP + rows // LEAST_GROUP + 2 + parts, result)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("dtype", "gradient"),
    [
        ("float64", None),
        ("float64", "float32"),
        ("float32", None),
        ("float16", None),
        ("float16", "float32"),
        ("bfloat16", "bfloat16"),
    ],
)
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
def test_error_bound_by_definition(code, terms, dtype, gradient, streaming):
    """Each rounding is counted: of messages, of sums, of coefficients and of vectors."""
    if "16" in dtype and code.scheme.is_complex:
        pytest.skip("no complex numbers of two bytes")
    unit, F = UNITS[dtype], np.arange(code.threshold) + code.n - code.threshold
    result = 2.0**-24 if "16" in dtype else unit  # sums of halves are rounded to float32
    coarse = 2.0**-24 if gradient else 0.0  # of bfloat16, too, sums are of float32
    vector = code.decoding_vector(F, message_dtype=dtype)
    used = np.flatnonzero(vector)
    parts = 2 if code.scheme.is_complex else 1
    w = code.load
    encode = summing(w, parts, dtype) + gamma(1, unit)
    if streaming:
        encode += gamma(parts * (w + 1) + 1, result)
    work = gamma(code.scheme.precision.computation_roundings(terms), max(result, coarse))
    B, _, weight = products(code)
    total = amplified = 0.0
    for at, i in enumerate(used.tolist()):
        size = abs(vector[i]) * weight * np.abs(B[F[i]]).sum()
        combine = summing(used.size - at, parts, dtype) + gamma(1, result)
        total += math.sqrt(parts) * float((1 + encode + work) * (1 + combine) - 1) * size
        amplified += size
    lacking = np.abs(code.scheme.precision.deviation(F, vector)).sum()
    lacking += float(gamma(3 * used.size + 3, float(np.finfo(np.longdouble).eps) / 2)) * (
        amplified + code.k
    )
    bound = float(total + lacking) / math.sqrt(code.k)
    if coarse > unit:
        bound += coarse * (math.sqrt(code.k) + bound)  # the gradient is rounded, too
    given = {"vector": vector, "streaming": streaming, "terms": terms, "gradient_dtype": gradient}
    assert stability.error_bound(code, F, dtype, **given) == pytest.approx(bound, rel=1e-9)


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


@pytest.mark.parametrize(
    ("code", "given", "error", "says"),
    [
        (ReedSolomon(9, stragglers=2), np.full((9, 3), np.nan), ValueError, "NaN or Inf"),
        (ReedSolomon(9, stragglers=2), np.ones((8, 3)), ValueError, r"of shape \(9, p\)"),
        (LagrangeCode(9, load=2), np.ones((9, 3)), ValueError, r"\(X, y, theta\)"),
        (LagrangeCode(9, load=2), [np.ones((9, 3)), np.ones(8), np.ones(3)], ValueError, "shape"),
        (LagrangeCode(9, load=2), [np.ones((9, 9)) * 1j, *np.ones((2, 9))], TypeError, "complex"),
    ],
)
def test_measured_error_refuses_what_does_not_fit(code, given, error, says):
    with pytest.raises(error, match=says):
        stability.measured_error(code, range(code.n), given)


@pytest.mark.parametrize(("p", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_measured_error_of_no_elements(p, error):
    with pytest.raises(error, match="p must be"):
        stability.measured_error(BinaryCode(7, stragglers=2), range(7), p=p)


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


def test_relative_error_beyond_float64():
    exact = exact_sum(np.array([[1.0], [2.0**-60]]))
    assert relative_error(np.array([1.0]), exact) == 2.0**-60
