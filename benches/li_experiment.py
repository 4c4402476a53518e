"""Li et al.'s experiment (section III-C): logistic regression with artificial delays, on MPI.

Run as ``mpiexec -n 51 python benches/li_experiment.py`` for scenario one, 50 workers, or ``-n 101``
for scenario two. The uncoded scheme, cyclic repetition and BCC run the same training by Nesterov's
method one after another. All ranks may share a processor, because delays are artificial: each
worker sleeps for an exponential time in each round, and each message keeps the master's link busy.
The two constants are those of `python -m benches.papers li-tables` for the paper's tables.

By default the samples are few and short, so that computing takes no time compared to the delays.
The paper's own size, ``--features 8000 --points 100``, needs a processor and 64 MB for each rank.

It prints a table, or rows with ``--json``: workers waited for; seconds of all rounds, and their
ratio to the first scheme's; the seconds that `simulate` predicts for workers that finish their
message; the relative difference of the parameters from the first scheme's; and the paper's seconds
for as many rounds.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from papers.li import DELAY, ITERATIONS, MESSAGE, SCENARIOS, SCHEMES, TABLE_LOAD

from fastgc import Code, CouponCollector, CyclicRepetition, Uncoded
from fastgc.coding.round import Round
from fastgc.delays import Exponential
from fastgc.engines.mpi import MPICluster
from fastgc.planning.simulation import simulate
from fastgc.training.optimizers import Nesterov

Array = NDArray[Any]
Shard = tuple[int, int, int, int]  # seed, batch, points, features, from which a batch is drawn


@cache
def samples(shard: Shard) -> tuple[Array, Array]:
    """Draw features and labels of a batch: a mixture of two Gaussians, labels by a logistic law."""
    seed, batch, points, features = shard
    weights = np.random.default_rng(seed).choice([-1.0, 1.0], features)  # true weights of all
    rng = np.random.default_rng([seed, batch])
    centre = 1.5 / features * weights
    X = rng.choice([-1.0, 1.0], (points, 1)) * centre + rng.standard_normal((points, features))
    positive = rng.random(points) < 1 / (np.exp(X @ weights) + 1)
    return X, np.where(positive, 1.0, -1.0)


def logistic(theta: Array, shard: Shard, out: Array) -> None:
    """Write the gradient of the logistic loss, log(1 + exp(-y x'theta)), summed over a batch."""
    X, y = samples(shard)
    out[:] = (-y / (1 + np.exp(y * (X @ theta)))) @ X


class LinkedRound(Round):
    """A round whose messages each keep the master's link busy for `seconds`."""

    seconds = 0.0

    def receive(self, *args: Any, **keywords: Any) -> bool:
        """Take a message after its time on the link."""
        time.sleep(self.seconds)
        return super().receive(*args, **keywords)


class Late:
    """Exponential delays, except in the first round, which is not measured."""

    per = "round"

    def __init__(self, mean: float) -> None:
        self._model = Exponential(mean=mean)

    def sample(self, round: int, workers: int, seed: int) -> NDArray[np.float64]:
        """Return the delay of each worker in seconds."""
        return self._model.sample(round, workers, seed) if round else np.zeros(workers)


def shards_of(code: Code, run: argparse.Namespace) -> list[Shard]:
    """Return the seeds and sizes of all batches; workers draw theirs themselves."""
    return [(run.seed, batch, run.points, run.features) for batch in range(code.k)]


def train(code: Code, run: argparse.Namespace) -> tuple[float, float, Array]:
    """Train; return the seconds of all rounds, mean workers waited for, and final parameters."""
    count = run.points * code.k
    # The smoothness per sample is about (1 + sqrt(p / N))^2 / 4, because features are independent.
    optimizer = Nesterov(4 / count / (1 + np.sqrt(run.features / count)) ** 2)
    optimizer.reset(np.zeros(run.features))
    gradient = np.empty(run.features)
    rnd = LinkedRound(code, run.features)
    heard = 0
    with MPICluster(
        code, shards_of(code, run), logistic, run.features, delays=Late(run.delay), seed=run.seed
    ) as cluster:
        rnd.seconds = 0.0
        cluster.collect(optimizer.point, rnd)
        time.sleep(0.5)  # until all workers have answered
        rnd.seconds = run.message
        start = time.perf_counter()
        for _ in range(run.rounds):
            rnd.reset()
            heard += cluster.collect(optimizer.point, rnd).survivors.size
            optimizer.step(rnd.gradient(gradient))
        seconds = time.perf_counter() - start
    return seconds, heard / run.rounds, optimizer.theta.copy()


def codes(n: int, run: argparse.Namespace) -> list[Code]:
    """Return the paper's codes, in its order."""
    return [
        Uncoded(n),
        CyclicRepetition(n, stragglers=run.load - 1),
        CouponCollector(n, load=run.load, seed=run.seed),
    ]


def measure(comm: MPI.Intracomm, run: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each scheme on rank 0; the other ranks serve."""
    n = comm.size - 1
    scenario = next((each for each in SCENARIOS if each.n == n), None)
    rows: list[dict[str, Any]] = []
    known: Array | None = None
    for at, (name, code) in enumerate(zip(SCHEMES, codes(n, run), strict=True)):
        if comm.rank:
            shards = shards_of(code, run)
            for batch in code.partitions(comm.rank - 1).tolist():
                samples(shards[batch])
        comm.Barrier()
        if MPICluster.serve(comm):
            continue
        seconds, heard, theta = train(code, run)
        known = theta if known is None else known
        expected = simulate(
            code,
            Exponential(mean=run.delay),
            receive=run.message,
            rounds=2000,
            interrupted=False,
        )
        row = {
            "scheme": name,
            "workers": heard,
            "seconds": seconds,
            "ratio": seconds / rows[0]["seconds"] if rows else 1.0,
            "simulated": run.rounds * expected.mean,
            "difference": float(np.linalg.norm(theta - known) / np.linalg.norm(known)),
        }
        if scenario is not None:
            paper = np.add(scenario.communication, scenario.computation) * run.rounds / ITERATIONS
            row |= {"paper": float(paper[at]), "paper's ratio": float(paper[at] / paper[0])}
        rows.append(row)
    return rows


def main() -> None:
    """Train with each scheme, and print its times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=int, default=200, help="p; the paper's: 8000")
    parser.add_argument("--points", type=int, default=10, help="of a batch; the paper's: 100")
    parser.add_argument("--rounds", type=int, default=ITERATIONS)
    parser.add_argument("--load", type=int, default=TABLE_LOAD, help="batches of a worker, r")
    parser.add_argument("--delay", type=float, default=DELAY, help="seconds, on average")
    parser.add_argument("--message", type=float, default=MESSAGE, help="seconds on the link")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    run = parser.parse_args()
    comm = MPI.COMM_WORLD
    if comm.size <= run.load:
        parser.error(f"needs more workers than a load of {run.load}: mpiexec -n 51 python ...")
    rows = measure(comm, run)
    if comm.rank:
        return
    if run.json:
        print(json.dumps(rows))
        return
    heads = [head for head in rows[0] if head != "scheme"]
    print("| scheme |", " | ".join(heads), "|")
    print("| --- |", " | ".join("---:" for _ in heads), "|")
    for row in rows:
        print("|", row["scheme"], "|", " | ".join(f"{row[head]:.3g}" for head in heads), "|")


if __name__ == "__main__":
    main()
