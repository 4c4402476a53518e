"""Every verb of a code with many workers: ``python benches/scale.py [names] [--sizes 1000,...]``.

Seconds of each verb the first time that it is called, for codes that tolerate few stragglers: what
is made and kept then counts. Each code and size has a process of its own, and each verb a limit,
beyond which nothing is said. "grows": the exponent by which times grew between the two largest
sizes that were timed, of those that take a millisecond or more. Memory: the most that the process
held, less what it held after its imports.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import signal
import subprocess
import sys
import time
import warnings
from typing import Any

NAMES = (
    "uncoded",
    "fractional",
    "binary",
    "cyclic",
    "rs",
    "lcc",
    "rs-clustered",
    "ye-abbe",
    "bcc",
    "uc-mmc",
    "partial-work",
    "reactive",
    "expander",
    "graph",
    "bgc",
    "brc",
)
SIZES = (1000, 10_000, 100_000)
STRAGGLERS, ELEMENTS, ROUNDS, LIMIT = 5, 4, 3, 10
VERBS = ("make", "decodable", "vector", "trust", "encode", "round", "simulate")


class TooLongError(Exception):
    """A verb took longer than its limit."""


def seconds(call: Any, limit: int) -> tuple[float | None, Any]:
    """Seconds of a call, and what it returns; None beyond the limit."""

    def stop(*_: Any) -> None:
        raise TooLongError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    start = time.perf_counter()
    try:
        found = call()
        return time.perf_counter() - start, found
    except TooLongError:
        return None, None
    finally:
        signal.alarm(0)


def measure(name: str, n: int, limit: int) -> dict[str, Any]:
    """What each verb of a code took, in this process."""
    import numpy as np

    import fastgc
    from fastgc import codes, delays, simulation

    warnings.simplefilter("ignore")
    fastgc.BinaryCode(4, stragglers=1).decoding_vector([0, 1, 3])  # what is imported with the first
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng, told = np.random.default_rng(0), {}

    def make() -> Any:
        load = {"lcc": ":load=4", "lcc-mmc": ":load=4"}.get(name)
        if load is not None:
            return codes.make(name + load, n)
        workers = n - n % (STRAGGLERS + 1) if name == "fractional" else n
        return codes.make(name, workers, stragglers=0 if name == "uncoded" else STRAGGLERS)

    told["make"], code = seconds(make, limit)
    if code is None:
        return told
    survivors = np.sort(rng.permutation(code.n)[: min(code.n, max(code.threshold, code.n - 5))])
    gradients = np.ones((code.k, ELEMENTS)) if code.k * ELEMENTS < 1 << 26 else None

    def one_round() -> Any:
        rnd = code.round(ELEMENTS)
        message = np.ones(code.message_size(ELEMENTS))
        for worker in rng.permutation(code.n).tolist():
            if rnd.receive(worker, message):
                return rnd.gradient()
        return None

    late = delays.Exponential(0.01)
    for verb, call in (
        ("decodable", lambda: code.decodable(survivors)),
        ("vector", lambda: code.decoding_vector(survivors)),
        ("trust", lambda: code.trust(survivors)),
        ("encode", lambda: code.encode(0, gradients[code.partitions(0)])),
        ("round", one_round),
        ("simulate", lambda: simulation.simulate(code, late, rounds=ROUNDS)),
    ):
        try:
            told[verb], _ = seconds(call, limit)
        except Exception as error:
            told[verb] = f"{type(error).__name__}: {error}"[:100]
    told["MB"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return told


def measured(name: str, n: int, limit: int) -> dict[str, Any]:
    """The same, of a process of its own."""
    command = [sys.executable, __file__, "--one", name, str(n), str(limit)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=8 * limit)
    except subprocess.TimeoutExpired:
        return {}
    if ran.returncode:
        return {"error": ran.stderr.strip().splitlines()[-1][:100]}
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def growth(rows: dict[int, dict[str, Any]], verb: str) -> str:
    """The exponent between the two largest sizes."""
    known = [(n, t) for n, row in rows.items() if isinstance(t := row.get(verb), float)]
    if len(known) < 2 or known[-1][1] < 1e-3:
        return ""
    (m, before), (n, after) = known[-2:]
    return f"{math.log(after / before) / math.log(n / m):.1f}"


def cell(told: float | str | None, limit: int) -> str:
    """What a table says of a time, of None beyond the limit, and of an error."""
    if told is None:
        return f"> {limit}"
    return "–" if isinstance(told, str) else f"{told:.2g}" if told < 100 else f"{told:.0f}"


def main() -> None:
    """Print the tables."""
    from fastgc.progress import markdown_table

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="?", default=",".join(NAMES))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds for each verb")
    given = parser.parse_args()
    table = []
    for name in given.names.split(","):
        rows = {n: measured(name, n, given.limit) for n in map(int, given.sizes.split(","))}
        for n, row in rows.items():
            if "error" in row:
                print(f"{name}, n = {n}: {row['error']}", file=sys.stderr)
            cells = [name, str(n)]
            for verb in VERBS:
                cells.append(cell(row.get(verb, ""), given.limit))
                if isinstance(row.get(verb), str):
                    print(f"{name}, n = {n}, {verb}: {row[verb]}", file=sys.stderr)
            cells.append(f"{row['MB']:.0f}" if "MB" in row else "–")
            table.append(cells)
        table.append([name, "grows", *(growth(rows, verb) for verb in VERBS), ""])
        print(f"{name}: done", file=sys.stderr)
    head = ["code", "n", *(f"{verb}, s" for verb in VERBS), "MB"]
    print(markdown_table("", head, table))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        name, n, limit = sys.argv[2:]
        print(json.dumps(measure(name, int(n), int(limit))))
    else:
        main()
