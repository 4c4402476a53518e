"""Delays by several distributions: a random one for each round, or a fixed one for each worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import check_reals
from .distributions import Delays, Distribution, check_probabilities
from .empirical import Empirical
from .interface import Per

__all__ = ["Heterogeneous", "Mixture"]

Array = NDArray[np.float64]


@dataclass(frozen=True, init=False)
class Mixture(Distribution):
    """For each round and worker, one of several distributions, picked independently at random.

    Parameters
    ----------
    models : sequence of Distribution
        The distributions; `per` must be the same for all.
    weights : sequence of float
        Their probabilities, positive, with sum 1.

    Raises
    ------
    ValueError
        If there are no models, or models that cannot be mixed; if there are not as many weights as
        models, or weights that are not such probabilities.
    TypeError
        If a model is not a `Distribution`.
    """

    models: tuple[Distribution, ...]
    weights: tuple[float, ...]

    def __init__(self, models: Sequence[Distribution], weights: Sequence[float]) -> None:
        object.__setattr__(self, "models", _check_models(models))
        each = check_reals("weights", weights)
        if each.shape != (len(self.models),):
            raise ValueError(f"{len(self.models)} models need as many weights, got {each.size}")
        object.__setattr__(self, "weights", tuple(each.tolist()))
        total = math.fsum(self.weights)
        if not (min(self.weights) > 0 and abs(total - 1) < 1e-9):
            raise ValueError(
                f"weights must be positive with sum 1, got {self.weights} with sum {total:g}"
            )

    @property
    def per(self) -> Per:  # type: ignore[override]
        """The `per` of all models."""
        return self.models[0].per

    def cdf(self, t: ArrayLike) -> Array:  # noqa: D102
        # Rounding may add up to more than 1.
        return np.minimum(self._mix([model.cdf(t) for model in self.models]), 1)

    def survival(self, t: ArrayLike) -> Array:  # noqa: D102
        return np.minimum(self._mix([model.survival(t) for model in self.models]), 1)

    def quantile(self, q: ArrayLike) -> Array:  # noqa: D102
        q = check_probabilities(q)
        each = np.stack([model.quantile(q) for model in self.models])
        low, high = each.min(axis=0), each.max(axis=0)
        # Floats that are not negative are in the order of their bits read as integers. Bisection of
        # these integers finds small and large quantiles alike to the last digit.
        low, high = np.asarray(low).view(np.int64), np.asarray(high).view(np.int64)
        inside = (q > 0) & (q < 1)
        while np.any(open_ := inside & (low < high)):
            middle = low + (high - low) // 2
            enough = self.cdf(middle.view(np.float64)) >= q
            high = np.where(open_ & enough, middle, high)
            low = np.where(open_ & ~enough, middle + 1, low)
        time: Array = np.where(q > 0, high, low).view(np.float64)
        return time

    def mean(self) -> float:  # noqa: D102
        return float(self._mix([np.float64(model.mean()) for model in self.models]))

    def tail_indices(self, workers: int) -> Array:  # noqa: D102
        tails: Array = np.min([model.tail_indices(workers) for model in self.models], axis=0)
        return tails

    def _mix(self, values: Sequence[ArrayLike]) -> Array:
        mixed: Array = np.tensordot(self.weights, np.stack(values), 1)
        return mixed

    def _draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Array:
        picks, levels = np.moveaxis(rng.random((rounds, workers, 2)), -1, 0)
        kinds = np.searchsorted(np.cumsum(self.weights[:-1]), picks, side="right")
        drawn = np.empty((rounds, workers))
        for kind, model in enumerate(self.models):
            at = kinds == kind
            drawn[at] = model.quantile(levels[at])
        return drawn

    def knots(self) -> Array:  # noqa: D102
        return _union(self.models)


@dataclass(frozen=True, init=False, repr=False)
class Heterogeneous(Delays):
    """Worker i always has times of ``models[i]``.

    Parameters
    ----------
    models : sequence of n Distribution
        One for each worker; `per` must be the same for all.

    Raises
    ------
    ValueError
        If there are no models, or models that cannot be combined.
    TypeError
        If a model is not a `Distribution`.
    """

    models: tuple[Distribution, ...]

    def __init__(self, models: Sequence[Distribution]) -> None:
        object.__setattr__(self, "models", _check_models(models))

    def __repr__(self) -> str:
        runs = [f"[{model!r}] * {len(list(run))}" for model, run in groupby(self.models)]
        return f"Heterogeneous({' + '.join(runs)})"

    @property
    def per(self) -> Per:  # type: ignore[override]
        """The `per` of all workers' models."""
        return self.models[0].per

    def tail_indices(self, workers: int) -> Array:  # noqa: D102
        self._check_workers(workers)
        return np.concatenate([model.tail_indices(1) for model in self.models])

    def _draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Array:
        self._check_workers(workers)
        drawn = np.empty((rounds, workers))
        for model, columns in self._groups().items():
            drawn[:, columns] = model.draw(rng, rounds, len(columns))
        return drawn

    def _late(self, t: Array, f: int, n: int) -> Array:
        # counts[i]: probability that i of the workers so far are late (Poisson-binomial); the last
        # row is for n - f + 1 or more.
        needed = n - f + 1
        counts = np.zeros((needed + 1, t.size))
        counts[0] = 1
        for model, columns in self._groups().items():
            late = model.survival(t)
            done = model.cdf(t)
            for _ in columns:
                more = counts[:-1] * late
                counts[:-1] *= done
                counts[1:] += more
        enough: Array = counts[-1]
        return enough

    def knots(self) -> Array:  # noqa: D102
        return _union(self.models)

    def _groups(self) -> dict[Distribution, list[int]]:
        """Return the workers of each distinct model."""
        groups: dict[Distribution, list[int]] = {}
        for worker, model in enumerate(self.models):
            groups.setdefault(model, []).append(worker)
        return groups

    def _check_workers(self, workers: int) -> None:
        if workers != len(self.models):
            raise ValueError(f"these are the times of {len(self.models)} workers, not of {workers}")


def _check_models(models: Sequence[Distribution]) -> tuple[Distribution, ...]:
    checked = tuple(models)
    if not checked:
        raise ValueError("at least one model is needed")
    for model in checked:
        if not isinstance(model, Distribution):
            raise TypeError(f"models must be distributions of fastgc.delays, got {model!r}")
        if isinstance(model, Empirical) and model.joint:
            raise ValueError(
                f"{model!r} draws whole rounds, which cannot be taken apart: pool its samples, "
                "samples.ravel()"
            )
        if model.per != checked[0].per:
            raise ValueError(
                f"per must be the same for all models, got {checked[0]!r} and {model!r}"
            )
    return checked


def _union(models: Sequence[Distribution]) -> Array:
    return np.unique(np.concatenate([model.knots() for model in models]))
