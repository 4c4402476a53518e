"""The search for the worst stragglers."""

import itertools

import numpy as np
import pytest

from fastgc import (
    CyclicRepetition,
    InstabilityWarning,
    LagrangeCode,
    NotDecodableError,
    ReedSolomon,
    Uncoded,
    stability,
)
from fastgc.coding.trust import trust_by_rows
from fastgc.stability.search import contiguous, messages_without

unstable = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")


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
def test_worst_stragglers_of_exact_and_near_exact_vectors():
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

    # As bad as those that the search found when it was written.
    assert error(exact, "locator") > 9e-8
    assert error(near, "near-exact") > 6e-9 > error(exact, "near-exact")


def test_worst_stragglers_of_the_papers_root_are_neighbours():
    with pytest.warns(InstabilityWarning):
        code = ReedSolomon(64, stragglers=20, root=1)
    gaps = np.diff(stability.worst_stragglers(code, trials=0))
    assert (gaps != 1).sum() <= 1


def test_worst_stragglers_exchanged_are_worse_than_patterns():
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


def test_contiguous_windows_go_around_the_circle():
    windows = [w.tolist() for w in contiguous(5, 3, 8, np.random.default_rng(0))]
    assert windows == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1]]


@pytest.mark.parametrize("s", [5, 16])
def test_worst_stragglers_starts_from_sets_of_distinct_workers(s):
    """Graded ones fill windows of the circle from an eighth of it up to `s` workers."""
    sizes, trials = [], 200

    class Watched(ReedSolomon):
        def decoding_vector(self, survivors, *rest, **options):
            sizes.append(self.n - len(survivors))
            return super().decoding_vector(survivors, *rest, **options)

    stability.worst_stragglers(Watched(20, stragglers=16), s, trials=trials)
    starts = sizes[: -3 * trials]
    assert len(starts) > 2 * trials
    assert set(starts) == {min(s, 20 * part // 8) for part in range(1, 9)}
