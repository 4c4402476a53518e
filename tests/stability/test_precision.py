"""Amplification, bounds, measured errors, worst survivors, comparisons, unstable codes."""

import contextlib
import itertools
import math
import pickle
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import oracles
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
    LinearCode,
    NotDecodableError,
    ReedSolomon,
    Uncoded,
    UnstableCodeError,
    stability,
)
from fastgc.coding.arguments import arguments_of
from fastgc.coding.orders import random_arrivals
from fastgc.coding.trust import trust_by_rows, typical_error
from fastgc.kernels.pairs import exact_sum, two_product
from fastgc.stability import precision, search, survey
from fastgc.stability.precision import Experiment, relative_error
from fastgc.stability.search import contiguous, messages_without
from fastgc.stability.survey import PATTERNS
from fastgc.training.models import least_squares_gradient

unstable = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")


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
        basis = code.scheme._basis
        rows = (basis[:, :, None] * basis[:, None, :]).reshape(len(basis), -1)
        return rows, np.eye(basis.shape[1]).ravel(), code.load // code.scheme.messages.per_worker
    return code.matrix(), np.ones(code.k), 1


def largest_deviation(code, survivors, vector):
    return np.abs(code.scheme.precision.deviation(survivors, vector)).max()


# ------------------------------------------------------------------------------ amplification


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


# ------------------------------------------------------------------------------ exact references


@given(
    st.lists(
        st.floats(-1e200, 1e200, allow_subnormal=False).filter(lambda x: not 0 < abs(x) < 1e-200),
        min_size=1,
        max_size=40,
    )
)
def test_exact_sum(terms):
    total, rest = exact_sum(np.array(terms)[:, None])
    expected = sum(map(Fraction, terms))
    lacking = expected - Fraction(float(total[0])) - Fraction(float(rest[0]))
    assert abs(lacking) <= abs(expected) / 10**30 + Fraction(1, 10**300)
    assert float(total[0]) == float(expected)


def test_exact_sum_of_complex_numbers():
    terms = np.array([1 + 1e-20j, 1e20 - 1j, -1e20 + 1j])[:, None]
    total, rest = exact_sum(terms)
    assert total[0] == 1 + 1e-20j
    assert rest[0] == 0


