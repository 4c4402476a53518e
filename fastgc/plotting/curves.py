"""Pictures of training runs, of precision, and of the papers' figures."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from textwrap import fill
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from .._arrays import at_least
from ..history import MISCLASSIFIED
from .frames import (
    COLOURS,
    DASHES,
    HEIGHT,
    MARKERS,
    MORE_COLOURS,
    SMALL,
    WIDTH,
    check_path,
    even_lines,
    figure_title,
    new_figure,
    percent_axis,
    plain_decades,
    plain_frame,
    save,
)
from .panels import Line, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..history import History, Record
    from ..stability import CircleValues, StabilityRow, StabilityTracker

__all__ = [
    "circle_curves",
    "error_curves",
    "panel_figure",
    "save_circle_curves",
    "save_error_curves",
    "save_panels",
    "save_stability_curves",
    "save_tracking_curves",
    "spending_panels",
    "stability_curves",
    "stability_figure",
    "tracking_curves",
]

_NOTHING_LEFT = 30.0  # end of the axis of relative errors
_INSIDE = 3  # entries of a legend, at most, that stands in a panel
_AMONG = 3  # the same, among curves that go up and down
_LETTER, _KEY = 0.072, 0.75  # inches that a letter of one takes, and the rest of it
_MOST_ACROSS = 4  # columns of a legend
_LABEL = 40  # letters beside a vertical axis, in a line
_APART = 16  # ticks that would be too many
_ENTRY = 0.19  # inches that a line of one takes
_BELOW = 0.5  # inches from an axis down to a legend below it, and below the axis's own texts
_TICKED = 8  # whole numbers on a logarithmic axis that each have a tick
_WIDE = 4.0  # a span from which on a logarithmic axis shows more


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
) -> Axes:
    """Draw the test error of training runs against time, one line a run.

    The error axis is logarithmic where the errors are positive and the largest is at least four
    times the smallest.

    Parameters
    ----------
    histories : sequence
        Runs, each with a ``name`` and ``rounds``; a round has its ``time`` in seconds since
        training began and its ``test_error``. That is a fraction, unless an attribute ``measure``
        of the run says otherwise (`fastgc.training.History.measure`). Rounds whose test error is
        None, NaN or infinite are left out. A run without a tested round appears in the legend only.
    ax : matplotlib Axes, optional
        Where to draw; else a new figure that pyplot does not know of, ``ax.figure``, with the
        legend of many runs below.
    time_axis : bool
        False draws against the number of rounds in place of seconds.
    log_x : bool, optional
        Logarithmic horizontal axis; by default where the longest run is more than four times the
        shortest.

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
    measures = {str(getattr(history, "measure", MISCLASSIFIED)) for history in histories}
    if len(measures) > 1:
        raise ValueError(
            f"runs that differ in their measure, {', '.join(sorted(measures))}, "
            "do not go in one picture"
        )
    percent = measures <= {MISCLASSIFIED}
    curves = [(history.name, *_curve(history, time_axis)) for history in histories]
    ends = [x[-1] for _, x, _ in curves if x]
    if not ends:
        raise ValueError("nothing to draw: no run has a round with a test error")
    below = ax is None and len(curves) > _AMONG
    if ax is None:
        room = _legend_inches([name for name, _, _ in curves], 1) if below else 0.0
        ax = new_figure(WIDTH, HEIGHT + room).add_subplot()
    for (name, x, y), colour, dash in zip(curves, cycle(COLOURS), cycle(DASHES), strict=False):
        label = name if x else f"{name} (not tested)"
        # The dot marks where a run ends, and is all there is to see of one tested round.
        ax.plot(
            x,
            y,
            dash,
            color=colour,
            label=label,
            marker="o",
            markersize=4,
            markevery=[-1],
            zorder=_height(dash),
        )

    errors = [error for _, _, y in curves for error in y]
    if min(errors) > 0 and max(errors) >= _WIDE * min(errors):
        ax.set_yscale("log")
        plain_decades(ax.yaxis, percent=percent)
    else:
        ax.set_ylim(bottom=0)
        if percent:
            percent_axis(ax.yaxis)
    if log_x is None:
        log_x = max(ends) > _WIDE * min(ends) > 0
    if log_x:
        ax.set_xscale("log")
        plain_decades(ax.xaxis, percent=False)
    else:
        ax.set_xlim(left=0)
    ax.set_xlabel("time of training (s)" if time_axis else "round")
    ax.set_ylabel(f"test {measures.pop()}")
    if title := _run_title(histories):
        ax.set_title(even_lines(title, int(12 * WIDTH)), fontsize="medium")
    plain_frame(ax)
    if below:
        ax.figure.legend(loc="outside lower center", frameon=False, fontsize=SMALL)
    else:
        ax.legend(frameon=False, fontsize=SMALL)
    return ax


