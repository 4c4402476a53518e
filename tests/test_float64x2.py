"""Messages of float64x2, with twice float64's precision, for Reed-Solomon codes."""

import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgc
from fastgc import BinaryCode, Grouped, NonFiniteMessageError, ReedSolomon, stability
from fastgc.coding import near_exact
from fastgc.coding.near_exact import split
from fastgc.engines import LocalCluster, SimulatedCluster

PAIRS = np.dtype([("high", np.float64), ("low", np.float64)])


def exact(pair):
    """Return the rational number that a pair stands for."""
    return sum(Fraction(float(part)) for part in np.atleast_1d(pair))


def exact_complex(pair):
    return exact(pair.real), exact(pair.imag)


def window(n, s, width):
    """Return stragglers at even spacing in a window of the circle."""
    return np.unique(np.floor(width * n * (np.arange(s) + 0.5) / s).astype(int))


def without(code, places):
    lost = np.concatenate(code.scheme.rings())[places]
    return np.setdiff1d(np.arange(code.n), lost)


def decoded(code, survivors, p=12, seed=0, method="auto", **kinds):
    """Return a decoded gradient, its exact value, and the partial gradients."""
    partials = np.random.default_rng(seed).standard_normal((code.k, p))
    messages = [code.encode(i, partials[code.partitions(i)], **kinds) for i in survivors]
    truth = [math.fsum(column) for column in partials.T]
    return code.decode(survivors, messages, p=p, method=method), np.array(truth), partials


