"""Messages shorter than gradients: Ye and Abbe's code, and what every verb does with pieces."""

import itertools

import mpmath
import numpy as np
import pytest

import fastgc
from fastgc import InstabilityWarning, NotDecodableError, YeAbbe
from fastgc.engines import LocalCluster

pytestmark = pytest.mark.any_backend


def coded(code, p, dtype=np.float64, seed=0):
    g = np.random.default_rng(seed).standard_normal((code.k, p)).astype(dtype)
    return g, [code.encode(i, g[code.partitions(i)]) for i in range(code.n)]


@pytest.mark.parametrize(
    ("n", "s", "m"), [(n, s, m) for n in range(1, 7) for s in range(n) for m in range(1, n - s + 1)]
)
def test_every_set_of_survivors(n, s, m):
    """The gradient from any n - s messages and more; from fewer never, where B says so."""
    code = YeAbbe(n, stragglers=s, reduce=m)
    assert (code.load, code.stragglers, code.threshold, code.pieces) == (s + m, s, n - s, m)
    for i in range(n):
        assert code.partitions(i).tolist() == [(i + t) % n for t in range(s + m)]
    p = 2 * m * 3
    g, messages = coded(code, p)
    assert all(message.size == p // m for message in messages)
    for f in range(1, n + 1):
        for F in map(list, itertools.combinations(range(n), f)):
            if f < n - s:
                assert not code.decodable(F)
                with pytest.raises(NotDecodableError, match=f"any {n - s} of {n} workers"):
                    code.decoding_vector(F)
                continue
            found = code.decode(F, [messages[i] for i in F])
            np.testing.assert_allclose(found, g.sum(axis=0), atol=1e-12)
            assert code.residual(F) < 1e-13


def test_each_piece_is_the_lowest_coefficients_of_a_polynomial():
    """B by its definition, in 40 digits: values of x^u T_u(x) prod over others (1 - x / x_l)."""
    code = YeAbbe(9, stragglers=2, reduce=3)
    B = code.matrix()
    with mpmath.workdps(40):
        # which root is the code's own choice: the one that its entries are of
        for q in (q for q in range(1, 9) if np.gcd(q, 9) == 1):
            x = [mpmath.expjpi(mpmath.mpf(2 * q * i % 18) / 9) for i in range(9)]
            expected = np.zeros((9, 9, 3), dtype=complex)
            for j in range(9):
                holders = [i for i in range(9) if j in code.partitions(i)]
                others = [i for i in range(9) if i not in holders]
                T = [mpmath.mpf(1)]
                for r in holders:
                    T = [a - b / x[r] for a, b in zip([*T, 0], [0, *T], strict=True)]
                for i, u in itertools.product(holders, range(3)):
                    rest = mpmath.fprod(1 - x[i] / x[w] for w in others)
                    cut = mpmath.fsum(T[t] * x[i] ** t for t in range(3 - u))
                    expected[i, j, u] = complex(x[i] ** u * cut * rest)
            if np.abs(B - expected).max() < 1e-13 * np.abs(expected).max():
                return
    pytest.fail("B is of no root")


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
        assert error < 1e-12
        assert error < 30 * code.trust(F).relative_error


@pytest.mark.parametrize(
    "arguments",
    [
        # where it truly loses half of the digits, which takes minutes to find out
        pytest.param({"n": 300, "stragglers": 200, "reduce": 50}, marks=pytest.mark.long),
        {"n": 6, "stragglers": 1, "reduce": 2},
    ],
)
def test_beyond_what_float64_carries(arguments, monkeypatch):
    if arguments["n"] == 6:
        monkeypatch.setattr(YeAbbe, "typical_error", lambda self: 1e-6)
    with pytest.warns(InstabilityWarning, match="use a smaller reduce, or fewer stragglers"):
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
    assert np.abs(B.conj() @ lacking).max() < 1e-12  # nothing comes closer
    assert code.residual(F) == pytest.approx(residual)


def test_a_third_of_the_bytes_goes_over_the_wire():
    code = YeAbbe(6, stragglers=1, reduce=3)
    shards, p = list(np.random.default_rng(0).standard_normal((6, 3000))), 3000
    out = np.empty(p)
    with LocalCluster(code, shards, np.multiply, p) as cluster:
        cluster.step(np.ones(p), out)
        assert cluster._message_shape == (1000,)
    np.testing.assert_allclose(out, np.sum(shards, axis=0), atol=1e-12)
    assert code.message_weight == pytest.approx(1 / 3)
    assert code.communication_load == pytest.approx(5 / 3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 5, "stragglers": 5, "reduce": 1}, "0 <= stragglers < n"),
        ({"n": 5, "stragglers": 2, "reduce": 4}, r"reduce must be in 1 \.\. n - s = 3, not 4"),
        ({"n": 5, "stragglers": 2, "reduce": 0}, "reduce must be in 1"),
        ({"n": 5, "k": 4, "stragglers": 2, "reduce": 1}, "k must be at least n=5"),
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
