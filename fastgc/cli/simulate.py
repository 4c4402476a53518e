"""``fastgc simulate``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..codes import catalogue
from ..delays.interface import described, sample
from . import options
from .common import CHOOSING, command, echo, numbers, option, tolerated
from .options import DELAYS, Sizes
from .output import (
    DRAWN,
    Heading,
    Tables,
    check_drawn,
    check_pictures,
    draw,
    milliseconds,
)

if TYPE_CHECKING:
    from ..delays import DelayModel
    from ..simulation import Followed, Simulation

__all__ = ["left_out", "processors_of", "processors_said", "say_unknown"]


@dataclass(frozen=True)
class Rounds(Sizes):
    """What is simulated."""

    names: str = options.codes("A list such as rs,bcc:load=5. Default: all codes.")
    delays: str = options.delays(DELAYS)
    cost: float = options.cost()
    receive: float = options.receive()
    rounds: int = options.rounds(10_000, "Rounds to simulate of each code.")
    seed: int = options.seed()
    finish: bool = options.finish()
    processors: str = options.processors()
    request: float = option(
        0.0,
        "Seconds that a request to workers takes, for codes that ask for sums (partial-work) or "
        "for missing partitions (reactive).",
        min=0.0,
    )
    plot: Path | None = options.picture("Plot the distribution of the rounds' times to this file.")
    timeline: Path | None = options.timeline("code")
    width: str = options.width()


@command(CHOOSING)
def simulate(what: Rounds, output: Tables) -> None:
    """Simulate rounds: how long each code takes, how many workers it waits for, at what load."""
    from .. import plotting
    from ..planning.plan import reasons

    output.check()
    check_pictures(what.width, what.plot, what.timeline)
    s = tolerated(what.workers, what.stragglers)
    model = _delays(what)
    shared = _shared_processors(what)
    found, followed, loads, impossible = _simulate_each(what, s, model, shared)
    if not found:
        raise ValueError(f"no code fits: {'; '.join(reasons(impossible))}")
    if what.plot is not None:
        about = f"n = {what.workers}, s = {s}; delays {what.delays}"
        draw(lambda: plotting.time_curves(found, caption=about), what.plot, what.width)
    if what.timeline is not None:
        shown = {catalogue.describe(name): each for name, each in followed.items()}
        draw(lambda: plotting.timeline_figure(shown), what.timeline, what.width, "timeline")
    for line in reasons(impossible):
        echo(line, err=True)
    say_unknown(model, found.items())
    figures = {name: _figures(loads[name], each) for name, each in found.items()}
    if output.write(figures, [{"code": name, **each} for name, each in figures.items()]):
        return
    title = (
        f"n={what.workers} workers, s={s} stragglers, k={what.partitions or what.workers} "
        f"partitions; {what.delays}, {what.cost:g} s per partition; {what.rounds} rounds, "
        f"seed {what.seed}"
    )
    if shared is not None:
        title += f"; {processors_said(shared)}"
    if what.request:
        title += f"; {what.request:g} s to ask for sums"
    _show(title, figures, any(each.residuals is not None for each in found.values()), output)


def _delays(what: Rounds) -> DelayModel | None:
    from ..delays import parse

    model = parse(what.delays)
    if model is not None:
        sample(model, 0, what.workers, what.seed)  # raises where they are those of other workers
    if what.timeline is not None:
        check_drawn(catalogue.split(what.names) or catalogue.names(), "name some")
    return model


def _shared_processors(what: Rounds) -> Any:
    """The processors of all workers, if what they are asked for can be simulated."""
    from ..simulation.rounds import crowding

    shared = processors_of(what.processors)
    if shared is not None:
        crowding(what.workers, shared)  # raises where they do not fit, whatever the code
        if what.request:
            raise ValueError("leave out --request: shared processors are simulated without it")
    if what.timeline is not None and what.request:
        raise ValueError("leave out --timeline: rounds with --request are not followed")
    return shared


def _simulate_each(
    what: Rounds, s: int, model: DelayModel | None, shared: Any
) -> tuple[dict[str, Simulation], dict[str, Followed], dict[str, int], dict[str, str]]:
    """By names of codes: times, the first rounds if they are drawn, loads; and why there are none.

    A code that was named must exist; of all codes those that cannot be are left out.
    """
    from ..delays import Outages
    from ..progress import task_bar
    from ..simulation import follow
    from ..simulation import simulate as run

    how: Any = {
        "cost": what.cost,
        "receive": what.receive,
        "seed": what.seed,
        "interrupted": not what.finish,
        "processors": shared,
    }
    asked = catalogue.split(what.names)
    chosen = asked or catalogue.names()
    found: dict[str, Simulation] = {}
    followed: dict[str, Followed] = {}
    loads: dict[str, int] = {}
    impossible: dict[str, str] = {}
    with task_bar("simulating", len(chosen)) as advance:
        for name in chosen:
            try:
                code = catalogue.make(name, what.workers, what.partitions, s, what.seed)
                if isinstance(model, Outages):
                    code = model.placed(code)
                found[name] = run(code, model, rounds=what.rounds, request=what.request, **how)
                if what.timeline is not None:
                    followed[name] = follow(code, model, rounds=DRAWN, **how)
                loads[name] = code.load
            except ValueError as error:
                if asked:
                    raise
                impossible[name] = str(error)
            advance()
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
    """Print the table, and what its columns are."""
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


def processors_of(text: str) -> Any:
    """A number, or a list of them, or ValueError; None of no text."""
    if not text:
        return None
    found = numbers(
        "--processors",
        text,
        "how many there are, as in 2, or name the one of each worker, as in 0/0/1/1",
    )
    return found if len(found) > 1 else found[0]


def processors_said(processors: Any) -> str:
    """What workers compute on, in words."""
    if processors is None:
        return "a processor for each worker"
    if np.ndim(processors):
        return f"{np.unique(processors).size} processors"
    return f"{processors:.3g} processors for all"


def say_unknown(model: DelayModel | None, found: Iterable[tuple[str, Simulation]]) -> None:
    """Say so if means were simulated of which nobody knows whether they exist."""
    names = dict.fromkeys(name for name, each in found if each.mean_exists is None)
    if names:
        echo(
            f"the mean time of {', '.join(names)} may not exist: {described(model)} does not say "
            "how heavy its tails are (tail_indices), or a code does not say how many stragglers it "
            "tolerates",
            err=True,
        )


def left_out(residual: float) -> str:
    """What rounds leave out, or a dash where they are decoded only when that is rounding."""
    return "–" if math.isnan(residual) else f"{residual:.2g}"
