"""What load to spare, and waiting for more messages, buy in precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from .._arrays import at_least
from ..codes import Code
from .search import Sight, contiguous, worst_survivors

__all__ = ["SPARED", "SpareRow", "spare"]

SPARED = (0, 1, 2, 4, 8, 16)
_PLACES = 8  # windows of neighbours


class SpareRow(NamedTuple):
    """Errors to expect with something to spare, over the gradient's norm: `Code.trust`'s.

    Attributes
    ----------
    way : str
        "load": the code tolerates more stragglers than are silent, at a larger load. "wait": it
        tolerates as many as may be silent, but the master waits until fewer are.
    more : int
        Stragglers tolerated, or messages waited for, beyond the least.
    n, load : int
        Workers, and partitions of the one that has most.
    tolerated, silent : int
        Stragglers that the code tolerates, and workers whose messages do not come.
    random : float
        Median of random sets of silent workers.
    random_worst : float
        The largest of these.
    contiguous : float
        The largest of neighbours.
    worst : float
        The largest found by `worst_survivors`, among all.
    """

    way: str
    more: int
    n: int
    load: int
    tolerated: int
    silent: int
    random: float
    random_worst: float
    contiguous: float
    worst: float


def spare(
    make: Callable[[int], Code],
    stragglers: int,
    *,
    more: Sequence[int] = SPARED,
    method: str = "auto",
    dtype: DTypeLike = np.float64,
    sets: int = 100,
    seed: int = 0,
    progress: Callable[[], object] | None = None,
) -> list[SpareRow]:
    """How precise gradients become with load to spare, or by waiting for a few more messages.

    Parameters
    ----------
    make : callable
        Makes the code that tolerates so many stragglers. ValueError if there is none: its row is
        left out.
    stragglers : int
        Workers that are silent, and those that the code of least load tolerates.
    more : sequence of int, default (0, 1, 2, 4, 8, 16)
        Stragglers to tolerate beyond these, or messages to wait for.
    method : str
        As in `Code.decoding_vector`.
    dtype : numpy dtype
        Of the messages, as in `worst_survivors`.
    sets : int, default 100
        Random sets, and `trials` of `worst_survivors`.
    seed : int
    progress : callable, optional
        Called after each row.

    Returns
    -------
    list of SpareRow
        For each number, that by load and that by waiting, which are the same for 0.

    Raises
    ------
    ValueError
        If there is no code at all, or a number is negative.

    Examples
    --------
    What a load of 41 instead of 33 buys, and what eight messages more than the 224 needed:

    >>> import fastgc
    >>> from fastgc.stability import spare
    >>> rows = spare(lambda s: fastgc.ReedSolomon(256, stragglers=s), 32, more=[0, 8], sets=5)
    >>> [(row.load, row.silent, row.worst < 1e-9) for row in rows if row.more]
    [(41, 32, True), (33, 24, True)]
    >>> rows[0].worst > 1e-9
    True
    """
    s = at_least("stragglers", stragglers, 0)
    numbers = [at_least("more", each, 0) for each in more]
    sets, seed = at_least("sets", sets, 1), at_least("seed", seed, 0)
    rows = []
    why: ValueError | None = None
    for number in numbers:
        for way, tolerated, silent in (("load", s + number, s), ("wait", s, s - number)):
            if silent >= 0:
                try:
                    code = make(tolerated)
                    if silent >= code.n:
                        raise ValueError(f"{silent} of {code.n} workers cannot straggle")
                    head = (way, number, code.n, code.load, code.known_stragglers(), silent)
                    rows.append(SpareRow(*head, *_errors(code, silent, method, dtype, sets, seed)))
                except ValueError as error:
                    why = error
            if progress is not None:
                progress()
    if not rows:
        raise ValueError(f"no such code tolerates {s} stragglers: {why}")
    return rows


def _errors(
    code: Code, s: int, method: str, dtype: DTypeLike, sets: int, seed: int
) -> tuple[float, float, float, float]:
    rng = np.random.default_rng(seed)
    sight = Sight(code, method, dtype)
    near = max(sight.error(lost) for lost in contiguous(code.n, s, _PLACES, rng))
    random = [sight.error(rng.permutation(code.n)[:s]) for _ in range(sets)]
    found = worst_survivors(code, s, method=method, dtype=dtype, trials=sets, seed=seed)
    most = max(random)
    return float(np.median(random)), most, near, max(found.error, near, most)
