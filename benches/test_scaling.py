"""The decoding vector's time against n, by every method and by others' solvers: s = n/8.

All on one thread: those of BLAS that wait for a busy core would say nothing of the method.
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
from fastgc.vandermonde import roots_order

pytestmark = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")

SIZES = [1 << e for e in range(4, 21)]
FEW = 12  # stragglers, where their number is the same for every n
LONGEST = 0.5  # seconds a call may take
# the exponent of n that a method's time is expected to grow with
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
_took = {}  # the last size of a method, and its time


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    found = {}
    for name in ("scipy.linalg", "torch"):  # loaded before their BLAS is told
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
    # about the golden section of the circle: a search for the best root would take longer
    code = fastgc.ReedSolomon(n, stragglers=s, root=int(0.382 * n) | 1)
    code.scheme.cache = None  # or "auto" would look up a set that comes again
    # Neighbours straggle: of so many at random, some entries would be beyond float64.
    survivors = np.random.default_rng(n).permutation(np.arange(s, n))
    return code, survivors


def solver(module, code, survivors):
    """A library's solver on the system of eq. (12), which is made beforehand."""
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
