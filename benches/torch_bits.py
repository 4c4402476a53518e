"""What it costs `ReactiveDataParallel` to have the same bits for any number of ranks (``shares=``).

    python benches/torch_bits.py [--quick] [--ranks 4] [--shares 12] [--batch 480]

Each rank trains two copies of a network of 1.4 million parameters, in turns: one with ``shares=K``,
and one whose ranks make the same K passes together, and sum gradients as float32. The first table
has the median time of a step of both. The second has the least time of the parts, in one process:
K gradients rounded and added as integers by the kernel, and by torch's conversions; and the same
sum of float32.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from fastgc._base.progress import markdown_table


def run_rank(stores: list[str], shares: int, batch: int, steps: int) -> None:
    """Be a rank; the first prints the median seconds of both kinds of step."""
    import torch
    from torch.nn.functional import cross_entropy

    from fastgc.torch import ReactiveDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(batch, 784), torch.randint(10, (batch,))

    def network():
        torch.manual_seed(0)
        layers = [torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 560)]
        return torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(560, 10))

    models = network(), network()

    def loss(model, indices):
        return cross_entropy(model(x[indices]), y[indices], reduction="sum")

    def passes(indices):
        parts = torch.as_tensor(indices).split(batch // shares)
        total = 0.0
        for part in parts[:-1]:
            found = loss(models[1], part)
            found.backward()
            total += float(found.detach())
        return loss(models[1], parts[-1]) + total

    def whole(indices):
        return loss(models[0], indices)

    seconds: list[list[float]] = [[], []]
    order = torch.arange(batch)
    with (
        ReactiveDataParallel(models[0], store=stores[0], shares=shares) as exact,
        ReactiveDataParallel(models[1], store=stores[1]) as plain,
    ):
        for _ in zip(exact.steps(steps), plain.steps(steps), strict=False):
            for at, (rdp, compute) in enumerate(((exact, whole), (plain, passes))):
                for p in models[at].parameters():
                    p.grad = None
                begin = time.perf_counter()
                rdp.backward(compute, order)
                seconds[at].append(time.perf_counter() - begin)
    if os.environ["RANK"] == "0":
        print(*(statistics.median(each[5:]) for each in seconds))


def parts(shares: int, repeats: int) -> list[tuple[str, float]]:
    """Return the least seconds of the parts of a sum, on one thread."""
    import torch

    from fastgc.kernels import threads
    from fastgc.torch import exact

    torch.set_num_threads(1)
    threads.set_num_threads(1)
    gradients = [torch.randn(1_400_000) for _ in range(shares)]
    total, out = torch.zeros(1_400_000, dtype=torch.int64), torch.empty(1_400_000)
    exponent = exact.exponent_of(10.0, shares)

    def kernel():
        for each in gradients:
            exact.add(total, each, exponent)

    def conversions():
        for each in gradients:
            total.add_(torch.round(each.double() * 2.0**exponent).long())

    def floats():
        for each in gradients:
            out.add_(each)

    def largest():
        for each in gradients:
            exact.largest(each)

    found = []
    for what, run in (
        (f"{shares} gradients rounded and added, by the kernel", kernel),
        ("the same by torch's conversions", conversions),
        ("the same without rounding, as float32", floats),
        (f"the largest modulus of {shares} gradients", largest),
        ("a sum turned back", lambda: exact.put_back(total, exponent, out)),
    ):
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
            total.zero_()
        found.append((what, min(times)))
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="20 steps instead of 60")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--shares", type=int, default=12)
    parser.add_argument("--batch", type=int, default=480)
    parser.add_argument("--rank", nargs=2, metavar="STORE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    steps = 20 if given.quick else 60
    if given.rank:
        run_rank(given.rank, given.shares, given.batch, steps)
        return
    from fastgc.torch.coordinator import Server

    servers = [Server("127.0.0.1").start() for _ in range(2)]
    command = [sys.executable, __file__, *sys.argv[1:], "--rank"]
    command += [f"127.0.0.1:{each.port}" for each in servers]
    ranks = []
    for rank in range(given.ranks):
        own = {"RANK": str(rank), "WORLD_SIZE": str(given.ranks), "OMP_NUM_THREADS": "1"}
        ranks.append(
            subprocess.Popen(command, env=os.environ | own, stdout=subprocess.PIPE, text=True)
        )
    try:
        exact, plain = map(float, ranks[0].communicate(timeout=600)[0].split())
    finally:
        for each in ranks:
            each.kill()
            each.communicate()
        for server in servers:
            server.close()
    print(
        markdown_table(
            f"{given.ranks} ranks, {given.shares} passes of {given.batch // given.shares} samples:",
            ["", "ms a step", "ratio"],
            [
                ["float32", f"{1e3 * plain:.1f}", "1.00"],
                ["shares=", f"{1e3 * exact:.1f}", f"{exact / plain:.2f}"],
            ],
        )
    )
    rows = [
        [what, f"{1e3 * each:.2f}"] for what, each in parts(given.shares, 5 if given.quick else 20)
    ]
    print("\n" + markdown_table("1,400,000 parameters, one thread:", ["", "ms"], rows))


if __name__ == "__main__":
    main()
