"""``fastgc sweep``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..codes import catalogue
from ..delays.text import FORMS
from .common import (
    CHOOSING,
    PRINTED,
    ListingCommand,
    app,
    check_figures,
    check_plot,
    clear_errors,
    complete_codes,
    csv_line,
    figures_option,
)

if TYPE_CHECKING:
    from ..planning import Cell

_RANGE = re.compile(r"(\d{1,9})(?::(\d{1,9})(?::([1-9]\d{0,8}))?)?")
# Panels of the help.
GRID, ROUNDS, RESULTS = "The grid", "Rounds", "What is shown and written"


@app.command(cls=ListingCommand, rich_help_panel=CHOOSING)
def sweep(
    codes: Annotated[
        str,
        typer.Option(
            "--code",
            help="Codes, as in rs,bcc:load=5 or mycode:MyClass.{other codes}",
            autocompletion=complete_codes,
            rich_help_panel=GRID,
        ),
    ] = "rs,binary,uncoded",
    workers: Annotated[
        str,
        typer.Option(
            "--workers",
            "--n",
            "-n",
            help="Workers: numbers and ranges first:last or first:last:step, as in 10,20:80:20. "
            "The last is one of them.",
            rich_help_panel=GRID,
        ),
    ] = "20",
    stragglers: Annotated[
        str,
        typer.Option(
            "--stragglers",
            "--s",
            "-s",
            help="Stragglers tolerated, s, written as workers are.",
            rich_help_panel=GRID,
        ),
    ] = "0:8",
    delays: Annotated[
        list[str] | None,
        typer.Option(
            help=f"How late workers are, in seconds; may be given several times: {FORMS}"
            "{other delays}. (default: pareto:scale=0.005,shape=1.5)",
            rich_help_panel=GRID,
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-k",
            min=1,
            help="Partitions of the data, k. (default: n)",
            rich_help_panel=GRID,
        ),
    ] = None,
    cost: Annotated[
        float,
        typer.Option(
            min=0.0, help="Seconds to compute one partial gradient.", rich_help_panel=ROUNDS
        ),
    ] = 0.0,
    work: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="In its place, seconds to compute all of them, which the partitions share: so "
            "do numbers of workers compare.",
            rich_help_panel=ROUNDS,
        ),
    ] = 0.0,
    receive: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds that the master's link needs for a message.",
            rich_help_panel=ROUNDS,
        ),
    ] = 0.0,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds to simulate in each cell.", rich_help_panel=ROUNDS)
    ] = 2000,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of delays and random codes.", rich_help_panel=ROUNDS)
    ] = 0,
    finish: Annotated[
        bool,
        typer.Option(
            "--finish",
            help="Late workers first finish the message they are at, as those of the engines do; "
            "otherwise they drop it when a round is over.",
            rich_help_panel=ROUNDS,
        ),
    ] = False,
    live: Annotated[
        int,
        typer.Option(
            min=0,
            help="Measure so many rounds in each cell, too: of worker processes on this machine, "
            "which compute softmax regression of the handwritten digits, with --delays added.",
            rich_help_panel=ROUNDS,
        ),
    ] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Plot times and errors against stragglers, or workers, to this file (png, svg, "
            "pdf).",
            rich_help_panel=RESULTS,
        ),
    ] = None,
    csv_file: Annotated[Path | None, figures_option("csv", RESULTS)] = None,
    json_file: Annotated[Path | None, figures_option("json", RESULTS)] = None,
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Print a Markdown table.", rich_help_panel=RESULTS),
    ] = False,
) -> None:
    """Simulate a grid of codes, workers, stragglers and delays, and measure it, if asked to.

    Cells that cannot be are named and left out, with the reason in CSV and JSON. What was computed
    before Ctrl-C is written.
    """
    from .. import planning

    with clear_errors():
        check_figures(json_file, csv_file)
        check_plot(plot)
        models = delays or ["pareto:scale=0.005,shape=1.5"]
        grid = planning.sweep(
            codes,
            _numbers("--workers", workers),
            _numbers("--stragglers", stragglers),
            models,
            k=partitions,
            cost=cost,
            work=work,
            receive=receive,
            rounds=rounds,
            seed=seed,
            interrupted=not finish,
            live=live,
        )
        cells: list[Cell] = []
        with _written(cells, csv_file, json_file, len(grid)) as take:
            for cell in grid:
                take(cell)
        found = [cell for cell in cells if not math.isnan(cell.seconds)]
        if not found:
            raise ValueError("no cell of the grid can be: " + "; ".join(_reasons(cells)))
        if plot is not None:
            from .. import plotting

            plotting.save_panels(planning.sweep_panels(cells), plot)
            typer.echo(f"plot written to {plot}", err=True)
        if PRINTED not in (csv_file, json_file):
            _show(found, markdown, f"{rounds} rounds each, seed {seed}", live=live > 0)
        for line in _reasons(cells):
            typer.echo(line, err=True)


def _numbers(option: str, text: str) -> list[int]:
    """The numbers of a list of numbers and ranges."""
    found: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(
                f"{option}: {part!r} is neither a number nor a range such as 0:8 or 0:8:2"
            )
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first:
            raise ValueError(f"{option}: {part!r} has its larger end first")
        found += range(first, last + 1, int(match[3] or 1))
    if not found:
        raise ValueError(f"{option} must name a number, as in 10,20 or 0:8")
    return found


@contextmanager
def _written(
    cells: list[Any], csv_file: Path | None, json_file: Path | None, total: int
) -> Iterator[Any]:
    """Show a bar, and write cells as they come; what there is by then, if interrupted."""
    from ..history import json_ready
    from ..planning import Cell
    from ..progress import task_bar

    stream: Any = None
    if csv_file is not None and csv_file != PRINTED:
        stream = csv_file.open("w", encoding="utf-8", newline="")

    def line(values: Iterable[Any]) -> None:
        text = csv_line(values)
        if csv_file == PRINTED:
            typer.echo(text, nl=False)
        elif stream is not None:
            stream.write(text)
            stream.flush()

    try:
        line(Cell._fields)
        with task_bar("sweeping", total) as advance:

            def take(cell: Cell) -> None:
                cells.append(cell)
                line(cell)
                advance()

            yield take
    finally:
        if stream is not None:
            stream.close()
        held = json.dumps(json_ready([cell._asdict() for cell in cells]), allow_nan=False) + "\n"
        if json_file == PRINTED:
            typer.echo(held, nl=False)
        elif json_file is not None:
            json_file.write_text(held, encoding="utf-8")
        for path in (csv_file, json_file):
            if path is not None and path != PRINTED:
                typer.echo(f"{len(cells)} of {total} cells written to {path}", err=True)


def _reasons(cells: Sequence[Cell]) -> list[str]:
    """Why something is missing, each reason once, with the cells that it is of."""
    where: dict[str, list[str]] = {}
    for cell in cells:
        if cell.reason:
            where.setdefault(cell.reason, []).append(f"{cell.code} {cell.n}/{cell.stragglers}")
    return [f"{_few(cells)}: {why}" for why, cells in where.items()]


def _few(names: Sequence[str], most: int = 6) -> str:
    """Some names, and how many more there are."""
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _show(cells: Sequence[Cell], markdown: bool, how: str, live: bool) -> None:
    """Print cells, a table for each of the delays."""
    from ..progress import markdown_table, rich_table

    def times(*seconds: float) -> list[str]:
        if math.isnan(seconds[0]):
            return [""] * 2
        half = 1e3 * (seconds[2] - seconds[1]) / 2
        return [f"{1e3 * seconds[0]:.3g}", "" if math.isnan(half) else f"{half:.2g}"]

    short = ["code", "n", "s", "load", "time", "±"]
    long = ["code", "n", "s", "load", "time, ms", "95% of it within ±"]
    short += ["real", "±"] * live + ["sent", "residual", "error"]
    long += ["measured, ms", "95% of it within ±"] * live
    long += ["gradients received", "residual, root mean square", "error, largest"]

    def line(cell: Cell) -> list[str]:
        return [
            catalogue.describe(cell.code) if markdown else cell.code,
            *(str(each) for each in (cell.n, cell.stragglers, cell.load)),
            *times(cell.seconds, cell.seconds_low, cell.seconds_high),
            *(times(cell.measured, cell.measured_low, cell.measured_high) if live else []),
            f"{cell.gradients:.1f}",
            *(f"{each:.0e}" if each else "0" for each in (cell.residual, cell.largest_error)),
        ]

    for delays in dict.fromkeys(cell.delays for cell in cells):
        title = f"{delays}; {how}"
        lines = [line(cell) for cell in cells if cell.delays == delays]
        if markdown:
            typer.echo(markdown_table(title, long, lines) + "\n")
        else:
            Console().print(rich_table(title, short, lines))
    if markdown:
        return
    typer.echo(
        "time: of a round, ms, mean, with ± half of its 95% interval"
        f"{' (real: measured)' * live}; sent: gradients received, mean; residual: what is left "
        "out, root mean square; error: of the gradient, relative, the largest predicted"
    )
    names = dict.fromkeys(cell.code for cell in cells)
    typer.echo(f"Codes: {', '.join(map(catalogue.describe, names))}.")
