"""Fit delay models to recorded times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import at_least
from .distributions import Distribution, Exponential, Pareto, ShiftedExponential
from .empirical import check_times
from .interface import Per

__all__ = ["Fit", "fit"]

Array = NDArray[np.float64]

_LEAST, _MOST = 1e-150, 1e150  # seconds between which no ratio, sum or rate overflows


class Fit(NamedTuple):
    """A model fitted to recorded times.

    Attributes
    ----------
    model : Distribution
    log_likelihood : float
        Log-likelihood of the times under the model.
    aic : float
        Akaike's criterion: twice the number of parameters minus twice the log-likelihood; smaller
        is better.
    ks : float
        Kolmogorov-Smirnov distance: the largest distance between the times' cdf and the model's.
    p_value : float
        Probability of at least this distance for times of a model of this kind, fitted the same
        way.
    """

    model: Distribution
    log_likelihood: float
    aic: float
    ks: float
    p_value: float


def fit(
    times: ArrayLike,
    kinds: Sequence[str] = ("pareto", "shifted-exponential", "exponential"),
    loads: ArrayLike | None = None,
    *,
    draws: int = 199,
    seed: int = 0,
) -> list[Fit]:
    """Fit models to recorded times by maximum likelihood.

    Parameters
    ----------
    times : array_like
        N times in seconds, in any shape, from 1e-150 to 1e150, not all equal. They are assumed to
        be independent of each other.
    kinds : sequence of str
        ``"pareto"``, ``"shifted-exponential"``, ``"exponential"``.
    loads : array_like, optional
        Number of computations in each of the times, in a shape that broadcasts to that of `times`,
        for instance (workers,) for times of shape (rounds, workers). Models then describe the times
        of single computations, with ``per="computation"``; without loads they have
        ``per="round"``.
    draws : int
        Number of samples for the p-values, which are multiples of 1 / (draws + 1).
    seed : int
        Seed of these samples, not negative.

    Returns
    -------
    list of Fit
        One for each kind, with the smallest `aic` first.

    Raises
    ------
    ValueError
        If there are fewer than two times, one is out of range, or all are equal; if loads do not
        fit or are not positive; or if a kind is unknown, or none is given.
    TypeError
        If times or loads are not real numbers.

    Notes
    -----
    Let m be the least and x̄ the mean of the N times x. The likelihood is greatest at scale m and
    shape N / Σ log(x / m) for Pareto (Arnold, Pareto Distributions, 2nd ed., section 5.2), at shift
    m and rate 1 / (x̄ - m) for the shifted exponential, and at mean x̄ for the exponential
    (Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions I, chapter 19).

    The usual p-value of a Kolmogorov-Smirnov distance holds for a model chosen beforehand. It is
    far too large for a model fitted to the same times. Instead, this function does the following
    `draws` times: it draws N values from a model of the kind, fits a model to them, and computes
    the distance. The distances do not depend on a model's scale, shift or shape, so these p-values
    are exact for any such model.

    A shifted exponential fits exponential times slightly better than an exponential, with the least
    time as its shift, about x̄ / N. In a third of all cases even its `aic` is smaller. As models of
    delays the two are then equivalent.
    """
    checked = check_times("times", times)
    if unknown := [kind for kind in kinds if kind not in _KINDS]:
        raise ValueError(f"unknown kind of model {unknown[0]!r}: choose from {', '.join(_KINDS)}")
    if not kinds:
        raise ValueError(f"kinds must name a model at least: choose from {', '.join(_KINDS)}")
    draws, seed = at_least("draws", draws, 1), at_least("seed", seed, 0)
    per: Per = "round"
    if loads is not None:
        per = "computation"
        divisors = check_times("loads", loads)
        try:
            divisors = np.broadcast_to(divisors, checked.shape)
        except ValueError:
            raise ValueError(
                f"loads of shape {divisors.shape} do not fit times of shape {checked.shape}"
            ) from None
        if divisors.min() <= 0:
            raise ValueError(f"loads must be positive, got {divisors.min()}")
        with np.errstate(over="ignore"):  # Inf is refused below
            checked = checked / divisors
    x = np.sort(checked, axis=None)
    if x.size < 2 or x[0] <= 0 or x[0] == x[-1]:
        raise ValueError(
            "a fit takes at least two times, positive and not all equal: got "
            f"{x.size} from {x[0]} to {x[-1]}"
        )
    if x[0] < _LEAST or x[-1] > _MOST:
        raise ValueError(
            f"times must be from {_LEAST:g} to {_MOST:g} seconds to be fitted: got {x[0]} to "
            f"{x[-1]}"
        )
    rng = np.random.default_rng(seed)
    return sorted((_fit(kind, x, per, draws, rng) for kind in kinds), key=lambda each: each.aic)


def _fit(kind: str, x: Array, per: Per, draws: int, rng: np.random.Generator) -> Fit:
    parameters, standard, estimate = _KINDS[kind]
    model, log_likelihood = estimate(x, per)
    distance = _distance(x, model)
    as_far = 0
    for _ in range(draws):
        # Draw from a standard model: under the fitted one, times may not be distinct floats.
        drawn = np.sort(standard.draw(rng, 1, x.size)[0])
        as_far += _distance(drawn, estimate(drawn, per)[0]) >= distance
    p_value = (1 + as_far) / (1 + draws)
    return Fit(model, log_likelihood, 2 * parameters - 2 * log_likelihood, distance, p_value)


def _pareto(x: Array, per: Per) -> tuple[Distribution, float]:
    scale = float(x[0])
    shape = 1 / float(np.log(x / scale).mean())
    return Pareto(scale, shape, per), x.size * (math.log(shape / scale) - 1 - 1 / shape)


def _shifted_exponential(x: Array, per: Per) -> tuple[Distribution, float]:
    shift = float(x[0])
    rate = 1 / float((x - shift).mean())
    return ShiftedExponential(shift, rate, per), x.size * (math.log(rate) - 1)


def _exponential(x: Array, per: Per) -> tuple[Distribution, float]:
    mean = float(x.mean())
    return Exponential(mean, per), -x.size * (math.log(mean) + 1)


# For each kind: the number of parameters, a standard model, and a function that fits a model to
# ascending times and returns it with its log-likelihood.
_KINDS: dict[str, tuple[int, Distribution, Callable[[Array, Per], tuple[Distribution, float]]]] = {
    "pareto": (2, Pareto(1, 1), _pareto),
    "shifted-exponential": (2, ShiftedExponential(0, 1), _shifted_exponential),
    "exponential": (1, Exponential(1), _exponential),
}


def _distance(x: Array, model: Distribution) -> float:
    """Return the Kolmogorov-Smirnov distance of ascending times from a model."""
    steps, cdf = np.arange(x.size + 1) / x.size, model.cdf(x)
    return float(max((steps[1:] - cdf).max(), (cdf - steps[:-1]).max()))
