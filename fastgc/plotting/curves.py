"""Pictures of training runs, of precision, and for choosing a code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .._base.text import duration
from ..codes import catalogue
from ..training.history import APPROXIMATE, MISCLASSIFIED
from .panels import (
    WIDE,
    Line,
    Panel,
    panel_figure,
    plain_decades,
    shorten,
    spread,
    time_unit,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..delays import Fit
    from ..planning import Choice, Plan
    from ..planning.simulation import Simulation
    from ..sequential import Compared
    from ..stability import StabilityRow, StabilityTracker
    from ..training.history import History, Record

__all__ = [
    "approximation_panels",
    "cost_curves",
    "error_curves",
    "fit_curves",
    "load_curves",
    "sequential_curves",
    "spending_panels",
    "stability_figure",
    "time_curves",
    "tracking_curves",
]

_NOTHING_LEFT = 30.0  # end of the axis of relative errors
_NORMAL = 1.96  # standard errors to each side of a mean that contain 95%
_Q = np.linspace(0, 0.999, 400)


def error_curves(
    histories: Sequence[Any], caption: str | None = None, level: float | None = None
) -> Figure:
    """Draw the test error of training runs against time, with a line for each run.

    The title says when the first and the last run reach the error `level`. The error axis is
    logarithmic if the errors are positive and the largest is more than four times the smallest, and
    the axis of time if the longest run is more than four times as long as the shortest.

    Parameters
    ----------
    histories : sequence
        Runs, each with a ``name`` and ``rounds``. A round has a ``time``, in seconds since training
        began, and a ``test_error``. This is a fraction, unless an attribute ``measure`` of the run
        says otherwise (`fastgc.History.measure`). Rounds whose test error is None, NaN or
        infinite are left out. A run without a tested round appears only in the legend. For runs of
        type History, the legend also gives the residual of their gradients.
    caption : str, optional
        As in `fastgc.plotting`. Default: data and delays, if all runs share them.
    level : float, optional
        Default, and where no run reaches it: the lowest error that all runs reach.

    Raises
    ------
    ValueError
        If no run has a tested round, or runs differ in their measure.
    """
    label, factor = _error_axis(_measure(histories))
    lines = []
    for history in histories:
        x, y = _curve(history)
        name = history.name if x else f"{history.name} (not tested)"
        residual = [history.residual()] if hasattr(history, "residual") else []
        lines.append(Line(name, x, factor * np.array(y), note=off_by(residual)))
    ends = [line.x[-1] for line in lines if line.x.size]
    if not ends:
        raise ValueError("nothing to draw: no run has a round with a test error")
    wide = max(ends) > WIDE * min(ends) > 0
    title = reached(histories, level)
    panel = Panel(title, "time of training (s)", label, lines, log_x=wide, log_y=spread(lines))
    return panel_figure([panel], caption=_run_title(histories) if caption is None else caption)


def _error_axis(measure: str) -> tuple[str, float]:
    """Return the label of an axis of test errors, and the factor of what it shows."""
    return ("test error (%)", 100.0) if measure == MISCLASSIFIED else (f"test {measure}", 1.0)


def reached(histories: Sequence[Any], level: float | None = None) -> str:
    """Return a title of `error_curves`: when the first and the last run reach an error."""
    curves = [(history.name, *_curve(history)) for history in histories]
    lowest = [min(y, default=math.inf) for _, _, y in curves]
    if level is None or level < min(lowest):
        level = max(lowest)
    if not math.isfinite(level):
        return ""

    ranked = sorted(
        (next((at for at, error in zip(x, y, strict=True) if error <= level), math.inf), name)
        for name, x, y in curves
    )
    said = [
        f"{name.partition(' (')[0]} {'never' if at == math.inf else f'after {duration(at)}'}"
        for at, name in (ranked[0], *ranked[1:][-1:])
    ]
    measure = _measure(histories)
    percent = measure == MISCLASSIFIED
    what = f"{100 * level:.2g}% error" if percent else f"{measure} {level:.3g}"
    return f"{what}: {', '.join(said)}"


def _run_title(histories: Sequence[Any]) -> str:
    """Return the data and delays of all runs; empty if they differ or are unknown."""
    told = {
        tuple(getattr(history, name, "") for name in ("data", "delays")) for history in histories
    }
    return "; ".join(filter(None, told.pop())) if len(told) == 1 else ""


def stability_figure(rows: Sequence[StabilityRow]) -> Figure:
    """Draw relative errors of `fastgc.stability.compare` against sizes, with a line for each code.

    Each dtype and pattern has its axes. Lines are medians; bars reach up to the largest error.
    Above an error of 1 nothing of the gradient is right, and the axis ends soon after.

    Parameters
    ----------
    rows : sequence of StabilityRow
    """
    if not rows:
        raise ValueError("nothing to draw: no code was measured")
    places = sorted({(row.n, row.stragglers) for row in rows})
    names = list(dict.fromkeys(row.code for row in rows))
    panels = []
    for dtype, pattern in dict.fromkeys((row.dtype, row.pattern) for row in rows):
        lines = []
        for number, name in enumerate(names):
            mine = sorted(
                (
                    places.index((row.n, row.stragglers)),
                    drawn_error(row.error),
                    drawn_error(row.worst_error),
                )
                for row in rows
                if (row.code, row.dtype, row.pattern) == (name, dtype, pattern)
            )
            if not mine:
                continue
            x, error, worst = np.array(mine).T
            # Side by side, so that the bars of equal points do not overlap.
            x += 0.3 * ((number + 0.5) / len(names) - 0.5)
            lines.append(Line(name, x, error, "joined", (error, worst)))
        title, x_label = f"{pattern} stragglers, {dtype}", "workers n / stragglers s"
        ticks = [f"{n}/{s}" for n, s in places]
        y_label = "relative error of the gradient"
        panels.append(Panel(title, x_label, y_label, lines, log_y=True, places=ticks))
    sets = max(row.sets for row in rows)
    figure = panel_figure(panels, f"median, and up to the worst of {sets} sets of survivors")
    for ax in figure.axes:
        ax.set_ylim(1e-17, _NOTHING_LEFT)
        plain_decades(ax.yaxis)
        ax.axhspan(1, _NOTHING_LEFT, color="0.92", zorder=0)
        where = ax.get_yaxis_transform()
        ax.text(0.01, 5, "nothing left", transform=where, va="center", color="0.4")
    return figure


def tracking_curves(tracks: Mapping[str, StabilityTracker]) -> Figure:
    """Draw the predicted and measured errors of tracked runs, round by round.

    Parameters
    ----------
    tracks : mapping of names to StabilityTracker
    """
    if not any(tracker.rounds for tracker in tracks.values()):
        raise ValueError("nothing to draw: no round was tracked")
    lines = []
    for name, tracker in tracks.items():
        known = np.isfinite(tracker.predicted)
        lines.append(Line(name, tracker.round[known], tracker.predicted[known]))
        known = np.isfinite(tracker.measured)
        if known.any():
            at, measured = tracker.round[known], tracker.measured[known]
            lines.append(Line(name, at, measured, "points"))
    y_label = "relative error of the gradient"
    title = "lines: predicted, dots: measured"
    return panel_figure([Panel(title, "round", y_label, lines, log_y=True)])


def spending_panels(
    histories: Sequence[History], loss_by_communication: bool = False
) -> list[Panel]:
    """Panels of training loss, communication and computation against time: Zhu et al., figure 2.

    Communication counts parameters sent and messages used; computation counts gradients of single
    samples, both since training began (eqs. (5) and (6)). Losses are those of evaluated rounds. The
    axes of time, communication and computation are logarithmic if the longest run is more than four
    times as long as the shortest.

    Parameters
    ----------
    histories : sequence of History
    loss_by_communication : bool, default False
        Add a fourth panel, of the loss against communication.
    """
    if not histories or not all(history.rounds for history in histories):
        raise ValueError("nothing to draw: there must be runs, of a round at least")
    ends = [history.rounds[-1].time for history in histories]
    wide = max(ends) > WIDE * min(ends) > 0
    unit, per_second = time_unit(max(ends))
    time, loss = f"time ({unit})", "training loss"
    communication, computation = "communication (vectors)", "computation (sample gradients)"
    of: dict[str, Callable[[Sequence[Record]], ArrayLike]] = {
        time: lambda rounds: [per_second * r.time for r in rounds],
        loss: lambda rounds: [r.loss for r in rounds],
        communication: lambda rounds: np.cumsum([r.downloads + r.uploads for r in rounds]),
        computation: lambda rounds: np.cumsum([r.samples for r in rounds]),
    }

    def line(history: History, x: str, y: str) -> Line:
        shown = [y != loss or r.evaluated for r in history.rounds]
        along, up = (np.compress(shown, of[name](history.rounds)) for name in (x, y))
        return Line(history.name, along, up)

    axes = [(time, loss), (time, communication), (time, computation)]
    if loss_by_communication:
        axes.append((communication, loss))
    panels = []
    for x, y in axes:
        lines = [line(history, x, y) for history in histories]
        panels.append(Panel("", x, y, lines, wide and x == time, wide or y == loss))
    return panels


def approximation_panels(histories: Sequence[History], optimum: float | None = None) -> list[Panel]:
    """Panels of loss and test error of runs against time, of residual and last loss against load.

    The residual is the root mean square of `Record.residual` over all rounds of a run. The load is
    `History.load`. The last loss is that of the last evaluated round.

    Parameters
    ----------
    histories : sequence of History
    optimum : float, optional
        The least possible training loss, if it is known; for least squares it is
        ``model.loss(model.optimum(X, y), X, y)``. The panels then show how far losses are above it,
        and leave out rounds whose loss is not above it.

    Returns
    -------
    list of fastgc.plotting.Panel
        Four panels, which `fastgc.plotting.panel_figure` draws.

    Raises
    ------
    ValueError
        If runs differ in their measure.
    """
    evaluated = [[r for r in each.rounds if r.evaluated] for each in histories]
    if not evaluated or not all(evaluated):
        raise ValueError("nothing to draw: there must be runs, of an evaluated round at least")
    residuals = [each.residual() for each in histories]
    notes = [off_by([each]) for each in residuals]
    error_label, factor = _error_axis(_measure(histories))
    least = 0.0 if optimum is None else float(optimum)
    loss_label = "training loss" if optimum is None else "training loss above the optimum"
    times = [history.rounds[-1].time for history in histories]
    unit, per_second = time_unit(max(times))
    time_label = f"time of training ({unit})"

    def loss(record: Record) -> float:
        above = record.loss - least
        return above if above > 0 or optimum is None else math.nan

    def error(record: Record) -> float:
        return factor * record.test_error

    def against_time(y_label: str, of: Callable[[Record], float]) -> Panel:
        lines = []
        for history, shown, note in zip(histories, evaluated, notes, strict=True):
            x = [per_second * r.time for r in shown]
            lines.append(Line(history.name, x, [of(r) for r in shown], note=note))
        starts = [line.x[0] for line in lines]  # 0 if simulated workers take no time
        wide = max(line.x[-1] for line in lines) > WIDE * max(starts) and min(starts) > 0
        return Panel("", time_label, y_label, lines, log_x=wide, log_y=spread(lines))

    def against_load(y_label: str, values: Sequence[float], log: bool) -> Panel:
        lines = []
        for history, value, note in zip(histories, values, notes, strict=True):
            lines.append(Line(history.name, [history.load], [value], "points", note=note))
        return Panel("", "mean load × n / k", y_label, lines, log_y=log and spread(lines))

    last = [loss(shown[-1]) for shown in evaluated]
    return [
        against_time(loss_label, loss),
        against_time(error_label, error),
        against_load("residual, root mean square", residuals, False),
        against_load(f"{loss_label}, in the end", last, True),
    ]


def off_by(residuals: Iterable[float]) -> str:
    """Return a note with the smallest and the largest of the residuals; "" if all are exact."""
    shares = [100 * each for each in residuals if each > APPROXIMATE]
    if not shares:
        return ""
    low, high = (f"{share:.2g}" for share in (min(shares), max(shares)))
    return f"off by {low}%" if low == high else f"off by {low}% to {high}%"


def drawn_error(error: float) -> float:
    """Return an error clipped to the axis, or to a little beyond its upper end."""
    return max(min(error, 100 * _NOTHING_LEFT), 1e-17)


def _measure(histories: Sequence[Any]) -> str:
    """Return the measure of the runs' test errors; raise ValueError if runs differ."""
    measures = {str(getattr(history, "measure", MISCLASSIFIED)) for history in histories}
    if len(measures) > 1:
        raise ValueError(
            f"runs that differ in their measure, {', '.join(sorted(measures))}, "
            "do not go in one picture"
        )
    return measures.pop() if measures else MISCLASSIFIED


