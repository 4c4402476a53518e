"""``fastgc fit``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

from . import options
from .common import CHOOSING, Options, argument, command
from .output import JsonOutput, check_pictures, draw_panels


@dataclass(frozen=True)
class Times(Options):
    """What is fitted to."""

    file: Path = argument(
        ..., "Times (csv, txt, npy, npz, json, parquet), or what fastgc plan --record wrote."
    )
    unit: str = options.unit()
    plot: Path | None = options.picture("Plot the times and the models to this file.")


@command(CHOOSING)
def fit(what: Times, output: JsonOutput) -> None:
    """Fit delay models to recorded times, and say how well they fit."""
    from ..delays import fit as fit_models
    from ..delays.text import written

    output.check()
    check_pictures(what.plot)
    times = _times(what.file, what.unit)
    fits = fit_models(times)
    if what.plot is not None:
        about = f"{times.size} times of {what.file.name}"
        draw_panels([_panel(times, fits)], what.plot, about)
    if output.write([{**found._asdict(), "model": written(found.model)} for found in fits]):
        return
    rows = [
        [written(found.model), f"{found.aic:.0f}", f"{found.ks:.3f}", f"{found.p_value:.3f}"]
        for found in fits
    ]
    title = f"{times.size} times, median {1e3 * np.median(times):.3g} ms, from {what.file.name}"
    output.show(title, ["model", "AIC", "KS", "p"], rows)
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
    from ..plotting import Line, Panel

    q = np.linspace(0, 0.999, 400)
    lines = [Line("recorded", np.quantile(times, q), q, "step")]
    lines += [Line(type(found.model).__name__, found.model.quantile(q), q) for found in fits]
    return Panel("", "time (s)", "times that are shorter", lines, log_x=True)
