"""``fastgc plan`` and ``fastgc fit``: the choice of a code for given delays."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from ..codes import catalogue
from ..coding.arguments import arguments_of
from ..training.history import left_out
from . import options
from .common import CHOOSING, Options, argument, command, echo, numbers, option
from .output import Column, Figures, Picture, Tables, milliseconds

if TYPE_CHECKING:
    from ..planning import Choice, Plan

_ROUNDS = 2000


class Sought(Options):
    """The codes to choose among, and the number of workers."""

    names: list[str] | None = options.codes(
        "Codes to choose among, such as rs binary.", "all that give the exact gradient of any model"
    )
    workers: str = options.workers()
    stragglers: str | None = options.stragglers(
        "any number", help="The fewest stragglers that a code must tolerate"
    )
    partitions: int | None = options.partitions()
    delays: str = options.delays()


class Search(Sought, options.Simulated, options.Recorded):
    """All options of ``fastgc plan`` but those of its output."""

    size: int = option(1000, "Elements of the gradient.", "--size", "-p", min=1)
    bandwidth: float = option(math.inf, "Bytes per second that the master receives.")
    memory: int | None = option(None, "Partitions that a worker can hold.", min=1)
    residual: float = option(
        0.0,
        "Largest part of the gradient (root mean square) that an approximate code may leave out.",
        min=0.0,
    )
    speeds: str = option(
        "",
        "Relative speeds of the workers, such as 4/4/2/1. binary and rs-clustered are then also "
        "tried with loads that follow the speeds. --cost is the cost for a worker of speed 1.",
    )
    rounds: int | None = options.repeats(_ROUNDS, "Rounds to simulate of each code.")
    seed: int = options.seed()
    all_loads: bool = option(False, "Show every load of every code.", "--all")
    plot: Path | None = options.picture(
        "Plot time and amplification of rounding errors against load to this file."
    )


@command(CHOOSING, "fastgc plan rs binary -n 12 --memory 4 --delays exponential:mean=0.01")
def plan(context: typer.Context, what: Search, output: Tables) -> None:
    """Choose a code and its load: rank all of them by the expected time of a round."""
    from .. import planning, plotting
    from ..planning.plan import reasons

    output.check(what.plot, read=[what.recorded])
    source = options.source_of(context, what)
    n, s = options.size_of(what, source.n, default=0)
    speeds = _speeds(what.speeds, n)
    given = what.cost if speeds is None else what.cost / np.array(speeds)
    k, rounds = what.partitions or n, options.repeated(what.rounds, _ROUNDS, n)
    about = f"n = {n}; {source.text}"
    title = (
        f"n={n} workers, k={k} partitions; {source.text}; {source.cost(what.cost, k):.3g} s per "
        f"partition; up to {rounds} rounds each, seed {what.seed}"
    )

    def shown(found: Plan) -> list[Choice]:
        return found.choices if what.all_loads else found.by_code()

    def figures(found: Plan) -> Figures:
        listed = [_figures(each) for each in shown(found)]
        return {"choices": listed, "refused": found.refused}, listed

    def end(found: Plan) -> None:
        options.say_unknown(source.model, ((e.name, e.simulation) for e in found.choices))
        picture = Picture(what.plot, lambda: plotting.load_curves(found, caption=about))
        output.deliver(*figures(found), lambda: _show(title, shown(found), output), picture)

    with output.growing(figures, end) as keep:
        found = planning.plan(
            n,
            source.model,
            source.cost(given, k),
            what.partitions,
            p=what.size,
            bandwidth=what.bandwidth,
            memory=what.memory,
            residual=what.residual,
            codes=options.named(what.names) or planning.CODES,
            stragglers=s,
            speeds=speeds,
            rounds=rounds,
            seed=what.seed,
            interrupted=source.interrupted(what.finish),
            progress=True,
            after_each=keep,
        )
    for line in reasons(found.refused):
        echo(line, err=True)


def _speeds(text: str, workers: int) -> list[float] | None:
    """Return positive numbers, one for each worker, or None for an empty text."""
    if not text:
        return None
    speeds = numbers("--speeds", text, "numbers, as in 4/4/2/1")
    if not all(0 < speed < math.inf for speed in speeds):
        raise ValueError(f"--speeds must be positive and finite, not {text!r}")
    if len(speeds) != workers:
        raise ValueError(f"--speeds must be one for each of {workers} workers, not {len(speeds)}")
    return speeds


def _figures(choice: Choice) -> dict[str, Any]:
    return {
        "name": choice.name,
        "code": repr(choice.code),
        "load": choice.code.load,
        "stragglers": choice.code.stragglers,
        "time": choice.time,
        "standard_error": choice.standard_error,
        "wait": choice.wait,
        "decode": choice.decode,
        "workers": choice.simulation.mean_workers,
        "communication_load": choice.simulation.communication_load,
        "amplification": choice.amplification,
        "error": choice.error,
        "residual": choice.residual,
        "trustworthy": choice.trustworthy,
        "mean_exists": choice.simulation.mean_exists,
    }


def _marked(key: str, form: Callable[[float], str], unless: str) -> Callable[[Any], str]:
    """Return a form of a row that writes a figure, and marks it unless another figure is true."""
    return lambda row: form(row[key]) + ("" if row[unless] else " !")


_COLUMNS = [
    Column("code", "code", "name"),
    Column("load", "load", "load"),
    Column("time", "time, ms", "time", milliseconds),
    Column("±", "standard error, ms", "standard_error", partial(milliseconds, digits=2)),
    Column("", "decoding, ms", "decode", milliseconds),
    Column("", "stragglers tolerated", "stragglers"),
    Column("workers", "workers waited for, mean", "workers", ".1f"),
    Column("sent", "gradients received, mean", "communication_load", ".1f"),
    Column("amplif.", "amplification", "amplification", ".0e"),
    Column("error", "predicted error", "", _marked("error", "{:.0e}".format, "trustworthy")),
]
# Shown if a code may leave out part of the gradient.
_LEFT = Column("left", "left out, root mean square", "", _marked("residual", left_out, "near"))


def _show(title: str, choices: list[Choice], output: Tables) -> None:
    rows = [{**_figures(each), "near": each.near} for each in choices]
    approximate = any(each.simulation.residuals is not None for each in choices)
    columns = _COLUMNS
    if approximate:  # a terminal then has no room for the amplification
        columns = [e._replace(short="") if e.short == "amplif." else e for e in columns] + [_LEFT]
    marks = {"!": "useless, or more left out than --residual", "–": "no more than rounding"}
    output.table(title, columns, rows, marks=marks)
    amplified = "; amplif.: how many times larger rounding errors become" * (not approximate)
    left = (
        "; left: part of the gradient that is left out, root mean square (–: no more than "
        "rounding; !: more than --residual, ranked after all others)"
    )
    output.explain(
        "time: of a round, ms (±: its standard error; decoding is timed here: nearly equal loads "
        "may change places from run to run); workers: waited for, mean; sent: gradients received, "
        f"mean{amplified}; error: predicted relative error of the gradient "
        f"(!: useless){left * approximate}",
        codes=[row["name"] for row in rows],
    )
    for name in dict.fromkeys(each.name for each in choices):
        choice = next(each for each in choices if each.name == name)  # the best of its loads
        if (assignment := arguments_of(choice.code).get("assignment")) is not None:
            output.say(f"{name}: assignment={assignment}")
        if said := catalogue.remark(name, choice.code):
            output.say(said)


class Fitted(Options):
    """The times to which models are fitted."""

    file: Path = argument(
        ...,
        "Times (csv, txt, npy, npz, json, parquet).",
        metavar="FILE",
    )
    unit: str | None = options.unit()
    columns: str | None = options.columns()
    plot: Path | None = options.picture("Plot the times and the models to this file.")


@command(CHOOSING, "fastgc fit times.csv --unit ms")
def fit(what: Fitted, output: Tables) -> None:
    """Fit delay models to recorded times, and say how well they fit."""
    from .. import plotting
    from ..delays import Empirical
    from ..delays import fit as fit_models
    from ..delays.text import written

    output.check(what.plot, read=[what.file])
    columns = options.listed_columns(what.columns)
    times = Empirical.read(what.file, what.unit, columns=columns).samples
    fits = fit_models(times, progress=True)
    about = f"{times.size} times of {what.file.name}"
    figures = [{**found._asdict(), "model": written(found.model)} for found in fits]
    rows = [
        [written(found.model), f"{found.aic:.0f}", f"{found.ks:.3f}", f"{found.p_value:.3f}"]
        for found in fits
    ]
    title = f"{times.size} times, median {1e3 * np.median(times):.3g} ms, from {what.file.name}"

    def show() -> None:
        output.show(title, ["model", "AIC", "KS", "p"], rows, describe=str)
        output.say(
            "best first, by Akaike's criterion (AIC); KS: largest distance between the "
            "distribution functions of the times and of the model; p: probability of such a "
            "distance if the model is right (if p is below 0.05 or so, plan with empirical:FILE "
            "instead)"
        )

    picture = Picture(what.plot, lambda: plotting.fit_curves(times, fits, caption=about))
    output.deliver(figures, figures, show, picture)
