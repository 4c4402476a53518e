"""Partial work beside other codes: simulated, or measured under MPI.

    python benches/partial_work.py
    mpiexec -n 9 python -m mpi4py benches/partial_work.py

The first command simulates rounds. It prints their mean time over that of UC-MMC with the same
load, and messages received per worker: without a link, and with a master's link that takes a
twentieth of a mean computation for each message, and as long for the round trip of asking. The
second command runs rounds on the ranks of a job, with the codes in turn on the same delays. It
prints medians of whole rounds, decoding included, because the machine may be busy.
"""

import sys
import warnings

import numpy as np

import fastgc
from fastgc.delays import parse
from fastgc.errors import InstabilityWarning
from fastgc.planning.simulation import simulate

warnings.simplefilter("ignore", InstabilityWarning)  # only times matter here

CODES = ("partial-work", "uc-mmc", "binary", "rs-clustered", "rs", "uncoded")
DELAYS = (
    "shifted-exponential:shift=0.01,rate=100,per=computation",
    "shifted-exponential:shift=0.01,rate=1000,per=computation",
    "exponential:mean=0.01",
    "pareto:scale=0.005,shape=2.5",
)
COST = 0.002  # seconds of a computation if delays are per round
SIZES = ((20, 3), (20, 5), (20, 8), (80, 5))  # workers and load
ROUNDS = 2000


def simulated():
    """Print one table for each model of delays."""
    for text in DELAYS:
        model = parse(text)
        of_computation = model.per == "computation"
        cost = 0.0 if of_computation else COST
        one = model.mean() if of_computation else COST
        print(f"\n{text}" + (f", {COST} s a computation" if cost else ""))
        print("|  | " + " | ".join(CODES) + " |\n|---|" + "---:|" * len(CODES))
        for n, load in SIZES:
            for link in (0.0, one / 20):
                runs = {
                    name: simulate(
                        fastgc.codes.make(name, n, stragglers=load - 1),
                        model,
                        cost=cost,
                        receive=link,
                        request=link,
                        rounds=ROUNDS,
                    )
                    for name in CODES
                }
                usual = runs["uc-mmc"].mean
                cells = [
                    f"{run.mean / usual:.2f} ({run.mean_messages / n:.2f})" for run in runs.values()
                ]
                what = f"n = {n}, load {load}" + (f", {1e3 * link:.2g} ms" if link else "")
                print(f"| {what} | " + " | ".join(cells) + " |")


def measured(p, rounds=100):
    """Print medians on rank 0."""
    from mpi4py import MPI

    from fastgc.engines.mpi import MPICluster

    n = MPI.COMM_WORLD.size - 1
    names = ("partial-work:load=4", "uc-mmc:load=4", "binary:stragglers=3")
    shards = list(np.random.default_rng(0).standard_normal((n, 8)))
    shards = [np.tile(shard, p // 8) for shard in shards]
    times, messages = {name: [] for name in names}, {name: [] for name in names}
    model = parse("shifted-exponential:shift=0.005,rate=100,per=computation")
    for part in range(4):  # codes take turns, because the machine may be busy
        for name in names:
            code = fastgc.codes.make(name, n)
            if MPICluster.serve():
                continue
            options = {"delays": model, "first_round": part * rounds}
            with MPICluster(code, shards, np.multiply, p, **options) as cluster:
                theta, out = np.ones(p), np.empty(p)
                for _ in range(rounds // 4):
                    report = cluster.step(theta, out)
                    times[name].append(report.wait_seconds + report.decode_seconds)
                    messages[name].append(report.messages)
    if MPI.COMM_WORLD.rank == 0:
        usual = np.median(times[names[1]])
        for name in names:
            ratio = np.median(times[name]) / usual
            print(
                f"{p:8} elements, {name:20} {1e3 * np.median(times[name]):6.1f} ms, "
                f"{ratio:.2f} times UC-MMC's, {np.mean(messages[name]) / n:.2f} messages a worker"
            )


if __name__ == "__main__":
    if "mpi4py" in sys.modules:
        for p in (1_000, 100_000, 1_000_000):
            measured(p)
    else:
        simulated()
