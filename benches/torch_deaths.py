"""Steps of `CodedAllReduce` and `coded_ddp` beside DistributedDataParallel (gloo), and deaths.

    python benches/torch_deaths.py [--quick] [--steps 300] [--deaths 20] [--width 3000]

Each process has one thread, and trains a multilayer perceptron by SGD with momentum. Without
faults, all ranks compute equally many samples in a step. In a second table they also sleep, as if
each rank were a machine. With proactive redundancy the batch is half as large as with DDP, because
the load is 2. With reactive redundancy it is as large as with DDP, for any number of stragglers
that the code tolerates.

With faults, random ranks are killed at random instants: one, two at once, or a second one while the
others regroup. New ranks replace them. The gradients of all ranks in all steps are compared to
those of the whole batch. At such an instant, most ranks compute, and later find the new group
ready. So a further table has ranks that die while all others wait for them in the sum. It shows the
whole time until there is a new sum.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch_loop
from torch.nn.parallel import DistributedDataParallel
from torch_loop import CLASSES, loss, optimizer_of

import fastgc
from fastgc._base.progress import markdown_table
from fastgc.torch import CodedAllReduce, CodedSampler, coded_ddp

RANKS, OWN, INPUTS = 6, 8, 256  # OWN: samples of a rank in a step
# Ways to time: the redundancy, and the number of stragglers that the code tolerates.
HOOKED = "coded_ddp, reactive"
WAYS = (("proactive", 1), ("reactive", 1), ("reactive", 2), ("reactive", 4), (HOOKED, 1))
DEADLY = (("proactive", 2), ("reactive", 2))  # with faults
SAMPLES = 1200
SLEEP = 0.3  # seconds that a rank sleeps in a step, as if it were a machine
PAUSE = 0.15  # the same in runs with faults; it gives new ranks time to start
REGROUPING = 0.02  # seconds from a death to a second one, while the others regroup
APART = 12  # steps from one death in the sum to the next
LATE = 0.2  # seconds by which a rank that dies in the sum is later than the others


def network(width):
    return torch_loop.network(INPUTS, width, width)


def samples():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((SAMPLES, INPUTS), np.float32))
    return torch.utils.data.TensorDataset(x, torch.from_numpy(rng.integers(0, CLASSES, SAMPLES)))


def flat(tensors):
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def work(module, batch, divisor, seconds):
    """Add a gradient to `.grad`, and sleep: `seconds` for OWN samples, in proportion for others."""
    found = loss(module, batch) / divisor
    time.sleep(seconds * len(batch[0]) / OWN)
    found.backward()


def coded(rank, port, width, steps, sleep, way, stragglers, truth, found, dies=False):
    """Run a rank; with `truth`, compare its gradients to those of the whole batch.

    With `dies`, one rank after another dies while the others wait for it in the sum.
    """
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    module, data = network(width), samples()
    code = fastgc.BinaryCode(RANKS, stragglers=stragglers)
    optimizer, batch = optimizer_of(module), batch_of(way, stragglers)
    whole, call, make = module, lambda: all_reduce(), CodedAllReduce
    if way == HOOKED:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        whole, call, make = DistributedDataParallel(module), lambda: None, coded_ddp
    compute = lambda samples: work(whole, data[samples], batch, sleep)  # noqa: E731
    # With `dies`, the time of others' samples would add to the time until a new sum.
    recompute = (lambda lost: work(module, data[lost], batch, 0)) if dies else compute
    sampler = CodedSampler(data, code, batch, rank)
    everything = CodedSampler(data, fastgc.Uncoded(1), batch, 0)
    times, errors, waited = [], [], []
    options = {"redundancy": way}
    if way != "proactive":
        options = {"redundancy": "reactive", "recompute": recompute}
    try:
        all_reduce = make(
            whole, code, sampler=sampler, state=[optimizer], store=store, rank=rank, **options
        )
    except fastgc.FinishedError:  # this rank was started too late
        return
    store.add("in", 1)
    with all_reduce:
        while all_reduce.step < steps:
            for own in sampler:
                begin = time.perf_counter()
                optimizer.zero_grad()
                compute(own)
                if rank == 0 or not truth:
                    store.set("step", str(all_reduce.step))
                number, rest = divmod(all_reduce.step, APART)
                struck = dies and number and not rest and not store.check([f"died/{number}"])
                if struck and rank == 1 + number % (RANKS - 1):
                    time.sleep(LATE)
                    store.set(f"died/{number}", str(time.monotonic()))
                    os.kill(os.getpid(), signal.SIGKILL)
                call()
                if struck:
                    waited.append(time.monotonic() - float(store.get(f"died/{number}")))
                if truth:
                    everything.step = all_reduce.step - 1
                    true = loss(module, data[next(iter(everything))]) / batch
                    right = flat(torch.autograd.grad(true, list(module.parameters())))
                    wrong = flat(p.grad for p in module.parameters()) - right
                    errors.append(float(wrong.norm() / right.norm()))
                optimizer.step()
                times.append(time.perf_counter() - begin)
                if all_reduce.step == steps:
                    break
    regroups = [(c.step, len(c.ranks), c.seconds) for c in all_reduce.changes[1:]]
    theta = flat(module.parameters()).double()
    sums = float(theta.sum()), float((theta * theta).sum())
    found.put((rank, all_reduce.step, times, max(errors, default=0.0), regroups, sums, waited))


def batch_of(way, stragglers):
    """Return the number of samples of a step in which each rank computes OWN."""
    return RANKS * OWN // (1 + stragglers if way == "proactive" else 1)


def ready(*what, dies=False):
    """Return a function that starts a rank (`coded`), the store of the ranks, and their results."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["torch_loop", "fastgc.torch"])
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    found = context.Manager().Queue()  # a killed process cannot leave it locked

    def start(rank):
        process = context.Process(target=coded, args=(rank, store.port, *what, found, dies))
        process.start()
        return process

    return start, store, found


