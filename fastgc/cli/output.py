"""Output of commands: figures, tables and pictures, and the options that say where they go."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from textwrap import fill
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import typer
from rich.console import Console

from .._base.writing import probe, write_file
from ..codes import catalogue
from . import options
from .common import Options, echo, text_of

PRINTED = Path("-")  # stands for printing instead of a file

T = TypeVar("T")
Rows = Sequence[Mapping[str, Any]]
Figures = tuple[Any, Rows]  # what JSON holds, and the rows of CSV


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


class Picture(NamedTuple):
    """A picture to draw, if it has a file."""

    path: Path | None
    make: Callable[[], Any]
    what: str = "plot"


class Output(Options):
    """The files of a command's figures and pictures, and the form of its tables.

    Figures are written first, then tables are shown, and pictures are drawn last. Whatever fails is
    said, with its file, all else is done, and the command ends with status 1.
    """

    json_file: Path | None = None
    csv_file: Path | None = None
    latex: Path | None = None
    markdown: bool = False
    width: str = "double"
    title: str | None = None
    tables: list[str] = field(default_factory=list)  # for LaTeX, as they are shown
    failed: list[Exception] = field(default_factory=list)

    def check(
        self,
        *pictures: Path | None,
        files: Iterable[Path | None] = (),
        read: Iterable[Path | None] = (),
    ) -> None:
        """Raise unless figures, pictures and further files can be written, or figures printed.

        They must not be those that the command reads.
        """
        for kind, path in (("json", self.json_file), ("csv", self.csv_file)):
            if path not in (None, PRINTED) and path.suffix.lower() != f".{kind}":
                raise ValueError(
                    f"--{kind} {path}: a file's name must end in .{kind}; --{kind} - prints"
                )
        if self.json_file == self.csv_file == PRINTED:
            raise ValueError("--json and --csv cannot both be printed: name a file for one of them")
        if self.latex is not None and self.latex.suffix.lower() != ".tex":
            raise ValueError(f"--latex {self.latex}: a file's name must end in .tex")
        if self.latex is not None and PRINTED in (self.json_file, self.csv_file):
            raise ValueError("--latex writes the tables that printed figures replace: name files")
        plain = [self.json_file, self.csv_file, self.latex, *files]
        known = {each.resolve() for each in read if each is not None}
        for path in (*plain, *pictures):
            if path in (None, PRINTED):
                continue
            if path.resolve() in known:
                raise ValueError(
                    f"{path} is read, or is another output as well: they must name different files"
                )
            known.add(path.resolve())
            if path in plain:
                probe(path)
                continue
            from .. import plotting

            plotting.check_path(path)
            plotting.style(self.width)

    def end(self) -> None:
        """End the command with status 1 if anything could not be written."""
        for error in self.failed:
            if isinstance(error, BrokenPipeError):  # the reader of our output has closed the pipe
                raise error  # Typer ends quietly
        if self.failed:
            raise typer.Exit(1)

    def save(self, path: Path | None, write: Callable[[Path], object], what: str) -> None:
        """Write a file, if it is named, and say so."""
        if path is not None:
            with self._apart(f"{path}", Exception):
                write(path)
                echo(f"{what} written to {path}", err=True)

    def keep(self, held: object, rows: Rows) -> None:
        """Write figures to their files in silence, before others come that `deliver` adds."""
        for path, text in self._figures(held, rows):
            if rows and path != PRINTED:
                with contextlib.suppress(OSError, ValueError):
                    _write_text(text, path)

    @contextlib.contextmanager
    def growing(
        self, figures: Callable[[T], Figures], end: Callable[[T], object]
    ) -> Iterator[Callable[[T], None]]:
        """Yield a function to call with all that is found so far, which keeps its figures.

        After the work, an error or Ctrl-C, `end` is called with the last of it that has any.
        """
        last: list[T] = []

        def keep(found: T) -> None:
            held, rows = figures(found)
            last[:] = [found] if rows else []
            self.keep(held, rows)

        try:
            yield keep
        finally:
            for found in last:
                end(found)

    def deliver(
        self,
        held: object,
        rows: Rows,
        show: Callable[[], object],
        *pictures: Picture,
    ) -> None:
        """Write what JSON and CSV hold, show tables unless figures are printed, and draw."""
        for path, text in self._figures(held, rows):
            if path == PRINTED:
                show = partial(echo, text, nl=False)
            else:
                self.save(path, partial(_write_text, text), "figures")
        with self._apart("standard output", OSError):
            show()
        self.save(self.latex, partial(_write_text, "\n".join(self.tables)), "tables")
        for each in pictures:
            self.save(each.path, partial(self._draw, each.make), each.what)

    def _figures(self, held: object, rows: Rows) -> Iterator[tuple[Path, str]]:
        """Yield files of figures, and their text. CSV has the keys of the first row as columns."""
        if self.json_file is not None:
            yield self.json_file, json_text(held)
        if self.csv_file is not None:
            head = list(rows[0]) if rows else []
            lines = [head, *([row[name] for name in head] for row in rows)]
            yield self.csv_file, "".join(map(csv_line, lines))

    def _draw(self, make: Callable[[], Any], path: Path) -> None:
        from matplotlib import rc_context

        from .. import plotting
        from ..plotting.panels import retitle

        settings: Any = plotting.style(self.width)
        with rc_context(settings):
            picture = make()
            if self.title is not None:
                retitle(picture, self.title)
            plotting.save(picture, path)

    @contextlib.contextmanager
    def _apart(self, name: str, errors: type[Exception]) -> Iterator[None]:
        """Go on after an error of the output of this name, and say what it was."""
        try:
            yield
        except errors as error:
            self.failed.append(error)
            if not isinstance(error, BrokenPipeError):
                said = " ".join(text_of(error).removeprefix(f"{name}: ").split())
                echo(f"fastgc: warning: {name}: {said}", err=True)

    def table(
        self, title: str, columns: Iterable[Column], rows: Iterable[Mapping[str, Any]], **how: Any
    ) -> None:
        """Show figures as `show` does; Markdown has the long headings."""
        columns, rows = list(columns), list(rows)

        def cells(at: int) -> tuple[list[str], list[list[str]]]:
            shown = [each for each in columns if each[at]]
            heads = [each.long if at else each.short for each in shown]
            return heads, [[each.text(row) for each in shown] for row in rows]

        self.show(title, *cells(self.markdown), paper=cells(1), **how)

    def show(
        self,
        title: str,
        heads: Sequence[str],
        rows: Iterable[Sequence[str]],
        describe: Callable[[str], str] = catalogue.describe,
        several: bool = False,
        paper: tuple[Sequence[str], Iterable[Sequence[str]]] | None = None,
        marks: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Print a table, and keep it for LaTeX: that of `paper`, if it has other columns there.

        In Markdown and LaTeX, `describe` puts the name in the first cell of a row in words, and
        below stands what those of the `marks` mean that it has. In Markdown, `several` tables have
        empty lines between.
        """
        from .._base.progress import folded, latex_table, markdown_table, rich_table

        def named(rows: Iterable[Sequence[str]]) -> list[list[str]]:
            return [[describe(row[0]), *row[1:]] for row in rows]

        rows = list(rows)
        head, body = paper or (heads, rows)
        body = list(body)
        signs = [each for each in marks if any(each in cell for row in body for cell in row)]
        note = "; ".join(f"{each}: {marks[each]}" for each in signs)
        self.tables.append(latex_table(title, head, named(body), note))
        if self.markdown:
            below = f"\n\n{note}" if note else ""
            echo(markdown_table(title, heads, named(rows)) + below + "\n" * several)
        else:
            console = Console()
            with console.capture() as text:  # to print, Console ends the program if a pipe closes
                for at, part in enumerate(folded(heads, rows)):
                    console.print(rich_table("" if at else title, *part))
            echo(text.get(), nl=False)

    def say(self, text: str) -> None:
        """Print a paragraph below a table: in a terminal in its width, and no colon ends a line."""
        if not self.markdown:
            whole = partial(fill, break_long_words=False, break_on_hyphens=False)
            text = whole(text.replace(": ", ":\xa0"), Console().width).replace("\xa0", " ")
        echo(text)

    def explain(self, legend: str = "", codes: Iterable[str] = ()) -> None:
        """Explain columns and names of codes in a terminal; in Markdown they are in words."""
        if self.markdown:
            return
        if legend:
            self.say(legend)
        if names := dict.fromkeys(codes):
            self.say(f"Codes: {', '.join(map(catalogue.describe, names))}.")


class Tables(Output):
    """Figures as CSV or JSON, or tables of Markdown or LaTeX; the form of pictures."""

    csv_file: Path | None = options.figures("csv")
    json_file: Path | None = options.figures("json")
    latex: Path | None = options.latex()
    markdown: bool = options.markdown()
    width: str = options.width()
    title: str | None = options.title()


def by_code(figures: dict[str, dict[str, Any]]) -> Figures:
    """Return what JSON and CSV hold of figures of codes."""
    return figures, [{"code": name, **each} for name, each in figures.items()]


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


def _write_text(text: str, path: Path) -> None:
    write_file(path, text.encode())


def microseconds(seconds: float) -> str:
    """Write seconds as microseconds, with tenths."""
    return f"{1e6 * seconds:.1f}"


def milliseconds(seconds: float, digits: int = 3) -> str:
    """Write seconds as milliseconds with `digits` digits, for the narrow columns of a terminal."""
    milliseconds = 1e3 * seconds
    if milliseconds < 10**digits - 0.5:
        return f"{milliseconds:.{digits}g}"
    return f"{milliseconds:.0f}" if milliseconds < 1e6 else f"{milliseconds:.1e}"
