"""Steps of `CodedAllReduce` beside DistributedDataParallel (gloo), and while ranks are killed.

    python benches/torch_deaths.py [--quick] [--steps 200] [--deaths 5] [--width 3000]

Processes of one thread each, a multilayer perceptron, SGD with momentum. Without faults all ranks
compute as many samples in a step. With proactive redundancy the batch that gets done so is half as
large, for the load is 2; with reactive redundancy it is the whole one, as with DDP. With faults a
random rank is killed at a random instant, another one is started in its place, and every step of
every rank is compared to the gradient of the whole batch.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch_loop
from torch_loop import CLASSES, loss, optimizer_of

import fastgc
from fastgc.progress import markdown_table
from fastgc.torch import CodedAllReduce, CodedSampler

RANKS, OWN, INPUTS = 6, 8, 256  # OWN: samples of a rank in a step
WAYS = ("proactive", "reactive")
SAMPLES = 1200


def network(width):
    return torch_loop.network(INPUTS, width, width)


def samples():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((SAMPLES, INPUTS), np.float32))
    return torch.utils.data.TensorDataset(x, torch.from_numpy(rng.integers(0, CLASSES, SAMPLES)))


def flat(tensors):
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def ddp(rank, port, width, steps, found):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    module, data = torch.nn.parallel.DistributedDataParallel(network(width)), samples()
    optimizer, times = optimizer_of(module), []
    for step in range(steps):
        begin = time.perf_counter()
        part = np.random.default_rng(step).permutation(SAMPLES)[: RANKS * OWN][rank::RANKS]
        optimizer.zero_grad()
        (loss(module, data[part]) / OWN).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        found.put(times)
    dist.barrier()  # or who is last may abort
    dist.destroy_process_group()


def coded(rank, port, width, steps, way, truth, found):
    """What a rank does; with `truth` it compares its steps to those of the whole batch."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    module, data, code = network(width), samples(), fastgc.BinaryCode(RANKS, stragglers=1)
    optimizer, batch = optimizer_of(module), RANKS * OWN // (2 if way == "proactive" else 1)
    recompute = lambda lost: (loss(module, data[lost]) / batch).backward()  # noqa: E731
    sampler = CodedSampler(data, code, batch, rank)
    everything = CodedSampler(data, fastgc.Uncoded(1), batch, 0)
    times, errors = [], []
    options = {"redundancy": way, "recompute": recompute if way == "reactive" else None}
    all_reduce = CodedAllReduce(
        module, code, sampler=sampler, state=[optimizer], store=store, rank=rank, **options
    )
    store.add("in", 1)
    with all_reduce:
        while all_reduce.step < steps:
            for own in sampler:
                begin = time.perf_counter()
                optimizer.zero_grad()
                (loss(module, data[own]) / batch).backward()
                if rank == 0 or not truth:
                    store.set("step", str(all_reduce.step))
                all_reduce()
                if truth:
                    everything.step = all_reduce.step - 1
                    whole = loss(module, data[next(iter(everything))]) / batch
                    right = flat(torch.autograd.grad(whole, list(module.parameters())))
                    wrong = flat(p.grad for p in module.parameters()) - right
                    errors.append(float(wrong.norm() / right.norm()))
                optimizer.step()
                times.append(time.perf_counter() - begin)
                if all_reduce.step == steps:
                    break
    regroups = [(c.step, len(c.ranks), c.seconds) for c in all_reduce.changes[1:]]
    theta = flat(module.parameters()).double()
    sums = float(theta.sum()), float((theta * theta).sum())
    found.put((rank, all_reduce.step, times, max(errors, default=0.0), regroups, sums))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def ddp_times(width, steps):
    found = mp.get_context("spawn").SimpleQueue()
    mp.spawn(ddp, (free_port(), width, steps, found), RANKS)
    return found.get()


