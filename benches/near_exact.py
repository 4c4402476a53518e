"""Near-exact decoding vectors: their errors and times, beside exact ones and a library's.

``python benches/near_exact.py`` prints a table in Markdown: for codes of n workers, s stragglers in
several patterns on the circle of the roots, the error of a decoded gradient that the exact vector,
the near-exact one and the one by ``np.linalg.lstsq`` have in float64, and what the two latter take
on one core. ``--backend`` times another one, ``--sizes 256/32,1000/100`` these codes alone.
"""

import argparse
import math
import time
from functools import partial

import numpy as np
from measure import one_blas_thread

from fastgc import kernels
from fastgc.progress import markdown_table

UNIT = 2.0**-53
# Milliseconds on one core that the kernel is to stay below: stragglers next to each other, any.
GOALS = {
    (256, 32): (0.08, 0.08),
    (1000, 100): (0.28, 0.28),
    (2048, 205): None,
    (4096, 410): (10, 10),
    (1024, 512): None,
    (4096, 1024): (60, 100),
}


def patterns(n, s, rng):
    """Places of the stragglers on the circle, by what they are."""
    spread = np.arange(s)
    found = {
        "neighbours": spread,
        "random": rng.permutation(n)[:s],
        "two arcs": np.r_[spread[: s // 2], n // 2 + spread[: s - s // 2]],
        "every few, over half": spread * math.ceil(n / (2 * s)) % n,
        "spread over 3/4": spread * 3 * n // (4 * s),
    }
    return {name: turns for name, turns in found.items() if np.unique(turns).size == s}


def error(values, turns):
    """Of a decoded gradient, relative: what is left out, and rounding of messages.

    Rows of B have the norm n / sqrt(s + 1), the least there is, and partials are of one size.
    """
    n = values.size
    row = n / math.sqrt(turns.size + 1)
    left, kept = np.linalg.norm(values[turns]), np.linalg.norm(np.delete(values, turns))
    return math.hypot(left, 2 * UNIT * kept) * row / math.sqrt(n)


def exact_error(n, turns):
    """Decimal logarithm of the exact vector's: that may be beyond a double."""
    logs = np.zeros(n)
    logs[1:] = np.log10(2 * np.sin(np.pi / n * np.arange(1, n)))
    total = np.array([logs[(i - turns) % n].sum() for i in range(n)])
    most = np.delete(total, turns).max()
    size = np.linalg.norm(10.0 ** (np.delete(total, turns) - most)) / n
    return most + math.log10(2 * UNIT * size * math.sqrt(n / (turns.size + 1)))


def least_squares(turns, n, c):
    """What a library offers: a truncated solution of the complex equations."""
    powers = np.multiply.outer(turns, np.arange(1, c + 1)) % n
    roots = np.exp(2j * np.pi / n * np.arange(n))
    x = np.zeros(n, dtype=np.complex128)
    x[0] = 1 / n
    x[1 : c + 1] = np.linalg.lstsq(roots[powers], np.full(turns.size, -1 / n), rcond=1e-15)[0]
    return np.fft.ifft(x, norm="forward")


def measured(function, seconds):
    """What it returns, and its least time in milliseconds: the core's, whatever else runs on it."""
    times, begin = [], time.perf_counter()
    while len(times) < 3 or (len(times) < 2000 and time.perf_counter() - begin < seconds):
        start = time.thread_time()
        values = function()
        times.append(time.thread_time() - start)
    return values, 1e3 * min(times)


def compare(sizes, seed, seconds):
    """A table of codes and patterns."""
    rng, rows, missed = np.random.default_rng(seed), [], []
    for n, s in sizes:
        for name, turns in patterns(n, s, rng).items():
            values, ms = measured(partial(kernels.near_exact, turns, n, s, UNIT), seconds)
            other, others_ms = measured(partial(least_squares, turns, n, s), seconds)
            goals = GOALS.get((n, s))
            goal = goals and goals[name != "neighbours"]
            if goal and ms > goal:
                missed.append(f"{n}/{s} {name}")
            rows.append(
                [
                    name,
                    str(n),
                    str(s),
                    f"1e{round(exact_error(n, turns)):+d}",
                    f"{error(values, turns):.1e}",
                    f"{ms:.3g}",
                    f"{goal:g}" if goal else "",
                    f"{error(other, turns):.1e}",
                    f"{others_ms:.3g}",
                ]
            )
    title = (
        f"Backend {kernels.backend()}, float64, one core, seed {seed}; least times, ms. Slower "
        f"than they are to be: {', '.join(missed) or 'none'}."
    )
    head = ["stragglers", "n", "s", "exact", "near-exact", "ms", "goal", "lstsq", "ms"]
    return markdown_table(title, head, rows)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=kernels.backends(), default=kernels.backend())
    parser.add_argument("--sizes", help="n/s, with commas between them (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a measurement, at least")
    given = parser.parse_args()
    sizes = list(GOALS)
    if given.sizes:
        sizes = [tuple(map(int, size.split("/"))) for size in given.sizes.split(",")]
    with kernels.use_backend(given.backend), one_blas_thread():
        print(compare(sizes, given.seed, given.seconds))


if __name__ == "__main__":
    main()
