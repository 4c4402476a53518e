"""``fastgc reproduce``."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import kernels
from . import options
from .common import MORE, Options, argument, command, echo, option
from .options import named
from .output import Tables, check_pictures, draw

if TYPE_CHECKING:
    from ..papers import Figure, Row


class Chosen(Options):
    """The figures to compute, and how."""

    names: list[str] | None = argument(
        None,
        "Figures and tables, such as halbawi-3 li-tables. Of all, krishnan2023 and bytedance2025 "
        "are left out, which need times that others recorded: name them and give --data. "
        "(default: all)",
        metavar="FIGURES",
    )
    rounds: int = option(100_000, "Rounds simulated for each point of a figure.", min=1)
    seed: int = options.seed("Seed of everything that is random.")
    data: str | None = option(
        None,
        'What halbawi-2 and zhu-2 train on: "digits", a .npz file, an idx file, or a folder with '
        "MNIST's four files. Default: the digits for zhu-2; for halbawi-2 synthetic images, as "
        "many and as large as MNIST's. For krishnan2023 and bytedance2025: the folder with the "
        "times that their authors published.",
    )
    processes: int = option(
        0,
        "Figures that are computed at a time. Those that measure times are computed alone. "
        "(default: as many as there are processors)",
        min=0,
        show_default=False,
    )
    plot: Path | None = option(
        None,
        "Draw the figures into this folder (png). It is created if it does not exist.",
        metavar="FOLDER",
    )
    width: str = options.width()


@command(MORE, "fastgc reproduce halbawi-3 --rounds 1000")
def reproduce(what: Chosen, output: Tables) -> None:
    """Recompute the papers' figures and tables, and compare them with the printed ones."""
    from .. import papers, plotting

    output.check()
    known = ", ".join([*papers.FIGURES, *papers.RECORDED])
    names = named(what.names, "all", f"figure: all, or some of {known}")
    chosen = list(papers.FIGURES) if names == ["all"] else names
    if what.plot is not None:
        check_pictures(what.width, Path("figure.png"))
        what.plot.mkdir(parents=True, exist_ok=True)
    listed = []
    made = papers.reproduce(
        chosen,
        seed=what.seed,
        rounds=what.rounds,
        data=what.data,
        progress=True,
        processes=what.processes or kernels.threads.get_num_threads(),
    )
    for name, found in zip(chosen, made, strict=True):
        path = None if what.plot is None else what.plot / f"{name}.png"
        draw(partial(plotting.panel_figure, found.panels), path, what.width)
        listed += [{**asdict(row), "difference": row.difference} for row in found.rows]
        if not output.printed:
            _show(found, output)
    output.write(listed, [_columns(row) for row in listed])


def _show(found: Figure, output: Tables) -> None:
    """Print a figure's table; in a terminal, with its notes below."""
    how: Any = {"describe": str, "several": True}
    if output.markdown:
        head = ["figure", "what", "note", "here", "paper", "closed form", "difference"]
        lines = [[row.figure, row.what, row.note, *_numbers(row)] for row in found.rows]
        output.show(f"**{found.title}**", head, lines, text=3, **how)
        return
    notes = list(dict.fromkeys(row.note for row in found.rows if row.note))
    lines = [
        [
            row.figure.partition(" ")[2],  # without the paper, which the title names
            row.what,
            *_numbers(row),
            f"[{notes.index(row.note) + 1}]" if row.note else "",
        ]
        for row in found.rows
    ]
    headings = ["", "what", "here", "paper", "closed", "differ.", "note"]
    said = [at for at in range(len(headings)) if at < 3 or any(line[at] for line in lines)]
    headings, *lines = ([line[at] for at in said] for line in [headings, *lines])
    output.show(found.title, headings, lines, text=2, **how)
    output.notes(notes)
    echo()


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for CSV, with the interval in two columns."""
    row = dict(row)
    low, high = row.pop("interval") or (math.nan, math.nan)
    return {**row, "low": low, "high": high}


def _numbers(row: Row) -> list[str]:
    """Return our number, the paper's, the closed form's or its bound, and the difference."""
    held = "" if math.isnan(row.difference) else f"{100 * row.difference:+.1f}%"
    closed = "" if row.closed is None else f"{row.closed:.4g}"
    if row.bound:
        closed, held = f"≤ {closed}", "held" if row.ok else "violated"
    between = "" if row.interval is None else " ({:.3g} to {:.3g})".format(*row.interval)
    return [
        f"{row.ours:.4g}{between}",
        "" if row.paper is None else f"{row.paper:.4g}",
        closed,
        held,
    ]
