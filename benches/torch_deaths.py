"""Steps of `ReactiveDataParallel` beside DistributedDataParallel (gloo), deaths, and joins.

    python benches/torch_deaths.py [--seconds 170] [--quick]

Four processes with one thread each train a multilayer perceptron by SGD with momentum.

- Without faults: the same processes do steps of both in turn, for two sizes of the network.
- Deaths: one rank after another dies while the others wait for it in the sum, and is started again.
  The table has the time from the death to the new sum on the others, and, in all steps, the error
  of the gradient beside that of the whole batch.
- Joins: how much more memory ranks need in which nothing changes while another one joins.

Whatever happens, it ends after ``--seconds``: ranks that are left are killed, and what is missing
is said.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from fastgc._base.progress import markdown_table
from fastgc.torch import ReactiveDataParallel
from fastgc.torch.coordinator import Server

RANKS, BATCH, INPUTS, CLASSES = 4, 64, 256, 10
NETWORKS = {"0.7M": (690, 150), "9M": (2870, 60)}  # width, and steps beside DDP
BLOCK = 5  # steps of one kind in a row
DEATHS, APART = 12, 8  # and steps from one to the next
LATE = 0.1  # seconds by which a rank that dies in the sum is later than the others


def network(width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, CLASSES),
    )


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(20 * BATCH, INPUTS, generator=drawn)
    return x, torch.randint(CLASSES, (len(x),), generator=drawn)


def batch(step: int) -> torch.Tensor:
    return torch.randperm(20 * BATCH, generator=torch.Generator().manual_seed(step))[:BATCH]


def optimizer_of(module: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9)


def loss(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(module(x), y, reduction="sum")


def beside(rank: int, width: int, steps: int, port: int, found: Any) -> None:
    """Do steps of both kinds in turn."""
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, world_size=RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    x, y = samples()
    plain, own = network(width), network(width)
    ddp = DistributedDataParallel(plain)
    optimizers = optimizer_of(plain), optimizer_of(own)
    times: list[list[float]] = [[], []]
    with ReactiveDataParallel(own, [optimizers[1]]) as rdp:
        for step in rdp.steps(steps):
            begin = time.perf_counter()
            optimizers[1].zero_grad()
            rdp.backward(lambda i: loss(own, x[i], y[i]), batch(step))
            optimizers[1].step()
            times[1].append(time.perf_counter() - begin)
            if step % BLOCK < BLOCK - 1:
                continue
            for other in range(step - BLOCK + 1, step + 1):
                begin = time.perf_counter()
                optimizers[0].zero_grad()
                part = batch(other)[rank::RANKS]
                (loss(ddp, x[part], y[part]) * (RANKS / BATCH)).backward()
                optimizers[0].step()
                times[0].append(time.perf_counter() - begin)
    dist.destroy_process_group()
    found.put(("beside", rank, times))


def dying(rank: int, width: int, deaths: int, found: Any) -> None:
    """Train; ranks die in turn while the others wait for them."""
    module = network(width)
    optimizer = optimizer_of(module)
    x, y = samples()
    last: tuple[int, float] | None = None
    with ReactiveDataParallel(module, [optimizer]) as rdp:
        for step in rdp.steps(APART * (deaths + 1)):
            number, rest = divmod(step, APART)
            struck = number > 0 and rest == 0 and not rdp.alone
            optimizer.zero_grad()

            def compute(indices, struck=struck, number=number):
                value = loss(module, x[indices], y[indices])
                if struck and rank == number % RANKS and not found.struck(number):
                    time.sleep(LATE)
                    found.strike(number)
                    os.kill(os.getpid(), signal.SIGKILL)
                return value

            rdp.backward(compute, batch(step))
            now = time.monotonic()
            if struck and found.struck(number):
                last = number, now - found.struck(number)
                found.put(("waited", rank, last))
            own = torch.autograd.grad(
                loss(module, x[batch(step)], y[batch(step)]) / BATCH, list(module.parameters())
            )
            true = torch.cat([g.ravel() for g in own])
            wrong = torch.cat([p.grad.ravel() for p in module.parameters() if p.grad is not None])
            found.put(("error", rank, (step, float((wrong - true).norm() / true.norm()))))
            optimizer.step()
            if not rdp.alone:
                time.sleep(0.05)  # ranks that start again need the cores, too
    total = sum(p.detach().double().sum().item() for p in module.parameters())
    found.put(("end", rank, (rdp.step, total)))


def joined(rank: int, life: int, width: int, steps: int, found: Any) -> None:
    """Train; rank 1 ends in the middle, and joins again. Tell how much memory each rank had."""
    module = network(width)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-4)
    x, y = samples()
    with ReactiveDataParallel(module, [optimizer]) as rdp:
        before = 0
        for step in rdp.steps(steps):
            optimizer.zero_grad()
            rdp.backward(lambda i: loss(module, x[i], y[i]), batch(step))
            optimizer.step()
            if step == steps // 3:
                before = most()
                if rank == 1 and not life:
                    os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.02)
    found.put(("memory", rank, (life, before, most())))


def most() -> int:
    """Return the most memory that this process has had, in kB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


