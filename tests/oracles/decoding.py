"""Decoding vectors and streams of cyclic codes, and bit masks of survivors."""

from itertools import pairwise

import numpy as np

from fastgc.kernels import Status
from fastgc.kernels.cyclic import LOCATOR, LOOKUP, SPREAD, CyclicPlan, cyclic_tables

from .table import WIDE, WIDE_COMPLEX, Kernel, U, shapes, within

_RUN = 32  # factors between two normalisations; see csrc/levels.h


def cyclic_product(table, m, index):
    """Mantissa and binary exponent of ``prod_j table[m + i - index[j]]``, i = 0 .. m-1."""
    product, exponent = np.ones(m), np.zeros(m, dtype=np.int64)
    slices = np.lib.stride_tricks.sliding_window_view(table, m)  # row m - j starts at t = -j
    for at in range(0, index.size, _RUN):
        product *= np.multiply.reduce(slices[m - index[at : at + _RUN]], axis=0)
        product, shift = np.frexp(product)
        exponent += shift
    return product, exponent


def _turn_block(tables, b, lookup, count, total, product, exponent):
    """Entries from the products over `count` workers whose indices add up to `total`."""
    m, q = product.size, int(tables.q[b])
    # locator: factors 2 sin * exp(i (theta - pi/2)) over the stragglers, times 1/m;
    # lookup: the inverses of such factors over the other survivors
    sign, factors = (-1, count - 1) if lookup else (1, count)
    turn = sign * q * (count * np.arange(m) - total) % (2 * m)
    at = tables.phase_offset[b]
    phase = tables.phase[at : at + 4 * m].view(np.complex128)[turn]
    quarter = (1, 1j, -1, -1j)[-sign * factors % 4]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        magnitude = np.ldexp(product / (1 if lookup else m), exponent)
        return np.asarray(magnitude * (phase * quarter))


def _decode_block(tables, b, method, present):
    m, lookup = present.size, method == LOOKUP
    index = np.flatnonzero(present if lookup else ~present)
    at = tables.offset[b]
    table = (tables.cosecant if lookup else tables.sine)[at : at + 2 * m]
    product, exponent = cyclic_product(table, m, index)
    return _turn_block(tables, b, lookup, index.size, int(index.sum()), product, exponent)


def _keep_spread(sine, need, present):
    """Find the `need` survivors that are spread best, in Leja order: see csrc/cyclic.c."""
    m = present.size
    kept = np.zeros(m, dtype=np.bool_)
    score, largest = present.astype(float), 1.0
    for _ in range(need):
        left = score >= largest * (1 - 1e-9) if largest > 0 else present & ~kept
        best = int(np.argmax(left))
        kept[best] = True
        score *= np.abs(sine[m - best : 2 * m - best]) * (1 / largest if largest > 0 else 1.0)
        largest = float(score.max())
    return kept


def _spread_block(tables, b, present):
    need, m, count = int(tables.need[b]), present.size, np.count_nonzero(present)
    value = _decode_block(tables, b, LOOKUP if 2 * count < m else LOCATOR, present)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sum(np.abs(value[present]) ** 2))
    if count == need or norm <= 1 + 1e-9:
        return value
    at = tables.offset[b]
    kept = _keep_spread(tables.sine[at : at + 2 * m], need, present)
    value = _decode_block(tables, b, LOOKUP if 2 * need < m else LOCATOR, kept)
    return np.where(kept, value, 0)


def _decode_marked(tables, method, present):
    """Entries for all workers."""
    blocks = [present[lo:hi] for lo, hi in pairwise(tables.start)]
    if method == SPREAD:
        return np.concatenate([_spread_block(tables, b, block) for b, block in enumerate(blocks)])
    return np.concatenate(
        [_decode_block(tables, b, method, block) for b, block in enumerate(blocks)]
    )


def decoding_vector(tables, method, survivors):
    """Decoding vector of a direct sum of cyclic codes, of enough survivors."""
    present = np.zeros(tables.start[-1], dtype=np.bool_)
    present[survivors] = True
    return _decode_marked(tables, method, present)[survivors]


# ------------------------------------------------------------ the table


