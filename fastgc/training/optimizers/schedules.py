"""Learning rates that change from round to round.

A schedule is a function of the round, counted from 0: a factor of the optimizer's learning rate.
`fastgc.train` takes one. In your own loop, write::

    optimizer.lr = lr * schedule(round)

Schedules depend only on the round and have no state: a run that resumes from a checkpoint takes the
same steps as without the interruption.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..._base.arrays import at_least, check_real
from ..._base.registry import Registry, keywords, read_arguments, split_arguments

Schedule = Callable[[int], float]


class CosineDecay:
    """Half a cosine from 1 down to a floor (Loshchilov and Hutter 2017), without restarts.

    In round t the factor is floor + (1 - floor) (1 + cos(pi (t - warmup) / (rounds - warmup))) / 2,
    their equation (5), and from `rounds` on it is the floor. Before that, in the rounds of the
    warm-up, it is (t + 1) / (warmup + 1).

    Parameters
    ----------
    rounds : int
        Rounds of the run, more than those of the warm-up.
    warmup : int
        Rounds of a linear rise (Goyal et al. 2017, section 2.2).
    floor : float
        In [0, 1].

    Raises
    ------
    TypeError, ValueError
        If a parameter has a wrong type or is out of range.
    """

    def __init__(self, rounds: int, warmup: int = 0, floor: float = 0.0) -> None:
        self.warmup = at_least("warmup", warmup, 0)
        self.rounds = at_least("rounds", rounds, 1)
        if self.rounds <= self.warmup:
            raise ValueError(f"of {rounds} rounds, {warmup} are too many for the warm-up")
        self.floor = _share("floor", floor)

    def __repr__(self) -> str:
        return f"CosineDecay(rounds={self.rounds}, warmup={self.warmup}, floor={self.floor})"

    def __call__(self, round: int) -> float:
        """Return the factor of the learning rate in a round, counted from 0."""
        round = at_least("round", round, 0)
        if round < self.warmup:
            return (round + 1) / (self.warmup + 1)
        done = min(1.0, (round - self.warmup) / (self.rounds - self.warmup))
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


class StepDecay:
    """Falls by a factor in every `every`-th round: factor^floor(t / every) in round t.

    In the rounds of the warm-up this is multiplied by (t + 1) / (warmup + 1).

    Parameters
    ----------
    every : int
        Rounds between steps.
    factor : float
        In [0, 1].
    warmup : int
        Rounds of a linear rise (Goyal et al. 2017, section 2.2).

    Raises
    ------
    TypeError, ValueError
        If a parameter has a wrong type or is out of range.
    """

    def __init__(self, every: int, factor: float = 0.1, warmup: int = 0) -> None:
        self.every = at_least("every", every, 1)
        self.factor = _share("factor", factor)
        self.warmup = at_least("warmup", warmup, 0)

    def __repr__(self) -> str:
        return f"StepDecay(every={self.every}, factor={self.factor}, warmup={self.warmup})"

    def __call__(self, round: int) -> float:
        """Return the factor of the learning rate in a round, counted from 0."""
        round = at_least("round", round, 0)
        risen = min(1.0, (round + 1) / (self.warmup + 1))
        return float(self.factor ** (round // self.every) * risen)


SCHEDULES = Registry("schedule", "fastgc.schedules")
SCHEDULES.register("cosine", CosineDecay)
SCHEDULES.register("step", StepDecay)


def parse(text: str, rounds: int) -> Schedule:
    """Read a schedule from text, as on a command line.

    Parameters
    ----------
    text : str
        ``"cosine"``, ``"cosine:warmup=10,floor=0.01"``, ``"step:every=50,factor=0.1"``, or a class
        that can be imported, ``"module:Class:key=value"``.
    rounds : int
        Rounds of the run, for schedules that need them and texts that do not give them.

    Raises
    ------
    ValueError
        If it is none of these, or an argument is missing, unknown or out of range.
    TypeError, ImportError
        As the class does, and if it cannot be imported.
    """
    found = SCHEDULES.resolve(text)
    listed = found.listed
    if "rounds" in keywords(found.factory)[0] and "rounds" not in split_arguments(listed):
        listed = f"rounds={rounds},{listed}"
    schedule: Schedule = found.factory(**read_arguments(found.factory, listed, found.name))
    if not callable(schedule):
        raise TypeError(f"{text} makes {schedule!r}, no function of the round")
    return schedule


def _share(what: str, value: float) -> float:
    number = check_real(what, value)
    if number > 1:
        raise ValueError(f"{what} must lie in [0, 1], not {value}")
    return number
