"""Near-exact decoding: errors and times of default vectors, beside exact ones and a library's.

``python benches/near_exact.py`` prints a table in Markdown for codes of n workers and s stragglers
in several patterns on the circle of the roots. It has the errors of gradients decoded in float64 by
the exact vector, by ``code.decoding_vector(survivors)``, and by a vector of ``np.linalg.lstsq``,
and the times of the latter two on one core. ``--sizes 256/32`` chooses codes.
"""

import argparse
import math
import statistics
from functools import partial

import numpy as np
from measure import times
from threadpoolctl import threadpool_limits

import fastgc
from fastgc._base.progress import markdown_table
from fastgc.stability.precision import Experiment

UNIT = 2.0**-53
SIZES = (256, 32), (1000, 100), (2048, 205), (4096, 410), (1024, 512), (4096, 1024)


def patterns(n, s, rng):
    """Return places of the stragglers on the circle, by the name of the pattern."""
    spread = np.arange(s)
    found = {
        "neighbours": spread,
        "random": rng.permutation(n)[:s],
        "two arcs": np.r_[spread[: s // 2], n // 2 + spread[: s - s // 2]],
        "every few, over half": spread * math.ceil(n / (2 * s)) % n,
        "spread over 3/4": spread * 3 * n // (4 * s),
    }
    return {name: turns for name, turns in found.items() if np.unique(turns).size == s}


def exact_error(n, turns):
    """Return the decimal logarithm of the exact vector's error, which may overflow a double."""
    logs = np.zeros(n)
    logs[1:] = np.log10(2 * np.sin(np.pi / n * np.arange(1, n)))
    total = np.array([logs[(i - turns) % n].sum() for i in range(n)])
    most = np.delete(total, turns).max()
    size = np.linalg.norm(10.0 ** (np.delete(total, turns) - most)) / n
    return most + math.log10(2 * UNIT * size * math.sqrt(n / (turns.size + 1)))


def least_squares(turns, n, c):
    """Return a library's vector: a truncated solution of the complex equations."""
    powers = np.multiply.outer(turns, np.arange(1, c + 1)) % n
    roots = np.exp(2j * np.pi / n * np.arange(n))
    x = np.zeros(n, dtype=np.complex128)
    x[0] = 1 / n
    x[1 : c + 1] = np.linalg.lstsq(roots[powers], np.full(turns.size, -1 / n), rcond=1e-15)[0]
    return np.fft.ifft(x, norm="forward")


def measured(function, seconds):
    """Return a function's result, and its median time in milliseconds."""
    repeats = int(min(2000, max(3, seconds / min(times(function, 2)))))
    return function(), 1e3 * statistics.median(times(function, repeats))


def compare(sizes, seed, seconds):
    """Return a table of codes and patterns."""
    rng, rows = np.random.default_rng(seed), []
    for n, s in sizes:
        code = fastgc.ReedSolomon(n, stragglers=s)
        experiment, circle = Experiment(code, p=8, seed=seed), code.scheme.rings()[0]
        places = np.argsort(circle)  # places of workers 0, 1, 2, ... on the circle
        for name, turns in patterns(n, s, rng).items():
            survivors = np.setdiff1d(np.arange(n), circle[turns])
            vector, ms = measured(partial(code.decoding_vector, survivors), seconds)
            other, others_ms = measured(partial(least_squares, turns, n, s), seconds)
            other = other[places[survivors]]
            rows.append(
                [
                    name,
                    str(n),
                    str(s),
                    f"1e{round(exact_error(n, turns)):+d}",
                    f"{experiment.error(survivors, vector).relative:.1e}",
                    f"{ms:.3g}",
                    f"{experiment.error(survivors, other).relative:.1e}",
                    f"{others_ms:.3g}",
                ]
            )
    title = f"float64, one core, seed {seed}; median times, ms."
    head = ["stragglers", "n", "s", "exact", "fastgc", "ms", "lstsq", "ms"]
    return markdown_table(title, head, rows)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", help="n/s, with commas between them (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a measurement, at least")
    given = parser.parse_args()
    sizes = SIZES
    if given.sizes:
        sizes = [tuple(map(int, size.split("/"))) for size in given.sizes.split(",")]
    with threadpool_limits(1, "blas"):
        print(compare(sizes, given.seed, given.seconds))


if __name__ == "__main__":
    main()
