"""A PyTorch module's step on coded workers beside DistributedDataParallel (gloo), in one run.

    python benches/torch_loop.py [--quick] [--runs 5]

Four processes with one thread each train a multilayer perceptron by SGD with momentum. The table
has medians of runs that take turns. In "one asleep" a random one of the four sleeps 200 ms before
each step. In "one dead" one process is killed before the timed steps, which DDP does not survive.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import fastgc
from fastgc._base.progress import markdown_table
from fastgc.torch import CodedDataParallel

WORKERS, BATCH, ASLEEP = 4, 64, 0.2
SIZES = {"1M": (256, 864, 864), "25M": (256, 4900, 4900)}  # inputs, and two hidden layers
CLASSES = 10


def network(inputs, first, second):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, first),
        torch.nn.ReLU(),
        torch.nn.Linear(first, second),
        torch.nn.ReLU(),
        torch.nn.Linear(second, CLASSES),
    )


def samples(size):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((20 * BATCH, SIZES[size][0]), np.float32))
    return torch.utils.data.TensorDataset(x, torch.from_numpy(rng.integers(0, CLASSES, len(x))))


def loss(module, batch):
    x, y = batch
    return torch.nn.functional.cross_entropy(module(x), y, reduction="sum")


def optimizer_of(module):
    return torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9)


class Sleeper:
    """Delays of one random worker in each round."""

    def sample(self, round, workers, seed):
        delays = np.zeros(workers)
        delays[np.random.default_rng((seed, round)).integers(workers)] = ASLEEP
        return delays


def ddp(rank, port, sizes, data, batch, sleeps, found):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    steps, ranks = sleeps.shape
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    module = torch.nn.parallel.DistributedDataParallel(network(*sizes))
    optimizer, times = optimizer_of(module), []
    for step in range(steps):
        begin = time.perf_counter()
        time.sleep(sleeps[step, rank])
        part = np.random.default_rng(step).permutation(len(data))[:batch][rank::ranks]
        optimizer.zero_grad()
        (loss(module, data[part]) / len(part)).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        found.put(times)
    dist.barrier()  # otherwise the last rank may abort
    dist.destroy_process_group()


def ddp_times(sizes, data, batch, sleeps):
    """Return the times of DDP's steps; `sleeps` has a row of ranks' seconds for each step."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = mp.get_context("spawn").SimpleQueue()
    mp.spawn(ddp, (port, sizes, data, batch, sleeps, found), sleeps.shape[1])
    return found.get()


def worker(number):
    """Return the process of a worker."""
    for entry in Path("/proc").glob("[0-9]*/comm"):
        if entry.read_text() == f"fastgc-{number}\n":
            return int(entry.parent.name)
    raise LookupError(f"no worker {number}")


def coded_times(size, code, asleep, dead, steps):
    module, data = network(*SIZES[size]), samples(size)
    optimizer = optimizer_of(module)
    times = []
    delays = Sleeper() if asleep else None
    with CodedDataParallel(
        module, loss, data, code, batch_size=BATCH, delays=delays, patience=0.0 if dead else 10.0
    ) as coded:
        for step in range(steps):
            if dead and step == 2:
                os.kill(worker(0), signal.SIGKILL)
            begin = time.perf_counter()
            optimizer.zero_grad()
            coded.backward()
            optimizer.step()
            times.append(time.perf_counter() - begin)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the smaller module, fewer steps")
    parser.add_argument("--runs", type=int, default=5, help="of each contestant")
    given = parser.parse_args()
    quick = given.quick
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    codes = {
        "Uncoded": fastgc.Uncoded(WORKERS),
        "BinaryCode, s = 1": fastgc.BinaryCode(WORKERS, stragglers=1),
    }
    runs, steps = (1, 10) if quick else (given.runs, 20)
    sizes = ["1M"] if quick else list(SIZES)
    table = []
    for size in sizes:
        for what in ("none", "one asleep", "one dead"):
            asleep, dead = what == "one asleep", what == "one dead"
            sleeps = np.zeros((steps, WORKERS))
            if asleep:
                sleeps = np.stack([Sleeper().sample(i, WORKERS, 0) for i in range(steps)])
            found = {name: [] for name in ("DDP", *codes)}
            for _ in range(runs):
                if not dead:
                    found["DDP"] += ddp_times(SIZES[size], samples(size), BATCH, sleeps)[3:]
                for name, code in codes.items():
                    if not (dead and name == "Uncoded"):
                        found[name] += coded_times(size, code, asleep, dead, steps)[3:]
            ms = {k: statistics.median(v) * 1e3 for k, v in found.items() if v}
            last = list(codes)[-1]
            ratio = f"{ms['DDP'] / ms[last]:.2f}" if "DDP" in ms else "–"
            shown = [f"{ms[name]:.1f}" if name in ms else "–" for name in found]
            table.append([size, what, *shown, ratio])
    head = ["parameters", "stragglers", "DDP", *codes, "DDP / binary"]
    print(markdown_table("Milliseconds of a step, medians.", head, table))


if __name__ == "__main__":
    main()
