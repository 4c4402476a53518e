"""Does "auto" take the fastest method? For n = 16 .. 2^20 and s = 1 .. n/4."""

import math
import time

import numpy as np
import pytest

import fastgc
from fastgc.kernels import fourier

pytestmark = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")

SIZES = [16, 64, 256, 1000, 1024, 1511, 4096, 16384, 65536, 65537, 1 << 18, 1 << 20]
LONGEST = 0.2  # a method is not compared if its product takes more seconds
MOST_AT_RANDOM = 1 << 14  # with more random stragglers, some entries would overflow float64


def shares(n):
    """Return numbers of stragglers from 1 to n/4, some on both sides of where methods cross."""
    cross = fourier.crossover(n)
    found = {1, n // 64, n // 16, n // 8, n // 4, cross * 2 // 3, cross, cross * 3 // 2}
    return sorted(s for s in found if 1 <= s <= n // 4)


@pytest.mark.parametrize("n", SIZES)
def test_auto(benchmark, note, n):
    """Time "auto" in turns with the fixed methods; shortest times count, on a shared machine.

    "lookup" is left out: with three or more times as many factors as stragglers, it is the slowest.
    """
    worst, picks, rng = 0.0, [], np.random.default_rng(n)
    benchmark.group = "auto"
    for s in shares(n):
        root = round(0.382 * n) | 1 if n > 2000 else "stable"
        code = fastgc.ReedSolomon(n, stragglers=s, root=root)
        code.scheme.cache = None  # otherwise repeated sets would be looked up
        lost = rng.permutation(n)[:s] if s <= MOST_AT_RANDOM else np.arange(s)
        survivors = np.setdiff1d(np.arange(n), lost)
        decode = code.decoder()
        methods = ["auto", "fft"]
        if 1e-10 * n * s < LONGEST:
            methods += ["spread", "locator"]
        best = dict.fromkeys(methods, math.inf)
        turns, end = 0, time.perf_counter() + 0.3
        while turns < 9 or time.perf_counter() < end:
            rng.shuffle(methods)  # the method before decides what is in the caches
            for method in methods:
                start = time.perf_counter()
                decode(survivors, method)
                best[method] = min(best[method], time.perf_counter() - start)
            turns += 1
        auto = best.pop("auto")
        fastest = min(best, key=best.get)
        worst = max(worst, auto / best[fastest])
        picks.append((s, fastest, auto, auto / best[fastest]))
    benchmark.pedantic(decode, (survivors,), rounds=3)
    note(auto=n, worst=worst, cross=fourier.crossover(n), picks=picks)
