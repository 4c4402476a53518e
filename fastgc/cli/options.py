"""Options that several commands have: each is declared here once, and called what it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..codes import catalogue
from ..delays.text import FORMS
from .common import Options, argument, option

DELAYS = "pareto:scale=0.005,shape=1.5"


def completes(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Names for the last item of a list, when Tab is pressed."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in names() if name.startswith(last)]

    return complete


complete_codes = completes(catalogue.names)


def codes(help: str, default: str = "", complete: Any = complete_codes) -> Any:
    """The codes that a command is about."""
    return argument(default, help, autocompletion=complete)


def workers() -> Any:
    return option(20, "Workers, n.", "--workers", "-n", min=1)


def stragglers() -> Any:
    return option(None, "Stragglers tolerated, s. (default: n/5)", "--stragglers", "-s")


def partitions(**limits: Any) -> Any:
    help = "Partitions of the data, k. (default: n)"
    return option(None, help, "--partitions", "-k", **limits)


@dataclass(frozen=True)
class Sizes(Options):
    """Sizes of codes."""

    workers: int = workers()
    stragglers: int | None = stragglers()
    partitions: int | None = partitions()


def delays(
    default: Any = DELAYS, help: str = "How late workers are, in seconds", more: str = ""
) -> Any:
    """Delays, as a text that `fastgc.delays.parse` reads."""
    return option(default, f"{help}: {FORMS}{{other delays}}.{more}")


def cost(help: str = "Seconds to compute one partial gradient.") -> Any:
    return option(0.0, help, min=0.0)


def receive() -> Any:
    return option(0.0, "Seconds that the master's link needs for a message.", min=0.0)


def rounds(default: int, help: str) -> Any:
    return option(default, help, min=1)


def live(help: str) -> Any:
    """Rounds of worker processes on this machine."""
    return option(0, help, min=0)


def seed(help: str = "Seed of delays and random codes.") -> Any:
    return option(0, help, min=0)


def finish(what: str = "the message") -> Any:
    return option(
        False,
        f"Late workers first finish {what} they are at, as those of the engines do; otherwise they "
        "drop it when a round is over.",
        "--finish",
    )


def processors(more: str = "") -> Any:
    """Processors, as `numbers` reads them."""
    return option(
        "",
        "How many processors all workers share, as in 2, or a number that names the processor of "
        f"each, as in 0/0/1/1. {more}Default: one for each worker.",
    )


def unit() -> Any:
    return option("s", "Of the times in a table: s, ms, us or ns.")


def per() -> Any:
    return option(
        "round",
        "What a time in a table is of: round, or computation where all of it is the computation "
        "of one partition.",
    )


def json(help: str = "") -> Any:
    return figures("json", help)


def csv(help: str = "") -> Any:
    return figures("csv", help)


def figures(kind: str, help: str = "") -> Any:
    """A file of figures; without one they are printed."""
    help = help or f"Write all figures to this file as {kind.upper()}"
    help = f"{help}; - or no name: print that, and no table."
    return option(None, help, f"--{kind}", metavar="FILE", allow_dash=True)


def markdown(help: str = "Print a Markdown table.") -> Any:
    return option(False, help, "--markdown")


def picture(help: str) -> Any:
    """A file to draw to; the text has its types."""
    return option(None, help.replace("this file", "this file (png, svg, pdf)"))


def timeline(of: str) -> Any:
    return option(
        None,
        f"Draw the first three rounds of each {of} to this file: who computed when, who was waited "
        "for, what was decoded from (png, svg, pdf).",
    )