def _curve(history: Any) -> tuple[list[float], list[float]]:
    """Return the times and test errors of tested rounds."""
    errors = [(each.time, each.test_error) for each in history.rounds]
    tested = [each for each in errors if each[1] is not None and math.isfinite(each[1])]
    return [time for time, _ in tested], [error for _, error in tested]


# ---------------------------------------------------------------------------- choosing a code


def time_curves(found: Mapping[str, Simulation], caption: str = "") -> Figure:
    """Draw the fraction of simulated rounds that are over, against time, a line for each code.

    Codes whose lines coincide share one line if they leave out equal parts of gradients. The title
    names the code that is the fastest on average, of exact codes if there are any.

    Parameters
    ----------
    found : mapping of names of codes to Simulation
        Results of `fastgc.simulation.simulate`.
    caption
        As in `fastgc.plotting`.
    """
    if not found:
        raise ValueError("nothing to draw: no code was simulated")
    unit, per_second = time_unit(
        float(np.median([np.median(each.times) for each in found.values()]))
    )
    lines = []
    for name, each in found.items():
        note = off_by([each.residual])
        lines.append(Line(catalogue.describe(name), per_second * each.quantile(_Q), _Q, note=note))
    exact = {name: each for name, each in found.items() if not each.residual > APPROXIMATE}
    among = exact or found
    best = min(among, key=lambda name: among[name].mean)
    kind = "fastest exact code" if len(exact) < len(found) and exact else "fastest"
    title = f"{kind}: {_called(best)}, {duration(among[best].mean)} on average"
    y_label = "part of rounds that are over"
    panel = Panel(title, f"time of a round ({unit})", y_label, lines, log_x=True)
    return panel_figure([panel], caption=caption)


