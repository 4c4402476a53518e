"""``fastgc sweep``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from . import options
from .common import CHOOSING, Options, command, option
from .options import DELAYS, complete_codes
from .output import (
    PRINTED,
    Heading,
    Tables,
    check_pictures,
    csv_line,
    draw_panels,
    json_text,
)

if TYPE_CHECKING:
    from ..planning import Cell

_RANGE = re.compile(r"(\d{1,9})(?::(\d{1,9})(?::([1-9]\d{0,8}))?)?")


@dataclass(frozen=True)
class Grid(Options, panel="The grid"):
    """What the cells differ in, and the partitions that they share."""

    codes: str = option(
        "rs,binary,uncoded",
        "Codes, as in rs,bcc:load=5 or mycode:MyClass.{other codes}",
        "--code",
        autocompletion=complete_codes,
    )
    workers: str = option(
        "20",
        "Workers: numbers and ranges first:last or first:last:step, as in 10,20:80:20. The last is "
        "one of them.",
        "--workers",
        "--n",
        "-n",
    )
    stragglers: str = option(
        "0:8", "Stragglers tolerated, s, written as workers are.", "--stragglers", "--s", "-s"
    )
    delays: list[str] | None = options.delays(
        None,
        "How late workers are, in seconds; may be given several times",
        f" (default: {DELAYS})",
    )
    partitions: int | None = options.partitions(min=1)


@dataclass(frozen=True)
class Rounds(Options, panel="Rounds"):
    """What is simulated in each cell."""

    cost: float = options.cost()
    work: float = options.cost(
        "In its place, seconds to compute all of them, which the partitions share: so do numbers "
        "of workers compare."
    )
    receive: float = options.receive()
    rounds: int = options.rounds(2000, "Rounds to simulate in each cell.")
    seed: int = options.seed()
    finish: bool = options.finish()
    live: int = options.live(
        "Measure so many rounds in each cell, too: of worker processes on this machine, which "
        "compute softmax regression of the handwritten digits, with --delays added."
    )


RESULTS = "What is shown and written"


@dataclass(frozen=True)
class Picture(Options, panel=RESULTS):
    """What is drawn."""

    plot: Path | None = options.picture(
        "Plot times and errors against stragglers, or workers, to this file."
    )


@dataclass(frozen=True)
class Figures(Tables, panel=RESULTS):
    """What is written."""


@dataclass(frozen=True)
class Asked(Grid, Rounds, Picture, Figures):
    """All of these."""


@command(CHOOSING)
def sweep(asked: Asked) -> None:
    """Simulate a grid of codes, workers, stragglers and delays, and measure it, if asked to.

    Cells that cannot be are named and left out, with the reason in CSV and JSON. What was computed
    before Ctrl-C is written.
    """
    from .. import planning

    asked.check()
    check_pictures(asked.plot)
    grid = planning.sweep(
        asked.codes,
        _numbers("--workers", asked.workers),
        _numbers("--stragglers", asked.stragglers),
        asked.delays or [DELAYS],
        k=asked.partitions,
        cost=asked.cost,
        work=asked.work,
        receive=asked.receive,
        rounds=asked.rounds,
        seed=asked.seed,
        interrupted=not asked.finish,
        live=asked.live,
    )
    cells: list[Cell] = []
    with _written(cells, asked, len(grid)) as take:
        for cell in grid:
            take(cell)
    found = [cell for cell in cells if not math.isnan(cell.seconds)]
    if not found:
        raise ValueError("no cell of the grid can be: " + "; ".join(_reasons(cells)))
    if asked.plot is not None:
        draw_panels(planning.sweep_panels(cells), asked.plot)
    if not asked.printed:
        how = f"{asked.rounds} rounds each, seed {asked.seed}"
        _show(found, asked, how, live=asked.live > 0)
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
def _written(cells: list[Any], asked: Asked, total: int) -> Iterator[Any]:
    """Show a bar, and write cells as they come; what there is by then, if interrupted."""
    from ..planning import Cell
    from ..progress import task_bar

    csv_file, json_file = asked.csv_file, asked.json_file
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
        held = json_text([cell._asdict() for cell in cells])
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


def _show(cells: Sequence[Cell], asked: Asked, how: str, live: bool) -> None:
    """Print cells, a table for each of the delays."""

    def times(*seconds: float) -> list[str]:
        if math.isnan(seconds[0]):
            return [""] * 2
        half = 1e3 * (seconds[2] - seconds[1]) / 2
        return [f"{1e3 * seconds[0]:.3g}", "" if math.isnan(half) else f"{half:.2g}"]

    within = ("±", "95% of it within ±")
    columns: list[Heading] = [
        *("code", "n", "s", "load"),
        *(("time", "time, ms"), within),
        *((("real", "measured, ms"), within) if live else ()),
        ("sent", "gradients received"),
        ("residual", "residual, root mean square"),
        ("error", "error, largest"),
    ]

    def line(cell: Cell) -> list[str]:
        return [
            cell.code,
            *(str(each) for each in (cell.n, cell.stragglers, cell.load)),
            *times(cell.seconds, cell.seconds_low, cell.seconds_high),
            *(times(cell.measured, cell.measured_low, cell.measured_high) if live else []),
            f"{cell.gradients:.1f}",
            *(f"{each:.0e}" if each else "0" for each in (cell.residual, cell.largest_error)),
        ]

    for delays in dict.fromkeys(cell.delays for cell in cells):
        rows = [line(cell) for cell in cells if cell.delays == delays]
        asked.show(f"{delays}; {how}", columns, rows, several=True)
    asked.explain(
        "time: of a round, ms, mean, with ± half of its 95% interval"
        f"{' (real: measured)' * live}; sent: gradients received, mean; residual: what is left "
        "out, root mean square; error: of the gradient, relative, the largest predicted",
        codes=[cell.code for cell in cells],
    )
