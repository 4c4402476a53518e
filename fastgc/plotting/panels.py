"""Panels of diagrams, and helpers of all pictures: colours, readable axes, legends, and files."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import cycle
from pathlib import Path
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from .._base.arrays import Floats, check_word
from .._base.extras import pip_install
from .._base.writing import probe, write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["Line", "Panel", "check_path", "panel_figure", "save", "style"]

_SUFFIXES = (".png", ".svg", ".pdf", ".eps")
# Okabe and Ito's palette, which colour-blind readers can tell apart; dashes are for grey prints.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MORE_COLOURS = (*COLOURS, "#999999", "#882255", "#999933", "#332288")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
_DECADE = 10.0
WIDE = 4.0  # ratio of largest to smallest value from which a logarithmic axis shows more
# A column of a paper, a page of a paper, a slide: width in inches, height of a row, font size.
_WIDTHS = {"single": (3.5, 2.6, 8.0), "double": (7.16, 2.8, 8.0), "slide": (12.5, 5.0, 15.0)}
_ROOM = 28  # the least width of a panel beside another, in ems
ENTRY = 1.37  # height of a line of a legend, in ems
SMALL = "small"  # font size of legends, and of texts inside a picture
_DPI = 300
_GAINED = 1.2  # factor by which the layout enlarges axes
_WIDER = 1.1  # the largest width of a title, relative to its axes
_FEWEST_TICKS = 3
_LEADING = 1.6  # least distance of labels on a vertical axis, in ems
_TINY, _HUGE = 1e-3, 1e5  # values beyond these are labelled with powers of ten


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise the errors that `save` would raise for `path`, before a picture is drawn.

    Raises
    ------
    ValueError
        If the name does not end in ``.png``, ``.svg``, ``.pdf`` or ``.eps``, or names no file.
    OSError
        If no file can be written there.
    """
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise ValueError(f"{path}: a picture's name must end in {', '.join(_SUFFIXES)}")
    probe(path)
    new_figure()


def settings() -> Any:
    """Return matplotlib's current settings; raise ImportError that says how to install it."""
    try:
        import matplotlib.figure
    except ImportError as error:
        raise ImportError(f"pictures need matplotlib: {pip_install('plot')}") from error
    return matplotlib.rcParams


def style(width: str = "double") -> dict[str, Any]:
    """Return settings of matplotlib for pictures with the size, fonts and colours of a paper.

    All pictures of this module follow matplotlib's settings; the commands use these.

    Parameters
    ----------
    width : {"double", "single", "slide"}
        "single": 3.5 inches, one of a paper's two columns, fonts of 8 points. "double": 7.16
        inches, the width of the paper's page. "slide": 12.5 inches, fonts of 15 points. Pictures
        then need no scaling.

    Returns
    -------
    dict
        Settings for ``plt.style.use``, or for ``with plt.style.context``. PDF and EPS files have
        TrueType fonts, as IEEE and ACM require.

    Raises
    ------
    ValueError
        If `width` is unknown.

    Examples
    --------
    >>> import fastgc
    >>> import matplotlib.pyplot as plt
    >>> with plt.style.context(fastgc.plotting.style("single")):
    ...     ax = fastgc.plotting.assignment(fastgc.BinaryCode(6, stragglers=1))
    >>> float(ax.figure.get_figwidth())
    3.5
    """
    check_word("width", width, *_WIDTHS)
    settings()
    from cycler import cycler

    across, high, points = _WIDTHS[width]
    looks = zip(MORE_COLOURS, cycle(DASHES), strict=False)
    colours, dashes = zip(*looks, strict=True)
    return {
        "figure.figsize": (across, high),
        "figure.constrained_layout.use": True,
        "font.size": points,
        "axes.titlesize": "medium",
        "legend.fontsize": SMALL,
        "legend.frameon": False,
        "axes.prop_cycle": cycler(color=colours) + cycler(linestyle=dashes),
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": "0.9",
        "lines.linewidth": 0.15 * points,
        "lines.markersize": 0.45 * points,
        "axes.linewidth": 0.08 * points,
        "grid.linewidth": 0.08 * points,
        **{f"{axis}tick.major.{of}": at * points for axis in "xy" for of, at in _TICK.items()},
        **_FONTS,
    }


