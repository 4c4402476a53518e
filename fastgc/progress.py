"""Progress bars and tables for people, with rich."""

from __future__ import annotations

import logging
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ._extras import pip_install
from ._shown import plural

try:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise ImportError(f"progress bars need rich: {pip_install('cli')}") from error

from .history import APPROXIMATE, MISCLASSIFIED

if TYPE_CHECKING:
    from .history import History, Record

# Longest name in the first column for which it is not wrapped.
LONGEST_NAME = 30

# The most rows that fit on a page of LaTeX, with caption and head.
PAGE = 40

# Without a terminal for a bar: seconds after which a line says how far the work is.
PATIENCE = 2.0


@contextmanager
def training_bar(
    name: str, rounds: int, workers: int, done: int = 0, measure: str = MISCLASSIFIED
) -> Iterator[Callable[[Record], None]]:
    """Show a bar for a run; yield the function to call with each record.

    The bar shows the round, the last evaluated training loss and test error (`History.measure`),
    the number of workers waited for, and the time of decoding. What fastgc logs meanwhile, also as
    information, stands above the bar.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.completed}/{task.total}  {task.fields[state]}"),
    )
    with (
        Progress(*columns, console=Console(stderr=True), expand=True) as progress,
        _logged_above(progress.console),
    ):
        task = progress.add_task(name, total=rounds, completed=done, state="starting workers")

        known = ""  # loss and error of the last evaluated round

        def show(record: Record) -> None:
            nonlocal known
            if record.evaluated:
                loss = f"{record.loss:.3f}" if measure == MISCLASSIFIED else f"{record.loss:.3g}"
                known = f"loss {loss}  {measure} {_measured(record.test_error, measure)}  "
            state = (
                f"{known}{len(record.survivors)}/{workers} workers  {1e6 * record.decode:.0f} µs"
            )
            if record.residual > APPROXIMATE:
                state += "  approximate"
            progress.update(task, advance=1, state=state)

        yield show


class _Above(logging.Handler):
    """Prints what is logged above a bar of this console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _logged_above(console: Console) -> Iterator[None]:
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


def comparison_table(histories: Sequence[History], target: float) -> Shown:
    """Summarise runs, one a row, with the time to a test error (`History.measure`) of `target`.

    Waiting and decoding times are medians. If gradients were tracked, which costs time, the largest
    predicted error replaces the decoding time. Further columns show deaths, if there were any, and
    what approximate gradients left out: the root mean square of `Record.residual` over all rounds.
    """
    measure, rounds = histories[0].measure, [r for each in histories for r in each.rounds]
    fraction = measure == MISCLASSIFIED
    rows = []
    for history in histories:
        mine, last = history.rounds, history.rounds[-1]
        seconds = history.seconds_to(target)
        row = {
            "scheme": history.name,
            "time s": _seconds(last.time),
            f"to {100 * target:g}%" if fraction else f"to {target:.3g}": (
                _seconds(seconds) if np.isfinite(seconds) else "never"
            ),
            measure: _measured(last.test_error, measure),
            "loss": f"{last.loss:.4f}" if fraction else f"{last.loss:.3g}",
            "workers": f"{np.mean([len(r.survivors) for r in mine]):.1f}",
            "msgs": f"{np.mean([r.messages for r in mine]):.1f}",
            "wait ms": f"{1e3 * np.median([r.wait for r in mine]):.1f}",
        }
        if all(np.isnan(r.rounding) for r in rounds):
            row["dec. µs"] = f"{1e6 * np.median([r.decode for r in mine]):.0f}"
        else:
            largest = max((r.rounding for r in mine if r.rounding >= 0), default=np.nan)
            row["rounding"] = f"{largest:.0e}"
        if any(each.rounds[-1].deaths for each in histories):
            row["deaths"] = str(last.deaths)
        if any(r.residual > APPROXIMATE for r in rounds):
            row["left out"] = _left_out(history)
        rows.append(row)
    lengths = [len(history.rounds) for history in histories]
    least, most = min(lengths), max(lengths)
    title = f"{plural(most, 'round')} each" if least == most else f"{least} to {most} rounds"
    return Shown(title, list(rows[0]), [list(row.values()) for row in rows])


def loss_table(histories: Sequence[History]) -> Shown:
    """Return a table of the training loss of runs at equal times, their loads and residuals.

    The times are a quarter, a half, and all of the shortest run's. The last column is the loss
    after all of a run's own rounds.
    """
    whole = min(history.rounds[-1].time for history in histories)
    times = [whole / 4, whole / 2, whole]
    rows = [
        [
            history.name,
            f"{history.load:.3g}",
            _left_out(history),
            *(_loss(history.loss_at(time)) for time in times),
            _loss(history.loss_at(math.inf)),
        ]
        for history in histories
    ]
    head = ["scheme", "load", "left out", *(f"{_seconds(time)} s" for time in times), "in the end"]
    return Shown("training loss after", head, rows)


def _loss(loss: float) -> str:
    return "" if math.isnan(loss) else f"{loss:.3g}"


def _left_out(history: History) -> str:
    left = history.residual()
    return f"{left:.2g}" if left > APPROXIMATE else f"{left:.0e}" if left else "0"


def spending_table(histories: Sequence[History], loss: float) -> Shown:
    """Return a table of what runs spent up to a training loss, also relative to the first run."""
    first = histories[0].spent(loss)
    rows = []
    for history in histories:
        spent = history.spent(loss)
        if spent is None:
            rows.append([history.name, "never", "", "", ""])
            continue
        cells = [f"{spent.time:.3g}", str(spent.communication), str(spent.computation)]
        if first is not None and history is not histories[0]:
            # A simulated run without delays takes no time: give no ratio to 0.
            cells = [
                f"{cell} ({mine / its:.2f}x)" if its else cell
                for cell, mine, its in zip(cells, spent[1:], first[1:], strict=True)
            ]
        rows.append([history.name, str(spent.rounds), *cells])
    head = ["method", "rounds", "time s", "communication", "computation"]
    return Shown(f"to a training loss of {loss:.4g}", head, rows)


def _measured(error: float, measure: str) -> str:
    """Return a test error as text, in percent if it is a fraction."""
    return f"{100 * error:.2f}%" if measure == MISCLASSIFIED else f"{error:.3g}"


def _seconds(time: float) -> str:
    """Return seconds as text: with two digits below 10, with tenths from 10 on."""
    return f"{time:.1f}" if time >= 10 else f"{time:.2g}"
