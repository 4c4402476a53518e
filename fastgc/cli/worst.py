"""``fastgc worst`` and ``fastgc spare``: the worst stragglers, and what helps against them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from ..codes import Code, catalogue
from ..errors import NotDecodableError
from . import options
from .common import PRECISION, Options, command, option
from .output import Report
from .stability import check_scheme, pairs_of, scheme_of

CODES = "rs@locator,rs@near-exact,rs,rs-clustered"


def _sizes_option(default: str) -> Any:
    return option(default, "Workers and stragglers, as in 64/16,256/32; 1/8 straggle if not said.")


def _dtype_option() -> Any:
    return option("float64", "Type of the messages.")


def _seed_option() -> Any:
    return options.seed("Seed of sets, data and random codes.")


@dataclass(frozen=True)
class Searched(Options):
    """What is searched for."""

    names: str = options.codes(
        "Codes, as of fastgc stability; rs@near-exact names a method.", CODES
    )
    sizes: str = _sizes_option("64/16,256/32")
    dtype: str = _dtype_option()
    steps: int = option(1000, "Steps of the search: random sets, windows, and exchanges.", min=0)
    seconds: float | None = option(None, "Longest search for each code and size, in seconds.")
    seed: int = _seed_option()


@dataclass(frozen=True)
class Spared(Options):
    """What there is to be more of."""

    names: str = options.codes("Codes, as of fastgc worst.", "rs")
    sizes: str = _sizes_option("256/32")
    dtype: str = _dtype_option()
    more: str = option("0,1,2,4,8,16", "Stragglers to tolerate beyond s, or messages to wait for.")
    error: float | None = option(None, "Say what reaches this error, for the worst set found.")
    sets: int = options.rounds(100, "Random sets, and steps of the search.")
    seed: int = _seed_option()


@command(PRECISION)
def worst(what: Searched, output: Report) -> None:
    """Search for the stragglers with which a code decodes the least precise gradients."""
    from ..planning.plan import reasons
    from ..progress import share_bar

    output.check()
    rows: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    entries = _entries(what.names, what.sizes)
    with share_bar("searching", len(entries)) as show:
        for at, (text, n, s) in enumerate(entries):
            try:
                rows.append(_search(what, text, n, s, partial(show, at)))
            except (ValueError, OverflowError, NotDecodableError) as error:
                refused[f"{text} at {n}/{s}"] = str(error)
    if not rows:
        raise ValueError("nothing to search: " + "; ".join(reasons(refused)))
    output.write_rows(partial(_write, rows))
    if not output.write(rows):
        cells = [
            [
                row["code"],
                *(str(row[key]) for key in ("n", "stragglers", "load")),
                *(f"{row[key]:.1e}" for key in ("start_error", "error", "measured")),
                f"{row['amplification']:.0e}",
                str(row["sets"]),
            ]
            for row in rows
        ]
        head = ["code", "n", "s", "load", "start", "worst", "measured", "amplif.", "sets"]
        title = f"worst stragglers found, {what.dtype}, seed {what.seed}"
        output.show(title, head, cells, several=True)
        output.explain(
            "start, worst: relative error of the gradient as trust() predicts it, before "
            "exchanges and after; measured: of random gradients, for the worst set",
            codes=[row["code"] for row in rows],
        )
    for line in reasons(refused):
        typer.echo(line, err=True)


def _search(
    what: Searched, text: str, n: int, s: int, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """The worst stragglers of one code, as a row of figures."""
    from time import monotonic

    from ..stability import measured_error, worst_survivors

    begin = monotonic()
    code, method = scheme_of(text, n, what.seed, s)
    how: Any = {"method": method, "dtype": what.dtype, "seed": what.seed}
    found = worst_survivors(
        code, s, trials=what.steps, seconds=what.seconds, progress=progress, **how
    )
    taken = monotonic() - begin
    amplification = found.log10_amplification
    return {
        "code": text,
        "n": n,
        "load": code.load,
        "stragglers": s,
        "dtype": what.dtype,
        "pattern": found.pattern,
        "sets": found.sets,
        "seconds": taken,
        "start_error": found.start_error,
        "error": found.error,
        "measured": measured_error(code, found.survivors, **how).relative,
        "amplification": 10.0**amplification if amplification < 308 else np.inf,
        "silent": found.stragglers.tolist(),
    }


@command(PRECISION)
def spare(what: Spared, output: Report) -> None:
    """Measure what load to spare, and waiting for a few more messages, buy in precision."""
    from ..progress import task_bar
    from ..stability import spare as spared

    output.check()
    try:
        numbers = [int(each) for each in catalogue.split(what.more)]
    except ValueError as problem:
        raise ValueError(f"--more is a list of numbers: {problem}") from None
    rows: list[dict[str, Any]] = []
    entries = _entries(what.names, what.sizes)
    with task_bar("measuring", 2 * len(numbers) * len(entries)) as advance:
        for text, n, s in entries:
            found = spared(
                _maker(text, n, what.seed),
                s,
                more=numbers,
                method=scheme_of(text, n, what.seed, s)[1],
                dtype=what.dtype,
                sets=what.sets,
                seed=what.seed,
                progress=advance,
            )
            rows += [{"code": text, "dtype": what.dtype, **row._asdict()} for row in found]
    output.write_rows(partial(_write, rows))
    if output.write(rows):
        return
    _show_spared(what, rows, output)
    if what.error is not None:
        for entry in entries:
            _say_enough(entry, rows, what.error)


def _show_spared(what: Spared, rows: Sequence[dict[str, Any]], output: Report) -> None:
    keys = ("n", "way", "more", "load", "silent")
    errors = ("random", "random_worst", "contiguous", "worst")
    cells = [
        [
            row["code"],
            *(str(row[key]) for key in keys),
            *(f"{row[key]:.0e}" for key in errors),
        ]
        for row in rows
    ]
    head = ["code", "n", "way", "more", "load", "silent", "random", "max", "arc", "worst"]
    title = (
        f"errors to expect with something to spare, {what.dtype}, {what.sets} sets, "
        f"seed {what.seed}"
    )
    output.show(title, head, cells, several=True)
    output.explain(
        "way, more: what there is more of, load or waiting, and how much; silent: workers that "
        "do not answer; random, max: error of the gradient, relative, for random sets of them, "
        "median and largest; arc: for neighbours; worst: for the worst set found",
        codes=[row["code"] for row in rows],
    )


def _say_enough(entry: tuple[str, int, int], rows: Sequence[dict[str, Any]], error: float) -> None:
    """Say how much of either reaches an error, of one code and size."""
    text, n, s = entry
    mine = [row for row in rows if (row["code"], row["n"]) == (text, n)]
    for way, key in (("load", "load"), ("wait", "silent")):
        good = [row for row in mine if row["way"] == way and row["worst"] <= error]
        said = f"{key} {good[0][key]}" if good else "nothing tried"
        typer.echo(f"{text}, n={n}, s={s}, by {way}: {said} reaches {error:.0e}")


def _entries(names: str, sizes: str) -> list[tuple[str, int, int]]:
    """Codes for each size, with its stragglers."""
    pairs = pairs_of(sizes, "0.125")
    chosen = catalogue.split(names)
    if not chosen:
        raise ValueError("name at least one code")
    for text in chosen:
        check_scheme(text)
    return [(text, n, s) for n, s in pairs for text in chosen]


def _maker(text: str, n: int, seed: int) -> Callable[[int], Code]:
    return lambda tolerated: scheme_of(text, n, seed, tolerated)[0]


def _write(rows: Sequence[dict[str, Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
