"""Messages shorter than gradients: Ye and Abbe's code, and all verbs on pieces."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import fastgc
from fastgc import InstabilityWarning, NotDecodableError, YeAbbe
from fastgc.codes.ye_abbe import YeAbbeScheme
from fastgc.coding.scheme import Scheme
from fastgc.engines import LocalCluster

pytestmark = pytest.mark.any_backend


def coded(code, p, dtype=np.float64, seed=0):
    g = np.random.default_rng(seed).standard_normal((code.k, p)).astype(dtype)
    return g, [code.encode(i, g[code.partitions(i)]) for i in range(code.n)]


def shapes():
    for n in range(1, 7):
        for s, m in itertools.product(range(n), range(1, n + 1)):
            yield from ((n, s, m, g) for g in range(1, n // (s + m) + 1))


@pytest.mark.parametrize(("n", "s", "m", "clusters"), list(shapes()))
def test_every_set_of_survivors(n, s, m, clusters):
    """All but s workers of each cluster decode the gradient; fewer never do."""
    code = YeAbbe(n, stragglers=s, reduce=m, clusters=clusters)
    assert (code.load, code.stragglers, code.threshold, code.scheme.pieces) == (s + m, s, n - s, m)
    sizes = [n // clusters + (c < n % clusters) for c in range(clusters)]
    members = np.split(np.arange(n), np.cumsum(sizes)[:-1])
    for block in members:
        for i in block:
            held = (i - block[0] + np.arange(s + m)) % block.size + block[0]
            assert sorted(code.partitions(i)) == sorted(held)
    p = 2 * m * 3
    g, messages = coded(code, p)
    assert all(message.size == p // m for message in messages)
    for f in range(1, n + 1):
        for F in map(list, itertools.combinations(range(n), f)):
            if any(np.isin(block, F).sum() < block.size - s for block in members):
                assert not code.decodable(F)
                with pytest.raises(NotDecodableError):
                    code.decoding_vector(F)
                continue
            found = code.decode(F, [messages[i] for i in F])
            np.testing.assert_allclose(found, g.sum(axis=0), atol=1e-12)
            assert code.residual(F) < 1e-13


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("n", "k", "s", "m", "clusters"),
    [(1, 1, 0, 1, 1), (5, 8, 2, 1, 1), (6, 6, 1, 3, 1), (9, 13, 1, 2, 3), (11, 11, 2, 2, 2)],
)
def test_what_is_said_of_all_workers_at_once_is_that_of_rows(n, k, s, m, clusters, packed):
    scheme = YeAbbe(n, k, stragglers=s, reduce=m, clusters=clusters, packed=packed).scheme
    for name in ("row_norms", "row_sums", "_known_loads"):
        by_rows = vars(Scheme)[name].func(scheme)
        np.testing.assert_allclose(getattr(scheme, name), by_rows, rtol=1e-13)
    rng = np.random.default_rng(0)
    for f in (n - s, n, 1):
        F = rng.permutation(n)[:f]
        a = rng.standard_normal((f, m, 2)) @ [1, 1j]
        a = a if m > 1 else a[:, 0]
        found, expected = scheme.deviation(F, a), Scheme.deviation(scheme, F, a)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=1e-14)


def test_no_row_of_many_workers_is_made_to_say_how_far_to_trust(monkeypatch):
    code = YeAbbe(30_000, stragglers=2, reduce=2)
    made = []
    row = YeAbbeScheme.row
    monkeypatch.setattr(YeAbbeScheme, "row", lambda self, i: made.append(i) or row(self, i))
    F = np.arange(2, 30_000)
    assert code.load == 4
    assert 0 < code.trust(F).relative_error < 1e-12
    assert code.residual(F) < 1e-13
    assert not made


def test_too_few_are_told_how_many_suffice():
    with pytest.raises(NotDecodableError, match="any 5 of 6 workers"):
        YeAbbe(6, stragglers=1, reduce=2).decoding_vector(range(4))


@pytest.mark.parametrize(("n", "s", "m"), [(9, 2, 3), (6, 2, 4), (10, 3, 1), (80, 12, 8)])
def test_pieces_are_coefficients_next_to_those_that_are_zero(n, s, m):
    """B agrees with its definition in 40 digits, to nearly the last digit of doubles."""
    B = YeAbbe(n, stragglers=s, reduce=m).matrix().reshape(n, n, m)
    d, below = s + m, m // 2
    powers = [*range(m - below), *range(-s - 1, -s - 1 - below, -1)]
    window = sorted([*range(-s, 0), *powers])
    assert window == list(range(window[0], window[0] + d))
    group = n // 2
    holders = [i for i in range(n) if B[i, group].any()]
    assert len(holders) == d
    fits = []
    with mpmath.workdps(40):
        # The code chooses its root; find the one for which these coefficients vanish.
        for q in (q for q in range(1, n // 2 + 1) if np.gcd(q, n) == 1):
            y = {i: mpmath.expjpi(-mpmath.mpf(2 * (q * i % n)) / n) for i in holders}
            wrong = [abs(sum(B[i, group, 0] * y[i] ** t for i in holders)) for t in range(-s, 0)]
            if max(wrong, default=0) > 1e-11:
                continue
            fits.append(q)
            if s == 0:
                break
            for i in holders:
                lagrange = [mpmath.mpf(1)]  # 1 at y_i, 0 at the others' points
                for w in holders:
                    if w != i:
                        down = [
                            (b - a * y[w]) / (y[i] - y[w])
                            for a, b in zip([*lagrange, 0], [0, *lagrange], strict=True)
                        ]
                        lagrange = down
                expected = [n * lagrange[t - window[0]] * y[i] ** -window[0] for t in powers]
                np.testing.assert_allclose(
                    B[i, group], np.array(expected, dtype=complex), rtol=0, atol=4e-14
                )
    assert len(fits) == 1


@pytest.mark.parametrize("m", [2, 3, 4])
def test_precise_at_24_workers(m):
    code = YeAbbe(24, stragglers=4, reduce=m, strict=True)
    g, messages = coded(code, 60)
    exact, rng = g.sum(axis=0), np.random.default_rng(m)
    sets = [rng.permutation(24)[: 24 - rng.integers(5)] for _ in range(400)]
    sets += [(first + np.arange(20)) % 24 for first in range(24)]  # neighbours straggle
    for F in sets:
        found = code.decode(F, [messages[i] for i in F], p=60)
        error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
        assert error < 1e-13
        assert error < 30 * code.trust(F).relative_error


@pytest.mark.few(5)
@pytest.mark.parametrize("clusters", [1, "auto"])
@pytest.mark.parametrize(("s", "m"), [(4, 2), (18, 2), (8, 3), (12, 4), (4, 8), (8, 8), (12, 8)])
def test_precise_at_80_workers(s, m, clusters):
    """This holds even if neighbours straggle, by number or on the circle of points."""
    code = YeAbbe(80, stragglers=s, reduce=m, clusters=clusters)
    assert code.load == s + m <= 20
    p = 30 * m
    g, messages = coded(code, p)
    exact = np.array([math.fsum(column) for column in g.T])
    rng, circle = np.random.default_rng(m), np.concatenate(code.scheme.rings())
    assert sorted(circle) == list(range(80))
    windows = (np.arange(0, 80, 5)[:, None] + np.arange(s)) % 80
    random = [rng.permutation(80)[:s] for _ in range(40)]
    for worst, sets in ((1e-12, [*random, *windows]), (2e-10, circle[windows])):
        for lost in sets:
            F = np.setdiff1d(np.arange(80), lost)
            found = code.decode(F, [messages[i] for i in F], p=p)
            error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
            assert error < (1e-12 if clusters == "auto" else worst)
            assert error / 3 < code.trust(F).relative_error < error * 10


def error_to_expect(code, F, vector):
    """Return the expected error from what is left out and two roundings of every message."""
    B = code.matrix()[F].reshape(len(F), -1)
    left = np.linalg.norm(B.T @ vector - np.tile(np.eye(code.scheme.pieces), (code.k, 1)))
    return np.hypot(left, 2**-52 * np.linalg.norm(np.linalg.norm(B, axis=1) * vector.T))


@pytest.mark.parametrize(("n", "s", "m"), [(30, 6, 4), (24, 8, 3), (40, 12, 8)])
def test_no_vector_is_much_better(n, s, m):
    """For the worst stragglers, linear algebra on all of B finds no much better vector."""
    code = YeAbbe(n, stragglers=s, reduce=m)
    [circle] = code.scheme.rings()
    for lost in (circle[:s], circle[: s // 2], circle[: 2 * s : 2]):
        F = np.setdiff1d(np.arange(n), lost)
        B = code.matrix()[F].reshape(n - lost.size, -1)
        sizes = np.linalg.norm(B, axis=1)
        system = np.vstack([(B / sizes[:, None]).T, 2**-52 * np.eye(F.size)])
        target = np.zeros((len(system), m))
        target[: n * m] = np.tile(np.eye(m), (n, 1))
        least = np.linalg.lstsq(system, target, rcond=0)[0] / sizes[:, None]
        best = error_to_expect(code, F, least)
        assert error_to_expect(code, F, code.scheme.vector(F)) < 1.5 * best


def test_messages_of_less_precision_leave_out_more():
    """With a rounding of 2^-24, exact vectors that multiply it by millions do not pay."""
    code = YeAbbe(40, stragglers=12, reduce=8)
    [circle] = code.scheme.rings()
    F = np.setdiff1d(np.arange(40), circle[:12])
    single = code.decoding_vector(F, message_dtype="float32")
    double = code.decoding_vector(F)
    assert np.linalg.norm(single) < np.linalg.norm(double) / 3
    assert 1e-7 < code.residual(F, single) < 1e-2
    g, messages = coded(code, 64, np.float32)
    found = code.decode(F, [messages[i] for i in F], p=64)
    exact = g.sum(axis=0, dtype=np.float64)
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert error / 10 < code.trust(F, np.float32).relative_error < error * 10


@pytest.mark.parametrize(
    "arguments",
    [
        # A code that does lose half of the digits; finding this out takes minutes.
        pytest.param({"n": 300, "stragglers": 200, "reduce": 50}, marks=pytest.mark.long),
        {"n": 6, "stragglers": 1, "reduce": 2},
    ],
)
def test_beyond_what_float64_carries(arguments, monkeypatch):
    if arguments["n"] == 6:
        monkeypatch.setattr(YeAbbeScheme, "typical_error", lambda self: 1e-6)
    use = "use " if arguments["n"] == 300 else 'use clusters="auto", '
    with pytest.warns(InstabilityWarning, match=use + "a smaller reduce, or fewer stragglers"):
        YeAbbe(**arguments)
    with pytest.raises(fastgc.UnstableCodeError):
        YeAbbe(**arguments, strict=True)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 2, 5, 6, 7, 31, 1000])
def test_sizes_and_types(packed, dtype, p):
    code = YeAbbe(7, 9, stragglers=2, reduce=3, packed=packed)
    g, messages = coded(code, p, dtype)
    size = -(-p // 3) if not packed else 2 * -(-p // 6)
    assert {message.size for message in messages} == {size} == {code.message_size(p, dtype)}
    F = [6, 1, 0, 3, 2]
    exact, close = g.sum(axis=0, dtype=np.float64), {"rtol": 0, "atol": 400 * np.finfo(dtype).eps}
    found = code.decode(F, [messages[i] for i in F], p=p)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, exact, **close)
    bound = code.bind(np.array(messages), p=p)
    np.testing.assert_array_equal(bound(F), found)
    out = np.empty(p, dtype)
    assert code.decode(F, np.array(messages)[F], out) is out
    np.testing.assert_array_equal(out, found)
    received = code.round(p, dtype)
    for i in F:
        received.receive(i, messages[i])
    np.testing.assert_array_equal(received.gradient(), found)
    assert received.trust().relative_error < 1e3 * np.finfo(dtype).eps


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_messages_of_less_precision(kind):
    if kind == "bfloat16":
        pytest.importorskip("ml_dtypes")
    code = YeAbbe(6, stragglers=1, reduce=2)
    g = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
    messages = [code.encode(i, g[code.partitions(i)], message_dtype=kind) for i in range(5)]
    assert messages[0].itemsize == 2
    found = code.decode(range(5), messages)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, g.sum(axis=0), atol=0.02 if kind == "float16" else 0.15)


def test_complex_gradients():
    code = YeAbbe(5, stragglers=1, reduce=2)
    rng = np.random.default_rng(0)
    g = rng.standard_normal((5, 7)) + 1j * rng.standard_normal((5, 7))
    messages = [code.encode(i, g[code.partitions(i)]) for i in range(5)]
    assert messages[0].shape == (4,)
    np.testing.assert_allclose(code.decode(range(1, 5), messages[1:], p=7), g.sum(axis=0))


def test_bad_messages_are_named():
    code = YeAbbe(6, stragglers=1, reduce=2)
    _, messages = coded(code, 8)
    messages[3] = messages[3].copy()
    messages[3][1] = np.nan
    out = np.empty(8)
    with pytest.raises(fastgc.NonFiniteMessageError, match="worker 3"):
        code.decode(range(5), messages[:5], out)
    with pytest.raises(fastgc.NonFiniteMessageError, match="worker 3"):
        code.bind(np.array(messages), out)([0, 1, 2, 3, 4])
    with pytest.raises(ValueError, match="must have 4 elements, not 8"):
        code.decode(range(5), [np.ones(8)] * 5, np.empty(8))


def test_best_of_too_few():
    code = YeAbbe(6, stragglers=1, reduce=2)
    F = [0, 2, 4]
    vector, residual = code.best_vector(F)
    assert vector.shape == (3, 2)
    B = code.matrix()[F].reshape(3, -1)
    target = np.tile(np.eye(2), (6, 1))
    lacking = B.T @ vector - target
    assert residual == pytest.approx(np.linalg.norm(lacking) / np.sqrt(12))
    assert np.abs(B.conj() @ lacking).max() < 1e-12  # no vector comes closer
    assert code.residual(F) == pytest.approx(residual)


def test_a_third_of_the_bytes_goes_over_the_wire():
    code = YeAbbe(6, stragglers=1, reduce=3)
    shards, p = list(np.random.default_rng(0).standard_normal((6, 3000))), 3000
    out = np.empty(p)
    with LocalCluster(code, shards, np.multiply, p) as cluster:
        cluster.step(np.ones(p), out)
        assert cluster._message_shape == (1000,)
    np.testing.assert_allclose(out, np.sum(shards, axis=0), atol=1e-12)
    assert code.scheme.message_weight == pytest.approx(1 / 3)
    assert code.scheme.communication_load == pytest.approx(5 / 3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 5, "stragglers": 5, "reduce": 1}, "stragglers must be in 0"),
        ({"n": 5, "stragglers": 2, "reduce": 4}, r"reduce must be in 1 \.\. n - s = 3, not 4"),
        ({"n": 5, "stragglers": 2, "reduce": 0}, "reduce must be in 1"),
        ({"n": 5, "k": 4, "stragglers": 2, "reduce": 1}, "k must be at least n=5"),
        ({"n": 9, "stragglers": 2, "reduce": 2, "clusters": 3}, r"or in 1 \.\. .* = 2, not 3"),
        ({"n": 9, "stragglers": 2, "reduce": 2, "clusters": 0}, r"or in 1 \.\. .* = 2, not 0"),
    ],
)
def test_impossible_parameters(arguments, says):
    with pytest.raises(ValueError, match=says):
        YeAbbe(**arguments)


def test_groups_of_codes_with_pieces():
    code = fastgc.Grouped([YeAbbe(4, stragglers=1, reduce=2), YeAbbe(5, stragglers=2, reduce=2)])
    g, messages = coded(code, 10)
    F = [0, 1, 3, 4, 6, 8]
    found = code.decode(F, [messages[i] for i in F], p=10)
    np.testing.assert_allclose(found, g.sum(axis=0), atol=1e-12)
    with pytest.raises(ValueError, match="cuts gradients into 1 pieces, but codes"):
        fastgc.Grouped([YeAbbe(4, stragglers=1, reduce=2), fastgc.Uncoded(3)])
