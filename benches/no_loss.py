"""Users' calls beside the calls they would make without fastgc: ``python benches/no_loss.py``.

The first tables compare `bind`, `decode` and `encode` with `out`, of stacked rows and of lists, and
`bind_encoder`, with their default checks, with the best of np.matmul, np.dot (BLAS's gemv) and
torch.mv. These get stacked rows and ready-made coefficients. There are f rows of p elements, on one
thread and on all. A cell has the ratio of the best other's time to fastgc's, and fastgc's share of
the limit: the time to read f rows, to write one, and to read that one before, at the bandwidth of a
loop that reads as much memory again and again on as many threads. (Rows written past the caches are
not read before: 133% are possible for two rows.) Cells below 0.95 are bold.

Further tables have optimizers' steps beside PyTorch's, and the gain by more threads for rows in
caches, with fastgc and BLAS each in their own processes. All else shares one process, and waits
until BLAS's threads sleep. ``--what`` chooses tables; ``--quick`` takes float64 and few sizes.

Contestants take turns, and the best of the medians of a contestant's turns counts. So other load on
the machine, and the first use of memory on a virtual one, decide no cell.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

import fastgc
from fastgc._base.progress import markdown_table
from fastgc.kernels import threads
from fastgc.training.optimizers import SGD, AMSGrad, Nesterov

try:
    import torch
except ImportError:
    torch = None
try:
    import threadpoolctl
except ImportError:  # BLAS then runs on as many threads as it likes
    threadpoolctl = None

ROWS = (2, 4, 8, 16, 68, 256)
SIZES = (10**2, 10**3, 10**4, 3 * 10**4, 10**5, 10**6, 10**7)
QUICK_ROWS, QUICK_SIZES = (4, 68), (10**2, 10**4, 10**5, 10**6)
MOST_BYTES = 1.1e9
RED = 0.95
TURNS, TURN = 3, 3e-3  # turns of each contestant, and seconds of a turn
CORES = threads.get_num_threads()
REST = 0.1  # seconds after which threads of BLAS and PyTorch no longer spin
WARM = 1e-3  # seconds of a turn that are not timed

Call = Callable[[], Any]


@numba.njit(nogil=True)
def _read(words: NDArray[np.int64], repeats: int) -> int:
    # Four streams, each with its own registers.
    quarter = words.size // 4
    first, second = words[:quarter], words[quarter : 2 * quarter]
    third, fourth = words[2 * quarter : 3 * quarter], words[3 * quarter : 4 * quarter]
    total = 0
    for _ in range(repeats):
        a = b = c = d = 0
        for i in range(quarter):
            a ^= first[i]
            b ^= second[i]
            c ^= third[i]
            d ^= fourth[i]
        total ^= a ^ b ^ c ^ d
        words[0] = total  # otherwise the compiler would drop the loop
    return total


@cache
def _read_at(nbytes: int, count: int) -> float:
    share = max(nbytes // count // 8, 64)
    repeats = max(2, int(5e7) // (8 * share))
    parts = [np.ones(share, np.int64) for _ in range(count)]
    best = 0.0
    with ThreadPoolExecutor(count) as pool:
        for _ in range(7):
            start = time.perf_counter()
            list(pool.map(_read, parts, [repeats] * count))
            best = max(best, 8 * share * count * repeats / (time.perf_counter() - start))
    _READ.setdefault(count, {})[nbytes] = best
    return best


_READ: dict[int, dict[int, float]] = {}


def bandwidth(nbytes: int, count: int) -> float:
    """Return the bytes per second of `count` threads that read their shares of `nbytes`.

    If reading more memory went faster, return that: the shorter measurement was disturbed.
    """
    _read_at(nbytes, count)
    return max(found for size, found in _READ[count].items() if size >= nbytes)


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Run fastgc, PyTorch and BLAS on `count` threads."""
    before = threads.get_num_threads()
    threads.set_num_threads(count)
    if torch is not None:
        torch.set_num_threads(count)
    with threadpoolctl.threadpool_limits(count) if threadpoolctl else nullcontext():
        yield
    threads.set_num_threads(before)


