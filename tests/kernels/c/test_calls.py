"""Each kernel of the table computes what its oracle does, called as the rest of fastgc calls it."""

import copy
import platform
import re
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import oracles
import programs
import pytest
from completions import COMPLETIONS
from oracles import KERNELS, named
from oracles.table import HALVES, WIDE

import fastgc
from fastgc import kernels
from fastgc.kernels import Status
from fastgc.kernels import c as compiled
from fastgc.kernels.cyclic import LOCATOR, LOOKUP, SPREAD, CyclicPlan

GUARD = 64  # numbers before and after an array that a kernel writes


def guarded(kernel, given):
    """Copy arguments; those that the kernel writes lie between guards. Return both."""
    given, guards = copy.deepcopy(given), []
    for name in kernel.writes:
        if given[name] is not None:
            size, shape = given[name].size, given[name].shape
            whole = np.full(size + 2 * GUARD, 7, given[name].dtype)
            whole[GUARD:-GUARD] = given[name].ravel()
            guards += [whole[:GUARD], whole[-GUARD:]]
            given[name] = whole[GUARD:-GUARD].reshape(shape)
    return given, guards


def bits(value):
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


@pytest.mark.every_backend
@pytest.mark.parametrize(**named(KERNELS))
def test_each_kernel(kernel, case, dtype, at_each_level):
    """Its results are the truth's, and it writes nothing else."""
    rng = np.random.default_rng(1)
    for size, count in kernel.shapes:
        before = kernel.make(rng, size, count, dtype, **case)
        truth = kernel.true(before)
        for _ in at_each_level():
            given, guards = guarded(kernel, before)
            kernel.check(before, kernel.run(given), truth)
            assert all((guard == 7).all() for guard in guards)
            for name in before.keys() - {*kernel.writes, "plan", "delays"}:
                if isinstance(before[name], list):
                    assert [*map(bits, given[name])] == [*map(bits, before[name])]
                else:
                    assert bits(given[name]) == bits(before[name]), name


