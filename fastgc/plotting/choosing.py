"""Pictures for choosing a code: times of rounds, loads, and coding across rounds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .._shown import duration
from ..codes import catalogue
from ..history import APPROXIMATE
from .curves import drawn_error, leaves_out
from .panels import Line, Panel, Style, draw_panels, shorten, spread, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..delays import Fit
    from ..planning import Cell, Choice, Plan
    from ..sequential import Compared
    from ..simulation import Simulation
    from ..stability import SpareRow
    from ..stability.survey import Figures

__all__ = [
    "cost_curves",
    "fit_curves",
    "load_curves",
    "sequential_curves",
    "spare_curves",
    "sweep_curves",
    "time_curves",
    "worst_curves",
]

_NORMAL = 1.96  # standard errors to each side of a mean that contain 95%
_Q = np.linspace(0, 0.999, 400)
_TIMES = [f"{name}{end}" for name in ("seconds", "measured") for end in ("", "_low", "_high")]


def time_curves(found: Mapping[str, Simulation], ax: Any = None, caption: str = "") -> Axes:
    """Draw the fraction of simulated rounds that are over, against time, a line for each code.

    Codes whose lines coincide share one line if they leave out equal parts of gradients. The title
    names the code that is the fastest on average, of exact codes if there are any.

    Parameters
    ----------
    found : mapping of names of codes to Simulation
        Results of `fastgc.simulation.simulate`.
    ax : matplotlib Axes, optional
        Where to draw, with the legend below. Default: a new figure, ``ax.figure``.
    caption : str
        Heading of the legend of a new figure, such as the delays.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there is no code.
    ImportError
        If matplotlib is not installed.
    """
    if not found:
        raise ValueError("nothing to draw: no code was simulated")
    unit, per_second = time_unit(
        float(np.median([np.median(each.times) for each in found.values()]))
    )
    lines = [
        Line(
            catalogue.describe(name),
            per_second * each.quantile(_Q),
            _Q,
            note=leaves_out([each.residual]),
        )
        for name, each in found.items()
    ]
    exact = {name: each for name, each in found.items() if not each.residual > APPROXIMATE}
    among = exact or found
    best = min(among, key=lambda name: among[name].mean)
    kind = "fastest exact code" if len(exact) < len(found) and exact else "fastest"
    title = f"{kind}: {_called(best)}, {duration(among[best].mean)} on average"
    y_label = "part of rounds that are over"
    return draw_panels(
        [Panel(title, f"time of a round ({unit})", y_label, lines, log_x=True)], ax, caption
    )


def cost_curves(found: Mapping[str, Figures], ax: Any = None, caption: str = "") -> Axes:
    """Draw the costs of codes against load: workers waited for, and the error of the gradient.

    A point is a code. Bars reach from the median error to the largest error.

    Parameters
    ----------
    found : mapping of names of codes to Figures
        Results of `fastgc.stability.survey.measure`.
    ax : matplotlib Axes or sequence of two, optional
        Where to draw, the workers first. Default: a new figure with both, ``ax.figure``.
    caption : str
        Heading of the legend of a new figure, such as n and s.

    Returns
    -------
    matplotlib Axes
        The axes of the workers.

    Raises
    ------
    ValueError
        If there is no code.
    ImportError
        If matplotlib is not installed.
    """
    if not found:
        raise ValueError("nothing to draw: no code was measured")
    waited, wrong = [], []
    for name, each in found.items():
        at, label = [each.mean_load], catalogue.describe(name)
        note = leaves_out([each.residual])
        low, high = drawn_error(each.error), drawn_error(each.worst_error)
        waited.append(Line(label, at, [each.mean_workers], "points", note=note))
        wrong.append(Line(label, at, [low], "points", ([low], [high]), note))
    first = min(found, key=lambda name: found[name].mean_workers)
    exact = [name for name, each in found.items() if not each.residual > APPROXIMATE]
    worst = max(exact or found, key=lambda name: found[name].worst_error)
    kind = "least precise exact code" if 0 < len(exact) < len(found) else "least precise"
    x_label = "load (partitions per worker)"
    return draw_panels(
        [
            Panel(
                f"fewest: {_called(first)}, {found[first].mean_workers:.3g} workers",
                x_label,
                "workers waited for, mean",
                waited,
            ),
            Panel(
                f"{kind}: {_called(worst)}, {found[worst].worst_error:.0e}",
                x_label,
                "relative error of the gradient",
                wrong,
                log_y=True,
            ),
        ],
        ax,
        caption,
    )


def worst_curves(rows: Sequence[Mapping[str, Any]], ax: Any = None, caption: str = "") -> Axes:
    """Draw the errors of codes for their worst stragglers, against the number of workers.

    Points are measured errors; bars reach to the predicted errors.

    Parameters
    ----------
    rows : sequence of mappings
        Rows as ``fastgc worst --json`` writes them for each code and size, with ``code``, ``n``,
        ``stragglers``, ``error`` and ``measured``.
    ax : matplotlib Axes, optional
        Where to draw. Default: a new figure, ``ax.figure``.
    caption : str
        Heading of the legend of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError
        If there is no row.
    ImportError
        If matplotlib is not installed.
    """
    if not rows:
        raise ValueError("nothing to draw: no code was searched")
    lines = []
    for code in dict.fromkeys(row["code"] for row in rows):
        mine = sorted((row for row in rows if row["code"] == code), key=lambda row: row["n"])
        found, real = (
            np.array([drawn_error(row[name]) for row in mine]) for name in ("error", "measured")
        )
        ends = np.minimum(found, real), np.maximum(found, real)
        n = [row["n"] for row in mine]
        lines.append(Line(catalogue.describe(code), n, real, "joined", ends))
    worst = max(rows, key=lambda row: row["error"])
    size = f"{worst['n']}/{worst['stragglers']}"
    return draw_panels(
        [
            Panel(
                f"worst: {_called(worst['code'])}, {size}: {worst['error']:.0e}",
                "workers n",
                "error for the worst stragglers (bars: to what is predicted)",
                lines,
                log_y=True,
            )
        ],
        ax,
        caption,
    )


def spare_curves(
    found: Mapping[str, Sequence[SpareRow]], ax: Any = None, caption: str = ""
) -> Axes:
    """Draw the worst error against spare tolerated stragglers, and against spare messages.

    Parameters
    ----------
    found : mapping of names to sequences of SpareRow
        Results of `fastgc.stability.spare`, by their names in the legend.
    ax : matplotlib Axes or sequence of two, optional
        Where to draw, larger loads first. Default: a new figure with both, ``ax.figure``.
    caption : str
        Heading of the legend of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes of larger loads.

    Raises
    ------
    ValueError
        If there is no row.
    ImportError
        If matplotlib is not installed.
    """
    if not any(found.values()):
        raise ValueError("nothing to draw: nothing was measured")
    panels = []
    for way, title, x_label in (
        ("load", "a larger load", "stragglers tolerated beyond s"),
        ("wait", "waiting for more", "messages waited for beyond n - s"),
    ):
        lines, best = [], math.inf
        for name, rows in found.items():
            mine = sorted((row for row in rows if row.way == way), key=lambda row: row.more)
            if mine:
                best = min(best, *(row.worst for row in mine))
                errors = [drawn_error(row.worst) for row in mine]
                lines.append(Line(name, [row.more for row in mine], errors, "joined"))
        if lines:
            said = f"{title}: at best {best:.0e}"
            panels.append(Panel(said, x_label, "error for the worst stragglers", lines, log_y=True))
    return draw_panels(panels, ax, caption)


def load_curves(plan: Plan, ax: Any = None, caption: str = "") -> Axes:
    """Draw times of rounds and the amplification of rounding against load, a line for each code.

    Bars are 95% intervals of the mean time, and of the median amplification over sets of survivors.

    Parameters
    ----------
    plan : Plan
        The result of `fastgc.planning.plan`.
    ax : matplotlib Axes or sequence of two, optional
        Where to draw, the times first. Default: a new figure with both, ``ax.figure``.
    caption : str
        Heading of the legend of a new figure, such as the delays.

    Returns
    -------
    matplotlib Axes
        The axes of the times.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
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
            lines.append(
                Line(
                    catalogue.describe(name),
                    sorted(by_load),
                    [value(each) for each in mine],
                    "joined",
                    tuple(np.array([interval(each) for each in mine]).T),
                    leaves_out(each.residual for each in mine),
                )
            )
        return Panel(title, "load (partitions per worker)", y_label, lines, log_x=True, log_y=True)

    def time(choice: Choice, errors: float = 0.0) -> float:
        return per_second * (choice.time + errors * choice.standard_error)

    def between(choice: Choice) -> tuple[float, float]:
        low, high = (time(choice, errors) for errors in (-_NORMAL, _NORMAL))
        return (low if low > 0 else time(choice), high)

    worst = max(plan.choices, key=lambda choice: choice.amplification)
    return draw_panels(
        [
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
        ],
        ax,
        caption,
    )