def race(calls: list[Call], turns: int = TURNS) -> list[float]:
    """Return the seconds of each call, the best of its turns' medians; calls take turns."""
    inner, each = [], []
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        each.append(max(time.perf_counter() - start, 1e-7))
        inner.append(max(1, round(5e-5 / each[-1])))
    best = [np.inf] * len(calls)
    for _ in range(turns):
        for at, call in enumerate(calls):
            if threads.get_num_threads() > 1:
                time.sleep(REST)  # otherwise the call before may still occupy other cores
            until = time.perf_counter() + WARM
            call()  # not timed: the call before has used the caches, and threads sleep
            while time.perf_counter() < until:
                call()
            times = []
            for _ in range(min(max(3, round(TURN / (inner[at] * each[at]))), 200)):
                start = time.perf_counter()
                for _ in range(inner[at]):
                    call()
                times.append((time.perf_counter() - start) / inner[at])
            best[at] = min(best[at], float(np.median(times)))
    return best


def others(coef: NDArray[Any], rows: NDArray[Any]) -> Iterator[Call]:
    """Yield the calls that a user would make without fastgc."""
    coef = coef.astype(rows.dtype)
    total = np.empty(rows.shape[1], rows.dtype)
    yield lambda: np.matmul(coef, rows, out=total)
    yield lambda: np.dot(coef, rows, out=total)
    if torch is not None:
        matrix, vector = torch.from_numpy(rows).T, torch.from_numpy(coef)
        out = torch.empty(rows.shape[1], dtype=matrix.dtype)
        yield lambda: torch.mv(matrix, vector, out=out)


def filled(count: int, p: int, dtype: Any) -> NDArray[Any]:
    """Return rows of ordinary numbers, quickly."""
    pattern = np.random.default_rng(0).standard_normal(1 << 15).astype(dtype)
    return np.resize(pattern, count * p).reshape(count, p)


def decode(packed: bool, f: int, p: int, dtype: Any) -> tuple[dict[str, Call], list[Call]]:
    """Return ways to decode f messages, and the same by others."""
    code = fastgc.ReedSolomon(f + 1, stragglers=1) if packed else fastgc.Uncoded(f)
    messages, out = filled(code.n, p, dtype), np.empty(p, dtype)
    bound, survivors = code.bind(messages, out), np.arange(f)
    rows = messages[:f].view(np.result_type(dtype, np.complex64)) if packed else messages
    vector = code.decoding_vector(survivors)
    stacked, listed = messages[:f], list(messages[:f])
    calls: dict[str, Call] = {
        "bind": lambda: bound(survivors),
        "decode": lambda: code.decode(survivors, stacked, out=out),
        "decode, a list": lambda: code.decode(survivors, listed, out=out),
    }
    return calls, list(others(vector, rows))


def encode(packed: bool, w: int, p: int, dtype: Any) -> tuple[dict[str, Call], list[Call]]:
    """Return ways to encode w partial gradients, and the same by others."""
    code: Any = fastgc.CyclicRepetition(w + 1, stragglers=w - 1)
    if packed:
        code = fastgc.ReedSolomon(w + 1, stragglers=w - 1)
    partials, out = filled(w, p, dtype), np.empty(p, dtype)
    rows = partials.view(np.result_type(dtype, np.complex64)) if packed else partials
    bound, listed = code.bind_encoder(0, partials, out), list(partials)
    calls: dict[str, Call] = {
        "bind_encoder": bound,
        "encode": lambda: code.encode(0, partials, out),
        "encode, a list": lambda: code.encode(0, listed, out),
    }
    return calls, list(others(code.coefficients(0), rows))


def cell(mine: float, best: float, limit: float) -> str:
    """Write the best other's time over fastgc's, and fastgc's share of the limit."""
    ratio = f"{best / mine:.2f}"
    return f"{f'**{ratio}**' if best / mine < RED else ratio} ({limit / mine:.0%})"