_TICK = {"size": 0.35, "width": 0.08}
# Titles are plain text, in which a dollar begins no formula: names of files may have some.
PLAIN: dict[str, Any] = {"parse_math": False}
_FONTS: dict[str, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42}  # TrueType


def em() -> float:
    """Return the font size in inches; layouts in this unit suit any font size."""
    return float(settings()["font.size"]) / 72


def inches(ax: Any) -> tuple[float, float]:
    """Estimate the width and height of axes in inches; the final layout is computed later."""
    box = ax.bbox.transformed(ax.figure.dpi_scale_trans.inverted())
    return _GAINED * box.width, _GAINED * box.height


def letters(long: float) -> int:
    """Return how many letters fit into a line of `long` inches."""
    return int(1.7 * long / em())


def across(panels: int) -> int:
    """Return how many of these panels fit beside each other."""
    return max(1, min(panels, int(settings()["figure.figsize"][0] / (_ROOM * em()))))


def new_figure(width: float | None = None, height: float | None = None) -> Figure:
    """Return a figure outside pyplot, of a size in inches, by default that of the settings."""
    usual = settings()["figure.figsize"]
    from matplotlib.figure import Figure

    size = (usual[0] if width is None else width, usual[1] if height is None else height)
    return Figure(figsize=size, layout="constrained")


def save(picture: Axes | Figure, path: str | os.PathLike[str]) -> None:
    """Write a picture to a file. The same picture gives the same file.

    Parameters
    ----------
    picture : matplotlib Axes or Figure
        A result of a function of this module. For axes, the whole figure is written.
    path : str or path
        A name that ends in ``.png``, ``.svg``, ``.pdf`` or ``.eps``, which gives the format. PDF
        and EPS files have TrueType fonts.

    Raises
    ------
    ValueError
        If the name has another suffix, or a text of the picture cannot be drawn.
    OSError
        If the file cannot be written; it is unchanged.
    """
    check_path(path)
    from matplotlib import rc_context

    kind = Path(path).suffix[1:].lower()
    dated = {"svg": "Date", "pdf": "CreationDate"}
    file = BytesIO()
    told: Any = {"svg.hashsalt": "fastgc", **_FONTS}
    with rc_context(told):
        metadata = {dated[kind]: None} if kind in dated else None
        whole: Any = picture.figure  # may be a subfigure; its `figure` is the whole one
        whole.figure.savefig(file, format=kind, dpi=_DPI, metadata=metadata)
    text = file.getvalue()
    if kind == "eps":  # this is the only line that differs between two writes
        text = re.sub(rb"(?m)^%%CreationDate: .*\n", b"", text, count=1)
    write_file(path, text)


def retitle(picture: Axes | Figure, title: str) -> None:
    """Give a picture another title, or with "" none; titles that tell its panels apart stay."""
    whole: Any = picture.figure
    figure = whole.figure
    shown = {"t": even_lines(title, letters(figure.get_figwidth())), "fontsize": "medium", **PLAIN}
    if figure.get_suptitle():
        figure.suptitle(**shown)
        return
    for ax in figure.axes:
        if ax.get_title():  # else the pad of another title would be lost
            ax.set_title("")
    if len(figure.axes) == 1:
        ax.set_title("", loc="left")
    if title:
        figure.suptitle(**shown)


