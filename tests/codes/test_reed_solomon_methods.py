"""All methods for Reed-Solomon decoding vectors agree with each other and with the truth."""

import functools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strength import much

import fastgc
from fastgc import NotDecodableError, ReedSolomon
from fastgc.codes import reed_solomon
from fastgc.kernels import fourier
from fastgc.kernels.fourier import Transform, transform_length

pytestmark = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")

METHODS = ["locator", "lookup", "spread", "fft"]


def stragglers_of(kind, n, s, q, rng):
    """Return stragglers in the worst places, or at random."""
    on_circle = np.arange(n) * pow(q, -1, n) % n  # workers in the order of their roots
    at = int(rng.integers(n))
    return {
        "random": rng.permutation(n)[:s],
        "neighbours": (at + np.arange(s)) % n,
        "an arc": on_circle[(at + np.arange(s)) % n],
        "two arcs": np.roll(on_circle, at)[np.r_[: s // 2, n // 2 : n // 2 + s - s // 2]],
        "evenly": on_circle[np.arange(s) * (n // max(s, 1)) % n] if s else np.empty(0, int),
    }[kind]


KINDS = ["random", "neighbours", "an arc", "two arcs", "evenly"]


@pytest.mark.every_backend
@settings(deadline=None, max_examples=much(60, 12))
@given(
    n=st.integers(2, 700),
    part=st.floats(0, 1),
    kind=st.sampled_from(KINDS),
    stable=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
@example(n=512, part=0.125, kind="an arc", stable=True, seed=0)
@example(n=640, part=0.5, kind="evenly", stable=False, seed=0)
@example(n=691, part=0.25, kind="an arc", stable=True, seed=0)  # a prime: padded transforms
@example(n=691, part=0.9, kind="neighbours", stable=True, seed=0)
@example(n=640, part=0.6, kind="an arc", stable=False, seed=0)  # beyond float64
def test_all_methods_agree(n, part, kind, stable, seed):
    rng = np.random.default_rng(seed)
    s = round(part * (n - 1))
    code = ReedSolomon(n, stragglers=s, root="stable" if stable else 1)
    lost = stragglers_of(kind, n, s, code.scheme._clusters[0].q, rng)
    survivors = rng.permutation(np.setdiff1d(np.arange(n), lost))
    apart = (survivors[:, None] - lost) * code.scheme._clusters[0].q % n
    sizes = np.log(2 * np.sin(np.pi / n * apart)).sum(axis=1) - math.log(n)
    if sizes.max() > 705:
        for method in METHODS:
            with pytest.raises(OverflowError, match="beyond float64"):
                code.decoding_vector(survivors, method)
        return
    representable = sizes > -690
    vectors = {method: code.decoding_vector(survivors, method) for method in METHODS}
    mask = np.zeros((1, n), dtype=bool)
    mask[0, survivors] = True
    for method in METHODS:
        vectors[f"batch, {method}"] = code.decoding_vectors(mask, method)[0, survivors]
    truth = vectors["locator"][representable]
    for method, vector in vectors.items():
        error = np.abs(vector[representable] - truth) / np.abs(truth)
        assert error.max(initial=0) < 1e-12, method


@pytest.mark.every_backend
@pytest.mark.parametrize("kind", KINDS)
def test_512_workers_to_30_digits(kind):
    code, survivors, exact = of_512_workers(kind)
    for method in METHODS:
        error = np.abs(code.decoding_vector(survivors, method) - exact) / np.abs(exact)
        assert error.max() < 1e-12, method


@functools.cache  # shared by all backends
def of_512_workers(kind):
    n, s = 512, 64
    code = ReedSolomon(n, stragglers=s)
    q, rng = code.scheme._clusters[0].q, np.random.default_rng(5)
    lost = stragglers_of(kind, n, s, q, rng)
    survivors = rng.permutation(np.setdiff1d(np.arange(n), lost))
    with mpmath.workdps(30):
        factor = [1 - mpmath.expjpi(mpmath.mpf(2 * q * t) / n) for t in range(n)]
        exact = [
            mpmath.fprod(factor[(i - j) % n] for j in lost.tolist()) / n for i in survivors.tolist()
        ]
        exact = np.array([complex(a) for a in exact])
    return code, survivors, exact


# --------------------------------------------------------------------------- many rounds at once

CODES = [
    ReedSolomon(12, stragglers=3),
    ReedSolomon(23, stragglers=4, clusters="auto"),
    fastgc.BinaryCode(9, stragglers=2),
    fastgc.CyclicRepetition(7, stragglers=2),
    fastgc.Uncoded(6, load=2),
]


@pytest.mark.every_backend
@pytest.mark.parametrize("code", CODES, ids=repr)
def test_batch_is_each_round_by_itself(code):
    rng = np.random.default_rng(3)
    masks = rng.random((60, code.scheme.messages.count)) < rng.random((60, 1))
    masks[0], masks[1] = True, False
    before = masks.copy()
    vectors = code.decoding_vectors(masks, undecodable="nan")
    np.testing.assert_array_equal(masks, before)
    decodable = 0
    for mask, vector in zip(masks, vectors, strict=True):
        survivors = np.flatnonzero(mask)
        if code.decodable(survivors):
            decodable += 1
            np.testing.assert_array_equal(vector[survivors], code.decoding_vector(survivors))
            assert not vector[~mask].any()
        else:
            assert np.isnan(vector).all()
    assert 0 < decodable < 60
    first = int(np.flatnonzero(np.isnan(vectors).any(axis=1))[0])
    with pytest.raises(NotDecodableError) as caught:
        code.decoding_vectors(masks)
    assert caught.value.__notes__ == [f"round {first} of 60"]


def test_batch_over_threads_and_by_transforms():
    rng = np.random.default_rng(4)
    code = ReedSolomon(256, stragglers=32)
    masks = np.ones((300, 256), dtype=bool)
    for mask in masks:
        mask[rng.permutation(256)[:32]] = False
    vectors = code.decoding_vectors(masks)  # enough factors for threads
    for r in (0, 150, 299):
        survivors = np.flatnonzero(masks[r])
        np.testing.assert_array_equal(vectors[r, survivors], code.decoding_vector(survivors))
    by_fft = code.decoding_vectors(masks[:5], "fft")
    np.testing.assert_allclose(by_fft, vectors[:5], rtol=1e-12, atol=0)
    assert code.decoding_vectors(masks[:0]).shape == (0, 256)


def test_batch_refuses_other_masks():
    code = ReedSolomon(6, stragglers=1)
    with pytest.raises(TypeError, match="masks must be boolean, not int64"):
        code.decoding_vectors(np.ones((2, 6), dtype=np.int64))
    with pytest.raises(ValueError, match=r"\(rounds, 6\), not \(2, 5\)"):
        code.decoding_vectors(np.ones((2, 5), dtype=bool))
    with pytest.raises(ValueError, match="undecodable must be"):
        code.decoding_vectors(np.ones((2, 6), dtype=bool), undecodable="skip")
    with pytest.raises(ValueError, match="unknown method"):
        code.decoding_vectors(np.ones((2, 6), dtype=bool), "guess")


@pytest.mark.every_backend
def test_batch_says_which_entries_are_beyond_float64():
    code = ReedSolomon(4096, stragglers=2048, root=1)
    masks = np.ones((2, 4096), dtype=bool)
    masks[1, :2048] = False
    vectors = code.decoding_vectors(masks, "locator", undecodable="nan")
    np.testing.assert_allclose(vectors[0], 1 / 4096, rtol=1e-15)
    assert np.isnan(vectors[1]).all()
    with pytest.raises(OverflowError) as caught:
        code.decoding_vectors(masks, "locator")
    assert caught.value.__notes__ == ["round 1 of 2"]


# ---------------------------------------------------------------------------- a million workers

MILLION = 1 << 20


@pytest.fixture(scope="module")
def large():
    return ReedSolomon(MILLION, stragglers=1 << 14)


def test_rows_of_a_large_code_are_made_by_themselves(large):
    """By definition, a row has the columns whose support holds the worker, with their entries."""
    d, q = large.load, large.scheme._clusters[0].q
    for worker in (0, 1, 77, MILLION // 2, MILLION - 1):
        held, values = large.partitions(worker), large.coefficients(worker)
        assert held.size == values.size == d
        # k = n: column j begins at row j d mod n.
        offset = held * d % MILLION
        place = (worker - offset) % MILLION
        assert (place < d).all()
        assert np.unique(held).size == d
        u = np.arange(d)
        for x, value in list(zip(place.tolist(), values.tolist(), strict=True))[:2]:
            others = u[u != x]
            residue = q * (x - others) % MILLION
            size = np.log(2 * np.sin(np.pi * (residue / MILLION).astype(np.longdouble))).sum()
            turns = int((2 * residue - MILLION).sum()) % (4 * MILLION)  # multiples of pi / (2 n)
            exact = MILLION * np.exp(-size) * np.exp(-1j * np.pi / 2 / MILLION * turns)
            assert abs(value / complex(exact) - 1) < 1e-9


@pytest.mark.long
@pytest.mark.parametrize("s", [12, 1 << 14])
def test_a_million_workers(large, s):
    """Some entries agree with sums of logarithms in extended precision."""
    rng = np.random.default_rng(s)
    code = large if s > 12 else ReedSolomon(MILLION, stragglers=s)
    q = code.scheme._clusters[0].q
    lost = rng.permutation(MILLION)[:s]
    survivors = np.setdiff1d(np.arange(MILLION), lost)
    vector = code.decoding_vector(survivors)
    pi = np.longdouble("3.14159265358979323846264338327950288")
    for at in rng.integers(survivors.size, size=20):
        residue = q * (int(survivors[at]) - lost) % MILLION
        near = np.minimum(residue, MILLION - residue)
        size = np.log(2 * np.sin(pi * near / MILLION)).sum() - np.log(np.longdouble(MILLION))
        turns = int((2 * residue - MILLION).sum()) % (4 * MILLION)
        exact = np.exp(size) * np.exp(1j * np.pi / 2 / MILLION * turns)
        assert abs(vector[at] / complex(exact) - 1) < 1e-12


# ---------------------------------------------------------------------------- where methods cross


def test_transforms_have_fast_lengths():
    assert transform_length(1024) == 1024
    assert transform_length(2310) == 2310  # 2 3 5 7 11
    assert transform_length(1009) == 2025  # a prime; 2 * 1009 - 1 = 2017
    x = np.random.default_rng(0).random(1024)
    for m in (1009, 1024, 1, 2):
        padded = Transform.of(m, 1)
        table = np.array([math.log(2 * math.sin(math.pi * t / m)) if t else 0 for t in range(m)])
        taken = np.append(x[:m], np.zeros(padded.length - m))
        expected = [sum(x[j] * table[(i - j) % m] for j in range(m)) for i in (0, m // 2)]
        padded.convolve(taken, np.empty(padded.length // 2 + 1, dtype=complex))
        np.testing.assert_allclose(taken[[0, m // 2]], expected, atol=1e-11)


def test_one_rule_decides(monkeypatch):
    assert fourier.crossover(4096) == 256
    assert fourier.crossover(10007) == round(256 * transform_length(10007) / 10007)
    assert ReedSolomon(4096, stragglers=1024).scheme._transforms_from == 4096  # never

    monkeypatch.setattr(reed_solomon, "SPREAD_STEPS", 0)
    monkeypatch.setattr(fourier, "FACTORS", 5)
    code = ReedSolomon(64, stragglers=40)
    assert code.scheme._transforms_from == 5
    rng = np.random.default_rng(0)
    for s, method in [(4, "locator"), (5, "fft"), (40, "fft")]:
        survivors = rng.permutation(64)[s:]
        auto = code.decoding_vector(survivors)
        np.testing.assert_array_equal(auto, code.decoding_vector(survivors, method))


def test_auto_takes_no_steps_without_end():
    """Choosing among 50,000 survivors would take minutes, so "auto" takes the locator's vector."""
    code = ReedSolomon(1 << 16, stragglers=1 << 14)
    assert not code.scheme._may_spread
    assert ReedSolomon(4096, stragglers=1024).scheme._may_spread
    q = code.scheme._clusters[0].q
    on_circle = np.arange(1 << 16) * pow(q, -1, 1 << 16) % (1 << 16)
    survivors = np.sort(on_circle[20:])  # an arc of stragglers, and messages to spare
    auto = code.decoding_vector(survivors)
    np.testing.assert_array_equal(auto, code.decoding_vector(survivors, "locator"))
