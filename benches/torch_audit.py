"""The cost of audits of `CodedAllReduce`, and how soon they name a rank that errs.

    python benches/torch_audit.py [--quick] [--every 50] [--width 3000] [--faulty 20]

Each process has one thread, and trains a multilayer perceptron by SGD with momentum. The cost of an
audit is the median time of an audited step less that of another step, in a run in which every third
step is audited. With reactive redundancy it is then spread over ``--every`` steps; with proactive
redundancy, which compares copies in each step, it is not. If ranks share cores, the time in which
they compute tells more than the time that passes.

In runs with a fault and reactive redundancy, a random rank computes wrong gradients from a random
step on, its own as well as those of audits. One number is multiplied by 1.5, changes its sign, has
the highest or lowest bit of its exponent turned, or is NaN; or all numbers are a hundredth too
large; or the rank errs in one step alone. With proactive redundancy there are four copies, or two
pairs. One bit of a number is turned in one step of a random rank, each bit in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch_deaths import loss, network, samples
from torch_loop import optimizer_of

import fastgc
from fastgc._base.progress import markdown_table
from fastgc.errors import CorruptMessageError
from fastgc.torch import CodedAllReduce, CodedSampler

RANKS, OWN = 4, 64  # OWN: samples of a rank in a step


def flip(bit):
    def fault(numbers, at):
        numbers.view(torch.int32)[at] ^= (1 << bit) - ((1 << 32) if bit == 31 else 0)

    return fault


def scale(factor):
    def fault(numbers, at):
        numbers[at] *= factor

    return fault


FAULTS = {
    "one number times 1.5": scale(1.5),
    "one sign": scale(-1.0),
    "highest bit of an exponent": flip(30),
    "lowest bit of an exponent": flip(23),
    "NaN": scale(float("nan")),
    "all numbers times 1.01": lambda numbers, at: numbers.mul_(1.01),
    "one step alone, times 100": scale(100.0),
}
TURNED = {f"bit {bit}": flip(bit) for bit in range(32)}


def trained(rank, port, jobs, found):
    """Run one training after another on a rank."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    found.put((rank, [train(rank, store, *job) for job in jobs]))


def train(rank, store, redundancy, stragglers, width, steps, every, faults):
    """Train; return the times of steps, and the faults seen: (step, rank, whether left out).

    Return None if this rank was left out. `faults` has entries (name, rank, first step, end). With
    pairs of copies, both ranks of a pair are suspects, and compute the step again without a fault.
    """
    module, data = network(width), samples()
    code = fastgc.BinaryCode(RANKS, stragglers=stragglers)
    optimizer, batch = optimizer_of(module), RANKS * OWN
    sampler, times, pairs = CodedSampler(data, code, batch, rank), [], []

    def compute(indices):
        (loss(module, data[indices]) / batch).backward()
        again = pairs and pairs[-1][0] == all_reduce.step
        for name, faulty, since, until in faults:
            if rank == faulty and since <= all_reduce.step < until and not again:
                with torch.no_grad():
                    last = module[-1].weight.grad.view(-1)
                    (FAULTS | TURNED)[name](last, int(last.abs().argmax()))

    options = {"redundancy": redundancy, "audit": every}
    if redundancy == "reactive":
        options["recompute"] = compute
    all_reduce = CodedAllReduce(
        module, code, sampler=sampler, state=[optimizer], store=store, rank=rank, **options
    )
    try:
        with all_reduce:
            while all_reduce.step < steps:
                for own in sampler:
                    begin = time.perf_counter(), time.process_time()
                    reduced = False
                    while not reduced:
                        optimizer.zero_grad()
                        compute(own)
                        try:
                            all_reduce()
                            reduced = True
                        except CorruptMessageError as error:
                            if len(error.suspects) == 1:
                                raise
                            pairs += [(all_reduce.step, r, False) for r in error.suspects]
                    optimizer.step()
                    end = time.perf_counter(), time.process_time()
                    times.append((end[0] - begin[0], end[1] - begin[1]))
                    if all_reduce.step == steps:
                        break
    except CorruptMessageError:
        return None
    return times, [tuple(each) for each in all_reduce.faults] + pairs


