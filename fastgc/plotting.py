"""Pictures of training runs."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["check_path", "error_curves", "save_error_curves"]

_SUFFIXES = (".png", ".svg", ".pdf")
# Okabe and Ito's palette, which colour-blind readers tell apart; the dashes serve print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":")
_DECADE = 10.0
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
    """Draw the test error of training runs against wall-clock time, one line a run.

    The error axis is logarithmic where the errors are positive and the largest is at least four
    times the smallest.

    Parameters
    ----------
    histories : sequence
        Runs, each with a ``name`` and ``rounds``; a round has its ``time`` in seconds since
        training began and its ``error_curves``, a fraction. Rounds whose test error is None or NaN
        were not tested and are left out. A run without a tested round appears in the legend only.
    ax : matplotlib Axes, optional
        Where to draw; else a new figure that pyplot does not know of, ``ax.figure``.
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
        If no run has a tested round.
    ImportError
        If matplotlib is not installed.
    """
    curves = [(history.name, *_curve(history, time_axis)) for history in histories]
    ends = [x[-1] for _, x, _ in curves if x]
    if not ends:
        raise ValueError("nothing to draw: no run has a round with a test error")
    if ax is None:
        ax = _new_figure().add_subplot()
    for (name, x, y), colour, dash in zip(curves, cycle(_COLOURS), cycle(_DASHES), strict=False):
        label = name if x else f"{name} (not tested)"
        # The dot marks where a run ends, and is all there is to see of one tested round.
        ax.plot(x, y, dash, color=colour, label=label, marker="o", markersize=4, markevery=[-1])

    errors = [error for _, _, y in curves for error in y]
    if min(errors) > 0 and max(errors) >= _WIDE * min(errors):
        ax.set_yscale("log")
        _plain_decades(ax.yaxis, percent=True)
    else:
        ax.set_ylim(bottom=0)
        _percent(ax.yaxis)
    if log_x is None:
        log_x = max(ends) > _WIDE * min(ends) > 0
    if log_x:
        ax.set_xscale("log")
        _plain_decades(ax.xaxis, percent=False)
    else:
        ax.set_xlim(left=0)
    ax.set_xlabel("wall-clock time (s)" if time_axis else "round")
    ax.set_ylabel("test error")
    ax.grid(True, which="major", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax


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
        If the suffix is another one, or no run has a tested round.
    ImportError
        If matplotlib is not installed.
    """
    check_path(path)
    figure = _new_figure()
    error_curves(histories, figure.add_subplot())
    figure.savefig(path, format=Path(path).suffix[1:].lower(), dpi=200)


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise what `save_error_curves` would, before the runs it is to draw are there."""
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise ValueError(f"{path}: a picture's name must end in {', '.join(_SUFFIXES)}")
    _new_figure()


def _curve(history: _History, time_axis: bool) -> tuple[list[float], list[float]]:
    x, y = [], []
    for number, tested in enumerate(history.rounds, start=1):
        if tested.test_error is not None and not math.isnan(tested.test_error):
            x.append(tested.time if time_axis else float(number))
            y.append(tested.test_error)
    return x, y


def _new_figure() -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "fastgc[plot]"') from error
    return Figure(figsize=(7, 4.5), layout="constrained")


def _percent(axis: Axis) -> None:
    axis.set_major_formatter(lambda value, _: f"{100 * value:g}%")


def _plain_decades(axis: Axis, percent: bool) -> None:
    """Put ticks at 1, 2, 5 of each decade, as plain numbers; at 1 where decades are many."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    crowded = high > _DECADE**4 * low
    axis.set_major_locator(LogLocator(subs=(1,) if crowded else (1, 2, 5)))
    axis.set_minor_formatter(NullFormatter())
    if percent:
        _percent(axis)
    else:
        axis.set_major_formatter(lambda value, _: f"{value:g}")
