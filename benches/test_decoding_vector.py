"""The decoding vector by every method: O(f^3), O(f^2), O(f s), O(n log n)."""

import numpy as np
import pytest
from kernel_table import decoding_truth

import fastgc

SIZES = [
    (16, 2),
    (32, 4),
    (80, 12),
    (128, 16),
    (256, 32),
    (512, 64),
    (1024, 128),
    (2048, 256),
    (4096, 512),
]
SLOW = 2048  # from here on numpy.linalg.solve takes seconds


def case(n, s):
    code = fastgc.ReedSolomon(n, stragglers=s)
    survivors = np.random.default_rng(n).permutation(n)[: n - s].astype(np.int64)
    return code, survivors


def error(code, survivors, vector):
    blocks = [(c.m, c.q, 0) for c in code._clusters]
    truth = decoding_truth(blocks, survivors)
    return float((np.abs(vector - truth) / np.abs(truth)).max())


@pytest.mark.parametrize(("n", "s"), SIZES)
@pytest.mark.parametrize("method", ["solve", "lookup", "locator", "fft", "prepared"])
def test_method(benchmark, note, n, s, method):
    code, survivors = case(n, s)
    benchmark.group = f"decoding vector, n={n:4d} s={s}"
    if method == "solve":
        # LAPACK alone: the system is made beforehand, which method="solve" cannot do
        power = code._clusters[0].q * np.outer(np.arange(n - s), survivors) % n
        system = np.exp(2j * np.pi / n * power)
        moment = np.zeros(n - s)
        moment[0] = 1
        call, arguments = np.linalg.solve, (system, moment)
    elif method == "prepared":
        call, arguments = code.decoder(), (survivors,)
    else:
        call, arguments = code.decoding_vector, (survivors, method)
    if method == "solve" and n >= SLOW:
        vector = benchmark.pedantic(call, arguments, rounds=1)
    else:
        vector = benchmark(call, *arguments)
    note(n=n, s=s, method=method, error=error(code, survivors, vector))


@pytest.mark.parametrize("backend", fastgc.backends())
@pytest.mark.parametrize(("n", "s"), [(80, 12), (1024, 128)])
def test_backend(benchmark, note, backend, n, s):
    benchmark.group = f"locator by backend, n={n:4d}"
    code, survivors = case(n, s)
    with fastgc.use_backend(backend):
        code.decoding_vector(survivors)
        vector = benchmark(code.decoding_vector, survivors)
    note(error=error(code, survivors, vector))


@pytest.mark.skipif("c" not in fastgc.backends(), reason="no extension")
def test_raw_kernel(benchmark, note):
    """What the facade adds to the C function at n = 80: compare with the prepared locator."""
    from fastgc.kernels._cffi import ffi, lib

    from fastgc.kernels import c_backend

    benchmark.group = "decoding vector, n=  80 s=12"
    code, survivors = case(80, 12)
    vector = np.empty(survivors.size, complex)
    arguments = (
        c_backend._plan(code._plan),
        ffi.from_buffer("int64_t[]", survivors),
        ffi.from_buffer("double[]", vector),
        ffi.new("int64_t *"),
        lib.FGC_LOCATOR,
        survivors.size,
    )
    benchmark(lib.fgc_decoding_vector, *arguments)
    note(n=80, s=12, method="raw kernel", error=error(code, survivors, vector))
