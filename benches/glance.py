"""Eight calls beside the calls that a user would make without fastgc, and beside their limits.

Run as ``python benches/glance.py``, on an idle machine; ``--quick`` only shows that everything
runs. Calls of fastgc are as users make them, with the default checks. The other calls get their
matrices ready-made. All take turns, on all threads; for each, the best of its turns' medians
counts.

The limit is what no implementation can do without, or a plain call of as much work: reading and
writing the memory that is used, at the speed of a loop that only reads; as many multiplications by
BLAS; an FFT of n points and back, for the weights; a bare loop that wakes processes and copies as
many bytes; as many random numbers, drawn by NumPy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastgc
from fastgc._base.progress import markdown_table
from fastgc._base.text import duration
from fastgc.engines import LocalCluster
from fastgc.training.optimizers import AMSGrad

sys.path.insert(0, str(Path(__file__).parent))  # which benches/report.py leaves out
import no_loss
import test_simulate
from local_loop import Bare
from no_loss import CORES, Call, filled


class Row(NamedTuple):
    """A call, other calls that do the same, and its limit: a call, or bytes moved and held."""

    what: str
    mine: Call
    name: str
    others: list[Call]
    limit: str
    least: Call | tuple[int, int]


def moving(count: int, held: int, nbytes: int) -> tuple[str, tuple[int, int]]:
    """The limit of what reads or writes `count` vectors, of which it holds some in memory."""
    moved = count * nbytes
    return f"moving {moved / 1e6:g} MB", (moved, held * nbytes)


def vectors(n: int, s: int, neighbours: bool) -> Row:
    """Decoding vectors; the other call gets the survivors' rows of B."""
    code = fastgc.ReedSolomon(n, stragglers=s)
    order = code.scheme.rings()[0] if neighbours else np.random.default_rng(0).permutation(n)
    survivors = np.sort(order[s:])  # neighbours on the circle of roots, or any are silent
    rows, ones = code.matrix()[survivors].T, np.ones(code.k, complex)
    what = f"weights of {n - s} of {n} messages" + (", neighbours silent" if neighbours else "")
    x = np.exp(1j * np.arange(n))
    return Row(
        what,
        lambda: code.decoding_vector(survivors),
        "`np.linalg.lstsq`",
        [lambda: np.linalg.lstsq(rows, ones)],
        f"an FFT of {n} points and back",
        lambda: np.fft.ifft(np.fft.fft(x)),
    )


def decoding(p: int) -> Row:
    """A gradient from 8 messages: few, as in binary codes and codes with clusters."""
    calls, others = no_loss.decode(True, 8, p, np.float64)
    name = "the best of `np.matmul`, `np.dot`, `torch.mv`"
    return Row(
        f"a gradient of {p:,} from 8 messages", calls["decode"], name, others, *moving(10, 9, 8 * p)
    )


def encoding(p: int) -> Row:
    """A worker's message."""
    calls, others = no_loss.encode(True, 5, p, np.float64)
    what = f"a message of {p:,} from 5 partial gradients"
    return Row(what, calls["encode"], "the same", others, *moving(7, 6, 8 * p))


def systems(m: int, columns: int) -> Row:
    """Vandermonde systems on the circle."""
    nodes = np.exp(2j * np.pi * np.arange(m) / m)
    values = np.random.default_rng(0).standard_normal((m, columns)) + 0j
    square = np.vander(nodes)
    return Row(
        f"a Vandermonde system of {m}, {columns} right-hand sides",
        lambda: fastgc.vandermonde.solve(nodes, values),
        "`np.linalg.solve`",
        [lambda: np.linalg.solve(np.vander(nodes, increasing=True), values)],
        f"`np.matmul` of {m} × {m} and {m} × {columns}",
        lambda: np.matmul(square, values),
    )


