"""What commands share: the application, options, and how errors end."""

from __future__ import annotations

import csv
import io
import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from ..errors import (
    CorruptMessageError,
    LeftOutError,
    NonFiniteMessageError,
    NotDecodableError,
    WorkerFailedError,
)

__all__ = [
    "CHOOSING",
    "DRAWN",
    "MORE",
    "PRECISION",
    "PRINTED",
    "TRAINING",
    "Csv",
    "FiguresCommand",
    "Json",
    "ListingCommand",
    "Partitions",
    "Stragglers",
    "Workers",
    "app",
    "check_drawn",
    "check_figures",
    "check_folder",
    "check_plot",
    "clear_errors",
    "complete_codes",
    "csv_line",
    "draw_timelines",
    "figures_option",
    "partitions_option",
    "status_of",
    "stragglers_option",
    "tolerated",
    "workers_option",
    "write_figures",
]

DRAWN = 3  # rounds of a timeline
MOST_DRAWN = 8  # codes, or runs, in one picture of timelines
PRINTED = Path("-")  # in the place of a file

# Panels of the commands' list.
TRAINING, CHOOSING, PRECISION, MORE = "Training", "Choosing a code", "Precision", "More"

# As a newcomer wants them.
_ORDER = (
    *("train", "codes", "plan", "simulate", "sweep", "sequential", "fit"),
    *("stability", "worst", "spare", "reproduce", "info"),
)


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """Names of commands, as the help lists them."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)


app = typer.Typer(
    cls=_InOrder,
    help="Gradient coding: the exact gradient from whichever workers answered first.",
    epilog="fastgc --install-completion, once: from then on the Tab key completes commands, "
    "options and names of codes.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fastgc {__version__}")
        raise typer.Exit


@app.callback()
def _begin(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        typer.echo(f"fastgc: warning: {message}", err=True)

    warnings.showwarning = show


def workers_option(panel: str | None = None) -> Any:
    """``--workers``, in a panel of the help."""
    return typer.Option("--workers", "-n", min=1, help="Workers, n.", rich_help_panel=panel)


def stragglers_option(panel: str | None = None) -> Any:
    """``--stragglers``, in a panel of the help."""
    return typer.Option(
        "--stragglers",
        "-s",
        help="Stragglers tolerated, s. (default: n/5)",
        rich_help_panel=panel,
    )


def partitions_option(panel: str | None = None) -> Any:
    """``--partitions``, in a panel of the help."""
    return typer.Option(
        "--partitions", "-k", help="Partitions of the data, k. (default: n)", rich_help_panel=panel
    )


Workers = Annotated[int, workers_option()]
Stragglers = Annotated[int | None, stragglers_option()]
Partitions = Annotated[int | None, partitions_option()]


def tolerated(n: int, stragglers: int | None) -> int:
    """Stragglers to tolerate of n workers, a fifth unless said; ValueError if they are too many."""
    s = n // 5 if stragglers is None else stragglers
    if not 0 <= s < n:
        raise ValueError(f"stragglers must be in 0 .. n-1 = {n - 1}, not {s}")
    return s


def complete_codes(incomplete: str) -> list[str]:
    """Names of codes for the last item of a list, when Tab is pressed."""
    from ..codes import catalogue

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in catalogue.names() if name.startswith(last)]


def _other_delays() -> str:
    from ..delays.text import others

    return f"; also known: {', '.join(names)}" if (names := others()) else ""


def _other_codes() -> str:
    from ..codes import catalogue

    names = [name for name in catalogue.names() if name not in catalogue.BUILT_IN]
    return f"; also known: {', '.join(names)}" if names else ""


def figures_option(kind: str, panel: str | None = None) -> Any:
    """``--json`` or ``--csv``, in a panel of the help."""
    return typer.Option(
        f"--{kind}",
        metavar="FILE",
        allow_dash=True,
        help=f"Write all figures to this file as {kind.upper()}; - or no name: print that, and no "
        "table.",
        rich_help_panel=panel,
    )


Json = Annotated[Path | None, figures_option("json")]
Csv = Annotated[Path | None, figures_option("csv")]


class FiguresCommand(TyperCommand):
    """A command with the options `Json` and `Csv`, of which each may stand without a file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, an option without a file as one that prints."""
        whole: list[str] = []
        for at, each in enumerate(args):
            whole.append(each)
            after = args[at + 1 : at + 2]
            if each in ("--json", "--csv") and (
                not after or (after[0].startswith("-") and after[0] != "-")
            ):
                whole.append("-")
        return super().parse_args(ctx, whole)


def check_figures(json_file: Path | None, csv_file: Path | None) -> None:
    """Raise ValueError unless figures can be written there, or printed."""
    for option, path in (("json", json_file), ("csv", csv_file)):
        if path is None or path == PRINTED:
            continue
        if path.suffix.lower() != f".{option}":
            raise ValueError(
                f"--{option} {path}: a file's name must end in .{option}; --{option} - prints"
            )
        check_folder(path)
    if json_file == csv_file == PRINTED:
        raise ValueError("--json and --csv cannot both be printed: name a file for one of them")


def write_figures(
    held: object, rows: Sequence[Mapping[str, Any]], json_file: Path | None, csv_file: Path | None
) -> bool:
    """Write figures where `Json` and `Csv` say; whether they were printed, in place of a table.

    `rows` are what CSV has lines of, with the columns of the first: numbers in full, nothing for
    what is not known.
    """
    from ..history import json_ready

    written = []
    if json_file is not None:
        written.append((json_file, json.dumps(json_ready(held), allow_nan=False) + "\n"))
    if csv_file is not None:
        written.append((csv_file, csv_text(rows)))
    for path, text in written:
        if path == PRINTED:
            typer.echo(text, nl=False)
        else:
            path.write_text(text, encoding="utf-8", newline="")
            typer.echo(f"figures written to {path}", err=True)
    return PRINTED in (json_file, csv_file)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with a line of headings."""
    head = list(rows[0]) if rows else []
    return csv_line(head) + "".join(csv_line(row[name] for name in head) for row in rows)


