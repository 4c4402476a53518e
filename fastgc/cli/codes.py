"""``fastgc codes``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..codes import Code, catalogue
from ..training.history import APPROXIMATE, left_out
from . import options
from .common import CHOOSING, command, echo, why
from .options import Size, named, repeated, size_of
from .output import Column, Picture, Tables, by_code, microseconds

if TYPE_CHECKING:
    from ..stability import StabilityRow


_ROUNDS = 200
_P = 32  # elements of a gradient
_SETS, _FEW, _FEWEST = 2000, 5000, 5  # sets whose residuals are computed, of up to _FEW workers

APPROXIMATIONS = "Codes whose gradients may be approximations"


class Asked(Size):
    """The codes to compare, the order in which messages come, and the picture."""

    names: list[str] | None = options.codes("Codes, such as rs bcc:load=5.")
    partitions: int | None = options.partitions()
    trials: int | None = options.repeats(_ROUNDS, "Rounds to average over.")
    seed: int = options.seed("Seed of data, orders and random codes.")
    plot: Path | None = options.picture(
        "Plot the workers waited for, and the error, against the load to this file."
    )


@command(CHOOSING, "fastgc codes rs binary bcc:load=5 -n 12 -s 3")
def codes(what: Asked, output: Tables) -> None:
    """Compare codes side by side: loads, messages needed, time of decoding, precision."""
    from .. import plotting
    from .._base.progress import share_bar

    output.check(what.plot)
    n, s = size_of(what)
    trials = repeated(what.trials, _ROUNDS, n)
    made, notes = _made(what, n, s)
    title = (
        f"n={n} workers, s={s} stragglers, k={what.partitions or n} partitions; {trials} "
        f"rounds, messages in random order, seed {what.seed}"
    )
    measured: list[StabilityRow] = []
    held: dict[str, dict[str, Any]] = {}

    def end(held: dict[str, dict[str, Any]]) -> None:
        picture = Picture(what.plot, lambda: plotting.cost_curves(measured, caption=title))
        output.deliver(*by_code(held), lambda: _show(title, measured, held, output), picture)

    with output.growing(by_code, end) as keep, share_bar("measuring", len(made)) as show:
        for at, (name, code) in enumerate(made.items()):
            try:
                row, held[name] = figures_of(name, code, trials, what.seed, partial(show, at))
                measured.append(row)
                keep(held)
            except MemoryError as error:
                if what.names:
                    raise
                notes.append(f"{name}: {why(error)}")
    for note in notes:
        echo(note, err=True)


def _made(what: Asked, n: int, s: int) -> tuple[dict[str, Code], list[str]]:
    """Return codes by name, and notes on them.

    If no codes are named, notes include the reasons why some codes cannot be made.
    """
    from .._base.progress import share_bar
    from ..planning.plan import reasons

    asked = named(what.names)
    made, notes, refused = {}, [], {}
    names = asked or catalogue.names()
    with share_bar("making codes", len(names)) as show:
        for at, name in enumerate(names):
            show(at, 0, 1)
            try:
                made[name] = code = catalogue.make(name, n, what.partitions, s, what.seed)
                said = catalogue.remark(name, code)
                notes += [said] if said else []
            except (ValueError, MemoryError) as error:  # or a matrix of n by n numbers is too large
                if asked:
                    raise
                refused[name] = why(error)
    notes += reasons(refused)
    if not made:
        raise ValueError(f"no code fits: {'; '.join(notes)}")
    return made, notes


def figures_of(
    name: str,
    code: Code,
    trials: int,
    seed: int,
    show: Callable[[float, int], object] = lambda done, steps: None,
) -> tuple[StabilityRow, dict[str, Any]]:
    """Run a code in rounds; return its row, and the figures of the tables."""
    from ..stability import compare

    [row] = compare(
        {name: code}, stragglers=0, patterns=["late"], sets=trials, p=_P, seed=seed, progress=show
    )
    worst, known = row.worst_left_out, True
    if code.scheme.approximate:
        sets = max(_FEWEST, min(_SETS, _SETS * _FEW // code.n))
        waiting = code.residuals(sets=sets, seed=seed)
        worst = max(worst, waiting.worst)
        # Of a code that waits for a number of workers, all sets of so many give the worst.
        known = waiting.exhaustive and (code.scheme.wait is not None or waiting.sets == 0)
    return row, {
        "load": row.load,
        "mean_load": row.mean_load,
        "stragglers": code.stragglers,
        "messages": code.scheme.messages.count,
        "threshold": code.threshold,
        "mean_workers": row.workers,
        "mean_messages": row.messages,
        "message_size": row.message_size,
        "communication_load": row.messages * row.message_size,
        "decode_seconds": row.decode_seconds,
        "error": row.error,
        "worst_error": row.worst_error,
        "residual": row.left_out,
        "worst_residual": worst,
        "worst_is_known": known,
    }


def _worst(row: Mapping[str, Any]) -> str:
    return f"{'?' if row['threshold'] is None else row['threshold']}/{row['messages']}"


def _left_at_worst(row: Mapping[str, Any]) -> str:
    return f"{'' if row['worst_is_known'] else '≥ '}{left_out(row['worst_residual'])}"


_COSTS = [
    Column("code", "code", "code"),
    Column("load", "load, largest", "load"),
    Column("mean", "load, mean", "mean_load", ".3g"),
    Column("worst", "messages needed, worst case", "", _worst),
    Column("waits", "workers waited for, mean", "mean_workers", ".1f"),
    Column("sent", "gradients received, mean", "communication_load", ".1f"),
    Column("size", "message, gradients", "message_size", "g"),
    Column("µs", "decoding vector, µs", "decode_seconds", microseconds),
    Column("error", "error, median", "error", ".0e"),
    Column("max", "error, worst", "worst_error", ".0e"),
]
_RESIDUALS = [
    Column("code", "code", "code"),
    Column("load, mean", "load, mean", "mean_load", ".3g"),
    Column("waits", "workers waited for, mean", "mean_workers", ".1f"),
    Column("left out, mean", "left out, root mean square", "residual", left_out),
    Column("at worst", "left out, worst", "", _left_at_worst),
]


def _show(
    title: str, measured: list[StabilityRow], held: dict[str, dict[str, Any]], output: Tables
) -> None:
    """Print costs, and residuals of the codes that may leave out part of the gradient."""
    _, rows = by_code(held)
    rough = [
        row
        for row in rows
        if max(row["residual"], row["worst_residual"]) > APPROXIMATE or not row["worst_is_known"]
    ]
    output.table(title, _COSTS, rows, several=bool(rough))
    output.explain(
        "load: partitions of the worker that has most; mean: partitions per worker; worst: "
        "messages needed in the worst case, of all; waits: workers waited for, mean; sent: "
        "gradients received, mean; size: of a message, in gradients; µs: time of a decoding "
        "vector; error: relative error of the gradient, median; max: the largest"
    )
    if rough:
        output.table(
            APPROXIMATIONS, _RESIDUALS, rough, marks={"≥": "at least, as not all sets were tried"}
        )
        output.explain(
            "left out, mean: part of the gradient that is left out, root mean square over random "
            "survivors; at worst: for the worst survivors (≥: at least, as not all were tried)"
        )
    output.explain(codes=held)
    if apart := _loads_apart(measured):
        output.say("\n" * output.markdown + apart)


def _loads_apart(rows: Sequence[StabilityRow]) -> str:
    """Return a sentence on codes whose load differs from the most common load; "" if none does."""
    by_load: dict[int, list[str]] = {}
    for row in rows:
        by_load.setdefault(row.load, []).append(row.code)
    common = max(by_load, key=lambda load: len(by_load[load]))
    others = [f"{', '.join(by_load[w])} at {w}" for w in sorted(by_load) if w != common]
    return f"Compared at a load of {common}; {'; '.join(others)}." if others else ""