def steps(p: int) -> Row:
    """A step of AMSGrad."""
    gradient = filled(1, p, np.float32)[0] * np.float32(1e-3)
    optimizer = AMSGrad(1e-3)
    optimizer.reset(np.ones(p, np.float32))
    others = no_loss.torch_steps("Adam", {"amsgrad": True}, gradient) if no_loss.torch else []
    name = "the best of `torch.optim.Adam`, fused or not"
    what = f"a step of AMSGrad, {p:,} floats"
    return Row(what, lambda: optimizer.step(gradient), name, others, *moving(7, 4, gradient.nbytes))


def simulations() -> Row:
    """Simulations of many rounds."""
    code = fastgc.ReedSolomon(80, stragglers=12)
    late, draw = test_simulate.LAWS["exponential"]
    count = 10_000

    def lines() -> Any:
        times = draw(np.random.default_rng(0), (count, 80))
        return test_simulate.ready("rs", code, times).mean()

    return Row(
        "10,000 simulated rounds of 80 workers",
        lambda: fastgc.simulation.simulate(code, late, cost=test_simulate.COST, rounds=count),
        "two lines of NumPy",
        [lines],
        f"{80 * count:,} uniform numbers",
        lambda: np.random.default_rng(0).random(80 * count),
    )


def ones(theta: Any, shard: Any, out: Any) -> None:
    """Write a gradient as fast as possible."""
    out.fill(1.0)


def elsewhere(theta: Any) -> Any:
    """Return the same gradient, for an executor."""
    return np.ones(theta.size)


def rounds(n: int, p: int, bare: Bare, stack: ExitStack) -> Row:
    """A round on local processes: parameters out, the sum of all gradients back."""
    code = fastgc.Uncoded(n)
    theta, total = np.zeros(p), np.empty(p)
    executor = ProcessPoolExecutor(n, get_context("spawn"))
    stack.callback(executor.shutdown)
    list(executor.map(elsewhere, [theta] * 4 * n))  # start all processes
    cluster = stack.enter_context(LocalCluster(code, [0] * n, ones, p))
    return Row(
        f"a round of {n} local processes, {p:,} parameters",
        lambda: cluster.step(theta, total),
        "`ProcessPoolExecutor.map`",
        [lambda: sum(executor.map(elsewhere, [theta] * n))],
        "a bare loop",
        lambda: bare.step(theta, total),
    )


def rows(quick: bool, stack: ExitStack) -> Iterator[Row]:
    """Yield all rows, or the same rows at small sizes."""
    n, p = (2, 100) if quick else (16, 10_000)
    bare = Bare(n, n, p)  # it forks, so it must come before threads start
    stack.callback(bare.close)
    yield vectors(20 if quick else 80, 4 if quick else 12, False)
    yield vectors(20 if quick else 1000, 4 if quick else 100, True)
    yield decoding(1000 if quick else 100_000)
    yield encoding(1000 if quick else 100_000)
    yield rounds(n, p, bare, stack)
    yield steps(1000 if quick else 1_000_000)
    yield systems(8 if quick else 64, 16)
    yield simulations()


def main(words: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all runs")
    given = parser.parse_args(words)
    body = []
    with ExitStack() as stack:
        for row in rows(given.quick, stack):
            if not row.others:
                continue
            calls = [row.mine, *row.others, *([row.least] if callable(row.least) else [])]
            mine, *times = no_loss.race(calls, 2 if given.quick else 5)
            best = min(times[: len(row.others)])
            least = times[-1]
            if isinstance(row.least, tuple):
                moved, held = row.least
                least = moved / no_loss.bandwidth(held, CORES)
            cells = [row.name, duration(best), f"{best / mine:.1f}", row.limit, duration(least)]
            body.append([row.what, duration(mine), *cells, f"{mine / least:.2g}"])
    head = ["", "fastgc", "instead", "takes", "times as long", "limit", "takes", "limits"]
    print(markdown_table("", head, body).strip())


if __name__ == "__main__":
    main()
