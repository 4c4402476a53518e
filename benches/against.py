"""Whether this version is slower than another: ``python benches/against.py OTHER/bin/python``.

It makes a hundred calls as users make them, by names that both versions have. Each version runs in
its own process, which prepares its arrays from the same seeds. The two take turns at each call, so
that disturbances hit both. A turn is as many calls as take `TURN` seconds. The fastest turns of a
call are compared: their ratio is above 1 if this version is slower. Calls above `--limit` are
measured twice more, in new processes, because the place of memory changes the time of long vectors
by about ten percent between processes. The middle of the three ratios counts; the exit status is 1
if any is above the limit.

The other version is whatever that interpreter imports: for example, a wheel of an older revision by
``git worktree add ../old REVISION && python -m venv ../old/.venv && ../old/.venv/bin/pip install
"../old[train]"``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

TURN = 0.02  # seconds of one turn
TURNS = 15

# Preparation and server are texts, because the other version may not be able to import this file.
PREPARED = """
import time, warnings
import numpy as np, fastgc
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
CALLS = {}

def survivors(code, seed=1):
    order = np.random.default_rng(seed).permutation(code.n)
    return np.sort(order[:code.threshold])

def messages_of(code, p, dtype, sent, F):
    held = []
    for i in F.tolist():
        w = len(code.partitions(i))
        partials = rng.standard_normal((w, p)).astype(dtype)
        held.append(code.encode(i, partials, message_dtype=sent))
    return np.array(held)

def verbs(name, code, p, dtype="float64", sent=None):
    F = survivors(code)
    M = messages_of(code, p, dtype, sent, F)
    rows = list(M)
    out = np.empty(p, dtype)
    label = f"{name} p={p}" + ("" if dtype == "float64" else f" {dtype}")
    label += f" as {sent}" if sent else ""
    CALLS[f"decode stacked, out: {label}"] = lambda: code.decode(F, M, out)
    CALLS[f"decode list: {label}"] = lambda: code.decode(F, rows, p=p)
    whole = np.zeros((code.n, M.shape[1]), M.dtype)
    whole[F] = M
    bound = code.bind(whole, out)
    CALLS[f"bind: {label}"] = lambda: bound(F)
    w = len(code.partitions(0))
    partials = rng.standard_normal((w, p)).astype(dtype)
    message = code.encode(0, partials, message_dtype=sent)
    CALLS[f"encode, out: {label}"] = lambda: code.encode(0, partials, message, message_dtype=sent)
    if sent is None:
        encoder = code.bind_encoder(0, partials, message)
        CALLS[f"bind_encoder: {label}"] = encoder

def rounds(name, code, p):
    F = np.random.default_rng(2).permutation(code.n)[:code.threshold]
    M = messages_of(code, p, "float64", None, F)
    rnd = code.round(p)
    out = np.empty(p)
    pairs = list(zip(F.tolist(), list(M)))
    def one():
        for worker, message in pairs:
            if rnd.receive(worker, message):
                break
        rnd.gradient(out)
        rnd.reset()
    CALLS[f"round: {name} p={p}"] = one

def vectors(name, code):
    sets = [survivors(code, seed) for seed in range(32)]
    decoder = code.decoder()
    at = [0]
    def vector():
        at[0] += 1
        code.decoding_vector(sets[at[0] % 32])
    def prepared():
        at[0] += 1
        decoder(sets[at[0] % 32])
    CALLS[f"decoding_vector: {name}"] = vector
    CALLS[f"decoder: {name}"] = prepared
    masks = np.zeros((200, code.n), bool)
    for r in range(200):
        masks[r, survivors(code, r)] = True
    CALLS[f"decoding_vectors of 200 sets: {name}"] = lambda: code.decoding_vectors(masks)
    F = sets[0]
    CALLS[f"trust: {name}"] = lambda: code.trust(F)
    CALLS[f"decodable: {name}"] = lambda: code.decodable(F)

binary, rs = fastgc.BinaryCode(20, stragglers=4), fastgc.ReedSolomon(20, stragglers=4)
large = fastgc.ReedSolomon(80, stragglers=12)
clustered = fastgc.ReedSolomon(80, stragglers=12, clusters="auto")
huge = fastgc.ReedSolomon(256, stragglers=32)
fractional, uncoded = fastgc.FractionalRepetition(20, stragglers=4), fastgc.Uncoded(20)
cyclic = fastgc.CyclicRepetition(20, stragglers=4)
for name, code in {"binary": binary, "rs": rs, "fractional": fractional}.items():
    verbs(name, code, 100)
verbs("binary", binary, 100000)
verbs("rs", rs, 100000)
verbs("rs 80/12", large, 10000)
for dtype, sent in (("float32", None), ("float32", "float16")):
    verbs("rs", rs, 100, dtype, sent)
verbs("binary", binary, 10000, "float32", "float16")
for name, code in {"binary": binary, "rs": rs, "rs 80/12": large, "rs-clustered 80/12": clustered,
                   "rs 256/32": huge, "fractional": fractional, "cyclic": cyclic}.items():
    vectors(name, code)
for name, code in {"binary": binary, "rs 80/12": large, "fractional": fractional}.items():
    rounds(name, code, 1000)

from fastgc.engines import LocalCluster

