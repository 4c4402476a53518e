"""Zhu, Zhang, Simeone, Wang 2022: distributed Adam, CADA and G-CADA per iteration (section V)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._arrays import at_least
from ..codes import FractionalRepetition, Uncoded
from ..delays import Exponential
from ..panels import Line, Panel
from ..simulation import closed_forms, simulate
from .figure import ROUNDS, Figure, Row, Track

__all__ = ["section_5"]

PAPER = "zhu2022"
M, GROUPS = 12, 3
SIZE = M // GROUPS  # workers in a group, M_G
ETA = 1e-4  # seconds, mean time of a gradient
# Section VI's constants c of the rules of selection, (7) for CADA and (9) for G-CADA.
C, C_GROUPS = 2.0, 0.3
# D and the smoothness constants, which section VI does not state, so that some are selected in
# every round and some seldom.
MAX_AGE = 10
SMOOTHNESS = np.geomspace(0.03, 0.3, M)
SMOOTHNESS_GROUPS = np.geomspace(0.05, 0.5, GROUPS)
# Loads that section VI reports at equal training loss: communication, computation.
REPORTED = {"CADA": (19_292, 9_646), "G-CADA": (12_292, 9_219)}


def section_5(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Figure:
    """Time, communication and computation of an iteration: eqs. (10) to (22) and simulated.

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
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    figure = f"{PAPER} section V"
    delays = Exponential(mean=ETA)
    rng = np.random.default_rng(seed)
    rows = []
    alone, grouped = Uncoded(M), FractionalRepetition(M, stragglers=SIZE - 1)
    for what, code, groups, size in (
        ("distributed Adam, eq. (11)", alone, M, 1),
        ("all groups, eq. (14)", grouped, GROUPS, SIZE),
    ):
        run = simulate(code, delays, rounds=rounds, seed=seed)
        exact = closed_forms.fastest_of_groups_mean(groups, size, delays)
        rows.append(Row(figure, f"time (µs), {what}", 1e6 * run.mean, closed=1e6 * exact))
    drawn = (
        "the periods drawn are those the formula assumes, from a random round on: this checks its "
        "arithmetic, not that the rule of selection keeps to it"
    )
    for name, constants, c, size, numbers in (
        ("CADA", SMOOTHNESS, C, 1, ("(12)", "(13)", "(18)", "(21)")),
        ("G-CADA", SMOOTHNESS_GROUPS, C_GROUPS, SIZE, ("(15)", "(16)", "(19)", "(22)")),
    ):
        bound = closed_forms.selected_mean(constants, c, MAX_AGE)
        loads = closed_forms.adaptive_loads(bound, size)
        chosen = _selected(constants, c, rounds, rng)
        times = rng.exponential(ETA / size, chosen.shape)  # the fastest of each group
        time = np.where(chosen, times, 0.0).max(axis=1).mean()
        simulated = closed_forms.adaptive_loads(float(chosen.sum(axis=1).mean()), size)
        rows += [
            Row(
                figure,
                f"{'workers' if size == 1 else 'groups'} selected, {name}, eq. {numbers[0]}",
                float(chosen.sum(axis=1).mean()),
                closed=bound,
                note=f"{drawn}; with L̄_0 infinite: the paper's 0 leaves out those selected in "
                "every round",
            ),
            Row(
                figure,
                f"time (µs), {name}, eq. {numbers[1]}",
                1e6 * float(time),
                closed=1e6 * closed_forms.fastest_of_groups_mean(bound, size, delays),
                note="the number selected varies, and H at its mean is more than the mean of H",
            ),
            Row(
                figure,
                f"communication load, {name}, eq. {numbers[2]}",
                simulated.communication,
                closed=loads.communication,
                note=drawn,
            ),
            Row(
                figure,
                f"computation load, {name}, eq. {numbers[3]}",
                simulated.computation,
                closed=loads.computation,
                note=drawn,
            ),
        ]
    for name, size in (("CADA", 1), ("G-CADA", SIZE)):
        communication, computation = REPORTED[name]
        one = closed_forms.adaptive_loads(1.0, size)
        rows.append(
            Row(
                f"{PAPER} figure 2",
                f"communication over computation, {name}",
                one.communication / one.computation,
                communication / computation,
                note=""
                if size == 1
                else f"section VI states groups of M_G = {SIZE}, but reports 12,292 / 9,219 = 4/3, "
                "which is (M_G + 1) / M_G for groups of 3",
            )
        )
    panel = _panel(delays, rng, rounds, track)
    title = "Zhu et al., section V: time and loads of an iteration"
    return Figure("zhu", title, rows, [panel])


def _selected(
    smoothness: NDArray[np.float64], c: float, rounds: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Who is selected in each round, (rounds, M).

    One whose constant is between the thresholds c / ((d + 1) M^2) and c / (d M^2), in every
    (d + 1)-th, from a random one on.
    """
    ages = np.arange(1, MAX_AGE + 1)
    thresholds = c / (ages * smoothness.size**2)
    period = 1 + (smoothness[:, np.newaxis] ** 2 <= thresholds).sum(axis=1)
    begin = rng.integers(period)
    chosen: NDArray[np.bool_] = (np.arange(rounds)[:, np.newaxis] + begin) % period == 0
    return chosen


def _panel(delays: Exponential, rng: np.random.Generator, rounds: int, track: Track) -> Panel:
    """Time of an iteration against the number selected, workers or groups."""
    lines = []
    for size in track((1, 2, 3, 4, 6)):
        counts = np.arange(1, M // size + 1)
        exact = [closed_forms.fastest_of_groups_mean(int(g), size, delays) for g in counts]
        fastest = delays.draw(rng, rounds, M).reshape(rounds, M // size, size).min(axis=2)
        simulated = np.maximum.accumulate(fastest, axis=1).mean(axis=0)
        name = "CADA" if size == 1 else f"G-CADA, groups of {size}"
        lines.append(Line(name, counts, 1e6 * np.array(exact)))
        lines.append(Line(name, counts, 1e6 * simulated, "points"))
    return Panel(
        f"M = {M}, exponential times of mean {1e6 * ETA:g} µs (points: simulated)",
        "workers or groups selected",
        "time of an iteration (µs)",
        lines,
    )