def coded_run(width, steps, way, deaths):
    """What ranks tell, and how many of them were killed."""
    context = mp.get_context("spawn")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def start(rank):
        process = context.Process(
            target=coded, args=(rank, store.port, width, steps, way, deaths > 0, found)
        )
        process.start()
        return process

    found = context.Manager().Queue()  # which a process that is killed leaves unlocked
    processes, rng, killed = [start(rank) for rank in range(RANKS)], np.random.default_rng(0), 0
    for at in np.linspace(0, steps, deaths + 2)[1:-1].astype(int).tolist():
        while int(store.get("step")) < at:
            time.sleep(0.01)
        time.sleep(0.5 * rng.random())
        rank = int(rng.integers(1, RANKS))  # but the one that tells the step
        os.kill(processes[rank].pid, signal.SIGKILL)
        processes[rank].join()
        processes[rank] = start(rank)
        killed += 1
        while store.add("in", 0) < RANKS + killed and processes[rank].is_alive():
            time.sleep(0.01)
    for process in processes:
        process.join()
    return [found.get() for _ in range(found.qsize())], killed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small module, few steps")
    parser.add_argument("--runs", type=int, default=3, help="of each contestant without faults")
    parser.add_argument("--steps", type=int, default=200, help="with faults")
    parser.add_argument("--deaths", type=int, default=5)
    parser.add_argument("--width", type=int, default=3000, help="of layers; 3000: 9.8M parameters")
    given = parser.parse_args()
    width, steps, deaths, runs = given.width, given.steps, given.deaths, given.runs
    if given.quick:
        width, steps, deaths, runs = 100, 60, 1, 1
    torch.set_num_threads(1)
    times = {"DDP": []} | {way: [] for way in WAYS}
    for _ in range(runs):
        times["DDP"] += ddp_times(width, 15)[3:]
        for way in WAYS:
            results, _ = coded_run(width, 15, way, 0)
            times[way] += next(r for r in results if r[0] == 0)[2][3:]
    parameters = sum(p.numel() for p in network(width).parameters())
    rows = []
    for way, each in times.items():
        ms, last = 1e3 * statistics.median(each), 1e3 * float(np.quantile(each, 0.9))
        batch = RANKS * OWN // (2 if way == "proactive" else 1)
        ratio = statistics.median(each) / statistics.median(times["DDP"])
        rows.append([way, str(batch), f"{ms:.1f}", f"{last:.1f}", f"{ratio:.2f}"])
    size = f"{parameters / 1e6:.1f}M parameters"
    title = f"A step without faults; {RANKS} ranks, {OWN} samples each, {size}."
    head = ["redundancy", "batch", "median, ms", "p90, ms", "of DDP's"]
    print(markdown_table(title, head, rows), flush=True)
    rows = [faults(width, steps, way, deaths) for way in WAYS]
    head = ["redundancy", "killed", "steps", "lost", "largest error of a step", "regroup, ms"]
    head += ["longest", "group of one who joins, ms", "ranks at the end, copies the same"]
    print(markdown_table("With faults.", head, rows))


def faults(width, steps, way, deaths):
    """A row of what became of a run."""
    results, killed = coded_run(width, steps, way, deaths)
    regroups = [each for r in results for each in r[4]]
    lost = [seconds for _, ranks, seconds in regroups if ranks < RANKS]
    joins = [seconds for _, ranks, seconds in regroups if ranks == RANKS]
    row = [
        way,
        killed,
        steps,
        sum(steps - r[1] for r in results),
        f"{max(r[3] for r in results):.1e}",
        f"{statistics.median(lost) * 1e3:.0f}" if lost else "–",
        f"{max(lost) * 1e3:.0f}" if lost else "–",
        f"{statistics.median(joins) * 1e3:.0f}" if joins else "–",
        f"{len(results)}, {'yes' if len({r[5] for r in results}) == 1 else 'no'}",
    ]
    return [str(each) for each in row]


if __name__ == "__main__":
    main()
