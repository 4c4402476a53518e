"""``fastgc fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from .common import (
    CHOOSING,
    FiguresCommand,
    Json,
    app,
    check_figures,
    check_plot,
    clear_errors,
    write_figures,
)


@app.command(cls=FiguresCommand, rich_help_panel=CHOOSING)
def fit(
    file: Annotated[
        Path,
        typer.Argument(
            help="Times (csv, txt, npy, npz, json, parquet), or what fastgc plan --record wrote."
        ),
    ],
    unit: Annotated[str, typer.Option(help="Of the times in a table: s, ms, us or ns.")] = "s",
    plot: Annotated[
        Path | None,
        typer.Option(help="Plot the times and the models to this file (png, svg, pdf)."),
    ] = None,
    json_file: Json = None,
) -> None:
    """Fit delay models to recorded times, and say how well they fit."""
    from ..delays import fit as fit_models
    from ..delays.text import written
    from ..progress import rich_table

    with clear_errors():
        check_figures(json_file, None)
        check_plot(plot)
        times = _times(file, unit)
        fits = fit_models(times)
        if plot is not None:
            from .. import plotting

            plotting.save_panels([_panel(times, fits)], plot, f"{times.size} times of {file.name}")
            typer.echo(f"plot written to {plot}", err=True)
    held = [{**found._asdict(), "model": written(found.model)} for found in fits]
    if write_figures(held, [], json_file, None):
        return
    rows = [
        [
            written(found.model),
            f"{found.aic:.0f}",
            f"{found.ks:.3f}",
            f"{found.p_value:.3f}",
        ]
        for found in fits
    ]
    title = f"{times.size} times, median {1e3 * np.median(times):.3g} ms, from {file.name}"
    head = ["model", "AIC", "KS", "p"]
    Console().print(rich_table(title, head, rows))
    typer.echo(
        "best first, by Akaike's criterion; KS: largest distance between the distribution of the "
        "times and the model's; p: how probable one as large is if the model is right (below 0.05, "
        "say, it is not: then plan with empirical:FILE)"
    )


def _times(file: Path, unit: str) -> Any:
    from ..delays import Empirical
    from ..planning import Recording

    if file.suffix == ".json" and file.is_file():
        with file.open(encoding="utf-8-sig") as opened:
            if opened.read(1) == "{":
                return Recording.read(file).delays.samples
    return Empirical.read(file, unit).samples


def _panel(times: Any, fits: Any) -> Any:
    from ..panels import Line, Panel

    q = np.linspace(0, 0.999, 400)
    lines = [Line("recorded", np.quantile(times, q), q, "step")]
    lines += [Line(type(found.model).__name__, found.model.quantile(q), q) for found in fits]
    return Panel("", "time (s)", "times that are shorter", lines, log_x=True)
