"""``fastgc worst`` and ``fastgc spare``: the worst stragglers, and what helps against them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from ..codes import Code, catalogue
from ..errors import NotDecodableError
from .common import (
    PRECISION,
    FiguresCommand,
    Json,
    app,
    check_figures,
    check_folder,
    clear_errors,
    complete_codes,
    write_figures,
)
from .stability import check_scheme, pairs_of, scheme_of

CODES = "rs@locator,rs@near-exact,rs,rs-clustered"
FIELDS = (
    "code",
    "n",
    "load",
    "stragglers",
    "dtype",
    "pattern",
    "sets",
    "seconds",
    "start_error",
    "error",
    "measured",
    "amplification",
    "silent",
)

Sizes = Annotated[
    str, typer.Option(help="Workers and stragglers, as in 64/16,256/32; 1/8 straggle if not said.")
]
Dtype = Annotated[str, typer.Option(help="Type of the messages.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of sets, data and random codes.")]
Csv = Annotated[Path | None, typer.Option("--csv", help="Write all figures here.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")]


@app.command(cls=FiguresCommand, rich_help_panel=PRECISION)
def worst(
    names: Annotated[
        str,
        typer.Argument(
            help="Codes, as of fastgc stability; rs@near-exact names a method.",
            autocompletion=complete_codes,
        ),
    ] = CODES,
    sizes: Sizes = "64/16,256/32",
    dtype: Dtype = "float64",
    steps: Annotated[
        int, typer.Option(min=0, help="Steps of the search: random sets, windows, and exchanges.")
    ] = 1000,
    seconds: Annotated[
        float | None, typer.Option(help="Longest search for each code and size, in seconds.")
    ] = None,
    seed: Seed = 0,
    csv_file: Csv = None,
    markdown: Markdown = False,
    json_file: Json = None,
) -> None:
    """Search for the stragglers with which a code decodes the least precise gradients."""
    from time import monotonic

    from ..planning.plan import reasons
    from ..progress import share_bar
    from ..stability import measured_error, worst_survivors

    rows: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    with clear_errors():
        check_figures(json_file, None)
        check_folder(csv_file)
        entries = [(text, n, s) for n, s in pairs_of(sizes, "0.125") for text in _named(names)]
        with share_bar("searching", len(entries)) as show:
            for at, (text, n, s) in enumerate(entries):
                begin = monotonic()
                try:
                    code, method = scheme_of(text, n, seed, s)
                    found = worst_survivors(
                        code,
                        s,
                        method=method,
                        dtype=dtype,
                        trials=steps,
                        seconds=seconds,
                        seed=seed,
                        progress=partial(show, at),
                    )
                    taken = monotonic() - begin
                    measured = measured_error(
                        code, found.survivors, dtype=dtype, method=method, seed=seed
                    ).relative
                except (ValueError, OverflowError, NotDecodableError) as error:
                    refused[f"{text} at {n}/{s}"] = str(error)
                    continue
                figures = (text, n, code.load, s, dtype, found.pattern, found.sets, taken)
                errors = (found.start_error, found.error, measured)
                power = (
                    10.0**found.log10_amplification if found.log10_amplification < 308 else np.inf
                )
                silent = found.stragglers.tolist()
                rows.append(dict(zip(FIELDS, (*figures, *errors, power, silent), strict=True)))
        if not rows:
            raise ValueError("nothing to search: " + "; ".join(reasons(refused)))
        _write(rows, csv_file)
    if not write_figures(rows, [], json_file, None):
        name = catalogue.describe if markdown else str
        cells = [
            [
                name(row["code"]),
                *(str(row[key]) for key in ("n", "stragglers", "load")),
                *(f"{row[key]:.1e}" for key in ("start_error", "error", "measured")),
                f"{row['amplification']:.0e}",
                str(row["sets"]),
            ]
            for row in rows
        ]
        head = ["code", "n", "s", "load", "start", "worst", "measured", "amplif.", "sets"]
        _show(f"worst stragglers found, {dtype}, seed {seed}", head, cells, markdown=markdown)
        if not markdown:
            typer.echo(
                "start, worst: relative error of the gradient as trust() predicts it, before "
                "exchanges and after; measured: of random gradients, for the worst set"
            )
            typer.echo(_explained(rows))
    for line in reasons(refused):
        typer.echo(line, err=True)


@app.command(cls=FiguresCommand, rich_help_panel=PRECISION)
def spare(
    names: Annotated[
        str, typer.Argument(help="Codes, as of fastgc worst.", autocompletion=complete_codes)
    ] = "rs",
    sizes: Sizes = "256/32",
    dtype: Dtype = "float64",
    more: Annotated[
        str, typer.Option(help="Stragglers to tolerate beyond s, or messages to wait for.")
    ] = "0,1,2,4,8,16",
    error: Annotated[
        float | None, typer.Option(help="Say what reaches this error, for the worst set found.")
    ] = None,
    sets: Annotated[int, typer.Option(min=1, help="Random sets, and steps of the search.")] = 100,
    seed: Seed = 0,
    csv_file: Csv = None,
    markdown: Markdown = False,
    json_file: Json = None,
) -> None:
    """Measure what load to spare, and waiting for a few more messages, buy in precision."""
    from ..progress import task_bar
    from ..stability import spare as spared

    rows: list[dict[str, Any]] = []
    with clear_errors():
        check_figures(json_file, None)
        check_folder(csv_file)
        try:
            numbers = [int(each) for each in catalogue.split(more)]
        except ValueError as problem:
            raise ValueError(f"--more is a list of numbers: {problem}") from None
        entries = [(text, n, s) for n, s in pairs_of(sizes, "0.125") for text in _named(names)]
        with task_bar("measuring", 2 * len(numbers) * len(entries)) as advance:
            for text, n, s in entries:
                method = scheme_of(text, n, seed, s)[1]
                found = spared(
                    _maker(text, n, seed),
                    s,
                    more=numbers,
                    method=method,
                    dtype=dtype,
                    sets=sets,
                    seed=seed,
                    progress=advance,
                )
                rows += [{"code": text, "dtype": dtype, **row._asdict()} for row in found]
        _write(rows, csv_file)
    if write_figures(rows, [], json_file, None):
        return
    name = catalogue.describe if markdown else str
    keys = ("n", "way", "more", "load", "silent")
    errors = ("random", "random_worst", "contiguous", "worst")
    cells = [
        [
            name(row["code"]),
            *(str(row[key]) for key in keys),
            *(f"{row[key]:.0e}" for key in errors),
        ]
        for row in rows
    ]
    head = ["code", "n", "way", "more", "load", "silent", "random", "max", "arc", "worst"]
    title = f"errors to expect with something to spare, {dtype}, {sets} sets, seed {seed}"
    _show(title, head, cells, markdown=markdown)
    if not markdown:
        typer.echo(
            "way, more: what there is more of, load or waiting, and how much; silent: workers that "
            "do not answer; random, max: error of the gradient, relative, for random sets of them, "
            "median and largest; arc: for neighbours; worst: for the worst set found"
        )
        typer.echo(_explained(rows))
    if error is not None:
        for text, n, s in entries:
            mine = [row for row in rows if (row["code"], row["n"]) == (text, n)]
            for way, key in (("load", "load"), ("wait", "silent")):
                good = [row for row in mine if row["way"] == way and row["worst"] <= error]
                said = f"{key} {good[0][key]}" if good else "nothing tried"
                typer.echo(f"{text}, n={n}, s={s}, by {way}: {said} reaches {error:.0e}")


def _explained(rows: Sequence[dict[str, Any]]) -> str:
    """What names of codes stand for."""
    names = dict.fromkeys(row["code"] for row in rows)
    return f"Codes: {', '.join(map(catalogue.describe, names))}."


def _named(names: str) -> list[str]:
    chosen = catalogue.split(names)
    if not chosen:
        raise ValueError("name at least one code")
    for text in chosen:
        check_scheme(text)
    return chosen


def _maker(text: str, n: int, seed: int) -> Callable[[int], Code]:
    return lambda tolerated: scheme_of(text, n, seed, tolerated)[0]


def _write(rows: Sequence[dict[str, Any]], path: Path | None) -> None:
    if path is None:
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    typer.echo(f"figures written to {path}", err=True)


def _show(title: str, head: list[str], cells: list[list[str]], *, markdown: bool) -> None:
    from ..progress import markdown_table, rich_table

    if markdown:
        typer.echo(markdown_table(title, head, cells) + "\n")
    else:
        Console().print(rich_table(title, head, cells))
