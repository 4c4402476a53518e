"""The progress and the results of training runs, in the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from .._base.progress import Shown, logged_above
from .._base.text import plural
from .history import APPROXIMATE, MISCLASSIFIED, History, Record, left_out


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
        logged_above(progress.console),
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
            row["left out"] = left_out(history.residual())
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
            left_out(history.residual()),
            *(_loss(history.loss_at(time)) for time in times),
            _loss(history.loss_at(math.inf)),
        ]
        for history in histories
    ]
    head = ["scheme", "load", "left out", *(f"{_seconds(time)} s" for time in times), "in the end"]
    return Shown("training loss after", head, rows)


def _loss(loss: float) -> str:
    return "" if math.isnan(loss) else f"{loss:.3g}"


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
