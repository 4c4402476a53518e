"""Delays made of other models: mixtures, workers that differ, and domains that fail."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Floats, check_real, check_reals
from .distributions import Delays, Distribution, check_counts, check_probabilities
from .empirical import Empirical
from .interface import DelayModel, Per, check_model, per_of, sample, tails

__all__ = ["Heterogeneous", "Mixture", "Outages"]


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
    ValueError, TypeError
        If there are no models, or models that cannot be mixed; if there are not as many weights as
        models, or weights that are not such probabilities; if a model is not a `Distribution`.
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

    def cdf(self, t: ArrayLike) -> Floats:  # noqa: D102
        # Rounding may add up to more than 1.
        return np.minimum(self._mix([model.cdf(t) for model in self.models]), 1)

    def survival(self, t: ArrayLike) -> Floats:  # noqa: D102
        return np.minimum(self._mix([model.survival(t) for model in self.models]), 1)

    def quantile(self, q: ArrayLike) -> Floats:  # noqa: D102
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
        time: Floats = np.where(q > 0, high, low).view(np.float64)
        return time

    def mean(self) -> float:  # noqa: D102
        return float(self._mix([np.float64(model.mean()) for model in self.models]))

    def tail_indices(self, workers: int) -> Floats:  # noqa: D102
        tails: Floats = np.min([model.tail_indices(workers) for model in self.models], axis=0)
        return tails

    @np.errstate(under="ignore")
    def _mix(self, values: Sequence[ArrayLike]) -> Floats:
        mixed: Floats = np.tensordot(self.weights, np.stack(values), 1)
        return mixed

    def _draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Floats:
        picks, levels = np.moveaxis(rng.random((rounds, workers, 2)), -1, 0)
        kinds = np.searchsorted(np.cumsum(self.weights[:-1]), picks, side="right")
        drawn = np.empty((rounds, workers))
        for kind, model in enumerate(self.models):
            at = kinds == kind
            drawn[at] = model.quantile(levels[at])
        return drawn

    def knots(self) -> Floats:  # noqa: D102
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
    ValueError, TypeError
        If there are no models, models of joint times or of different `per`, or one that is no
        `Distribution`.
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

    def tail_indices(self, workers: int) -> Floats:  # noqa: D102
        self._check_workers(workers)
        return np.concatenate([model.tail_indices(1) for model in self.models])

    def _draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Floats:
        self._check_workers(workers)
        drawn = np.empty((rounds, workers))
        for model, columns in self._groups().items():
            drawn[:, columns] = model.draw(rng, rounds, len(columns))
        return drawn

    @np.errstate(under="ignore")
    def _late(self, t: Floats, f: int, n: int) -> Floats:
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
        enough: Floats = counts[-1]
        return enough

    def knots(self) -> Floats:  # noqa: D102
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


def _union(models: Sequence[Distribution]) -> Floats:
    return np.unique(np.concatenate([model.knots() for model in models]))


@dataclass(frozen=True, init=False)
class Outages:
    """Workers of one domain are late together, because a node or a zone fails.

    In each round, each domain fails with the same probability, independently of the others. The
    workers of a failed domain answer `seconds` later than otherwise; this is the time until other
    workers have taken their place. Which workers share a domain decides how long a round waits
    after a failure::

        outages = fastgc.delays.Outages(late, nodes, probability=0.001, seconds=60)
        order = fastgc.engines.placement(code, nodes)
        fastgc.simulation.simulate(code, outages.dealt(order))

    Parameters
    ----------
    model : DelayModel or None
        The delays of workers without failures.
    domains : sequence of n labels
        The domain of each worker: ``["a", "a", "b", "b"]``.
    probability : float
        Probability that a domain fails in a round, in 0 .. 1.
    seconds : float
        The additional delay of the workers of a failed domain.

    Raises
    ------
    TypeError, ValueError
        If `model` is not a delay model, or its times are per computation; if `domains` does not
        name the domains of workers; or if a number is out of range.

    Notes
    -----
    Spot machines die by zone: of the deaths that come together in a zone, 92 % come within three
    minutes (arXiv 2604.16457).
    """

    model: DelayModel | None
    domains: tuple[Any, ...]
    probability: float
    seconds: float

    def __init__(
        self,
        model: DelayModel | None,
        domains: Sequence[Hashable],
        probability: float,
        seconds: float,
    ) -> None:
        check_model(model)
        if per_of(model) != "round":
            raise ValueError(
                f"outages need a model with per='round', and {model!r} has per='computation'"
            )
        if check_real("probability", probability) > 1:
            raise ValueError(f"probability must be in 0 .. 1, not {probability}")
        check_real("seconds", seconds)
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "domains", tuple(labels_of(domains)))
        object.__setattr__(self, "probability", float(probability))
        object.__setattr__(self, "seconds", float(seconds))

    per = "round"

    def tail_indices(self, workers: int) -> Floats:
        """Return the tail exponents of `model`; the delay of a failed domain is bounded."""
        self._check_workers(workers)
        return tails(self.model, workers)

    def sample(self, round: int, workers: int, seed: int) -> Floats:
        """Return the times of all workers in one round, as `Delays.sample` does."""
        check_counts(round=round, workers=workers, seed=seed)
        self._check_workers(workers)
        # A second key: the model itself draws with the key of the round alone.
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(round, 1)))
        late: Floats = self._outages(rng, 1)[0]
        return late if self.model is None else late + sample(self.model, round, workers, seed)

    def draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Floats:
        """Return the times of all workers in many rounds at once, as `Delays.draw` does."""
        check_counts(rounds=rounds, workers=workers)
        self._check_workers(workers)
        drawn: Any = getattr(self.model, "draw", None)
        own = np.zeros((rounds, workers))
        if drawn is not None:
            own += np.asarray(drawn(rng, rounds, workers), dtype=np.float64)
        elif self.model is not None:
            seed = int(rng.integers(1 << 32))
            for r in range(rounds):
                own[r] = sample(self.model, r, workers, seed)
        return own + self._outages(rng, rounds)

    def dealt(self, order: Sequence[int]) -> Outages:
        """Return the model in which rank i does the work of worker ``order[i]``.

        `domains` are then those of the ranks; those of the new model are of the workers.

        Parameters
        ----------
        order : sequence of n int
            As `fastgc.engines.placement` returns it.

        Raises
        ------
        ValueError
            If it is not a permutation of the workers' numbers.
        """
        if sorted(order) != list(range(len(self.domains))):
            raise ValueError(
                f"order must have each number from 0 to {len(self.domains) - 1} once, not {order!r}"
            )
        domains = [self.domains[rank] for rank in np.argsort(order)]
        return Outages(self.model, domains, self.probability, self.seconds)

    def _outages(self, rng: np.random.Generator, rounds: int) -> Floats:
        kinds = list(dict.fromkeys(self.domains))
        out = rng.random((rounds, len(kinds))) < self.probability
        of = [kinds.index(label) for label in self.domains]
        late: Floats = np.where(out[:, of], self.seconds, 0.0)
        return late

    def _check_workers(self, workers: int) -> None:
        if workers != len(self.domains):
            raise ValueError(f"these are domains of {len(self.domains)} workers, not of {workers}")


def labels_of(domains: Sequence[Hashable], n: int | None = None) -> list[Hashable]:
    """Return the label of each worker's domain.

    TypeError or ValueError if these are not labels of n workers (default: of any number).
    """
    if isinstance(domains, str) or not isinstance(domains, Iterable):
        raise TypeError(
            f"domains must be a label for each worker, as in ['a', 'a', 'b', 'b'], not {domains!r}"
        )
    tolist = getattr(domains, "tolist", None)  # arrays' scalars become Python's numbers
    labels = list(domains) if tolist is None else list(tolist())
    if n is not None and len(labels) != n:
        raise ValueError(f"domains must have a label for each of {n} workers, not {len(labels)}")
    for worker, label in enumerate(labels):
        try:
            hash(label)
        except TypeError:
            raise TypeError(
                f"domains[{worker}] must be a label, such as a name or a number, not {label!r}"
            ) from None
    return labels
