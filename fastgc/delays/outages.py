"""Nodes and zones that fail, so that all of their workers are late together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import check_real
from ..coding.code import Code, Placed
from ..coding.placement import Domains, labels_of, placement
from .distributions import check_counts
from .interface import DelayModel, Per, check_model, per_of, sample, tails

__all__ = ["Outages"]

Array = NDArray[np.float64]


@dataclass(frozen=True, init=False)
class Outages:
    """Workers of one domain are late together, because a node or a zone fails.

    In each round, each domain fails with the same probability, independently of the others. The
    workers of a failed domain answer `seconds` later than otherwise; this is the time until other
    workers have taken their place. The domains are those of `fastgc.Code.placed`: the order of the
    workers decides how long a round waits after a failure::

        outages = fastgc.delays.Outages(late, nodes, probability=0.001, seconds=60)
        fastgc.simulation.simulate(code.placed(nodes), outages)

    Parameters
    ----------
    model : DelayModel or None
        The delays of workers without failures.
    domains : sequence of n labels, or mapping of labels to workers
        The domain of each worker.
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
        self, model: DelayModel | None, domains: Domains, probability: float, seconds: float
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

    @property
    def per(self) -> Per:
        """``"round"``."""
        return "round"

    def tail_indices(self, workers: int) -> Array:
        """Return the tail exponents of `model`; the delay of a failed domain is bounded."""
        self._check_workers(workers)
        return tails(self.model, workers)

    def sample(self, round: int, workers: int, seed: int) -> Array:
        """Return the times of all workers in one round, as `Delays.sample` does."""
        check_counts(round=round, workers=workers, seed=seed)
        self._check_workers(workers)
        own = np.zeros(workers) if self.model is None else sample(self.model, round, workers, seed)
        # A second key: the model itself draws with the key of the round alone.
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(round, 1)))
        times: Array = own + self._outages(rng, 1)[0]
        return times

    def draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Array:
        """Return the times of all workers in many rounds at once, as `Delays.draw` does."""
        check_counts(rounds=rounds, workers=workers)
        self._check_workers(workers)
        drawn: Any = getattr(self.model, "draw", None)
        if self.model is None:
            own = np.zeros((rounds, workers))
        elif drawn is not None:
            own = np.asarray(drawn(rng, rounds, workers), dtype=np.float64)
        else:
            seed = int(rng.integers(1 << 32))
            rows = [sample(self.model, r, workers, seed) for r in range(rounds)]
            own = np.array(rows).reshape(rounds, workers)
        times: Array = own + self._outages(rng, rounds)
        return times

    def placed(self, code: Code) -> Placed:
        """Return the code with its workers assigned to these domains as well as possible.

        This is `fastgc.Code.placed` without the warning that the loss of some domain cannot be
        tolerated: a simulation shows this by long rounds. A placed code is returned unchanged.

        Raises
        ------
        TypeError, ValueError
            If `code` is not a code, or has another number of workers.
        """
        if not isinstance(code, Code):
            raise TypeError(f"code must be a code of fastgc, not {code!r}")
        if isinstance(code, Placed):
            return code
        labels_of(self.domains, code.n)
        return Placed(code, self.domains, placement(code.scheme, self.domains).order)

    def _outages(self, rng: np.random.Generator, rounds: int) -> Array:
        kinds = list(dict.fromkeys(self.domains))
        out = rng.random((rounds, len(kinds))) < self.probability
        of = [kinds.index(label) for label in self.domains]
        late: Array = np.where(out[:, of], self.seconds, 0.0)
        return late

    def _check_workers(self, workers: int) -> None:
        if workers != len(self.domains):
            raise ValueError(f"these are domains of {len(self.domains)} workers, not of {workers}")
