"""Combinations of long vectors: rounding, halves, numbers that are not finite, ends of rows."""

import numpy as np
import oracles
import pytest
from oracles.combine import BIND_COMBINE, COMBINE, SQUARE_SUM
from oracles.table import HALVES, UNIT, WIDE, WIDE_COMPLEX, named
from strength import much

from fastgc import kernels

pytestmark = pytest.mark.every_backend


def float_rows(kind, rng, size, count):
    """Return rows and coefficients of a kind that may have large rounding errors."""
    rows = rng.standard_normal((count, size))
    coef = rng.standard_normal(count)
    if kind == "alike":  # every partial sum rounds to the same side
        rows, coef = np.full((count, size), 1 / 3), np.ones(count)
    elif kind == "upwards":  # each addition to the first row rounds up by nearly half a unit
        rows, coef = np.full((count, size), 1.0001 * 2.0**-24), np.ones(count)
        rows[0] = 1
    elif kind == "alternating":  # like decoding vectors: large coefficients, small sums
        coef = (-1.0) ** np.arange(count) * 1e6
        rows = 1 + rows * 1e-3
    elif kind == "ill-scaled":
        rows *= 10.0 ** rng.uniform(-15, 15, (count, 1))
    elif kind == "cancelling":
        rows[count // 2 :] = rows[: count - count // 2]
        coef[count // 2 :] = -coef[: count - count // 2]
    return rows.astype(np.float32), coef


@pytest.mark.parametrize(
    "kind", ["random", "alike", "upwards", "alternating", "ill-scaled", "cancelling"]
)
@pytest.mark.parametrize("mode", [kernels.REAL, kernels.PACKED], ids=["real", "packed"])
def test_combine_errors_do_not_grow_with_rows(mode, kind, at_each_level):
    """Errors are those of eight rows and the last rounding, for any number of rows."""
    rng = np.random.default_rng(7)
    unit = UNIT[np.float32]
    # The last: more rows than are added at once, and more numbers than the cache holds.
    for size, count in [(1, 200), (50, 600), (1001, 200), (17, 9), (18, 2), (23, 1), (4097, 150)]:
        rows, coef = float_rows(kind, rng, size, count)
        wide = rows.astype(WIDE)
        if mode == kernels.REAL:
            truth, scale, parts = coef @ wide, np.abs(coef) @ np.abs(wide), 1
        else:
            coef = coef * np.exp(1j * rng.uniform(0, 7, count))
            pairs = np.zeros((count, size + size % 2), WIDE)
            pairs[:, :size] = wide
            truth = (coef.astype(WIDE_COMPLEX) @ pairs.view(WIDE_COMPLEX)).view(WIDE)
            swapped = np.abs(pairs.reshape(count, -1, 2)[:, :, ::-1].reshape(count, -1))
            scale = np.abs(coef.real) @ np.abs(pairs) + np.abs(coef.imag) @ swapped
            parts = 2
        bound = unit * (np.abs(truth) + 1.0001 * (min(count, 8) + parts + 1) * scale)
        for _ in at_each_level():
            out = np.empty(truth.size, np.float32)
            kernels.combine(mode, kernels.Rows.of(rows, size, rows.dtype), coef, out)
            assert (np.abs(out - truth) <= bound + np.finfo(np.float32).tiny).all()


def test_to_halves_has_the_bits_that_numpy_gives(at_each_level):
    """Numbers half-way between halves and next to it, Inf, and NaN with any payload."""
    bits = np.arange(2**16, dtype=np.uint32)
    kept = bits % much(1, 5) == 0  # of each exponent some, with the first and the last
    bits = bits[kept | ((bits + 2) % 128 < 4)] << 16
    x = (bits[:, None] + np.array([0, 0xFFF, 0x1000, 0x1001, 0x3000, 0xF000], np.uint32)).ravel()
    x = x.view(np.float32)
    for dtype in (np.float32, np.float64):
        with np.errstate(invalid="ignore"):  # NumPy warns of signalling NaNs
            x = x.astype(dtype)
            if dtype == np.float64:  # so close to half-way that float32 cannot tell
                x = np.concatenate([x, np.nextafter(x, 0), np.nextafter(x, np.inf)])
            wanted = np.empty(x.size, np.float16)
            oracles.combine.to_halves(x, wanted)
        for _ in at_each_level():
            for first, size in [(0, x.size), (1, x.size - 1), (3, 1), (5, 17), (9, 0)]:
                part, out = x[first:][:size], np.full(size + 2, 7, np.float16)
                kernels.to_halves(part, out[1:-1])
                assert out[1:-1].tobytes() == wanted[first:][:size].tobytes()
                assert out[0] == out[-1] == 7


@pytest.mark.parametrize("dtype", HALVES)
def test_combine_reads_every_half(dtype, at_each_level):
    """All 65,536 halves, read in vectors and one by one, with subnormals, Inf and NaN."""
    halves = np.arange(2**16, dtype=np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):  # NumPy warns of signalling NaNs
        floats = halves.astype(np.float32)
    row = np.dtype(dtype)
    for _ in at_each_level():
        for first, size, step in [(0, 2**16, 2**16), (1, 2**16 - 1, 2**16), (0, 7, much(7, 63))]:
            read = np.full(2**16, 7, np.float32)
            for at in range(first, 2**16 - size + 1, step):
                rows = kernels.Rows.of([halves[at : at + size]], size, row)
                kernels.combine(kernels.REAL, rows, np.ones(1), read[at : at + size])
                read[at + size : at + step] = floats[at + size : at + step]  # not read here
            read[at + size :] = floats[at + size :]
            np.testing.assert_array_equal(read[first:], floats[first:])
        for size in (2**16, 2**16 - 1):
            finite = np.where(np.isfinite(floats), halves, np.zeros(1, dtype))[:size]
            out = np.empty(2**16, np.float32)
            rows = kernels.Rows.of([finite], size, row)
            kernels.combine(kernels.PACKED, rows, np.array([1j]), out)
            pairs = np.append(finite.astype(np.float32), np.zeros(2**16 - size, np.float32))
            np.testing.assert_array_equal(out[::2], -pairs[1::2])
            np.testing.assert_array_equal(out[1::2], pairs[::2])


@pytest.mark.parametrize("split", [False, True], ids=["whole", "threads"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_combine_of_rows_from_memory(dtype, split, at_each_level, split_over):
    """The place of `out` changes no bit, nothing beyond it is written, all rows are checked."""
    split_over(2 if split else 1)
    rng = np.random.default_rng(7)
    # Written past the caches: rows and half of `out` are more than 8 MiB.
    size = 2_900_004 // np.dtype(dtype).itemsize - 1
    coef = rng.standard_normal(2) + 1j * rng.standard_normal(2)
    arrays = [rng.standard_normal(size).astype(dtype) for _ in range(2)]
    kind = np.result_type(dtype, np.complex64)
    truth = sum(c * row for c, row in zip(coef, arrays, strict=True))
    for _ in at_each_level():
        found = []
        for beyond in (0, 1):  # aligned to 64 bytes, or not
            canary = np.full(2 * size + 64, 7, dtype)
            start = -canary.ctypes.data % 64 // canary.itemsize + 16 + beyond
            out = canary[start : start + 2 * size].view(kind)
            rows = kernels.Rows.of(arrays, size, np.dtype(dtype))
            assert kernels.combine(kernels.EXPAND, rows, coef, out, check=True)
            assert (canary[:start] == 7).all()
            assert (canary[start + 2 * size :] == 7).all()
            found.append(out)
        np.testing.assert_array_equal(*found)
        assert np.abs(found[0] - truth).max() <= 16 * np.finfo(dtype).eps
        for at, bad in ((0, np.nan), (8191, np.inf), (size // 2, -np.inf), (size - 1, np.nan)):
            before, arrays[1][at] = arrays[1][at], bad
            rows = kernels.Rows.of(arrays, size, np.dtype(dtype))
            assert not kernels.combine(kernels.EXPAND, rows, coef, found[0], check=True)
            arrays[1][at] = before


@pytest.mark.parametrize(**named([SQUARE_SUM]))
def test_square_sum_sees_nan_in_any_part(kernel, case, dtype, split_over):
    """Threads leave out nothing, and see NaN in any piece."""
    split_over(3)
    for size in (1, 1024, 1025, 5000, 70001):
        given = kernel.make(np.random.default_rng(3), size, 1, dtype)
        kernel.check(given, kernel.run(given), kernel.true(given))
        for at in {0, size // 2, size - 1}:
            good, given["x"][at] = given["x"][at], np.nan
            assert np.isnan(kernels.square_sum(given["x"]))
            given["x"][at] = good
    assert kernels.square_sum(np.empty(0, dtype)) == 0


@pytest.mark.few(24)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "threads"])
@pytest.mark.parametrize(**named([COMBINE, BIND_COMBINE]))
def test_combine_tells_what_is_not_finite(kernel, case, dtype, cut, split_over, at_each_level):
    """One bad value is seen in any place and any thread's piece, and none if there is none."""
    if cut:
        split_over(3)
    rng = np.random.default_rng(6)
    finite = True if kernel is COMBINE else kernels.Status.OK
    # The last is longer than what C adds up at once.
    for size, count in [(1, 1), (2, 3), (7, 2), (17, 5), (33, 1), (3073, 4), (20_001, 1)]:
        given = kernel.make(rng, size, count, dtype, **case) | {"check": True}
        used = np.flatnonzero(given["coef"])
        rows = given["rows"] if kernel is COMBINE else given["rows"][::-1]
        for _ in at_each_level():
            assert kernel.run(given)["returned"] == finite
            for at in {0, 1, size // 2, size - 1, int(rng.integers(size))} & set(range(size)):
                row, before = rows[rng.choice(used)], given["out"].copy()
                good, row[at] = row[at], rng.choice([np.nan, np.inf, -np.inf])
                assert kernel.run(given)["returned"] != finite
                assert not np.isfinite(given["out"]).all()
                row[at], given["out"][:] = good, before
            assert kernel.run(given)["returned"] == finite


@pytest.mark.parametrize("mode", [kernels.REAL, kernels.PACKED])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_combine_tells_what_becomes_infinite(mode, dtype, at_each_level):
    """A sum becomes infinite on the way, or when it is rounded to the dtype of `out`."""
    info = np.finfo(dtype)
    one = np.complex128(1) if mode else 1.0
    half_an_ulp = float(info.max) * 2.0**-25 if dtype == np.float32 else 2.0**969
    for size in (1, 2, 7, 16, 33, 1001):
        size += size % 2 if mode else 0
        for at in {0, size // 2, size - 1}:
            rows = np.zeros((6, size), dtype)
            listed = kernels.Rows.of(rows, size, rows.dtype)
            out = np.empty(size, dtype)

            def finite(*values, rows=rows, at=at, listed=listed, out=out):
                rows[:, at] = 0
                rows[: len(values), at] = values
                found = kernels.combine(mode, listed, np.full(6, one), out, check=True)
                assert found == np.isfinite(out).all()
                return found

            for _ in at_each_level():
                assert finite(info.max)
                assert finite(-info.max, dtype(half_an_ulp / 4))
                assert not finite(info.max, info.max)
                assert not finite(-info.max, 0, 0, 0, 0, -info.max)
                assert not finite(-info.max, -info.max * dtype(2.0**-24))
                assert finite(info.max / 2, info.max / 2)


@pytest.mark.parametrize("mode", [kernels.REAL, kernels.PACKED])
def test_combine_of_what_is_infinite_on_the_way_alone(mode, at_each_level):
    """Sums of floats that leave the range and come back are as if added as doubles."""
    rng = np.random.default_rng(8)
    most = np.finfo(np.float32).max
    for size in (1, 2, 7, 16, 33, 1001, 5000):  # odd sizes: packed, a last pair is cut
        rows = np.empty((6, size), np.float32)
        rows[:4] = most * rng.uniform(0.7, 1, size)
        rows[4:] = rng.standard_normal((2, size))
        coef = np.array([1, 0.75, -1, -0.75, 1, 1])
        if mode:
            coef = coef * np.array([*[np.exp(0.5j)] * 4, 1, 1])
        written = size + size % 2 * mode
        wide = np.zeros((6, written))
        wide[:, :size] = rows
        pairs = wide.reshape(6, -1, 1 + mode)
        truth = coef @ (pairs[:, :, 0] + 1j * pairs[:, :, 1] if mode else wide)
        listed = kernels.Rows.of(rows, size, rows.dtype)
        for _ in at_each_level():
            for length in {size, written}:
                out = np.empty(length, np.float32)
                assert kernels.combine(mode, listed, coef, out, check=True)
                expected = (truth.view(float) if mode else truth)[:length]
                np.testing.assert_allclose(out, expected, rtol=0, atol=float(most) * 1e-14)
