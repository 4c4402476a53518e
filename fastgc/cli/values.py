"""What several commands read from their options: sizes, and the times of workers.

Sizes are as in ``-n 20 -s 4``, ``-n 80/12,256/32``, ``-n 10,20 -s 0:8``. Times are those of a model
of delays, or recorded ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import typer

from ..delays.interface import described
from . import options
from .common import Options, echo, is_given, numbers

if TYPE_CHECKING:
    from ..delays import DelayModel
    from ..planning import Recording
    from ..simulation import Simulation

_RANGE = re.compile(r"(\d{1,9})(?::(\d{1,9})(?::([1-9]\d{0,8}))?)?")
_MOST = 10_000  # numbers in a range, at most
_FRACTION = re.compile(r"0?\.\d{1,15}")


class Size(Options):
    """The size of codes."""

    workers: str = options.workers()
    stragglers: str | None = options.stragglers("n/5")


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
    if not 0 <= s < n:
        raise ValueError(f"stragglers must be in 0 .. n-1 = {n - 1}, not {s}")
    return n, s


def one_count(option: str, text: str, n: int | None = None) -> int:
    """Return a number, or a fraction of n workers; raise ValueError unless the text is one."""
    found = counts(option, text, n)
    if len(found) != 1:
        raise ValueError(f"{option}: this command takes one number, as in 4, not {text!r}")
    return found[0]


def pairs(workers: str, stragglers: str | None, default: str) -> list[tuple[int, int]]:
    """Return pairs of workers and stragglers; `default` is the stragglers if none are given."""
    given = default if stragglers is None else stragglers
    found = [
        (n, each)
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
    if option == "--workers" and min(found) < 1:
        raise ValueError(f"{option}: there must be at least one worker, not {text!r}")
    return found


def _parts(option: str, text: str) -> list[str]:
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError(f"{option} must name a number, as in 10,20 or 0:8")
    return found


class Recorded(Options):
    """Recorded times."""

    recorded: Path | None = options.recorded()
    unit: str = options.unit()
    per: str = options.per()


class Simulated(Options):
    """The computation of workers in simulated rounds."""

    cost: float = options.cost()
    processors: str = options.processors()
    finish: bool = options.finish()


class Source(NamedTuple):
    """The times of workers in a command."""

    model: DelayModel | None
    text: str  # a description
    recording: Recording | None = None

    @classmethod
    def of(cls, recording: Recording) -> Source:
        """Make a source of recorded times."""
        return cls(recording.delays, recording.source, recording)

    @property
    def said(self) -> str:
        """The description for a caption."""
        kind = "delays" if self.recording is None else "times"
        return f"{kind}: {self.text.strip()}"

    @property
    def n(self) -> int | None:
        """Number of workers of recorded times; None for a model."""
        return None if self.recording is None else self.recording.times.shape[1]

    def processors(self, text: str) -> Any:
        """Return the processors that an option gives, or else those of the recording."""
        if text or self.recording is None:
            return processors_of(text)
        return self.recording.processors

    def cost(self, given: Any, k: int, processors: Any) -> Any:
        """Return the seconds of a lone worker for one of k partitions: as given, or as recorded."""
        if self.recording is None:
            return given
        from ..simulation.rounds import crowding

        n = self.recording.times.shape[1]
        # The recorded cost is of one of n partitions of the same data.
        alone = self.recording.cost / crowding(n, processors) * n / k
        return float(alone[0]) if (alone == alone[0]).all() else alone

    def interrupted(self, finish: bool) -> bool:
        """Whether late workers drop their computation; recorded workers always finish it."""
        return not finish and self.recording is None


def source_of(context: typer.Context, what: Any) -> Source:
    """Return the times of --recorded, or else those of --delays."""
    recording = read_recorded(context, what, "workers", "delays")
    if recording is not None:
        return Source.of(recording)
    from ..delays import parse

    return Source(parse(what.delays), what.delays)


def refuse_recorded(context: typer.Context, instead: str, *names: str) -> None:
    """Raise ValueError if the command line gives an option that recorded times replace."""
    for name in names:
        if is_given(context, name):
            raise ValueError(f"--{name} and {instead} exclude each other: leave out --{name}")


def read_recorded(context: typer.Context, what: Any, *names: str) -> Recording | None:
    """Return the times of --recorded, or None without it.

    `what` holds --recorded, --cost, --unit and --per. Raises ValueError if the command line gives
    one of `names`, which the times replace, or describes a table and names none.
    """
    if what.recorded is None:
        for name in ("per", "unit"):
            if is_given(context, name):
                raise ValueError(f"--{name} describes a table: name the table by --recorded")
        return None
    from ..delays.interface import check_per
    from ..planning import Recording

    refuse_recorded(context, "--recorded", *names)
    per: Any = what.per.lower()
    check_per(per)
    cost = what.cost if is_given(context, "cost") else None
    return Recording.read(what.recorded, cost, what.unit, per)


def processors_of(text: str) -> Any:
    """Return a number or a list of numbers, or None for an empty text."""
    if not text:
        return None
    found = numbers(
        "--processors",
        text,
        "how many there are, as in 2, or name the one of each worker, as in 0/0/1/1",
    )
    return found if len(found) > 1 else found[0]


def processors_said(processors: Any) -> str:
    """Describe the processors of workers in words."""
    if processors is None:
        return "a processor for each worker"
    if np.ndim(processors):
        return f"{np.unique(processors).size} processors"
    return f"{processors:.3g} processors for all"


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
