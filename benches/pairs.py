"""Messages of pairs, with twice float64's precision, beside those of float64.

``python benches/pairs.py`` prints two tables in Markdown. The first has the times of kernels on one
core that encode f gradients of p float64, and that combine f messages, packed. The second, for
codes of n workers and s stragglers in several patterns on the circle of the roots, has the errors
to expect from near-exact decoding vectors, and the times of these and of exact ones.
"""

import argparse
import math
import time
from functools import partial

import mpmath
import numpy as np

from fastgc import kernels
from fastgc._base.progress import markdown_table

UNITS = 2.0**-53, 2.0**-106
COMBINATIONS = ((68, 640), (13, 10**5), (128, 10**4), (128, 10**6))
VECTORS = ((256, 128), (1024, 512))


def circle(n):
    """Return pairs (high, low) of the parts of exp(pi i u / n), u = 0 .. 2n-1."""
    found = np.empty((2 * n, 2, 2))
    with mpmath.workprec(160):
        for u in range(2 * n):
            root = mpmath.expjpi(mpmath.mpf(u) / n)
            for part, x in enumerate((root.real, root.imag)):
                found[u, part] = float(x), float(x - float(x))
    return found


def best(functions, seconds):
    """Return the least milliseconds of each function; they take turns, to share disturbances."""
    least, begin, rounds = [math.inf] * len(functions), time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - begin < seconds:
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            least[i] = min(least[i], 1e3 * (time.perf_counter() - start))
        rounds += 1
    return least


def combinations(sizes, seed, seconds):
    """Return a table of encoding and combining."""
    rng, table = np.random.default_rng(seed), []
    for f, p in sizes:
        coef = rng.standard_normal((f, 4)).view(np.complex128)
        coef[:, 1] *= 2.0**-54
        pairs = rng.standard_normal((f, 2 * p))
        pairs[:, 1::2] *= 2.0**-54
        plain = np.ascontiguousarray(pairs[:, ::2])
        rows = kernels.Rows.of(plain, p, plain.dtype)
        messages = kernels.Rows.of(pairs, 2 * p, pairs.dtype)
        out, message, high = np.empty(p), np.empty(2 * p), np.ascontiguousarray(coef[:, 0])
        times = best(
            [
                partial(kernels.combine, kernels.PACKED, rows, high, out),
                partial(kernels.combine_pairs, rows, coef, message, paired=False),
                partial(kernels.combine_pairs, messages, coef, out, paired=True, rounded=True),
            ],
            seconds,
        )
        double, encode, combine = times
        shown = [f"{ms:.3g}" for ms in times]
        ratios = [f"{encode / double:.2f}", f"{combine / double:.2f}"]
        size = 8 * f * p / 2**20
        table.append([str(f), str(p), f"{size:.3g}", *shown[:2], ratios[0], shown[2], ratios[1]])
    head = ["f", "p", "MiB", "float64, ms", "encode, ms", "times", "combine, ms", "times"]
    title = (
        f"Backend {kernels.backend()}, one core, least times; MiB of float64. Combinations of "
        "pairs read twice as much."
    )
    return markdown_table(title, head, table)


def patterns(n, s, rng):
    """Return places of the stragglers on the circle, by the name of the pattern."""
    spread = np.arange(s)
    return {
        "neighbours": spread,
        "random": rng.permutation(n)[:s],
        "nearly uniform, a gap": np.floor(0.89 * n * (spread + 0.5) / s).astype(np.int64),
    }


def expected_error(high, turns, unit):
    """Return a gradient's expected error: the residual and rounding, by rows of least norm."""
    n, left = high.size, np.linalg.norm(high[turns])
    rounding = 2 * unit * np.linalg.norm(high)
    return math.hypot(left, rounding) * math.sqrt(n / (turns.size + 1))


def vectors(sizes, seed, seconds):
    """Return a table of decoding vectors."""
    rng, table = np.random.default_rng(seed), []
    for n, s in sizes:
        points = circle(n)
        for name, turns in patterns(n, s, rng).items():
            calls = [
                partial(kernels.near_exact, turns, n, s, UNITS[0]),
                partial(kernels.near_exact_pairs, turns, n, s, points),
                partial(kernels.locator_pairs, turns, n, points),
            ]
            near, near_pairs, times = calls[0](), calls[1](), best(calls, seconds)
            errors = (
                expected_error(near, turns, UNITS[0]),
                expected_error(near_pairs[:, 0], turns, UNITS[1]),
            )
            shown = [f"{ms:.3g}" for ms in times]
            table.append(
                [name, str(n), str(s), f"{errors[0]:.1e}", shown[0], f"{errors[1]:.1e}", *shown[1:]]
            )
    head = ["stragglers", "n", "s", "float64", "ms", "pairs", "ms", "exact, ms"]
    title = "Errors to expect, and times of near-exact vectors; the last column is locator_pairs."
    return markdown_table(title, head, table)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=kernels.backends(), default=kernels.backend())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a row, at least")
    given = parser.parse_args()
    kernels.threads.set_num_threads(1)
    with kernels.use_backend(given.backend):
        print(combinations(COMBINATIONS, given.seed, given.seconds))
        print()
        print(vectors(VECTORS, given.seed, given.seconds))


if __name__ == "__main__":
    main()
