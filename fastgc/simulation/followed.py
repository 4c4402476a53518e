"""Simulated rounds, message by message: what `simulate` averages over, to be looked at."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import at_least, check_cost, check_real
from .._shown import duration, plural
from ..codes import Code
from ..delays import DelayModel
from ..delays.interface import check_model
from .monte_carlo import _draw, _Rounds, require_mean
from .shared import Shared

__all__ = ["Followed", "FollowedRound", "follow"]


class FollowedRound(NamedTuple):
    """One simulated round, message by message.

    Attributes
    ----------
    round : int
        From 1.
    time : float
        Seconds from the beginning of the first round to the end of this one.
    wait : float
        Seconds from the hand-off of the parameters until the gradient could be decoded; inf if it
        never could.
    received : (messages,) int64 array
        Numbers of the messages that had come by then, in order of arrival.
    arrivals : (messages,) float64 array
        When the master had each of them, in seconds from the hand-off.
    decode : float
        Seconds for decoding: 0, for it is not simulated.
    """

    round: int
    time: float
    wait: float
    received: NDArray[np.int64]
    arrivals: NDArray[np.float64]
    decode: float = 0.0

    def __repr__(self) -> str:
        return (
            f"FollowedRound(round {self.round}: waited {duration(self.wait)} for "
            f"{plural(len(self.received), 'message')})"
        )


class Followed(NamedTuple):
    """Simulated rounds, for `fastgc.plotting.timeline`.

    Attributes
    ----------
    rounds : list of FollowedRound
    message_counts : tuple of int
        Messages that each worker sends in a round.
    """

    rounds: list[FollowedRound]
    message_counts: tuple[int, ...]


def follow(
    code: Code,
    delays: DelayModel | None = None,
    *,
    cost: ArrayLike = 0.0,
    receive: float = 0.0,
    overhead: float = 0.0,
    rounds: int = 3,
    seed: int = 0,
    interrupted: bool = True,
    processors: ArrayLike | None = None,
) -> Followed:
    """The first rounds that `simulate` simulates, with who sent what when.

    Parameters
    ----------
    code, delays, cost, receive, overhead, seed, interrupted, processors
        As of `simulate`: the rounds are those of its ``method="round"``, for the same arguments, or
        where processors are shared, of its only one.
    rounds : int
        How many.

    Returns
    -------
    Followed

    Raises
    ------
    TypeError, ValueError
        As of `simulate`.

    Examples
    --------
    >>> import fastgc
    >>> code = fastgc.BinaryCode(12, stragglers=3)
    >>> late = fastgc.delays.Exponential(0.01)  # seconds
    >>> followed = fastgc.simulation.follow(code, late, cost=1e-3)
    >>> run = fastgc.simulation.simulate(code, late, cost=1e-3, rounds=3)
    >>> [each.wait for each in followed.rounds] == run.times.tolist()
    True
    >>> ax = fastgc.plotting.timeline(followed)
    """
    if not isinstance(code, Code):
        raise TypeError(f"code must be a code of fastgc, not {code!r}")
    check_model(delays)
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    receive, overhead = check_real("receive", receive), check_real("overhead", overhead)
    work = check_cost(code.n, cost) * code.loads
    interrupted = bool(interrupted)
    require_mean(code, delays, interrupted)
    run: _Followed | _FollowedShared = _Followed(code)
    if processors is not None:
        run = _FollowedShared(code, processors)
    late, found, now = np.zeros(code.n), list[FollowedRound](), 0.0
    for first, count, drawn in _draw(code, delays, work, receive, rounds, seed, rounds):
        run(drawn, first, count, late, receive, overhead, interrupted)
    for number, (wait, received, arrivals) in enumerate(run.seen, 1):
        now += wait + overhead
        found.append(FollowedRound(number, now, wait, received, arrivals))
    return Followed(found, tuple(code.message_counts))


class _Followed(_Rounds):
    """Rounds that keep what came when."""

    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.seen: list[tuple[float, NDArray[np.int64], NDArray[np.float64]]] = []

    def _one(
        self,
        wait: NDArray[np.float64],
        work: NDArray[np.float64],
        late: NDArray[np.float64],
        receive: float,
        *rest: Any,
    ) -> tuple[float, int, int, int]:
        arrival = self._arrivals(late + wait, work)
        found = super()._one(wait, work, late, receive, *rest)
        received = np.argsort(arrival, kind="stable")[: found[1]]
        self.seen.append((found[0], received, _through(arrival[received], receive)))
        return found


class _FollowedShared(Shared):
    """The same of workers that share processors."""

    def __init__(self, code: Code, processors: ArrayLike) -> None:
        super().__init__(code, processors)
        self.seen: list[tuple[float, NDArray[np.int64], NDArray[np.float64]]] = []

    def _one(
        self, wait: list[float], work: list[float], receive: float, *rest: Any
    ) -> tuple[float, int, int, int]:
        found = super()._one(wait, work, receive, *rest)
        times = _through(np.array(self.moments), receive)
        self.seen.append((found[0], np.array(self.order, dtype=np.int64), times))
        return found


def _through(times: NDArray[np.float64], receive: float) -> NDArray[np.float64]:
    """When messages are through that arrive then, in order: the link takes one after another."""
    if not receive > 0:
        return times
    at = np.arange(times.size)
    through: NDArray[np.float64] = np.maximum.accumulate(times - receive * at) + receive * (at + 1)
    return through
