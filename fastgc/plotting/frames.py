"""What all pictures share: colours, axes that are easy to read, and files."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any

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
    "above",
    "check_path",
    "even_lines",
    "figure_title",
    "legend_below",
    "legend_inches",
    "new_figure",
    "percent_axis",
    "plain_decades",
    "plain_frame",
    "save",
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
        What functions of this module return; of axes, the whole figure is written.
    path : str or path
        Ends in ``.png``, ``.svg`` or ``.pdf``, which is the format.

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
