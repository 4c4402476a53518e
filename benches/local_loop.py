"""The cost of a round on local processes: the engine beside bare loops that move the same bytes.

``python benches/local_loop.py`` prints JSON: a row for each size, with medians in seconds. The
loops take turns, in blocks of rounds. One loop is in Python, on pipes. If there is a compiler, one
is in C, on a futex (futex_loop.c), with nothing that could be left out. Arguments are the numbers
of workers to measure.
"""

import json
import mmap
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fastgc
from fastgc.engines import LocalCluster

WORKERS, BLOCKS = (4, 16, 64), 10
ROUNDS = {10: 100, 10_000: 60, 1_000_000: 3}  # rounds in a block, by the number of parameters
MOST_BYTES = 1 << 28  # bytes of all messages, at most
WARM = 10  # first rounds of the loop in C, not counted: they touch new memory
SOURCE = Path(__file__).parent / "futex_loop.c"


def zero(theta, shard, out):
    """Write a gradient as fast as possible."""
    out.fill(0.0)


class Bare:
    """Pipes and shared memory: wake all, wait for the first f answers; no code and no checks."""

    def __init__(self, n, needed, p):
        self.n, self.needed = n, needed
        self.memory = mmap.mmap(-1, 8 * p * (n + 1))
        self.theta, *self.messages = np.frombuffer(self.memory).reshape(n + 1, p)
        self.number, self.busy, self.orders, self.processes = 0, set(), [], []
        self.answers, answer = os.pipe()
        for worker in range(n):
            order, hand = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(hand)
                self.work(worker, order, answer)
            os.close(order)
            self.orders.append(hand)
            self.processes.append(pid)
        os.close(answer)

    def work(self, worker, order, answer):
        for other in self.orders:
            os.close(other)
        gradient = np.empty_like(self.theta)
        while number := os.read(order, 8):
            gradient.fill(0.0)
            np.copyto(self.messages[worker], gradient)
            os.write(answer, bytes([worker]) + number)
        os._exit(0)

    def step(self, theta, out):
        self.number += 1
        number = self.number.to_bytes(8, "little")
        np.copyto(self.theta, theta)
        for worker in range(self.n):
            self.hand(worker, number)
        heard = 0
        while heard < self.needed:
            select.select([self.answers], [], [])
            told = os.read(self.answers, 9 * self.n)
            for at in range(0, len(told), 9):
                self.busy.discard(told[at])
                if told[at + 1 : at + 9] == number:
                    heard += 1
                else:
                    self.hand(told[at], number)
        np.copyto(out, self.messages[0])

    def hand(self, worker, number):
        if worker not in self.busy:
            self.busy.add(worker)
            os.write(self.orders[worker], number)

    def close(self):
        for order in self.orders:
            os.close(order)
        for pid in self.processes:
            os.waitpid(pid, 0)


def timed(step, theta, out, rounds):
    """Return the seconds of each round."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        step(theta, out)
        times.append(time.perf_counter() - start)
    return times


def compiled(folder):
    """Compile the loop in C; return None without a compiler."""
    program = Path(folder) / "futex_loop"
    try:
        subprocess.run(["cc", "-O3", "-march=native", "-o", program, SOURCE], check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return program


def rows_of(n, futex):
    """Measure the loops in turns; yield a row for each size."""
    needed = n - max(1, round(3 * n / 16))
    for p, rounds in ROUNDS.items():
        if 8 * n * p > MOST_BYTES:
            continue
        theta, out = np.zeros(p), np.empty(p)
        code = fastgc.Uncoded(n, tolerance=(n - needed) / n)  # a load of 1: nothing to encode
        bare = Bare(n, needed, p)  # it forks, so it must come before threads start
        times = {"engine": [], "bare, pipes": [], "bare, futex in C": []}
        with LocalCluster(code, [0] * n, zero, p) as cluster:
            for _ in range(BLOCKS):
                times["bare, pipes"] += timed(bare.step, theta, out, rounds)
                times["engine"] += timed(cluster.step, theta, out, rounds)
                if futex:
                    sizes = map(str, (n, needed, p, rounds + WARM))
                    printed = subprocess.run([futex, *sizes], capture_output=True, check=True)
                    seconds = [float(each) for each in printed.stdout.split()]
                    times["bare, futex in C"] += seconds[WARM:]
        bare.close()
        medians = {name: float(np.median(each)) for name, each in times.items() if each}
        yield {"workers": n, "p": p, **medians}


def main():
    """Measure, and print."""
    with tempfile.TemporaryDirectory() as folder:
        futex = compiled(folder)
        workers = [int(n) for n in sys.argv[1:]] or WORKERS
        print(json.dumps([row for n in workers for row in rows_of(n, futex)]))


if __name__ == "__main__":
    main()