def _survivors(rng, size, count, dtype, method, parts):
    sizes = [size] if parts == 1 else [size - 2 * (size // 3), size // 3, size // 3]
    blocks = []
    for m in filter(None, sizes):
        q = next(q for q in (3, 5, 7, 1) if np.gcd(q, m) == 1) % max(m, 2)
        blocks.append((m, q, 0))
    survivors = np.sort(rng.permutation(size)[: size - min(count, size - 1)])
    rng.shuffle(survivors)
    return {
        "plan": CyclicPlan(cyclic_tables(blocks)),
        "survivors": survivors.astype(np.int64),
        "out": np.zeros(survivors.size, np.complex128),
        "method": method,
    }


def decoded(function, given):
    """Decode a vector; return the status, which says what is wrong with the last survivor."""
    decode, _ = function(given["plan"], given["survivors"], given["out"])
    return decode(given["method"], given["survivors"].size)


def decoding_truth(blocks, survivors):
    """Return locator products by definition, from sines in extended precision.

    1 - exp(2 pi i t / m) = 2 sin(pi t / m) exp(i (pi t / m - pi / 2)), for t reduced to 0 .. m-1.
    """
    start = np.cumsum([0, *(m for m, _, _ in blocks)])
    pi = np.arctan(WIDE(1)) * 4
    value = np.empty(len(survivors), WIDE_COMPLEX)
    for b, (m, q, _) in enumerate(blocks):
        mine = [at for at, i in enumerate(survivors) if start[b] <= i < start[b + 1]]
        heard = {int(survivors[at] - start[b]) for at in mine}
        lost = np.array([j for j in range(m) if j not in heard], dtype=int)
        t = np.arange(m)
        near = np.minimum(t, m - t) * pi / m
        log_sine = np.log(np.where(t == 0, 1, 2 * np.sin(near)))
        for at in mine:
            r = q * (int(survivors[at] - start[b]) - lost) % m
            turns = int(2 * r.sum() - m * len(lost)) % (4 * m)  # multiples of pi / (2 m)
            size = np.exp(log_sine[r].sum() - np.log(WIDE(m)))
            angle = turns * pi / (2 * m)
            value[at] = size * (np.cos(angle) + 1j * np.sin(angle))
    return value


def decoded_truly(given):
    tables = given["plan"].tables
    blocks = [(int(m), int(q), 0) for m, q in zip(np.diff(tables.start), tables.q, strict=True)]
    return {"returned": Status.OK, "out": decoding_truth(blocks, given["survivors"])}


def near_vector(given, found, truth, times=1):
    """Assert that there is one rounding per factor, and about one for the phase."""
    assert found["returned"] == truth["returned"]
    bound = times * (given["plan"].workers + 16) * U
    within(bound * np.abs(truth["out"]), found["out"], truth["out"])


WORKERS = [
    (size, count)
    for size in (1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 100, 257)
    for count in {0, 1, 2, size // 8, size // 3, size // 2, size - 1}
]

DECODING = Kernel(
    "bind_decoding_vector",
    _survivors,
    near_vector,
    ("out",),
    WORKERS,
    cases=tuple({"method": m, "parts": parts} for m in (LOCATOR, LOOKUP) for parts in (1, 3)),
    call=decoded,
    truth=decoded_truly,
)


def _masks(rng, size, count, dtype):
    """Draw rounds, some of which have too few survivors, of two blocks."""
    blocks = [(size, 1 if size < 3 else size - 1, size // 2 + 1), (3, 2, 1)]
    masks = rng.random((count, size + 3)) < 0.7
    return {
        "plan": CyclicPlan(cyclic_tables(blocks)),
        "masks": masks,
        "method": LOCATOR,
        "out": np.full(masks.shape, 7j),
        "where": np.full(count, 7),
    }


def _near_vectors(given, found, truth):
    tables, masks = given["plan"].tables, given["masks"]
    came = np.add.reduceat(masks, tables.start[:-1], axis=1, dtype=int)
    lacking = np.maximum(tables.need - came, 0).sum(axis=1)
    np.testing.assert_array_equal(found["where"], lacking)
    for mask, vector, lacks in zip(masks, found["out"], lacking, strict=True):
        one = {"plan": given["plan"], "survivors": np.flatnonzero(mask)}
        result = {"returned": Status.OK, "out": vector[mask]}
        if lacks:
            assert (vector == 7j).all()
        else:
            near_vector(one, result, decoded_truly(one))
            assert (vector[~mask] == 0).all()


DECODING_ALL = Kernel(
    "decoding_vectors",
    _masks,
    _near_vectors,
    ("out", "where"),
    shapes((1, 2, 7, 8, 9, 33), (1, 5)),
    truth=lambda given: {},
)
KERNELS = [DECODING, DECODING_ALL]
