"""Whether this version is slower than another: ``python benches/against.py [REVISION]``.

It makes a hundred calls as users make them, or the most used ones with ``--thirty``, as far as the
other version has them. With ``--table`` it makes calls that have a goal, and NumPy's that measure
it. REVISION is a tag or a commit. By default it is the last release: the newest tag ``v*`` before
this commit or, if there is none, the commit that gave this version its number. It is built once,
into ``build/against``. This version is the one that this interpreter imports; the other runs with
the same packages.

Each version has its own process, which prepares its arrays from the same seeds. The two take turns
at each call, so that disturbances hit both. A turn is as many calls as take `TURN` seconds. The
fastest turns of a call are compared: their ratio is above 1 if this version is slower. Calls above
``--limit`` are measured twice more, in new processes, because the place of memory changes the time
of long vectors between processes, in some to twice. The least times of either version then count;
the exit status is 1 if any ratio is above the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
TURN = 0.02  # seconds of one turn
TURNS = 15

Calls = Iterator[tuple[str, Callable[[], object]]]


def made(name: str) -> Any:
    """Make the code "rs 80/12/40" of 80 workers, 12 stragglers, and 40 partitions or else 80."""
    import fastgc

    kind, n, s, *k = name.replace("/", " ").split()
    code: Any = fastgc.codes.make(kind, int(n), int(k[0]) if k else None, int(s))
    if cache := getattr(code.scheme, "cache", None):  # older versions keep vectors of such sets
        cache.nbytes = 0
    return code


def survivors(code: Any, seed: int = 1) -> Any:
    return np.sort(np.random.default_rng(seed).permutation(code.n)[: code.threshold])


def partial_gradients(code: Any, worker: int, p: int, dtype: str) -> Any:
    rng, load = np.random.default_rng(worker), len(code.partitions(worker))
    return rng.standard_normal((load, p)).astype(dtype)


def messages(code: Any, p: int, dtype: str, sent: str | None, workers: Any) -> Any:
    return np.array(
        [
            code.encode(i, partial_gradients(code, i, p, dtype), message_dtype=sent)
            for i in workers.tolist()
        ]
    )


def verbs(name: str, p: int, dtype: str = "float64", sent: str | None = None) -> Calls:
    code = made(name)
    F, out = survivors(code), np.empty(p, dtype)
    M = messages(code, p, dtype, sent, F)
    rows, whole = list(M), np.zeros((code.n, M.shape[1]), M.dtype)
    whole[F] = M
    label = f"{name} p={p}{'' if dtype == 'float64' else f' {dtype}'}{f' as {sent}' * bool(sent)}"
    yield f"decode stacked, out: {label}", lambda: code.decode(F, M, out)
    yield f"decode list: {label}", lambda: code.decode(F, rows, p=p)
    bound = code.bind(whole, out)
    yield f"bind: {label}", lambda: bound(F)
    held = partial_gradients(code, 0, p, dtype)
    message = code.encode(0, held, message_dtype=sent)
    yield f"encode, out: {label}", lambda: code.encode(0, held, message, message_dtype=sent)
    if sent is None:
        yield f"bind_encoder: {label}", code.bind_encoder(0, held, message)


def rounds(name: str, p: int, more: bool = False) -> Calls:
    code, out = made(name), np.empty(p)
    F = np.random.default_rng(2).permutation(code.n)[: code.threshold]
    pairs = list(zip(F.tolist(), messages(code, p, "float64", None, F), strict=True))
    rnd = code.round(p)

    def one(then: Callable[[], object] = lambda: None) -> None:
        for worker, message in pairs:
            if rnd.receive(worker, message):
                break
        rnd.gradient(out)
        then()
        rnd.reset()

    yield f"round: {name} p={p}", one
    if not more:
        return
    yield f"round and its trust: {name} p={p}", lambda: one(rnd.trust)
    rows = [message for _, message in pairs]
    yield f"decode the same: {name} p={p}", lambda: code.decode(F, rows, out)
    encoder, held = code.encoder(0, p), partial_gradients(code, 0, p, "float64")

    def stream() -> object:
        encoder.reset()
        for j, each in zip(code.partitions(0).tolist(), held, strict=True):
            encoder.add(j, each)
        return encoder.message(), encoder.energy

    yield f"stream a message and its energy: {name} p={p}", stream
    message = code.encode(0, held)
    yield f"encode the same: {name} p={p}", lambda: code.encode(0, held, message)


def in_turn(call: Callable[[Any], object], sets: Sequence[Any]) -> Callable[[], object]:
    """Return a function that makes the call with one set after the other."""
    at = -1

    def one() -> object:
        nonlocal at
        at = (at + 1) % len(sets)
        return call(sets[at])

    return one


def vector(name: str, method: str = "auto") -> Calls:
    code = made(name)
    sets = [survivors(code, seed) for seed in range(8)]
    call = partial(code.decoding_vector, method=method)
    yield f"decoding_vector{f' by {method}' * (method != 'auto')}: {name}", in_turn(call, sets)


def transforms(n: int) -> Calls:
    x = np.ones(n, complex)
    yield f"np.fft of {n} and back", lambda: np.fft.ifft(np.fft.fft(x))


def sums(f: int, p: int) -> Calls:
    import fastgc

    rows, out, F, ones = np.ones((f, p)), np.empty(p), np.arange(f), np.ones(f)
    bound = fastgc.Uncoded(f).bind(rows, out)
    yield f"bind: {f} x {p}", lambda: bound(F)
    yield f"np.matmul: {f} x {p}", lambda: np.matmul(ones, rows, out=out)


def neighbours(name: str) -> Calls:
    code = made(name)
    F = np.sort(code.scheme.rings()[0][code.n - code.threshold :])
    yield f"decoding_vector, neighbours silent: {name}", lambda: code.decoding_vector(F)


def worst(name: str) -> Calls:
    """The set that takes longest, of 1,000 or those tried in ten seconds; LAPACK's QR beside it."""
    code, began, found = made(name), time.perf_counter(), list[Any]()
    circle, s = code.scheme.rings()[0], code.n - code.threshold
    while len(found) < 1000 and time.perf_counter() < began + 10:
        rng = np.random.default_rng(len(found))
        arcs = np.r_[: s // 2, code.n // 2 : code.n // 2 + s - s // 2]
        kinds = rng.permutation(code.n)[:s], arcs, np.flatnonzero(np.arange(code.n) % 3 < 2)[:s]
        F = np.delete(circle, (kinds[len(found) % 3] + rng.integers(code.n)) % code.n)
        found.append((least(partial(code.decoding_vector, F), 0.0), len(found), F))
    most = [F for *_, F in sorted(found)[-5:]]
    slow = max(most, key=lambda F: least(partial(code.decoding_vector, F), TURN))
    yield f"decoding_vector, worst of 1,000 sets: {name}", lambda: code.decoding_vector(slow)
    square = np.random.default_rng(0).standard_normal((2 * s, s)) + 0j
    yield f"np.linalg.qr of {2 * s} x {s}, complex", lambda: np.linalg.qr(square, mode="r")


def vectors(name: str) -> Calls:
    yield from vector(name)
    code = made(name)
    sets = [survivors(code, seed) for seed in range(32)]
    yield f"decoder: {name}", in_turn(code.decoder(), sets)
    masks = np.zeros((200, code.n), bool)
    for r in range(200):
        masks[r, survivors(code, r)] = True
    yield f"decoding_vectors of 200 sets: {name}", lambda: code.decoding_vectors(masks)
    yield f"trust: {name}", lambda: code.trust(sets[0])
    yield f"decodable: {name}", lambda: code.decodable(sets[0])


def steps(name: str, p: int, **options: Any) -> Calls:
    from fastgc.engines import LocalCluster

    code, started, theta, out = made(name), list[Any](), np.ones(p), np.empty(p)

    def step() -> None:
        if not started:  # its processes are there once they are measured
            started.append(LocalCluster(code, list(np.ones(code.k)), np.multiply, p, **options))
        started[0].step(theta, out)

    verified = " verified" * bool(options)
    yield f"step of local processes: {name}{verified} p={p}", step


def optimizer(name: str, p: int, **options: Any) -> Calls:
    from fastgc.training import optimizers

    step, gradient = getattr(optimizers, name)(1e-3, **options), np.full(p, 1e-3)
    step.reset(np.ones(p))
    yield f"{name} p={p}", lambda: step.step(gradient)


def systems(m: int, columns: int = 1, real: bool = False) -> Calls:
    from fastgc import interpolation, vandermonde

    nodes = interpolation.chebyshev(m) if real else np.exp(2j * np.pi * np.arange(m) / m)
    b = np.squeeze(np.random.default_rng(0).random((m, columns)) + (0 if real else 0j))
    label = f"m={m}, {columns}{', transposed, real' * real}"
    yield f"vandermonde.solve {label}", lambda: vandermonde.solve(nodes, b, real)


def orders(m: int) -> Calls:
    from fastgc import vandermonde

    nodes = np.exp(2j * np.pi * np.arange(m) / m)
    yield f"vandermonde.leja_order m={m}", lambda: vandermonde.leja_order(nodes)


def simulations(name: str) -> Calls:
    from fastgc import delays
    from fastgc.planning.simulation import simulate

    code, late = made(name), delays.Exponential(1.0)
    yield (
        f"simulate 2000 rounds: {name}",
        lambda: simulate(code, late, cost=0.1, rounds=2000, seed=0),
    )


# Calls of users' loops and of README's table; what once became slower unseen.
THIRTY: tuple[tuple[Any, ...], ...] = (
    (verbs, "rs 20/4", 100),
    (verbs, "binary 20/4", 100_000),
    (verbs, "rs 20/4", 100_000, "float32"),
    (vectors, "rs 80/12"),
    (vector, "rs 256/32"),
    (vector, "rs 1000/100"),
    (neighbours, "rs 1000/100"),
    (vector, "rs 4096/1024"),
    (rounds, "rs 80/12", 1000),
    (rounds, "binary 20/4", 1000),
    (optimizer, "AMSGrad", 100_000),
    (systems, 64, 16),
    (systems, 1022),
    (simulations, "rs 80/12"),
)
TABLE: tuple[tuple[Any, ...], ...] = (
    *((worst, name) for name in ("rs 256/128", "rs 1000/100", "rs 1000/102/300", "rs 1024/512")),
    *((vector, f"rs {n}", by) for n in ("4096/1024", "16384/4096") for by in ("auto", "lookup")),
    (vector, "rs:root=1 1048576/12"),
    (transforms, 1 << 20),
    *((sums, f, p) for f, p in ((16, 10_000), (16, 100_000), (16, 10**6), (68, 10**6))),
    *((rounds, f"{name} 20/4", p, True) for name in ("rs", "binary") for p in (1000, 100_000)),
)
REST: tuple[tuple[Any, ...], ...] = (
    *((verbs, name, 100) for name in ("binary 20/4", "fractional 20/4")),
    (verbs, "rs 20/4", 100_000),
    (verbs, "rs 80/12", 10_000),
    *((verbs, "rs 20/4", 100, "float32", sent) for sent in (None, "float16")),
    (verbs, "binary 20/4", 10_000, "float32", "float16"),
    *((vectors, f"{name} 20/4") for name in ("binary", "rs", "fractional", "cyclic")),
    *((vectors, name) for name in ("rs-clustered 80/12", "rs 256/32")),
    (rounds, "fractional 20/4", 1000),
    (steps, "rs 16/4", 10_000),
    (steps, "fractional 16/3", 10_000),
    (steps, "rs 16/4", 10_000, {"verify": 1}),
    *((optimizer, "SGD", p, {"momentum": 0.9}) for p in (10, 100_000)),
    *((optimizer, "Nesterov", p) for p in (10, 100_000)),
    (optimizer, "AMSGrad", 10),
    *((systems, m, 1, real) for m in (8, 64, 256) for real in (False, True)),
    (orders, 256),
    *((simulations, name) for name in ("binary 20/4", "fractional 20/4", "graph 20/4")),
)


def serve(kind: str, folder: str) -> None:
    """Tell the names of calls; then time each that is asked for."""
    import fastgc

    warnings.simplefilter("ignore")
    if folder and not Path(fastgc.__file__).is_relative_to(folder):
        raise SystemExit(f"{fastgc.__file__} is imported, not the version in {folder}")
    calls = dict[str, Callable[[], object]]()
    for make, *given in {"thirty": THIRTY, "table": TABLE}.get(kind, (*THIRTY, *REST)):
        options = given.pop() if isinstance(given[-1], dict) else {}
        try:
            calls.update(make(*given, **options))
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            if not folder:  # this version has everything
                raise
            print(f"not in the other version: {make.__name__} {given}: {error}", file=sys.stderr)
    print(json.dumps(list(calls)), flush=True)
    for line in sys.stdin:
        name, seconds = json.loads(line)
        print(least(calls[name], seconds), flush=True)


def least(call: Callable[[], object], seconds: float) -> float:
    """Return the least seconds of one call in a turn."""

    def taken(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return time.perf_counter() - begin

    call()
    count = 1
    while (found := taken(count)) < seconds / 4 and count < 10**7:
        count *= 2
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        found = min(found, taken(count))
    return found / count


def git(*words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True).strip()


def last_release() -> str:
    """Return the newest tag before this commit, or the commit of this version's number."""
    tags = git("tag", "--list", "v*", "--merged", "HEAD^", "--sort=-creatordate").split()
    numbered = "-G^__version__", "HEAD^", "--", "fastgc/__init__.py"
    return tags[0] if tags else git("log", "-1", "--format=%h", *numbered)


def built(revision: str) -> Path:
    """Return the folder with that version's package, which is built if it is not there."""
    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}")
    folder = ROOT / "build" / "against" / commit
    if not folder.exists():
        part = folder.with_suffix(".part")
        rmtree(part, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*pip, part, f"git+file://{ROOT}@{commit}"], check=True)
        part.rename(folder)
    return folder