class Found:
    """What ranks tell: a pipe that a killed rank cannot leave locked, and times of deaths."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._deaths = mp.get_context("fork").Array("d", 100, lock=False)
        self._left, self._parts = b"", dict[bytes, bytes]()

    def put(self, what: Any) -> None:
        text = repr(what)
        for at in range(0, len(text), 2048):  # a line is written at once, so that none mix
            last = at + 2048 >= len(text)
            os.write(self._write, f"{os.getpid()} {last:d} {text[at : at + 2048]}\n".encode())

    def take(self) -> list[Any]:
        """Return what has come."""
        try:
            while got := os.read(self._read, 1 << 16):
                self._left += got
        except BlockingIOError:
            pass
        *lines, self._left = self._left.split(b"\n")
        whole = []
        for line in lines:
            pid, last, text = line.split(b" ", 2)
            self._parts[pid] = self._parts.get(pid, b"") + text
            if last == b"1":
                whole.append(eval(self._parts.pop(pid), {"nan": float("nan")}))
        return whole

    def struck(self, number: int) -> float:
        return self._deaths[number]

    def strike(self, number: int) -> None:
        self._deaths[number] = time.monotonic()


def ranks(run: Callable[..., None], until: float, again: bool = False) -> list[Any]:
    """Run ``run(rank, life, found)`` in each rank's process; return what they told."""
    found, told = Found(), []
    read, write = os.pipe()
    server = os.fork()
    if not server:
        try:
            own = Server("127.0.0.1")
            os.write(write, str(own.port).encode())
            own.run()
        finally:
            os._exit(1)
    os.environ["FASTGC_STORE"] = f"127.0.0.1:{os.read(read, 10).decode()}"
    os.environ["WORLD_SIZE"] = str(RANKS)

    def start(rank: int, life: int) -> int:
        if pid := os.fork():
            return pid
        status = 1
        try:
            os.environ["RANK"] = str(rank)
            run(rank, life, found)
            status = 0
        except Exception as error:
            found.put(("raised", rank, str(error)))
        finally:
            os._exit(status)

    lives = dict.fromkeys(range(RANKS), 0)
    pids = {rank: start(rank, 0) for rank in lives}
    try:
        while pids and time.monotonic() < until:
            told += found.take()
            for rank, pid in list(pids.items()):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done and again and os.WIFSIGNALED(status):
                    lives[rank] += 1
                    pids[rank] = start(rank, lives[rank])
                elif done:
                    del pids[rank]
            time.sleep(0.005)
    finally:
        if pids:
            print(f"Ranks {sorted(pids)} were not done in time, and are killed.", flush=True)
        for pid in [server, *pids.values()]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    told += found.take()
    for what, rank, why in told:
        if what == "raised":
            print(f"Rank {rank} raised: {why}", flush=True)
    return told


def beside_ddp(end: float) -> str:
    """Return the table of steps without faults."""
    rows = []
    for name, (width, steps) in NETWORKS.items():
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]

        def run(rank, life, found, width=width, steps=steps, port=port):
            beside(rank, width, steps, port, found)

        told = _of(ranks(run, min(end, time.monotonic() + 60.0)), "beside")
        plain, own = ([t for _, _, both in told for t in both[at][BLOCK:]] for at in (0, 1))
        if plain:
            times = [f(each) for f in (statistics.median, min) for each in (plain, own)]
            ratios = times[1] / times[0], times[3] / times[2]
            cells = [f"{1e3 * each:.1f}" for each in times] + [f"{each:.2f}" for each in ratios]
            rows.append([f"{name} parameters", *cells])
    head = ["network", "DDP, median ms", "ours", "DDP, least ms", "ours", "of DDP's", "of least"]
    return markdown_table(f"A step without faults; {RANKS} ranks in turn.", head, rows)


def while_ranks_die(end: float) -> str:
    """Return the table of deaths."""
    told = ranks(
        lambda rank, life, found: dying(rank, 400, DEATHS, found),
        min(end, time.monotonic() + 45.0),
        again=True,
    )
    waited = [1e3 * value for _, _, (_, value) in _of(told, "waited")]
    errors = [error for _, _, (_, error) in _of(told, "error")]
    ends = [value for _, _, value in _of(told, "end")]
    row = [
        str(len({number for _, _, (number, _) in _of(told, "waited")})),
        f"{statistics.median(waited):.0f}" if waited else "–",
        f"{max(waited):.0f}" if waited else "–",
        str(len(ends)),
        str(sum(APART * (DEATHS + 1) - step for step, _ in ends)),
        f"{max(errors, default=float('nan')):.1e}",
        "yes" if len({total for _, total in ends}) == 1 else "no",
    ]
    head = ["deaths", "to the new sum, ms", "longest", "ranks at the end", "steps lost"]
    head += ["largest error", "copies the same"]
    return markdown_table("Deaths that all others wait for.", head, [row])


def while_one_joins(end: float) -> str:
    """Return the table of memory."""
    width = NETWORKS["9M"][0]
    told = ranks(lambda rank, life, found: joined(rank, life, width, 60, found), end, again=True)
    rows = [
        [
            str(rank) + (", joined" if life else ""),
            f"{before / 1024:.0f}" if before else "–",
            f"{after / 1024:.0f}",
            f"{after / before:.2f}" if before else "–",
        ]
        for _, rank, (life, before, after) in sorted(_of(told, "memory"))
    ]
    head = ["rank", "before, MiB", "after the join", "times"]
    return markdown_table("The most memory of each rank, before and after a join.", head, rows)


def _of(told: list[Any], what: str) -> list[Any]:
    return [each for each in told if each[0] == what]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=170.0, help="time after which it ends")
    parser.add_argument("--quick", action="store_true", help="a third of the steps and deaths")
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    if given.quick:
        global DEATHS
        DEATHS //= 3
        NETWORKS.update({name: (width, steps // 3) for name, (width, steps) in NETWORKS.items()})
    torch.set_num_threads(1)
    optimizer_of(network(4))  # imports what each rank would
    for table in (beside_ddp, while_ranks_die, while_one_joins):
        print(table(end), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
