"""Nodes and zones that fail: all of their workers are late at a time."""

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
    """Workers of one domain that are late together, where a node or a zone fails.

    In each round each domain is out with the same probability, independently of the others. Its
    workers then answer so many seconds later than they would: as long as it takes until others have
    taken their place. The domains are those of `fastgc.Code.placed`; what a round then waits for is
    what the order of the workers decides::

        outages = fastgc.delays.Outages(late, nodes, probability=0.001, seconds=60)
        fastgc.simulation.simulate(code.placed(nodes), outages)

    Parameters
    ----------
    model : DelayModel or None
        How late workers are besides.
    domains : sequence of n labels, or mapping of labels to workers
        In which domain each worker is.
    probability : float
        With which a domain is out in a round, in 0 .. 1.
    seconds : float
        For how long.

    Raises
    ------
    TypeError, ValueError
        If `model` is none, or its times are of a computation; if domains are not those of some
        workers; or if a number is not in its range.

    Notes
    -----
    Deaths of spot machines come by zone: of those that come together in one, 92 % come within three
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
                f"outages take times of a round, and those of {model!r} are of a computation"
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
        """Of a round."""
        return "round"

    def tail_indices(self, workers: int) -> Array:
        """Those of the model: outages end."""
        self._check_workers(workers)
        return tails(self.model, workers)

    def sample(self, round: int, workers: int, seed: int) -> Array:
        """Times of all workers in one round, as `Delays.sample`."""
        check_counts(round=round, workers=workers, seed=seed)
        self._check_workers(workers)
        own = np.zeros(workers) if self.model is None else sample(self.model, round, workers, seed)
        # A second key: the model's own numbers are of the round alone.
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(round, 1)))
        times: Array = own + self._outages(rng, 1)[0]
        return times

    def draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Array:
        """Times of all workers in many rounds at once, as `Delays.draw`."""
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
        """The code with its workers dealt out to these domains, as well as can be.

        As `fastgc.Code.placed`, but without a warning where not any domain may be lost: that makes
        rounds long, which is what is looked at. A code that is placed is left as it is.

        Raises
        ------
        TypeError, ValueError
            If it is no code, or one of another number of workers.
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