def cost_curves(found: Sequence[StabilityRow], caption: str = "") -> Figure:
    """Draw the costs of codes against load: workers waited for, and the error of the gradient.

    A point is a code. Bars reach from the median error to the largest error.

    Parameters
    ----------
    found : sequence of StabilityRow
        Results of `fastgc.stability.compare`, one for each code.
    caption
        As in `fastgc.plotting`.
    """
    if not found:
        raise ValueError("nothing to draw: no code was measured")
    waited, wrong = [], []
    for each in found:
        at, label = [each.mean_load], catalogue.describe(each.code)
        note = off_by([each.left_out])
        low, high = drawn_error(each.error), drawn_error(each.worst_error)
        waited.append(Line(label, at, [each.workers], "points", note=note))
        wrong.append(Line(label, at, [low], "points", ([low], [high]), note))
    first = min(found, key=lambda each: each.workers)
    exact = [each for each in found if not each.left_out > APPROXIMATE]
    worst = max(exact or found, key=lambda each: each.worst_error)
    kind = "least precise exact code" if 0 < len(exact) < len(found) else "least precise"
    x_label = "load (partitions per worker)"
    fewest = f"fewest: {_called(first.code)}, {first.workers:.3g} workers"
    least = f"{kind}: {_called(worst.code)}, {worst.worst_error:.0e}"
    panels = [
        Panel(fewest, x_label, "workers waited for, mean", waited),
        Panel(least, x_label, "relative error of the gradient", wrong, log_y=True),
    ]
    return panel_figure(panels, caption=caption)


