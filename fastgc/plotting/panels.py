"""Diagrams, and what all pictures share: colours, axes that are easy to read, and files."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import at_least
from .._extras import pip_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "DASHES",
    "ENTRY",
    "HEIGHT",
    "MARKERS",
    "MORE_COLOURS",
    "SMALL",
    "WIDTH",
    "Line",
    "Panel",
    "Style",
    "above",
    "check_path",
    "even_lines",
    "figure_title",
    "legend_below",
    "legend_inches",
    "new_figure",
    "panel_figure",
    "percent_axis",
    "plain_decades",
    "plain_frame",
    "save",
    "save_panels",
    "time_unit",
]

_SUFFIXES = (".png", ".svg", ".pdf")
# Okabe and Ito's palette, which colour-blind readers tell apart; the dashes serve print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MORE_COLOURS = (*COLOURS, "#999999", "#882255", "#999933", "#332288")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
_DECADE = 10.0
# Inches: printed 8.5 cm wide, texts of 9 points are of 6. Two beside each other suit a whole page.
WIDTH, HEIGHT = 5.0, 3.6
SMALL = 9  # points: of legends, and of what stands in a picture
ENTRY = 0.19  # inches that a line of a legend takes
_FEWEST_TICKS = 3
_TINY, _HUGE = 1e-3, 1e5  # beyond which powers of ten are easier to read than zeros


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise what `save` would, before that which it is to draw is there.

    Raises
    ------
    ValueError
        If the name does not end in ``.png``, ``.svg`` or ``.pdf``.
    ImportError
        If matplotlib is not installed.
    """
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise ValueError(f"{path}: a picture's name must end in {', '.join(_SUFFIXES)}")
    new_figure()


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> Figure:
    """A figure of this size in inches that pyplot does not know of."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"pictures need matplotlib: {pip_install('plot')}") from error
    return Figure(figsize=(width, height), layout="constrained")


def save(picture: Axes | Figure, path: str | os.PathLike[str]) -> None:
    """Write a picture to a file. The same picture gives the same file.

    Parameters
    ----------
    picture : matplotlib Axes or Figure
        What functions of this module return. For axes, the whole figure is written.
    path : str or path
        A name that ends in ``.png``, ``.svg`` or ``.pdf``, which gives the format.

    Raises
    ------
    ValueError
        If the suffix is another one.
    ImportError
        If matplotlib is not installed.
    """
    check_path(path)
    from matplotlib import rc_context

    kind = Path(path).suffix[1:].lower()
    dated = {"svg": "Date", "pdf": "CreationDate"}
    with rc_context({"svg.hashsalt": "fastgc"}):
        metadata = {dated[kind]: None} if kind in dated else None
        whole: Any = picture.figure  # of axes perhaps a part of the figure, whose figure is all
        whole.figure.savefig(path, format=kind, dpi=200, metadata=metadata)


def figure_title(text: str, figure: Figure) -> None:
    """Write a title above all of a figure, in lines that fit it."""
    if text:
        figure.suptitle(even_lines(text, int(13 * figure.get_figwidth())), fontsize="medium")


def even_lines(text: str, width: int) -> str:
    """Break a text into lines of about one length, as few as `width` letters allow."""
    lines = len(wrap(text, width))
    while width > 1 and len(wrap(text, width - 1)) <= lines and _whole_words(text, width - 1):
        width -= 1
    return fill(text, width)


def _whole_words(text: str, width: int) -> bool:
    return max(map(len, text.split()), default=0) <= width


def legend_below(figure: Any, **entries: Any) -> None:
    """A legend below all that is drawn."""
    figure.legend(loc="outside lower center", frameon=False, fontsize=SMALL, **entries)


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit of an axis of so many seconds, and how many of it a second has."""
    return ("s", 1.0) if seconds >= 1 else ("ms", 1e3)