def csv_line(values: Iterable[Any]) -> str:
    """A line of CSV: numbers in full, nothing for what is not known."""
    text = io.StringIO()
    known = ("" if isinstance(each, float) and math.isnan(each) else each for each in values)
    csv.writer(text, lineterminator="\n").writerow(known)
    return text.getvalue()


class ListingCommand(FiguresCommand):
    """A command whose help lists names that others may have added, where these words stand.

    They are looked up, among all installed packages, when the help is shown and not before.
    """

    LISTS: ClassVar[dict[str, Callable[[], str]]] = {
        "{other codes}": _other_codes,
        "{other delays}": _other_delays,
    }

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the help."""
        params: list[Any] = list(self.params)
        said = [(each, each.help) for each in params if getattr(each, "help", None)]
        for each, text in said:
            for words, names in self.LISTS.items():
                if words in text:
                    each.help = each.help.replace(words, names())
        super().format_help(ctx, formatter)
        for each, text in said:
            each.help = text


# Of what was asked for: the engines raise RuntimeError where they cannot be started like this.
_MISUSE = (
    ValueError,
    TypeError,
    OverflowError,
    RuntimeError,
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
# Of how it went, though some of these are among those above.
_FAILED = (
    NotDecodableError,
    NonFiniteMessageError,
    CorruptMessageError,
    WorkerFailedError,
    LeftOutError,
)


def status_of(error: BaseException) -> int:
    """What a command ends with: 2 where it was misused, 1 where it failed, 130 by Ctrl-C."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 2 if isinstance(error, _MISUSE) and not isinstance(error, _FAILED) else 1


@contextmanager
def clear_errors() -> Iterator[None]:
    """End the command with a line that says what was wrong, in place of a traceback."""
    try:
        yield
    except (*_MISUSE, ArithmeticError, ImportError, OSError) as e:
        _say(str(e), e)
        raise typer.Exit(status_of(e)) from None
    except KeyboardInterrupt as e:
        _say("interrupted; the worker processes have ended", e)
        raise typer.Exit(status_of(e)) from None


def _say(text: str, error: BaseException) -> None:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    for line in (text, *getattr(error, "__notes__", ())):
        typer.echo(f"fastgc: {line}", err=True)


def check_folder(path: Path | None) -> None:
    """Raise ValueError unless a file can be written there."""
    if path is not None and not path.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to write {path.name} to")
    if path is not None and path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")


def check_plot(path: Path | None) -> None:
    """Raise ValueError unless a picture can be written there."""
    check_folder(path)
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
