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
        ({"n": 3, "tolerance": "0.1"}, "tolerance must be a real number"),
        ({"n": 4, "k": 6, "load": 2}, "k must be a multiple of n=4, not 6"),
        ({"n": 4, "k": 8, "load": 1}, "load must be in k/n = 2 .. k = 8, not 1"),
        ({"n": 4, "load": 5}, "load must be in k/n = 1 .. k = 4, not 5"),
    ],
)
def test_impossible(arguments, says):
    with pytest.raises((TypeError, ValueError), match=says):
        Uncoded(**arguments)


# ------------------------------------------------------------------------------------------- UC-MMC


def test_circular_shift():
    """Eq. (11): A(j, :) = circshift([1 : N], -(j - 1))."""
    code = Uncoded(5, load=3)
    A = np.array([[code.partitions(i, t)[0] for i in range(5)] for t in range(3)])
    np.testing.assert_array_equal(A, [np.roll(np.arange(5), -t) for t in range(3)])
    np.testing.assert_array_equal(Uncoded(3, 6, load=4).partitions(2), [4, 5, 0, 1])


@pytest.mark.parametrize("n", range(1, 5))
def test_every_tolerance_of_uc_mmc(n):
    """Thresholds and stragglers agree with their definitions, by trying all sets."""
    for m, tolerance in itertools.product((1, 2), (0, 0.2, 0.34, 0.5, 0.75)):
        k = m * n
        for load in range(m, k + 1):
            if (load + 1) ** n > 3000:
                continue
            code = Uncoded(n, k, load=load, tolerance=tolerance)
            need = max(1, int(np.ceil(round((1 - tolerance) * k, 9))))
            most = 0
            for sent in itertools.product(range(load + 1), repeat=n):
                held = [(i * m + t) % k for i in range(n) for t in range(sent[i])]
                F = [code.scheme.messages.number(i, t) for i in range(n) for t in range(sent[i])]
                ready = len(set(held)) >= need
                assert code.decodable(F) == ready
                if not ready:
                    most = max(most, len(F))
            assert code.threshold == most + 1, code
            for s in range(n + 1):
                every = all(
                    len({(i * m + t) % k for i in set(range(n)) - set(lost) for t in range(load)})
                    >= need
                    for lost in itertools.combinations(range(n), s)
                )
                assert every == (s <= code.stragglers), (code, s)


def test_five_percent_of_forty():
    """Section V: at N = 40, 5% tolerance leaves out two partial gradients."""
    exact, tolerant = Uncoded(40, load=3), Uncoded(40, load=3, tolerance=0.05)
    assert exact.scheme.rule.need == 40
    assert tolerant.scheme.rule.need == 38
    assert tolerant.recovery(200).messages < exact.recovery(200).messages


@pytest.mark.parametrize(
    "code",
    [Uncoded(6, tolerance=0.5), Uncoded(6, 12, tolerance=0.5, rescale=False)],
    ids=repr,
)
def test_residuals_by_formula_are_those_of_every_set(code):
    for f in range(3, code.n + 1):
        found = code.residuals(f)
        assert (found.workers, found.sets, found.exhaustive) == (f, 0, True)
        for heard in itertools.combinations(range(code.n), f):
            assert found.worst == pytest.approx(code.residual(heard), abs=1e-7)
        assert found.mean == found.worst
    assert code.residuals(code.n).worst == 0
    assert code.scheme.precision.known_residuals(2) is None  # too few to decode


def test_residuals_of_others_are_looked_at():
    """It matters which workers are missing, or how far they have come."""
    unequal = Uncoded(5, 7, tolerance=0.3)
    for code in (unequal, Uncoded(4, load=2, tolerance=0.5), Uncoded(3, 3, load=1)):
        assert code.scheme.precision.known_residuals(code.n - 1) is None
    found = unequal.residuals()
    assert found.sets > 0
    assert found.mean < found.worst
