"""Kernels compute the truth with every number of threads and level of SIMD instructions."""

import copy
import inspect
import pickle
import platform
import re
import sys
import warnings
import weakref
from pathlib import Path

import numba
import numpy as np
import oracles
import programs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_table import HALVES, KERNELS, STEPS, WIDE, WIDE_COMPLEX
from strength import much

import fastgc
from fastgc import kernels
from fastgc.kernels.c import calls
from fastgc.kernels.numba import calls as by_numba

pytestmark = pytest.mark.every_backend

LONG = [k for k in KERNELS if k.name.startswith(("combine", "square"))]
NODES = [k for k in KERNELS if k.name.startswith(("vandermonde", "lagrange"))]
BASES = {k.name: k for k in NODES if "basis" in k.name}
VECTORS = [k for k in KERNELS if k not in LONG + NODES and not k.bound]
BOUNDED = [
    pytest.param(kernel, dtype, id=f"{kernel.name}-{np.dtype(dtype).name}")
    for kernel in KERNELS
    if kernel.bound
    for dtype in kernel.dtypes
]
SIZES = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 1025, 4097, 16385, *much([1023, 16383, 40001], [])]
UNIT = {np.float32: 2.0**-24, np.float64: 2.0**-53, **dict.fromkeys(HALVES, 2.0**-24)}  # for sums
LONG_OF_EACH_DTYPE = [
    pytest.param(kernel, dtype, id=f"{kernel.name}-{np.dtype(dtype).name}")
    for kernel in LONG
    for dtype in kernel.dtypes
]


def check_long(arguments, dtype, truth, result):
    if np.ndim(truth):
        # Each element is a sum of products: its error is bounded by the sum of their moduli.
        scale = sum(
            abs(a) * (float(np.abs(row).max()) if row.size else 0)
            for a, row in zip(arguments["coef"], arguments["rows"], strict=True)
        )
        scale = 2 * scale + np.abs(arguments["before"]).max()
        bound = (len(arguments["coef"]) + 4) * UNIT[dtype] * scale
    else:
        bound = (arguments["x"].size + 4) * 2.0**-53 * float(truth)
    assert np.abs(result - truth).max() <= bound


EACH_STEP = pytest.mark.parametrize(
    ("kernel", "moving"), STEPS, ids=[kernel.name for kernel, _ in STEPS]
)


def frozen(arguments):
    return {k: np.copy(v) for k, v in arguments.items() if isinstance(v, (np.ndarray, list))}


@pytest.mark.few(30)
@pytest.mark.parametrize(("kernel", "dtype"), LONG_OF_EACH_DTYPE)
def test_long_vectors(kernel, dtype, at_each_level):
    rng = np.random.default_rng(1)
    for size in SIZES:
        for count in (1, 2, 3, 4, 5, 8, 13) if size < 5000 else (1, 5):
            arguments = kernel.make(rng, size, count, dtype)
            before, truth = frozen(arguments), kernel.truth(arguments)
            for _ in at_each_level():
                check_long(arguments, dtype, truth, kernel.run(arguments))
            for name, value in before.items():
                np.testing.assert_array_equal(arguments[name], value)


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
def test_errors_of_floats_do_not_grow_with_rows(mode, kind, at_each_level):
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


def test_halves_have_the_bits_that_numpy_gives_them(at_each_level):
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
def test_every_half(dtype, at_each_level):
    """All 65,536 halves, read in vectors and one by one, with subnormals, Inf and NaN."""
    halves = np.arange(2**16, dtype=np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):  # NumPy warns of signalling NaNs
        floats = halves.astype(np.float32)
    row = np.dtype(dtype)
    for _ in at_each_level():
        for first, size, step in [(0, 2**16, 2**16), (1, 2**16 - 1, 2**16), (0, 2, much(2, 9))]:
            read = np.full(2**16, 7, np.float32)
            for at in range(first, 2**16 - 1, step):
                rows = kernels.Rows.of([halves[at : at + size]], size, row)
                kernels.combine(kernels.REAL, rows, np.ones(1), read[at : at + size])
                read[at + size : at + step] = floats[at + size : at + step]  # not read here
            np.testing.assert_array_equal(read[first:], floats[first:])
        for size in (2**16, 2**16 - 1):
            finite = np.where(np.isfinite(floats), halves, np.zeros(1, dtype))[:size]
            out = np.empty(2**16, np.float32)
            rows = kernels.Rows.of([finite], size, row)
            kernels.combine(kernels.PACKED, rows, np.array([1j]), out)
            pairs = np.append(finite.astype(np.float32), np.zeros(2**16 - size, np.float32))
            np.testing.assert_array_equal(out[::2], -pairs[1::2])
            np.testing.assert_array_equal(out[1::2], pairs[::2])