def coded_run(width, steps, sleep, way, stragglers, deaths=0):
    """Run all ranks; return their results, and how many were killed."""
    start, store, found = ready(width, steps, sleep, way, stragglers, deaths > 0)
    processes, rng = [start(rank) for rank in range(RANKS)], np.random.default_rng(0)
    killed = turn = 0
    while killed < deaths:
        # In turn: one; two at once; one, and another while the others regroup.
        count = min(1 + (turn % 3 > 0), deaths - killed, stragglers)
        at = int((killed + 1) * steps / (deaths + 2))
        while int(store.get("step")) < at:
            time.sleep(0.01)
        time.sleep(0.1 * rng.random())
        struck = rng.choice(np.arange(1, RANKS), count, replace=False).tolist()  # 0 tells the step
        if not all(processes[rank].is_alive() for rank in struck):
            break  # all steps are done
        for number, rank in enumerate(struck):
            if number and turn % 3 == 2:
                time.sleep(REGROUPING)
            os.kill(processes[rank].pid, signal.SIGKILL)
        for rank in struck:
            processes[rank].join()
            processes[rank] = start(rank)
        killed, turn = killed + count, turn + 1
        while store.add("in", 0) < RANKS + killed and processes[struck[0]].is_alive():
            time.sleep(0.01)
    for process in processes:
        process.join()
    return [found.get() for _ in range(found.qsize())], killed


