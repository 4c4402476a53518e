"""Simulated rounds, with arrays for what comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import numpy as plain
from .choice import own
from .completion import Completion, CompletionPlan
from .delays import DelayPlan

__all__ = ["completion", "draw", "simulate"]


def completion(
    plan: CompletionPlan,
    delay: NDArray[np.float64],
    work: NDArray[np.float64],
    late: NDArray[np.float64],
    receive: float = 0.0,
    overhead: float = 0.0,
    interrupted: bool = True,
    out: Completion | None = None,
) -> Completion:
    """Simulate rounds: when messages suffice, and what had been done by then.

    Message m of worker i arrives ``late[i] + delay[r, i] + work[r, i] * share[m]`` seconds after
    round r began.

    Parameters
    ----------
    plan : CompletionPlan
    delay, work : (rounds, n) float64 array
        Seconds until each worker begins, once it is free, and seconds that all its work takes;
        C-contiguous, finite, not negative.
    late : (n,) float64 array
        Seconds after a round's beginning until each worker is free. Of every round if
        `interrupted`; else of the first round, and overwritten with those of the next one.
    receive : float
        Seconds that the master takes for each message that it hears, one after the other in order
        of arrival.
    overhead : float
        Seconds between the end of a round and the beginning of the next one.
    interrupted : bool
        Whether workers drop what they are at when a round ends. If not, they finish the message
        that they are at when the next round begins, unheard, and then join the newest round.
    out : Completion, optional
        Where to write; arrays of shape (rounds,).

    Returns
    -------
    Completion
        `out`, if given.
    """
    out = Completion.empty(len(work)) if out is None else out
    own(plain.completion)(plan, delay, work, late, receive, overhead, interrupted, out)
    return out


def draw(delays: DelayPlan, first: int, rounds: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Random delays of rounds ``first``, ``first + 1``, ..., with the works.

    They depend on the plan, the round and the number of workers only.

    Parameters
    ----------
    delays : DelayPlan
    first, rounds : int

    Returns
    -------
    wait, whole : (rounds, n) float64 array
        Seconds until each worker begins, once it is free, and seconds that all its work takes: as
        `completion` takes them.
    """
    wait, whole = np.empty((2, rounds, delays.given.shape[1]))
    own(plain.draw)(delays, first, wait, whole)
    return wait, whole


def simulate(
    plan: CompletionPlan,
    delays: DelayPlan,
    first: int,
    rounds: int,
    late: NDArray[np.float64],
    receive: float = 0.0,
    overhead: float = 0.0,
    interrupted: bool = True,
) -> Completion:
    """`completion` of rounds ``first``, ``first + 1``, ..., that are drawn as `draw` does.

    Parameters
    ----------
    plan : CompletionPlan
    delays : DelayPlan
    first, rounds : int
    late, receive, overhead, interrupted
        As of `completion`.

    Returns
    -------
    Completion
    """
    out = Completion.empty(rounds)
    own(plain.simulate)(plan, delays, first, late, receive, overhead, interrupted, out)
    return out