@pytest.mark.parametrize("kernel", VECTORS, ids=lambda k: k.name)
def test_decoding_vectors(kernel, at_each_level):
    rng = np.random.default_rng(2)
    for size in (1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 100, 257):
        for count in {0, 1, 2, size // 8, size // 3, size // 2, size - 1}:
            arguments = kernel.make(rng, size, count, np.float64)
            truth = kernel.truth(arguments)
            # One rounding per factor, and about one for the phase.
            bound = (size + 16) * 2.0**-53 * (8 if "fft" in kernel.name else 1)
            for _ in at_each_level():
                error = np.abs(kernel.run(arguments) - truth) / np.abs(truth)
                assert error.max() <= bound


SMALL = (1, 2, 3, 4, 5, 8, 9, 17, 33, 65)


@pytest.mark.parametrize("kernel", NODES, ids=lambda k: k.name)
def test_nodes(kernel, at_each_level):
    rng = np.random.default_rng(5)
    for size in much((*SMALL, 7, 15, 16, 23, 24, 25, 63, 64, 100), SMALL):
        for count in (1, 2, 3, 4, 5, 9) if size < 30 else (1, 66):
            if count > 9 and kernel.name.startswith("vandermonde"):
                count = 6
            arguments = kernel.make(rng, size, count, np.float64)
            before = frozen(arguments)
            truth = kernel.truth(arguments)
            for _ in at_each_level():
                result = kernel.run(arguments)
                assert result.shape == truth.shape
                if "products" in kernel.name:
                    assert (np.abs(result / truth - 1)).max() <= 2 * (size + 2) * UNIT[np.float64]
                elif "basis" in kernel.name:  # values have relative bounds
                    error = np.abs(result - truth) / np.where(truth == 0, 1, np.abs(truth))
                    assert error.max() <= 6 * (size + 2) * UNIT[np.float64]
                elif "values" in kernel.name:
                    basis = BASES[kernel.name.replace("values", "basis")].truth(arguments)
                    scale = np.abs(basis) @ np.abs(arguments["values"])
                    error = np.abs(result - truth) / scale
                    assert error.max() <= 8 * (size + 2) * UNIT[np.float64]
                elif "functional" in kernel.name or "chosen" in kernel.name:
                    assert np.abs(result - truth).max() <= (
                        6 * (size + 2) * UNIT[np.float64] * np.abs(truth).max() * (count + 2)
                    )
                else:
                    error = np.abs(result - truth).max(axis=0) / np.abs(truth).max(axis=0)
                    assert error.max() <= 3e-14 * size
            for name, value in before.items():
                np.testing.assert_array_equal(arguments[name], value)


@pytest.mark.parametrize(("kernel", "dtype"), BOUNDED)
def test_what_a_kernel_is_bound_to(kernel, dtype, at_each_level):
    rng = np.random.default_rng(11)
    for size in SIZES:
        for count in (1, 2, 5):
            arguments = kernel.make(rng, size, count, dtype)
            before, truth = frozen(arguments), kernel.truth(arguments)
            for _ in at_each_level():
                result = kernel.run(arguments)
                with np.errstate(invalid="ignore"):  # Inf minus Inf
                    near = np.abs(result - truth) <= kernel.bound(arguments)
                assert (near | (result == truth) | (np.isnan(result) & np.isnan(truth))).all()
            for name, value in before.items():
                np.testing.assert_array_equal(arguments[name], value)


def exact_square_distance(x, y):
    return float(np.sum((x.astype(WIDE) - y.astype(WIDE)) ** 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@EACH_STEP
def test_steps(kernel, moving, dtype, at_each_level):
    rng = np.random.default_rng(8)
    for size in SIZES:
        arguments = kernel.make(rng, size, 1, dtype)
        before = frozen(arguments)
        truth = kernel.truth(arguments)
        for _ in at_each_level():
            after, moved = kernel.run(arguments)
            for name, vector in after.items():
                assert vector.dtype == dtype
                # A few roundings of numbers up to 10, and one of each coefficient.
                assert np.abs(vector - truth[name]).max() <= 40 * UNIT[dtype]
            # The distance of the stored vectors, not of the move before it was rounded.
            exact = exact_square_distance(after[moving], arguments[moving])
            rough = 2.0**-20 if dtype == np.float32 and "gradient" in arguments else 0
            assert abs(moved - exact) <= (rough + (size + 4) * 2.0**-53) * exact
        for name, value in before.items():
            np.testing.assert_array_equal(arguments[name], value)


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
def test_what_simd_levels_there_are(level):
    """A skipped test reports each level that this machine cannot test."""
    compiled = pytest.importorskip("fastgc.kernels.c")
    before = compiled.simd()
    if not compiled.select_simd(level):
        pytest.skip(f"this build or processor has no {level}")
    assert compiled.simd() == level
    assert compiled.select_simd(before)
    assert compiled.simd() == before


FLAGS = {
    "baseline": set(),
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "fma", "f16c"},
}


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="needs Linux on x86-64"
)
def test_simd_levels_are_those_of_the_processor():
    """The operating system lists the features that the processor has and that it saves."""
    compiled = pytest.importorskip("fastgc.kernels.c")
    has = set(re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.M)[1].split())
    expected = [level for level, needed in FLAGS.items() if needed <= has]
    assert programs.printed("from fastgc.kernels.c import simd; print(simd())") == expected[-1]
    before = compiled.simd()
    try:
        assert [level for level in FLAGS if compiled.select_simd(level)] == expected
    finally:
        assert compiled.select_simd(before)


