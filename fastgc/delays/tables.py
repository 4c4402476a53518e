"""Tables of recorded times: files with a row for each round and a column for each worker.

A reader says what it read, in a line of the log, which commands print. It does not guess: what may
be a number of a round, or a worker's time, is an error that says how to choose.
"""

from __future__ import annotations

import csv
import json
import logging
import math
import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from .._base.arrays import Array, Floats
from .._base.files import path_of, read_json, read_npy, read_npz, read_parquet, read_text
from .._base.text import duration, listed, plural

__all__ = ["read_times"]

# How many of each unit make a second.
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9}

_LOG = logging.getLogger("fastgc.delays")

_MISSING = {"", "-", "na", "nan", "n/a", "<na>", "#n/a", "none", "null"}
_NUMBERING = re.compile("(rounds?|rows?|row.nr|(global)?_?steps?|epochs?|iter(ation)?s?|index)$")
_INDEX = re.compile(r"(unnamed: \d+|__index_level_\d+__|)$")  # as pandas calls it, or nothing
# Beside times: clocks, and the least and greatest of a group, of TensorBoard and wandb.
_BESIDE = re.compile(r"(wall.time|relative.time.*|_?timestamp|_runtime|.*__(min|max))$")
_WORKER = {"worker", "workers", "worker_id", "rank"}  # columns of a table with one time per row
_UNIT = re.compile(r"(?:.*[\W_])?(ms|us|µs|ns)\W*", re.IGNORECASE)  # as in "w0 (ms)", "time_us"
_SURELY = 12  # rows over which a time that only goes up is a clock's
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*")
_CHOOSE = (
    "say which columns are times, one for each worker, by columns= (--columns), as names or "
    "numbers from 1"
)
_ONLY = "a file of times has one row for each round and one column for each worker"


class _Table(NamedTuple):
    """What a file holds: times, NaN for what is missing or no number, and a text for its place.

    Columns may have names. Of each column with others than numbers, `others` has the first of them:
    its row, and what is wrong with it.
    """

    times: Floats
    place: Callable[..., str]
    names: list[str] | None = None
    others: Mapping[int, tuple[int, str]] = MappingProxyType({})


def check_unit(unit: str) -> float:
    """Return how many of this unit make a second; raise an error for an unknown unit."""
    if not isinstance(unit, str):
        raise TypeError(f"unit must be a text, one of s, ms, us and ns, not {unit!r}")
    if unit.strip().lower() not in UNITS:
        raise ValueError(f"unit must be one of s, ms, us and ns, not {unit!r}")
    return UNITS[unit.strip().lower()]


def read_times(
    path: str | os.PathLike[str],
    unit: str | None = None,
    columns: Sequence[str | int] | None = None,
) -> Floats:
    """Read seconds, finite and not negative, from a file, as `Empirical.read` does."""
    per_second = check_unit("s" if unit is None else unit)
    file = path_of(path)
    try:
        read, tabulate = _READERS[file.suffix.lower()]
    except KeyError:
        names = ", ".join(_READERS)
        raise ValueError(f"{file}: the name of a file of times ends in one of {names}") from None
    held = read(file)  # outside `try`: its errors already name the file
    try:
        table = tabulate(held)
        if not table.times.size:
            raise ValueError("it holds no times")
        kept = _chosen(table, columns)
        _check_columns(table, kept, unit)
        times = table.times[:, kept] if kept else table.times
        _check(times, lambda row, *at: table.place(row, *(kept[j] for j in at)))
    except (OverflowError, TypeError, ValueError, csv.Error) as error:
        raise ValueError(f"{file}: {error}") from error
    times = times / per_second
    times = times.ravel() if 1 in times.shape else times  # it does not tell workers from rounds
    _say(file, times, _said(table, kept))
    return times


def _say(file: Path, times: Floats, more: str) -> None:
    """Log what was read: how many seconds, from which to which, and `more`."""
    *rounds, last = times.shape
    shape = f"{plural(rounds[0], 'round')} of {plural(last, 'worker')}" if rounds else ""
    least, most = duration(float(times.min())), duration(float(times.max()))
    _LOG.info("%s: %s, %s … %s%s", file, shape or plural(last, "time"), least, most, more)


