"""Batched raptor codes: their degrees, peeling by its definition, and their promises."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgc import NotDecodableError, RaptorCode
from fastgc.codes.raptor import degrees
from fastgc.coding.cells import IncidenceScheme
from fastgc.coding.scheme import Scheme

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("missing", [Fraction(1, 5), Fraction(1, 10), Fraction(1, 33)])
def test_degrees_are_a_distribution_and_those_of_the_paper(missing):
    D = int(1 / missing)
    u = 2 * missing * (1 - 2 * missing) / (1 - 4 * missing) ** 2
    exact = [u, *(Fraction(1, i * (i - 1)) for i in range(2, D + 1)), Fraction(1, D)]
    assert sum(exact) == 1 + u
    found = degrees(float(missing))
    np.testing.assert_allclose(found, [float(p / (1 + u)) for p in exact], rtol=1e-12)


def peeled(sums, batches):
    """Return the batches found by subtracting known ones from sums, by definition."""
    known = set()
    while True:
        new = {next(iter(left)) for s in sums if len(left := set(s) - known) == 1}
        if not new:
            return [b in known for b in range(batches)]
        known |= new


@given(st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_peeling(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    f = int(rng.integers(1, n + 1))
    code = RaptorCode(
        n,
        n + int(rng.integers(20)),
        wait=f,
        batches=int(rng.integers(1, n + 1)),
        missing=float(rng.uniform(0.05, 0.24)),
        seed=seed,
    )
    survivors = rng.permutation(n)[:f]
    vector, known = code.peel(survivors)
    B = code.matrix()
    first = code.scheme.cuts[:-1]  # a partition of each batch
    sums = [np.flatnonzero(B[i, first]) for i in survivors.tolist()]
    assert known.tolist() == peeled(sums, code.batches)
    decoded = vector @ B[survivors]
    np.testing.assert_allclose(decoded, np.repeat(known, np.diff(code.scheme.cuts)), atol=1e-9)
    # Least squares are at least as good, and satisfy the rows.
    np.testing.assert_array_equal(code.decoding_vector(survivors, "peeling"), vector)
    best = np.linalg.lstsq(B[survivors].T, np.ones(code.k))[0]
    least = np.linalg.norm(best @ B[survivors] - 1) / np.sqrt(code.k)
    assert code.residual(survivors) == pytest.approx(least, abs=1e-9)
    assert code.residual(survivors) <= code.residual(survivors, vector) + 1e-9


def test_batches_are_those_of_the_paper():
    # Each batch has b = ceil(1 / log(n / s)) + 1 partitions.
    for n, s, b in ((200, 100, 3), (200, 20, 2), (200, 150, 5), (200, 0, 1)):
        assert RaptorCode(n, wait=n - s).batches == n // b


def test_hardly_more_is_missing_than_was_asked_for():
    # The guarantee is a probability for large n; here, 40 draws of 400 workers. The simulation
    # gives the part of batches that peeling does not find.
    for missing, s in ((0.05, 200), (0.1, 200), (0.1, 80)):
        left = []
        for seed in range(40):
            code = RaptorCode(400, wait=400 - s, missing=missing, seed=seed)
            came = np.random.default_rng(seed).permutation(400)[: 400 - s]
            left.append(1 - code.peel(came)[1].mean())
        assert np.mean(left) < missing
        assert np.mean(np.array(left) > 2 * missing) <= 0.05
        mean_load = code.scheme.loads.mean() / (400 // code.batches)
        assert mean_load < 2 * np.log(1 / missing)


def test_rounds_end_with_as_many_messages_as_are_waited_for():
    code = RaptorCode(20, wait=12, seed=3)
    assert code.threshold == 12
    few = [i for i in range(20) if code.scheme.loads[i] == code.scheme.loads.min()][:2]
    assert not code.decodable(few)
    for method in ("auto", "peeling"):
        with pytest.raises(NotDecodableError):
            code.decoding_vector(few, method)
    with pytest.raises(ValueError, match='knows the method "auto", not'):
        code.decoding_vector(range(12), "leja")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"missing": 0.25}, "less than 1/4, not 0.25"),
        ({"missing": 0.0}, "more than 0"),
        ({"batches": 21}, "batches must be in 1 .. k = 20, not 21"),
        ({"wait": 21}, "wait must be in 1 .. n = 20"),
        ({"k": 0}, "at least 1, not n=20, k=0"),
    ],
)
def test_errors_say_what_is_possible(arguments, says):
    with pytest.raises(ValueError, match=says):
        RaptorCode(**{"n": 20, "wait": 15} | arguments)


def test_many_workers_take_no_matrix(monkeypatch):
    """20,000 workers, whose matrix would take 1 GB, still get the least-squares vector."""
    monkeypatch.setattr(IncidenceScheme, "equations", refused)
    monkeypatch.setattr(Scheme, "row", refused)
    code = RaptorCode(20_000, wait=19_000, missing=0.05)
    F = np.random.default_rng(0).permutation(code.n)[: code.scheme.wait]
    vector = code.scheme.solution(F)[0]
    first, held, _ = code.scheme.entries
    line = np.repeat(np.arange(code.n), np.diff(first))
    of_all = np.zeros(code.n)
    of_all[F] = vector
    left = np.bincount(held, of_all[line], code.k) - 1
    came = np.zeros(code.n, dtype=bool)
    came[F] = True
    slope = np.bincount(line, left[held], code.n)[came]
    assert np.linalg.norm(slope) < 1e-9 * np.sqrt(code.k)  # no vector is nearer
    assert code.residual(F) == pytest.approx(np.linalg.norm(left) / np.sqrt(code.k))


def refused(*_):
    raise AssertionError("it takes O(n^2)")


@pytest.mark.parametrize("n", [150, 300])
def test_sparse_vectors_are_those_of_the_matrix(n):
    code = RaptorCode(n, 2 * n, wait=n - 20, seed=2)
    rng = np.random.default_rng(0)
    for _ in range(5):
        F = rng.permutation(n)[: n - 20]
        found, left = code.scheme.solution(F)
        rows, target, _ = code.scheme.equations(F)
        sizes = np.linalg.norm(rows, axis=1)
        expected = np.linalg.lstsq((rows / sizes[:, None]).T, target)[0] / sizes
        least = np.linalg.norm(expected @ rows - target) / np.linalg.norm(target)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        assert left == pytest.approx(least, abs=1e-9)
        worker = int(F[0])
        row = code.scheme.equations(np.array([worker])).rows[0]
        assert code.scheme.touched(worker).tolist() == np.flatnonzero(row).tolist()
