"""The uncoded scheme against its definition, by brute force over survivor sets."""

import itertools
import pickle

import numpy as np
import pytest

from fastgc import NotDecodableError, Uncoded

SIZES = [(1, 1), (1, 5), (2, 2), (3, 7), (4, 4), (5, 12), (6, 6), (6, 17)]
TOLERANCES = [0.0, 0.01, 0.25, 1 / 3, 0.5, 0.9, 0.99]


def survivor_sets(n):
    for size in range(n + 1):
        yield from itertools.combinations(range(n), size)


@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.any_backend
def test_every_partition_once(n, k):
    code = Uncoded(n, k)
    held = [code.partitions(i) for i in range(n)]
    assert np.concatenate(held).tolist() == list(range(k))  # contiguous, in order
    sizes = [h.size for h in held]
    assert max(sizes) - min(sizes) <= 1
    assert code.load == max(sizes)
    assert code.matrix().dtype == np.float64
    np.testing.assert_array_equal(code.matrix().sum(axis=0), 1)
    np.testing.assert_array_equal(code.matrix().sum(axis=1), sizes)


@pytest.mark.parametrize("tolerance", TOLERANCES)
@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.any_backend
def test_every_survivor_set(n, k, tolerance):
    code = Uncoded(n, k, tolerance=tolerance)
    sizes = np.diff(np.arange(n + 1) * k // n)
    sets = list(survivor_sets(n))
    good = {s for s in sets if sizes[list(s)].sum() >= max(1, (1 - tolerance) * k - 1e-9)}
    tolerated = max(
        s for s in range(n) if all(set_ in good for set_ in sets if len(set_) == n - s)
    )
    assert code.stragglers == tolerated
    assert code.threshold == n - tolerated
    for survivors in sets:
        assert code.decodable(survivors) == (survivors in good)
        if survivors in good:
            vector = code.decoding_vector(survivors)
            assert vector.dtype == np.float64
            np.testing.assert_array_equal(vector, k / sizes[list(survivors)].sum())
        else:
            more = min(len(g) - len(survivors) for g in good if set(g) >= set(survivors))
            with pytest.raises(NotDecodableError, match=f"at least {more} more") as caught:
                code.decoding_vector(survivors)
            assert caught.value.missing == more


@pytest.mark.any_backend
def test_tolerance_in_workers():
    """tolerance=s/n tolerates s workers, whatever s/n rounds to."""
    for n in range(1, 60):
        for s in range(n):
            assert Uncoded(n, tolerance=s / n).stragglers == s
            assert Uncoded(n, 3 * n, tolerance=s / n).stragglers == s


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("p", [1, 2, 7, 33])
def test_gradient(dtype, p):
    rng = np.random.default_rng(p)
    code = Uncoded(5, 13)
    partials = (rng.standard_normal((13, p)) + 1j * rng.standard_normal((13, p))).astype(
        np.complex128
    )
    partials = (partials if np.dtype(dtype).kind == "c" else partials.real).astype(dtype)
    messages = [code.encode(i, partials[code.partitions(i)]) for i in range(5)]
    assert {m.dtype for m in messages} == {np.dtype(dtype)}
    assert {m.shape for m in messages} == {(p,)}  # no packing: odd p too
    unit = np.finfo(dtype).eps
    truth = partials.astype(np.complex128).sum(axis=0)
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3]):
        gradient = code.decode(order, [messages[i] for i in order])
        assert gradient.dtype == dtype
        np.testing.assert_allclose(gradient, truth, atol=40 * unit)
    received = code.round(p, dtype)
    for i in (3, 0, 4, 1):
        assert not received.receive(i, messages[i])
    assert received.receive(2, messages[2])
    np.testing.assert_allclose(received.gradient(), truth, atol=40 * unit)


def test_what_came_estimates_the_sum():
    """Rescaled and averaged over all survivor sets of one size, the gradient is exact."""
    rng = np.random.default_rng(0)
    partials = rng.standard_normal((6, 4))
    scaled, plain = Uncoded(6, tolerance=0.5), Uncoded(6, tolerance=0.5, rescale=False)
    results = []
    for survivors in itertools.combinations(range(6), 4):
        rows = partials[list(survivors)]
        results.append(scaled.decode(survivors, rows))
        np.testing.assert_allclose(plain.decode(survivors, rows), rows.sum(axis=0), atol=1e-14)
    np.testing.assert_allclose(np.mean(results, axis=0), partials.sum(axis=0), atol=1e-13)
    assert np.std(results, axis=0).max() > 0.1  # and is no exact gradient


@pytest.mark.any_backend
def test_again_from_pickle_and_repr():
    for code in (Uncoded(4), Uncoded(5, 11, tolerance=0.4, rescale=False)):
        for again in (pickle.loads(pickle.dumps(code)), eval(repr(code))):
            assert repr(again) == repr(code)
            assert again.threshold == code.threshold
            np.testing.assert_array_equal(again.matrix(), code.matrix())


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"n": 0}, ValueError, "1 <= n <= k, not n=0"),
        ({"n": 4, "k": 3}, ValueError, "1 <= n <= k, not n=4, k=3"),
        ({"n": 4.0}, TypeError, "n must be an integer"),
        ({"n": 4, "k": "4"}, TypeError, "k must be an integer"),
        ({"n": 4, "tolerance": 1.0}, ValueError, r"tolerance must be in \[0, 1\), not 1.0"),
        ({"n": 4, "tolerance": -0.1}, ValueError, "tolerance must be in"),
        ({"n": 4, "tolerance": float("nan")}, ValueError, "tolerance must be in"),
    ],
)
@pytest.mark.any_backend
def test_impossible_parameters(arguments, error, says):
    with pytest.raises(error, match=says):
        Uncoded(**arguments)


@pytest.mark.parametrize(
    ("survivors", "error", "says"),
    [
        ([0, 1, 4], ValueError, r"survivors\[2\] is 4"),
        ([-1, 1], ValueError, r"survivors\[0\] is -1"),
        ([1, 2, 1], ValueError, r"survivors\[2\] names worker 1 a second time"),
        ([0, 1, 2, 3, 0], ValueError, "a second time"),
        ([0.5], TypeError, "must be integers"),
        ([[0]], ValueError, "one-dimensional"),
    ],
)
@pytest.mark.any_backend
def test_bad_survivors(survivors, error, says):
    code = Uncoded(4, tolerance=0.5)
    for ask in (code.decodable, code.decoding_vector, code.trust):
        with pytest.raises(error, match=says):
            ask(survivors)
    code.decoding_vector(range(4))


@pytest.mark.any_backend
def test_only_one_method():
    code = Uncoded(4)
    with pytest.raises(ValueError, match='"auto", not \'locator\''):
        code.decoding_vector(range(4), "locator")
    with pytest.raises(ValueError, match="worker 4 does not exist"):
        code.partitions(4)
