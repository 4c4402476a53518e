"""Models of the patterns of stragglers that schemes tolerate.

A pattern has a row for each round and a column for each worker. True marks a straggler, from which
nothing came in that round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import as_array, at_least, check_integer

__all__ = ["Arbitrary", "Bursty", "PerRound"]

Pattern = NDArray[np.bool_]


def check_pattern(pattern: ArrayLike) -> Pattern:
    """Return a pattern as booleans of shape (rounds, workers); raise an error if it is none."""
    checked = as_array("pattern", pattern)
    if checked.dtype.kind != "b":
        raise TypeError(f"pattern must be of booleans, True for a straggler, not {checked.dtype}")
    if checked.ndim != 2:
        raise ValueError(f"pattern must have shape (rounds, workers), not {checked.shape}")
    return checked


def _windows(pattern: Pattern, window: int) -> NDArray[np.bool_]:
    """Return all runs of `window` rounds, (runs, window, workers); a shorter pattern is one run."""
    if len(pattern) <= window:
        return pattern[np.newaxis]
    view = np.lib.stride_tricks.sliding_window_view(pattern, window, axis=0)
    return view.transpose(0, 2, 1)


class _OfWindows:
    """A model that constrains every run of `window` rounds.

    A subclass has a first field in 1 .. `window`, and then `window` and `stragglers`.
    """

    window: int
    stragglers: int

    def __post_init__(self) -> None:
        """Store the fields as ints; raise ValueError unless 1 <= first field <= window."""
        name, *_ = vars(self)
        part, window = (check_integer(each, getattr(self, each)) for each in (name, "window"))
        if not 1 <= part <= window:
            raise ValueError(f"1 <= {name} <= window is needed, not {name}={part}, window={window}")
        stragglers = at_least("stragglers", self.stragglers, 0)
        vars(self).update({name: part, "window": window, "stragglers": stragglers})


@dataclass(frozen=True)
class PerRound:
    """At most so many stragglers in each round.

    Parameters
    ----------
    stragglers : int
        The number of stragglers, s.

    Raises
    ------
    TypeError, ValueError
        If `stragglers` is not an integer, or is negative.
    """

    stragglers: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "stragglers", at_least("stragglers", self.stragglers, 0))

    @property
    def window(self) -> int:
        """Rounds that the model constrains together: 1."""
        return 1

    def admits(self, pattern: ArrayLike) -> bool:
        """Whether a pattern fits this model.

        Parameters
        ----------
        pattern : (rounds, workers) array of bool
            Who straggled.

        Raises
        ------
        TypeError, ValueError
            If `pattern` is not such an array.
        """
        return bool((check_pattern(pattern).sum(axis=1) <= self.stragglers).all())


@dataclass(frozen=True)
class Bursty(_OfWindows):
    """Few workers straggle within a window of rounds, and each in one short burst.

    In any `window` rounds in a row, at most `stragglers` different workers straggle, and a worker's
    last straggling round is less than `burst` rounds after its first. The paper writes (B, W,
    lambda) for the three numbers (Krishnan, Ebrahimi, Khisti 2023, section 2).

    Parameters
    ----------
    burst, window : int
        B and W, in rounds: 1 <= B <= W.
    stragglers : int
        Different workers that may straggle in a window, lambda.

    Raises
    ------
    TypeError, ValueError
        If an argument is not such an integer.
    """

    burst: int
    window: int
    stragglers: int

    def admits(self, pattern: ArrayLike) -> bool:
        """Whether a pattern fits this model; as `PerRound.admits`.

        If a pattern is shorter than a window, all its rounds are one window.
        """
        runs = _windows(check_pattern(pattern), self.window)
        if (runs.any(axis=1).sum(axis=1) > self.stragglers).any():
            return False
        rounds = runs.shape[1]
        at = np.arange(rounds)[:, np.newaxis]
        first = np.where(runs, at, rounds).min(axis=1, initial=rounds)
        last = np.where(runs, at, -1).max(axis=1, initial=-1)
        return bool((last - first < self.burst).all())


@dataclass(frozen=True)
class Arbitrary(_OfWindows):
    """Few workers straggle within a window of rounds, each a few times, in any rounds.

    In any `window` rounds in a row, at most `stragglers` different workers straggle, none of them
    more than `times` times. The paper writes (N, W', lambda') for the three numbers.

    Parameters
    ----------
    times, window : int
        N and W', in rounds: 1 <= N <= W'.
    stragglers : int
        Different workers that may straggle in a window, lambda'.

    Raises
    ------
    TypeError, ValueError
        If an argument is not such an integer.
    """

    times: int
    window: int
    stragglers: int

    def admits(self, pattern: ArrayLike) -> bool:
        """Whether a pattern fits this model; as `Bursty.admits`."""
        runs = _windows(check_pattern(pattern), self.window)
        few = (runs.any(axis=1).sum(axis=1) <= self.stragglers).all()
        return bool(few and (runs.sum(axis=1) <= self.times).all())