@pytest.mark.parametrize("kernel", COMPLETIONS, ids=lambda kernel: kernel.name)
def test_completion(kernel):
    given = kernel.make(np.random.default_rng(2), 7, 2)
    (done, late), (true, true_late) = kernel.run(given), kernel.truth(given)
    for found, expected in zip((*done, late), (*true, true_late), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("name", ["bind_cells", "bind_tiling", "bind_edges"])
def test_bound_vectors_bind_the_sum_by_them(name, check):
    """One call of C takes survivors, computes the vector, and combines rows by it."""
    [kernel] = (each for each in KERNELS if each.name == name)
    rng, statuses = np.random.default_rng(0), set()
    for _ in range(60):
        given = kernel.make(rng, 6, 3, float)
        f, true = given["survivors"].size, kernel.true(given)
        out, came = np.full(5, 7.0), given["survivors"].copy()
        bound = getattr(kernels.unchecked, name)(**given).bound
        rows = kernels.Rows.of(rng.standard_normal((6, 5)), 5, np.dtype(float))
        taken = bound, given["survivors"], rng.integers(3)
        run = kernels.unchecked.bind_decode(*taken, kernels.REAL, rows, out, check)
        few = f < taken[2]
        given["survivors"][:] = 0
        good = true["returned"] == Status.OK and not few
        assert kernels.unchecked.bind_taken(*taken)(id(came)) == (f if good else -1)
        np.testing.assert_array_equal(given["survivors"], 0 if few else came)
        status = run(id(came))
        statuses.add((true["returned"], few))
        assert status == (Status.OK if good else Status.MISPLACED)
        assert good or (out == 7).all()
        if good:
            expected = true["out"] @ rows.arrays[given["survivors"]]
            np.testing.assert_allclose(out, expected, atol=1e-8)
            used = np.flatnonzero(np.abs(true["out"]) > 1e-6)
            if used.size:
                rows.arrays[given["survivors"][used[0]], 3] = np.nan
                assert (run(id(came)) == Status.OK) != check
    assert len(statuses) > 4
    for other in (
        came[::-1],
        came.astype(np.int32),
        np.zeros((1, 1), int),
        [0],
        1,
        np.zeros(7, int),
    ):
        assert kernels.unchecked.bind_taken(*taken)(id(other)) == -1


ENCODING = [
    pytest.param(mode, dtype, id=f"{name}-{np.dtype(dtype).name}")
    for mode, name in [
        (kernels.REAL, "real"),
        (kernels.PACKED, "packed"),
        (kernels.EXPAND, "expand"),
    ]
    for dtype in (np.float32, np.float64, *(HALVES if mode != kernels.EXPAND else ()))
]


@pytest.mark.every_backend
@pytest.mark.c_only
@pytest.mark.few(8)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "threads"])
@pytest.mark.parametrize(("mode", "dtype"), ENCODING)
def test_bind_add_combines_and_measures(mode, dtype, split, at_each_level, split_over):
    """`out` is near the sum of its terms, and the energy is that of the rows' true squares."""
    rng = np.random.default_rng(6)
    split_over(3 if split else 1)
    sums = np.result_type(dtype, np.float32 if mode != kernels.EXPAND else np.complex64)
    for size in (1, 2, 5, 17, 1024, 4095, 4096, 4097, 8193, 20001):
        out_size = size + size % 2 if mode == kernels.PACKED else size
        off, room = size % 4, np.empty(out_size + 4, sums)  # it lies on a vector, or between two
        start, out = rng.standard_normal(out_size).astype(sums), room[off : off + out_size]
        for count in (1, 2, 5):
            arrays = [rng.standard_normal(size).astype(dtype) for _ in range(count)]
            coef, weights = rng.standard_normal((2, count))
            if mode != kernels.REAL:
                coef = coef + 1j * rng.standard_normal(count)
            wide = [array.astype(np.float64).astype(WIDE) for array in arrays]
            terms = [a * (row @ row) for a, row in zip(weights, wide, strict=True)]
            pairs = [np.append(row, np.zeros(out_size - size)) for row in wide]
            if mode == kernels.PACKED:
                pairs = [row.view(np.clongdouble) for row in pairs]
            whole = sum(a * row for a, row in zip(coef, pairs, strict=True))
            most = sum(np.abs(a * row) for a, row in zip(coef, pairs, strict=True))
            whole = whole.view(WIDE) if mode == kernels.PACKED else whole
            most = most.repeat(2) if mode == kernels.PACKED else most
            for accumulate in (False, True):
                truth = whole + start if accumulate else whole
                limit = (count + 4) * np.finfo(sums).eps * (most + accumulate * np.abs(start))
                for _ in at_each_level():
                    room[:] = 7
                    out[:] = start
                    told, add, where = kernels.unchecked.bind_add(
                        mode, coef, weights, (np.dtype(dtype), size), out, out
                    )
                    told.more = accumulate
                    for at, array in enumerate(arrays):
                        assert add(told, where(array), at) == kernels.Status.OK
                    error = told.energy - sum(terms)
                    assert (np.abs(out - truth) <= limit).all()
                    assert (np.delete(room, np.s_[off : off + out_size]) == 7).all()
                    assert abs(error) <= (size + count) * 2.0**-53 * np.abs(terms).sum()
        for at in {0, size // 2, size - 1}:
            spoiled = np.ones(size, dtype)
            spoiled[at] = np.nan
            one = np.ones(1, np.complex128 if mode else np.float64)
            told, add, where = kernels.unchecked.bind_add(
                mode, one, np.ones(1), (np.dtype(dtype), size), out, out
            )
            add(told, where(spoiled), 0)
            assert np.isnan(told.energy)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("mode", "dtype"),
    [*ENCODING, *(pytest.param(kernels.REAL_PART, d, id=d) for d in ("complex64", "complex128"))],
)
def test_bind_apart_tells_squares(mode, dtype, threads, at_each_level, split_over):
    """They are those of the rows that are read and of `out`, whose bits they do not change."""
    rng = np.random.default_rng(7)
    split_over(threads)
    dtype = np.dtype(dtype)
    sums = np.result_type(dtype, np.float32 if mode != kernels.EXPAND else np.complex64)
    sums = np.empty(0, sums).real.dtype if mode == kernels.REAL_PART else sums
    for size in (1, 2, 7, 8, 33, 1000, 16385, 40001):
        for count in (1, 4, 5, 9, 33, 70):
            if size * count > 200_000:
                continue
            X = rng.standard_normal((count, size)) * (1e-30 if size % 2 and dtype != "e" else 1)
            rows = (X * (1 + 1j if dtype.kind == "c" else 1)).astype(dtype)
            coef = rng.standard_normal(count) * (1 if mode == kernels.REAL else 1 + 2j)
            coef[1:3] = 0
            cut = mode == kernels.PACKED and size % 2 == 0
            for length in (size, size - 1) if cut else (size,):
                plan = mode, coef, (dtype, size), (sums, length), True
                for _ in at_each_level():
                    squares, (out, plain) = np.full(count + 1, 7.0), np.empty((2, length), sums)
                    run = kernels.unchecked.bind_apart(*plan, squares)
                    assert run(list(rows), out, count) == Status.OK
                    kernels.unchecked.bind_apart(*plan)(list(rows), plain, count)
                    np.testing.assert_array_equal(out, plain)
                    wide = np.vstack([rows.astype(complex), np.resize(out, size).astype(complex)])
                    wide[-1, length:] = 0
                    true = (wide.real**2 + wide.imag**2).sum(axis=1)
                    true[1:count][:2] = np.nan
                    np.testing.assert_allclose(squares, true, rtol=1e-13)


