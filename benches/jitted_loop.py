"""Time a whole training loop in Python, in ``@njit``, and in C with the library (jitted_loop.c).

Run as ``python benches/jitted_loop.py``. Each round computes all partial gradients of least
squares, encodes the messages of all n workers, draws survivors, decodes and takes a step. All loops
draw the same survivors, and must end with the same parameters. They run on one thread, in turns.
Gradients and messages begin at cache lines in all of them, as that alone makes a tenth of the time.
"""

import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import numba
import numpy as np

import fastgc
from fastgc.kernels import numba as nb
from fastgc.training.optimizers import SGD

SIZES = ((24, 5, 64), (24, 5, 640), (80, 12, 64), (80, 12, 640), (80, 12, 10_000))
TURNS, SECONDS = 21, 0.02  # turns of each loop, and about the seconds of a turn
SOURCE = Path(__file__).with_suffix(".c")


@numba.njit(cache=True)
def shuffle(order, f, state):
    """Move a random choice of f workers to the front; return the generator's next state."""
    for i in range(f):
        state += np.uint64(0x9E3779B97F4A7C15)
        z = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        j = i + np.int64(z % np.uint64(order.size - i))
        order[i], order[j] = order[j], order[i]
    return state


@numba.njit(cache=True)
def train(tables, partitions, coefficients, targets, partials, messages, f, lr, rounds):
    """Train in a loop that is compiled as a whole; `partials` and `messages` are work space."""
    n, p = targets.shape
    theta, gradient, vector = np.zeros(p), np.empty(p), np.empty(f, np.complex128)
    order, state = np.arange(n), np.uint64(0)
    for _ in range(rounds):
        for j in range(n):
            for t in range(p):
                partials[j, t] = theta[t] - targets[j, t]
        for i in range(n):
            nb.combine_rows(coefficients[i], partials, messages[i], partitions[i])
        state = shuffle(order, f, state)
        if nb.decoding_vector(tables, nb.SPREAD, order[:f], vector)[0] != 0:
            raise ValueError("not decodable")
        if not nb.combine_rows(vector, messages, gradient, order[:f]):
            raise ValueError("not finite")
        theta -= lr * gradient
    return theta


def in_python(code, targets, partials, messages, f, lr):
    """Return the same loop, with a bound call for each step: the fastest way in Python."""
    n, p = targets.shape
    gradient = np.empty(p)
    held = np.zeros((n, code.load, p))  # each worker's partial gradients
    own = [code.partitions(i) for i in range(n)]
    encoders = [code.bind_encoder(i, held[i], out=messages[i]) for i in range(n)]
    decode, optimizer = code.bind(messages, out=gradient), SGD(lr)

    def loop(rounds):
        optimizer.reset(np.zeros(p))
        order, state = np.arange(n), np.uint64(0)
        for _ in range(rounds):
            np.subtract(optimizer.theta, targets, out=partials)
            for i, encode in enumerate(encoders):
                partials.take(own[i], axis=0, out=held[i])
                encode()
            state = np.uint64(shuffle(order, f, state))
            optimizer.step(decode(order[:f]))
        return optimizer.theta

    return loop


def program(folder):
    """Compile the loop in C; return the program's path."""
    made = Path(folder) / "jitted_loop"
    flags = ["-std=gnu11", "-O3", "-march=native", "-I", fastgc.get_include()]
    libraries = [fastgc.get_library(), "-lm", "-pthread"]
    subprocess.run(["cc", *flags, SOURCE, "-o", made, *libraries], check=True)
    return made


def lined(n, p):
    """Return an array that begins at a cache line, as those of the loop in C do."""
    room = np.empty(n * p + 8)
    start = -room.ctypes.data % 64 // 8
    return room[start : start + n * p].reshape(n, p)


def fastest(loop_in_c, n, s, p):
    """Return each loop's seconds per round in its fastest turn."""
    code, f, lr = fastgc.ReedSolomon(n, stragglers=s), n - s, 0.5 / n
    targets, *room = (lined(n, p) for _ in range(3))
    targets[:] = np.sin(np.arange(n * p, dtype=float)).reshape(n, p)
    tables, root = code.scheme.tables, int(code.scheme.tables.q[0])
    partitions = np.array([code.partitions(i) for i in range(n)])
    coefficients = np.array([code.coefficients(i) for i in range(n)])

    def c(rounds):
        sizes = map(str, (n, s, p, rounds, 2, root))  # two runs: the first touches new memory
        printed = subprocess.run([loop_in_c, *sizes], capture_output=True, check=True, text=True)
        times, *theta = printed.stdout.splitlines()
        return float(times.split()[1]), np.array(theta, float)

    def timed(loop):
        def run(rounds):
            start = time.perf_counter()
            theta = loop(rounds)
            return (time.perf_counter() - start) / rounds, theta

        return run

    python = in_python(code, targets, *room, f, lr)
    compiled = partial(train, tables, partitions, coefficients, targets, *room, f, lr)
    loops = {"Python": timed(python), "@njit": timed(compiled), "C": c}
    found = {name: run(5)[1] for name, run in loops.items()}
    for theta in found.values():
        np.testing.assert_allclose(theta, found["C"], rtol=1e-9, atol=1e-9)
    rounds = {name: max(5, round(SECONDS / run(5)[0])) for name, run in loops.items()}
    times = {name: [] for name in loops}
    for _ in range(TURNS):
        for name, run in loops.items():
            times[name].append(run(rounds[name])[0])
    return {name: min(each) for name, each in times.items()}


def main():
    """Measure, and print a table."""
    fastgc.kernels.threads.set_num_threads(1)
    print("| n | s | p | Python | @njit | C | @njit over C |\n|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        loop_in_c = program(folder)
        for n, s, p in SIZES:
            each = fastest(loop_in_c, n, s, p)
            times = " | ".join(f"{1e6 * seconds:.4g} µs" for seconds in each.values())
            print(f"| {n} | {s} | {p} | {times} | {each['@njit'] / each['C']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
