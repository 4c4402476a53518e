"""The decoding vector's time against n, by every method and by others' solvers, for s = n/8.

It is also measured by which workers straggle: users meet random sets, and neighbours on the circle.
Everything runs on one thread: BLAS's threads that wait for a busy core say nothing of a method.
"""

import importlib
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from measure import one_blas_thread

import fastgc
from fastgc.coding.arguments import arguments_of
from fastgc.numerics.vandermonde import roots_order

pytestmark = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")

SIZES = [1 << e for e in range(4, 21)]
FEW = 12  # stragglers, for methods timed with the same number for every n
LONGEST = 0.5  # seconds of a call, at most
# The exponent of n with which a method's time is expected to grow.
ORDERS = {
    "numpy.linalg.solve": 3,
    "scipy.linalg.solve": 3,
    "torch.linalg.solve": 3,
    "vandermonde (PyPI)": 2,
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
    with one_blas_thread():
        if torch:
            torch.set_num_threads(1)
        yield
        if torch:
            torch.set_num_threads(before)


def case(n, s):
    # A root near the golden section of the circle: a search for the best one would take longer.
    code = fastgc.ReedSolomon(n, stragglers=s, root=int(0.382 * n) | 1)
    # The first workers straggle, which this root spreads best. With so many random stragglers, some
    # entries would overflow float64.
    survivors = np.random.default_rng(n).permutation(np.arange(s, n))
    return code, survivors


def solver(module, code, survivors):
    """Return a call of a library's solver on the system of eq. (12), which is ready-made."""
    f, n, root = survivors.size, code.n, arguments_of(code)["root"]
    moments = np.zeros(f, complex)
    moments[0] = 1
    if module == "vandermonde":
        order = roots_order(n, survivors)
        nodes = np.exp(2j * np.pi / n * (root * survivors[order] % n))
        package = pytest.importorskip("vandermonde")
        return lambda: package.solve_transpose(nodes, moments)
    package = pytest.importorskip(f"{module}.linalg")
    system = np.exp(2j * np.pi / n * (root * np.outer(np.arange(f), survivors) % n))
    arguments = system, moments
    if module == "torch":
        arguments = tuple(map(sys.modules["torch"].from_numpy, arguments))
    return lambda: package.solve(*arguments)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("method", ORDERS)
def test_method(benchmark, note, method, n):
    if method in _took:
        last, seconds = _took[method]
        if seconds * (n / last) ** ORDERS[method] > LONGEST:
            pytest.skip("takes too long")
    code, survivors = case(n, FEW if method.endswith(f"={FEW}") else n // 8)
    if "linalg" in method:
        call = solver(method.split(".")[0], code, survivors)
    elif "PyPI" in method:
        call = solver("vandermonde", code, survivors)
    else:
        decode, name = code.decoder(), method.split(",")[0]

        def call():
            decode(survivors, name)

    times = []
    for _ in range(2):  # the first call prepares tables
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    seconds = min(times)
    _took[method] = n, seconds
    calls = max(1, int(1e-3 / seconds))
    rounds = min(21, max(3, int(0.2 / (seconds * calls))))
    benchmark.group = f"scaling, {method}"
    benchmark.pedantic(call, rounds=rounds, iterations=calls)
    note(scaling=method, n=n, order=ORDERS[method])


# Workers and stragglers as in the test above, and the papers' sizes.
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


def fastest(call):
    """Return the seconds of the fastest of nine calls."""
    times = []
    for _ in range(9):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize(("n", "s"), OF_SETS)
@pytest.mark.parametrize("kind", SETS)
def test_set(benchmark, note, kind, n, s):
    """Time a call for each set, by "auto" with the default root, and a pair of transforms."""
    code = fastgc.ReedSolomon(n, stragglers=s)
    decode, rng = code.decoder(), np.random.default_rng(n)
    survivors = []

    def draw():
        survivors[:] = [np.setdiff1d(np.arange(n), stragglers(kind, code, rng))]

    x = rng.standard_normal(n) + 1j * rng.standard_normal(n)
    draw()
    decode(survivors[0])  # prepares tables
    took = fastest(lambda: decode(survivors[0]))
    pair = fastest(lambda: np.fft.ifft(np.fft.fft(x)))
    rounds = int(min(MOST_SETS, max(20, LONGEST_OF_SETS / took)))
    benchmark.group = f"decoding vector by set, {kind}"
    benchmark.pedantic(lambda: decode(survivors[0]), setup=draw, rounds=rounds, iterations=1)
    found = np.array(benchmark.stats.stats.data) if benchmark.enabled else np.array([took])
    p99 = float(np.quantile(found, 0.99))
    note(set=kind, n=n, s=s, p99=p99, worst=float(found.max()), pairs=p99 / pair)
