"""Output of commands: files, tables and pictures, and the options that say where they go."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from ..codes import catalogue
from . import options
from .common import Options, echo

DRAWN = 3  # rounds of a timeline
MOST_DRAWN = 8  # codes, or runs, in one picture of timelines, at most
PRINTED = Path("-")  # stands for printing instead of a file


class Column(NamedTuple):
    """A column of figures. Where its heading is empty, it is not shown."""

    short: str  # heading in a terminal
    long: str  # heading in Markdown
    key: str  # of the figure in a row; "": the row itself
    form: str | Callable[[Any], str] = ""  # how to write it: a format, or a function

    def text(self, row: Mapping[str, Any]) -> str:
        """Return the column's text in a row."""
        value = row[self.key] if self.key else row
        return self.form(value) if callable(self.form) else format(value, self.form)


class Output(Options):
    """The files of a command's figures, and the form of its tables."""

    json_file: Path | None = None
    csv_file: Path | None = None
    markdown: bool = False

    @property
    def printed(self) -> bool:
        """Whether figures are printed instead of a table."""
        return PRINTED in (self.json_file, self.csv_file)

    def check(self) -> None:
        """Raise ValueError unless figures can be written to the given files, or printed."""
        for kind, path in (("json", self.json_file), ("csv", self.csv_file)):
            if path is None or path == PRINTED:
                continue
            if path.suffix.lower() != f".{kind}":
                raise ValueError(
                    f"--{kind} {path}: a file's name must end in .{kind}; --{kind} - prints"
                )
            check_files(path)
        if self.json_file == self.csv_file == PRINTED:
            raise ValueError("--json and --csv cannot both be printed: name a file for one of them")

    def write(self, held: object, rows: Sequence[Mapping[str, Any]] = ()) -> bool:
        """Write what JSON and CSV hold; return whether they were printed instead of a table."""
        if self.json_file is not None:
            write_text(self.json_file, json_text(held))
        self.write_csv(rows)
        return self.printed

    def write_csv(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the lines of CSV, with the keys of the first as columns."""
        if self.csv_file is not None:
            head = list(rows[0]) if rows else []
            lines = [head, *([row[name] for name in head] for row in rows)]
            write_text(self.csv_file, "".join(map(csv_line, lines)))

    def table(
        self, title: str, columns: Iterable[Column], rows: Iterable[Mapping[str, Any]], **how: Any
    ) -> None:
        """Show figures as `show` does; Markdown has the long headings."""
        shown = [each for each in columns if each[self.markdown]]
        heads = [each.long if self.markdown else each.short for each in shown]
        self.show(title, heads, [[each.text(row) for each in shown] for row in rows], **how)

    def show(
        self,
        title: str,
        heads: Sequence[str],
        rows: Iterable[Sequence[str]],
        describe: Callable[[str], str] = catalogue.describe,
        several: bool = False,
    ) -> None:
        """Print a table.

        In Markdown, `describe` puts the name in the first cell of a row in words, and `several`
        tables have empty lines between.
        """
        from .._base.progress import markdown_table, rich_table

        rows = list(rows)
        if self.markdown:
            named = [[describe(row[0]), *row[1:]] for row in rows]
            echo(markdown_table(title, heads, named) + "\n" * several)
        else:
            Console().print(rich_table(title, heads, rows))

    def explain(self, legend: str = "", codes: Iterable[str] = ()) -> None:
        """Explain columns and names of codes in a terminal; in Markdown they are in words."""
        if self.markdown:
            return
        if legend:
            echo(legend)
        if names := dict.fromkeys(codes):
            echo(f"Codes: {', '.join(map(catalogue.describe, names))}.")


class Tables(Output):
    """Figures as CSV or JSON, or tables of Markdown."""

    csv_file: Path | None = options.figures("csv")
    json_file: Path | None = options.figures("json")
    markdown: bool = options.markdown()


def json_text(held: object) -> str:
    """Return figures as a line of JSON, with null for numbers that are not finite."""
    from ..training.history import json_ready

    return json.dumps(json_ready(held), allow_nan=False) + "\n"


def csv_line(values: Iterable[Any]) -> str:
    """Return a line of CSV: numbers in full, and nothing for NaN."""
    text = io.StringIO()
    known = ("" if isinstance(each, float) and math.isnan(each) else each for each in values)
    csv.writer(text, lineterminator="\n").writerow(known)
    return text.getvalue()


def write_text(path: Path, text: str) -> None:
    """Write figures to a file and say so, or print them."""
    if path == PRINTED:
        echo(text, nl=False)
    else:
        path.write_text(text, encoding="utf-8", newline="")
        echo(f"figures written to {path}", err=True)


def check_files(*paths: Path | None) -> None:
    """Raise ValueError unless files can be written to these paths."""
    for path in paths:
        if path is not None and not path.resolve().parent.is_dir():
            raise ValueError(f"there is no folder {path.parent} to write {path.name} to")
        if path is not None and path.is_dir():
            raise ValueError(f"{path} is a folder: name a file")


def check_pictures(width: str, *paths: Path | None) -> None:
    """Raise ValueError unless pictures of this width can be written to these paths."""
    for path in paths:
        check_files(path)
        if path is not None:
            from .. import plotting

            plotting.check_path(path)
            plotting.style(width)


def check_drawn(names: Sequence[str], instead: str) -> None:
    """Raise ValueError if a picture of timelines has no room for all `names`."""
    if len(names) > MOST_DRAWN:
        raise ValueError(
            f"--timeline draws at most {MOST_DRAWN} codes in one picture, not {len(names)}: "
            f"{instead}"
        )


def draw(make: Callable[[], Any], path: Path | None, width: str, what: str = "plot") -> None:
    """Make a picture of this width, write it to a file if there is one, and say so."""
    if path is None:
        return
    from matplotlib import rc_context

    from .. import plotting

    settings: Any = plotting.style(width)
    with rc_context(settings):
        plotting.save(make(), path)
    echo(f"{what} written to {path}", err=True)


def microseconds(seconds: float) -> str:
    """Write seconds as microseconds, with tenths."""
    return f"{1e6 * seconds:.1f}"


def milliseconds(seconds: float, digits: int = 3) -> str:
    """Write seconds as milliseconds with `digits` digits, for the narrow columns of a terminal."""
    milliseconds = 1e3 * seconds
    if milliseconds < 10**digits - 0.5:
        return f"{milliseconds:.{digits}g}"
    return f"{milliseconds:.0f}" if milliseconds < 1e6 else f"{milliseconds:.1e}"
