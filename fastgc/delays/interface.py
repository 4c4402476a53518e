"""The interface of a delay model, and checks of any model that has it."""

from __future__ import annotations

import inspect
import math
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Floats, as_array

__all__ = ["DelayModel"]

Per = Literal["round", "computation"]


class DelayModel(Protocol):
    """The interface of a delay model for engines, simulation and planning: one method, `sample`.

    A model may also have the following, as in `fastgc.delays.Delays`:

    - ``per``, ``"round"`` or ``"computation"``: what a time measures. Default: ``"round"``.
    - ``draw(rng, rounds, workers)``: the times of many rounds at once, for simulations. Without it,
      simulations sample rounds one by one.
    - ``tail_indices(workers)``: how heavy the tails are, which decides whether means exist. Without
      it, this is unknown.
    """

    def sample(self, round: int, workers: int, seed: int) -> ArrayLike:
        """Return the delay of each worker in one round, in seconds, as `Delays.sample` does."""
        ...


def check_model(delays: Any) -> None:
    """Raise an error unless `delays` is None, or a delay model with a valid `per`.

    This samples nothing.
    """
    if delays is None:
        return
    if isinstance(delays, type) or not callable(getattr(delays, "sample", None)):
        raise TypeError(
            "delays must be a model of fastgc.delays, or have a method sample(round, workers, "
            f"seed) as these do, not {delays!r}"
            + ("; fastgc.delays.parse makes one of a text" if isinstance(delays, str) else "")
        )
    per_of(delays)


def check_per(per: Any) -> None:
    """Raise ValueError unless `per` is "round" or "computation"."""
    if per not in ("round", "computation"):
        raise ValueError(f"per must be 'round' or 'computation', got {per!r}")


def per_of(delays: DelayModel | None) -> Per:
    """Return what the times of a model measure: its ``per``, or "round" if it has none."""
    per: Per = getattr(delays, "per", "round")
    check_per(per)
    return per


def sample(delays: DelayModel, round: int, workers: int, seed: int) -> Floats:
    """Sample and check the times of all workers in one round, from any model.

    A time of Inf is a worker that never answers. Raises ValueError unless there is one time for
    each worker, not negative and not NaN, and TypeError unless times are real numbers.
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


def tails(delays: DelayModel | None, workers: int) -> Floats:
    """Return the exponent of each worker's tail, as `Delays.tail_indices`; NaN if unknown.

    Raises ValueError if the model's `tail_indices` returns anything else.
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


def tail_bounds(exponents: Floats) -> tuple[Floats, Floats]:
    """Return lower and upper bounds on exponents of tails, each ascending: 0 and Inf if unknown."""
    unknown = np.isnan(exponents)
    least, most = (np.sort(np.where(unknown, bound, exponents)) for bound in (0.0, math.inf))
    return least, most


def described(delays: object) -> str:
    """Describe a model in words: its repr, if its class defines one.

    Otherwise return the class and the arguments of its constructor, as far as the object has
    attributes of the same names. This tells models of one class with different arguments apart.
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
