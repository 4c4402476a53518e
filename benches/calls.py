"""Time of each call that users make, beside a call of np.matmul on as many real rows.

Run as ``python benches/calls.py``, on an idle machine. Reed-Solomon codes, float64, C, one thread.
np.matmul is given computed coefficients, and an `out`. Calls take turns, and the median of each
counts. The time of `Round.receive` is that of a round, with `reset`, divided by its messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fastgc
from fastgc._base.progress import markdown_table
from fastgc.kernels import threads

SIZES = ((20, 4), (80, 12))
LENGTHS = (10, 1000)
TURNS, CALLS = 801, 20  # turns, and calls of each kind in a turn

Call = Callable[[], Any]


def calls(code: fastgc.ReedSolomon, p: int) -> Iterator[tuple[str, int, Call, int]]:
    """Yield name, rows combined, call, and the number of messages over which its time is divided.

    Rows have p elements.
    """
    rng, n, w = np.random.default_rng(0), code.n, code.load
    f = n - code.scheme.known_stragglers()
    survivors = np.sort(rng.permutation(n)[:f])
    every, gradient, vector = rng.standard_normal((n, p)), np.empty(p), np.empty(f, complex)
    messages = every[survivors]
    bound = code.bind(every, gradient)
    yield "decode(F, messages, out=)", f, lambda: code.decode(survivors, messages, out=gradient), 1
    yield "decode(F, messages)", f, lambda: code.decode(survivors, messages), 1
    listed = list(messages)
    yield "decode(F, list, out=)", f, lambda: code.decode(survivors, listed, out=gradient), 1
    yield "bind(messages)(F)", f, lambda: bound(survivors), 1
    if p == LENGTHS[0]:  # once: decoding vectors do not depend on p
        yield "decoding_vector(F, out=)", f, lambda: code.decoding_vector(survivors, out=vector), 1
        yield "decoding_vector(F)", f, lambda: code.decoding_vector(survivors), 1
    partials, message = rng.standard_normal((w, p)), np.empty(code.message_size(p))
    yield "encode(i, partials, out=)", w, lambda: code.encode(3, partials, out=message), 1
    yield "encode(i, partials)", w, lambda: code.encode(3, partials), 1
    apart = list(partials)
    yield "encode(i, list, out=)", w, lambda: code.encode(3, apart, out=message), 1
    yield "bind_encoder(i, partials)()", w, code.bind_encoder(3, partials, message), 1
    arriving, sent = code.round(p), list(zip(survivors.tolist(), list(messages), strict=True))

    def receive() -> None:
        arriving.reset()
        for worker, each in sent:
            arriving.receive(worker, each)

    yield "Round.receive(i, message)", 1, receive, f


def matmul(rows: int, p: int) -> Call:
    """Return the call that all others are compared with."""
    rng = np.random.default_rng(1)
    coef, matrix, out = rng.standard_normal(rows), rng.standard_normal((rows, p)), np.empty(p)
    return lambda: np.matmul(coef, matrix, out=out)


def medians(each: list[Call]) -> list[float]:
    """Return the median time of each call, in seconds."""
    times = np.empty((TURNS, len(each)))
    for turn in times:
        for at, call in enumerate(each):
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            turn[at] = (time.perf_counter() - start) / CALLS
    return np.median(times, axis=0).tolist()


def main() -> None:
    """Measure, and print a table."""
    threads.set_num_threads(1)
    head, lines = ["call"], {}
    for n, s in SIZES:
        code = fastgc.ReedSolomon(n, stragglers=s)
        for p in LENGTHS:
            head.append(f"{n}/{s}, p = {p:,}")
            names, rows, mine, shares = zip(*calls(code, p), strict=True)
            others = {count: matmul(count, p) for count in dict.fromkeys(rows)}
            found = medians([*mine, *others.values()])
            rivals = dict(zip(others, found[len(mine) :], strict=True))
            for name, count, seconds, share in zip(names, rows, found, shares, strict=False):
                own, over = 1e6 * seconds / share, 1e6 * (seconds / share - rivals[count])
                lines.setdefault(name, {})[head[-1]] = f"{own:.2f} µs; {over:+.2f} µs"
    body = [[name, *(cells.get(each, "–") for each in head[1:])] for name, cells in lines.items()]
    title = "Time of a call; and by how much it is longer than np.matmul's of as many rows."
    print(markdown_table(title, head, body).strip())


if __name__ == "__main__":
    main()
