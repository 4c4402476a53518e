"""``fastgc tune``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from ..kernels import crossover
from .common import app, clear_errors


@app.command()
def tune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Measure and print, but keep nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure from how many stragglers on transforms decode faster than products, and keep it.

    Takes ten to thirty seconds. `fastgc info` says what is in use and where it is kept; to forget
    it, remove that file.
    """
    from ..progress import rich_table, task_bar

    with clear_errors():
        before = dict(crossover.table())
        with task_bar("measuring", len(crossover.SIZES)) as advance:
            found = crossover.measure(advance=advance)
        where = None if dry_run else crossover.save(found)
        if as_json:
            facts = {"kind": crossover.kind(), "factors": found, "path": where and str(where)}
            typer.echo(json.dumps(facts))
            return
        rows = [[str(m), str(before.get(m, "")), str(count)] for m, count in found.items()]
        title = f"stragglers from which on transforms are faster, {crossover.kind()}"
        Console().print(rich_table(title, ["workers", "before", "now"], rows))
        typer.echo(f"kept in {where}" if where else "nothing was kept")
