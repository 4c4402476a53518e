"""Decoding vectors of codes by graphs: ``python benches/graphs.py``.

The table has median microseconds for ``code.decoding_vector(survivors)`` over many random
sets, and for ``numpy.linalg.lstsq`` on the rows of the same survivors, with a column for each
block. It also has the largest length of the vector over the shortest vector of equal residual, over
all sets that both decoded.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import fastgc
from fastgc._base.progress import markdown_table

SIZES = ((96, 6), (384, 6), (1536, 6), (1536, 4), (1536, 3), (6144, 6))
LOST = (0.05, 0.2, 0.5)
SETS, SOLVED = 200, 2  # sets for each row, and how many of them lstsq also solves


def row(n: int, degree: int, lost: float, solved: int) -> list[str]:
    """Return a row of the table."""
    blocks, rng = 2 * n // degree, np.random.default_rng(0)
    code = fastgc.GraphCode(n, blocks, degree=degree, wait=1)
    rows = np.zeros((n, code.blocks))
    rows[np.arange(n)[:, None], code.ends] = 1
    took, dense, longer = [], [], []
    code.decoding_vector(range(n))  # not timed: the first call prepares
    for i in range(SETS):
        survivors = np.flatnonzero(rng.random(n) >= lost)
        start = time.perf_counter()
        vector = code.decoding_vector(survivors)
        took.append(time.perf_counter() - start)
        if i < solved:
            start = time.perf_counter()
            shortest = np.linalg.lstsq(rows[survivors].T, np.ones(code.blocks))[0]
            dense.append(time.perf_counter() - start)
            np.testing.assert_allclose((vector - shortest) @ rows[survivors], 0, atol=1e-9)
            longer.append(float(np.linalg.norm(vector) / np.linalg.norm(shortest)))
    return [
        f"{n:,}",
        str(degree),
        f"{lost:.0%}",
        f"{1e6 * statistics.median(took):.0f}",
        f"{1e6 * statistics.median(dense):,.0f}" if dense else "–",
        f"{max(longer):.4f}" if longer else "–",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--solved", type=int, default=SOLVED, help="sets decoded densely, too")
    solved = parser.parse_args().solved
    head = ["workers", "degree", "lost", "µs", "lstsq, µs", "length / shortest"]
    table = [
        row(n, degree, lost, solved if n <= 1536 else 0) for n, degree in SIZES for lost in LOST
    ]
    print(markdown_table("Decoding vectors of codes by graphs", head, table))


if __name__ == "__main__":
    main()