def load_curves(plan: Plan, caption: str = "") -> Figure:
    """Draw times of rounds and the amplification of rounding against load, a line for each code.

    Bars are 95% intervals of the mean time, and of the median amplification over sets of survivors.

    Parameters
    ----------
    plan : Plan
        The result of `fastgc.planning.plan`.
    caption
        As in `fastgc.plotting`.
    """
    curves: dict[str, dict[int, Choice]] = {}
    for choice in plan.choices:  # the fastest of several at one load comes first
        curves.setdefault(choice.name, {}).setdefault(choice.code.load, choice)
    best = plan.choices[0]
    unit, per_second = time_unit(best.time)

    def panel(
        title: str,
        y_label: str,
        value: Callable[[Choice], float],
        interval: Callable[[Choice], tuple[float, float]],
    ) -> Panel:
        lines = []
        for name, by_load in curves.items():
            mine = [by_load[load] for load in sorted(by_load)]
            values = [value(each) for each in mine]
            ends = tuple(np.array([interval(each) for each in mine]).T)
            note = off_by(each.residual for each in mine)
            label = catalogue.describe(name)
            lines.append(Line(label, sorted(by_load), values, "joined", ends, note))
        return Panel(title, "load (partitions per worker)", y_label, lines, log_x=True, log_y=True)

    def time(choice: Choice, errors: float = 0.0) -> float:
        return per_second * (choice.time + errors * choice.standard_error)

    def between(choice: Choice) -> tuple[float, float]:
        low, high = (time(choice, errors) for errors in (-_NORMAL, _NORMAL))
        return (low if low > 0 else time(choice), high)

    worst = max(plan.choices, key=lambda choice: choice.amplification)
    panels = [
        panel(
            f"fastest: {_called(best.name)} at load {best.code.load}, {duration(best.time)}",
            f"time of a round ({unit})",
            time,
            between,
        ),
        panel(
            f"rounding: most by {_called(worst.name)}, {_rough(worst.amplification)}-fold",
            "amplification of rounding",
            lambda choice: choice.amplification,
            lambda choice: choice.amplification_interval,
        ),
    ]
    return panel_figure(panels, caption=caption)


