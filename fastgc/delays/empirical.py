"""Times as they were recorded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import check_finite, check_numbers, check_reals
from .._extras import scipy
from .distributions import Delays, Distribution, check_probabilities
from .interface import Per, check_per
from .recorded import read_times

__all__ = ["Empirical"]

Array = NDArray[np.float64]


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Empirical(Distribution):
    """Recorded times, drawn with replacement.

    Parameters
    ----------
    samples : array_like of shape (N,) or (rounds, workers)
        Seconds. Of one dimension, they are pooled: each time is any of them, independently. Of two,
        whole recorded rounds are drawn, for exactly so many workers, so that what workers have in
        common, or always have, stays; `cdf`, `survival`, `quantile` and `mean` are then those of a
        worker picked at random.
    per : "round" or "computation"
        See `Delays`.

    Attributes
    ----------
    samples : read-only array of float64
        A copy.

    Raises
    ------
    ValueError
        If there are none, they have another shape, or one is negative or not finite.
    TypeError
        If they are not real numbers.
    """

    samples: Array
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
    def read(cls, path: str | os.PathLike[str], unit: str = "s", per: Per = "round") -> Self:
        r"""Recorded times from a file: one row for each round, one column for each worker.

        Parameters
        ----------
        path : str or path
            The end of its name says what it is:

            - ``.csv``, ``.tsv``, ``.txt``: numbers in lines, apart by commas, semicolons, tabs or
              blanks. A first line may name the columns; lines that begin with # are skipped. A
              single line or column is pooled.
            - ``.npy``, or ``.npz`` with one array, or one that is called ``times``.
            - ``.parquet``: a column for each worker (needs ``gradient-coding[parquet]``).
            - ``.json``: a list of lists, or a list, which is pooled.

            A first column is left out if it is called round, step, iteration or index, or has no
            name where others have.
        unit : "s", "ms", "us" or "ns"
            Of the times in the file.
        per : "round" or "computation"
            See `Delays`.

        Returns
        -------
        Empirical

        Raises
        ------
        ValueError
            If the file holds something else, or a time is missing, negative or not finite; says
            in which line and column. If the unit is unknown.
        TypeError
            If an argument is of a wrong type.
        OSError
            If the file cannot be read.
        ImportError
            If it is a parquet file, and PyArrow is not installed.

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
        return cls(read_times(path, unit), per)

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

    @cached_property
    def _sorted(self) -> Array:
        return np.sort(self.samples, axis=None)

    @cached_property
    def _levels(self) -> Array:
        return np.arange(1, self.samples.size + 1) / self.samples.size

    def cdf(self, t: ArrayLike) -> Array:  # noqa: D102
        return self._count(t) / self.samples.size

    def survival(self, t: ArrayLike) -> Array:  # noqa: D102
        return (self.samples.size - self._count(t)) / self.samples.size

    def quantile(self, q: ArrayLike) -> Array:  # noqa: D102
        time: Array = self._sorted[np.searchsorted(self._levels, check_probabilities(q))]
        return time

    def mean(self) -> float:
        """Mean time in seconds."""
        return float(self.samples.mean())

    def tail_indices(self, workers: int) -> Array:  # noqa: D102
        self._check_workers(workers)
        return np.full(workers, np.inf)

    _tails_of_late = Delays._tails_of_late  # of workers that need not be alike

    def _count(self, t: ArrayLike) -> Array:
        """How many samples are at most t; NaN where t is."""
        times = check_reals("t", t)
        count = np.searchsorted(self._sorted, times, side="right")
        return np.where(np.isnan(times), np.nan, count)

    def _draw(self, rng: np.random.Generator, rounds: int, workers: int) -> Array:
        self._check_workers(workers)
        size = rounds if self.joint else (rounds, workers)
        drawn: Array = self.samples[rng.integers(len(self.samples), size=size)]
        return drawn

    def _order_statistic_mean(self, f: int, n: int) -> float:
        if self.joint:
            return float(np.partition(self.samples, f - 1, axis=1)[:, f - 1].mean())
        # The f-th smallest of n uniforms has a Beta(f, n - f + 1) distribution.
        below = scipy("special").betainc(f, n - f + 1, self._levels)
        return float(np.diff(below, prepend=0) @ self._sorted)

    def knots(self) -> Array:  # noqa: D102
        return np.unique(self._sorted)

    def _check_workers(self, workers: int) -> None:
        if self.joint and workers != self.samples.shape[1]:
            raise ValueError(
                f"the recorded rounds are of {self.samples.shape[1]} workers, not of {workers}: "
                "pool the samples, samples.ravel(), for any number"
            )


def check_times(what: str, times: ArrayLike) -> Array:
    """A copy of times that are finite and not negative, or an error."""
    checked = check_numbers(what, times)
    if checked.dtype.kind == "c":
        raise TypeError(f"{what} must be real, not complex")
    check_finite(what, checked)
    if checked.min() < 0:
        raise ValueError(f"{what} must not be negative, got {checked.min()}")
    return checked + 0.0  # a copy, without negative zeros
