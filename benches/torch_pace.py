"""How near steps of `ReactiveDataParallel` come to the least time that ranks of unequal pace allow.

    python benches/torch_pace.py [--quick] [--paces 3,3,3,1] [--ms 180]

Four ranks compute, or rather sleep, so that cores do not matter: a rank of pace 3 takes a third of
the time of one of pace 1 for a sample. No step can be shorter than the batch's size divided by the
sum of the paces of the ranks that live. The table has the times of steps, relative to that bound:

- paces that stay: steps 20 and later;
- a pace that changes: the first rank becomes three times slower at one third of the run, and is as
  fast as before at two thirds; 20 steps and more after a change;
- two deaths, at one third and two thirds, of ranks 1 and 2; 20 steps and more after each;
- and each run as a whole, with its first steps, changes and deaths.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time

from fastgc._base.progress import markdown_table

CASES = ("paces that stay", "a pace that changes", "two deaths")
BATCH, SETTLED = 600, 20


def pace_of(case: str, rank: int, step: int, paces: list[float], third: int) -> float:
    """Return a rank's pace in a step; 0: it is dead."""
    if case == "a pace that changes" and rank == 0 and third <= step < 2 * third:
        return paces[rank] / 3
    if case == "two deaths" and rank in (1, 2) and step >= rank * third:
        return 0.0
    return paces[rank]


def run_rank(case: str, paces: list[float], unit: float, third: int) -> None:
    """Be a rank; the first prints the seconds of each step."""
    import torch

    from fastgc.torch import ReactiveDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    x = torch.randn(BATCH, 4)
    rank = int(os.environ["RANK"])
    now = 0

    def compute(indices):
        pace = pace_of(case, rank, now, paces, third)
        if not pace:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(len(indices) * unit / pace)
        return model(x[indices]).sum()

    with ReactiveDataParallel(model) as rdp:
        begin = time.perf_counter()
        for now in rdp.steps(3 * third):  # noqa: B007
            rdp.backward(compute, range(BATCH))
            end = time.perf_counter()
            if rank == 0:
                print(f"step {end - begin:.6f}", flush=True)
            begin = end


def measure(case: str, paces: list[float], unit: float, third: int) -> list[float]:
    """Return the seconds of each step."""
    from fastgc.torch.coordinator import Server

    server = Server("127.0.0.1").start()
    command = [sys.executable, __file__, "--rank", case]
    command += ["--paces", ",".join(map(str, paces)), "--unit", str(unit), "--third", str(third)]
    store = {"FASTGC_STORE": f"127.0.0.1:{server.port}", "WORLD_SIZE": str(len(paces))}
    ranks = [
        subprocess.Popen(
            command,
            env=os.environ | store | {"RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(len(paces))
    ]
    try:
        printed, _ = ranks[0].communicate(timeout=300)
    finally:
        for each in ranks:
            each.kill()
            each.wait()
        server.close()
    return [float(line.split()[1]) for line in printed.splitlines() if line.startswith("step")]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="75 steps of 60 ms")
    parser.add_argument("--paces", default="3,3,3,1")
    parser.add_argument("--ms", type=float, help="the bound while all live (180)")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--unit", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--third", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    paces = [float(each) for each in given.paces.split(",")]
    if given.rank:
        run_rank(given.rank, paces, given.unit, given.third)
        return
    bound = 1e-3 * (given.ms or (60.0 if given.quick else 180.0))
    unit, third = bound * sum(paces) / BATCH, 25 if given.quick else 40
    rows = []
    for case in CASES:
        found = measure(case, paces, unit, third)
        least = [
            BATCH * unit / sum(pace_of(case, r, step, paces, third) for r in range(len(paces)))
            for step in range(3 * third)
        ]
        ratios = [a / b for a, b in zip(found, least, strict=True)]
        phase = third if case != CASES[0] else 3 * third
        settled = [ratio for step, ratio in enumerate(ratios) if step % phase >= SETTLED]
        rows.append(
            [
                case,
                f"{statistics.median(settled):.3f}",
                f"{sum(settled) / len(settled):.3f}",
                f"{sum(found) / sum(least):.3f}",
            ]
        )
    head = ["", "settled steps, median", "their mean", "the whole run"]
    title = f"Times of steps relative to the bound, {1e3 * bound:.0f} ms while all ranks live:"
    print(markdown_table(title, head, rows))


if __name__ == "__main__":
    main()