def shorten(text: str, most: int) -> str:
    """Return the text, cut off after `most` letters."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def even_lines(text: str, width: int) -> str:
    """Break a text into lines of about one length, as few as `width` letters allow."""
    lines, least = len(wrap(text, width)), max(map(len, text.split()), default=1)
    while width > least and len(wrap(text, width - 1)) <= lines:
        width -= 1
    return fill(text, width)


def legend_below(figure: Any, caption: str = "", **entries: Any) -> None:
    """Draw a legend below the whole figure, with `caption` as its heading."""
    legend = figure.legend(
        loc="outside lower center",
        frameon=False,
        fontsize=SMALL,
        title=even_lines(caption, letters(figure.get_figwidth())) or None,
        title_fontsize=SMALL,
        **entries,
    )
    plain_legend(legend)


def plain_legend(legend: Any) -> None:
    """Let a dollar in a legend be a dollar, as in a file's name, and no begin of a formula."""
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit of an axis of so many seconds, and how many units make a second."""
    return ("s", 1.0) if seconds >= 1 else ("ms", 1e3)


def plain_frame(ax: Axes) -> None:
    """Draw a pale grid in the background, and no frame at the top and right."""
    ax.grid(True, which="major", color="0.9", linewidth=settings()["grid.linewidth"])
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def plain_decades(axis: Axis) -> None:
    """Put ticks at 1, 2, 5 of each decade, as plain numbers; take fewer or more to fit the axis."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()

    def ticks(locator: Any) -> list[float]:
        return [at for at in locator.tick_values(low, high) if low <= at <= high]

    wide = high > _DECADE**4 * low
    powers = wide and (low < _TINY or high > _HUGE)
    if powers:
        axis.set_major_formatter(lambda value, _: f"$10^{{{math.log10(value):.0f}}}$")
    else:
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    locators: list[Any] = [LogLocator(subs=subs) for subs in ((1, 2, 5), (1, 3), (1,))]
    fitting = [each for each in locators[2 * wide :] if _have_room(axis, ticks(each))]
    locator = fitting[0] if fitting else locators[-1]
    if len(ticks(locator)) < _FEWEST_TICKS:
        locator = LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7))
    if len(ticks(locator)) < _FEWEST_TICKS or not _have_room(axis, ticks(locator)):
        locator = locators[-1] if wide else MaxNLocator(4)
    axis.set_major_locator(locator)
    axis.set_minor_formatter(NullFormatter())


def _have_room(axis: Any, ticks: Sequence[float]) -> bool:
    """Whether the labels of these ticks fit on a logarithmic axis without overlap."""
    if len(ticks) <= 1:
        return True
    low, high = axis.get_view_interval()
    long = inches(axis.axes)[axis.axis_name == "y"]
    apart = float(np.diff(np.log(ticks)).min()) / math.log(high / low) * long / em()
    said = max(len(axis.get_major_formatter()(at).strip("${}").replace("^{", "")) for at in ticks)
    return apart > (0.6 * said + 0.8 if axis.axis_name == "x" else _LEADING)


def spread(lines: Sequence[Line], zeros: bool = False) -> bool:
    """Whether a logarithmic axis shows more: values are positive and differ more than `WIDE`-fold.

    With `zeros`, values that are not positive are ignored.
    """
    values = np.concatenate([line.y for line in lines])
    values = values[np.isfinite(values) & ((values > 0) | (not zeros))]
    return bool(values.size) and bool(values.min() > 0 and values.max() > WIDE * values.min())


def above(dash: str) -> float:
    """Return the z-order of a line: dashed lines lie above solid ones, which show in the gaps."""
    return 2 + 0.1 * DASHES.index(dash)


