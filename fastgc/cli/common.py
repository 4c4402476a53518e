"""What commands share: the application, options, and how errors end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from ..errors import WorkerFailedError

__all__ = [
    "ListingCommand",
    "Partitions",
    "Stragglers",
    "Workers",
    "app",
    "check_folder",
    "check_plot",
    "clear_errors",
]

app = typer.Typer(
    help="Gradient coding: the exact gradient from whichever workers answered first.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _begin() -> None:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        typer.echo(f"fastgc: warning: {message}", err=True)

    warnings.showwarning = show


Workers = Annotated[int, typer.Option("--workers", "-n", min=1, help="Workers, n.")]
Stragglers = Annotated[
    int | None, typer.Option("--stragglers", "-s", help="Stragglers tolerated, s. (default: n/5)")
]
Partitions = Annotated[
    int | None, typer.Option("--partitions", "-k", help="Partitions, k. (default: n)")
]


def _other_delays() -> str:
    from ..delays.text import others

    return f"; also known: {', '.join(names)}" if (names := others()) else ""


def _other_codes() -> str:
    from ..codes import catalogue

    names = [name for name in catalogue.names() if name not in catalogue.BUILT_IN]
    return f"; also known: {', '.join(names)}" if names else ""


class ListingCommand(TyperCommand):
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


@contextmanager
def clear_errors() -> Iterator[None]:
    """End the command with a line that says what was wrong, in place of a traceback."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError, WorkerFailedError) as e:
        _say(str(e), e)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as e:
        _say("interrupted; the worker processes have ended", e)
        raise typer.Exit(130) from None


def _say(text: str, error: BaseException) -> None:
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
