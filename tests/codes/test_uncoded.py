"""The baselines: wait for all, and ignore stragglers."""

import itertools

import numpy as np
import pytest

from fastgc import NotDecodableError, Uncoded


@pytest.mark.parametrize("rescale", [True, False])
def test_every_survivor_set(rescale):
    rng = np.random.default_rng(0)
    for n, k, tolerance in itertools.product(
        range(1, 6), range(1, 9), (0, 0.1, 0.2, 0.25, 0.5, 0.75, 0.99)
    ):
        if k < n:
            continue
        code = Uncoded(n, k, tolerance=tolerance, rescale=rescale)
        partials = rng.standard_normal((k, 2))
        messages = [code.encode(i, partials[code.partitions(i)]) for i in range(n)]
        owned = [len(code.partitions(i)) for i in range(n)]
        assert sum(owned) == k
        assert max(owned) - min(owned) <= 1
        assert max(owned) == code.load
        for size in range(n + 1):
            enough = []
            for survivors in itertools.combinations(range(n), size):
                came = sum(owned[i] for i in survivors)
                ready = came >= max(1, np.ceil((1 - tolerance) * k - 1e-9))
                enough.append(ready)
                assert code.decodable(survivors) == ready
                if not ready:
                    with pytest.raises(NotDecodableError):
                        code.decoding_vector(survivors)
                    continue
                rows = np.concatenate([code.partitions(i) for i in survivors])
                expected = partials[rows].sum(axis=0) * (k / came if rescale else 1)
                gradient = code.decode(survivors, [messages[i] for i in survivors])
                np.testing.assert_allclose(gradient, expected, atol=1e-12)
            assert all(enough) == (size >= code.threshold)


@pytest.mark.parametrize(("n", "k", "load"), [(3, 3, 2), (4, 8, 3), (5, 10, 7), (6, 6, 6)])
def test_what_suffices_for_all_partitions_is_that_of_any_number(n, k, load):
    scheme = Uncoded(n, k, load=load).scheme
    assert scheme.threshold == scheme.messages.count - scheme._fewest_lost(1) + 1


def test_what_suffices_of_many_workers_takes_no_matrix():
    assert Uncoded(100_000, load=6).threshold == 600_000 - 21 + 1


def test_missing_counts_messages():
    code = Uncoded(4, 10, tolerance=0.4)  # shares 2, 3, 2, 3; six partial gradients are needed
    for survivors, missing in [([], 2), ([0], 2), ([1], 1), ([0, 2], 1)]:
        with pytest.raises(NotDecodableError) as caught:
            code.decoding_vector(survivors)
        assert caught.value.missing == missing
    code = Uncoded(4, 10, tolerance=0.1)  # nine are needed; both large shares have come
    with pytest.raises(NotDecodableError, match="at least 2 more messages are needed"):
        code.decoding_vector([1, 3])


def test_tolerance_of_s_over_n_is_s_stragglers():
    for n in range(2, 101):
        for s in range(n):
            assert Uncoded(n, tolerance=s / n).stragglers == s, (n, s)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 0}, "n and k must be at least 1, not n=0"),
        ({"n": 3, "k": 2}, "k must be at least n=3, not 2"),
        ({"n": 3, "tolerance": 1.0}, "tolerance must be in"),
        ({"n": 3, "tolerance": -0.1}, "tolerance must be in"),
        ({"n": 3, "tolerance": float("nan")}, "tolerance must be in"),
    ],
)
def test_impossible(arguments, says):
    with pytest.raises(ValueError, match=says):
        Uncoded(**arguments)


def test_other_methods_are_refused():
    with pytest.raises(ValueError, match='method "auto"'):
        Uncoded(3).decoding_vector(range(3), "locator")