def tables(make: Any, dtypes: tuple[Any, ...], rows: list[int], sizes: list[int]) -> None:
    """Print all cells of the ways to decode or encode."""
    body: list[list[str]] = []
    for packed, dtype in itertools.product((True, False), dtypes):
        for count, f in itertools.product(dict.fromkeys((1, CORES)), rows):
            lines: dict[str, list[str]] = {}
            for p in sizes:
                moved = (f + 2) * p * np.dtype(dtype).itemsize
                if moved > MOST_BYTES:
                    continue
                calls, rivals = make(packed, f, p, dtype)
                with on_threads(count):
                    limit = moved / bandwidth(moved, count)
                    times = race([*calls.values(), *rivals])
                best = min(times[len(calls) :])
                for name, mine in zip(calls, times, strict=False):
                    lines.setdefault(name, []).append(cell(mine, best, limit))
            kind = f"{'packed' if packed else 'real'}, {np.dtype(dtype).name}"
            body += [
                [kind, name, str(count), str(f), *line, *["–"] * (len(sizes) - len(line))]
                for name, line in lines.items()
            ]
    head = ["rows", "call", "threads", "f", *(f"p = {p:,}" for p in sizes)]
    title = "Time of the best other over fastgc's (share of the limit)."
    print(markdown_table(title, head, body, 2), end="\n\n")


def torch_steps(method: str, numbers: dict[str, Any], gradient: NDArray[Any]) -> list[Call]:
    """Return torch's steps, fused and for lists of vectors; for plain descent also `add_`."""
    calls = []
    for form in ({"foreach": True}, {"fused": True}):
        theta = torch.ones(gradient.size, dtype=torch.from_numpy(gradient).dtype)
        theta.requires_grad_()
        theta.grad = torch.from_numpy(gradient.copy())
        calls.append(getattr(torch.optim, method)([theta], lr=1e-3, **numbers, **form).step)
    if method == "SGD" and not numbers:
        moved, along = torch.ones_like(theta.detach()), torch.from_numpy(gradient.copy())
        calls.append(lambda: moved.add_(along, alpha=-1e-3))
    return calls


# fastgc's optimizer, torch's name and arguments, and the number of vectors read or written.
STEPS: dict[str, tuple[Callable[[], Any], str, dict[str, Any], int]] = {
    "SGD": (lambda: SGD(1e-3), "SGD", {}, 3),
    "SGD, momentum": (lambda: SGD(1e-3, 0.9), "SGD", {"momentum": 0.9}, 5),
    "Nesterov": (lambda: Nesterov(1e-3, 0.9), "SGD", {"momentum": 0.9, "nesterov": True}, 5),
    "AMSGrad": (lambda: AMSGrad(1e-3), "Adam", {"amsgrad": True}, 7),
}


def steps(sizes: list[int]) -> None:
    """Print steps beside torch's."""
    if torch is None:
        return
    body = []
    for name, (make, method, numbers, vectors) in STEPS.items():
        for dtype in (np.float32, np.float64):
            for count in dict.fromkeys((1, CORES)):
                line = [f"{name}, {np.dtype(dtype).name}", str(count)]
                for p in sizes:
                    gradient = filled(1, p, dtype)[0] * dtype(1e-3)
                    optimizer = make()
                    optimizer.reset(np.ones(p, dtype))
                    moved = vectors * gradient.nbytes
                    with on_threads(count):
                        limit = moved / bandwidth(moved, count)
                        calls = [
                            lambda o=optimizer, g=gradient: o.step(g),
                            *torch_steps(method, numbers, gradient),
                        ]
                        mine, *rest = race(calls)
                    line.append(cell(mine, min(rest), limit))
                body.append(line)
    title = "`step`: time of the best of torch's fused, foreach and `add_` over fastgc's."
    head = ["step", "threads", *(f"p = {p:,}" for p in sizes)]
    print(markdown_table(title, head, body), end="\n\n")


