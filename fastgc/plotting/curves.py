"""Pictures of training runs and of precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from .._shown import duration
from ..history import APPROXIMATE, MISCLASSIFIED
from .panels import (
    COLOURS,
    DASHES,
    MARKERS,
    MORE_COLOURS,
    SMALL,
    WIDE,
    Line,
    Panel,
    above,
    across,
    inches,
    legend_below,
    legend_columns,
    legend_inches,
    new_figure,
    one_line,
    percent_axis,
    plain_decades,
    plain_frame,
    settings,
    spread,
    time_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..history import History, Record
    from ..stability import CircleValues, StabilityRow, StabilityTracker

__all__ = [
    "approximation_panels",
    "circle_curves",
    "drawn_error",
    "error_curves",
    "leaves_out",
    "reached",
    "spending_panels",
    "stability_curves",
    "stability_figure",
    "tracking_curves",
]

_NOTHING_LEFT = 30.0  # end of the axis of relative errors


_Curve = tuple[str, list[float], list[float]]  # a run's name, times, and errors at these times


class _Round(Protocol):
    @property
    def time(self) -> float: ...
    @property
    def test_error(self) -> float | None: ...


class _History(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def rounds(self) -> Sequence[_Round]: ...


def error_curves(
    histories: Sequence[_History],
    ax: Axes | None = None,
    time_axis: bool = True,
    log_x: bool | None = None,
    caption: str | None = None,
) -> Axes:
    """Draw the test error of training runs against time, with a line for each run.

    The title says when runs reach the lowest error that all of them reach. The error axis is
    logarithmic if the errors are positive and the largest is at least four times the smallest.

    Parameters
    ----------
    histories : sequence
        Runs, each with a ``name`` and ``rounds``. A round has a ``time``, in seconds since training
        began, and a ``test_error``. This is a fraction, unless an attribute ``measure`` of the run
        says otherwise (`fastgc.training.History.measure`). Rounds whose test error is None, NaN or
        infinite are left out. A run without a tested round appears only in the legend. For runs of
        type History, the legend also gives the residual of their gradients.
    ax : matplotlib Axes, optional
        Where to draw. Default: a new figure outside pyplot, ``ax.figure``, with the legend below.
    time_axis : bool
        False: draw against the number of rounds instead of seconds.
    log_x : bool, optional
        Logarithmic horizontal axis. Default: True if the longest run is more than four times as
        long as the shortest.
    caption : str, optional
        Heading of the legend of a new figure. Default: data and delays, if all runs share them.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If no run has a tested round, or runs differ in their measure.
    ImportError
        If matplotlib is not installed.
    """
    measure = _measure(histories)
    percent = measure == MISCLASSIFIED
    curves = [(history.name, *_curve(history, time_axis)) for history in histories]
    notes = [_note(history) for history in histories]
    ends = [x[-1] for _, x, _ in curves if x]
    if not ends:
        raise ValueError("nothing to draw: no run has a round with a test error")
    own = ax is None
    if ax is None:
        wide, high = settings()["figure.figsize"]
        names = [f"{name}{note}" for (name, _, _), note in zip(curves, notes, strict=True)]
        columns = legend_columns(names, wide)
        ax = new_figure(height=high + legend_inches(names, columns)).add_subplot()
    looks = zip(cycle(COLOURS), cycle(DASHES), strict=False)
    for (name, x, y), note, (colour, dash) in zip(curves, notes, looks, strict=False):
        label = f"{name}{note}" if x else f"{name} (not tested)"
        # The dot marks the end of a run; without it, a single tested round would be invisible.
        ax.plot(
            x,
            y,
            dash,
            color=colour,
            label=label,
            marker="o",
            markevery=[-1],
            zorder=above(dash),
        )

    _scale_errors(ax, [error for _, _, y in curves for error in y], percent)
    if log_x is None:
        log_x = max(ends) > WIDE * min(ends) > 0
    if log_x:
        ax.set_xscale("log")
        plain_decades(ax.xaxis, percent=False)
    else:
        ax.set_xlim(left=0)
    ax.set_xlabel("time of training (s)" if time_axis else "round")
    ax.set_ylabel(f"test {measure}")
    title = one_line(inches(ax)[0], *_reached(curves, measure, time_axis))
    ax.set_title(title, fontsize="medium")
    plain_frame(ax)
    if own:
        said = _run_title(histories) if caption is None else caption
        legend_below(ax.figure, said, ncols=columns)
    else:
        ax.legend(frameon=False, fontsize=SMALL)
    return ax


def _scale_errors(ax: Axes, errors: Sequence[float], percent: bool) -> None:
    """Make the axis of errors logarithmic if errors are positive and differ widely."""
    if min(errors) > 0 and max(errors) >= WIDE * min(errors):
        ax.set_yscale("log")
        plain_decades(ax.yaxis, percent=percent)
    else:
        ax.set_ylim(bottom=0)
        if percent:
            percent_axis(ax.yaxis)


def reached(histories: Sequence[_History]) -> str:
    """Return the title of `error_curves`: when runs reach the lowest error that all reach."""
    curves = [(history.name, *_curve(history, True)) for history in histories]
    return _reached(curves, _measure(histories), True)[1]


def _reached(curves: Sequence[_Curve], measure: str, time_axis: bool) -> list[str]:
    """Return titles of decreasing length: naming all runs, the first and the last, the first."""
    level = max(min(y, default=math.inf) for _, _, y in curves)
    if not math.isfinite(level):
        return [""] * 3
    at = sorted(
        (next(when for when, error in zip(x, y, strict=True) if error <= level), name)
        for name, x, y in curves
    )
    said = [
        f"{name.partition(' (')[0]} after {duration(when) if time_axis else f'{when:.0f} rounds'}"
        for when, name in at
    ]
    percent = measure == MISCLASSIFIED
    what = f"{100 * level:.2g}% error" if percent else f"{measure} {level:.3g}"
    ends = said if len(said) == 1 else [said[0], said[-1]]
    return [f"{what}: {', '.join(each)}" for each in (said, ends, said[:1])]


def _run_title(histories: Sequence[Any]) -> str:
    """Return the data and delays of all runs; empty if they differ or are unknown."""
    told = {
        tuple(getattr(history, name, "") for name in ("data", "delays")) for history in histories
    }
    return "; ".join(filter(None, told.pop())) if len(told) == 1 else ""


def stability_curves(
    rows: Sequence[StabilityRow],
    ax: Axes,
    sizes: Sequence[tuple[int, int]] | None = None,
    names: Sequence[str] | None = None,
) -> Axes:
    """Draw relative errors of `fastgc.stability.compare` against sizes, with a line for each code.

    Lines are medians; bars reach up to the largest error. Above an error of 1 nothing of the
    gradient is right, and the axis ends soon after.

    Parameters
    ----------
    rows : sequence of StabilityRow
        Rows of one dtype and one pattern.
    ax : matplotlib Axes
    sizes : sequence of pairs, optional
        The place of each row on the horizontal axis: workers and stragglers. Default: ``(row.n,
        row.stragglers)``.
    names : sequence of str, optional
        Codes, in the order of their colours. Default: the codes of the rows.
    """
    at = [(row.n, row.stragglers) for row in rows] if sizes is None else list(sizes)
    places = {size: place for place, size in enumerate(sorted(set(at)))}
    styles = zip(cycle(MORE_COLOURS), cycle(MARKERS), cycle(DASHES), strict=False)
    names = list(dict.fromkeys(row.code for row in rows)) if names is None else names
    for number, (name, (colour, marker, dash)) in enumerate(zip(names, styles, strict=False)):
        mine = [(places[size], row) for size, row in zip(at, rows, strict=True) if row.code == name]
        mine.sort(key=lambda each: each[0])
        # Side by side, so that the bars of equal points do not overlap.
        apart = 0.3 * ((number + 0.5) / len(names) - 0.5)
        y = [drawn_error(row.error) for _, row in mine]
        up = [
            drawn_error(row.worst_error) - middle for (_, row), middle in zip(mine, y, strict=True)
        ]
        ax.errorbar(
            [place + apart for place, _ in mine],
            y,
            yerr=[[0.0] * len(up), up],
            fmt=marker,
            linestyle=dash,
            color=colour,
            label=name,
            elinewidth=settings()["axes.linewidth"],
        )
    ax.set_yscale("log")
    ax.set_ylim(1e-17, _NOTHING_LEFT)
    ax.axhspan(1, _NOTHING_LEFT, color="0.92", zorder=0)
    ax.text(0.01, 5, "nothing left", transform=ax.get_yaxis_transform(), va="center", color="0.4")
    ax.set_xticks(list(places.values()), [f"{n}/{s}" for n, s in places])
    ax.set_xlim(-0.5, len(places) - 0.5)
    ax.set_xlabel("workers n / stragglers s")
    ax.set_ylabel("relative error of the gradient")
    plain_frame(ax)
    return ax


def stability_figure(
    rows: Sequence[StabilityRow], sizes: Sequence[tuple[int, int]] | None = None
) -> Figure:
    """Draw `stability_curves` of each dtype and pattern, side by side.

    Parameters
    ----------
    rows : sequence of StabilityRow
    sizes : sequence of pairs, optional
        As in `stability_curves`.

    Raises
    ------
    ValueError
        If there is no row.
    """
    if not rows:
        raise ValueError("nothing to draw: no code was measured")
    at = [(row.n, row.stragglers) for row in rows] if sizes is None else list(sizes)
    kinds = list(dict.fromkeys((row.dtype, row.pattern) for row in rows))
    names = list(dict.fromkeys(row.code for row in rows))
    columns = across(len(kinds))
    lines = -(-len(kinds) // columns)
    height = settings()["figure.figsize"][1] * lines + legend_inches(names, columns)
    figure = new_figure(height=height)
    first = None
    for place, (dtype, pattern) in enumerate(kinds, start=1):
        ax = figure.add_subplot(lines, columns, place, sharey=first)
        first = first or ax
        here = [(row.dtype, row.pattern) == (dtype, pattern) for row in rows]
        stability_curves(
            [row for row, shown in zip(rows, here, strict=True) if shown],
            ax,
            [size for size, shown in zip(at, here, strict=True) if shown],
            names,
        )
        if (place - 1) % columns:
            ax.set_ylabel("")
        ax.set_title(f"{pattern} stragglers, {dtype}")
    handles, _ = first.get_legend_handles_labels() if first else ([], [])
    legend_below(figure, handles=handles, labels=names, ncols=columns)
    sets = max(row.sets for row in rows)
    title = f"median, and up to the worst of {sets} sets of survivors"
    figure.suptitle(title, fontsize="medium")
    return figure


def circle_curves(values: CircleValues, ax: Axes | None = None) -> Axes:
    """Draw the exact and the near-exact decoding vector around the circle, on a logarithmic axis.

    Stragglers' places are shaded. The exact polynomial is 0 there and has gaps.

    Parameters
    ----------
    values : CircleValues
        The result of `fastgc.stability.circle_values`.
    ax : matplotlib Axes, optional
        Where to draw. Default: a new figure, ``ax.figure``.
    """
    from matplotlib.ticker import MaxNLocator

    own = ax is None
    if ax is None:
        ax = new_figure().add_subplot()
    place = np.arange(values.lost.size)
    steps = np.diff(values.lost.astype(np.int8), prepend=0, append=0)
    label = "stragglers"
    for start, end in zip(np.flatnonzero(steps > 0), np.flatnonzero(steps < 0), strict=True):
        ax.axvspan(start - 0.5, end - 0.5, color="0.9", zorder=0, label=label)
        label = "_stragglers"
    curves = (("exact vector", values.exact), ("near-exact vector", values.near_exact))
    for (name, logs), colour, dash in zip(curves, COLOURS[1::-1], ("--", "-"), strict=False):
        shown = np.where(np.isfinite(logs), logs, np.nan)
        ax.plot(place, shown, dash, color=colour, label=name, zorder=above(dash))
    ax.axhline(0, color="0.4", linewidth=settings()["axes.linewidth"], linestyle=":", zorder=1)
    ax.set_xlim(-0.5, place.size - 0.5)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(lambda value, _: f"$10^{{{value:.0f}}}$")
    ax.set_xlabel("place i on the circle")
    ax.set_ylabel("n |p(α$^i$)|")
    ax.set_title(f"n = {place.size}, s = {np.count_nonzero(values.lost)}", fontsize="medium")
    plain_frame(ax)
    if own:
        legend_below(ax.figure, ncols=3)
    else:
        ax.legend(frameon=False, fontsize=SMALL)
    return ax


def tracking_curves(tracks: Mapping[str, StabilityTracker], ax: Axes | None = None) -> Axes:
    """Draw the predicted and measured errors of tracked runs, round by round.

    Parameters
    ----------
    tracks : mapping of names to StabilityTracker
    ax : matplotlib Axes, optional
        Where to draw. Default: a new figure, ``ax.figure``.

    Raises
    ------
    ValueError
        If no round was tracked.
    """
    if not any(tracker.rounds for tracker in tracks.values()):
        raise ValueError("nothing to draw: no round was tracked")
    own = ax is None
    if ax is None:
        ax = new_figure().add_subplot()
    from matplotlib.ticker import MaxNLocator

    for (name, tracker), colour in zip(tracks.items(), cycle(COLOURS), strict=False):
        rounds = [each for each in tracker.rounds if math.isfinite(each.predicted)]
        ax.plot(
            [each.round for each in rounds],
            [each.predicted for each in rounds],
            color=colour,
            linestyle="-",
            label=name,
        )
        rounds = [each for each in tracker.rounds if math.isfinite(each.measured)]
        if rounds:
            ax.plot(
                [each.round for each in rounds],
                [each.measured for each in rounds],
                linestyle="none",
                marker="o",
                color=colour,
            )
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_title("lines: predicted, dots: measured", fontsize="medium")
    ax.set_xlabel("round")
    ax.set_ylabel("relative error of the gradient")
    plain_frame(ax)
    if own:
        legend_below(ax.figure)
    else:
        ax.legend(frameon=False, fontsize=SMALL)
    return ax


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

    Raises
    ------
    ValueError
        If there is no run, or a run without a round.
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
    return [
        Panel(
            "",
            x,
            y,
            [line(history, x, y) for history in histories],
            log_x=wide and x == time,
            log_y=wide or y == loss,
        )
        for x, y in axes
    ]


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
        If there is no run, or a run without an evaluated round; if runs differ in their measure.
    """
    if not histories or not all(any(r.evaluated for r in each.rounds) for each in histories):
        raise ValueError("nothing to draw: there must be runs, of an evaluated round at least")
    measure = _measure(histories)
    percent = measure == MISCLASSIFIED
    least = 0.0 if optimum is None else float(optimum)
    loss_label = "training loss" if optimum is None else "training loss above the optimum"
    times = [history.rounds[-1].time for history in histories]
    unit, per_second = time_unit(max(times))
    time_label = f"time of training ({unit})"

    def loss(record: Record) -> float:
        above = record.loss - least
        return above if above > 0 or optimum is None else math.nan

    def error(record: Record) -> float:
        return record.test_error * (100 if percent else 1)

    def against_time(y_label: str, of: Callable[[Record], float]) -> Panel:
        lines = []
        for history in histories:
            shown = [r for r in history.rounds if r.evaluated]
            x = [per_second * r.time for r in shown]
            note = leaves_out([history.residual()])
            lines.append(Line(history.name, x, [of(r) for r in shown], note=note))
        starts = [line.x[0] for line in lines]  # 0 if simulated workers take no time
        wide = max(line.x[-1] for line in lines) > WIDE * max(starts) and min(starts) > 0
        return Panel("", time_label, y_label, lines, log_x=wide, log_y=spread(lines))

    def against_load(y_label: str, of: Callable[[History], float], log: bool) -> Panel:
        lines = [
            Line(each.name, [each.load], [of(each)], "points", note=leaves_out([each.residual()]))
            for each in histories
        ]
        return Panel("", "mean load × n / k", y_label, lines, log_y=log and spread(lines))

    return [
        against_time(loss_label, loss),
        against_time(f"test {measure} (%)" if percent else f"test {measure}", error),
        against_load("residual, root mean square", lambda each: each.residual(), False),
        against_load(
            f"{loss_label}, in the end",
            lambda each: loss([r for r in each.rounds if r.evaluated][-1]),
            True,
        ),
    ]


def _note(history: Any) -> str:
    """Return the legend's text after the name of a run whose gradients are approximations."""
    note = leaves_out([history.residual()]) if hasattr(history, "residual") else ""
    return f": {note}" if note else ""


def leaves_out(residuals: Iterable[float]) -> str:
    """Return a note with the smallest and the largest of the residuals; "" if all are exact."""
    shares = [100 * each for each in residuals if each > APPROXIMATE]
    if not shares:
        return ""
    low, high = (f"{share:.2g}" for share in (min(shares), max(shares)))
    return f"leaves out {low}%" if low == high else f"leaves out {low}% to {high}%"


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


def _curve(history: _History, time_axis: bool) -> tuple[list[float], list[float]]:
    x, y = [], []
    for number, tested in enumerate(history.rounds, start=1):
        if tested.test_error is not None and math.isfinite(tested.test_error):
            x.append(tested.time if time_axis else float(number))
            y.append(tested.test_error)
    return x, y
