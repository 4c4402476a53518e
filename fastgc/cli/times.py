"""The times of workers that commands are about: of a model of delays, or recorded ones."""

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
    """Times that were recorded."""

    recorded: Path | None = options.recorded()
    unit: str = options.unit()
    per: str = options.per()


@dataclass(frozen=True)
class Simulated(Options):
    """How workers of simulated rounds compute."""

    cost: float = options.cost()
    processors: str = options.processors()
    finish: bool = options.finish()


class Source(NamedTuple):
    """Times that a command is about."""

    model: DelayModel | None
    text: str  # what they are, in words
    recording: Recording | None = None

    @classmethod
    def of(cls, recording: Recording) -> Source:
        """The recorded times."""
        return cls(recording.delays, recording.source, recording)

    @property
    def said(self) -> str:
        """What they are, in a caption."""
        kind = "delays" if self.recording is None else "times"
        return f"{kind}: {self.text.strip()}"

    @property
    def n(self) -> int | None:
        """Workers of recorded times; a model has any number."""
        return None if self.recording is None else self.recording.times.shape[1]

    def processors(self, text: str) -> Any:
        """What an option says, or else what the recorded workers shared."""
        if text or self.recording is None:
            return processors_of(text)
        return self.recording.processors

    def cost(self, given: Any, k: int, processors: Any) -> Any:
        """Seconds of a worker alone for one of k partitions: as given, or as recorded."""
        if self.recording is None:
            return given
        from ..simulation.rounds import crowding

        n = self.recording.times.shape[1]
        # of one partition where there are n, all of them together the data
        alone = self.recording.cost / crowding(n, processors) * n / k
        return float(alone[0]) if (alone == alone[0]).all() else alone

    def interrupted(self, finish: bool) -> bool:
        """Whether late workers drop what they are at: those that were recorded finish it."""
        return not finish and self.recording is None


def source_of(context: typer.Context, what: Any, *told: str) -> Source:
    """The times of --recorded, or else those of --delays.

    Parameters
    ----------
    context : typer.Context
    what : Recorded
        With ``delays`` and ``cost``.
    *told : str
        Options besides --workers and --delays that recorded times stand for.
    """
    recording = read_recorded(context, what, "workers", "delays", *told)
    if recording is not None:
        return Source.of(recording)
    from ..delays import parse

    return Source(parse(what.delays), what.delays)


def refuse_recorded(context: typer.Context, instead: str, *names: str) -> None:
    """Raise ValueError if the command line says what recorded times tell, whatever its value."""
    for name in names:
        if is_given(context, name):
            raise ValueError(f"--{name} and {instead} exclude each other: leave out --{name}")


def read_recorded(context: typer.Context, what: Any, *names: str) -> Recording | None:
    """The times of --recorded, or None without it; `what` has it, and --cost, --unit and --per.

    Raises ValueError if the command line says one of these options, which the times tell, or what a
    table is of, and there is none.
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
    """A number, or a list of them, or ValueError; None of no text."""
    if not text:
        return None
    found = numbers(
        "--processors",
        text,
        "how many there are, as in 2, or name the one of each worker, as in 0/0/1/1",
    )
    return found if len(found) > 1 else found[0]


def processors_said(processors: Any) -> str:
    """What workers compute on, in words."""
    if processors is None:
        return "a processor for each worker"
    if np.ndim(processors):
        return f"{np.unique(processors).size} processors"
    return f"{processors:.3g} processors for all"


def say_unknown(model: DelayModel | None, found: Iterable[tuple[str, Simulation]]) -> None:
    """Say so if means were simulated of which nobody knows whether they exist."""
    names = dict.fromkeys(name for name, each in found if each.mean_exists is None)
    if names:
        echo(
            f"the mean time of {', '.join(names)} may not exist: {described(model)} does not say "
            "how heavy its tails are (tail_indices), or a code does not say how many stragglers it "
            "tolerates",
            err=True,
        )
