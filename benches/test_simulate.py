"""`simulate` against lines of NumPy that a user would write: draw all delays, and partition them.

The lines give only times, no messages and no computations. If the rule of a code needs more than
three lines (binary codes), they compute the times of a code of the same threshold that any workers
satisfy, which is less work.
"""

import numpy as np
import pytest
from measure import seconds

from fastgc import codes
from fastgc.delays import Exponential, Pareto
from fastgc.planning.simulation import simulate

DRAWN = 400_000  # delays drawn
COST = 1e-4  # seconds per partition
REPEATS = 7
SIZES = ((20, 4), (80, 12), (1000, 100))
CODES = ("rs", "lcc", "rs-clustered", "fractional", "bcc", "binary", "uc-mmc:load=5")
LAWS = {
    "exponential": (
        Exponential(0.01),
        lambda rng, shape: rng.exponential(0.01, shape),
    ),
    "Pareto": (
        Pareto(0.005, 1.5),
        # This takes a quarter of the time of rng.pareto.
        lambda rng, shape: 0.005 * np.exp(rng.standard_exponential(shape) / 1.5),
    ),
}


def ready(name, code, times):
    """Return when rounds with these times of workers are ready."""
    if name in ("bcc", "uc-mmc:load=5"):
        cell = code.scheme.rule.cell
        if code.load > 1 and cell.size > code.n:  # message after message
            shares = code.scheme.messages.shares.reshape(code.n, -1)
            times = (times[:, :, None] + COST * code.load * shares).reshape(len(times), -1)
        order = np.argsort(cell, kind="stable")
        starts = np.unique(cell[order], return_index=True)[1]
        return np.minimum.reduceat(times[:, order], starts, axis=1).max(axis=1)
    if name == "fractional":
        return times.reshape(len(times), -1, code.stragglers + 1).min(axis=2).max(axis=1)
    f = code.threshold if name in ("rs", "lcc") else code.n - code.stragglers
    return np.partition(times, f - 1, axis=1)[:, f - 1] + COST * code.load


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("n", "s"), SIZES)
@pytest.mark.parametrize("name", CODES)
def test_simulate(benchmark, note, name, n, s, law):
    if name == "fractional":
        s = {20: 4, 80: 9, 1000: 99}[n]  # s + 1 divides n
    code = codes.make(name, n, stragglers=s)
    delays, draw = LAWS[law]
    rounds = DRAWN // n
    benchmark.group = f"simulate, n={n}, {law}"

    def lines():
        return ready(name, code, draw(np.random.default_rng(0), (rounds, n))).mean()

    benchmark.pedantic(
        lambda: simulate(code, delays, cost=COST, rounds=rounds).mean,
        rounds=REPEATS,
        warmup_rounds=1,
    )
    note(across="n", code=name, law=law, n=n, times={"NumPy": seconds(lines, REPEATS)})