GAINS = (
    (16, 10**5, "float64"),
    (68, 10**4, "float64"),
    (68, 3 * 10**4, "float64"),
    (68, 10**4, "float32"),
    (16, 10**5, "float32"),
)
GAIN_TURNS = 7
ALONE = """
import json, sys, time
import numpy as np
found = []
for f, p, dtype in json.loads(sys.argv[2]):
    pattern = np.random.default_rng(0).standard_normal(1 << 15).astype(dtype)
    rows, out = np.resize(pattern, (f + 1) * p).reshape(f + 1, p), np.empty(p, dtype)
    if sys.argv[1] == "fastgc":
        import fastgc
        bound = fastgc.ReedSolomon(f + 1, stragglers=1).bind(rows, out)
        survivors = np.arange(f)
        call = lambda: bound(survivors)
    else:
        coef = np.ones(f, dtype)
        call = lambda: np.matmul(coef, rows[:f], out=out)
    times = []
    for _ in range(220):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    found.append(float(np.median(times[20:])))
print(json.dumps(found))
"""


def gains() -> None:
    """Print the gain by more threads of a checked call and of BLAS, each alone in a process."""
    contestants = [(who, count) for who in ("fastgc", "matmul") for count in (1, CORES)]
    best = {each: [np.inf] * len(GAINS) for each in contestants}
    for _ in range(GAIN_TURNS):
        for who, count in contestants:
            names = ("FASTGC_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
            done = subprocess.run(
                [sys.executable, "-P", "-c", ALONE, who, json.dumps(GAINS)],
                env=os.environ | dict.fromkeys(names, str(count)),
                capture_output=True,
                text=True,
                check=True,
            )
            best[who, count] = list(map(min, best[who, count], json.loads(done.stdout)))
    body = []
    for at, (f, p, dtype) in enumerate(GAINS):
        times = {each: found[at] * 1e6 for each, found in best.items()}
        line = [f"{f} × {p:,} {dtype}"]
        for count in (1, CORES):
            line.append(f"{times['fastgc', count]:.0f} / {times['matmul', count]:.0f}")
        for who in ("fastgc", "matmul"):
            line.append(f"{times[who, 1] / times[who, CORES]:.2f}")
        body.append(line)
    head = ["rows × elements", "1 thread, µs", f"{CORES} threads, µs", "fastgc gains", "BLAS gains"]
    title = (
        f"`bind` of Reed–Solomon codes, checked, with its vector, and np.matmul of as many real "
        f"rows, each alone in its process: the best of {GAIN_TURNS} medians of 200, in turns."
    )
    print(markdown_table(title, head, body), end="\n\n")


PARTS = ("decode", "encode", "steps", "gains")


def main(words: list[str] | None = None) -> None:
    """Print the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", help="f, or w of encode; such as 2,68")
    parser.add_argument("--sizes", help="p; such as 1000,100000")
    parser.add_argument("--what", default=",".join(PARTS), help="which parts")
    parser.add_argument("--quick", action="store_true", help="float64, fewer rows and sizes")
    given = parser.parse_args(words)
    dtypes = (np.float64,) if given.quick else (np.float64, np.float32)
    rows = list(QUICK_ROWS if given.quick else ROWS)
    sizes = list(QUICK_SIZES if given.quick else SIZES)
    rows = [int(x) for x in given.rows.split(",")] if given.rows else rows
    sizes = [int(x) for x in given.sizes.split(",")] if given.sizes else sizes
    parts: dict[str, Call] = {
        "decode": lambda: tables(decode, dtypes, rows, sizes),
        "encode": lambda: tables(encode, dtypes, rows, sizes),
        "steps": lambda: steps(sizes),
        "gains": gains,
    }
    for what in given.what.split(","):
        if what not in parts:
            parser.error(f"--what takes some of {', '.join(parts)}, not {what!r}")
        if what != "gains" or CORES > 1:
            parts[what]()


if __name__ == "__main__":
    main()
