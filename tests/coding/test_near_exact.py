"""Near-exact decoding: short vectors whose residual is of the order of rounding errors."""

import itertools
import math
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strength import much
from tables import encoded, partial_gradients

import fastgc
from fastgc import NotDecodableError, ReedSolomon, kernels, stability
from fastgc.codes import reed_solomon
from fastgc.codes.reed_solomon import ReedSolomonScheme
from fastgc.coding import near_exact
from fastgc.coding.clusters import Cluster
from fastgc.coding.trust import typical_error
from fastgc.kernels.near_exact import shortest

UNITS = {np.float64: 2.0**-53, np.float32: 2.0**-24}


def stragglers_of(kind, code, count, rng):
    """Return workers that straggle, in patterns along the circles of a code's clusters."""
    circle = np.concatenate(code.scheme.rings())
    n = code.n
    at = {
        "random": rng.permutation(n)[:count],
        "arc": np.arange(count),
        "two arcs": np.r_[: count // 2, n // 2 : n // 2 + count - count // 2],
        "steps": np.unique(np.arange(count) * max(1, n // (2 * max(count, 1)))),
        "3/4": np.unique(np.arange(count) * 3 * n // (4 * max(count, 1))),
        "two of three": np.arange(count) * 3 // 2,
        "but a gap": np.arange(count) * n // (count + 1 + count // 8),
    }[kind]
    return circle[np.unique(at % n)]


KINDS = ["random", "arc", "two arcs", "steps", "3/4", "but a gap"]


def without(code, lost):
    return np.setdiff1d(np.arange(code.n), lost)


def same_vector(found, wanted):
    """Whether vectors agree up to rounding, which LAPACK does differently by alignment."""
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def rounding(code, vector):
    """Return what rounding of messages in float64 adds to the gradient's error."""
    row = max(near_exact.row_square(c, code.k) for c in code.scheme.parts)
    return 2 * UNITS[np.float64] * np.linalg.norm(vector) * np.sqrt(row)


def measured(code, survivors, dtype, seed, p=24, **decoding):
    """Return the decoded gradient's error over its norm, and over the unit of error bounds."""
    partials = np.random.default_rng(seed).standard_normal((code.k, p)).astype(dtype)
    messages = [code.encode(i, partials[code.partitions(i)]) for i in survivors]
    exact = partials.astype(np.longdouble).sum(axis=0)
    error = np.linalg.norm(
        (code.decode(survivors, messages, p=p, **decoding) - exact).astype(float)
    )
    unit = np.sqrt(code.k) * np.linalg.norm(partials, axis=1).max()
    return error / np.linalg.norm(exact.astype(float)), error / unit


# ----------------------------------------------------------------------------- what it achieves


def test_where_the_exact_vector_is_beyond_float64():
    code = ReedSolomon(4400, stragglers=1100)
    survivors = without(code, code.scheme.rings()[0][:1100])
    with pytest.raises(OverflowError, match='use clusters="auto"'):
        code.decoding_vector(survivors, "locator")
    assert code.scheme.precision.left_out(survivors, code.decoding_vector(survivors)) < 1e-10


# ---------------------------------------------------------------------- what is said of itself


@st.composite
def rounds(draw):
    n = draw(st.integers(2, 160))
    s = draw(st.integers(1, n - 1))
    k = draw(st.sampled_from([n, max(1, n // 2), n + 7, 3 * n]))
    clusters = draw(st.sampled_from([1, 1, "auto"]))
    lost = draw(st.integers(0, s))
    return n, k, s, clusters, lost


@settings(deadline=None, max_examples=much(60, 12))
@given(
    made=rounds(),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(list(UNITS)),
    method=st.sampled_from(["auto", "auto", "near-exact"]),
    seed=st.integers(0, 1 << 20),
)
@example(made=(160, 160, 40, 1, 40), kind="arc", dtype=np.float64, method="auto", seed=0)
@example(made=(160, 167, 40, 1, 40), kind="3/4", dtype=np.float32, method="auto", seed=0)
@example(made=(96, 48, 47, 1, 47), kind="two arcs", dtype=np.float64, method="near-exact", seed=0)
def test_errors_stay_below_the_bound_and_near_what_is_trusted(made, kind, dtype, method, seed):
    n, k, s, clusters, count = made
    code = ReedSolomon(n, k, stragglers=s, clusters=clusters)
    rng = np.random.default_rng(seed)
    survivors = without(code, stragglers_of(kind, code, count, rng))
    vector = code.decoding_vector(survivors, method, message_dtype=dtype)
    relative, scaled = measured(code, survivors, dtype, seed, method=method)
    assert scaled <= stability.error_bound(code, survivors, dtype, vector=vector)
    residual = code.residual(survivors, vector)
    assert residual < 30 * (code.scheme.precision.left_out(survivors, vector) + UNITS[np.float64])
    if method == "auto":
        trusted = code.trust(survivors, dtype).relative_error
        assert trusted / 30 < max(relative, UNITS[dtype] / 4)  # some sums are exact by luck
        assert relative < 30 * trusted


def test_typical_errors_near_exact_with_a_choice_of_survivors():
    code = ReedSolomon(256, stragglers=64, clusters="auto")
    rng = np.random.default_rng(0)
    sets = [np.sort(rng.permutation(256)[64:]) for _ in range(15)]
    trusted = np.median([code.trust(survivors).relative_error for survivors in sets])
    assert trusted / 4 < typical_error(code.scheme) < 4 * trusted


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("n", "k", "s", "more"),
    [
        (7, 7, 2, {}),
        (12, 17, 3, {}),
        (5, 9, 4, {}),
        (13, 13, 2, {"clusters": 3}),
        (30, 50, 4, {"clusters": "auto"}),
        (23, 40, 2, {"clusters": 5, "speeds": np.linspace(1, 3, 23)}),
    ],
)
def test_what_is_left_out_is_what_the_rows_say(n, k, s, more, packed):
    """For any vector, transforms give the same residual as the dense matrix; norms agree, too."""
    code = ReedSolomon(n, k, stragglers=s, packed=packed, **more)
    rng, B = np.random.default_rng(n), code.matrix()
    survivors = rng.permutation(n)[: n - s]
    vector = rng.standard_normal(n - s) + 1j * rng.standard_normal(n - s)
    missing = vector @ B[survivors] - 1
    missing = missing if packed else missing.real
    wanted = np.linalg.norm(missing) / np.sqrt(k)
    assert code.scheme.precision.left_out(survivors, vector) == pytest.approx(wanted, rel=1e-12)
    assert code.residual(survivors, vector) == pytest.approx(wanted, rel=1e-12)
    if packed and len(code.scheme.parts) == 1:
        left = near_exact.left_squared(code.scheme.parts[0], survivors, vector)
        assert np.sqrt(left / k) == pytest.approx(wanted, rel=1e-12)
    squares = [np.mean(np.sum(np.abs(B[ring]) ** 2, axis=1)) / k for ring in code.scheme.rings()]
    found = [near_exact.row_square(c, k) for c in code.scheme.parts]
    np.testing.assert_allclose(found, squares, rtol=1e-12)


# --------------------------------------------------------------------- when it is taken, and how


def test_only_the_clusters_that_need_it_are_decoded_anew():
    code = ReedSolomon(256, stragglers=40, clusters=2)
    one, other = code.scheme.rings()
    survivors = without(code, np.concatenate([one[:40], np.sort(other)[::4][:20]]))
    vector, exact = code.decoding_vector(survivors), code.decoding_vector(survivors, "locator")
    near = code.decoding_vector(survivors, "near-exact")
    kept = np.isin(survivors, other)
    spread = code.decoding_vector(survivors, "spread")
    np.testing.assert_allclose(vector[kept], spread[kept], rtol=1e-12)
    same_vector(vector[~kept], near[~kept])
    assert np.linalg.norm(exact[~kept]) > 1e3 * np.linalg.norm(vector[~kept])


@pytest.mark.parametrize("way", ["products", "transforms"])
def test_nearer_vector_is_about_as_good_as_the_better_of_two(way, monkeypatch):
    """Between the extremes, the error that the code expects is hardly worse than either's."""
    monkeypatch.setattr(ReedSolomonScheme, "_transforms_from", 1000 if way == "products" else 8)
    if way == "transforms":  # there are too many factors for products
        monkeypatch.setattr(reed_solomon, "SPREAD_STEPS", 0)
    code = ReedSolomon(256, stragglers=32)
    rng = np.random.default_rng(1)
    plain = "locator" if way == "products" else "fft"
    taken = {"exact": 0, "near-exact": 0}
    for width in range(50, 230, 3):
        survivors = without(code, code.scheme.rings()[0][rng.permutation(width)[:32]])
        by = {m: code.decoding_vector(survivors, m) for m in (plain, "near-exact", "auto")}
        expected = {
            method: np.hypot(
                code.scheme.precision.left_out(survivors, vector), rounding(code, vector)
            )
            for method, vector in by.items()
        }
        kept = np.allclose(by["auto"], by[plain], rtol=1e-11, atol=0)
        taken["exact" if kept else "near-exact"] += 1
        better = min(expected[plain], expected["near-exact"])
        limit = max(near_exact.kept_error(UNITS[np.float64]), better)
        assert expected["auto"] <= 2 * min(expected[plain], limit)
    assert min(taken.values()) > 3


@pytest.mark.parametrize(("n", "s", "clusters"), [(256, 56, 1), (300, 100, 1), (400, 60, 3)])
def test_a_precision_that_is_good_enough(n, s, clusters):
    """Exact vectors that reach it are kept in every way to decode; others are as without it."""
    unit, precision = UNITS[np.float64], 1e-4
    exactly = ReedSolomon(n, stragglers=s, clusters=clusters)
    enough = ReedSolomon(n, stragglers=s, clusters=clusters, precision=precision)
    rng = np.random.default_rng(0)
    taken = {"exact": 0, "near-exact": 0}
    ring = exactly.scheme.rings()[0]
    for width in range(s, ring.size + 1, 2):
        survivors = without(exactly, ring[rng.permutation(width)[:s]])
        plain = exactly.decoding_vector(survivors, "fft" if s > 100 else "spread")
        expected = rounding(exactly, plain)
        vector = enough.decoding_vector(survivors)
        error = np.hypot(
            enough.scheme.precision.left_out(survivors, vector), rounding(exactly, vector)
        )
        if expected < precision / (4 * np.sqrt(n)):  # leaves room for rounding in products
            taken["exact"] += expected > near_exact.kept_error(unit)
            np.testing.assert_allclose(vector, plain, rtol=1e-9, atol=0)
            rnd = enough.round(1, dtype=np.complex128)
            sent = vector.conj() / abs(vector)
            for worker, message in zip(survivors.tolist(), sent, strict=True):
                rnd.receive(worker, message[None])
            np.testing.assert_allclose(rnd.gradient(), abs(vector).sum(), rtol=1e-9)
        better = exactly.decoding_vector(survivors)
        if expected > precision:
            taken["near-exact"] += 1
            if clusters == 1:
                np.testing.assert_array_equal(vector, better)
        least = np.hypot(
            exactly.scheme.precision.left_out(survivors, better), rounding(exactly, better)
        )
        assert error <= max(precision, 2 * least)
    assert min(taken.values()) >= 2, taken


def test_a_precision_is_a_number():
    for wrong in (-1e-3, np.nan, np.inf, "1e-3x"):
        with pytest.raises((ValueError, TypeError), match="precision"):
            ReedSolomon(8, stragglers=2, precision=wrong)


def test_the_expected_error_knows_the_precision():
    """One code keeps the exact vectors of random stragglers, the other replaces them."""
    fine, coarse = (ReedSolomon(4096, stragglers=300, precision=e) for e in (0.0, 1e-3))
    one, other = (code.scheme.precision.typical_error() for code in (fine, coarse))
    assert one < 1e-9 < other < 1e-3


def test_what_transforms_round():
    """Rounding is no more than allowed for where that decides; for neighbours, not much less."""
    unit, most = UNITS[np.float64], 0.0
    rng = np.random.default_rng(0)
    for n, s in [(64, 20), (128, 40), (250, 60), (257, 60), (1009, 100)]:
        code = ReedSolomon(n, stragglers=s)
        circle = code.scheme.rings()[0]
        sets = [circle[:c] for c in range(2, s + 1, 2)]
        sets += [np.arange(c) for c in range(1, s + 1, 3)]
        sets += [circle[np.rint(np.linspace(0, rng.integers(s, n), s)).astype(int) % n]] * 9
        sets += [circle[rng.permutation(rng.integers(s, n))[:s]] for _ in range(20)]
        sets += [np.r_[np.arange(c), circle[n // 3 : n // 3 + c]] for c in range(2, s // 2, 3)]
        for lost in sets:
            survivors = without(code, lost)
            vector = code.decoding_vector(survivors, "fft")
            rounded = rounding(code, vector)
            if rounded < near_exact.kept_error(unit):
                left = code.scheme.precision.left_out(survivors, vector) / rounded / np.sqrt(n)
                assert left < near_exact.ROUNDED
                most = max(most, left)
    assert most > near_exact.ROUNDED / 4


def test_what_products_round():
    """Products round by as much as messages, and by half the root of their number of factors."""
    rng = np.random.default_rng(0)
    for n, s in [(80, 12), (256, 32), (1024, 128), (600, 300)]:
        code = ReedSolomon(n, stragglers=s)
        for kind in ("random", "3/4", "but a gap"):
            survivors = without(code, stragglers_of(kind, code, s, rng))
            vector = code.decoding_vector(survivors, "locator")
            left = code.scheme.precision.left_out(survivors, vector)
            assert left < np.sqrt(1 + s / 4) * rounding(code, vector)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_every_door_takes_the_messages_precision(dtype):
    code = ReedSolomon(96, stragglers=24)
    unit = np.finfo(dtype).eps / 2
    survivors = without(code, code.scheme.rings()[0][:24])
    wanted = near_exact.nearer_vector(code.scheme.parts, survivors, unit)
    found = code.decoding_vector(survivors, message_dtype=dtype)
    same_vector(found, wanted)
    same_vector(code.decoder(dtype)(survivors), wanted)
    mask = np.isin(np.arange(96), survivors)
    masks = np.stack([mask, np.ones(96, dtype=bool)])
    many = code.decoding_vectors(masks, message_dtype=dtype)
    same_vector(many[0, survivors], wanted)
    assert not many[0, ~mask].any()
    same_vector(code.best_vector(survivors, message_dtype=dtype)[0], wanted)

    rows = np.array(encoded(code, partial_gradients(code, 8, dtype)))
    by_vector = code.combine(wanted, survivors, rows[survivors], p=8)
    expected = code.trust(survivors, dtype).relative_error
    tight = {"rtol": 0, "atol": 30 * expected * np.abs(by_vector).max()}
    np.testing.assert_allclose(code.decode(survivors, rows[survivors], p=8), by_vector, **tight)
    np.testing.assert_allclose(code.bind(rows, p=8)(survivors), by_vector, **tight)
    rnd = code.round(8, dtype)
    for i in survivors:
        rnd.receive(i, rows[i])
    np.testing.assert_allclose(rnd.gradient(), by_vector, **tight)
    assert rnd.residual() == pytest.approx(
        code.scheme.precision.left_out(survivors, wanted), rel=0.2
    )
    assert rnd.best().residual == pytest.approx(code.residual(survivors, wanted), rel=0.2)


def test_codes_too_large_for_it_keep_what_they_have(monkeypatch):
    monkeypatch.setattr(near_exact, "AFFORDABLE", 1)
    code = ReedSolomon(256, stragglers=32)
    survivors = without(code, code.scheme.rings()[0][:32])
    exact = code.decoding_vector(survivors, "locator")
    np.testing.assert_allclose(code.decoding_vector(survivors), exact, rtol=1e-11)
    monkeypatch.setattr(near_exact, "AFFORDABLE", 32)
    assert np.linalg.norm(code.decoding_vector(survivors)) < 1e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize(
    "method", [kernels.cyclic.LOCATOR, kernels.cyclic.LOOKUP, kernels.cyclic.SPREAD]
)
def test_kernels_tell_vectors_that_are_too_long(method):
    code = ReedSolomon(24, stragglers=5, clusters=2)
    survivors = without(code, [0, 1, 2, 15, 20])
    out = np.empty(19, dtype=complex)
    plan = kernels.cyclic.CyclicPlan(code.scheme.tables)
    run, _ = kernels.unchecked.bind_decoding_vector(plan, survivors, out)
    assert run(method, 19) == kernels.Status.OK
    square = float(np.linalg.norm(out)) ** 2
    masks = np.isin(np.arange(24), survivors)[None]
    for longest, status in ((square * 1.001, kernels.Status.OK), (square * 0.999, 7), (0.0, 7)):
        again = np.empty(19, dtype=complex)
        run, _ = kernels.unchecked.bind_decoding_vector(plan, survivors, again, longest)
        assert run(method, 19) == status
        np.testing.assert_array_equal(again, out)
        where = np.empty(1, dtype=np.int64)
        many = np.empty((1, 24), dtype=complex)
        kernels.unchecked.decoding_vectors(plan, masks.copy(), method, many, where, longest)
        assert where[0] == (-2 if status else 0)
        np.testing.assert_array_equal(many[0, survivors], out)


def test_too_few_messages_and_unknown_methods():
    code = ReedSolomon(20, stragglers=4)
    with pytest.raises(NotDecodableError, match="needs 2 more messages than these 14"):
        code.decoding_vector(range(2, 16), "near-exact")
    with pytest.raises(ValueError, match="near-exact"):
        code.decoding_vector(range(18), "nearly")
    with pytest.raises(ValueError, match=r'method of .* must be "auto", not'):
        fastgc.BinaryCode(20, stragglers=4).decoding_vector(range(18), "near-exact")
    with pytest.raises(TypeError):
        code.decoding_vector(range(18), message_dtype=np.int64)


# ------------------------------------------------------------------------------ hard patterns


def cost(code, survivors, vector):
    """Return what is left out plus what rounding of messages adds, by the dense matrix."""
    B = code.matrix()[survivors].astype(np.clongdouble)
    left = np.linalg.norm((vector @ B - 1).astype(complex)) / np.sqrt(code.k)
    return np.hypot(left, rounding(code, vector))


def dense_at_its_ends(code, s, width, part):
    """Return a window of the circle, partly denser at its ends (Chebyshev's nodes): the worst."""
    even = np.linspace(0, 1, s)
    at = (1 - part) * even + part * (1 - np.cos(np.pi * even)) / 2
    places = np.unique(np.rint(at * (width - 1)).astype(int))
    chosen = np.zeros(width, dtype=bool)
    chosen[places] = True
    chosen[np.flatnonzero(~chosen)[: s - places.size]] = True
    return code.scheme.rings()[0][np.flatnonzero(chosen)]


@pytest.mark.parametrize("width", [48, 55, 61])
def test_what_no_vector_can_beat(width):
    """The dual of least squares: if A^* y = 0, then |A a - b| >= |y^* b| / |y| for any a."""
    code = ReedSolomon(64, stragglers=32)
    survivors = without(code, dense_at_its_ends(code, 32, width, 0.2))
    # "locator" rounds like products; with NumPy's kernels, "auto" takes transforms.
    vector = code.decoding_vector(survivors, "locator")
    message = 2 * UNITS[np.float64] * code.scheme.precision.row_norms[0] ** 0.5
    system = np.concatenate([code.matrix()[survivors].T / 8, message * np.eye(32)])
    target = np.r_[np.full(64, 1 / 8), np.zeros(32)]
    with mpmath.workdps(50):
        A, b = mpmath.matrix(system.tolist()), mpmath.matrix(target.tolist())
        y = b - A * mpmath.lu_solve(A.H * A, A.H * b)
        error = mpmath.norm(A * mpmath.matrix(vector.tolist()) - b)
        # A^* y is not exactly 0: this costs |A^* y| |a|, with |a| at most error / message.
        proven = abs((y.H * b)[0]) - mpmath.norm(A.H * y) * error / message
        least = float(proven / mpmath.norm(y))
    assert 0 < least <= float(error) < 3 * least
    chosen = np.linalg.norm(system @ code.decoding_vector(survivors) - target)
    assert least <= chosen < 3 * least


def test_coefficients_near_the_end_of_float64():
    """With the papers' root the gradient is lost, and no overflow goes unseen."""
    with pytest.warns(fastgc.InstabilityWarning):
        code = ReedSolomon(1511, stragglers=600, root=1)
    survivors = without(code, code.scheme.rings()[0][:600])
    vector = code.decoding_vector(survivors)
    assert np.isfinite(vector).all()
    assert code.scheme.precision.left_out(survivors, vector) > 1


# ------------------------------------------------------------------------ what is out of reach


@settings(deadline=None, max_examples=much(60, 12))
@given(
    n=st.integers(2, 90),
    root=st.integers(1, 90),
    unit=st.sampled_from([2.0**-53, 2.0**-24, 2.0**-11]),
    data=st.data(),
)
def test_no_vector_beats_what_rounding_adds_at_least(n, root, unit, data):
    """Not even least squares does, if columns begin at all workers."""
    root = next(q for q in range(root, root + n) if math.gcd(q, n) == 1)
    s = data.draw(st.integers(0, n - 1).filter(lambda s: math.gcd(s + 1, n) == 1))
    cluster = Cluster(0, 0, n, n, s + 1, root % n)
    least = near_exact.least_rounding(cluster, n, unit)
    columns = np.zeros((n, n), dtype=complex)
    for i in range(n):
        held, place, _ = cluster.row(i)
        columns[i, held] = near_exact.tau(n, s + 1, root % n)[place]
    lost = data.draw(st.integers(0, s))
    at = np.random.default_rng(lost).permutation(n)[lost:]
    added = 2 * unit * np.sqrt(near_exact.row_square(cluster, n))
    system = np.concatenate([columns[at].T / np.sqrt(n), added * np.eye(at.size)])
    target = np.r_[np.full(n, 1 / np.sqrt(n)), np.zeros(at.size)]
    found = np.linalg.lstsq(system, target, rcond=1e-18)[0]
    assert np.linalg.norm(system @ found - target) >= (1 - 1e-9) * least / np.hypot(1, least)
    assert least == pytest.approx(added / np.sqrt(n), rel=1e-12)


def test_the_law_of_the_papers_root():
    """Errors grow in n with the power s: u (n / 2 pi)^s / ((s/2)!)^2 times the vector's length."""
    unit = UNITS[np.float64]
    sets = [(128, 4), (128, 8), (256, 8), (256, 12), (1024, 4), (1024, 6), (1024, 8)]
    for n, s in much(sets, sets[::3]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fastgc.InstabilityWarning)
            code = ReedSolomon(n, stragglers=s, root=1)
        law = unit * (n / (2 * np.pi)) ** s / math.gamma(s / 2 + 1) ** 2
        least = near_exact.least_rounding(code.scheme.parts[0], n, unit)
        # |tau(x)| is n / prod |1 - alpha^r|, r = -x .. s-x but 0, and |1 - alpha^r| < 2 pi |r| / n
        exactly = 2 * unit * (n / (2 * np.pi)) ** s * math.comb(2 * s, s) ** 0.5 / math.factorial(s)
        assert exactly < least < 1.5 * exactly
        assert 2 * law < least < 4 * law
        measured_over_law = []
        for seed in range(15):
            survivors = np.random.default_rng(seed).permutation(n)[s:]
            length = np.sqrt(n) * np.linalg.norm(code.decoding_vector(survivors, "locator"))
            error = measured(code, survivors, np.float64, seed, p=4, method="locator")[0]
            measured_over_law.append(error / (law * length))
        # 2.8 to 5.4 over 45 sets; of any nine of them at most 8.3, whatever the compiler contracts
        assert 1 < np.median(measured_over_law) < 10
    cluster = Cluster(0, 0, 4096, 4096, 9, 1)
    larger = cluster._replace(m=8192, k=8192)
    growth = near_exact.least_rounding(larger, 8192, unit)
    growth /= near_exact.least_rounding(cluster, 4096, unit)
    assert growth == pytest.approx(2**8, rel=1e-4)


@pytest.mark.parametrize(("n", "s"), [(4096, 12), (1 << 15, 150), (1 << 15, 159)])
@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_what_cannot_help_is_not_tried(n, s, monkeypatch):
    """If the gradient is lost, or coefficients of B exceed float64, no other vector is tried."""
    code = ReedSolomon(n, stragglers=s, root=1)
    monkeypatch.setattr(near_exact, "shortest", None)
    monkeypatch.setattr(near_exact, "nearly_vanishing", None)
    survivors = np.random.default_rng(0).permutation(n)[s:]
    exact = [code.decoding_vector(survivors, method).tobytes() for method in ("locator", "fft")]
    assert code.decoding_vector(survivors).tobytes() == exact[0]


@pytest.mark.parametrize(("n", "s", "clusters"), [(1024, 4, 1), (2000, 8, 2)])
@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_longest_kept_is_at_least_twice_what_rounding_adds(n, s, clusters, monkeypatch):
    """No other vector can have less than half of such an error, so none is tried."""
    code = ReedSolomon(n, stragglers=s, root=1, clusters=clusters)
    survivors = without(code, np.arange(s) * n // s)
    exact = code.decoding_vector(survivors, "locator")
    least = math.hypot(
        *(near_exact.least_rounding(c, n, UNITS[np.float64]) for c in code.scheme.parts)
    )
    assert near_exact.kept_error(UNITS[np.float64]) < rounding(code, exact) < 2 * least < 2
    monkeypatch.setattr(near_exact, "nearly_vanishing", None)
    np.testing.assert_array_equal(code.decoding_vector(survivors), exact)


def test_codes_that_tolerate_nearly_all_workers():
    """The smaller code that stands for them tolerates fewer stragglers than it has workers."""
    code = ReedSolomon(20000, stragglers=19968)
    vector = code.decoding_vector(np.arange(32) * 625)
    np.testing.assert_allclose(np.abs(vector), 1 / 32, rtol=1e-9)


# ------------------------------------------------------------------------ columns that are alike


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("n", "k", "s", "most"),
    [
        (200, 80, 50, 1e-14),
        (256, 100, 65, 3e-14),
        (300, 299, 99, 3e-13),
        (195, 533, 116, 1e-10),
        (300, 120, 30, 1e-14),
    ],
)
def test_no_pattern_does_harm_where_columns_of_two_weights_are_few(n, k, s, most):
    code = ReedSolomon(n, k, stragglers=s)
    circle = code.scheme.rings()[0]
    exact = []
    for width in (1, 1.3, 1.6, 2, 2.5, 3):
        places = np.floor(np.arange(code.stragglers) * width).astype(int)
        survivors = without(code, circle[places[places < n]])
        assert measured(code, survivors, np.float64, 0, p=4)[0] < most
        exact.append(measured(code, survivors, np.float64, 0, p=4, method="locator")[0])
    assert max(exact) > 1e-8


EQUAL = [(8, 8, 3), (9, 9, 2), (10, 5, 3), (10, 10, 4), (9, 3, 4), (9, 9, 5)]
OF_TWO_WEIGHTS = [(10, 3, 2), (8, 3, 4), (9, 4, 3), (9, 14, 2)]


@pytest.mark.parametrize(("n", "k", "s"), EQUAL + OF_TWO_WEIGHTS)
def test_every_set_where_columns_are_alike(n, k, s):
    """Vectors are the shortest exact ones, also with more survivors than needed."""
    code = ReedSolomon(n, k, stragglers=s)
    assert near_exact.projector_of(code.scheme.parts[0]) is not None
    B = code.matrix()
    for count in range(s + 1):
        for lost in itertools.combinations(range(n), count):
            survivors = without(code, lost)
            found = code.decoding_vector(survivors, "near-exact")
            wanted = np.linalg.lstsq(B[survivors].T, np.ones(k), rcond=1e-12)[0]
            np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_tables_of_columns_that_are_alike_have_a_size(monkeypatch):
    """Tables are limited: more columns than allowed have none, or smaller ones."""
    code = ReedSolomon(24, stragglers=7)
    survivors = without(code, code.scheme.rings()[0][:7])
    for entries, step in ((1000, 8), (191, 4), (95, 2)):
        monkeypatch.setattr(near_exact, "ENTRIES", entries)
        near_exact.projector_of.cache_clear()
        found = near_exact.projector_of(code.scheme.parts[0])
        assert found.projector.shape == (24 // step, step, step)
        vector = code.decoding_vector(survivors, "near-exact")
        np.testing.assert_allclose(vector @ code.matrix()[survivors], 1, atol=1e-12)
    monkeypatch.setattr(near_exact, "ENTRIES", 47)
    near_exact.projector_of.cache_clear()
    assert near_exact.projector_of(code.scheme.parts[0]) is None
    near_exact.projector_of.cache_clear()


def test_which_columns_are_alike():
    def shifts(*args, **kwargs):
        return near_exact.projector_of(ReedSolomon(*args, **kwargs).scheme.parts[0])

    assert shifts(192, stragglers=80).projector.shape == (64, 3, 3)
    assert shifts(20, 10, load=3).projector.shape == (10, 2, 2)
    assert shifts(20, stragglers=5).projector.shape == (10, 2, 2)
    assert shifts(20, stragglers=6) is None  # 7 of 20
    assert shifts(21, 20, stragglers=4) is None  # columns of two weights, and 17 survivors
    assert shifts(21, 20, stragglers=5).projector.shape == (21, 21)
    assert shifts(1100, 300, stragglers=5) is None  # too many entries
    assert shifts(12, stragglers=7).projector.shape == (3, 4, 4)
    assert shifts(12, stragglers=8) is None  # 4 columns, and 4 survivors
    with pytest.warns(fastgc.InstabilityWarning):
        assert shifts(2520, stragglers=1679, root=1) is None  # coefficients exceed float64


@pytest.mark.few(11)  # covers each kind and each size
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n", "k", "s"), [(256, 256, 33), (256, 256, 127), (256, 128, 64), (1000, 1000, 99)]
)
def test_no_pattern_does_harm_where_columns_are_alike(n, k, s, kind):
    code = ReedSolomon(n, k, stragglers=s)
    rng = np.random.default_rng(0)
    survivors = without(code, stragglers_of(kind, code, code.stragglers, rng))
    error = measured(code, survivors, np.float64, 0, p=4)[0]
    exact = measured(code, survivors, np.float64, 0, p=4, method="locator")[0]
    assert error < (3e-10 if exact < 1e-9 else 1e-11)


def test_where_the_shortest_exact_vector_is_long():
    """With nearly as many columns as survivors, and neighbours, it is a polynomial's vector."""
    code = ReedSolomon(192, load=82)
    lost = np.sort(code.scheme.rings()[0][:81])
    survivors = without(code, lost)
    shifts = near_exact.projector_of(code.scheme.parts[0])
    exact = shortest(shifts, lost)[0][survivors]
    for method in ("auto", "near-exact"):
        vector = code.decoding_vector(survivors, method)
        assert cost(code, survivors, vector) < 1e-8 < cost(code, survivors, exact)


def test_of_many_stragglers_an_error_of_half_the_digits_is_enough(monkeypatch):
    """ "auto" then takes the near-exact vector first, and the shortest exact one if it is worse."""
    monkeypatch.setattr(near_exact, "QUICK", 79)
    code, unit = ReedSolomon(192, stragglers=80), UNITS[np.float64]
    taken = {"near-exact": 0, "shortest": 0}
    for kind in KINDS:
        lost = stragglers_of(kind, code, code.stragglers, np.random.default_rng(0))
        survivors = without(code, lost)
        alone, found = code.scheme.parts[0], code.decoding_vector(survivors)
        near = near_exact._near(alone, survivors, unit)[0]
        error = near_exact._error(alone, survivors, near, unit)
        if error <= near_exact.ENOUGH:
            taken["near-exact"] += 1
            same_vector(found, near)
        else:
            taken["shortest"] += 1
            assert code.residual(survivors, found) < 1e-10
        assert cost(code, survivors, found) < 1e-7
    assert min(taken.values()) > 0


@settings(max_examples=much(100, 20))
@given(
    sizes=st.sampled_from([(24, 24, 7), (21, 20, 5), (192, 192, 80), (96, 32, 29), (300, 299, 99)]),
    root=st.sampled_from(["stable", 1]),
    kind=st.sampled_from(KINDS),
    unit=st.sampled_from([*UNITS.values()]),
    seed=st.integers(0, 1000),
)
@example(sizes=(512, 256, 60), root=1, kind="two of three", unit=2.0**-53, seed=0)
@example(sizes=(300, 299, 99), root="stable", kind="random", unit=2.0**-53, seed=0)
def test_bound_of_the_shortest_exact_vectors_error(sizes, root, kind, unit, seed):
    n, k, s = sizes
    with warnings.catch_warnings(action="ignore"):
        code = ReedSolomon(n, k, stragglers=s, root=root)
    lost = stragglers_of(kind, code, code.stragglers, np.random.default_rng(seed))
    survivors, alone = without(code, lost), code.scheme.parts[0]
    found, off = shortest(near_exact.projector_of(alone), lost)
    assert np.linalg.norm(found[lost]) <= off
    vector = found[survivors]
    bound = near_exact._error_bound(alone, off, near_exact.square(vector), unit)
    left = np.linalg.norm(vector @ code.matrix()[survivors] - 1) / np.sqrt(k)
    rounded = rounding(code, vector) * unit / UNITS[np.float64]
    assert np.hypot(left, rounded) <= bound
    if np.linalg.norm(vector) < 1 and root == "stable" and k < n - 1:  # as short as usual
        assert bound < near_exact.kept_error(unit)
