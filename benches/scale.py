"""Verbs and commands with many workers: ``python benches/scale.py [names] [--sizes 1000,...]``.

The first table has the seconds of each verb's first call, including everything that the call makes
and keeps, for codes that tolerate few stragglers. Each code and size has its own process, and each
verb has a limit, beyond which no time is given. "grows" is the exponent of n by which times grew
between the two largest sizes, for times of a millisecond or more. Memory is the most that the
process held, less what it held after its imports. After a size at which a code was not made in
time, larger sizes are not tried.

The second table has seconds and memory of each command, as users call it, for its whole process. A
command that exceeds its limit is ended; the cell gives the progress that it had shown.
``--plot docs/scale.png`` draws stored times.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAMES = (
    "uncoded fractional binary cyclic rs lcc rs-clustered bcc uc-mmc partial-work reactive graph"
)
SIZES = (10, 100, 1000, 10_000, 100_000, 1_000_000)
MILLION = "uncoded", "fractional", "binary", "rs"  # others are tried with up to 100,000 workers
STRAGGLERS, ELEMENTS, ROUNDS, LIMIT = 5, 4, 3, 10
VERBS = (
    "make, matrix row, decodable, vector, residual, trust, encode, bind encoder, decode, bind, "
    "bound call, round, simulate"
)
SHOWN = "make", "vector", "trust", "decode", "bound call", "round"  # by --plot
COMMANDS = (
    "codes rs",
    "codes binary",
    "codes cyclic",
    "codes partial-work:load=6",
    "codes lcc:load=4",
    "codes graph",
    "simulate rs",
    "simulate binary",
    "plan rs binary",
    "stability rs",
    "train rs -k 1000 --engine simulated --rounds 3",
    "sequential m-sgc binary",
)
COMMAND_SIZES, COMMAND_LIMIT = (1000, 10_000, 100_000), 20


class TooLongError(Exception):
    """A verb took longer than its limit."""


def seconds(call: Any, limit: int) -> tuple[float | None, Any]:
    """Return the seconds of a call and its result, or None and None beyond the limit.

    If NumPy calls Python, it may raise an error of its own in place of the alarm's. Python drops
    what a finalizer raises. So any error after the alarm counts as the alarm, which repeats.
    """
    over = False

    def stop(*_: Any) -> None:
        nonlocal over
        over = True
        raise TooLongError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit, 1.0)
    start = time.perf_counter()
    try:
        found = call()
        return time.perf_counter() - start, found
    except Exception:
        if not over:
            raise
        return None, None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def measure(name: str, n: int, limit: int) -> dict[str, Any]:
    """Measure each verb of a code in this process."""
    import numpy as np

    import fastgc
    from fastgc import codes, delays, simulation

    warnings.simplefilter("ignore")
    fastgc.BinaryCode(4, stragglers=1).decoding_vector([0, 1, 3])  # completes the imports
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng, told = np.random.default_rng(0), {}

    def make() -> Any:
        if load := {"lcc": 4, "bcc": min(n, 20)}.get(name):  # enough for bcc's batches
            return codes.make(f"{name}:load={load}", n)
        workers = n - n % (STRAGGLERS + 1) if name == "fractional" else n
        return codes.make(name, workers, stragglers=0 if name == "uncoded" else STRAGGLERS)

    told["make"], code = seconds(make, limit)
    if code is None:
        return told
    scheme = code.scheme
    workers = code.n if scheme.awaited is None else max(scheme.awaited, code.n - STRAGGLERS)
    survivors = scheme.messages.of(rng.permutation(code.n)[:workers])
    counts = scheme.messages.counts
    gradients = np.ones((code.k, ELEMENTS)) if code.k * ELEMENTS < 1 << 26 else None
    held = gradients[code.partitions(0, 0)]
    messages = np.ones((sum(counts), code.message_size(ELEMENTS)))
    bound: list[Any] = []

    def one_round() -> Any:
        rnd = code.round(ELEMENTS)
        message = np.ones(code.message_size(ELEMENTS))
        for worker in rng.permutation(code.n).tolist():
            for index in range(counts[worker]):
                if rnd.receive(worker, message, index):
                    return rnd.gradient()
        return None

    late = delays.Exponential(0.01)
    for verb, call in (
        ("matrix row", lambda: (code.partitions(0, 0), code.coefficients(0, 0))),
        ("decodable", lambda: code.decodable(survivors)),
        ("vector", lambda: code.decoding_vector(survivors)),
        ("residual", lambda: code.residual(survivors)),
        ("trust", lambda: code.trust(survivors)),
        ("encode", lambda: code.encode(0, held)),
        ("bind encoder", lambda: code.bind_encoder(0, held)),
        ("decode", lambda: code.decode(survivors, messages[survivors], p=ELEMENTS)),
        ("bind", lambda: bound.append(code.bind(messages, p=ELEMENTS))),
        ("bound call", lambda: bound[0](survivors)),
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
    """Measure each verb of a code in a new process."""
    command = [sys.executable, __file__, "--one", name, str(n), str(limit)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=8 * limit)
    except subprocess.TimeoutExpired:
        return {}
    if ran.returncode:
        return {"error": ran.stderr.strip().splitlines()[-1][:100]}
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def commanded(command: str, n: int, limit: int) -> tuple[float, float, str]:
    """Return a command's seconds (Inf if it was ended, NaN if it failed), MB, and last progress."""
    words = [sys.executable, "-m", "fastgc", *command.split(), "-n", str(n)]
    words += [] if command.startswith("sequential") else ["-s", str(STRAGGLERS)]
    with tempfile.TemporaryFile("w+") as said:
        start = time.perf_counter()
        ran = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said)
        signal.signal(signal.SIGALRM, lambda *_: ran.kill())
        signal.alarm(limit)
        _, status, used = os.wait4(ran.pid, 0)
        signal.alarm(0)
        taken = time.perf_counter() - start
        said.seek(0)
        lines = [line for line in said.read().splitlines() if "%" in line]
    ran.returncode = os.waitstatus_to_exitcode(status)
    last = lines[-1] if lines else ""
    if ran.returncode == -signal.SIGKILL:
        return math.inf, used.ru_maxrss / 1024, last
    return taken if ran.returncode == 0 else math.nan, used.ru_maxrss / 1024, last