def plain_frame(ax: Axes) -> None:
    """A pale grid behind what is drawn, and no frame above and to the right."""
    ax.grid(True, which="major", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def percent_axis(axis: Axis) -> None:
    """Write the axis's fractions in percent."""
    axis.set_major_formatter(lambda value, _: f"{100 * value:g}%")


def plain_decades(axis: Axis, percent: bool) -> None:
    """Put ticks at 1, 2, 5 of each decade, as plain numbers: fewer or more, if need be."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    steps = (1,) if high > _DECADE**4 * low else (1, 2, 5)

    def ticks(locator: Any) -> int:
        return sum(low <= at <= high for at in locator.tick_values(low, high))

    locator: Any = LogLocator(subs=steps)
    if ticks(locator) < _FEWEST_TICKS:
        locator = LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7))
    if ticks(locator) < _FEWEST_TICKS:
        locator = MaxNLocator(4)
    axis.set_major_locator(locator)
    axis.set_minor_formatter(NullFormatter())
    if percent:
        percent_axis(axis)
    elif steps == (1,) and (low < _TINY or high > _HUGE):
        axis.set_major_formatter(lambda value, _: f"$10^{{{math.log10(value):.0f}}}$")
    else:
        axis.set_major_formatter(lambda value, _: f"{value:g}")


def above(dash: str) -> float:
    """Above what a line lies: one with gaps above one without, which shows through them."""
    return 2 + 0.1 * DASHES.index(dash)


def legend_inches(entries: Sequence[str], across: int) -> float:
    """What a legend takes, in so many columns."""
    lines = sum(1 + entry.count("\n") for entry in entries)
    return ENTRY * -(-lines // across) + 0.1


Style = Literal["line", "joined", "points", "step"]

_INSIDE = 3  # entries of a legend, at most, that stands in a panel
_LETTER, _KEY = 0.072, 0.75  # inches that a letter of one takes, and the rest of it
_MOST_ACROSS = 4  # columns of a legend
_LABEL = 40  # letters beside a vertical axis, in a line
_APART = 16  # ticks that would be too many
_BELOW = 0.5  # inches from an axis down to a legend below it, and below the axis's own texts
_TICKED = 8  # whole numbers on a logarithmic axis that each have a tick


@dataclass(frozen=True, eq=False, init=False)
class Line:
    """Points of a panel, joined or not.

    Lines of a panel with the same label have one colour and one entry in the legend.

    Parameters
    ----------
    label : str
    x, y : (points,) array_like
        Kept as float64 arrays.
    style : {"line", "joined", "points", "step"}
        "joined": points with lines between them.
    interval : pair of (points,) array_like, optional
        Lower and upper ends of a bar through each point.

    Raises
    ------
    ValueError
        If x, y and the ends of the interval are not vectors of the same length, or the style is
        unknown.
    """

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    style: Style
    interval: tuple[NDArray[np.float64], NDArray[np.float64]] | None

    def __init__(
        self,
        label: str,
        x: ArrayLike,
        y: ArrayLike,
        style: Style = "line",
        interval: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if x.ndim != 1 or x.shape != y.shape:
            raise ValueError(
                f"line {label!r}: x and y must be vectors of one length, not of shapes {x.shape} "
                f"and {y.shape}"
            )
        if style not in ("line", "joined", "points", "step"):
            raise ValueError(
                f'line {label!r}: style must be "line", "joined", "points" or "step", not {style!r}'
            )
        ends = None
        if interval is not None:
            low, high = (np.asarray(end, dtype=np.float64) for end in interval)
            if low.shape != x.shape or high.shape != x.shape:
                raise ValueError(
                    f"line {label!r}: the ends of the interval must be vectors as long as x, of "
                    f"shape {x.shape}, not {low.shape} and {high.shape}"
                )
            ends = low, high
        given = {"label": label, "x": x, "y": y, "style": style, "interval": ends}
        for name, value in given.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False)
class Panel:
    """One diagram: titles, lines, and which axes are logarithmic."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    log_x: bool = False
    log_y: bool = False


def panel_figure(panels: Sequence[Panel], title: str = "", columns: int = 2) -> Figure:
    """Draw panels side by side, at most so many in a row.

    Lines with the same label share a colour and an entry in the legend. Lines that coincide also
    share an entry, which has all of their labels.

    Parameters
    ----------
    panels : sequence of Panel
        At least one.
    title : str
        Title above all of them.
    columns : int
        Most panels in a row. Texts are large enough to print two panels on a page of 17 cm, or one
        in a column of 8.5 cm.

    Raises
    ------
    ValueError
        If there is no panel, or `columns` is not positive.
    TypeError
        If `columns` is not an integer.
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
        room = legend_inches(entries[0], _across(entries[0], WIDTH * columns))
    else:
        for each in entries:
            if len(each) > _INSIDE:
                room = max(room, rows * legend_inches(each, _across(each, WIDTH)))
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
        keys = _keys(entries[0], panels, names, look)
        legend_below(figure, handles=keys, ncols=_across(entries[0], WIDTH * columns))
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


def save_panels(
    panels: Sequence[Panel], path: str | os.PathLike[str], title: str = "", columns: int = 2
) -> None:
    """Write the picture of `panel_figure` to a file, as `save` does."""
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
            zorder=above(dash),
        )
