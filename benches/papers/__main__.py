"""Recompute figures and tables of papers, and compare them with the numbers that are printed.

Run in a checkout: ``python -m benches.papers halbawi-3 zhu-5``; without names, all of them, which
takes minutes. ``--list`` says which there are.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastgc import plotting

from . import charalambides, halbawi, li, ozfatura, ramamoorthy, zhu  # noqa: F401  (add figures)
from .figure import FIGURES, ROUNDS, TITLES, Figure, Row

HEAD = ("figure", "what", "note", "here", "paper", "closed form", "difference")
RULE = ("---", "---", "---", "---:", "---:", "---:", "---:")


def compute(name: str, **given: Any) -> Figure:
    """Compute a figure with those of the keywords that it takes."""
    takes = inspect.signature(FIGURES[name]).parameters
    return FIGURES[name](**{key: value for key, value in given.items() if key in takes})


def cells(row: Row) -> list[str]:
    """Return a row of the table, whose cells are texts."""
    held = "" if math.isnan(row.difference) else f"{100 * row.difference:+.1f}%"
    ours, paper, closed = (
        "" if value is None else f"{value:.4g}" for value in (row.ours, row.paper, row.closed)
    )
    if row.bound:
        closed, held = f"≤ {closed}", "held" if row.ok else "violated"
    note = f"fitted: {row.fitted}; {row.note}" if row.fitted else row.note
    return [row.figure, row.what, note, ours, paper, closed, held]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(words: Sequence[str] | None = None) -> None:
    """Print the figures asked for, as Markdown."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.papers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", help="a figure (default: all)")
    parser.add_argument("--list", action="store_true", help="print names and titles, compute none")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw their panels to this file")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="simulated for each point")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is random")
    parser.add_argument(
        "--data",
        help="what halbawi-2 and zhu-2 train on, as fastgc.data.load takes it: a folder with "
        "MNIST's four files, for example",
    )
    given = parser.parse_args(words)
    if given.list:
        print("\n".join(f"{name}: {TITLES[name]}" for name in sorted(TITLES)))
        return
    names = given.name or sorted(FIGURES)
    if unknown := [name for name in names if name not in FIGURES]:
        parser.error(
            f"there is no figure {unknown[0]!r}: choose among {', '.join(sorted(FIGURES))}"
        )
    if given.rounds < 1 or given.seed < 0:
        parser.error("--rounds must be at least 1, and --seed must not be negative")
    settings = {"rounds": given.rounds, "seed": given.seed}
    settings |= {} if given.data is None else {"data": given.data}
    if given.plot is not None:
        plotting.check_path(given.plot)
    figures = []
    for name in names:
        figures.append(compute(name, **settings))
        if not given.json:
            table = map(_line, (HEAD, RULE, *map(cells, figures[-1].rows)))
            print(f"**{figures[-1].title}**", "", *table, "", sep="\n", flush=True)
    if given.json:
        rows = [{**asdict(row), "difference": row.difference} for f in figures for row in f.rows]
        print(json.dumps(rows, ensure_ascii=False, indent=1))
    if given.plot is not None:
        panels = [panel for figure in figures for panel in figure.panels]
        plotting.save(plotting.panel_figure(panels, title=figures[0].title), given.plot)


if __name__ == "__main__":
    main()
