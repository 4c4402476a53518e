"""Which scheme, and with which parameters: each name by the best that it may stand for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._arrays import at_least, check_real, check_reals
from .._shown import duration
from .catalogue import Candidate, candidates
from .scheme import SequentialScheme
from .simulation import SequentialRun, simulate_sequential

__all__ = ["NAMES", "Compared", "compare"]

# What is compared where nobody says.
NAMES = ("m-sgc", "sr-sgc", "uncoded", "rs", "rs-clustered", "binary", "fractional")

_PROBE = 100  # rounds, at most, that parameters are chosen by


@dataclass(frozen=True, eq=False)
class Compared:
    """A scheme, how it was chosen, and how long it takes.

    Attributes
    ----------
    name : str
        As it was asked for.
    found : dict
        What that left open, as it was chosen; of a gradient code, its stragglers.
    scheme : SequentialScheme
    mu : float
        How many times longer than for the fastest worker rounds wait for the others at least.
    run : SequentialRun
        Of the rounds that parameters were not chosen by.
    tried : tuple of (float, float)
        Load and seconds per job of each choice, on the rounds that choose; on those of `run` where
        there is nothing to choose.
    """

    name: str
    found: dict[str, Any]
    scheme: SequentialScheme
    mu: float
    run: SequentialRun
    tried: tuple[tuple[float, float], ...]

    @property
    def text(self) -> str:
        """The name with all that was chosen, to be asked for again."""
        chosen = ",".join(f"{key}={value}" for key, value in self.found.items())
        if not chosen:
            return self.name
        return f"{self.name}{',' if ':' in self.name else ':'}{chosen}"

    def __repr__(self) -> str:
        return (
            f"Compared({self.text}: load {self.scheme.load:.3g}, "
            f"{duration(self.run.seconds_per_job)} a job, done after {self.scheme.delay} rounds)"
        )


def compare(
    times: ArrayLike,
    names: Sequence[str] = NAMES,
    *,
    models: int = 4,
    mu: float | Sequence[float] = (0.0, 0.2, 1.0),
    load_slope: ArrayLike = 0.0,
    at_load: float = 1.0,
    interrupted: bool = True,
    probe: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> list[Compared]:
    """Rank schemes by the seconds that they take for a job, on recorded or drawn times.

    Parameters that a name leaves open are chosen by the first rounds, and all schemes are judged by
    the others: what is best on the very rounds it is judged by looks better than it is.

    Parameters
    ----------
    times : (rounds, workers) array
        As of `simulate_sequential`, as are `load_slope`, `at_load` and `interrupted`.
    names : sequence of str
        As of `make`, where parameters may be missing; gradient codes run round by round.
    models : int
        Models trained in turn: jobs must be done ``models - 1`` rounds after they begin.
    mu : float or sequence of float
        How many times longer than for the fastest worker rounds wait for the others at least; of
        several, the best is chosen. Rounds of gradient codes end as soon as they may.
    probe : int, optional
        Rounds that parameters are chosen by. Default: half of them, at most 100; none where there
        is nothing to choose.
    seed : int
        Of random codes.
    progress : bool
        Show a progress bar (needs ``gradient-coding[cli]``).

    Returns
    -------
    list of Compared
        The fastest first.

    Raises
    ------
    ValueError
        If a name names nothing, or nothing that gives exact gradients in so many rounds; if there
        are too few rounds.
    TypeError
        If an argument is of a wrong type.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgc.sequential import compare
    >>> times = np.ones((60, 6))
    >>> times[4::10, 1] = 9.0  # a worker straggles now and then
    >>> names = ["m-sgc:burst=1,window=2,stragglers=1", "uncoded"]
    >>> [each.name for each in compare(times, names, models=2, mu=0.5)]
    ['m-sgc:burst=1,window=2,stragglers=1', 'uncoded']
    """
    seconds = check_reals("times", times)
    if seconds.ndim != 2 or not seconds.size:
        raise ValueError(f"times must have shape (rounds, workers), not {seconds.shape}")
    if isinstance(names, str) or not names:
        raise ValueError(f"names must be a sequence of one at least, not {names!r}")
    rounds, n = seconds.shape
    delay = at_least("models", models, 1) - 1
    patience = [check_real("mu", each) for each in np.atleast_1d(check_reals("mu", mu)).tolist()]
    if not patience:
        raise ValueError("mu must name one value at least")
    options = {
        name: [
            (each, m)
            for each in candidates(name, n, delay, seed)
            for m in (patience if each.scheme.delay else [0.0])
        ]
        for name in dict.fromkeys(names)
    }
    probe = _probed(probe, options, rounds, delay)
    slope = np.broadcast_to(check_reals("load_slope", load_slope), seconds.shape)

    def run(choice: tuple[Candidate, float], part: slice) -> SequentialRun:
        return simulate_sequential(
            seconds[part],
            choice[0].scheme,
            mu=choice[1],
            load_slope=slope[part],
            at_load=at_load,
            interrupted=interrupted,
        )

    compared = []
    with _bar(progress, sum(map(len, options.values()))) as advance:
        for name, each in options.items():
            tried = []
            for choice in each if probe else []:
                tried.append((choice[0].scheme.load, run(choice, slice(probe)).seconds_per_job))
                advance()
            best = min(range(len(tried)), key=lambda at: tried[at][1]) if tried else 0
            (_, left, scheme), m = each[best]
            found = run(each[best], slice(probe, None))
            if not tried:
                tried.append((scheme.load, found.seconds_per_job))
                advance()
            compared.append(Compared(name, left, scheme, m, found, tuple(tried)))
    return sorted(compared, key=lambda each: each.run.seconds_per_job)


def _probed(probe: int | None, options: dict[str, list[Any]], rounds: int, delay: int) -> int:
    """Rounds that choose parameters: none where each name leaves nothing open."""
    if all(len(each) == 1 for each in options.values()):
        probe = 0
    elif probe is None:
        probe = min(rounds // 2, _PROBE)
    else:
        probe = at_least("probe", probe, 1)
    least = delay + 1
    if rounds - probe < least or 0 < probe < least:
        raise ValueError(
            f"{rounds} rounds are too few, {probe} of them to choose parameters by: both these and "
            f"the others must be {least} at least, which jobs of {least} models may take"
        )
    return probe


@contextlib.contextmanager
def _bar(progress: bool, total: int) -> Iterator[Callable[[], object]]:
    if not progress:
        yield lambda: None
        return
    from ..progress import task_bar

    with task_bar("simulating", total) as advance:
        yield advance
