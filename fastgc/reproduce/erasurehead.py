"""ErasureHead (Wang, Charles, Papailiopoulos 2019): what f of n workers leave out, and the time."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import numpy as np

from .._arrays import at_least
from ..codes import FractionalRepetition
from ..delays import Exponential
from ..plotting.panels import Line, Panel
from ..simulation import simulate
from .figure import ROUNDS, Figure, Row, Track

__all__ = ["error", "missing_blocks", "uncovered"]

PAPER = "wang2019a"  # b: batched raptor codes, by others
N = 30
COPIES = (1, 2, 3, 5)
WAITS = (10, 15, 20, 25)
MEAN = 1.0  # seconds that a worker is late, exponentially distributed

ENOUGH = 20_000  # sets of survivors, and rounds, of a point
LIKELY = 0.01  # what is less likely needs more rounds to be met
NOTE = "the law is hypergeometric; the paper's printed numbers were not at hand"


def missing_blocks(n: int, copies: int, came: int) -> list[Fraction]:
    """Probability that so many blocks are on none of `came` random workers, from 0 on.

    By inclusion and exclusion over the n / copies blocks, exactly.

    Parameters
    ----------
    n, copies, came : int
        Workers, copies of each block, and workers whose messages came.
    """
    blocks = n // copies
    # sums over all sets of i blocks of the probability that all of them are missing
    sums = [Fraction(comb(blocks, i) * comb(n - i * copies, came)) for i in range(blocks + 1)]
    return [
        sum(
            ((-1) ** (i - m) * comb(i, m) * sums[i] for i in range(m, blocks + 1)),
            start=Fraction(0),
        )
        / comb(n, came)
        for m in range(blocks + 1)
    ]


def uncovered(n: int, copies: int, came: int) -> float:
    """Probability that some block is missing."""
    return float(1 - missing_blocks(n, copies, came)[0])


def error(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Figure:
    """What fractional repetition leaves out that waits for f workers, and how long it waits.

    Workers are late exponentially, and independently of each other. Each block of partitions is on
    d workers. Of f random workers' messages, a block is missing with the probability
    C(n - d, f) / C(n, f), which is the mean square of the residual. A round ends when no block is
    missing, or with the f-th message.

    Parameters
    ----------
    seed, rounds : int
        Of the simulation.
    track : callable
        Wraps what is looped over.

    Raises
    ------
    ValueError
        If `rounds` is not at least 1, or `seed` negative.
    TypeError
        If `rounds` or `seed` is not an integer.
    """
    rounds, seed = min(at_least("rounds", rounds, 1), ENOUGH), at_least("seed", seed, 0)
    name = f"{PAPER} error"
    rows, lines, against_time = [], [], []
    for d in track(COPIES):
        simulated, times = [], []
        for f in WAITS:
            what = f"d = {d}, f = {f} of {N}"
            code = FractionalRepetition(N, load=d, wait=f)
            left, scaled = _squares(code, rounds, seed)
            law = missing_blocks(N, d, f)
            closed = comb(N - d, f) / comb(N, f)
            simulated.append(left)
            if closed >= LIKELY:
                rows.append(Row(name, f"residual squared, {what}", left, closed=closed, note=NOTE))
                blocks = N // d
                of_law = sum(p * Fraction(m, blocks - m) for m, p in enumerate(law[:blocks]))
                unbiased = f"residual squared, unbiased, {what}"
                note = "not in the paper, which lets gradients shrink"
                rows.append(Row(name, unbiased, scaled, closed=float(of_law), note=note))
            run = simulate(code, Exponential(MEAN), rounds=max(rounds // 10, 1), seed=seed)
            times.append(run.mean)
            later = [uncovered(N, d, j) for j in range(f)]  # that more than j are waited for
            mean = math.fsum(late * MEAN / (N - j) for j, late in enumerate(later))
            rows.append(Row(name, f"time of a round (s), {what}", run.mean, closed=mean, note=NOTE))
            workers = math.fsum(later)
            waited = f"workers waited for, {what}"
            rows.append(Row(name, waited, run.mean_workers, closed=workers, note=NOTE))
        every = np.arange(1, N + 1)
        exact = [comb(N - d, f) / comb(N, f) for f in every.tolist()]
        lines.append(Line(f"d = {d}", every, exact))
        lines.append(Line(f"d = {d}", WAITS, simulated, "points"))
        against_time.append(Line(f"d = {d}", times, simulated, "points"))
    panels = [
        Panel(
            f"n = {N} (lines: formula, points: simulated)",
            "workers waited for at most, f",
            "residual squared, mean",
            lines,
        ),
        Panel("the same against time", "time of a round (s)", "", against_time),
    ]
    return Figure("erasurehead", "ErasureHead: what is left out of gradients", rows, panels)


def _squares(code: FractionalRepetition, rounds: int, seed: int) -> tuple[float, float]:
    """Mean squares of residuals, best and unbiased, over random survivors."""
    rng = np.random.default_rng(seed)
    came = np.argsort(rng.exponential(MEAN, (rounds, N)), axis=1)[:, : code.wait]
    masks = np.zeros((rounds, N), dtype=bool)
    np.put_along_axis(masks, came, True, axis=1)
    coefficients = code.decoding_vectors(masks) @ code.matrix()
    left = np.mean((coefficients - 1) ** 2, axis=1)
    scaled = coefficients / coefficients.mean(axis=1, keepdims=True)
    return float(left.mean()), float(np.mean((scaled - 1) ** 2))