def legend_inches(entries: Sequence[str], across: int) -> float:
    """Return the height of a legend with `across` columns, in inches."""
    lines = sum(1 + entry.count("\n") for entry in entries)
    return (ENTRY * -(-lines // across) + 0.7) * em()


Style = Literal["line", "joined", "points", "step"]

_LETTER, _KEY = 0.52, 5.4  # width in ems of a letter of a legend, and of the rest of an entry
_MOST_ACROSS = 4  # the most columns of a legend
_MANY = 6  # with more entries, long entries are broken so that two columns fit
_SHORTEST = 20  # an entry is never broken into lines of fewer letters
_APART = 16  # ticks at uneven whole numbers must not span this many of their smallest steps
_BELOW = 3.6  # ems from an axis down to its legend, with the axis's own texts between
_SEEN, _EQUAL = 0.005, 1e-9  # parts of an axis that a reader cannot see, and that are rounding
_TICKED = 8  # up to this many whole numbers get a tick each


@dataclass(frozen=True, eq=False)
class Line:
    """Points of a panel, joined or not.

    Lines of a panel with the same label have one colour and one entry in the legend.

    Parameters
    ----------
    label : str
    x, y : (points,) array_like
        Coordinates, stored as float64 arrays.
    style : {"line", "joined", "points", "step"}
        "joined": points with lines between them.
    interval : pair of (points,) array_like, optional
        Lower and upper ends of a bar through each point.
    note : str
        A text that the legend shows after the label, such as ``"off by 10%"``. Lines that
        coincide share an entry only if their notes are the same.
    dash : str
        The meaning of the line's dash, such as ``"n = 20"``, which has its own entry in the legend.
        Default: dashes tell labels apart.

    Raises
    ------
    ValueError
        If x, y and the interval's ends are not vectors of one length, or `style` is unknown.
    """

    label: str
    x: Any
    y: Any
    style: Style = "line"
    interval: Any = None
    note: str = ""
    dash: str = ""

    def __post_init__(self) -> None:
        x, y = np.asarray(self.x, dtype=np.float64), np.asarray(self.y, dtype=np.float64)
        if x.ndim != 1 or x.shape != y.shape:
            raise ValueError(
                f"line {self.label!r}: x and y must be vectors of one length, not of shapes "
                f"{x.shape} and {y.shape}"
            )
        check_word(f"line {self.label!r}: style", self.style, *get_args(Style))
        ends = None
        if self.interval is not None:
            low, high = ends = tuple(np.asarray(end, dtype=np.float64) for end in self.interval)
            if low.shape != x.shape or high.shape != x.shape:
                raise ValueError(
                    f"line {self.label!r}: the ends of the interval must be vectors as long as x, "
                    f"of shape {x.shape}, not {low.shape} and {high.shape}"
                )
        for name, value in ("x", x), ("y", y), ("interval", ends):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False)
class Panel:
    """One diagram: titles, lines, which axes are logarithmic, and names of x = 0, 1, ..."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    log_x: bool = False
    log_y: bool = False
    places: Sequence[str] = ()


def panel_figure(panels: Sequence[Panel], title: str = "", caption: str = "") -> Figure:
    """Draw panels side by side, as many in a row as fit (`style`). Legends are below panels.

    Lines with the same label share a colour and an entry in the legend. Lines of a panel that
    coincide are drawn as one, unless their notes differ. Its entry has all labels, with = between
    them if the lines are equal, and ≈ if a reader just cannot see the difference.

    Parameters
    ----------
    panels : sequence of Panel
        At least one.
    title : str
        Title above all panels.
    caption : str
        Heading of the legend, such as the delays in all panels.
    """
    if not panels:
        raise ValueError("nothing to draw: the figure has no panel")
    columns = across(len(panels))
    rows = -(-len(panels) // columns)
    width, height = settings()["figure.figsize"]
    names = [_names(panel, width / columns) for panel in panels]
    entries = [_entries(*each) for each in zip(panels, names, strict=True)]
    shared = all(each == entries[0] for each in entries)
    under = width if shared else width / columns  # width of each legend
    room = max(legend_inches(each, legend_columns(each, under)) for each in entries)
    said = legend_inches(even_lines(caption, letters(width)).split("\n"), 1) if caption else 0.0
    figure = new_figure(width, height * rows + room * (1 if shared else rows) + said)
    axes = [figure.add_subplot(rows, columns, place + 1) for place in range(len(panels))]
    look = _look(panels)
    for each in zip(panels, names, axes, strict=True):
        _draw_panel(*each, look)
        if not shared:
            _legend_under(*each, look, under)
    handles = _keys(panels, names[0], look) if shared else []
    if handles or caption:
        ncols = legend_columns(entries[0], width) if handles else 1
        legend_below(figure, caption, handles=handles, ncols=ncols)
    if title:
        figure.suptitle(even_lines(title, letters(width)), fontsize="medium", **PLAIN)
    return figure


_Look = Mapping[tuple[str, str], tuple[str, str, str]]  # by label and meaning of the dash


def _look(panels: Sequence[Panel]) -> _Look:
    lines = [line for panel in panels for line in panel.lines]
    meant = dict(zip(dict.fromkeys(e.dash for e in lines if e.dash), cycle(DASHES), strict=False))
    labels = list(dict.fromkeys(line.label for line in lines))
    # When colours repeat, markers shift: points have no dash to tell them apart.
    places = [at + at // len(MORE_COLOURS) for at in range(len(labels))]
    markers = [MARKERS[place % len(MARKERS)] for place in places]
    of = dict(
        zip(labels, zip(cycle(MORE_COLOURS), cycle(DASHES), markers, strict=False), strict=True)
    )
    return {
        (label, dash): (colour, meant.get(dash, own), marker)
        for label, (colour, own, marker) in of.items()
        for dash in ("", *meant)
    }


def _entries(panel: Panel, names: Mapping[str, str]) -> list[str]:
    """Return the entries of a panel's legend: for lines, then for dashes."""
    return list(dict.fromkeys([*names.values(), *(e.dash for e in panel.lines if e.dash)]))


def legend_columns(entries: Sequence[str], width: float) -> int:
    """Return how many columns a legend of `width` inches has."""
    longest = max((len(line) for entry in entries for line in entry.split("\n")), default=0)
    columns = int(width / em() / (_KEY + _LETTER * longest))
    return max(1, min(len(entries), _MOST_ACROSS, columns))


def _legend_under(
    panel: Panel, names: Mapping[str, str], ax: Axes, look: _Look, width: float
) -> None:
    """Draw a legend of `width` inches below the axes of a panel."""
    from matplotlib.transforms import ScaledTranslation

    figure: Any = ax.figure
    down = ScaledTranslation(0, -_BELOW * em(), figure.dpi_scale_trans)
    legend = ax.legend(
        handles=_keys([panel], names, look),
        frameon=False,
        fontsize=SMALL,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + down,
        borderaxespad=0,
        ncols=legend_columns(_entries(panel, names), width),
    )
    plain_legend(legend)


def _keys(panels: Sequence[Panel], names: Mapping[str, str], look: _Look) -> list[Any]:
    """Return the legend's key of each name: a line, a marker, or both, as in the panels."""
    from matplotlib.lines import Line2D

    styles: dict[str, set[str]] = {}
    dashes: dict[str, Any] = {}
    first: dict[str, tuple[str, str, str]] = {}
    for line in (line for panel in panels for line in panel.lines):
        name, own = names[line.label], look[line.label, line.dash]
        styles.setdefault(name, set()).add(line.style)
        colour, _, marker = first.setdefault(name, own)
        if line.dash:
            dashes[line.dash] = own[1]
            first[name] = (colour, "-", marker)
    keys = []
    for name, (colour, dash, marker) in first.items():
        drawn: Any = "none" if styles[name] == {"points"} else dash
        marked = marker if styles[name] & {"points", "joined"} else None
        keys.append(Line2D([], [], linestyle=drawn, marker=marked, color=colour, label=name))
    return keys + [
        Line2D([], [], ls=dash, color="0.3", label=name) for name, dash in dashes.items()
    ]


def _names(panel: Panel, width: float) -> dict[str, str]:
    """Return each label's entry in a legend of `width` inches; coinciding lines share an entry."""
    xs = _in_spans([line.x for line in panel.lines], panel.log_x)
    ys = _in_spans([line.y for line in panel.lines], panel.log_y)
    of: dict[str, list[Line]] = {}
    for line, x, y in zip(panel.lines, xs, ys, strict=True):
        of.setdefault(line.label, []).append(replace(line, x=x, y=y))
    groups: dict[str, str] = {}  # entry of each group, by its first label
    group_of: dict[str, str] = {}
    for label, mine in of.items():
        apart = {first: _apart(mine, of[first]) for first in groups}
        first = next((each for each, much in apart.items() if much <= _SEEN), label)
        group_of[label] = first
        if first == label:
            groups[label] = label
        else:
            groups[first] += f"{' = ' if apart[first] <= _EQUAL else ' ≈ '}{label}"
    notes = {label: f": {mine[0].note}" if mine[0].note else "" for label, mine in of.items()}
    columns = 2 if len(groups) > _MANY and width > 2 * _ROOM * em() else 1
    wide = max(_SHORTEST, int((width / em() / columns - _KEY) / _LETTER))
    said = {
        first: fill(group + notes[first], wide, break_on_hyphens=False)
        for first, group in groups.items()
    }
    return {label: said[first] for label, first in group_of.items()}


def _in_spans(values: list[Floats], log: bool) -> list[Floats]:
    """Return where values lie on an axis, in units of the span of all of them."""
    with np.errstate(divide="ignore", invalid="ignore"):
        along = [np.log(each) if log else each for each in values]
    ends = np.concatenate([*along, np.zeros(0)])
    ends = ends[np.isfinite(ends)]
    span = float(np.ptp(ends)) if ends.size else 0.0
    return [each / (span or 1.0) for each in along]


def _apart(lines: Sequence[Line], others: Sequence[Line]) -> float:
    """Return how far lines in spans are apart, as part of an axis; inf if their kinds differ."""
    mine, theirs = ([(e.style, e.note, e.dash, e.x.size) for e in some] for some in (lines, others))
    if mine != theirs:
        return math.inf
    most = 0.0
    for line, other in zip(lines, others, strict=True):
        for here, there in (line.x, other.x), (line.y, other.y):
            same = (here == there) | (np.isnan(here) & np.isnan(there))
            with np.errstate(invalid="ignore"):
                gaps = np.where(same, 0.0, np.abs(here - there))
            most = max(most, float(np.where(np.isnan(gaps), math.inf, gaps).max(initial=0.0)))
    return most


def _draw_panel(panel: Panel, names: Mapping[str, str], ax: Axes, look: _Look) -> None:
    drawn: dict[str, str] = {}  # for each entry of the legend, the label whose lines are drawn
    for line in panel.lines:
        name = names[line.label]
        label = f"_{name}" if name in drawn else name
        if drawn.setdefault(name, line.label) == line.label:
            _draw_line(line, label, look[line.label, line.dash], ax)
    at = np.unique(np.concatenate([line.x for line in panel.lines]) if panel.lines else [])
    whole = bool(at.size) and bool((at == np.round(at)).all())
    wide, high = inches(ax)
    if panel.places:
        ax.set_xticks(range(len(panel.places)), panel.places)
        ax.set_xlim(-0.5, len(panel.places) - 0.5)
    elif panel.log_x:
        ax.set_xscale("log")
        plain_decades(ax.xaxis)
        if whole and at.size <= _TICKED and at[0] > 0 and _have_room(ax.xaxis, at.tolist()):
            ax.set_xticks(at)
    elif whole:
        from matplotlib.ticker import MaxNLocator

        most = 1 + letters(wide) // (len(f"{at[-1]:g}") + 2)  # numbers that fit, with gaps
        ax.xaxis.set_major_locator(MaxNLocator(min(most, 10), integer=True, steps=[1, 2, 5, 10]))
        if 1 < at.size <= _TICKED and np.ptp(at) < _APART * np.diff(at).min():
            ax.set_xticks(at)
    if panel.log_y:
        ax.set_yscale("log")
        plain_decades(ax.yaxis)
    room = letters(_WIDER * wide)
    title = [even_lines(line, room) for line in panel.title.split("\n")]
    ax.set_title("\n".join(title), fontsize="medium", **PLAIN)
    ax.set_xlabel(panel.x_label)
    ax.set_ylabel(even_lines(panel.y_label, letters(high)))
    plain_frame(ax)


def _draw_line(line: Line, label: str, look: tuple[str, str, str], ax: Axes) -> None:
    colour, dash, marker = look
    if line.interval is not None:
        ax.vlines(line.x, *line.interval, color=colour, linewidth=settings()["axes.linewidth"])
    if line.style == "points":
        ax.plot(line.x, line.y, marker, color=colour, label=label, zorder=3)
    else:
        ax.plot(
            line.x,
            line.y,
            dash,
            color=colour,
            label=label,
            drawstyle="steps-post" if line.style == "step" else "default",
            marker=marker if line.style == "joined" or line.x.size == 1 else None,
            zorder=above(dash),
        )