def steps(name, code, p, **options):
    started, theta, out = [], np.ones(p), np.empty(p)
    def step():
        if not started:  # its processes are there once they are measured
            started.append(LocalCluster(code, list(np.ones(code.k)), np.multiply, p, **options))
        started[0].step(theta, out)
    CALLS[f"step of local processes: {name} p={p}"] = step

steps("rs 16/4", fastgc.ReedSolomon(16, stragglers=4), 10000)
steps("fractional 16/3", fastgc.FractionalRepetition(16, stragglers=3), 10000)
steps("rs 16/4 verified", fastgc.ReedSolomon(16, stragglers=4), 10000, verify=1)

from fastgc.training.optimizers import SGD, AMSGrad, Nesterov
for kind, options in ((SGD, {"momentum": 0.9}), (Nesterov, {}), (AMSGrad, {})):
    for p in (10, 100000):
        made, gradient = kind(1e-3, **options), 1e-3 * rng.standard_normal(p)
        made.reset(np.ones(p))
        CALLS[f"{kind.__name__} p={p}"] = lambda made=made, g=gradient: made.step(g)

from fastgc import vandermonde, interpolation
for m in (8, 64, 256):
    nodes = np.exp(2j * np.pi * np.arange(m) / m)
    b = rng.standard_normal(m) + 0j
    CALLS[f"vandermonde.solve m={m}"] = lambda nodes=nodes, b=b: vandermonde.solve(nodes, b)
    real, moments = interpolation.chebyshev(m), b.real.copy()
    CALLS[f"vandermonde.solve transposed, real m={m}"] = (
        lambda nodes=real, b=moments: vandermonde.solve(nodes, b, True))
CALLS["vandermonde.leja_order m=256"] = lambda: vandermonde.leja_order(nodes)

from fastgc.delays import Exponential
from fastgc.planning.simulation import simulate
for name, code in {"binary": binary, "rs 80/12": large, "fractional": fractional,
                   "graph": fastgc.codes.make("graph", 20, stragglers=4)}.items():
    CALLS[f"simulate 2000 rounds: {name}"] = lambda code=code: simulate(
        code, Exponential(1.0), cost=0.1, rounds=2000, seed=0)
"""

SERVE = """
import sys, json
print(json.dumps(list(CALLS)), flush=True)
for line in sys.stdin:
    name, seconds = json.loads(line)
    call = CALLS[name]
    call()
    count, taken = 1, 0.0
    while True:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        taken = time.perf_counter() - begin
        if taken >= seconds / 4 or count > 10**7:
            break
        count *= 2
    best = taken / count
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - begin) / count)
    print(best, flush=True)
"""


class Version:
    """One version, in a process that times calls on request."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "-c", PREPARED + SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(python).parent,  # in a checkout, the checkout would be imported instead
        )
        self.names: list[str] = json.loads(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args[0]} ended: see above")  # type: ignore[index]
        return line

    def time(self, name: str, seconds: float = TURN) -> float:
        """Return the least seconds of one call in a turn."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, seconds]) + "\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def compare(this: Version, other: Version, name: str, turns: int) -> tuple[float, float]:
    """Return the seconds of a call by either version: the median of its three fastest turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns):
        for at in (0, 1) if turn % 2 else (1, 0):
            times[at].append((this, other)[at].time(name))
    first, second = (median(sorted(each)[:3]) for each in times)
    return first, second


def measure(
    interpreters: tuple[str, str], only: str, names: list[str] | None, turns: int
) -> dict[str, tuple[float, float]]:
    """Compare calls of these names, or all whose names contain `only`, in two new processes."""
    if names == []:
        return {}
    versions = [Version(python) for python in interpreters]
    found = {}
    try:
        both = [name for name in versions[0].names if name in versions[1].names and only in name]
        for name in both if names is None else names:
            found[name] = pair = compare(*versions, name, turns)
            micro = "  ".join(f"{seconds * 1e6:12.2f} us" for seconds in pair)
            print(f"{pair[0] / pair[1]:6.3f}  {micro}  {name}", flush=True)
    finally:
        for version in versions:
            version.close()
    return found


def main(words: list[str] | None = None) -> int:
    """Compare, and print a table; return 1 if any call is slower."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", help="the interpreter that imports the other version")
    parser.add_argument("only", nargs="?", default="", help="calls whose names hold this text")
    parser.add_argument("--limit", type=float, default=1.05, help="ratio that counts as slower")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--json", type=Path, help="a file for the figures")
    given = parser.parse_args(words)
    interpreters = sys.executable, str(Path(given.other).absolute())
    found = measure(interpreters, given.only, None, given.turns)

    def slower() -> list[str]:
        return [name for name, pair in found.items() if pair[0] / pair[1] > given.limit]

    again = [found, *(measure(interpreters, "", slower(), given.turns) for _ in range(2))]
    for name in slower():
        pairs = sorted((each[name] for each in again), key=lambda pair: pair[0] / pair[1])
        found[name] = pairs[1]
    ratios = sorted(first / second for first, second in found.values())
    for name in slower():
        print(f"slower: {found[name][0] / found[name][1]:.3f} {name}")
    print(
        f"{len(found)} calls: median ratio {median(ratios):.3f}, worst {ratios[-1]:.3f}, "
        f"{len(slower())} slower by more than {given.limit - 1:.0%}"
    )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return bool(slower())


if __name__ == "__main__":
    sys.exit(main())
