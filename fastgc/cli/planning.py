"""``fastgc simulate`` and ``fastgc plan``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console

from ..codes import LagrangeCode, catalogue
from ..coding.arguments import arguments_of
from ..delays.interface import check_per, described, sample
from ..delays.text import FORMS
from .common import (
    CHOOSING,
    DRAWN,
    Csv,
    Json,
    ListingCommand,
    Partitions,
    Stragglers,
    Workers,
    app,
    check_drawn,
    check_figures,
    check_folder,
    check_plot,
    clear_errors,
    complete_codes,
    draw_timelines,
    tolerated,
    write_figures,
)

if TYPE_CHECKING:
    from ..delays import DelayModel
    from ..planning import Choice, Plan
    from ..simulation import Followed, Simulation

DELAYS = "pareto:scale=0.005,shape=1.5"
COMPARED = 3  # codes that --live runs

Delays = Annotated[
    str, typer.Option(help=f"How late workers are, in seconds: {FORMS}{{other delays}}.")
]
Cost = Annotated[float, typer.Option(min=0.0, help="Seconds to compute one partial gradient.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds to simulate of each code.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of delays and random codes.")]
Finish = Annotated[
    bool,
    typer.Option(
        "--finish",
        help="Late workers first finish the message they are at, as those of the engines do; "
        "otherwise they drop it when a round is over.",
    ),
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]


@app.command(cls=ListingCommand, rich_help_panel=CHOOSING)
def simulate(
    names: Annotated[
        str,
        typer.Argument(
            help="A list such as rs,bcc:load=5. Default: all codes.", autocompletion=complete_codes
        ),
    ] = "",
    workers: Workers = 20,
    stragglers: Stragglers = None,
    partitions: Partitions = None,
    delays: Delays = DELAYS,
    cost: Cost = 0.0,
    receive: Annotated[
        float, typer.Option(min=0.0, help="Seconds that the master's link needs for a message.")
    ] = 0.0,
    rounds: Rounds = 10_000,
    seed: Seed = 0,
    finish: Finish = False,
    processors: Annotated[
        str,
        typer.Option(
            help="How many processors all workers share, as in 2, or a number that names the "
            "processor of each, as in 0/0/1/1. Default: one for each worker."
        ),
    ] = "",
    request: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds that it takes to ask workers for sums, of codes that send them on "
            "request (partial-work).",
        ),
    ] = 0.0,
    plot: Annotated[
        Path | None,
        typer.Option(help="Plot how many rounds are over when to this file (png, svg, pdf)."),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            help="Draw the first three rounds of each code to this file: who computed when, who "
            "was waited for, what was decoded from (png, svg, pdf)."
        ),
    ] = None,
    csv_file: Csv = None,
    json_file: Json = None,
    markdown: Markdown = False,
) -> None:
    """Simulate rounds: how long codes take, from how many workers, at what load."""
    from ..delays import parse
    from ..planning.plan import reasons
    from ..progress import task_bar
    from ..simulation import follow
    from ..simulation import simulate as run
    from ..simulation.processors import crowding

    with clear_errors():
        check_figures(json_file, csv_file)
        for path in (plot, timeline):
            check_plot(path)
        s = tolerated(workers, stragglers)
        model = parse(delays)
        if model is not None:
            sample(model, 0, workers, seed)  # raises where they are those of other workers
        asked = catalogue.split(names)
        chosen = asked or catalogue.names()
        if timeline is not None:
            check_drawn(chosen, "name some")
        shared = _processors(processors)
        if shared is not None:
            crowding(workers, shared)  # raises where they do not fit, whatever the code
            if request:
                raise ValueError("leave out --request: shared processors are simulated without it")
        if timeline is not None and request:
            raise ValueError("leave out --timeline: rounds with --request are not followed")
        found: dict[str, Simulation] = {}
        followed: dict[str, Followed] = {}
        loads: dict[str, int] = {}
        impossible: dict[str, str] = {}
        with task_bar("simulating", len(chosen)) as advance:
            for name in chosen:
                try:
                    code = catalogue.make(name, workers, partitions, s, seed)
                    how: Any = {
                        "cost": cost,
                        "receive": receive,
                        "seed": seed,
                        "interrupted": not finish,
                        "processors": shared,
                    }
                    found[name] = run(code, model, rounds=rounds, request=request, **how)
                    if timeline is not None:
                        followed[name] = follow(code, model, rounds=DRAWN, **how)
                    loads[name] = code.load
                except ValueError as error:
                    if asked:
                        raise
                    impossible[name] = str(error)
                advance()
        if not found:
            raise ValueError(f"no code fits: {'; '.join(reasons(impossible))}")
        if plot is not None:
            about = f"n = {workers}, s = {s}; delays {delays}"
            _plot(plot, _distributions(found), about)
        if timeline is not None:
            shown = {catalogue.describe(name): each for name, each in followed.items()}
            draw_timelines(shown, timeline)
    for line in reasons(impossible):
        typer.echo(line, err=True)
    _say_unknown(model, found.items())
    figures = {name: _simulated(loads[name], each) for name, each in found.items()}
    if write_figures(
        figures, [{"code": name, **each} for name, each in figures.items()], json_file, csv_file
    ):
        return
    rows = [
        [
            name,
            str(each["load"]),
            _milliseconds(each["mean"]),
            _milliseconds(each["standard_error"]),
            *(_milliseconds(each[key]) for key in ("median", "99%")),
            *(f"{each[key]:.1f}" for key in ("workers", "communication_load", "computations")),
        ]
        for name, each in figures.items()
    ]
    approximate = any(each.residuals is not None for each in found.values())
    if approximate:
        for row, each_run in zip(rows, found.values(), strict=True):
            row.append(_left_out(each_run.residual))
    short = ["code", "load", "mean", "±", "median", "99%", "workers", "sent", "computed"]
    legend = (
        "mean, ± (its standard error), median, 99%: time of a round, ms; workers, sent, computed: "
        "workers waited for, gradients received and partial gradients computed by then, mean"
    )
    if approximate:
        short.append("left")
        legend += "; left: of the gradient left out, root mean square (–: no more than rounding)"
        if not markdown:  # a terminal has no room for all columns
            narrow = [at for at, name in enumerate(short) if name not in ("median", "computed")]
            short, rows = [short[at] for at in narrow], [[row[at] for at in narrow] for row in rows]
            legend = legend.replace(" median,", "").replace(", computed", "")
            legend = legend.replace(" and partial gradients computed", "")
    title = (
        f"n={workers} workers, s={s} stragglers, k={partitions or workers} partitions; "
        f"{delays}, {cost:g} s per partition; {rounds} rounds, seed {seed}"
    )
    if shared is not None:
        title += f"; {_shared(shared)}"
    if request:
        title += f"; {request:g} s to ask for sums"
    _print(
        title,
        short,
        [
            "code",
            "load",
            "mean time, ms",
            "standard error",
            "median",
            "99%",
            "workers waited for",
            "gradients received",
            "gradients computed",
            *["left out"] * approximate,
        ],
        rows,
        markdown,
        legend,
    )


@app.command(cls=ListingCommand, rich_help_panel=CHOOSING)
def plan(
    context: typer.Context,
    names: Annotated[
        str,
        typer.Argument(
            help="Codes to choose among, as in rs,binary. Default: those that give the exact "
            "gradient of any model.",
            autocompletion=complete_codes,
        ),
    ] = "",
    workers: Workers = 20,
    partitions: Partitions = None,
    delays: Delays = DELAYS,
    cost: Cost = 0.0,
    size: Annotated[
        int, typer.Option("--size", "-p", min=1, help="Elements of the gradient.")
    ] = 1000,
    bandwidth: Annotated[
        float, typer.Option(help="Bytes per second that the master receives.")
    ] = math.inf,
    memory: Annotated[
        int | None, typer.Option(min=1, help="Partitions that a worker can hold.")
    ] = None,
    residual: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="The largest part of the gradient that a code may leave out, root mean square: of "
            "approximate codes.",
        ),
    ] = 0.0,
    rounds: Rounds = 2000,
    seed: Seed = 0,
    finish: Finish = False,
    speeds: Annotated[
        str,
        typer.Option(
            help="Relative speeds of the workers, as in 4/4/2/1: binary and rs-clustered are tried "
            "with them, too. --cost is then that of a worker of speed 1, unless times are measured."
        ),
    ] = "",
    processors: Annotated[
        str,
        typer.Option(
            help="How many processors all workers share, as in 2, or a number that names the "
            "processor of each, as in 0/0/1/1. --live measures it. Default: one for each worker."
        ),
    ] = "",
    recorded: Annotated[
        Path | None,
        typer.Option(
            help="Plan for the times in this file: what --record wrote, or a table of rounds and "
            "workers (csv, txt, npy, npz, json, parquet), of which --cost says how many seconds of "
            "each time one partition takes."
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
    live: Annotated[
        int,
        typer.Option(
            min=0,
            help="Run worker processes here for so many rounds, with --delays added; plan for "
            "their times; run the best codes, and compare.",
        ),
    ] = 0,
    record: Annotated[
        Path | None, typer.Option(help="With --live, write the times to this file (JSON).")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every load of every code.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Plot time and amplification against load to this file (png, svg, pdf)."),
    ] = None,
    csv_file: Csv = None,
    json_file: Json = None,
    markdown: Markdown = False,
) -> None:
    """Choose a code and its load: all of them, ranked by the expected time of a round."""
    from .. import planning
    from ..delays import parse
    from ..history import json_ready
    from ..planning.plan import reasons
    from ..simulation.processors import crowding

    measured: dict[Choice, float] = {}
    with clear_errors():
        check_figures(json_file, csv_file)
        check_folder(record)
        check_plot(plot)
        if record is not None and not live:
            raise ValueError("--record needs --live, the rounds to record")
        if live and recorded is not None:
            raise ValueError("--live and --recorded exclude each other: the times are either's")
        if live:
            _refuse(context, "--live", "cost", "processors")
        elif recorded is not None:
            _refuse(context, "--recorded", "workers", "delays")
        shorter = () if live or bandwidth == math.inf else planning.SHORTER
        codes = catalogue.split(names) or [*planning.CODES, *shorter]
        model: DelayModel | None = parse(delays)
        source = delays
        run: Callable[[Choice], float] | None = None
        if live:
            for name in codes:
                _check_live(name)
            recording, run = _go_live(workers, model, live, seed)
            if record is not None:
                _write(record, recording.to_dict())
        elif recorded is not None:
            told = cost if _given(context, "cost") else None
            recording = planning.Recording.read(recorded, told, unit, _per(per))
        else:
            for option in ("unit", "per"):
                if _given(context, option):
                    raise ValueError(f"--{option} is of a table: name it by --recorded")
        if live or recorded is not None:
            model, finish, source = recording.delays, True, recording.source
            workers = recording.times.shape[1]
        shared = _processors(processors)
        each = _speeds(speeds, workers)
        seconds: Any = cost
        if live or recorded is not None:
            shared = recording.processors if shared is None else shared
            # of a worker alone; of a partition where there are n, all of them together the data
            seconds = recording.cost / crowding(workers, shared) * workers / (partitions or workers)
            cost = float(seconds.mean())
        elif each is not None:
            seconds = cost / np.array(each)
        found = planning.plan(
            workers,
            model,
            seconds,
            partitions,
            p=size,
            bandwidth=bandwidth,
            memory=memory,
            residual=residual,
            codes=codes,
            speeds=each,
            rounds=rounds,
            seed=seed,
            interrupted=not finish,
            processors=shared,
            progress=True,
        )
        best = found.by_code()
        if run is not None:
            for choice in best[:COMPARED]:
                measured[choice] = run(choice)
            if record is not None:
                seen = [{**_planned(choice), "measured": measured[choice]} for choice in measured]
                held = {**recording.to_dict(), "size": size, "codes": json_ready(seen)}
                _write(record, held)
                typer.echo(f"times written to {record}", err=True)
        if plot is not None:
            _plot(plot, _against_load(found), f"n = {workers}; {source}")
    _say_unknown(model, ((choice.name, choice.simulation) for choice in found.choices))
    shown = found.choices if every else best
    listed = [{**_planned(choice), "measured": measured.get(choice)} for choice in shown]
    held = {"choices": listed, "refused": found.refused, "processors": shared}
    if write_figures(held, listed, json_file, csv_file):
        return
    columns = _COLUMNS if markdown else [c for c in _COLUMNS if c.short]
    approximate = any(choice.simulation.residuals is not None for choice in shown)
    if approximate:
        room = [c for c in columns if markdown or c.short != "amplif."]  # in a terminal's width
        columns = [*room, _LEFT]
    if run is not None:
        columns = [*columns[:4], *_measured_columns(measured), *columns[4:]]
    rows = [[column.text(choice) for column in columns] for choice in shown]
    title = (
        f"n={workers} workers, k={partitions or workers} partitions; {source}; "
        f"{cost:.3g} s per partition, {_shared(shared)}; {rounds} rounds each, seed {seed}"
    )
    _print(
        title,
        [column.short for column in columns],
        [column.long for column in columns],
        rows,
        markdown,
        "time: of a round, ms, with ± its standard error (real: measured); workers, sent: workers "
        "waited for and "
        "gradients received, mean; amplif.: of rounding; error: of the gradient, relative, "
        "predicted (!: useless)"
        + (
            "; left: of the gradient left out, root mean square (–: no more than rounding; !: more "
            "than --residual, ranked after all others)"
            if approximate
            else ""
        ),
    )
    for choice in best:
        if (assignment := arguments_of(choice.code).get("assignment")) is not None:
            typer.echo(f"{choice.name}: assignment={assignment}")
        if said := catalogue.remark(choice.name, choice.code):
            typer.echo(said)
    if (said := _crowded(found, workers, shared)) is not None:
        typer.echo(said)
    if recorded is not None and shared is None:
        from .sequential import hint

        if (said := hint(recording, best[0].name, best[0].time, seed)) is not None:
            typer.echo(said)
    for line in reasons(found.refused):
        typer.echo(line, err=True)


def _processors(text: str) -> Any:
    """A number, or a list of them, or ValueError; None of no text."""
    if not text:
        return None
    try:
        numbers = [float(part) for part in text.split("/")]
    except ValueError:
        raise ValueError(
            f"--processors must be how many there are, as in 2, or name the one of each worker, as "
            f"in 0/0/1/1, not {text!r}"
        ) from None
    return numbers if len(numbers) > 1 else numbers[0]


def _shared(processors: Any) -> str:
    """What workers compute on, in words."""
    if processors is None:
        return "a processor for each worker"
    if np.ndim(processors):
        return f"{np.unique(processors).size} processors"
    return f"{processors:.3g} processors for all"


def _crowded(found: Plan, workers: int, processors: Any) -> str | None:
    """What it means that workers share processors, if they do."""
    from ..simulation.processors import crowding

    crowd = float(crowding(workers, processors).max())
    if crowd == 1:
        return None
    said = (
        f"{workers} workers share {_shared(processors).removesuffix(' for all')}: while all of "
        f"them compute, a partition takes {crowd:.3g} times as long as alone"
    )
    best = found.choices[0]
    least = min(choice.code.load for choice in found.choices)
    others = [choice for choice in found.choices if choice.code.load > least]
    if not others or best.code.load > least:
        return f"{said}."
    second = others[0]
    return (
        f"{said}. Coding loses: what a code computes more, it computes in the others' time "
        f"({second.name}, load {second.code.load}: {second.time / best.time:.2f} times as long as "
        f"{best.name}, load {least})."
    )


def _speeds(text: str, workers: int) -> list[float] | None:
    """Positive numbers, one a worker, or ValueError; None of no text."""
    if not text:
        return None
    try:
        speeds = [float(part) for part in text.split("/")]
    except ValueError:
        raise ValueError(f"--speeds must be numbers, as in 4/4/2/1, not {text!r}") from None
    if not all(0 < speed < math.inf for speed in speeds):
        raise ValueError(f"--speeds must be positive and finite, not {text!r}")
    if len(speeds) != workers:
        raise ValueError(f"--speeds must be one for each of {workers} workers, not {len(speeds)}")
    return speeds


def _per(text: str) -> Any:
    """What `fastgc.delays.Delays.per` says, in a command line."""
    check_per(text.lower())
    return text.lower()


def _given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _refuse(context: typer.Context, instead: str, *options: str) -> None:
    """Raise ValueError if one of these is given, whatever its value."""
    for option in options:
        if _given(context, option):
            raise ValueError(f"--{option} and {instead} exclude each other: the times tell it")


def _check_live(name: str) -> None:
    """Raise ValueError for codes that cannot run what `_go_live` runs."""
    catalogue.check_name(name)
    if catalogue.factory(name) is LagrangeCode:
        raise ValueError(
            f"--live runs softmax regression, and {name} decodes only gradients that are quadratic "
            "in the data: name other codes"
        )


def _go_live(
    workers: int, delays: DelayModel | None, rounds: int, seed: int
) -> tuple[Any, Callable[[Choice], float]]:
    """Record a cluster of this machine; also what measures a code on it."""
    from .. import data, planning
    from ..models import SoftmaxRegression
    from ..progress import task_bar

    dataset = data.load("digits", seed=seed)
    trained = SoftmaxRegression(dataset.features, dataset.classes)
    with task_bar("recording", 2 * rounds) as advance:
        recording = planning.record(
            workers,
            dataset,
            trained,
            delays=delays,
            rounds=rounds,
            seed=seed,
            progress=advance,
        )

    def run(choice: Choice) -> float:
        with task_bar(f"running {choice.name}", rounds) as advance:
            seconds = planning.measured_rounds(
                choice.code,
                dataset,
                trained,
                delays=delays,
                rounds=rounds,
                seed=seed + 1,  # not the delays that were recorded
                progress=advance,
            )
        return float(seconds.mean())

    return recording, run


def _say_unknown(model: DelayModel | None, found: Iterable[tuple[str, Simulation]]) -> None:
    """Say so if means were simulated of which nobody knows whether they exist."""
    names = dict.fromkeys(name for name, each in found if each.mean_exists is None)
    if names:
        typer.echo(
            f"whether the mean time of {', '.join(names)} exists is unknown: {described(model)} "
            "does not say how heavy its tails are (tail_indices), or a code not how many "
            "stragglers it tolerates",
            err=True,
        )


def _simulated(load: int, found: Simulation) -> dict[str, Any]:
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


def _planned(choice: Choice) -> dict[str, Any]:
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


class _Column(NamedTuple):
    short: str  # in the terminal; empty: not shown there
    long: str
    text: Callable[[Choice], str]


_COLUMNS = [
    _Column("code", "code", lambda c: c.name),
    _Column("load", "load", lambda c: str(c.code.load)),
    _Column("time", "time, ms", lambda c: _milliseconds(c.time)),
    _Column("±", "standard error", lambda c: _milliseconds(c.standard_error, 2)),
    _Column("", "decoding", lambda c: _milliseconds(c.decode)),
    _Column("", "stragglers", lambda c: str(c.code.stragglers)),
    _Column("workers", "workers waited for", lambda c: f"{c.simulation.mean_workers:.1f}"),
    _Column("sent", "gradients received", lambda c: f"{c.simulation.communication_load:.1f}"),
    _Column("amplif.", "amplification", lambda c: f"{c.amplification:.0e}"),
    _Column("error", "error", lambda c: f"{c.error:.0e}" + ("" if c.trustworthy else " !")),
]


# Where any code leaves out part of the gradient.
_LEFT = _Column("left", "left out", lambda c: _left_out(c.residual) + ("" if c.near else " !"))


def _measured_columns(measured: Mapping[Choice, float]) -> list[_Column]:
    def time(choice: Choice) -> str:
        return _milliseconds(measured[choice]) if choice in measured else ""

    def difference(choice: Choice) -> str:
        return f"{100 * (choice.time / measured[choice] - 1):+.0f}%" if choice in measured else ""

    return [_Column("real", "measured", time), _Column("off", "time is off by", difference)]


def _write(path: Path, held: object) -> None:
    path.write_text(json.dumps(held) + "\n", encoding="utf-8")


def _left_out(residual: float) -> str:
    """What rounds leave out, or a dash where they are decoded only when that is rounding."""
    return "–" if math.isnan(residual) else f"{residual:.2g}"


def _milliseconds(seconds: float, digits: int = 3) -> str:
    """To so many digits, as narrow as the columns of a terminal are."""
    milliseconds = 1e3 * seconds
    if milliseconds < 10**digits - 0.5:
        return f"{milliseconds:.{digits}g}"
    return f"{milliseconds:.0f}" if milliseconds < 1e6 else f"{milliseconds:.1e}"


def _print(
    title: str,
    short: Sequence[str],
    long: Sequence[str],
    rows: list[list[str]],
    markdown: bool,
    legend: str,
) -> None:
    from ..progress import markdown_table, rich_table

    if markdown:
        named = [[catalogue.describe(row[0]), *row[1:]] for row in rows]
        typer.echo(markdown_table(title, long, named))
    else:
        Console().print(rich_table(title, short, rows))
        names = dict.fromkeys(row[0] for row in rows)
        typer.echo(f"{legend}\nCodes: {', '.join(map(catalogue.describe, names))}.")


def _plot(path: Path, panels: Any, title: str) -> None:
    from .. import plotting

    plotting.save_panels(panels, path, title)
    typer.echo(f"plot written to {path}", err=True)


def _distributions(found: Mapping[str, Simulation]) -> list[Any]:
    from ..panels import Line, Panel

    q = np.linspace(0, 0.999, 400)
    lines = [Line(catalogue.describe(name), each.quantile(q), q) for name, each in found.items()]
    return [Panel("", "time of a round (s)", "rounds that are over", lines, log_x=True)]


def _against_load(found: Plan) -> list[Any]:
    from ..panels import Line, Panel

    curves: dict[str, list[Choice]] = {}
    known: set[tuple[str, int]] = set()
    for choice in found.choices:  # of several at one load the fastest, which is the first
        if (choice.name, choice.code.load) not in known:
            known.add((choice.name, choice.code.load))
            curves.setdefault(choice.name, []).append(choice)
    for each in curves.values():
        each.sort(key=lambda choice: choice.code.load)

    def lines(value: Callable[[Choice], float]) -> list[Line]:
        return [
            Line(
                catalogue.describe(name),
                np.array([choice.code.load for choice in each]),
                np.array([value(choice) for choice in each]),
                "joined",
            )
            for name, each in curves.items()
        ]

    load = "load (partitions per worker)"
    return [
        Panel("", load, "time of a round (s)", lines(lambda c: c.time), log_x=True, log_y=True),
        Panel(
            "",
            load,
            "amplification of rounding",
            lines(lambda c: c.amplification),
            log_x=True,
            log_y=True,
        ),
    ]
