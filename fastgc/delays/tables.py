"""Tables of recorded times: files with a row for each round and a column for each worker.

A reader does not guess: what may be a number of a round, or a worker's time, is an error that says
how to choose.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._base.arrays import Array, Floats
from .._base.files import read_json, read_npy, read_npz, read_parquet, read_text

__all__ = ["read_times"]

# How many of each unit make a second.
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9}

_MISSING = {"", "-", "na", "nan", "n/a", "<na>", "#n/a", "none", "null"}
_NUMBERING = {
    "round",
    "rounds",
    "step",
    "steps",
    "global_step",
    "epoch",
    "iter",
    "iteration",
    "index",
}
_INDEX = re.compile(
    r"(unnamed: \d+|__index_level_\d+__|)$"
)  # as pandas calls it; "": it has no name
_WORKER = {"worker", "workers", "worker_id", "rank"}  # columns of a table with one time per row
_CHOOSE = "say which columns are times, by columns= (--columns), as names or numbers from 1"
_ONLY = "a file of times has one row for each round and one column for each worker"


class _Table(NamedTuple):
    """The content of a file: times, NaN for a missing one, a text for the place of each, names."""

    times: Floats
    place: Callable[..., str]
    names: list[str] | None = None


def check_unit(unit: str) -> float:
    """Return how many of this unit make a second; raise an error for an unknown unit."""
    if not isinstance(unit, str):
        raise TypeError(f"unit must be a text, one of s, ms, us and ns, not {unit!r}")
    if unit.strip().lower() not in UNITS:
        raise ValueError(f"unit must be one of s, ms, us and ns, not {unit!r}")
    return UNITS[unit.strip().lower()]


def read_times(
    path: str | os.PathLike[str], unit: str = "s", columns: Sequence[str | int] | None = None
) -> Floats:
    """Read seconds, finite and not negative, from a file, as `Empirical.read` does."""
    per_second = check_unit(unit)
    file = Path(path)
    try:
        read, tabulate = _READERS[file.suffix.lower()]
    except KeyError:
        names = ", ".join(_READERS)
        raise ValueError(f"{file}: the name of a file of times ends in one of {names}") from None
    held = read(file)  # outside `try`: its errors already name the file
    try:
        table = tabulate(held)
        times, place = _times_of(table, columns)
        _check(times, place)
    except (OverflowError, TypeError, ValueError, csv.Error) as error:
        raise ValueError(f"{file}: {error}") from error
    return times / per_second


def _times_of(
    table: _Table, columns: Sequence[str | int] | None
) -> tuple[Floats, Callable[..., str]]:
    """Return the columns that are times, and a text for the place of each."""
    times, place, names = table
    if times.ndim == 1:
        if columns is not None:
            raise ValueError("it has no columns to choose from")
        return times, place
    count = times.shape[1]
    if columns is None:
        kept = _kept(times, names)
    else:
        kept = [_column(each, names, count) for each in columns]
    if not kept:
        raise ValueError("it has no column of times")
    times = times[:, kept]
    if 1 in times.shape:  # the shape does not tell workers from rounds
        down = times.shape[1] == 1
        return times.ravel(), lambda i: place(i, kept[0]) if down else place(0, kept[i])
    return times, lambda row, column: place(row, kept[column])


def _column(chosen: str | int, names: list[str] | None, count: int) -> int:
    """Return which column a name or a number from 1 means."""
    text = str(chosen).strip()
    if names is not None and text in names:
        return names.index(text)
    if text.isdecimal() and 1 <= int(text) <= count:
        return int(text) - 1
    known = f"called {', '.join(names)}" if names else f"numbered 1 to {count}"
    raise ValueError(f"it has no column {chosen!r}: columns are {known}")


def _kept(times: Floats, names: list[str] | None) -> list[int]:
    """Return which columns are times, by names and numbers; raise ValueError if it is in doubt."""
    known = [""] * times.shape[1] if names is None else [name.strip().lower() for name in names]
    if listed := _WORKER.intersection(known):
        raise ValueError(
            f"{_ONLY}: this has a column {listed.pop()!r}, as a list of single times has"
        )
    integers = {j for j in range(len(known)) if (times[:, j] == np.floor(times[:, j])).all()}
    kept = list(range(len(known)))
    if names is not None and any(known):
        numbering = {j for j in integers if known[j] in _NUMBERING}
        kept = [j for j in kept if j not in numbering and not _INDEX.match(known[j])]
    whole = [j for j in kept if j in integers and times[:, j].any()]
    if not whole or len(whole) == len(kept) or len(times) < 3:
        return kept
    # Integers beside other numbers: they number rows, or what a row is of, but may be times.
    counted = [j for j in whole if (np.diff(times[:, j]) == 1).all()]
    called = f"column {whole[0] + 1 if names is None else repr(names[whole[0]])}"
    if counted != whole:
        raise ValueError(
            f"{called} holds integers, as numbers of rounds or workers, beside columns of other "
            f"numbers. {_ONLY}; if it does, {_CHOOSE}"
        )
    return [j for j in kept if j not in counted]


def _check(times: Floats, place: Callable[..., str]) -> None:
    if not times.size:
        raise ValueError("it holds no times")
    for wrong, what, remedy in (
        (np.isnan(times), "is missing", "leave its round or its worker out, or fill it in"),
        (np.isinf(times), "is infinite", "give a worker that never answered a long time"),
        (times < 0, "is negative", "times are counted from when the round began"),
    ):
        if wrong.any():
            first = place(*np.argwhere(wrong)[0].tolist())
            some = f" (and {more} more)" if (more := int(wrong.sum()) - 1) else ""
            raise ValueError(f"{first}: the time {what}{some}; {remedy}")


# ------------------------------------------------------------------------------------- arrays


def _numbers(held: Any) -> _Table:
    times = np.asarray(held)
    if times.dtype.kind not in "iuf":
        raise ValueError(f"its entries must be real numbers, not {times.dtype}")
    if times.ndim not in (1, 2):
        raise ValueError(f"{_ONLY}, or a single row; this has the shape {times.shape}")

    def place(*at: int) -> str:
        return ", ".join(f"{what} {i + 1}" for what, i in zip(("row", "column"), at, strict=False))

    return _Table(times.astype(np.float64), place)


def _npz(path: Path) -> Array:
    def choose(names: Sequence[str]) -> Sequence[str]:
        wanted = ["times"] if "times" in names else names
        if len(wanted) != 1:
            raise ValueError(
                f"{path}: one of its arrays must be called times, or be the only one; there are "
                f"{', '.join(names) or 'none'}"
            )
        return wanted

    return next(iter(read_npz(path, choose).values()))


def _listed(held: Any) -> _Table:
    if isinstance(held, dict) and "times" in held:
        raise ValueError("it is a recording, which fastgc.planning.Recording.read reads")
    if not isinstance(held, list):
        raise ValueError("it must be a list of times, or a list of lists, one for each round")
    for number, row in enumerate(held, 1):
        if isinstance(row, list) and len(row) != len(held[0] if isinstance(held[0], list) else ()):
            raise ValueError(f"row {number} is not as long as the first one")
    return _numbers(np.array(held, dtype=np.float64))


# --------------------------------------------------------------------------------- named columns


def _named(held: Any) -> _Table:
    indices = json.loads((held.schema.metadata or {}).get(b"pandas", b"{}")).get(
        "index_columns", []
    )
    names = [name for name in held.column_names if name not in indices]
    if not names:
        raise ValueError("it holds no times")
    columns = []
    for name in names:
        entries = held.column(name).to_numpy()
        if entries.dtype.kind not in "iuf":
            kind = held.column(name).type
            raise ValueError(f"column {name!r}: its entries are no real numbers, but {kind}")
        columns.append(entries.astype(np.float64))

    def place(row: int, column: int) -> str:
        return f"row {row + 1}, column {names[column]!r}"

    return _Table(np.stack(columns, axis=1), place, names)


# --------------------------------------------------------------------------------------- texts


def _lines(text: str, separators: str) -> _Table:
    """Read numbers in lines, after an optional line of names; separated by blanks at least."""
    numbered: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        comment = words.startswith("#") and (not numbered or words[1:2] in ("", " ", "\t"))
        if words and not comment:
            numbered.append((number, line))
    if not numbered:
        raise ValueError("it holds no times")
    separator = next((each for each in separators if each in numbered[0][1]), None)
    if separator is None:
        fields = [line.split() for _, line in numbered]
    else:
        fields = list(csv.reader((line for _, line in numbered), delimiter=separator))
        if len(fields) != len(numbered):
            raise ValueError("a quotation goes on over several lines: write each round in one")
    numbers = [number for number, _ in numbered]
    names = None
    if _are_names(fields):
        names = [name.strip() for name in fields.pop(0)]
        numbers.pop(0)
    rows: list[list[float]] = []
    for number, row in zip(numbers, fields, strict=True):
        if len(row) != len(fields[0]):
            raise ValueError(
                f"line {number} has {len(row)} columns, where line {numbers[0]} has "
                f"{len(fields[0])}"
            )
        rows.append([])
        for column, text in enumerate(row, 1):
            if (value := _value(text)) is None:
                wrong = f"line {number}, column {column}: {text.strip()[:40]!r}"
                raise ValueError(f"{wrong} is no number such as 0.25")
            rows[-1].append(value)
    if not rows:
        raise ValueError("it holds no times")
    times = np.array(rows)
    if names is not None and len(names) != times.shape[1]:
        raise ValueError(f"it has {len(names)} names for {times.shape[1]} columns")
    return _Table(times, lambda row, column: f"line {numbers[row]}, column {column + 1}", names)


def _are_names(fields: list[list[str]]) -> bool:
    """Whether a first line names columns: in words, or as 0, 1, 2, ... above other numbers."""
    words = [field.strip().lower() for field in fields[0]]
    if words[0] in _NUMBERING:
        return True
    rest = words[1:] if not words[0] else words
    counted = bool(rest) and rest == [str(i) for i in range(len(rest))] and len(words) > 1
    if counted and words[0]:  # as pandas and polars name columns
        later = [_value(word) for row in fields[1:] for word in row]
        return not all(
            each is not None and each == math.floor(each) for each in later if each == each
        )
    return counted or (any(words) and all(_value(word) is None for word in words if word))


def _value(text: str) -> float | None:
    """Return a number, NaN for a missing one; None if the text is neither."""
    try:
        return math.nan if text.strip().lower() in _MISSING else float(text)
    except ValueError:
        return None


_text = partial(read_text, what="text of times")
_table = partial(_lines, separators=",;\t")

# For each suffix: how to read the file, and how to make a table of its content.
_READERS: dict[str, tuple[Callable[[Path], Any], Callable[[Any], _Table]]] = {
    ".npy": (read_npy, _numbers),
    ".npz": (_npz, _numbers),
    ".json": (partial(read_json, what="readable .json file"), _listed),
    ".csv": (_text, _table),
    ".tsv": (_text, _table),
    ".txt": (_text, partial(_lines, separators=",;")),
    ".parquet": (read_parquet, _named),
}