class Version:
    """One version, in a process that times calls on request."""

    def __init__(self, kind: str, folder: Path | str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", kind, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(folder)},
        )
        self.names: list[str] = self._asked()

    def _asked(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a version ended: see above")
        return json.loads(line)

    def time(self, name: str, seconds: float = TURN) -> float:
        """Return the least seconds of one call in a turn."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, seconds]) + "\n")
        self._process.stdin.flush()
        return float(self._asked())

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def compare(versions: Sequence[Version], name: str, turns: int) -> tuple[float, float, float]:
    """Return the ratio of a call's seconds, and these: medians of the three fastest turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns):
        for at in (0, 1) if turn % 2 else (1, 0):
            times[at].append(versions[at].time(name))
    first, second = (median(sorted(each)[:3]) for each in times)
    return first / second, first, second


def measure(kind: str, folder: Path, chosen: Callable[[str], bool], turns: int) -> Any:
    """Compare the calls whose names are chosen, in two new processes."""
    versions: list[Version] = []
    try:
        versions += [Version(kind, ""), Version(kind, folder)]
        both = [name for name in versions[0].names if name in versions[1].names]
        return {name: compare(versions, name, turns) for name in both if chosen(name)}
    finally:
        for version in versions:
            version.close()


def main(words: list[str] | None = None) -> int:
    """Compare, and print a table, the slowest first; return 1 if any call is slower."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", nargs="?", help="the other version (default: last release)")
    parser.add_argument("--thirty", action="store_true", help="only the most used calls")
    parser.add_argument("--table", action="store_true", help="calls with a goal, and its measure")
    parser.add_argument("--only", default="", help="calls whose names hold this text")
    parser.add_argument("--limit", type=float, default=1.05, help="ratio that counts as slower")
    parser.add_argument("--turns", type=int, default=TURNS)
    given = parser.parse_args(words)
    revision = given.revision or last_release()
    kind = "table" if given.table else "thirty" if given.thirty else "all"
    folder = built(revision)
    found = measure(kind, folder, lambda name: given.only in name, given.turns)
    if not found:
        parser.error(f"no call that both versions have has {given.only!r} in its name")
    slower = {name for name, pair in found.items() if pair[0] > given.limit}
    again = [found]
    while slower and len(again) < 3:
        again.append(measure(kind, folder, slower.__contains__, given.turns))
    for name in slower:
        _, first, second = map(min, zip(*(each[name] for each in again), strict=True))
        found[name] = first / second, first, second
    print(f"| ratio | this, µs | {revision}, µs | call |\n|--:|--:|--:|---|")
    for name, (ratio, *pair) in sorted(found.items(), key=lambda each: each[1], reverse=True):
        print(f"| {ratio:.3f} | {' | '.join(f'{1e6 * each:.2f}' for each in pair)} | {name} |")
    ratios = [ratio for ratio, *_ in found.values()]
    count = sum(ratio > given.limit for ratio in ratios)
    print(
        f"{len(found)} calls: median ratio {median(ratios):.3f}, worst {max(ratios):.3f}, "
        f"{count} slower by more than {given.limit - 1:.0%}"
    )
    return bool(count)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        sys.exit(main())