def _run_title(histories: Sequence[Any]) -> str:
    """What runs have in common, their data and delays; empty if they differ or do not say."""
    told = {
        tuple(getattr(history, name, "") for name in ("data", "delays")) for history in histories
    }
    return "; ".join(filter(None, told.pop())) if len(told) == 1 else ""


def save_error_curves(histories: Sequence[_History], path: str | os.PathLike[str]) -> None:
    """Write the picture that `error_curves` draws to a file; pyplot's state is not touched.

    Parameters
    ----------
    histories : sequence
        Runs, as `error_curves` takes them.
    path : str or path
        Ends in ``.png``, ``.svg`` or ``.pdf``, which is the format.

    Raises
    ------
    ValueError
        If the suffix is another one, or as `error_curves` says.
    ImportError
        If matplotlib is not installed.
    """
    check_path(path)
    save(error_curves(histories), path)


def stability_curves(
    rows: Sequence[StabilityRow],
    ax: Axes,
    sizes: Sequence[tuple[int, int]] | None = None,
    names: Sequence[str] | None = None,
) -> Axes:
    """Draw relative errors of `fastgc.stability.compare` for several sizes, one line a code.

    Lines are medians; bars reach up to the largest error. Above 1, where nothing of the gradient is
    left, the axis ends.

    Parameters
    ----------
    rows : sequence of StabilityRow
        Of one dtype and one pattern.
    ax : matplotlib Axes
    sizes : sequence of pairs, optional
        Where each row stands on the horizontal axis: workers and stragglers. Default: its own,
        ``(row.n, row.stragglers)``.
    names : sequence of str, optional
        Codes, in the order of their colours. Default: those of the rows.
    """
    at = [(row.n, row.stragglers) for row in rows] if sizes is None else list(sizes)
    places = {size: place for place, size in enumerate(sorted(set(at)))}
    styles = zip(cycle(MORE_COLOURS), cycle(MARKERS), cycle(DASHES), strict=False)
    names = list(dict.fromkeys(row.code for row in rows)) if names is None else names
    for number, (name, (colour, marker, dash)) in enumerate(zip(names, styles, strict=False)):
        mine = [(places[size], row) for size, row in zip(at, rows, strict=True) if row.code == name]
        mine.sort(key=lambda each: each[0])
        # side by side, so that the bars of equal points can be told apart
        apart = 0.3 * ((number + 0.5) / len(names) - 0.5)
        y = [_drawn(row.error) for _, row in mine]
        up = [_drawn(row.worst_error) - middle for (_, row), middle in zip(mine, y, strict=True)]
        ax.errorbar(
            [place + apart for place, _ in mine],
            y,
            yerr=[[0.0] * len(up), up],
            fmt=marker,
            linestyle=dash,
            color=colour,
            label=name,
            markersize=4,
            linewidth=1.2,
            elinewidth=0.6,
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
        As of `stability_curves`.

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
    columns = min(len(kinds), 2)
    lines = -(-len(kinds) // columns)
    figure = new_figure(WIDTH * columns, 0.6 + HEIGHT * lines + _ENTRY * len(names) / columns)
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
    figure.legend(
        handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL
    )
    sets = max(row.sets for row in rows)
    figure.suptitle(f"median, and up to the worst of {sets} sets of survivors", fontsize=10)
    return figure


def save_stability_curves(
    rows: Sequence[StabilityRow],
    path: str | os.PathLike[str],
    sizes: Sequence[tuple[int, int]] | None = None,
) -> None:
    """Write the picture that `stability_figure` draws to a file.

    Raises
    ------
    ValueError
        If the suffix is none of ``.png``, ``.svg`` and ``.pdf``, or there is no row.
    ImportError
        If matplotlib is not installed.
    """
    check_path(path)
    save(stability_figure(rows, sizes), path)


def circle_curves(values: CircleValues, ax: Axes | None = None) -> Axes:
    """Draw the exact and the near-exact decoding vector around the circle, on a logarithmic axis.

    Stragglers' places are shaded. The exact polynomial is 0 there, which the axis does not have.

    Parameters
    ----------
    values : CircleValues
        Of `fastgc.stability.circle_values`.
    ax : matplotlib Axes, optional
        Where to draw; else a new figure, ``ax.figure``.
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
        ax.plot(place, shown, dash, color=colour, linewidth=1.2, label=name, zorder=_height(dash))
    ax.axhline(0, color="0.4", linewidth=0.8, linestyle=":", zorder=1)
    ax.set_xlim(-0.5, place.size - 0.5)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(lambda value, _: f"$10^{{{value:.0f}}}$")
    ax.set_xlabel("place i on the circle")
    ax.set_ylabel("n |p(α$^i$)|")
    ax.set_title(f"n = {place.size}, s = {np.count_nonzero(values.lost)}", fontsize="medium")
    plain_frame(ax)
    if own:
        ax.figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=SMALL)
    else:
        ax.legend(frameon=False, fontsize=SMALL)
    return ax


def save_circle_curves(values: CircleValues, path: str | os.PathLike[str]) -> None:
    """Write the picture that `circle_curves` draws to a file, as `save_error_curves` does."""
    check_path(path)
    save(circle_curves(values), path)


def tracking_curves(tracks: Mapping[str, StabilityTracker], ax: Axes | None = None) -> Axes:
    """Draw the predicted and measured errors of tracked runs, round by round.

    Parameters
    ----------
    tracks : mapping of names to StabilityTracker
    ax : matplotlib Axes, optional
        Where to draw; else a new figure, ``ax.figure``.

    Raises
    ------
    ValueError
        If no round was tracked.
    """
    if not any(tracker.rounds for tracker in tracks.values()):
        raise ValueError("nothing to draw: no round was tracked")
    if ax is None:
        ax = new_figure().add_subplot()
    from matplotlib.ticker import MaxNLocator

    for (name, tracker), colour in zip(tracks.items(), cycle(COLOURS), strict=False):
        rounds = [each for each in tracker.rounds if math.isfinite(each.predicted)]
        ax.plot(
            [each.round for each in rounds],
            [each.predicted for each in rounds],
            color=colour,
            linewidth=1,
            label=name,
        )
        rounds = [each for each in tracker.rounds if math.isfinite(each.measured)]
        if rounds:
            ax.plot(
                [each.round for each in rounds],
                [each.measured for each in rounds],
                linestyle="none",
                marker="o",
                markersize=4,
                color=colour,
            )
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_title("lines: predicted, dots: measured", fontsize="medium")
    ax.set_xlabel("round")
    ax.set_ylabel("relative error of the gradient")
    plain_frame(ax)
    ax.legend(frameon=False, fontsize=SMALL, loc="upper left", bbox_to_anchor=(0, -0.17))
    return ax


def save_tracking_curves(
    tracks: Mapping[str, StabilityTracker], path: str | os.PathLike[str]
) -> None:
    """Write the picture that `tracking_curves` draws to a file, as `save_error_curves` does."""
    check_path(path)
    figure = new_figure()
    tracking_curves(tracks, figure.add_subplot())
    save(figure, path)


def panel_figure(panels: Sequence[Panel], title: str = "", columns: int = 2) -> Figure:
    """Draw panels side by side, at most so many in a row.

    Lines with the same label share a colour, and have one entry in the legend. So have lines that
    coincide, which are called by all of their labels.

    Parameters
    ----------
    panels : sequence of Panel
        At least one.
    title : str
        What to write above all of them.
    columns : int
        Panels in a row, at most. Texts are large enough for print where two have a page of 17 cm,
        and one a column of 8.5 cm.

    Raises
    ------
    ValueError
        If there is no panel; if `columns` is not positive.
    TypeError
        If `columns` is no integer.
    """
    columns = min(len(panels), at_least("columns", columns, 1))
    if not panels:
        raise ValueError("nothing to draw: the figure has no panel")
    rows = -(-len(panels) // columns)
    names = _common_names(panels)
    entries = [list(dict.fromkeys(names[line.label] for line in panel.lines)) for panel in panels]
    below = all(each == entries[0] for each in entries) and (
        len(panels) > 1 or len(entries[0]) > _INSIDE
    )
    room = 0.0  # for legends below what they are of
    if below:
        room = _legend_inches(entries[0], _across(entries[0], WIDTH * columns))
    else:
        for each in entries:
            if len(each) > _INSIDE:
                room = max(room, rows * _legend_inches(each, _across(each, WIDTH)))
    figure = new_figure(WIDTH * columns, HEIGHT * rows + room)
    looks = zip(cycle(MORE_COLOURS), cycle(DASHES), cycle(MARKERS), strict=False)
    look = dict(
        zip(dict.fromkeys(label for each in entries for label in each), looks, strict=False)
    )
    for place, panel in enumerate(panels, start=1):
        ax = figure.add_subplot(rows, columns, place)
        _draw_panel(panel, names, look, ax)
        mine = entries[place - 1]
        if below or not mine:
            continue
        where: dict[str, Any] = {}
        if len(mine) > _INSIDE:
            from matplotlib.transforms import ScaledTranslation

            down = ScaledTranslation(0, -_BELOW, figure.dpi_scale_trans)
            where = {"loc": "upper left", "bbox_to_anchor": (0, 0), "ncols": _across(mine, WIDTH)}
            where["bbox_transform"] = ax.transAxes + down
        ax.legend(handles=_keys(mine, [panel], names, look), frameon=False, fontsize=SMALL, **where)
    if below:
        figure.legend(
            handles=_keys(entries[0], panels, names, look),
            loc="outside lower center",
            ncols=_across(entries[0], WIDTH * columns),
            frameon=False,
            fontsize=SMALL,
        )
    figure_title(title, figure)
    return figure


def _across(entries: Sequence[str], width: float) -> int:
    """Columns that a legend has room for in so many inches."""
    longest = max(len(line) for entry in entries for line in entry.split("\n"))
    return max(1, min(len(entries), _MOST_ACROSS, int(width / (_KEY + _LETTER * longest))))


def _keys(
    entries: Sequence[str],
    panels: Sequence[Panel],
    names: Mapping[str, str],
    look: Mapping[str, tuple[str, str, str]],
) -> list[Any]:
    """What a legend shows of each name: a line, a marker, or both, as the panels have them."""
    from matplotlib.lines import Line2D

    styles: dict[str, set[str]] = {}
    for line in (line for panel in panels for line in panel.lines):
        styles.setdefault(names[line.label], set()).add(line.style)
    keys = []
    for name in entries:
        colour, dash, marker = look[name]
        drawn: Any = "none" if styles[name] == {"points"} else dash
        keys.append(
            Line2D(
                [],
                [],
                linestyle=drawn,
                marker=marker if styles[name] & {"points", "joined"} else None,
                markersize=4,
                color=colour,
                label=name,
            )
        )
    return keys


def _legend_inches(entries: Sequence[str], across: int) -> float:
    """What a legend takes, in so many columns."""
    lines = sum(1 + entry.count("\n") for entry in entries)
    return _ENTRY * -(-lines // across) + 0.1


def save_panels(
    panels: Sequence[Panel], path: str | os.PathLike[str], title: str = "", columns: int = 2
) -> None:
    """Write the picture that `panel_figure` draws to a file, as `save_error_curves` does.

    Raises
    ------
    ValueError
        If the suffix is none of ``.png``, ``.svg`` and ``.pdf``, or there is no panel.
    ImportError
        If matplotlib is not installed.
    """
    check_path(path)
    save(panel_figure(panels, title, columns), path)


def _common_names(panels: Sequence[Panel]) -> dict[str, str]:
    """What to call each label: those whose lines coincide in every panel by all of them."""
    of: dict[str, list[tuple[int, Line]]] = {}
    for at, panel in enumerate(panels):
        for line in panel.lines:
            of.setdefault(line.label, []).append((at, line))
    groups: list[list[str]] = []
    for label, mine in of.items():
        for group in groups:
            others = of[group[0]]
            if len(mine) == len(others) and all(
                here == there and _coincide(line, other)
                for (here, line), (there, other) in zip(mine, others, strict=True)
            ):
                group.append(label)
                break
        else:
            groups.append([label])
    wide = int(12 * WIDTH)
    return {label: fill(" = ".join(group), wide) for group in groups for label in group}


def _coincide(line: Line, other: Line) -> bool:
    """Whether a reader sees one of them only."""
    return line.style == other.style and all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=0, equal_nan=True)
        for a, b in ((line.x, other.x), (line.y, other.y))
    )


def _draw_panel(
    panel: Panel, names: Mapping[str, str], look: Mapping[str, tuple[str, str, str]], ax: Axes
) -> None:
    drawn: dict[str, str] = {}  # by which of its labels each name is drawn
    for line in panel.lines:
        name = names[line.label]
        label = f"_{name}" if name in drawn else name
        if drawn.setdefault(name, line.label) == line.label:
            _draw_line(line, label, look[name], ax)
    at = np.unique(np.concatenate([line.x for line in panel.lines]) if panel.lines else [])
    whole = bool(at.size) and bool((at == np.round(at)).all())
    if panel.log_x:
        ax.set_xscale("log")
        plain_decades(ax.xaxis, percent=False)
        if whole and at.size <= _TICKED and at[0] > 0:
            ax.set_xticks(at)
    elif whole:
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        if 1 < at.size <= _TICKED and np.ptp(at) < _APART * np.diff(at).min():
            ax.set_xticks(at)
    if panel.log_y:
        ax.set_yscale("log")
        plain_decades(ax.yaxis, percent=False)
    title = "\n".join(even_lines(line, int(10 * WIDTH)) for line in panel.title.split("\n"))
    ax.set_title(title, fontsize="medium")
    ax.set_xlabel(panel.x_label)
    ax.set_ylabel(even_lines(panel.y_label, _LABEL))
    plain_frame(ax)


def _height(dash: str) -> float:
    """Above what a line lies: one with gaps above one without, which shows through them."""
    return 2 + 0.1 * DASHES.index(dash)


def _draw_line(line: Line, label: str, look: tuple[str, str, str], ax: Axes) -> None:
    colour, dash, marker = look
    if line.interval is not None:
        ax.vlines(line.x, *line.interval, color=colour, linewidth=0.8)
    if line.style == "points":
        ax.plot(line.x, line.y, marker, color=colour, label=label, markersize=4, zorder=3)
    else:
        ax.plot(
            line.x,
            line.y,
            dash,
            color=colour,
            label=label,
            drawstyle="steps-post" if line.style == "step" else "default",
            marker=marker if line.style == "joined" else None,
            markersize=4,
            zorder=_height(dash),
        )


def _drawn(error: float) -> float:
    """An error inside the axis, or a little beyond its end."""
    return max(min(error, 100 * _NOTHING_LEFT), 1e-17)


def spending_panels(
    histories: Sequence[History], loss_by_communication: bool = False
) -> list[Panel]:
    """Training loss, communication and computation against time, as Zhu et al., figure 2.

    Communication is counted in parameters sent and messages used, computation in gradients of
    single samples, both since training began (eqs. (5) and (6)). Losses are of the rounds that were
    evaluated. Axes of time, and of what grows with it, are logarithmic where the longest run is
    more than four times the shortest.

    Parameters
    ----------
    histories : sequence of History
    loss_by_communication : bool, default False
        Add a fourth panel, of the loss against communication.

    Raises
    ------
    ValueError
        If there is none, or one without a round.
    """
    if not histories or not all(history.rounds for history in histories):
        raise ValueError("nothing to draw: there must be runs, of a round at least")
    ends = [history.rounds[-1].time for history in histories]
    wide = max(ends) > _WIDE * min(ends) > 0
    unit, per_second = ("s", 1.0) if max(ends) >= 1 else ("ms", 1e3)
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


def _curve(history: _History, time_axis: bool) -> tuple[list[float], list[float]]:
    x, y = [], []
    for number, tested in enumerate(history.rounds, start=1):
        if tested.test_error is not None and math.isfinite(tested.test_error):
            x.append(tested.time if time_axis else float(number))
            y.append(tested.test_error)
    return x, y