@pytest.mark.every_backend
def test_bind_combine_keeps_its_rows():
    numbers, coef, out = np.arange(3), np.ones(3), np.empty(5)
    arrays = [np.ones(5) for _ in range(3)]
    kept = [weakref.ref(array) for array in arrays]
    rows = kernels.Rows.of(arrays, 5, arrays[0].dtype)
    combine = kernels.unchecked.bind_combine(kernels.REAL, rows, numbers, coef, out)
    del arrays, rows
    assert all(ref() is not None for ref in kept)
    assert combine(3) == kernels.Status.OK
    np.testing.assert_array_equal(out, np.full(5, 3.0))


TWO = fastgc.ReedSolomon(24, stragglers=5, clusters=2)  # two clusters, which need 7 of 12 each


def vector_of(code, survivors, method):
    survivors, plan = np.array(survivors, np.int64), CyclicPlan(code.scheme.tables)
    out = np.full(survivors.size, np.nan, np.complex128)
    decode, where = kernels.unchecked.bind_decoding_vector(plan, survivors, out)
    return decode(method, survivors.size), where[0], out


@pytest.mark.every_backend
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
@pytest.mark.parametrize("method", [LOCATOR, LOOKUP, SPREAD])
def test_bind_decoding_vector_of_wrong_survivors(survivors, status, where, method):
    found = vector_of(TWO, survivors, method)
    assert found[:2] == (Status[status], where)
    assert np.isnan(found[2]).all()


@pytest.mark.every_backend
def test_bind_decoding_vector_tells_the_last_overflow():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = fastgc.ReedSolomon(3000, stragglers=1500, root=1)
    status, where, out = vector_of(code, range(1500), LOCATOR)
    beyond = np.flatnonzero(~np.isfinite(out))
    assert status == Status.OVERFLOW
    assert where == beyond[-1] > beyond[0]


@pytest.mark.every_backend
def test_bind_decoding_vector_spread_decodes_long_ones_anew():
    """A cluster whose vector is longer than the sum's is decoded from just enough messages."""
    anew = 0
    for away in range(2, 5):
        for first in range(12):
            neighbours = 5 * (first + np.arange(away)) % 12  # on the circle: points step by 5
            survivors = np.setdiff1d(np.arange(24), neighbours)
            plain, spread = (vector_of(TWO, survivors, m)[2] for m in (LOCATOR, SPREAD))
            mine = survivors < 12
            # The oracle makes the same choice among equally good messages.
            method, tables = SPREAD, TWO.scheme.tables
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


FLAGS = {
    "baseline": set(),
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "fma", "f16c"},
}


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="needs Linux on x86-64"
)
def test_simd_levels_of_the_processor():
    """The operating system lists the features that the processor has and that it saves."""
    has = set(re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.M)[1].split())
    expected = [level for level, needed in FLAGS.items() if needed <= has]
    assert programs.printed("from fastgc.kernels.c import simd; print(simd())") == expected[-1]
    before = compiled.simd()
    try:
        assert [level for level in FLAGS if compiled.select_simd(level)] == expected
    finally:
        assert compiled.select_simd(before)


def test_select_simd_of_an_unknown_level():
    before = compiled.simd()
    assert not compiled.select_simd("mmx")
    assert compiled.simd() == before
