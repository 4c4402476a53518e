"""What a round on local processes costs: the engine beside a bare loop that moves the same bytes.

``python benches/local_loop.py`` prints JSON: medians of both, a row for each size, in seconds.
"""

import json
import mmap
import os
import select
import time

import numpy as np

import fastgc
from fastgc.engines import LocalCluster

N, S, BLOCKS = 16, 3, 20
ROUNDS = {10: 100, 10_000: 60, 1_000_000: 3}  # in a block, by the parameters


def zero(theta, shard, out):
    """A gradient that takes no longer than it must: all of it is to be written."""
    out.fill(0.0)


class Bare:
    """Pipes and shared memory: wake all, wait for the first f answers, no codes and no checks."""

    def __init__(self, p):
        self.memory = mmap.mmap(-1, 8 * p * (N + 1))
        self.theta, *self.messages = np.frombuffer(self.memory).reshape(N + 1, p)
        self.number, self.busy, self.orders, self.processes = 0, set(), [], []
        self.answers, answer = os.pipe()
        for worker in range(N):
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
        for worker in range(N):
            self.hand(worker, number)
        heard = 0
        while heard < N - S:
            select.select([self.answers], [], [])
            told = os.read(self.answers, 9 * N)
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
    """Seconds of each round."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        step(theta, out)
        times.append(time.perf_counter() - start)
    return times


def main():
    """Measure in turns, and print."""
    rows = []
    for p, rounds in ROUNDS.items():
        theta, out = np.zeros(p), np.empty(p)
        code = fastgc.Uncoded(N, tolerance=S / N)  # a load of 1: nothing to encode
        bare = Bare(p)  # forks, and so comes before there are threads
        with LocalCluster(code, [0] * N, zero, p) as cluster:
            times = {"bare": [], "engine": []}
            for _ in range(BLOCKS):
                times["bare"] += timed(bare.step, theta, out, rounds)
                times["engine"] += timed(cluster.step, theta, out, rounds)
        bare.close()
        rows.append({"p": p, **{name: float(np.median(each)) for name, each in times.items()}})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
