"""Options of several commands, each declared once, by a function of the option's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import typer

from ..codes import catalogue
from ..delays.text import COMMON, FORMS, others
from .common import argument, echo, option

DELAYS = "pareto:scale=0.005,shape=1.5"


def completes(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that completes the last item of a list with `names`, for the Tab key."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in names() if name.startswith(last)]

    return complete


complete_codes = completes(catalogue.names)


def codes(help: str, default: str = "all codes", complete: Any = complete_codes) -> Any:
    """The codes of a command, as `named` reads them."""
    said = f"{help} (default: {default})"
    return argument(None, said, autocompletion=complete, metavar="CODES")


def named(given: Sequence[str] | None, default: str = "", what: str = "code") -> list[str]:
    """Return the codes given, separated by blanks or commas, or else the default codes."""
    found = catalogue.split(",".join(given or default.split()))
    if default and not found:
        raise ValueError(f"name at least one {what}")
    return found


def workers(default: str = "20", several: bool = False, stragglers: bool = True) -> Any:
    """Numbers of workers, or sizes n/s that also give stragglers."""
    more = " Several: 10,20 or 20:80:20 (first:last:step)." * several
    both = f" With stragglers, n/s: {'80/12,256/32' if several else '20/4'}." * stragglers
    shown = "SIZES" if several else "SIZE" if stragglers else "COUNT"
    return option(default, f"Workers, n.{more}{both}", "--workers", "-n", metavar=shown)


def stragglers(default: str, several: bool = False, help: str = "Stragglers tolerated, s") -> Any:
    """Stragglers for sizes that do not give theirs."""
    more = " Several: 2,4 or 0:8." * several
    return option(
        None,
        f"{help}: how many, or a fraction of n such as 0.2.{more} (default: {default})",
        *("--stragglers", "-s"),
        metavar="COUNTS" if several else "COUNT",
    )


def partitions(**limits: Any) -> Any:
    help = "Partitions of the data, k. (default: n)"
    return option(None, help, "--partitions", "-k", **limits)


def delays(
    default: Any = DELAYS, help: str = "How late workers are, in seconds", more: str = ""
) -> Any:
    """Delays, as a text that `fastgc.delays.parse` reads."""
    said = f"{help}: {COMMON}{{other delays}}. --delays help explains these and all other forms."
    return option(default, said + more, callback=_explain_delays, is_eager=True)


def _explain_delays(given: Any) -> Any:
    """Print all forms of delays and end, if `given` is "help"."""
    if given != "help" and given != ["help"]:
        return given
    for form, meaning in FORMS:
        echo(f"{form}\n    {meaning}")
    if names := others():
        echo(f"{', '.join(names)}\n    added by others")
    raise typer.Exit


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
        f"Late workers finish {what} they are working on before they start on a new round, as "
        "workers of real engines do. Otherwise they drop it when a round ends.",
        "--finish",
    )


def processors(more: str = "") -> Any:
    """Processors, as `numbers` reads them."""
    return option(
        "",
        "How many processors the workers share, such as 2, or the processor of each worker, such "
        f"as 0/0/1/1. {more}Default: one processor per worker.",
    )


def recorded(help: str = "Take the times in this file instead of --delays") -> Any:
    """Recorded times, as `fastgc.cli.values.read_recorded` reads them."""
    return option(
        None,
        f"{help}: what plan --record wrote, or a table of rounds and workers (csv, txt, npy, npz, "
        "json, parquet). The file says how many workers there are. For a table, --cost says how "
        "many seconds of each time one partition takes.",
        metavar="FILE",
    )


def unit() -> Any:
    return option("s", "Unit of the times in a table: s, ms, us or ns.")


def per() -> Any:
    return option(
        "round",
        "What a time in a table measures: a worker's whole round (round), or the computation of "
        "one partition (computation).",
    )


def figures(kind: str, help: str = "") -> Any:
    """A file of figures; without a name, figures are printed."""
    help = help or f"Write all figures to this file as {kind.upper()}"
    help = f"{help}; with - or no name, print that instead of the table."
    return option(None, help, f"--{kind}", metavar="FILE", allow_dash=True)


def latex() -> Any:
    """A file of tables for LaTeX."""
    return option(
        None,
        "Also write the tables to this file, for LaTeX with the package booktabs, and longtable if "
        "one has over 40 rows.",
        metavar="FILE",
    )


def markdown() -> Any:
    return option(False, "Print tables as Markdown.", "--markdown")


_PICTURES = "this file (png, svg, pdf, eps)"


def picture(help: str) -> Any:
    """A file to draw to; ``this file`` in `help` gets the list of types."""
    return option(None, help.replace("this file", _PICTURES), metavar="FILE")


def width() -> Any:
    """Width of pictures, as in `fastgc.plotting.style`."""
    return option(
        "double",
        "Width of pictures: single (a column of a paper with two), double (its page), or slide. "
        "Letters suit it.",
    )


def timeline(of: str) -> Any:
    return option(
        None,
        f"Draw the first three rounds of each {of} to {_PICTURES}: who computed "
        "when, who was waited for, whose messages were decoded.",
        metavar="FILE",
    )
