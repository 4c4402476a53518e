"""The decoding vector's time and error against n, by every method and by others' solvers, s = n/8.

Of up to 4096 workers, random ones straggle. Of more, those that the root spreads best: entries of
random sets would leave float64's range. The largest error of an entry is relative to it, and only
measured for up to 4096 workers; there is none for "auto", which may take a near-exact vector.
Solvers get the system of eq. (12) ready-made; "solve" makes it. Times are of decoders, prepared
once, and of one thread but where all are named: BLAS's threads that wait for a busy core say
nothing of a method.
"""

import importlib
import math
import sys
from contextlib import nullcontext, suppress

import numpy as np
import pytest
from measure import one_blas_thread, times
from oracles.decoding import decoding_truth

import fastgc
from fastgc.numerics.vandermonde import roots_order

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning"),
    pytest.mark.filterwarnings("ignore:.*ill-conditioned"),  # SciPy says so, rightly
]

SIZES = [1 << e for e in range(4, 21)]
RANDOM = 4096  # workers, at most, of whom random ones straggle
FEW = 12  # stragglers, for methods timed with the same number for every n
LONGEST = 0.5  # seconds of a call, at most
# The exponent of n with which a method's time is expected to grow.
ORDERS = {
    "numpy.linalg.solve": 3,
    "numpy.linalg.solve, all threads": 3,
    "scipy.linalg.solve": 3,
    "torch.linalg.solve": 3,
    "vandermonde (PyPI)": 2,
    "solve": 3,
    "vandermonde": 2,
    "lookup": 2,
    "locator": 2,
    f"locator, s={FEW}": 1,
    "fft": 1,
    "auto": 1,
}
_took = {}  # for each method, its last size and time


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    found = {}
    for name in ("scipy.linalg", "torch"):  # load them before the threads of their BLAS are set
        with suppress(ImportError):
            found[name] = importlib.import_module(name)
    torch = found.get("torch")
    before = torch and torch.get_num_threads()
    if torch:
        torch.set_num_threads(1)
    yield
    if torch:
        torch.set_num_threads(before)


def case(n, s):
    if n <= RANDOM:
        return fastgc.ReedSolomon(n, stragglers=s), np.random.default_rng(n).permutation(n)[s:]
    # A root near the golden section of the circle, for which the first workers are well spread: a
    # search for the best one would take longer.
    code = fastgc.ReedSolomon(n, stragglers=s, root=int(0.382 * n) | 1)
    return code, np.random.default_rng(n).permutation(np.arange(s, n))


def error(code, survivors, vector):
    blocks = [(c.m, c.q, 0) for c in code.scheme.parts]
    truth = decoding_truth(blocks, survivors)
    return float((np.abs(vector - truth) / np.abs(truth)).max())


@pytest.fixture(scope="module", autouse=True)
def truth_is_true():
    """Check the extended precision that errors are measured against, with 40 digits."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        for n in SIZES[:4]:
            code, survivors = case(n, n // 8)
            q = code.scheme.parts[0].q
            lost = sorted(set(range(n)) - set(survivors.tolist()))
            factor = [1 - mpmath.expjpi(mpmath.mpf(2 * q * t) / n) for t in range(n)]
            exact = [
                mpmath.fprod(factor[(int(i) - j) % n] for j in lost) / n for i in survivors.tolist()
            ]
            exact = np.array([complex(a) for a in exact])
            assert error(code, survivors, exact) < 4e-16, n


def solver(module, code, survivors):
    """Return a call of a library's solver on the system of eq. (12), and its order of workers."""
    f, n, root = survivors.size, code.n, code.scheme.parts[0].q
    moments = np.zeros(f, complex)
    moments[0] = 1
    if module == "vandermonde":
        order = roots_order(n, survivors)
        nodes = np.exp(2j * np.pi / n * (root * survivors[order] % n))
        package = pytest.importorskip("vandermonde")
        return lambda: package.solve_transpose(nodes, moments), order
    package = pytest.importorskip(f"{module}.linalg")
    system = np.exp(2j * np.pi / n * (root * np.outer(np.arange(f), survivors) % n))
    arguments = system, moments
    if module == "torch":
        arguments = tuple(map(sys.modules["torch"].from_numpy, arguments))
    return lambda: package.solve(*arguments), slice(None)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("method", ORDERS)