def test_exact_least_squares():
    """mpmath agrees on an ill-conditioned problem whose gradient nearly vanishes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((7, 3)) * 10.0 ** rng.integers(-6, 6, (7, 1))
    theta = rng.standard_normal(3)
    y = X @ theta
    from fastgc.stability.precision import _exact_least_squares

    total, rest = _exact_least_squares(X, y, theta)
    with mpmath.workdps(60):
        A, b, t = (mpmath.matrix(a.tolist()) for a in (X, y, theta))
        expected = A.T * (A * t - b)
        for found, lacking, exact in zip(total, rest, expected, strict=True):
            assert abs(mpmath.mpf(found) + mpmath.mpf(lacking) - exact) <= abs(exact) * 1e-20
    product, rest = two_product(np.array(0.1), np.array(0.3))
    assert Fraction(float(product)) + Fraction(float(rest)) == Fraction(0.1) * Fraction(0.3)


# ---------------------------------------------------------------------------------- bounds

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
def test_bounds_are_bounds(data):
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
def test_bounds_of_messages_of_more_precision(data):
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


def test_bounds_know_gradients_by_what_they_are_decoded_to():
    code, F = BinaryCode(6, stragglers=2), range(4)
    single = stability.error_bound(code, F, gradient_dtype=np.float32)
    assert single > 1e6 * stability.error_bound(code, F)
    assert stability.error_bound(code, F, "bfloat16", gradient_dtype="bfloat16") == (
        stability.error_bound(code, F, "bfloat16")
    )
    with pytest.raises(TypeError, match="dtypes"):
        stability.error_bound(code, F, gradient_dtype=np.int64)


@pytest.mark.parametrize(("n", "load"), [(7, 2), (20, 4), (30, 6)])
def test_bounds_of_computations_of_less_precision_than_messages(n, load):
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
        exact = precision._exact_least_squares(X, y, theta)
        error = np.linalg.norm((decoded - exact[0]) - exact[1])
        unit = math.sqrt(code.k) * precision._largest_pair(X, y, theta, 1)
        bound = stability.error_bound(code, F, terms=5, gradient_dtype=np.float32)
        assert error / unit <= bound < 1e4 * 2.0**-24 * stability.amplification(code, F)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_bounds_of_short_messages(dtype, data):
    code = data.draw(st.sampled_from(SMALL + MEDIUM), label="code")
    if code.scheme.layout in ("complex", "complex data"):
        return
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
    (F,) = decodable_sets(code, np.random.default_rng(seed), 1)
    experiment = Experiment(code, dtype=dtype, p=data.draw(st.integers(1, 9)), seed=seed)
    vector = code.decoding_vector(F)
    bound = stability.error_bound(code, F, dtype, terms=experiment._terms)
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
def test_bounds_are_within_two_thousand_times_the_worst_error(code, dtype):
    if "16" in dtype and code.scheme.layout in ("complex", "complex data"):
        pytest.skip("no complex numbers of two bytes")
    ratios = []
    for seed in range(much(6, 1)):
        work = None
        if code.scheme.data.coded and "16" not in dtype:  # blocks have one row or more
            rng = np.random.default_rng(seed)
            X = rng.standard_normal((code.k * (1 + seed % 3), 1 + seed)).astype(dtype)
            work = X, rng.standard_normal(len(X)).astype(dtype), np.ones(1 + seed, dtype)
        experiment = Experiment(code, work, dtype=dtype, p=4, seed=seed)
        for F in decodable_sets(code, np.random.default_rng(seed), 60):
            vector = code.decoding_vector(F)
            bound = stability.error_bound(code, F, dtype, vector=vector, terms=experiment._terms)
            ratios.append(experiment.error(F, vector).scaled / bound)
    # The bound counts eight roundings for each group in C's sums of float32; most of them cancel.
    assert (5e-4 if dtype == "float32" else 1e-3) < max(ratios) <= 1


def test_inexact_codes_are_bounded_by_what_they_leave_out():
    code = Uncoded(10, tolerance=0.3, rescale=False)
    F = np.arange(7)
    assert largest_deviation(code, F, code.decoding_vector(F)) == 1
    assert stability.error_bound(code, F) == pytest.approx(3 / math.sqrt(10))
    found = stability.measured_error(code, F, np.ones((10, 1)))
    assert found.scaled == pytest.approx(3 / math.sqrt(10))
    assert found.relative == pytest.approx(0.3)


# --------------------------------------------------------------------------------- measuring


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


# ------------------------------------------------------------------------------------- search


@pytest.mark.few(3)
@unstable
@pytest.mark.parametrize(
    ("code", "method", "dtype"),
    [
        (ReedSolomon(9, stragglers=3), "auto", "float64"),
        (ReedSolomon(10, stragglers=4, root=1), "locator", "float64"),
        (ReedSolomon(12, stragglers=6), "auto", "float16"),
        (ReedSolomon(12, stragglers=6), "near-exact", "float64"),
        (ReedSolomon(12, stragglers=5), "solve", "float32"),
        (ReedSolomon(11, stragglers=3, clusters="auto"), "auto", "float16"),
        (CyclicRepetition(9, stragglers=3), "auto", "float64"),
        (LagrangeCode(9, load=3), "auto", "float64"),
    ],
    ids=repr,
)
def test_worst_stragglers_against_all_sets(code, method, dtype):
    kind = np.dtype(dtype)
    kinds = (np.float32, kind) if dtype == "float16" else (kind, kind)
    form = code.scheme.format(1, *kinds)
    errors = {}
    for t in range(code.stragglers + 1):
        for lost in itertools.combinations(range(code.n), t):
            F = messages_without(code, lost)
            vector = code.decoding_vector(F, method, message_dtype=dtype)
            errors[lost] = trust_by_rows(code.scheme, F, vector, form).relative_error
            if method == "auto":
                assert errors[lost] == pytest.approx(code.trust(F, *kinds).relative_error)
    found = stability.worst_stragglers(code, method=method, dtype=dtype)
    assert errors[tuple(found.tolist())] >= 0.9 * max(errors.values())


@unstable
def test_near_exact_vectors_have_another_adversary():
    """Neighbours ruin exact vectors; windows that are denser at their ends ruin near-exact ones."""
    code = ReedSolomon(256, stragglers=32)
    exact, near = (
        stability.worst_stragglers(code, method=method, trials=60)
        for method in ("locator", "near-exact")
    )

    def error(stragglers, method):
        F = messages_without(code, stragglers)
        form = code.scheme.format(1, np.float64)
        return trust_by_rows(code.scheme, F, code.decoding_vector(F, method), form).relative_error

    assert error(exact, "locator") > 10 * error(near, "near-exact")
    assert error(exact, "near-exact") < error(near, "near-exact")


@pytest.mark.parametrize("size", range(1, 12))
def test_windows_are_as_large_as_they_are_to_be(size):
    for m in range(size, 14):
        for width, grade in itertools.product((0, 0.3, 1), repeat=2):
            at = search._graded(m, size, width, grade)
            assert np.unique(at).size == size
            assert at.min() >= 0
            assert at.max() < m


def test_windows_are_denser_at_their_ends_or_in_their_middle():
    ends, middle = (np.diff(search._graded(1000, 50, 1.0, grade)) for grade in (1.0, 0.0))
    assert ends[:5].mean() < 0.6 * ends[20:30].mean()
    assert middle[:5].mean() > 1.3 * middle[20:30].mean()


def test_exchanges_keep_sets_as_small_as_allowed():
    rng = np.random.default_rng(0)
    n, s = 10, 3
    lost = np.arange(s)
    seen = set()
    for _ in range(6000):
        before = lost.copy()
        there = search._neighbour(lost, n, s, rng)
        np.testing.assert_array_equal(lost, before)
        assert 1 <= np.unique(there).size == there.size <= s
        assert np.setxor1d(lost, there).size in {1, 2}
        lost = there
        seen.add(tuple(sorted(lost.tolist())))
    # Every set is reached.
    assert len(seen) == sum(math.comb(n, t) for t in range(1, s + 1))


def test_worst_stragglers_of_the_papers_root_are_neighbours():
    with pytest.warns(InstabilityWarning):
        code = ReedSolomon(64, stragglers=20, root=1)
    gaps = np.diff(stability.worst_stragglers(code, trials=0))
    assert (gaps != 1).sum() <= 1


def test_exchanges_find_what_patterns_and_chance_do_not():
    code = CyclicRepetition(30, stragglers=5)
    found, patterns = (
        code.trust(messages_without(code, stability.worst_stragglers(code, trials=trials)))
        for trials in (200, 0)
    )
    assert found.relative_error > 1.5 * patterns.relative_error


def test_worst_stragglers_are_reproducible_and_checked():
    code = CyclicRepetition(12, stragglers=3)
    first, second = (stability.worst_stragglers(code, trials=30, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    with pytest.raises(ValueError, match=r"stragglers must be in 0 \.\. n-1 = 11, not 12"):
        stability.worst_stragglers(code, 12)
    with pytest.raises(NotDecodableError, match="tolerates 0"):
        stability.worst_stragglers(Uncoded(5), 1)
    assert stability.worst_stragglers(Uncoded(5)).size == 0


# ---------------------------------------------------------------------------------- comparison


def test_comparison_is_tidy():
    codes = {
        "rs": ReedSolomon(12, stragglers=2),
        "lu": (ReedSolomon(12, stragglers=2), "solve"),
        "binary": BinaryCode(12, stragglers=2),
    }
    done = []
    rows = stability.compare(
        codes,
        patterns=PATTERNS,
        dtypes=["float64", "float32"],
        sets=9,
        progress=lambda *at: done.append(at),
    )
    assert len(rows) == 30
    assert {int(at) for at, _ in done} == set(range(3 * 2 * (1 + 5) + 1)) - {36}
    assert [row.code for row in rows[::10]] == list(codes)
    for row in rows:
        assert row.error <= row.worst_error <= row.bound
        assert row.amplification <= row.worst_amplification
        assert 1e-18 < row.error < (1e-13 if row.dtype == "float64" else 1e-5)
        assert row.error / 30 < row.predicted < 30 * row.error
        assert row.sets == (1 if row.pattern == "adversarial" else 9)
        assert (row.load, row.mean_load, row.message_size) == (3, 3.0, 1.0)
        assert (row.left_out, row.worst_left_out) == (0, 0)
        assert row.decode_seconds > 0
    assert [row.messages for row in rows[:20]] == [row.workers for row in rows[:20]] == [10.0] * 20
    assert all(4 <= row.messages == row.workers < 10 for row in rows[20:])
    again = stability.compare(codes, patterns=PATTERNS, dtypes=["f8", "f4"], sets=9)
    assert [row._replace(decode_seconds=0.0) for row in again] == [
        row._replace(decode_seconds=0.0) for row in rows
    ]


def test_exact_and_near_exact_vectors_side_by_side():
    """Each row has the same neighbours on the circle and the vector of its own method."""
    code = ReedSolomon(256, stragglers=32)
    exact, auto = stability.compare(
        {"exact": (code, "spread"), "auto": code}, patterns=["neighbouring"], sets=3
    )
    assert exact.sets == auto.sets == 3
    assert 1e-8 < exact.error < 1e-6
    assert auto.worst_error < 1e-12
    for row in (exact, auto):
        assert row.error / 10 < row.predicted < 10 * row.error
        assert row.worst_error < row.bound < 1e5 * row.worst_error
    assert exact.amplification > 1e4 * auto.amplification
    # Neighbours by number are far apart on the circle of the best root.
    [rack] = stability.compare({"exact": (code, "spread")}, patterns=["contiguous"], sets=3)
    assert rack.worst_error < 1e-14


def test_exact_vectors_beyond_float64_are_worth_nothing_and_near_exact_ones_are():
    code = ReedSolomon(256, stragglers=32)
    survivors = messages_without(code, code.scheme.rings()[0][:32])
    given = (np.dtype(np.float64), Experiment(code, p=4), [survivors])

    class Beyond(ReedSolomon):
        def decoding_vector(self, survivors, method="auto", **options):
            if method == "spread":
                raise OverflowError("beyond float64")
            return super().decoding_vector(survivors, method, **options)

    beyond = Beyond(256, stragglers=32)
    assert survey._measure(beyond, "spread", *given)[2:8] == (math.inf,) * 6
    figures = survey._measure(beyond, "auto", *given)
    assert figures[2] < 1e-12
    assert figures[2:] == survey._measure(code, "auto", *given)[2:]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_near_exact_vectors_are_those_of_the_messages_precision(dtype):
    code = ReedSolomon(256, stragglers=32)
    exact, auto = stability.compare(
        {"exact": (code, "spread"), "auto": code},
        patterns=["neighbouring"],
        dtypes=[dtype],
        sets=2,
    )
    assert exact.error > 1
    assert auto.worst_error < (1e-6 if dtype == "float32" else 1e-2)
    assert auto.error / 10 < auto.predicted < 10 * auto.error
    survivors = messages_without(code, code.scheme.rings()[0][:32])
    assert stability.measured_error(code, survivors, dtype=dtype).relative < 10 * auto.error


@unstable
def test_neighbouring_stragglers_are_so_around_the_circle():
    code = ReedSolomon(20, stragglers=6, clusters=2)
    rings = np.concatenate(code.scheme.rings()).tolist()
    silent = survey._silent(code, 4, "neighbouring", "auto", np.dtype(float), 99, 0)
    found = [lost.tolist() for lost in silent]
    assert found == [(rings + rings)[start : start + 4] for start in range(20)]
    assert rings[:10] != sorted(rings[:10])


@pytest.mark.parametrize("root", ["stable", 1, 3])
@pytest.mark.parametrize(("n", "s"), [(1, 0), (7, 3), (16, 15), (41, 5)])
@unstable
def test_polynomials_around_the_circle(n, s, root):
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


def test_polynomials_around_the_circle_of_less_precision_are_shorter():
    code = ReedSolomon(64, stragglers=16)
    neighbours = code.scheme.rings()[0][:16]
    fine, coarse = (stability.circle_values(code, neighbours, t) for t in ("f8", "f4"))
    np.testing.assert_array_equal(fine.exact, coarse.exact)
    assert coarse.near_exact[~fine.lost].max() < fine.near_exact[~fine.lost].max() - 1
    assert coarse.near_exact[fine.lost].max() > fine.near_exact[fine.lost].max() + 3


def test_polynomials_around_the_circle_are_of_codes_that_have_one():
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


def test_loads_that_are_not_even_are_told_apart():
    [row] = stability.compare({"binary": BinaryCode(11, stragglers=3)}, sets=20)
    assert row.load == 6
    assert row.mean_load == pytest.approx(4)


@pytest.mark.parametrize("n", [7, 12])
def test_codes_are_made_comparable(n):
    families = {
        "rs": lambda s: ReedSolomon(n, stragglers=s),
        "binary": lambda s: BinaryCode(n, stragglers=s),
        "fractional": lambda s: fastgc.FractionalRepetition(n, stragglers=s),
    }
    for make in families.values():
        made = {}
        for s in range(n):
            with contextlib.suppress(ValueError):
                made[s] = make(s).load
        for first in families.values():
            for s in (1, 3):
                try:
                    reference = first(s)
                except ValueError:
                    continue
                good = {t: load for t, load in made.items() if load <= reference.load}
                if not good:
                    with pytest.raises(ValueError, match="no such code has a load of at most"):
                        stability.matched(make, reference, s)
                    continue
                alike = [t for t, load in good.items() if load == max(good.values())]
                # Of two that are equally near, the smaller.
                wanted = min(alike, key=lambda t: (abs(t - s), t))
                assert stability.matched(make, reference, s) == wanted


def test_codes_that_are_not_comparable():
    def none(s):
        raise ValueError(f"not for {s}")

    reference = ReedSolomon(6, stragglers=1)
    with pytest.raises(ValueError, match="there is no such code for 6 workers: not for 0"):
        stability.matched(none, reference)
    with pytest.raises(ValueError, match="no such code has a load of at most 1"):
        stability.matched(lambda s: BinaryCode(6, stragglers=max(s, 2)), Uncoded(6))
    with pytest.raises(TypeError, match="reference must be a code, not 6"):
        stability.matched(lambda s: BinaryCode(6, stragglers=s), 6)


def test_comparison_leaves_out_what_cannot_be_decoded():
    rows = stability.compare({"all": Uncoded(6), "some": BinaryCode(6, stragglers=1)}, stragglers=1)
    assert [row.code for row in rows] == ["some"]


def test_comparison_checks_its_arguments():
    code = {"rs": ReedSolomon(6, stragglers=1)}
    with pytest.raises(ValueError, match="unknown pattern 'rare': choose among random"):
        stability.compare(code, patterns=["rare"])
    with pytest.raises(ValueError, match="sets must be at least 1"):
        stability.compare(code, sets=0)
    with pytest.raises(TypeError, match="sets must be an integer"):
        stability.compare(code, sets=2.5)
    with pytest.raises(ValueError, match="6 survivors, but a vector of shape"):
        stability.error_bound(code["rs"], range(6), vector=[1.0])
    with pytest.raises(ValueError, match="terms must not be negative"):
        stability.error_bound(code["rs"], range(6), terms=-1)
    with pytest.raises(ValueError, match="stragglers must be in"):
        stability.compare(code, stragglers=6)


@unstable
def test_trust_counts_the_rounding_of_messages():
    """Decoding multiplies it, here by ten thousand: single precision keeps four digits."""
    code = ReedSolomon(25, stragglers=8, root=1)
    neighbours = np.arange(17)
    single, double = (code.trust(neighbours, dtype) for dtype in (np.float32, np.float64))
    assert 1e4 < single.growth < double.growth < 1.001 * single.growth
    # Rounding of messages' elements, and of the sums and coefficients in them and in decoding.
    assert 0.2 * 2.0**-24 < single.relative_error / single.growth < 2 * 2.0**-24
    assert double.relative_error < 1e-10


@unstable
def test_trust_beyond_float64():
    code = ReedSolomon(1024, stragglers=512, root=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert min(code.trust(np.arange(512))) > 1e100
        assert stability.measured_error(code, np.arange(512), p=2).relative > 1e100


@unstable
def test_comparison_of_hopeless_codes():
    code = ReedSolomon(4096, stragglers=2000, root=1)  # not even B fits float64
    (row,) = stability.compare({"hopeless": code}, sets=2, patterns=["contiguous"])
    assert row.error == row.bound == row.predicted == row.amplification == math.inf


@pytest.mark.parametrize(("n", "s"), [(256, 32), (1000, 100)])
def test_figures_promised_over_many_sets(n, s):
    codes = {
        "clustered": ReedSolomon(n, stragglers=s, clusters="auto"),
        "binary": BinaryCode(n, stragglers=s),
        "one": ReedSolomon(n, stragglers=s),
    }
    clustered, binary, one = stability.compare(codes, sets=much(1000, 60), p=8)
    assert clustered.error < 1e-13
    assert clustered.worst_error < 1e-11
    if n <= 256:
        assert clustered.error < 10 * binary.error
        assert clustered.worst_error < 10 * binary.worst_error
        assert one.error < 1e-12


# -------------------------------------------------------------------------------- unstable codes


def test_the_papers_construction_is_detected():
    with pytest.warns(InstabilityWarning, match=r'error is about \de\+1\d .*root="stable"'):
        code = ReedSolomon(256, stragglers=32, root=1)
    with pytest.raises(UnstableCodeError, match='root="stable"'):
        ReedSolomon(256, stragglers=32, root=1, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(code))  # as in each worker process: no second warning
        ReedSolomon(256, stragglers=32, strict=True)
        ReedSolomon(1000, stragglers=100, clusters="auto", strict=True)
        ReedSolomon(4096, stragglers=1024, strict=True)
        ReedSolomon(16, stragglers=3, root=1, strict=True)
    assert again == code
    assert "strict" not in repr(code)
    with pytest.warns(InstabilityWarning):  # a code made again from parameters is a new one
        type(code)(**arguments_of(code))


def test_other_unstable_codes_are_detected():
    with pytest.raises(UnstableCodeError, match='nodes="roots"'):
        LagrangeCode(
            40, load=4, nodes=(np.linspace(0, 1, 10), np.linspace(1.1, 2, 40)), strict=True
        )
    with pytest.raises(UnstableCodeError, match="better conditioned"):
        LinearCode([[1, 0], [1, 1e-9]], strict=True)
    with pytest.warns(InstabilityWarning, match="LinearCode"):
        LinearCode([[1, 0], [1, 1e-9]])


@unstable
@pytest.mark.parametrize("root", ["stable", 1])
@pytest.mark.parametrize(("n", "s"), [(16, 4), (80, 12), (256, 32), (1000, 100)])
def test_the_quick_estimate_agrees_with_trust(n, s, root):
    """They agree within a factor of 30; where no digit is left, the estimate is no lower."""
    code = ReedSolomon(n, stragglers=s, root=root)
    rng = np.random.default_rng(1)
    trusted = [code.trust(rng.permutation(n)[s:]).relative_error for _ in range(50)]
    assert np.median(trusted) < 30 * typical_error(code.scheme)
    if typical_error(code.scheme) < 1:
        assert np.median(trusted) > typical_error(code.scheme) / 30


# -------------------------------------------------------------------- choices among the survivors


@pytest.mark.parametrize(
    ("n", "k", "s"), [(20, 20, 4), (64, 64, 16), (90, 70, 29), (256, 256, 64), (50, 60, 24)]
)
def test_spread_is_an_exact_and_shorter_vector(n, k, s):
    code = ReedSolomon(n, k, stragglers=s, clusters="auto")
    B = code.matrix()
    block, need = code.scheme.rule
    rng = np.random.default_rng(n)
    decoded_anew = 0
    for trial in range(30):
        silent = rng.permutation(n)[: s if trial % 2 else s // 2]
        F = rng.permutation(np.setdiff1d(np.arange(n), silent))
        methods = "locator", "lookup", "spread"
        locator, lookup, spread = (code.decoding_vector(F, m) for m in methods)
        assert np.abs(spread @ B[F] - 1).max() < 1e-9 * np.linalg.norm(spread)
        np.testing.assert_array_equal(spread, code.decoding_vector(F))
        for b in range(need.size):
            mine = block[F] == b
            norms = [np.linalg.norm(vector[mine]) for vector in (locator, spread)]
            if mine.sum() > need[b] and norms[0] > 1 + 1e-12:
                decoded_anew += 1
                assert np.count_nonzero(spread[mine]) == need[b]
                assert norms[1] < max(1.5 * norms[0], 2)
            elif norms[0] < 1 - 1e-12:
                shorter = lookup if 2 * mine.sum() < (block == b).sum() else locator
                np.testing.assert_array_equal(spread[mine], shorter[mine])
    assert decoded_anew or n == 20


@pytest.mark.every_backend
@pytest.mark.parametrize(
    ("code", "F"),
    [
        (lambda: ReedSolomon(7, stragglers=5), [2, 4, 5]),
        (lambda: ReedSolomon(8, stragglers=4, root=1), [1, 4, 5, 7, 6]),
        (
            lambda: ReedSolomon(15, 4, load=2, stragglers=6, clusters=2),
            [5, 7, 0, 4, 6, 12, 1, 9, 10],
        ),
    ],
)
def test_messages_are_chosen_as_by_the_oracle(code, F):
    """Norms of 1 and equal distances differ only by rounding, which must not decide."""
    made = code()
    found = made.decoding_vector(F)
    expected = oracles.decoding.decoding_vector(made.scheme.tables, oracles.decoding.SPREAD, F)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_spread_chooses_by_leja_order():
    """Each next root has the largest product of distances to those chosen; the first wins ties."""
    m, need = 21, 6
    code = ReedSolomon(m, 5, load=4)
    assert code.threshold == need
    rng = np.random.default_rng(2)
    seen = 0
    for _ in range(200):
        F = np.sort(rng.permutation(m)[: rng.integers(need + 1, m)])
        vector = code.decoding_vector(F, "spread")
        if np.count_nonzero(vector) == F.size:
            continue
        seen += 1
        q = pow(int(code.scheme.rings()[0][1]), -1, m)
        roots = np.exp(2j * np.pi * (q * np.arange(m) % m) / m)
        kept = []
        for _ in range(need):
            size = [np.prod(np.abs(roots[i] - roots[kept])) if i not in kept else 0 for i in F]
            kept.append(next(i for i, x in zip(F, size, strict=True) if x > max(size) * (1 - 1e-8)))
        np.testing.assert_array_equal(F[vector != 0], np.sort(kept))
        expected = code.decoding_vector(np.sort(kept), "locator")
        np.testing.assert_allclose(vector[vector != 0], expected, rtol=1e-12)
    assert seen > 20


def test_spread_of_survivors_whose_distances_underflow():
    """Half a circle of 3000 roots straggles: products of distances leave the range of doubles."""
    n = 3000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)
        code = ReedSolomon(n, n, load=1600, root=1)
    F = np.arange(code.threshold + 20)
    try:
        vector = code.decoding_vector(F, "spread")
    except OverflowError:
        return
    assert np.count_nonzero(vector) in (code.threshold, F.size)


def test_many_stragglers_spread_too():
    """From a thousand on, logarithms come from transforms, and close ones are checked again."""
    code = ReedSolomon(3300, stragglers=1050, clusters="auto")
    F = np.random.default_rng(0).permutation(3300)[1050:]
    fft, auto = (code.decoding_vector(F, method) for method in ("fft", "auto"))
    assert np.linalg.norm(auto) < 5 < 100 < np.linalg.norm(fft)
    np.testing.assert_array_equal(auto, code.decoding_vector(F, "spread"))
    column = np.array(
        [dict(zip(*code.scheme.row(i), strict=True)).get(1234, 0) for i in F.tolist()]
    )
    assert abs(auto @ column - 1) < 1e-12


@pytest.mark.parametrize("nodes", ["chebyshev", "roots"])
def test_lagrange_codes_decode_from_messages_that_are_spread(nodes):
    code = LagrangeCode(64, load=9, nodes=nodes)
    silent = np.arange(20, 28)
    F = np.setdiff1d(np.arange(64), silent)
    vector = code.decoding_vector(F)
    assert np.count_nonzero(vector) == code.threshold
    assert stability.measured_error(code, F).relative < 1e-14
    everything = fastgc.interpolation.functional(code.beta[F], code.alpha)
    assert np.linalg.norm(everything) > 1e3 * np.linalg.norm(vector)


def test_errors_of_codes_of_the_data_are_those_of_real_data():
    code = LagrangeCode(4, load=2)
    with pytest.raises(TypeError, match="measured on real data, not complex"):
        stability.measured_error(code, range(4), dtype=np.complex64)


def test_windows_go_around_the_circle():
    windows = [w.tolist() for w in contiguous(5, 3, 8, np.random.default_rng(0))]
    assert windows == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1]]


def test_errors_are_measured_beyond_float64():
    exact = exact_sum(np.array([[1.0], [2.0**-60]]))
    assert relative_error(np.array([1.0]), exact) == 2.0**-60


def test_bounds_of_coded_data_grow_with_the_work():
    """These codes also amplify the rounding of a worker's sums, which have `terms` terms."""
    code = LagrangeCode(6, load=3)
    F = range(code.threshold)
    few, many = (stability.error_bound(code, F, terms=terms) for terms in (0, 10**6))
    growth = stability.amplification(code, F) / math.sqrt(code.k)
    assert many - few == pytest.approx(10**6 * 2.0**-53 * growth, rel=1e-3)


