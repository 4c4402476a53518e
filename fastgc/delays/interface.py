"""The interface of a delay model: anything that can be sampled."""

from __future__ import annotations

import inspect
import math
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import as_array

__all__ = [
    "DelayModel",
    "Per",
    "check_model",
    "check_per",
    "described",
    "per_of",
    "sample",
    "tail_bounds",
    "tails",
]

Per = Literal["round", "computation"]
Array = NDArray[np.float64]


class DelayModel(Protocol):
    """What engines, simulation and planning need of a delay model: one method, `sample`.

    They also use the following, as in `fastgc.delays.Delays`, if a model has it:

    - ``per``, ``"round"`` or ``"computation"``: what a time measures. Default: a round.
    - ``draw(rng, rounds, workers)``: many rounds at once, for simulations. Without it they sample
      rounds one by one.
    - ``tail_indices(workers)``: how heavy the tails are, which decides whether means exist. Without
      it, this is unknown.
    """

    def sample(self, round: int, workers: int, seed: int) -> ArrayLike:
        """Delay in seconds of each worker in one round, as in `Delays.sample`."""
        ...


def check_model(delays: Any) -> None:
    """Raise unless it is a delay model, or None; nothing is sampled.

    Raises
    ------
    TypeError
        If it cannot be sampled.
    ValueError
        If its ``per`` is neither ``"round"`` nor ``"computation"``.
    """
    if delays is None:
        return
    if isinstance(delays, type) or not callable(getattr(delays, "sample", None)):
        raise TypeError(
            "delays must be a model of fastgc.delays, or have a method sample(round, workers, "
            f"seed) as these do, not {delays!r}"
        )
    per_of(delays)


def check_per(per: Any) -> None:
    """Raise ValueError unless it says what times are of."""
    if per not in ("round", "computation"):
        raise ValueError(f"per must be 'round' or 'computation', got {per!r}")


def per_of(delays: DelayModel | None) -> Per:
    """What the times are of: a worker's round, unless the model says of each computation."""
    per: Per = getattr(delays, "per", "round")
    check_per(per)
    return per


def sample(delays: DelayModel, round: int, workers: int, seed: int) -> Array:
    """Times of all workers in one round, from any model, checked.

    Raises
    ------
    ValueError
        If they are not one for each worker, or one is negative or NaN. Inf is a worker that never
        answers.
    TypeError
        If they are no real numbers.
    """
    times = as_array("delays", delays.sample(round, workers, seed))
    if times.dtype.kind not in "iuf":
        raise TypeError(f"delays must be real numbers, not {times.dtype}, from {delays!r}")
    if times.shape != (workers,):
        raise ValueError(
            f"delays must have shape ({workers},), got {times.shape} from {described(delays)}"
        )
    if not (times >= 0).all():
        raise ValueError(f"delays must not be negative or NaN, got {times}")
    return times.astype(np.float64)


def tails(delays: DelayModel | None, workers: int) -> Array:
    """Exponent of each worker's tail, as `Delays.tail_indices`; NaN where it is unknown.

    Raises
    ------
    ValueError
        If a model gives something else.
    """
    if delays is None:
        return np.full(workers, math.inf)
    told = getattr(delays, "tail_indices", None)
    if told is None:
        return np.full(workers, math.nan)
    exponents = np.asarray(told(workers), dtype=np.float64)
    if exponents.shape != (workers,) or (exponents < 0).any():
        raise ValueError(
            f"tail_indices must give {workers} exponents, not negative, got {exponents} from "
            f"{described(delays)}"
        )
    return exponents


def tail_bounds(exponents: Array) -> tuple[Array, Array]:
    """The least and the most that exponents of tails can be, ascending: 0 to Inf if unknown."""
    unknown = np.isnan(exponents)
    return np.sort(np.where(unknown, 0.0, exponents)), np.sort(
        np.where(unknown, math.inf, exponents)
    )


def described(delays: object) -> str:
    """What a model is, in words: its repr, if its class has one.

    Of others the class, and what its constructor was given as far as the object has it by the same
    names: two of them that differ in it are two models, though neither says so.
    """
    kind = type(delays)
    if kind.__repr__ is not object.__repr__:
        return repr(delays)
    try:
        names = list(inspect.signature(kind).parameters)
    except (TypeError, ValueError):
        names = []
    held = vars(delays) if hasattr(delays, "__dict__") else {}
    given = [f"{name}={held[name]!r}" for name in names if name in held]
    name = f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}({', '.join(given)})" if given else f"<{name} object>"