def sweep_curves(cells: Sequence[Cell], ax: Any = None, caption: str = "") -> Axes:
    """Draw times and errors of cells against stragglers, or against workers if only these vary.

    Colours are codes. If stragglers and workers vary, dashes are numbers of workers. If some code
    leaves out parts of gradients, residuals are drawn instead of errors. Bars are 95% intervals.

    Parameters
    ----------
    cells : sequence of Cell
        Cells of `fastgc.planning.sweep`. Cells that were not computed are gaps.
    ax : matplotlib Axes or sequence of them, optional
        Where to draw: times and errors for the first delays, then for the next ones. Default: a
        new figure with all, ``ax.figure``.
    caption : str
        Heading of the legend of a new figure. Default: the delays, if they are the same.

    Returns
    -------
    matplotlib Axes
        The axes of the first times.

    Raises
    ------
    ValueError
        If nothing was computed.
    ImportError
        If matplotlib is not installed.
    """
    shown = [cell for cell in cells if not math.isnan(cell.seconds)]
    if not shown:
        raise ValueError("nothing to draw: no cell was computed")
    delays = list(dict.fromkeys(cell.delays for cell in shown))
    panels = [
        panel
        for told in delays
        for panel in _sweep_panels([cell for cell in cells if cell.delays == told], shown)
    ]
    return draw_panels(panels, ax, caption or (delays[0] if len(delays) == 1 else ""))


