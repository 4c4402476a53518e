"""``fastgc sequential``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from ..codes import catalogue
from ..delays.text import FORMS
from .common import (
    CHOOSING,
    Csv,
    Json,
    ListingCommand,
    Workers,
    app,
    check_figures,
    check_plot,
    clear_errors,
    write_figures,
)

if TYPE_CHECKING:
    from ..planning import Recording
    from ..sequential import Compared

_ENOUGH, _MOST = 40, 200  # recorded rounds that a plan looks at

DELAYS = "pareto:scale=0.005,shape=1.5"


def _complete(incomplete: str) -> list[str]:
    """Names for the last item of a list, when Tab is pressed."""
    from .. import sequential

    before, comma, last = incomplete.rpartition(",")
    known = [*sequential.names(), *catalogue.names()]
    return [before + comma + name for name in known if name.startswith(last)]


@app.command(cls=ListingCommand, rich_help_panel=CHOOSING)
def sequential(
    context: typer.Context,
    names: Annotated[
        str,
        typer.Argument(
            help="A list of m-sgc, sr-sgc, codes, and module:Class, such as "
            "m-sgc:burst=1,window=2,stragglers=3,binary. What a name leaves open is chosen by the "
            "first rounds. (default: these two and five codes)",
            autocompletion=_complete,
        ),
    ] = "",
    workers: Workers = 20,
    models: Annotated[
        int,
        typer.Option(
            min=1,
            help="Models that are trained in turn: each step must be done by the next one of the "
            "same model.",
        ),
    ] = 4,
    mu: Annotated[
        str,
        typer.Option(
            help="A round waits (1 + mu) times as long as the fastest worker takes, at least: one "
            "number or several, as in 0/0.2/1, to choose among. Codes go on as soon as they can."
        ),
    ] = "0/0.2/1",
    delays: Annotated[
        str, typer.Option(help=f"How late workers are, in seconds: {FORMS}{{other delays}}.")
    ] = DELAYS,
    cost: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds to compute one of n partitions; with --recorded: of "
            "each time in a table.",
        ),
    ] = 0.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to simulate.")] = 400,
    probe: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The first so many rounds choose what names leave open, the others tell the "
            "times. (default: half, at most 100)",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of delays and random codes.")] = 0,
    finish: Annotated[
        bool,
        typer.Option(
            "--finish",
            help="Late workers first finish what they are at, as those of the engines do; "
            "otherwise they drop it when a round is over.",
        ),
    ] = False,
    recorded: Annotated[
        Path | None,
        typer.Option(
            help="Use the rounds in this file, in their order: what plan --record wrote, or a "
            "table of rounds and workers (csv, txt, npy, npz, json, parquet)."
        ),
    ] = None,
    unit: Annotated[str, typer.Option(help="Of the times in a table: s, ms, us or ns.")] = "s",
    per: Annotated[
        str,
        typer.Option(
            help="What a time in a table is of: round, or computation where all of it is the "
            "computation of one partition."
        ),
    ] = "round",
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Plot how many gradients are done when, and seconds per gradient of all that was "
            "tried, to this file (png, svg, pdf)."
        ),
    ] = None,
    csv_file: Csv = None,
    json_file: Json = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """Compare coding across rounds, of several models in turn, with codes round by round.

    Stragglers of a round make up for it in later ones. What counts is seconds per gradient.
    """
    from ..sequential import compare
    from ..sequential.comparison import NAMES

    with clear_errors():
        check_figures(json_file, csv_file)
        check_plot(plot)
        given = {
            name
            for name in ("workers", "delays", "rounds", "cost", "unit", "per")
            if (how := context.get_parameter_source(name)) and how.name == "COMMANDLINE"
        }
        if recorded is None:
            for option in sorted(given & {"unit", "per"}):
                raise ValueError(f"--{option} is of a table: name it by --recorded")
            times, slope, at_load = _drawn(delays, cost, rounds, workers, seed)
            source = f"{delays}, {cost:g} s per partition"
        else:
            for option in sorted(given & {"workers", "delays", "rounds"}):
                raise ValueError(f"--{option} and --recorded exclude each other: the times tell it")
            told = cost if "cost" in given else None
            times, slope, at_load, source = _recorded(recorded, told, unit, per)
        found = compare(
            times,
            catalogue.split(names) or NAMES,
            models=models,
            mu=_numbers(mu),
            load_slope=slope,
            at_load=at_load,
            interrupted=not finish,
            probe=probe,
            seed=seed,
            progress=True,
        )
        if plot is not None:
            _plot(plot, found, f"n = {times.shape[1]}; {source}")
    figures = [_figures(each) for each in found]
    if write_figures(figures, figures, json_file, csv_file):
        return
    _show(found, figures, f"n={times.shape[1]} workers, {models} models; {source}", markdown)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split("/")]
    except ValueError:
        raise ValueError(f"--mu must be a number, or several as in 0/0.2/1, not {text!r}") from None


def _drawn(text: str, cost: float, rounds: int, n: int, seed: int) -> tuple[Any, Any, float]:
    """Seconds of an empty round, what a partition adds, and the load that the former is of."""
    from ..delays import parse
    from ..delays.interface import per_of, sample

    model = parse(text)
    late = np.zeros((rounds, n))
    if model is not None:
        late[:] = [sample(model, number, n, seed) for number in range(rounds)]
    if per_of(model) == "computation":
        return np.zeros_like(late), late + cost, 0.0
    return late, cost, 0.0


def _recorded(path: Path, cost: float | None, unit: str, per: str) -> tuple[Any, Any, float, str]:
    """The same of a file, and what it is of."""
    from ..delays.interface import check_per
    from ..planning import Recording

    kind: Any = per.lower()
    check_per(kind)
    recording = Recording.read(path, cost, unit, kind)
    source = recording.source
    if recording.per == "round":
        source += f"; {recording.cost:.3g} s per partition"
    return *_times(recording), source


def _times(recording: Recording) -> tuple[Any, Any, float]:
    if recording.per == "computation":
        return np.zeros_like(recording.times), recording.times, 0.0
    # a time is no shorter than its computation
    return np.maximum(recording.times, recording.cost), recording.cost, 1.0


def hint(recording: Recording, name: str, seconds: float, seed: int) -> str | None:
    """What `fastgc plan` says where coding across rounds is faster than the best code it found.

    Few parameters and rounds are tried, for it is to take little time beside the plan.
    """
    from ..sequential import compare

    times, slope, at_load = _times(recording)
    if len(times) < _ENOUGH:
        return None
    asked = ("m-sgc:burst=1,window=2", "m-sgc:burst=2,window=3", "sr-sgc:burst=1,window=2")
    best = compare(
        times[:_MOST],
        asked,
        mu=(0.2, 1.0),
        load_slope=slope,
        at_load=at_load,
        interrupted=False,  # as of the plan
        probe=_ENOUGH // 2,
        seed=seed,
    )[0]
    ratio = best.run.seconds_per_job / seconds
    if not ratio < 1:
        return None
    return (
        f"Where {best.scheme.delay + 1} models are trained in turn, {best.text} (load "
        f"{best.scheme.load:.3g}) takes {ratio:.2f} times as long for a gradient as {name}, "
        "without decoding: `fastgc sequential --recorded … --finish` compares more."
    )


def _figures(found: Compared) -> dict[str, Any]:
    """All figures of a scheme, in seconds."""
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


def _show(found: list[Compared], figures: list[dict[str, Any]], title: str, markdown: bool) -> None:
    from ..progress import markdown_table, rich_table
    from ..sequential.catalogue import describe

    rows = [
        [
            describe(each["scheme"]) if markdown else each["scheme"],
            f"{each['load']:.3g}",
            str(each["delay"]),
            f"{each['mu']:g}" if each["delay"] else "–",
            _milliseconds(each["seconds_per_gradient"], 4),
            _milliseconds(each["standard_error"], 2),
            "–" if np.isnan(each["waited"]) else f"{100 * each['waited']:.0f}%",
            f"{each['stragglers']:.1f}",
        ]
        for each in figures
    ]
    chosen = max(each["tried"] for each in figures) > 1
    rounds = found[0].run.rounds.size
    title += f"; {rounds} rounds" + ", after those that chose parameters" * chosen
    if markdown:
        head = [
            "scheme",
            "load",
            "done after rounds",
            "mu",
            "seconds per gradient, ms",
            "standard error",
            "rounds that waited longer",
            "stragglers, mean",
        ]
        typer.echo(markdown_table(title, head, rows))
        return
    head = ["scheme", "load", "T", "mu", "time", "±", "waited"]
    Console().print(rich_table(title, head, [row[:-1] for row in rows]))
    typer.echo(
        "load: partitions of a worker in a round, where uncoded has 1; T: rounds that a gradient "
        "may take beside its first; time: all rounds over all gradients, ms, with ± its standard "
        "error; waited: rounds that could not end after (1 + mu) times the fastest worker's time"
    )
    names = dict.fromkeys(each.name for each in found)
    typer.echo(f"Schemes: {', '.join(map(describe, names))}.")


def _milliseconds(seconds: float, digits: int) -> str:
    milliseconds = 1e3 * seconds
    return f"{milliseconds:.{digits}g}" if milliseconds < 10**digits else f"{milliseconds:.0f}"


def _plot(path: Path, found: list[Compared], title: str) -> None:
    from .. import plotting
    from ..panels import Line, Panel

    done, tried = [], []
    for each in found:
        ends = np.sort(each.run.done)
        done.append(Line(each.name, ends, np.arange(1, ends.size + 1)))
        loads, seconds = np.array(each.tried).T
        tried.append(Line(each.name, loads, seconds, "points"))
    panels = [
        Panel("the best of each", "time (s)", "gradients that are done", done),
        Panel(
            "all that was tried",
            "load (partitions per worker; uncoded: 1)",
            "seconds per gradient",
            tried,
            log_x=True,
            log_y=True,
        ),
    ]
    plotting.save_panels(panels, path, title)
    typer.echo(f"plot written to {path}", err=True)