def _said(table: _Table, kept: list[int]) -> str:
    """Say which columns were taken, and which were not."""
    if not kept:
        return ""
    names = table.names or range(1, table.times.shape[1] + 1)
    left = [names[j] or "an index" for j in sorted({*range(len(names))}.difference(kept))]
    first, last = names[kept[0]], names[kept[-1]]
    shown = f"columns {first} … {last}" if kept[1:] else f"column {first}"
    return f", {shown}" + (f"; left out: {listed(left)}" if left else "")


def _chosen(table: _Table, columns: Sequence[str | int] | None) -> list[int]:
    """Return which columns are times; none of a single row without columns."""
    times, names = table.times, table.names
    if times.ndim == 1:
        if columns is not None:
            raise ValueError("it has no columns to choose from")
        return []
    if columns is None:
        kept = _kept(times, names, table.others)
    elif isinstance(columns, str):
        raise ValueError(f"columns must be a list of names or numbers, not {columns!r}")
    else:
        kept = [_column(each, names, times.shape[1]) for each in columns]
        if twice := [each for each, j in zip(columns, kept, strict=True) if kept.count(j) > 1]:
            raise ValueError(f"column {twice[0]!r} is chosen twice")
    if not kept:
        raise ValueError("it has no column of times")
    return kept


def _column(chosen: str | int, names: list[str] | None, count: int) -> int:
    """Return which column a name or a number from 1 means."""
    text = str(chosen).strip()
    if names is not None and text in names:
        if names.count(text) > 1:
            raise ValueError(f"several of its columns are called {text!r}: give their numbers")
        return names.index(text)
    if text.isdecimal() and 1 <= int(text) <= count:
        return int(text) - 1
    known = f"called {listed(names)}" if names else f"numbered 1 to {count}"
    raise ValueError(f"it has no column {chosen!r}: columns are {known}")


def _kept(times: Floats, names: list[str] | None, others: Container[int]) -> list[int]:
    """Return which columns are times, by names and numbers; raise ValueError if it is in doubt."""
    rows, count = times.shape
    known = [name.strip().lower() for name in names or ()]
    if single := _WORKER.intersection(known):
        raise ValueError(
            f"{_ONLY}: this has a column {single.pop()!r}, as a list of single times has"
        )
    kept = np.arange(count)
    if any(known):
        labels = (times == np.floor(times)).all(axis=0) | np.isnan(times).all(axis=0)
        index = [
            bool((_INDEX.match(name) and j not in others) or (_NUMBERING.match(name) and labels[j]))
            for j, name in enumerate(known)
        ]
        out = [at or bool(_BESIDE.match(name)) for name, at in zip(known, index, strict=True)]
        kept = np.flatnonzero(~np.array(index if all(out) else out))
    found: list[int] = kept.tolist()
    if rows < 3 or len(found) < 2:
        return found

    def doubt(columns: Array, why: str) -> ValueError:
        column = kept[columns][0]
        called = column + 1 if names is None else repr(names[column])
        return ValueError(f"column {called} {why}: {_CHOOSE}")

    times = times[:, kept]
    with np.errstate(invalid="ignore"):  # Inf is refused later
        steps, gaps = np.diff(times, axis=0), np.diff(np.sort(times, axis=0), axis=0)
    whole = (times == np.floor(times)).all(axis=0)
    even = (steps[0] > 0) & (steps == steps[0]).all(axis=0)
    counted = whole & even
    dates = times[-1] < 1.001 * times[0]  # since 1970, as steps between them are short
    clocks = (steps >= 0).all(axis=0) & steps.any(axis=0) & ~counted & (dates | (rows >= _SURELY))
    if clocks.any() and not (clocks | counted).all():
        raise doubt(clocks, "only goes up, as a clock does")
    mixed = not (whole | counted).all()
    # Those of workers are 0, 1, 2, ..., each once or more; beside fractions, others as well.
    few = ((gaps <= 1).all(axis=0) & (times.min(axis=0) <= 1)) | (mixed & (gaps == 0).any(axis=0))
    ids = whole & ~counted & few
    zero = (times == 0).all(axis=0)
    if zero.any() and not zero.all():
        raise doubt(zero, "is 0 in every row")
    if ids.any() and not ids.all():
        raise doubt(ids, "holds few integers, as numbers of workers")
    if mixed:
        return [j for j, out in zip(found, counted, strict=True) if not out]
    if counted.any() and not counted.all():
        raise doubt(counted, "goes up evenly, as numbers of rounds do")
    return found


