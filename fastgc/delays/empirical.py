"""Recorded times: as a delay model, from files, and models fitted to them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from .._base.arrays import Floats, at_least, check_finite, check_numbers, check_reals
from .._base.extras import scipy
from .distributions import (
    Delays,
    Distribution,
    Exponential,
    Pareto,
    ShiftedExponential,
    check_probabilities,
)
from .interface import Per, check_per
from .tables import read_times

__all__ = ["Empirical", "Fit", "fit"]


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Empirical(Distribution):
    """Recorded times, drawn with replacement.

    Parameters
    ----------
    samples : array_like of shape (N,) or (rounds, workers)
        Seconds. One dimension: the samples are pooled, and each time is one of them, drawn
        independently. Two dimensions: whole recorded rounds are drawn, for exactly this number of
        workers, which keeps correlations and differences between workers. `cdf`, `survival`,
        `quantile` and `mean` are then those of a random worker.
    per : "round" or "computation"
        See `Delays`.

    Attributes
    ----------
    samples : read-only array of float64
        A copy.

    Raises
    ------
    ValueError, TypeError
        If there are no samples, they have another shape, or one is negative, not finite, or no real
        number.
    """

    samples: Floats
    per: Per

    def __init__(self, samples: ArrayLike, per: Per = "round") -> None:
        object.__setattr__(self, "samples", check_times("samples", samples))
        object.__setattr__(self, "per", per)
        if self.samples.ndim not in (1, 2):
            raise ValueError(
                f"samples must have shape (N,) or (rounds, workers), not {self.samples.shape}"
            )
        check_per(per)
        self.samples.flags.writeable = False

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        unit: str | None = None,
        per: Per = "round",
        columns: Sequence[str | int] | None = None,
    ) -> Self:
        r"""Read recorded times from a file: one row for each round, one column for each worker.

        Parameters
        ----------
        path : str or path
            A file; its suffix gives the format:

            - ``.csv``, ``.tsv``, ``.txt``: numbers in lines, separated by semicolons, tabs, commas
              or blanks, the first of these that the first line has. Decimals may stand after a
              comma that separates nothing. The first line may name the columns; 0, 1, 2, ... are
              names. Lines that begin with # and a blank are skipped, and any that begin with #
              before the first other line. A single line or column is pooled.
            - ``.npy``, or ``.npz`` with one array, or one with the name ``times``.
            - ``.parquet``: a column for each worker (needs ``gradient-coding[parquet]``).
            - ``.json``: a list of lists, or a single list, which is pooled.

            Columns that number the rows are left out: those called round, step, epoch, iteration
            or index, names of rows of pandas and R, and one of integers that go up evenly beside
            other numbers; so are clocks of TensorBoard and wandb. What may be either is an error:
            a column that holds few integers, or only goes up, beside others. What was read, and
            left out, is logged by the logger ``fastgc.delays``, and printed by commands.
        unit : "s", "ms", "us" or "ns"
            Unit of the times in the file. Default: seconds, unless names of columns end in another
            unit: that is an error.
        per : "round" or "computation"
            See `Delays`.
        columns : sequence of str or int, optional
            The columns that are times, by name, or by number from 1: nothing is left out then.

        Returns
        -------
        Empirical

        Raises
        ------
        ValueError
            If the file holds something else, if a time is missing, negative or not finite (the
            message gives line and column), or if the unit is unknown.
        TypeError
            If an argument has a wrong type.
        OSError
            If the file cannot be read.
        ImportError
            If it is a parquet file and PyArrow is not installed.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "times.csv")
        ...     _ = file.write_text("round,a,b\n0,12.5,13\n1,12,40.5\n")
        ...     times = Empirical.read(file, unit="ms")
        >>> times.samples.tolist()
        [[0.0125, 0.013], [0.012, 0.0405]]
        """
        check_per(per)
        return cls(read_times(path, unit, columns), per)

    def __repr__(self) -> str:
        shape = self.samples.shape
        what = "{} samples" if len(shape) == 1 else "{} rounds of {} workers"
        return f"Empirical({what.format(*shape)}, mean {self.mean():.3g}, per={self.per!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Empirical):
            return NotImplemented
        return self.per == other.per and np.array_equal(self.samples, other.samples)

    def __hash__(self) -> int:
        return hash((self.samples.tobytes(), self.per))

    @property
    def joint(self) -> bool:
        """Whether whole rounds are drawn."""
        return self.samples.ndim == 2

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed again when it is needed."""
        return {"samples": self.samples, "per": self.per}

    @cached_property
    def _sorted(self) -> Floats:
        return np.sort(self.samples, axis=None)

    @cached_property
    def _levels(self) -> Floats:
        return np.arange(1, self.samples.size + 1) / self.samples.size

    def cdf(self, t: ArrayLike) -> Floats:  # noqa: D102
        return self._count(t) / self.samples.size

    def survival(self, t: ArrayLike) -> Floats:  # noqa: D102
        return (self.samples.size - self._count(t)) / self.samples.size

    def quantile(self, q: ArrayLike) -> Floats:  # noqa: D102
        time: Floats = self._sorted[np.searchsorted(self._levels, check_probabilities(q))]
        return time

    def mean(self) -> float:
        """Return the mean time in seconds."""
        return float(self.samples.mean())

    def tail_indices(self, workers: int) -> Floats:  # noqa: D102
        self._check_workers(workers)
        return np.full(workers, np.inf)

    _tails_of_late = Delays._tails_of_late  # for workers that may differ

    def _count(self, t: ArrayLike) -> Floats:
        """Return how many samples are at most t; NaN where t is NaN."""
        times = check_reals("t", t)
        count = np.searchsorted(self._sorted, times, side="right")
        return np.where(np.isnan(times), np.nan, count)

    def _draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Floats:
        self._check_workers(workers)
        size = rounds if self.joint else (rounds, workers)
        drawn: Floats = self.samples[rng.integers(len(self.samples), size=size)]
        return drawn

    def _order_statistic_mean(self, f: int, n: int) -> float:
        if self.joint:
            return float(np.partition(self.samples, f - 1, axis=1)[:, f - 1].mean())
        # The f-th smallest of n uniforms has a Beta(f, n - f + 1) distribution.
        below = scipy("special").betainc(f, n - f + 1, self._levels)
        return float(np.diff(below, prepend=0) @ self._sorted)

    def knots(self) -> Floats:  # noqa: D102
        return np.unique(self._sorted)

    def _check_workers(self, workers: int) -> None:
        if self.joint and workers != self.samples.shape[1]:
            raise ValueError(
                f"the recorded rounds are of {self.samples.shape[1]} workers, not of {workers}: "
                "pool the samples, samples.ravel(), for any number"
            )