def commands(names: Sequence[str], sizes: Sequence[int], limit: int) -> list[list[str]]:
    """Return a row for each command."""
    table = []
    for name in names:
        cells, rows, memory = [f"`fastgc {name}`"], {}, 0.0
        for n in sizes:
            taken, held, last = commanded(name, n, limit)
            memory = max(memory, held)
            if math.isinf(taken):
                cells.append(f"> {limit} ({last})" if last else f"> {limit}")
                break
            cells.append("–" if math.isnan(taken) else cell(taken, limit))
            rows[n] = {"": taken}
        cells += [""] * (1 + len(sizes) - len(cells))
        table.append([*cells, growth(rows, ""), f"{memory:.0f}"])
        print(f"{name}: done", file=sys.stderr)
    return table


def growth(rows: dict[int, dict[str, Any]], verb: str) -> str:
    """Return the exponent of n between the two largest sizes."""
    known = [(n, t) for n, row in rows.items() if isinstance(t := row.get(verb), float)]
    if len(known) < 2 or known[-1][1] < 1e-3:
        return ""
    (m, before), (n, after) = known[-2:]
    return f"{math.log(after / before) / math.log(n / m):.1f}"


def cell(told: float | str | None, limit: int) -> str:
    """Write a time for a table; None is beyond the limit, and a text is an error."""
    if told is None:
        return f"> {limit}"
    return "–" if isinstance(told, str) else f"{told:.2g}" if told < 100 else f"{told:.0f}"


def main() -> None:
    """Print the tables."""
    from fastgc._base.progress import markdown_table

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="?", default=",".join(NAMES.split()))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds for each verb")
    parser.add_argument("--commands", default=",".join(COMMANDS), help="none with a dash")
    parser.add_argument("--plot", type=Path, help="only draw what is stored to this file")
    parser.add_argument("--command-limit", type=int, default=COMMAND_LIMIT, help="seconds for each")
    given = parser.parse_args()
    if given.plot:
        return draw(given.plot)
    verbs(given.names, [int(n) for n in given.sizes.split(",")], given.limit)
    if given.commands != "-":
        sizes = [n for n in COMMAND_SIZES if n <= max(map(int, given.sizes.split(",")))]
        table = commands(given.commands.split(","), sizes, given.command_limit)
        head = ["command, -s 5", *(f"n = {n}, s" for n in sizes), "grows", "MB"]
        print(markdown_table("", head, table))


def draw(path: Path) -> None:
    """Draw the stored seconds of some verbs against the number of workers."""
    import matplotlib.pyplot as plt

    plt.rcParams["font.size"] = 8
    store = Path(__file__).parent / "results" / "every-verb-of-codes-with-many-workers.json"
    _, (head, _, *rows), _ = json.loads(store.read_text())["found"]
    figure, axes = plt.subplots(2, 3, figsize=(9, 5.4), sharex=True, layout="constrained")
    for verb, axis in zip(SHOWN, axes.flat, strict=True):
        for at, name in enumerate(NAMES.split()):
            mine = [row for row in rows if row[0] == name and row[1] != "grows"]
            known = [(int(row[1]), row[head.index(f"{verb}, s")]) for row in mine]
            points = [(n, float(text)) for n, text in known if text[:1].isdigit()]
            axis.loglog(*zip(*points, strict=True), "osv^"[at % 4] + "-", ms=3, lw=1, label=name)
        axis.set(title=f"{verb}, s", xlabel="workers" if axis in axes[1] else "")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(path)


def verbs(names: str, sizes: Sequence[int], limit: int) -> None:
    """Print the table of verbs."""
    from fastgc._base.progress import markdown_table

    if names == "-":
        return
    table = []
    for name in names.split(","):
        rows: dict[int, dict[str, Any]] = {}
        for n in sizes:
            if n > 100_000 and name not in MILLION:
                break
            rows[n] = row = measured(name, n, limit)
            if "error" in row:
                print(f"{name}, n = {n}: {row['error']}", file=sys.stderr)
            cells = [name, str(n)]
            for verb in VERBS.split(", "):
                cells.append(cell(row.get(verb, ""), limit))
                if isinstance(row.get(verb), str):
                    print(f"{name}, n = {n}, {verb}: {row[verb]}", file=sys.stderr)
            cells.append(f"{row['MB']:.0f}" if "MB" in row else "–")
            table.append(cells)
            if not isinstance(row.get("make"), float):
                break
        table.append([name, "grows", *(growth(rows, verb) for verb in VERBS.split(", ")), ""])
        print(f"{name}: done", file=sys.stderr)
    head = ["code", "n", *(f"{verb}, s" for verb in VERBS.split(", ")), "MB"]
    title = (
        f"Seconds; {STRAGGLERS} stragglers; messages of {ELEMENTS} numbers; a round receives all "
        f"messages, and {ROUNDS} are simulated."
    )
    print(markdown_table(title, head, table), end="\n\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        name, n, limit = sys.argv[2:]
        print(json.dumps(measure(name, int(n), int(limit))))
    else:
        main()
