"""Options that several commands have, each declared once, and what is written where they say."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from ..codes import catalogue
from ..delays.text import FORMS
from .common import Options, argument, is_given, option

__all__ = [
    "DELAYS",
    "DRAWN",
    "PRINTED",
    "JsonOutput",
    "Output",
    "Report",
    "Sizes",
    "Tables",
    "check_drawn",
    "check_files",
    "check_pictures",
    "check_unrecorded",
    "codes_argument",
    "complete_codes",
    "completes",
    "cost_option",
    "csv_line",
    "csv_option",
    "delays_option",
    "draw_panels",
    "draw_timelines",
    "explain_codes",
    "figures_option",
    "finish_option",
    "json_option",
    "markdown_option",
    "milliseconds",
    "numbers",
    "partitions_option",
    "per_option",
    "picture_option",
    "processors_option",
    "receive_option",
    "refuse_recorded",
    "rounds_option",
    "seed_option",
    "stragglers_option",
    "timeline_option",
    "tolerated",
    "unit_option",
    "workers_option",
    "write_text",
]

DELAYS = "pareto:scale=0.005,shape=1.5"
DRAWN = 3  # rounds of a timeline
MOST_DRAWN = 8  # codes, or runs, in one picture of timelines
PRINTED = Path("-")  # in the place of a file


# ----------------------------------------------------------------------------- what is computed


def completes(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Names for the last item of a list, when Tab is pressed."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in names() if name.startswith(last)]

    return complete


complete_codes = completes(catalogue.names)


def codes_argument(help: str, default: str = "", complete: Any = complete_codes) -> Any:
    """The codes that a command is about."""
    return argument(default, help, autocompletion=complete)


def workers_option() -> Any:
    """Workers, n."""
    return option(20, "Workers, n.", "--workers", "-n", min=1)


def stragglers_option() -> Any:
    """Stragglers tolerated, s."""
    return option(None, "Stragglers tolerated, s. (default: n/5)", "--stragglers", "-s")


def partitions_option(**limits: Any) -> Any:
    """Partitions, k."""
    help = "Partitions of the data, k. (default: n)"
    return option(None, help, "--partitions", "-k", **limits)


@dataclass(frozen=True)
class Sizes(Options):
    """Sizes of codes."""

    workers: int = workers_option()
    stragglers: int | None = stragglers_option()
    partitions: int | None = partitions_option()


def tolerated(n: int, stragglers: int | None) -> int:
    """Stragglers to tolerate of n workers, a fifth unless said; ValueError if they are too many."""
    s = n // 5 if stragglers is None else stragglers
    if not 0 <= s < n:
        raise ValueError(f"stragglers must be in 0 .. n-1 = {n - 1}, not {s}")
    return s


def delays_option(
    default: Any = DELAYS, help: str = "How late workers are, in seconds", more: str = ""
) -> Any:
    """Delays, as a text that `fastgc.delays.parse` reads."""
    return option(default, f"{help}: {FORMS}{{other delays}}.{more}")


def cost_option(help: str = "Seconds to compute one partial gradient.") -> Any:
    """Seconds of computation."""
    return option(0.0, help, min=0.0)


def receive_option() -> Any:
    """Seconds that the master is busy with a message."""
    return option(0.0, "Seconds that the master's link needs for a message.", min=0.0)


def rounds_option(default: int, help: str) -> Any:
    """Rounds."""
    return option(default, help, min=1)


def seed_option(help: str = "Seed of delays and random codes.") -> Any:
    """The seed of all that is random."""
    return option(0, help, min=0)


def finish_option(what: str = "the message") -> Any:
    """What late workers do at the end of a round."""
    return option(
        False,
        f"Late workers first finish {what} they are at, as those of the engines do; otherwise they "
        "drop it when a round is over.",
        "--finish",
    )


def processors_option(more: str = "") -> Any:
    """Processors, as `numbers` reads them."""
    return option(
        "",
        "How many processors all workers share, as in 2, or a number that names the processor of "
        f"each, as in 0/0/1/1. {more}Default: one for each worker.",
    )


def unit_option() -> Any:
    """The unit of recorded times."""
    return option("s", "Of the times in a table: s, ms, us or ns.")


def per_option() -> Any:
    """What recorded times are of."""
    return option(
        "round",
        "What a time in a table is of: round, or computation where all of it is the computation "
        "of one partition.",
    )


def refuse_recorded(context: typer.Context, instead: str, *names: str) -> None:
    """Raise ValueError if the command line says what recorded times tell, whatever its value."""
    for name in names:
        if is_given(context, name):
            raise ValueError(f"--{name} and {instead} exclude each other: the times tell it")


def check_unrecorded(context: typer.Context) -> None:
    """Raise ValueError if the command line says what a table is of, and there is none."""
    for name in ("per", "unit"):
        if is_given(context, name):
            raise ValueError(f"--{name} is of a table: name it by --recorded")


def numbers(option: str, text: str, expected: str) -> list[float]:
    """Numbers with slashes between them, or ValueError that says what an option expects."""
    try:
        return [float(part) for part in text.split("/")]
    except ValueError:
        raise ValueError(f"{option} must be {expected}, not {text!r}") from None


# ------------------------------------------------------------------------------ what is written


def json_option(help: str = "") -> Any:
    """``--json``, with a file or without."""
    return figures_option("json", help)


def csv_option(help: str = "") -> Any:
    """``--csv``, with a file or without."""
    return figures_option("csv", help)


def figures_option(kind: str, help: str = "") -> Any:
    """A file of figures; without one they are printed."""
    help = help or f"Write all figures to this file as {kind.upper()}"
    help = f"{help}; - or no name: print that, and no table."
    return option(None, help, f"--{kind}", metavar="FILE", allow_dash=True)


def markdown_option(help: str = "Print a Markdown table.") -> Any:
    """``--markdown``."""
    return option(False, help, "--markdown")


def picture_option(help: str) -> Any:
    """A file to draw to; the text has its types."""
    return option(None, help.replace("this file", "this file (png, svg, pdf)"))


def timeline_option(of: str) -> Any:
    """``--timeline``."""
    return option(
        None,
        f"Draw the first three rounds of each {of} to this file: who computed when, who was waited "
        "for, what was decoded from (png, svg, pdf).",
    )


class Output(Options):
    """Where a command writes its figures, and how it shows its tables."""

    json_file: Path | None = None
    csv_file: Path | None = None
    markdown: bool = False

    @property
    def printed(self) -> bool:
        """Whether figures are printed, in place of a table."""
        return PRINTED in (self.json_file, self.csv_file)

    def check(self) -> None:
        """Raise ValueError unless figures can be written there, or printed."""
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
        """Write figures; whether they were printed, in place of a table.

        Parameters
        ----------
        held : object
            What JSON has.
        rows : sequence of mappings
            What CSV has lines of, with the columns of the first: numbers in full, nothing for what
            is not known.
        """
        if self.json_file is not None:
            write_text(self.json_file, json_text(held))
        if self.csv_file is not None:
            head = list(rows[0]) if rows else []
            lines = [head, *([row[name] for name in head] for row in rows)]
            write_text(self.csv_file, "".join(map(csv_line, lines)))
        return self.printed

    def show(
        self,
        title: str,
        short: Sequence[str],
        rows: Iterable[Sequence[str]],
        long: Sequence[str] | None = None,
        describe: Callable[[str], str] = catalogue.describe,
        several: bool = False,
    ) -> None:
        """Print a table: in Markdown with long headings, and names of codes in words.

        Parameters
        ----------
        title : str
        short, long : sequence of str
            Headings for a terminal, and for Markdown. Default of the latter: the former.
        rows : iterable of sequences of str
            The first cell of each is a name.
        describe : callable
            What a name is called in words.
        several : bool
            Whether it is one of several tables, which Markdown needs empty lines between.
        """
        from ..progress import markdown_table, rich_table

        if self.markdown:
            named = [[describe(row[0]), *row[1:]] for row in rows]
            table = markdown_table(title, short if long is None else long, named)
            typer.echo(table + "\n" * several)
        else:
            Console().print(rich_table(title, short, list(rows)))


@dataclass(frozen=True)
class JsonOutput(Output):
    """Figures as JSON."""

    json_file: Path | None = json_option()


@dataclass(frozen=True)
class Tables(Output):
    """Figures as CSV, JSON or a table of Markdown."""

    csv_file: Path | None = csv_option()
    json_file: Path | None = json_option()
    markdown: bool = markdown_option()


@dataclass(frozen=True)
class Report(Output):
    """The same, with figures as CSV in a file of any name beside the tables."""

    rows_file: Path | None = option(None, "Write all figures here.", "--csv")
    markdown: bool = markdown_option("Print Markdown tables.")
    json_file: Path | None = json_option()

    def check(self) -> None:
        """Raise ValueError unless figures can be written there, or printed."""
        super().check()
        check_files(self.rows_file)

    def write_rows(self, write: Callable[[Path], None]) -> None:
        """Write the file of figures as CSV, if there is to be one, and say so."""
        if self.rows_file is not None:
            write(self.rows_file)
            typer.echo(f"figures written to {self.rows_file}", err=True)


def json_text(held: object) -> str:
    """Figures as a line of JSON, which has no numbers that are not finite: null stands for them."""
    from ..history import json_ready

    return json.dumps(json_ready(held), allow_nan=False) + "\n"


def csv_line(values: Iterable[Any]) -> str:
    """A line of CSV: numbers in full, nothing for what is not known."""
    text = io.StringIO()
    known = ("" if isinstance(each, float) and math.isnan(each) else each for each in values)
    csv.writer(text, lineterminator="\n").writerow(known)
    return text.getvalue()


def write_text(path: Path, text: str, what: str = "figures") -> None:
    """Write a text to a file, and say so; or print it."""
    if path == PRINTED:
        typer.echo(text, nl=False)
    else:
        path.write_text(text, encoding="utf-8", newline="")
        typer.echo(f"{what} written to {path}", err=True)


def check_files(*paths: Path | None) -> None:
    """Raise ValueError unless files can be written there."""
    for path in paths:
        if path is not None and not path.resolve().parent.is_dir():
            raise ValueError(f"there is no folder {path.parent} to write {path.name} to")
        if path is not None and path.is_dir():
            raise ValueError(f"{path} is a folder: name a file")


def check_pictures(*paths: Path | None) -> None:
    """Raise ValueError unless pictures can be written there."""
    for path in paths:
        check_files(path)
        if path is not None:
            from .. import plotting

            plotting.check_path(path)


def check_drawn(names: Sequence[str], instead: str) -> None:
    """Raise ValueError unless a picture of timelines has room for so many."""
    if len(names) > MOST_DRAWN:
        raise ValueError(
            f"--timeline draws codes beneath each other, up to {MOST_DRAWN}, or the picture is too "
            f"long to be read, not {len(names)}: {instead}"
        )


def draw_timelines(runs: Mapping[str, Any], path: Path) -> None:
    """Draw the first rounds of runs beneath each other, by their names, and say so."""
    from .. import plotting

    plotting.save(plotting.timeline_figure(runs), path)
    typer.echo(f"timeline written to {path}", err=True)


def draw_panels(panels: Sequence[Any], path: Path, title: str = "") -> None:
    """Draw panels to a file, and say so."""
    from .. import plotting

    plotting.save_panels(panels, path, title)
    typer.echo(f"plot written to {path}", err=True)


def explain_codes(names: Iterable[str]) -> None:
    """Say what the names of codes in a table stand for."""
    typer.echo(f"Codes: {', '.join(map(catalogue.describe, dict.fromkeys(names)))}.")


def milliseconds(seconds: float, digits: int = 3) -> str:
    """To so many digits, as narrow as the columns of a terminal are."""
    milliseconds = 1e3 * seconds
    if milliseconds < 10**digits - 0.5:
        return f"{milliseconds:.{digits}g}"
    return f"{milliseconds:.0f}" if milliseconds < 1e6 else f"{milliseconds:.1e}"