def _sweep_panels(mine: Sequence[Cell], shown: Sequence[Cell]) -> list[Panel]:
    """Return panels of times and errors under the same delays, on axes that suit all `shown`."""
    unit, per_second = time_unit(max(cell.seconds for cell in shown))
    by_workers = len({cell.stragglers for cell in shown}) == 1 < len({cell.n for cell in shown})
    several = len({cell.n for cell in shown}) > 1 and not by_workers
    left_out = any(cell.residual > APPROXIMATE for cell in shown)
    lines: dict[tuple[str, str], list[Cell]] = {}
    for cell in mine:  # cells that were not computed stay in: they make gaps in lines
        dash = f"n = {cell.n}" if several else ""
        lines.setdefault((cell.code, dash), []).append(cell)
    notes = {
        code: leaves_out(cell.residual for cell in mine if cell.code == code) for code, _ in lines
    }
    times, errors, measured = [], [], False
    for (code, dash), of in lines.items():
        if all(math.isnan(cell.seconds) for cell in of):
            continue
        of.sort(key=lambda cell: cell.n if by_workers else cell.stragglers)
        at = [cell.n if by_workers else cell.stragglers for cell in of]
        seconds, low, high, real, real_low, real_high = (
            per_second * np.array([getattr(cell, name) for cell in of]) for name in _TIMES
        )
        there = not np.isnan(real).all()
        measured |= there
        # If points show measured times, simulated times are lines without markers.
        style: Style = "line" if there else "joined"
        told: Any = {"note": notes[code], "dash": dash}
        label = catalogue.describe(code)
        times.append(Line(label, at, seconds, style, (low, high), **told))
        if there:
            times.append(Line(label, at, real, "points", (real_low, real_high), **told))
        wrong = [cell.residual if left_out else cell.largest_error for cell in of]
        errors.append(Line(label, at, wrong, "joined", **told))
    computed = [cell for cell in mine if not math.isnan(cell.seconds)]
    best = min(computed, key=lambda cell: cell.seconds)
    worst = max(computed, key=lambda cell: cell.residual if left_out else cell.largest_error)
    wrong_at = f"{_called(worst.code)}, {_size(worst, shown)}"
    x_label = "workers n" if by_workers else "stragglers tolerated s"
    if len({cell.delays for cell in shown}) > 1:
        x_label += f"\n{shorten(mine[0].delays, 40)}"
    real_said = "; points: measured" * measured
    return [
        Panel(
            f"fastest: {_called(best.code)}, {_size(best, shown)}: {duration(best.seconds)}",
            x_label,
            f"time of a round ({unit}{real_said})",
            times,
            log_y=spread(times, zeros=True),
        ),
        Panel(
            f"worst: {wrong_at}: leaves out {100 * worst.residual:.2g}%"
            if left_out
            else f"worst: {wrong_at}: {worst.largest_error:.0e}",
            x_label,
            "left out, root mean square" if left_out else "largest relative error",
            errors,
            log_y=spread(errors, zeros=True) and not left_out,
        ),
    ]


