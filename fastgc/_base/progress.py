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

# The most rows that fit on a page of LaTeX, with caption and head.
PAGE = 40

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


def rich_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1
) -> Table:
    """Return rows of text as a table for the terminal; the first `text` columns are left-aligned.

    If there are several text columns, these are wrapped. If the table is too wide, headings break
    at blanks.
    """
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    if _width(head, rows) > Console().width:
        head = [heading.replace(" ", "\n") for heading in head]
    fits = _width(head, rows) <= Console().width
    short = fits and all(len(row[0]) <= LONGEST_NAME for row in rows)
    for at, heading in enumerate(head):
        # Numbers stay whole. Texts, such as names of others' classes, may be long, and fold.
        least = max((len(row[at]) for row in rows), default=0) if at >= text else None
        table.add_column(
            Text(heading),
            justify="left" if at < text else "right",
            no_wrap=at >= text if text > 1 else at == 0 and short,
            overflow="fold" if at < text else "ellipsis",
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


_LATEX = {
    "\\": r"\textbackslash{}",
    **{each: rf"\{each}" for each in "&%$#_{}"},
    # LaTeX's default encoding of fonts (OT1) prints other characters for these.
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "µ": r"\textmu{}",
    "°": r"\textdegree{}",
    "–": "--",
    "…": r"\ldots{}",
    "²": "$^2$",
    "³": "$^3$",
}
_SIGNS = "±×·≥≤≠≈∞ℓ⌈⌉⌊⌋→√ΣΓαβγδεηθλμξρσ"
_CALLED = (
    "pm times cdot ge le ne approx infty ell lceil rceil lfloor rfloor to surd Sigma Gamma "
    "alpha beta gamma delta epsilon eta theta lambda mu xi rho sigma"
)
_LATEX |= {sign: rf"$\{name}$" for sign, name in zip(_SIGNS, _CALLED.split(), strict=True)}


def latex_text(text: str) -> str:
    """Return a text as LaTeX source that prints it, in fonts of any encoding."""
    written = "".join(_LATEX.get(letter, letter) for letter in text.replace("--", "-\0-"))
    written = re.sub('"([^"]*)"', r"``\1''", written.replace("\0", "{}")).replace('"', "''")
    return re.sub("(\\w)\N{COMBINING MACRON}", r"\\={\1}", written)


def latex_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1
) -> str:
    """Return rows of text as a LaTeX table for booktabs, the first `text` columns left-aligned.

    With over `PAGE` rows it is a longtable, which breaks between pages and repeats its head.
    """

    def escaped(cell: str) -> str:
        if power := re.fullmatch(r"(-?\d[\d.]*)e([+-]\d+)( !)?", cell):
            return rf"${power[1]} \cdot 10^{{{int(power[2])}}}${power[3] or ''}"
        return re.sub(r"^-(?=[\d.])", "$-$", latex_text(cell))

    # After a line break, LaTeX takes "[" or "*" for the line break's argument.
    lines = [rf"{' & '.join(map(escaped, line))} \\" for line in (head, *rows)]
    lines = [re.sub(r"^(?=[\[*])", "{}", line) for line in lines]
    caption = rf"\caption{{{escaped(title)}}}"
    columns = "l" * text + "r" * (len(head) - text)
    top, below = [r"\toprule", lines[0], r"\midrule"], lines[1:]
    if len(rows) > PAGE:
        first = [rf"{caption} \\", *top, r"\endfirsthead"]
        inside = [*first, *top, r"\endhead", r"\bottomrule", r"\endfoot", *below]
        begin, end, indent = [rf"\begin{{longtable}}{{{columns}}}"], [r"\end{longtable}"], "  "
    else:
        inside = [*top, *below, r"\bottomrule"]
        begin = [r"\begin{table}", r"  \centering", f"  {caption}"]
        begin.append(rf"  \begin{{tabular}}{{{columns}}}")
        end, indent = [r"  \end{tabular}", r"\end{table}"], "    "
    return "\n".join([*begin, *(indent + line for line in inside), *end])


class Shown(NamedTuple):
    """A table of text that rich prints; its first column has names."""

    title: str
    head: list[str]
    rows: list[list[str]]

    def __rich__(self) -> Table:
        return rich_table(*self)
