"""``fastgc simulate`` and ``fastgc sequential``: rounds of codes, and of coding across rounds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from .._base.arrays import Floats
from ..codes import catalogue
from ..delays.interface import sample
from ..training.history import left_out
from . import options
from .common import CHOOSING, Options, command, echo, numbers, option
from .output import Column, Figures, Picture, Tables, by_code, milliseconds

if TYPE_CHECKING:
    from ..planning.simulation import Simulation
    from ..sequential import Compared


_ROUNDS = 10_000


class Codes(options.Size):
    """The codes to simulate, their size, and the delays."""

    names: list[str] | None = options.codes("Codes, such as rs bcc:load=5.")
    partitions: int | None = options.partitions()
    delays: str = options.delays()


class Rounds(Codes, options.Simulated, options.Recorded):
    """All options of the command but those of its output."""

    receive: float = option(0.0, "Seconds that the master's link needs for a message.", min=0.0)
    request: float = option(
        0.0,
        "Seconds that a request to workers takes, for codes that ask for missing partitions "
        "(reactive).",
        min=0.0,
    )
    rounds: int | None = options.repeats(_ROUNDS, "Rounds to simulate of each code.")
    seed: int = options.seed()
    plot: Path | None = options.picture("Plot the distribution of the rounds' times to this file.")


@command(CHOOSING, "fastgc simulate rs binary -n 12 -s 2 --delays exponential:mean=0.01")
def simulate(context: typer.Context, what: Rounds, output: Tables) -> None:
    """Simulate rounds: how long each code takes, how many workers it waits for, at what load."""
    from .. import plotting
    from .._base.progress import share_bar
    from ..engines.machines import dealt
    from ..planning.plan import reasons
    from ..planning.simulation import simulate as run

    output.check(what.plot, read=[what.recorded])
    source = options.source_of(context, what)
    n, s = options.size_of(what, source.n)
    if source.model is not None:
        sample(source.model, 0, n, what.seed)  # raises if they are for another number of workers
    rounds = options.repeated(what.rounds, _ROUNDS, n)
    cost = source.cost(what.cost, what.partitions or n)
    conditions: Any = {
        "rounds": rounds,
        "cost": cost,
        "receive": what.receive,
        "request": what.request,
        "seed": what.seed,
        "interrupted": source.interrupted(what.finish),
    }
    title = (
        f"n={n} workers, s={s} stragglers, k={what.partitions or n} partitions; "
        f"{source.text}, {cost:.3g} s per partition; {rounds} rounds, seed {what.seed}"
    )
    if what.request:
        title += f"; {what.request:g} s to ask a worker"
    about = f"n = {n}, s = {s}; {source.said}"
    asked = options.named(what.names)
    chosen = asked or catalogue.names()
    found: _Found = {}
    refused: dict[str, str] = {}

    def end(found: _Found) -> None:
        runs = {name: run for name, (_, run) in found.items()}
        options.say_unknown(source.model, runs.items())
        picture = Picture(what.plot, lambda: plotting.time_curves(runs, caption=about))
        output.deliver(*_held(found), lambda: _show(title, found, output), picture)

    with output.growing(_held, end) as keep, share_bar("simulating", len(chosen)) as show:
        for at, name in enumerate(chosen):
            try:
                code = catalogue.make(name, n, what.partitions, s, what.seed)
                model = dealt(source.model, code)
                found[name] = code.load, run(code, model, progress=partial(show, at), **conditions)
                keep(found)
            except ValueError as error:  # all that are not named are tried
                if asked:
                    raise
                refused[name] = str(error)
    if not found:
        raise ValueError(f"no code fits: {'; '.join(reasons(refused))}")
    for line in reasons(refused):
        echo(line, err=True)


_Found = dict[str, "tuple[int, Simulation]"]  # loads and rounds of codes, by their names


def _held(found: _Found) -> Figures:
    return by_code({name: _figures(*each) for name, each in found.items()})


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


_COLUMNS = [
    Column("code", "code", "code"),
    Column("load", "load", "load"),
    Column("mean", "mean time, ms", "mean", milliseconds),
    Column("±", "standard error, ms", "standard_error", milliseconds),
    Column("median", "median, ms", "median", milliseconds),
    Column("99%", "99%, ms", "99%", milliseconds),
    Column("workers", "workers waited for, mean", "workers", ".1f"),
    Column("sent", "gradients received, mean", "communication_load", ".1f"),
    Column("computed", "gradients computed, mean", "computations", ".1f"),
]


def _show(title: str, found: _Found, output: Tables) -> None:
    columns = _COLUMNS
    approximate = any(run.residuals is not None for _, run in found.values())
    legend = (
        "mean, median, 99%: time of a round, ms (±: standard error of the mean); workers: waited "
        "for, mean; sent: gradients received, mean; computed: partial gradients computed by then, "
        "mean"
    )
    if approximate:  # a terminal then has no room for the median and what was computed
        narrow = ("median", "computed")
        columns = [each._replace(short="") if each.short in narrow else each for each in columns]
        columns.append(Column("left", "left out, root mean square", "residual", left_out))
        legend = (
            "mean, 99%: time of a round, ms (±: standard error of the mean); workers: waited for, "
            "mean; sent: gradients received, mean; left: part of the gradient that is left out, "
            "root mean square (–: no more than rounding)"
        )
    output.table(title, columns, _held(found)[1], marks={"–": "no more than rounding"})
    output.explain(legend, found)


# -------------------------------------------------------------------------------- fastgc sequential


def _names() -> list[str]:
    from .. import sequential

    return [*sequential.names(), *catalogue.names()]


class Schemes(Options):
    """The schemes to compare, and the rounds."""

    names: list[str] | None = options.codes(
        "m-sgc, sr-sgc, codes, and module:Class, such as m-sgc:burst=1,window=2,stragglers=3 "
        "binary. The first rounds choose what a name leaves open.",
        "these two and five codes",
        complete=options.completes(_names),
    )
    workers: str = options.workers(stragglers=False)
    models: int = option(
        4,
        "Models that are trained in turn. A model's step must be done before its next one begins.",
        min=1,
    )
    mu: str = option(
        "0/0.2/1",
        "A round waits at least (1 + mu) times as long as the fastest worker takes. Give one "
        "number, or several to choose among, such as 0/0.2/1. Codes go on as soon as they can "
        "decode.",
    )
    delays: str = options.delays()
    cost: float = options.cost("Seconds to compute one of n partitions.")
    rounds: int = option(400, "Rounds to simulate.", min=1)
    probe: int | None = option(
        None,
        "How many of the rounds choose what names leave open; the others are timed. (default: "
        "half, at most 100)",
        min=1,
    )
    seed: int = options.seed()
    finish: bool = options.finish("what")


class Sequential(Schemes, options.Recorded):
    """All options of ``fastgc sequential`` but those of its output."""

    plot: Path | None = options.picture(
        "Plot the number of finished gradients over time, and seconds per gradient for all that "
        "was tried, to this file."
    )


@command(
    CHOOSING, "fastgc sequential m-sgc sr-sgc binary -n 12 --cost 0.8 --delays exponential:mean=0.1"
)
def sequential(context: typer.Context, what: Sequential, output: Tables) -> None:
    """Compare coding across rounds, for several models in turn, with coding each round by itself.

    A straggler makes up for a round in later ones. The table lists the fastest scheme first.
    """
    from .. import plotting
    from ..sequential import compare
    from ..sequential.simulation import NAMES

    output.check(what.plot, read=[what.recorded])
    recording = options.read_recorded(context, what, "delays", "rounds", "workers")
    if recording is None:
        (seconds, grows), source = _drawn(what), f"{what.delays}, {what.cost:g} s per partition"
    else:
        (seconds, grows), source = _times(recording), recording.source
        if recording.per == "round":
            source += f"; {recording.cost:.3g} s per partition"
    n = seconds.shape[1]
    about = f"n = {n}; {source}"
    title = f"n={n} workers, {what.models} models; {source}"

    def figures(found: list[Compared]) -> Figures:
        listed = [_of_scheme(each) for each in found]
        return listed, listed

    def end(found: list[Compared]) -> None:
        listed, rows = figures(found)
        picture = Picture(what.plot, lambda: plotting.sequential_curves(found, caption=about))
        output.deliver(listed, rows, lambda: _show_schemes(found, listed, title, output), picture)

    with output.growing(figures, end) as keep:
        compare(
            seconds,
            options.named(what.names) or NAMES,
            models=what.models,
            mu=numbers("--mu", what.mu, "a number, or several as in 0/0.2/1"),
            interrupted=not what.finish,
            probe=what.probe,
            seed=what.seed,
            progress=True,
            after_each=keep,
            **grows,
        )


def _drawn(what: Schemes) -> tuple[Floats, dict[str, Any]]:
    """Return seconds of rounds at a load, and arguments of `compare` that say how they grow."""
    from ..delays import parse
    from ..delays.interface import per_of, sample

    model = parse(what.delays)
    n = options.one_count("--workers", what.workers)
    late = np.zeros((what.rounds, n))
    if model is not None:
        late[:] = [sample(model, t, n, what.seed) for t in range(what.rounds)]
    if per_of(model) == "computation":
        return np.zeros_like(late), {"load_slope": late + what.cost, "at_load": 0.0}
    return late, {"load_slope": what.cost, "at_load": 0.0}


def _times(recording: options.Recording) -> tuple[Floats, dict[str, Any]]:
    times, cost = recording.times, recording.cost
    if recording.per == "computation":
        return np.zeros_like(times), {"load_slope": times, "at_load": 0.0}
    # A time is at least as long as its computation.
    return np.maximum(times, cost), {"load_slope": cost, "at_load": 1.0}


def _of_scheme(found: Compared) -> dict[str, Any]:
    """Return all figures of a scheme; times are in seconds."""
    run, scheme = found.run, found.scheme
    return {
        "scheme": found.text,
        "load": scheme.load,
        "delay": scheme.delay,
        "mu": found.mu,
        "seconds_per_gradient": run.seconds_per_job,
        "standard_error": run.standard_error,
        "waited": float(run.waited.mean()) if found.mu else float("nan"),
        "stragglers": float(run.stragglers.mean()),
        "rounds": run.rounds.size,
        "gradients": run.done.size,
        "tried": len(found.tried),
    }


_SCHEMES = [
    Column("scheme", "scheme", "scheme"),
    Column("load", "load", "load", ".3g"),
    Column("T", "done after rounds", "delay"),
    Column("mu", "mu", "", lambda row: f"{row['mu']:g}" if row["delay"] else "–"),
    Column(
        "time", "time per gradient, ms", "seconds_per_gradient", partial(milliseconds, digits=4)
    ),
    Column("±", "standard error, ms", "standard_error", partial(milliseconds, digits=2)),
    Column(
        "waited",
        "rounds that waited longer",
        "waited",
        lambda w: "–" if np.isnan(w) else f"{w:.0%}",
    ),
    Column("", "stragglers, mean", "stragglers", ".1f"),
]


def _show_schemes(
    found: list[Compared], figures: list[dict[str, Any]], title: str, output: Tables
) -> None:
    from ..sequential.catalogue import describe

    chosen = max(each["tried"] for each in figures) > 1
    rounds = found[0].run.rounds.size
    title += f"; {rounds} rounds" + ", after those that chose parameters" * chosen
    output.table(title, _SCHEMES, figures, describe=describe)
    output.explain(
        "load: partitions per worker and round, where uncoded has 1; T: further rounds that a "
        "gradient may take after its first; time: per gradient, ms (±: its standard error); "
        "waited: share of rounds that lasted longer than (1 + mu) times the fastest worker's time"
    )
    names = dict.fromkeys(each.name for each in found)
    output.explain(f"Schemes: {', '.join(map(describe, names))}.")
