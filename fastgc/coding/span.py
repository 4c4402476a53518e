"""When messages suffice of a code that says no more than its rows: as soon as these span the sum.

The general case, by linear algebra: correct for every matrix, and slower than any rule that knows
its scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .rules import Numbers, Tally

__all__ = ["SOLVED", "Equations", "Span", "least_squares", "tolerated"]

# Relative residual up to which a_F B_F = 1 counts as solved. Where rounding alone exceeds it, the
# gradient would be worthless.
SOLVED = 1e-6

# Residual from which on, while it is followed message by message, it is computed to be sure: a
# basis that grows with every message is less precise than a decomposition of all of them.
LIKELY = 1e-4


class Equations(NamedTuple):
    """What a decoding vector must satisfy: ``vector @ rows = target``.

    Attributes
    ----------
    rows : (f, unknowns) array
    target : (unknowns,) or (unknowns, m) array
        A column for each piece of the gradient, where it is cut into m.
    real_part : bool
        Whether the real part of the combination is what counts.
    """

    rows: NDArray[np.number]
    target: NDArray[np.float64]
    real_part: bool = False

    def reals(self) -> NDArray[np.number]:
        """Rows that are combined with numbers of one kind: real ones for a real part."""
        if not self.real_part:
            return self.rows
        return np.concatenate([self.rows.real, -self.rows.imag])


def least_squares(given: Equations) -> tuple[NDArray[np.number], float]:
    """The shortest vector that minimises ``||vector @ rows - target||``, and what is left.

    Returns
    -------
    (f,) or (f, m) array
    float
        Relative to the target's norm.
    """
    rows = given.reals()
    vector = np.linalg.lstsq(rows.T, given.target)[0]
    left = np.linalg.norm(rows.T @ vector - given.target) / np.linalg.norm(given.target)
    if given.real_part:
        f = len(given.rows)
        vector = vector[:f] + 1j * vector[f:]
    return vector, float(left)


# Entries of rows, at most, of which all is found out that can be spared of them: half a second.
SPARED = 1 << 18

# Singular values of rows are this much larger than rounding, or it is not clear which are zero.
CLEAR = 1e-5


class Span(NamedTuple):
    """The rows that came span the target.

    Attributes
    ----------
    equations : function
        Of some messages.
    residual : function
        What is left of the target when these messages are combined as well as can be.
    messages : int
        How many there are.
    """

    equations: Callable[[Numbers], Equations]
    residual: Callable[[Numbers], float]
    messages: int

    def missing(self, survivors: Numbers) -> int:
        if survivors.size and self.residual(survivors) <= SOLVED:
            return 0
        # At least so many that, with the largest supports, everything is in some message.
        rest = np.setdiff1d(np.arange(self.messages), survivors)
        if not rest.size:
            return 1  # which cannot come
        lacking = ~(self.equations(survivors).rows != 0).any(axis=0)
        largest = (self.equations(rest).rows != 0).sum(axis=1).max()
        return max(1, -(-int(lacking.sum()) // max(int(largest), 1)))

    def spare(self) -> NDArray[np.float64] | None:
        """Numbers by which to tell quickly whether messages suffice, by those that did not come.

        With a the shortest vector of all messages, and N a basis of what can be added to it, others
        suffice without messages S if there is a y with ``a_S + N_S y = 0``: if, of their rows here,
        the first column is a combination of the others. Those are orthonormal, and 1 is the largest
        entry of the first.

        Returns
        -------
        (messages, q + 1) float64 array or None
            None where rows are complex, too many, or so near to being dependent that it is not
            clear whether they are. If not even all messages suffice, none can be spared.
        """
        given = self.equations(np.arange(0))
        if given.target.ndim > 1 or self.messages * len(given.target) > SPARED:
            return None
        given = self.equations(np.arange(self.messages))
        if given.real_part or given.rows.dtype.kind == "c" or not np.isfinite(given.rows).all():
            return None
        left, sizes, right = np.linalg.svd(given.rows)
        least = max(given.rows.shape) * np.finfo(np.float64).eps
        rank = int((sizes > least * sizes[0]).sum())
        if rank == 0 or sizes[rank - 1] < CLEAR * sizes[0]:
            return None
        own = right[:rank] @ given.target
        if np.linalg.norm(given.target - own @ right[:rank]) > SOLVED * np.linalg.norm(
            given.target
        ):
            return np.ones((self.messages, 1))
        shortest = left[:, :rank] @ (own / sizes[:rank])
        return np.column_stack([shortest / np.abs(shortest).max(), left[:, rank:]])

    def tally(self) -> Tally:
        return _SpanTally(self)


class _SpanTally:
    """Follows the span by an orthonormal basis of the rows that came.

    There is none before everything that is wanted is in some of them: they could not span it.
    """

    def __init__(self, rule: Span) -> None:
        self._rule = rule
        target = rule.equations(np.arange(0)).target
        self._target = target.reshape(len(target), -1).T  # a row for each piece
        self._whole = float(np.linalg.norm(target))
        self._wanted = self._target.any(axis=0)
        self.reset()

    def reset(self) -> None:
        self._came: list[int] = []
        self._lacking = self._wanted.copy()
        self._ahead: list[NDArray[np.number]] = []
        self._basis: list[NDArray[np.number]] = []
        self._left = self._target
        self._ready = False

    def add(self, message: int) -> bool:
        self._came.append(message)
        if self._ready:
            return True
        row = self._rule.equations(np.array([message])).rows[0]
        self._lacking &= row == 0
        self._ahead.append(row)
        if self._lacking.any():
            return False
        for each in self._ahead:
            self._span(each)
        self._ahead.clear()
        if np.linalg.norm(self._left) <= LIKELY * self._whole:
            self._ready = self._rule.residual(np.array(self._came)) <= SOLVED
        return self._ready

    def _span(self, row: NDArray[np.number]) -> None:
        size = np.linalg.norm(row)
        if not 0 < size < np.inf:
            return
        new = row / size
        if self._basis:
            basis = np.array(self._basis)
            for _ in range(2):  # once leaves rounding errors of the size of what was taken away
                new = new - (basis.conj() @ new) @ basis
        rest = np.linalg.norm(new)
        if rest > len(row) * np.finfo(np.float64).eps:
            new = new / rest
            self._basis.append(new)
            self._left = self._left - np.outer(self._left @ new.conj(), new)


SETS_TRIED = 5_000  # at most


def tolerated(n: int, suffice: Callable[[list[int]], bool]) -> int | None:
    """The most of n workers that may be silent, whichever they are; None if trying takes long.

    None as well if none may be, for not even the messages of all suffice. `suffice` says whether
    all messages of these workers do.
    """
    if not suffice(list(range(n))):
        return None
    tried = 0
    for s in range(1, n):
        tried += comb(n, s)
        if tried > SETS_TRIED:
            return None
        for lost in combinations(range(n), s):
            if not suffice(np.delete(np.arange(n), lost).tolist()):
                return s - 1
    return n - 1