def check_times(what: str, times: ArrayLike) -> Floats:
    """Return a copy of `times`; raise an error unless they are finite and not negative."""
    if isinstance(times, str | os.PathLike):
        raise TypeError(
            f"{what} must be numbers, not {times!r}: Empirical.read(path).samples are those of a "
            "file"
        )
    checked = check_numbers(what, times)
    if checked.dtype.kind == "c":
        raise TypeError(f"{what} must be real, not complex")
    check_finite(what, checked)
    if checked.min() < 0:
        raise ValueError(f"{what} must not be negative, got {checked.min()}")
    return checked + 0.0  # a copy, without negative zeros


# ------------------------------------------------------------------ models fitted to times

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
    progress: bool = False,
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
    progress : bool
        Show a progress bar (needs ``gradient-coding[cli]``).

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
    shown: AbstractContextManager[Callable[[], object]] = nullcontext(lambda: None)
    if progress:
        from .._base.progress import task_bar

        shown = task_bar("fitting", draws * len(kinds))
    with shown as step:
        fits = [_fit(kind, x, per, draws, rng, step) for kind in kinds]
    return sorted(fits, key=lambda each: each.aic)


def _fit(
    kind: str, x: Floats, per: Per, draws: int, rng: np.random.Generator, step: Callable[[], object]
) -> Fit:
    parameters, standard, estimate = _KINDS[kind]
    model, log_likelihood = estimate(x, per)
    distance = _distance(x, model)
    as_far = 0
    for _ in range(draws):
        # Draw from a standard model: under the fitted one, times may not be distinct floats.
        drawn = np.sort(standard.draw(rng, 1, x.size)[0])
        as_far += _distance(drawn, estimate(drawn, per)[0]) >= distance
        step()
    p_value = (1 + as_far) / (1 + draws)
    return Fit(model, log_likelihood, 2 * parameters - 2 * log_likelihood, distance, p_value)


def _pareto(x: Floats, per: Per) -> tuple[Distribution, float]:
    scale = float(x[0])
    shape = 1 / float(np.log(x / scale).mean())
    return Pareto(scale, shape, per), x.size * (math.log(shape / scale) - 1 - 1 / shape)


def _shifted_exponential(x: Floats, per: Per) -> tuple[Distribution, float]:
    shift = float(x[0])
    rate = 1 / float((x - shift).mean())
    return ShiftedExponential(shift, rate, per), x.size * (math.log(rate) - 1)


def _exponential(x: Floats, per: Per) -> tuple[Distribution, float]:
    mean = float(x.mean())
    return Exponential(mean, per), -x.size * (math.log(mean) + 1)


# For each kind: the number of parameters, a standard model, and a function that fits a model to
# ascending times and returns it with its log-likelihood.
_KINDS: dict[str, tuple[int, Distribution, Callable[[Floats, Per], tuple[Distribution, float]]]] = {
    "pareto": (2, Pareto(1, 1), _pareto),
    "shifted-exponential": (2, ShiftedExponential(0, 1), _shifted_exponential),
    "exponential": (1, Exponential(1), _exponential),
}


def _distance(x: Floats, model: Distribution) -> float:
    """Return the Kolmogorov-Smirnov distance of ascending times from a model."""
    steps, cdf = np.arange(x.size + 1) / x.size, model.cdf(x)
    return float(max((steps[1:] - cdf).max(), (cdf - steps[:-1]).max()))
