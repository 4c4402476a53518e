"""Ozfatura, Gündüz, Ulukus 2018: completion times with several messages per worker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fastgc.codes import Code, CyclicRepetition, LagrangeCode, Uncoded
from fastgc.coding.rules import Cells
from fastgc.delays import ShiftedExponential
from fastgc.planning.simulation import (
    Simulation,
    closed_forms,
    covered_cdf,
    covered_mean,
    covered_messages,
    simulate,
)
from fastgc.plotting import Line, Panel

from .figure import ROUNDS, SIMULATED, Floats, Part, Row, figure, median_seconds, times_alone

DELAYS = ShiftedExponential(shift=0.01, rate=10)  # time of a computation: α and μ of eq. (12)
LOADS = tuple(range(1, 41))  # loads in figure 2
WAITED = 2000  # rounds, at most, of codes that wait for messages they decode well
POINTS = 200  # times at which distribution functions are compared

TOLERANCE = 0.05  # part of the partitions that UC-MMC-PG leaves out
UNCODED = ("UC-MMC", "UC-MMC-PG")
ELEMENTS, DECODED = 20_000, 15  # size of a gradient whose decoding is timed, and repetitions
NO_LAW = "the paper has no closed form of it"

SECOND = partial(Row, "ozfatura2018 figure 2")

Figures = dict[str, dict[int, float]]  # by scheme and load
Runs = dict[str, dict[int, Simulation]]


@figure("ozfatura-1", "Ozfatura et al., figure 1: distribution of the completion time")
def figure_1(*, n: int = 10, load: int = 5, seed: int = 0, rounds: int = ROUNDS) -> Iterator[Part]:
    """Distribution of the completion time: closed forms against simulation.

    There are n workers with `load` computations each. The paper's closed forms are eqs. (15) and
    (18). UC-MMC and UC-MMC-PG, here without one of the partitions, are not in the paper's figure.
    """
    claim = partial(Row, "ozfatura2018 figure 1")
    with times_alone():
        codes: dict[str, Code] = {
            "GC": CyclicRepetition(n, stragglers=load - 1),
            "LCC": LagrangeCode(n, load=load),
            "LCC-MMC": LagrangeCode(n, load=load, messages=load, limit=None),
            "UC-MMC": Uncoded(n, load=load),
            f"UC-MMC-PG, {n - 1} of {n}": Uncoded(n, load=load, tolerance=1 / n),
        }
    lines = []
    # 99.9 % quantile of the distance of a sample's distribution function from its law (Kolmogorov).
    most = math.sqrt(-math.log(0.001 / 2) / 2 / rounds)
    for name in codes:
        code = codes[name]
        run = simulate(code, DELAYS, rounds=rounds, seed=seed)
        mean, cdf = _closed(code)
        at = np.linspace(0.9 * run.times.min(), run.quantile(0.999), POINTS)
        exact = cdf(at)
        note = "not in the paper's figure" if isinstance(code, Uncoded) else SIMULATED
        yield claim(f"mean completion time (s), {name}", run.mean, closed=mean, note=note)
        yield claim(
            f"largest distance from the closed form's distribution function, {name}",
            float(np.abs(run.cdf(at) - exact).max()),
            note=f"below {most:.4f} in 99.9 % of simulations of this length",
        )
        some = at[:: POINTS // 20]
        lines += [Line(name, at, exact), Line(name, some, run.cdf(some), "points")]
    title = f"N = {n}, r = {load} (points: simulated)"
    yield Panel(title, "time t (s)", "probability of T ≤ t", lines)


def _closed(code: Code) -> tuple[float, Callable[[Floats], Floats]]:
    """Return mean and distribution function of the completion time: eqs. (18) or (15) to (17).

    For UC-MMC the paper has no closed form; they are those of `covered_cdf`.
    """
    n, load = code.n, code.load
    if isinstance(code.scheme.rule, Cells):
        of: Any = {"n": n, "load": load, "delays": DELAYS, "needed": code.scheme.rule.need}
        return covered_mean(**of), partial(covered_cdf, **of)
    assert code.threshold is not None  # all other codes declare it
    of = {"n": n, "load": load, "threshold": code.threshold, "delays": DELAYS}
    if code.scheme.messages.per_worker == 1:
        return closed_forms.threshold_mean(**of), partial(closed_forms.threshold_cdf, **of)
    of["batch"] = load // code.scheme.messages.per_worker
    return closed_forms.total_mean(**of), partial(closed_forms.total_cdf, **of)


class _Found(NamedTuple):
    n: int
    time: Figures  # means, by the closed forms
    sent: Figures  # messages, by the closed forms
    runs: Runs


@figure("ozfatura-2", "Ozfatura et al., figure 2: time and communication against the load")
def figure_2(
    *, n: int = 40, loads: Sequence[int] = LOADS, seed: int = 0, rounds: int = ROUNDS
) -> Iterator[Part]:
    """Mean completion time and communication load of five schemes against the computation load.

    There are n workers, with r computations each for each r in `loads`, which must include 2.
    """
    if 2 not in loads:
        raise ValueError(
            f"the paper compares at r = 2, which must be one of the loads, not {loads}"
        )
    time: Figures = {}
    sent: Figures = {}
    for load in loads:
        for name, (mean, messages) in exact_means(n, load).items():
            time.setdefault(name, {})[load] = mean
            sent.setdefault(name, {})[load] = messages
    checked = {name: _some(by) for name, by in time.items()}
    runs: Runs = {name: {} for name in time}
    for name, load in [(name, load) for name, each in checked.items() for load in each]:
        runs[name][load] = simulate(_code(name, n, load), DELAYS, rounds=rounds, seed=seed)
    found = _Found(n, time, sent, runs)
    yield from _times(found)
    yield from _messages(found)
    yield from _two_polynomials(found)
    yield _waiting_row(found, min(rounds, WAITED), seed)
    for name, each in checked.items():
        for r in each:
            ours, note = runs[name][r].mean, NO_LAW if name in UNCODED else SIMULATED
            what = f"mean completion time (s), {name}, r = {r}"
            yield SECOND(what, ours, closed=time[name][r], note=note)
    for name in UNCODED:
        for r in checked[name]:
            ours, closed = runs[name][r].mean_messages, sent[name][r]
            yield SECOND(f"messages of {name}, r = {r}", ours, closed=closed, note=NO_LAW)
    for y, of in ("mean completion time (s)", time), ("communication load (messages)", sent):
        lines = [Line(name, list(by), list(by.values())) for name, by in of.items()]
        yield Panel(f"N = {n}", "computation load r", y, lines, log_x=True, log_y=True)


def exact_means(n: int, load: int) -> dict[str, tuple[float, float]]:
    """Return mean completion time and mean number of messages of each scheme that has this load."""
    exact: dict[str, tuple[float, float]] = {}
    for name in UNCODED:
        rule = _code(name, n, 1).scheme.rule
        assert isinstance(rule, Cells)
        of = n, load, DELAYS
        exact[name] = covered_mean(*of, needed=rule.need), covered_messages(*of, needed=rule.need)
    polynomials = {"LCC": load, "LCC-MMC": 1, "LCC-MMC-2": 2}  # values summed in a message
    for name, P in polynomials.items():
        needed = 2 * -(-n // P) - 1
        if load > 1 and load % P == 0:
            exact[name] = (closed_forms.total_mean(n, load, needed, DELAYS, batch=P), needed)
    return exact


def _some(loads: Iterable[int]) -> list[int]:
    """Return the first, the middle and the last of the loads, and 2."""
    each = list(loads)
    return sorted({each[0], each[len(each) // 2], each[-1], 2})


def _waiting_row(found: _Found, few: int, seed: int) -> Row:
    """Return a row with the cost in time of waiting for messages that decode precisely."""
    most = max(found.time["LCC-MMC"])
    with times_alone():
        code = LagrangeCode(found.n, load=most, messages=most)
    waiting = simulate(code, DELAYS, rounds=few, seed=seed)
    first = float(found.runs["LCC-MMC"][most].times[:few].mean())
    return SECOND(
        f"LCC-MMC that waits for messages it decodes well takes longer by, r = {most}",
        waiting.mean / first - 1,
        note="not in the paper, where any 2N - 1 messages are decoded, whatever is lost: "
        f"fastgc's default; {few} rounds",
    )


def _times(found: _Found) -> Iterator[Row]:
    time, runs = found.time, found.runs
    common = sorted(set(time["LCC"]) & set(time["UC-MMC"]))
    for other, most in (("LCC", 0.70), ("UC-MMC", 0.33)):
        saved = {r: 1 - time["UC-MMC-PG"][r] / mean for r, mean in sorted(time[other].items())}
        yield SECOND(
            f"UC-MMC-PG takes less time than {other} by, r = 2",
            1 - runs["UC-MMC-PG"][2].mean / runs[other][2].mean,
            most,
            closed=saved[2],
            note=f"the paper: up to {100 * most:.0f} %, where r is small; largest here at "
            f"r = {_largest(saved)}, {100 * saved[_largest(saved)]:.1f} %",
        )
    below = sum(time["UC-MMC"][r] < time["LCC"][r] for r in common)
    note = f"of r = {listed(common)}"
    yield SECOND("loads at which UC-MMC is faster than LCC", below, len(common), note=note)
    over = {r: time["UC-MMC"][r] / time["LCC-MMC"][r] - 1 for r in common}
    yield SECOND(
        "UC-MMC takes less time than LCC-MMC by, r = 2",
        1 - runs["UC-MMC"][2].mean / runs["LCC-MMC"][2].mean,
        closed=-over[2],
        note="the paper prints that it can outperform UC-MMC: LCC-MMC must be meant",
    )
    widest = _largest(over)
    yield SECOND(
        f"UC-MMC takes longer than LCC-MMC by, most of all loads, r = {widest}",
        over[widest],
        note="by the closed forms; in the paper UC-MMC performs very close to LCC-MMC",
    )


def _messages(found: _Found) -> Iterator[Row]:
    n, sent, runs = found.n, found.sent, found.runs["LCC-MMC"]
    lcc, uncoded, part = sent["LCC"], sent["UC-MMC"], sent["UC-MMC-PG"]
    common, loads = sorted(set(lcc) & set(uncoded)), sorted(uncoded)
    closest = min(common, key=lambda r: abs(uncoded[r] - lcc[r]))
    yield SECOND(
        "r at which LCC and UC-MMC communicate most alike",
        closest,
        2,
        note=f"{lcc[closest]:.1f} and {uncoded[closest]:.1f} messages; LCC does "
        "not exist at r = 1, where 2N - 1 messages would be needed of N",
    )
    what = f"messages of LCC-MMC, mean over r = {listed(sorted(runs))}"
    mean = float(np.mean([runs[r].mean_messages for r in sorted(runs)]))
    note = "any 2N - 1 messages decode, and no fewer do"
    yield SECOND(what, mean, 2 * n - 1, note=note, tolerance=1e-9)
    steps = list(pairwise(common))
    yield SECOND(
        "steps to the next load at which LCC communicates less",
        sum(lcc[more] < lcc[r] for r, more in steps),
        len(steps),
        note=f"the paper: it decreases monotonically, from {lcc[common[0]]:.0f} to "
        f"{lcc[common[-1]]:.0f} messages here, and never increases; 2⌈N/r⌉ - 1 is the same at "
        "the other steps",
    )
    steps, peak = list(pairwise(loads)), _largest(uncoded)
    yield SECOND(
        "steps to the next load at which UC-MMC communicates more",
        sum(uncoded[more] > uncoded[r] for r, more in steps),
        len(steps),
        note=f"the paper: it increases monotonically, from {uncoded[loads[0]]:.1f} "
        f"messages on here; most at r = {peak}, {uncoded[peak]:.4f}, and {uncoded[loads[-1]]:.4f} "
        f"at r = {loads[-1]}, by the exact law",
    )
    least = sum(lcc[r] < min(sent["LCC-MMC"][r], uncoded[r]) for r in common)
    of_three = "communicates {}, of LCC, LCC-MMC and UC-MMC"
    note, what = "by the closed forms", f"loads at which LCC {of_three.format('least')}"
    yield SECOND(what, least, len(common), note=note, tolerance=0)
    fewer = [r for r in common if uncoded[r] <= max(sent["LCC-MMC"][r], lcc[r])]
    yield SECOND(
        f"loads at which UC-MMC {of_three.format('most')}",
        len(common) - len(fewer),
        len(common),
        note="; ".join(
            f"at r = {r} it sends {uncoded[r]:.1f} messages, LCC-MMC always {2 * n - 1}"
            for r in fewer
        ),
    )
    less = [1 - part[r] / uncoded[r] for r in loads]
    yield SECOND(
        "loads at which UC-MMC-PG communicates less than UC-MMC",
        sum(saved > 0 for saved in less),
        len(loads),
        note=f"by {100 * min(less):.0f} to {100 * max(less):.0f} %, by the exact laws",
    )


def _two_polynomials(found: _Found) -> Iterator[Row]:
    """Yield rows on the messages that LCC-MMC-2 saves, and on the time that it costs."""
    n, time, sent, runs = found
    saved = {r: 1 - sent["LCC-MMC-2"][r] / sent["LCC-MMC"][r] for r in sent["LCC-MMC-2"]}
    cost = {r: time["LCC-MMC-2"][r] / time["LCC-MMC"][r] - 1 for r in saved}
    yield SECOND(
        "messages of LCC-MMC-2 over those of LCC-MMC, r = 2",
        runs["LCC-MMC-2"][2].mean_messages / runs["LCC-MMC"][2].mean_messages,
        0.5,
        note="Remark 1 prints two polynomials of degree N - 1, which would take 2N - 1 "
        "messages, as one does; N/2 - 1 is meant",
    )
    dearest = _largest(cost)
    yield SECOND(
        "loads at which LCC-MMC-2 costs a smaller part of the time than it saves of messages",
        sum(cost[r] < saved[r] for r in cost),
        len(cost),
        note="the paper: a noticeable improvement for a relatively small increase; by the "
        f"closed forms at most {100 * cost[dearest]:.0f} % for "
        f"{100 * saved[dearest]:.0f} %, at r = {dearest}",
    )
    yield SECOND(
        f"time of decoding {ELEMENTS} elements, LCC-MMC-2 over LCC-MMC, r = 2",
        _decoding_ratio(n),
        note="measured on this machine; Remark 1: more polynomials, less to decode",
    )
    last = max(cost)
    run = runs["LCC-MMC-2"][last]
    notes = {
        last: "by the closed forms; a computation counts once its pair is complete: when a round "
        f"ends, workers have done {run.mean_computations:.1f} (simulated) and sent "
        f"{2 * run.mean_messages:.0f} of them, where LCC-MMC needs {2 * n - 1}",
        2: f"by the closed forms; LCC-MMC-2 waits for all but one of {n} workers, LCC-MMC for all "
        f"but one of {2 * n} computations",
    }
    for r, note in notes.items():
        yield SECOND(f"LCC-MMC-2 takes longer than LCC-MMC by, r = {r}", cost[r], note=note)


def _decoding_ratio(n: int) -> float:
    decoders = []
    for name in ("LCC-MMC-2", "LCC-MMC"):
        code = _code(name, n, 2)
        messages = np.ones((code.scheme.messages.count, ELEMENTS))
        needed = np.arange(2 * (n if name == "LCC-MMC" else -(-n // 2)) - 1)
        decoders.append(partial(code.bind(messages), needed))
    two, one = (median_seconds([decode] * DECODED) for decode in decoders)
    return two / one


def _largest(by_load: Mapping[int, float]) -> int:
    return max(sorted(by_load), key=by_load.__getitem__)


def listed(numbers: Iterable[int]) -> str:
    """Write ascending numbers, with "to" between the ends of a run of three or more."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(texts)


def _code(name: str, n: int, load: int) -> Code:
    if name in UNCODED:
        return Uncoded(n, load=load, tolerance=TOLERANCE if name == "UC-MMC-PG" else 0.0)
    messages = {"LCC": 1, "LCC-MMC": load, "LCC-MMC-2": load // 2}[name]
    with times_alone():
        return LagrangeCode(n, load=load, messages=messages, limit=None)
