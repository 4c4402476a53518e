"""The times of workers in commands: those of a model of delays, or recorded times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Recorded(Options):
    """Recorded times."""

    recorded: Path | None = options.recorded()
    unit: str = options.unit()
    per: str = options.per()


@dataclass(frozen=True)
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


def source_of(context: typer.Context, what: Any, *told: str) -> Source:
    """Return the times of --recorded, or else those of --delays.

    Parameters
    ----------
    context : typer.Context
    what : Recorded
        The options, including ``delays`` and ``cost``.
    *told : str
        Options, besides --workers and --delays, that recorded times replace.
    """
    recording = read_recorded(context, what, "workers", "delays", *told)
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
