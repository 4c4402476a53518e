"""How near steps of `ReactiveDataParallel` come to the least time that ranks of unequal pace allow.

    python benches/torch_pace.py [--quick] [--paces 3,3,3,1] [--ms 180]

Four ranks compute, or rather sleep, so that cores do not matter: a rank of pace 3 takes a third of
the time of one of pace 1 for a sample. No step can be shorter than the batch's size divided by the
sum of the paces of the ranks that live. The table has steps' times relative to that bound, by the
clock, and by the shares alone: what the slowest share takes. The second tells more if other
programs run.

- paces that stay: steps 20 and later;
- a pace that changes: the first rank becomes three times slower at one third of the run, and is as
  fast as before at two thirds; 20 steps and more after a change;
- two deaths, at one third and two thirds, of ranks 1 and 2; 20 steps and more after each;
- and each run as a whole, with its first steps, changes and deaths.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from fastgc._base.progress import markdown_table
from fastgc.torch import ReactiveDataParallel
from fastgc.torch.coordinator import Server

CASES = ("paces that stay", "a pace that changes", "two deaths")
BATCH, SETTLED = 600, 20


def pace_of(case: str, rank: int, step: int, paces: list[float], third: int) -> float:
    """Return a rank's pace in a step; 0: it is dead."""
    if case == "a pace that changes" and rank == 0 and third <= step < 2 * third:
        return paces[rank] / 3
    if case == "two deaths" and rank in (1, 2) and step >= rank * third:
        return 0.0
    return paces[rank]


def run_rank(case: str, paces: list[float], unit: float, third: int, told: int) -> None:
    """Be a rank, which tells how many samples it computes in each step, and how long that takes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    x = torch.randn(BATCH, 4)
    rank = int(os.environ["RANK"])
    step = count = 0

    def compute(indices):
        nonlocal count
        pace = pace_of(case, rank, step, paces, third)
        if not pace:
            os.kill(os.getpid(), signal.SIGKILL)
        if torch.is_grad_enabled():  # not while the loss is tried
            time.sleep(len(indices) * unit / pace)
            count += len(indices)
        return model(x[indices]).sum()

    with ReactiveDataParallel(model) as rdp:
        begin = time.perf_counter()
        for step in rdp.steps(3 * third):
            count = 0
            rdp.backward(compute, range(BATCH))
            end = time.perf_counter()
            os.write(told, f"{rank} {step} {count} {end - begin:.6f}\n".encode())
            begin = end


def forked(run: Callable[[], None]) -> int:
    """Run a function in a fork of this process; return its number."""
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(0)
    return pid


def measure(
    case: str, paces: list[float], unit: float, third: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of each step, and those that its slowest share takes."""
    server = Server("127.0.0.1")
    reads, told = os.pipe()
    names = {"FASTGC_STORE": f"127.0.0.1:{server.port}", "WORLD_SIZE": str(len(paces))}
    pids = [forked(server.run)]
    for rank in range(len(paces)):
        os.environ |= names | {"RANK": str(rank)}
        pids.append(forked(lambda: run_rank(case, paces, unit, third, told)))
    os.close(told)
    seconds, slowest = [0.0] * (3 * third), [0.0] * (3 * third)
    with os.fdopen(reads) as lines:
        for line in itertools.islice(lines, sum(1 for _ in steps_of(case, paces, third))):
            rank, step, count, took = (float(each) for each in line.split())
            at = int(step)
            if rank == 0:
                seconds[at] = took
            share = count * unit / pace_of(case, int(rank), at, paces, third)
            slowest[at] = max(slowest[at], share)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return seconds, slowest


def steps_of(case: str, paces: list[float], third: int) -> Iterator[tuple[int, int]]:
    """Yield the ranks that live in each step, and the step."""
    for step in range(3 * third):
        for rank in range(len(paces)):
            if pace_of(case, rank, step, paces, third):
                yield rank, step


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="75 steps of 60 ms")
    parser.add_argument("--paces", default="3,3,3,1")
    parser.add_argument("--ms", type=float, help="the bound while all live (180)")
    given = parser.parse_args()
    paces = [float(each) for each in given.paces.split(",")]
    bound = 1e-3 * (given.ms or (60.0 if given.quick else 180.0))
    unit, third = bound * sum(paces) / BATCH, 25 if given.quick else 40
    rows = []
    for case in CASES:
        seconds, slowest = measure(case, paces, unit, third)
        least = [
            BATCH * unit / sum(pace_of(case, r, step, paces, third) for r in range(len(paces)))
            for step in range(3 * third)
        ]
        phase = third if case != CASES[0] else 3 * third
        settled = [step for step in range(3 * third) if step % phase >= SETTLED]
        row = [case]
        for found in (seconds, slowest):
            row.append(f"{statistics.median(found[t] / least[t] for t in settled):.3f}")
            row.append(f"{sum(found[t] / least[t] for t in settled) / len(settled):.3f}")
        rows.append([*row, f"{sum(seconds) / sum(least):.3f}", f"{sum(slowest) / sum(least):.3f}"])
    head = ["", "settled, median", "mean", "by shares, median", "mean", "whole run", "by shares"]
    title = f"Times of steps relative to the bound, {1e3 * bound:.0f} ms while all ranks live:"
    print(markdown_table(title, head, rows))


if __name__ == "__main__":
    main()