def _size(cell: Cell, shown: Sequence[Cell]) -> str:
    """Return the sizes that tell a cell from the other cells of its code."""
    sizes = {"n": {each.n for each in shown}, "s": {each.stragglers for each in shown}}
    mine = {"n": cell.n, "s": cell.stragglers}
    return ", ".join(f"{key}={mine[key]}" for key, of in sizes.items() if len(of) > 1 or key == "s")


def sequential_curves(found: Sequence[Compared], ax: Any = None, caption: str = "") -> Axes:
    """Draw when gradients of schemes were done, and the times of all choices tried against load.

    Parameters
    ----------
    found : sequence of Compared
        The result of `fastgc.sequential.compare`, the fastest first.
    ax : matplotlib Axes or sequence of two, optional
        Where to draw, the gradients first. Default: a new figure with both, ``ax.figure``.
    caption : str
        Heading of the legend of a new figure, such as the delays.

    Returns
    -------
    matplotlib Axes
        The axes of the gradients.

    Raises
    ------
    ValueError
        If there is no scheme.
    ImportError
        If matplotlib is not installed.
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
    return draw_panels(
        [
            Panel(
                f"fastest: {_called(best.name)}, {took} per gradient",
                "time (s)",
                "gradients that are done",
                done,
            ),
            Panel(
                f"the best of {count} choices has load {best.scheme.load:.3g}",
                "load (partitions per worker; uncoded: 1)",
                f"time per gradient ({unit})",
                tried,
                log_x=True,
                log_y=True,
            ),
        ],
        ax,
        caption,
    )


def fit_curves(times: ArrayLike, fits: Sequence[Fit], ax: Any = None, caption: str = "") -> Axes:
    """Draw the distributions of recorded times, and of models fitted to them.

    Parameters
    ----------
    times : array_like
        Seconds.
    fits : sequence of Fit
        The result of `fastgc.delays.fit`, the best first.
    ax : matplotlib Axes, optional
        Where to draw. Default: a new figure, ``ax.figure``.
    caption : str
        Heading of the legend of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
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
    return draw_panels(
        [Panel(title, f"time ({unit})", "part of times that are shorter", lines, log_x=True)],
        ax,
        caption,
    )


def _rough(value: float) -> str:
    """Return a number to two digits: 2700."""
    return f"{float(f'{value:.2g}'):g}"


def _called(name: str) -> str:
    """Shorten a code's name for a title of one line; drop the module of a class."""
    return shorten(re.sub(r"^[\w.]+:(?=[A-Z])", "", name), 13)
