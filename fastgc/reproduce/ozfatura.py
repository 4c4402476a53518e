"""Ozfatura, Gündüz, Ulukus 2018: completion times with several messages per worker."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from .._arrays import at_least
from ..codes import Code, CyclicRepetition, LagrangeCode, Uncoded
from ..coding.rules import Cells
from ..delays import ShiftedExponential
from ..errors import InstabilityWarning
from ..plotting.panels import Line, Panel
from ..simulation import (
    Simulation,
    closed_forms,
    covered_cdf,
    covered_mean,
    covered_messages,
    simulate,
)
from .figure import ROUNDS, Figure, Row, Track

__all__ = ["figure_1", "figure_2"]

PAPER = "ozfatura2018"
DELAYS = ShiftedExponential(shift=0.01, rate=10)  # of a computation: α and μ of eq. (12)
LOADS = (1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 28, 40)  # of figure 2's 1..40
WAITED = 2000  # rounds at most, of codes whose rounds wait for messages they decode well
POINTS = 200  # at which distribution functions are compared

TOLERANCE = 0.05  # partitions that UC-MMC-PG does without
UNCODED = ("UC-MMC", "UC-MMC-PG")
ELEMENTS, DECODED = 20_000, 15  # of a gradient that is decoded to time it, and how often
NO_LAW = "the paper has no closed form of it"

Times = NDArray[np.float64]
Figures = dict[str, dict[int, float]]  # of each scheme, by load
Runs = dict[str, dict[int, Simulation]]


def figure_1(
    *, n: int = 10, load: int = 5, seed: int = 0, rounds: int = ROUNDS, track: Track = iter
) -> Figure:
    """Distribution of the completion time: closed forms against simulation.

    Those of the paper are (15) and (18). UC-MMC and UC-MMC-PG, here without one of the partitions,
    are not in its figure.

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
            "UC-MMC": Uncoded(n, load=load),
            f"UC-MMC-PG, {n - 1} of {n}": Uncoded(n, load=load, tolerance=1 / n),
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
            Row(
                figure,
                f"mean completion time (s), {name}",
                run.mean,
                closed=mean,
                note="not in the paper's figure" if isinstance(code, Uncoded) else "",
            ),
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
    """Mean and distribution function of the completion time: eqs. (18) or (15) to (17).

    Of UC-MMC, for which the paper has none, those of `covered_cdf`.
    """
    n, load = code.n, code.load
    if isinstance(code.rule, Cells):
        needed = code.rule.need
        return (
            covered_mean(n, load, DELAYS, needed=needed),
            lambda t: covered_cdf(t, n, load, DELAYS, needed=needed),
        )
    threshold = code.threshold
    assert threshold is not None  # the others declare it
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
    time: Figures = {}
    sent: Figures = {}
    for load in track(loads):
        for name, (mean, messages) in _exact(n, load).items():
            time.setdefault(name, {})[load] = mean
            sent.setdefault(name, {})[load] = messages
    checked = {name: _some(by) for name, by in time.items()}
    runs = _simulated(n, checked, rounds, seed, track)
    most = max(time["LCC-MMC"])
    few = min(rounds, WAITED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)
        waits = LagrangeCode(n, load=most, messages=most)
    waiting = simulate(waits, DELAYS, rounds=few, seed=seed)
    first = float(runs["LCC-MMC"][most].times[:few].mean())
    rows = [
        *_times(figure, runs, time),
        *_messages(figure, n, runs, sent),
        *_two_polynomials(figure, n, runs, time, sent),
        Row(
            figure,
            f"LCC-MMC that waits for messages it decodes well takes longer by, r = {most}",
            waiting.mean / first - 1,
            note="not in the paper, where any 2N - 1 messages are decoded, whatever is lost: "
            f"fastgc's default; {few} rounds",
        ),
        *(
            Row(
                figure,
                f"mean completion time (s), {name}, r = {r}",
                runs[name][r].mean,
                closed=time[name][r],
                note=NO_LAW if name in UNCODED else "",
            )
            for name in time
            for r in checked[name]
        ),
        *(
            Row(
                figure,
                f"messages of {name}, r = {r}",
                runs[name][r].mean_messages,
                closed=sent[name][r],
                note=NO_LAW,
            )
            for name in UNCODED
            for r in checked[name]
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


def _exact(n: int, load: int) -> dict[str, tuple[float, float]]:
    """Mean completion time and mean number of messages of each scheme that exists."""
    some = _partial(n)
    exact = {
        "UC-MMC": (covered_mean(n, load, DELAYS), covered_messages(n, load, DELAYS)),
        "UC-MMC-PG": (
            covered_mean(n, load, DELAYS, needed=some),
            covered_messages(n, load, DELAYS, needed=some),
        ),
    }
    polynomials = {"LCC": load, "LCC-MMC": 1, "LCC-MMC-2": 2}  # whose values a message sums
    for name, P in polynomials.items():
        needed = 2 * -(-n // P) - 1
        if load > 1 and load % P == 0:
            exact[name] = (closed_forms.total_mean(n, load, needed, DELAYS, batch=P), needed)
    return exact


def _simulated(
    n: int, loads: Mapping[str, Iterable[int]], rounds: int, seed: int, track: Track
) -> Runs:
    """Rounds of each scheme at these loads, on the same delays."""
    cases = [(name, load) for name, each in loads.items() for load in each]
    runs: Runs = {name: {} for name in loads}
    for name, load in track(cases):
        code = _code(name, n, load)
        runs[name][load] = simulate(code, DELAYS, rounds=rounds, seed=seed)
    return runs


def _partial(n: int) -> int:
    """Partitions of UC-MMC-PG."""
    rule = _code("UC-MMC-PG", n, 1).rule
    assert isinstance(rule, Cells)
    return rule.need


def _some(loads: Iterable[int]) -> list[int]:
    """The first of the loads, the one in the middle and the last, and 2."""
    each = list(loads)
    return sorted({each[0], each[len(each) // 2], each[-1], 2})


def _times(figure: str, runs: Runs, time: Figures) -> list[Row]:
    """Who takes less time than whom."""
    common = sorted(set(time["LCC"]) & set(time["UC-MMC"]))
    saved = {
        other: {r: 1 - time["UC-MMC-PG"][r] / time[other][r] for r in common}
        for other in ("LCC", "UC-MMC")
    }
    below = sum(time["UC-MMC"][r] < time["LCC"][r] for r in common)
    over = {r: time["UC-MMC"][r] / time["LCC-MMC"][r] - 1 for r in common}
    widest = max(over, key=over.__getitem__)
    return [
        *(
            Row(
                figure,
                f"UC-MMC-PG takes less time than {other} by, r = 2",
                1 - runs["UC-MMC-PG"][2].mean / runs[other][2].mean,
                most,
                closed=saved[other][2],
                note=f"the paper: up to {100 * most:.0f} %, where r is small; largest here at "
                f"r = {max(common, key=saved[other].__getitem__)}",
            )
            for other, most in (("LCC", 0.70), ("UC-MMC", 0.33))
        ),
        Row(
            figure,
            "loads at which UC-MMC is faster than LCC",
            below,
            len(common),
            note=f"of r = {_listed(common)}",
        ),
        Row(
            figure,
            "UC-MMC takes less time than LCC-MMC by, r = 2",
            1 - runs["UC-MMC"][2].mean / runs["LCC-MMC"][2].mean,
            closed=-over[2],
            note="the paper prints that it can outperform UC-MMC: LCC-MMC must be meant",
        ),
        Row(
            figure,
            f"UC-MMC takes longer than LCC-MMC by, most of all loads, r = {widest}",
            over[widest],
            note="by the closed forms; in the paper UC-MMC performs very close to LCC-MMC",
        ),
    ]


def _messages(figure: str, n: int, runs: Runs, sent: Figures) -> list[Row]:
    """Who sends more than whom."""
    common = sorted(set(sent["LCC"]) & set(sent["UC-MMC"]))
    closest = min(common, key=lambda r: abs(sent["UC-MMC"][r] - sent["LCC"][r]))
    loads = sorted(sent["UC-MMC"])
    less = {r: 1 - sent["UC-MMC-PG"][r] / sent["UC-MMC"][r] for r in loads}
    steps = list(itertools.pairwise(common))
    alike = [f"r = {r} and {more}" for r, more in steps if sent["LCC"][r] == sent["LCC"][more]]
    further = list(itertools.pairwise(loads))
    least = [r for r in common if sent["LCC"][r] < min(sent["LCC-MMC"][r], sent["UC-MMC"][r])]
    greatest = [r for r in common if sent["UC-MMC"][r] > max(sent["LCC-MMC"][r], sent["LCC"][r])]
    not_greatest = [r for r in common if r not in greatest]
    simulated = sorted(runs["LCC-MMC"])
    peak = max(loads, key=sent["UC-MMC"].__getitem__)
    return [
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
            f"messages of LCC-MMC, mean over r = {_listed(simulated)}",
            float(np.mean([runs["LCC-MMC"][r].mean_messages for r in simulated])),
            2 * n - 1,
        ),
        Row(
            figure,
            "steps to the next load at which LCC communicates less",
            sum(sent["LCC"][more] < sent["LCC"][r] for r, more in steps),
            len(steps),
            note=f"the paper: it decreases monotonically, from {sent['LCC'][common[0]]:.0f} to "
            f"{sent['LCC'][common[-1]]:.0f} messages here"
            + "".join(f"; as many, 2⌈N/r⌉ - 1, at {pair}" for pair in alike),
        ),
        Row(
            figure,
            "steps to the next load at which UC-MMC communicates more",
            sum(sent["UC-MMC"][more] > sent["UC-MMC"][r] for r, more in further),
            len(further),
            note=f"the paper: it increases monotonically, from {sent['UC-MMC'][loads[0]]:.1f} "
            f"messages on here; most at r = {peak}, {sent['UC-MMC'][peak]:.4f}"
            + "".join(f"; {sent['UC-MMC'][r]:.4f} at r = {r}" for r in loads if r > peak)
            + ", by the exact law",
        ),
        Row(
            figure,
            "loads at which LCC communicates least, of LCC, LCC-MMC and UC-MMC",
            len(least),
            len(common),
        ),
        Row(
            figure,
            "loads at which UC-MMC communicates most, of LCC, LCC-MMC and UC-MMC",
            len(greatest),
            len(common),
            note="; ".join(
                f"at r = {r} it sends {sent['UC-MMC'][r]:.1f} messages, LCC-MMC always {2 * n - 1}"
                for r in not_greatest
            ),
        ),
        Row(
            figure,
            "loads at which UC-MMC-PG communicates less than UC-MMC",
            sum(saved > 0 for saved in less.values()),
            len(loads),
            note=f"by {100 * min(less.values()):.0f} to {100 * max(less.values()):.0f} %, by the "
            "exact laws",
        ),
    ]


def _two_polynomials(figure: str, n: int, runs: Runs, time: Figures, sent: Figures) -> list[Row]:
    """What LCC-MMC-2 saves, and costs."""
    saved = {r: 1 - sent["LCC-MMC-2"][r] / sent["LCC-MMC"][r] for r in sent["LCC-MMC-2"]}
    cost = {r: time["LCC-MMC-2"][r] / time["LCC-MMC"][r] - 1 for r in saved}
    dearest, last = max(cost, key=cost.__getitem__), max(cost)
    run = runs["LCC-MMC-2"][last]
    notes = {
        last: "by the closed forms; a computation counts once its pair is complete: when a round "
        f"ends, workers have done {run.mean_computations:.1f} (simulated) and sent "
        f"{2 * run.mean_messages:.0f} of them, where LCC-MMC needs {2 * n - 1}",
        2: f"by the closed forms; LCC-MMC-2 waits for all but one of {n} workers, LCC-MMC for all "
        f"but one of {2 * n} computations",
    }
    return [
        Row(
            figure,
            "messages of LCC-MMC-2 over those of LCC-MMC, r = 2",
            runs["LCC-MMC-2"][2].mean_messages / runs["LCC-MMC"][2].mean_messages,
            0.5,
            note="Remark 1 prints two polynomials of degree N - 1, which would take 2N - 1 "
            "messages, as one does; N/2 - 1 is meant",
        ),
        Row(
            figure,
            "loads at which LCC-MMC-2 costs a smaller part of the time than it saves of messages",
            sum(cost[r] < saved[r] for r in cost),
            len(cost),
            note="the paper: a noticeable improvement for a relatively small increase; by the "
            f"closed forms at most {100 * cost[dearest]:.0f} % for "
            f"{100 * saved[dearest]:.0f} %, at r = {dearest}",
        ),
        Row(
            figure,
            f"time of decoding {ELEMENTS} elements, LCC-MMC-2 over LCC-MMC, r = 2",
            _decoding_ratio(n),
            note="measured on this machine; Remark 1: more polynomials, less to decode. By stage: "
            "pytest benches/test_lagrange_decoding.py --benchmark-only",
        ),
        *(
            Row(figure, f"LCC-MMC-2 takes longer than LCC-MMC by, r = {r}", cost[r], note=note)
            for r, note in notes.items()
        ),
    ]


def _decoding_ratio(n: int) -> float:
    """Time of decoding from LCC-MMC-2's messages over that from LCC-MMC's, medians."""
    decoders, times = [], []
    for name in ("LCC-MMC-2", "LCC-MMC"):
        code = _code(name, n, 2)
        code.cache = None  # or a vector that was computed would be looked up
        messages = np.ones((code.message_count, ELEMENTS))
        needed = np.arange(2 * (n if name == "LCC-MMC" else -(-n // 2)) - 1)
        decoders.append(partial(code.bind(messages), needed))
    for _ in range(DECODED):
        times.append([_seconds(decode) for decode in decoders])
    two, one = np.median(times, axis=0)
    return float(two / one)


def _seconds(task: Callable[[], object]) -> float:
    start = perf_counter()
    task()
    return perf_counter() - start


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _code(name: str, n: int, load: int) -> Code:
    """A scheme by its name in the paper."""
    if name in UNCODED:
        return Uncoded(n, load=load, tolerance=TOLERANCE if name == "UC-MMC-PG" else 0.0)
    messages = {"LCC": 1, "LCC-MMC": load, "LCC-MMC-2": load // 2}[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InstabilityWarning)  # only times matter here
        return LagrangeCode(n, load=load, messages=messages, limit=None)
