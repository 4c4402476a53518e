"""Progress bars and tables for people, with rich."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from .extras import pip_install

try:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise ImportError(f"progress bars need rich: {pip_install('cli')}") from error

# Longest name in the first column for which it is not wrapped.
LONGEST_NAME = 30

# Without a terminal for a bar: seconds after which a line says how far the work is.
PATIENCE = 2.0


class _Above(logging.Handler):
    """Prints what is logged above a bar of this console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def logged_above(console: Console) -> Iterator[None]:
    """Print what fastgc logs, also as information, above a bar of this console."""
    log, handler = logging.getLogger("fastgc"), _Above(console)
    level = log.level
    log.addHandler(handler)
    if level == logging.NOTSET:  # else the program has chosen what it wants to see
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


@contextmanager
def task_bar(name: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar for work in `total` parts; yield the function to call after each part.

    Without a terminal, one line says how far the work is after two seconds.
    """
    with _bar(name, total) as show:
        parts = count(1)
        yield lambda: show(next(parts))


@contextmanager
def share_bar(name: str, total: int) -> Iterator[Callable[[int, float, float], None]]:
    """Show a bar for long parts, as `task_bar` does for short ones.

    The function to call takes the number of parts done, and of the next part the steps done and all
    its steps.
    """
    with _bar(name, total) as show:
        yield lambda parts, done, steps: show(parts + done / steps)


@contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[float], None]]:
    """Yield the function to call with the amount that is done, out of `total`."""
    console = Console(stderr=True)
    if console.is_terminal:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task(name, total=total)
            yield lambda done: progress.update(task, completed=done)
        return
    begun, said = time.monotonic(), False

    def show(done: float) -> None:
        nonlocal said
        taken = time.monotonic() - begun
        if not said and taken > PATIENCE and done < total:
            said = True
            print(f"{name}: {done / total:.0%} after {taken:.0f} s", file=sys.stderr, flush=True)

    yield show


def _width(head: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the width of a table whose headings break only at their own newlines."""
    cells = [[*heading.split("\n"), *column] for heading, *column in zip(head, *rows, strict=True)]
    return sum(2 + max(map(len, column)) for column in cells)


def folded(
    head: Sequence[str], rows: Sequence[Sequence[str]]
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield a table's columns in parts that fit the terminal, each with the first column.

    So numbers are whole in terminals of any width. Names longer than half of it fold.
    """
    room = Console().width
    broken = [heading.replace(" ", "\n") for heading in head]
    names = [[row[0][: room // 2], *row[1:]] for row in rows]
    begin = 1
    while begin == 1 or begin < len(head):
        end = begin + 1
        while end < len(head) and _width(*_part(broken, names, begin, end + 1)) <= room:
            end += 1
        yield _part(head, rows, begin, end)
        begin = end


def _part(
    head: Sequence[str], rows: Sequence[Sequence[str]], begin: int, end: int
) -> tuple[list[str], list[list[str]]]:
    """Return the first column of a table, and those from `begin` to `end`."""
    return [head[0], *head[begin:end]], [[row[0], *row[begin:end]] for row in rows]


def rich_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return rows of text as a table for the terminal; the first column is left-aligned.

    If the table is too wide, headings break at blanks.
    """
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    if _width(head, rows) > Console().width:
        head = [heading.replace(" ", "\n") for heading in head]
    fits = _width(head, rows) <= Console().width
    short = fits and all(len(row[0]) <= LONGEST_NAME for row in rows)
    for at, heading in enumerate(head):
        # Numbers stay whole. Names, such as those of others' classes, may be long, and fold.
        least = max((len(row[at]) for row in rows), default=0) if at else None
        table.add_column(
            Text(heading),
            justify="right" if at else "left",
            no_wrap=not at and short,
            overflow="ellipsis" if at else "fold",
            min_width=least,
        )
    # Names are no markup: a user's class may be called ":Ring:", an emoji to rich.
    table.title = Text(title, style="table.title")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def markdown_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1
) -> str:
    """Return rows of text as a Markdown table; the first `text` columns are left-aligned."""
    lines = [head, ["---"] * text + ["---:"] * (len(head) - text), *rows]
    return "\n".join([f"{title}\n", *(f"| {' | '.join(line)} |" for line in lines)])


class Shown(NamedTuple):
    """A table of text that rich prints; its first column has names."""

    title: str
    head: list[str]
    rows: list[list[str]]

    def __rich__(self) -> Table:
        return rich_table(*self)


# What LaTeX takes for more than a letter, or has not in every font.
_LATEX = {each: rf"\{each}" for each in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "µ": r"\textmu{}",
    "–": r"\textendash{}",
    "…": r"\ldots{}",
    "²": "$^2$",
    "³": "$^3$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "α": r"$\alpha$",
}


def latex_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
) -> str:
    """Return rows of text as a table for LaTeX with booktabs; the first column is left-aligned.

    A `note` stands below.
    """

    def cell(text: str) -> str:
        if power := re.fullmatch(r"(-?[\d.]+)e([+-]\d+)", text):
            return rf"${power[1]} \cdot 10^{{{int(power[2])}}}$"
        written = "".join(_LATEX.get(letter, letter) for letter in text).replace("--", "-{}-")
        return re.sub(r"^-(?=[\d.])", "$-$", written)

    # After a line break, LaTeX takes "[" or "*" for the break's argument.
    first, *others = (
        re.sub(r"^(?=[\[*])", "{}", " & ".join(map(cell, line))) + r" \\" for line in (head, *rows)
    )
    inside = [r"\toprule", first, r"\midrule", *others, r"\bottomrule"]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{cell(title)}}}",
            rf"  \begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            *(f"    {line}" for line in inside),
            r"  \end{tabular}",
            *([rf"  \par\smallskip\footnotesize {cell(note)}"] if note else []),
            r"\end{table}",
            "",
        ]
    )