def sequential_curves(found: Sequence[Compared], caption: str = "") -> Figure:
    """Draw when gradients of schemes were done, and the times of all choices tried against load.

    Parameters
    ----------
    found : sequence of Compared
        The result of `fastgc.sequential.compare`, the fastest first.
    caption
        As in `fastgc.plotting`.
    """
    if not found:
        raise ValueError("nothing to draw: no scheme was compared")
    best = min(found, key=lambda each: each.run.seconds_per_job)
    unit, per_second = time_unit(best.run.seconds_per_job)
    done, tried = [], []
    for each in found:
        ends = np.sort(each.run.done)
        done.append(Line(each.name, ends, np.arange(1, ends.size + 1)))
        loads, seconds = np.array(each.tried).T
        tried.append(Line(each.name, loads, per_second * seconds, "points"))
    count = sum(line.x.size for line in tried)
    took = duration(best.run.seconds_per_job)
    fastest = f"fastest: {_called(best.name)}, {took} per gradient"
    panels = [
        Panel(fastest, "time (s)", "gradients that are done", done),
        Panel(
            f"the best of {count} choices has load {best.scheme.load:.3g}",
            "load (partitions per worker; uncoded: 1)",
            f"time per gradient ({unit})",
            tried,
            log_x=True,
            log_y=True,
        ),
    ]
    return panel_figure(panels, caption=caption)


def fit_curves(times: ArrayLike, fits: Sequence[Fit], caption: str = "") -> Figure:
    """Draw the distributions of recorded times, and of models fitted to them.

    Parameters
    ----------
    times : array_like
        Seconds.
    fits : sequence of Fit
        The result of `fastgc.delays.fit`, the best first.
    caption
        As in `fastgc.plotting`.
    """
    recorded = np.quantile(np.asarray(times, dtype=np.float64), _Q)
    unit, per_second = time_unit(float(np.median(recorded)))
    lines = [Line("recorded", per_second * recorded, _Q, "step")]
    lines += [
        Line(type(each.model).__name__, per_second * each.model.quantile(_Q), _Q) for each in fits
    ]
    title = (
        f"best fit: {type(fits[0].model).__name__}, at most {fits[0].ks:.2g} off" if fits else ""
    )
    y_label = "part of times that are shorter"
    panel = Panel(title, f"time ({unit})", y_label, lines, log_x=True)
    return panel_figure([panel], caption=caption)


def _rough(value: float) -> str:
    """Return a number to two digits: 2700."""
    return f"{float(f'{value:.2g}'):g}"


def _called(name: str) -> str:
    """Shorten a code's name for a title of one line; drop the module of a class."""
    return shorten(re.sub(r"^[\w.]+:(?=[A-Z])", "", name), 13)
