"""Options of several commands, and how commands read them: codes, sizes, the times of workers.

Each option is declared once, by a function of its name. Sizes are as in ``-n 20 -s 4``, ``-n
80/12,256/32``, ``-n 10,20 -s 0:8``. Times are those of a model of delays, or recorded ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import typer

from .._base.text import duration
from ..codes import catalogue
from ..coding.arguments import check_stragglers
from ..delays.interface import described
from ..delays.text import COMMON, FORMS
from .common import Options, argument, echo, is_given, option

if TYPE_CHECKING:
    from .._base.arrays import Floats
    from ..delays import DelayModel
    from ..delays.interface import Per
    from ..planning.simulation import Simulation

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


def named(given: Sequence[str] | None) -> list[str]:
    """Return the codes given, separated by blanks or commas."""
    return catalogue.split(",".join(given or ()))


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


def partitions() -> Any:
    return option(None, "Partitions of the data, k. (default: n)", "--partitions", "-k")


def delays(default: str = DELAYS, help: str = "How late workers are, in seconds") -> Any:
    """Delays, as a text that `fastgc.delays.parse` reads."""
    said = f"{help}: {COMMON}. --delays help explains these and all other forms."
    return option(default, said, callback=_explain_delays, is_eager=True)


def _explain_delays(given: Any) -> Any:
    """Print all forms of delays and end, if `given` is "help"."""
    if given != "help":
        return given
    for form, meaning in FORMS:
        echo(f"{form}\n    {meaning}")
    raise typer.Exit


def cost(help: str = "Seconds to compute one partial gradient.") -> Any:
    return option(0.0, help, min=0.0)


_MANY, _FEWEST = 5_000, 5


def repeats(default: int, help: str) -> Any:
    """How often to repeat what takes the longer the more workers there are; see `repeated`."""
    fewer = f"over {_MANY:,} workers: {default * _MANY:,} / n, but at least {_FEWEST}"
    return option(None, f"{help} (default: {default:,}; {fewer})", min=1)


def repeated(given: int | None, default: int, n: int) -> int:
    """Return the repeats asked for, or else the default of `repeats` for n workers."""
    return min(default, max(_FEWEST, default * _MANY // n)) if given is None else given


def seed(help: str = "Seed of delays and random codes.") -> Any:
    return option(0, help, min=0)


def finish(what: str = "the message") -> Any:
    return option(
        False,
        f"Late workers finish {what} they are working on before they start on a new round, as "
        "workers of real engines do. Otherwise they drop it when a round ends.",
        "--finish",
    )


def unit() -> Any:
    return option(None, "Unit of the times in a table: s, ms, us or ns. (default: s)")


def columns() -> Any:
    return option(
        None,
        "Which columns of a table are times: names or numbers from 1, separated by commas. "
        "Default: all but those that number rows.",
        metavar="LIST",
    )


def listed_columns(text: str | None) -> list[str] | None:
    """Return the columns that --columns lists."""
    return None if text is None else [each.strip() for each in text.split(",")]


def figures(kind: str, help: str = "") -> Any:
    """A file of figures; without a name, figures are printed."""
    help = help or f"Write all figures to this file as {kind.upper()}"
    help = f"{help}; with - or no name, print that instead of the table."
    return option(None, help, f"--{kind}", metavar="FILE", allow_dash=True)


def latex() -> Any:
    """A file of tables for LaTeX."""
    return option(None, "Also write the tables here, for LaTeX with booktabs.", metavar="FILE")


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
        "Letters have its size.",
    )


def title() -> Any:
    return option(
        None, 'Title of pictures, in place of what they show; "" for none, as papers have captions.'
    )


# ------------------------------------------------------------------------------------------ sizes

_RANGE = re.compile(r"(\d{1,9})(?::(\d{1,9})(?::([1-9]\d{0,8}))?)?")
_MOST = 10_000  # numbers in a range, at most
_FRACTION = re.compile(r"0?\.\d{1,15}")


class Size(Options):
    """The size of codes."""

    workers: str = workers()
    stragglers: str | None = stragglers("n/5")


def size_of(what: Any, n: int | None = None, default: int | None = None) -> tuple[int, int]:
    """Return the workers and stragglers that options give; raise ValueError unless s < n.

    `n` takes the place of the option. `default` is the stragglers if no option gives them, by
    default a fifth of the workers.
    """
    s = None
    if n is None:
        found = _sizes(what.workers, what.stragglers)
        if len(found) != 1:
            raise ValueError(
                f"--workers: this command takes one size, as in 20 or 20/4, not {what.workers!r}"
            )
        n, s = found[0]
    if s is None and what.stragglers is not None:
        s = one_count("--stragglers", what.stragglers, n)
    if s is None:
        s = n // 5 if default is None else default
    return n, check_stragglers(s, n)


def one_count(option: str, text: str, n: int | None = None) -> int:
    """Return a number, or a fraction of n workers; raise ValueError unless the text is one."""
    found = counts(option, text, n)
    if len(found) != 1:
        raise ValueError(f"{option}: this command takes one number, as in 4, not {text!r}")
    return found[0]


def pairs(workers: str, stragglers: str | None, default: str) -> list[tuple[int, int]]:
    """Return pairs of workers n and stragglers s < n; `default` is s if none are given."""
    given = default if stragglers is None else stragglers
    found = [
        (n, check_stragglers(each, n))
        for n, s in _sizes(workers, stragglers)
        for each in ([s] if s is not None else counts("--stragglers", given, n))
    ]
    return list(dict.fromkeys(found))


def _sizes(text: str, stragglers: str | None) -> list[tuple[int, int | None]]:
    """Return numbers of workers, each with the stragglers that its size gives, or None."""
    found: list[tuple[int, int | None]] = []
    for part in _parts("--workers", text):
        numbers, slash, own = part.partition("/")
        s = one_count("--workers", own) if slash else None
        found += [(n, s) for n in counts("--workers", numbers)]
    if min(n for n, _ in found) < 1:
        raise ValueError(f"--workers: there must be at least one worker, not {text!r}")
    if stragglers is not None and all(s is not None for _, s in found):
        raise ValueError(f"--workers {text} names the stragglers: leave out --stragglers")
    return found


def counts(option: str, text: str, n: int | None = None) -> list[int]:
    """Return the numbers in a list of numbers, ranges, and fractions of n workers."""
    found: list[int] = []
    for part in _parts(option, text):
        if match := _RANGE.fullmatch(part):
            first = int(match[1])
            last = first if match[2] is None else int(match[2])
            if last < first:
                raise ValueError(f"{option}: {part!r} has its larger end first")
            numbers = range(first, last + 1, int(match[3] or 1))
            if len(numbers) > _MOST:
                raise ValueError(f"{option}: {part!r} has more than {_MOST} numbers")
            found += numbers
        elif n is not None and _FRACTION.fullmatch(part):
            found.append(int(Fraction(part) * n))
        else:
            more = ", nor a fraction of n such as 0.2" * (n is not None)
            raise ValueError(
                f"{option}: {part!r} is neither a number nor a range such as 0:8 or 0:8:2{more}"
            )
    return found


def _parts(option: str, text: str) -> list[str]:
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError(f"{option} must name a number, as in 10,20 or 0:8")
    return found


# ------------------------------------------------------------------------------------------ times


class Recorded(Options):
    """Recorded times, as `read_recorded` reads them."""

    recorded: Path | None = option(
        None,
        "Take the times in this file instead of --delays: a table of rounds and workers (csv, txt, "
        "npy, npz, json, parquet). It says how many workers there are; --cost says how many "
        "seconds of each time one partition takes.",
        metavar="FILE",
    )
    unit: str | None = unit()
    columns: str | None = columns()
    per: str = option(
        "round",
        "What a time in a table measures: a worker's whole round (round), or the computation of "
        "one partition (computation).",
    )


class Simulated(Options):
    """The computation of workers in simulated rounds."""

    cost: float = cost()
    finish: bool = finish()


class Recording(NamedTuple):
    """Times of all workers in rounds that waited for all of them, for one partition each."""

    times: Floats  # (rounds, n) seconds, from handing out the parameters to the worker's answer
    cost: float  # seconds that another partition adds; 0 if times are per computation
    source: str
    per: Per

    @property
    def delays(self) -> DelayModel:
        """The times without `cost`, as a model that draws whole rounds."""
        from ..delays import Empirical

        return Empirical((self.times - self.cost).clip(min=0.0), self.per)


class Source(NamedTuple):
    """The times of workers in a command."""

    model: DelayModel | None
    text: str  # a description
    recording: Recording | None = None

    @property
    def said(self) -> str:
        """The description for a caption."""
        kind = "delays" if self.recording is None else "times"
        return f"{kind}: {self.text.strip()}"

    @property
    def n(self) -> int | None:
        """Number of workers of recorded times; None for a model."""
        return None if self.recording is None else self.recording.times.shape[1]

    def cost(self, given: Any, k: int) -> Any:
        """Return the seconds for one of k partitions: as given, or as recorded."""
        if self.recording is None:
            return given
        # The recorded cost is of one of n partitions of the same data.
        return self.recording.cost * self.recording.times.shape[1] / k

    def interrupted(self, finish: bool) -> bool:
        """Whether late workers drop their computation; recorded workers always finish it."""
        return not finish and self.recording is None


def source_of(context: typer.Context, what: Any) -> Source:
    """Return the times of --recorded, or else those of --delays."""
    recording = read_recorded(context, what, "workers", "delays")
    if recording is not None:
        return Source(recording.delays, recording.source, recording)
    from ..delays import parse

    return Source(parse(what.delays), what.delays)


def read_recorded(context: typer.Context, what: Any, *names: str) -> Recording | None:
    """Return the times of --recorded, or None without it.

    `what` holds --recorded, --cost, --unit and --per. Raises ValueError if the command line gives
    one of `names`, which the times replace, or describes a table and names none.
    """
    if what.recorded is None:
        for name in ("per", "unit", "columns"):
            if is_given(context, name):
                raise ValueError(f"--{name} describes a table: name the table by --recorded")
        return None
    from ..delays.interface import check_per

    for name in names:
        if is_given(context, name):
            raise ValueError(f"--{name} and --recorded exclude each other: leave out --{name}")
    per: Any = what.per.lower()
    check_per(per)
    cost = what.cost if is_given(context, "cost") else None
    return recording_of(what.recorded, cost, what.unit, per, listed_columns(what.columns))


def recording_of(
    file: Path, cost: float | None, unit: str | None, per: Per, columns: list[str] | None
) -> Recording:
    """Read recorded times; raise ValueError if they need a cost and have none, or too large a one.

    Further errors are those of `fastgc.delays.Empirical.read`.
    """
    from ..delays import Empirical

    times = Empirical.read(file, unit, per, columns).samples
    if times.ndim != 2:
        raise ValueError(
            f"{file}: to plan, there must be times of several rounds and workers, not a single row "
            f"or column of {times.size}"
        )
    if cost is None and per == "round":
        raise ValueError(
            f"{file}: give --cost, how many seconds of each time compute one partition (0 if "
            "none), or --per computation if all do"
        )
    if cost and per == "computation":
        raise ValueError(f"{file}: times per computation have no further cost, not {cost:g}")
    if cost and cost > (middle := float(np.median(times))):
        raise ValueError(
            f"{file}: a cost of {duration(cost)} is more than half of the times take, whose median "
            f"is {duration(middle)}: is their unit {unit or 's'}, the cost in seconds?"
        )
    rounds, workers = times.shape
    return Recording(times, cost or 0.0, f"{rounds} rounds of {workers} workers, {file.name}", per)


def say_unknown(model: DelayModel | None, found: Iterable[tuple[str, Simulation]]) -> None:
    """Print a warning if it is unknown whether simulated means exist."""
    names = dict.fromkeys(name for name, each in found if each.mean_exists is None)
    if names:
        echo(
            f"the mean time of {', '.join(names)} may not exist: {described(model)} does not say "
            "how heavy its tails are (tail_indices), or a code does not say how many stragglers it "
            "tolerates",
            err=True,
        )
