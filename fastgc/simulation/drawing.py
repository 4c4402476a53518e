"""How late workers are in simulated rounds: drawn by kernels, or by the delay model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .._arrays import as_array, check_reals
from ..codes import Code
from ..delays import (
    DelayModel,
    Distribution,
    Exponential,
    Heterogeneous,
    Pareto,
    ShiftedExponential,
)
from ..delays.interface import described, per_of

__all__ = ["Law", "draw", "law_of"]

# Works take this much of a usual time at least, which is less than any clock could tell: messages
# of a worker come one by one, too, if their computation takes no time.
_LEAST = 2.0**-40

_LARGEST = 37.0  # exponential of mean 1 that is drawn, or more: 53 log(2)
_EXPONENT = 700.0  # of e, at most


class Law(NamedTuple):
    """Of each worker; with h exponential of mean 1 it is late by ``shift + scale h``.

    By ``shift + scale exp(power h)`` where the power is positive. All are float64 arrays of shape
    (n,).
    """

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    power: NDArray[np.float64]


def law_of(delays: DelayModel | None, workers: int) -> Law | None:
    """The law of this model's delays; None if it is not known, or reaches beyond float64."""
    models = delays.models if type(delays) is Heterogeneous else [delays]
    numbers = [_numbers(model) for model in models]
    if None in numbers or len(models) not in (1, workers):
        return None
    each = np.array(numbers, dtype=np.float64).T
    law = Law(*np.repeat(each, workers // len(models), axis=1))
    with np.errstate(over="ignore"):
        most = np.where(law.power > 0, np.exp(law.power * _LARGEST), _LARGEST)
        bounded = np.isfinite(law.shift + law.scale * most).all()
    return law if bounded and law.power.max() * _LARGEST < _EXPONENT else None


def _numbers(model: DelayModel | Distribution | None) -> tuple[float, float, float] | None:
    """Shift, scale and power. By the very type: what is derived from it may be another law."""
    if model is None:
        return 0.0, 0.0, 0.0
    if type(model) is Exponential:
        return 0.0, model.scale, 0.0
    if type(model) is ShiftedExponential:
        return model.shift, 1 / model.rate, 0.0
    if type(model) is Pareto:
        return 0.0, model.scale, 1 / model.shape
    return None


def draw(
    code: Code,
    delays: DelayModel | None,
    work: NDArray[np.float64],
    receive: float,
    rounds: int,
    seed: int,
    step: int,
) -> Iterator[tuple[int, int, kernels.DelayPlan]]:
    """The first of some rounds, their number, and how late workers are in them.

    Where the law of the delays is known, kernels draw them; else the model does, `step` rounds at a
    time, and kernels draw only who of those that answer at the same moment is first.
    """
    n = code.n
    law = law_of(delays, n)
    onset, load = 1.0, np.zeros(n)
    if per_of(delays) == "computation":
        onset, load = 0.0, code.scheme.loads.astype(np.float64)
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    if law is not None:
        usual = float(np.where(law.power > 0, np.exp(law.power), 1.0) @ law.scale + law.shift.sum())
        least = _LEAST * (receive + usual / n or 1.0)
        plan = kernels.DelayPlan.of(key, onset, *law, load, work + least)
        for first in range(0, rounds, step):
            yield first, min(step, rounds - first), plan
        return
    zeros = np.zeros(n)
    assert delays is not None
    for first, drawn in _given(delays, rounds, n, seed, step):
        least = _LEAST * (receive + float(drawn.mean()) or 1.0)
        plan = kernels.DelayPlan.of(key, onset, zeros, zeros, zeros, load, work + least)
        yield first, len(drawn), plan._replace(given=drawn)


def _given(
    delays: DelayModel, rounds: int, n: int, seed: int, step: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The delays of all rounds as the model draws them, `step` rounds at a time, with the first."""
    rng = np.random.default_rng(seed)
    draw = getattr(delays, "draw", None)
    for at in range(0, rounds, step):
        count = min(step, rounds - at)
        if draw is not None:
            drawn = as_array("delays", draw(rng, count, n))
        else:
            rows = [as_array("delays", delays.sample(r, n, seed)) for r in range(at, at + count)]
            try:
                drawn = check_reals("delays", np.array(rows))
            except (TypeError, ValueError):
                raise ValueError(
                    f"delays must be {n} real numbers in each round, from {described(delays)}"
                ) from None
        if drawn.shape != (count, n):
            raise ValueError(f"delays must be an array of shape {(count, n)}, not {drawn.shape}")
        if not ((drawn >= 0) & (drawn < np.inf)).all():
            raise ValueError("delays must be finite and not negative")
        yield at, np.ascontiguousarray(drawn, dtype=np.float64)
