"""Models of how long a worker is late, for experiments with artificial stragglers."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["DelayModel", "Pareto", "parse"]


class DelayModel(Protocol):
    """What engines and simulations ask of a delay model."""

    def sample(self, round: int, workers: int, seed: int) -> NDArray[np.float64]:
        """Delay in seconds of each worker in one round, as `Pareto.sample` says."""
        ...


@dataclass(frozen=True)
class Pareto:
    """Independent Pareto delays, F(t) = 1 - (t0 / t)^xi for t >= t0 (Halbawi et al., eq. 16).

    Parameters
    ----------
    t0 : float
        The least delay, in seconds, positive.
    xi : float
        Tail exponent, positive; the smaller, the heavier the tail. The mean is infinite from 1
        down.

    Raises
    ------
    ValueError
        If a parameter is not positive and finite.
    """

    t0: float
    xi: float

    def __post_init__(self) -> None:
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            if not 0 < value < math.inf:
                raise ValueError(f"{parameter.name} must be positive and finite, got {value}")

    def sample(self, round: int, workers: int, seed: int) -> NDArray[np.float64]:
        """Delays of all workers in one round.

        They depend on ``seed``, ``round`` and the worker only, not on what was sampled before, so
        that several schemes can be run on the same delays; and the first of more workers have the
        delays of fewer.

        Parameters
        ----------
        round : int
            Round, from 0.
        workers : int
            Number of workers n, not negative.
        seed : int
            Seed of the experiment, not negative.

        Returns
        -------
        array of float64, shape (workers,)
            Seconds.

        Raises
        ------
        ValueError
            If an argument is negative.
        """
        for name, value in (("round", round), ("workers", workers), ("seed", seed)):
            if value < 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        # A spawn key, unlike further entropy, keeps round 0 apart from a plain use of the seed.
        stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(round,)))
        return self.quantile(stream.random(workers))

    def cdf(self, t: ArrayLike) -> NDArray[np.float64]:
        """Probability of a delay of at most t seconds, F(t), elementwise."""
        late = np.maximum(np.asarray(t, dtype=np.float64), self.t0)
        probability: NDArray[np.float64] = -np.expm1(-self.xi * np.log(late / self.t0))
        return probability

    def quantile(self, q: ArrayLike) -> NDArray[np.float64]:
        """Delay in seconds with F(t) = q, elementwise; Inf at q = 1.

        Raises
        ------
        ValueError
            If a q is not in [0, 1].
        """
        q = np.asarray(q, dtype=np.float64)
        if not np.all((q >= 0) & (q <= 1)):
            raise ValueError("a quantile is asked for at q in [0, 1] only")
        with np.errstate(divide="ignore"):
            delay: NDArray[np.float64] = self.t0 * np.exp(-np.log1p(-q) / self.xi)
        return delay

    def mean(self) -> float:
        """Mean delay in seconds, t0 xi / (xi - 1), or Inf where xi <= 1."""
        return self.t0 * self.xi / (self.xi - 1) if self.xi > 1 else math.inf

    def order_statistic_mean(self, f: int, n: int) -> float:
        """Mean of the f-th smallest of n delays, the wait for the first f of n workers.

        t0 Γ(n - f + 1 - 1/ξ) Γ(n + 1) / (Γ(n - f + 1) Γ(n + 1 - 1/ξ)) (Halbawi et al., proof of
        Proposition 1).

        Parameters
        ----------
        f, n : int
            1 <= f <= n.

        Returns
        -------
        float
            Seconds; Inf where the mean does not exist, n - f + 1 <= 1 / xi.

        Raises
        ------
        ValueError
            If f is not in 1 .. n.
        """
        if not 1 <= f <= n:
            raise ValueError(f"f must lie in 1 .. n = {n}, got {f}")
        rest, shift = n - f + 1, 1 / self.xi
        if rest <= shift:
            return math.inf
        return self.t0 * math.exp(
            math.lgamma(rest - shift)
            - math.lgamma(rest)
            + math.lgamma(n + 1)
            - math.lgamma(n + 1 - shift)
        )


_MODELS = {"pareto": Pareto}


def parse(text: str) -> DelayModel | None:
    """Read a delay model from a command line.

    Parameters
    ----------
    text : str
        ``"none"``, or a model with all its parameters, as in ``"pareto:t0=0.01,xi=1.1"``.

    Returns
    -------
    DelayModel or None
        None where no delay is wanted.

    Raises
    ------
    ValueError
        If the text says something else; the error says what was expected.
    """
    name, _, listed = text.partition(":")
    name = name.strip().lower()
    if name == "none" and not listed:
        return None
    if name not in _MODELS:
        raise ValueError(
            f"unknown delay model {text!r}: expected 'none' or, for example, "
            "'pareto:t0=0.01,xi=1.1'"
        )
    model = _MODELS[name]
    wanted = [parameter.name for parameter in fields(model)]
    values: dict[str, float] = {}
    for item in filter(None, listed.split(",")):
        key, _, number = item.partition("=")
        key = key.strip()
        if key not in wanted or key in values:
            raise ValueError(
                f"delay model {text!r}: {name} takes {' and '.join(wanted)}, once each; "
                f"got {item.strip()!r}"
            )
        try:
            values[key] = float(number)
        except ValueError:
            raise ValueError(f"delay model {text!r}: {key} must be a number") from None
    if missing := [key for key in wanted if key not in values]:
        raise ValueError(f"delay model {text!r}: {' and '.join(missing)} missing")
    return model(**values)
