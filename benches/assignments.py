"""Workers of unequal speed: the assignments of `BinaryCode`, simulated.

``python benches/assignments.py`` prints tables in Markdown. Three tables have, for 27 clusters of
20 workers, the mean time of a round with each assignment, and with the one that
`fastgc.planning.plan` ranks first, on rounds that it has not seen: workers are interrupted; s
random workers of each round never answer; workers finish their computation.
"""

import argparse
import itertools

import numpy as np

from fastgc import BinaryCode
from fastgc._base.progress import markdown_table
from fastgc.delays import Heterogeneous, ShiftedExponential
from fastgc.planning import plan
from fastgc.planning.simulation import simulate

N, K = 20, 200
STRAGGLERS, SHARES = (1, 4, 9), (0.95, 0.5, 0.1)
ASSIGNMENTS = ("uniform", "classes", "aligned", "spread")


def clusters(n, seed):
    """Return speeds of workers, by the name of their distribution."""
    rng = np.random.default_rng(seed)
    return {
        "lognormal": rng.lognormal(0, 1, n),
        "uniform, 1 to 4": rng.uniform(1, 4, n),
        "two kinds, 1 and 4": rng.permutation(np.where(np.arange(n) < n // 2, 1.0, 4.0)),
    }


def lateness(speeds, share, unit=1.0):
    """Return delays with times ``unit / speed * (share + (1 - share) * Exp(1))`` a computation."""
    return Heterogeneous(
        [ShiftedExponential(share * unit / v, v / ((1 - share) * unit)) for v in speeds.tolist()]
    )


class Dead:
    """The same delays, except that s random workers of each round never answer."""

    per = "computation"

    def __init__(self, delays, dead):
        self.delays, self.dead = delays, dead

    def sample(self, round, workers, seed):
        """Return the times of one round."""
        return self.draw(np.random.default_rng((seed, round)), 1, workers)[0]

    def draw(self, rng, rounds, workers):
        """Return the times of many rounds."""
        times = self.delays.draw(rng, rounds, workers)
        order = rng.random((rounds, workers)).argsort(axis=1)
        return np.where(order < self.dead, 1e9, times)

    def tail_indices(self, workers):
        """No tail is heavy."""
        return np.full(workers, np.inf)


def coded(speeds, k, s, assignment):
    """Make a code."""
    return BinaryCode(speeds.size, k, stragglers=s, speeds=speeds.tolist(), assignment=assignment)


def sweep(rounds, seed, how):
    """Return a table of the clusters."""
    rows, ratios = [], []
    worst = dict.fromkeys((*ASSIGNMENTS, "auto"), 0.0)
    for (kind, speeds), s, share in itertools.product(
        clusters(N, seed).items(), STRAGGLERS, SHARES
    ):
        delays = lateness(speeds, share)
        if how == "dead":
            delays = Dead(delays, s)
        options = {"cost": 0.0, "delays": delays, "interrupted": how != "busy"}
        codes = {name: coded(speeds, K, s, name) for name in ASSIGNMENTS}
        found = plan(N, k=K, codes=[*codes.values()], rounds=10_000, seed=seed, **options)
        chosen = found.choices[0].code.assignment
        mean = {
            name: simulate(code, rounds=rounds, seed=seed + 1, **options).mean
            for name, code in codes.items()
        }
        mean["auto"] = mean[chosen]
        before = min(mean["uniform"], mean["classes"])
        for name in worst:
            worst[name] = max(worst[name], mean[name] / before)
        ratios.append((share, mean["auto"] / before, mean["auto"] / mean["classes"]))
        rows.append(
            [
                kind,
                str(s),
                f"{share:g}",
                *(f"{mean[name]:.3g}" for name in ASSIGNMENTS),
                chosen,
                f"{mean['auto'] / before:.3f}",
                f"{mean['auto'] / mean['classes']:.2f}",
            ]
        )
    varied = [ratio for share, _, ratio in ratios if share <= 0.5]
    said = {
        "plain": "workers are interrupted when a round is over",
        "dead": "s workers never answer, others in each round",
        "busy": "workers finish what they are at",
    }[how]
    title = (
        f"{N} workers, {K} partitions, {rounds} rounds, seed {seed}; {said}. Mean time of a round. "
        f"What is chosen takes at most {max(r for _, r, _ in ratios):.3f} of the better of the "
        f"first two; of classes, where the constant share is 0.5 or less, {np.median(varied):.2f} "
        f"in the median. At most of the better of the first two: "
        + ", ".join(f"{name} {ratio:.2f}" for name, ratio in worst.items() if name != "auto")
    )
    head = ["speeds", "s", "constant share", *ASSIGNMENTS, "chosen", "of the better", "of classes"]
    return markdown_table(title, head, rows)


def main():
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help="plain, dead, busy (default: all)")
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for name in given.tables or ("plain", "dead", "busy"):
        print(sweep(given.rounds, given.seed, name), flush=True, end="\n\n")


if __name__ == "__main__":
    main()
