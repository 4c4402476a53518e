"""A round of the Ray engine against bare loops that move the same bytes, in turns of blocks.

``python benches/ray_loop.py`` prints JSON: a row for each size, with median seconds of three loops.
The bare loop moves messages; moving does not read what lies in the object store. In the second
loop, workers also write their messages, and the master reads and adds them. The third is the
engine. Each worker has one gradient, which is zero, and some messages need not come.
"""

from __future__ import annotations

import argparse
import json
from functools import partial

import numpy as np
import ray
from measure import times

from fastgc import Uncoded
from fastgc.engines.ray import RayCluster

SIZES = (10, 10**4, 10**6)


def zero(theta, shard, out):
    """Write a gradient as fast as possible."""
    out.fill(0.0)


class Sender:
    def __init__(self, size):
        self.message, self.gradient = np.zeros(size), np.zeros(size)

    def send(self, theta, write):
        if write:
            self.gradient.fill(0.0)
            np.copyto(self.message, self.gradient)
        return self.message


class Bare:
    """Put the parameters, call all actors, wait for the first f, and get their messages."""

    def __init__(self, workers, first, size):
        actor = ray.remote(num_cpus=0)(Sender)
        self.actors = [actor.remote(size) for _ in range(workers)]
        self.first = first
        self.total = np.empty(size)

    def move(self, theta, write=False):
        parameters = ray.put(theta)
        calls = [actor.send.remote(parameters, write) for actor in self.actors]
        ready, _ = ray.wait(calls, num_returns=self.first)
        self.messages = ray.get(ready)

    def add(self, theta):
        self.move(theta, write=True)
        self.total.fill(0.0)
        for message in self.messages:
            np.add(self.total, message, out=self.total)

    def close(self):
        for actor in self.actors:
            ray.kill(actor)


def compare(code, size, blocks, rounds):
    theta, out = np.zeros(size), np.empty(size)
    with RayCluster(code, [0] * code.k, zero, size) as cluster:
        bare = Bare(code.n, code.threshold, size)
        forms = {
            "bare": bare.move,
            "bare, adding": bare.add,
            "engine": lambda theta: cluster.step(theta, out),
        }
        took = {name: [] for name in forms}
        for _ in range(blocks):
            for name, function in forms.items():
                function(theta)  # not timed: late calls of the other loop end meanwhile
                took[name] += times(partial(function, theta), rounds)
        bare.close()
    return {"p": size, **{name: float(np.median(each)) for name, each in took.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--workers", type=int, default=16)
    parser.add_argument("-s", "--stragglers", type=int, default=3)
    parser.add_argument("-p", "--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    code = Uncoded(arguments.workers, tolerance=arguments.stragglers / arguments.workers)
    rows = [
        compare(code, size, arguments.blocks, arguments.rounds if size < 10**6 else 5)
        for size in arguments.sizes
    ]
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
