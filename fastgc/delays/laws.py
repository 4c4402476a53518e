"""Delays that compiled simulations draw by themselves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .distributions import Distribution, Exponential, Pareto, ShiftedExponential
from .interface import DelayModel
from .mixtures import Heterogeneous

__all__ = ["Law", "law_of"]

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
