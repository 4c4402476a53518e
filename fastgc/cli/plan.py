"""``fastgc plan``, ``fastgc sweep`` and ``fastgc fit``: the choice of a code for given delays."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from .._base.files import opened
from ..codes import LagrangeCode, catalogue
from ..coding.arguments import arguments_of
from . import options
from .common import CHOOSING, Options, argument, command, echo, numbers, option
from .options import Case, Source
from .output import (
    PRINTED,
    Column,
    Tables,
    check_files,
    check_pictures,
    csv_line,
    draw,
    json_text,
    milliseconds,
)
from .simulate import hint, left_out

if TYPE_CHECKING:
    from ..delays import DelayModel
    from ..planning import Cell, Choice, Plan, Sweep

_ROUNDS = 2000

COMPARED = 3  # the best codes, which --live runs


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
        "tried with loads that follow the speeds. --cost is the cost for a worker of speed 1, "
        "unless times are measured.",
    )
    rounds: int | None = options.repeats(_ROUNDS, "Rounds to simulate of each code.")
    seed: int = options.seed()
    live: int = option(
        0,
        "Run worker processes on this machine for so many rounds, with --delays added; plan for "
        "their times; then run the best codes and compare.",
        min=0,
    )
    record: Path | None = option(None, "With --live, write the times to this file (JSON).")
    all_loads: bool = option(False, "Show every load of every code.", "--all")
    plot: Path | None = options.picture(
        "Plot time and amplification of rounding errors against load to this file."
    )
    width: str = options.width()


@command(CHOOSING, "fastgc plan rs binary -n 12 --memory 4 --delays exponential:mean=0.01")
def plan(context: typer.Context, what: Search, output: Tables) -> None:
    """Choose a code and its load: rank all of them by the expected time of a round."""
    from .. import plotting
    from ..planning.plan import reasons

    output.check()
    check_files(what.record)
    check_pictures(what.width, what.plot)
    case, run = _case(context, what)
    n, source = case.n, case.source
    found = _found(what, case)
    best = found.by_code()
    measured = {} if run is None else _measured(what, source, run, best)
    about = f"n = {n}; {source.text}"
    draw(lambda: plotting.load_curves(found, caption=about), what.plot, what.width)
    options.say_unknown(
        source.model, ((choice.name, choice.simulation) for choice in found.choices)
    )
    shown = found.choices if what.all_loads else best
    listed = [{**_figures(choice), "measured": measured.get(choice)} for choice in shown]
    held = {"choices": listed, "refused": found.refused, "processors": case.processors}
    if output.write(held, listed):
        return
    cost = what.cost if source.recording is None else float(np.mean(case.cost))
    title = (
        f"n={n} workers, k={what.partitions or n} partitions; {source.text}; "
        f"{cost:.3g} s per partition, {options.processors_said(case.processors)}; {case.rounds} "
        f"rounds each, seed {what.seed}"
    )
    rows = [{**row, "near": each.near} for row, each in zip(listed, shown, strict=True)]
    approximate = any(each.simulation.residuals is not None for each in shown)
    _show(title, rows, run is not None, approximate, output)
    _remark(what, case, found)
    for line in reasons(found.refused):
        echo(line, err=True)


def _case(context: typer.Context, what: Search) -> tuple[Case, Callable[[Choice], float] | None]:
    """Return the times to plan for: of a model, of a file, or of a cluster on this machine.

    With --live, also return a function that measures the time of a code's round.
    """
    if what.record is not None and not what.live:
        raise ValueError("--record needs --live, the rounds to record")
    if what.live and what.recorded is not None:
        raise ValueError("--live and --recorded exclude each other: the times are either's")
    run = None
    if what.live:
        from ..delays import parse

        options.refuse_recorded(context, "--live", "cost", "processors")
        model = parse(what.delays)
        for name in _codes(what):
            _check_live(name)
        source, run = _go_live(what, options.size_of(what, default=0)[0], model)
    else:
        source = options.source_of(context, what)
    n, s = options.size_of(what, None if what.live else source.n, default=0)
    speeds = _speeds(what.speeds, n)
    given = what.cost if speeds is None else what.cost / np.array(speeds)
    return Case.of(what, source, n, s, given, _ROUNDS), run


def _codes(what: Search) -> list[str]:
    from .. import planning

    return options.named(what.names) or list(planning.CODES)


def _check_live(name: str) -> None:
    """Raise ValueError for codes that cannot run the model of `_go_live`."""
    catalogue.check_name(name)
    if catalogue.factory(name) is LagrangeCode:
        raise ValueError(
            f"--live runs softmax regression, and {name} decodes only gradients that are quadratic "
            "in the data: name other codes"
        )


def _go_live(
    what: Search, n: int, delays: DelayModel | None
) -> tuple[Source, Callable[[Choice], float]]:
    """Record times of a cluster on this machine; write them to --record if it is given."""
    from .. import planning
    from .._base.progress import task_bar
    from ..training import data
    from ..training.models import SoftmaxRegression

    dataset = data.load("digits", seed=what.seed)
    trained = SoftmaxRegression(dataset.features, dataset.classes)
    how: Any = {"delays": delays, "rounds": what.live}
    with task_bar("recording", 2 * what.live) as advance:
        recording = planning.record(n, dataset, trained, seed=what.seed, progress=advance, **how)
    if what.record is not None:
        _write(what.record, recording.to_dict())

    def run(choice: Choice) -> float:
        with task_bar(f"running {choice.name}", what.live) as advance:
            seconds = planning.measured_rounds(
                choice.code,
                dataset,
                trained,
                seed=what.seed + 1,  # other delays than the recorded ones
                progress=advance,
                **how,
            )
        return float(seconds.mean())

    return Source.of(recording), run


def _found(what: Search, case: Case) -> Plan:
    from .. import planning

    return planning.plan(
        case.n,
        case.source.model,
        case.cost,
        what.partitions,
        p=what.size,
        bandwidth=what.bandwidth,
        memory=what.memory,
        residual=what.residual,
        codes=_codes(what),
        stragglers=case.s,
        speeds=_speeds(what.speeds, case.n),
        rounds=case.rounds,
        seed=what.seed,
        interrupted=case.source.interrupted(what.finish),
        processors=case.processors,
        progress=True,
    )


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


def _measured(
    what: Search, source: Source, run: Callable[[Choice], float], best: list[Choice]
) -> dict[Choice, float]:
    """Measure the times of the best codes on the cluster; write them to --record if given."""
    from ..training.history import json_ready

    measured = {choice: run(choice) for choice in best[:COMPARED]}
    if what.record is not None and source.recording is not None:
        seen = [{**_figures(choice), "measured": seconds} for choice, seconds in measured.items()]
        held = {**source.recording.to_dict(), "size": what.size, "codes": json_ready(seen)}
        _write(what.record, held)
        echo(f"times written to {what.record}", err=True)
    return measured


def _write(path: Path, held: object) -> None:
    path.write_text(json.dumps(held) + "\n", encoding="utf-8")


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


def _off(row: Mapping[str, Any]) -> str:
    return f"{100 * (row['time'] / row['measured'] - 1):+.0f}%" if row["measured"] else ""


_COLUMNS = [
    Column("code", "code", "name"),
    Column("load", "load", "load"),
    Column("time", "time, ms", "time", milliseconds),
    Column("±", "standard error", "standard_error", partial(milliseconds, digits=2)),
    Column("", "decoding", "decode", milliseconds),
    Column("", "stragglers", "stragglers"),
    Column("workers", "workers waited for", "workers", ".1f"),
    Column("sent", "gradients received", "communication_load", ".1f"),
    Column("amplif.", "amplification", "amplification", ".0e"),
    Column("error", "error", "", _marked("error", "{:.0e}".format, "trustworthy")),
]
# Shown with --live.
_MEASURED = [
    Column("real", "measured", "measured", lambda time: milliseconds(time) if time else ""),
    Column("off", "time is off by", "", _off),
]
# Shown if a code may leave out part of the gradient.
_LEFT = Column("left", "left out", "", _marked("residual", left_out, "near"))


def _show(
    title: str, rows: list[dict[str, Any]], live: bool, approximate: bool, output: Tables
) -> None:
    columns = _COLUMNS[:4] + _MEASURED * live + _COLUMNS[4:]
    if approximate:  # a terminal then has no room for the amplification
        columns = [e._replace(short="") if e.short == "amplif." else e for e in columns] + [_LEFT]
    output.table(title, columns, rows)
    real = "; real: the same, measured; off: how far time is from it" * live
    amplified = "; amplif.: how many times larger rounding errors become" * (not approximate)
    left = (
        "; left: part of the gradient that is left out, root mean square (–: no more than "
        "rounding; !: more than --residual, ranked after all others)"
    )
    output.explain(
        f"time: of a round, ms (±: its standard error){real}; workers: waited for, mean; sent: "
        f"gradients received, mean{amplified}; error: predicted relative error of the gradient "
        f"(!: useless){left * approximate}",
        codes=[row["name"] for row in rows],
    )


def _remark(what: Search, case: Case, found: Plan) -> None:
    """Print remarks on the best codes that are not in the table."""
    best = found.by_code()
    said: list[str | None] = []
    for choice in best:
        if (assignment := arguments_of(choice.code).get("assignment")) is not None:
            said.append(f"{choice.name}: assignment={assignment}")
        said.append(catalogue.remark(choice.name, choice.code))
    said.append(_crowded(found, case.n, case.processors))
    recording = case.source.recording
    if what.recorded is not None and recording is not None and case.processors is None:
        said.append(hint(recording, best[0].name, best[0].time, what.seed))
    for line in filter(None, said):
        echo(line)


def _crowded(found: Plan, workers: int, processors: Any) -> str | None:
    """Return a remark on the effect of shared processors; None if workers share none."""
    from ..planning.simulation.rounds import crowding

    crowd = float(crowding(workers, processors).max())
    if crowd == 1:
        return None
    shared = options.processors_said(processors).removesuffix(" for all")
    said = (
        f"{workers} workers share {shared}: while all of them compute, "
        f"a partition takes {crowd:.3g} times as long as alone"
    )
    best = found.choices[0]
    least = min(choice.code.load for choice in found.choices)
    others = [choice for choice in found.choices if choice.code.load > least]
    if not others or best.code.load > least:
        return f"{said}."
    second = others[0]
    return (
        f"{said}. Coding loses: what a code computes more takes time from the other workers "
        f"({second.name}, load {second.code.load}: {second.time / best.time:.2f} times as long as "
        f"{best.name}, load {least})."
    )


# ------------------------------------------------------------------------------------- fastgc sweep

SWEPT = "rs binary uncoded"


class Grid(Options, panel="The grid"):
    """The codes, workers, stragglers and delays of cells, and the partitions they share."""

    names: list[str] | None = options.codes(
        "Codes, such as rs bcc:load=5 mycode:MyClass.{other codes}", SWEPT
    )
    workers: str = options.workers(several=True)
    stragglers: str | None = options.stragglers("0:8", several=True)
    delays: list[str] | None = options.delays(
        None,
        "How late workers are, in seconds; give it several times to compare",
        f" (default: {options.DELAYS})",
    )
    partitions: int | None = options.partitions(min=1)


class Rounds(options.Simulated, options.Recorded, panel="Rounds"):
    """The rounds in each cell."""

    work: float = options.cost(
        "Instead of --cost: seconds to compute the partial gradients of all partitions once. Use "
        "it to compare numbers of workers."
    )
    receive: float = options.receive()
    rounds: int | None = options.repeats(_ROUNDS, "Rounds to simulate in each cell.")
    seed: int = options.seed()
    live: int = option(
        0,
        "Also measure so many rounds in each cell: worker processes on this machine compute "
        "softmax regression of the handwritten digits, with --delays added.",
        min=0,
    )


class Picture(Options):
    """The picture to draw."""

    plot: Path | None = options.picture(
        "Plot times and errors against stragglers, or workers, to this file."
    )
    width: str = options.width()


class Results(Picture, Tables, panel="What is shown and written"):
    """The picture to draw, and the figures to write."""


class Asked(Grid, Rounds, Results):
    """All options of ``fastgc sweep``."""


@command(
    CHOOSING, "fastgc sweep rs binary -n 10,20 -s 0:8:2 --delays exponential:mean=0.01 --work 0.02"
)
def sweep(context: typer.Context, asked: Asked) -> None:
    """Simulate a grid of codes, workers, stragglers and delays; with --live, also measure it.

    Impossible cells are named and left out; CSV and JSON have the reason. After Ctrl-C, the cells
    computed so far are written.
    """
    from .. import plotting
    from .._base.progress import share_bar

    asked.check()
    check_pictures(asked.width, asked.plot)
    cells: list[Cell] = []
    grid, rounds = _grid(context, asked, lambda done, total: show(len(cells), done, total))
    with _written(cells, asked, len(grid)) as take, share_bar("sweeping", len(grid)) as show:
        for cell in grid:
            take(cell)
            show(len(cells), 0, 1)
    found = [cell for cell in cells if not math.isnan(cell.seconds)]
    if not found:
        raise ValueError("no cell of the grid can be: " + "; ".join(_reasons(cells)))
    draw(lambda: plotting.sweep_curves(cells), asked.plot, asked.width)
    if not asked.printed:
        how = f"{rounds} rounds each, seed {asked.seed}"
        _show_cells(found, asked, how, live=asked.live > 0)
    for line in _reasons(cells):
        echo(line, err=True)


def _grid(
    context: typer.Context, asked: Asked, told: Callable[[float, float], None]
) -> tuple[Sweep, int]:
    """Return the cells, with delays that are named or recorded, and the rounds of each."""
    from .. import planning

    how: dict[str, Any] = {"cost": asked.cost, "work": asked.work}
    recording = options.read_recorded(context, asked, "workers", "delays", "work", "live")
    workers, delays = asked.workers, list[Any](asked.delays or [options.DELAYS])
    processors, interrupted = options.processors_of(asked.processors), not asked.finish
    if recording is not None:
        source = Source.of(recording)
        workers, delays = str(source.n), [(source.text, source.model)]
        processors, interrupted = source.processors(asked.processors), False
        how = {"work": source.cost(0.0, 1, processors)}
    sizes = options.pairs(workers, asked.stragglers, "0:8")
    rounds = options.repeated(asked.rounds, _ROUNDS, max(n for n, _ in sizes))
    grid = planning.sweep(
        options.named(asked.names, SWEPT),
        sizes,
        None,
        delays,
        k=asked.partitions,
        receive=asked.receive,
        rounds=rounds,
        seed=asked.seed,
        interrupted=interrupted,
        processors=processors,
        live=asked.live,
        progress=told,
        **how,
    )
    return grid, rounds


@contextmanager
def _written(cells: list[Any], asked: Asked, total: int) -> Iterator[Callable[[Cell], None]]:
    """Write cells as they come; an interrupt keeps the cells computed so far."""
    from ..planning import Cell

    csv_file, json_file = asked.csv_file, asked.json_file
    stream: Any = None
    if csv_file is not None and csv_file != PRINTED:
        stream = csv_file.open("w", encoding="utf-8", newline="")

    def take(cell: Cell) -> None:
        cells.append(cell)
        line(cell)

    def line(values: Iterable[Any]) -> None:
        if csv_file == PRINTED:
            echo(csv_line(values), nl=False)
        elif stream is not None:
            stream.write(csv_line(values))
            stream.flush()

    try:
        line(Cell._fields)
        yield take
    finally:
        if stream is not None:
            stream.close()
        held = json_text([cell._asdict() for cell in cells])
        if json_file == PRINTED:
            echo(held, nl=False)
        elif json_file is not None:
            json_file.write_text(held, encoding="utf-8")
        for path in (csv_file, json_file):
            if path is not None and path != PRINTED:
                echo(f"{len(cells)} of {total} cells written to {path}", err=True)


def _reasons(cells: Sequence[Cell]) -> list[str]:
    """Return each reason why numbers are missing, with its cells."""
    where: dict[str, list[str]] = {}
    for cell in cells:
        if cell.reason:
            where.setdefault(cell.reason, []).append(f"{cell.code} {cell.n}/{cell.stragglers}")
    return [f"{_few(cells)}: {why}" for why, cells in where.items()]


def _few(names: Sequence[str], most: int = 6) -> str:
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _of_time(short: str, long: str, of: str) -> list[Column]:
    """Return the columns of a time in cells, and of half of its interval."""

    def half(cell: Mapping[str, Any]) -> str:
        half = 1e3 * (cell[f"{of}_high"] - cell[f"{of}_low"]) / 2
        return "" if math.isnan(cell[of]) or math.isnan(half) else f"{half:.2g}"

    def time(seconds: float) -> str:
        return "" if math.isnan(seconds) else f"{1e3 * seconds:.3g}"

    return [Column(short, long, of, time), Column("±", "95% of it within ±", "", half)]


def _small(error: float) -> str:
    return f"{error:.0e}" if error else "0"


_CELL = [
    Column("code", "code", "code"),
    Column("n", "n", "n"),
    Column("s", "s", "stragglers"),
    Column("load", "load", "load"),
    *_of_time("time", "time, ms", "seconds"),
    Column("sent", "gradients received", "gradients", ".1f"),
    Column("residual", "residual, root mean square", "residual", _small),
    Column("error", "error, largest", "largest_error", _small),
]


def _show_cells(cells: Sequence[Cell], asked: Asked, how: str, live: bool) -> None:
    columns = _CELL[:6] + _of_time("real", "measured, ms", "measured") * live + _CELL[6:]
    for delays in dict.fromkeys(cell.delays for cell in cells):
        rows = [cell._asdict() for cell in cells if cell.delays == delays]
        asked.table(f"{delays}; {how}", columns, rows, several=True)
    asked.explain(
        f"time: of a round, mean, ms{'; real: the same, measured' * live}; ±: half of the 95% "
        "interval; sent: gradients received, mean; residual: part of the gradient that is left "
        "out, root mean square; error: largest predicted relative error of the gradient",
        codes=[cell.code for cell in cells],
    )


class Fitted(Options):
    """The times to which models are fitted."""

    file: Path = argument(
        ...,
        "Times (csv, txt, npy, npz, json, parquet), or what fastgc plan --record wrote.",
        metavar="FILE",
    )
    unit: str = options.unit()
    plot: Path | None = options.picture("Plot the times and the models to this file.")
    width: str = options.width()


@command(CHOOSING, "fastgc fit times.csv --unit ms")
def fit(what: Fitted, output: Tables) -> None:
    """Fit delay models to recorded times, and say how well they fit."""
    from .. import plotting
    from ..delays import fit as fit_models
    from ..delays.text import written

    output.check()
    check_pictures(what.width, what.plot)
    times = _recorded(what.file, what.unit)
    fits = fit_models(times)
    about = f"{times.size} times of {what.file.name}"
    draw(lambda: plotting.fit_curves(times, fits, caption=about), what.plot, what.width)
    figures = [{**found._asdict(), "model": written(found.model)} for found in fits]
    if output.write(figures, figures):
        return
    rows = [
        [written(found.model), f"{found.aic:.0f}", f"{found.ks:.3f}", f"{found.p_value:.3f}"]
        for found in fits
    ]
    title = f"{times.size} times, median {1e3 * np.median(times):.3g} ms, from {what.file.name}"
    output.show(title, ["model", "AIC", "KS", "p"], rows, describe=str)
    echo(
        "best first, by Akaike's criterion (AIC); KS: largest distance between the distribution "
        "functions of the times and of the model; p: probability of such a distance if the model "
        "is right (if p is below 0.05 or so, plan with empirical:FILE instead)"
    )


def _recorded(file: Path, unit: str) -> Any:
    from ..delays import Empirical
    from ..planning import Recording

    if file.suffix == ".json" and file.is_file():
        with opened(file, "readable .json file") as held:
            if held.read(4).removeprefix(codecs.BOM_UTF8)[:1] == b"{":
                return Recording.read(file).delays.samples
    return Empirical.read(file, unit).samples
