"""Shared parts of commands: the application, the declaration of options, and errors."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__, errors
from .._base.files import path_of

# Panels of the list of commands.
TRAINING, CHOOSING, PRECISION, MORE = "Training", "Choosing a code", "Precision", "More"

# The order of commands in the help, as a newcomer needs them.
_ORDER = (
    *("train", "codes", "plan", "simulate", "sequential", "fit"),
    *("stability", "info"),
)

EXPLAINED = 4  # panels that a short help explains

F = TypeVar("F", bound=Callable[..., None])


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of commands in the order of the help."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)


app = typer.Typer(
    cls=_InOrder,
    help="Gradient coding: the exact gradient from whichever workers answered first.",
    epilog="Run fastgc --install-completion once to let the Tab key complete commands, options and "
    "names of codes.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"fastgc {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _begin(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        context.get_help()  # prints it
        raise typer.Exit

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        echo(f"fastgc: warning: {message}", err=True)

    warnings.showwarning = show
    log = logging.getLogger("fastgc.delays")  # says what was read of tables
    log.setLevel(logging.INFO)
    log.addHandler(_PRINTS)


class _Prints(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        echo(f"fastgc: {record.getMessage()}", err=True)


_PRINTS = _Prints()


def echo(text: str = "", nl: bool = True, err: bool = False) -> None:
    """Print a text; on an ASCII terminal not in UTF-8, which Typer uses by default.

    What is said beside the output, with `err`, is not worth an error: its disk may be full.
    """
    with suppress(OSError) if err else nullcontext():
        typer.echo(text, file=sys.stderr if err else sys.stdout, nl=nl)


# ------------------------------------------------------------------------------------- options


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Options:
    """Options of a command that share a panel of its help: each field of a subclass is an option.

    A subclass is a frozen dataclass. It may name its panel: ``class Data(Options, panel="Data and
    model")``. Without a name, its options are in the help's general panel.
    """

    panel: ClassVar[str | None] = None

    def end(self) -> None:
        """Do what is left to do when the command has done its work."""

    def __init_subclass__(cls, panel: str | None = None) -> None:
        cls.panel = panel
        dataclass(frozen=True)(cls)


def option(default: Any, help: str, *names: str, **settings: Any) -> Any:
    """Declare an option, a field of `Options`, by what ``typer.Option`` takes.

    Its `names` are by default the field's.
    """
    return field(
        default=default, metadata={"told": typer.Option(default, *names, help=help, **settings)}
    )


def argument(default: Any, help: str, **settings: Any) -> Any:
    """Declare an argument, as `option` declares an option; a `default` of ``...``: required."""
    given = {} if default is ... else {"default": default}
    return field(**given, metadata={"told": typer.Argument(default, help=help, **settings)})


def command(panel: str, example: str) -> Callable[[F], F]:
    """Make a function of `Options` a command of the same name; an error ends it with one line.

    The command has the options that its parameters' classes declare, in this order. Parameters of
    other types stay parameters of the command. `panel` is its place in the list of commands,
    `example` the end of its help.
    """

    def added(function: F) -> F:
        hints = get_type_hints(function)
        groups: dict[str, list[Parameter]] = {}
        parameters = []
        for name in signature(function).parameters:
            if _declares(hints[name]):
                groups[name] = list(_parameters(hints[name]))
                parameters += groups[name]
            else:
                parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=hints[name]))

        @wraps(function)
        def run(**given: Any) -> None:
            given = {k: path_of(v) if isinstance(v, Path) else v for k, v in given.items()}
            for name, group in groups.items():
                given[name] = hints[name](**{each.name: given.pop(each.name) for each in group})
            with clear_errors():
                function(**given)
            for name in groups:
                given[name].end()

        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        epilog = f"Example: {example}"
        app.command(cls=_Command, rich_help_panel=panel, epilog=epilog)(run)
        return function

    return added


def _declares(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Options)


def _parameters(group: type[Options], panel: str | None = None) -> Iterator[Parameter]:
    """Yield the options that a class and its bases declare, as parameters for Typer.

    Options of its bases come first. They are in the class's panel, unless they have their own.
    """
    hints = get_type_hints(group)
    panel = group.panel or panel
    for base in filter(_declares, group.__bases__):
        yield from _parameters(base, panel)
    declared = {each.name: each.metadata.get("told") for each in fields(group)}
    for name in group.__annotations__:
        if told := copy(declared.get(name)):
            if not isinstance(told, typer.models.ArgumentInfo):  # arguments have their own panel
                told.rich_help_panel = panel
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=told, annotation=hints[name])


def help_all() -> Any:
    """Declare ``--help-all``; the command's ``--help`` then explains the first panels alone."""

    def show(context: typer.Context, wanted: bool) -> None:
        if wanted:
            context.meta["help_all"] = True
            context.get_help()  # prints it
            raise typer.Exit

    told = "Show this message with all options explained, and exit."
    return option(False, told, "--help-all", callback=show, is_eager=True)


class _Command(TyperCommand):
    """A command that accepts ``--json`` and ``--csv`` without a file, and no option twice."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; a short one if the command has ``--help-all``."""
        panels: dict[str, list[Any]] = {}
        for each in self.params:
            panel = getattr(each, "rich_help_panel", None)
            if panel and each.name != "help_all":
                panels.setdefault(panel, []).append(each)
        if "help_all" in ctx.meta or all(each.name != "help_all" for each in self.params):
            super().format_help(ctx, formatter)
            return
        lines = [ctx.get_usage(), "", str(self.help), ""]
        for each in (each for each in self.params if each.param_type_name == "argument"):
            first = getattr(each, "help", "").partition(". ")[0]
            lines += wrap(f"{each.metavar}: {first}.", 79, subsequent_indent="  ")
        for at, (panel, options) in enumerate(panels.items()):
            if at < EXPLAINED:
                lines.append(f"{panel}:")
            names = [", ".join(reversed(each.opts)) for each in options]
            for name, each in zip(names, options, strict=True):
                if at < EXPLAINED:
                    said = re.split(r"(?<=\.) ", each.help)[0]
                    if len(said) > 2 * 59:  # lines
                        said = f"{said.partition('; ')[0].removesuffix('.')}; …"
                    lines += wrap(f"  {name:<17} {said}", 79, subsequent_indent=" " * 20)
            if at >= EXPLAINED:
                lines += wrap(f"{panel}: {', '.join(names)}", 79, subsequent_indent="  ")
        lines += [f"{ctx.command_path} --help-all explains all of them.", str(self.epilog).strip()]
        echo("\n".join(lines))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; ``--json`` or ``--csv`` without a file prints."""
        whole: list[str] = []
        for at, each in enumerate(args):
            whole.append(each)
            after = args[at + 1 : at + 2]
            if each in ("--json", "--csv") and (
                not after or (after[0].startswith("-") and after[0] != "-")
            ):
                whole.append("-")
        _, _, order = self.make_parser(ctx).parse_args(args=[*whole])
        for param in order:
            if order.count(param) > 1 and not getattr(param, "is_flag", True):
                ctx.fail(f"{param.opts[0]} is given twice: leave one out")
        return super().parse_args(ctx, whole)


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the command line gives the option with field `name`."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def numbers(option: str, text: str, expected: str) -> list[float]:
    """Return the numbers between slashes; raise ValueError that says what an option expects."""
    try:
        return [float(part) for part in text.split("/")]
    except ValueError:
        raise ValueError(f"{option} must be {expected}, not {text!r}") from None


# -------------------------------------------------------------------------------------- errors

# Errors in what was asked for. Engines raise RuntimeError if they cannot be started like this.
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
# Errors of the run itself, although some are subclasses of those above.
_FAILED = (
    errors.NotDecodableError,
    errors.NonFiniteMessageError,
    errors.CorruptMessageError,
    errors.WorkerFailedError,
    errors.LeftOutError,
    errors.FinishedError,
)


def status_of(error: BaseException) -> int:
    """Return a command's exit status: 2 for misuse, 1 for failure, 130 for Ctrl-C."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 2 if isinstance(error, _MISUSE) and not isinstance(error, _FAILED) else 1


@contextmanager
def clear_errors() -> Iterator[None]:
    """End the command with a line that says what was wrong, instead of a traceback."""
    try:
        yield
    except BrokenPipeError:  # the reader of our output has closed the pipe: Typer ends quietly
        raise
    except (*_MISUSE, ArithmeticError, ImportError, OSError, MemoryError) as e:
        _say(text_of(e), e)
        raise typer.Exit(status_of(e)) from None
    except KeyboardInterrupt as e:
        _say("interrupted; the worker processes have ended", e)
        raise typer.Exit(status_of(e)) from None


def why(error: BaseException) -> str:
    """Return an error's text, which for a MemoryError begins by saying so."""
    if not isinstance(error, MemoryError):
        return str(error)
    return f"too large for memory: {error}" if str(error) else "too large for memory"


def text_of(error: BaseException) -> str:
    """Return what is said of an error: of one of the disk, the file and what was wrong."""
    if not isinstance(error, OSError) or not error.strerror:
        return why(error)
    said = f"{error.strerror[:1].lower()}{error.strerror[1:]}"
    return said if error.filename is None else f"{error.filename}: {said}"


def _say(text: str, error: BaseException) -> None:
    for line in (text, *getattr(error, "__notes__", ())):
        echo(f"fastgc: {line}", err=True)
