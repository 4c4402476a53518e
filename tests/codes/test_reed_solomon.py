"""Reed-Solomon codes agree with Algorithms 1, 2 and 4, written out here, and decode exactly."""

import itertools
import math

import mpmath
import numpy as np
import oracles
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strength import much
from tables import spans

from fastgc import NotDecodableError, ReedSolomon
from fastgc.codes import reed_solomon
from fastgc.coding.rules import Blocks, Waiting
from fastgc.kernels import fourier
from fastgc.kernels.fourier import transform_length

# ------------------------------------------------------------------ the paper, word for word


def algorithm_1(n, k, d, t):
    """RowBalancedMaskMatrix."""
    mask = np.zeros((n, k), dtype=int)
    for j in range(k):
        for i in range(d):
            mask[(i + j * d + t) % n, j] = 1
    return mask


def algorithm_4(n, k, w):
    """MaskMatrix."""
    heavy = n * w % k
    d_high, d_low = -(-n * w // k), n * w // k
    left = algorithm_1(n, heavy, d_high, 0)
    right = algorithm_1(n, k - heavy, d_low, heavy * d_high % n)
    return np.hstack([left, right])


def algorithm_2(n, k, w, q):
    """EncodingMatrix: t_j(x) = product over r with M_rj = 0 of (x - alpha^r) / (-alpha^r)."""
    mask = algorithm_4(n, k, w)
    alpha = [complex(mpmath.expjpi(mpmath.mpf(2 * q * r) / n)) for r in range(n)]
    dense = np.zeros((n, k), dtype=complex)
    for j, i in itertools.product(range(k), range(n)):
        roots = [alpha[r] for r in range(n) if not mask[r, j]]
        dense[i, j] = np.prod([(alpha[i] - root) / -root for root in roots])
    return dense


def valid(n_most, k_most):
    for n, k in itertools.product(range(1, n_most + 1), range(1, k_most + 1)):
        for w in range(1, k + 1):
            if n * w // k >= 1:
                yield n, k, w


def root_of(code):
    """Return q of the first cluster's root exp(2 pi i q / m), from the order on the circle."""
    ring = code.scheme.rings()[0]
    return pow(int(ring[1]), -1, ring.size)


def test_worked_example():
    """n = 8, k = 4, w = 3: the mask of eq. (5) and the polynomials (7) to (10)."""
    mask = np.array(
        [
            [1, 1, 1, 0],
            [1, 1, 1, 0],
            [1, 1, 0, 1],
            [1, 1, 0, 1],
            [1, 0, 1, 1],
            [1, 0, 1, 1],
            [0, 1, 1, 1],
            [0, 1, 1, 1],
        ]
    )
    code = ReedSolomon(8, 4, load=3, root=1)
    assert (code.stragglers, code.threshold, code.load) == (5, 3, 3)
    dense = code.matrix()
    np.testing.assert_array_equal(dense != 0, mask)
    alpha = np.exp(2j * np.pi / 8)
    for j, powers in enumerate([(6, 7), (4, 5), (2, 3), (0, 1)]):
        polynomial = np.polynomial.Polynomial.fromroots([alpha**r for r in powers])
        polynomial /= polynomial(0)  # kappa_j: the constant term is 1
        np.testing.assert_allclose(dense[:, j], polynomial(alpha ** np.arange(8)), atol=1e-14)


def test_matrix_is_algorithms_1_2_and_4():
    for n, k, w in valid(*much((10, 12), (7, 9))):
        for q in {1, n - 1, next(q for q in range(n // 2, n + 1) if math.gcd(q, n) == 1)} - {0}:
            code = ReedSolomon(n, k, load=w, root=q)
            expected = algorithm_2(n, k, w, q)
            dense = code.matrix()
            np.testing.assert_allclose(dense, expected, atol=1e-12 * np.abs(expected).max())
            np.testing.assert_array_equal(dense != 0, algorithm_4(n, k, w) == 1)
            assert code.stragglers == n * w // k - 1  # eq. (2), with equality


SOLVING = ["solve", "vandermonde", "natural"]


@pytest.mark.parametrize("clusters", [1, 2, "auto"])
def test_slow_methods_and_clusters_agree(clusters):
    rng = np.random.default_rng(7)
    for n, s in [(2, 0), (9, 2), (40, 7), (101, 33), (128, 60)]:
        if clusters == 2 and n < 2 * (s + 1):
            continue
        code = ReedSolomon(n, stragglers=s, clusters=clusters)
        survivors = rng.permutation(n)[: (code.threshold + n) // 2]
        expected = code.decoding_vector(survivors, "locator")
        near = code.decoding_vector(survivors, "near-exact")
        assert code.residual(survivors, near) < 1e-9
        for method, loose in [("lookup", 1e-11)] + [(m, 1e-7) for m in SOLVING]:
            if method != "natural" or survivors.size < 40:
                vector = code.decoding_vector(survivors, method)
                atol = loose * abs(vector).max()
                np.testing.assert_allclose(vector, expected, rtol=loose, atol=atol)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({}, ValueError, "stragglers= or load="),
        ({"n": 0, "stragglers": 0}, ValueError, "n=0"),
        ({"k": 0, "load": 1}, ValueError, "k=0"),
        ({"stragglers": 8}, ValueError, "stragglers must be in 0 .. n-1 = 7"),
        ({"stragglers": -1}, ValueError, "stragglers must be in"),
        ({"load": 9}, ValueError, "load must be in 1 .. k = 8"),
        ({"load": 2, "stragglers": 2}, ValueError, "tolerate 1 stragglers at most; 2 need"),
        ({"n": 4, "k": 8, "load": 1}, ValueError, "tolerate -1 stragglers at most"),
        ({"load": 3, "root": 2}, ValueError, "not coprime"),
        ({"load": 3, "root": "best"}, TypeError, "root"),
        ({"load": 3, "clusters": 3}, ValueError, r"floor\(n / \(s\+1\)\) = 2"),
        ({"load": 3, "clusters": 0}, ValueError, "clusters must be"),
        ({"load": 3, "clusters": "many"}, TypeError, "clusters"),
    ],
)
def test_impossible_codes(arguments, error, says):
    with pytest.raises(error, match=says):
        ReedSolomon(**{"n": 8} | arguments)


def test_methods_refuse():
    code = ReedSolomon(9, stragglers=3)
    for method in code.scheme.methods:
        with pytest.raises(NotDecodableError, match="any 6 of 9 workers suffice") as caught:
            code.decoding_vector([0, 1, 2, 8], method)
        assert caught.value.missing == 2
    code = ReedSolomon(8, stragglers=3)
    assert code.decodable([0, 4, 1])
    for method in code.scheme.methods[1:]:
        with pytest.raises(NotDecodableError, match=f"'{method}' needs 2 more .* than these 3"):
            code.decoding_vector([0, 4, 1], method)
    with pytest.raises(ValueError, match="'lu'"):
        code.decoding_vector(range(8), "lu")


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_root_one_of_many_workers_overflows_with_advice():
    with pytest.raises(OverflowError, match='root="stable"'):
        ReedSolomon(20000, load=2500, root=1).coefficients(0)


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_trust_tells_the_stable_root_from_the_papers():
    survivors = np.random.default_rng(0).permutation(256)[:224]
    assert ReedSolomon(256, stragglers=32).trust(survivors).relative_error < 1e-9
    assert ReedSolomon(256, stragglers=32, root=1).trust(survivors).relative_error > 1


# --------------------------------------------------------------------- methods for decoding vectors


METHODS = ["locator", "lookup", "spread", "fft"]


def stragglers_of(kind, code, s, rng):
    """Return stragglers in the worst places, or at random."""
    n, on_circle = code.n, code.scheme.rings()[0]
    at = int(rng.integers(n))
    return {
        "random": rng.permutation(n)[:s],
        "neighbours": (at + np.arange(s)) % n,
        "an arc": on_circle[(at + np.arange(s)) % n],
        "two arcs": np.roll(on_circle, at)[np.r_[: s // 2, n // 2 : n // 2 + s - s // 2]],
        "evenly": on_circle[np.arange(s) * (n // max(s, 1)) % n] if s else np.empty(0, int),
    }[kind]


KINDS = ["random", "neighbours", "an arc", "two arcs", "evenly"]


@pytest.mark.subnormal
@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
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
    lost = stragglers_of(kind, code, s, rng)
    survivors = rng.permutation(np.setdiff1d(np.arange(n), lost))
    apart = (survivors[:, None] - lost) * root_of(code) % n
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
    n, s = 512, 64
    code = ReedSolomon(n, stragglers=s)
    q, rng = root_of(code), np.random.default_rng(5)
    lost = stragglers_of(kind, code, s, rng)
    survivors = rng.permutation(np.setdiff1d(np.arange(n), lost))
    with mpmath.workdps(30):
        factor = [1 - mpmath.expjpi(mpmath.mpf(2 * q * t) / n) for t in range(n)]
        products = (mpmath.fprod(factor[(i - j) % n] for j in lost) for i in survivors)
        exact = np.array([complex(product / n) for product in products])
    for method in METHODS:
        error = np.abs(code.decoding_vector(survivors, method) - exact) / np.abs(exact)
        assert error.max() < 1e-12, method


def test_one_rule_decides(monkeypatch):
    assert fourier.crossover(4096) == 320
    assert fourier.crossover(10007) == round(320 * transform_length(10007) / 10007)
    monkeypatch.setattr(reed_solomon, "SPREAD_STEPS", 0)
    monkeypatch.setattr(fourier, "FACTORS", 5)
    code = ReedSolomon(64, stragglers=60)
    rng = np.random.default_rng(0)
    for s, method in [(4, "locator"), (5, "fft"), (40, "fft"), (59, "fft"), (60, "lookup")]:
        survivors = rng.permutation(64)[s:]
        auto = code.decoding_vector(survivors)
        np.testing.assert_array_equal(auto, code.decoding_vector(survivors, method))


def test_auto_takes_no_steps_without_end():
    """Choosing among 50,000 survivors would take a second, so "auto" takes the locator's vector."""
    for n, method in ((1 << 16, "locator"), (1 << 9, "spread")):
        code = ReedSolomon(n, stragglers=n // 4)
        survivors = np.sort(code.scheme.rings()[0][20:])  # an arc of stragglers; some to spare
        auto = code.decoding_vector(survivors)
        np.testing.assert_array_equal(auto, code.decoding_vector(survivors, method))
        assert np.count_nonzero(auto) == (code.threshold if method == "spread" else survivors.size)


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


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
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


def test_rows_of_a_large_code_are_made_by_themselves():
    """By definition, a row has the columns whose support holds the worker, with their entries."""
    MILLION = 1 << 20
    large = ReedSolomon(MILLION, stragglers=1 << 14)
    d, q = large.load, root_of(large)
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


@pytest.mark.parametrize(
    ("n", "k", "s"), [(20, 20, 4), (64, 64, 16), (90, 70, 29), (256, 256, 64), (50, 60, 24)]
)
def test_spread_is_an_exact_and_shorter_vector(n, k, s):
    code = ReedSolomon(n, k, stragglers=s, clusters="auto")
    B = code.matrix()
    start, need = code.scheme.tables.start, code.scheme.tables.need
    block = np.repeat(np.arange(need.size), np.diff(start))
    rng = np.random.default_rng(n)
    decoded_anew = 0
    for trial in range(30):
        silent = rng.permutation(n)[: s if trial % 2 else s // 2]
        F = rng.permutation(np.setdiff1d(np.arange(n), silent))
        methods = "locator", "lookup", "spread"
        locator, lookup, spread = (code.decoding_vector(F, m) for m in methods)
        assert np.abs(spread @ B[F] - 1).max() < 1e-9 * np.linalg.norm(spread)
        for b in range(need.size):
            mine = block[F] == b
            norms = [np.linalg.norm(vector[mine]) for vector in (locator, spread)]
            if mine.sum() > need[b] and norms[0] > 1 + 1e-12:
                decoded_anew += 1
                assert np.count_nonzero(spread[mine]) == need[b]
                assert norms[1] < max(1.5 * norms[0], 2)
            elif norms[0] < 1 - 1e-12:
                shorter = lookup if 2 * mine.sum() < (block == b).sum() else locator
                np.testing.assert_array_equal(spread[mine], shorter[mine])
    assert decoded_anew or n == 20


@pytest.mark.every_backend
@pytest.mark.parametrize(
    ("code", "F"),
    [
        (lambda: ReedSolomon(7, stragglers=5), [2, 4, 5]),
        (lambda: ReedSolomon(8, stragglers=4, root=1), [1, 4, 5, 7, 6]),
        (
            lambda: ReedSolomon(15, 4, load=2, stragglers=6, clusters=2),
            [5, 7, 0, 4, 6, 12, 1, 9, 10],
        ),
    ],
)
def test_spread_chooses_as_the_oracle(code, F):
    """Norms of 1 and equal distances differ only by rounding, which must not decide."""
    made = code()
    found = made.decoding_vector(F, "spread")
    expected = oracles.decoding.decoding_vector(made.scheme.tables, oracles.decoding.SPREAD, F)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_spread_of_many_stragglers():
    """From a thousand on, logarithms come from transforms, and close ones are checked again."""
    code = ReedSolomon(3300, stragglers=1050, clusters="auto")
    F = np.random.default_rng(0).permutation(3300)[1050:]
    fft, auto = (code.decoding_vector(F, method) for method in ("fft", "auto"))
    assert np.linalg.norm(auto) < 5 < 100 < np.linalg.norm(fft)
    np.testing.assert_array_equal(auto, code.decoding_vector(F, "spread"))
    column = np.array(
        [dict(zip(*code.scheme.row(i), strict=True)).get(1234, 0) for i in F.tolist()]
    )
    assert abs(auto @ column - 1) < 1e-12


# ------------------------------------------------------- fewer than n - s survivors that suffice


def determined(n, k, w):
    """Return all sets of survivors as rows of bools, and whether each determines the gradient.

    By the rank of their rows, exactly: numbers are integers modulo a prime p = 1 mod n, where alpha
    is an n-th root of unity. (Ranks modulo a prime are smaller only if it divides a determinant.)
    """
    p = next(p for p in itertools.count((1 << 30) // n * n + 1, n) if is_prime(p))
    alpha = next(
        a
        for a in (pow(x, (p - 1) // n, p) for x in range(2, p))
        if len({pow(a, t, p) for t in range(n)}) == n
    )
    mask = np.unique(algorithm_4(n, k, w), axis=1)
    dense = np.zeros((n, mask.shape[1] + 1), dtype=np.int64)
    for j, i in itertools.product(range(mask.shape[1]), range(n)):
        others = [r for r in range(n) if not mask[r, j]]  # t_j(x) is 1 at 0, and 0 at these
        dense[i, j] = math.prod(1 - pow(alpha, i - r, p) for r in others) % p
    sets = np.array(list(itertools.product([False, True], repeat=n)))
    rows = np.where(sets[:, :, None], dense, 0)
    target = np.ones((len(sets), 1, mask.shape[1] + 1), dtype=np.int64)
    rows = np.concatenate([rows, target], axis=1)  # the last row is to be a sum of the others
    rows[:, -1, -1] = 0
    each = np.arange(len(sets))
    for j in range(mask.shape[1]):
        at = np.argmax(rows[:, :-1, j] != 0, axis=1)
        pivot = rows[each, at].copy()
        lead = pivot[:, j]
        rows[each[lead != 0], at[lead != 0]] = 0
        scaled = np.where(lead[:, None] != 0, pivot, 0)
        rows = (
            rows * np.where(lead, lead, 1)[:, None, None] - rows[:, :, j, None] * scaled[:, None]
        ) % p
    return sets, ~rows[:, -1].any(axis=1)


def is_prime(p):
    return all(p % d for d in range(2, math.isqrt(p) + 1))


def test_decodable_is_what_the_exact_rank_says():
    """Every set of survivors, of all codes of few workers."""
    kinds = set()
    for n, k, w in valid(*much((14, 18), (6, 8))):
        code = ReedSolomon(n, k, load=w)
        sets, exactly = determined(n, k, w)
        found = [code.decodable(each) for each in sets]
        np.testing.assert_array_equal(found, exactly, err_msg=repr(code))
        kinds.add(type(code.scheme.rule))
        enough = sets.sum(axis=1) >= code.threshold
        assert exactly[enough].all()
    assert kinds == {Blocks, Waiting}


# Each with a mean number of workers, in random order, that is not to be exceeded.
SMALLER = [
    (ReedSolomon(20, stragglers=4), 6.9),  # s + 1 divides n: one message of each of four cells
    (ReedSolomon(12, stragglers=3), 4.6),
    (ReedSolomon(60, stragglers=9), 13.5),
    (ReedSolomon(60, stragglers=9, root=1, packed=False), 13.5),
    (ReedSolomon(20, 40, stragglers=4), 6.9),
    (ReedSolomon(7, 3, load=1), 4.5),  # cells of 3, 2 and 2 workers
    (ReedSolomon(24, stragglers=3, clusters=3), 11.8),
    (ReedSolomon(60, stragglers=8), 24.5),  # any 52, but columns are shifts of 20 by three workers
    (ReedSolomon(60, stragglers=29, root=1), 14),
    (ReedSolomon(12, 9, load=4), 7.1),
    (ReedSolomon(15, stragglers=5, clusters=2), 8),
    (ReedSolomon(30, stragglers=3, packed=False), 17.5),  # of which 15 have 30 real parts
]


@pytest.mark.parametrize(("code", "most"), SMALLER, ids=repr)
def test_sets_decode_as_soon_as_their_rows_span_the_sum(code, most):
    rng, p, heard = np.random.default_rng(3), 50, []
    partials = rng.standard_normal((code.k, p))
    messages = np.array([code.encode(i, partials[code.partitions(i)]) for i in range(code.n)])
    bound, rnd = code.bind(messages, p=p), code.round(p)
    for _ in range(40):
        order = rng.permutation(code.n)
        rnd.reset()
        ready = [rnd.receive(int(i), messages[i]) for i in order]
        f = ready.index(True) + 1
        F = order[:f]
        assert spans(code, F)
        assert not spans(code, F[:-1])
        assert code.decodable(F)
        assert not code.decodable(F[:-1])
        heard.append(f)
        trusted = code.trust(F).relative_error
        for gradient in (code.decode(F, messages[F], p=p), bound(F), code.decode(F, messages[F])):
            error = np.linalg.norm(gradient[:p] - partials.sum(axis=0))
            assert error < 30 * trusted * np.linalg.norm(partials.sum(axis=0))
        assert trusted < 1e-12
        assert code.residual(F) < 1e-12
        mask = np.isin(np.arange(code.n), F)
        np.testing.assert_array_equal(
            code.decoding_vectors(mask[None])[0, np.sort(F)], code.decoding_vector(np.sort(F))
        )
    assert np.mean(heard) < most
    assert code.recovery(400).workers < most


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("s", [8, 44])
def test_neighbours_that_span_the_sum_are_decoded_as_well_as_trust_says(s, dtype):
    """Vectors are long where neighbours come first: in float32, more is left out than solves."""
    code = ReedSolomon(100 if s == 44 else 60, stragglers=s)
    partials = np.random.default_rng(4).standard_normal((code.k, 30)).astype(dtype)
    messages = [code.encode(i, partials[code.partitions(i)]) for i in range(code.n)]
    truth = partials.astype(np.longdouble).sum(axis=0)
    rng = np.random.default_rng(1)
    lines = [np.arange(code.n), code.scheme.rings()[0], *(rng.permutation(code.n) for _ in "1234")]
    for shift, line in itertools.product(range(0, code.n, 3), lines):
        rnd = code.round(30, dtype)
        for i in np.roll(line, shift).tolist():
            if rnd.receive(i, messages[i]):
                break
        assert rnd.survivors.size <= code.threshold
        error = np.linalg.norm((rnd.gradient() - truth).astype(float)) / np.linalg.norm(truth)
        assert error < 30 * rnd.trust().relative_error
        assert rnd.trust().relative_error < (0.05 if dtype == np.float32 else 1e-8)
        assert code.residual(rnd.survivors) < 1e-6