def run(jobs):
    """Run trainings with these arguments on all ranks; return each training's results by rank."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    found = mp.get_context("spawn").Manager().Queue()
    mp.spawn(trained, (store.port, jobs, found), RANKS)
    each_rank = dict(found.get() for _ in range(found.qsize()))
    return [{r: each_rank[r][at] for r in sorted(each_rank)} for at in range(len(jobs))]


def cost(redundancy, width, steps, every):
    """Return a row of the table of what audits cost."""
    results = run([(redundancy, 1, width, steps, 3, [])])[0].values()
    row, shares = [redundancy], []
    for clock in (0, 1):
        each = [[step[clock] for step in times[3:]] for times, _ in results]
        audited = statistics.median(t for times in each for t in times[::3])
        plain = statistics.median(t for times in each for t in (*times[1::3], *times[2::3]))
        more = audited - plain
        row += [f"{1e3 * plain:.1f}", f"{1e3 * audited:.1f}"]
        shares.append(f"{100 * more / (every * plain + more):.1f} %")
    return [*row, str(every), *shares]


def turned(often):
    """Return rows: bits turned in one step, how many were found then, and other ranks accused."""
    rng, rows, faults = np.random.default_rng(1), [], []
    for number in range(32 * often):
        since = 2 + 5 * number  # far enough apart that a rank that erred once is forgiven
        faults.append((f"bit {number // often}", int(rng.integers(RANKS)), since, since + 1))
    steps = faults[-1][-1] + 1
    ways = (("four", RANKS - 1, 1), ("two", 1, 2))
    jobs = [("proactive", stragglers, 100, steps, 1, faults) for _, stragglers, _ in ways]
    for (copies, _, accused), results in zip(ways, run(jobs), strict=True):
        seen = [(step, rank) for step, rank, _ in results[0][1]]
        for what, bits in (("sign or exponent", range(23, 32)), ("fraction", range(23))):
            of = faults[bits[0] * often : (bits[-1] + 1) * often]
            found = sum((since, who) in seen for _, who, since, _ in of)
            others = sum(step in [since for *_, since, _ in of] for step, _ in seen)
            others -= accused * found
            rows.append([copies, what, str(len(of)), str(found), str(others)])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small module, few steps and runs")
    parser.add_argument("--every", type=int, default=50, help="steps from one audit to the next")
    parser.add_argument("--width", type=int, default=3000, help="of layers; 3000: 9.8M parameters")
    parser.add_argument("--faulty", type=int, default=21, help="runs with a fault")
    parser.add_argument("--cost-only", action="store_true", help="no runs with a fault")
    given = parser.parse_args()
    width, steps, faulty, often = given.width, 63, given.faulty, 3
    if given.quick:
        width, steps, faulty, often = 100, 23, len(FAULTS), 1
    torch.set_num_threads(1)
    parameters = sum(p.numel() for p in network(width).parameters())
    title = f"{RANKS} ranks, {OWN} samples each, {parameters / 1e6:.1f}M parameters."
    head = ["redundancy", "a step, ms", "an audited one", "of it computing", "an audited one"]
    head += ["every", "share of audits", "of computing"]
    ways = ("reactive", given.every), ("proactive", 1)
    rows = [cost(redundancy, width, steps, every) for redundancy, every in ways]
    print(markdown_table(title, head, rows), flush=True)
    if given.cost_only:
        return
    rng, jobs, outcomes = np.random.default_rng(0), [], {}
    every = 5  # more audits than usual tell the same in less time
    for number in range(faulty):
        name = list(FAULTS)[number % len(FAULTS)]
        who, since = int(rng.integers(RANKS)), int(rng.integers(3, 3 + 2 * every))
        steps = until = since + 3 * every
        if "alone" in name:
            since -= since % every  # otherwise no audit sees it
            until = since + 1
        jobs.append(("reactive", 1, 100, steps, every, [(name, who, since, until)]))
    for (*_, [fault]), results in zip(jobs, run(jobs), strict=True):
        outcomes.setdefault(fault[0], []).append(outcome(results, *fault[1:3], every))
    rows = []
    for name, each in outcomes.items():
        audits = [a for a, _, _ in each if a is not None]
        rows.append(
            [
                name,
                str(len(each)),
                str(len(audits)),
                str(max(audits)) if audits else "–",
                str(sum(seen for _, seen, _ in each)),
                str(sum(others for _, _, others in each)),
            ]
        )
    head = ["fault", "runs", "rank left out", "audits until then", "seen", "others accused"]
    print(markdown_table("Ranks that err.", head, rows), flush=True)
    head = ["copies", "bit turned", "runs", "found in the step", "others accused"]
    print(markdown_table("Bits turned in one step.", head, turned(often)))


def outcome(results, who, since, every):
    """Return audits until the rank was left out or None, whether it was seen, others accused."""
    faults = next(each[1] for rank, each in results.items() if rank != who)
    out = [step for step, rank, left_out in faults if rank == who and left_out]
    seen = [step for step, rank, _ in faults if rank == who]
    # Audits that missed the fault, and audits that saw it.
    missed = sum(step % every == 0 for step in range(since, seen[0])) if seen else 0
    audits = missed + len(seen) if out else None
    return audits, bool(seen), sum(rank != who for _, rank, _ in faults)


if __name__ == "__main__":
    main()