def _check_columns(table: _Table, kept: list[int], unit: str | None) -> None:
    """Raise ValueError if a column holds others than numbers, or its name names another unit."""
    if odd := [(table.others[j][0], j) for j in kept if j in table.others]:
        row, column = min(odd)
        what = table.others[column][1]
        more = f"; {_CHOOSE}" if np.isnan(table.times[:, column]).all() else ""
        raise ValueError(f"{table.place(row, column)}: {what}{more}")
    if table.names is not None and unit is None:
        for name in (table.names[j] for j in kept):
            if said := _UNIT.fullmatch(name):
                raise ValueError(
                    f"column {name!r} seems to be in {said[1]}: say the unit, by unit= (--unit)"
                )


def _check(times: Floats, place: Callable[..., str]) -> None:
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
    return next(iter(read_npz(path, _only).values()))


def _only(names: Sequence[str]) -> Sequence[str]:
    wanted = ["times"] if "times" in names else names
    if len(wanted) != 1:
        raise ValueError(
            "one of its arrays must be called times, or be the only one; there are "
            f"{listed(names) or 'none'}"
        )
    return wanted


def _listed(held: Any) -> _Table:
    if not isinstance(held, list) or any(isinstance(row, dict) for row in held):
        raise ValueError("it must be a list of times, or a list of lists, one for each round")
    for number, row in enumerate(held, 1):
        if isinstance(row, list) and len(row) != len(held[0] if isinstance(held[0], list) else ()):
            raise ValueError(f"row {number} is not as long as the first one")
    entries = (entry for row in held for entry in (row if isinstance(row, list) else [row]))
    if odd := [entry for entry in entries if isinstance(entry, bool | str)]:
        raise ValueError(f"its entries must be real numbers, not {json.dumps(odd[0])}")
    return _numbers(np.array(held, dtype=np.float64))


# --------------------------------------------------------------------------------- named columns


def _named(held: tuple[dict[str, Array | str], dict[bytes, bytes]]) -> _Table:
    columns, metadata = held
    indices = json.loads(metadata.get(b"pandas", b"{}")).get("index_columns", [])
    names = [name for name in columns if name not in indices]
    if not names:
        raise ValueError("it holds no times")
    rows = next((len(each) for each in columns.values() if not isinstance(each, str)), 1)
    times = np.full((rows, len(names)), np.nan)
    others = {}
    for j, name in enumerate(names):
        if isinstance(entries := columns[name], str):
            others[j] = 0, f"its entries are no real numbers, but {entries}"
        else:
            times[:, j] = entries

    def place(row: int, column: int) -> str:
        return f"row {row + 1}, column {names[column]!r}"

    return _Table(times, place, names, others)


# --------------------------------------------------------------------------------------- texts


