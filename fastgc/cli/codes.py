"""``fastgc codes``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..codes import catalogue
from ..history import APPROXIMATE
from .common import (
    CHOOSING,
    FiguresCommand,
    Json,
    Partitions,
    Stragglers,
    Workers,
    app,
    check_figures,
    clear_errors,
    complete_codes,
    tolerated,
    write_figures,
)

if TYPE_CHECKING:
    from ..planning.costs import Figures


APPROXIMATIONS = "Codes whose gradients may be approximations"


@app.command(cls=FiguresCommand, rich_help_panel=CHOOSING)
def codes(
    names: Annotated[
        str,
        typer.Argument(
            help="A list such as rs,bcc:load=5. Default: all codes.", autocompletion=complete_codes
        ),
    ] = "",
    workers: Workers = 20,
    stragglers: Stragglers = None,
    partitions: Partitions = None,
    trials: Annotated[int, typer.Option(min=1, help="Rounds to average over.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of data, orders and random codes.")] = 0,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    json_file: Json = None,
) -> None:
    """Compare codes side by side: loads, messages needed, time of decoding, precision."""
    from ..planning.costs import measure
    from ..planning.plan import reasons
    from ..progress import markdown_table, rich_table, task_bar

    with clear_errors():
        check_figures(json_file, None)
        s = tolerated(workers, stragglers)
        chosen = catalogue.split(names) or catalogue.names()
        made, notes, refused = {}, [], {}
        for name in chosen:
            try:
                made[name] = code = catalogue.make(name, workers, partitions, s, seed)
                said = catalogue.remark(name, code)
                notes += [said] if said else []
            except ValueError as error:
                if names:  # one asked for by name
                    raise
                refused[name] = str(error)
        notes += reasons(refused)
        if not made:
            raise ValueError(f"no code fits: {'; '.join(notes)}")
        with task_bar("measuring", len(made)) as advance:
            figures = {}
            for name, code in made.items():
                figures[name] = measure(code, trials, seed)
                advance()
    held = {name: found._asdict() for name, found in figures.items()}
    if write_figures(held, [], json_file, None):
        return
    rows = [
        [
            name,
            str(found.load),
            f"{found.mean_load:.3g}",
            f"{'?' if found.threshold is None else found.threshold}/{found.messages}",
            f"{found.mean_workers:.1f}",
            f"{found.communication_load:.1f}",
            f"{found.message_size:g}",
            f"{1e6 * found.decode_seconds:.1f}",
            f"{found.error:.0e}",
            f"{found.worst_error:.0e}",
        ]
        for name, found in figures.items()
    ]
    left = [
        [
            name,
            f"{found.mean_load:.3g}",
            f"{found.mean_workers:.1f}",
            _left(found.residual),
            f"{'' if found.worst_is_known else '≥ '}{_left(found.worst_residual)}",
        ]
        for name, found in figures.items()
        if max(found.residual, found.worst_residual) > APPROXIMATE or not found.worst_is_known
    ]
    title = (
        f"n={workers} workers, s={s} stragglers, k={partitions or workers} partitions; "
        f"{trials} rounds, messages in random order, seed {seed}"
    )
    if markdown:
        head = [
            "code",
            "load, largest",
            "load, mean",
            "messages needed, worst case",
            "workers waited for, mean",
            "gradients received, mean",
            "message, gradients",
            "decoding vector, µs",
            "error, median",
            "error, worst",
        ]
        rows = [[catalogue.describe(row[0]), *row[1:]] for row in rows]
        typer.echo(markdown_table(title, head, rows))
        if left:
            head = [head[0], head[2], head[4], "left out, root mean square", "left out, worst"]
            left = [[catalogue.describe(row[0]), *row[1:]] for row in left]
            typer.echo("\n" + markdown_table(APPROXIMATIONS, head, left))
    else:
        head = ["code", "load", "mean", "worst", "waits", "sent", "size", "µs", "error", "max"]
        Console().print(rich_table(title, head, rows))
        typer.echo(
            "load, mean: partitions of a worker, largest and mean; worst: messages needed; "
            "waits, sent: workers waited for and gradients received, mean; size: of a message, "
            "in gradients; µs: for a decoding vector; error: of the gradient, relative, median "
            "and max"
        )
        if left:
            head = ["code", "load, mean", "waits", "left out, mean", "at worst"]
            Console().print(rich_table(APPROXIMATIONS, head, left))
            typer.echo(
                "left out: of the gradient, root mean square over random survivors, and of the "
                "worst; ≥: at least, for not all sets of survivors were looked at"
            )
        typer.echo(f"Codes: {', '.join(map(catalogue.describe, figures))}.")
    if apart := _loads_apart(figures):
        typer.echo(f"\n{apart}" if markdown else apart)
    for note in notes:
        typer.echo(note, err=True)


def _left(residual: float) -> str:
    """A residual; of rounding alone its order of magnitude."""
    return f"{residual:.2g}" if residual > APPROXIMATE or not residual else f"{residual:.0e}"


def _loads_apart(figures: Mapping[str, Figures]) -> str:
    """Which codes are not compared at the load of most, in a sentence; nothing if all are."""
    by_load: dict[int, list[str]] = {}
    for name, found in figures.items():
        by_load.setdefault(found.load, []).append(name)
    common = max(by_load, key=lambda load: len(by_load[load]))
    others = [f"{', '.join(by_load[w])} at {w}" for w in sorted(by_load) if w != common]
    return f"Compared at a load of {common}; {'; '.join(others)}." if others else ""
