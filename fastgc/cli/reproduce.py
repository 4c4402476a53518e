"""``fastgc reproduce``."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from .common import (
    MORE,
    PRINTED,
    Csv,
    FiguresCommand,
    Json,
    app,
    check_figures,
    clear_errors,
    write_figures,
)

if TYPE_CHECKING:
    from ..papers import Row


@app.command(cls=FiguresCommand, rich_help_panel=MORE)
def reproduce(
    figure: Annotated[
        str,
        typer.Argument(
            help="all, or a list of figures and tables such as halbawi-3,li-tables. krishnan2023 "
            "and bytedance2025, on times that others recorded, are not among all: they need --data."
        ),
    ] = "all",
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds simulated for each point of a figure.")
    ] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is random.")] = 0,
    data: Annotated[
        str | None,
        typer.Option(
            help='What halbawi-2 and zhu-2 train on: "digits", a .npz file, an idx file, or a '
            "folder with MNIST's four files. Default: zhu-2 on the digits, halbawi-2 on synthetic "
            "images, as many and as large as the paper's of MNIST. Of krishnan2023 and "
            "bytedance2025 the folder of the times that their authors published."
        ),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Draw the figures to this folder (png), made if need be.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    json_file: Json = None,
    csv_file: Csv = None,
) -> None:
    """Compute the papers' figures and tables anew, and compare them with what the papers print."""
    from .. import papers
    from ..progress import markdown_table, rich_table

    with clear_errors():
        check_figures(json_file, csv_file)
        names = [name.strip() for name in figure.split(",") if name.strip()]
        chosen = list(papers.FIGURES) if names == ["all"] else names
        if not chosen:
            raise ValueError(
                f"name a figure: all, or some of {', '.join([*papers.FIGURES, *papers.RECORDED])}"
            )
        if plots is not None:
            from .. import plotting

            plots.mkdir(parents=True, exist_ok=True)
            plotting.check_path(plots / "figure.png")
        listed = []
        made = papers.reproduce(chosen, seed=seed, rounds=rounds, data=data, progress=True)
        for name, found in zip(chosen, made, strict=True):
            if plots is not None:
                plotting.save_panels(found.panels, plots / f"{name}.png")
                typer.echo(f"plot written to {plots / name}.png", err=True)
            listed += [{**asdict(row), "difference": row.difference} for row in found.rows]
            if PRINTED in (json_file, csv_file):
                continue
            if markdown:
                head = ["figure", "what", "note", "here", "paper", "closed form", "difference"]
                lines = [[row.figure, row.what, row.note, *_numbers(row)] for row in found.rows]
                typer.echo(markdown_table(f"**{found.title}**", head, lines, text=3) + "\n")
                continue
            notes = list(dict.fromkeys(row.note for row in found.rows if row.note))
            lines = [
                [
                    row.figure.partition(" ")[2],  # the title says which paper
                    row.what,
                    *_numbers(row),
                    f"[{notes.index(row.note) + 1}]" if row.note else "",
                ]
                for row in found.rows
            ]
            head = ["", "what", "here", "paper", "closed", "differ.", "note"]
            Console().print(rich_table(found.title, head, lines, text=2))
            for number, note in enumerate(notes, start=1):
                typer.echo(f"[{number}] {note}")
            typer.echo()
        write_figures(listed, [_columns(row) for row in listed], json_file, csv_file)


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    """A row as CSV has it: the interval in two columns."""
    row = dict(row)
    low, high = row.pop("interval") or (math.nan, math.nan)
    return {**row, "low": low, "high": high}


def _numbers(row: Row) -> list[str]:
    """Our number, the paper's, the closed form's, and the relative difference."""
    values = (row.paper, row.closed)
    between = "" if row.interval is None else " ({:.3g} to {:.3g})".format(*row.interval)
    return [
        f"{row.ours:.4g}{between}",
        *("" if value is None else f"{value:.4g}" for value in values),
        "" if math.isnan(row.difference) else f"{100 * row.difference:+.1f}%",
    ]