def error(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


# ----------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 96, 1000])
def test_the_circle_in_pairs(n):
    found = near_exact.circle(n)
    assert found.shape == (2 * n, 2, 2)
    with mpmath.workdps(50):
        for j in range(0, 2 * n, max(1, n // 20)):
            for part, wanted in zip(found[j], (mpmath.cospi, mpmath.sinpi), strict=True):
                truth = wanted(mpmath.mpf(j) / n)
                assert abs(mpmath.mpf(part[0]) + mpmath.mpf(part[1]) - truth) <= 2.0**-106
                assert float(truth) == part[0]
    assert found[n // 2, 0].any() == bool(n % 2)  # the cosine of a quarter turn is 0


@pytest.mark.parametrize(
    ("m", "d", "q"), [(1, 1, 1), (5, 5, 2), (8, 3, 3), (31, 20, 11), (64, 33, 1)]
)
def test_coefficients_in_pairs(m, d, q):
    found = near_exact.pair_tau(m, d, q)
    with mpmath.workdps(60):
        for x in range(d):
            truth = mpmath.mpf(m)
            for r in range(d):
                if r != x:
                    truth /= 1 - mpmath.expjpi(mpmath.mpf(2 * q * (x - r)) / m)
            high, low = (mpmath.mpc(complex(part)) for part in found[x])
            assert abs(high + low - truth) <= 2.0**-104 * abs(truth)


def test_rows_are_those_of_the_code_and_more():
    for code in (ReedSolomon(9, 12, stragglers=3), ReedSolomon(10, stragglers=2, clusters=3)):
        for worker in range(code.n):
            row = code.scheme.pair_row(worker)
            assert row.shape == (code.coefficients(worker).size, 2)
            np.testing.assert_allclose(row[:, 0], code.coefficients(worker), rtol=1e-13)
            assert (np.abs(row[:, 1]) <= 2.0**-52 * np.abs(row[:, 0])).all()


# --------------------------------------------------------------------------------- vectors


@pytest.mark.few(2)
@pytest.mark.every_backend
@pytest.mark.parametrize("method", ["auto", "locator", "near-exact"])
def test_vectors_of_a_small_code_decode_in_rationals(method):
    code = ReedSolomon(8, stragglers=3)
    B = [[0] * 8 for _ in range(8)]
    for worker in range(8):
        for j, each in zip(code.partitions(worker), code.scheme.pair_row(worker), strict=True):
            B[worker][j] = exact_complex(each)
    for mask in range(256):
        survivors = [i for i in range(8) if mask >> i & 1]
        if len(survivors) < 5:
            continue
        vector = code.decoding_vector(survivors, method, message_dtype="float64x2")
        assert vector.shape == (len(survivors), 2)
        wrong = []
        for j in range(8):
            re = im = Fraction(0)
            for i, each in zip(survivors, vector, strict=True):
                if B[i][j]:
                    (a, b), (c, d) = exact_complex(each), B[i][j]
                    re, im = re + a * c - b * d, im + a * d + b * c
            wrong.append(float(re - 1) ** 2 + float(im) ** 2)
        left = math.sqrt(sum(wrong) / 8)
        assert left < 1e-29
        assert abs(code.residual(survivors, vector) - left) < 1e-30


@pytest.mark.few(2)
@pytest.mark.every_backend
@pytest.mark.parametrize(
    ("n", "s", "width", "double"),
    [(96, 48, 0.5, 1e-10), (96, 48, 0.7, 1e-9), (256, 128, 0.89, 1e-7), (256, 32, 0.125, 1e-14)],
)
def test_what_float64_loses_is_kept(n, s, width, double):
    code = ReedSolomon(n, stragglers=s)
    survivors = without(code, window(n, s, width))
    found, truth, _ = decoded(code, survivors)
    assert error(found, truth) > double
    found, truth, _ = decoded(code, survivors, message_dtype="float64x2")
    assert error(found, truth) < 3e-16
    trust = code.trust(survivors, np.float64, "float64x2")
    assert trust.relative_error < 2e-16


def test_vectors_are_compared_by_what_they_leave_out():
    code = ReedSolomon(256, stragglers=128)
    survivors = without(code, np.arange(128))
    by = {
        method: code.decoding_vector(survivors, method, message_dtype="float64x2")
        for method in near_exact.METHODS
    }
    errors = {
        method: near_exact._error(code.scheme._clusters[0], survivors, by[method], near_exact.PAIR)
        for method in by
    }
    assert errors["near-exact"] < 1e-3 * errors["locator"]
    assert np.array_equal(by["auto"], by["near-exact"])
    harmless = without(code, np.arange(0, 256, 2))
    by = {
        method: code.decoding_vector(harmless, method, message_dtype="float64x2")
        for method in near_exact.METHODS
    }
    assert np.array_equal(by["auto"], by["locator"])


def test_only_clusters_that_need_it_are_decoded_anew(monkeypatch):
    code = ReedSolomon(48, stragglers=23, clusters=2)
    unchecked = fastgc.kernels.unchecked
    near = unchecked.near_exact_pairs
    seen = []
    monkeypatch.setattr(
        unchecked, "near_exact_pairs", lambda *given: seen.append(given[0]) or near(*given)
    )
    monkeypatch.setattr(near_exact, "kept_error", lambda unit: 1e-30)
    first, second = code.scheme.rings()
    lost = np.r_[first[:20], second[::2]]
    survivors = np.setdiff1d(np.arange(48), lost)
    vector = code.decoding_vector(survivors, message_dtype="float64x2")
    assert len(seen) == 1
    assert code.residual(survivors, vector) < 1e-27


def test_beyond_float64(monkeypatch):
    code = ReedSolomon(2600, stragglers=1300)
    survivors = without(code, np.arange(1300))
    for method in ("locator", "auto"):  # "auto" too, as near-exact vectors would take too long
        with pytest.raises(OverflowError, match='use clusters="auto"'):
            code.decoding_vector(survivors, method, message_dtype="float64x2")


def test_sets_that_come_again_are_looked_up():
    code = ReedSolomon(1400, stragglers=100)
    assert code.scheme.cache is not None
    survivors = np.random.default_rng(0).permutation(1400)[100:]
    first = code.decoding_vector(survivors, message_dtype="float64x2")
    for _ in range(2):
        again = code.decoding_vector(survivors[::-1], message_dtype="float64x2")
        assert np.array_equal(again[::-1], first)
    assert code.scheme.cache.info().hits == 1
    assert code.decoding_vector(survivors).shape == survivors.shape


# ------------------------------------------------------------------------------ what is said


@st.composite
def rounds(draw):
    n = draw(st.integers(2, 72))
    s = draw(st.integers(1, n - 1))
    k = draw(st.sampled_from([n, max(1, n // 2), n + 7]))
    clusters = draw(st.sampled_from([1, 1, "auto"]))
    lost = draw(st.integers(0, s))
    return n, k, s, clusters, lost


@settings(deadline=None, max_examples=40)
@given(
    made=rounds(),
    width=st.sampled_from([None, 0.1, 0.5, 0.9]),
    method=st.sampled_from(["auto", "auto", "near-exact"]),
    seed=st.integers(0, 1 << 20),
)
def test_errors_stay_below_the_bound_and_near_what_is_trusted(made, width, method, seed):
    n, k, s, clusters, count = made
    code = ReedSolomon(n, k, stragglers=s, clusters=clusters)
    rng = np.random.default_rng(seed)
    places = rng.permutation(n)[:count] if width is None else window(n, count, width)
    survivors = without(code, places[: min(places.size, code.stragglers)])
    found, truth, partials = decoded(
        code, survivors, seed=seed, method=method, message_dtype="float64x2"
    )
    vector = code.decoding_vector(survivors, method, message_dtype="float64x2")
    off = np.linalg.norm(found - truth)
    unit = math.sqrt(code.k) * np.linalg.norm(partials, axis=1).max()
    bound = stability.error_bound(code, survivors, "float64x2", vector=vector)
    assert off / unit <= bound < 1e-8
    if method == "auto":
        trust = code.trust(survivors, np.float64, "float64x2").relative_error
        assert off / np.linalg.norm(truth) <= 30 * trust
        assert bound == stability.error_bound(code, survivors, "float64x2")


def test_a_bound_of_pairs_sees_what_is_amplified():
    """With a long exact vector the error exceeds float64's rounding, and is still bounded."""
    code = ReedSolomon(256, stragglers=128)
    survivors = without(code, window(256, 128, 0.7))
    found, truth, partials = decoded(code, survivors, method="locator", message_dtype="float64x2")
    vector = code.decoding_vector(survivors, "locator", message_dtype="float64x2")
    off = np.linalg.norm(found - truth)
    unit = math.sqrt(code.k) * np.linalg.norm(partials, axis=1).max()
    bound = stability.error_bound(code, survivors, "float64x2", vector=vector)
    assert 1e-12 < off / unit < bound < 1e8 * off / unit
    measured = stability.measured_error(code, survivors, dtype="float64x2", method="locator")
    form = code.scheme.format(1, np.float64, "float64x2")
    trust = fastgc.coding.trust.trust_by_rows(code.scheme, survivors, vector, form).relative_error
    assert trust / 30 < measured.relative < 30 * trust


def test_stability_of_pairs_beside_float64():
    code = ReedSolomon(96, stragglers=48)
    found = stability.compare(
        {"rs": code}, dtypes=("float64", "float64x2"), patterns=("neighbouring",), sets=3
    )
    assert [row.dtype for row in found] == ["float64", "float64x2"]
    assert found[1].error < 3e-16 < 1e-11 < found[0].error
    worst = stability.worst_survivors(code, 20, dtype="float64x2", trials=3)
    assert worst.error < 1e-15


# --------------------------------------------------------------------------------- messages


@pytest.mark.parametrize("p", [1, 2, 7, 64])
def test_every_door_takes_them(p):
    code = ReedSolomon(48, stragglers=24)
    survivors = without(code, np.arange(24))
    rng = np.random.default_rng(p)
    partials = rng.standard_normal((48, p))
    truth = np.array([math.fsum(column) for column in partials.T])
    size = code.message_size(p, message_dtype="float64x2")
    assert size == p + p % 2
    messages = np.zeros((48, size), PAIRS)
    for i in survivors:
        given = partials[code.partitions(i)]
        made = code.encode(i, given, out=messages[i], message_dtype="float64x2")
        assert made is messages[i] or np.shares_memory(made, messages)
        encoder = code.encoder(i, p, message_dtype="float64x2")
        for j in code.partitions(i):
            encoder.add(j, partials[j])
        streamed = encoder.message()
        assert streamed.dtype == PAIRS
        np.testing.assert_array_equal(streamed["high"], made["high"])
        close = np.abs(streamed["low"] - made["low"])
        assert (close <= 2.0**-96 * np.abs(made["high"]).max()).all()
        energy = sum(
            abs(c) ** 2 * partials[j] @ partials[j]
            for c, j in zip(code.coefficients(i), code.partitions(i), strict=True)
        )
        assert encoder.energy == pytest.approx(energy)
    chosen = messages[survivors]
    wanted = code.decode(survivors, chosen, p=p)
    np.testing.assert_allclose(wanted, truth, rtol=1e-13, atol=1e-15)

    out = np.empty(p)
    assert code.decode(survivors, list(chosen), out=out) is out
    np.testing.assert_array_equal(out, wanted)
    bound = code.bind(messages, p=p)
    np.testing.assert_array_equal(bound(survivors), wanted)
    vector = code.decoder("float64x2")(survivors)
    np.testing.assert_array_equal(code.combine(vector, survivors, chosen, p=p), wanted)
    mask = np.isin(np.arange(48), survivors)
    vectors = code.decoding_vectors(mask[None], message_dtype="float64x2")
    assert vectors.shape == (1, 48, 2)
    np.testing.assert_array_equal(vectors[0, survivors], vector)
    given = np.empty_like(vector)
    assert code.decoding_vector(survivors, out=given, message_dtype="float64x2") is given
    np.testing.assert_array_equal(given, vector)

    round = code.round(p, message_dtype="float64x2")
    for i in survivors:
        round.receive(i, messages[i])
    assert round.ready
    np.testing.assert_array_equal(round.gradient(), wanted)
    assert round.trust().relative_error < 1e-14
    assert round.residual() < 1e-16
    found = code.decode(survivors, chosen, p=p, partial="best")
    np.testing.assert_array_equal(found.gradient, wanted)
    assert found.residual < 1e-16


def test_too_few_of_them():
    code = ReedSolomon(12, stragglers=4)
    survivors = np.arange(6)
    partials = np.random.default_rng(0).standard_normal((12, 4))
    kinds = {}, {"message_dtype": "float64x2"}
    found = []
    for kind in kinds:
        messages = [code.encode(i, partials[code.partitions(i)], **kind) for i in survivors]
        found.append(code.decode(survivors, messages, p=4, partial="best"))
    np.testing.assert_allclose(found[0].gradient, found[1].gradient, rtol=1e-10)
    assert found[0].residual == pytest.approx(found[1].residual)
    with pytest.raises(fastgc.NotDecodableError):
        code.decode(survivors, messages, p=4)


def test_a_tracker_follows_them():
    code = ReedSolomon(24, stragglers=11)
    tracker = stability.StabilityTracker()
    round = code.round(6, message_dtype="float64x2", tracker=tracker)
    partials = np.random.default_rng(0).standard_normal((24, 6))
    for i in without(code, np.arange(11)):
        round.receive(i, code.encode(i, partials[code.partitions(i)], message_dtype="float64x2"))
    gradient = round.gradient()
    measured = tracker.measure(gradient, partials)
    assert measured < 3e-16
    assert measured / 30 < tracker.rounds[-1].predicted < 1e-14
    assert tracker.rounds[-1].bound < 1e-12


def test_engines_carry_them():
    code = ReedSolomon(6, stragglers=3)
    shards = [np.full(5, float(j) / 3) for j in range(6)]
    wanted = sum(shards) * 2
    for engine in (LocalCluster, SimulatedCluster):
        with engine(
            code,
            shards,
            np.multiply,
            5,
            message_dtype="float64x2",
            survivors=lambda round: [0, 1, 2],
        ) as cluster:
            gradient = np.empty(5)
            cluster.step(np.full(5, 2.0), gradient)
            np.testing.assert_allclose(gradient, wanted, rtol=4e-16)


def test_formats_travel():
    form = pickle.loads(
        pickle.dumps(ReedSolomon(6, stragglers=2).scheme.format(3, "float64", "float64x2"))
    )
    assert form.paired
    assert (form.message_size, form.message_dtype) == (4, PAIRS)
    assert form.unit == 2.0**-106


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("bad", "part"), [(math.nan, "high"), (math.inf, "high"), (math.nan, "low")]
)
def test_what_is_not_finite_is_found(bad, part):
    code = ReedSolomon(6, stragglers=2)
    partials = np.ones((6, 4))
    messages = np.array(
        [code.encode(i, partials[code.partitions(i)], message_dtype="float64x2") for i in range(6)]
    )
    messages[2][part][3] = bad
    survivors = [0, 1, 2, 3]
    with pytest.raises(NonFiniteMessageError, match="worker 2 is not finite: element 3"):
        code.decode(survivors, messages[survivors], p=4)
    out = np.zeros(4)
    with pytest.raises(NonFiniteMessageError, match="worker 2 is not finite: element 3"):
        code.bind(messages, out)(survivors)
    with pytest.raises(NonFiniteMessageError, match="worker 2 is not finite: element 3"):
        code.round(4, message_dtype="float64x2").receive(2, messages[2])


def test_what_does_not_go():
    code, ones = ReedSolomon(6, stragglers=2), np.ones((3, 4))
    with pytest.raises(TypeError, match="float64 gradients, not float32"):
        code.encode(0, ones.astype(np.float32), message_dtype="float64x2")
    with pytest.raises(TypeError, match=r"not complex128; complex gradients can be sent"):
        code.encode(0, ones.astype(complex), message_dtype="float64x2")
    with pytest.raises(TypeError, match="verify=True compares messages in float64"):
        code.round(4, message_dtype="float64x2", verify=True)
    with pytest.raises(ValueError, match=r"no method 'fft' for messages of float64x2: choose one"):
        code.decoding_vector(range(6), "fft", message_dtype="float64x2")
    with pytest.raises(TypeError, match="not float64x2"):
        code.stream(message_dtype="float64x2")
    with pytest.raises(TypeError, match="must be of one of the dtypes"):
        code.round(4, "float64x2")
    wide = ReedSolomon(6, stragglers=2, packed=False)
    grouped = Grouped([code, code])
    for other in (BinaryCode(6, stragglers=2), wide, grouped):
        with pytest.raises(TypeError, match="float64x2"):
            other.round(4, message_dtype="float64x2")
        with pytest.raises(TypeError, match="sends no messages of float64x2: ReedSolomon with"):
            other.decoding_vector(range(other.n), message_dtype="float64x2")


def test_positions_of_clusters_are_those_of_split():
    code = ReedSolomon(10, stragglers=2, clusters=3)
    survivors = np.array([9, 0, 4, 2, 7, 1, 5])
    parts = list(split(code.scheme._clusters, survivors))
    assert sorted(np.concatenate([at for _, at, _ in parts]).tolist()) == list(range(7))
