"""``fastgc simulate``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import typer

from ..codes import catalogue
from ..delays.interface import sample
from . import options
from .common import CHOOSING, command, echo, option
from .options import DELAYS, named
from .output import DRAWN, Heading, Tables, check_drawn, check_pictures, draw, milliseconds
from .values import (
    Recorded,
    Simulated,
    Size,
    Source,
    processors_said,
    say_unknown,
    size_of,
    source_of,
)

if TYPE_CHECKING:
    from ..simulation import Followed, Simulation


class Codes(Size):
    """The codes to simulate, their size, and the delays."""

    names: list[str] | None = options.codes("Codes, such as rs bcc:load=5.")
    partitions: int | None = options.partitions()
    delays: str = options.delays(DELAYS)


class Rounds(Codes, Simulated, Recorded):
    """All options of the command but those of its output."""

    receive: float = options.receive()
    request: float = option(
        0.0,
        "Seconds that a request to workers takes, for codes that ask for sums (partial-work) or "
        "for missing partitions (reactive).",
        min=0.0,
    )
    rounds: int = options.rounds(10_000, "Rounds to simulate of each code.")
    seed: int = options.seed()
    plot: Path | None = options.picture("Plot the distribution of the rounds' times to this file.")
    timeline: Path | None = options.timeline("code")
    width: str = options.width()


class _Case(NamedTuple):
    """The times and sizes that all codes share."""

    source: Source
    n: int
    s: int
    cost: Any  # seconds of a partition
    processors: Any


@command(CHOOSING, "fastgc simulate rs binary -n 12 -s 2 --delays exponential:mean=0.01")
def simulate(context: typer.Context, what: Rounds, output: Tables) -> None:
    """Simulate rounds: how long each code takes, how many workers it waits for, at what load."""
    from .. import plotting
    from ..planning.plan import reasons

    output.check()
    check_pictures(what.width, what.plot, what.timeline)
    case = _case(context, what)
    source = case.source
    found, followed, loads, impossible = _simulate_each(what, case)
    if not found:
        raise ValueError(f"no code fits: {'; '.join(reasons(impossible))}")
    about = f"n = {case.n}, s = {case.s}; {source.said}"
    draw(lambda: plotting.time_curves(found, caption=about), what.plot, what.width)
    shown = {catalogue.describe(name): each for name, each in followed.items()}
    draw(lambda: plotting.timeline_figure(shown), what.timeline, what.width, "timeline")
    for line in reasons(impossible):
        echo(line, err=True)
    say_unknown(source.model, found.items())
    figures = {name: _figures(loads[name], each) for name, each in found.items()}
    if output.write(figures, [{"code": name, **each} for name, each in figures.items()]):
        return
    title = (
        f"n={case.n} workers, s={case.s} stragglers, k={what.partitions or case.n} partitions; "
        f"{source.text}, {np.mean(case.cost):.3g} s per partition; {what.rounds} rounds, "
        f"seed {what.seed}"
    )
    if case.processors is not None:
        title += f"; {processors_said(case.processors)}"
    if what.request:
        title += f"; {what.request:g} s to ask for sums"
    _show(title, figures, any(each.residuals is not None for each in found.values()), output)


def _case(context: typer.Context, what: Rounds) -> _Case:
    """Return the case asked for; raise ValueError if it cannot be simulated."""
    from ..simulation.rounds import crowding

    source = source_of(context, what)
    n, s = size_of(what, source.n)
    if source.model is not None:
        sample(source.model, 0, n, what.seed)  # raises if they are for another number of workers
    if what.timeline is not None:
        check_drawn(named(what.names) or catalogue.names(), "name some")
        if what.request:
            raise ValueError("leave out --timeline: rounds with --request are not followed")
    processors = source.processors(what.processors)
    if processors is not None:
        crowding(n, processors)  # raises if they do not fit the number of workers
        if what.request:
            raise ValueError("leave out --request: shared processors are simulated without it")
    cost = source.cost(what.cost, what.partitions or n, processors)
    return _Case(source, n, s, cost, processors)


def _simulate_each(
    what: Rounds, case: _Case
) -> tuple[dict[str, Simulation], dict[str, Followed], dict[str, int], dict[str, str]]:
    """Return by codes' names: times, first rounds (for --timeline), loads, and reasons for none.

    A named code that cannot be made raises ValueError. If no codes are named, such codes are left
    out, and the reasons are returned.
    """
    from ..delays import Outages
    from ..progress import share_bar
    from ..simulation import follow
    from ..simulation import simulate as run

    conditions: Any = {
        "cost": case.cost,
        "receive": what.receive,
        "seed": what.seed,
        "interrupted": case.source.interrupted(what.finish),
        "processors": case.processors,
    }
    model, asked = case.source.model, named(what.names)
    chosen = asked or catalogue.names()
    found: dict[str, Simulation] = {}
    followed: dict[str, Followed] = {}
    loads: dict[str, int] = {}
    impossible: dict[str, str] = {}
    with share_bar("simulating", len(chosen)) as show:
        for at, name in enumerate(chosen):
            try:
                code = catalogue.make(name, case.n, what.partitions, case.s, what.seed)
                if isinstance(model, Outages):
                    code = model.placed(code)
                how = {"request": what.request, "progress": partial(show, at), **conditions}
                found[name] = run(code, model, rounds=what.rounds, **how)
                if what.timeline is not None:
                    followed[name] = follow(code, model, rounds=DRAWN, **conditions)
                loads[name] = code.load
            except ValueError as error:
                if asked:
                    raise
                impossible[name] = str(error)
    return found, followed, loads, impossible


def _figures(load: int, found: Simulation) -> dict[str, Any]:
    median, late = found.quantile([0.5, 0.99]).tolist()
    return {
        "load": load,
        "mean": found.mean,
        "standard_error": found.standard_error,
        "median": median,
        "99%": late,
        "workers": found.mean_workers,
        "messages": found.mean_messages,
        "communication_load": found.communication_load,
        "computations": found.mean_computations,
        "residual": found.residual,
        "mean_exists": found.mean_exists,
    }


def _show(
    title: str, figures: Mapping[str, Mapping[str, Any]], approximate: bool, output: Tables
) -> None:
    """Print the table, and explain its columns."""
    columns: list[Heading] = [
        "code",
        "load",
        ("mean", "mean time, ms"),
        ("±", "standard error"),
        "median",
        "99%",
        ("workers", "workers waited for"),
        ("sent", "gradients received"),
        ("computed", "gradients computed"),
    ]
    rows: list[list[Any]] = [
        [
            name,
            str(each["load"]),
            *(milliseconds(each[key]) for key in ("mean", "standard_error", "median", "99%")),
            *(f"{each[key]:.1f}" for key in ("workers", "communication_load", "computations")),
        ]
        for name, each in figures.items()
    ]
    legend = (
        "mean, median, 99%: time of a round, ms (±: standard error of the mean); workers: waited "
        "for, mean; sent: gradients received, mean; computed: partial gradients computed by then, "
        "mean"
    )
    if approximate:
        columns.append(("left", "left out"))
        for row, each in zip(rows, figures.values(), strict=True):
            row.append(left_out(each["residual"]))
        legend = (
            "mean, 99%: time of a round, ms (±: standard error of the mean); workers: waited for, "
            "mean; sent: gradients received, mean; left: part of the gradient that is left out, "
            "root mean square (–: no more than rounding)"
        )
        if not output.markdown:  # a terminal has no room for the median and what was computed
            for cells in (columns, *rows):
                del cells[8], cells[4]
    output.show(title, columns, rows)
    output.explain(legend, figures)


def left_out(residual: float) -> str:
    """Write a residual, or a dash for codes that decode only what is exact up to rounding."""
    return "–" if math.isnan(residual) else f"{residual:.2g}"