def test_unknown_simd_level_changes_nothing():
    compiled = pytest.importorskip("fastgc.kernels.c")
    before = compiled.simd()
    assert not compiled.select_simd("mmx")
    assert compiled.simd() == before


@pytest.mark.few(8)
@pytest.mark.parametrize("kernel", LONG, ids=lambda k: k.name)
def test_threads_change_no_bit(kernel, split_over):
    rng = np.random.default_rng(3)
    for dtype in kernel.dtypes:
        for size in (1, 1024, 1025, 5000, 70001):
            arguments = kernel.make(rng, size, 6, dtype)
            split_over(1)
            alone = kernel.run(arguments)
            for count in (2, 3):
                split_over(count)
                np.testing.assert_array_equal(kernel.run(arguments), alone)


ENCODING = [
    pytest.param(mode, dtype, id=f"{name}-{np.dtype(dtype).name}")
    for mode, name in [
        (kernels.REAL, "real"),
        (kernels.PACKED, "packed"),
        (kernels.EXPAND, "expand"),
    ]
    for dtype in (np.float32, np.float64, *(HALVES if mode != kernels.EXPAND else ()))
]


@pytest.mark.c_only
@pytest.mark.few(8)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "threads"])
@pytest.mark.parametrize(("mode", "dtype"), ENCODING)
def test_encoding_is_combining_and_measuring(mode, dtype, split, at_each_level, split_over):
    """`out` has the bits of `combine`; the energy is the weighted sum of the rows' true squares."""
    rng = np.random.default_rng(6)
    split_over(3 if split else 1)
    sums = np.result_type(dtype, np.float32 if mode != kernels.EXPAND else np.complex64)
    for size in (1, 2, 5, 17, 1024, 4095, 4096, 4097, 8193, 20001):
        out_size = size + size % 2 if mode == kernels.PACKED else size
        start = rng.standard_normal(out_size).astype(sums)
        for count in (1, 2, 5):
            arrays = [rng.standard_normal(size).astype(dtype) for _ in range(count)]
            coef, weights = rng.standard_normal((2, count))
            if mode != kernels.REAL:
                coef = coef + 1j * rng.standard_normal(count)
            wide = [array.astype(np.float64).astype(WIDE) for array in arrays]
            terms = [a * (row @ row) for a, row in zip(weights, wide, strict=True)]
            listed = [kernels.Rows.of([array], size, np.dtype(dtype)) for array in arrays]
            for accumulate in (False, True):
                for _ in at_each_level():
                    expected, out, energy = start.copy(), start.copy(), np.zeros(1)
                    add = kernels.unchecked.bind_add(
                        mode, coef, weights, size, np.dtype(dtype), out, energy
                    )
                    for at, (array, row) in enumerate(zip(arrays, listed, strict=True)):
                        more = accumulate or at > 0
                        kernels.combine(mode, row, coef[at : at + 1], expected, more)
                        assert add(array, at, more) == kernels.Status.OK
                    error = energy[0] - sum(terms)
                    np.testing.assert_array_equal(out, expected)
                    assert abs(error) <= (size + count) * 2.0**-53 * np.abs(terms).sum()
        for at in {0, size // 2, size - 1}:
            spoiled = np.ones(size, dtype)
            spoiled[at] = np.nan
            out, one = start.copy(), np.ones(1, np.complex128 if mode else np.float64)
            energy = np.zeros(1)
            kernels.unchecked.bind_add(mode, one, np.ones(1), size, np.dtype(dtype), out, energy)(
                spoiled, 0, False
            )
            assert np.isnan(energy[0])


@pytest.mark.parametrize("split", [False, True], ids=["whole", "threads"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complex_sums_of_rows_from_memory(dtype, split, at_each_level, split_over):
    """The place of `out` changes no bit, nothing beyond it is written, all rows are checked."""
    split_over(2 if split else 1)
    rng = np.random.default_rng(7)
    size = 700_001  # with `out`, too large for caches
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_square_sums_of_a_vector_that_is_bound(dtype, size):
    x = np.zeros(size, dtype)
    bound = kernels.unchecked.bind_square_sum(x)
    for _ in range(2):
        x[:] = np.random.default_rng(size).standard_normal(size)
        assert bound() == kernels.square_sum(x)
        x *= 2  # each call reads the vector anew
        assert bound() == kernels.square_sum(x)


@pytest.mark.parametrize("dtype", LONG[-1].dtypes, ids=lambda dtype: np.dtype(dtype).name)
def test_square_sum_by_threads(dtype, split_over):
    """Threads leave out nothing, count nothing twice, and see NaN in any piece."""
    split_over(3)
    for size in (0, 1, 1024, 1025, 5000, 70001):
        arguments = LONG[-1].make(np.random.default_rng(3), size, 1, dtype)
        truth = float(LONG[-1].truth(arguments))
        assert LONG[-1].run(arguments) == pytest.approx(truth, rel=1e-13)
        for at in {0, size // 2, size - 1} & set(range(size)):
            good, arguments["x"][at] = arguments["x"][at], np.nan
            assert np.isnan(LONG[-1].run(arguments))
            arguments["x"][at] = good


@pytest.mark.parametrize("kernel", LONG[:-1], ids=lambda k: k.name)
def test_nothing_is_written_beyond_out(kernel):
    rng = np.random.default_rng(4)
    for size in (1, 2, 9, 33, 16385):
        arguments = kernel.make(rng, size, 5, np.float32)
        canary = np.full(arguments["before"].size + 32, 7, arguments["before"].dtype)
        out = canary[16:-16]
        out[:] = arguments["before"]
        kernel.run(arguments, out)
        assert (canary[:16] == 7).all()
        assert (canary[-16:] == 7).all()


@given(
    size=st.integers(1, 300),
    count=st.integers(1, 20),
    first=st.integers(0, 31),
    gap=st.integers(0, 31),
    accumulate=st.booleans(),
    short=st.booleans(),
)
@settings(deadline=None, max_examples=much(150, 50))
@pytest.mark.parametrize("mode", [kernels.REAL, kernels.PACKED])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
def test_rows_begin_and_end_anywhere(dtype, mode, size, count, first, gap, accumulate, short):
    """Kernels read nothing around rows and write nothing around sums; a last pair may be cut."""
    rng = np.random.default_rng(size)
    around = np.full((count, first + size + gap), np.nan, dtype)
    rows = around[:, first : first + size]
    rows[:] = rng.integers(-8, 9, rows.shape)
    coef = rng.integers(-8, 9, count) + 1j * rng.integers(-8, 9, count)
    if mode == kernels.REAL:
        coef = coef.real.copy()
        truth = coef @ rows.astype(np.float64)
    else:
        pairs = np.zeros((count, size + size % 2))
        pairs[:, :size] = rows
        truth = (coef @ pairs.view(np.complex128)).view(np.float64)
        truth = truth[: truth.size - short]
    canary = np.full(gap + truth.size + first, 7, np.result_type(dtype, np.float32))
    out = canary[gap : gap + truth.size]
    kernels.combine(mode, kernels.Rows.of(rows, size, rows.dtype), coef, out, accumulate)
    np.testing.assert_array_equal(out, truth + 7 * accumulate)  # exact, as numbers are whole
    assert (canary[:gap] == 7).all()
    assert (canary[gap + truth.size :] == 7).all()


@given(
    size=st.integers(1, 3000),
    count=st.integers(1, 12),
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
    data=st.data(),
)
@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_combine_tells_what_is_not_finite(dtype, size, count, bad, data):
    rng = np.random.default_rng(size)
    rows = [rng.standard_normal(size).astype(dtype) for _ in range(count)]
    coef = rng.standard_normal(count) + 1j * rng.standard_normal(count)
    out = np.empty(size, dtype)

    def finite():
        listed = kernels.Rows.of(rows, size, np.dtype(dtype))
        return kernels.combine(kernels.PACKED, listed, coef, out, check=True)

    assert finite()
    rows[data.draw(st.integers(0, count - 1))][data.draw(st.integers(0, size - 1))] = bad
    assert not finite()
    assert not np.isfinite(out).all()
    assert not np.isfinite(sum(kernels.square_sum(row) for row in rows))


TWO = fastgc.ReedSolomon(24, stragglers=5, clusters=2)  # two clusters, which need 7 of 12 each


def vector_of(code, survivors, method):
    survivors = np.array(survivors, np.int64)
    out = np.full(survivors.size, np.nan, np.complex128)
    decode, where = kernels.unchecked.bind_decoding_vector(code.scheme._plan, survivors, out)
    return decode(method, survivors.size), where[0], out


@pytest.mark.parametrize(
    ("survivors", "status", "where"),
    [
        ([*range(24), 5], "DUPLICATE", 24),
        ([3, 3, 99], "DUPLICATE", 1),
        ([*range(23), 24], "OUT_OF_RANGE", 23),
        ([-1, 0, 0], "OUT_OF_RANGE", 0),
        (range(9), "TOO_FEW", 7),
        ([*range(4), *range(12, 20)], "TOO_FEW", 3),
    ],
)
@pytest.mark.parametrize(
    "method", [kernels.cyclic.LOCATOR, kernels.cyclic.LOOKUP, kernels.cyclic.SPREAD]
)
def test_what_is_wrong_with_survivors(survivors, status, where, method):
    found = vector_of(TWO, survivors, method)
    assert found[:2] == (kernels.Status[status], where)
    assert np.isnan(found[2]).all()


def test_last_entry_beyond_a_double_is_told():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = fastgc.ReedSolomon(3000, stragglers=1500, root=1)
    status, where, out = vector_of(code, range(1500), kernels.cyclic.LOCATOR)
    beyond = np.flatnonzero(~np.isfinite(out))
    assert status == kernels.Status.OVERFLOW
    assert where == beyond[-1] > beyond[0]


def test_spread_decodes_anew_what_is_longer_than_the_sum():
    """A cluster whose vector is longer than the sum's is decoded from just enough messages."""
    anew = 0
    for away in range(2, 5):
        for first in range(12):
            neighbours = 5 * (first + np.arange(away)) % 12  # on the circle: points step by 5
            survivors = np.setdiff1d(np.arange(24), neighbours)
            plain, spread = (
                vector_of(TWO, survivors, m)[2]
                for m in (kernels.cyclic.LOCATOR, kernels.cyclic.SPREAD)
            )
            mine = survivors < 12
            # The oracle makes the same choice among equally good messages.
            method, tables = kernels.cyclic.SPREAD, TWO.scheme.tables
            chosen = oracles.decoding.decoding_vector(tables, method, survivors)
            np.testing.assert_allclose(spread, chosen, rtol=1e-12, atol=1e-15)
            if np.linalg.norm(plain[mine]) > 1:
                anew += 1
                assert np.count_nonzero(spread[mine]) == 7
                assert np.linalg.norm(spread[mine]) < np.linalg.norm(plain[mine])
            else:
                np.testing.assert_allclose(spread[mine], plain[mine], rtol=1e-12)
            np.testing.assert_allclose(spread[~mine], plain[~mine], rtol=1e-12)
    assert anew == 24


@pytest.mark.few(24)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "threads"])
@pytest.mark.parametrize("kernel", LONG[:-1], ids=lambda k: k.name)
def test_every_mode_tells_what_is_not_finite(kernel, cut, split_over, at_each_level):
    """One bad value is seen in any place and any thread's piece, and none if there is none."""
    if cut:
        split_over(3)
    rng = np.random.default_rng(6)
    # The last is longer than what C adds up at once.
    for size, count in [(1, 1), (2, 3), (17, 5), (3073, 4), (20_001, 1)]:
        for dtype in kernel.dtypes:
            arguments = kernel.make(rng, size, count, dtype)
            for _ in at_each_level():
                assert kernel.finite(arguments)
                for at in {0, 1, size // 2, size - 1} & set(range(size)):
                    row = arguments["rows"][rng.integers(count)]
                    good, row[at] = row[at], rng.choice([np.nan, np.inf, -np.inf])
                    assert not kernel.finite(arguments)
                    row[at] = good
                assert kernel.finite(arguments)


@pytest.mark.parametrize("mode", [kernels.REAL, kernels.PACKED])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_becomes_infinite_is_not_finite(mode, dtype, at_each_level):
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
def test_what_is_infinite_on_the_way_alone_is_finite(mode, at_each_level):
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


def test_a_bound_combination_keeps_its_rows():
    numbers, coef, out = np.arange(3), np.ones(3), np.empty(5)
    arrays = [np.ones(5) for _ in range(3)]
    kept = [weakref.ref(array) for array in arrays]
    rows = kernels.Rows.of(arrays, 5, arrays[0].dtype)
    combine = kernels.unchecked.bind_combine(kernels.REAL, rows, numbers, coef, out)
    del arrays, rows
    assert all(ref() is not None for ref in kept)
    assert combine(3) == kernels.Status.OK
    np.testing.assert_array_equal(out, np.full(5, 3.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 2, 3, 1000, 1001])
def test_odd_ends_of_packed_vectors(dtype, size):
    """A cut pair is read as if completed with 0, and written cut, in every combination."""
    rng = np.random.default_rng(size)
    even = size + size % 2
    rows = [rng.standard_normal(even).astype(dtype) for _ in range(3)]
    coef = rng.standard_normal(3) + 1j * rng.standard_normal(3)
    for in_len in {size, even}:
        cut = [row[:in_len] for row in rows]
        padded = np.zeros((3, even))
        padded[:, :in_len] = cut
        whole = (coef @ (padded[:, ::2] + 1j * padded[:, 1::2])).view(np.float64)
        for out_len in {size, even}:
            out = np.zeros(out_len, dtype)
            kernels.combine(kernels.PACKED, kernels.Rows.of(cut, in_len, out.dtype), coef, out)
            np.testing.assert_allclose(out, whole[:out_len], atol=50 * UNIT[dtype])


@pytest.mark.few(3)
@EACH_STEP
def test_threads_change_no_bit_of_a_step(kernel, moving, split_over):
    rng = np.random.default_rng(10)
    for dtype in kernel.dtypes:
        for size in (1, 1024, 1025, 5000, 70001):
            arguments = kernel.make(rng, size, 1, dtype)
            split_over(1)
            alone, moved_alone = kernel.run(arguments)
            distance_alone = kernels.square_distance(alone[moving], arguments[moving])
            split_over(3)
            after, moved = kernel.run(arguments)
            for name, vector in after.items():
                np.testing.assert_array_equal(vector, alone[name])
            distance = kernels.square_distance(after[moving], arguments[moving])
            assert (moved, distance) == (moved_alone, distance_alone)


@EACH_STEP
def test_steps_write_nothing_beyond_their_vectors(kernel, moving):
    rng = np.random.default_rng(11)
    for size in (1, 2, 9, 33, 16385):
        arguments = kernel.make(rng, size, 1, np.float32)
        after, _ = kernel.run(arguments)
        canaries = {name: np.full(size + 32, 7, np.float32) for name in after}
        for name, canary in canaries.items():
            canary[16:-16] = arguments[name]
        kernel.run(arguments, {name: canary[16:-16] for name, canary in canaries.items()})
        for name, canary in canaries.items():
            assert (canary[:16] == 7).all()
            assert (canary[-16:] == 7).all()
            np.testing.assert_array_equal(canary[16:-16], after[name])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@EACH_STEP
def test_steps_tell_what_is_not_finite(kernel, moving, bad):
    """The bad value is reported, and spreads to no other element."""
    rng = np.random.default_rng(12)
    for size in (1, 2, 17, 3073):
        for dtype in kernel.dtypes:
            arguments = kernel.make(rng, size, 1, dtype)
            good, moved = kernel.run(arguments)
            assert np.isfinite(moved)
            incoming = arguments["gradient" if "gradient" in arguments else "new"]
            for at in {0, 1, size // 2, size - 1} & set(range(size)):
                kept, incoming[at] = incoming[at], bad
                after, moved = kernel.run(arguments)
                incoming[at] = kept
                assert not np.isfinite(moved)
                for name, vector in after.items():
                    assert not np.isfinite(vector[at])
                    others = np.arange(size) != at
                    np.testing.assert_array_equal(vector[others], good[name][others])
                if "v" in after and np.isnan(bad):  # the maximum keeps a NaN
                    again, moved = kernel.run(arguments, after)
                    assert np.isnan(moved)
                    assert np.isnan(again["v"][at])


@pytest.mark.parametrize("kernel", [kernel for kernel, _ in STEPS[:-2]], ids=lambda k: k.name)
def test_a_gradient_may_be_what_it_moves(kernel):
    rng = np.random.default_rng(13)
    for dtype in kernel.dtypes:
        arguments = kernel.make(rng, 1025, 1, dtype)
        for name in arguments.keys() - {"gradient"}:
            apart, moved_apart = kernel.run(arguments | {"gradient": arguments[name]})
            after = {other: arguments[other].copy() for other in apart}
            _, moved = kernel.run(arguments | {"gradient": after[name]}, after)
            assert moved == pytest.approx(moved_apart, rel=1e-5)
            for other in apart:
                np.testing.assert_allclose(after[other], apart[other], atol=20 * UNIT[dtype])


def test_distances_are_of_what_is_stored():
    theta = np.array([2.0**24, 1.0], np.float32)
    assert kernels.sgd(theta, None, np.array([0.5, 0.5], np.float32), 1.0, 0.0) == 0.25
    np.testing.assert_array_equal(theta, [2.0**24, 0.5])
    # Squares too large for float32.
    assert kernels.square_distance(np.float32([2e30]), np.float32([-2e30])) == pytest.approx(16e60)


@pytest.mark.parametrize(
    "sizes", [(1e-30, 1), (1e-23, 1e-20), (1e-45, 1e-18), (1e18, 3e19), (1e-45, 1e37)]
)
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.999])
@EACH_STEP
def test_distances_of_any_size(kernel, moving, sizes, zeros, at_each_level):
    """Squares too large or too small for float32, in all, some or none of a block."""
    rng = np.random.default_rng(14)
    for size in (3, 64, 129, 1000):
        arguments = kernel.make(rng, size, 1, np.float32)
        for name, vector in arguments.items():
            vector[:] = np.exp(rng.uniform(*np.log(sizes), size)) * rng.choice([-1, 1], size)
            vector[rng.random(size) < zeros] = 0
            if name == "v":
                np.abs(vector, out=vector)
        for _ in at_each_level():
            after, moved = kernel.run(arguments)
            exact = exact_square_distance(after[moving], arguments[moving])
            if np.isfinite(exact):
                assert abs(moved - exact) <= 2.0**-20 * exact
            else:
                assert not np.isfinite(moved)


@given(data=st.data(), size=st.integers(1, 70), dtype=st.sampled_from([np.float32, np.float64]))
@settings(deadline=None, max_examples=30)
def test_a_running_sum_of_vectors(data, size, dtype):
    """Sums of whole numbers are exact."""
    rng = np.random.default_rng(size)
    vectors = rng.integers(-1000, 1000, (4, size)).astype(dtype)
    total = vectors.sum(axis=0)
    for which in data.draw(st.lists(st.integers(0, 3), max_size=10)):
        new = rng.integers(-1000, 1000, size).astype(dtype)
        exact = exact_square_distance(new, vectors[which])
        assert kernels.replace(vectors[which], new, total) == exact
        np.testing.assert_array_equal(vectors[which], new)
        np.testing.assert_array_equal(total, vectors.sum(axis=0))


USUAL = [(np.float32, complex)]  # each takes seconds to compile


@pytest.mark.numba
@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        pytest.param(dtype, kind, marks=[] if (dtype, kind) in USUAL else pytest.mark.long)
        for dtype in (np.float32, np.float64, np.complex64, np.complex128)
        for kind in (float, complex)
    ],
)
def test_chosen_rows_from_compiled_code(dtype, kind):
    """Only chosen rows are read, in any order, with real and with complex codes."""
    pytest.importorskip("numba")

    @numba.njit
    def combine(coef, rows, survivors, out):
        return fastgc.kernels.numba.combine_rows(coef, rows, out, survivors)

    rng = np.random.default_rng(8)
    survivors = np.array([5, 0, 3, 7, 6, 1])
    for p in (1, 2, 7, 8, 40):
        packed = kind is complex and np.dtype(dtype).kind == "f"
        rows = np.full((8, p + 3), np.nan, dtype)[:, : p + (p % 2 if packed else 0)]
        rows[survivors] = rng.standard_normal((6, rows.shape[1]))
        coef = rng.standard_normal(6).astype(kind)
        if kind is complex:
            coef += 1j * rng.standard_normal(6)
        out = np.empty(p, dtype)
        assert combine(coef, rows, survivors, out)
        chosen = rows[survivors]
        if packed:
            pairs = np.result_type(dtype, np.complex64)
            truth = (coef @ np.ascontiguousarray(chosen).view(pairs)).view(float)[:p]
        else:
            truth = (coef @ chosen)[:p]
        np.testing.assert_allclose(out, truth, atol=20 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(rows[survivors], chosen)
        rows[3, 0] = np.inf
        assert not combine(coef, rows, survivors, out)


@pytest.mark.numba
def test_compiled_kernels_check_lengths():
    """In a user's compiled loop nothing else checks them, and memory would be overwritten."""
    nb = pytest.importorskip("fastgc.kernels.numba")
    code = fastgc.ReedSolomon(6, stragglers=2)
    tables = code.scheme.tables
    four, rows = np.arange(4), np.ones((6, 8))
    few, vector = np.full(3, 7j), np.ones(4, complex)
    x, y = np.full(5, 7.0), np.full(4, 7.0)
    for says, kernel, *arguments in (
        ("out must be", nb.decoding_vector, tables, 0, four, few),
        ("a row for each", nb.combine_rows, vector[:3], rows, np.empty(8), four),
        ("is no row", nb.combine_rows, vector, rows, np.empty(8), four + 3),
        ("is no row", nb.combine_rows, vector, rows, np.empty(8), four - 1),
        ("a row for each", nb.combine_rows, vector, rows, np.empty(8), None),
        ("out must be", nb.combine_rows, vector, rows, np.empty(9), four),
        ("contiguous", nb.combine_rows, vector, np.ones((6, 16))[:, ::2], np.empty(8), four),
        (
            "masks and out",
            nb.decoding_vectors,
            tables,
            np.ones((2, 6), bool),
            0,
            np.empty((2, 5), complex),
            np.zeros(2, int),
        ),
        ("out must be", nb.combine_rows, vector, rows, np.empty(6), four),
        ("order must be", nb.leja_order, x, np.zeros(4, np.int64)),
    ):
        with pytest.raises(ValueError, match=says):
            kernel(*arguments)
    assert (few == 7j).all()
    assert (x == 7).all()
    assert (y == 7).all()


@pytest.mark.numba
def test_kept_code_is_outdated_by_a_change_of_any_file(tmp_path):
    """Numba checks a function's own file, but functions compiled into it may lie in others."""
    compiling = pytest.importorskip("fastgc.kernels.numba.njit")
    (tmp_path / "one.py").write_text("1")
    before = compiling._digest(tmp_path)
    (tmp_path / "other.py").write_text("2")
    assert compiling._digest(tmp_path) != before
    kept = fastgc.kernels.numba.combine_rows._cache._cache_file
    assert kept._source_stamp == compiling._SOURCES

    def names_what_has_moved():
        return pickle.loads(b"cfastgc.kernels.nowhere\nPlan\n.")

    assert compiling._or_empty(names_what_has_moved)() == {}


@pytest.mark.parametrize("name", sorted(by_numba.__all__))
def test_numba_takes_what_c_takes(name):
    of = getattr(by_numba, name)
    taken = inspect.signature(getattr(of, "py_func", of)).parameters.values()
    wanted = inspect.signature(getattr(calls, name, None) or calls.made(name)).parameters.values()
    assert [(each.name, each.default) for each in taken] == [
        (each.name, each.default) for each in wanted
    ]


def test_a_kernel_is_called_by_its_line():
    """Lengths and dtypes are found from arrays, NULL stands for None, a status is an answer."""
    taken = {
        name: [*inspect.signature(calls.made(name)).parameters] for name in ("sgd", "cauchy_ridge")
    }
    assert taken["sgd"] == ["theta", "velocity", "gradient", "lr", "momentum"]
    assert taken["cauchy_ridge"] == ["x", "y", "g", "h", "b", "unit", "size", "out"]
    assert calls.made("nothing") is None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kernels.unchecked.nothing  # noqa: B018
    nodes, out = np.arange(3.0), np.empty(3)
    solve = calls.made("solve_vandermonde")
    assert solve(nodes, nodes, None, False, out, None, True, False) is True
    assert solve(np.zeros(3), nodes, None, False, out, None, True, False) is False
    with pytest.raises(KeyError):
        kernels.unchecked.square_sum(np.arange(3))


ROWS = [row for family in oracles.FAMILIES for row in getattr(family, "ROWS", ())]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_kernels_do_what_oracles_do(row, at_each_level):
    """Those whose rows stand beside their oracles."""
    [oracle] = (vars(f)[row.name] for f in oracles.FAMILIES if row.name in vars(f))
    for seed, size in enumerate((*range(1, 20), 33, 64, 100)):
        for dtype in row.dtypes:
            given = row.make(np.random.default_rng(seed), size, dtype)
            expected = copy.deepcopy(given)
            truth = oracle(*expected)
            for level in at_each_level():
                found = copy.deepcopy(given)
                result = getattr(kernels.unchecked, row.name)(*found)
                if truth is not None:
                    assert result == pytest.approx(truth, rel=row.rtol), (level, size)
                for one, other in zip(found, expected, strict=True):
                    if isinstance(one, np.ndarray):
                        near = row.rtol * np.abs(other).max()
                        np.testing.assert_allclose(one, other, rtol=0, atol=near, err_msg=level)


def test_oracles_stand_for_kernels():
    names = [name for family in oracles.FAMILIES for name in vars(family)]
    assert {*calls.__all__, *kernels.__all__} & {*names} >= {"combine", "sgd", "draw", "bind_cells"}
    with oracles.instead():
        assert kernels.unchecked.sgd is oracles.optimize.sgd
    assert kernels.unchecked.sgd is not oracles.optimize.sgd
