"""Ozfatura, Gündüz, Ulukus 2018: completion times with several messages per worker."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .._arrays import at_least
from ..codes import Code, CyclicRepetition, LagrangeCode, Uncoded
from ..delays import ShiftedExponential
from ..errors import InstabilityWarning
from ..panels import Line, Panel
from ..simulation import Simulation, closed_forms, simulate
from .figure import ROUNDS, Figure, Row, Track

__all__ = ["figure_1", "figure_2"]

PAPER = "ozfatura2018"
DELAYS = ShiftedExponential(shift=0.01, rate=10)  # of a computation: α and μ of eq. (12)
LOADS = (1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 28, 40)  # of figure 2's 1..40
WAITED = 2000  # rounds at most, of codes whose rounds wait for messages they decode well
POINTS = 200  # at which distribution functions are compared

Times = NDArray[np.float64]


def figure_1(
    *, n: int = 10, load: int = 5, seed: int = 0, rounds: int = ROUNDS, track: Track = iter
) -> Figure:
    """Distribution of the completion time: closed forms (15) and (18) against simulation.

    Parameters
    ----------
    n, load : int
        Workers, and computations of each.
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
    figure = f"{PAPER} figure 1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)  # only times matter here
        codes: dict[str, Code] = {
            "GC": CyclicRepetition(n, stragglers=load - 1),
            "LCC": LagrangeCode(n, load=load),
            "LCC-MMC": LagrangeCode(n, load=load, messages=load, limit=None),
        }
    rows, lines = [], []
    # of the distance between two distribution functions, one of them from a sample (Kolmogorov)
    most = math.sqrt(-math.log(0.001 / 2) / 2 / rounds)
    for name in track(list(codes)):
        code = codes[name]
        run = simulate(code, DELAYS, rounds=rounds, seed=seed)
        mean, cdf = _closed(code)
        at = np.linspace(0.9 * run.times.min(), run.quantile(0.999), POINTS)
        exact = cdf(at)
        distance = float(np.abs(run.cdf(at) - exact).max())
        rows += [
            Row(figure, f"mean completion time (s), {name}", run.mean, closed=mean),
            Row(
                figure,
                f"largest distance from the closed form's distribution function, {name}",
                distance,
                note=f"below {most:.4f} in 99.9 % of simulations of this length",
            ),
        ]
        lines += [
            Line(name, at, exact),
            Line(name, at[:: POINTS // 20], run.cdf(at[:: POINTS // 20]), "points"),
        ]
    panel = Panel(
        f"N = {n}, r = {load} (points: simulated)", "time t (s)", "probability of T ≤ t", lines
    )
    title = "Ozfatura et al., figure 1: distribution of the completion time"
    return Figure("ozfatura-1", title, rows, [panel])


def _closed(code: Code) -> tuple[float, Callable[[Times], Times]]:
    """Mean and distribution function of the completion time, eqs. (18) or (15) to (17)."""
    n, load, threshold = code.n, code.load, code.threshold
    assert threshold is not None  # these codes declare it
    if code.messages_per_worker == 1:
        return (
            closed_forms.threshold_mean(n, threshold, DELAYS, load),
            lambda t: closed_forms.threshold_cdf(t, n, threshold, DELAYS, load),
        )
    batch = load // code.messages_per_worker
    return (
        closed_forms.total_mean(n, load, threshold, DELAYS, batch=batch),
        lambda t: closed_forms.total_cdf(t, n, load, threshold, DELAYS, batch=batch),
    )


def figure_2(
    *,
    n: int = 40,
    loads: Sequence[int] = LOADS,
    seed: int = 0,
    rounds: int = ROUNDS,
    track: Track = iter,
) -> Figure:
    """Mean completion time and communication load of five schemes against the computation load.

    Parameters
    ----------
    n : int
        Workers.
    loads : sequence of int
        Computations per worker r; 2 must be one of them.
    seed, rounds : int
        Of the simulation.
    track : callable
        Wraps what is looped over.

    Raises
    ------
    ValueError
        If 2 is not among the loads, `rounds` is not at least 1, or `seed` negative.
    TypeError
        If `rounds` or `seed` is not an integer.
    """
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    if 2 not in loads:
        raise ValueError(
            f"the paper compares at r = 2, which must be one of the loads, not {loads}"
        )
    figure = f"{PAPER} figure 2"
    runs: dict[str, dict[int, Simulation]] = {}
    codes: dict[str, dict[int, Code]] = {}
    for load in track(loads):
        for name, code in _schemes(n, load).items():
            run = simulate(code, DELAYS, rounds=rounds, seed=seed)
            runs.setdefault(name, {})[load] = run
            codes.setdefault(name, {})[load] = code
    time = {name: {r: run.mean for r, run in by.items()} for name, by in runs.items()}
    sent = {name: {r: run.mean_messages for r, run in by.items()} for name, by in runs.items()}
    common = sorted(set(time["LCC"]) & set(time["UC-MMC"]))
    below = sum(time["UC-MMC"][r] < time["LCC"][r] for r in common)
    closest = min(common, key=lambda r: abs(sent["UC-MMC"][r] - sent["LCC"][r]))
    best = max(common, key=lambda r: 1 - time["UC-MMC-PG"][r] / time["LCC"][r])
    gain = {r: 1 - time["UC-MMC-PG"][r] / time["UC-MMC"][r] for r in common}
    shown = {name: list(time[name]) for name in ("LCC", "LCC-MMC", "LCC-MMC-2")}
    most = max(time["LCC-MMC"])
    few = min(rounds, WAITED)
    waiting = simulate(LagrangeCode(n, load=most, messages=most), DELAYS, rounds=few, seed=seed)
    first = float(runs["LCC-MMC"][most].times[:few].mean())
    rows = [
        Row(
            figure,
            "UC-MMC-PG takes less time than LCC by, r = 2",
            1 - time["UC-MMC-PG"][2] / time["LCC"][2],
            0.70,
            note=f"the paper: up to 70 %, where r is small; largest here at r = {best}",
        ),
        Row(
            figure,
            "UC-MMC-PG takes less time than UC-MMC by, r = 2",
            gain[2],
            0.33,
            note="the paper: up to 33 %, where r is small; largest here at r = "
            f"{max(common, key=gain.__getitem__)}",
        ),
        Row(
            figure,
            "loads at which UC-MMC is faster than LCC",
            below,
            len(common),
            note=f"of r = {', '.join(map(str, common))}",
        ),
        Row(
            figure,
            "r at which LCC and UC-MMC communicate most alike",
            closest,
            2,
            note=f"{sent['LCC'][closest]:.1f} and {sent['UC-MMC'][closest]:.1f} messages; LCC does "
            "not exist at r = 1, where 2N - 1 messages would be needed of N",
        ),
        Row(
            figure,
            f"messages of LCC-MMC, mean over r = {', '.join(map(str, time['LCC-MMC']))}",
            float(np.mean(list(sent["LCC-MMC"].values()))),
            2 * n - 1,
        ),
        Row(
            figure,
            "messages of LCC-MMC-2 over those of LCC-MMC, r = 2",
            sent["LCC-MMC-2"][2] / sent["LCC-MMC"][2],
            0.5,
        ),
        Row(
            figure,
            f"LCC-MMC that waits for messages it decodes well takes longer by, r = {most}",
            waiting.mean / first - 1,
            note="not in the paper, where any 2N - 1 messages are decoded, whatever is lost: "
            f"fastgc's default; {few} rounds",
        ),
        Row(
            figure,
            "UC-MMC takes less time than LCC-MMC by, r = 2",
            1 - time["UC-MMC"][2] / time["LCC-MMC"][2],
            note="the paper prints that it can outperform UC-MMC: LCC-MMC must be meant",
        ),
        *(
            Row(
                figure,
                f"mean completion time (s), {name}, r = {r}",
                time[name][r],
                closed=_closed(codes[name][r])[0],
            )
            for name, loads_of in shown.items()
            for r in sorted({loads_of[0], loads_of[len(loads_of) // 2], loads_of[-1]})
        ),
    ]
    panels = [
        Panel(
            f"N = {n}",
            "computation load r",
            label,
            [Line(name, list(by), list(by.values())) for name, by in of.items()],
            log_x=True,
            log_y=True,
        )
        for label, of in (
            ("mean completion time (s)", time),
            ("communication load (messages)", sent),
        )
    ]
    title = "Ozfatura et al., figure 2: time and communication against the load"
    return Figure("ozfatura-2", title, rows, panels)


def _schemes(n: int, load: int) -> dict[str, Code]:
    """The schemes that exist with this load."""
    schemes: dict[str, Code] = {
        "UC-MMC": Uncoded(n, load=load),
        "UC-MMC-PG": Uncoded(n, load=load, tolerance=0.05),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)  # only times matter here
        if load > 1:
            schemes["LCC"] = LagrangeCode(n, load=load)
            schemes["LCC-MMC"] = LagrangeCode(n, load=load, messages=load, limit=None)
        if load % 2 == 0:
            schemes["LCC-MMC-2"] = LagrangeCode(n, load=load, messages=load // 2, limit=None)
    return schemes
