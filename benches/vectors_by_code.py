"""Decoding vectors of every code: ``python benches/vectors_by_code.py``.

The table has microseconds for ``code.decoding_vector(survivors)`` and for a prepared
``code.decoder()``, computed anew each time. Survivors are the messages with which rounds of random
order end. Times are the least of several passes over as many sets as fit into 0.2 s. Beside codes
in clusters stands the time of a transform there and back of n numbers.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from fastgc import InstabilityWarning, codes
from fastgc._base.progress import markdown_table
from fastgc.coding import scheme
from fastgc.coding.orders import random_arrivals

SIZES = ((80, 12), (1000, 100), (4096, 410))
PASSES, SETS, SECONDS = 5, 400, 0.2


def code_of(name: str, n: int, s: int) -> codes.Code | None:
    """Return a code with about the load that tolerates s stragglers; None if there is none."""
    load = {"lcc": 2 * n // (n - s) + 2}.get(name, s + 1)
    if name.startswith("lcc-mmc"):
        load = 8  # with s + 1 messages each, thousands would be needed
    by_load = ("bcc", "random", "uc-mmc", "uc-mmc-pg", "lcc", "lcc-mmc", "lcc-mmc-2")
    if name == "fractional":
        n -= n % (s + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InstabilityWarning)
            if name in by_load:
                return codes.make(f"{name}:load={load}", n)
            return codes.make(name, n, stragglers=s)
    except (TypeError, ValueError):
        return None


def least(call: Callable[[Any], Any], sets: list[Any]) -> float:
    """Return the seconds of a call in the fastest pass."""
    call(sets[0])
    start = time.perf_counter()
    call(sets[1])
    count = max(2, min(len(sets), int(SECONDS / (time.perf_counter() - start))))
    best, at = math.inf, 0
    for _ in range(PASSES):
        chosen = [sets[(at + i) % len(sets)] for i in range(count)]
        at += count
        start = time.perf_counter()
        for survivors in chosen:
            call(survivors)
        best = min(best, (time.perf_counter() - start) / count)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("codes", nargs="*", help="names (all)")
    parser.add_argument("--most", type=int, default=4096, help="workers of the largest code (4096)")
    given = parser.parse_args()
    scheme.SOLUTIONS_BYTES = 0  # otherwise repeated sets would be looked up
    rows = []
    for n, s in SIZES:
        for name in given.codes or codes.names():
            if n > given.most or (n > 1000 and name not in ("rs-clustered", "binary", "bcc")):
                continue
            code = code_of(name, n, s)
            if code is None:
                continue
            sets = [np.array(came) for came in islice(random_arrivals(code.scheme, SETS, 0), SETS)]
            decode = code.decoder()
            times = [least(code.decoding_vector, sets), least(decode, sets)]
            cells = [f"{1e6 * seconds:.1f}" for seconds in times]
            pair = ""
            if name == "rs-clustered":
                x = [np.random.default_rng(0).standard_normal(n)] * SETS
                pair = f"{1e6 * least(lambda x: np.fft.irfft(np.fft.rfft(x)), x):.1f}"
            rows.append([name, f"{code.n}/{s}", str(len(sets[0])), *cells, pair])
    head = ["code", "n/s", "messages", "decoding_vector, µs", "decoder, µs", "rfft + irfft, µs"]
    print(markdown_table("Decoding vectors, computed anew.", head, rows))


if __name__ == "__main__":
    main()
