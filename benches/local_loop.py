"""The cost of a round on local processes: the engine beside a bare loop that moves the same bytes.

``python benches/local_loop.py`` prints JSON: a row for each size, with medians in seconds. The
loops take turns, in blocks of rounds. The bare loop has a socket pair and a piece of shared memory
for each worker, and nothing that could be left out. Arguments are the numbers of workers.
"""

import contextlib
import json
import mmap
import os
import select
import socket
import sys
from functools import partial

import numpy as np
from measure import times, zero

import fastgc
from fastgc.engines import LocalCluster

WORKERS, BLOCKS = (4, 16, 64), 10
ROUNDS = {10: 100, 10_000: 60, 1_000_000: 3}  # rounds in a block, by the number of parameters
MOST_BYTES = 1 << 28  # bytes of all messages, at most


class Bare:
    """Wake all workers, and wait for the first answers: no code, no checks."""

    def __init__(self, n, needed, p):
        self.needed, self.number = needed, 0
        self.theta, *self.messages = np.frombuffer(mmap.mmap(-1, 8 * p * (n + 1))).reshape(-1, p)
        self.files, self.busy, self.epoll = {}, set(), select.epoll()
        for message in self.messages:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if not os.fork():
                for each in (ours.fileno(), *self.files):
                    os.close(each)
                self.work(theirs.fileno(), message)
            theirs.close()
            self.files[ours.fileno()] = ours
            self.epoll.register(ours, select.EPOLLIN)

    def work(self, file, message):
        gradient = np.empty_like(self.theta)
        with contextlib.suppress(ConnectionResetError):
            while number := os.read(file, 8):
                gradient.fill(0.0)
                np.copyto(message, gradient)
                os.write(file, number)
        os._exit(0)

    def step(self, theta, out):
        self.number += 1
        number = self.number.to_bytes(8, "little")
        np.copyto(self.theta, theta)
        for file in self.files.keys() - self.busy:
            os.write(file, number)
        self.busy, heard = set(self.files), 0
        while heard < self.needed:
            for file, _ in self.epoll.poll():
                if os.read(file, 8) == number:
                    self.busy.remove(file)
                    heard += 1
                else:
                    os.write(file, number)
        np.copyto(out, self.messages[0])

    def close(self):
        for ours in self.files.values():
            ours.close()
        for _ in self.files:
            os.wait()


def rows_of(n):
    """Measure the loops in turns; yield a row for each size."""
    needed = n - max(1, round(3 * n / 16))
    for p, rounds in ROUNDS.items():
        if 8 * n * p > MOST_BYTES:
            continue
        theta, out = np.zeros(p), np.empty(p)
        code = fastgc.Uncoded(n, tolerance=(n - needed) / n)  # a load of 1: nothing to encode
        bare = Bare(n, needed, p)  # it forks, so it must come before threads start
        took = {"engine": [], "bare": []}
        with LocalCluster(code, [0] * n, zero, p) as cluster:
            for _ in range(BLOCKS):
                took["bare"] += times(partial(bare.step, theta, out), rounds)
                took["engine"] += times(partial(cluster.step, theta, out), rounds)
        bare.close()
        medians = {name: float(np.median(each)) for name, each in took.items()}
        yield {"workers": n, "p": p, **medians}


def main():
    """Measure, and print."""
    workers = [int(n) for n in sys.argv[1:]] or WORKERS
    print(json.dumps([row for n in workers for row in rows_of(n)]))


if __name__ == "__main__":
    main()