def struck_run(width, way, stragglers, deaths):
    """Run ranks that die while the others wait for them in the sum; return all results."""
    steps = APART * (deaths + 1)
    start, _, found = ready(width, steps, PAUSE, way, stragglers, False, dies=True)
    processes = [start(rank) for rank in range(RANKS)]
    while any(process.exitcode != 0 for process in processes):
        for rank, process in enumerate(processes):
            if process.exitcode == -signal.SIGKILL:
                time.sleep(LATE)  # a process that starts now would take the others' cores
                processes[rank] = start(rank)
        time.sleep(0.01)
    return [found.get() for _ in range(found.qsize())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small module, few steps")
    parser.add_argument("--runs", type=int, default=3, help="without faults; 0: none")
    parser.add_argument("--steps", type=int, default=300, help="with faults")
    parser.add_argument("--deaths", type=int, default=20, help="0: no faults")
    parser.add_argument("--width", type=int, default=3000, help="of layers; 3000: 9.8M parameters")
    parser.add_argument("--small", type=int, default=400, help="of layers, with faults")
    given = parser.parse_args()
    if given.quick:
        given.width = given.small = 100
        given.steps, given.deaths, given.runs = 60, 2, 1
    width, small, steps, deaths = given.width, given.small, given.steps, given.deaths
    torch.set_num_threads(1)
    parameters = sum(p.numel() for p in network(width).parameters())
    size = f"{parameters / 1e6:.1f}M parameters"
    for sleep in (0.0, 0.1 * SLEEP if given.quick else SLEEP) if given.runs else ():
        times = {"DDP": []} | {way: [] for way in WAYS}
        for _ in range(given.runs):
            sizes, sleeps = (INPUTS, width, width), np.full((15, RANKS), sleep)
            times["DDP"] += torch_loop.ddp_times(sizes, samples(), RANKS * OWN, sleeps)[3:]
            for way in WAYS:
                results, _ = coded_run(width, 15, sleep, *way)
                times[way] += next(r for r in results if r[0] == 0)[2][3:]
        besides = f", {1e3 * sleep:.0f} ms of sleep besides" if sleep else ""
        title = f"A step without faults; {RANKS} ranks, {OWN} samples each, {size}{besides}."
        head = ["redundancy", "batch", "median, ms", "p90, ms", "of DDP's"]
        rows = [timed(way, each, times["DDP"]) for way, each in times.items()]
        print(markdown_table(title, head, rows), flush=True)
    if not deaths:
        return
    rows = [struck(small, *way, min(deaths, 10)) for way in DEADLY]
    head = ["redundancy", "killed", "regroup, ms", "to the new sum", "longest"]
    print(markdown_table("Deaths that all others wait for.", head, rows), flush=True)
    rows = [faults(small, steps, *way, deaths) for way in DEADLY]
    head = ["redundancy", "killed", "steps", "lost", "largest error of a step", "regroup, ms"]
    head += ["longest", "group of one who joins, ms", "ranks at the end, copies the same"]
    print(markdown_table("With faults.", head, rows))


def timed(way, times, others):
    """Return a row of the table of steps."""
    name, stragglers = (way, 0) if way == "DDP" else way
    median, last = statistics.median(times), float(np.quantile(times, 0.9))
    return [
        f"{name}, s = {stragglers}" if stragglers else name,
        str(batch_of(name, stragglers)),
        f"{1e3 * median:.1f}",
        f"{1e3 * last:.1f}",
        f"{median / statistics.median(others):.2f}",
    ]


def struck(width, way, stragglers, deaths):
    """Return a row of how long ranks waited for a new sum after a death."""
    results = struck_run(width, way, stragglers, deaths)
    lost = [seconds for r in results for _, ranks, seconds in r[4] if ranks < RANKS]
    waited = [seconds for r in results for seconds in r[6]]
    seconds = statistics.median(lost), statistics.median(waited), max(waited)
    return [f"{way}, s = {stragglers}", str(deaths), *(f"{1e3 * t:.0f}" for t in seconds)]


def faults(width, steps, way, stragglers, deaths):
    """Run ranks with faults; return a row of results."""
    results, killed = coded_run(width, steps, PAUSE, way, stragglers, deaths)
    regroups = [each for r in results for each in r[4]]
    lost = [seconds for _, ranks, seconds in regroups if ranks < RANKS]
    joins = [seconds for _, ranks, seconds in regroups if ranks == RANKS]
    return [
        f"{way}, s = {stragglers}",
        str(killed),
        str(steps),
        str(sum(steps - r[1] for r in results)),
        f"{max(r[3] for r in results):.1e}",
        f"{statistics.median(lost) * 1e3:.0f}" if lost else "–",
        f"{max(lost) * 1e3:.0f}" if lost else "–",
        f"{statistics.median(joins) * 1e3:.0f}" if joins else "–",
        f"{len(results)}, {'yes' if len({r[5] for r in results}) == 1 else 'no'}",
    ]


if __name__ == "__main__":
    main()
