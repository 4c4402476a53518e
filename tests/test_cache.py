"""The cache of decoding vectors, for survivor sets that come again."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastgc import NotDecodableError, ReedSolomon, kernels
from fastgc.coding import cache as caches
from fastgc.coding.cache import ENTRY_BYTES, SurvivorCache, SurvivorMask, key_of

N, S = 1024, 128


@pytest.fixture
def code():
    return ReedSolomon(N, stragglers=S, clusters="auto")


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_mask_is_of_the_set(data):
    n = data.draw(st.integers(1, 200))
    chosen = data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n))
    survivors = np.full(n, -1, np.int64)
    survivors[: len(chosen)] = chosen
    bits = np.full(-(-n // 8) + 1, 7, np.uint8)  # the last byte must stay
    mask = kernels.unchecked.bind_survivor_mask(n, survivors, bits[:-1])
    assert mask(len(chosen)) == 0
    number = int.from_bytes(bits[:-1].tobytes(), "little")
    assert number == sum(1 << i for i in chosen)
    assert bits[-1] == 7
    assert SurvivorMask(n, survivors).key(len(chosen)) == key_of(n, chosen) == bits[:-1].tobytes()
    if chosen:
        wrong = data.draw(st.sampled_from([chosen[0], -1, n, n + 8, -(2**63), 2**63 - 1]))
        survivors[data.draw(st.integers(min(1, len(chosen) - 1), len(chosen) - 1))] = wrong
        bad = len(set(survivors[: len(chosen)].tolist())) < len(chosen) or not 0 <= wrong < n
        assert mask(len(chosen)) == bad
        assert (SurvivorMask(n, survivors).key(len(chosen)) is None) == bad


@pytest.mark.parametrize("clusters", [1, "auto"])
def test_what_is_found_is_exact_in_any_order(clusters):
    code, plain = (ReedSolomon(N, stragglers=S, clusters=clusters) for _ in range(2))
    plain.cache = None
    rng = np.random.default_rng(0)
    chosen = rng.permutation(N)[: N - S + 20]
    for _ in range(4):
        np.testing.assert_array_equal(code.decoding_vector(chosen), plain.decoding_vector(chosen))
        rng.shuffle(chosen)
    assert code.scheme.cache.info() == (2, 2, 1, N * 16 + N // 8 + ENTRY_BYTES)
    messages = rng.standard_normal((N, 6))
    rnd = code.round(6)
    for worker in chosen.tolist():
        rnd.receive(worker, messages[worker])
    expected = plain.decode(chosen, messages[chosen])
    np.testing.assert_array_equal(rnd.gradient(), expected)
    np.testing.assert_array_equal(code.bind(messages)(chosen), expected)
    assert code.scheme.cache.info().hits == 4


def test_only_auto_is_looked_up(code):
    chosen = np.arange(N - S)
    for method in ("spread", "locator", "fft"):
        for _ in range(3):
            code.decoding_vector(chosen, method)
    assert code.scheme.cache.info() == (0, 0, 0, 0)
    with pytest.raises(ValueError, match="unknown method"):
        code.decoding_vector(chosen, "none")


def test_errors_are_not_kept(code):
    few = range(code.scheme.clusters - 1)
    for _ in range(3):
        with pytest.raises(NotDecodableError):
            code.decoding_vector(few)
        with pytest.raises(ValueError, match="a second time"):
            code.decoding_vector([3] * N)
        with pytest.raises(ValueError, match="numbered 0 to 1023"):
            code.decoding_vector([*range(N - 1), N])
    assert code.scheme.cache.info().entries == 0


def test_off(code):
    chosen = np.arange(S, N)
    code.scheme.cache.nbytes = 0
    for _ in range(3):
        code.decoding_vector(chosen)
    assert code.scheme.cache.info() == (0, 0, 0, 0)


def test_small_codes_have_none():
    assert ReedSolomon(80, stragglers=12).scheme.cache is None
    assert ReedSolomon(1 << 14, stragglers=12).scheme.cache is None


def test_the_longest_unused_goes_first():
    cache = SurvivorCache(entries=2)
    for key in (b"a", b"b"):
        cache.keep(key, key, 10)
    assert cache.get(b"a") == b"a"
    cache.keep(b"c", b"c", 10)
    assert [cache.get(key) for key in (b"a", b"b", b"c")] == [b"a", None, b"c"]
    assert cache.info() == (3, 1, 2, 2 * (11 + ENTRY_BYTES))
    cache.clear()
    assert cache.info() == (0, 0, 0, 0)
    assert SurvivorCache(entries=0).came_before(b"a") is False


@example(sizes=[(0, 900), (1, 900), (2, 900)], nbytes=2500)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2000)), max_size=60),
    nbytes=st.integers(0, 5000),
)
def test_bytes_are_bounded(sizes, nbytes):
    cache, kept = SurvivorCache(nbytes=nbytes), {}
    for key, size in sizes:
        key = bytes([key])
        cache.keep(key, size, size)
        kept.pop(key, None)
        if size + 1 + ENTRY_BYTES <= nbytes:
            kept[key] = size + 1 + ENTRY_BYTES
        while sum(kept.values()) > nbytes:
            kept.pop(next(iter(kept)))
        assert cache.info()[2:] == (len(kept), sum(kept.values()))
    for key in range(10):
        found = cache.get(bytes([key]))
        assert (found is not None) == (bytes([key]) in kept)


def test_sets_that_come_once_push_out_little(code, monkeypatch):
    rng = np.random.default_rng(1)
    for _ in range(50):
        code.decoding_vector(rng.permutation(N)[: N - S])
    assert code.scheme.cache.info() == (0, 50, 50, 50 * (N // 8 + ENTRY_BYTES))
    assert caches.CACHE_BYTES >= 3 * (1 << 20) * 16


def test_threads_share_a_cache(code):
    """Each thread finds the vectors that it would compute alone, while others evict them."""
    code.scheme.cache.entries = 3
    rng = np.random.default_rng(2)
    sets = [rng.permutation(N)[: N - S] for _ in range(5)]
    truth = [code.decoding_vector(chosen, "spread") for chosen in sets]

    def work(seed):
        order = np.random.default_rng(seed)
        for at in order.integers(5, size=40):
            mixed = order.permutation(N - S)
            found = code.decoding_vector(sets[at][mixed])
            np.testing.assert_array_equal(found, truth[at][mixed])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    info = code.scheme.cache.info()
    assert info.hits + info.misses == 160
    assert info.entries <= 3
