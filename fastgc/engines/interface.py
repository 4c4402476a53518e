"""What every engine offers, and what they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Sized
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from .._arrays import at_least, check_real
from ..codes import Code, GroupedRound, Round
from ..delays import DelayModel

__all__ = [
    "Batch",
    "Cluster",
    "Collected",
    "Gradient",
    "RoundReport",
    "check_cluster",
    "check_round",
    "sample_delays",
]

Array = NDArray[Any]

# gradient(theta, shard, out), batch(shard, partition, round)
Gradient = Callable[[Array, Any, Array], object]
Batch = Callable[[Any, int, int], Any]
Collected = Round | GroupedRound


class RoundReport(NamedTuple):
    """What one round took.

    Attributes
    ----------
    round : int
        The number of the round, from 0.
    survivors : ndarray of int
        The workers heard from before the gradient could be decoded, in order of their first
        messages; in a round of groups, those whose messages were of use.
    messages : int
        The messages received by then.
    wait_seconds : float
        From the hand-off of the parameters to the message that made the round ready.
    decode_seconds : float
        What decoding took after that.
    stale : int
        Messages of earlier rounds that arrived since the last report and were dropped.
    lost : tuple of int
        The workers whose processes have died so far.
    received : ndarray of int
        The numbers of the messages used, in order of arrival.
    arrivals : ndarray of float
        When the master had each of them, in seconds from the hand-off.
    """

    round: int
    survivors: NDArray[np.int64]
    messages: int
    wait_seconds: float
    decode_seconds: float
    stale: int
    lost: tuple[int, ...]
    received: NDArray[np.int64]
    arrivals: NDArray[np.float64]


class Cluster(Protocol):
    """Workers of a code, whatever they run on.

    Made of ``(code, shards, gradient, size, dtype, delays, seed, timeout, message_dtype, tracker,
    batch)``, as `LocalCluster` is; leaving its ``with`` block ends the workers.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def clock(self) -> float:
        """Seconds of the time that rounds take, from some moment on."""
        ...

    def step(self, theta: Array, out: Array) -> RoundReport:
        """Run one round, and decode the gradient to `out`."""
        ...

    def collect(
        self, theta: Array, rnd: Collected, workers: Iterable[int] | None = None
    ) -> RoundReport:
        """Run one round of some workers, and leave it to `rnd` to decode."""
        ...

    def close(self) -> None:
        """End the workers; a second call does nothing."""
        ...


def check_cluster(
    code: Code,
    shards: Sequence[Any],
    gradient: Gradient,
    size: int,
    delays: DelayModel | None,
    seed: int,
    timeout: float | None,
    batch: Batch | None,
) -> tuple[int, float | None]:
    """Check the arguments that all engines take; `size` and `timeout` as numbers."""
    if not isinstance(code, Code):
        raise TypeError(f"code must be a code of fastgc, not {code!r}")
    if delays is not None and not hasattr(delays, "sample"):
        raise TypeError(f"delays must be a model of fastgc.delays, or sample like one: {delays!r}")
    if not isinstance(shards, Sized):
        raise TypeError(f"shards must be a sequence, got {type(shards).__name__}")
    if len(shards) != code.shard_count:
        raise ValueError(f"code has {code.shard_count} partitions, got {len(shards)} shards")
    for name, function in (("gradient", gradient), ("batch", batch)):
        if not callable(function) and (name == "gradient" or function is not None):
            raise TypeError(f"{name} must be callable, got {type(function).__name__}")
    at_least("seed", seed, 0)
    if timeout is not None and timeout != math.inf:
        timeout = check_real("timeout", timeout, positive=True)
    return at_least("size", size, 1), timeout


def check_round(rnd: Collected, own: Round) -> None:
    """Raise unless messages for a cluster's own round are such as this one takes."""
    if not isinstance(rnd, Round | GroupedRound):
        raise TypeError(f"rnd must be a round of the cluster's code, not {rnd!r}")
    if rnd.code is not own.code or rnd._form != own._form:
        raise ValueError("rnd must be a round of the cluster's code, size and types")


def sample_delays(
    model: DelayModel | None, loads: NDArray[np.int64], number: int, seed: int
) -> list[float]:
    """Seconds that each worker sleeps in a round."""
    n = loads.size
    if model is None:
        return [0.0] * n
    delays = np.asarray(model.sample(number, n, seed), dtype=np.float64)
    if delays.shape != (n,):
        raise ValueError(f"delays must have shape ({n},), got {delays.shape}")
    if not (delays >= 0.0).all():
        raise ValueError(f"delays must not be negative or NaN, got {delays}")
    if getattr(model, "per", "round") == "computation":
        delays = delays * loads
    return list(delays.tolist())
