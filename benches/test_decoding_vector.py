"""The decoding vector by every method: O(f^3), O(f^2), O(f s), O(n log n)."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
from measure import one_blas_thread
from oracles.decoding import decoding_truth

import fastgc

pytestmark = [
    pytest.mark.benchmark(max_time=0.4),
    # The largest sizes would give imprecise gradients, but the vectors are precise.
    pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning"),
]

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
SLOW = 2048  # from here on numpy.linalg.solve takes seconds: one round
METHODS = [
    "linalg",
    "linalg, all threads",
    "solve",
    "vandermonde",
    "lookup",
    "locator",
    "fft",
    "prepared",
]


def case(n, s):
    code = fastgc.ReedSolomon(n, stragglers=s)
    survivors = np.random.default_rng(n).permutation(n)[: n - s].astype(np.int64)
    return code, survivors


def error(code, survivors, vector):
    blocks = [(c.m, c.q, 0) for c in code.scheme.parts]
    truth = decoding_truth(blocks, survivors)
    return float((np.abs(vector - truth) / np.abs(truth)).max())


@pytest.fixture(scope="module", autouse=True)
def truth_is_true():
    """Check the extended precision that errors are measured against, with 40 digits."""
    try:
        import mpmath
    except ImportError:
        return
    with mpmath.workdps(40):
        for n, s in SIZES[:4]:
            code, survivors = case(n, s)
            q = code.scheme.parts[0].q
            lost = sorted(set(range(n)) - set(survivors.tolist()))
            factor = [1 - mpmath.expjpi(mpmath.mpf(2 * q * t) / n) for t in range(n)]
            exact = [
                mpmath.fprod(factor[(int(i) - j) % n] for j in lost) / n for i in survivors.tolist()
            ]
            exact = np.array([complex(a) for a in exact])
            assert error(code, survivors, exact) < 4e-16, n


@pytest.mark.parametrize(("n", "s"), SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_method(benchmark, note, n, s, method):
    """Time LAPACK alone ("linalg"), `decoding_vector`, and a decoder ("prepared").

    "linalg" gets its system ready-made, "solve" makes it. Both run on one BLAS thread, because
    threads that wait for a busy core take many times as long.
    """
    if method in ("linalg, all threads", "solve") and n > SLOW:
        pytest.skip("takes too long")
    code, survivors = case(n, s)
    benchmark.group = f"decoding vector, n={n:4d} s={s}"
    if method.startswith("linalg"):
        power = code.scheme.parts[0].q * np.outer(np.arange(n - s), survivors) % n
        moment = np.zeros(n - s)
        moment[0] = 1
        call, arguments = np.linalg.solve, (np.exp(2j * np.pi / n * power), moment)
    elif method == "prepared":
        call, arguments = code.decoder(), (survivors, "locator")
    else:
        call, arguments = code.decoding_vector, (survivors, method)
    with one_blas_thread() if method in ("linalg", "solve") else nullcontext():
        if method in ("linalg", "linalg, all threads", "solve") and n >= SLOW:
            vector = benchmark.pedantic(call, arguments, rounds=1)
        else:
            vector = benchmark(call, *arguments)
    note(n=n, s=s, method=method, error=error(code, survivors, vector))


@pytest.mark.parametrize("call", ["C function", "decoder"])
@pytest.mark.parametrize(("n", "s"), [(80, 12), (1024, 128)])
def test_facade(benchmark, note, n, s, call):
    """Time the C function, and the calls of the facade above it."""
    from fastgc.kernels._cffi import ffi, lib

    from fastgc.kernels.c import calls

    benchmark.group = f"locator, n={n:4d}"
    code, survivors = case(n, s)
    vector = np.empty(survivors.size, complex)
    if call == "decoder":
        vector = benchmark(code.decoder(), survivors, "locator")
    else:
        arguments = (
            calls.plan_struct(code.scheme._plan),
            ffi.from_buffer("int64_t[]", survivors),
            ffi.from_buffer("double[]", vector),
            ffi.new("int64_t *"),
            calls.work_space(code.scheme._plan),
            math.inf,
            lib.FGC_LOCATOR,
            survivors.size,
        )
        benchmark(lib.fgc_decoding_vector, *arguments)
    note(n=n, call=call, error=error(code, survivors, vector))