def test_method(benchmark, note, method, n):
    if method in _took:
        last, seconds = _took[method]
        if seconds * (n / last) ** ORDERS[method] > LONGEST:
            pytest.skip("takes too long")
    code, survivors = case(n, FEW if method.endswith(f"={FEW}") else n // 8)
    order, name = slice(None), method.split(",")[0]
    if "linalg" in name:
        call, order = solver(name.split(".")[0], code, survivors)
    elif "PyPI" in name:
        call, order = solver("vandermonde", code, survivors)
    elif name == "solve":
        call = lambda: code.decoding_vector(survivors, name)  # noqa: E731
    else:
        decoder = code.decoder()
        call = lambda: decoder(survivors, name)  # noqa: E731
    benchmark.group = f"decoding vector, {method}"
    with nullcontext() if method.endswith("all threads") else one_blas_thread():
        seconds, vector = min(times(call, 2)), call()  # the first call prepares tables
        _took[method] = n, seconds
        calls = max(1, int(1e-3 / seconds))
        rounds = min(21, max(3, int(0.2 / (seconds * calls))))
        benchmark.pedantic(call, rounds=rounds, iterations=calls)
    wrong = math.nan
    if n <= RANDOM and method != "auto":
        wrong = error(code, survivors[order], np.asarray(vector))
    note(across="n", method=method, n=n, error=wrong)


@pytest.mark.parametrize("call", ["C function", "decoder", "decoding_vector"])
@pytest.mark.parametrize("n", [80, 1024])
def test_facade(benchmark, note, n, call):
    """Time the C function, and the calls of the facade above it."""
    from fastgc.kernels._cffi import ffi, lib

    from fastgc.kernels.c import calls

    benchmark.group = f"locator, n={n:4d}"
    code, survivors = case(n, {80: 12, 1024: 128}[n])
    if call == "decoder":
        benchmark(code.decoder(), survivors, "locator")
    elif call == "decoding_vector":
        benchmark(code.decoding_vector, survivors, "locator")
    else:
        arguments = (
            calls.plan_struct(code.scheme._plan),
            ffi.from_buffer("int64_t[]", survivors),
            ffi.from_buffer("double[]", np.empty(survivors.size, complex)),
            ffi.new("int64_t *"),
            calls.work_space(code.scheme._plan),
            math.inf,
            lib.FGC_LOCATOR,
            survivors.size,
        )
        benchmark(lib.fgc_decoding_vector, *arguments)
    note(across="n", call=call, n=n)


OF_SETS = [(64, 8), (256, 32), (1000, 100), (2048, 256), (4096, 512), (10000, 1000)]
SETS = ("random", "neighbouring", "best-spread")
MOST_SETS, LONGEST_OF_SETS = 1000, 4.0  # sets at most, and seconds for all of them


def stragglers(kind, code, rng):
    """Return random workers, neighbours on the circle, or workers at even distances on it."""
    n, s = code.n, code.stragglers
    if kind == "random":
        return rng.permutation(n)[:s]
    places = np.arange(s) if kind == "neighbouring" else np.arange(s) * n // s
    return code.scheme.rings()[0][(places + rng.integers(n)) % n]


@pytest.mark.parametrize(("n", "s"), OF_SETS)
@pytest.mark.parametrize("kind", SETS)
def test_set(benchmark, note, kind, n, s):
    """Time a call for each set, by "auto" with the default root, and a pair of FFTs of size n."""
    code = fastgc.ReedSolomon(n, stragglers=s)
    decode, rng = code.decoder(), np.random.default_rng(n)
    survivors = []

    def draw():
        survivors[:] = [np.setdiff1d(np.arange(n), stragglers(kind, code, rng))]

    x = rng.standard_normal(n) + 1j * rng.standard_normal(n)
    draw()
    decode(survivors[0])  # prepares tables
    took = min(times(lambda: decode(survivors[0]), 9))
    pair = min(times(lambda: np.fft.ifft(np.fft.fft(x)), 9))
    rounds = int(min(MOST_SETS, max(20, LONGEST_OF_SETS / took)))
    benchmark.group = f"decoding vector by set, {kind}"
    benchmark.pedantic(lambda: decode(survivors[0]), setup=draw, rounds=rounds, iterations=1)
    found = np.array(benchmark.stats.stats.data) if benchmark.enabled else np.array([took])
    p99 = float(np.quantile(found, 0.99))
    note(
        across="n/s",
        **{"stragglers": kind, "n/s": f"{n}/{s}"},
        times={"99 %": p99, "longest": float(found.max())},
        pairs=p99 / pair,
    )