def test_rounds_of_any_so_many_need_not_hear_each(monkeypatch):
    """They are the same as if each message were checked for being the last."""
    scheme = fastgc.ReedSolomon(12, stragglers=3).scheme
    found = list(random_arrivals(scheme, 20, 4))
    monkeypatch.setattr(type(scheme.gate), "waits", True)
    assert list(random_arrivals(scheme, 20, 4)) == found


@pytest.mark.parametrize("code", [BinaryCode(8, stragglers=2), Uncoded(8, tolerance=0.5)])
def test_late_workers_are_those_after_the_round_is_ready(code):
    [row] = stability.compare({"code": code}, patterns=["late"], stragglers=0, sets=50, seed=3)
    needs = code.recovery(50, seed=3)
    assert (row.workers, row.messages) == (pytest.approx(needs.workers), needs.messages)
    heard = list(random_arrivals(code.scheme, 50, 3))
    left = [code.residual(each) for each in heard] if code.scheme.approximate else [0.0]
    assert row.left_out == pytest.approx(np.sqrt(np.mean(np.square(left))))
    assert row.worst_left_out == max(left)
    factors = [stability.amplification(code, each) for each in heard]
    assert (row.amplification, row.worst_amplification) == (np.median(factors), max(factors))


def test_many_messages_are_encoded_together(monkeypatch):
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


def test_comparisons_say_how_far_they_are():
    """They count the messages that are encoded, then the sets of each pattern."""
    steps = []
    codes = {"rs": fastgc.ReedSolomon(8, stragglers=2)}
    patterns = ("random", "contiguous")
    fastgc.stability.compare(
        codes,
        patterns=patterns,
        sets=3,
        progress=lambda *at: steps.append(at),
    )
    encoded = [done / 8 for done in range(9)]
    assert steps == [
        (done, 3) for done in encoded + [row + done / 3 for row in (1, 2) for done in range(3)]
    ]
