"""Errors of Vandermonde solves, against many digits: ``python benches/vandermonde_orders.py``.

The table has, for each set of nodes, right-hand side and system, the largest relative error of a
number (in brackets: the largest error over the largest number) in the given order, in Leja's, and
in the order that ``order="auto"`` chooses, with the largest relative bound for the last.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import mpmath
import numpy as np
from numpy.typing import NDArray

from fastgc import vandermonde
from fastgc._base.progress import markdown_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles.vandermonde import truth

Numbers = NDArray[np.float64]


def cases(m: int) -> Iterator[tuple[str, Numbers, str, Numbers]]:
    """Yield names and arrays of nodes and right-hand sides."""
    i = np.arange(m)
    signs, ones = (-1.0) ** i, np.ones(m)
    noise = np.random.default_rng(0).standard_normal(m)
    for name, nodes in {
        "1 to m": i + 1.0,
        "1/(i+3)": 1 / (i + 3.0),
        "1/(i+3), rising": 1 / (i + 3.0)[::-1],
        "1/(i+2)": 1 / (i + 2.0),
        "even in [0, 1]": np.linspace(0, 1, m),
    }.items():
        for what, b in {"(-1)^i": signs, "1": ones, "random": noise}.items():
            yield name, nodes, what, b
    yield "even in [-1, 1]", np.linspace(-1, 1, m), "random", noise
    yield "Chebyshev's", np.cos(np.pi * (i + 0.5) / m), "random", noise


def order_errors(
    nodes: Numbers, b: Numbers, transpose: bool
) -> tuple[dict[str, tuple[float, float]], float]:
    """Return for each order the largest relative error, and over the largest number; the bound."""
    true = [z if abs(z) > 1e-300 else 0 for z in truth(nodes, b, transpose)]
    largest = max(abs(z) for z in true)
    found, limit = {}, 0.0
    for order in ("given", "leja", "auto"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            x, bound = vandermonde.solve(nodes, b, transpose, order=order, return_bound=True)
        with mpmath.workdps(60):
            errors = [abs(a - z) for a, z in zip(x.tolist(), true, strict=True)]
        relative = [
            float(e / abs(z)) if z else float("inf") if e else 0.0
            for e, z in zip(errors, true, strict=True)
        ]
        found[order] = max(relative), float(max(errors) / largest)
        with np.errstate(all="ignore"):
            limit = float(np.max(np.where(bound > 0, bound / np.abs(x), 0.0)))
    return found, limit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", type=int, default=60, help="nodes (60)")
    m = parser.parse_args().m
    rows = []
    for name, nodes, what, b in cases(m):
        for transpose in (False, True):
            found, bound = order_errors(nodes, b, transpose)
            cells = [f"{e:.0e} ({size:.0e})" for e, size in found.values()]
            rows.append([name, what, "V^T x" if transpose else "V x", *cells, f"{bound:.0e}"])
    head = ["nodes", "b", "system", "given order", "Leja", "auto", "bound"]
    print(markdown_table(f"{m} nodes.", head, rows))


if __name__ == "__main__":
    main()