def _lines(text: str) -> _Table:
    """Read numbers in lines, after an optional line of names."""
    numbered: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        comment = words.startswith("#") and (not numbered or words[1:2] in ("", " ", "\t"))
        if words and not comment:
            numbered.append((number, line))
    if not numbered:
        raise ValueError("it holds no times")
    numbers, lines = map(list, zip(*numbered, strict=True))
    unquoted = re.sub('"[^"]*"', "", lines[0])
    separator = next((each for each in ";\t," if each in unquoted), " ")
    if separator == " ":
        lines = [" ".join(line.split()) for line in lines]
    fields = list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    if len(fields) != len(lines):
        raise ValueError("a quotation goes on over several lines: write each round in one")
    value = partial(_value, comma=separator != ",")
    names = None
    if _are_names(fields, value):
        names = [name.strip() for name in fields.pop(0)]
        numbers.pop(0)
        if fields and len(fields[0]) == len(names) + 1:  # as R writes names of rows
            names.insert(0, "")

    def place(row: int, column: int) -> str:
        return f"line {numbers[row]}, column {column + 1}"

    others: dict[int, tuple[int, str]] = {}
    times = np.empty((len(fields), len(fields[0]) if fields else 0))
    for i, row in enumerate(fields):
        if len(row) != times.shape[1]:
            raise ValueError(
                f"line {numbers[i]} has {len(row)} columns, where line {numbers[0]} has "
                f"{times.shape[1]}"
            )
        for j, entry in enumerate(row):
            if (time := value(entry)) is None:
                others.setdefault(j, (i, f"{entry.strip()[:40]!r} is no number such as 0.25"))
            times[i, j] = math.nan if time is None else time
    if names is not None and fields and len(names) != times.shape[1]:
        raise ValueError(f"it has {len(names)} names for {times.shape[1]} columns")
    if separator != ",":
        _check_commas(fields, place)
    return _Table(times, place, names, others)


def _are_names(fields: list[list[str]], value: Callable[[str], float | None]) -> bool:
    """Whether a first line names columns: in words, or as 0, 1, 2, ... above other numbers."""
    words = [field.strip().lower() for field in fields[0]]
    if _NUMBERING.match(words[0]):
        return True
    rest = words[1:] if not words[0] else words
    first = rest[0] if rest else ""
    if rest != [str(i + (first == "1")) for i in range(len(rest))] or not fields[1:]:
        return any(words) and all(value(word) is None for word in words if word)
    if not words[0]:  # as pandas numbers columns, and has none for its index
        return True
    later = (value(word) for row in fields[1:] for word in row)
    if any(each is None or (each == each and each % 1 != 0) for each in later):
        return first == "0" or len(words) > 2
    if len(words) > (1 if first == "0" else 2):
        raise ValueError(
            "its first line may number the columns, or be a round: leave it out, or put words there"
        )
    return False


def _value(text: str, comma: bool) -> float | None:
    """Return a number, NaN for a missing one; None if the text is neither.

    `comma` says whether a comma may stand before decimals. What begins with 0 and a digit may be
    the decimals of a number that a comma has cut in two. What holds "_", as 3_12 of round 3 and
    worker 12, is a number to Python alone.
    """
    if "_" in text or (text[:1] == "0" and text[1:2].isdigit()):
        return None
    try:
        return float(text)
    except ValueError:
        if text.strip().lower() in _MISSING:
            return math.nan
        return _value(text.replace(",", ".", 1), False) if comma and "," in text else None


def _check_commas(fields: list[list[str]], place: Callable[..., str]) -> None:
    """Raise ValueError if commas may stand before thousands, not before decimals."""
    numbers = [
        (i, j, entry)
        for i, row in enumerate(fields)
        for j, entry in enumerate(row)
        if ("," in entry or "." in entry) and _value(entry, True) is not None
    ]
    commas = [each for each in numbers if "," in each[2]]
    if commas and (len(commas) < len(numbers) or all(_THOUSANDS.fullmatch(e) for *_, e in commas)):
        row, column, entry = commas[0]
        raise ValueError(
            f"{place(row, column)}: the comma of {entry.strip()!r} may stand before decimals or "
            "thousands: write 0.25 or 1234"
        )


_text = partial(read_text, what="text of times")

# For each suffix: how to read the file, and how to make a table of its content.
_READERS: dict[str, tuple[Callable[[Path], Any], Callable[[Any], _Table]]] = {
    ".npy": (read_npy, _numbers),
    ".npz": (_npz, _numbers),
    ".json": (partial(read_json, what="readable .json file"), _listed),
    ".csv": (_text, _lines),
    ".tsv": (_text, _lines),
    ".txt": (_text, _lines),
    ".parquet": (read_parquet, _named),
}
